"""Functions of a benchmark, each called in a process of its own: `python FILE --child NAME …`."""

import json
import resource
import subprocess
import sys
from typing import Any


def peak_mb() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def start_child(function: str, *arguments: object) -> subprocess.Popen[str]:
    """Call a function of the benchmark that runs in another process."""
    words = [function, *map(str, arguments)]
    command = [sys.executable, sys.argv[0], "--child", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_to_end(function: str, *arguments: object) -> None:
    """Call a function in another process, and wait for it."""
    start_child(function, *arguments).communicate()


def run_child(function: str, *arguments: object) -> dict[str, Any]:
    """Call a function in another process; return what it printed as JSON."""
    out, _ = start_child(function, *arguments).communicate()
    figures: dict[str, Any] = json.loads(out)
    return figures
