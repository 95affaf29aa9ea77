"""Scores of a class → small integer codes that keep the order and the ties.

AP and AUROC of a sample need only comparisons with the anchors: the queries of the smaller side, positives or
negatives. So the distinct scores of the anchors, ascending, get the odd codes 1, 3, 5, …, every other score the even
code of the gap it lies in, and a score equal to an anchor's gets the anchor's code. Then score ≥ anchor exactly when
code ≥ code, and 15 bits hold what 64 did.
"""

import numpy as np

from callshot.fewshot.kernels import formula, inner, kernel

_32 = np.uint64(32)
_TOP = np.uint64(0x8000000000000000)
_ALL = np.uint64(0xFFFFFFFFFFFFFFFF)
_INDEX = np.uint64(0xFFFFFFFF)
_ZERO = np.uint64(0)


@formula
def order_bits(score):
    """Return 64 bits that compare, unsigned, as the scores do."""
    bits = np.float64(score + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    return bits ^ (_ALL if bits & _TOP != _ZERO else _TOP)


@inner
def radix_pass(source, target, shift, width, digits):
    """Sort stably by `width` bits; digits is scratch of 2^width + 1 counters."""
    mask = np.uint64((1 << width) - 1)
    digits[:] = 0
    for i in range(source.size):
        digits[np.int64((source[i] >> shift) & mask) + 1] += 1
    for d in range(digits.size - 1):
        digits[d + 1] += digits[d]
    for i in range(source.size):
        d = np.int64((source[i] >> shift) & mask)
        target[digits[d]] = source[i]
        digits[d] += 1


@inner
def shell_sort(part, scores):
    """Sort entries that share their upper bits by their scores; ties keep no order."""
    gap = 1
    while gap < part.size // 3:
        gap = 3 * gap + 1
    while gap >= 1:
        for i in range(gap, part.size):
            entry = part[i]
            score = scores[np.int64(entry & _INDEX)]
            j = i
            while j >= gap and scores[np.int64(part[j - gap] & _INDEX)] > score:
                part[j] = part[j - gap]
                j -= gap
            part[j] = entry
        gap //= 3


@kernel
def sort_scores(scores):
    """Return the order of the scores, ascending, in the lower 32 bits of each entry.

    Three radix passes over the upper bits (24 of them where there are few scores, or 32), then the rest by hand.
    """
    width = 8 if scores.size < 4096 else 11
    lowest = np.uint64(40 if width == 8 else 32)
    entries = np.empty(scores.size, np.uint64)
    spare = np.empty(scores.size, np.uint64)
    digits = np.empty((1 << width) + 1, np.int64)
    for i in range(scores.size):
        entries[i] = (order_bits(scores[i]) >> _32 << _32) | np.uint64(i)
    radix_pass(entries, spare, lowest, width, digits)
    radix_pass(spare, entries, lowest + np.uint64(width), width, digits)
    radix_pass(entries, spare, lowest + np.uint64(2 * width), width, digits)
    start = 0
    for i in range(1, spare.size + 1):
        if i == spare.size or spare[i] >> lowest != spare[start] >> lowest:
            if i - start > 1:
                shell_sort(spare[start:i], scores)
            start = i
    return spare


@kernel
def encode(order, scores, anchor, draws, codes):
    """Write the codes of scores (queries × draws, flat) from their order; return how many are tied, and how many of
    those are anchors'.

    A score is tied when another query of the fold has the same one; draws of one query never meet in a sample.
    """
    is_anchor = np.empty(scores.size, np.bool_)
    for q in range(anchor.size):
        for r in range(draws):
            is_anchor[q * draws + r] = anchor[q]
    tied, anchors_tied, level, start, size = 0, 0, 0, 0, order.size
    while start < size:
        entry = np.int64(order[start] & _INDEX)
        upper, stop, anchored = order[start] >> _32, start + 1, np.int64(is_anchor[entry])
        several = False
        while (
            stop < size
            and order[stop] >> _32 == upper
            and scores[np.int64(order[stop] & _INDEX)] == scores[entry]
        ):
            other = np.int64(order[stop] & _INDEX)
            several |= other // draws != entry // draws
            anchored += is_anchor[other]
            stop += 1
        for i in range(start, stop):
            codes[np.int64(order[i] & _INDEX)] = level + (anchored > 0)
        if several:
            tied += stop - start
            anchors_tied += anchored
        level += 2 * (anchored > 0)
        start = stop
    return tied, anchors_tied


@kernel
def ranking_metrics(scores, relevant):
    """Return AP, AUROC (NaN without a negative) and the number of tied positives of one ranking, best first."""
    order = sort_scores(scores)
    positives = 0
    for i in range(relevant.size):
        positives += relevant[i]
    precision, above, hits, tied = 0.0, 0.0, 0, 0
    stop = order.size
    while stop > 0:
        score, start = scores[np.int64(order[stop - 1] & _INDEX)], stop
        new = 0
        while start > 0 and scores[np.int64(order[start - 1] & _INDEX)] == score:
            start -= 1
            new += relevant[np.int64(order[start] & _INDEX)]
        misses = order.size - stop - hits  # negatives strictly above
        hits += new
        precision += new * (hits / (order.size - start))
        above += new * (misses + 0.5 * (stop - start - new))
        tied += new if stop - start > 1 else 0
        stop = start
    pairs = np.float64(positives) * (order.size - positives)
    return precision / positives, 1.0 - above / pairs if pairs > 0 else np.nan, tied


@inner
def metrics_by_positives(scores, anchor):
    """Return what `ranking_metrics` does, by counting what each positive has above it: quick where they are few."""
    n, m = scores.size, anchor.size
    own = scores[anchor]
    precision, above, tied = 0.0, 0.0, 0
    for j in range(m):
        t = own[j]
        less, most, less_in, most_in = 0, 0, 0, 0
        for i in range(n):
            less += scores[i] < t
            most += scores[i] <= t
        for i in range(m):
            less_in += own[i] < t
            most_in += own[i] <= t
        precision += (m - less_in) / (n - less)
        above += 0.5 * ((n - less - (m - less_in)) + (n - most - (m - most_in)))
        tied += most - less > 1
    pairs = np.float64(m) * (n - m)
    return precision / m, 1.0 - above / pairs if pairs > 0 else np.nan, tied
