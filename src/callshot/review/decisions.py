"""Rows of a journal → what is in effect: decisions of reviewers, parts, added calls, conflicts.

A decision is what all rows of one reviewer on one item amount to, with these keys:

seq, time        of the latest row
action           one of ACTIONS
label            of a verdict: what the item is, None for none of the labels
start_s, end_s   the span that the reviewer gave it, None where it was not changed
reviewer         whose it is

A row that adds a call is a decision on two items: the call is confirmed, and the item that it is in
is split, if it has the same label. What a page asks for is checked here too.
"""

import math
import uuid
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from operator import attrgetter, itemgetter
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.corpus.annotations.rows import FREQUENCIES
from callshot.detection.events import events_frame
from callshot.detection.index.clock import shift_clock
from callshot.errors import RequestError
from callshot.review.items import PLACE, PROBABILITY, make_items
from callshot.review.journal import Entry, Row
from callshot.spans import Spans

CONFIRM = "confirm"
REJECT = "reject"
RELABEL = "relabel"
SKIP = "skip"
SPAN = "span"
SPLIT = "split"
ADD = "add"
SETTLE = "settle"
ACTIONS = (CONFIRM, REJECT, RELABEL, SKIP, SPAN, SPLIT, ADD)
VERDICTS = (CONFIRM, REJECT, RELABEL)
UNDO = "undo"
REDO = "redo"
LABEL = "label"
UNDECIDED, DECIDED, SKIPPED = range(3)
STATUS = {None: UNDECIDED, SPAN: UNDECIDED, SKIP: SKIPPED}  # of other actions DECIDED
ROUNDING_S = 1e-3
MAX_LABEL_LENGTH = 200
MAX_NUMBER = 1e300  # JSON has whole numbers that are no float
ADDED = (*PLACE, *FREQUENCIES)  # what a person says of an added call

Decision = dict[str, Any]
Batch = list[Entry]
Body = Mapping[str, Any]


class History:
    """What each reviewer did, in batches: those in effect, and groups of those that were undone.

    `find_keys` returns what a row is about; `rows` are those in effect by this key, in order.
    """

    def __init__(self, find_keys: Callable[[Entry], Iterable[Any]]) -> None:
        self.rows: dict[Any, list[Entry]] = defaultdict(list)
        self._find_keys = find_keys
        self._batches: dict[str, list[Batch]] = defaultdict(list)
        self._undone: dict[str, list[list[Batch]]] = defaultdict(list)

    def follow(self, entry: Entry) -> tuple[list[Entry], bool]:
        """Add a row; return the rows that it puts in or out of effect, and whether it is in.

        An UNDO takes the latest batches of the reviewer out of effect; a REDO puts back what the
        latest UNDO took, in the order in which it was added; any other row is in effect itself.
        """
        batches = self._batches[entry.reviewer]
        undone = self._undone[entry.reviewer]
        is_active = entry.action != UNDO
        if entry.action == UNDO:
            count = min(entry.body["count"], len(batches))
            latest_first = [batches.pop() for _ in range(count)]
            if latest_first:
                undone.append(latest_first)
            changed = [row for batch in latest_first for row in reversed(batch)]
        elif entry.action == REDO:
            in_order = undone.pop()[::-1] if undone else []
            batches += in_order
            changed = [row for batch in in_order for row in batch]
        else:
            undone.clear()  # after a new row, there is nothing to redo
            if not batches or batches[-1][0].batch != entry.batch:
                batches.append([])
            batches[-1].append(entry)
            changed = [entry]
        for row in changed:
            for key in self._find_keys(row):
                if is_active:
                    insort(self.rows[key], row, key=attrgetter("seq"))
                else:
                    self.rows[key].remove(row)
        return changed, is_active

    def can(self, action: str, reviewer: str) -> bool:
        """Return whether a reviewer has something to UNDO, or to REDO."""
        batches = self._batches if action == UNDO else self._undone
        return bool(batches[reviewer])


class Decisions:
    """What is in effect after some rows of a journal; `apply` adds a row.

    items         of the source, then parts of items that were split, and calls that were added
    source_count  number of items of the source
    gone          parts and added calls that were undone
    labels        of the source in alphabetical order, then added ones
    status        for each reviewer, whether each item is undecided, decided or skipped
    verdicts      on which all who decided agree, by item
    conflicts     items on which reviewers disagree
    history       what each reviewer can undo and redo, and the rows in effect on each item
    """

    def __init__(self, items: Spans) -> None:
        self.items = items
        self.source_count = len(items)
        names = {*items["label"], *items["runner_up"]}
        self.labels = sorted(names - {None})
        self.gone: set[int] = set()
        self.status: dict[str, NDArray[np.int8]] = {}
        self.verdicts: dict[int, Decision] = {}
        self.conflicts: set[int] = set()
        self.history = History(self._find_decided)
        self._parts: dict[str, range] = {}  # items that a row added, by its uuid

    @property
    def is_active(self) -> NDArray[np.bool_]:
        """Which items there are: no parts and added calls that were undone."""
        is_active = np.ones(len(self.items), bool)
        is_active[list(self.gone)] = False
        return is_active

    @property
    def touched(self) -> list[int]:
        """All items with a row in effect, in order; none that were undone."""
        with_rows = {item for item, rows in self.history.rows.items() if rows}
        return sorted(with_rows - self.gone)

    def apply(self, entry: Entry) -> set[int]:
        """Add a row; return the items that it changed."""
        if entry.action == LABEL:
            if entry.body["label"] not in self.labels:
                self.labels.append(entry.body["label"])
            return set()
        if entry.action in (SPLIT, ADD):
            self._add_items(entry)
        rows, is_active = self.history.follow(entry)
        touched = set()
        for row in rows:
            touched |= self._update(row, is_active)
        return touched

    def _add_items(self, entry: Entry) -> None:
        """Add the two parts of an item, or a call that a person marked, after all items.

        They stay for ever, also if the row is undone: then they are `gone`.
        """
        known = self.items.frame
        body = entry.body
        if entry.action == ADD:
            item = int(body["beside"])
            call = {name: body[name] for name in (*ADDED, "clock")}
            added = make_items(events_frame([call])).frame
            row_beside = pl.lit(known["row"][item], pl.Int64)
            rows = added.with_columns(row=row_beside, added=pl.lit(True))
        else:
            item = int(body["item"])
            starts_s = [body["start_s"], body["at_s"]]
            ends_s = [body["at_s"], body["end_s"]]
            rows = known[[item, item]].with_columns(
                pl.Series("start_s", starts_s),
                pl.Series("end_s", ends_s),
            )
        rows = rows.with_columns(parent=pl.lit(item, pl.Int64))
        all_rows = known.vstack(rows)
        self.items = replace(self.items, frame=all_rows)
        self._parts[entry.uuid] = range(len(known), len(all_rows))
        for reviewer, status in self.status.items():
            self.status[reviewer] = np.pad(status, (0, len(rows)))  # UNDECIDED

    def _find_decided(self, entry: Entry) -> list[int]:
        """Return the items that a row decides.

        Of a row that adds a call, they are the call, and the item that it divides, if it does.
        """
        if entry.action != ADD:
            return [int(entry.body["item"])]
        divided = [entry.body["beside"]] if entry.body["divides"] else []
        return [*self._parts[entry.uuid], *divided]

    def _update(self, entry: Entry, is_active: bool) -> set[int]:
        """Update `gone`, `status`, `verdicts` and `conflicts` after a row came into effect or left.

        Return the items that it changed.
        """
        parts = self._parts.get(entry.uuid, range(0))
        if is_active:
            self.gone.difference_update(parts)
        else:
            self.gone.update(parts)
        status = self.get_status(entry.reviewer)
        for item in self._find_decided(entry):
            own = self.find_all(item).get(entry.reviewer, {"action": None})
            status[item] = STATUS.get(own["action"], DECIDED)
        self.status[entry.reviewer] = status
        touched = {int(entry.body.get("item", entry.body.get("beside"))), *parts}
        for item in touched:
            self.verdicts.pop(item, None)
            self.conflicts.discard(item)
            if item in self.gone:
                continue
            verdict = self.find_verdict(item)
            if verdict is not None:
                self.verdicts[item] = verdict
            elif self.find_verdicts(item):  # which are not the same
                self.conflicts.add(item)
        return touched

    def get_status(self, reviewer: str) -> NDArray[np.int8]:
        """Return for each item whether it is UNDECIDED, DECIDED or SKIPPED by a reviewer."""
        undecided = np.full(len(self.items), UNDECIDED, np.int8)
        return self.status.get(reviewer, undecided)

    def find_all(self, item: int) -> dict[str, Decision]:
        """Return the decision of every reviewer on an item, by name.

        A later row replaces the earlier ones, with two exceptions: if it has no span, the span
        stays; if it only changes the span (SPAN), the verdict stays.
        """
        decisions: dict[str, Decision] = {}
        for row in self.history.rows.get(item, ()):
            if row.action == SETTLE:
                continue
            decision = self._describe_row(row, item)
            before = decisions.get(row.reviewer)
            if before is not None:
                kept = [name for name in ("start_s", "end_s") if decision[name] is None]
                if row.action == SPAN:
                    kept += ["action", "label"]
                decision |= {name: before[name] for name in kept}
            decisions[row.reviewer] = decision
        return decisions

    def find_settled(self, item: int) -> Decision | None:
        """Return the decision that settled a conflict on an item; None if there is none."""
        for row in reversed(self.history.rows.get(item, ())):
            if row.action == SETTLE:
                decision = self._describe_row(row, item)
                action = REJECT if decision["label"] is None else RELABEL
                return decision | {"action": action}
        return None

    def _describe_row(self, row: Entry, item: int) -> Decision:
        """Return one row as a decision on an item."""
        action = row.action
        label = row.body.get("verdict")
        if action == ADD and item in self._parts[row.uuid]:  # the call itself
            action = CONFIRM
        elif action == ADD:  # the item that it is in
            action = SPLIT
            label = None
        return {
            "seq": row.seq,
            "action": action,
            "label": label,
            "start_s": row.body.get("new_start_s"),
            "end_s": row.body.get("new_end_s"),
            "reviewer": row.reviewer,
            "time": row.time,
        }

    def find_verdicts(self, item: int) -> list[Decision]:
        """Return the verdicts on an item, the latest last, one of each reviewer at most."""
        decisions = sorted(self.find_all(item).values(), key=itemgetter("seq"))
        return [decision for decision in decisions if decision["action"] in VERDICTS]

    def find_verdict(self, item: int, reviewer: str | None = None) -> Decision | None:
        """Return the verdict on an item: of one reviewer, or the one on which all agree.

        Its span is the latest that one of them gave it. None if nobody gave a verdict, or if
        reviewers disagree and nobody settled it.
        """
        verdicts = self.find_verdicts(item)
        verdict = None
        if reviewer is None:
            verdict = self.find_settled(item)
        else:
            verdicts = [one for one in verdicts if one["reviewer"] == reviewer]
        if verdict is None:
            if len({one["label"] for one in verdicts}) != 1:
                return None
            verdict = verdicts[-1]
        changed = [one for one in verdicts if one["start_s"] is not None]
        if changed:
            verdict |= {name: changed[-1][name] for name in ("start_s", "end_s")}
        return verdict

    def find_span(self, item: int, reviewer: str) -> tuple[float, float]:
        """Return start and end of an item as a reviewer changed them, or else as in the source."""
        place = self.find_all(item).get(reviewer)
        if place is None or place["start_s"] is None:
            place = self.items.frame.row(item, named=True)
        return place["start_s"], place["end_s"]


def check_decision(
    request: Any, decisions: Decisions, reviewer: str, durations_s: Mapping[str, float]
) -> Row:
    """Return the row of the journal for a decision that the page asks to save.

    A confirmed item with another label is relabelled, and the other way round.
    """
    if not isinstance(request, Mapping):
        raise RequestError("decisions: expected objects")
    body = describe_item(request, decisions)
    action = request.get("action")
    if action not in ACTIONS:
        raise RequestError(f"action: expected one of {', '.join(ACTIONS)}")

    new_times = (request.get("start_s"), request.get("end_s"))
    if action in (SPAN, ADD) or new_times != (None, None):
        start_s, end_s = check_span(request, durations_s.get(body["recording"]))
        body |= {"new_start_s": start_s, "new_end_s": end_s}
    if action == ADD:
        call = _describe_call(request, body, decisions, reviewer)
        return make_row(request, ADD, call)

    if action == SPLIT:
        start_s, end_s = decisions.find_span(body["item"], reviewer)
        at_s: Any = request.get("at_s")
        if not is_number(at_s) or not start_s < at_s < end_s:
            raise RequestError(
                f"at_s: expected a time inside {start_s:.3f} to {end_s:.3f} s"
            )
        body |= {"start_s": start_s, "end_s": end_s, "at_s": float(at_s)}

    if action in (CONFIRM, RELABEL):
        label = request.get("label")
        if label is None and action == CONFIRM:
            label = body["label"]
        body["verdict"] = _check_label(label, decisions)
        action = CONFIRM if label == body["label"] else RELABEL
    return make_row(request, action, body)


def check_span(request: Body, duration_s: float | None) -> tuple[float, float]:
    """Return start and end in a request; raise RequestError if they are no span of a recording.

    `duration_s` is the length of the recording, None if it is not known. A span that ends less than
    ROUNDING_S after its recording ends with it.
    """
    start_s: Any = request.get("start_s")
    end_s: Any = request.get("end_s")
    latest_s = duration_s or math.inf
    are_numbers = is_number(start_s) and is_number(end_s)
    if (
        not are_numbers
        or not 0 <= start_s < min(end_s, latest_s)
        or end_s > latest_s + ROUNDING_S
    ):
        length = "" if duration_s is None else f"{duration_s:.3f} s of the "
        raise RequestError(
            f"start_s, end_s: expected a span inside the {length}recording"
        )
    return float(start_s), min(float(end_s), latest_s)


def _check_label(label: Any, decisions: Decisions) -> str:
    """Return the label of a request; raise RequestError if the review does not have it."""
    if label not in decisions.labels:
        raise RequestError("label: expected a known label; add it first")
    return str(label)


def _describe_call(
    request: Body, item_body: Body, decisions: Decisions, reviewer: str
) -> dict[str, Any]:
    """Return what the journal keeps of a call that a person marked beside or inside an item.

    `item_body` describes the item, and has the span of the call as new_start_s and new_end_s. A
    call of the item's label that overlaps the item `divides` it: the item then counts as split.
    """
    item = item_body["item"]
    label = _check_label(request.get("label"), decisions)
    band_hz: list[Any] = [request.get(name) for name in FREQUENCIES]
    has_band = all(map(is_number, band_hz)) and 0 <= band_hz[0] < band_hz[1]
    if not has_band and band_hz != [None, None]:
        raise RequestError(f"{', '.join(FREQUENCIES)}: expected a band, or neither")
    start_s = item_body["new_start_s"]
    end_s = item_body["new_end_s"]
    item_start_s, item_end_s = decisions.find_span(item, reviewer)
    decision = decisions.find_all(item).get(reviewer, {})
    item_label = decision.get("label") or item_body["label"]
    overlaps_item = start_s < item_end_s and item_start_s < end_s
    return {
        "beside": item,
        "recording": item_body["recording"],
        "start_s": start_s,
        "end_s": end_s,
        **dict(zip(FREQUENCIES, band_hz, strict=True)),
        "label": label,
        "verdict": label,
        "clock": shift_clock(item_body["clock"], start_s - item_body["start_s"]),
        "divides": overlaps_item and label == item_label,
    }


def is_number(value: Any) -> bool:
    """Return whether a value of a request is a number that a float can hold; true is none."""
    return type(value) in (int, float) and abs(value) < MAX_NUMBER


def check_name(name: Any) -> str:
    """Return the name of a call; raise RequestError if it is none."""
    text = name.strip() if isinstance(name, str) else ""
    if not 0 < len(text) <= MAX_LABEL_LENGTH or not text.isprintable():
        raise RequestError(f"name: expected a text of 1 to {MAX_LABEL_LENGTH} letters")
    return text


def make_row(request: Body, action: str, body: Body) -> Row:
    """Return a row of the journal with the uuid of a request; raise RequestError if it has none."""
    try:
        name = str(uuid.UUID(request.get("uuid")))
    except (ValueError, AttributeError, TypeError):
        raise RequestError("uuid: expected a UUID") from None
    return {"uuid": name, "action": action, "body": body}


def describe_item(request: Body, decisions: Decisions) -> dict[str, Any]:
    """Return what the journal keeps of the item of a request: enough to export it as a call."""
    item = request.get("item")
    if type(item) is not int:
        raise RequestError("item: expected a number")
    if not 0 <= item < len(decisions.items):
        raise RequestError(f"item {item}: there is none with this number", 404)
    row = decisions.items.frame.row(item, named=True)
    names = (*ADDED, "score", *PROBABILITY, "clock")
    return {"item": item, **{name: row[name] for name in names}}
