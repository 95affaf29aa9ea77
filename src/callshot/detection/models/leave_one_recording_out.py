"""Example vectors → how well other examples of other recordings would have named them.

Every example is named by the class means of all examples in other recordings. An example of a class
that no other recording has cannot be tested.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from callshot.records import FloatArray, IntArray

MAX_LEFT_OUT = 20  # examples of a class, to find what one is worth


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors with the numbers of their classes and recordings, from 0; all in one order."""

    vectors: FloatArray
    label: IntArray
    recording: IntArray
    classes: int

    @property
    def counts(self) -> IntArray:
        """The number of examples of each class."""
        return np.bincount(self.label, minlength=self.classes)


@dataclass(frozen=True)
class Decisions:
    """The class that examples of other recordings give each example, and the second choice.

    Evidence is 2 x·c − |c|² for a vector x and a class mean c: the larger, the nearer.
    """

    first: IntArray
    second: IntArray
    evidence: FloatArray  # of both, examples × 2

    def best_other(self, number: int) -> tuple[IntArray, FloatArray]:
        """Return the best class but one, and its evidence, for each example."""
        is_first = self.first == number
        classes = np.where(is_first, self.second, self.first)
        examples = np.arange(len(classes))
        return classes, self.evidence[examples, is_first.astype(int)]


def decide_by_others(data: LabelledVectors) -> Decisions:
    """Return what examples of other recordings decide about each example."""
    count = len(data.vectors)
    sums = _sum_by_class(data.vectors, data.label, data.classes)
    best_classes = np.zeros((count, 2), np.int64)
    values = np.full((count, 2), -np.inf)
    for rows in _rows_by_recording(data.recording):
        evidence = _evidence_of_others(data, rows, sums)
        for rank in (0, 1):
            best = evidence.argmax(axis=1)
            numbers = np.arange(len(rows))
            best_classes[rows, rank] = best
            values[rows, rank] = evidence[numbers, best]
            evidence[numbers, best] = -np.inf
    return Decisions(best_classes[:, 0], best_classes[:, 1], values)


def _evidence_of_others(
    data: LabelledVectors, rows: IntArray, sums: FloatArray
) -> FloatArray:
    """Return the evidence about the examples of a recording, from all others; −inf: none."""
    counts = data.counts
    vectors = data.vectors[rows]
    present, inside = np.unique(data.label[rows], return_inverse=True)
    remaining = counts[present] - np.bincount(inside)
    left = sums[present] - _sum_by_class(vectors, inside, len(present))
    means = sums / np.maximum(counts, 1)[:, None]
    means[present] = left / np.maximum(remaining, 1)[:, None]
    evidence = measure_evidence(vectors, means)
    evidence[:, present[remaining < 1]] = -np.inf
    return evidence


def measure_evidence(vectors: FloatArray, means: FloatArray) -> FloatArray:
    """Return 2 x·c − |c|², vectors × means."""
    evidence = 2 * vectors @ means.T
    evidence -= np.einsum("nd,nd->n", means, means)
    return np.asarray(evidence)


def _sum_by_class(vectors: FloatArray, label: IntArray, classes: int) -> FloatArray:
    sums = np.zeros((classes, vectors.shape[1]))
    np.add.at(sums, label, vectors)
    return sums


def _rows_by_recording(recording: IntArray) -> Iterable[IntArray]:
    order = np.argsort(recording, kind="stable")
    starts = np.flatnonzero(np.diff(recording[order])) + 1
    return np.split(order, starts)


def find_testable(data: LabelledVectors) -> np.ndarray:
    """Return whether another recording has the class of each example."""
    pairs = np.unique(np.column_stack([data.label, data.recording]), axis=0)
    recordings = np.bincount(pairs[:, 0], minlength=data.classes)
    return np.asarray(recordings[data.label] > 1)


def recall_by_class(
    data: LabelledVectors, testable: np.ndarray, decided: IntArray
) -> FloatArray:
    """Return the share of the testable examples of each class that are named right; NaN: none."""
    total = np.bincount(data.label[testable], minlength=data.classes).astype(float)
    right = testable & (decided == data.label)
    hits = np.bincount(data.label[right], minlength=data.classes)
    recall = np.full(data.classes, np.nan)
    np.divide(hits, total, out=recall, where=total > 0)
    return recall


def gain_of_one_more(data: LabelledVectors) -> FloatArray:
    """Return what one more example of each class would add to the mean recall of all classes.

    The loss is measured when one of the k examples of a class is left out, for up to 20 of them.
    What k examples give behaves as a − b/k, so the next one adds (k − 1)/(k + 1) of that loss. NaN
    for classes with fewer than three examples, or if no class can be tested.
    """
    testable = find_testable(data)
    gains = np.full(data.classes, np.nan)
    if not testable.any():
        return gains
    weight = _weigh_examples(data, testable)
    decisions = decide_by_others(data)
    is_right = decisions.first == data.label
    for number in range(data.classes):
        rows = np.flatnonzero(data.label == number)
        count = len(rows)
        if count < 3:
            continue
        left_out = _choose_left_out(rows)
        stays_right = _decide_without(data, decisions, number, left_out)
        losses = weight @ (is_right[:, None].astype(int) - stays_right)
        gains[number] = losses.mean() * (count - 1) / (count + 1)
    return gains


def _choose_left_out(rows: IntArray) -> IntArray:
    """Return some of the rows, spread evenly."""
    positions = np.linspace(0, len(rows) - 1, MAX_LEFT_OUT).round()
    return rows[np.unique(positions).astype(np.int64)]


def _weigh_examples(data: LabelledVectors, testable: np.ndarray) -> FloatArray:
    """Return what each example adds to the mean recall of all classes if it is named right."""
    total = np.bincount(data.label[testable], minlength=data.classes)
    weight = 1 / (np.maximum(total, 1) * np.count_nonzero(total))
    return np.asarray(np.where(testable, weight[data.label], 0.0))


def _decide_without(
    data: LabelledVectors, decisions: Decisions, number: int, left_out: IntArray
) -> np.ndarray:
    """Return which examples are named right if one of a class is left out, examples × left out.

    The evidence for the other classes stays as it was.
    """
    other_class, best = decisions.best_other(number)
    evidence = _evidence_without(data, number, left_out)
    is_tied = evidence == best[:, None]
    comes_first = (number < other_class)[:, None]
    wins = (evidence > best[:, None]) | (is_tied & comes_first)
    decided = np.where(wins, number, other_class[:, None])
    # An example never supports a class in its own recording: nothing changes there.
    same = data.recording[:, None] == data.recording[left_out]
    decided = np.where(same, decisions.first[:, None], decided)
    return np.asarray(decided == data.label[:, None])


def _evidence_without(
    data: LabelledVectors, number: int, left_out: IntArray
) -> FloatArray:
    """Return the evidence for a class if one example is left out, examples × left out."""
    rows = np.flatnonzero(data.label == number)
    sums = data.vectors[rows].sum(axis=0) - data.vectors[left_out]
    evidence = measure_evidence(data.vectors, sums / (len(rows) - 1))
    groups = data.recording[rows]
    for recording in np.unique(groups):
        recording_rows = rows[groups == recording]
        in_recording = data.recording == recording
        remaining = len(rows) - len(recording_rows) - 1
        evidence[in_recording] = -np.inf
        if remaining > 0:
            means = (sums - data.vectors[recording_rows].sum(axis=0)) / remaining
            evidence[in_recording] = measure_evidence(data.vectors[in_recording], means)
    return evidence
