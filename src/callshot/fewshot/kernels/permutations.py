"""Labels that have changed places → supports of the classes that they make, and their a_n.

The classes of a permutation have their members anywhere in the table, so look-ups are by row of the
table, not by row inside a class. One support serves all queries of a fold: the innermost loops run
over the queries.
"""

from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import Array, kernel
from callshot.fewshot.kernels.draws import score_support
from callshot.fewshot.kernels.streams import draw_support, enter


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


@kernel
def score_members(exemplars, chosen, shots, out):
    """Fill out[d, shot, n, q] with a_n of query q by the first exemplars of chosen[d, n]."""
    rule, vectors, lengths, matrix, products = exemplars
    draws, _, classes, _ = out.shape
    steps = chosen.shape[2]
    share = np.ones(steps)
    sums = np.empty(max(steps, vectors.shape[1]))
    for d in range(draws):
        for n in range(classes):
            score_support(
                rule,
                vectors,
                lengths,
                matrix,
                products,
                chosen[d, n],
                share,
                steps,
                shots,
                sums,
                out[d, :, n],
            )
