"""MATLAB files before SciPy reads them: one comes in, and an error goes out where its parts do not fit together.

SciPy trusts the types and sizes that are written in a file, and one that is damaged can end the whole process. So all
tags are walked through first. What no annotation needs (objects, sparse matrices, functions) is refused.
"""

import math
import struct
import zlib
from pathlib import Path

from callshot.errors import InputError

HEADER_BYTES = 128
MOST_BYTES = 2**26  # of one compressed variable, unpacked
MOST_NESTED = 32
INT8, INT32, UINT32, MATRIX, COMPRESSED = 1, 5, 6, 14, 15
NUMBERS = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}  # bytes of one, by type
TEXTS = {1, 2, 4, 16, 17, 18}
CELL, STRUCT, CHAR, NUMERIC = 1, 2, 4, range(6, 16)
COMPLEX = 0x0800


class Damage(Exception):
    """What does not fit."""


class Parts:
    """Go through the tagged parts of some bytes."""

    def __init__(self, raw: bytes, order: str) -> None:
        self.raw, self.order, self.at = raw, order, 0

    def next(self, *types: int) -> tuple[int, bytes]:
        """Return the type and the bytes of the next part, which must be of one of these types."""
        kind, size = struct.unpack_from(f"{self.order}II", self._cut(8))
        if kind >> 16:  # up to 4 bytes are written into the tag
            size, kind = kind >> 16, kind & 0xFFFF
            data = self.raw[self.at - 4 : self.at][:size]
        else:
            data = self._cut(size)
            self.at = self.at if kind == COMPRESSED else min(len(self.raw), self.at + -size % 8)
        if kind not in types or size != len(data):
            raise Damage(f"type {kind} of {size} bytes where it cannot be")
        return kind, data

    def _cut(self, size: int) -> bytes:
        data = self.raw[self.at : self.at + size]
        if len(data) < size:
            raise Damage(f"wanted {size} more bytes, found {len(data)}")
        self.at += size
        return data

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self.raw) - self.at


def check_mat(path: Path) -> None:
    """Refuse a MATLAB file that is damaged."""
    try:
        raw = path.read_bytes()
        if not raw.startswith(b"MATLAB 5.0") or raw[126:128] not in (b"IM", b"MI"):
            raise Damage("wanted the header of a MATLAB 5.0 file")
        _check_file(Parts(raw[HEADER_BYTES:], "<" if raw[126:128] == b"IM" else ">"))
    except (Damage, zlib.error) as error:
        mend = "save it again, as version 6 or 7"
        raise InputError(
            f"{path}: not a MATLAB file that crowsetta could read ({error}); {mend}"
        ) from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def _check_file(parts: Parts) -> None:
    while parts.left > 0:
        kind, data = parts.next(MATRIX, COMPRESSED)
        if kind == COMPRESSED:
            inner = Parts(_unpacked(data), parts.order)
            data = inner.next(MATRIX)[1]
        _check_matrix(data, parts.order, 0)


def _unpacked(data: bytes) -> bytes:
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(data, MOST_BYTES)
    if not unpacker.eof:
        raise Damage(f"a compressed variable that has no end in {MOST_BYTES} bytes")
    return raw


def _check_matrix(data: bytes, order: str, depth: int) -> None:
    """Walk through one variable, and all that is in it."""
    if not data or depth > MOST_NESTED:
        if data:
            raise Damage(f"nested over {MOST_NESTED} deep")
        return
    parts = Parts(data, order)
    flags = _integers(parts, UINT32)
    sizes = _integers(parts, INT32)
    parts.next(INT8)
    if len(flags) != 2 or not 2 <= len(sizes) <= 32 or min(sizes) < 0:
        raise Damage(f"a variable of {len(flags)} flags and shape {sizes[:4]}")
    _check_content(parts, flags[0], math.prod(sizes), depth)
    if parts.left > 0:
        raise Damage(f"{parts.left} bytes too many in a variable")


def _check_content(parts: Parts, flags: int, count: int, depth: int) -> None:
    kind = flags & 0xFF
    if kind in NUMERIC:
        for _ in range(2 if flags & COMPLEX else 1):
            stored, data = parts.next(*NUMBERS)
            if len(data) != count * NUMBERS[stored]:
                raise Damage(f"wanted {count} numbers, found {len(data)} bytes of type {stored}")
    elif kind == CHAR:
        parts.next(*TEXTS)
    elif kind in (CELL, STRUCT):
        count *= _fields(parts) if kind == STRUCT else 1
        for _ in range(count):  # each takes some bytes, so that a count that is too large ends soon
            _check_matrix(parts.next(MATRIX)[1], parts.order, depth + 1)
    else:
        raise Damage(f"a variable of class {kind}, which no annotation needs")


def _fields(parts: Parts) -> int:
    """Return how many fields a structure has."""
    width = _integers(parts, INT32)
    names = parts.next(INT8)[1]
    if len(width) != 1 or width[0] <= 0 or len(names) % width[0]:
        raise Damage("names of fields that do not fit")
    return len(names) // width[0]


def _integers(parts: Parts, kind: int) -> tuple[int, ...]:
    data = parts.next(kind)[1]
    if len(data) % 4:
        raise Damage(f"{len(data)} bytes where integers are wanted")
    return struct.unpack(f"{parts.order}{len(data) // 4}{'I' if kind == UINT32 else 'i'}", data)
