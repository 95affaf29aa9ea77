"""Labels and recordings of segments → the fold of each segment, and how good these folds are known to be.

Recordings are never split. The number of eligible classes counts first, then how evenly they are spread. A greedy start
is improved by local search; a lower bound or an integer program then proves the optimum, where the corpus allows it.
Nothing depends on the order of rows or on a random state, nor on the clock unless the proof says so.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.kernels.fold_assignment import (
    assign_greedily,
    count_by_fold,
    least_range,
    search_locally,
)
from callshot.records import COMMON_FOLD, IntArray

# Walks of the local search: proposals per recording, and whether empty folds of ineligible classes are priced.
WALKS = ((2_000, True), (20_000, True), (6_000, False))
SETTLING = 1_000  # proposals per recording that make folds equal in size
MOST_PLACES = (
    300  # distinct recordings × folds; beyond, a node of the integer program takes too long
)
SLIGHT = Fraction(1, 1_000_000)  # the solver cannot tell sums of spreads that differ by less
Limits = dict[str, float]  # what milp may take, as its options
Merit = tuple[
    int, Fraction
]  # smaller is better: minus the number of eligible classes, the sum of their spreads


@dataclass(frozen=True)
class Balance:
    """How well folds serve: `spread` is the mean over eligible classes of (max − min) / mean of their fold counts."""

    eligible: int
    spread: float


@dataclass(frozen=True)
class Built:
    """The fold of each row (−1 is the common fold); `proof` says in words whether better folds can exist."""

    fold: IntArray
    balance: Balance
    proved: bool
    proof: str


@dataclass(frozen=True)
class Task:
    """What is spread over `count` folds: `holds` is (recordings, classes), in segments."""

    holds: IntArray
    count: int

    def counts(self, fold: IntArray) -> IntArray:
        """Return the (classes, folds) counts."""
        return count_by_fold(self.holds, fold, self.count)

    def merit(self, fold: IntArray) -> Merit:
        """Rate folds, exactly."""
        counts = self.counts(fold)
        return self.ideal(np.ptp(counts, axis=1), np.flatnonzero(counts.min(axis=1)))

    def ideal(self, least: IntArray, eligible: IntArray | slice = slice(None)) -> Merit:
        """Rate folds in which the eligible classes have these ranges."""
        above, below = (
            (self.count * least)[eligible].tolist(),
            self.holds.sum(axis=0)[eligible].tolist(),
        )
        return -len(above), sum(map(Fraction, above, below), Fraction(0))

    def part(self, classes: IntArray) -> tuple["Task", IntArray]:
        """Return the task of these classes alone, and the recordings that carry them."""
        rows = np.flatnonzero(self.holds[:, classes].any(axis=1))
        return Task(self.holds[np.ix_(rows, classes)], self.count), rows


def judge(label: Sequence[str], fold: IntArray, count: int) -> Balance:
    """Count the eligible classes and average their spread; rows of the common fold are ignored.

    >>> judge(["rumble", "rumble", "roar", "rumble", "roar"], np.array([0, 1, 0, 1, -1]), 2)
    Balance(eligible=1, spread=0.6666666666666666)
    """
    if len(label) != len(fold) or not np.isin(fold, range(COMMON_FOLD, count)).all():
        raise InputError(
            f"fold: wanted a number from -1 to {count - 1} for each of {len(label)} labels, got {fold}"
        )
    names, code = np.unique(label, return_inverse=True)
    counts = np.zeros((len(names), count + 1), dtype=np.int64)
    np.add.at(counts, (code, fold), 1)  # the common fold, -1, counts in the last column
    eligible, spread = Task(counts.T[:-1], count).merit(
        np.arange(count)
    )  # a fold is as good as one recording
    return Balance(-eligible, float(spread / -eligible) if eligible else 0.0)


def build_folds(
    label: Sequence[str],
    recording: Sequence[str],
    count: int,
    *,
    nodes: int = 500,
    seconds: float = 60.0,
) -> Built:
    """Spread the recordings over `count` folds; those whose labels are all rare go to the common fold.

    `nodes` and `seconds` limit each run of the integer program; 0 nodes leave it out.

    >>> build_folds(["rumble", "roar", "rumble", "roar"], ["a", "a", "b", "b"], 2).fold
    array([0, 0, 1, 1])
    """
    if count < 2:
        raise OptionError(f"count: wanted 2 folds or more, got {count}")
    if len(label) != len(recording):
        raise InputError(
            f"recording: wanted one for each of {len(label)} labels, got {len(recording)}"
        )
    (names, code), (recordings, row) = (
        np.unique(column, return_inverse=True) for column in (label, recording)
    )
    table = np.zeros((len(recordings), len(names)), dtype=np.int64)
    np.add.at(table, (row, code), 1)
    fold, proved, proof = _assign(
        table, count, {"node_limit": nodes, "time_limit": seconds, "mip_rel_gap": 0.0}
    )
    return Built(fold[row], judge(label, fold[row], count), proved, proof)


def _assign(table: IntArray, count: int, limits: Limits) -> tuple[IntArray, bool, str]:
    """Return the fold of each recording, whether no better ones exist, and how that is known."""
    fold = np.full(len(table), COMMON_FOLD)
    carriers = np.count_nonzero(table, axis=0)
    classes = np.argsort(carriers, kind="stable")[
        np.sum(carriers < count) :
    ]  # the solver wants the scarce ones first
    rows = np.flatnonzero(table[:, classes].any(axis=1))
    if len(rows) == 0:
        return (
            fold,
            True,
            f"optimum proved: no label is in {count} recordings, so no class can be eligible",
        )
    task, size = Task(table[np.ix_(rows, classes)], count), table[rows].sum(axis=1)
    # scikit-learn can have more luck with the common recordings than without: never worse means than either.
    starts = (assign_greedily(table, count)[rows], assign_greedily(table[rows], count))
    best, proved, proof = _search_parts(task, min(starts, key=task.merit), size, limits)
    best = min(
        search_locally(task.holds, best, count, SETTLING, hinted=False, size=size), best, key=task.merit
    )
    _, first, member = np.unique(best, return_index=True, return_inverse=True)
    fold[rows] = np.argsort(np.argsort(first))[
        member
    ]  # numbered by first recording: equal partitions, equal numbers
    return fold, proved, proof


def _search_parts(
    task: Task, fold: IntArray, size: IntArray, limits: Limits
) -> tuple[IntArray, bool, str]:
    """Improve the folds of each set of classes that shares no recordings with the others."""
    least, hits, filled = np.zeros(task.holds.shape[1], dtype=np.int64), [], np.zeros(task.count)
    for classes in _connected(task.holds):
        part, rows = task.part(classes)
        fold[rows], least[classes], hit = _search(part, fold[rows], limits)
        hits.append(hit)
        # Each part may number its folds as it likes: its largest goes to the fold that is least filled.
        own = np.bincount(fold[rows], size[rows], task.count)
        large, empty = np.argsort(-own, kind="stable"), np.argsort(filled, kind="stable")
        fold[rows] = empty[np.argsort(large)[fold[rows]]]
        filled[empty] += own[large]
    return fold, *_explain(task, fold, least, next(filter(None, hits), ""))


def _explain(task: Task, fold: IntArray, least: IntArray, limit: str) -> tuple[bool, str]:
    """Say whether better folds can exist, and how far away they can be."""
    (eligible, spread), (most, bound) = task.merit(fold), task.ideal(least)
    if (eligible, spread) == (most, bound):
        return True, "optimum proved: every class is spread as evenly as its recordings allow"
    if not limit:
        return True, "optimum proved by integer programming"
    rest = (
        f"at most {math.ceil(1000 * (spread - bound) / len(least)) / 1000:g} above the lower bound"
    )
    if eligible != most:
        rest = (
            f"{-eligible} of the {-most} classes that are in {task.count} recordings are eligible"
        )
    return False, f"not proved: {limit}; best of local search, {rest}"


def _search(task: Task, fold: IntArray, limits: Limits) -> tuple[IntArray, IntArray, str]:
    """Return the best folds found, the least range of each class, and the limit that kept us from a proof, if any."""
    least = np.array([least_range(held, task.count) for held in task.holds.T])
    for number, (proposals, hinted) in enumerate(WALKS):
        fold = min(
            fold,
            search_locally(task.holds, fold, task.count, proposals, least=least, hinted=hinted),
            key=task.merit,
        )
        least = _tighten(task, fold, least, limits) if number == 0 else least
        if task.merit(fold) == task.ideal(least):
            return fold, least, ""
    try:
        fold, limit = _solve(task, fold, least, limits)
    except TimeoutError:  # what it had by then depends on the machine
        limit = f"the solver was stopped after {limits['time_limit']:g} s and its work is not used"
    return fold, least, limit


def _tighten(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> IntArray:
    """Replace each bound that is not met by the least range that its class can have on its own.

    Only the time and the proof depend on these bounds, never the folds.
    """
    least, counts = least.copy(), task.counts(fold)
    with suppress(TimeoutError):
        for c in np.flatnonzero((np.ptp(counts, axis=1) > least) | (counts.min(axis=1) == 0)):
            alone, rows = task.part(np.array([c]))
            best, limit = _solve(alone, fold[rows], least[[c]], limits)
            least[c] = least[c] if limit else np.ptp(alone.counts(best))
    return least


def _solve(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> tuple[IntArray, str]:
    """Return the best folds; or the best known, and the limit that was hit."""
    for more in (True, False) if -task.merit(fold)[0] < len(least) else (False,):
        found, limit = _program(task, fold, least, more, limits)
        fold = min(fold, found, key=task.merit)
        if limit:
            return fold, limit
    return fold, ""


def _program(
    task: Task, fold: IntArray, least: IntArray, more: bool, limits: Limits
) -> tuple[IntArray, str]:
    """Look for folds with more eligible classes, or else with as many and a smaller spread."""
    from scipy.optimize import milp

    kinds, kind, times = np.unique(-task.holds, axis=0, return_inverse=True, return_counts=True)
    if limits["node_limit"] < 1:
        return fold, "the solver was left out"
    if len(kinds) * task.count > MOST_PLACES:
        return fold, f"{len(fold)} recordings are too many for the solver"
    model = _model(-kinds, times, task.count, least, task.merit(fold), more)
    write_summary = milp(**model, options=dict(limits))  # a copy, as milp empties it
    if "time limit" in write_summary.message.lower():
        raise TimeoutError
    if write_summary.x is not None:
        where = (
            np.rint(write_summary.x[: len(kinds) * task.count]).astype(int).reshape(-1, task.count)
        )
        fold = fold.copy()
        for k, places in enumerate(where):
            fold[kind.ravel() == k] = np.repeat(np.arange(task.count), places)
    return fold, "" if write_summary.status in (
        0,
        2,
    ) else f"the solver did not finish within {limits['node_limit']} nodes"


def _model(
    kinds: IntArray, times: IntArray, count: int, least: IntArray, known: Merit, more: bool
) -> dict[str, Any]:
    """State the integer program: how many recordings of each kind go to each fold, so that it beats what is known."""
    from scipy.optimize import Bounds, LinearConstraint

    total, classes, places = times @ kinds, len(least), len(kinds) * count
    variables = np.eye(places + 4 * classes)
    place, (high, low, gap, able) = variables[:places], variables[places:].reshape(4, classes, -1)
    load, spread = np.kron(kinds.T, np.eye(count)) @ place, (count / total) @ gap
    step = max(
        Fraction(count, math.lcm(*total.tolist())) / 2, SLIGHT
    )  # spreads that differ do so by two steps
    rules = [
        LinearConstraint(np.kron(np.eye(len(kinds)), np.ones(count)) @ place, times, times),
        LinearConstraint(np.repeat(high, count, axis=0) - load, lb=0),
        LinearConstraint(load - np.repeat(low, count, axis=0), lb=0),
        LinearConstraint(high + (count - 1) * low, ub=total),
        LinearConstraint((count - 1) * high + low, lb=total),
        LinearConstraint(
            gap - high + low - total[:, None] * able, lb=-total
        ),  # counts only if eligible
        LinearConstraint(gap - least[:, None] * able, lb=0),
        LinearConstraint(low - able, lb=0),
        LinearConstraint(able.sum(axis=0), lb=more - known[0]),
        LinearConstraint(spread, ub=np.inf if more else float(known[1] - step)),
    ]
    # Folds are interchangeable: the first i recordings may as well be in the first i folds.
    most = times[:, None] * (np.arange(count) < np.cumsum(times)[:, None])
    upper = np.concatenate([most.ravel(), total, total // count, total, np.ones(classes)])
    cost = -able.sum(axis=0) if more else spread
    return {
        "c": cost,
        "integrality": np.ones(len(upper)),
        "bounds": Bounds(0, upper),
        "constraints": rules,
    }


def _connected(holds: IntArray) -> list[IntArray]:
    """Return the sets of classes that share recordings, directly or by way of others."""
    linked = holds.T @ holds > 0
    for _ in range(len(linked).bit_length()):
        linked = linked @ linked
    return [np.flatnonzero(row) for row in np.unique(linked, axis=0)]
