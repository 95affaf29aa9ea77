"""Frames of rows → cuts of them, for training by chance and for scoring whole; cuts → batches of places. Arrays only.

A column is sixteen frames (160 ms) and eight patches high. A cut has 64 columns (10.24 s) at most. What is left over
after the last whole column is not used, as a convolution over patches would not.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.sequence_batches import Table
from callshot.baselines.spectrogram import BANDS, PATCH
from callshot.records import IntArray

COLUMNS = 64  # that a cut has at most
HEIGHT = BANDS // PATCH  # patches in a column
COLUMN_S = 0.16


@dataclass(frozen=True)
class Crops:
    """Pieces of rows: the row of each, its first frame there, and its columns."""

    row: IntArray
    first: IntArray
    columns: IntArray

    def __len__(self) -> int:
        return len(self.row)

    def take(self, chosen: IntArray) -> "Crops":
        """Return some of them."""
        return Crops(self.row[chosen], self.first[chosen], self.columns[chosen])


def cut_whole(lengths: IntArray, rows: IntArray) -> Crops:
    """Cut rows into windows that follow each other: as few as can be, and as even, so that none is a mere rest.

    >>> cut_whole(np.array([16 * 100 + 5]), np.array([0]))
    Cuts(row=array([0, 0]), first=array([  0, 800]), columns=array([50, 50]))
    """
    found = [
        (row, *window) for row in rows.tolist() for window in _windows(int(lengths[row]) // PATCH)
    ]
    table = np.array(found, np.int64).reshape(-1, 3)
    return Crops(table[:, 0], table[:, 1] * PATCH, table[:, 2])


def _windows(columns: int) -> list[tuple[int, int]]:
    parts = np.array_split(np.arange(columns), -(-columns // COLUMNS))
    return [(int(part[0]), len(part)) for part in parts]


def cut_by_chance(lengths: IntArray, rows: IntArray, rng: np.random.Generator) -> Crops:
    """Cut one piece from each row: as many columns as there are, 64 at most, from a frame by chance."""
    columns = np.minimum(lengths[rows] // PATCH, COLUMNS)
    first = rng.integers(0, lengths[rows] - columns * PATCH, endpoint=True)
    return Crops(rows, first, columns)


def in_even_batches(cuts: Crops, size: int) -> Sequence[Crops]:
    """Return cuts in batches, shortest first."""
    order = np.argsort(cuts.columns, kind="stable")
    return [cuts.take(order[at : at + size]) for at in range(0, len(order), size)]


def line_up_cuts(table: Table, cuts: Crops) -> tuple[IntArray, NDArray[np.bool_]]:
    """Return the places of the cuts' frames, (cuts, frames), and which columns are there; others repeat a frame."""
    column = np.arange(cuts.columns.max())
    frame = np.minimum(np.arange(len(column) * PATCH), cuts.columns[:, None] * PATCH - 1)
    return (table.start[cuts.row] + cuts.first)[:, None] + frame, column < cuts.columns[:, None]
