"""Results of a corpus → a table of baselines trained on all labels, and of crossovers with them."""

from collections.abc import Iterator, Sequence
from itertools import product

from callshot.records import METRIC_NAMES, RANKING_METRICS, CorpusResults
from callshot.records.frames import Frame
from callshot.report.tables.scores import TRAINED_NOTE, Row, reads_encoder
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Group = tuple[str, str]  # a spread and a metric

TITLE = "baselines trained on all labels, and the k at which the centroid passes them"
CROSSOVERS = {"k_mean": "mean", "k_clear": "clear"}
K_NOTE = (
    "Columns of k: mean is the first k at which the mean of the centroid is above the baseline, "
    "clear the k from which the 98 % interval of the difference, of all comparisons and k at once, "
    "stays above 0; – means at no k up to k*."
)


def baseline_table(results: CorpusResults) -> Table | None:
    """Return a block for each baseline and scoring, with a row for each encoder."""
    if results.baselines.is_empty():
        return None
    groups = list(product(results.evaluation.spreads, RANKING_METRICS))
    baselines = results.baselines.sort("scoring", maintain_order=True)
    rows: list[Row] = []
    for block in baselines.partition_by("scoring", "name"):
        rows += _block_rows(results, block, groups)
    return Table(
        "baselines",
        f"{results.corpus}: {TITLE}",
        _make_columns(groups),
        rows,
        notes=[("", TRAINED_NOTE), ("", K_NOTE)],
        blocks=True,
    )


def _make_columns(groups: Sequence[Group]) -> list[Column]:
    metrics = [METRIC_NAMES[metric] for metric in RANKING_METRICS]
    columns = list(map(Column, ["Baseline", "Encoder", *metrics, "Chosen"]))
    for spread, metric in groups:
        heading = f"k by {METRIC_NAMES[metric]}, {spread}"
        columns += [Column(name, heading) for name in CROSSOVERS.values()]
    return columns


def _block_rows(
    results: CorpusResults, block: Frame, groups: Sequence[Group]
) -> Iterator[Row]:
    """Yield the rows of one baseline in one scoring."""
    scoring, name = block.select("scoring", "name").row(0)
    title = name if scoring == "all" else f"{name}, {scoring} scoring"
    all_crossovers = results.evaluation.crossovers.filter(
        labels="all",
        baseline=name,
        scoring=scoring,
    )
    for encoder in results.evaluation.encoders:
        baselines = block.filter(reads_encoder(encoder))
        if baselines.is_empty():
            continue
        crossovers = all_crossovers.filter(encoder=encoder)
        yield [
            Cell(title),
            Cell(encoder),
            *_score_cells(baselines),
            *_crossover_cells(crossovers, groups),
        ]


def _score_cells(baselines: Frame) -> Iterator[Cell]:
    values = dict(baselines.select("metric", "value").iter_rows())
    for metric in RANKING_METRICS:
        yield _make_cell(values.get(metric), 4)
    yield Cell(baselines["how"][0] or MISSING)


def _crossover_cells(crossovers: Frame, groups: Sequence[Group]) -> Iterator[Cell]:
    shots = crossovers.rows_by_key(["spread", "metric"], named=True, unique=True)
    for group in groups:
        row = shots.get(group, {})
        for column in CROSSOVERS:
            yield _make_cell(row.get(column), 0)


def _make_cell(value: float | None, decimals: int) -> Cell:
    return Cell(MISSING) if value is None else number(value, decimals)
