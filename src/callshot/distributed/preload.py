"""What Dask runs when it starts a worker of `local:N`: Ctrl-C is left to the client.

A terminal sends it to all processes. A worker ignores it, and ends with the program. In the
client, the thread that starts workers blocks it: they inherit that from their first moment, and a
worker that imports modules would print where it was.
"""

import signal
from typing import Any


def dask_setup(started: Any) -> None:
    """Ignore Ctrl-C in a worker, and block it in the thread of a nanny, which starts workers."""
    if type(started).__name__ != "Nanny":
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    elif hasattr(signal, "pthread_sigmask"):  # not on Windows
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
