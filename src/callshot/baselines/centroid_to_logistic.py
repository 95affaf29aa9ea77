"""Episodes → the path from the centroid to logistic regression by gradient steps, with its metrics.

The nearest centroid is a linear layer. Written for standardised columns it is a point in the space
in which logistic regression is trained, so gradient descent on the same objective (`solver`: same
L2 penalty, free bias) leads from one to the other. Scores of the centroid grow with the square of
the vectors' length and saturate, so the objective is first lowered by one number: a temperature of
at least 1 that divides all of them. Then come full gradient steps of length 1 / (bound of the
curvature), with Nesterov's momentum, which restarts whenever it points uphill.
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from callshot.baselines.logistic import fit, gather_log_odds, standardise
from callshot.baselines.path_solver import Objective, principal_axes
from callshot.baselines.scoring import measure
from callshot.fewshot.centroid import LinearLayer, linear_layer
from callshot.fewshot.classifiers import CENTROID
from callshot.fewshot.episodes import Episodes, transform_split
from callshot.fewshot.sweep import Categories
from callshot.jobs import Check, Pool, never_stop
from callshot.records import FloatArray, Progress, no_progress

NEAR = 1e-5  # above the optimum of the objective: a path ends there
MAX_STEPS = 10**5


class Path(NamedTuple):
    """The path of one split: its reported steps, and at each of them the logits (queries, classes).

    Before the first step, the scores of the centroid are divided by `temperature`.
    """

    temperature: float
    steps: list[int]
    logits: list[FloatArray]


class Refinement(NamedTuple):
    """Reported steps, a value at each by scoring and metric, and the temperature of each split."""

    steps: list[int]
    values: dict[tuple[str, str], FloatArray]
    temperatures: FloatArray


def refine_centroid(
    episodes: Episodes,
    c_values: Sequence[float],
    *,
    categories: Categories = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Refinement:
    """Go from the centroid to logistic regression in every split; each has its own C.

    Steps 0, 1, 2, 5, 10, 20, … and the last of the longest path are reported; a shorter path stays
    at its end.
    """

    def run(fold: int) -> Path:
        path = refine_split(episodes, fold, c_values[fold], pool.check_stopped)
        progress(1 / episodes.folds, "refinement")
        return path

    with threadpool_limits(1, "blas"), Pool(threads) as pool:
        paths = list(pool.map(run, range(episodes.folds)))
    longest = max(paths, key=lambda path: path.steps[-1])
    rows = []
    for step in longest.steps:
        logits = []
        for path in paths:
            # Of the last reported step up to this one
            position = bisect_right(path.steps, step) - 1
            logits.append(path.logits[position])
        scores = gather_log_odds(episodes, logits)
        rows.append(measure(episodes, scores, categories))
    values = {}
    for key in rows[0]:
        values_at_steps = [row[key] for row in rows]
        values[key] = np.array(values_at_steps)
    temperatures = np.array([path.temperature for path in paths])
    return Refinement(longest.steps, values, temperatures)


def refine_split(
    episodes: Episodes, query_fold: int, c: float, check: Check = never_stop
) -> Path:
    """Take gradient steps from the centroid of one split until the objective is near its optimum.

    Vectors are standardised by the rows outside the fold of the queries, and weights are scaled
    accordingly: times the deviation for the objective, divided by it for the queries.
    """
    episodes = transform_split(episodes, CENTROID, query_fold)
    is_support = episodes.fold != query_fold
    label = episodes.label[is_support]
    # Equal queries are multiplied once, so that they tie.
    query_rows = np.flatnonzero(~is_support)
    queries, place = episodes.distinct_at(query_rows)
    support_vectors = episodes.vectors[is_support]
    standardised, mean, deviation = standardise(support_vectors)
    # Episodes are centred on all rows; the layers must not depend on the queries.
    vectors = support_vectors - mean
    queries = queries - mean
    fitted = fit(vectors, label, len(episodes.classes), c)
    centroid = linear_layer(vectors, label)
    weight = centroid.weight * deviation
    axes = principal_axes(np.vstack([standardised, weight]))
    objective = Objective(standardised, label, len(weight), axes)
    start = objective.position(weight, centroid.bias)
    temperature = find_temperature(objective, c, start)
    fitted_weight = fitted.weight * deviation
    at_optimum = objective.position(fitted_weight, fitted.bias)
    value_at_optimum, _ = objective.evaluate(c, at_optimum)
    optimum = value_at_optimum / c
    logits_at_start = centroid(queries)[place]
    path = Path(temperature, [0], [logits_at_start])

    # 1 over a Lipschitz constant of the gradient: softmax has a curvature of at most 1/2.
    products = objective.rows.T @ objective.rows
    largest = np.linalg.eigvalsh(products)[-1]
    lipschitz = 0.5 * largest + 1.0 / c
    step_length = 1.0 / lipschitz
    previous = start / temperature
    lookahead = previous
    momentum = 1.0
    for step in count(1):
        check()
        # The step lowers the objective, so that of the lookahead is at least that of the point.
        value, p = objective.evaluate(c, lookahead)
        gradient = find_gradient(objective, c, lookahead, p)
        point = lookahead - step_length * gradient
        is_near = value / c - optimum <= NEAR
        is_last = is_near or step == MAX_STEPS
        is_reported = str(step).rstrip("0") in ("1", "2", "5")  # 1, 2, 5, 10, 20, …
        if is_reported or is_last:
            point_weight, point_bias = objective.layer(point)
            layer = LinearLayer(point_weight / deviation, point_bias)
            logits = layer(queries)[place]
            path.steps.append(step)
            path.logits.append(logits)
        if is_last:
            break
        # Nesterov's momentum, which restarts where the last change points uphill.
        change = point - previous
        if np.vdot(gradient, change) > 0.0:
            momentum = 1.0
        root = np.sqrt(1.0 + 4.0 * momentum**2)
        next_momentum = (1.0 + root) / 2.0
        share = (momentum - 1.0) / next_momentum
        lookahead = point + share * change
        momentum = next_momentum
        previous = point
    return path


def find_gradient(
    objective: Objective, c: float, position: FloatArray, p: FloatArray
) -> FloatArray:
    """Return the gradient of the objective at a position with probabilities p."""
    penalty = position * objective.penalised / c
    return (p - objective.truth) @ objective.rows + penalty


def find_temperature(objective: Objective, c: float, start: FloatArray) -> float:
    """Return the temperature, 1 or more, with the lowest objective: it divides the start."""
    logits = start @ objective.rows.T
    square = np.sum(np.square(start) * objective.penalised)
    # Limits of log2(1 / temperature). The objective is convex, so bisection finds its minimum.
    low = -100.0
    high = 0.0
    for _ in range(60):
        middle = (low + high) / 2.0
        factor = 2.0**middle
        p, _ = objective.softmax(factor * logits)
        # The derivative of the objective by the factor of the start.
        slope = np.vdot(p - objective.truth, logits) + factor * square / c
        if slope > 0.0:
            high = middle
        else:
            low = middle
    return float(2.0**-high)
