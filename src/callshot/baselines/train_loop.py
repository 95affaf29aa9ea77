"""Train networks, with a number of epochs chosen on held-out recordings.

A training has two phases. `search` holds out an inner fold of recordings until the loss on it stops
falling: that gives the number of epochs. `all` trains again on the whole support side, for that
many epochs.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from callshot.baselines.checkpoints import Checkpoint, CheckpointStore, Tensors
from callshot.baselines.executor import CancelToken, TrainingOptions, run_jobs
from callshot.baselines.sequence_batches import BoolArray
from callshot.baselines.training_task import State, TrainingTask, best_epoch
from callshot.errors import InputError
from callshot.records import FloatArray, IntArray, Progress

FORMAT = 2  # of saved trainings; raise it if the same key would give other weights
UNSEARCHED_EPOCHS = 20  # where nothing can be held out
Metadata = dict[str, Any]
Outcome = tuple[FloatArray, int]  # scores of the queries, and the number of epochs


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
    losses: list[float] = []
    if job.held_out.any():
        losses = _search_epochs(job, token)
    _save(job, Checkpoint("searched", len(losses), losses), {}, token)
    return losses


def _search_epochs(job: TrainingJob, token: CancelToken) -> list[float]:
    """Train without the held-out rows until their loss stops falling."""
    task = job.task
    rows = job.rows[~job.held_out]
    held_out = job.rows[job.held_out]
    state = _start_phase(job, "search", rows, token)
    while state.epoch < task.config.epochs:
        if state.is_stale(task.config.patience):
            break
        task.run_epoch(rows, state)
        scores = task.predict(state.network, held_out)
        state.losses.append(task.loss(scores, held_out))
        _save_epoch(job, "search", state, token)
    if best_epoch(state.losses) == 0:
        problem = "the loss of the held-out rows is not finite after any epoch"
        raise _diverged(job, problem)
    return state.losses


def train(job: TrainingJob, token: CancelToken) -> tuple[Any, int]:
    """Return a network trained on the whole support side, and its number of epochs."""
    losses = search(job, token)
    epochs = best_epoch(losses) or job.unsearched_epochs
    if job.saved.phase == "finished":
        network = job.task.build()
        network.register_forward_pre_hook(token.check_cancelled)
        network.load_state_dict(job.store.read_tensors())
        return network.to(job.task.device), epochs
    state = _start_phase(job, "all", job.rows, token)
    state.losses = losses
    while state.epoch < epochs:
        job.task.run_epoch(job.rows, state)
        _save_epoch(job, "all", state, token)
    weights = state.network.state_dict()
    if not all(tensor.isfinite().all() for tensor in weights.values()):
        raise _diverged(job, f"its weights are not finite after {epochs} epochs")
    _save(job, Checkpoint("finished", epochs, losses), weights, token)
    return state.network, epochs


def score_queries(job: TrainingJob, token: CancelToken) -> Outcome:
    """Return the scores of a split's queries by its network, and its number of epochs."""
    network, epochs = train(job, token)
    return job.task.predict(network, job.queries), epochs


def _start_phase(
    job: TrainingJob, phase: str, rows: IntArray, token: CancelToken
) -> State:
    """Start a phase, or continue it from the last checkpoint; it can stop before each batch."""
    state = job.task.start(rows)
    state.network.register_forward_pre_hook(token.check_cancelled)
    if job.saved.phase == phase and job.saved.epoch:
        state.resume(job.saved, job.store.read_tensors())
    return state


def _save_epoch(job: TrainingJob, phase: str, state: State, token: CancelToken) -> None:
    checkpoint = Checkpoint(phase, state.epoch, state.losses)
    _save(job, checkpoint, state.tensors(), token)
    token.progress(0.0, f"{job.title}, {phase}: epoch {state.epoch}")
    token.check_cancelled()


def _save(
    job: TrainingJob, checkpoint: Checkpoint, tensors: Tensors, token: CancelToken
) -> None:
    with token.hold_saving():
        job.store.save(checkpoint, tensors)


def _diverged(job: TrainingJob, problem: str) -> InputError:
    hint = "look for extreme values in the training data or the initial weights"
    return InputError(f"{job.title}: the training diverged, {problem}; {hint}")


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
