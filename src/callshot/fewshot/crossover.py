"""Values of the centroid and of rivals → the k at which one passes the other.

Two questions. With how many exemplars does the centroid pass a rival that was trained on all labels? That is the
paper's crossover. And with how many does training pay, given the same exemplars? For that the rival is trained at every
k, on the draws that the centroid meets, and what the draws do to both falls out of their difference.

`surely` needs an interval that is one: over 100 samples or more, which differ, and up to k*; beyond it pools run out,
and draws that must be alike have no spread.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.differences import meets
from callshot.fewshot.summary import PERCENTILES
from callshot.records import Baseline, Crossover, FloatArray, IntArray, Values

METRICS = ("map", "auroc")
MIN_SAMPLES = 100  # samples that a 1–99 % interval needs
ALIKE = 1e-9  # of a metric: what rounding may do to samples that are equal


def find_crossovers(
    values: Sequence[Values],
    baselines: Sequence[Baseline],
    trained: Sequence[Values] = (),
    complete: int | None = None,
) -> list[Crossover]:
    """Return every crossing of one corpus, by the values of the centroid and those of rivals at k; `complete` is k*.

    >>> table = np.linspace(0.1, 0.5, 100) + np.array([[0.0], [0.2], [0.4]])
    >>> centroid = Values("herd", "a", "centroid", "all", "map", "shared", np.array([1, 2, 3]), table)
    >>> (found,) = find_crossings([centroid], [Rival("herd", "a", "logistic", "LR", "all", "map", 0.45)])
    >>> found.k, found.k_clear
    (2, 3)
    """
    last = np.inf if complete is None else complete
    found = [
        _cross_all(v, baseline, last)
        for baseline in baselines
        for v in values
        if meets(baseline, v)
    ]
    return [*found, *(one for mine in trained for one in _cross_k(values, mine, last))]


def _cross_all(v: Values, baseline: Baseline, last: float) -> Crossover:
    """Tell where the centroid passes a rival."""
    key = (v.corpus, v.encoder, baseline.name, "all", v.scoring, v.metric, v.spread)
    first = passes_at(v.k, v.value.mean(axis=1), baseline.value)
    perfect = v.value.mean(axis=1) >= 1 - ALIKE
    return Crossover(*key, first, surely_from(v.k, v.value - baseline.value, last, perfect))


def _cross_k(values: Sequence[Values], mine: Values, last: float) -> Iterator[Crossover]:
    """Yield where a rival passes the centroid on the same draws."""
    for v in values:
        if v.metric in METRICS and same_curve(v, mine):
            k, trained, centroid = on_same_draws(mine, v)
            ends = (pays_from(k, trained, centroid), surely_from(k, trained - centroid, last))
            yield Crossover(
                v.corpus, v.encoder, mine.classifier, "k", v.scoring, v.metric, v.spread, *ends
            )


def same_curve(one: Values, other: Values) -> bool:
    """Tell whether two classifiers were measured in the same way."""
    return all(
        getattr(one, key) == getattr(other, key)
        for key in ("corpus", "encoder", "scoring", "metric", "spread")
    )


def on_same_draws(one: Values, other: Values) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the shots that two have in common, and the values of both, (shots, draws), on the draws that both met.

    >>> key = ("herd", "mfcc", "centroid", "all", "map", "shared")
    >>> a, b = Values(*key, np.array([1, 2]), np.eye(2)), Values(*key, np.array([2, 5]), np.ones((2, 1)))
    >>> on_same_draws(a, b)
    (array([2]), array([[0.]]), array([[1.]]))
    """
    k, here, there = np.intersect1d(one.k, other.k, return_indices=True)
    draws = min(one.value.shape[1], other.value.shape[1])
    return k, one.value[here, :draws], other.value[there, :draws]


def passes_at(k: IntArray, means: FloatArray, whole: float) -> int | None:
    """Return the first k at which a mean is above one value: a rival's, trained on all labels.

    >>> passes_at(np.array([1, 2, 4]), np.array([0.3, 0.6, 0.4]), 0.5)
    2
    """
    above = np.flatnonzero(means > whole)
    return int(k[above[0]]) if above.size else None


def pays_from(k: IntArray, trained: FloatArray, centroid: FloatArray) -> int | None:
    """Return the k from which on training is ahead in the mean; both are (shots, draws), on the same draws.

    None where it is not ahead at the last k; where a value is undefined, nothing is ahead.

    >>> pays_from(np.array([1, 2, 4]), np.array([[0.3, 0.4], [0.6, 0.45], [0.7, 0.8]]), np.full((3, 2), 0.5))
    2
    """
    return _from_on(k, (trained - centroid).mean(axis=1) > 0)


def surely_from(
    k: IntArray, ahead: FloatArray, last: float = np.inf, perfect: NDArray[np.bool_] | bool = False
) -> int | None:
    """Return the k from which on the whole 1–99 % interval of a difference (shots, samples) is above 0.

    Samples that are all alike count where they are `perfect`.
    """
    if ahead.shape[1] < MIN_SAMPLES:
        return None
    low, *_, high = np.percentile(ahead, PERCENTILES, axis=1)
    told = (k <= last) & (~(high - low <= ALIKE) | perfect)  # undefined is told: it is not above
    return _from_on(k[told], low[told] > 0)


def _from_on(k: IntArray, holds: NDArray[np.bool_]) -> int | None:
    """Return the first k from which on something holds to the end."""
    fails = np.flatnonzero(~holds)
    first = int(fails[-1]) + 1 if fails.size else 0
    return int(k[first]) if first < len(k) else None
