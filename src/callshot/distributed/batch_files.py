"""A command of callshot → a batch file for SLURM or PBS, which runs it on a cluster.

The files slurm.sh and pbs.sh beside this module have the text, with `@NAME@` for what differs. Both
start a scheduler that only their user can reach, as scheduler.sh does.
"""

import shlex
from collections.abc import Sequence
from importlib.resources import files

from callshot.errors import OptionError, check_range

COMMANDS = ("index", "embed", "scan", "evaluate", "run")  # that have --cluster


def make_batch_file(
    system: str,
    command: Sequence[str],
    *,
    workers: int,
    threads: int = 1,
    memory: int = 4,
    hours: int = 24,
    gpu: bool = False,
) -> str:
    """Return a batch file for slurm or pbs; `memory` is in GB for each thread of a worker."""
    numbers = {"workers": workers, "threads": threads, "memory": memory, "hours": hours}
    for name, number in numbers.items():
        check_range(name, number, 1)
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
        "TASK_MEMORY": memory * threads,
        "RESOURCES": "--resources GPU=1" if gpu else "",
        "PBS_GPU": ":ngpus=1" if gpu else "",
        "GPU": "" if gpu else "# ",  # makes a line of SLURM a comment
        "COMMAND": shlex.join(command),
    }
    values |= {name.upper(): str(number) for name, number in numbers.items()}
    text = templates.joinpath(f"{system}.sh").read_text("utf-8")
    for name, value in values.items():
        text = text.replace(f"@{name}@", str(value))
    return text
