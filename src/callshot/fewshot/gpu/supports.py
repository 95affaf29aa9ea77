"""(Supports, vectors) → products, and a_n of every draw and shot, for all rules.

Each distinct vector is multiplied once, as on the CPU, so that equal rows give equal bits. Matrices
of classes are symmetric: only their lower triangles are stored. Sums run over the exemplars in the
order of the draw, as on the CPU: products inside a support in four chains, everything else in one.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

from callshot.fewshot.gpu.draws import Supports

Tensor = Any

PACK_BLOCK = 1024
TABLE_BYTES = 2**29  # of the products that are computed at a time


class Distinct(NamedTuple):
    """Each distinct vector once, and the number of the one that every row has.

    `number` is None where all rows differ.
    """

    vectors: Tensor
    number: Tensor | None


@triton.jit
def _pack_rows(
    table,
    rows,
    place,
    squares,
    out,
    first,
    width,
    DISTANCE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Copy the lower triangle of some rows; table is (distinct from `first` on, distinct)."""
    r = tl.load(rows + tl.program_id(0)).to(tl.int64)
    left = tl.load(place + r)
    out += r * (r + 1) // 2
    for begin in range(0, r + 1, BLOCK):
        c = begin + tl.arange(0, BLOCK)
        valid = c <= r
        right = tl.load(place + c, valid, 0)
        value = tl.load(table + (left - first) * width + right, valid, 0.0)
        if DISTANCE:
            both = tl.load(squares + left) + tl.load(squares + right, valid, 0.0)
            square = tl.maximum(-2.0 * value + both, 0.0)
            value = tl.where(left == right, 0.0, tl.sqrt(square))
        tl.store(out + c, value, valid)


def triangle_size(side: int) -> int:
    """Return how many entries the lower triangle of a matrix has."""
    return side * (side + 1) // 2


def class_matrices(
    distinct: Distinct, class_start: Sequence[int], *, distances: bool
) -> tuple[Tensor, Tensor]:
    """Return the triangles of products or distances inside each class, and where each begins."""
    sizes = [end - begin for begin, end in pairwise(class_start)]
    starts = [0]
    for size in sizes:
        starts.append(starts[-1] + triangle_size(size))
    device = distinct.vectors.device
    matrix = torch.empty(starts[-1], dtype=torch.float64, device=device)
    for n, begin in enumerate(class_start[:-1]):
        span = slice(begin, begin + sizes[n])
        _fill_triangle(distinct, span, matrix[starts[n] : starts[n + 1]], distances)
    return matrix, torch.tensor(starts[:-1], device=device)


def _fill_triangle(
    distinct: Distinct, span: slice, out: Tensor, distances: bool
) -> None:
    vectors, place = distinct_at(distinct, span)
    count = len(vectors)
    squares = (vectors * vectors).sum(1)
    step = max(1, TABLE_BYTES // (8 * max(count, 1)))
    for first in range(0, count, step):
        table = vectors[first : first + step] @ vectors.T
        is_here = (place >= first) & (place < first + step)
        rows = (
            is_here.nonzero()[:, 0]
            if count > step
            else torch.arange(len(place), device=place.device)
        )
        _pack_rows[(len(rows),)](
            table,
            rows,
            place,
            squares,
            out,
            first,
            count,
            distances,
            PACK_BLOCK,
            enable_fp_fusion=False,
        )


def distinct_at(distinct: Distinct, span: slice) -> tuple[Tensor, Tensor]:
    """Return the distinct vectors of some rows, and the number of the one that each row has."""
    if distinct.number is None:
        vectors = distinct.vectors[span]
        return vectors, torch.arange(len(vectors), device=vectors.device)
    numbers, place = torch.unique(distinct.number[span], return_inverse=True)
    return distinct.vectors[numbers], place


def multiply_queries(queries: Distinct, rows: Distinct) -> Tensor:
    """Return the products of queries with all rows, (queries, rows)."""
    table = queries.vectors @ rows.vectors.T
    if queries.number is not None:
        table = table[queries.number]
    if rows.number is not None:
        table = table[:, rows.number]
    return table.contiguous()


BLOCK = 128
MEAN = 0
COSINE = 1
NEAREST = 2
MEDOID = 3


class ClassRows(NamedTuple):
    """The rows of all classes, and what a rule looks up about them.

    `squares` are squared lengths. `matrix` holds the lower triangle of each class's products or
    distances, row by row, that of class n from matrix_start[n]; entry (i, j) is at
    i (i + 1) / 2 + j.
    """

    rule: int
    class_start: Tensor
    squares: Tensor
    matrix: Tensor
    matrix_start: Tensor


@triton.jit
def _entry(matrix, i, j, valid):
    """Load entry (i, j) of a symmetric matrix from its lower triangle."""
    row = tl.maximum(i, j).to(tl.int64)
    column = tl.minimum(i, j)
    return tl.load(matrix + row * (row + 1) // 2 + column, valid, 0.0)


@triton.jit
def _weighted_entry(
    matrix, new, chosen, weight, m, lanes, valid, WEIGHTED: tl.constexpr
):
    """Load the product of the new exemplar with number m of the support, times its weight."""
    other = tl.load(chosen + m * lanes, valid, 0)
    value = _entry(matrix, new, other, valid)
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
    n = tl.program_id(1).to(tl.int64)
    classes = tl.num_programs(1)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    chosen += n * longest * lanes + lane
    weight += n * longest * lanes + lane
    lengths += tl.load(class_start + n)
    matrix += tl.load(matrix_start + n)
    out += n * lanes + lane
    square = tl.zeros((BLOCK,), tl.float64)
    for i in range(tl.load(steps + n)):
        new = tl.load(chosen + i * lanes, valid, 0)
        s0 = tl.zeros((BLOCK,), tl.float64)
        s1 = tl.zeros((BLOCK,), tl.float64)
        s2 = tl.zeros((BLOCK,), tl.float64)
        s3 = tl.zeros((BLOCK,), tl.float64)
        whole = i - i % 4
        for m in range(0, whole, 4):
            s0 += _weighted_entry(
                matrix, new, chosen, weight, m, lanes, valid, WEIGHTED
            )
            s1 += _weighted_entry(
                matrix, new, chosen, weight, m + 1, lanes, valid, WEIGHTED
            )
            s2 += _weighted_entry(
                matrix, new, chosen, weight, m + 2, lanes, valid, WEIGHTED
            )
            s3 += _weighted_entry(
                matrix, new, chosen, weight, m + 3, lanes, valid, WEIGHTED
            )
        for m in range(whole, i):
            s0 += _weighted_entry(
                matrix, new, chosen, weight, m, lanes, valid, WEIGHTED
            )
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
def _fill_medoids(
    chosen,
    weight,
    steps,
    slot,
    matrix,
    matrix_start,
    sums,
    out,
    lanes,
    longest,
    WEIGHTED: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Fill out[slot, n, lane] with the medoid; `sums` is scratch, like `chosen` in shape."""
    n = tl.program_id(1).to(tl.int64)
    classes = tl.num_programs(1)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    chosen += n * longest * lanes + lane
    weight += n * longest * lanes + lane
    sums += n * longest * lanes + lane
    matrix += tl.load(matrix_start + n)
    out += n * lanes + lane
    for i in range(tl.load(steps + n)):
        new = tl.load(chosen + i * lanes, valid, 0)
        total = tl.zeros((BLOCK,), tl.float64)
        for m in range(i):
            other = tl.load(chosen + m * lanes, valid, 0)
            away = _entry(matrix, new, other, valid)
            before = tl.load(sums + m * lanes, valid, 0.0)
            if WEIGHTED:
                share = tl.load(weight + i * lanes, valid, 0.0)
                tl.store(sums + m * lanes, before + share * away, valid)
                total += tl.load(weight + m * lanes, valid, 0.0) * away
            else:
                tl.store(sums + m * lanes, before + away, valid)
                total += away
        tl.store(sums + i * lanes, total, valid)
        tl.debug_barrier()
        row = tl.load(slot + n * longest + i)
        if row >= 0:
            least = tl.load(sums, valid, 0.0)
            medoid = tl.load(chosen, valid, 0)
            for m in range(1, i + 1):
                value = tl.load(sums + m * lanes, valid, 0.0)
                other = tl.load(chosen + m * lanes, valid, 0)
                medoid = tl.where(value < least, other, medoid)
                least = tl.minimum(value, least)
            tl.store(out + row.to(tl.int64) * classes * lanes, medoid, valid)


@triton.jit
def _mean_evidence(total, square, size, COSINE: tl.constexpr, RECIPROCAL: tl.constexpr):
    """Return a_n from the sums over a support, with the roundings of the CPU's two kernels."""
    if COSINE:
        length = tl.sqrt(tl.where(square > 0.0, square, 1.0))
        value = tl.minimum(tl.maximum(total / length, -1.0), 1.0)
        value = tl.where(square > 0.0, value, 0.0)
    elif RECIPROCAL:
        value = 2.0 * (total * (1.0 / size)) - square / (size * size)
    else:
        value = 2.0 * (total / size) - square / (size * size)
    return value


@triton.jit
def _fill_evidence(
    chosen,
    weight,
    steps,
    slot,
    class_start,
    lengths,
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
    RULE: tl.constexpr,
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
    begin = tl.load(class_start + n)
    lengths += begin
    products += (lane // draws) * rows + begin
    out += n * out_lanes + first_lane + lane
    total = tl.zeros((BLOCK,), tl.float64)
    largest = tl.full((BLOCK,), -float("inf"), tl.float64)
    size = tl.zeros((BLOCK,), tl.float64)
    for i in range(tl.load(steps + n)):
        new = tl.load(chosen + i * support_lanes, valid, 0)
        product = tl.load(products + new, valid, 0.0)
        if RULE == 2:
            length = tl.load(lengths + new, valid, 0.0)
            largest = tl.maximum(largest, 2.0 * product - length)
        elif WEIGHTED:
            share = tl.load(weight + i * support_lanes, valid, 1.0)
            size += share
            total += share * product
        else:
            size += 1.0
            total += product
        row = tl.load(slot + n * longest + i).to(tl.int64)
        if row >= 0:
            value = largest
            if RULE != 2:
                square = tl.load(squares + row * classes * support_lanes, valid, 1.0)
                value = _mean_evidence(total, square, size, RULE == 1, RECIPROCAL)
            tl.store(out + row * classes * out_lanes, value, valid)


@triton.jit
def _fill_medoid_evidence(
    medoids,
    steps,
    slot,
    class_start,
    lengths,
    products,
    out,
    lanes,
    draws,
    first_lane,
    out_lanes,
    rows,
    longest,
    support_lanes,
    PER_QUERY: tl.constexpr,
    BLOCK: tl.constexpr,
):
    n = tl.program_id(1).to(tl.int64)
    classes = tl.num_programs(1)
    lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    valid = lane < lanes
    source = lane if PER_QUERY else lane % draws
    begin = tl.load(class_start + n)
    products += (lane // draws) * rows + begin
    for i in range(tl.load(steps + n)):
        row = tl.load(slot + n * longest + i).to(tl.int64)
        if row >= 0:
            place = (row * classes + n) * support_lanes + source
            new = tl.load(medoids + place, valid, 0)
            length = tl.load(lengths + begin + new, valid, 0.0)
            value = 2.0 * tl.load(products + new, valid, 0.0) - length
            place = (row * classes + n) * out_lanes + first_lane + lane
            tl.store(out + place, value, valid)


def fill_evidence(
    supports: Supports,
    rows: ClassRows,
    products: Tensor,
    draws: int,
    first_lane: int,
    reciprocal: bool,
    out: Tensor,
) -> None:
    """Fill out[slot, n, first_lane …] with a_n of the queries that `products` (queries, rows) has.

    Supports are those of each query, or, with one lane per draw, those of all queries.
    `reciprocal`: means are sums times 1 / size, as in `draws.fill_means`.
    """
    lanes = len(products) * draws
    longest = supports.chosen.shape[1]
    summary = summarise_supports(supports, rows, out.shape[0])
    weighted = supports.weight is not None
    grid = (triton.cdiv(lanes, BLOCK), out.shape[1])
    sizes = (lanes, draws, first_lane, out.shape[2], products.shape[1], longest)
    per_query = supports.lanes == lanes
    if rows.rule == MEDOID:
        _fill_medoid_evidence[grid](
            summary,
            supports.steps,
            supports.slot,
            rows.class_start,
            rows.squares,
            products,
            out,
            *sizes,
            supports.lanes,
            per_query,
            BLOCK,
            enable_fp_fusion=False,
        )
        return
    _fill_evidence[grid](
        supports.chosen,
        supports.weight if weighted else rows.squares,
        supports.steps,
        supports.slot,
        rows.class_start,
        rows.squares,
        products,
        summary,
        out,
        *sizes,
        supports.lanes,
        rows.rule,
        per_query,
        reciprocal,
        weighted,
        BLOCK,
        enable_fp_fusion=False,
    )


def summarise_supports(supports: Supports, rows: ClassRows, slots: int) -> Tensor:
    """Return |Σ w x|² or the medoid of every support, (slots, classes, lanes)."""
    classes, longest, lanes = supports.chosen.shape
    weighted = supports.weight is not None
    device = supports.chosen.device
    grid = (triton.cdiv(lanes, BLOCK), classes)
    weight = supports.weight if weighted else rows.squares
    if rows.rule == NEAREST:
        return rows.squares
    if rows.rule == MEDOID:
        out = torch.empty((slots, classes, lanes), dtype=torch.int32, device=device)
        sums = torch.empty(supports.chosen.shape, dtype=torch.float64, device=device)
        _fill_medoids[grid](
            supports.chosen,
            weight,
            supports.steps,
            supports.slot,
            rows.matrix,
            rows.matrix_start,
            sums,
            out,
            lanes,
            longest,
            weighted,
            BLOCK,
            enable_fp_fusion=False,
        )
        return out
    out = torch.empty((slots, classes, lanes), dtype=torch.float64, device=device)
    _fill_squares[grid](
        supports.chosen,
        weight,
        supports.steps,
        supports.slot,
        rows.class_start,
        rows.squares,
        rows.matrix,
        rows.matrix_start,
        out,
        lanes,
        longest,
        weighted,
        BLOCK,
        enable_fp_fusion=False,
    )
    return out
