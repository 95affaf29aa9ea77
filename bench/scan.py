"""Scans: a month from an index, and what may happen to files and processes.

    python bench/scan.py rescan                 864,000 windows × 1024, with 1 and 2 threads
    python bench/scan.py kills [--kills 10]     killed scans of recordings, resumed, byte by byte
    python bench/scan.py survival               a corrupt and a growing recording, two processes

Every run is a process of its own. CPU seconds are those of all its threads and processes.
"""

import json
import os
import shutil
import tempfile
import time
from dataclasses import asdict
from functools import partial
from pathlib import Path

import numpy as np
import soundfile

from callshot.chunks import write_record
from callshot.detection.background import (
    Background,
    BackgroundRecording,
    make_windows,
)
from callshot.detection.index.index_files import (
    INDEX,
    IndexedRecording,
    IndexSettings,
    recording_folder,
    write_indexed,
    write_span,
)
from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.learn import learn
from callshot.detection.model import (
    AudioSettings,
    make_model,
    write_model,
)
from callshot.detection.scan import scan
from callshot.detection.scan_files import scan_files
from callshot.files import sha256_text
from callshot.spans import Spans
from callshot.vectors import Vectors
from child_processes import peak_mb, run_child, run_to_end, start_child
from kills import kill_and_resume, list_files
from noise import make_recording
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
        rows["rms_dbfs"] = -40
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
            place = {"recording": name, "path": name, "start_s": 0.0, "end_s": 2.0}
            examples.append({"label": f"class {label}", **place, "windows": 1})
    vectors = np.repeat(make_centres(), EXAMPLES, axis=0)
    vectors += generator.normal(0, 0.25, vectors.shape)
    model = make_model(
        Vectors(Spans.from_rows(examples), vectors.astype(np.float32)),
        encoder="synthetic",
        fingerprint=FINGERPRINT,
        settings=AudioSettings(),
        licence="none",
        background=make_background(generator),
    )
    write_model(model, path)


def make_background(generator: np.random.Generator) -> Background:
    """Return an hour without calls."""
    count = round(3600 / WINDOW_S)
    recording = BackgroundRecording("0" * 64, count)
    vectors = generator.normal(0, 1, (count, DIMENSION)).astype(np.float32)
    start_s = np.arange(count) * WINDOW_S
    windows = make_windows([recording.sha256] * count, start_s, WINDOW_S, vectors)
    return Background((recording,), windows, WINDOW_S, WINDOW_S)


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


def make_mfcc_model(folder: Path) -> None:
    """Learn a model from two recordings with tones."""
    for name in ("a", "b"):
        make_recording(folder / "examples" / f"{name}.wav", 60, 16000, calls=True)
        lines = [f"{start_s}\t{start_s + 0.5}\ttone\n" for start_s in (2, 12, 22)]
        (folder / "examples" / f"{name}.txt").write_text("".join(lines))
    learned = learn(folder / "examples", "mfcc", window_s=1.0, store=folder / "store")
    learned.write(folder / "model.npz")


def run_scan(folder: str, out: str) -> None:
    """Scan recordings as the command does."""
    scan_files(
        Path(folder) / "model.npz",
        Path(folder) / "recordings",
        Path(out),
        hop_s=0.5,
        formats=("raven", "audacity", "kaleidoscope"),
    )


def measure_kills(folder: Path, count: int) -> list[Row]:
    """Kill scans once they have written some files, resume them, and compare."""
    make_mfcc_model(folder)
    for number in range(6):
        path = folder / "recordings" / f"{number}.wav"
        make_recording(path, 60, 16000, calls=True)
    out = folder / "whole"
    return kill_and_resume(partial(start_child, "run_scan", folder, out), out, count)


# Damaged and growing files, two processes


def measure_survival(folder: Path) -> list[Row]:
    """Scan 200 recordings, one of them corrupt; one that grows; an index of two processes."""
    make_mfcc_model(folder)
    recordings = folder / "recordings"
    for number in range(200):
        make_recording(recordings / f"{number:03d}.wav", 4, 16000, calls=True)
    (recordings / "100.wav").write_bytes(b"RIFF this is no recording" * 1000)
    run_to_end("run_scan", folder, folder / "out")
    facts = json.loads((folder / "out" / "scan.json").read_text())
    result = f"{facts['recordings']} scanned, {facts['rejects']} left out"
    rows: list[Row] = [{"run": "1 corrupt recording in 200", "result": result}]
    (recordings / "100.wav").unlink()
    rows.append({"run": "2 processes on one index", "result": index_twice(folder)})
    rows.append({"run": "a growing recording", "result": scan_while_growing(folder)})
    return rows


def index_twice(folder: Path) -> str:
    """Index with two processes at once; compare with the index of one."""
    out = folder / "two"
    processes = [start_child("run_mfcc_index", folder, out) for _ in range(2)]
    for process in processes:
        process.communicate()
    run_to_end("run_mfcc_index", folder, folder / "one")
    is_same = list_files(out) == list_files(folder / "one")
    return "the same as by one" if is_same else "DIFFERENT"


def run_mfcc_index(folder: str, out: str) -> None:
    """Index the recordings of a folder."""
    index_recordings(Path(folder) / "recordings", out, "mfcc", window_s=1.0, hop_s=0.5)


def scan_while_growing(folder: Path) -> str:
    """Scan while one recording is written; then again, and compare with a fresh scan."""
    growing = folder / "recordings" / "growing.wav"
    make_recording(folder / "source.wav", 60, 16000, calls=True)
    signal, rate_hz = soundfile.read(folder / "source.wav", dtype="float32")
    process = start_child("run_scan", folder, folder / "out")
    with soundfile.SoundFile(growing, "w", rate_hz, 1) as file:
        for block in np.array_split(signal, 600):
            file.write(block)
            file.flush()
            time.sleep(0.05)
            if process.poll() is not None:
                break
        process.communicate()
    first = json.loads((folder / "out" / "scan.json").read_text())
    soundfile.write(growing, signal, rate_hz)
    run_to_end("run_scan", folder, folder / "out")
    again = list_files(folder / "out")
    shutil.rmtree(folder / "out")
    run_to_end("run_scan", folder, folder / "out")
    is_same = list_files(folder / "out") == again
    state = f"first {first['rejects']} left out of {first['recordings']} scanned"
    return f"{state}; when complete " + ("as afresh" if is_same else "DIFFERENT")


def main() -> None:
    """Measure, and print one table."""
    options = parser(__doc__)
    kinds = ["rescan", "kills", "survival"]
    options.add_argument("what", nargs="?", choices=kinds, default="rescan")
    options.add_argument("--folder", type=Path, help="kept, for the next run")
    options.add_argument("--kills", type=int, default=10)
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
        else:
            rows = measure_survival(folder)
    show(f"callshot scan, {os.cpu_count()} cores", rows, arguments.json)


if __name__ == "__main__":
    main()
