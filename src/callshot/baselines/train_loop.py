"""Train networks, with a number of epochs chosen on held-out recordings.

A training has two phases. `search` holds out an inner fold of recordings until the loss on it stops
falling: that gives the number of epochs. `all` trains again on the whole support side, for that
many epochs. Every random draw is a function of (seed, purpose, epoch), so the state of a training
is its tensors and its epoch, and an interrupted training ends with the same weights.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from hashlib import sha256
from typing import Any

import numpy as np

from callshot.baselines.checkpoints import Checkpoint, CheckpointStore, Tensors
from callshot.baselines.executor import (
    CancelToken,
    CheckCancelled,
    TrainingOptions,
    never_cancelled,
)
from callshot.baselines.sequence_batches import (
    BatchData,
    BoolArray,
    held_out_rows,
    random_batches,
)
from callshot.errors import InputError
from callshot.records import FloatArray, IntArray

FORMAT = 2  # of saved trainings; raise it if the same key would give other weights
UNSEARCHED_EPOCHS = 20  # where nothing can be held out
OPTIMIZER_STATE = ("step", "exp_avg", "exp_avg_sq")  # of AdamW, for each parameter
Dropout = Callable[[Any], Any]
Metadata = dict[str, Any]
Outcomes = Sequence[
    tuple[FloatArray, int]
]  # scores of the queries and epochs of each job


@dataclass(frozen=True, kw_only=True)
class TrainingConfig:
    """Everything that decides a training, except the network and the rows.

    `member` is the number of a network among those that are averaged: each has its own random
    streams and its own inner fold.
    """

    seed: int = 0
    member: int = 0
    inner_folds: int = 4
    batch_size: int
    learning_rate: float
    warmup_steps: int = 1
    weight_decay: float
    dropout: float
    clip_norm: float = 1.0
    epochs: int
    patience: int

    @property
    def peak_learning_rate(self) -> float:
        """The learning rate after the warm-up."""
        return self.learning_rate

    def stream_seed(self, *purpose: object) -> int:
        """Return the seed of the random stream for one purpose."""
        text = repr((self.seed, self.member, *purpose))
        return int.from_bytes(sha256(text.encode()).digest()[:8], "little") >> 1

    def held_out(self, label: IntArray, groups: IntArray) -> BoolArray:
        """Return a mask of the rows that the search holds out."""
        return held_out_rows(
            label, groups, self.inner_folds, self.member % self.inner_folds
        )


@dataclass
class State:
    """A training between two epochs; `losses` are those of the held-out rows after each."""

    network: Any
    optimizer: Any
    epoch: int = 0
    losses: list[float] = field(default_factory=list)

    def is_stale(self, patience: int) -> bool:
        """Return whether the loss has not fallen for `patience` epochs."""
        best = best_epoch(self.losses) if np.isfinite(self.losses).any() else 0
        return self.epoch - best >= patience

    def tensors(self) -> Tensors:
        """Return all tensors of the network and the optimizer."""
        tensors = dict(self.network.state_dict())
        for number, slots in self.optimizer.state_dict()["state"].items():
            for name in OPTIMIZER_STATE:
                tensors[f"optimizer.{number}.{name}"] = slots[name]
        return tensors

    def resume(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        """Continue from a checkpoint and its tensors."""
        names = self.network.state_dict()
        self.network.load_state_dict({name: tensors[name] for name in names})
        optimizer = self.optimizer.state_dict()
        for number in optimizer["param_groups"][0]["params"]:
            slots = {
                name: tensors[f"optimizer.{number}.{name}"] for name in OPTIMIZER_STATE
            }
            optimizer["state"][number] = slots
        self.optimizer.load_state_dict(optimizer)
        self.epoch = checkpoint.epoch
        self.losses = checkpoint.losses


@dataclass(frozen=True)
class TrainingTask(ABC):
    """A kind of network, its configuration, and the rows it is trained on."""

    data: BatchData
    config: Any  # a TrainingConfig with the sizes of the network

    @abstractmethod
    def build(self) -> Any:
        """Return a network without weights."""

    @abstractmethod
    def initialize(self, network: Any, rows: IntArray) -> None:
        """Set the first weights of a network that will be trained on some rows."""

    @abstractmethod
    def row_weights(self, rows: IntArray) -> Any:
        """Return weights for all rows of the data that balance the classes of some rows."""

    @abstractmethod
    def batch_loss(
        self,
        network: Any,
        batch: IntArray,
        weights: Any,
        rng: np.random.Generator,
        dropout: Dropout,
    ) -> Any:
        """Return the training loss of a batch of rows."""

    @abstractmethod
    def predict(
        self,
        network: Any,
        rows: IntArray,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> FloatArray:
        """Return the scores of some rows, (rows, outputs)."""

    @abstractmethod
    def loss(self, scores: FloatArray, rows: IntArray) -> float:
        """Return the balanced loss of scores of held-out rows."""

    @property
    def device(self) -> Any:
        """The device it runs on."""
        return self.data.frames.device

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        import torch

        with torch.device("meta"):  # shapes without memory
            return sum(tensor.numel() for tensor in self.build().parameters())

    def start(self, rows: IntArray) -> State:
        """Return a network with its first weights, and an optimizer.

        Each step sets the learning rate.
        """
        import torch

        network = self.build()
        with torch.no_grad():
            self.initialize(network, rows)
        network.to(self.device)
        optimizer = torch.optim.AdamW(
            network.parameters(),
            weight_decay=self.config.weight_decay,
            fused=True,
        )
        return State(network, optimizer)

    def run_epoch(
        self,
        rows: IntArray,
        state: State,
        check_cancelled: CheckCancelled = never_cancelled,
    ) -> None:
        """Train for one epoch."""
        import torch

        config = self.config
        rng = np.random.default_rng(config.stream_seed("order", state.epoch))
        dropout = self._dropout(state.epoch)
        weights = self.row_weights(rows)
        batches = random_batches(self.data.table, rows, config.batch_size, rng)
        for step, batch in enumerate(batches, start=1 + state.epoch * len(batches)):
            check_cancelled()
            warmup = min(1.0, step / config.warmup_steps)
            state.optimizer.param_groups[0]["lr"] = config.peak_learning_rate * warmup
            loss = self.batch_loss(state.network, batch, weights, rng, dropout)
            state.optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(state.network.parameters(), config.clip_norm)
            state.optimizer.step()
        state.epoch += 1

    def _dropout(self, epoch: int) -> Dropout:
        import torch

        generator = torch.Generator(self.device)
        generator.manual_seed(self.config.stream_seed("dropout", epoch))
        return partial(drop, share=self.config.dropout, generator=generator)


def drop(values: Any, share: float, generator: Any) -> Any:
    """Set a random share of the values to 0 and scale up the others."""
    import torch

    random = torch.rand(
        values.shape,
        generator=generator,
        device=values.device,
    )
    return values * (random >= share) / (1.0 - share)


def no_dropout(values: Any) -> Any:
    """Return the values: dropout outside training."""
    return values


@dataclass(frozen=True)
class TrainingJob:
    """One network of one split.

    `held_out` is a mask of the rows that the search holds out. Where it is empty, the network is
    trained for `unsearched_epochs`.
    """

    name: str
    title: str
    fold: int
    rows: IntArray
    queries: IntArray
    held_out: BoolArray
    task: TrainingTask
    store: CheckpointStore
    saved: Checkpoint
    unsearched_epochs: int


def plan_job(
    task: TrainingTask,
    name: str,
    title: str,
    fold: IntArray,
    number: int,
    held_out: BoolArray,
    key: dict[str, Any],
    options: TrainingOptions,
    unsearched_epochs: int = UNSEARCHED_EPOCHS,
) -> TrainingJob:
    """Plan the training for a split, and read what earlier runs saved of it.

    `fold` is the fold of each row, `number` that of the queries, `name` that of the kind of
    network. `key` is what decides the weights besides the configuration of the task.
    """
    import torch

    member = task.config.member
    facts = {
        "format": FORMAT,
        "config": asdict(task.config),
        "torch": torch.__version__,
        "device": options.device_type,
    }
    file_name = f"fold{number}-seed{member}-{name}"
    store = CheckpointStore(options.folder, file_name, facts | key)
    return TrainingJob(
        name=name,
        title=f"{title}, fold {number}, seed {member}",
        fold=number,
        rows=np.flatnonzero(fold != number),
        queries=np.flatnonzero(fold == number),
        held_out=held_out,
        task=task,
        store=store,
        saved=store.read(),
        unsearched_epochs=unsearched_epochs,
    )


def search(job: TrainingJob, token: CancelToken) -> list[float]:
    """Return the loss of the held-out rows after each epoch; empty if there are none."""
    if job.saved.phase != "search":
        return job.saved.losses
    task = job.task
    losses: list[float] = []
    if job.held_out.any():
        rows = job.rows[~job.held_out]
        held_out = job.rows[job.held_out]
        state = _start_phase(job, "search", rows, losses)
        losses = state.losses
        while state.epoch < task.config.epochs and not state.is_stale(
            task.config.patience
        ):
            task.run_epoch(rows, state, token.check_cancelled)
            scores = task.predict(state.network, held_out, token.check_cancelled)
            losses.append(task.loss(scores, held_out))
            _save_epoch(job, "search", state, token)
        best_epoch(losses, job.title)  # a search that diverged is not saved
    job.store.save(Checkpoint("searched", len(losses), losses), {})
    return losses


def train(job: TrainingJob, token: CancelToken) -> tuple[Any, int]:
    """Return a network trained on the whole support side, and its number of epochs."""
    losses = search(job, token)
    epochs = best_epoch(losses, job.title) if losses else job.unsearched_epochs
    if job.saved.phase == "finished":
        network = job.task.build()
        network.load_state_dict(job.store.read_tensors())
        return network.to(job.task.device), epochs
    state = _start_phase(job, "all", job.rows, losses)
    while state.epoch < epochs:
        job.task.run_epoch(job.rows, state, token.check_cancelled)
        _save_epoch(job, "all", state, token)
    weights = state.network.state_dict()
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise _diverged(job.title, f"its weights are not finite after {epochs} epochs")
    job.store.save(Checkpoint("finished", epochs, losses), weights)
    return state.network, epochs


def score_queries(job: TrainingJob, token: CancelToken) -> tuple[FloatArray, int]:
    """Return the scores of a split's queries by its network, and its number of epochs."""
    network, epochs = train(job, token)
    return job.task.predict(network, job.queries, token.check_cancelled), epochs


def _start_phase(
    job: TrainingJob, phase: str, rows: IntArray, losses: list[float]
) -> State:
    """Start a phase, or continue it from the last checkpoint."""
    state = job.task.start(rows)
    state.losses = losses
    if job.saved.phase == phase and job.saved.epoch:
        state.resume(job.saved, job.store.read_tensors())
    return state


def _save_epoch(job: TrainingJob, phase: str, state: State, token: CancelToken) -> None:
    job.store.save(Checkpoint(phase, state.epoch, state.losses), state.tensors())
    token.progress(0.0, f"{job.title}, {phase}: epoch {state.epoch}")
    token.check_cancelled()


def best_epoch(losses: Sequence[float], title: str = "network") -> int:
    """Return the number of epochs with the lowest finite loss.

    >>> best_epoch([1.1, 0.8, 0.9]), best_epoch([float("nan"), 0.8])
    (2, 2)
    """
    finite = np.isfinite(losses)
    if not finite.any():
        raise _diverged(
            title, "the loss of the held-out rows is not finite after any epoch"
        )
    return int(np.argmin(np.where(finite, losses, np.inf))) + 1


def _diverged(title: str, problem: str) -> InputError:
    hint = "look for extreme values in the training data or the initial weights"
    return InputError(f"{title}: the training diverged, {problem}; {hint}")


def mean_scores(
    jobs: Sequence[TrainingJob], outcomes: Outcomes
) -> Iterator[tuple[int, FloatArray]]:
    """Yield each fold and the scores of its queries, averaged over its networks."""
    for fold in sorted({job.fold for job in jobs}):
        pairs = zip(jobs, outcomes, strict=True)
        scores = [outcome[0] for job, outcome in pairs if job.fold == fold]
        yield fold, np.mean(scores, axis=0)


def describe_training(
    jobs: Sequence[TrainingJob], outcomes: Outcomes, start: float
) -> Metadata:
    """Return the epochs of each network by fold, the number of networks trained now, and the time.

    `start` is the monotonic time at the start.
    """
    epochs: dict[int, list[int]] = {}
    for job, outcome in zip(jobs, outcomes, strict=True):
        epochs.setdefault(job.fold, []).append(outcome[1])
    return {
        "epochs": list(epochs.values()),
        "trained": sum(job.saved.phase != "finished" for job in jobs),
        "seconds": time.monotonic() - start,
    }
