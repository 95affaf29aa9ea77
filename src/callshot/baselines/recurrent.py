"""Episodes and sequences → the scores of recurrent networks, trained on the whole support side of every split.

One layer, Elman, GRU or LSTM, over the frames of a segment; the mean of its outputs over time; a linear layer over the
classes. A linear layer before it brings more than 64 dimensions to 64, or to as many as 50,000 weights allow. The
hidden widths 128, 64 and 56 make the three alike in their number of parameters: for twelve classes 21,000 to 23,000
with MFCC, 67,000 to 77,000 with 768 to 1536 dimensions.

For each split and each of several seeds a network is trained twice. First without an inner fold of recordings, until
the loss on it has stopped falling: that tells how many epochs. Then on all rows of the support side, for as many.
Frames are standardised by the rows that are trained on, and the loss weighs every class alike. Log-probabilities are
averaged over the seeds; a score is the log-odds of that mean. Nothing of a query's fold is seen before it is scored.

Long sequences are shortened: neighbouring frames are averaged, so many that the median of the support side has no more
than 64 steps. MFCC frames of a call of 4 s become steps of 70 ms; windows of several seconds stay as they are.
"""

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.executor import CancelToken, Options, do_jobs, kept_in
from callshot.baselines.recurrent_network import CELLS, RecurrentLesson, log_probabilities
from callshot.baselines.train_loop import Job, best_epoch, by_fold, learn, search
from callshot.baselines.training_jobs import TITLES, plan_jobs
from callshot.errors import InputError
from callshot.fewshot.centroid import score
from callshot.fewshot.episodes import Episodes
from callshot.records import FloatArray, IntArray, Progress, no_progress

SequenceArray = NDArray[np.floating[Any]]

# The paper's table 3: which network stands beside which encoder, on which corpus. It has none for HuBERT.
PAPER_CELLS = {
    ("mfcc", "elephant-voices"): "gru",
    ("mfcc", "ldc2010s05"): "gru",
    ("perch-v1", "elephant-voices"): "gru",
    ("perch-v1", "ldc2010s05"): "lstm",
    ("perch-v2", "elephant-voices"): "elman",
    ("perch-v2", "ldc2010s05"): "gru",
}


def score_recurrent(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequence[SequenceArray],
    *,
    cell: str | Sequence[str] = "gru",
    hidden: int | None = None,
    seeds: int = 3,
    device: str = "cpu",
    threads: int = 1,
    folder: Path | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> tuple[FloatArray, dict[str, Any]]:
    """Train on every split and score its queries: log-odds (rows, classes), NaN in the common fold; and what was done.

    `groups` is the recording of each row, `sequences` its frames, (frames, dimensions). `cell` is one for all splits,
    or one for each, as `choose_cell` returns them. `threads` is how many networks are trained at a time: it changes the
    time, never the numbers. `folder` keeps what is trained, and where it stands after each epoch. `report` hears shares
    of the work, also from other threads.
    """
    cells = [(cell,)] * episodes.folds if isinstance(cell, str) else [(name,) for name in cell]
    start = time.monotonic()
    with kept_in(folder) as place:
        options = Options(seeds, device, threads, place, seed)
        jobs = plan_jobs(episodes, groups, sequences, cells, hidden, options)
        outcomes = do_jobs(jobs, _score, threads, progress)
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold in range(episodes.folds):
        parts = [found for job, (found, _) in zip(jobs, outcomes, strict=True) if job.fold == fold]
        scores[episodes.fold == fold] = score(np.mean(parts, axis=0))
    told = _tell(jobs, [name for (name,) in cells], options)
    told |= {"epochs": by_fold(jobs, [epochs for _, epochs in outcomes])}
    told |= {
        "trained": sum(job.found.weights is None for job in jobs),
        "seconds": time.monotonic() - start,
    }
    return scores, told


def choose_cell(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequence[SequenceArray],
    *,
    cells: Sequence[str] = tuple(CELLS),
    hidden: int | None = None,
    seeds: int = 3,
    device: str = "cpu",
    threads: int = 1,
    folder: Path | None = None,
    seed: int = 0,
    progress: Progress = no_progress,
) -> tuple[tuple[str, ...], dict[str, Any]]:
    """Choose a cell for every split, by the lowest loss on inner folds of its support side; and tell the losses.

    Each seed holds out another inner fold; the loss is the class-balanced cross-entropy at its best epoch, averaged
    over the seeds. With a `folder`, `score_recurrent` goes on from what was trained for this.
    """
    with kept_in(folder) as place:
        options = Options(seeds, device, threads, place, seed)
        jobs = plan_jobs(
            episodes, groups, sequences, [tuple(cells)] * episodes.folds, hidden, options
        )
        _refuse_nothing_held(jobs)
        found = do_jobs(jobs, search, threads, progress)
        lowest = [losses[best_epoch(losses) - 1] if losses else np.nan for losses in found]
    inner = {
        cell: [_mean_loss(jobs, lowest, fold, cell) for fold in range(episodes.folds)]
        for cell in cells
    }
    chosen = tuple(min(cells, key=lambda cell: inner[cell][fold]) for fold in range(episodes.folds))
    return chosen, {"cells": chosen, "text": tell_cells(chosen), "inner_loss": inner}


def tell_cells(cells: Sequence[str]) -> str:
    """Say which cells stand in the splits.

    >>> tell_cells(["gru", "lstm", "gru"]), tell_cells(["elman", "elman"])
    ('GRU in 2 of 3 splits, LSTM in 1', 'Elman')
    """
    counts = Counter(cells).most_common()
    if len(counts) == 1:
        return TITLES[cells[0]]
    first, *others = [(TITLES[cell], count) for cell, count in counts]
    return ", ".join(
        [
            f"{first[0]} in {first[1]} of {len(cells)} splits",
            *(f"{name} in {n}" for name, n in others),
        ]
    )


def _score(job: Job[RecurrentLesson], watch: CancelToken) -> tuple[FloatArray, int]:
    """Return the log-probabilities of the split's queries, and how many epochs it took."""
    network, epochs = learn(job, watch)
    return log_probabilities(job.lesson.feed, job.queries, network, watch.check_cancelled), epochs


def _tell(
    jobs: Sequence[Job[RecurrentLesson]], cells: Sequence[str], options: Options
) -> dict[str, Any]:
    recipes = {job.lesson.recipe.cell: job.lesson.recipe for job in jobs}
    return {
        "cells": tuple(cells),
        "text": tell_cells(cells),
        "parameters": {cell: recipe.parameters for cell, recipe in recipes.items()},
        "hidden": {cell: recipe.hidden for cell, recipe in recipes.items()},
        "width": jobs[0].lesson.recipe.width,
        "pooling": "mean over time",
        "frames_per_step": tuple({job.fold: job.lesson.step for job in jobs}.values()),
        "seeds": options.seeds,
        "device": options.device,
    }


def _mean_loss(
    jobs: Sequence[Job[RecurrentLesson]], lowest: Sequence[float], fold: int, cell: str
) -> float:
    pairs = zip(jobs, lowest, strict=True)
    return float(
        np.nanmean(
            [loss for job, loss in pairs if (job.fold, job.lesson.recipe.cell) == (fold, cell)]
        )
    )


def _refuse_nothing_held(jobs: Sequence[Job[RecurrentLesson]]) -> None:
    """Refuse a split in which no seed can hold rows out: nothing would tell the cells apart."""
    for fold in {job.fold for job in jobs}:
        if not any(job.held.any() for job in jobs if job.fold == fold):
            found = (
                "no class has two recordings on its support side, so that nothing can be held out"
            )
            raise InputError(f"fold {fold}: {found} to choose a network by; name one")
