"""Windows → a score for each class, and the threshold that a score must reach.

With background of mean b and covariance S, the score of a window z is how many standard deviations
of the background it lies from b in the direction of the class mean c:

    (z − b) · S⁻¹ (c − b) / √((c − b) · S⁻¹ (c − b))

S is the covariance of Ledoit and Wolf, which has an inverse for any number of windows. So what
varies in the background counts little: wind, rain, other animals. Without background the score is
−|z − c|². A window whose scores are all below their thresholds is none of the classes.

Background that was not listened to has calls: some that annotators missed, all of them in windows
of a site without labels. There b and S leave out the 40 % of windows with the highest scores, and
thresholds do not depend on the highest tenth. In annotated recordings this is done only if windows
score nearly as the examples do: without their loudest windows, b and S do not know rain or wind.
Whether calls were missed is decided at one aim, so that a threshold never rises when more false
alarms are allowed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from callshot.detection.background import (
    ANNOTATED,
    UNLABELLED,
    WITHOUT_CALLS,
    Background,
    Covariance,
    Covariances,
    Mask,
    extrapolate_tail,
    false_alarm_factor,
    find_event_thresholds,
    measure_covariance,
    measure_covariances,
    score_held_out,
)
from callshot.detection.model import Model
from callshot.detection.nearest import (
    BACKGROUND,
    Limits,
    NearestMeanDetector,
    ShareScorer,
    Site,
    split_blocks,
    squared_distances,
)
from callshot.detection.verdicts import Calibration, calibrate
from callshot.errors import InputError, OptionError
from callshot.fewshot.centroid import LinearLayer
from callshot.records import FloatArray, IntArray
from callshot.vectors import FloatMatrix

HIGHEST_AIM = 3600.0
# False alarms per hour, at which it is decided whether calls were missed.
USUAL_AIM = 1.0
TAIL = 50  # of the highest background scores, from which thresholds are extrapolated
MIN_WINDOWS = 2
TRIMMED_SHARE = 0.4  # of windows that may have calls
# Times the median score of examples: background that scores so has calls.
LIKE_CALLS = 0.5
TRIMMINGS = 3
QUANTILES = (0.5, 0.9)  # of scores, from which thresholds are extrapolated past calls


@dataclass(frozen=True, eq=False)
class Detector:
    """What decides whether a window has a call, and of which class.

    means       classes × dimensions
    layer       gives the scores of a window z; None without background: −|z − c|²
    thresholds  the score that a window of each class must reach
    origin      what the thresholds were found from, in words
    curves      from scores to probabilities, by class, where there are verdicts
    """

    classes: tuple[str, ...]
    means: FloatArray
    layer: LinearLayer | None
    thresholds: FloatArray
    origin: str
    curves: Mapping[str, Calibration] = field(default_factory=dict)

    def score(self, vectors: FloatMatrix) -> FloatArray:
        """Return the score of each class for each window, windows × classes."""
        if self.layer is None:
            return -squared_distances(vectors, self.means)
        return self.layer(vectors)

    def search(
        self, parts: Sequence[FloatMatrix]
    ) -> tuple[IntArray, FloatArray, FloatArray]:
        """Return the class of each window, or BACKGROUND, and its scores (windows, classes), twice.

        `parts` are the vectors of the windows of a recording, a matrix for each file of them. The
        scores come twice because a `NearestMeanDetector` returns two kinds of scores here.
        """
        blocks = split_blocks(parts)
        scores = np.concatenate(
            [self.score(block.astype(np.float64)) for block in blocks]
        )
        best = scores.argmax(axis=1)
        best_scores = scores[np.arange(len(scores)), best]
        is_call = best_scores >= self.thresholds[best]
        return np.where(is_call, best, BACKGROUND), scores, scores

    def distances(self, vectors: FloatMatrix) -> FloatArray:
        """Return the distance of each window from each class mean, windows × classes."""
        return np.asarray(np.sqrt(squared_distances(vectors, self.means)))


def make_detector(
    model: Model, background: Background | None, false_alarms_per_h: float
) -> Detector:
    """Return the detector of a model whose thresholds meet an aim per hour of background and class.

    Without enough background, thresholds come from the examples alone.
    """
    check_aim(false_alarms_per_h)
    if background is None or len(background.vectors) < MIN_WINDOWS:
        return _make_detector_of_examples(model)
    chosen, scores = choose_covariances(model, background)
    medians = find_median_scores(model, chosen)
    absent = "labels" if UNLABELLED in background.origins else "calls"
    origin = f"{len(background.vectors)} windows without {absent}, "
    origin += f"{background.hours:.2f} hours"
    if false_alarms_per_h * background.hours < 1:  # not one in all of it
        origin += ", extrapolated beyond the highest score"
    return Detector(
        classes=model.classes,
        means=model.means,
        layer=chosen.whole.find_discriminants(model.means),
        thresholds=choose_thresholds(scores, false_alarms_per_h, background, medians),
        origin=origin,
        curves=find_curves(model, chosen.whole),
    )


def limit_alarms(
    nearest: NearestMeanDetector,
    model: Model,
    background: Background,
    false_alarms_per_h: float,
) -> NearestMeanDetector:
    """Give a nearest-mean detector limits, so that it meets an aim of false alarms.

    A window that is nearest to a class must then also exceed a threshold of this class, for scores
    by the covariance of the background. Above the threshold there are about as many events of the
    class in all background as the aim allows, at least one.
    """
    covariances, scores = choose_covariances(model, background)
    class_of_window, _ = nearest.search_held_out(background)
    allowed_events = max(1.0, false_alarms_per_h * background.hours)
    thresholds = find_event_thresholds(
        class_of_window, scores, background, allowed_events
    )
    # BACKGROUND, −1, takes a value of the last class here, and stays BACKGROUND below.
    own_scores = scores[np.arange(len(scores)), class_of_window]
    is_alarm = own_scores > thresholds[class_of_window]
    class_of_alarm = np.where(is_alarm, class_of_window, BACKGROUND)
    factor = false_alarm_factor(
        class_of_alarm, background, allowed_events, len(thresholds)
    )
    layer = covariances.whole.find_discriminants(model.means)
    return replace(nearest, limits=Limits(layer, thresholds, factor))


def find_curves(
    model: Model, background: Covariance | Site | None
) -> dict[str, Calibration]:
    """Return for each class the curve from the score of a detection to how likely it is right.

    The curves are fitted to the scores of detections that reviewers confirmed or rejected. A
    confirmed call is scored by the mean of the other examples of its class. With a Site, the
    vectors of the model must be transformed by it.
    """
    if model.rejected is None:
        return {}
    examples_of_class = model.counts[model.label]  # for each example
    is_reviewed = model.examples.spans.frame["reviewed"].to_numpy()
    has_others = examples_of_class > 1
    is_known = np.isin(model.rejected.label, model.classes)
    confirmed_rows = np.flatnonzero(is_reviewed & has_others)
    rejected_rows = np.flatnonzero(is_known)
    if len(confirmed_rows) == 0 or len(rejected_rows) == 0:
        return {}

    confirmed = model.examples.matrix[confirmed_rows].astype(np.float64)
    confirmed_class = model.label[confirmed_rows]
    count = examples_of_class[confirmed_rows, None]
    sums = model.means[confirmed_class] * count
    means_of_others = (sums - confirmed) / (count - 1)
    # Row n is confirmed call n, column n the mean of the others of its class: (calls, calls).
    scorer_of_others = make_scorer(means_of_others, background)
    scores_by_others = scorer_of_others.score(confirmed)
    confirmed_scores = np.diagonal(scores_by_others)

    rejected = model.rejected.take(rejected_rows)
    rejected_class = np.searchsorted(model.classes, rejected.label)
    scorer = make_scorer(model.means, background)
    scores_of_classes = scorer.score(rejected.matrix)
    rejected_scores = scores_of_classes[np.arange(len(rejected)), rejected_class]

    scores = np.append(confirmed_scores, rejected_scores)
    is_right = np.repeat([True, False], [len(confirmed), len(rejected)])
    class_of_score = np.append(confirmed_class, rejected_class)
    names = [model.classes[number] for number in class_of_score]
    return calibrate(scores, is_right, names)


def make_scorer(
    means: FloatArray, background: Covariance | Site | None
) -> Detector | ShareScorer:
    """Return what scores windows for class means; it has no thresholds.

    With a Site, means and windows must be transformed by it.
    """
    if isinstance(background, Site):
        return ShareScorer(means, background.background)
    layer = None if background is None else background.find_discriminants(means)
    return Detector(
        classes=(),
        means=means,
        layer=layer,
        thresholds=np.full(len(means), -np.inf),
        origin="",
    )


def choose_covariances(
    model: Model, background: Background
) -> tuple[Covariances, FloatArray]:
    """Choose which background windows count; return their covariances, and scores of all windows.

    Windows of annotated recordings are taken for background, unless more of them than the usual
    aim allows score half of what examples do: then calls were missed.
    """
    if UNLABELLED not in background.origins:
        covariances = background.covariances
        scores = score_held_out(model.means, background, covariances)
        thresholds = find_thresholds(scores, USUAL_AIM * background.hours)
        like_calls = LIKE_CALLS * find_median_scores(model, covariances)
        may_have_calls = ANNOTATED in background.origins
        if not may_have_calls or (thresholds <= like_calls).all():
            return covariances, scores
    without_calls = trim_background(model.means, background)  # mask of windows
    covariances = measure_covariances(background, without_calls)
    return covariances, score_held_out(model.means, background, covariances)


def check_aim(false_alarms_per_h: float) -> None:
    """Raise OptionError unless thresholds can meet an aim."""
    if not 0 < false_alarms_per_h <= HIGHEST_AIM:
        raise OptionError(
            f"false_alarms: expected more than 0 and at most {HIGHEST_AIM:g} per hour, "
            f"got {false_alarms_per_h:g}"
        )


def trim_background(means: FloatArray, background: Background) -> Mask:
    """Return a mask of the windows to keep: all but the 40 % that score highest for a class.

    Windows of recordings without calls are all kept.
    """
    is_certain = background.origins == WITHOUT_CALLS  # has no calls, so it is kept
    keep = np.ones(len(is_certain), bool)
    if is_certain.all():
        return keep
    for _ in range(TRIMMINGS):  # each by the covariance of what the one before kept
        covariance = measure_covariance(background.vectors[keep])
        scores = covariance.find_discriminants(means)(background.vectors)
        highest = scores.max(axis=1)
        limit = np.quantile(highest[~is_certain], 1 - TRIMMED_SHARE)
        keep = is_certain | (highest <= limit)
    return keep


def find_median_scores(model: Model, covariances: Covariances) -> FloatArray:
    """Score examples for their own class; return the median score of each class."""
    layer = covariances.whole.find_discriminants(model.means)
    label = model.label
    # Only the score for the own class of each example: (examples,).
    scores = np.einsum("nd,nd->n", model.examples.matrix, layer.weight[label])
    return find_medians(model, scores + layer.bias[label])


def find_medians(model: Model, values: FloatArray) -> FloatArray:
    """Return the median of each class, given a value for each example of the model."""
    numbers = range(len(model.classes))
    return np.array([np.median(values[model.label == number]) for number in numbers])


def choose_thresholds(
    scores: FloatArray,
    aim_per_h: float,
    background: Background,
    median_example_score: FloatArray,
) -> FloatArray:
    """Return the threshold of each class that meets an aim of false alarms in background.

    `scores` are (windows, classes). The highest ones count only if they are background. In
    annotated recordings they are, unless half of the examples would not reach the threshold of the
    usual aim: then annotators missed calls.
    """
    origins = set(background.origins)
    allowed = aim_per_h * background.hours
    if UNLABELLED in origins:
        return find_robust_thresholds(scores, allowed)
    thresholds = find_thresholds(scores, allowed)
    if ANNOTATED in origins:
        usual = find_thresholds(scores, USUAL_AIM * background.hours)
        calls_were_missed = usual > median_example_score  # by class
        robust = find_robust_thresholds(scores, allowed)
        lower = np.minimum(thresholds, robust)
        thresholds = np.where(calls_were_missed, lower, thresholds)
    return thresholds


def find_robust_thresholds(scores: FloatArray, allowed: float) -> FloatArray:
    """Return for each class the score that `allowed` windows would reach if none had a call.

    `scores` are (windows, classes). Those above the median are taken to fall off exponentially, as
    they do up to the quantile 0.9.
    """
    low, high = QUANTILES
    low_score, high_score = np.quantile(scores, QUANTILES, axis=0)
    # The number of windows that exceed a score is proportional to exp(−score / scale).
    ratio = (1 - low) / (1 - high)  # of the windows above the two scores
    scale = (high_score - low_score) / np.log(ratio)
    windows_above_low = (1 - low) * len(scores)
    excess = scale * np.log(windows_above_low / allowed)
    return np.asarray(low_score + excess)


def find_thresholds(scores: FloatArray, allowed: float) -> FloatArray:
    """Return for each class the score that at most `allowed` background windows reach.

    `scores` are (windows, classes). The highest are taken to fall off exponentially, with the mean
    excess of the highest 50.
    Where they fall off more slowly, the threshold is above all windows that are too many.
    """
    thresholds = []
    falling_scores = -np.sort(-scores, axis=0)
    for falling in falling_scores.T:  # of a class, the highest first
        if len(falling) <= allowed:
            thresholds.append(-np.inf)
            continue
        # Just above the highest window that would be one too many
        threshold = float(np.nextafter(falling[int(allowed)], np.inf))
        count = min(TAIL, len(falling) - 1)
        if allowed < count:
            threshold = max(threshold, extrapolate_tail(falling, count, allowed))
        thresholds.append(threshold)
    return np.array(thresholds)


def _make_detector_of_examples(model: Model) -> Detector:
    """Return a detector without background, whose scores are −|z − c|².

    The threshold of a class is at the example that is farthest from the mean of the others.
    """
    thresholds = np.full(len(model.classes), np.nan)
    for number, name in enumerate(model.classes):
        distances = model.distances[model.label == number]
        if np.isnan(distances).all():
            raise InputError(
                f"{model.source}: {name} has one example and there is no background, so no "
                "threshold can be found; add an example, or learn with --background"
            )
        thresholds[number] = -(np.nanmax(distances) ** 2)
    return Detector(
        classes=model.classes,
        means=model.means,
        layer=None,
        thresholds=thresholds,
        origin="distances of the examples from the mean of the others of their label, which say "
        "nothing about false alarms",
        curves=find_curves(model, background=None),
    )
