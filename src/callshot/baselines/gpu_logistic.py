"""Draws of a split → logistic regression at every k on a GPU, many draws at a time.

All draws of a split have as many rows of each class, so the fits of one k are one batch. What a fit
sees, where it starts and when it stops are those of `logistic_per_k` on the CPU; sums have another
order, so weights differ in their last digits.
"""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import torch

from callshot.baselines.kernels.batched_objective import in_span, padded
from callshot.baselines.kernels.batched_solver import BatchedSolver
from callshot.baselines.logistic import CLOSE, check_optimum, score_whole_support
from callshot.baselines.scoring import Categories
from callshot.fewshot.engine import Engine, blocks
from callshot.fewshot.episodes import Split
from callshot.fewshot.gpu.draws import Supports
from callshot.fewshot.gpu.sweep import (
    GpuMetricSums,
    Scorer,
    ShotPlan,
    SupportDrawer,
    sweep_per_query,
    sweep_shared,
    sweep_total,
    upload,
)
from callshot.fewshot.metrics import MetricSums, WeightedMetricSums
from callshot.fewshot.sweep import Reweighting, reweight
from callshot.records import IntArray

Tensor = Any


def sweep_on_gpu(
    engine: Engine,
    splits: Sequence[Split],
    shots: IntArray,
    c: float,
    spread: str,
    categories: Categories,
) -> MetricSums:
    """Run every fold of a spread, with fits and metrics on the engine's GPU."""
    # Triton's interpreter, which tests use, is slow.
    is_gpu = engine.on_gpu.gpu.torch_device.type == "cuda"
    with BatchedSolver(c, CLOSE, fused=is_gpu) as solver:
        make_scorer = partial(GpuTrainer, solver=solver)
        if spread == "total":
            return _sweep_weighted(engine, splits, shots, categories, make_scorer)
        return _sweep_unweighted(engine, splits, shots, spread, categories, make_scorer)


def _sweep_unweighted(
    engine: Engine,
    splits: Sequence[Split],
    shots: IntArray,
    spread: str,
    categories: Categories,
    make_scorer: Callable[..., Scorer],
) -> GpuMetricSums:
    """Run every fold of the spread `shared` or `per-query`."""
    size = (len(shots), engine.protocol.samples(spread), engine.episodes.classes)
    sums = GpuMetricSums(*size, categories, engine.on_gpu.gpu)
    sweep_fold = sweep_shared if spread == "shared" else sweep_per_query
    for split in splits:
        sweep_fold(engine, split, shots, sums, make_scorer)
        sums.close_fold(split)
    return sums


def _sweep_weighted(
    engine: Engine,
    splits: Sequence[Split],
    shots: IntArray,
    categories: Categories,
    make_scorer: Callable[..., Scorer],
) -> WeightedMetricSums:
    """Run every fold of the spread `total`."""
    samples = engine.protocol.total_samples
    sums = WeightedMetricSums(len(shots), samples, engine.episodes.classes, categories)
    reweighting = reweight(engine.episodes, engine.protocol)
    for split in splits:
        sums.add_weights(split, reweighting.weights(split.rows))
        sweep_total(engine, split, shots, reweighting, sums, make_scorer)
        sums.close_fold(split)
    return sums


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
        reweighting: Reweighting | None = None,
        *,
        solver: BatchedSolver,
    ) -> None:
        distinct = engine.protocol.distinct or reweighting is not None
        plan = NestedPlan(shots, split.pool_sizes, distinct)
        self.drawer = SupportDrawer(engine, split, plan, reweighting)
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
                if in_span(count, dimensions):
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
