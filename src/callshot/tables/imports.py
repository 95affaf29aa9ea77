"""Embeddings that users already have come in; `Embeddings` go out, with a reason for each row that is not in them.

    arrays             `.npy`, or `.npz` with one matrix; a CSV tells of each row what it is
    hoplite            a perch-hoplite database; its own annotations, or spans in a file, tell what is where
    birdnet-analyzer   `x.birdnet.embeddings.txt`, a folder of them, or the CSV of newer versions; spans as above

A file of spans is the `segments.parquet` of `callshot segment`, or a CSV: recording (or path), label, start_s and
end_s (without them a row is a whole recording), and optionally segment, labels and fold, as in a table.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import CallshotError, InputError, OptionError
from callshot.records import Embeddings, FloatArray, Reject, name_segments
from callshot.tables.birdnet_analyzer import TEXT, read_analyzer
from callshot.tables.embedding_tables import (
    _filled,
    _fold,
    _labels,
    _reason,
    _refuse,
    _segments,
    _text,
    csv_rows,
    refuse_missing,
)
from callshot.tables.hoplite import find_hoplite, read_hoplite
from callshot.tables.window_pooling import Sources, Span, Vector, overlapping_labels, pool_spans

KINDS = ("arrays", "hoplite", "birdnet-analyzer")
SPAN_COLUMNS = ("path", "recording", "start_s", "end_s", "label", "segment", "labels", "fold")


@dataclass(frozen=True)
class Imported:
    """A table, what was left out of it, what is to be told, and the corpus that a file of segments names."""

    table: Embeddings
    rejects: list[Reject]
    notes: list[str]
    corpus: str | None = None


@dataclass(frozen=True)
class _Rows:
    """What a file says of segments: a frame with the columns it has, which rows these are, and the corpus."""

    path: Path
    frame: pl.DataFrame
    corpus: str | None = None
    ids: Sequence[int] | None = None

    def id(self, row: int) -> int:
        """Return what a row is called: its number from 1, or its id in a database."""
        return row + 1 if self.ids is None else self.ids[row]


def import_embeddings(
    source: Path, segments: Path | None = None, *, kind: str = "auto", encoder: str
) -> Imported:
    """Read embeddings of any kind, and what their segments are; refuse files that are damaged or do not fit.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mine.npy"
    >>> np.save(path, np.eye(3, dtype=np.float32))
    >>> _ = path.with_suffix(".csv").write_text("recording,label\\na.wav,roar\\na.wav,\\nb.wav,bark\\n")
    >>> found = import_embeddings(path, encoder="mine")
    >>> found.table.label, [(reject.row, reject.reason) for reject in found.rejects]
    (('roar', 'bark'), [(2, 'no label')])
    """
    readers = {
        "arrays": _import_arrays,
        "hoplite": _import_hoplite,
        "birdnet-analyzer": _import_birdnet,
    }
    chosen = recognise(source) if kind == "auto" else kind
    if chosen not in readers:
        raise OptionError(f"kind: wanted auto, {', '.join(KINDS)}, got {kind!r}")
    return readers[chosen](source, segments, encoder)


def recognise(source: Path) -> str:
    """Name the kind of embeddings that a path holds."""
    if source.suffix.lower() in (".npy", ".npz"):
        return "arrays"
    if find_hoplite(source) is not None:
        return "hoplite"
    if source.suffix.lower() in (".txt", ".csv") or (
        source.is_dir() and any(source.rglob(f"*{TEXT}"))
    ):
        return "birdnet-analyzer"
    wanted = f"a .npy or .npz file, a perch-hoplite database, or *{TEXT} files of BirdNET-Analyzer"
    raise InputError(
        f"{source}: wanted {wanted}, found {'none there' if source.exists() else 'nothing'}"
    )


def _import_arrays(source: Path, segments: Path | None, encoder: str) -> Imported:
    vectors = _read_array(source)
    rows = _read_rows(segments or source.with_suffix(".csv"), ("recording", "label"))
    if rows.frame.height != len(vectors):
        found = f"{len(vectors)} vectors and {rows.frame.height} rows in {rows.path}"
        raise InputError(
            f"{source}: wanted a row for each vector, in the same order, found {found}"
        )
    return _table(source, encoder, rows, rows.frame, list(vectors), [])


def _import_hoplite(source: Path, segments: Path | None, encoder: str) -> Imported:
    base = read_hoplite(source)
    if segments is not None:
        left = [
            f"{len(base.spans)} annotations of the database are left aside, as {segments} is given"
        ]
        return _join(
            source,
            encoder,
            _read_rows(segments, ("label",)),
            base.sources,
            base.notes + left * bool(base.spans),
        )
    if not base.spans:
        raise InputError(
            f"{source}: no annotations are in the database; tell what is where with --segments FILE"
        )
    columns = {
        name: [getattr(span, name) for span in base.spans]
        for name in ("path", "start_s", "end_s", "label")
    }
    rows = _Rows(source, pl.DataFrame(columns | {"recording": columns["path"]}), ids=base.rows)
    return _join(source, encoder, rows, base.sources, base.notes, base.spans)


def _import_birdnet(source: Path, segments: Path | None, encoder: str) -> Imported:
    if segments is None:
        raise OptionError(
            f"segments: {source} has no labels; wanted --segments FILE, a segments.parquet or a CSV"
        )
    return _join(source, encoder, _read_rows(segments, ("label",)), read_analyzer(source), [])


def _join(
    source: Path,
    encoder: str,
    rows: _Rows,
    sources: Sources,
    notes: list[str],
    spans: Sequence[Span] | None = None,
) -> Imported:
    """Give each span its vector, then its name and the labels that overlap it where the file does not tell these."""
    spans = _spans(rows) if spans is None else spans
    outcomes, told = pool_spans(spans, sources)
    first: dict[Span, int] = {}
    for n, span in enumerate(spans):
        if not 0 <= span.start_s < span.end_s:
            outcomes[n] = "its start is not before its end, or before the recording"
        elif first.setdefault(Span(span.path, span.start_s, span.end_s, span.label), n) != n:
            outcomes[n] = "the same span and label are there already"
    frame = rows.frame
    if "segment" not in frame:
        whole = [
            (s.path, s.start_s, s.end_s if np.isfinite(s.end_s) else None, s.label) for s in spans
        ]
        frame = frame.with_columns(segment=pl.Series(list(name_segments(whole)), dtype=pl.String))
    if "labels" not in frame:
        labelled = iter(overlapping_labels([span for span in spans if span.label.strip()]))
        column = [list(next(labelled)) if span.label.strip() else [] for span in spans]
        frame = frame.with_columns(labels=pl.Series(column, dtype=pl.List(pl.String)))
    return _table(source, encoder, rows, frame, outcomes, [*notes, told])


def _table(
    source: Path,
    encoder: str,
    rows: _Rows,
    frame: pl.DataFrame,
    outcomes: Sequence[Vector | str],
    notes: list[str],
) -> Imported:
    """Put vectors and what is said of them into a table; what has no label or no vector is a reject."""
    path, text = rows.path, _text(rows.path, frame["label"]).fill_null("")
    blank = text.str.strip_chars() == ""
    label = pl.Series("label", text.zip_with(~blank, pl.Series(["-"] * len(text), dtype=pl.String)))
    facts: dict[str, Sequence[Any]] = {
        "recording": _filled(path, frame["recording"]).to_list(),
        "label": label.to_list(),
    }
    facts["segment"] = _segments(path, frame).to_list()
    facts["labels"] = (
        _labels(path, label, frame["labels"]) if "labels" in frame else [(name,) for name in label]
    )
    fold = (
        _fold(path, frame["fold"])
        if "fold" in frame and frame["fold"].null_count() < frame.height
        else None
    )
    reasons = [
        "no label" if empty else o if isinstance(o, str) else ""
        for empty, o in zip(blank, outcomes, strict=True)
    ]
    rejects = [Reject(str(path), rows.id(n), reason) for n, reason in enumerate(reasons) if reason]
    kept = [n for n, reason in enumerate(reasons) if not reason]
    if not kept:
        raise InputError(
            f"{source}: no vector has a label; the first of {len(rejects)} reasons: {rejects[0].reason}"
        )
    vectors = _stacked(
        source,
        rows,
        [(n, o) for n, o in enumerate(outcomes) if not reasons[n] and not isinstance(o, str)],
    )
    columns = {name: tuple(column[n] for n in kept) for name, column in facts.items()}
    table = Embeddings(
        encoder, vectors, fold=None if fold is None else fold[kept], source=str(source), **columns
    )
    return Imported(table, rejects, notes, rows.corpus)


def _stacked(source: Path, rows: _Rows, vectors: Sequence[tuple[int, Vector]]) -> Vector:
    width = vectors[0][1].size
    for n, vector in vectors:
        if vector.size != width:
            found = f"{vector.size} for row {rows.id(n)} of {rows.path}"
            raise InputError(
                f"{source}: wanted vectors of one length, {width} as the first, found {found}"
            )
    return np.stack([vector for _, vector in vectors])


def _read_array(path: Path) -> Vector:
    """Read a matrix of finite numbers; float16 becomes float32."""
    with _reading(path), path.open("rb") as stream:
        found = np.load(stream, allow_pickle=False)
        table = found if isinstance(found, np.ndarray) else _only_array(path, found)
    if table.dtype.kind not in "fiu" or table.ndim != 2 or 0 in table.shape:
        found = f"{table.dtype} of shape {table.shape}"
        raise InputError(f"{path}: wanted numbers, segments × dimensions, found {found}")
    if not (finite := np.isfinite(table).all(axis=1)).all():
        row = int(np.argmin(finite))
        raise InputError(
            f"{path}: row {row + 1}: wanted finite numbers; mend it, or leave the row out of both files"
        )
    return (
        table.astype(np.float32) if table.dtype.itemsize == 2 and table.dtype.kind == "f" else table
    )


def _only_array(path: Path, entries: Any) -> NDArray[Any]:
    named = [name for name in entries if name in ("embedding", "embeddings")]
    names = named or [name for name in entries if entries[name].ndim == 2]
    if len(names) != 1:
        found = f"{len(names)} of {', '.join(map(repr, list(entries)[:8])) or 'none'}"
        raise InputError(f"{path}: wanted one matrix, or one called embedding, found {found}")
    matrix: NDArray[Any] = entries[names[0]]
    return matrix


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Turn whatever damaged bytes make a reader throw into one InputError."""
    try:
        yield
    except CallshotError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # a panic of polars is no Exception
        raise InputError(f"{path}: cannot be read ({_reason(error)})") from error


def _read_rows(path: Path, needed: Sequence[str]) -> _Rows:
    """Read what a file says of segments: CSV, as text, or Parquet."""
    with _reading(path):
        if path.suffix.lower() == ".parquet":
            frame, corpus = (
                pl.read_parquet(path.absolute(), glob=False),
                pl.read_parquet_metadata(path.absolute()).get("corpus"),
            )
        else:
            header, *cells = list(csv_rows(path)) or [[]]
            refuse_missing(path, header, needed)
            columns = zip(*cells, strict=True) if cells else [()] * len(header)
            frame, corpus = (
                pl.DataFrame(
                    dict(zip(header, columns, strict=True)), dict.fromkeys(header, pl.String)
                ),
                None,
            )
    refuse_missing(path, frame.columns, needed)
    if frame.height == 0:
        raise InputError(f"{path}: the file has no rows; wanted one for each segment")
    both = {"path", "recording"} & set(frame.columns)
    if not both:
        refuse_missing(path, frame.columns, ("recording",))
    frame = frame.select(name for name in SPAN_COLUMNS if name in frame.columns)
    given = {name: pl.col(next(iter(both))) for name in ("path", "recording") if name not in frame}
    return _Rows(path, frame.with_columns(**given), corpus)


def _spans(rows: _Rows) -> list[Span]:
    """Take spans out of a file: times in seconds, or none of them for whole recordings."""
    frame, times = rows.frame, [np.zeros(rows.frame.height), np.full(rows.frame.height, np.inf)]
    if "start_s" in frame or "end_s" in frame:
        refuse_missing(rows.path, frame.columns, ("start_s", "end_s"))
        times = [_seconds(rows.path, frame[name]) for name in ("start_s", "end_s")]
    paths, labels = (
        [_filled(rows.path, frame[name]) for name in ("recording", "path")][1],
        _text(rows.path, frame["label"]).fill_null(""),
    )
    return [
        Span(*cells)
        for cells in zip(paths, times[0].tolist(), times[1].tolist(), labels, strict=True)
    ]


def _seconds(path: Path, column: pl.Series) -> FloatArray:
    text = column.str.strip_chars() if isinstance(column.dtype, pl.String) else column
    seconds = text.cast(pl.Float64, strict=False).fill_null(np.nan).to_numpy()
    _refuse(
        path,
        column.name,
        ~np.isfinite(seconds),
        lambda row: f"wanted seconds, found {column[row]!r}",
    )
    return seconds
