"""An open review: items, the journal of decisions on them, and what follows from both.

Methods that answer the page return what it gets as JSON. They may be called from several threads;
one of them at a time reads or changes decisions.
"""

import shlex
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
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
    History,
    check_decision,
    check_name,
    describe_item,
    make_row,
)
from callshot.review.estimates import (
    Answer,
    compute_curve,
    draw_sample,
    estimate_precision,
    find_obstacle,
    measure_agreement,
)
from callshot.review.items import (
    CLIPPED,
    DOUBTFUL,
    DOUBTS,
    MISLABELLED,
    NEED_SCORES,
    ORDERS,
    PLACE,
    PROBABILITY,
    SCORES,
    order_items,
    replace_scores,
    select_items,
)
from callshot.review.journal import Entry, Journal, Row
from callshot.review.sound import (
    LEVEL_HEIGHT,
    LEVEL_WIDTH,
    Clip,
    Picture,
    fit_contrast,
    suggest_presets,
)
from callshot.review.sources import Scores, Source
from callshot.spans import Spans

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
LEVEL_ITEMS = 5  # from which the quietest colour is chosen
MAX_LEVEL_S = 10.0
BAND_QUANTILE = 0.1  # of the edges of the calls of a label
BAND_MARGIN = 0.25  # of the band, above and below it
ITEM_MARGIN = 0.05  # of the band of an item, so that its box is seen whole
MIN_ROWS = 64  # bins of frequency in a picture
EDGE_S = 1e-3
FULL_SCALE = 0.9999
# Columns of items that the page gets as they are.
SHOWN = (
    *PLACE,
    *SCORES,
    *PROBABILITY,
    *FREQUENCIES,
    "clock",
    "parent",
    "added",
    "doubt",
)


class Session:
    """An open journal, what is in effect after its rows, and a worker beside the page.

    `apply` puts a row into effect, and returns what it changed; `history` says what can be undone.

    changes  what each row of the journal changed, as `apply` returned it
    """

    score_version = 0

    def __init__(
        self,
        journal: Journal,
        reviewer: str,
        apply: Callable[[Entry], Any],
        history: History,
    ) -> None:
        self.journal = journal
        self.folder = journal.path.parent
        self.reviewer = reviewer
        self.lock = RLock()
        self.changes = journal.replay(apply)
        self.worker = ThreadPoolExecutor(1, "callshot-beside")
        self._apply = apply
        self._history = history
        self._curve: Answer = {"why": "the curve is being computed"}
        self._curve_key: Any = None  # what the latest curve is about
        self._next_curve: Future[Answer] | None = None

    def close(self) -> None:
        """Stop what runs beside the page."""
        self.worker.shutdown(cancel_futures=True)

    @property
    def seq(self) -> int:
        """The number of the latest row of the journal."""
        return len(self.changes)

    def read_sample(self) -> list[Clip]:
        """Return sounds by which the settings of spectrograms are chosen."""
        raise NotImplementedError

    def describe_changes(self, changes: Sequence[Any], reviewer: str) -> Answer:
        """Return what rows of the journal changed, as it is now."""
        raise NotImplementedError

    @cached_property
    def _presets(self) -> tuple[dict[str, Answer], str]:
        return suggest_presets(self.read_sample())

    def describe_page(self, title: str, reviewer: str) -> Answer:
        """Return what both pages need once."""
        presets, preset = self._presets
        return {
            "title": title,
            "review_id": str(self.journal.facts.get("id")),
            "reviewer": reviewer,
            "presets": presets,
            "preset": preset,
            "exports": [name for name, one in EXPORTS.items() if one.on_page],
            "seq": self.seq,
        }

    def get_latest_curve(self, key: Any, compute: Callable[[], Answer]) -> Answer:
        """Return the latest k-shot curve at once, which may be of earlier data than is wanted.

        `key` stands for the data that are wanted, `compute` returns their curve. If it is of other
        data than the curve begun last, `compute` begins in the worker, once that is free; ask again
        for its result. `pending` in the answer is true while a curve is computed.
        """
        if self._next_curve is not None and self._next_curve.done():
            self._curve = self._next_curve.result()
            self._next_curve = None
        if self._next_curve is None and key != self._curve_key:
            self._curve_key = key
            self._next_curve = self.worker.submit(compute)
        return {**self._curve, "pending": self._next_curve is not None}

    def save(self, rows: Sequence[Row], reviewer: str) -> list[Any]:
        """Save the rows that are not saved yet as one batch; return what each of `rows` changed."""
        self.journal.check_file()
        uuids = [row["uuid"] for row in rows]
        if len(set(uuids)) < len(uuids):
            raise RequestError("uuid: the same twice in one request")
        new = [row for row in rows if row["uuid"] not in self.journal.by_uuid]
        if new:
            self.journal.append(reviewer, new)
        # Also those of a request that failed because the file, which is back now, was gone just
        # after they had been written to it.
        for entry in self.journal.entries[len(self.changes) :]:
            self.changes.append(self._apply(entry))
        entries = [self.journal.by_uuid[one] for one in uuids]
        return [self.changes[entry.seq - 1] for entry in entries]

    def undo(self, action: str, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Take back the latest batches of a reviewer, or with REDO bring back what was taken last.

        `count` in the request is how many; `nothing` says that there was nothing to do.
        """
        count = request.get("count", 1)
        if type(count) is not int or not 1 <= count <= MAX_UNDO:
            raise RequestError("count: expected a number of 1 or more")
        row = make_row(request, action, {"count": count})
        with self.lock:
            self.journal.check_file()
            is_saved = row["uuid"] in self.journal.by_uuid
            nothing = not is_saved and not self._history.can(action, reviewer)
            changes = [] if nothing else self.save([row], reviewer)
            return {**self.describe_changes(changes, reviewer), "nothing": nothing}


class Review(Session):
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
        self.decisions = Decisions(source.items)
        super().__init__(
            journal, reviewer, self.decisions.apply, self.decisions.history
        )
        self.blind = blind
        self.scores: Scores | None = None
        self.why_no_scores = source.why_no_scores
        self.sample = draw_sample(source.items, SEED)
        self._ranks = pl.DataFrame()
        self._ranked_version = -1  # the `score_version` that the ranks are of
        self._pictures: dict[Any, Picture] = {}  # that suit a label
        self._score_worker = ThreadPoolExecutor(1, "callshot-scores")
        # The update of scores that was asked for and has not begun.
        self._queued_update: Future[None] | None = None
        self._is_closed = False
        if source.annotations is not None:
            self.worker.submit(self._find_clipped)
        if source.load_scores is not None:
            self.why_no_scores = "the vectors of the detections are being read"
            self._score_worker.submit(self._load_scores, source.load_scores)

    def close(self) -> None:
        """Stop what runs beside the review."""
        self._is_closed = True
        self._score_worker.shutdown(cancel_futures=True)
        super().close()

    @property
    def items(self) -> Spans:
        """All items, with the latest scores."""
        return self.decisions.items

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
        """Add CLIPPED to the doubts about annotated calls that are cut off or at full scale.

        It runs in a thread. Recordings that cannot be read are skipped.
        """
        clipped = []
        files = self.source.files
        items = self.source.items.frame.sort("recording", "start_s")
        for part in items.partition_by("recording", maintain_order=True):
            with suppress(CallshotError), files.open(part["recording"][0]) as reader:
                for row in part.iter_rows(named=True):
                    if self._is_closed:
                        return
                    signal = reader.read_decodable(
                        row["start_s"],
                        row["end_s"],
                        rate_hz=round(reader.recording.rate_hz),
                        channel_rule=files.channel_rule,
                    )
                    duration_s = reader.recording.duration_s
                    is_at_start = row["start_s"] <= EDGE_S
                    is_at_end = row["end_s"] >= duration_s - EDGE_S
                    is_cut = is_at_start != is_at_end  # at both: a file of one call
                    if is_cut or np.abs(signal).max() >= FULL_SCALE:
                        clipped.append(row["row"])
        # Doubts are words, separated by spaces.
        doubts = pl.concat_str("doubt", pl.lit(f" {CLIPPED}"))
        doubt = pl.when(pl.col("row").is_in(clipped)).then(doubts).otherwise("doubt")
        with self.lock:
            frame = self.items.frame.with_columns(doubt=doubt)
            self.decisions.items = replace(self.items, frame=frame)
            self.score_version += 1  # so that pages ask for the items again

    # Scores

    def list_confirmed(self, reviewer: str | None = None) -> dict[str, list[int]]:
        """Return the items of the source that were confirmed, by label.

        In a blind review, with a `reviewer`, only those that this reviewer confirmed.
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

    def _load_scores(self, load: Callable[[Path], Scores]) -> None:
        """Load what scores are computed from; runs in a thread. If that fails, keep the reason."""
        try:
            self.scores = load(self.folder)
            self.why_no_scores = ""
        except (CallshotError, MemoryError, OSError) as error:
            self.why_no_scores = f"scores do not follow the decisions: {error}"
        self.ask_scores()

    def ask_scores(self) -> Future[None]:
        """Ask for scores by the decisions as they are now; the future is done when they are there.

        All requests before an update begins get the same one.
        """
        with self.lock:
            if self._queued_update is None:
                self._queued_update = self._score_worker.submit(self._update_scores)
            return self._queued_update

    def _update_scores(self) -> None:
        """Compute scores in a thread when no decisions come any more; show them if they changed."""
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
        page = self.describe_page(self.source.title, reviewer)
        with self.lock:
            frame = self.items.frame
            source = self.source
            scores = frame["score"].drop_nulls()
            reviewers = [] if self.blind else self.decisions.status
            recordings = frame.group_by("recording").len("count").sort("recording")
            doubts = {} if source.annotations is None else {**DOUBTS}
            if len(scores) == 0:
                doubts.pop(MISLABELLED, None)
            has_scores = len(scores) > 0
            orders = self._list_orders(has_scores=has_scores, has_doubts=bool(doubts))
            return {
                **page,
                "doubts": doubts,
                "annotations": source.annotations,
                "reviewers": sorted({*reviewers, reviewer}),
                "blind": self.blind,
                "labels": self.list_labels(),
                "orders": orders,
                "total": int(self.decisions.is_active.sum()),
                "recordings": recordings.rename({"recording": "path"}).to_dicts(),
                "score_range": [scores.min(), scores.max()] if len(scores) else None,
                "has_clock": frame["hour"].is_not_null().any(),
                "why_no_refresh": self.why_no_scores or None,
                "max_context_s": MAX_CONTEXT_S,
                "learn_command": self.describe_learning(),
                "score_version": self.score_version,
            }

    def _list_orders(self, *, has_scores: bool, has_doubts: bool) -> list[Answer]:
        """Return ORDERS as the page lists them, the usual one first; `why` one cannot be used."""
        orders = []
        for name, title in ORDERS.items():
            why = None
            if not has_scores and name in NEED_SCORES:
                why = self.source.why_no_scores or "there are no scores"
            order = {"name": name, "title": title, "why": why}
            if name != DOUBTFUL:
                orders.append(order)
            elif has_doubts:  # the first order, if scores say what looks wrong
                orders.insert(0 if has_scores else len(orders), order)
        return orders

    def describe_learning(self) -> str:
        """Return the command that makes a model with the confirmed calls."""
        folder = shlex.quote(str(self.folder))
        facts = self.source.facts
        if facts.get("model") is not None:
            return f"callshot learn --add {folder} --out better.npz"
        encoder = "" if facts.get("encoder") else " --encoder NAME"
        return f"callshot learn {folder}{encoder} --out calls.npz"

    def list_labels(self) -> list[Answer]:
        """Return all labels with the key for each."""
        return [
            {"name": name, "key": KEYS[n : n + 1] or None}
            for n, name in enumerate(self.decisions.labels)
        ]

    def read_sample(self) -> list[Clip]:
        """Return the sound of some items."""
        return self._read_clips(self.source.items.frame[self.sample[:LEVEL_ITEMS]])

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
        if self.model is not None and 0 <= example < self.first_call:
            label: str | None = self.model.examples.label[example]
        else:
            number = item if example < 0 else example - self.first_call
            self.check_item(number)
            label = self.items.frame["label"][number]
        # Levels are measured on a small picture, so pictures of all sizes get the same ones.
        small = replace(picture, width=LEVEL_WIDTH, height=LEVEL_HEIGHT)
        if (label, small) not in self._pictures:
            self._pictures[label, small] = self._fit_label(small, label)
        fitted = self._pictures[label, small]
        fitted = replace(fitted, width=picture.width, height=picture.height)
        if example >= 0:
            return fitted
        low_hz, high_hz = self.items.frame.select(FREQUENCIES).row(item)
        if low_hz is None or high_hz is None:
            return fitted
        margin_hz = ITEM_MARGIN * (high_hz - low_hz)
        lowest_hz = min(fitted.min_hz, low_hz - margin_hz)
        highest_hz = max(fitted.max_hz, high_hz + margin_hz)
        return replace(fitted, min_hz=max(0.0, lowest_hz), max_hz=highest_hz)

    def _fit_label(self, picture: Picture, label: str | None) -> Picture:
        """Return a picture with the band and contrast of the items of a label, from a sample."""
        in_order = self.source.items.frame[self.sample]
        sampled = in_order.filter(pl.col("label").eq_missing(pl.lit(label)))
        low_hz = sampled["low_freq_hz"].quantile(BAND_QUANTILE)
        high_hz = sampled["high_freq_hz"].quantile(1 - BAND_QUANTILE)
        if low_hz is not None and high_hz is not None and low_hz < high_hz:
            margin_hz = BAND_MARGIN * (high_hz - low_hz)
            top_hz = high_hz + margin_hz
            low_hz = max(0.0, low_hz - margin_hz)
            shortest_s = MIN_ROWS / (top_hz - low_hz)  # for so many bins in the band
            window_s = max(picture.window_s, shortest_s)
            picture = replace(picture, min_hz=low_hz, max_hz=top_hz, window_s=window_s)
        clips = self._read_clips(sampled[:LEVEL_ITEMS])
        return fit_contrast(picture, clips)

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

        `state` is a key of STATES, or conflict, or all. With `whose`, only items that this other
        reviewer decided or skipped are listed. `filters` are those of `select_items`.
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
            listed = ids[offset : offset + limit].tolist()
            return {"total": len(ids), "ids": listed}

    def _rank_items(self) -> pl.DataFrame:
        """Return the ranks of all items of the source; they are kept until scores change.

        A row has the `rank` of an item by score among those with its label, 1 for the highest, and
        `rank_of`, how many of these have a score.
        """
        if self._ranked_version != self.score_version:
            score = pl.col("score")
            source = self.items.frame[: self.decisions.source_count]
            self._ranks = source.select(
                rank=score.rank("min", descending=True).over("label"),
                rank_of=score.count().over("label"),
            )
            self._ranked_version = self.score_version
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

        Items that are gone are left out, and in a blind review the decisions of others.
        """
        described = []
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
                described.append(
                    {
                        **{name: row[name] for name in SHOWN},
                        "id": item,
                        "rank": None if row["added"] else ranks["rank"][row["row"]],
                        "rank_of": ranks["rank_of"][row["row"]],
                        "start_s": start_s,
                        "end_s": end_s,
                        "recording_duration_s": self.source.durations_s.get(
                            row["recording"]
                        ),
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
            return {
                "seq": self.seq,
                "items": sorted(set().union(*self.changes[after:])),
                "score_version": self.score_version,
            }

    def describe_changes(self, changes: Sequence[set[int]], reviewer: str) -> Answer:
        """Return the items that rows changed, those that are gone, and how far a reviewer is."""
        touched = set().union(*changes)
        return {
            "seq": self.seq,
            "items": self.describe_items(sorted(touched), reviewer),
            "gone": sorted(touched & self.decisions.gone),
            "progress": self.count_progress(reviewer),
            "score_version": self.score_version,
        }

    def describe_progress(self, reviewer: str) -> Answer:
        """Return what the decisions so far amount to, as a reviewer may see it."""
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
                "curve": self._describe_confirmed(),
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

    def _describe_confirmed(self) -> Answer:
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
        return self.get_latest_curve(confirmed, compute)

    # What the page does

    def decide(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Save the decisions of a request, all of them or none; return the items that changed."""
        requests = request.get("decisions")
        if not isinstance(requests, list) or not 1 <= len(requests) <= MAX_ITEMS:
            raise RequestError(f"decisions: expected a list of 1 to {MAX_ITEMS}")
        with self.lock:
            durations_s = self.source.durations_s
            rows = [
                check_decision(one, self.decisions, reviewer, durations_s)
                for one in requests
            ]
            touched = set().union(*self.save(rows, reviewer))
            # Their parts, and calls that were added to them, change with them.
            is_part = self.items.frame["parent"].is_in(list(touched))
            parts = is_part.fill_null(value=False).arg_true()
            return self.describe_changes([touched, set(parts)], reviewer)

    def save(self, rows: Sequence[Row], reviewer: str) -> list[set[int]]:
        """Save rows, and ask for scores by them."""
        changes = super().save(rows, reviewer)
        self.ask_scores()
        return changes

    def settle(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Settle a conflict on an item: the label of the request holds, None for no call at all."""
        self.check_visible(reviewer, None)
        with self.lock:
            body = describe_item(request, self.decisions)
            label = request.get("label")
            if label is not None and label not in self.decisions.labels:
                raise RequestError("label: expected a known label, or null for none")
            row = make_row(request, SETTLE, {**body, "verdict": label})
            return self.describe_changes(self.save([row], reviewer), reviewer)

    def add_label(self, reviewer: str, request: Mapping[str, Any]) -> Answer:
        """Add a label, unless there is one of this name."""
        name = check_name(request.get("name"))
        with self.lock:
            if name not in self.decisions.labels:
                row = make_row({"uuid": str(uuid.uuid4())}, LABEL, {"label": name})
                self.save([row], reviewer)
            return {"labels": self.list_labels(), "seq": self.seq}

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
        # Parts and added calls have no vector, but the item of the source that they come from does.
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

        A confirmed call has the span that reviewers gave it.
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
