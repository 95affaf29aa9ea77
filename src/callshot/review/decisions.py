"""Rows of a journal → what is in effect: decisions of each reviewer, parts of items, conflicts.

A decision is what all rows of one reviewer on one item amount to, with these keys:

seq, time        of the latest row
action           one of ACTIONS, or "settle" for a conflict that was settled
label            of a verdict: what the item is, None for none of the labels
start_s, end_s   the span that the reviewer gave it, None where it was not changed
reviewer         whose it is

Undo takes back the reviewer's latest batch that is in effect, redo brings back what the latest undo
took. What a page asks for is checked here too: `check_decision` and others return the row of the
journal.
"""

import math
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError, RequestError
from callshot.files import error_reason
from callshot.review.items import split_item
from callshot.review.journal import Entry, Row
from callshot.spans import Spans

CONFIRM = "confirm"
REJECT = "reject"
RELABEL = "relabel"
SKIP = "skip"
SPAN = "span"
SPLIT = "split"
SETTLE = "settle"
ACTIONS = (CONFIRM, REJECT, RELABEL, SKIP, SPAN, SPLIT)
VERDICTS = (CONFIRM, REJECT, RELABEL)
UNDO = "undo"
REDO = "redo"
LABEL = "label"
UNDECIDED, DECIDED, SKIPPED = range(3)
ROUNDING_S = 1e-3
MAX_NUMBER = 1e300  # JSON has whole numbers that are no float
MAX_UNDO = 10_000
SAME = ("item", "verdict", "new_start_s", "new_end_s", "at_s", "count")

Decision = dict[str, Any]
Batch = list[Entry]
Body = Mapping[str, Any]


class Decisions:
    """What is in effect after some rows of a journal; `apply` adds a row.

    items         those of the source, then parts of items that were split
    source_count  number of items of the source
    gone          parts of splits that were undone
    labels        of the source in alphabetical order, then those that were added
    status        for each reviewer, whether each item is undecided, decided or skipped
    verdicts      on which all who decided agree, by item
    conflicts     items on which reviewers disagree
    changes       the items that each row changed, by its number
    """

    def __init__(self, items: Spans) -> None:
        self.items = items
        self.source_count = len(items)
        self.labels = sorted({*items["label"], *items["runner_up"]} - {None})
        self.seq = 0
        self.gone: set[int] = set()
        self.status: dict[str, NDArray[np.int8]] = {}
        self.verdicts: dict[int, Decision] = {}
        self.conflicts: set[int] = set()
        self.changes: list[tuple[int, set[int]]] = []
        self._parts: dict[str, tuple[int, int]] = {}  # of each split, by uuid
        self._rows: dict[int, list[Entry]] = defaultdict(list)
        self._batches: dict[str, list[Batch]] = defaultdict(list)
        self._undone: dict[str, list[list[Batch]]] = defaultdict(list)

    @property
    def reviewers(self) -> list[str]:
        """All who decided anything, in alphabetical order."""
        return sorted(self.status)

    @property
    def is_active(self) -> NDArray[np.bool_]:
        """Which items there are: no parts of a split that was undone."""
        is_active = np.ones(len(self.items), bool)
        is_active[list(self.gone)] = False
        return is_active

    @property
    def touched(self) -> list[int]:
        """All items with a row in effect, in order; no parts of a split that was undone."""
        return sorted({item for item, rows in self._rows.items() if rows} - self.gone)

    def apply_all(self, entries: Iterable[Entry], path: Path) -> None:
        """Add the rows of a file; raise InputError if one of them makes no sense."""
        for entry in entries:
            try:
                self.apply(entry)
            except (LookupError, TypeError, ValueError) as error:
                raise InputError(
                    f"{path}: row {entry.seq}: expected a decision on an item "
                    f"({error_reason(error)})"
                ) from None

    def apply(self, entry: Entry) -> set[int]:
        """Add a row; return the items that it changed."""
        touched: set[int] = set()
        if entry.action == LABEL:
            if entry.body["label"] not in self.labels:
                self.labels.append(entry.body["label"])
        elif entry.action == UNDO:
            touched = self._undo(entry)
        elif entry.action == REDO:
            touched = self._redo(entry)
        else:
            touched = self._add(entry)
        self.seq = entry.seq
        self.changes.append((entry.seq, touched))
        return touched

    def _add(self, entry: Entry) -> set[int]:
        self._undone[entry.reviewer].clear()
        batches = self._batches[entry.reviewer]
        if batches and batches[-1][0].batch == entry.batch:
            batches[-1].append(entry)
        else:
            batches.append([entry])
        if entry.action == SPLIT and entry.uuid not in self._parts:
            self._split(entry)
        return self._set_active(entry, True)

    def _split(self, entry: Entry) -> None:
        first = len(self.items)
        times_s = [entry.body[name] for name in ("start_s", "at_s", "end_s")]
        self.items = split_item(self.items, entry.body["item"], *times_s)
        self._parts[entry.uuid] = (first, first + 1)
        for reviewer, status in self.status.items():
            self.status[reviewer] = np.pad(status, (0, 2), constant_values=UNDECIDED)

    def _set_active(self, entry: Entry, active: bool) -> set[int]:
        """Add a row to those in effect, or take it away; return the items that it changed."""
        item = int(entry.body["item"])
        rows = self._rows[item]
        parts = self._parts.get(entry.uuid, ())
        if active:
            rows.append(entry)
            rows.sort(key=lambda row: row.seq)
            self.gone.difference_update(parts)
        else:
            rows.remove(entry)
            self.gone.update(parts)
        self._set_status(item, entry.reviewer)
        touched = {item, *parts}
        for changed in touched:
            self._set_verdict(changed)
        return touched

    def _set_status(self, item: int, reviewer: str) -> None:
        decision = self.find(item, reviewer)
        status = UNDECIDED
        if decision is not None and decision["action"] == SKIP:
            status = SKIPPED
        elif decision is not None and decision["action"] != SPAN:
            status = DECIDED
        nothing = np.full(len(self.items), UNDECIDED, np.int8)
        self.status.setdefault(reviewer, nothing)[item] = status

    def _set_verdict(self, item: int) -> None:
        self.verdicts.pop(item, None)
        self.conflicts.discard(item)
        if item in self.gone:
            return
        verdict = self.find_verdict(item)
        if verdict is not None:
            self.verdicts[item] = verdict
        elif self.is_conflict(item):
            self.conflicts.add(item)

    def _undo(self, entry: Entry) -> set[int]:
        batches = self._batches[entry.reviewer]
        count = min(entry.body["count"], len(batches))
        group = [batches.pop() for _ in range(count)]
        touched: set[int] = set()
        for batch in group:
            for row in reversed(batch):
                touched |= self._set_active(row, False)
        if group:
            self._undone[entry.reviewer].append(group)
        return touched

    def _redo(self, entry: Entry) -> set[int]:
        undone = self._undone[entry.reviewer]
        group = undone.pop() if undone else []
        touched: set[int] = set()
        for batch in reversed(group):
            self._batches[entry.reviewer].append(batch)
            for row in batch:
                touched |= self._set_active(row, True)
        return touched

    def can_change(self, action: str, reviewer: str) -> bool:
        """Return whether a reviewer has something to undo or redo."""
        possible = self._batches if action == UNDO else self._undone
        return bool(possible[reviewer])

    def get_status(self, reviewer: str) -> NDArray[np.int8]:
        """Return for each item whether a reviewer decided or skipped it."""
        nothing = np.full(len(self.items), UNDECIDED, np.int8)
        return self.status.get(reviewer, nothing)

    def find(self, item: int, reviewer: str) -> Decision | None:
        """Return what a reviewer said of an item, None if nothing is in effect."""
        decision: Decision | None = None
        for row in self._rows.get(item, ()):
            if row.reviewer == reviewer and row.action != SETTLE:
                decision = _combine(decision, row)
        return decision

    def find_all(self, item: int) -> list[Decision]:
        """Return what everybody said of an item, in order of time."""
        reviewers = dict.fromkeys(row.reviewer for row in self._rows.get(item, ()))
        decisions = [self.find(item, name) for name in reviewers]
        return [decision for decision in decisions if decision is not None]

    def find_verdicts(self, item: int) -> list[Decision]:
        """Return what everybody called an item, in order of time."""
        decisions = self.find_all(item)
        return [decision for decision in decisions if decision["action"] in VERDICTS]

    def find_settled(self, item: int) -> Decision | None:
        """Return how a conflict was settled, None if it was not."""
        rows = [row for row in self._rows.get(item, ()) if row.action == SETTLE]
        if not rows:
            return None
        decision = _combine(None, rows[-1])
        decision["action"] = REJECT if decision["label"] is None else RELABEL
        return decision

    def is_conflict(self, item: int) -> bool:
        """Return whether reviewers disagree on an item and nobody settled it."""
        labels = {verdict["label"] for verdict in self.find_verdicts(item)}
        return len(labels) > 1 and self.find_settled(item) is None

    def find_verdict(self, item: int, reviewer: str | None = None) -> Decision | None:
        """Return the verdict on an item: of one reviewer, or that on which all agree.

        A settled conflict counts as settled. None if there is no verdict, or an open conflict.
        """
        verdicts = self.find_verdicts(item)
        if reviewer is not None:
            own = [one for one in verdicts if one["reviewer"] == reviewer]
            return own[0] if own else None
        settled = self.find_settled(item)
        if settled is not None:
            for verdict in verdicts:
                if verdict["start_s"] is not None:
                    span = {name: verdict[name] for name in ("start_s", "end_s")}
                    settled |= span
            return settled
        if not verdicts or self.is_conflict(item):
            return None
        return verdicts[-1]

    def find_span(self, item: int, reviewer: str) -> tuple[float, float]:
        """Return the span of an item as a reviewer sees it."""
        span = self.find(item, reviewer)
        if span is None or span["start_s"] is None or span["end_s"] is None:
            span = self.items.frame.row(item, named=True)
        return span["start_s"], span["end_s"]


def _combine(decision: Decision | None, row: Entry) -> Decision:
    """Return what a reviewer says with one more row; a span alone changes no verdict."""
    combined = {
        "seq": row.seq,
        "action": row.action,
        "label": row.body.get("verdict"),
        "start_s": row.body.get("new_start_s"),
        "end_s": row.body.get("new_end_s"),
        "reviewer": row.reviewer,
        "time": row.time,
    }
    if decision is None:
        return combined
    kept = [name for name in ("start_s", "end_s") if combined[name] is None]
    if row.action == SPAN:
        kept += ["action", "label"]
    return combined | {name: decision[name] for name in kept}


def check_decision(
    request: Any,
    decisions: Decisions,
    reviewer: str,
    find_duration_s: Callable[[str], float | None],
) -> Row:
    """Return the row of a decision; raise RequestError if it is none."""
    if not isinstance(request, Mapping):
        raise RequestError("decisions: expected objects")
    body = _describe_item(request, decisions)
    action = request.get("action")
    if action not in ACTIONS:
        raise RequestError(f"action: expected one of {', '.join(ACTIONS)}")
    body |= _check_new_span(request, action, find_duration_s(body["recording"]))
    if action == SPLIT:
        start_s, end_s = decisions.find_span(body["item"], reviewer)
        at_s: Any = request.get("at_s")
        if not _is_number(at_s) or not start_s < at_s < end_s:
            raise RequestError(
                f"at_s: expected a time inside {start_s:.3f} to {end_s:.3f} s"
            )
        body |= {"start_s": start_s, "end_s": end_s, "at_s": float(at_s)}
    if action in (CONFIRM, RELABEL):
        label = request.get("label")
        if label is None and action == CONFIRM:
            label = body["label"]
        if label not in decisions.labels:
            raise RequestError("label: expected a known label; add it first")
        action = CONFIRM if label == body["label"] else RELABEL
        body["verdict"] = label
    return make_row(request, action, body)


def check_settlement(request: Body, decisions: Decisions) -> Row:
    """Return the row that settles a conflict: by a label, or None for none of these."""
    body = _describe_item(request, decisions)
    label = request.get("label")
    if label is not None and label not in decisions.labels:
        raise RequestError("label: expected a known label, or null for none")
    return make_row(request, SETTLE, body | {"verdict": label})


def check_undo(request: Body, action: str) -> Row:
    """Return the row of undo or redo."""
    count = request.get("count", 1)
    if type(count) is not int or not 1 <= count <= MAX_UNDO:
        raise RequestError("count: expected a number of 1 or more")
    return make_row(request, action, {"count": count})


def make_row(request: Body, action: str, body: Body) -> Row:
    """Return a row of the journal, with the uuid of a request."""
    try:
        name = str(uuid.UUID(request.get("uuid")))
    except (ValueError, AttributeError, TypeError):
        raise RequestError("uuid: expected a UUID") from None
    return {"uuid": name, "action": action, "body": body}


def check_same(row: Row, saved: Entry, reviewer: str) -> None:
    """Raise RequestError unless a row that was sent again says what was saved."""
    sent = [row["action"], reviewer, *map(row["body"].get, SAME)]
    saved_values = [saved.action, saved.reviewer, *map(saved.body.get, SAME)]
    if sent != saved_values:
        raise RequestError(f"uuid {saved.uuid}: another decision has it", 409)


def _describe_item(request: Body, decisions: Decisions) -> dict[str, Any]:
    """Return the item that a request is about; one whose split was undone counts too.

    The journal keeps enough of it to export calls.
    """
    item = request.get("item")
    if type(item) is not int:
        raise RequestError("item: expected a number")
    if not 0 <= item < len(decisions.items):
        raise RequestError(f"item {item}: there is none with this number", 404)
    row = decisions.items.frame.row(item, named=True)
    names = ("recording", "start_s", "end_s", "label", "score", "clock")
    return {"item": item, **{name: row[name] for name in names}}


def _check_new_span(
    request: Body, action: str, duration_s: float | None
) -> dict[str, float]:
    """Return the span that a reviewer gave an item, nothing if there is none."""
    start_s: Any = request.get("start_s")
    end_s: Any = request.get("end_s")
    if start_s is None and end_s is None and action != SPAN:
        return {}
    if not _is_number(start_s) or not _is_number(end_s):
        raise RequestError("start_s, end_s: expected two numbers")
    latest_s = math.inf if duration_s is None else duration_s + ROUNDING_S
    if not 0 <= start_s < end_s <= latest_s:
        raise RequestError(
            f"start_s, end_s: expected a span inside the recording, got {start_s} to {end_s}"
        )
    return {"new_start_s": float(start_s), "new_end_s": float(end_s)}


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < MAX_NUMBER
