"""(Gram matrix or vectors, pools) → a_n of every draw and shot, by the mean of each class's support.

a_n = 2 c_n·z − |c_n|², or the cosine of c_n and z, needs only products of embeddings: c_n·z is the mean of the query's
products with the support, |c_n|² the mean of the products inside the support. A nested draw adds one exemplar and its
products to the sums, so a whole sweep 1..k costs k²/2 look-ups in the class's block of the Gram matrix, whatever the
dimension.

A pool is the exemplars of one class outside one fold, as row numbers inside the class, in the order of their ids.
Row numbers are unsigned here: a signed index costs numba a test for negative ones, and the loop its vectors.
"""

import math

import numpy as np

from callshot.fewshot.kernels import formula, inner, kernel
from callshot.fewshot.kernels.streams import below, enter


@inner
def put_back(pool, swaps, size):
    """Undo the swaps of a draw, so that the next one starts from the same order."""
    for back in range(size - 1, -1, -1):
        i = np.uint64(back)
        j = swaps[i]
        chosen = pool[i]
        pool[i] = pool[j]
        pool[j] = chosen


@inner
def sum_at(block, row, chosen, size):
    """Sum the row that starts at block[row] at the chosen places, in four chains: none waits for the last."""
    s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
    whole = size - size % 4
    for i in range(0, whole, 4):
        s0 += block[row + chosen[i]]
        s1 += block[row + chosen[i + 1]]
        s2 += block[row + chosen[i + 2]]
        s3 += block[row + chosen[i + 3]]
    for i in range(whole, size):
        s0 += block[row + chosen[i]]
    return (s0 + s1) + (s2 + s3)


@inner
def dot(x, y):
    """Return x·y, in eight chains."""
    s0, s1, s2, s3, s4, s5, s6, s7 = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    whole = x.size - x.size % 8
    for i in range(0, whole, 8):
        s0 += x[i] * y[i]
        s1 += x[i + 1] * y[i + 1]
        s2 += x[i + 2] * y[i + 2]
        s3 += x[i + 3] * y[i + 3]
        s4 += x[i + 4] * y[i + 4]
        s5 += x[i + 5] * y[i + 5]
        s6 += x[i + 6] * y[i + 6]
        s7 += x[i + 7] * y[i + 7]
    for i in range(whole, x.size):
        s0 += x[i] * y[i]
    return ((s0 + s1) + (s2 + s3)) + ((s4 + s5) + (s6 + s7))


@formula
def a_of(inner, square, size, cosine):
    """Return a_n from the two sums over a support of `size` exemplars: 2 c·z − |c|², or the cosine (z of length 1).

    A mean without a direction has the cosine 0; what is left of one by rounding has one between −1 and 1.
    """
    if cosine:
        return min(max(inner / math.sqrt(square), -1.0), 1.0) if square > 0.0 else 0.0
    return 2.0 * (inner / size) - square / (size * size)


@kernel
def queries_by_gram(
    first,
    last,
    base,
    query_key,
    class_key,
    cross,
    block,
    block_start,
    class_start,
    pool,
    pool_start,
    shots,
    distinct,
    cosine,
    out,
):
    """Fill out[shot, n, q, r] with a_n of the queries first … last − 1 of a fold.

    `cross` is (queries, rows): their products with every row; `block` holds the Gram matrix of each class, flat, class
    n from block_start[n]; class n's pool is pool[pool_start[n] : pool_start[n + 1]].
    """
    longest = shots[-1]
    chosen, swaps = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    order = np.empty(pool.size, np.uint64)
    for n in range(class_key.size):
        begin, end = pool_start[n], pool_start[n + 1]
        for i in range(begin, end):
            order[i - begin] = pool[i]
        column, start = np.uint64(class_start[n]), np.uint64(block_start[n])
        side, size = np.uint64(class_start[n + 1] - class_start[n]), np.uint64(end - begin)
        steps = min(longest, end - begin) if distinct else longest
        all_of_it = distinct and steps == end - begin
        for q in range(first, last):
            own = enter(base, query_key[q])
            whole = 0.0
            for r in range(
                -1 if all_of_it else 0, out.shape[3]
            ):  # −1: the pool in its own order, which is no draw
                stream = enter(enter(own, np.uint64(r)), class_key[n])
                inner_sum, square, shot = 0.0, 0.0, 0
                for i in range(steps):
                    u = np.uint64(i)
                    past = u if distinct else np.uint64(0)
                    j = u if r < 0 else past + below(stream, u, size - past)
                    new = order[j]
                    if distinct:  # Fisher-Yates: the chosen one goes to the front
                        order[j], order[u], swaps[u] = order[u], new, j
                    row = start + new * side
                    square += 2.0 * sum_at(block, row, chosen, i) + block[row + new]
                    inner_sum += cross[q, column + new]
                    chosen[u] = new
                    if r >= 0 and i + 1 == shots[shot]:
                        out[shot, n, q, r] = a_of(inner_sum, square, i + 1, cosine)
                        shot += 1
                if r < 0:
                    whole = a_of(inner_sum, square, steps, cosine)
                    continue
                shot -= shot > 0 and all_of_it and shots[shot - 1] == steps
                for rest in range(
                    shot, shots.size
                ):  # the whole pool: one support set, whatever order it came in
                    out[rest, n, q, r] = whole
                if distinct:
                    put_back(order, swaps, steps)


@kernel
def queries_directly(
    first,
    last,
    base,
    query_key,
    class_key,
    query,
    vectors,
    squares,
    class_start,
    pool,
    pool_start,
    shots,
    distinct,
    cosine,
    out,
):
    """Do what `queries_by_gram` does without a Gram matrix: three passes over the dimensions for each exemplar.

    `query` is (queries, dimensions), `vectors` those of every row, `squares` their squared lengths.
    """
    longest = shots[-1]
    swaps = np.empty(longest, np.uint64)
    order = np.empty(pool.size, np.uint64)
    total = np.empty(query.shape[1])
    for n in range(class_key.size):
        begin, end = pool_start[n], pool_start[n + 1]
        for i in range(begin, end):
            order[i - begin] = pool[i]
        start, size = np.uint64(class_start[n]), np.uint64(end - begin)
        steps = min(longest, end - begin) if distinct else longest
        all_of_it = distinct and steps == end - begin
        for q in range(first, last):
            own = enter(base, query_key[q])
            whole = 0.0
            for r in range(-1 if all_of_it else 0, out.shape[3]):
                stream = enter(enter(own, np.uint64(r)), class_key[n])
                inner_sum, square, shot = 0.0, 0.0, 0
                for d in range(total.size):
                    total[d] = 0.0
                for i in range(steps):
                    u = np.uint64(i)
                    past = u if distinct else np.uint64(0)
                    j = u if r < 0 else past + below(stream, u, size - past)
                    new = order[j]
                    if distinct:
                        order[j], order[u], swaps[u] = order[u], new, j
                    row = vectors[start + new]
                    square += 2.0 * dot(total, row) + squares[start + new]
                    inner_sum += dot(query[q], row)
                    for d in range(total.size):
                        total[d] += row[d]
                    if r >= 0 and i + 1 == shots[shot]:
                        out[shot, n, q, r] = a_of(inner_sum, square, i + 1, cosine)
                        shot += 1
                if r < 0:
                    whole = a_of(inner_sum, square, steps, cosine)
                    continue
                shot -= shot > 0 and all_of_it and shots[shot - 1] == steps
                for rest in range(shot, shots.size):
                    out[rest, n, q, r] = whole
                if distinct:
                    put_back(order, swaps, steps)


@kernel
def draw_positions(stream, size, k, distinct):
    """Return the places in a pool of one draw: what the kernels above pick, alone."""
    places = np.arange(size)
    steps = min(k, size) if distinct else k
    out = np.empty(steps, np.int64)
    for i in range(steps):
        past = np.uint64(i) if distinct else np.uint64(0)
        j = np.int64(past + below(stream, np.uint64(i), np.uint64(size) - past))
        out[i] = places[j]
        if distinct:
            places[j] = places[i]
    return out
