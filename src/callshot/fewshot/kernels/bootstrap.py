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
from numpy.typing import NDArray

from callshot.fewshot.kernels import Function, inner, kernel
from callshot.fewshot.kernels.ranks import ranking_metrics

LANES = 256


@inner
def add_up(counts, n, positive, harmonic, ap, auc):
    """Add, lane by lane, what each anchor says: precision or harmonic numbers, and how many of the others are above."""
    less, inside = counts[0], counts[1]
    m = less.shape[0]
    for j in range(m):
        if positive:
            for i in range(LANES):
                at, own = (
                    np.float64(n - np.int32(less[j, i])),
                    np.float64(m - np.int32(inside[j, i])),
                )
                ap[i] += own / at
                auc[i] += at - own
        else:
            for i in range(LANES):
                at, own = np.int32(n - less[j, i]), np.float64(m - np.int32(inside[j, i]))
                ap[i] += harmonic[at] + (own - 1.0) / np.float64(at)
                auc[i] += np.float64(at) - own


@inner
def split_ties(counts, auc):
    """Give back half of every negative that ties with a positive anchor."""
    for j in range(counts.shape[1]):
        for i in range(LANES):
            equal = (
                np.int64(counts[2, j, i])
                - counts[0, j, i]
                - (np.int64(counts[3, j, i]) - counts[1, j, i])
            )
            auc[i] -= 0.5 * np.float64(equal)


def _sampler(kind: Any, shift: int) -> Function:
    """Return the kernel for codes of one width: the sign bit of a difference is the comparison."""

    def sample_class(codes, draws, anchor, positive, tied, picks, harmonic, ap, auroc):
        n, m, samples = picks.shape[0], anchor.size, picks.shape[1]
        table = np.empty((n + m, LANES), kind)  # the queries, and after them the anchors once more
        counts = np.empty(
            (4, m, LANES), kind
        )  # rows and anchors below each anchor, and not above it
        precision, above = np.empty(LANES), np.empty(LANES)
        pairs = np.float64(m) * (n - m)
        for start in range(0, samples, LANES):
            last = min(LANES, samples - start)
            for q in range(n):
                own, chosen, lane = (
                    codes[q * draws : (q + 1) * draws],
                    picks[q, start : start + last],
                    table[q],
                )
                for i in range(last):
                    lane[i] = own[chosen[i]]
            for j in range(m):
                for i in range(LANES):
                    table[n + j, i] = table[anchor[j], i]
            for step in range(4 if tied else 2):
                offset, less = step // 2, counts[step]
                top, stop = (n, n + m) if step % 2 == 1 else (0, n)
                whole = stop - (stop - top) % 8
                for j in range(m):
                    for i in range(LANES):
                        less[j, i] = 0
                for q in range(top, whole, 8):
                    a, b, c, d = table[q], table[q + 1], table[q + 2], table[q + 3]
                    e, f, g, h = table[q + 4], table[q + 5], table[q + 6], table[q + 7]
                    for j in range(m):
                        t, out = table[n + j], less[j]
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
                for q in range(whole, stop):
                    a = table[q]
                    for j in range(m):
                        t, out = table[n + j], less[j]
                        for i in range(LANES):
                            out[i] = kind(out[i] + (kind(a[i] - kind(t[i] + offset)) >> shift))
            for i in range(LANES):
                precision[i], above[i] = 0.0, 0.0
            add_up(counts, n, positive, harmonic, precision, above)
            if tied:
                split_ties(counts, above)
            for i in range(last):
                if positive:
                    ap[start + i] = precision[i] / m
                    auroc[start + i] = 1.0 - above[i] / pairs if pairs > 0 else np.nan
                else:
                    ap[start + i] = (n - m - m * harmonic[n] + precision[i]) / (n - m)
                    auroc[start + i] = above[i] / pairs if pairs > 0 else np.nan

    return kernel(sample_class)


_SAMPLERS = {
    np.dtype(np.uint16): _sampler(np.uint16, 15),
    np.dtype(np.uint32): _sampler(np.uint32, 31),
}


def sample_class(
    codes: NDArray[Any],
    draws: int,
    anchor: Any,
    positive: bool,
    tied: bool,
    picks: Any,
    harmonic: Any,
    ap: Any,
    auroc: Any,
) -> None:
    """Fill ap[b] and auroc[b] of one class in one fold; AUROC is NaN where no query is negative.

    `codes` (queries × draws, flat) as `ranks.encode` wrote them, `picks` (queries, samples), `anchor` the numbers of
    the anchor queries, `positive` whether those are the positives (they must be where anything is tied), `harmonic`
    H(0) … H(queries).
    """
    _SAMPLERS[codes.dtype](codes, draws, anchor, positive, tied, picks, harmonic, ap, auroc)


@kernel
def sample_sorted(scores, draws, relevant, picks, ap, auroc):
    """Fill what `sample_class` does by sorting each sample: quick where either side is large. Scores are flat."""
    sample = np.empty(picks.shape[0])
    for b in range(ap.size):
        for q in range(sample.size):
            sample[q] = scores[q * draws + np.int64(picks[q, b])]
        ap[b], auroc[b], _ = ranking_metrics(sample, relevant)


@kernel
def sample_hits(hits, picks, queries, out):
    """Fill out[b] with the number of the queries whose picked draw was a hit; hits is (all queries, draws)."""
    out[:] = 0.0
    for j in range(queries.size):
        q = queries[j]
        for b in range(out.size):
            out[b] += hits[q, picks[q, b]]
