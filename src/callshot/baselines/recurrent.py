"""Episodes and sequences → scores of recurrent networks, trained on the support side of each split.

One layer, Elman, GRU or LSTM, runs over the frames of a segment; the mean of its outputs over time
goes into a linear layer over the classes. A linear layer before it narrows input of more than 64
dimensions. The hidden widths 128, 64 and 56 give the three about the same number of parameters:
for twelve classes 21,000 to 23,000 with MFCC, 67,000 to 77,000 with 768 to 1536 dimensions.

For each split and seed a network is trained twice: first without an inner fold of recordings, to
find the number of epochs, then on the whole support side. Frames are standardised by the rows of
the training, and all classes count the same. Log-probabilities are averaged over the seeds; a score
is the log-odds of that mean. Nothing in the queries' fold is seen before it is scored.

Long sequences are shortened: neighbouring frames are averaged so that the median sequence of the
support side has at most 64 steps.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cache
from itertools import chain, product

import numpy as np

from callshot.baselines.executor import (
    DEFAULT_OPTIONS,
    TrainingOptions,
    check_examples,
    check_lengths,
    check_positive,
    require_torch,
    run_jobs,
)
from callshot.baselines.sequence_batches import (
    BatchData,
    Sequences,
    check_sequences,
    stack_sequences,
)
from callshot.baselines.train_loop import (
    Metadata,
    TrainingJob,
    plan_job,
    run_trainings,
    search,
)
from callshot.baselines.training_task import TrainingTask, best_epoch
from callshot.errors import InputError, OptionError, check_choice
from callshot.fewshot.centroid import log_odds
from callshot.fewshot.episodes import Episodes
from callshot.fewshot.folds import check_no_leak
from callshot.records import FloatArray, IntArray, Progress, no_progress

MAX_STEPS = 64  # of the median sequence
CELLS = {"elman": "Elman", "gru": "GRU", "lstm": "LSTM"}

# Table 3 of the paper: the network for each encoder and corpus. It has none for HuBERT.
PAPER_CELLS = {
    ("mfcc", "elephant-voices"): "gru",
    ("mfcc", "ldc2010s05"): "gru",
    ("perch-v1", "elephant-voices"): "gru",
    ("perch-v1", "ldc2010s05"): "lstm",
    ("perch-v2", "elephant-voices"): "elman",
    ("perch-v2", "ldc2010s05"): "gru",
}


Losses = dict[str, list[float]]  # of a cell, in each split


def score_recurrent(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequences,
    *,
    cell: str | Sequence[str] = "gru",
    hidden: int | None = None,
    options: TrainingOptions = DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> tuple[FloatArray, Metadata]:
    """Train on every split and score its queries.

    Return log-odds (rows, classes), NaN in the common fold, and metadata. `groups` is the recording
    of each row, `sequences` its frames, (frames, dimensions). `cell` is one for all splits, or one
    per split, as `choose_cell` returns them. `progress` is also called from other threads.
    """
    cells = [cell] * episodes.folds if isinstance(cell, str) else list(cell)
    cells_of_splits = [(name,) for name in cells]
    jobs = plan_jobs(episodes, groups, sequences, cells_of_splits, hidden, options)
    means, training = run_trainings(jobs, options, progress)
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold, mean in means.items():
        scores[episodes.fold == fold] = log_odds(mean)
    steps = [_frames_per_step(episodes, sequences, fold) for fold in means]
    metadata = {
        "cells": tuple(cells),
        "text": describe_cells(cells),
        **_describe_jobs(jobs),
        "pooling": "mean over time",
        "frames_per_step": steps,
    }
    return scores, metadata | training


def _describe_jobs(jobs: Sequence[TrainingJob]) -> Metadata:
    """Return the sizes of the networks of each cell."""
    tasks = {job.name: job.task for job in jobs}
    return {
        "parameters": {name: task.parameters for name, task in tasks.items()},
        "hidden": {name: task.config.hidden for name, task in tasks.items()},
        "width": jobs[0].task.config.width,
    }


def choose_cell(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequences,
    *,
    hidden: int | None = None,
    options: TrainingOptions = DEFAULT_OPTIONS,
    progress: Progress = no_progress,
) -> tuple[tuple[str, ...], Losses]:
    """Choose a cell for every split by the loss on inner folds of its support side.

    Return the cell of each split, and the loss of each cell in each. Each seed holds out another
    inner fold; the loss is the class-balanced cross-entropy at its best epoch, averaged over the
    seeds. With a folder in the options, `score_recurrent` continues from these trainings.
    """
    all_cells = [tuple(CELLS)] * episodes.folds
    jobs = plan_jobs(episodes, groups, sequences, all_cells, hidden, options)
    _check_held_out(jobs)
    searches = run_jobs(jobs, search, options.threads, progress)
    losses = _mean_losses(jobs, searches)
    cells = []
    for fold in range(episodes.folds):
        fold_losses = {cell: losses[cell][fold] for cell in CELLS}
        cells.append(min(CELLS, key=fold_losses.__getitem__))
    return tuple(cells), losses


def _mean_losses(
    jobs: Sequence[TrainingJob], searches: Sequence[list[float]]
) -> Losses:
    """Return the lowest loss of each cell in each split, averaged over the seeds."""
    lowest: dict[tuple[str, int], list[float]] = {}
    for job, losses in zip(jobs, searches, strict=True):
        if losses:
            loss = losses[best_epoch(losses) - 1]
            lowest.setdefault((job.name, job.fold), []).append(loss)
    means: Losses = {cell: [] for cell in CELLS}
    for (cell, _), losses in lowest.items():
        means[cell].append(float(np.mean(losses)))
    return means


def describe_cells(cells: Sequence[str]) -> str:
    """Return the cells of all splits as text.

    >>> describe_cells(["gru", "lstm", "gru"]), describe_cells(["elman", "elman"])
    ('GRU in 2 of 3 splits, LSTM in 1', 'Elman')
    """
    (first, count), *rest = Counter(cells).most_common()
    if not rest:
        return CELLS[first]
    parts = [f"{CELLS[first]} in {count} of {len(cells)} splits"]
    parts += [f"{CELLS[cell]} in {number}" for cell, number in rest]
    return ", ".join(parts)


def describe_baseline(
    metadata: Metadata, seeds: int, *, is_chosen: bool
) -> dict[str, str]:
    """Return the kind, the name and a description of the networks of all splits.

    `is_chosen`: inner folds chose the cells.

    >>> networks = {"cells": ("gru",), "text": "GRU", "parameters": {"gru": 21000}}
    >>> describe_baseline(networks, 1, is_chosen=True)["how"]
    'GRU, by inner folds; 21,000 parameters, 1 seed'
    """
    title = metadata["text"]
    choice = ", by inner folds" if is_chosen else ""
    size = _describe_size(metadata["parameters"], seeds)
    return {
        "kind": "recurrent",
        "name": title if len(set(metadata["cells"])) == 1 else "RNN",
        "how": f"{title}{choice}; {size}",
    }


def _describe_size(parameters: Mapping[str, int], seeds: int) -> str:
    """Return the parameters of the networks of all cells as text.

    >>> _describe_size({"gru": 21000, "lstm": 23000}, 1)
    '21,000 to 23,000 parameters, 1 seed'
    """
    numbers = parameters.values()
    sizes = sorted({min(numbers), max(numbers)})
    size = " to ".join(f"{number:,}" for number in sizes)
    plural = "s" if seeds > 1 else ""
    return f"{size} parameters, {seeds} seed{plural}"


def plan_jobs(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequences,
    cells: Sequence[Sequence[str]],
    hidden: int | None,
    options: TrainingOptions,
) -> list[TrainingJob]:
    """Check all input, and plan the trainings of each split: all of its cells with all seeds."""
    check_positive("hidden", hidden)
    _check_input(episodes, groups, sequences, cells)
    require_torch(options.device)

    @cache
    def load(step: int) -> BatchData:
        table = stack_sequences(sequences, step)
        return BatchData.load(table, episodes.label, options.device)

    jobs = []
    for fold, names in enumerate(cells):
        step = _frames_per_step(episodes, sequences, fold)
        data = load(step)
        rows = np.flatnonzero(episodes.fold != fold)
        key = {
            "classes": episodes.classes,
            "rows": data.fingerprint(rows, groups),
            "frames_per_step": step,
        }
        for name, member in product(names, range(options.seeds)):
            task = _make_task(
                data, name, len(episodes.classes), hidden, options, member
            )
            job = plan_job(
                task=task,
                name=name,
                title=CELLS[name],
                fold=episodes.fold,
                number=fold,
                held_out=task.config.held_out(episodes.label[rows], groups[rows]),
                key=key,
                options=options,
            )
            jobs.append(job)
    return jobs


def _make_task(
    data: BatchData,
    cell: str,
    classes: int,
    hidden: int | None,
    options: TrainingOptions,
    member: int,
) -> TrainingTask:
    from callshot.baselines.recurrent_network import (
        HIDDEN,
        RecurrentConfig,
        RecurrentTask,
    )

    config = RecurrentConfig(
        cell=cell,
        dimension=data.table.frames.shape[1],
        classes=classes,
        hidden=hidden or HIDDEN[cell],
        seed=options.seed,
        member=member,
    )
    return RecurrentTask(data, config)


def _frames_per_step(episodes: Episodes, sequences: Sequences, fold: int) -> int:
    """Return how many frames are averaged to one step, from the support side of a split."""
    rows = np.flatnonzero(episodes.fold != fold)
    lengths = [len(sequences[row]) for row in rows.tolist()]
    steps = np.median(lengths) / MAX_STEPS
    return max(1, int(np.ceil(steps)))


def _check_input(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequences,
    cells: Sequence[Sequence[str]],
) -> None:
    for name in chain(*cells):
        check_choice("cell", name, CELLS)
    if len(cells) != episodes.folds:
        expected = f"one, or one for each of {episodes.folds} splits"
        raise OptionError(f"cell: expected {expected}, got {len(cells)}")
    rows = len(episodes.label)
    check_lengths(rows, sequences=len(sequences), groups=len(groups))
    check_no_leak([str(group) for group in groups], episodes.fold)
    check_sequences(sequences)
    for fold in range(episodes.folds):
        support = episodes.label[episodes.fold != fold]
        counts = np.bincount(support, minlength=len(episodes.classes))
        check_examples(counts, episodes.classes, fold)


def _check_held_out(jobs: Sequence[TrainingJob]) -> None:
    """Check that some rows of each split are held out, because they decide between the cells."""
    searched = {job.fold for job in jobs if job.held_out.any()}
    for job in jobs:
        if job.fold not in searched:
            raise InputError(
                f"fold {job.fold}: no class has two recordings on its support side, so nothing can "
                "be held out to choose a network; name one"
            )
