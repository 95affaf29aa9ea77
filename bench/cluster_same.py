"""Whether commands write the same bytes with a cluster as without: one row for each command.

Synthetic recordings are indexed, embedded, scanned, evaluated and studied, without a cluster and
with some numbers of local workers. Every file of the results is compared. Left out is what has
times in it: seconds in the notes of a study's steps, and the stores of embeddings.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import soundfile
from numpy.typing import NDArray

from kills import list_files
from table import parser, show

RATE_HZ = 16000
RECORDING_S = 12
CALL_S = 1.2
TONES_HZ = {"rumble": 125, "roar": 500, "trumpet": 2000}
PROTOCOL = "--shots 1-8,all --classifiers centroid,cosine"
STUDY = """
title = "a study"
out = "report"
store = "store"
[corpus.here]
audio = "../recordings"
[protocol]
shots = "1-4"
[report]
figures = false
[[encoder]]
name = "mfcc"
[[encoder]]
name = "random"
"""
# What is made before, without a cluster.
PREPARATIONS = (
    "segment ../recordings --out segments",
    "segment ../elsewhere --out other",
    "embed other/segments.parquet -e mfcc --store store -o elsewhere.parquet",
    "learn ../recordings -e mfcc --store store -o calls.npz",
)
# Names of results, and the commands that write them.
COMMANDS = {
    "index": "index ../recordings -e mfcc --window 1 -o index",
    "table": "embed segments/segments.parquet -e mfcc --store store -o table/mfcc.parquet",
    "events": "scan calls.npz ../recordings --hop 0.25 -o events",
    "curves": f"evaluate table/mfcc.parquet {PROTOCOL} -o curves",
    "transfer": f"evaluate elsewhere.parquet --queries table/mfcc.parquet {PROTOCOL} -o transfer",
    "report": "run study.toml",
    ".callshot": "",  # the steps of the study
}


def make_recordings(folder: Path, count: int, seed: int) -> None:
    """Write recordings of noise with tones, and a label track beside each."""
    folder.mkdir()
    rng = np.random.default_rng(seed)
    for number in range(count):
        signal = rng.normal(scale=0.05, size=RECORDING_S * RATE_HZ)
        lines = []
        for position, label in enumerate(TONES_HZ):
            start_s = 1 + 3 * position
            call = make_call(TONES_HZ[label] * rng.uniform(0.7, 1.4))
            start = start_s * RATE_HZ
            signal[start : start + len(call)] += call
            lines.append(f"{start_s:.6f}\t{start_s + CALL_S:.6f}\t{label}\n")
        write_recording(folder / f"r{number:02}.wav", signal, "".join(lines))


def write_recording(path: Path, signal: NDArray[np.float64], labels: str) -> None:
    """Write a recording, and its labels beside it."""
    soundfile.write(path, signal.clip(-1, 1), RATE_HZ)
    path.with_suffix(".txt").write_text(labels, encoding="utf-8")


def make_call(frequency_hz: float) -> NDArray[np.float64]:
    """Return a tone."""
    time_s = np.arange(int(CALL_S * RATE_HZ)) / RATE_HZ
    return 0.3 * np.sin(2 * np.pi * frequency_hz * time_s)


def run(text: str, folder: Path, *options: str) -> None:
    """Run a command in a folder; stop if it fails."""
    command = [sys.executable, "-m", "callshot", *text.split(), "--quiet", *options]
    subprocess.run(command, cwd=folder, check=True, env=os.environ)


def make_results(folder: Path, cluster: str) -> dict[str, dict[str, bytes]]:
    """Run all commands, on a cluster where one is named; return the files of each result."""
    results = folder / "results"  # always the same path, which some files name
    results.mkdir()
    (results / "study.toml").write_text(STUDY, encoding="utf-8")
    for text in PREPARATIONS:
        run(text, results)
    shutil.rmtree(results / "store")
    options = ("--cluster", cluster) if cluster else ()
    files = {}
    for name, text in COMMANDS.items():
        if text:
            run(text, results, *options)
        files[name] = without_seconds(list_files(results / name))
    shutil.rmtree(results)
    return files


def without_seconds(files: dict[str, bytes]) -> dict[str, bytes]:
    """Leave out how long each step of a study took."""
    kept = dict(files)
    for name, content in files.items():
        if Path(name).name == "step.json":
            note = json.loads(content)
            del note["seconds"]
            kept[name] = json.dumps(note).encode()
    return kept


def compare(plain: dict[str, bytes], other: dict[str, bytes]) -> str:
    """Return how many files of two results there are, and how many are identical."""
    names = plain.keys() | other.keys()
    same = 0
    for name in names:
        same += plain.get(name) == other.get(name)
    return f"{same} of {len(names)}"


def compare_clusters(folder: Path, counts: list[int]) -> list[dict[str, object]]:
    """Return how many files are identical, by command and number of workers."""
    plain = make_results(folder, "")
    rows: dict[str, dict[str, object]] = {}
    for name, text in COMMANDS.items():
        command = text.partition(" ")[0] or "run"
        files = len(plain[name])
        rows[name] = {"result": name, "command": command, "files": files}
    for workers in counts:
        cluster = f"local:{workers}"
        results = make_results(folder, cluster)
        for name, row in rows.items():
            row[cluster] = compare(plain[name], results[name])
    return list(rows.values())


def main() -> None:
    """Print one table."""
    arguments = parser(__doc__)
    arguments.add_argument("--recordings", type=int, default=8)
    arguments.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    options = arguments.parse_args()
    folder = Path(tempfile.mkdtemp())
    make_recordings(folder / "recordings", options.recordings, seed=0)
    make_recordings(folder / "elsewhere", options.recordings, seed=1)
    rows = compare_clusters(folder, options.workers)
    show("Files that are identical to those without a cluster", rows, options.json)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
