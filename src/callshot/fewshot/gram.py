"""Vectors → what scoring looks up: one matrix per class, of products or distances, and each fold's queries' products.

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
    """The matrix of each class, flat, class n from start[n]; empty where a rule needs none."""

    block: FloatArray
    start: IntArray


def gram_bytes(episodes: Episodes) -> int:
    """Return the memory that the blocks and the largest fold's products take."""
    sizes = np.diff(episodes.class_start)
    queries = np.bincount(episodes.fold[episodes.fold >= 0]).max()
    return int(8 * (np.sum(sizes**2) + 2 * queries * len(episodes.fold)))


def build_gram(episodes: Episodes, rule: str = "mean") -> Gram:
    """Multiply out each class with itself, or measure it, or leave it, as the rule needs it."""
    if rule == "nearest":
        return Gram(np.empty(0), np.zeros_like(episodes.class_start))
    sizes = np.diff(episodes.class_start)
    start = np.concatenate([[0], np.cumsum(sizes**2)])
    block = np.empty(start[-1])
    fill = _distances if rule == "medoid" else _products
    for n, size in enumerate(sizes):
        rows = slice(episodes.class_start[n], episodes.class_start[n + 1])
        fill(episodes, rows, block[start[n] : start[n + 1]].reshape(size, size))
    return Gram(block, start)


def _products(episodes: Episodes, rows: slice, own: FloatArray) -> None:
    vectors, place = episodes.distinct_at(rows)
    own[:] = expand(vectors @ vectors.T, place, place)
    np.fill_diagonal(own, episodes.squares[rows])


def _distances(episodes: Episodes, rows: slice, own: FloatArray) -> None:
    """Fill in distances by products; those of equal vectors are 0, whatever the last digits of the products."""
    vectors, place = episodes.distinct_at(rows)
    squares = np.einsum("rd,rd->r", vectors, vectors)
    table = vectors @ vectors.T
    np.multiply(table, -2.0, out=table)
    table += squares[:, None] + squares
    np.fill_diagonal(table, 0.0)
    own[:] = expand(np.sqrt(np.maximum(table, 0.0)), place, place)


def expand(table: FloatArray, of_left: IntArray, of_right: IntArray) -> FloatArray:
    """Go back from products of distinct rows to those of all."""
    return np.asarray(table[np.ix_(of_left, of_right)])
