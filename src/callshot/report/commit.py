"""Files made ready in a staging folder → their places in a directory; what was there → kept, replaced or removed.

    told = listed(place, directory)                        what an earlier run says it wrote there
    refuse_foreign(place, names, told)                     somebody else's files are not replaced
    publish(staging, place, names, told)                   all of them or none, also if it is killed half-way
    undo(staging, place)                                   after a kill: what was there before, again

Where the files of a set are not known before, only those whose sha256 is as told count as its own.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

KEPT = ".before"  # of what is replaced, in the staging folder; no name of a set begins with a dot
FILES, SET = "files", "set"  # keys of the file that tells


@dataclass(frozen=True)
class Place:
    """A directory for a set of files.

    `names` are all the files that such a set may have (None: it is not known before), `told_in` is the one that tells
    of the others, and `mark` whose set it is.
    """

    directory: Path
    names: Sequence[str] | None
    told_in: str
    mark: str = ""


def listed(place: Place, folder: Path) -> dict[str, str]:
    """Return what was written before, by what a folder tells: the sha256 of each name that can be the set's."""
    told = _read_told(folder / place.told_in)
    if told is None:
        return {}
    found = {name: _text(digest) for name, digest in told[FILES].items()} | {place.told_in: ""}
    if place.names is not None:
        return {name: digest for name, digest in found.items() if name in place.names}
    return {name: digest for name, digest in found.items() if _within(place.directory, name)}


def _read_told(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError, TypeError, KeyError, RecursionError):
        if path.is_file():  # a pipe by that name would be waited for
            told = json.loads(path.read_text(encoding="utf-8"))
            return told if isinstance(told[FILES], dict) else None
    return None


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _within(directory: Path, name: str) -> bool:
    """Tell whether a name can be a file's in the directory: no folder, no other way to write it, no way out."""
    path = Path(name)
    if path.as_posix() != name or path.anchor or ".." in path.parts:
        return False
    with suppress(OSError, ValueError):  # too long, a NUL
        whole = directory / path
        return _leads_in(directory, name) and (whole.is_file() or not os.path.lexists(whole))
    return False


def _leads_in(directory: Path, name: str) -> bool:
    parent, inside = (
        Path(os.path.realpath(path)) for path in ((directory / name).parent, directory)
    )
    return parent.is_relative_to(inside)


def refuse_others(place: Place) -> None:
    """Refuse a directory that holds another set than the one to be written, by its mark."""
    told = _read_told(place.directory / place.told_in)
    if told is not None and (theirs := told.get(SET, "")) != place.mark:
        shown = "".join(letter if letter.isprintable() else " " for letter in _text(theirs)[:100])
        raise OSError(
            f"results of {shown or 'another command'} are there; choose another directory, or move them away"
        )


def refuse_foreign(place: Place, names: Sequence[str], told: Collection[str]) -> None:
    """Refuse to put files where a folder, or somebody else's file, goes by their names, or a link leads elsewhere."""
    for name in names:
        path = place.directory / name
        if files := [
            folder for folder in Path(name).parents if (place.directory / folder).is_file()
        ]:
            raise OSError(
                f"{files[0].as_posix()} is a file there, and a folder goes by that name; move it"
            )
        if path.is_dir():
            raise OSError(f"{name} is a folder there, and a file goes by that name; move it")
        if not _leads_in(place.directory, name):
            raise OSError(
                f"{name} would go elsewhere, by a link; move the link, or choose another directory"
            )
        if os.path.lexists(path) and name not in told:
            raise OSError(
                f"{name} is there and not from callshot; move it, or choose another directory"
            )


def publish(staging: Path, place: Place, names: Sequence[str], told: Mapping[str, str]) -> None:
    """Remove what is stale and move staged files into place, the one that tells last; if that stops, put all back."""
    there = [name for name in told if os.path.lexists(place.directory / name)]
    stale = [name for name in there if name not in names and _is_as_told(place, name, told[name])]
    edited = [name for name in there if name in names and not _is_as_told(place, name, told[name])]
    names = [*_set_aside(staging, place.directory, edited), *names]
    _keep_all(staging, place.directory, [*names, *stale])
    try:
        for name in stale:  # first: where case does not count, it may be the name of a new one
            (place.directory / name).unlink(missing_ok=True)
        remove_empty(place.directory, stale)
        for name in names:
            (place.directory / name).parent.mkdir(parents=True, exist_ok=True)
            os.replace(staging / name, place.directory / name)  # noqa: PTH105
        for folder in {(place.directory / name).parent for name in names}:
            _sync_folder(folder)
    except BaseException:
        _put_back(staging, place.directory, [*names, *stale])
        raise


def _is_as_told(place: Place, name: str, digest: str) -> bool:
    """Tell whether a file is the one that was written; where all names are known, the name alone says so."""
    if place.names is not None or name == place.told_in:
        return True
    return _digest(place.directory / name) == digest


def _set_aside(staging: Path, directory: Path, edited: Iterable[str]) -> list[str]:
    """Stage files that were changed by hand under a free name, NAME.before; return these names."""
    aside = {name: _free_name(directory, name) for name in edited}
    for name, free in aside.items():
        if free is not None:
            _keep(directory / name, staging / free)
    return [free for free in aside.values() if free is not None]


def _free_name(directory: Path, name: str) -> str | None:
    """Return a name to keep a file by; None where it is kept already."""
    for number in count(1):
        free = f"{name}.before" + (f"-{number}" if number > 1 else "")
        if not os.path.lexists(directory / free):
            return free
        if (kept := _digest(directory / free)) is not None and kept == _digest(directory / name):
            return None
    raise AssertionError


def _keep_all(staging: Path, directory: Path, names: Iterable[str]) -> None:
    """Keep what will be replaced or removed; the folder has its name only when all is in it, and on the disk."""
    half = staging / f"{KEPT}-half"
    half.mkdir()
    for name in names:
        if os.path.lexists(directory / name):
            _keep(directory / name, half / name)
    for folder in (
        half,
        *(path for path in half.rglob("*") if path.is_dir() and not path.is_symlink()),
    ):
        _sync_folder(folder)
    half.rename(staging / KEPT)
    _sync_folder(staging)


def _keep(path: Path, copy: Path) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    try:
        copy.hardlink_to(path)
    except (OSError, NotImplementedError):  # not every file system has links
        shutil.copyfile(path, copy)
        seal(copy)
        shutil.copystat(path, copy)


def undo(staging: Path, place: Place) -> None:
    """Put back what a run replaced before it was killed half-way: its provenance, the last to go, is still staged.

    What it had put where nothing was before is removed, unless it has changed since.
    """
    if (staging / KEPT).is_dir() and (staging / place.told_in).exists():
        anything = Place(place.directory, None, place.told_in)
        told = listed(anything, staging)
        new = [name for name in told if _is_as_told(anything, name, told[name])]
        kept = [
            path for path in (staging / KEPT).rglob("*") if path.is_file() and not path.is_symlink()
        ]
        names = {path.relative_to(staging / KEPT).as_posix() for path in kept}
        within = [name for name in names if _within(place.directory, name)]
        _put_back(staging, place.directory, {*new, *within})


def _put_back(staging: Path, directory: Path, names: Collection[str]) -> None:
    """Bring files back as they were; what is kept stays kept, so that this can be killed too, and done again."""
    for name in names:
        if os.path.lexists(staging / KEPT / name):
            spare = staging / f"{KEPT}-again" / name
            spare.unlink(missing_ok=True)
            _keep(staging / KEPT / name, spare)
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            spare.replace(directory / name)
        elif (staging / KEPT).is_dir() and not (
            staging / name
        ).exists():  # it was new, and is in place
            (directory / name).unlink(missing_ok=True)
    remove_empty(directory, names)


def remove_empty(directory: Path, names: Iterable[str]) -> None:
    """Remove the folders of files that are gone, where nothing else is in them."""
    for name in names:
        with suppress(OSError):
            for folder in Path(name).parents[:-1]:
                (directory / folder).rmdir()


def seal(path: Path) -> str:
    """Bring a file to the disk; return its sha256."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _digest(path: Path) -> str | None:
    """Return the sha256 of a file; None where there is none that can be read."""
    with suppress(OSError):
        if path.is_file():
            with path.open("rb") as file:
                return hashlib.file_digest(file, "sha256").hexdigest()
    return None


def _sync_folder(directory: Path) -> None:
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(directory, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)
