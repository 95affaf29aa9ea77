"""Embeddings and folds → the arrays that the kernels read.

Rows are the segments of eligible classes, ordered by class and then by segment id, so that neither
the order of a table nor the numbering of its folds can reach a draw or a number.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.fewshot.folds import evaluated_classes
from callshot.fewshot.kernels.ranks import Truth
from callshot.fewshot.kernels.streams import key
from callshot.records import COMMON_FOLD, ClassCount, FloatArray, Folds, IntArray
from callshot.vectors import Vectors

Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Transform = Callable[[FloatArray], FloatArray]

FEW_COLUMNS = 4
LARGEST = 1e100  # of values that are squared and summed


@dataclass(frozen=True)
class Episodes:
    """Everything that does not change from draw to draw, one row per segment.

    `rows` are the rows of the table, `segment` and `recording` their names. `vectors` are centred:
    the table's minus `origin`. Class n begins at row class_start[n]. `relevant` is (rows, classes).
    `joined_dimensions` are those of joined encoders, which each split scales to equal distances.
    With `only_common`, supports come from the common fold alone.
    """

    classes: tuple[str, ...]
    rows: IntArray
    segment: tuple[str, ...]
    recording: tuple[str, ...]
    vectors: FloatArray
    class_start: IntArray
    fold: IntArray
    folds: int
    relevant: Mask
    segment_key: Keys
    recording_key: Keys
    class_key: Keys
    origin: FloatArray | float = 0.0
    joined_dimensions: tuple[int, ...] = ()
    only_common: bool = False

    @cached_property
    def label(self) -> IntArray:
        """The class number of each row."""
        return np.repeat(np.arange(len(self.classes)), np.diff(self.class_start))

    @cached_property
    def members(self) -> Keys:
        """The number of each row inside its class."""
        rows = np.arange(len(self.label))
        return (rows - self.class_start[self.label]).astype(np.uint64)

    @cached_property
    def squares(self) -> FloatArray:
        """The squared length of each row's vector."""
        return np.einsum("rd,rd->r", self.vectors, self.vectors)

    @cached_property
    def distinct(self) -> tuple[FloatArray, IntArray]:
        """Each distinct vector once, and the number of the one that every row has."""
        return distinct_rows(self.vectors)

    def distinct_at(self, rows: IntArray | slice) -> tuple[FloatArray, IntArray]:
        """Return the distinct vectors of some rows, and the number of the one that each row has."""
        vectors, index = self.distinct
        numbers, place = np.unique(index[rows], return_inverse=True)
        return vectors[numbers], place

    def is_support(self, number: int) -> Mask:
        """Return whether each row is on the support side of a fold."""
        if self.only_common:
            return self.fold == COMMON_FOLD
        return self.fold != number

    def transformed(self, transform: Transform) -> "Episodes":
        """Return the episodes on other vectors; equal vectors stay equal."""
        vectors, index = self.distinct
        return replace(self, vectors=transform(vectors)[index], origin=0.0)

    def uncentred(self) -> "Episodes":
        """Return the episodes on the vectors of the table."""
        return replace(self, vectors=self.vectors + self.origin, origin=0.0)


@dataclass(frozen=True)
class Split:
    """One fold of queries, and the pools of its supports.

    `outside` is whether each row of the episodes is on the support side: outside the fold, and in
    the common fold if all supports come from that. The pool of class n is
    pool[pool_start[n] : pool_start[n + 1]], as row numbers inside the class.
    """

    number: int
    rows: IntArray
    label: IntArray
    relevant: Mask
    outside: Mask
    pool: Keys
    pool_start: IntArray

    @cached_property
    def positives(self) -> IntArray:
        """How many queries are positive for each class."""
        return self.relevant.sum(axis=1)

    @cached_property
    def truth(self) -> Truth:
        """The true classes of the queries, for the kernels."""
        _, positives = np.nonzero(self.relevant)
        start = np.concatenate([[0], np.cumsum(self.positives)])
        return Truth(self.relevant, self.label, positives, start)

    @property
    def pool_sizes(self) -> IntArray:
        """The number of exemplars in each pool."""
        return np.diff(self.pool_start)

    @property
    def largest_pool(self) -> int:
        """The number of exemplars in the largest pool."""
        return int(self.pool_sizes.max())


def plan_episodes(
    embeddings: Vectors, folds: Folds, counts: Sequence[ClassCount]
) -> Episodes:
    """Select the eligible classes, centre the vectors, and order all by class and segment id."""
    try:
        classes = evaluated_classes(counts)
        number = {name: n for n, name in enumerate(classes)}
        class_of_row = [number.get(name, -1) for name in embeddings.label]
        eligible = [row for row, n in enumerate(class_of_row) if n >= 0]
        eligible.sort(key=lambda row: (class_of_row[row], embeddings.segment[row]))
        rows = np.array(eligible, np.int64)
        table = embeddings.take(rows)
        vectors, origin = centre(table.matrix)
    except InputError as error:
        raise InputError(f"{embeddings.source}: {error}") from None
    label = np.array(class_of_row)[rows]
    pairs = zip(table.label, table.labels, strict=True)
    labels = [{own, *others} for own, others in pairs]
    return Episodes(
        classes=classes,
        rows=rows,
        segment=table.segment,
        recording=table.recording,
        vectors=vectors,
        class_start=np.searchsorted(label, np.arange(len(classes) + 1)),
        fold=folds.fold[rows],
        folds=folds.count,
        relevant=np.array([[name in names for name in classes] for names in labels]),
        segment_key=np.array([key(name) for name in table.segment], np.uint64),
        recording_key=np.array([key(name) for name in table.recording], np.uint64),
        class_key=np.array([key(name) for name in classes], np.uint64),
        origin=origin,
        joined_dimensions=embeddings.joined_dimensions,
        only_common=folds.only_common,
    )


def make_split(episodes: Episodes, number: int) -> Split:
    """Return the queries of one fold and the pools of its support side."""
    outside = episodes.is_support(number)
    rows = np.flatnonzero(episodes.fold == number)
    label = episodes.label[outside]
    return Split(
        number=number,
        rows=rows,
        label=episodes.label[rows],
        relevant=np.ascontiguousarray(episodes.relevant[rows].T),
        outside=outside,
        pool=episodes.members[outside],
        pool_start=np.searchsorted(label, np.arange(len(episodes.classes) + 1)),
    )


def make_splits(episodes: Episodes) -> list[Split]:
    """Return every split, in the order of the folds."""
    return [make_split(episodes, number) for number in range(episodes.folds)]


def distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return each distinct row once, by first occurrence, and the number of every row's.

    Where a few columns separate all rows, the others are not read.
    """
    first_columns = rows[:, :FEW_COLUMNS] + 0.0
    if len(np.unique(first_columns, axis=0)) == len(rows):
        return rows, np.arange(len(rows))
    numbers: dict[bytes, int] = {}
    index = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows + 0.0):  # −0.0 is 0.0
        index[i] = numbers.setdefault(row.tobytes(), len(numbers))
    if len(numbers) == len(rows):
        return rows, index
    _, first = np.unique(index, return_index=True)
    return np.ascontiguousarray(rows[first]), index


def centre(vectors: NDArray[np.floating[Any]]) -> tuple[FloatArray, FloatArray]:
    """Move the vectors near the origin, in float64; return them and what was subtracted.

    a_n loses digits when |z| is large against the distances. What is subtracted is the mean,
    rounded to a power-of-two fraction of each dimension's range, so that whole numbers stay exact.
    """
    table = np.asarray(vectors, np.float64)
    largest = np.abs(table).max(initial=0.0)
    with np.errstate(over="ignore"):
        spread = table.max(axis=0) - table.min(axis=0)
    widest = spread.max(initial=0.0)
    if largest >= LARGEST or 0.0 < widest <= 1 / LARGEST:
        raise InputError(
            f"embeddings: values of up to {largest:.0e}, which differ by up to {widest:.0e}, are "
            "too large or too small to compute with; multiply or divide all vectors by a constant"
        )
    _, exponent = np.frexp(spread)
    grid = np.ldexp(1.0, np.maximum(exponent - 4, -1022))
    rounded = np.rint(table.mean(axis=0) / grid) * grid
    origin = np.where(spread > 0, rounded, table[0])
    centred = np.ascontiguousarray(table - origin)
    return centred, origin
