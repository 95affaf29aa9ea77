"""A review that is open: items, the journal of decisions on them, and what follows from both.

Methods may be called from several threads; one of them at a time reads or changes decisions.
"""

import math
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.errors import RequestError
from callshot.records import IntArray
from callshot.review.decisions import LABEL, REDO, UNDO, Decisions
from callshot.review.estimates import count_status
from callshot.review.journal import Journal
from callshot.review.journal_lines import Entry, NewEntry
from callshot.review.orders import (
    QueueFilter,
    draw_sample,
    order_items,
    select_items,
)
from callshot.review.requests import (
    check_decision,
    check_same,
    check_settlement,
    check_undo,
    finite,
)
from callshot.review.score_worker import ScoreWorker
from callshot.review.shot_curve import CurveWorker
from callshot.review.sources import Source

if TYPE_CHECKING:
    from callshot.review.score_worker import Scores

SEED = 0
MAX_ITEMS = 200
MAX_CONTEXT_S = 60.0
LONGEST_LABEL = 200
BLIND = (
    "what other reviewers decided is hidden: start the review without --blind to see it"
)

Answer = dict[str, Any]


class Review:
    """An open review."""

    def __init__(
        self, source: Source, journal: Journal, *, reviewer: str, blind: bool = False
    ) -> None:
        self.source = source
        self.items = source.items
        self.journal = journal
        self.reviewer = reviewer
        self.blind = blind
        self.lock = RLock()
        self.score_version = 0
        self.sample = draw_sample(self.items, SEED)
        self.decisions = Decisions(self.items)
        self.id = str(journal.facts().get("id"))
        self._orders: dict[tuple[str, int, int], IntArray] = {}
        self._once: dict[str, Any] = {}
        self.decisions.apply_all(journal.entries(), journal.path)
        self.curves = CurveWorker()
        self.worker = self._start_worker()

    def _start_worker(self) -> ScoreWorker | None:
        """Open scores beside the review, where there are any."""
        load = self.source.load_scores
        if load is None:
            return None
        load_here = partial(load, self.journal.path.parent)
        return ScoreWorker(load_here, self._update_scores)

    def close(self) -> None:
        """Stop what runs beside the review."""
        if self.worker is not None:
            self.worker.stop()
        self.curves.wait()

    @property
    def seq(self) -> int:
        """The number of the latest row of the journal."""
        return self.decisions.seq

    @property
    def can_refresh(self) -> bool:
        """Whether scores follow the decisions."""
        return self.scores is not None

    @property
    def scores(self) -> "Scores | None":
        """What new scores are computed from, None if there is nothing."""
        return None if self.worker is None else self.worker.scores

    @property
    def why_no_scores(self) -> str:
        """Why scores do not follow the decisions; empty if they do."""
        if self.worker is None:
            return self.source.why_no_scores
        return self.worker.why_no_scores

    def check_visible(self, reviewer: str, whose: str | None) -> None:
        """Raise RequestError if a reviewer asks for what others decided in a blind review."""
        if self.blind and whose != reviewer:
            raise RequestError(BLIND, 409)

    def list_confirmed(self, reviewer: str | None = None) -> dict[str, list[int]]:
        """Return the items of the source that were confirmed, by label; no parts of others.

        In a blind review a reviewer sees only what this reviewer confirmed.
        """
        with self.lock:
            confirmed: dict[str, list[int]] = {}
            verdicts = self.decisions.verdicts
            if self.blind and reviewer is not None:
                verdicts = self.decisions.list_verdicts(reviewer)
            for item, verdict in verdicts.items():
                if verdict.call_label is not None and item < self.items.original_count:
                    confirmed.setdefault(verdict.call_label, []).append(item)
            return confirmed

    def _update_scores(self, scores: "Scores") -> None:
        """Compute scores by the confirmed calls, and show them if they changed."""
        if not scores.update(self.list_confirmed()):
            return
        items = self.items
        ranking = scores.rank(list(items.labels), items.label[: items.original_count])
        with self.lock:
            items.take(ranking)
            self.score_version += 1

    def refresh(self) -> Answer:
        """Wait until the scores are those by the decisions as they are now."""
        if self.worker is None or self.scores is None:
            raise RequestError(f"no new scores: {self.why_no_scores}", 409)
        before = self.items.score
        begin_s = time.perf_counter()
        self.worker.wait(self.worker.ask())
        took_s = time.perf_counter() - begin_s
        with self.lock:
            shared = min(len(before), len(self.items))
            changed = before[:shared] != self.items.score[:shared]
            return {
                "seq": self.seq,
                "took_s": took_s,
                "items_changed": int(changed.sum()),
                "score_version": self.score_version,
            }

    def curve(self) -> Answer:
        """Return the k-shot curve of the labels collected so far, or why there is none."""
        scores = self.scores
        if scores is None:
            return {"why": self.why_no_scores or "there are no vectors"}
        recording = self.items.recording[: self.items.original_count]
        return self.curves.get(self.list_confirmed(), recording, scores.vectors)

    def once(self, name: str, make: Callable[[], Any]) -> Any:
        """Return what is computed when it is first asked for."""
        if name not in self._once:
            self._once[name] = make()
        return self._once[name]

    def list_queue(
        self, reviewer: str, order: str, filters: QueueFilter, offset: int, limit: int
    ) -> Answer:
        """Return the numbers of items in an order, those that a filter shows."""
        if filters.reviewer is not None:
            self.check_visible(reviewer, filters.reviewer)
        with self.lock:
            keep = select_items(filters, self.items, self.decisions, reviewer)
            if self.blind and filters.state == "conflict":
                keep[:] = False
            ordered = self._order(order)
            ids = ordered[keep[ordered]]
            return {
                "total": len(ids),
                "offset": offset,
                "ids": ids[offset : offset + limit].tolist(),
                "seq": self.seq,
                "score_version": self.score_version,
            }

    def _order(self, name: str) -> IntArray:
        """Return all items in an order, which is kept until scores or items change."""
        key = (name, self.score_version, len(self.items))
        if key not in self._orders:
            limits = self.source.thresholds
            thresholds = [limits.get(label, math.nan) for label in self.items.labels]
            orders = {
                earlier: order
                for earlier, order in self._orders.items()
                if earlier[1:] == key[1:]
            }
            orders[key] = order_items(
                name, self.items, np.array(thresholds), self.sample
            )
            self._orders = orders
        return self._orders[key]

    def describe_items(self, ids: Sequence[int], reviewer: str) -> list[Answer]:
        """Return what is known of some items; those that are gone are left out."""
        with self.lock:
            items = [item for item in ids if self._is_active(item)]
            return [self._describe_item(item, reviewer) for item in items]

    def _is_active(self, item: int) -> bool:
        return 0 <= item < len(self.items) and bool(self.items.is_active[item])

    def check_item(self, item: int) -> int:
        """Return the number of an item; raise RequestError if there is none."""
        if not self._is_active(item):
            raise RequestError(f"item {item}: there is none with this number", 404)
        return item

    def _describe_item(self, item: int, reviewer: str) -> Answer:
        items = self.items
        row = items.describe(item)
        start_s, end_s = self.find_span(item, reviewer)
        parent = int(items.parent[item])
        return {
            "id": item,
            "recording": row["recording"],
            "start_s": start_s,
            "end_s": end_s,
            "label": row["label"],
            "clock": items.clock[items.row[item]],
            "recording_duration_s": self.source.durations_s.get(row["recording"]),
            "original": {name: row[name] for name in ("start_s", "end_s", "label")},
            "parent": None if parent < 0 else parent,
            **self._describe_scores(item),
            **self._describe_decisions(item, reviewer),
        }

    def _describe_scores(self, item: int) -> Answer:
        items = self.items
        return {
            "score": finite(items.score[item]),
            "distance": finite(items.distance[item]),
            "runner_up": items.name(int(items.runner_up[item])),
            "runner_up_score": finite(items.runner_up_score[item]),
        }

    def _describe_decisions(self, item: int, reviewer: str) -> Answer:
        """Return what this reviewer said of an item, and what others did unless it is blind."""
        decision = self.decisions.find(item, reviewer)
        answer: Answer = {"decision": None, "others": [], "settled": None}
        if decision is not None:
            answer["decision"] = decision.to_json()
        if self.blind:
            return answer
        everybody = self.decisions.find_all(item)
        answer["others"] = [
            decision.to_json()
            for decision in everybody
            if decision.reviewer != reviewer
        ]
        settled = self.decisions.find_settled(item)
        if settled is not None:
            answer["settled"] = settled.to_json()
        return answer

    def find_span(self, item: int, reviewer: str) -> tuple[float, float]:
        """Return the span of an item as a reviewer sees it."""
        decision = self.decisions.find(item, reviewer)
        if decision is None or decision.start_s is None or decision.end_s is None:
            return float(self.items.start_s[item]), float(self.items.end_s[item])
        return decision.start_s, decision.end_s

    def list_changes(self, after: int) -> Answer:
        """Return what changed after a row of the journal."""
        with self.lock:
            touched: set[int] = set()
            for seq, changed in reversed(self.decisions.changes):
                if seq <= after:
                    break
                touched |= changed
            return {
                "seq": self.seq,
                "items": sorted(touched),
                "score_version": self.score_version,
            }

    def decide(self, reviewer: str, requests: Sequence[Any]) -> Answer:
        """Save decisions, all of them or none."""
        if not requests:
            raise RequestError("decisions: expected one or more")
        with self.lock:
            entries = [self._check(request, reviewer) for request in requests]
            touched = {entry.body["item"] for entry in entries}
            touched |= self._save(entries, reviewer)
            touched |= self._parts_of(touched)
            return {
                **self._describe_change(touched, reviewer),
                "saved": [entry.uuid for entry in entries],
            }

    def undo(self, reviewer: str, request: Mapping[str, Any], action: str) -> Answer:
        """Take back the latest batches of a reviewer, or bring back what was taken last."""
        entry = check_undo(request, action)
        with self.lock:
            possible = {UNDO: self.decisions.can_undo, REDO: self.decisions.can_redo}
            is_known = bool(self.journal.find([entry.uuid]))
            nothing = not is_known and not possible[action](reviewer)
            touched: set[int] = set()
            if not nothing:
                touched = self._save([entry], reviewer)
            gone = [item for item in sorted(touched) if not self.items.is_active[item]]
            answer = self._describe_change(touched, reviewer)
            return {**answer, "gone": gone, "nothing": nothing}

    def settle(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Settle a conflict: a label, or None for no call of these labels."""
        self.check_visible(reviewer, None)
        with self.lock:
            entry = check_settlement(request, self.items)
            self._save([entry], reviewer)
            return self._describe_change({entry.body["item"]}, reviewer)

    def add_label(self, reviewer: str, name: Any) -> None:
        """Add a label, unless there is one of this name."""
        if not isinstance(name, str) or not 0 < len(name.strip()) <= LONGEST_LABEL:
            raise RequestError(f"name: expected a text of 1 to {LONGEST_LABEL} letters")
        name = name.strip()
        if not name.isprintable():
            raise RequestError("name: expected a text without control characters")
        with self.lock:
            if name not in self.items.labels:
                entry = NewEntry(str(uuid.uuid4()), LABEL, {"label": name})
                self._save([entry], reviewer)

    def _check(self, request: Any, reviewer: str) -> NewEntry:
        return check_decision(
            request,
            self.items,
            self.source.durations_s,
            lambda item: self.find_span(item, reviewer),
        )

    def _save(self, entries: Sequence[NewEntry], reviewer: str) -> set[int]:
        """Save the rows that are not saved yet; return the items that they changed."""
        touched: set[int] = set()
        new = self._leave_out_known(entries, reviewer)
        if new:
            for entry in self.journal.append(entries[0].uuid, reviewer, new):
                touched |= self.decisions.apply(entry)
            if self.worker is not None:
                self.worker.ask()
        return touched

    def _leave_out_known(
        self, entries: Sequence[NewEntry], reviewer: str
    ) -> list[NewEntry]:
        """Return the rows that are not saved yet; raise RequestError if others have a uuid."""
        names = [entry.uuid for entry in entries]
        if len(set(names)) < len(names):
            raise RequestError("uuid: the same twice in one request")
        earlier: dict[str, Entry] = self.journal.find(names)
        for entry in entries:
            if entry.uuid in earlier:
                check_same(entry, earlier[entry.uuid], reviewer)
        return [entry for entry in entries if entry.uuid not in earlier]

    def _parts_of(self, touched: set[int]) -> set[int]:
        parts = np.flatnonzero(np.isin(self.items.parent, list(touched)))
        return set(parts.tolist())

    def _describe_change(self, touched: set[int], reviewer: str) -> Answer:
        active = [item for item in sorted(touched) if self.items.is_active[item]]
        return {
            "seq": self.seq,
            "items": [self._describe_item(item, reviewer) for item in active],
            "progress": self.count_progress(reviewer),
            "changed_scores": self.can_refresh,
            "score_version": self.score_version,
        }

    def count_progress(self, reviewer: str) -> dict[str, int]:
        """Return how many items a reviewer decided, skipped, and has left."""
        status = self.decisions.status(reviewer)
        counts = count_status(status, self.items.is_active).tolist()
        undecided, decided, skipped = counts
        return {
            "done": decided,
            "total": sum(counts),
            "undecided": undecided,
            "skipped": skipped,
        }
