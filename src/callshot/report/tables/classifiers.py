"""Results of a corpus → a table of all its classifiers by k, trained or not."""

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import polars as pl

from callshot.records import METRIC_NAMES, RANKING_METRICS, CorpusResults
from callshot.records.frames import Frame, Shots, unique_values
from callshot.report.classifiers import (
    all_values,
    classifier_name,
    common_spread,
    describe_classifier,
    list_classifiers,
)
from callshot.report.tables.scores import (
    IS_SHOWN,
    PAPER_SHOTS,
    SPREADS,
    Row,
    shown_shots,
)
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

Group = tuple[str, int]  # a metric and a k

KEY = ("encoder", "classifier", "metric", "k")


def classifier_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS
) -> Table | None:
    """Return mAP and AUROC of every classifier by k, if there are others than the reference.

    The spread is the preferred one of those that all have. Means are over the draws that all
    classifiers have, so that luck favours none.
    """
    if results.other_classifiers is None or results.other_classifiers.values.is_empty():
        return None
    spread = common_spread(results)
    values = all_values(results).filter(IS_SHOWN, scoring="all", spread=spread)
    evaluated = values["classifier"]
    names = [name for name in list_classifiers(results) if name in evaluated]
    encoders = unique_values(values, "encoder")
    groups = list(product(RANKING_METRICS, shown_shots(values["k"], shots)))
    cells = _mean_cells(values, _common_draws(values))
    notes = _notes(results, values, names, spread)
    return Table(
        "classifiers",
        f"{results.corpus}: classifiers with k exemplars per class, {spread}",
        _make_columns(groups),
        _make_rows(cells, encoders, names, groups),
        notes=[("", note) for note in notes],
        blocks=True,
    )


def _make_columns(groups: Sequence[Group]) -> list[Column]:
    columns = [Column("Encoder"), Column("Classifier")]
    for metric, k in groups:
        columns.append(Column(str(k), f"{METRIC_NAMES[metric]} at k"))
    return columns


def _common_draws(values: Frame) -> int:
    """Return how many draws every classifier has; they are the first ones of each."""
    return int(min(values["value"].list.len()))


def _make_rows(
    cells: Mapping[tuple[object, ...], Cell],
    encoders: Sequence[str],
    names: Sequence[str],
    groups: Sequence[Group],
) -> list[Row]:
    """Return a block of rows per encoder, with a row per classifier."""
    missing = Cell(MISSING)
    rows = []
    for encoder, name in product(encoders, names):
        row = [Cell(encoder), Cell(classifier_name(name))]
        row += [cells.get((encoder, name, *group), missing) for group in groups]
        rows.append(row)
    return rows


def _mean_cells(values: Frame, draws: int) -> dict[tuple[object, ...], Cell]:
    """Return the cells of means over the first draws, by KEY; an encoder's best is underlined."""
    points = values.select(*KEY, mean=pl.col("value").list.head(draws).list.mean())
    mean = pl.col("mean").fill_nan(None)
    best = mean.max().over("encoder", "metric", "k")
    points = points.with_columns(is_best=mean == best)
    cells = {}
    for *key, value, is_best in points.iter_rows():
        underline = 1 if is_best else 0
        cells[tuple(key)] = number(value, 3, underline)
    return cells


def _notes(
    results: CorpusResults, values: Frame, names: Sequence[str], spread: str
) -> Iterator[str]:
    descriptions = [
        f"{classifier_name(name)}: {describe_classifier(name)}" for name in names
    ]
    yield "; ".join(descriptions) + "."
    yield "Underlined: the best of an encoder at that k."
    yield f"The spread {spread} is {SPREADS[spread]}."
    draws = _common_draws(values)
    most = max(values["value"].list.len())
    if draws < most:
        yield (
            f"Every mean is over the first {draws} of {most} sets, "
            "which all classifiers have."
        )
    yield from _crossover_notes(results, spread)


def _crossover_notes(results: CorpusResults, spread: str) -> Iterator[str]:
    """Yield the k from which training on the same exemplars is better."""
    crossovers = results.evaluation.crossovers.filter(
        labels="k", scoring="all", spread=spread
    )
    for metric in RANKING_METRICS:
        of_metric = crossovers.filter(metric=metric)
        for rows in of_metric.partition_by("baseline"):
            name = classifier_name(rows["baseline"][0])
            shots = rows.select("encoder", "k_mean", "k_clear")
            texts = [_format_crossover(*row) for row in shots.iter_rows()]
            yield (
                f"{name} is better than the centroid on the same draws, by {METRIC_NAMES[metric]}: "
                f"{'; '.join(texts)}."
            )


def _format_crossover(encoder: str, k_mean: int | None, k_clear: int | None) -> str:
    if k_mean is None:
        return f"{encoder} not at the largest k"
    if k_clear is None:
        return f"{encoder} from k = {k_mean} on, but never clearly"
    return f"{encoder} from k = {k_mean} on, clearly from k = {k_clear} on"
