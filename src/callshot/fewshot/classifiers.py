"""The rules without training, one row each: what becomes of the vectors of a split, and how a support scores a query.

    mean      2 c·z − |c|², c the class mean: −|z − c|² but for what all classes share
    cosine    c·z / |c| |z|
    nearest   the largest 2 x·z − |x|² of the class's exemplars x: −|z − x|² of the closest
    medoid    2 x·z − |x|² of the exemplar x with the smallest sum of distances to the others, the first of several

All go through the same draws, scores and metrics: no stream knows the classifier. What depends on a split is made of
the vectors on its support side, without their labels; a query's vector is moved by it and has no part in it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches

import numpy as np

from callshot.errors import OptionError
from callshot.records import FloatArray

Transform = Callable[[FloatArray], FloatArray]

LEAST_SHRINKAGE = (
    1e-8  # Ledoit and Wolf's can be 0, and then a covariance of few vectors has no inverse
)


@dataclass(frozen=True)
class Classifier:
    """One rule. `fit` makes, of the vectors on the support side of a split, what all its vectors go through first.

    Where `centred`, vectors may be moved near the origin, as no distance changes by that; the other rules read them as
    the encoder gave them.
    """

    name: str
    told: str
    rule: str = "mean"
    centred: bool = True
    fit: Callable[[FloatArray], Transform] | None = None


def unit(vectors: FloatArray) -> FloatArray:
    """Bring rows to length 1; a row of zeros stays.

    >>> unit(np.array([[3.0, 4.0], [0.0, 0.0]]))
    array([[0.6, 0.8],
           [0. , 0. ]])
    """
    length = np.sqrt(np.einsum("rd,rd->r", vectors, vectors))
    return np.asarray(vectors / np.where(length > 0, length, 1.0)[:, None])


def centre_and_normalise(support: FloatArray) -> Transform:
    """Take off the mean of the support side, then bring every vector to length 1 (SimpleShot's CL2N)."""
    mean = support.mean(axis=0)
    return lambda vectors: unit(vectors - mean)


def whiten(support: FloatArray) -> Transform:
    """Make distances those of Mahalanobis, by the covariance of the support side."""
    from scipy.linalg import solve_triangular

    mean, covariance = ledoit_wolf(support)
    lower = np.linalg.cholesky(covariance)
    return lambda vectors: np.ascontiguousarray(
        solve_triangular(lower, (vectors - mean).T, lower=True).T
    )


def ledoit_wolf(vectors: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean, and the covariance shrunk towards a multiple of the identity by Ledoit and Wolf's share.

    The share is 1e-8 at least, and vectors that do not vary have the identity, so that there is an inverse.

    >>> ledoit_wolf(np.array([[0.0, 1.0], [0.0, 3.0], [3.0, 2.0]]))[1].round(4)
    array([[1.3333, 0.    ],
           [0.    , 1.3333]])
    """
    count, dimensions = vectors.shape
    mean = vectors.mean(axis=0)
    off = vectors - mean
    size = float(np.sqrt(np.mean(off**2))) or 1.0
    off /= size  # the mean variance is 1 now, or 0
    covariance = off.T @ off / count
    scale = np.trace(covariance) / dimensions
    power = np.sum(covariance**2)
    noise = (np.mean(np.einsum("rd,rd->r", off, off) ** 2) - power) / count
    signal = power - dimensions * scale**2
    share = min(max(noise / signal, LEAST_SHRINKAGE), 1.0) if signal > 0 else 1.0
    covariance *= 1.0 - share
    covariance.flat[:: dimensions + 1] += share * (scale or 1.0)
    return mean, np.asarray(size**2 * covariance)


CLASSIFIERS = {
    row.name: row
    for row in (
        Classifier("centroid", "squared distance to the class mean"),
        Classifier("cosine", "cosine of the angle to the class mean", "cosine", centred=False),
        Classifier(
            "cl2n", "centred, length 1, then centroid", centred=False, fit=centre_and_normalise
        ),
        Classifier(
            "whitened", "whitened by the support side, then centroid", centred=False, fit=whiten
        ),
        Classifier("neighbour", "squared distance to the closest exemplar", "nearest"),
        Classifier("medoid", "squared distance to the most central exemplar", "medoid"),
    )
}
CENTROID = CLASSIFIERS["centroid"]


def find_classifier(name: str) -> Classifier:
    """Return a classifier by its name; an unknown one is answered with the nearest.

    >>> find_classifier("neighbour").rule
    'nearest'
    """
    if name in CLASSIFIERS:
        return CLASSIFIERS[name]
    near = "".join(
        f"did you mean {other}? " for other in get_close_matches(name.lower(), CLASSIFIERS, 1, 0.4)
    )
    raise OptionError(f"classifier: there is no {name!r}; {near}There are {', '.join(CLASSIFIERS)}")
