"""Scores → AP, AUROC, hits and ties of every sample.

A sample takes one draw of each query: the one that it picks, or, where draws are shared, draw b.
For every anchor the queries at or above it are counted, as `kernels.ranks` does: the anchors are
the positives, or the negatives where these are fewer and nothing is tied. In the spread `total`
queries have weights, whole numbers in float64, so that their sums are exact in any order.

Ties: a first pass over the scores of a shot and a class sets one bit for each, by a hash, and notes
the bits that were set before. Only scores with a noted bit can be equal to another: these few are
sorted.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from callshot.fewshot.gpu.draws import mix

Tensor = Any

LANES = 64  # samples in one program
ANCHORS = 16  # anchors in one pass over the queries
WARPS = LANES // 32
HIT_LANES = 256
WEIGHTED_LANES = 128


class Truth(NamedTuple):
    """The true classes of the queries of a fold, for the GPU.

    The positives of class n are sides[start[n] : start[n + 1]], its negatives
    sides[start[classes + n] : start[classes + n + 1]]; the queries with label n are
    by_label[label_start[n] : label_start[n + 1]]. `relevant` is (classes, queries).
    """

    relevant: Tensor
    label: Tensor
    sides: Tensor
    start: Tensor
    by_label: Tensor
    label_start: Tensor

    @property
    def queries(self) -> int:
        """The number of queries."""
        return int(self.label.shape[0])


@triton.jit
def _picked(scores, picks, q, b, valid, draws, samples, PICKED: tl.constexpr):
    """Load the score of query q in each sample."""
    pick = b
    if PICKED:
        pick = tl.load(picks + q * samples + b, valid, 0).to(tl.int32)
    return tl.load(scores + q * draws + pick, valid, 0.0)


@triton.jit
def _listed(
    scores,
    picks,
    which,
    i,
    b,
    valid,
    draws,
    samples,
    LISTED: tl.constexpr,
    PICKED: tl.constexpr,
):
    """Load the score of query i, or of number i of a list, in each sample."""
    q = tl.load(which + i) if LISTED else i
    return _picked(scores, picks, q, b, valid, draws, samples, PICKED)


@triton.jit
def _is_negative(x):
    """Return the sign bit: a subtraction and it take less time than a comparison of float64."""
    return (x.to(tl.uint64, bitcast=True) >> 63).to(tl.int32)


@triton.jit
def _count(
    scores,
    picks,
    which,
    count,
    t,
    b,
    valid,
    draws,
    samples,
    LISTED: tl.constexpr,
    PICKED: tl.constexpr,
    TIES: tl.constexpr,
):
    """Count the queries below t, and those above it: all, or those that are listed.

    Those above are counted with TIES only.
    """
    below = tl.zeros(t.shape, tl.int32)
    above = below
    whole = count - count % 4
    for i in range(0, whole, 4):  # four loads that do not wait for each other
        v0 = _listed(scores, picks, which, i, b, valid, draws, samples, LISTED, PICKED)
        v1 = _listed(
            scores, picks, which, i + 1, b, valid, draws, samples, LISTED, PICKED
        )
        v2 = _listed(
            scores, picks, which, i + 2, b, valid, draws, samples, LISTED, PICKED
        )
        v3 = _listed(
            scores, picks, which, i + 3, b, valid, draws, samples, LISTED, PICKED
        )
        below += _is_negative(v0[None, :] - t)
        below += _is_negative(v1[None, :] - t)
        below += _is_negative(v2[None, :] - t)
        below += _is_negative(v3[None, :] - t)
        if TIES:
            above += _is_negative(t - v0[None, :])
            above += _is_negative(t - v1[None, :])
            above += _is_negative(t - v2[None, :])
            above += _is_negative(t - v3[None, :])
    for i in range(whole, count):
        v = _listed(scores, picks, which, i, b, valid, draws, samples, LISTED, PICKED)
        below += _is_negative(v[None, :] - t)
        if TIES:
            above += _is_negative(t - v[None, :])
    return below, above


@triton.jit
def _sample_metrics(
    scores,
    picks,
    sides,
    start,
    tied,
    harmonic,
    ap,
    auroc,
    ties,
    queries,
    draws,
    samples,
    classes,
    PICKED: tl.constexpr,
    TIES: tl.constexpr,
    ANCHORS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Fill the rows of shots and classes that have ties, or those that have none."""
    row = tl.program_id(1).to(tl.int64)
    if (tl.load(tied + row) != 0) != TIES:
        return
    n = row % classes
    b = tl.program_id(0) * LANES + tl.arange(0, LANES)
    valid = b < samples
    scores += row * queries * draws
    ap += row * samples + b
    auroc += row * samples + b
    positives = tl.load(start + n + 1) - tl.load(start + n)
    negative = (2 * positives > queries) & (not TIES)
    side = n + tl.where(negative, classes, 0)
    first = tl.load(start + side)
    m = tl.load(start + side + 1) - first
    which = sides + first
    precision = tl.zeros((LANES,), tl.float64)
    above = tl.zeros((LANES,), tl.float64)
    several = tl.zeros((LANES,), tl.int32)
    for begin in range(0, m, ANCHORS):
        j = begin + tl.arange(0, ANCHORS)
        real = j[:, None] < m
        q = tl.load(which + j, j < m, 0)[:, None]
        both = real & valid[None, :]
        t = _picked(scores, picks, q, b[None, :], both, draws, samples, PICKED)
        below, higher = _count(
            scores,
            picks,
            which,
            queries,
            t,
            b,
            valid,
            draws,
            samples,
            False,
            PICKED,
            TIES,
        )
        same_below, same_higher = _count(
            scores, picks, which, m, t, b, valid, draws, samples, True, PICKED, TIES
        )
        place = queries - below
        same = m - same_below
        rank = place.to(tl.float64)
        if negative:
            share = tl.load(harmonic + place) + (same - 1).to(tl.float64) / rank
        else:
            share = same.to(tl.float64) / rank
        precision += tl.sum(tl.where(real, share, 0.0), 0)
        lost = (place - same).to(tl.float64)
        if TIES:
            equal = queries - below - higher
            same_equal = m - same_below - same_higher
            lost -= 0.5 * (equal - same_equal).to(tl.float64)
            several += tl.sum((real & (equal > 1)).to(tl.int32), 0)
        above += tl.sum(tl.where(real, lost, 0.0), 0)
    size = m.to(tl.float64)
    rest = (queries - m).to(tl.float64)
    pairs = size * rest
    share = tl.where(pairs > 0, above / tl.where(pairs > 0, pairs, 1.0), float("nan"))
    if negative:
        total = rest - size * tl.load(harmonic + queries)
        tl.store(ap, (total + precision) / rest, valid)
        tl.store(auroc, share, valid)
    else:
        tl.store(ap, precision / size, valid)
        tl.store(auroc, 1.0 - share, valid)
    if TIES:
        count = tl.sum(tl.where(valid, several, 0), 0)
        tl.atomic_add(ties + row, count.to(tl.int64))


def sample_metrics(
    scores: Tensor,
    picks: Tensor | None,
    truth: Truth,
    tied: Tensor,
    harmonic: Tensor,
    draws: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return AP and AUROC (shots, classes, samples), and tied positives (shots, classes).

    `scores` is (shots, classes, lanes), `tied` (shots, classes): whether any scores are equal. Ties
    are counted where it says so, over all samples.
    """
    shots, classes, _ = scores.shape
    samples = draws if picks is None else picks.shape[1]
    size = (shots, classes, samples)
    ap = torch.empty(size, dtype=torch.float64, device=scores.device)
    auroc = torch.empty_like(ap)
    ties = torch.zeros((shots, classes), dtype=torch.int64, device=scores.device)
    for with_ties in (False, True):
        _sample_metrics[(triton.cdiv(samples, LANES), shots * classes)](
            scores,
            truth.label if picks is None else picks,
            truth.sides,
            truth.start,
            tied,
            harmonic,
            ap,
            auroc,
            ties,
            truth.queries,
            draws,
            samples,
            classes,
            picks is not None,
            with_ties,
            ANCHORS,
            LANES,
            num_warps=WARPS,
            enable_fp_fusion=False,
        )
    return ap, auroc, ties


@triton.jit
def _sample_hits(
    hits,
    picks,
    weight,
    by_label,
    start,
    out,
    lanes,
    draws,
    samples,
    classes,
    PICKED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64)
    n = row % classes
    b = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    valid = b < samples
    hits += (row // classes) * lanes
    total = tl.zeros((BLOCK,), tl.float64)
    for i in range(tl.load(start + n), tl.load(start + n + 1)):
        q = tl.load(by_label + i).to(tl.int64)
        pick = b
        if PICKED:
            pick = tl.load(picks + q * samples + b, valid, 0).to(tl.int32)
        hit = tl.load(hits + q * draws + pick, valid, 0).to(tl.float64)
        if WEIGHTED:
            hit = hit * tl.load(weight + q * draws + b, valid, 0.0)
        total += hit
    tl.store(out + row * samples + b, total, valid)


def sample_hits(
    hits: Tensor,
    picks: Tensor | None,
    weight: Tensor | None,
    truth: Truth,
    classes: int,
    draws: int,
) -> Tensor:
    """Return how many queries of each class hit, (shots, classes, samples), weighted if asked."""
    shots, lanes = hits.shape
    samples = draws if picks is None else picks.shape[1]
    size = (shots, classes, samples)
    out = torch.empty(size, dtype=torch.float64, device=hits.device)
    _sample_hits[(triton.cdiv(samples, HIT_LANES), shots * classes)](
        hits,
        hits if picks is None else picks,
        hits if weight is None else weight,
        truth.by_label,
        truth.label_start,
        out,
        lanes,
        draws,
        samples,
        classes,
        picks is not None,
        weight is not None,
        HIT_LANES,
    )
    return out


@triton.jit
def _weight_where(
    scores,
    weight,
    which,
    count,
    t,
    d,
    valid,
    draws,
    STRICT: tl.constexpr,
    LISTED: tl.constexpr,
):
    """Sum the weights of the queries below t (STRICT), or not above it."""
    sums = tl.zeros(t.shape, tl.float64)
    for i in range(count):
        q = tl.load(which + i).to(tl.int64) if LISTED else i
        v = tl.load(scores + q * draws + d, valid, 0.0)[None, :]
        w = tl.load(weight + q * draws + d, valid, 0.0)[None, :]
        sums += tl.where((v < t) if STRICT else (v <= t), w, 0.0)
    return sums


@triton.jit
def _weighted_metrics(
    scores,
    weight,
    sides,
    start,
    ap,
    auroc,
    queries,
    draws,
    classes,
    ANCHORS: tl.constexpr,
    LANES: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64)
    n = row % classes
    d = tl.program_id(0) * LANES + tl.arange(0, LANES)
    valid = d < draws
    scores += row * queries * draws
    first = tl.load(start + n)
    m = tl.load(start + n + 1) - first
    which = sides + first
    everything = tl.zeros((LANES,), tl.float64)
    for i in range(queries):
        everything += tl.load(weight + i * draws + d, valid, 0.0)
    relevant = tl.zeros((LANES,), tl.float64)
    for i in range(m):
        relevant += tl.load(weight + tl.load(which + i) * draws + d, valid, 1.0)
    precision = tl.zeros((LANES,), tl.float64)
    lost = tl.zeros((LANES,), tl.float64)
    for begin in range(0, m, ANCHORS):
        j = begin + tl.arange(0, ANCHORS)
        real = (j[:, None] < m) & valid[None, :]
        q = tl.load(which + j, j < m, 0).to(tl.int64)[:, None]
        place = q * draws + d[None, :]
        t = tl.load(scores + place, real, 0.0)
        w = tl.load(weight + place, real, 0.0)
        below = _weight_where(
            scores, weight, which, queries, t, d, valid, draws, True, False
        )
        not_above = _weight_where(
            scores, weight, which, queries, t, d, valid, draws, False, False
        )
        same_below = _weight_where(
            scores, weight, which, m, t, d, valid, draws, True, True
        )
        same_not_above = _weight_where(
            scores, weight, which, m, t, d, valid, draws, False, True
        )
        hits = relevant[None, :] - same_below
        misses = everything[None, :] - below - hits
        misses_above = (
            everything[None, :] - not_above - (relevant[None, :] - same_not_above)
        )
        rank = tl.where(real, hits + misses, 1.0)
        precision += tl.sum(w * (hits / rank), 0)
        lost += tl.sum(w * (0.5 * (misses + misses_above)), 0)
    pairs = relevant * (everything - relevant)
    share = tl.where(pairs > 0, lost / tl.where(pairs > 0, pairs, 1.0), float("nan"))
    tl.store(ap + row * draws + d, precision / relevant, valid)
    tl.store(auroc + row * draws + d, 1.0 - share, valid)


def weighted_metrics(
    scores: Tensor, weight: Tensor, truth: Truth
) -> tuple[Tensor, Tensor]:
    """Return weighted AP and AUROC (shots, classes, draws); weight is (queries, draws)."""
    shots, classes, _ = scores.shape
    draws = weight.shape[1]
    ap = torch.empty((shots, classes, draws), dtype=torch.float64, device=scores.device)
    auroc = torch.empty_like(ap)
    _weighted_metrics[(triton.cdiv(draws, WEIGHTED_LANES), shots * classes)](
        scores,
        weight,
        truth.sides,
        truth.start,
        ap,
        auroc,
        truth.queries,
        draws,
        classes,
        ANCHORS,
        WEIGHTED_LANES,
        num_warps=WEIGHTED_LANES // 32,
        enable_fp_fusion=False,
    )
    return ap, auroc


BLOCK = 1024
BITS_PER_SCORE = 32


@triton.jit
def _word_of(scores, lane, valid, mask):
    """Return the bits of each score, the word of the bit map that is its own, and the bit."""
    score = tl.load(scores + lane, valid, 0.0) + 0.0
    bits = score.to(tl.int64, bitcast=True)
    place = (mix(bits.to(tl.uint64, bitcast=True)) >> 20).to(tl.int64) & mask
    bit = tl.full(lane.shape, 1, tl.int32) << (place & 31).to(tl.int32)
    return bits, place >> 5, bit


@triton.jit
def _note_scores(scores, seen, again, lanes, words, mask, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    _, word, bit = _word_of(scores + row * lanes, lane, valid, mask)
    before = tl.atomic_or(seen + row * words + word, bit, valid)
    repeated = valid & ((before & bit) != 0)
    tl.atomic_or(again + row * words + word, bit, repeated)


@triton.jit
def _mark_repeated(scores, again, marked, lanes, words, mask, BLOCK: tl.constexpr):
    row = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    _, word, bit = _word_of(scores + row * lanes, lane, valid, mask)
    noted = tl.load(again + row * words + word, valid, 0)
    found = ((noted & bit) != 0).to(tl.int8)
    tl.store(marked + row * lanes + lane, found, valid)


def count_ties(scores: Tensor, relevant: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """Return whether any scores of two queries are equal, and how many positives' scores are.

    Both are (shots, classes). `scores` is (shots, classes, lanes), `relevant` (classes, queries).
    """
    shots, classes, lanes = scores.shape
    rows = shots * classes
    words = triton.next_power_of_2(max(lanes * BITS_PER_SCORE // 32, 1))
    device = scores.device
    seen = torch.zeros((rows, words), dtype=torch.int32, device=device)
    again = torch.zeros_like(seen)
    marked = torch.empty((rows, lanes), dtype=torch.int8, device=device)
    grid = (triton.cdiv(lanes, BLOCK), rows)
    mask = words * 32 - 1
    _note_scores[grid](scores, seen, again, lanes, words, mask, BLOCK)
    _mark_repeated[grid](scores, again, marked, lanes, words, mask, BLOCK)
    row, lane = marked.nonzero(as_tuple=True)
    size = (shots, classes)
    tied = torch.zeros(rows, dtype=torch.int64, device=device)
    tied_positives = torch.zeros_like(tied)
    if not len(row):
        return tied.reshape(size), tied_positives.reshape(size)
    several, row, lane = _equal_to_others(scores.reshape(rows, lanes), row, lane, draws)
    positive = relevant[row % classes, lane // draws] != 0
    tied.index_add_(0, row, several.to(torch.int64))
    tied_positives.index_add_(0, row, (several & positive).to(torch.int64))
    return tied.reshape(size), tied_positives.reshape(size)


def _equal_to_others(
    table: Tensor, row: Tensor, lane: Tensor, draws: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Sort some scores inside their rows; return whether each is also another query's."""
    score = table[row, lane] + 0.0
    order = torch.argsort(score, stable=True)
    order = order[torch.argsort(row[order], stable=True)]
    row = row[order]
    lane = lane[order]
    score = score[order]
    new = torch.ones_like(row, dtype=torch.bool)
    new[1:] = (row[1:] != row[:-1]) | (score[1:] != score[:-1])
    group = torch.cumsum(new, 0) - 1
    query = lane // draws
    least = torch.full_like(query, table.shape[1])
    least.scatter_reduce_(0, group, query, "amin")
    largest = torch.full_like(query, -1)
    largest.scatter_reduce_(0, group, query, "amax")
    return (least != largest)[group], row, lane
