"""Flatbuffers, read in place: a tflite model comes in, one with another output goes out.

    table → vtable → the position of each field, or none
    vector → its length, then its items

Every offset is a number in the file, and is checked against the end of the file before it is
followed. A position counts bytes from the start of the file. All items of the vectors read here
have 4 bytes.
"""

import struct
from dataclasses import dataclass
from pathlib import Path

from callshot.errors import InputError, printable, suggest
from callshot.files import explain_unreadable, write_atomic

LONGEST_NAME = 4096  # bytes; a damaged length must not make a name of the whole file

# Fields of the tables in a tflite file, in the order of its public schema: model, subgraph, tensor
# and operator.
MODEL_SUBGRAPHS = 2
MODEL_SIGNATURES = 7
GRAPH_TENSORS = 0
GRAPH_INPUTS = 1
GRAPH_OUTPUTS = 2
GRAPH_OPERATORS = 3
TENSOR_SHAPE = 0
TENSOR_TYPE = 1
TENSOR_NAME = 3
OPERATOR_INPUTS = 1
OPERATOR_OUTPUTS = 2
FLOAT32 = 0
INT8 = 9
TYPE_NAMES = {FLOAT32: "float32", INT8: "int8"}

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class FlatBuffer:
    """The bytes of a flatbuffer, and their name for error messages.

    >>> flat = FlatBuffer("tiny", bytes([8, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 7, 0, 0, 0]))
    >>> flat.number("I", flat.field(flat.root, 0))
    7
    >>> flat.field(flat.root, 1) is None
    True
    >>> flat.number("I", 14)
    Traceback (most recent call last):
    callshot.errors.InputError: tiny: damaged at byte 14: expected 4 bytes, the file has 16; \
get it again
    """

    source: str
    data: bytes | bytearray

    @property
    def root(self) -> int:
        """Position of the first table."""
        return self.follow(0)

    def number(self, code: str, position: int) -> int:
        """Read a little-endian integer; `code` is one of `struct`: b, H, i or I."""
        self._check_range(position, struct.calcsize(f"<{code}"))
        return int(struct.unpack_from(f"<{code}", self.data, position)[0])

    def follow(self, position: int) -> int:
        """Return the position that the offset at a position points to."""
        return position + self.number("I", position)

    def field(self, table: int, slot: int) -> int | None:
        """Return the position of a field; None if the table leaves it at its default."""
        vtable = table - self.number("i", table)
        entry = 4 + 2 * slot  # after the sizes of vtable and table
        if entry + 2 > self.number("H", vtable):
            return None
        offset = self.number("H", vtable + entry)
        return table + offset if offset > 0 else None

    def vector(self, table: int, slot: int, *, item_size: int = 4) -> range:
        """Return the positions of a vector's items; a missing vector is empty."""
        position = self.field(table, slot)
        if position is None:
            return range(0)
        start = self.follow(position) + 4  # after its length
        size = item_size * self.number("I", start - 4)
        self._check_range(start, size)
        return range(start, start + size, item_size)

    def numbers(self, table: int, slot: int) -> Numbers:
        """Read a vector of signed integers."""
        items = self.vector(table, slot)
        return struct.unpack_from(f"<{len(items)}i", self.data, items.start)

    def tables(self, table: int, slot: int) -> list[int]:
        """Return the positions of the tables in a vector."""
        return [self.follow(position) for position in self.vector(table, slot)]

    def text(self, table: int, slot: int) -> str:
        """Read a text; a missing one is empty, and bytes that are not UTF-8 are replaced."""
        characters = self.vector(table, slot, item_size=1)[:LONGEST_NAME]
        content = self.data[characters.start : characters.stop]
        return content.decode("utf-8", "replace")

    def _check_range(self, position: int, size: int) -> None:
        if not 0 <= position <= len(self.data) - size:
            raise InputError(
                f"{self.source}: damaged at byte {position}: expected {size} bytes, "
                f"the file has {len(self.data)}; get it again"
            )


def expose_tensor(
    source: Path, target: Path, tensor: str, *, quantized: bool = False
) -> None:
    """Write a tflite model whose only output is the named inner tensor of another model.

    The tensor must hold one vector for each window, of float32, or of int8 if it is quantised.
    Later operators are left out, and so are signatures, which would name the old outputs.

    >>> expose_tensor(Path("missing.tflite"), Path("embedding.tflite"), "model/Mean")
    Traceback (most recent call last):
    callshot.errors.InputError: missing.tflite: cannot be read (No such file or directory)
    """
    data = bytearray(read_tflite(source))
    kind = INT8 if quantized else FLOAT32
    rewrite_output(FlatBuffer(str(source), data), tensor, kind)
    write_atomic(target, memoryview(data))


def read_tflite(path: Path) -> bytes:
    """Read a tflite file, recognised by its four magic letters."""
    with explain_unreadable(path):
        content = path.read_bytes()
    magic = content[4:8]
    if magic != b"TFL3":
        raise InputError(
            f"{path}: not a tflite model: expected TFL3 at byte 4, got {magic!r}; get it again"
        )
    return content


def rewrite_output(flat: FlatBuffer, tensor: str, kind: int = FLOAT32) -> None:
    """Make a tensor the only output, and its operator the last, by changing numbers in place."""
    graph = _find_graph(flat)
    index = _find_tensor(flat, graph, tensor, kind)
    inputs, _, operators = _read_graph(flat)
    outputs = flat.vector(graph, GRAPH_OUTPUTS)
    counts = [count for count, (_, made) in enumerate(operators, 1) if index in made]
    if len(counts) != 1 or len(outputs) == 0:
        raise InputError(
            f"{flat.source}: expected one operator that computes {tensor} and at least one "
            f"output, got {len(counts)} operators and {len(outputs)} outputs"
        )
    (count,) = counts
    struct.pack_into("<i", flat.data, outputs.start, index)
    _shorten(flat, outputs, 1)
    _shorten(flat, flat.vector(graph, GRAPH_OPERATORS), count)
    _shorten(flat, flat.vector(flat.root, MODEL_SIGNATURES), 0)
    # Two tables may have shared the changed numbers.
    if _read_graph(flat) != (inputs, (index,), operators[:count]):
        raise InputError(
            f"{flat.source}: its tables overlap, so it cannot be rewritten; get it again"
        )


def _find_graph(flat: FlatBuffer) -> int:
    graphs = flat.tables(flat.root, MODEL_SUBGRAPHS)
    if not graphs:
        raise InputError(f"{flat.source}: the model has no graph; get it again")
    return graphs[0]


def _read_graph(
    flat: FlatBuffer,
) -> tuple[Numbers, Numbers, list[tuple[Numbers, Numbers]]]:
    """Return inputs and outputs of the graph, and of each operator in the order of execution."""
    graph = _find_graph(flat)
    inputs = flat.numbers(graph, GRAPH_INPUTS)
    outputs = flat.numbers(graph, GRAPH_OUTPUTS)
    operators = []
    for table in flat.tables(graph, GRAPH_OPERATORS):
        read = flat.numbers(table, OPERATOR_INPUTS)
        made = flat.numbers(table, OPERATOR_OUTPUTS)
        operators.append((read, made))
    return inputs, outputs, operators


def _find_tensor(flat: FlatBuffer, graph: int, tensor: str, expected: int) -> int:
    """Return the index of the named tensor, which must be one vector per window."""
    tables = flat.tables(graph, GRAPH_TENSORS)
    names = [flat.text(table, TENSOR_NAME) for table in tables]
    count = names.count(tensor)
    if count != 1:
        hint = suggest(tensor, set(names) - {tensor})
        message = f"{flat.source}: expected one tensor {tensor}, got {count}{hint}"
        raise InputError(printable(message))
    index = names.index(tensor)
    table = tables[index]
    shape = flat.numbers(table, TENSOR_SHAPE)
    position = flat.field(table, TENSOR_TYPE)
    kind = FLOAT32 if position is None else flat.number("b", position)
    is_vector = len(shape) > 1 and set(shape[:-1]) == {1}
    if not is_vector or kind != expected:
        raise InputError(
            f"{flat.source}: tensor {tensor}: expected shape (1, dimension) and type {expected} "
            f"({TYPE_NAMES[expected]}), got shape {shape} and type {kind}"
        )
    return index


def _shorten(flat: FlatBuffer, vector: range, length: int) -> None:
    """Keep the first items of a vector."""
    if len(vector) > length:
        struct.pack_into("<i", flat.data, vector.start - 4, length)
