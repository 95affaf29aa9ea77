"""What runs in the process of a worker: items of a job come in, a report goes out.

A process has one open model and works on one task at a time, whatever number of threads Dask gives
it: the model uses those.
"""

import os
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from threadpoolctl import threadpool_limits

from callshot.errors import CallshotError, InputError, OutputError
from callshot.files import error_reason
from callshot.jobs import TryLater
from callshot.version import __version__

PACKAGES = ("distributed", "numpy", "soundfile", "soxr")  # must have the same version
MAX_STATES = 2  # jobs, of different clients, whose models stay open

DONE = "done"
LATER = "later"  # another process works on the item
REJECTED = "rejected"  # InputError: the item may be at fault, or the worker
FAILED = "failed"  # any other error
NOT_WRITTEN = "not written"  # OutputError: no space, no permission


class WorkerUnfit(Exception):
    """A worker cannot take part in a job at all."""


class OpeningFailed(Exception):
    """A worker could not open what a job needs, but may later, or another one can."""

    def __init__(self, worker: str, reason: str) -> None:
        super().__init__(worker, reason)
        self.worker = worker
        self.reason = reason


@dataclass(frozen=True)
class ItemReport:
    """What became of an item on a worker: a state, and the value or the message."""

    number: int
    state: str
    value: Any = None
    reason: str = ""


@dataclass(frozen=True)
class TaskItems:
    """Items of a task and their numbers; Dask does not look into it, as it does into lists."""

    numbers: Sequence[int]
    items: Sequence[Any]


@dataclass(frozen=True)
class TaskReport:
    """What became of the items of a task, and what it took; `items_s` without opening a model."""

    items: Sequence[ItemReport]
    worker: str
    items_s: float
    wall_s: float
    cpu_s: float
    bytes_read: int


@dataclass(frozen=True)
class Work:
    """A job without its items, as a task carries it; `job_id` names it on the workers."""

    job_id: str
    versions: dict[str, str]
    prepare: Any
    function: Any
    common: Any
    threads: int | None


_lock = threading.Lock()
_states: OrderedDict[str, Any] = OrderedDict()  # by job, what `prepare` returned


def find_versions() -> dict[str, str]:
    """Return the versions that decide the numbers, or whether processes understand each other."""
    versions = {name: version(name) for name in PACKAGES}
    return {"callshot": __version__, **versions}


def run_items(work: Work, task: TaskItems) -> TaskReport:
    """Run the function of a job on items; a failing one does not stop the others."""
    with _lock:
        start_s = time.monotonic()
        start_cpu_s = time.process_time()
        start_bytes = _count_bytes_read()
        with threadpool_limits(1, "blas"):
            state = _find_state(work)
            prepared_s = time.monotonic()
            numbered = zip(task.numbers, task.items, strict=True)
            reports = [_run_item(work, state, *one) for one in numbered]
        end_s = time.monotonic()
        return TaskReport(
            reports,
            worker_address(),
            end_s - prepared_s,
            end_s - start_s,
            time.process_time() - start_cpu_s,
            _count_bytes_read() - start_bytes,
        )


def worker_address() -> str:
    """Return the address of the worker that this process is."""
    from distributed import get_worker

    return str(get_worker().address)


def _find_state(work: Work) -> Any:
    """Return what `prepare` returned in this process; call it before the first item of a job."""
    if work.job_id in _states:
        _states.move_to_end(work.job_id)
        return _states[work.job_id]
    try:
        check_versions(work.versions)
        state = work.prepare(work.common, work.threads or _count_threads())
    except Exception as error:
        # Name this worker, which cannot take part for now or at all.
        address = worker_address()
        reason = _describe_error(error)
        if _may_pass(error):
            raise OpeningFailed(address, reason) from None
        raise WorkerUnfit(f"worker {address}: {reason}") from None
    _states[work.job_id] = state
    while len(_states) > MAX_STATES:
        _states.popitem(last=False)
    return state


def _may_pass(error: Exception) -> bool:
    """Return whether an error may be of storage or a disk: another worker may have none."""
    if isinstance(error, OSError) or isinstance(error.__cause__, OSError):
        return True
    return not isinstance(error, CallshotError | ImportError | WorkerUnfit)


def _describe_error(error: Exception) -> str:
    reason = error_reason(error)
    if not isinstance(error, OSError | CallshotError | WorkerUnfit):
        return f"{type(error).__name__}: {reason}"
    file = getattr(error, "filename", None)
    return f"{file}: {reason}" if file else reason


def check_versions(expected: dict[str, str]) -> None:
    """Raise WorkerUnfit if packages of this process have other versions than the client's."""
    for name, actual in find_versions().items():
        if expected.get(name) != actual:
            raise WorkerUnfit(
                f"has {name} {actual}, but the client has {expected.get(name)}; "
                "install the same versions"
            )


def _run_item(work: Work, state: Any, number: int, item: Any) -> ItemReport:
    try:
        return ItemReport(number, DONE, work.function(state, item))
    except TryLater:
        return ItemReport(number, LATER)
    except InputError as error:
        return ItemReport(number, REJECTED, reason=str(error))
    except OutputError as error:
        return ItemReport(number, NOT_WRITTEN, reason=str(error))
    except Exception as error:
        reason = f"{type(error).__name__}: {error_reason(error)}"
        return ItemReport(number, FAILED, reason=reason)


def _count_threads() -> int:
    """Return the number of threads that Dask gives this worker."""
    from distributed import get_worker

    return int(get_worker().state.nthreads)


def _count_bytes_read() -> int:
    """Return how many bytes this process has read from files; 0 where the system does not count."""
    import psutil

    try:
        return int(psutil.Process(os.getpid()).io_counters().read_chars)
    except (AttributeError, psutil.Error):  # macOS counts none
        return 0
