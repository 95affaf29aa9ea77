"""(Pools, products of vectors) → the logits a_n of every draw and shot, for all rules.

The mean needs only products: c·z is the mean of the query's products with the support, |c|² the
mean of the products inside the support. A nested draw adds one exemplar and its products to the
sums, so a sweep over 1..k costs k²/2 look-ups in the class's block of the Gram matrix, whatever the
dimension. The nearest exemplar is a running maximum, the medoid the least of running sums of
distances. With one exemplar all rules give the same bits. A support that is the whole pool is
summed in the order of the pool. Where one support serves all queries, the innermost loops run over
the queries.

Row numbers are unsigned: a signed index costs numba a test for negative ones, and the loop its
vectors. They count inside the class; `class_start` makes them rows of the table. For a constant
argument of a function, numba compiles it again: `np.int64(0)` is none, `0` is one.
"""

import math
from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import Array, inner, kernel
from callshot.fewshot.kernels.streams import ONE, below, draw_support, enter

RULES = ("mean", "cosine", "nearest", "medoid")
COSINE = 1
NEAREST = 2
MEDOID = 3


class Rows(NamedTuple):
    """The vectors of every row, ordered by class, and what a rule looks up about them.

    `block` holds one matrix per class, flat, for class n from block_start[n]: products for the
    mean, distances for the medoid. Where it is empty, the kernel computes these from the vectors.
    """

    rule: int
    vectors: Array
    squares: Array
    class_start: Array
    block: Array
    block_start: Array


class Sampling(NamedTuple):
    """How supports are drawn; shots ascend.

    A draw puts the members of each class in order: members[start[n] : start[n + 1]], as row numbers
    inside the class. Only members that are `outside` the fold of the queries, by row of the table,
    enter a support.
    """

    class_key: Array
    shots: Array
    distinct: bool
    members: Array
    start: Array
    outside: Array


@inner
def sum_entries(matrix, row, chosen, share, size):
    """Return Σ_i share[i] · matrix[row, chosen[i]] over the first `size` chosen columns.

    It is summed in four independent chains, which a processor adds side by side.
    """
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
    """Return x·y, in eight sums that a processor adds up side by side."""
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
def multiply_rows(left, right):
    """Return the products of the rows of two tables; equal rows tie, unlike with BLAS."""
    out = np.empty((left.shape[0], right.shape[0]))
    for i in range(left.shape[0]):
        for j in range(right.shape[0]):
            out[i, j] = dot(left[i], right[j])
    return out


@inner
def fill_squares(
    vectors, squared_lengths, matrix, chosen, share, steps, limits, total, squares
):
    """Fill squares[s] with |Σ w x|² over the first limits[s] of the chosen exemplars x.

    The arguments are those of `score_support`; `total` is scratch for Σ w x where `matrix` is
    empty. Adding an exemplar adds w (2 x·Σ w x + w |x|²) to the square.
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
        square += weight * (2.0 * product + weight * squared_lengths[new])
        if i + 1 == limits[shot]:
            squares[shot] = square
            shot += 1


@inner
def fill_medoids(vectors, matrix, chosen, share, steps, limits, sums, medoids):
    """Fill medoids[s] with the medoid of the first limits[s] exemplars, the first of equal ones.

    The medoid is the exemplar with the least sum of distances to the others. `sums` is scratch: the
    weighted distances from each exemplar to the others, added up in the order of the draw, so that
    equal vectors have equal sums.
    """
    shot = 0
    for i in range(steps):
        new = chosen[i]
        total = 0.0
        for m in range(i):
            if matrix.size > 0:
                away = matrix[new, chosen[m]]
            else:
                difference = vectors[new] - vectors[chosen[m]]
                away = math.sqrt(dot(difference, difference))
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
def choose_in_order(order, outside, steps, chosen):
    """Fill `chosen` with the first `steps` members of `order` that are outside the fold.

    `outside` is by member; at least `steps` of them are outside.
    """
    count = 0
    i = 0
    while count < steps:
        member = np.uint64(order[i])
        i += 1
        if outside[member]:
            chosen[count] = member
            count += 1


@inner
def fill_means(
    product, chosen, share, steps, limits, squares, cosine, divide, total, out
):
    """Fill out[s, q] with the logit of query z by the weighted mean c of the first exemplars.

    It is 2 c·z − |c|², or the cosine (z has length 1). squares[s] is |Σ w x|² over the first
    limits[s] exemplars; `total` is scratch. A mean without a direction has cosine 0. Rounding
    cannot bring a cosine beyond −1 and 1. For the other arguments see `score_support`.
    """
    queries = out.shape[1]
    for q in range(queries):
        total[q] = 0.0
    size = 0.0
    shot = 0
    for i in range(steps):
        new = chosen[i]
        weight = share[i]
        size += weight
        for q in range(queries):
            total[q] += weight * product[new, q]
        if i + 1 == limits[shot]:
            line = out[shot]
            square = squares[shot]
            if cosine:
                length = math.sqrt(square) if square > 0.0 else np.inf
                for q in range(queries):
                    line[q] = min(max(total[q] / length, -1.0), 1.0)
            elif divide:
                for q in range(queries):
                    line[q] = 2.0 * (total[q] / size) - square / (size * size)
            else:
                factor = 1.0 / size
                offset = square / (size * size)
                for q in range(queries):
                    line[q] = 2.0 * (total[q] * factor) - offset
            shot += 1


@inner
def fill_nearest(product, squared_lengths, chosen, steps, limits, largest, out):
    """Fill out[s, q] with the largest 2 x·z − |x|² of query z and the first limits[s] exemplars."""
    queries = out.shape[1]
    for q in range(queries):
        largest[q] = -np.inf
    shot = 0
    for i in range(steps):
        new = chosen[i]
        squared_length = squared_lengths[new]
        for q in range(queries):
            largest[q] = max(largest[q], 2.0 * product[new, q] - squared_length)
        if i + 1 == limits[shot]:
            line = out[shot]
            for q in range(queries):
                line[q] = largest[q]
            shot += 1


@inner
def make_scratch(longest, queries, shots):
    """Return arrays for `score_support` to work in: sums, totals, squares and medoids."""
    return (
        np.empty(longest),
        np.empty(queries),
        np.empty(shots),
        np.empty(shots, np.uint64),
    )


@inner
def score_support(
    rule,
    divide,
    vectors,
    squared_lengths,
    matrix,
    product,
    chosen,
    share,
    steps,
    limits,
    scratch,
    out,
):
    """Fill out[s, q] with the logit of every query by the first limits[s] exemplars of one class.

    rule     its number in RULES
    divide   whether sums are divided by the size of the support; otherwise, quicker for many
             queries, they are multiplied by its inverse
    vectors  (rows, dimensions) of the class, and their `squared_lengths`
    matrix   (rows, rows) products of the vectors; where it is empty, they are computed
    product  (rows, queries) products of the vectors with the queries
    chosen   rows of the exemplars, of which `steps` count; `share` are their weights
    limits   rising numbers of exemplars, the last of them is `steps`
    scratch  what `make_scratch` returns
    """
    sums, totals, squares, medoids = scratch
    if rule == NEAREST:
        fill_nearest(product, squared_lengths, chosen, steps, limits, totals, out)
    elif rule == MEDOID:
        fill_medoids(vectors, matrix, chosen, share, steps, limits, sums, medoids)
        for s in range(out.shape[0]):
            new = medoids[s]
            for q in range(out.shape[1]):
                out[s, q] = 2.0 * product[new, q] - squared_lengths[new]
    else:
        fill_squares(
            vectors,
            squared_lengths,
            matrix,
            chosen,
            share,
            steps,
            limits,
            sums,
            squares,
        )
        cosine = rule == COSINE
        fill_means(
            product, chosen, share, steps, limits, squares, cosine, divide, totals, out
        )


@kernel
def score_draws(sampling, rows, stream, first, rank, weight, divide, products, out):
    """Fill out[d, shot, n, q] with the logit of class n for query q, by draw first + d of a stream.

    Exemplars are drawn at random, by a Sampling, and have weight 1. If `rank` and `weight` have
    rows, these say what is drawn instead: `rank` (draws, rows) holds the exemplars of each class in
    order, by number inside the class, and `weight` (draws, rows) the weights of rows. `products` is
    (rows, queries). Where shots leave no choice of exemplars, the support is the pool, in its own
    order.
    """
    class_key, shots, distinct, members, start, is_outside = sampling
    draws = out.shape[0]
    is_weighted = weight.shape[0] > 0
    longest = max(shots[-1], members.size)
    chosen = np.empty(longest, np.uint64)
    swaps = np.empty(longest, np.uint64)
    pool = np.empty(longest, np.uint64)
    exemplar_weight = np.ones(longest)
    pool_limit = np.empty(1, np.int64)
    depth = max(longest, rows.vectors.shape[1])
    scratch = make_scratch(depth, products.shape[1], shots.size)
    for n in range(class_key.size):
        begin = rows.class_start[n]
        end = rows.class_start[n + 1]
        block = rows.block[rows.block_start[n] : rows.block_start[n + 1]]
        side = end - begin if block.size > 0 else 0  # an empty matrix: there is none
        matrix = block.reshape((side, side))
        vectors = rows.vectors[begin:end]
        squared_lengths = rows.squares[begin:end]
        product = products[begin:end]
        outside = is_outside[begin:end]
        member_rows = members[start[n] : start[n + 1]].copy()
        size = np.int64(0)
        for m in range(end - begin):
            if outside[m]:
                pool[size] = m
                size += 1
        pool_limit[0] = size
        # How many of the shots leave a choice of exemplars, and the largest of these.
        shots_drawn = np.int64(0)
        while shots_drawn < shots.size and (not distinct or shots[shots_drawn] < size):
            shots_drawn += 1
        largest_drawn = shots[shots_drawn - 1] if shots_drawn > 0 else np.int64(0)
        for d in range(draws):
            if is_weighted:
                choose_in_order(rank[d, begin:end], outside, largest_drawn, chosen)
                gather(weight[d, begin:end], chosen, largest_drawn, exemplar_weight)
            else:
                key = enter(enter(stream, np.uint64(first + d)), class_key[n])
                draw_support(
                    key, member_rows, swaps, outside, largest_drawn, distinct, chosen
                )
            score_support(
                rows.rule,
                divide,
                vectors,
                squared_lengths,
                matrix,
                product,
                chosen,
                exemplar_weight,
                largest_drawn,
                shots,
                scratch,
                out[d, :shots_drawn, n],
            )
            if shots_drawn == shots.size:
                continue
            # The other shots get the whole pool; without weights it is the same in every draw.
            whole = out[d, shots_drawn:, n]
            if d == 0 or is_weighted:
                if is_weighted:
                    gather(weight[d, begin:end], pool, size, exemplar_weight)
                score_support(
                    rows.rule,
                    divide,
                    vectors,
                    squared_lengths,
                    matrix,
                    product,
                    pool,
                    exemplar_weight,
                    size,
                    pool_limit,
                    scratch,
                    whole[:1],
                )
            pool_logits = whole[0] if is_weighted else out[0, shots_drawn, n]
            for s in range(whole.shape[0]):
                for q in range(whole.shape[1]):
                    whole[s, q] = pool_logits[q]


@kernel
def score_queries(sampling, rows, streams, rank, weight, products, out):
    """Fill out[q, d, shot, n] with the logit of class n for query q, by draw d of its stream.

    `products` is (queries, rows). A call for each query from Python would take a tenth longer.
    """
    _, draws, shots, classes = out.shape
    # Contiguous as in other calls of `score_draws`, so that it is compiled once.
    logits = np.empty((draws, shots, classes, 1))
    for q in range(products.shape[0]):
        # As of a table of one query: (rows, 1), and (draws, shots, classes, 1).
        column = products[q].reshape((products.shape[1], 1))
        score_draws(
            sampling,
            rows,
            streams[q],
            np.int64(0),
            rank,
            weight,
            np.bool_(True),
            column,
            logits,
        )
        for s in range(shots):
            for n in range(classes):
                for d in range(draws):
                    out[q, d, s, n] = logits[d, s, n, 0]


@inner
def gather(values, chosen, steps, out):
    """Fill out[i] with values[chosen[i]], for the first `steps` chosen rows."""
    for i in range(steps):
        out[i] = values[chosen[i]]


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
    of each row whether it is outside the fold of the queries, so that it may be drawn. With
    `distinct`, no exemplar of a draw is drawn twice. `stream` is the key of seed and purpose,
    `class_key` that of each class.
    """
    draws, classes, size = out.shape
    chosen = np.empty(size, np.uint64)
    for n in range(classes):
        rows = members[class_start[n] : class_start[n + 1]]
        allowed = outside[rows]
        # Places in `rows`: every draw leaves them in this order. `swaps` is scratch.
        order = np.arange(rows.size).astype(np.uint64)
        swaps = np.empty_like(order)
        for d in range(draws):
            draw_stream = enter(stream, np.uint64(d))
            class_stream = enter(draw_stream, class_key[n])
            draw_support(class_stream, order, swaps, allowed, size, distinct, chosen)
            for i in range(size):
                out[d, n, i] = rows[chosen[i]]


@kernel
def score_members(rule, vectors, squared_lengths, matrix, products, chosen, shots, out):
    """Fill out[d, shot, n, q] with the logit of class n for query q by rows of chosen[d, n].

    `products` is (rows, queries), `matrix` (rows, rows) as for `score_support`. All exemplars weigh
    1; shots[s] of them are the support of shot s.
    """
    draws, _, classes, _ = out.shape
    steps = chosen.shape[2]
    share = np.ones(steps)
    divide = np.bool_(False)
    depth = max(steps, vectors.shape[1])
    scratch = make_scratch(depth, products.shape[1], shots.size)
    for d in range(draws):
        for n in range(classes):
            score_support(
                rule,
                divide,
                vectors,
                squared_lengths,
                matrix,
                products,
                chosen[d, n],
                share,
                steps,
                shots,
                scratch,
                out[d, :, n],
            )


class Pools(NamedTuple):
    """What can be drawn in each fold, for `count_supports`.

    `kind` numbers the rows of each class and fold, outside[kind, fold] says whether they are
    outside a fold. A draw leaves out some of a class's pool at the first drawn[n, fold] shots; it
    has steps[n, fold] exemplars there at the most. weight[kind, shot, fold] is the weight of an
    exemplar in the support of a fold, and `total` (kinds, shots) its sum over the folds.
    """

    kind: Array
    outside: Array
    drawn: Array
    steps: Array
    weight: Array
    total: Array


@kernel
def count_supports(sampling, class_start, group, stream, first, pools, counts, power):
    """Sum up the weights of the exemplars of each group of recordings in the supports of draws.

    An exemplar weighs w: the sum of its weights in the folds in whose support of draw first + d it
    is. counts[d, shot, g] is the sum of w over the exemplars whose row is in group g, and w² of
    class n is added to power[n, shot]. The rows of `counts` beyond the shots are for the classes
    that give their whole pool at the last shot: each has one, with the counts at the last shot at
    which it does not.

    All folds share the order of a draw, of which each takes the members outside of it. So a draw
    is made once, until every fold has its support. The members of `sampling` are all rows of a
    class; `group` is by row.
    """
    class_key, shots, distinct, members, _, _ = sampling
    kind, outside, drawn, steps, weight, total = pools
    draws, rows, groups = counts.shape
    folds = outside.shape[1]
    longest = shots[-1]
    taken = np.empty(folds, np.int64)  # exemplars in the support of each fold so far
    enters = np.empty(folds, np.int64)  # first shot with the row, in each fold
    of_draw = np.empty((groups, rows))
    order = members.copy()
    swaps = np.empty(members.size, np.uint64)
    # The first shot at which the exemplar at each place of a draw is in the support.
    entry = np.empty(longest + 1, np.int64)
    shot = np.int64(0)
    for place in range(longest + 1):
        while shot < shots.size and shots[shot] <= place:
            shot += 1
        entry[place] = shot
    for d in range(draws):
        of_draw[:] = 0.0
        extra = shots.size  # the row of the next class that gives its whole pool
        for n in range(class_key.size):
            begin = class_start[n]
            size = class_start[n + 1] - begin
            own = order[begin : begin + size]
            # From this shot on the class gives its whole pool in all folds.
            end = drawn[n].max()
            key = enter(enter(stream, np.uint64(first + d)), class_key[n])
            taken[:] = 0
            missing = np.sum(steps[n] > 0)  # folds whose support is not complete
            i = np.uint64(0)
            while missing > 0:
                past = i if distinct else np.uint64(0)
                j = past + below(key, i, np.uint64(size) - past)
                new = own[j]
                if distinct:  # as in `draw_support`
                    own[j] = own[i]
                    own[i] = new
                    swaps[i] = j
                i += ONE
                row = begin + np.int64(new)
                k = kind[row]
                earliest = end
                latest = np.int64(0)  # from this shot on it counts in all folds
                for f in range(folds):
                    place = taken[f]
                    is_outside = outside[k, f]
                    # From drawn[n, f] on the fold takes its whole pool: there the row counts as
                    # in the support, with the weight 0.
                    shot = min(entry[min(place, longest)], drawn[n, f])
                    shot = shot if is_outside else end
                    enters[f] = shot
                    earliest = min(earliest, shot)
                    latest = max(latest, shot if is_outside else np.int64(0))
                    missing -= is_outside and place + 1 == steps[n, f]
                    taken[f] = place + is_outside
                of_group = of_draw[group[row]]
                of_class = power[n]
                for s in range(earliest, end):
                    w = total[k, s]  # of all folds, added up before
                    if s < latest:
                        w = 0.0
                        for f in range(folds):
                            w += weight[k, s, f] if enters[f] <= s else 0.0
                    of_group[s] += w
                    of_class[s] += w * w
                    if s + 1 == end and end < shots.size:
                        of_group[extra] += w
            while distinct and i > 0:  # back to the order of the members
                i -= ONE
                new = own[i]
                own[i] = own[swaps[i]]
                own[swaps[i]] = new
            extra += 0 < end < shots.size
        for s in range(rows):
            for g in range(groups):
                counts[d, s, g] = of_draw[g, s]


@kernel
def eliminate(table, sizes, classes, out):
    """Fill out[s, n, q] with the logit of class n for query q by the first sizes[s] exemplars.

    The rule is ridge regression. The Cholesky factor of the first rows of a symmetric matrix is the
    first rows of its factor, so that one elimination serves every nested support.

    `table` (rows, rows + classes + queries) has three matrices side by side, with a row for each
    exemplar: K + penalty · I with the products K of the exemplars, their targets T, and their
    products P with the queries. The logits are T' (K + penalty · I)⁻¹ P. With the Cholesky factor L
    of the first matrix, L⁻¹ T and L⁻¹ P take the places of T and P.
    """
    rows, width = table.shape
    first_target = np.uint64(rows)
    first_query = np.uint64(rows + classes)
    queries = np.uint64(width) - first_query
    total = np.zeros((classes, queries))
    shot = 0
    for i in range(np.uint64(rows)):
        line = table[i]
        for j in range(i):
            earlier = table[j]
            factor = earlier[i]
            for c in range(i, np.uint64(width)):
                line[c] -= factor * earlier[c]
        scale = 1.0 / math.sqrt(line[i])
        for c in range(i, np.uint64(width)):
            line[c] *= scale
        for n in range(np.uint64(classes)):
            target = line[first_target + n]
            of_class = total[n]
            for q in range(queries):
                of_class[q] += target * line[first_query + q]
        while shot < sizes.size and sizes[shot] == i + 1:
            for n in range(np.uint64(classes)):
                for q in range(queries):
                    out[shot, n, q] = total[n, q]
            shot += 1
