"""Scans: a month from an index, kills, and BirdNET on long recordings.

    python bench/scan.py rescan                 864,000 windows × 1024, with 1 and 2 threads
    python bench/scan.py kills [--kills 10]     killed scans of recordings, resumed, byte by byte
    python bench/scan.py embedding [--hours 1]  BirdNET on one long recording: memory, and the time
                                                beside reading and running the model alone

    python bench/scan.py birdnet [--hours 1] --other PYTHON
                                                callshot beside the package birdnet, which is in
                                                the environment of PYTHON, with the same weights

Every run is a process of its own. CPU seconds are those of all its threads and processes.
"""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from callshot.detection.index_files import (
    INDEX,
    IndexedRecording,
    IndexSettings,
    recording_folder,
    write_indexed,
    write_record,
    write_span,
)
from callshot.detection.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.detection.model import AudioSettings, Example, Provenance, make_model
from callshot.detection.model_file import write_model
from callshot.detection.scan import scan
from callshot.detection.scan_files import ScanOutput, scan_files
from callshot.detection.scan_source import EmbeddingOptions, ScanOptions
from callshot.detection.windows import (
    PlayedRecording,
    Vectors,
    WindowEncoder,
    find_spec,
    make_grid,
    read_windows,
    split_range,
)
from callshot.encoders.weights.weight_files import home
from callshot.files import sha256_text
from table import parser, show

HOURS = 720
WINDOW_S = 3.0
DIMENSION = 1024
FINGERPRINT = {"encoder": "synthetic", "dimension": DIMENSION}
CLASSES = 10
CALLS_PER_H = 6
EXAMPLES = 5
Row = dict[str, object]


# A month from an index


def make_month(folder: Path) -> None:
    """Write an index of random vectors: 720 recordings of an hour."""
    settings = IndexSettings(
        "synthetic", {}, FINGERPRINT, DIMENSION, WINDOW_S, WINDOW_S, "first", "float16"
    )
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    centres = make_centres()
    count = round(3600 / WINDOW_S)
    noise = generator.normal(0, 1, (count, DIMENSION)).astype(np.float16)
    for number in range(HOURS):
        path = f"{number:03d}.wav"
        rows = np.zeros(count, settings.row_dtype())
        rows["start_s"] = np.arange(count) * WINDOW_S
        rows["end_s"] = rows["start_s"] + WINDOW_S
        rows["level_dbfs"] = -40
        rows["vector"] = np.roll(noise, number, axis=0)
        rows["vector"][:, 0] = generator.normal(0, 1, count)
        calls = generator.choice(count, CALLS_PER_H, replace=False)
        rows["vector"][calls] = centres[calls % CLASSES] + noise[calls] / 4
        target = recording_folder(folder, path)
        target.mkdir(parents=True)
        spans = [
            write_span(target, "0" * 8, part, rows[first : first + 1024])
            for part, first in enumerate(range(0, count, 1024))
        ]
        recording = IndexedRecording(
            path, "/", "0" * 8, 3600.0, 48000.0, None, count, spans
        )
        write_indexed(folder, recording)
    write_record(folder / INDEX, asdict(settings))


def make_centres() -> np.ndarray:
    """Return the vectors around which the calls of each class lie."""
    return np.random.default_rng(1).normal(0, 1, (CLASSES, DIMENSION))


def make_synthetic_model(path: Path) -> None:
    """Write a model of random vectors."""
    generator = np.random.default_rng(2)
    examples = []
    for label in range(CLASSES):
        for number in range(EXAMPLES):
            name = f"{label}-{number}.wav"
            examples.append(Example(f"class {label}", name, name, 0.0, 2.0))
    vectors = np.repeat(make_centres(), EXAMPLES, axis=0)
    vectors += generator.normal(0, 0.25, vectors.shape)
    model = make_model(
        examples,
        vectors.astype(np.float32),
        encoder="synthetic",
        fingerprint=FINGERPRINT,
        settings=AudioSettings(),
        provenance=Provenance("none"),
    )
    write_model(model, path)


def run_rescan(folder: str, threads: str) -> None:
    """Scan the month, and print seconds, memory and a checksum of the events."""
    before_s = time.perf_counter()
    before_cpu_s = time.process_time()
    result = scan(
        Path(folder) / "model.npz", Path(folder) / "index", threads=int(threads)
    )
    figures = {
        "seconds": time.perf_counter() - before_s,
        "CPU seconds": time.process_time() - before_cpu_s,
        "windows": result.windows,
        "events": len(result.events),
        "peak_mb": peak_mb(),
        "sha256": sha256_text(result.events.write_csv()),
    }
    print(json.dumps(figures))


def measure_rescan(folder: Path) -> list[Row]:
    """Scan a month from the index, with one thread and with two."""
    if not (folder / "index" / INDEX).exists():
        make_month(folder / "index")
    make_synthetic_model(folder / "model.npz")
    rows: list[Row] = []
    for threads in (1, 2):
        figures = run_child("run_rescan", folder, threads)
        rows.append({"run": f"a month, {threads} threads", **figures})
    is_same = rows[0]["sha256"] == rows[1].pop("sha256")
    rows[0].pop("sha256")
    rows[1]["same events"] = "yes" if is_same else "NO"
    return rows


# Kills


def make_recording(path: Path, seconds: float, rate_hz: int, calls: bool) -> None:
    """Write noise, a minute at a time, with a tone of half a second every 10 s."""
    generator = np.random.default_rng(len(path.stem))
    path.parent.mkdir(parents=True, exist_ok=True)
    tone = 0.3 * np.sin(2 * np.pi * 1000 * np.arange(rate_hz // 2) / rate_hz)
    with soundfile.SoundFile(path, "w", rate_hz, 1) as file:
        for first_s in range(0, round(seconds), 60):
            length_s = min(60, round(seconds) - first_s)
            signal = generator.normal(0, 0.02, length_s * rate_hz)
            for start_s in range(2, length_s - 1, 10) if calls else ():
                begin = start_s * rate_hz
                signal[begin : begin + len(tone)] += tone
            file.write(signal.astype(np.float32))


def make_mfcc_model(folder: Path) -> None:
    """Learn a model from two recordings with tones."""
    for name in ("a", "b"):
        make_recording(folder / "examples" / f"{name}.wav", 60, 16000, calls=True)
        lines = [f"{start_s}\t{start_s + 0.5}\ttone\n" for start_s in (2, 12, 22)]
        (folder / "examples" / f"{name}.txt").write_text("".join(lines))
    learned = learn(folder / "examples", "mfcc", window_s=1.0, store=folder / "store")
    learned.write(folder / "model.npz")


def list_files(folder: Path) -> dict[str, bytes]:
    """Return the content of every file of a folder, except locks."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.name not in (".lock", ".callshot-lock")
    }


def count_files(folder: Path) -> int:
    """Return the number of files of a folder, except locks."""
    return sum(path.is_file() and "lock" not in path.name for path in folder.rglob("*"))


def run_scan(folder: str, out: str) -> None:
    """Scan recordings as the command does."""
    scan_files(
        Path(folder) / "model.npz",
        Path(folder) / "recordings",
        Path(out),
        ScanOptions(hop_s=0.5),
        EmbeddingOptions(),
        ScanOutput(("raven", "audacity", "kaleidoscope")),
    )


def measure_kills(folder: Path, count: int) -> list[Row]:
    """Kill scans once they have written some files, resume them, and compare."""
    make_mfcc_model(folder)
    for number in range(6):
        path = folder / "recordings" / f"{number}.wav"
        make_recording(path, 60, 16000, calls=True)
    start_child("run_scan", folder, folder / "whole").communicate()
    expected = list_files(folder / "whole")
    rows: list[Row] = []
    for number in range(count):
        out = folder / "whole"  # its name is in scan.json
        shutil.rmtree(out)
        process = start_child("run_scan", folder, out)
        wanted = 1 + number * (len(expected) - 2) // count
        while process.poll() is None and count_files(out) < wanted:
            time.sleep(0.001)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        left = list_files(out)
        start_child("run_scan", folder, out).communicate()
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


# BirdNET on long recordings


def run_index(recording: str, out: str, threads: str) -> None:
    """Index a recording; print seconds and memory."""
    before_s = time.perf_counter()
    before_cpu_s = time.process_time()
    result = index_recordings(recording, out, "birdnet-v2.4", threads=int(threads))
    print_figures(before_s, before_cpu_s, len(result.index))


def run_model_alone(recording: str, threads: str) -> None:
    """Read a recording and run the model on its windows, without an index."""
    spec = find_spec("birdnet-v2.4")
    grid = make_grid(spec)
    before_s = time.perf_counter()
    before_cpu_s = time.process_time()
    count = 0
    waiting: deque[Vectors] = deque()
    path = Path(recording)
    with (
        WindowEncoder(spec, device="cpu", threads=int(threads)) as model,
        PlayedRecording(path, path.name, spec, "first") as played,
    ):
        starts = grid.find_starts(played.samples)
        for part in split_range(len(starts), grid.block_windows):
            windows = read_windows(played, starts[part], grid.window)
            waiting.append(model.submit(windows))
            if len(waiting) > 2:
                count += len(waiting.popleft()())
        while waiting:
            count += len(waiting.popleft()())
    print_figures(before_s, before_cpu_s, count)


def print_figures(before_s: float, before_cpu_s: float, windows: int) -> None:
    """Print what a run took, as JSON."""
    seconds = time.perf_counter() - before_s
    figures = {
        "seconds": seconds,
        "CPU seconds": time.process_time() - before_cpu_s,
        "windows": windows,
        "windows/s": windows / seconds,
        "peak_mb": peak_mb(),
    }
    print(json.dumps(figures))


def measure_embedding(folder: Path, hours: float) -> list[Row]:
    """Index a minute and some hours of one recording, beside the model alone."""
    long = folder / "long.wav"
    short = folder / "short.wav"
    make_recording(long, hours * 3600, 48000, calls=False)
    make_recording(short, 60, 48000, calls=False)
    rows: list[Row] = []
    for name, path in (("1 minute", short), (f"{hours:g} h", long)):
        figures = run_child("run_index", path, folder / f"{path.stem} index", 2)
        rows.append({"run": f"index, {name}", **figures})
    figures = run_child("run_model_alone", long, 2)
    rows.append({"run": f"model alone, {hours:g} h", **figures})
    for name in ("seconds", "CPU seconds"):
        rows[-2][f"{name} / alone"] = rows[-2][name] / figures[name]  # type: ignore[operator]
    return rows


# BirdNET's own package

OTHER = """
import sys
import birdnet
if __name__ == "__main__":
    recording, workers, weights, species = sys.argv[1:]
    with open(species, "w") as file:
        file.writelines(f"Genus species{n}_Name {n}\\n" for n in range(6522))
    model = birdnet.load_custom(
        "acoustic", "2.4", "tf", weights, species, check_validity=False, library="litert"
    )
    result = model.encode(recording, n_workers=int(workers))
    assert result.embeddings.shape[-1] == 1024
"""


def measure_birdnet(folder: Path, hours: float, other: str) -> list[Row]:
    """Embed the windows of one recording with callshot and with birdnet, in turn."""
    recording = folder / "recording.wav"
    make_recording(recording, hours * 3600, 48000, calls=False)
    windows = round(hours * 3600 / WINDOW_S)
    script = folder / "other.py"
    script.write_text(OTHER)
    weights = weight_path("birdnet-v2.4")
    rows: list[Row] = []
    for count in (1, 2):
        index = folder / f"index {count}"
        ours = [sys.executable, __file__, "--child", "run_index", recording, index]
        theirs = [other, script, recording, count, weights, folder / "species.txt"]
        rows.append(time_command(f"callshot, {count} threads", [*ours, count], windows))
        rows.append(time_command(f"birdnet, {count} processes", theirs, windows))
    return rows


def weight_path(encoder: str) -> Path:
    """Return the file with the weights of an encoder."""
    (path,) = (home() / "weights" / encoder).glob("*.tflite")
    return path


def time_command(name: str, words: list[object], windows: int) -> Row:
    """Run a command, and return what it took, with all its processes."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    before_s = time.perf_counter()
    command = [str(word) for word in words]
    subprocess.run(command, check=True, capture_output=True)
    seconds = time.perf_counter() - before_s
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {
        "run": name,
        "seconds": seconds,
        "windows/s": windows / seconds,
        "CPU seconds": cpu_s,
        "windows per CPU second": windows / cpu_s,
    }


# Processes


def peak_mb() -> float:
    """Return the largest memory of this process so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def start_child(function: str, *arguments: object) -> subprocess.Popen[str]:
    """Call a function of this file in another process."""
    words = [function, *map(str, arguments)]
    command = [sys.executable, __file__, "--child", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def run_child(function: str, *arguments: object) -> dict[str, Any]:
    """Call a function of this file in another process; return what it printed as JSON."""
    out, _ = start_child(function, *arguments).communicate()
    figures: dict[str, Any] = json.loads(out)
    return figures


def main() -> None:
    """Measure, and print one table."""
    options = parser(__doc__)
    kinds = ["rescan", "kills", "embedding", "birdnet"]
    options.add_argument("what", nargs="?", choices=kinds, default="rescan")
    options.add_argument("--folder", type=Path, help="kept, for the next run")
    options.add_argument("--kills", type=int, default=10)
    options.add_argument("--hours", type=float, default=1.0)
    options.add_argument("--other", help="Python of the environment with birdnet")
    options.add_argument("--child", nargs="+")
    arguments = options.parse_args()
    if arguments.child:
        function, *words = arguments.child
        globals()[function](*words)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        if arguments.what == "rescan":
            rows = measure_rescan(folder)
        elif arguments.what == "kills":
            rows = measure_kills(folder, arguments.kills)
        elif arguments.what == "birdnet":
            rows = measure_birdnet(folder, arguments.hours, arguments.other)
        else:
            rows = measure_embedding(folder, arguments.hours)
    show(f"callshot scan, {os.cpu_count()} cores", rows, arguments.json)


if __name__ == "__main__":
    main()
