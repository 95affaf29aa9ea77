"""a_n → log-odds or softmax, the hard decision, and its hits.

The log-odds of class n are a_n − log Σ_{m≠n} exp a_m. Three things make them the same everywhere:
- exp and log are written out in IEEE additions, multiplications and one division, so no library's last digit enters
  (and the loops vectorise, which calls to libm do not);
- the exponentials are rounded to a grid on which their sum is exact, so the order of the classes cannot matter: equal
  differences of a_n always tie, and nothing else does beyond the grid (2⁻⁴⁹ for up to 16 classes);
- the largest a_n is taken apart first, so a class that leads or trails by far does not saturate.
"""

import numpy as np

from callshot.fewshot.kernels import formula, inner, kernel

_LOG2E = 1.4426950408889634
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_ROUND = 6755399441055744.0  # 1.5 × 2⁵²: adding it leaves the nearest whole number in the low bits
_SQRT_HALF = np.int64(0x3FE6A09E667F3BCD)
_MANTISSA = np.int64(0x000FFFFFFFFFFFFF)
_52 = np.int64(52)


@formula
def exp(x):
    """Return eˣ for x ≤ 0 within one unit in the last place; below −708 it stays at e⁻⁷⁰⁸."""
    x = max(x, -708.0)
    shifted = x * _LOG2E + _ROUND
    n = shifted - _ROUND
    r = (x - n * _LN2_HIGH) - n * _LN2_LOW
    p = 1.0 / 479001600.0
    p = p * r + 1.0 / 39916800.0
    p = p * r + 1.0 / 3628800.0
    p = p * r + 1.0 / 362880.0
    p = p * r + 1.0 / 40320.0
    p = p * r + 1.0 / 5040.0
    p = p * r + 1.0 / 720.0
    p = p * r + 1.0 / 120.0
    p = p * r + 1.0 / 24.0
    p = p * r + 1.0 / 6.0
    p = p * r + 0.5
    p = p * r + 1.0
    p = p * r + 1.0
    bits = (np.float64(shifted).view(np.int64) << _52) + np.float64(p).view(np.int64)
    return np.int64(bits).view(np.float64)


@formula
def log1p(x):
    """Return log(1 + x) for 0 ≤ x < 2⁵⁰ within two units in the last place."""
    u = 1.0 + x
    lost = (x - (u - 1.0)) / u
    bits = np.float64(u).view(np.int64) - _SQRT_HALF
    e = bits >> _52
    m = np.int64((bits & _MANTISSA) + _SQRT_HALF).view(np.float64)
    f = m - 1.0
    s = f / (2.0 + f)
    z = s * s
    p = 1.0 / 21.0
    p = p * z + 1.0 / 19.0
    p = p * z + 1.0 / 17.0
    p = p * z + 1.0 / 15.0
    p = p * z + 1.0 / 13.0
    p = p * z + 1.0 / 11.0
    p = p * z + 1.0 / 9.0
    p = p * z + 1.0 / 7.0
    p = p * z + 1.0 / 5.0
    p = p * z + 1.0 / 3.0
    tail = 2.0 * s * z * p
    return e * _LN2_HIGH + (2.0 * s + (tail + (e * _LN2_LOW + lost)))


@formula
def grid_of(classes):
    """Return the constant whose addition rounds numbers in [0, 1] so that `classes` of them sum exactly."""
    constant = 3.0
    while constant < 0.75 * classes:
        constant *= 2.0
    return constant


@inner
def open_block(table, x, y, a, top, second, who, total, decided):
    """Take a block of episodes into a (classes, width): find the largest a_n of each, the next, and whose it is.

    The hard decisions are filled, and the totals set to 0.
    """
    classes, width = a.shape
    for i in range(width):
        a[0, i] = table[x, 0, y, i]
        top[i], second[i], who[i] = a[0, i], -np.inf, 0.0
    for n in range(1, classes):
        name = np.float64(n)
        for i in range(width):
            value, t = table[x, n, y, i], top[i]
            a[n, i] = value
            second[i] = max(second[i], min(value, t))
            who[i] = name if value > t else who[i]
            top[i] = max(value, t)
    for i in range(width):
        decided[x, y, i] = np.uint16(who[i])
        total[i] = 0.0


@kernel
def to_log_odds(table, first, last, decided):
    """Turn a_n into log-odds in place, and fill the hard decisions.

    `table` is (x, classes, y, width) and `decided` (x, y, width): each x and y is a block of `width` episodes, one
    beside the other. Only y from first to last − 1 is touched.
    """
    outer, classes, _, width = table.shape
    a, part = np.empty((classes, width)), np.empty((classes, width))
    top, second, who, total, near = (
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
        np.empty(width),
    )
    grid = grid_of(classes)
    for x in range(outer):
        for y in range(first, last):
            open_block(table, x, y, a, top, second, who, total, decided)
            for n in range(classes):
                name = np.float64(n)
                for i in range(width):
                    lead = who[i] == name
                    e = exp(second[i] - top[i] if lead else a[n, i] - second[i])
                    near[i] = e if lead else near[i]
                    part[n, i] = 0.0 if lead else (e + grid) - grid
                    total[i] += part[n, i]
            for n in range(classes):
                name = np.float64(n)
                for i in range(width):
                    lead = who[i] == name
                    others = total[i] - part[n, i]
                    rest = others - 1.0 if lead else near[i] * others
                    table[x, n, y, i] = a[n, i] - (second[i] if lead else top[i]) - log1p(rest)


@kernel
def to_softmax(table, first, last, decided):
    """Turn a_n into its literal softmax in place, which saturates to 0 and 1 as float64 does; else as `to_log_odds`."""
    outer, classes, _, width = table.shape
    a, part = np.empty((classes, width)), np.empty((classes, width))
    top, second, who, total = np.empty(width), np.empty(width), np.empty(width), np.empty(width)
    grid = grid_of(classes)
    for x in range(outer):
        for y in range(first, last):
            open_block(table, x, y, a, top, second, who, total, decided)
            for n in range(classes):
                for i in range(width):
                    half = exp(
                        0.5 * (a[n, i] - top[i])
                    )  # squared, it underflows through the subnormals to 0
                    part[n, i] = half * half
                    total[i] += (
                        part[n, i] + grid
                    ) - grid  # exact, so that the order of the classes cannot matter
            for n in range(classes):
                for i in range(width):
                    table[x, n, y, i] = part[n, i] / total[i]


@kernel
def count_decisions(first, last, decided, relevant, label, hits, decisions):
    """Fill hits[shot, q, r] from decided[shot, q, r] for some queries, and add to decisions[shot, true, predicted].

    A decision for any of a query's labels is a hit, and counts as predicted, predicted.
    """
    for s in range(decided.shape[0]):
        for q in range(first, last):
            for r in range(decided.shape[2]):
                n = decided[s, q, r]
                hit = relevant[n, q]
                hits[s, q, r] = hit
                decisions[s, n if hit else np.uint16(label[q]), n] += 1
