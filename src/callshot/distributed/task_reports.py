"""Tasks of Dask that have ended come in; their reports go out, when the workers have sent them.

The reports of several tasks are asked for together: each question goes to the worker by way of the
scheduler. A worker that is stopped does not answer; nobody waits for it.
"""

import asyncio
import queue
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future as Question
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from callshot.distributed.job_workers import check_alive, lost_message
from callshot.distributed.worker import TaskReport
from callshot.errors import ClusterError

if TYPE_CHECKING:
    from distributed import Client, Future

POLL_S = 0.5
ANSWER_S = 5.0  # for the reports of several tasks; then each is asked for alone

Reports = Mapping[str, TaskReport]  # by the key of a task


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

    Questions are never cancelled: Dask joins them with those of other tasks, also of other jobs.
    """

    client: "Client"
    ended: "queue.SimpleQueue[Future | None]" = field(default_factory=queue.SimpleQueue)
    questions: dict[Question[Reports], _Asked] = field(default_factory=dict)

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
        ready = {}
        for future in futures:
            if future.done():
                ready[future.key] = future
            else:
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
                reports = self._read_answer(question)
                for future in asked.futures:
                    yield future, reports.get(future.key)
            elif asked.is_late and len(asked.futures) > 1:
                del self.questions[question]
                for future in asked.futures:
                    self.ask([future])

    def count_late(self) -> int:
        """Return how many tasks ended on workers that do not answer."""
        late = [asked for asked in self.questions.values() if asked.is_late]
        return sum(len(asked.futures) for asked in late)

    def _read_answer(self, question: Question[Reports]) -> Reports:
        try:
            return question.result()
        except Exception as error:
            raise ClusterError(lost_message(self.client)) from error
