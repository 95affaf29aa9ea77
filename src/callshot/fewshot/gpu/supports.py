"""(Supports, products of vectors) → the logits a_n of every draw and shot → scores and decisions.

a_n is by class means. Sums run over the exemplars in the order of the draw, as on the CPU: products
inside a support in four chains, everything else in one.
"""

from typing import Any

import torch
import triton
import triton.language as tl

from callshot.fewshot.gpu.draws import GpuRows, Supports
from callshot.fewshot.kernels.scores import grid_constant

Tensor = Any

BLOCK = 128


@triton.jit
def _product(line, chosen, weight, m, lanes, valid, WEIGHTED: tl.constexpr):
    """Load a line's product with exemplar m of the support, times the weight of m.

    `line` is a row of the Gram matrix of a class. `chosen` and `weight` point at exemplar 0 of each
    of `lanes` lanes (draws); lanes beyond the last are not `valid`.
    """
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
    squared_lengths,
    matrix,
    matrix_start,
    out,
    lanes,
    longest,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fill out[slot, n, lane] with |Σ w x|² of the first exemplars x of class n, with weights w.

    chosen[n, i, lane] is the i-th exemplar, of steps[n]; slot[n, i] is the row of `out` that the
    exemplars up to it give, −1 for none. `matrix` has the products inside each class. For each new
    exemplar the products with those before are summed, as in `supports.fill_squares`.
    """
    n = tl.program_id(1).to(tl.int64)
    classes = tl.num_programs(1)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    chosen += n * longest * lanes + lane
    weight += n * longest * lanes + lane
    begin = tl.load(class_start + n)
    size = tl.load(class_start + n + 1) - begin
    squared_lengths += begin
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
        squared_length = tl.load(squared_lengths + new, valid, 0.0)
        if WEIGHTED:
            share = tl.load(weight + i * lanes, valid, 0.0)
            square += share * (2.0 * product + share * squared_length)
        else:
            square += 2.0 * product + squared_length
        row = tl.load(slot + n * longest + i)
        if row >= 0:
            tl.store(out + row.to(tl.int64) * classes * lanes, square, valid)


@triton.jit
def _fill_logits(
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
    """Fill out[slot, n, first_lane + lane] with the logit of class n, by weighted class means.

    The logit of query q is 2 q·c − |c|² with the class mean c, or with COSINE the cosine of both.
    A lane is a query and a draw. `products` (queries, rows) are those of some queries with all
    rows, `squares` (slots, classes, support lanes) what `_fill_squares` fills. chosen[n, i, lane]
    is the i-th exemplar, of steps[n]; slot[n, i] is the row of `out` that the exemplars up to it
    give, −1 for none. The support is that of the lane with PER_QUERY, else that of its draw.
    RECIPROCAL multiplies by 1 / size where `score_support` does, so that roundings are the same.
    """
    n = tl.program_id(1).to(tl.int64)
    classes = tl.num_programs(1)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    support_lane = lane if PER_QUERY else lane % draws
    chosen += n * longest * support_lanes + support_lane
    weight += n * longest * support_lanes + support_lane
    squares += n * support_lanes + support_lane
    products += (lane // draws) * rows + tl.load(class_start + n)
    out += n * out_lanes + first_lane + lane
    total = tl.zeros((BLOCK,), tl.float64)
    size = tl.zeros((BLOCK,), tl.float64)
    for i in range(tl.load(steps + n)):
        new = tl.load(chosen + i * support_lanes, valid, 0)
        product = tl.load(products + new, valid, 0.0)
        if WEIGHTED:
            own_weight = tl.load(weight + i * support_lanes, valid, 1.0)
            size += own_weight
            total += own_weight * product
        else:
            size += 1.0
            total += product
        out_row = tl.load(slot + n * longest + i).to(tl.int64)
        if out_row >= 0:
            square = tl.load(squares + out_row * classes * support_lanes, valid, 1.0)
            if COSINE:
                length = tl.sqrt(tl.where(square > 0.0, square, 1.0))
                value = tl.minimum(tl.maximum(total / length, -1.0), 1.0)
                value = tl.where(square > 0.0, value, 0.0)
            elif RECIPROCAL:
                value = 2.0 * (total * (1.0 / size)) - square / (size * size)
            else:
                value = 2.0 * (total / size) - square / (size * size)
            tl.store(out + out_row * classes * out_lanes, value, valid)


def fill_logits(
    supports: Supports,
    rows: GpuRows,
    products: Tensor,
    draws: int,
    out: Tensor,
    *,
    first_lane: int = 0,
    reciprocal: bool,
) -> None:
    """Fill out[slot, n, first_lane …] with the logits of the queries in `products`.

    `products` is (queries, rows); a slot is a shot. Supports have a lane for each query and draw,
    or, if all queries share them, one for each draw. `reciprocal`: means are sums times 1 / size,
    as in `supports.fill_means`.
    """
    slots, classes, out_lanes = out.shape
    _, longest, support_lanes = supports.chosen.shape
    lanes = len(products) * draws
    is_weighted = supports.weight is not None
    # Not read without weights
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
    _fill_logits[(triton.cdiv(lanes, BLOCK), classes)](
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
        support_lanes == lanes,  # whether each query has draws of its own
        reciprocal,
        is_weighted,
        BLOCK,
        enable_fp_fusion=False,
    )


LOG2_E = tl.constexpr(1.4426950408889634)
LN2_HIGH = tl.constexpr(6.93147180369123816490e-01)
LN2_LOW = tl.constexpr(1.90821492927058770002e-10)
ROUND = tl.constexpr(6755399441055744.0)
LOWEST = tl.constexpr(-708.0)
SQRT_HALF = tl.constexpr(0x3FE6A09E667F3BCD)
MANTISSA = tl.constexpr(0x000FFFFFFFFFFFFF)
# a_n of the lanes and classes that a tile has beyond the last
ABSENT = tl.constexpr(-1e300)
LARGEST_GAP = 700.0
TILE = 512  # numbers that one program has


@triton.jit
def _number(x):
    """Return a constant in float64."""
    return tl.full((), x, tl.float64)


@triton.jit
def exp(x):
    """Return eˣ for x ≤ 0, to the bit as `kernels.scores.exp`, which explains the steps."""
    x = tl.maximum(x, LOWEST)
    shifted = tl.fma(x, _number(LOG2_E), _number(ROUND))
    n = shifted - ROUND
    r = tl.fma(-n, _number(LN2_LOW), tl.fma(-n, _number(LN2_HIGH), x))
    z = r * r
    low = tl.fma(tl.fma(_number(1.0 / 6), r, _number(0.5)), z, 1.0 + r)
    middle = tl.fma(
        tl.fma(_number(1.0 / 5040), r, _number(1.0 / 720)),
        z,
        tl.fma(_number(1.0 / 120), r, _number(1.0 / 24)),
    )
    high = tl.fma(
        tl.fma(_number(1.0 / 39916800), r, _number(1.0 / 3628800)),
        z,
        tl.fma(_number(1.0 / 362880), r, _number(1.0 / 40320)),
    )
    fourth = z * z
    p = tl.fma(fourth, _number(1.0 / 479001600), high)
    p = tl.fma(fourth, tl.fma(fourth, p, middle), low)
    exponent = shifted.to(tl.int64, bitcast=True) << 52
    bits = exponent + p.to(tl.int64, bitcast=True)
    return bits.to(tl.float64, bitcast=True)


@triton.jit
def log1p(x):
    """Return log(1 + x) for 0 ≤ x < 2⁵⁰, to the bit as `kernels.scores.log1p` (explained there)."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u
    bits = u.to(tl.int64, bitcast=True) - SQRT_HALF
    e = (bits >> 52).to(tl.float64)
    m = ((bits & MANTISSA) + SQRT_HALF).to(tl.float64, bitcast=True)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = z * (1.0 / 21) + 1.0 / 19
    for i in tl.static_range(17, 1, -2):
        p = p * z + 1.0 / i
    tail = 2.0 * s * z * p
    return e * LN2_HIGH + (2.0 * s + (tail + (e * LN2_LOW + lost)))


@triton.jit
def _log_odds(a, top, second, leads, near, others):
    """Return the log-odds of each class: a_n − log Σ_{m≠n} exp a_m.

    `top` and `second` are the two largest a_n, `leads` says which class has the largest, `near` is
    exp(second − top), and `others` Σ exp(a_m − second) of the other classes without the leader.
    """
    rest = log1p(tl.where(leads, others - 1.0, near * others))
    reference = tl.where(leads, second, top)
    return a - reference - rest


@triton.jit
def _to_scores(
    table,
    wide,
    relevant,
    decisions,
    lanes,
    draws,
    classes,
    queries,
    RANKING: tl.constexpr,
    GRID: tl.constexpr,
    PAD: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Turn the logits of one shot and some lanes into scores, and store the decisions.

    `table` is (shots, classes, lanes); a lane is a query and a draw. With RANKING scores are odds,
    and log-odds in the draws that `wide` (shots, draws) marks; else they are log-odds. `relevant`
    is (classes, queries); for `decisions` see `to_scores`. The steps are those of `fill_shares`,
    `fill_odds` and `fill_log_odds` in `kernels/scores.py`. GRID is `grid_constant`, PAD the classes
    of a tile, of which those from `classes` on are not there.
    """
    s = tl.program_id(1).to(tl.int64)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    n = tl.arange(0, PAD)
    inside = (n[:, None] < classes) & valid[None, :]
    pointer = table + (s * classes + n[:, None]) * lanes + lane[None, :]
    a = tl.load(pointer, inside, ABSENT)
    top = tl.max(a, 0)
    leader = tl.argmax(a, 0)
    leads = n[:, None] == leader[None, :]
    second = tl.max(tl.where(leads, ABSENT, a), 0)[None, :]
    top = top[None, :]
    part = exp(tl.where(leads, LOWEST, a - second))
    near = exp(second - top)
    rounded = (part + GRID) - GRID
    total = tl.sum(rounded, 0)[None, :]
    others = total - rounded
    if RANKING:
        behind = near * part / (1.0 + near * others)
        score = tl.where(leads, 1.0 / (near * total), behind)
        is_wide = tl.load(wide + s * draws + lane % draws, valid, 0) != 0
        if tl.max(is_wide.to(tl.int32), 0) > 0:
            exact = _log_odds(a, top, second, leads, near, others)
            score = tl.where(is_wide[None, :], exact, score)
    else:
        score = _log_odds(a, top, second, leads, near, others)
    tl.store(pointer, score, inside)
    hit = tl.load(relevant + leader * queries + lane // draws, valid, 0)
    tl.store(decisions + s * lanes + lane, (2 * leader + hit).to(tl.int16), valid)


def to_scores(table: Tensor, relevant: Tensor, draws: int, *, ranking: bool) -> Tensor:
    """Turn logits (shots, classes, lanes) into scores in place; return decisions (shots, lanes).

    A decision is twice the number of a class, plus 1 if it is right. With `ranking` only the order
    inside each draw counts: odds serve, and log-odds where odds leave the range of floats.
    """
    shots, classes, lanes = table.shape
    queries = lanes // draws
    decisions = table.new_empty((shots, lanes), dtype=torch.int16)
    wide = decisions  # not read without ranking
    if ranking:
        # The largest difference of two logits in each draw says whether odds stay normal floats.
        gap = table.amax(1) - table.amin(1)
        gap = gap.reshape(shots, queries, draws).amax(1)
        wide = (gap >= LARGEST_GAP).to(torch.int8)
    pad = triton.next_power_of_2(classes)  # a tile has this many classes
    block = max(32, TILE // pad)  # lanes of a tile; a warp has 32
    _to_scores[(triton.cdiv(lanes, block), shots)](
        table,
        wide,
        relevant,
        decisions,
        lanes,
        draws,
        classes,
        queries,
        ranking,
        grid_constant(classes),
        pad,
        block,
        enable_fp_fusion=False,
    )
    return decisions
