"""A job and a client of Dask come in; the outcome of each item goes out, as items end.

Dask distributes the tasks, of several items each, and runs those of a worker that died again. If
that happens to a task too often, its items are tried alone, with nothing else running; only an item
that ends its processes then too is left out. An item that fails is tried again on another worker. A
worker that cannot open what a job needs, because storage or a shared disk failed, gets no more of
its tasks; the job ends when no other worker is left.
"""

import pickle
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from callshot.distributed.worker import (
    DONE,
    LATER,
    MAX_OPENINGS,
    NOT_WRITTEN,
    OpeningFailed,
    Work,
    WorkerUnfit,
    find_versions,
    run_items,
)
from callshot.errors import ClusterError, OutputError
from callshot.files import error_reason
from callshot.jobs import Job, Outcome

if TYPE_CHECKING:
    from distributed import Client, Future

TASKS_PER_WORKER = 16  # if items are short; so no worker waits long for the last one
MAX_ITEMS = 50  # in a task
MAX_TOGETHER = 200  # tasks in a message to the scheduler
MAX_TRIES = 2  # of an item that fails, on different workers
MAX_WRITES = 3  # tries to write a result, on different workers
COUNT_S = 2.0  # between looks at which workers there are
NO_WORKERS_S = 300.0
POLL_S = 0.02
LATER_S = 1.0  # between looks at items that other processes work on
GPU = "GPU"  # the resource that workers with a GPU announce


def list_workers(client: "Client", *, needs_gpu: bool = False) -> list[str]:
    """Return the addresses of the workers that the scheduler has now, or of those with a GPU."""
    check_alive(client)
    try:
        if not needs_gpu:
            return list(client.nthreads())
        # What scheduler_info returns may be without workers.
        identity = client.sync(client.scheduler.identity, n_workers=-1)
    except Exception as error:
        raise ClusterError(lost_message(client)) from error
    workers = identity["workers"].items()
    return [address for address, facts in workers if GPU in facts["resources"]]


def check_alive(client: "Client") -> None:
    """Raise ClusterError if the scheduler is gone."""
    if client.status != "running":
        raise ClusterError(lost_message(client))


def lost_message(client: "Client") -> str:
    """Return what to do when the scheduler is gone."""
    address = getattr(client.scheduler, "address", "")
    return (
        f"the scheduler {address} is gone; what was finished is kept: start a scheduler and "
        "workers, and run the command again"
    )


def ignore_missing() -> None:
    """Leave it to others to start workers again."""


@dataclass
class Usage:
    """What jobs took so far, summed over workers."""

    items: int = 0
    failures: int = 0
    retries: int = 0
    audio_s: float = 0.0
    given_up: dict[str, str] = field(default_factory=dict)  # workers, and why


@dataclass(frozen=True)
class _Task:
    """Items of a job, by number, that one worker runs one after another.

    workers   the addresses of those that may run it; if empty, all may
    is_alone  whether it is the only task that runs, because its item may have ended a process
    """

    numbers: Sequence[int]
    workers: Sequence[str] = ()
    is_alone: bool = False


class JobRun:
    """The items of a job that are with the scheduler, and the ones that come later.

    restore    starts workers again that are gone for good, where we started them
    addresses  of all workers, of those with a GPU if the job needs one
    failed     workers that could not open what the job needs, and why
    """

    def __init__(
        self,
        client: "Client",
        job: Job,
        usage: Usage,
        threads: int | None = None,
        restore: Callable[[], None] = ignore_missing,
    ) -> None:
        from distributed import as_completed

        self.client = client
        self.job = job
        self.usage = usage
        self.restore = restore
        without_items = replace(job, items=(), names=(), sizes=())
        job_id = f"{job.kind}-{uuid.uuid4().hex}"
        self.work = Work(job_id, find_versions(), without_items, threads)
        self.ended = as_completed(
            loop=client.loop, with_results=True, raise_errors=False
        )
        self.sent = 0  # number of tasks
        self.running: dict[Future, _Task] = {}
        self.suspects: list[int] = []  # items whose process died, to be tried alone
        self.later: list[int] = []  # items that other processes work on
        self.tries: Counter[int] = Counter()  # of items that failed
        self.left_out: set[str] = set()  # names of items
        self.addresses: list[str] = []
        self.failed: dict[str, str] = {}
        self.counted_s = -COUNT_S  # when workers were counted
        self.seen_s = time.monotonic()  # when there were workers

    def outcomes(self) -> Iterator[Outcome]:
        """Yield the outcome of each item as items end; cancel the rest if the caller stops."""
        try:
            self._follow_workers()
            self._submit(self._first_tasks())
            while self.running or self.suspects or self.later:
                if not self.running and self.suspects:
                    self._submit([_Task([self.suspects.pop(0)], is_alone=True)])
                elif not self.running:
                    time.sleep(LATER_S)
                    self._submit([_Task([number]) for number in self.later])
                    self.later = []
                ended = self.ended.next_batch(block=False)
                for future, result in ended:
                    yield from self._receive(future, result)
                self._follow_workers()
                if not ended:
                    time.sleep(POLL_S)
        finally:
            for future in self.running:
                future.release()

    def _follow_workers(self) -> None:
        """Look every 2 s which workers there are; send tasks again whose workers are gone."""
        now_s = time.monotonic()
        if now_s - self.counted_s < COUNT_S:
            return
        self.counted_s = now_s
        self.restore()
        self.addresses = list_workers(self.client, needs_gpu=self.job.needs_gpu)
        self.failed = {
            address: reason
            for address, reason in self.failed.items()
            if address in self.addresses
        }
        if self.failed.keys() != set(self.addresses):  # some worker has not failed
            self.seen_s = now_s
        elif now_s - self.seen_s > NO_WORKERS_S:
            kind = "workers with a GPU" if self.job.needs_gpu else "workers"
            raise ClusterError(
                f"{self.job.kind}: the cluster has had no {kind} for {NO_WORKERS_S:g} s; "
                "start some, and run the command again"
            )
        # Dask sends other tasks elsewhere itself, but a task for given workers waits for them.
        lost = []
        for future, task in list(self.running.items()):
            if task.workers and set(task.workers).isdisjoint(self.addresses):
                del self.running[future]
                future.release()
                lost.append(task)
        self._submit(replace(task, workers=self._list_allowed()) for task in lost)

    def _first_tasks(self) -> Iterator[_Task]:
        """Yield tasks of all items in order: short items together, long ones alone."""
        sizes = self.job.sizes
        max_size = sum(sizes) / (TASKS_PER_WORKER * max(1, len(self.addresses)))
        numbers: list[int] = []
        size = 0.0
        for number, next_size in enumerate(sizes):
            if numbers and (size + next_size > max_size or len(numbers) == MAX_ITEMS):
                yield _Task(numbers)
                numbers = []
                size = 0.0
            numbers.append(number)
            size += next_size
        yield _Task(numbers)

    def _submit(self, tasks: Iterable[_Task]) -> None:
        """Send tasks to the scheduler; those for the same workers together, which costs it less."""
        together: dict[tuple[str, ...], list[_Task]] = {}
        for task in tasks:
            together.setdefault(tuple(task.workers), []).append(task)
        for workers, group in together.items():
            options: dict[str, Any] = {"workers": list(workers)} if workers else {}
            if self.job.needs_gpu:
                options["resources"] = {GPU: 1}
            # As bytes: Dask does not look into the items.
            pickled = []
            for task in group:
                items = [(number, self.job.items[number]) for number in task.numbers]
                pickled.append(pickle.dumps(items))
            first = self.sent
            self.sent += len(group)
            futures = self.client.map(
                run_items,
                [self.work] * len(group),
                pickled,
                key=[f"{self.work.job_id}-{key}" for key in range(first, self.sent)],
                pure=False,
                batch_size=MAX_TOGETHER,
                **options,
            )
            self.running.update(zip(futures, group, strict=True))
            self.ended.update(futures)

    def _list_allowed(self, worker: str | None = None) -> list[str]:
        """Return the workers that may run a task: all but `worker` and those that failed.

        An empty list means that any worker may: none is excluded, or all are.
        """
        if not self.failed and worker is None:
            return []
        return [
            address
            for address in self.addresses
            if address not in self.failed and address != worker
        ]

    def _receive(self, future: "Future", result: Any) -> Iterator[Outcome]:
        """Yield the outcomes of a task that ended, unless it was sent again meanwhile.

        `result` is what `run_items` returned, or the error. Errors that concern the whole job are
        raised.
        """
        from distributed import KilledWorker

        if future not in self.running:
            return
        task = self.running.pop(future)
        status = future.status
        future.release()
        # Dask gives an error alone, or as the second of a tuple. The status does not show it: a
        # worker may die after its result arrived.
        error = result[1] if isinstance(result, tuple) else result
        if not isinstance(error, BaseException):
            worker, reports = result
            for number, state, value in reports:
                yield from self._finish_item(number, state, value, worker)
        elif isinstance(error, KilledWorker):
            yield from self._suspect_items(task)
        elif isinstance(error, OpeningFailed):
            address, reason = error.args
            self._give_up_worker(address, reason)
            self.usage.retries += 1
            self._submit([replace(task, workers=self._list_allowed(address))])
        elif isinstance(error, WorkerUnfit):
            raise ClusterError(f"{self.job.kind}: {error}") from None
        else:
            check_alive(self.client)
            if status in ("cancelled", "lost"):
                raise ClusterError(lost_message(self.client))
            raise ClusterError(
                f"{self.job.kind}: a worker cannot run tasks of callshot "
                f"({type(error).__name__}: {error_reason(error)}); "
                "install the same version of callshot on all workers"
            ) from error

    def _suspect_items(self, task: _Task) -> Iterator[Outcome]:
        """Have items whose processes died tried alone; yield the outcome of one that was alone."""
        for number in task.numbers:
            if task.is_alone:
                name = self.job.names[number]
                yield self._leave_out(
                    number,
                    f"{name}: ended every process that worked on it alone (a crash, or too "
                    "little memory)",
                )
            else:
                self.usage.retries += 1
                self.suspects.append(number)

    def _give_up_worker(self, address: str, reason: str) -> None:
        """Note a worker that cannot open what the job needs; ClusterError if it was the last."""
        self.failed[address] = reason
        self.usage.given_up[address] = reason
        if self.failed.keys() >= set(self.addresses):
            raise ClusterError(
                f"{self.job.kind}: worker {address}: {reason}; every worker failed like "
                f"this, {MAX_OPENINGS} times"
            )

    def _finish_item(
        self, number: int, state: str, value: Any, worker: str
    ) -> Iterator[Outcome]:
        """Yield the outcome of an item by the report of a worker, or have it tried again."""
        if state == DONE:
            self.usage.items += 1
            yield Outcome(number, value)
            return
        if state == LATER:
            self.later.append(number)
            return
        self.tries[number] += 1
        max_tries = MAX_WRITES if state == NOT_WRITTEN else MAX_TRIES
        if self.tries[number] < max_tries:
            self.usage.retries += 1
            self._submit([_Task([number], self._list_allowed(worker))])
        elif state == NOT_WRITTEN:
            raise OutputError(value)
        else:
            yield self._leave_out(number, value)

    def _leave_out(self, number: int, reason: str) -> Outcome:
        """Return the outcome of an item that failed, and count that."""
        name = self.job.names[number]
        if name not in self.left_out:  # spans of a recording are one failure
            self.left_out.add(name)
            self.usage.failures += 1
        return Outcome(number, reason=reason)
