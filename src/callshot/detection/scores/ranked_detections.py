"""Detections of one class by falling score, each correct or not → precision, recall and the rest.

Detections are ranked by events that match annotations, and by windows of a fixed length; both are
measured by the same functions. Recordings have weights: 1 for the scores themselves, how often each
was drawn for a sample of recordings.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from callshot.detection.scores.event_matching import UNMATCHED, match_events
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

Scores = dict[str, FloatArray]  # of each metric, one value per row of weights
SPAN = ("start_s", "end_s")
SECONDS_PER_HOUR = 3600.0


@dataclass(frozen=True)
class RankedDetections:
    """Detections of one class, by falling score; `recording` is the number of each one's recording.

    `annotated` (recordings,) counts annotations, `hours` (recordings,) is NaN where a length is not
    known. Without scores, every score is NaN.
    """

    label: str
    score: FloatArray
    is_correct: IntArray
    recording: IntArray
    annotated: IntArray
    hours: FloatArray

    @property
    def has_scores(self) -> bool:
        """Whether detections can be ranked."""
        return not np.isnan(self.score).any()

    def above(self, threshold: float | None) -> "RankedDetections":
        """Return the detections with at least this score."""
        if threshold is None:
            return self
        is_above = self.score >= threshold
        return RankedDetections(
            label=self.label,
            score=self.score[is_above],
            is_correct=self.is_correct[is_above],
            recording=self.recording[is_above],
            annotated=self.annotated,
            hours=self.hours,
        )

    def count(self, weights: FloatArray) -> Scores:
        """Return how many are detected, correct and annotated, for each row of weights."""
        size = len(self.annotated)
        detected = np.bincount(self.recording, minlength=size)
        correct = np.bincount(self.recording, self.is_correct, minlength=size)
        return {
            "annotated": weights @ self.annotated,
            "detected": weights @ detected,
            "correct": weights @ correct,
        }


def measure(
    classes: Sequence[RankedDetections],
    weights: FloatArray,
    threshold: float | None = None,
) -> Scores:
    """Return the metrics of classes together, for each row of weights (samples, recordings).

    Precision, recall, F1 and false alarms are those of the summed counts, of detections with at
    least the threshold; average precision is the mean over classes. NaN: not defined.
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
        _divide(detected - correct, hours),
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
    detected, correct = _cumulate(ranked, weights)
    gains = np.diff(correct, prepend=0.0)
    has_gain = gains > 0
    precision = _divide(correct, detected)
    return float(np.sum(gains[has_gain] * precision[has_gain]) / annotated)


def _cumulate(
    ranked: RankedDetections, weights: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return how many are detected and correct at each threshold, from the highest down."""
    weight = weights[ranked.recording]
    last = _last_of_equal(ranked.score)
    detected = np.cumsum(weight)[last]
    correct = np.cumsum(weight * ranked.is_correct)[last]
    return detected, correct


def _last_of_equal(score: FloatArray) -> IntArray:
    """Return the last place of every run of equal scores."""
    is_last = np.append(np.diff(score) != 0, len(score) > 0)
    return np.flatnonzero(is_last)


def precision_recall_curve(ranked: RankedDetections, by: str) -> Frame:
    """Return a row for each threshold, from the highest down."""
    weights = np.ones(len(ranked.annotated))
    detected, correct = _cumulate(ranked, weights)
    annotated = np.full(len(detected), ranked.annotated.sum(), np.float64)
    hours = np.full(len(detected), ranked.hours.sum())
    columns = {
        "threshold": ranked.score[_last_of_equal(ranked.score)],
        "detected": detected,
        "correct": correct,
        "precision": _divide(correct, detected),
        "recall": _divide(correct, annotated),
        "false_alarms_per_hour": _divide(detected - correct, hours),
    }
    frame = make_frame(PRECISION_RECALL, columns, {"by": by, "label": ranked.label})
    return frame.fill_nan(None)


def find_threshold(curve: Frame, label: str, aim_per_hour: float) -> Frame:
    """Return the lowest threshold on a curve with at most so many false alarms per hour."""
    meeting = curve.filter(curve["false_alarms_per_hour"] <= aim_per_hour)
    names = ("threshold", "false_alarms_per_hour", "precision", "recall")
    row = {name: [None] for name in names}
    if len(meeting) > 0:
        row = meeting.select(names).tail(1).to_dict(as_series=False)
    is_lowest = len(meeting) == len(curve)
    constants = {"label": label, "aim_per_hour": aim_per_hour, "is_lowest": is_lowest}
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
        """The annotations whose label means that nobody knows."""
        if self.unknown is None:
            return self.annotations.clear()
        return self.annotations.filter(label=self.unknown)

    @property
    def hours(self) -> FloatArray:
        """The length of each recording; NaN where it is not known."""
        seconds = [self.durations_s.get(name, np.nan) for name in self.recordings]
        return np.array(seconds) / SECONDS_PER_HOUR


def rank_events(task: Task, label: str) -> tuple[RankedDetections, Frame]:
    """Match the events of a class; return them ranked, and the outcome of each."""
    detections = _split(task.detections.filter(label=label))
    annotations = _split(task.annotations.filter(label=label))
    unknown = _split(task.unknown_events)
    no_detections = task.detections.clear()
    no_annotations = task.annotations.clear()
    outcomes = [
        _match_recording(
            detections.get(name, no_detections),
            annotations.get(name, no_annotations),
            unknown.get(name, no_annotations),
            task.min_iou,
        )
        for name in task.recordings
    ]
    outcome = concat_frames(outcomes, OUTCOMES)
    correct = pl.col("outcome") == "correct"
    counted = outcome.filter(pl.col("outcome").is_in(["correct", "false"]))
    counted = counted.with_columns(is_correct=correct)
    annotated = [len(annotations.get(name, ())) for name in task.recordings]
    return _rank(task, label, counted, np.array(annotated)), outcome


def _split(events: Frame) -> dict[str, Frame]:
    """Return the events of each recording, detections by falling score."""
    ordered = events.sort(
        "score", descending=True, nulls_last=True, maintain_order=True
    )
    parts = ordered.partition_by("recording", as_dict=True)
    return {str(name): part for (name,), part in parts.items()}


def _match_recording(
    detections: Frame, annotations: Frame, unknown: Frame, min_iou: float
) -> Frame:
    """Return the outcome of every detection and annotation of a class in one recording."""
    spans = _spans(detections)
    matches = match_events(spans, _spans(annotations), min_iou)
    is_left = matches == UNMATCHED
    second = match_events(spans[is_left], _spans(unknown), min_iou)
    outcome = np.where(is_left, "false", "correct").astype(object)
    outcome[np.flatnonzero(is_left)[second != UNMATCHED]] = "unknown"
    is_missed = np.ones(len(annotations), bool)
    is_missed[matches[~is_left]] = False
    detected = detections.with_columns(outcome=pl.Series(outcome, dtype=pl.String))
    missed = annotations.filter(is_missed).with_columns(
        outcome=pl.lit("missed"), score=pl.lit(None, pl.Float64)
    )
    return pl.concat([detected.select(*OUTCOMES), missed.select(*OUTCOMES)])


def _spans(events: Frame) -> FloatArray:
    return events.select(SPAN).to_numpy().astype(np.float64).reshape(-1, 2)


def _rank(
    task: Task, label: str, detections: Frame, annotated: IntArray
) -> RankedDetections:
    """Return detections with `recording`, `score` and `is_correct` by falling score."""
    numbers = {name: number for number, name in enumerate(task.recordings)}
    ordered = detections.sort("score", descending=True, nulls_last=True)
    score = ordered["score"].fill_null(np.nan).to_numpy()
    recording = [numbers[name] for name in ordered["recording"]]
    return RankedDetections(
        label=label,
        score=score.astype(np.float64),
        is_correct=ordered["is_correct"].to_numpy().astype(np.int64),
        recording=np.array(recording, np.int64),
        annotated=annotated,
        hours=task.hours,
    )


def rank_windows(task: Task, label: str, window_s: float) -> RankedDetections:
    """Rank the windows that detections of a class touch; those that annotations touch are correct.

    Windows follow each other without a gap from the start of each recording; the last may be
    shorter. The score of a window is that of the best detection in it.
    """
    touched = _touched_windows(task.detections.filter(label=label), window_s)
    annotated = _touched_windows(task.annotations.filter(label=label), window_s)
    unknown = _touched_windows(task.unknown_events, window_s)
    keys = ["recording", "window"]
    best = touched.group_by(keys, maintain_order=True).agg(pl.col("score").max())
    positive = annotated.select(keys).unique()
    unknown_windows = unknown.select(keys).unique().join(positive, on=keys, how="anti")
    marked = positive.with_columns(is_correct=pl.lit(True))
    judgeable_windows = best.join(
        unknown_windows, on=keys, how="anti", maintain_order="left"
    )
    joined = judgeable_windows.join(marked, on=keys, how="left", maintain_order="left")
    detections = joined.with_columns(pl.col("is_correct").fill_null(False))
    counts = dict(positive["recording"].value_counts().iter_rows())
    per_recording = [counts.get(name, 0) for name in task.recordings]
    return _rank(task, label, detections, np.array(per_recording))


def _touched_windows(events: Frame, window_s: float) -> Frame:
    """Return a row for every window that an event shares time with: recording, window and score."""
    first = (pl.col("start_s") / window_s).floor().cast(pl.Int64)
    last = (pl.col("end_s") / window_s).ceil().cast(pl.Int64)
    numbered = events.select("recording", "score", window=pl.int_ranges(first, last))
    return numbered.explode("window")


def sort_outcomes(outcomes: list[Frame]) -> Frame:
    """Return the outcomes of all classes, by recording and time."""
    return concat_frames(outcomes, OUTCOMES).sort("recording", *SPAN, "label")
