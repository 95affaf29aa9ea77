"""A review that is open: items, the journal of decisions on them, and what follows from both.

Methods that answer the page return what it gets as JSON. They may be called from several threads;
one of them at a time reads or changes decisions.
"""

import shlex
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.errors import CallshotError, RequestError, suggest_name
from callshot.records import IntArray
from callshot.review.decisions import (
    DECIDED,
    LABEL,
    SKIPPED,
    UNDECIDED,
    Decisions,
    check_decision,
    check_same,
    check_settlement,
    check_undo,
    make_row,
)
from callshot.review.estimates import (
    CurveWorker,
    estimate_precision,
    measure_agreement,
)
from callshot.review.items import (
    NEED_SCORES,
    ORDERS,
    PLACE,
    SCORES,
    draw_sample,
    order_items,
    replace_scores,
    select_items,
)
from callshot.review.journal import Journal, Row
from callshot.review.scores import Scores, ScoreWorker
from callshot.review.sound import FULL_SCALE, Clip, Picture, make_levels
from callshot.review.sources import Source
from callshot.spans import Spans
from callshot.version import __version__

if TYPE_CHECKING:
    from callshot.detection.model import Model

SEED = 0
MAX_ITEMS = 200
MAX_CONTEXT_S = 60.0
MAX_LABEL_LENGTH = 200
MAX_EXAMPLE_CLASSES = 2
MAX_EXAMPLES = 4
BLIND = (
    "what other reviewers decided is hidden: start the review without --blind to see it"
)
STATES = {"undecided": UNDECIDED, "decided": DECIDED, "skipped": SKIPPED}
KEYS = "123456789"
# What suits calls of some pitch: spectrogram settings, and the speed of the sound.
PRESETS: dict[str, dict[str, Any]] = {
    "infrasound": {"window_s": 0.5, "max_hz": 250.0, "speed": 8.0},
    "audible": {"window_s": 0.032, "max_hz": 12000.0, "speed": 1.0},
    "ultrasound": {"window_s": 0.004, "max_hz": 125000.0, "speed": 0.125},
}
COMMON = {"min_hz": 0.0, "scale": "linear", "colours": "viridis", "range_db": 60.0}
INFRASOUND_RATE_HZ = 4000.0  # recordings up to this rate have been made for low calls
ULTRASOUND_RATE_HZ = 96000.0
LEVEL_ITEMS = 5  # from which the quietest colour is chosen
LEVEL_QUANTILE = 0.3
MAX_LEVEL_S = 10.0
FLOOR_DB = -100.0
FLOOR_STEP_DB = 5.0

Answer = dict[str, Any]


@dataclass(frozen=True)
class Sound:
    """A span that can be heard and seen.

    key   changes when its samples do
    read  returns the samples, with some seconds more on both sides where there are any
    """

    key: tuple[Any, ...]
    start_s: float
    end_s: float
    read: Callable[[float], Clip]


class Review:
    """An open review."""

    def __init__(
        self, source: Source, journal: Journal, *, reviewer: str, blind: bool = False
    ) -> None:
        self.source = source
        self.journal = journal
        self.reviewer = reviewer
        self.blind = blind
        self.lock = RLock()
        self.score_version = 0
        self.sample = draw_sample(source.items, SEED)
        self.decisions = Decisions(source.items)
        self.decisions.apply_all(journal.content.entries, journal.path)
        self.curves = CurveWorker()
        self._orders: dict[tuple[str, int, int], IntArray] = {}
        self.worker: ScoreWorker | None = None
        if source.load_scores is not None:
            load = partial(source.load_scores, journal.path.parent)
            self.worker = ScoreWorker(load, self._update_scores)

    def close(self) -> None:
        """Stop what runs beside the review."""
        if self.worker is not None:
            self.worker.stop()
        self.curves.wait()

    @property
    def items(self) -> Spans:
        """All items, with the latest scores."""
        return self.decisions.items

    @property
    def seq(self) -> int:
        """The number of the latest row of the journal."""
        return self.decisions.seq

    @property
    def scores(self) -> Scores | None:
        """What new scores are computed from, None if there is nothing."""
        return None if self.worker is None else self.worker.scores

    @property
    def model(self) -> "Model | None":
        """The model that scores are computed by."""
        return None if self.scores is None else self.scores.model

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

    # Scores

    def list_confirmed(self, reviewer: str | None = None) -> dict[str, list[int]]:
        """Return the items of the source that were confirmed, by label; no parts of others.

        In a blind review a reviewer sees only what this reviewer confirmed.
        """
        with self.lock:
            decisions = self.decisions
            verdicts: Mapping[int, Answer | None] = decisions.verdicts
            if self.blind and reviewer is not None:
                verdicts = {
                    item: decisions.find_verdict(item, reviewer)
                    for item in decisions.touched
                }
            confirmed: dict[str, list[int]] = {}
            for item, verdict in verdicts.items():
                label = None if verdict is None else verdict["label"]
                if label is not None and item < decisions.source_count:
                    confirmed.setdefault(label, []).append(item)
            return confirmed

    def _update_scores(self, scores: Scores) -> None:
        """Compute scores by the confirmed calls, and show them if they changed."""
        if not scores.update(self.list_confirmed()):
            return
        ranking = scores.rank(self.source.items.frame["label"], self.decisions.labels)
        with self.lock:
            self.decisions.items = replace_scores(self.items, ranking)
            self.score_version += 1

    def refresh(self) -> Answer:
        """Wait until the scores are those by the decisions as they are now."""
        if self.worker is None or self.scores is None:
            raise RequestError(f"no new scores: {self.why_no_scores}", 409)
        before = self.items.frame["score"]
        begin_s = time.perf_counter()
        self.worker.wait(self.worker.ask())
        took_s = time.perf_counter() - begin_s
        with self.lock:
            after = self.items.frame["score"].head(len(before))
            return {
                "seq": self.seq,
                "took_s": took_s,
                "items_changed": int(before.ne_missing(after).sum()),
                "score_version": self.score_version,
            }

    # What the page shows

    def describe_session(self, reviewer: str) -> Answer:
        """Return everything about a session that the page needs once."""
        presets, preset = self._presets
        with self.lock:
            frame = self.items.frame
            source = self.source
            scores = frame["score"].drop_nulls()
            reviewers = [] if self.blind else self.decisions.reviewers
            recordings = frame.group_by("recording").len("count").sort("recording")
            return {
                "title": source.title,
                "kind": source.kind,
                "review_id": str(self.journal.content.facts.get("id")),
                "reviewer": reviewer,
                "reviewers": sorted({*reviewers, reviewer}),
                "blind": self.blind,
                "version": __version__,
                "labels": self.list_labels(),
                "orders": self._describe_orders(has_scores=len(scores) > 0),
                "total": int(self.decisions.is_active.sum()),
                "recordings": [
                    {
                        "path": name,
                        "duration_s": source.durations_s.get(name),
                        "count": count,
                    }
                    for name, count in recordings.iter_rows()
                ],
                "score_range": [scores.min(), scores.max()] if len(scores) else None,
                "has_clock": frame["hour"].is_not_null().any(),
                "can_refresh": self.scores is not None,
                "why_no_refresh": self.why_no_scores or None,
                "presets": presets,
                "preset": preset,
                "max_context_s": MAX_CONTEXT_S,
                "learn_command": self.describe_learning(),
                "seq": self.seq,
                "score_version": self.score_version,
            }

    def describe_learning(self) -> str:
        """Return the command that makes a model with the confirmed calls."""
        folder = shlex.quote(str(self.journal.path.parent))
        facts = self.source.facts
        if facts.get("model") is not None:
            return f"callshot learn --add {folder} --out better.npz"
        encoder = "" if facts.get("encoder") else " --encoder NAME"
        return f"callshot learn {folder}{encoder} --out calls.npz"

    def list_labels(self) -> list[Answer]:
        """Return all labels with their number of items and the key for each."""
        counts = dict(self.source.items.frame["label"].value_counts().iter_rows())
        labels = []
        for number, name in enumerate(self.decisions.labels):
            key = KEYS[number] if number < len(KEYS) else None
            labels.append({"name": name, "key": key, "count": counts.get(name, 0)})
        return labels

    def _describe_orders(self, *, has_scores: bool) -> list[Answer]:
        orders = []
        for name, title in ORDERS.items():
            available = has_scores or name not in NEED_SCORES
            why = self.source.why_no_scores or "there are no scores"
            order = {"name": name, "title": title, "available": available}
            orders.append({**order, "why": None if available else why})
        return orders

    @cached_property
    def _presets(self) -> tuple[dict[str, Answer], str]:
        """The presets, their quietest colour at the noise of some items, and which suits."""
        rates_hz = []
        clips = []
        for row in self.source.items.frame[self.sample[:LEVEL_ITEMS]].iter_rows(
            named=True
        ):
            end_s = min(row["end_s"], row["start_s"] + MAX_LEVEL_S)
            files = self.source.files
            try:
                rates_hz.append(files.describe(row["recording"]).rate_hz)
                clips.append(files.read(row["recording"], row["start_s"], end_s))
            except CallshotError:
                continue
        name = "audible"
        if rates_hz and max(rates_hz) <= INFRASOUND_RATE_HZ:
            name = "infrasound"
        elif rates_hz and max(rates_hz) >= ULTRASOUND_RATE_HZ:
            name = "ultrasound"
        presets = {}
        for key, settings in PRESETS.items():
            picture = Picture(100, 64, settings["window_s"], 0.0, settings["max_hz"])
            floor_db = _find_floor(clips, picture)
            presets[key] = {**COMMON, **settings, "floor_db": floor_db}
        return presets, name

    def list_queue(
        self,
        reviewer: str,
        order: str,
        offset: int,
        limit: int,
        *,
        state: str = "undecided",
        whose: str | None = None,
        **filters: Any,
    ) -> Answer:
        """Return the numbers of items in an order: of a state, decided by somebody, or filtered."""
        if whose is not None:
            self.check_visible(reviewer, whose)
        with self.lock:
            decisions = self.decisions
            keep = decisions.is_active & select_items(self.items, **filters)
            if state in STATES:
                keep &= decisions.get_status(reviewer) == STATES[state]
            elif state == "conflict":
                conflicts = [] if self.blind else sorted(decisions.conflicts)
                keep &= np.isin(np.arange(len(keep)), conflicts)
            elif state != "all":
                states = (*STATES, "conflict", "all")
                raise RequestError(f"state: {state}: {suggest_name(state, states)}")
            if whose is not None:
                keep &= decisions.get_status(whose) != UNDECIDED
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
        version = (self.score_version, len(self.items))
        if (name, *version) not in self._orders:
            orders = self._orders.items()
            self._orders = {key: order for key, order in orders if key[1:] == version}
            thresholds = self.source.thresholds
            order = order_items(name, self.items, thresholds, self.sample)
            self._orders[name, *version] = order
        return self._orders[name, *version]

    def describe_items(self, ids: Sequence[int], reviewer: str) -> list[Answer]:
        """Return what is known of some items; those that are gone are left out."""
        with self.lock:
            items = [item for item in ids if self._has_item(item)]
            return [self._describe_item(item, reviewer) for item in items]

    def _has_item(self, item: int) -> bool:
        return 0 <= item < len(self.items) and item not in self.decisions.gone

    def check_item(self, item: int) -> int:
        """Return the number of an item; raise RequestError if there is none."""
        if not self._has_item(item):
            raise RequestError(f"item {item}: there is none with this number", 404)
        return item

    def _describe_item(self, item: int, reviewer: str) -> Answer:
        """Return an item, and what was said of it: of others nothing if the review is blind."""
        decisions = self.decisions
        row = self.items.frame.row(item, named=True)
        start_s, end_s = decisions.find_span(item, reviewer)
        others = [] if self.blind else decisions.find_all(item)
        return {
            **{name: row[name] for name in (*PLACE, *SCORES, "clock", "parent")},
            "id": item,
            "start_s": start_s,
            "end_s": end_s,
            "recording_duration_s": self.source.durations_s.get(row["recording"]),
            "original": {name: row[name] for name in ("start_s", "end_s", "label")},
            "decision": decisions.find(item, reviewer),
            "others": [one for one in others if one["reviewer"] != reviewer],
            "settled": None if self.blind else decisions.find_settled(item),
        }

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

    def describe_progress(self, reviewer: str) -> Answer:
        """Return what the decisions amount to."""
        with self.lock:
            counts = self.count_progress(reviewer)
            reviewers = []
            for name in self.decisions.reviewers:
                of_name = self.count_progress(name)
                decided = of_name["done"] + of_name["skipped"]
                reviewers.append({"name": name, "decisions": decided})
            # A blind reviewer learns how far others agree after the last item: each step of it
            # would show what others said.
            agreement: Answer = {
                "pairs": 0,
                "agreed": 0,
                "kappa": None,
                "conflicts": [],
            }
            if not self.blind:
                agreement["conflicts"] = sorted(self.decisions.conflicts)
            if not self.blind or counts["undecided"] == 0:
                agreement |= measure_agreement(self.decisions)
            return {
                **counts,
                "reviewers": reviewers,
                "classes": self._describe_classes(),
                "agreement": agreement,
                "curve": self._describe_curve(),
                "seq": self.seq,
                "score_version": self.score_version,
            }

    def count_progress(self, reviewer: str) -> dict[str, int]:
        """Return how many items a reviewer decided, skipped, and has left."""
        status = self.decisions.get_status(reviewer)[self.decisions.is_active]
        undecided, decided, skipped = np.bincount(status, minlength=3).tolist()
        return {
            "done": decided,
            "total": len(status),
            "undecided": undecided,
            "skipped": skipped,
        }

    def _describe_classes(self) -> list[Answer]:
        """Return precision and examples of each label."""
        added = [verdict["label"] for verdict in self.decisions.verdicts.values()]
        examples = [] if self.model is None else self.model.examples["label"]
        sampled = self.source.items.frame["label"].gather(self.sample)
        classes = []
        for label in self.decisions.labels:
            order = self.sample[(sampled == label).fill_null(value=False).to_numpy()]
            classes.append(
                {
                    **estimate_precision(order, label, self.decisions),
                    "label": label,
                    "threshold": self.source.thresholds.get(label),
                    "examples": examples.count(label),
                    "added": added.count(label),
                }
            )
        return classes

    def _describe_curve(self) -> Answer:
        """Return the k-shot curve of the labels collected so far, or why there is none."""
        scores = self.scores
        if scores is None:
            return {"why": self.why_no_scores or "there are no vectors"}
        return self.curves.get(self.list_confirmed(), self._recording, scores.vectors)

    @cached_property
    def _recording(self) -> IntArray:
        """The number of the recording of each item of the source."""
        return np.unique(self.source.items["recording"], return_inverse=True)[1]

    # What the page does

    def decide(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Save decisions, all of them or none."""
        requests = request.get("decisions")
        if not isinstance(requests, list) or not 1 <= len(requests) <= MAX_ITEMS:
            raise RequestError(f"decisions: expected a list of 1 to {MAX_ITEMS}")
        with self.lock:
            find_duration_s = self.source.durations_s.get
            rows = [
                check_decision(one, self.decisions, reviewer, find_duration_s)
                for one in requests
            ]
            touched = {row["body"]["item"] for row in rows}
            touched |= self._save(rows, reviewer)
            is_part = self.items.frame["parent"].is_in(list(touched))
            touched |= set(is_part.fill_null(value=False).arg_true())
            answer = self._describe_change(touched, reviewer)
            return {**answer, "saved": [row["uuid"] for row in rows]}

    def undo(self, action: str, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Take back the latest batches of a reviewer, or bring back what was taken last."""
        row = check_undo(request, action)
        with self.lock:
            is_known = bool(self.journal.find([row["uuid"]]))
            nothing = not is_known and not self.decisions.can_change(action, reviewer)
            touched = set() if nothing else self._save([row], reviewer)
            gone = sorted(touched & self.decisions.gone)
            answer = self._describe_change(touched, reviewer)
            return {**answer, "gone": gone, "nothing": nothing}

    def settle(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Settle a conflict: a label, or None for no call of these labels."""
        self.check_visible(reviewer, None)
        with self.lock:
            row = check_settlement(request, self.decisions)
            self._save([row], reviewer)
            return self._describe_change({row["body"]["item"]}, reviewer)

    def add_label(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Add a label, unless there is one of this name."""
        name = request.get("name")
        name = name.strip() if isinstance(name, str) else ""
        if not 0 < len(name) <= MAX_LABEL_LENGTH:
            raise RequestError(
                f"name: expected a text of 1 to {MAX_LABEL_LENGTH} letters"
            )
        if not name.isprintable():
            raise RequestError("name: expected a text without control characters")
        with self.lock:
            if name not in self.decisions.labels:
                row = make_row({"uuid": str(uuid.uuid4())}, LABEL, {"label": name})
                self._save([row], reviewer)
            return {"labels": self.list_labels(), "seq": self.seq}

    def _save(self, rows: Sequence[Row], reviewer: str) -> set[int]:
        """Save the rows that are not saved yet; return the items that they changed."""
        names = [row["uuid"] for row in rows]
        if len(set(names)) < len(names):
            raise RequestError("uuid: the same twice in one request")
        earlier = self.journal.find(names)
        for row in rows:
            if row["uuid"] in earlier:
                check_same(row, earlier[row["uuid"]], reviewer)
        new = [row for row in rows if row["uuid"] not in earlier]
        touched: set[int] = set()
        if new:
            for entry in self.journal.append(names[0], reviewer, new):
                touched |= self.decisions.apply(entry)
            if self.worker is not None:
                self.worker.ask()
        return touched

    def _describe_change(self, touched: set[int], reviewer: str) -> Answer:
        return {
            "seq": self.seq,
            "items": self.describe_items(sorted(touched), reviewer),
            "progress": self.count_progress(reviewer),
            "changed_scores": self.scores is not None,
            "score_version": self.score_version,
        }

    # Sounds, also of labelled calls to compare an item with: examples of the model, and confirmed
    # calls. The number of an example is its row in the model; that of a confirmed call is its item,
    # counted on from there.

    def find_sound(
        self, item: int, reviewer: str, before_s: float, after_s: float, **times_s: Any
    ) -> Sound:
        """Return the sound of an item, or of another span in its recording."""
        start_s, end_s = self.decisions.find_span(self.check_item(item), reviewer)
        start_s = times_s.get("start_s", start_s)
        end_s = times_s.get("end_s", end_s)
        if not 0 <= start_s < end_s:
            raise RequestError("start_s, end_s: expected a span")
        start_s = max(0.0, start_s - before_s)
        end_s += after_s
        name = self.items.frame["recording"][item]
        files = self.source.files

        def read(margin_s: float) -> Clip:
            return files.read(name, start_s - margin_s, end_s + margin_s)

        return Sound((files.stamp(name), start_s, end_s), start_s, end_s, read)

    @property
    def _first_call(self) -> int:
        """The number of the first item, as an example: those of the model come before."""
        return 0 if self.model is None else len(self.model.examples)

    def find_example(self, number: int) -> Sound | int:
        """Return the sound of an example that the model keeps, or the item that it is."""
        if self.model is None or number >= self._first_call:
            return self.check_item(number - self._first_call)
        clip = make_example_clip(self.model, number)
        if clip is None:
            raise RequestError(
                f"example {number}: the model does not keep its sound", 404
            )
        key = ("example", number)
        return Sound(key, clip.start_s, clip.end_s, lambda margin_s: clip)

    def list_examples(self, item: int, reviewer: str) -> list[Answer]:
        """Return the nearest labelled calls of the two best classes of an item."""
        scores = self.scores
        model = self.model
        row = int(self.items.frame["row"][item])
        labels = [self.items.frame["label"][item]]  # where there are no vectors
        if scores is not None:
            labels = scores.find_best(row, MAX_EXAMPLE_CLASSES)
        confirmed = self.list_confirmed(reviewer)
        classes = []
        for label in labels:
            calls = [call for call in confirmed.get(label, []) if call != row]
            numbers = [self._first_call + call for call in calls]
            distances: list[Any] = [None] * len(calls)
            if scores is not None:
                distances = scores.measure(row, scores.vectors[calls]).tolist()
            if scores is not None and model is not None:
                kept = _list_kept_examples(model, label)
                numbers = kept + numbers
                of_model = scores.measure(row, model.vectors[kept]).tolist()
                distances = of_model + distances
            pairs = list(zip(distances, numbers, strict=True))
            if scores is not None:
                pairs.sort(key=lambda pair: pair[0])
            nearest = [self._describe_example(*pair) for pair in pairs[:MAX_EXAMPLES]]
            classes.append({"label": label, "examples": nearest})
        return classes

    def _describe_example(self, distance: float | None, number: int) -> Answer:
        """Return where an example is; a confirmed call as it was decided."""
        item = number - self._first_call
        if item < 0 and self.model is not None:
            span = self.model.examples.frame.row(number, named=True)
            recording = span["path"]
        else:
            span = self.items.frame.row(item, named=True)
            recording = span["recording"]
            verdict = self.decisions.verdicts.get(item)
            if verdict is not None and verdict["start_s"] is not None:
                span = verdict
        return {
            "example": number,
            "recording": recording,
            "start_s": span["start_s"],
            "end_s": span["end_s"],
            "distance": distance,
            "confirmed": item >= 0,
        }


def _list_kept_examples(model: "Model", label: str) -> list[int]:
    """Return the examples of a label whose sound a model keeps."""
    samples = () if model.clips is None else model.clips.samples
    labels = model.examples["label"]
    return [
        number
        for number, kept in enumerate(samples)
        if kept is not None and labels[number] == label
    ]


def make_example_clip(model: "Model", number: int) -> Clip | None:
    """Return the sound of an example at its real rate; of a long call its middle."""
    samples = None if model.clips is None else model.clips.samples[number]
    if model.clips is None or samples is None:
        return None
    speed = model.fingerprint.get("options", {}).get("speed", 1.0)
    rate_hz = model.clips.rate_hz / float(speed)
    signal = samples.astype(np.float32) / np.float32(FULL_SCALE)
    example = model.examples.frame.row(number, named=True)
    length_s = example["end_s"] - example["start_s"]
    excess_s = max(0.0, length_s - len(signal) / rate_hz)
    return Clip(signal, rate_hz, example["start_s"] + excess_s / 2)


def _find_floor(clips: Sequence[Clip], picture: Picture) -> float:
    """Return the level of the quieter part of some sounds, in steps of 5 dB."""
    if not clips:
        return FLOOR_DB
    levels = [np.quantile(make_levels(one, picture), LEVEL_QUANTILE) for one in clips]
    floor_db = float(np.median(levels)) // FLOOR_STEP_DB * FLOOR_STEP_DB
    return float(np.clip(floor_db, -160.0, 0.0))
