"""Curves of call types → a table of how many examples each one needs for a level of AP."""

import polars as pl

from callshot.records import ClassCount, CorpusResults
from callshot.records.frames import Frame
from callshot.report.classifiers import main_spread
from callshot.report.tables.table import Cell, Column, Table

LEVELS = (0.5, 0.6, 0.7, 0.8, 0.9)
NOTE = (
    "The smallest evaluated k whose mean AP reaches the level; in brackets, the k at which 99 % "
    "of samples do. A dash: more than this call type has."
)


def needs_table(results: CorpusResults, encoder: str, k: int) -> Table | None:
    """Return the table of one encoder, with the AP at k; None if classes have no curves."""
    evaluation = results.evaluation
    points = evaluation.per_class.filter(
        encoder=encoder, scoring="all", metric="map", spread=main_spread(evaluation)
    )
    if points.is_empty():
        return None
    rows = []
    for count in evaluation.eligible_classes:
        curve = points.filter(label=count.label).sort("k")
        rows.append([*_first_cells(count, curve, k), *_level_cells(curve, count)])
    levels = [Column(f"{level:g}", "examples for an AP of") for level in LEVELS]
    columns = [Column("call type"), Column("examples"), Column(f"AP with {k}"), *levels]
    title = f"How many examples a call type needs, with {encoder}"
    return Table("needs", title, columns, rows, 0, [("", NOTE)])


def _first_cells(count: ClassCount, curve: Frame, k: int) -> list[Cell]:
    means = curve.filter(k=k)["mean"]
    value = Cell("–")
    if len(means):
        value = Cell(f"{means[0]:.2f}", means[0])
    return [Cell(count.label), Cell(str(count.exemplars), count.exemplars), value]


def _level_cells(curve: Frame, count: ClassCount) -> list[Cell]:
    """Return the number of examples for each level, as far as the class has them."""
    complete = curve.filter(pl.col("k") <= count.complete_to_k)
    cells = []
    for level in LEVELS:
        on_average = complete.filter(pl.col("mean") >= level)["k"].head(1).to_list()
        nearly_always = complete.filter(pl.col("p01") >= level)["k"].head(1).to_list()
        text = "–"
        for k in on_average:
            text = str(k)
        for k in nearly_always:
            text += f" ({k})"
        cells.append(Cell(text, on_average[0] if on_average else None))
    return cells
