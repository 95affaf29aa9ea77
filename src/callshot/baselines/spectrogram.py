"""Signals at 16 kHz → log-mel frames as Kaldi computes them → crops for training and scoring.

128 bands, 25 ms every 10 ms. A frame loses its mean, is pre-emphasised and windowed; the powers of
512 points are summed by triangles that are even on Kaldi's mel scale from 20 Hz to 8 kHz. No frame
reaches over the end. Families of models differ in gain, window and scaling.

A column is 16 frames (160 ms) and 8 patches. A crop has at most 64 columns (10.24 s). Frames after
the last whole column are not used, as in a convolution over patches.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from callshot.baselines.sequence_batches import (
    Frames,
    FrameTable,
    check_floats,
    sorted_batches,
    split_batches,
    stack_sequences,
)
from callshot.records import FloatArray, IntArray

RATE_HZ = 16_000
FRAME_SAMPLES = 400
HOP_SAMPLES = 160
FFT_POINTS = 512
BANDS = 128
LOW_HZ = 20.0
HIGH_HZ = 8000.0
PRE_EMPHASIS = 0.97
MIN_POWER = float(np.finfo(np.float32).eps)
BLOCK_FRAMES = 4096  # frames computed at once
POVEY = 0.85  # the power of a Hann window that is Kaldi's

PATCH = 16  # frames, and bands, of a patch
COLUMN_PATCHES = BANDS // PATCH
COLUMN_S = 0.16
MAX_COLUMNS = 64  # of a crop
# One column; shorter signals are padded.
MIN_SAMPLES = FRAME_SAMPLES + (PATCH - 1) * HOP_SAMPLES

Signal = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class FrontEnd:
    """How a family of models scales a signal and its log-mel frames."""

    gain: float
    window_power: float  # of a Hann window
    mean: float
    deviation: float


AERD = FrontEnd(2.0**15, POVEY, 14.7274, 2.9366)
BEATS = FrontEnd(2.0**15, POVEY, 15.41663, 6.55582)
AST = FrontEnd(1.0, 1.0, -4.2677393, 4.5689974)


def log_mel(signal: Signal, front_end: FrontEnd = AERD) -> Frames:
    """Return the frames of a signal, (frames, 128), at least sixteen.

    >>> log_mel(np.zeros(16_000, np.float32)).shape
    (98, 128)
    """
    samples = pad_signal(signal.astype(np.float64)) * front_end.gain
    frames = sliding_window_view(samples, FRAME_SAMPLES)[::HOP_SAMPLES]
    window = np.hanning(FRAME_SAMPLES) ** front_end.window_power
    filters = _mel_filters().T
    logarithms = []
    for block in split_batches(frames, BLOCK_FRAMES):
        centred = block - block.mean(axis=1, keepdims=True)
        previous = np.pad(centred, ((0, 0), (1, 0)), "edge")[:, :-1]
        emphasised = centred - PRE_EMPHASIS * previous
        spectrum = np.fft.rfft(emphasised * window, FFT_POINTS)
        power = np.square(np.abs(spectrum)) @ filters
        logarithms.append(np.log(np.maximum(power, MIN_POWER)))
    centred = np.concatenate(logarithms) - front_end.mean
    scaled = centred / (2.0 * front_end.deviation)
    return scaled.astype(np.float32)


def pad_signal(signal: Signal) -> Signal:
    """Append zeros to a signal that is shorter than one column."""
    missing = max(0, MIN_SAMPLES - len(signal))
    return np.pad(signal, (0, missing))


@cache
def _mel_filters() -> FloatArray:
    """Return the weight of each FFT point in each band, (bands, points)."""
    points_hz = np.arange(FFT_POINTS // 2 + 1) * RATE_HZ / FFT_POINTS
    points_and_ends = np.array([*points_hz, LOW_HZ, HIGH_HZ])
    *points, lowest, highest = 1127.0 * np.log1p(points_and_ends / 700.0)
    edges = np.linspace(lowest, highest, BANDS + 2)[:, None]
    left = edges[:-2]
    centre = edges[1:-1]
    right = edges[2:]
    rising = (points - left) / (centre - left)
    falling = (right - points) / (right - centre)
    filters = np.maximum(np.minimum(rising, falling), 0.0)
    filters[:, -1] = 0.0  # Kaldi leaves out the last point
    return filters


def log_mel_table(signals: Sequence[Any], front_end: FrontEnd) -> FrameTable:
    """Return the frames of all signals in one table; each signal is read once and checked."""
    frames = []
    for row in range(len(signals)):
        signal = check_signal(row, signals[row])
        frames.append(log_mel(signal, front_end))
    return stack_sequences(frames)


def check_signal(row: int, signal: Any) -> Signal:
    """Return the signal of a row if it is a finite signal; raise InputError otherwise."""
    expected = f"signal of row {row}: expected samples at 16 kHz, one channel"
    check_floats(signal, 1, expected)
    return np.asarray(signal)


class Crops(NamedTuple):
    """Parts of rows: the row of each, its first frame in that row, and its number of columns."""

    row: IntArray
    first: IntArray
    columns: IntArray


def window_crops(lengths: IntArray, rows: IntArray) -> Crops:
    """Cut rows into as few consecutive windows as possible, of about the same length.

    >>> window_crops(np.array([16 * 100 + 5]), np.array([0]))
    Crops(row=array([0, 0]), first=array([  0, 800]), columns=array([50, 50]))
    """
    crops = []
    for row in rows.tolist():
        columns = np.arange(lengths[row] // PATCH)
        windows = np.array_split(columns, -(-len(columns) // MAX_COLUMNS))
        crops += [(row, window[0] * PATCH, len(window)) for window in windows]
    return Crops(*np.array(crops).T)


def random_crops(lengths: IntArray, rows: IntArray, rng: np.random.Generator) -> Crops:
    """Random-crop each row to at most 64 columns."""
    frames = lengths[rows]
    columns = np.minimum(frames // PATCH, MAX_COLUMNS)
    last = frames - columns * PATCH
    first = rng.integers(0, last, endpoint=True)
    return Crops(rows, first, columns)


def batch_crops(crops: Crops, size: int) -> list[Crops]:
    """Return crops in batches, the shortest first."""
    numbers = np.arange(len(crops.row))
    batches = sorted_batches(numbers, crops.columns, size)
    return [Crops(*(column[batch] for column in crops)) for batch in batches]
