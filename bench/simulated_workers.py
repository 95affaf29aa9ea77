"""A simulated cluster: Dask's scheduler in one process, many of its workers in some others.

    python simulated_workers.py scheduler FILE
    python simulated_workers.py workers FILE COUNT

What a worker does between tasks for its own statistics (ticks, profiles, the use of memory) is set
to be rare: for a thousand of them it would take more cores than there are.
"""

import asyncio
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dask
import psutil

TOGETHER = 20  # workers of a process that start at a time
PROCESSES = 2  # of workers
CONNECT_S = 600.0
WAIT_S = 0.5  # the stand-in for an encoder waits for several items at once
RARELY = "100s"
SETTINGS = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.comm.timeouts.connect": "300s",
    "distributed.comm.timeouts.tcp": "300s",
    "distributed.scheduler.worker-ttl": "600s",
    "distributed.admin.low-level-log-length": 0,
    "distributed.logging": {"distributed": "critical"},
}
WORKER_SETTINGS = {
    "distributed.worker.profile.enabled": False,
    "distributed.admin.tick.interval": RARELY,
    "distributed.admin.tick.cycle": RARELY,
    "distributed.admin.system-monitor.interval": RARELY,
    "distributed.admin.system-monitor.disk": False,
    "distributed.admin.system-monitor.host-cpu": False,
    "distributed.admin.system-monitor.gil.enabled": False,
    "distributed.worker.http.routes": [],
}
_waits = threading.local()


# The job


def prepare(seconds: float, threads: int) -> float:
    """Return the seconds that an item takes."""
    return seconds


def wait(seconds: float, item: int) -> int:
    """Stand in for an encoder that takes a known time, without using a core."""
    owed_s = getattr(_waits, "owed_s", 0.0) + seconds
    if owed_s >= WAIT_S:
        start_s = time.monotonic()
        time.sleep(owed_s)
        owed_s -= time.monotonic() - start_s
    _waits.owed_s = owed_s
    return item


# The processes


async def run_scheduler(file: Path) -> None:
    """Run a scheduler until it is closed, as `dask scheduler` does."""
    from distributed import Scheduler

    options: dict[str, Any] = {"host": "127.0.0.1", "port": 0, "dashboard": False}
    async with Scheduler(**options, scheduler_file=str(file)) as scheduler:
        await scheduler.finished()


async def run_workers(file: Path, count: int) -> None:
    """Run workers until they are closed; they share this process."""
    from distributed import Worker

    _let_workers_run_together()
    options: dict[str, Any] = {"nthreads": 1, "memory_limit": 0, "dashboard": False}
    options["scheduler_file"] = str(file)
    folder = tempfile.mkdtemp(dir=file.parent)
    started: list[Worker] = []
    while len(started) < count:
        numbers = range(len(started), min(count, len(started) + TOGETHER))
        # In a folder that they share, each would look at the locks of all the others.
        places = [f"{folder}/{number}" for number in numbers]
        block = [Worker(**options, local_directory=place) for place in places]
        await asyncio.gather(*block)
        started += block
    await asyncio.gather(*[worker.finished() for worker in started])


def _let_workers_run_together() -> None:
    """Take away the lock that keeps a process to one task: here it has many workers."""
    from contextlib import nullcontext

    from callshot.distributed import worker

    worker._lock = nullcontext()  # type: ignore[assignment]


# The cluster


@dataclass(frozen=True)
class SimulatedCluster:
    """A client, and the processes whose CPU time and memory are of interest."""

    client: Any
    scheduler: psutil.Process
    workers: Sequence[psutil.Process]
    connect_s: float

    def cpu_s(self) -> tuple[float, float, float]:
        """Return the CPU seconds so far of scheduler, client and workers."""
        used = [_read_cpu(process) for process in self.workers]
        return _read_cpu(self.scheduler), _read_cpu(psutil.Process()), sum(used)


def _read_cpu(process: psutil.Process) -> float:
    times = process.cpu_times()
    return times.user + times.system


@contextmanager
def simulated_cluster(count: int) -> Iterator[SimulatedCluster]:
    """Start a scheduler and workers, and end them with the block."""
    from distributed import Client

    dask.config.set(SETTINGS)
    started: list[subprocess.Popen[bytes]] = []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        file = Path(folder) / "scheduler.json"
        start_s = time.monotonic()
        try:
            started.append(_start("scheduler", file))
            for part in range(min(PROCESSES, count)):
                share = len(range(part, count, PROCESSES))
                started.append(_start("workers", file, str(share)))
            _wait_for_file(file)
            client = Client(scheduler_file=str(file), set_as_default=False, timeout=60)
            client.wait_for_workers(count, timeout=CONNECT_S)
            processes = [psutil.Process(one.pid) for one in started]
            connect_s = time.monotonic() - start_s
            yield SimulatedCluster(client, processes[0], processes[1:], connect_s)
        finally:
            for process in reversed(started):
                process.kill()
                process.wait()


def _start(kind: str, file: Path, *more: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, __file__, kind, str(file), *more]
    return subprocess.Popen(command, cwd=file.parent, stderr=subprocess.DEVNULL)


def _wait_for_file(file: Path) -> None:
    end_s = time.monotonic() + CONNECT_S
    while not file.exists() and time.monotonic() < end_s:
        time.sleep(0.1)


def main() -> None:
    """Run a scheduler or workers."""
    kind, name, *count = sys.argv[1:]
    file = Path(name)
    dask.config.set(SETTINGS)
    if kind == "scheduler":
        asyncio.run(run_scheduler(file))
        return
    _wait_for_file(file)
    dask.config.set(WORKER_SETTINGS)
    asyncio.run(run_workers(file, int(count[0])))


if __name__ == "__main__":
    main()
