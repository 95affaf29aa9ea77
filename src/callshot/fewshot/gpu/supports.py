"""(Supports, products of vectors) → a_n of every draw and shot, by class means.

Sums run over the exemplars in the order of the draw, as on the CPU: products inside a support in
four chains, everything else in one.
"""

from typing import Any

import triton
import triton.language as tl

from callshot.fewshot.gpu.draws import Supports
from callshot.fewshot.gpu.rows import GpuRows

Tensor = Any

BLOCK = 128


@triton.jit
def _product(line, chosen, weight, m, lanes, valid, WEIGHTED: tl.constexpr):
    """Load the product with number m of the support, times its weight, from a matrix line."""
    value = tl.load(line + tl.load(chosen + m * lanes, valid, 0), valid, 0.0)
    if WEIGHTED:
        value = tl.load(weight + m * lanes, valid, 0.0) * value
    return value


@triton.jit
def _fill_squares(
    chosen,
    weight,
    steps,
    slot,
    class_start,
    lengths,
    matrix,
    matrix_start,
    out,
    lanes,
    longest,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fill out[slot, n, lane] with |Σ w x|²."""
    n = tl.program_id(1).to(tl.int64)
    classes = tl.num_programs(1)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    chosen += n * longest * lanes + lane
    weight += n * longest * lanes + lane
    begin = tl.load(class_start + n)
    size = tl.load(class_start + n + 1) - begin
    lengths += begin
    matrix += tl.load(matrix_start + n)
    out += n * lanes + lane
    square = tl.zeros((BLOCK,), tl.float64)
    for i in range(tl.load(steps + n)):
        new = tl.load(chosen + i * lanes, valid, 0)
        line = matrix + new * size
        s0 = tl.zeros((BLOCK,), tl.float64)
        s1 = tl.zeros((BLOCK,), tl.float64)
        s2 = tl.zeros((BLOCK,), tl.float64)
        s3 = tl.zeros((BLOCK,), tl.float64)
        whole = i - i % 4
        for m in range(0, whole, 4):
            s0 += _product(line, chosen, weight, m, lanes, valid, WEIGHTED)
            s1 += _product(line, chosen, weight, m + 1, lanes, valid, WEIGHTED)
            s2 += _product(line, chosen, weight, m + 2, lanes, valid, WEIGHTED)
            s3 += _product(line, chosen, weight, m + 3, lanes, valid, WEIGHTED)
        for m in range(whole, i):
            s0 += _product(line, chosen, weight, m, lanes, valid, WEIGHTED)
        product = (s0 + s1) + (s2 + s3)
        length = tl.load(lengths + new, valid, 0.0)
        if WEIGHTED:
            share = tl.load(weight + i * lanes, valid, 0.0)
            square += share * (2.0 * product + share * length)
        else:
            square += 2.0 * product + length
        row = tl.load(slot + n * longest + i)
        if row >= 0:
            tl.store(out + row.to(tl.int64) * classes * lanes, square, valid)


@triton.jit
def _fill_evidence(
    chosen,
    weight,
    steps,
    slot,
    class_start,
    products,
    squares,
    out,
    lanes,
    draws,
    first_lane,
    out_lanes,
    rows,
    longest,
    support_lanes,
    COSINE: tl.constexpr,
    PER_QUERY: tl.constexpr,
    RECIPROCAL: tl.constexpr,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fill out[slot, n, first_lane + lane] of some queries; `products` is (queries, rows)."""
    n = tl.program_id(1).to(tl.int64)
    classes = tl.num_programs(1)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    source = lane if PER_QUERY else lane % draws
    chosen += n * longest * support_lanes + source
    weight += n * longest * support_lanes + source
    squares += n * support_lanes + source
    products += (lane // draws) * rows + tl.load(class_start + n)
    out += n * out_lanes + first_lane + lane
    total = tl.zeros((BLOCK,), tl.float64)
    size = tl.zeros((BLOCK,), tl.float64)
    for i in range(tl.load(steps + n)):
        new = tl.load(chosen + i * support_lanes, valid, 0)
        product = tl.load(products + new, valid, 0.0)
        if WEIGHTED:
            share = tl.load(weight + i * support_lanes, valid, 1.0)
            size += share
            total += share * product
        else:
            size += 1.0
            total += product
        row = tl.load(slot + n * longest + i).to(tl.int64)
        if row >= 0:
            square = tl.load(squares + row * classes * support_lanes, valid, 1.0)
            # The roundings of the two kernels of the CPU.
            if COSINE:
                length = tl.sqrt(tl.where(square > 0.0, square, 1.0))
                value = tl.minimum(tl.maximum(total / length, -1.0), 1.0)
                value = tl.where(square > 0.0, value, 0.0)
            elif RECIPROCAL:
                value = 2.0 * (total * (1.0 / size)) - square / (size * size)
            else:
                value = 2.0 * (total / size) - square / (size * size)
            tl.store(out + row * classes * out_lanes, value, valid)


def fill_evidence(
    supports: Supports,
    rows: GpuRows,
    products: Tensor,
    draws: int,
    first_lane: int,
    reciprocal: bool,
    out: Tensor,
) -> None:
    """Fill out[slot, n, first_lane …] with a_n of the queries that `products` (queries, rows) has.

    Supports are those of each query, or, with one lane per draw, those of all queries.
    `reciprocal`: means are sums times 1 / size, as in `supports.fill_means`.
    """
    slots, classes, out_lanes = out.shape
    _, longest, support_lanes = supports.chosen.shape
    lanes = len(products) * draws
    is_weighted = supports.weight is not None
    weight = supports.weight if is_weighted else rows.squares
    squares = out.new_empty((slots, classes, support_lanes))
    _fill_squares[(triton.cdiv(support_lanes, BLOCK), classes)](
        supports.chosen,
        weight,
        supports.steps,
        supports.slot,
        rows.class_start,
        rows.squares,
        *rows.matrices,
        squares,
        support_lanes,
        longest,
        is_weighted,
        BLOCK,
        enable_fp_fusion=False,
    )
    _fill_evidence[(triton.cdiv(lanes, BLOCK), classes)](
        supports.chosen,
        weight,
        supports.steps,
        supports.slot,
        rows.class_start,
        products,
        squares,
        out,
        lanes,
        draws,
        first_lane,
        out_lanes,
        products.shape[1],
        longest,
        support_lanes,
        rows.rule == "cosine",
        support_lanes == lanes,
        reciprocal,
        is_weighted,
        BLOCK,
        enable_fp_fusion=False,
    )
