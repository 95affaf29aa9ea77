"""Standardised rows and their labels → the optimum of multinomial logistic regression, compiled by numba.

    J(W, b) = − Σ_i log p(label of i | row i) + |W|² / (2 C)        p = softmax(W z + b)        b is not penalised

C · J is strongly convex in W with constant 1, so its gradient G tells how far it is from its optimum: |G|² / 2 at most.
Newton's method; each step is solved by conjugate gradients, as far as it pays. A fit on n rows in d dimensions lives in
the span of its rows, W = A Z: where n ≤ d, A is sought, and all that is needed is products with the Gram matrix Z Zᵀ
(equal rows do no harm). Where n > d, W is sought, and each of its numbers is scaled by its own
curvature. In the span, the sum of rows by residuals is the residuals themselves, and the inner product of two weights
is that of the numbers of the one with the logits of the other; else the two ways are the same.

A vector is flat: weights (classes, unknowns), then the bias, then the logits (classes, rows) that the weights give the
rows. Functions take arrays, never tuples of arrays: numba counts references to each of these, in the innermost loop.
"""

import numpy as np

from callshot.baselines.kernels.products import dot, fill_gram, fill_sums, product
from callshot.fewshot.kernels import inner, kernel
from callshot.fewshot.kernels.scores import exp, log1p
from callshot.records import FloatArray, IntArray

MOST_STEPS, MOST_INNER = 200, 2000  # 3 to 10, and 10 to 200, are usual
TINY = 1e-300


def gram_matrix(rows: FloatArray, out: FloatArray | None = None) -> FloatArray:
    """Return the products of all pairs of rows, with a trace of it added to the diagonal.

    In floats a singular matrix may bend downwards along what it should not see, and J would have no bottom.
    """
    table = np.empty((len(rows), len(rows))) if out is None else out
    fill_gram(rows, table)
    table.flat[:: len(rows) + 1] += 1e-12 * np.trace(table)
    return table


@inner
def parts(
    vector: FloatArray, classes: int, unknowns: int
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return the weights, the bias and the logits of a vector."""
    first, last = classes * unknowns, classes * (unknowns + 1)
    weight, logits = vector[:first].reshape((classes, unknowns)), vector[last:]
    return weight, vector[first:last], logits.reshape((classes, logits.size // classes))


@inner
def add(x: FloatArray, scale: float, y: FloatArray, size: int) -> None:
    """Add scale · y to x, the first entries of both (numba compiles a loop faster than a slice)."""
    for i in range(size):
        x[i] += scale * y[i]


@inner
def fill_probabilities(
    logits: FloatArray, bias: FloatArray, label: IntArray, p: FloatArray
) -> float:
    """Fill p (classes, rows), and return the sum of −log p of the labels."""
    classes, rows = p.shape
    top, total, loss = np.full(rows, -np.inf), np.zeros(rows), 0.0
    for n in range(classes):
        for i in range(rows):
            top[i] = max(top[i], logits[n, i] + bias[n])
    for n in range(classes):
        for i in range(rows):
            p[n, i] = exp(logits[n, i] + bias[n] - top[i])
            total[i] += p[n, i]
    for i in range(rows):
        loss += top[i] - (logits[label[i], i] + bias[label[i]]) + log1p(total[i] - 1.0)
        total[i] = 1.0 / total[i]
    for n in range(classes):
        for i in range(rows):
            p[n, i] *= total[i]
    return loss


@inner
def fill_residuals(p: FloatArray, label: IntArray, strength: float, out: FloatArray) -> None:
    """Fill out with C · (truth less probability)."""
    for n in range(p.shape[0]):
        for i in range(p.shape[1]):
            out[n, i] = -strength * p[n, i]
    for i in range(label.size):
        out[label[i], i] += strength


@inner
def fill_changes(
    p: FloatArray,
    logits: FloatArray,
    bias: FloatArray,
    strength: float,
    mean: FloatArray,
    out: FloatArray,
) -> None:
    """Fill out with C · (how the probabilities change along a direction); `mean` (rows) is used up."""
    classes, rows = p.shape
    for i in range(rows):
        mean[i] = 0.0
    for n in range(classes):
        for i in range(rows):
            mean[i] += p[n, i] * (logits[n, i] + bias[n])
    for n in range(classes):
        for i in range(rows):
            out[n, i] = strength * p[n, i] * (logits[n, i] + bias[n] - mean[i])


@inner
def remainder(square: float, bias: FloatArray, curvature: FloatArray, strength: float) -> float:
    """Return how far J may be above its optimum, by |G|² of the weights; the bias is taken by its own curvature."""
    for n in range(bias.size):
        square += bias[n] ** 2 / curvature[n]
    return 0.5 * square / strength


@kernel
def fill_slope(
    rows: FloatArray,
    columns: FloatArray,
    label: IntArray,
    strength: float,
    weight: FloatArray,
    bias: FloatArray,
    slope: FloatArray,
    bias_slope: FloatArray,
) -> float:
    """Fill in the gradient of J by weight and bias, and return J."""
    logits, square = np.empty((weight.shape[0], label.size)), 0.0
    residual = np.empty_like(logits)
    product(weight, columns, logits)
    loss = fill_probabilities(logits, bias, label, residual)
    fill_residuals(residual, label, -1.0, residual)
    product(residual, rows, slope)
    fill_sums(residual, bias_slope)
    for n in range(weight.shape[0]):
        square += dot(weight[n], weight[n])
        for i in range(weight.shape[1]):
            slope[n, i] += weight[n, i] / strength
    value: float = loss + square / (2.0 * strength)
    return value


@kernel
def solve(
    rows: FloatArray,
    columns: FloatArray,
    gram: bool,
    label: IntArray,
    strength: float,
    tolerance: float,
    weight: FloatArray,
    bias: FloatArray,
) -> float:
    """Go from weight (classes, unknowns) and bias to the optimum, in place; return how far J may be above it still.

    `rows` (rows, unknowns) are the rows or their Gram matrix, `columns` the same turned over.
    """
    classes, unknowns = weight.shape
    weights, both = (
        classes * unknowns,
        classes * (unknowns + 1),
    )  # where the weights of a vector end, and the bias
    length = both + classes * label.size
    at, down, along, step, bent = (
        np.zeros(length),
        np.zeros(length),
        np.zeros(length),
        np.zeros(length),
        np.zeros(length),
    )
    curvature, before, fresh = np.ones(length), np.empty(length), down if gram else np.zeros(length)
    at_weight, at_bias, at_logits = parts(at, classes, unknowns)
    down_weight, down_bias, down_logits = parts(down, classes, unknowns)
    fresh_weight, fresh_bias, fresh_logits = parts(fresh, classes, unknowns)
    _, along_bias, along_logits = parts(along, classes, unknowns)
    bent_weight, bent_bias, _ = parts(bent, classes, unknowns)
    curve_weight, curve_bias, _ = parts(curvature, classes, unknowns)
    first, last = (
        (both, length) if gram else (0, weights)
    )  # the part that makes an inner product of weights
    p, room = np.empty_like(at_logits), np.empty_like(at_logits)
    residual, mean = room.reshape(room.size), np.empty(label.size)
    squares, given = rows if gram else rows * rows, weight.reshape(weight.size)

    add(at, 1.0, given, weights)
    add(at_bias, 1.0, bias, classes)
    product(at_weight, columns, at_logits)
    value = strength * fill_probabilities(at_logits, at_bias, label, p) + 0.5 * dot(
        at[:weights], at[first:last]
    )
    if not value <= strength * label.size * np.log(classes):  # nothing at all is a better start
        for i in range(length):
            at[i] = 0.0
        value = strength * fill_probabilities(at_logits, at_bias, label, p)
    gain, left = np.inf, np.inf
    for _ in range(MOST_STEPS):
        # the second derivative by each number alone
        for n in range(classes):
            for i in range(label.size):
                room[n, i] = strength * p[n, i] * (1.0 - p[n, i])
        fill_sums(room, curve_bias)
        for n in range(classes):
            curve_bias[n] = max(curve_bias[n], TINY)
        if not gram:
            product(room, squares, curve_weight)
            for i in range(weights):
                curvature[i] += 1.0
        # the gradient, downhill
        fill_residuals(p, label, strength, room)
        fill_sums(room, down_bias)
        if gram:
            for i in range(weights):
                down[i] = residual[i] - at[i]
            product(down_weight, columns, down_logits)
        else:
            product(room, rows, down_weight)
            add(down, -1.0, at, weights)
            for i in range(both):
                fresh[i] = down[i] / curvature[i]
        previous, left = (
            left,
            remainder(dot(down[:weights], down[first:last]), down_bias, curve_bias, strength),
        )
        if left <= tolerance or (
            gain <= 1e-15 * abs(value) and left > 0.5 * previous
        ):  # or only rounding is left
            break
        # a step, by conjugate gradients; down becomes what it leaves of the gradient
        size = dot(down[:weights], fresh[first:last]) + dot(down_bias, fresh_bias)
        goal, slope, turn = size * min(0.1, size), 0.0, 0.0
        for i in range(length):
            step[i] = 0.0
        for _ in range(MOST_INNER):
            if not gram:
                product(fresh_weight, columns, fresh_logits)
            for i in range(length):
                along[i] = fresh[i] + turn * along[i]
            fill_changes(p, along_logits, along_bias, strength, mean, room)
            fill_sums(room, bent_bias)
            if gram:
                for i in range(weights):
                    bent[i] = residual[i] + along[i]
            else:
                product(room, rows, bent_weight)
                add(bent, 1.0, along, weights)
            curve = dot(bent[:weights], along[first:last]) + dot(bent_bias, along_bias)
            if not (curve > 0.0 and size > 0.0):  # nothing is left but rounding
                break
            far = size / curve
            slope += far * size
            add(step, far, along, length)
            add(down, -far, bent, both)
            if gram:
                product(down_weight, columns, down_logits)
            else:
                for i in range(both):
                    fresh[i] = down[i] / curvature[i]
            square = dot(down[:weights], down[first:last])
            new = dot(down[:weights], fresh[first:last]) + dot(down_bias, fresh_bias)
            if new <= goal or remainder(square, down_bias, curve_bias, strength) <= 0.2 * tolerance:
                break
            size, turn = new, new / size
        # as far along it as pays: all the way, or half as far, and so on
        old, share, value = value, 2.0, np.inf
        for i in range(length):
            before[i] = at[i]
        while not value <= old - 1e-4 * share * slope + 1e-13 * abs(old):
            share = 0.5 * share if share > 1e-9 else 0.0
            for i in range(length):
                at[i] = before[i] + share * step[i] if share > 0.0 else before[i]
            loss = fill_probabilities(at_logits, at_bias, label, p)
            value = strength * loss + 0.5 * dot(at[:weights], at[first:last])
        gain = old - value
    for i in range(weights):
        given[i] = at[i]
    for n in range(classes):
        bias[n] = at_bias[n]
    return left
