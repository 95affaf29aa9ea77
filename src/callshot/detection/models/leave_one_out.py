"""Example vectors → how well other examples of other recordings would have named them.

Every example is named by the class means of all examples in other recordings. An example of a class
that no other recording has cannot be judged.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from callshot.records import FloatArray, IntArray

MOST_LEFT_OUT = 20  # examples of a class, to find what one is worth


@dataclass(frozen=True)
class LabelledVectors:
    """Vectors with the numbers of their classes and recordings, from 0; all in one order."""

    vectors: FloatArray
    label: IntArray
    recording: IntArray
    classes: int


def decide_by_others(data: LabelledVectors, without: int | None = None) -> IntArray:
    """Return the class that examples of other recordings give each example.

    `without` is an example that supports no class, but is named like the others.
    """
    support = np.ones(len(data.vectors))
    if without is not None:
        support[without] = 0.0
    is_class = np.eye(data.classes)[data.label] * support[:, None]
    sums = is_class.T @ data.vectors
    counts = is_class.sum(axis=0)
    decided = np.empty(len(data.vectors), np.int64)
    for rows in _rows_by_recording(data.recording):
        inside = is_class[rows]
        remaining = counts - inside.sum(axis=0)
        means = sums - inside.T @ data.vectors[rows]
        means /= np.maximum(remaining, 1)[:, None]
        evidence = 2 * data.vectors[rows] @ means.T
        evidence -= np.einsum("nd,nd->n", means, means)
        evidence[:, remaining < 1] = -np.inf
        decided[rows] = evidence.argmax(axis=1)
    return decided


def _rows_by_recording(recording: IntArray) -> Iterable[IntArray]:
    order = np.argsort(recording, kind="stable")
    starts = np.flatnonzero(np.diff(recording[order])) + 1
    return np.split(order, starts)


def find_judged(data: LabelledVectors) -> np.ndarray:
    """Return whether another recording has the class of each example."""
    pairs = np.unique(np.column_stack([data.label, data.recording]), axis=0)
    recordings = np.bincount(pairs[:, 0], minlength=data.classes)
    return np.asarray(recordings[data.label] > 1)


def recall_by_class(
    data: LabelledVectors, judged: np.ndarray, decided: IntArray
) -> FloatArray:
    """Return the share of the judged examples of each class that are named right; NaN: none."""
    total = np.bincount(data.label[judged], minlength=data.classes).astype(float)
    right = judged & (decided == data.label)
    hits = np.bincount(data.label[right], minlength=data.classes)
    recall = np.full(data.classes, np.nan)
    np.divide(hits, total, out=recall, where=total > 0)
    return recall


def gain_of_one_more(data: LabelledVectors) -> FloatArray:
    """Return what one more example of each class would add to the mean recall of all classes.

    The loss is measured when one of the k examples of a class is left out, for up to 20 of them.
    What k examples give behaves as a − b/k, so the next one adds (k − 1)/(k + 1) of that loss. NaN
    for classes with fewer than three examples, or if no class can be judged.
    """
    judged = find_judged(data)
    gains = np.full(data.classes, np.nan)
    if not judged.any():
        return gains
    full = np.nanmean(recall_by_class(data, judged, decide_by_others(data)))
    for number in range(data.classes):
        rows = np.flatnonzero(data.label == number)
        count = len(rows)
        if count < 3:
            continue
        chosen = np.unique(np.linspace(0, count - 1, MOST_LEFT_OUT).round())
        without = []
        for row in rows[chosen.astype(np.int64)]:
            decided = decide_by_others(data, int(row))
            without.append(np.nanmean(recall_by_class(data, judged, decided)))
        gains[number] = (full - np.mean(without)) * (count - 1) / (count + 1)
    return gains
