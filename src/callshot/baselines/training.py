"""Train networks in threads, with a number of epochs chosen on held-out recordings.

A training has two phases. `search` holds out an inner fold of recordings until the loss on it stops
falling: that gives the number of epochs. `all` trains again on the whole support side, for that
many epochs. A kind of network is a `TrainingTask`: its module, its batches, its loss.

Every random draw is a function of (seed, purpose, epoch), so the state of a training is its tensors
and its epoch, and an interrupted training ends with the same weights. torch uses one thread in each
of our threads, so results do not depend on the number of threads.

A training is saved as one safetensors file. Its header has the key, which is everything that
decides the weights, and how far the training is. The name ends in a hash of the key: another
corpus, configuration or version has another file. Files are checked before anything is trained; a
damaged one is an error and never overwritten.
"""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import CancelledError, as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Event, Lock
from typing import Any, TypeVar

import numpy as np

from callshot.baselines.sequence_batches import (
    BatchData,
    BoolArray,
    held_out_rows,
    random_batches,
)
from callshot.errors import InputError, OptionError, check_range
from callshot.files import atomic_path, error_reason, remove_unfinished, sha256_text
from callshot.jobs import Pool
from callshot.records import FloatArray, IntArray, Progress

FORMAT = 2  # of saved trainings; raise it if the same key would give other weights
HEADER = "callshot"  # one entry only: safetensors writes several in random order
MIN_EXAMPLES = 2  # of each class on the support side of a split
OPTIMIZER_STATE = ("step", "exp_avg", "exp_avg_sq")  # of AdamW, for each parameter
UNSEARCHED_EPOCHS = 20  # where nothing can be held out

Dropout = Callable[[Any], Any]
Metadata = dict[str, Any]
Outcome = TypeVar("Outcome")
Tensors = Mapping[str, Any]


@dataclass(frozen=True)
class TrainingOptions:
    """Options of all network baselines.

    `seeds` is the number of networks to average. `threads` is the number of networks to train at a
    time. `folder` keeps trained networks and the state after each epoch; None keeps nothing.
    """

    seeds: int = 1
    device: str = "cpu"
    threads: int = 1
    folder: Path | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        check_range("seeds", self.seeds, 1)
        check_range("threads", self.threads, 1)
        if self.device_type not in ("cpu", "cuda"):
            raise OptionError(f"device: expected cpu or cuda, got {self.device!r}")

    @property
    def device_type(self) -> str:
        """The type of device, which decides the last digits; its number does not."""
        return self.device.partition(":")[0]


DEFAULT_OPTIONS = TrainingOptions()


def require_torch(device: str = "cpu") -> None:
    """Check that torch and safetensors are installed and that torch can use the device."""
    try:
        import safetensors  # noqa: F401
        import torch
    except ImportError as error:
        message = f"{error.name} is not installed; pip install 'callshot[baselines]'"
        raise InputError(f"trained networks: {message}") from error
    if device.startswith("cuda") and not torch.cuda.is_available():
        raise OptionError("device: torch finds no CUDA device; use cpu")


def check_lengths(rows: int, **lengths: int) -> None:
    """Check that each input has one item per row."""
    for name, length in lengths.items():
        if length != rows:
            raise InputError(
                f"{name}: expected one for each of {rows} rows, got {length}"
            )


def check_examples(truth: BoolArray, fold: IntArray, names: Sequence[str]) -> None:
    """Check that each class has enough examples on the support side of every split."""
    for number in range(int(fold.max()) + 1):
        counts = truth[fold != number].sum(axis=0)
        for name, count in zip(names, counts.tolist(), strict=True):
            if count < MIN_EXAMPLES:
                raise InputError(
                    f"class '{name}': expected at least {MIN_EXAMPLES} examples on the support "
                    f"side of fold {number} to train a network, got {count}; label more, or leave "
                    "the class out"
                )


# Jobs in threads.


@dataclass(frozen=True)
class CancelToken:
    """Receives the progress of jobs, and stops them all."""

    progress: Progress
    stopped: Event = field(default_factory=Event)
    saving: Lock = field(default_factory=Lock)

    def check_cancelled(self, *_: Any) -> None:
        """Raise CancelledError if another job failed, or the user stopped all of them."""
        if self.stopped.is_set():
            raise CancelledError

    @contextmanager
    def hold_saving(self) -> Iterator[None]:
        """Let a job write a file in the block, unless all jobs are to stop."""
        with self.saving:
            self.check_cancelled()
            yield


def run_jobs(
    jobs: Sequence[Any],
    work: Callable[[Any, CancelToken], Outcome],
    threads: int,
    progress: Progress,
) -> list[Outcome]:
    """Run all jobs, several at a time, and return their outcomes in order.

    If one fails, the others stop after their current batch. On a GPU each job has its own stream,
    so that none waits.
    """
    import torch

    def run(job: Any) -> Outcome:
        token.check_cancelled()
        stream: Any = nullcontext()
        if job.task.device.type == "cuda":
            stream = torch.cuda.stream(torch.cuda.Stream(job.task.device))
        try:
            with stream:
                return work(job, token)
        except BaseException:
            token.stopped.set()
            raise

    with _reproducible_torch(), Pool(threads, initializer=_use_one_thread) as pool:
        token = CancelToken(progress, pool.stopped)
        futures = {pool.submit(run, job): job for job in jobs}
        try:
            for future in as_completed(futures):
                if isinstance(future.exception(), CancelledError):
                    continue  # the job that failed reports why
                future.result()
                progress(1 / len(jobs), futures[future].title)
        except BaseException:
            token.stopped.set()
            with token.saving:  # no job writes a file after this
                pass
            raise
    return [future.result() for future in futures]


@contextmanager
def _reproducible_torch() -> Iterator[None]:
    """Set everything in torch that decides the last digits while the block runs.

    With one thread, sums have one order; with full precision on a GPU, a row does not depend on the
    other rows of its batch. oneDNN is switched on, because torch switches it off for the rest of
    the process after a product of bfloat16 numbers on a CPU that cannot multiply them.
    """
    import torch

    rnn = torch.backends.cudnn.rnn
    onednn: Any = torch.backends.mkldnn
    threads = torch.get_num_threads()
    precision = rnn.fp32_precision
    enabled = onednn.enabled
    torch.set_num_threads(1)
    rnn.fp32_precision = "ieee"
    onednn.enabled = True
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        rnn.fp32_precision = precision
        onednn.enabled = enabled


def _use_one_thread() -> None:
    """Give torch one thread in this thread, whatever other threads set later.

    torch reads the number that was set last, in any thread, when a thread first needs it. So the
    number is asked for, and then set.
    """
    import torch

    torch.get_num_threads()
    torch.set_num_threads(1)


# Saved trainings.


@dataclass(frozen=True)
class Checkpoint:
    """How far a training is.

    `phase` is `search` (for the number of epochs), `searched`, `all` (training on all rows) or
    `finished`, `epoch` the number of epochs of this phase. `losses` are those of the held-out rows
    after each epoch of the search.
    """

    phase: str = "search"
    epoch: int = 0
    losses: list[float] = field(default_factory=list)


@dataclass(frozen=True)
class CheckpointStore:
    """The file of one training; without a folder nothing is saved."""

    folder: Path | None
    name: str
    key: Mapping[str, Any]

    @property
    def path(self) -> Path:
        """The path of the file."""
        digest = sha256_text(json.dumps(self.key, sort_keys=True))
        return Path(self.folder or "") / f"{self.name}-{digest[:16]}.safetensors"

    def read(self) -> tuple[Checkpoint, Tensors]:
        """Return how far earlier runs got, and the tensors, after checking the file.

        Unfinished files are removed.
        """
        if self.folder is None:
            return Checkpoint(), {}
        remove_unfinished(self.folder, f"{self.path.stem}*")
        if not self.path.exists():
            return Checkpoint(), {}
        from safetensors import safe_open

        advice = "remove it to train again"
        try:
            with safe_open(self.path, framework="pt") as file:
                names = file.keys()
                # Copies, because the tensors themselves would keep the file open.
                tensors = {name: file.get_tensor(name).clone() for name in names}
                facts = json.loads(file.metadata()[HEADER])
            del facts["key"]
            checksum = facts.pop("sha256")
        except Exception as error:  # safetensors has its own errors
            problem = f"cannot be read ({error_reason(error)})"
            raise InputError(f"{self.path}: {problem}; {advice}") from error
        if checksum != self._checksum(facts, tensors):
            problem = "expected content with the checksum in its header, got another"
            raise InputError(f"{self.path}: {problem}; {advice}")
        return Checkpoint(**facts), tensors

    def save(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        """Write the file in place of the previous one."""
        if self.folder is None:
            return
        from safetensors.torch import save

        arrays = {name: tensor.cpu() for name, tensor in tensors.items()}
        facts = asdict(checkpoint)
        header = {"key": self.key, **facts, "sha256": self._checksum(facts, arrays)}
        text = json.dumps(header, sort_keys=True)
        with atomic_path(self.path) as temporary:
            self.folder.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(save(arrays, {HEADER: text}))

    def _checksum(self, facts: Mapping[str, Any], tensors: Tensors) -> str:
        """Return a hash of the content and the name, which has a hash of the key."""
        text = json.dumps(facts, sort_keys=True)
        digest = sha256(f"{self.path.name} {text}".encode())
        for name, tensor in sorted(tensors.items()):
            digest.update(f"{name} {tuple(tensor.shape)}".encode())
            digest.update(tensor.numpy().tobytes())
        return digest.hexdigest()


# What is trained.


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
        digest = sha256(text.encode()).digest()
        return int.from_bytes(digest[:8], "little") >> 1

    def held_out(self, label: IntArray, groups: IntArray) -> BoolArray:
        """Return a mask of the rows that the search holds out."""
        number = self.member % self.inner_folds
        return held_out_rows(label, groups, self.inner_folds, number)


@dataclass
class State:
    """A training between two epochs; `losses` are those of the held-out rows after each."""

    network: Any
    optimizer: Any
    epoch: int = 0
    losses: list[float] = field(default_factory=list)

    def is_stale(self, patience: int) -> bool:
        """Return whether the loss has not fallen for `patience` epochs."""
        return self.epoch - best_epoch(self.losses) >= patience

    def tensors(self) -> Tensors:
        """Return all tensors of the network and the optimizer."""
        tensors = dict(self.network.state_dict())
        slots = self.optimizer.state_dict()["state"]
        for number, values in slots.items():
            for name in OPTIMIZER_STATE:
                tensors[f"optimizer.{number}.{name}"] = values[name]
        return tensors

    def resume(self, checkpoint: Checkpoint, tensors: Tensors) -> None:
        """Continue from a checkpoint and its tensors."""
        self.epoch = checkpoint.epoch
        self.losses = checkpoint.losses
        weights = {name: tensors[name] for name in self.network.state_dict()}
        self.network.load_state_dict(weights)
        optimizer = self.optimizer.state_dict()
        for number in optimizer["param_groups"][0]["params"]:
            slots = {}
            for name in OPTIMIZER_STATE:
                slots[name] = tensors[f"optimizer.{number}.{name}"]
            optimizer["state"][number] = slots
        self.optimizer.load_state_dict(optimizer)


def best_epoch(losses: list[float]) -> int:
    """Return the number of epochs with the lowest finite loss; 0 if no loss is finite.

    >>> best_epoch([1.1, 0.8, 0.9]), best_epoch([float("nan"), 0.8]), best_epoch([])
    (2, 2, 0)
    """
    if not np.isfinite(losses).any():
        return 0
    return int(np.nanargmin(losses)) + 1


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
    def predict(self, network: Any, rows: IntArray) -> FloatArray:
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
            network = self.build()
        return sum(tensor.numel() for tensor in network.parameters())

    def start(self, rows: IntArray) -> State:
        """Return a network with its first weights, and an optimizer."""
        import torch

        network = self.build()
        with torch.no_grad():
            self.initialize(network, rows)
        network.to(self.device)
        optimizer = torch.optim.AdamW(
            network.parameters(), weight_decay=self.config.weight_decay, fused=True
        )
        return State(network, optimizer)

    def run_epoch(self, rows: IntArray, state: State) -> None:
        """Train for one epoch."""
        import torch

        config = self.config
        network = state.network
        optimizer = state.optimizer
        rng = np.random.default_rng(config.stream_seed("order", state.epoch))
        generator = torch.Generator(self.device)
        generator.manual_seed(config.stream_seed("dropout", state.epoch))

        def drop(values: Any) -> Any:
            """Set a random share of the values to 0 and scale up the others."""
            random = torch.rand(values.shape, generator=generator, device=values.device)
            return values * (random >= config.dropout) / (1.0 - config.dropout)

        weights = self.row_weights(rows)
        batches = random_batches(self.data.table, rows, config.batch_size, rng)
        first_step = 1 + state.epoch * len(batches)
        for step, batch in enumerate(batches, first_step):
            loss = self.batch_loss(network, batch, weights, rng, drop)
            warmup = min(1.0, step / config.warmup_steps)
            optimizer.param_groups[0]["lr"] = config.peak_learning_rate * warmup
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
            optimizer.step()
        state.epoch += 1


def no_dropout(values: Any) -> Any:
    """Return the values: dropout outside training."""
    return values


# Training.


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

    def save(
        self, checkpoint: Checkpoint, tensors: Tensors, token: CancelToken
    ) -> None:
        """Write how far the training is, unless all jobs are to stop."""
        with token.hold_saving():
            self.store.save(checkpoint, tensors)

    def start_phase(self, phase: str, rows: IntArray, token: CancelToken) -> State:
        """Start a phase, or continue it from the checkpoint; it can stop before each batch."""
        state = self.task.start(rows)
        state.network.register_forward_pre_hook(token.check_cancelled)
        if self.saved.phase == phase and self.saved.epoch:
            checkpoint, tensors = self.store.read()
            if tensors:  # otherwise the file is gone since: train from the start
                state.resume(checkpoint, tensors)
        return state

    def end_epoch(self, phase: str, state: State, token: CancelToken) -> None:
        """Save and report an epoch."""
        checkpoint = Checkpoint(phase, state.epoch, state.losses)
        self.save(checkpoint, state.tensors(), token)
        token.progress(0.0, f"{self.title}, {phase}: epoch {state.epoch}")
        token.check_cancelled()

    def diverged(self, problem: str) -> InputError:
        """Return the error of a training that diverged."""
        hint = "look for extreme values in the training data or the initial weights"
        return InputError(f"{self.title}: the training diverged, {problem}; {hint}")


def plan_job(
    task: TrainingTask,
    name: str,
    title: str,
    fold: IntArray,
    number: int,
    held_out: BoolArray,
    key: Metadata,
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
    saved, _ = store.read()
    return TrainingJob(
        name=name,
        title=f"{title}, fold {number}, seed {member}",
        fold=number,
        rows=np.flatnonzero(fold != number),
        queries=np.flatnonzero(fold == number),
        held_out=held_out,
        task=task,
        store=store,
        saved=saved,
        unsearched_epochs=unsearched_epochs,
    )


def search(job: TrainingJob, token: CancelToken) -> list[float]:
    """Return the loss of the held-out rows after each epoch; empty if there are none.

    The network is trained without these rows until their loss stops falling.
    """
    if job.saved.phase != "search":
        return job.saved.losses
    losses: list[float] = []
    if job.held_out.any():
        task = job.task
        rows = job.rows[~job.held_out]
        held_out = job.rows[job.held_out]
        state = job.start_phase("search", rows, token)
        losses = state.losses
        while state.epoch < task.config.epochs:
            if state.is_stale(task.config.patience):
                break
            task.run_epoch(rows, state)
            scores = task.predict(state.network, held_out)
            losses.append(task.loss(scores, held_out))
            job.end_epoch("search", state, token)
        if best_epoch(losses) == 0:
            problem = "the loss of the held-out rows is not finite after any epoch"
            raise job.diverged(problem)
    job.save(Checkpoint("searched", len(losses), losses), {}, token)
    return losses


def score_queries(job: TrainingJob, token: CancelToken) -> tuple[FloatArray, int]:
    """Return the scores of a split's queries, and the number of epochs.

    The network is trained on the whole support side.
    """
    losses = search(job, token)
    task = job.task
    epochs = best_epoch(losses) or job.unsearched_epochs
    if job.saved.phase == "finished":
        network = task.build()
        network.register_forward_pre_hook(token.check_cancelled)
        _, tensors = job.store.read()
        network.load_state_dict(tensors)
        return task.predict(network.to(task.device), job.queries), epochs
    state = job.start_phase("all", job.rows, token)
    state.losses = losses
    while state.epoch < epochs:
        task.run_epoch(job.rows, state)
        job.end_epoch("all", state, token)
    weights = state.network.state_dict()
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise job.diverged(f"its weights are not finite after {epochs} epochs")
    job.save(Checkpoint("finished", epochs, losses), weights, token)
    return task.predict(state.network, job.queries), epochs


def run_trainings(
    jobs: Sequence[TrainingJob], options: TrainingOptions, progress: Progress
) -> tuple[dict[int, FloatArray], Metadata]:
    """Train all networks; return the mean scores of each fold's queries, and metadata.

    The metadata has the epochs of each network by fold, and the number of networks trained now.
    """
    outcomes = run_jobs(jobs, score_queries, options.threads, progress)
    scores: dict[int, list[FloatArray]] = {}
    epochs: dict[int, list[int]] = {}
    for job, (job_scores, job_epochs) in zip(jobs, outcomes, strict=True):
        scores.setdefault(job.fold, []).append(job_scores)
        epochs.setdefault(job.fold, []).append(job_epochs)
    means = {fold: np.mean(tables, axis=0) for fold, tables in scores.items()}
    metadata = {
        "seeds": options.seeds,
        "device": options.device,
        "epochs": list(epochs.values()),
        "trained": sum(job.saved.phase != "finished" for job in jobs),
    }
    return means, metadata
