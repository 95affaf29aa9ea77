"""Signals at 16 kHz → log-mel frames, as Kaldi makes them: 128 bands, 25 ms every 10 ms, then the scale of a model.

A frame loses its mean, is pre-emphasised and windowed; the powers of 512 points are summed by triangles that are even
on Kaldi's mel scale from 20 Hz to 8 kHz; the logarithm is cut at the float32 epsilon. There is no frame that would
reach over the end. Families differ in the gain, the window and the scale, so each has its own.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.sequence_batches import Frames, Table, lay_out
from callshot.errors import InputError
from callshot.records import FloatArray

RATE_HZ = 16_000
FRAME, HOP, POINTS, BANDS = 400, 160, 512, 128
LOWEST_HZ, HIGHEST_HZ = 20.0, 8000.0
PATCH = 16  # frames, and bands, that a patch has
SHORTEST = (
    FRAME + (PATCH - 1) * HOP
)  # samples, for one patch; a shorter signal is followed by zeros
EMPHASIS = 0.97
LEAST = float(np.finfo(np.float32).eps)
AT_ONCE = 4096  # frames


@dataclass(frozen=True)
class FrontEnd:
    """What a family of models makes of a signal before its spectrogram, and of the logarithms after it."""

    gain: float
    window: str
    mean: float
    deviation: float


AERD = FrontEnd(2.0**15, "povey", 14.7274, 2.9366)
BEATS = FrontEnd(2.0**15, "povey", 15.41663, 6.55582)
AST = FrontEnd(1.0, "hann", -4.2677393, 4.5689974)


def log_mel(signal: NDArray[np.floating[Any]], front: FrontEnd = AERD) -> Frames:
    """Return the frames of a signal, (frames, 128), sixteen at least.

    >>> log_mel(np.zeros(16_000, np.float32)).shape
    (98, 128)
    """
    samples = (
        np.pad(np.asarray(signal, np.float64), (0, max(0, SHORTEST - len(signal)))) * front.gain
    )
    frames = np.lib.stride_tricks.sliding_window_view(samples, FRAME)[::HOP]
    parts = [
        _log_mel(frames[at : at + AT_ONCE], front.window) for at in range(0, len(frames), AT_ONCE)
    ]
    return np.asarray((np.concatenate(parts) - front.mean) / (2.0 * front.deviation), np.float32)


def _log_mel(frames: FloatArray, window: str) -> FloatArray:
    level = frames - frames.mean(axis=1, keepdims=True)
    before = np.concatenate([level[:, :1], level[:, :-1]], axis=1)
    spectrum = np.fft.rfft((level - EMPHASIS * before) * _window(window), POINTS)
    return np.asarray(np.log(np.maximum(np.square(np.abs(spectrum)) @ _bands().T, LEAST)))


@cache
def _window(name: str) -> FloatArray:
    hann = np.hanning(FRAME)
    return hann**0.85 if name == "povey" else hann


@cache
def _bands() -> FloatArray:
    """Return how much each of the points belongs to each of the bands: (bands, points)."""
    edges = np.linspace(_mel(np.array(LOWEST_HZ)), _mel(np.array(HIGHEST_HZ)), BANDS + 2)
    left, centre, right = edges[:-2, None], edges[1:-1, None], edges[2:, None]
    points = _mel(np.arange(POINTS // 2 + 1) * RATE_HZ / POINTS)
    found = np.maximum(
        np.minimum((points - left) / (centre - left), (right - points) / (right - centre)), 0.0
    )
    found[:, -1] = 0.0  # Kaldi has no last point
    return np.asarray(found)


def _mel(frequency_hz: FloatArray) -> FloatArray:
    return np.asarray(1127.0 * np.log1p(frequency_hz / 700.0))


def hear(signals: Sequence[Any], front: FrontEnd) -> Table:
    """Return the frames of all signals in one table; each is taken once, and refused where it is none."""
    return lay_out([log_mel(check_signal(row, signals[row]), front) for row in range(len(signals))])


def check_signal(row: int, signal: Any) -> NDArray[np.floating[Any]]:
    """Return a signal that can be heard; refuse others, by their row."""
    wanted = f"signal of row {row}: wanted samples at 16 kHz, one channel"
    if (
        not isinstance(signal, np.ndarray)
        or signal.ndim != 1
        or not np.issubdtype(signal.dtype, np.floating)
    ):
        kind = getattr(signal, "dtype", type(signal).__name__)
        raise InputError(f"{wanted}, of floats, found {np.shape(signal)} of {kind}")
    if signal.size == 0:
        raise InputError(f"{wanted}, found none; leave its segment out")
    if not (np.abs(signal) < 1e6).all():  # NaN too; full scale is 1
        raise InputError(
            f"{wanted}, finite, found NaN, infinity or above a million; leave its segment out"
        )
    return signal
