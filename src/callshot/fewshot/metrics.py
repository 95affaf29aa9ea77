"""Scores and truth of one ranking → AP, AUROC, and the AP of chance.

Metrics of folds and classes → the values of one spread: mean over classes, then over folds."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError
from callshot.fewshot.episodes import Split
from callshot.fewshot.kernels.ranks import ranking_metrics
from callshot.records import (
    DECISION_METRICS,
    METRICS,
    RANKING_METRICS,
    FloatArray,
    IntArray,
)


def average_precision(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Return the average precision of one ranking; ties count as in scikit-learn.

    >>> average_precision([0.9, 0.8, 0.7], [True, False, True])
    0.8333333333333333
    """
    return float(ranking_metrics(*_check_ranking(scores, relevant))[0])


def auroc(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Return the area under the ROC curve of one ranking; NaN where no query is negative.

    >>> auroc([0.9, 0.8, 0.7], [True, False, True])
    0.5
    """
    return float(ranking_metrics(*_check_ranking(scores, relevant))[1])


def chance_average_precision(positives: ArrayLike, queries: ArrayLike) -> FloatArray:
    """Return the expected AP of a random ranking: above positives / queries where these are few.

    >>> round(float(chance_average_precision(1, 4)), 4)
    0.5208
    """
    p = np.asarray(positives, np.float64)
    n = np.asarray(queries, np.int64)
    harmonic = harmonic_numbers(int(n.max(initial=1)))[n]
    rest_share = np.where(n > 1, (p - 1) / np.maximum(n - 1, 1), 0.0)
    return np.asarray((harmonic + rest_share * (n - harmonic)) / n)


def harmonic_numbers(n: int) -> FloatArray:
    """Return H(0) … H(n), each correct to the last digit or the one before (compensated sum)."""
    harmonic = np.zeros(n + 1)
    total = 0.0
    lost = 0.0
    for i in range(1, n + 1):
        term = 1.0 / i - lost
        new = total + term
        lost = (new - total) - term
        total = new
        harmonic[i] = total
    return harmonic


def _check_ranking(
    scores: ArrayLike, relevant: ArrayLike
) -> tuple[FloatArray, NDArray[np.bool_]]:
    score = np.asarray(scores, np.float64)
    truth = np.asarray(relevant, bool)
    if score.ndim != 1 or score.shape != truth.shape:
        raise InputError(
            f"expected one score and one truth per query, got {score.shape} and {truth.shape}"
        )
    if not truth.any():
        raise InputError(
            "no query is relevant: average precision and AUROC are undefined"
        )
    missing = np.flatnonzero(np.isnan(score))
    if missing.size:
        raise InputError(f"score {missing[0]} is not a number")
    return score, truth


Groups = Sequence[IntArray]  # the class numbers of each group


class MetricSums:
    """Sums over folds, added in their order, so that nothing of size folds × samples is stored.

    values[scoring, metric] is (shots, samples); per_class[metric] is (shots, classes, samples).
    Scoring `all` averages over classes, `reduced` inside each category first. A class for which
    every query of a fold is positive has no AUROC there: it is left out of that fold's mean, and
    `undefined` counts it. `chance` is what the same decisions would score if they did not depend on
    the query, by metric and shot; NaN where no decisions were counted.
    """

    def __init__(
        self,
        shots: int,
        samples: int,
        classes: Sequence[str],
        categories: Mapping[str, str] | None,
    ) -> None:
        count = len(classes)
        self.groups: dict[str, Groups] = {"all": [np.array([n]) for n in range(count)]}
        if categories is not None:
            self.groups["reduced"] = group_classes(classes, categories)
        keys = _list_values(self.groups)
        self.values = {key: self.new_table(shots, samples) for key in keys}
        size = (shots, count, samples)
        self.per_class = {metric: self.new_table(*size) for metric in METRICS}
        self.tied = np.zeros((shots, count), np.int64)
        self.decisions = np.zeros((shots, count, count))
        self.chance = {metric: np.zeros(shots) for metric in DECISION_METRICS}
        self.decided_before = np.zeros((shots, count))  # in the folds that are complete
        self.undefined = np.zeros(count, np.int64)
        self.folds = 0
        self.folds_with_auroc = dict.fromkeys(self.groups, 0)

    def new_table(self, *size: int) -> FloatArray:
        """Return the sums of one metric, none added yet."""
        return np.zeros(size)

    def add(
        self,
        shot: int,
        split: Split,
        ap: FloatArray,
        auroc: FloatArray,
        hits: FloatArray,
    ) -> None:
        """Add one fold's metrics, (classes, samples), at one of the shots; hits count queries."""
        queries = np.bincount(split.label, minlength=len(ap))
        recall = hits / queries[:, None]
        self.per_class["map"][shot] += ap
        self.per_class["auroc"][shot] += np.nan_to_num(auroc)
        self.per_class["accuracy"][shot] += recall
        self.values["all", "accuracy"][shot] += hits.sum(axis=0) / len(split.rows)
        self.values["all", "balanced_accuracy"][shot] += recall.mean(axis=0)
        defined = np.flatnonzero(split.positives < len(split.rows))
        for scoring, groups in self.groups.items():
            defined_groups = _restrict(groups, defined)
            self.values[scoring, "map"][shot] += _mean_of_groups(ap, groups)
            self.values[scoring, "auroc"][shot] += _mean_of_groups(
                auroc, defined_groups
            )

    def close_fold(self, split: Split) -> None:
        """Count a fold as complete."""
        is_undefined = split.positives == len(split.rows)
        self.folds += 1
        self.undefined += is_undefined
        self._add_chance(split)
        for scoring, groups in self.groups.items():
            defined_groups = _restrict(groups, np.flatnonzero(~is_undefined))
            self.folds_with_auroc[scoring] += bool(defined_groups)

    def _add_chance(self, split: Split) -> None:
        """Add Σ_n P(decide n) · P(n is a label of the query), and its mean over true classes."""
        decided = self.decisions.sum(axis=1)
        of_fold = decided - self.decided_before
        total = of_fold.sum(axis=1, keepdims=True)
        probability = of_fold / np.where(total > 0, total, np.nan)
        frequency = {
            "accuracy": split.relevant.mean(axis=1),
            "balanced_accuracy": _mean_by_class(split),
        }
        for metric, share in frequency.items():
            self.chance[metric] += (probability * share).sum(axis=1)
        self.decided_before = decided

    def finish(self, draws: int) -> None:
        """Turn sums over folds into means, and decisions into mean counts over draws."""
        for key, table in self.tables():
            table /= self.divisor(key)
        for level in self.chance.values():
            level /= self.folds
        self.decisions /= draws

    def tables(self) -> list[tuple[Any, FloatArray]]:
        """Return all sums of metrics, with the keys of `values` and `per_class`."""
        return [*self.values.items(), *self.per_class.items()]

    def divisor(self, key: Any) -> FloatArray:
        """Return what turns the sums of one table into means: 1, or one number per class."""
        if key == "auroc":
            folds = self.folds - self.undefined
            return np.where(folds > 0, folds, np.nan)[:, None]
        if key[1] == "auroc":
            return np.array(self.folds_with_auroc[key[0]] or np.nan)
        return np.array(float(self.folds))


class WeightedMetricSums(MetricSums):
    """Sums over folds of the spread `total`, in which queries have weights.

    The value of a class is its mean over folds, weighted by the mean weight of its positives in
    the fold: with one recording per fold and class there would be no variation otherwise. Equal
    weights give the same values as `MetricSums`, up to rounding.
    """

    def __init__(
        self,
        shots: int,
        samples: int,
        classes: Sequence[str],
        categories: Mapping[str, str] | None,
    ) -> None:
        super().__init__(shots, samples, classes, categories)
        size = (len(classes), samples)
        self.weight = {metric: np.zeros(size) for metric in METRICS}
        self.fold_weight = np.zeros(samples)
        self.positive_weight = np.zeros(size)  # of the fold that is being added

    def add_weights(self, split: Split, weights: FloatArray) -> None:
        """Begin a fold with the weights of its queries, (queries, samples)."""
        positive = split.relevant.astype(float) @ weights / split.positives[:, None]
        self.positive_weight = positive
        has_negatives = split.positives < len(split.rows)
        self.weight["map"] += positive
        self.weight["auroc"] += positive * has_negatives[:, None]
        self.weight["accuracy"] += _mean_by_label(split, weights)
        self.fold_weight += weights.mean(axis=0)

    def add_weighted(
        self,
        shot: int,
        split: Split,
        ap: FloatArray,
        auroc: FloatArray,
        hits: FloatArray,
    ) -> None:
        """Add metrics of the fold, (classes, samples); hits are sums of weights."""
        positive = self.positive_weight
        queries = np.bincount(split.label, minlength=len(ap))
        self.per_class["map"][shot] += positive * ap
        self.per_class["auroc"][shot] += positive * np.nan_to_num(auroc)
        self.per_class["accuracy"][shot] += hits / queries[:, None]
        self.values["all", "accuracy"][shot] += hits.sum(axis=0) / len(split.rows)

    def finish(self, draws: int) -> None:
        """Turn sums over folds into weighted means."""
        has_auroc = np.flatnonzero(self.undefined < self.folds)
        for metric in METRICS:
            weight = self.weight[metric]
            self.per_class[metric] /= np.where(weight > 0, weight, np.nan)
        self.values["all", "accuracy"] /= self.fold_weight
        recall = self.per_class["accuracy"].mean(axis=1)
        self.values["all", "balanced_accuracy"][:] = recall
        for scoring, groups in self.groups.items():
            defined = {"map": list(groups), "auroc": _restrict(groups, has_auroc)}
            for metric, kept in defined.items():
                table = self.values[scoring, metric]
                for shot, samples in enumerate(self.per_class[metric]):
                    table[shot] = _mean_of_groups(samples, kept) if kept else np.nan


def _list_values(scorings: Iterable[str]) -> list[tuple[str, str]]:
    """Return the scoring and metric of every value."""
    keys = list(product(scorings, RANKING_METRICS))
    keys += [("all", metric) for metric in DECISION_METRICS]
    return keys


def _mean_by_label(split: Split, weights: FloatArray) -> FloatArray:
    """Return the mean weight of the queries of each class, (classes, samples)."""
    is_label = split.label == np.arange(len(split.relevant))[:, None]
    counts = is_label.sum(axis=1, keepdims=True)
    return np.asarray(is_label.astype(float) @ weights / counts)


def _mean_by_class(split: Split) -> FloatArray:
    """Return P(n is a label of the query) of each n, if every true class is as frequent."""
    classes = range(len(split.relevant))
    shares = [split.relevant[:, split.label == n].mean(axis=1) for n in classes]
    return np.asarray(np.mean(shares, axis=0))


def group_classes(
    classes: Sequence[str], categories: Mapping[str, str]
) -> list[IntArray]:
    """Return the class numbers of each category, by name; classes without one are left out."""
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


def _restrict(groups: Groups, defined: IntArray) -> list[IntArray]:
    """Return the groups without the classes that are not defined, and without empty groups."""
    restricted = [group[np.isin(group, defined)] for group in groups]
    return [group for group in restricted if group.size]


def _mean_of_groups(table: FloatArray, groups: Groups) -> FloatArray:
    """Average (classes, samples) inside each group, then over groups; 0 without groups."""
    total = np.zeros(table.shape[1])
    for group in groups:
        if group.size > 1:
            total += table[group].mean(axis=0)
        else:
            total += table[group[0]]
    return total / max(len(groups), 1)
