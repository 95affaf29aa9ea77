"""Vectors → products with the queries, and products or distances inside each class.

Each distinct vector is multiplied once, as on the CPU, so that equal rows give equal bits. Matrices
of classes are symmetric: only their lower triangles are stored.
"""

from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl

Tensor = Any

BLOCK = 1024
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
            BLOCK,
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
