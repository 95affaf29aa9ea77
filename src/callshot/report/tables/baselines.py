"""Results of a corpus → a table of baselines trained on all labels, and of crossovers with them."""

from collections.abc import Iterator, Sequence
from itertools import product

import polars as pl

from callshot.records import RANKING_METRICS, CorpusResults
from callshot.report.tables.scores import METRIC_NAMES, TRAINED_NOTE, Row
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

CROSSOVERS = {"k_mean": "mean", "k_clear": "clear"}
K_NOTE = (
    "Columns of k: mean is the first k at which the mean of the centroid is above the baseline, "
    "clear the k from which the 98 % interval of the difference stays above 0; – means at no k "
    "evaluated."
)


def baseline_table(results: CorpusResults) -> Table | None:
    """Return a block for each baseline and scoring, with a row for each encoder."""
    if results.baselines.is_empty():
        return None
    evaluation = results.evaluation
    columns = [Column("Baseline"), Column("Encoder")]
    columns += [Column(METRIC_NAMES[metric]) for metric in RANKING_METRICS]
    columns.append(Column("Chosen"))
    groups = list(product(evaluation.curve["spread"].unique(maintain_order=True), RANKING_METRICS))
    for (spread, metric), name in product(groups, CROSSOVERS.values()):
        columns.append(Column(name, f"k by {METRIC_NAMES[metric]}, {spread}"))
    rows: list[Row] = []
    baselines = results.baselines.sort("scoring", maintain_order=True)
    for block in baselines.partition_by("scoring", "name", maintain_order=True):
        rows += _block_rows(results, block, groups)
    return Table(
        "baselines",
        f"{evaluation.corpus}: baselines trained on all labels, and the k at which the centroid "
        "passes them",
        columns,
        rows,
        notes=[("", TRAINED_NOTE), ("", K_NOTE)],
        blocks=True,
    )


def _block_rows(
    results: CorpusResults, block: pl.DataFrame, groups: Sequence[tuple[str, str]]
) -> Iterator[Row]:
    """Yield the rows of one baseline in one scoring."""
    evaluation = results.evaluation
    scoring, name = block.select("scoring", "name").row(0)
    title = name if scoring == "all" else f"{name}, {scoring} scoring"
    for encoder in evaluation.encoders:
        baselines = block.filter(pl.col("encoder").is_in(["", encoder]))
        if baselines.is_empty():
            continue
        crossovers = evaluation.crossovers.filter(
            labels="all",
            encoder=encoder,
            baseline=name,
            scoring=scoring,
        )
        values = dict(baselines.select("metric", "value").iter_rows())
        shots = crossovers.rows_by_key(["spread", "metric"], named=True, unique=True)
        row = [Cell(title), Cell(encoder)]
        row += [_make_cell(values.get(metric), 4) for metric in RANKING_METRICS]
        row.append(Cell(baselines["how"][0] or MISSING))
        for group, column in product(groups, CROSSOVERS):
            row.append(_make_cell(shots.get(group, {}).get(column), 0))
        yield row


def _make_cell(value: float | None, decimals: int) -> Cell:
    return Cell(MISSING) if value is None else number(value, decimals)
