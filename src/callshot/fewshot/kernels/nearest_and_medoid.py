"""(Products of queries and exemplars) → a_n by one exemplar of each class: the closest to the query, or the medoid.

a_n = 2 x·z − |x|² of that exemplar x, as if it were the class mean: with one exemplar all rules give the same bits. A
nested draw adds one exemplar: the closest is a running maximum, the medoid the least of running sums of distances, each
added up in the order of the draw, so that equal vectors have equal sums.

Distances inside a class are looked up in its block (flat, class n from block_start[n]) or, where `block` is empty,
measured on the vectors. Pools and row numbers are as in `supports`.
"""

import math

import numpy as np

from callshot.fewshot.kernels import formula, inner, kernel
from callshot.fewshot.kernels.shared import arrange_pool, shared_support
from callshot.fewshot.kernels.streams import below, enter
from callshot.fewshot.kernels.supports import dot, put_back


@formula
def a_by(product, square):
    """Return a_n by one exemplar: `product` is x·z, `square` is |x|²."""
    return 2.0 * product - square


@inner
def draw_from(order, stream, size, steps, distinct, chosen, swaps):
    """Fill chosen with one draw from a pool, in the order in which it comes; the pool is left as it was."""
    for i in range(steps):
        u = np.uint64(i)
        past = u if distinct else np.uint64(0)
        j = past + below(stream, u, size - past)
        new = order[j]
        if distinct:
            order[j], order[u], swaps[u] = order[u], new, j
        chosen[u] = new
    if distinct:
        put_back(order, swaps, steps)


@inner
def distance(x, y):
    """Return |x − y|."""
    total = 0.0
    for d in range(x.size):
        total += (x[d] - y[d]) * (x[d] - y[d])
    return math.sqrt(total)


@inner
def add_distances(block, start, side, vectors, column, chosen, i, sums):
    """Add the distances between the i-th exemplar and those before it to the sums of both."""
    new, own = chosen[i], 0.0
    if block.size > 0:
        row = start + new * side
        for m in range(i):
            away = block[row + chosen[m]]
            sums[m] += away
            own += away
    else:
        for m in range(i):
            away = distance(vectors[column + new], vectors[column + chosen[m]])
            sums[m] += away
            own += away
    sums[i] = own


@inner
def first_least(sums, size):
    """Return the place of the least of the first sums, the first of several."""
    at = 0
    for i in range(1, size):
        if sums[i] < sums[at]:
            at = i
    return at


@inner
def medoid_of(block, start, side, vectors, column, chosen, size, sums):
    """Return the medoid of a whole support."""
    for i in range(size):
        add_distances(block, start, side, vectors, column, chosen, i, sums)
    return chosen[first_least(sums, size)]


@kernel
def multiply(these, those, out):
    """Fill out[i, j] with the products of rows; equal ones give equal bits."""
    for i in range(these.shape[0]):
        for j in range(those.shape[0]):
            out[i, j] = dot(these[i], those[j])


@kernel
def nearest_own(
    first,
    last,
    base,
    query_key,
    class_key,
    cross,
    squares,
    class_start,
    pool,
    pool_start,
    shots,
    distinct,
    out,
):
    """Fill out[shot, n, q, r] with a_n by the closest exemplar, of the queries first … last − 1 of a fold.

    `cross` is (last − first, rows): their products with every row; `squares` are the squared lengths of the rows.
    """
    longest = shots[-1]
    chosen, swaps = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    order = np.empty(pool.size, np.uint64)
    for n in range(class_key.size):
        begin, end = pool_start[n], pool_start[n + 1]
        for i in range(begin, end):
            order[i - begin] = pool[i]
        column, size = np.uint64(class_start[n]), np.uint64(end - begin)
        steps = min(longest, end - begin) if distinct else longest
        for q in range(first, last):
            own = enter(base, query_key[q])
            products = cross[q - first]
            for r in range(out.shape[3]):
                draw_from(
                    order,
                    enter(enter(own, np.uint64(r)), class_key[n]),
                    size,
                    steps,
                    distinct,
                    chosen,
                    swaps,
                )
                best, shot = -np.inf, 0
                for i in range(steps):
                    row = column + chosen[i]
                    best = max(best, a_by(products[row], squares[row]))
                    if i + 1 == shots[shot]:
                        out[shot, n, q, r] = best
                        shot += 1
                for rest in range(shot, shots.size):
                    out[rest, n, q, r] = best


@kernel
def medoid_own(
    first,
    last,
    base,
    query_key,
    class_key,
    cross,
    squares,
    block,
    block_start,
    vectors,
    class_start,
    pool,
    pool_start,
    shots,
    distinct,
    out,
):
    """Fill out[shot, n, q, r] with a_n by the medoid, as `nearest_own` does by the closest."""
    longest = shots[-1]
    chosen, swaps = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    order, sums = np.empty(pool.size, np.uint64), np.empty(longest)
    for n in range(class_key.size):
        begin, end = pool_start[n], pool_start[n + 1]
        for i in range(begin, end):
            order[i - begin] = pool[i]
        column, start = np.uint64(class_start[n]), np.uint64(block_start[n])
        side, size = np.uint64(class_start[n + 1] - class_start[n]), np.uint64(end - begin)
        steps = min(longest, end - begin) if distinct else longest
        all_of_it = distinct and steps == end - begin
        whole = (
            medoid_of(block, start, side, vectors, column, order, steps, sums)
            if all_of_it
            else np.uint64(0)
        )
        for q in range(first, last):
            own = enter(base, query_key[q])
            products = cross[q - first]
            for r in range(out.shape[3]):
                draw_from(
                    order,
                    enter(enter(own, np.uint64(r)), class_key[n]),
                    size,
                    steps,
                    distinct,
                    chosen,
                    swaps,
                )
                shot = 0
                for i in range(steps):
                    add_distances(block, start, side, vectors, column, chosen, i, sums)
                    if i + 1 == shots[shot]:
                        row = column + chosen[first_least(sums, i + 1)]
                        out[shot, n, q, r] = a_by(products[row], squares[row])
                        shot += 1
                shot -= shot > 0 and all_of_it and shots[shot - 1] == steps
                for rest in range(
                    shot, shots.size
                ):  # the whole pool: one support set, whatever order it came in
                    row = column + whole
                    out[rest, n, q, r] = a_by(products[row], squares[row])


@kernel
def nearest_shared(
    base,
    first,
    class_key,
    fold,
    query_fold,
    cross,
    squares,
    class_start,
    shots,
    distinct,
    begin,
    out,
):
    """Fill out[d, shot, n, begin + q] with a_n by the closest exemplar, for the draws first, first + 1, …

    `cross` is (rows, queries): the products of every row with some queries of the fold.
    """
    longest = shots[-1]
    chosen = np.empty(longest, np.uint64)
    best = np.empty(cross.shape[1])
    for d in range(out.shape[0]):
        draw = enter(base, np.uint64(first + d))
        for n in range(class_key.size):
            folds, column = fold[class_start[n] : class_start[n + 1]], np.uint64(class_start[n])
            size = shared_support(
                enter(draw, class_key[n]), folds, query_fold, longest, distinct, chosen
            )
            for q in range(best.size):
                best[q] = -np.inf
            shot = 0
            for i in range(size):
                row = column + chosen[i]
                products, square = cross[row], squares[row]
                for q in range(best.size):
                    best[q] = max(best[q], a_by(products[q], square))
                if i + 1 == shots[shot]:
                    for q in range(best.size):
                        out[d, shot, n, begin + q] = best[q]
                    shot += 1
            for rest in range(shot, shots.size):
                for q in range(best.size):
                    out[d, rest, n, begin + q] = best[q]


@kernel
def medoid_shared(
    base,
    first,
    class_key,
    fold,
    query_fold,
    cross,
    squares,
    block,
    block_start,
    vectors,
    class_start,
    shots,
    distinct,
    begin,
    out,
):
    """Fill out[d, shot, n, begin + q] with a_n by the medoid, as `nearest_shared` does by the closest."""
    longest = shots[-1]
    chosen, sums = np.empty(longest, np.uint64), np.empty(longest)
    medoids = np.empty(shots.size, np.uint64)
    for d in range(out.shape[0]):
        draw = enter(base, np.uint64(first + d))
        for n in range(class_key.size):
            folds, column = fold[class_start[n] : class_start[n + 1]], np.uint64(class_start[n])
            start, side = np.uint64(block_start[n]), np.uint64(class_start[n + 1] - class_start[n])
            size = shared_support(
                enter(draw, class_key[n]), folds, query_fold, longest, distinct, chosen
            )
            shot = 0
            for i in range(size):
                add_distances(block, start, side, vectors, column, chosen, i, sums)
                if i + 1 == shots[shot]:
                    medoids[shot] = chosen[first_least(sums, i + 1)]
                    shot += 1
            if distinct and arrange_pool(folds, query_fold, size, chosen):
                shot -= shot > 0 and shots[shot - 1] == size
                whole = medoid_of(block, start, side, vectors, column, chosen, size, sums)
                for rest in range(shot, shots.size):
                    medoids[rest] = whole
            for s in range(shots.size):
                row = column + medoids[s]
                products, square = cross[row], squares[row]
                for q in range(cross.shape[1]):
                    out[d, s, n, begin + q] = a_by(products[q], square)
