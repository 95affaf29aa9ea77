"""Small files beside a table: folds for its segments, and the categories of its labels.

fold file    segment,fold  or  recording,fold     the `folds.csv` of an earlier run is one
categories   label,category                       labels without a row belong to none
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from callshot.encoders.table import csv_rows, refuse_missing
from callshot.errors import InputError
from callshot.records import Embeddings, IntArray


def read_folds(path: Path, table: Embeddings) -> IntArray:
    """Return the fold that a file gives each segment of a table, by segment id where it has that column."""
    rows = _rows(path, ("fold",))
    by = "segment" if "segment" in rows[0] else "recording"
    refuse_missing(path, list(rows[0]), (by,))
    folds = {row[by]: _fold(path, number, row["fold"]) for number, row in enumerate(rows, 1)}
    _refuse_change(path, rows, by, "fold")
    names = table.segment if by == "segment" else table.recording
    for row, name in enumerate(names, 1):
        if name not in folds:
            raise InputError(f"{path}: column {by}: {name!r} is missing (row {row} of {table.source}); add its fold")
    return np.array([folds[name] for name in names], np.int64)


def read_categories(path: Path, table: Embeddings) -> dict[str, str]:
    """Return the category of each label; a label that no segment carries is refused, as a slip of the pen."""
    rows = _rows(path, ("label", "category"))
    known = set(table.label)
    for number, row in enumerate(rows, 1):
        for column in ("label", "category"):
            if not row[column].strip():
                raise InputError(f"{path}: column {column}, row {number}: wanted text, found none")
        if row["label"] not in known:
            raise InputError(f"{path}: column label, row {number}: no segment has the label {row['label']!r}")
    _refuse_change(path, rows, "label", "category")
    return {row["label"]: row["category"] for row in rows}


def _rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    try:
        header, *rows = list(csv_rows(path)) or [[]]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file ({error})") from error
    refuse_missing(path, header, needed)
    if not rows:
        raise InputError(f"{path}: the file has no rows")
    return [dict(zip(header, cells, strict=True)) for cells in rows]


def _refuse_change(path: Path, rows: Sequence[dict[str, str]], key: str, column: str) -> None:
    """Refuse a file that says two things of one name."""
    first: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        before = first.setdefault(row[key], row[column])
        if before != row[column]:
            found = f"{row[key]!r} had {before!r} before, now {row[column]!r}"
            raise InputError(f"{path}: column {column}, row {number}: {found}")


def _fold(path: Path, row: int, text: str) -> int:
    try:
        if len(text) > 9:
            raise ValueError
        return int(text)
    except ValueError:
        raise InputError(
            f"{path}: column fold, row {row}: wanted an integer, −1 for the common fold, found {text!r}"
        ) from None
