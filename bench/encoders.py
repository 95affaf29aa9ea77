"""The encoders against the usual way to the same vectors, on 5-s segments at 16 kHz. One thread each, turn about.

MFCC: `librosa.feature.mfcc` with the same settings, and the mean over its frames. Medians over all segments and rounds,
and how far apart the results are at most, relative to the largest coefficient of a segment.
"""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[_name] = "1"

# ruff: noqa: E402  (threads are set before NumPy is imported)
import time
from collections.abc import Callable

import librosa
import numpy as np
from numpy.typing import NDArray

from callshot.encoders.mfcc import PAPER, embed, frames
from sheet import parser, show

RATE_HZ, LENGTH_S, SEGMENTS = 16000, 5, 20
Signal = NDArray[np.float32]


def segments(seed: int = 0) -> list[Signal]:
    """Return rumble-like harmonics in noise, each at its own pitch."""
    rng = np.random.default_rng(seed)
    time_s = np.arange(LENGTH_S * RATE_HZ) / RATE_HZ
    pitches_hz = rng.uniform(12, 30, SEGMENTS)
    calls = [sum(np.sin(2 * np.pi * hz * n * time_s) / n for n in range(1, 20)) for hz in pitches_hz]
    noisy = [call + rng.normal(size=len(time_s)) * 0.01 for call in calls]
    return [(signal / np.abs(signal).max() * 0.70795).astype(np.float32) for signal in noisy]


def librosa_frames(signal: Signal) -> Signal:
    """Return coefficients × frames, as librosa computes them."""
    return librosa.feature.mfcc(
        y=signal, sr=RATE_HZ, n_mfcc=PAPER.coefficients, n_fft=PAPER.n_fft, hop_length=PAPER.hop, n_mels=PAPER.bands
    )


def turn_about(work: dict[str, Callable[[Signal], object]], signals: list[Signal], rounds: int) -> dict[str, float]:
    """Time each way on each segment in turn; return the medians in seconds."""
    times: dict[str, list[float]] = {name: [] for name in work}
    for signal in signals * rounds:
        for name, task in work.items():
            start = time.perf_counter()
            task(signal)
            times[name].append(time.perf_counter() - start)
    return {name: float(np.median(spent)) for name, spent in times.items()}


def apart(ours: Callable[[Signal], Signal], theirs: Callable[[Signal], Signal], signals: list[Signal]) -> float:
    """Return the largest difference, relative to the largest coefficient of the segment."""
    pairs = [(ours(signal), theirs(signal)) for signal in signals]
    return max(float(np.abs(mine - other).max() / np.abs(other).max()) for mine, other in pairs)


def mfcc_rows(signals: list[Signal], rounds: int) -> list[dict[str, object]]:
    """Compare the vector and the sequence."""
    ways: dict[str, tuple[Callable[[Signal], Signal], Callable[[Signal], Signal]]] = {
        "mfcc, vector": (embed, lambda signal: librosa_frames(signal).mean(axis=1)),
        "mfcc, sequence": (frames, lambda signal: librosa_frames(signal).T),
    }
    rows: list[dict[str, object]] = []
    for what, (ours, theirs) in ways.items():
        turn_about({"ours": ours, "theirs": theirs}, signals[:2], 1)
        times = turn_about({"ours": ours, "theirs": theirs}, signals, rounds)
        row = {"callshot, ms": times["ours"] * 1e3, "librosa, ms": times["theirs"] * 1e3}
        gain = {"× faster": times["theirs"] / times["ours"], "apart": apart(ours, theirs, signals)}
        rows.append({"what": what} | row | gain)
    return rows


def main() -> None:
    """Run everything and print one table."""
    options = parser(__doc__)
    options.add_argument("--rounds", type=int, default=10, help="how often each segment is timed")
    chosen = options.parse_args()
    rows = mfcc_rows(segments(), chosen.rounds)
    show(f"bench/encoders: {SEGMENTS} segments of {LENGTH_S} s at {RATE_HZ} Hz, one thread", rows, chosen.json)


if __name__ == "__main__":
    main()
