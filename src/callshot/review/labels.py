"""Calls that people marked in recordings: the boxes that the rows of a journal make.

A box is a call: `id`, `recording`, `start_s`, `end_s`, `low_freq_hz`, `high_freq_hz` and `label`.
A box without a label and frequencies is a stretch in which there is nothing. The latest row of a
box that is in effect (`History`) counts.

add, change   the whole box
delete        which box
no            a sound that is not of a name: it has the place and the name of a box
listened      a stretch that was played; it cannot be undone
folder        where the recordings are now; they were moved

What was listened to, or marked as nothing, and is in no box, is known to have no call.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from callshot.review.decisions import History
from callshot.review.journal import Entry

LABELS = "labels"  # kind of journal, and its folder
ADD = "add"
CHANGE = "change"
DELETE = "delete"
NO = "no"
# After the name of the reviewer, in rows that the label page copied from a review of the
# detections. Undo does not take them back.
IN_REVIEW = " (review)"
LISTENED = "listened"
FOLDER = "folder"
LONGER = 2  # an event that is more times as long as a call has more in it
PLACE = ("recording", "start_s", "end_s", "low_freq_hz", "high_freq_hz", "label")

Box = dict[str, Any]
Span = tuple[float, float]


def merge_spans(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order; those that touch or overlap become one.

    >>> merge_spans([(4.0, 5.0), (0.0, 2.0), (1.0, 3.0)])
    [(0.0, 3.0), (4.0, 5.0)]
    """
    merged: list[Span] = []
    for start_s, end_s in sorted(spans):
        if merged and start_s <= merged[-1][1]:
            first_s, last_s = merged[-1]
            merged[-1] = (first_s, max(last_s, end_s))
        else:
            merged.append((start_s, end_s))
    return merged


def group_by_recording(boxes: Iterable[Box]) -> dict[str, list[Box]]:
    """Return boxes by the name of their recording; it has no box by default."""
    grouped: dict[str, list[Box]] = defaultdict(list)
    for box in boxes:
        grouped[box["recording"]].append(box)
    return grouped


def length_of(place: Mapping[str, Any]) -> float:
    """Return the length of a box or an event in seconds."""
    return float(place["end_s"] - place["start_s"])


def find_same_call(calls: Iterable[Box], place: Mapping[str, Any]) -> Box | None:
    """Return the first call with the recording and label of `place` that overlaps it by half.

    That is half of the shorter of the two. Return None if there is none.
    """
    for box in calls:
        if (box["recording"], box["label"]) != (place["recording"], place["label"]):
            continue
        first_s = max(box["start_s"], place["start_s"])
        shared_s = min(box["end_s"], place["end_s"]) - first_s
        if shared_s >= min(length_of(place), length_of(box)) / 2:
            return box
    return None


def is_marked(calls: Iterable[Box], event: Mapping[str, Any]) -> bool:
    """Return whether an event is a call that has a box: at most LONGER times as long as the box."""
    box = find_same_call(calls, event)
    return box is not None and length_of(event) <= LONGER * length_of(box)


class Labels:
    """What is in effect after some rows of a journal; `apply` adds a row.

    boxes     by id
    refused   sounds that are not of a name, by id
    played_s  what was listened to, by recording
    folder    where the recordings are now, empty if they were not moved
    history   what can be undone, and the rows in effect by the id of their box
    """

    def __init__(self) -> None:
        self.boxes: dict[str, Box] = {}
        self.refused: dict[str, Box] = {}
        self.played_s: dict[str, list[Span]] = {}
        self.folder = ""
        self.history = History(lambda row: [row.body["id"]])

    def apply(self, entry: Entry) -> tuple[set[str], set[str]]:
        """Add a row; return the boxes (ids) and the recordings that it changed."""
        body = entry.body
        if entry.action == FOLDER:
            self.folder = str(body["folder"])
            return set(), set()
        if entry.action == LISTENED:
            name = body["recording"]
            span = (float(body["start_s"]), float(body["end_s"]))
            before_s = self.played_s.get(name, ())
            self.played_s[name] = merge_spans([*before_s, span])
            return set(), {name}
        changed = set()
        recordings = set()
        rows, _ = self.history.follow(entry)
        # Each box once, in order: several rows may be about one box.
        for box_id in dict.fromkeys(row.body["id"] for row in rows):
            before = self.boxes.pop(box_id, None)
            self.refused.pop(box_id, None)
            after = self._find_box(box_id)
            if after is not None:
                last_row = self.history.rows[box_id][-1]
                is_refused = last_row.action == NO
                table = self.refused if is_refused else self.boxes
                table[box_id] = after
            changed.add(box_id)
            recordings |= {box["recording"] for box in (before, after) if box}
        return changed, recordings

    def _find_box(self, box_id: str) -> Box | None:
        """Return a box as its latest row in effect says; None if it is deleted."""
        rows = self.history.rows[box_id]
        if not rows or rows[-1].action == DELETE:
            return None
        latest = rows[-1]
        place = {name: latest.body[name] for name in PLACE}
        reviewed_at = latest.body.get("reviewed_at")  # only of boxes from a review
        place["reviewed"] = reviewed_at is not None
        place["time"] = reviewed_at or latest.time
        return {"id": box_id, **place, "reviewer": latest.reviewer}

    @property
    def deleted(self) -> list[Box]:
        """Calls that a person deleted on this page, as they were before.

        Calls that left because a decision in a review was taken back are not among them.
        """
        calls = []
        for rows in self.history.rows.values():
            if not rows or rows[-1].action != DELETE:
                continue
            is_by_person = not rows[-1].reviewer.endswith(IN_REVIEW)
            before = [row.body for row in rows if row.action in (ADD, CHANGE)]
            if is_by_person and before and before[-1]["label"] is not None:
                calls.append(dict(before[-1]))
        return calls

    def is_changed(self, box_id: str) -> bool:
        """Return whether a person changed or deleted the box that a review had made."""
        rows = self.history.rows[box_id]
        return any(not row.reviewer.endswith(IN_REVIEW) for row in rows)

    @property
    def calls(self) -> list[Box]:
        """All boxes that have a label, by recording and time."""
        named = [box for box in self.boxes.values() if box["label"] is not None]
        return sorted(named, key=lambda box: (box["recording"], box["start_s"]))

    def list_calls(self, label: object) -> list[Box]:
        """Return all calls that have a label, by recording and time."""
        return [box for box in self.calls if box["label"] == label]

    def find_listened(self) -> dict[str, list[Span]]:
        """Return what was listened to or marked as nothing, by recording."""
        spans = {name: list(played) for name, played in self.played_s.items()}
        for box in self.boxes.values():
            if box["label"] is None:
                empty = (box["start_s"], box["end_s"])
                spans.setdefault(box["recording"], []).append(empty)
        return {name: merge_spans(known) for name, known in spans.items()}
