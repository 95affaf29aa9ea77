"""Standardised rows and their labels → the optimum of multinomial logistic regression.

    J(W, b) = − Σ_i log p(label of i | row i) + |W|² / (2 C)    p = softmax(W z + b)

The bias b is not penalised. C · J is strongly convex in W with constant 1, so its gradient G bounds
how far it is above its optimum: by |G|² / 2. Newton's method is used, and conjugate gradients find
each of its steps, as exactly as is worth while.

A fit on n rows in d dimensions lies in the span of its rows, W = A Z. Where n ≤ d, the unknowns are
A, and only products with the Gram matrix Z Zᵀ are needed (equal rows do no harm). Where n > d, the
unknowns are W, preconditioned by their second derivatives. In the span, the gradient is the
residuals themselves, and the inner product of two weights is that of the unknowns of one with the
logits of the other.

Products are by BLAS but never by its threads. A BLAS that starts threads makes them wait for each
other at every product. Where other programs need the same cores, that takes most of the time:
choosing C for 601 rows of 1,024 dimensions took minutes on a busy machine, and takes 14 s in this
way. A product too small for threads goes to BLAS, or a few such parts of it do; larger ones go
through a loop with two thirds of the speed of BLAS.
"""

from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import COMPILED, Function, inner, kernel, njit
from callshot.fewshot.kernels.scores import exp, log1p
from callshot.records import FloatArray, IntArray

MAX_STEPS = 200  # 3 to 10 are usual
MAX_INNER_STEPS = 2000  # 10 to 200 are usual
TINY = 1e-300
SMALL = 2**18  # multiplications: up to here OpenBLAS starts no thread


class Problem(NamedTuple):
    """A fit: `rows` (rows, unknowns) are the rows or their Gram matrix, `columns` the transpose."""

    rows: FloatArray
    columns: FloatArray
    is_gram: bool
    label: IntArray
    c: float


class Vector(NamedTuple):
    """Weights (classes, unknowns), bias (classes) and logits (classes, rows): views of `values`.

    The inner product of the weights of two vectors is that of one's `flat` with the other's `dual`.
    Functions unpack a vector before their loops: numba counts references to its arrays.
    """

    values: FloatArray
    weight: FloatArray
    bias: FloatArray
    logits: FloatArray
    flat: FloatArray
    dual: FloatArray


class Directions(NamedTuple):
    """The vectors of conjugate gradients.

    `scaled` is the descent, preconditioned if n > d; `hessian` is the Hessian · search direction.
    """

    descent: Vector
    scaled: Vector
    search: Vector
    hessian: Vector


def make_problem(
    rows: FloatArray, label: IntArray, c: float, buffer: FloatArray | None = None
) -> Problem:
    """Return the fit with fewer unknowns; a flat `buffer` may hold its Gram matrix or columns."""
    count, dimensions = rows.shape
    if buffer is None:
        buffer = np.empty(count * min(rows.shape))
    if count <= dimensions:
        table = gram_matrix(rows, buffer[: count * count].reshape(count, count))
        return Problem(table, table, True, label, c)
    columns = buffer[: rows.size].reshape(dimensions, count)
    columns[:] = rows.T
    return Problem(rows, columns, False, label, c)


def gram_matrix(rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Return the products of all pairs of rows, with a little of the trace added to the diagonal.

    A singular matrix may have negative eigenvalues in floats, and J would have no minimum.
    """
    table = np.empty((len(rows), len(rows))) if out is None else out
    fill_gram(rows, table)
    table.flat[:: len(rows) + 1] += 1e-12 * np.trace(table)
    return table


@inner
def new_vector(classes, unknowns, rows, is_gram):
    """Return a vector of zeros."""
    weights = classes * unknowns
    values = np.zeros(weights + classes + classes * rows)
    flat = values[:weights]
    logits = values[weights + classes :]
    return Vector(
        values,
        flat.reshape((classes, unknowns)),
        values[weights : weights + classes],
        logits.reshape((classes, rows)),
        flat,
        logits if is_gram else flat,
    )


@inner
def add(x, scale, y):
    """Add scale · y to x (numba compiles a loop faster than a slice)."""
    for i in range(x.size):
        x[i] += scale * y[i]


@inner
def fill(x, value):
    """Set every entry of x."""
    for i in range(x.size):
        x[i] = value


@inner
def fill_quotients(x, y, out):
    """Fill out with x / y, as far as x goes."""
    for i in range(x.size):
        out[i] = x[i] / y[i]


@inner
def fill_probabilities(logits, bias, label, p):
    """Fill p (classes, rows), and return the sum of −log p of the labels."""
    classes, rows = p.shape
    largest = np.full(rows, -np.inf)
    total = np.zeros(rows)
    loss = 0.0
    for n in range(classes):
        for i in range(rows):
            largest[i] = max(largest[i], logits[n, i] + bias[n])
    for n in range(classes):
        for i in range(rows):
            p[n, i] = exp(logits[n, i] + bias[n] - largest[i])
            total[i] += p[n, i]
    for i in range(rows):
        logit = logits[label[i], i] + bias[label[i]]
        loss += largest[i] - logit + log1p(total[i] - 1.0)
        total[i] = 1.0 / total[i]
    for n in range(classes):
        for i in range(rows):
            p[n, i] *= total[i]
    return loss


@inner
def fill_residuals(p, label, c, out):
    """Fill out with C · (truth − probability)."""
    for n in range(p.shape[0]):
        for i in range(p.shape[1]):
            out[n, i] = -c * p[n, i]
    for i in range(label.size):
        out[label[i], i] += c


@inner
def fill_changes(p, logits, bias, c, mean, out):
    """Fill out with C · (derivative of the probabilities along a direction); overwrite `mean`."""
    classes, rows = p.shape
    fill(mean, 0.0)
    for n in range(classes):
        for i in range(rows):
            mean[i] += p[n, i] * (logits[n, i] + bias[n])
    for n in range(classes):
        for i in range(rows):
            out[n, i] = c * p[n, i] * (logits[n, i] + bias[n] - mean[i])


@inner
def fill_row_sums(rows, is_gram, factors, scale, penalised, weight, bias):
    """Fill in Σ_i factor of i · row i, for each class; add scale · penalised to the weights."""
    fill_sums(factors, bias)
    if is_gram:
        for n in range(factors.shape[0]):
            for i in range(factors.shape[1]):
                weight[n, i] = factors[n, i] + scale * penalised[n, i]
        return
    multiply(factors, rows, weight)
    for n in range(weight.shape[0]):
        for i in range(weight.shape[1]):
            weight[n, i] += scale * penalised[n, i]


@inner
def fill_curvature(squares, is_gram, c, p, out):
    """Fill in the second derivatives by each unknown alone; only those of the bias in the span."""
    factors = np.empty_like(p)
    bias = out.bias
    for n in range(p.shape[0]):
        for i in range(p.shape[1]):
            factors[n, i] = c * p[n, i] * (1.0 - p[n, i])
    fill_sums(factors, bias)
    for n in range(bias.size):
        bias[n] = max(bias[n], TINY)
    if not is_gram:
        weight = out.flat
        multiply(factors, squares, out.weight)
        for i in range(weight.size):
            weight[i] += 1.0


@inner
def bound_gap(square, bias, curvature, c):
    """Return how far J may be above its optimum, from |G|² of the weights and G of the bias.

    The bias counts by its own curvature.
    """
    for n in range(bias.size):
        square += bias[n] ** 2 / curvature[n]
    return 0.5 * square / c


@inner
def value_at(problem, position, p):
    """Return C · J at a position, and fill in its probabilities."""
    loss = fill_probabilities(position.logits, position.bias, problem.label, p)
    return problem.c * loss + 0.5 * dot(position.flat, position.dual)


@inner
def fill_descent(problem, position, p, out):
    """Fill in the negative gradient, with its logits in the span."""
    residual = np.empty_like(p)
    fill_residuals(p, problem.label, problem.c, residual)
    fill_row_sums(
        problem.rows,
        problem.is_gram,
        residual,
        -1.0,
        position.weight,
        out.weight,
        out.bias,
    )
    if problem.is_gram:
        multiply(out.weight, problem.columns, out.logits)


@inner
def fill_step(problem, p, curvature, tolerance, directions, step):
    """Fill in a Newton step by conjugate gradients; return the decrease of C · J it promises.

    The descent becomes what the step leaves of it.
    """
    rows, columns, is_gram, _, c = problem
    descent, scaled, search, hessian = directions
    changes = np.empty_like(p)
    mean = np.empty(p.shape[1])
    search_values, search_weight, search_bias, search_logits, _, search_dual = search
    hessian_values, hessian_weight, hessian_bias, _, hessian_flat, _ = hessian
    scaled_values, scaled_weight, scaled_bias, scaled_logits, _, scaled_dual = scaled
    values, weight, bias, logits, flat, dual = descent
    weight_and_bias = values[: values.size - p.size]
    curvature_values = curvature.values
    bias_curvature = curvature.bias
    if not is_gram:
        fill_quotients(weight_and_bias, curvature_values, scaled_values)
    size = dot(flat, scaled_dual) + dot(bias, scaled_bias)
    goal = size * min(0.1, size)
    decrease = 0.0
    beta = 0.0
    fill(step, 0.0)
    for _ in range(MAX_INNER_STEPS):
        if not is_gram:
            multiply(scaled_weight, columns, scaled_logits)
        for i in range(search_values.size):
            search_values[i] = scaled_values[i] + beta * search_values[i]
        fill_changes(p, search_logits, search_bias, c, mean, changes)
        fill_row_sums(
            rows, is_gram, changes, 1.0, search_weight, hessian_weight, hessian_bias
        )
        curve = dot(hessian_flat, search_dual) + dot(hessian_bias, search_bias)
        if not (curve > 0.0 and size > 0.0):  # only rounding is left
            break
        alpha = size / curve
        decrease += alpha * size
        add(step, alpha, search_values)
        add(weight_and_bias, -alpha, hessian_values)
        if is_gram:
            multiply(weight, columns, logits)
        else:
            fill_quotients(weight_and_bias, curvature_values, scaled_values)
        previous = size
        size = dot(flat, scaled_dual) + dot(bias, scaled_bias)
        if size <= goal:
            break
        if bound_gap(dot(flat, dual), bias, bias_curvature, c) <= 0.2 * tolerance:
            break
        beta = size / previous
    return decrease


@inner
def search_line(problem, value, decrease, step, position, p):
    """Take the step, or half of it, and so on, until C · J is lower; return that value."""
    values = position.values
    before = values.copy()
    share = 2.0
    new = np.inf
    while not new <= value - 1e-4 * share * decrease + 1e-13 * abs(value):
        share = 0.5 * share if share > 1e-9 else 0.0
        for i in range(values.size):
            values[i] = before[i] + share * step[i] if share > 0.0 else before[i]
        new = value_at(problem, position, p)
    return new


@inner
def new_directions(classes, unknowns, rows, is_gram):
    """Return the vectors of conjugate gradients; in the span, the descent is not scaled."""
    descent = new_vector(classes, unknowns, rows, is_gram)
    scaled = descent
    if not is_gram:
        scaled = new_vector(classes, unknowns, rows, is_gram)
    search = new_vector(classes, unknowns, rows, is_gram)
    hessian = new_vector(classes, unknowns, rows, is_gram)
    return Directions(descent, scaled, search, hessian)


@inner
def start_at(problem, weight, bias, position, p):
    """Start at weight and bias, or at zeros where these are better; return C · J there."""
    add(position.flat, 1.0, weight.reshape(weight.size))
    add(position.bias, 1.0, bias)
    multiply(position.weight, problem.columns, position.logits)
    value = value_at(problem, position, p)
    value_at_zeros = problem.c * problem.label.size * np.log(bias.size)
    if not value <= value_at_zeros:
        fill(position.values, 0.0)
        value = value_at(problem, position, p)
    return value


@kernel
def solve(problem, tolerance, weight, bias):
    """Move weight (classes, unknowns) and bias to the optimum; return how far J may be above it."""
    rows, _, is_gram, label, c = problem
    classes, unknowns = weight.shape
    position = new_vector(classes, unknowns, label.size, is_gram)
    curvature = new_vector(classes, unknowns, label.size, is_gram)
    directions = new_directions(classes, unknowns, label.size, is_gram)
    descent = directions.descent
    step = np.empty_like(position.values)
    p = np.empty_like(position.logits)
    squares = rows if is_gram else rows * rows
    value = start_at(problem, weight, bias, position, p)
    gain = np.inf
    gap = np.inf
    for _ in range(MAX_STEPS):
        fill_curvature(squares, is_gram, c, p, curvature)
        fill_descent(problem, position, p, descent)
        previous = gap
        square = dot(descent.flat, descent.dual)
        gap = bound_gap(square, descent.bias, curvature.bias, c)
        if gap <= tolerance:
            break
        if gain <= 1e-15 * abs(value) and gap > 0.5 * previous:  # only rounding is left
            break
        decrease = fill_step(problem, p, curvature, tolerance, directions, step)
        new = search_line(problem, value, decrease, step, position, p)
        gain = value - new
        value = new
    weight[:] = position.weight
    bias[:] = position.bias
    return gap


@kernel
def fill_gradient(problem, weight, bias, weight_gradient, bias_gradient):
    """Fill in the gradient of J by weight and bias, and return J; not for a Gram matrix."""
    logits = np.empty((weight.shape[0], problem.label.size))
    residual = np.empty_like(logits)
    multiply(weight, problem.columns, logits)
    loss = fill_probabilities(logits, bias, problem.label, residual)
    fill_residuals(residual, problem.label, -1.0, residual)
    multiply(residual, problem.rows, weight_gradient)
    fill_sums(residual, bias_gradient)
    square = 0.0
    for n in range(weight.shape[0]):
        square += dot(weight[n], weight[n])
        for i in range(weight.shape[1]):
            weight_gradient[n, i] += weight[n, i] / problem.c
    return loss + square / (2.0 * problem.c)


# Products.


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
