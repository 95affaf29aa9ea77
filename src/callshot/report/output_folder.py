"""A set of files → a directory, all of them or none.

    with open_staging(directory, names, told_in) as staging:     refuses what cannot be written, before any work
        staging.write(make, provenance)                          makes every file aside, then puts each in its place

The file that tells where the others came from (`provenance.json`, say) is put in place last and holds the sha256 of the
others: where they agree, the set is whole.
"""

import errno
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import polars as pl

from callshot.errors import OutputError
from callshot.report.commit import (
    FILES,
    SET,
    Place,
    listed,
    publish,
    refuse_foreign,
    refuse_others,
    seal,
    undo,
)

HOST = re.sub(r"\W", "_", platform.node())
LOCK = ".lock"  # in a staging folder, held for as long as its run lives
MENDS = {
    **dict.fromkeys(
        (errno.EACCES, errno.EPERM),
        "no permission to write; choose another directory, or ask for access",
    ),
    errno.EROFS: "it is on a read-only file system; choose another directory",
    errno.ENOSPC: "the disk is full; free some space, or choose another directory",
    errno.EDQUOT: "the disk quota is used up; free some space, or choose another directory",
}


class OutputFolder:
    """A hidden folder inside a directory, in which a set of files is made ready; `made` are directories made for it.

    A name of a file may have folders in it, and does not begin with a dot.
    """

    def __init__(self, place: Place, path: Path, made: Sequence[Path]) -> None:
        self.place, self.path, self.made = place, path, made
        self._lock = _hold(path)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(
        self, make: Callable[[Path], Sequence[str]], provenance: Mapping[str, Any]
    ) -> list[Path]:
        """Write every file and put it in place; after an error or an interrupt, what was there before is still there.

        `make` writes files to the folder it is given and returns their names. `provenance` gets one more key, `files`:
        the sha256 of each, and `set` where there is a mark. What an earlier run wrote and this one does not is removed.

        Where the names were not known before, a file that was changed by hand after it was written stays if it is not
        replaced, and is kept beside the new one as NAME.before if it is.
        """
        directory = self.place.directory
        try:
            with explained(directory):
                self.path.mkdir(parents=True, exist_ok=True)
                names = self._seal(make(self.path), provenance)
                with _alone_in(directory):
                    _remove_leftovers(self.place)
                    refuse_others(self.place)
                    told = listed(self.place, directory)
                    refuse_foreign(self.place, names, told)
                    publish(self.path, self.place, names, told)
        finally:
            self.close()
        return [directory / name for name in names]

    def close(self) -> None:
        """Remove the staging folder, and the directories made for it that are still empty."""
        _discard(self.path, self.place.told_in)
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None
            shutil.rmtree(self.path, ignore_errors=True)  # some file systems keep what is open
        with suppress(OSError):
            for folder in self.made:
                folder.rmdir()

    def _seal(self, names: Sequence[str], provenance: Mapping[str, Any]) -> list[str]:
        path, marked = (
            self.path / self.place.told_in,
            {SET: self.place.mark} if self.place.mark else {},
        )
        files = {name: seal(self.path / name) for name in names}
        whole = json.dumps(
            {**provenance, **marked, FILES: files}, sort_keys=True, indent=2, ensure_ascii=False
        )
        # half of a surrogate, in the name of a file say, is written as JSON writes it
        path.write_text(whole + "\n", encoding="utf-8", errors="backslashreplace", newline="\n")
        seal(path)
        return [*files, path.name]


def open_output_folder(
    directory: Path, names: Sequence[str] | None, told_in: str, *, mark: str = ""
) -> OutputFolder:
    """Make the directory if need be, check that the files can be written to it, and stage them there.

    `names` are all the files that such a set may have (None: it is not known before), `told_in` is the one that tells
    of the others, and `mark` says whose set it is. What earlier runs that have died left behind is removed. Refused: a
    file in the way, no permission, a read-only or full disk, a folder with the name of one of our files, a set with
    another mark.
    """
    names = None if names is None else (*names, told_in)
    place = Place(directory, names, told_in, mark)
    with explained(directory):
        _refuse_name(directory)
        made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        with _alone_in(directory):
            _remove_leftovers(place)
            refuse_others(place)
            refuse_foreign(place, names or (told_in,), listed(place, directory))
            path = tempfile.mkdtemp(prefix=f".callshot-{os.getpid()}-{HOST}-", dir=directory)
            return OutputFolder(place, Path(path), made)


def _refuse_name(directory: Path) -> None:
    try:
        os.path.realpath(directory)
    except ValueError:
        raise OSError("no directory can have that name; choose another") from None


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turn what the system says while we write to a directory into one line that says what to do."""
    try:
        yield
    except OutputError:  # is told already
        raise
    except (OSError, pl.exceptions.PolarsError) as error:
        told = re.search(r"os error (\d+)", str(error))  # how polars tells the number
        if told is None and not isinstance(error, OSError):
            raise
        number = int(told[1]) if told else getattr(error, "errno", None) or 0
        said = MENDS.get(number) or (
            f"{os.strerror(number)}; choose another directory" if number else str(error)
        )
        why = _in_the_way(directory, number) or said
        raise OutputError(
            f"{directory}: cannot write results, and nothing was changed: {why}"
        ) from error


def _in_the_way(directory: Path, number: int) -> str:
    for path in (directory, *directory.parents) if number in (errno.EEXIST, errno.ENOTDIR) else ():
        if os.path.lexists(path) and not path.is_dir():
            return f"{path} is not a directory; move it, or choose another directory"
    return ""


def _remove_leftovers(place: Place) -> None:
    """Remove what dead runs left in the directory, and put back what they replaced half-way."""
    for path in place.directory.glob(".callshot-*"):
        if path.is_dir() and not path.is_symlink() and _is_dead(path):
            undo(path, place)
            _discard(path, place.told_in)


def _discard(staging: Path, told_in: str) -> None:
    """Remove a staging folder; what tells that there is something to undo goes first."""
    with suppress(OSError):
        (staging / told_in).unlink(missing_ok=True)
    shutil.rmtree(staging, ignore_errors=True)


def _is_dead(staging: Path) -> bool:
    """Tell whether a staging folder's run is over: its lock is free, or without locks, its process is gone."""
    owner = re.fullmatch(r"\.callshot-(\d{1,9})-(\w*)-\w+", staging.name)
    if owner is None:
        return False
    if (staging / LOCK).is_file() and (lock := _hold(staging)) is not None:
        os.close(lock)
        return True
    return not (staging / LOCK).exists() and owner[2] == HOST and not _alive(int(owner[1]))


def _hold(staging: Path) -> int | None:
    """Lock a staging folder until this process ends; None where another has, or where there are no such locks.

    Where locks do not reach other machines, only one of them may write to a directory at a time.
    """
    try:
        import fcntl
    except ImportError:  # Windows
        return None
    with suppress(PermissionError):
        handle = os.open(staging / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return handle
        except OSError as error:
            os.close(handle)
            if not isinstance(error, BlockingIOError):
                (staging / LOCK).unlink()
    return None


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keep other runs from moving files into the same directory meanwhile, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _alive(pid: int) -> bool:
    try:
        if os.name != "nt":  # there, it would end the process
            os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True
