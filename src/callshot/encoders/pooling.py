"""Pooling: the vectors of a segment's windows or frames come in, one vector goes out.

    mean     the mean of all windows, also of those with padding: the paper's
    audio    the mean, where the weight of a window is the share of it that is audio
    max      the maximum of each dimension; a window with padding is first moved towards the
             mean `audio`, by the share of it that is padding
    energy   the mean, weighted by the energy of the audio in each window
    norm     the mean, weighted by the squared length of each vector, times its share of audio

Apart from `mean`, padding never counts. Frames of a whole segment have no padding: frame i of n
stands for the i-th of n equal parts of the segment.
"""

import numpy as np

from callshot.encoders.validation import Float32Array
from callshot.records import FloatArray

POOLINGS = ("mean", "audio", "max", "energy", "norm")


def pool(
    encoded: Float32Array,
    pooling: str = "mean",
    share: FloatArray | None = None,
    energy: FloatArray | None = None,
) -> Float32Array:
    """Return the vector of a segment, computed in float64.

    `share` and `energy` are those of the audio in each window; by default all are equal.

    >>> windows = np.array([[1, 2], [3, 6]], np.float32)
    >>> pool(windows)
    array([2., 4.], dtype=float32)
    >>> pool(windows, "audio", share=np.array([1.0, 0.0]))
    array([1., 2.], dtype=float32)
    >>> pool(windows, "max")
    array([3., 6.], dtype=float32)

    Two windows with a vector and two frames each:

    >>> pool(np.array([[[9], [1], [2]], [[7], [3], [4]]], np.float32))
    array([8.], dtype=float32)
    """
    if encoded.ndim == 3:
        encoded = encoded[:, 0]
    if pooling == "mean":
        return np.asarray(encoded.mean(axis=0, dtype=np.float64), np.float32)
    vectors = encoded.astype(np.float64)
    ones = np.ones(len(vectors))
    share = ones if share is None else share / share.max()
    if pooling == "max":
        # Windows with padding are moved to the mean first.
        mean = _weighted_mean(vectors, share)
        moved = mean + share[:, np.newaxis] * (vectors - mean)
        pooled = np.asarray(moved.max(axis=0))
    elif pooling == "energy":
        pooled = _weighted_mean(vectors, ones if energy is None else energy)
    elif pooling == "norm":
        squares = np.einsum("wd,wd->w", vectors, vectors)
        pooled = _weighted_mean(vectors, share * squares)
    else:
        pooled = _weighted_mean(vectors, share)
    return pooled.astype(np.float32)


def _weighted_mean(vectors: FloatArray, weights: FloatArray) -> FloatArray:
    """Return the weighted mean; the plain mean where all weights are 0, as in silence."""
    if not weights.any():
        weights = np.ones(len(vectors))
    shares = weights / weights.sum()
    return np.asarray(shares @ vectors)


def frame_energies(signal: Float32Array, frames: int) -> FloatArray:
    """Return the energy of each of so many equal parts of a signal.

    >>> frame_energies(np.array([1, 1, 2, 2], np.float32), 2)
    array([2., 8.])
    """
    squares = np.square(signal, dtype=np.float64)
    starts = np.arange(frames) * len(signal) // frames
    return np.asarray(np.add.reduceat(squares, starts))
