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
    least = np.array([_least_range(held, task.count) for held in task.holds.T])
    for proposals, kicked in ROUNDS:
        fold = min(fold, _walk(task, fold, proposals, kicked, least), key=task.merit)
        if kicked == 0 and task.merit(fold) != _ideal(task, least):
            least = _tighten(task, fold, least, limits)
        if task.merit(fold) == _ideal(task, least):
            return fold, True, "optimum proved: every class is spread as evenly as its recordings allow"
    fold, limit = _solve_parts(task, fold, least, limits)
    if not limit:
        return fold, True, "optimum proved by integer programming"
    return fold, False, f"not proved: {limit}; best of local search, {_distance(task, fold, least)}"


def _greedy(table: IntArray, count: int) -> IntArray:
    """Give each recording, the most uneven first, to the fold where it leaves the classes the most even.

    This is the rule of scikit-learn's StratifiedGroupKFold, to the last bit of its comparisons.
    """
    held = table[:, table.any(axis=0)].astype(np.float64)
    total, counts, fold = held.sum(axis=0), np.zeros((count, held.shape[1])), np.zeros(len(held), dtype=np.int64)
    for r in np.argsort(-np.std(held, axis=1), kind="stable"):
        there = counts + np.eye(count)[:, :, None] * held[r]
        fold[r] = _choose(np.std(there / total, axis=1).mean(axis=1), counts.sum(axis=1))
        counts[fold[r]] += held[r]
    return fold


def _choose(uneven: FloatArray, size: FloatArray) -> int:
    """Return the fold that is least uneven, the smaller of two that are close."""
    best = 0
    for f in range(1, len(size)):
        close = abs(uneven[f] - uneven[best]) <= 1e-8 + 1e-5 * abs(uneven[best])
        if uneven[f] < uneven[best] or (close and size[f] < size[best]):
            best = f
    return best


def _walk(
    task: Task, fold: IntArray, proposals: int, kicked: float, least: IntArray | None = None, *, settle: bool = False
) -> IntArray:
    """Return the best folds met on a walk of so many proposals per recording."""
    recordings, classes = task.holds.shape
    holds = np.pad(np.column_stack([task.holds, task.size]), ((0, 1), (0, 0)))
    work = min(proposals * recordings, MOST_PROPOSALS)
    scale = 2**61 // (task.count * classes * (classes + 2))  # energies are integers and must fit into 64 bits
    penalty, weight = scale * task.count * classes, scale * task.count // task.total
    target = -1 if least is None else int(weight @ least)
    counts, best, history = _add_up(holds[:-1], fold, task.count), fold.copy(), np.zeros(work // 400 + 1, dtype=np.int64)
    kicks = int(kicked * recordings)
    hint = penalty // task.count
    improve(holds, counts, weight, fold.copy(), best, history, penalty, hint, target, proposals, kicks, work, settle)
    return best


def _least_range(held: IntArray, count: int) -> int:
    """Return a range (max − min of the fold counts) that no spread of these holdings can fall below."""
    held = np.sort(held[held > 0])[::-1]
    rest = held.sum() - np.concatenate([[0], np.cumsum(held)])
    # The j largest recordings are in j folds at most, so the other folds share the rest.
    low = min(rest[j] // (count - j) for j in range(count))
    # Of i·count + 1 recordings, some fold has i + 1.
    piles = [held[i * count - i : i * count + 1].sum() for i in range(1 + (len(held) - 1) // count)]
    return int(max(-(-rest[0] // count), *piles) - low)


def _tighten(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> IntArray:
    """Replace the bound of each class that is not met by the best that the class can have on its own.

    Only the time and the proof depend on these bounds, never the folds.
    """
    least = least.copy()
    counts = task.counts(fold)
    for c in np.flatnonzero((np.ptp(counts, axis=1) > least) | (counts.min(axis=1) == 0)):
        alone, rows = task.part(np.array([c]))
        best, limit = _solve(alone, fold[rows], least[[c]], limits)
        if not limit:
            least[c] = np.ptp(alone.counts(best))
    return least


def _solve_parts(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> tuple[IntArray, str]:
    """Solve each set of classes that share no recording with the others; name the limit that was hit, if any."""
    from scipy.sparse.csgraph import connected_components

    better, limit = fold.copy(), ""
    number, member = connected_components(task.holds.T @ task.holds)
    for classes in (np.flatnonzero(member == p) for p in range(number)):
        part, rows = task.part(classes)
        if part.merit(fold[rows]) != _ideal(part, least[classes]):
            better[rows], hit = _solve(part, fold[rows], least[classes], limits)
            limit = limit or hit
    return better, limit


def _solve(task: Task, fold: IntArray, least: IntArray, limits: Limits) -> tuple[IntArray, str]:
    """Return the best folds; or the best known, and the limit that was hit."""
    for more in (True, False):
        if more and -task.merit(fold)[0] == task.holds.shape[1]:
            continue
        found, limit = _program(task, fold, least, more, limits)
        fold = fold if found is None else min(fold, found, key=task.merit)
        if limit:
            return fold, limit
    return fold, ""


def _program(
    task: Task, fold: IntArray, least: IntArray, more: bool, limits: Limits
) -> tuple[IntArray | None, str]:
    """Look for folds with more eligible classes, or else for a smaller spread of as many.

    Columns: how many of each kind of recording go to each fold; then the highest and lowest count, the range
    and the eligibility of each class.
    """
    from scipy.optimize import Bounds, LinearConstraint, milp

    kinds, kind, times = np.unique(task.holds, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(-(kinds / task.total).sum(axis=1), kind="stable")
    kinds, times, kind = kinds[order], times[order], np.argsort(order)[kind.ravel()]
    classes, count, places = len(least), task.count, len(kinds) * task.count
    if places > MOST_PLACES or limits.nodes == 0:
        return None, f"{len(fold)} recordings are too many for the solver"
    total, weight = task.total, task.count / task.total
    eligible, spread = task.merit(fold)
    one, none = np.eye(classes), np.zeros((classes, classes))
    load, each = np.kron(kinds.T, np.eye(count)), np.kron(one, np.ones((count, 1)))
    nil = np.zeros((classes * count, classes))
    blank = np.zeros((classes, places))
    step = max(Fraction(count, math.lcm(*total.tolist())) / 2, SLIGHT)
    rules = [
        LinearConstraint(np.hstack([np.kron(np.eye(len(kinds)), np.ones((1, count))), np.zeros((len(kinds), 4 * classes))]), times, times),
        LinearConstraint(np.hstack([load, -each, nil, nil, nil]), ub=0),
        LinearConstraint(np.hstack([load, nil, -each, nil, nil]), lb=0),
        LinearConstraint(np.hstack([blank, one, -one, -one, np.diag(total)]), ub=total),
        LinearConstraint(np.hstack([blank, none, one, none, -one]), lb=0),
        LinearConstraint(np.hstack([blank, none, none, one, -np.diag(least)]), lb=0),
        LinearConstraint(np.hstack([blank, one, (count - 1) * one, none, none]), ub=total),
        LinearConstraint(np.hstack([blank, (count - 1) * one, one, none, none]), lb=total),
    ]
    zero = np.zeros(places + 2 * classes)
    sum_eligible = np.concatenate([zero, np.zeros(classes), np.ones(classes)])
    sum_spread = np.concatenate([zero, weight, np.zeros(classes)])
    rules.append(LinearConstraint(sum_eligible, lb=-eligible + more))
    if not more:
        rules.append(LinearConstraint(sum_spread, ub=float(spread - step)))
    # Folds are interchangeable: the first i recordings may as well lie in the first i folds.
    most = times[:, None] * (np.arange(count) < np.cumsum(times)[:, None])
    upper = np.concatenate([most.ravel(), total, total // count, total, np.ones(classes)])
    lower = np.concatenate([np.zeros(places), -(-total // count), np.zeros(3 * classes)])
    answer = milp(
        -sum_eligible if more else sum_spread,
        integrality=np.ones(len(upper)),
        bounds=Bounds(lower, upper),
        constraints=rules,
        options={"node_limit": limits.nodes, "time_limit": limits.seconds, "mip_rel_gap": 0.0},
    )
    if answer.status == 1:
        return None, f"the solver ran into its {limits.seconds:g} s and what it had is left out"
    limit = "" if answer.status in (0, 2) else f"the solver stopped at its limit of {limits.nodes} nodes"
    if answer.x is None:
        return None, limit
    where = np.rint(answer.x[:places]).astype(int).reshape(len(kinds), count)
    found = np.zeros(len(fold), dtype=np.int64)
    for k in range(len(kinds)):
        found[kind == k] = np.repeat(np.arange(count), where[k])
    return found, limit


def _distance(task: Task, fold: IntArray, least: IntArray) -> str:
    """Say how far from the best these folds can be."""
    eligible, spread = task.merit(fold)
    if -eligible < len(least):
        return f"{-eligible} of the {len(least)} classes that are in {task.count} recordings are eligible"
    excess = (spread - _ideal(task, least)[1]) / len(least)
    return f"at most {math.ceil(1000 * excess) / 1000:g} above the lower bound"


def _ideal(task: Task, least: IntArray) -> Merit:
    """Return the merit that no folds can surpass."""
    return -len(least), sum(map(Fraction, (task.count * least).tolist(), task.total.tolist()), Fraction(0))


def _merit(counts: IntArray) -> Merit:
    """Rate (classes, folds) counts, exactly."""
    held = counts[counts.min(axis=1, initial=1) > 0]
    ranges = (np.ptp(held, axis=1) * held.shape[1]).tolist()
    return -len(held), sum(map(Fraction, ranges, held.sum(axis=1).tolist()), Fraction(0))


def _balance(merit: Merit) -> Balance:
    """Return the merit in the user's terms."""
    eligible, spread = -merit[0], merit[1]
    return Balance(eligible, float(spread / eligible) if eligible else 0.0)


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
    """Number the folds by their first recording, so that equal partitions have equal numbers."""
    _, first, member = np.unique(fold, return_index=True, return_inverse=True)
    return np.argsort(np.argsort(first))[member]
