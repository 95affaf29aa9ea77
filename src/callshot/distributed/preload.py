"""What Dask runs in a worker of `local:N` when it starts: Ctrl-C is left to the client."""

import signal
from typing import Any


def dask_setup(worker: Any) -> None:
    """Ignore Ctrl-C, which a terminal sends to all processes; the worker ends with the program."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
