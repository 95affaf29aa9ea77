"""Columns of a data frame → the checked columns of a table of embeddings.

`source` is what errors begin with: a file, or "memory". Rows are counted from 1.
"""

import json
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError
from callshot.records.terms import number_folds

Source = str | Path
Labels = tuple[tuple[str, ...], ...]
FloatMatrix = NDArray[np.floating[Any]]

COLUMNS = ("recording", "label", "segment", "labels", "fold", "embedding")
DIMENSION = re.compile("e(0|[1-9][0-9]*)")
# Half surrogates, and what is beyond Unicode.
BROKEN_TEXT = re.compile("[^\0-\ud7ff\ue000-\U0010ffff]")
SEPARATORS = {";": "semicolons", "\t": "tabs"}
LISTED_NAMES = 8


def select_columns(source: Source, names: Sequence[str]) -> list[str]:
    """Return which columns of a table are read; raise if one is missing."""
    columns = [*COLUMNS]
    if "embedding" not in names:
        count = len(set(filter(DIMENSION.fullmatch, names)))
        dimensions = [f"e{number}" for number in range(count)]
        check_columns(source, names, dimensions or ["embedding"])
        columns += dimensions
    check_columns(source, names, ["recording", "label"])
    return [name for name in columns if name in names]


def check_columns(
    source: Source, names: Sequence[str], required: Sequence[str]
) -> None:
    """Raise for the first required column that is missing, and suggest what to do."""
    for name in required:
        if name not in names:
            hint = _missing_hint(name, names)
            raise InputError(f"{source}: column {name} is missing; {hint}")


def _missing_hint(name: str, names: Sequence[str]) -> str:
    if len(names) == 1:
        for separator, word in SEPARATORS.items():
            if separator in names[0]:
                return (
                    f"the fields seem to be separated by {word}: "
                    "save the file with commas (and decimal points)"
                )
    if DIMENSION.fullmatch(name):
        numbered = [other[:20] for other in names if re.fullmatch("e[0-9]+", other)]
        if numbered:
            return (
                "expected dimensions e0, e1, … without a gap, "
                f"got {numbered[0]} to {numbered[-1]}"
            )
    listed = ", ".join(map(repr, names[:LISTED_NAMES])) or "none"
    if len(names) > LISTED_NAMES:
        listed += ", …"
    return f"{_suggest_rename(name, names)}add it; the columns are {listed}"


def _suggest_rename(name: str, names: Sequence[str]) -> str:
    spelling = {other.lower(): other for other in names if other not in COLUMNS}
    for similar in get_close_matches(name, spelling, n=1):
        return f"rename {spelling[similar]!r}, or "
    return ""


def check_rows(
    source: Source,
    column: str,
    bad: ArrayLike,
    expected: str,
    values: Sequence[Any] | pl.Series,
    hint: str = "",
) -> None:
    """Raise for the first row that is bad, if there is one."""
    rows = np.flatnonzero(bad)
    if rows.size > 0:
        row = int(rows[0])
        raise InputError(
            f"{source}: column {column}, row {row + 1}: "
            f"expected {expected}, got {values[row]!r}{hint}"
        )


def text_column(source: Source, column: pl.Series, *, lists: bool = False) -> pl.Series:
    """Return a column of text or integers as text; with `lists` also a column of lists of them."""
    dtype = column.dtype
    target: Any = pl.String
    if lists and isinstance(dtype, pl.List | pl.Array):
        dtype = dtype.inner  # type: ignore[assignment]
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


def segment_column(source: Source, frame: pl.DataFrame) -> pl.Series:
    """Return the ids of segments; without them the recording and a count, "a.wav#0"."""
    if "segment" not in frame.columns:
        count = pl.int_range(pl.len()).over("recording")
        return frame.select(pl.format("{}#{}", "recording", count)).to_series()
    segment = filled_column(source, frame["segment"])
    first_rows: dict[str, int] = {}
    for row, name in enumerate(segment, 1):
        first_row = first_rows.setdefault(name, row)
        if first_row != row:
            raise InputError(
                f"{source}: column segment, row {row}: expected ids that differ, "
                f"got {name!r} as in row {first_row}"
            )
    return segment


def labels_column(source: Source, label: Sequence[str], column: pl.Series) -> Labels:
    """Return the labels of each row; a centre label that is not among them comes first."""
    entries = text_column(source, column, lists=True).to_list()
    rows = [_split_labels(entry) for entry in entries]
    blank = [not all(name and name.strip() for name in row) for row in rows]
    expected = "labels, none empty, in a list, a JSON array or joined by `;`"
    check_rows(source, "labels", blank, expected, entries)
    for centre, names in zip(label, rows, strict=True):
        if centre not in names:
            names.insert(0, centre)
    return tuple(tuple(dict.fromkeys(names)) for names in rows)


def _split_labels(entry: str | list[str] | None) -> list[str]:
    """Split text into labels; an empty label stands for what is not a list of them."""
    if not isinstance(entry, str):
        return entry or []
    text = entry.strip()
    if not text:
        return []
    if not text.startswith("["):
        return [name.strip() for name in text.split(";")]
    try:
        names = [str(name) if type(name) is int else name for name in json.loads(text)]
        if BROKEN_TEXT.search("".join(names)) is None:
            return names
    except (ValueError, TypeError, RecursionError):
        pass
    return [""]


def fold_column(source: Source, column: pl.Series) -> NDArray[np.int64]:
    """Return the number of the fold of each row; -1 is the common fold.

    Folds are integers or names; a cell that is empty is in the common fold.
    """
    if column.dtype.is_float():  # as pandas has integers, if some are missing
        whole = column.cast(pl.Int64, strict=False)
        is_whole = column.is_nan() | (column == whole)
        bad = ~is_whole.fill_null(value=True)
        check_rows(source, "fold", bad, "an integer or a name", column)
        column = whole
    return np.array(number_folds(text_column(source, column)), np.int64)


def vector_matrix(source: Source, frame: pl.DataFrame) -> FloatMatrix:
    """Return the vectors of a frame, from the lists in `embedding` or from columns e0, e1, …."""
    if "embedding" in frame.columns:
        return _matrix_from_lists(source, frame["embedding"])
    dimensions = list(filter(DIMENSION.fullmatch, frame.columns))
    cells = frame.select(dimensions)
    for name, dtype in cells.schema.items():
        if not isinstance(dtype, pl.String) and not dtype.is_numeric():
            raise InputError(f"{source}: column {name}: expected numbers, got {dtype}")
    numbers = cells
    if set(cells.dtypes) != {pl.Float32}:
        text = pl.col(pl.String).str.strip_chars()
        numbers = cells.with_columns(text).cast(pl.Float64, strict=False)
    matrix = contiguous_floats(numbers.to_numpy())
    _check_finite(source, matrix, cells.row)
    return matrix


def _matrix_from_lists(source: Source, lists: pl.Series) -> FloatMatrix:
    if isinstance(lists.dtype, pl.Array):
        lists = lists.arr.to_list()
    if not isinstance(lists.dtype, pl.List) or not lists.dtype.inner.is_numeric():
        raise InputError(
            f"{source}: column embedding: expected lists of numbers, got {lists.dtype}"
        )
    width = _check_widths(source, lists)
    numbers = lists.explode()
    if numbers.dtype != pl.Float32:
        numbers = numbers.cast(pl.Float64)
    matrix = contiguous_floats(numbers.to_numpy()).reshape(len(lists), width)
    _check_finite(source, matrix, lists.__getitem__)
    return matrix


def _check_widths(source: Source, lists: pl.Series) -> int:
    """Return how many numbers every list has; raise if one has none or another number."""
    widths = lists.list.len().fill_null(0)
    first: int = widths[0]
    expected = "a vector with at least one dimension"
    check_rows(source, "embedding", widths == 0, expected, widths)
    expected = f"{first} numbers as in row 1"
    check_rows(source, "embedding", widths != first, expected, widths)
    return first


def _check_finite(
    source: Source, matrix: FloatMatrix, read_row: Callable[[int], Sequence[object]]
) -> None:
    finite = np.isfinite(matrix)
    if not finite.all():
        row, dimension = divmod(int(np.argmin(finite)), matrix.shape[1])
        value = read_row(row)[dimension]
        raise InputError(
            f"{source}: column embedding, row {row + 1}, dimension e{dimension}: expected a finite "
            f"number, got {value!r}; correct it or leave out the row"
        )


def parse_dimensions(source: Source, text: str) -> tuple[int, ...]:
    """Return the dimensions of joined encoders, which the metadata of a table gives as 1024,40."""
    parts = text.split(",") if text else []
    if not all(part.isascii() and part.isdigit() for part in parts):
        raise InputError(
            f"{source}: metadata views: expected whole numbers like 1024,40, got {text!r}"
        )
    return tuple(map(int, parts))


def contiguous_floats(vectors: NDArray[Any]) -> FloatMatrix:
    """Return vectors row by row in memory: float32 if they are of four bytes, else float64."""
    if vectors.dtype.kind == "f" and vectors.dtype.itemsize == 4:
        return np.ascontiguousarray(vectors, np.float32)
    return np.ascontiguousarray(vectors, np.float64)


def table_columns(source: Source, frame: pl.DataFrame) -> dict[str, Any]:
    """Return the columns of a table but its vectors, by the names of the fields of Embeddings."""
    if frame.height == 0:
        raise InputError(
            f"{source}: the table has no rows; expected one for each segment"
        )
    recording = filled_column(source, frame["recording"])
    label = filled_column(source, frame["label"]).to_list()
    labels: Labels = tuple((name,) for name in label)
    if "labels" in frame.columns:
        labels = labels_column(source, label, frame["labels"])
    fields = {"recording": recording, "label": label, "labels": labels}
    if "fold" in frame.columns:
        fields["fold"] = fold_column(source, frame["fold"])
    return {**fields, "segment": segment_column(source, frame)}


def polars_frame(source: Source, frame: Any) -> pl.DataFrame:
    """Return a polars frame as it is, and a pandas frame as a polars one, without its index."""
    if isinstance(frame, pl.DataFrame):
        return frame
    try:
        columns = {}
        for name in frame.columns:
            column = frame[name].astype(object)
            columns[str(name)] = column.where(column.notna(), None).to_list()
        return pl.DataFrame(columns, strict=False)
    except Exception as error:
        raise InputError(
            f"{source}: expected a polars or pandas data frame, "
            f"got {type(frame).__name__} ({error})"
        ) from error
