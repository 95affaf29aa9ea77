"""A model → the thresholds that a scan would use, and the share of calls that reach them.

The examples of each recording are scored by a detector that was made without them. With many
recordings, some are left out together, and more of them if there are many classes.
"""

from dataclasses import dataclass, replace

import numpy as np

from callshot.detection.models.detector import Detector, find_spreads, make_detector
from callshot.detection.models.model import Model
from callshot.errors import InputError
from callshot.records import FloatArray, IntArray

MAX_PARTS = 20
FEW_PARTS = 5  # for more classes than MANY_CLASSES
MANY_CLASSES = 200


@dataclass(frozen=True, eq=False)
class ExpectedRecall:
    """The detector of a model; of each class, how many examples could be tested, and were found."""

    detector: Detector
    testable: IntArray
    hits: IntArray

    @property
    def recall(self) -> FloatArray:
        """The share of calls of each class that are found and named right; NaN: unknown."""
        recall = np.full(len(self.testable), np.nan)
        np.divide(self.hits, self.testable, out=recall, where=self.testable > 0)
        return recall

    def share_of_examples(self, model: Model) -> FloatArray:
        """Return the share of examples of each class that reach its threshold; calls do so less."""
        label = model.label
        scores = self.detector.score(model.vectors)[np.arange(len(label)), label]
        reached = scores >= self.detector.thresholds[label]
        return np.asarray(np.bincount(label, reached) / model.counts)


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
    spreads = find_spreads(model.background)
    detector = make_detector(model, model.background, false_alarms_per_h, spreads)
    testable = np.zeros(len(model.classes), np.int64)
    hit_counts = np.zeros(len(model.classes), np.int64)
    part = _number_parts(model, most_parts)
    for number in range(part.max() + 1):
        inside = part == number
        if inside.all():
            continue
        try:
            others = _select_examples(model, ~inside)
            other_detector = make_detector(
                others, model.background, false_alarms_per_h, spreads
            )
        except InputError:  # a class of one example, and no background
            continue
        numbers, hits = _test_examples(model, inside, other_detector)
        testable += np.bincount(numbers, minlength=len(testable))
        hit_counts += np.bincount(numbers[hits], minlength=len(testable))
    return ExpectedRecall(detector, testable, hit_counts)


def _number_parts(model: Model, most_parts: int) -> IntArray:
    """Return the number of the part in which each example is left out."""
    recordings = model.examples["recording"]
    names = sorted(set(recordings))
    parts = FEW_PARTS if len(model.classes) > MANY_CLASSES else most_parts
    numbers = {name: n % parts for n, name in enumerate(names)}
    return np.array([numbers[name] for name in recordings])


def _select_examples(model: Model, rows: np.ndarray) -> Model:
    examples = model.examples.take(np.flatnonzero(rows))
    return replace(model, examples=examples, vectors=model.vectors[rows])


def _test_examples(
    model: Model, rows: np.ndarray, detector: Detector
) -> tuple[IntArray, np.ndarray]:
    """Return the classes of those examples that the detector knows, and which it finds."""
    has_class = np.isin(np.array(model.classes)[model.label], detector.classes)
    testable = np.flatnonzero(rows & has_class)
    if len(testable) == 0:
        return model.label[testable], np.zeros(0, bool)
    scores = detector.score(model.vectors[testable])
    best = scores.argmax(axis=1)
    best_scores = scores[np.arange(len(best)), best]
    reached = best_scores >= detector.thresholds[best]
    names = np.array(detector.classes)[best]
    is_right = names == np.array(model.classes)[model.label[testable]]
    return model.label[testable], reached & is_right
