"""Runs of a study in another process that kills itself with SIGKILL, as a power cut would.

The processes are forked from a server that has imported callshot, and torch where a test uses it.
"""

import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from callshot.records import Progress
from callshot.study import steps
from callshot.study.run import run_study
from callshot.study.steps import Step
from callshot.study.study_file import read_study


def kill_self(*_: Any) -> None:
    """Kill the process that calls this; no cleanup runs."""
    os.kill(os.getpid(), signal.SIGKILL)


def run_killed(run: Callable[..., None], *arguments: Any) -> None:
    """Run a function in another process, and check that the process was killed."""
    context = multiprocessing.get_context("forkserver")
    preload = [name for name in ("callshot.study.run", "torch") if name in sys.modules]
    context.set_forkserver_preload(preload)
    process = context.Process(target=run, args=arguments)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL


def run_until_step(path: Path, kind: str, moment: str) -> None:
    """Run a study until a step of a kind: "during" its work, or "after" it, before its note."""
    run_step = Step.run

    def run_or_die(step: Step, progress: Progress) -> None:
        if step.kind == kind:
            if moment == "during":
                progress = kill_self
            else:
                steps.write_atomic = kill_self
        run_step(step, progress)

    Step.run = run_or_die
    run_study(read_study(path))
