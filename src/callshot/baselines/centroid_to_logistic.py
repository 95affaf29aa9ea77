"""Episodes → the path from the centroid to logistic regression by gradient steps, with its metrics.

The nearest centroid is a linear layer. Written for standardised columns it is a point in the space
in which logistic regression is trained, so gradient descent on the same J (`solver`: same
L2 penalty, free bias) leads from one to the other. Scores of the centroid grow with the square of
the vectors' length and saturate, so J is first lowered by one number: a temperature of at least 1
that divides all of them. Then come full gradient steps of length 1 / (bound of the curvature), with
Nesterov's momentum, which restarts whenever it points uphill.

A point is (classes, dimensions and bias).
"""

from bisect import bisect_right
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np

from callshot.baselines.logistic import fit, gather, standardise
from callshot.baselines.scoring import Categories, measure
from callshot.baselines.solver import Problem, multiply
from callshot.fewshot.centroid import LinearLayer, linear_layer
from callshot.fewshot.classifiers import CENTROID
from callshot.fewshot.engine import transform_split
from callshot.fewshot.episodes import Episodes
from callshot.jobs import Check, Pool, never_stop
from callshot.records import FloatArray, IntArray, Progress, no_progress

NEAR = 1e-5  # above the optimum of J: a path ends there
MAX_STEPS = 10**5


class Path(NamedTuple):
    """One split: the reported steps, a_n (queries, classes) and the gap of J at each of them."""

    temperature: float
    steps: list[int]
    a: list[FloatArray]
    gap: list[float]


def refine_centroid(
    episodes: Episodes,
    c_values: Sequence[float],
    *,
    categories: Categories = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> tuple[list[int], dict[tuple[str, str], FloatArray], FloatArray]:
    """Go from the centroid to logistic regression in every split, with the C of each.

    Return the steps, the values at each of them by scoring and metric, and the temperature of each
    split. Steps 0, 1, 2, 5, 10, 20, … and the last are reported; a path that has ended stays at its
    end. Nothing is random.
    """

    def run(number: int) -> Path:
        path = refine_split(episodes, number, c_values[number], pool.check_stopped)
        progress(1 / episodes.folds, "refinement")
        return path

    with Pool(threads) as pool:
        paths = list(pool.map(run, range(episodes.folds)))
    longest = max(paths, key=lambda path: path.steps[-1])
    steps = longest.steps
    rows = []
    for step in steps:
        a = [path.a[bisect_right(path.steps, step) - 1] for path in paths]
        scores = gather(episodes, a)
        rows.append(measure(episodes, scores, categories))
    values = {key: np.array([row[key] for row in rows]) for key in rows[0]}
    temperatures = np.array([path.temperature for path in paths])
    return steps, values, temperatures


def refine_split(
    episodes: Episodes, number: int, c: float, check: Check = never_stop
) -> Path:
    """Take the steps of one split until J is near its optimum."""
    episodes = transform_split(episodes, CENTROID, number)
    support = episodes.fold != number
    classes = episodes.classes
    label = episodes.label[support]
    # Equal queries are multiplied once, so that they tie.
    queries, place = episodes.distinct_at(np.flatnonzero(~support))
    rows, mean, deviation = standardise(episodes.vectors[support])
    scale = np.append(deviation, 1.0)
    # Episodes are centred on all rows; the layers must not depend on the queries.
    vectors = episodes.vectors[support] - mean
    queries = queries - mean
    problem = make_objective(rows, label, c)

    def to_point(layer: LinearLayer) -> FloatArray:
        point = np.column_stack([layer.weight, layer.bias])
        return np.asarray(point * scale)

    fitted = fit(vectors, label, classes, c)
    optimum, _ = evaluate(problem, to_point(fitted))
    centroid = linear_layer(vectors, np.array(classes)[label])
    start = to_point(centroid)
    temperature = find_temperature(problem, start)
    gap = evaluate(problem, start)[0] - optimum
    a = centroid(queries)[place]
    path = Path(temperature, [0], [a], [gap])

    # Softmax has a curvature of at most 1/2: a Lipschitz constant of the gradient.
    table = problem.rows
    if len(table) < table.shape[1]:
        table = table.T
    largest = np.linalg.eigvalsh(table.T @ table)[-1]
    length = 1.0 / (0.5 * largest + 1.0 / c)
    previous = start / temperature
    lookahead = previous
    momentum = 1.0
    for step in count(1):
        check()
        bound, gradient = evaluate(problem, lookahead)
        point = lookahead - length * gradient
        is_last = bound - optimum <= NEAR or step == MAX_STEPS
        if str(step).rstrip("0") in ("1", "2", "5") or is_last:
            weight, bias = np.split(point / scale, [-1], axis=1)
            layer = LinearLayer(classes, weight, bias[:, 0])
            path.steps.append(step)
            path.a.append(layer(queries)[place])
            path.gap.append(evaluate(problem, point)[0] - optimum)
        if is_last:
            break
        change = point - previous
        if np.sum(gradient * change) > 0.0:
            momentum = 1.0
        root = np.sqrt(1.0 + 4.0 * momentum**2)
        next_momentum = (1.0 + root) / 2.0
        share = (momentum - 1.0) / next_momentum
        lookahead = point + share * change
        momentum = next_momentum
        previous = point
    return path


def make_objective(rows: FloatArray, label: IntArray, c: float) -> Problem:
    """Return J of standardised rows; the bias is the unknown of a last column of ones."""
    table = np.column_stack([rows, np.ones(len(rows))])
    return Problem(table, np.ascontiguousarray(table.T), False, label, c)


def evaluate(problem: Problem, point: FloatArray) -> tuple[float, FloatArray]:
    """Return J and its gradient."""
    rows, columns, _, label, c = problem
    logits = np.empty((len(point), len(label)))
    multiply(np.ascontiguousarray(point), rows, False, logits)
    logits -= logits.max(axis=0)
    p = np.exp(logits)
    total = p.sum(axis=0)
    of_label = (label, np.arange(len(label)))
    loss = np.sum(np.log(total) - logits[of_label])
    p /= total
    p[of_label] -= 1.0
    gradient = np.empty(point.shape)
    multiply(p, columns, False, gradient)
    weight = point[:, :-1]  # the bias is not penalised
    gradient[:, :-1] += weight / c
    penalty = np.square(weight).sum() / (2.0 * c)
    return float(loss + penalty), gradient


def find_temperature(problem: Problem, point: FloatArray) -> float:
    """Return the number, 1 or more, to divide a point by for the lowest J."""
    low = -100.0  # powers of 2; J is convex, so bisection finds its minimum
    high = 0.0
    for _ in range(60):
        middle = (low + high) / 2.0
        _, gradient = evaluate(problem, 2.0**middle * point)
        if np.sum(gradient * point) > 0.0:
            high = middle
        else:
            low = middle
    return float(2.0**-high)
