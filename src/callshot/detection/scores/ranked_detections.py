"""Detections of one class by falling score, each with its outcome → precision, recall and the rest.

`rank_detections` ranks them by events that match annotations, and by windows of a fixed length;
both are measured by the same functions here. Recordings have weights: 1 for the scores themselves,
how often each was drawn for a sample of recordings.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import polars as pl

from callshot.fewshot.kernels import streams
from callshot.records import FloatArray, IntArray
from callshot.records.frames import (
    AIM_THRESHOLDS,
    DETECTION_METRICS,
    PRECISION_RECALL,
    Frame,
    make_frame,
)

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
