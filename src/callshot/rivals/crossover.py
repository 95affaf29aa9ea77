"""Values of the centroid and of a rival at every k → from which k on one of them is ahead.

Both are (shots, draws), on the same draws, so that a difference is that of two ways to use the same labels.
"""

import numpy as np

from callshot.fewshot.episodes import Mask
from callshot.fewshot.summary import PERCENTILES
from callshot.records import FloatArray, IntArray


def pays_from(k: IntArray, trained: FloatArray, centroid: FloatArray) -> tuple[int | None, int | None]:
    """Return the k from which on training is ahead: in the mean, and by the whole 1–99 % interval of the difference.

    None where it is not ahead at the last k. Where a value is undefined, nothing is ahead.

    >>> trained = np.array([[0.3, 0.4], [0.6, 0.45], [0.7, 0.8]])
    >>> pays_from(np.array([1, 2, 4]), trained, np.array([[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]))
    (2, 4)
    """
    ahead = trained - centroid
    return _from(k, ahead.mean(axis=1) > 0), _from(k, np.percentile(ahead, PERCENTILES[0], axis=1) > 0)


def passes_at(k: IntArray, centroid: FloatArray, whole: float) -> int | None:
    """Return the first k at which the centroid's mean is above one value: a rival's, trained on all labels.

    >>> passes_at(np.array([1, 2, 4]), np.array([[0.3, 0.4], [0.6, 0.5], [0.7, 0.8]]), 0.5)
    2
    """
    above = np.flatnonzero(centroid.mean(axis=1) > whole)
    return int(k[above[0]]) if above.size else None


def _from(k: IntArray, holds: Mask) -> int | None:
    """Return the first k of those up to the last that all hold."""
    behind = np.flatnonzero(~holds)
    first = int(behind[-1]) + 1 if behind.size else 0
    return int(k[first]) if first < len(k) else None
