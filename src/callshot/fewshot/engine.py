"""What a sweep runs on: episodes, their products, threads, and how much memory it may take.

Threads share nothing but what they read: each task writes a place of its own, and sums are taken in a fixed order, so
the number of threads cannot be seen in the results.
"""

import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from functools import partial
from typing import Self

import numpy as np

from callshot.fewshot.classifiers import CENTROID, Classifier, unit
from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.gram import Gram, build_gram, expand, gram_bytes
from callshot.fewshot.kernels import scores
from callshot.fewshot.kernels.nearest_and_medoid import multiply
from callshot.fewshot.protocol import Protocol
from callshot.records import FloatArray, IntArray

Step = Callable[[float], None]
Task = Callable[[], object]

ROWS_AT_ONCE = 64  # queries in one multiplication


@dataclass(frozen=True)
class Engine:
    """Episodes under a protocol; `gram` is None where the vectors are read directly; `memory` is in bytes.

    With a classifier that is fitted to splits, only what `at_split` returns can be run.
    """

    episodes: Episodes
    protocol: Protocol
    gram: Gram | None
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
    def to_scores(self) -> Callable[..., None]:
        """The kernel that turns a_n into scores and hard decisions."""
        return scores.to_softmax if self.protocol.score == "softmax" else scores.to_log_odds

    @property
    def rule(self) -> str:
        """How a support scores a query: mean, cosine, nearest or medoid."""
        return self.classifier.rule

    @property
    def by_exemplar(self) -> bool:
        """Whether one exemplar stands for its class, instead of a mean."""
        return self.rule in ("nearest", "medoid")

    @property
    def matrices(self) -> tuple[FloatArray, IntArray]:
        """The matrix of each class, and where it starts; without one, nothing and zeros."""
        nothing = (np.empty(0), np.zeros_like(self.episodes.class_start))
        return nothing if self.gram is None else (self.gram.block, self.gram.start)

    def queries(self, part: Split) -> tuple[FloatArray, IntArray]:
        """Return the distinct vectors of a fold's queries, and which of these each has; for the cosine of length 1."""
        vectors, place = self.episodes.distinct_at(part.rows)
        return unit(vectors) if self.rule == "cosine" else vectors, place

    def at_split(self, part: Split) -> "Engine":
        """Return the engine on the vectors that its classifier makes of a split."""
        if self.classifier.fit is None:
            return self
        episodes = fit_split(self.episodes, self.classifier, part.number)
        return replace(self, episodes=episodes, gram=_multiply(episodes, self.rule, self.memory))

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
        """Stop the threads, and what they have not begun."""
        self.threads.shutdown(cancel_futures=True)


def open_engine(
    episodes: Episodes,
    protocol: Protocol,
    workers: int,
    memory: int,
    step: Step = lambda share: None,
    classifier: Classifier = CENTROID,
) -> Engine:
    """Multiply out the Gram blocks if they fit the memory, and start the threads."""
    seen = episodes if classifier.centred else episodes.uncentred()
    gram = _multiply(seen, classifier.rule, memory) if classifier.fit is None else None
    return Engine(
        seen, protocol, gram, ThreadPoolExecutor(workers), workers, memory, step, classifier
    )


def fit_split(episodes: Episodes, classifier: Classifier, number: int) -> Episodes:
    """Return the episodes on the vectors that a classifier makes of a split: queries have no part in the making."""
    if classifier.fit is None:
        return episodes
    return episodes.moved(classifier.fit(episodes.vectors[episodes.fold != number]))


def _multiply(episodes: Episodes, rule: str, memory: int) -> Gram | None:
    return build_gram(episodes, rule) if gram_bytes(episodes) <= memory else None


def cross_products(engine: Engine, part: Split) -> FloatArray:
    """Multiply the queries of a fold, (queries, rows), with every row.

    The threads share the rows in blocks of one size, so that their number cannot be seen in the last digit.
    """
    queries, of_query = engine.queries(part)
    rows, of_row = engine.episodes.distinct
    table = np.empty((len(queries), len(rows)))
    spans = list(blocks(len(queries), ROWS_AT_ONCE))
    engine.run([partial(np.dot, queries[at], rows.T, out=table[at]) for at in spans])
    return expand(table, of_query, of_row)


def multiply_out(these: FloatArray, those: FloatArray) -> FloatArray:
    """Multiply rows with rows, (these, those), without BLAS: no place and no size of a block shows in a digit."""
    table = np.empty((len(these), len(those)))
    multiply(these, those, table)
    return table


def blocks(total: int, size: int) -> Iterator[slice]:
    """Cut 0 … total into blocks of a size, at least 1."""
    size = max(1, size)
    return (slice(start, min(start + size, total)) for start in range(0, total, size))


def machine_memory() -> int:
    """Return the memory of this machine in bytes; 8 GiB where it cannot be told."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 8 * 2**30
