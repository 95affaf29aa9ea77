"""Train networks in threads, with a number of epochs chosen on held-out recordings.

A training has two phases. `search` holds out an inner fold of recordings until the loss on it stops
falling: that gives the number of epochs. `all` trains again on the whole support side. A kind of
network is a torch module that is made of its data and its configuration, with

    initialize(rows)                     set its first weights, before training on some rows
    losses(rows, batches, rng, dropout)  yield the loss of each batch; classes of the rows balanced
    predict(rows)                        return the scores of some rows, (rows, outputs)
    loss(scores, rows)                   return the balanced loss of scores of held-out rows

Every random draw is a function of (seed, purpose, epoch), so an interrupted training ends with the
same weights. torch uses one thread in each of our threads, so their number changes no result.

A training is saved as one safetensors file. Its header has the key, which is everything that
decides the weights, and how far the training is; its name ends in a hash of the key. Files are
checked before anything is trained; a damaged one is an error and never overwritten.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from callshot.baselines.sequence_batches import (
    BatchData,
    BoolArray,
    held_out_rows,
    random_batches,
)
from callshot.errors import InputError, OptionError
from callshot.fewshot.gpu.device import network_device
from callshot.files import atomic_path, error_reason, remove_unfinished, sha256_text
from callshot.jobs import Pool
from callshot.records import FloatArray, IntArray, Progress, no_progress

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
class TrainingContext:
    """Seed, device, threads, the folder that keeps trainings (None keeps nothing), and who watches.

    The device is auto, cpu or cuda: with auto, fits at every k run on a GPU if there is one, and
    networks on the CPU. `progress` is also called from other threads.
    """

    seed: int = 0
    device: str = "cpu"
    threads: int | None = None
    folder: Path | None = None
    progress: Progress = no_progress

    def for_share(self, share: float) -> "TrainingContext":
        """Return the context of a part of the work, whose progress is `share` of that of all."""

        def progress(done: float, what: str) -> None:
            self.progress(share * done, what)

        return replace(self, progress=progress)

    @property
    def network_device(self) -> str:
        """Where networks run: cpu or cuda."""
        return network_device(self.device)


DEFAULT_CONTEXT = TrainingContext(threads=1)


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


def check_length(name: str, length: int, rows: int) -> None:
    """Check that an input has one item per row."""
    if length != rows:
        raise InputError(f"{name}: expected one for each of {rows} rows, got {length}")


def check_examples(truth: BoolArray, fold: IntArray, names: Sequence[str]) -> None:
    """Check that each class of `truth` (rows, classes) has enough examples outside every fold.

    `fold` is the fold of each row, numbered from 0; `names` are of the classes.
    """
    for number in range(int(fold.max()) + 1):
        counts = truth[fold != number].sum(axis=0)
        for name, count in zip(names, counts.tolist(), strict=True):
            if count < MIN_EXAMPLES:
                raise InputError(
                    f"class '{name}': expected at least {MIN_EXAMPLES} examples on the support "
                    f"side of fold {number} to train a network, got {count}; label more, or leave "
                    "the class out"
                )


def run_jobs(
    jobs: Sequence[Any], work: Callable[[Any, Pool], Outcome], context: TrainingContext
) -> list[Outcome]:
    """Call work(job, pool) for all jobs, several at a time; return the outcomes in order.

    If one fails, the others stop after their current batch. On a GPU each job has its own stream
    (a queue of kernels), so that jobs do not wait for each other.
    """
    import torch

    def run(job: Any) -> Outcome:
        """Do one job; on a GPU, on a stream of its own."""
        stream = nullcontext()
        if job.data.device.type == "cuda":
            stream = torch.cuda.stream(torch.cuda.Stream(job.data.device))
        with stream:
            return work(job, pool)

    with (
        _reproducible_torch(),
        Pool(context.threads, initializer=_use_one_thread) as pool,
    ):
        futures = {pool.submit(run, job): job for job in jobs}
        for future in as_completed(futures):
            future.result()  # an error stops the other jobs
            context.progress(1 / len(jobs), futures[future].title)
    return [future.result() for future in futures]


@contextmanager
def _reproducible_torch() -> Iterator[None]:
    """Set what decides the last digits of recurrent networks in torch while the block runs.

    With one thread, sums have one order; with full precision on a GPU, a row does not depend on the
    others of its batch.
    """
    import torch

    rnn = torch.backends.cudnn.rnn
    onednn = torch.backends.mkldnn
    threads = torch.get_num_threads()
    precision = rnn.fp32_precision
    enabled = onednn.enabled
    torch.set_num_threads(1)
    rnn.fp32_precision = "ieee"  # full precision, not TF32
    # torch switches it off for good after bfloat16 products on a CPU that has none.
    onednn.enabled = True
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        rnn.fp32_precision = precision
        onednn.enabled = enabled


def _use_one_thread() -> None:
    """Give torch one thread here; asked first, because torch reads the number at first use."""
    import torch

    torch.get_num_threads()
    torch.set_num_threads(1)


@dataclass(frozen=True)
class Checkpoint:
    """How far a training is.

    phase   `search` for the number of epochs, `searched` (that has ended), `all` (the training on
            all rows of the support side) or `finished`
    epoch   the epochs of this phase that are done
    losses  of held-out rows, after each epoch of the search
    """

    phase: str = "search"
    epoch: int = 0
    losses: list[float] = field(default_factory=list)


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
        return int.from_bytes(digest[:8], "little") >> 1  # 63 bits: a signed number


def best_epoch(losses: list[float]) -> int:
    """Return the number of epochs with the lowest finite loss; 0 if no loss is finite.

    >>> best_epoch([1.1, 0.8, 0.9]), best_epoch([float("nan"), 0.8]), best_epoch([])
    (2, 2, 0)
    """
    if not np.isfinite(losses).any():
        return 0
    return int(np.nanargmin(losses)) + 1


def start_training(network: Any, rows: IntArray) -> Any:
    """Give a network its first weights, move it to its device, and return an optimizer."""
    import torch

    with torch.no_grad():
        network.initialize(rows)
    network.to(network.data.device)
    return torch.optim.AdamW(
        network.parameters(), weight_decay=network.config.weight_decay, fused=True
    )


def run_epoch(network: Any, optimizer: Any, rows: IntArray, epoch: int) -> None:
    """Train a network on some rows for one epoch; its number decides all random draws."""
    import torch

    config = network.config
    rng = np.random.default_rng(config.stream_seed("order", epoch))
    generator = torch.Generator(network.data.device)
    generator.manual_seed(config.stream_seed("dropout", epoch))

    def drop(values: Any) -> Any:
        """Set a random share of the values to 0, and scale up the others: dropout."""
        random = torch.rand(values.shape, generator=generator, device=values.device)
        is_kept = random >= config.dropout
        share_kept = 1.0 - config.dropout
        return values * is_kept / share_kept

    batches = random_batches(network.data.table, rows, config.batch_size, rng)
    losses = network.losses(rows, batches, rng, drop)
    first_step = 1 + epoch * len(batches)  # counted from the first epoch on
    for step, loss in enumerate(losses, first_step):
        warmup = min(1.0, step / config.warmup_steps)
        optimizer.param_groups[0]["lr"] = config.peak_learning_rate * warmup
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(network.parameters(), config.clip_norm)
        optimizer.step()


def gather_tensors(network: Any, optimizer: Any) -> dict[str, Any]:
    """Return the tensors of a network and its optimizer by name, as a file has them.

    Those of the optimizer are `optimizer.NUMBER OF THE PARAMETER.NAME`.
    """
    tensors = dict(network.state_dict())
    for number, values in optimizer.state_dict()["state"].items():
        for name in OPTIMIZER_STATE:
            tensors[f"optimizer.{number}.{name}"] = values[name]
    return tensors


def load_tensors(network: Any, optimizer: Any, tensors: Tensors) -> None:
    """Set a network and its optimizer to what `gather_tensors` returned."""
    network.load_state_dict({name: tensors[name] for name in network.state_dict()})
    state = optimizer.state_dict()
    for number in state["param_groups"][0]["params"]:
        state["state"][number] = {
            name: tensors[f"optimizer.{number}.{name}"] for name in OPTIMIZER_STATE
        }
    optimizer.load_state_dict(state)


def no_dropout(values: Any) -> Any:
    """Return the values: dropout outside training."""
    return values


@dataclass(frozen=True)
class TrainingJob:
    """One network of one split: on which rows it is trained, and the file that keeps it.

    `make` makes a network of the data and the configuration. The network is trained on the rows
    outside `query_fold`. `kind` is its name in messages, `name` in files. `facts` are what decides
    the weights besides the configuration, `saved` is how far earlier runs got.
    """

    make: Callable[[BatchData, Any], Any]
    data: BatchData
    config: Any  # a TrainingConfig with the sizes of the network
    name: str
    kind: str
    fold: IntArray
    query_fold: int
    facts: Metadata
    context: TrainingContext
    saved: Checkpoint = field(init=False)

    def __post_init__(self) -> None:
        # A damaged file is an error before anything is trained.
        object.__setattr__(self, "saved", self.read()[0])

    @property
    def title(self) -> str:
        """What messages call it."""
        return f"{self.kind}, fold {self.query_fold}, seed {self.config.member}"

    @property
    def parameters(self) -> int:
        """The number of trained parameters."""
        import torch

        with torch.device("meta"):  # shapes without memory
            network = self.make(self.data, self.config)
        return sum(tensor.numel() for tensor in network.parameters())

    @cached_property
    def rows(self) -> IntArray:
        """The rows on the support side."""
        return np.flatnonzero(self.fold != self.query_fold)

    @cached_property
    def held_out(self) -> BoolArray:
        """Whether the search for the number of epochs holds out each of the rows."""
        config = self.config
        label = self.data.classes(self.rows)
        groups = self.data.groups[self.rows]
        inner_fold = config.member % config.inner_folds
        return held_out_rows(label, groups, config.inner_folds, inner_fold)

    @cached_property
    def key(self) -> Metadata:
        """Everything that decides the weights."""
        import torch

        return {
            "format": FORMAT,
            "config": asdict(self.config),
            "torch": torch.__version__,
            "device": self.context.network_device,
            **self.facts,
        }

    @cached_property
    def path(self) -> Path:
        """The path of the file."""
        text = json.dumps(self.key, sort_keys=True)
        digest = sha256_text(text)[:16]
        place = f"fold{self.query_fold}-seed{self.config.member}"
        folder = Path(self.context.folder or "")
        return folder / f"{place}-{self.name}-{digest}.safetensors"

    def read(self) -> tuple[Checkpoint, Tensors]:
        """Return how far earlier runs got, and the tensors they saved, after checking the file."""
        if self.context.folder is None:
            return Checkpoint(), {}
        remove_unfinished(self.context.folder, f"{self.path.stem}*")
        if not self.path.exists():
            return Checkpoint(), {}
        from safetensors import safe_open

        try:
            with safe_open(self.path, framework="pt") as file:
                names = file.keys()
                # Copies, because the tensors themselves would keep the file open.
                tensors = {name: file.get_tensor(name).clone() for name in names}
                facts = json.loads(file.metadata()[HEADER])
            del facts["key"]  # the name of the file has its hash
            if facts.pop("sha256") != self._checksum(facts, tensors):
                raise ValueError("expected content with the checksum in its header")
            return Checkpoint(**facts), tensors
        except Exception as error:  # safetensors has its own errors
            problem = f"cannot be read ({error_reason(error)})"
            raise InputError(
                f"{self.path}: {problem}; remove it to train again"
            ) from error

    def save(self, checkpoint: Checkpoint, tensors: Tensors, pool: Pool) -> None:
        """Write how far the training is, and its tensors; raise if all jobs are to stop."""
        pool.check_stopped()
        if self.context.folder is None:
            return
        from safetensors.torch import save

        arrays = {name: tensor.cpu() for name, tensor in tensors.items()}
        facts = asdict(checkpoint)
        header = {"key": self.key, **facts, "sha256": self._checksum(facts, arrays)}
        text = json.dumps(header, sort_keys=True)
        with atomic_path(self.path) as temporary:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(save(arrays, {HEADER: text}))

    def _checksum(self, facts: Metadata, tensors: Tensors) -> str:
        """Return a hash of the content and of the file's name, which has a hash of the key."""
        from safetensors.torch import save

        text = f"{self.path.name} {json.dumps(facts, sort_keys=True)}"
        return sha256(text.encode() + save(dict(tensors))).hexdigest()

    def train(
        self,
        phase: str,
        rows: IntArray,
        epochs: int,
        losses: list[float],
        pool: Pool,
        held_out: IntArray | None = None,
    ) -> tuple[Any, list[float]]:
        """Train on some rows for up to `epochs`; return the network and held-out losses.

        A `phase` (`search` or `all`) that was saved is continued. Held-out rows add a loss to
        `losses` after each epoch, and the phase ends when it stops falling; without them, `losses`
        are those of the search, and are only saved. The training can stop before each batch, and is
        saved after each epoch.
        """
        network = self.make(self.data, self.config)
        optimizer = start_training(network, rows)
        # Called before each batch: raises if all jobs are to stop.
        network.register_forward_pre_hook(lambda *_: pool.check_stopped())
        epoch = 0
        tensors: Tensors = {}
        if self.saved.phase == phase and self.saved.epoch:
            checkpoint, tensors = self.read()
        if tensors:  # otherwise a file that was there is gone: train from the start
            epoch = checkpoint.epoch
            losses = checkpoint.losses
            load_tensors(network, optimizer, tensors)
        while epoch < epochs:
            epochs_since_best = epoch - best_epoch(losses)
            is_stale = epochs_since_best >= self.config.patience
            if held_out is not None and is_stale:
                break
            run_epoch(network, optimizer, rows, epoch)
            epoch += 1
            if held_out is not None:
                scores = network.predict(held_out)
                losses.append(network.loss(scores, held_out))
            tensors = gather_tensors(network, optimizer)
            self.save(Checkpoint(phase, epoch, losses), tensors, pool)
            self.context.progress(0.0, f"{self.title}, {phase}: epoch {epoch}")
            pool.check_stopped()
        return network, losses

    def diverged(self, problem: str) -> InputError:
        """Return the error of a training that diverged."""
        hint = "look for extreme values in the training data or the initial weights"
        return InputError(f"{self.title}: the training diverged, {problem}; {hint}")


def search(job: TrainingJob, pool: Pool) -> list[float]:
    """Train on the other rows until the loss of the held-out rows stops falling.

    Return that loss after each epoch: an empty list if nothing can be held out. A search that an
    earlier run ended is not done again.
    """
    if job.saved.phase != "search":
        return job.saved.losses
    losses: list[float] = []
    if job.held_out.any():
        rows = job.rows[~job.held_out]
        held_out = job.rows[job.held_out]
        epochs = job.config.epochs
        _, losses = job.train("search", rows, epochs, losses, pool, held_out)
        if best_epoch(losses) == 0:
            problem = "the loss of the held-out rows is not finite after any epoch"
            raise job.diverged(problem)
    job.save(Checkpoint("searched", len(losses), losses), tensors={}, pool=pool)
    return losses


def score_queries(job: TrainingJob, pool: Pool) -> tuple[FloatArray, int]:
    """Train a network for the best number of epochs, or read it; return scores (queries, outputs).

    Also return the number of epochs.
    """
    losses = search(job, pool)  # gives the number of epochs
    epochs = best_epoch(losses) or UNSEARCHED_EPOCHS
    if job.saved.phase == "finished":
        network = job.make(job.data, job.config)
        network.register_forward_pre_hook(lambda *_: pool.check_stopped())
        _, weights = job.read()
        network.load_state_dict(weights)
        network.to(job.data.device)
    else:
        network, _ = job.train("all", job.rows, epochs, losses, pool)
        weights = network.state_dict()
        if not all(tensor.isfinite().all() for tensor in weights.values()):
            raise job.diverged(f"its weights are not finite after {epochs} epochs")
        job.save(Checkpoint("finished", epochs, losses), weights, pool)
    queries = np.flatnonzero(job.fold == job.query_fold)
    return network.predict(queries), epochs


def run_trainings(
    jobs: Sequence[TrainingJob], context: TrainingContext
) -> tuple[FloatArray, Metadata]:
    """Train all networks; return the mean scores (rows, outputs) of all queries, and metadata.

    The networks of one fold are averaged; rows of the common fold are NaN.
    """
    outcomes = run_jobs(jobs, score_queries, context)
    # By fold, of each of its networks.
    scores_by_fold: dict[int, list[FloatArray]] = {}
    epochs: dict[int, list[int]] = {}
    for job, (job_scores, job_epochs) in zip(jobs, outcomes, strict=True):
        scores_by_fold.setdefault(job.query_fold, []).append(job_scores)
        epochs.setdefault(job.query_fold, []).append(job_epochs)
    fold = jobs[0].fold
    first_scores, _ = outcomes[0]
    outputs = first_scores.shape[1]
    scores = np.full((len(fold), outputs), np.nan)
    for query_fold, scores_of_networks in scores_by_fold.items():
        scores[fold == query_fold] = np.mean(scores_of_networks, axis=0)
    metadata = {
        "device": context.network_device,
        "epochs": list(epochs.values()),
        # `saved` is as it was before this run.
        "trained": sum(job.saved.phase != "finished" for job in jobs),
    }
    return scores, metadata
