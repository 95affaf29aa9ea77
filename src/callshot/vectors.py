"""Vectors of spans: the table that encoders make and that classifiers, models and scans read.

Below the type are checks of the columns of a data frame that people made. `source` is what errors
begin with: a file, or "memory". Rows are counted from 1.
"""

import json
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError, count_text, quote_names
from callshot.spans import (
    COLUMN_TYPES,
    IntArray,
    Spans,
    concat_spans,
    given_folds,
    number_folds,
)

Source = str | Path
FloatMatrix = NDArray[np.floating[Any]]

COLUMNS = ("recording", "label", "segment", "labels", "fold", "embedding")
DIMENSION = re.compile("e(0|[1-9][0-9]*)")
# Half surrogates, and what is beyond Unicode.
BROKEN_TEXT = re.compile("[^\0-\ud7ff\ue000-\U0010ffff]")


@dataclass(frozen=True, eq=False)
class Vectors:
    """Spans and the vector of each, by one encoder.

    spans              Spans with one row per vector. Those of a corpus have the columns segment,
                       label (at the centre), labels (all that overlap) and, where folds were
                       given, fold. Times are null where only the vectors are known.
    matrix             (spans, dimensions)
    encoder            Name of the encoder.
    fingerprint        The same in all vectors of one encoder with one set of options and weights,
                       whatever its name; empty if unknown.
    joined_dimensions  Those of joined encoders, side by side, that an evaluation scales to equal
                       distances; empty where vectors are taken as they are.
    note               What people should know about how the vectors were made.
    """

    spans: Spans
    matrix: FloatMatrix
    encoder: str = ""
    fingerprint: str = ""
    joined_dimensions: tuple[int, ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        shape = self.matrix.shape
        if len(shape) != 2 or shape[0] != len(self.spans) or shape[1] == 0:
            raise InputError(
                f"{self.source}: column embedding: expected (segments, dimensions) of "
                f"{count_text(len(self.spans), 'segment')}, got shape {shape}"
            )
        if self.joined_dimensions and sum(self.joined_dimensions) != shape[1]:
            raise InputError(
                f"{self.source}: expected joined encoders that have {shape[1]} dimensions "
                f"together, got {self.joined_dimensions}"
            )

    @classmethod
    def from_columns(
        cls,
        encoder: str,
        matrix: ArrayLike,
        segment: Sequence[str],
        recording: Sequence[str],
        label: Sequence[str],
        labels: Sequence[Sequence[str]],
        fold: Sequence[int] | IntArray | None = None,
        *,
        source: str = "memory",
        **fields: Any,
    ) -> Self:
        """Make vectors of labelled segments from their columns; float32 stays, others are float64.

        >>> Vectors.from_columns("mfcc", [[1, 2]], ["s0"], ["a.wav"], ["roar"], [("roar",)])
        Vectors(mfcc: 1 segment × 2)
        """
        try:
            numbers = np.asarray(matrix)
            if numbers.dtype != np.float32:
                numbers = np.asarray(numbers, np.float64)
        except (ValueError, TypeError) as error:
            raise InputError(
                f"{source}: column embedding: expected numbers, as many in every row ({error})"
            ) from None
        if any(isinstance(names, str) for names in labels):
            raise InputError(
                f"{source}: column labels: expected a tuple of labels in each row, got text"
            )
        columns = {
            "recording": list(map(str, recording)),
            "label": list(map(str, label)),
            "segment": list(map(str, segment)),
            "labels": list(map(list, labels)),
        }
        if fold is not None:
            columns["fold"] = fold
        return cls(_make_spans(columns, source), numbers, encoder, **fields)

    @classmethod
    def from_frame(cls, frame: Any, *, encoder: str, source: str = "memory") -> Self:
        """Make vectors from a data frame with one row per segment.

        Parameters
        ----------
        frame : polars.DataFrame or pandas.DataFrame
            Its columns, of which others are ignored:

            - ``recording``: the file that the segment was cut from; text or integers.
            - ``label``: the label at the segment's centre; text or integers.
            - ``embedding``: a list of numbers; or columns ``e0``, ``e1``, ….
            - ``segment`` (optional): its id; no two are the same. Without it ids are the recording
              and a count, such as ``a.wav#0``.
            - ``labels`` (optional): all labels that overlap the segment; a list, or text with a
              JSON array or labels joined by ``;``.
            - ``fold`` (optional): any integers or names; -1 or empty for the common fold.
        encoder : str
            The name of the encoder that made the vectors.
        source : str, optional
            What errors begin with, such as the name of the file that the frame was read from.

        Returns
        -------
        Vectors
            float32 vectors stay float32, all other numbers become float64.

        Raises
        ------
        InputError
            If a column is missing, or if a value is not what it must be.

        Examples
        --------
        >>> frame = pl.DataFrame(
        ...     {"recording": ["a.wav", "a.wav"], "label": ["rumble", "roar"],
        ...      "e0": [1.0, 3.0], "e1": [2.0, 4.0]}
        ... )
        >>> vectors = Vectors.from_frame(frame, encoder="mfcc")
        >>> vectors.segment
        ('a.wav#0', 'a.wav#1')
        >>> vectors.matrix.tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        """
        frame = polars_frame(source, frame)
        frame = frame.select(select_columns(source, frame.columns))
        spans = read_columns(source, frame)
        return cls(spans, vector_matrix(source, frame), encoder)

    def to_frame(self) -> pl.DataFrame:
        """Return labelled vectors as a polars frame, with the columns that `from_frame` reads.

        Returns
        -------
        polars.DataFrame
            Columns recording, label, segment, labels, fold (where folds were given) and embedding.
            The name of the encoder is not in it.

        Examples
        --------
        >>> frame = pl.DataFrame(
        ...     {"recording": ["a.wav"], "label": ["roar"], "e0": [1.0], "e1": [2.0]}
        ... )
        >>> frame = Vectors.from_frame(frame, encoder="mfcc").to_frame()
        >>> frame.columns
        ['recording', 'label', 'segment', 'labels', 'embedding']
        >>> frame["embedding"].to_list()
        [[1.0, 2.0]]
        """
        frame = self.spans.frame.select("recording", "label", "segment", "labels")
        if self.fold is not None:
            frame = frame.with_columns(pl.Series("fold", self.fold))
        embedding = pl.Series("embedding", contiguous_floats(self.matrix))
        return frame.with_columns(embedding.arr.to_list())

    def __len__(self) -> int:
        return len(self.spans)

    def __repr__(self) -> str:
        segments, dimensions = self.matrix.shape
        count = count_text(segments, "segment")
        return f"Vectors({self.encoder}: {count} × {dimensions})"

    @property
    def source(self) -> str:
        """What errors begin with."""
        return self.spans.source

    @cached_property
    def segment(self) -> tuple[str, ...]:
        """The id of each segment."""
        return tuple(self.spans["segment"])

    @cached_property
    def recording(self) -> tuple[str, ...]:
        """The recording of each segment."""
        return tuple(self.spans["recording"])

    @cached_property
    def label(self) -> tuple[str, ...]:
        """The label at the centre of each segment."""
        return tuple(self.spans["label"])

    @cached_property
    def labels(self) -> tuple[tuple[str, ...], ...]:
        """All labels that overlap each segment."""
        return tuple(map(tuple, self.spans["labels"]))

    @cached_property
    def fold(self) -> IntArray | None:
        """The fold of each segment; None where none were given."""
        return given_folds(self.spans)

    def take(self, rows: Sequence[int] | NDArray[Any]) -> Self:
        """Return rows by their numbers, in that order."""
        return replace(self, spans=self.spans.take(rows), matrix=self.matrix[rows])

    def only(self, segments: Collection[str]) -> Self:
        """Return the rows of some segments, in the same order."""
        rows = [row for row, name in enumerate(self.segment) if name in segments]
        return self.take(rows)

    def with_columns(self, **columns: Any) -> Self:
        """Return vectors with columns of their spans added or replaced."""
        return replace(self, spans=self.spans.with_columns(**columns))


def concat_vectors(parts: Sequence[Vectors]) -> Vectors:
    """Concatenate vectors of one encoder; a column that a part does not have is empty there."""
    spans = concat_spans([part.spans for part in parts])
    matrix = np.concatenate([part.matrix for part in parts])
    return replace(parts[0], spans=spans, matrix=matrix)


def _make_spans(columns: dict[str, Any], source: str) -> Spans:
    """Return spans without times from columns of a table."""
    types = COLUMN_TYPES | {"fold": pl.Int64}
    series = [pl.Series(name, values, types[name]) for name, values in columns.items()]
    lengths = {column.name: len(column) for column in series}
    if len(set(lengths.values())) > 1:
        raise InputError(f"{source}: expected columns of one length, got {lengths}")
    unknown = pl.lit(None, pl.Float64)
    frame = pl.DataFrame(series).with_columns(start_s=unknown, end_s=unknown)
    return Spans(frame, source=source)


def select_columns(source: Source, names: Sequence[str]) -> list[str]:
    """Return which columns of a table are read; raise if one is missing."""
    columns = [*COLUMNS]
    if "embedding" not in names:
        count = len(set(filter(DIMENSION.fullmatch, names)))
        dimensions = [f"e{number}" for number in range(count)]
        # If their numbers have a gap, one of these is missing.
        check_columns(source, names, dimensions or ["embedding"])
        columns += dimensions
    check_columns(source, names, ["recording", "label"])
    return [name for name in columns if name in names]


def check_columns(
    source: Source, names: Sequence[str], required: Sequence[str]
) -> None:
    """Raise for the first required column that is missing, and suggest what to do."""
    for name in required:
        if name in names:
            continue
        hint = f"add it; the columns are {quote_names(names)}"
        spelling = {other.lower(): other for other in names if other not in COLUMNS}
        for similar in get_close_matches(name, spelling, n=1):
            hint = f"rename {spelling[similar]!r}, or {hint}"
        if len(names) == 1 and re.search("[;\t]", names[0]):
            hint = "save the file with commas between fields (and decimal points)"
        elif DIMENSION.fullmatch(name):
            hint = "expected dimensions e0, e1, … without a gap"
        raise InputError(f"{source}: column {name} is missing; {hint}")


def check_rows(
    source: Source,
    column: str,
    is_bad: ArrayLike,
    expected: str,
    values: Sequence[Any] | pl.Series,
    hint: str = "",
) -> None:
    """Raise for the first row that is bad, if there is one; `values` are what the rows have."""
    rows = np.flatnonzero(is_bad)
    if rows.size > 0:
        row = int(rows[0])
        raise InputError(
            f"{source}: column {column}, row {row + 1}: "
            f"expected {expected}, got {values[row]!r}{hint}"
        )


def text_column(source: Source, column: pl.Series, *, lists: bool = False) -> pl.Series:
    """Return a column of text or integers as text; with `lists` also a column of lists of them."""
    dtype: Any = column.dtype
    target: Any = pl.String
    if lists and isinstance(dtype, pl.List | pl.Array):
        dtype = dtype.inner
        target = pl.List(pl.String)
    is_text = isinstance(dtype, pl.String | pl.Categorical | pl.Enum | pl.Null)
    if not is_text and not dtype.is_integer():
        raise InputError(
            f"{source}: column {column.name}: expected text or integers, got {column.dtype}"
        )
    return column.cast(target)


def filled_column(source: Source, column: pl.Series) -> pl.Series:
    """Return a column of text in which no row may be blank."""
    text = text_column(source, column)
    blank = [not (entry or "").strip() for entry in text]
    hint = "; fill it in or leave out the row"
    check_rows(source, column.name, blank, "text", text, hint)
    return text


def read_columns(source: Source, frame: pl.DataFrame) -> Spans:
    """Check the columns of `Vectors.from_frame` except the vectors; return spans without times."""
    if frame.height == 0:
        raise InputError(
            f"{source}: the table has no rows; expected one for each segment"
        )
    columns: dict[str, Any] = {}
    columns["recording"] = filled_column(source, frame["recording"])
    columns["label"] = filled_column(source, frame["label"]).to_list()
    columns["labels"] = [[label] for label in columns["label"]]
    if "labels" in frame.columns:
        columns["labels"] = _read_labels(source, frame["labels"], columns["label"])
    if "fold" in frame.columns:
        columns["fold"] = _read_folds(source, frame["fold"])
    if "segment" in frame.columns:
        segment = filled_column(source, frame["segment"])
        is_repeated = ~segment.is_first_distinct()
        check_rows(source, "segment", is_repeated, "ids that differ", segment)
    else:
        count = pl.int_range(pl.len()).over("recording")
        segment = frame.select(pl.format("{}#{}", "recording", count)).to_series()
    columns["segment"] = segment
    return _make_spans(columns, str(source))


def _read_labels(
    source: Source, column: pl.Series, centre_labels: Sequence[str]
) -> list[list[str]]:
    """Return the labels of each row, each once; the one at the centre is added if it is missing."""
    entries = text_column(source, column, lists=True).to_list()
    labels = [_split_labels(entry) for entry in entries]
    blank = [not all(name and name.strip() for name in names) for names in labels]
    expected = "labels, none empty, in a list, a JSON array or joined by `;`"
    check_rows(source, "labels", blank, expected, entries)
    for centre_label, names in zip(centre_labels, labels, strict=True):
        if centre_label not in names:
            names.insert(0, centre_label)
    return [list(dict.fromkeys(names)) for names in labels]


def _read_folds(source: Source, column: pl.Series) -> list[int]:
    """Return the number of the fold of each row."""
    if column.dtype.is_float():  # as pandas has integers, if some are missing
        values = column.fill_nan(None)
        # Infinity and what is too large become missing, and differ from `values` then.
        whole = values.cast(pl.Int64, strict=False)
        is_whole = values.eq_missing(whole)  # also if both are missing
        check_rows(source, "fold", ~is_whole, "an integer or a name", column)
        column = whole
    return number_folds(text_column(source, column))


def _split_labels(entry: str | list[str] | None) -> list[str]:
    """Split text into labels; an empty label stands for what is not a list of them."""
    if not isinstance(entry, str):
        return entry or []
    text = entry.strip()
    if not text.startswith("["):
        return [name.strip() for name in text.split(";")] if text else []
    try:
        names = [str(name) if type(name) is int else name for name in json.loads(text)]
        if BROKEN_TEXT.search("".join(names)) is None:
            return names
    except (ValueError, TypeError, RecursionError):
        pass
    return [""]


def vector_matrix(source: Source, frame: pl.DataFrame) -> FloatMatrix:
    """Return the vectors of a frame, from the lists in `embedding` or from columns e0, e1, ….

    They are (rows, dimensions); InputError if a number is not finite.
    """
    if "embedding" in frame.columns:
        lists = frame["embedding"]
        matrix = _read_lists(source, lists)
        read_row: Any = lists.__getitem__
    else:
        cells = frame.select(f"^{DIMENSION.pattern}$")
        matrix = _read_dimensions(source, cells)
        read_row = cells.row
    finite = np.isfinite(matrix)
    if not finite.all():
        row, dimension = divmod(int(np.argmin(finite)), matrix.shape[1])
        written = read_row(row)[dimension]  # what is no number is NaN in the matrix
        raise InputError(
            f"{source}: column embedding, row {row + 1}, dimension e{dimension}: expected a finite "
            f"number, got {written!r}; correct it or leave out the row"
        )
    return matrix


def _read_lists(source: Source, lists: pl.Series) -> FloatMatrix:
    """Return lists of numbers as a matrix; InputError unless all have one length above 0."""
    if isinstance(lists.dtype, pl.Array):
        lists = lists.arr.to_list()
    if not isinstance(lists.dtype, pl.List) or not lists.dtype.inner.is_numeric():
        raise InputError(
            f"{source}: column embedding: expected lists of numbers, got {lists.dtype}"
        )
    widths = lists.list.len().fill_null(0)
    expected = "a vector with at least one dimension"
    check_rows(source, "embedding", widths == 0, expected, widths)
    expected = f"{widths[0]} numbers as in row 1"
    check_rows(source, "embedding", widths != widths[0], expected, widths)
    numbers = lists.explode()
    if numbers.dtype != pl.Float32:
        numbers = numbers.cast(pl.Float64)
    return contiguous_floats(numbers.to_numpy()).reshape(len(lists), -1)


def _read_dimensions(source: Source, cells: pl.DataFrame) -> FloatMatrix:
    """Return columns of numbers, or of texts of numbers, as a matrix; other texts become NaN."""
    for name, dtype in cells.schema.items():
        if not isinstance(dtype, pl.String) and not dtype.is_numeric():
            raise InputError(f"{source}: column {name}: expected numbers, got {dtype}")
    as_floats = cells
    if set(cells.dtypes) != {pl.Float32}:
        text = pl.col(pl.String).str.strip_chars()
        as_floats = cells.with_columns(text).cast(pl.Float64, strict=False)
    return contiguous_floats(as_floats.to_numpy())


def contiguous_floats(vectors: NDArray[Any]) -> FloatMatrix:
    """Return vectors row by row in memory: float32 if they are of four bytes, else float64."""
    if vectors.dtype.kind == "f" and vectors.dtype.itemsize == 4:
        return np.ascontiguousarray(vectors, np.float32)
    return np.ascontiguousarray(vectors, np.float64)


def polars_frame(source: Source, frame: Any) -> pl.DataFrame:
    """Return a polars frame as it is, and a pandas frame as a polars one, without its index."""
    if isinstance(frame, pl.DataFrame):
        return frame
    try:
        return pl.from_pandas(frame)
    except Exception as error:
        raise InputError(
            f"{source}: expected a polars or pandas data frame, "
            f"got {type(frame).__name__} ({error})"
        ) from error
