"""Standardised rows and their labels → the optimum of multinomial logistic regression, compiled by numba.

    J(W, b) = − Σ_i log p(label of i | row i) + |W|² / (2 C)        p = softmax(W z + b)        b is not penalised

C · J is strongly convex in W with constant 1, so its gradient G tells how far it is from its optimum: |G|² / 2 at most.
Newton's method; each step is solved by conjugate gradients, as far as it pays. A fit on n rows in d dimensions lives in
the span of its rows, W = A Z: where n ≤ d, A is sought, and all that is needed is products with the Gram matrix Z Zᵀ
(which may be singular: equal rows do no harm). Where n > d, W is sought, and each of its numbers is scaled by its own
curvature. The two ways differ in `pull`, `product`, `fill_curvatures` and `precondition`.

Arrays are (classes, rows) or (classes, unknowns): the innermost loops run over rows.
"""

from typing import NamedTuple

import numpy as np

from callshot.fewshot.kernels import inner, kernel
from callshot.fewshot.kernels.scores import exp, log1p
from callshot.records import FloatArray, IntArray

MOST_STEPS, MOST_INNER = 200, 2000  # 3 to 10, and 10 to 200, are usual
TINY = 1e-300


class Problem(NamedTuple):
    """What is minimised: `rows` (rows, unknowns) are the rows or their Gram matrix, `columns` the same turned over."""

    rows: FloatArray
    columns: FloatArray
    squares: FloatArray
    ones: FloatArray
    gram: bool
    label: IntArray
    classes: int
    strength: float


class Vector(NamedTuple):
    """A point or a direction: weights, bias, and the logits that the weights give the rows; all parts of `whole`."""

    whole: FloatArray
    weight: FloatArray
    bias: FloatArray
    pushed: FloatArray


class Work(NamedTuple):
    """A step that is being found, and what it takes."""

    step: Vector
    along: Vector
    bent: Vector
    fresh: Vector
    curvature: Vector


@inner
def new_vector(problem: Problem) -> Vector:
    """Return a vector of zeros."""
    (rows, unknowns), classes = problem.rows.shape, problem.classes
    whole, first, last = np.zeros(classes * (unknowns + 1 + rows)), classes * unknowns, classes * (unknowns + 1)
    weight, pushed = whole[:first].reshape((classes, unknowns)), whole[last:].reshape((classes, rows))
    return Vector(whole, weight, whole[first:last], pushed)


@inner
def set_to(x: FloatArray, scale: float, y: FloatArray) -> None:
    """Fill the first part of x, as long as y, with scale · y (numba compiles a loop far faster than a slice)."""
    for i in range(y.size):
        x[i] = scale * y[i]


@inner
def add(x: FloatArray, scale: float, y: FloatArray, size: int) -> None:
    """Add the first part of scale · y to that of x."""
    for i in range(size):
        x[i] += scale * y[i]


@inner
def push(problem: Problem, at: Vector) -> None:
    """Fill in the logits that the weights give the rows."""
    np.dot(at.weight, problem.columns, at.pushed)


@inner
def pull(problem: Problem, residual: FloatArray, out: Vector) -> None:
    """Fill in the gradient that residuals (classes, rows) of the rows make.

    In the span of the rows, the numbers of a sum by residuals are the residuals themselves.
    """
    if problem.gram:
        set_to(out.whole, 1.0, residual.reshape(residual.size))
    else:
        np.dot(residual, problem.rows, out.weight)
    np.dot(residual, problem.ones, out.bias)


@inner
def product(problem: Problem, x: Vector, y: Vector, bias: bool) -> float:
    """Return the inner product of two vectors' W, and of their bias too."""
    other = y.pushed if problem.gram else y.weight
    total = np.dot(x.weight.reshape(x.weight.size), other.reshape(other.size))
    return float(total + np.dot(x.bias, y.bias) if bias else total)


@inner
def fill_probabilities(problem: Problem, at: Vector, p: FloatArray) -> float:
    """Fill p (classes, rows), and return C · J."""
    classes, rows = p.shape
    pushed, bias, label = at.pushed, at.bias, problem.label
    top, total, loss = np.full(rows, -np.inf), np.zeros(rows), 0.0
    for n in range(classes):
        for i in range(rows):
            top[i] = max(top[i], pushed[n, i] + bias[n])
    for n in range(classes):
        for i in range(rows):
            p[n, i] = exp(pushed[n, i] + bias[n] - top[i])
            total[i] += p[n, i]
    for i in range(rows):
        loss += top[i] - (pushed[label[i], i] + bias[label[i]]) + log1p(total[i] - 1.0)
        total[i] = 1.0 / total[i]
    for n in range(classes):
        for i in range(rows):
            p[n, i] *= total[i]
    return float(problem.strength * loss + 0.5 * product(problem, at, at, False))


@inner
def fill_descent(problem: Problem, p: FloatArray, at: Vector, room: FloatArray, down: Vector) -> None:
    """Fill in the negative gradient of C · J; `room` (classes, rows) is used up."""
    for n in range(p.shape[0]):
        for i in range(p.shape[1]):
            room[n, i] = -problem.strength * p[n, i]
    for i in range(problem.label.size):
        room[problem.label[i], i] += problem.strength
    pull(problem, room, down)
    add(down.whole, -1.0, at.whole, at.weight.size)
    if problem.gram:
        push(problem, down)


@inner
def fill_bend(problem: Problem, p: FloatArray, along: Vector, room: FloatArray, out: Vector) -> None:
    """Fill in how the gradient of C · J turns along a direction."""
    classes, rows = p.shape
    mean, pushed, bias = np.zeros(rows), along.pushed, along.bias
    for n in range(classes):
        for i in range(rows):
            mean[i] += p[n, i] * (pushed[n, i] + bias[n])
    for n in range(classes):
        for i in range(rows):
            room[n, i] = problem.strength * p[n, i] * (pushed[n, i] + bias[n] - mean[i])
    pull(problem, room, out)
    add(out.whole, 1.0, along.whole, along.weight.size)


@inner
def fill_curvatures(problem: Problem, p: FloatArray, room: FloatArray, out: Vector) -> None:
    """Fill in the second derivative of C · J by each bias alone and, outside the span of the rows, by each weight."""
    for n in range(p.shape[0]):
        for i in range(p.shape[1]):
            room[n, i] = problem.strength * p[n, i] * (1.0 - p[n, i])
    np.dot(room, problem.ones, out.bias)
    if not problem.gram:
        np.dot(room, problem.squares, out.weight)
    for i in range(out.weight.size + out.bias.size):
        out.whole[i] = max(out.whole[i], TINY) + (1.0 if i < out.weight.size else 0.0)


@inner
def remainder(problem: Problem, down: Vector, curvature: Vector) -> float:
    """Return how far J may be above its optimum, by its gradient; the bias is taken by its own curvature."""
    total = product(problem, down, down, False)
    for n in range(down.bias.size):
        total += down.bias[n] ** 2 / curvature.bias[n]
    return float(0.5 * total / problem.strength)


@inner
def precondition(problem: Problem, down: Vector, curvature: Vector, out: Vector) -> float:
    """Fill in a direction from what is left of the gradient, and return their product; in the span, out is down."""
    if not problem.gram:
        for i in range(down.weight.size + down.bias.size):
            out.whole[i] = down.whole[i] / curvature.whole[i]
    push(problem, out)
    return float(product(problem, down, out, True))


@inner
def fill_step(problem: Problem, p: FloatArray, tolerance: float, room: FloatArray, down: Vector, work: Work) -> float:
    """Fill in a step towards the optimum, by conjugate gradients, and return how steeply it goes down.

    `down` is the negative gradient, and in the end what the step leaves of it.
    """
    step, along, bent, fresh = work.step, work.along, work.bent, down if problem.gram else work.fresh
    size, slope = precondition(problem, down, work.curvature, fresh), 0.0
    goal = size * min(0.25, size)
    set_to(step.whole, 0.0, fresh.whole)
    set_to(along.whole, 1.0, fresh.whole)
    for _ in range(MOST_INNER):
        fill_bend(problem, p, along, room, bent)
        length = size / product(problem, bent, along, True)
        slope += length * size
        add(step.whole, length, along.whole, step.whole.size)
        add(down.whole, -length, bent.whole, down.weight.size + down.bias.size)
        new = precondition(problem, down, work.curvature, fresh)
        if new <= goal or remainder(problem, down, work.curvature) <= 0.2 * tolerance:
            break
        for i in range(along.whole.size):
            along.whole[i] = fresh.whole[i] + new / size * along.whole[i]
        size = new
    return slope


@kernel
def solve(
    rows: FloatArray, columns: FloatArray, gram: bool, label: IntArray, strength: float, tolerance: float,
    weight: FloatArray, bias: FloatArray,
) -> float:  # fmt: skip
    """Go from weight (classes, unknowns) and bias to the optimum, in place; return how far J may be above it still."""
    squares, ones = rows if gram else rows * rows, np.ones(label.size)
    problem = Problem(rows, columns, squares, ones, gram, label, bias.size, strength)
    at, down, step, curvature = new_vector(problem), new_vector(problem), new_vector(problem), new_vector(problem)
    work = Work(step, new_vector(problem), new_vector(problem), new_vector(problem), curvature)
    room, p = np.empty_like(at.pushed), np.empty_like(at.pushed)
    set_to(at.whole, 1.0, weight.reshape(weight.size))
    set_to(at.bias, 1.0, bias)
    push(problem, at)
    value, share, left = fill_probabilities(problem, at, p), 1.0, np.inf
    if not value <= strength * label.size * np.log(bias.size):  # nothing at all is a better start
        set_to(at.whole, 0.0, step.whole)
        value = fill_probabilities(problem, at, p)
    for _ in range(MOST_STEPS):
        fill_descent(problem, p, at, room, down)
        fill_curvatures(problem, p, room, curvature)
        left = remainder(problem, down, curvature)
        if left <= tolerance or share < 1e-9:
            break
        slope = fill_step(problem, p, tolerance, room, down, work)
        old, share, value = value, 2.0, np.inf
        while value > old - 1e-4 * share * slope + 1e-13 * abs(old) and share >= 1e-9:  # half as far until it pays
            share *= 0.5
            add(at.whole, 1.0 if share == 1.0 else -share, step.whole, at.whole.size)
            value = fill_probabilities(problem, at, p)
    set_to(weight.reshape(weight.size), 1.0, at.whole[: weight.size])
    set_to(bias, 1.0, at.bias)
    return left
