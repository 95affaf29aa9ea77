"""The rules without training, one row each: the transform of a split's vectors, and the score.

    mean      2 c·z − |c|², c the class mean: −|z − c|² up to a term that all classes share
    cosine    c·z / |c| |z|
    nearest   the largest 2 x·z − |x|² of the class's exemplars x: −|z − x|² of the closest
    medoid    2 x·z − |x|² of the exemplar x with the least sum of distances to the others
    ridge     w·z, w the weights of ridge regression for the class: see `ridge.py`

A transform is fitted to the vectors of a split's support side, without labels and queries.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from callshot.errors import check_choice
from callshot.records import FloatArray

Transform = Callable[[FloatArray], FloatArray]
Number = TypeVar("Number", bound=np.floating[Any])

# Ledoit and Wolf's shrinkage can be 0, and then a covariance of few vectors has no inverse.
MIN_SHRINKAGE = 1e-8


@dataclass(frozen=True)
class Classifier:
    """A rule that scores queries by class, and the transform of the vectors that it reads.

    `fit` gets the vectors (rows, dimensions) on the support side of a split, and returns the
    transform of all vectors. Where `centred`, vectors may be moved near the origin, which changes
    no distance.
    """

    name: str
    help: str
    description: str
    rule: str = "mean"
    centred: bool = True
    fit: Callable[[FloatArray], Transform] | None = None


def unit(vectors: FloatArray) -> FloatArray:
    """Scale rows to length 1; a row of zeros stays.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    length = np.sqrt(np.einsum("rd,rd->r", vectors, vectors))
    return vectors / np.where(length > 0, length, 1.0)[:, None]


def centre_and_normalise(support: FloatArray) -> Transform:
    """Subtract the mean of the support side, then scale to length 1 (SimpleShot's CL2N)."""
    mean = support.mean(axis=0)
    return lambda vectors: unit(vectors - mean)


def signed_root(vectors: NDArray[Number]) -> NDArray[Number]:
    """Return the square root of each value, with its sign.

    >>> signed_root(np.array([[4.0, -9.0]]))
    array([[ 2., -3.]])
    """
    return np.copysign(np.sqrt(np.abs(vectors)), vectors)


def root_centre_and_normalise(support: FloatArray) -> Transform:
    """Do what `centre_and_normalise` does, on signed roots."""
    transform = centre_and_normalise(signed_root(support))
    return lambda vectors: transform(signed_root(vectors))


def equalise_encoders(support: FloatArray, dimensions: Sequence[int]) -> Transform:
    """Return a transform that gives joined encoders an equal part in distances.

    Each has `dimensions` columns, which are divided by the root mean square distance of two rows of
    `support` in them.

    >>> support = np.array([[0.0, 5.0, 5.0], [2.0, 5.0, 45.0]])
    >>> equalise_encoders(support, (1, 2))(support)
    array([[0.        , 0.1767767 , 0.1767767 ],
           [1.41421356, 0.1767767 , 1.59099026]])
    """
    scales = []
    for part in np.split(support, np.cumsum(dimensions)[:-1], axis=1):
        # Two vectors have twice the mean squared distance of a vector from the mean.
        variance = part.var(axis=0).sum()
        scales.append(np.sqrt(2 * variance) or 1.0)  # 1 where all rows are equal
    divisor = np.repeat(scales, dimensions)
    return lambda vectors: vectors / divisor


def whiten(support: FloatArray) -> Transform:
    """Return a transform after which distances are Mahalanobis distances (see `ledoit_wolf`).

    It is fitted to `support` (rows, dimensions).
    """
    from scipy.linalg import solve_triangular

    mean, covariance = ledoit_wolf(support)
    lower = np.linalg.cholesky(covariance)  # covariance = lower · lowerᵀ

    def transform(vectors: FloatArray) -> FloatArray:
        """Return lower⁻¹ (x − mean) of each row x: its length is a Mahalanobis distance."""
        whitened = solve_triangular(lower, (vectors - mean).T, lower=True)
        return np.ascontiguousarray(whitened.T)

    return transform


def ledoit_wolf(vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean and the shrunk covariance of vectors (rows, dimensions).

    The covariance always has an inverse: its shrinkage is at least 1e-8, and vectors that do not
    vary get the identity.

    >>> ledoit_wolf(np.array([[0.0, 1.0], [0.0, 3.0], [3.0, 2.0]]))[1].round(4)
    array([[1.3333, 0.    ],
           [0.    , 1.3333]])
    """
    mean = vectors.mean(axis=0)
    deviation = vectors - mean
    scale = float(np.sqrt(np.mean(deviation**2))) or 1.0
    deviation /= scale  # the mean variance is 1 now, or 0
    return mean, scale**2 * shrink_covariance(deviation)


def shrink_covariance(centred: FloatArray) -> FloatArray:
    """Return Ledoit and Wolf's covariance of rows (rows, dimensions) of mean zero.

    It is (1 − shrinkage) · covariance + shrinkage · scale · identity, with the least expected
    squared error.
    """
    count, dimensions = centred.shape
    covariance = centred.T @ centred / count
    scale = np.trace(covariance) / dimensions
    power = np.sum(covariance**2)
    squares = np.einsum("rd,rd->r", centred, centred)
    # The expected squared error of the covariance, and its squared distance from scale · identity
    # (both are squared Frobenius norms).
    noise = (np.mean(squares**2) - power) / count
    signal = power - dimensions * scale**2
    shrinkage = 1.0
    if signal > 0:
        shrinkage = min(max(noise / signal, MIN_SHRINKAGE), 1.0)
    covariance *= 1.0 - shrinkage
    diagonal = slice(None, None, dimensions + 1)  # of the flat matrix
    covariance.flat[diagonal] += shrinkage * (scale or 1.0)  # 1 if all values are 0
    return covariance


CENTROID = Classifier(
    "centroid", "nearest class mean", "squared distance to the class mean"
)
_CLASSIFIERS = (
    CENTROID,
    Classifier(
        "cosine",
        "the same with cosine similarity",
        "cosine of the angle to the class mean",
        rule="cosine",
        centred=False,
    ),
    Classifier(
        "cl2n",
        "centroid on centred vectors of length 1",
        "centred, length 1, then centroid",
        centred=False,
        fit=centre_and_normalise,
    ),
    Classifier(
        "root-cl2n",
        "the same on signed square roots",
        "signed square roots, centred, length 1, then centroid",
        centred=False,
        fit=root_centre_and_normalise,
    ),
    Classifier(
        "ridge",
        "ridge regression on the same vectors",
        "signed square roots, centred, length 1, then ridge regression",
        rule="ridge",
        centred=False,
        fit=root_centre_and_normalise,
    ),
    Classifier(
        "whitened",
        "centroid on whitened vectors",
        "whitened by the support side, then centroid",
        centred=False,
        fit=whiten,
    ),
    Classifier(
        "neighbour",
        "nearest example",
        "squared distance to the closest exemplar",
        rule="nearest",
    ),
    Classifier(
        "medoid",
        "nearest central example",
        "squared distance to the most central exemplar",
        rule="medoid",
    ),
)
CLASSIFIERS = {classifier.name: classifier for classifier in _CLASSIFIERS}


def find_classifier(name: str) -> Classifier:
    """Return a classifier by its name.

    >>> find_classifier("neighbour").rule
    'nearest'
    """
    check_choice("classifiers", name, CLASSIFIERS)
    return CLASSIFIERS[name]
