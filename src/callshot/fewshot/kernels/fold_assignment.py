"""Segments of each class in each recording → a fold for each recording.

`spread_greedily` makes a start. `walk` goes on by late-acceptance hill climbing: a proposal is taken when it is no
worse than the energy was some steps ago. Energies are integers and chance is a hash of a counter, so that a walk is
the same on every machine. `least_range` says how far it can get.
"""

import numpy as np

from callshot.fewshot.kernels import inner, kernel
from callshot.fewshot.kernels.streams import GOLDEN, mix
from callshot.records import FloatArray, IntArray

MOST_PROPOSALS = 5_000_000  # of one walk: about a second
HISTORY = 20  # energies remembered, per recording


def spread_greedily(table: IntArray, count: int) -> IntArray:
    """Give each recording, the most uneven one first, to the fold where it leaves the classes the most even.

    This is the rule of scikit-learn's StratifiedGroupKFold, and the same to the last bit.
    """
    held = table[:, table.any(axis=0)].astype(
        np.float64, order="C"
    )  # the order of summation is part of the rule
    total, counts, fold = (
        held.sum(axis=0),
        np.zeros((count, held.shape[1])),
        np.zeros(len(held), dtype=np.int64),
    )
    for r in np.argsort(-np.std(held, axis=1), kind="stable"):
        there = counts + np.eye(count)[:, :, None] * held[r]
        fold[r] = _choose(np.std(there / total, axis=1).mean(axis=1), counts.sum(axis=1))
        counts[fold[r]] += held[r]
    return fold


def _choose(uneven: FloatArray, size: FloatArray) -> int:
    """Return the fold that is least uneven; of two that are close, the smaller."""
    best = 0
    for f in range(1, len(size)):
        close = abs(uneven[f] - uneven[best]) <= 1e-8 + 1e-5 * abs(uneven[best])
        if uneven[f] < uneven[best] or (close and size[f] < size[best]):
            best = f
    return best


def least_range(held: IntArray, count: int) -> int:
    """Return a range (max − min) of fold counts that no spread of these holdings can fall below."""
    held = np.sort(held[held > 0])[::-1]
    rest = held.sum() - np.concatenate([[0], np.cumsum(held)])
    low = min(
        rest[j] // (count - j) for j in range(count)
    )  # j recordings are in j folds at most: the others share
    # Of i · count + 1 recordings, i + 1 are in one fold.
    piles = [held[i * count - i : i * count + 1].sum() for i in range(1 + (len(held) - 1) // count)]
    return int(max(-(-rest[0] // count), *piles) - low)


def add_up(holds: IntArray, fold: IntArray, count: int) -> IntArray:
    """Return the (columns of `holds`, folds) sums."""
    counts = np.zeros((count, holds.shape[1]), dtype=np.int64)
    np.add.at(counts, fold, holds)
    return np.ascontiguousarray(counts.T)


def walk(
    holds: IntArray,
    fold: IntArray,
    count: int,
    proposals: int,
    *,
    least: IntArray | None = None,
    hinted: bool = True,
    size: IntArray | None = None,
) -> IntArray:
    """Return the best folds met with so many proposals per recording (as if there were 30 at least).

    The walk ends where each class has its `least` range. Given the `size` of the recordings, it never climbs and makes
    the folds equal in size where that costs nothing.
    """
    recordings, classes = holds.shape
    padded = np.pad(
        np.column_stack([holds, holds.sum(axis=1) if size is None else size]), ((0, 1), (0, 0))
    )
    scale = 2**61 // (count * classes * (classes + 2))  # so that energies fit into 64 bits
    weight, penalty = scale * count // holds.sum(axis=0), scale * count * classes
    history = np.zeros(HISTORY * recordings, dtype=np.int64)
    target = -1 if least is None else int(weight @ least)
    hint, kicks, work = (
        hinted * (penalty // count),
        1 + recordings // 4,
        proposals * max(recordings, 30),
    )
    best: IntArray = improve(
        padded,
        add_up(padded[:-1], fold, count),
        weight,
        fold.copy(),
        history,
        penalty,
        hint,
        target,
        kicks,
        proposals,
        min(work, MOST_PROPOSALS),
        size is not None,
    )
    return best


@inner
def price(row, weight, penalty, hint):
    """Price one class by its fold counts: its weighted range, or the penalty and a hint for each empty fold."""
    low = row[0]
    high = row[0]
    empty = 0
    for held in row:
        low = min(low, held)
        high = max(high, held)
        empty += held == 0
    return weight * (high - low) if empty == 0 else penalty + hint * empty


@kernel
def improve(
    holds: IntArray,
    counts: IntArray,
    weight: IntArray,
    fold: IntArray,
    history: IntArray,
    penalty: int,
    hint: int,
    target: int,
    kicks: int,
    stream: int,
    proposals: int,
    settle: bool,
) -> IntArray:
    """Walk on from `fold` and return the best folds met.

    `holds` is (recordings + 1, classes + 1): the last row is nobody's, as a swap with nobody is a move, and the last
    column is the size. `counts` is (classes + 1, folds) and belongs to `fold`; both are used up. Whenever the walk
    is stuck, so many `kicks` are taken unseen. It ends at `target`. With `settle` it never climbs, and makes
    the folds equal in size where that costs nothing.
    """
    nobody = np.int64(fold.size)
    classes = weight.size
    cost = np.empty(classes + 1, np.int64)
    trial = np.empty(classes + 1, np.int64)
    cost[classes] = trial[classes] = 0
    energy = np.int64(0)
    for c in range(classes):
        cost[c] = price(counts[c], weight[c], penalty, hint)
        energy += cost[c]
    for i in range(
        history.size
    ):  # loops, because numba takes a second to compile history[:] = energy
        history[i] = energy
    best = np.empty(fold.size, np.int64)
    for i in range(fold.size):
        best[i] = fold[i]
    lowest = best_energy = energy
    size = best_size = 0
    stale = kicking = 0
    counter = np.uint64(stream) << np.uint64(40)
    for t in range(proposals):
        if best_energy <= target and not settle:
            break
        if stale > 50 * history.size:
            kicking = kicks
            stale = 0
        elif kicking > 0:
            kicking -= 1
            if kicking == 0:
                lowest = energy
                for i in range(history.size):
                    history[i] = energy
        stale += 1
        x = mix((counter + np.uint64(t)) * GOLDEN)
        a = np.int64(((x >> np.uint64(32)) * np.uint64(nobody)) >> np.uint64(32))
        y = x & np.uint64(0x7FFFFFFF)
        if x & np.uint64(0x80000000):
            b = np.int64((y * np.uint64(nobody)) >> np.uint64(31))
            g = fold[b]
        else:
            b = nobody
            g = np.int64((y * np.uint64(counts.shape[1])) >> np.uint64(31))
        f = fold[a]
        if f == g:
            continue
        change = 0
        for c in range(classes):
            d = holds[b, c] - holds[a, c]
            if d != 0:
                row = counts[c]
                row[f] += d
                row[g] -= d
                trial[c] = price(row, weight[c], penalty, hint)
                row[f] -= d
                row[g] += d
                change += trial[c] - cost[c]
        d = holds[b, classes] - holds[a, classes]
        growth = 2 * d * (counts[classes, f] - counts[classes, g] + d)
        late = t % history.size
        if settle:
            taken = change < 0 or (change == 0 and growth < 0)
        else:
            taken = kicking > 0 or change <= 0 or energy + change <= history[late]
        if taken:
            for c in range(classes + 1):
                d = holds[b, c] - holds[a, c]
                if d != 0:
                    counts[c, f] += d
                    counts[c, g] -= d
                    cost[c] = trial[c]
            fold[a] = g
            if b != nobody:
                fold[b] = f
            energy += change
            size += growth
            if kicking == 0 and energy < lowest:
                lowest = energy
                stale = 0
            if energy < best_energy or (settle and energy == best_energy and size < best_size):
                best_energy = energy
                best_size = size
                for i in range(nobody):
                    best[i] = fold[i]
        history[late] = min(history[late], energy)
    return best
