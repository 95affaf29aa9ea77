"""BirdNET on long recordings: time and memory of an index, and BirdNET's own package beside it.

    python bench/scan_birdnet.py index [--hours 1]      an index, and the model alone
    python bench/scan_birdnet.py long [--minutes 5]     memory in the first minutes of work on a
                                                        recording of 24 h
    python bench/scan_birdnet.py package [--hours 1] --other PYTHON
                                                        the package birdnet, in the environment of
                                                        PYTHON, with the same weights
    python bench/scan_birdnet.py analyzer [--hours 1] --other PYTHON
                                                        BirdNET-Analyzer, in the same way
    python bench/scan_birdnet.py day                    a whole recording of 24 h, beside the model
                                                        alone on one hour of it

Every run is a process of its own. CPU seconds are those of all its threads and processes.
"""

import json
import os
import re
import resource
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from callshot.detection.index.index_recordings import index_recordings
from callshot.detection.index.windows import (
    RecordingAtSpeed,
    embed_windows,
    find_spec,
    make_grid,
)
from callshot.encoders.workers import open_workers
from callshot.storage import home
from child_processes import peak_mb, run_child, start_child
from noise import make_recording
from table import parser, show

ENCODER = "birdnet-v2.4"
RATE_HZ = 48000
WINDOW_S = 3.0
Row = dict[str, object]


# An index


def run_index(recording: str, out: str, threads: str) -> None:
    """Index a recording; print seconds and memory."""
    before_s = time.perf_counter()
    before_cpu_s = time.process_time()
    result = index_recordings(recording, out, ENCODER, threads=int(threads))
    print_figures(before_s, before_cpu_s, len(result.index))


def run_model_alone(recording: str, threads: str) -> None:
    """Read a recording and run the model on its windows, without an index."""
    spec = find_spec(ENCODER)
    grid = make_grid(spec)
    before_s = time.perf_counter()
    before_cpu_s = time.process_time()
    count = 0
    path = Path(recording)
    with (
        open_workers(spec, threads=int(threads)) as workers,
        RecordingAtSpeed(path, path.name, spec, "first") as audio,
    ):
        starts = grid.find_starts(audio.samples)
        for _, _, vectors in embed_windows(audio, starts, grid, workers):
            count += len(vectors)
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


def measure_index(folder: Path, hours: float) -> list[Row]:
    """Index a minute and some hours of one recording, beside the model alone."""
    long = folder / "long.wav"
    short = folder / "short.wav"
    make_recording(long, hours * 3600, RATE_HZ, calls=False)
    make_recording(short, 60, RATE_HZ, calls=False)
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


def measure_package(folder: Path, hours: float, other: str) -> list[Row]:
    """Embed the windows of one recording with callshot and with birdnet, in turn."""
    recording = folder / "recording.wav"
    make_recording(recording, hours * 3600, RATE_HZ, calls=False)
    windows = round(hours * 3600 / WINDOW_S)
    script = folder / "other.py"
    script.write_text(OTHER)
    weights = weight_path(ENCODER)
    rows: list[Row] = []
    for count in (1, 2):
        index = folder / f"index {count}"
        ours = [sys.executable, __file__, "--child", "run_index", recording, index]
        theirs = [other, script, recording, count, weights, folder / "species.txt"]
        rows.append(time_command(f"callshot, {count} threads", [*ours, count], windows))
        rows.append(time_command(f"birdnet, {count} processes", theirs, windows))
    return rows


def measure_analyzer(folder: Path, hours: float, other: str) -> list[Row]:
    """Index recordings with callshot, and name their windows with BirdNET-Analyzer, in turn.

    BirdNET-Analyzer gives each process whole files, so there are four of them.
    """
    recordings = folder / "recordings"
    for name in "abcd":
        seconds = hours * 3600 / 4
        make_recording(recordings / f"{name}.wav", seconds, RATE_HZ, calls=False)
    windows = round(hours * 3600 / WINDOW_S)
    rows: list[Row] = []
    for count in (1, 2):
        index = folder / f"index {count}"
        ours = [sys.executable, __file__, "--child", "run_index", recordings, index]
        theirs = [other, "-m", "birdnet_analyzer.analyze", recordings]
        theirs += ["-o", folder / f"analysis {count}", "-t", count, "--rtype", "csv"]
        rows.append(time_command(f"callshot, {count} threads", [*ours, count], windows))
        title = f"BirdNET-Analyzer, {count} processes"
        rows.append(time_command(title, theirs, windows))
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


# A day


def measure_long(folder: Path, minutes: float) -> list[Row]:
    """Index a recording of 24 h for some minutes, then stop; return the largest memory."""
    recording = folder / "day.wav"
    make_day(recording)
    process = start_child("run_index", recording, folder / "index", 2)
    peak = 0.0
    end_s = time.monotonic() + minutes * 60
    while process.poll() is None and time.monotonic() < end_s:
        peak = max(peak, read_peak_mb(process.pid))
        time.sleep(1)
    process.terminate()
    process.communicate()
    spans = len(list((folder / "index").rglob("*.npy")))
    return [
        {"run": "24 h, stopped", "windows, at least": spans * 1024, "peak MB": peak}
    ]


def measure_day(folder: Path) -> list[Row]:
    """Index a recording of 24 h, and run the model alone on one hour."""
    recording = folder / "day.wav"
    hour = folder / "hour.wav"
    make_day(recording)
    make_day(hour, hours=1)
    alone = run_child("run_model_alone", hour, 2)
    figures = run_child("run_index", recording, folder / "index", 2)
    row: Row = {"run": "index, 24 h", **figures}
    for name in ("seconds", "CPU seconds"):
        row[f"{name} / alone"] = figures[name] / (24 * alone[name])
    return [{"run": "model alone, 1 h", **alone}, row]


def make_day(path: Path, hours: int = 24) -> None:
    """Write silence at 24 kHz, which takes no room on most disks."""
    rate_hz = 24000
    size = hours * 3600 * rate_hz * 2
    form = struct.pack("<HHIIHH", 1, 1, rate_hz, 2 * rate_hz, 2, 16)
    head = b"RIFF" + struct.pack("<I", 36 + size) + b"WAVE"
    head += b"fmt " + struct.pack("<I", len(form)) + form
    head += b"data" + struct.pack("<I", size)
    path.write_bytes(head)
    with path.open("rb+") as stream:
        stream.truncate(len(head) + size)


def read_peak_mb(pid: int) -> float:
    """Return the largest memory of a process so far."""
    status = Path(f"/proc/{pid}/status").read_text()
    match = re.search(r"VmHWM:\s+(\d+) kB", status)
    return int(match[1]) / 1024 if match else 0.0


def main() -> None:
    """Measure, and print one table."""
    options = parser(__doc__)
    kinds = ["index", "long", "package", "analyzer", "day"]
    options.add_argument("what", nargs="?", choices=kinds, default="index")
    options.add_argument("--hours", type=float, default=1.0)
    options.add_argument("--minutes", type=float, default=5.0)
    options.add_argument("--other", help="Python of the environment with birdnet")
    options.add_argument("--child", nargs="+")
    arguments = options.parse_args()
    if arguments.child:
        function, *words = arguments.child
        globals()[function](*words)
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.what == "index":
            rows = measure_index(folder, arguments.hours)
        elif arguments.what == "long":
            rows = measure_long(folder, arguments.minutes)
        elif arguments.what == "day":
            rows = measure_day(folder)
        elif arguments.what == "analyzer":
            rows = measure_analyzer(folder, arguments.hours, arguments.other)
        else:
            rows = measure_package(folder, arguments.hours, arguments.other)
    show(f"{ENCODER} on long recordings, {os.cpu_count()} cores", rows, arguments.json)


if __name__ == "__main__":
    main()
