"""Small recordings for tests: good ones, and every kind of bad one."""

from pathlib import Path

import numpy as np
import soundfile as sf


def record(
    path: Path, seconds: float = 3.0, rate: int = 8000, channels: int = 1, seed: int = 0, **how: str
) -> Path:
    """Write noise that no two channels share."""
    path.parent.mkdir(parents=True, exist_ok=True)
    signal = (
        np.random.default_rng(seed)
        .normal(scale=0.1, size=(round(seconds * rate), channels))
        .clip(-1, 1)
    )
    sf.write(path, signal, rate, **how)
    return path


def spoil(path: Path, how: str) -> Path:
    """Write a recording that cannot be read, or not to its end."""
    if how == "gone":
        path.parent.mkdir(parents=True, exist_ok=True)
    elif how == "nan":
        record(path, subtype="FLOAT", format="WAV")
        signal, rate = sf.read(path)
        signal[len(signal) // 2] = np.nan
        sf.write(path, signal, rate, subtype="FLOAT", format="WAV")
    elif how == "truncated":
        whole = record(path.with_suffix(".flac"), seconds=4).read_bytes()
        path.with_suffix(".flac").unlink()
        path.write_bytes(whole[: len(whole) // 4])
    else:
        path.parent.mkdir(parents=True, exist_ok=True)
        zero = record(path.with_name("zero.wav"), seconds=0.0)
        contents = {"empty": b"", "text": b"this is not audio\n" * 100, "zero": zero.read_bytes()}
        zero.unlink()
        path.write_bytes(contents[how])
    return path


SPOILED = ("empty", "text", "zero", "nan", "truncated")
