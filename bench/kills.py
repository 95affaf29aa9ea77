"""Kill a command at many moments, run it again, and compare what it wrote, byte by byte."""

import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

LOCKS = (".lock", ".callshot-lock")


def list_files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder, except locks."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.name not in LOCKS
    }


def count_files(folder: Path) -> int:
    """Return the number of files of a folder, except locks."""
    return sum(path.is_file() and path.name not in LOCKS for path in folder.rglob("*"))


def kill_and_resume(
    start: Callable[[], subprocess.Popen[str]], out: Path, count: int
) -> list[dict[str, object]]:
    """Kill runs that write to `out` once it has some files; each is resumed and compared.

    Its name stays the same, because files may contain it.
    """
    start().communicate()
    expected = list_files(out)
    rows: list[dict[str, object]] = []
    for number in range(count):
        shutil.rmtree(out)
        process = start()
        wanted = 1 + number * (len(expected) - 2) // count
        while process.poll() is None and count_files(out) < wanted:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        left = list_files(out)
        start().communicate()
        is_same = list_files(out) == expected
        rows.append(
            {
                "run": f"kill {number + 1}",
                "files left": f"{len(left)} of {len(expected)}",
                "unfinished": "yes" if left != expected else "NO: not a test",
                "resumed": "the same" if is_same else "DIFFERENT",
            }
        )
    return rows
