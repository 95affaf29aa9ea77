"""Sequences of segments → what a recurrent network is fed: frames in one table, their scale, batches, inner folds.

Arrays only. A row is a segment; its frames are rows start[i] … start[i + 1] of one table, so that a batch is one
gather. Rows of like lengths are put together; shorter ones are filled up behind, where nothing that counts comes after.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.records import FloatArray, IntArray

SORTED_TOGETHER = 8  # batches whose rows are put in the order of their lengths
Frames = NDArray[np.float32]


@dataclass(frozen=True)
class Table:
    """The frames of all rows, (frames, dimensions), and where each row's begin."""

    frames: Frames
    start: IntArray

    @cached_property
    def lengths(self) -> IntArray:
        """The number of frames of each row."""
        return np.diff(self.start)

    @cached_property
    def moments(self) -> tuple[FloatArray, FloatArray]:
        """The mean of each row's frames, and their summed squares around it: (rows, dimensions) both."""
        moments = [
            _moments(self.frames[a:b]) for a, b in zip(self.start[:-1], self.start[1:], strict=True)
        ]
        return np.array([mean for mean, _ in moments]), np.array(
            [squares for _, squares in moments]
        )

    @cached_property
    def hashes(self) -> tuple[str, ...]:
        """A hash of each row's frames and their number."""
        spans = zip(self.start[:-1], self.start[1:], strict=True)
        return tuple(
            sha256(b"%d " % (b - a) + self.frames[a:b].astype("<f4").tobytes()).hexdigest()
            for a, b in spans
        )


def lay_out(sequences: Sequence[NDArray[np.floating[Any]] | None], step: int = 1) -> Table:
    """Put them into one table; frames are averaged in runs of `step`, the last one shorter.

    >>> lay_out([np.array([[1.0], [3.0], [5.0]]), np.array([[7.0]])], step=2).frames.ravel()
    array([2., 5., 7.], dtype=float32)
    """
    parts = [_merge(np.asarray(sequence), step) for sequence in sequences]
    lengths = [len(part) for part in parts]
    return Table(np.concatenate(parts), np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64))


def refuse_sequences(sequences: Sequence[Any]) -> None:
    """Refuse rows without a sequence, and sequences that are empty, not finite, or of several dimensions."""
    for row, sequence in enumerate(sequences):
        _refuse_sequence(row, sequence, sequences[0])


def _refuse_sequence(row: int, found: Any, first: Any) -> None:
    wanted = f"sequence of row {row}: wanted frames × dimensions"
    if found is None:
        raise InputError(f"{wanted}, found none; embed its segment again with --sequence")
    if (
        not isinstance(found, np.ndarray)
        or found.ndim != 2
        or not np.issubdtype(found.dtype, np.floating)
    ):
        raise InputError(
            f"{wanted} of floats, found {np.shape(found)} of {getattr(found, 'dtype', type(found).__name__)}"
        )
    if found.size == 0:
        raise InputError(
            f"{wanted}, one frame at least, found shape {found.shape}; leave its segment out"
        )
    if found.shape[1] != first.shape[1]:
        raise InputError(
            f"{wanted[:-10]}{first.shape[1]} dimensions as before it, found {found.shape[1]}; embed all anew"
        )
    if not (np.abs(found) < np.finfo(np.float32).max).all():  # NaN too
        raise InputError(f"{wanted}, finite, found NaN or infinity; leave its segment out")


def _merge(sequence: NDArray[np.floating[Any]], step: int) -> Frames:
    if step == 1:
        return sequence.astype(np.float32, copy=False)
    starts = np.arange(0, len(sequence), step)
    counts = np.diff([*starts, len(sequence)])[:, None]
    return np.asarray(np.add.reduceat(sequence.astype(np.float64), starts) / counts, np.float32)


def _moments(frames: Frames) -> tuple[FloatArray, FloatArray]:
    mean = frames.mean(axis=0, dtype=np.float64)
    return mean, np.square(frames - mean).sum(axis=0)


def frame_scale(table: Table, rows: IntArray) -> tuple[FloatArray, FloatArray]:
    """Return the mean of all frames of some rows, and what to multiply by for unit variance.

    A dimension that does not move in these rows is multiplied by 0: what it does elsewhere must not matter.
    """
    means, squares = (moment[rows] for moment in table.moments)
    count = table.lengths[rows][:, None]
    mean = (count * means).sum(axis=0) / count.sum()
    variance = (squares + count * np.square(means - mean)).sum(axis=0) / count.sum()
    moves = variance > np.square(
        1e-6 * np.maximum(np.abs(mean), 1e-30)
    )  # float32 has no more digits
    return mean, np.where(moves, 1.0 / np.sqrt(np.where(moves, variance, 1.0)), 0.0)


def line_up(table: Table, rows: IntArray) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the places of some rows' frames, (times, rows), and which are there: a row that is over repeats its last.

    >>> table = lay_out([np.array([[1.0]]), np.array([[2.0], [3.0]])])
    >>> places, there = line_up(table, np.array([0, 1]))
    >>> table.frames[places, 0].tolist(), there.tolist()
    ([[1.0, 2.0], [1.0, 3.0]], [[True, True], [False, True]])
    """
    lengths = table.lengths[rows]
    time = np.arange(lengths.max())[:, None]
    return table.start[rows] + np.minimum(time, lengths - 1), time < lengths


def deal_batches(
    table: Table, rows: IntArray, size: int, rng: np.random.Generator
) -> Iterator[IntArray]:
    """Yield all rows, in batches by chance, those of some batches sorted by length: a batch lasts as its longest."""
    mixed = rng.permutation(rows)
    runs = [
        mixed[at : at + size * SORTED_TOGETHER]
        for at in range(0, len(mixed), size * SORTED_TOGETHER)
    ]
    batches = [batch for run in runs for batch in in_batches(table, run, size)]
    return (batches[n] for n in rng.permutation(len(batches)))


def in_batches(table: Table, rows: IntArray, size: int) -> Iterator[IntArray]:
    """Yield rows in batches, shortest sequences first."""
    ordered = rows[np.argsort(table.lengths[rows], kind="stable")]
    return (ordered[at : at + size] for at in range(0, len(ordered), size))


def inner_folds(label: IntArray, groups: IntArray, count: int) -> IntArray:
    """Deal rows into folds, recordings whole, each class spread as evenly as a greedy walk finds; largest first.

    >>> inner_folds(np.array([0, 0, 0, 1, 1]), np.array([7, 7, 8, 9, 4]), 2).tolist()
    [0, 0, 1, 1, 0]
    """
    _, first, inverse = np.unique(groups, return_index=True, return_inverse=True)
    group = np.argsort(np.argsort(first))[
        inverse
    ]  # numbered as they come, so that no number of theirs matters
    shares = np.zeros((len(first), int(label.max()) + 1))
    np.add.at(shares, (group, label), 1.0 / np.bincount(label)[label])
    filled, fold = np.zeros((count, shares.shape[1])), np.zeros(len(first), np.int64)
    for number in np.argsort(-shares.max(axis=1), kind="stable"):
        fold[number] = np.argmin(np.round(filled @ shares[number], 12) + 1e-6 * filled.sum(axis=1))
        filled[fold[number]] += shares[number]
    return np.asarray(fold[group])


def hold_out(label: IntArray, groups: IntArray, count: int, number: int) -> NDArray[np.bool_]:
    """Say which rows an inner fold holds out; a recording stays in training where a class would be left without one."""
    held = np.asarray(inner_folds(label, groups, count) == number)
    for missing in np.setdiff1d(label, label[~held]):
        held[groups == groups[np.flatnonzero(label == missing)[0]]] = False
    return held
