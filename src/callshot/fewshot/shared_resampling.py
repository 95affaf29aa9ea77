"""The spread `shared`: one support set for all queries, as in use; one value for every draw.

The row `all` is here too: every class gives its whole pool, which is one draw in either spread.
"""

from collections.abc import Callable
from functools import partial

import numpy as np
from numpy.typing import NDArray

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
from callshot.fewshot.kernels.draws import Order, score_draws
from callshot.fewshot.kernels.ranks import FoldMetrics, measure_fold
from callshot.fewshot.kernels.scores import to_ranking
from callshot.fewshot.protocol import Protocol
from callshot.records import FloatArray, IntArray

TASK_BYTES = 2**22  # a_n that one task holds

PERMUTATIONS = Order(np.empty((0, 0), np.uint32), np.empty((0, 0)))

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
    split: Split,
    shots: IntArray,
    sums: MetricSums,
) -> None:
    """Score the queries of one fold against the same draws, and add the values of the draws."""
    evidence = partial(
        shared_evidence, engine, split, shots, fold_products(engine, split)
    )
    sweep_draws(engine, split, len(shots), sums, evidence)


def sweep_draws(
    engine: Engine,
    split: Split,
    shots: int,
    sums: MetricSums,
    evidence: Evidence,
) -> None:
    """Add the metrics of every shared draw at the first rows of the sums, one for each shot."""
    draws = engine.protocol.shared_draws
    spans = blocks(draws, draws_per_task(engine, split, shots))

    def measure_span(span: slice) -> FoldMetrics:
        return measure(engine, split, evidence(span))

    tasks = [partial(measure_span, span) for span in spans]
    metrics = engine.run(tasks, shots / engine.episodes.folds)
    for task in metrics:
        sums.decisions[:shots] += task.decisions
        sums.tied[:shots] += task.tied
    ap = np.concatenate([task.ap for task in metrics])
    auroc = np.concatenate([task.auroc for task in metrics])
    hits = np.concatenate([task.hits for task in metrics])
    for shot in range(shots):
        sums.add(shot, split, ap[:, shot].T, auroc[:, shot].T, hits[:, shot].T)


def draws_per_task(engine: Engine, split: Split, shots: int) -> int:
    """Return how many draws of one fold are scored at a time."""
    return TASK_BYTES // (8 * shots * len(engine.episodes.classes) * len(split.rows))


def sweep_pool(
    engine: Engine,
    split: Split,
    row: int,
    samples: int,
    draws: int,
    sums: MetricSums,
) -> None:
    """Add the row `all`: one support set, so one value in every sample of either spread."""
    metrics = measure(engine, split, pool_evidence(engine, split))
    sums.decisions[row] += metrics.decisions[0] * draws
    sums.tied[row] += metrics.tied[0] * draws
    size = (len(engine.episodes.classes), samples)
    ap, auroc, hits = (np.broadcast_to(column[0].T, size) for column in metrics[:3])
    sums.add(row, split, ap, auroc, hits)


def pool_evidence(engine: Engine, split: Split) -> FloatArray:
    """Return a[0, 0, n, q] where every class gives its whole pool."""
    if engine.rule in ("nearest", "medoid"):
        shots = np.array([split.largest_pool])  # any draw of so many is the pool
        products = fold_products(engine, split)
        return shared_evidence(engine, split, shots, products, slice(0, 1))
    outside = np.flatnonzero(split.outside)
    pools = np.split(outside, split.pool_start[1:-1])
    means = np.stack([engine.episodes.vectors[pool].mean(axis=0) for pool in pools])
    return mean_evidence(engine, split, means[None])[None]


def measure(engine: Engine, split: Split, evidence: FloatArray) -> FoldMetrics:
    """Turn a[draw, shot, n, q] into scores, in place, and return their metrics."""
    decided = rank_evidence(engine, evidence)
    metrics = empty_metrics(*evidence.shape[:3])
    measure_fold(evidence, decided, split.truth, metrics)
    return metrics


def rank_evidence(engine: Engine, evidence: FloatArray) -> NDArray[np.uint16]:
    """Turn a[draw, shot, n, q] into scores of the same order, in place; return the decisions."""
    draws, shots, classes, queries = evidence.shape
    decided = np.empty((draws * shots, 1, queries), np.uint16)
    table = evidence.reshape(draws * shots, classes, 1, queries)
    to_ranking(table, engine.softmax, decided)
    return decided.reshape(draws, shots, queries)


def fold_products(engine: Engine, split: Split) -> FloatArray | None:
    """Return the products (rows, queries) of a fold; None where the vectors are read directly."""
    return (
        None if engine.direct else np.ascontiguousarray(cross_products(engine, split).T)
    )


def shared_evidence(
    engine: Engine,
    split: Split,
    shots: IntArray,
    products: FloatArray | None,
    span: slice,
) -> FloatArray:
    """Return a[draw, shot, n, q] of some draws; `products` as `fold_products` returns them."""
    episodes = engine.episodes
    draws = range(span.start, span.stop)
    out = np.empty((len(draws), len(shots), len(episodes.classes), len(split.rows)))
    if products is None and engine.rule in ("mean", "cosine"):
        for d, draw in enumerate(draws):
            means = shared_means(episodes, split, shots, draw, engine.protocol)
            out[d] = mean_evidence(engine, split, means)
    else:
        fill_evidence(engine, split, shots, products, span.start, PERMUTATIONS, out)
    return out


def fill_evidence(
    engine: Engine,
    split: Split,
    shots: IntArray,
    products: FloatArray | None,
    first: int,
    order: Order,
    out: FloatArray,
) -> None:
    """Fill out[draw, shot, n, q] with a_n, from draw `first` on; without products in blocks."""
    episodes = engine.episodes
    queries = len(split.rows)
    members = supports.Members(episodes.members, episodes.class_start, split.outside)
    stream = streams.purpose_key(engine.protocol.seed, "shared")
    sampling = engine.sampling(shots)
    if len(order.rank):
        # A given order has no exemplar twice.
        sampling = sampling._replace(distinct=True)
    for block in blocks(queries, BLOCK_ROWS if products is None else queries):
        table = products
        if table is None:
            vectors = episodes.vectors
            table = multiply_without_blas(vectors, vectors[split.rows[block]])
        score_draws(
            sampling,
            engine.rows,
            members,
            stream,
            first,
            order,
            table,
            out[..., block],
        )


def shared_means(
    episodes: Episodes,
    split: Split,
    shots: IntArray,
    draw: int,
    protocol: Protocol,
) -> FloatArray:
    """Return the class means of one draw outside a fold, (shots, classes, dimensions)."""
    means = []
    longest = int(shots[-1])
    for n, pool_size in enumerate(split.pool_sizes):
        rows = shared_support(episodes, split.number, n, longest, draw, protocol)
        whole = protocol.distinct and len(rows) == pool_size
        share = np.ones(len(rows))
        means.append(class_means(episodes.vectors, rows, share, shots, whole))
    return np.stack(means, axis=1)


def class_means(
    vectors: FloatArray,
    rows: IntArray,
    share: FloatArray,
    shots: IntArray,
    whole: bool,
) -> FloatArray:
    """Return the weighted means of the first k rows at each of the shots, (shots, dimensions).

    `whole`: the rows are the whole pool, which is one set, whatever order it was drawn in.
    """
    size = np.minimum(shots, len(rows))
    sums = np.cumsum(vectors[rows] * share[:, None], axis=0)
    weights = np.cumsum(share)
    means = sums[size - 1] / weights[size - 1][:, None]
    if whole:
        order = np.argsort(rows)
        pool = vectors[rows[order]] * share[order][:, None]
        pool_sum = np.cumsum(pool, axis=0)[-1]
        means[shots >= len(rows)] = pool_sum / weights[-1]
    return np.asarray(means)


def mean_evidence(engine: Engine, split: Split, means: FloatArray) -> FloatArray:
    """Return a_n of class means (shots, classes, dimensions), (shots, classes, queries)."""
    shots, classes, dimensions = means.shape
    queries, query_place = engine.queries(split)
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
    return draw_rows(stream, rows, episodes.is_support(fold)[rows], k, protocol)
