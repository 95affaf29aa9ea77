"""Embeddings of other tools in; a table out, with a reason for each row that is not in it.

The vector of a span is the one of the window with the same times; else the mean of the windows
whose centre lies in the span (its start included, its end not); else the vector of the window with
the largest overlap, the first of equals.
"""

import zipfile
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.chunks import Rows
from callshot.corpus.recordings import Library
from callshot.corpus.segments import overlapping_labels
from callshot.errors import InputError, OptionError, check_range, count_text
from callshot.records import IntArray, Reject
from callshot.records.table_files import describe_parquet, open_npz, read_parquet
from callshot.spans import Spans, name_spans
from callshot.tables.embedding_tables import explain_read_errors
from callshot.tables.fold_files import read_csv_records
from callshot.tables.tool_windows import (
    TEXT_SUFFIX,
    WindowReaders,
    find_hoplite,
    make_windows,
    read_analyzer,
    read_hoplite,
)
from callshot.vectors import (
    Vectors,
    check_columns,
    check_rows,
    contiguous_floats,
    filled_column,
    read_columns,
    text_column,
)

SAME_TIME_S = 1e-6
TIMES_S = (1e-3, 86400.0)  # of --window and --hop
NO_OVERLAP = "no window overlaps it"
NO_RECORDING = "no windows of its recording"
KINDS = ("auto", "arrays", "hoplite", "birdnet-analyzer")
SPAN_COLUMNS = (
    "path",
    "recording",
    "start_s",
    "end_s",
    "label",
    "segment",
    "labels",
    "fold",
)
LISTED_NAMES = 8
IMPOSSIBLE_TIMES = "it does not end after its start, or starts before the recording"

Vector = NDArray[np.floating]
Outcomes = list[Vector | str]
"""The vector of each row, or why it has none."""


@dataclass(frozen=True)
class ImportResult:
    """A table, what was left out of it, notes for the user, and the corpus that a file names."""

    table: Vectors
    rejects: list[Reject]
    notes: list[str]
    corpus: str | None = None


def import_embeddings(
    source: Path, segments: Path | None = None, *, kind: str = "auto", encoder: str
) -> ImportResult:
    """Read embeddings of another tool, and give each labelled segment its vector.

    `segments` is a file with the labelled spans; a database of hoplite may have its own, and arrays
    have a CSV of the same name. `encoder` is the name in results. Raises InputError for damaged
    files.
    """
    kind = find_kind(kind, source)
    notes: list[str] = []
    corpus = None
    if kind == "arrays":
        path = segments or source.with_suffix(".csv")
        vectors = _read_array(source)
        rows, corpus = _read_span_rows(path, ["recording", "label"])
        _check_row_count(source, len(vectors), path, rows)
        outcomes = list(vectors)
    else:
        path = segments or source
        if kind == "hoplite":
            readers, rows, notes = read_hoplite(source)
        elif segments is None:
            raise OptionError(
                f"segments: {source} has no labels; pass --segments FILE, a segments.parquet or a "
                "CSV"
            )
        else:
            readers = read_analyzer(source)
            rows = pl.DataFrame()
        if segments is not None:
            if rows.height > 0:
                count = count_text(rows.height, "annotation")
                notes.append(f"{count} of the database ignored: {segments} is used")
            rows, corpus = _read_span_rows(segments, ["label"])
        if rows.height == 0:
            raise InputError(
                f"{source}: the database has no annotations; pass the labelled spans with "
                "--segments FILE"
            )
        rows, outcomes = _pool_rows(source, path, rows, readers, notes)
    table, rejects = _build_table(source, encoder, path, rows, outcomes)
    return ImportResult(table, rejects, notes, corpus)


def read_windows(
    source: Path,
    times: Path | None = None,
    *,
    kind: str = "auto",
    window_s: float | None = None,
    hop_s: float | None = None,
) -> tuple[WindowReaders, list[str]]:
    """Return readers of all windows by recording, and notes; arrays need their times."""
    kind = find_kind(kind, source)
    if kind != "arrays":
        unused = {"--segments": times, "--window": window_s, "--hop": hop_s}
        for name, value in unused.items():
            if value is not None:
                raise OptionError(
                    f"{name}: {source} has times of its own; remove {name}"
                )
        if kind == "hoplite":
            readers, _, notes = read_hoplite(source)
            return readers, notes
        return read_analyzer(source), []
    return _read_array_windows(source, times, window_s, hop_s), []


def _read_array_windows(
    source: Path, times: Path | None, window_s: float | None, hop_s: float | None
) -> WindowReaders:
    """Return readers of the windows in an array, whose times are given or in a file.

    With `window_s` the array is of one recording, otherwise the file names the recordings.
    """
    vectors = _read_array(source)
    if window_s is not None:
        if times is not None:
            raise OptionError(f"window: {times} has the times; remove --window")
        check_range("window", window_s, *TIMES_S, "s")
        hop_s = window_s if hop_s is None else hop_s
        check_range("hop", hop_s, *TIMES_S, "s")
        start_s = np.arange(len(vectors), dtype=np.float64) * hop_s
        windows = make_windows(start_s, start_s + window_s, vectors)
        return {source.stem: lambda: windows}
    path = times or source.with_suffix(".csv")
    if hop_s is not None or not path.exists():
        raise OptionError(
            f"window: the times of the windows in {source} are not known; give --window and --hop "
            "in seconds, or a CSV with recording, start_s and end_s of each vector (--segments)"
        )
    rows, _ = _read_span_rows(path, ["recording", "start_s", "end_s"])
    _check_row_count(source, len(vectors), path, rows)
    start_s, end_s = (
        times_s.to_numpy() for times_s in _read_times(path, rows).values()
    )
    names = filled_column(path, rows["recording"])
    all_windows = make_windows(start_s, end_s, vectors)
    readers = {}
    for name in names.unique(maintain_order=True):
        is_inside = (names == name).to_numpy()
        readers[name] = partial(all_windows.__getitem__, is_inside)
    return readers


def find_kind(kind: str, source: Path) -> str:
    """Return the kind of embeddings that a user names, or with "auto" the one at a path."""
    if kind not in KINDS:
        raise OptionError(f"kind: expected {', '.join(KINDS)}, got {kind!r}")
    if kind != "auto":
        return kind
    suffix = source.suffix.lower()
    if suffix in (".npy", ".npz"):
        return "arrays"
    if find_hoplite(source) is not None:
        return "hoplite"
    is_folder = source.is_dir() and any(source.rglob(f"*{TEXT_SUFFIX}"))
    if suffix in (".txt", ".csv") or is_folder:
        return "birdnet-analyzer"
    content = "none in it" if source.exists() else "no such file"
    raise InputError(
        f"{source}: expected a .npy or .npz file, a perch-hoplite database, "
        f"or *{TEXT_SUFFIX} files of BirdNET-Analyzer, got {content}"
    )


def _pool_rows(
    source: Path,
    path: Path,
    rows: pl.DataFrame,
    readers: WindowReaders,
    notes: list[str],
) -> tuple[pl.DataFrame, Outcomes]:
    """Return rows with segment and labels, and the pooled vector of each or why it has none.

    A note on which windows were used is added to `notes`.
    """
    filled_column(path, rows["recording"])  # raises InputError if one is blank
    times_s: dict[str, Any] = {"start_s": 0.0, "end_s": np.inf}  # whole recordings
    if times_s.keys() & set(rows.columns):
        times_s = _read_times(path, rows)
    spans = rows.select(
        path=filled_column(path, rows["path"]),
        start_s=pl.lit(times_s["start_s"]),
        end_s=pl.lit(times_s["end_s"]),
        label=pl.Series(_read_labels(path, rows)),
    )
    outcomes, note = pool_spans(spans, readers, source)
    notes.append(note)
    previous = set()  # spans of earlier rows
    for row, span in enumerate(spans.iter_rows()):
        _, start_s, end_s, _ = span
        if span in previous and 0 <= start_s < end_s:
            outcomes[row] = "the same span and label are there already"
        previous.add(span)
    if "segment" not in rows.columns:
        ends_s = spans["end_s"].to_numpy()
        is_whole = ~np.isfinite(ends_s)
        names = name_spans(spans, is_whole)
        rows = rows.with_columns(segment=pl.Series(names))
    if "labels" not in rows.columns:
        labels = pl.Series(_find_labels(spans), dtype=pl.List(pl.String))
        rows = rows.with_columns(labels=labels)
    return rows, outcomes


def _find_labels(spans: pl.DataFrame) -> list[list[str]]:
    """Return the labels of each span: its own, then of those that overlap it; none is empty."""
    start_s = pl.col("start_s")
    is_possible = (start_s >= 0) & (start_s < pl.col("end_s"))
    possible = spans.with_row_index("row").filter(is_possible)
    calls = Spans(possible.with_columns(recording="path"))
    overlapping = overlapping_labels(calls)
    overlapping_by_row = dict(zip(possible["row"], overlapping, strict=True))
    labels = []
    for row, label in enumerate(spans["label"]):
        others = overlapping_by_row.get(row, ())
        names = dict.fromkeys([label, *others])
        labels.append(list(filter(None, names)))
    return labels


def _read_times(path: Path, rows: pl.DataFrame) -> dict[str, Any]:
    """Return the columns start_s and end_s as numbers, by name; texts are converted."""
    times_s = {}
    check_columns(path, rows.columns, ["start_s", "end_s"])
    for name in ("start_s", "end_s"):
        column = rows[name]
        if isinstance(column.dtype, pl.String):
            column = column.str.strip_chars()
        times_s[name] = column.cast(pl.Float64, strict=False).fill_null(np.nan)
        check_rows(path, name, ~times_s[name].is_finite(), "seconds", rows[name])
    return times_s


def _check_row_count(
    source: Path, vectors: int, path: Path, rows: pl.DataFrame
) -> None:
    """Raise InputError unless a file has a row for each vector of an array."""
    if rows.height != vectors:
        raise InputError(
            f"{source}: expected a row for each vector, in the same order, "
            f"got {count_text(vectors, 'vector')} and "
            f"{count_text(rows.height, 'row')} in {path}"
        )


def _build_table(
    source: Path, encoder: str, path: Path, rows: pl.DataFrame, outcomes: Outcomes
) -> tuple[Vectors, list[Reject]]:
    """Make a table of the rows that have a label and a vector; the others are rejects."""
    labels = _read_labels(path, rows)
    numbers = rows["row"].to_list()
    vectors = {}  # by the index of the row
    rejects = []
    for row, outcome in enumerate(outcomes):
        if labels[row] == "":
            outcome = "no label"
        if isinstance(outcome, str):
            rejects.append(Reject(str(path), numbers[row], outcome))
            continue
        vectors[row] = outcome
        first = next(iter(vectors.values()))  # has the size of all
        if outcome.size != first.size:
            raise InputError(
                f"{source}: expected vectors of one length, {first.size} as the first, "
                f"got {outcome.size} for row {numbers[row]} of {path}"
            )
    if not vectors:
        raise InputError(
            f"{source}: no vector has a label; the first of "
            f"{count_text(len(rejects), 'reason')}: {rejects[0].reason}"
        )
    # The columns are checked together, also of rows that are left out: these get a label.
    columns = rows.with_columns(label=pl.Series([label or "-" for label in labels]))
    if "fold" in columns.columns and columns["fold"].null_count() == rows.height:
        columns = columns.drop("fold")
    matrix = np.zeros((rows.height, first.size), first.dtype)
    matrix[list(vectors)] = list(vectors.values())
    spans = replace(read_columns(path, columns), source=str(source))
    return Vectors(spans, matrix, encoder).take(list(vectors)), rejects


def _read_array(path: Path) -> Vector:
    """Read a matrix of finite numbers from `.npy` or `.npz`; float16 becomes float32."""
    matrix: Any
    with explain_read_errors(path), path.open("rb") as stream:
        if zipfile.is_zipfile(stream):
            entries = open_npz(stream, path)
            names = [name for name in entries if entries[name].ndim == 2]
            if len(names) != 1 and "embedding" not in names:
                listed = ", ".join(map(repr, names[:LISTED_NAMES]))
                raise InputError(
                    f"{path}: expected one matrix, or one called embedding, got "
                    f"{listed or 'none'}"
                )
            matrix = entries[names[0] if len(names) == 1 else "embedding"]
        else:
            stream.seek(0)
            matrix = np.load(stream, allow_pickle=False)
    if matrix.dtype.kind not in "fiu" or matrix.ndim != 2 or 0 in matrix.shape:
        raise InputError(
            f"{path}: expected numbers, segments × dimensions, "
            f"got {matrix.dtype} of shape {matrix.shape}"
        )
    finite = np.isfinite(matrix).all(axis=1)
    if not finite.all():
        raise InputError(
            f"{path}: row {int(np.argmin(finite)) + 1}: expected finite numbers; correct the row, "
            "or remove it from both files"
        )
    is_half = matrix.dtype == np.float16
    return contiguous_floats(matrix.astype(np.float32) if is_half else matrix)


def _read_span_rows(
    path: Path, required: Sequence[str]
) -> tuple[pl.DataFrame, str | None]:
    """Read Parquet or CSV; return SPAN_COLUMNS, numbered in `row`, and the corpus named there."""
    corpus = None
    with explain_read_errors(path):
        if path.suffix.lower() == ".parquet":
            corpus = describe_parquet(path).metadata.get("corpus")
            frame = read_parquet(path)
        else:
            records = read_csv_records(path, required)
            frame = pl.DataFrame(records, dict.fromkeys(records[0], pl.String))
    check_columns(path, frame.columns, required)
    if frame.height == 0:
        raise InputError(f"{path}: the file has no rows; expected one for each segment")
    if "path" not in frame.columns:
        check_columns(path, frame.columns, ["recording"])
        frame = frame.with_columns(path="recording")
    if "recording" not in frame.columns:
        frame = frame.with_columns(recording="path")
    names = [name for name in SPAN_COLUMNS if name in frame.columns]
    return frame.select(names).with_row_index("row", offset=1), corpus


def _read_labels(path: Path, rows: pl.DataFrame) -> list[str]:
    """Return the label of each row; it may be empty."""
    labels = text_column(path, rows["label"]).fill_null("")
    return [label.strip() for label in labels]


def pool_spans(
    spans: pl.DataFrame, readers: WindowReaders, source: Path
) -> tuple[list[Vector | str], str]:
    """Return the mean vector of the windows of each span, or why it has none; and a note."""
    matches = match_recordings(spans["path"].to_list(), readers, source)
    start_s = spans["start_s"].to_list()
    end_s = spans["end_s"].to_list()
    outcomes: list[Vector | str] = []
    rows_by_recording = defaultdict[str, list[int]](list)  # rows of spans
    for row, path in enumerate(spans["path"]):
        recording, reason = matches[path]
        if not 0 <= start_s[row] < end_s[row]:
            reason = IMPOSSIBLE_TIMES
        outcomes.append(reason)  # without one, replaced below
        if not reason:
            rows_by_recording[recording].append(row)
    total = 0
    used = 0
    for recording, rows in rows_by_recording.items():
        windows = readers[recording]()
        is_used = np.zeros(len(windows), bool)
        for row in rows:
            chosen = choose_windows(windows, start_s[row], end_s[row])
            is_used[chosen] = True
            outcomes[row] = NO_OVERLAP
            if chosen.size > 0:
                mean = windows["vector"][chosen].mean(axis=0, dtype=np.float64)
                outcomes[row] = mean.astype(np.float32)
        total += is_used.size
        used += int(is_used.sum())
    note = (
        f"labelled: {len(rows_by_recording):,} of {count_text(len(readers), 'recording')}; "
        f"used: {used:,} of their {count_text(total, 'window')}"
    )
    return outcomes, note


def choose_windows(windows: Rows, start_s: float, end_s: float) -> IntArray:
    """Return the rows of windows that stand for a span; none where no window overlaps it."""
    starts_s = windows["start_s"]
    ends_s = windows["end_s"]
    distance_s = np.abs(starts_s - start_s) + np.abs(ends_s - end_s)
    same = np.flatnonzero(distance_s < SAME_TIME_S)
    if same.size > 0:
        return same
    centre_s = (starts_s + ends_s) / 2
    inside = np.flatnonzero((start_s <= centre_s) & (centre_s < end_s))
    if inside.size > 0:
        return inside
    overlap_s = np.minimum(ends_s, end_s) - np.maximum(starts_s, start_s)
    longest_s = overlap_s.max(initial=0)
    if longest_s > 0:
        return np.flatnonzero(overlap_s == longest_s)[:1]
    return np.flatnonzero([])


def match_recordings(
    names: Sequence[str], recordings: Collection[str], source: Path
) -> dict[str, tuple[str, str]]:
    """Return for each name (recording, ""), or ("", reason) if it means no recording.

    A name means a recording as it would in an annotation file (`Library.find`). If several names
    mean the same one, only a name with as many folders as the recording is kept, if there is
    exactly one.
    """
    library = Library(source, tuple(recordings))
    matches = {}
    names_by_recording = defaultdict[str, list[str]](list)
    for name in dict.fromkeys(names):
        try:
            recording = library.find(name)
        except InputError as error:
            matches[name] = ("", f"{NO_RECORDING} ({error})")
            continue
        matches[name] = (recording, "")
        names_by_recording[recording].append(name)
    for recording, same in names_by_recording.items():
        if len(same) == 1:
            continue
        depth = len(PureWindowsPath(recording).parts)
        exact = [name for name in same if len(PureWindowsPath(name).parts) == depth]
        for name in same:
            if exact != [name]:
                matches[name] = ("", f"several names match its recording {recording!r}")
    return matches
