"""A model → what people should know of it: its classes, doubtful examples, what to expect.

Expected accuracy: every example is named by the class means of all examples in other recordings. An
example of a class that no other recording has cannot be tested.

Expected recall: the examples of each recording are scored by a detector that was made without them.
With many recordings, some are left out together, and more of them if there are many classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.spatial.distance import cdist, pdist

from callshot.detection.detector import (
    Detector,
    find_covariances,
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
LOW_RECALL = 0.1


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors with the numbers of their classes and recordings, from 0; all in one order."""

    vectors: FloatArray
    label: IntArray
    recording: IntArray
    classes: int

    def count_recordings(self) -> IntArray:
        """Return how many recordings have examples of each class."""
        pairs = np.unique(np.column_stack([self.label, self.recording]), axis=0)
        return np.bincount(pairs[:, 0], minlength=self.classes)

    @cached_property
    def testable(self) -> NDArray[np.bool_]:
        """Whether another recording has the class of each example."""
        return self.count_recordings()[self.label] > 1

    @cached_property
    def evidence(self) -> FloatArray:
        """The evidence for each class by other recordings, examples × classes."""
        numbers = range(self.classes)
        return np.concatenate([self.evidence_for(number) for number in numbers], 1)

    def evidence_for(
        self, number: int, left_out: Sequence[int] | IntArray = ()
    ) -> FloatArray:
        """Return the evidence for a class by other recordings, if one example is left out.

        It is 2 x·c − |c|² for a vector x and a class mean c: the larger, the nearer. −inf: there
        are no other examples. Examples × left out; one column if there are none to leave out.
        """
        rows = np.flatnonzero(self.label == number)
        count = len(rows)
        sums = self.vectors[rows].sum(axis=0)[None]
        if len(left_out) > 0:
            sums = sums - self.vectors[left_out]
            count -= 1
        evidence = np.empty((len(self.vectors), len(sums)))
        groups = self.recording[rows]
        for recording in (-1, *np.unique(groups)):  # −1: all, of which some follow
            inside = (self.recording == recording) | (recording < 0)
            own_rows = rows[groups == recording]
            remaining = count - len(own_rows)
            evidence[inside] = -np.inf
            if remaining > 0:
                own_sums = self.vectors[own_rows].sum(axis=0)
                means = (sums - own_sums) / remaining
                squares = np.einsum("nd,nd->n", means, means)
                doubled = 2 * self.vectors[inside]
                evidence[inside] = doubled @ means.T - squares
        return evidence


def gain_of_one_more(data: LabelledVectors) -> FloatArray:
    """Return what one more example of each class would add to the mean recall of all classes.

    The loss is measured when one of the k examples of a class is left out, for up to 20 of them.
    Recall with k examples is modelled as a − b/k, so the next one adds (k − 1)/(k + 1) of that
    loss. NaN for classes with fewer than three examples, or if no class can be tested.
    """
    gains = np.full(data.classes, np.nan)
    if not data.testable.any():
        return gains
    # What each example adds to the mean recall of all classes if it is named right
    totals = np.bincount(data.label[data.testable], minlength=data.classes)
    weights = 1 / (np.maximum(totals, 1) * np.count_nonzero(totals))
    weight = np.where(data.testable, weights[data.label], 0.0)
    decided = data.evidence.argmax(axis=1)
    is_right = decided == data.label
    for number in range(data.classes):
        rows = np.flatnonzero(data.label == number)
        count = len(rows)
        if count < 3:
            continue
        places = np.linspace(0, count - 1, MAX_LEFT_OUT).round()
        left_out = rows[np.unique(places).astype(np.int64)]
        # The evidence for the other classes stays as it was.
        others = data.evidence.copy()
        others[:, number] = -np.inf
        other_class = others.argmax(axis=1)[:, None]
        best = others.max(axis=1)[:, None]
        # From here on, tables are (examples, left out).
        without = data.evidence_for(number, left_out)
        wins_ties = number < other_class
        wins = (without > best) | ((without == best) & wins_ties)
        predicted = np.where(wins, number, other_class)
        # An example never supports a class in its own recording: nothing changes there.
        same = data.recording[:, None] == data.recording[left_out]
        predicted = np.where(same, decided[:, None], predicted)
        stays_right = predicted == data.label[:, None]
        changes = is_right[:, None].astype(int) - stays_right
        losses = weight @ changes
        gains[number] = losses.mean() * (count - 1) / (count + 1)
    return gains


@dataclass(frozen=True, eq=False)
class ExpectedRecall:
    """The detector of a model; of each class, how many examples could be tested, and were found."""

    detector: Detector
    testable: IntArray
    hits: IntArray

    @property
    def recall(self) -> FloatArray:
        """The share of calls of each class that are found and named right; NaN: unknown."""
        return divide(self.hits, self.testable)

    def find_hardly_found(self, model: Model) -> list[str]:
        """Return the labels of which a scan would find hardly any call.

        Where nothing could be tested, the share of examples that reach the threshold of their class
        counts.
        """
        if self.detector.weights is None:  # a scan sets other thresholds, where it can
            return []
        label = model.label
        scores = self.detector.score(model.examples.matrix)
        scores = scores[np.arange(len(label)), label]
        reached = scores >= self.detector.thresholds[label]
        own_recall = np.bincount(label, reached) / model.counts
        recall = np.where(self.testable > 0, self.recall, own_recall)
        hardly = np.flatnonzero(recall < LOW_RECALL)
        return [model.classes[number] for number in hardly]


def expect_recall(
    model: Model, false_alarms_per_h: float, most_parts: int = MAX_PARTS
) -> ExpectedRecall:
    """Return the detector of a model, and how many examples of other recordings it finds.

    Recordings are left out in at most `most_parts` parts: fewer take less time, and are more
    pessimistic.

    Raises
    ------
    InputError
        If no threshold can be found.
    """
    covariances = find_covariances(model.background)
    detector = make_detector(model, model.background, false_alarms_per_h, covariances)
    testable = np.zeros(len(model.classes), np.int64)
    hit_counts = np.zeros(len(model.classes), np.int64)
    recordings = model.examples.recording
    parts = FEW_PARTS if len(model.classes) > MANY_CLASSES else most_parts
    _, number_of_recording = np.unique(recordings, return_inverse=True)
    part = number_of_recording % parts
    names = np.array(model.classes)[model.label]
    for number in range(part.max() + 1):
        inside = part == number
        if inside.all():
            continue
        others = replace(model, examples=model.examples.take(np.flatnonzero(~inside)))
        try:
            other_detector = make_detector(
                others, model.background, false_alarms_per_h, covariances
            )
        except InputError:  # a class of one example, and no background
            continue
        rows = np.flatnonzero(inside & np.isin(names, other_detector.classes))
        scores = other_detector.score(model.examples.matrix[rows])
        best = scores.argmax(axis=1)
        best_scores = scores[np.arange(len(best)), best]
        reached = best_scores >= other_detector.thresholds[best]
        is_right = np.array(other_detector.classes)[best] == names[rows]
        labels = model.label[rows]
        testable += np.bincount(labels, minlength=len(testable))
        hits = labels[reached & is_right]
        hit_counts += np.bincount(hits, minlength=len(testable))
    return ExpectedRecall(detector, testable, hit_counts)


def class_table(model: Model) -> pl.DataFrame:
    """Return a row per class: examples, recordings, recall by other recordings, one more example.

    `testable` examples have their class in another recording; `recall` is the share of them that
    the examples of other recordings name right; `one_more` is what one more example of the class
    would add to the mean recall of all classes.
    """
    vectors = model.examples.matrix.astype(np.float64)
    vectors -= vectors.mean(axis=0)  # near the origin, for fewer rounding errors
    recording = np.unique(model.examples.recording, return_inverse=True)[1]
    data = LabelledVectors(vectors, model.label, recording, len(model.classes))
    is_hit = data.testable & (data.evidence.argmax(axis=1) == data.label)
    totals = np.bincount(data.label[data.testable], minlength=data.classes)
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
    examples from the mean of their class; below 1, the classes overlap strongly. It is null for
    two classes with one example each.
    """
    deviation = model.examples.matrix - model.means[model.label]
    squares = np.einsum("nd,nd->n", deviation, deviation)
    within = np.asarray(np.bincount(model.label, squares) / model.counts)
    first, second = np.triu_indices(len(model.classes), 1)
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
    distances = cdist(model.examples.matrix.astype(np.float64), model.means)
    distances[np.arange(len(distances)), model.label] = np.inf
    excess = own_distance - distances.min(axis=1)
    names = pl.Series(model.classes, dtype=pl.String)
    medians = find_medians(model, own_distance)
    is_nearer = excess > 0
    limit = np.where(is_nearer, DOUBTFUL_FROM, FAR) * medians[model.label]
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


def describe_model(model: Model) -> list[str]:
    """Return the lines of `callshot model`."""
    # If all examples begin where their files do, the files were cut out: they are clips.
    has_clips = not any(model.examples.spans["start_s"])
    expected = None
    problem = ""
    if model.settings.source != SEGMENT:
        try:
            expected = expect_recall(model, DEFAULT_AIM)
        except InputError as error:
            problem = str(error).removeprefix(f"{model.source}: ")
    classes = class_table(model).to_dicts()
    pairs = similar_pairs(model).to_dicts()
    doubts = doubtful_examples(model).to_dicts()
    lines = say(
        "model",
        model,
        classes,
        has_clips,
        expected,
        problem,
        pairs,
        doubts,
    )
    return lines + describe_limits(model)


def describe_low_recall(model: Model) -> list[str]:
    """Return a line if a scan at the default aim would hardly find calls, by a quick estimate."""
    if model.background is None or len(model.background.vectors) == 0:
        return []
    try:
        expected = expect_recall(model, DEFAULT_AIM, FEW_PARTS)
    except InputError:  # no threshold can be found, which scan and model say
        return []
    return say("low_recall", model.background, expected.find_hardly_found(model))


def describe_limits(model: Model) -> list[str]:
    """Return a line for each weakness of a model: few labels, single or identical examples."""
    classes = np.array(model.classes)
    single = classes[model.counts == 1].tolist()
    groups: dict[bytes, list[int]] = {}
    for row, vector in enumerate(model.examples.matrix):
        groups.setdefault(vector.tobytes(), []).append(row)
    identical = []
    for group in groups.values():
        if len(group) > 1:
            examples = model.examples.spans.take(group)
            labels = sorted(set(examples["label"]))
            identical.append((describe_locations(examples), labels))
    return say("limits", model, single, identical)
