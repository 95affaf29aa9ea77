"""Pools of threads that end with the program: after Ctrl-C nobody waits for a long task."""

import os
from collections.abc import Callable
from concurrent.futures import CancelledError, ThreadPoolExecutor
from threading import Event
from types import TracebackType
from typing import Any

from callshot.interrupts import let_signals_end_waits

Check = Callable[[], None]
"""Raises CancelledError if the task that calls it is to stop."""


def never_stop() -> None:
    """Let a task run to its end."""


class Pool(ThreadPoolExecutor):
    """Threads, by default one per core; `with` waits for them, after Ctrl-C it does not.

    A task that began goes on in the background until it ends or calls `check_stopped`. So tasks
    must not write files, and long ones should call it between blocks of work.
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
        is_error = issubclass(kind, Exception | GeneratorExit)
        self.shutdown(wait=is_error, cancel_futures=True)
