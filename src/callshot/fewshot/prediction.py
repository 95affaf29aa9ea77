"""Samples of the spreads `total` and `shared` → what one labelled set would score elsewhere.

A new corpus and a new labelled set vary as the samples of `total` do. Our own estimate of the mean
has an error too: that of `total` without the part that comes from the labelled set, which `shared`
measures. Both variances add up, so the deviations of `total` are stretched.
"""

import numpy as np

from callshot.records import FloatArray, IntArray


def predict(
    total: FloatArray,
    shared: FloatArray,
    *,
    inflation: FloatArray | float = 1.0,
    bounded: bool = False,
) -> FloatArray:
    """Return predicted samples: the mean of `shared` plus stretched deviations of `total`.

    Parameters
    ----------
    total, shared : array of shape (..., samples)
        Samples of one quantity in both spreads: a score, or a difference of two scores.
    inflation : float or array
        By how much the variance of `total` is too small: see `small_sample_inflation`.
    bounded : bool
        Whether the quantity lies between 0 and 1, so that predictions are clipped.

    Examples
    --------
    >>> total = np.array([0.5, 0.6, 0.7])
    >>> predict(total, np.array([0.6, 0.7])).round(3)
    array([0.523, 0.65 , 0.777])
    """
    centre = shared.mean(axis=-1, keepdims=True)
    deviation = total - total.mean(axis=-1, keepdims=True)
    raw_variance = np.mean(deviation**2, axis=-1, keepdims=True)
    variance = inflation * raw_variance
    of_labelled_set = np.var(shared, axis=-1, keepdims=True)
    of_estimate = np.maximum(variance - of_labelled_set, 0.0)
    ratio = np.ones_like(variance)
    np.divide(variance + of_estimate, raw_variance, out=ratio, where=raw_variance > 0)
    predicted = centre + np.sqrt(ratio) * deviation
    return np.asarray(np.clip(predicted, 0.0, 1.0) if bounded else predicted)


def small_sample_inflation(recordings: IntArray) -> FloatArray:
    """Return by how much resampling so many recordings underestimates a variance.

    The variance of a mean under exponential weights is (n − 1) / (n + 1) of its unbiased estimate.

    >>> small_sample_inflation(np.array([3, 11]))
    array([2. , 1.2])
    """
    return np.asarray((recordings + 1) / np.maximum(recordings - 1, 1))
