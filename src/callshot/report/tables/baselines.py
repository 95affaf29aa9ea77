"""Results of a corpus → a table of baselines trained on all labels, and where the centroid passes them."""

from collections.abc import Iterator

import polars as pl

from callshot.records import RANKING_METRICS, CorpusResults
from callshot.report.tables.scores import METRIC_NAMES, TRAINED_NOTE, Row
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

CROSSOVERS = {"k_mean": "mean", "k_clear": "clear"}
K_NOTE = (
    "Columns of k: mean is the first k at which the mean of the centroid is above the baseline, "
    "clear the k from which the 98 % interval of the difference stays above 0; – means at no k evaluated."
)


def baseline_table(results: CorpusResults) -> Table | None:
    """Return a block for each baseline and scoring, with a row for each encoder compared with it."""
    if results.baselines.is_empty():
        return None
    corpus = results.evaluation.corpus
    spreads = results.evaluation.curve["spread"].unique(maintain_order=True)
    groups = [(spread, metric) for spread in spreads for metric in RANKING_METRICS]
    metrics = [Column(METRIC_NAMES[metric]) for metric in RANKING_METRICS]
    columns = [Column("Baseline"), Column("Encoder"), *metrics, Column("Chosen")]
    for spread, metric in groups:
        heading = f"k by {METRIC_NAMES[metric]}, {spread}"
        columns += [Column(name, heading) for name in CROSSOVERS.values()]
    return Table(
        "baselines",
        f"{corpus}: baselines trained on all labels, and the k at which the centroid passes them",
        columns,
        list(_make_rows(results, groups)),
        notes=[("", TRAINED_NOTE), ("", K_NOTE)],
        blocks=True,
    )


def _make_rows(results: CorpusResults, groups: list[tuple[str, str]]) -> Iterator[Row]:
    baselines = results.baselines.sort("scoring", maintain_order=True)
    crossovers = results.evaluation.crossovers.filter(labels="all")
    for block in baselines.partition_by("scoring", "name", maintain_order=True):
        scoring, name = block.select("scoring", "name").row(0)
        title = name if scoring == "all" else f"{name}, {scoring} scoring"
        for encoder in results.evaluation.encoders:
            rows = block.filter(pl.col("encoder").is_in(["", encoder]))
            if rows.is_empty():
                continue
            values = dict(rows.select("metric", "value").iter_rows())
            how = rows["how"][0] or MISSING
            passed = crossovers.filter(encoder=encoder, baseline=name, scoring=scoring)
            shots = passed.rows_by_key(["spread", "metric"], named=True, unique=True)
            cells = [_make_cell(values.get(metric), 4) for metric in RANKING_METRICS]
            cells += [Cell(how)]
            for group in groups:
                row = shots.get(group, {})
                cells += [_make_cell(row.get(column), 0) for column in CROSSOVERS]
            yield [Cell(title), Cell(encoder), *cells]


def _make_cell(value: float | None, decimals: int) -> Cell:
    return Cell(MISSING) if value is None else number(value, decimals)
