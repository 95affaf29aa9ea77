"""Independent pieces of work: a `Pool` of threads, or a `Job` that runs on a cluster.

An item may run twice, at the same time or again after its worker died: its function must be
idempotent.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError, ThreadPoolExecutor
from dataclasses import dataclass
from threading import Event
from types import TracebackType
from typing import Any, Protocol

from callshot.interrupts import let_signals_end_waits

Check = Callable[[], None]
"""Raises CancelledError if the task that calls it is to stop."""


def never_stop() -> None:
    """Let a task run to its end."""


class Pool(ThreadPoolExecutor):
    """Threads, by default one per core; `with` waits for them, after Ctrl-C it does not.

    A task that began then goes on until it ends or calls `check_stopped`: it must not write files.
    """

    def __init__(self, threads: int | None = None, **options: Any) -> None:
        self.threads = threads or os.cpu_count() or 1
        super().__init__(self.threads, **options)
        self.stopped = Event()
        let_signals_end_waits()

    def check_stopped(self) -> None:
        """Raise CancelledError if the block that uses the pool has failed."""
        if self.stopped.is_set():
            raise CancelledError

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.shutdown()
            return
        self.stopped.set()
        is_error = issubclass(kind, Exception | GeneratorExit)  # not Ctrl-C
        self.shutdown(wait=is_error, cancel_futures=True)


class TryLater(Exception):
    """Another process works on this item; a function raises it, and is called again later."""


@dataclass(frozen=True)
class Job:
    """Items of work that do not depend on each other.

    kind       a short name of the work, such as "index"
    prepare    called once in each process, with `common` and a number of threads; it returns what
               the function needs, such as an open model. After an OSError the items go to
               other workers; any other error of callshot in it ends the job.
    function   called with what `prepare` returned, and with an item. After an InputError the item
               is tried once more elsewhere, and then is left out.
    common     what `prepare` gets: the same for all items
    items      what the function gets, one by one
    names      what each item is called in messages; items of one name are one failure
    sizes      how much work each item is, in any unit
    needs_gpu  whether only workers with a GPU may run it

    `prepare` and `function` are functions of modules, because they are sent by name.
    """

    kind: str
    prepare: Callable[[Any, int], Any]
    function: Callable[[Any, Any], Any]
    common: Any
    items: Sequence[Any]
    names: Sequence[str]
    sizes: Sequence[float]
    needs_gpu: bool = False


@dataclass(frozen=True)
class Outcome:
    """The outcome of an item: the value that its function returned, or why there is none.

    It is the value of the last try: what a worker wrote before it died is there already.
    """

    number: int
    value: Any = None
    reason: str = ""


class Cluster(Protocol):
    """Processes that work on items; `callshot.distributed.open_cluster` makes one."""

    def run(self, job: Job) -> Iterator[Outcome]:
        """Yield the outcome of each item, in the order in which they end."""

    def add_audio(self, seconds: float) -> None:
        """Count audio that was worked on, for the table at the end."""
