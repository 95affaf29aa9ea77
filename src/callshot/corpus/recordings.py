"""A folder of audio → the recordings in it, and which of them a name in an annotation file means.

Names from files are looked up among the paths that were found under the folder, never followed: no `../`, no absolute
path and no link can lead outside it.
"""

import os
import re
import stat
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from callshot.corpus.audio import SUFFIXES
from callshot.errors import InputError
from callshot.records import Reject

Paths = dict[str, list[str]]
OTHERS = frozenset(
    (".m4a", ".aac", ".mp4", ".wma", ".amr", ".wv", ".ape", ".alac", ".ra", ".wac", ".dsf")
)
AUDIO = SUFFIXES | OTHERS
INFIX = re.compile(
    r"\.|[ _-](?:labels?|annotations?|annot|selections?|calls?|tables?|tiers?|textgrid|praat|raven|audacity|events|"
    r"final|checked|corrected|edited|manual)(?![a-z0-9])"
)


@dataclass(frozen=True)
class Library:
    """The audio files under a folder, as paths relative to it with `/`, and what was left out.

    `alone` is a recording that was named itself, whatever else is in its folder.
    """

    root: Path
    paths: tuple[str, ...]
    rejects: tuple[Reject, ...] = ()
    alone: bool = False
    _ends: Paths = field(default_factory=lambda: defaultdict(list), repr=False)
    _stems: Paths = field(default_factory=lambda: defaultdict(list), repr=False)

    def __post_init__(self) -> None:
        for path in self.paths:
            parts = _plain(path).split("/")
            for n in range(len(parts)):
                end = "/".join(parts[n:])
                self._ends[end].append(path)
                self._ends[_bare(end)].append(path)
            self._stems[_bare(parts[-1])].append(path)

    def find(self, name: str) -> str:
        """Return the path that a name means: it ends in the path, or the path ends in it; refuse all else.

        Case does not matter, nor does the suffix of an audio file, nor how accents are encoded. A recording with the
        same file name in another folder is another recording.

        >>> Library(Path("."), ("a/x.wav", "b/x.wav", "y.flac")).find("/media/card/a/X.WAV")
        'a/x.wav'
        """
        plain = re.sub(r"/(\./)*/*", "/", name.strip().replace("\\", "/")).removeprefix("./")
        parts = _plain(plain.rpartition("../")[2]).split("/")
        ends = ["/".join(parts[n:]) for n in range(len(parts))]
        for end in ends:
            if found := self._whole(end):
                return self._only(name, found)
        if within := self._named(ends[0]):
            return self._only(name, within)
        namesakes = self._named(ends[-1])
        told = f"; {namesakes[0]} has its file name and is in another folder" if namesakes else ""
        raise InputError(f"no recording {name} under {self.root}{told}")

    def pair(self, file: PurePosixPath) -> str:
        """Return the path of the recording that an annotation file stands for, by its name: `x.Table.1.txt` by `x.wav`.

        The longest stem wins, then a recording in a folder of the same name. `file` is relative to the folder of
        annotations, or a name alone where these are all in one folder. Where both annotations and recordings are in
        several, a recording in a folder of another name is another recording.

        >>> Library(Path("."), ("x.wav", "x.1.wav")).pair(PurePosixPath("labels/x.1.Table.1.selections.txt"))
        'x.1.wav'
        """
        name = _plain(file.name)
        for end in _boundaries(name):
            if found := self._stems.get(name[:end]):
                return self._only(file.name, self._near(file, found))
        raise InputError(f"no recording under {self.root} goes by the name of {file.name}")

    def _near(self, file: PurePosixPath, found: list[str]) -> list[str]:
        """Return the recordings in the folder of an annotation file, else in one of that name, else anywhere."""
        parents = [PurePosixPath(path).parent for path in found]
        same = [path for path, parent in zip(found, parents, strict=True) if parent == file.parent]
        alike = [
            path
            for path, parent in zip(found, parents, strict=True)
            if parent.name == file.parent.name
        ]
        if (
            not (same or alike)
            and file.parent.name
            and len({PurePosixPath(path).parent for path in self.paths}) > 1
        ):
            raise InputError(
                f"no recording for {file} under {self.root}; {found[0]} has its name and is elsewhere"
            )
        return same or alike or found

    def dropped(self, name: str, path: str) -> str:
        """Return the folders of a name that the path it means does not have.

        >>> Library(Path("."), ("x.wav",)).dropped("D:/site2/X.wav", "x.wav")
        'd:/site2'
        """
        parts = _plain(name.strip().replace("\\", "/")).split("/")
        return "/".join(parts[: len(parts) - len(path.split("/"))])

    def _whole(self, end: str) -> list[str]:
        """Return the paths that are just this, but for case and suffix."""
        found = self._named(end)
        return [path for path in found if _plain(path) == end] or [
            path for path in found if _bare(_plain(path)) == _bare(end)
        ]

    def _named(self, end: str) -> list[str]:
        """Return the paths that end so, but for case and suffix."""
        return self._ends.get(end) or self._ends.get(_bare(end)) or []

    def _only(self, name: str, found: Iterable[str]) -> str:
        first, *others = sorted(set(found))
        exact = [path for path in (first, *others) if name.endswith(path)]
        if others and len(exact) != 1:
            raise InputError(
                f"{name} may mean {first} or {others[0]}; name it with its folder and suffix"
            )
        return exact[0] if exact else first


def find_recordings(folder: Path) -> Library:
    """List the audio files under a folder (or the one file that is given); links that lead outside are left out.

    >>> import tempfile
    >>> find_recordings(Path(tempfile.mkdtemp())).paths
    ()
    """
    try:
        str(folder).encode()
        if folder.is_file():
            return Library(folder.parent, (folder.name,), alone=True)
        if not folder.is_dir():
            raise InputError(f"{folder}: no such folder; wanted the folder of the recordings")
    except (OSError, UnicodeEncodeError) as error:
        raise InputError(
            f"{folder}: cannot be looked into ({getattr(error, 'strerror', 'not UTF-8')})"
        ) from None
    found = [path for path in find_files(folder) if path.suffix.lower() in AUDIO or path.is_dir()]
    reasons = {path: _refuse_recording(path, folder) for path in found}
    paths = (
        path.relative_to(folder).as_posix() for path, reason in reasons.items() if reason is None
    )
    rejects = (
        Reject(str(path), None, reason) for path, reason in reasons.items() if reason is not None
    )
    return Library(folder, tuple(paths), tuple(rejects))


def _refuse_recording(path: Path, folder: Path) -> str | None:
    if path.suffix.lower() in OTHERS and not path.is_dir():
        return "audio of a kind that libsndfile does not read; convert it to FLAC or WAV"
    return refuse_file(path, folder)


def find_files(folder: Path) -> Iterator[Path]:
    """Go through the files under a folder, by name; folders that are linked or cannot be read are named, not entered.

    Hidden folders are neither.
    """
    closed: list[str] = []
    for top, folders, files in os.walk(folder, onerror=lambda error: closed.append(error.filename)):
        linked = [name for name in folders if Path(top, name).is_symlink()]
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(top, name) for name in sorted([*files, *linked]))
    yield from (Path(name) for name in closed)


def refuse_file(path: Path, folder: Path) -> str | None:
    """Say why a file is not read: hidden (as macOS's `._x.wav`), led outside by a link, or no file at all."""
    if path.name.startswith("."):
        return "a hidden file; rename it if it is to be read"
    try:
        if path.is_symlink() and not path.resolve(strict=True).is_relative_to(folder.resolve()):
            return (
                f"a link that leads outside {folder}; copy what it leads to, or name its own folder"
            )
        if path.is_dir():
            linked = "a linked folder is not entered; name the folder itself"
            return linked if path.is_symlink() else "the folder cannot be read; ask for access"
        path.name.encode()
        return None if stat.S_ISREG(path.stat().st_mode) else "not a regular file"
    except UnicodeEncodeError:
        return "its name is not UTF-8; rename it"
    except (OSError, RuntimeError) as error:
        return f"cannot be reached ({getattr(error, 'strerror', None) or 'a loop of links'})"


def _plain(name: str) -> str:
    """Return a name without case, accents composed: macOS takes them apart."""
    return unicodedata.normalize("NFC", name).casefold()


def _bare(name: str) -> str:
    """Return a name without the suffix of an audio file."""
    stem, dot, suffix = name.rpartition(".")
    return stem if stem and dot + suffix in SUFFIXES else name


def _boundaries(name: str) -> list[int]:
    """Return where a stem may end in a name, longest first: at its end, before a dot, or before a word such as labels.

    `rec_2.txt` is not about `rec.wav`.
    """
    return [
        len(name),
        *(found.start() for found in reversed([*INFIX.finditer(name)]) if found.start() > 0),
    ]
