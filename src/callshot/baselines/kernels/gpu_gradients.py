"""An iteration of conjugate gradients for many fits in the span of their rows, in two kernels.

One program of Triton per fit. `advance` goes along the search directions; then the caller
multiplies what is left of the descents with the Gram matrices; then `turn` finds the next
directions. Both do what `batched_solver` does with some thirty operations of torch. A fit that has
stopped is left as it is.
"""

from typing import Any

import torch
import triton
import triton.language as tl

TILE = 2048  # numbers that a program reads at a time

Tensor = Any


@triton.jit
def _advance(
    search,
    search_image,
    p,
    hessian,
    step,
    step_image,
    descent,
    size,
    decrease,
    is_active,
    constants,
    classes,
    columns,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    c = tl.load(constants)
    fit = tl.program_id(0).to(tl.int64)
    active = tl.load(is_active + fit)
    stop = columns * (active != 0)
    n = tl.arange(0, CLASSES)
    line = (fit * classes + n) * columns
    is_class = n < classes
    bias = tl.load(search + line + columns - 1, is_class, 0.0)
    bias_sum = tl.zeros((CLASSES,), tl.float64)
    curve = tl.zeros((CLASSES,), tl.float64)
    for first in range(0, stop, BLOCK):
        column = first + tl.arange(0, BLOCK)
        place = line[:, None] + column[None, :]
        inside = is_class[:, None] & (column < columns)[None, :]
        weight = inside & (column < columns - 1)[None, :]
        image = tl.load(search_image + place, inside, 0.0)
        share = tl.load(p + place, inside, 0.0)
        logits = image + bias[:, None]
        mean = tl.sum(share * logits, 0)
        change = c * share * (logits - mean[None, :])
        product = change + tl.load(search + place, weight, 0.0)
        tl.store(hessian + place, product, weight)
        bias_sum += tl.sum(change, 1)
        curve += tl.sum(tl.where(weight, product * image, 0.0), 1)
    total = tl.sum(curve + bias_sum * bias, 0)
    before = tl.load(size + fit)
    goes_on = (active != 0) & (total > 0.0) & (before > 0.0)
    alpha = tl.where(goes_on, before / tl.where(goes_on, total, 1.0), 0.0)
    tl.store(decrease + fit, tl.load(decrease + fit) + alpha * before)
    tl.store(is_active + fit, goes_on.to(tl.int8))
    tl.debug_barrier()
    for first in range(0, stop, BLOCK):
        column = first + tl.arange(0, BLOCK)
        place = line[:, None] + column[None, :]
        inside = is_class[:, None] & (column < columns)[None, :]
        is_bias = (column == columns - 1)[None, :]
        product = tl.load(
            hessian + place, inside & (column < columns - 1)[None, :], 0.0
        )
        product = tl.where(is_bias, bias_sum[:, None], product)
        direction = tl.load(search + place, inside, 0.0)
        image = tl.load(search_image + place, inside, 0.0)
        way = tl.load(step + place, inside, 0.0) + alpha * direction
        tl.store(step + place, way, inside)
        way = tl.load(step_image + place, inside, 0.0) + alpha * image
        tl.store(step_image + place, way, inside)
        left = tl.load(descent + place, inside, 0.0) - alpha * product
        tl.store(descent + place, left, inside)


@triton.jit
def _turn(
    descent,
    image,
    search,
    search_image,
    curvature,
    size,
    goal,
    is_active,
    constants,
    classes,
    columns,
    CLASSES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    c = tl.load(constants)
    tolerance = tl.load(constants + 1)
    fit = tl.program_id(0).to(tl.int64)
    active = tl.load(is_active + fit)
    stop = columns * (active != 0)
    n = tl.arange(0, CLASSES)
    line = (fit * classes + n) * columns
    is_class = n < classes
    bias = tl.load(descent + line + columns - 1, is_class, 0.0)
    bias_image = tl.load(image + line + columns - 1, is_class, 0.0)
    bias_curvature = tl.load(curvature + fit * classes + n, is_class, 1.0)
    square = tl.zeros((CLASSES,), tl.float64)
    for first in range(0, stop, BLOCK):
        column = first + tl.arange(0, BLOCK)
        place = line[:, None] + column[None, :]
        weight = is_class[:, None] & (column < columns - 1)[None, :]
        left = tl.load(descent + place, weight, 0.0)
        square += tl.sum(left * tl.load(image + place, weight, 0.0), 1)
    new = tl.sum(square + bias * bias_image, 0)
    gap = 0.5 * tl.sum(square + bias * bias / bias_curvature, 0) / c
    goes_on = (active != 0) & (new > tl.load(goal + fit)) & (gap > 0.2 * tolerance)
    before = tl.load(size + fit)
    beta = tl.where(goes_on, new / tl.where(goes_on, before, 1.0), 0.0)
    tl.debug_barrier()
    tl.store(size + fit, new)
    tl.store(is_active + fit, goes_on.to(tl.int8))
    for first in range(0, stop, BLOCK):
        column = first + tl.arange(0, BLOCK)
        place = line[:, None] + column[None, :]
        inside = is_class[:, None] & (column < columns)[None, :]
        way = beta * tl.load(search + place, inside, 0.0)
        way += tl.load(descent + place, inside, 0.0)
        tl.store(search + place, way, inside)
        way = beta * tl.load(search_image + place, inside, 0.0)
        way += tl.load(image + place, inside, 0.0)
        tl.store(search_image + place, way, inside)


def _blocks(classes: int) -> tuple[int, int]:
    """Return the classes and columns of a tile."""
    rows = triton.next_power_of_2(classes)
    return rows, max(TILE // rows, 16)


def advance(gradients: Any) -> None:
    """Go along the search directions of conjugate gradients (`_ConjugateGradients`)."""
    newton = gradients.newton
    fits, classes, columns = gradients.search.shape
    _advance[(fits,)](
        gradients.search,
        gradients.search_image,
        newton.state.p,
        gradients.hessian,
        gradients.step,
        gradients.step_image,
        newton.descent,
        gradients.size,
        gradients.decrease,
        gradients.is_active.view(torch.int8),
        newton.constants,
        classes,
        columns,
        *_blocks(classes),
        num_warps=8,
    )


def turn(gradients: Any) -> None:
    """Find the next search directions, from what is left of the descents and its images."""
    newton = gradients.newton
    fits, classes, columns = gradients.search.shape
    _turn[(fits,)](
        newton.descent,
        newton.descent_image,
        gradients.search,
        gradients.search_image,
        newton.objective.curvature,
        gradients.size,
        gradients.goal,
        gradients.is_active.view(torch.int8),
        newton.constants,
        classes,
        columns,
        *_blocks(classes),
        num_warps=8,
    )
