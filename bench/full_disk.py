"""Run every command that writes on a disk of 400 kB, with less and less of it free.

A command must end well, or with one line and exit code 2, and leave nothing half-written: no
unfinished file or folder, no empty file, no Parquet file that cannot be read, and files that were
there before as they were. Needs the right to mount a tmpfs: as root, or
`unshare --map-root-user --mount python bench/full_disk.py`.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import polars as pl

from table import parser, show

DISK_KB = 400
LOCKS = (".lock", "lock")
FREE_KB = (0, 4, 12, 40, 80, 160, 400)
FEW = "--shots 1-3 --draws 5 --bootstraps 50 --shared-draws 20 --total-samples 20"
COMMANDS = {
    "synth": "synth DISK/corpus --scale 0.1",
    "init": "init corpus/recordings -a corpus/raven --out DISK/study.toml",
    "segment": "segment corpus/recordings -a corpus/raven --out DISK/segments",
    "embed": "embed segments/segments.parquet -e mfcc --out DISK/table.parquet",
    "embed --sequence": "embed segments/segments.parquet -e mfcc --sequence "
    "--out DISK/table.parquet",
    "embed --store": "embed segments/segments.parquet -e mfcc --store DISK/store "
    "--out other.parquet",
    "import": "import array.npz --out DISK/table.parquet",
    "evaluate": f"evaluate table.parquet --permutations 9 {FEW} --out DISK/results",
    "baselines: logistic": "baselines table.parquet --C 1 --out DISK/results",
    "baselines: recurrent": "baselines table.parquet --train recurrent --cell gru --networks 1 "
    "--out DISK/results",
    "encoders coverage": "encoders coverage segments/segments.parquet -e mfcc --out DISK/coverage",
    "index": "index corpus/recordings -e mfcc --window 1 --out DISK/index",
    "find": "find corpus/recordings/RECORDING.flac@1-2 index --out DISK/similar.csv",
    "learn": "learn segments/segments.parquet -e mfcc --store store --out DISK/model.npz",
    "learn --store": "learn segments/segments.parquet -e mfcc --store DISK/store "
    "--out other.npz",
    "export": "export model.npz --onnx DISK/model.onnx",
    "scan --segments": "scan model.npz --segments segments/segments.parquet "
    "--store store --out DISK/labels",
    "scan": "scan model.npz index --out DISK/detections",
    "scan, recordings": "scan model.npz corpus/recordings --clips 1 --out DISK/detections",
    "synth --soundscape": "synth DISK/site --soundscape --recordings 2 --minutes 1",
    "evaluate --queries": f"evaluate table.parquet --queries table.parquet {FEW} "
    "--permutations 9 --out DISK/results",
    "embed --site": "embed segments/segments.parquet -e mfcc --site corpus/recordings "
    "--store store --out DISK/table.parquet",
    "score": "score detections.csv corpus/raven --recordings corpus/recordings "
    "--samples 20 --out DISK/scores",
    "convert": "convert detections.csv --to raven --out DISK/raven",
    "convert --clips": "convert detections.csv --to csv --recordings corpus/recordings "
    "--clips 1 --out DISK/clips",
    "run": "run DISK/study.toml",
}
NO_QUIET = ("export", "encoders")  # commands without this option
STUDY = """
out = "results"
store = "store"
[corpus.elephants]
audio = "INPUTS/corpus/recordings"
annotations = "INPUTS/corpus/raven"
[[encoder]]
name = "mfcc"
[protocol]
shots = "1-3"
draws = 5
bootstraps = 50
shared_draws = 20
total_samples = 20
permutations = 9
[report]
figures = false
"""


@contextmanager
def small_disk(folder: Path) -> Iterator[Path]:
    """Mount an empty disk of 400 kB."""
    disk = folder / "DISK"
    disk.mkdir(exist_ok=True)
    words = ["mount", "-t", "tmpfs", "-o", f"size={DISK_KB}k", "tmpfs", str(disk)]
    subprocess.run(words, check=True)
    try:
        yield disk
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def call(words: str, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder."""
    quiet = [] if words.startswith(NO_QUIET) else ["--quiet"]
    return subprocess.run(
        [sys.executable, "-m", "callshot", *words.split(), *quiet],
        cwd=folder,
        capture_output=True,
        text=True,
    )


def make_inputs(folder: Path) -> None:
    """Make a small corpus and what the commands read that come after segment."""
    steps = (
        "synth corpus --scale 0.2",
        "segment corpus/recordings -a corpus/raven --out segments",
        "embed segments/segments.parquet -e mfcc --sequence --store store "
        "--out table.parquet",
        "learn corpus/recordings -a corpus/raven -e mfcc --window 1 --store store "
        "--out model.npz",
        "index corpus/recordings -e mfcc --window 1 --out index",
    )
    for words in steps:
        done = call(words, folder)
        if done.returncode != 0:
            raise SystemExit(done.stderr)
    table = pl.read_parquet(folder / "table.parquet")
    np.savez(folder / "array.npz", np.array(table["embedding"].to_list(), np.float32))
    table.select("segment", "recording", "label").write_csv(folder / "array.csv")
    calls = pl.read_parquet(folder / "segments" / "segments.parquet")
    scores = np.linspace(0, 1, len(calls))
    detections = calls.select("recording", "start_s", "end_s", "label")
    detections.with_columns(score=scores).write_csv(folder / "detections.csv")


def is_readable(path: Path) -> bool:
    """Return whether a Parquet file is whole."""
    try:
        pl.read_parquet(path)
    except (OSError, pl.exceptions.PolarsError):
        return False
    return True


def find_remains(disk: Path, before: dict[str, bytes]) -> Iterator[str]:
    """Yield what a command that failed left behind and should not have."""
    for path in sorted(disk.rglob("*")):
        name = path.relative_to(disk).as_posix()
        if name in before or path.name in LOCKS:
            continue
        if path.name.startswith(".") and path.name != ".callshot":
            yield f"{name} is left"
        elif path.is_file() and path.stat().st_size == 0:
            yield f"{name} is empty"
        elif path.suffix == ".parquet" and not is_readable(path):
            yield f"{name} is damaged"
    for name, content in before.items():
        if not (disk / name).is_file() or (disk / name).read_bytes() != content:
            yield f"{name} was changed"


def try_command(words: str, folder: Path, free_kb: int) -> tuple[bool, list[str]]:
    """Run a command with some space; return whether it succeeded, and what was wrong."""
    with small_disk(folder) as disk:
        if words.startswith("run"):
            text = STUDY.replace("INPUTS", str(folder))
            (disk / "study.toml").write_text(text)
        used_kb = DISK_KB - os.statvfs(disk).f_bavail * 4
        fill_kb = max(0, DISK_KB - used_kb - free_kb)
        (disk / "filler").write_bytes(bytes(1024 * fill_kb))
        before = {p.name: p.read_bytes() for p in disk.iterdir() if p.is_file()}
        done = call(words, folder)
        if done.returncode == 0:
            return True, []
        problems = list(find_remains(disk, before))
        lines = done.stderr.splitlines()
        if done.returncode != 2 or len(lines) != 1:
            problems.append(f"code {done.returncode}, {len(lines)} lines: {lines[-1:]}")
    return False, problems


def main() -> None:
    """Try all commands, print the table, and fail if one left something."""
    options = parser(__doc__)
    options.add_argument("--command", action="append", choices=COMMANDS)
    arguments = options.parse_args()
    rows = []
    problems = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        make_inputs(folder)
        recording = min(folder.glob("corpus/recordings/*")).stem
        for command in arguments.command or COMMANDS:
            outcomes = []
            for free_kb in FREE_KB:
                words = COMMANDS[command].replace("RECORDING", recording)
                is_done, found = try_command(words, folder, free_kb)
                outcomes.append((is_done, found))
                problems += [f"{command}, {free_kb} kB free: {text}" for text in found]
            rows.append(
                {
                    "command": command,
                    "runs": len(outcomes),
                    "done": sum(is_done for is_done, _ in outcomes),
                    "refused in one line": sum(not done for done, _ in outcomes),
                    "with something left": sum(bool(found) for _, found in outcomes),
                }
            )
    free = ", ".join(map(str, FREE_KB))
    show(f"bench/full_disk: {free} kB free of {DISK_KB}", rows, arguments.json)
    if problems:
        raise SystemExit("\n".join(problems))


if __name__ == "__main__":
    main()
