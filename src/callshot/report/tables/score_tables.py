"""Results of a corpus → tables by k: means, intervals, differences, classifiers, baselines.

All choose their shots and mark k* in the same way.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from math import inf, nan
from typing import Any

import polars as pl

from callshot.fewshot.differences import baseline_name
from callshot.records import (
    BASELINE_KINDS,
    METRIC_NAMES,
    RANKING_METRICS,
    CorpusResults,
)
from callshot.records.frames import Frame, Shots, unique_values
from callshot.records.terms import MEAN
from callshot.report.choices import (
    classifier_name,
    common_spread,
    describe_classifier,
    join_classifiers,
    list_classifiers,
    reads_encoder,
)
from callshot.report.summary.context import say
from callshot.report.tables.table import (
    MISSING,
    PAPER_SHOTS,
    Cell,
    Column,
    Note,
    Row,
    Table,
    number,
    table_of_corpus,
)

TABLE_METRICS = ("auroc", "map")  # in the order of the columns
IS_SHOWN = pl.col("metric").is_in(TABLE_METRICS)
UNDERLINES = {"logistic": 1, "recurrent": 2}  # lines by kind of baseline
SPREADS = {
    "per-query": "the paper's: over bootstrap samples, in which each query has its own support set",
    "shared": (
        "the variation from the choice of labelled examples: over sets that serve all queries of "
        "these recordings"
    ),
    "total": "what one labelled set would score on other recordings of the same kind",
    MEAN: "the mean over labelled sets, as other recordings would move it",
}
TRAINED_NOTE = (
    "Baselines are trained on all labelled data of the support side of each split."
)


SCORE_TITLES = {
    "all": ("results", "mean AUROC and mAP of the centroid with k exemplars per class"),
    "reduced": (
        "reduced",
        "mean AUROC and mAP of the centroid over categories (reduced scoring)",
    ),
}


def shown_shots(evaluated: Iterable[int], table_shots: Shots) -> list[int]:
    """Return the evaluated shots of a table, or all evaluated ones if there are none.

    >>> shown_shots([1, 2, 3, 4, 7], (1, 2, 5)), shown_shots([7, 6, 7], (1, 2))
    ([1, 2], [6, 7])
    """
    shots = set(evaluated)
    return sorted(shots & set(table_shots)) or sorted(shots)


def mark_shots(shots: Shots, complete_shots: int) -> tuple[dict[int, Cell], Note]:
    """Return the first cell of the row of each k, and a note on the star at the first k from k* on.

    k* is `complete_shots`.
    """
    star = min((k for k in shots if k >= complete_shots), default=None)
    mark = "" if star is None else "⋆"
    cells = {}
    for k in shots:
        cells[k] = Cell(str(k), k, mark=mark if k == star else "")
    return cells, (mark, say("star", star, complete_shots))


@table_of_corpus
def score_table(
    results: CorpusResults,
    shots: Shots = PAPER_SHOTS,
    spread: str = "per-query",
    scoring: str = "all",
) -> Table | None:
    """Return AUROC and mAP by k for each encoder, with baselines and chance: tables 4 to 6.

    Only evaluated shots are shown, and all of them where none of `shots` was evaluated. If `spread`
    was not evaluated, the first one is shown. Rows of k are followed by baselines and chance. In
    reduced scoring, underlines compare with end-to-end baselines, if there are any.
    """
    curve = results.evaluation.curve.filter(IS_SHOWN, scoring=scoring)
    all_baselines = results.baselines.filter(scoring=scoring)
    if curve.is_empty():
        return None
    underlines = UNDERLINES
    if scoring == "reduced" and "end-to-end" in all_baselines["kind"]:
        underlines = {"end-to-end": 1}
    if spread not in curve["spread"]:
        spread = curve["spread"][0]
    curve = curve.filter(spread=spread)
    shown = shown_shots(curve["k"], shots)
    columns = list(product(unique_values(curve, "encoder"), TABLE_METRICS))
    points = curve.rows_by_key(["encoder", "metric", "k"], named=True, unique=True)

    # The number of lines under cells, by column and k. Of two kinds that are passed at the same k,
    # the later one in BASELINE_KINDS holds: it has more lines.
    underline_of_cell: dict[tuple[str, str, int], int] = {}
    foot: list[Row] = []
    notes: list[str] = []
    baseline_notes: list[str] = []
    for kind in BASELINE_KINDS:
        baselines = all_baselines.filter(kind=kind)
        if baselines.is_empty():
            continue
        names = unique_values(baselines, "name")
        has_several = len(names) > 1
        row_name = kind.capitalize() if has_several else names[0]
        baseline_notes += _describe_kind(baselines, row_name, has_several)
        foot += _make_baseline_rows(baselines, row_name, columns)
        if kind in underlines:
            values = {column: _column_values(baselines, column) for column in columns}
            crossovers = list(_find_crossovers(points, shown, values))
            underline_of_cell |= dict.fromkeys(crossovers, underlines[kind])
            other = row_name
            if has_several:
                other = f"every {kind} baseline of the encoder"
            notes.append(say("underlined", other, underlines[kind], bool(crossovers)))
    if foot:
        baseline_notes.append(TRAINED_NOTE)
    foot.append(_make_chance_row(points, columns))

    cells_of_k, star_note = mark_shots(shown, results.evaluation.complete_shots)
    rows = []
    for k in shown:
        row = [cells_of_k[k]]
        for column in columns:
            point = points.get((*column, k), {})
            mean = point.get("mean", nan)
            underline = underline_of_cell.get((*column, k), 0)
            row.append(number(mean, underline=underline))
        rows.append(row)
    notes += baseline_notes
    notes.append("Chance: what a random ranking scores.")
    notes.append(f"The spread {spread} is {SPREADS[spread]}.")
    name, title = SCORE_TITLES[scoring]
    heads = [Column("k")]
    for encoder, metric in columns:
        heads.append(Column(METRIC_NAMES[metric], encoder))
    return Table(
        name,
        f"{results.corpus}: {title}, {spread}",
        heads,
        [*rows, *foot],
        foot=len(foot),
        notes=[star_note, *(("", note) for note in notes)],
        section="encoder",
    )


reduced_table = table_of_corpus(partial(score_table, scoring="reduced"))


def _make_chance_row(
    points: Mapping[tuple[Any, ...], Mapping[str, Any]],
    columns: Sequence[tuple[str, str]],
) -> Row:
    """Return the row of the level of chance, of each column at its last k.

    `points` are rows of the curve by (encoder, metric, k); a column is (encoder, metric).
    """
    chances = {}
    for (encoder, metric, _), point in points.items():
        chances[encoder, metric] = point["chance"]
    return [Cell("Chance"), *(number(chances.get(column, nan)) for column in columns)]


def _make_baseline_rows(
    baselines: Frame, row_name: str, columns: Sequence[tuple[str, str]]
) -> Iterator[Row]:
    """Yield the rows of baselines of one kind, with a value in each column (encoder, metric).

    There is one row, called `row_name`, or one for each name if an encoder has several of the kind.
    """
    rows = {row_name: baselines}
    if max(len(_column_values(baselines, column)) for column in columns) > 1:
        names = unique_values(baselines, "name")
        rows = {name: baselines.filter(name=name) for name in names}
    for name, group in rows.items():
        row = [Cell(name)]
        for column in columns:
            values = _column_values(group, column) or [nan]
            row.append(number(values[0]))
        yield row


def _find_crossovers(
    points: Mapping[tuple[Any, ...], Mapping[str, Any]],
    shots: Shots,
    values_of_baselines: Mapping[tuple[str, str], Sequence[float]],
) -> Iterator[tuple[str, str, int]]:
    """Yield each column, and the first k at which its mean passes all baselines of the column.

    `points` are rows of the curve by (encoder, metric, k); a column is (encoder, metric).
    """
    for column, values in values_of_baselines.items():
        best = max(values, default=inf)  # nothing passes where there is no baseline
        for k in shots:
            point = points.get((*column, k))
            if point is not None and point["mean"] > best:
                yield *column, k
                break


def _column_values(baselines: Frame, column: tuple[str, str]) -> list[float]:
    """Return the values of a column (encoder, metric), of baselines on it or on audio."""
    encoder, metric = column
    return baselines.filter(reads_encoder(encoder), metric=metric)["value"].to_list()


def _describe_kind(baselines: Frame, row_name: str, has_several: bool) -> Iterator[str]:
    """Yield notes on baselines of one kind: their names, whether they read audio."""
    if has_several:
        pairs = baselines.select("name", "encoder").unique(maintain_order=True)
        yield say("several", row_name, list(map(baseline_name, pairs.to_dicts())))
    if "" in baselines["encoder"]:
        yield say("reads_audio", row_name)
        if "reduced" in baselines["scoring"]:
            yield say("scores_categories", row_name)


BASELINE_TITLE = (
    "baselines trained on all labels, and the k at which the centroid passes them"
)
CROSSOVERS = {"k_mean": "mean", "k_clear": "clear"}
K_NOTE = (
    "Columns of k: mean is the first k at which the mean of the centroid is above the baseline, "
    "clear the k from which the 98 % interval of the difference, of all comparisons and k at once, "
    "stays above 0; – means at no k up to k*."
)


@table_of_corpus
def baseline_table(results: CorpusResults, *_: Any) -> Table | None:
    """Return a row for each baseline, scoring and encoder: scores, choices, crossovers."""
    if results.baselines.is_empty():
        return None
    evaluation = results.evaluation
    metrics = [METRIC_NAMES[metric] for metric in RANKING_METRICS]
    columns = list(map(Column, ["Baseline", "Encoder", *metrics, "Chosen"]))
    groups = list(product(evaluation.spreads, RANKING_METRICS))
    for spread, metric in groups:
        heading = f"k by {METRIC_NAMES[metric]}, {spread}"
        columns += [Column(name, heading) for name in CROSSOVERS.values()]
    rows = []
    baselines = results.baselines.sort("scoring", maintain_order=True)
    blocks = baselines.partition_by("scoring", "name")
    for block, encoder in product(blocks, evaluation.encoders):
        scores = block.filter(reads_encoder(encoder))
        if scores.is_empty():
            continue
        scoring, name = scores.select("scoring", "name").row(0)
        values = dict(scores.select("metric", "value").iter_rows())
        crossovers = evaluation.crossovers.filter(
            labels="all", baseline=name, scoring=scoring, encoder=encoder
        ).rows_by_key(["spread", "metric"], named=True, unique=True)
        shots = [
            crossovers.get(group, {}).get(column)
            for group in groups
            for column in CROSSOVERS
        ]
        row = [
            Cell(name if scoring == "all" else f"{name}, {scoring} scoring"),
            Cell(encoder),
            *(number(values.get(metric, nan)) for metric in RANKING_METRICS),
            Cell(scores["how"][0] or MISSING),
            *(number(nan if k is None else k, decimals=0) for k in shots),
        ]
        rows.append(row)
    return Table(
        "baselines",
        f"{results.corpus}: {BASELINE_TITLE}",
        columns,
        rows,
        notes=[("", TRAINED_NOTE), ("", K_NOTE)],
        blocks=True,
        section="training",
    )


@table_of_corpus
def classifier_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, *_: Any
) -> Table | None:
    """Return mAP and AUROC of every classifier by k, if there are others than the reference.

    The spread is the preferred one of those that all classifiers have. Means are over the draws
    that all have, so that chance favours none. The best classifier of an encoder is underlined.
    Notes give the crossovers: the k from which on training at the same k beats the centroid.
    """
    if results.other_classifiers is None or results.other_classifiers.values.is_empty():
        return None
    spread = common_spread(results)
    all_values = join_classifiers(results).values
    values = all_values.filter(IS_SHOWN, scoring="all", spread=spread)
    draws = _common_draws(values)
    key = ["encoder", "classifier", "metric", "k"]
    means = values.select(*key, mean=pl.col("value").list.head(draws).list.mean())
    defined = pl.col("mean").fill_nan(None)  # NaN would be the largest
    best = defined.max().over("encoder", "metric", "k")
    points = means.with_columns(is_best=(defined == best).fill_null(False))
    by_key = points.rows_by_key(key, unique=True)
    names = [name for name in list_classifiers(results) if name in values["classifier"]]
    groups = list(product(RANKING_METRICS, shown_shots(values["k"], shots)))
    columns = [Column(str(k), f"{METRIC_NAMES[metric]} at k") for metric, k in groups]
    rows = []
    for encoder, name in product(unique_values(values, "encoder"), names):
        row = [Cell(encoder), Cell(classifier_name(name))]
        for group in groups:
            mean, is_best = by_key.get((encoder, name, *group), (nan, False))
            row.append(number(mean, decimals=3, underline=int(is_best)))
        rows.append(row)
    notes = _describe_classifiers(results, values, names, spread)
    return Table(
        "classifiers",
        f"{results.corpus}: classifiers with k exemplars per class, {spread}",
        [Column("Encoder"), Column("Classifier"), *columns],
        rows,
        notes=[("", note) for note in notes],
        blocks=True,
        section="training",
    )


def _common_draws(values: Frame) -> int:
    """Return how many draws all curves have."""
    return int(min(values["value"].list.len()))


def _describe_classifiers(
    results: CorpusResults, values: Frame, names: Sequence[str], spread: str
) -> Iterator[str]:
    """Yield the notes of a table of classifiers: what they do, what means are over, crossovers."""
    descriptions = {classifier_name(name): describe_classifier(name) for name in names}
    yield say("classifiers", descriptions)
    yield "Underlined: the best of an encoder at that k."
    yield f"The spread {spread} is {SPREADS[spread]}."
    draws = _common_draws(values)
    most = max(values["value"].list.len())
    if draws < most:
        yield f"Every mean is over the first {draws} of {most} sets, which all classifiers have."
    crossovers = results.evaluation.crossovers.filter(
        pl.col("metric").is_in(RANKING_METRICS),
        labels="k",  # of baselines trained at every k
        scoring="all",
        spread=spread,
    )
    for row in crossovers.to_dicts():
        yield say("crossover", row) + "."


INTERVAL = ("mean", "p01", "p99")
PERCENTILES = "p01 and p99 are the 1st and the 99th percentile"
ALL_SETS = "all sets"
DIFFERENCE_NOTE = (
    f"The first minus the second, over the same draws; {PERCENTILES}; wins is the share of samples "
    "in which the first is larger, with ties counted half. Underlined: a clear difference, by a 98 "
    f"% interval of all pairs and all k up to k* at once. {ALL_SETS}: the mean over labelled sets, "
    "as other recordings would move it."
)


@table_of_corpus
def interval_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, *_: Any
) -> Table:
    """Return the mean and the 98 % interval by k, for each encoder and spread."""
    curve = results.evaluation.curve.filter(IS_SHOWN, scoring="all")
    meanings = [f"{name} is {SPREADS[name]}" for name in unique_values(curve, "spread")]
    # Nothing is underlined; the last column is the heading of the blocks.
    points = curve.with_columns(clear=pl.lit(False), Encoder=pl.col("encoder"))
    return _make_comparison(
        results,
        points,
        INTERVAL,
        shots,
        name="intervals",
        title="means and intervals by k",
        note=f"{PERCENTILES}; {'; '.join(meanings)}.",
    )


@table_of_corpus
def difference_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, *_: Any
) -> Table | None:
    """Return paired differences by k, if there are any: mean, interval, and share of wins."""
    differences = results.evaluation.differences.filter(IS_SHOWN)
    if differences.is_empty():
        return None
    pair = pl.format("{} − {}", "one", "other")
    reduced = pl.format("{} − {}, {} scoring", "one", "other", "scoring")
    pair = pl.when(scoring="all").then(pair).otherwise(reduced)
    spread = pl.col("spread").replace({MEAN: ALL_SETS})
    return _make_comparison(
        results,
        differences.with_columns(spread=spread, Difference=pair),
        (*INTERVAL, "wins"),
        shots,
        name="differences",
        title="paired differences by k",
        note=DIFFERENCE_NOTE,
    )


def _make_comparison(
    results: CorpusResults,
    points: Frame,
    fields: Sequence[str],
    shots: Shots,
    *,
    name: str,
    title: str,
    note: str,
) -> Table:
    """Return a table of points by k: a block of rows for each value of their last column.

    The name of this column is the heading of the blocks. `points` also has scoring, spread, metric,
    k and `clear`, by which the first of the `fields` is underlined. Each spread and metric has a
    column for each field.
    """
    lead = points.columns[-1]
    pairs = points.select("spread", "metric").unique().rows()
    spreads = unique_values(points, "spread")
    groups = [group for group in product(spreads, TABLE_METRICS) if group in pairs]
    columns = [Column(lead), Column("k")]
    for spread, metric in groups:
        heading = f"{METRIC_NAMES[metric]}, {spread}"
        columns += [Column(field, heading) for field in fields]
    shown = shown_shots(points["k"], shots)
    cells_of_k, star_note = mark_shots(shown, results.evaluation.complete_shots)
    key = [lead, "k", "spread", "metric"]
    values = points.select(*key, "clear", *fields).rows_by_key(key, unique=True)
    missing = [False, *[nan] * len(fields)]
    rows = []
    for block, k in product(unique_values(points, lead), shown):
        row = [Cell(block), cells_of_k[k]]
        for group in groups:
            is_clear, mean, *others = values.get((block, k, *group), missing)
            row.append(number(mean, decimals=3, underline=int(is_clear)))
            row += [number(value, decimals=3) for value in others]
        rows.append(row)
    return Table(
        name,
        f"{results.corpus}: {title}",
        columns,
        rows,
        notes=[star_note, ("", note)],
        blocks=True,
        section="certainty",
    )
