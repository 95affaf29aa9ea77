"""Segments of each class in each recording → a fold for each recording.

The energy of folds is a sum over classes. A class in all folds is eligible; its energy is the range
of its counts, divided by their mean. A class with empty folds has a penalty above all ranges
together. Energies are integers and randomness is a hash of a counter, so that a search is the same
on every machine.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from callshot.fewshot.kernels import inner, kernel
from callshot.fewshot.kernels.streams import GOLDEN, HALF, mix
from callshot.records import IntArray

MAX_PROPOSALS = 5_000_000  # of one search: about a second
HISTORY = 20  # energies remembered, per recording
PATIENCE = 50  # histories without a lower energy: the search is stuck
MIN_RECORDINGS = 30  # a smaller corpus gets as many proposals as one of these


def assign_greedily(table: IntArray, count: int) -> IntArray:
    """Assign recordings to `count` folds one by one; return the fold of each.

    Each goes to the fold that leaves the classes most even, recordings with the most uneven classes
    first. `table` (recordings, classes) is the number of segments. This is the rule of
    scikit-learn's StratifiedGroupKFold, the same to the last bit.
    """
    present = table[:, table.any(axis=0)]
    # The order of summation is part of the rule.
    segments = present.astype(np.float64, order="C")
    total = segments.sum(axis=0)
    counts = np.zeros((count, segments.shape[1]))
    fold = np.zeros(len(segments), dtype=np.int64)
    unevenness = np.std(segments, axis=1)
    for recording in np.argsort(-unevenness, kind="stable"):
        # Counts with the recording in each fold, (fold of the recording, folds, classes).
        candidates = counts + np.eye(count)[:, :, None] * segments[recording]
        uneven = np.std(candidates / total, axis=1).mean(axis=1)
        size = counts.sum(axis=1)
        best = 0
        for f in range(1, count):  # of two that are about as even, the smaller fold
            close = abs(uneven[f] - uneven[best]) <= 1e-8 + 1e-5 * abs(uneven[best])
            if uneven[f] < uneven[best] or (close and size[f] < size[best]):
                best = f
        fold[recording] = best
        counts[best] += segments[recording]
    return fold


def least_range(held: IntArray, count: int) -> int:
    """Return a lower bound on the range (max − min) of the counts of one class in `count` folds.

    `held` is the number of its segments in each recording; at least `count` are not 0.
    """
    held = np.sort(held[held > 0])[::-1]  # largest first
    total = held.sum()
    # The smallest count: the j largest recordings fill j folds at most, the others share the rest.
    rest = total - np.concatenate([[0], np.cumsum(held)])
    smallest = min(rest[j] // (count - j) for j in range(count))
    # The largest count: at least the mean, rounded up.
    largest = -(-total // count)  # −(−a // b) rounds up
    for last in range(0, len(held), count):
        # Of the last + 1 largest recordings, so many share a fold. It has at least as many segments
        # as the smallest of these.
        sharing = 1 + last // count
        largest = max(largest, held[last + 1 - sharing : last + 1].sum())
    return int(largest - smallest)


def count_by_fold(holds: IntArray, fold: IntArray, count: int) -> IntArray:
    """Sum the rows of `holds`, (recordings, columns), in each fold; return (columns, folds)."""
    counts = np.zeros((count, holds.shape[1]), dtype=np.int64)
    np.add.at(counts, fold, holds)
    return np.ascontiguousarray(counts.T)


def search_locally(
    holds: IntArray,
    fold: IntArray,
    count: int,
    proposals: int,
    weights: Sequence[Fraction],
    *,
    least: IntArray | None = None,
    hinted: bool = True,
    size: IntArray | None = None,
) -> IntArray:
    """Improve folds by local search; return the fold of each recording with the lowest energy.

    `holds` (recordings, classes) is the number of segments, `proposals` the changes to try per
    recording, and the seed; `weights` are those of the ranges of classes. `least` are lower bounds
    on the ranges, at which the search ends. With `hinted`, a class costs more with each empty fold,
    so that the search is led to fill them. With `size`, the number of all segments of each
    recording, no higher energy is accepted, and folds are made equal in size where the energy stays
    the same.
    """
    recordings, classes = holds.shape
    totals = holds.sum(axis=0).tolist()
    parts = [weight * total for weight, total in zip(weights, totals, strict=True)]
    largest = math.ceil(sum(parts))  # that the weighted sum of ranges can be
    # The largest scale with which all energies fit into 64 bits.
    scale = 2**61 // (largest * (classes + 2))
    range_weight = np.array([int(scale * weight) for weight in weights], np.int64)
    penalty = scale * largest
    hint = penalty // count if hinted else 0
    target = -1 if least is None else int(range_weight @ least)  # −1 is never reached

    sizes = holds.sum(axis=1) if size is None else size  # for `settle`
    with_sizes = np.column_stack([holds, sizes])
    empty_recording = np.zeros((1, classes + 1), np.int64)
    return improve(
        np.vstack([with_sizes, empty_recording]),
        count_by_fold(with_sizes, fold, count),
        fold.copy(),
        range_weight,
        penalty,
        hint,
        target,
        history=np.zeros(HISTORY * recordings, np.int64),
        kicks=1 + recordings // 4,
        proposals=min(proposals * max(recordings, MIN_RECORDINGS), MAX_PROPOSALS),
        seed=proposals,
        settle=size is not None,
    )


@inner
def class_energy(counts, range_weight, penalty, hint):
    """Return the energy of one class with these counts of segments, (folds,).

    It is the range of the counts times `range_weight`; with empty folds `penalty`, and `hint` for
    each of them.
    """
    low = counts[0]
    high = counts[0]
    empty = 0
    for held in counts:
        low = min(low, held)
        high = max(high, held)
        empty += held == 0
    return range_weight * (high - low) if empty == 0 else penalty + hint * empty


@inner
def fill(values, value):
    """Set all values: numba takes a second to compile values[:] = value."""
    for i in range(values.size):
        values[i] = value


@kernel
def improve(
    holds,
    counts,
    fold,
    range_weight,
    penalty,
    hint,
    target,
    history,
    kicks,
    proposals,
    seed,
    settle,
):
    """Search for folds of low energy by late acceptance; return the best found.

    A proposal is accepted when it is no worse than the energy was some steps ago.

    holds         (recordings + 1, classes + 1) segments: the last row is empty, so that a swap with
                  it is a move; the last column is the size
    counts        (classes + 1, folds), the sums of `holds` over the recordings of a fold; changed
    fold          (recordings,); changed
    range_weight  (classes,), the energy of a range of 1; `penalty` and `hint`: see `class_energy`
    target        the energy at which the search ends
    history       memory for the energies of the last proposals
    kicks         the number of proposals accepted at any energy whenever the search is stuck
    proposals     how many changes are tried
    seed          of their random numbers
    settle        whether to accept no higher energy, and to make folds equal in size instead
    """
    recordings = np.int64(fold.size)
    classes = range_weight.size
    class_energies = np.zeros(classes, np.int64)
    new_energies = np.zeros(classes, np.int64)
    energy = np.int64(0)
    for c in range(classes):
        class_energies[c] = class_energy(counts[c], range_weight[c], penalty, hint)
        energy += class_energies[c]
    fill(history, energy)
    best = fold.copy()
    best_energy = energy
    lowest = energy  # since the last kick
    imbalance = 0  # sum of the squares of the folds' sizes, less the one at the start
    best_imbalance = 0
    stale = 0  # proposals since the lowest energy
    kicks_left = 0
    counter = np.uint64(seed) << np.uint64(40)
    for step in range(proposals):
        if best_energy <= target and not settle:
            break
        if stale > PATIENCE * history.size:
            kicks_left = kicks
            stale = 0
        elif kicks_left > 0:
            kicks_left -= 1
            if kicks_left == 0:
                lowest = energy
                fill(history, energy)
        stale += 1

        # Propose to swap recordings a and b of folds f and g, or to move a: b is the empty row. Of
        # a random word, the upper half gives a, bit 31 says whether to swap, the rest gives b or g.
        word = mix((counter + np.uint64(step)) * GOLDEN)
        lower_bits = word & np.uint64(0x7FFFFFFF)
        is_swap = word & np.uint64(0x80000000)
        a = np.int64(((word >> HALF) * np.uint64(recordings)) >> HALF)
        f = fold[a]
        if is_swap:
            b = np.int64((lower_bits * np.uint64(recordings)) >> np.uint64(31))
            g = fold[b]
        else:
            b = recordings
            g = np.int64((lower_bits * np.uint64(counts.shape[1])) >> np.uint64(31))
        if f == g:
            continue

        # What fold f gains, g loses.
        change = 0
        for c in range(classes):
            new_energies[c] = class_energies[c]
            gain = holds[b, c] - holds[a, c]
            if gain != 0:
                row = counts[c]
                row[f] += gain
                row[g] -= gain
                new_energies[c] = class_energy(row, range_weight[c], penalty, hint)
                row[f] -= gain
                row[g] += gain
                change += new_energies[c] - class_energies[c]
        gain = holds[b, classes] - holds[a, classes]
        # The squares of both sizes after the change, less those before.
        more_imbalance = 2 * gain * (counts[classes, f] - counts[classes, g] + gain)
        place = step % history.size
        if settle:
            is_accepted = change < 0 or (change == 0 and more_imbalance < 0)
        else:
            is_no_worse = change <= 0 or energy + change <= history[place]
            is_accepted = kicks_left > 0 or is_no_worse

        if is_accepted:
            for c in range(classes + 1):
                gain = holds[b, c] - holds[a, c]
                counts[c, f] += gain
                counts[c, g] -= gain
            for c in range(classes):
                class_energies[c] = new_energies[c]
            fold[a] = g
            if is_swap:
                fold[b] = f
            energy += change
            imbalance += more_imbalance
            if kicks_left == 0 and energy < lowest:
                lowest = energy
                stale = 0
            is_more_even = energy == best_energy and imbalance < best_imbalance
            if energy < best_energy or (settle and is_more_even):
                best_energy = energy
                best_imbalance = imbalance
                best = fold.copy()
        history[place] = min(history[place], energy)
    return best
