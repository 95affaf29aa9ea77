"""What an index on a cluster survives: dead and stopped workers, crashes, a lost scheduler.

Each run indexes the same short recordings with --cluster, while something is done to its processes,
and is compared, byte by byte, with an index that was made without a cluster.
"""

import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import psutil
import soundfile

from kills import list_files
from table import parser, show

RATE_HZ = 16000
STOP_S = 60.0
# Loaded by every Python process of the run, before callshot: one recording ends the process.
CRASH = """
import ctypes, soundfile
opened = soundfile.SoundFile.__init__
def crash(self, file, *arguments, **options):
    if "crash.wav" in str(getattr(file, "name", file)):
        ctypes.string_at(0)
    opened(self, file, *arguments, **options)
soundfile.SoundFile.__init__ = crash
"""


def make_recordings(folder: Path, count: int) -> None:
    """Write short recordings of noise."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for number in range(count):
        noise = rng.normal(0, 0.1, 2 * RATE_HZ)
        soundfile.write(folder / f"r{number:04}.wav", noise, RATE_HZ)


def start(
    audio: Path, out: Path, *options: str, **environment: str
) -> subprocess.Popen[str]:
    """Start an index of the recordings."""
    words = ["index", audio, "-e", "mfcc", "--window", "1", "--hop", "0.02"]
    command = [sys.executable, "-m", "callshot", *map(str, words), "-o", str(out)]
    return subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def wait_for_recordings(out: Path, count: int, process: subprocess.Popen[str]) -> None:
    """Wait until an index has some recordings, or the process has ended."""
    while process.poll() is None and count_recordings(out) < count:
        time.sleep(0.05)


def count_recordings(out: Path) -> int:
    """Return how many recordings an index has."""
    return len(list(out.glob("recordings/*/recording.json")))


def list_workers(process: subprocess.Popen[str]) -> list[psutil.Process]:
    """Return the processes of local workers."""
    try:
        children = psutil.Process(process.pid).children(recursive=True)
        return [one for one in children if "spawn_main" in " ".join(one.cmdline())]
    except psutil.Error:
        return []


def kill_workers(process: subprocess.Popen[str], out: Path, count: int) -> int:
    """Kill random workers at random moments; return how many were killed."""
    rng = random.Random(0)
    killed = 0
    wait_for_recordings(out, 3, process)
    while process.poll() is None and killed < count:
        workers = list_workers(process)
        if workers:
            rng.choice(workers).kill()
            killed += 1
        time.sleep(rng.uniform(0.2, 1.2))
    return killed


def stop_worker(process: subprocess.Popen[str], out: Path) -> int:
    """Stop a worker for a minute, then let it go on."""
    wait_for_recordings(out, 3, process)
    worker = list_workers(process)[0]
    worker.send_signal(signal.SIGSTOP)
    time.sleep(STOP_S)
    worker.send_signal(signal.SIGCONT)
    return 1


@contextmanager
def run_scheduler(folder: Path, workers: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a scheduler and workers, which find it by its file."""
    file = folder / "scheduler.json"
    file.unlink(missing_ok=True)
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    dask = [sys.executable, "-m", "dask"]
    address = ["--host", "127.0.0.1", "--port", "0", "--dashboard-address", ":0"]
    options = ["--scheduler-file", str(file)]
    scheduler = subprocess.Popen([*dask, "scheduler", *options, *address], **quiet)
    count = ["--nworkers", str(workers), "--nthreads", "1"]
    local = ["--local-directory", str(folder / "scratch")]
    worker = subprocess.Popen(
        [*dask, "worker", *options, *count, *local], cwd="/", **quiet
    )
    while not file.exists():
        time.sleep(0.1)
    try:
        yield scheduler
    finally:
        scheduler.kill()
        worker.terminate()
        worker.wait()
        scheduler.wait()


def lose_scheduler(audio: Path, folder: Path) -> tuple[Path, str]:
    """Kill the scheduler during a run, start another one, and run the command again."""
    out = folder / "scheduler"
    options = ("--cluster", str(folder / "scheduler.json"))
    with run_scheduler(folder, 2) as scheduler:
        process = start(audio, out, *options)
        wait_for_recordings(out, 20, process)
        scheduler.kill()
        text = process.communicate()[0]
    lines = text.strip().splitlines()
    first = f"exit {process.returncode}: {lines[-1][:60]}"
    done = count_recordings(out)
    with run_scheduler(folder, 2):
        start(audio, out, *options).communicate()
    return out, f"{first}…; {done} recordings were kept"


def describe(out: Path, plain: dict[str, bytes]) -> dict[str, object]:
    """Return what an index lost, has twice or has changed, beside one without a cluster."""
    files = list_files(out)
    rejects = files.pop("rejects.csv", b"").decode().splitlines()[1:]
    return {
        "lost": len(set(plain) - set(files)),
        "twice": len(set(files) - set(plain)),
        "identical": files == plain,
        "left out": "; ".join(rejects) or "none",
    }


def run(
    name: str,
    audio: Path,
    out: Path,
    plain: dict[str, bytes],
    harm: Callable[[subprocess.Popen[str], Path], int],
    **environment: str,
) -> dict[str, object]:
    """Index on two local workers while harm is done; return a row."""
    start_s = time.monotonic()
    process = start(audio, out, "--cluster", "local:2", **environment)
    times = harm(process, out)
    text = process.communicate()[0]
    row = {"what": name, "times": times, "exit": process.returncode}
    seconds = f"{time.monotonic() - start_s:.0f}"
    if process.returncode:
        print(text[-1000:], file=sys.stderr)
    counted = re.search(r"([\d,]+) recordings added", text)
    row["added"] = counted[1] if counted else "none"
    return {**row, "seconds": seconds, **describe(out, plain)}


def main() -> None:
    """Print one row for each kind of harm."""
    arguments = parser(__doc__)
    arguments.add_argument("--recordings", type=int, default=500)
    arguments.add_argument("--kills", type=int, default=30)
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp())
    audio = folder / "audio"
    make_recordings(audio, options.recordings)
    start(audio, folder / "plain").communicate()
    plain = list_files(folder / "plain")
    plain.pop("rejects.csv")
    rows = []
    rows.append(
        run(
            "workers killed",
            audio,
            folder / "killed",
            plain,
            lambda process, out: kill_workers(process, out, options.kills),
        )
    )
    show("What an index on a cluster survives, so far", rows)
    rows.append(
        run("a worker stopped for 60 s", audio, folder / "stop", plain, stop_worker)
    )
    start_s = time.monotonic()
    out, first = lose_scheduler(audio, folder)
    row = {"what": "scheduler killed", "times": 1, "exit": first, "added": ""}
    seconds = f"{time.monotonic() - start_s:.0f}"
    rows.append({**row, "seconds": seconds, **describe(out, plain)})
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CRASH)
    shutil.copy(audio / "r0000.wav", audio / "crash.wav")
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    rows.append(
        run(
            "a decoder crashes",
            audio,
            folder / "crash",
            plain,
            lambda process, out: 1,
            PYTHONPATH=paths,
        )
    )
    title = f"What an index of {options.recordings} recordings on a cluster survives"
    show(title, rows, options.json)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
