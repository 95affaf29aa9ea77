"""Flatbuffers, read where they lie: a tflite model, which is one, comes in, and one with another output goes out.

    table → vtable → the position of each field, or none          vector → its length, then its items

Every jump is a number in the file: it is checked against the end of the file before it is made. A position is a count
of bytes from the start of the file. All items of the vectors read here have 4 bytes.
"""

import struct
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from callshot.errors import InputError, printable
from callshot.files import atomic_path

LONGEST_NAME = 4096  # bytes; a damaged length must not make a name of the whole file

# Fields of the tables of a tflite file, in the order of its public schema
SUBGRAPHS, SIGNATURES = 2, 7
TENSORS, INPUTS, OUTPUTS, OPERATORS = 0, 1, 2, 3
SHAPE, TYPE, NAME = 0, 1, 3
READS, MAKES = 1, 2
FLOAT32 = 0


@dataclass(frozen=True)
class FlatBuffer:
    """The bytes of a flatbuffer, and what to call them when they are damaged.

    >>> flat = FlatBuffer("tiny", bytes([8, 0, 0, 0, 6, 0, 8, 0, 4, 0, 0, 0, 7, 0, 0, 0]))
    >>> flat.number("I", flat.field(flat.root, 0))
    7
    >>> flat.field(flat.root, 1) is None
    True
    >>> flat.number("I", 14)
    Traceback (most recent call last):
    callshot.errors.InputError: tiny: damaged at byte 14: 4 bytes wanted, the file has 16; get it again
    """

    source: str
    data: bytes | bytearray

    @property
    def root(self) -> int:
        """Where the first table is."""
        return self.follow(0)

    def number(self, code: str, at: int) -> int:
        """Read a little-endian integer; `code` is that of `struct`: b, H, i or I."""
        self._refuse_beyond(at, struct.calcsize(f"<{code}"))
        return int(struct.unpack_from(f"<{code}", self.data, at)[0])

    def follow(self, at: int) -> int:
        """Return the position that an offset at a position leads to."""
        return at + self.number("I", at)

    def field(self, table: int, slot: int) -> int | None:
        """Return where a field of a table is; None where the table leaves it at its default."""
        vtable = table - self.number("i", table)
        entry = 4 + 2 * slot  # after the sizes of vtable and table
        if entry + 2 > self.number("H", vtable):
            return None
        offset = self.number("H", vtable + entry)
        return table + offset if offset > 0 else None

    def vector(self, table: int, slot: int) -> range:
        """Return the positions of a vector's items; its length lies before the first. A missing one is empty."""
        at = self.field(table, slot)
        if at is None:
            return range(0)
        first = self.follow(at) + 4
        size = 4 * self.number("I", first - 4)
        self._refuse_beyond(first, size)
        return range(first, first + size, 4)

    def numbers(self, table: int, slot: int) -> tuple[int, ...]:
        """Read a vector of signed integers."""
        items = self.vector(table, slot)
        return struct.unpack_from(f"<{len(items)}i", self.data, items.start)

    def tables(self, table: int, slot: int) -> list[int]:
        """Return where the tables in a vector are."""
        return [self.follow(at) for at in self.vector(table, slot)]

    def text(self, table: int, slot: int) -> str:
        """Read a text; a missing one is empty, and bytes that are not UTF-8 are replaced."""
        at = self.field(table, slot)
        if at is None:
            return ""
        first = self.follow(at) + 4
        size = self.number("I", first - 4)
        self._refuse_beyond(first, size)
        return self.data[first : first + min(size, LONGEST_NAME)].decode("utf-8", "replace")

    def _refuse_beyond(self, at: int, size: int) -> None:
        if not 0 <= at <= len(self.data) - size:
            found = f"{size} bytes wanted, the file has {len(self.data)}"
            raise InputError(f"{self.source}: damaged at byte {at}: {found}; get it again")


def expose_tensor(source: Path, target: Path, tensor: str) -> None:
    """Write a tflite model whose only output is a tensor of another's graph: the whole of it, or nothing.

    The tensor is found by its name, and must be one float32 vector for each window. Operators behind the one that makes
    it are left out, and so are signatures, which would name the outputs of old.

    >>> expose_tensor(Path("gone.tflite"), Path("embedding.tflite"), "model/GLOBAL_AVG_POOL/Mean")
    Traceback (most recent call last):
    callshot.errors.InputError: gone.tflite: cannot be read (No such file or directory)
    """
    flat = FlatBuffer(str(source), bytearray(read_tflite(source)))
    _rewrite(flat, tensor)
    with atomic_path(target) as unfinished:
        unfinished.write_bytes(flat.data)


def read_tflite(path: Path) -> bytes:
    """Read a tflite file, recognised by the four letters that all have."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if content[4:8] != b"TFL3":
        raise InputError(
            f"{path}: not a tflite model: wanted TFL3 at byte 4, found {content[4:8]!r}; get it again"
        )
    return content


def _rewrite(flat: FlatBuffer, tensor: str) -> None:
    """Make a tensor the only output and its operator the last, by changing numbers that are there already."""
    graph = _graph(flat)
    index = _find(flat, graph, tensor)
    inputs, operators = flat.numbers(graph, INPUTS), _operators(flat, graph)
    makers = [number for number, (_, tensors) in enumerate(operators, 1) if index in tensors]
    outputs = flat.vector(graph, OUTPUTS)
    if len(makers) != 1 or len(outputs) == 0:
        found = f"{len(makers)} operators make {tensor}, and {len(outputs)} tensors are outputs"
        raise InputError(f"{flat.source}: {found}; wanted one operator, and one output or more")
    _put(flat, outputs.start, index)
    _shorten(flat, outputs, 1)
    _shorten(flat, flat.vector(graph, OPERATORS), makers[0])
    _shorten(flat, flat.vector(flat.root, SIGNATURES), 0)
    now = _graph(flat)
    made = flat.numbers(now, OUTPUTS), flat.numbers(now, INPUTS), _operators(flat, now)
    if made != (
        (index,),
        inputs,
        operators[: makers[0]],
    ):  # two tables may have shared what was changed
        raise InputError(
            f"{flat.source}: its tables overlap, so it cannot be rewritten; get it again"
        )


def _graph(flat: FlatBuffer) -> int:
    graphs = flat.tables(flat.root, SUBGRAPHS)
    if not graphs:
        raise InputError(f"{flat.source}: the model has no graph; get it again")
    return graphs[0]


def _operators(flat: FlatBuffer, graph: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
    """List the tensors that each operator reads and makes, in the order in which they run."""
    return [
        (flat.numbers(table, READS), flat.numbers(table, MAKES))
        for table in flat.tables(graph, OPERATORS)
    ]


def _find(flat: FlatBuffer, graph: int, tensor: str) -> int:
    """Return the number of a tensor of that name, if there is one and it is a vector for each window."""
    tables = flat.tables(graph, TENSORS)
    names = [flat.text(table, NAME) for table in tables]
    if names.count(tensor) != 1:
        raise InputError(f"{flat.source}: {_unknown(tensor, names)}")
    table = tables[names.index(tensor)]
    shape, at = flat.numbers(table, SHAPE), flat.field(table, TYPE)
    kind = FLOAT32 if at is None else flat.number("b", at)
    if len(shape) != 2 or shape[0] != 1 or kind != FLOAT32:
        wanted = f"wanted shape (1, dimension) and type {FLOAT32} (float32)"
        raise InputError(
            f"{flat.source}: tensor {tensor}: {wanted}, found shape {shape} and type {kind}"
        )
    return names.index(tensor)


def _unknown(tensor: str, names: list[str]) -> str:
    """Say that a name is not there, or there too often, and which ones are like it."""
    near = ", ".join(get_close_matches(tensor, dict.fromkeys(names), n=3, cutoff=0.4)) or "none"
    return printable(
        f"wanted one tensor {tensor}, found {names.count(tensor)} of {len(names)}; names like it: {near}"
    )


def _put(flat: FlatBuffer, at: int, number: int) -> None:
    struct.pack_into("<i", flat.data, at, number)


def _shorten(flat: FlatBuffer, vector: range, length: int) -> None:
    """Keep the first items of a vector; the length of an absent one is nowhere, and stays 0."""
    if len(vector) > length:
        _put(flat, vector.start - 4, length)
