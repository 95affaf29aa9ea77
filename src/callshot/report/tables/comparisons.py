"""Results of a corpus → tables of intervals, and of paired differences, by k."""

from collections.abc import Sequence
from itertools import product
from math import nan

import polars as pl

from callshot.records import CorpusResults
from callshot.report.tables.scores import (
    METRIC_NAMES,
    PAPER_SHOTS,
    SPREADS,
    Row,
    shot_cell,
    shown_shots,
    star_note,
    starred_shot,
)
from callshot.report.tables.table import Cell, Column, Table, number

INTERVAL = ("mean", "p01", "p99")
PERCENTILES = "p01 and p99 are the 1st and the 99th percentile"
DIFFERENCE_NOTE = (
    f"The first less the second, over the same draws; {PERCENTILES}; wins is the share of samples "
    "in which the first is larger, with ties counted half."
)


def interval_table(results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table:
    """Return the mean and the 98 % interval by k, for each encoder and spread."""
    curve = results.evaluation.curve.filter(scoring="all")
    spreads = curve["spread"].unique(maintain_order=True)
    meanings = [f"{spread} is {SPREADS[spread]}" for spread in spreads]
    return _make_table(
        results,
        curve.with_columns(Encoder="encoder"),
        INTERVAL,
        shots,
        name="intervals",
        title="means and intervals by k",
        note=f"{PERCENTILES}; {'; '.join(meanings)}.",
    )


def difference_table(results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table | None:
    """Return paired differences by k, if there are any: mean, interval, and share of wins."""
    differences = results.evaluation.differences
    if differences.is_empty():
        return None
    pair = pl.format("{} − {}", "one", "other")
    reduced = pl.format("{} − {}, {} scoring", "one", "other", "scoring")
    pair = pl.when(scoring="all").then(pair).otherwise(reduced)
    return _make_table(
        results,
        differences.with_columns(Difference=pair),
        (*INTERVAL, "wins"),
        shots,
        name="differences",
        title="paired differences by k",
        note=DIFFERENCE_NOTE,
    )


def _make_table(
    results: CorpusResults,
    points: pl.DataFrame,
    fields: Sequence[str],
    shots: Sequence[int],
    *,
    name: str,
    title: str,
    note: str,
) -> Table:
    """Return a block of rows per value of the last column, and columns per spread and metric."""
    evaluation = results.evaluation
    points = points.filter(pl.col("metric").is_in(list(METRIC_NAMES)))
    spreads = points["spread"].unique(maintain_order=True)
    pairs = points.select("spread", "metric").unique().rows()
    groups = [group for group in product(spreads, METRIC_NAMES) if group in pairs]
    lead = points.columns[-1]
    columns = [Column(lead), Column("k")]
    for (spread, metric), field in product(groups, fields):
        columns.append(Column(field, f"{METRIC_NAMES[metric]}, {spread}"))
    shown = shown_shots(points["k"], shots)
    star = starred_shot(shown, evaluation.complete_shots)
    return Table(
        name,
        f"{evaluation.corpus}: {title}",
        columns,
        _make_rows(points, fields, groups, shown, star),
        notes=[star_note(star, evaluation.complete_shots), ("", note)],
        blocks=True,
    )


def _make_rows(
    points: pl.DataFrame,
    fields: Sequence[str],
    groups: Sequence[tuple[str, str]],
    shots: Sequence[int],
    star: int | None,
) -> list[Row]:
    lead = points.columns[-1]
    key = [lead, "k", "spread", "metric"]
    values = points.select(*key, *fields).rows_by_key(key, unique=True)
    missing = [nan] * len(fields)
    rows = []
    for block, k in product(points[lead].unique(maintain_order=True), shots):
        row = [Cell(block), shot_cell(k, star)]
        for group in groups:
            numbers = values.get((block, k, *group), missing)
            row += [number(value, 3) for value in numbers]
        rows.append(row)
    return rows
