"""Annotations of a library of recordings, each with the recording that it belongs to.

`read_corpus_annotations` reads them from one file, from every recognised file under a folder, or
from the names of the folders of the recordings. A row that fits no recording becomes a reject; a
file that cannot be read is skipped, with a reason.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from callshot.corpus.annotations import (
    ANNOTATION_SUFFIXES,
    AnnotationFile,
    AnnotationOptions,
    find_format,
    read_annotations,
    recognise,
)
from callshot.corpus.annotations.rows import reject_row
from callshot.corpus.audio import SUFFIXES
from callshot.corpus.recordings import (
    Library,
    check_exists,
    find_files,
    find_recordings,
    skip_reason,
    unmatched_folders,
)
from callshot.errors import InputError, count_text
from callshot.files import sha256_file
from callshot.records import Progress, Reject
from callshot.spans import Row

# What rows call a recording, with the folders that its path does not have.
Names = defaultdict[str, dict[str, str]]
Formats = defaultdict[str, dict[str, Path]]  # of each recording, with a file of each

FOLDERS = "folders"
MANIFESTS = ("segments.json", "provenance.json")  # files that callshot wrote
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
    """Annotations on recordings of a library, rejected rows and skipped files.

    The `path` of a row is that of its recording; `path_written` is what the file calls it.
    `annotated` includes recordings whose annotation file has no calls. `recognised` counts files by
    format and by what they were recognised from.
    """

    library: Library
    rows: list[Row] = field(default_factory=list)
    annotated: set[str] = field(default_factory=set)
    rejects: list[Reject] = field(default_factory=list)
    skipped_files: list[Reject] = field(default_factory=list)
    recognised: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)

    def add(self, file: AnnotationFile, relative_path: PurePosixPath) -> set[str]:
        """Add the rows of a file; return the recordings that it annotates."""
        self.recognised[file.format, file.reason] += 1
        self.rejects += file.rejects
        self.notes.update(file.notes)
        names = {row["path"] for row in file.rows}
        recordings = {
            name: self._find_recording(name, relative_path) for name in names or {None}
        }
        for row in file.rows:
            name = row["path"]
            recording = recordings[name]
            if isinstance(recording, InputError):
                self.rejects.append(reject_row(row, recording))
            else:
                self.rows.append(row | {"path": recording, "path_written": name})
        paths = {path for path in recordings.values() if isinstance(path, str)}
        self.annotated |= paths
        return paths

    def _find_recording(
        self, name: str | None, relative_path: PurePosixPath
    ) -> str | InputError:
        try:
            if name is None:
                return self.library.pair(relative_path)
            return self.library.find(name)
        except InputError as error:
            return error


def read_corpus_annotations(
    library: Library,
    annotations: Path | None,
    format: str,
    annotation_options: AnnotationOptions,
    progress: Progress,
) -> CorpusAnnotations:
    """Read the annotations of a library from a file or folder.

    Without `annotations` they are looked for beside the recordings; if there are none, recordings
    are labelled by the names of their folders.
    """
    if format == FOLDERS:
        return _label_by_folder(library, "asked for")
    if format != "auto":
        find_format(format)  # an unknown name is an error before any work
    path = library.root if annotations is None else annotations
    check_exists(path, "a file or folder of annotations")
    corpus_annotations = CorpusAnnotations(library)
    if path.is_dir():
        files = find_input_files(
            path,
            exclude=annotation_options.exclude,
            follow_links=annotation_options.follow_links,
        )
        if annotations is None and library.is_single:
            files = _select_files_of_recording(files, library, annotation_options)
        _read_folder(
            corpus_annotations, path, list(files), format, annotation_options, progress
        )
    else:
        annotation_file = read_annotations(path, format, annotation_options)
        corpus_annotations.add(annotation_file, PurePosixPath(path.name))
        progress(1.0, "reading annotations")
    _reject_namesakes(corpus_annotations)
    is_empty_corpus = (
        corpus_annotations.recognised and not corpus_annotations.skipped_files
    )
    if corpus_annotations.rows or corpus_annotations.rejects or is_empty_corpus:
        return corpus_annotations
    has_folders = any("/" in name for name in library.paths)
    if annotations is not None or format != "auto" or not has_folders:
        raise _no_annotations(path, corpus_annotations.skipped_files)
    origin = "no annotation files, and recordings in folders"
    by_folder = _label_by_folder(library, origin)
    by_folder.skipped_files += corpus_annotations.skipped_files
    return by_folder


def _no_annotations(path: Path, skipped_files: list[Reject]) -> InputError:
    if not skipped_files:
        return InputError(f"{path}: no annotations found; give them with --annotations")
    first, *further_files = skipped_files
    rest = ""
    if further_files:
        rest = f" (and {count_text(len(further_files), 'more file')})"
    return InputError(f"{first.file}: {first.reason}{rest}")


def _label_by_folder(library: Library, origin: str) -> CorpusAnnotations:
    """Label each whole recording with the name of its folder."""
    corpus_annotations = CorpusAnnotations(library)
    folders = set()
    for path in library.paths:
        folder = PurePosixPath(path).parent
        folders.add(folder)
        file = str(library.root / path)
        if folder.name:
            row = {
                "path": path,
                "path_written": path,
                "recording": None,
                "start_s": 0.0,
                "end_s": None,
                "label": folder.name,
                "annotation_file": file,
                "annotation_row": None,
            }
            corpus_annotations.rows.append(row)
            corpus_annotations.annotated.add(path)
        else:
            reason = "not in a folder that could be its label"
            corpus_annotations.rejects.append(Reject(file, None, reason))
    corpus_annotations.recognised[FOLDERS, origin] = len(folders)
    return corpus_annotations


def _read_folder(
    corpus_annotations: CorpusAnnotations,
    folder: Path,
    files: list[Path],
    format: str,
    annotation_options: AnnotationOptions,
    progress: Progress,
) -> None:
    formats: Formats = defaultdict(dict)
    folders = {path.parent for path in files if _may_annotate(path)}
    for path in files:
        annotation_file = _read_file(
            path, folder, format, annotation_options, corpus_annotations
        )
        progress(1 / len(files), "reading annotations")
        if annotation_file is None:
            continue
        name = path.relative_to(folder).as_posix()
        if len(folders) == 1:
            name = path.name
        for recording in corpus_annotations.add(annotation_file, PurePosixPath(name)):
            formats[recording].setdefault(annotation_file.format, path)
    _check_one_format(formats)


def _may_annotate(path: Path) -> bool:
    return path.name.lower().endswith(ANNOTATION_SUFFIXES)


def _read_file(
    path: Path,
    folder: Path,
    format: str,
    annotation_options: AnnotationOptions,
    corpus_annotations: CorpusAnnotations,
) -> AnnotationFile | None:
    """Read a file if it holds annotations; note why not if its suffix suggests that it does."""
    try:
        reason = skip_reason(path, folder, follow_links=annotation_options.follow_links)
        reason = reason or _check_format(path, format, annotation_options)
        if reason is None:
            return read_annotations(path, format, annotation_options)
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ")
    if _may_annotate(path):
        corpus_annotations.skipped_files.append(Reject(str(path), None, reason))
    return None


def _check_format(
    path: Path, format: str, annotation_options: AnnotationOptions
) -> str | None:
    """Return why a file is not read in the format asked for, None if it is."""
    recognised = recognise(path, annotation_options)
    if recognised is not None:
        name = recognised[0].name
        if format in ("auto", name):
            return None
        if name != "csv":
            return f"its format is {name}, not {format}"
    # Some formats cannot be recognised by their content.
    if format != "auto" and _may_annotate(path):
        return None
    return UNRECOGNISED


def _check_one_format(formats: Formats) -> None:
    """Raise InputError if a recording is annotated in two formats: its calls would count twice."""
    for recording, files in formats.items():
        if len(files) > 1:
            (first, path), (second, other), *_ = files.items()
            raise InputError(
                f"{recording} is annotated in two formats, "
                f"{first} ({path}) and {second} ({other}); "
                "choose one with --format, or give one folder with --annotations"
            )


def _reject_namesakes(corpus_annotations: CorpusAnnotations) -> None:
    """Reject annotations that fit a recording only without their folders, if others fit better.

    `site1/x.wav` and `site2/x.wav` are two recordings, even if the library has only one of them.
    """
    names: Names = defaultdict(dict)
    for row in corpus_annotations.rows:
        name = row["path_written"]
        if name and name not in names[row["path"]]:
            names[row["path"]][name] = unmatched_folders(name, row["path"])
    root = corpus_annotations.library.root.absolute().name.casefold()
    guesses: dict[str, str] = {}
    certain = []
    for row in corpus_annotations.rows:
        path = row["path"]
        name = row["path_written"]
        ignored = names[path].get(name, "")
        if ignored and ignored.rpartition("/")[2] != root:
            guesses.setdefault(path, name)
            others = [
                other for other, folders in names[path].items() if folders != ignored
            ]
            if others:
                reason = f"may be another recording than {path}, which other rows call"
                reject = reject_row(row, f"{name} {reason} {min(others)}")
                corpus_annotations.rejects.append(reject)
                continue
        certain.append(row)
    corpus_annotations.rows = certain
    if guesses:
        first = next(iter(guesses.values()))
        count = count_text(len(guesses), "recording")
        note = f"{count} found by file name only, the first from {first}"
        corpus_annotations.notes[note] += 1


def find_input_files(
    folder: Path,
    *,
    audio: bool = False,
    exclude: Iterable[Path] = (),
    follow_links: bool = False,
) -> Iterator[Path]:
    """Yield the files that may hold annotations, or (`audio`) sound, but no output of callshot.

    `exclude` lists files and folders to ignore.
    """
    ignored = {path.absolute() for path in exclude}
    visited: set[Path] = set()
    for path in find_files(folder, follow_links=follow_links):
        if path.parent not in visited:
            visited.add(path.parent)
            ignored |= _find_own_outputs(path.parent.absolute())
        absolute = path.absolute()
        is_ignored = not ignored.isdisjoint([absolute, *absolute.parents])
        if is_ignored or path.is_dir():
            continue
        if audio or path.suffix.lower() not in SUFFIXES:
            yield path


def _select_files_of_recording(
    files: Iterable[Path], library: Library, annotation_options: AnnotationOptions
) -> Iterator[Path]:
    """Yield the files that belong to the one recording of a library by their names."""
    neighbours = find_recordings(
        library.root, follow_links=annotation_options.follow_links
    )
    for path in files:
        if path.parent == library.root:
            with suppress(InputError):
                recording = neighbours.pair(PurePosixPath(path.name))
                if recording == library.paths[0]:
                    yield path


def _find_own_outputs(folder: Path) -> set[Path]:
    """Return the files that callshot wrote to a folder and below, by name and checksum."""
    outputs: set[Path] = set()
    for name in MANIFESTS:
        manifest = folder / name
        with suppress(*DAMAGED_MANIFEST):
            if manifest.is_file():
                outputs |= {manifest, *_find_unchanged_files(manifest)}
    return outputs


def _find_unchanged_files(manifest: Path) -> Iterator[Path]:
    content = json.loads(manifest.read_text(encoding="utf-8"))
    for name, checksum in content["files"].items():
        path = manifest.parent / name
        if sha256_file(path) == checksum:
            yield path
