"""Small files beside a table: folds for its segments, the categories of its labels, and what rivals scored on it.

fold file    segment,fold  or  recording,fold          the `folds.csv` of an earlier run is one
categories   label,category                            labels without a row belong to none
rivals       encoder,kind,name,metric,value            and optionally corpus and scoring; see `Rival`
"""

import csv
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from callshot.errors import InputError
from callshot.records import COMMON_FOLD, Embeddings, Folds, IntArray
from callshot.tables.embedding_tables import csv_rows, refuse_missing

FOLDS, FOLDS_INFO = "folds.csv", "folds.json"  # what the folds are, and how they came about
BASELINES = ("logistic", "recurrent", "end-to-end")


def read_folds(path: Path, table: Embeddings) -> IntArray:
    """Return the fold that a file gives each segment of a table, by segment id where it has that column."""
    rows = read_csv_rows(path, ("fold",))
    by = "segment" if "segment" in rows[0] else "recording"
    refuse_missing(path, list(rows[0]), (by,))
    folds = {row[by]: _fold(path, number, row["fold"]) for number, row in enumerate(rows, 1)}
    _refuse_change(path, rows, by, "fold")
    names = table.segment if by == "segment" else table.recording
    for row, name in enumerate(names, 1):
        if name not in folds:
            raise InputError(
                f"{path}: column {by}: {name!r} is missing (row {row} of {table.source}); add its fold"
            )
    return np.array([folds[name] for name in names], np.int64)


def read_folds_dir(folder: Path, table: Embeddings) -> tuple[Embeddings, Folds]:
    """Return the part of a table that the folds in a folder are of, and those folds, as they came about."""
    rows, told = read_csv_rows(folder / FOLDS, ("segment", "fold")), _read_dealing(folder / FOLDS_INFO)
    part = table.only({row["segment"] for row in rows})
    folds = Folds(read_folds(folder / FOLDS, part), told["count"], told["origin"], told["proof"])
    found = sorted(set(folds.fold.tolist()) - {COMMON_FOLD})
    if found != list(range(folds.count)):
        text = ", ".join(map(str, found[:12])) or "none"
        raise InputError(
            f"{folder / FOLDS}: wanted the {folds.count} folds that {FOLDS_INFO} tells of, numbered from 0, found {text}; "
            "deal them again"
        )
    return part, folds


def read_categories(path: Path, table: Embeddings) -> dict[str, str]:
    """Return the category of each label; a label that no segment carries is refused, as a slip of the pen."""
    rows = read_csv_rows(path, ("label", "category"))
    known = set(table.label)
    for number, row in enumerate(rows, 1):
        for column in ("label", "category"):
            if not row[column].strip():
                raise InputError(f"{path}: column {column}, row {number}: wanted text, found none")
        if row["label"] not in known:
            raise InputError(
                f"{path}: column label, row {number}: no segment has the label {row['label']!r}"
            )
    _refuse_change(path, rows, "label", "category")
    return {row["label"]: row["category"] for row in rows}


def _read_dealing(path: Path) -> dict[str, Any]:
    """Read how folds came about: their number, and in words from where they are and how good."""
    try:
        told = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path}: not a JSON file ({error}); deal the folds again") from error
    for name, kind in (("count", int), ("origin", str), ("proof", str)):
        found = told.get(name) if isinstance(told, dict) else None
        if type(found) is not kind:
            wanted = "an integer" if kind is int else "text"
            raise InputError(
                f"{path}: {name}: wanted {wanted}, found {json.dumps(found)[:60]}; deal the folds again"
            )
    return dict(told)


def read_csv_rows(path: Path, needed: Sequence[str]) -> list[dict[str, str]]:
    """Read a small CSV file with a header; check its columns."""
    try:
        header, *rows = list(csv_rows(path)) or [[]]
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    except csv.Error as error:
        raise InputError(f"{path}: not a CSV file ({error})") from error
    refuse_missing(path, header, needed)
    for name in header:
        if name and header.count(name) > 1:  # a column without a name is not read
            raise InputError(
                f"{path}: column {name} is in the header {header.count(name)} times; keep one of them"
            )
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
