"""A number of workers comes in, a cluster of Dask on this machine goes out, closed to other users.

Every port of 127.0.0.1 is open to all users of a machine, and Dask runs the code of whoever
connects. So all processes of the cluster ask each other for a certificate, which exists only in
their memory.
"""

import logging
import os
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from callshot.encoders.embed import default_threads
from callshot.errors import ClusterError, OptionError
from callshot.files import error_reason

MAX_LOCAL = 1024
CLOSE_S = 30.0
INTERRUPTED_CLOSE_S = 0.3  # after Ctrl-C there is one second for everything
WARNINGS = "PYTHONWARNINGS"
LOOPBACK = "127.0.0.1"
SCRATCH = "temporary-directory"  # the setting, for what the scheduler writes
MISSING = "cluster: needs cryptography; run pip install 'callshot[cluster]'"

# A worker that dies is reported at once: the client tries its tasks again itself.
SETTINGS: Mapping[str, Any] = {
    "distributed.scheduler.allowed-failures": 0,
    "distributed.comm.timeouts.connect": "120s",  # also for a worker that starts again
    # Otherwise a worker that dies twice in 15 s is given up, though it is being started again.
    "distributed.deploy.lost-worker-timeout": "1000h",
    "distributed.admin.low-level-log-length": 0,
    "distributed.logging": {"distributed": "critical"},
    # Pages of Dask ask nobody for a certificate; without routes there are none.
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}


def start_local(stack: ExitStack, count: int, threads: int | None) -> Any:
    """Start processes on this machine, which end with the stack, and with this process."""
    import dask

    from distributed import LocalCluster

    if not 1 <= count <= MAX_LOCAL:
        raise OptionError(
            f"cluster: expected local:1 to local:{MAX_LOCAL}, got {count}"
        )
    each = threads or max(1, default_threads() // count)
    # Dask's own folder is shared with other programs and users; what dead workers left there
    # takes time.
    scratch = tempfile.mkdtemp(prefix="callshot-workers-")
    stack.callback(shutil.rmtree, scratch, ignore_errors=True)
    stack.enter_context(dask.config.set({**SETTINGS, SCRATCH: scratch}))
    _start_resource_tracker()
    try:
        cluster = LocalCluster(
            n_workers=count,
            threads_per_worker=each,
            processes=True,
            host=LOOPBACK,
            security=_make_certificate(),
            dashboard_address=f"{LOOPBACK}:0",
            scheduler_kwargs={"dashboard": False},
            silence_logs=logging.CRITICAL,
            local_directory=scratch,
            env={"POLARS_MAX_THREADS": str(each)},
            preload=["callshot.distributed.preload"],
            preload_nanny=["callshot.distributed.preload_nanny"],
        )
    except (OSError, RuntimeError) as error:
        raise ClusterError(
            f"local:{count}: the processes cannot be started ({error_reason(error)}); "
            "a script must begin with: if __name__ == '__main__'"
        ) from error
    stack.push(partial(close_quickly, cluster))
    return cluster


def _make_certificate() -> Any:
    """Return a new certificate, without which no process can connect to the cluster."""
    from distributed.security import Security

    try:
        return Security.temporary()
    except ImportError:
        raise OptionError(MISSING) from None


def restore_workers(cluster: Any, count: int) -> None:
    """Start workers again whose process was killed while it started: Dask gives them up."""
    closed = []
    for name, nanny in cluster.workers.items():
        if nanny.status.name in ("closed", "failed"):
            closed.append(name)
    for name in closed:
        del cluster.workers[name]
    if closed:
        cluster.scale(count)


def close_quickly(opened: Any, kind: type[BaseException] | None, *_: object) -> None:
    """Close a client or a cluster, in a fraction of a second if Ctrl-C was pressed."""
    is_interrupted = kind is not None and not issubclass(kind, Exception)
    with suppress(OSError, TimeoutError):
        opened.close(timeout=INTERRUPTED_CLOSE_S if is_interrupted else CLOSE_S)


def _start_resource_tracker() -> None:
    """Start Python's process that tidies up after the others, without its warning on Ctrl-C."""
    from multiprocessing import resource_tracker

    kept = os.environ.get(WARNINGS)
    os.environ[WARNINGS] = "ignore:resource_tracker:UserWarning"
    try:
        resource_tracker.ensure_running()
    finally:
        del os.environ[WARNINGS]
        if kept is not None:
            os.environ[WARNINGS] = kept
