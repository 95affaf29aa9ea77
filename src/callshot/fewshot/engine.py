"""What a sweep runs on: episodes, their products, threads, and a memory limit.

Threads share only what they read: each task writes to its own part of an array, and sums are taken
in a fixed order, so the number of threads cannot change the results.

Scoring looks up products or distances inside each class, and products of a fold's queries with all
rows; the Gram matrix is never whole. Where even these exceed the memory limit, the kernels read the
vectors directly. BLAS may give equal rows different last digits, depending on their place in the
matrix, which would break their ties: each distinct vector is multiplied once.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from callshot.fewshot.classifiers import CENTROID, Classifier, equalise_encoders, unit
from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.kernels.supports import RULES, Rows
from callshot.fewshot.protocol import Protocol
from callshot.jobs import Pool
from callshot.records import FloatArray, IntArray

if TYPE_CHECKING:
    from callshot.fewshot.gpu.device import Gpu
    from callshot.fewshot.gpu.rows import GpuRows

Step = Callable[[float], None]
Result = TypeVar("Result")

BLOCK_ROWS = 64  # queries in one multiplication


@dataclass(frozen=True)
class Engine:
    """Episodes under a protocol; `memory` is in bytes. With a GPU, sweeps run on it.

    `notes` get a line where the GPU cannot do its work. With a classifier that is fitted to splits,
    or joined encoders that are scaled, only the engine that `for_split` returns can run.
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
        """How a support scores a query: mean, cosine, nearest or medoid."""
        return self.classifier.rule

    @property
    def softmax(self) -> bool:
        """Whether scores are the literal softmax, not log-odds."""
        return self.protocol.score == "softmax"

    @cached_property
    def direct(self) -> bool:
        """Whether the matrices exceed the memory limit, so that the vectors are read directly."""
        return gram_bytes(self.episodes) > self.memory

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
        from callshot.fewshot.gpu.rows import GpuRows

        assert self.gpu is not None
        return GpuRows(self.episodes, self.rule, self.gpu)

    def queries(self, split: Split) -> tuple[FloatArray, IntArray]:
        """Return the distinct vectors of a fold's queries, and the number of each query's.

        For the cosine they have length 1.
        """
        vectors, place = self.episodes.distinct_at(split.rows)
        return unit(vectors) if self.rule == "cosine" else vectors, place

    def for_split(self, split: Split) -> "Engine":
        """Return the engine on the vectors that its classifier makes from a split."""
        if self.classifier.fit is None and not self.episodes.joined_dimensions:
            return self
        return replace(
            self, episodes=transform_split(self.episodes, self.classifier, split.number)
        )

    def run(
        self, tasks: Sequence[Callable[[], Result]], weight: float = 0.0
    ) -> list[Result]:
        """Run tasks and return their results; each is reported as its share of the weight."""

        def run(task: Callable[[], Result]) -> Result:
            result = task()
            self.step(weight / len(tasks))
            return result

        return list(self.threads.map(run, tasks))


@contextmanager
def open_engine(
    episodes: Episodes,
    protocol: Protocol,
    workers: int,
    memory: int,
    step: Step = lambda share: None,
    classifier: Classifier = CENTROID,
    gpu: "Gpu | None" = None,
    notes: list[str] | None = None,
) -> Iterator[Engine]:
    """Start the threads, on the vectors that the classifier reads.

    After an error, tasks that have not begun are dropped.
    """
    if not classifier.centred:
        episodes = episodes.uncentred()
    notes = [] if notes is None else notes
    with Pool(workers) as pool:
        yield Engine(episodes, protocol, pool, memory, step, classifier, gpu, notes)


def transform_split(
    episodes: Episodes, classifier: Classifier, number: int
) -> Episodes:
    """Return the episodes on the vectors that a classifier makes from a split's support side.

    Joined encoders are scaled first.
    """
    outside = episodes.is_support(number)
    if episodes.joined_dimensions:
        transform = equalise_encoders(
            episodes.vectors[outside], episodes.joined_dimensions
        )
        episodes = replace(episodes.transformed(transform), joined_dimensions=())
    if classifier.fit is None:
        return episodes
    return episodes.transformed(classifier.fit(episodes.vectors[outside]))


def gram_bytes(episodes: Episodes) -> int:
    """Return the memory that the blocks and the largest fold's products take."""
    sizes = np.diff(episodes.class_start)
    block_entries = np.sum(sizes**2)
    is_query = episodes.fold >= 0
    queries = np.bincount(episodes.fold[is_query]).max()
    product_entries = 2 * queries * len(episodes.fold)
    return int(8 * (block_entries + product_entries))


def class_matrices(episodes: Episodes, rule: str) -> tuple[FloatArray, IntArray]:
    """Return the products or distances inside each class, flat, and where each class begins."""
    sizes = np.diff(episodes.class_start)
    start = np.concatenate([[0], np.cumsum(sizes**2)])
    block = np.empty(start[-1])
    for n in range(len(sizes)):
        rows = slice(episodes.class_start[n], episodes.class_start[n + 1])
        vectors, place = episodes.distinct_at(rows)
        table = vectors @ vectors.T
        if rule == "medoid":
            squares = np.einsum("rd,rd->r", vectors, vectors)
            table *= -2.0
            table += squares[:, None] + squares
            np.fill_diagonal(table, 0.0)  # of equal vectors, whatever their last digits
            table = np.sqrt(np.maximum(table, 0.0))
        matrix = expand(table, place, place)
        if rule != "medoid":
            np.fill_diagonal(matrix, episodes.squares[rows])
        block[start[n] : start[n + 1]] = matrix.ravel()
    return block, start


def expand(table: FloatArray, left: IntArray, right: IntArray) -> FloatArray:
    """Return the products of all rows from those of distinct rows."""
    return table[np.ix_(left, right)]


def cross_products(engine: Engine, split: Split) -> FloatArray:
    """Multiply the queries of a fold with every row, (queries, rows).

    The threads share the queries in blocks of one size, so that their number cannot change the last
    digit.
    """
    queries, query_place = engine.queries(split)
    rows, row_place = engine.episodes.distinct
    table = np.empty((len(queries), len(rows)))
    spans = blocks(len(queries), BLOCK_ROWS)
    engine.run(
        [partial(np.dot, queries[span], rows.T, out=table[span]) for span in spans]
    )
    return expand(table, query_place, row_place)


def blocks(total: int, size: int) -> Iterator[slice]:
    """Cut 0 … total into blocks of a size, at least 1."""
    size = max(1, size)
    return (slice(start, min(start + size, total)) for start in range(0, total, size))
