"""Support sets of its own for every query → a_n of a fold, and from the hard decisions hits and confusion."""

import numpy as np

from callshot.fewshot.kernels import kernel
from callshot.fewshot.kernels.streams import enter
from callshot.fewshot.kernels.supports import score_by_gram, score_directly


@kernel
def queries_by_gram(
    first,
    last,
    base,
    query_key,
    class_key,
    cross,
    block,
    block_start,
    class_start,
    pool,
    pool_start,
    shots,
    distinct,
    out,
):
    """Fill out[shot, n, q, r] with a_n of the queries first … last − 1 of a fold; see `supports.score_by_gram`."""
    scratch = pool.copy()
    for q in range(first, last):
        stream = enter(base, query_key[q])
        score_by_gram(
            stream,
            class_key,
            cross[q],
            block,
            block_start,
            class_start,
            scratch,
            pool_start,
            shots,
            distinct,
            out[:, :, q],
        )


@kernel
def queries_directly(
    first, last, base, query_key, class_key, query, vectors, norms, class_start, pool, pool_start, shots, distinct, out
):
    """Do what `queries_by_gram` does from the vectors themselves."""
    scratch = pool.copy()
    for q in range(first, last):
        stream = enter(base, query_key[q])
        score_directly(
            stream, class_key, query[q], vectors, norms, class_start, scratch, pool_start, shots, distinct, out[:, :, q]
        )


@kernel
def count_decisions(first, last, decided, relevant, label, hits, decisions):
    """Fill hits[shot, q, r] from decided[shot, q, r] for some queries, and add to decisions[shot, true, predicted].

    A decision for any of a query's labels is a hit, and counts as predicted, predicted.
    """
    for s in range(decided.shape[0]):
        for q in range(first, last):
            for r in range(decided.shape[2]):
                n = decided[s, q, r]
                hit = relevant[n, q]
                hits[s, q, r] = hit
                decisions[s, n if hit else np.uint16(label[q]), n] += 1
