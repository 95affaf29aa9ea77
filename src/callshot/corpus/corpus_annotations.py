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
        library = self.library
        found = set()
        by_name = defaultdict[str | None, list[Row]](list)
        for row in file.rows:
            by_name[row["path"]].append(row)
        for name, rows in (by_name or {None: []}).items():
            try:
                path = (
                    library.pair(relative_path) if name is None else library.find(name)
                )
            except InputError as error:
                self.rejects += [reject_row(row, error) for row in rows]
                continue
            place = {"path": path, "path_written": name}
            self.rows += [row | place for row in rows]
            found.add(path)
        self.annotated |= found
        return found


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
    read = CorpusAnnotations(library)
    if path.is_dir():
        follow_links = annotation_options.follow_links
        excluded = annotation_options.exclude
        files = [*find_input_files(path, exclude=excluded, follow_links=follow_links)]
        if annotations is None and library.is_single:
            neighbours = find_recordings(library.root, follow_links=follow_links)
            beside = [file for file in files if file.parent == library.root]
            files = []
            for file in beside:
                with suppress(InputError):  # of no recording, or of several
                    if neighbours.pair(PurePosixPath(file.name)) == library.paths[0]:
                        files.append(file)
        _read_folder(read, path, files, format, annotation_options, progress)
    else:
        only_file = read_annotations(path, format, annotation_options)
        read.add(only_file, PurePosixPath(path.name))
        progress(1.0, "reading annotations")
    _reject_namesakes(read)
    is_empty_corpus = read.recognised and not read.skipped_files
    if read.rows or read.rejects or is_empty_corpus:
        return read
    has_folders = any("/" in name for name in library.paths)
    if annotations is None and format == "auto" and has_folders:
        origin = "no annotation files, and recordings in folders"
        by_folder = _label_by_folder(library, origin)
        by_folder.skipped_files += read.skipped_files
        return by_folder
    for first in read.skipped_files:
        more = len(read.skipped_files) - 1
        rest = f" (and {count_text(more, 'more file')})" if more else ""
        raise InputError(f"{first.file}: {first.reason}{rest}")
    raise InputError(f"{path}: no annotations found; give them with --annotations")


def _label_by_folder(library: Library, origin: str) -> CorpusAnnotations:
    """Label each whole recording with the name of its folder."""
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
    read: CorpusAnnotations,
    folder: Path,
    files: list[Path],
    format: str,
    annotation_options: AnnotationOptions,
    progress: Progress,
) -> None:
    """Read the files that hold annotations; note why not if a suffix suggests that one does."""
    formats = defaultdict[str, dict[str, Path]](dict)  # of each recording
    likely = set()
    for path in files:
        if path.name.lower().endswith(ANNOTATION_SUFFIXES):
            likely.add(path)
    is_one_folder = len({path.parent for path in likely}) == 1
    for path in files:
        progress(1 / len(files), "reading annotations")
        file = None
        try:
            reason = skip_reason(
                path, folder, follow_links=annotation_options.follow_links
            )
            if reason is None:
                recognised = recognise(path, annotation_options)
                name = recognised[0].name if recognised else ""
                # Some formats cannot be recognised by their content.
                is_asked_for = format != "auto" and path in likely
                is_other = name not in ("", "csv", format)
                if is_other and format != "auto":
                    reason = f"its format is {name}, not {format}"
                elif is_asked_for or (name and format in ("auto", name)):
                    file = read_annotations(path, format, annotation_options)
                else:
                    reason = UNRECOGNISED
        except InputError as error:
            reason = str(error).removeprefix(f"{path}: ")
        if file is not None:
            place = path.name if is_one_folder else path.relative_to(folder).as_posix()
            for recording in read.add(file, PurePosixPath(place)):
                formats[recording].setdefault(file.format, path)
        elif path in likely:
            read.skipped_files.append(Reject(str(path), None, str(reason)))
    for recording, by_format in formats.items():
        if len(by_format) > 1:  # its calls would count twice
            (first, one), (second, other), *_ = by_format.items()
            raise InputError(
                f"{recording} is annotated in two formats, "
                f"{first} ({one}) and {second} ({other}); "
                "choose one with --format, or give one folder with --annotations"
            )


def _reject_namesakes(read: CorpusAnnotations) -> None:
    """Reject annotations that fit a recording only without their folders, if others fit better.

    `site1/x.wav` and `site2/x.wav` are two recordings, even if the library has only one of them.
    """
    # What rows call a recording, with the folders that its path does not have.
    names = defaultdict[str, dict[str, str]](dict)
    for row in read.rows:
        path = row["path"]
        name = row["path_written"] or ""
        names[path][name] = unmatched_folders(name, path)
    root = read.library.root.absolute().name.casefold()
    rows = []
    guesses: dict[str, str] = {}
    for row in read.rows:
        path = row["path"]
        name = row["path_written"] or ""
        folders = names[path][name]
        if not folders or folders.rpartition("/")[2] == root:
            rows.append(row)
            continue
        guesses.setdefault(path, name)
        others = [
            other for other in names[path] if other and names[path][other] != folders
        ]
        if others:
            reason = (
                f"{name} may be another recording than {path}, which other rows call "
                f"{min(others)}"
            )
            read.rejects.append(reject_row(row, reason))
        else:
            rows.append(row)
    read.rows = rows
    for first in [*guesses.values()][:1]:
        count = count_text(len(guesses), "recording")
        read.notes[f"{count} found by file name only, the first from {first}"] += 1


def find_input_files(
    folder: Path,
    *,
    audio: bool = False,
    exclude: Iterable[Path] = (),
    follow_links: bool = False,
) -> Iterator[Path]:
    """Yield the files that may hold annotations, or (`audio`) sound, but no output of callshot.

    `exclude` lists files and folders to ignore. Outputs are known by their names and checksums in
    a manifest.
    """
    ignored = {path.absolute() for path in exclude}
    visited = set()
    for path in find_files(folder, follow_links=follow_links):
        parent = path.parent.absolute()
        for manifest in [parent / name for name in MANIFESTS if parent not in visited]:
            with suppress(*DAMAGED_MANIFEST):
                content = json.loads(manifest.read_bytes())
                ignored.add(manifest)
                for name, checksum in content["files"].items():
                    output = parent / name
                    if sha256_file(output) == checksum:
                        ignored.add(output)
        visited.add(parent)
        absolute = path.absolute()
        is_ignored = not ignored.isdisjoint([absolute, *absolute.parents])
        is_wanted = audio or path.suffix.lower() not in SUFFIXES
        if is_wanted and not is_ignored and not path.is_dir():
            yield path
