"""Episodes → logistic regression at every k, on the first draws of a spread.

The spread `shared` has one labelled set for all queries: a fit for each draw, split and k.
`total` has as many fits: its exemplars come in the order of its recordings' weights, a fit does not
weigh them, and its queries have weights. `per-query` has a fit for each draw, query and k, a
hundred times as many.

A fit sees the support set of its draw and nothing else: its labels, and its rows to standardise by.
C is fixed: one exemplar of a class leaves no inner fold to choose it on. Supports are nested over
k. So the rows of a draw are ordered such that each support is the beginning of the next, and each
fit starts from the one before; a longer sweep changes nothing. A support that is the whole support
side is one set, whatever its order: it is trained on once, as in `logistic`.
"""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from callshot.baselines.logistic import (
    CLOSE,
    DEFAULT_C,
    check_c,
    check_optimum,
    score_whole_support,
    standardise,
)
from callshot.baselines.scoring import Categories
from callshot.baselines.solver import fill_layer, fill_logits, make_problem, solve
from callshot.fewshot.engine import Engine, open_engine
from callshot.fewshot.episodes import Episodes, Split, make_splits
from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import (
    Evidence,
    Fill,
    Scorer,
    Spread,
    make_spread,
    sweep_folds,
    widen_total,
)
from callshot.records import FloatArray, IntArray, Progress, no_progress

DRAWS = 100
ENGINE_BYTES = 2**28  # no matrices are built; this limits the a_n of a task

Draw = tuple[
    IntArray, IntArray
]  # its rows, and how many of them are the support at each k
Layers = tuple[FloatArray, FloatArray]  # weight (fits, classes, dimensions) and bias


def sweep_logistic(
    episodes: Episodes,
    protocol: Protocol | None = None,
    spread: str = "shared",
    *,
    c: float = DEFAULT_C,
    draws: int = DRAWS,
    categories: Categories = None,
    shared: MetricSums | None = None,
    threads: int | None = None,
    gpu: Gpu | None = None,
    progress: Progress = no_progress,
) -> tuple[IntArray, MetricSums]:
    """Train on the first draws at every k; return k of each row, and their values as `sweep` does.

    The protocol gives the seed and the sampler; `draws` limits those of `shared` and `total`. With
    the values of `shared`, those of `total` are predictions; else they are raw samples. A query's
    own draws are all used, because the bootstrap picks among them. With `all`, its row is the last
    and has the largest pool as k: every draw there is the whole support side. Scores are log-odds,
    whatever the protocol has. With a GPU, fits and metrics are computed on it.
    """
    check_c(c)
    protocol = protocol or Protocol()
    protocol = replace(
        protocol,
        score="log",
        shared_draws=min(draws, protocol.shared_draws),
        total_samples=min(draws, protocol.total_samples),
    )
    splits = make_splits(episodes)
    shots = _list_shots(protocol, splits)
    workers = threads or os.cpu_count() or 1

    def step(share: float) -> None:
        progress(share / len(shots), "logistic")

    with open_engine(
        episodes, protocol, workers, ENGINE_BYTES, step, gpu=gpu
    ) as engine:
        data = make_spread(spread, episodes, protocol)
        sums = sweep_folds(engine, shots, data, categories, _make_scorer(c, gpu))
    if spread == "total" and shared is not None:
        widen_total(sums, shared, episodes)
    return shots, sums


def _make_scorer(c: float, gpu: Gpu | None) -> Any:
    """Return what trains and scores: with threads, or on a GPU."""
    if gpu is None:
        return Scorer(partial(draw_evidence, c), partial(make_fill, c))
    from callshot.baselines.gpu_logistic import BatchedSolver, GpuTrainer

    return partial(GpuTrainer, solver=BatchedSolver(c))


def _list_shots(protocol: Protocol, splits: Sequence[Split]) -> IntArray:
    """Return every k, in order; with `all`, the largest pool is one of them."""
    shots = set(protocol.shots)
    if protocol.whole_pool:
        shots.add(max(split.largest_pool for split in splits))
    return np.array(sorted(shots), np.int64)


@dataclass
class SplitTrainer:
    """Fits for the queries of one fold.

    The rows of a class in one draw are those of the spread.
    `whole` is a_n (classes, queries) by the whole support side; None where no draw is that side.
    """

    engine: Engine
    split: Split
    shots: IntArray
    c: float
    spread: Spread
    whole: FloatArray | None = None

    def __post_init__(self) -> None:
        self.whole = score_whole_support(self.engine, self.split, self.shots, self.c)

    def fit_draw(self, rows: IntArray, sizes: IntArray) -> Layers:
        """Train on one draw at every k at which it is not the whole support side."""
        if self.whole is not None:
            sizes = sizes[: np.searchsorted(sizes, len(self.split.pool))]
        episodes = self.engine.episodes
        vectors = episodes.vectors[rows]
        label = episodes.label[rows]
        return fit_nested(vectors, label, sizes, len(episodes.classes), self.c)

    def draw_evidence(self, span: slice) -> FloatArray:
        """Train on a few draws for all queries at every k, and return a[draw, shot, n, q]."""
        episodes = self.engine.episodes
        protocol = self.engine.protocol
        number = self.split.number
        size = (len(self.shots), len(episodes.classes))
        a = np.empty((span.stop - span.start, *size, len(self.split.rows)))
        # Each distinct query is multiplied once, so that equal ones tie.
        queries, place = episodes.distinct_at(self.split.rows)
        logits = np.empty((*size, len(queries)))
        for d, draw in enumerate(range(span.start, span.stop)):
            rows, sizes = support_rows(
                episodes, number, draw, self.shots, protocol, self.spread
            )
            weight, bias = self.fit_draw(rows, sizes)
            fits = len(weight)
            fill_logits(weight, bias, queries, logits[:fits])
            a[d, :fits] = logits[:fits, :, place]
            a[d, fits:] = self.whole
        return a

    def fill_query(self, q: int, out: FloatArray) -> None:
        """Train on every draw of one query, and fill its a_n (shots, classes, draws)."""
        episodes = self.engine.episodes
        protocol = self.engine.protocol
        query = int(self.split.rows[q])
        for draw in range(protocol.draws):
            rows, sizes = support_rows(
                episodes, query, draw, self.shots, protocol, self.spread
            )
            weight, bias = self.fit_draw(rows, sizes)
            fits = len(weight)
            out[:fits, :, draw] = weight @ episodes.vectors[query] + bias
            if self.whole is not None:
                out[fits:, :, draw] = self.whole[:, q]


def draw_evidence(
    c: float, engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> Evidence:
    """Return the function that trains on a few draws for all queries."""
    return SplitTrainer(engine, split, shots, c, spread).draw_evidence


def make_fill(
    c: float, engine: Engine, split: Split, shots: IntArray, out: FloatArray
) -> Fill:
    """Return the function that fills a_n of some queries with fits on their own draws."""
    spread = make_spread("per-query", engine.episodes, engine.protocol)
    trainer = SplitTrainer(engine, split, shots, c, spread)

    def fill(span: slice) -> None:
        for q in range(span.start, span.stop):
            trainer.fill_query(q, out[:, :, q])

    return fill


def support_rows(
    episodes: Episodes,
    place: int,
    draw: int,
    shots: IntArray,
    protocol: Protocol,
    spread: Spread | None = None,
) -> Draw:
    """Return the rows of one draw, and the number of rows of the support at each k.

    Each support is the first rows. `place` is the fold of the queries; for those with
    draws of their own, it is the query.
    """
    spread = spread or make_spread("shared", episodes, protocol)
    most = int(shots[-1])
    classes = range(len(episodes.classes))
    supports = [
        spread.support(episodes, place, n, most, draw, protocol) for n in classes
    ]
    return interleave(supports, shots)


def interleave(supports: Sequence[IntArray], shots: IntArray) -> Draw:
    """Order the supports of all classes, a row of each in turn; also count the rows at each k.

    >>> interleave([np.array([4, 5, 6]), np.array([8])], np.array([1, 2, 3]))
    (array([4, 8, 5, 6]), array([2, 3, 4]))
    """
    rows = np.concatenate(supports)
    place = np.concatenate([np.arange(len(support)) for support in supports])
    order = np.argsort(place, kind="stable")
    return rows[order], np.searchsorted(place[order], shots)


def fit_nested(
    vectors: FloatArray, label: IntArray, sizes: IntArray, classes: int, c: float
) -> Layers:
    """Train on the first rows of a draw, for each of the growing sizes, from the fit before.

    Return the weight (sizes, classes, dimensions) and the bias (sizes, classes) of every fit, for
    vectors that are not standardised.
    """
    weights = np.zeros((len(sizes), classes, vectors.shape[1]))
    biases = np.zeros((len(sizes), classes))
    row_buffer = np.empty_like(vectors)
    problem_buffer = np.empty(min(vectors.shape) * len(vectors))
    unknowns = np.zeros((classes, 0))
    bias = np.zeros(classes)
    for s, size in enumerate(sizes.tolist()):
        # Before the first fit, the last one is zeros.
        weights[s] = weights[s - 1]
        biases[s] = biases[s - 1]
        if s > 0 and size == sizes[s - 1]:  # no class had another exemplar
            continue
        rows, mean, deviation = standardise(vectors[:size], row_buffer[:size])
        problem = make_problem(rows, label[:size], c, problem_buffer)
        if problem.is_gram:  # the new rows begin with zeros
            new_rows = size - unknowns.shape[1]
            unknowns = np.hstack([unknowns, np.zeros((classes, new_rows))])
        else:
            unknowns = weights[s] * deviation
            bias = biases[s] + (weights[s] * mean).sum(axis=1)
        gap = solve(problem, CLOSE, unknowns, bias)
        check_optimum(gap, c, CLOSE)
        biases[s] = bias
        layer = (weights[s], biases[s])
        fill_layer(unknowns, rows, problem.is_gram, mean, deviation, *layer)
    return weights, biases
