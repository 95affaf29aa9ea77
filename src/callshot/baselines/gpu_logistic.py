"""Draws of a split → logistic regression at every k on a GPU, many draws at a time.

All draws of a split have the same number of rows per class, so the fits of one k are one batch. A
fit has the same rows, start and stopping rule as in `logistic` on the CPU; `Newton` takes the steps
of `solver.solve` for a whole batch. Sums have another order, so weights differ in their last
digits.

Vectors in the span of the rows have a column for each row, then zeros up to a multiple of 64, so
that batches of several k have one size, and the bias as the last column.
"""

import gc
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch.nn.functional import one_hot, pad

from callshot.baselines.logistic import CLOSE, check_optimum, score_whole_support
from callshot.baselines.solver import MAX_INNER_STEPS, MAX_STEPS, TINY
from callshot.fewshot.episodes import Engine, Split, blocks
from callshot.fewshot.gpu.draws import SupportDrawer, Supports, upload
from callshot.fewshot.spreads import Spread
from callshot.records import IntArray

COLUMN_STEP = 64
# Of conjugate gradients; asking the GPU whether all fits stopped takes time.
STEPS_PER_CHECK = 4
MIN_SHARE = 1e-9  # of a Newton step
NUMBER_BYTES = 8  # of float64

Tensor = Any


class GpuTrainer(SupportDrawer):
    """Fills in the logits for queries of a split by fits on a GPU, as a `SplitScorer` does.

    label, turn     of each row of a draw: its class, and its number within the class
    sizes           rows of a draw at each k; without the k that take the whole support side
    whole           logits by the whole support side, (classes, queries); None if no k needs it
    fits_at_a_time  as many as the memory of the GPU holds
    """

    def __init__(
        self,
        engine: Engine,
        split: Split,
        shots: IntArray,
        spread: Spread,
        *,
        solver: "BatchedSolver",
    ) -> None:
        """Plan the rows of a draw and the batches of fits for one split at some shots."""
        super().__init__(engine, split, shots, spread, nested=True)
        self.solver = solver
        # A draw takes one row of each class in turn, as `ridge.support_rows` does; steps[n] is the
        # number of rows of class n.
        turns = np.arange(self.steps.max())
        turn, label = np.nonzero(turns[:, None] < self.steps)
        self.turn = upload(turn, self.gpu)
        self.label = upload(label, self.gpu)
        self.sizes = np.searchsorted(turn, shots)
        self.whole = None
        whole = score_whole_support(engine, split, shots, solver.c)
        if whole is not None:
            self.whole = upload(whole, self.gpu)
            smaller = np.searchsorted(self.sizes, len(split.pool))  # number of sizes
            self.sizes = self.sizes[:smaller]

        # Numbers in the rows, matrices and vectors of one fit, and of a few copies: they limit the
        # fits of a batch.
        count = int(self.sizes[-1]) if len(self.sizes) else 1
        dimensions = engine.episodes.vectors.shape[1]
        unknowns = padded(min(count, dimensions))
        numbers = 4 * count * dimensions + 4 * unknowns**2
        numbers += 32 * len(self.steps) * (unknowns + count)
        self.fits_at_a_time = int(self.gpu.score_bytes // (NUMBER_BYTES * numbers))

    @cached_property
    def vectors(self) -> Tensor:
        """The vectors of all rows."""
        distinct, number = self.on_gpu.distinct
        return distinct[number]

    def shared(self, span: slice) -> Tensor:
        """Return logits (shots, classes, queries · draws) by draws that all queries share.

        `span` are the numbers of the draws.
        """
        # Equal queries are multiplied once: `place` is the number of each among the distinct ones.
        queries, place = self.engine.episodes.distinct_at(self.split.rows)
        columns = upload(queries, self.gpu).T
        where = upload(place, self.gpu)
        rows = self._rows(self.shared_supports(span))
        out = self._new_table(len(rows))
        for draws in blocks(len(rows), self.fits_at_a_time):
            for shot, (weight, bias) in enumerate(self.fit_nested(rows[draws])):
                logits = weight @ columns + bias  # (draws, classes, distinct queries)
                of_queries = logits[..., where]
                out[shot, :, :, draws] = of_queries.permute(1, 2, 0)
        return out.flatten(2)

    def per_query(self, draws: int) -> Tensor:
        """Return the logits (shots, classes, queries · draws) by each query's own draws.

        Each query has `draws` of them.
        """
        queries = self.vectors[upload(self.split.rows, self.gpu)]
        out = self._new_table(draws)
        for span in blocks(len(queries), self.fits_at_a_time // draws):
            rows = self._rows(self.own_supports(span, draws))
            # A column vector for each query and draw.
            column = queries[span].repeat_interleave(draws, 0)[..., None]
            for shot, (weight, bias) in enumerate(self.fit_nested(rows)):
                # (queries · draws, classes, 1)
                logits = torch.bmm(weight, column) + bias
                by_draw = logits.reshape(-1, draws, len(self.steps))
                out[shot, :, span] = by_draw.permute(2, 0, 1)
        return out.flatten(2)

    def _new_table(self, draws: int) -> Tensor:
        """Return a table for logits (shots, classes, queries, draws), not initialised.

        Only at the k that take all exemplars, its last rows, the logits are filled in.
        """
        queries = len(self.split.rows)
        size = (len(self.shots), len(self.steps), queries, draws)
        out = self.vectors.new_empty(size)
        if self.whole is not None:
            out[len(self.sizes) :] = self.whole[..., None]
        return out

    def _rows(self, supports: Supports) -> Tensor:
        """Return the rows of the episodes that each draw trains on, (draws, rows of a draw).

        They are the exemplars of its supports, one of each class in turn.
        """
        start = self.on_gpu.class_start[self.label]
        chosen = supports.chosen[self.label, self.turn]  # by number inside the class
        return (chosen + start[:, None]).T

    def fit_nested(self, rows: Tensor) -> Iterator[tuple[Tensor, Tensor]]:
        """Train on draws at every k; each fit starts from the one before.

        `rows` (draws, rows) has the rows of smaller k first. Yield for each k the weights (draws,
        classes, dimensions) and the bias (draws, classes, 1) for vectors that are not standardised.
        """
        dimensions = self.vectors.shape[1]
        weight = self.vectors.new_zeros((len(rows), len(self.steps), dimensions))
        bias = weight[..., :1]
        # Of the fit before: unknowns for standardised rows, none yet, and the bias in the last
        # column.
        position = bias
        previous_count = 0  # rows at the k before
        for count in self.sizes.tolist():
            if count > previous_count:  # else no class had another exemplar
                vectors = self.vectors[rows[:, :count]]
                table, mean, deviation = standardise(vectors)
                in_span = count <= dimensions  # unknowns are coefficients of the rows
                if in_span:  # those of new rows begin with zeros
                    new_columns = padded(count) - position.shape[2]
                    known = pad(position[..., :-1], (0, new_columns))
                    start = torch.cat([known, position[..., -1:]], 2)
                else:
                    logits_of_mean = (weight * mean).sum(-1, keepdim=True)
                    start = torch.cat([weight * deviation, bias + logits_of_mean], 2)
                label = self.label[:count]
                position, gap = self.solver.solve(table, label, start)
                check_optimum(gap, self.solver.c, self.solver.tolerance)
                # From standardised rows back to vectors.
                weight = position[..., :-1]
                if in_span:
                    weight = torch.bmm(weight[..., :count], table)
                weight = weight / deviation
                logits_of_mean = (weight * mean).sum(-1, keepdim=True)
                bias = position[..., -1:] - logits_of_mean
                previous_count = count
            yield weight, bias


def standardise(vectors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return standardised rows, mean and deviation of every draw, as `logistic.standardise` does.

    `vectors` (draws, rows, dimensions) become the rows, in place; mean and deviation are (draws, 1,
    dimensions).
    """
    count, dimensions = vectors.shape[1:]
    first = vectors[:, :1].clone()
    vectors -= first
    mean = vectors.mean(1, keepdim=True)
    vectors -= mean
    deviation = torch.linalg.vector_norm(vectors, dim=1, keepdim=True) / count**0.5
    # `kthvalue` counts from 1.
    median = deviation.kthvalue(dimensions // 2 + 1, dim=2, keepdim=True).values
    deviation = torch.maximum(deviation, median / count**0.5)
    deviation = torch.where(deviation == 0.0, 1.0, deviation)
    vectors *= 1.0 / deviation
    return vectors, first + mean, deviation


def padded(columns: int) -> int:
    """Return the next multiple of 64 columns that has room for these and the bias.

    >>> padded(63), padded(64)
    (64, 128)
    """
    return (columns // COLUMN_STEP + 1) * COLUMN_STEP


class BatchedSolver:
    """Solves batches of fits with one C and tolerance; batches of one size share their memory."""

    def __init__(self, c: float, tolerance: float = CLOSE) -> None:
        self.c = c
        self.tolerance = tolerance
        self.newtons: dict[Any, Newton] = {}

    def solve(self, rows: Tensor, label: Tensor, start: Tensor) -> tuple[Tensor, float]:
        """Train on standardised rows (fits, rows, dimensions); all fits have the same labels.

        `start` is (fits, classes, unknowns and bias). Return the positions of the optima, of the
        same shape, and how far the objective may be above its optimum at most.
        """
        lanes = padded(len(label))  # columns for the rows of a fit
        size = (lanes, start.shape)
        if size not in self.newtons:  # memory is kept for the next batch of this size
            self.newtons[size] = Newton(*size, self.c, self.tolerance, rows)
        newton = self.newtons[size]
        newton.load(rows, label, start)
        gap = newton.solve()
        # Without the image, which follows in further columns: see `Newton`.
        return newton.position[..., : start.shape[2]], gap


class Newton:
    """Newton's method for batches of one size: the positions of all fits, and which go on.

    `lanes` is the number of columns for the rows of a fit, `size` (fits, classes, unknowns) that of
    the positions; memory is allocated as for the tensor `like`.

    Each fit stops by its own gap: its further steps are 0 until the last one stops. Steps consist
    of many small operations on tensors that stay in place, so that a GPU can record them once for
    all batches of a size, and replay them without waiting for Python.

    A point is a vector and, in further columns, its image, from which its logits are computed. In
    the span of the rows the image is the vector times the Gram matrix, which has a 1 for the bias;
    a vector times the image of another is the inner product of their weights. Otherwise the image
    is the logits.

    truth, valid      (classes, lanes) and (lanes): a 1 at the label of a row; where there is a row
    rows, columns     of each fit: the Gram matrix, or the standardised rows and their transpose
    position, trial   points: where a fit is, and where a share of the step leads
    p, value          probabilities and C · objective at the position; trial_…: at the trial
    descent, scaled   the negative gradient of C · objective; the same as a point, preconditioned
    curvature         second derivatives by each unknown alone; in the span, by the bias alone
    gap               how far the objective may be above its optimum
    step, decrease    the Newton step so far, and by how much it should lower C · objective
    search, size      direction of conjugate gradients, and descent · scaled
    goal              the size at which conjugate gradients stop
    share             of the step that is tried
    is_active         whether a fit goes on; is_searching: with conjugate gradients;
                      is_accepted: the trial is low enough
    graphs            what the GPU recorded, by the name of the method
    """

    def __init__(
        self,
        lanes: int,
        size: tuple[int, int, int],
        c: float,
        tolerance: float,
        like: Tensor,
    ) -> None:
        """Allocate all tensors; as many unknowns as lanes are coefficients of the rows."""
        fits, classes, unknowns = size
        is_gram = unknowns == lanes
        self.unknowns = unknowns
        self.is_gram = is_gram
        self.c = c
        self.tolerance = tolerance
        self.graphs: dict[str, Any] = {}
        zeros = like.new_zeros
        self.truth = zeros((classes, lanes))
        self.valid = zeros(lanes)
        self.rows = zeros((fits, lanes, unknowns))
        self.columns = self.rows if is_gram else self.rows.mT
        points = zeros((5, fits, classes, unknowns + lanes))
        self.position, self.trial, self.search, self.step, self.scaled = points
        # Outside the span, the descent is scaled by the curvature.
        self.descent = self.scaled[..., :unknowns]
        if not is_gram:
            self.descent = zeros((fits, classes, unknowns))
        self.curvature = zeros((fits, classes, 1 if is_gram else unknowns))
        self.p, self.trial_p = zeros((2, fits, classes, lanes))
        self.value, self.trial_value, self.gap, self.share = zeros((4, fits))
        self.size, self.goal, self.decrease = zeros((3, fits))
        flags = zeros((3, fits), dtype=torch.bool)
        self.is_active, self.is_searching, self.is_accepted = flags

    def load(self, rows: Tensor, label: Tensor, start: Tensor) -> None:
        """Take standardised rows (fits, rows, dimensions), their labels (rows), and the starts.

        Rows and labels are copied into `rows`, `truth` and `valid`, the starts into `trial`.
        """
        classes, lanes = self.truth.shape
        room = lanes - len(label)
        truth = one_hot(label, classes).T
        self.truth.copy_(pad(truth, (0, room)))
        self.valid.copy_(self.truth.sum(0))  # 1 where there is a row
        if self.is_gram:
            gram = torch.bmm(rows, rows.mT)
            # A little more than the products, as in `solver.make_problem`.
            diagonal = gram.diagonal(dim1=1, dim2=2)  # a view
            diagonal += 1e-12 * diagonal.sum(1, keepdim=True)
            self.rows.copy_(pad(gram, (0, room, 0, room)))
            self.rows[:, -1, -1] = 1.0  # for the bias
        else:
            table = pad(rows, (0, 1), value=1.0)  # a column of ones for the bias
            self.rows.copy_(pad(table, (0, 0, 0, room)))
        self.trial[..., : self.unknowns] = start

    def solve(self) -> float:
        """Move all fits to their optimum; return how far the objective may be above it at most."""
        self._run(self._begin)
        for _ in range(MAX_STEPS):
            self._run(self._accept_trial)
            # Here and below, Python waits for the GPU.
            if not bool(self.is_active.any()):
                break
            self._run(self._begin_search)
            for _ in range(MAX_INNER_STEPS // STEPS_PER_CHECK):
                self._run(self._iterate)
                if not bool(self.is_searching.any()):
                    break
            self.is_accepted.zero_()
            while not bool(self.is_accepted.all()):
                self._run(self._try_step)
        return float(self.gap.max())

    def _run(self, work: Callable[[], None]) -> None:
        """Run a piece of work. From the second time on, a GPU replays a recording of it instead."""
        name = work.__name__
        # The first run also loads kernels, which cannot be recorded.
        if name not in self.graphs or not self.rows.is_cuda:
            self.graphs[name] = None
            work()
            return
        if self.graphs[name] is None:
            self.graphs[name] = record(work)
        self.graphs[name].replay()

    def _begin(self) -> None:
        """Set the first trial of each fit: its start, or zeros if the objective is lower there."""
        start = self.trial[..., : self.unknowns]
        image = torch.bmm(start, self.columns)
        point = torch.cat([start, image], 2)
        rows = self.valid.sum()
        # C · objective where all classes have the same probability
        at_zeros = self.c * rows * np.log(len(self.truth))
        value, _ = self._evaluate(point)
        is_better = (value <= at_zeros)[:, None, None]
        self.trial.copy_(torch.where(is_better, point, 0.0))
        self._evaluate_trial()
        self.value.fill_(torch.inf)  # no trial is accepted yet
        self.gap.fill_(torch.inf)
        self.is_active.fill_(True)

    def _accept_trial(self) -> None:
        """Go to the trial positions; find curvature, descent, gap, and which fits go on."""
        gain = self.value - self.trial_value  # infinite at the start
        self.value.copy_(self.trial_value)
        self.position.copy_(self.trial)
        self.p.copy_(self.trial_p)
        # The second derivatives by each unknown alone; by the bias alone in the span.
        factors = self.c * self.p * (1.0 - self.p)
        if self.is_gram:
            self.curvature.copy_(factors.sum(-1, keepdim=True))
        else:
            squares = self.rows * self.rows
            self.curvature.copy_(torch.bmm(factors, squares))
            self.curvature[..., :-1] += 1.0
        self.curvature[..., -1].clamp_(min=TINY)

        residual = self.c * (self.truth - self.p)
        self.descent.copy_(self._add_rows(residual, self.position, scale=-1.0))
        self._scale()
        gap = self._bound_gap()
        # Neither the objective nor its gradient gets better.
        has_no_gain = gain <= 1e-15 * self.value.abs()
        only_rounding = has_no_gain & (gap > 0.5 * self.gap)
        self.gap.copy_(torch.where(self.is_active, gap, self.gap))
        is_far = gap > self.tolerance
        self.is_active &= is_far & ~only_rounding

    def _begin_search(self) -> None:
        """Start conjugate gradients for the Newton step: at 0, first along the scaled descent."""
        self.is_searching.copy_(self.is_active)
        # 1 for a fit that goes on, whose whole step is tried first; 0 for one that has ended.
        self.share.copy_(self.is_active)
        self.search.copy_(self.scaled)
        size = dot(self.descent, self._partner(self.scaled))
        self.size.copy_(size)
        # Until a tenth of the size is left; less near the optimum, where steps converge fast.
        self.goal.copy_(size * size.clamp(max=0.1))
        self.step.zero_()
        self.decrease.zero_()

    def _iterate(self) -> None:
        """Take a few steps of conjugate gradients, without asking which fits have stopped.

        They add to the Newton step, and the descent becomes what the step leaves of it. Fits that
        have stopped get steps of length 0.
        """
        scaled_p = self.c * self.p
        for _ in range(STEPS_PER_CHECK):
            logits = self._to_logits(self.search)
            mean = (self.p * logits).sum(1, keepdim=True)
            changes = scaled_p * (logits - mean)
            # The Hessian of C · objective, times the search direction.
            hessian = self._add_rows(changes, self.search, scale=1.0)
            curve = dot(hessian, self._partner(self.search))
            has_descent = (curve > 0.0) & (self.size > 0.0)
            self.is_searching &= has_descent
            alpha = torch.where(self.is_searching, self.size / curve, 0.0)
            self.decrease.addcmul_(alpha, self.size)
            alpha = alpha[:, None, None]
            self.step.addcmul_(alpha, self.search)
            self.descent.addcmul_(alpha, hessian, value=-1.0)
            self._scale()
            size = dot(self.descent, self._partner(self.scaled))
            is_large = self._bound_gap() > 0.2 * self.tolerance
            self.is_searching &= (size > self.goal) & is_large
            beta = torch.where(self.is_searching, size / self.size, 0.0)
            beta = beta[:, None, None]
            self.size.copy_(size)
            torch.addcmul(self.scaled, beta, self.search, out=self.search)

    def _try_step(self) -> None:
        """Try a share of the step of each fit; halve it where C · objective is not low enough."""
        share = self.share[:, None, None]
        torch.addcmul(self.position, share, self.step, out=self.trial)
        self._evaluate_trial()
        # Armijo's rule: at least a small part of the promised decrease.
        decrease = 1e-4 * self.share * self.decrease
        limit = self.value - decrease + 1e-13 * self.value.abs()
        is_low = self.trial_value <= limit
        self.is_accepted.copy_(is_low | (self.share == 0.0))
        self.share *= torch.where(self.is_accepted, 1.0, 0.5)
        # Too small a share becomes 0: the fit stays.
        self.share *= self.share > MIN_SHARE

    def _scale(self) -> None:
        """Set `scaled` to the descent and its image, outside the span divided by the curvature."""
        vector = self.scaled[..., : self.unknowns]
        if not self.is_gram:  # otherwise `descent` is this part of `scaled`
            torch.div(self.descent, self.curvature, out=vector)
        image = self.scaled[..., self.unknowns :]
        torch.bmm(vector, self.columns, out=image)

    def _partner(self, point: Tensor) -> Tensor:
        """Return the part of a point that another vector is multiplied with in an inner product."""
        return (
            point[..., self.unknowns :] if self.is_gram else point[..., : self.unknowns]
        )

    def _to_logits(self, point: Tensor) -> Tensor:
        """Return the logits (fits, classes, lanes) of a point, with the bias."""
        image = point[..., self.unknowns :]
        # In the span, the last column of the image is the bias.
        return image + image[..., -1:] if self.is_gram else image

    def _evaluate(self, point: Tensor) -> tuple[Tensor, Tensor]:
        """Return C · objective (fits) at a point, and the probabilities (fits, classes, lanes).

        A lane is a row; the probabilities of lanes without a row are 0.
        """
        logits = self._to_logits(point)
        true_logit = (self.truth * logits).sum(1)
        losses = torch.logsumexp(logits, 1) - true_logit
        loss = (self.valid * losses).sum(-1)
        weights = point[..., : self.unknowns - 1]
        partner = self._partner(point)
        square = dot(weights, partner[..., :-1])
        p = logits.softmax(1) * self.valid
        return self.c * loss + 0.5 * square, p

    def _evaluate_trial(self) -> None:
        """Set C · objective and the probabilities at the trial positions."""
        value, p = self._evaluate(self.trial)
        self.trial_value.copy_(value)
        self.trial_p.copy_(p)

    def _add_rows(self, factors: Tensor, point: Tensor, *, scale: float) -> Tensor:
        """Return Σ_i factors[…, i] · row i + scale · the weights of a point.

        The last column, the bias, is Σ_i factors[…, i]. In the span, factors are the unknowns.
        """
        sums = factors if self.is_gram else torch.bmm(factors, self.rows)
        weights = point[..., : self.unknowns]
        total = torch.add(sums, weights, alpha=scale)
        bias = total[..., -1]  # a view: the sum is written into `total`
        torch.sum(factors, -1, out=bias)
        return total

    def _bound_gap(self) -> Tensor:
        """Return how far the objective may be above its optimum, (fits,), as `solver.bound_gap`."""
        descent = self.descent  # weights, then the bias in the last column
        bias = descent[..., -1] ** 2 / self.curvature[..., -1]
        # In the span, inner products are with the image.
        partner = self._partner(self.scaled) if self.is_gram else descent
        square = dot(descent[..., :-1], partner[..., :-1])
        total = square + bias.sum(1)
        return total * (0.5 / self.c)


def record(work: Callable[[], None]) -> Any:
    """Return a CUDA graph: a recording of some work, which is not run here.

    Python's garbage collector must not run either: freeing memory would break the recording.
    """
    graph = torch.cuda.CUDAGraph()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    gc.disable()
    try:
        with torch.cuda.stream(stream):
            graph.capture_begin()
            work()
            graph.capture_end()
    finally:
        gc.enable()
    return graph


def dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner products of vectors (fits, classes, columns)."""
    return (x * y).sum((1, 2))
