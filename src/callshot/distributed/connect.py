"""A name of a cluster comes in, an open cluster goes out: on this machine, or of a scheduler.

local:4                 four processes on this machine, which end with the program
tcp://10.0.0.5:8786     a scheduler of Dask that runs
scheduler.json          the file that a scheduler of Dask writes when it starts

Every port of 127.0.0.1 is open to all users of a machine, and Dask runs the code of whoever
connects. So all processes of a cluster on this machine ask each other for a certificate, which
exists only in their memory.
"""

import asyncio
import json
import logging
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.distributed.run_job import (
    JobRun,
    Usage,
    ignore_missing,
    list_workers,
    lost_message,
)
from callshot.encoders.workers import default_threads
from callshot.errors import ClusterError, OptionError
from callshot.files import error_reason
from callshot.interrupts import Interrupt
from callshot.jobs import Job, Outcome, Pool
from callshot.version import __version__

if TYPE_CHECKING:
    from distributed import Client

LOCAL = re.compile(r"local:(\d+)")
MAX_LOCAL = 1024
CONNECT_S = 10.0
WAIT_FOR_WORKERS_S = 300.0
CLOSE_S = 30.0
INTERRUPTED_CLOSE_S = 0.3  # after Ctrl-C there is one second for everything
EXPECTED = "expected local:N, the address of a scheduler or its file"
MISSING = "cluster: needs {}; run pip install 'callshot[cluster]'"
LOOPBACK = "127.0.0.1"

SETTINGS: Mapping[str, Any] = {
    "distributed.scheduler.allowed-failures": 1,  # of workers that had a task
    "distributed.comm.timeouts.connect": "120s",  # also for a worker that starts again
    # Otherwise a worker that dies twice in 15 s is given up, though it is being started again.
    "distributed.deploy.lost-worker-timeout": "1000h",
    "distributed.admin.low-level-log-length": 0,
    "distributed.logging": {"distributed": "critical"},
    # Pages of Dask ask for no certificate; without routes there are no pages.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


@dataclass
class DaskCluster:
    """Workers of Dask, which run jobs.

    name       as the user gave it
    threads    of the model in each worker; None: as many as Dask gives the worker
    restore    starts workers again that are gone for good, where we started them
    """

    client: "Client"
    name: str
    threads: int | None = None
    usage: Usage = field(default_factory=Usage)
    restore: Callable[[], None] = ignore_missing

    @property
    def dashboard(self) -> str:
        """The address of the page that shows what the workers do; empty on this machine."""
        if LOCAL.fullmatch(self.name.strip()):  # all users of the machine could see it
            return ""
        return str(self.client.dashboard_link or "")

    @property
    def workers(self) -> int:
        """The number of workers now."""
        return len(list_workers(self.client))

    def run(self, job: Job) -> Iterator[Outcome]:
        """Yield the outcome of each item, in the order in which they end."""
        if not job.items:
            return iter(())
        if job.needs_gpu and not list_workers(self.client, needs_gpu=True):
            raise ClusterError(
                f"{self.name}: no worker announces the resource GPU; start workers with GPU=1, "
                "or use --device cpu"
            )
        run = JobRun(self.client, job, self.usage, self.threads, self.restore)
        return run.outcomes()

    def add_audio(self, seconds: float) -> None:
        """Count audio that was worked on."""
        self.usage.audio_s += seconds


@contextmanager
def open_cluster(where: str, *, threads: int | None = None) -> Iterator[DaskCluster]:
    """Open a cluster while the block runs; on this machine, its processes end with the block.

    Parameters
    ----------
    where : str
        "local:N" for N processes on this machine, the address of a scheduler of Dask, such as
        "tcp://10.0.0.5:8786", or the path of the file that the scheduler wrote.
    threads : int, optional
        Threads of the model in each worker; as many as Dask gives the worker by default, and on
        this machine the cores shared evenly.

    Yields
    ------
    DaskCluster
        To pass as `cluster` to `index_recordings`.

    Raises
    ------
    OptionError
        If `where` is none of these, or if dask.distributed is not installed.
    ClusterError
        If there is no scheduler, or if it has no workers.
    """
    try:
        from distributed import Client
    except ImportError:
        raise OptionError(MISSING.format("dask.distributed")) from None
    local = LOCAL.fullmatch(where.strip())
    restore = ignore_missing
    with ExitStack() as stack:
        if local is not None:
            scheduler = _start_local(stack, int(local[1]), threads)
            restore = partial(_restore_workers, scheduler, int(local[1]))
        else:
            scheduler = find_scheduler(where)
            _silence_logs()
            with _explain_silence(where):
                _check_scheduler(scheduler)
        _silence_logs()
        with _explain_silence(where):
            client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
        stack.push(partial(_close_quickly, client))
        try:
            client.wait_for_workers(1, timeout=WAIT_FOR_WORKERS_S)
        except TimeoutError:
            raise ClusterError(
                f"{where}: the scheduler has had no workers for {WAIT_FOR_WORKERS_S:g} s; "
                "start some"
            ) from None
        if local is None:
            check = _check_versions(client, where)
            asyncio.run_coroutine_threadsafe(check, client.loop.asyncio_loop).result()
        yield DaskCluster(client, where, threads, restore=restore)


def _close_quickly(opened: Any, kind: type[BaseException] | None, *_: object) -> None:
    """Close a client or a cluster, in a fraction of a second if Ctrl-C was pressed."""
    is_interrupted = kind is not None and not issubclass(kind, Exception)
    with suppress(OSError, TimeoutError):
        opened.close(timeout=INTERRUPTED_CLOSE_S if is_interrupted else CLOSE_S)


def _silence_logs() -> None:
    """Keep what Dask logs about lost workers off the screen: errors are raised."""
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


# A cluster on this machine


def _start_local(stack: ExitStack, count: int, threads: int | None) -> Any:
    """Start a cluster of processes on this machine; they end with the stack or this process."""
    from multiprocessing import resource_tracker

    import dask
    from distributed.security import Security

    from distributed import LocalCluster

    if not 1 <= count <= MAX_LOCAL:
        raise OptionError(
            f"cluster: expected local:1 to local:{MAX_LOCAL}, got {count}"
        )
    threads_each = threads or max(1, default_threads() // count)
    # Dask's own folder is shared with other programs and users; what dead workers left there
    # takes time.
    scratch = tempfile.mkdtemp(prefix="callshot-workers-")
    stack.callback(shutil.rmtree, scratch, ignore_errors=True)
    # A copy, because Dask adds to lists in its settings.
    settings = {**deepcopy(SETTINGS), "temporary-directory": scratch}
    stack.enter_context(dask.config.set(settings))
    # Python's process that tidies up after the others: without its warning on Ctrl-C.
    os.environ.setdefault("PYTHONWARNINGS", "ignore:resource_tracker:UserWarning")
    resource_tracker.ensure_running()
    _complete_starts(stack)
    try:
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=threads_each,
            processes=True,
            host=LOOPBACK,
            security=Security.temporary(),
            dashboard_address=f"{LOOPBACK}:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            local_directory=scratch,
            env={"POLARS_MAX_THREADS": str(threads_each)},
            preload=["callshot.distributed.worker"],
            preload_nanny=["callshot.distributed.worker"],
        )
    except ImportError:
        raise OptionError(MISSING.format("cryptography")) from None
    except (OSError, RuntimeError) as error:
        raise ClusterError(
            f"local:{count}: the processes cannot be started ({error_reason(error)}); "
            "a script must begin with: if __name__ == '__main__'"
        ) from error
    stack.push(partial(_close_quickly, cluster))
    return cluster


def _complete_starts(stack: ExitStack) -> None:
    """Let every process that is being started get its task before an Interrupt ends this one.

    Threads of Dask start processes at any time: a worker that died is started again. A process
    whose parent ends before it got its task prints an error. So starts hold a lock, which the end
    of the stack takes for good after an Interrupt.
    """
    from multiprocessing.popen_spawn_posix import Popen

    launch = Popen._launch  # type: ignore[attr-defined]
    start_lock = threading.Lock()

    def launch_alone(popen: Any, process: Any) -> None:
        """Start a process as multiprocessing does, while holding the lock."""
        with start_lock:
            launch(popen, process)

    def end(kind: type[BaseException] | None, *_: object) -> None:
        """After an Interrupt, wait for the start that is under way; else undo the change."""
        if kind is not None and issubclass(kind, Interrupt):
            start_lock.acquire()  # for good: no other process starts
        else:
            Popen._launch = launch  # type: ignore[attr-defined]

    Popen._launch = launch_alone  # type: ignore[attr-defined]
    stack.push(end)


def _restore_workers(cluster: Any, count: int) -> None:
    """Start workers of a local cluster again that Dask gave up: those killed while they started."""
    gone = [
        name
        for name, nanny in cluster.workers.items()
        if nanny.status.name in ("closed", "failed")
    ]
    for name in gone:
        del cluster.workers[name]
    if gone:
        cluster.scale(count)


# A scheduler that runs


def find_scheduler(where: str) -> str:
    """Return the address of a scheduler, from an address or from its file.

    >>> find_scheduler("10.0.0.5:8786")
    'tcp://10.0.0.5:8786'
    """
    name = where.strip()
    is_file = False
    with suppress(OSError, ValueError):  # some texts can be no name
        is_file = Path(name).is_file()
    if is_file:
        try:
            name = str(json.loads(Path(name).read_bytes())["address"])
        except (OSError, ValueError, LookupError, TypeError):
            raise ClusterError(
                f"{name}: expected the file that a scheduler of Dask writes"
            ) from None
    elif name.endswith(".json"):
        raise ClusterError(
            f"{name}: there is no such file; start a scheduler that writes it"
        )
    if re.fullmatch(r"[a-z]+://\S+:\d+", name):
        return name
    if re.fullmatch(r"[^\s/:]+:\d+", name) and not name.startswith("local:"):
        return f"tcp://{name}"
    raise OptionError(f"cluster: {EXPECTED}, got {where!r}")


def _check_scheduler(address: str) -> None:
    """Raise an error unless a scheduler answers; a client would wait for one without end."""
    from distributed.comm import connect
    from distributed.core import send_recv
    from distributed.security import Security

    async def ask_for_kind() -> str:
        """Return what is behind the address: Scheduler, Worker or Nanny."""
        options = Security().get_connection_args("client")
        connection = await connect(address, timeout=CONNECT_S, **options)
        identity = await send_recv(connection, op="identity", reply=True)
        await connection.close()
        return str(identity["type"])

    with Pool(1) as pool:
        answer = asyncio.wait_for(ask_for_kind(), 2 * CONNECT_S)
        kind = pool.submit(asyncio.run, answer).result()
    if kind != "Scheduler":
        raise ClusterError(f"it is a {kind} of Dask")


@contextmanager
def _explain_silence(where: str) -> Iterator[None]:
    """Turn any error of the block into a ClusterError: no scheduler answers at `where`."""
    try:
        yield
    except Exception as error:
        raise ClusterError(
            f"{where}: no scheduler answers ({error_reason(error)}); "
            "start one, or give another address"
        ) from error


async def _check_versions(client: "Client", where: str) -> None:
    """Raise ClusterError if a worker has no callshot, or another version.

    Such a worker would die of a task without a message. Busy workers answer too; others are not
    waited for longer than 10 s.
    """

    # Needs no callshot: of inner functions, Dask sends the code.
    def find_version() -> str:
        """Return the version of callshot on a worker."""
        try:
            from callshot.version import __version__ as found
        except ImportError:
            return "no callshot"
        return f"callshot {found}"

    options = {"on_error": "ignore", "asynchronous": True}
    try:
        addresses = await client.scheduler.ncores()
    except OSError as error:
        raise ClusterError(lost_message(client)) from error
    questions = []
    for address in addresses:
        answer = client.run(find_version, workers=[address], **options)
        questions.append(asyncio.ensure_future(answer))
    if not questions:  # the last worker has left
        return
    answered, late = await asyncio.wait(questions, timeout=CONNECT_S)
    for question in late:
        question.cancel()
    expected = f"callshot {__version__}"
    for question in answered:
        for address, found in question.result().items():
            if found != expected:
                raise ClusterError(
                    f"{where}: worker {address} has {found}, but the client has {expected}; "
                    "install the same version there"
                )
