"""What a page sends, every value checked: bodies → rows of the journal; values in the address."""

import math
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from starlette.requests import Request

from callshot.errors import RequestError
from callshot.review.decisions import ACTIONS, CONFIRM, RELABEL, SETTLE, SPAN, SPLIT
from callshot.review.items import Items
from callshot.review.journal_lines import Entry, NewEntry

ROUNDING_S = 1e-3
LARGEST = 1e300  # JSON has whole numbers that are no float
SAME = ("item", "verdict", "new_start_s", "new_end_s", "at_s", "count")

Body = Mapping[str, Any]
Span = tuple[float, float]
MAX_DIGITS = 15


def check_decision(
    request: Any,
    items: Items,
    durations_s: Mapping[str, float],
    find_span: Callable[[int], Span],
) -> NewEntry:
    """Return the row of a decision; raise RequestError if it is none.

    `find_span` returns the span of an item as the reviewer sees it.
    """
    if not isinstance(request, Mapping):
        raise RequestError("decisions: expected objects")
    item = check_item(request, items)
    action = request.get("action")
    if action not in ACTIONS:
        raise RequestError(f"action: expected one of {', '.join(ACTIONS)}")
    body = describe_place(item, items)
    body |= _check_new_span(request, action, durations_s.get(body["recording"]))
    if action == SPLIT:
        body |= _check_split(request, *find_span(item))
    action, verdict = _check_verdict(request, action, body["label"], items)
    if verdict is not None:
        body["verdict"] = verdict
    return NewEntry(check_uuid(request), action, body)


def check_settlement(request: Body, items: Items) -> NewEntry:
    """Return the row that settles a conflict: by a label, or None for none of these."""
    item = check_item(request, items)
    label = request.get("label")
    if label is not None and label not in items.labels:
        raise RequestError("label: expected a known label, or null for none")
    body = describe_place(item, items) | {"verdict": label}
    return NewEntry(check_uuid(request), SETTLE, body)


def check_undo(request: Body, action: str) -> NewEntry:
    """Return the row of undo or redo."""
    count = request.get("count", 1)
    if type(count) is not int or not 1 <= count <= 10_000:
        raise RequestError("count: expected a number of 1 or more")
    return NewEntry(check_uuid(request), action, {"count": count})


def check_item(request: Body, items: Items) -> int:
    """Return the item that a request is about; one whose split was undone counts too."""
    item = request.get("item")
    if type(item) is not int:
        raise RequestError("item: expected a number")
    if not 0 <= item < len(items):
        raise RequestError(f"item {item}: there is none with this number", 404)
    return item


def check_uuid(request: Body) -> str:
    """Return the uuid of a request."""
    try:
        return str(uuid.UUID(request.get("uuid")))
    except (ValueError, AttributeError, TypeError):
        raise RequestError("uuid: expected a UUID") from None


def check_same(entry: NewEntry, saved: Entry, reviewer: str) -> None:
    """Raise RequestError unless a row that was sent again says what was saved."""
    sent = [entry.action, reviewer, *map(entry.body.get, SAME)]
    saved_values = [saved.action, saved.reviewer, *map(saved.body.get, SAME)]
    if sent != saved_values:
        raise RequestError(f"uuid {entry.uuid}: another decision has it", 409)


def describe_place(item: int, items: Items) -> dict[str, Any]:
    """Return an item as the journal keeps it, so that the journal is enough to export calls."""
    return {
        **items.describe(item),
        "item": item,
        "score": finite(items.score[item]),
        "clock": items.clock[items.row[item]],
    }


def finite(value: Any) -> float | None:
    """Return a number as JSON has it: None if it is not finite."""
    number = float(value)
    return number if math.isfinite(number) else None


def _check_new_span(
    request: Body, action: str, longest_s: float | None
) -> dict[str, float]:
    """Return the span that a reviewer gave an item, nothing if there is none."""
    start_s: Any = request.get("start_s")
    end_s: Any = request.get("end_s")
    if start_s is None and end_s is None and action != SPAN:
        return {}
    if not _is_number(start_s) or not _is_number(end_s):
        raise RequestError("start_s, end_s: expected two numbers")
    latest_s = math.inf if longest_s is None else longest_s + ROUNDING_S
    if not 0 <= start_s < end_s <= latest_s:
        raise RequestError(
            f"start_s, end_s: expected a span inside the recording, got {start_s} to {end_s}"
        )
    return {"new_start_s": float(start_s), "new_end_s": float(end_s)}


def _check_split(request: Body, start_s: float, end_s: float) -> dict[str, float]:
    at_s: Any = request.get("at_s")
    if not _is_number(at_s) or not start_s < at_s < end_s:
        raise RequestError(
            f"at_s: expected a time inside {start_s:.3f} to {end_s:.3f} s"
        )
    return {"start_s": start_s, "end_s": end_s, "at_s": float(at_s)}


def _check_verdict(
    request: Body, action: str, item_label: str | None, items: Items
) -> tuple[str, str | None]:
    """Return the action and its label: to confirm another label is to relabel, and so on."""
    if action not in (CONFIRM, RELABEL):
        return action, None
    label = request.get("label")
    if label is None and action == CONFIRM:
        label = item_label
    if label is None or label not in items.labels:
        raise RequestError("label: expected a known label; add it first")
    return (CONFIRM if label == item_label else RELABEL), label


def _is_number(value: Any) -> bool:
    return type(value) in (int, float) and abs(value) < LARGEST


class Query:
    """The values in the address of a request, each checked."""

    def __init__(self, request: Request) -> None:
        self.values = request.query_params

    def text(self, name: str) -> str | None:
        """Return a text, None if it is missing or empty."""
        return self.values.get(name) or None

    def number(self, name: str, default: Any = None) -> Any:
        """Return a finite number."""
        text = self.values.get(name)
        if text is None or text == "":
            return default
        try:
            value = float(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value):
            raise RequestError(f"{name}: expected a number")
        return value

    def integer(self, name: str, low: int, high: int, default: Any) -> Any:
        """Return a whole number within limits."""
        text = self.values.get(name)
        if text is None or text == "":
            return default
        value = read_integer(text)
        if value is None or not low <= value <= high:
            raise RequestError(f"{name}: expected a whole number from {low} to {high}")
        return value


def read_integer(text: str) -> int | None:
    """Return a whole number of up to 15 digits, None if a text is none.

    >>> read_integer("12"), read_integer("-1"), read_integer("9" * 5000)
    (12, None, None)
    """
    is_number = text.isdecimal() and len(text) <= MAX_DIGITS
    return int(text) if is_number else None
