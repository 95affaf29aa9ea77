"""Episodes → the path from the centroid to logistic regression by gradient steps, with its metrics.

The nearest centroid is a linear layer. Written for standardised columns it is a point in the space
in which logistic regression is trained, so gradient descent on the same J (`solver`: same
L2 penalty, free bias) leads from one to the other. Scores of the centroid grow with the square of
the vectors' length and saturate, so J is first lowered by one number: a temperature of at least 1
that divides all of them. Then come full gradient steps of length 1 / (bound of the curvature), with
Nesterov's momentum, which restarts whenever it points uphill.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count
from operator import itemgetter
from typing import NamedTuple

import numpy as np

from callshot.baselines.logistic import check_c, fit, gather, standardise
from callshot.baselines.scoring import Categories, measure
from callshot.baselines.solver import Problem, fill_gradient
from callshot.errors import OptionError
from callshot.fewshot.centroid import LinearLayer, linear_layer
from callshot.fewshot.classifiers import CENTROID
from callshot.fewshot.engine import transform_split
from callshot.fewshot.episodes import Episodes
from callshot.jobs import Check, Pool, never_stop
from callshot.records import FloatArray, IntArray, Progress, no_progress

NEAR = 1e-5  # above the optimum of J: a path ends there
MAX_STEPS = 10**5


class Point(NamedTuple):
    """Weight (classes, dimensions) and bias (classes) for standardised columns."""

    weight: FloatArray
    bias: FloatArray

    def move(self, share: float, other: "Point") -> "Point":
        """Return this point plus a share of another."""
        weight = self.weight + share * other.weight
        bias = self.bias + share * other.bias
        return Point(weight, bias)

    def dot(self, other: "Point") -> float:
        """Return the inner product with another point."""
        weights = (self.weight * other.weight).sum()
        return float(weights + (self.bias * other.bias).sum())


@dataclass(frozen=True)
class Refinement:
    """The curve from the centroid (step 0) to logistic regression (the last step).

    values[scoring, metric] is (steps,), and `gap` (steps, folds) is how far J is above its optimum.
    `temperature` is that of each split.
    """

    steps: IntArray
    values: dict[tuple[str, str], FloatArray]
    gap: FloatArray
    temperature: FloatArray


@dataclass(frozen=True)
class Path:
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
) -> Refinement:
    """Go from the centroid to logistic regression in every split, with the C of each.

    Steps 0, 1, 2, 5, 10, 20, … and the last are reported. Nothing is random.
    """
    if len(c_values) != episodes.folds:
        raise OptionError(
            f"C: expected one for each of {episodes.folds} splits, got {len(c_values)}"
        )
    for c in c_values:
        check_c(c)

    def run(number: int) -> Path:
        path = refine_split(episodes, number, c_values[number], pool.check_stopped)
        progress(1 / episodes.folds, "refinement")
        return path

    with Pool(threads) as pool:
        paths = list(pool.map(run, range(episodes.folds)))
    return _join_paths(episodes, paths, categories)


def _join_paths(
    episodes: Episodes, paths: Sequence[Path], categories: Categories
) -> Refinement:
    """Measure all splits together at each step; a path that has ended stays at its end."""
    steps = max((path.steps for path in paths), key=itemgetter(-1))
    metrics = []
    gap = []
    for step in steps:
        places = [(path, bisect_right(path.steps, step) - 1) for path in paths]
        gap.append([path.gap[i] for path, i in places])
        scores = gather(episodes, [path.a[i] for path, i in places])
        metrics.append(measure(episodes, scores, categories))
    values = {}
    for key in metrics[0]:
        values[key] = np.array([row[key] for row in metrics])
    temperature = np.array([path.temperature for path in paths])
    return Refinement(np.array(steps), values, np.array(gap), temperature)


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
    # Episodes are centred on all rows; the layers must not depend on the queries.
    vectors = episodes.vectors[support] - mean
    queries = queries - mean
    objective = LogisticObjective(rows, label, c)
    trained = fit(vectors, label, classes, c)
    optimum = objective.value(Point(trained.weight * deviation, trained.bias))
    centroid = linear_layer(vectors, np.array(classes)[label])
    start = Point(centroid.weight * deviation, centroid.bias)
    temperature = objective.best_temperature(start)
    gap = objective.value(start) - optimum
    path = Path(temperature, [0], [centroid(queries)[place]], [gap])
    tempered = Point(start.weight / temperature, start.bias / temperature)
    for step, point, bound in descend(objective, tempered):
        check()
        is_last = bound - optimum <= NEAR or step == MAX_STEPS
        if is_reported(step) or is_last:
            layer = LinearLayer(classes, point.weight / deviation, point.bias)
            path.steps.append(step)
            path.a.append(layer(queries)[place])
            path.gap.append(objective.value(point) - optimum)
        if is_last:
            break
    return path


@dataclass(frozen=True)
class LogisticObjective:
    """J of one split: standardised rows, their class numbers, and C."""

    rows: FloatArray
    label: IntArray
    c: float

    @cached_property
    def problem(self) -> Problem:
        """The fit, for the kernels."""
        columns = np.ascontiguousarray(self.rows.T)
        return Problem(self.rows, columns, False, self.label, self.c)

    def value(self, point: Point) -> float:
        """Return J."""
        return self.gradient(point)[0]

    def gradient(self, point: Point) -> tuple[float, Point]:
        """Return J and its gradient."""
        weight = np.ascontiguousarray(point.weight)
        gradient = Point(np.empty_like(weight), np.empty_like(point.bias))
        value = fill_gradient(self.problem, weight, point.bias, *gradient)
        return value, gradient

    def lipschitz(self) -> float:
        """Return a Lipschitz constant of the gradient: softmax has a curvature of at most 1/2."""
        table = np.column_stack([self.rows, np.ones(len(self.rows))])
        if len(table) < table.shape[1]:
            table = table.T
        largest = np.linalg.eigvalsh(table.T @ table)[-1]
        return 0.5 * float(largest) + 1.0 / self.c

    def best_temperature(self, point: Point) -> float:
        """Return the number, 1 or more, to divide a point by for the lowest J."""
        low = -100.0  # powers of 2; J is convex, so bisection finds its minimum
        high = 0.0
        for _ in range(60):
            middle = (low + high) / 2.0
            factor = 2.0**middle
            scaled = Point(factor * point.weight, factor * point.bias)
            _, gradient = self.gradient(scaled)
            if gradient.dot(point) > 0.0:
                high = middle
            else:
                low = middle
        return float(2.0**-high)


def descend(
    objective: LogisticObjective, start: Point
) -> Iterator[tuple[int, Point, float]]:
    """Yield each step, the point it leads to, and an upper bound of J there."""
    length = 1.0 / objective.lipschitz()
    previous = start
    lookahead = start
    momentum = 1.0
    for step in count(1):
        bound, gradient = objective.gradient(lookahead)
        point = lookahead.move(-length, gradient)
        yield step, point, bound
        change = point.move(-1.0, previous)
        if gradient.dot(change) > 0.0:
            momentum = 1.0
        next_momentum = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        lookahead = point.move((momentum - 1.0) / next_momentum, change)
        momentum = next_momentum
        previous = point


def is_reported(step: int) -> bool:
    """Return whether a step is 0, or 1, 2 or 5 times a power of ten.

    >>> [step for step in range(101) if is_reported(step)]
    [0, 1, 2, 5, 10, 20, 50, 100]
    """
    return step == 0 or str(step).rstrip("0") in ("1", "2", "5")
