"""Embeddings and folds → the arrays that the kernels read.

Rows are the segments of eligible classes, ordered by class and then by segment id, so that neither the order of a
table nor the numbering of its folds can reach a draw or a number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.fewshot.folds import evaluated_classes
from callshot.fewshot.kernels.streams import key
from callshot.records import ClassCount, Embeddings, FloatArray, Folds, IntArray

Unsigned = NDArray[np.uint64]
Mask = NDArray[np.bool_]

LARGEST = 1e100  # values that are squared and summed


@dataclass(frozen=True)
class Episodes:
    """Everything that does not change from draw to draw.

    vectors (rows, dimensions), centred: the table's less `origin`; class_start[n] the first row of class n; relevant
    (rows, classes).
    """

    classes: tuple[str, ...]
    vectors: FloatArray
    class_start: IntArray
    fold: IntArray
    folds: int
    relevant: Mask
    segment_key: Unsigned
    class_key: Unsigned
    origin: FloatArray | float = 0.0

    @cached_property
    def label(self) -> IntArray:
        """The class number of each row."""
        return np.repeat(np.arange(len(self.classes)), np.diff(self.class_start))

    @cached_property
    def squares(self) -> FloatArray:
        """The squared length of each row's vector."""
        return np.asarray(np.einsum("rd,rd->r", self.vectors, self.vectors))

    @cached_property
    def distinct(self) -> tuple[FloatArray, IntArray]:
        """Each distinct vector once, and which of these every row has."""
        return distinct_rows(self.vectors)

    def distinct_at(self, rows: IntArray | slice) -> tuple[FloatArray, IntArray]:
        """Return the distinct vectors of some rows, and which of these each of them has."""
        vectors, index = self.distinct
        which, place = np.unique(index[rows], return_inverse=True)
        return vectors[which], place

    def moved(self, transform: Callable[[FloatArray], FloatArray]) -> "Episodes":
        """Return the episodes on other vectors; equal ones stay equal, wherever they stand."""
        vectors, index = self.distinct
        return replace(self, vectors=transform(vectors)[index], origin=0.0)

    def uncentred(self) -> "Episodes":
        """Return the episodes on the vectors of the table."""
        largest = float(np.abs(self.origin).max())
        if largest >= LARGEST:
            raise InputError(
                f"embeddings: their mean reaches {largest:.0e}; scale them so that squares are floats"
            )
        return replace(self, vectors=self.vectors + self.origin, origin=0.0)


@dataclass(frozen=True)
class Split:
    """One fold of queries and the pools it may draw from.

    Class n's pool is pool[pool_start[n] : pool_start[n + 1]], as row numbers inside the class.
    """

    number: int
    rows: IntArray
    label: IntArray
    relevant: Mask
    pool: Unsigned
    pool_start: IntArray

    @cached_property
    def positives(self) -> IntArray:
        """How many queries are positive for each class."""
        return np.asarray(self.relevant.sum(axis=1))


def plan_episodes(embeddings: Embeddings, folds: Folds, counts: Sequence[ClassCount]) -> Episodes:
    """Keep the eligible classes, centre the vectors, and order everything by class and segment id."""
    classes = evaluated_classes(counts)
    number, rows = {name: i for i, name in enumerate(classes)}, order_rows(embeddings, classes)
    label = np.array([number[embeddings.label[i]] for i in rows])
    vectors, origin = centre(embeddings.vectors[rows])
    relevant = np.zeros((len(rows), len(classes)), bool)
    for row, i in enumerate(rows):
        relevant[
            row,
            [
                number[name]
                for name in (embeddings.label[i], *embeddings.labels[i])
                if name in number
            ],
        ] = True
    return Episodes(
        classes=classes,
        vectors=vectors,
        class_start=np.searchsorted(label, np.arange(len(classes) + 1)),
        fold=folds.fold[rows],
        folds=folds.count,
        relevant=relevant,
        segment_key=np.array([key(embeddings.segment[i]) for i in rows], np.uint64),
        class_key=np.array([key(name) for name in classes], np.uint64),
        origin=origin,
    )


def order_rows(embeddings: Embeddings, classes: Sequence[str]) -> IntArray:
    """Return the rows of a table whose label is one of the classes, by class and then by segment id."""
    number = {name: i for i, name in enumerate(classes)}
    rows = [i for i, name in enumerate(embeddings.label) if name in number]
    rows.sort(key=lambda i: (number[embeddings.label[i]], embeddings.segment[i]))
    return np.array(rows, np.int64)


def split(episodes: Episodes, number: int) -> Split:
    """Return the queries of one fold and the pools outside it."""
    rows = np.flatnonzero(episodes.fold == number)
    outside = np.flatnonzero(episodes.fold != number)
    owner = episodes.label[outside]
    return Split(
        number=number,
        rows=rows,
        label=episodes.label[rows],
        relevant=np.ascontiguousarray(episodes.relevant[rows].T),
        pool=(outside - episodes.class_start[owner]).astype(np.uint64),
        pool_start=np.searchsorted(owner, np.arange(len(episodes.classes) + 1)),
    )


def splits(episodes: Episodes) -> list[Split]:
    """Return every split, in the order of the folds."""
    return [split(episodes, number) for number in range(episodes.folds)]


def distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return each distinct row once, in the order of their first places, and which of these every row is."""
    places: dict[bytes, int] = {}
    index = np.array(
        [places.setdefault(row.tobytes(), len(places)) for row in rows + 0.0], np.int64
    )  # −0.0 is 0.0
    if len(places) == len(rows):
        return rows, index
    return np.ascontiguousarray(rows[np.unique(index, return_index=True)[1]]), index


def centre(vectors: NDArray[np.floating[Any]]) -> tuple[FloatArray, FloatArray]:
    """Move the vectors near the origin, in float64: a_n loses digits when |z| is large against the distances.

    Return them, and what was taken off. That is the mean, rounded to a power-of-two fraction of each dimension's range,
    so that whole numbers stay exact.
    """
    table = np.asarray(vectors, np.float64)
    with np.errstate(over="ignore"):
        spread = table.max(axis=0) - table.min(axis=0)
    if not np.isfinite(spread).all():
        raise InputError("embeddings: values differ by more than a float can hold; scale them down")
    _, exponent = np.frexp(spread)
    grid = np.ldexp(1.0, np.maximum(exponent - 4, -1022))
    mean = table.mean(axis=0)
    origin = np.where(spread > 0, np.rint(mean / grid) * grid, table[0])
    centred = np.ascontiguousarray(table - origin)
    largest = float(np.abs(centred).max(initial=0.0))
    if not (largest == 0.0 or 1 / LARGEST < largest < LARGEST):
        raise InputError(
            f"embeddings: values reach {largest:.0e} from their mean; scale them so that squares are floats"
        )
    return centred, origin
