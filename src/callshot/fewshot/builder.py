"""Labels and recordings of segments → the fold of each segment, and how good these folds are known to be.

Recordings are never split. The number of eligible classes counts first, then how evenly they are spread. A greedy start
is improved by local search; a lower bound or an integer program then proves the optimum, where the corpus is small enough.
Nothing depends on the order of rows or on a random state, nor on the clock unless the proof says so.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from callshot.errors import InputError, OptionError
from callshot.fewshot.kernels.assign import improve
from callshot.records import COMMON_FOLD, FloatArray, IntArray

# Rounds of local search: proposals per recording, and the share of recordings that is kicked before it.
ROUNDS = ((2_000, 0.0), (6_000, 0.25), (20_000, 0.5))
SETTLING = 1_000
MOST_PROPOSALS = 5_000_000
MOST_PLACES = 300  # distinct recordings × folds; beyond, a node of the integer program takes too long
SLIGHT = Fraction(1, 1_000_000)  # sums of spreads that differ by less are equal to the solver

Merit = tuple[int, Fraction]  # smaller is better: minus the number of eligible classes, the sum of their spreads


@dataclass(frozen=True)
class Balance:
    """How well folds serve: `spread` is the mean over eligible classes of (max − min) / mean of their fold counts."""

    eligible: int
    spread: float


@dataclass(frozen=True)
class Built:
    """The fold of each row (−1 is the common fold); `proof` says whether better folds can exist."""

    fold: IntArray
    balance: Balance
    proved: bool
    proof: str


@dataclass(frozen=True)
class Task:
    """What is spread over `count` folds: segments of each recording in each class (`holds`) and in all (`size`)."""

    holds: IntArray
    size: IntArray
    count: int

    @property
    def total(self) -> IntArray:
        """Return the segments of each class."""
        return self.holds.sum(axis=0)

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


@dataclass(frozen=True)
class Limits:
    """How long the solver may work: branch-and-bound nodes, and seconds as a safety net."""

    nodes: int
    seconds: float


class OutOfTime(Exception):
    """The solver hit the clock; what it had is worth nothing, as another machine would have something else."""


def judge(label: Sequence[str], fold: IntArray, count: int) -> Balance:
    """Count the eligible classes and average their spread; rows of the common fold are ignored.

    >>> judge(["rumble", "rumble", "roar", "rumble", "roar"], np.array([0, 1, 0, 1, -1]), 2)
    Balance(eligible=1, spread=0.6666666666666666)
    """
    if len(label) != len(fold) or not np.isin(fold, range(COMMON_FOLD, count)).all():
        raise InputError(f"fold: wanted a number from -1 to {count - 1} for each of {len(label)} labels, got {fold}")
    kept = fold != COMMON_FOLD
    member = np.eye(len(set(label)), dtype=np.int64)[_codes(label)]
    return _balance(_merit(_add_up(member[kept], fold[kept], count)))


def build_folds(
    label: Sequence[str], recording: Sequence[str], count: int, *, nodes: int = 500, seconds: float = 60.0
) -> Built:
    """Spread the recordings over `count` folds, those with rare labels only into the common fold.

    `nodes` and `seconds` limit each run of the integer program; 0 nodes leave it out.

    >>> build_folds(["rumble", "roar", "rumble", "roar"], ["a", "a", "b", "b"], 2).fold
    array([0, 0, 1, 1])
    """
    if count < 2:
        raise OptionError(f"folds: wanted a count of 2 or more, got {count}")
    if len(label) != len(recording):
        raise InputError(f"recording: wanted one for each of {len(label)} labels, got {len(recording)}")
    row = _codes(recording)
    table = np.zeros((len(set(recording)), len(set(label))), dtype=np.int64)
    np.add.at(table, (row, _codes(label)), 1)
    fold, proved, proof = _assign(table, count, Limits(nodes, seconds))
    return Built(fold[row], judge(label, fold[row], count), proved, proof)


def _assign(table: IntArray, count: int, limits: Limits) -> tuple[IntArray, bool, str]:
    """Return the fold of each recording, whether it is proved the best, and how."""
    fold = np.full(len(table), COMMON_FOLD)
    often = np.count_nonzero(table, axis=0) >= count
    spread = table[:, often].any(axis=1)
    if not spread.any():
        return fold, True, f"optimum proved: no label is in {count} recordings, so no class can be eligible"
    task = Task(table[np.ix_(spread, often)], table[spread].sum(axis=1), count)
    # scikit-learn over all rows can have more luck than over the spread ones, so both are starts.
    starts = [_greedy(table, count)[spread], _greedy(table[spread], count)]
    found, proved, proof = _search(task, min(starts, key=task.merit), limits)
    fold[spread] = _number(_walk(task, found, SETTLING, 0.0, settle=True))
    return fold, proved, proof


def _search(task: Task, fold: IntArray, limits: Limits) -> tuple[IntArray, bool, str]:
    """Improve folds until a bound is met or the work is done, then ask the solver."""
    least = np.array([_least_range(task.holds[:, c], task.count) for c in range(task.holds.shape[1])])
    try:
        for proposals, kicked in ROUNDS:
            fold = min(fold, _walk(task, fold, proposals, kicked, least=least), key=task.merit)
            least = _tighten(task, fold, least, limits)
            if task.merit(fold) == _ideal(task, least):
                return fold, True, "optimum proved: every class is spread as evenly as its recordings allow"
        better, limit = _solve_parts(task, fold, least, limits)
    except OutOfTime:
        better, limit = fold, f"the solver was stopped after {limits.seconds:g} s and its results are left out"
    if not limit:
        return better, True, "optimum proved by integer programming"
    return better, False, f"not proved: {limit}; best of local search, {_distance(task, better, least)}"
