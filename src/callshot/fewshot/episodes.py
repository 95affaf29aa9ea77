"""Embeddings and folds → the arrays that the kernels read, and the engine that runs them.

Rows are the segments of eligible classes, ordered by class and then by segment id, so that neither
the order of a table nor the numbering of its folds can reach a draw or a number. Each task of a
thread writes to its own part of an array, and sums are taken in a fixed order, so the number of
threads cannot change the results.

Scoring looks up products or distances inside each class, and products of a fold's queries with all
rows. Where these exceed the memory limit, the kernels read the vectors directly. BLAS may give
equal rows different last digits, which would break their ties: each distinct vector is multiplied
once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.fewshot.classifiers import CENTROID, Classifier, equalise_encoders, unit
from callshot.fewshot.folds import evaluated_classes
from callshot.fewshot.kernels.ranks import Truth
from callshot.fewshot.kernels.streams import key
from callshot.fewshot.kernels.supports import RULES, Rows
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Pool
from callshot.records import COMMON_FOLD, ClassCount, FloatArray, Folds, IntArray
from callshot.vectors import Vectors

if TYPE_CHECKING:
    from callshot.fewshot.gpu.device import Gpu
    from callshot.fewshot.gpu.draws import GpuRows

Keys = NDArray[np.uint64]
Mask = NDArray[np.bool_]
Transform = Callable[[FloatArray], FloatArray]

FEW_COLUMNS = 4  # in which rows are compared first
LARGEST = 1e100  # of values that are squared and summed


@dataclass(frozen=True)
class Episodes:
    """The labelled vectors that classifiers are evaluated on, a row per segment.

    Only segments of the evaluated classes are rows; class n begins at row class_start[n]. `rows`
    are the rows in the table of embeddings. `vectors` (rows, dimensions) are the table's minus
    `origin`. `relevant` (rows, classes) says which classes are among the labels of a row. If
    several encoders were joined, `joined_dimensions` are the columns of each, which each split
    scales to equal distances. With `only_common`, supports come from the common fold alone.
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
        """Each distinct vector once, and for each row the number of its vector among these."""
        return distinct_rows(self.vectors)

    def distinct_at(self, rows: IntArray | slice) -> tuple[FloatArray, IntArray]:
        """Return each distinct vector of some rows once, and for each row its number among these.

        With `vectors, place = distinct_at(rows)`, vectors[place] are the vectors of all the rows.
        """
        vectors, index = self.distinct
        numbers, place = np.unique(index[rows], return_inverse=True)
        return vectors[numbers], place

    def is_support(self, query_fold: int) -> Mask:
        """Return whether each row may be an example for the queries in a fold."""
        if self.only_common:
            return self.fold == COMMON_FOLD
        return self.fold != query_fold

    def transformed(self, transform: Transform) -> "Episodes":
        """Return the episodes on transformed vectors; equal vectors stay equal."""
        vectors, index = self.distinct
        return replace(self, vectors=transform(vectors)[index], origin=0.0)

    @property
    def as_one_class(self) -> "Episodes":
        """The episodes with the rows of all classes in one."""
        return replace(self, class_start=np.array([0, len(self.rows)]))


@dataclass(frozen=True)
class Split:
    """One fold of queries, and the pools from which their supports are drawn.

    `rows` are the queries, as rows of the episodes; `relevant` is (classes, queries). `outside` is
    whether each row of the episodes is on the support side. The pool of class n is
    pool[pool_start[n] : pool_start[n + 1]], as row numbers inside the class.
    """

    fold: int
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
    """Select the segments of eligible classes, in order of class and segment id, and centre them.

    An InputError names the file of the embeddings.
    """
    try:
        classes = evaluated_classes(counts)
        class_number = {name: n for n, name in enumerate(classes)}
        # −1: a row of a class that is not evaluated
        class_of_row = [class_number.get(name, -1) for name in embeddings.label]
        eligible = [row for row, n in enumerate(class_of_row) if n >= 0]
        eligible.sort(key=lambda row: (class_of_row[row], embeddings.segment[row]))
        rows = np.array(eligible, np.int64)
        table = embeddings.take(rows)
        vectors, origin = centre(table.matrix)
    except InputError as error:
        raise InputError(f"{embeddings.source}: {error}") from None
    label = np.array(class_of_row)[rows]
    numbers = np.arange(len(classes) + 1)
    class_start = np.searchsorted(label, numbers)
    relevant = []
    for own, others in zip(table.label, table.labels, strict=True):
        names = {own, *others}
        relevant.append([name in names for name in classes])
    segment_keys = [key(name) for name in table.segment]
    recording_keys = [key(name) for name in table.recording]
    class_keys = [key(name) for name in classes]
    return Episodes(
        classes=classes,
        rows=rows,
        segment=table.segment,
        recording=table.recording,
        vectors=vectors,
        class_start=class_start,
        fold=folds.fold[rows],
        folds=folds.count,
        relevant=np.array(relevant),
        segment_key=np.array(segment_keys, np.uint64),
        recording_key=np.array(recording_keys, np.uint64),
        class_key=np.array(class_keys, np.uint64),
        origin=origin,
        joined_dimensions=embeddings.joined_dimensions,
        only_common=folds.only_common,
    )


def make_split(episodes: Episodes, fold: int) -> Split:
    """Return the queries of one fold and the pools of examples for them."""
    outside = episodes.is_support(fold)  # the rows outside the fold of the queries
    rows = np.flatnonzero(episodes.fold == fold)
    label = episodes.label[outside]
    return Split(
        fold=fold,
        rows=rows,
        label=episodes.label[rows],
        relevant=np.ascontiguousarray(episodes.relevant[rows].T),
        outside=outside,
        pool=episodes.members[outside],
        pool_start=np.searchsorted(label, np.arange(len(episodes.classes) + 1)),
    )


def make_splits(episodes: Episodes) -> list[Split]:
    """Return every split, in the order of the folds."""
    return [make_split(episodes, fold) for fold in range(episodes.folds)]


def distinct_rows(rows: FloatArray) -> tuple[FloatArray, IntArray]:
    """Return each distinct row once, by first occurrence, and for each row its place there."""
    # Most tables have no equal rows, and the first columns show it already.
    first_columns = rows[:, :FEW_COLUMNS] + 0.0  # −0.0 becomes 0.0
    distinct_columns = np.unique(first_columns, axis=0)
    if len(distinct_columns) == len(rows):
        return rows, np.arange(len(rows))
    numbers: dict[bytes, int] = {}  # of distinct rows, by their bytes
    index = np.empty(len(rows), np.int64)
    for i, row in enumerate(rows + 0.0):
        content = row.tobytes()
        index[i] = numbers.setdefault(content, len(numbers))
    if len(numbers) == len(rows):
        return rows, index  # without a copy, as the table may be large
    _, first = np.unique(index, return_index=True)
    distinct = rows[first]
    return np.ascontiguousarray(distinct), index


def centre(vectors: NDArray[np.floating[Any]]) -> tuple[FloatArray, FloatArray]:
    """Move vectors (rows, dimensions) near the origin; return them and the vector subtracted.

    2 c·z − |c|² loses digits when vectors are long against their distances. The vector subtracted
    is the mean, rounded in each dimension to a power-of-two fraction of the range, so that whole
    numbers stay exact.
    """
    table = np.asarray(vectors, np.float64)
    largest = np.abs(table).max(initial=0.0)
    # A range of infinity comes with values that are too large
    with np.errstate(over="ignore"):
        spread = table.max(axis=0) - table.min(axis=0)
    widest = spread.max(initial=0.0)
    if largest >= LARGEST or 0.0 < widest <= 1 / LARGEST:
        raise InputError(
            f"embeddings: values of up to {largest:.0e}, which differ by up to {widest:.0e}, are "
            "too large or too small to compute with; multiply or divide all vectors by a constant"
        )
    _, exponent = np.frexp(spread)  # spread = mantissa · 2 ** exponent
    # Steps of 1/16 to 1/8 of the range, at least the smallest normal float.
    grid_exponent = np.maximum(exponent - 4, -1022)
    grid = np.ldexp(1.0, grid_exponent)
    mean = table.mean(axis=0)
    rounded = np.rint(mean / grid) * grid
    varies = spread > 0
    origin = np.where(varies, rounded, table[0])
    centred = np.ascontiguousarray(table - origin)
    return centred, origin


Step = Callable[[float], None]
Result = TypeVar("Result")

BLOCK_ROWS = 64  # queries in one multiplication


@dataclass(frozen=True)
class Engine:
    """What a sweep works on: episodes, a protocol, a classifier, and the resources of the machine.

    `memory` limits the tables of products, in bytes. `step` is called with progress in shots.
    `notes` get a line where a GPU cannot do its work. With a classifier that is fitted to splits,
    or joined encoders, only the engine that `for_split` returns can run.
    """

    episodes: Episodes
    protocol: Protocol
    threads: Pool
    memory: int
    step: Step
    classifier: Classifier = CENTROID
    gpu: "Gpu | None" = None
    notes: list[str] = field(default_factory=list)

    @property
    def rule(self) -> str:
        """How a support scores a query: mean, cosine, nearest, medoid or ridge."""
        return self.classifier.rule

    @property
    def softmax(self) -> bool:
        """Whether scores are the literal softmax, not log-odds."""
        return self.protocol.score == "softmax"

    @cached_property
    def direct(self) -> bool:
        """Whether the matrices exceed the memory limit, so that the vectors are read directly."""
        return gram_bytes(self.episodes, self.rule) > self.memory

    @cached_property
    def rows(self) -> Rows:
        """The rows for the kernels, with the matrices where these fit the memory limit."""
        episodes = self.episodes
        block = np.empty(0)
        start = np.zeros_like(episodes.class_start)
        if not self.direct and self.rule != "nearest":
            block, start = class_matrices(episodes, self.rule)
        return Rows(
            rule=RULES.index(self.rule),
            vectors=episodes.vectors,
            squares=episodes.squares,
            class_start=episodes.class_start,
            block=block,
            block_start=start,
        )

    @cached_property
    def on_gpu(self) -> "GpuRows":
        """The rows on the engine's GPU."""
        from callshot.fewshot.gpu.draws import GpuRows

        assert self.gpu is not None
        return GpuRows(self.episodes, self.rule, self.gpu)

    def queries(self, split: Split) -> tuple[FloatArray, IntArray]:
        """Return the distinct vectors of a fold's queries, and each query's number among these.

        For the rule `cosine` they have length 1.
        """
        vectors, place = self.episodes.distinct_at(split.rows)
        return unit(vectors) if self.rule == "cosine" else vectors, place

    def for_split(self, split: Split) -> "Engine":
        """Return the engine on the vectors that its classifier reads when it scores a split."""
        if self.classifier.fit is None and not self.episodes.joined_dimensions:
            return self
        episodes = transform_split(self.episodes, self.classifier, split.fold)
        return replace(self, episodes=episodes)

    def run(
        self, tasks: Sequence[Callable[[], Result]], progress: float = 0.0
    ) -> list[Result]:
        """Run tasks in threads and return their results in order.

        `progress` is that of all tasks together, in shots.
        """

        def run(task: Callable[[], Result]) -> Result:
            result = task()
            self.step(progress / len(tasks))
            return result

        return list(self.threads.map(run, tasks))


@contextmanager
def open_engine(
    episodes: Episodes,
    protocol: Protocol,
    workers: int,
    memory: int,
    *,
    step: Step = lambda share: None,
    classifier: Classifier = CENTROID,
    gpu: "Gpu | None" = None,
    notes: list[str] | None = None,
) -> Iterator[Engine]:
    """Open an engine with its own threads, on the vectors that the classifier reads."""
    if not classifier.centred:
        vectors = episodes.vectors + episodes.origin  # as the encoder gave them
        episodes = replace(episodes, vectors=vectors, origin=0.0)
    with Pool(workers) as pool:
        yield Engine(
            episodes,
            protocol,
            threads=pool,
            memory=memory,
            step=step,
            classifier=classifier,
            gpu=gpu,
            notes=[] if notes is None else notes,
        )


def transform_split(
    episodes: Episodes, classifier: Classifier, query_fold: int
) -> Episodes:
    """Return the episodes with the vectors that a classifier reads when it scores one fold.

    The transform is fitted to the support side of the fold. Joined encoders are scaled first.
    """
    is_support = episodes.is_support(query_fold)
    if episodes.joined_dimensions:
        support = episodes.vectors[is_support]
        transform = equalise_encoders(support, episodes.joined_dimensions)
        episodes = replace(episodes.transformed(transform), joined_dimensions=())
    if classifier.fit is None:
        return episodes
    return episodes.transformed(classifier.fit(episodes.vectors[is_support]))


def gram_bytes(episodes: Episodes, rule: str) -> int:
    """Return the bytes of the tables of products of vectors, in float64, that a rule looks up.

    They are the products inside each class, and, twice, the products of the largest fold's queries
    with all rows; for ridge regression the products of all pairs of rows.
    """
    if rule == "ridge":
        return 8 * len(episodes.rows) ** 2
    sizes = np.diff(episodes.class_start)
    block_entries = np.sum(sizes**2)
    is_query = episodes.fold != COMMON_FOLD
    queries = np.bincount(episodes.fold[is_query]).max()
    product_entries = 2 * queries * len(episodes.fold)
    return int(8 * (block_entries + product_entries))


def class_matrices(episodes: Episodes, rule: str) -> tuple[FloatArray, IntArray]:
    """Return a square matrix per class, flat, one after another, and where each one begins.

    It has the products of all pairs of vectors of the class, for the rule `medoid` their distances.
    """
    sizes = np.diff(episodes.class_start)
    ends = np.cumsum(sizes**2)
    start = np.concatenate([[0], ends])
    block = np.empty(start[-1])
    for n in range(len(sizes)):
        first_row = episodes.class_start[n]
        next_row = episodes.class_start[n + 1]  # of the next class
        rows = slice(first_row, next_row)
        vectors, place = episodes.distinct_at(rows)
        table = vectors @ vectors.T
        if rule == "medoid":
            squares = np.einsum("rd,rd->r", vectors, vectors)
            sums_of_squares = squares[:, None] + squares
            table *= -2.0
            table += sums_of_squares
            np.fill_diagonal(table, 0.0)  # of equal vectors, whatever their last digits
            squared_distances = np.maximum(table, 0.0)
            table = np.sqrt(squared_distances)
        matrix = table[np.ix_(place, place)]
        if rule != "medoid":
            # The same digits as the squares that kernels read
            np.fill_diagonal(matrix, episodes.squares[rows])
        block[start[n] : start[n + 1]] = matrix.ravel()
    return block, start


def cross_products(engine: Engine, split: Split) -> FloatArray:
    """Multiply the queries of a fold with every row, (queries, rows), each distinct vector once.

    Blocks of queries have one size, so that the number of threads cannot change the last digit.
    """
    queries, query_place = engine.queries(split)
    rows, row_place = engine.episodes.distinct
    table = np.empty((len(queries), len(rows)))  # of distinct vectors
    tasks = [
        partial(np.dot, queries[span], rows.T, out=table[span])
        for span in blocks(len(queries), BLOCK_ROWS)
    ]
    engine.run(tasks)
    return table[np.ix_(query_place, row_place)]


def blocks(total: int, size: int) -> Iterator[slice]:
    """Yield slices that cut range(total) into blocks of `size` (at least 1) and the rest."""
    size = max(1, size)
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
