"""Vectors of items, and scores that follow the decisions of a review.

Detections are scored by a model to which confirmed calls are added. The vector of a detection is
that of its strongest window, copied from the index once into REVIEW/vectors.npy and mapped into
memory. The mean of a class is that of the examples and of the confirmed calls, exactly as `learn`
would have it from all of them at once. What is known of the background, and the thresholds, stay as
they were in the scan: only classes whose mean has moved get new scores.

Labelled segments are scored by the other segments: is each where its label says? The score of a
label is −|z − c|², where c is the mean of the segments of that label in other recordings. A segment
that is nearer to another label may have the wrong one. Decisions that relabel segments move the
means.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.files import atomic_path, sha256_file, write_atomic
from callshot.records import FloatArray, IntArray
from callshot.results import format_provenance, is_intact
from callshot.review.items import find_checksum
from callshot.spans import Spans

if TYPE_CHECKING:
    from callshot.detection.background import Covariance
    from callshot.detection.index.index_files import Index
    from callshot.detection.model import Model
    from callshot.fewshot.centroid import CentroidClassifier

VECTORS = "vectors.npy"
VECTOR_FACTS = "vectors.json"
BLOCK = 2048  # items that are scored at once

Float32Matrix = NDArray[np.float32]
Confirmed = Mapping[str, Sequence[int]]
"""The items that were confirmed, by label."""


class Scores:
    """Scores of all items of the source for all labels; those of subclasses follow decisions.

    scores, distances  items × labels; NaN: a label without calls
    """

    model: "Model | None" = None
    scores: NDArray[np.floating]
    distances: NDArray[np.floating]

    def __init__(self, vectors: Float32Matrix, labels: Sequence[str]) -> None:
        self.vectors = vectors
        self.labels = list(labels)

    def update(self, confirmed: Confirmed) -> bool:
        """Take confirmed calls into account; return whether any score may have changed."""
        raise NotImplementedError

    def rank(self, label: pl.Series, known: Sequence[str]) -> pl.DataFrame:
        """Return the columns SCORES of items that have a label; a runner-up is a known label."""
        columns = {name: column for column, name in enumerate(self.labels)}
        own = [columns.get(name, -1) for name in label]
        place = (np.arange(len(own)), own)
        others = np.pad(self.scores, ((0, 0), (0, 1)), constant_values=np.nan)
        score = others[place].astype(np.float64)
        others[place] = np.nan
        others[np.isnan(others)] = -np.inf
        names = [name if name in known else None for name in (*self.labels, None)]
        best = pl.Series(names, dtype=pl.String).gather(others.argmax(axis=1))
        ranking = pl.DataFrame(
            {
                "score": score,
                "distance": np.fmin.reduce(self.distances, axis=1).astype(np.float64),
                "runner_up": best,
                "runner_up_score": others.max(axis=1).astype(np.float64),
            }
        )
        numbers = pl.col(pl.Float64)
        return ranking.with_columns(
            pl.when(numbers.is_finite()).then(numbers),
            pl.when(pl.col("runner_up_score").is_finite()).then(pl.col("runner_up")),
        )

    def find_best(self, row: int, count: int) -> list[str]:
        """Return the labels with the highest scores for an item."""
        scores = self.scores[row]
        order = np.argsort(-scores, kind="stable")  # NaN is sorted last
        best = [n for n in order[:count] if np.isfinite(scores[n])]
        return [self.labels[n] for n in best]


class ModelScores(Scores):
    """Scores of detections by a model and the confirmed calls."""

    model: "Model"

    def __init__(
        self, model: "Model", vectors: Float32Matrix, background: "Covariance | None"
    ) -> None:
        super().__init__(vectors, model.classes)
        self.model = model
        self.means = np.empty((0, vectors.shape[1]))
        self._background = background
        self._confirmed: dict[str, list[int]] = {}
        self.scores = np.empty((len(vectors), 0), np.float32)
        self.distances = self.scores
        self._score(model.classifier)

    def update(self, confirmed: Confirmed) -> bool:
        """Add confirmed calls to the examples; return whether any score may have changed."""
        new = {label: sorted(rows) for label, rows in confirmed.items() if rows}
        if new == self._confirmed:
            return False
        self._confirmed = new
        self.labels += sorted(new.keys() - set(self.labels))
        classifier = copy(self.model.classifier)
        rows = []
        names = []
        for label, calls in new.items():
            rows += calls
            names += [label] * len(calls)
        if rows:
            classifier.partial_fit(self.vectors[rows], names)
        self._score(classifier)
        return True

    def _score(self, classifier: "CentroidClassifier") -> None:
        """Score all items for the classes whose mean moved, in one pass over the vectors."""
        from callshot.detection.detector import make_scorer

        known = [self.labels.index(name) for name in classifier.classes_]
        means = np.full((len(self.labels), self.vectors.shape[1]), np.nan)
        means[known] = classifier.centroids_
        more = (0, len(means) - len(self.means))
        none = (0, 0)
        before = np.pad(self.means, (more, none), constant_values=np.nan)
        self.scores = np.pad(self.scores, (none, more), constant_values=np.nan)
        self.distances = np.pad(self.distances, (none, more), constant_values=np.nan)
        self.means = means
        columns = np.flatnonzero((means != before).any(axis=1))
        scorer = make_scorer(means[columns], self._background)
        for start in range(0, len(self.vectors), BLOCK):
            part = slice(start, start + BLOCK)
            self.scores[part, columns] = scorer.score(self.vectors[part])
            self.distances[part, columns] = scorer.distances(self.vectors[part])


class HeldOutScores(Scores):
    """Scores of segments, each by those of other recordings."""

    def __init__(
        self,
        vectors: Float32Matrix,
        label: Sequence[str | None],
        recording: Sequence[str],
    ) -> None:
        labels = sorted({name for name in label if name is not None})
        super().__init__(vectors, labels)
        numbers = {name: number for number, name in enumerate(labels)}
        first = [numbers.get(str(name), -1) for name in label]
        self._first = np.array(first)
        self._recording = np.unique(recording, return_inverse=True)[1]
        self._score(self._first)

    def update(self, confirmed: Confirmed) -> bool:
        """Take the labels of confirmed segments; return whether any score may have changed."""
        label = self._first.copy()
        for name, rows in confirmed.items():
            if name not in self.labels:
                self.labels.append(name)
            label[list(rows)] = self.labels.index(name)
        if (label == self._label).all():
            return False
        self._score(label)
        return True

    def _score(self, label: IntArray) -> None:
        """Measure how far each segment is from the mean of each label in other recordings."""
        self._label = label
        vectors = self.vectors.astype(np.float64)
        recording = self._recording
        recordings = int(recording.max()) + 1
        classes = len(self.labels)
        self.distances = np.full((len(vectors), classes), np.nan)
        for column in range(classes):
            members = label == column
            sums = np.zeros((recordings, vectors.shape[1]))
            np.add.at(sums, recording[members], vectors[members])
            counts = np.bincount(recording[members], minlength=recordings)
            others = counts.sum() - counts[recording]
            rows = np.flatnonzero(others > 0)
            own_sums = sums[recording[rows]]
            sums_of_others = sums.sum(axis=0) - own_sums
            means = sums_of_others / others[rows, None]
            differences = vectors[rows] - means
            self.distances[rows, column] = np.linalg.norm(differences, axis=1)
        self.scores = -np.square(self.distances)


def measure_background(model: "Model") -> "Covariance | None":
    """Return what a scan knows of a model's background; None if it has none."""
    from callshot.detection.detector import MIN_WINDOWS, choose_covariances

    background = model.background
    if background is None or len(background.vectors) < MIN_WINDOWS:
        return None
    covariances, _ = choose_covariances(model, background)
    return covariances.whole


def open_vectors(
    folder: Path,
    items: Spans,
    index: "Index",
    model: "Model",
    background: "Covariance | None",
) -> Float32Matrix:
    """Map the vectors of the items of a scan into memory; copy them from the index first."""
    shape = (len(items), index.settings.dimension)
    facts = {"items": find_checksum(items), "shape": list(shape)}
    path = folder / VECTORS
    if read_vector_facts(folder) != facts:
        with atomic_path(path) as temporary:
            vectors = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
            for item, vector in _find_strongest(items, index, model, background):
                vectors[item] = vector
            vectors.flush()
        content = {"vectors": facts, "sha256": sha256_file(path)}
        write_atomic(folder / VECTOR_FACTS, format_provenance(content))
    return np.asarray(np.load(path, mmap_mode="r", allow_pickle=False))


def read_vector_facts(folder: Path) -> Any:
    """Return which vectors a folder has a copy of; None if there is none, or it is damaged."""
    try:
        content = (folder / VECTOR_FACTS).read_bytes()
        facts = json.loads(content)
        is_same = sha256_file(folder / VECTORS) == facts["sha256"]
        return facts["vectors"] if is_same and is_intact(content) else None
    except (OSError, ValueError, LookupError, TypeError):
        return None


def _find_strongest(
    items: Spans, index: "Index", model: "Model", background: "Covariance | None"
) -> Iterator[tuple[int, FloatArray]]:
    """Yield each item, and the vector of the window that gave it its score."""
    from callshot.detection.detector import make_scorer

    scorer = make_scorer(model.means, background)
    indexed = {recording.path: recording for recording in index.recordings}
    by_recording = items.frame.sort("recording", maintain_order=True)
    for part in by_recording.partition_by("recording", maintain_order=True):
        name = part["recording"][0]
        if name not in indexed:
            raise InputError(f"{index.folder}: {name} is not in the index")
        blocks = list(index.read_recording(indexed[name]))
        for row in part.iter_rows(named=True):
            if row["label"] not in model.classes:
                raise InputError(f"{model.source}: has no label {row['label']}")
            column = model.classes.index(row["label"])
            # all windows that overlap the item
            limits_s = [row["start_s"] - index.settings.window_s, row["end_s"]]
            overlapping = []
            for block in blocks:
                starts_s = block.spans.frame["start_s"].to_numpy()
                first, last = np.searchsorted(starts_s, limits_s)
                overlapping.append(np.asarray(block.matrix[first:last], np.float64))
            windows = np.concatenate(overlapping)
            if len(windows) == 0:
                raise InputError(f"{index.folder}: has no window of item {row['row']}")
            scores = scorer.score(windows)[:, column]
            strongest = np.abs(scores - row["score"]).argmin()
            yield row["row"], windows[strongest]
