"""Scores → AP, AUROC, decisions and ties of every sample.

For every anchor the queries below it are counted: the anchors are the positives, or the negatives
where these are fewer and nothing is tied or weighted. Weights of queries are whole numbers in
float64, so that their sums are exact in any order.

Ties: a first pass over the scores of a shot and a class sets one bit for each, by a hash, and notes
the bits that were set before. Only scores with a noted bit can be equal to another: these few are
sorted.
"""

from typing import Any, NamedTuple

import numpy as np
import torch
import triton
import triton.language as tl

from callshot.fewshot.episodes import Split
from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.gpu.draws import mix, upload
from callshot.fewshot.kernels.ranks import ClassTables
from callshot.fewshot.metrics import harmonic_numbers
from callshot.fewshot.spreads import UNIT

Tensor = Any

LANES = 64  # samples in one program
ANCHORS = 16  # anchors in one pass over the queries
WEIGHTED_ANCHORS = 4  # their sums take more registers
CLASSES = 16  # classes whose decisions one program counts
QUERIES = 8  # queries whose loads do not wait for each other
MAX_REGISTERS = 128  # so that many programs run while others wait for loads
BLOCK = 1024
ODD = 0x1E3779B97F4A7C15


class Truth(NamedTuple):
    """The true classes of the queries of a fold.

    `relevant` is (classes, queries), `label` (queries). `members` are the positives of each class,
    then the negatives of each; list i is members[start[i] : start[i + 1]]. `harmonic` are the
    harmonic numbers H(0) … H(queries).
    """

    relevant: Tensor
    label: Tensor
    members: Tensor
    start: Tensor
    harmonic: Tensor


def upload_truth(split: Split, gpu: Gpu) -> Truth:
    """Copy the true classes of a fold's queries to a GPU; list positives and negatives by class."""
    relevant = split.relevant
    lists = np.concatenate([relevant, ~relevant])  # (2 · classes, queries)
    _, members = np.nonzero(lists)
    start = np.concatenate([[0], np.cumsum(lists.sum(axis=1))])
    return Truth(
        upload(relevant.view(np.int8), gpu),
        upload(split.label, gpu, torch.int64),
        upload(members, gpu, torch.int32),
        upload(start, gpu, torch.int32),
        upload(harmonic_numbers(len(split.rows)), gpu),
    )


@triton.jit
def _load(table, picks, q, b, valid, draws, samples, other, PICKED: tl.constexpr):
    """Load the entries of a table (queries, draws) for queries q and samples b.

    With PICKED, `picks` (queries, samples) says which draw a sample takes; else it is draw b. Where
    not `valid`, the result is `other`.
    """
    pick = b
    if PICKED:
        pick = tl.load(picks + q * samples + b, valid, 0)
    return tl.load(table + q * draws + pick, valid, other)


@triton.jit
def _sum_below(
    scores,
    picks,
    weight,
    which,
    count,
    t,
    b,
    valid,
    draws,
    samples,
    LISTED: tl.constexpr,
    PICKED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TIES: tl.constexpr,
    QUERIES: tl.constexpr,
):
    """Return the weight of the queries with a score below each threshold, and of those not above.

    Both are (anchors, samples), as the thresholds `t`; `b` are the numbers of the samples, `valid`
    says which of them exist. `scores` and `weight` are (queries, draws); with PICKED, `picks`
    (queries, samples) says which draw a sample takes. With LISTED, only the `count` queries in
    `which` are summed, else the first `count` of all. The second sum, of queries not above, is
    meaningful with TIES only.
    """
    below = tl.zeros(t.shape, tl.float64 if WEIGHTED else tl.int32)
    not_above = below
    for begin in range(0, count, QUERIES):
        q = begin + tl.arange(0, QUERIES)[:, None]
        real = (q < count) & valid
        if LISTED:
            q = tl.load(which + q, q < count, 0)
        v = _load(scores, picks, q, b, real, draws, samples, float("inf"), PICKED)
        w = 1
        if WEIGHTED:
            w = tl.load(weight + q * draws + b, real, 0.0)[:, None, :]
        # The sign of a difference takes less time than a comparison in float64: read as an
        # integer, a float64 is negative where its sign bit is set.
        rise = (v[:, None, :] - t[None, :, :]).to(tl.int64, bitcast=True)
        below += tl.sum(tl.where(rise < 0, w, 0), 0)
        if TIES:
            fall = (t[None, :, :] - v[:, None, :]).to(tl.int64, bitcast=True)
            not_above += tl.sum(tl.where(fall < 0, 0, w), 0)
    return below, not_above


@triton.jit
def _measure(
    scores,
    picks,
    weight,
    tied,
    members,
    start,
    harmonic,
    all_weights,
    side_weights,
    out,
    ties,
    queries,
    draws,
    samples,
    classes,
    PICKED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    TIES: tl.constexpr,
    QUERIES: tl.constexpr,
    ANCHORS: tl.constexpr,
    LANES: tl.constexpr,
):
    """Fill AP and AUROC in `out` for every shot, class and sample; add tied positives to `ties`.

    A program has one row, a shot and a class, and LANES samples. With TIES only rows that `tied`
    says have ties are filled, else only the others. The anchors are the positives, or without ties
    and weights the negatives if these are fewer; each is compared with all queries and with the
    other anchors. The formulas of both are derived at the top of `kernels/ranks.py`.

    scores, picks, weight, tied  as in `measure`
    members, start, harmonic     of a `Truth`: the positives of class n are list n, its negatives
                                 list classes + n
    all_weights                  (samples), the weights of all queries together
    side_weights                 (2 · classes, samples), those of the queries in each list
    out                          (5, shots, classes, samples): AP is the first table, AUROC the next
    ties                         (shots, classes)
    """
    row = tl.program_id(1).to(tl.int64)
    if (tl.load(tied + row) != 0) != TIES:
        return
    n = row % classes
    sample = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = sample < samples
    b = sample[None, :]
    valid = inside[None, :]
    scores += row * queries * draws
    positives = tl.load(start + n + 1) - tl.load(start + n)
    by_negatives = (2 * positives > queries) & (not TIES) & (not WEIGHTED)
    side = n + tl.where(by_negatives, classes, 0)
    first = tl.load(start + side)
    m = tl.load(start + side + 1) - first
    which = members + first
    all_weight = tl.load(all_weights + sample, inside, 2.0)
    side_weight = tl.load(side_weights + side * samples + sample, inside, 1.0)
    precision = tl.zeros((LANES,), tl.float64)
    above = tl.zeros((LANES,), tl.float64)
    tied_anchors = tl.zeros((LANES,), tl.int32)
    for begin in range(0, m, ANCHORS):
        j = begin + tl.arange(0, ANCHORS)[:, None]
        real = (j < m) & valid
        q = tl.load(which + j, j < m, 0)
        w = real.to(tl.float64)
        if WEIGHTED:
            w = tl.load(weight + q * draws + b, real, 0.0)
        t = _load(scores, picks, q, b, real, draws, samples, 0.0, PICKED)
        below, not_above = _sum_below(
            scores,
            picks,
            weight,
            which,
            queries,
            t,
            b,
            valid,
            draws,
            samples,
            LISTED=False,
            PICKED=PICKED,
            WEIGHTED=WEIGHTED,
            TIES=TIES,
            QUERIES=QUERIES,
        )
        anchors_below, anchors_not_above = _sum_below(
            scores,
            picks,
            weight,
            which,
            m,
            t,
            b,
            valid,
            draws,
            samples,
            LISTED=True,
            PICKED=PICKED,
            WEIGHTED=WEIGHTED,
            TIES=TIES,
            QUERIES=QUERIES,
        )
        # Weights of the queries that are not below an anchor: of all, the anchors, the others.
        rank = all_weight[None, :] - below
        same = side_weight[None, :] - anchors_below
        others = rank - same
        if TIES:
            equal = not_above - below
            # The others with the anchor's score count half.
            others -= 0.5 * (equal - (anchors_not_above - anchors_below))
            tied_anchors += tl.sum((real & (equal > 1)).to(tl.int32), 0)
        rank = tl.where(real, rank, 1.0)
        share = same / rank
        if by_negatives:
            share += tl.load(harmonic + rank.to(tl.int32)) - 1.0 / rank
        precision += tl.sum(w * share, 0)
        above += tl.sum(w * others, 0)
    other_weight = all_weight - side_weight
    pairs = side_weight * other_weight
    # The share of pairs of an anchor and another query in which the other is above.
    area = tl.where(pairs > 0, above / tl.where(pairs > 0, pairs, 1.0), float("nan"))
    positive_weight = side_weight
    if by_negatives:
        precision += other_weight - side_weight * tl.load(harmonic + queries)
        positive_weight = other_weight
    else:
        area = 1.0 - area
    out += row * samples + sample
    table = tl.num_programs(1).to(tl.int64) * samples
    tl.store(out, precision / positive_weight, inside)
    tl.store(out + table, area, inside)
    if TIES:
        tl.atomic_add(ties + row, tl.sum(tied_anchors, 0).to(tl.int64))


@triton.jit
def _sample_decisions(
    decisions,
    label,
    picks,
    weight,
    out,
    queries,
    draws,
    samples,
    classes,
    PICKED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    CLASSES: tl.constexpr,
    LANES: tl.constexpr,
):
    """Fill the tables `hits`, `correct` and `decided` of some classes: see `ClassTables`.

    `decisions` (shots, queries, draws) are twice the number of a class, plus 1 if it is right. The
    tables are in `out` (3, shots, classes, samples); a program fills LANES samples of CLASSES
    classes at one shot. For `picks` see `_load`; with weights (queries, samples), sample b takes
    draw b.
    """
    sample = tl.program_id(0) * LANES + tl.arange(0, LANES)
    inside = sample < samples
    s = tl.program_id(1).to(tl.int64)
    n = tl.program_id(2) * CLASSES + tl.arange(0, CLASSES)[:, None]
    decisions += s * queries * draws
    hits = tl.zeros((CLASSES, LANES), tl.float64 if WEIGHTED else tl.int32)
    correct = hits
    decided = hits
    for q in range(0, queries):
        choice = _load(decisions, picks, q, sample, inside, draws, samples, 0, PICKED)
        choice = choice.to(tl.int32)[None, :]
        is_right = (choice & 1) != 0
        is_chosen = (choice >> 1) == n
        w = 1
        if WEIGHTED:
            w = tl.load(weight + q * draws + sample, inside, 0.0)[None, :]
        decided += tl.where(is_chosen, w, 0)
        correct += tl.where(is_chosen & is_right, w, 0)
        hits += tl.where((tl.load(label + q) == n) & is_right, w, 0)
    place = (s * classes + n) * samples + sample[None, :]  # in each of the three tables
    valid = (n < classes) & inside[None, :]
    table = tl.num_programs(1).to(tl.int64) * classes * samples
    tl.store(out + place, hits.to(tl.float64), valid)
    tl.store(out + table + place, correct.to(tl.float64), valid)
    tl.store(out + 2 * table + place, decided.to(tl.float64), valid)


def measure(
    scores: Tensor,
    decisions: Tensor,
    truth: Truth,
    draws: int,
    *,
    picks: Tensor | None = None,
    weight: Tensor | None = None,
    tied: Tensor | None = None,
) -> tuple[ClassTables, Tensor]:
    """Return the tables of a fold (shots, classes, samples), and tied positives (shots, classes).

    `scores` is (shots, classes, lanes), `decisions` (shots, lanes) as `to_scores` returns them,
    `picks` (queries, samples) the draw that a sample takes of each query, `weight` (queries, draws)
    in multiples of UNIT. `tied` (shots, classes) is not 0 where any scores are equal, with weights
    where one is that of a positive; without it, all rows are treated as if they had ties. With
    picks or weights the counts of ties are meaningless.
    """
    shots, classes, _ = scores.shape
    queries = len(truth.label)
    samples = draws if picks is None else picks.shape[1]
    ones = scores.new_ones((queries, 1)) if weight is None else weight
    # The weight of all queries in each sample, and of the positives and negatives of each class.
    all_weights = ones.sum(0).expand(samples).contiguous()
    is_negative = 1 - truth.relevant
    sides = torch.cat([truth.relevant, is_negative]).to(torch.float64)
    side_weights = (sides @ ones).expand(-1, samples).contiguous()
    out = scores.new_empty((5, shots, classes, samples))
    ties = truth.label.new_zeros((shots, classes))
    is_picked = picks is not None
    is_weighted = weight is not None
    choice = picks if is_picked else ties  # not read without picks
    sample_blocks = triton.cdiv(samples, LANES)
    # Two runs, for rows without ties and with them; one if it is not known which have ties.
    for with_ties in (True,) if tied is None else (False, True):
        _measure[(sample_blocks, shots * classes)](
            scores,
            choice,
            ones,
            torch.ones_like(ties) if tied is None else tied,
            truth.members,
            truth.start,
            truth.harmonic,
            all_weights,
            side_weights,
            out,
            ties,
            queries,
            draws,
            samples,
            classes,
            is_picked,
            is_weighted,
            with_ties,
            QUERIES,
            WEIGHTED_ANCHORS if is_weighted else ANCHORS,
            LANES,
            num_warps=LANES // 32,
            maxnreg=MAX_REGISTERS,
            enable_fp_fusion=False,
        )
    _sample_decisions[(sample_blocks, shots, triton.cdiv(classes, CLASSES))](
        decisions,
        truth.label,
        choice,
        ones,
        out[2:],
        queries,
        draws,
        samples,
        classes,
        is_picked,
        is_weighted,
        CLASSES,
        LANES,
        num_warps=LANES // 32,
    )
    if is_weighted:
        # Hits, correct and decided; AP and AUROC do not depend on the unit
        out[2:] *= UNIT
    return ClassTables(*out), ties


def count_decisions(decisions: Tensor, truth: Truth, draws: int) -> Tensor:
    """Count the decisions, (shots, true, predicted), as `kernels.scores.count_decisions` does.

    `decisions` (shots, queries · draws) are twice the number of a class, plus 1 if it is right.
    """
    shots = len(decisions)
    classes = len(truth.relevant)
    predicted = (decisions >> 1).to(torch.int64)
    label = truth.label.repeat_interleave(draws)
    true = torch.where(decisions & 1 != 0, predicted, label)
    cell = true * classes + predicted  # of the matrix, flat
    counts = cell.new_zeros((shots, classes**2))
    counts.scatter_add_(1, cell, torch.ones_like(cell))
    return counts.reshape(shots, classes, classes)


@triton.jit
def _note_scores(
    scores, seen, again, repeated, lanes, words, MARK: tl.constexpr, BLOCK: tl.constexpr
):
    """Find the scores (rows, lanes) that may be equal to another of their row, in two passes.

    The first pass sets the bit of each score's hash in `seen`, and in `again` if it was set before;
    both have `words` words of 32 bits for each row. The second pass, with MARK, sets `repeated` of
    the scores whose bit in `again` is set.
    """
    row = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    score = tl.load(scores + row * lanes + lane, valid, 0.0) + 0.0  # −0 becomes 0
    place = mix(score.to(tl.uint64, bitcast=True)) >> 32
    word = row * words + ((place >> 5).to(tl.int64) & (words - 1))
    bit = tl.full((BLOCK,), 1, tl.int32) << (place & 31).to(tl.int32)
    if MARK:
        noted = tl.load(again + word, valid, 0) & bit
        tl.store(repeated + row * lanes + lane, (noted != 0).to(tl.int8), valid)
    else:
        before = tl.atomic_or(seen + word, bit, valid, sem="relaxed")
        is_again = valid & ((before & bit) != 0)
        tl.atomic_or(again + word, bit, is_again, sem="relaxed")


def count_ties(scores: Tensor, relevant: Tensor, draws: int) -> tuple[Tensor, Tensor]:
    """Count the scores that another query has too, and those of positives: (shots, classes).

    `scores` is (shots, classes, queries · draws), `relevant` (classes, queries).
    """
    shots, classes, lanes = scores.shape
    rows = shots * classes
    # At least 32 bits for each score, so that few share one by chance; a power of 2 for the kernel.
    words = triton.next_power_of_2(lanes)
    seen, again = scores.new_zeros((2, rows, words), dtype=torch.int32)
    repeated = scores.new_empty(rows * lanes, dtype=torch.int8)
    for mark in (False, True):
        _note_scores[(triton.cdiv(lanes, BLOCK), rows)](
            scores, seen, again, repeated, lanes, words, mark, BLOCK
        )
    # Few scores are left: those that may be equal to another.
    place = repeated.nonzero()[:, 0]
    row = place // lanes
    bits = (scores.flatten()[place] + 0.0).view(torch.int64)
    # A group are equal scores of one row. An odd factor keeps the scores of a row apart; those of
    # two rows meet only by chance.
    _, group = torch.unique(bits * ODD + row, return_inverse=True)
    # A query has a number of its own in each row: row · queries + q. Rows are shots × classes, so
    # the remainder below is a place in `relevant`, flat.
    query = place // draws
    first = query.scatter_reduce(0, group, query, "amin", include_self=False)
    last = query.scatter_reduce(0, group, query, "amax", include_self=False)
    is_tied = (first != last)[group]
    is_positive = relevant.flatten()[query % relevant.numel()] != 0
    tied, positives = row.new_zeros((2, rows))
    tied.index_add_(0, row, is_tied.to(torch.int64))
    both = is_tied & is_positive
    positives.index_add_(0, row, both.to(torch.int64))
    return tied.reshape(shots, classes), positives.reshape(shots, classes)
