"""Jobs → trained networks, by epochs that can be taken up where they ended.

A training has two phases. `search` leaves an inner fold of recordings out, until the loss on it has stopped falling:
that tells how many epochs. `all` trains anew on the whole support side, for as many. What is kept of either is not done
again. Every draw is a function of (seed, purpose, epoch), so that a state is its tensors and its epoch, and a training
that was stopped ends in the weights that it would have had. What is learnt, and how, is the lesson's.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.checkpoints import Checkpoint, CheckpointStore, Found
from callshot.baselines.executor import CancelToken, CheckCancelled
from callshot.baselines.torch_arrays import (
    BatchData,
    give_memory,
    give_weights,
    memory_of,
    weights_of,
)
from callshot.errors import InputError
from callshot.records import IntArray

EPOCHS = 20  # where nothing can be held out


@dataclass
class State:
    """A training between two epochs; `losses` are those of the rows held out, after each."""

    network: Any
    optimiser: Any
    epoch: int = 0
    losses: list[float] = field(default_factory=list)

    def is_stale(self, patience: int) -> bool:
        """Say whether the loss has not fallen for that many epochs."""
        best = best_epoch(self.losses) if np.isfinite(self.losses).any() else 0
        return bool(self.losses) and self.epoch - best >= patience


class Plan(Protocol):
    """How long a training may last, and how many numbers it trains."""

    @property
    def epochs(self) -> int: ...  # noqa: D102

    @property
    def patience(self) -> int: ...  # noqa: D102

    @property
    def parameters(self) -> int: ...  # noqa: D102


class Lesson(Protocol):
    """What is learnt of which frames, and how."""

    @property
    def feed(self) -> BatchData: ...  # noqa: D102

    @property
    def recipe(self) -> Plan: ...  # noqa: D102

    def build(self) -> Any:
        """Make a network whose weights are still to come."""

    def start(self, rows: IntArray) -> State:
        """Give a network its first weights, for rows that it will learn."""

    def run_epoch(self, rows: IntArray, state: State, check_cancelled: CheckCancelled) -> None:
        """Learn all rows once."""

    def loss(self, rows: IntArray, network: Any, check_cancelled: CheckCancelled) -> float:
        """Return how badly a network does on rows that it has not learnt."""


Kind = TypeVar("Kind", bound=Lesson)
After = Callable[[State], None]


@dataclass(frozen=True)
class Job(Generic[Kind]):
    """One network of one split; `held` says which of its rows the search leaves out."""

    title: str
    fold: int
    rows: IntArray
    queries: IntArray
    held: NDArray[np.bool_]
    lesson: Kind
    shelf: CheckpointStore
    found: Found
    unsearched: int = EPOCHS  # epochs, where nothing is held out

    @property
    def device(self) -> Any:
        """Where it is trained."""
        return self.lesson.feed.frames.device


def search(job: Job[Kind], watch: CancelToken) -> Sequence[float]:
    """Return the loss of the rows held out after each epoch; nothing where none can be."""
    if job.found.losses is not None:
        return job.found.losses
    losses = list[float]()
    if job.held.any():
        rows, held = job.rows[~job.held], job.rows[job.held]
        losses = _train(job, watch, "search", rows, held, job.lesson.recipe.epochs).losses
        best_epoch(losses, job.title)  # nothing is kept of a search without one
    job.shelf.save_search(losses)
    return losses


def learn(job: Job[Kind], watch: CancelToken) -> tuple[Any, int]:
    """Return a network that is trained on the whole support side, and its epochs."""
    losses = search(job, watch)
    epochs = best_epoch(losses, job.title) if losses else job.unsearched
    if job.found.weights is not None:
        network = job.lesson.build()
        give_weights(network, job.found.weights())
        return network.to(job.device), epochs
    network = _train(job, watch, "all", job.rows, job.rows[:0], epochs).network
    weights = weights_of(network)
    if not all(np.isfinite(array).all() for array in weights.values()):
        raise _diverged(job.title, f"after {epochs} epochs its weights are not finite")
    facts = {"epochs": epochs, "parameters": job.lesson.recipe.parameters, "losses": list(losses)}
    job.shelf.save_weights(weights, facts)
    return network, epochs


def _train(
    job: Job[Kind], watch: CancelToken, phase: str, rows: IntArray, held: IntArray, epochs: int
) -> State:
    """Train from the start, or from the last epoch that was kept of this phase."""
    state, kept = job.lesson.start(rows), job.found.checkpoint
    if kept is not None and kept.phase == phase:
        give_weights(state.network, kept.arrays)
        give_memory(state.network, state.optimiser, kept.arrays)
        state.epoch, state.losses = kept.epoch, list(kept.losses)

    def after(state: State) -> None:
        arrays = {**weights_of(state.network), **memory_of(state.network, state.optimiser)}
        job.shelf.save_checkpoint(Checkpoint(phase, state.epoch, state.losses, arrays))
        watch.progress(0.0, f"{job.title}, {phase}: epoch {state.epoch}")
        watch.check_cancelled()

    run_epochs(job.lesson, rows, held, state, epochs, after, watch.check_cancelled)
    return state


def run_epochs(
    lesson: Lesson,
    rows: IntArray,
    held: IntArray,
    state: State,
    epochs: int,
    after: After,
    check_cancelled: CheckCancelled,
) -> None:
    """Go on until there are so many epochs, or the loss of the rows held out has not fallen for `patience` of them."""
    while state.epoch < epochs and not state.is_stale(lesson.recipe.patience):
        lesson.run_epoch(rows, state, check_cancelled)
        state.epoch += 1
        if held.size:
            state.losses.append(lesson.loss(held, state.network, check_cancelled))
        after(state)


def best_epoch(losses: Sequence[float], title: str = "a network") -> int:
    """Return the number of epochs after which the loss was lowest; one that is not finite is worse than any other.

    >>> best_epoch([1.1, 0.8, 0.9]), best_epoch([float("nan"), 0.8])
    (2, 2)
    """
    finite = np.isfinite(losses)
    if not finite.any():
        raise _diverged(title, "after no epoch the loss of the rows held out is finite")
    return int(np.argmin(np.where(finite, losses, np.inf))) + 1


def _diverged(title: str, found: str) -> InputError:
    return InputError(
        f"{title}: the training diverged: {found}; look for extreme values in what it learns or begins with"
    )


def by_fold(jobs: Sequence[Job[Kind]], values: Sequence[int]) -> list[list[int]]:
    """Return a number of every job, those of a split together."""
    pairs = list(zip(jobs, values, strict=True))
    return [
        [v for job, v in pairs if job.fold == fold] for fold in sorted({job.fold for job in jobs})
    ]


def stream(*purpose: object) -> int:
    """Return the seed of the draws for one purpose."""
    return int.from_bytes(sha256(repr(purpose).encode()).digest()[:8], "little") >> 1
