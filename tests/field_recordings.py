"""Small recordings with calls at known times, and their annotations."""

from pathlib import Path

import numpy as np
from scipy.io import wavfile

from callshot.detection.index.index_recordings import index_recordings

TONES_HZ = {"hoot": 400.0, "bark": 1500.0, "trill": 3000.0}
RATE_HZ = 16000


def write_site(
    folder: Path,
    names: tuple[str, ...] = ("a", "b", "c"),
    *,
    calls: int = 2,
    labels: tuple[str, ...] = ("hoot", "bark", "trill"),
    call_s: float = 0.5,
    rate_hz: int = RATE_HZ,
    seed: int = 0,
) -> Path:
    """Write recordings of noise with tones in them, and Audacity labels beside them."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, name in enumerate(names):
        rng = np.random.default_rng([seed, number])
        seconds = 2.0 * calls * len(labels) + 1.0
        signal = rng.normal(0, 0.01, int(seconds * rate_hz))
        lines = []
        for n in range(calls * len(labels)):
            label = labels[n % len(labels)]
            start_s = 1.0 + 2.0 * n + rng.uniform(0, 0.5)
            add_tone(signal, label, start_s, call_s, rate_hz, rng)
            lines.append(f"{start_s:.4f}\t{start_s + call_s:.4f}\t{label}\n")
        # Not by libsndfile: it writes the time into the header, and samples depend on the bytes.
        wavfile.write(folder / f"{name}.wav", rate_hz, signal.astype(np.float32))
        (folder / f"{name}.txt").write_text("".join(lines))
    return folder


def index_site(folder: Path, **options) -> Path:
    """Take the labels away, and make an index of the recordings in the folder beside them."""
    for path in folder.glob("*.txt"):
        path.unlink()
    index = folder.parent / "index"
    index_recordings(folder, index, "mfcc", window_s=0.5, threads=1, **options)
    return index


def add_tone(signal, label, start_s, call_s, rate_hz, rng):
    """Add a tone of about the frequency of a label."""
    frequency_hz = TONES_HZ[label] * rng.uniform(0.95, 1.05)
    time_s = np.arange(int(call_s * rate_hz)) / rate_hz
    start = int(start_s * rate_hz)
    tone = rng.uniform(0.1, 0.3) * np.sin(2 * np.pi * frequency_hz * time_s)
    signal[start : start + len(time_s)] += tone
