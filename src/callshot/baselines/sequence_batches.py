"""Sequences or signals of segments → frames → batches and crops for training; inner folds.

A row is a segment. Its frames are rows start[i] to start[i + 1] of one table, so that a batch is
one gather. Batches hold rows of similar length; shorter rows repeat their last frame, masked.

Frames of signals at 16 kHz are Kaldi's log-mel frames: 128 bands, 25 ms every 10 ms; families of
models differ in gain, window and scaling. A column is 16 frames (160 ms) and 8 patches, a crop at
most 64 columns (10.24 s). Frames after the last whole column are not used.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.records import FloatArray, IntArray

SORTED_BATCHES = 8  # batches of an epoch that are sorted by length together
BoolArray = NDArray[np.bool_]
Frames = NDArray[np.float32]
Sequences = Sequence[NDArray[np.floating[Any]]]


@dataclass(frozen=True)
class FrameTable:
    """The frames of all rows, (frames, dimensions), and where the frames of each row start."""

    frames: Frames
    start: IntArray

    @cached_property
    def lengths(self) -> IntArray:
        """The number of frames of each row."""
        return np.diff(self.start)

    def row(self, number: int) -> Frames:
        """Return the frames of a row."""
        start, end = self.start[number : number + 2]
        return self.frames[start:end]

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """The mean of each row's frames and the sum of squares around it, (rows, dimensions)."""
        size = (len(self.lengths), self.frames.shape[1])
        means = np.empty(size)
        squares = np.empty(size)
        for number in range(len(means)):
            frames = self.row(number)
            means[number] = frames.mean(axis=0, dtype=np.float64)
            deviations = frames - means[number]
            squares[number] = np.square(deviations).sum(axis=0)
        return means, squares


@dataclass(frozen=True)
class BatchData:
    """Rows to train on: their frames (also on a device), labels and recordings (`groups`).

    `label` has the class number of each row, or is (rows, outputs): whether each output is true.
    """

    table: FrameTable
    frames: Any
    label: NDArray[Any]
    groups: IntArray

    @classmethod
    def load(
        cls, table: FrameTable, label: NDArray[Any], groups: IntArray, device: str
    ) -> "BatchData":
        """Copy the frames to a device."""
        import torch

        frames = torch.from_numpy(table.frames).to(device)
        return cls(table, frames, label, groups)

    @property
    def device(self) -> Any:
        """The device that has the frames."""
        return self.frames.device

    def tensor(self, array: NDArray[Any]) -> Any:
        """Copy an array to the device."""
        import torch

        return torch.from_numpy(array).to(self.device)

    def classes(self, rows: IntArray) -> IntArray:
        """Return a class number for each of some rows, by which inner folds are balanced.

        If a row has several labels, its class is the rarest of them. Rows without labels are a
        class too. Labels that are (rows, outputs) give numbers without gaps.
        """
        label = self.label[rows]
        if label.ndim == 1:  # class numbers already
            return label
        rows_with_label = label.sum(axis=0)
        # How many rows have each label; more than any count for labels that a row does not have.
        counts = np.where(label, rows_with_label, len(label) + 1)
        rarest = counts.argmin(axis=1)
        rarest[~label.any(axis=1)] = label.shape[1]  # a number of its own: no label
        _, number = np.unique(rarest, return_inverse=True)  # without gaps
        return number

    def fingerprint(self, rows: IntArray) -> str:
        """Return a hash of everything about some rows that decides a training."""
        facts = {
            "lengths": self.table.lengths[rows].tolist(),
            "labels": self.label[rows].tolist(),
            "recordings": first_rows(self.groups[rows]).tolist(),
        }
        digest = sha256(repr(facts).encode())
        for row in rows.tolist():
            digest.update(self.table.row(row).tobytes())
        return digest.hexdigest()


def stack_sequences(sequences: Sequences, step: int = 1) -> FrameTable:
    """Put sequences (frames, dimensions) into one table; every `step` frames are averaged to one.

    The last frame of a sequence may be the mean of fewer.
    """
    parts = []
    for sequence in sequences:
        if step > 1:
            starts = np.arange(0, len(sequence), step)
            counts = np.diff(starts, append=len(sequence))
            sums = np.add.reduceat(sequence.astype(np.float64), starts)
            sequence = sums / counts[:, None]
        parts.append(sequence.astype(np.float32, copy=False))
    start = np.cumsum([0, *map(len, parts)])
    return FrameTable(np.concatenate(parts), start)


def check_sequences(sequences: Sequence[Any]) -> None:
    """Check that each row has a sequence of finite floats, (frames, dimensions)."""
    for row, sequence in enumerate(sequences):
        expected = f"sequence of row {row}: expected frames × dimensions"
        check_floats(sequence, 2, expected)
        dimensions = sequences[0].shape[1]
        if sequence.shape[1] != dimensions:
            raise InputError(
                f"{expected} with {dimensions} dimensions as in row 0, got "
                f"{sequence.shape[1]}; embed all segments again"
            )


def check_floats(value: Any, axes: int, expected: str) -> None:
    """Check that a value is a finite array of floats, not empty; `expected` begins the message."""
    array = np.asarray(value)
    fits = array.ndim == axes and array.size > 0
    if not fits or array.dtype.kind != "f":
        raise InputError(f"{expected}, of floats, got {array.shape} of {array.dtype}")
    if not np.isfinite(array).all():
        raise InputError(
            f"{expected}, finite, got NaN or infinity; leave its segment out"
        )


def frame_scaling(table: FrameTable, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return mean and factor to unit variance, by dimension, of all frames of some rows.

    A dimension that is constant in these rows gets the factor 0: its values elsewhere must not
    matter.
    """
    all_means, all_squares = table.moments
    means = all_means[rows]  # of each row's frames
    count = table.lengths[rows][:, None]
    total = count.sum()
    mean = (count * means).sum(axis=0) / total
    # Squares around the mean of all frames are the squares around the mean of each row, plus, for
    # each frame, the square of the distance between the two means.
    own_squares = all_squares[rows]
    squares = own_squares + count * np.square(means - mean)
    variance = squares.sum(axis=0) / total
    magnitude = np.maximum(np.abs(mean), 1e-30)
    precision = 1e-6 * magnitude  # float32 has no more digits
    varies = variance > np.square(precision)
    positive_variance = np.where(varies, variance, 1.0)  # no division by 0
    factor = 1.0 / np.sqrt(positive_variance)
    return mean, np.where(varies, factor, 0.0)


def padded_index(start: IntArray, lengths: IntArray) -> tuple[IntArray, BoolArray]:
    """Return the numbers of the frames that make a batch, (times, rows), and a mask of real ones.

    Row i has lengths[i] frames of a table, from start[i] on; shorter rows repeat their last frame,
    where the mask is false.
    """
    time = np.arange(lengths.max())[:, None]
    index = start + np.minimum(time, lengths - 1)
    return index, time < lengths


def random_batches(
    table: FrameTable, rows: IntArray, size: int, rng: np.random.Generator
) -> list[IntArray]:
    """Return all rows in random batches of rows of similar length, as padding costs time.

    Rows in random order are cut into parts of several batches, and each part is sorted by length.
    """
    batches = []
    for part in split_batches(rng.permutation(rows), size * SORTED_BATCHES):
        batches += sorted_batches(part, table.lengths[part], size)
    return [batches[number] for number in rng.permutation(len(batches))]


def sorted_batches(rows: IntArray, lengths: IntArray, size: int) -> list[IntArray]:
    """Return rows, of these lengths, in batches, the shortest first."""
    order = np.argsort(lengths, kind="stable")
    return split_batches(rows[order], size)


def split_batches(rows: NDArray[Any], size: int) -> list[NDArray[Any]]:
    """Cut rows into batches of a size; the last may be smaller."""
    return np.split(rows, np.arange(size, len(rows), size))


def assign_inner_folds(label: IntArray, groups: IntArray, count: int) -> IntArray:
    """Assign recordings to `count` folds so that each class is spread evenly; return rows' folds.

    `label` and `groups` are the class and the recording of each row. Recordings with the largest
    share of a class come first; each goes to the fold that has least of its classes so far.
    """
    recording = first_rows(groups)  # each recording is named by its first row
    counts = np.bincount(label)
    # The share of each class in each recording, at its first row. Other rows have no share.
    shares = np.zeros((len(label), len(counts)))
    np.add.at(shares, (recording, label), 1.0 / counts[label])
    largest = shares.max(axis=1)
    # Share of each class in each fold so far
    filled = np.zeros((count, shares.shape[1]))
    fold = np.zeros(len(label), np.int64)  # read at the first row of each recording
    for row in np.argsort(-largest, kind="stable"):  # other rows come last: no effect
        # Rounded, so that the order of sums does not decide. Of equal folds, the emptier one.
        overlap = np.round(filled @ shares[row], 12)
        fullness = 1e-6 * filled.sum(axis=1)
        chosen = np.argmin(overlap + fullness)
        fold[row] = chosen
        filled[chosen] += shares[row]
    return fold[recording]


def first_rows(groups: IntArray) -> IntArray:
    """Return for each row the first row of its recording, whatever numbers `groups` gives them."""
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    return first[inverse]


def held_out_rows(
    label: IntArray, groups: IntArray, count: int, number: int
) -> BoolArray:
    """Return a mask of the rows of inner fold `number` of `count`; the others keep all classes.

    `label` and `groups` are the class and the recording of each row. A class that only this fold
    has gives its first recording back to the others.
    """
    held_out = assign_inner_folds(label, groups, count) == number
    for missing in np.setdiff1d(label, label[~held_out]):
        first = np.argmax(label == missing)  # row
        recording = groups[first]
        held_out[groups == recording] = False
    return held_out


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


AERD_FRONT_END = FrontEnd(2.0**15, POVEY, 14.7274, 2.9366)
BEATS_FRONT_END = FrontEnd(2.0**15, POVEY, 15.41663, 6.55582)
AST_FRONT_END = FrontEnd(1.0, 1.0, -4.2677393, 4.5689974)


def log_mel(signal: Signal, front_end: FrontEnd = AERD_FRONT_END) -> Frames:
    """Return the log-mel frames of a signal at 16 kHz, (frames, 128), at least sixteen."""
    samples = pad_signal(signal.astype(np.float64)) * front_end.gain
    frames = sliding_window_view(samples, FRAME_SAMPLES)[::HOP_SAMPLES]
    window = np.hanning(FRAME_SAMPLES) ** front_end.window_power
    filters = _mel_filters().T
    logarithms = []
    for block in split_batches(frames, BLOCK_FRAMES):
        centred = block - block.mean(axis=1, keepdims=True)
        # The sample before each; the first one stands before itself.
        padded = np.pad(centred, ((0, 0), (1, 0)), "edge")
        previous = padded[:, :-1]
        emphasised = centred - PRE_EMPHASIS * previous
        spectrum = np.fft.rfft(emphasised * window, FFT_POINTS)
        power_of_points = np.square(np.abs(spectrum))
        power = power_of_points @ filters
        audible = np.maximum(power, MIN_POWER)
        logarithms.append(np.log(audible))
    levels = np.concatenate(logarithms)
    # Mean 0 and a deviation of ½, as the models expect
    scaled = (levels - front_end.mean) / (2.0 * front_end.deviation)
    return scaled.astype(np.float32)


def pad_signal(signal: Signal) -> Signal:
    """Append zeros to a signal that is shorter than one column."""
    missing = max(0, MIN_SAMPLES - len(signal))
    return np.pad(signal, (0, missing))


@cache
def _mel_filters() -> FloatArray:
    """Return the weight of each FFT point in each mel band, (bands, points), as Kaldi has it."""
    points_hz = np.arange(FFT_POINTS // 2 + 1) * RATE_HZ / FFT_POINTS
    points_and_ends = np.array([*points_hz, LOW_HZ, HIGH_HZ])
    mels = 1127.0 * np.log1p(points_and_ends / 700.0)
    *points, lowest, highest = mels
    # Band n is a triangle from edge n over edge n + 1 to edge n + 2.
    edges = np.linspace(lowest, highest, BANDS + 2)[:, None]
    left = edges[:-2]
    centre = edges[1:-1]
    right = edges[2:]
    rising = (points - left) / (centre - left)
    falling = (right - points) / (right - centre)
    triangles = np.minimum(rising, falling)  # below 0 outside the band
    filters = np.maximum(triangles, 0.0)
    filters[:, -1] = 0.0  # Kaldi leaves out the last point
    return filters


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
    """Cut rows into the fewest windows of at most 64 columns, of about the same length.

    `lengths` are the numbers of frames of all rows, `rows` the ones to cut.
    """
    crops = []
    for row in rows.tolist():
        columns = np.arange(lengths[row] // PATCH)
        window_count = math.ceil(len(columns) / MAX_COLUMNS)
        windows = np.array_split(columns, window_count)
        crops += [(row, window[0] * PATCH, len(window)) for window in windows]
    return Crops(*np.array(crops).T)  # row, first and columns of all crops


def random_crops(lengths: IntArray, rows: IntArray, rng: np.random.Generator) -> Crops:
    """Cut one part of at most 64 columns out of each row, at a random place.

    `lengths` are the numbers of frames of all rows, `rows` the ones to cut.
    """
    frames = lengths[rows]
    columns = np.minimum(frames // PATCH, MAX_COLUMNS)
    last = frames - columns * PATCH  # where a part can begin at the latest
    first = rng.integers(0, last, endpoint=True)
    return Crops(rows, first, columns)


def batch_crops(crops: Crops, size: int) -> list[Crops]:
    """Return crops in batches, the shortest first."""
    numbers = np.arange(len(crops.row))
    batches = sorted_batches(numbers, crops.columns, size)
    return [Crops(*(column[batch] for column in crops)) for batch in batches]
