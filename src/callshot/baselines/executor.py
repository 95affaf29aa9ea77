"""Jobs → their outcomes, done by several threads; what a caller may set, and who hears of it.

torch has one thread in each of ours, so that the numbers are the same for any number of threads.
"""

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.torch_arrays import need_torch
from callshot.errors import InputError, OptionError
from callshot.records import Progress

CheckCancelled = Callable[[], None]  # asked before every batch; raises where all are to stop
FEWEST = 2  # exemplars of a class on a support side


class Work(Protocol):
    """What can be done: its name, where progress is told, and the device it needs."""

    @property
    def title(self) -> str: ...  # noqa: D102

    @property
    def device(self) -> Any: ...  # noqa: D102


Task = TypeVar("Task", bound=Work)
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class Options:
    """What a caller may set."""

    seeds: int
    device: str
    threads: int
    folder: Path
    seed: int

    def __post_init__(self) -> None:
        for name in ("seeds", "threads"):
            refuse_below_one(name, getattr(self, name))
        if self.device.partition(":")[0] not in ("cpu", "cuda"):
            raise OptionError(f"device: cpu or cuda, got {self.device!r}")

    @property
    def kind(self) -> str:
        """The kind of device, which decides digits; its number does not."""
        return self.device.partition(":")[0]


@dataclass(frozen=True)
class CancelToken:
    """Who hears of trainings, and whether they are to stop."""

    progress: Progress
    stopped: Event = field(default_factory=Event)

    def check_cancelled(self) -> None:
        """Do nothing, unless all are to stop."""
        if self.stopped.is_set():
            raise StoppedError


class StoppedError(Exception):
    """Another training failed, or the user stopped all."""


def refuse_below_one(name: str, value: int | None) -> None:
    """Refuse an option that is a number, but not one from 1."""
    if value is not None and value < 1:
        raise OptionError(f"{name}: a whole number from 1, got {value}")


def refuse_counts(rows: int, counts: Sequence[tuple[str, int]]) -> None:
    """Refuse inputs that have not one item for each row."""
    for name, found in counts:
        if found != rows:
            raise InputError(f"{name}: wanted one for each of {rows} rows, found {found}")


def refuse_few(counts: NDArray[np.integer[Any]], names: Sequence[str], fold: int, who: str) -> None:
    """Refuse a split in which a class has too few exemplars to learn it from."""
    few = np.flatnonzero(counts < FEWEST)
    if few.size:
        found = f"class '{names[few[0]]}' has {counts[few[0]]} on the support side of fold {fold}"
        raise InputError(
            f"{found}, and {who} needs {FEWEST} exemplars at least; label more, or leave it out"
        )


def do_jobs(
    jobs: Sequence[Task],
    do: Callable[[Task, CancelToken], Outcome],
    threads: int,
    progress: Progress,
) -> list[Outcome]:
    """Do every job, several at a time; outcomes in their order. Where one fails, the others stop after their batch."""
    torch, watch = need_torch(), CancelToken(progress)
    workers = ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,))
    with _steady(torch), workers as pool:
        waiting = {pool.submit(_do, do, job, watch): job for job in jobs}
        try:
            for done in as_completed(waiting):
                if not isinstance(done.exception(), StoppedError):  # of which another is the cause
                    done.result()
                    progress(1 / len(jobs), waiting[done].title)
        except BaseException:
            watch.stopped.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return [done.result() for done in waiting]


def _do(do: Callable[[Task, CancelToken], Outcome], job: Task, watch: CancelToken) -> Outcome:
    """Do a job, unless another has failed; on a GPU in a stream of its own, so that none waits for another."""
    watch.check_cancelled()
    try:
        if job.device.type != "cuda":
            return do(job, watch)
        torch = need_torch()
        with torch.cuda.stream(torch.cuda.Stream(job.device)):
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


@contextmanager
def kept_in(folder: Path | None) -> Iterator[Path]:
    """Hand out the folder, or one that lasts as long as the work."""
    if folder is not None:
        yield folder
    else:
        with TemporaryDirectory(prefix="callshot-trained-") as place:
            yield Path(place)
