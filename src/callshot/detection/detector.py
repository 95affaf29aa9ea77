"""Windows → a score for each class, and the threshold that a score must reach.

A score says how much nearer a window is to the mean of a class than to the background, windows
without calls: |z − b|² − |z − c|², with b the nearest background mean. Without background it is
−|z − c|². A window whose scores are all below their thresholds is none of the classes.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callshot.detection.background import Background
from callshot.detection.model import Model
from callshot.errors import InputError, OptionError
from callshot.records import FloatArray

Vectors = NDArray[np.floating]
HIGHEST_AIM = 3600.0
TAIL = 50  # of the highest background scores, from which thresholds are extrapolated


@dataclass(frozen=True, eq=False)
class Detector:
    """What decides whether a window has a call, and of which class.

    means             classes × dimensions
    background_means  any number × dimensions; none where there is no background
    thresholds        the score that a window of each class must reach
    origin            what the thresholds were found from, in words
    """

    classes: tuple[str, ...]
    means: FloatArray
    background_means: FloatArray
    thresholds: FloatArray
    origin: str

    def score(self, vectors: Vectors) -> FloatArray:
        """Return the score of each class for each window, windows × classes."""
        return score_windows(vectors, self.means, self.background_means)

    def distances(self, vectors: Vectors) -> FloatArray:
        """Return the distance of each window from each class mean, windows × classes."""
        return np.asarray(np.sqrt(_squared_distances(vectors, self.means)))


def make_detector(
    model: Model, background: Background | None, false_alarms_per_h: float
) -> Detector:
    """Return the detector of a model whose thresholds meet an aim of false alarms per class."""
    if not 0 < false_alarms_per_h <= HIGHEST_AIM:
        raise OptionError(
            f"false_alarms: expected more than 0 and at most {HIGHEST_AIM:g} per hour, "
            f"got {false_alarms_per_h:g}"
        )
    if background is None or len(background.vectors) == 0:
        thresholds = _thresholds_of_examples(model)
        no_means = np.zeros((0, model.means.shape[1]))
        origin = "distances of the examples from the mean of the others of their label"
        return Detector(model.classes, model.means, no_means, thresholds, origin)
    background_means = background.vectors.mean(axis=0, dtype=np.float64)[None]
    scores = score_windows(background.vectors, model.means, background_means)
    allowed = false_alarms_per_h * background.hours
    thresholds = thresholds_of_background(scores, allowed)
    origin = (
        f"{len(background.vectors)} windows without calls, {background.hours:.2f} hours"
    )
    return Detector(model.classes, model.means, background_means, thresholds, origin)


def score_windows(
    vectors: Vectors, means: FloatArray, background_means: FloatArray
) -> FloatArray:
    """Return |z − b|² − |z − c|² for each class; −|z − c|² without background means."""
    to_classes = _squared_distances(vectors, means)
    if not len(background_means):
        return -to_classes
    to_background = _squared_distances(vectors, background_means).min(axis=1)
    return np.asarray(to_background[:, None] - to_classes)


def _squared_distances(vectors: Vectors, means: FloatArray) -> FloatArray:
    rows = np.asarray(vectors, np.float64)
    squares = np.einsum("nd,nd->n", rows, rows)[:, None]
    squares = squares - 2 * rows @ means.T + np.einsum("nd,nd->n", means, means)
    return np.asarray(np.maximum(squares, 0.0))


def thresholds_of_background(scores: FloatArray, allowed: float) -> FloatArray:
    """Return for each class the score that `allowed` background windows reach.

    Only windows of which a class is the best count for it. Beyond the highest scores, and between
    them, they are taken to fall off exponentially, with the mean excess of the highest 50.
    """
    best = scores.argmax(axis=1)
    thresholds = []
    for number in range(scores.shape[1]):
        own = np.sort(scores[best == number, number])[::-1]
        thresholds.append(_tail_threshold(own, allowed))
    return np.array(thresholds)


def _tail_threshold(falling: FloatArray, allowed: float) -> float:
    """Return the score that `allowed` of these scores reach; −inf where there are none."""
    if len(falling) <= allowed:
        return float(-np.inf)
    if len(falling) < 2:
        return float(falling[0])
    count = min(TAIL, len(falling) - 1)
    base = falling[count]
    excess = float((falling[:count] - base).mean())
    if allowed >= count:
        return float(falling[int(allowed)])
    return float(base + excess * np.log(count / allowed))


def _thresholds_of_examples(model: Model) -> FloatArray:
    """Return minus the largest squared distance of an example from the others of its class."""
    thresholds = np.full(len(model.classes), np.nan)
    for number, name in enumerate(model.classes):
        distances = model.distances[model.label == number]
        if np.isnan(distances).all():
            raise InputError(
                f"{model.source}: {name} has one example and there is no background, so no "
                "threshold can be found; add an example, or learn with --background"
            )
        thresholds[number] = -(np.nanmax(distances) ** 2)
    return thresholds
