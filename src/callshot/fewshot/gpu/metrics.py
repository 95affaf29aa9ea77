"""Scores → AP, AUROC, hits and ties of every sample.

A sample takes one draw of each query: the one that it picks, or, where draws are shared, draw b.
For every positive the queries below it, and those not above it, are counted. In the spread `total`
queries have weights, whole numbers in float64, so that their sums are exact in any order.
"""

from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

Tensor = Any

LANES = 64  # samples in one program
ANCHORS = 16  # positives in one pass over the queries


class Truth(NamedTuple):
    """The true classes of the queries of a fold.

    `relevant` is (classes, queries), `label` (queries). The positives of class n are
    positives[start[n] : start[n + 1]].
    """

    relevant: Tensor
    label: Tensor
    positives: Tensor
    start: Tensor


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
):
    """Sum the weights of the queries below t, and not above it: of all, or of those listed."""
    below = tl.zeros(t.shape, tl.float64 if WEIGHTED else tl.int32)
    not_above = tl.zeros(t.shape, tl.float64 if WEIGHTED else tl.int32)
    # Loads of several queries need not wait for each other.
    for i in tl.range(0, count, loop_unroll_factor=4):
        q = tl.load(which + i).to(tl.int64) if LISTED else i
        pick = tl.load(picks + q * samples + b, valid, 0) if PICKED else b
        v = tl.load(scores + q * draws + pick, valid, 0.0)[None, :]
        w = tl.load(weight + q * draws + b, valid, 0.0)[None, :] if WEIGHTED else 1
        below += tl.where(v < t, w, 0)
        not_above += tl.where(v <= t, w, 0)
    return below, not_above


@triton.jit
def _measure(
    scores,
    picks,
    weight,
    positives,
    start,
    all_weights,
    positive_weights,
    ap,
    auroc,
    ties,
    queries,
    draws,
    samples,
    classes,
    PICKED: tl.constexpr,
    WEIGHTED: tl.constexpr,
    ANCHORS: tl.constexpr,
    LANES: tl.constexpr,
):
    row = tl.program_id(1).to(tl.int64)
    n = row % classes
    b = tl.program_id(0) * LANES + tl.arange(0, LANES)
    valid = b < samples
    scores += row * queries * draws
    first = tl.load(start + n)
    m = tl.load(start + n + 1) - first
    which = positives + first
    everything = tl.load(all_weights + b, valid, 2.0)
    relevant = tl.load(positive_weights + n * samples + b, valid, 1.0)
    precision = tl.zeros((LANES,), tl.float64)
    lost = tl.zeros((LANES,), tl.float64)
    tied = tl.zeros((LANES,), tl.int32)
    for begin in range(0, m, ANCHORS):
        j = begin + tl.arange(0, ANCHORS)
        real = (j[:, None] < m) & valid[None, :]
        q = tl.load(which + j, j < m, 0).to(tl.int64)[:, None]
        place = q * draws + b[None, :]
        w = tl.load(weight + place, real, 0.0) if WEIGHTED else real.to(tl.float64)
        if PICKED:
            place = q * draws + tl.load(picks + q * samples + b[None, :], real, 0)
        t = tl.load(scores + place, real, 0.0)
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
            False,
            PICKED,
            WEIGHTED,
        )
        same_below, same_not_above = _sum_below(
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
            True,
            PICKED,
            WEIGHTED,
        )
        hits = relevant[None, :] - same_below
        misses = everything[None, :] - below - hits
        hits_above = relevant[None, :] - same_not_above
        misses_above = everything[None, :] - not_above - hits_above
        rank = tl.where(real, hits + misses, 1.0)
        precision += tl.sum(w * (hits / rank), 0)
        lost += tl.sum(w * (0.5 * (misses + misses_above)), 0)
        tied += tl.sum((real & (not_above - below > 1)).to(tl.int32), 0)
    pairs = relevant * (everything - relevant)
    share = tl.where(pairs > 0, lost / tl.where(pairs > 0, pairs, 1.0), float("nan"))
    tl.store(ap + row * samples + b, precision / relevant, valid)
    tl.store(auroc + row * samples + b, 1.0 - share, valid)
    tl.atomic_add(ties + row, tl.sum(tied, 0).to(tl.int64))


def measure(
    scores: Tensor,
    picks: Tensor | None,
    weight: Tensor | None,
    truth: Truth,
    draws: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """Return AP and AUROC (shots, classes, samples), and tied positives (shots, classes).

    `scores` is (shots, classes, lanes), `picks` (queries, samples), `weight` (queries, draws).
    Ties are counted over all samples; with weights they mean nothing.
    """
    shots, classes, _ = scores.shape
    queries = len(truth.label)
    samples = draws if picks is None else picks.shape[1]
    ones = scores.new_ones((queries, 1)) if weight is None else weight
    all_weights = ones.sum(0).expand(samples).contiguous()
    positive_weights = truth.relevant.to(torch.float64) @ ones
    positive_weights = positive_weights.expand(classes, samples).contiguous()
    ap = scores.new_empty((shots, classes, samples))
    auroc = torch.empty_like(ap)
    ties = torch.zeros((shots, classes), dtype=torch.int64, device=scores.device)
    _measure[(triton.cdiv(samples, LANES), shots * classes)](
        scores,
        truth.label if picks is None else picks,
        ones,
        truth.positives,
        truth.start,
        all_weights,
        positive_weights,
        ap,
        auroc,
        ties,
        queries,
        draws,
        samples,
        classes,
        picks is not None,
        weight is not None,
        ANCHORS,
        LANES,
        num_warps=LANES // 32,
        enable_fp_fusion=False,
    )
    return ap, auroc, ties


def sum_hits(
    hits: Tensor, picks: Tensor | None, weight: Tensor | None, truth: Truth, draws: int
) -> Tensor:
    """Return how many queries of each class hit, (shots, classes, samples), weighted if asked.

    `hits` is (shots, lanes). Sums of whole numbers are exact in any order.
    """
    classes = torch.arange(len(truth.relevant), device=hits.device)
    is_class = (truth.label == classes[:, None]).to(torch.float64)
    sums = []
    for table in hits.reshape(len(hits), -1, draws):
        if picks is not None:
            table = table.gather(1, picks.to(torch.int64))
        table = table.to(torch.float64)
        sums.append(is_class @ (table if weight is None else table * weight))
    return torch.stack(sums)


def count_decisions(decided: Tensor, hits: Tensor, truth: Truth, draws: int) -> Tensor:
    """Return the decisions (shots, true, predicted), as `kernels.scores.count_decisions`."""
    shots = len(decided)
    classes = len(truth.relevant)
    predicted = decided.to(torch.int64)
    true = torch.where(hits != 0, predicted, truth.label.repeat_interleave(draws))
    shot = torch.arange(shots, device=hits.device)[:, None]
    cell = (shot * classes + true) * classes + predicted
    counts = torch.bincount(cell.flatten(), minlength=shots * classes**2)
    return counts.reshape(shots, classes, classes)


def count_ties(scores: Tensor, relevant: Tensor, draws: int) -> Tensor:
    """Return how many scores of positives are also another query's, (shots, classes).

    `scores` is (shots, classes, lanes), `relevant` (classes, queries).
    """
    counts = []
    for table in scores:
        score, lane = torch.sort(table + 0.0, stable=True)  # −0 becomes 0
        query = lane // draws
        is_new = torch.ones_like(query)
        is_new[:, 1:] = score[:, 1:] != score[:, :-1]
        group = is_new.cumsum(1) - 1
        first = query.scatter_reduce(1, group, query, "amin", include_self=False)
        last = query.scatter_reduce(1, group, query, "amax", include_self=False)
        is_tied = (first != last).gather(1, group)
        is_positive = relevant.gather(1, query) != 0
        counts.append((is_tied & is_positive).sum(1))
    return torch.stack(counts)
