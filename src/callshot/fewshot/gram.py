"""Vectors → the matrices that scoring looks up: one per class, and one of each fold's queries.

Products across classes are needed for queries only, a fold at a time, so the Gram matrix is never
whole. Where even its blocks exceed the memory limit, the kernels read the vectors directly.

BLAS may give equal rows different last digits, depending on their place in the matrix, which would
break their ties: each distinct vector is multiplied once.
"""

import numpy as np

from callshot.fewshot.episodes import Episodes
from callshot.records import FloatArray, IntArray


def gram_bytes(episodes: Episodes) -> int:
    """Return the memory that the blocks and the largest fold's products take."""
    sizes = np.diff(episodes.class_start)
    queries = np.bincount(episodes.fold[episodes.fold >= 0]).max()
    return int(8 * (np.sum(sizes**2) + 2 * queries * len(episodes.fold)))


def class_matrices(episodes: Episodes, rule: str) -> tuple[FloatArray, IntArray]:
    """Return the products or distances inside each class, flat, and where each class begins."""
    if rule == "nearest":
        return no_matrices(episodes)
    fill = _fill_distances if rule == "medoid" else _fill_products
    sizes = np.diff(episodes.class_start)
    start = np.concatenate([[0], np.cumsum(sizes**2)])
    block = np.empty(start[-1])
    for n, size in enumerate(sizes):
        rows = slice(episodes.class_start[n], episodes.class_start[n + 1])
        fill(episodes, rows, block[start[n] : start[n + 1]].reshape(size, size))
    return block, start


def no_matrices(episodes: Episodes) -> tuple[FloatArray, IntArray]:
    """Return empty matrices, for rules without them and for scoring from the vectors."""
    return np.empty(0), np.zeros_like(episodes.class_start)


def _fill_products(episodes: Episodes, rows: slice, matrix: FloatArray) -> None:
    vectors, place = episodes.distinct_at(rows)
    matrix[:] = expand(vectors @ vectors.T, place, place)
    np.fill_diagonal(matrix, episodes.squares[rows])


def _fill_distances(episodes: Episodes, rows: slice, matrix: FloatArray) -> None:
    """Compute distances by products; those of equal vectors are 0, whatever their last digits."""
    vectors, place = episodes.distinct_at(rows)
    squares = np.einsum("rd,rd->r", vectors, vectors)
    table = vectors @ vectors.T
    np.multiply(table, -2.0, out=table)
    table += squares[:, None] + squares
    np.fill_diagonal(table, 0.0)
    matrix[:] = expand(np.sqrt(np.maximum(table, 0.0)), place, place)


def expand(table: FloatArray, left: IntArray, right: IntArray) -> FloatArray:
    """Return the products of all rows from those of distinct rows."""
    return np.asarray(table[np.ix_(left, right)])
