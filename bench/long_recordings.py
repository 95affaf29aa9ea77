"""Long recordings on a cluster: the bytes, the time with more workers, and what goes wrong.

workers    two recordings of some hours and short ones, without a cluster and with 1, 2, 4 workers
killed     workers are killed at random moments, then the command itself, and it is run again
crash      one place in a recording crashes the decoder
damaged    copies of short recordings with random damage, in spans of some seconds: rejects, notes
           and entries of the index are compared with those of recordings that are read in one go
"""

import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import soundfile

import callshot
from callshot.detection.index import index_recordings as indexing
from callshot.detection.index.index_recordings import IndexResult
from callshot.errors import InputError
from callshot.jobs import Job, Outcome
from cluster_kills import describe, list_workers
from kills import list_files
from table import parser, show

CRASH_S = 4000  # where the decoder crashes
# Loaded by every Python process of the run, before callshot.
CRASH = f"""
import ctypes, soundfile
read = soundfile.SoundFile.read
def crash(self, frames=-1, *arguments, **options):
    if "crash.wav" in str(self.name):
        first = self.tell()
        if first <= {CRASH_S} * self.samplerate < first + frames:
            ctypes.string_at(0)
    return read(self, frames, *arguments, **options)
soundfile.SoundFile.read = crash
"""


def make_recordings(folder: Path, hours: float) -> None:
    """Write a recording at the encoder's rate, one at another rate, and short ones."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    for name, rate_hz in (("long.wav", 16000), ("long.flac", 22050)):
        minutes = round(hours * 60)
        with soundfile.SoundFile(folder / name, "w", rate_hz, 1) as stream:
            for _ in range(minutes):
                stream.write(rng.normal(0, 0.1, 60 * rate_hz))
    for number in range(20):
        noise = rng.normal(0, 0.1, 3 * 16000)
        soundfile.write(folder / f"short{number:02}.wav", noise, 16000)


def start(
    audio: Path, out: Path, *options: str, **environment: str
) -> subprocess.Popen[str]:
    """Start an index of the recordings."""
    words = ["index", audio, "-e", "mfcc", "--window", "1", "--hop", "0.5"]
    command = [sys.executable, "-m", "callshot", *map(str, words), "-o", str(out)]
    return subprocess.Popen(
        [*command, "--threads", "1", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )


def run(
    name: str, audio: Path, out: Path, *options: str, **environment: str
) -> dict[str, object]:
    """Index to the end; return a row."""
    start_s = time.monotonic()
    process = start(audio, out, *options, **environment)
    text = process.communicate()[0]
    if process.returncode:
        print(text[-1000:], file=sys.stderr)
    seconds = f"{time.monotonic() - start_s:.0f}"
    return {"what": name, "seconds": seconds, "exit": process.returncode}


def kill(audio: Path, out: Path, count: int) -> dict[str, object]:
    """Kill workers, then the command; run it again to its end, and return a row."""
    rng = random.Random(0)
    process = start(audio, out, "--cluster", "local:2")
    killed = 0
    while process.poll() is None and killed < count:
        time.sleep(rng.uniform(1, 6))
        workers = list_workers(process)
        if workers and count_files(out):
            rng.choice(workers).kill()
            killed += 1
    workers = list_workers(process)
    process.kill()
    process.communicate()
    for worker in workers:
        worker.wait(60)
    kept = count_files(out)
    row = run(f"{killed} workers and the command killed", audio, out, *LOCAL_2)
    return {**row, "kept": kept}


LOCAL_2 = ("--cluster", "local:2")


def count_files(out: Path) -> int:
    """Return how many files of windows an index has."""
    return len(list(out.glob("recordings/*/*.npy")))


class ClusterHere:
    """Runs the items of a job in this process, one by one."""

    def run(self, job: Job) -> Iterator[Outcome]:
        """Yield what became of each item."""
        state = job.prepare(job.common, 1)
        for number, item in enumerate(job.items):
            try:
                yield Outcome(number, job.function(state, item))
            except InputError as error:
                yield Outcome(number, reason=str(error))

    def add_audio(self, seconds: float) -> None:
        """Count nothing."""


def compare_damaged(folder: Path, count: int) -> dict[str, object]:
    """Index damaged recordings with and without spans; return a row with how many differ."""
    folder.mkdir()
    rng = random.Random(0)
    noise = np.random.default_rng(0).normal(0, 0.1, 20 * 8000)
    for number in range(count):
        suffix = rng.choice(["wav", "flac", "flac", "aiff"])
        path = folder / f"r{number:04}.{suffix}"
        soundfile.write(path, noise, 8000)
        path.write_bytes(damage(path.read_bytes(), rng))
    soundfile.write(folder / "whole.wav", noise, 8000)
    indexing.SPAN_WINDOWS = 8
    indexing.PIECE_S = 2.0
    indexing.PIECE_BYTES = 1e3
    outcomes = []
    for name, cluster in (("plain", None), ("spans", ClusterHere())):
        out = folder.parent / name
        options = {"window_s": 0.5, "hop_s": 0.2, "cluster": cluster}
        result = callshot.index_recordings(folder, out, "mfcc", **options)
        outcomes.append(list_outcomes(result))
    plain, spans = outcomes
    different = [name for name in plain if plain[name] != spans.get(name)]
    for name in different[:5]:
        print(name, plain[name], spans.get(name), sep="\n  ", file=sys.stderr)
    rejected = sum(isinstance(one, str) for one in plain.values())
    return {
        "what": f"{count} damaged recordings, {rejected} of them rejected",
        "identical": not different and len(plain) == len(spans) == count + 1,
        "different": len(different),
    }


def list_outcomes(result: IndexResult) -> dict[str, object]:
    """Return the reason or the entry of each recording."""
    outcomes: dict[str, object] = {one.file: one.reason for one in result.rejects}
    for recording in result.index.recordings:
        notes = [note for note in result.notes if recording.path in note]
        outcomes[recording.path] = (recording, notes)
    return outcomes


def damage(content: bytes, rng: random.Random) -> bytes:
    """Return the content of a file with random damage, in its header or anywhere."""
    damaged = bytearray(content)
    first = rng.randrange(len(damaged))
    if rng.random() < 0.1:
        first = rng.randrange(100)
    size = round(10 ** rng.uniform(0, 4))
    kind = rng.choice(["cut", "remove", "zero", "noise"])
    if kind == "cut":
        del damaged[first:]
    elif kind == "remove":
        del damaged[first : first + size]
    elif kind == "zero":
        damaged[first : first + size] = bytes(len(damaged[first : first + size]))
    else:
        damaged[first : first + size] = rng.randbytes(
            len(damaged[first : first + size])
        )
    return bytes(damaged)


def crash(audio: Path, folder: Path, plain: dict[str, bytes]) -> dict[str, object]:
    """Index with a recording that crashes the decoder in one span; return a row."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(CRASH)
    shutil.copy(audio / "long.wav", audio / "crash.wav")
    paths = os.pathsep.join([str(site), os.environ.get("PYTHONPATH", "")])
    out = folder / "crash"
    row = run("a decoder crashes", audio, out, *LOCAL_2, PYTHONPATH=paths)
    for path in out.glob("recordings/*"):  # what was written before the crash
        if not (path / "recording.json").exists():
            shutil.rmtree(path)
    return {**row, **describe(out, plain)}


def main() -> None:
    """Print one row for each kind of run."""
    arguments = parser(__doc__)
    arguments.add_argument("--hours", type=float, default=2.0)
    arguments.add_argument("--workers", default="1,2,4")
    arguments.add_argument("--kills", type=int, default=5)
    arguments.add_argument("--damaged", type=int, default=300)
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp())
    audio = folder / "audio"
    rows = [compare_damaged(folder / "damaged", options.damaged)]
    show("Long recordings on a cluster, so far", rows)
    make_recordings(audio, options.hours)
    rows.append(run("no cluster", audio, folder / "none"))
    plain = list_files(folder / "none")
    plain.pop("rejects.csv")
    for workers in options.workers.split(","):
        out = folder / f"workers{workers}"
        row = run(f"{workers} workers", audio, out, "--cluster", f"local:{workers}")
        rows.append({**row, **describe(out, plain)})
        show("Long recordings on a cluster, so far", rows)
    row = kill(audio, folder / "killed", options.kills)
    rows.append({**row, **describe(folder / "killed", plain)})
    rows.append(crash(audio, folder, plain))
    show("Long recordings on a cluster", rows, options.json)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
