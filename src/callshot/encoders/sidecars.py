"""Small files beside a table: folds for its segments, and the categories of its labels.

fold file    segment,fold  or  recording,fold     the `folds.csv` of an earlier run is one
categories   label,category                       labels without a row belong to none
"""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from callshot.errors import InputError
from callshot.records import Embeddings, IntArray


def read_folds(path: Path, table: Embeddings) -> IntArray:
    """Return the fold that a file gives each segment of a table, by segment id where it has that column."""
    rows = _rows(path, ("fold",))
    by = "segment" if "segment" in rows[0] else "recording"
    _refuse_missing(path, list(rows[0]), (by,))
    folds = {row[by]: _fold(path, number, row["fold"]) for number, row in enumerate(rows, 1)}
    _refuse_change(path, rows, by, "fold", [row["fold"] for row in rows])
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
    _refuse_change(path, rows, "label", "category", [row["category"] for row in rows])
    return {row["label"]: row["category"] for row in rows}


def _rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            reader = csv.DictReader(lines, restkey="", strict=True)
            rows = [{k: v or "" for k, v in row.items() if isinstance(v, str | None)} for row in reader]
            _refuse_missing(path, list(reader.fieldnames or ()), needed)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: not a CSV file in UTF-8 ({error})") from error
    if not rows:
        raise InputError(f"{path}: the file has no rows")
    return rows


def _refuse_missing(path: Path, names: Sequence[str], needed: Sequence[str]) -> None:
    for name in needed:
        if name not in names:
            raise InputError(
                f"{path}: column {name} is missing; the columns are {', '.join(map(repr, names)) or 'none'}"
            )


def _refuse_change(path: Path, rows: Sequence[dict[str, str]], key: str, column: str, values: Sequence[str]) -> None:
    """Refuse a file that says two things of one name."""
    first: dict[str, str] = {}
    for number, (row, value) in enumerate(zip(rows, values, strict=True), 1):
        if first.setdefault(row[key], value) != value:
            raise InputError(
                f"{path}: column {column}, row {number}: {row[key]!r} had {first[row[key]]!r} before, now {value!r}"
            )


def _fold(path: Path, row: int, text: str) -> int:
    try:
        if len(text) > 9:
            raise ValueError
        return int(text)
    except ValueError:
        raise InputError(
            f"{path}: column fold, row {row}: wanted an integer, −1 for the common fold, found {text!r}"
        ) from None
