"""Scores and truth of one ranking → AP, AUROC, and the AP of chance."""

import numpy as np
from numpy.typing import ArrayLike, NDArray

from callshot.errors import InputError
from callshot.fewshot.kernels.ranks import ranking_metrics
from callshot.records import FloatArray


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
