"""`.npz` files of any origin → their entries, after a look at how large they would become.

A deflated entry may grow a thousandfold: a file of 3 MB can fill the memory. Embeddings of real
recordings shrink less than twentyfold, so that a file which announces far more is refused before
any of it is read.
"""

import zipfile
import zlib
from typing import Any, BinaryIO

import numpy as np
from numpy.lib import format as npy

from callshot.errors import InputError

MAX_GROWTH = 100  # from the size of the file to that of its arrays
ALWAYS_BYTES = (
    64 * 2**20
)  # that any file may grow to: columns of equal text shrink a lot
UNREADABLE = (
    EOFError,
    KeyError,
    NotImplementedError,
    OSError,
    RuntimeError,
    ValueError,
    zipfile.BadZipFile,
    zlib.error,
)
HEADERS = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}


def open_npz(stream: BinaryIO, name: object) -> Any:
    """Return the entries of a file that is open; `name` is the file in errors.

    Raises
    ------
    InputError
        If its arrays are larger than a file of this size can be expected to hold.
    """
    entries: Any = np.lib.npyio.NpzFile(stream, allow_pickle=False)
    size = stream.seek(0, 2)
    most = max(ALWAYS_BYTES, MAX_GROWTH * size)
    archive = entries.zip
    announced = sum(_announced_bytes(archive, info) for info in archive.infolist())
    if announced > most:
        raise InputError(
            f"{name}: the file has {size:,} bytes, but its arrays would take {announced:,}; "
            f"at most {most:,} are read from a file of this size; save the arrays again, "
            "uncompressed (numpy.savez)"
        )
    return entries


def _announced_bytes(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> int:
    """Return the bytes of an entry, by the archive or by its own header, whichever is more."""
    try:
        with archive.open(info) as stream:
            read_header = HEADERS[npy.read_magic(stream)]
            shape, _, dtype = read_header(stream)
    except UNREADABLE:  # whoever reads this entry says so
        return info.file_size
    items = 1
    for length in shape:
        items *= max(int(length), 0)
    return max(info.file_size, items * dtype.itemsize)
