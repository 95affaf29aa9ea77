"""Segments of each class in each recording → a fold for each recording.

`assign_greedily` makes a start. `search_locally` improves it by late-acceptance hill climbing: a
proposal is accepted when it is no worse than the energy was some steps ago. Energies are integers
and randomness is a hash of a counter, so that a search is the same on every machine. `least_range`
bounds what it can reach.
"""

import numpy as np

from callshot.fewshot.kernels import inner, kernel
from callshot.fewshot.kernels.streams import GOLDEN, HALF, mix
from callshot.records import IntArray

MAX_PROPOSALS = 5_000_000  # of one search: about a second
HISTORY = 20  # energies remembered, per recording
MIN_RECORDINGS = 30  # a smaller corpus gets as many proposals as one of these


def assign_greedily(table: IntArray, count: int) -> IntArray:
    """Assign each recording, the most uneven first, to the fold that leaves the classes most even.

    This is the rule of scikit-learn's StratifiedGroupKFold, the same to the last bit.
    """
    present = table[:, table.any(axis=0)]
    # The order of summation is part of the rule.
    held = present.astype(np.float64, order="C")
    total = held.sum(axis=0)
    counts = np.zeros((count, held.shape[1]))
    fold = np.zeros(len(held), dtype=np.int64)
    for r in np.argsort(-np.std(held, axis=1), kind="stable"):
        candidates = counts + np.eye(count)[:, :, None] * held[r]
        uneven = np.std(candidates / total, axis=1).mean(axis=1)
        size = counts.sum(axis=1)
        best = 0
        for f in range(1, count):  # of two that are close, the smaller
            close = abs(uneven[f] - uneven[best]) <= 1e-8 + 1e-5 * abs(uneven[best])
            if uneven[f] < uneven[best] or (close and size[f] < size[best]):
                best = f
        fold[r] = best
        counts[best] += held[r]
    return fold


def least_range(held: IntArray, count: int) -> int:
    """Return a lower bound on the range (max − min) of one class's fold counts."""
    held = np.sort(held[held > 0])[::-1]
    total = held.sum()
    rest = total - np.concatenate([[0], np.cumsum(held)])
    # The j largest recordings are in j folds at most: the other folds share the rest.
    low = min(rest[j] // (count - j) for j in range(count))
    # Of i · count + 1 recordings, i + 1 are in one fold.
    full = range(1 + (len(held) - 1) // count)
    piles = [held[i * count - i : i * count + 1].sum() for i in full]
    mean = -(-total // count)  # rounded up
    return int(max(mean, *piles) - low)


def count_by_fold(holds: IntArray, fold: IntArray, count: int) -> IntArray:
    """Return the sums (columns of `holds`, folds)."""
    counts = np.zeros((count, holds.shape[1]), dtype=np.int64)
    np.add.at(counts, fold, holds)
    return np.ascontiguousarray(counts.T)


def search_locally(
    holds: IntArray,
    fold: IntArray,
    count: int,
    proposals: int,
    *,
    least: IntArray | None = None,
    hinted: bool = True,
    size: IntArray | None = None,
) -> IntArray:
    """Return the best folds that a search with so many proposals per recording meets.

    It ends when each class has its `least` range. Given the `size` of the recordings, it never
    climbs, and makes the folds equal in size where that costs nothing.
    """
    recordings, classes = holds.shape
    sizes = holds.sum(axis=1) if size is None else size
    padded = np.pad(np.column_stack([holds, sizes]), ((0, 1), (0, 0)))
    # So that energies fit into 64 bits.
    scale = 2**61 // (count * classes * (classes + 2))
    weight = scale * count // holds.sum(axis=0)
    penalty = scale * count * classes
    target = -1 if least is None else int(weight @ least)
    steps = min(proposals * max(recordings, MIN_RECORDINGS), MAX_PROPOSALS)
    counts = count_by_fold(padded[:-1], fold, count)
    history = np.zeros(HISTORY * recordings, dtype=np.int64)
    price = (penalty, hinted * (penalty // count))
    search = (target, 1 + recordings // 4, proposals, steps, size is not None)
    return improve(
        padded,
        counts,
        weight,
        price,
        fold.copy(),
        history,
        search,
    )


@inner
def class_energy(counts, weight, penalty, hint):
    """Return the energy of one class: its weighted range, or more where folds are empty."""
    low = counts[0]
    high = counts[0]
    empty = 0
    for held in counts:
        low = min(low, held)
        high = max(high, held)
        empty += held == 0
    return weight * (high - low) if empty == 0 else penalty + hint * empty


@inner
def fill(values, value):
    """Set all values: numba takes a second to compile values[:] = value."""
    for i in range(values.size):
        values[i] = value


@kernel
def improve(holds, counts, weight, price, fold, history, search):
    """Search on from `fold` and return the best folds met.

    `holds` is (recordings + 1, classes + 1): the last row is empty, so that a swap with it is a
    move, and the last column is the size. `counts` is (classes + 1, folds) and belongs to `fold`;
    both are changed. A class with empty folds costs the first `price` and, for each of them, the
    second. The search ends at the target energy. Whenever it is stuck, it accepts `kicks` proposals
    unseen. With `settle` it never climbs, and makes the folds equal in size where that costs
    nothing.
    """
    penalty, hint = price
    target, kicks, stream, proposals, settle = search
    recordings = np.int64(fold.size)
    classes = weight.size
    cost = np.zeros(classes, np.int64)
    trial = np.zeros(classes, np.int64)
    energy = np.int64(0)
    for c in range(classes):
        cost[c] = class_energy(counts[c], weight[c], penalty, hint)
        energy += cost[c]
    fill(history, energy)
    best = fold.copy()
    lowest = energy
    best_energy = energy
    imbalance = 0
    best_imbalance = 0
    stale = 0
    kicks_left = 0
    counter = np.uint64(stream) << np.uint64(40)
    for t in range(proposals):
        if best_energy <= target and not settle:
            break
        if stale > 50 * history.size:
            kicks_left = kicks
            stale = 0
        elif kicks_left > 0:
            kicks_left -= 1
            if kicks_left == 0:
                lowest = energy
                fill(history, energy)
        stale += 1

        # Two recordings to swap, or one and the empty row.
        word = mix((counter + np.uint64(t)) * GOLDEN)
        lower = word & np.uint64(0x7FFFFFFF)
        a = np.int64(((word >> HALF) * np.uint64(recordings)) >> HALF)
        b = recordings
        f = fold[a]
        if word & np.uint64(0x80000000):
            b = np.int64((lower * np.uint64(recordings)) >> np.uint64(31))
            g = fold[b]
        else:
            g = np.int64((lower * np.uint64(counts.shape[1])) >> np.uint64(31))
        if f == g:
            continue

        change = 0
        for c in range(classes):
            trial[c] = cost[c]
            d = holds[b, c] - holds[a, c]
            if d != 0:
                row = counts[c]
                row[f] += d
                row[g] -= d
                trial[c] = class_energy(row, weight[c], penalty, hint)
                row[f] -= d
                row[g] += d
                change += trial[c] - cost[c]
        # By how much the sum of the squares of the folds' sizes grows.
        d = holds[b, classes] - holds[a, classes]
        growth = 2 * d * (counts[classes, f] - counts[classes, g] + d)
        late = t % history.size
        if settle:
            is_accepted = change < 0 or (change == 0 and growth < 0)
        else:
            is_no_worse = change <= 0 or energy + change <= history[late]
            is_accepted = kicks_left > 0 or is_no_worse

        if is_accepted:
            for c in range(classes + 1):
                d = holds[b, c] - holds[a, c]
                counts[c, f] += d
                counts[c, g] -= d
            for c in range(classes):
                cost[c] = trial[c]
            fold[a] = g
            if b < recordings:
                fold[b] = f
            energy += change
            imbalance += growth
            if kicks_left == 0 and energy < lowest:
                lowest = energy
                stale = 0
            is_more_even = energy == best_energy and imbalance < best_imbalance
            if energy < best_energy or (settle and is_more_even):
                best_energy = energy
                best_imbalance = imbalance
                best = fold.copy()
        history[late] = min(history[late], energy)
    return best
