"""Ways to score windows: examples and background come in, a function of vectors goes out."""

from collections.abc import Callable

import numpy as np
from scipy.cluster.vq import kmeans2
from sklearn.covariance import ledoit_wolf

from detector_examples import Array, Examples

Score = Callable[[Array], Array]
Way = Callable[[Examples, Array], Score]


def squares(vectors: Array, means: Array) -> Array:
    """Return squared distances, windows × means."""
    inner = 2 * vectors @ means.T
    return (vectors**2).sum(axis=1)[:, None] - inner + (means**2).sum(axis=1)


def unit(vectors: Array) -> Array:
    """Return vectors of length 1."""
    return vectors / np.linalg.norm(vectors, axis=1)[:, None]


def class_means(vectors: Array, label: Array) -> Array:
    """Return the mean of each class."""
    return np.stack([vectors[label == name].mean(axis=0) for name in np.unique(label)])


def log_odds(count: int) -> Way:
    """Return |z − b|² − |z − c|², with b the nearest of several background means."""

    def make(examples: Examples, background: Array) -> Score:
        means = class_means(examples.vectors, examples.label)
        centres = background.mean(axis=0)[None]
        if count > 1:
            centres = kmeans2(background, count, minit="++", seed=0)[0]

        def score(vectors: Array) -> Array:
            nearest = squares(vectors, centres).min(axis=1)
            return nearest[:, None] - squares(vectors, means)

        return score

    return make


def distance(examples: Examples, background: Array) -> Score:
    """Return −|z − c|²."""
    means = class_means(examples.vectors, examples.label)
    return lambda vectors: -squares(vectors, means)


def cosine(examples: Examples, background: Array) -> Score:
    """Return the cosine of a window and a class mean."""
    means = unit(class_means(examples.vectors, examples.label))
    return lambda vectors: unit(vectors) @ means.T


def centred_cosine(examples: Examples, background: Array) -> Score:
    """Return the cosine from the mean of the background."""
    centre = background.mean(axis=0)
    means = unit(class_means(examples.vectors, examples.label) - centre)
    return lambda vectors: unit(vectors - centre) @ means.T


def projection(examples: Examples, background: Array) -> Score:
    """Return the length of a window in the direction of a class, from the background."""
    centre = background.mean(axis=0)
    means = unit(class_means(examples.vectors, examples.label) - centre)
    return lambda vectors: (vectors - centre) @ means.T


def cl2n(examples: Examples, background: Array) -> Score:
    """Return −|z − c|² of centred vectors of length 1."""
    centre = background.mean(axis=0)
    means = class_means(unit(examples.vectors - centre), examples.label)
    return lambda vectors: -squares(unit(vectors - centre), means)


WHITENINGS: dict[bytes, tuple[Array, Array]] = {}


def whiten(background: Array) -> tuple[Array, Array]:
    """Return the mean of background, and what gives it the unit covariance."""
    key = background.sum(axis=1).tobytes()
    if key not in WHITENINGS:
        centre = background.mean(axis=0)
        covariance, _ = ledoit_wolf(background)
        matrix = np.linalg.cholesky(np.linalg.inv(covariance))
        WHITENINGS[key] = (centre, matrix)
    return WHITENINGS[key]


def whitened(make: Way) -> Way:
    """Return a way to score in the space where background has the unit covariance."""

    def make_whitened(examples: Examples, background: Array) -> Score:
        centre, matrix = whiten(background)
        inner = Examples((examples.vectors - centre) @ matrix, examples.label)
        score = make(inner, (background - centre) @ matrix)
        return lambda vectors: score((vectors - centre) @ matrix)

    return make_whitened


WAYS: dict[str, Way] = {
    "log-odds, 1 background mean": log_odds(1),
    "log-odds, 4 background means": log_odds(4),
    "log-odds, 16 background means": log_odds(16),
    "distance to class mean": distance,
    "cosine": cosine,
    "cosine, centred": centred_cosine,
    "projection, centred": projection,
    "CL2N": cl2n,
    "whitened log-odds": whitened(log_odds(1)),
    "whitened cosine": whitened(cosine),
    "whitened projection": whitened(projection),
}
