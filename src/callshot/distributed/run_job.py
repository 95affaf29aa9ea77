"""A job and a client of Dask come in; what became of each item goes out, as items end.

Only a few tasks for each worker are with the scheduler at a time, so that its memory does not grow
with the job, and few tasks are on a worker that dies. Items that were on a worker that died are
tried again one by one, then with nothing else running; only an item that ends its process then too
is left out. An item that fails is tried again on another worker, and so are the items of a worker
that could not open what the job needs.
"""

import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from callshot.distributed.job_workers import (
    GPU,
    JobWorkers,
    check_alive,
    ignore_missing,
    lost_message,
)
from callshot.distributed.task_reports import TaskReports
from callshot.distributed.worker import (
    DONE,
    LATER,
    NOT_WRITTEN,
    ItemReport,
    OpeningFailed,
    TaskItems,
    TaskReport,
    Work,
    WorkerUnfit,
    run_items,
)
from callshot.errors import ClusterError, OutputError
from callshot.files import error_reason
from callshot.jobs import Job, Outcome

if TYPE_CHECKING:
    from distributed import Client, Future

TASKS_PER_WORKER = 2  # one that runs, and the next
TASK_S = 2.0  # that a task should take: short items go together
WORKERS_PER_TASK_S = 50  # with more workers tasks take longer: the scheduler has fewer
MAX_ITEMS = 1000  # in a task
MAX_TOGETHER = 200  # tasks in a message to the scheduler
MAX_TRIES = 2  # of an item that fails, on different workers
MAX_WRITES = 3  # tries to write a result, on different workers
SHARED_DEATHS = 2  # of workers that had the item among others, before it is tried alone
LONE_DEATHS = 3  # of workers that had nothing but the item, before it is left out
COLLECT_S = 0.0005  # for each worker, between the end of a task and the questions
LATER_S = 1.0  # between looks at items that other processes work on


@dataclass
class Usage:
    """What jobs took so far, summed over workers."""

    items: int = 0
    failures: int = 0
    retries: int = 0
    audio_s: float = 0.0
    cpu_s: float = 0.0
    wall_s: float = 0.0
    bytes_read: int = 0
    given_up: dict[str, str] = field(default_factory=dict)  # workers, and why


@dataclass(frozen=True)
class _Batch:
    """Items that are one task.

    workers  those that should have it, all if there are none
    sent_s   when it was sent
    """

    numbers: Sequence[int]
    is_alone: bool = False
    workers: Sequence[str] = ()
    sent_s: float = 0.0


@dataclass
class JobRun:
    """The items of a job that wait, those with the scheduler, and those under suspicion."""

    client: "Client"
    job: Job
    usage: Usage
    threads: int | None = None
    restore: Callable[[], None] = ignore_missing
    waiting: deque[_Batch] = field(default_factory=deque)  # to be tried again first
    unsent: deque[int] = field(default_factory=deque)
    suspects: deque[int] = field(default_factory=deque)
    later: list[int] = field(default_factory=list)
    running: dict["Future", _Batch] = field(default_factory=dict)
    tries: Counter[int] = field(default_factory=Counter)
    deaths: Counter[int] = field(default_factory=Counter)
    lone_deaths: Counter[int] = field(default_factory=Counter)
    failed_on: dict[int, str] = field(default_factory=dict)  # worker of the last try
    left_out: set[str] = field(default_factory=set)  # names of items
    sent: int = 0
    size_done: float = 0.0
    worked_s: float = 0.0

    def __post_init__(self) -> None:
        self.unsent.extend(range(len(self.job.items)))
        self.size_left = sum(self.job.sizes)
        self.reports = TaskReports(self.client)
        self.workers = JobWorkers(self.client, self.job, self.restore)
        self.work = Work.of_job(self.job, uuid.uuid4().hex, self.threads)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield what became of each item; cancel the rest if the caller stops."""
        try:
            while self._send():
                self._ask_for_reports()
                for future, report in self.reports.collect():
                    yield from self._receive(future, report)
        finally:
            self._cancel()

    # Sending

    def _send(self) -> bool:
        """Send as many tasks as the workers can have; return False when everything is done."""
        if self.workers.count_again():
            self._take_back_lost()
        together: dict[tuple[str, ...], list[_Batch]] = {}
        for batch in self._choose_batches():
            workers = tuple(self._choose_workers(batch))
            sent = replace(batch, workers=workers, sent_s=time.monotonic())
            together.setdefault(workers, []).append(sent)
        for workers, batches in together.items():
            self._submit(batches, workers)
        unsent = self.waiting or self.unsent or self.suspects or self.later
        return bool(self.running or unsent)  # while all workers pause, nothing is sent

    def _choose_batches(self) -> Iterator[_Batch]:
        if self.workers.all_pause:
            return
        most = TASKS_PER_WORKER * max(1, len(self.workers.ready))
        # Tasks on workers that do not answer leave room for others.
        room = most - len(self.running) + self.reports.count_late()
        if len(self.running) == 1 and next(iter(self.running.values())).is_alone:
            return
        while room > 0 and (self.waiting or self.unsent):
            yield self._next_batch()
            room -= 1
        if self.running or room < most:
            return
        if self.suspects:
            yield _Batch([self.suspects.popleft()], is_alone=True)
        elif self.later:
            time.sleep(LATER_S)
            yield from (_Batch([number]) for number in self.later)
            self.later = []

    def _next_batch(self) -> _Batch:
        if self.waiting:
            return self.waiting.popleft()
        numbers: list[int] = []
        size = 0.0
        most = self._batch_size()
        while self.unsent and len(numbers) < MAX_ITEMS:
            next_size = self.job.sizes[self.unsent[0]]
            if numbers and size + next_size > most:
                break
            numbers.append(self.unsent.popleft())
            size += next_size
        self.size_left -= size
        return _Batch(numbers)

    def _batch_size(self) -> float:
        """Return how much work a task should be: at first an item, then some seconds."""
        if not self.worked_s:
            return 0.0
        workers = max(1, len(self.workers.ready))
        task_s = max(TASK_S, workers / WORKERS_PER_TASK_S)
        share = self.size_left / (TASKS_PER_WORKER * workers)
        return min(task_s * self.size_done / self.worked_s, share)

    def _submit(self, batches: Sequence[_Batch], workers: Sequence[str]) -> None:
        """Send tasks together: one graph costs the scheduler less than many."""
        options: dict[str, Any] = {}
        if workers:
            may_be_others = not self.workers.some_pause
            options = {"workers": list(workers), "allow_other_workers": may_be_others}
        if self.job.needs_gpu:
            options["resources"] = {GPU: 1}
        name = f"{self.job.kind}-{self.work.job_id}"
        numbers = range(self.sent, self.sent + len(batches))
        self.sent += len(batches)
        futures = self.client.map(
            run_items,
            [self.work] * len(batches),
            [self._list_items(batch) for batch in batches],
            key=[f"{name}-{number}" for number in numbers],
            pure=False,  # or Dask computes a hash of all items
            batch_size=MAX_TOGETHER,
            **options,
        )
        for future, batch in zip(futures, batches, strict=True):
            self.running[future] = batch
            self.reports.watch(future)

    def _list_items(self, batch: _Batch) -> TaskItems:
        items = [self.job.items[number] for number in batch.numbers]
        return TaskItems(batch.numbers, items)

    def _choose_workers(self, batch: _Batch) -> list[str]:
        """Return the workers that a batch should go to; none if it may go to all."""
        some_pause = self.workers.some_pause
        failed_on = {self.failed_on.get(number, "") for number in batch.numbers}
        if not any(failed_on) and not some_pause:
            return []
        ready = self.workers.ready
        others = [worker for worker in ready if worker not in failed_on]
        return others or (ready if some_pause else [])

    def _take_back_lost(self) -> None:
        """Send tasks again whose workers are gone.

        If there was no worker at all when Dask got a task, it waits for one of those that were
        named, though others are allowed.
        """
        bound = {
            future: batch for future, batch in self.running.items() if batch.workers
        }
        for future, batch in bound.items():
            is_waiting = future.status == "pending"
            if is_waiting and set(batch.workers).isdisjoint(self.workers.addresses):
                del self.running[future]
                future.release()
                self.waiting.append(replace(batch, workers=()))

    # Receiving

    def _ask_for_reports(self) -> None:
        """Ask for the reports of tasks that ended, after a while perhaps of none."""
        collect_s = COLLECT_S * len(self.workers.addresses)
        ended = self.reports.wait(collect_s)
        self.reports.ask([future for future in ended if future in self.running])

    def _receive(
        self, future: "Future", report: TaskReport | None
    ) -> Iterator[Outcome]:
        """Finish a task, unless it was taken back, or its worker died and it runs again."""
        if future not in self.running:
            return
        if report is None and not future.done():
            self.reports.watch(future)
        else:
            yield from self._finish(future, report)

    def _finish(self, future: "Future", report: TaskReport | None) -> Iterator[Outcome]:
        from distributed import KilledWorker

        batch = self.running.pop(future)
        try:
            report = report or future.result()
        except KilledWorker:
            yield from self._suspect(batch)
            return
        except OpeningFailed as error:
            self._send_elsewhere(batch, error)
            return
        except WorkerUnfit as error:
            raise ClusterError(f"{self.job.kind}: {error}") from None
        except Exception as error:
            raise self._explain(future, error) from error
        finally:
            future.release()
        self.workers.note_opened(report.worker)
        self._count(batch, report)
        for item in report.items:
            yield from self._finish_item(item, report.worker)

    def _send_elsewhere(self, batch: _Batch, error: OpeningFailed) -> None:
        """Send the items of a worker that could not begin with them again, to others if it can."""
        self.workers.note_failed(error.worker, error.reason, batch.sent_s)
        self.usage.given_up |= self.workers.given_up
        if batch.is_alone:
            self.suspects.extendleft(batch.numbers)
        else:
            self._try_again(replace(batch, workers=()))

    def _explain(self, future: "Future", error: Exception) -> ClusterError:
        """Return why a task has no report: a lost scheduler, or a worker without callshot."""
        check_alive(self.client)
        if future.cancelled():
            return ClusterError(lost_message(self.client))
        return ClusterError(
            f"{self.job.kind}: a worker cannot run tasks of callshot "
            f"({type(error).__name__}: {error_reason(error)}); "
            "install the same version of callshot on all workers"
        )

    def _count(self, batch: _Batch, report: TaskReport) -> None:
        self.usage.cpu_s += report.cpu_s
        self.usage.wall_s += report.wall_s
        self.usage.bytes_read += report.bytes_read
        self.worked_s += report.items_s
        self.size_done += sum(self.job.sizes[number] for number in batch.numbers)

    def _finish_item(self, item: ItemReport, worker: str) -> Iterator[Outcome]:
        number = item.number
        if item.state == DONE:
            self.usage.items += 1
            yield Outcome(number, item.value)
            return
        if item.state == LATER:
            self.later.append(number)
            return
        self.tries[number] += 1
        most = MAX_WRITES if item.state == NOT_WRITTEN else MAX_TRIES
        if self.tries[number] < most:
            self.failed_on[number] = worker
            self._try_again(_Batch([number]))
            return
        if item.state == NOT_WRITTEN:
            raise OutputError(item.reason)
        yield self._leave_out(number, item.reason)

    def _suspect(self, batch: _Batch) -> Iterator[Outcome]:
        """Try the items of a worker that died again, and leave out what ended it alone."""
        for number in batch.numbers:
            deaths = self.lone_deaths if batch.is_alone else self.deaths
            deaths[number] += 1
            if self.lone_deaths[number] >= LONE_DEATHS:
                yield self._leave_out(number, self._describe_deaths(number))
            elif self.deaths[number] >= SHARED_DEATHS:
                self.usage.retries += 1
                self.suspects.append(number)
            else:
                self._try_again(_Batch([number]))

    def _try_again(self, batch: _Batch) -> None:
        self.usage.retries += 1
        self.waiting.append(batch)

    def _describe_deaths(self, number: int) -> str:
        return (
            f"{self.job.names[number]}: ended the process that worked on it alone, "
            f"{self.lone_deaths[number]} times (a crash, or too little memory)"
        )

    def _leave_out(self, number: int, reason: str) -> Outcome:
        name = self.job.names[number]
        if name not in self.left_out:  # spans of a recording are one failure
            self.left_out.add(name)
            self.usage.failures += 1
        return Outcome(number, reason=reason)

    def _cancel(self) -> None:
        """Take back what the scheduler still has."""
        for future in self.running:
            future.release()
