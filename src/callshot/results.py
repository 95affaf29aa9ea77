"""Results: files in a folder that are replaced together, and work that is not done again.

    with open_output_folder(folder, names, "provenance.json") as output:    checks before any work
        output.write(make_files, provenance)                                replaces the earlier set
    check_result(folder, ["provenance.json"])                               is it as it was written?

**On a disk**, new files are made in the hidden folder `.callshot-unfinished`. Then the earlier
files move into it, and the new ones move out, the provenance last: it holds the sha256 of every
file. If a kill stops that, the places of the files show how far it came, and the next run moves
everything back. Files that callshot did not write stay where they are.

**In a store**, which has neither locks nor renames, files are made on this machine and uploaded
when all of them are there, the provenance last. Before the first one, a marker
`.callshot-unfinished-….json` with the checksums of all of them is uploaded; it is removed after the
last one. So the next run knows the files of a run that ended early. Each set of results has a
marker of its own, for several sets may share a folder.

**Work** that did not change is known by its key (`content_key`): files of an earlier report
(`EarlierFiles`).
"""

import errno
import hashlib
import io
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
import polars as pl

from callshot.errors import InputError, OutputError, printable
from callshot.files import (
    LockBusy,
    error_reason,
    explain_unreadable,
    hold_lock,
    is_inside,
    make_folder,
    sha256_file,
    sha256_text,
    sync_file,
    sync_folder,
    write_atomic,
)
from callshot.storage import (
    check_no_url,
    is_remote,
    map_requests,
    staging_folder,
    to_path,
    upload_file,
    why_not_writable_remote,
)

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
DAMAGED = "damaged, or edited since it was written"

Facts = Mapping[str, Any]
Checksums = dict[str, str]
"""The sha256 of files, by their names relative to the output folder."""


# A set of files


@contextmanager
def open_output_folder(
    folder: Path,
    names: Sequence[str],
    provenance_name: str,
    *,
    owner: str = "",
) -> Iterator["OutputFolder"]:
    """Open a folder, on a disk or in a store, for one set of results; nothing in it is lost.

    `names` are the files that are known before the work begins; others may follow. `owner` names
    the command or the study file that writes the set: sets with another owner are not replaced.

    Raises
    ------
    OutputError
        If another run is writing to the folder, a file or folder is in the way, the set has another
        owner, or the disk or the store does not accept files.
    """
    place = to_path(folder)
    output = OutputFolder(place, provenance_name, owner)
    if is_remote(place):
        output = RemoteOutputFolder(place, provenance_name, owner)
    with ExitStack() as cleanup:
        with explain_errors(place):
            output.prepare(cleanup)
            provenance = _read_provenance(place / provenance_name)
            found = owner if provenance is None else provenance.get("set", "")
            if found != owner:
                name = printable(found[:100]) if isinstance(found, str) else ""
                raise OSError(
                    f"it has the results of {name or 'another command'}; "
                    "choose another folder or move them away"
                )
            written = output.read_checksums(place)
            output.check_names([*names, provenance_name], written)
        yield output


@dataclass
class OutputFolder:
    """A locked folder that accepts one set of results. Files are made in `path`."""

    folder: Path
    provenance_name: str
    owner: str

    @property
    def path(self) -> Path:
        """The staging folder."""
        return self.folder / STAGING

    def prepare(self, cleanup: ExitStack) -> None:
        """Create the folder, lock it and undo what a killed run left half-way."""
        check_no_url(self.folder)
        missing = [
            path for path in (self.folder, *self.folder.parents) if not path.exists()
        ]
        cleanup.callback(_remove_folders, missing)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
        except ValueError:
            raise OSError("no folder can have this name; choose another name") from None
        lock = self.folder / LOCK
        try:
            cleanup.enter_context(hold_lock(lock, timeout_s=0))
        except LockBusy:
            raise OSError(
                "another run is writing to it; wait for that run or choose another folder"
            ) from None
        cleanup.callback(_remove_file, lock)
        cleanup.callback(self._discard)
        if (self.path / self.provenance_name).is_file():
            self._undo(self.read_checksums(self.path))
        self._discard()

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
            content = {**provenance, "files": dict(new)}
            if self.owner:
                content["set"] = self.owner
            staged_provenance = self.path / self.provenance_name
            staged_provenance.write_bytes(format_provenance(content))
            new[self.provenance_name] = _sync_and_hash(staged_provenance)
            sync_folder(self.path)
            written = self.read_checksums(self.folder)
            self.check_names(new, written)
            self._replace(new, written)
        return [self.folder / name for name in new]

    def _replace(self, new: Checksums, written: Checksums) -> None:
        """Move the earlier files into the staging folder and the new ones out of it."""
        earlier = []
        copies: Checksums = {}
        for name, checksum in written.items():
            is_edited = _hash(self.folder / name) != checksum
            if is_edited and name not in new:
                continue
            copy = self._free_name(name, self.folder / name) if is_edited else ""
            if copy:
                shutil.copy2(self.folder / name, self.path / copy)
                copies[copy] = _sync_and_hash(self.path / copy)
            earlier.append(name)
        staged = copies | new
        try:
            for name in earlier:
                _move(self.folder / name, self.path / EARLIER / name)
            self._remove_empty_folders(earlier)
            for name in staged:
                if name == self.provenance_name:  # the last one
                    for parent in {(self.folder / other).parent for other in staged}:
                        sync_folder(parent)
                _move(self.path / name, self.folder / name)
            sync_folder(self.folder)
        except BaseException:
            self._undo(staged)
            raise

    def _free_name(self, name: str, content: Path) -> str:
        """Return NAME.before, NAME.before-2, … or "" where one of them has the same content."""
        checksum = _hash(content)
        for free in _copy_names(name):
            if not os.path.lexists(self.folder / free):
                return free
            if checksum is not None and _hash(self.folder / free) == checksum:
                return ""
        raise AssertionError

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
            if not is_inside(self.folder, name):
                continue
            earlier = self.path / EARLIER / name
            target = name
            if os.path.lexists(self.folder / name):  # written since the kill
                target = self._free_name(name, earlier)
            if target:
                _move(earlier, self.folder / target)

    def _discard(self) -> None:
        """Remove the staging folder, first the provenance, by which a set would be undone."""
        with suppress(OSError):
            (self.path / self.provenance_name).unlink(missing_ok=True)
            shutil.rmtree(self.path, ignore_errors=True)

    def read_checksums(self, folder: Path) -> Checksums:
        """Return the checksums that the provenance in a folder has, of files that exist.

        Names that lead out of the output folder are left out, for anybody may edit a provenance.
        """
        path = folder / self.provenance_name
        provenance = _read_provenance(path)
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
            _check_own(name, os.path.lexists(path) and name not in written)

    def _remove_empty_folders(self, names: Iterable[str]) -> None:
        for name in names:
            parents = Path(name).parents[:-1]
            _remove_folders([self.folder / parent for parent in parents])


@dataclass
class RemoteOutputFolder(OutputFolder):
    """A folder in a store that accepts one set of results. Files are made on this machine.

    files       what is in the folder, by name
    unfinished  the checksums that files may have which runs of this set uploaded or were about to
                remove before they ended early
    """

    folder: Any  # a RemotePath
    staging: Path = Path()
    files: dict[str, Any] = field(default_factory=dict)
    unfinished: dict[str, list[str]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """The staging folder, on this machine."""
        return self.staging

    @property
    def marker(self) -> Any:
        """The file about unfinished uploads of this set, and of no other one."""
        digest = sha256_text(f"{self.provenance_name}\n{self.owner}")
        return self.folder / f"{STAGING}-{digest[:16]}.json"

    def prepare(self, cleanup: ExitStack) -> None:
        """Check that the folder takes files, and make one for them on this machine."""
        reason = why_not_writable_remote(self.folder)
        if reason:
            raise OutputError(f"{self.folder}: cannot be written to ({reason})")
        self.staging = Path(tempfile.mkdtemp(dir=staging_folder()))
        cleanup.callback(shutil.rmtree, self.staging, ignore_errors=True)

    def read_checksums(self, folder: Path) -> Checksums:
        """Return the checksums of files that this run may replace, after a look at the folder."""
        self.files = {}
        with suppress(FileNotFoundError):
            for path in self.folder.list_files():
                self.files[path.relative_to(self.folder).as_posix()] = path
        self.unfinished = {}
        if self.marker.name in self.files:
            record = _read_provenance(self.marker) or {"files": {}}
            for name, known in record["files"].items():
                if name in self.files and isinstance(known, list) and known:
                    self.unfinished[name] = [str(checksum) for checksum in known]
        unfinished = {name: known[-1] for name, known in self.unfinished.items()}
        return unfinished | super().read_checksums(folder)

    def check_names(self, names: Iterable[str], written: Checksums) -> None:
        """Raise OSError if a name is taken by a file that callshot did not write."""
        for name in names:
            _check_own(name, name in self.files and name not in written)

    def _is_result(self, name: str) -> bool:
        return name in self.files

    def _replace(self, new: Checksums, written: Checksums) -> None:
        """Upload the new files; the earlier ones that were not made again go before the last."""
        possible = {name: [*known] for name, known in self.unfinished.items()}
        for name, checksum in (*written.items(), *new.items()):
            known = possible.setdefault(name, [])
            if checksum not in known:
                known.append(checksum)
        record = {
            "files": possible,
            "provenance": self.provenance_name,
            "set": self.owner,
        }
        try:
            write_atomic(self.marker, json.dumps(record, indent=2))
            outdated = self._keep_edited(new, written)
            *others, last = new  # the provenance is the last one
            for _ in map_requests(self._upload, others, together=True):
                pass
            for name in outdated:
                (self.folder / name).unlink(missing_ok=True)
            self._upload(last)
            with suppress(PermissionError):  # a marker that stays does no harm
                self.marker.unlink(missing_ok=True)
        except OSError as error:
            raise OutputError(
                f"{self.folder}: not all results are written ({error_reason(error)}); "
                "run the command again"
            ) from None

    def _upload(self, name: str) -> None:
        upload_file(self.staging / name, self.folder / name)

    def _keep_edited(self, new: Checksums, written: Checksums) -> list[str]:
        """Copy edited files that are replaced; return unedited ones that were not made again."""
        outdated = []
        paths = [self.files.get(name, self.folder / name) for name in written]
        checksums = map_requests(sha256_file, paths, together=True)
        for name, checksum in zip(written, checksums, strict=True):
            known = (written[name], *self.unfinished.get(name, ()))
            if checksum not in known and name in new:
                free = next(
                    free for free in _copy_names(name) if free not in self.files
                )
                copy = self.staging / EARLIER
                copy.write_bytes((self.folder / name).read_bytes())
                upload_file(copy, self.folder / free)
            elif checksum in known and name not in new:
                outdated.append(name)
        return outdated


def _check_own(name: str, is_of_others: bool) -> None:
    if is_of_others:
        raise OSError(
            f"{name} exists and was not written by callshot; "
            "move it or choose another folder"
        )


def _copy_names(name: str) -> Iterator[str]:
    """Yield the names that copies of an edited file may have: NAME.before, NAME.before-2, …"""
    yield f"{name}.before"
    for number in count(2):
        yield f"{name}.before-{number}"


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
        code = getattr(cause, "errno", None)
        polars_code = re.search(r"os error (\d+)", str(cause))
        if polars_code:
            code = int(polars_code[1])
        if code is None and not isinstance(cause, OSError):
            raise  # not an error of the system
        reason = error_reason(cause) if is_remote(folder) else str(cause)
        if code is not None and not is_remote(folder):
            reason = ADVICE.get(code, f"{os.strerror(code)}; choose another folder")
            if code in (errno.EEXIST, errno.ENOTDIR):
                for path in (folder, *folder.parents):
                    if os.path.lexists(path) and not path.is_dir():
                        reason = (
                            f"{path} is not a folder; move it or choose another folder"
                        )
                        break
        message = f"{folder}: cannot write results, nothing was changed: {reason}"
        raise OutputError(message) from error


# The file that lists a set: its own checksum is the value of `own_sha256`, the sha256 of the file
# with "" in its place.

OWN_CHECKSUM = "own_sha256"
# No text in JSON has a newline, so it is there once.
BLANK = f'\n  "{OWN_CHECKSUM}": ""'.encode()
SEALED = re.compile(rf'\n  "{OWN_CHECKSUM}": "([0-9a-f]{{64}})"'.encode())


def format_provenance(content: Facts) -> bytes:
    """Return the content of a provenance file, with its own checksum.

    >>> is_intact(format_provenance({"files": {}}))
    True
    """
    blank_content = {**content, OWN_CHECKSUM: ""}
    text = json.dumps(blank_content, sort_keys=True, indent=2, ensure_ascii=False)
    # Half surrogates are escaped, as in JSON.
    blank = f"{text}\n".encode("utf-8", "backslashreplace")
    checksum = hashlib.sha256(blank).hexdigest()
    return blank.replace(BLANK, f'\n  "{OWN_CHECKSUM}": "{checksum}"'.encode(), 1)


def is_intact(content: bytes) -> bool:
    """Return whether the content of a provenance file has its own checksum."""
    found = SEALED.search(content)
    if found is None:
        return False
    blank = content[: found.start(1)] + content[found.end(1) :]
    return hashlib.sha256(blank).hexdigest().encode() == found[1]


def _read_provenance(path: Path) -> dict[str, Any] | None:
    """Return the content of a provenance file, or None if callshot did not write it."""
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        if path.is_file():  # reading from a pipe would block
            provenance = json.loads(path.read_text(encoding="utf-8"))
            if isinstance(provenance["files"], dict):
                return dict(provenance)
    return None


def read_intact_provenance(path: Path) -> dict[str, Any]:
    """Return the content of a provenance file; raise InputError if it is not as it was written."""
    with explain_unreadable(path):
        content = path.read_bytes()
    provenance = _read_provenance(path)
    if provenance is None or not is_intact(content):
        raise InputError(
            f"{path}: {DAMAGED}, or not from callshot; make the results again"
        )
    return provenance


def check_result(path: Path, provenance_names: Iterable[str]) -> None:
    """Raise InputError if a file of results is damaged, or a folder has a damaged one.

    Files are compared with the provenance beside them, and those of a folder with the one in it.
    Files that no provenance lists are those of the user.
    """
    is_folder = path.is_dir()
    folder = path if is_folder else path.parent
    for provenance_name in provenance_names:
        provenance = folder / provenance_name
        if not provenance.is_file():
            continue
        for name, checksum in read_intact_provenance(provenance)["files"].items():
            is_asked = is_folder or name == path.name
            file = folder / name
            if not is_asked or not is_inside(folder, name) or not file.is_file():
                continue
            with explain_unreadable(file):
                is_same = sha256_file(file) == checksum
            if not is_same:
                raise InputError(
                    f"{file}: differs from its checksum in {provenance_name}: {DAMAGED}; make the "
                    "results again, or, if you edited it on purpose, use a copy in another folder"
                )


# Work that is not done again

LIBRARIES = ("callshot", "matplotlib", "numba", "numpy", "pillow", "polars", "scipy")
CODE = Path(__file__).parent


def content_key(*values: Any) -> str:
    """Return a hash of values, of callshot's code and of the libraries that change results."""
    content = hashlib.sha256(_code_key().encode())
    for value in values:
        for part in _parts(value):
            content.update(len(part).to_bytes(8, "little"))
            content.update(part)
    return content.hexdigest()


@cache
def _code_key() -> str:
    """Return a hash of the code and the versions of libraries."""
    texts = [f"{name} {version(name)}" for name in LIBRARIES]
    texts += [sha256_file(path) for path in sorted(CODE.rglob("*.py"))]
    return sha256_text("\n".join(texts))


def _parts(value: Any) -> Iterator[bytes | memoryview]:
    """Yield what makes a value, so that different values have different parts."""
    yield type(value).__name__.encode()
    if is_dataclass(value):
        for part in fields(value):
            yield from _parts(getattr(value, part.name))
    elif isinstance(value, pl.DataFrame | pl.Series):
        # Names, types and values, whatever the frame was cut from.
        frame = value.to_frame() if isinstance(value, pl.Series) else value
        content = io.BytesIO()
        frame.rechunk().write_parquet(
            content, compression="uncompressed", statistics=False
        )
        yield repr(frame.schema).encode()
        yield content.getvalue()
    elif isinstance(value, np.ndarray):
        yield f"{value.dtype} {value.shape}".encode()
        yield np.ascontiguousarray(value).reshape(-1).view(np.uint8).data
    elif isinstance(value, FunctionType):
        yield f"{value.__module__} {value.__qualname__}".encode()
    elif isinstance(value, Mapping | Sequence | AbstractSet) and not isinstance(
        value, str
    ):
        members: Sequence[Any] = list(value)
        if isinstance(value, Mapping):
            members = list(value.items())
        elif isinstance(value, AbstractSet):
            members = sorted(value)
        yield str(len(members)).encode()
        for member in members:
            yield from _parts(member)
    else:
        yield repr(value).encode()


@dataclass
class EarlierFiles:
    """What an earlier report left in a folder, and the keys of its files in `key_file`.

    A file is copied, not made again, if its key is the same. Without `key_file`, none is.
    """

    folder: Path = Path()
    key_file: Path | None = None
    keys: dict[str, str] = field(default_factory=dict)  # of the new files

    def copy(self, name: str, key: str, folder: Path) -> bool:
        """Copy a file to a folder if it has this key and did not change; return whether it did."""
        self.keys[name] = key
        source = self.folder / name
        if self.key_file is None or not source.is_file():  # a pipe would block
            return False
        with suppress(OSError, ValueError, RecursionError, LookupError, TypeError):
            entries = json.loads(self.key_file.read_text(encoding="utf-8"))
            if entries[name] == [key, sha256_file(source)]:
                make_folder((folder / name).parent)
                shutil.copyfile(source, folder / name)
                return True
        return False

    def beside(self, name: str) -> Path | None:
        """Return the path of a file next to the keys, for work that no result shows as it is."""
        return None if self.key_file is None else self.key_file.with_name(name)

    def save(self) -> None:
        """Write the keys of the new files, which are in place now."""
        if self.key_file is None:
            return
        entries = {}
        for name, key in self.keys.items():
            entries[name] = [key, sha256_file(self.folder / name)]
        make_folder(self.key_file.parent)
        text = json.dumps(entries, indent=2, sort_keys=True)
        write_atomic(self.key_file, f"{text}\n")
