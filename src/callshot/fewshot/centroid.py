"""Support vectors and labels → the nearest-centroid rule, as centroids or as a linear layer.

    c_n = mean of the class's support        a_n = 2 c_n·z − |c_n|²        W = 2 C,  b = −|c_n|²

The decision is argmax a_n, which is argmin |z − c_n|². Scores are the log-odds of softmax(a), or
the softmax itself. Nothing is trained and nothing is tuned.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from callshot.errors import InputError
from callshot.fewshot.kernels.scores import to_scores
from callshot.records import FloatArray


@dataclass(frozen=True)
class LinearLayer:
    """A linear layer: a = W z + b, with weight (classes, dimensions) and bias (classes)."""

    classes: tuple[str, ...]
    weight: FloatArray
    bias: FloatArray

    def __call__(self, vectors: ArrayLike) -> FloatArray:
        """Return a_n for each vector, (…, classes)."""
        return np.asarray(np.asarray(vectors, np.float64) @ self.weight.T + self.bias)


def centroids(
    vectors: ArrayLike, label: ArrayLike
) -> tuple[tuple[str, ...], FloatArray]:
    """Return the class names, sorted, and the mean vector of each.

    >>> centroids([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]], ["rumble", "rumble", "roar"])
    (('roar', 'rumble'), array([[5., 5.],
           [1., 0.]]))
    """
    table = np.asarray(vectors, np.float64)
    names = np.asarray(label).astype(str)
    if len(table) != len(names) or not len(names):
        raise InputError(
            f"expected one label per support vector, one or more; got {len(names)} for {len(table)}"
        )
    classes = np.unique(names)
    means = np.stack([table[names == name].mean(axis=0) for name in classes])
    return tuple(classes.tolist()), means


def linear_layer(vectors: ArrayLike, label: ArrayLike) -> LinearLayer:
    """Return the linear layer whose argmax is the nearest centroid.

    >>> layer = linear_layer([[0.0], [4.0]], ["rumble", "roar"])
    >>> layer([1.0])  # roar, rumble
    array([-8.,  0.])
    """
    classes, means = centroids(vectors, label)
    return LinearLayer(classes, 2.0 * means, -np.einsum("nd,nd->n", means, means))


def log_odds(a: ArrayLike) -> FloatArray:
    """Return the log-odds of softmax(a) over the last axis: a_n − log Σ_{m≠n} exp a_m.

    They rank queries as the softmax does, and do not saturate.

    Parameters
    ----------
    a : array-like of shape (…, classes)
        What a classifier gives each class, for example 2 c·z − |c|².

    Returns
    -------
    ndarray of shape (…, classes)

    Examples
    --------
    >>> log_odds([800.0, 0.0])
    array([ 800., -800.])
    """
    return _score(a, use_softmax=False)


def softmax(a: ArrayLike) -> FloatArray:
    """Return the softmax of a (…, classes), which saturates.

    >>> softmax([800.0, 0.0])
    array([1., 0.])
    """
    return _score(a, use_softmax=True)


def _score(a: ArrayLike, *, use_softmax: bool) -> FloatArray:
    table = np.asarray(a, np.float64)
    classes = table.shape[-1]
    columns = np.array(table.reshape(-1, classes).T[None, :, None])
    decided = np.empty((1, 1, columns.shape[-1]), np.uint16)
    to_scores(columns, 0, 1, use_softmax, decided)
    return np.asarray(columns[0, :, 0].T.reshape(table.shape))
