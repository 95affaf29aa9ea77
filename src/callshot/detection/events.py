"""Files of events, and the recordings that they are on → frames of the EVENTS schema.

Events are detections or annotations, in CSV and Parquet files of callshot, and in all annotation
formats. A row is an event or a reject.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl
from polars import selectors

from callshot.corpus.annotations import (
    AnnotationFile,
    AnnotationOptions,
    read_annotations,
    recognise,
)
from callshot.corpus.annotations.delimited import normalize_name
from callshot.corpus.annotations.rows import (
    MISSING,
    RowError,
    other_cells,
    parse_number,
    reject_row,
)
from callshot.corpus.recordings import (
    CorpusAnnotations,
    Library,
    find_input_files,
    find_recordings,
    probe_recordings,
    read_corpus_annotations,
    refuse_labels,
)
from callshot.corpus.segments import make_calls, to_seconds
from callshot.errors import InputError, quote
from callshot.files import SCAN_FACTS
from callshot.records import Recording, Reject
from callshot.records.frames import EVENTS, Frame
from callshot.records.table_files import read_parquet
from callshot.results import check_result
from callshot.spans import READING_DEFAULTS, Spans
from callshot.vectors import check_columns

Row = dict[str, Any]  # an event, by the names of its columns
Rejects = list[Reject]

REQUIRED = ("recording", "start_s", "end_s", "label")
# What files call the columns of numbers; case and punctuation do not matter.
NUMBERS = {
    "score": ("score", "confidence", "probability"),
    "probability": ("probability",),
    "probability_low": ("probabilitylow",),
    "probability_high": ("probabilityhigh",),
    "distance": ("distance", "top1dist"),
    "runner_up_score": ("runnerupscore",),
    "low_freq_hz": ("lowfreqhz",),
    "high_freq_hz": ("highfreqhz",),
}
# Columns that are parsed, or say how calls are read; all others are kept as they are.
PARSED = {*chain(*NUMBERS.values()), "runnerup", "clock", "confirmed"}
READING = {*READING_DEFAULTS, "is_whole"}
VERDICTS = {
    "true": True,
    "yes": True,
    "y": True,
    "1": True,
    "false": False,
    "no": False,
    "n": False,
    "0": False,
}
NO_OPTIONS = AnnotationOptions()
PARQUET = ".parquet"
EVENTS_FILE = "events.parquet"  # of callshot scan
EVENTS_CSV = "events.csv"
RESULT_LISTS = (SCAN_FACTS, "export.json")  # of callshot scan, of callshot convert
PLACE = {"file": pl.String, "row": pl.Int64}  # of a row in the files that were read


@dataclass(frozen=True)
class RecordingFolder:
    """The recordings of a folder, some of which may be in other folders, `roots`."""

    library: Library
    recordings: Mapping[str, Recording]
    errors: Mapping[str, InputError] = field(default_factory=dict)
    roots: Mapping[str, Path] = field(default_factory=dict)

    def find_file(self, name: str) -> Path:
        """Return the absolute path of a recording."""
        root = self.roots.get(name, self.library.root)
        return root.absolute() / name

    @property
    def durations_s(self) -> dict[str, float]:
        """The length of every recording that can be read."""
        return {
            path: recording.duration_s for path, recording in self.recordings.items()
        }


@dataclass(frozen=True)
class EventTable:
    """The events of a file or folder, rejected rows, and notes for the user."""

    events: Frame
    rejects: Rejects = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def open_recordings(folder: Path) -> RecordingFolder:
    """List the recordings of a folder and read their headers."""
    library = find_recordings(folder)
    if not library.paths:
        raise InputError(f"{folder}: no recordings found; give the folder they are in")
    recordings, errors = probe_recordings(library)
    return RecordingFolder(library, recordings, errors)


def find_event_table(path: Path) -> Path:
    """Return the table of events in the folder of a scan; any other path as it is."""
    table = path / EVENTS_FILE
    is_scan = (path / SCAN_FACTS).is_file() and table.is_file()
    return table if is_scan else path


def _convert_times(
    annotations: Iterable[Row], recordings: RecordingFolder
) -> tuple[list[Row], Rejects]:
    """Return annotations with times in seconds; rows of unreadable recordings are rejects."""
    rows = []
    rejects = []
    for row in annotations:
        name = row["path"]
        if name in recordings.errors:
            rejects.append(reject_row(row, recordings.errors[name]))
            continue
        start_s, end_s = to_seconds(row, recordings.recordings[name])
        rows.append(row | {"start_s": start_s, "end_s": end_s})
    return rows, rejects


def read_events(
    path: Path,
    recordings: RecordingFolder | None = None,
    annotation_options: AnnotationOptions = NO_OPTIONS,
    *,
    check: bool = True,
) -> EventTable:
    """Read detections or annotations, of one recording or of many, or those of a scan's folder.

    Without `recordings`, every file must name the recordings of its rows. Results of callshot must
    match their checksums, except a text file that is given by its own path: people edit these.

    With `check`, rows become events as `callshot segment` takes annotations for calls; others are
    rejected. Without it, all that have a start, an end and a label are kept, also beyond the ends
    of their recording, and have the columns of PLACE.
    """
    path = find_event_table(path)
    is_parquet = path.suffix.lower() == PARQUET
    if is_parquet or path.is_dir():
        check_result(path, RESULT_LISTS)
    # keep_early: rows that start before their recording are no rejects.
    options = replace(annotation_options, keep_early=not check)
    if recordings is None:
        rows, rejects, notes = _read_named(path, options)
    else:
        rows, rejects, notes = _read_matched(path, recordings, options, check=check)
    events = []
    for row in rows:
        event = {
            "recording": row["path"],
            "start_s": row["start_s"],
            "end_s": row["end_s"],
            "label": row["label"].strip(),
            "file": row["annotation_file"],
            "row": row["annotation_row"],
        }
        try:
            events.append(event | _parse_cells(row))
        except RowError as error:
            rejects.append(Reject(event["file"], event["row"], str(error)))
    if check:
        # strict: without rows, a frame has no columns of PLACE.
        frame = events_frame(events).drop(PLACE, strict=False)
        return EventTable(frame, rejects, notes)
    return EventTable(pl.DataFrame(events, {**EVENTS, **PLACE}), rejects, notes)


def _read_matched(
    path: Path,
    recordings: RecordingFolder,
    annotation_options: AnnotationOptions,
    *,
    check: bool,
) -> tuple[list[Row], Rejects, list[str]]:
    """Read files and find the recording of each row; return rows, rejects and notes."""
    library = recordings.library
    if path.suffix.lower() == PARQUET:
        read = CorpusAnnotations(library)
        parquet_rows = _read_parquet_rows(path, annotation_options)
        read.add(parquet_rows, PurePosixPath(path.name))
    else:
        read = read_corpus_annotations(library, path, "auto", annotation_options)
    if check:
        calls, call_rejects = make_calls(
            read.rows,
            dict(recordings.recordings),
            dict(recordings.errors),
            spell=str.strip,  # labels are kept, but for spaces
            root=library.root,
        )
        rows = list(calls.rows())
    else:
        rows, call_rejects = _convert_times(read.rows, recordings)
    rejects = [*read.rejects, *read.skipped_files, *call_rejects]
    return rows, rejects, sorted(read.notes)


def _read_named(
    path: Path, annotation_options: AnnotationOptions
) -> tuple[list[Row], Rejects, list[str]]:
    """Read files that name the recordings of their rows; return rows, rejects and notes."""
    if path.suffix.lower() == PARQUET:
        files = [_read_parquet_rows(path, annotation_options)]
    else:
        paths = [path]
        if path.is_dir():
            found = find_input_files(path)
            paths = [one for one in found if recognise(one, annotation_options)]
        if not paths:
            refuse_labels(path, path)
            raise InputError(f"{path}: no file of events found")
        files = [read_annotations(one, options=annotation_options) for one in paths]
    rejects = []
    notes = []
    for file in files:
        rejects += file.rejects
        notes += file.notes
        for row in file.rows:
            is_complete = row["end_s"] is not None and not row.get("in_frames")
            if row["path"] is None or not is_complete:
                raise InputError(
                    f"{file.path}: row {row['annotation_row']}: expected the recording, start "
                    "and end in seconds; give the folder of the recordings (--recordings)"
                )
    rows = [row for file in files for row in file.rows]
    return rows, rejects, list(dict.fromkeys(notes))


def _parse_cells(annotation: Row) -> Row:
    """Parse the columns of EVENTS (score, distance, …) of an annotation; keep its others."""
    cells = {normalize_name(name): cell for name, cell in annotation.items()}
    event = {
        name: cell
        for name, cell in other_cells(annotation).items()
        if normalize_name(name) not in PARSED and name not in READING
    }
    for name, synonyms in NUMBERS.items():
        present = [cells[synonym] for synonym in synonyms if synonym in cells]
        cell = present[0] if present else None
        text = "" if cell is None else str(cell)
        event[name] = None
        is_missing = text.strip().lower() in MISSING
        if not is_missing:
            event[name] = parse_number(text, name)
    event["runner_up"] = cells.get("runnerup")
    event["clock"] = cells.get("clock")
    verdict = cells.get("confirmed")
    text = "" if verdict is None else str(verdict).strip().lower()
    if text not in VERDICTS and text not in MISSING:
        raise RowError(f"confirmed: expected yes or no, got {quote(str(verdict))}")
    event["confirmed"] = VERDICTS.get(text)
    return event


def _read_parquet_rows(
    path: Path, annotation_options: AnnotationOptions
) -> AnnotationFile:
    """Read events from Parquet: recording, times, label, and all other columns but lists."""
    frame = read_parquet(path)
    check_columns(path, frame.columns, REQUIRED)
    annotation_file = AnnotationFile(
        path,
        "parquet",
        "its suffix is .parquet",
        # The other options are about columns of text.
        AnnotationOptions(keep_early=annotation_options.keep_early),
    )
    types: dict[Any, Any] = {
        name: EVENTS[name] for name in EVENTS if name in frame.columns
    }
    try:
        frame = frame.select(~selectors.nested()).cast(types)  # no lists, no structs
    except pl.exceptions.PolarsError as error:
        reason = str(error).partition("\n")[0]
        raise InputError(
            f"{path}: a column has the wrong type ({reason}); write it again"
        ) from None
    for number, row in enumerate(frame.iter_rows(named=True), start=1):
        recording, start_s, end_s, label = [row.pop(name) for name in REQUIRED]
        with annotation_file.rejecting(number):  # a RowError rejects the row
            if None in (recording, start_s, end_s):
                raise RowError(
                    "expected a recording, a start and an end, got an empty cell"
                )
            annotation_file.add(
                number, label or "", start_s, end_s, path=recording, extra=row
            )
    return annotation_file


def events_frame(rows: Iterable[Row]) -> Frame:
    """Return rows as events; see `complete_events`.

    >>> row = {"recording": "a.wav", "start_s": 1.0, "end_s": 2.0, "label": "roar"}
    >>> events_frame([row])["score"].to_list()
    [None]
    """
    return complete_events(Spans.from_rows(rows, REQUIRED).frame)


def complete_events(frame: Frame) -> Frame:
    """Sort events by recording and time; put the columns of EVENTS first, null where missing."""
    check_columns("memory", frame.columns, REQUIRED)
    lacking = dict.fromkeys(EVENTS.keys() - set(frame.columns))  # null columns
    others = [name for name in frame.columns if name not in EVENTS]
    complete = frame.with_columns(**lacking).select(*EVENTS, *others)
    typed = complete.cast(pl.Schema(EVENTS))
    return typed.sort(REQUIRED, maintain_order=True)


def rename_recordings(events: Frame, names: Iterable[str]) -> Frame:
    """Rename the recordings of events to the matching ones of `names`.

    One name may have more folders than the other, or no suffix.

    >>> row = {"recording": "/card/a.wav", "start_s": 1.0, "end_s": 2.0, "label": "roar"}
    >>> rename_recordings(events_frame([row]), ["a.wav"])["recording"].to_list()
    ['a.wav']
    """
    library = Library(Path(), tuple(sorted(names)))  # names are found without a folder
    renames = {}
    for name in events["recording"].unique():
        try:
            renames[name] = library.find(name)
        except InputError:  # none matches, or several
            renames[name] = name
    return events.with_columns(pl.col("recording").replace(renames))
