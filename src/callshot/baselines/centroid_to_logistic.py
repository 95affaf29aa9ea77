"""Episodes → the path from the centroid to logistic regression by gradient steps, with its metrics.

The nearest centroid is a linear layer. Written for standardised columns it is a point in the space
in which logistic regression is trained, so gradient descent on the same objective (`solver`: same
L2 penalty, free bias) leads from one to the other. Scores of the centroid grow with the square of
the vectors' length and saturate, so the objective is first lowered by one number: a temperature of
at least 1 that divides all of them. Then come full gradient steps of length 1 / (bound of the
curvature), with Nesterov's momentum, which restarts whenever it points uphill.

There may be thousands of steps. So a step takes as few products as possible: the objective is
written in the unknowns of `path_solver`, and what is multiplied in float32 is only by how much the
residuals changed since the step before.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from threadpoolctl import threadpool_limits

from callshot.baselines.logistic import fit, gather_log_odds, standardise
from callshot.baselines.path_solver import Array, Objective, Rows, Vector
from callshot.baselines.scoring import measure
from callshot.fewshot.centroid import LinearLayer, linear_layer
from callshot.fewshot.classifiers import CENTROID
from callshot.fewshot.episodes import Episodes, transform_split
from callshot.fewshot.sweep import Categories
from callshot.jobs import Check, Pool, never_stop
from callshot.records import FloatArray, IntArray, Progress, no_progress

NEAR = 1e-5  # above the optimum of the objective: a path ends there
MAX_STEPS = 10**5
BISECTIONS = 60  # of log2(temperature): from a width of 100 to less than 1e-15
EXACT_STEPS = 50  # at first all products are exact, later every fiftieth


class Path(NamedTuple):
    """The path of one split: its reported steps, and what was reached at each of them.

    At each step, `logits` has an array (queries, classes), and `gap` how far the objective is above
    its optimum. Before the first step, the scores of the centroid are divided by `temperature`.
    """

    temperature: float
    steps: list[int]
    logits: list[FloatArray]
    gap: list[float]

    def logits_at(self, step: int) -> FloatArray:
        """Return the logits at the last reported step up to `step`."""
        return self.logits[bisect_right(self.steps, step) - 1]


class Refinement(NamedTuple):
    """The paths of all splits: reported steps, and a value at each of them by scoring and metric.

    The scores of the centroid of split n are divided by temperatures[n].
    """

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
    """Go from the centroid to logistic regression in every split, by steps of gradient descent.

    Steps 0, 1, 2, 5, 10, 20, … and the last of the longest path are reported; a shorter path stays
    at its end. Nothing is random.
    """

    def run(fold: int) -> Path:
        path = refine_split(episodes, fold, c_values[fold], pool.check_stopped)
        progress(1 / episodes.folds, "refinement")
        return path

    with threadpool_limits(1, "blas"), Pool(threads) as pool:
        paths = list(pool.map(run, range(episodes.folds)))
    longest = max(paths, key=lambda path: path.steps[-1])
    metrics_at_steps = []
    for step in longest.steps:
        scores = gather_log_odds(episodes, [path.logits_at(step) for path in paths])
        metrics_at_steps.append(measure(episodes, scores, categories))
    values = {}
    for key in metrics_at_steps[0]:  # scoring and metric
        values[key] = np.array([metrics[key] for metrics in metrics_at_steps])
    temperatures = np.array([path.temperature for path in paths])
    return Refinement(longest.steps, values, temperatures)


def refine_split(
    episodes: Episodes, query_fold: int, c: float, check: Check = never_stop
) -> Path:
    """Take gradient steps from the centroid of one split until the objective is near its optimum.

    Vectors are standardised by the rows outside the fold of the queries, and weights are scaled
    accordingly: times the deviation for the objective, divided by it for the queries. `c` is C.
    `check` raises if the work is to stop.
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
    descent = Descent(
        standardised, label, c, centroid.weight * deviation, centroid.bias
    )
    optimum = descent.evaluate_weight(fitted.weight * deviation, fitted.bias)
    temperature = descent.find_temperature()
    gap = descent.evaluate(descent.start)[0] - optimum
    path = Path(temperature, [0], [centroid(queries)[place]], [gap])

    step_length = _find_step_length(standardised, c)
    for step, point in _take_steps(descent, temperature, step_length, optimum, check):
        weight = descent.weight(point) / deviation
        layer = LinearLayer(weight, point.bias)
        path.steps.append(step)
        path.logits.append(layer(queries)[place])
        path.gap.append(descent.evaluate(point)[0] - optimum)
    return path


def _take_steps(
    descent: "Descent",
    temperature: float,
    step_length: float,
    optimum: float,
    check: Check,
) -> Iterator[tuple[int, Vector]]:
    """Take gradient steps from the start until the objective is near its optimum.

    Yield the numbers of the steps that are reported, and the points that they reach.
    """
    # start / temperature
    previous = descent.start.plus(1.0 / temperature - 1.0, descent.start)
    lookahead = previous
    momentum = 1.0
    for step in count(1):
        check()
        is_exact = step <= EXACT_STEPS or step % EXACT_STEPS == 0
        if is_exact:  # compute the logits again: steps in float32 add errors
            previous = descent.multiply(previous.unknowns, previous.bias)
            lookahead = descent.multiply(lookahead.unknowns, lookahead.bias)
        # The step lowers the objective, so that of the lookahead is at least that of the point.
        bound, residual = descent.evaluate(lookahead)
        gradient = descent.find_gradient(lookahead, residual, is_exact=is_exact)
        point = lookahead.plus(-step_length, gradient)
        is_last = bound - optimum <= NEAR or step == MAX_STEPS
        is_reported = str(step).rstrip("0") in ("1", "2", "5")  # 1, 2, 5, 10, 20, …
        if is_reported or is_last:
            yield step, point
        if is_last:
            return
        # Nesterov's momentum, which restarts where the last change points uphill.
        change = point.plus(-1.0, previous)
        slope = np.vdot(gradient.unknowns, descent.dual(change))
        if slope + gradient.bias @ change.bias > 0.0:
            momentum = 1.0
        root = np.sqrt(1.0 + 4.0 * momentum**2)
        next_momentum = (1.0 + root) / 2.0
        share = (momentum - 1.0) / next_momentum
        lookahead = point.plus(share, change)
        momentum = next_momentum
        previous = point


def _find_step_length(rows: FloatArray, c: float) -> float:
    """Return the length of gradient steps that lower the objective wherever they start.

    It is 1 over a Lipschitz constant of the gradient: softmax has a curvature of at most 1/2.
    `rows` are standardised (rows, dimensions), `c` is C.
    """
    table = np.column_stack([rows, np.ones(len(rows))])  # with a column for the bias
    if len(table) < table.shape[1]:
        table = table.T  # the smaller product has the same largest eigenvalue
    largest = np.linalg.eigvalsh(table.T @ table)[-1]
    return float(1.0 / (0.5 * largest + 1.0 / c))


class Descent(Objective):
    """The objective at the points that gradient steps reach from a start.

    These lie in the span of the rows and of the weights of the start. The logits of a point have
    columns for these weights too.
    """

    def __init__(
        self,
        rows: FloatArray,
        label: IntArray,
        c: float,
        weight: FloatArray,
        bias: FloatArray,
    ) -> None:
        """Start from a weight (classes, dimensions) and a bias, for standardised rows and C."""
        classes = len(weight)
        super().__init__(rows, label, classes, further_rows=weight)
        self.c = c
        unknowns = weight
        if self.in_span:
            # Unknowns are coefficients of the rows, then of the weights of each class, which start
            # with coefficient 1 for their own class.
            unknowns = np.eye(classes, len(self.all_rows), k=len(rows))
        self.start = self.multiply(unknowns, bias)
        # The residuals of the last gradient, and their sums over rows as unknowns and logits.
        self.last_residual = np.zeros(self.truth.shape)
        self.sums = np.zeros(unknowns.shape)
        self.sums_logits = np.zeros(self.start.logits.shape)

    def logits(self, point: Vector) -> FloatArray:
        """Return the logits of the rows, with the bias."""
        return point.logits[:, : len(self.label)] + point.bias[:, None]

    def square(self, point: Vector) -> float:
        """Return the squared length of the weights."""
        return float(np.vdot(point.unknowns, self.dual(point)))

    def evaluate(self, point: Vector) -> tuple[float, FloatArray]:
        """Return the objective and the residuals, probability − truth (classes, rows)."""
        p, loss = self.softmax(self.logits(point))
        return loss + self.square(point) / (2.0 * self.c), p - self.truth

    def evaluate_weight(self, weight: FloatArray, bias: FloatArray) -> float:
        """Return the objective at any weights (classes, dimensions) and bias (classes)."""
        _, loss = self.softmax(weight @ self.double.rows.T + bias[:, None])
        return loss + float(np.square(weight).sum()) / (2.0 * self.c)

    def find_gradient(
        self, point: Vector, residual: FloatArray, *, is_exact: bool = True
    ) -> Vector:
        """Return the gradient of the objective at a point with residuals (classes, rows).

        As a Vector it has logits, so that a step needs no product to update those of the point.
        Where it need not be exact, only the change of the residuals since the last gradient is
        multiplied, in float32.
        """
        if is_exact:
            self.last_residual = residual
            self.sums, self.sums_logits = self._sum_rows(self.double, residual)
        else:
            change = (residual - self.last_residual).astype(np.float32)
            sums, sums_logits = self._sum_rows(self.single, change)
            self.last_residual = self.last_residual + change
            self.sums = self.sums + sums
            self.sums_logits = self.sums_logits + sums_logits
        return Vector(
            self.sums + point.unknowns / self.c,
            residual.sum(axis=1),
            self.sums_logits + point.logits / self.c,
        )

    def _sum_rows(self, rows: Rows, residual: Array) -> tuple[Array, Array]:
        """Return Σ_i residual[n, i] · row i for each class n, as unknowns and as logits.

        `rows` are the matrices of one precision, `residual` is (classes, rows).
        """
        if not self.in_span:
            sums = residual @ rows.rows
            return sums, sums @ rows.table
        classes, count = residual.shape
        # Coefficients of the rows; those of the weights of the start are 0.
        padded = np.pad(residual, ((0, 0), (0, classes)))
        return padded, residual @ rows.table[:count]

    def find_temperature(self) -> float:
        """Return the temperature, 1 or more, with the lowest objective: it divides the start."""
        logits = self.logits(self.start)
        square = self.square(self.start)
        # Limits of log2(1 / temperature). The objective is convex, so bisection finds its minimum.
        low = -100.0
        high = 0.0
        for _ in range(BISECTIONS):
            middle = (low + high) / 2.0
            factor = 2.0**middle
            p, _ = self.softmax(factor * logits)
            # The derivative of the objective by the factor of the start.
            slope = np.vdot(p - self.truth, logits) + factor * square / self.c
            if slope > 0.0:
                high = middle
            else:
                low = middle
        return float(2.0**-high)
