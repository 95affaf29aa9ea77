"""A review that is open: items, the journal of decisions on them, and what follows from both.

Methods that answer the page return what it gets as JSON. They may be called from several threads;
one of them at a time reads or changes decisions.
"""

import shlex
import time
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from threading import RLock
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from threadpoolctl import threadpool_limits

from callshot.corpus.annotations.rows import FREQUENCIES
from callshot.detection.exports import EXPORTS
from callshot.errors import CallshotError, RequestError, suggest_name
from callshot.review.decisions import (
    DECIDED,
    LABEL,
    SETTLE,
    SKIPPED,
    UNDECIDED,
    Decisions,
    check_decision,
    check_name,
    describe_item,
    make_row,
)
from callshot.review.estimates import (
    BackgroundCurve,
    compute_curve,
    estimate_precision,
    find_obstacle,
    measure_agreement,
)
from callshot.review.journal import Journal, Row
from callshot.review.sound import Clip, Picture, make_levels
from callshot.review.sources import (
    CLIPPED,
    DOUBTFUL,
    DOUBTS,
    MISLABELLED,
    NEED_SCORES,
    ORDERS,
    PLACE,
    PROBABILITY,
    SCORES,
    Scores,
    Source,
    draw_sample,
    order_items,
    replace_scores,
    select_items,
)
from callshot.spans import Spans
from callshot.version import __version__

if TYPE_CHECKING:
    from callshot.detection.model import Model

SEED = 0
MAX_ITEMS = 200
MAX_CONTEXT_S = 60.0
MAX_UNDO = 10_000
MAX_EXAMPLE_CLASSES = 2
MAX_EXAMPLES = 4
# The next card comes first: scores wait until no decision came for a while, but not for ever.
PAUSE_S = 0.2
MAX_PAUSES = 5
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
USUAL_RATE_HZ = 48000.0
ULTRASOUND_RATE_HZ = 96000.0
LEVEL_ITEMS = 5  # from which the quietest colour is chosen
LEVEL_QUANTILE = 0.3
MAX_LEVEL_S = 10.0
LOUD_QUANTILE = 0.998
MIN_RANGE_DB = 20.0
BAND_QUANTILE = 0.1  # of the edges of the calls of a label
BAND_MARGIN = 0.25  # of the band, above and below it
ITEM_MARGIN = 0.05  # of the band of an item, so that its box is seen whole
MIN_ROWS = 64  # bins of frequency in a picture
FLOOR_DB = -100.0
EDGE_S = 1e-3
FULL_SCALE = 0.9999
FLOOR_STEP_DB = 5.0

Answer = dict[str, Any]


class Review:
    """An open review of a source: its items, the decisions on them, and scores that follow these.

    sample         all items of the source in the random order of `draw_sample`
    scores         what new scores are computed from; None until they are loaded, and for the
                   reason `why_no_scores` where there are none
    score_version  changes when scores do
    """

    def __init__(
        self, source: Source, journal: Journal, *, reviewer: str, blind: bool = False
    ) -> None:
        self.source = source
        self.journal = journal
        self.reviewer = reviewer
        self.blind = blind
        self.lock = RLock()
        self.scores: Scores | None = None
        self.why_no_scores = source.why_no_scores
        self.score_version = 0
        self.sample = draw_sample(source.items, SEED)
        self._ranks = pl.DataFrame()
        self._ranks_of = -1  # version of scores
        self._pictures: dict[Any, Answer] = {}  # settings that suit a label
        self.decisions = Decisions(source.items)
        self.decisions.apply_all(journal.entries, journal.path)
        self._score_worker = ThreadPoolExecutor(1, "callshot-scores")
        # The update of scores that was asked for and has not begun.
        self._queued_update: Future[None] | None = None
        self._curve_worker = ThreadPoolExecutor(1, "callshot-curve")
        self._curve = BackgroundCurve(self._curve_worker)
        self._is_closed = False
        if source.annotations is not None:
            self._curve_worker.submit(self._find_clipped)
        if source.load_scores is not None:
            self.why_no_scores = "the vectors of the detections are being read"
            self._score_worker.submit(self._load_scores)

    def close(self) -> None:
        """Stop what runs beside the review."""
        self._is_closed = True
        self._score_worker.shutdown(cancel_futures=True)
        self._curve_worker.shutdown(cancel_futures=True)

    @property
    def items(self) -> Spans:
        """All items, with the latest scores."""
        return self.decisions.items

    @property
    def seq(self) -> int:
        """The number of the latest row of the journal."""
        return self.decisions.seq

    @property
    def model(self) -> "Model | None":
        """The model that scores are computed by."""
        return None if self.scores is None else self.scores.model

    def check_visible(self, reviewer: str, whose: str | None) -> None:
        """Raise RequestError if a reviewer asks for what others decided in a blind review."""
        if self.blind and whose != reviewer:
            raise RequestError(
                "what other reviewers decided is hidden: start the review without --blind to see "
                "it",
                409,
            )

    def _find_clipped(self) -> None:
        """Find annotated calls that are cut off or at full scale; runs in a thread."""
        clipped = []
        files = self.source.files
        items = self.source.items.frame.sort("recording", "start_s")
        for part in items.partition_by("recording", maintain_order=True):
            with (
                suppress(CallshotError),
                files.open(part["recording"][0]) as reader,
            ):
                for row in part.iter_rows(named=True):
                    if self._is_closed:
                        return
                    span_s = (row["start_s"], row["end_s"])
                    signal = reader.read_decodable(
                        *span_s,
                        rate_hz=round(reader.recording.rate_hz),
                        channel_rule=files.channel_rule,
                    )
                    starts_late = span_s[0] > EDGE_S
                    ends_early = span_s[1] < reader.recording.duration_s - EDGE_S
                    is_cut = starts_late != ends_early  # not a file of one call
                    if is_cut or np.abs(signal).max() >= FULL_SCALE:
                        clipped.append(row["row"])
        words = pl.concat_str("doubt", pl.lit(f" {CLIPPED}"))
        is_clipped = pl.col("row").is_in(clipped)
        doubt = pl.when(is_clipped).then(words).otherwise("doubt")
        with self.lock:
            frame = self.items.frame.with_columns(doubt=doubt)
            self.decisions.items = replace(self.items, frame=frame)
            self.score_version += 1

    # Scores

    def list_confirmed(self, reviewer: str | None = None) -> dict[str, list[int]]:
        """Return the items of the source that were confirmed, by label; no parts of others.

        In a blind review a reviewer sees only what this reviewer confirmed.
        """
        with self.lock:
            decisions = self.decisions
            whose = reviewer if self.blind else None
            confirmed: dict[str, list[int]] = {}
            for item in decisions.touched:
                verdict = decisions.verdicts.get(item)
                if whose is not None:
                    verdict = decisions.find_verdict(item, whose)
                label = None if verdict is None else verdict["label"]
                if label is not None and item < decisions.source_count:
                    confirmed.setdefault(label, []).append(item)
            return confirmed

    def _load_scores(self) -> None:
        """Load what scores are computed from; runs in a thread. If that fails, keep the reason."""
        assert self.source.load_scores is not None
        try:
            self.scores = self.source.load_scores(self.journal.path.parent)
            self.why_no_scores = ""
        except (CallshotError, MemoryError, OSError) as error:
            self.why_no_scores = f"scores do not follow the decisions: {error}"
        self.ask_scores()

    def ask_scores(self) -> Future[None]:
        """Ask for scores by the decisions as they are now; the future is done when they are there.

        Scores that were asked for, but not begun, are computed once for all who asked.
        """
        with self.lock:
            if self._queued_update is None:
                self._queued_update = self._score_worker.submit(self._update_scores)
            return self._queued_update

    def _update_scores(self) -> None:
        """Compute scores by the confirmed calls in a thread, and show them if they changed.

        It waits first, while decisions keep coming: the page goes before scores.
        """
        for _ in range(MAX_PAUSES):
            seq = self.seq
            time.sleep(PAUSE_S)
            if seq == self.seq:
                break
        with self.lock:
            self._queued_update = None  # later decisions need another update
        if self.scores is None:
            return
        with threadpool_limits(1):  # the other cores serve the page
            if not self.scores.update(self.list_confirmed()):
                return
            label = self.source.items.frame["label"]
            ranking = self.scores.rank(label, self.decisions.labels)
        with self.lock:
            self.decisions.items = replace_scores(self.items, ranking)
            self.score_version += 1

    # What the page shows

    def describe_session(self, reviewer: str) -> Answer:
        """Return everything about a session that the page needs once."""
        presets, preset = self._presets
        with self.lock:
            frame = self.items.frame
            source = self.source
            scores = frame["score"].drop_nulls()
            reviewers = [] if self.blind else self.decisions.status
            recordings = frame.group_by("recording").len("count").sort("recording")
            doubts = {} if source.annotations is None else {**DOUBTS}
            if len(scores) == 0:
                doubts.pop(MISLABELLED, None)
            orders = []
            for name, title in ORDERS.items():
                why = None
                if len(scores) == 0 and name in NEED_SCORES:
                    why = source.why_no_scores or "there are no scores"
                order = {"name": name, "title": title, "why": why}
                if name != DOUBTFUL:
                    orders.append(order)
                elif doubts:  # the first order, if scores say what looks wrong
                    orders.insert(0 if len(scores) else len(orders), order)
            return {
                "title": source.title,
                "kind": source.kind,
                "doubts": doubts,
                "annotations": source.annotations,
                "review_id": str(self.journal.facts.get("id")),
                "reviewer": reviewer,
                "reviewers": sorted({*reviewers, reviewer}),
                "blind": self.blind,
                "version": __version__,
                "labels": self.list_labels(),
                "orders": orders,
                "total": int(self.decisions.is_active.sum()),
                "recordings": recordings.rename({"recording": "path"}).to_dicts(),
                "score_range": [scores.min(), scores.max()] if len(scores) else None,
                "has_clock": frame["hour"].is_not_null().any(),
                "why_no_refresh": self.why_no_scores or None,
                "presets": presets,
                "preset": preset,
                "max_context_s": MAX_CONTEXT_S,
                "exports": [name for name, one in EXPORTS.items() if one.on_page],
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
        counts = Counter(self.source.items["label"])
        return [
            {"name": name, "key": KEYS[n : n + 1] or None, "count": counts[name]}
            for n, name in enumerate(self.decisions.labels)
        ]

    @cached_property
    def _presets(self) -> tuple[dict[str, Answer], str]:
        """The spectrogram settings of each preset, and the name of the preset that suits."""
        items = self.source.items.frame[self.sample[:LEVEL_ITEMS]]
        return suggest_presets(self._read_clips(items))

    def _read_clips(self, items: pl.DataFrame) -> list[Clip]:
        """Return the sound of items, without those that cannot be read."""
        clips = []
        for row in items.iter_rows(named=True):
            end_s = min(row["end_s"], row["start_s"] + MAX_LEVEL_S)
            with suppress(CallshotError):
                read = self.source.files.read
                clips.append(read(row["recording"], row["start_s"], end_s))
        return clips

    def fit_picture(self, picture: Picture, item: int, example: int) -> Picture:
        """Return a picture with the band and contrast of a label, so that its calls fill it.

        It is the label of an item, or of an example if its number is not negative. Where the band
        of its calls is not known, it is the one of the picture. The band of the item is in it.
        """
        label = self.find_label(item, example)
        key = (label, picture.min_hz, picture.max_hz, picture.window_s)
        if key not in self._pictures:
            fitted = self._fit_label(picture, label)
            names = ("min_hz", "max_hz", "window_s", "floor_db", "range_db")
            self._pictures[key] = {name: getattr(fitted, name) for name in names}
        fitted = replace(picture, **self._pictures[key])
        if example >= 0:
            return fitted
        own = self.items.frame.row(item, named=True)
        low_hz, high_hz = own["low_freq_hz"], own["high_freq_hz"]
        if low_hz is None or high_hz is None:
            return fitted
        margin_hz = ITEM_MARGIN * (high_hz - low_hz)
        low_hz = max(0.0, min(fitted.min_hz, low_hz - margin_hz))
        high_hz = max(fitted.max_hz, high_hz + margin_hz)
        return replace(fitted, min_hz=low_hz, max_hz=high_hz)

    def _fit_label(self, picture: Picture, label: str | None) -> Picture:
        """Return a picture with the band and contrast of the items of a label, from a sample."""
        in_order = self.source.items.frame[self.sample]
        sampled = in_order.filter(pl.col("label").eq_missing(pl.lit(label)))
        low_hz = sampled["low_freq_hz"].quantile(BAND_QUANTILE)
        high_hz = sampled["high_freq_hz"].quantile(1 - BAND_QUANTILE)
        fitted = picture
        if low_hz is not None and high_hz is not None and low_hz < high_hz:
            margin_hz = BAND_MARGIN * (high_hz - low_hz)
            top_hz = high_hz + margin_hz
            low_hz = max(0.0, low_hz - margin_hz)
            window_s = max(picture.window_s, MIN_ROWS / (top_hz - low_hz))
            fitted = replace(picture, min_hz=low_hz, max_hz=top_hz, window_s=window_s)
        return fit_contrast(fitted, self._read_clips(sampled[:LEVEL_ITEMS]))

    def find_label(self, item: int, example: int) -> str | None:
        """Return the label of an item, or of an example if its number is not negative."""
        if self.model is not None and 0 <= example < self.first_call:
            return self.model.examples.label[example]
        number = item if example < 0 else example - self.first_call
        self.check_item(number)
        label: str | None = self.items.frame["label"][number]
        return label

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
        """List the numbers of items from `offset` on, at most `limit`, in one of ORDERS.

        Items are in a `state` for this reviewer: a key of STATES, or conflict, or all. With
        `whose`, only items that this other reviewer decided or skipped are listed. `filters` are
        those of `select_items`.
        """
        with self.lock:
            decisions = self.decisions
            keep = decisions.is_active & select_items(self.items, filters)
            if state in STATES:
                keep &= decisions.get_status(reviewer) == STATES[state]
            elif state == "conflict":
                conflicts = [] if self.blind else list(decisions.conflicts)
                keep &= np.isin(np.arange(len(keep)), conflicts)
            elif state != "all":
                states = (*STATES, "conflict", "all")
                raise RequestError(f"state: {state}: {suggest_name(state, states)}")
            if whose is not None:
                self.check_visible(reviewer, whose)
                keep &= decisions.get_status(whose) != UNDECIDED
            thresholds = self.source.thresholds
            ordered = order_items(order, self.items, thresholds, self.sample)
            ids = ordered[keep[ordered]]
            return {
                "total": len(ids),
                "offset": offset,
                "ids": ids[offset : offset + limit].tolist(),
                "seq": self.seq,
                "score_version": self.score_version,
            }

    def _rank_items(self) -> pl.DataFrame:
        """Return the place of each item of the source among those of its label, and their number.

        The best score has place 1.
        """
        if self._ranks_of != self.score_version:
            score = pl.col("score")
            source = self.items.frame[: self.decisions.source_count]
            self._ranks = source.select(
                rank=score.rank("min", descending=True).over("label"),
                rank_of=score.count().over("label"),
            )
            self._ranks_of = self.score_version
        return self._ranks

    def list_nearby(self, item: int, reviewer: str) -> list[Answer]:
        """Describe the items that may be seen around an item, without itself."""
        with self.lock:
            start_s, end_s = self.decisions.find_span(item, reviewer)
            is_near = self.items.frame.select(
                (pl.col("recording") == self.items["recording"][item])
                & (pl.col("end_s") > start_s - MAX_CONTEXT_S)
                & (pl.col("start_s") < end_s + MAX_CONTEXT_S)
            )
            numbers = is_near.to_series().arg_true().to_list()
            others = [number for number in numbers if number != item]
            return self.describe_items(others[:MAX_ITEMS], reviewer)

    def describe_items(self, ids: Sequence[int], reviewer: str) -> list[Answer]:
        """Describe items as a reviewer sees them: their place, scores, and decisions on them.

        Items that do not exist, or not any more, are left out. In a blind review the decisions of
        others are left out too.
        """
        described = []
        names = (
            *PLACE,
            *SCORES,
            *PROBABILITY,
            *FREQUENCIES,
            "clock",
            "parent",
            "added",
            "doubt",
        )  # columns that stay as they are
        with self.lock:
            ranks = self._rank_items()
            for item in ids:
                if item >= len(self.items) or item in self.decisions.gone:
                    continue
                others = self.decisions.find_all(item)
                own = others.pop(reviewer, None)
                settled = self.decisions.find_settled(item)
                if self.blind:
                    others = {}
                    settled = None
                row = self.items.frame.row(item, named=True)
                start_s, end_s = self.decisions.find_span(item, reviewer)
                duration_s = self.source.durations_s.get(row["recording"])
                described.append(
                    {
                        **{name: row[name] for name in names},
                        "id": item,
                        "rank": None if row["added"] else ranks["rank"][row["row"]],
                        "rank_of": ranks["rank_of"][row["row"]],
                        "start_s": start_s,
                        "end_s": end_s,
                        "recording_duration_s": duration_s,
                        "original": {name: row[name] for name in PLACE[1:]},
                        "decision": own,
                        "settled": settled,
                        "others": list(others.values()),
                    }
                )
        return described

    def check_item(self, item: int) -> None:
        """Raise RequestError if there is no item with this number, or not any more."""
        if not 0 <= item < len(self.items) or item in self.decisions.gone:
            raise RequestError(f"item {item}: there is none with this number", 404)

    def list_changes(self, after: int) -> Answer:
        """Return which items changed after the row `after` of the journal."""
        with self.lock:
            touched = set()
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
        """Return what the decisions so far amount to, as a reviewer may see it.

        That is how much is done, the precision of each class, how far reviewers agree, and the
        k-shot curve of the confirmed calls.
        """
        with self.lock:
            decisions = self.decisions
            counts = self.count_progress(reviewer)
            active = decisions.is_active
            reviewers = []
            for name in sorted(decisions.status):
                decided = np.count_nonzero(decisions.status[name][active])
                reviewers.append({"name": name, "decisions": int(decided)})
            # A blind reviewer learns how far others agree after the last item: each step of it
            # would show the decisions of others.
            agreement = {"pairs": 0, "agreed": 0, "kappa": None}
            if not self.blind or counts["undecided"] == 0:
                agreement = measure_agreement(decisions)
            conflicts = [] if self.blind else sorted(decisions.conflicts)

            verdict_labels = [one["label"] for one in decisions.verdicts.values()]
            examples = [] if self.model is None else self.model.examples.label
            sampled = self.source.items.frame["label"].gather(self.sample)
            classes = []
            for label in decisions.labels:
                order = self.sample[sampled.eq_missing(label).to_numpy()]
                classes.append(
                    {
                        **estimate_precision(order, label, decisions),
                        "label": label,
                        "threshold": self.source.thresholds.get(label),
                        "examples": examples.count(label),
                        "added": verdict_labels.count(label),
                    }
                )
            return {
                **counts,
                "reviewers": reviewers,
                "classes": classes,
                "agreement": {**agreement, "conflicts": conflicts},
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

    def _describe_curve(self) -> Answer:
        """Return the k-shot curve of the calls confirmed so far, or why there is none."""
        if self.scores is None:
            return {"why": self.why_no_scores}
        recording = np.unique(self.source.items["recording"], return_inverse=True)[1]
        confirmed = self.list_confirmed()
        why = find_obstacle(confirmed, recording)
        if why:
            return {"why": why}
        vectors = self.scores.vectors
        compute = partial(compute_curve, confirmed, recording, vectors)
        return self._curve.describe(confirmed, compute)

    # What the page does

    def decide(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Save the decisions of a request, all of them or none; return the items that changed.

        Decisions that were saved before, by their uuid, are not saved again.
        """
        requests = request.get("decisions")
        if not isinstance(requests, list) or not 1 <= len(requests) <= MAX_ITEMS:
            raise RequestError(f"decisions: expected a list of 1 to {MAX_ITEMS}")
        with self.lock:
            find_duration_s = self.source.durations_s.get
            rows = [
                check_decision(one, self.decisions, reviewer, find_duration_s)
                for one in requests
            ]
            touched = self._save(rows, reviewer)
            for row in rows:  # also of those that were saved before
                touched.add(row["body"].get("item", row["body"].get("beside")))
            # Their parts, and calls that were added to them, change with them.
            is_part = self.items.frame["parent"].is_in(list(touched))
            touched |= set(is_part.fill_null(value=False).arg_true())
            answer = self._describe_change(touched, reviewer)
            return {**answer, "saved": [row["uuid"] for row in rows]}

    def undo(self, action: str, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Take back the latest batches of a reviewer, or with REDO bring back what was taken last.

        `count` in the request is how many. Return what changed; `gone` are items that are no more,
        and `nothing` is true if there was nothing to do.
        """
        count = request.get("count", 1)
        if type(count) is not int or not 1 <= count <= MAX_UNDO:
            raise RequestError("count: expected a number of 1 or more")
        row = make_row(request, action, {"count": count})
        with self.lock:
            self.journal.check_file()
            decisions = self.decisions
            is_saved = row["uuid"] in self.journal.by_uuid
            nothing = not is_saved and not decisions.history.can(action, reviewer)
            touched = set() if nothing else self._save([row], reviewer)
            answer = self._describe_change(touched, reviewer)
            gone = sorted(touched & decisions.gone)
            return {**answer, "gone": gone, "nothing": nothing}

    def settle(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Settle a conflict on an item: the label of the request holds, None for no call at all.

        Not in a blind review, which hides conflicts.
        """
        self.check_visible(reviewer, None)
        with self.lock:
            body = describe_item(request, self.decisions)
            label = request.get("label")
            if label is not None and label not in self.decisions.labels:
                raise RequestError("label: expected a known label, or null for none")
            row = make_row(request, SETTLE, {**body, "verdict": label})
            self._save([row], reviewer)
            return self._describe_change({body["item"]}, reviewer)

    def add_label(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Add a label, unless there is one of this name."""
        name = check_name(request.get("name"))
        with self.lock:
            if name not in self.decisions.labels:
                row = make_row({"uuid": str(uuid.uuid4())}, LABEL, {"label": name})
                self._save([row], reviewer)
            return {"labels": self.list_labels(), "seq": self.seq}

    def _save(self, rows: Sequence[Row], reviewer: str) -> set[int]:
        """Save the rows that are not saved yet as one batch; return the items that they changed.

        The batch has the uuid of the first row.
        """
        self.journal.check_file()
        uuids = [row["uuid"] for row in rows]
        if len(set(uuids)) < len(uuids):
            raise RequestError("uuid: the same twice in one request")
        new = [row for row in rows if row["uuid"] not in self.journal.by_uuid]
        touched = set()
        if new:
            batch = uuids[0]
            for entry in self.journal.append(batch, reviewer, new):
                touched |= self.decisions.apply(entry)
            self.ask_scores()
        return touched

    def _describe_change(self, touched: set[int], reviewer: str) -> Answer:
        """Return items as they are after a change, and how far the reviewer is."""
        return {
            "seq": self.seq,
            "items": self.describe_items(sorted(touched), reviewer),
            "progress": self.count_progress(reviewer),
            "score_version": self.score_version,
        }

    # Labelled calls to compare an item with: examples of the model, and confirmed calls. The number
    # of an example is its row in the model; that of a confirmed call is its item, counted on from
    # there.

    @property
    def first_call(self) -> int:
        """The number of the first item as an example, after the examples of the model."""
        return 0 if self.model is None else len(self.model.examples)

    def list_examples(self, item: int, reviewer: str) -> list[Answer]:
        """Return, for each of the two best classes of an item, its labelled calls nearest to it.

        These are examples of the model with a sound, and confirmed calls. Without vectors there
        are no distances: then the class is the label of the item.
        """
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
            numbers = [self.first_call + call for call in calls]
            distances = [0.0] * len(calls)
            if scores is not None:
                vectors = scores.vectors[calls]
                if model is not None:  # its examples with a sound come first
                    spans = model.examples.spans.frame.with_row_index()
                    has_clip = pl.col("clip").is_not_null()
                    rows = spans.filter(has_clip, label=label)["index"].to_list()
                    numbers = [*rows, *numbers]
                    vectors = np.concatenate([model.examples.matrix[rows], vectors])
                differences = vectors - scores.vectors[row]
                distances = np.linalg.norm(differences, axis=1).tolist()
            pairs = sorted(zip(distances, numbers, strict=True))
            nearest = [
                self._describe_example(distance, number)
                for distance, number in pairs[:MAX_EXAMPLES]
            ]
            classes.append({"label": label, "examples": nearest})
        return classes

    def _describe_example(self, distance: float, number: int) -> Answer:
        """Return where an example is, and its distance from the item that it is compared with.

        Numbers below `first_call` are rows of the model, and those from there on confirmed calls,
        which have the spans that reviewers gave them.
        """
        item = number - self.first_call
        if item < 0 and self.model is not None:
            place = self.model.examples.spans.frame.row(number, named=True)
            place["recording"] = place["path"]
        else:
            place = self.items.frame.row(item, named=True)
            verdict = self.decisions.verdicts.get(item)
            if verdict is not None and verdict["start_s"] is not None:
                place |= {name: verdict[name] for name in ("start_s", "end_s")}
        return {
            "example": number,
            **{name: place[name] for name in PLACE[:3]},
            "distance": distance,
            "confirmed": item >= 0,
        }


def suggest_presets(clips: Sequence[Clip]) -> tuple[dict[str, Answer], str]:
    """Return the spectrogram settings of each preset, and the name of the preset that suits.

    The quietest colour, `floor_db`, is at the level of the noise in some clips. The sample rate
    of the recordings says which preset suits.
    """
    name = "audible"
    highest_hz = max((clip.rate_hz for clip in clips), default=USUAL_RATE_HZ)
    if highest_hz <= INFRASOUND_RATE_HZ:
        name = "infrasound"
    elif highest_hz >= ULTRASOUND_RATE_HZ:
        name = "ultrasound"
    presets = {}
    for key, settings in PRESETS.items():
        picture = Picture(
            width=100,
            height=64,
            window_s=settings["window_s"],
            max_hz=settings["max_hz"],
        )
        levels = [make_levels(clip, picture) for clip in clips]
        quiet = [np.quantile(level, LEVEL_QUANTILE) for level in levels]
        floor_db = np.median(quiet or FLOOR_DB) // FLOOR_STEP_DB * FLOOR_STEP_DB
        floor_db = np.clip(floor_db, -160.0, 0.0)
        presets[key] = {**COMMON, **settings, "floor_db": float(floor_db)}
    return presets, name


def fit_contrast(picture: Picture, clips: Sequence[Clip]) -> Picture:
    """Return a picture whose colours reach from the noise to the loudest parts of clips."""
    small = replace(picture, width=100, height=64)
    quantiles = (LEVEL_QUANTILE, LOUD_QUANTILE)
    limits_db = [np.quantile(make_levels(clip, small), quantiles) for clip in clips]
    if not limits_db:
        return picture
    floor_db, top_db = np.median(limits_db, axis=0)
    range_db = max(MIN_RANGE_DB, float(top_db - floor_db))
    return replace(picture, floor_db=float(floor_db), range_db=range_db)


def make_example_clip(model: "Model", number: int) -> Clip:
    """Return the sound of an example that a model keeps, at its real rate.

    The model keeps only the middle of a long call, and sounds at the speed of its encoder.
    """
    from callshot.detection.model import from_pcm

    example = model.examples.spans.frame.row(number, named=True)
    if example["clip"] is None or model.clip_rate_hz is None:
        raise RequestError(f"example {number}: the model does not keep its sound", 404)
    options = model.fingerprint.get("options", {})
    speed = float(options.get("speed", 1.0))
    rate_hz = model.clip_rate_hz / speed
    signal = from_pcm(example["clip"])
    length_s = example["end_s"] - example["start_s"]
    excess_s = max(0.0, length_s - len(signal) / rate_hz)
    return Clip(signal, rate_hz, example["start_s"] + excess_s / 2)
