"""Recordings under a folder, their annotations, and which recording a name in a file means.

Names from files are looked up among the paths under the folder and never followed: no `../`, no
absolute path can lead outside it, and links only with `follow_links`.
"""

import json
import math
import os
import re
import stat
import unicodedata
import warnings
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import Any

from callshot.corpus.annotations import (
    ANNOTATION_SUFFIXES,
    AnnotationFile,
    AnnotationOptions,
    find_format,
    read_annotations,
    recognise,
)
from callshot.corpus.annotations.rows import reject_row
from callshot.corpus.audio import SUFFIXES, probe
from callshot.corpus.audio_files import check_channel_rule
from callshot.errors import InputError, OptionError, check_range, count_text
from callshot.files import (
    DECISIONS,
    FOUND,
    MANIFESTS,
    SCAN_FACTS,
    error_reason,
    explain_unreadable,
    sha256_file,
)
from callshot.records import Progress, Recording, Reject, no_progress
from callshot.spans import Row, Spans, name_spans
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
        """Return the path of the recording that a name in an annotation file means.

        The name ends in the path, or else the path ends in the name. Case, the suffix of an audio
        file and the encoding of accents do not matter. A file of the same name in another folder
        is another recording.
        """
        # Windows paths, and `//` and `/./`, are written as `/`; what is before a `../` is dropped.
        text = re.sub(r"/(\./)*/*", "/", name.strip().replace("\\", "/"))
        _, _, below = text.removeprefix("./").rpartition("../")
        endings = _list_endings(below)
        # The name ends in the whole path of a recording: the longest such path.
        for ending in endings:
            stem = _drop_suffix(ending)
            paths = self._find_ending(ending)
            whole = [path for path in paths if _drop_suffix(_normalise(path)) == stem]
            if whole:
                return self._choose(name, whole)
        # Or the path of a recording ends in the whole name.
        longer = self._find_ending(endings[0])
        if longer:
            return self._choose(name, longer)
        hint = ""
        namesakes = self._find_ending(endings[-1])
        if namesakes:
            hint = f"; {namesakes[0]} has the same file name but is in another folder"
        raise InputError(f"no recording {name} under {self.root}{hint}")

    def pair(self, file: PurePosixPath) -> str:
        """Return the recording of an annotation file, by its name: `x.wav` for `x.Table.1.txt`.

        The name of the file may include the suffix of the recording: `x.wav.txt`. If several
        recordings fit, the one with the longest stem is meant, then one in the same folder, then
        one in a folder of the same name. `file` is relative to the folder of annotations, or a
        name alone if all annotations are in one folder. If annotations and recordings are both in
        several folders, the names of their folders must match too.
        """
        name = _normalise(file.name)
        # A stem ends at the end of the name, before a dot, or before a word such as "labels":
        # `rec_2.txt` does not belong to `rec.wav`.
        stems = [name[: match.start()] for match in INFIX.finditer(name)]
        paths: list[str] = []
        for stem in [*stems, name]:  # from short to long: the last that fits is kept
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
        """Return the paths that end in a normalised name, or do so without its suffix."""
        return (
            self._by_ending.get(name) or self._by_ending.get(_drop_suffix(name)) or []
        )

    def _choose(self, name: str, paths: Iterable[str]) -> str:
        """Return the path that a name means: the only one, or the only one it ends in."""
        candidates = sorted(set(paths))
        exact = [path for path in candidates if name.endswith(path)]
        if len(exact) == 1:
            return exact[0]
        if len(candidates) > 1:
            raise InputError(
                f"{name} may mean {candidates[0]} or {candidates[1]}; "
                "give its folder and suffix too"
            )
        return candidates[0]


def find_recordings(folder: Path, *, follow_links: bool = False) -> Library:
    """Find the audio under a folder, or one file; what cannot be read becomes a reject."""
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
    # A folder in a store keeps what the listing said about its files.
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
    recordings, errors = probe_recordings(library)
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
                "label": "",  # for `name_spans`
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
    """Warn how many things were left out, with the first reason."""
    if reasons:
        count = count_text(len(reasons), noun, plural)
        warnings.warn(f"{count} left out, the first: {reasons[0]}", stacklevel=3)


def probe_recordings(
    library: Library,
    source_rate_hz: float | None = None,
    progress: Progress = no_progress,
) -> tuple[Recordings, Errors]:
    """Read all headers; return readable recordings and errors, by path."""
    recordings = {}
    errors = {}

    def read_header(path: str) -> Recording | InputError:
        """Return the header of a recording, or the error, so that others are still read."""
        try:
            return probe(library.root / path, path, source_rate_hz)
        except InputError as error:
            return error

    is_parallel = is_remote(library.root)
    headers = map_requests(read_header, library.paths, together=is_parallel)
    for path, header in zip(library.paths, headers, strict=True):
        if isinstance(header, InputError):
            errors[path] = header
        else:
            recordings[path] = header
        progress(1 / len(library.paths), "reading headers")
    return recordings, errors


def check_exists(path: Path, expected: str) -> None:
    """Raise InputError if a path does not exist; `expected` says what it should be."""
    try:
        str(path).encode()
        path.stat()
    except (OSError, ValueError) as error:
        raise InputError(
            f"{path}: {error_reason(error)}; expected {expected}"
        ) from None


def find_files(folder: Path, *, follow_links: bool = False) -> Iterator[Path]:
    """Yield the files under a folder, sorted by name in each folder; skip hidden folders.

    Folders that cannot be read are yielded too, so that the caller can report them. A link to a
    folder is entered only with `follow_links`, and only if its target neither contains nor lies in
    a folder that was entered before, so that no file comes twice; otherwise the link is yielded.
    """
    if is_remote(folder):
        with explain_unreadable(str(folder)):
            files: list[Any] = folder.list_files()
        for path in files:
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
        folders.clear()  # os.walk enters the folders that are put back
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
    """Return why a file is skipped: hidden, a link outside, no UTF-8 name, not a regular file."""
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
    """Return a name in lower case and with composed accents, which macOS stores apart."""
    return unicodedata.normalize("NFC", name).casefold()


def _list_endings(path: str) -> list[str]:
    """Return the normalised endings of a path, longest first: `a/b/x`, `b/x`, `x`."""
    parts = _normalise(path).split("/")
    return ["/".join(parts[n:]) for n in range(len(parts))]


def _drop_suffix(name: str) -> str:
    """Return a name without the suffix of an audio file."""
    stem, dot, suffix = name.rpartition(".")
    if stem and dot + suffix in AUDIO_SUFFIXES:
        return stem
    return name


FOLDERS = "folders"
UNRECOGNISED = (
    "not recognised as annotations; "
    "give its format with --format, or its columns with --columns"
)
DAMAGED_MANIFEST = (
    OSError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    RecursionError,
)


@dataclass
class CorpusAnnotations:
    """Annotations on recordings, rejected rows and skipped files; `path` is that of a recording."""

    library: Library
    rows: list[Row] = field(default_factory=list)
    annotated: set[str] = field(default_factory=set)
    rejects: list[Reject] = field(default_factory=list)
    skipped_files: list[Reject] = field(default_factory=list)
    recognised: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, file: AnnotationFile, relative_path: PurePosixPath) -> set[str]:
        """Add rows; return the paths of their recordings: those they name, or that of the file."""
        self.recognised[file.format, file.reason] += 1
        self.rejects += file.rejects
        self.notes.update(file.notes)
        library = self.library
        annotated = set()
        # By the name that rows give their recording; None: they give none.
        rows_by_name = defaultdict[str | None, list[Row]](list)
        for row in file.rows:
            rows_by_name[row["path"]].append(row)
        if not file.rows:
            rows_by_name[None] = []
        for name, rows in rows_by_name.items():
            try:
                path = (
                    library.pair(relative_path) if name is None else library.find(name)
                )
            except InputError as error:
                self.rejects += [reject_row(row, error) for row in rows]
                continue
            names = {"path": path, "path_written": name}
            self.rows += [row | names for row in rows]
            annotated.add(path)
        self.annotated |= annotated
        return annotated


def read_corpus_annotations(
    library: Library,
    annotations: Path | None,
    format: str,
    annotation_options: AnnotationOptions,
    progress: Progress = no_progress,
) -> CorpusAnnotations:
    """Read a file or folder, files beside the recordings, or the names of their folders."""
    if format == FOLDERS:
        return _label_by_folder(library, "asked for")
    if format != "auto":
        find_format(format)  # an unknown name is an error before any work
    path = library.root if annotations is None else annotations
    check_exists(path, "a file or folder of annotations")
    result = CorpusAnnotations(library)
    if path.is_dir():
        found = find_input_files(
            path,
            detections=annotations is not None,
            exclude=annotation_options.exclude,
            follow_links=annotation_options.follow_links,
        )
        files = [*found]
        if annotations is None and library.is_single:
            files = _select_files_beside(
                library, files, follow_links=annotation_options.follow_links
            )
        _read_folder(result, path, files, format, annotation_options, progress)
    else:
        file = read_annotations(path, format, annotation_options)
        result.add(file, PurePosixPath(path.name))
        progress(1.0, "reading annotations")
    _reject_namesakes(result)
    is_without_calls = result.recognised and not result.skipped_files
    if result.rows or result.rejects or is_without_calls:
        return result
    refuse_labels(path, library.root)
    has_folders = any("/" in name for name in library.paths)
    if annotations is None and format == "auto" and has_folders:
        origin = "no annotation files, and recordings in folders"
        by_folder = _label_by_folder(library, origin)
        by_folder.skipped_files += result.skipped_files
        return by_folder
    if result.skipped_files:
        first, *others = result.skipped_files
        more = f" (and {count_text(len(others), 'more file')})" if others else ""
        raise InputError(f"{first.file}: {first.reason}{more}")
    raise InputError(
        f"{path}: no annotations found; give them with --annotations, or mark calls with "
        f"callshot label {library.root}"
    )


def _select_files_beside(
    library: Library, files: Iterable[Path], *, follow_links: bool
) -> list[Path]:
    """Return the files beside a single recording that belong to it and to no other recording."""
    neighbours = find_recordings(library.root, follow_links=follow_links)
    selected = []
    for path in files:
        if path.parent != library.root:
            continue
        with suppress(InputError):  # of no recording, or of several
            if neighbours.pair(PurePosixPath(path.name)) == library.paths[0]:
                selected.append(path)
    return selected


def refuse_labels(annotations: Path, recordings: Path) -> None:
    """Raise InputError if a folder has what `callshot label` saved, which is no annotation file."""
    for folder in (annotations, recordings / "labels"):
        if (folder / DECISIONS).is_file():
            raise InputError(
                f"{annotations}: no annotation files; the calls of callshot label are in {folder}: "
                f"callshot learn {folder}, or callshot convert {folder} --to raven"
            )


def _label_by_folder(library: Library, origin: str) -> CorpusAnnotations:
    """Label each whole recording with the name of its folder; `origin` says why, in a note."""
    labelled = CorpusAnnotations(library)
    folders = set()
    for path in library.paths:
        folder = PurePosixPath(path).parent
        folders.add(folder)
        row = {
            "path": path,
            "path_written": path,
            "recording": None,
            "start_s": 0.0,
            "end_s": None,
            "label": folder.name,
            "annotation_file": str(library.root / path),
            "annotation_row": None,
        }
        if folder.name:
            labelled.rows.append(row)
            labelled.annotated.add(path)
        else:
            reason = "not in a folder that could be its label"
            labelled.rejects.append(reject_row(row, reason))
    labelled.recognised[FOLDERS, origin] = len(folders)
    return labelled


def _read_folder(
    result: CorpusAnnotations,
    folder: Path,
    files: list[Path],
    format: str,
    annotation_options: AnnotationOptions,
    progress: Progress,
) -> None:
    """Add the annotations in `files`; InputError if a recording is annotated in two formats."""
    # By recording: the first file of each format that annotates it.
    formats = defaultdict[str, dict[str, Path]](dict)
    likely = {path for path in files if path.name.lower().endswith(ANNOTATION_SUFFIXES)}
    is_one_folder = len({path.parent for path in likely}) == 1
    for path in files:
        progress(1 / len(files), "reading annotations")
        file = None
        reason = skip_reason(path, folder, follow_links=annotation_options.follow_links)
        try:
            if reason is None:
                is_likely = path in likely
                reason = _why_not_read(path, is_likely, format, annotation_options)
            if reason is None:
                file = read_annotations(path, format, annotation_options)
        except InputError as error:
            reason = str(error).removeprefix(f"{path}: ")
        if file is not None:
            name = path.name if is_one_folder else path.relative_to(folder).as_posix()
            for recording in result.add(file, PurePosixPath(name)):
                formats[recording].setdefault(file.format, path)
        elif path in likely:
            result.skipped_files.append(Reject(str(path), None, str(reason)))
    for recording, by_format in formats.items():
        if len(by_format) > 1:  # its calls would count twice
            (first, first_file), (second, second_file), *_ = by_format.items()
            raise InputError(
                f"{recording} is annotated in two formats, "
                f"{first} ({first_file}) and {second} ({second_file}); "
                "choose one with --format, or give one folder with --annotations"
            )


def _why_not_read(
    path: Path, is_likely: bool, format: str, annotation_options: AnnotationOptions
) -> str | None:
    """Return why a file has no annotations in a format, which may be "auto"; None if it may.

    Some formats cannot be recognised by their content: if the user names one, a file that
    `is_likely`, by its suffix, is read unless it is recognised as something else. Any table may be
    recognised as CSV.
    """
    recognised = recognise(path, annotation_options)
    found = recognised[0].name if recognised else ""
    if found and format in ("auto", found):
        return None
    if format == "auto":
        return UNRECOGNISED
    if found not in ("", "csv"):
        return f"its format is {found}, not {format}"
    return None if is_likely else UNRECOGNISED


def _reject_namesakes(result: CorpusAnnotations) -> None:
    """Reject rows that name a recording under folders of their own, if other rows do otherwise.

    A name may have folders above those of the path that was found for it. `site 1/a.wav` and
    `site 2/a.wav` may both have been found as `a.wav`, and be two recordings. Only a name whose
    folders end in that of the recordings is certain.
    """
    # By path of a recording, and by each name that rows give it: folders above those of the path.
    folders_above = defaultdict[str, dict[str, str]](dict)
    for row in result.rows:
        path = row["path"]
        name = row["path_written"] or ""
        *folders, _ = _normalise(name.strip().replace("\\", "/")).split("/")
        count = max(0, len(folders) - path.count("/"))
        folders_above[path][name] = "/".join(folders[:count])
    root_name = result.library.root.absolute().name.casefold()
    kept = []
    guesses: dict[str, str] = {}  # by path: the first name that is not certain
    for row in result.rows:
        path = row["path"]
        name = row["path_written"] or ""
        above = folders_above[path][name]
        _, _, innermost = above.rpartition("/")
        if not above or innermost == root_name:
            kept.append(row)
            continue
        guesses.setdefault(path, name)
        other_names = [
            other
            for other, other_above in folders_above[path].items()
            if other and other_above != above
        ]
        if other_names:
            reason = (
                f"{name} may be another recording than {path}, which other rows call "
                f"{min(other_names)}"
            )
            result.rejects.append(reject_row(row, reason))
        else:
            kept.append(row)
    result.rows = kept
    if guesses:
        first = next(iter(guesses.values()))
        count = count_text(len(guesses), "recording")
        result.notes[f"{count} found by file name only, the first from {first}"] += 1


def _list_output(manifest: Path) -> set[Path]:
    """Return a manifest and the unchanged files that it lists; empty if it cannot be read."""
    try:
        checksums = json.loads(manifest.read_bytes())["files"].items()
    except DAMAGED_MANIFEST:
        return set()
    output = {manifest}
    for name, checksum in checksums:
        file = manifest.parent / name
        # It may be deleted, or the name be none that a file can have.
        with suppress(OSError, ValueError):
            if sha256_file(file) == checksum:
                output.add(file)
    return output


def find_input_files(
    folder: Path,
    *,
    audio: bool = False,
    detections: bool = True,
    exclude: Iterable[Path] = (),
    follow_links: bool = False,
) -> Iterator[Path]:
    """Yield the files of a folder that a user may have put there, without output of callshot.

    Audio files are yielded only with `audio`, and what a scan found only with `detections`.
    `exclude` lists files and folders to ignore. A file is output if a manifest of callshot lists it
    with its checksum, in its folder or one between that and `folder`, or if it is in the folder
    that `callshot label` keeps.
    """
    root = folder.absolute()
    manifests = MANIFESTS if detections else (*MANIFESTS, SCAN_FACTS)
    ignored = {path.absolute() for path in exclude}
    visited = {*root.parents}  # manifests above the folder do not count
    for path in find_files(folder, follow_links=follow_links):
        absolute = path.absolute()
        parents = [*absolute.parents]
        # A manifest may list files of folders below its own: from the root downwards.
        for parent in reversed(parents):
            if parent in visited:
                continue
            visited.add(parent)
            for name in manifests:
                ignored |= _list_output(parent / name)
            if (parent / DECISIONS).is_file():
                ignored.add(parent / FOUND)
        is_ignored = not ignored.isdisjoint([absolute, *parents])
        is_wanted = audio or path.suffix.lower() not in SUFFIXES
        if is_wanted and not is_ignored and not path.is_dir():
            yield path
