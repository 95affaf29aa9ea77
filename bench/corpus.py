"""Segments of long recordings: `read_segments` against one `librosa.load` for each segment.

A FLAC file of 24 hours at 16 kHz (noise and tones, 16 bit, mono), and one of an hour at 44.1 kHz, which has to be
resampled to 16 kHz. From each, random spans of 1 to 8 s with a collar of 0.25 s, in random order. The readers take
turns on each tenth of them; times are medians. Each reader's peak memory is that of a process of its own. Neither
normalises the peak. Ours resamples in float64, librosa's soxr_hq in float32.
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
from callshot.records import Segment
from table import parser, show

RATE_HZ, COLLAR_S = 16000, 0.25


def write_recording(path: Path, hours: float, rate_hz: int) -> None:
    """Write noise and tones, a minute at a time, each minute with its own gain and tone."""
    rng = np.random.default_rng(0)
    noise, time_s = rng.normal(0, 0.05, rate_hz * 60), np.arange(rate_hz * 60) / rate_hz
    with soundfile.SoundFile(
        path, "w", rate_hz, 1, "PCM_16", format="FLAC", compression_level=0
    ) as file:
        for _ in range(round(hours * 60)):
            tone = np.sin(2 * np.pi * rng.uniform(10, 4000) * time_s)
            file.write(
                (rng.uniform(0.3, 1) * noise + rng.uniform(0, 0.5) * tone).astype(np.float32)
            )


def spans(path: Path, count: int) -> list[Segment]:
    """Return random segments of a recording, in random order."""
    rng, duration_s = np.random.default_rng(1), soundfile.info(path).duration
    length_s = rng.uniform(1, 8, count)
    start_s = rng.uniform(COLLAR_S, duration_s - length_s - COLLAR_S)
    return [
        Segment(
            f"s{i}",
            path.stem,
            path.name,
            a,
            a + n,
            COLLAR_S,
            "call",
            ("call",),
            RATE_HZ,
            "first",
            None,
        )
        for i, (a, n) in enumerate(zip(start_s.tolist(), length_s.tolist(), strict=True))
    ]


def by_librosa(path: Path, segments: list[Segment]) -> None:
    """Load each segment with librosa."""
    import librosa

    for s in segments:
        librosa.load(
            path,
            sr=RATE_HZ,
            offset=s.start_s - COLLAR_S,
            duration=s.end_s - s.start_s + 2 * COLLAR_S,
        )


def by_callshot(threads: int) -> Callable[[Path, list[Segment]], None]:
    """Return a reader that loads segments with callshot."""

    def load(path: Path, segments: list[Segment]) -> None:
        for _, audio in load_audio(path.parent, segments, threads=threads):
            if isinstance(audio, InputError):
                raise audio

    return load


READERS = {
    "librosa.load, one thread": by_librosa,
    "read_segments, one thread": by_callshot(1),
    "read_segments, two threads": by_callshot(2),
}


def turn_about(path: Path, segments: list[Segment], rounds: int) -> dict[str, tuple[float, float]]:
    """Time the readers, turn about on each tenth of the segments: seconds, and seconds of processor.

    Of each tenth the median round counts; first calls are not counted.
    """
    times: dict[str, list[list[tuple[float, float]]]] = {
        name: [[] for _ in range(10)] for name in READERS
    }
    for load in READERS.values():
        load(path, segments[:20])
    for _ in range(rounds):
        for tenth in range(10):
            for name, load in READERS.items():
                start, busy = time.perf_counter(), time.process_time()
                load(path, segments[tenth::10])
                times[name][tenth].append((time.perf_counter() - start, time.process_time() - busy))
    return {
        name: tuple(np.median(spent, axis=1).sum(axis=0).tolist()) for name, spent in times.items()
    }


def peak_memory(path: Path, name: str, count: int) -> float:
    """Return the peak resident memory, in MB, of a process that reads all segments once; getrusage adds ours."""
    command = [sys.executable, __file__, "--annotations", str(count), "--child", name, str(path)]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def compare(path: Path, what: str, count: int, rounds: int) -> list[dict[str, object]]:
    """Return one row for each reader of a recording."""
    times = turn_about(path, spans(path, count), rounds)
    (baseline, _), (alone, _), _ = times.values()
    return [
        {
            "what": f"{what}: {name}",
            "seconds": spent,
            "processor s": busy,
            "segments/s per core": count / busy,
            "× librosa": baseline / spent,
            "× one thread": alone / spent,
            "peak MB": peak_memory(path, name, count),
        }
        for name, (spent, busy) in times.items()
    ]


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument(
        "--hours", type=float, default=24.0, help="length of the recording at 16 kHz"
    )
    options.add_argument("--annotations", type=int, default=5000, help="segments in it")
    options.add_argument("--rounds", type=int, default=5)
    options.add_argument(
        "--child", nargs=2, metavar=("READER", "FILE"), help="one reader, print its peak memory"
    )
    chosen = options.parse_args()
    if chosen.child is not None:
        path = Path(chosen.child[1])
        READERS[chosen.child[0]](path, spans(path, chosen.annotations))
        print(
            int(re.findall(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())[0]) / 1024
        )
        return
    with tempfile.TemporaryDirectory() as folder:
        long, fast = Path(folder) / "long.flac", Path(folder) / "fast.flac"
        write_recording(long, chosen.hours, RATE_HZ)
        write_recording(fast, chosen.hours / 24, 44100)
        rows = compare(long, f"{chosen.hours:g} h at 16 kHz", chosen.annotations, chosen.rounds)
        rows += compare(
            fast, f"{chosen.hours / 24:g} h at 44.1 kHz", chosen.annotations // 5, chosen.rounds
        )
    show(
        f"bench/corpus: {chosen.annotations} segments of 1 to 8 s, and a fifth of them",
        rows,
        chosen.json,
    )


if __name__ == "__main__":
    main()
