"""Curves and rivals → the k at which one passes the other.

Two questions. With how many exemplars does the centroid pass a rival that was trained on all labels? That is the
paper's crossover. And with how many does training pay, given the same exemplars? For that the rival is trained at every
k, on the draws that the centroid meets, and what the draws do to both falls out of their difference.
"""

from collections.abc import Iterator, Sequence

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.paired import meets
from callshot.fewshot.summary import PERCENTILES
from callshot.records import Crossing, Curve, FloatArray, IntArray, Rival, Values

METRICS = ("map", "auroc")


def find_crossings(
    curve: Sequence[Curve], rivals: Sequence[Rival], values: Sequence[Values] = (), trained: Sequence[Values] = ()
) -> list[Crossing]:
    """Return every crossing of one corpus: by the points of the centroid, and by its values and those of rivals at k.

    >>> points = [Curve("herd", "a", "centroid", "all", "map", "shared", k, 0.5 + k / 10, k / 10, *[0.0] * 4, 0.3,
    ...                 True, 0, 0) for k in (1, 2, 3)]
    >>> (found,) = find_crossings(points, [Rival("herd", "a", "logistic", "LR", "all", "map", 0.65)])
    >>> found.k, found.surely
    (2, None)
    """
    found = [one for rival in rivals for one in _cross_all(curve, rival)]
    return [*found, *(one for mine in trained for one in _cross_k(values, mine))]


def _cross_all(curve: Sequence[Curve], rival: Rival) -> Iterator[Crossing]:
    """Yield where the centroid passes a rival, by encoder and spread."""
    near = [c for c in curve if meets(rival, c)]
    for encoder, spread in dict.fromkeys((c.encoder, c.spread) for c in near):
        points = sorted((c for c in near if (c.encoder, c.spread) == (encoder, spread)), key=lambda c: c.k)
        k, means, lows = (np.array([getattr(c, name) for c in points]) for name in ("k", "mean", "p01"))
        key = (rival.corpus, encoder, rival.name, "all", rival.scoring, rival.metric, spread)
        yield Crossing(*key, passes_at(k, means, rival.value), _from_on(k, lows > rival.value))


def _cross_k(values: Sequence[Values], mine: Values) -> Iterator[Crossing]:
    """Yield where a rival passes the centroid on the same draws."""
    key = (mine.corpus, mine.encoder, mine.scoring, mine.metric, mine.spread)
    for v in values:
        if (v.corpus, v.encoder, v.scoring, v.metric, v.spread) != key or v.metric not in METRICS:
            continue
        k, here, there = np.intersect1d(mine.k, v.k, return_indices=True)
        draws = min(mine.value.shape[1], v.value.shape[1])
        ends = pays_from(k, mine.value[here, :draws], v.value[there, :draws])
        yield Crossing(v.corpus, v.encoder, mine.classifier, "k", v.scoring, v.metric, v.spread, *ends)


def passes_at(k: IntArray, means: FloatArray, whole: float) -> int | None:
    """Return the first k at which a mean is above one value: a rival's, trained on all labels.

    >>> passes_at(np.array([1, 2, 4]), np.array([0.3, 0.6, 0.4]), 0.5)
    2
    """
    above = np.flatnonzero(means > whole)
    return int(k[above[0]]) if above.size else None


def pays_from(k: IntArray, trained: FloatArray, centroid: FloatArray) -> tuple[int | None, int | None]:
    """Return the k from which on training is ahead: in the mean, and by the whole 1–99 % interval of the difference.

    Both are (shots, draws), on the same draws. None where it is not ahead at the last k; where a value is undefined,
    nothing is ahead.

    >>> trained = np.array([[0.3, 0.4], [0.6, 0.45], [0.7, 0.8]])
    >>> pays_from(np.array([1, 2, 4]), trained, np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]))
    (2, 4)
    """
    ahead = trained - centroid
    return _from_on(k, ahead.mean(axis=1) > 0), _from_on(k, np.percentile(ahead, PERCENTILES[0], axis=1) > 0)


def _from_on(k: IntArray, holds: NDArray[np.bool_]) -> int | None:
    """Return the first k from which on something holds to the end."""
    fails = np.flatnonzero(~holds)
    first = int(fails[-1]) + 1 if fails.size else 0
    return int(k[first]) if first < len(k) else None
