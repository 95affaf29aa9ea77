"""The spread `shared`: one support set for all queries, as in use; one value for every draw.

The row `all` is here too: every class gives its whole pool, which is one draw in either spread.
"""

from collections.abc import Callable
from functools import partial

import numpy as np

from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import (
    BLOCK_ROWS,
    Engine,
    blocks,
    cross_products,
    draw_rows,
    expand,
    multiply_without_blas,
)
from callshot.fewshot.episodes import Episodes, Split, distinct_rows
from callshot.fewshot.kernels import streams, supports
from callshot.fewshot.kernels.ranks import FoldMetrics, measure_fold
from callshot.fewshot.kernels.scores import to_scores
from callshot.fewshot.protocol import Protocol
from callshot.records import FloatArray, IntArray

TASK_BYTES = 2**26  # a_n that one task holds

Evidence = Callable[[slice], FloatArray]  # a_n (draw, shot, n, q) of some draws


def empty_metrics(draws: int, shots: int, classes: int) -> FoldMetrics:
    """Return arrays for the metrics of some draws of one fold."""
    size = (draws, shots, classes)
    return FoldMetrics(
        ap=np.empty(size),
        auroc=np.empty(size),
        hits=np.empty(size),
        decisions=np.zeros((shots, classes, classes), np.int64),
        tied=np.zeros((shots, classes), np.int64),
    )


def sweep_shared(
    engine: Engine,
    part: Split,
    shots: IntArray,
    sums: MetricSums,
) -> None:
    """Score the queries of one fold against the same draws, and add the values of the draws."""
    evidence = partial(
        shared_evidence, engine, part, shots, fold_products(engine, part)
    )
    sweep_draws(engine, part, len(shots), sums, evidence)


def sweep_draws(
    engine: Engine,
    part: Split,
    shots: int,
    sums: MetricSums,
    evidence: Evidence,
) -> None:
    """Add the metrics of every shared draw at the first rows of the sums, one for each shot."""
    draws = engine.protocol.shared_draws
    classes = len(engine.episodes.classes)
    room = min(TASK_BYTES, engine.memory // 4) // (8 * shots * classes * len(part.rows))
    spans = blocks(draws, min(room, -(-draws // (2 * engine.workers))))

    def measure_span(span: slice) -> FoldMetrics:
        return measure(engine, part, evidence(span))

    tasks = [partial(measure_span, span) for span in spans]
    metrics = engine.run(tasks, shots / engine.episodes.folds)
    for task in metrics:
        sums.decisions[:shots] += task.decisions
        sums.tied[:shots] += task.tied
    ap = np.concatenate([task.ap for task in metrics])
    auroc = np.concatenate([task.auroc for task in metrics])
    hits = np.concatenate([task.hits for task in metrics])
    for shot in range(shots):
        sums.add(shot, part, ap[:, shot].T, auroc[:, shot].T, hits[:, shot].T)


def sweep_pool(
    engine: Engine,
    part: Split,
    row: int,
    samples: int,
    draws: int,
    sums: MetricSums,
) -> None:
    """Add the row `all`: one support set, so one value in every sample of either spread."""
    metrics = measure(engine, part, pool_evidence(engine, part))
    sums.decisions[row] += metrics.decisions[0] * draws
    sums.tied[row] += metrics.tied[0] * draws
    size = (len(engine.episodes.classes), samples)
    ap, auroc, hits = (np.broadcast_to(column[0].T, size) for column in metrics[:3])
    sums.add(row, part, ap, auroc, hits)


def pool_evidence(engine: Engine, part: Split) -> FloatArray:
    """Return a[0, 0, n, q] where every class gives its whole pool."""
    if engine.rule in ("nearest", "medoid"):
        shots = np.array([part.largest_pool])  # any draw of so many is the pool
        products = fold_products(engine, part)
        return shared_evidence(engine, part, shots, products, slice(0, 1))
    outside = np.flatnonzero(engine.episodes.fold != part.number)
    pools = np.split(outside, part.pool_start[1:-1])
    means = np.stack([engine.episodes.vectors[pool].mean(axis=0) for pool in pools])
    return mean_evidence(engine, part, means[None])[None]


def measure(engine: Engine, part: Split, evidence: FloatArray) -> FoldMetrics:
    """Turn a[draw, shot, n, q] into scores, in place, and return their metrics."""
    draws, shots, classes, queries = evidence.shape
    decided = np.empty((draws * shots, 1, queries), np.uint16)
    table = evidence.reshape(draws * shots, classes, 1, queries)
    to_scores(table, 0, 1, engine.softmax, decided)
    metrics = empty_metrics(draws, shots, classes)
    measure_fold(evidence, decided.reshape(draws, shots, queries), part.truth, metrics)
    return metrics


def fold_products(engine: Engine, part: Split) -> FloatArray | None:
    """Return the products (rows, queries) of a fold; None where the vectors are read directly."""
    return (
        None if engine.direct else np.ascontiguousarray(cross_products(engine, part).T)
    )


def shared_evidence(
    engine: Engine,
    part: Split,
    shots: IntArray,
    products: FloatArray | None,
    span: slice,
) -> FloatArray:
    """Return a[draw, shot, n, q] of some draws; `products` as `fold_products` returns them."""
    episodes = engine.episodes
    queries = len(part.rows)
    out = np.empty((span.stop - span.start, len(shots), len(episodes.classes), queries))
    if products is None and engine.rule in ("mean", "cosine"):
        for d, draw in enumerate(range(span.start, span.stop)):
            means = shared_means(episodes, part, shots, draw, engine.protocol)
            out[d] = mean_evidence(engine, part, means)
        return out
    members = supports.Members(episodes.members, episodes.class_start, part.outside)
    stream = streams.purpose_key(engine.protocol.seed, "shared")
    for block in blocks(queries, BLOCK_ROWS if products is None else queries):
        table = products
        if table is None:
            vectors = episodes.vectors
            table = multiply_without_blas(vectors, vectors[part.rows[block]])
        supports.score_supports(
            engine.sampling(shots),
            engine.rows,
            members,
            np.array([stream]),
            table[None],
            span.start,
            out[None, ..., block],
        )
    return out


def shared_means(
    episodes: Episodes,
    part: Split,
    shots: IntArray,
    draw: int,
    protocol: Protocol,
) -> FloatArray:
    """Return the class means of one draw outside a fold, (shots, classes, dimensions)."""
    vectors = episodes.vectors
    means = np.empty((len(shots), len(episodes.classes), vectors.shape[1]))
    for n, pool_size in enumerate(part.pool_sizes):
        rows = shared_support(
            episodes,
            part.number,
            n,
            int(shots[-1]),
            draw,
            protocol,
        )
        size = np.minimum(shots, len(rows))
        sums = np.cumsum(vectors[rows], axis=0)
        means[:, n] = sums[size - 1] / size[:, None]
        if protocol.distinct and len(rows) == pool_size:
            # The whole pool is one set, whatever order it was drawn in.
            whole = np.cumsum(vectors[np.sort(rows)], axis=0)[-1]
            means[shots >= pool_size, n] = whole / pool_size
    return means


def mean_evidence(engine: Engine, part: Split, means: FloatArray) -> FloatArray:
    """Return a_n of class means (shots, classes, dimensions), (shots, classes, queries)."""
    shots, classes, dimensions = means.shape
    queries, query_place = engine.queries(part)
    distinct, mean_place = distinct_rows(means.reshape(-1, dimensions))
    products = expand(distinct @ queries.T, mean_place, query_place)
    products = products.reshape(shots, classes, -1)
    squares = np.einsum("snd,snd->sn", means, means)[:, :, None]
    if engine.rule == "cosine":
        lengths = np.sqrt(np.where(squares > 0, squares, 1.0))
        return np.clip(products / lengths, -1.0, 1.0)
    return np.asarray(2.0 * products - squares)


def shared_support(
    episodes: Episodes,
    fold: int,
    n: int,
    k: int,
    draw: int,
    protocol: Protocol,
) -> IntArray:
    """Return the rows of class n's support outside a fold in one shared draw, in its order."""
    rows = np.flatnonzero(episodes.label == n)
    stream = streams.make_stream(protocol.seed, "shared", draw, episodes.class_key[n])
    return draw_rows(stream, rows, episodes.fold[rows] != fold, k, protocol)
