"""Verdicts on detections → how likely a detection with a score is right.

The probability follows a logistic curve of the score, as Wood and Kahl (2024) recommend. It is
fitted by maximum likelihood with the prior of Jeffreys (Firth's correction), which gives finite
curves also where all high scores are right and all low ones wrong. Intervals come from the
curvature of the likelihood. A curve never falls. A class with few verdicts of its own has the curve
of all classes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.special import expit, logit

from callshot.detection.background import Mask
from callshot.detection.index.index_files import IndexedRecording
from callshot.detection.model import Model
from callshot.errors import OptionError, count_text, join_names
from callshot.records import FloatArray
from callshot.records.frames import Frame
from callshot.storage import to_path

MIN_VERDICTS = 10  # for a curve of its own, with right and wrong ones
DEVIATIONS = 1.96  # of an interval of 95 %
CLOSE = 0.1  # half of an interval that is short enough
MAX_STEPS = 100
MAX_STEP = 2.0
TOLERANCE = 1e-10


@dataclass(frozen=True, eq=False)
class Calibration:
    """A logistic curve: the probability that a detection is right is expit(a + b · score).

    The coefficients are a and b; `verdicts` is the number that it rests on.
    """

    coefficients: FloatArray
    covariance: FloatArray
    verdicts: int

    def probability(self, scores: FloatArray) -> FloatArray:
        """Return how likely detections are right: probability, lower and upper limit of 95 %."""
        design = _design(scores)
        variance = np.einsum("ni,ij,nj->n", design, self.covariance, design)
        middle = design @ self.coefficients
        width = DEVIATIONS * np.sqrt(np.maximum(variance, 0.0))
        limits = np.column_stack([middle, middle - width, middle + width])
        return np.asarray(expit(limits))

    def rises(self) -> bool:
        """Return whether the interval of the slope is above 0; if not, scores may say nothing."""
        width = DEVIATIONS * np.sqrt(self.covariance[1, 1])
        return bool(self.coefficients[1] > width)

    def deviation(self, probability: float) -> float:
        """Return half the interval of 95 % where a curve, which must rise, has a probability."""
        intercept, slope = self.coefficients
        score = (logit(probability) - intercept) / slope
        _, low, high = self.probability(np.array([score]))[0]
        return float(high - low) / 2

    def count_missing(self, probability: float) -> int:
        """Return about how many verdicts more would make `deviation` as small as CLOSE."""
        # An interval shrinks with the square root of the number of verdicts.
        ratio = self.deviation(probability) / CLOSE
        return max(0, round(self.verdicts * (ratio**2 - 1)))


def find_probabilities(
    curves: Mapping[str, Calibration], label: NDArray[np.object_], scores: FloatArray
) -> FloatArray:
    """Return how likely detections are right, with limits of 95 %; NaN where there is no curve.

    The shape is (detections, 3), as `Calibration.probability` gives them; `curves` are by label.
    """
    probability = np.full((len(scores), 3), np.nan)
    for name, curve in curves.items():
        has_label = label == name
        probability[has_label] = curve.probability(scores[has_label])
    return probability


def calibrate(
    scores: FloatArray, is_right: Mask, label: Sequence[str]
) -> dict[str, Calibration]:
    """Return the curve of each label that has verdicts; empty if all are right or all wrong.

    The arguments have a value for each detection with a verdict. Labels with fewer than
    MIN_VERDICTS, or without right or wrong ones, share the curve of all.
    """
    if is_right.all() or not is_right.any():
        return {}
    common = fit_logistic(scores, is_right)
    curves = {}
    names = np.asarray(label)
    for name in np.unique(names):
        has_label = names == name
        has_both = is_right[has_label].any() and not is_right[has_label].all()
        curves[str(name)] = common
        if has_both and has_label.sum() >= MIN_VERDICTS:
            curves[str(name)] = fit_logistic(scores[has_label], is_right[has_label])
    return curves


def fit_logistic(scores: FloatArray, is_right: Mask) -> Calibration:
    """Fit a logistic curve with Firth's correction, by Newton's method.

    If it would fall, it has the same probability for all scores: few verdicts that happen to
    reject high scores must not make low ones the most likely to be right.
    """
    # Scores may be large and all alike: standardise them, or the information is singular.
    centre = scores.mean()
    scale = scores.std() or 1.0
    design = _design((scores - centre) / scale)
    coefficients, covariance = _maximise_likelihood(design, is_right)
    if coefficients[1] < 0:
        # Fit the intercept alone: the column of ones.
        intercept, variance = _maximise_likelihood(design[:, :1], is_right)
        coefficients = np.append(intercept, 0.0)
        covariance = np.diag([variance[0, 0], 0.0])
    # a' + b' (score − centre) / scale = a + b score
    undo = np.array([[1.0, -centre / scale], [0.0, 1 / scale]])
    return Calibration(
        coefficients=undo @ coefficients,
        covariance=undo @ covariance @ undo.T,
        verdicts=len(scores),
    )


def _maximise_likelihood(
    design: FloatArray, is_right: Mask
) -> tuple[FloatArray, FloatArray]:
    """Return coefficients by Firth's logistic regression, and their covariance.

    `design` is (detections, columns), `is_right` the verdict on each detection.
    """
    columns = design.shape[1]
    coefficients = np.zeros(columns)
    covariance = np.eye(columns)
    for _ in range(MAX_STEPS):
        probability = expit(design @ coefficients)
        weight = probability * (1 - probability)
        information = (design * weight[:, None]).T @ design
        covariance = np.linalg.pinv(information)
        leverage = weight * np.einsum("ni,ij,nj->n", design, covariance, design)
        penalty = leverage * (0.5 - probability)
        residual = is_right - probability + penalty
        step = covariance @ (design.T @ residual)
        length = np.abs(step).max()
        # Longer steps than MAX_STEP are shortened to it, or Newton's method may diverge.
        scale = min(1.0, MAX_STEP / max(length, TOLERANCE))
        coefficients = coefficients + step * scale
        if length < TOLERANCE:
            break
    return coefficients, covariance


def _design(scores: FloatArray) -> FloatArray:
    """Return the columns of the regression, 1 and the score: (detections, 2)."""
    values = np.asarray(scores, np.float64)
    return np.column_stack([np.ones(len(values)), values])


def check_precision(
    classes: Sequence[str], curves: Mapping[str, Calibration], precision: float | None
) -> list[str]:
    """Return notes on classes whose precision is not well known; OptionError if none is known."""
    if precision is None:
        return []
    if not curves:
        raise OptionError(
            "precision: it is known only from verdicts, right and wrong ones; confirm and reject "
            "some detections (callshot review), and add them to the model (callshot learn --add "
            "REVIEW)"
        )
    unknown = [name for name in classes if name not in curves]
    notes = []
    if unknown:
        notes.append(
            f"--precision: nothing is reported of {join_names(unknown)}, which have no verdicts"
        )
    flat = [name for name, curve in curves.items() if not curve.rises()]
    if flat:
        notes.append(
            f"{join_names(flat)}: the verdicts do not show that a high score is more often right "
            "than a low one, so --precision cannot choose well; confirm and reject more "
            "detections, of high and of low scores (callshot review)"
        )
    for name, curve in curves.items():
        missing = curve.count_missing(precision) if name not in flat else 0
        if missing > 0:
            verdicts = count_text(missing, "more verdict")
            notes.append(
                f"{name}: the precision is known to ± {curve.deviation(precision):.2f}; with "
                f"about {verdicts} it would be known to ± {CLOSE:g}"
            )
    return notes


def drop_rejected(
    events: Frame, model: Model, recordings: Sequence[IndexedRecording]
) -> Frame:
    """Drop events that a reviewer rejected before, and did not confirm since.

    At least half of such an event is in a rejected detection of the same label, recording and
    folder of recordings.
    """
    if model.rejected is None:
        return events
    roots = {recording.root for recording in recordings}
    folders = {root: str(to_path(root).resolve()) for root in roots}  # without links
    by_path = {recording.path: folders[recording.root] for recording in recordings}
    folder = pl.col("recording").replace_strict(by_path, return_dtype=pl.String)
    numbered = events.with_row_index("number").with_columns(root=folder)
    rejected = _find_inside(numbered, model.rejected.spans.frame, equal=["root"])
    # Examples keep no folder of recordings to compare.
    reviewed = model.examples.spans.frame.filter("reviewed")
    confirmed = _find_inside(numbered, reviewed, equal=[])
    dropped = rejected.join(confirmed, on="number", how="anti")
    kept = numbered.join(dropped, on="number", how="anti")
    return kept.drop("number", "root")


def _find_inside(events: Frame, spans: Frame, equal: Sequence[str]) -> Frame:
    """Return the `number` of each event of which at least half is inside one of some spans.

    The span must have the same recording, label, and values in the columns `equal`.
    """
    candidates = spans.select(
        "label", *equal, recording="path", span_start_s="start_s", span_end_s="end_s"
    )
    pairs = events.join(candidates, on=["recording", "label", *equal])
    shared_end_s = pl.min_horizontal("end_s", "span_end_s")
    shared_s = shared_end_s - pl.max_horizontal("start_s", "span_start_s")
    length_s = pl.col("end_s") - pl.col("start_s")
    return pairs.filter(2 * shared_s >= length_s).select("number").unique()
