"""Standardised rows and their labels → the optimum of multinomial logistic regression.

    J(W, b) = − Σ_i log p(label of i | row i) + |W|² / (2 C)    p = softmax(W z + b)

The bias b is not penalised. C · objective is strongly convex in W with constant 1, so its gradient
G bounds how far it is above its optimum: by |G|² / 2. Conjugate gradients find each step of
Newton's method, as exactly as is worth while.

A fit on n rows in d dimensions lies in the span of its rows, W = A Z. Where n ≤ d, the unknowns are
A, and only products with the Gram matrix Z Zᵀ are needed (equal rows do no harm). Where n > d, the
unknowns are W, preconditioned by their second derivatives. In the span, the gradient is the
residuals themselves, and the inner product of two weights is that of the unknowns of one with the
logits of the other.

Each product goes to BLAS in parts that are too small for its threads, which would wait for each
other at every product, most of the time where other programs need the same cores.
"""

from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import COMPILED, Function, inner, kernel, njit
from callshot.fewshot.kernels.scores import exp, log1p
from callshot.records import FloatArray, IntArray

MAX_STEPS = 200  # 3 to 10 are usual
MAX_INNER_STEPS = 2000  # 10 to 200 are usual
TINY = 1e-300
SMALL = 2**18  # multiplications in a product: up to here OpenBLAS starts no thread


class Problem(NamedTuple):
    """One fit; `rows` (rows, unknowns) may be their Gram matrix, `columns` is the transpose."""

    rows: FloatArray
    columns: FloatArray
    is_gram: bool
    label: IntArray
    c: float


class Vector(NamedTuple):
    """Weights (classes, unknowns), bias (classes) and logits (classes, rows): views of `values`.

    Logits are without the bias. The inner product of the weights of two vectors is that of one's
    `flat` with the other's `dual`. Functions unpack a vector before their loops: numba counts
    references.
    """

    values: FloatArray
    weight: FloatArray
    bias: FloatArray
    logits: FloatArray
    flat: FloatArray
    dual: FloatArray


def make_problem(rows: FloatArray, label: IntArray, c: float) -> Problem:
    """State a fit on standardised rows (rows, dimensions) in the form with fewer unknowns."""
    count, dimensions = rows.shape
    if count > dimensions:
        columns = np.ascontiguousarray(rows.T)
        return Problem(rows, columns, is_gram=False, label=label, c=c)
    table = np.empty((count, count))
    multiply(rows, rows, is_symmetric=True, out=table)
    # A singular matrix may have negative eigenvalues in floats, and the objective no minimum: add a
    # little to the diagonal.
    table.flat[:: count + 1] += 1e-12 * np.trace(table)
    return Problem(table, table, is_gram=True, label=label, c=c)


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
    """Fill `out` with the sum of each row of a table."""
    for n in range(table.shape[0]):
        total = 0.0
        for i in range(table.shape[1]):
            total += table[n, i]
        out[n] = total


@kernel
def multiply(left, right, is_symmetric, out):
    """Fill out (m, n) with left (m, k) · rightᵀ, right (n, k), block by block.

    Blocks are so small that BLAS starts no threads. Only half of the blocks of a symmetric product
    are computed.
    """
    numbers = SMALL // max(left.shape[1], 1)  # in a block
    side = max(1, int(np.sqrt(numbers)))  # its rows and columns
    buffer = np.empty(side * side)
    for top in range(0, len(left), side):
        rows = left[top : top + side]
        width = top + 1 if is_symmetric else len(right)  # blocks up to the diagonal
        for start in range(0, width, side):
            columns = right[start : start + side]
            size = (len(rows), len(columns))
            block = buffer[: size[0] * size[1]].reshape(size)
            np.dot(rows, columns.T, block)
            for i in range(size[0]):
                row = top + i
                for j in range(size[1]):
                    column = start + j
                    product = block[i, j]
                    out[row, column] = product
                    if is_symmetric:
                        out[column, row] = product


@inner
def new_vector(classes, unknowns, rows, is_gram):
    """Return a Vector of zeros; with `is_gram`, unknowns are coefficients of the rows.

    Its fields are views of one array of values, which holds weights, bias and logits in this order.
    """
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
        logits if is_gram else flat,  # dual: see `Vector`
    )


@inner
def add(x, scale, y):
    """Add scale · y to x (numba compiles a loop faster than a slice)."""
    for i in range(x.size):
        x[i] += scale * y[i]


@inner
def fill_quotients(x, y, out):
    """Fill out with x / y, as far as x goes."""
    for i in range(x.size):
        out[i] = x[i] / y[i]


@inner
def fill_probabilities(logits, bias, label, p):
    """Fill p (classes, rows) with the softmax of logits + bias; return Σ −log p of the labels."""
    classes, rows = p.shape
    largest = np.full(rows, -np.inf)
    total = np.zeros(rows)
    loss = 0.0
    for n in range(classes):
        for i in range(rows):
            logit = logits[n, i] + bias[n]
            largest[i] = max(largest[i], logit)
    for n in range(classes):
        for i in range(rows):
            logit = logits[n, i] + bias[n]
            odds = exp(logit - largest[i])
            p[n, i] = odds
            total[i] += odds
    for i in range(rows):
        n = label[i]
        logit = logits[n, i] + bias[n]
        loss += largest[i] - logit + log1p(total[i] - 1.0)
        total[i] = 1.0 / total[i]
    for n in range(classes):
        for i in range(rows):
            p[n, i] *= total[i]
    return loss


@inner
def fill_row_sums(columns, is_gram, factors, scale, penalised, weight, bias):
    """Fill `weight` with Σ_i factors[n, i] · row i + scale · penalised[n], for each class n.

    `columns` (unknowns, rows) is the transpose of the rows. With a Gram matrix, a weight is stored
    as coefficients of the rows, and Σ_i needs no product. `bias` gets the sum of the factors.
    """
    fill_sums(factors, bias)
    if not is_gram:
        multiply(factors, columns, is_symmetric=False, out=weight)
    for n in range(weight.shape[0]):
        for i in range(weight.shape[1]):
            row_sum = factors[n, i] if is_gram else weight[n, i]
            weight[n, i] = row_sum + scale * penalised[n, i]


@inner
def bound_gap(descent, bias_curvature, c):
    """Return how far the objective may be above its optimum.

    `descent` is the negative gradient of C · objective, a Vector. Its squares are divided by the
    curvature: at least 1 for weights, `bias_curvature` for the bias.
    """
    _, _, bias, _, flat, dual = descent
    square = dot(flat, dual)
    for n in range(bias.size):
        square += bias[n] ** 2 / bias_curvature[n]
    return 0.5 * square / c


@inner
def value_at(problem, position, p):
    """Return C · objective at a position (a Vector), and fill in its probabilities p."""
    loss = fill_probabilities(position.logits, position.bias, problem.label, p)
    return problem.c * loss + 0.5 * dot(position.flat, position.dual)


@inner
def fill_curvature(p, squares, is_gram, c, factors, weight, bias):
    """Fill `weight` and `bias` with the second derivatives of C · objective by each unknown alone.

    With a Gram matrix only `bias`. `p` (classes, rows) are the probabilities, `squares` (unknowns,
    rows) those of the transposed rows; `factors` (classes, rows) is scratch.
    """
    classes, rows = p.shape
    for n in range(classes):
        for i in range(rows):
            probability = p[n, i]
            factors[n, i] = c * probability * (1.0 - probability)
    fill_sums(factors, bias)
    for n in range(classes):
        bias[n] = max(bias[n], TINY)
    if not is_gram:
        multiply(factors, squares, is_symmetric=False, out=weight)
        for n in range(classes):
            for i in range(weight.shape[1]):
                weight[n, i] += 1.0


@inner
def fill_descent(problem, position, p, factors, descent):
    """Fill in the negative gradient of C · objective at a position with probabilities p.

    It is the rows times C · (truth − probability), minus the weights. Position and descent are
    `Vector`s; `factors` (classes, rows) is scratch.
    """
    rows, columns, is_gram, label, c = problem
    _, weight, bias, logits, _, _ = descent
    for n in range(p.shape[0]):
        for i in range(label.size):
            factors[n, i] = -c * p[n, i]
    for i in range(label.size):
        factors[label[i], i] += c
    penalised = position.weight
    fill_row_sums(columns, is_gram, factors, -1.0, penalised, weight, bias)
    if is_gram:
        multiply(weight, rows, is_symmetric=False, out=logits)


@inner
def fill_changes(p, c, logits, bias, mean, changes):
    """Fill `changes` with C · the derivative of the probabilities p along a direction.

    The direction has `logits` (classes, rows), without the bias, and `bias`. `changes` is like
    `p`, (classes, rows); `mean` (rows) is scratch.
    """
    classes, rows = p.shape
    mean[:] = 0.0
    for n in range(classes):
        for i in range(rows):
            logit = logits[n, i] + bias[n]
            mean[i] += p[n, i] * logit
    for n in range(classes):
        for i in range(rows):
            logit = logits[n, i] + bias[n]
            distance = logit - mean[i]
            changes[n, i] = c * p[n, i] * distance


@inner
def take_step(problem, position, step, decrease, value, p):
    """Take a step, or half of it, and so on, until C · objective is low enough (Armijo's rule).

    If no share is, stay. `value` is C · objective before, `decrease` how much the whole step should
    lower it. Change the position, fill in its probabilities p, and return C · objective there.
    """
    values = position.values
    before = values.copy()
    share = 2.0  # halved first
    new = np.inf
    # A share of 0 ends the search: where the step or the decrease is NaN, nothing is low enough.
    while share > 0.0 and not (
        new <= value - 1e-4 * share * decrease + 1e-13 * abs(value)
    ):
        share = 0.5 * share if share > 1e-9 else 0.0  # 0: stay
        for i in range(values.size):
            start = before[i]
            values[i] = start + share * step[i] if share > 0.0 else start
        new = value_at(problem, position, p)
    return new


@inner
def fill_step(problem, p, curvature, tolerance, descent, step):
    """Fill in a Newton step by conjugate gradients; return how much it should lower C · objective.

    `p` (classes, rows) are the probabilities at the position. `descent` is the negative gradient of
    C · objective there, and becomes what the step leaves of it; `curvature` has the second
    derivatives by each unknown alone. Both are `Vector`s, `step` is an array like their `values`.

    The iterations stop as in truncated Newton methods: at a tenth of the first residual, or less
    near the optimum. In the function, `scaled` is the descent, preconditioned if there are more
    rows than dimensions; `hessian` is the Hessian times the search direction.
    """
    rows, columns, is_gram, label, c = problem
    values, weight, bias, logits, flat, _ = descent
    classes, unknowns = weight.shape
    search = new_vector(classes, unknowns, label.size, is_gram)
    hessian = new_vector(classes, unknowns, label.size, is_gram)
    scaled = descent
    if not is_gram:
        scaled = new_vector(classes, unknowns, label.size, is_gram)
    search_values, search_weight, search_bias, search_logits, _, search_dual = search
    hessian_values, hessian_weight, hessian_bias, _, hessian_flat, _ = hessian
    scaled_values, scaled_weight, scaled_bias, scaled_logits, _, scaled_dual = scaled
    curvature_values = curvature.values
    bias_curvature = curvature.bias
    weight_and_bias = values[: values.size - p.size]  # without the logits
    changes = np.empty_like(p)
    mean = np.empty(label.size)
    if not is_gram:
        fill_quotients(weight_and_bias, curvature_values, scaled_values)
    size = dot(flat, scaled_dual) + dot(bias, scaled_bias)
    goal = size * min(0.1, size)
    decrease = 0.0
    beta = 0.0
    step[:] = 0.0
    for _ in range(MAX_INNER_STEPS):
        if not is_gram:
            multiply(scaled_weight, rows, is_symmetric=False, out=scaled_logits)
        for i in range(search_values.size):
            search_values[i] = scaled_values[i] + beta * search_values[i]
        fill_changes(p, c, search_logits, search_bias, mean, changes)
        fill_row_sums(
            columns, is_gram, changes, 1.0, search_weight, hessian_weight, hessian_bias
        )
        curve = dot(hessian_flat, search_dual) + dot(hessian_bias, search_bias)
        if not (curve > 0.0 and size > 0.0):  # only rounding is left
            break
        alpha = size / curve
        decrease += alpha * size
        add(step, alpha, search_values)
        add(weight_and_bias, -alpha, hessian_values)
        if is_gram:
            multiply(weight, rows, is_symmetric=False, out=logits)
        else:
            fill_quotients(weight_and_bias, curvature_values, scaled_values)
        previous = size
        size = dot(flat, scaled_dual) + dot(bias, scaled_bias)
        if size <= goal or bound_gap(descent, bias_curvature, c) <= 0.2 * tolerance:
            break
        beta = size / previous
    return decrease


@kernel
def solve(problem, tolerance, weight, bias):
    """Move weight (classes, unknowns) and bias (classes) to the minimum of a `Problem`'s objective.

    The fit ends where the objective is at most `tolerance` above its optimum, or only rounding is
    left. Return how far it may be above it.
    """
    rows, columns, is_gram, label, c = problem
    classes, unknowns = weight.shape
    position = new_vector(classes, unknowns, label.size, is_gram)
    curvature = new_vector(classes, unknowns, label.size, is_gram)
    descent = new_vector(classes, unknowns, label.size, is_gram)
    values = position.values
    step = np.empty_like(values)
    p = np.empty_like(position.logits)
    factors = np.empty_like(p)
    squares = columns if is_gram else columns * columns

    # Loops, as numba takes seconds to compile the message of a slice of another shape.
    for n in range(classes):
        position.bias[n] = bias[n]
        for i in range(unknowns):
            position.weight[n, i] = weight[n, i]

    # Start at zeros where these are better: there all classes have the same probability.
    multiply(position.weight, rows, is_symmetric=False, out=position.logits)
    value = value_at(problem, position, p)
    if not value <= c * label.size * np.log(classes):
        values[:] = 0.0
        value = value_at(problem, position, p)
    gain = np.inf
    gap = np.inf
    for _ in range(MAX_STEPS):
        fill_curvature(
            p, squares, is_gram, c, factors, curvature.weight, curvature.bias
        )
        fill_descent(problem, position, p, factors, descent)
        previous = gap
        gap = bound_gap(descent, curvature.bias, c)
        if gap <= tolerance:
            break
        if gain <= 1e-15 * abs(value) and gap > 0.5 * previous:  # only rounding is left
            break
        decrease = fill_step(problem, p, curvature, tolerance, descent, step)
        new = take_step(problem, position, step, decrease, value, p)
        gain = value - new
        value = new
    for n in range(classes):
        bias[n] = position.bias[n]
        for i in range(unknowns):
            weight[n, i] = position.weight[n, i]
    return gap
