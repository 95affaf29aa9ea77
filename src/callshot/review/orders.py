"""Items → the order in which they are shown, and which of them."""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callshot.errors import RequestError, suggest_name
from callshot.records import FloatArray, IntArray
from callshot.review.decisions import DECIDED, SKIPPED, UNDECIDED, Decisions
from callshot.review.items import Items

ORDERS = {
    "best": "best first",
    "uncertain": "most uncertain first",
    "novel": "far from every class first",
    "sample": "random sample of every class and score",
    "time": "by recording and time",
}
NEED_SCORES = ("best", "uncertain", "novel")
STATES = ("undecided", "decided", "skipped", "conflict", "all")
SCORE_BINS = 4  # of equal size, in each class


@dataclass(frozen=True)
class QueueFilter:
    """Which items are shown; None means all. Hours may pass midnight, as from 22 to 4."""

    state: str = "undecided"
    label: str | None = None
    min_score: float | None = None
    max_score: float | None = None
    recording: str | None = None
    from_hour: float | None = None
    to_hour: float | None = None
    reviewer: str | None = None

    def __post_init__(self) -> None:
        if self.state not in STATES:
            raise RequestError(
                f"state: {self.state}: {suggest_name(self.state, STATES)}"
            )


@dataclass(frozen=True)
class Sample:
    """A random order, stratified by class and score: any beginning of it is a fair sample.

    order     all items
    by_class  those of each class, by the number of its label
    """

    order: IntArray
    by_class: Mapping[int, IntArray]


def draw_sample(items: Items, seed: int) -> Sample:
    """Return the random order of the items of the source; the same for the same seed.

    Each class is cut into bins of equal size by score. The order takes an item of each bin at
    random, then another of each, and so on; classes take turns.
    """
    # The raw output of Philox is the same in all versions of NumPy.
    count = items.original_count
    keys = np.random.Philox(key=seed).random_raw(2 * count).reshape(2, count)
    label = items.label[:count]
    score = np.nan_to_num(items.score[:count], nan=0.0)
    by_class = {}
    turns = np.zeros(count, np.int64)
    for number in np.unique(label).tolist():
        members = np.flatnonzero(label == number)
        ordered = _order_class(members, score[members], keys[:, members])
        by_class[number] = ordered
        turns[ordered] = np.arange(len(ordered))
    order = np.lexsort((keys[0], turns))
    return Sample(order, by_class)


def _order_class(
    members: IntArray, score: FloatArray, keys: NDArray[np.uint64]
) -> IntArray:
    """Return the items of a class, one of each bin of scores after the other."""
    count = len(members)
    rank = np.empty(count, np.int64)
    rank[np.argsort(score, kind="stable")] = np.arange(count)
    bins = rank * SCORE_BINS // max(count, 1)
    turn = np.empty(count, np.int64)
    for number in range(SCORE_BINS):
        inside = np.flatnonzero(bins == number)
        turn[inside[np.argsort(keys[0, inside], kind="stable")]] = np.arange(
            len(inside)
        )
    return members[np.lexsort((keys[1], turn))]


def order_items(
    name: str, items: Items, thresholds: FloatArray, sample: Sample
) -> IntArray:
    """Return all items in one of ORDERS; parts of split items follow each other."""
    if name == "sample":
        parts = np.arange(items.original_count, len(items))
        return np.concatenate([sample.order, parts])
    if name == "time":
        return np.lexsort((items.start_s, items.recording))
    if name == "best":
        value = -items.score
    elif name == "uncertain":
        value = measure_uncertainty(items, thresholds)
    elif name == "novel":
        value = -items.distance
    else:
        raise RequestError(f"order: {name}: {suggest_name(name, ORDERS)}")
    return np.argsort(np.nan_to_num(value, nan=np.inf), kind="stable")


def measure_uncertainty(items: Items, thresholds: FloatArray) -> FloatArray:
    """Return how far each item is from being no call, or a call of another class."""
    by_label = np.append(thresholds, np.full(len(items.labels) + 1, np.nan))
    threshold = by_label[items.label]
    from_threshold = np.abs(items.score - threshold)
    from_other = np.abs(items.score - items.runner_up_score)
    return np.asarray(np.fmin(from_threshold, from_other))


def select_items(
    filters: QueueFilter, items: Items, decisions: Decisions, reviewer: str
) -> NDArray[np.bool_]:
    """Return which items a filter shows to a reviewer."""
    keep = items.is_active & _has_state(filters.state, decisions, reviewer)
    if filters.label is not None:
        keep &= items.label == _find(filters.label, items.labels)
    if filters.recording is not None:
        keep &= items.recording == _find(filters.recording, items.recordings)
    if filters.reviewer is not None:
        keep &= decisions.status(filters.reviewer) != UNDECIDED
    return keep & _has_score_and_hour(filters, items)


def _has_score_and_hour(filters: QueueFilter, items: Items) -> NDArray[np.bool_]:
    keep = np.ones(len(items), bool)
    if filters.min_score is not None:
        keep &= items.score >= filters.min_score
    if filters.max_score is not None:
        keep &= items.score <= filters.max_score
    if filters.from_hour is not None or filters.to_hour is not None:
        keep &= _in_hours(items.hour, filters.from_hour or 0.0, filters.to_hour)
    return keep


def _has_state(state: str, decisions: Decisions, reviewer: str) -> NDArray[np.bool_]:
    status = decisions.status(reviewer)
    if state == "undecided":
        return np.asarray(status == UNDECIDED)
    if state == "decided":
        return np.asarray(status == DECIDED)
    if state == "skipped":
        return np.asarray(status == SKIPPED)
    keep = np.ones(len(status), bool)
    if state == "conflict":
        keep[:] = False
        keep[sorted(decisions.conflicts)] = True
    return keep


def _find(name: str, names: list[str]) -> int:
    return names.index(name) if name in names else -2


def _in_hours(hour: FloatArray, start: float, end: float | None) -> NDArray[np.bool_]:
    end = 24.0 if end is None else end
    if start <= end:
        return (hour >= start) & (hour < end)
    return (hour >= start) | (hour < end)
