"""Episodes → the way from the centroid to logistic regression, by gradient steps, and what each of them buys.

The nearest centroid is a linear layer. Written for standardised columns (`scaling`) it is a point in the space in which
logistic regression is trained, so that gradient steps down the same J (`solver`: the same L2 penalty, the bias free)
lead from the one to the other. Its scores grow with the square of the vectors' length and saturate: J is lowered first
by one number, a temperature that divides all of them, where a larger one than 1 lowers it. Then full gradient steps of
length 1 / (the largest curvature), with Nesterov's momentum, which is dropped whenever it leads uphill.
"""

import os
from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np

from callshot.baselines.kernels.solver import fill_slope
from callshot.baselines.logistic import check_c, fit, gather
from callshot.baselines.scoring import measure
from callshot.baselines.standardize import standardise
from callshot.errors import OptionError
from callshot.fewshot.centroid import LinearLayer, linear_layer
from callshot.fewshot.episodes import Episodes
from callshot.records import FloatArray, IntArray, Progress, no_progress

NEAR = 1e-5  # above the optimum of J: there a path has arrived
MOST_STEPS = 10**5

Point = tuple[
    FloatArray, FloatArray
]  # weight (classes, dimensions) and bias, for standardised columns


@dataclass(frozen=True)
class Refinement:
    """The curve from the centroid (0 steps) to logistic regression (the last).

    values[scoring, metric] is (steps,); `above` (steps, folds) is how far J is above its optimum. `temperature` is that
    of each split, and tempered[scoring, metric] what it makes of the centroid before the first step.
    """

    steps: IntArray
    values: dict[tuple[str, str], FloatArray]
    above: FloatArray
    temperature: FloatArray
    tempered: dict[tuple[str, str], float]


@dataclass(frozen=True)
class Path:
    """One split: the steps that are told; at each, a_n (queries, classes) and how far J is above its optimum."""

    steps: list[int]
    a: list[FloatArray]
    above: list[float]
    temperature: float
    tempered: FloatArray

    def at(self, step: int) -> int:
        """Return the place of the last told step up to this one: a path that has arrived stays there."""
        return bisect_right(self.steps, step) - 1


def refine_centroid(
    episodes: Episodes,
    strength: Sequence[float],
    *,
    categories: Mapping[str, str] | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> Refinement:
    """Go from the centroid of every split to logistic regression; `strength` is C of each split.

    Steps 0, 1, 2, 5, 10, 20, … are told, and the last. Nothing is random.
    """
    if len(strength) != episodes.folds:
        raise OptionError(
            f"strength: wanted one C for each of {episodes.folds} splits, got {len(strength)}"
        )
    for c in strength:
        check_c(c)

    def run(number: int) -> Path:
        path = follow(episodes, number, strength[number])
        progress(1 / episodes.folds, "refinement")
        return path

    with ThreadPoolExecutor(threads or os.cpu_count()) as pool:
        paths = list(pool.map(run, range(episodes.folds)))
    last = max(path.steps[-1] for path in paths)
    steps = [step for step in range(last + 1) if is_told(step) or step == last]
    tables = [
        measure(episodes, gather(episodes, [p.a[p.at(step)] for p in paths]), categories)
        for step in steps
    ]
    return Refinement(
        np.array(steps),
        {key: np.array([table[key] for table in tables]) for key in tables[0]},
        np.array([[path.above[path.at(step)] for path in paths] for step in steps]),
        np.array([path.temperature for path in paths]),
        measure(episodes, gather(episodes, [path.tempered for path in paths]), categories),
    )


def follow(episodes: Episodes, number: int, strength: float) -> Path:
    """Make the steps of one split until J is near its optimum."""
    outside = episodes.fold != number
    vectors, label = episodes.vectors[outside], episodes.label[outside]
    queries, place = episodes.distinct_at(
        np.flatnonzero(~outside)
    )  # equal queries are multiplied once: they tie
    rows, mean, deviation = standardise(vectors)
    vectors, queries = (
        vectors - mean,
        queries - mean,
    )  # the origin was that of all rows, and weights know where it is
    valley = LogisticObjective(rows, label, strength)

    def put(layer: LinearLayer) -> Point:
        return layer.weight * deviation, layer.bias

    def a_of(point: Point) -> FloatArray:
        return LinearLayer(episodes.classes, point[0] / deviation, point[1])(queries)[place]

    centroid = linear_layer(vectors, np.array(episodes.classes)[label])
    weight, bias = put(centroid)
    best = valley.height(put(fit(vectors, label, episodes.classes, strength)))
    temperature = valley.temperature((weight, bias))
    start = weight / temperature, bias / temperature
    path = Path(
        [0],
        [centroid(queries)[place]],
        [valley.height((weight, bias)) - best],
        temperature,
        a_of(start),
    )
    for step, point, high in descend(valley, start):
        arrived = high - best <= NEAR or step == MOST_STEPS
        if is_told(step) or arrived:
            path.steps.append(step)
            path.a.append(a_of(point))
            path.above.append(valley.height(point) - best)
        if arrived:
            break
    return path


@dataclass(frozen=True)
class LogisticObjective:
    """J of one split: standardised rows, their class numbers, and the strength C."""

    rows: FloatArray
    label: IntArray
    strength: float

    def height(self, point: Point) -> float:
        """Return J."""
        return self.slope(point)[0]

    def slope(self, point: Point) -> tuple[float, Point]:
        """Return J and its gradient."""
        weight, bias = np.ascontiguousarray(point[0]), point[1]
        slope = np.empty_like(weight), np.empty_like(bias)
        return fill_slope(
            self.rows, self.columns, self.label, self.strength, weight, bias, *slope
        ), slope

    @cached_property
    def columns(self) -> FloatArray:
        """The rows turned over."""
        return np.ascontiguousarray(self.rows.T)

    def steepest(self) -> float:
        """Return a bound of the second derivative of J: the softmax bends by 1/2 at most."""
        table = np.column_stack([self.rows, np.ones(len(self.rows))])
        product = table @ table.T if len(table) < table.shape[1] else table.T @ table
        return 0.5 * float(np.linalg.eigvalsh(product)[-1]) + 1.0 / self.strength

    def temperature(self, point: Point) -> float:
        """Return the number, 1 at least, by which to divide a point for the lowest J."""

        def uphill(factor: float) -> bool:
            weight, bias = self.slope((factor * point[0], factor * point[1]))[1]
            return float((weight * point[0]).sum() + (bias * point[1]).sum()) > 0.0

        low, high = (
            -100.0,
            0.0,
        )  # powers of 2; J bends upwards, so halving the interval finds its foot
        for _ in range(60):
            middle = (low + high) / 2.0
            low, high = (low, middle) if uphill(2.0**middle) else (middle, high)
        return float(2.0**-high)


def descend(valley: LogisticObjective, start: Point) -> Iterator[tuple[int, Point, float]]:
    """Yield each step, the point it leads to, and a height that J there is not above."""
    length, last, at, momentum = 1.0 / valley.steepest(), start, start, 1.0
    for step in count(1):
        high, (weight, bias) = valley.slope(at)
        new = at[0] - length * weight, at[1] - length * bias
        yield step, new, high
        way = new[0] - last[0], new[1] - last[1]
        if (weight * way[0]).sum() + (bias * way[1]).sum() > 0.0:
            momentum = 1.0
        following = (1.0 + np.sqrt(1.0 + 4.0 * momentum**2)) / 2.0
        share, momentum, last = (momentum - 1.0) / following, following, new
        at = new[0] + share * way[0], new[1] + share * way[1]


def is_told(step: int) -> bool:
    """Return whether a step is 0, or 1, 2 or 5 times a power of ten.

    >>> [step for step in range(101) if is_told(step)]
    [0, 1, 2, 5, 10, 20, 50, 100]
    """
    return step == 0 or (str(step)[0] in "125" and not str(step)[1:].strip("0"))
