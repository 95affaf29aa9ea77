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
    for n, size in enumerate(sizes):
        rows = slice(episodes.class_start[n], episodes.class_start[n + 1])
        vectors, place = episodes.distinct_at(rows)
        own = block[start[n] : start[n + 1]].reshape(size, size)
        own[:] = expand(vectors @ vectors.T, place, place)
        np.fill_diagonal(own, episodes.squares[rows])
    return Gram(block, start)


def expand(table: FloatArray, of_left: IntArray, of_right: IntArray) -> FloatArray:
    """Go back from products of distinct rows to those of all."""
    return np.asarray(table[np.ix_(of_left, of_right)])
