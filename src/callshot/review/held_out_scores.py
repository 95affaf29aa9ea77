"""Scores of labelled segments by the other segments: is each where its label says?

The score of a label is −|z − c|², where c is the mean of the segments of that label in other
recordings. A segment that is nearer to another label may have the wrong one. Decisions that relabel
segments move the means.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from callshot.records import FloatArray, IntArray
from callshot.review.items import Ranking, rank_columns


class HeldOutScores:
    """Scores of all segments, each by those of other recordings."""

    model = None

    def __init__(
        self,
        vectors: NDArray[np.float32],
        labels: Sequence[str],
        label: IntArray,
        recording: IntArray,
    ) -> None:
        self.vectors = vectors
        self.labels = list(labels)
        self._first = label.copy()
        self._label = label.copy()
        self._recording = recording
        self._distances = self._measure_all()

    def update(self, added: Mapping[str, Sequence[int]]) -> bool:
        """Take the labels of confirmed segments; return whether any score may have changed."""
        label = self._first.copy()
        for name, rows in added.items():
            if name not in self.labels:
                self.labels.append(name)
            label[list(rows)] = self.labels.index(name)
        if (label == self._label).all():
            return False
        self._label = label
        self._distances = self._measure_all()
        return True

    def _measure_all(self) -> FloatArray:
        """Return the distance of each segment from each mean; NaN where a label has no other."""
        vectors = self.vectors.astype(np.float64)
        columns = [self._measure(vectors, n) for n in range(len(self.labels))]
        return np.column_stack(columns)

    def _measure(self, vectors: FloatArray, column: int) -> FloatArray:
        """Return the distance of each segment from the mean of a label in other recordings."""
        distances = np.full(len(vectors), np.nan)
        sums, counts = self._sum_by_recording(vectors, self._label == column)
        rest = counts.sum() - counts[self._recording]
        rows = np.flatnonzero(rest > 0)
        sums_of_others = sums.sum(axis=0) - sums[self._recording[rows]]
        means = sums_of_others / rest[rows, None]
        distances[rows] = np.linalg.norm(vectors[rows] - means, axis=1)
        return distances

    def _sum_by_recording(
        self, vectors: FloatArray, members: NDArray[np.bool_]
    ) -> tuple[FloatArray, IntArray]:
        count = int(self._recording.max()) + 1
        sums = np.zeros((count, vectors.shape[1]))
        np.add.at(sums, self._recording[members], vectors[members])
        return sums, np.bincount(self._recording[members], minlength=count)

    def rank(self, labels: Sequence[str], label: IntArray) -> Ranking:
        """Return the scores of segments that have a label, by its number in `labels`."""
        scores = -np.square(self._distances)
        return rank_columns(scores, self._distances, self.labels, labels, label)

    def find_best(self, row: int, count: int) -> list[str]:
        """Return the nearest labels of a segment."""
        distances = np.nan_to_num(self._distances[row], nan=np.inf)
        order = np.argsort(distances, kind="stable")[:count]
        return [self.labels[n] for n in order if np.isfinite(distances[n])]

    def measure(self, row: int, vectors: NDArray[np.float32]) -> FloatArray:
        """Return the distances of vectors from that of a segment."""
        return np.asarray(np.linalg.norm(vectors - self.vectors[row], axis=1))
