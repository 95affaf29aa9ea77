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
from typing import Any, NamedTuple

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.kernels.assign import improve, spread_greedily
from callshot.records import COMMON_FOLD, IntArray

# Walks of the local search: proposals per recording, and whether empty folds of ineligible classes are priced.
WALKS = ((2_000, True), (20_000, True), (6_000, False))
SETTLING = 1_000  # proposals per recording that make folds equal in size
MOST_PROPOSALS = 5_000_000
MOST_PLACES = 300  # distinct recordings × folds; beyond, each node of the integer program takes too long
SLIGHT = Fraction(1, 1_000_000)  # the solver cannot tell sums of spreads that differ by less

Merit = tuple[int, Fraction]  # smaller is better: minus the number of eligible classes, the sum of their spreads


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


class Limits(NamedTuple):
    """What one run of the solver may take; the seconds are a safety net."""

    nodes: int
    seconds: float


@dataclass(frozen=True)
class Task:
    """What is spread over `count` folds: the segments of each recording, per class (`holds`) and in all (`size`)."""

    holds: IntArray
    size: IntArray
    count: int

    def counts(self, fold: IntArray) -> IntArray:
        """Return the (classes, folds) counts."""
        return _add_up(self.holds, fold, self.count)

    def merit(self, fold: IntArray) -> Merit:
        """Rate folds, exactly."""
        return _merit(self.counts(fold))

    def part(self, classes: IntArray) -> tuple["Task", IntArray]:
        """Return the task of these classes alone, and the recordings that carry them."""
        rows = np.flatnonzero(self.holds[:, classes].any(axis=1))
        return Task(self.holds[np.ix_(rows, classes)], self.size[rows], self.count), rows


def judge(label: Sequence[str], fold: IntArray, count: int) -> Balance:
    """Count the eligible classes and average their spread; rows of the common fold are ignored.

    >>> judge(["rumble", "rumble", "roar", "rumble", "roar"], np.array([0, 1, 0, 1, -1]), 2)
    Balance(eligible=1, spread=0.6666666666666666)
    """
    if len(label) != len(fold) or not np.isin(fold, range(COMMON_FOLD, count)).all():
        raise InputError(f"fold: wanted a number from -1 to {count - 1} for each of {len(label)} labels, got {fold}")
    member = np.eye(len(set(label)), dtype=np.int64)[_codes(label)]
    kept = fold != COMMON_FOLD
    eligible, spread = _merit(_add_up(member[kept], fold[kept], count))
    return Balance(-eligible, float(spread / -eligible) if eligible else 0.0)


def build_folds(
    label: Sequence[str], recording: Sequence[str], count: int, *, nodes: int = 500, seconds: float = 60.0
) -> Built:
    """Spread the recordings over `count` folds; those whose labels are all rare go to the common fold.

    `nodes` and `seconds` limit each run of the integer program; 0 nodes leave it out.

    >>> build_folds(["rumble", "roar", "rumble", "roar"], ["a", "a", "b", "b"], 2).fold
    array([0, 0, 1, 1])
    """
    if count < 2:
        raise OptionError(f"count: wanted 2 folds or more, got {count}")
    if len(label) != len(recording):
        raise InputError(f"recording: wanted one for each of {len(label)} labels, got {len(recording)}")
    row = _codes(recording)
    table = np.zeros((len(set(recording)), len(set(label))), dtype=np.int64)
    np.add.at(table, (row, _codes(label)), 1)
    fold, proved, proof = _assign(table, count, Limits(nodes, seconds))
    return Built(fold[row], judge(label, fold[row], count), proved, proof)


def _assign(table: IntArray, count: int, limits: Limits) -> tuple[IntArray, bool, str]:
    """Return the fold of each recording, whether no better ones exist, and how that is known."""
    fold = np.full(len(table), COMMON_FOLD)
    carriers = np.count_nonzero(table, axis=0)
    classes = np.argsort(carriers, kind="stable")[np.sum(carriers < count) :]  # the solver wants the scarce ones first
    spread = table[:, classes].any(axis=1)
    if not spread.any():
        return fold, True, f"optimum proved: no label is in {count} recordings, so no class can be eligible"
    task = Task(table[np.ix_(spread, classes)], table[spread].sum(axis=1), count)
    # scikit-learn can have more luck with the common recordings than without them: never worse means than either.
    starts = [spread_greedily(table, count)[spread], spread_greedily(table[spread], count)]
    best, proved, proof = _search(task, min(starts, key=task.merit), limits)
    fold[spread] = _number(_walk(task, best, SETTLING, settle=True))
    return fold, proved, proof


def _search(task: Task, fold: IntArray, limits: Limits) -> tuple[IntArray, bool, str]:
    """Improve folds until no better ones can exist or the work is done."""
    least = np.array([_least_range(held, task.count) for held in task.holds.T])
    for walk, (proposals, hinted) in enumerate(WALKS):
        fold = min(fold, _walk(task, fold, proposals, hinted, least), key=task.merit)
        least = _tighten(task, fold, least, limits) if walk == 0 else least
        if task.merit(fold) == _ideal(task, least):
            return fold, True, "optimum proved: every class is spread as evenly as its recordings allow"
    try:
        fold, limit = _solve_parts(task, fold, least, limits)
    except TimeoutError:  # another machine would have got further: nothing that was found is used
        limit = f"the solver was stopped after {limits.seconds:g} s"
    if not limit:
        return fold, True, "optimum proved by integer programming"
    return fold, False, f"not proved: {limit}; best of local search, {_distance(task, fold, least)}"


def _walk(
    task: Task, fold: IntArray, proposals: int, hinted: bool = True, least: IntArray | None = None, settle: bool = False
) -> IntArray:
    """Return the best folds met on a walk of so many proposals per recording."""
    recordings, classes = task.holds.shape
    holds = np.pad(np.column_stack([task.holds, task.size]), ((0, 1), (0, 0)))
    scale = 2**61 // (task.count * classes * (classes + 2))  # so that energies fit into 64 bits
    weight, penalty = scale * task.count // task.holds.sum(axis=0), scale * task.count * classes
    return improve(
        holds,
        _add_up(holds[:-1], fold, task.count),
        weight,
        fold.copy(),
        np.zeros(10 * recordings, dtype=np.int64),
        penalty,
        hinted * (penalty // task.count),
        -1 if least is None else int(weight @ least),
        1 + recordings // 4,
        proposals,
        min(proposals * max(recordings, 50), MOST_PROPOSALS),
        settle,
    )


def _least_range(held: IntArray, count: int) -> int:
    """Return a range (max − min) of fold counts that no spread of these holdings can fall below."""
    held = np.sort(held[held > 0])[::-1]
    rest = held.sum() - np.concatenate([[0], np.cumsum(held)])
    low = min(rest[j] // (count - j) for j in range(count))  # j recordings are in j folds at most: the others share
    # Of i · count + 1 recordings, i + 1 are in one fold.
    piles = [held[i * count - i : i * count + 1].sum() for i in range(1 + (len(held) - 1) // count)]
    return int(max(-(-rest[0] // count), *piles) - low)


def _tighten(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> IntArray:
    """Replace each bound that is not met by the least range that its class can have on its own.

    Only the time and the proof depend on these bounds, never the folds.
    """
    least, counts = least.copy(), task.counts(fold)
    for c in np.flatnonzero((np.ptp(counts, axis=1) > least) | (counts.min(axis=1) == 0)):
        alone, rows = task.part(np.array([c]))
        with suppress(TimeoutError):
            best, limit = _solve(alone, fold[rows], least[[c]], limits)
            least[c] = least[c] if limit else np.ptp(alone.counts(best))
    return least


def _solve_parts(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> tuple[IntArray, str]:
    """Solve one by one the sets of classes that share no recordings; return the best folds and the limit hit, if any."""
    from scipy.sparse.csgraph import connected_components

    better, hits = fold.copy(), []
    number, member = connected_components(task.holds.T @ task.holds)
    for classes in (np.flatnonzero(member == p) for p in range(number)):
        part, rows = task.part(classes)
        if part.merit(fold[rows]) != _ideal(part, least[classes]):
            better[rows], hit = _solve(part, fold[rows], least[classes], limits)
            hits.append(hit)
    return better, next(filter(None, hits), "")


def _solve(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> tuple[IntArray, str]:
    """Return the best folds; or the best known, and the limit that was hit."""
    for more in (True, False) if -task.merit(fold)[0] < len(least) else (False,):
        found, limit = _program(task, fold, least, more, limits)
        fold = min(fold, found, key=task.merit)
        if limit:
            return fold, limit
    return fold, ""


def _program(task: Task, fold: IntArray, least: IntArray, more: bool, limits: Limits) -> tuple[IntArray, str]:
    """Look for folds with more eligible classes, or else with as many and a smaller spread."""
    from scipy.optimize import milp

    kinds, kind, times = np.unique(-task.holds, axis=0, return_inverse=True, return_counts=True)
    if kinds.shape[0] * task.count > MOST_PLACES or limits.nodes < 1:
        return fold, f"{len(fold)} recordings are too many for the solver"
    options = {"node_limit": limits.nodes, "time_limit": limits.seconds, "mip_rel_gap": 0.0}
    answer = milp(**_model(-kinds, times, task.count, least, task.merit(fold), more), options=options)
    if answer.status == 1:
        raise TimeoutError
    if answer.x is not None:
        where = np.rint(answer.x[: kinds.shape[0] * task.count]).astype(int).reshape(-1, task.count)
        fold = fold.copy()
        for k, places in enumerate(where):
            fold[kind.ravel() == k] = np.repeat(np.arange(task.count), places)
    return fold, "" if answer.status in (0, 2) else f"the solver stopped at its limit of {limits.nodes} nodes"


def _model(kinds: IntArray, times: IntArray, count: int, least: IntArray, known: Merit, more: bool) -> dict[str, Any]:
    """State the integer program: how many recordings of each kind go to each fold, so that it beats what is known."""
    from scipy.optimize import Bounds, LinearConstraint

    total, classes, places = times @ kinds, len(least), len(kinds) * count
    variables = np.eye(places + 4 * classes)
    place, (high, low, gap, able) = variables[:places], variables[places:].reshape(4, classes, -1)
    load, spread = np.kron(kinds.T, np.eye(count)) @ place, (count / total) @ gap
    step = max(Fraction(count, math.lcm(*total.tolist())) / 2, SLIGHT)  # spreads that differ do so by two steps
    rules = [
        LinearConstraint(np.kron(np.eye(len(kinds)), np.ones(count)) @ place, times, times),
        LinearConstraint(np.repeat(high, count, axis=0) - load, lb=0),
        LinearConstraint(load - np.repeat(low, count, axis=0), lb=0),
        LinearConstraint(high + (count - 1) * low, ub=total),
        LinearConstraint((count - 1) * high + low, lb=total),
        LinearConstraint(gap - high + low - total[:, None] * able, lb=-total),  # counts only if eligible
        LinearConstraint(gap - least[:, None] * able, lb=0),
        LinearConstraint(low - able, lb=0),
        LinearConstraint(able.sum(axis=0), lb=more - known[0]),
        LinearConstraint(spread, ub=np.inf if more else float(known[1] - step)),
    ]
    # Folds are interchangeable: the first i recordings may as well be in the first i folds.
    most = times[:, None] * (np.arange(count) < np.cumsum(times)[:, None])
    upper = np.concatenate([most.ravel(), total, total // count, total, np.ones(classes)])
    cost = -able.sum(axis=0) if more else spread
    return {"c": cost, "integrality": np.ones(len(upper)), "bounds": Bounds(0, upper), "constraints": rules}


def _distance(task: Task, fold: IntArray, least: IntArray) -> str:
    """Say how far from the best these folds can be."""
    eligible, spread = task.merit(fold)
    if -eligible < len(least):
        return f"{-eligible} of the {len(least)} classes that are in {task.count} recordings are eligible"
    excess = (spread - _ideal(task, least)[1]) / len(least)
    return f"at most {math.ceil(1000 * excess) / 1000:g} above the lower bound"


def _ideal(task: Task, least: IntArray) -> Merit:
    """Return the merit that no folds can surpass."""
    return -len(least), _sum_ratios(task.count * least, task.holds.sum(axis=0))


def _merit(counts: IntArray) -> Merit:
    """Rate (classes, folds) counts, exactly."""
    held = counts[counts.min(axis=1) > 0]
    return -len(held), _sum_ratios(held.shape[1] * np.ptp(held, axis=1), held.sum(axis=1))


def _sum_ratios(above: IntArray, below: IntArray) -> Fraction:
    """Return Σ above / below."""
    return sum(map(Fraction, above.tolist(), below.tolist()), Fraction(0))


def _add_up(holds: IntArray, fold: IntArray, count: int) -> IntArray:
    """Return the (columns of `holds`, folds) sums."""
    counts = np.zeros((count, holds.shape[1]), dtype=np.int64)
    np.add.at(counts, fold, holds)
    return np.ascontiguousarray(counts.T)


def _codes(names: Sequence[str]) -> IntArray:
    """Return the place of each name among the sorted names."""
    place = {name: i for i, name in enumerate(sorted(set(names)))}
    return np.array([place[name] for name in names], dtype=np.int64)


def _number(fold: IntArray) -> IntArray:
    """Number folds by their first recording, so that equal partitions have equal numbers."""
    _, first, member = np.unique(fold, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[member]
