"""Detections of one class by falling score, each correct or not → precision, recall and the rest.

Events and windows are measured by the same functions. Recordings have weights: 1 for the scores
themselves, how often each was drawn for a sample of recordings.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

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
        kept = self.score >= threshold
        return RankedDetections(
            label=self.label,
            score=self.score[kept],
            is_correct=self.is_correct[kept],
            recording=self.recording[kept],
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
    counts = sum_counts([one.above(threshold) for one in classes], weights)
    detected = counts["detected"]
    correct = counts["correct"]
    annotated = counts["annotated"]
    hours = weights @ classes[0].hours
    precisions = [
        [average_precision(one, row) for row in weights]
        for one in classes
        if one.annotated.any()
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
    counts = [one.count(weights) for one in classes]
    return {name: np.sum([one[name] for one in counts], axis=0) for name in counts[0]}


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
