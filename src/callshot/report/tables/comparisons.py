"""Results of a corpus → tables of intervals, and of paired differences, by k."""

from collections.abc import Sequence
from itertools import product
from math import nan

import polars as pl

from callshot.records import METRIC_NAMES, CorpusResults
from callshot.records.frames import Frame, Shots, unique_values
from callshot.report.tables.scores import (
    IS_SHOWN,
    PAPER_SHOTS,
    SPREADS,
    TABLE_METRICS,
    Row,
    shot_cell,
    shown_shots,
    star_note,
)
from callshot.report.tables.table import Cell, Column, Table, number
from callshot.report.terminal import starred_shot

Group = tuple[str, str]  # a spread and a metric

INTERVAL = ("mean", "p01", "p99")
PERCENTILES = "p01 and p99 are the 1st and the 99th percentile"
DIFFERENCE_NOTE = (
    f"The first minus the second, over the same draws; {PERCENTILES}; wins is the share of samples "
    "in which the first is larger, with ties counted half. Underlined: a clear difference, by a 98 "
    "% interval of all pairs and all k up to k* at once."
)


def interval_table(results: CorpusResults, shots: Shots = PAPER_SHOTS) -> Table:
    """Return the mean and the 98 % interval by k, for each encoder and spread."""
    curve = results.evaluation.curve.filter(scoring="all")
    spreads = unique_values(curve, "spread")
    meanings = [f"{spread} is {SPREADS[spread]}" for spread in spreads]
    return _make_table(
        results,
        curve.with_columns(clear=False, Encoder="encoder"),
        INTERVAL,
        shots,
        name="intervals",
        title="means and intervals by k",
        note=f"{PERCENTILES}; {'; '.join(meanings)}.",
    )


def difference_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS
) -> Table | None:
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
    points: Frame,
    fields: Sequence[str],
    shots: Shots,
    *,
    name: str,
    title: str,
    note: str,
) -> Table:
    """Return a block of rows per value of the last column, and columns per spread and metric."""
    points = points.filter(IS_SHOWN)
    groups = _list_groups(points)
    columns = [Column(points.columns[-1]), Column("k")]
    for spread, metric in groups:
        heading = f"{METRIC_NAMES[metric]}, {spread}"
        columns += [Column(field, heading) for field in fields]
    shown = shown_shots(points["k"], shots)
    complete_shots = results.evaluation.complete_shots
    star = starred_shot(shown, complete_shots)
    return Table(
        name,
        f"{results.corpus}: {title}",
        columns,
        _make_rows(points, fields, groups, shown, star),
        notes=[star_note(star, complete_shots), ("", note)],
        blocks=True,
    )


def _list_groups(points: Frame) -> list[Group]:
    """Return the spreads and metrics that have columns, in their order."""
    spreads = unique_values(points, "spread")
    pairs = points.select("spread", "metric").unique().rows()
    return [group for group in product(spreads, TABLE_METRICS) if group in pairs]


def _make_rows(
    points: Frame,
    fields: Sequence[str],
    groups: Sequence[Group],
    shots: Shots,
    star: int | None,
) -> list[Row]:
    lead = points.columns[-1]
    key = [lead, "k", "spread", "metric"]
    values = points.select(*key, "clear", *fields).rows_by_key(key, unique=True)
    missing = [False, *[nan] * len(fields)]
    rows = []
    for block, k in product(unique_values(points, lead), shots):
        row = [Cell(block), shot_cell(k, star)]
        for group in groups:
            is_clear, mean, *others = values.get((block, k, *group), missing)
            row.append(number(mean, 3, int(is_clear)))
            row += [number(value, 3) for value in others]
        rows.append(row)
    return rows
