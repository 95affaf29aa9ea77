"""Labels and recordings of segments → folds, and a proof of how good they are.

The number of eligible classes counts first, then how evenly these are spread. A greedy start is
improved by local search; a lower bound or an integer program then proves the optimum, where the
corpus allows it. The result does not depend on the order of rows or a random state, and not on the
clock unless the proof says so.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import Any

import numpy as np

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
# Distinct recordings × folds; above, a node of the integer program is too slow.
MAX_PLACES = 300
# Of spreads; the solver's tolerance hides smaller differences.
RESOLUTION = Fraction(1, 1_000_000)
NO_SOLUTION = 2  # milp: infeasible, so nothing is better than what is known

Limits = dict[str, float]  # options of milp
Cost = tuple[int, Fraction]
"""Minus the number of eligible classes, and the sum of their spreads."""


@dataclass(frozen=True)
class Problem:
    """Recordings to assign to `count` folds.

    `holds` (recordings, classes) is the number of segments, `limits` are options of milp.
    """

    holds: IntArray
    count: int
    limits: Limits = field(default_factory=dict)

    @cached_property
    def weights(self) -> list[Fraction]:
        """The weights of the ranges of classes, whose weighted sum is the objective."""
        return [Fraction(self.count, size) for size in self.holds.sum(axis=0).tolist()]

    def counts(self, fold: IntArray) -> IntArray:
        """Return the number of segments, (classes, folds); `fold` has one for each recording."""
        return count_by_fold(self.holds, fold, self.count)

    def cost(self, fold: IntArray) -> Cost:
        """Return minus the number of classes that are in every fold, and the sum of their spreads.

        `fold` is the fold of each recording. Smaller is better.
        """
        counts = self.counts(fold)
        ranges = np.ptp(counts, axis=1)  # largest minus smallest count in a fold
        eligible = np.flatnonzero(counts.min(axis=1))  # in every fold
        return self.cost_of_ranges(ranges, eligible)

    def cost_of_ranges(
        self, ranges: IntArray, eligible: IntArray | slice = slice(None)
    ) -> Cost:
        """Return the cost of folds in which the eligible classes have these ranges of counts.

        A range is largest minus smallest count in a fold; divided by the mean count it is the
        spread of a class. Fractions are exact.
        """
        numbers = np.arange(len(self.weights))[eligible].tolist()
        spreads = [self.weights[n] * int(ranges[n]) for n in numbers]
        return -len(spreads), sum(spreads, Fraction(0))

    def restrict(self, classes: IntArray) -> tuple["Problem", IntArray]:
        """Return the problem of some classes alone, and the recordings that have any of them."""
        rows = np.flatnonzero(self.holds[:, classes].any(axis=1))
        return replace(self, holds=self.holds[np.ix_(rows, classes)]), rows


def build_folds(
    label: Sequence[str],
    recording: Sequence[str],
    count: int,
    *,
    nodes: int = 500,
    seconds: float = 60.0,
    order: IntArray | None = None,
) -> Folds:
    """Assign recordings to `count` folds; those whose labels are all rare go to the common fold.

    `nodes` and `seconds` limit each run of the integer program; 0 nodes leave it out. The search
    takes recordings by name, or in the `order` of their places among the sorted names: another
    order leads to other folds, if there are others as good.

    >>> build_folds(["rumble", "roar", "rumble", "roar"], ["a", "a", "b", "b"], 2).fold
    array([0, 0, 1, 1])
    """
    names, class_number = np.unique(label, return_inverse=True)
    recordings, row = np.unique(recording, return_inverse=True)
    table = np.zeros((len(recordings), len(names)), dtype=np.int64)
    np.add.at(table, (row, class_number), 1)
    limits = {"node_limit": nodes, "time_limit": seconds, "mip_rel_gap": 0.0}
    if order is None:
        order = np.arange(len(recordings))
    fold = np.empty(len(recordings), np.int64)
    fold[order], proof = _assign(table[order], count, limits)
    return Folds(fold[row], count, "built", proof)


def _assign(table: IntArray, count: int, limits: Limits) -> tuple[IntArray, str]:
    """Return the fold of each recording, and a text on whether better folds can exist.

    `table` (recordings, classes) has the number of segments.
    """
    fold = np.full(len(table), COMMON_FOLD)
    recordings_of_class = np.count_nonzero(table, axis=0)
    # The solver is faster with scarce classes first.
    by_scarcity = np.argsort(recordings_of_class, kind="stable")
    # A class in fewer recordings than folds cannot be in every fold.
    too_scarce = np.sum(recordings_of_class < count)
    classes = by_scarcity[too_scarce:]
    rows = np.flatnonzero(table[:, classes].any(axis=1))
    if len(rows) == 0:
        reason = f"no label is in {count} recordings, so no class can be eligible"
        return fold, f"optimum proved: {reason}"
    problem = Problem(table[np.ix_(rows, classes)], count, limits)
    size = table[rows].sum(axis=1)
    # The greedy start may be better if it also sees the recordings of the common fold: try both.
    start_of_all = assign_greedily(table, count)[rows]
    start_without = assign_greedily(table[rows], count)
    start = min(start_of_all, start_without, key=problem.cost)
    best, proof = _search_parts(problem, start, size)
    # Make folds equal in size where that costs nothing.
    settled = search_locally(
        problem.holds,
        best,
        count,
        SETTLING,
        problem.weights,
        hinted=False,
        size=size,
    )
    best = min(settled, best, key=problem.cost)
    fold[rows] = number_by_first(best)
    return fold, proof


def number_by_first(fold: IntArray) -> IntArray:
    """Number folds in the order of their first rows, so that equal partitions get equal numbers."""
    _, first, member = np.unique(fold, return_index=True, return_inverse=True)
    new_number = np.argsort(np.argsort(first))  # the rank of each fold by its first row
    return new_number[member]


def _search_parts(
    problem: Problem, fold: IntArray, size: IntArray
) -> tuple[IntArray, str]:
    """Improve the folds of each set of classes that shares no recordings with the other classes.

    `fold` and `size`, the number of segments, are of each recording. Return the folds, which are
    changed in place, and a text on whether better ones can exist.
    """
    least = np.zeros(problem.holds.shape[1], dtype=np.int64)  # range of each class
    filled = np.zeros(problem.count)  # segments in each fold so far
    obstacle = ""
    for classes in _connected(problem.holds):
        part, rows = problem.restrict(classes)
        part_fold, least[classes], part_obstacle = _search(part, fold[rows])
        obstacle = obstacle or part_obstacle
        # A part may number its folds freely: its largest goes to the fold that is least filled.
        part_size = size[rows]
        # The number of segments in each fold of the part.
        segments = np.bincount(part_fold, part_size, problem.count)
        largest_first = np.argsort(-segments, kind="stable")
        emptiest_first = np.argsort(filled, kind="stable")
        rank = np.argsort(largest_first)  # of each fold of the part by size
        fold[rows] = emptiest_first[rank[part_fold]]
        filled[emptiest_first] += segments[largest_first]
    return fold, _describe_proof(problem, fold, least, obstacle)


def _describe_proof(
    problem: Problem, fold: IntArray, least: IntArray, obstacle: str
) -> str:
    """Return a text on whether better folds can exist, and how much better they could be.

    `least` is a lower bound on the range of each class, `obstacle` why the integer program proved
    nothing.
    """
    # Costs are (− number of eligible classes, sum of spreads).
    cost = problem.cost(fold)
    bound = problem.cost_of_ranges(least)
    if cost == bound:
        return "optimum proved: every class is spread as evenly as its recordings allow"
    if not obstacle:
        return "optimum proved by integer programming"
    eligible = -cost[0]
    candidates = -bound[0]
    if eligible == candidates:
        gap = (cost[1] - bound[1]) / len(least)  # mean over classes
        rounded_up = math.ceil(1000 * gap) / 1000
        rest = f"at most {rounded_up:g} above the lower bound"
    else:
        in_enough = f"{candidates} classes that are in {problem.count} recordings"
        rest = f"{eligible} of the {in_enough} are eligible"
    return f"not proved: {obstacle}; best of local search, {rest}"


def _search(problem: Problem, fold: IntArray) -> tuple[IntArray, IntArray, str]:
    """Search for better folds: first locally, then, if the bound is not reached, by milp.

    Return the best folds, a lower bound on the range of each class, and what prevented a proof, or
    an empty text.
    """
    # The range that each class could have if it were alone.
    least = np.array([least_range(held, problem.count) for held in problem.holds.T])
    for number, (proposals, hinted) in enumerate(SEARCHES):
        improved = search_locally(
            problem.holds,
            fold,
            problem.count,
            proposals,
            problem.weights,
            least=least,
            hinted=hinted,
        )
        fold = min(fold, improved, key=problem.cost)
        if number == 0:  # better folds would not raise bounds further
            least = _tighten(problem, fold, least)
        if problem.cost(fold) == problem.cost_of_ranges(least):
            return fold, least, ""
    try:
        fold, obstacle = _solve(problem, fold, least)
    except TimeoutError:  # the solver's result at that time depends on the machine
        seconds = problem.limits["time_limit"]
        obstacle = (
            f"the solver was stopped after {seconds:g} s and its work is not used"
        )
    return fold, least, obstacle


def _tighten(problem: Problem, fold: IntArray, least: IntArray) -> IntArray:
    """Raise lower bounds on the ranges of classes that `fold` does not reach, by milp.

    A raised bound is the least range that the class could have alone. Bounds decide when the search
    ends and what is proved, but not which folds it finds.
    """
    least = least.copy()
    counts = problem.counts(fold)  # (classes, folds)
    is_above_bound = np.ptp(counts, axis=1) > least
    is_ineligible = counts.min(axis=1) == 0
    with suppress(TimeoutError):  # the bounds raised so far are right
        for n in np.flatnonzero(is_above_bound | is_ineligible):
            alone, rows = problem.restrict(np.array([n]))
            best, obstacle = _solve(alone, fold[rows], least[[n]])
            if not obstacle:  # then the optimum is proved
                least[n] = np.ptp(alone.counts(best))
    return least


def _solve(problem: Problem, fold: IntArray, least: IntArray) -> tuple[IntArray, str]:
    """Search by milp for folds with more eligible classes, then with a smaller spread of as many.

    Recordings with equal counts of segments are of one kind: only how many of a kind are in a fold
    matters. Return the best folds, and the limit that prevented a proof, or an empty text. Raise
    TimeoutError at the solver's time limit.
    """
    from scipy.optimize import milp

    count = problem.count
    nodes = problem.limits["node_limit"]
    # Negative, so that recordings with many segments come first.
    negative_kinds, kind, times = np.unique(
        -problem.holds, axis=0, return_inverse=True, return_counts=True
    )
    kinds = -negative_kinds
    places = len(kinds) * count
    if nodes < 1:
        return fold, "the solver was left out"
    if places > MAX_PLACES:
        return fold, f"{len(fold)} recordings are too many for the solver"
    for more_classes in (True, False):
        cost = problem.cost(fold)
        eligible = -cost[0]
        if more_classes and eligible == len(least):  # all of them already
            continue
        model = _build_model(
            kinds, times, count, least, cost, problem.weights, more_classes
        )
        result = milp(**model, options=dict(problem.limits))  # a copy: milp empties it
        if "time limit" in result.message.lower():
            raise TimeoutError
        if result.x is not None:
            # How many recordings of each kind go to each fold.
            placed = np.rint(result.x[:places]).astype(int).reshape(-1, count)
            solution = np.empty_like(fold)
            for number, per_fold in enumerate(placed):
                solution[kind.ravel() == number] = np.repeat(range(count), per_fold)
            fold = min(fold, solution, key=problem.cost)
        if result.status not in (0, NO_SOLUTION):
            return fold, f"the solver did not finish within {nodes} nodes"
    return fold, ""


def _build_model(
    kinds: IntArray,
    times: IntArray,
    count: int,
    least: IntArray,
    cost: Cost,
    weights: Sequence[Fraction],
    more_classes: bool,
) -> dict[str, Any]:
    """Return the arguments of milp: how many recordings of each kind go to each fold?

    `kinds` (kinds, classes) are the segments of a recording of each kind, `times` the number of
    these recordings, `least` a lower bound on the range of each class. A solution must beat `cost`:
    with `more_classes` by more eligible classes, else by a smaller sum of spreads.
    """
    from scipy.optimize import Bounds, LinearConstraint

    total = times @ kinds
    classes = len(least)
    places = len(kinds) * count
    # Each variable is a row of an identity matrix, so that sums of variables are rows of a
    # constraint: places, then for each class the largest and smallest count in a fold, their
    # difference, and whether it is eligible.
    variables = np.eye(places + 4 * classes)
    place = variables[:places]
    high, low, gap, eligible = variables[places:].reshape(4, classes, -1)
    number_eligible = eligible.sum(axis=0)
    spread = np.array(weights, float) @ gap
    if more_classes:
        objective = -number_eligible
        largest_spread = np.inf
    else:
        objective = spread
        # Different spreads differ by at least two steps.
        multiple = math.lcm(*(weight.denominator for weight in weights))
        step = max(Fraction(1, multiple) / 2, RESOLUTION)
        largest_spread = float(cost[1] - step)
    # Folds are interchangeable: the first i recordings may be in the first i folds.
    places_before = np.cumsum(times)[:, None]
    is_allowed = np.arange(count) < places_before
    most = times[:, None] * is_allowed
    upper = np.concatenate(
        [most.ravel(), total, total // count, total, np.ones(classes)]
    )
    placed = np.kron(np.eye(len(kinds)), np.ones(count)) @ place
    load = np.kron(kinds.T, np.eye(count)) @ place
    # Of the class of each load.
    highest = np.repeat(high, count, axis=0)
    lowest = np.repeat(low, count, axis=0)
    other_folds = count - 1
    excess = gap - high + low  # of a gap over the range
    total_if_eligible = total[:, None] * eligible
    least_if_eligible = least[:, None] * eligible
    return {
        "c": objective,
        "integrality": np.ones(len(upper)),
        "bounds": Bounds(0, upper),
        "constraints": [
            # Every recording has one place; a class has from low to high segments in each fold.
            LinearConstraint(placed, times, times),
            LinearConstraint(highest - load, lb=0),
            LinearConstraint(load - lowest, lb=0),
            LinearConstraint(high + other_folds * low, ub=total),
            LinearConstraint(other_folds * high + low, lb=total),
            # The gap of an eligible class is its range; other gaps do not count.
            LinearConstraint(excess - total_if_eligible, lb=-total),
            LinearConstraint(gap - least_if_eligible, lb=0),
            LinearConstraint(low - eligible, lb=0),
            LinearConstraint(number_eligible, lb=more_classes - cost[0]),
            LinearConstraint(spread, ub=largest_spread),
        ],
    }


def _connected(holds: IntArray) -> list[IntArray]:
    """Return the sets of classes that share recordings, directly or through other classes."""
    from scipy.sparse.csgraph import connected_components

    share_recordings = holds.T @ holds  # (classes, classes), not 0 if two classes do
    count, part = connected_components(share_recordings)
    return [np.flatnonzero(part == number) for number in reversed(range(count))]
