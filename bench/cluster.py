"""What a cluster costs beyond the work: per task, with two workers, and with many workers.

overhead    items of known time on one local worker: milliseconds per task beyond the work
efficiency  items of known CPU time on one and on two local workers: speed beside twice that of one
simulation  many workers in one process, with a stand-in for an encoder that takes no time: items
            per second, and the memory of the scheduler; they share two cores, so that over about
            100 of them measure each other rather than the scheduler
"""

import asyncio
import logging
import time
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import psutil

from callshot.distributed import open_cluster
from callshot.distributed.run_job import JobRun, Usage
from callshot.jobs import Job
from table import parser, show

TOGETHER = 20  # workers that start at a time


def prepare(common: float, threads: int) -> float:
    """Return the seconds that an item takes."""
    return common


def sleep(seconds: float, item: int) -> int:
    """Stand in for an encoder on another machine: wait."""
    time.sleep(seconds)
    return item


def compute(seconds: float, item: int) -> int:
    """Use a core for some seconds of CPU time."""
    end_s = time.thread_time() + seconds
    while time.thread_time() < end_s:
        sum(range(1000))
    return item


def make_job(function: Any, seconds: float, count: int) -> Job:
    """Return a job of equal items."""
    names = [""] * count
    sizes = [1.0] * count
    return Job("bench", prepare, function, seconds, range(count), names, sizes)


def run(cluster: Any, job: Job) -> float:
    """Run a job to its end; return the seconds."""
    start_s = time.monotonic()
    assert sum(1 for _ in cluster.run(job)) == len(job.items)
    return time.monotonic() - start_s


def measure_overhead(count: int, seconds: float) -> dict[str, object]:
    """Return milliseconds per task beyond the work, with one item in each task."""
    job = make_job(sleep, seconds, count)
    with open_cluster("local:1") as cluster:
        run(cluster, make_job(sleep, 0.0, 4))
        single = JobRun(cluster.client, job, Usage())
        single._batch_size = lambda: 0.0  # type: ignore[method-assign]
        start_s = time.monotonic()
        start_cpu_s = _measure_cpu()
        assert sum(1 for _ in single.outcomes()) == count
        taken_s = time.monotonic() - start_s
        cpu_ms = 1000 * (_measure_cpu() - start_cpu_s) / count
    beyond_ms = 1000 * (taken_s - count * seconds) / count
    return {
        "what": f"overhead: {count} tasks of {seconds:g} s",
        "result": f"{beyond_ms:.1f} ms per task, {cpu_ms:.1f} ms of CPU",
    }


def _measure_cpu() -> float:
    """Return the CPU seconds of this process, with its scheduler, and of its workers."""
    this = psutil.Process()
    total_s = 0.0
    for process in (this, *this.children(recursive=True)):
        times = process.cpu_times()
        total_s += times.user + times.system
    return total_s


def measure_efficiency(count: int, seconds: float) -> dict[str, object]:
    """Return the speed of two workers beside twice that of one."""
    times_s = []
    for workers in (1, 2):
        with open_cluster(f"local:{workers}", threads=1) as cluster:
            run(cluster, make_job(compute, 0.01, 8))
            times_s.append(run(cluster, make_job(compute, seconds, count)))
    efficiency = times_s[0] / (2 * times_s[1])
    return {
        "what": f"efficiency of 2 workers: {count} items of {seconds:g} s of CPU",
        "result": f"{efficiency:.2f} ({times_s[0]:.1f} s, {times_s[1]:.1f} s)",
    }


@contextmanager
def many_workers(count: int) -> Any:
    """Open a scheduler with many workers in this process, which share its threads."""
    from distributed import Client, LocalCluster

    options = {"n_workers": 0, "processes": False, "protocol": "inproc://"}
    cluster = LocalCluster(**options, dashboard_address=None)
    client = Client(cluster, set_as_default=False)
    cluster.sync(_add_workers, cluster, count)
    client.wait_for_workers(count, timeout=300)
    yield client
    for opened in (client, cluster):
        with suppress(TimeoutError):  # what is left ends with this process
            opened.close(timeout=5)


async def _add_workers(cluster: Any, count: int) -> None:
    from distributed import Worker

    address = cluster.scheduler.address
    cluster.bench = []
    for _ in range(0, count, TOGETHER):  # all at once would wait too long for answers
        workers = [
            Worker(address, nthreads=1, dashboard=False, memory_limit=0)
            for _ in range(min(TOGETHER, count - len(cluster.bench)))
        ]
        await asyncio.gather(*workers)
        cluster.bench += workers


def simulate(workers: int, items: int, limit_s: float) -> dict[str, object]:
    """Return how fast a job is at a number of workers, until a limit of time."""
    import callshot.distributed.worker as worker

    worker._lock = _NoLock()  # type: ignore[assignment]
    process = psutil.Process()
    with many_workers(workers) as client:
        before = process.memory_info().rss
        job = make_job(_count_item, 0.0, items)
        run = JobRun(client, job, Usage())
        start_s = time.monotonic()
        done = 0
        outcomes = run.outcomes()
        while time.monotonic() - start_s < limit_s:
            block = sum(1 for _ in islice(outcomes, 1000))
            done += block
            if block < 1000:
                break
        taken_s = time.monotonic() - start_s
        most = max(before, process.memory_info().rss)
        outcomes.close()
    return {
        "what": f"simulation: {workers} workers, {items:,} items",
        "result": f"{done / taken_s:,.0f} items/s, {run.sent / taken_s:,.0f} tasks/s, "
        f"{(most - before) / 2**20:,.0f} MiB more, {done:,} items done",
    }


def _count_item(seconds: float, item: int) -> int:
    return item


class _NoLock:
    """Workers of this simulation are in one process, where real ones have their own."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        pass


def main() -> None:
    """Print one row for each measurement."""
    arguments = parser(__doc__)
    arguments.add_argument("--items", type=int, default=1_000_000)
    arguments.add_argument("--workers", default="10,100")
    arguments.add_argument("--limit-s", type=float, default=60.0)
    options = arguments.parse_args()
    logging.disable(logging.CRITICAL)  # Dask logs every worker that is closed
    rows = [measure_overhead(300, 0.02), measure_efficiency(80, 0.25)]
    show("What a cluster costs beyond the work, so far", rows)
    for workers in map(int, options.workers.split(",")):
        rows.append(simulate(workers, options.items, options.limit_s))
        show("What a cluster costs beyond the work, so far", rows[-1:])
    show("What a cluster costs beyond the work", rows, options.json)


if __name__ == "__main__":
    main()
