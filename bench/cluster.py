"""What a cluster costs beyond the work: per task, with two workers, and with many workers.

overhead    items of known time on one local worker: milliseconds per task beyond the work
efficiency  items of known CPU time on one and on two local workers: speed beside twice that of one
simulation  --simulate 10,100,1000: that many workers of Dask, with a stand-in for an encoder that
            takes a known time (--item-s) without using a core: speed beside that of workers which
            never wait, and the CPU time and memory of scheduler and client. The workers share this
            machine with them: where `workers CPU` is most of it, the speed is theirs
"""

import logging
import time
from typing import Any

import psutil

from callshot.distributed import open_cluster, run_job
from callshot.distributed.run_job import JobRun, Usage
from callshot.jobs import Job
from simulated_workers import SimulatedCluster, prepare, simulated_cluster, wait
from table import parser, show

BLOCK = 1000  # items between looks at the memory of the scheduler
WARM = 20


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
        most_items = run_job.MAX_ITEMS
        run_job.MAX_ITEMS = 1
        start_s = time.monotonic()
        start_cpu_s = _measure_cpu()
        assert sum(1 for _ in single.outcomes()) == count
        run_job.MAX_ITEMS = most_items
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


def simulate(
    workers: int, items: int, item_s: float, limit_s: float
) -> dict[str, object]:
    """Return what a job takes at a number of workers, until a limit of time."""
    with simulated_cluster(workers) as cluster:
        warm = make_job(
            wait, 0.0, WARM
        )  # the scheduler and the workers import callshot
        assert sum(1 for _ in _start_job(cluster, warm).outcomes()) == WARM
        before = cluster.cpu_s()
        run = _start_job(cluster, make_job(wait, item_s, items))
        start_s = time.monotonic()
        done, most = _work(cluster, run, start_s + limit_s)
        taken_s = time.monotonic() - start_s
        used_s = [now - then for now, then in zip(cluster.cpu_s(), before, strict=True)]
        files = cluster.scheduler.num_fds()
    return {
        "workers": workers,
        "connected in s": cluster.connect_s,
        "items": f"{done:,}",
        "s each": item_s,
        "s": taken_s,
        "items/s": f"{done / taken_s:,.0f}",
        "of full speed": done * item_s / (workers * taken_s),
        "tasks": run.sent,
        "tasks/s": run.sent / taken_s,
        "scheduler CPU s": used_s[0],
        "ms/task": 1000 * used_s[0] / run.sent,
        "scheduler MiB": most / 2**20,
        "its open files": files,
        "client CPU s": used_s[1],
        "workers CPU s": used_s[2],
    }


def _start_job(cluster: SimulatedCluster, job: Job) -> JobRun:
    return JobRun(cluster.client, job, Usage())


def _work(cluster: SimulatedCluster, run: JobRun, end_s: float) -> tuple[int, int]:
    """Return how many items were done, and the most memory of the scheduler."""
    done = 0
    most = 0
    outcomes = run.outcomes()
    for _ in outcomes:
        done += 1
        if done % BLOCK and time.monotonic() < end_s:
            continue
        most = max(most, cluster.scheduler.memory_info().rss)
        if time.monotonic() >= end_s:
            break
    outcomes.close()
    return done, max(most, cluster.scheduler.memory_info().rss)


def main() -> None:
    """Print one row for each measurement."""
    arguments = parser(__doc__)
    arguments.add_argument("--simulate", metavar="WORKERS,...", help="nothing else")
    arguments.add_argument("--items", type=int, default=1_000_000)
    arguments.add_argument("--item-s", type=float, default=0.1)
    arguments.add_argument("--limit-s", type=float, default=300.0)
    options = arguments.parse_args()
    logging.disable(logging.CRITICAL)  # Dask logs every worker that is closed
    if not options.simulate:
        rows = [measure_overhead(300, 0.02), measure_efficiency(80, 0.25)]
        show("What a cluster costs beyond the work", rows, options.json)
        return
    rows = []
    for workers in map(int, options.simulate.split(",")):
        rows.append(simulate(workers, options.items, options.item_s, options.limit_s))
        show("Simulated workers, so far", rows[-1:])
    show("Simulated workers", rows, options.json)


if __name__ == "__main__":
    main()
