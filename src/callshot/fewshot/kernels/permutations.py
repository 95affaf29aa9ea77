"""Labels that have changed places → supports of the classes that they make, and their a_n.

The classes of a permutation have their members anywhere in the table, so look-ups are by row of the
table, not by row inside a class. One support serves all queries of a fold: the innermost loops run
over the queries.
"""

from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import Array, inner, kernel
from callshot.fewshot.kernels.streams import draw_support, enter
from callshot.fewshot.kernels.supports import (
    COSINE,
    MEDOID,
    NEAREST,
    exemplar_evidence,
    fill_medoids,
    fill_squares,
    fill_squares_directly,
    mean_evidence,
)


class Exemplars(NamedTuple):
    """The rows that supports are made of, and what a rule looks up about them.

    `matrix` holds their products, or for the medoid their distances; where it is empty, the kernel
    computes these from the vectors. `products` are those of each row with the queries.
    """

    rule: int
    vectors: Array
    squares: Array
    matrix: Array
    products: Array


@kernel
def recording_words(base, recording_key, out):
    """Fill out[p, g] with a hash of (seed, permutation p, recording g)."""
    for p in range(out.shape[0]):
        stream = enter(base, np.uint64(p))
        for g in range(out.shape[1]):
            out[p, g] = enter(stream, recording_key[g])


@kernel
def draw_members(stream, class_key, distinct, members, class_start, outside, out):
    """Fill out[d, n, i] with the i-th exemplar of class n in draw d, as a row of the table.

    The members of class n are members[class_start[n] : class_start[n + 1]], as rows; `outside` says
    of each row whether it is outside the fold of the queries. No pool may be smaller than a draw.
    """
    draws, classes, size = out.shape
    chosen = np.empty(size, np.uint64)
    for n in range(classes):
        rows = members[class_start[n] : class_start[n + 1]]
        allowed = outside[rows]
        for d in range(draws):
            draw_stream = enter(stream, np.uint64(d))
            class_stream = enter(draw_stream, class_key[n])
            draw_support(class_stream, allowed, size, distinct, chosen)
            for i in range(size):
                out[d, n, i] = rows[chosen[i]]


@inner
def summarise_support(exemplars, support, shots, sums, squares, medoids):
    """Fill what a rule needs of the support alone at every shot: |Σx|², or the medoid."""
    rule, vectors, lengths, matrix, _ = exemplars
    steps = support.size
    if rule == MEDOID:
        fill_medoids(matrix, vectors, support, steps, shots, sums, medoids)
    elif rule != NEAREST and matrix.size > 0:
        fill_squares(matrix, support, steps, shots, squares)
    elif rule != NEAREST:
        fill_squares_directly(vectors, lengths, support, steps, shots, sums, squares)


@inner
def add_exemplar(product, square, nearest, totals):
    """Add one exemplar to the sum of products, or to the largest a_n, of every query."""
    if nearest:
        for q in range(totals.size):
            totals[q] = max(totals[q], exemplar_evidence(product[q], square))
    else:
        for q in range(totals.size):
            totals[q] += product[q]


@inner
def fill_evidence(totals, square, size, cosine, out):
    """Fill a_n of every query from the sums over a support."""
    for q in range(out.size):
        out[q] = mean_evidence(totals[q], square, size, cosine)


@kernel
def score_members(exemplars, chosen, shots, out):
    """Fill out[d, shot, n, q] with a_n of query q by the first exemplars of chosen[d, n]."""
    rule, vectors, lengths, _, products = exemplars
    draws, _, classes, queries = out.shape
    squares = np.empty(shots.size)
    medoids = np.empty(shots.size, np.uint64)
    sums = np.empty(max(chosen.shape[2], vectors.shape[1]))
    totals = np.empty(queries)
    by_exemplar = rule in (NEAREST, MEDOID)
    for d in range(draws):
        for n in range(classes):
            support = chosen[d, n]
            summarise_support(exemplars, support, shots, sums, squares, medoids)
            totals[:] = -np.inf if by_exemplar else 0.0
            first = 0
            for s in range(shots.size):
                candidates = support[first : shots[s]]
                if rule == MEDOID:
                    candidates = medoids[s : s + 1]
                    totals[:] = -np.inf
                for row in candidates:
                    add_exemplar(products[row], lengths[row], by_exemplar, totals)
                evidence = out[d, s, n]
                if by_exemplar:
                    evidence[:] = totals
                else:
                    fill_evidence(
                        totals, squares[s], shots[s], rule == COSINE, evidence
                    )
                first = shots[s]
