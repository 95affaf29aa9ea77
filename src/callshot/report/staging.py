"""A set of files → a directory, all of them or none.

    with open_staging(directory, names, told_in) as staging:     refuses what cannot be written, before any work
        staging.write(make, provenance)                          makes every file aside, then puts each in its place

The file that tells where the others came from (`provenance.json`, say) is put in place last and holds the sha256 of the
others: where they agree, the set is whole.
"""

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, Self

import polars as pl

from callshot.errors import OutputError

HOST = re.sub(r"\W", "_", platform.node())
MENDS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "no permission to write; choose another directory, or ask for access"),
    errno.EROFS: "it is on a read-only file system; choose another directory",
    errno.ENOSPC: "the disk is full; free some space, or choose another directory",
    errno.EDQUOT: "the disk quota is used up; free some space, or choose another directory",
}


class Staging:
    """A hidden folder inside a directory, in which a set of files is made ready.

    `names` are all the files that such a set may have (None: it is not known before), `told_in` is the one that tells
    of the others. A name may have folders in it.
    """

    def __init__(
        self, directory: Path, path: Path, made: Sequence[Path], names: Sequence[str] | None, told_in: str
    ) -> None:
        self.directory, self.path, self.made, self.names, self.told_in = directory, path, made, names, told_in

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, make: Callable[[Path], Sequence[str]], provenance: Mapping[str, Any]) -> list[Path]:
        """Write every file and put it in place; after an error or an interrupt, what was there before is still there.

        `make` writes files to the folder it is given and returns their names. `provenance` gets one more key, `files`:
        the sha256 of each. What an earlier run wrote and this one does not is removed.
        """
        try:
            with explained(self.directory):
                self.path.mkdir(parents=True, exist_ok=True)
                names = self._seal(make(self.path), provenance)
                with _alone_in(self.directory):
                    before = _written_before(self.directory, self.names, self.told_in)
                    _refuse_foreign(self.directory, names, before)
                    _publish(self.path, self.directory, names, before - set(names))
        finally:
            self.close()
        return [self.directory / name for name in names]

    def close(self) -> None:
        """Remove the staging folder, and the directories made for it that are still empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            for folder in self.made:
                folder.rmdir()

    def _seal(self, names: Sequence[str], provenance: Mapping[str, Any]) -> list[str]:
        files = {name: _seal(self.path / name) for name in names}
        whole = json.dumps({**provenance, "files": files}, sort_keys=True, indent=2, ensure_ascii=False)
        (self.path / self.told_in).write_text(whole + "\n", encoding="utf-8", newline="\n")
        _seal(self.path / self.told_in)
        return [*files, self.told_in]


def open_staging(directory: Path, names: Sequence[str] | None, told_in: str) -> Staging:
    """Make the directory if need be, check that the files can be written to it, and stage them there.

    What earlier runs that have died left behind is removed. Refused: a file in the way, no permission, a read-only or
    full disk, a folder with the name of one of our files.
    """
    names = None if names is None else (*names, told_in)
    with explained(directory):
        made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        _remove_leftovers(directory, names, told_in)
        _refuse_foreign(directory, names or (told_in,), _written_before(directory, names, told_in))
        path = tempfile.mkdtemp(prefix=f".callshot-{os.getpid()}-{HOST}-", dir=directory)
    return Staging(directory, Path(path), made, names, told_in)


def _refuse_foreign(directory: Path, names: Sequence[str], ours: Collection[str]) -> None:
    """Refuse to put files where a folder, or somebody else's file, goes by their names."""
    if folders := [name for name in names if (directory / name).is_dir()]:
        raise OSError(f"{folders[0]} is a folder there, and a file goes by that name; move it")
    if theirs := [name for name in names if (directory / name).exists() and name not in ours]:
        raise OSError(f"{theirs[0]} is there and not from callshot; move it, or choose another directory")


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
        said = MENDS.get(number) or (f"{os.strerror(number)}; choose another directory" if number else str(error))
        why = _in_the_way(directory, number) or said
        raise OutputError(f"{directory}: cannot write results, and nothing was changed: {why}") from error


def _in_the_way(directory: Path, number: int) -> str:
    for path in (directory, *directory.parents) if number in (errno.EEXIST, errno.ENOTDIR) else ():
        if os.path.lexists(path) and not path.is_dir():
            return f"{path} is not a directory; move it, or choose another directory"
    return ""


def _written_before(directory: Path, names: Sequence[str] | None, told_in: str) -> set[str]:
    """Return the names of what an earlier run wrote there, by what it told; none that lead elsewhere."""
    with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        if not (directory / told_in).is_file():  # a pipe by that name would be waited for
            return set()
        told = json.loads((directory / told_in).read_text(encoding="utf-8"))
        found = {told_in, *told["files"]}
        return {name for name in found if _inside(name)} if names is None else found & set(names)
    return set()


def _inside(name: str) -> bool:
    path = PurePosixPath(name)
    return not (path.is_absolute() or ".." in path.parts or "\\" in name or ":" in name)


def _remove_leftovers(directory: Path, names: Sequence[str] | None, told_in: str) -> None:
    for path in directory.glob(".callshot-*"):
        owner = re.fullmatch(rf"\.callshot-(\d{{1,9}})-{HOST}-\w+", path.name)
        if owner and not path.is_symlink() and not _alive(int(owner[1])):
            _undo(path, directory, names, told_in)
            shutil.rmtree(path, ignore_errors=True)


def _undo(staging: Path, directory: Path, names: Sequence[str] | None, told_in: str) -> None:
    """Put back what a run replaced before it was killed half-way: its provenance, the last to go, is still staged.

    What it had put where nothing was before is removed.
    """
    if (staging / "before").is_dir() and (staging / told_in).exists():
        for name in _written_before(staging, names, told_in) - {told_in}:
            if not (staging / name).exists() and not (staging / "before" / name).exists():
                (directory / name).unlink(missing_ok=True)
        for copy in (staging / "before").rglob("*"):
            name = copy.relative_to(staging / "before").as_posix()
            if (names is None or name in names) and copy.is_file() and not copy.is_symlink():
                copy.replace(directory / name)


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


def _publish(staging: Path, directory: Path, names: Sequence[str], stale: set[str]) -> None:
    """Move staged files into place one by one, remove stale ones; if that stops half-way, put back what was there."""
    before = staging / "before"
    before.mkdir()
    for name in (*names, *stale):
        if (directory / name).exists():
            _keep(directory / name, before / name)
    begun = []
    try:
        for name in names:
            begun.append(name)
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, directory / name)  # noqa: PTH105
        for name in stale:
            begun.append(name)
            (directory / name).unlink(missing_ok=True)
        for folder in {(directory / name).parent for name in names}:
            _sync_folder(folder)
    except BaseException:
        for name in begun:
            _put_back(before / name, directory / name)
        raise


def _keep(path: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        copy.hardlink_to(path)
    except (OSError, NotImplementedError):  # not every file system has links
        shutil.copy2(path, copy)


def _put_back(copy: Path, path: Path) -> None:
    if copy.exists():
        copy.replace(path)
    else:
        path.unlink(missing_ok=True)


def _seal(path: Path) -> str:
    """Bring a file to the disk; return its sha256."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(directory: Path) -> None:
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(directory, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
