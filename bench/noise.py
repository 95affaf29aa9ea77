"""Recordings of noise for benchmarks."""

from pathlib import Path

import numpy as np
import soundfile


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
