"""Episodes and sequences → the trainings of recurrent networks, one for each split, cell and seed.

Everything is checked before the first begins, also what is kept of them in files.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from typing import Any

import numpy as np

from callshot.baselines.checkpoints import CheckpointStore
from callshot.baselines.executor import Options, refuse_below_one, refuse_counts, refuse_few
from callshot.baselines.recurrent_network import CELLS, HIDDEN, Recipe, RecurrentLesson
from callshot.baselines.sequence_batches import hold_out, lay_out, refuse_sequences
from callshot.baselines.torch_arrays import BatchData, need_torch, open_feed, shapes, tell_rows
from callshot.baselines.train_loop import Job
from callshot.errors import OptionError
from callshot.fewshot.episodes import Episodes
from callshot.fewshot.folds import audit
from callshot.records import IntArray

FORMAT = 1  # of what is kept: another number where the same key would give other weights
STEPS = 64  # that the median sequence has, at most
TITLES = {"elman": "Elman", "gru": "GRU", "lstm": "LSTM"}


@dataclass(frozen=True)
class Side:
    """The support side of a split: rows, their recordings, frames that make a step, and a hash of all these."""

    fold: int
    rows: IntArray
    queries: IntArray
    groups: IntArray
    step: int
    feed: BatchData
    key: str


def plan_jobs(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequence[Any],
    cells: Sequence[Sequence[str]],
    hidden: int | None,
    options: Options,
) -> list[Job[RecurrentLesson]]:
    """Check everything, and list the trainings: for every split its cells, each with all seeds."""
    refuse_below_one("hidden", hidden)
    refuse(episodes, groups, sequences, cells)
    feeds: dict[int, BatchData] = {}
    jobs = list[Job[RecurrentLesson]]()
    for fold, names in enumerate(cells):
        side = _side(episodes, groups, sequences, fold, feeds, options.device)
        for cell in names:
            wide = {
                "classes": len(episodes.classes),
                "hidden": hidden or HIDDEN[cell],
                "seed": options.seed,
            }
            jobs += [
                _job(side, Recipe(cell, _dimension(side), **wide, member=n), options)
                for n in range(options.seeds)
            ]
    return jobs


def _dimension(side: Side) -> int:
    return int(side.feed.table.frames.shape[1])


def _side(
    episodes: Episodes,
    groups: IntArray,
    sequences: Sequence[Any],
    fold: int,
    feeds: dict[int, BatchData],
    device: str,
) -> Side:
    rows = np.flatnonzero(episodes.fold != fold)
    step = max(1, int(np.ceil(np.median([len(sequences[row]) for row in rows.tolist()]) / STEPS)))
    if step not in feeds:
        feeds[step] = open_feed(lay_out(sequences, step), episodes.label, device)
    key = sha256(
        repr((episodes.classes, tell_rows(feeds[step], rows, groups))).encode()
    ).hexdigest()
    return Side(
        fold, rows, np.flatnonzero(episodes.fold == fold), groups[rows], step, feeds[step], key
    )


def _job(side: Side, recipe: Recipe, options: Options) -> Job[RecurrentLesson]:
    key = {
        "format": FORMAT,
        "recipe": asdict(recipe),
        "rows": side.key,
        "step": side.step,
        "torch": need_torch().__version__,
        "device": options.kind,
    }
    shelf = CheckpointStore(
        options.folder, f"fold{side.fold}-seed{recipe.member}-{recipe.cell}", key
    )
    held = hold_out(
        side.feed.label[side.rows],
        side.groups,
        recipe.inner_folds,
        recipe.member % recipe.inner_folds,
    )
    title = f"{TITLES[recipe.cell]}, fold {side.fold}, seed {recipe.member}"
    lesson = RecurrentLesson(side.feed, recipe, side.step)
    return Job(
        title,
        side.fold,
        side.rows,
        side.queries,
        held,
        lesson,
        shelf,
        shelf.read(*shapes(lesson.build())),
    )


def refuse(
    episodes: Episodes, groups: IntArray, sequences: Sequence[Any], cells: Sequence[Sequence[str]]
) -> None:
    """Refuse what cannot be trained on."""
    unknown = [cell for names in cells for cell in names if cell not in CELLS]
    if unknown:
        raise OptionError(f"cell: one of {', '.join(CELLS)}, got {unknown[0]!r}")
    if len(cells) != episodes.folds:
        raise OptionError(
            f"cell: one, or one for each of {episodes.folds} splits, got {len(cells)}"
        )
    refuse_counts(len(episodes.label), [("sequences", len(sequences)), ("groups", len(groups))])
    audit([str(group) for group in groups], episodes.fold)
    refuse_sequences(sequences)
    for fold in range(episodes.folds):
        counted = np.bincount(
            episodes.label[episodes.fold != fold], minlength=len(episodes.classes)
        )
        refuse_few(counted, episodes.classes, fold, "a recurrent network")
