"""Small files beside a table: folds, categories, and reference results of trained classifiers.

folds        segment,fold  or  recording,fold     integers or names; −1 or empty: the common fold
categories   label,category                       labels without a row have none
references   encoder,kind,name,metric,value       optionally corpus and scoring
"""

import json
from collections.abc import Collection, Sequence
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.annotations.rows import read_table
from callshot.errors import InputError
from callshot.records import (
    BASELINE_KINDS,
    RANKING_METRICS,
    Folds,
    IntArray,
    number_folds,
)
from callshot.records.frames import BASELINES
from callshot.spans import Spans
from callshot.tables.embedding_tables import check_repeated
from callshot.vectors import Vectors, check_columns, check_rows

Rows = list[dict[str, str]]

FOLDS = "folds.csv"
FOLDS_INFO = "folds.json"  # how many folds there are, and how they were made
SCORINGS = ("all", "reduced")
REFERENCE_KEY = ("corpus", "encoder", "name", "scoring", "metric")
# What is not known of a classifier that was trained elsewhere.
NOT_RESAMPLED = {
    "p01": np.nan,
    "p99": np.nan,
    "how": "",
    "samples": [],
    "mean_samples": [],
}


def read_folds(path: Path, segments: Spans) -> IntArray:
    """Return the number of the fold of each segment; −1 is the common fold.

    The file has a row for each segment, or else for each recording.
    """
    rows = read_csv_records(path, ["fold"])
    key = "segment" if "segment" in rows[0] else "recording"
    check_columns(path, list(rows[0]), [key])
    folds = _map_column(path, rows, key, "fold")  # by segment, or by recording
    names = segments[key]
    for row, name in enumerate(names, 1):
        if name not in folds:
            raise InputError(
                f"{path}: column {key}: {name!r} is missing (row {row} of {segments.source}); "
                "add its fold"
            )
    return np.array(number_folds(folds[name] for name in names), np.int64)


def read_folds_dir(folder: Path, table: Vectors) -> tuple[Vectors, Folds]:
    """Return the segments that have a fold in a folder of a study, and these folds."""
    info = json.loads((folder / FOLDS_INFO).read_bytes())
    path = folder / FOLDS
    rows = read_csv_records(path, ["segment", "fold"])
    segments = {row["segment"] for row in rows}
    with_fold = table.only(segments)
    fold = read_folds(path, with_fold.spans)
    folds = Folds(fold, info["count"], info["origin"], info["proof"])
    return with_fold, folds


def take_recordings(path: Path, table: Vectors) -> Vectors:
    """Return a table with the recordings that a file of folds names, if that is by segment.

    Such a file may put several recordings together under one name.
    """
    rows = read_csv_records(path, ["fold"])
    if not {"segment", "recording"} <= rows[0].keys():
        return table
    recordings = _map_column(path, rows, "segment", "recording")
    return table.with_columns(recording=[recordings[name] for name in table.segment])


def read_categories(path: Path, segments: Spans) -> dict[str, str]:
    """Return the category of each label; a label that no segment has is an error, likely a typo."""
    rows = read_csv_records(path, ["label", "category"])
    categories = [row["category"] for row in rows]
    is_blank = [not category.strip() for category in categories]
    check_rows(path, "category", is_blank, "text", categories)
    labels = [row["label"] for row in rows]
    known_labels = set(segments["label"])
    is_unknown = [label not in known_labels for label in labels]
    check_rows(path, "label", is_unknown, "a label that a segment has", labels)
    return _map_column(path, rows, "label", "category")


def read_reference_scores(
    path: Path, corpora: Collection[str], encoders: Collection[str]
) -> pl.DataFrame:
    """Return scores of trained classifiers as BASELINES, a row for each corpus.

    A row of the file without a corpus is for all `corpora` that have no row of their own.
    """
    rows = read_csv_records(path, ["encoder", "kind", "name", "metric", "value"])
    for row in rows:
        row["corpus"] = row.get("corpus", "")
        row["scoring"] = row.get("scoring") or "all"
    _check_references(path, rows, corpora, encoders)
    row_of_key = {}
    for number, row in enumerate(rows, 1):
        key = tuple(row[name] for name in REFERENCE_KEY)
        if key in row_of_key:
            raise InputError(
                f"{path}: row {number}: {row['name']!r} is there already with the same corpus, "
                "encoder, scoring and metric; keep one row"
            )
        row_of_key[key] = row
    references = []
    for (_, *rest), row in row_of_key.items():
        row_corpora = [row["corpus"]] if row["corpus"] else corpora
        for corpus in row_corpora:
            # A row of the corpus itself goes before one without a corpus.
            if row_of_key.get((corpus, *rest), row) is row:
                reference = {**row, "corpus": corpus, "value": float(row["value"])}
                references.append(reference | NOT_RESAMPLED)
    return pl.DataFrame(references, schema=dict(BASELINES))


def _check_references(
    path: Path, rows: Rows, corpora: Collection[str], encoders: Collection[str]
) -> None:
    """Raise InputError for the first cell of reference scores that is not what it must be."""
    choices = {
        "kind": BASELINE_KINDS,
        "metric": RANKING_METRICS,
        "scoring": SCORINGS,
        "corpus": [*corpora, ""],
        "encoder": [*sorted(encoders), ""],
    }
    for column, allowed in choices.items():
        cells = [row[column] for row in rows]
        is_other = [cell not in allowed for cell in cells]
        listed = ", ".join(choice or "nothing" for choice in allowed)
        check_rows(path, column, is_other, f"one of {listed}", cells)
    names = [row["name"] for row in rows]
    is_taken = [name.strip() in {*encoders, ""} for name in names]
    check_rows(path, "name", is_taken, "a name that no encoder of the study has", names)
    values = [row["value"] for row in rows]
    is_wrong = [not _is_share(value) for value in values]
    check_rows(path, "value", is_wrong, "a number from 0 to 1", values)


def _is_share(text: str) -> bool:
    """Return whether a text is a number from 0 to 1."""
    try:
        return 0 <= float(text) <= 1
    except ValueError:
        return False


def _map_column(
    path: Path, rows: Rows, key_column: str, value_column: str
) -> dict[str, str]:
    """Return the cells of one column by those of another, in the same row.

    InputError if rows with one key have different values.
    """
    values: dict[str, str] = {}
    for number, row in enumerate(rows, 1):
        key = row[key_column]
        value = row[value_column]
        first = values.setdefault(key, value)
        if first != value:
            raise InputError(
                f"{path}: column {value_column}, row {number}: expected {first!r} for {key!r} as "
                f"before, got {value!r}"
            )
    return values


def read_csv_records(path: Path, required: Sequence[str]) -> list[dict[str, str]]:
    """Return rows as cells by column; InputError without rows or a required column."""
    _, lines = read_table(path, [])
    header, *rows = [cells for _, cells in lines]
    check_columns(path, header, required)
    check_repeated(path, header, list(filter(None, header)))
    if not rows:
        raise InputError(f"{path}: the file has no rows")
    for number, cells in enumerate(rows, 1):
        if len(cells) != len(header):
            raise InputError(
                f"{path}: row {number}: expected {len(header)} fields as in the header, "
                f"got {len(cells)}"
            )
    return [dict(zip(header, cells, strict=True)) for cells in rows]
