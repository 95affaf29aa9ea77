"""(Gram matrix or vectors, pools) → a_n of every draw and shot.

a_n = 2 c_n·z − |c_n|² needs only products of embeddings: c_n·z is the mean of the query's products with the support,
|c_n|² the mean of the products inside the support. A nested draw adds one exemplar and its products to the sums, so a
whole sweep 1..k costs k²/2 look-ups in the class's block of the Gram matrix, whatever the dimension.

A pool is the exemplars of one class outside one fold, as row numbers inside the class, in the order of their ids.
Row numbers are unsigned here: a signed index costs numba a test for negative ones, and the loop its vectors.
"""

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
def a_of(inner, square, size):
    """Return a_n = 2 c·z − |c|² from the two sums over a support of `size` exemplars."""
    return 2.0 * (inner / size) - square / (size * size)


@kernel
def score_by_gram(stream, class_key, cross, block, block_start, class_start, pools, pool_start, shots, distinct, out):
    """Fill out[shot, n, r] with a_n of one query.

    `stream` is the query's; `cross` its products with every row; `block` holds the Gram matrix of each class, flat,
    class n from block_start[n]; `pools` is scratch and comes back as it was.
    """
    longest = shots[-1]
    chosen, swaps = np.empty(longest, np.uint64), np.empty(longest, np.uint64)
    for n in range(out.shape[1]):
        pool = pools[pool_start[n] : pool_start[n + 1]]
        products = cross[class_start[n] : class_start[n + 1]]
        start, side = np.uint64(block_start[n]), np.uint64(class_start[n + 1] - class_start[n])
        size, steps = np.uint64(pool.size), min(longest, pool.size) if distinct else longest
        for r in range(out.shape[2]):
            of_class = enter(enter(stream, np.uint64(r)), class_key[n])
            inner, square, shot = 0.0, 0.0, 0
            for i in range(steps):
                u = np.uint64(i)
                j = u + below(of_class, u, size - u) if distinct else below(of_class, u, size)
                new = pool[j]
                if distinct:  # Fisher-Yates: the chosen one goes to the front
                    pool[j], pool[u], swaps[u] = pool[u], new, j
                row = start + new * side
                square += 2.0 * sum_at(block, row, chosen, i) + block[row + new]
                inner += products[new]
                chosen[i] = new
                if i + 1 == shots[shot]:
                    out[shot, n, r] = a_of(inner, square, i + 1)
                    shot += 1
            for rest in range(shot, shots.size):  # partial: the whole pool
                out[rest, n, r] = a_of(inner, square, steps)
            if distinct:
                put_back(pool, swaps, steps)


@kernel
def score_directly(stream, class_key, query, vectors, norms, class_start, pools, pool_start, shots, distinct, out):
    """Do what `score_by_gram` does without a Gram matrix: three passes over the dimensions for each exemplar.

    `query` is the query's vector, `vectors` those of every row, `norms` their squared lengths.
    """
    longest = shots[-1]
    swaps = np.empty(longest, np.uint64)
    total = np.empty(query.size)
    for n in range(out.shape[1]):
        pool = pools[pool_start[n] : pool_start[n + 1]]
        start = np.uint64(class_start[n])
        size, steps = np.uint64(pool.size), min(longest, pool.size) if distinct else longest
        for r in range(out.shape[2]):
            of_class = enter(enter(stream, np.uint64(r)), class_key[n])
            inner, square, shot = 0.0, 0.0, 0
            total[:] = 0.0
            for i in range(steps):
                u = np.uint64(i)
                j = u + below(of_class, u, size - u) if distinct else below(of_class, u, size)
                chosen = pool[j]
                if distinct:
                    pool[j], pool[u], swaps[u] = pool[u], chosen, j
                new = start + chosen
                row = vectors[new]
                square += 2.0 * dot(total, row) + norms[new]
                inner += dot(query, row)
                for d in range(total.size):
                    total[d] += row[d]
                if i + 1 == shots[shot]:
                    out[shot, n, r] = a_of(inner, square, i + 1)
                    shot += 1
            for rest in range(shot, shots.size):
                out[rest, n, r] = a_of(inner, square, steps)
            if distinct:
                put_back(pool, swaps, steps)


@kernel
def draw_positions(stream, size, k, distinct):
    """Return the places in a pool of one draw: what the kernels above pick, alone."""
    places = np.arange(size)
    steps = min(k, size) if distinct else k
    out = np.empty(steps, np.int64)
    for i in range(steps):
        u = np.uint64(i)
        if not distinct:
            out[i] = np.int64(below(stream, u, np.uint64(size)))
            continue
        j = np.int64(u + below(stream, u, np.uint64(size) - u))
        out[i] = places[j]
        places[j] = places[i]
    return out
