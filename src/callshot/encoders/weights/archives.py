"""An archive (a wheel, a zip, a tar with or without compression) and the name of one file in it → that file.

What an archive says is not trusted: the name is exact, links and devices are refused, and no more is written than was
said to be wanted. Nothing is run or unpickled.
"""

import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO

from callshot.errors import CallshotError, InputError, printable

LARGEST = (
    2**34
)  # bytes; no weight is larger, and what says that it is does not get to fill the disk


def is_archive(path: Path) -> bool:
    """Tell whether a file is a zip or tar archive, be it a damaged one."""
    try:
        return _is_zip(path) or tarfile.is_tarfile(path)
    except Exception as error:  # there is little that the readers of damaged archives do not raise
        if _is_of_the_disk(error):
            raise
        return True


def take_member(archive: Path, member: str, target: Path, most: int | None = None) -> None:
    """Write the one file of that exact name in a zip or tar archive to `target`; links and larger ones are refused."""
    take = _take_zip if _is_zip(archive) else _take_tar
    try:
        take(archive, member, target, LARGEST if most is None else most)
    except CallshotError:
        raise
    except Exception as error:
        if _is_of_the_disk(error):
            raise
        raise InputError(
            f"{archive}: {member} cannot be taken out of it ({printable(str(error))})"
        ) from None


def pour(
    chunks: Iterator[bytes],
    file: IO[bytes],
    done: int,
    most: int,
    told: Callable[[int], None] = lambda done: None,
) -> int:
    """Write chunks to a file that holds `done` bytes; return how many it holds then, at most `most`."""
    for chunk in chunks:
        done += len(chunk)
        if done > most:
            raise InputError(f"{Path(file.name).name}: wanted at most {most} bytes, and more came")
        file.write(chunk)
        told(done)
    return done


def _is_of_the_disk(error: Exception) -> bool:
    """Tell what the system said from what a reader said of the contents, which is an OSError too at times."""
    return isinstance(error, OSError) and error.errno is not None


def _is_zip(path: Path) -> bool:
    """Tell whether a file begins as a zip archive does; a tflite model may end as one."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"


def _take_zip(archive: Path, member: str, target: Path, most: int) -> None:
    with zipfile.ZipFile(archive) as files:
        found = [info for info in files.infolist() if info.filename == member]
        kinds = {stat.S_IFMT(info.external_attr >> 16) for info in found}
        _refuse(
            archive,
            member,
            [info.file_size for info in found],
            plain=kinds <= {0, stat.S_IFREG},
            most=most,
        )
        with files.open(found[0]) as stream, target.open("wb") as file:
            pour(iter(lambda: stream.read(1 << 20), b""), file, 0, most)


def _take_tar(archive: Path, member: str, target: Path, most: int) -> None:
    with tarfile.open(archive) as files:
        found = [info for info in files if info.name.removeprefix("./") == member]
        plain = all(info.isreg() and not info.issparse() for info in found)
        _refuse(archive, member, [info.size for info in found], plain=plain, most=most)
        stream = files.extractfile(found[0])
        assert stream is not None  # it is a plain file
        with stream, target.open("wb") as file:
            pour(iter(lambda: stream.read(1 << 20), b""), file, 0, most)


def _refuse(archive: Path, member: str, sizes: Sequence[int], *, plain: bool, most: int) -> None:
    """Raise unless there is one such member, a plain file, and not too large."""
    if len(sizes) != 1 or not plain:
        found = "none" if not sizes else f"{len(sizes)}, " + ("plain" if plain else "not plain")
        raise InputError(f"{archive}: wanted one plain file {member} in it, found {found}")
    if sizes[0] > most:
        raise InputError(f"{archive}: {member}: wanted at most {most} bytes, found {sizes[0]}")
