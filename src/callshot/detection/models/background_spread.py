"""Mean and covariance of background, and the scores that they give windows for each class.

They do not depend on classes or aims, so all models of the same background can share them.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve

from callshot.detection.models.background import Background
from callshot.detection.models.background_parts import split_background
from callshot.fewshot.classifiers import shrink_covariance
from callshot.records import FloatArray, IntArray

Vectors = NDArray[np.floating]


@dataclass(frozen=True, eq=False)
class Spread:
    """Mean and covariance of windows of background; the covariance as its LU factors."""

    centre: FloatArray
    factors: tuple[FloatArray, IntArray]

    def find_discriminants(self, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights and bias of each class: linear discriminants from the background."""
        difference = means - self.centre
        solved = lu_solve(self.factors, difference.T, check_finite=False).T
        return scale_to_background(solved, difference, self.centre)


@dataclass(frozen=True, eq=False)
class Spreads:
    """The spread of background, and the spread without each part, with the windows of the part."""

    whole: Spread
    without: Sequence[tuple[NDArray[np.bool_], Spread]]


def measure_spread(background: Vectors) -> Spread:
    """Return mean and covariance of windows."""
    rows = np.asarray(background, np.float64)
    centre = rows.mean(axis=0)
    factors = lu_factor(shrink_covariance(rows - centre), check_finite=False)
    return Spread(centre, factors)


def measure_spreads(
    background: Background, keep: NDArray[np.bool_] | None = None
) -> Spreads:
    """Return the spread of the windows to keep (default: all), and of those outside each part.

    If no window outside a part is kept, all of them count.
    """
    if keep is None:
        keep = np.ones(len(background.vectors), bool)
    without = []
    for inside in split_background(background):
        others = ~inside & keep
        if not others.any():
            others = ~inside
        without.append((inside, measure_spread(background.vectors[others])))
    return Spreads(measure_spread(background.vectors[keep]), without)


def find_discriminants(
    means: FloatArray, background: Vectors
) -> tuple[FloatArray, FloatArray]:
    """Return weights and bias of each class: linear discriminants from the background."""
    return measure_spread(background).find_discriminants(means)


def scale_to_background(
    solved: FloatArray, difference: FloatArray, centre: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return weights and bias of each class, so that background has mean 0 and deviation 1.

    `difference` is class means minus the mean of the background, `centre`; `solved` is S⁻¹ times
    that, with S the covariance of the background.
    """
    squares = np.einsum("nd,nd->n", solved, difference)
    lengths = np.sqrt(np.maximum(squares, np.finfo(np.float64).tiny))
    weights = solved / lengths[:, None]
    return weights, -weights @ centre


def score_held_out(
    means: FloatArray, background: Background, spreads: Spreads
) -> FloatArray:
    """Return the scores of all windows, each by those of other parts.

    Windows that a covariance was made of score lower than others, and thresholds would be too low.
    """
    scores = np.empty((len(background.vectors), len(means)))
    for inside, spread in spreads.without:
        weights, bias = spread.find_discriminants(means)
        scores[inside] = background.vectors[inside] @ weights.T + bias
    return scores
