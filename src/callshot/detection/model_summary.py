"""A model → what people should know of it: its classes, doubtful examples, what to expect.

Expected accuracy: every example is named by the class means of all examples in other recordings.
The mean of fewer examples lies farther from every call, so the class of the left-out recording gets
back what it loses on average.

Expected recall: the examples of each recording, or of some together, are scored by a detector that
was made without them.

Expected false alarms: the mean of the background windows that reach the thresholds, which were
chosen on them, and of the windows that reach thresholds of the other parts of the background, which
rest on less. The interval contains both.

Each has an interval of 95 % for what as many new recordings, or hours, will show (`predict_share`,
`predict_rate`). Calls of a label in one recording are alike, so they count as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import polars as pl
from scipy.spatial.distance import cdist, pdist
from scipy.stats import betabinom, nbinom

from callshot.detection.background import UNLABELLED, Background, Mask, split_background
from callshot.detection.detector import (
    MIN_WINDOWS,
    Detector,
    choose_covariances,
    choose_thresholds,
    find_median_scores,
    find_medians,
    make_detector,
)
from callshot.detection.matching import divide
from callshot.detection.model import SEGMENT, Model, describe_locations
from callshot.detection.sentences import DEFAULT_AIM, say
from callshot.errors import InputError
from callshot.records import FloatArray, IntArray

MAX_LEFT_OUT = 20  # examples of a class, to find what one is worth
MAX_PARTS = 20
FEW_PARTS = 5  # for more classes than MANY_CLASSES
MANY_CLASSES = 200
FAR = 3.0  # times the median distance of a class
DOUBTFUL_FROM = 1.5  # times that median, if another class is nearer
MANY_ALARMS = 10.0  # per hour, to find half of the calls: a scan is of little use
MIN_TESTED = 5  # labels × recordings, for an interval
LIMITS = (0.025, 0.975)


class Interval(NamedTuple):
    """An expected value, and the limits of 95 % of what will be seen."""

    value: float
    low: float
    high: float


def predict_share(share: float, count: int) -> Interval:
    """Return the share to expect among as many new cases as it was measured on.

    The number of hits among them is beta-binomial, with the prior of Jeffreys.

    >>> tuple(map(float, predict_share(0.9, 20)))
    (0.9, 0.65, 1.0)
    """
    hits = share * count
    prior = 0.5  # hits and misses that the prior counts like
    misses = count - hits
    low, high = betabinom.ppf(LIMITS, count, hits + prior, misses + prior) / count
    return Interval(share, low, high)


def predict_rate(count: int, hours: float) -> Interval:
    """Return the number per hour to expect in as many new hours.

    The number in these is negative binomial: Poisson, with the prior of Jeffreys.

    >>> tuple(map(float, predict_rate(4, 2.0)))
    (2.0, 0.0, 6.0)
    """
    prior = 0.5  # events that the prior counts like
    share_of_known_hours = 0.5  # as many hours are new
    low, high = nbinom.ppf(LIMITS, count + prior, share_of_known_hours) / hours
    return Interval(count / hours, low, high)


@dataclass(frozen=True)
class LabelledVectors:
    """Examples with the numbers of their classes and recordings, from 0.

    `variance` is of the examples of a class around its mean, over all dimensions.
    """

    vectors: FloatArray
    label: IntArray
    recording: IntArray
    classes: int
    variance: float = 0.0

    def count_recordings(self) -> IntArray:
        """Return how many recordings have examples of each class."""
        pairs = np.unique(np.column_stack([self.label, self.recording]), axis=0)
        return np.bincount(pairs[:, 0], minlength=self.classes)

    @cached_property
    def testable(self) -> Mask:
        """Whether another recording has the class of each example."""
        return self.count_recordings()[self.label] > 1

    @cached_property
    def evidence(self) -> FloatArray:
        """The evidence for each class by other recordings, examples × classes."""
        columns = [self.evidence_for(number) for number in range(self.classes)]
        return np.concatenate(columns, axis=1)

    def evidence_for(
        self, number: int, left_out: Sequence[int] | IntArray = ()
    ) -> FloatArray:
        """Return how much each example looks like a class, by its mean c in other recordings.

        The evidence is 2 x·c − |c|²: the larger, the nearer. It is −inf if no other recording has
        the class. With `left_out`, rows of examples of the class, the result is (examples, left
        out): in each column the mean is without one of these examples. Otherwise it has one column.

        |c|² is expected to be larger by variance / n for a mean of n examples. So that classes in
        the recording of an example, whose mean is without it, are not at a disadvantage, that
        difference is added.
        """
        rows = np.flatnonzero(self.label == number)
        count = len(rows)
        sums = self.vectors[rows].sum(axis=0)[None]  # (left out, dimensions)
        if len(left_out) > 0:
            sums = sums - self.vectors[left_out]
            count -= 1
        evidence = np.empty((len(self.vectors), len(sums)))
        recording_of_row = self.recording[rows]
        # First all examples by the mean of all (None); then those of each recording that has the
        # class again, without the examples of this recording.
        for recording in (None, *np.unique(recording_of_row)):
            inside = np.ones(len(self.vectors), bool)
            own_rows = rows[:0]  # none
            if recording is not None:
                inside = self.recording == recording
                own_rows = rows[recording_of_row == recording]
            remaining = count - len(own_rows)
            evidence[inside] = -np.inf
            if remaining > 0:
                own_sum = self.vectors[own_rows].sum(axis=0)
                means = (sums - own_sum) / remaining
                squares = np.einsum("nd,nd->n", means, means)
                doubled = 2 * self.vectors[inside]
                products = doubled @ means.T
                added = self.variance * (1 / remaining - 1 / count)
                evidence[inside] = products - squares + added
        return evidence


def gain_of_one_more(data: LabelledVectors) -> FloatArray:
    """Return what one more example of each class would add to the mean recall of all classes.

    The loss is measured when one of the k examples of a class is left out, for up to 20 of them.
    Recall is modelled as a − b/k, so the next one adds (k − 1)/(k + 1) of that loss. NaN for
    classes with fewer than three examples, or if no class can be tested.
    """
    gains = np.full(data.classes, np.nan)
    if not data.testable.any():
        return gains
    # What each example adds to the mean recall of all classes if it is named right
    testable_labels = data.label[data.testable]
    testable_of_class = np.bincount(testable_labels, minlength=data.classes)
    testable_classes = np.count_nonzero(testable_of_class)
    at_least_one = np.maximum(testable_of_class, 1)
    share_of_class = 1 / (at_least_one * testable_classes)
    share = np.where(data.testable, share_of_class[data.label], 0.0)
    named = data.evidence.argmax(axis=1)
    is_right = named == data.label
    for number in range(data.classes):
        rows = np.flatnonzero(data.label == number)
        count = len(rows)
        if count < 3:
            continue
        spaced = np.linspace(0, count - 1, MAX_LEFT_OUT).round()
        positions = np.unique(spaced).astype(np.int64)
        left_out = rows[positions]
        named_without = _name_without(data, number, left_out, named)
        stays_right = named_without == data.label[:, None]
        changes = is_right[:, None].astype(int) - stays_right
        losses = share @ changes  # of mean recall, for each that is left out
        mean_loss = losses.mean()
        gains[number] = mean_loss * (count - 1) / (count + 1)
    return gains


def _name_without(
    data: LabelledVectors, number: int, left_out: IntArray, named: IntArray
) -> IntArray:
    """Return the class that each example gets if one example is left out, (examples, left out).

    `left_out` are rows of examples of class `number`, one for each column. `named` is the class
    that each example gets from all.
    """
    # The evidence for the other classes stays as it was; (examples, 1).
    evidence_for_others = data.evidence.copy()
    evidence_for_others[:, number] = -np.inf
    best_other = evidence_for_others.argmax(axis=1)[:, None]
    highest_of_others = evidence_for_others.max(axis=1)[:, None]
    evidence = data.evidence_for(number, left_out)
    is_ahead = evidence > highest_of_others
    is_tie = evidence == highest_of_others
    wins_ties = number < best_other  # as argmax, which takes the first of equal ones
    wins = is_ahead | (is_tie & wins_ties)
    named_without = np.where(wins, number, best_other)
    # An example never supports a class in its own recording: nothing changes there.
    is_same_recording = data.recording[:, None] == data.recording[left_out]
    return np.where(is_same_recording, named[:, None], named_without)


@dataclass(frozen=True, eq=False)
class Expectation:
    """What a scan by thresholds is expected to find.

    testable  of each class, examples whose class is in another recording too
    hits      of each class, testable examples that are found and named right
    tested    of each class, in how many recordings the testable examples are
    alarms    false alarms per hour without calls, of all classes together
    costs     of each class, false alarms per hour at which half of its calls are found
    """

    detector: Detector
    testable: IntArray
    hits: IntArray
    tested: IntArray
    alarms: Interval | None
    costs: list[Interval | None]

    @property
    def recall(self) -> FloatArray:
        """The share of calls of each class that are found and named right; NaN: unknown."""
        return divide(self.hits, self.testable)

    def find_costly(self, model: Model) -> list[tuple[str, Interval]]:
        """Return the labels whose calls are found only with many false alarms, and how many."""
        costly = []
        for label, cost, recordings in zip(
            model.classes, self.costs, self.tested, strict=True
        ):
            if cost is None or recordings < MIN_TESTED:
                continue
            if cost.low >= MANY_ALARMS:
                costly.append((label, cost))
        return costly


def expect_scan(
    model: Model, false_alarms_per_h: float, max_parts: int = MAX_PARTS
) -> Expectation:
    """Return what a scan by thresholds is expected to find in other recordings.

    Recordings of examples are left out in at most `max_parts` parts: fewer take less time, and give
    more pessimistic results. Raise InputError if no threshold can be found.
    """
    background = model.background
    detector = make_detector(model, background, false_alarms_per_h)
    classes = len(model.classes)
    recording = np.unique(model.examples.recording, return_inverse=True)[1]
    parts = FEW_PARTS if classes > MANY_CLASSES else max_parts
    part_of_example = recording % parts
    scores, is_hit = _test_examples(model, part_of_example, false_alarms_per_h)
    is_tested = ~np.isnan(scores)
    tested_class = model.label[is_tested]
    tested_recording = recording[is_tested]
    pairs = np.unique(np.column_stack([tested_class, tested_recording]), axis=0)
    alarms = None
    costs: list[Interval | None] = [None] * classes
    if detector.layer is not None:
        assert background is not None  # it has a layer
        chosen, window_scores = choose_covariances(model, background)
        medians = find_median_scores(model, chosen)
        alarms = _predict_alarms(
            detector, background, window_scores, medians, false_alarms_per_h
        )
        for number in np.unique(tested_class):
            # Half of the calls are found with a threshold at the median of their scores.
            median_score = np.nanmedian(scores[model.label == number])
            count = int(np.sum(window_scores[:, number] >= median_score))
            costs[number] = predict_rate(count, background.hours)
    return Expectation(
        detector=detector,
        testable=np.bincount(tested_class, minlength=classes),
        hits=np.bincount(model.label[is_hit], minlength=classes),
        tested=np.bincount(pairs[:, 0], minlength=classes),
        alarms=alarms,
        costs=costs,
    )


def _test_examples(
    model: Model, part: IntArray, false_alarms_per_h: float
) -> tuple[FloatArray, Mask]:
    """Score the examples of each part by a detector that was made from the other parts.

    Return the score of each example for its own class, NaN where the other parts have none of it,
    and whether it is found and named right. A part has whole recordings.
    """
    names = np.array(model.classes)[model.label]  # of the class of each example
    is_hit = np.zeros(len(names), bool)
    own_scores = np.full(len(names), np.nan)
    for number in range(part.max() + 1):
        inside = part == number
        if inside.all():
            continue
        remaining = model.examples.take(np.flatnonzero(~inside))
        others = replace(model, examples=remaining)
        try:
            detector = make_detector(others, model.background, false_alarms_per_h)
        except InputError:  # a class of one example, and no background
            continue
        has_class = np.isin(names, detector.classes)
        rows = np.flatnonzero(inside & has_class)
        # Classes of this detector are numbered without classes of this part alone.
        own_class = np.searchsorted(detector.classes, names[rows])
        scores = detector.score(model.examples.matrix[rows])  # (rows, classes)
        scores_of_rows = scores[np.arange(len(rows)), own_class]
        own_scores[rows] = scores_of_rows
        is_best = scores.argmax(axis=1) == own_class
        is_found = scores_of_rows >= detector.thresholds[own_class]
        is_hit[rows] = is_best & is_found
    return own_scores, is_hit


def _predict_alarms(
    detector: Detector,
    background: Background,
    scores: FloatArray,
    median_example_score: FloatArray,
    false_alarms_per_h: float,
) -> Interval:
    """Return the false alarms per hour, of all classes together, to expect in other background.

    `scores` are those of its windows. Thresholds that were chosen on these windows give too few
    alarms; thresholds chosen on the other parts, which are fewer windows, give too many. The result
    is half-way between both, and its limits contain both.
    """
    best = scores.argmax(axis=1)
    best_scores = scores[np.arange(len(best)), best]
    is_alarm_in_sample = best_scores >= detector.thresholds[best]
    is_alarm_held_out = np.zeros(len(best), bool)
    for inside in split_background(background):
        rows = np.flatnonzero(~inside)
        rest = replace(background, windows=background.windows.take(rows))
        if len(rows) >= MIN_WINDOWS:
            thresholds = choose_thresholds(
                scores[rows], false_alarms_per_h, rest, median_example_score
            )
            threshold_of_window = thresholds[best[inside]]
            is_alarm_held_out[inside] = best_scores[inside] >= threshold_of_window
    alarms_in_sample = int(is_alarm_in_sample.sum())
    alarms_held_out = int(is_alarm_held_out.sum())
    fewer = predict_rate(alarms_in_sample, background.hours)
    more = predict_rate(alarms_held_out, background.hours)
    half_way = (fewer.value + more.value) / 2
    low = min(fewer.low, more.low)
    high = max(fewer.high, more.high)
    return Interval(half_way, low, high)


def class_table(model: Model) -> pl.DataFrame:
    """Return a row per class: examples, recordings, recall by other recordings, one more example.

    `testable` examples have their class in another recording; `recall` is the share of them that
    the examples of other recordings name right; see `gain_of_one_more`.
    """
    vectors = model.examples.matrix.astype(np.float64)
    vectors -= vectors.mean(axis=0)  # near the origin, for fewer rounding errors
    _, recording = np.unique(model.examples.recording, return_inverse=True)
    degrees_of_freedom = len(vectors) - len(model.classes)
    squares = (model.examples.matrix - model.means[model.label]) ** 2
    variance = float(squares.sum()) / max(1, degrees_of_freedom)
    data = LabelledVectors(
        vectors, model.label, recording, classes=len(model.classes), variance=variance
    )
    named = data.evidence.argmax(axis=1)
    is_hit = data.testable & (named == data.label)
    testable_labels = data.label[data.testable]
    totals = np.bincount(testable_labels, minlength=data.classes)
    hits = np.bincount(data.label[is_hit], minlength=data.classes)
    columns = {
        "label": list(model.classes),
        "examples": model.counts,
        "recordings": data.count_recordings(),
        "testable": totals,
        "recall": divide(hits, totals),
        "one_more": gain_of_one_more(data),
    }
    return pl.DataFrame(columns).with_columns(pl.col(pl.Float64).fill_nan(None))


def similar_pairs(model: Model) -> pl.DataFrame:
    """Return the pairs of classes, the most similar first.

    `ratio` is the distance of the two means, divided by the typical distance (root mean square) of
    examples from the mean of their class; null for two classes with one example each.
    """
    deviation = model.examples.matrix - model.means[model.label]
    squares = np.einsum("nd,nd->n", deviation, deviation)
    sums = np.bincount(model.label, squares)
    within = np.asarray(sums / model.counts)  # mean square of each class
    first, second = np.triu_indices(len(model.classes), 1)  # in the order of pdist
    distance = pdist(model.means)
    mean_within = (within[first] + within[second]) / 2
    names = pl.Series(model.classes, dtype=pl.String)
    columns = {
        "label": names.gather(first),
        "other_label": names.gather(second),
        "distance": distance,
        "ratio": divide(distance, np.sqrt(mean_within)),
    }
    frame = pl.DataFrame(columns).with_columns(pl.col("ratio").fill_nan(None))
    return frame.sort("ratio", "distance", "label", "other_label", nulls_last=True)


def doubtful_examples(model: Model) -> pl.DataFrame:
    """Return examples that may have the wrong label, the most doubtful first.

    An example is doubtful if it is three times as far from the other examples of its class as the
    median of that class; or 1.5 times, if the mean of another class is nearer (`nearer_to`).
    """
    own_distance = model.distances
    # From the means of the other classes, (examples, classes).
    distances = cdist(model.examples.matrix.astype(np.float64), model.means)
    distances[np.arange(len(distances)), model.label] = np.inf
    excess = own_distance - distances.min(axis=1)
    is_nearer = excess > 0  # to the mean of another class
    medians = find_medians(model, own_distance)
    limit = np.where(is_nearer, DOUBTFUL_FROM, FAR) * medians[model.label]
    names = pl.Series(model.classes, dtype=pl.String)
    nearest = names.gather(distances.argmin(axis=1))
    frame = model.examples.spans.frame.select(
        "path",
        "start_s",
        "end_s",
        "label",
        nearer_to=pl.when(pl.Series(is_nearer)).then(nearest),
        distance=pl.Series(own_distance),
        excess=pl.Series(excess),
    )
    doubtful = frame.filter(own_distance > limit)
    order = ("excess", "path", "start_s")
    return doubtful.sort(order, descending=[True, False, False]).drop("excess")


def expect_accuracy(classes: pl.DataFrame) -> Interval | None:
    """Return the mean recall to expect, from `class_table`; None if too few are tested."""
    recalls, recordings = classes.filter(pl.col("testable") > 0)["recall", "recordings"]
    return _expect_mean_recall(recalls.to_numpy(), recordings.to_numpy())


def _expect_mean_recall(recalls: FloatArray, recordings: IntArray) -> Interval | None:
    """Return the mean recall over classes, for as many new recordings; None if too few."""
    count = int(recordings.sum())
    if count < MIN_TESTED:
        return None
    return predict_share(float(recalls.mean()), count)


def expect_recall(model: Model, expected: Expectation) -> Interval | None:
    """Return the mean recall to expect of a scan by thresholds; None if it cannot be known."""
    if explain_unknown(model):
        return None
    tested = expected.tested > 0
    return _expect_mean_recall(expected.recall[tested], expected.tested[tested])


def explain_unknown(model: Model) -> str:
    """Return why it cannot be predicted what a scan finds, or "".

    The reason is a key, for which `sentences.txt` has the text.
    """
    background = model.background
    if are_clips(model):
        return "clips"
    if background is None or len(background.vectors) < MIN_WINDOWS:
        return "no background"
    if UNLABELLED in background.origins:
        return "no labels"
    return "little background" if DEFAULT_AIM * background.hours < 1 else ""


def are_clips(model: Model) -> bool:
    """Return whether all examples begin where their files do: the files were cut out."""
    return not any(model.examples.spans["start_s"])


def describe_model(model: Model) -> list[str]:
    """Return the lines of `callshot model`."""
    expected = None
    recall = None
    problem = ""
    if model.settings.source != SEGMENT:
        try:
            expected = expect_scan(model, DEFAULT_AIM)
            recall = expect_recall(model, expected)
        except InputError as error:
            problem = str(error).removeprefix(f"{model.source}: ")
    classes = class_table(model)
    lines = say(
        "model",
        model,
        classes.to_dicts(),
        expect_accuracy(classes),
        are_clips(model),
        expected,
        recall,
        explain_unknown(model),
        problem,
        similar_pairs(model).to_dicts(),
        doubtful_examples(model).to_dicts(),
    )
    return lines + describe_limits(model)


def describe_costly(model: Model) -> list[str]:
    """Return a line if calls are found only with many false alarms, by a quick estimate."""
    if model.background is None or len(model.background.vectors) == 0:
        return []
    try:
        expected = expect_scan(model, DEFAULT_AIM, FEW_PARTS)
    except InputError:  # no threshold can be found, which scan and model say
        return []
    return say("costly", expected.find_costly(model))


def describe_limits(model: Model) -> list[str]:
    """Return a line for each weakness of a model: few labels, single or identical examples."""
    classes = np.array(model.classes)
    single = classes[model.counts == 1].tolist()
    groups: dict[bytes, list[int]] = {}  # rows of examples with the same vector
    for row, vector in enumerate(model.examples.matrix):
        groups.setdefault(vector.tobytes(), []).append(row)
    identical = []
    for group in groups.values():
        if len(group) > 1:
            examples = model.examples.spans.take(group)
            labels = sorted(set(examples["label"]))
            identical.append((describe_locations(examples), labels))
    return say("limits", model, single, identical)
