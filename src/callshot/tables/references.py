"""A CSV file with scores of classifiers that were trained elsewhere → rows of the BASELINES schema."""

from collections.abc import Collection
from pathlib import Path

import polars as pl

from callshot.errors import InputError
from callshot.records import BASELINE_KINDS, RANKING_METRICS
from callshot.records.frames import BASELINES
from callshot.tables.fold_files import read_csv_rows

Row = dict[str, str]
Key = tuple[str, ...]

COLUMNS = ("encoder", "kind", "name", "metric", "value")
SCORINGS = ("all", "reduced")


def read_references(
    path: Path, corpora: Collection[str], encoders: Collection[str]
) -> pl.DataFrame:
    """Read the scores of trained classifiers, for the corpora and encoders of a study.

    A row without a corpus is for each corpus that has no such row of its own. Its encoder is one of
    the study's, or empty for a classifier that reads audio. Two rows with the same corpus, encoder,
    name, scoring and metric are an error.
    """
    rows: dict[Key, Row] = {}
    for number, row in enumerate(read_csv_rows(path, COLUMNS), 1):
        row = {"corpus": "", "scoring": "", **row}
        row["scoring"] = row["scoring"] or "all"
        _check_row(path, number, row, corpora, encoders)
        if rows.setdefault(_key(row, row["corpus"]), row) is not row:
            raise InputError(
                f"{path}: row {number}: {row['name']!r} has the same row before; keep one of them"
            )
    references = []
    for row in rows.values():
        for corpus in [row["corpus"]] if row["corpus"] else corpora:
            if rows.get(_key(row, corpus), row) is row:
                references.append({**row, "corpus": corpus, "value": float(row["value"]), "how": ""})
    return pl.DataFrame(references, schema=dict(BASELINES))


def _key(row: Row, corpus: str) -> Key:
    return (corpus, row["encoder"], row["name"], row["scoring"], row["metric"])


def _check_row(
    path: Path, number: int, row: Row, corpora: Collection[str], encoders: Collection[str]
) -> None:
    choices = {
        "kind": BASELINE_KINDS,
        "metric": RANKING_METRICS,
        "scoring": SCORINGS,
        "corpus": (*corpora, ""),
        "encoder": (*sorted(encoders), ""),
    }
    for column, allowed in choices.items():
        if row[column] not in allowed:
            expected = ", ".join(name or "nothing" for name in allowed)
            raise InputError(
                f"{path}: column {column}, row {number}: expected one of {expected}, "
                f"got {row[column]!r}"
            )
    name = row["name"]
    if not name.strip() or name in encoders:
        raise InputError(
            f"{path}: column name, row {number}: expected a name that no encoder of the study has, "
            f"got {name!r}"
        )
    try:
        is_share = 0 <= float(row["value"]) <= 1
    except ValueError:
        is_share = False
    if not is_share:
        raise InputError(
            f"{path}: column value, row {number}: expected a number from 0 to 1, got {row['value']!r}"
        )
