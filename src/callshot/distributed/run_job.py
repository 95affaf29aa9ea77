"""A job and a client of Dask come in; what became of each item goes out, as items end.

Only a few tasks for each worker are with the scheduler at a time, so that its memory does not grow
with the job, and few tasks are on a worker that dies. Items that were on a worker that died are
tried again one by one, then with nothing else running; only an item that ends its process then too
is left out. An item that fails is tried again on another worker. A worker that cannot open what a
job needs, because storage or a shared disk failed, gets no task for some seconds, and none at all
after a few tries; the job ends when no other worker is left.
"""

import asyncio
import queue
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future as Question
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

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
    find_versions,
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
MAX_OPENINGS = 3  # tries of a worker to open what a job needs
PAUSE_S = 5.0  # after the first of them, twice as long after the next
COUNT_S = 2.0  # between looks at which workers there are
NO_WORKERS_S = 300.0
POLL_S = 0.5
COLLECT_S = 0.0005  # for each worker, between the end of a task and the questions
ANSWER_S = 5.0  # for the reports of several tasks; then each is asked for alone
LATER_S = 1.0  # between looks at items that other processes work on
GPU = "GPU"  # the resource that workers with a GPU announce


# The scheduler


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


# Workers


@dataclass
class FailedOpenings:
    """How often a worker could not open what a job needs, why, and until when it gets no task."""

    count: int = 0
    end_s: float = 0.0
    reason: str = ""

    @property
    def is_last(self) -> bool:
        """Whether the worker gets no task any more."""
        return self.count >= MAX_OPENINGS

    def add(self, reason: str, sent_s: float) -> None:
        """Count a failure, but not that of a task that was sent before the end of the pause."""
        self.reason = reason
        if self.is_last or sent_s < self.end_s:
            return
        self.end_s = time.monotonic() + PAUSE_S * 2**self.count
        self.count += 1


@dataclass
class JobWorkers:
    """The workers that can have tasks of a job.

    restore    starts workers again that are gone for good, where we started them
    addresses  of all workers, of those with a GPU if the job needs one
    failed     those that could not open what the job needs, by address
    """

    client: "Client"
    job: Job
    restore: Callable[[], None] = ignore_missing
    addresses: list[str] = field(default_factory=list)
    failed: dict[str, FailedOpenings] = field(default_factory=dict)
    counted_s: float = -COUNT_S
    seen_s: float = field(default_factory=time.monotonic)  # when there were workers

    def count_again(self) -> bool:
        """Ask now and then which workers there are: some die, others come."""
        if time.monotonic() - self.counted_s < COUNT_S:
            return False
        self.restore()
        self.addresses = list_workers(self.client, needs_gpu=self.job.needs_gpu)
        for address in self.failed.keys() - set(self.addresses):
            del self.failed[address]
        self.counted_s = time.monotonic()
        if not self._all_failed:
            self.seen_s = self.counted_s
        elif self.counted_s - self.seen_s > NO_WORKERS_S:
            raise ClusterError(f"{self.job.kind}: {self._describe_missing()}")
        return True

    def _describe_missing(self) -> str:
        """Return why no worker can have tasks."""
        if self.failed:
            address, failed = next(iter(self.failed.items()))
            waited = f"no other worker came in {NO_WORKERS_S:g} s"
            return f"worker {address}: {failed.reason}; {waited}"
        kind = "workers with a GPU" if self.job.needs_gpu else "workers"
        return (
            f"the cluster has had no {kind} for {NO_WORKERS_S:g} s; start some, and run the "
            "command again"
        )

    @property
    def pausing(self) -> set[str]:
        """The workers that get no task now."""
        now_s = time.monotonic()
        failed = self.failed.items()
        return {name for name, one in failed if one.is_last or now_s < one.end_s}

    @property
    def ready(self) -> list[str]:
        """The workers that may have tasks now."""
        pausing = self.pausing
        return [one for one in self.addresses if one not in pausing]

    @property
    def given_up(self) -> dict[str, str]:
        """The workers that get no task any more, with the reasons."""
        failed = self.failed.items()
        return {name: one.reason for name, one in failed if one.is_last}

    @property
    def _all_failed(self) -> bool:
        """Whether no worker gets tasks any more, or there is none."""
        return self.given_up.keys() >= set(self.addresses)

    def note_failed(self, address: str, reason: str, sent_s: float) -> None:
        """Count that a worker failed to open what the job needs; raise if all did, too often.

        `sent_s` is when its task was sent.
        """
        self.failed.setdefault(address, FailedOpenings()).add(reason, sent_s)
        if address in self.addresses and self._all_failed:
            raise ClusterError(
                f"{self.job.kind}: worker {address}: {reason}; every worker failed like this, "
                f"{MAX_OPENINGS} times"
            )


# Reports


@dataclass(frozen=True)
class _Asked:
    """Tasks that ended, and when their reports were asked for."""

    futures: Sequence["Future"]
    start_s: float

    @property
    def is_late(self) -> bool:
        """Whether the answer should have come by now."""
        return time.monotonic() - self.start_s > ANSWER_S


@dataclass
class TaskReports:
    """The tasks that have ended, and the questions for their reports.

    Reports of several tasks are asked for together: each question goes to the worker by way of the
    scheduler. A worker that is stopped does not answer; nobody waits for it. Questions are never
    cancelled: Dask joins them with those of other tasks, also of other jobs.
    """

    client: "Client"
    ended: "queue.SimpleQueue[Future | None]" = field(default_factory=queue.SimpleQueue)
    questions: dict[Question[dict[str, TaskReport]], _Asked] = field(
        default_factory=dict
    )

    def watch(self, future: "Future") -> None:
        """Note when a task ends."""
        future.add_done_callback(self.ended.put)

    def wait(self, collect_s: float) -> list["Future"]:
        """Return tasks that ended, after a while or when a question was answered perhaps none.

        After the first, others may end in `collect_s` seconds.
        """
        try:
            ended = [self.ended.get(timeout=POLL_S)]
        except queue.Empty:
            check_alive(self.client)
            return []
        time.sleep(collect_s)
        while not self.ended.empty():
            ended.append(self.ended.get())
        return [future for future in ended if future is not None]

    def ask(self, futures: Sequence["Future"]) -> None:
        """Ask for the reports of tasks that ended, without waiting for the answer.

        If a worker died in the meantime, its tasks have not ended any more: Dask runs them again.
        """
        ready = {future.key: future for future in futures if future.done()}
        for future in futures:
            if future.key not in ready:
                self.watch(future)
        if not ready:
            return
        answer = self.client.gather(ready, errors="skip", asynchronous=True)
        question = asyncio.run_coroutine_threadsafe(
            answer, self.client.loop.asyncio_loop
        )
        self.questions[question] = _Asked(list(ready.values()), time.monotonic())
        question.add_done_callback(lambda _: self.ended.put(None))

    def collect(self) -> Iterator[tuple["Future", TaskReport | None]]:
        """Yield tasks with the reports that came: None for one that failed, or runs again.

        Of several tasks whose reports are late, each is asked for alone, so that none waits for
        another.
        """
        for question, asked in list(self.questions.items()):
            if question.done():
                del self.questions[question]
                try:
                    reports = question.result()
                except Exception as error:
                    raise ClusterError(lost_message(self.client)) from error
                for future in asked.futures:
                    yield future, reports.get(future.key)
            elif asked.is_late and len(asked.futures) > 1:
                del self.questions[question]
                for future in asked.futures:
                    self.ask([future])

    def count_late(self) -> int:
        """Return how many tasks ended on workers that do not answer."""
        asked = self.questions.values()
        return sum(len(one.futures) for one in asked if one.is_late)


# Jobs


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


class JobRun:
    """The items of a job that wait, those with the scheduler, and those under suspicion."""

    def __init__(
        self,
        client: "Client",
        job: Job,
        usage: Usage,
        threads: int | None = None,
        restore: Callable[[], None] = ignore_missing,
    ) -> None:
        self.client = client
        self.job = job
        self.usage = usage
        self.reports = TaskReports(client)
        self.workers = JobWorkers(client, job, restore)
        self.work = Work(
            uuid.uuid4().hex,
            find_versions(),
            job.prepare,
            job.function,
            job.common,
            threads,
        )
        self.waiting: deque[_Batch] = deque()  # to be tried again first
        self.unsent = deque(range(len(job.items)))
        self.suspects: deque[int] = deque()
        self.later: list[int] = []
        self.running: dict[Future, _Batch] = {}
        self.tries: Counter[int] = Counter()
        self.deaths: Counter[int] = Counter()
        self.lone_deaths: Counter[int] = Counter()
        self.failed_on: dict[int, str] = {}  # worker of the last try
        self.left_out: set[str] = set()  # names of items
        self.sent = 0
        self.size_left = sum(job.sizes)
        self.size_done = 0.0
        self.worked_s = 0.0

    def outcomes(self) -> Iterator[Outcome]:
        """Yield what became of each item; take the rest back if the caller stops."""
        try:
            while self._send():
                self._ask_for_reports()
                for future, report in self.reports.collect():
                    yield from self._receive(future, report)
        finally:
            self._cancel()

    def _cancel(self) -> None:
        """Take back what the scheduler still has."""
        for future in self.running:
            future.release()

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
        ready = len(self.workers.ready)
        if self.workers.addresses and ready == 0:
            return
        most = TASKS_PER_WORKER * max(1, ready)
        # Tasks on workers that do not answer leave room for others.
        room = most - len(self.running) + self.reports.count_late()
        if len(self.running) == 1 and next(iter(self.running.values())).is_alone:
            return
        while room > 0 and (self.waiting or self.unsent):
            yield self.waiting.popleft() if self.waiting else self._next_batch(ready)
            room -= 1
        if self.running or room < most:
            return
        if self.suspects:
            yield _Batch([self.suspects.popleft()], is_alone=True)
        elif self.later:
            time.sleep(LATER_S)
            yield from (_Batch([number]) for number in self.later)
            self.later = []

    def _next_batch(self, ready: int) -> _Batch:
        """Return the next items: at first one, then as many as take some seconds."""
        most = 0.0
        if self.worked_s:
            workers = max(1, ready)
            task_s = max(TASK_S, workers / WORKERS_PER_TASK_S)
            share = self.size_left / (TASKS_PER_WORKER * workers)
            most = min(task_s * self.size_done / self.worked_s, share)
        numbers: list[int] = []
        size = 0.0
        while self.unsent and len(numbers) < MAX_ITEMS:
            next_size = self.job.sizes[self.unsent[0]]
            if numbers and size + next_size > most:
                break
            numbers.append(self.unsent.popleft())
            size += next_size
        self.size_left -= size
        return _Batch(numbers)

    def _submit(self, batches: Sequence[_Batch], workers: Sequence[str]) -> None:
        """Send tasks together: one graph costs the scheduler less than many."""
        options: dict[str, Any] = {}
        if workers:
            may_be_others = not self.workers.pausing
            options = {"workers": list(workers), "allow_other_workers": may_be_others}
        if self.job.needs_gpu:
            options["resources"] = {GPU: 1}
        tasks = []
        for batch in batches:
            items = [self.job.items[number] for number in batch.numbers]
            tasks.append(TaskItems(batch.numbers, items))
        name = f"{self.job.kind}-{self.work.job_id}"
        numbers = range(self.sent, self.sent + len(batches))
        self.sent += len(batches)
        futures = self.client.map(
            run_items,
            [self.work] * len(batches),
            tasks,
            key=[f"{name}-{number}" for number in numbers],
            pure=False,  # or Dask computes a hash of all items
            batch_size=MAX_TOGETHER,
            **options,
        )
        for future, batch in zip(futures, batches, strict=True):
            self.running[future] = batch
            self.reports.watch(future)

    def _choose_workers(self, batch: _Batch) -> list[str]:
        """Return the workers that a batch should go to; none if it may go to all."""
        some_pause = bool(self.workers.pausing)
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
        for future, batch in list(self.running.items()):
            is_waiting = bool(batch.workers) and future.status == "pending"
            if is_waiting and set(batch.workers).isdisjoint(self.workers.addresses):
                del self.running[future]
                future.release()
                self.waiting.append(replace(batch, workers=()))

    # Receiving

    def _ask_for_reports(self) -> None:
        """Ask for the reports of tasks that ended, after a while perhaps of none."""
        ended = self.reports.wait(COLLECT_S * len(self.workers.addresses))
        self.reports.ask([future for future in ended if future in self.running])

    def _receive(
        self, future: "Future", report: TaskReport | None
    ) -> Iterator[Outcome]:
        """Finish a task, unless it was taken back, or its worker died and it runs again."""
        from distributed import KilledWorker

        if future not in self.running:
            return
        if report is None and not future.done():
            self.reports.watch(future)
            return
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
        self.workers.failed.pop(report.worker, None)
        self.usage.cpu_s += report.cpu_s
        self.usage.wall_s += report.wall_s
        self.usage.bytes_read += report.bytes_read
        self.worked_s += report.items_s
        self.size_done += sum(self.job.sizes[number] for number in batch.numbers)
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
            lone_deaths = self.lone_deaths[number]
            if lone_deaths >= LONE_DEATHS:
                reason = (
                    f"{self.job.names[number]}: ended the process that worked on it alone, "
                    f"{lone_deaths} times (a crash, or too little memory)"
                )
                yield self._leave_out(number, reason)
            elif self.deaths[number] >= SHARED_DEATHS:
                self.usage.retries += 1
                self.suspects.append(number)
            else:
                self._try_again(_Batch([number]))

    def _try_again(self, batch: _Batch) -> None:
        self.usage.retries += 1
        self.waiting.append(batch)

    def _leave_out(self, number: int, reason: str) -> Outcome:
        name = self.job.names[number]
        if name not in self.left_out:  # spans of a recording are one failure
            self.left_out.add(name)
            self.usage.failures += 1
        return Outcome(number, reason=reason)
