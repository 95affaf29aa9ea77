"""Check MATLAB files before SciPy reads them.

SciPy trusts the types and sizes in a file, and a damaged one can crash the whole process. So all
tags are checked first. Contents that no annotation needs (objects, sparse matrices, functions) are
rejected.
"""

import math
import struct
import zlib
from pathlib import Path

from callshot.corpus.annotations.text import read_bytes
from callshot.errors import InputError

HEADER_BYTES = 128
BYTE_ORDERS = {b"IM": "<", b"MI": ">"}
MAX_UNPACKED_BYTES = 2**26  # of one compressed variable
MAX_DEPTH = 32
# Types of elements.
INT8 = 1
INT32 = 5
UINT32 = 6
MATRIX = 14
COMPRESSED = 15
NUMBER_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
TEXTS = (1, 2, 4, 16, 17, 18)
INTEGER_CODES = {INT32: "i", UINT32: "I"}
# Classes of variables.
CELL = 1
STRUCT = 2
CHAR = 4
NUMERIC = range(6, 16)
COMPLEX = 0x0800


class DamageError(Exception):
    """The parts of a file do not fit together."""


class Elements:
    """The tagged elements of some bytes, in order; padding may be cut off at the end."""

    def __init__(self, raw: bytes | memoryview, byte_order: str) -> None:
        self.remaining = memoryview(raw)
        self.byte_order = byte_order

    def next(self, *types: int) -> tuple[int, memoryview]:
        """Return the type and the bytes of the next element, which must be of one of `types`."""
        tag = self._read(8)
        kind, size = struct.unpack(f"{self.byte_order}II", tag)
        if kind >> 16:  # up to 4 bytes are written into the tag
            size = kind >> 16
            kind &= 0xFFFF
            data = tag[4:][:size]
        else:
            data = self._read(size)
            if kind != COMPRESSED:
                self.remaining = self.remaining[-size % 8 :]
        if kind not in types or size != len(data):
            raise DamageError(f"unexpected type {kind} of {size} bytes")
        return kind, data

    def next_integers(self, kind: int) -> tuple[int, ...]:
        """Return the integers of the next element."""
        _, data = self.next(kind)
        code = f"{self.byte_order}{len(data) // 4}{INTEGER_CODES[kind]}"
        return struct.unpack(code, data)

    def _read(self, size: int) -> memoryview:
        data = self.remaining[:size]
        if len(data) < size:
            raise DamageError(f"expected {size} more bytes, got {len(data)}")
        self.remaining = self.remaining[size:]
        return data


def check_mat(path: Path) -> None:
    """Raise InputError if a MATLAB file is damaged."""
    raw = read_bytes(path)
    try:
        byte_order = BYTE_ORDERS.get(raw[126:HEADER_BYTES])
        if not raw.startswith(b"MATLAB 5.0") or byte_order is None:
            raise DamageError("expected the header of a MATLAB 5.0 file")
        _check_file(Elements(raw[HEADER_BYTES:], byte_order))
    except (DamageError, struct.error, zlib.error) as error:
        raise InputError(
            f"{path}: not a MATLAB file that crowsetta can read ({error}); "
            "save it again, as version 6 or 7"
        ) from None


def _check_file(elements: Elements) -> None:
    while elements.remaining:
        kind, data = elements.next(MATRIX, COMPRESSED)
        if kind == COMPRESSED:
            unpacked = Elements(_unpack(data), elements.byte_order)
            _, data = unpacked.next(MATRIX)
        _check_variable(Elements(data, elements.byte_order), 0)


def _unpack(data: memoryview) -> bytes:
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(data, MAX_UNPACKED_BYTES)
    if not unpacker.eof:
        raise DamageError(
            f"a compressed variable does not end in {MAX_UNPACKED_BYTES} bytes"
        )
    return raw


def _check_variable(elements: Elements, depth: int) -> None:
    """Check a variable and everything in it."""
    if not elements.remaining:
        return
    if depth > MAX_DEPTH:
        raise DamageError(f"nested more than {MAX_DEPTH} deep")
    flags = elements.next_integers(UINT32)
    shape = elements.next_integers(INT32)
    elements.next(INT8)
    has_shape = 2 <= len(shape) <= 32 and min(shape) >= 0
    if len(flags) != 2 or not has_shape:
        raise DamageError(f"a variable with {len(flags)} flags and shape {shape[:4]}")
    _check_content(elements, flags[0], math.prod(shape), depth)
    if elements.remaining:
        raise DamageError(f"{len(elements.remaining)} surplus bytes in a variable")


def _check_content(elements: Elements, flags: int, count: int, depth: int) -> None:
    kind = flags & 0xFF
    if kind in NUMERIC:
        _check_numbers(elements, count)
        if flags & COMPLEX:
            _check_numbers(elements, count)
    elif kind == CHAR:
        elements.next(*TEXTS)
    elif kind in (CELL, STRUCT):
        if kind == STRUCT:
            count *= _count_fields(elements)
        # Each needs some bytes: a count that is too large ends soon.
        for _ in range(count):
            _, data = elements.next(MATRIX)
            _check_variable(Elements(data, elements.byte_order), depth + 1)
    else:
        raise DamageError(f"a variable of class {kind}, which no annotation needs")


def _check_numbers(elements: Elements, count: int) -> None:
    kind, data = elements.next(*NUMBER_BYTES)
    if len(data) != count * NUMBER_BYTES[kind]:
        raise DamageError(
            f"expected {count} numbers, got {len(data)} bytes of type {kind}"
        )


def _count_fields(elements: Elements) -> int:
    """Return the number of fields of a structure."""
    width = elements.next_integers(INT32)
    _, names = elements.next(INT8)
    if len(width) != 1 or width[0] <= 0 or len(names) % width[0]:
        raise DamageError("the names of fields do not fit")
    return len(names) // width[0]
