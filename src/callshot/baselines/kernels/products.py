"""Vectors and matrices → their products, for kernels that multiply thousands of times: BLAS, but never its threads.

A BLAS that starts threads makes them wait for each other at every product. Where other threads and programs want the
same cores, they wait for most of the time: to choose C for 601 rows of 1,024 dimensions took minutes on a busy machine,
and takes 14 s so. What is too small for threads goes to BLAS, if need be in a few parts; what is larger, through the
loop below, which has two thirds of its speed.
"""

import numpy as np

from callshot.fewshot.kernels import COMPILED, Function, kernel, njit
from callshot.records import FloatArray

SMALL = 2**18  # multiplications: up to here OpenBLAS starts no thread


def quick(function: Function) -> Function:
    """Compile for other kernels only; sums may be taken in another order than the text's, always the same one."""
    return njit(no_cpython_wrapper=True, fastmath={"contract", "reassoc"}, **COMPILED)(function)


@quick
def dot(x: FloatArray, y: FloatArray) -> float:
    """Return the inner product of two vectors."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@quick
def fill_sums(table: FloatArray, out: FloatArray) -> None:
    """Fill out with the sum of each row."""
    for n in range(table.shape[0]):
        total = 0.0
        for i in range(table.shape[1]):
            total += table[n, i]
        out[n] = total


@quick
def product(left: FloatArray, right: FloatArray, out: FloatArray) -> None:
    """Fill out (m, n) with left (m, k) · right (k, n): four rows of the right side at once, for two of the left."""
    m, k = left.shape
    n = right.shape[1]
    some = SMALL // (k * n)
    if some >= min(m, 4):
        for c in range(0, m, some):
            np.dot(left[c : c + some], right, out[c : c + some])
        return
    whole = k - k % 4
    for c in range(m):
        for i in range(n):
            out[c, i] = 0.0
    for j in range(0, whole, 4):
        for c in range(0, m - 1, 2):
            a0, a1, a2, a3 = left[c, j], left[c, j + 1], left[c, j + 2], left[c, j + 3]
            b0, b1, b2, b3 = (
                left[c + 1, j],
                left[c + 1, j + 1],
                left[c + 1, j + 2],
                left[c + 1, j + 3],
            )
            for i in range(n):
                x0, x1, x2, x3 = right[j, i], right[j + 1, i], right[j + 2, i], right[j + 3, i]
                out[c, i] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
                out[c + 1, i] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3
        if m % 2:
            a0, a1, a2, a3 = (
                left[m - 1, j],
                left[m - 1, j + 1],
                left[m - 1, j + 2],
                left[m - 1, j + 3],
            )
            for i in range(n):
                out[m - 1, i] += (
                    a0 * right[j, i]
                    + a1 * right[j + 1, i]
                    + a2 * right[j + 2, i]
                    + a3 * right[j + 3, i]
                )
    for j in range(whole, k):
        for c in range(m):
            for i in range(n):
                out[c, i] += left[c, j] * right[j, i]


@quick
def fill_turned(left: FloatArray, right: FloatArray, symmetric: bool, out: FloatArray) -> None:
    """Fill out (m, n) with left (m, k) · rightᵀ, right (n, k), in blocks; half of them where it is symmetric."""
    side = max(1, int(np.sqrt(SMALL // max(left.shape[1], 1))))
    room = np.empty(side * side)
    for a in range(0, len(left), side):
        rows = left[a : a + side]
        for c in range(0, a + 1 if symmetric else len(right), side):
            columns = right[c : c + side]
            block = room[: len(rows) * len(columns)].reshape((len(rows), len(columns)))
            np.dot(rows, columns.T, block)
            for i in range(len(rows)):
                for j in range(len(columns)):
                    out[a + i, c + j] = block[i, j]
                    if symmetric:
                        out[c + j, a + i] = block[i, j]


@kernel
def fill_gram(rows: FloatArray, out: FloatArray) -> None:
    """Fill out with the products of all pairs of rows."""
    fill_turned(rows, rows, True, out)


@kernel
def fill_layer(
    numbers: FloatArray,
    rows: FloatArray,
    gram: bool,
    mean: FloatArray,
    deviation: FloatArray,
    weight: FloatArray,
    bias: FloatArray,
) -> None:
    """Fill weight with what the solver found, for columns as they were before standardising; bias is changed to suit.

    `numbers` are those of the rows where the solver went by the Gram matrix, else those of the columns.
    """
    if gram:
        product(numbers, rows, weight)
    for n in range(weight.shape[0]):
        for i in range(weight.shape[1]):
            weight[n, i] = (weight[n, i] if gram else numbers[n, i]) / deviation[i]
        bias[n] -= dot(weight[n], mean)


@kernel
def fill_logits(weight: FloatArray, bias: FloatArray, queries: FloatArray, out: FloatArray) -> None:
    """Fill out (layers, classes, queries) with what each layer (classes, dimensions) makes of the queries."""
    for s in range(len(weight)):
        fill_turned(weight[s], queries, False, out[s])
        for n in range(weight.shape[1]):
            for q in range(len(queries)):
                out[s, n, q] += bias[s, n]
