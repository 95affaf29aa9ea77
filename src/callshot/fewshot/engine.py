"""What a sweep runs on: episodes, their products, threads, and a memory limit.

Threads share only what they read: each task writes to its own part of an array, and sums are taken
in a fixed order, so the number of threads cannot change the results.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

import numpy as np

from callshot.fewshot.classifiers import CENTROID, Classifier, unit
from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.gram import class_matrices, expand, gram_bytes, no_matrices
from callshot.fewshot.kernels import streams
from callshot.fewshot.kernels.supports import RULES, Rows, Sampling, multiply_rows
from callshot.fewshot.protocol import Protocol
from callshot.records import FloatArray, IntArray

Step = Callable[[float], None]
Task = Callable[[], object]

BLOCK_ROWS = 64  # queries in one multiplication


@dataclass(frozen=True)
class Engine:
    """Episodes under a protocol; `memory` is in bytes.

    With a classifier that is fitted to splits, only the engine that `for_split` returns can run.
    """

    episodes: Episodes
    protocol: Protocol
    threads: ThreadPoolExecutor
    workers: int
    memory: int
    step: Step
    classifier: Classifier = CENTROID

    @property
    def distinct(self) -> bool:
        """Whether no exemplar is drawn twice."""
        return self.protocol.sampler == "distinct"

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
        matrices = no_matrices(episodes) if self.direct else class_matrices(episodes, self.rule)
        return Rows(
            RULES.index(self.rule),
            episodes.vectors,
            episodes.squares,
            episodes.class_start,
            *matrices,
        )

    def sampling(self, purpose: str, shots: IntArray) -> Sampling:
        """Return how supports are drawn, for the kernels."""
        stream = streams.purpose_key(self.protocol.seed, purpose)
        return Sampling(stream, self.episodes.class_key, shots, self.distinct)

    def queries(self, part: Split) -> tuple[FloatArray, IntArray]:
        """Return the distinct vectors of a fold's queries, and the number of each query's.

        For the cosine they have length 1.
        """
        vectors, place = self.episodes.distinct_at(part.rows)
        return unit(vectors) if self.rule == "cosine" else vectors, place

    def for_split(self, part: Split) -> "Engine":
        """Return the engine on the vectors that its classifier makes from a split."""
        if self.classifier.fit is None:
            return self
        return replace(self, episodes=fit_split(self.episodes, self.classifier, part.number))

    def run(self, tasks: Sequence[Task], weight: float = 0.0) -> None:
        """Run tasks, report each as its share of the weight, and raise the first error."""
        futures = [self.threads.submit(task) for task in tasks]
        for future in futures:
            future.add_done_callback(lambda _: self.step(weight / len(tasks)))
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:
                future.cancel()
        for future in done:
            future.result()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Stop the threads; tasks that have not begun are dropped."""
        self.threads.shutdown(cancel_futures=True)


def open_engine(
    episodes: Episodes,
    protocol: Protocol,
    workers: int,
    memory: int,
    step: Step = lambda share: None,
    classifier: Classifier = CENTROID,
) -> Engine:
    """Start the threads, on the vectors that the classifier reads."""
    if not classifier.centred:
        episodes = episodes.uncentred()
    threads = ThreadPoolExecutor(workers)
    return Engine(episodes, protocol, threads, workers, memory, step, classifier)


def fit_split(episodes: Episodes, classifier: Classifier, number: int) -> Episodes:
    """Return the episodes on the vectors that a classifier makes from a split's support side."""
    if classifier.fit is None:
        return episodes
    return episodes.transformed(classifier.fit(episodes.vectors[episodes.fold != number]))


def cross_products(engine: Engine, part: Split) -> FloatArray:
    """Multiply the queries of a fold with every row, (queries, rows).

    The threads share the queries in blocks of one size, so that their number cannot change the last
    digit.
    """
    queries, query_place = engine.queries(part)
    rows, row_place = engine.episodes.distinct
    table = np.empty((len(queries), len(rows)))
    spans = blocks(len(queries), BLOCK_ROWS)
    engine.run([partial(np.dot, queries[span], rows.T, out=table[span]) for span in spans])
    return expand(table, query_place, row_place)


def multiply_without_blas(left: FloatArray, right: FloatArray) -> FloatArray:
    """Multiply rows with rows, (left, right); no block size can change a digit."""
    table = np.empty((len(left), len(right)))
    multiply_rows(left, right, table)
    return table


def blocks(total: int, size: int) -> Iterator[slice]:
    """Cut 0 … total into blocks of a size, at least 1."""
    size = max(1, size)
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def machine_memory() -> int:
    """Return the memory of this machine in bytes; 8 GiB where the system does not report it."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30
