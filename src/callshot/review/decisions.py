"""Rows of a journal → what is in effect: decisions of each reviewer, parts of items, conflicts.

A reviewer's decision on an item is what all that reviewer's rows on it amount to. Undo takes back
the reviewer's latest batch that is in effect, redo brings back what the latest undo took.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.files import error_reason
from callshot.review.items import Items
from callshot.review.journal_lines import Entry

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

Batch = list[Entry]


@dataclass(frozen=True)
class Decision:
    """What a reviewer said of an item; the span is None where it was not changed."""

    seq: int
    action: str
    label: str | None
    start_s: float | None
    end_s: float | None
    reviewer: str
    time: str

    @property
    def is_verdict(self) -> bool:
        """Whether it says that the item is a call of some label, or none."""
        return self.action in VERDICTS

    @property
    def call_label(self) -> str | None:
        """The label that the reviewer gave it, None for none of the labels."""
        return None if self.action == REJECT else self.label

    def to_json(self) -> dict[str, Any]:
        """Return the decision as the page gets it."""
        return asdict(self)


@dataclass
class _ReviewerState:
    """What one reviewer did: batches in effect, and those that were taken back."""

    batches: list[Batch] = field(default_factory=list)
    undone_batches: list[list[Batch]] = field(default_factory=list)
    status: NDArray[np.int8] = field(default_factory=lambda: np.zeros(0, np.int8))


class Decisions:
    """What is in effect after some rows of a journal; `apply` adds a row."""

    def __init__(self, items: Items) -> None:
        self.items = items
        self.seq = 0
        self.added_labels: list[str] = []
        self.changes: list[tuple[int, frozenset[int]]] = []  # seq, items
        self.verdicts: dict[
            int, Decision
        ] = {}  # on which all who decided agree, by item
        self.conflicts: set[int] = set()
        self._parts: dict[str, tuple[int, int]] = {}  # of each split, by uuid
        self._rows: dict[int, list[Entry]] = defaultdict(list)
        self._states: dict[str, _ReviewerState] = {}

    @property
    def reviewers(self) -> list[str]:
        """All who did anything, in alphabetical order."""
        return sorted(self._states)

    @property
    def touched(self) -> list[int]:
        """All items with a row in effect, in order; no parts of a split that was undone."""
        is_active = self.items.is_active
        items = [item for item, rows in self._rows.items() if rows]
        return sorted(item for item in items if is_active[item])

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

    def apply(self, entry: Entry) -> frozenset[int]:
        """Add a row; return the items that it changed."""
        if entry.action == LABEL:
            self._add_label(entry.body["label"])
            touched: frozenset[int] = frozenset()
        elif entry.action == UNDO:
            touched = self._undo(entry)
        elif entry.action == REDO:
            touched = self._redo(entry)
        else:
            touched = self._add(entry)
        self.seq = entry.seq
        self.changes.append((entry.seq, touched))
        return touched

    def _add_label(self, name: str) -> None:
        self.items.number_label(name)
        if name not in self.added_labels:
            self.added_labels.append(name)

    def _add(self, entry: Entry) -> frozenset[int]:
        state = self._state(entry.reviewer)
        state.undone_batches.clear()
        if state.batches and state.batches[-1][0].batch == entry.batch:
            state.batches[-1].append(entry)
        else:
            state.batches.append([entry])
        if entry.action == SPLIT and entry.uuid not in self._parts:
            self._parts[entry.uuid] = self._split(entry)
        return self._set_active(entry, True)

    def _split(self, entry: Entry) -> tuple[int, int]:
        item = entry.body["item"]
        at_s = entry.body["at_s"]
        first = self.items.add_part(item, entry.body["start_s"], at_s)
        second = self.items.add_part(item, at_s, entry.body["end_s"])
        return first, second

    def _set_active(self, entry: Entry, active: bool) -> frozenset[int]:
        """Add a row to those in effect, or take it away; return the items that it changed."""
        item = int(entry.body["item"])
        if active:
            self._rows[item].append(entry)
            self._rows[item].sort(key=lambda row: row.seq)
        else:
            self._rows[item].remove(entry)
        parts = self._parts.get(entry.uuid, ())
        for part in parts:
            self.items.is_active[part] = active
            self._set_verdict(part)
        self._set_status(entry.reviewer, item)
        self._set_verdict(item)
        return frozenset((item, *parts))

    def _set_status(self, reviewer: str, item: int) -> None:
        state = self._state(reviewer)
        decision = self.find(item, reviewer)
        status = UNDECIDED
        if decision is not None and decision.action == SKIP:
            status = SKIPPED
        elif decision is not None and decision.action != SPAN:
            status = DECIDED
        state.status[item] = status

    def _set_verdict(self, item: int) -> None:
        self.verdicts.pop(item, None)
        self.conflicts.discard(item)
        if not self.items.is_active[item]:
            return
        verdict = self.find_verdict(item)
        if verdict is not None:
            self.verdicts[item] = verdict
        elif self.is_conflict(item):
            self.conflicts.add(item)

    def _undo(self, entry: Entry) -> frozenset[int]:
        state = self._state(entry.reviewer)
        group = [
            state.batches.pop()
            for _ in range(min(entry.body["count"], len(state.batches)))
        ]
        touched: set[int] = set()
        for batch in group:
            for row in reversed(batch):
                touched |= self._set_active(row, False)
        if group:
            state.undone_batches.append(group)
        return frozenset(touched)

    def _redo(self, entry: Entry) -> frozenset[int]:
        state = self._state(entry.reviewer)
        group = state.undone_batches.pop() if state.undone_batches else []
        touched: set[int] = set()
        for batch in reversed(group):
            state.batches.append(batch)
            for row in batch:
                touched |= self._set_active(row, True)
        return frozenset(touched)

    def can_undo(self, reviewer: str) -> bool:
        """Return whether a reviewer has a batch in effect."""
        return bool(self._state(reviewer).batches)

    def can_redo(self, reviewer: str) -> bool:
        """Return whether a reviewer took something back and did nothing since."""
        return bool(self._state(reviewer).undone_batches)

    def _state(self, reviewer: str) -> _ReviewerState:
        state = self._states.setdefault(reviewer, _ReviewerState())
        missing = len(self.items) - len(state.status)
        if missing:
            more = np.full(missing, UNDECIDED, np.int8)
            state.status = np.concatenate([state.status, more])
        return state

    def status(self, reviewer: str) -> NDArray[np.int8]:
        """Return for each item whether a reviewer decided or skipped it."""
        if reviewer not in self._states:
            return np.full(len(self.items), UNDECIDED, np.int8)
        return self._state(reviewer).status

    def find(self, item: int, reviewer: str) -> Decision | None:
        """Return what a reviewer said of an item, None if nothing is in effect."""
        rows = self._rows.get(item, ())
        return _combine_rows(row for row in rows if row.reviewer == reviewer)

    def find_all(self, item: int) -> list[Decision]:
        """Return what everybody said of an item, in order of time."""
        rows = self._rows.get(item, ())
        reviewers = dict.fromkeys(row.reviewer for row in rows)
        decisions = [self.find(item, name) for name in reviewers]
        return [decision for decision in decisions if decision is not None]

    def find_settled(self, item: int) -> Decision | None:
        """Return how a conflict was settled, None if it was not."""
        rows = [row for row in self._rows.get(item, ()) if row.action == SETTLE]
        if not rows:
            return None
        last = rows[-1]
        label = last.body["verdict"]
        action = REJECT if label is None else RELABEL
        return Decision(
            seq=last.seq,
            action=action,
            label=label,
            start_s=None,
            end_s=None,
            reviewer=last.reviewer,
            time=last.time,
        )

    def is_conflict(self, item: int) -> bool:
        """Return whether reviewers disagree on an item and nobody settled it."""
        verdicts = self._list_item_verdicts(item)
        labels = {verdict.call_label for verdict in verdicts}
        return len(labels) > 1 and self.find_settled(item) is None

    def _list_item_verdicts(self, item: int) -> list[Decision]:
        return [decision for decision in self.find_all(item) if decision.is_verdict]

    def is_decided(self, item: int) -> bool:
        """Return whether somebody decided or skipped an item."""
        return any(decision.action != SPAN for decision in self.find_all(item))

    def list_verdicts(self, reviewer: str) -> dict[int, Decision]:
        """Return the verdicts of one reviewer, by item."""
        verdicts = {}
        for item in self.touched:
            verdict = self.find_verdict(item, reviewer)
            if verdict is not None:
                verdicts[item] = verdict
        return verdicts

    def find_verdict(self, item: int, reviewer: str | None = None) -> Decision | None:
        """Return the verdict on an item: of one reviewer, or that on which all agree.

        A settled conflict counts as settled. None if there is no verdict, or an open conflict.
        """
        if reviewer is not None:
            decision = self.find(item, reviewer)
            return decision if decision is not None and decision.is_verdict else None
        verdicts = self._list_item_verdicts(item)
        settled = self.find_settled(item)
        if settled is not None:
            spans = [verdict for verdict in verdicts if verdict.start_s is not None]
            if spans:
                return replace(
                    settled, start_s=spans[-1].start_s, end_s=spans[-1].end_s
                )
            return settled
        if not verdicts or self.is_conflict(item):
            return None
        return verdicts[-1]


def _combine_rows(rows: Iterable[Entry]) -> Decision | None:
    """Return what the rows of one reviewer on one item amount to."""
    decision: Decision | None = None
    for row in rows:
        if row.action == SETTLE:
            continue
        action = row.action
        label = row.body.get("verdict")
        start_s = row.body.get("new_start_s")
        end_s = row.body.get("new_end_s")
        if decision is not None:
            start_s = decision.start_s if start_s is None else start_s
            end_s = decision.end_s if end_s is None else end_s
            if action == SPAN:
                action = decision.action
                label = decision.label
        decision = Decision(
            seq=row.seq,
            action=action,
            label=label,
            start_s=start_s,
            end_s=end_s,
            reviewer=row.reviewer,
            time=row.time,
        )
    return decision
