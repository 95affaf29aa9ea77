"""Logits a_n → log-odds or softmax, and the hard decision.

The log-odds of class n are a_n − log Σ_{m≠n} exp a_m. Three things make them the same everywhere:

- exp and log are written out in IEEE additions, multiplications (fused in exp) and one division, so
  that no library's last digit enters (and the loops vectorise, which calls to libm do not);
- the exponentials are rounded to a grid on which their sum is exact, so that the order of the
  classes cannot matter: equal differences of a_n always tie, and nothing else does beyond the grid
  (2⁻⁴⁹ for up to 16 classes);
- the largest a_n is set apart first, so that a class far ahead or behind does not saturate.
"""

import math

import numpy as np

from callshot.fewshot.kernels import fma, formula, inner, kernel

LOG2_E = 1.4426950408889634
LN2_HIGH = 6.93147180369123816490e-01
LN2_LOW = 1.90821492927058770002e-10
ROUND = 6755399441055744.0  # 1.5 × 2⁵²: adding it leaves the nearest whole number in the low bits
LOWEST = -708.0  # e to this power is still a normal float
LARGEST_GAP = 700.0  # of a_n for which odds are normal floats
SQRT_HALF = np.int64(0x3FE6A09E667F3BCD)
MANTISSA = np.int64(0x000FFFFFFFFFFFFF)
MANTISSA_BITS = np.int64(52)

# Coefficients of Taylor's series of exp.
EXP = tuple(1.0 / math.factorial(i) for i in range(13))
# Those of log by (1 + s) / (1 − s), the highest first.
LOG_LAST = 1.0 / 21.0
LOG_SERIES = tuple(1.0 / i for i in range(19, 1, -2))


@formula
def exp(x):
    """Return eˣ for x ≤ 0 within three units in the last place; below −708 it stays at e⁻⁷⁰⁸."""
    x = max(x, LOWEST)
    # x = n · ln 2 + r, so that eˣ = 2ⁿ · eʳ; eʳ, a polynomial, is p.
    shifted = fma(x, LOG2_E, ROUND)
    n = shifted - ROUND
    r = fma(-n, LN2_LOW, fma(-n, LN2_HIGH, x))
    z = r * r
    # Four terms at a time (Estrin), which a processor computes side by side.
    low = fma(fma(EXP[3], r, EXP[2]), z, 1.0 + r)
    middle = fma(fma(EXP[7], r, EXP[6]), z, fma(EXP[5], r, EXP[4]))
    high = fma(fma(EXP[11], r, EXP[10]), z, fma(EXP[9], r, EXP[8]))
    fourth = z * z
    p = fma(fourth, fma(fourth, fma(fourth, EXP[12], high), middle), low)
    exponent = np.float64(shifted).view(np.int64) << MANTISSA_BITS
    bits = exponent + np.float64(p).view(np.int64)  # of 2ⁿ · p
    return np.int64(bits).view(np.float64)


@formula
def log1p(x):
    """Return log(1 + x) for 0 ≤ x < 2⁵⁰ within two units in the last place."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u  # by rounding u
    # u = 2ᵉ · m, with m from √½ to √2.
    bits = np.float64(u).view(np.int64) - SQRT_HALF
    e = bits >> MANTISSA_BITS
    m = np.int64((bits & MANTISSA) + SQRT_HALF).view(np.float64)
    # log m is log((1 + s) / (1 − s)), 2 s (1 + z/3 + z²/5 + …) with z = s².
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = LOG_LAST
    for coefficient in LOG_SERIES:
        p = p * z + coefficient
    tail = 2.0 * s * z * p
    return e * LN2_HIGH + (2.0 * s + (tail + (e * LN2_LOW + lost)))


@formula
def grid_constant(classes):
    """Return the constant whose addition rounds numbers in [0, 1] so that they sum exactly.

    (x + constant) − constant is x, rounded to a multiple of the last bit of the constant.
    """
    constant = 3.0
    while constant < 0.75 * classes:
        constant *= 2.0
    return constant


@inner
def find_leaders(block, y, top, second, leader, decided):
    """Fill in the two largest logits of each column of line y, and the class of the largest.

    `block` is (classes, lines, width). `leader` gets the class as a float, so that the loop
    vectorises, `decided` as a number. Of equal logits the first class leads.
    """
    classes, _, width = block.shape
    line = block[0, y]
    for i in range(width):
        top[i] = line[i]
        second[i] = -np.inf
        leader[i] = 0.0
    for n in range(1, classes):
        number = np.float64(n)
        line = block[n, y]
        for i in range(width):
            value = line[i]
            previous = top[i]
            second[i] = max(second[i], min(value, previous))
            leader[i] = number if value > previous else leader[i]
            top[i] = max(value, previous)
    for i in range(width):
        decided[i] = np.uint16(leader[i])


@inner
def fill_exponentials(table):
    """Replace each x ≤ 0 by eˣ."""
    flat = table.reshape(table.size)
    for i in range(flat.size):
        flat[i] = exp(flat[i])


@inner
def fill_softmax(block, y, top, part, total, grid):
    """Turn the logits in line y of a block (classes, lines, width) into their softmax, in place.

    exp(a_n − top) is computed as the square of exp(½ (a_n − top)), so that it underflows gradually,
    through the subnormals, to 0. `part` (classes, width) and `total` (width) are scratch.
    """
    classes, width = part.shape
    for n in range(classes):
        line = block[n, y]
        for i in range(width):
            part[n, i] = 0.5 * (line[i] - top[i])
    fill_exponentials(part)
    for i in range(width):
        total[i] = 0.0
    for n in range(classes):
        for i in range(width):
            part[n, i] *= part[n, i]
            total[i] += (part[n, i] + grid) - grid  # exact in any order of classes
    for n in range(classes):
        line = block[n, y]
        for i in range(width):
            line[i] = part[n, i] / total[i]


@inner
def fill_shares(block, y, top, second, decided, part, near, total, grid):
    """Fill in the exponentials of which odds are made, for the logits in line y of a block.

    `part` (classes, width) gets exp(a_n − second), about 0 for the class of the largest a_n,
    `total` its sum over classes, rounded to the grid, and `near` exp(second − top). Each loop reads
    and writes few arrays: with more, the compiler gives up its vectors.
    """
    classes, width = part.shape
    for n in range(classes):
        line = block[n, y]
        for i in range(width):
            part[n, i] = line[i] - second[i]
    for i in range(width):
        part[decided[i], i] = LOWEST  # the leader, which would overflow
    for i in range(width):
        near[i] = second[i] - top[i]
        total[i] = 0.0
    fill_exponentials(part)
    fill_exponentials(near)
    for n in range(classes):
        for i in range(width):
            total[i] += (part[n, i] + grid) - grid  # exact in any order of classes


@inner
def fill_log_odds(block, y, top, second, leader, part, near, total, grid):
    """Turn the logits in line y of a block into log-odds, in place, with what `fill_shares` filled.

    They are relative to the largest logit of the other classes: `second` for the leader, `top` for
    the others. `part` is overwritten.
    """
    classes, width = part.shape
    for n in range(classes):
        number = np.float64(n)
        for i in range(width):
            others = total[i] - ((part[n, i] + grid) - grid)
            leads = leader[i] == number
            part[n, i] = others - 1.0 if leads else near[i] * others
    flat = part.reshape(part.size)
    for i in range(flat.size):
        flat[i] = log1p(flat[i])
    for n in range(classes):
        number = np.float64(n)
        line = block[n, y]
        for i in range(width):
            reference = second[i] if leader[i] == number else top[i]
            line[i] = line[i] - reference - part[n, i]


@inner
def fill_odds(block, y, decided, part, near, total, grid):
    """Turn the logits in line y of a block into odds, in place, with what `fill_shares` filled.

    The odds of class n are exp a_n / Σ_{m≠n} exp a_m.
    """
    classes, width = part.shape
    for n in range(classes):
        line = block[n, y]
        for i in range(width):
            rounded = (part[n, i] + grid) - grid
            others = 1.0 + near[i] * (total[i] - rounded)
            line[i] = near[i] * part[n, i] / others
    for i in range(width):
        block[decided[i], y, i] = 1.0 / (near[i] * total[i])


@inner
def largest_gap(block, y, top, lowest):
    """Return the largest difference between two logits of one column, over all columns of line y.

    `lowest` is scratch: the smallest logits, column by column, because that loop vectorises.
    """
    for i in range(top.size):
        lowest[i] = block[0, y, i]
    for n in range(1, block.shape[0]):
        line = block[n, y]
        for i in range(top.size):
            lowest[i] = min(lowest[i], line[i])
    gap = 0.0
    for i in range(top.size):
        gap = max(gap, top[i] - lowest[i])
    return gap


@kernel
def to_scores(table, first, last, softmax, ranking, decided):
    """Turn logits into log-odds or the literal softmax in place, and fill the hard decisions.

    `table` is (outer, classes, lines, width) and `decided` (outer, lines, width). Only lines from
    first to last − 1 are touched. With `ranking`, only the order inside a line counts: odds serve,
    and cost no logarithm, or log-odds where odds leave the range of floats.
    """
    outer, classes, _, width = table.shape
    part = np.empty((classes, width))
    near = np.empty(width)
    top = np.empty(width)
    second = np.empty(width)
    leader = np.empty(width)
    total = np.empty(width)
    grid = grid_constant(classes)
    for x in range(outer):
        block = table[x]
        for y in range(first, last):
            classes_decided = decided[x, y]
            find_leaders(block, y, top, second, leader, classes_decided)
            if softmax:
                fill_softmax(block, y, top, part, total, grid)
                continue
            odds = ranking and largest_gap(block, y, top, total) < LARGEST_GAP
            fill_shares(block, y, top, second, classes_decided, part, near, total, grid)
            if odds:
                fill_odds(block, y, classes_decided, part, near, total, grid)
            else:
                fill_log_odds(block, y, top, second, leader, part, near, total, grid)


@kernel
def count_decisions(first, last, decided, truth, decisions):
    """Add decisions (shot, query, draw) of some queries to counts (shot, true, predicted).

    A decision for any of a query's labels is right, and counts on the diagonal; a wrong one counts
    in the row of the query's own label.
    """
    relevant = truth.relevant
    label = truth.label
    for s in range(decided.shape[0]):
        for q in range(first, last):
            for r in range(decided.shape[2]):
                n = decided[s, q, r]
                true = n if relevant[n, q] else np.uint16(label[q])
                decisions[s, true, n] += 1
