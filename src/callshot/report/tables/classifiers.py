"""Results of a corpus → a table of all its classifiers by k, trained or not."""

from collections.abc import Iterator, Sequence
from itertools import product

import polars as pl

from callshot.records import RANKING_METRICS, CorpusResults
from callshot.report.classifiers import (
    all_curves,
    classifier_name,
    describe_classifier,
    is_trained,
    list_classifiers,
    main_spread,
    sample_counts,
)
from callshot.report.tables.scores import METRIC_NAMES, PAPER_SHOTS, SPREADS, Row, shown_shots
from callshot.report.tables.table import MISSING, Cell, Column, Table, number

KEY = ("encoder", "classifier", "metric", "k")


def classifier_table(results: CorpusResults, shots: Sequence[int] = PAPER_SHOTS) -> Table | None:
    """Return mAP and AUROC of every classifier by k, if there are others than the reference.

    The spread is `shared`, where evaluated: baselines trained at every k have no other.
    """
    if results.others is None or results.others.curve.is_empty():
        return None
    spread = main_spread(results.evaluation)
    curve = all_curves(results).filter(
        pl.col("metric").is_in(RANKING_METRICS),
        scoring="all",
        spread=spread,
    )
    names = [name for name in list_classifiers(results) if name in curve["classifier"]]
    groups = list(product(RANKING_METRICS, shown_shots(curve["k"], shots)))
    columns = [Column(str(k), f"{METRIC_NAMES[metric]} at k") for metric, k in groups]
    notes = [*_notes(results, names, spread), *_crossover_notes(results, spread)]
    return Table(
        "classifiers",
        f"{results.evaluation.corpus}: classifiers with k exemplars per class, {spread}",
        [Column("Encoder"), Column("Classifier"), *columns],
        _make_rows(curve, names, groups),
        notes=[("", note) for note in notes],
        blocks=True,
    )


def _make_rows(
    curve: pl.DataFrame, names: Sequence[str], groups: Sequence[tuple[str, int]]
) -> list[Row]:
    """Return a block of rows per encoder, with a row per classifier."""
    cells = _mean_cells(curve)
    rows = []
    for encoder, name in product(curve["encoder"].unique(maintain_order=True), names):
        row = [Cell(encoder), Cell(classifier_name(name))]
        row += [cells.get((encoder, name, *group), Cell(MISSING)) for group in groups]
        rows.append(row)
    return rows


def _mean_cells(curve: pl.DataFrame) -> dict[tuple[object, ...], Cell]:
    """Return the cells of means, by KEY; the best mean of an encoder is underlined."""
    best = pl.col("mean").fill_nan(None).max().over("encoder", "metric", "k")
    is_best = (pl.col("mean") == best).fill_null(False)
    points = curve.select(*KEY, "mean", is_best.cast(pl.Int64).alias("underline"))
    cells = {}
    for key, (mean, underline) in points.rows_by_key(KEY, unique=True).items():
        cells[key] = number(mean, 3, underline)
    return cells


def _notes(results: CorpusResults, names: Sequence[str], spread: str) -> Iterator[str]:
    descriptions = [f"{classifier_name(name)}: {describe_classifier(name)}" for name in names]
    yield "; ".join(descriptions) + "."
    yield "Underlined: the best of an encoder at that k."
    yield f"Means are {SPREADS[spread]}."
    counts = sample_counts(results, spread)
    most = max(counts.values())
    for name in names:
        count = counts[name]
        if is_trained(name) and count < most:
            yield f"{classifier_name(name)}: means are over the first {count} of {most} sets."


def _crossover_notes(results: CorpusResults, spread: str) -> Iterator[str]:
    """Yield the k from which training on the same exemplars is better."""
    crossovers = results.evaluation.crossovers.filter(labels="k", scoring="all", spread=spread)
    for metric in RANKING_METRICS:
        for rows in crossovers.filter(metric=metric).partition_by("baseline", maintain_order=True):
            name = classifier_name(rows["baseline"][0])
            shots = rows.select("encoder", "k_mean", "k_clear").iter_rows()
            texts = [_format_crossover(*row) for row in shots]
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
