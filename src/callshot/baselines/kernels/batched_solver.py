"""Many fits at once → their optima, in torch: what `solver` does, step by step, for a whole batch.

Batches, vectors and images are those of `batched_objective`.

Each fit stops by its own gap: its further steps are 0 until the last one stops. Steps consist of
many small operations on tensors that stay in place, so that a GPU can record them once for all
batches of a size, and replay them without waiting for Python.
"""

import gc
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import torch

from callshot.baselines.kernels.batched_objective import (
    BatchObjective,
    BatchSize,
    dot,
    in_span,
    padded,
)
from callshot.baselines.kernels.solver import MAX_INNER_STEPS, MAX_STEPS

Tensor = Any

# Of conjugate gradients; asking the GPU whether all fits stopped takes time.
STEPS_PER_CHECK = 4
MIN_SHARE = 1e-9  # of a Newton step


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
        position = newton.state.position
        weights = position[..., :dimensions]
        if is_gram:
            weights = torch.bmm(position[..., :count], rows)
        return weights, position, gap


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


class _State:
    """Positions of all fits, their images, and the probabilities and C · J there."""

    def __init__(self, size: BatchSize, like: Tensor) -> None:
        self.position = like.new_zeros((size.fits, size.classes, size.columns))
        self.image = like.new_zeros((size.fits, size.classes, size.lanes))
        self.p = torch.zeros_like(self.image)
        self.value = like.new_zeros(size.fits)

    def measure(self, objective: BatchObjective) -> None:
        """Find C · J and the probabilities at the positions."""
        value, p = objective.value_at(self.position, self.image)
        self.value.copy_(value)
        self.p.copy_(p)

    def copy_(self, other: "_State") -> None:
        """Take the positions of another state."""
        self.position.copy_(other.position)
        self.image.copy_(other.image)
        self.p.copy_(other.p)
        self.value.copy_(other.value)


class _Newton:
    """Newton's method for batches of one size: the positions of all fits, and which go on.

    `trial` is where a share of the step leads.
    """

    def __init__(self, size: BatchSize, solver: BatchedSolver, like: Tensor) -> None:
        self.is_fused = solver.fused and size.is_gram
        self.tolerance = solver.tolerance
        self.constants = like.new_tensor([solver.c, solver.tolerance])
        self.objective = BatchObjective(size, solver.c, like)
        self.state = _State(size, like)
        self.descent = torch.zeros_like(self.state.position)
        self.descent_image = torch.zeros_like(self.state.image)
        self.gain = torch.zeros_like(self.state.value)
        self.gap = torch.zeros_like(self.state.value)
        self.is_active = torch.zeros_like(self.gap, dtype=torch.bool)
        self.trial = _State(size, like)
        self.share = torch.zeros_like(self.gap)
        self.accepted = torch.zeros_like(self.is_active)
        self.gradients = _ConjugateGradients(self)
        self._make_recordable(like.device)

    def _make_recordable(self, device: Any) -> None:
        """Choose the pieces of work that a GPU records: between them, Python looks at results."""
        self.begin = _Recorded(self._begin, device)
        self.measure = _Recorded(self._measure, device)
        self.iterate = _Recorded(self.gradients.iterate_several, device)
        self.try_step = _Recorded(self._try_step, device)
        self.accept = _Recorded(self._accept, device)

    def load(self, rows: Tensor, label: Tensor, start: Tensor) -> None:
        """Take the rows, labels and first positions of a batch."""
        self.objective.load(rows, label)
        self.state.position.copy_(start)

    def solve(self) -> float:
        """Move all fits to their optimum; return how far J may be above it at most."""
        self.begin()
        for _ in range(MAX_STEPS):
            self.measure()
            if not bool(self.is_active.any()):
                break
            self.step()
        return float(self.gap.max())

    def step(self) -> None:
        """Move every fit that goes on by a Newton step, or by a part of it."""
        self.find_direction()
        self.search_line()
        self.accept()

    def find_direction(self) -> None:
        """Find the Newton step of every fit, by conjugate gradients until all have stopped."""
        for _ in range(MAX_INNER_STEPS // STEPS_PER_CHECK):
            self.iterate()
            if not bool(self.gradients.is_active.any()):
                break

    def search_line(self) -> None:
        """Halve the share of the step of every fit until its value is low enough."""
        self.share.copy_(self.is_active)
        self.try_step()
        while not bool(self.accepted.all()):
            self.share *= torch.where(self.accepted, 1.0, 0.5)
            self.share *= self.share > MIN_SHARE
            self.try_step()

    def _begin(self) -> None:
        """Start at the positions, or at zeros where these are better."""
        state = self.state
        image = self.objective.find_image(state.position)
        value, _ = self.objective.value_at(state.position, image)
        zeros = torch.zeros_like(state.position)
        at_zeros, _ = self.objective.value_at(zeros, torch.zeros_like(image))
        is_better = (value <= at_zeros)[:, None, None]
        state.position.copy_(torch.where(is_better, state.position, 0.0))
        state.image.copy_(torch.where(is_better, image, 0.0))
        state.measure(self.objective)
        self.gap.fill_(torch.inf)
        self.gain.fill_(torch.inf)
        self.is_active.fill_(True)

    def _measure(self) -> None:
        """Find descent and gap of every fit, and whether it goes on; prepare its next step."""
        objective = self.objective
        objective.fill_curvature(self.state.p)
        residual = objective.c * (objective.truth - self.state.p)
        self.descent.copy_(objective.add_rows(residual, self.state.position, -1.0))
        scaled, image = self.gradients.scale()
        self._stop_by_gap(objective.bound_gap(self.descent, image))
        self.gradients.begin(scaled, image)

    def _stop_by_gap(self, gap: Tensor) -> None:
        """Stop the fits that are near their optimum, or that only rounding still moves."""
        has_no_gain = self.gain <= 1e-15 * self.state.value.abs()
        only_rounding = has_no_gain & (gap > 0.5 * self.gap)
        self.gap.copy_(torch.where(self.is_active, gap, self.gap))
        self.is_active &= (gap > self.tolerance) & ~only_rounding

    def _try_step(self) -> None:
        """Go a share of the step; find where the value is low enough, or the share 0."""
        state = self.state
        trial = self.trial
        gradients = self.gradients
        share = self.share[:, None, None]
        torch.addcmul(state.position, share, gradients.step, out=trial.position)
        torch.addcmul(state.image, share, gradients.step_image, out=trial.image)
        trial.measure(self.objective)
        decrease = 1e-4 * self.share * gradients.decrease
        rounding = 1e-13 * state.value.abs()
        is_low_enough = trial.value <= state.value - decrease + rounding
        self.accepted.copy_(is_low_enough | (self.share == 0.0))

    def _accept(self) -> None:
        """Go to the positions that were tried."""
        self.gain.copy_(self.state.value - self.trial.value)
        self.state.copy_(self.trial)


class _ConjugateGradients:
    """A Newton step of every fit, as exactly as is worth while, and the decrease it promises."""

    def __init__(self, newton: _Newton) -> None:
        self.newton = newton
        self.search = torch.zeros_like(newton.descent)
        self.search_image = torch.zeros_like(newton.descent_image)
        self.step = torch.zeros_like(newton.descent)
        self.step_image = torch.zeros_like(newton.descent_image)
        self.hessian = torch.zeros_like(newton.descent)
        self.size = torch.zeros_like(newton.gap)
        self.goal = torch.zeros_like(newton.gap)
        self.decrease = torch.zeros_like(newton.gap)
        self.is_active = torch.zeros_like(newton.is_active)

    def begin(self, scaled: Tensor, image: Tensor) -> None:
        """Search along the descent, as `scale` returns it."""
        newton = self.newton
        self.search.copy_(scaled)
        self.search_image.copy_(image)
        self.size.copy_(self.square_of_descent(scaled, image))
        self.goal.copy_(self.size * self.size.clamp(max=0.1))
        self.step.zero_()
        self.step_image.zero_()
        self.decrease.zero_()
        self.is_active.copy_(newton.is_active)

    def scale(self) -> tuple[Tensor, Tensor]:
        """Return the descent, preconditioned outside the span, and its image."""
        newton = self.newton
        objective = newton.objective
        scaled = newton.descent
        if not objective.is_gram:
            scaled = scaled / objective.curvature
        torch.bmm(scaled, objective.matrix, out=newton.descent_image)
        return scaled, newton.descent_image

    def square_of_descent(self, scaled: Tensor, image: Tensor) -> Tensor:
        """Return the inner products of the descents with themselves, scaled as by `scale`."""
        partner = self.newton.objective.partner(scaled, image)
        return dot(self.newton.descent, partner)

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
        self.advance()
        scaled, image = self.scale()
        self.turn(scaled, image)

    def advance(self) -> None:
        """Go along every search direction, to the minimum of the quadratic model there."""
        hessian = self.multiply_hessian()
        partner = self.newton.objective.partner(self.search, self.search_image)
        curve = dot(hessian, partner)
        self.is_active &= (curve > 0.0) & (self.size > 0.0)
        alpha = torch.where(self.is_active, self.size / curve, 0.0)
        self.decrease.addcmul_(alpha, self.size)
        alpha = alpha[:, None, None]
        self.step.addcmul_(alpha, self.search)
        self.step_image.addcmul_(alpha, self.search_image)
        self.newton.descent.addcmul_(alpha, hessian, value=-1.0)

    def multiply_hessian(self) -> Tensor:
        """Return the Hessian of C · J times the search directions."""
        objective = self.newton.objective
        p = self.newton.state.p
        logits = objective.logits(self.search_image)
        mean = (p * logits).sum(1, keepdim=True)
        changes = objective.c * p * (logits - mean)
        return objective.add_rows(changes, self.search, 1.0)

    def turn(self, scaled: Tensor, image: Tensor) -> None:
        """Find the next search directions, from what is left of the descents, as scaled."""
        newton = self.newton
        size = self.square_of_descent(scaled, image)
        gap = newton.objective.bound_gap(newton.descent, image)
        self.is_active &= (size > self.goal) & (gap > 0.2 * newton.tolerance)
        beta = torch.where(self.is_active, size / self.size, 0.0)
        self.size.copy_(size)
        beta = beta[:, None, None]
        self.search.mul_(beta).add_(scaled)
        self.search_image.mul_(beta).add_(image)
