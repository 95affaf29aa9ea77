"""Vectors of items, and their scores by a model to which confirmed calls are added.

The vector of a detection is that of its strongest window. Vectors are copied from the index once,
into REVIEW/vectors.npy, and mapped into memory. The mean of a class is that of the examples and of
the confirmed calls, exactly as `learn` would have it from all of them at once. What is known of the
background, and the thresholds, stay as they were in the scan: only classes whose mean has moved get
new scores.
"""

import json
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import cho_factor, cho_solve

from callshot.detection.background import scale_to_background
from callshot.detection.detector import MIN_WINDOWS, choose_background
from callshot.detection.index.index_files import Index, IndexedRecording
from callshot.detection.model import Model
from callshot.errors import InputError
from callshot.fewshot.centroid import CentroidClassifier
from callshot.fewshot.classifiers import shrink_covariance
from callshot.files import atomic_path, sha256_file, write_atomic
from callshot.records import FloatArray, IntArray
from callshot.results import format_provenance, is_intact
from callshot.review.items import Items, Ranking, rank_columns
from callshot.vectors import Rows

VECTORS = "vectors.npy"
VECTOR_FACTS = "vectors.json"
BLOCK = 16384  # items that are scored at once

Vectors = NDArray[np.float32]
Places = Mapping[str, Sequence[int]]
"""The items whose vectors are added to each label."""


@dataclass(frozen=True, eq=False)
class BackgroundMetric:
    """Mean and covariance of the background, by which scores are measured."""

    centre: FloatArray
    factor: Any

    def find_discriminants(self, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights and bias of each class, as the detector has them."""
        difference = means - self.centre
        solved = cho_solve(self.factor, difference.T, check_finite=False).T
        return scale_to_background(solved, difference, self.centre)


def make_metric(model: Model) -> BackgroundMetric | None:
    """Return what a scan knows of a model's background; None if it has none."""
    background = model.background
    if background is None or len(background.vectors) < MIN_WINDOWS:
        return None
    keep = choose_background(model, background)
    rows = np.asarray(background.vectors[keep], np.float64)
    centre = rows.mean(axis=0)
    return BackgroundMetric(centre, cho_factor(shrink_covariance(rows - centre)))


class ModelScores:
    """Scores of all items by a model and the confirmed calls."""

    def __init__(
        self, model: Model, vectors: Vectors, metric: BackgroundMetric | None
    ) -> None:
        self.model = model
        self.vectors = vectors
        self.labels = list(model.classes)
        self._metric = metric
        self._added: dict[str, tuple[int, ...]] = {}
        self._squares = _square_lengths(vectors)
        self._scores = np.empty((len(vectors), len(self.labels)), np.float32)
        self._distances = np.empty_like(self._scores)
        self.means = model.means.copy()
        self._score(range(len(self.labels)))

    def update(self, added: Places) -> bool:
        """Add confirmed calls to the examples; return whether any score may have changed."""
        new = {label: tuple(sorted(rows)) for label, rows in added.items() if rows}
        names = {*new, *self._added}
        changed = sorted(
            name for name in names if new.get(name) != self._added.get(name)
        )
        if not changed:
            return False
        self._added = new
        self._add_columns([name for name in changed if name not in self.labels])
        for name in changed:
            self.means[self.labels.index(name)] = self._find_mean(name)
        self._score([self.labels.index(name) for name in changed])
        return True

    def _add_columns(self, names: Sequence[str]) -> None:
        """Make room for labels that the model did not have."""
        if not names:
            return
        self.labels += names
        more = np.full((len(self.vectors), len(names)), np.nan, np.float32)
        self._scores = np.column_stack([self._scores, more])
        self._distances = np.column_stack([self._distances, more])
        none = np.full((len(names), self.vectors.shape[1]), np.nan)
        self.means = np.concatenate([self.means, none])

    def _find_mean(self, name: str) -> FloatArray:
        """Return the mean of the examples and confirmed calls of a label; NaN without any."""
        rows = list(self._added.get(name, ()))
        is_class = name in self.model.classes
        if not rows and not is_class:
            return np.full(self.vectors.shape[1], np.nan)
        classifier = copy(self.model.classifier) if is_class else CentroidClassifier()
        if rows:
            classifier.partial_fit(self.vectors[rows], [name] * len(rows))
        column = classifier.classes_.tolist().index(name)
        return np.asarray(classifier.centroids_[column])

    def _score(self, columns: Sequence[int]) -> None:
        """Score all items for some classes, in one pass over the vectors."""
        means = self.means[columns]
        weights, bias = self._find_discriminants(means)
        factors = np.concatenate([weights, means]).T.astype(np.float32)
        lengths = np.einsum("nd,nd->n", means, means)
        for part in _blocks(len(self.vectors)):
            products = (self.vectors[part] @ factors).astype(np.float64)
            projected, inner = np.split(products, 2, axis=1)
            from_origin = self._squares[part][:, None]
            squares = np.maximum(from_origin - 2 * inner + lengths, 0.0)
            self._distances[part, columns] = np.sqrt(squares)
            scores = -squares if self._metric is None else projected + bias
            self._scores[part, columns] = scores

    def _find_discriminants(self, means: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return weights and bias of some classes; without background they are not used."""
        if self._metric is None:
            return means, np.zeros(len(means))
        return self._metric.find_discriminants(means)

    def rank(self, labels: Sequence[str], label: IntArray) -> Ranking:
        """Return the scores of items that have a label, by its number in `labels`."""
        return rank_columns(self._scores, self._distances, self.labels, labels, label)

    def find_best(self, row: int, count: int) -> list[str]:
        """Return the labels with the highest scores for an item."""
        scores = self._scores[row]
        order = np.argsort(-np.nan_to_num(scores, nan=-np.inf), kind="stable")
        columns = [column for column in order[:count] if np.isfinite(scores[column])]
        return [self.labels[column] for column in columns]

    def measure(self, row: int, vectors: Vectors) -> FloatArray:
        """Return the distances of vectors from that of an item."""
        return np.asarray(np.linalg.norm(vectors - self.vectors[row], axis=1))


def _square_lengths(vectors: Vectors) -> Vectors:
    squares = np.empty(len(vectors), np.float32)
    for part in _blocks(len(vectors)):
        block = vectors[part]
        squares[part] = np.einsum("nd,nd->n", block, block)
    return squares


def _blocks(count: int) -> Iterator[slice]:
    for start in range(0, count, BLOCK):
        yield slice(start, start + BLOCK)


def open_vectors(
    folder: Path,
    items: Items,
    index: Index,
    model: Model,
    metric: BackgroundMetric | None,
) -> Vectors:
    """Map the vectors of the items of a scan into memory; copy them from the index first."""
    facts = {
        "items": items.checksum(),
        "dimension": index.settings.dimension,
        "count": items.original_count,
    }
    path = folder / VECTORS
    if _read_facts(folder) != facts or not is_same_copy(folder):
        _write_vectors(path, items, _Strongest(items, index, model, metric))
        content = {"vectors": facts, "sha256": sha256_file(path)}
        write_atomic(folder / VECTOR_FACTS, format_provenance(content))
    mapped = np.load(path, mmap_mode="r", allow_pickle=False)
    if mapped.dtype != np.float32 or mapped.shape[0] != items.original_count:
        raise InputError(f"{path}: damaged; remove it, and it is made again")
    return np.asarray(mapped)


def is_same_copy(folder: Path) -> bool:
    """Return whether the copy of vectors in a folder is as it was written."""
    path = folder / VECTORS
    try:
        content = (folder / VECTOR_FACTS).read_bytes()
        checksum = json.loads(content)["sha256"]
        return is_intact(content) and sha256_file(path) == checksum
    except (OSError, ValueError, LookupError, TypeError):
        return False


def _write_vectors(path: Path, items: Items, strongest: "_Strongest") -> None:
    """Write the vectors of all items, recording by recording."""
    order = np.argsort(items.recording[: items.original_count], kind="stable")
    numbers = np.arange(len(items.recordings) + 1)
    limits = np.searchsorted(items.recording[order], numbers)
    shape = (items.original_count, strongest.index.settings.dimension)
    with atomic_path(path) as temporary:
        vectors = np.lib.format.open_memmap(temporary, "w+", np.float32, shape)
        for number in range(len(items.recordings)):
            members = order[limits[number] : limits[number + 1]]
            for item, vector in strongest.find_all(number, members):
                vectors[item] = vector
        vectors.flush()


def _read_facts(folder: Path) -> Any:
    """Return which vectors a folder has a copy of, None if it has none."""
    try:
        return json.loads((folder / VECTOR_FACTS).read_bytes())["vectors"]
    except (OSError, ValueError, LookupError, TypeError):
        return None


@dataclass(frozen=True, eq=False)
class _Strongest:
    """Finds the window that gave each item its score."""

    items: Items
    index: Index
    model: Model
    metric: BackgroundMetric | None

    @cached_property
    def _recordings(self) -> dict[str, IndexedRecording]:
        return {recording.path: recording for recording in self.index.recordings}

    def find_all(
        self, number: int, members: IntArray
    ) -> Iterator[tuple[int, FloatArray]]:
        """Yield the items of a recording with their vectors."""
        name = self.items.recordings[number]
        if name not in self._recordings:
            raise InputError(f"{self.index.folder}: {name} is not in the index")
        windows = _Windows(self.index, self._recordings[name])
        for item in members.tolist():
            yield item, self._find(item, windows)

    def _find(self, item: int, windows: "_Windows") -> FloatArray:
        items = self.items
        rows = windows.find(items.start_s[item], items.end_s[item])
        if len(rows) == 0:
            raise InputError(f"{self.index.folder}: has no window of item {item}")
        label = items.name(int(items.label[item]))
        if label not in self.model.classes:
            raise InputError(f"{self.model.source}: has no label {label}")
        scores = self._score(rows, self.model.classes.index(label))
        strongest = np.abs(scores - items.score[item]).argmin()
        return np.asarray(rows[strongest])

    def _score(self, windows: FloatArray, column: int) -> FloatArray:
        """Return the scores of windows for a class."""
        if self.metric is None:
            difference = windows - self.model.means[column]
            return np.asarray(-np.square(difference).sum(axis=1))
        weights, bias = self._discriminants
        return np.asarray(windows @ weights[column] + bias[column])

    @cached_property
    def _discriminants(self) -> tuple[FloatArray, FloatArray]:
        assert self.metric is not None
        return self.metric.find_discriminants(self.model.means)


class _Windows:
    """The windows of a recording; only those that are asked for are read."""

    def __init__(self, index: Index, recording: IndexedRecording) -> None:
        blocks = index.read_recording(recording)
        self._rows: list[Rows] = [block.rows for block in blocks]
        self._window_s = index.settings.window_s

    def find(self, start_s: float, end_s: float) -> FloatArray:
        """Return the vectors of all windows that overlap a span."""
        parts = []
        for rows in self._rows:
            numbers = range(len(rows))
            first = bisect_left(
                numbers, start_s - self._window_s, key=lambda n: rows[n]["start_s"]
            )
            last = bisect_left(numbers, end_s, key=lambda n: rows[n]["start_s"])
            if first < last:
                parts.append(np.asarray(rows[first:last]["vector"], np.float64))
        return np.concatenate(parts) if parts else np.zeros((0, 0))
