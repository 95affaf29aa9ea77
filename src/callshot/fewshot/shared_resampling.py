"""The spread `shared`: one support set for all queries, as a person who labels has it; a value for every draw.

The row `all` is here too: there every class gives its whole pool, which is one draw in either spread.
"""

from functools import partial
from typing import Any

import numpy as np

from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import ROWS_AT_ONCE, Engine, blocks, cross_products, multiply_out
from callshot.fewshot.episodes import Split, distinct_rows
from callshot.fewshot.gram import expand
from callshot.fewshot.kernels import nearest_and_medoid, shared, streams
from callshot.records import FloatArray, IntArray

MOST_BYTES = 2**26  # a_n that one task holds


class Draws:
    """The metrics of some draws of one fold: ap, auroc and hits are (draws, shots, classes)."""

    def __init__(self, draws: int, shots: int, classes: int) -> None:
        self.ap, self.auroc, self.hits = (np.empty((draws, shots, classes)) for _ in range(3))
        self.decisions = np.zeros((shots, classes, classes), np.int64)
        self.tied = np.zeros((shots, classes), np.int64)


def sweep_shared(engine: Engine, part: Split, shots: IntArray, tally: MetricSums) -> None:
    """Score the queries of one fold against the same draws, and add the values of those to the tally."""
    classes, queries, draws = (
        len(engine.episodes.classes),
        len(part.rows),
        engine.protocol.shared_draws,
    )
    cross = _cross(engine, part)
    room = min(MOST_BYTES, engine.memory // 4) // (8 * len(shots) * classes * queries)
    spans = list(blocks(draws, min(room, -(-draws // (2 * engine.workers)))))
    found = [Draws(span.stop - span.start, len(shots), classes) for span in spans]
    tasks = [
        partial(_share, engine, part, shots, cross, span, d)
        for span, d in zip(spans, found, strict=True)
    ]
    engine.run(tasks, len(shots) / engine.episodes.folds)
    at = slice(0, len(shots))
    tally.decisions[at] += np.sum([d.decisions for d in found], axis=0)
    tally.tied[at] += np.sum([d.tied for d in found], axis=0)
    ap, auroc, hits = (
        np.concatenate([getattr(d, name) for d in found]) for name in ("ap", "auroc", "hits")
    )
    engine.run(
        [
            partial(tally.add, s, part, ap[:, s].T, auroc[:, s].T, hits[:, s].T)
            for s in range(len(shots))
        ]
    )


def sweep_pool(
    engine: Engine, part: Split, row: int, samples: int, draws: int, tally: MetricSums
) -> None:
    """Score the row `all`: one support set, so one value, which every sample of either spread has."""
    classes = len(engine.episodes.classes)
    found = Draws(1, 1, classes)
    measure(engine, part, pool_a(engine, part), found)
    tally.decisions[row] += found.decisions[0] * draws
    tally.tied[row] += found.tied[0] * draws
    values = (x.reshape(classes, 1) for x in (found.ap, found.auroc, found.hits))
    tally.add(row, part, *(np.broadcast_to(x, (classes, samples)) for x in values))


def pool_a(engine: Engine, part: Split) -> FloatArray:
    """Return a[0, 0, n, q] where every class gives its whole pool."""
    if engine.by_exemplar:
        largest = np.diff(part.pool_start).max(keepdims=True)
        return shared_a(
            engine, part, largest, _cross(engine, part), slice(0, 1)
        )  # any draw of so many is the pool
    outside = np.flatnonzero(engine.episodes.fold != part.number)
    pools = np.split(outside, part.pool_start[1:-1])
    means = np.stack([engine.episodes.vectors[pool].mean(axis=0) for pool in pools])
    return _a_of(means[None], *engine.queries(part), engine.rule == "cosine")[None]


def measure(engine: Engine, part: Split, a: FloatArray, into: Draws) -> None:
    """Turn a[draw, shot, n, q] into scores, in place, and take their metrics."""
    draws, shots, classes, queries = a.shape
    decided = np.empty((draws * shots, 1, queries), np.uint16)
    engine.to_scores(a.reshape(draws * shots, classes, 1, queries), 0, 1, decided)
    positives, start = (
        np.nonzero(part.relevant)[1],
        np.concatenate([[0], np.cumsum(part.positives)]),
    )
    shared.shared_metrics(
        a,
        decided.reshape(draws, shots, queries),
        part.relevant,
        part.label,
        positives,
        start,
        into.ap,
        into.auroc,
        into.hits,
        into.decisions,
        into.tied,
    )


def _share(
    engine: Engine, part: Split, shots: IntArray, cross: FloatArray | None, span: slice, into: Draws
) -> None:
    """Score a few shared draws and take their metrics."""
    measure(engine, part, shared_a(engine, part, shots, cross, span), into)


def _cross(engine: Engine, part: Split) -> FloatArray | None:
    """Return the products (rows, queries) of a fold, None for the direct way."""
    return None if engine.gram is None else np.ascontiguousarray(cross_products(engine, part).T)


def shared_a(
    engine: Engine, part: Split, shots: IntArray, cross: FloatArray | None, span: slice
) -> FloatArray:
    """Return a[draw, shot, n, q] of some draws; `cross` is (rows, queries), None for the direct way."""
    episodes = engine.episodes
    a = np.empty((span.stop - span.start, len(shots), len(episodes.classes), len(part.rows)))
    base = streams.purpose_key(engine.protocol.seed, "shared")
    who = (episodes.class_key, episodes.fold, part.number)
    how, cosine = (episodes.class_start, shots, engine.distinct), engine.rule == "cosine"
    if engine.by_exemplar:
        _fill_by_exemplars(engine, part, cross, (base, span.start, *who), how, a)
        return a
    if engine.gram is not None:
        shared.shared_by_gram(base, span.start, *who, cross, *engine.matrices, *how, cosine, a)
        return a
    means, queries = np.empty((*a.shape[1:3], episodes.vectors.shape[1])), engine.queries(part)
    for d in range(len(a)):
        shared.shared_centroids(base, span.start + d, *who, episodes.vectors, *how, means)
        a[d] = _a_of(means, *queries, cosine)
    return a


def _fill_by_exemplars(
    engine: Engine,
    part: Split,
    cross: FloatArray | None,
    who: tuple[Any, ...],
    how: tuple[Any, ...],
    a: FloatArray,
) -> None:
    """Fill a by one exemplar of each class; without products, a few queries at a time."""
    squares, vectors = engine.episodes.squares, engine.episodes.vectors
    for at in blocks(len(part.rows), ROWS_AT_ONCE if cross is None else len(part.rows)):
        products = multiply_out(vectors, vectors[part.rows[at]]) if cross is None else cross
        if engine.rule == "nearest":
            nearest_and_medoid.nearest_shared(*who, products, squares, *how, at.start, a)
        else:
            nearest_and_medoid.medoid_shared(
                *who, products, squares, *engine.matrices, vectors, *how, at.start, a
            )


def _a_of(means: FloatArray, queries: FloatArray, place: IntArray, cosine: bool) -> FloatArray:
    """Return a_n of class means (shots, classes, dimensions) and every query, (shots, classes, queries).

    `queries` are the distinct vectors, `place` which of them each query has; for the cosine these are of length 1.
    """
    shots, classes, dimensions = means.shape
    distinct, of_mean = distinct_rows(means.reshape(-1, dimensions))
    inner = expand(distinct @ queries.T, of_mean, place).reshape(shots, classes, -1)
    squares = np.einsum("snd,snd->sn", means, means)[:, :, None]
    if cosine:
        return np.clip(inner / np.sqrt(np.where(squares > 0, squares, 1.0)), -1.0, 1.0)
    return np.asarray(2.0 * inner - squares)
