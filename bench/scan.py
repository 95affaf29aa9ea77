"""Scans: a month from an index, kills, memory, and windows per second beside BirdNET's own package.

    python bench/scan.py rescan                 864,000 windows × 1024, with 1 and 2 threads
    python bench/scan.py kills [--kills 10]     killed scans of recordings, resumed, byte by byte
    python bench/scan.py embedding [--hours 1]  BirdNET on one long recording: memory, and the time
                                                beside reading and running the model alone
    python bench/scan.py birdnet [--hours 1] --other PYTHON
                                                the package birdnet in another environment

Every run is a process of its own.
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
from callshot.detection.model import AudioSettings, Example, Provenance, make_model
from callshot.detection.model_file import write_model
from callshot.detection.scan import scan
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
    options.add_argument("what", nargs="?", choices=["rescan"], default="rescan")
    options.add_argument("--folder", type=Path, help="kept, for the next run")
    options.add_argument("--child", nargs="+")
    arguments = options.parse_args()
    if arguments.child:
        function, *words = arguments.child
        globals()[function](*words)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = arguments.folder or Path(name)
        rows = measure_rescan(folder)
    show(f"callshot scan, {os.cpu_count()} cores", rows, arguments.json)


if __name__ == "__main__":
    main()
