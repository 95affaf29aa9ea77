"""Scores of a baseline, one row per segment → the metrics of the centroid, by the same kernels.

A baseline gives every query a score for every class, by a model that never saw the query's fold.
Rows of the common fold are no queries: their scores are ignored.
"""

from collections.abc import Callable, Mapping

import numpy as np

from callshot.baselines.sequence_batches import BoolArray
from callshot.errors import InputError
from callshot.fewshot.episodes import Episodes, Split, make_splits
from callshot.fewshot.kernels.ranks import FoldMetrics, measure_fold
from callshot.fewshot.metrics import MetricSums, auroc, average_precision
from callshot.fewshot.sweep import empty_metrics
from callshot.records import FloatArray, IntArray

Metrics = dict[tuple[str, str], float]  # by scoring and metric
Metric = Callable[[FloatArray, BoolArray], float]
Categories = Mapping[str, str] | None  # of classes


def measure(
    episodes: Episodes, scores: FloatArray, categories: Categories = None
) -> Metrics:
    """Return the value of every scoring and metric; `scores` is (rows, classes).

    AUROC is NaN where no class of any fold has one.

    >>> from callshot.fewshot.folds import check_folds, count_classes
    >>> from callshot.fewshot.episodes import plan_episodes
    >>> from callshot.records import Embeddings
    >>> label, fold = ["roar", "rumble"] * 2, np.array([0, 0, 1, 1])
    >>> table = Embeddings("mine", [[0.0], [1.0]] * 2, "abcd", "wxyz", label, [()] * 4, fold)
    >>> folds = check_folds(table.recording, fold)
    >>> episodes = plan_episodes(table, folds, count_classes(label, folds))
    >>> scores = np.array([[2.0, 1.0], [3.0, 1.0], [2.0, 5.0], [2.0, 0.0]])
    >>> values = measure(episodes, scores)  # rows: roar, roar, rumble, rumble
    >>> values["all", "map"], values["all", "auroc"], values["all", "accuracy"]
    (0.75, 0.625, 0.75)
    """
    values = sum_metrics(episodes, scores, categories).values
    return {key: float(table[0, 0]) for key, table in values.items()}


def sum_metrics(
    episodes: Episodes, scores: FloatArray, categories: Categories = None
) -> MetricSums:
    """Return everything that a sweep counts: one row of shots, one sample."""
    if scores.shape != episodes.relevant.shape:
        raise InputError(
            f"scores: expected shape {episodes.relevant.shape}, one score per row and class,"
            f" got {scores.shape}"
        )
    sums = MetricSums(1, 1, episodes.classes, categories)
    for split in make_splits(episodes):
        metrics = _measure_split(split, scores[split.rows])
        sums.decisions += metrics.decisions
        sums.tied += metrics.tied
        sums.add(0, split, metrics.ap[0].T, metrics.auroc[0].T, metrics.hits[0].T)
        sums.close_fold(split)
    sums.finish(1)
    return sums


def _measure_split(split: Split, scores: FloatArray) -> FoldMetrics:
    """Return the metrics of one fold; `scores` is (queries, classes)."""
    unscored = np.flatnonzero(np.isnan(scores).any(axis=1))
    if unscored.size:
        row = split.rows[unscored[0]]
        raise InputError(
            f"scores: row {row} of the episodes: expected numbers, got NaN"
        )
    table = np.ascontiguousarray(scores.T, np.float64)[None, None]
    decided = table.argmax(axis=2).astype(np.uint16)
    metrics = empty_metrics(1, 1, len(split.relevant))
    measure_fold(table, decided, split.truth, metrics)
    return metrics


def measure_outputs(
    targets: BoolArray, fold: IntArray, scores: FloatArray
) -> dict[str, float]:
    """Return mAP and AUROC of outputs that may be true together, such as categories.

    All three are by row, `targets` and `scores` also by output. Means are over outputs, then folds.
    An output without a positive in a fold is left out of that fold's means; one with positives
    alone is left out of its AUROC, and has an AP of 1. A fold without values is left out; NaN is
    returned if none has any. Rows of the common fold are ignored.

    >>> targets = np.array([[True, False], [False, True], [True, True], [False, True]])
    >>> scores = np.array([[2.0, 1.0], [1.0, 2.0], [0.0, 1.0], [3.0, 4.0]])
    >>> measure_outputs(targets, np.array([0, 0, 1, 1]), scores)
    {'map': 0.875, 'auroc': 0.5}
    """
    if targets.shape != scores.shape or len(fold) != len(targets):
        raise InputError(
            f"scores: expected shape {targets.shape}, one score per row and output,"
            f" got {scores.shape}"
        )
    map_values = []
    auroc_values = []
    for number in range(int(fold.max()) + 1):
        rows = fold == number
        map_values.append(
            _mean_of_outputs(average_precision, targets[rows], scores[rows])
        )
        auroc_values.append(_mean_of_outputs(auroc, targets[rows], scores[rows]))
    return {"map": _mean(map_values), "auroc": _mean(auroc_values)}


def _mean_of_outputs(metric: Metric, targets: BoolArray, scores: FloatArray) -> float:
    outputs = np.flatnonzero(targets.any(axis=0))
    return _mean([metric(scores[:, n], targets[:, n]) for n in outputs])


def _mean(values: list[float]) -> float:
    """Return the mean of the values that are defined."""
    defined = [value for value in values if not np.isnan(value)]
    return float(np.mean(defined)) if defined else float("nan")
