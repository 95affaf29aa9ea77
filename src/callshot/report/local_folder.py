"""A set of result files → a folder: all of them or none, even if the process is killed.

    with open_local_folder(folder, names, "provenance.json") as output:     checks before any work
        output.write(make_files, provenance)                                replaces the earlier set

New files are made in the hidden folder `.callshot-unfinished`. Then the earlier files move into it,
and the new ones move out, the provenance last: it holds the sha256 of every file. If a kill
stops that, the places of the files show how far it came, and the next run moves everything back.
"""

import errno
import json
import os
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import polars as pl

from callshot.errors import OutputError, printable
from callshot.files import (
    LockBusy,
    error_reason,
    hold_lock,
    is_inside,
    sha256_file,
    sync_file,
    sync_folder,
)
from callshot.report.provenance_file import format_provenance
from callshot.storage import check_no_url, is_remote

STAGING = ".callshot-unfinished"
LOCK = ".callshot-lock"
EARLIER = ".earlier"  # in the staging folder; the name of no result begins with a dot
ADVICE = {
    errno.EACCES: "no permission to write; choose another folder or ask for access",
    errno.EPERM: "no permission to write; choose another folder or ask for access",
    errno.EROFS: "the file system is read-only; choose another folder",
    errno.ENOSPC: "the disk is full; free some space or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space or choose another folder",
}

Facts = Mapping[str, Any]
Checksums = dict[str, str]
"""The sha256 of files, by their names relative to the output folder."""


@contextmanager
def open_local_folder(
    folder: Path, names: Sequence[str], provenance_name: str, owner: str
) -> Iterator["OutputFolder"]:
    """Create a folder, lock it, undo what a killed run left half-way, and check that it is free."""
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    output = OutputFolder(folder, provenance_name, owner)
    with ExitStack() as cleanup:
        with explain_errors(folder):
            cleanup.callback(_remove_folders, missing)
            _create_folder(output.path)
            _lock_folder(folder, cleanup)
            cleanup.callback(output.discard)
            output.recover()
            output.check_owner()
            written = output.read_checksums(folder)
            output.check_names([*names, provenance_name], written)
        yield output


@dataclass(frozen=True)
class OutputFolder:
    """A locked folder that accepts one set of results. Files are made in `path`."""

    folder: Path
    provenance_name: str
    owner: str

    @property
    def path(self) -> Path:
        """The staging folder."""
        return self.folder / STAGING

    def write(
        self,
        make_files: Callable[[Path], Sequence[str]],
        provenance: Facts,
    ) -> list[Path]:
        """Make all files and replace the earlier set; after an error the earlier set is unchanged.

        `make_files` writes files to the folder that it is given and returns their names.
        `provenance` is extended by `files`, the sha256 of each, by `set`, the owner, and by its own
        checksum.
        Files of the earlier set that are not made again are removed. A file that was edited since
        is kept as NAME.before where it is replaced, and stays where it is otherwise.
        """
        with explain_errors(self.folder):
            self.path.mkdir(parents=True, exist_ok=True)
            new: Checksums = {}
            for name in make_files(self.path):
                new[name] = _sync_and_hash(self.path / name)
            provenance_checksum = self._write_provenance(provenance, new)
            new[self.provenance_name] = provenance_checksum
            written = self.read_checksums(self.folder)
            self.check_names(new, written)
            self._replace(new, written)
        return [self.folder / name for name in new]

    def _write_provenance(self, provenance: Facts, files: Checksums) -> str:
        content: dict[str, Any] = {**provenance, "files": files}
        if self.owner:
            content["set"] = self.owner
        path = self.path / self.provenance_name
        path.write_bytes(format_provenance(content))
        checksum = _sync_and_hash(path)
        sync_folder(self.path)
        return checksum

    def _replace(self, new: Checksums, written: Checksums) -> None:
        """Move the earlier files into the staging folder and the new ones out of it."""
        earlier = []
        copies: Checksums = {}
        for name, checksum in written.items():
            is_edited = _hash(self.folder / name) != checksum
            if is_edited and name not in new:
                continue
            if is_edited:
                copies |= self._copy_file(name)
            earlier.append(name)
        staged = copies | new
        try:
            earlier_folder = self.path / EARLIER
            for name in earlier:
                _move(self.folder / name, earlier_folder / name)
            self._remove_empty_folders(earlier)
            for name in staged:
                if name == self.provenance_name:  # the last one
                    self._sync_folders(staged)
                _move(self.path / name, self.folder / name)
            sync_folder(self.folder)
        except BaseException:
            self._undo(staged)
            raise

    def _copy_file(self, name: str) -> Checksums:
        """Stage a copy of an edited file as NAME.before, unless there is one already."""
        original = self.folder / name
        free = self._free_name(name, original)
        if not free:
            return {}
        copy = self.path / free
        shutil.copy2(original, copy)
        return {free: _sync_and_hash(copy)}

    def _free_name(self, name: str, content: Path) -> str:
        """Return NAME.before, NAME.before-2, … or "" where one of them has the same content."""
        checksum = _hash(content)
        for free in copy_names(name):
            if not os.path.lexists(self.folder / free):
                return free
            if checksum is not None and _hash(self.folder / free) == checksum:
                return ""
        raise AssertionError

    def _sync_folders(self, names: Iterable[str]) -> None:
        for parent in {(self.folder / name).parent for name in names}:
            sync_folder(parent)

    def recover(self) -> None:
        """Move back the files of a run that was killed before its provenance was in place."""
        if (self.path / self.provenance_name).is_file():
            self._undo(self.read_checksums(self.path))
        self.discard()

    def _undo(self, new: Checksums) -> None:
        """Move new files into the staging folder again, then the earlier ones out of it.

        A kill leaves a state from which this can start again. So the provenance, which marks the
        set as complete, moves first, and files that are staged already stay there.
        """
        for name in reversed(new):
            placed = self.folder / name
            staged = self.path / name
            if not staged.exists() and _hash(placed) == new[name]:
                _move(placed, staged)
        self._remove_empty_folders(_list_files(self.path))
        for name in _list_files(self.path / EARLIER):
            if is_inside(self.folder, name):
                self._move_back(name)

    def _move_back(self, name: str) -> None:
        earlier = self.path / EARLIER / name
        target = name
        if os.path.lexists(self.folder / name):  # written since the kill
            target = self._free_name(name, earlier)
        if target:
            _move(earlier, self.folder / target)

    def discard(self) -> None:
        """Remove the staging folder, first the provenance, by which `recover` would undo a set."""
        with suppress(OSError):
            (self.path / self.provenance_name).unlink(missing_ok=True)
            shutil.rmtree(self.path, ignore_errors=True)

    def read_checksums(self, folder: Path) -> Checksums:
        """Return the checksums that the provenance in a folder has, of files that exist.

        Names that lead out of the output folder are left out, for anybody may edit a provenance.
        """
        path = folder / self.provenance_name
        provenance = read_provenance(path)
        if provenance is None:
            return {}
        checksums: Checksums = {}
        for name, checksum in provenance["files"].items():
            if isinstance(checksum, str) and self._is_result(name):
                checksums[name] = checksum
        return checksums | {self.provenance_name: sha256_file(path)}

    def _is_result(self, name: str) -> bool:
        if Path(name).as_posix() != name or not is_inside(self.folder, name):
            return False
        with suppress(OSError, ValueError):  # a name that is too long or has a NUL
            return (self.folder / name).is_file()
        return False

    def check_owner(self) -> None:
        """Raise OSError if the folder has a set with another owner."""
        provenance = read_provenance(self.folder / self.provenance_name)
        if provenance is None:
            return
        owner = provenance.get("set", "")
        if owner == self.owner:
            return
        name = printable(owner[:100]) if isinstance(owner, str) else ""
        raise OSError(
            f"it has the results of {name or 'another command'}; "
            "choose another folder or move them away"
        )

    def check_names(self, names: Iterable[str], written: Checksums) -> None:
        """Raise OSError if a name is taken by a folder or by a file that callshot did not write."""
        for name in names:
            path = self.folder / name
            for parent in Path(name).parents:
                if (self.folder / parent).is_file():
                    raise OSError(
                        f"{parent.as_posix()} is a file, expected a folder; move it"
                    )
            if path.is_dir():
                raise OSError(f"{name} is a folder, expected a file; move it")
            if not is_inside(self.folder, name):
                raise OSError(
                    f"a link leads {name} to another folder; "
                    "remove the link or choose another folder"
                )
            if os.path.lexists(path) and name not in written:
                raise OSError(
                    f"{name} exists and was not written by callshot; "
                    "move it or choose another folder"
                )

    def _remove_empty_folders(self, names: Iterable[str]) -> None:
        for name in names:
            parents = Path(name).parents[:-1]
            _remove_folders([self.folder / parent for parent in parents])


def copy_names(name: str) -> Iterator[str]:
    """Yield the names that copies of an edited file may have: NAME.before, NAME.before-2, …"""
    yield f"{name}.before"
    for number in count(2):
        yield f"{name}.before-{number}"


def _create_folder(folder: Path) -> None:
    check_no_url(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except ValueError:
        raise OSError("no folder can have this name; choose another name") from None


def _lock_folder(folder: Path, cleanup: ExitStack) -> None:
    """Lock a folder until the cleanup; the lock file goes before the lock is released."""
    try:
        cleanup.enter_context(hold_lock(folder / LOCK, timeout_s=0))
    except LockBusy:
        raise OSError(
            "another run is writing to it; wait for that run or choose another folder"
        ) from None
    cleanup.callback(_remove_file, folder / LOCK)


def _remove_file(path: Path) -> None:
    # Windows removes no open file; there, the lock removes its own.
    with suppress(OSError):
        path.unlink()


def _remove_folders(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    with suppress(OSError, ValueError):
        for folder in folders:
            folder.rmdir()


def _list_files(folder: Path) -> list[str]:
    """Return the names of all files below a folder, relative to it."""
    files = [path for path in folder.rglob("*") if not path.is_dir()]
    return [path.relative_to(folder).as_posix() for path in files]


def _move(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    os.replace(source, target)  # noqa: PTH105


def _sync_and_hash(path: Path) -> str:
    sync_file(path)
    return sha256_file(path)


def _hash(path: Path) -> str | None:
    """Return the sha256 of a file, or None if it cannot be read."""
    with suppress(OSError):
        return sha256_file(path)
    return None


def read_provenance(path: Path) -> dict[str, Any] | None:
    """Return the content of a provenance file, or None if callshot did not write it."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        if path.is_file():  # reading from a pipe would block
            provenance = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(provenance["files"], dict):
                return dict(provenance)
    return None


@contextmanager
def explain_errors(folder: Path) -> Iterator[None]:
    """Turn a write error in the block into an OutputError of one line that says what to do."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        cause: Exception = error
        if isinstance(error, OutputError):
            if not isinstance(error.__cause__, OSError):
                raise
            cause = error.__cause__  # its message names a file in the staging folder
        reason = _explain(cause, folder)
        if reason is None:
            raise
        message = f"{folder}: cannot write results, nothing was changed: {reason}"
        raise OutputError(message) from error


def _explain(error: Exception, folder: Path) -> str | None:
    """Return what went wrong and what to do, or None if that is not an error of the system."""
    if is_remote(folder):
        return error_reason(error) if isinstance(error, OSError) else None
    text = str(error)
    code = getattr(error, "errno", None)
    polars_code = re.search(r"os error (\d+)", text)
    if polars_code:
        code = int(polars_code[1])
    if code is None:
        return text if isinstance(error, OSError) else None
    if code in (errno.EEXIST, errno.ENOTDIR):
        for path in (folder, *folder.parents):
            if os.path.lexists(path) and not path.is_dir():
                return f"{path} is not a folder; move it or choose another folder"
    if code in ADVICE:
        return ADVICE[code]
    return f"{os.strerror(code)}; choose another folder"
