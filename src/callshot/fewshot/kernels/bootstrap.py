"""Codes → AP and AUROC of every bootstrap sample, for one class of one fold.

A lane is a bootstrap sample: 256 of them go through the same additions side by side. For every anchor t the number A
of queries with code ≥ t and the number S of anchors with code ≥ t are counted; ties also need the counts of > t.

- Anchors are the positives: AP is the mean of S / A; the negatives above each give AUROC.
- Anchors are the negatives: with A_j the place of the j-th of them in the whole ranking, summing T / (T + j) over the
  positives between two of them gives harmonic numbers, and by parts
      P · AP = P − M · H(n) + Σ_j [H(A_j) + (S_j − 1) / A_j],      M negatives, P positives, n = M + P,
  which needs no order of the negatives. So a class costs its smaller side, never its larger.
"""

from typing import Any

import numpy as np
from numba import types
from numba.extending import overload

from callshot.fewshot.kernels import inlined, kernel

LANES = 256


def _counting(kind: Any, shift: int) -> Any:
    """Return `count_below` for codes of one width: the sign bit of a difference is the comparison."""

    def count(column, anchors, offset, less):  # type: ignore[no-untyped-def]
        rows = column.shape[0]
        whole = rows - rows % 8
        less[:] = 0
        for q in range(0, whole, 8):
            a, b, c, d = column[q], column[q + 1], column[q + 2], column[q + 3]
            e, f, g, h = column[q + 4], column[q + 5], column[q + 6], column[q + 7]
            for j in range(anchors.shape[0]):
                t, out = anchors[j], less[j]
                for i in range(LANES):
                    u = kind(t[i] + offset)
                    x = kind(a[i] - u) >> shift
                    x += kind(b[i] - u) >> shift
                    x += kind(c[i] - u) >> shift
                    x += kind(d[i] - u) >> shift
                    x += kind(e[i] - u) >> shift
                    x += kind(f[i] - u) >> shift
                    x += kind(g[i] - u) >> shift
                    x += kind(h[i] - u) >> shift
                    out[i] = kind(out[i] + x)
        for q in range(whole, rows):
            a = column[q]
            for j in range(anchors.shape[0]):
                t, out = anchors[j], less[j]
                for i in range(LANES):
                    out[i] = kind(out[i] + (kind(a[i] - kind(t[i] + offset)) >> shift))

    return count


def count_below(column: Any, anchors: Any, offset: int, less: Any) -> None:
    """Fill less[j, lane] with the number of rows of column below anchors[j] + offset, in every lane."""
    raise NotImplementedError("compiled code only")


@overload(count_below)
def _count_below(column, anchors, offset, less):  # type: ignore[no-untyped-def]
    return _counting(np.uint16, 15) if column.dtype == types.uint16 else _counting(np.uint32, 31)


@inlined
def add_positives(less, less_in, n, m, ap, auc):  # type: ignore[no-untyped-def]
    """Add, lane by lane, what each positive anchor says: its precision, and the negatives at or above it."""
    for j in range(m):
        for i in range(LANES):
            at, own = np.int32(n - less[j, i]), np.int32(m - less_in[j, i])
            ap[i] += np.float64(own) / np.float64(at)
            auc[i] += np.float64(at) - np.float64(own)


@inlined
def split_ties(less, less_in, more, more_in, m, auc):  # type: ignore[no-untyped-def]
    """Give back half of every negative that ties with a positive anchor."""
    for j in range(m):
        for i in range(LANES):
            equal = np.int32(more[j, i] - less[j, i]) - np.int32(more_in[j, i] - less_in[j, i])
            auc[i] -= 0.5 * np.float64(equal)


@inlined
def add_negatives(less, less_in, n, m, harmonic, ap, auc):  # type: ignore[no-untyped-def]
    """Add, lane by lane, what each negative anchor says: harmonic numbers, and the positives above it."""
    for j in range(m):
        for i in range(LANES):
            at, own = np.int32(n - less[j, i]), np.int32(m - less_in[j, i])
            ap[i] += harmonic[at] + np.float64(own - 1) / np.float64(at)
            auc[i] += np.float64(at) - np.float64(own)


@kernel
def sample_class(codes, draws, anchor, positive, tied, picks, harmonic, ap, auroc):  # type: ignore[no-untyped-def]
    """Fill ap[b] and auroc[b] of one class in one fold; AUROC is NaN where no query is negative.

    `codes` (queries × draws, flat) as `ranks.encode` wrote them, `picks` (queries, samples), `anchor` the numbers of
    the anchor queries, `positive` whether those are the positives (they must be where anything is tied), `harmonic`
    H(0) … H(queries).
    """
    n, m, samples = picks.shape[0], anchor.size, picks.shape[1]
    column = np.zeros((n, LANES), codes.dtype)
    anchors = np.empty((m, LANES), codes.dtype)
    less, less_in = np.empty((m, LANES), codes.dtype), np.empty((m, LANES), codes.dtype)
    more, more_in = np.empty((m, LANES), codes.dtype), np.empty((m, LANES), codes.dtype)
    precision, above = np.empty(LANES), np.empty(LANES)
    pairs = np.float64(m) * (n - m)
    for start in range(0, samples, LANES):
        last = min(LANES, samples - start)
        for q in range(n):
            own, chosen, lane = codes[q * draws : (q + 1) * draws], picks[q, start : start + last], column[q]
            for i in range(last):
                lane[i] = own[chosen[i]]
        for j in range(m):
            anchors[j] = column[anchor[j]]
        count_below(column, anchors, 0, less)
        count_below(anchors, anchors, 0, less_in)
        precision[:], above[:] = 0.0, 0.0
        if positive:
            add_positives(less, less_in, n, m, precision, above)
        else:
            add_negatives(less, less_in, n, m, harmonic, precision, above)
        if tied:
            count_below(column, anchors, 1, more)
            count_below(anchors, anchors, 1, more_in)
            split_ties(less, less_in, more, more_in, m, above)
        for i in range(last):
            if positive:
                ap[start + i] = precision[i] / m
                auroc[start + i] = 1.0 - above[i] / pairs if pairs > 0 else np.nan
            else:
                ap[start + i] = (n - m - m * harmonic[n] + precision[i]) / (n - m)
                auroc[start + i] = above[i] / pairs if pairs > 0 else np.nan


@kernel
def sample_hits(hits, picks, queries, out):  # type: ignore[no-untyped-def]
    """Fill out[b] with the number of the queries whose picked draw was a hit; hits is (all queries, draws)."""
    out[:] = 0.0
    for j in range(queries.size):
        q = queries[j]
        for b in range(out.size):
            out[b] += hits[q, picks[q, b]]
