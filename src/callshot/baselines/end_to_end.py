"""Signals and truths → the scores of the end-to-end rival, trained on the whole support side of every split.

The system of AERD, AST-seq: log-mel frames, patches of 16 × 16, a transformer over them, a linear layer for each token,
the mean over the eight patches of a column, a sigmoid for each output and frame of 160 ms. Every frame of a segment is
trained with all of its segment's labels; the two sides of every output weigh alike. From the start it is a small
transformer; `init` begins with the public weights of AST or BEATs.

For each split and seed a network is trained twice, as the recurrent ones are: first without an inner fold of recordings
until the loss on it has stopped falling, then on all rows for as many epochs. With `epochs`, there is no first: right
for a pretrained network where it costs too much, wrong for comparing. Nothing of a query's fold is seen before it is
scored. A segment longer than 10.24 s is learnt by pieces of that length, and scored whole, in windows that follow each
other. Its score is the mean of its frames' log-odds, averaged over the seeds.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.checkpoints import CheckpointStore
from callshot.baselines.crops import COLUMN_S, COLUMNS
from callshot.baselines.executor import (
    CancelToken,
    Options,
    Progress,
    do_jobs,
    kept_in,
    refuse_below_one,
    refuse_counts,
    refuse_few,
)
from callshot.baselines.frame_classifier import FrameLesson, Recipe, log_odds, outline
from callshot.baselines.pretrained import Pretrained, read_pretrained
from callshot.baselines.sequence_batches import hold_out
from callshot.baselines.spectrogram import HOP, RATE_HZ, hear
from callshot.baselines.torch_arrays import BatchData, need_torch, open_feed, shapes, tell_rows
from callshot.baselines.train_loop import Job, by_fold, learn
from callshot.baselines.transformer import Ast
from callshot.errors import InputError
from callshot.fewshot.folds import check_folds
from callshot.records import FloatArray, IntArray, no_progress

FORMAT = 1  # of what is kept: another number where the same key would give other weights
PRETRAINED = {
    "rate": 5e-5,
    "warm": 100,
    "epochs": 30,
    "patience": 5,
}  # smaller steps, for they go from somewhere


def score_aerd(
    signals: Sequence[NDArray[np.float32]],
    targets: NDArray[np.bool_],
    fold: IntArray,
    groups: IntArray,
    names: Sequence[str],
    *,
    init: Path | None = None,
    epochs: int | None = None,
    seeds: int = 1,
    device: str = "cpu",
    threads: int = 1,
    folder: Path | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> tuple[FloatArray, dict[str, Any]]:
    """Train on every split and score its queries: log-odds (rows, outputs), NaN in the common fold; and what was done.

    `signals` are at 16 kHz, one channel; each is asked for once. `targets` is (rows, outputs), `groups` the recording
    of each row, `names` those of the outputs. `threads` is how many networks are trained at a time: it changes the
    time, never the numbers. `folder` keeps what is trained, and where it stands after each epoch. `report` hears shares
    of the work, also from other threads.
    """
    start = time.monotonic()
    refuse_below_one("epochs", epochs)
    _refuse(len(signals), targets, fold, groups, names)
    with kept_in(folder) as place:
        options = Options(seeds, device, threads, place, seed)
        given = None if init is None else read_pretrained(init)
        encoder = Ast() if given is None else given.encoder
        feed = open_feed(hear(signals, encoder.front), targets, device)
        jobs = _plan(feed, fold, groups, names, given, epochs, options)
        outcomes = do_jobs(jobs, _score, threads, progress)
    scores = np.full(targets.shape, np.nan)
    for number in range(int(fold.max()) + 1):
        parts = [
            found for job, (found, _) in zip(jobs, outcomes, strict=True) if job.fold == number
        ]
        scores[fold == number] = np.mean(parts, axis=0)
    told = _tell(jobs[0].lesson.recipe, given, options)
    told |= {
        "epochs": by_fold(jobs, [epochs for _, epochs in outcomes]),
        "searched": epochs is None,
    }
    told |= {
        "audio_s": len(feed.table.frames) * HOP / RATE_HZ,
        "trained": sum(j.found.weights is None for j in jobs),
    }
    return scores, {**told, "seconds": time.monotonic() - start}


def _refuse(
    signals: int, targets: NDArray[np.bool_], fold: IntArray, groups: IntArray, names: Sequence[str]
) -> None:
    """Refuse what cannot be trained on."""
    if (
        targets.ndim != 2
        or targets.dtype != np.bool_
        or targets.shape[1] != len(names)
        or not names
    ):
        wanted = f"targets: wanted a truth for each row and each of {len(names)} outputs"
        raise InputError(f"{wanted}, found shape {targets.shape} of {targets.dtype}")
    refuse_counts(
        len(targets), [("signals", signals), ("fold", len(fold)), ("groups", len(groups))]
    )
    check_folds([str(group) for group in groups], fold)
    for number in range(int(fold.max()) + 1):
        refuse_few(targets[fold != number].sum(axis=0), names, number, "the end-to-end rival")


def _plan(
    feed: BatchData,
    fold: IntArray,
    groups: IntArray,
    names: Sequence[str],
    given: Pretrained | None,
    epochs: int | None,
    options: Options,
) -> list[Job[FrameLesson]]:
    """List the trainings, for every split with all seeds; read what is kept of them."""
    settings: dict[str, Any] = {"encoder": Ast()}
    if given is not None:
        settings = {"encoder": given.encoder, "init": given.digest, **PRETRAINED}
    recipes = [
        Recipe(outputs=len(names), seed=options.seed, member=n, **settings)
        for n in range(options.seeds)
    ]
    lessons = [
        FrameLesson(feed, recipe, None if given is None else given.arrays) for recipe in recipes
    ]
    return [
        _job(lesson, fold, number, groups, names, epochs, options)
        for number in range(int(fold.max()) + 1)
        for lesson in lessons
    ]


def _job(
    lesson: FrameLesson,
    fold: IntArray,
    number: int,
    groups: IntArray,
    names: Sequence[str],
    epochs: int | None,
    options: Options,
) -> Job[FrameLesson]:
    recipe, rows = lesson.recipe, np.flatnonzero(fold != number)
    key = {
        "format": FORMAT,
        "recipe": asdict(recipe),
        "names": list(names),
        "rows": sha256(repr(tell_rows(lesson.feed, rows, groups)).encode()).hexdigest(),
        "searched": epochs is None or epochs,
        "torch": need_torch().__version__,
        "device": options.kind,
    }
    shelf = CheckpointStore(options.folder, f"fold{number}-seed{recipe.member}-aerd", key)
    held = (
        _hold_out(lesson.feed.label[rows], groups[rows], recipe)
        if epochs is None
        else np.zeros(len(rows), bool)
    )
    title, found = (
        f"{recipe.encoder.title}, fold {number}, seed {recipe.member}",
        shelf.read(*shapes(outline(recipe))),
    )
    job = Job(title, number, rows, np.flatnonzero(fold == number), held, lesson, shelf, found)
    return job if epochs is None else Job(**{**vars(job), "unsearched": epochs})


def _hold_out(truth: NDArray[np.bool_], groups: IntArray, recipe: Recipe) -> NDArray[np.bool_]:
    """Say which rows an inner fold holds out; a row counts for the rarest of its outputs, or as one of none."""
    rare = np.where(truth, truth.sum(axis=0), len(truth) + 1).argmin(axis=1)
    label = np.unique(np.where(truth.any(axis=1), rare, truth.shape[1]), return_inverse=True)[1]
    return hold_out(label, groups, recipe.inner_folds, recipe.member % recipe.inner_folds)


def _score(job: Job[FrameLesson], watch: CancelToken) -> tuple[FloatArray, int]:
    """Return the log-odds of the split's queries, and how many epochs it took."""
    network, epochs = learn(job, watch)
    return log_odds(
        job.lesson.feed, job.queries, job.lesson.recipe.encoder, network, watch.check_cancelled
    ), epochs


def _tell(recipe: Recipe, given: Pretrained | None, options: Options) -> dict[str, Any]:
    return {
        "title": recipe.encoder.title,
        "text": recipe.encoder.title + ("" if given is None else f" from {given.path.name}"),
        "parameters": recipe.parameters,
        "encoder": asdict(recipe.encoder),  # type: ignore[call-overload]
        "init": None
        if given is None
        else {"file": given.path.name, "sha256": given.digest, "unused": given.unused},
        "pooling": "mean of the frames' log-odds",
        "frame_s": COLUMN_S,
        "window_s": COLUMN_S * COLUMNS,
        "seeds": options.seeds,
        "device": options.device,
    }
