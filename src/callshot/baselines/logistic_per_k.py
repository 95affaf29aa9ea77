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
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from callshot.baselines.logistic import (
    CLOSE,
    DEFAULT_C,
    check_c,
    check_optimum,
    score_whole_support,
    standardise,
    unscale,
)
from callshot.baselines.solver import make_problem, multiply, solve
from callshot.fewshot.engine import Engine, open_engine
from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import Spread, make_spread
from callshot.fewshot.sweep import (
    Categories,
    Evidence,
    Fill,
    Scorer,
    sweep,
    widen_total,
)
from callshot.records import FloatArray, IntArray, Progress, no_progress

DRAWS = 100
ENGINE_BYTES = 2**28  # no matrices are built; this limits the a_n of a task

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
    notes: list[str] | None = None,
    progress: Progress = no_progress,
) -> tuple[IntArray, MetricSums]:
    """Train on the first draws at every k; return k of each row, and their values as `sweep` does.

    The protocol gives the seed and the sampler; `draws` limits those of `shared` and `total`. With
    the values of `shared`, those of `total` are predictions; else they are raw samples. A query's
    own draws are all used, because the bootstrap picks among them. With `all`, its row is the last
    and has the largest pool as k: every draw there is the whole support side. Scores are log-odds,
    whatever the protocol has. With a GPU, fits and metrics are computed on it; `notes`
    get a line where it cannot.
    """
    check_c(c)
    protocol = protocol or Protocol()
    protocol = replace(
        protocol,
        score="log",
        shared_draws=min(draws, protocol.shared_draws),
        total_samples=min(draws, protocol.total_samples),
    )
    scorer = Scorer(partial(shared_evidence, c), partial(query_evidence, c))
    if gpu is not None:
        from callshot.baselines.gpu_logistic import BatchedSolver, GpuTrainer

        scorer = scorer._replace(on_gpu=partial(GpuTrainer, solver=BatchedSolver(c)))
    workers = threads or os.cpu_count() or 1
    rows = len(protocol.shots) + protocol.whole_pool

    def step(share: float) -> None:
        progress(share / rows, "logistic")

    with open_engine(
        episodes, protocol, workers, ENGINE_BYTES, step, gpu=gpu, notes=notes
    ) as engine:
        k, sums = sweep(engine, spread, categories, scorer)
    if spread == "total" and shared is not None:
        widen_total(sums, shared, episodes)
    return k, sums


def shared_evidence(
    c: float, engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> Evidence:
    """Return the function that trains on a few draws for all queries, for a[draw, shot, n, q]."""
    whole, fit = draw_fitter(c, engine, split, shots, spread)
    # Each distinct query is multiplied once, so that equal ones tie.
    queries, place = engine.episodes.distinct_at(split.rows)

    classes = len(engine.episodes.classes)

    def compute(span: slice) -> FloatArray:
        draws = range(span.start, span.stop)
        a = np.empty((len(draws), len(shots), classes, len(split.rows)))
        for d, draw in enumerate(draws):
            weight, bias = fit(split.number, draw)
            logits = np.empty((bias.size, len(queries)))
            multiply(weight.reshape(bias.size, -1), queries, False, logits)
            by_class = logits.reshape(*bias.shape, -1)
            with_bias = by_class + bias[..., None]
            a[d, : len(bias)] = with_bias[..., place]
            a[d, len(bias) :] = whole
        return a

    return compute


def query_evidence(
    c: float, engine: Engine, split: Split, shots: IntArray, out: FloatArray
) -> Fill:
    """Return the function that fills a_n of some queries with fits on their own draws."""
    spread = make_spread("per-query", engine.episodes, engine.protocol)
    whole, fit = draw_fitter(c, engine, split, shots, spread)

    def fill(span: slice) -> None:
        for q in range(span.start, span.stop):
            query = int(split.rows[q])
            for draw in range(engine.protocol.draws):
                weight, bias = fit(query, draw)
                logits = weight @ engine.episodes.vectors[query] + bias
                out[: len(bias), :, q, draw] = logits
                if whole is not None:
                    out[len(bias) :, :, q, draw] = whole[:, q]

    return fill


def draw_fitter(
    c: float, engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> tuple[FloatArray | None, Callable[[int, int], Layers]]:
    """Return a_n by the whole support side, and a function that trains on one draw.

    It gets a place, as `support_rows` does, and a draw, and trains at every k at which the draw is
    not the whole support side.
    """
    episodes = engine.episodes
    whole = score_whole_support(engine, split, shots, c)

    def fit(place: int, draw: int) -> Layers:
        rows, sizes = support_rows(spread, place, draw, shots)
        if whole is not None:
            sizes = sizes[: np.searchsorted(sizes, len(split.pool))]
        vectors = episodes.vectors[rows]
        classes = len(episodes.classes)
        return fit_nested(vectors, episodes.label[rows], sizes, classes, c)

    return whole, fit


def support_rows(
    spread: Spread, place: int, draw: int, shots: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the rows of one draw, one of each class in turn, and the number of rows at each k.

    Each support is the first rows. `place` is the fold of the queries; for those with
    draws of their own, it is the query.
    """
    supports = spread.supports(place, int(shots[-1]), draw)
    turn = np.concatenate([np.arange(len(support)) for support in supports])
    order = np.argsort(turn, kind="stable")
    rows = np.concatenate(supports)[order]
    return rows, np.searchsorted(turn[order], shots)


def fit_nested(
    vectors: FloatArray, label: IntArray, sizes: IntArray, classes: int, c: float
) -> Layers:
    """Train on the first rows of a draw, for each of the growing sizes, from the fit before.

    Return the weight (sizes, classes, dimensions) and the bias (sizes, classes) of every fit, for
    vectors that are not standardised.
    """
    weights = np.zeros((len(sizes), classes, vectors.shape[1]))
    biases = np.zeros((len(sizes), classes))
    unknowns = np.zeros((classes, 0))
    bias = np.zeros(classes)
    for s, size in enumerate(sizes.tolist()):
        # Before the first fit, the last one is zeros.
        weights[s] = weights[s - 1]
        biases[s] = biases[s - 1]
        if s > 0 and size == sizes[s - 1]:  # no class had another exemplar
            continue
        rows, mean, deviation = standardise(vectors[:size])
        problem = make_problem(rows, label[:size], c)
        if problem.is_gram:  # the new rows begin with zeros
            new_rows = size - unknowns.shape[1]
            unknowns = np.hstack([unknowns, np.zeros((classes, new_rows))])
        else:
            weight = weights[s]
            unknowns = weight * deviation
            bias = biases[s] + (weight * mean).sum(axis=1)
        gap = solve(problem, CLOSE, unknowns, bias)
        check_optimum(gap, c, CLOSE)
        weights[s], biases[s] = unscale(unknowns, bias, rows, mean, deviation)
    return weights, biases
