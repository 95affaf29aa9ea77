"""Annotations of a library of recordings, each placed on the recording that it belongs to.

`read_sources` reads them from one file, from every recognised file under a folder, or from the
names of the folders of the recordings. `place_calls` turns them into calls in seconds. A row that
fits no recording becomes a reject; a file that cannot be read is skipped, with a reason.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from callshot.corpus.annotations import (
    Hints,
    Reading,
    find_format,
    read_annotations,
    recognise,
)
from callshot.corpus.audio import SUFFIXES
from callshot.corpus.recordings import (
    Errors,
    Library,
    Recordings,
    check_exists,
    find_files,
    find_recordings,
    skip_reason,
    unmatched_folders,
)
from callshot.errors import InputError
from callshot.files import sha256_file
from callshot.records import Annotation, Call, Progress, Recording, Reject

Placed = tuple[str, Annotation]  # the path of a recording, and an annotation on it
Spelling = Callable[[str], str]

FOLDERS = "folders"
OVERSHOOT_S = (
    0.1  # a call may end this much after its recording: annotations are not exact
)
MANIFESTS = (
    "segments.json",
    "provenance.json",
)  # they list the files that callshot wrote
ANNOTATION_SUFFIXES = frozenset(
    (".txt", ".csv", ".tsv", ".textgrid", ".selections", ".xml", ".mat", ".phn", ".lab")
)
UNRECOGNISED = (
    "not recognised as annotations; "
    "give its format with --format, or its columns with --columns"
)


@dataclass
class Sources:
    """Annotations with the paths of their recordings, rejected rows and skipped files.

    `annotated` includes recordings whose annotation file has no calls. `recognised` counts files by
    format and by what they were recognised from.
    """

    placed: list[Placed] = field(default_factory=list)
    annotated: set[str] = field(default_factory=set)
    rejects: list[Reject] = field(default_factory=list)
    skipped_files: list[Reject] = field(default_factory=list)
    recognised: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)


def read_sources(
    library: Library,
    annotations: Path | None,
    format: str,
    hints: Hints,
    progress: Progress,
) -> Sources:
    """Read the annotations of a library from a file or folder.

    Without `annotations` they are looked for beside the recordings; if there are none, recordings
    are labelled by the names of their folders.
    """
    if format == FOLDERS:
        return _label_by_folder(library, "asked for")
    if format != "auto":
        find_format(format)  # an unknown name is an error before any work
    place = library.root if annotations is None else annotations
    check_exists(place, "a file or folder of annotations")
    if not place.is_dir():
        sources = Sources()
        reading = read_annotations(place, format, hints)
        _place(library, reading, PurePosixPath(place.name), sources)
        progress(1.0, "reading annotations")
    else:
        if annotations is None and library.is_single:
            files = _find_files_of_recording(library, hints.exclude)
        else:
            files = find_input_files(place, exclude=hints.exclude)
        sources = _read_folder(
            library,
            place,
            list(files),
            format,
            hints,
            progress,
        )
    _reject_namesakes(library, sources)
    if (
        sources.placed
        or sources.rejects
        or (sources.recognised and not sources.skipped_files)
    ):
        return sources
    has_folders = any("/" in path for path in library.paths)
    if annotations is None and format == "auto" and has_folders:
        by_folder = _label_by_folder(
            library, "no annotation files, and recordings in folders"
        )
        by_folder.skipped_files += sources.skipped_files
        return by_folder
    if not sources.skipped_files:
        raise InputError(f"{place}: no annotations found; give them with --annotations")
    first, *others = sources.skipped_files
    rest = f" (and {len(others)} more files)" if others else ""
    raise InputError(f"{first.file}: {first.reason}{rest}")


def _label_by_folder(library: Library, why: str) -> Sources:
    """Label each whole recording with the name of its folder."""
    sources = Sources()
    folders = {PurePosixPath(path).parent for path in library.paths}
    sources.recognised[FOLDERS, why] = len(folders)
    for path in library.paths:
        label = PurePosixPath(path).parent.name
        file = str(library.root / path)
        if label:
            annotation = Annotation(path, 0.0, None, label, file, None)
            sources.placed.append((path, annotation))
            sources.annotated.add(path)
        else:
            reason = "not in a folder that could be its label"
            sources.rejects.append(Reject(file, None, reason))
    return sources


def _read_folder(
    library: Library,
    folder: Path,
    files: Sequence[Path],
    format: str,
    hints: Hints,
    progress: Progress,
) -> Sources:
    sources = Sources()
    formats = defaultdict[str, dict[str, Path]](
        dict
    )  # of each recording, with their files
    folders = {
        path.parent for path in files if path.suffix.lower() in ANNOTATION_SUFFIXES
    }
    for path in files:
        reading = _read_file(path, folder, format, hints, sources)
        progress(1 / len(files), "reading annotations")
        if reading is None:
            continue
        name = path.name if len(folders) == 1 else path.relative_to(folder).as_posix()
        recordings = _place(library, reading, PurePosixPath(name), sources)
        for recording in recordings:
            formats[recording].setdefault(reading.format, path)
    _check_one_format(formats)
    return sources


def _read_file(
    path: Path, folder: Path, format: str, hints: Hints, sources: Sources
) -> Reading | None:
    """Read a file if it holds annotations; note why not if its suffix suggests that it does."""
    may_annotate = path.suffix.lower() in ANNOTATION_SUFFIXES
    reason = skip_reason(path, folder)
    try:
        if reason is None:
            reason = _check_format(path, format, hints, may_annotate)
        if reason is None:
            return read_annotations(path, format, hints)
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ")
    if may_annotate:
        sources.skipped_files.append(Reject(str(path), None, reason))
    return None


def _check_format(
    path: Path, format: str, hints: Hints, may_annotate: bool
) -> str | None:
    """Return why a file is not read in the format asked for, None if it is."""
    recognised = recognise(path, hints)
    name = None if recognised is None else recognised[0].name
    if format == name or (format == "auto" and name is not None):
        return None
    if name not in (None, "csv"):
        return f"its format is {name}, not {format}"
    # Some formats cannot be recognised by their content.
    return None if format != "auto" and may_annotate else UNRECOGNISED


def _place(
    library: Library, reading: Reading, file: PurePosixPath, sources: Sources
) -> set[str]:
    """Find the recording of each annotation of a file; return the recordings that it annotates."""
    sources.rejects += reading.rejects
    sources.recognised[reading.format, reading.reason] += 1
    sources.notes.update(reading.notes)
    names = {annotation.path for annotation in reading.annotations} or {None}
    paths = {name: _find_recording(library, name, file) for name in names}
    for annotation in reading.annotations:
        path = paths[annotation.path]
        if isinstance(path, InputError):
            sources.rejects.append(annotation.reject(path))
        else:
            sources.placed.append((path, annotation))
    recordings = {path for path in paths.values() if isinstance(path, str)}
    sources.annotated |= recordings
    return recordings


def _find_recording(
    library: Library, name: str | None, file: PurePosixPath
) -> str | InputError:
    try:
        return library.pair(file) if name is None else library.find(name)
    except InputError as error:
        return error


def _check_one_format(formats: dict[str, dict[str, Path]]) -> None:
    """Raise InputError if a recording is annotated in two formats: its calls would count twice."""
    for recording, files in formats.items():
        if len(files) > 1:
            names = " and ".join(
                [f"{format} ({path})" for format, path in files.items()][:2]
            )
            raise InputError(
                f"{recording} is annotated in two formats, {names}; "
                "choose one with --format, or give one folder with --annotations"
            )


def _reject_namesakes(library: Library, sources: Sources) -> None:
    """Reject annotations that fit a recording only without their folders, if others fit better.

    `site1/x.wav` and `site2/x.wav` are two recordings, even if the library has only one of them.
    """
    names = {
        (path, annotation.path)
        for path, annotation in sources.placed
        if annotation.path
    }
    folders = defaultdict[str, dict[str | None, str]](
        dict
    )  # path → name → folders left out
    for path, name in sorted(names):
        folders[path][name] = unmatched_folders(name, path)
    root = library.root.absolute().name.casefold()
    placed = []
    guesses: dict[str, str | None] = {}
    for path, annotation in sources.placed:
        ignored = folders[path].get(annotation.path, "")
        if not ignored or ignored.rpartition("/")[2] == root:
            placed.append((path, annotation))
            continue
        guesses.setdefault(path, annotation.path)
        others = [name for name, other in folders[path].items() if other != ignored]
        if others:
            reason = f"may be another recording than {path}, which other rows call {others[0]}"
            sources.rejects.append(annotation.reject(f"{annotation.path} {reason}"))
        else:
            placed.append((path, annotation))
    sources.placed = placed
    if guesses:
        first = next(iter(guesses.values()))
        note = f"{len(guesses)} recordings were found by file name only, the first from {first}"
        sources.notes[note] += 1


def find_input_files(
    folder: Path, *, audio: bool = False, exclude: Iterable[Path] = ()
) -> Iterator[Path]:
    """Yield the files that may hold annotations, or (`audio`) sound, but no output of callshot.

    `exclude` lists files and folders to ignore.
    """
    outputs: set[Path] = set()
    visited: set[Path] = set()
    excluded = [path.absolute() for path in exclude]
    for path in find_files(folder):
        if path.parent not in visited:
            visited.add(path.parent)
            outputs |= _find_own_outputs(path.parent)
        is_excluded = any(path.absolute().is_relative_to(other) for other in excluded)
        if is_excluded or path in outputs or path.is_dir():
            continue
        if audio or path.suffix.lower() not in SUFFIXES:
            yield path


def _find_files_of_recording(
    library: Library, exclude: Iterable[Path]
) -> Iterator[Path]:
    """Yield the files that belong to the one recording of a library by their names."""
    neighbours = find_recordings(library.root)
    for path in find_input_files(library.root, exclude=exclude):
        recording = _find_recording(
            neighbours,
            None,
            PurePosixPath(path.name),
        )
        if path.parent == library.root and recording == library.paths[0]:
            yield path


def _find_own_outputs(folder: Path) -> set[Path]:
    """Return the files that callshot wrote to a folder and below, by name and checksum."""
    outputs: set[Path] = set()
    for name in MANIFESTS:
        manifest = folder / name
        with suppress(
            OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError
        ):
            if not manifest.is_file():
                continue
            checksums = json.loads(manifest.read_text(encoding="utf-8"))[
                "files"
            ].items()
            unchanged = {
                folder / file
                for file, sha in checksums
                if sha256_file(folder / file) == sha
            }
            outputs |= {manifest, *unchanged}
    return outputs


def place_calls(
    placed: Sequence[Placed],
    recordings: Recordings,
    errors: Errors,
    spell: Spelling,
) -> tuple[list[Call], list[Reject]]:
    """Turn annotations into calls in seconds.

    Annotations beyond the end of a recording, on an unreadable one, and duplicates are rejects.
    """
    calls = []
    rejects = []
    first_rows: dict[tuple[object, ...], Annotation] = {}
    groups = _find_groups(placed)
    for path, annotation in placed:
        try:
            if path in errors:
                raise errors[path]
            group = groups.get(path, path)
            call = _place_call(annotation, recordings[path], group, spell)
            _check_unique(call, first_rows)
            calls.append(call)
        except InputError as error:
            rejects.append(annotation.reject(error))
    calls.sort(key=lambda call: (call.path, call.start_s, call.end_s, call.label))
    return calls, rejects


def _find_groups(placed: Iterable[Placed]) -> dict[str, str]:
    """Return the recording that each file belongs to, if one is given: the one most rows name."""
    counts = Counter[tuple[str, str]]()
    for path, annotation in placed:
        if annotation.recording is not None:
            counts[path, annotation.recording] += 1
    groups: dict[str, str] = {}
    for (path, name), _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])):
        groups.setdefault(path, name)
    return groups


def _place_call(
    annotation: Annotation, recording: Recording, group: str, spell: Spelling
) -> Call:
    path = recording.path
    unit = recording.rate_hz if annotation.in_frames else 1.0
    length_s = recording.duration_s
    start_s = annotation.start_s / unit
    end_s = length_s if annotation.end_s is None else annotation.end_s / unit
    is_beyond = start_s >= length_s or end_s > length_s + OVERSHOOT_S
    if recording.missing_s > 0 and (is_beyond or annotation.end_s is None):
        announced_s = length_s + recording.missing_s
        raise InputError(
            f"{path} is cut short: its header announces {announced_s:.6g} s, "
            f"but it has {length_s:.6g} s"
        )
    if is_beyond:
        raise InputError(
            f"{start_s:.6g} to {end_s:.6g} s is beyond the end of {path}, "
            f"which is {length_s:.6g} s long (if it is time-expanded, see --source-rate-hz)"
        )
    if annotation.recording not in (None, group):
        raise InputError(
            f"{path} is in recording {annotation.recording!r} here but in {group!r} elsewhere"
        )
    return Call(
        path,
        group,
        start_s,
        end_s,
        spell(annotation.label),
        annotation,
    )


def _check_unique(call: Call, first_rows: dict[tuple[object, ...], Annotation]) -> None:
    key = (call.path, round(call.start_s, 6), round(call.end_s, 6), call.label)
    first = first_rows.setdefault(key, call.annotation)
    if first is not call.annotation:
        row = "" if first.row is None else f", row {first.row}"
        raise InputError(f"the same span and label as {first.file}{row}")
