"""Recordings by classes, and a fold for each recording → a better fold for each recording.

Late-acceptance hill climbing: a proposal is taken when it is no worse than the energy was some steps ago. Energies are
integers and chance is a hash of a counter, so that the walk is the same on every machine.
"""

import numpy as np
from numba import njit

from callshot.records import IntArray


@njit(cache=True, nogil=True)
def price(row: IntArray, weight: int, penalty: int, hint: int) -> int:
    """Price one class by its fold counts: its weighted range, or the penalty and a hint for each empty fold."""
    low = row[0]
    high = row[0]
    empty = 0
    for held in row:
        low = min(low, held)
        high = max(high, held)
        empty += held == 0
    return weight * (high - low) if empty == 0 else penalty + hint * empty


@njit(cache=True, nogil=True)
def scatter(counter: np.uint64) -> np.uint64:
    """Hash a counter to 64 bits (SplitMix64)."""
    x = counter * np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@njit(cache=True, nogil=True)
def improve(
    holds: IntArray,
    counts: IntArray,
    weight: IntArray,
    fold: IntArray,
    best: IntArray,
    history: IntArray,
    penalty: int,
    hint: int,
    target: int,
    stream: int,
    kicks: int,
    proposals: int,
    settle: bool,
) -> None:
    """Walk from `fold` and leave the best folds met in `best`.

    `holds` is (recordings + 1, classes + 1): the last row is nobody's (a swap with nobody is a move), the last column
    is the size. `counts` is (classes + 1, folds) and belongs to `fold`; both are used up. The first `kicks` proposals
    are taken unseen. The walk ends at `target`; with `settle` it never climbs and goes on to make the folds equal in size.
    """
    nobody = fold.size
    classes = weight.size
    cost = np.zeros(classes + 1, np.int64)
    trial = np.zeros(classes + 1, np.int64)
    energy = 0
    for c in range(classes):
        cost[c] = price(counts[c], weight[c], penalty, hint)
        energy += cost[c]
    size = best_energy = best_size = 0
    counter = np.uint64(stream) << np.uint64(40)
    for t in range(proposals):
        if t == kicks:
            best_energy = energy
            best_size = size
            for i in range(history.size):  # not history[:] = energy: numba takes seconds to compile that
                history[i] = energy
            for i in range(nobody):
                best[i] = fold[i]
        if t >= kicks and best_energy <= target and not settle:
            return
        x = scatter(counter + np.uint64(t))
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
            taken = t < kicks or change <= 0 or energy + change <= history[late]
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
            if t >= kicks and (energy < best_energy or (settle and energy == best_energy and size < best_size)):
                best_energy = energy
                best_size = size
                for i in range(nobody):
                    best[i] = fold[i]
        if t >= kicks:
            history[late] = min(history[late], energy)
