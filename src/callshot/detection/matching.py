"""Detections of a class matched with annotations, by falling score; precision, recall and the rest.

By events, detections are matched with annotations; by windows, both mark windows of a fixed length.
A detection that is not correct may be another class's call under a wrong name, a call of its class
in a wrong place or found before, or no annotated call at all: only the last is a false alarm.

A detection and an annotation may be a pair if their IoU (the time they share, divided by the time
that they cover together) is large enough. As in the few-shot task of DCASE, pairs are a maximum
matching. Detections are added by falling score, and one that has found a partner keeps one: so the
first n detections always have as many partners as a maximum matching of those n alone can give,
and one pass serves all thresholds.

Recordings have weights: 1 for the scores themselves, and how often each was drawn for a sample of
recordings.
"""

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from callshot.fewshot.kernels import streams
from callshot.records import FloatArray, IntArray
from callshot.records.frames import (
    AIM_THRESHOLDS,
    DETECTION_METRICS,
    OUTCOMES,
    PRECISION_RECALL,
    Frame,
    concat_frames,
    make_frame,
)

Partners = Sequence[Sequence[int]]  # of each detection: its possible annotations

UNMATCHED = -1


def match_events(
    detections_s: FloatArray, annotations_s: FloatArray, min_iou: float
) -> IntArray:
    """Return the annotation of each detection, or UNMATCHED.

    Both are spans (n, 2) in seconds, detections by falling score.

    >>> spans = np.array([[0.0, 2.0], [10.0, 12.0]])
    >>> match_events(spans, np.array([[10.5, 12.5]]), 0.3).tolist()
    [-1, 0]
    """
    partners = find_partners(detections_s, annotations_s, min_iou)
    partner_by_detection: dict[int, int] = {}
    owner: dict[int, int] = {}
    for detection in range(len(detections_s)):
        _add_detection(detection, partners, partner_by_detection, owner)
    matches = np.full(len(detections_s), UNMATCHED, np.int64)
    for detection, annotation in partner_by_detection.items():
        matches[detection] = annotation
    return matches


def find_partners(
    detections_s: FloatArray, annotations_s: FloatArray, min_iou: float
) -> list[list[int]]:
    """Return the annotations that each detection may be matched with, the best first."""
    order = np.argsort(annotations_s[:, 0], kind="stable")
    starts = annotations_s[order, 0]
    latest_ends = np.maximum.accumulate(annotations_s[order, 1])
    first = np.searchsorted(latest_ends, detections_s[:, 0], side="right")
    last = np.searchsorted(starts, detections_s[:, 1], side="left")
    partners = []
    for span, low, high in zip(detections_s, first, last, strict=True):
        candidates = order[low:high]
        iou = interval_iou(span, annotations_s[candidates])
        best = np.argsort(-iou, kind="stable")
        fitting = best[iou[best] >= min_iou]
        partners.append(candidates[fitting].tolist())
    return partners


def interval_iou(span_s: FloatArray, others_s: FloatArray) -> FloatArray:
    """Return the IoU of one span with each of others (n, 2).

    >>> interval_iou(np.array([0.0, 2.0]), np.array([[1.0, 3.0], [2.0, 3.0]])).round(3).tolist()
    [0.333, 0.0]
    """
    start_s, end_s = span_s
    latest_start = np.maximum(others_s[:, 0], start_s)
    earliest_end = np.minimum(others_s[:, 1], end_s)
    shared = np.maximum(earliest_end - latest_start, 0.0)
    lengths = others_s[:, 1] - others_s[:, 0]
    together = lengths + (end_s - start_s) - shared
    return np.asarray(shared / together, np.float64)


def _add_detection(
    detection: int,
    partners: Partners,
    partner_by_detection: dict[int, int],
    owner: dict[int, int],
) -> None:
    """Give a detection a partner, if earlier ones can keep one; the shortest way of moving them."""
    reached_from: dict[int, int] = {}
    waiting = deque([detection])
    while waiting:
        current = waiting.popleft()
        for annotation in partners[current]:
            if annotation in reached_from:
                continue
            reached_from[annotation] = current
            if annotation not in owner:
                _move_partners(annotation, reached_from, partner_by_detection, owner)
                return
            waiting.append(owner[annotation])


def _move_partners(
    annotation: int,
    reached_from: dict[int, int],
    partner_by_detection: dict[int, int],
    owner: dict[int, int],
) -> None:
    """Give a free annotation to the detection that reached it, and so on, back to the new one."""
    free: int | None = annotation
    while free is not None:
        detection = reached_from[free]
        previous = partner_by_detection.get(detection)
        partner_by_detection[detection] = free
        owner[free] = detection
        free = previous


Scores = dict[str, FloatArray]  # of each metric, one value per row of weights
# What a detection that counts may be, as numbers: the worse, the higher.
CORRECT, MISPLACED, WRONG_NAME, FALSE_ALARM = range(4)
OUTCOME_COUNTS = {
    "correct": CORRECT,
    "wrong_name": WRONG_NAME,
    "misplaced": MISPLACED,
    "false_alarms": FALSE_ALARM,
}


@dataclass(frozen=True)
class RankedDetections:
    """Detections of one class, by falling score; `recording` is the number of each one's recording.

    `outcome` is CORRECT, MISPLACED, WRONG_NAME or FALSE_ALARM. `annotated` (recordings,) counts
    annotations, `hours` (recordings,) is NaN where a length is not known. `unreachable` counts
    annotations that no detection can match. Without scores, every score is NaN.
    """

    label: str
    score: FloatArray
    outcome: IntArray
    recording: IntArray
    annotated: IntArray
    hours: FloatArray
    unreachable: int = 0

    @property
    def has_scores(self) -> bool:
        """Whether detections can be ranked."""
        return not np.isnan(self.score).any()

    def above(self, threshold: float | None) -> "RankedDetections":
        """Return the detections with at least this score."""
        if threshold is None:
            return self
        is_above = self.score >= threshold
        return replace(
            self,
            score=self.score[is_above],
            outcome=self.outcome[is_above],
            recording=self.recording[is_above],
        )

    def count(self, weights: FloatArray) -> Scores:
        """Return how many are annotated, detected, and of each outcome, for each row of weights."""
        size = len(self.annotated)
        detected = np.bincount(self.recording, minlength=size)
        counts = {
            "annotated": weights @ self.annotated,
            "detected": weights @ detected,
        }
        for name, outcome in OUTCOME_COUNTS.items():
            places = self.recording[self.outcome == outcome]
            counts[name] = weights @ np.bincount(places, minlength=size)
        return counts


def measure(
    classes: Sequence[RankedDetections],
    weights: FloatArray,
    threshold: float | None = None,
) -> Scores:
    """Return the metrics of classes together, for each row of weights (samples, recordings).

    Precision, recall, F1 and false alarms are those of the summed counts, of detections with at
    least the threshold; average precision is the mean over classes. All that is not correct lowers
    precision, but only sounds that are no annotated call are false alarms. NaN: not defined.
    """
    counts = sum_counts(
        [detections.above(threshold) for detections in classes], weights
    )
    detected = counts["detected"]
    correct = counts["correct"]
    annotated = counts["annotated"]
    hours = weights @ classes[0].hours
    precisions = [
        [average_precision(detections, row) for row in weights]
        for detections in classes
        if detections.annotated.any()
    ]
    values = (
        _divide(correct, detected),
        _divide(correct, annotated),
        _divide(2 * correct, detected + annotated),
        _mean_defined(np.array(precisions).reshape(-1, len(weights))),
        _divide(counts["false_alarms"], hours),
    )
    return dict(zip(DETECTION_METRICS, values, strict=True))


def sum_counts(classes: Sequence[RankedDetections], weights: FloatArray) -> Scores:
    """Return the counts of all classes together, for each row of weights."""
    counts = [detections.count(weights) for detections in classes]
    return {
        name: np.sum([of_class[name] for of_class in counts], axis=0)
        for name in counts[0]
    }


def average_precision(ranked: RankedDetections, weights: FloatArray) -> float:
    """Return the sum of precision times the gain in recall, over all thresholds.

    NaN where there are no annotations, or no scores.
    """
    annotated = float(weights @ ranked.annotated)
    if annotated == 0 or not ranked.has_scores:
        return float("nan")
    counts = _cumulate(ranked, weights)
    detected = counts["detected"]
    correct = counts["correct"]
    gains = np.diff(correct, prepend=0.0)
    has_gain = gains > 0
    precision = _divide(correct, detected)
    return float(np.sum(gains[has_gain] * precision[has_gain]) / annotated)


def _cumulate(ranked: RankedDetections, weights: FloatArray) -> Scores:
    """Return how many are detected, and of each outcome, by threshold from the highest down."""
    weight = weights[ranked.recording]
    last = _last_of_equal(ranked.score)
    counts = {"detected": np.cumsum(weight)[last]}
    for name, outcome in OUTCOME_COUNTS.items():
        counts[name] = np.cumsum(weight * (ranked.outcome == outcome))[last]
    return counts


def _last_of_equal(score: FloatArray) -> IntArray:
    """Return the last place of every run of equal scores."""
    is_last = np.append(np.diff(score) != 0, len(score) > 0)
    return np.flatnonzero(is_last)


def precision_recall_curve(ranked: RankedDetections, by: str) -> Frame:
    """Return a row for each threshold, from the highest down."""
    weights = np.ones(len(ranked.annotated))
    counts = _cumulate(ranked, weights)
    detected = counts["detected"]
    correct = counts["correct"]
    annotated = np.full(len(detected), ranked.annotated.sum(), np.float64)
    hours = np.full(len(detected), ranked.hours.sum())
    columns = {
        "threshold": ranked.score[_last_of_equal(ranked.score)],
        **counts,
        "precision": _divide(correct, detected),
        "recall": _divide(correct, annotated),
        "false_alarms_per_hour": _divide(counts["false_alarms"], hours),
    }
    frame = make_frame(PRECISION_RECALL, columns, {"by": by, "label": ranked.label})
    return frame.fill_nan(None)


def find_threshold(
    curve: Frame, label: str, aim_per_hour: float, by: str = "events"
) -> Frame:
    """Return the lowest threshold of a class with at most so many false alarms per hour.

    `curve` has all curves. False alarms are counted by events; precision and recall are by `by`.
    """
    events = curve.filter(by="events", label=label)
    meeting = events.filter(events["false_alarms_per_hour"] <= aim_per_hour)
    row: dict[str, list[float | None]] = {}
    if len(meeting) > 0:
        rates = meeting.select("threshold", "false_alarms_per_hour").tail(1)
        threshold = rates["threshold"][0]
        points = curve.filter(pl.col("threshold") >= threshold, by=by, label=label)
        quality = points.select("precision", "recall").tail(1)
        row = rates.hstack(quality).to_dict(as_series=False)
    else:
        names = ("threshold", "false_alarms_per_hour", "precision", "recall")
        row = {name: [None] for name in names}
    constants = {
        "by": by,
        "label": label,
        "aim_per_hour": aim_per_hour,
        "is_lowest": len(meeting) == len(events),
    }
    return make_frame(AIM_THRESHOLDS, row, constants)


def sample_weights(recordings: int, samples: int, seed: int) -> FloatArray:
    """Return how often each recording is drawn, (samples, recordings).

    A sample has as many draws as there are recordings.
    """
    picks = np.empty((recordings, samples), np.uint32)
    base = streams.purpose_key(seed, "recordings of scores")
    numbers = np.arange(recordings, dtype=np.uint64)
    streams.bootstrap_picks(base, numbers, recordings, picks)
    rows = np.repeat(np.arange(samples)[None], recordings, axis=0)
    weights = np.zeros((samples, recordings))
    np.add.at(weights, (rows, picks), 1.0)
    return weights


def _divide(numerator: FloatArray, denominator: FloatArray) -> FloatArray:
    """Return quotients; NaN where the denominator is 0 or not known."""
    quotients = np.full(len(denominator), np.nan)
    is_defined = denominator > 0
    quotients[is_defined] = numerator[is_defined] / denominator[is_defined]
    return quotients


def _mean_defined(values: FloatArray) -> FloatArray:
    """Return the mean of each column over the rows that are not NaN; NaN where all are."""
    is_defined = ~np.isnan(values)
    totals = np.where(is_defined, values, 0.0).sum(axis=0)
    return _divide(totals, is_defined.sum(axis=0))


SPAN = ("start_s", "end_s")
KEYS = ("recording", "window")
SECONDS_PER_HOUR = 3600.0
ANY_OVERLAP = 1e-9  # an IoU that only rounding errors are below
SHORT_SHARE = 0.05  # of detections: shorter ones may be cut at the end of a recording
OUTCOME_NUMBERS = {
    "correct": CORRECT,
    "misplaced": MISPLACED,
    "wrong_name": WRONG_NAME,
    "false_alarm": FALSE_ALARM,
}


@dataclass(frozen=True)
class Task:
    """Detections to be scored, annotations, and all recordings, by name.

    `durations_s` is empty where lengths are not known. Detections that are left over and match an
    annotation of the label `unknown` are neither correct nor false.
    """

    detections: Frame
    annotations: Frame
    recordings: Sequence[str]
    durations_s: Mapping[str, float]
    min_iou: float
    unknown: str | None = None

    @property
    def labels(self) -> list[str]:
        """All classes."""
        names = {*self.detections["label"], *self.annotations["label"]}
        return sorted(names - {self.unknown})

    @property
    def unknown_events(self) -> Frame:
        """Annotations labelled as unknown."""
        if self.unknown is None:
            return self.annotations.clear()
        return self.annotations.filter(label=self.unknown)

    @property
    def hours(self) -> FloatArray:
        """The length of each recording; NaN where it is not known."""
        seconds = [self.durations_s.get(name, np.nan) for name in self.recordings]
        return np.array(seconds) / SECONDS_PER_HOUR

    def find_shortest(self, label: str) -> float:
        """Return how long the shortest detections are: of a class, or of all if it has none.

        0 if there are no detections.
        """
        detections = self.detections.filter(label=label)
        if detections.is_empty():
            detections = self.detections
        lengths = detections.select(pl.col("end_s") - pl.col("start_s")).to_series()
        shortest = lengths.quantile(SHORT_SHARE, "lower")
        return 0.0 if shortest is None else shortest

    def count_unreachable(self, label: str) -> int:
        """Count calls of a class whose IoU with the shortest detections is below the least IoU.

        The best that a detection can do is to contain the call: its IoU is then the length of the
        call divided by its own length.
        """
        annotations = self.annotations.filter(label=label)
        length_s = pl.col("end_s") - pl.col("start_s")
        least_s = self.min_iou * self.find_shortest(label)
        return annotations.filter(length_s < least_s * (1 - ANY_OVERLAP)).height


def rank_events(task: Task, label: str) -> tuple[RankedDetections, Frame]:
    """Match the events of a class; return them ranked, and the outcome of each."""
    detections = _split(task.detections.filter(label=label))
    own = _split(task.annotations.filter(label=label))
    unknown = _split(task.unknown_events)
    is_other = ~pl.col("label").is_in([label, task.unknown])
    other = _split(task.annotations.filter(is_other))
    no_detections = task.detections.clear()
    no_calls = task.annotations.clear()
    outcomes = []
    for name in task.recordings:
        if name not in detections and name not in own:
            continue
        outcome = _match_recording(
            detections.get(name, no_detections),
            own.get(name, no_calls),
            unknown.get(name, no_calls),
            other.get(name, no_calls),
            task.min_iou,
        )
        outcomes.append(outcome)
    annotated = [len(own.get(name, ())) for name in task.recordings]
    outcome = concat_frames(outcomes, OUTCOMES)
    counted = outcome.filter(pl.col("outcome").is_in([*OUTCOME_NUMBERS]))
    numbers = pl.col("outcome").replace_strict(OUTCOME_NUMBERS, return_dtype=pl.Int64)
    ranked = _rank(
        task,
        label,
        counted.with_columns(outcome=numbers),
        np.array(annotated),
        task.count_unreachable(label),
    )
    return ranked, outcome


def _split(events: Frame) -> dict[str, Frame]:
    """Return the events of each recording, detections by falling score."""
    ordered = events.sort(
        "score", descending=True, nulls_last=True, maintain_order=True
    )
    parts = ordered.partition_by("recording", as_dict=True)
    return {str(name): part for (name,), part in parts.items()}


def _match_recording(
    detections: Frame, own: Frame, unknown: Frame, other: Frame, min_iou: float
) -> Frame:
    """Return the outcome of every detection and annotation of a class in one recording.

    Annotations are those of the class, those labelled as unknown, and those of other classes. A
    call that could not be named is not a wrong name for the detection on it.
    """
    spans = spans_of(detections)
    own_s = spans_of(own)
    unknown_s = spans_of(unknown)
    matches = match_events(spans, own_s, min_iou)
    left = np.flatnonzero(matches == UNMATCHED)
    second = match_events(spans[left], unknown_s, min_iou)
    outcomes = ["correct"] * len(spans)
    labels: list[str | None] = [None] * len(spans)
    for row in left[second != UNMATCHED]:
        outcomes[row] = "unknown"
    wrong = left[second == UNMATCHED]
    on_own = find_partners(spans[wrong], own_s, ANY_OVERLAP)
    on_unknown = find_partners(spans[wrong], unknown_s, ANY_OVERLAP)
    on_other = find_partners(spans[wrong], spans_of(other), ANY_OVERLAP)
    for number, row in enumerate(wrong):
        outcomes[row] = "false_alarm"
        if on_own[number] or on_unknown[number]:
            outcomes[row] = "misplaced"
        elif on_other[number]:
            outcomes[row] = "wrong_name"
            labels[row] = other["label"][on_other[number][0]]
    is_missed = np.ones(len(own), bool)
    is_missed[matches[matches != UNMATCHED]] = False
    detected = detections.with_columns(
        outcome=pl.Series(outcomes, dtype=pl.String),
        annotated_label=pl.Series(labels, dtype=pl.String),
    )
    missed = own.filter(is_missed).with_columns(
        outcome=pl.lit("missed"),
        score=pl.lit(None, pl.Float64),
        annotated_label=pl.lit(None, pl.String),
    )
    return pl.concat([detected.select(*OUTCOMES), missed.select(*OUTCOMES)])


def spans_of(events: Frame) -> FloatArray:
    """Return start and end of each event, (n, 2)."""
    return events.select(SPAN).to_numpy().astype(np.float64).reshape(-1, 2)


def _rank(
    task: Task,
    label: str,
    detections: Frame,
    annotated: IntArray,
    unreachable: int = 0,
) -> RankedDetections:
    """Return detections with `recording`, `score` and `outcome` (a number) by falling score."""
    numbers = {name: number for number, name in enumerate(task.recordings)}
    ordered = detections.sort("score", descending=True, nulls_last=True)
    score = ordered["score"].fill_null(np.nan).to_numpy()
    recording = [numbers[name] for name in ordered["recording"]]
    return RankedDetections(
        label=label,
        score=score.astype(np.float64),
        outcome=ordered["outcome"].to_numpy().astype(np.int64),
        recording=np.array(recording, np.int64),
        annotated=annotated,
        hours=task.hours,
        unreachable=unreachable,
    )


def rank_windows(
    task: Task, label: str, outcome: Frame, window_s: float
) -> RankedDetections:
    """Rank the windows that detections of a class touch; those that annotations touch are correct.

    Windows follow each other without a gap from the start of each recording; the last may be
    shorter. The score of a window is that of the best detection in it, and so is what it is if it
    is not correct: `outcome` is what `rank_events` returns.
    """
    detected = outcome.filter(pl.col("outcome") != "missed")
    # What is on a call of the class is no false alarm in the windows beside the call.
    wrong_as = pl.col("outcome").replace_strict(
        OUTCOME_NUMBERS, default=MISPLACED, return_dtype=pl.Int64
    )
    detected = detected.with_columns(wrong_as=pl.max_horizontal(wrong_as, MISPLACED))
    touched = _touched_windows(detected, window_s, "score", "wrong_as")
    annotated = _touched_windows(task.annotations.filter(label=label), window_s)
    unknown = _touched_windows(task.unknown_events, window_s)
    ordered = touched.sort(
        "score", "wrong_as", descending=True, nulls_last=True, maintain_order=True
    )
    best = ordered.unique(KEYS, keep="first", maintain_order=True)
    positive = annotated.unique(KEYS)
    unknown_windows = unknown.unique(KEYS).join(positive, on=KEYS, how="anti")
    marked = positive.with_columns(is_correct=pl.lit(True))
    judgeable_windows = best.join(
        unknown_windows, on=KEYS, how="anti", maintain_order="left"
    )
    joined = judgeable_windows.join(marked, on=KEYS, how="left", maintain_order="left")
    is_correct = pl.col("is_correct").fill_null(False)
    detections = joined.with_columns(
        outcome=pl.when(is_correct).then(CORRECT).otherwise(pl.col("wrong_as"))
    )
    counts = dict(positive["recording"].value_counts().iter_rows())
    per_recording = [counts.get(name, 0) for name in task.recordings]
    return _rank(task, label, detections, np.array(per_recording))


def _touched_windows(events: Frame, window_s: float, *columns: str) -> Frame:
    """Return recording and window for every window that an event shares time with."""
    first = (pl.col("start_s") / window_s).floor().cast(pl.Int64)
    last = (pl.col("end_s") / window_s).ceil().cast(pl.Int64)
    numbered = events.select("recording", *columns, window=pl.int_ranges(first, last))
    return numbered.explode("window")


def sort_outcomes(outcomes: list[Frame]) -> Frame:
    """Return the outcomes of all classes, by recording and time."""
    order = ("recording", *SPAN, "label", "score", "outcome")
    return concat_frames(outcomes, OUTCOMES).sort(order)
