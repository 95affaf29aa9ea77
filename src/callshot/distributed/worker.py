"""What runs in the process of a worker: items of a job come in, a report goes out.

A process has one open model and works on one task at a time, whatever number of threads Dask gives
it: the model uses those.

Dask imports this module when it starts a process of `local:N`, and calls `dask_setup`. A terminal
sends Ctrl-C to all processes; it is left to the client. A worker ignores it, and ends with the
program. In the client, the thread that starts workers blocks it: they inherit that from their
first moment, while a worker that imports modules would print where it was.
"""

import pickle
import signal
import threading
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

from threadpoolctl import threadpool_limits

from callshot.errors import CallshotError, InputError, OutputError
from callshot.files import error_reason
from callshot.jobs import Job, TryLater
from callshot.version import __version__

PACKAGES = ("distributed", "numpy", "soundfile", "soxr")  # must have the same version
MAX_STATES = 2  # jobs, of different clients, whose models stay open
MAX_OPENINGS = 3  # tries to open what a job needs
PAUSE_S = 1.0  # after the first of them, twice as long after the next

DONE = "done"
LATER = "later"  # another process works on the item
FAILED = "failed"  # InputError or a fault: of the item, or of the worker
NOT_WRITTEN = "not written"  # OutputError: no space, no permission


class WorkerUnfit(Exception):
    """A worker cannot take part in a job at all."""


class OpeningFailed(Exception):
    """A worker, args[0], could not open what a job needs; args[1] says why. Another one may."""


@dataclass(frozen=True)
class Work:
    """A job without its items, as a task carries it; `job_id` names it on the workers."""

    job_id: str
    versions: dict[str, str]
    job: Job
    threads: int | None


Report = tuple[int, str, Any]
"""The number, state, and value or reason of an item of a task."""

_lock = threading.Lock()
_states: dict[str, Any] = {}  # by job, what `prepare` returned, or the error


def find_versions() -> dict[str, str]:
    """Return the versions that decide the numbers, or whether processes understand each other."""
    versions = {name: version(name) for name in PACKAGES}
    return {"callshot": __version__, **versions}


def run_items(work: Work, pickled: bytes) -> tuple[str, list[Report]]:
    """Run the function of a job on the items of a task; return the worker's address, and reports.

    `pickled` are the items with their numbers. The first task of a job opens what the job needs.
    """
    from distributed import get_worker

    worker = get_worker()
    address = str(worker.address)
    with _lock, threadpool_limits(1, "blas"):
        if work.job_id not in _states:
            threads = work.threads or int(worker.state.nthreads)
            _states[work.job_id] = _open(work, threads, address)
            while len(_states) > MAX_STATES:
                del _states[next(iter(_states))]
        state = _states[work.job_id]
        if isinstance(state, Exception):
            raise state
        items = pickle.loads(pickled)  # noqa: S301, from our own client
        reports = [
            (number, *_run_item(work.job, state, item)) for number, item in items
        ]
        return address, reports


def _run_item(job: Job, state: Any, item: Any) -> tuple[str, Any]:
    """Run the function of a job on an item; return how it ended, and its value or the reason."""
    try:
        return DONE, job.function(state, item)
    except TryLater:
        return LATER, ""
    except OutputError as error:
        return NOT_WRITTEN, str(error)
    except InputError as error:
        return FAILED, str(error)
    except Exception as error:
        return FAILED, f"{type(error).__name__}: {error_reason(error)}"


def _open(work: Work, threads: int, address: str) -> Any:
    """Return what the job needs, or the error with which this worker refuses its tasks.

    WorkerUnfit ends the job: other versions, a missing package, or a CallshotError, unless a disk
    caused it. Any other error is retried, and then becomes OpeningFailed.
    """
    for name, actual in find_versions().items():
        expected = work.versions.get(name)
        if expected != actual:
            return WorkerUnfit(
                f"worker {address}: has {name} {actual}, but the client has {expected}; "
                "install the same versions"
            )
    reason = ""
    for tries in range(MAX_OPENINGS):
        if tries:
            time.sleep(PAUSE_S * 2 ** (tries - 1))
        try:
            return work.job.prepare(work.job.common, threads)
        except Exception as error:
            reason = _describe(error)
            causes = (error, error.__cause__)
            is_of_disk = any(isinstance(cause, OSError) for cause in causes)
            if isinstance(error, CallshotError | ImportError) and not is_of_disk:
                return WorkerUnfit(f"worker {address}: {reason}")
    return OpeningFailed(address, reason)


def _describe(error: Exception) -> str:
    """Return the reason of an error, with its file if it has one, or its class."""
    reason = error_reason(error)
    if not isinstance(error, OSError | CallshotError):
        return f"{type(error).__name__}: {reason}"
    file = getattr(error, "filename", None)
    return f"{file}: {reason}" if file else reason


def dask_setup(started: Any) -> None:
    """Ignore Ctrl-C in a worker, and block it in the thread of a nanny, which starts workers."""
    if type(started).__name__ != "Nanny":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    elif hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
