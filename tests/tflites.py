"""A tiny tflite model with BirdNET's input and output, made byte by byte; BirdNET's own file.

The embedding of the tiny model is the first 1024 samples of a window.
"""

import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.weights import weight_folder

EMBEDDING = find_encoder("birdnet-v2.4").output
SLICE = 65
NEG = 59
BIRDNET_FILE = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"


# In a node of a flatbuffer a dict is a table by slot, a list is a vector, text and bytes are
# themselves, and a number is stored in its field.


def append_node(out: bytearray, node: Any) -> int:
    """Append a node and all below it; return its position."""
    out += bytes(-len(out) % 4)
    if isinstance(node, str):
        node = node.encode()
    if isinstance(node, bytes):
        position = len(out)
        out += struct.pack("<I", len(node)) + node + b"\0"
        return position
    if isinstance(node, list):
        position = len(out)
        children = dict(enumerate(node, 1))
        out += struct.pack("<I", len(node)) + bytes(4 * len(node))
    else:
        vtable = append_vtable(out, node)
        position = len(out)
        children = dict(enumerate(node.values(), 1))
        out += struct.pack("<i", position - vtable) + bytes(4 * len(node))
    for number, child in children.items():
        field = position + 4 * number
        value = child if isinstance(child, int) else append_node(out, child) - field
        struct.pack_into("<i", out, field, value)
    return position


def append_vtable(out: bytearray, table: dict[int, Any]) -> int:
    """Append the vtable of a table, whose fields are stored in their order; return its position."""
    position = len(out)
    width = max(table, default=-1) + 1
    numbers = {slot: number for number, slot in enumerate(table, 1)}
    out += struct.pack("<HH", 4 + 2 * width, 4 + 4 * len(table))
    for slot in range(width):
        out += struct.pack("<H", 4 * numbers.get(slot, 0))
    out += bytes(-len(out) % 4)
    return position


def pack(root: Any) -> bytes:
    """Return a flatbuffer with this root."""
    out = bytearray(4) + b"TFL3"
    struct.pack_into("<I", out, 0, append_node(out, root))
    return bytes(out)


def tensor(
    name: str, shape: list[int], kind: int = 0, buffer: int = 0
) -> dict[int, Any]:
    """Return the table of a tensor."""
    return {0: shape, 1: kind, 2: buffer, 3: name}


def tiny(
    graph: dict[int, Any] | None = None, model: dict[int, Any] | None = None
) -> bytes:
    """Make a model: wave → slice of 1024 → its negative, with a signature for the negative.

    `graph` and `model` change fields; None removes a field.
    """
    tensors = [
        tensor("INPUT", [1, 144000]),
        tensor("begin", [2], 2, 1),
        tensor("size", [2], 2, 2),
        tensor(EMBEDDING, [1, 1024]),
        tensor("Identity", [1, 1024]),
    ]
    operators = [{0: 0, 1: [0, 1, 2], 2: [3]}, {0: 1, 1: [3], 2: [4]}]
    graph = {0: tensors, 1: [0], 2: [4], 3: operators, 4: "main"} | (graph or {})
    buffers = [{}, {0: struct.pack("<2i", 0, 0)}, {0: struct.pack("<2i", 1, 1024)}]
    signature = {0: [{0: "wave", 1: 0}], 1: [{0: "logits", 1: 4}], 2: "serving_default"}
    codes = [{0: SLICE, 2: 1, 3: SLICE}, {0: NEG, 2: 1, 3: NEG}]
    fields = {0: 3, 1: codes, 2: [graph], 3: "tiny", 4: buffers, 7: [signature]} | (
        model or {}
    )
    return pack({slot: child for slot, child in fields.items() if child is not None})


def save(folder: Path, content: bytes, name: str = "source.tflite") -> Path:
    """Write a file and return its path."""
    path = folder / name
    path.write_bytes(content)
    return path


@cache
def birdnet_weights() -> Path:
    """Return the path of BirdNET's own file, or skip the test."""
    for path in (
        weight_folder("birdnet-v2.4") / BIRDNET_FILE,
        Path(os.environ.get("CALLSHOT_BIRDNET", "")),
    ):
        if path.is_file():
            return path
    pytest.skip(
        "BirdNET's weights are not here: callshot encoders get birdnet-v2.4, "
        "or set CALLSHOT_BIRDNET"
    )
