"""Points in a plane: vectors projected to their plane of largest variance, and scaled for a map."""

from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.records import FloatArray

LARGE_MATRIX = 100  # rows and columns
SIDE = 1000  # of a map, in whole numbers


def principal_plane(
    vectors: NDArray[np.floating[Any]],
) -> tuple[FloatArray, FloatArray]:
    """Project vectors, (segments, dimensions), to the plane of largest variance.

    Return points, (segments, 2), and the share of the variance that each axis has, (2,). Each axis
    points towards its farthest segment. Large matrices are decomposed by Lanczos' iteration, which
    is much faster; its first vector is fixed, so that equal vectors give equal bytes.

    >>> points, shares = principal_plane(np.array([[0.0, 3.0], [0.0, 1.0], [0.0, -4.0]]))
    >>> points[:, 0].round(9).tolist(), shares.round(9).tolist()
    ([-3.0, -1.0, 4.0], [1.0, 0.0])
    """
    from scipy.sparse.linalg import ArpackError, svds

    floats = np.asarray(vectors, np.float64)
    centred = floats - floats.mean(axis=0)
    # A plane needs two rows and two columns.
    centred = np.pad(centred, [(0, max(0, 2 - size)) for size in centred.shape])
    size = min(centred.shape)
    left = None
    if size >= LARGE_MATRIX:
        with suppress(ArpackError):
            left, values, _ = svds(centred, k=2, v0=np.cos(np.arange(size)))
            left, values = left[:, ::-1], values[::-1]  # the smaller one comes first
    if left is None:  # small, or the iteration did not converge
        left, values, _ = np.linalg.svd(centred, full_matrices=False)
    largest = values[:2]
    points = (left[:, :2] * largest)[: len(floats)]
    farthest = np.abs(points).argmax(axis=0)
    sign = np.where(points[farthest, (0, 1)] < 0, -1.0, 1.0)
    return points * sign, largest**2 / (np.sum(centred**2) or 1.0)


def scale_points(points: FloatArray) -> list[list[int]]:
    """Return points, (points, 2), as whole numbers from 0 to SIDE; both axes have the same unit."""
    low = points.min(axis=0)
    extent = points.max(axis=0) - low
    width = float(extent.max()) or 1.0
    middle = (SIDE - SIDE * extent / width) / 2
    scaled = SIDE * (points - low) / width + middle
    whole: list[list[int]] = np.rint(scaled).astype(int).tolist()
    return whole
