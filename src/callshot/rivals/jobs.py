"""Episodes and sequences → the trainings to do, one for each split, cell and seed; done by several threads.

Everything is checked before the first begins, also what is kept of them in files. torch has one thread in each
training, so that the numbers are the same for any number of threads.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from pathlib import Path
from threading import Event
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError, OptionError
from callshot.fewshot.episodes import Episodes
from callshot.fewshot.folds import audit
from callshot.records import IntArray
from callshot.rivals.keeping import Found, Shelf
from callshot.rivals.network import CELLS, HIDDEN, Feed, Recipe, need_torch, open_feed, shapes
from callshot.rivals.sequences import hold_out, lay_out, refuse_sequences

Report = Callable[[float, str], None]
Outcome = TypeVar("Outcome")

FORMAT = 1  # of what is kept: another number where the same key would give other weights
STEPS = 64  # that the median sequence has, at most
FEWEST = 2  # exemplars of a class on a support side
TITLES = {"elman": "Elman", "gru": "GRU", "lstm": "LSTM"}


@dataclass(frozen=True)
class Options:
    """What a caller may set."""

    hidden: int | None
    seeds: int
    device: str
    threads: int
    folder: Path
    seed: int

    def __post_init__(self) -> None:
        for name in ("hidden", "seeds", "threads"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise OptionError(f"{name}: a whole number from 1, got {value}")
        if self.device.partition(":")[0] not in ("cpu", "cuda"):
            raise OptionError(f"device: cpu or cuda, got {self.device!r}")


@dataclass(frozen=True)
class Side:
    """The support side of a split: rows, their recordings, frames that make a step, and a hash of all these."""

    fold: int
    rows: IntArray
    queries: IntArray
    groups: IntArray
    step: int
    feed: Feed
    key: str


@dataclass(frozen=True)
class Job:
    """One network of one split; `held` says which of the side's rows its search leaves out."""

    side: Side
    recipe: Recipe
    held: NDArray[np.bool_]
    shelf: Shelf
    found: Found

    @property
    def title(self) -> str:
        """What it is called where progress is told."""
        return f"{TITLES[self.recipe.cell]}, fold {self.side.fold}, seed {self.recipe.member}"


@dataclass(frozen=True)
class Watch:
    """Who hears of trainings, and whether they are to stop."""

    report: Report
    stopped: Event = field(default_factory=Event)

    def go_on(self) -> None:
        """Do nothing, unless all are to stop."""
        if self.stopped.is_set():
            raise StoppedError


class StoppedError(Exception):
    """Another training failed, or the user stopped all."""


def plan_jobs(
    episodes: Episodes, groups: IntArray, sequences: Sequence[Any], cells: Sequence[Sequence[str]], options: Options
) -> list[Job]:
    """Check everything, and list the trainings: for every split its cells, each with all seeds."""
    refuse(episodes, groups, sequences, cells)
    feeds: dict[int, Feed] = {}
    jobs = list[Job]()
    for fold, names in enumerate(cells):
        side = _side(episodes, groups, sequences, fold, feeds, options.device)
        jobs += [_job(side, cell, n, len(episodes.classes), options) for cell in names for n in range(options.seeds)]
    return jobs


def _side(
    episodes: Episodes, groups: IntArray, sequences: Sequence[Any], fold: int, feeds: dict[int, Feed], device: str
) -> Side:
    rows = np.flatnonzero(episodes.fold != fold)
    step = max(1, int(np.ceil(np.median([len(sequences[row]) for row in rows.tolist()]) / STEPS)))
    if step not in feeds:
        feeds[step] = open_feed(lay_out(sequences, step), episodes.label, device)
    first = {group: n for n, group in reversed([*enumerate(groups[rows].tolist())])}  # no number of theirs matters
    parts = [(feeds[step].table.hashes[row], int(episodes.label[row]), first[int(groups[row])]) for row in rows]
    key = sha256(repr((episodes.classes, parts)).encode()).hexdigest()
    return Side(fold, rows, np.flatnonzero(episodes.fold == fold), groups[rows], step, feeds[step], key)


def _job(side: Side, cell: str, member: int, classes: int, options: Options) -> Job:
    recipe = Recipe(
        cell=cell,
        dimension=side.feed.table.frames.shape[1],
        classes=classes,
        hidden=options.hidden or HIDDEN[cell],
        seed=options.seed,
        member=member,
    )
    torch, device = need_torch().__version__, options.device.partition(":")[0]
    key = {
        "format": FORMAT,
        "recipe": asdict(recipe),
        "rows": side.key,
        "step": side.step,
        "torch": torch,
        "device": device,
    }
    shelf = Shelf(options.folder, f"fold{side.fold}-seed{member}-{cell}", key)
    held = hold_out(side.feed.label[side.rows], side.groups, recipe.inner_folds, member % recipe.inner_folds)
    return Job(side, recipe, held, shelf, shelf.read(*shapes(recipe)))


def refuse(episodes: Episodes, groups: IntArray, sequences: Sequence[Any], cells: Sequence[Sequence[str]]) -> None:
    """Refuse what cannot be trained on."""
    unknown = [cell for names in cells for cell in names if cell not in CELLS]
    if unknown:
        raise OptionError(f"cell: one of {', '.join(CELLS)}, got {unknown[0]!r}")
    if len(cells) != episodes.folds:
        raise OptionError(f"cell: one, or one for each of {episodes.folds} splits, got {len(cells)}")
    for name, found in (("sequences", len(sequences)), ("groups", len(groups))):
        if found != len(episodes.label):
            raise InputError(f"{name}: wanted one for each of {len(episodes.label)} rows, found {found}")
    audit([str(group) for group in groups], episodes.fold)
    refuse_sequences(sequences)
    for fold in range(episodes.folds):
        _refuse_few(episodes, fold)


def _refuse_few(episodes: Episodes, fold: int) -> None:
    counts = np.bincount(episodes.label[episodes.fold != fold], minlength=len(episodes.classes))
    few = np.flatnonzero(counts < FEWEST)
    if few.size:
        found = f"class '{episodes.classes[few[0]]}' has {counts[few[0]]} on the support side of fold {fold}"
        raise InputError(
            f"{found}, and a recurrent network needs {FEWEST} exemplars at least; label more, or leave it out"
        )


def do_jobs(
    jobs: Sequence[Job], do: Callable[[Job, Watch], Outcome], options: Options, report: Report
) -> list[Outcome]:
    """Do every job, several at a time; outcomes in their order. Where one fails, the others stop after their epoch."""
    torch, watch = need_torch(), Watch(report)
    threads = ThreadPoolExecutor(options.threads, initializer=torch.set_num_threads, initargs=(1,))
    with _steady(torch), threads as pool:
        waiting = {pool.submit(_do, do, job, watch): job for job in jobs}
        try:
            for done in as_completed(waiting):
                if not isinstance(done.exception(), StoppedError):  # of which another is the cause
                    done.result()
                    report(1 / len(jobs), waiting[done].title)
        except BaseException:
            watch.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done.result() for done in waiting]


def _do(do: Callable[[Job, Watch], Outcome], job: Job, watch: Watch) -> Outcome:
    """Do a job, unless another has failed; on a GPU in a stream of its own, so that none waits for another."""
    watch.go_on()
    try:
        if not job.side.feed.frames.is_cuda:
            return do(job, watch)
        torch = need_torch()
        with torch.cuda.stream(torch.cuda.Stream(job.side.feed.frames.device)):
            return do(job, watch)
    except BaseException:
        watch.stopped.set()
        raise


@contextmanager
def _steady(torch: Any) -> Iterator[None]:
    """Let torch work with one thread in each of ours, and a GPU with all digits; afterwards as before.

    Sums then have one order, and the other rows of a batch do not tell.
    """
    threads, rnn = torch.get_num_threads(), torch.backends.cudnn.rnn
    precision = rnn.fp32_precision
    torch.set_num_threads(1)
    rnn.fp32_precision = "ieee"
    try:
        yield
    finally:
        torch.set_num_threads(threads)
        rnn.fp32_precision = precision
