"""Codes → AP and AUROC of every bootstrap sample, for one class of one fold.

A lane is a bootstrap sample: 256 of them go through the same additions side by side. For every
anchor t the number A of queries with code ≥ t and the number S of anchors with code ≥ t are
counted; ties also need the counts of > t.

- Anchors are the positives: AP is the mean of S / A; the negatives above each give AUROC.
- Anchors are the negatives: with A_j the rank of the j-th of them among all queries, summing
  T / (T + j) over the positives between two of them gives harmonic numbers, and by parts
      P · AP = P − M · H(n) + Σ_j [H(A_j) + (S_j − 1) / A_j],   M negatives, P positives, n = M + P,
  which needs no order of the negatives. So a class costs its smaller side, never its larger.
"""

import numpy as np

from callshot.fewshot.kernels import inlined, inner, kernel
from callshot.fewshot.kernels.ranks import ranking_metrics

LANES = 256


@inner
def count_below(table, anchors, offset, counts):
    """Fill counts[j] with the number of rows below anchors[j] + offset, lane by lane."""
    rows = table.shape[0]
    whole = rows - rows % 4
    for j in range(anchors.shape[0]):
        for i in range(LANES):
            counts[j, i] = 0
    # Four rows for each time that a count is read and written.
    for q in range(0, whole, 4):
        for j in range(anchors.shape[0]):
            for i in range(LANES):
                t = anchors[j, i] + offset
                counts[j, i] += (
                    (table[q, i] < t)
                    + (table[q + 1, i] < t)
                    + (table[q + 2, i] < t)
                    + (table[q + 3, i] < t)
                )
    for q in range(whole, rows):
        for j in range(anchors.shape[0]):
            for i in range(LANES):
                counts[j, i] += table[q, i] < anchors[j, i] + offset


@inner
def add_anchors(below, anchors_below, queries, positive, harmonic, ap, above):
    """Add each anchor's share of AP, and how many queries of the other side are above it."""
    anchors = below.shape[0]
    for j in range(anchors):
        for i in range(LANES):
            place = np.int32(queries - np.int32(below[j, i]))
            rank = np.float64(place)
            same = np.float64(anchors - np.int32(anchors_below[j, i]))
            ap[i] += same / rank if positive else harmonic[place] + (same - 1.0) / rank
            above[i] += rank - same


@inner
def split_ties(counts, above):
    """Give back half of every negative that ties with a positive anchor."""
    for j in range(counts.shape[1]):
        for i in range(LANES):
            tied = np.int64(counts[2, j, i]) - counts[0, j, i]
            tied_anchors = np.int64(counts[3, j, i]) - counts[1, j, i]
            above[i] -= 0.5 * np.float64(tied - tied_anchors)


@inlined
def fill_table(code, draws, picks, start, stop, table):
    """Fill in the code of each query in the samples from start to stop, one sample a lane."""
    for q in range(table.shape[0]):
        query_code = code[q * draws : (q + 1) * draws]
        chosen = picks[q, start:stop]
        for i in range(chosen.size):
            table[q, i] = query_code[chosen[i]]


@inlined
def fill_anchors(table, anchor, anchors):
    """Fill in the codes of the anchors."""
    for j in range(anchor.size):
        for i in range(LANES):
            anchors[j, i] = table[anchor[j], i]


@inlined
def store_by_positives(total, above, positives, negatives, ap, auroc):
    """Fill AP and AUROC from the sums over positive anchors."""
    pairs = np.float64(positives) * negatives
    for i in range(ap.size):
        share = above[i] / pairs if pairs > 0 else np.nan
        ap[i] = total[i] / positives
        auroc[i] = 1.0 - share


@inlined
def store_by_negatives(total, above, negatives, positives, harmonic, ap, auroc):
    """Fill AP and AUROC from the sums over negative anchors."""
    pairs = np.float64(negatives) * positives
    last = harmonic[negatives + positives]
    for i in range(ap.size):
        ap[i] = (positives - negatives * last + total[i]) / positives
        auroc[i] = above[i] / pairs if pairs > 0 else np.nan


@kernel
def sample_class(codes, draws, picks, harmonic, ap, auroc):
    """Fill ap[b] and auroc[b] of one class in one fold; AUROC is NaN where no query is negative.

    `codes` as `ranks.Codes` has them, `picks` (queries, samples) the draw of each query in each
    sample, `harmonic` H(0) … H(queries). Anchors must be the positives where anything is tied.
    """
    code, anchor, positive, tied = codes
    n, samples = picks.shape
    m = anchor.size
    table = np.empty((n, LANES), code.dtype)
    anchors = np.empty((m, LANES), code.dtype)
    counts = np.empty((4, m, LANES), code.dtype)
    total = np.empty(LANES)
    above = np.empty(LANES)
    for start in range(0, samples, LANES):
        stop = min(start + LANES, samples)
        fill_table(code, draws, picks, start, stop, table)
        fill_anchors(table, anchor, anchors)
        count_below(table, anchors, 0, counts[0])
        count_below(anchors, anchors, 0, counts[1])
        for i in range(LANES):
            total[i] = 0.0
            above[i] = 0.0
        add_anchors(counts[0], counts[1], n, positive, harmonic, total, above)
        if tied:
            count_below(table, anchors, 1, counts[2])
            count_below(anchors, anchors, 1, counts[3])
            split_ties(counts, above)
        lane_ap = ap[start:stop]
        lane_auroc = auroc[start:stop]
        if positive:
            store_by_positives(total, above, m, n - m, lane_ap, lane_auroc)
        else:
            store_by_negatives(total, above, m, n - m, harmonic, lane_ap, lane_auroc)


@kernel
def sample_sorted(scores, draws, relevant, picks, ap, auroc):
    """Do what `sample_class` does by sorting each sample: quick where both sides are large."""
    sample = np.empty(picks.shape[0])
    for b in range(ap.size):
        for q in range(sample.size):
            sample[q] = scores[q * draws + np.int64(picks[q, b])]
        ap[b], auroc[b], _ = ranking_metrics(sample, relevant)


@kernel
def sample_hits(hits, picks, queries, out):
    """Fill out[b] with how many of the queries hit in sample b; hits is (all queries, draws)."""
    out[:] = 0.0
    for j in range(queries.size):
        q = queries[j]
        for b in range(out.size):
            out[b] += hits[q, picks[q, b]]
