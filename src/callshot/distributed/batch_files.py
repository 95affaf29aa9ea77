"""A command of callshot → a batch file for SLURM or PBS, which runs it on a cluster.

The files slurm.sh and pbs.sh beside this module have the text, with `@NAME@` for what differs. Both
start a scheduler that only their user can reach, as scheduler.sh does.
"""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files

from callshot.errors import OptionError, check_range

COMMANDS = ("index", "embed", "scan", "evaluate", "run")  # that have --cluster


@dataclass(frozen=True)
class BatchJob:
    """What a batch file asks for: workers, the threads and memory of each, and hours."""

    workers: int
    threads: int = 1
    memory: int = 4  # GB for each thread
    hours: int = 24
    gpu: bool = False

    def __post_init__(self) -> None:
        for name in ("workers", "threads", "memory", "hours"):
            check_range(name, getattr(self, name), 1)


def make_batch_file(system: str, job: BatchJob, command: Sequence[str]) -> str:
    """Return a batch file that runs a command, the words after `callshot`, on a cluster."""
    first = command[0] if command else "nothing"
    if first not in COMMANDS:
        words = ", ".join(COMMANDS)
        raise OptionError(f"command: expected one of {words} first, got {first!r}")
    if any(word.partition("=")[0] == "--cluster" for word in command):
        raise OptionError("cluster: the batch file adds this option; remove --cluster")
    if any("\n" in word or "\0" in word for word in command):
        raise OptionError("command: expected words without line breaks")
    templates = files("callshot.distributed")
    values = {
        "SCHEDULER": templates.joinpath("scheduler.sh").read_text("utf-8"),
        "WORKERS": job.workers,
        "THREADS": job.threads,
        "MEMORY": job.memory,
        "TASK_MEMORY": job.memory * job.threads,
        "HOURS": job.hours,
        "RESOURCES": "--resources GPU=1" if job.gpu else "",
        "PBS_GPU": ":ngpus=1" if job.gpu else "",
        "GPU": "" if job.gpu else "# ",
        "COMMAND": shlex.join(command),
    }
    text = templates.joinpath(f"{system}.sh").read_text("utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
