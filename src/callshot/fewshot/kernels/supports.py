"""(Pools, products of vectors) → a_n of every draw and shot, for all rules.

`score_supports` draws one support per query. `score_draws` scores one support for all queries: in
the spread `shared` its order is a random permutation, and every exemplar has weight 1; in `total`
the order is given, and the mean of a class is weighted. `score_members` does so for permuted
labels: their classes have members anywhere in the table, so look-ups are by row of the table. Where
one support serves all queries, the innermost loops run over the queries.

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
    """How supports are drawn; shots ascend."""

    class_key: Array
    shots: Array
    distinct: bool


class Rows(NamedTuple):
    """The vectors of every row, ordered by class, and what a rule looks up about them.

    `block` holds one matrix per class, flat, that of class n from block_start[n]: products for the
    mean, distances for the medoid. Where it is empty, the kernel computes these from the vectors.
    """

    rule: int
    vectors: Array
    squares: Array
    class_start: Array
    block: Array
    block_start: Array


class Members(NamedTuple):
    """The exemplars that a draw puts in order, and those of them that a support may have.

    The members of class n are rows[start[n] : start[n + 1]], as row numbers inside the class. A
    support has only rows that are outside the fold of the queries.
    """

    rows: Array
    start: Array
    outside: Array


@inner
def longest_draw(shots, size, distinct):
    """Return how many of the shots leave a choice of exemplars, and the largest of these."""
    drawn = 0
    while drawn < shots.size and (not distinct or shots[drawn] < size):
        drawn += 1
    return drawn, shots[drawn - 1] if drawn > 0 else 0


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
def score_supports(sampling, rows, members, streams, products, out):
    """Fill out[q, r, shot, n] with a_n of query q by draw r of its own stream.

    `products` is (queries, rows). Draw −1 is the pool itself, which serves every shot that leaves
    no choice.
    """
    class_key, shots, distinct = sampling
    rule = rows.rule
    queries, draws, _, _ = out.shape
    longest = max(shots[-1], members.rows.size)
    chosen = np.empty(longest, np.uint64)
    swaps = np.empty(longest, np.uint64)
    share = np.ones(longest)
    sums = np.empty(max(longest, rows.vectors.shape[1]))
    squares = np.empty(shots.size)
    medoids = np.empty(shots.size, np.uint64)
    limits = shots.copy()  # the shots of a draw, or the size of the pool
    for n in range(class_key.size):
        begin = rows.class_start[n]
        end = rows.class_start[n + 1]
        vectors, lengths, matrix = class_rows(rows, n)
        outside = members.outside[begin:end]
        order = members.rows[members.start[n] : members.start[n + 1]].copy()
        size = np.sum(outside)
        drawn, last = longest_draw(shots, size, distinct)
        for q in range(queries):
            product = products[q, begin:end]
            whole = 0.0
            for r in range(0 if drawn == shots.size else -1, draws):
                if r < 0:
                    steps = size
                    limits[0] = steps
                    choose_pool(outside, chosen)
                else:
                    steps = last
                    limits[0] = shots[0]
                    stream = enter(enter(streams[q], np.uint64(r)), class_key[n])
                    choose_by_stream(
                        stream, order, swaps, outside, steps, distinct, chosen
                    )
                if rule == MEDOID:
                    fill_medoids(
                        vectors, matrix, chosen, share, steps, limits, sums, medoids
                    )
                elif rule != NEAREST:
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
                total = 0.0
                value = -np.inf
                shot = 0
                for i in range(steps):
                    new = chosen[i]
                    if rule == NEAREST:
                        evidence = exemplar_evidence(product[new], lengths[new])
                        value = max(value, evidence)
                    else:
                        total += product[new]
                    if i + 1 == limits[shot]:
                        if rule == MEDOID:
                            new = medoids[shot]
                            value = exemplar_evidence(product[new], lengths[new])
                        elif rule != NEAREST:
                            value = mean_evidence(
                                total, squares[shot], i + 1, rule == COSINE
                            )
                        if r >= 0:
                            out[q, r, shot, n] = value
                        shot += 1
                if r < 0:
                    whole = value
                else:
                    for s in range(drawn, shots.size):
                        out[q, r, s, n] = whole


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


class Exemplars(NamedTuple):
    """The rows that supports are made of, and what a rule looks up about them.

    `matrix` holds their products, or for the medoid their distances; where it is empty, the kernel
    computes these from the vectors. `products` are those of each row with the queries.
    """

    rule: int
    vectors: Array
    squares: Array
    matrix: Array
    products: Array


@kernel
def recording_words(base, recording_key, out):
    """Fill out[p, g] with a hash of (seed, permutation p, recording g)."""
    for p in range(out.shape[0]):
        stream = enter(base, np.uint64(p))
        for g in range(out.shape[1]):
            out[p, g] = enter(stream, recording_key[g])


@kernel
def draw_members(stream, class_key, distinct, members, class_start, outside, out):
    """Fill out[d, n, i] with the i-th exemplar of class n in draw d, as a row of the table.

    The members of class n are members[class_start[n] : class_start[n + 1]], as rows; `outside` says
    of each row whether it is outside the fold of the queries. No pool may be smaller than a draw.
    """
    draws, classes, size = out.shape
    chosen = np.empty(size, np.uint64)
    for n in range(classes):
        rows = members[class_start[n] : class_start[n + 1]]
        allowed = outside[rows]
        for d in range(draws):
            draw_stream = enter(stream, np.uint64(d))
            class_stream = enter(draw_stream, class_key[n])
            draw_support(class_stream, allowed, size, distinct, chosen)
            for i in range(size):
                out[d, n, i] = rows[chosen[i]]


@kernel
def score_members(exemplars, chosen, shots, out):
    """Fill out[d, shot, n, q] with a_n of query q by the first exemplars of chosen[d, n]."""
    rule, vectors, lengths, matrix, products = exemplars
    draws, _, classes, _ = out.shape
    steps = chosen.shape[2]
    share = np.ones(steps)
    sums = np.empty(max(steps, vectors.shape[1]))
    for d in range(draws):
        for n in range(classes):
            score_support(
                rule,
                vectors,
                lengths,
                matrix,
                products,
                chosen[d, n],
                share,
                steps,
                shots,
                sums,
                out[d, :, n],
            )
