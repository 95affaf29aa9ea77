"""Vectors and matrices → their products, by BLAS but never by its threads.

A BLAS that starts threads makes them wait for each other at every product. Where other programs
need the same cores, that takes most of the time: choosing C for 601 rows of 1,024 dimensions took
minutes on a busy machine, and takes 14 s in this way. A product too small for threads goes to BLAS,
or a few such parts of it do; larger ones go through a loop with two thirds of the speed of BLAS.
"""

import numpy as np

from callshot.fewshot.kernels import COMPILED, Function, kernel, njit

SMALL = 2**18  # multiplications: up to here OpenBLAS starts no thread


def reassociated(function: Function) -> Function:
    """Compile for other kernels only; sums may be taken in another order, always the same one."""
    return njit(no_cpython_wrapper=True, fastmath={"contract", "reassoc"}, **COMPILED)(
        function
    )


@reassociated
def dot(x, y):
    """Return the inner product of two vectors."""
    total = 0.0
    for i in range(x.size):
        total += x[i] * y[i]
    return total


@reassociated
def fill_sums(table, out):
    """Fill out with the sum of each row."""
    for n in range(table.shape[0]):
        total = 0.0
        for i in range(table.shape[1]):
            total += table[n, i]
        out[n] = total


@reassociated
def multiply(left, right, out):
    """Fill out (m, n) with left (m, k) · right (k, n)."""
    m, k = left.shape
    part = SMALL // (k * right.shape[1])
    if part < min(m, 4):
        multiply_by_loop(left, right, out)
        return
    for first in range(0, m, part):
        np.dot(left[first : first + part], right, out[first : first + part])


@reassociated
def multiply_by_loop(left, right, out):
    """Do as `multiply`, with four rows of the right side at once for two of the left."""
    m, k = left.shape
    n = right.shape[1]
    fours = k - k % 4
    for c in range(m):
        for i in range(n):
            out[c, i] = 0.0
    for j in range(0, fours, 4):
        for c in range(0, m - 1, 2):
            add_to_two_rows(left, right, c, j, out)
        if m % 2:
            add_to_row(left, right, m - 1, j, out)
    for j in range(fours, k):
        for c in range(m):
            for i in range(n):
                out[c, i] += left[c, j] * right[j, i]


@reassociated
def add_to_two_rows(left, right, c, j, out):
    """Add the products with four rows of the right side, from row j, to rows c and c + 1."""
    a0 = left[c, j]
    a1 = left[c, j + 1]
    a2 = left[c, j + 2]
    a3 = left[c, j + 3]
    b0 = left[c + 1, j]
    b1 = left[c + 1, j + 1]
    b2 = left[c + 1, j + 2]
    b3 = left[c + 1, j + 3]
    for i in range(right.shape[1]):
        x0 = right[j, i]
        x1 = right[j + 1, i]
        x2 = right[j + 2, i]
        x3 = right[j + 3, i]
        out[c, i] += a0 * x0 + a1 * x1 + a2 * x2 + a3 * x3
        out[c + 1, i] += b0 * x0 + b1 * x1 + b2 * x2 + b3 * x3


@reassociated
def add_to_row(left, right, c, j, out):
    """Add the products with four rows of the right side, from row j, to row c."""
    a0 = left[c, j]
    a1 = left[c, j + 1]
    a2 = left[c, j + 2]
    a3 = left[c, j + 3]
    for i in range(right.shape[1]):
        pair = a0 * right[j, i] + a1 * right[j + 1, i]
        out[c, i] += pair + a2 * right[j + 2, i] + a3 * right[j + 3, i]


@reassociated
def multiply_transposed(left, right, is_symmetric, out):
    """Fill out (m, n) with left (m, k) · rightᵀ, right (n, k), block by block.

    Only half of the blocks of a symmetric product are computed.
    """
    side = max(1, int(np.sqrt(SMALL // max(left.shape[1], 1))))
    buffer = np.empty(side * side)
    for top in range(0, len(left), side):
        rows = left[top : top + side]
        width = top + 1 if is_symmetric else len(right)
        for start in range(0, width, side):
            columns = right[start : start + side]
            size = (len(rows), len(columns))
            block = buffer[: size[0] * size[1]].reshape(size)
            np.dot(rows, columns.T, block)
            for i in range(size[0]):
                for j in range(size[1]):
                    out[top + i, start + j] = block[i, j]
                    if is_symmetric:
                        out[start + j, top + i] = block[i, j]


@kernel
def fill_gram(rows, out):
    """Fill out with the products of all pairs of rows."""
    multiply_transposed(rows, rows, True, out)


@kernel
def fill_logits(weight, bias, queries, out):
    """Fill out (layers, classes, queries) with the logits of layers (classes, dimensions)."""
    for layer in range(len(weight)):
        multiply_transposed(weight[layer], queries, False, out[layer])
        for n in range(weight.shape[1]):
            for q in range(len(queries)):
                out[layer, n, q] += bias[layer, n]


@kernel
def fill_layer(unknowns, rows, is_gram, mean, deviation, weight, bias):
    """Fill weight with a fit on standardised columns, for the original columns; shift the bias.

    `unknowns` (classes, rows) count rows if the fit used their Gram matrix, else they are weights.
    """
    if is_gram:
        multiply(unknowns, rows, weight)
    else:
        weight[:] = unknowns
    for n in range(weight.shape[0]):
        for i in range(weight.shape[1]):
            weight[n, i] /= deviation[i]
        bias[n] -= dot(weight[n], mean)
