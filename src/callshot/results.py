"""Results: files in a folder that are replaced together, and work that is not done again.

    with open_output_folder(folder, names, "provenance.json") as output:    checks before any work
        output.write(make_files, provenance)                                replaces the earlier set
    check_result(folder, ["provenance.json"])                               is it as it was written?

New files are made in the hidden folder `.callshot-unfinished`. When all are there, they move to the
places of the earlier ones, the provenance with the sha256 of every file last. If a kill stops that,
the next run moves the rest. Files that callshot did not write stay where they are.

A store has neither locks nor renames. There a marker `.callshot-unfinished-….json` with the names
of all files is uploaded first and removed last: the next run knows the files of a run that ended
early.

Work that did not change is known by its key (`content_key`): files of an earlier report
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
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from collections.abc import Set as AbstractSet
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cache
from importlib.metadata import version
from itertools import count
from pathlib import Path
from types import FunctionType
from typing import Any, cast

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
    path_exists,
    remove_path,
    replace_file,
    sha256_file,
    sha256_text,
    sync_file,
    sync_folder,
    why_not_writable,
    write_atomic,
)
from callshot.storage import (
    RemotePath,
    check_no_url,
    is_remote,
    map_requests,
    staging_folder,
    to_path,
)

STAGING = ".callshot-unfinished"
LOCK = ".callshot-lock"
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
    """Open a folder, on a disk or in a store, for one set of results; OutputError if it is taken.

    `names` are the files that are known before the work begins; others may follow. `owner` names
    the command or the study file that writes the set: sets with another owner are not replaced.
    """
    place = to_path(folder)
    kind = RemoteOutputFolder if is_remote(place) else OutputFolder
    output = kind(place, provenance_name, owner)
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
            output.check_names([*names, provenance_name], output.read_checksums())
        yield output


@dataclass
class OutputFolder:
    """A locked folder that accepts one set of results. Files are made in `path`."""

    folder: Path
    provenance_name: str
    owner: str
    path: Path = Path()

    def prepare(self, cleanup: ExitStack) -> None:
        """Create the folder, lock it and finish what a killed run left half-way."""
        check_no_url(self.folder)
        self.path = self.folder / STAGING
        folders = (self.folder, *self.folder.parents)
        missing = [path for path in folders if not path.exists()]
        # If the run writes nothing, the folders that it made are empty, and go again.
        cleanup.callback(_remove_empty_folders, missing)
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
        cleanup.callback(remove_path, lock)  # on Windows, the lock removes its own
        cleanup.callback(self._discard_unless_complete)
        # The provenance is staged last: with it, the files of the killed run are complete and are
        # moved to their places; without it, they are discarded.
        staged = _read_provenance(self.path / self.provenance_name)
        if staged is not None:
            self._replace([*staged["files"], self.provenance_name])
        self._discard_unless_complete()

    def write(
        self,
        make_files: Callable[[Path], Sequence[str]],
        provenance: Facts,
    ) -> list[Path]:
        """Make all files, then replace the earlier set; before, nothing is changed.

        `make_files` writes files to a folder and returns their names. Files of the earlier set that
        are not made again are removed. A file that was edited since is kept as NAME.before where it
        is replaced, and stays where it is otherwise.
        """
        with explain_errors(self.folder):
            self.path.mkdir(parents=True, exist_ok=True)
            made = make_files(self.path)
            digests = map_requests(self._sync, made, together=True)
            checksums = dict(zip(made, digests, strict=True))
            content = {**provenance, "files": checksums}
            if self.owner:
                content["set"] = self.owner
            names = [*checksums, self.provenance_name]
            self.check_names(names, self.read_checksums())
            # The set is complete with it: if a kill stops the rest, the next run goes on.
            write_atomic(self.path / self.provenance_name, format_provenance(content))
            self._replace(names)
        return [self.folder / name for name in names]

    def _sync(self, name: str) -> str:
        """Bring a staged file to the disk; return its sha256."""
        sync_file(self.path / name)
        return sha256_file(self.path / name)

    def _replace(self, names: Sequence[str]) -> None:
        """Replace the earlier set; on a disk, Ctrl-C waits until all files are in place."""
        try:
            self._place(names)
        except OSError as error:
            raise OutputError(
                f"{self.folder}: not all results are written ({error_reason(error)}); "
                "run the command again"
            ) from None
        except BaseException:
            # Ctrl-C: go on where it stopped. Uploads would take too long.
            if not is_remote(self.folder):
                self._place(names)
            raise

    def _place(self, names: Sequence[str]) -> None:
        """Bring the staged files to their places, the provenance last; resumable anywhere.

        `names` are all files of the new set; those that are not staged are in their places already.
        """
        staged = [name for name in names if _is_file(self.path, name)]
        written = self.read_checksums()
        self.check_names(staged, written)
        self._announce({*written, *names})
        paths = [self.folder / name for name in written]
        checksums = map_requests(_try_sha256, paths, together=is_remote(self.folder))
        outdated = []
        for name, checksum in zip(written, checksums, strict=True):
            is_edited = checksum != written[name] and not self._is_unfinished(name)
            # A new file that was moved before a kill looks edited too, but is not staged any more.
            if is_edited and name in staged:
                self._set_aside(name)
            elif not is_edited and name not in names:
                outdated.append(name)
        self._move([name for name in staged if name != self.provenance_name])
        for name in outdated:
            (self.folder / name).unlink(missing_ok=True)
            if not is_remote(self.folder):
                parents = Path(name).parents[:-1]
                _remove_empty_folders(self.folder / parent for parent in parents)
        self._move([name for name in staged if name == self.provenance_name])

    def _announce(self, names: Iterable[str]) -> None:
        """Note for the next run which files this one may have written if it ends early."""

    def _is_unfinished(self, name: str) -> bool:
        """Return whether a run that ended early wrote the file, whatever it has."""
        return False

    def _set_aside(self, name: str) -> None:
        """Keep an edited file as NAME.before, NAME.before-2, …"""
        copy = f"{name}.before"
        numbers = count(2)
        while path_exists(self.folder / copy):
            copy = f"{name}.before-{next(numbers)}"
        self._rename(name, copy)

    def _rename(self, name: str, new_name: str) -> None:
        (self.folder / name).replace(self.folder / new_name)

    def _move(self, names: Sequence[str]) -> None:
        """Move new files to the folder of results, or upload them if it is remote."""
        is_in_store = is_remote(self.folder)

        def move(name: str) -> None:
            make_folder((self.folder / name).parent)
            if is_in_store:
                replace_file(self.path / name, self.folder / name)
            else:
                (self.path / name).replace(self.folder / name)

        for _ in map_requests(move, names, together=is_in_store):
            pass
        if not is_in_store:
            for folder in {(self.folder / name).parent for name in names}:
                sync_folder(folder)

    def _discard_unless_complete(self) -> None:
        """Remove the staging folder, unless the next run must move its complete set of files."""
        if not (self.path / self.provenance_name).is_file():
            shutil.rmtree(self.path, ignore_errors=True)

    def read_checksums(self) -> Checksums:
        """Return the checksums of files of the earlier set that exist inside the folder."""
        path = self.folder / self.provenance_name
        provenance = _read_provenance(path)
        if provenance is None:
            return {}
        checksums = {
            name: checksum
            for name, checksum in provenance["files"].items()
            if isinstance(checksum, str) and self._exists(name)
        }
        return checksums | {self.provenance_name: sha256_file(path)}

    def _exists(self, name: str) -> bool:
        return _is_file(self.folder, name)

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
            _check_own(name, is_foreign=os.path.lexists(path) and name not in written)


@dataclass
class RemoteOutputFolder(OutputFolder):
    """A folder in a store that accepts one set of results. Files are made on this machine.

    files       names of what is in the folder
    unfinished  files that earlier runs of this set wrote, or were about to, before they ended early
    """

    files: Collection[str] = ()
    unfinished: Collection[str] = ()

    @property
    def marker(self) -> Path:
        """The file about unfinished uploads of this set, and of no other one."""
        digest = sha256_text(f"{self.provenance_name}\n{self.owner}")
        return self.folder / f"{STAGING}-{digest[:16]}.json"

    def prepare(self, cleanup: ExitStack) -> None:
        """Check that the folder takes files, and make one for them on this machine."""
        reason = why_not_writable(self.folder)
        if reason:
            raise OutputError(f"{self.folder}: cannot be written to ({reason})")
        self.path = Path(tempfile.mkdtemp(dir=staging_folder()))
        cleanup.callback(remove_path, self.path)

    def read_checksums(self) -> Checksums:
        """List the folder again; return the checksums of files that this run may replace."""
        files = {}
        folder = RemotePath(self.folder)
        with suppress(FileNotFoundError):
            for path in folder.list_files():
                files[path.relative_to(folder).as_posix()] = path
        self.files = files.keys()
        self.folder = cast(Path, folder.with_listing(files.values()))
        self.unfinished = ()
        if self.marker.name in self.files:
            record = _read_provenance(self.marker) or {"files": {}}
            self.unfinished = self.files & record["files"].keys()
        # What an unfinished file has is not known, so no content counts as edited.
        return dict.fromkeys(self.unfinished, "") | super().read_checksums()

    def check_names(self, names: Iterable[str], written: Checksums) -> None:
        """Raise OSError if a name is taken by a file that callshot did not write."""
        for name in names:
            is_foreign = name in self.files and name not in written
            _check_own(name, is_foreign=is_foreign)

    def _exists(self, name: str) -> bool:
        return name in self.files

    def _is_unfinished(self, name: str) -> bool:
        return name in self.unfinished

    def _announce(self, names: Iterable[str]) -> None:
        record = {"files": dict.fromkeys(sorted(names), "")}
        write_atomic(self.marker, json.dumps(record, indent=2))

    def _place(self, names: Sequence[str]) -> None:
        """Upload the files of a set; the marker is there until the last one is."""
        super()._place(names)
        self.folder = cast(Path, RemotePath(self.folder))  # what it knew is outdated
        with suppress(PermissionError):  # a marker that stays does no harm
            self.marker.unlink(missing_ok=True)

    def _rename(self, name: str, new_name: str) -> None:
        write_atomic(self.folder / new_name, (self.folder / name).read_bytes())


def _check_own(name: str, *, is_foreign: bool) -> None:
    """Raise OSError if a file that would be replaced is not callshot's."""
    if is_foreign:
        raise OSError(
            f"{name} exists and was not written by callshot; "
            "move it or choose another folder"
        )


def _is_file(folder: Path, name: str) -> bool:
    """Return whether an untrusted name is the name of a file in a folder."""
    if Path(name).as_posix() != name or not is_inside(folder, name):
        return False
    with suppress(OSError, ValueError):  # a name that is too long or has a NUL
        return (folder / name).is_file()
    return False


def _remove_empty_folders(folders: Iterable[Path]) -> None:
    """Remove folders, the innermost first, as far as they are empty."""
    with suppress(OSError, ValueError):
        for folder in folders:
            folder.rmdir()


def _try_sha256(path: Path) -> str | None:
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
        cause = error
        if isinstance(error, OutputError):
            if not isinstance(error.__cause__, OSError):
                raise
            cause = error.__cause__  # its message names a file in the staging folder
        code = getattr(cause, "errno", None)
        # Errors of polars have the number only in their text.
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


# The file that lists a set has its own checksum: the sha256 of the file with "" in its place.

# No text in JSON has a newline, so it is there once.
SEAL = b'\n  "own_sha256": "%s"'
SEALED = re.compile(SEAL % b"([0-9a-f]{64})")


def format_provenance(content: Facts) -> bytes:
    """Return the content of a provenance file, with its own checksum.

    >>> is_intact(format_provenance({"files": {}}))
    True
    """
    content = {**content, "own_sha256": ""}
    text = json.dumps(content, sort_keys=True, indent=2, ensure_ascii=False)
    # Half surrogates are escaped, as in JSON.
    blank = f"{text}\n".encode("utf-8", "backslashreplace")
    checksum = hashlib.sha256(blank).hexdigest().encode()
    return blank.replace(SEAL % b"", SEAL % checksum, 1)


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


def compare_files(folder: Path, manifest: Facts) -> Iterator[tuple[Path, str]]:
    """Yield each file that a manifest lists, and whether it is "ok", "damaged" or "missing"."""
    for name, checksum in manifest["files"].items():
        if is_inside(folder, name):
            found = _try_sha256(folder / name)
            state = "ok" if found == checksum else "damaged"
            yield folder / name, "missing" if found is None else state


def check_result(path: Path, provenance_names: Iterable[str]) -> None:
    """Raise InputError if a file of results, or one in a folder of results, is damaged."""
    is_folder = path.is_dir()
    folder = path if is_folder else path.parent
    for provenance_name in provenance_names:
        provenance = folder / provenance_name
        if not provenance.is_file():
            continue
        files = read_intact_provenance(provenance)["files"]
        if not is_folder:
            files = {name: files[name] for name in files if name == path.name}
        for file, state in compare_files(folder, {"files": files}):
            if state == "damaged":
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
        for part in _content_parts(value):
            content.update(len(part).to_bytes(8, "little"))
            content.update(part)
    return content.hexdigest()


@cache
def _code_key() -> str:
    """Return a hash of the code and the versions of libraries."""
    versions = [f"{name} {version(name)}" for name in LIBRARIES]
    paths = [*CODE.rglob("*.py"), *CODE.rglob("*.mplstyle")]
    checksums = [sha256_file(path) for path in sorted(paths)]
    return sha256_text("\n".join([*versions, *checksums]))


def _content_parts(value: Any) -> Iterator[bytes | memoryview]:
    """Yield bytes that differ between values; mappings in their order, functions by their name."""
    yield type(value).__name__.encode()
    members: Collection[Any] = ()
    if isinstance(value, pl.DataFrame | pl.Series):
        # Names, types and values, whatever the frame was cut from.
        frame = pl.DataFrame(value)
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
    elif is_dataclass(value):
        members = [getattr(value, part.name) for part in fields(value)]
    elif isinstance(value, Mapping):
        members = value.items()
    elif isinstance(value, AbstractSet):
        members = sorted(value)
    elif isinstance(value, Sequence) and not isinstance(value, str | bytes):
        members = value
    else:
        yield repr(value).encode()
    yield str(len(members)).encode()
    for member in members:
        yield from _content_parts(member)


@dataclass
class EarlierFiles:
    """What an earlier report left in a folder, and the keys of its files in `key_file`.

    A file is copied, not made again, if its key is the same. Without `key_file`, none is.
    """

    folder: Path = Path()
    key_file: Path | None = None
    keys: dict[str, str] = field(default_factory=dict)  # of the new files

    def copy(self, name: str, key: str, folder: Path) -> bool:
        """Note the key of a file; copy it from the earlier report if it has the same key there.

        Return whether it was copied, which it is not if it was edited.
        """
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

    def save(self) -> None:
        """Write the keys of the new files, which are in place now."""
        if self.key_file is None:
            return
        entries = {
            name: [key, sha256_file(self.folder / name)]
            for name, key in self.keys.items()
        }
        make_folder(self.key_file.parent)
        text = json.dumps(entries, indent=2, sort_keys=True)
        write_atomic(self.key_file, f"{text}\n")
