"""Scores → AP, AUROC and ties of a ranking, or of every bootstrap sample of one class and fold.

AP and AUROC of a bootstrap sample need only comparisons with the anchors: the queries of the
smaller side, positives or negatives. So the distinct scores of the anchors, ascending, get the odd
codes 1, 3, 5, …, every other score the even code of the gap it lies in, and a score equal to an
anchor's gets the anchor's code. Then score ≥ anchor exactly when code ≥ code, and 15 bits hold what
64 did.

A lane is a bootstrap sample: 256 of them go through the same additions side by side. For every
anchor t the number A of queries with code ≥ t and the number S of anchors with code ≥ t are
counted; ties also need the counts of > t.

- Anchors are the positives: AP is the mean of S / A; the negatives above each give AUROC.
- Anchors are the negatives: with A_j the rank of the j-th of them among all queries, summing
  T / (T + j) over the positives between two of them gives harmonic numbers, and by parts
      P · AP = P − M · H(n) + Σ_j [H(A_j) + (S_j − 1) / A_j],   M negatives, P positives, n = M + P,
  which needs no order of the negatives. So a class costs its smaller side, never its larger.
"""

from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import Array, formula, inner, kernel

HALF = np.uint64(32)  # bits of half a word
TOP_BIT = np.uint64(0x8000000000000000)
ALL_BITS = np.uint64(0xFFFFFFFFFFFFFFFF)
INDEX = np.uint64(0xFFFFFFFF)  # bits of an entry that are its index
FEW = 64  # positives up to which counting is faster than sorting


class Truth(NamedTuple):
    """The true classes of the queries of a fold.

    `relevant` is (classes, queries), `label` the class of each query; the positives of class n are
    positives[start[n] : start[n + 1]].
    """

    relevant: Array
    label: Array
    positives: Array
    start: Array


class ClassTables(NamedTuple):
    """What is measured of each class in a fold: its ranking, and sums of weights of queries.

    `hits` are the queries with the class as their label and a decision for any of their labels,
    `correct` the right decisions for the class, `decided` all decisions for it.
    """

    ap: Array
    auroc: Array
    hits: Array
    correct: Array
    decided: Array


class FoldMetrics(NamedTuple):
    """The metrics of some draws of one fold; tables are (draws, shots, classes).

    `decisions` is (shots, true, predicted), `tied` (shots, classes): sums over draws.
    """

    tables: ClassTables
    decisions: Array
    tied: Array


@formula
def order_bits(score):
    """Return 64 bits that compare, unsigned, as the scores do.

    The bits of a negative float are all flipped, of another only the sign.
    """
    bits = np.float64(score + 0.0).view(np.uint64)  # −0.0 becomes 0.0
    return bits ^ (ALL_BITS if bits & TOP_BIT != np.uint64(0) else TOP_BIT)


@formula
def index_of(entry):
    """Return the index in the lower 32 bits of an entry."""
    return np.int64(entry & INDEX)


@inner
def radix_pass(source, target, shift, width, digits):
    """Sort `source` into `target`, stably, by the `width` bits from bit `shift` on: the digit.

    `digits` (2 ** width + 1) is scratch: first how many entries have each digit, counted one place
    further on, then at which place the next entry with the digit goes.
    """
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
def shell_sort(entries, scores):
    """Sort entries with equal upper bits by scores[index], in place."""
    gap = 1
    while gap < entries.size // 3:
        gap = 3 * gap + 1
    # Insertion sort of every gap-th entry, with smaller and smaller gaps.
    while gap >= 1:
        for i in range(gap, entries.size):
            entry = entries[i]
            score = scores[index_of(entry)]
            j = i
            while j >= gap and scores[index_of(entries[j - gap])] > score:
                entries[j] = entries[j - gap]
                j -= gap
            entries[j] = entry
        gap //= 3


@kernel
def sort_scores(scores):
    """Return one entry per score, in ascending order, with the index in its lower 32 bits.

    The upper 32 bits are the first bits of the score. Three radix passes sort by 24 of them, or by
    all where there are many scores; shell sort orders the entries that agree in these.
    """
    # Bits of a pass: with few scores, counting 2 ** 11 digits would take longer than shell sort.
    width = 8 if scores.size < 4096 else 11
    lowest = np.uint64(40 if width == 8 else 32)
    entries = np.empty(scores.size, np.uint64)
    spare = np.empty(scores.size, np.uint64)
    digits = np.empty((1 << width) + 1, np.int64)
    for i in range(scores.size):
        entries[i] = (order_bits(scores[i]) >> HALF << HALF) | np.uint64(i)
    for digit in range(3):
        radix_pass(entries, spare, lowest + np.uint64(digit * width), width, digits)
        unsorted = entries
        entries = spare
        spare = unsorted
    # Sort each run of entries that agree in the bits from `lowest` on.
    start = 0
    for i in range(1, entries.size + 1):
        if i == entries.size or entries[i] >> lowest != entries[start] >> lowest:
            if i - start > 1:
                shell_sort(entries[start:i], scores)
            start = i
    return entries


@kernel
def encode(order, scores, is_anchor, draws, code):
    """Fill `code` with whole numbers that compare with those of anchors as the scores do.

    `scores` and `code` are flat, (queries × draws); `order` is what `sort_scores` returns. The
    distinct scores of anchors get the codes 1, 3, 5, …, a score between two of them the even code
    between. Return how many scores are tied, and how many of those belong to anchors. A score is
    tied when another query of the fold has the same one; draws of one query never meet in a sample.
    """
    anchored = np.repeat(is_anchor, draws)
    tied = 0
    tied_anchors = 0
    level = 0  # the even code of scores above the anchors so far
    start = 0
    while start < order.size:
        first = index_of(order[start])
        upper = order[start] >> HALF
        anchors = np.int64(anchored[first])  # how many scores of anchors are equal
        several = False  # whether several queries have this score
        stop = start + 1
        while stop < order.size and order[stop] >> HALF == upper:
            other = index_of(order[stop])
            if scores[other] != scores[first]:
                break
            several |= other // draws != first // draws
            anchors += anchored[other]
            stop += 1
        for i in range(start, stop):
            # Odd for the score of an anchor, else the even code of the gap.
            code[index_of(order[i])] = level + (anchors > 0)
        if several:
            tied += stop - start
            tied_anchors += anchors
        level += 2 * (anchors > 0)
        start = stop
    return tied, tied_anchors


@kernel
def ranking_metrics(scores, weight, relevant):
    """Return AP, AUROC (NaN without a negative) and the number of tied positives of one ranking.

    `scores`, `weight` and `relevant` are by query. Weights are whole numbers, so that their sums
    are exact in any order.
    """
    order = sort_scores(scores)
    precision = 0.0
    lost = 0.0  # pairs with the negative above the positive
    hits = 0  # weight of the positives so far, from the best score down
    misses = 0  # and of the negatives
    tied = 0
    start = order.size
    while start > 0:  # best first, equal scores at once
        score = scores[index_of(order[start - 1])]
        stop = start
        new_positives = 0
        new_hits = 0
        new_misses = 0
        while start > 0 and scores[index_of(order[start - 1])] == score:
            start -= 1
            i = index_of(order[start])
            new_positives += relevant[i]
            new_hits += weight[i] if relevant[i] else 0
            new_misses += 0 if relevant[i] else weight[i]
        hits += new_hits
        lost += new_hits * (misses + 0.5 * new_misses)
        misses += new_misses
        precision += new_hits * (hits / (hits + misses))
        tied += new_positives if stop - start > 1 else 0
    pairs = np.float64(hits) * misses
    auroc = 1.0 - lost / pairs if pairs > 0 else np.nan
    return precision / hits, auroc, tied


@inner
def metrics_of_few(scores, weight, positives, anchors, anchor_weight):
    """Return what `ranking_metrics` does by counting, which is quick where positives are few.

    For each positive, the queries below it and not above it are counted. `positives` are the
    numbers of the positive queries; `anchors` and `anchor_weight` are scratch. The number of ties
    is right only where every weight is 1.
    """
    m = positives.size
    all_weight = np.sum(weight)
    positive_weight = 0
    for j in range(m):
        anchors[j] = scores[positives[j]]
        anchor_weight[j] = weight[positives[j]]
        positive_weight += anchor_weight[j]
    precision = 0.0
    lost = 0.0  # pairs with the negative above the positive
    tied = 0
    for j in range(m):
        t = anchors[j]
        below = 0
        not_above = 0
        anchors_below = 0
        anchors_not_above = 0
        for i in range(scores.size):
            w = weight[i]  # read whether it counts or not: so the loop has no branch
            below += w if scores[i] < t else 0
            not_above += w if scores[i] <= t else 0
        for i in range(m):
            w = anchor_weight[i]
            anchors_below += w if anchors[i] < t else 0
            anchors_not_above += w if anchors[i] <= t else 0
        # Positives and negatives not below the anchor, and negatives above it.
        hits = positive_weight - anchors_below
        misses = all_weight - below - hits
        hits_above = positive_weight - anchors_not_above
        misses_above = all_weight - not_above - hits_above
        precision += anchor_weight[j] * (hits / (hits + misses))
        # A negative with the anchor's score counts half.
        lost += anchor_weight[j] * (0.5 * (misses + misses_above))
        tied += not_above - below > 1
    pairs = np.float64(positive_weight) * (all_weight - positive_weight)
    auroc = 1.0 - lost / pairs if pairs > 0 else np.nan
    return precision / positive_weight, auroc, tied


@kernel
def measure_fold(scores, decided, truth, weight, metrics):
    """Fill in the metrics of all draws of a fold.

    `scores` is (draws, shots, classes, queries), `decided` (draws, shots, queries) the class that
    is decided for, `weight` (draws, queries) has whole numbers. The tables of `metrics` are
    overwritten; its `decisions` and `tied` are added to, which make sense where every weight is 1.
    """
    relevant, label, positives, start = truth
    tables, decisions, tied = metrics
    ap, auroc, hits, correct, decided_for = tables
    draws, shots, classes, queries = scores.shape
    anchors = np.empty(FEW)
    anchor_weight = np.empty(FEW, np.int64)
    for d in range(draws):
        for s in range(shots):
            for n in range(classes):
                of_class = positives[start[n] : start[n + 1]]
                if of_class.size <= FEW:
                    values = metrics_of_few(
                        scores[d, s, n], weight[d], of_class, anchors, anchor_weight
                    )
                else:
                    values = ranking_metrics(scores[d, s, n], weight[d], relevant[n])
                ap[d, s, n], auroc[d, s, n], ties = values
                tied[s, n] += ties
                hits[d, s, n] = 0.0
                correct[d, s, n] = 0.0
                decided_for[d, s, n] = 0.0
            for q in range(queries):
                n = decided[d, s, q]
                hit = relevant[n, q]
                right = weight[d, q] if hit else 0
                hits[d, s, label[q]] += right
                correct[d, s, n] += right
                decided_for[d, s, n] += weight[d, q]
                true = n if hit else np.uint16(label[q])
                decisions[s, true, n] += 1


LANES = 256  # bootstrap samples at a time


@inner
def count_below(table, anchors, offset, counts):
    """Fill counts[j, i] with the number of rows q with table[q, i] < anchors[j, i] + offset.

    `table` (queries, samples) and `anchors` (anchors, samples) hold codes of scores. Codes are
    whole, so offset 0 counts the queries below an anchor, offset 1 those not above it.
    """
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
    """Add each anchor's part of AP to `ap`, and the other queries that are above it to `above`.

    `below` and `anchors_below` (anchors, samples) count the queries, and the anchors, with a lower
    score. The formulas are at the top of this module.
    """
    anchors = below.shape[0]
    for j in range(anchors):
        for i in range(LANES):
            place = np.int32(queries - np.int32(below[j, i]))
            rank = np.float64(place)  # A: queries not below the anchor
            # S: anchors among them
            same = np.float64(anchors - np.int32(anchors_below[j, i]))
            ap[i] += same / rank if positive else harmonic[place] + (same - 1.0) / rank
            above[i] += rank - same


@kernel
def sample_class(code, anchor, positive, tied, draws, picks, harmonic, ap, auroc):
    """Fill ap[b] and auroc[b] of one class in one fold, for every bootstrap sample b.

    `code` is what `encode` fills, `anchor` the numbers of the anchor queries. `positive` says
    whether these are the positives, as they must be where anything is `tied`, or the negatives.
    `picks` (queries, samples) is the draw of each query in each sample, `harmonic` H(0) …
    H(queries).
    """
    n, samples = picks.shape  # n queries, of which m are anchors
    m = anchor.size
    positives = m if positive else n - m
    pairs = np.float64(m) * (n - m)
    table = np.empty((n, LANES), code.dtype)
    anchors = np.empty((m, LANES), code.dtype)
    # For each anchor: queries below, anchors below, and both not above.
    counts = np.empty((4, m, LANES), code.dtype)
    total = np.empty(LANES)
    above = np.empty(LANES)
    for start in range(0, samples, LANES):
        stop = min(start + LANES, samples)
        for q in range(n):
            query_code = code[q * draws : (q + 1) * draws]
            chosen = picks[q, start:stop]
            for i in range(chosen.size):
                table[q, i] = query_code[chosen[i]]
        for j in range(m):
            for i in range(LANES):
                anchors[j, i] = table[anchor[j], i]
        count_below(table, anchors, 0, counts[0])
        count_below(anchors, anchors, 0, counts[1])
        for i in range(LANES):
            total[i] = 0.0
            above[i] = 0.0
        add_anchors(counts[0], counts[1], n, positive, harmonic, total, above)
        if tied:  # give back half of every negative that ties with a positive anchor
            count_below(table, anchors, 1, counts[2])
            count_below(anchors, anchors, 1, counts[3])
            for j in range(m):
                for i in range(LANES):
                    ties = np.int64(counts[2, j, i]) - counts[0, j, i]
                    tied_anchors = np.int64(counts[3, j, i]) - counts[1, j, i]
                    above[i] -= 0.5 * np.float64(ties - tied_anchors)
        for i in range(stop - start):
            share = above[i] / pairs if pairs > 0 else np.nan
            if positive:
                ap[start + i] = total[i] / positives
                auroc[start + i] = 1.0 - share
            else:  # P · AP = P − M · H(n) + Σ …, as at the top of this module
                constant = positives - m * harmonic[n]
                ap[start + i] = (constant + total[i]) / positives
                auroc[start + i] = share


@kernel
def sample_class_by_sorting(scores, draws, relevant, picks, ap, auroc):
    """Fill ap[b] and auroc[b] of one class by sorting each bootstrap sample b.

    `scores` are flat, (queries × draws), `picks` (queries, samples) is the draw of each query in
    each sample. This is quicker than `sample_class` where there are many positives and many
    negatives.
    """
    sample = np.empty(picks.shape[0])
    weight = np.ones(sample.size, np.int64)
    for b in range(ap.size):
        for q in range(sample.size):
            sample[q] = scores[q * draws + np.int64(picks[q, b])]
        ap[b], auroc[b], _ = ranking_metrics(sample, weight, relevant)


@kernel
def sample_decisions(decided, relevant, label, picks, hits, correct, decided_for):
    """Fill the tables of decisions of every sample, (classes, samples): see `ClassTables`.

    `decided` (queries, draws) is the class that is decided for, `relevant` (classes, queries);
    `picks` (queries, samples) is the draw of each query in each sample. Sums of the decisions for
    each class go to `decided_for`.
    """
    queries, samples = picks.shape
    classes = relevant.shape[0]
    code = np.empty(decided.shape, np.uint16)  # odd where the decision is right
    for q in range(queries):
        for r in range(decided.shape[1]):
            code[q, r] = 2 * decided[q, r] + relevant[decided[q, r], q]
    counts = np.empty((2 * classes, LANES), np.uint32)
    right = np.empty((classes, LANES), np.uint32)
    for start in range(0, samples, LANES):
        stop = min(start + LANES, samples)
        counts[:] = 0
        right[:] = 0
        for q in range(queries):
            query_code = code[q]
            chosen = picks[q, start:stop]
            of_label = right[label[q]]
            for i in range(chosen.size):
                number = query_code[chosen[i]]
                counts[number, i] += np.uint32(1)
                of_label[i] += number & np.uint16(1)
        for n in range(classes):
            for i in range(stop - start):
                hits[n, start + i] = right[n, i]
                correct[n, start + i] = counts[2 * n + 1, i]
                decided_for[n, start + i] = counts[2 * n, i] + counts[2 * n + 1, i]
