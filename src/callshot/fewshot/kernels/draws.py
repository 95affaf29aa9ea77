"""(One order of exemplars, products of vectors) → a_n of all queries of a fold, for each draw.

In the spread `shared` an order is a random permutation, and every exemplar has weight 1. In
`total` the order is given, and the mean of a class is weighted. Sums run over queries in the
innermost loop, where products lie side by side.
"""

import math
from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import Array, inner, kernel
from callshot.fewshot.kernels.streams import below, enter
from callshot.fewshot.kernels.supports import (
    COSINE,
    MEDOID,
    NEAREST,
    class_rows,
    distance,
    dot,
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
def choose_by_stream(stream, order, swaps, outside, steps, distinct, chosen):
    """Fill `chosen` with the first members of a random order that are outside the fold.

    `order` holds the members, and has the same order again in the end; `swaps` is scratch.
    """
    count = 0
    i = np.uint64(0)
    while count < steps:
        past = i if distinct else np.uint64(0)
        j = past + below(stream, i, np.uint64(order.size) - past)
        new = order[j]
        if distinct:  # Fisher-Yates: the chosen one goes to the front
            order[j] = order[i]
            order[i] = new
            swaps[i] = j
        i += np.uint64(1)
        if outside[new]:
            chosen[np.uint64(count)] = new
            count += 1
    while distinct and i > 0:  # back to the order of the members
        i -= np.uint64(1)
        new = order[i]
        order[i] = order[swaps[i]]
        order[swaps[i]] = new


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
def choose_pool(outside, chosen):
    """Fill `chosen` with all members outside the fold."""
    count = 0
    for m in range(outside.size):
        if outside[m]:
            chosen[count] = m
            count += 1


@inner
def sum_entries(matrix, row, chosen, share, size):
    """Sum a row of a matrix over the chosen columns, weighted, in four independent chains."""
    s0 = 0.0
    s1 = 0.0
    s2 = 0.0
    s3 = 0.0
    whole = size - size % 4
    for i in range(0, whole, 4):
        s0 += share[i] * matrix[row, chosen[i]]
        s1 += share[i + 1] * matrix[row, chosen[i + 1]]
        s2 += share[i + 2] * matrix[row, chosen[i + 2]]
        s3 += share[i + 3] * matrix[row, chosen[i + 3]]
    for i in range(whole, size):
        s0 += share[i] * matrix[row, chosen[i]]
    return (s0 + s1) + (s2 + s3)


@inner
def fill_squares(
    vectors, lengths, matrix, chosen, share, steps, limits, total, squares
):
    """Fill squares[s] with |Σ w x|² over the first limits[s] of the chosen exemplars.

    Without a Gram matrix it is computed from the vectors; `total` is scratch for their sum.
    """
    has_matrix = matrix.size > 0
    total[: vectors.shape[1]] = 0.0
    square = 0.0
    shot = 0
    for i in range(steps):
        new = chosen[i]
        weight = share[i]
        if has_matrix:
            product = sum_entries(matrix, new, chosen, share, i)
        else:
            x = vectors[new]
            product = dot(x, total)
            for d in range(x.size):
                total[d] += weight * x[d]
        square += weight * (2.0 * product + weight * lengths[new])
        if i + 1 == limits[shot]:
            squares[shot] = square
            shot += 1


@inner
def fill_medoids(vectors, matrix, chosen, share, steps, limits, sums, medoids):
    """Fill medoids[s] with the medoid of the first limits[s] exemplars, the first of equal ones.

    `sums` is scratch: the weighted distances from each exemplar to the others, added up in drawing
    order, so that equal vectors have equal sums.
    """
    shot = 0
    for i in range(steps):
        new = chosen[i]
        total = 0.0
        for m in range(i):
            if matrix.size > 0:
                away = matrix[new, chosen[m]]
            else:
                away = distance(vectors[new], vectors[chosen[m]])
            sums[m] += share[i] * away
            total += share[m] * away
        sums[i] = total
        if i + 1 == limits[shot]:
            least = 0
            for m in range(1, i + 1):
                if sums[m] < sums[least]:
                    least = m
            medoids[shot] = chosen[least]
            shot += 1


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
            largest[q] = max(largest[q], 2.0 * row[q] - length)
        if i + 1 == limits[shot]:
            line = out[shot]
            for q in range(queries):
                line[q] = largest[q]
            shot += 1


@kernel
def score_draws(sampling, rows, members, stream, first, order, products, out):
    """Fill out[d, shot, n, q] with a_n of the queries of a fold by draw first + d.

    `products` is (rows, queries). Where shots leave no choice of exemplars, the support is the
    pool, in its own order: one set, whatever the draw.
    """
    class_key, shots, distinct = sampling
    rule = rows.rule
    draws, _, _, queries = out.shape
    weighted = order.weight.shape[0] > 0
    longest = max(shots[-1], members.rows.size)
    chosen = np.empty(longest, np.uint64)
    swaps = np.empty(longest, np.uint64)
    share = np.ones(longest)
    sums = np.empty(max(longest, rows.vectors.shape[1]))
    squares = np.empty(shots.size)
    medoids = np.empty(shots.size, np.uint64)
    totals = np.empty(queries)
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
        for d in range(draws):
            for whole in range(2):  # first the shots with a choice, then the pool
                if whole and drawn == shots.size:
                    continue
                if whole and d > 0 and not weighted:
                    out[d, drawn:, n] = out[0, drawn:, n]
                    continue
                if whole:
                    steps = size
                    pool_limit[0] = size
                    limits = pool_limit
                    lines = out[d, drawn : drawn + 1, n]
                    choose_pool(outside, chosen)
                else:
                    steps = last
                    limits = shots
                    lines = out[d, :drawn, n]
                    if weighted:
                        rank = order.rank[d, begin:end]
                        choose_in_order(rank, outside, steps, chosen)
                    else:
                        key = enter(enter(stream, np.uint64(first + d)), class_key[n])
                        choose_by_stream(
                            key, member_rows, swaps, outside, steps, distinct, chosen
                        )
                if weighted:
                    for i in range(steps):
                        share[i] = order.weight[d, begin + np.int64(chosen[i])]
                if rule == NEAREST:
                    fill_nearest(product, lengths, chosen, steps, limits, totals, lines)
                elif rule == MEDOID:
                    fill_medoids(
                        vectors, matrix, chosen, share, steps, limits, sums, medoids
                    )
                    for s in range(lines.shape[0]):
                        new = medoids[s]
                        for q in range(queries):
                            lines[s, q] = 2.0 * product[new, q] - lengths[new]
                else:
                    fill_squares(
                        vectors,
                        lengths,
                        matrix,
                        chosen,
                        share,
                        steps,
                        limits,
                        sums,
                        squares,
                    )
                    fill_means(
                        product,
                        chosen,
                        share,
                        steps,
                        limits,
                        squares,
                        rule == COSINE,
                        totals,
                        lines,
                    )
                if whole:
                    for s in range(drawn + 1, shots.size):
                        out[d, s, n] = out[d, drawn, n]
