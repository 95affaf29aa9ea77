"""Draws of a split → logistic regression at every k on a GPU, many draws at a time.

All draws of a split have as many rows of each class, so the fits of one k are one batch. What a fit
sees, where it starts and when it stops are those of `logistic_per_k` on the CPU; `solve` takes the
steps of `solver.solve` for a whole batch. Sums have another order, so weights differ in their last
digits.
"""

from collections.abc import Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.functional import one_hot, pad

from callshot.baselines.logistic import CLOSE, check_optimum, score_whole_support
from callshot.baselines.solver import MAX_INNER_STEPS, MAX_STEPS, TINY
from callshot.fewshot.engine import Engine, blocks
from callshot.fewshot.episodes import Split
from callshot.fewshot.gpu.draws import SupportDrawer, Supports, upload
from callshot.fewshot.sweep import Spread
from callshot.records import IntArray

# Of conjugate gradients; asking the GPU whether all fits stopped takes time.
STEPS_PER_CHECK = 4
MIN_SHARE = 1e-9  # of a Newton step

Tensor = Any


class GpuTrainer(SupportDrawer):
    """Fills a_n of the queries of one split by fits on a GPU, as a `SplitScorer` does."""

    def __init__(
        self, engine: Engine, split: Split, shots: IntArray, spread: Spread, *, c: float
    ) -> None:
        super().__init__(engine, split, shots, spread, nested=True)
        self.c = c
        # The rows of a draw: one of each class in turn.
        turn, label = np.nonzero(np.arange(self.steps.max())[:, None] < self.steps)
        self.turn = upload(turn, self.gpu)
        self.label = upload(label, self.gpu)
        self.sizes = np.searchsorted(turn, shots)
        self.whole = None
        whole = score_whole_support(engine, split, shots, c)
        if whole is not None:
            self.whole = upload(whole, self.gpu)
            self.sizes = self.sizes[: np.searchsorted(self.sizes, len(split.pool))]

        # Of rows, matrices and vectors of one fit.
        count = int(self.sizes[-1]) if len(self.sizes) else 1
        dimensions = engine.episodes.vectors.shape[1]
        unknowns = min(count, dimensions)
        numbers = 4 * count * dimensions + 4 * unknowns**2
        numbers += 32 * len(self.steps) * (unknowns + count)
        self.fits_at_a_time = int(self.gpu.score_bytes // (8 * numbers))

    @cached_property
    def vectors(self) -> Tensor:
        """The vectors of all rows."""
        distinct, number = self.on_gpu.distinct
        return distinct[number]

    def shared(self, span: slice) -> Tensor:
        """Return a_n (shots, classes, queries · draws) by some draws that all queries share."""
        queries, place = self.engine.episodes.distinct_at(self.split.rows)
        columns = upload(queries, self.gpu).T
        where = upload(place, self.gpu)
        rows = self._rows(self.shared_supports(span))
        out = self._new_table(len(rows))
        for draws in blocks(len(rows), self.fits_at_a_time):
            for s, (weight, bias) in enumerate(self.fit_nested(rows[draws])):
                logits = weight @ columns + bias
                out[s, :, :, draws] = logits[..., where].permute(1, 2, 0)
        return out.flatten(2)

    def per_query(self, draws: int) -> Tensor:
        """Return a_n (shots, classes, queries · draws) by each query's own draws."""
        queries = self.vectors[upload(self.split.rows, self.gpu)]
        out = self._new_table(draws)
        for span in blocks(len(queries), self.fits_at_a_time // draws):
            rows = self._rows(self.own_supports(span, draws))
            column = queries[span].repeat_interleave(draws, 0)[..., None]
            for s, (weight, bias) in enumerate(self.fit_nested(rows)):
                logits = torch.bmm(weight, column) + bias
                by_draw = logits.reshape(-1, draws, len(self.steps))
                out[s, :, span] = by_draw.permute(2, 0, 1)
        return out.flatten(2)

    def _new_table(self, draws: int) -> Tensor:
        """Return room for a_n, filled where a draw is the whole support side."""
        size = (len(self.shots), len(self.steps), len(self.split.rows), draws)
        out = self.vectors.new_empty(size)
        if self.whole is not None:
            out[len(self.sizes) :] = self.whole[..., None]
        return out

    def _rows(self, supports: Supports) -> Tensor:
        """Return the rows of every draw, (draws, rows); each support is the first rows."""
        start = self.on_gpu.class_start[self.label]
        return (supports.chosen[self.label, self.turn] + start[:, None]).T

    def fit_nested(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Train on draws at every k, each fit from the one before.

        Yield the weights (draws, classes, dimensions) and the bias (draws, classes, 1) for vectors
        that are not standardised.
        """
        dimensions = self.vectors.shape[1]
        weight = self.vectors.new_zeros((len(rows), len(self.steps), dimensions))
        bias = weight[..., :1]
        position = bias
        before = 0
        for count in self.sizes.tolist():
            if count > before:
                table, mean, deviation = standardise(self.vectors[rows[:, :count]])
                if count <= dimensions:  # the new rows begin with zeros
                    known = pad(position[..., :-1], (0, count - before))
                    start = torch.cat([known, position[..., -1:]], 2)
                else:
                    shifted = bias + (weight * mean).sum(-1, keepdim=True)
                    start = torch.cat([weight * deviation, shifted], 2)
                label = self.label[:count]
                position, gap = solve(table, label, start, self.c, CLOSE)
                check_optimum(gap, self.c, CLOSE)
                weight = position[..., :-1]
                if count <= dimensions:
                    weight = torch.bmm(weight, table)
                weight = weight / deviation
                bias = position[..., -1:] - (weight * mean).sum(-1, keepdim=True)
                before = count
            yield weight, bias


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


def solve(
    rows: Tensor, label: Tensor, start: Tensor, c: float, tolerance: float
) -> tuple[Tensor, float]:
    """Train on standardised rows (fits, rows, dimensions), one label for each row.

    Return the positions (fits, classes, unknowns and bias), and how far J may be above its optimum
    at most. Each fit stops by its own gap: its further steps are 0 until the last one stops.

    A point is a vector and, in further columns, its image, from which its logits are computed. In
    the span of the rows the image is the vector times the Gram matrix, which has a 1 for the bias,
    and the inner product of two vectors is that of one with the image of the other. Otherwise the
    image is the logits.
    """
    count, dimensions = rows.shape[1:]
    classes, unknowns = start.shape[1:]
    is_gram = count <= dimensions
    truth = one_hot(label, classes).T.to(rows.dtype)
    valid = rows.new_ones(count)
    if is_gram:
        gram = torch.bmm(rows, rows.mT)
        diagonal = gram.diagonal(dim1=1, dim2=2)
        diagonal += 1e-12 * diagonal.sum(1, keepdim=True)  # against rounding
        table = pad(gram, (0, 1, 0, 1))
        table[:, -1, -1] = 1.0
        columns = table
        truth = pad(truth, (0, 1))
        valid = pad(valid, (0, 1))
    else:
        table = pad(rows, (0, 1), value=1.0)
        columns = table.mT
        squares = table * table

    def to_point(vector: Tensor) -> Tensor:
        return torch.cat([vector, torch.bmm(vector, columns)], 2)

    def partner(point: Tensor) -> Tensor:
        """Return what a vector is multiplied with in an inner product."""
        return point[..., unknowns:] if is_gram else point[..., :unknowns]

    def to_logits(point: Tensor) -> Tensor:
        image = point[..., unknowns:]
        return image + image[..., -1:] if is_gram else image

    def evaluate(point: Tensor) -> tuple[Tensor, Tensor]:
        """Return C · J, and the probabilities; 0 where there is no row."""
        logits = to_logits(point)
        log_total = torch.logsumexp(logits, 1)
        loss = (valid * (log_total - (truth * logits).sum(1))).sum(-1)
        square = dot(point[..., : unknowns - 1], partner(point)[..., :-1])
        return c * loss + 0.5 * square, logits.softmax(1) * valid

    def add_rows(factors: Tensor, point: Tensor, scale: float) -> Tensor:
        """Return Σ_i factor of i · row i, plus scale · the weights of a point."""
        sums = factors if is_gram else torch.bmm(factors, table)
        total = torch.add(sums, point[..., :unknowns], alpha=scale)
        torch.sum(factors, -1, out=total[..., -1])
        return total

    def bound_gap(descent: Tensor, scaled: Tensor) -> Tensor:
        """Return how far J may be above its optimum, as `solver.bound_gap`."""
        bias = descent[..., -1] ** 2 / curvature[..., -1]
        other = partner(scaled) if is_gram else descent
        square = dot(descent[..., :-1], other[..., :-1])
        return (square + bias.sum(1)) * (0.5 / c)

    # Start at zeros where these are better.
    position = to_point(start)
    is_better = evaluate(position)[0] <= c * count * np.log(classes)
    position = torch.where(is_better[:, None, None], position, 0.0)
    value, p = evaluate(position)
    gap = torch.full_like(value, torch.inf)
    gain = gap
    is_active = torch.ones_like(gap, dtype=torch.bool)
    for _ in range(MAX_STEPS):
        # The second derivatives by each unknown alone; by the bias alone in the span.
        factors = c * p * (1.0 - p)
        if is_gram:
            curvature = factors.sum(-1, keepdim=True)
        else:
            curvature = torch.bmm(factors, squares)
            curvature[..., :-1] += 1.0
        curvature[..., -1].clamp_(min=TINY)

        descent = add_rows(c * (truth - p), position, -1.0)
        scaled = to_point(descent if is_gram else descent / curvature)
        new_gap = bound_gap(descent, scaled)
        # A fit stops near its optimum, or where only rounding still moves it.
        only_rounding = (gain <= 1e-15 * value.abs()) & (new_gap > 0.5 * gap)
        gap = torch.where(is_active, new_gap, gap)
        is_active = is_active & (new_gap > tolerance) & ~only_rounding
        if not bool(is_active.any()):
            break

        # Conjugate gradients: the descent becomes what the step leaves of it.
        search = scaled
        size = dot(descent, partner(scaled))
        goal = size * size.clamp(max=0.1)
        step = torch.zeros_like(position)
        decrease = torch.zeros_like(value)
        is_searching = is_active
        scaled_p = c * p
        for inner_step in range(1, MAX_INNER_STEPS + 1):
            logits = to_logits(search)
            mean = (p * logits).sum(1, keepdim=True)
            hessian = add_rows(scaled_p * (logits - mean), search, 1.0)
            curve = dot(hessian, partner(search))
            is_searching = is_searching & (curve > 0.0) & (size > 0.0)
            alpha = torch.where(is_searching, size / curve, 0.0)
            decrease = torch.addcmul(decrease, alpha, size)
            alpha = alpha[:, None, None]
            step = torch.addcmul(step, alpha, search)
            descent = torch.addcmul(descent, alpha, hessian, value=-1.0)
            scaled = to_point(descent if is_gram else descent / curvature)
            previous = size
            size = dot(descent, partner(scaled))
            is_large = bound_gap(descent, scaled) > 0.2 * tolerance
            is_searching = is_searching & (size > goal) & is_large
            if inner_step % STEPS_PER_CHECK == 0 and not bool(is_searching.any()):
                break
            beta = torch.where(is_searching, size / previous, 0.0)[:, None, None]
            search = torch.addcmul(scaled, beta, search)

        # The whole step, or half of it, and so on, until C · J is lower.
        share = is_active.to(rows.dtype)
        while True:
            trial = torch.addcmul(position, share[:, None, None], step)
            trial_value, trial_p = evaluate(trial)
            limit = value - 1e-4 * share * decrease + 1e-13 * value.abs()
            is_accepted = (trial_value <= limit) | (share == 0.0)
            if bool(is_accepted.all()):
                break
            share = torch.where(is_accepted, share, 0.5 * share)
            share = share * (share > MIN_SHARE)
        gain = value - trial_value
        position, value, p = trial, trial_value, trial_p
    return position[..., :unknowns], float(gap.max())


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner products of vectors (fits, classes, columns)."""
    return (x * y).sum((1, 2))
