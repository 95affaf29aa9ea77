"""(One order of exemplars, products of vectors) → a_n of all queries of a fold, for each draw.

In the spread `shared` an order is a random permutation, and every exemplar has weight 1. In
`total` the order is given, and the mean of a class is weighted. Sums run over queries in the
innermost loop, where products lie side by side.
"""

import math
from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import Array, inner, kernel
from callshot.fewshot.kernels.streams import enter
from callshot.fewshot.kernels.supports import (
    COSINE,
    MEDOID,
    NEAREST,
    choose_by_stream,
    choose_pool,
    class_rows,
    exemplar_evidence,
    fill_medoids,
    fill_squares,
    longest_draw,
)


class Order(NamedTuple):
    """The exemplars of some draws in order, by number inside the class, and their weights.

    Both are (draws, rows). Without a row the kernel draws permutations from a stream, and all
    weights are 1.
    """

    rank: Array
    weight: Array


@inner
def choose_in_order(rank, outside, steps, chosen):
    """Fill `chosen` with the first members of a given order that are outside the fold."""
    count = 0
    i = 0
    while count < steps:
        new = np.uint64(rank[i])
        i += 1
        if outside[new]:
            chosen[count] = new
            count += 1


@inner
def fill_means(product, chosen, share, steps, limits, squares, cosine, total, out):
    """Fill out[s, q] with a_n by the weighted mean of the first limits[s] exemplars."""
    queries = out.shape[1]
    for q in range(queries):
        total[q] = 0.0
    size = 0.0
    shot = 0
    for i in range(steps):
        row = product[chosen[i]]
        weight = share[i]
        size += weight
        for q in range(queries):
            total[q] += weight * row[q]
        if i + 1 == limits[shot]:
            line = out[shot]
            square = squares[shot]
            if cosine:
                length = math.sqrt(square) if square > 0.0 else np.inf
                for q in range(queries):
                    line[q] = min(max(total[q] / length, -1.0), 1.0)
            else:
                factor = 1.0 / size
                offset = square / (size * size)
                for q in range(queries):
                    line[q] = 2.0 * (total[q] * factor) - offset
            shot += 1


@inner
def fill_nearest(product, lengths, chosen, steps, limits, largest, out):
    """Fill out[s, q] with a_n by the nearest of the first limits[s] exemplars."""
    queries = out.shape[1]
    for q in range(queries):
        largest[q] = -np.inf
    shot = 0
    for i in range(steps):
        new = chosen[i]
        row = product[new]
        length = lengths[new]
        for q in range(queries):
            largest[q] = max(largest[q], exemplar_evidence(row[q], length))
        if i + 1 == limits[shot]:
            line = out[shot]
            for q in range(queries):
                line[q] = largest[q]
            shot += 1


@inner
def score_support(
    rule, vectors, lengths, matrix, product, chosen, share, steps, limits, sums, out
):
    """Fill out[s, q] with a_n of every query by the first limits[s] of the chosen exemplars.

    `chosen` are rows of the other arrays, `share` their weights; `sums` is scratch.
    """
    shots, queries = out.shape
    totals = np.empty(queries)
    if rule == NEAREST:
        fill_nearest(product, lengths, chosen, steps, limits, totals, out)
    elif rule == MEDOID:
        medoids = np.empty(shots, np.uint64)
        fill_medoids(vectors, matrix, chosen, share, steps, limits, sums, medoids)
        for s in range(shots):
            new = medoids[s]
            for q in range(queries):
                out[s, q] = exemplar_evidence(product[new, q], lengths[new])
    else:
        squares = np.empty(shots)
        fill_squares(
            vectors, lengths, matrix, chosen, share, steps, limits, sums, squares
        )
        cosine = rule == COSINE
        fill_means(product, chosen, share, steps, limits, squares, cosine, totals, out)


@inner
def gather(values, chosen, steps, out):
    """Fill out with the values of the chosen rows."""
    for i in range(steps):
        out[i] = values[chosen[i]]


@inner
def repeat_line(lines):
    """Copy the first line into the others."""
    for s in range(1, lines.shape[0]):
        for q in range(lines.shape[1]):
            lines[s, q] = lines[0, q]


@kernel
def score_draws(sampling, rows, members, stream, first, order, products, out):
    """Fill out[d, shot, n, q] with a_n of the queries of a fold by draw first + d.

    `products` is (rows, queries). Where shots leave no choice of exemplars, the support is the
    pool, in its own order: one set, whatever the draw.
    """
    class_key, shots, distinct = sampling
    rule = rows.rule
    draws = out.shape[0]
    is_weighted = order.weight.shape[0] > 0
    longest = max(shots[-1], members.rows.size)
    pool = np.empty(longest, np.uint64)
    chosen = np.empty(longest, np.uint64)
    swaps = np.empty(longest, np.uint64)
    share = np.ones(longest)
    sums = np.empty(max(longest, rows.vectors.shape[1]))
    pool_limit = np.empty(1, np.int64)
    for n in range(class_key.size):
        begin = rows.class_start[n]
        end = rows.class_start[n + 1]
        vectors, lengths, matrix = class_rows(rows, n)
        product = products[begin:end]
        outside = members.outside[begin:end]
        member_rows = members.rows[members.start[n] : members.start[n + 1]].copy()
        size = np.sum(outside)
        drawn, last = longest_draw(shots, size, distinct)
        pool_limit[0] = size
        choose_pool(outside, pool)
        for d in range(draws):
            if is_weighted:
                choose_in_order(order.rank[d, begin:end], outside, last, chosen)
                gather(order.weight[d, begin:end], chosen, last, share)
            else:
                key = enter(enter(stream, np.uint64(first + d)), class_key[n])
                choose_by_stream(
                    key, member_rows, swaps, outside, last, distinct, chosen
                )
            score_support(
                rule,
                vectors,
                lengths,
                matrix,
                product,
                chosen,
                share,
                last,
                shots,
                sums,
                out[d, :drawn, n],
            )
            if drawn == shots.size:
                continue
            if d > 0 and not is_weighted:
                out[d, drawn:, n] = out[0, drawn:, n]
                continue
            if is_weighted:
                gather(order.weight[d, begin:end], pool, size, share)
            score_support(
                rule,
                vectors,
                lengths,
                matrix,
                product,
                pool,
                share,
                size,
                pool_limit,
                sums,
                out[d, drawn : drawn + 1, n],
            )
            repeat_line(out[d, drawn:, n])
