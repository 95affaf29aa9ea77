"""Scores and truth of one ranking → AP, AUROC, and what chance would give. The slow, readable face of the kernels."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError
from callshot.fewshot.kernels.ranks import ranking_metrics
from callshot.records import FloatArray


def average_precision(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Return the average precision of one ranking, in steps of distinct scores (ties as scikit-learn has them).

    >>> average_precision([0.9, 0.8, 0.7], [True, False, True])
    0.8333333333333333
    """
    return float(ranking_metrics(*_ranking(scores, relevant))[0])


def auroc(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Return the area under the ROC curve of one ranking, half credit for ties; NaN where nothing is negative.

    >>> auroc([0.9, 0.8, 0.7], [True, False, True])
    0.5
    """
    return float(ranking_metrics(*_ranking(scores, relevant))[1])


def expected_auroc(scores: ArrayLike, relevant: ArrayLike) -> float:
    """Return the exact mean, over bootstrap samples, of one class's AUROC in one fold.

    `scores` is (queries, draws). A sample picks a draw for each query, all alike likely and independent, so a pair of
    queries is in order with the share of their draws × draws that is. Every query has as many draws: that mean over
    pairs is the AUROC of all scores in one ranking.

    >>> expected_auroc([[2.0, 0.0], [1.0, 1.0]], [True, False])
    0.5
    """
    table = np.asarray(scores, np.float64)
    return auroc(table.ravel(), np.repeat(np.asarray(relevant, bool), table.shape[1]))


def chance_average_precision(positives: ArrayLike, queries: ArrayLike) -> FloatArray:
    """Return the expected AP of a random ranking: clearly above positives / queries where positives are few.

    >>> round(float(chance_average_precision(1, 4)), 4)
    0.5208
    """
    p, n = np.asarray(positives, np.float64), np.asarray(queries, np.int64)
    harmonic = harmonic_numbers(int(n.max(initial=1)))[n]
    rest = np.where(n > 1, (p - 1) / np.maximum(n - 1, 1), 0.0) * (n - harmonic)
    return np.asarray((harmonic + rest) / n)


def harmonic_numbers(n: int) -> FloatArray:
    """Return H(0) … H(n), each correct to the last digit or the one before (compensated sum)."""
    out = np.zeros(n + 1)
    total = lost = 0.0
    for i in range(1, n + 1):
        term = 1.0 / i - lost
        new = total + term
        lost = (new - total) - term
        total = new
        out[i] = total
    return out


def _ranking(scores: ArrayLike, relevant: ArrayLike) -> tuple[FloatArray, NDArray[np.bool_]]:
    score, truth = np.asarray(scores, np.float64), np.asarray(relevant, bool)
    if score.ndim != 1 or score.shape != truth.shape:
        raise InputError(
            f"one score and one truth per query: got shapes {score.shape} and {truth.shape}"
        )
    if not truth.any():
        raise InputError("no query is relevant: average precision and AUROC are undefined")
    if np.isnan(score).any():
        raise InputError(f"score {int(np.flatnonzero(np.isnan(score))[0])} is not a number")
    return score, truth
