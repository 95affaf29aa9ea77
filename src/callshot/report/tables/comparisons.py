"""Results of a corpus → tables of intervals, and of paired differences, by k."""

from collections.abc import Sequence
from math import nan

import polars as pl

from callshot.records import CorpusResults
from callshot.report.tables.scores import (
    METRIC_NAMES,
    PAPER_SHOTS,
    SPREADS,
    shot_cell,
    shown_shots,
    star_note,
    starred_shot,
)
from callshot.report.tables.table import Cell, Column, Table, number

INTERVAL = ("mean", "p01", "p99")
PERCENTILES = "p01 and p99 are the 1st and the 99th percentile"


def interval_table(results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table:
    """Return the mean and the 98 % interval by k, for each encoder and spread."""
    curve = results.evaluation.curve.filter(scoring="all")
    points = curve.select("spread", "metric", "k", *INTERVAL, Encoder="encoder")
    spreads = [f"{name} is {SPREADS[name]}" for name in curve["spread"].unique(maintain_order=True)]
    note = f"{PERCENTILES}; {'; '.join(spreads)}."
    return _make_table(results, points, "intervals", "means and intervals by k", shots, note)


def difference_table(results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table | None:
    """Return paired differences by k, if there are any: mean, interval, and share of wins."""
    differences = results.evaluation.differences
    if differences.is_empty():
        return None
    reduced = pl.format("{} − {}, {} scoring", "one", "other", "scoring")
    pair = pl.format("{} − {}", "one", "other")
    name = pl.when(scoring="all").then(pair).otherwise(reduced)
    points = differences.select("spread", "metric", "k", *INTERVAL, "wins", Difference=name)
    note = (
        f"The first less the second, over the same draws; {PERCENTILES}; wins is the share of "
        "samples in which the first is larger, with ties counted half."
    )
    return _make_table(results, points, "differences", "paired differences by k", shots, note)


def _make_table(
    results: CorpusResults,
    points: pl.DataFrame,
    name: str,
    title: str,
    shots: Sequence[int],
    note: str,
) -> Table:
    """Return a block of rows for each name in the last column, and columns per spread and metric."""
    evaluation = results.evaluation
    points = points.filter(pl.col("metric").is_in(list(METRIC_NAMES)))
    _, _, _, *fields, lead = points.columns
    shown = shown_shots(points["k"], shots)
    star = starred_shot(shown, evaluation.complete_shots)
    pairs = points.select("spread", "metric").unique().rows()
    spreads = points["spread"].unique(maintain_order=True)
    groups = [(spread, metric) for spread in spreads for metric in METRIC_NAMES]
    groups = [group for group in groups if group in pairs]
    rows_by_key = points.rows_by_key([lead, "k", "spread", "metric"], named=True, unique=True)
    rows = []
    for block in points[lead].unique(maintain_order=True):
        for k in shown:
            cells = [Cell(block), shot_cell(k, star)]
            for group in groups:
                point = rows_by_key.get((block, k, *group), {})
                cells += [number(point.get(field, nan), 3) for field in fields]
            rows.append(cells)
    columns = [Column(lead), Column("k")]
    for spread, metric in groups:
        columns += [Column(field, f"{METRIC_NAMES[metric]}, {spread}") for field in fields]
    notes = [star_note(star, evaluation.complete_shots), ("", note)]
    return Table(name, f"{evaluation.corpus}: {title}", columns, rows, 0, notes, blocks=True)
