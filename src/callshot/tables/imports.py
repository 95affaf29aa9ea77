"""Embeddings of other tools in; a table out, with a reason for each row that is not in it.

    arrays             `.npy`, or `.npz` with one matrix; a CSV describes each row
    hoplite            a perch-hoplite database; with its own annotations, or spans in a file
    birdnet-analyzer   `x.birdnet.embeddings.txt`, a folder of them, or the CSV of newer versions;
                       with spans in a file

A file of spans is the `segments.parquet` of `callshot segment`, or a CSV: recording (or path),
label, start_s and end_s (without them a row is a whole recording), and optionally segment, labels
and fold, as in a table.
"""

import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError, OptionError, count_text
from callshot.records import Embeddings, FloatArray, Reject
from callshot.records.columns import (
    check_columns,
    check_rows,
    filled_column,
    table_columns,
    text_column,
)
from callshot.records.table_files import describe_parquet, open_npz, read_parquet
from callshot.spans import name_spans
from callshot.tables.birdnet_analyzer import TEXT_SUFFIX, read_analyzer
from callshot.tables.embedding_tables import explain_read_errors
from callshot.tables.fold_files import read_csv_records
from callshot.tables.hoplite import find_hoplite, read_hoplite
from callshot.tables.window_pooling import (
    Vector,
    WindowReaders,
    overlapping_labels,
    pool_spans,
)

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


@dataclass(frozen=True)
class ImportResult:
    """A table, what was left out of it, notes for the user, and the corpus that a file names."""

    table: Embeddings
    rejects: list[Reject]
    notes: list[str]
    corpus: str | None = None


@dataclass(frozen=True)
class SpanRows:
    """The rows that describe segments: where they are from, their columns, numbers and corpus."""

    path: Path
    frame: pl.DataFrame
    numbers: Sequence[int]
    corpus: str | None = None


ImportedRows = tuple[SpanRows, list[Vector | str], list[str]]
"""The rows that describe segments, the vector of each or why it has none, and notes."""


def import_embeddings(
    source: Path, segments: Path | None = None, *, kind: str = "auto", encoder: str
) -> ImportResult:
    """Read embeddings of any kind and what their segments are; raise for damaged files.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npy"
    >>> np.save(path, np.eye(3, dtype=np.float32))
    >>> rows = "recording,label\\na.wav,roar\\na.wav,\\nb.wav,bark\\n"
    >>> _ = path.with_suffix(".csv").write_text(rows)
    >>> result = import_embeddings(path, encoder="mine")
    >>> result.table.label, [(reject.row, reject.reason) for reject in result.rejects]
    (('roar', 'bark'), [(2, 'no label')])
    """
    if kind == "auto":
        kind = recognise_kind(source)
    if kind not in IMPORTERS:
        raise OptionError(f"kind: expected auto, {', '.join(IMPORTERS)}, got {kind!r}")
    rows, outcomes, notes = IMPORTERS[kind](source, segments)
    return _build_table(source, encoder, rows, outcomes, notes)


def recognise_kind(source: Path) -> str:
    """Return the kind of embeddings that a path holds."""
    suffix = source.suffix.lower()
    if suffix in (".npy", ".npz"):
        return "arrays"
    if find_hoplite(source) is not None:
        return "hoplite"
    if suffix in (".txt", ".csv"):
        return "birdnet-analyzer"
    if source.is_dir() and any(source.rglob(f"*{TEXT_SUFFIX}")):
        return "birdnet-analyzer"
    content = "none in it" if source.exists() else "no such file"
    raise InputError(
        f"{source}: expected a .npy or .npz file, a perch-hoplite database, "
        f"or *{TEXT_SUFFIX} files of BirdNET-Analyzer, got {content}"
    )


def _import_arrays(source: Path, segments: Path | None) -> ImportedRows:
    vectors = _read_array(source)
    path = segments or source.with_suffix(".csv")
    rows = _read_span_rows(path, ["recording", "label"])
    if rows.frame.height != len(vectors):
        raise InputError(
            f"{source}: expected a row for each vector, in the same order, "
            f"got {count_text(len(vectors), 'vector')} and "
            f"{count_text(rows.frame.height, 'row')} in {rows.path}"
        )
    return rows, list(vectors), []


def _import_hoplite(source: Path, segments: Path | None) -> ImportedRows:
    database = read_hoplite(source)
    frame = database.annotations
    if segments is not None:
        notes = list(database.notes)
        if frame.height > 0:
            count = count_text(frame.height, "annotation")
            notes.append(f"{count} of the database ignored: {segments} is used")
        return _pool_file(segments, database.readers, notes)
    if frame.height == 0:
        raise InputError(
            f"{source}: the database has no annotations; pass the labelled spans with "
            "--segments FILE"
        )
    described = frame.select("path", "label", recording="path")
    rows = SpanRows(source, described, frame["id"].to_list())
    return _pool_rows(rows, frame, database.readers, database.notes)


def _import_birdnet(source: Path, segments: Path | None) -> ImportedRows:
    if segments is None:
        raise OptionError(
            f"segments: {source} has no labels; pass --segments FILE, a segments.parquet or a CSV"
        )
    return _pool_file(segments, read_analyzer(source), [])


IMPORTERS = {
    "arrays": _import_arrays,
    "hoplite": _import_hoplite,
    "birdnet-analyzer": _import_birdnet,
}


def _pool_file(
    segments: Path, readers: WindowReaders, notes: list[str]
) -> ImportedRows:
    rows = _read_span_rows(segments, ["label"])
    return _pool_rows(rows, _read_spans(rows), readers, notes)


def _pool_rows(
    rows: SpanRows, spans: pl.DataFrame, readers: WindowReaders, notes: list[str]
) -> ImportedRows:
    """Give each span its vector, and a name and overlapping labels where the file has none.

    `spans` has the columns path, start_s, end_s and label.
    """
    spans = spans.select("path", "start_s", "end_s", "label")
    outcomes, note = pool_spans(spans, readers)
    previous = set()
    for row, span in enumerate(spans.iter_rows()):
        _, start_s, end_s, _ = span
        if not 0 <= start_s < end_s:
            outcomes[row] = IMPOSSIBLE_TIMES
        elif span in previous:
            outcomes[row] = "the same span and label are there already"
        previous.add(span)
    frame = rows.frame
    if "segment" not in frame.columns:
        is_whole = ~np.isfinite(spans["end_s"].to_numpy())
        segment = pl.Series(name_spans(spans, is_whole), dtype=pl.String)
        frame = frame.with_columns(segment=segment)
    if "labels" not in frame.columns:
        labels = pl.Series(overlapping_labels(spans), dtype=pl.List(pl.String))
        frame = frame.with_columns(labels=labels)
    return replace(rows, frame=frame), outcomes, [*notes, note]


def _build_table(
    source: Path,
    encoder: str,
    rows: SpanRows,
    outcomes: Sequence[Vector | str],
    notes: list[str],
) -> ImportResult:
    """Make a table of vectors and their rows; rows without a label or a vector are rejects."""
    labels = _read_labels(rows)
    vectors, rejects = _split_outcomes(rows, labels, outcomes)
    if not vectors:
        raise InputError(
            f"{source}: no vector has a label; the first of "
            f"{count_text(len(rejects), 'reason')}: "
            f"{rejects[0].reason}"
        )
    # The columns are checked together, also of rows that are left out: these get a label.
    filled = [label if label.strip() else "-" for label in labels]
    frame = rows.frame.with_columns(label=pl.Series(filled))
    if "fold" in frame.columns and frame["fold"].null_count() == frame.height:
        frame = frame.drop("fold")
    table = Embeddings(
        encoder=encoder,
        vectors=_stack_vectors(source, rows, vectors),
        source=str(source),
        **table_columns(rows.path, frame),
    )
    table = table.only({table.segment[row] for row in vectors})
    return ImportResult(table, rejects, notes, rows.corpus)


def _split_outcomes(
    rows: SpanRows, labels: Sequence[str], outcomes: Sequence[Vector | str]
) -> tuple[dict[int, Vector], list[Reject]]:
    """Return the vectors of labelled rows, by row, and a reject for each of the others."""
    vectors: dict[int, Vector] = {}
    rejects: list[Reject] = []
    for row, outcome in enumerate(outcomes):
        if not labels[row].strip():
            outcome = "no label"
        if isinstance(outcome, str):
            rejects.append(Reject(str(rows.path), rows.numbers[row], outcome))
        else:
            vectors[row] = outcome
    return vectors, rejects


def _stack_vectors(source: Path, rows: SpanRows, vectors: dict[int, Vector]) -> Vector:
    """Return a matrix with a row for each row of the file, zeros where it has no vector."""
    first = next(iter(vectors.values()))
    matrix = np.zeros((rows.frame.height, first.size), first.dtype)
    for row, vector in vectors.items():
        if vector.size != first.size:
            raise InputError(
                f"{source}: expected vectors of one length, {first.size} as the first, "
                f"got {vector.size} for row {rows.numbers[row]} of {rows.path}"
            )
        matrix[row] = vector
    return matrix


def _read_array(path: Path) -> Vector:
    """Read a matrix of finite numbers; float16 becomes float32."""
    with explain_read_errors(path), path.open("rb") as stream:
        matrix: Any
        if zipfile.is_zipfile(stream):
            matrix = _only_matrix(path, open_npz(stream, path))
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
        row = int(np.argmin(finite)) + 1
        raise InputError(
            f"{path}: row {row}: expected finite numbers; correct the row, "
            "or remove it from both files"
        )
    if matrix.dtype == np.float16:
        matrix = matrix.astype(np.float32)
    return cast(Vector, matrix)


def _only_matrix(path: Path, entries: Any) -> NDArray[Any]:
    names = [name for name in entries if name in ("embedding", "embeddings")]
    if not names:
        names = [name for name in entries if entries[name].ndim == 2]
    if len(names) != 1:
        listed = ", ".join(map(repr, list(entries)[:LISTED_NAMES]))
        raise InputError(
            f"{path}: expected one matrix, or one called embedding, "
            f"got {len(names)} of {listed or 'none'}"
        )
    matrix: NDArray[Any] = entries[names[0]]
    return matrix


def _read_span_rows(path: Path, required: Sequence[str]) -> SpanRows:
    """Read a file that describes segments, and check that it has some columns."""
    frame, corpus = _read_span_file(path, required)
    check_columns(path, frame.columns, required)
    if frame.height == 0:
        raise InputError(f"{path}: the file has no rows; expected one for each segment")
    if "path" not in frame.columns:
        check_columns(path, frame.columns, ["recording"])
        frame = frame.with_columns(path="recording")
    if "recording" not in frame.columns:
        frame = frame.with_columns(recording="path")
    names = [name for name in SPAN_COLUMNS if name in frame.columns]
    return SpanRows(
        path=path,
        frame=frame.select(names),
        numbers=range(1, frame.height + 1),
        corpus=corpus,
    )


def _read_span_file(
    path: Path, required: Sequence[str]
) -> tuple[pl.DataFrame, str | None]:
    """Read a CSV, as text, or a Parquet file and the corpus it names."""
    with explain_read_errors(path):
        if path.suffix.lower() == ".parquet":
            corpus = describe_parquet(path).metadata.get("corpus")
            return read_parquet(path), corpus
        records = read_csv_records(path, required)
        schema = dict.fromkeys(records[0], pl.String)
        return pl.DataFrame(records, schema), None


def _read_spans(rows: SpanRows) -> pl.DataFrame:
    """Return the spans of a file: times in seconds, or none of them for whole recordings."""
    frame = rows.frame
    start_s = np.zeros(frame.height)
    end_s = np.full(frame.height, np.inf)
    if "start_s" in frame.columns or "end_s" in frame.columns:
        check_columns(rows.path, frame.columns, ["start_s", "end_s"])
        start_s = _read_seconds(rows.path, frame["start_s"])
        end_s = _read_seconds(rows.path, frame["end_s"])
    filled_column(rows.path, frame["recording"])
    columns = {
        "path": list(filled_column(rows.path, frame["path"])),
        "start_s": start_s,
        "end_s": end_s,
        "label": _read_labels(rows),
    }
    return pl.DataFrame(columns)


def _read_labels(rows: SpanRows) -> list[str]:
    """Return the label of each row; it may be empty."""
    labels = text_column(rows.path, rows.frame["label"]).fill_null("")
    return [label.strip() for label in labels]


def _read_seconds(path: Path, column: pl.Series) -> FloatArray:
    text = column
    if isinstance(column.dtype, pl.String):
        text = column.str.strip_chars()
    seconds = text.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    check_rows(path, column.name, ~np.isfinite(seconds), "seconds", column)
    return seconds
