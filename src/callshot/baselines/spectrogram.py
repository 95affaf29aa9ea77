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
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from callshot.baselines.sequence_batches import (
    BoolArray,
    Frames,
    FrameTable,
    describe_array,
    is_float_array,
    stack_sequences,
)
from callshot.errors import InputError
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
MAX_AMPLITUDE = 1e6  # full scale is 1

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
    window: str
    mean: float
    deviation: float


AERD = FrontEnd(2.0**15, "povey", 14.7274, 2.9366)
BEATS = FrontEnd(2.0**15, "povey", 15.41663, 6.55582)
AST = FrontEnd(1.0, "hann", -4.2677393, 4.5689974)


def log_mel(signal: Signal, front_end: FrontEnd = AERD) -> Frames:
    """Return the frames of a signal, (frames, 128), at least sixteen.

    >>> log_mel(np.zeros(16_000, np.float32)).shape
    (98, 128)
    """
    samples = pad_signal(signal.astype(np.float64)) * front_end.gain
    frames = sliding_window_view(samples, FRAME_SAMPLES)[::HOP_SAMPLES]
    blocks = np.split(frames, np.arange(BLOCK_FRAMES, len(frames), BLOCK_FRAMES))
    powers = [_log_mel_block(block, front_end.window) for block in blocks]
    logarithms = np.concatenate(powers)
    scaled = (logarithms - front_end.mean) / (2.0 * front_end.deviation)
    return scaled.astype(np.float32)


def pad_signal(signal: Signal) -> Signal:
    """Append zeros to a signal that is shorter than one column."""
    return np.pad(signal, (0, max(0, MIN_SAMPLES - len(signal))))


def _log_mel_block(frames: FloatArray, window: str) -> FloatArray:
    centred = frames - frames.mean(axis=1, keepdims=True)
    previous = np.concatenate([centred[:, :1], centred[:, :-1]], axis=1)
    emphasised = centred - PRE_EMPHASIS * previous
    spectrum = np.fft.rfft(emphasised * _window(window), FFT_POINTS)
    power = np.square(np.abs(spectrum)) @ _mel_filters().T
    logarithm: FloatArray = np.log(np.maximum(power, MIN_POWER))
    return logarithm


@cache
def _window(name: str) -> FloatArray:
    hann = np.hanning(FRAME_SAMPLES)
    return hann**0.85 if name == "povey" else hann


@cache
def _mel_filters() -> FloatArray:
    """Return the weight of each FFT point in each band, (bands, points)."""
    edges = np.linspace(_mel(LOW_HZ), _mel(HIGH_HZ), BANDS + 2)[:, None]
    left = edges[:-2]
    centre = edges[1:-1]
    right = edges[2:]
    points_hz = np.arange(FFT_POINTS // 2 + 1) * RATE_HZ / FFT_POINTS
    points = _mel(points_hz)
    rising = (points - left) / (centre - left)
    falling = (right - points) / (right - centre)
    filters: FloatArray = np.maximum(np.minimum(rising, falling), 0.0)
    filters[:, -1] = 0.0  # Kaldi leaves out the last point
    return filters


def _mel(frequency_hz: Any) -> Any:
    return 1127.0 * np.log1p(frequency_hz / 700.0)


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
    if not is_float_array(signal, axes=1):
        raise InputError(f"{expected}, of floats, got {describe_array(signal)}")
    if signal.size == 0:
        raise InputError(f"{expected}, got none; leave its segment out")
    if not (np.abs(signal) < MAX_AMPLITUDE).all():  # also false for NaN
        problem = f"got NaN, infinity or more than {MAX_AMPLITUDE:,.0f}"
        raise InputError(f"{expected}, finite, {problem}; leave its segment out")
    return np.asarray(signal)


@dataclass(frozen=True)
class Crops:
    """Parts of rows: the row of each, its first frame in that row, and its number of columns."""

    row: IntArray
    first: IntArray
    columns: IntArray

    def take(self, indices: IntArray) -> "Crops":
        """Return some of the crops."""
        return Crops(self.row[indices], self.first[indices], self.columns[indices])


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
    columns = np.minimum(lengths[rows] // PATCH, MAX_COLUMNS)
    first = rng.integers(0, lengths[rows] - columns * PATCH, endpoint=True)
    return Crops(rows, first, columns)


def batch_crops(crops: Crops, size: int) -> list[Crops]:
    """Return crops in batches, shortest first."""
    order = np.argsort(crops.columns, kind="stable")
    batches = np.split(order, np.arange(size, len(order), size))
    return [crops.take(batch) for batch in batches]


def crop_index(table: FrameTable, crops: Crops) -> tuple[IntArray, BoolArray]:
    """Return which frames of the table make crops, (crops, frames), and a mask of their columns.

    Shorter crops repeat their last frame, and the mask is false there.
    """
    column = np.arange(crops.columns.max())
    last = crops.columns[:, None] * PATCH - 1
    frame = np.minimum(np.arange(len(column) * PATCH), last)
    start = table.start[crops.row] + crops.first
    mask = column < crops.columns[:, None]
    return start[:, None] + frame, mask
