"""Metrics of folds and classes → the values of one spread.

The kernels give the `ClassTables` of a fold. A metric is a `Formula` on these tables, in
`FORMULAS`, with a row in `records.METRICS`. `MetricSums` averages all of them over classes, then
over folds.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError
from callshot.fewshot.episodes import Episodes, Split, make_splits
from callshot.fewshot.folds import complete_shots, new_exemplars
from callshot.fewshot.kernels.ranks import ClassTables, FoldMetrics, measure_fold
from callshot.fewshot.spreads import UNIT
from callshot.records import (
    CLASS_METRICS,
    DECISION_METRICS,
    METRIC_NAMES,
    RANKING_METRICS,
    ClassCount,
    FloatArray,
    IntArray,
)
from callshot.records.frames import (
    CONFUSION,
    CURVE,
    PER_CLASS,
    TIES,
    Frame,
    make_frame,
    summarise_samples,
    values_frame,
)

MIN_TIED_SHARE = 0.005  # of the scores of a class, to be noted
MIN_TIE_COST = 0.0005  # AP
Groups = Sequence[IntArray]  # the class numbers of each group


def chance_average_precision(positives: ArrayLike, queries: ArrayLike) -> FloatArray:
    """Return the expected AP of a random ranking; with few queries above positives / queries.

    >>> round(float(chance_average_precision(1, 4)), 4)
    0.5208
    """
    positives = np.asarray(positives, np.float64)
    queries = np.asarray(queries, np.int64)
    largest = int(queries.max(initial=1))
    harmonic = harmonic_numbers(largest)[queries]
    # A positive at rank r has (r − 1) · share other positives above it on average, so a precision
    # of (1 + (r − 1) · share) / r. Its rank r is any of 1 … queries.
    others = np.maximum(queries - 1, 1)
    share = (positives - 1) / others
    return (harmonic + share * (queries - harmonic)) / queries


def harmonic_numbers(n: int) -> FloatArray:
    """Return the harmonic numbers H(0) … H(n), each correct to the last digit or the one before."""
    harmonic = np.zeros(n + 1)
    total = 0.0
    lost = 0.0  # by rounding, so far (Kahan's compensated sum)
    for i in range(1, n + 1):
        term = 1.0 / i - lost
        new = total + term
        lost = (new - total) - term
        total = new
        harmonic[i] = total
    return harmonic


def measure(
    split: Split,
    scores: FloatArray,
    decided: NDArray[np.uint16],
    units: IntArray | None = None,
) -> FoldMetrics:
    """Return AP, AUROC and decisions of each class in some draws of one fold.

    `scores` is (draws, shots, classes, queries), `decided` (draws, shots, queries) the class that
    is decided for. `units` (draws, queries) are weights in multiples of UNIT; with them,
    `decisions` and `tied` of the result are meaningless.
    """
    draws, shots, classes, queries = scores.shape
    size = (len(ClassTables._fields), draws, shots, classes)
    tables = ClassTables(*np.empty(size))  # one table for each field
    decisions = np.zeros((shots, classes, classes), np.int64)
    tied = np.zeros((shots, classes), np.int64)
    metrics = FoldMetrics(tables, decisions, tied)
    weight = units
    if weight is None:
        weight = np.ones((draws, queries), np.int64)
    measure_fold(scores, decided, split.truth, weight, metrics)
    if units is not None:  # AP and AUROC do not depend on the unit, sums of weights do
        for table in (tables.hits, tables.correct, tables.decided):
            table *= UNIT
    return metrics


def by_sample(metrics: Sequence[FoldMetrics]) -> ClassTables:
    """Join the tables (draws, shots, classes) of blocks of draws to (shots, classes, draws)."""
    by_field = zip(*[block.tables for block in metrics], strict=True)
    joined = [np.concatenate(tables).transpose(1, 2, 0) for tables in by_field]
    return ClassTables(*joined)


class Fold(NamedTuple):
    """The number of queries of a fold by class, and their mean weights in each sample.

    `size` counts all queries, `queries` (classes, 1) those with each class as their label. The mean
    weights are those of all queries (samples), of the positives of each class, and of the queries
    with each class as their label (classes, samples). `auroc_weight` is `positive_weight`, but
    0 for a class for which every query is positive.
    """

    size: Any
    queries: Any
    query_weight: Any
    positive_weight: Any
    auroc_weight: Any
    label_weight: Any


def weigh_fold(split: Split, weights: Any) -> Fold:
    """Count the queries of a fold by class, and average their weights (queries, samples).

    Without `weights`, all are 1: one column stands for all samples. For the shapes see `Fold`.
    """
    size = len(split.rows)
    if weights is None:
        weights = np.ones((size, 1))
    positives = split.positives[:, None]
    # Outputs of networks may have no positive in a fold, or never be a label: divide by 1 then.
    weight_sum = split.relevant.astype(float) @ weights  # (classes, samples)
    positive_weight = weight_sum / np.maximum(positives, 1)
    is_label = split.label == np.arange(len(positives))[:, None]  # (classes, queries)
    queries = np.maximum(is_label.sum(axis=1, keepdims=True), 1)
    return Fold(
        size=np.array(size),
        queries=queries,
        query_weight=weights.mean(axis=0),
        positive_weight=positive_weight,
        auroc_weight=positive_weight * (positives < size),
        label_weight=is_label.astype(float) @ weights / queries,
    )


@dataclass(frozen=True)
class Formula:
    """How a metric is computed from the tables of a fold.

    `of_classes` returns the value of each class, (…, classes, samples), times the weight of the
    class in the mean over folds: the field `weight` of `Fold`; a class of weight 0 has no value.
    The metric is the mean of these values over classes, or what `of_fold` returns, if there is one:
    the value of all queries, times their mean weight.

    For metrics of rankings, `chance` returns what a random ranking of a class scores, from its
    positives and all queries. For decisions it returns what they would score at every shot if they
    did not depend on the query, from a split and the probability (shots, classes) of a decision for
    each class.
    """

    of_classes: Callable[[Fold, ClassTables], Any]
    weight: str
    chance: Callable[..., Any]
    of_fold: Callable[[Fold, ClassTables], Any] | None = None
    mean_of: str = ""  # another metric with the same values of classes


def weighted_f1(fold: Fold, tables: ClassTables) -> Any:
    """Return the F1 of the decisions for each class, times the mean weight of its queries.

    A decision for any label of a query is right, a true positive of the class that was decided for.
    Any other is a false positive of that class, and a false negative of the query's own label.
    Without queries and decisions F1 is 0.
    """
    false_negative = fold.label_weight * fold.queries - tables.hits
    # 2 TP + FP + FN, as `decided` is TP + FP.
    denominator = tables.correct + tables.decided + false_negative
    f1 = 2.0 * tables.correct / (denominator + (denominator == 0))
    return fold.label_weight * f1


def chance_accuracy(split: Split, probability: FloatArray) -> FloatArray:
    """Return Σ_n P(decide n) · P(n is a label of the query), at each of the shots."""
    share_with_label = split.relevant.mean(axis=1)  # of the queries, for each class
    return (probability * share_with_label).sum(axis=1)


def chance_balanced_accuracy(split: Split, probability: FloatArray) -> FloatArray:
    """Return the mean over classes of the chance that a decision for a query is right."""
    share = label_shares(split).mean(axis=0)
    return (probability * share).sum(axis=1)


def chance_macro_f1(split: Split, probability: FloatArray) -> FloatArray:
    """Return the mean over classes of F1 with the expected TP, FP and FN, as shares of all queries.

    Where queries have one label, it is what the same decisions in a random order are expected to
    score.
    """
    relevant_share = split.relevant.mean(axis=1)
    true_positive = probability * relevant_share
    # How often a query of each class gets a decision for any of its labels.
    hit_rate = probability @ label_shares(split).T
    queries = np.bincount(split.label, minlength=len(split.relevant))
    query_share = queries / len(split.label)
    false_negative = query_share * (1.0 - hit_rate)
    # 2 TP + FP + FN, as `probability` is TP + FP.
    denominator = true_positive + probability + false_negative
    known_denominator = np.where(denominator == 0, 1.0, denominator)
    f1 = 2.0 * true_positive / known_denominator
    return f1.mean(axis=1)


def label_shares(split: Split) -> FloatArray:
    """Return shares[n, m], the share of the queries of class n that have m among their labels."""
    classes = np.arange(len(split.relevant))
    is_label = (classes[:, None] == split.label).astype(float)  # (classes, queries)
    with_both = is_label @ split.relevant.T.astype(float)
    queries = is_label.sum(axis=1, keepdims=True)
    return with_both / np.maximum(queries, 1)


def weighted_recall(fold: Fold, tables: ClassTables) -> Any:
    """Return the share of each class's queries with a right decision, times their mean weight."""
    return tables.hits / fold.queries


FORMULAS = {
    "map": Formula(
        lambda fold, tables: fold.positive_weight * tables.ap,
        "positive_weight",
        chance_average_precision,
    ),
    "auroc": Formula(
        lambda fold, tables: fold.positive_weight * tables.auroc,
        "auroc_weight",
        lambda positives, _queries: np.full(np.shape(positives), 0.5),
    ),
    "accuracy": Formula(
        weighted_recall,
        "label_weight",
        chance_accuracy,
        of_fold=lambda fold, tables: tables.hits.sum(axis=-2) / fold.size,
    ),
    "balanced_accuracy": Formula(
        weighted_recall, "label_weight", chance_balanced_accuracy, mean_of="accuracy"
    ),
    "macro_f1": Formula(weighted_f1, "label_weight", chance_macro_f1),
}


class MetricSums:
    """The metrics of a sweep: sums over folds, which `finish` turns into means.

    values[scoring, metric] is (shots, samples); per_class[metric] is (shots, classes, samples).
    Scoring `all` averages over classes, `reduced` inside each category first. A class that has no
    value of a metric in a fold is left out of that fold's mean, and `undefined[metric]` counts it.
    `tied` (shots, classes) counts tied positives, `decisions` is (shots, true class, predicted
    class). `chance` is by metric and shot; NaN where no decisions were counted.

    In the spread `total` queries have weights. There the value of a class is its mean over folds,
    weighted by the mean weight of its positives in the fold: with one recording per fold and class
    there would be no variation otherwise.

    `left_out` are the sums of the same draws without the queries of some recordings.
    """

    def __init__(
        self,
        shots: int,
        samples: int,
        classes: Sequence[str],
        categories: Mapping[str, str] | None,
    ) -> None:
        """Begin all sums with zeros; `categories` of the classes give a reduced scoring."""
        count = len(classes)
        self.classes = classes
        self.groups: dict[str, Groups] = {"all": [np.array([n]) for n in range(count)]}
        if categories is not None:
            self.groups["reduced"] = group_classes(classes, categories)
        keys = [(scoring, name) for scoring in self.groups for name in RANKING_METRICS]
        keys += [("all", name) for name in DECISION_METRICS]
        self.values = {key: self.zeros(shots, samples) for key in keys}
        self.per_class = {}
        for name, formula in FORMULAS.items():
            if not formula.mean_of:
                self.per_class[name] = self.zeros(shots, count, samples)
        self.undefined: dict[str, IntArray] = {}
        self.tied: Any = self.zeros(shots, count)
        self.decisions = self.zeros(shots, count, count)
        self.chance = {name: np.zeros(shots) for name in DECISION_METRICS}
        self.left_out: MetricSums | None = None
        # Samples of the mean over labelled sets, if they were drawn
        self.means: Any = None
        self._is_weighted = False
        # For each fold: its split, its weights, and its decisions for each class.
        self._folds: list[tuple[Split, Fold, FloatArray]] = []

    def zeros(self, *size: int) -> FloatArray:
        """Return a table of zeros on the device of the sums."""
        return np.zeros(size)

    def to_device(self, table: Any) -> Any:
        """Return a table, copied to the device of the sums if it is elsewhere."""
        return table

    def open_fold(
        self, split: Split, weights: Any = None, column: IntArray | None = None
    ) -> None:
        """Begin a fold; metrics that are added from now on are of this fold.

        `weights` (queries, samples) are None if all are 1. Where many samples have the same
        weights, `weights` has each of them once, and `column` (samples,) is the column of each
        sample.
        """
        self._is_weighted = weights is not None
        decided = self.zeros(*self.tied.shape)
        fold = weigh_fold(split, weights)
        if column is not None:  # one column for each sample
            size, queries, *mean_weights = fold
            by_sample = [table[..., column] for table in mean_weights]
            fold = Fold(size, queries, *by_sample)
        self._folds.append((split, fold, decided))

    def add_values(self, rows: slice, tables: ClassTables) -> None:
        """Add the metrics of the open fold, from tables (shots, classes, samples) of some shots.

        Values of classes come first, then their means over classes; `finish` takes those of
        weighted queries.
        """
        _, fold, _ = self._folds[-1]  # on the CPU, as `has_value` needs it
        fold_on_device = Fold(*map(self.to_device, fold))
        tables = ClassTables(*map(self.to_device, tables))
        values_of_classes = {}
        for name, total in self.per_class.items():
            value = FORMULAS[name].of_classes(fold_on_device, tables)
            is_undefined = ~has_value(name, fold)
            undefined = np.flatnonzero(is_undefined)
            if undefined.size:
                value[..., undefined.tolist(), :] = 0.0
            total[rows] += value
            values_of_classes[name] = value
        for (scoring, name), total in self.values.items():
            formula = FORMULAS[name]
            if formula.of_fold is not None:
                total[rows] += formula.of_fold(fold_on_device, tables)
            elif not self._is_weighted:
                value = values_of_classes[formula.mean_of or name]
                defined = has_value(name, fold)
                total[rows] += self._mean(scoring, name, value, defined)

    def add_decisions(self, rows: slice, decisions: Any, tied: Any) -> None:
        """Add counts of decisions (shots, true, predicted) and ties (shots, classes)."""
        self.tied[rows] += self.to_device(tied)
        self.decisions[rows] += self.to_device(decisions)
        _, _, decided = self._folds[-1]  # by predicted class, for the chance level
        by_predicted = decisions.sum(axis=1)
        decided[rows] += self.to_device(by_predicted)

    def finish(self, draws: int) -> None:
        """Turn sums over folds into means, and decisions into mean counts over `draws` draws.

        Without weights a metric is the mean of the folds that have a value; with weights, it is the
        mean of the classes' means over folds, by their weight in each.
        """
        self._average_chance()
        self.tied = self.tied.astype(np.int64)
        self.decisions /= draws
        self._average_classes()
        folds = [fold for _, fold, _ in self._folds]
        for (scoring, name), table in self.values.items():
            formula = FORMULAS[name]
            defined = [has_value(name, fold) for fold in folds]
            in_any = np.any(defined, axis=0)
            if formula.of_fold is not None:
                query_weight = sum(fold.query_weight for fold in folds)
                table /= self.to_device(query_weight)
            elif not self._is_weighted:
                count = 0  # folds that have a value
                for defined_in_fold in defined:
                    if self._defined_groups(scoring, defined_in_fold):
                        count += 1
                table /= float(count) or np.nan
            elif self._defined_groups(scoring, in_any):
                # Nothing was added up: the means of the classes are averaged.
                value = self.per_class[formula.mean_of or name]
                table[:] = self._mean(scoring, name, value, in_any)
            else:
                table[:] = np.nan

    def _average_chance(self) -> None:
        """Set the chance levels of decisions to their means over folds, in place."""
        for split, _, decided in self._folds:
            total = decided.sum(axis=1, keepdims=True)
            known_total = np.where(total > 0, total, np.nan)
            probability = decided / known_total  # (shots, classes)
            for name, level in self.chance.items():
                level += FORMULAS[name].chance(split, probability)
        for level in self.chance.values():
            level /= len(self._folds)

    def _average_classes(self) -> None:
        """Divide the sums of each class by its weight in all folds; count undefined values."""
        folds = [fold for _, fold, _ in self._folds]
        for name, class_table in self.per_class.items():
            weight_field = FORMULAS[name].weight
            weight = sum(getattr(fold, weight_field) for fold in folds)
            known_weight = np.where(weight > 0, weight, np.nan)
            class_table /= self.to_device(known_weight)
            undefined = [~has_value(name, fold) for fold in folds]
            self.undefined[name] = np.sum(undefined, axis=0)

    def chance_level(self, scoring: str, metric: str) -> FloatArray:
        """Return what a random ranking, or decisions that ignore the query, would score at each k.

        A class can win more decisions than others whatever the query: the mean of many exemplars is
        shorter. So how often each class is decided for is counted from the decisions themselves.
        The result is (shots); for a ranking it is the same at each.
        """
        if metric in self.chance:
            return self.chance[metric]
        by_fold = []
        for split, _, _ in self._folds:
            chance = FORMULAS[metric].chance(split.positives, len(split.rows))
            of_groups = [chance[group].mean() for group in self.groups[scoring]]
            by_fold.append(np.mean(of_groups))
        mean = np.mean(by_fold)
        return np.full(len(self.tied), mean)

    def _mean(
        self, scoring: str, name: str, table: Any, defined: NDArray[np.bool_]
    ) -> Any:
        """Average a table (…, classes, samples) over classes; for rankings inside each group first.

        Rankings leave out classes that are not `defined` (classes,). The metric `name` says whether
        it is of rankings.
        """
        if name in DECISION_METRICS:
            return table.mean(axis=-2)
        groups = self._defined_groups(scoring, defined)
        total = 0.0
        for group in groups:
            classes = group.tolist()
            if len(classes) > 1:
                total = total + table[..., classes, :].mean(axis=-2)
            else:
                total = total + table[..., classes[0], :]
        return total / max(len(groups), 1)

    def _defined_groups(self, scoring: str, defined: NDArray[np.bool_]) -> Groups:
        """Return the groups of a scoring, without classes that have no value and empty groups."""
        groups = [group[defined[group]] for group in self.groups[scoring]]
        return [group for group in groups if group.size]


def has_value(metric: str, fold: Fold) -> NDArray[np.bool_]:
    """Return whether each class has a value of a metric in a fold: a weight above 0."""
    weight = getattr(fold, FORMULAS[metric].weight)
    return weight.any(axis=1)


def group_classes(
    classes: Sequence[str], categories: Mapping[str, str]
) -> list[IntArray]:
    """Return the class numbers of each category; classes without one are left out."""
    names = sorted({categories[name] for name in classes if name in categories})
    if not names:
        labels = ", ".join(classes)
        raise InputError(
            f"categories: none of the evaluated labels has a category; the labels are {labels}"
        )
    numbers = range(len(classes))
    return [
        np.array([n for n in numbers if categories.get(classes[n]) == name])
        for name in names
    ]


Key = Mapping[str, str]
"""Corpus, encoder, classifier and spread."""


def summarise_sweep(
    key: Key,
    k: IntArray,
    sums: MetricSums,
    counts: Sequence[ClassCount],
) -> dict[str, Frame]:
    """Return the frames `curve`, `values` and `per_class` of one sweep.

    `k` has the number of exemplars of each row of `sums`, `counts` are of all classes.
    """
    last = complete_shots(counts)
    points = {
        "k": k,
        "complete": k <= last,
        "new_exemplars": [new_exemplars(counts, shots) for shots in k],
        "ties": sums.tied.sum(axis=1),
    }
    curves = []
    values = []
    per_class = []
    for (scoring, metric), samples in sums.values.items():  # (shots, samples)
        constants = {**key, "scoring": scoring, "metric": metric}
        columns = points | summarise_samples(samples)
        columns["chance"] = sums.chance_level(scoring, metric)
        curves.append(make_frame(CURVE, columns, constants))
        values.append(values_frame(constants, k, samples))
    for metric in CLASS_METRICS:
        samples = sums.per_class[metric]  # (shots, classes, samples)
        low, high = np.percentile(samples, (1, 99), axis=2)
        tables = {"mean": samples.mean(axis=2), "p01": low, "p99": high}
        columns = _class_columns(k, sums.classes, tables)
        constants = {**key, "scoring": "all", "metric": metric}
        per_class.append(make_frame(PER_CLASS, columns, constants))
    return {
        "curve": pl.concat(curves),
        "values": pl.concat(values),
        "per_class": pl.concat(per_class),
    }


def confusion_frame(key: Key, k: IntArray, sums: MetricSums) -> Frame:
    """Return every cell of the confusion matrix at every k, as rows of CONFUSION."""
    names = list(sums.classes)
    count = sums.decisions  # (shots, true, predicted)
    row_sum = count.sum(axis=2, keepdims=True)
    columns = {
        "k": np.repeat(k, len(names) ** 2),
        "true": np.repeat(names, len(names)).tolist() * len(k),
        "predicted": names * (len(names) * len(k)),
        "count": count.ravel(),
        "row_sum": np.broadcast_to(row_sum, count.shape).ravel(),
        "recall": (count / np.where(row_sum > 0, row_sum, np.nan)).ravel(),
    }
    return make_frame(CONFUSION, columns, key)


def ties_frame(
    key: Key,
    k: IntArray,
    sums: MetricSums,
    log_sums: MetricSums | None,
    episodes: Episodes,
    draws: int,
) -> Frame:
    """Return the ties of positives, by class and k, and what they cost: rows of TIES.

    `log_sums` are the metrics of log-odds on the same `draws` draws: the cost is their AP and AUROC
    minus those of `sums`, 0 without them.
    """
    positives = np.sum([split.positives for split in make_splits(episodes)], axis=0)
    cost = {}
    for metric in ("map", "auroc"):
        with_ties = sums.per_class[metric].mean(axis=2)
        cost[metric] = np.zeros_like(with_ties)
        if log_sums is not None:
            cost[metric] = log_sums.per_class[metric].mean(axis=2) - with_ties
    tables = {
        "ties": sums.tied,
        "share": sums.tied / np.maximum(positives * draws, 1),
        "cost_map": cost["map"],
        "cost_auroc": cost["auroc"],
    }
    columns = _class_columns(k, episodes.classes, tables)
    return make_frame(TIES, columns, key)


def _class_columns(
    k: IntArray, classes: Sequence[str], tables: Mapping[str, Any]
) -> dict[str, Any]:
    """Return columns with a row for every k and class from tables (shots, classes)."""
    columns = {"k": np.repeat(k, len(classes)), "label": list(classes) * len(k)}
    for name, table in tables.items():
        columns[name] = table.ravel()
    return columns


def describe_ties(ties: pl.DataFrame) -> list[str]:
    """Return a note on the ties of one encoder and spread, unless they would read as 0.

    `ties` are rows of TIES.
    """
    largest = ties["share"].arg_max() or 0  # None if all are null
    worst = ties.row(int(largest), named=True)
    cost = float(ties["cost_map"].to_numpy().max())
    if worst["share"] < MIN_TIED_SHARE and cost < MIN_TIE_COST:
        return []
    return [
        f"{worst['encoder']}, {worst['spread']}: scores of positives tie with other queries, "
        f"{worst['share']:.0%} of those of '{worst['label']}' at k = {worst['k']}, at a cost of "
        f"up to {max(cost, 0.0):.3f} AP; see ties.csv"
    ]


def describe_undefined(encoder: str, sums: MetricSums) -> Iterator[str]:
    """Yield a note on every class that has no value of a metric in some folds."""
    for metric, undefined in sums.undefined.items():
        for name, folds in zip(sums.classes, undefined.tolist(), strict=True):
            if folds:
                yield (
                    f"{encoder}: no {METRIC_NAMES[metric]} for '{name}' in {folds} fold(s), "
                    "where every query is positive for it"
                )
