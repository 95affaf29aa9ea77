"""Support sets of its own for every query → scores, decisions and hits, a fold's queries at a time."""

import numpy as np

from callshot.fewshot.kernels import kernel
from callshot.fewshot.kernels.scores import log_odds, softmax
from callshot.fewshot.kernels.streams import enter
from callshot.fewshot.kernels.supports import score_by_gram, score_directly


@kernel
def finish_query(a, literal, relevant, label, q, work, part, out, hits, decisions):  # type: ignore[no-untyped-def]
    """Turn a[shot, n, r] of one query into scores out[shot, n, q, r], hits[shot, q, r] and decisions."""
    for s in range(a.shape[0]):
        if literal:
            softmax(a[s], work, part)
        else:
            log_odds(a[s], work, part)
        out[s, :, q, :] = a[s]
        for r in range(a.shape[2]):
            decided = np.int64(work[2, r])
            hit = relevant[decided]
            hits[s, q, r] = hit
            decisions[s, decided if hit else label, decided] += 1


@kernel
def queries_by_gram(first, last, base, query_key, class_key, cross, block, block_start, class_start, pool, pool_start, shots, distinct, literal, relevant, label, out, hits, decisions):  # type: ignore[no-untyped-def]
    """Score the queries first … last − 1 of a fold; see `supports.score_by_gram`, `finish_query` for the shapes."""
    a = np.empty((out.shape[0], out.shape[1], out.shape[3]))
    work, part = np.empty((5, a.shape[2])), np.empty(a.shape[1:])
    scratch = pool.copy()
    for q in range(first, last):
        stream = enter(base, query_key[q])
        score_by_gram(stream, class_key, cross[q], block, block_start, class_start, scratch, pool_start, shots, distinct, a)
        finish_query(a, literal, relevant[:, q], label[q], q, work, part, out, hits, decisions)


@kernel
def queries_directly(first, last, base, query_key, class_key, query, vectors, norms, class_start, pool, pool_start, shots, distinct, literal, relevant, label, out, hits, decisions):  # type: ignore[no-untyped-def]
    """Do what `queries_by_gram` does from the vectors themselves."""
    a = np.empty((out.shape[0], out.shape[1], out.shape[3]))
    work, part = np.empty((5, a.shape[2])), np.empty(a.shape[1:])
    scratch = pool.copy()
    for q in range(first, last):
        stream = enter(base, query_key[q])
        score_directly(stream, class_key, query[q], vectors, norms, class_start, scratch, pool_start, shots, distinct, a)
        finish_query(a, literal, relevant[:, q], label[q], q, work, part, out, hits, decisions)
