"""Commands that run beside the server, each in a process of its own, with a lower priority.

A child ends when its parent does, however that ends: its standard input is then closed. This module
is what a child runs: `python -m callshot.review.children index …`.
"""

import os
import re
import runpy
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from threading import Event, Thread
from typing import Any

from callshot import console

NICENESS = 10
LINE_EVERY_S = 1.0  # of progress
STOP_S = 5.0  # until a child that should stop is killed
MAX_LINES = 200  # that are kept of what a command prints
# Such as "  40%  a.wav  2 min, 3 min left"
PROGRESS = re.compile(r"\s*(\d+)%  .*, (?:(.+) left|time left not known)$")
ERROR = "callshot: "

RUNNING = "running"
DONE = "done"
FAILED = "failed"
STOPPED = "stopped"

Step = tuple[str, Sequence[str]]
"""What is done, in words, and the arguments of callshot."""


class Job:
    """Commands that run one after another, until one fails; `stop` ends them.

    state  RUNNING, DONE, FAILED or STOPPED
    text   what is done now
    share  of this step that is done, as far as it is known
    left   time that this step still takes, in words
    error  why it failed, in a sentence
    lines  the last lines of the last command
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self.steps = steps
        self.state = RUNNING
        self.text = steps[0][0]
        self.share = 0.0
        self.left = ""
        self.error = ""
        self.lines: deque[str] = deque(maxlen=MAX_LINES)
        self._stopping = Event()
        self._process: subprocess.Popen[str] | None = None
        self._thread = Thread(target=self._run, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the command that runs; what it has finished stays."""
        self._stopping.set()
        process = self._process
        if process is not None and process.stdin is not None:
            with suppress(OSError):  # it has ended already
                process.stdin.close()  # at which a child ends itself
            try:
                process.wait(STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()
        self._thread.join()

    def wait(self) -> None:
        """Wait until all commands ended."""
        self._thread.join()

    def describe(self) -> dict[str, Any]:
        """Return what a page shows."""
        names = ("state", "text", "share", "left", "error")
        return {name: getattr(self, name) for name in names}

    def _run(self) -> None:
        """Run all steps; in a thread."""
        for text, arguments in self.steps:
            self.text = text
            self.share = 0.0
            self.left = ""
            self.lines.clear()
            code = None if self._stopping.is_set() else self._run_step(arguments)
            if self._stopping.is_set():
                self.state = STOPPED
                return
            if code:
                # The error of callshot, or else the last line, or else the exit code.
                errors = [line for line in self.lines if line.startswith(ERROR)]
                last_line = [*self.lines][-1:]
                reasons = [*errors, *last_line, f"ended with code {code}"]
                # Without the file that it begins with, which is one of the arguments
                files = "|".join(map(re.escape, arguments))
                self.error = re.sub(f"^{ERROR}(({files}): )?", "", reasons[0])
                self.state = FAILED
                return
        self.state = DONE

    def _run_step(self, arguments: Sequence[str]) -> int:
        """Run a command and follow its progress; return its exit status."""
        command = [sys.executable, "-m", __name__, *arguments]
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            encoding="utf-8",
            errors="replace",
            env={**os.environ, **CHILD_VARIABLES},
            # Windows has this flag, others `setpriority`.
            creationflags=getattr(subprocess, "BELOW_NORMAL_PRIORITY_CLASS", 0),
        )
        self._process = process
        if hasattr(os, "setpriority"):
            with suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, process.pid, NICENESS)
        # `stop` may have been called before there was a process to end.
        if self._stopping.is_set() and process.stdin is not None:
            process.stdin.close()
        with process:
            assert process.stdout is not None
            for line in process.stdout:
                match = PROGRESS.match(line)
                if match is None:
                    self.lines.append(line.rstrip())
                else:
                    self.share = int(match[1]) / 100
                    self.left = match[2] or ""
        return process.returncode


CHILD_VARIABLES: Mapping[str, str] = {
    "COLUMNS": "10000",  # no line is broken
    "PYTHONIOENCODING": "utf-8",
    "PYTHONUNBUFFERED": "1",
    "NO_COLOR": "1",
}


def run_child() -> None:
    """Run the command in the arguments of this process, until the parent process ends."""
    console.LINE_EVERY_S = LINE_EVERY_S

    def follow_parent() -> None:
        # Until standard input is closed; sys.stdin would be locked when Python ends.
        while os.read(0, 1):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    Thread(target=follow_parent, daemon=True).start()
    runpy.run_module("callshot", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    run_child()
