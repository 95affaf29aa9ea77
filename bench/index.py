"""Indexes of long recordings: kills at many moments, memory and speed, with MFCC.

Every row is one run of `callshot.index_recordings` in a process of its own. Killed runs are resumed
and compared, byte by byte, with an index that was made without a kill.

    python bench/index.py [--kills 10] [--hours 2]
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from callshot.detection.index.index_recordings import index_recordings
from kills import kill_and_resume
from table import parser, show

RATE_HZ = 16000
OPTIONS = {"window_s": 1.0, "hop_s": 0.5}


def make_recording(path: Path, seconds: float) -> None:
    """Write noise, a minute at a time."""
    generator = np.random.default_rng(0)
    path.parent.mkdir(parents=True, exist_ok=True)
    with soundfile.SoundFile(path, "w", RATE_HZ, 1) as file:
        left = round(seconds * RATE_HZ)
        while left > 0:
            count = min(left, 60 * RATE_HZ)
            file.write(generator.normal(0, 0.1, count).astype(np.float32))
            left -= count


def start(recordings: Path, out: Path) -> subprocess.Popen[str]:
    """Index in another process."""
    command = [sys.executable, __file__, "--child", str(recordings), str(out)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_child(recordings: str, out: str) -> None:
    """Index, and print seconds, windows and the largest memory in MB."""
    before_s = time.perf_counter()
    result = index_recordings(recordings, out, "mfcc", **OPTIONS)
    figures = {
        "seconds": time.perf_counter() - before_s,
        "windows": len(result.index),
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }
    print(json.dumps(figures))


def measure_memory(folder: Path, hours: float) -> list[dict[str, object]]:
    """Index 10 minutes and some hours in one file each."""
    rows: list[dict[str, object]] = []
    for duration_h in (1 / 6, hours):
        name = f"{duration_h:.2f} h"
        make_recording(folder / name / "a.wav", duration_h * 3600)
        out, _ = start(folder / name, folder / f"{name} index").communicate()
        figures = json.loads(out)
        speed = duration_h * 3600 / figures["seconds"]
        rows.append(
            {
                "run": name,
                "windows": figures["windows"],
                "seconds": figures["seconds"],
                "h per hour": speed,
                "peak MB": figures["peak_mb"],
            }
        )
    return rows


def measure_kills(folder: Path, count: int) -> list[dict[str, object]]:
    """Kill runs once they have written some files, resume them, and compare."""
    recordings = folder / "recordings"
    for number in range(count):
        make_recording(recordings / f"{number}.wav", 600)
    out = folder / "whole"
    return kill_and_resume(partial(start, recordings, out), out, count)


def main() -> None:
    """Measure, and print one table."""
    options = parser(__doc__)
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--hours", type=float, default=2.0)
    options.add_argument("--child", nargs=2, metavar=("RECORDINGS", "INDEX"))
    arguments = options.parse_args()
    if arguments.child:
        run_child(*arguments.child)
        return
    with tempfile.TemporaryDirectory() as name:
        rows = measure_memory(Path(name), arguments.hours)
        rows += measure_kills(Path(name), arguments.kills)
    show(f"callshot index with MFCC, {os.cpu_count()} cores", rows, arguments.json)


if __name__ == "__main__":
    main()
