"""Many fits at once → their optima, in torch: what `solver` does, step by step, for a whole batch.

The fits of a batch have the same labels in the same order, and different rows. Vectors have columns
for the unknowns, then zeros up to a multiple of 64, and the bias as the last column. Lanes are the
rows, then zeros; in the span of the rows, lanes and columns are the same.

Each fit stops by its own gap: its further steps are 0 until the last one stops. Steps consist of
many small operations on tensors that stay in place, so that a GPU can record them once for all
batches of a size, and replay them without waiting for Python.
"""

import gc
from collections.abc import Callable
from types import TracebackType
from typing import Any, NamedTuple, Self

import torch

from callshot.baselines.kernels.solver import MOST_INNER_STEPS, MOST_STEPS, TINY

Tensor = Any

COLUMN_STEP = 64
STEPS_PER_CHECK = (
    4  # of conjugate gradients; asking the GPU whether all stopped takes time
)
LEAST_SHARE = 1e-9  # of a Newton step


class BatchSize(NamedTuple):
    """What batches have in common that share memory; `is_gram`: the unknowns are in the span."""

    fits: int
    classes: int
    lanes: int
    columns: int
    is_gram: bool


def padded(columns: int) -> int:
    """Return a number of columns with room for the bias.

    >>> padded(63), padded(64)
    (64, 128)
    """
    return (columns // COLUMN_STEP + 1) * COLUMN_STEP


class BatchedSolver:
    """Solves batches with one C and tolerance; batches of a size share memory and recordings.

    Both are freed at the end of a `with` block. `fused`: inside the span, use `gpu_gradients`.
    """

    def __init__(self, c: float, tolerance: float, *, fused: bool = False) -> None:
        self.c = c
        self.tolerance = tolerance
        self.fused = fused
        self.newtons: dict[BatchSize, _Newton] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Free the memory at once: its holders refer to each other."""
        for newton in self.newtons.values():
            vars(newton).clear()
        self.newtons.clear()

    def solve(
        self, rows: Tensor, label: Tensor, classes: int, start: Tensor
    ) -> tuple[Tensor, Tensor, float]:
        """Train on standardised rows (fits, rows, dimensions), one label for each row.

        Return the weights (fits, classes, dimensions), the positions (fits, classes, columns) with
        the bias as the last column, and how far J may be above its optimum at most. The fits start
        from positions as an earlier call returned them.
        """
        fits, count, dimensions = rows.shape
        is_gram = in_span(count, dimensions)
        columns = padded(count if is_gram else dimensions)
        lanes = columns if is_gram else padded(count)
        size = BatchSize(fits, classes, lanes, columns, is_gram)
        newton = self.newtons.get(size)
        if newton is None:
            newton = self.newtons[size] = _Newton(size, self, rows)
        newton.load(rows, label, start)
        gap = newton.solve()
        position = newton.position
        weights = position[..., :dimensions]
        if is_gram:
            weights = torch.bmm(position[..., :count], rows)
        return weights, position, gap


def in_span(count: int, dimensions: int) -> bool:
    """Return whether the unknowns of a fit are in the span of its rows."""
    return count <= dimensions


class _Recorded:
    """Work on tensors that stay in place: run at first, then recorded by a GPU and replayed."""

    def __init__(self, work: Callable[[], None], device: Any) -> None:
        self.work = work
        self.is_recordable = device.type == "cuda"
        self.was_run = False
        self.graph: Any = None

    def __call__(self) -> None:
        if not self.is_recordable or not self.was_run:
            self.was_run = True
            self.work()
            return
        if self.graph is None:
            self.graph = record(self.work)
        self.graph.replay()


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


class _Newton:
    """Newton's method for batches of one size: the positions of all fits, and which go on.

    The image of a vector is what its logits are computed from. In the span it is the vector times
    the Gram matrix, `matrix` (fits, columns, columns), which has a 1 for the bias, and the inner
    product of two vectors is that of one with the image of the other. Otherwise the image is the
    logits: `matrix` is the transpose of the rows (fits, lanes, columns), whose last column is 1.
    """

    def __init__(self, size: BatchSize, solver: BatchedSolver, like: Tensor) -> None:
        fits, classes, lanes, columns, self.is_gram = size
        self.c = solver.c
        self.tolerance = solver.tolerance
        self.is_fused = solver.fused and self.is_gram
        self.constants = like.new_tensor([self.c, self.tolerance])
        self.rows = like.new_zeros((0 if self.is_gram else fits, lanes, columns))
        self.matrix = self.rows.transpose(1, 2)
        if self.is_gram:
            self.matrix = like.new_zeros((fits, columns, columns))
        self.truth = like.new_zeros((classes, lanes))
        self.valid = like.new_zeros(lanes)
        self.position = like.new_zeros((fits, classes, columns))
        self.image = like.new_zeros((fits, classes, lanes))
        self.p = torch.zeros_like(self.image)
        self.curvature = like.new_zeros((fits, classes, 1 if self.is_gram else columns))
        self.descent = torch.zeros_like(self.position)
        self.descent_image = torch.zeros_like(self.image)
        self.value = like.new_zeros(fits)
        self.gain = torch.zeros_like(self.value)
        self.gap = torch.zeros_like(self.value)
        self.is_active = torch.zeros_like(self.value, dtype=torch.bool)
        self.share = torch.zeros_like(self.value)
        self.accepted = torch.zeros_like(self.is_active)
        self.trial = torch.zeros_like(self.position)
        self.trial_image = torch.zeros_like(self.image)
        self.trial_p = torch.zeros_like(self.p)
        self.trial_value = torch.zeros_like(self.value)
        self.gradients = _ConjugateGradients(self)
        self.begin = _Recorded(self._begin, like.device)
        self.measure = _Recorded(self._measure, like.device)
        self.iterate = _Recorded(self.gradients.iterate_several, like.device)
        self.try_step = _Recorded(self._try_step, like.device)
        self.accept = _Recorded(self._accept, like.device)

    def load(self, rows: Tensor, label: Tensor, start: Tensor) -> None:
        """Take the rows, labels and first positions of a batch."""
        count, dimensions = rows.shape[1:]
        self.truth.zero_()
        self.truth[label, torch.arange(count, device=rows.device)] = 1.0
        self.valid.zero_()
        self.valid[:count] = 1.0
        self.position.copy_(start)
        if self.is_gram:
            self.matrix.zero_()
            gram = self.matrix[:, :count, :count]
            gram.copy_(torch.bmm(rows, rows.transpose(1, 2)))
            diagonal = gram.diagonal(dim1=1, dim2=2)
            diagonal += 1e-12 * diagonal.sum(1, keepdim=True)
            self.matrix[:, -1, -1] = 1.0
        else:
            self.rows.zero_()
            self.rows[:, :count, :dimensions] = rows
            self.rows[:, :count, -1] = 1.0

    def solve(self) -> float:
        """Move all fits to their optimum; return how far J may be above it at most."""
        self.begin()
        for _ in range(MOST_STEPS):
            self.measure()
            if not bool(self.is_active.any()):
                break
            self.step()
        return float(self.gap.max())

    def step(self) -> None:
        """Move every fit that goes on by a Newton step, or by a part of it."""
        for _ in range(MOST_INNER_STEPS // STEPS_PER_CHECK):
            self.iterate()
            if not bool(self.gradients.is_active.any()):
                break
        self.share.copy_(self.is_active)
        self.try_step()
        while not bool(self.accepted.all()):
            self.share *= torch.where(self.accepted, 1.0, 0.5)
            self.share *= self.share > LEAST_SHARE
            self.try_step()
        self.accept()

    def find_image(self, vector: Tensor) -> Tensor:
        """Return the image of a vector."""
        return torch.bmm(vector, self.matrix)

    def logits(self, image: Tensor) -> Tensor:
        """Return the logits (fits, classes, lanes) of a vector with this image."""
        return image + image[..., -1:] if self.is_gram else image

    def partner(self, vector: Tensor, image: Tensor) -> Tensor:
        """Return what a vector is multiplied with in an inner product."""
        return image if self.is_gram else vector

    def add_rows(self, factors: Tensor, vector: Tensor, scale: float) -> Tensor:
        """Return Σ_i factor of i · row i, plus scale · the weights of a vector."""
        sums = factors if self.is_gram else torch.bmm(factors, self.rows)
        total = torch.add(sums, vector, alpha=scale)
        total[..., -1] = factors.sum(-1)
        return total

    def value_at(self, position: Tensor, image: Tensor) -> tuple[Tensor, Tensor]:
        """Return C · J, and the probabilities; 0 where there is no row."""
        logits = self.logits(image)
        largest = logits.amax(1, keepdim=True)
        powers = torch.exp(logits - largest)
        total = powers.sum(1, keepdim=True)
        lost = (largest + torch.log(total))[:, 0] - (self.truth * logits).sum(1)
        loss = (self.valid * lost).sum(-1)
        p = powers / total * self.valid
        partner = self.partner(position, image)
        square = _dot(position[..., :-1], partner[..., :-1])
        return self.c * loss + 0.5 * square, p

    def bound_gap(self, descent: Tensor, image: Tensor) -> Tensor:
        """Return how far J may be above its optimum, as `solver.bound_gap`."""
        dual = self.partner(descent, image)
        square = _dot(descent[..., :-1], dual[..., :-1])
        bias = descent[..., -1] ** 2 / self.curvature[..., -1]
        return 0.5 * (square + bias.sum(1)) / self.c

    def _begin(self) -> None:
        """Start at the positions, or at zeros where these are better."""
        image = self.find_image(self.position)
        value, _ = self.value_at(self.position, image)
        zeros = torch.zeros_like(image)
        at_zeros, _ = self.value_at(torch.zeros_like(self.position), zeros)
        is_better = (value <= at_zeros)[:, None, None]
        self.position.copy_(torch.where(is_better, self.position, 0.0))
        self.image.copy_(torch.where(is_better, image, 0.0))
        value, p = self.value_at(self.position, self.image)
        self.value.copy_(value)
        self.p.copy_(p)
        self.gap.fill_(torch.inf)
        self.gain.fill_(torch.inf)
        self.is_active.fill_(True)

    def _measure(self) -> None:
        """Find descent and gap of every fit, and whether it goes on; prepare its next step."""
        self.fill_curvature()
        residual = self.c * (self.truth - self.p)
        self.descent.copy_(self.add_rows(residual, self.position, -1.0))
        scaled, image = self.gradients.scale()
        gap = self.bound_gap(self.descent, image)
        has_no_gain = self.gain <= 1e-15 * self.value.abs()
        only_rounding = has_no_gain & (gap > 0.5 * self.gap)
        self.gap.copy_(torch.where(self.is_active, gap, self.gap))
        self.is_active &= (gap > self.tolerance) & ~only_rounding
        self.gradients.begin(scaled, image)

    def fill_curvature(self) -> None:
        """Fill in the second derivatives by each unknown alone; by the bias alone in the span."""
        factors = self.c * self.p * (1.0 - self.p)
        if self.is_gram:
            self.curvature.copy_(factors.sum(-1, keepdim=True))
        else:
            self.curvature.copy_(torch.bmm(factors, self.rows * self.rows))
            self.curvature[..., :-1] += 1.0
        self.curvature[..., -1].clamp_(min=TINY)

    def _try_step(self) -> None:
        """Go a share of the step; find where the value is low enough, or the share 0."""
        share = self.share[:, None, None]
        torch.addcmul(self.position, share, self.gradients.step, out=self.trial)
        image = self.gradients.step_image
        torch.addcmul(self.image, share, image, out=self.trial_image)
        new, p = self.value_at(self.trial, self.trial_image)
        self.trial_value.copy_(new)
        self.trial_p.copy_(p)
        decrease = 1e-4 * self.share * self.gradients.decrease
        limit = self.value - decrease + 1e-13 * self.value.abs()
        self.accepted.copy_((new <= limit) | (self.share == 0.0))

    def _accept(self) -> None:
        """Go to the positions that were tried."""
        self.gain.copy_(self.value - self.trial_value)
        self.value.copy_(self.trial_value)
        self.position.copy_(self.trial)
        self.image.copy_(self.trial_image)
        self.p.copy_(self.trial_p)


class _ConjugateGradients:
    """A Newton step of every fit, as exactly as is worth while, and the decrease it promises."""

    def __init__(self, newton: _Newton) -> None:
        self.newton = newton
        self.search = torch.zeros_like(newton.position)
        self.search_image = torch.zeros_like(newton.image)
        self.step = torch.zeros_like(newton.position)
        self.step_image = torch.zeros_like(newton.image)
        self.hessian = torch.zeros_like(newton.position)
        self.size = torch.zeros_like(newton.value)
        self.goal = torch.zeros_like(newton.value)
        self.decrease = torch.zeros_like(newton.value)
        self.is_active = torch.zeros_like(newton.is_active)

    def begin(self, scaled: Tensor, image: Tensor) -> None:
        """Search along the descent, as `scale` returns it."""
        newton = self.newton
        self.search.copy_(scaled)
        self.search_image.copy_(image)
        self.size.copy_(_dot(newton.descent, newton.partner(scaled, image)))
        self.goal.copy_(self.size * self.size.clamp(max=0.1))
        self.step.zero_()
        self.step_image.zero_()
        self.decrease.zero_()
        self.is_active.copy_(newton.is_active)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Return the descent, preconditioned outside the span, and its image."""
        newton = self.newton
        scaled = newton.descent
        if not newton.is_gram:
            scaled = scaled / newton.curvature
        torch.bmm(scaled, newton.matrix, out=newton.descent_image)
        return scaled, newton.descent_image

    def iterate_several(self) -> None:
        """Iterate as often as can be done without asking who stopped."""
        iterate = self.iterate_fused if self.newton.is_fused else self.iterate
        for _ in range(STEPS_PER_CHECK):
            iterate()

    def iterate_fused(self) -> None:
        """Do what `iterate` does, in the span."""
        from callshot.baselines.kernels import gpu_gradients

        gpu_gradients.advance(self)
        self.scale()
        gpu_gradients.turn(self)

    def iterate(self) -> None:
        """Go along the search directions, and find the next; the descent is what is left of it."""
        newton = self.newton
        logits = newton.logits(self.search_image)
        mean = (newton.p * logits).sum(1, keepdim=True)
        changes = newton.c * newton.p * (logits - mean)
        hessian = newton.add_rows(changes, self.search, 1.0)
        curve = _dot(hessian, newton.partner(self.search, self.search_image))
        self.is_active &= (curve > 0.0) & (self.size > 0.0)
        alpha = torch.where(self.is_active, self.size / curve, 0.0)
        self.decrease.addcmul_(alpha, self.size)
        alpha = alpha[:, None, None]
        self.step.addcmul_(alpha, self.search)
        self.step_image.addcmul_(alpha, self.search_image)
        newton.descent.addcmul_(alpha, hessian, value=-1.0)
        scaled, image = self.scale()
        size = _dot(newton.descent, newton.partner(scaled, image))
        gap = newton.bound_gap(newton.descent, image)
        self.is_active &= (size > self.goal) & (gap > 0.2 * newton.tolerance)
        beta = torch.where(self.is_active, size / self.size, 0.0)[:, None, None]
        self.size.copy_(size)
        self.search.mul_(beta).add_(scaled)
        self.search_image.mul_(beta).add_(image)


def _dot(x: Tensor, y: Tensor) -> Tensor:
    """Return the inner products of vectors (fits, classes, columns)."""
    return (x * y).sum((1, 2))
