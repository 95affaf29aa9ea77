"""Stop every long command at random moments, as Ctrl-C does, and run it again.

A stopped command must end within 2 s with one line. The second run must give the same bytes as a
run that was not stopped, and leave no other file. Each command is first run to its end: its time is
the range of the moments. On a shared machine, repeat what was slow: --command NAME. With --signal
SIGKILL, which cannot be handled, only the second run counts.
"""

import argparse
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import polars as pl

from callshot.encoders.store import Store
from table import parser, show

LIMIT_S = 2.0
FEW_TYPES = ("conflict roar", "trumpet blast")
STORE_ROWS = 100_000
STORE_DIMENSIONS = 1024
COMMANDS = {
    "synth": "synth OUT/corpus --scale 0.4",
    "segment": "segment corpus/recordings -a corpus/raven --out OUT/segments",
    "embed": "embed segments/segments.parquet -e ENCODER --sequence --store OUT/store "
    "--out OUT/table.parquet",
    "evaluate": "evaluate table.parquet --shots 1-10 --out OUT/results",
    "baselines: logistic": "baselines table.parquet --out OUT/results",
    "baselines: per k": "baselines table.parquet --train  --per-k --shots 1-20 "
    "--out OUT/results",
    "baselines: recurrent": "baselines table.parquet --train recurrent --cell gru "
    "--networks 1 --folds 4 --keep OUT/networks --out OUT/results",
    "baselines: end-to-end": "baselines few.parquet --train end-to-end "
    "--segments few/segments.parquet --folds 3 --keep OUT/networks --out OUT/results",
    "index": "index corpus/recordings -e ENCODER --window 1 --out OUT/index",
    "scan --segments": "scan model.npz --segments segments/segments.parquet "
    "--store OUT/store --out OUT/labels",
    "scan": "scan scan_model.npz corpus/recordings --clips 2 --out OUT/detections",
    "synth --soundscape": "synth OUT/site --soundscape --recordings 8 --minutes 2",
    "run": "run OUT/study.toml",
    "verify": "verify large_store",
}
STUDY = """
out = "results"
store = "store"
[corpus.elephants]
audio = "../corpus/recordings"
annotations = "../corpus/raven"
[[encoder]]
name = "ENCODER"
[protocol]
shots = "1-5"
draws = 20
bootstraps = 500
shared_draws = 200
total_samples = 200
permutations = 0
[baselines]
train = ["logistic"]
[report]
figures = false
"""
TIMED = ("step.json",)  # files with the seconds that a run took


@dataclass(frozen=True)
class Stop:
    """One stopped run: its moment, and how long it went on after that."""

    moment_s: float
    delay_s: float
    ended: bool  # its work, before the signal came
    problem: str
    rerun_s: float


def call(words: Sequence[str], folder: Path) -> subprocess.Popen[str]:
    """Start a command in a process group of its own, as a terminal does."""
    return subprocess.Popen(
        [sys.executable, "-m", "callshot", *words, "--quiet"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=obey_ctrl_c,
    )


def obey_ctrl_c() -> None:
    """Undo that a shell lets programs in the background ignore Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def run_whole(words: Sequence[str], folder: Path) -> float:
    """Run a command to its end; return its seconds."""
    start_s = time.monotonic()
    child = call(words, folder)
    _, errors = child.communicate()
    if child.returncode != 0:
        raise SystemExit(f"callshot {' '.join(words)}: {errors}")
    return time.monotonic() - start_s


def prepare_out(folder: Path, encoder: str) -> Path:
    """Return an empty output folder; it has a study file."""
    out = folder / "OUT"
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    (out / "study.toml").write_text(STUDY.replace("ENCODER", encoder))
    return out


def read_files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file below a folder; shards have the time in their names."""
    content = {}
    for path in sorted(folder.rglob("*")):
        name = path.relative_to(folder).as_posix()
        is_shard = "/shard-" in name or path.name in (".lock", "lock")
        if path.is_file() and path.name not in TIMED and not is_shard:
            content[name] = path.read_bytes()
    return content


def stop_once(
    words: Sequence[str],
    folder: Path,
    encoder: str,
    moment_s: float,
    number: signal.Signals,
    expected: dict[str, bytes],
) -> Stop:
    """Stop a command at a moment, run it again, and compare its files."""
    out = prepare_out(folder, encoder)
    child = call(words, folder)
    time.sleep(moment_s)
    stop_s = time.monotonic()
    os.killpg(child.pid, number)
    _, errors = child.communicate()
    delay_s = time.monotonic() - stop_s
    writes = len(expected) > 1  # verify does not: the study file is all there is
    ended = child.returncode == 0 or (writes and read_files(out) == expected)
    problems = []
    if not ended and child.returncode not in (128 + number, -number):
        problems.append(f"exit code {child.returncode}")
    lines = 0 if number == signal.SIGKILL else 1
    if not ended and len(errors.splitlines()) != lines:
        problems.append(f"printed {errors!r}")
    rerun_s = run_whole(words, folder)
    written = read_files(out)
    names = sorted(written.keys() | expected.keys())
    problems += [f"{n} differs" for n in names if written.get(n) != expected.get(n)]
    return Stop(moment_s, delay_s, ended, "; ".join(problems), rerun_s)


def measure(
    name: str, folder: Path, arguments: argparse.Namespace
) -> tuple[dict[str, object], list[str]]:
    """Return a row of the table for one command, and its problems."""
    encoder = arguments.encoder
    number = signal.Signals[arguments.signal]
    words = COMMANDS[name].replace("ENCODER", encoder).split(" ")
    times_s = []
    for _ in range(2):  # the first run may compile kernels
        out = prepare_out(folder, encoder)
        times_s.append(run_whole(words, folder))
    whole_s = min(times_s)
    expected = read_files(out)
    chosen = random.Random(f"{arguments.seed} {name}")
    stops = []
    for _ in range(arguments.moments):
        moment_s = chosen.uniform(0.1, 0.95 * whole_s)
        stop = stop_once(words, folder, encoder, moment_s, number, expected)
        stops.append(stop)
        print(name, stop, file=sys.stderr)
    problems = [
        f"{name}, {stop.moment_s:.2f} s: {stop.problem}"
        for stop in stops
        if stop.problem
    ]
    delays = [stop.delay_s for stop in stops if not stop.ended]
    row = {
        "command": name,
        "whole s": whole_s,
        "stopped": len(delays),
        "median s": statistics.median(delays or [0.0]),
        "max s": max(delays, default=0.0),
        f"over {LIMIT_S:g} s": sum(delay > LIMIT_S for delay in delays),
        "second run, median s": statistics.median(stop.rerun_s for stop in stops),
        "other bytes or lines": len(problems),
    }
    return row, problems


def make_inputs(folder: Path, encoder: str, scale: float) -> None:
    """Make a corpus, its segments, a store, a table with sequences and a model."""
    steps = (
        f"synth corpus --scale {scale}",
        "segment corpus/recordings -a corpus/raven --out segments",
        f"embed segments/segments.parquet -e {encoder} --sequence --store store "
        "--out table.parquet",
        f"learn segments/segments.parquet -e {encoder} --store store --out model.npz",
        f"learn corpus/recordings -a corpus/raven -e {encoder} --window 1 --store store "
        "--out scan_model.npz",
    )
    for words in steps:
        run_whole(words.split(), folder)
    list_few_types(folder)
    steps = (
        "segment corpus/recordings -a corpus/raven --rename few.csv --out few",
        f"embed few/segments.parquet -e {encoder} --store store --out few.parquet",
    )
    for words in steps:
        run_whole(words.split(), folder)
    fill_store(folder / "large_store")


def list_few_types(folder: Path) -> None:
    """Write a list that leaves most call types out: training on audio is slow."""
    table = pl.read_parquet(folder / "segments" / "segments.parquet")
    labels = sorted(set(table["label"]))
    lines = ["label,new_label"]
    lines += [f"{name},{name if name in FEW_TYPES else ''}" for name in labels]
    (folder / "few.csv").write_text("\n".join(lines))


def fill_store(folder: Path) -> None:
    """Make a store of about 400 MB, so that verify has something to read."""
    numbers = np.random.default_rng(0)
    with Store(folder, {"encoder": "large"}) as store:
        for row in range(STORE_ROWS):
            vector = numbers.normal(size=STORE_DIMENSIONS).astype(np.float32)
            store.add(f"{row}", f"{row:064x}", vector)


def main() -> None:
    """Stop all commands, print the table, and fail if one was slow or left something else."""
    options = parser(__doc__)
    options.add_argument("--command", action="append", choices=COMMANDS)
    options.add_argument("--encoder", default="mfcc")
    options.add_argument("--moments", type=int, default=10)
    options.add_argument("--scale", type=float, default=0.5, help="of the corpus")
    options.add_argument("--seed", default="0")
    options.add_argument("--signal", default="SIGINT")
    arguments = options.parse_args()
    rows = []
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder, arguments.encoder, arguments.scale)
        for command in arguments.command or COMMANDS:
            row, found = measure(command, folder, arguments)
            rows.append(row)
            problems += found
            print(*row.values(), *found, sep="  ", file=sys.stderr)
    moments = f"{arguments.moments} random moments in each command"
    title = f"bench/stopping: {arguments.signal} at {moments}"
    show(title, rows, arguments.json)
    if problems or any(row[f"over {LIMIT_S:g} s"] for row in rows):
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
