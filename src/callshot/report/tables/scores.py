"""Results of a corpus → tables by k: means, intervals, differences, classifiers, baselines.

All choose their shots and mark k* in the same way.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
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
from callshot.report.classifiers import (
    classifier_name,
    common_spread,
    describe_classifier,
    join_classifiers,
    list_classifiers,
)
from callshot.report.tables.table import (
    MISSING,
    Cell,
    Column,
    Note,
    Row,
    Table,
    number,
)
from callshot.report.terminal import starred_shot

ScoreColumn = tuple[str, str]  # an encoder and a metric

TABLE_METRICS = ("auroc", "map")  # in the order of the columns
IS_SHOWN = pl.col("metric").is_in(TABLE_METRICS)
PAPER_SHOTS = (1, 2, 3, 4, 5, 10, 15, 20, 40)
UNDERLINES = {"logistic": 1, "recurrent": 2}
SPREADS = {
    "per-query": "the paper's: over bootstrap samples, in which each query has its own support set",
    "shared": (
        "the luck of which examples were labelled: over sets that serve all queries of these "
        "recordings"
    ),
    "total": "what one labelled set would score on other recordings of the same kind",
}
TRAINED_NOTE = (
    "Baselines are trained on all labelled data of the support side of each split."
)


def score_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, spread: str = "per-query"
) -> Table:
    """Return AUROC and mAP by k for each encoder, with baselines and chance: tables 4 and 5.

    Only evaluated shots are shown, and all of them where none of `shots` was evaluated. If `spread`
    was not evaluated, the first one is shown.
    """
    sweep = _select_sweep(results, "all", shots, spread)
    title = "mean AUROC and mAP of the centroid with k exemplars per class"
    return _make_score_table(results, sweep, "results", title, UNDERLINES)


def reduced_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, spread: str = "per-query"
) -> Table | None:
    """Return the same in reduced scoring, if there are categories: table 6.

    Underlines compare with end-to-end baselines, or with those of `score_table` if there are none.
    """
    if "reduced" not in results.evaluation.curve["scoring"]:
        return None
    sweep = _select_sweep(results, "reduced", shots, spread)
    underlines = {"end-to-end": 1} if "end-to-end" in sweep.kinds else UNDERLINES
    title = "mean AUROC and mAP of the centroid over categories (reduced scoring)"
    return _make_score_table(results, sweep, "reduced", title, underlines)


def shown_shots(evaluated: Iterable[int], table_shots: Shots) -> list[int]:
    """Return the evaluated shots of a table, or all evaluated ones if there are none.

    >>> shown_shots([1, 2, 3, 4, 7], (1, 2, 5)), shown_shots([7, 6, 7], (1, 2))
    ([1, 2], [6, 7])
    """
    shots = set(evaluated)
    return sorted(shots & set(table_shots)) or sorted(shots)


def shot_cell(k: int, star: int | None) -> Cell:
    """Return the cell that names the k of a row."""
    mark = "⋆" if k == star else ""
    return Cell(str(k), k, mark=mark)


def star_note(star: int | None, complete_shots: int) -> Note:
    """Return the note on the starred row."""
    last = f"k* = {complete_shots}, the largest k at which every class is complete"
    if star is None:
        return "", f"At every k shown, every class is complete: k* = {complete_shots}."
    if star == complete_shots:
        return "⋆", f"This row is at {last}. Beyond it, support is partial."
    return "⋆", f"This row is the first beyond {last}. Its support is partial."


@dataclass(frozen=True)
class _Sweep:
    """The means of one scoring and spread at the shots shown, and the baselines of that scoring."""

    spread: str
    shots: list[int]
    means: dict[tuple[Any, ...], float]  # by encoder, metric and k
    chances: dict[ScoreColumn, float]
    baselines: Frame

    @property
    def columns(self) -> list[ScoreColumn]:
        """The encoder and the metric of each column."""
        encoders = dict.fromkeys(encoder for encoder, _ in self.chances)
        return list(product(encoders, TABLE_METRICS))

    @property
    def kinds(self) -> dict[str, Frame]:
        """The baselines of each kind, in the order of their rows."""
        baselines = self.baselines
        kinds = [kind for kind in BASELINE_KINDS if kind in baselines["kind"]]
        return {kind: baselines.filter(kind=kind) for kind in kinds}

    def mean(self, column: ScoreColumn, k: int) -> float:
        return self.means.get((*column, k), nan)

    def crossovers(self, kind: str) -> dict[ScoreColumn, int]:
        """Return, by column, the first k shown whose mean is above every baseline of a kind."""
        baselines = self.baselines.filter(kind=kind)
        shots = {}
        for column in self.columns:
            best = max(_column_values(baselines, column), default=inf)
            above = [k for k in self.shots if self.mean(column, k) > best]
            if above:
                shots[column] = above[0]
        return shots


def _select_sweep(
    results: CorpusResults, scoring: str, shots: Shots, spread: str
) -> _Sweep:
    curve = results.evaluation.curve.filter(IS_SHOWN, scoring=scoring)
    if spread not in curve["spread"]:
        spread = curve["spread"][0]
    curve = curve.filter(spread=spread)
    means = {}
    chances = {}
    points = curve.select("encoder", "metric", "k", "mean", "chance")
    for encoder, metric, k, mean, chance in points.iter_rows():
        means[encoder, metric, k] = mean
        chances[encoder, metric] = chance
    return _Sweep(
        spread,
        shown_shots(curve["k"], shots),
        means,
        chances,
        results.baselines.filter(scoring=scoring),
    )


def _make_score_table(
    results: CorpusResults,
    sweep: _Sweep,
    name: str,
    title: str,
    underlines: Mapping[str, int],
) -> Table:
    """Return rows of k, then baselines, then chance; `underlines` has a number of lines by kind."""
    complete_shots = results.evaluation.complete_shots
    star = starred_shot(sweep.shots, complete_shots)
    foot = list(_foot_rows(sweep))
    columns = [
        Column(METRIC_NAMES[metric], encoder) for encoder, metric in sweep.columns
    ]
    texts = [
        *_underline_notes(sweep, underlines),
        *_baseline_notes(sweep),
        "Chance: what a random ranking scores.",
        f"The spread {sweep.spread} is {SPREADS[sweep.spread]}.",
    ]
    notes = [("", text) for text in texts]
    return Table(
        name,
        f"{results.corpus}: {title}, {sweep.spread}",
        [Column("k"), *columns],
        [*_mean_rows(sweep, underlines, star), *foot],
        foot=len(foot),
        notes=[star_note(star, complete_shots), *notes],
        section="encoder",
    )


def _mean_rows(
    sweep: _Sweep, underlines: Mapping[str, int], star: int | None
) -> Iterator[Row]:
    """Yield the means by k; where two crossovers coincide, the larger number of lines is drawn."""
    lines = {}
    for kind, count in underlines.items():
        for crossover in sweep.crossovers(kind).items():
            lines[crossover] = count
    for k in sweep.shots:
        row = [shot_cell(k, star)]
        for column in sweep.columns:
            underline = lines.get((column, k), 0)
            row.append(number(sweep.mean(column, k), underline=underline))
        yield row


def _foot_rows(sweep: _Sweep) -> Iterator[Row]:
    """Yield the rows of baselines, and chance."""
    for baselines in sweep.kinds.values():
        yield from _baseline_rows(sweep, baselines)
    chances = [number(sweep.chances.get(column, nan)) for column in sweep.columns]
    yield [Cell("Chance"), *chances]


def _baseline_rows(sweep: _Sweep, baselines: Frame) -> Iterator[Row]:
    """Yield one row for all baselines of a kind, or one per name if an encoder has several."""
    groups = [baselines]
    counts = [len(_column_values(baselines, column)) for column in sweep.columns]
    if max(counts) > 1:
        groups = baselines.partition_by("name")
    for group in groups:
        row = [Cell(_row_name(group))]
        for column in sweep.columns:
            values = _column_values(group, column) or [nan]
            row.append(number(values[0]))
        yield row


def reads_encoder(encoder: str) -> pl.Expr:
    """Return whether a baseline was trained on this encoder, or reads audio."""
    return pl.col("encoder").is_in(["", encoder])


def _column_values(baselines: Frame, column: ScoreColumn) -> list[float]:
    """Return the values of baselines on an encoder, and of those that read audio."""
    encoder, metric = column
    return baselines.filter(reads_encoder(encoder), metric=metric)["value"].to_list()


def _row_name(baselines: Frame) -> str:
    """Return the name of the baselines in a row, or their kind if they have several names."""
    if _has_several_names(baselines):
        return str(baselines["kind"][0].capitalize())
    return str(baselines["name"][0])


def _has_several_names(baselines: Frame) -> bool:
    return baselines["name"].n_unique() > 1


def _underline_notes(sweep: _Sweep, underlines: Mapping[str, int]) -> Iterator[str]:
    for kind, baselines in sweep.kinds.items():
        if kind not in underlines:
            continue
        name = _row_name(baselines)
        if _has_several_names(baselines):
            name = f"every {kind} baseline of the encoder"
        if not sweep.crossovers(kind):
            yield f"No mean shown is above {name}."
        elif underlines[kind] == 1:
            yield f"Underlined once: the first k shown whose mean is above {name}."
        else:
            yield (
                f"Underlined twice: the first k shown whose mean is above {name}; "
                "also where both underlines would be at the same k."
            )


def _baseline_notes(sweep: _Sweep) -> Iterator[str]:
    """Yield what the names of baseline rows leave open."""
    for baselines in sweep.kinds.values():
        yield from _kind_notes(baselines)
    if not sweep.baselines.is_empty():
        yield TRAINED_NOTE


def _kind_notes(baselines: Frame) -> Iterator[str]:
    row_name = _row_name(baselines)
    if _has_several_names(baselines):
        pairs = baselines.select("name", "encoder").unique(maintain_order=True)
        names = map(baseline_name, pairs.to_dicts())
        yield f"{row_name}: {'; '.join(names)}."
    if "" not in baselines["encoder"]:
        return
    yield f"{row_name} reads the audio: its values are the same for every encoder."
    if "reduced" in baselines["scoring"]:
        yield (
            f"{row_name} has one score per category; for the centroid, the AP of classes is "
            "averaged within categories. The two tasks are compared as in the paper."
        )


Group = tuple[str, str]  # a spread and a metric
BASELINE_TITLE = (
    "baselines trained on all labels, and the k at which the centroid passes them"
)
CROSSOVERS = {"k_mean": "mean", "k_clear": "clear"}
K_NOTE = (
    "Columns of k: mean is the first k at which the mean of the centroid is above the baseline, "
    "clear the k from which the 98 % interval of the difference, of all comparisons and k at once, "
    "stays above 0; – means at no k up to k*."
)


def baseline_table(results: CorpusResults, *_: Any) -> Table | None:
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
        f"{results.corpus}: {BASELINE_TITLE}",
        _baseline_columns(groups),
        rows,
        notes=[("", TRAINED_NOTE), ("", K_NOTE)],
        blocks=True,
        section="training",
    )


def _baseline_columns(groups: Sequence[Group]) -> list[Column]:
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
        yield _number_or_missing(values.get(metric), 4)
    yield Cell(baselines["how"][0] or MISSING)


def _crossover_cells(crossovers: Frame, groups: Sequence[Group]) -> Iterator[Cell]:
    shots = crossovers.rows_by_key(["spread", "metric"], named=True, unique=True)
    for group in groups:
        row = shots.get(group, {})
        for column in CROSSOVERS:
            yield _number_or_missing(row.get(column), 0)


def _number_or_missing(value: float | None, decimals: int) -> Cell:
    return Cell(MISSING) if value is None else number(value, decimals)


MetricShot = tuple[str, int]  # a metric and a k

CLASSIFIER_KEY = ("encoder", "classifier", "metric", "k")


def classifier_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, *_: Any
) -> Table | None:
    """Return mAP and AUROC of every classifier by k, if there are others than the reference.

    The spread is the preferred one of those that all have. Means are over the draws that all
    classifiers have, so that luck favours none.
    """
    if results.other_classifiers is None or results.other_classifiers.values.is_empty():
        return None
    spread = common_spread(results)
    all_values = join_classifiers(results).values
    values = all_values.filter(IS_SHOWN, scoring="all", spread=spread)
    evaluated = values["classifier"]
    names = [name for name in list_classifiers(results) if name in evaluated]
    encoders = unique_values(values, "encoder")
    groups = list(product(RANKING_METRICS, shown_shots(values["k"], shots)))
    cells = _mean_cells(values, _common_draws(values))
    notes = _classifier_notes(results, values, names, spread)
    return Table(
        "classifiers",
        f"{results.corpus}: classifiers with k exemplars per class, {spread}",
        _classifier_columns(groups),
        _classifier_rows(cells, encoders, names, groups),
        notes=[("", note) for note in notes],
        blocks=True,
        section="training",
    )


def _classifier_columns(groups: Sequence[MetricShot]) -> list[Column]:
    columns = [Column("Encoder"), Column("Classifier")]
    for metric, k in groups:
        columns.append(Column(str(k), f"{METRIC_NAMES[metric]} at k"))
    return columns


def _common_draws(values: Frame) -> int:
    """Return how many draws every classifier has; they are the first ones of each."""
    return int(min(values["value"].list.len()))


def _classifier_rows(
    cells: Mapping[tuple[object, ...], Cell],
    encoders: Sequence[str],
    names: Sequence[str],
    groups: Sequence[MetricShot],
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
    """Return means over the first draws as cells; an encoder's best is underlined."""
    points = values.select(
        *CLASSIFIER_KEY, mean=pl.col("value").list.head(draws).list.mean()
    )
    mean = pl.col("mean").fill_nan(None)
    best = mean.max().over("encoder", "metric", "k")
    points = points.with_columns(is_best=mean == best)
    cells = {}
    for *key, value, is_best in points.iter_rows():
        underline = 1 if is_best else 0
        cells[tuple(key)] = number(value, 3, underline)
    return cells


def _classifier_notes(
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


INTERVAL = ("mean", "p01", "p99")
PERCENTILES = "p01 and p99 are the 1st and the 99th percentile"
DIFFERENCE_NOTE = (
    f"The first minus the second, over the same draws; {PERCENTILES}; wins is the share of samples "
    "in which the first is larger, with ties counted half. Underlined: a clear difference, by a 98 "
    "% interval of all pairs and all k up to k* at once."
)


def interval_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, *_: Any
) -> Table:
    """Return the mean and the 98 % interval by k, for each encoder and spread."""
    curve = results.evaluation.curve.filter(scoring="all")
    spreads = unique_values(curve, "spread")
    meanings = [f"{spread} is {SPREADS[spread]}" for spread in spreads]
    return _make_comparison(
        results,
        curve.with_columns(clear=False, Encoder="encoder"),
        INTERVAL,
        shots,
        name="intervals",
        title="means and intervals by k",
        note=f"{PERCENTILES}; {'; '.join(meanings)}.",
    )


def difference_table(
    results: CorpusResults, shots: Shots = PAPER_SHOTS, *_: Any
) -> Table | None:
    """Return paired differences by k, if there are any: mean, interval, and share of wins."""
    differences = results.evaluation.differences
    if differences.is_empty():
        return None
    pair = pl.format("{} − {}", "one", "other")
    reduced = pl.format("{} − {}, {} scoring", "one", "other", "scoring")
    pair = pl.when(scoring="all").then(pair).otherwise(reduced)
    return _make_comparison(
        results,
        differences.with_columns(Difference=pair),
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
        _comparison_rows(points, fields, groups, shown, star),
        notes=[star_note(star, complete_shots), ("", note)],
        blocks=True,
        section="certainty",
    )


def _list_groups(points: Frame) -> list[Group]:
    """Return the spreads and metrics that have columns, in their order."""
    spreads = unique_values(points, "spread")
    pairs = points.select("spread", "metric").unique().rows()
    return [group for group in product(spreads, TABLE_METRICS) if group in pairs]


def _comparison_rows(
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


# By `(results, shots, spread)`, in their order; None where a corpus has no data.
TABLES: tuple[Callable[..., Table | None], ...] = (
    score_table,
    reduced_table,
    baseline_table,
    classifier_table,
    interval_table,
    difference_table,
)
