"""Metrics of one ranking, and of folds and classes → the values of one spread.

`measure` computes what every spread, baseline and permutation is measured by. `MetricSums` averages
it over classes, then over folds.
"""

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError
from callshot.fewshot.episodes import Split
from callshot.fewshot.kernels.ranks import (
    FoldMetrics,
    measure_fold,
    ranking_metrics,
)
from callshot.records import (
    DECISION_METRICS,
    METRICS,
    RANKING_METRICS,
    FloatArray,
    IntArray,
)

Groups = Sequence[IntArray]  # the class numbers of each group


def average_precision(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Return the average precision of one ranking; ties count as in scikit-learn.

    >>> average_precision([0.9, 0.8, 0.7], [True, False, True])
    0.8333333333333333
    """
    return _measure_ranking(scores, relevant)[0]


def auroc(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Return the area under the ROC curve of one ranking; NaN where no query is negative.

    >>> auroc([0.9, 0.8, 0.7], [True, False, True])
    0.5
    """
    return _measure_ranking(scores, relevant)[1]


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


def _measure_ranking(scores: ArrayLike, relevant: ArrayLike) -> tuple[float, float]:
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
    ap, area, _ = ranking_metrics(score, np.ones(len(score), np.int64), truth)
    return float(ap), float(area)


def measure(
    split: Split,
    scores: FloatArray,
    decided: NDArray[np.uint16],
    units: IntArray | None = None,
) -> FoldMetrics:
    """Return the metrics of some draws of one fold.

    `scores` is (draws, shots, classes, queries), `decided` (draws, shots, queries). `units` are
    whole weights of queries, (draws, queries): with them, decisions and ties make no sense.
    """
    draws, shots, classes, queries = scores.shape
    size = (draws, shots, classes)
    metrics = FoldMetrics(
        ap=np.empty(size),
        auroc=np.empty(size),
        hits=np.empty(size),
        decisions=np.zeros((shots, classes, classes), np.int64),
        tied=np.zeros((shots, classes), np.int64),
    )
    weight = np.ones((draws, queries), np.int64) if units is None else units
    measure_fold(scores, decided, split.truth, weight, metrics)
    return metrics


class MetricSums:
    """Sums over folds, added in their order, so that nothing of size folds × samples is stored.

    values[scoring, metric] is (shots, samples); per_class[metric] is (shots, classes, samples).
    Scoring `all` averages over classes, `reduced` inside each category first. A class for which
    every query of a fold is positive has no AUROC there: it is left out of that fold's mean, and
    `undefined` counts it. `chance` is what the same decisions would score if they did not depend on
    the query, by metric and shot; NaN where no decisions were counted.

    In the spread `total` queries have weights. There the value of a class is its mean over folds,
    weighted by the mean weight of its positives in the fold: with one recording per fold and class
    there would be no variation otherwise. Equal weights give the same values, up to rounding.
    """

    library: Any = np  # of the tables; one with NumPy's functions

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
        keys = list(product(self.groups, RANKING_METRICS))
        keys += [("all", metric) for metric in DECISION_METRICS]
        self.values = {key: self.zeros(shots, samples) for key in keys}
        self.per_class = {
            metric: self.zeros(shots, count, samples) for metric in METRICS
        }
        self.tied: Any = self.zeros(shots, count)
        self.decisions = self.zeros(shots, count, count)
        self.chance = {metric: np.zeros(shots) for metric in DECISION_METRICS}
        self.undefined = np.zeros(count, np.int64)
        self._is_weighted = False
        # For each fold: its split, and its decisions for each class.
        self._folds: list[tuple[Split, FloatArray]] = []
        # The mean weight of the open fold's positives of each class, and sums over folds.
        self._positive_weight: FloatArray = np.ones((count, 1))
        self._weight = {metric: np.zeros((count, samples)) for metric in METRICS}
        self._query_weight = np.zeros(samples)

    def zeros(self, *size: int) -> FloatArray:
        """Return a table of sums, none added yet."""
        return np.zeros(size)

    def like(self, table: Any) -> Any:
        """Return a table of the library."""
        return table

    def open_fold(self, split: Split, weights: FloatArray | None = None) -> None:
        """Begin a fold, with the weights of its queries (queries, samples) if they differ."""
        self._is_weighted = weights is not None
        if weights is None:
            weights = np.ones((len(split.rows), 1))
        relevant = split.relevant.astype(float)
        positive = relevant @ weights / split.positives[:, None]
        is_label = split.label == np.arange(len(relevant))[:, None]
        by_label = is_label.astype(float) @ weights
        has_negatives = split.positives < len(split.rows)
        self._positive_weight = positive
        self._weight["map"] += positive
        self._weight["auroc"] += positive * has_negatives[:, None]
        self._weight["accuracy"] += by_label / is_label.sum(axis=1, keepdims=True)
        self._query_weight += weights.mean(axis=0)
        self._folds.append((split, self.zeros(*self.tied.shape)))

    def add(self, row: Any, ap: Any, auroc: Any, hits: Any) -> None:
        """Add metrics of the open fold, (classes, samples), at one of the shots.

        Hits count queries, or are sums of their weights.
        """
        split, _ = self._folds[-1]
        ap, auroc, hits = map(self.like, (ap, auroc, hits))
        ranking = dict(zip(RANKING_METRICS, (ap, auroc), strict=True))
        queries = np.bincount(split.label, minlength=len(split.relevant))
        recall = hits / self.like(queries[:, None])
        self.per_class["accuracy"][row] += recall
        self.values["all", "accuracy"][row] += hits.sum(axis=-2) / len(split.rows)
        for metric, table in ranking.items():
            known = self.library.where(self.library.isnan(table), 0.0, table)
            self.per_class[metric][row] += self.like(self._positive_weight) * known
        if self._is_weighted:
            return
        self.values["all", "balanced_accuracy"][row] += recall.mean(axis=-2)
        has_negatives = split.positives < len(split.rows)
        for scoring, metric in product(self.groups, RANKING_METRICS):
            groups = self._groups(scoring, metric, has_negatives)
            mean = _mean_of_groups(ranking[metric], groups)
            self.values[scoring, metric][row] += mean

    def count(self, rows: Any, decisions: Any, tied: Any) -> None:
        """Add decisions (shots, true, predicted) and ties (shots, classes) of the open fold."""
        self.tied[rows] += self.like(tied)
        self.decisions[rows] += self.like(decisions)
        self._folds[-1][1][rows] += self.like(decisions.sum(axis=1))

    def finish(self, draws: int) -> None:
        """Turn sums over folds into means, and decisions into mean counts over draws."""
        folds = len(self._folds)
        with_auroc = dict.fromkeys(self.groups, 0)
        for split, decided in self._folds:
            has_negatives = split.positives < len(split.rows)
            self.undefined += ~has_negatives
            for scoring in self.groups:
                defined = self._groups(scoring, "auroc", has_negatives)
                with_auroc[scoring] += bool(defined)
            # Σ_n P(decide n) · P(n is a label of the query), and its mean over true classes
            total = decided.sum(axis=1, keepdims=True)
            probability = decided / np.where(total > 0, total, np.nan)
            classes = range(len(split.relevant))
            shares = [split.relevant[:, split.label == n].mean(axis=1) for n in classes]
            frequencies = (split.relevant.mean(axis=1), np.mean(shares, axis=0))
            for metric, share in zip(DECISION_METRICS, frequencies, strict=True):
                self.chance[metric] += (probability * share).sum(axis=1)
        for level in self.chance.values():
            level /= folds
        self.tied = self.tied.astype(np.int64)
        self.decisions /= draws
        for metric, class_table in self.per_class.items():
            weight = self._weight[metric]
            class_table /= self.like(np.where(weight > 0, weight, np.nan))
        if not self._is_weighted:
            for (scoring, metric), table in self.values.items():
                count = with_auroc[scoring] if metric == "auroc" else folds
                table /= float(count) or np.nan
            return
        self.values["all", "accuracy"] /= self.like(self._query_weight)
        recall = self.per_class["accuracy"].mean(axis=1)
        self.values["all", "balanced_accuracy"][:] = recall
        has_auroc = self.undefined < folds
        for scoring, metric in product(self.groups, RANKING_METRICS):
            groups = self._groups(scoring, metric, has_auroc)
            mean = _mean_of_groups(self.per_class[metric], groups)
            self.values[scoring, metric][:] = mean if groups else np.nan

    def _groups(
        self, scoring: str, metric: str, has_auroc: NDArray[np.bool_]
    ) -> Groups:
        """Return the groups of a scoring; for AUROC, without the classes that have none."""
        groups = self.groups[scoring]
        if metric == "auroc":
            defined = [group[has_auroc[group]] for group in groups]
            groups = [group for group in defined if group.size]
        return groups


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


def _mean_of_groups(table: Any, groups: Groups) -> Any:
    """Average (…, classes, samples) inside each group, then over groups; 0 without groups."""
    total = 0.0
    for group in groups:
        classes = group.tolist()
        if len(classes) > 1:
            total = total + table[..., classes, :].mean(axis=-2)
        else:
            total = total + table[..., classes[0], :]
    return total / max(len(groups), 1)
