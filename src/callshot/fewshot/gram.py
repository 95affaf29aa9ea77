"""Vectors → the products that scoring looks up: one Gram matrix per class, and each fold's queries against all rows.

Products across classes are needed for queries only, a fold at a time; so the matrix is never whole. Where even the
blocks would pass the memory that is allowed, there is none, and the kernels go to the vectors directly.

BLAS may give equal rows different last digits, by their place in the matrix, which would break their ties: each
distinct vector is multiplied once.
"""

from dataclasses import dataclass

import numpy as np

from callshot.fewshot.episodes import Episodes
from callshot.records import FloatArray, IntArray


@dataclass(frozen=True)
class Gram:
    """The Gram matrix of each class, flat, class n from start[n]."""

    block: FloatArray
    start: IntArray


def gram_bytes(episodes: Episodes) -> int:
    """Return the memory that the blocks and the largest fold's products take."""
    sizes = np.diff(episodes.class_start)
    queries = np.bincount(episodes.fold[episodes.fold >= 0]).max()
    return int(8 * (np.sum(sizes**2) + 2 * queries * len(episodes.fold)))


def build_gram(episodes: Episodes) -> Gram:
    """Multiply out each class with itself."""
    sizes = np.diff(episodes.class_start)
    start = np.concatenate([[0], np.cumsum(sizes**2)])
    block = np.empty(start[-1])
    squares = np.einsum("rd,rd->r", episodes.vectors, episodes.vectors)
    for n, size in enumerate(sizes):
        rows = slice(episodes.class_start[n], episodes.class_start[n + 1])
        own = block[start[n] : start[n + 1]].reshape(size, size)
        own[:] = products(episodes.vectors[rows], episodes.vectors[rows])
        np.fill_diagonal(own, squares[rows])
    return Gram(block, start)


def products(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply rows with rows, (left, right); equal rows have equal products."""
    (first, of_left), (second, of_right) = distinct_rows(left), distinct_rows(right)
    return expand(first @ second.T, of_left, of_right)


def expand(table: FloatArray, of_left: IntArray, of_right: IntArray) -> FloatArray:
    """Go back from products of distinct rows to those of all."""
    table = table[of_left] if len(table) < len(of_left) else table
    return np.ascontiguousarray(table[:, of_right] if table.shape[1] < len(of_right) else table)


def distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return each distinct row once, in the order of their first places, and which of these every row is."""
    places: dict[bytes, int] = {}
    index = np.array([places.setdefault(row.tobytes(), len(places)) for row in rows + 0.0], np.int64)  # −0.0 is 0.0
    if len(places) == len(rows):
        return rows, index
    return np.ascontiguousarray(rows[np.unique(index, return_index=True)[1]]), index
