"""Scores and weights of queries → weighted AP and AUROC of every sample, for the spread `total`.

Weights are whole numbers in float64, so that their sums are exact in any order.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from callshot.fewshot.kernels.gpu.bootstrap import Truth

Tensor = Any

LANES = 128  # samples in one program
ANCHORS = 16  # positives in one pass over the queries


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
    _weighted_metrics[(triton.cdiv(draws, LANES), shots * classes)](
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
        LANES,
        num_warps=LANES // 32,
        enable_fp_fusion=False,
    )
    return ap, auroc
