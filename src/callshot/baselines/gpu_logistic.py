"""Draws of a split → logistic regression at every k on a GPU, many draws at a time.

All draws of a split have as many rows of each class, so the fits of one k are one batch. What a fit
sees, where it starts and when it stops are those of `logistic_per_k` on the CPU; `BatchedSolver`
does what `solver` does, step by step, for a whole batch. Sums have another order, so weights differ
in their last digits.

Vectors of a batch have columns for the unknowns, then zeros up to a multiple of 64, and the bias as
the last column. Lanes are the rows, then zeros; in the span of the rows, lanes and columns are the
same.
"""

import gc
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from callshot.baselines.logistic import CLOSE, check_optimum, score_whole_support
from callshot.baselines.solver import MAX_INNER_STEPS, MAX_STEPS, TINY
from callshot.fewshot.engine import Engine, blocks
from callshot.fewshot.episodes import Split
from callshot.fewshot.gpu.draws import Supports
from callshot.fewshot.gpu.sweep import ShotPlan, SupportDrawer, upload
from callshot.fewshot.sweep import Spread
from callshot.records import IntArray

COLUMN_STEP = 64
# Of conjugate gradients; asking the GPU whether all fits stopped takes time.
STEPS_PER_CHECK = 4
MIN_SHARE = 1e-9  # of a Newton step

Tensor = Any


class NestedPlan(ShotPlan):
    """A plan that draws every exemplar of the largest support, also where there is no choice."""

    @property
    def steps(self) -> IntArray:
        """The exemplars of each class in the largest support."""
        most = np.full(len(self.sizes), self.shots[-1])
        return np.minimum(most, self.sizes) if self.distinct else most


class GpuTrainer:
    """Fills a_n of the queries of one split by fits on a GPU, as a `SplitScorer` does."""

    def __init__(
        self,
        engine: Engine,
        split: Split,
        shots: IntArray,
        spread: Spread,
        *,
        solver: "BatchedSolver",
    ) -> None:
        distinct = engine.protocol.distinct or spread.rank is not None
        plan = NestedPlan(shots, split.pool_sizes, distinct)
        self.drawer = SupportDrawer(engine, split, plan, spread)
        self.episodes = engine.episodes
        self.split = split
        self.gpu = engine.on_gpu.gpu
        self.solver = solver
        self.shots = len(shots)
        self.classes = len(engine.episodes.classes)
        # The rows of a draw: one of each class in turn.
        steps = plan.steps
        turn, label = np.nonzero(np.arange(steps.max())[:, None] < steps)
        self.turn = upload(turn, self.gpu)
        self.label = upload(label, self.gpu)
        self.sizes = np.searchsorted(turn, shots)
        self.whole = None
        whole = score_whole_support(engine, split, shots, solver.c)
        if whole is not None:
            self.whole = upload(whole, self.gpu)
            self.sizes = self.sizes[: np.searchsorted(self.sizes, len(split.pool))]

    @cached_property
    def vectors(self) -> Tensor:
        """The vectors of all rows."""
        distinct, number = self.drawer.on_gpu.distinct
        return distinct if number is None else distinct[number]

    def shared(self, span: slice) -> Tensor:
        """Return a_n (shots, classes, queries · draws) by some draws that all queries share."""
        queries, place = self.episodes.distinct_at(self.split.rows)
        columns = upload(queries, self.gpu).T
        where = upload(place, self.gpu)
        rows = self._rows(self.drawer.shared(span))
        out = self._empty(len(place), len(rows))
        for lanes in blocks(len(rows), self._fits_at_a_time()):
            for s, layers in enumerate(self.fit_nested(rows[lanes])):
                logits = layers[..., :-1] @ columns + layers[..., -1:]
                out[s, :, :, lanes] = logits[..., where].permute(1, 2, 0)
        if self.whole is not None:
            out[len(self.sizes) :] = self.whole[..., None]
        return out.flatten(2)

    def per_query(self, draws: int) -> Tensor:
        """Return a_n (shots, classes, queries · draws) by each query's own draws."""
        count = len(self.split.rows)
        queries = self.vectors[upload(self.split.rows, self.gpu)]
        out = self._empty(count, draws)
        for span in blocks(count, self._fits_at_a_time() // draws):
            rows = self._rows(self.drawer.per_query(span, draws))
            column = queries[span].repeat_interleave(draws, 0)[..., None]
            for s, layers in enumerate(self.fit_nested(rows)):
                logits = torch.bmm(layers[..., :-1], column) + layers[..., -1:]
                out[s, :, span] = logits.reshape(-1, draws, self.classes).permute(
                    2, 0, 1
                )
        if self.whole is not None:
            out[len(self.sizes) :] = self.whole[..., None]
        return out.flatten(2)

    def _empty(self, queries: int, draws: int) -> Tensor:
        size = (self.shots, self.classes, queries, draws)
        return torch.empty(size, dtype=torch.float64, device=self.gpu.torch_device)

    def _rows(self, supports: Supports) -> Tensor:
        """Return the rows of every draw, (draws, rows); each support is the first rows."""
        start = self.drawer.on_gpu.class_start[self.label]
        return (supports.chosen[self.label, self.turn] + start[:, None]).T.contiguous()

    def _fits_at_a_time(self) -> int:
        """Return how many draws are trained on at a time."""
        count = int(self.sizes[-1]) if len(self.sizes) else 1
        dimensions = self.episodes.vectors.shape[1]
        columns = padded(min(count, dimensions))
        rows = 4 * count * padded(dimensions)
        vectors = 32 * self.classes * (columns + padded(count))
        matrices = 4 * columns**2  # of all sizes together
        return int(self.gpu.score_bytes // (8 * (rows + matrices + vectors)))

    def fit_nested(self, rows: Tensor) -> Iterator[Tensor]:
        """Train on draws at every k; yield the layers (draws, classes, dimensions and bias).

        A fit starts from the one before; the layers are for vectors that are not standardised.
        """
        dimensions = self.episodes.vectors.shape[1]
        size = (len(rows), self.classes, dimensions + 1)
        layers = self.vectors.new_zeros(size)
        position = layers[..., :1]
        before = 0
        for count in self.sizes.tolist():
            if count > before:
                table, mean, deviation = standardise(self.vectors[rows[:, :count]])
                if count <= dimensions:
                    start = extend(position, before, padded(count))
                else:
                    start = start_from(layers, mean, deviation)
                weights, position, gap = self.solver.solve(
                    table, self.label[:count], self.classes, start
                )
                check_optimum(gap, self.solver.c, self.solver.tolerance)
                layers = unscale(weights, position[..., -1:], mean, deviation)
                before = count
            yield layers


def extend(position: Tensor, count: int, columns: int) -> Tensor:
    """Return positions in the span of more rows: zeros for the rows that are new."""
    wide = position.new_zeros((*position.shape[:2], columns))
    wide[..., :count] = position[..., :count]
    wide[..., -1] = position[..., -1]
    return wide


def start_from(layers: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Return layers as positions for standardised vectors."""
    weight = layers[..., :-1]
    dimensions = weight.shape[-1]
    start = layers.new_zeros((*layers.shape[:2], padded(dimensions)))
    start[..., :dimensions] = weight * deviation
    start[..., -1] = layers[..., -1] + (weight * mean).sum(-1)
    return start


def unscale(weights: Tensor, bias: Tensor, mean: Tensor, deviation: Tensor) -> Tensor:
    """Return layers for vectors that are not standardised."""
    weight = weights / deviation
    return torch.cat([weight, bias - (weight * mean).sum(-1, keepdim=True)], -1)


def standardise(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return standardised rows, mean and deviation of every draw, as `logistic.standardise`.

    The vectors (draws, rows, dimensions) are overwritten.
    """
    count, dimensions = vectors.shape[1:]
    first = vectors[:, :1].clone()
    vectors -= first
    mean = vectors.mean(1, keepdim=True)
    vectors -= mean
    deviation = torch.linalg.vector_norm(vectors, dim=1, keepdim=True) / count**0.5
    middle = deviation.kthvalue(dimensions // 2 + 1, dim=2, keepdim=True).values
    deviation = torch.maximum(deviation, middle / count**0.5)
    deviation = torch.where(deviation == 0.0, 1.0, deviation)
    vectors *= 1.0 / deviation
    return vectors, first + mean, deviation


class BatchSize(NamedTuple):
    """What batches have in common that share memory; `is_gram`: the unknowns are in the span."""

    fits: int
    classes: int
    lanes: int
    columns: int
    is_gram: bool


class BatchedSolver:
    """Solves batches with one C and tolerance; batches of a size share memory and recordings."""

    def __init__(self, c: float, tolerance: float = CLOSE) -> None:
        self.c = c
        self.tolerance = tolerance
        self.newtons: dict[BatchSize, _Newton] = {}

    def solve(
        self, rows: Tensor, label: Tensor, classes: int, start: Tensor
    ) -> tuple[Tensor, Tensor, float]:
        """Train on standardised rows (fits, rows, dimensions), one label for each row.

        Return the weights (fits, classes, dimensions), the positions (fits, classes, columns) with
        the bias as the last column, and how far J may be above its optimum at most. The fits start
        from positions as an earlier call returned them.
        """
        fits, count, dimensions = rows.shape
        is_gram = count <= dimensions
        columns = padded(count if is_gram else dimensions)
        lanes = columns if is_gram else padded(count)
        size = BatchSize(fits, classes, lanes, columns, is_gram)
        if size not in self.newtons:
            self.newtons[size] = _Newton(size, self.c, self.tolerance, rows)
        newton = self.newtons[size]
        newton.load(rows, label, start)
        gap = newton.solve()
        position = newton.position.vector
        weights = position[..., :dimensions]
        if is_gram:
            weights = torch.bmm(position[..., :count], rows)
        return weights, position, gap


def padded(columns: int) -> int:
    """Return a number of columns with room for the bias.

    >>> padded(63), padded(64)
    (64, 128)
    """
    return (columns // COLUMN_STEP + 1) * COLUMN_STEP


class Point(NamedTuple):
    """Vectors (fits, classes, columns), and their images (fits, classes, lanes).

    The image of a vector is what its logits are computed from. In the span it is the vector times
    the Gram matrix, which has a 1 for the bias, and the inner product of two vectors is that of one
    with the image of the other. Otherwise the image is the logits.
    """

    vector: Tensor
    image: Tensor

    def copy_(self, vector: Tensor, image: Tensor) -> None:
        """Take the place of another point."""
        self.vector.copy_(vector)
        self.image.copy_(image)

    def add_(self, share: Tensor, other: "Point") -> None:
        """Add a share of another point, one for each fit."""
        self.vector.addcmul_(share[:, None, None], other.vector)
        self.image.addcmul_(share[:, None, None], other.image)


class _Newton:
    """Newton's method for batches of one size: the positions of all fits, and which go on.

    Each fit stops by its own gap: its further steps are 0 until the last one stops. Steps consist
    of many small operations on tensors that stay in place, so that a GPU can record them once for
    all batches of a size, and replay them without waiting for Python. `matrix` (fits, columns,
    lanes) is the Gram matrix, or the transpose of `rows`, whose last column is 1.
    """

    def __init__(
        self, size: BatchSize, c: float, tolerance: float, like: Tensor
    ) -> None:
        fits, classes, lanes, columns, self.is_gram = size
        self.c = c
        self.tolerance = tolerance
        self.graphs: dict[str, Any] = {}
        self.is_recordable = like.device.type == "cuda"
        zeros = like.new_zeros
        self.truth = zeros((classes, lanes))
        self.valid = zeros(lanes)
        self.rows = zeros((fits, lanes, columns))
        self.matrix = self.rows if self.is_gram else self.rows.transpose(1, 2)
        self.curvature = zeros((fits, classes, 1 if self.is_gram else columns))
        points = []
        for _ in range(5):
            vector = zeros((fits, classes, columns))
            points.append(Point(vector, zeros((fits, classes, lanes))))
        # `trial` is where a share of the step leads.
        self.position, self.trial, self.descent, self.search, self.step = points
        self.p = torch.zeros_like(self.position.image)
        self.trial_p = torch.zeros_like(self.p)
        of_fits = [zeros(fits) for _ in range(8)]
        self.value, self.trial_value, self.gain, self.gap, *of_step = of_fits
        self.share, self.square, self.goal, self.decrease = of_step
        self.is_active = zeros(fits, dtype=torch.bool)
        self.is_searching = torch.zeros_like(self.is_active)
        self.accepted = torch.zeros_like(self.is_active)

    def load(self, rows: Tensor, label: Tensor, start: Tensor) -> None:
        """Take the rows, labels and first positions of a batch."""
        count, dimensions = rows.shape[1:]
        self.truth.zero_()
        self.truth[label, torch.arange(count, device=rows.device)] = 1.0
        self.valid.zero_()
        self.valid[:count] = 1.0
        self.rows.zero_()
        if self.is_gram:
            gram = self.rows[:, :count, :count]
            gram.copy_(torch.bmm(rows, rows.transpose(1, 2)))
            diagonal = gram.diagonal(dim1=1, dim2=2)
            diagonal += 1e-12 * diagonal.sum(1, keepdim=True)  # against rounding
            self.rows[:, -1, -1] = 1.0
        else:
            self.rows[:, :count, :dimensions] = rows
            self.rows[:, :count, -1] = 1.0
        self.position.vector.copy_(start)

    def solve(self) -> float:
        """Move all fits to their optimum; return how far J may be above it at most."""
        self._run(self._begin)
        for _ in range(MAX_STEPS):
            self._run(self._measure)
            if not bool(self.is_active.any()):
                break
            for _ in range(MAX_INNER_STEPS // STEPS_PER_CHECK):
                self._run(self._iterate)
                if not bool(self.is_searching.any()):
                    break
            self.share.copy_(self.is_active)
            self._run(self._try_step)
            while not bool(self.accepted.all()):
                self.share *= torch.where(self.accepted, 1.0, 0.5)
                self.share *= self.share > MIN_SHARE
                self._run(self._try_step)
            self._run(self._accept)
        return float(self.gap.max())

    def _run(self, work: Callable[[], None]) -> None:
        """Run a piece of work at first; let a GPU record it the second time, and replay it."""
        name = work.__name__
        if not self.is_recordable or name not in self.graphs:
            self.graphs[name] = None
            work()
            return
        if self.graphs[name] is None:
            self.graphs[name] = record(work)
        self.graphs[name].replay()

    def _begin(self) -> None:
        """Start at the positions, or at zeros where these are better."""
        vector = self.position.vector
        image = torch.bmm(vector, self.matrix)
        value, _ = self._value_at(Point(vector, image))
        origin = Point(torch.zeros_like(vector), torch.zeros_like(image))
        at_origin, _ = self._value_at(origin)
        is_better = (value <= at_origin)[:, None, None]
        self.position.copy_(
            torch.where(is_better, vector, 0.0), torch.where(is_better, image, 0.0)
        )
        value, p = self._value_at(self.position)
        self.value.copy_(value)
        self.p.copy_(p)
        self.gap.fill_(torch.inf)
        self.gain.fill_(torch.inf)
        self.is_active.fill_(True)

    def _measure(self) -> None:
        """Find descent and gap of every fit, and whether it goes on; prepare its next step.

        A fit stops near its optimum, or where only rounding still moves it.
        """
        self._fill_curvature()
        residual = self.c * (self.truth - self.p)
        self.descent.vector.copy_(self._add_rows(residual, self.position, -1.0))
        scaled = self._scale()
        gap = self._bound_gap()
        has_no_gain = self.gain <= 1e-15 * self.value.abs()
        only_rounding = has_no_gain & (gap > 0.5 * self.gap)
        self.gap.copy_(torch.where(self.is_active, gap, self.gap))
        self.is_active &= (gap > self.tolerance) & ~only_rounding
        self.search.copy_(*scaled)
        self.square.copy_(dot(self.descent.vector, self._partner(scaled)))
        self.goal.copy_(self.square * self.square.clamp(max=0.1))
        self.step.vector.zero_()
        self.step.image.zero_()
        self.decrease.zero_()
        self.is_searching.copy_(self.is_active)

    def _iterate(self) -> None:
        """Take a few steps of conjugate gradients, without asking which fits have stopped.

        Each goes along the search directions to the minimum of the quadratic model there, and finds
        the next directions; the descent is what is left of it.
        """
        search = self.search
        descent = self.descent.vector
        for _ in range(STEPS_PER_CHECK):
            logits = self._logits(search)
            mean = (self.p * logits).sum(1, keepdim=True)
            changes = self.c * self.p * (logits - mean)
            hessian = self._add_rows(changes, search, 1.0)
            curve = dot(hessian, self._partner(search))
            self.is_searching &= (curve > 0.0) & (self.square > 0.0)
            alpha = torch.where(self.is_searching, self.square / curve, 0.0)
            self.decrease.addcmul_(alpha, self.square)
            self.step.add_(alpha, search)
            descent.addcmul_(alpha[:, None, None], hessian, value=-1.0)
            scaled = self._scale()
            square = dot(descent, self._partner(scaled))
            is_large = (square > self.goal) & (self._bound_gap() > 0.2 * self.tolerance)
            self.is_searching &= is_large
            beta = torch.where(self.is_searching, square / self.square, 0.0)
            self.square.copy_(square)
            search.vector.mul_(beta[:, None, None]).add_(scaled.vector)
            search.image.mul_(beta[:, None, None]).add_(scaled.image)

    def _try_step(self) -> None:
        """Go a share of the step; find where the value is low enough, or the share 0."""
        self.trial.copy_(*self.position)
        self.trial.add_(self.share, self.step)
        value, p = self._value_at(self.trial)
        self.trial_value.copy_(value)
        self.trial_p.copy_(p)
        decrease = 1e-4 * self.share * self.decrease
        rounding = 1e-13 * self.value.abs()
        is_low_enough = value <= self.value - decrease + rounding
        self.accepted.copy_(is_low_enough | (self.share == 0.0))

    def _accept(self) -> None:
        """Go to the positions that were tried."""
        self.gain.copy_(self.value - self.trial_value)
        self.position.copy_(*self.trial)
        self.p.copy_(self.trial_p)
        self.value.copy_(self.trial_value)

    def _logits(self, point: Point) -> Tensor:
        """Return the logits (fits, classes, lanes)."""
        image = point.image
        return image + image[..., -1:] if self.is_gram else image

    def _partner(self, point: Point) -> Tensor:
        """Return what a vector is multiplied with in an inner product."""
        return point.image if self.is_gram else point.vector

    def _add_rows(self, factors: Tensor, point: Point, scale: float) -> Tensor:
        """Return Σ_i factor of i · row i, plus scale · the weights of a point."""
        sums = factors if self.is_gram else torch.bmm(factors, self.rows)
        total = torch.add(sums, point.vector, alpha=scale)
        total[..., -1] = factors.sum(-1)
        return total

    def _scale(self) -> Point:
        """Return the descent, preconditioned outside the span; its image is that of the descent."""
        scaled = self.descent.vector
        if not self.is_gram:
            scaled = scaled / self.curvature
        torch.bmm(scaled, self.matrix, out=self.descent.image)
        return Point(scaled, self.descent.image)

    def _value_at(self, point: Point) -> tuple[Tensor, Tensor]:
        """Return C · J, and the probabilities; 0 where there is no row."""
        logits = self._logits(point)
        largest = logits.amax(1, keepdim=True)
        powers = torch.exp(logits - largest)
        total = powers.sum(1, keepdim=True)
        log_total = (largest + torch.log(total))[:, 0]
        true_logit = (self.truth * logits).sum(1)
        loss = (self.valid * (log_total - true_logit)).sum(-1)
        p = powers / total * self.valid
        return self.c * loss + 0.5 * self._square_of_weights(point), p

    def _square_of_weights(self, point: Point) -> Tensor:
        """Return the inner product of a vector with itself, without the bias."""
        return dot(point.vector[..., :-1], self._partner(point)[..., :-1])

    def _bound_gap(self) -> Tensor:
        """Return how far J may be above its optimum, as `solver.bound_gap`."""
        bias = self.descent.vector[..., -1] ** 2 / self.curvature[..., -1]
        square = self._square_of_weights(self.descent)
        return 0.5 * (square + bias.sum(1)) / self.c

    def _fill_curvature(self) -> None:
        """Fill in the second derivatives by each unknown alone; by the bias alone in the span."""
        factors = self.c * self.p * (1.0 - self.p)
        if self.is_gram:
            self.curvature.copy_(factors.sum(-1, keepdim=True))
        else:
            self.curvature.copy_(torch.bmm(factors, self.rows * self.rows))
            self.curvature[..., :-1] += 1.0
        self.curvature[..., -1].clamp_(min=TINY)


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner products of vectors (fits, classes, columns)."""
    return (x * y).sum((1, 2))


def record(work: Callable[[], None]) -> Any:
    """Return a CUDA graph of some work; recording does not run it.

    The GPU takes no other orders while it records, and Python's collector could give one.
    """
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    collects = gc.isenabled()
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin()
            work()
            graph.capture_end()
    finally:
        if collects:
            gc.enable()
    torch.cuda.current_stream().wait_stream(stream)
    return graph
