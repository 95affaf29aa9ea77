"""Scores → AP, AUROC and hits of every sample.

A sample takes one draw of each query: the one that it picks, or, where draws are shared, draw b.
For every anchor the queries at or above it are counted, as `kernels.bootstrap` does: the anchors
are the positives, or the negatives where these are fewer and nothing is tied.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

Tensor = Any

LANES = 64  # samples in one program
ANCHORS = 16  # anchors in one pass over the queries
WARPS = LANES // 32
HIT_LANES = 256


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
