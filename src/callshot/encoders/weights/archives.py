"""An archive and the name of a member come in; that one file goes out.

Archives are not trusted: the name of a member is exact, links and devices are rejected, and no more
is written than expected.
"""

import stat
import tarfile
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO

from callshot.errors import CallshotError, InputError, printable
from callshot.files import error_reason

LARGEST_BYTES = 2**34  # no weight is larger: nothing may fill the disk
CHUNK_BYTES = 1 << 20


def is_archive(path: Path) -> bool:
    """Return whether a file is a zip or tar archive, also if it is damaged."""
    try:
        return _is_zip(path) or tarfile.is_tarfile(path)
    except Exception as error:  # readers of damaged archives raise almost anything
        if _is_system_error(error):
            raise
        return True


def extract_member(
    archive: Path, member: str, target: Path, limit: int | None = None
) -> None:
    """Write the one plain file of that exact name in a zip or tar archive to `target`."""
    extract = _extract_zip_member if _is_zip(archive) else _extract_tar_member
    limit = LARGEST_BYTES if limit is None else limit
    try:
        extract(archive, member, target, limit)
    except CallshotError:
        raise
    except Exception as error:
        if _is_system_error(error):
            raise
        reason = printable(error_reason(error))
        raise InputError(
            f"{archive}: {member} cannot be extracted ({reason})"
        ) from None


def _is_system_error(error: Exception) -> bool:
    """Return whether the system failed; readers raise OSError for damaged content too."""
    return isinstance(error, OSError) and error.errno is not None


def _is_zip(path: Path) -> bool:
    """Return whether a file begins as a zip archive does; a tflite model may end as one."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _extract_zip_member(archive: Path, member: str, target: Path, limit: int) -> None:
    with zipfile.ZipFile(archive) as files:
        entries = [entry for entry in files.infolist() if entry.filename == member]
        kinds = {stat.S_IFMT(entry.external_attr >> 16) for entry in entries}
        sizes = [entry.file_size for entry in entries]
        is_plain = kinds <= {0, stat.S_IFREG}
        _check_member(archive, member, sizes, limit, is_plain=is_plain)
        with files.open(entries[0]) as stream:
            _copy_stream(stream, target, limit)


def _extract_tar_member(archive: Path, member: str, target: Path, limit: int) -> None:
    with tarfile.open(archive) as files:
        entries = [entry for entry in files if entry.name.removeprefix("./") == member]
        is_plain = all(entry.isreg() and not entry.issparse() for entry in entries)
        sizes = [entry.size for entry in entries]
        _check_member(archive, member, sizes, limit, is_plain=is_plain)
        stream = files.extractfile(entries[0])
        assert stream is not None  # it is a plain file
        with stream:
            _copy_stream(stream, target, limit)


def _copy_stream(stream: IO[bytes], target: Path, limit: int) -> None:
    chunks = iter(lambda: stream.read(CHUNK_BYTES), b"")
    with target.open("wb") as file:
        write_chunks(chunks, file, 0, limit)


def _check_member(
    archive: Path, member: str, sizes: Sequence[int], limit: int, *, is_plain: bool
) -> None:
    """Raise unless there is one such member, a plain file, and not too large."""
    if len(sizes) != 1 or not is_plain:
        kind = "plain" if is_plain else "not plain"
        content = f"{len(sizes)}, {kind}" if sizes else "none"
        raise InputError(
            f"{archive}: expected one plain file {member} in it, got {content}"
        )
    if sizes[0] > limit:
        raise InputError(
            f"{archive}: {member}: expected at most {limit} bytes, got {sizes[0]}"
        )


def write_chunks(
    chunks: Iterator[bytes], file: IO[bytes], length: int, limit: int
) -> int:
    """Write chunks to a file that has `length` bytes; return its new length, at most `limit`."""
    for chunk in chunks:
        length += len(chunk)
        if length > limit:
            name = Path(file.name).name
            raise InputError(f"{name}: expected at most {limit} bytes, got more")
        file.write(chunk)
    return length
