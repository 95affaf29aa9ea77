"""A tiny tflite model with BirdNET's ends, made byte by byte, and where BirdNET's own file is.

The embedding of the tiny one is the first 1024 samples of a window.
"""

import os
import struct
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from callshot.encoders.birdnet import EMBEDDING
from callshot.encoders.weights.weight_files import weight_folder

SLICE, NEG = 65, 59


# A flatbuffer: a dict is a table by slot, a list a vector, text and bytes are themselves, a number lies in its field


def put(out: bytearray, node: Any) -> int:
    """Append a node and all below it; return where it is."""
    out += bytes(-len(out) % 4)
    if isinstance(node, str | bytes):
        raw = node.encode() if isinstance(node, str) else node
        out += struct.pack("<I", len(raw)) + raw + b"\0"
        return len(out) - len(raw) - 5
    if isinstance(node, list):
        start, children = len(out), dict(enumerate(node, 1))
        out += struct.pack("<I", len(node)) + bytes(4 * len(node))
    else:
        width = max(node, default=-1) + 1
        places = {slot: number for number, slot in enumerate(node, 1)}
        out += struct.pack("<HH", 4 + 2 * width, 4 + 4 * len(node))
        out += b"".join(struct.pack("<H", 4 * places.get(slot, 0)) for slot in range(width))
        vtable = len(out) - 4 - 2 * width
        out += bytes(-len(out) % 4)
        start, children = len(out), {places[slot]: child for slot, child in node.items()}
        out += struct.pack("<i", start - vtable) + bytes(4 * len(node))
    for number, child in children.items():
        at = start + 4 * number
        struct.pack_into("<i", out, at, child if isinstance(child, int) else put(out, child) - at)
    return start


def packed(root: Any) -> bytes:
    out = bytearray(4) + b"TFL3"
    struct.pack_into("<I", out, 0, put(out, root))
    return bytes(out)


def tensor(name: str, shape: list[int], kind: int = 0, buffer: int = 0) -> dict[int, Any]:
    return {0: shape, 1: kind, 2: buffer, 3: name}


def tiny(graph: dict[int, Any] | None = None, model: dict[int, Any] | None = None) -> bytes:
    """Make a model: wave → slice of 1024 → its negative, with a signature that names the negative; or change fields."""
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
    fields = {0: 3, 1: codes, 2: [graph], 3: "tiny", 4: buffers, 7: [signature]} | (model or {})
    return packed({slot: child for slot, child in fields.items() if child is not None})


def written(folder: Path, content: bytes, name: str = "source.tflite") -> Path:
    (folder / name).write_bytes(content)
    return folder / name


@cache
def weights() -> Path:
    """Find BirdNET's own file, or skip."""
    name = "BirdNET_GLOBAL_6K_V2.4_Model_FP32.tflite"
    for path in (
        weight_folder("birdnet-v2.4") / name,
        Path(os.environ.get("CALLSHOT_BIRDNET", "")),
    ):
        if path.is_file():
            return path
    pytest.skip(
        "BirdNET's weights are not here: callshot encoders get birdnet-v2.4, or set CALLSHOT_BIRDNET"
    )
