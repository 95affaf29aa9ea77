"""Recordings under a folder, and which of them a name in an annotation file means.

Names from files are looked up among the paths under the folder and never followed: no `../`, no
absolute path can lead outside it, and links only with `follow_links`.
"""

import math
import os
import re
import stat
import unicodedata
import warnings
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from callshot.corpus.audio import SUFFIXES, probe
from callshot.corpus.audio_files import check_channel_rule
from callshot.errors import InputError, OptionError, check_range, count_text
from callshot.files import error_reason, explain_unreadable
from callshot.records import Progress, Recording, Reject, no_progress
from callshot.spans import Spans, name_spans
from callshot.storage import is_remote, map_requests, to_path

PathIndex = dict[str, list[str]]
Recordings = dict[str, Recording]
Errors = dict[str, InputError]

OTHER_SUFFIXES = ".m4a .aac .mp4 .wma .amr .wv .ape .alac .ra .wac .dsf"
UNSUPPORTED_SUFFIXES = frozenset(OTHER_SUFFIXES.split())
MAX_OVERLAP = 100  # windows that may begin in the time of one
WINDOW_COLUMNS = ("recording", "path", "start_s", "end_s", "label")
AUDIO_SUFFIXES = SUFFIXES | UNSUPPORTED_SUFFIXES
UNSUPPORTED = "libsndfile does not read this kind of audio; convert it to FLAC or WAV"
UNFETCHED = (
    "a link to a file that is not here; fetch it first "
    "(git annex get, datalad get or dvc pull)"
)
INFIX = re.compile(
    r"\.|[ _-](?:labels?|annotations?|annot|selections?|calls?|tables?|tiers?|textgrid|praat|raven"
    r"|audacity|events|final|checked|corrected|edited|manual)(?![a-z0-9])"
)


@dataclass(frozen=True)
class Library:
    """The audio files under a folder, as relative paths with `/`, and the files left out.

    `is_single` means that the user gave one recording, whatever else is in its folder.
    """

    root: Path
    paths: tuple[str, ...]
    rejects: tuple[Reject, ...] = ()
    is_single: bool = False
    _by_ending: PathIndex = field(default_factory=lambda: defaultdict(list), repr=False)

    def __post_init__(self) -> None:
        for path in self.paths:
            for ending in _list_endings(path):
                self._by_ending[ending].append(path)
                self._by_ending[_drop_suffix(ending)].append(path)

    def find(self, name: str) -> str:
        """Return the recording that a name means; one of the two ends in the other.

        Case, the suffix of an audio file and the encoding of accents do not matter. A file of the
        same name in another folder is another recording.

        >>> library = Library(Path("."), ("a/x.wav", "b/x.wav", "y.flac"))
        >>> library.find("/media/card/a/X.WAV")
        'a/x.wav'
        """
        text = re.sub(r"/(\./)*/*", "/", name.strip().replace("\\", "/"))
        _, _, inner = text.removeprefix("./").rpartition("../")
        endings = _list_endings(inner)
        for ending in endings:
            stem = _drop_suffix(ending)
            fitting = self._find_ending(ending)
            whole = [one for one in fitting if _drop_suffix(_normalise(one)) == stem]
            if whole:
                return self._choose(name, whole)
        within = self._find_ending(endings[0])
        if within:
            return self._choose(name, within)
        hint = ""
        for namesake in self._find_ending(endings[-1])[:1]:
            hint = f"; {namesake} has the same file name but is in another folder"
        raise InputError(f"no recording {name} under {self.root}{hint}")

    def pair(self, file: PurePosixPath) -> str:
        """Return the recording of an annotation file, by its name: `x.wav` for `x.Table.1.txt`.

        The recording may have its suffix there: `x.wav.txt`. The longest stem wins, then a
        recording in a folder of the same name. `file` is relative to the folder of annotations, or
        a name alone if all of them are in one folder. If annotations and recordings are both in
        several folders, those of the folders must match too.

        >>> library = Library(Path("."), ("x.wav", "x.1.wav"))
        >>> library.pair(PurePosixPath("labels/x.1.Table.1.selections.txt"))
        'x.1.wav'
        """
        name = _normalise(file.name)
        # A stem ends at the end of the name, before a dot, or before a word such as "labels":
        # `rec_2.txt` does not belong to `rec.wav`.
        stems = [name[: match.start()] for match in INFIX.finditer(name)]
        paths: list[str] = []
        for stem in [*stems, name]:
            paths = self._by_ending.get(stem, paths)
        if not paths:
            raise InputError(
                f"no recording under {self.root} matches the name {file.name}"
            )
        folder = file.parent
        parents = {path: PurePosixPath(path).parent for path in paths}
        same_folder = [path for path in paths if parents[path] == folder]
        same_name = [path for path in paths if parents[path].name == folder.name]
        nearest = same_folder or same_name
        if not nearest and folder.name and self._has_folders:
            raise InputError(
                f"no recording for {file} under {self.root}; "
                f"{paths[0]} has the same name but is in another folder"
            )
        return self._choose(file.name, nearest or paths)

    @cached_property
    def _has_folders(self) -> bool:
        """Whether the recordings are in several folders."""
        return len({PurePosixPath(path).parent for path in self.paths}) > 1

    def _find_ending(self, name: str) -> list[str]:
        """Return the paths that end in a name, except for case and suffix."""
        return (
            self._by_ending.get(name) or self._by_ending.get(_drop_suffix(name)) or []
        )

    def _choose(self, name: str, paths: Iterable[str]) -> str:
        found = sorted(set(paths))
        exact = [path for path in found if name.endswith(path)]
        if len(exact) == 1:
            return exact[0]
        if len(found) > 1:
            raise InputError(
                f"{name} may mean {found[0]} or {found[1]}; give its folder and suffix too"
            )
        return found[0]


def find_recordings(folder: Path, *, follow_links: bool = False) -> Library:
    """List the audio files under a folder, or the one file given.

    Links that lead outside the folder are left out unless they are to be followed.

    >>> import tempfile
    >>> find_recordings(Path(tempfile.mkdtemp())).paths
    ()
    """
    folder = to_path(folder)
    check_exists(folder, "a folder of recordings")
    if folder.is_file():
        return Library(folder.parent, (folder.name,), is_single=True)
    paths = []
    rejects = []
    files: list[Any] = list(find_files(folder, follow_links=follow_links))
    for path in files:
        is_folder = path.is_dir()
        suffix = path.suffix.lower()
        if suffix not in AUDIO_SUFFIXES and not is_folder:
            continue
        reason = skip_reason(path, folder, follow_links=follow_links)
        if suffix in UNSUPPORTED_SUFFIXES and not is_folder:
            reason = UNSUPPORTED
        if reason is None:
            paths.append(path.relative_to(folder).as_posix())
        else:
            rejects.append(Reject(str(path), None, reason))
    root = to_path(folder.with_listing(files)) if is_remote(folder) else folder
    return Library(root, tuple(paths), tuple(rejects))


def window_spans(
    audio: Path | str,
    window_s: float,
    *,
    hop_s: float | None = None,
    rate_hz: int = 16000,
    channel: str = "mean",
) -> Spans:
    """Return the windows of recordings, without labels.

    Parameters
    ----------
    audio : path
        Folder of the recordings, or one recording.
    window_s : float
        Length of a window.
    hop_s : float, optional
        Time from the start of one window to the next; windows do not overlap by default.
    rate_hz, channel
        How their audio is read: sample rate; "first", "mean" or the number of a channel.

    Returns
    -------
    Spans
        All windows are whole: the last one of a recording ends where the recording ends. A
        recording that is shorter than a window is one span. A warning counts recordings that
        cannot be read.

    Examples
    --------
    >>> import numpy, soundfile, tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.wav", numpy.zeros(11000), 1000)
    >>> windows = window_spans(folder, 4.0, hop_s=3.0)
    >>> windows["start_s"], windows["end_s"]
    ([0.0, 3.0, 6.0, 7.0], [4.0, 7.0, 10.0, 11.0])
    """
    if not 0 < window_s < math.inf:
        raise OptionError(f"window_s: expected seconds above 0, got {window_s:g}")
    if hop_s is None:
        hop_s = window_s
    check_range("hop_s", hop_s, window_s / MAX_OVERLAP, window_s, "s")
    check_channel_rule(channel)
    library = find_recordings(to_path(audio))
    recordings, errors = probe_recordings(library, None, no_progress)
    rows = []
    for path, recording in recordings.items():
        window = max(1, round(window_s * recording.rate_hz))
        hop = max(1, round(hop_s * recording.rate_hz))
        last_start = max(0, recording.frames - window)
        for start in [*range(0, last_start, hop), last_start]:
            end = min(start + window, recording.frames)
            span = {
                "recording": path,
                "path": path,
                "start_s": start / recording.rate_hz,
                "end_s": end / recording.rate_hz,
                "label": "",
            }
            rows.append(span)
    left_out = [f"{path}: {error}" for path, error in errors.items()]
    left_out += [f"{reject.file}: {reject.reason}" for reject in library.rejects]
    warn_left_out(left_out, "recording")
    spans = Spans.from_rows(rows, WINDOW_COLUMNS, root=library.root)
    names = name_spans(spans.frame, [False] * len(spans))
    spans = spans.with_columns(segment=names, rate_hz=rate_hz, channel_rule=channel)
    return spans.without("label")


def warn_left_out(reasons: Sequence[str], noun: str, plural: str = "") -> None:
    """Warn that something was left out; say how much, and why the first."""
    if reasons:
        count = count_text(len(reasons), noun, plural)
        warnings.warn(f"{count} left out, the first: {reasons[0]}", stacklevel=3)


def probe_recordings(
    library: Library, source_rate_hz: float | None, progress: Progress
) -> tuple[Recordings, Errors]:
    """Read the header of every recording; return those that can be read, and the errors."""
    recordings = {}
    errors = {}

    def read_header(path: str) -> Recording | InputError:
        try:
            return probe(library.root / path, path, source_rate_hz)
        except InputError as error:
            return error

    together = is_remote(library.root)
    headers = map_requests(read_header, library.paths, together=together)
    for path, header in zip(library.paths, headers, strict=True):
        if isinstance(header, InputError):
            errors[path] = header
        else:
            recordings[path] = header
        progress(1 / len(library.paths), "reading headers")
    return recordings, errors


def unmatched_folders(name: str, path: str) -> str:
    """Return the leading folders of a name that the path it means does not have.

    >>> unmatched_folders("D:/site2/X.wav", "x.wav")
    'd:/site2'
    """
    parts = _normalise(name.strip().replace("\\", "/")).split("/")
    extra = len(parts) - 1 - path.count("/")
    return "/".join(parts[:extra])


def check_exists(path: Path, expected: str) -> None:
    """Raise InputError if a path of the user does not exist or cannot be used."""
    try:
        str(path).encode()
        path.stat()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: {error_reason(error)}; expected {expected}"
        ) from None


def find_files(folder: Path, *, follow_links: bool = False) -> Iterator[Path]:
    """Yield the files under a folder by name, except in hidden folders.

    Folders that cannot be read are yielded too, and folders that are links unless they are entered:
    with `follow_links`, those that lead outside `folder`, each once.
    """
    if is_remote(folder):
        with explain_unreadable(str(folder)):
            found: list[Any] = folder.list_files()
        for path in found:
            parents = path.relative_to(folder).parts[:-1]
            if not any(name.startswith(".") for name in parents):
                yield path
        return
    entered = [folder.resolve()]
    unreadable: list[Path] = []
    walk = os.walk(
        folder,
        onerror=lambda error: unreadable.append(Path(error.filename)),
        followlinks=follow_links,
    )
    for parent, folders, names in walk:
        visible = sorted(name for name in folders if not name.startswith("."))
        folders.clear()
        for name in visible:
            path = Path(parent, name)
            if not path.is_symlink():
                folders.append(name)
                continue
            target = path.resolve()
            is_known = any(
                target.is_relative_to(other) or other.is_relative_to(target)
                for other in entered
            )
            if follow_links and not is_known:
                entered.append(target)
                folders.append(name)
            else:
                names.append(name)
        yield from (Path(parent, name) for name in sorted(names))
    yield from unreadable


def skip_reason(path: Path, folder: Path, *, follow_links: bool = False) -> str | None:
    """Return why a file is not read, None if it is.

    Hidden files (such as macOS's `._x.wav`), broken links and links that lead outside the folder,
    names that are not UTF-8, and anything that is not a regular file are skipped.
    """
    if path.name.startswith("."):
        return "a hidden file; rename it if it should be read"
    if is_remote(path):
        return path.problem or None
    try:
        if path.is_symlink():
            if not path.exists():
                return UNFETCHED
            target = path.resolve(strict=True)
            is_outside = not target.is_relative_to(folder.resolve())
            if is_outside and not follow_links:
                return f"a link that leads outside {folder}; --follow-links reads it"
        if path.is_dir():  # listed only if its files could not be
            return (
                "a folder that cannot be read, or a link to one; give the folder itself"
            )
        path.name.encode()  # an error if it is not UTF-8
        if not stat.S_ISREG(path.stat().st_mode):
            return "not a regular file"
    except UnicodeEncodeError:
        return "its name is not UTF-8; rename it"
    except (OSError, RuntimeError) as error:  # RuntimeError: a loop of links
        return f"cannot be opened ({error_reason(error)})"
    return None


def _normalise(name: str) -> str:
    """Return a name without case and with composed accents; macOS stores them apart."""
    return unicodedata.normalize("NFC", name).casefold()


def _list_endings(path: str) -> list[str]:
    """Return a path with all its folders, with fewer of them, and at last its name alone."""
    parts = _normalise(path).split("/")
    return ["/".join(parts[n:]) for n in range(len(parts))]


def _drop_suffix(name: str) -> str:
    """Return a name without the suffix of an audio file."""
    stem, dot, suffix = name.rpartition(".")
    if stem and dot + suffix in AUDIO_SUFFIXES:
        return stem
    return name
