"""Labels and recordings of segments → folds, and how good they are known to be.

Recordings are never split. The number of eligible classes counts first, then how evenly these are
spread. A greedy start is improved by local search; folds that reach a lower bound are the optimum.
The result does not depend on the order of rows, a random state or the clock.
"""

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.kernels.fold_assignment import (
    assign_greedily,
    count_by_fold,
    least_range,
    search_locally,
)
from callshot.records import COMMON_FOLD, Folds, IntArray

# Local searches: proposals per recording, and whether empty folds of a class are priced one by one.
SEARCHES = ((2_000, True), (20_000, True), (6_000, False))
SETTLING = 1_000  # proposals per recording that make folds equal in size

Cost = tuple[int, Fraction]
"""Minus the number of eligible classes, and the sum of their spreads."""


def rate_folds(holds: IntArray, fold: IntArray, count: int) -> Cost:
    """Rate folds, exactly; smaller is better. `holds` is (recordings, classes), in segments."""
    counts = count_by_fold(holds, fold, count)
    eligible = counts.min(axis=1) > 0
    return _rate_ranges(np.ptp(counts, axis=1)[eligible], holds[:, eligible], count)


def _rate_ranges(ranges: IntArray, holds: IntArray, count: int) -> Cost:
    scaled = (count * ranges).tolist()
    total = holds.sum(axis=0).tolist()
    return -len(total), sum(map(Fraction, scaled, total), Fraction(0))


def build_folds(
    label: Sequence[str],
    recording: Sequence[str],
    count: int,
    *,
    order: IntArray | None = None,
) -> Folds:
    """Assign recordings to `count` folds; those whose labels are all rare go to the common fold.

    `proof` begins with "optimum proved" where no better folds can exist. The search takes
    recordings by name, or in the `order` of their places among the sorted names: another order
    leads to other folds, if there are others as good.

    >>> build_folds(["rumble", "roar", "rumble", "roar"], ["a", "a", "b", "b"], 2).fold
    array([0, 0, 1, 1])
    """
    if count < 2:
        raise OptionError(f"count: expected 2 folds or more, got {count}")
    if len(label) != len(recording):
        raise InputError(
            f"recording: expected one for each of {len(label)} labels, got {len(recording)}"
        )
    names, code = np.unique(label, return_inverse=True)
    recordings, row = np.unique(recording, return_inverse=True)
    table = np.zeros((len(recordings), len(names)), dtype=np.int64)
    np.add.at(table, (row, code), 1)
    if order is None:
        order = np.arange(len(recordings))
    fold = np.empty(len(recordings), np.int64)
    fold[order], proof = _assign(table[order], count)
    return Folds(fold[row], count, "built", proof)


def _assign(table: IntArray, count: int) -> tuple[IntArray, str]:
    """Return the fold of each recording, and whether better ones can exist."""
    fold = np.full(len(table), COMMON_FOLD)
    carriers = np.count_nonzero(table, axis=0)
    by_scarcity = np.argsort(carriers, kind="stable")
    classes = by_scarcity[np.sum(carriers < count) :]
    rows = np.flatnonzero(table[:, classes].any(axis=1))
    if len(rows) == 0:
        reason = f"no label is in {count} recordings, so no class can be eligible"
        return fold, f"optimum proved: {reason}"
    holds = table[np.ix_(rows, classes)]
    size = table[rows].sum(axis=1)

    def cost(folds: IntArray) -> Cost:
        return rate_folds(holds, folds, count)

    # scikit-learn can do better with the common recordings than without: start from the better one.
    starts = (assign_greedily(table, count)[rows], assign_greedily(table[rows], count))
    best = min(starts, key=cost)
    least = np.array([least_range(held, count) for held in holds.T])
    _search_parts(holds, best, count, size, least)
    eligible, spread = cost(best)
    bound = _rate_ranges(least, holds, count)
    proof = "optimum proved: every class is spread as evenly as its recordings allow"
    if eligible != bound[0]:
        candidates = f"{len(least)} classes that are in {count} recordings"
        rest = f"{-eligible} of the {candidates} are eligible"
        proof = f"not proved: best of local search, {rest}"
    elif spread != bound[1]:
        gap = math.ceil(1000 * (spread - bound[1]) / len(least)) / 1000
        rest = f"at most {gap:g} above the lower bound"
        proof = f"not proved: best of local search, {rest}"
    settled = search_locally(holds, best, count, SETTLING, hinted=False, size=size)
    best = min(settled, best, key=cost)
    # Number folds by their first recording, so that equal partitions get equal numbers.
    _, first, member = np.unique(best, return_index=True, return_inverse=True)
    fold[rows] = np.argsort(np.argsort(first))[member]
    return fold, proof


def _search_parts(
    holds: IntArray, fold: IntArray, count: int, size: IntArray, least: IntArray
) -> None:
    """Improve the folds of each set of classes that shares no recordings with the others.

    `least` is the least range of each class.
    """
    linked = holds.T @ holds > 0
    for _ in range(len(linked).bit_length()):
        linked = linked @ linked
    filled = np.zeros(count)
    for is_class in np.unique(linked, axis=0):
        rows = np.flatnonzero(holds[:, is_class].any(axis=1))
        part = holds[np.ix_(rows, is_class)]
        bound = _rate_ranges(least[is_class], part, count)
        best = fold[rows]
        for proposals, hinted in SEARCHES:
            if rate_folds(part, best, count) == bound:
                break
            improved = search_locally(
                part, best, count, proposals, least=least[is_class], hinted=hinted
            )
            if rate_folds(part, improved, count) < rate_folds(part, best, count):
                best = improved
        # A part may number its folds freely: its largest goes to the fold that is least filled.
        load = np.bincount(best, size[rows], count)
        largest = np.argsort(-load, kind="stable")
        emptiest = np.argsort(filled, kind="stable")
        fold[rows] = emptiest[np.argsort(largest)[best]]
        filled[emptiest] += load[largest]
