"""Check MATLAB files before SciPy reads them.

SciPy trusts the types and sizes in a file: 1 of 60 damaged files crashes the whole
process. So all elements are checked first. Contents that no annotation needs (objects, sparse
matrices, functions) are rejected.
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
# Types of elements, with the bytes of a number.
INT8 = 1
INT32 = 5
UINT32 = 6
MATRIX = 14
COMPRESSED = 15
NUMBER_BYTES = {1: 1, 2: 1, 3: 2, 4: 2, 5: 4, 6: 4, 7: 4, 9: 8, 12: 8, 13: 8}
TEXTS = (1, 2, 4, 16, 17, 18)
# Classes of variables.
CELL = 1
STRUCT = 2
CHAR = 4
NUMERIC = range(6, 16)
COMPLEX = 0x0800

Element = tuple[int, memoryview]


def check_mat(path: Path) -> None:
    """Raise InputError if a MATLAB file is damaged."""
    raw = read_bytes(path)
    try:
        order = BYTE_ORDERS.get(raw[126:HEADER_BYTES])
        if not raw.startswith(b"MATLAB 5.0") or order is None:
            raise ValueError("expected the header of a MATLAB 5.0 file")
        for kind, data in _split(memoryview(raw)[HEADER_BYTES:], order):
            if kind == COMPRESSED:
                ((kind, data),) = _split(_unpack(data), order)
            _check_variable(kind, data, order, 0)
    except (ValueError, struct.error, zlib.error) as error:
        raise InputError(
            f"{path}: not a MATLAB file that crowsetta can read ({error}); "
            "save it again, as version 6 or 7"
        ) from None


def _unpack(data: memoryview) -> memoryview:
    unpacker = zlib.decompressobj()
    raw = unpacker.decompress(data, MAX_UNPACKED_BYTES)
    if not unpacker.eof:
        raise ValueError(f"a variable does not end in {MAX_UNPACKED_BYTES} bytes")
    return memoryview(raw)


def _split(raw: memoryview, order: str) -> list[Element]:
    """Return the elements of some bytes; the padding after the last one may be cut off."""
    elements = []
    while raw:
        kind, size = struct.unpack(f"{order}II", raw[:8])
        end = 8 + size
        data = raw[8:end]
        if kind != COMPRESSED:
            end += -size % 8
        if kind >> 16:  # up to 4 bytes are written into the tag
            kind, size = kind & 0xFFFF, kind >> 16
            data = raw[4:8][:size]
            end = 8
        if len(data) != size:
            raise ValueError(f"type {kind}: expected {size} bytes, got {len(data)}")
        elements.append((kind, data))
        raw = raw[end:]
    return elements


def _check_variable(kind: int, data: memoryview, order: str, depth: int) -> None:
    """Check a variable and everything in it."""
    if kind != MATRIX or depth > MAX_DEPTH:
        raise ValueError(f"type {kind} at depth {depth}")
    if not data:
        return
    flags, shape, name, *content = _split(data, order)
    (attributes, _) = _read_integers(flags, UINT32, f"{order}2I")
    sizes = _read_integers(shape, INT32, f"{order}{len(shape[1]) // 4}i")
    if name[0] != INT8 or not 2 <= len(sizes) <= 32 or min(sizes) < 0:
        raise ValueError(f"a variable of shape {sizes[:4]}")
    count = math.prod(sizes)
    variable_class = attributes & 0xFF
    if variable_class in NUMERIC:
        if len(content) != (2 if attributes & COMPLEX else 1):
            raise ValueError(f"numbers in {len(content)} parts")
        for kind, data in content:
            is_number = kind in NUMBER_BYTES
            if not is_number or len(data) != count * NUMBER_BYTES[kind]:
                raise ValueError(
                    f"expected {count} numbers, got type {kind} of {len(data)} bytes"
                )
    elif variable_class == CHAR:
        if [kind in TEXTS for kind, _ in content] != [True]:
            raise ValueError("expected a text")
    elif variable_class in (CELL, STRUCT):
        if variable_class == STRUCT:
            width, (names_kind, names), *content = content
            (name_bytes,) = _read_integers(width, INT32, f"{order}i")
            if names_kind != INT8 or name_bytes <= 0 or len(names) % name_bytes:
                raise ValueError("the names of fields do not fit")
            count *= len(names) // name_bytes
        if len(content) != count:
            raise ValueError(f"expected {count} variables, got {len(content)}")
        for kind, data in content:
            _check_variable(kind, data, order, depth + 1)
    else:
        raise ValueError(f"class {variable_class}, which no annotation needs")


def _read_integers(element: Element, kind: int, code: str) -> tuple[int, ...]:
    if element[0] != kind:
        raise ValueError(f"expected type {kind}, got type {element[0]}")
    return struct.unpack(code, element[1])
