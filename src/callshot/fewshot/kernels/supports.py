"""(Pools, products of vectors) → a_n of every draw and shot, for both spreads and all rules.

The mean needs only products: c·z is the mean of the query's products with the support, |c|² the
mean of the products inside the support. A nested draw adds one exemplar and its products to the
sums, so a sweep over 1..k costs k²/2 look-ups in the class's block of the Gram matrix, whatever the
dimension. The nearest exemplar is a running maximum, the medoid the least of running sums of
distances. With one exemplar all rules give the same bits.

A support that is the whole pool is one set: it is summed in the order of the pool, not of the draw.

Row numbers are unsigned: a signed index costs numba a test for negative ones, and the loop its
vectors. They count inside the class; `class_start` makes them rows of the table.
"""

import math
from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import Array, formula, inner, kernel
from callshot.fewshot.kernels.streams import below, draw_support, enter

RULES = ("mean", "cosine", "nearest", "medoid")
COSINE = 1
NEAREST = 2
MEDOID = 3


class Sampling(NamedTuple):
    """How supports are drawn: `stream` is that of the seed and the spread; shots ascend."""

    stream: np.uint64
    class_key: Array
    shots: Array
    distinct: bool


class Rows(NamedTuple):
    """The vectors of every row, ordered by class, and what a rule looks up about them.

    `block` holds one matrix per class, flat, that of class n from block_start[n]: products for the
    mean, distances for the medoid. Where it is empty, the kernels compute these from the vectors.
    """

    rule: int
    vectors: Array
    squares: Array
    class_start: Array
    block: Array
    block_start: Array


class Pools(NamedTuple):
    """The exemplars outside one fold: those of class n are rows[start[n] : start[n + 1]]."""

    rows: Array
    start: Array


@inner
def longest_draw(shots, size, distinct):
    """Return how many of the shots leave a choice of exemplars, and the largest of these."""
    drawn = 0
    while drawn < shots.size and (not distinct or shots[drawn] < size):
        drawn += 1
    return drawn, shots[drawn - 1] if drawn > 0 else 0


@inner
def sum_entries(matrix, row, chosen, size):
    """Sum a row of a matrix over the chosen columns, in four independent chains."""
    s0 = 0.0
    s1 = 0.0
    s2 = 0.0
    s3 = 0.0
    whole = size - size % 4
    for i in range(0, whole, 4):
        s0 += matrix[row, chosen[i]]
        s1 += matrix[row, chosen[i + 1]]
        s2 += matrix[row, chosen[i + 2]]
        s3 += matrix[row, chosen[i + 3]]
    for i in range(whole, size):
        s0 += matrix[row, chosen[i]]
    return (s0 + s1) + (s2 + s3)


@inner
def dot(x, y):
    """Return x·y, in eight independent chains."""
    s0 = 0.0
    s1 = 0.0
    s2 = 0.0
    s3 = 0.0
    s4 = 0.0
    s5 = 0.0
    s6 = 0.0
    s7 = 0.0
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


@kernel
def multiply_rows(left, right, out):
    """Fill out[i, j] with the products of rows; equal rows give equal bits, which BLAS does not."""
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            out[i, j] = dot(left[i], right[j])


@inner
def distance(x, y):
    """Return |x − y|."""
    total = 0.0
    for d in range(x.size):
        total += (x[d] - y[d]) * (x[d] - y[d])
    return math.sqrt(total)


@inner
def fill_squares(matrix, chosen, steps, shots, squares):
    """Fill squares[s] with |Σx|² over the first shots[s] of the chosen exemplars."""
    square = 0.0
    shot = 0
    for i in range(steps):
        new = chosen[i]
        square += 2.0 * sum_entries(matrix, new, chosen, i) + matrix[new, new]
        if i + 1 == shots[shot]:
            squares[shot] = square
            shot += 1


@inner
def fill_squares_directly(vectors, lengths, chosen, steps, shots, total, squares):
    """Do what `fill_squares` does without a Gram matrix; `total` is scratch for the sum."""
    for d in range(vectors.shape[1]):
        total[d] = 0.0
    square = 0.0
    shot = 0
    for i in range(steps):
        x = vectors[chosen[i]]
        square += 2.0 * dot(x, total) + lengths[chosen[i]]
        for d in range(x.size):
            total[d] += x[d]
        if i + 1 == shots[shot]:
            squares[shot] = square
            shot += 1


@inner
def fill_medoids(matrix, vectors, chosen, steps, shots, sums, medoids):
    """Fill medoids[s] with the medoid of the first shots[s] exemplars, the first of equal ones.

    `sums` is scratch: the distances from each exemplar to the others, added up in drawing order, so
    that equal vectors have equal sums.
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
            sums[m] += away
            total += away
        sums[i] = total
        if i + 1 == shots[shot]:
            least = 0
            for m in range(1, i + 1):
                if sums[m] < sums[least]:
                    least = m
            medoids[shot] = chosen[least]
            shot += 1


@formula
def mean_evidence(product, square, size, cosine):
    """Return a_n from the sums over a support: 2 c·z − |c|², or the cosine (z has length 1).

    A mean without a direction has cosine 0. Rounding cannot bring a cosine beyond −1 and 1.
    """
    if cosine:
        return min(max(product / math.sqrt(square), -1.0), 1.0) if square > 0.0 else 0.0
    return 2.0 * (product / size) - square / (size * size)


@formula
def exemplar_evidence(product, square):
    """Return a_n by one exemplar x: 2 x·z − |x|²."""
    return 2.0 * product - square


@inner
def class_rows(rows, n):
    """Return the vectors of one class, their squared lengths, and its matrix or an empty one."""
    begin = rows.class_start[n]
    end = rows.class_start[n + 1]
    block = rows.block[rows.block_start[n] : rows.block_start[n + 1]]
    side = end - begin if block.size > 0 else 0
    return rows.vectors[begin:end], rows.squares[begin:end], block.reshape((side, side))


@kernel
def score_queries(sampling, rows, pools, query_key, products, first, out):
    """Fill out[shot, n, first + q, r] with a_n of some queries, each against draws of its own.

    `products` is (queries, rows): those of these queries with every row. Draw −1 is the pool
    itself, which serves every shot that leaves no choice.
    """
    stream, class_key, shots, distinct = sampling
    rule = rows.rule
    longest = max(shots[-1], pools.rows.size)
    chosen = np.empty(longest, np.uint64)
    swaps = np.empty(longest, np.uint64)
    sums = np.empty(max(longest, rows.vectors.shape[1]))
    squares = np.empty(shots.size)
    medoids = np.empty(shots.size, np.uint64)
    limits = shots.copy()  # the shots of a draw, or the size of the pool
    for n in range(class_key.size):
        vectors, lengths, matrix = class_rows(rows, n)
        pool = pools.rows[pools.start[n] : pools.start[n + 1]].copy()
        size = np.uint64(pool.size)
        drawn, last = longest_draw(shots, pool.size, distinct)
        for q in range(query_key.size):
            product = products[q, rows.class_start[n] : rows.class_start[n + 1]]
            query_stream = enter(stream, query_key[q])
            whole = 0.0
            for r in range(0 if drawn == shots.size else -1, out.shape[3]):
                if r < 0:
                    steps = pool.size
                    limits[0] = steps
                    for i in range(steps):
                        chosen[i] = pool[i]
                else:
                    steps = last
                    limits[0] = shots[0]
                    support_stream = enter(enter(query_stream, np.uint64(r)), class_key[n])
                    for i in range(steps):
                        u = np.uint64(i)
                        past = u if distinct else np.uint64(0)
                        j = past + below(support_stream, u, size - past)
                        new = pool[j]
                        chosen[u] = new
                        if distinct:  # Fisher-Yates: the chosen one goes to the front
                            pool[j] = pool[u]
                            pool[u] = new
                            swaps[u] = j
                    if distinct:
                        for back in range(steps - 1, -1, -1):
                            u = np.uint64(back)
                            new = pool[u]
                            pool[u] = pool[swaps[u]]
                            pool[swaps[u]] = new
                if rule == MEDOID:
                    fill_medoids(matrix, vectors, chosen, steps, limits, sums, medoids)
                elif rule != NEAREST and matrix.size > 0:
                    fill_squares(matrix, chosen, steps, limits, squares)
                elif rule != NEAREST:
                    fill_squares_directly(vectors, lengths, chosen, steps, limits, sums, squares)
                total = 0.0
                best = -np.inf
                shot = 0
                for i in range(steps):
                    new = chosen[i]
                    if rule == NEAREST:
                        best = max(best, exemplar_evidence(product[new], lengths[new]))
                    else:
                        total += product[new]
                    if i + 1 == limits[shot]:
                        if rule == MEDOID:
                            new = medoids[shot]
                            best = exemplar_evidence(product[new], lengths[new])
                        elif rule != NEAREST:
                            best = mean_evidence(total, squares[shot], i + 1, rule == COSINE)
                        if r < 0:
                            whole = best
                        else:
                            out[shot, n, first + q, r] = best
                        shot += 1
                if r >= 0:
                    for s in range(drawn, shots.size):
                        out[s, n, first + q, r] = whole


@inner
def add_exemplar(rule, products, square, total):
    """Take an exemplar into the totals of all queries: sums of products, or the best a_n."""
    if rule == NEAREST:
        for q in range(total.size):
            total[q] = max(total[q], exemplar_evidence(products[q], square))
    else:
        for q in range(total.size):
            total[q] += products[q]


@inner
def fill_evidence(rule, total, square, size, evidence):
    """Fill the a_n of all queries from their totals."""
    for q in range(total.size):
        if rule == NEAREST:
            evidence[q] = total[q]
        else:
            evidence[q] = mean_evidence(total[q], square, size, rule == COSINE)


@kernel
def score_shared(sampling, rows, outside, products, first, begin, out):
    """Fill out[d, shot, n, begin + q] with a_n of some queries of a fold, all against one draw.

    The draws are first, first + 1, …; `products` is (rows, queries), `outside` whether each row is
    outside the fold. The mean needs a Gram matrix here. Draw −1 is the pool itself, as in `score_queries`.
    """
    stream, class_key, shots, distinct = sampling
    rule = rows.rule
    chosen = np.empty(max(shots[-1], outside.size), np.uint64)
    sums = np.empty(chosen.size)
    squares = np.empty(shots.size)
    medoids = np.empty(shots.size, np.uint64)
    limits = shots.copy()
    queries = products.shape[1]
    total = np.empty(queries)
    whole = np.empty(queries)
    for n in range(class_key.size):
        vectors, lengths, matrix = class_rows(rows, n)
        class_products = products[rows.class_start[n] : rows.class_start[n + 1]]
        allowed = outside[rows.class_start[n] : rows.class_start[n + 1]]
        size = 0
        for m in range(allowed.size):
            if allowed[m]:
                chosen[size] = m
                size += 1
        drawn, last = longest_draw(shots, size, distinct)
        for d in range(0 if drawn == shots.size else -1, out.shape[0]):
            if d < 0:
                steps = size
                limits[0] = steps
            else:
                steps = last
                limits[0] = shots[0]
                support_stream = enter(enter(stream, np.uint64(first + d)), class_key[n])
                draw_support(support_stream, allowed, steps, distinct, chosen)
            if rule == MEDOID:
                fill_medoids(matrix, vectors, chosen, steps, limits, sums, medoids)
            elif rule != NEAREST:
                fill_squares(matrix, chosen, steps, limits, squares)
            for q in range(queries):
                total[q] = -np.inf if rule == NEAREST else 0.0
            shot = 0
            for i in range(steps):
                new = chosen[i]
                if rule != MEDOID:
                    add_exemplar(rule, class_products[new], lengths[new], total)
                if i + 1 == limits[shot]:
                    evidence = whole if d < 0 else out[d, shot, n, begin : begin + queries]
                    if rule == MEDOID:
                        new = medoids[shot]
                        for q in range(queries):
                            product = class_products[new, q]
                            evidence[q] = exemplar_evidence(product, lengths[new])
                    else:
                        fill_evidence(rule, total, squares[shot], i + 1, evidence)
                    shot += 1
            if d >= 0:
                for s in range(drawn, shots.size):
                    for q in range(queries):
                        out[d, s, n, begin + q] = whole[q]
