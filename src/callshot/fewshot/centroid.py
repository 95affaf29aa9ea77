"""A support set → the nearest-centroid rule, as centroids or as the linear layer that they are.

    c_n = mean of the class's support        a_n = 2 c_n·z − |c_n|²        W = 2 C,  b = −|c_n|²

The decision is argmax a_n, which is argmin |z − c_n|². Scores are the log-odds of softmax(a), or the softmax itself.
Nothing is trained and nothing is tuned.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from callshot.errors import InputError
from callshot.fewshot.kernels.scores import to_log_odds, to_softmax
from callshot.records import FloatArray

SCORES = ("log", "softmax")


@dataclass(frozen=True)
class LinearLayer:
    """The rule as weights (classes, dimensions) and bias (classes): a = W z + b."""

    classes: tuple[str, ...]
    weight: FloatArray
    bias: FloatArray

    def __call__(self, vectors: ArrayLike) -> FloatArray:
        """Return a_n for each vector, (…, classes)."""
        return np.asarray(np.asarray(vectors, np.float64) @ self.weight.T + self.bias)


def centroids(vectors: ArrayLike, label: ArrayLike) -> tuple[tuple[str, ...], FloatArray]:
    """Return the class names, sorted, and the mean vector of each.

    >>> centroids([[0.0, 0.0], [2.0, 0.0], [5.0, 5.0]], ["rumble", "rumble", "roar"])
    (('roar', 'rumble'), array([[5., 5.],
           [1., 0.]]))
    """
    table, names = np.asarray(vectors, np.float64), np.asarray(label).astype(str)
    if len(table) != len(names) or not len(names):
        raise InputError(
            f"one label per support vector, one at least: got {len(names)} for {len(table)}"
        )
    classes = np.unique(names)
    means = np.stack([table[names == name].mean(axis=0) for name in classes])
    return tuple(str(name) for name in classes), means


def linear_layer(vectors: ArrayLike, label: ArrayLike) -> LinearLayer:
    """Return the linear layer whose argmax is the nearest centroid.

    >>> layer = linear_layer([[0.0], [4.0]], ["rumble", "roar"])
    >>> layer([1.0])  # roar, rumble
    array([-8.,  0.])
    """
    classes, means = centroids(vectors, label)
    return LinearLayer(classes, 2.0 * means, -np.einsum("nd,nd->n", means, means))


def score(a: ArrayLike, kind: str = "log") -> FloatArray:
    """Return the scores of a (…, classes): log-odds (`log`), or the literal softmax, which saturates.

    >>> score([0.0, 0.0])
    array([0., 0.])
    >>> score([800.0, 0.0]), score([800.0, 0.0], "softmax")
    (array([ 800., -800.]), array([1., 0.]))
    """
    table = np.asarray(a, np.float64)
    columns = np.array(table.reshape(-1, table.shape[-1]).T[None, :, None])
    (to_log_odds if kind == "log" else to_softmax)(
        columns, 0, 1, np.empty((1, 1, columns.shape[3]), np.uint16)
    )
    return np.asarray(columns[0, :, 0].T.reshape(table.shape))
