"""Episodes → logistic regression at every k, on the first of the draws that a spread has.

The spread `shared` has one labelled set for all queries: a fit for each draw, split and k. `per-query` has one for each
query: a fit for each draw, query and k, which is a hundred times as many, for the patient.

A fit sees the support set of its draw and nothing else: its labels, and its rows to standardise by (`scaling`), which
is what a person who labels has. Its strength C is fixed: one exemplar of a class leaves no inner fold to choose it by.
Supports are nested over k. So the rows of a draw are put in an order in which each support is the beginning of the
next, and each fit starts from the one before; a longer sweep moves nothing. A support that is the whole support side is
one set, whatever order it came in: it is trained on once, as `logistic` does.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from callshot.baselines.kernels.products import fill_layer, fill_logits
from callshot.baselines.kernels.solver import gram_matrix, solve
from callshot.baselines.logistic import (
    CLOSE,
    DEFAULT_C,
    check_c,
    check_optimum,
    score_each,
)
from callshot.baselines.standardize import standardise
from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import Engine, open_engine
from callshot.fewshot.episodes import Episodes, Split, splits
from callshot.fewshot.per_query_resampling import Fill, per_query_support, sweep_per_query
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.shared_resampling import shared_support, sweep_draws
from callshot.records import FloatArray, IntArray, Progress, no_progress

DRAWS = 100
ENGINE_BYTES = 2**28  # no matrices are built; this limits the a_n of a task


def sweep_logistic(
    episodes: Episodes,
    protocol: Protocol | None = None,
    spread: str = "shared",
    *,
    strength: float = DEFAULT_C,
    draws: int = DRAWS,
    categories: Mapping[str, str] | None = None,
    threads: int | None = None,
    progress: Progress = no_progress,
) -> tuple[IntArray, MetricSums]:
    """Train on the first draws at every k; return k of each row, and values (shots, samples) as `sweep` does.

    The draws are those of the protocol's seed and sampler; `draws` are the first of the shared ones. A query's own are
    all taken: the bootstrap picks among them, and only among as many does it pick the same. Where `all` is asked for,
    its row comes last and carries the largest pool as k: there every draw is the whole support side. Scores are
    log-odds, whatever the protocol says.
    """
    check_c(strength)
    protocol = protocol or Protocol()
    protocol = replace(protocol, score="log", shared_draws=min(draws, protocol.shared_draws))
    parts, k = splits(episodes), set(protocol.shots)
    if protocol.whole_pool:
        k.add(max(part.largest_pool for part in parts))
    shots = np.array(sorted(k), np.int64)
    tally = MetricSums(len(shots), protocol.samples(spread), episodes.classes, categories)
    workers = threads or os.cpu_count() or 1

    def step(share: float) -> None:
        progress(share / len(shots), "logistic")

    with open_engine(episodes, protocol, workers, ENGINE_BYTES, step) as engine:
        for part in parts:
            if spread == "shared":
                _sweep_split(engine, part, shots, strength, tally)
            else:
                sweep_per_query(engine, part, shots, tally, partial(_filler, strength))
            tally.close_fold(part)
    tally.finish(protocol.supports(spread))
    return shots, tally


def drawn_rows(
    episodes: Episodes, number: int, draw: int, shots: IntArray, protocol: Protocol
) -> tuple[IntArray, IntArray]:
    """Return the rows of one draw outside a fold, and how many of them, from the first, are the support at each k."""
    numbers = range(len(episodes.classes))
    rows = [shared_support(episodes, number, n, int(shots[-1]), draw, protocol) for n in numbers]
    return by_turns(rows, shots)


def by_turns(rows: Sequence[IntArray], shots: IntArray) -> tuple[IntArray, IntArray]:
    """Put the supports of all classes in one order, a row of each class in turn; return how many there are at each k.

    >>> by_turns([np.array([4, 5, 6]), np.array([8])], np.array([1, 2, 3]))
    (array([4, 8, 5, 6]), array([2, 3, 4]))
    """
    place = np.concatenate([np.arange(len(one)) for one in rows])
    order = np.argsort(place, kind="stable")
    return np.concatenate(rows)[order], np.searchsorted(place[order], shots)


def climb(
    vectors: FloatArray, label: IntArray, sizes: IntArray, classes: int, strength: float
) -> tuple[FloatArray, FloatArray]:
    """Train on the first rows of a draw, on more and more of them, each fit from the one before.

    Return the weight (sizes, classes, dimensions) and the bias (sizes, classes) of every fit, for vectors as they are.
    """
    weights, biases = (
        np.zeros((len(sizes), classes, vectors.shape[1])),
        np.zeros((len(sizes), classes)),
    )
    numbers, bias = np.zeros((classes, 0)), np.zeros(classes)
    room, table = np.empty_like(vectors), np.empty(min(vectors.shape) * len(vectors))
    for s, size in enumerate(sizes.tolist()):
        if s and size == sizes[s - 1]:  # no class had another exemplar to give
            weights[s], biases[s] = weights[s - 1], biases[s - 1]
            continue
        rows, mean, deviation = standardise(vectors[:size], room[:size])
        gram = size <= rows.shape[1]
        if gram:
            products = columns = gram_matrix(rows, table[: size * size].reshape(size, size))
            before, numbers = numbers, np.zeros((classes, size))
            numbers[:, : before.shape[1]] = before
        else:
            products, columns = rows, table[: rows.size].reshape(rows.shape[::-1])
            columns[:] = rows.T
            numbers = weights[s - 1] * deviation  # at first, zeros
            bias = biases[s - 1] + (weights[s - 1] * mean).sum(axis=1)
        left = solve(products, columns, gram, label[:size], strength, CLOSE, numbers, bias)
        check_optimum(left, strength, CLOSE)
        biases[s] = bias
        fill_layer(numbers, rows, gram, mean, deviation, weights[s], biases[s])
    return weights, biases


def _sweep_split(
    engine: Engine, part: Split, shots: IntArray, strength: float, tally: MetricSums
) -> None:
    """Train on every draw for the queries of one fold, and add the values of those to the tally."""
    whole = None
    if shots[-1] >= part.largest_pool:
        whole = _score_whole(engine, part, strength)
    evidence = partial(_train, engine, part, shots, strength, whole)
    sweep_draws(engine, part, len(shots), tally, evidence)


def _score_whole(engine: Engine, part: Split, strength: float) -> FloatArray | None:
    """Return a_n (classes, queries) by the whole support side; none where exemplars are drawn with replacement."""
    if not engine.distinct:
        return None
    return np.asarray(next(score_each(engine.episodes, part.number, (strength,))).T)


def _train(
    engine: Engine,
    part: Split,
    shots: IntArray,
    strength: float,
    whole: FloatArray | None,
    span: slice,
) -> FloatArray:
    """Train on a few draws at every k, and return a[draw, shot, n, q]."""
    episodes = engine.episodes
    a = np.empty((span.stop - span.start, len(shots), len(episodes.classes), len(part.rows)))
    queries, place = episodes.distinct_at(
        part.rows
    )  # each distinct query is multiplied once, so that equal ones tie
    logits = np.empty((*a.shape[1:3], len(queries)))
    for d, draw in enumerate(range(span.start, span.stop)):
        rows, sizes = drawn_rows(episodes, part.number, draw, shots, engine.protocol)
        drawn = len(sizes) if whole is None else int(np.searchsorted(sizes, len(part.pool)))
        weight, bias = climb(
            episodes.vectors[rows], episodes.label[rows], sizes[:drawn], a.shape[2], strength
        )
        fill_logits(weight, bias, queries, logits[:drawn])
        a[d, :drawn] = logits[:drawn, :, place]
        a[d, drawn:] = whole
    return a


def _filler(strength: float, engine: Engine, part: Split, shots: IntArray, out: FloatArray) -> Fill:
    """Return what trains on every draw of some queries at every k, and fills in a_n of each query by its own fits."""
    episodes, protocol, classes = engine.episodes, engine.protocol, len(engine.episodes.classes)
    whole = _score_whole(engine, part, strength) if shots[-1] >= part.largest_pool else None

    def fill(first: int, last: int) -> None:
        for q in range(first, last):
            query, z = int(part.rows[q]), episodes.vectors[part.rows[q]]
            for draw in range(protocol.draws):
                supports = [
                    per_query_support(episodes, query, n, int(shots[-1]), draw, protocol)
                    for n in range(classes)
                ]
                rows, sizes = by_turns(supports, shots)
                drawn = len(sizes) if whole is None else int(np.searchsorted(sizes, len(part.pool)))
                weight, bias = climb(
                    episodes.vectors[rows], episodes.label[rows], sizes[:drawn], classes, strength
                )
                out[:drawn, :, q, draw] = weight @ z + bias
                if whole is not None:
                    out[drawn:, :, q, draw] = whole[:, q]

    return fill
