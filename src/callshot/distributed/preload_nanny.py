"""What Dask runs in the client before it starts a worker of `local:N`: workers get no Ctrl-C."""

import signal
from typing import Any


def dask_setup(nanny: Any) -> None:
    """Block Ctrl-C in the thread that starts workers, which inherit that from their first moment.

    A terminal sends it to all processes; a worker that imports modules would print where it was.
    """
    if hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
