"""(labels, recordings) → folds, and their bookkeeping: who is eligible, how far each class is complete.

A split is a fold of queries against every other fold and the common fold. `audit` proves that no recording is on both
sides of one; nothing is evaluated before it has.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from callshot.errors import InputError, LeakError, OptionError
from callshot.fewshot.fold_optimizer import build_folds
from callshot.records import COMMON_FOLD, ClassCount, Folds, IntArray

DEFAULT_FOLDS = 5  # the paper's, for Elephant Voices


def audit(recording: Sequence[str], fold: IntArray) -> None:
    """Refuse folds in which a recording is on both sides of a split: in two folds, or in one and the common fold.

    >>> audit(["a", "a", "b"], np.array([0, 1, 1]))
    Traceback (most recent call last):
    callshot.errors.LeakError: recording 'a' is in folds 0 and 1; put all its segments in one fold (1 recording leaks)
    """
    names, inverse = np.unique(np.asarray(recording, dtype=object).astype(str), return_inverse=True)
    low, high = (
        np.full(len(names), np.iinfo(np.int64).max),
        np.full(len(names), np.iinfo(np.int64).min),
    )
    np.minimum.at(low, inverse, fold)
    np.maximum.at(high, inverse, fold)
    leaks = np.flatnonzero(low != high)
    if leaks.size:
        first = leaks[0]
        where = (
            f"the common fold and fold {high[first]}"
            if low[first] < 0
            else f"folds {low[first]} and {high[first]}"
        )
        count = f"{leaks.size} recording{'s leak' if leaks.size > 1 else ' leaks'}"
        raise LeakError(
            f"recording '{names[first]}' is in {where}; put all its segments in one fold ({count})"
        )


def check_folds(recording: Sequence[str], fold: IntArray) -> Folds:
    """Take folds as they are given, after checking their numbers and auditing them."""
    numbers = np.unique(fold[fold != COMMON_FOLD])
    if numbers.size < 2 or not np.array_equal(numbers, np.arange(numbers.size)):
        found = ", ".join(map(str, numbers[:12])) or "none"
        raise InputError(
            f"folds must be numbered 0, 1, … without a gap, two at least (−1: common fold); found {found}"
        )
    audit(recording, fold)
    return Folds(fold, numbers.size, "given", "folds as given")


def make_folds(label: Sequence[str], recording: Sequence[str], count: int = 5) -> Folds:
    """Build folds that make as many classes eligible as can be, then spread each as evenly as can be.

    >>> folds = make_folds(["rumble", "roar"] * 4, ["a", "a", "b", "b", "c", "c", "d", "d"], count=2)
    >>> folds.count, folds.proof[:14]
    (2, 'optimum proved')
    """
    if count < 2:
        raise OptionError(f"folds: two at least, got {count}")
    built = build_folds(label, recording, count)
    audit(recording, built.fold)
    return Folds(built.fold, count, "built", built.proof)


def count_classes(
    label: Sequence[str], folds: Folds, recording: Sequence[str] | None = None
) -> list[ClassCount]:
    """Count every class, most exemplars first, and say which are eligible, and why the others are not.

    With the recordings, the reason can say when a class has too few of them for the folds.

    >>> counts = count_classes(["a", "a", "b"], Folds(np.array([0, 1, 1]), 2, "given"))
    >>> [(c.label, c.exemplars, c.complete_to_k, c.eligible) for c in counts]
    [('a', 2, 1, True), ('b', 1, 0, False)]
    """
    names = sorted(set(label))
    number = {name: n for n, name in enumerate(names)}
    inverse = np.array(
        [number[name] for name in label], np.int64
    )  # np.unique on text drops a NUL at its end
    table = np.zeros((len(names), folds.count + 1), np.int64)
    np.add.at(table, (inverse, folds.fold + 1), 1)  # column 0 is the common fold
    carriers = _carriers(inverse, recording)
    rows = [
        _count_class(name, row[1:], int(row[0]), carriers.get(n))
        for n, (name, row) in enumerate(zip(names, table, strict=True))
    ]
    return sorted(rows, key=lambda c: (-c.exemplars, c.label))


def _carriers(inverse: IntArray, recording: Sequence[str] | None) -> dict[int, int]:
    """Return how many recordings carry each class, where recordings are known."""
    pairs = set(zip(inverse.tolist(), recording, strict=True)) if recording is not None else set()
    return dict(Counter(n for n, _ in pairs))


def _count_class(label: str, per_fold: IntArray, common: int, carriers: int | None) -> ClassCount:
    empty = np.flatnonzero(per_fold == 0)
    exemplars = int(per_fold.sum()) + common
    reason = ""
    if empty.size and carriers is not None and carriers < per_fold.size:
        reason = f"in {carriers} recording{'s' * (carriers != 1)}, and {per_fold.size} folds need {per_fold.size}"
    elif empty.size == per_fold.size:
        reason = "only in the common fold"
    elif empty.size:
        reason = f"no exemplar in fold{'s' * (empty.size > 1)} {', '.join(map(str, empty))}"
    complete = exemplars - int(per_fold.max())
    return ClassCount(
        label, exemplars, complete, not empty.size, reason, tuple(int(x) for x in per_fold)
    )


def evaluated_classes(counts: Sequence[ClassCount]) -> tuple[str, ...]:
    """Return the eligible classes by name; refuse fewer than two.

    >>> evaluated_classes([ClassCount("roar", 5, 4, True), ClassCount("bark", 3, 2, True)])
    ('bark', 'roar')
    """
    classes = tuple(sorted(c.label for c in counts if c.eligible))
    if len(classes) >= 2:
        return classes
    found = f"only one eligible class, '{classes[0]}'" if classes else "no eligible class"
    if len(counts) < 2:
        raise InputError(f"{found}: it is the only label; two call types at least are needed")
    why = "; ".join(f"'{c.label}': {c.reason}" for c in counts if not c.eligible)[:400]
    wanted = "two at least are needed, each with an exemplar in every fold"
    raise InputError(
        f"{found}: {wanted} ({why}); use fewer folds (--folds) or label more recordings"
    )


def complete_shots(counts: Sequence[ClassCount]) -> int:
    """Return k*, the largest k at which every eligible class is still complete; 0 without one."""
    return min((c.complete_to_k for c in counts if c.eligible), default=0)


def new_exemplars(counts: Sequence[ClassCount], k: int) -> int:
    """Return how many eligible classes still have a k-th exemplar to give in every split."""
    return sum(c.eligible and c.complete_to_k >= k for c in counts)
