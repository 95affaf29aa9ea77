"""Small recordings for tests, good and bad ones."""

from pathlib import Path

import numpy as np
import soundfile as sf
from numpy.typing import NDArray

Signal = NDArray[np.float32]

BAD_KINDS = ("empty", "text", "zero", "nan", "truncated")


def record(
    path: Path,
    seconds: float = 3.0,
    rate: int = 8000,
    channels: int = 1,
    seed: int = 0,
    **options: str,
) -> Path:
    """Write noise, different in each channel."""
    path.parent.mkdir(parents=True, exist_ok=True)
    random = np.random.default_rng(seed)
    signal = random.normal(scale=0.1, size=(round(seconds * rate), channels))
    sf.write(path, signal.clip(-1, 1), rate, **options)
    return path


def record_badly(path: Path, kind: str) -> Path:
    """Write a recording that cannot be read, or not to its end; with `gone`, write nothing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "empty":
        path.write_bytes(b"")
    elif kind == "text":
        path.write_bytes(b"this is not audio\n" * 100)
    elif kind == "zero":
        record(path, seconds=0.0, format="WAV")
    elif kind == "nan":
        record(path, subtype="FLOAT", format="WAV")
        signal, rate = sf.read(path)
        signal[len(signal) // 2] = np.nan
        sf.write(path, signal, rate, subtype="FLOAT", format="WAV")
    elif kind == "truncated":
        record(path, seconds=4, format="FLAC")
        content = path.read_bytes()
        path.write_bytes(content[: len(content) // 4])
    else:
        assert kind == "gone"
    return path


def noise(frames: int, channels: int = 1, seed: int = 0) -> Signal:
    """Return noise as (frames, channels)."""
    random = np.random.default_rng(seed)
    return random.uniform(-0.7, 0.7, (frames, channels)).astype(np.float32)


def write_audio(
    path: Path,
    signal: Signal,
    rate_hz: int = 16000,
    format_name: str | None = None,
    subtype: str | None = None,
) -> Path:
    """Write in blocks: libsndfile's Vorbis encoder crashes on a long one."""
    channels = 1 if signal.ndim == 1 else signal.shape[1]
    with sf.SoundFile(
        path, "w", rate_hz, channels, subtype, format=format_name
    ) as file:
        for start in range(0, len(signal), 5000):
            file.write(signal[start : start + 5000])
    return path


def write_float_wav(path: Path, signal: Signal, rate_hz: int = 16000) -> Path:
    """Write a WAV file of float32 samples."""
    return write_audio(path, signal, rate_hz, "WAV", "FLOAT")


def truncate(path: Path, share: float) -> Path:
    """Keep only the first share of a file."""
    path.write_bytes(path.read_bytes()[: int(path.stat().st_size * share)])
    return path


def damage_middle(path: Path) -> Path:
    """Replace 6000 bytes in the middle of a file."""
    content = bytearray(path.read_bytes())
    middle = len(content) // 2
    content[middle : middle + 6000] = np.random.default_rng(0).bytes(6000)
    path.write_bytes(content)
    return path
