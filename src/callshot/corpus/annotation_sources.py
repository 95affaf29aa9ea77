"""A library of recordings and whatever annotates it → annotations, each with the recording that it is on.

Annotations come from one file, from every file under a folder that is recognised, or from the names of the folders that
the recordings are in. A row whose recording cannot be told is a reject; a file that cannot be read is refused, and the
rest goes on.
"""

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from callshot.corpus.annotations import Hints, Reading, find_format, read_annotations, recognise
from callshot.corpus.audio import SUFFIXES
from callshot.corpus.recordings import Library, find_files, refuse_file
from callshot.errors import InputError
from callshot.records import Annotation, Progress, Reject, no_progress

FOLDERS = "folders"
TOLD_IN = ("segments.json", "provenance.json")
MAY_ANNOTATE = frozenset(
    (".txt", ".csv", ".tsv", ".textgrid", ".selections", ".xml", ".mat", ".phn", ".lab")
)


@dataclass
class Sources:
    """What was found: `placed` annotations with the path of their recording, rejected rows and refused files.

    `annotated` also has the recordings whose annotation file says that they hold no calls.
    """

    placed: list[tuple[str, Annotation]] = field(default_factory=list)
    annotated: set[str] = field(default_factory=set)
    rejects: list[Reject] = field(default_factory=list)
    refused: list[Reject] = field(default_factory=list)
    recognised: Counter[tuple[str, str]] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)


def read_sources(
    library: Library,
    where: Path | None,
    format: str = "auto",
    hints: Hints | None = None,
    progress: Progress = no_progress,
) -> Sources:
    """Read the annotations of a library from `where`, or from its own folder; without any, by the folders' names."""
    hints = hints or Hints()
    if format == FOLDERS:
        return _by_folders(library, "asked for")
    if format != "auto":
        find_format(format)  # a name that is none is told before any work
    place = where if where is not None else library.root
    try:
        there = place.exists()
    except OSError as error:
        raise InputError(f"{place}: cannot be looked into ({error.strerror})") from None
    if not there:
        raise InputError(f"{place}: no such file or folder; wanted the annotations")
    if place.is_dir():
        alone = where is None and library.alone
        files = list(
            _beside(library, hints.but) if alone else find_candidates(place, but=hints.but)
        )
        sources = _from_folder(library, place, files, format, hints, progress)
    else:
        sources = _from_file(library, place, format, hints)
        progress(1.0, "reading annotations")
    _refuse_namesakes(library, sources)
    if sources.placed or sources.rejects or (sources.recognised and not sources.refused):
        return sources
    if where is None and format == "auto" and any("/" in path for path in library.paths):
        by_folders = _by_folders(
            library, "no annotation file is there, and the recordings are in folders"
        )
        by_folders.refused += sources.refused
        return by_folders
    if sources.refused:
        first, others = sources.refused[0], len(sources.refused) - 1
        raise InputError(
            f"{first.file}: {first.reason}{f' (and {others} more files)' if others else ''}"
        )
    raise InputError(f"{place}: no annotations were found; name them with --annotations")


def _refuse_namesakes(library: Library, sources: Sources) -> None:
    """Reject annotations whose recording was found by dropping folders, where another's was found by dropping others.

    `site1/x.wav` and `site2/x.wav` are two recordings, of which one is not there.
    """
    root = library.root.absolute().name.casefold()
    dropped: dict[str, dict[str, str]] = defaultdict(dict)
    for path, annotation in sources.placed:
        if annotation.path is not None:
            prefix = library.dropped(annotation.path, path)
            dropped[path].setdefault(prefix, annotation.path)
    strange = {
        path: prefixes
        for path, prefixes in dropped.items()
        if any(p.rpartition("/")[2] != root for p in prefixes if p)
    }
    if strange:
        first = next(name for prefixes in strange.values() for p, name in prefixes.items() if p)
        sources.notes[
            f"{len(strange)} recordings were found by the end of their names alone, the first by {first}"
        ] += 1
    torn = {path for path, prefixes in strange.items() if len(prefixes) > 1}
    kept = []
    for path, annotation in sources.placed:
        prefix = "" if annotation.path is None else library.dropped(annotation.path, path)
        if path in torn and prefix and prefix.rpartition("/")[2] != root:
            others = " and ".join(
                sorted(name for p, name in dropped[path].items() if p != prefix)[:2]
            )
            reason = f"{annotation.path} may be another recording than {path}, which is named {others} elsewhere"
            sources.rejects.append(Reject(annotation.file, annotation.row, reason))
        else:
            kept.append((path, annotation))
    sources.placed[:] = kept


def _by_folders(library: Library, why: str) -> Sources:
    """Take the name of the folder that a recording is in for the label of all of it."""
    sources = Sources()
    sources.recognised[FOLDERS, why] = len({PurePosixPath(path).parent for path in library.paths})
    for path in library.paths:
        label, file = PurePosixPath(path).parent.name, str(library.root / path)
        if label:
            sources.placed.append((path, Annotation(path, 0.0, None, label, file, None)))
            sources.annotated.add(path)
        else:
            sources.rejects.append(Reject(file, None, "in no folder whose name could be its label"))
    return sources


def _from_file(library: Library, path: Path, format: str, hints: Hints) -> Sources:
    sources = Sources()
    _place(library, read_annotations(path, format, hints), PurePosixPath(path.name), sources)
    return sources


def _from_folder(
    library: Library,
    folder: Path,
    files: Sequence[Path],
    format: str,
    hints: Hints,
    progress: Progress,
) -> Sources:
    sources, forms = Sources(), defaultdict[str, dict[str, str]](dict)
    one_folder = len({path.parent for path in files if path.suffix.lower() in MAY_ANNOTATE}) == 1
    for path in files:
        reading = _try(path, folder, format, hints, sources)
        progress(1 / len(files), "reading annotations")
        if reading is not None:
            file = PurePosixPath(path.name if one_folder else path.relative_to(folder).as_posix())
            for recording in _place(library, reading, file, sources):
                forms[recording].setdefault(reading.format, str(path))
    _refuse_two_forms(forms)
    return sources


def find_candidates(
    folder: Path, *, audio: bool = False, but: Iterable[Path] = ()
) -> Iterator[Path]:
    """Go through the files that may hold annotations, or (`audio`) sound: nothing that callshot wrote there.

    `but` are files and folders to pass over.
    """
    own, seen, places = set[Path](), set[Path](), [place.absolute() for place in but]
    for path in find_files(folder):
        if path.parent not in seen:
            seen.add(path.parent)
            own |= _written_by_us(path.parent)
        passed = path in own or any(path.absolute().is_relative_to(place) for place in places)
        if not passed and not path.is_dir() and (audio or path.suffix.lower() not in SUFFIXES):
            yield path


def _beside(library: Library, but: Iterable[Path]) -> Iterator[Path]:
    """Go through the files that are about a recording which was named alone: those of its name, in its own folder."""
    recordings = [file.name for file in library.root.iterdir() if file.suffix.lower() in SUFFIXES]
    whole = Library(library.root, tuple(recordings))
    for path in find_candidates(library.root, but=but):
        if (
            path.parent == library.root
            and _look_up(whole, None, PurePosixPath(path.name)) == library.paths[0]
        ):
            yield path


def _written_by_us(folder: Path) -> set[Path]:
    """Return what a run of ours wrote to a folder and those in it, by name and content: results are no annotations."""
    found: set[Path] = set()
    for told_in in TOLD_IN:
        with suppress(OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            if (folder / told_in).is_file():
                files = json.loads((folder / told_in).read_text(encoding="utf-8"))["files"]
                own = {
                    folder / name
                    for name, digest in files.items()
                    if _digest(folder / name) == digest
                }
                found |= {folder / told_in, *own}
    return found


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _try(path: Path, folder: Path, format: str, hints: Hints, into: Sources) -> Reading | None:
    """Read a file if it holds annotations; else say why not, unless its name does not look as if it did."""
    may = path.suffix.lower() in MAY_ANNOTATE
    reason = refuse_file(path, folder)
    try:
        known = recognise(path, hints) if reason is None else None
        if known is not None and format in ("auto", known[0].name):
            return read_annotations(path, format, hints)
        if known is not None and known[0].name != "csv":
            reason = f"{known[0].name}, and {format} was asked for"
        elif format != "auto" and may and reason is None:
            return read_annotations(
                path, format, hints
            )  # some formats are not to be recognised by their looks
    except InputError as error:
        reason = str(error).removeprefix(f"{path}: ")
    if may:
        told = (
            reason
            or "not recognised as annotations; name its format with --format, or its columns with --columns"
        )
        into.refused.append(Reject(str(path), None, told))
    return None


def _place(library: Library, reading: Reading, file: PurePosixPath, into: Sources) -> set[str]:
    """Find the recording of every annotation of a file; return the recordings that it is about."""
    into.rejects += reading.rejects
    into.recognised[reading.format, reading.why] += 1
    into.notes.update(reading.notes)
    paths: dict[str | None, str | InputError] = {}
    for annotation in reading.annotations:
        name = annotation.path
        if name not in paths:
            paths[name] = _look_up(library, name, file)
        path = paths[name]
        if isinstance(path, str):
            into.placed.append((path, annotation))
        else:
            into.rejects.append(Reject(annotation.file, annotation.row, str(path)))
    if not reading.annotations:
        paths[None] = _look_up(library, None, file)
    found = {path for path in paths.values() if isinstance(path, str)}
    into.annotated |= found
    return found


def _look_up(library: Library, name: str | None, file: PurePosixPath) -> str | InputError:
    try:
        return library.pair(file) if name is None else library.find(name)
    except InputError as error:
        return error


def _refuse_two_forms(forms: dict[str, dict[str, str]]) -> None:
    """Refuse a folder in which a recording is annotated in two formats: the same calls would be there twice."""
    for recording, files in forms.items():
        if len(files) > 1:
            told = " and ".join(f"{format} ({file})" for format, file in list(files.items())[:2])
            raise InputError(
                f"{recording} is annotated in two forms, {told}; choose one with --format, or name one folder "
                "with --annotations"
            )
