"""Labels and recordings → folds, which classes are eligible, and how far each is complete.

A split is a fold of queries against every other fold and the common fold.
"""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from callshot.errors import (
    InputError,
    LeakError,
    OptionError,
    check_range,
    count_text,
)
from callshot.records import COMMON_FOLD, ClassCount, Folds, IntArray
from callshot.spans import Spans, given_folds
from callshot.vectors import Vectors

DEFAULT_FOLDS = 5  # the paper's, for Elephant Voices


def check_no_leak(recording: Sequence[str], fold: IntArray) -> None:
    """Check that all segments of a recording are in the same fold, which may be the common fold.

    >>> check_no_leak(["a", "a", "b"], np.array([0, 1, 1]))  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    callshot.errors.LeakError: recording 'a' is in folds 0 and 1; put all its segments...
    """
    pairs = set(zip(recording, fold.tolist(), strict=True))
    folds = Counter(name for name, _ in pairs)  # how many each recording is in
    leaks = sorted(name for name, count in folds.items() if count > 1)
    if not leaks:
        return
    low, *_, high = sorted(number for name, number in pairs if name == leaks[0])
    place = f"folds {low} and {high}"
    if low == COMMON_FOLD:
        place = f"the common fold and fold {high}"
    raise LeakError(
        f"recording '{leaks[0]}' is in {place}; put all its segments in one fold "
        f"({count_text(len(leaks), 'recording')} in two folds or more)"
    )


def check_folds(recording: Sequence[str], fold: IntArray) -> Folds:
    """Return given folds, after checking their numbers and that nothing leaks.

    Parameters
    ----------
    recording : sequence of str
        The recording of each segment.
    fold : array of int
        The fold of each segment, any integers; −1 is the common fold.

    Returns
    -------
    Folds
        Numbered 0, 1, … in the order of the given numbers.

    Raises
    ------
    InputError
        If there are fewer than two.
    LeakError
        If a recording is in two folds.

    Examples
    --------
    >>> check_folds(["a", "a", "b", "c"], np.array([1, 1, 5, -1])).fold.tolist()
    [0, 0, 1, -1]
    """
    is_common = fold == COMMON_FOLD
    numbers = np.unique(fold[~is_common])
    if numbers.size < 2:
        listed = f"only {numbers[0]}" if numbers.size else "none"
        raise InputError(
            f"expected two folds or more beside the common fold ({COMMON_FOLD} or empty), "
            f"got {listed}"
        )
    check_no_leak(recording, fold)
    # From any numbers to 0, 1, …
    dense = np.where(is_common, COMMON_FOLD, np.searchsorted(numbers, fold))
    return Folds(dense, numbers.size, "given", "folds as given")


def make_folds(
    label: Sequence[str], recording: Sequence[str], count: int = DEFAULT_FOLDS
) -> Folds:
    """Build folds that make most classes eligible, then spread each as evenly as possible.

    Parameters
    ----------
    label, recording : sequence of str
        The label and the recording of each segment. No recording is split.
    count : int
        The number of folds.

    Returns
    -------
    Folds
        Recordings whose labels are all rare are in the common fold, −1. `proof` says whether better
        folds can exist.

    Raises
    ------
    OptionError
        If `count` is below 2.

    Examples
    --------
    >>> folds = make_folds(["rumble", "roar"] * 4, list("aabbccdd"), count=2)
    >>> folds.count, folds.proof[:14]
    (2, 'optimum proved')
    """
    check_range("folds", count, 2)
    if len(label) != len(recording):
        raise InputError(
            f"recording: expected one for each of {len(label)} labels, got {len(recording)}"
        )
    from callshot.fewshot.fold_optimizer import build_folds  # numba takes long to load

    folds = build_folds(label, recording, count)
    check_no_leak(recording, folds.fold)
    return folds


def choose_folds(
    segments: Spans,
    count: int | None = None,
    fold: IntArray | None = None,
    source: object = None,
    *,
    default: int = DEFAULT_FOLDS,
) -> Folds:
    """Return the folds of a table of segments: given ones, checked, or newly built ones.

    Given are `fold`, read from the file `source`, or else the column fold of the table; they must
    have `count` folds, if that is given. Otherwise `count` or `default` folds are built.
    """
    if fold is None:
        fold = given_folds(segments)
    if fold is None:
        built = default if count is None else count
        return make_folds(segments["label"], segments["recording"], built)
    column = f"{segments.source if source is None else source}: column fold"
    try:
        folds = check_folds(segments["recording"], fold)
    except InputError as error:  # the same error, with the file and column
        raise type(error)(f"{column}: {error}") from None
    if count not in (None, folds.count):
        raise OptionError(
            f"folds: {column} has {folds.count} folds, but folds is {count}; remove folds, or the "
            "column"
        )
    return folds


def count_classes(
    label: Sequence[str], folds: Folds, recording: Sequence[str] | None = None
) -> list[ClassCount]:
    """Count the exemplars of every class, largest class first, and decide which are eligible.

    >>> counts = count_classes(["a", "a", "b"], Folds(np.array([0, 1, 1]), 2, "given"))
    >>> [(c.label, c.exemplars, c.complete_to_k, c.eligible) for c in counts]
    [('a', 2, 1, True), ('b', 1, 0, False)]
    """
    exemplars = Counter(zip(label, folds.fold.tolist(), strict=True))
    recordings: Counter[str] = Counter()
    if recording is not None:
        recordings.update(name for name, _ in set(zip(label, recording, strict=True)))
    counts = []
    for name in set(label):
        per_fold = [exemplars[name, number] for number in range(folds.count)]
        common = exemplars[name, COMMON_FOLD]
        total = sum(per_fold) + common
        # The fold with most of the class has the smallest pool.
        complete = common if folds.only_common else total - max(per_fold)
        reason = _why_not_eligible(per_fold, common, recordings.get(name), folds)
        count = ClassCount(
            label=name,
            exemplars=total,
            complete_to_k=complete,
            eligible=not reason,
            reason=reason,
            per_fold=tuple(per_fold),
        )
        counts.append(count)
    return sorted(counts, key=lambda c: (-c.exemplars, c.label))


def _why_not_eligible(
    per_fold: list[int], common: int, recordings: int | None, folds: Folds
) -> str:
    """Return why a class with these exemplars by fold cannot be evaluated, or an empty text.

    `common` are its exemplars in the common fold, `recordings` the number of its recordings, None
    if not known.
    """
    empty = [str(number) for number, count in enumerate(per_fold) if count == 0]
    if folds.only_common and common == 0:
        return "no example"
    if not empty:
        return ""
    if folds.only_common:
        return "no query in some folds"
    if recordings is not None and recordings < folds.count:
        found = count_text(recordings, "recording")
        return f"in {found}, and {folds.count} folds need {folds.count}"
    if len(empty) == folds.count:
        return "only in the common fold"
    return f"no exemplar in {'fold' if len(empty) == 1 else 'folds'} {', '.join(empty)}"


def evaluated_classes(counts: Sequence[ClassCount]) -> tuple[str, ...]:
    """Return the sorted names of the eligible classes, of which at least two are needed.

    >>> evaluated_classes([ClassCount("roar", 5, 4, True), ClassCount("bark", 3, 2, True)])
    ('bark', 'roar')
    """
    classes = tuple(sorted(c.label for c in counts if c.eligible))
    if len(classes) >= 2:
        return classes
    eligible = "no eligible class"
    if classes:
        eligible = f"only one eligible class, '{classes[0]}'"
    if len(counts) < 2:
        raise InputError(
            f"{eligible}: it is the only label; at least two call types are needed"
        )
    reasons = "; ".join(f"'{c.label}': {c.reason}" for c in counts if not c.eligible)
    raise InputError(
        f"{eligible}: at least two are needed, each with an exemplar in every fold "
        f"({reasons[:400]}); use fewer folds (--folds) or label more recordings"
    )


def complete_shots(counts: Sequence[ClassCount]) -> int:
    """Return k*, the largest k at which every eligible class is complete; 0 without one."""
    return min((c.complete_to_k for c in counts if c.eligible), default=0)


def new_exemplars(counts: Sequence[ClassCount], k: int) -> int:
    """Return how many eligible classes can give k exemplars in every split."""
    return sum(c.eligible and c.complete_to_k >= k for c in counts)


def check_tables(tables: Sequence[Vectors], folds: Folds | None) -> Folds:
    """Check that tables agree and are finite; return their folds, given or chosen."""
    if not tables:
        raise InputError("no table of embeddings was given")
    first = tables[0]
    for table in tables:
        if len(set(table.segment)) != len(table):
            raise InputError(
                f"{table.source}: column segment: two segments have the same id"
            )
        for name in ("segment", "recording", "label"):
            if getattr(table, name) != getattr(first, name):
                raise InputError(
                    f"{table.source}: column {name}: expected the same as in {first.source}; "
                    "all tables need the same segments in the same order"
                )
        is_finite = np.isfinite(table.matrix).all(axis=1)
        if not is_finite.all():
            row = int(np.argmin(is_finite)) + 1
            raise InputError(
                f"{table.source}: column embedding, row {row}: expected finite numbers"
            )
    names = [table.encoder for table in tables]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"two tables have the encoder name {name!r}; rename one")
    folds = folds or choose_folds(first.spans)
    if len(folds.fold) != len(first):
        raise InputError(
            f"{first.source}: {len(folds.fold)} folds were given for {len(first)} segments"
        )
    check_no_leak(first.recording, folds.fold)
    return folds
