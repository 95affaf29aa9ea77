"""A name of a cluster comes in, an open cluster goes out: on this machine, or of a scheduler.

local:4                 four processes on this machine, which end with the program
tcp://10.0.0.5:8786     a scheduler of Dask that runs
scheduler.json          the file that a scheduler of Dask writes when it starts
"""

import asyncio
import json
import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from callshot.distributed.job_workers import (
    ignore_missing,
    list_gpu_workers,
    list_workers,
    lost_message,
)
from callshot.distributed.local_cluster import (
    close_quickly,
    restore_workers,
    start_local,
)
from callshot.distributed.run_job import JobRun, Usage
from callshot.errors import ClusterError, OptionError
from callshot.files import error_reason
from callshot.jobs import Job, Outcome
from callshot.pools import Pool
from callshot.version import __version__

if TYPE_CHECKING:
    from distributed import Client

LOCAL = re.compile(r"local:(\d+)")
CONNECT_S = 10.0
WAIT_FOR_WORKERS_S = 300.0
SCHEDULER = "Scheduler"  # as Dask names what is behind an address
EXPECTED = "expected local:N, the address of a scheduler or its file"
MISSING = "cluster: needs dask.distributed; run pip install 'callshot[cluster]'"


@dataclass
class DaskCluster:
    """Workers of Dask, which run jobs.

    name       as the user gave it
    dashboard  address of a page that shows what the workers do; empty on this machine
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
        """The address of the page that shows what the workers do."""
        if LOCAL.fullmatch(self.name.strip()):  # all users of the machine could see it
            return ""
        return str(self.client.dashboard_link or "")

    @property
    def workers(self) -> int:
        """The number of workers now."""
        return len(list_workers(self.client))

    def run(self, job: Job) -> Iterator[Outcome]:
        """Yield what became of each item, in the order in which they end."""
        if not job.items:
            return iter(())
        if job.needs_gpu:
            check_gpu(self.client, self.name)
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
    check_installed()
    local = LOCAL.fullmatch(where.strip())
    restore = ignore_missing
    with ExitStack() as stack:
        if local is not None:
            scheduler = start_local(stack, int(local[1]), threads)
            restore = partial(restore_workers, scheduler, int(local[1]))
        else:
            scheduler = find_scheduler(where)
            _check_answers(where, scheduler)
        client = _connect(stack, where, scheduler)
        _wait_for_workers(client, where)
        if local is None:
            check_workers(client, where)
        yield DaskCluster(client, where, threads, restore=restore)


def check_installed() -> None:
    """Raise OptionError if dask.distributed is not installed."""
    try:
        import distributed  # noqa: F401
    except ImportError:
        raise OptionError(MISSING) from None


def find_scheduler(where: str) -> str:
    """Return the address of a scheduler, from an address or from its file.

    >>> find_scheduler("10.0.0.5:8786")
    'tcp://10.0.0.5:8786'
    """
    name = where.strip()
    if name.endswith(".json") or _is_file(name):
        name = _read_address(Path(name))
    if re.fullmatch(r"[a-z]+://\S+:\d+", name):
        return name
    if re.fullmatch(r"[^\s/:]+:\d+", name) and not name.startswith("local:"):
        return f"tcp://{name}"
    raise OptionError(f"cluster: {EXPECTED}, got {where!r}")


def _is_file(name: str) -> bool:
    with suppress(OSError, ValueError):  # some texts can be no name
        return Path(name).is_file()
    return False


def _read_address(path: Path) -> str:
    """Return the address in the file of a scheduler."""
    if not _is_file(str(path)):
        raise ClusterError(
            f"{path}: there is no such file; start a scheduler that writes it"
        )
    try:
        return str(json.loads(path.read_bytes())["address"])
    except (OSError, ValueError, LookupError, TypeError):
        raise ClusterError(
            f"{path}: expected the file that a scheduler of Dask writes"
        ) from None


def _check_answers(where: str, address: str) -> None:
    """Raise ClusterError unless a scheduler answers; a client would wait without end for one."""
    _silence_logs()
    with _explain_silence(where), Pool(1) as pool:
        answer = asyncio.wait_for(_ask_for_kind(address), 2 * CONNECT_S)
        kind = pool.submit(asyncio.run, answer).result()
        if kind != SCHEDULER:
            raise ClusterError(f"it is a {kind} of Dask")


async def _ask_for_kind(address: str) -> str:
    """Return what is behind an address: Scheduler, Worker or Nanny."""
    from distributed.comm import connect
    from distributed.core import send_recv
    from distributed.security import Security

    options = Security().get_connection_args("client")
    connection = await connect(address, timeout=CONNECT_S, **options)
    identity = await send_recv(connection, op="identity", reply=True)
    await connection.close()
    return str(identity["type"])


@contextmanager
def _explain_silence(where: str) -> Iterator[None]:
    """Turn what Dask raises where no scheduler answers into one line."""
    try:
        yield
    except Exception as error:
        raise ClusterError(
            f"{where}: no scheduler answers ({error_reason(error)}); "
            "start one, or give another address"
        ) from error


def _connect(stack: ExitStack, where: str, scheduler: Any) -> "Client":
    from distributed import Client

    _silence_logs()
    with _explain_silence(where):
        client = Client(scheduler, timeout=CONNECT_S, set_as_default=False)
    stack.push(partial(close_quickly, client))
    return client


def _silence_logs() -> None:
    """Keep what Dask logs about lost workers off the screen: errors are raised."""
    for name in logging.root.manager.loggerDict:
        if name.partition(".")[0] == "distributed":
            logging.getLogger(name).setLevel(logging.CRITICAL)


def _wait_for_workers(client: "Client", where: str) -> None:
    try:
        client.wait_for_workers(1, timeout=WAIT_FOR_WORKERS_S)
    except TimeoutError:
        raise ClusterError(
            f"{where}: the scheduler has had no workers for {WAIT_FOR_WORKERS_S:g} s; start some"
        ) from None


def check_workers(client: "Client", where: str) -> None:
    """Raise ClusterError if a worker has no callshot: it would die of a task without a word."""
    expected = f"callshot {__version__}"
    for address, found in _ask_for_versions(client).items():
        if found != expected:
            raise ClusterError(
                f"{where}: worker {address} has {found}, but the client has {expected}; "
                "install the same version there"
            )


def _ask_for_versions(client: "Client") -> dict[str, str]:
    """Return the versions of the workers that answer; one that works on a task does, too."""
    answers = _ask_each(client, list_workers(client))
    loop = client.loop.asyncio_loop
    try:
        return asyncio.run_coroutine_threadsafe(answers, loop).result()
    except OSError as error:
        raise ClusterError(lost_message(client)) from error


async def _ask_each(client: "Client", addresses: Sequence[str]) -> dict[str, str]:
    find_version = _make_question()
    options = {"on_error": "ignore", "asynchronous": True}
    questions = []
    for address in addresses:
        answer = client.run(find_version, workers=[address], **options)
        questions.append(asyncio.ensure_future(answer))
    if not questions:  # the last worker has left
        return {}
    answered, late = await asyncio.wait(questions, timeout=CONNECT_S)
    for question in late:
        question.cancel()
    versions: dict[str, str] = {}
    for question in answered:
        versions |= question.result()
    return versions


def _make_question() -> Callable[[], str]:
    """Return a function that needs no callshot: of inner functions, Dask sends the code."""

    def find_version() -> str:
        try:
            from callshot.version import __version__ as found
        except ImportError:
            return "no callshot"
        return f"callshot {found}"

    return find_version


def check_gpu(client: "Client", where: str) -> None:
    """Raise ClusterError unless a worker announces a GPU."""
    if not list_gpu_workers(client):
        raise ClusterError(
            f"{where}: no worker announces the resource GPU; start workers with GPU=1, or use "
            "--device cpu"
        )
