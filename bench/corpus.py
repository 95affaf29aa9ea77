"""Segments of long recordings: `load_audio` against one `librosa.load` for each segment.

A FLAC file of 24 hours at 16 kHz (noise and tones, 16 bit, mono), and one of an hour at 44.1 kHz,
which is resampled to 16 kHz. From each, random spans of 1 to 8 s with a collar of 0.25 s, in random
order. The readers take turns on each tenth of them; times are medians. The peak memory of each
reader is that of its own process. Neither normalises the peak. callshot resamples in float64,
librosa's soxr_hq in float32.
"""

import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import soundfile

from callshot.corpus.audio import load_audio
from callshot.errors import InputError
from callshot.spans import Spans
from table import parser, show

RATE_HZ = 16000
COLLAR_S = 0.25
PARTS = 10

Reader = Callable[[Path, Spans], None]


def write_recording(path: Path, hours: float, rate_hz: int) -> None:
    """Write noise and tones, a minute at a time, each minute with its own gain and tone."""
    rng = np.random.default_rng(0)
    noise = rng.normal(0, 0.05, rate_hz * 60)
    time_s = np.arange(rate_hz * 60) / rate_hz
    with soundfile.SoundFile(
        path, "w", rate_hz, 1, "PCM_16", format="FLAC", compression_level=0
    ) as file:
        for _ in range(round(hours * 60)):
            tone = np.sin(2 * np.pi * rng.uniform(10, 4000) * time_s)
            minute = rng.uniform(0.3, 1) * noise + rng.uniform(0, 0.5) * tone
            file.write(minute.astype(np.float32))


def make_segments(path: Path, count: int) -> Spans:
    """Return random segments of a recording, in random order."""
    rng = np.random.default_rng(1)
    duration_s = soundfile.info(path).duration
    length_s = rng.uniform(1, 8, count)
    start_s = rng.uniform(COLLAR_S, duration_s - length_s - COLLAR_S)
    end_s = start_s + length_s
    segments = []
    for n in range(count):
        times = {"start_s": float(start_s[n]), "end_s": float(end_s[n])}
        segments.append({"recording": path.name, **times})
    spans = Spans.from_rows(segments, root=path.parent)
    return spans.with_columns(collar_s=COLLAR_S, rate_hz=RATE_HZ)


def load_with_librosa(path: Path, segments: Spans) -> None:
    """Load each segment with librosa."""
    import librosa

    for segment in segments.rows():
        librosa.load(
            path,
            sr=RATE_HZ,
            offset=segment["start_s"] - COLLAR_S,
            duration=segment["end_s"] - segment["start_s"] + 2 * COLLAR_S,
        )


def load_with_callshot(threads: int) -> Reader:
    """Return a reader that loads segments with callshot."""

    def load(path: Path, segments: Spans) -> None:
        for _, audio in load_audio(segments, threads=threads):
            if isinstance(audio, InputError):
                raise audio

    return load


READERS: dict[str, Reader] = {
    "librosa.load, one thread": load_with_librosa,
    "load_audio, one thread": load_with_callshot(1),
    "load_audio, two threads": load_with_callshot(2),
}


def time_readers(path: Path, segments: Spans, rounds: int) -> dict[str, np.ndarray]:
    """Return seconds and seconds of processor of each reader, which take turns on each tenth.

    Of each tenth the median round counts; first calls are not counted.
    """
    times = {name: np.zeros((PARTS, rounds, 2)) for name in READERS}
    for load in READERS.values():
        load(path, segments.take(range(20)))
    for n in range(rounds):
        for part in range(PARTS):
            for name, load in READERS.items():
                start_s = time.perf_counter()
                start_cpu_s = time.process_time()
                load(path, segments.take(range(part, len(segments), PARTS)))
                times[name][part, n, 0] = time.perf_counter() - start_s
                times[name][part, n, 1] = time.process_time() - start_cpu_s
    return {
        name: np.median(values, axis=1).sum(axis=0) for name, values in times.items()
    }


def peak_memory(path: Path, name: str, count: int) -> float:
    """Return the peak memory, in MB, of a new process that reads all segments once."""
    command = [
        sys.executable,
        __file__,
        "--annotations",
        str(count),
        "--child",
        name,
        str(path),
    ]
    return float(
        subprocess.run(command, capture_output=True, text=True, check=True).stdout
    )


def read_in_child(name: str, path: Path, count: int) -> None:
    """Read all segments and print the peak memory of this process in MB."""
    READERS[name](path, make_segments(path, count))
    status = Path("/proc/self/status").read_text()
    print(int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) / 1024)


def compare(path: Path, title: str, count: int, rounds: int) -> list[dict[str, object]]:
    """Return one row for each reader of a recording."""
    times = time_readers(path, make_segments(path, count), rounds)
    librosa_s, callshot_s, _ = (seconds for seconds, _ in times.values())
    rows: list[dict[str, object]] = []
    for name, (seconds, processor_s) in times.items():
        row = {
            "what": f"{title}: {name}",
            "seconds": float(seconds),
            "processor s": float(processor_s),
            "segments/s per core": float(count / processor_s),
            "× librosa": float(librosa_s / seconds),
            "× one thread": float(callshot_s / seconds),
            "peak MB": peak_memory(path, name, count),
        }
        rows.append(row)
    return rows


def main() -> None:
    """Run everything and print one table."""
    arguments = parser(__doc__)
    arguments.add_argument(
        "--hours", type=float, default=24.0, help="length of the recording at 16 kHz"
    )
    arguments.add_argument(
        "--annotations", type=int, default=5000, help="segments in it"
    )
    arguments.add_argument("--rounds", type=int, default=5)
    arguments.add_argument(
        "--child",
        nargs=2,
        metavar=("READER", "FILE"),
        help="one reader, print its peak memory",
    )
    options = arguments.parse_args()
    if options.child is not None:
        name, path = options.child
        read_in_child(name, Path(path), options.annotations)
        return
    with tempfile.TemporaryDirectory() as folder:
        long = Path(folder) / "long.flac"
        fast = Path(folder) / "fast.flac"
        fast_hours = options.hours / 24
        write_recording(long, options.hours, RATE_HZ)
        write_recording(fast, fast_hours, 44100)
        rows = compare(
            long, f"{options.hours:g} h at 16 kHz", options.annotations, options.rounds
        )
        rows += compare(
            fast,
            f"{fast_hours:g} h at 44.1 kHz",
            options.annotations // 5,
            options.rounds,
        )
    show(
        f"bench/corpus: {options.annotations} segments of 1 to 8 s, and a fifth of them",
        rows,
        options.json,
    )


if __name__ == "__main__":
    main()
