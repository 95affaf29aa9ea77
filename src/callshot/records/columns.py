"""Columns of a data frame → the checked columns of a table of embeddings.

`source` is what errors begin with: a file, or "memory". Rows are counted from 1.
"""

import json
import re
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError, quote_names
from callshot.records.terms import number_folds

Source = str | Path
FloatMatrix = NDArray[np.floating[Any]]

COLUMNS = ("recording", "label", "segment", "labels", "fold", "embedding")
DIMENSION = re.compile("e(0|[1-9][0-9]*)")
# Half surrogates, and what is beyond Unicode.
BROKEN_TEXT = re.compile("[^\0-\ud7ff\ue000-\U0010ffff]")


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
        if name in names:
            continue
        hint = f"add it; the columns are {quote_names(names) or 'none'}"
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


def table_columns(source: Source, frame: pl.DataFrame) -> dict[str, Any]:
    """Return the columns of a table but its vectors, by the names of the fields of Embeddings."""
    if frame.height == 0:
        raise InputError(
            f"{source}: the table has no rows; expected one for each segment"
        )
    recording = filled_column(source, frame["recording"])
    label = filled_column(source, frame["label"]).to_list()
    fields = {"recording": recording, "label": label}

    labels = [[name] for name in label]
    if "labels" in frame.columns:
        entries = text_column(source, frame["labels"], lists=True).to_list()
        labels = [_split_labels(entry) for entry in entries]
        blank = [not all(name and name.strip() for name in names) for names in labels]
        expected = "labels, none empty, in a list, a JSON array or joined by `;`"
        check_rows(source, "labels", blank, expected, entries)
        for centre, names in zip(label, labels, strict=True):
            if centre not in names:
                names.insert(0, centre)
    fields["labels"] = tuple(tuple(dict.fromkeys(names)) for names in labels)

    if "fold" in frame.columns:
        fold = frame["fold"]
        if fold.dtype.is_float():  # as pandas has integers, if some are missing
            whole = fold.cast(pl.Int64, strict=False)
            bad = ~(fold.is_nan() | (fold == whole)).fill_null(value=True)
            check_rows(source, "fold", bad, "an integer or a name", fold)
            fold = whole
        numbers = number_folds(text_column(source, fold))
        fields["fold"] = np.array(numbers, np.int64)

    if "segment" in frame.columns:
        segment = filled_column(source, frame["segment"])
        is_repeated = ~segment.is_first_distinct()
        check_rows(source, "segment", is_repeated, "ids that differ", segment)
    else:
        count = pl.int_range(pl.len()).over("recording")
        segment = frame.select(pl.format("{}#{}", "recording", count)).to_series()
    return {**fields, "segment": segment}


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
    """Return the vectors of a frame, from the lists in `embedding` or from columns e0, e1, …."""
    if "embedding" in frame.columns:
        lists = frame["embedding"]
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
        matrix = contiguous_floats(numbers.to_numpy()).reshape(len(lists), -1)
        read_row: Any = lists.__getitem__
    else:
        cells = frame.select(f"^{DIMENSION.pattern}$")
        for name, dtype in cells.schema.items():
            if not isinstance(dtype, pl.String) and not dtype.is_numeric():
                raise InputError(
                    f"{source}: column {name}: expected numbers, got {dtype}"
                )
        as_floats = cells
        if set(cells.dtypes) != {pl.Float32}:
            text = pl.col(pl.String).str.strip_chars()
            as_floats = cells.with_columns(text).cast(pl.Float64, strict=False)
        matrix = contiguous_floats(as_floats.to_numpy())
        read_row = cells.row
    finite = np.isfinite(matrix)
    if not finite.all():
        row, dimension = divmod(int(np.argmin(finite)), matrix.shape[1])
        raise InputError(
            f"{source}: column embedding, row {row + 1}, dimension e{dimension}: expected a finite "
            f"number, got {read_row(row)[dimension]!r}; correct it or leave out the row"
        )
    return matrix


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
