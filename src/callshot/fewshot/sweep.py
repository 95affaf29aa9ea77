"""The spread `per-query`: every query meets draws of its own, and a bootstrap picks one for each.

Shots are processed in blocks that fit the memory. A block repeats the draws of the one before,
which streams without state make safe.


The spread `shared`: one support set for all queries, as in use; one value for every draw.

The row `all` is here too: every class gives its whole pool, which is one draw in either spread.


The spread `total`: what one labelled set would score on other recordings of the same kind.

In each sample every recording has a random weight (the Bayesian bootstrap). It counts on both
sides: exemplars of heavy recordings come early in the order from which a support takes the first k,
and weigh more in the class mean; queries weigh in AP, AUROC and accuracy. No exemplar is drawn
twice, whatever the sampler. The weights depend on the seed and the recording alone, so all
encoders, classifiers and k are compared on the same samples.


Episodes and a protocol → the values of one spread at every k.

One fold is processed at a time, so that no array is larger than a fold needs.

Samples of `total` become predictions of what one labelled set would score elsewhere. A new corpus
and a new labelled set vary as the samples do. Our own estimate of the mean has an error too: that
of `total` without the part that comes from the labelled set, which `shared` measures. Both
variances add up, so the deviations of `total` are stretched.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.engine import (
    BLOCK_ROWS,
    Engine,
    blocks,
    cross_products,
    draw_rows,
    expand,
    multiply_without_blas,
)
from callshot.fewshot.episodes import Episodes, Mask, Split, distinct_rows, make_splits
from callshot.fewshot.gpu.device import Gpu, run_with_fallback
from callshot.fewshot.kernels import ranks, streams, supports
from callshot.fewshot.kernels import ranks as bootstrap
from callshot.fewshot.kernels.ranks import (
    FoldMetrics,
    measure_fold,
    measure_weighted_fold,
)
from callshot.fewshot.kernels.scores import count_decisions, to_ranking, to_scores
from callshot.fewshot.kernels.supports import Order, score_draws
from callshot.fewshot.metrics import MetricSums, WeightedMetricSums, harmonic_numbers
from callshot.fewshot.protocol import Protocol
from callshot.records import FloatArray, IntArray

Fill = Callable[[slice], None]  # fills a_n of some queries
Filler = Callable[[Engine, Split, IntArray, FloatArray], Fill]
Picks = NDArray[np.uint16]
Hits = NDArray[np.uint8]

MANY_ANCHORS = 512  # above, sorting every sample is faster than counting
SCORING_SHARE = 0.3  # of the work, for the progress bar
SMALL_CODES = 2**15


@dataclass(frozen=True)
class Resampler:
    """The bootstrap of one fold; `picks` is the draw of each query in each sample."""

    split: Split
    picks: Picks
    harmonic: FloatArray

    def resample(
        self,
        n: int,
        scores: FloatArray,
        hits: Hits,
    ) -> tuple[FloatArray, int]:
        """Return AP, AUROC and hits of one class in every sample, (3, samples), and its ties.

        `scores` and `hits` are (queries, draws).
        """
        queries, draws = scores.shape
        values = np.empty((3, self.picks.shape[1]))
        ap, auroc, class_hits = values
        flat = scores.reshape(-1)
        relevant = self.split.relevant[n]
        positives = int(self.split.positives[n])
        many = min(positives, queries - positives) > MANY_ANCHORS
        by_positives = many or 2 * positives <= queries
        codes, ties = _encode(flat, relevant, draws, positive=by_positives)
        if many:
            bootstrap.sample_sorted(flat, draws, relevant, self.picks, ap, auroc)
        else:
            bootstrap.sample_class(codes, draws, self.picks, self.harmonic, ap, auroc)
        members = np.flatnonzero(self.split.label == n)
        bootstrap.sample_hits(hits, self.picks, members, class_hits)
        return values, ties


def _encode(
    flat: FloatArray,
    relevant: Mask,
    draws: int,
    *,
    positive: bool,
) -> tuple[ranks.Codes, int]:
    """Return the codes of scores, and how many of the anchors' scores are tied.

    The anchors are the positives, or the negatives where nothing is tied: the sums over negatives
    hold for rankings without ties.
    """
    order = ranks.sort_scores(flat)
    while True:
        is_anchor = relevant if positive else ~relevant
        largest = 2 * int(is_anchor.sum()) * draws + 1
        fits = max(largest, relevant.size) < SMALL_CODES
        code = np.empty(flat.size, np.uint16 if fits else np.uint32)
        tied, tied_anchors = ranks.encode(order, flat, is_anchor, draws, code)
        if positive or not tied:
            return ranks.Codes(
                code, np.flatnonzero(is_anchor), positive, tied > 0
            ), tied_anchors
        positive = True


def sweep_per_query(
    engine: Engine,
    split: Split,
    shots: IntArray,
    sums: MetricSums,
    filler: Filler | None = None,
) -> None:
    """Score the queries of one fold against their own draws, and add the bootstrap's values.

    `filler` returns the function that fills a_n (shots, classes, queries, draws) of some queries;
    by default with the engine's rule.
    """
    classes = len(engine.episodes.classes)
    queries = len(split.rows)
    resampler = Resampler(split, pick_draws(engine, split), harmonic_numbers(queries))
    bytes_per_shot = 8 * classes * queries * engine.protocol.draws
    shots_at_a_time = max(engine.memory // 2, 2**28) // bytes_per_shot
    for block in blocks(len(shots), shots_at_a_time):
        scores, hits = score_queries(
            engine, split, shots[block], sums.decisions[block], filler
        )
        values, ties = _resample_block(engine, resampler, scores, hits)
        sums.tied[block] += ties
        for s, (ap, auroc, class_hits) in enumerate(values):
            sums.add(block.start + s, split, ap, auroc, class_hits)


def _resample_block(
    engine: Engine, resampler: Resampler, scores: FloatArray, hits: Hits
) -> tuple[FloatArray, IntArray]:
    """Return AP, AUROC and hits (shots, 3, classes, samples), and ties (shots, classes)."""
    size = scores.shape[:2]
    tasks = []
    for s, n in np.ndindex(size):
        tasks.append(partial(resampler.resample, n, scores[s, n], hits[s]))
    weight = (1 - SCORING_SHARE) * len(scores) / engine.episodes.folds
    values, ties = zip(*engine.run(tasks, weight), strict=True)
    table = np.reshape(values, (*size, 3, -1))
    return table.swapaxes(1, 2), np.reshape(ties, size)


def pick_draws(engine: Engine, split: Split) -> Picks:
    """Return the draw that each bootstrap sample picks for each query, (queries, samples)."""
    protocol = engine.protocol
    picks = np.empty((len(split.rows), protocol.bootstraps), np.uint16)
    base = streams.purpose_key(protocol.seed, "bootstrap")
    streams.bootstrap_picks(
        base, engine.episodes.segment_key[split.rows], protocol.draws, picks
    )
    return picks


def score_queries(
    engine: Engine,
    split: Split,
    shots: IntArray,
    decisions: FloatArray,
    filler: Filler | None = None,
) -> tuple[FloatArray, Hits]:
    """Return scores (shots, classes, queries, draws) and hits (shots, queries, draws).

    The decisions (shots, true, predicted) are added to.
    """
    classes = len(engine.episodes.classes)
    queries = len(split.rows)
    draws = engine.protocol.draws
    scores = np.empty((len(shots), classes, queries, draws))
    decided = np.empty((len(shots), queries, draws), np.uint16)
    hits = np.empty(decided.shape, np.uint8)
    fill = (filler or fill_by_rule)(engine, split, shots, scores)

    def score(span: slice) -> IntArray:
        first = span.start
        last = span.stop
        counts = np.zeros((len(shots), classes, classes), np.int64)
        fill(span)
        to_scores(scores, first, last, engine.softmax, decided)
        count_decisions(first, last, decided, split.truth, hits, counts)
        return counts

    queries_per_task = -(-queries // (8 * engine.workers))
    tasks = [partial(score, span) for span in blocks(queries, queries_per_task)]
    counts = engine.run(tasks, SCORING_SHARE * len(shots) / engine.episodes.folds)
    decisions += np.sum(counts, axis=0)
    return scores, hits


def fill_by_rule(
    engine: Engine,
    split: Split,
    shots: IntArray,
    out: FloatArray,
) -> Fill:
    """Return the function that fills a_n of some queries with the engine's rule."""
    rows = engine.rows
    sampling = engine.sampling(shots)
    members = supports.Members(split.pool, split.pool_start, split.outside)
    seed = engine.protocol.seed
    keys = engine.episodes.segment_key[split.rows]
    query_streams = np.array(
        [streams.make_stream(seed, "support", key) for key in keys]
    )
    by_query = out.transpose(2, 3, 0, 1)
    queries, place = engine.queries(split)
    cross = None if engine.direct else cross_products(engine, split)

    def fill(span: slice) -> None:
        if cross is None:
            products = multiply_without_blas(queries[place[span]], rows.vectors)
        else:
            products = cross[span]
        supports.score_supports(
            sampling,
            rows,
            members,
            query_streams[span],
            products,
            by_query[span],
        )

    return fill


def per_query_support(
    episodes: Episodes,
    query: int,
    n: int,
    k: int,
    draw: int,
    protocol: Protocol,
) -> IntArray:
    """Return the rows of class n's support in one draw of a query, in the order of the draw."""
    outside = episodes.is_support(int(episodes.fold[query]))
    pool = np.flatnonzero((episodes.label == n) & outside)
    words = (episodes.segment_key[query], draw, episodes.class_key[n])
    stream = streams.make_stream(protocol.seed, "support", *words)
    return draw_rows(stream, pool, np.ones(len(pool), bool), k, protocol)


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


# k up to which products inside a support are summed, in k² / 2 steps
LONGEST_DRAW = 200
# Weights are multiples of it, so that their sums are exact in any order.
UNIT = 2.0**-20

Ranks = NDArray[np.uint32]


@dataclass(frozen=True)
class Reweighting:
    """The weights and the orders of exemplars of every sample, (samples, rows).

    `units` are the weights in multiples of UNIT; `rank` holds the exemplars of each class in order,
    by number inside the class. `exemplar_units` are the weights of exemplars where these differ.
    """

    units: IntArray
    rank: Ranks
    exemplar_units: IntArray | None = None

    @property
    def support_units(self) -> IntArray:
        """The weights of rows as exemplars, in multiples of UNIT."""
        return self.units if self.exemplar_units is None else self.exemplar_units

    def weights(self, rows: IntArray) -> FloatArray:
        """Return the weights of some rows, (rows, samples)."""
        return np.asarray(self.units[:, rows].T * UNIT, np.float64)

    def order(self, span: slice) -> Order:
        """Return the orders and weights of some samples, for the kernels."""
        return Order(self.rank[span], self.support_units[span] * UNIT)


def reweight(episodes: Episodes, protocol: Protocol) -> Reweighting:
    """Draw the weights of recordings and the orders of exemplars."""
    units = draw_units(episodes, protocol, protocol.total_samples)
    return Reweighting(units, draw_orders(episodes, protocol, units))


def draw_orders(episodes: Episodes, protocol: Protocol, units: IntArray) -> Ranks:
    """Put the exemplars of each class in a random order in every sample: the heavy ones early."""
    size = units.shape
    arrival = np.empty(size)
    base = streams.purpose_key(protocol.seed, "total")
    streams.fill_exponentials(base, episodes.segment_key, arrival)
    arrival /= units
    rank = np.empty(size, np.uint32)
    for begin, end in zip(
        episodes.class_start[:-1], episodes.class_start[1:], strict=True
    ):
        rank[:, begin:end] = np.argsort(arrival[:, begin:end], axis=1, kind="stable")
    return rank


def draw_units(episodes: Episodes, protocol: Protocol, samples: int) -> IntArray:
    """Draw the weight of each row's recording, in multiples of UNIT, (samples, rows)."""
    weight = np.empty((samples, len(episodes.rows)))
    recording_key = np.array([streams.key(name) for name in episodes.recording])
    base = streams.purpose_key(protocol.seed, "recording")
    streams.fill_exponentials(base, recording_key, weight)
    return np.maximum(np.rint(weight / UNIT), 1.0).astype(np.int64)


def sweep_total(
    engine: Engine,
    split: Split,
    shots: IntArray,
    reweighting: Reweighting,
    sums: WeightedMetricSums,
    first_row: int = 0,
) -> None:
    """Score the queries of one fold with the supports and weights of every sample.

    The values are added to the sums from `first_row` on, one row for each shot.
    """
    products = fold_products(engine, split)

    def evidence(span: slice) -> FloatArray:
        order = reweighting.order(span)
        return weighted_evidence(engine, split, shots, products, order)

    sweep_samples(engine, split, len(shots), reweighting, sums, evidence, first_row)


def sweep_samples(
    engine: Engine,
    split: Split,
    shots: int,
    reweighting: Reweighting,
    sums: WeightedMetricSums,
    evidence: Evidence,
    first_row: int = 0,
) -> None:
    """Add the metrics of every sample to the sums from `first_row` on, one row for each shot."""
    samples = len(reweighting.units)
    spans = blocks(samples, draws_per_task(engine, split, shots))

    def measure(span: slice) -> FoldMetrics:
        weight = np.ascontiguousarray(reweighting.units[span, split.rows])
        return measure_weighted(engine, split, evidence(span), weight)

    tasks = [partial(measure, span) for span in spans]
    steps = shots if first_row == 0 else 0  # the row `all` is not counted as progress
    metrics = engine.run(tasks, steps / engine.episodes.folds)
    ap, auroc, hits = (
        np.concatenate(column) for column in list(zip(*metrics, strict=True))[:3]
    )
    for shot in range(shots):
        sums.add_weighted(
            first_row + shot,
            split,
            ap[:, shot].T,
            auroc[:, shot].T,
            hits[:, shot].T * UNIT,
        )


def weighted_evidence(
    engine: Engine,
    split: Split,
    shots: IntArray,
    products: FloatArray | None,
    order: Order,
) -> FloatArray:
    """Return a[sample, shot, n, q] of some samples; `products` as `fold_products` returns them."""
    episodes = engine.episodes
    size = (len(order.rank), len(shots), len(episodes.classes), len(split.rows))
    out = np.empty(size)
    is_mean = engine.rule in ("mean", "cosine")
    if is_mean and (products is None or shots[-1] > LONGEST_DRAW):
        for b in range(len(out)):
            means = weighted_means(engine, split, shots, order.rank[b], order.weight[b])
            out[b] = mean_evidence(engine, split, means)
    else:
        fill_evidence(engine, split, shots, products, 0, order, out)
    return out


def weighted_means(
    engine: Engine,
    split: Split,
    shots: IntArray,
    rank: Ranks,
    weight: FloatArray,
) -> FloatArray:
    """Return the weighted class means of one sample, (shots, classes, dimensions)."""
    episodes = engine.episodes
    means = []
    for n in range(len(episodes.classes)):
        rows = ordered_pool(rank, episodes, split.number, n)
        whole = len(rows) <= shots[-1]
        rows = rows[: shots[-1]]
        means.append(class_means(episodes.vectors, rows, weight[rows], shots, whole))
    return np.stack(means, axis=1)


def total_support(
    rank: Ranks,
    episodes: Episodes,
    fold: int,
    n: int,
    k: int,
    sample: int,
    protocol: Protocol,
) -> IntArray:
    """Return the rows of class n's support outside a fold in one sample, in the order of ranks.

    `rank` is that of a `Reweighting`, which was drawn by the protocol.
    """
    return ordered_pool(rank[sample], episodes, fold, n)[:k]


def ordered_pool(rank: Ranks, episodes: Episodes, fold: int, n: int) -> IntArray:
    """Return the rows of class n outside a fold, in the order of one sample's ranks."""
    begin = episodes.class_start[n]
    end = episodes.class_start[n + 1]
    rows = begin + rank[begin:end].astype(np.int64)
    return np.asarray(rows[episodes.is_support(fold)[rows]])


def measure_weighted(
    engine: Engine, split: Split, evidence: FloatArray, weight: IntArray
) -> FoldMetrics:
    """Turn a[sample, shot, n, q] into scores, in place, and return their weighted metrics."""
    decided = rank_evidence(engine, evidence)
    metrics = empty_metrics(*evidence.shape[:3])
    measure_weighted_fold(evidence, decided, split.truth, weight, metrics)
    return metrics


Categories = Mapping[str, str] | None


def sweep(
    engine: Engine,
    spread: str,
    categories: Categories = None,
    shared: MetricSums | None = None,
) -> tuple[IntArray, MetricSums]:
    """Run one spread over every fold; return k of each row and the values.

    The row `all`, where the protocol has it, comes last, with the size of the largest pool as k.
    With the values of `shared`, those of `total` are predictions; else they are raw samples.
    """
    protocol = engine.protocol
    shots = np.array(protocol.shots, np.int64)
    largest = max(split.largest_pool for split in make_splits(engine.episodes))
    has_pool_row = protocol.whole_pool and largest not in protocol.shots
    rows = np.append(shots, largest) if has_pool_row else shots
    if spread == "total":
        reweighting = reweight(engine.episodes, protocol)
        sums = sweep_weighted(engine, rows, reweighting, categories)
        if shared is not None:
            widen_total(sums, shared, engine.episodes)
        return rows, sums
    return rows, _sweep_unweighted(engine, spread, rows, categories)


def sweep_with_fallback(
    engine: Engine,
    spread: str,
    notes: list[str],
    categories: Categories = None,
    shared: MetricSums | None = None,
) -> tuple[IntArray, MetricSums]:
    """Do what `sweep` does; if a GPU runs out of memory, on the CPU, with a note."""

    def work(gpu: Gpu | None) -> tuple[IntArray, MetricSums]:
        runner = engine if gpu is engine.gpu else replace(engine, gpu=gpu)
        return sweep(runner, spread, categories, shared)

    return run_with_fallback(engine.gpu, notes, work)


def sweep_weighted_with_fallback(
    engine: Engine, shots: IntArray, reweighting: Reweighting, notes: list[str]
) -> WeightedMetricSums:
    """Do what `sweep_weighted` does; if a GPU runs out of memory, on the CPU, with a note."""

    def work(gpu: Gpu | None) -> WeightedMetricSums:
        return sweep_weighted(replace(engine, gpu=gpu), shots, reweighting)

    return run_with_fallback(engine.gpu, notes, work)


def _sweep_unweighted(
    engine: Engine, spread: str, rows: IntArray, categories: Categories
) -> MetricSums:
    """Run the spread `per-query` or `shared`; its row `all` has one support set."""
    protocol = engine.protocol
    samples = protocol.samples(spread)
    draws = protocol.supports(spread)
    shots = rows[: len(protocol.shots)]
    sums, sweep_fold = _fold_sweep(engine, spread, len(rows), samples, categories)
    for split in make_splits(engine.episodes):
        fitted = engine.for_split(split)
        if shots.size:
            sweep_fold(fitted, split, shots, sums)
        if len(rows) > len(shots):
            sweep_pool(fitted, split, len(shots), samples, draws, sums)
        sums.close_fold(split)
    sums.finish(draws)
    return sums


def _fold_sweep(
    engine: Engine, spread: str, rows: int, samples: int, categories: Categories
) -> tuple[MetricSums, Callable[..., None]]:
    """Return empty sums, and what adds a fold to them: on the engine's GPU, or with threads."""
    if engine.gpu is None:
        sums = MetricSums(rows, samples, engine.episodes.classes, categories)
        return sums, sweep_per_query if spread == "per-query" else sweep_shared
    from callshot.fewshot.gpu import sweep as gpu_sweep

    on_gpu = gpu_sweep.new_sums(engine, rows, samples, categories)
    if spread == "per-query":
        return on_gpu, gpu_sweep.sweep_per_query
    return on_gpu, gpu_sweep.sweep_shared


def sweep_weighted(
    engine: Engine,
    rows: IntArray,
    reweighting: Reweighting,
    categories: Categories = None,
) -> WeightedMetricSums:
    """Run samples with weights at some k; the row `all` is scored apart: its supports are large."""
    protocol = engine.protocol
    samples = len(reweighting.units)
    sweep_fold: Callable[..., None] = sweep_total
    if engine.gpu is not None:
        from callshot.fewshot.gpu import sweep as gpu_sweep

        sweep_fold = gpu_sweep.sweep_total
    shots = len(protocol.shots)
    sums = WeightedMetricSums(len(rows), samples, engine.episodes.classes, categories)
    for split in make_splits(engine.episodes):
        fitted = engine.for_split(split)
        sums.add_weights(split, reweighting.weights(split.rows))
        if shots:
            sweep_fold(fitted, split, rows[:shots], reweighting, sums)
        if len(rows) > shots:
            sweep_total(fitted, split, rows[shots:], reweighting, sums, shots)
        sums.close_fold(split)
    sums.finish(samples)
    return sums


def widen_total(sums: MetricSums, shared: MetricSums, episodes: Episodes) -> None:
    """Widen raw samples of `total` to those of a prediction interval, in place.

    The chance of accuracy is that of the decisions in `shared`: `total` counts none.
    """
    sums.chance = shared.chance
    by_class = small_sample_inflation(count_recordings(episodes))
    on_average = float(by_class.mean())
    for key, samples in sums.values.items():
        samples[:] = widen_to_prediction(
            samples, shared.values[key], inflation=on_average, bounded=True
        )
    for metric, class_samples in sums.per_class.items():
        class_samples[:] = widen_to_prediction(
            class_samples,
            shared.per_class[metric],
            inflation=by_class[:, None],
            bounded=True,
        )


def count_recordings(episodes: Episodes) -> IntArray:
    """Return the number of recordings of each class.

    Where supports come from another corpus, that of the corpus with fewer: either side varies.
    """
    if not episodes.only_common:
        return _count_recordings(episodes, np.full(len(episodes.fold), True))
    is_query = episodes.fold >= 0
    supports = _count_recordings(episodes, ~is_query)
    queries = _count_recordings(episodes, is_query)
    return np.minimum(supports, queries)


def _count_recordings(episodes: Episodes, counted: Mask) -> IntArray:
    rows = np.flatnonzero(counted).tolist()
    pairs = {(int(episodes.label[row]), episodes.recording[row]) for row in rows}
    return np.bincount([n for n, _ in pairs])


def widen_to_prediction(
    total: FloatArray,
    shared: FloatArray,
    *,
    inflation: FloatArray | float = 1.0,
    bounded: bool = False,
) -> FloatArray:
    """Return samples of a prediction interval: mean of `shared`, widened deviations of `total`.

    Parameters
    ----------
    total, shared : array of shape (..., samples)
        Samples of one quantity in both spreads: a score, or a difference of two scores.
    inflation : float or array
        By how much the variance of `total` is too small: see `small_sample_inflation`.
    bounded : bool
        Whether the quantity lies between 0 and 1, so that predictions are clipped.

    Examples
    --------
    >>> total = np.array([0.5, 0.6, 0.7])
    >>> widen_to_prediction(total, np.array([0.6, 0.7])).round(3)
    array([0.523, 0.65 , 0.777])
    """
    centre = shared.mean(axis=-1, keepdims=True)
    deviation = total - total.mean(axis=-1, keepdims=True)
    raw_variance = np.mean(deviation**2, axis=-1, keepdims=True)
    variance = inflation * raw_variance
    of_labelled_set = np.var(shared, axis=-1, keepdims=True)
    of_estimate = np.maximum(variance - of_labelled_set, 0.0)
    ratio = np.ones_like(variance)
    np.divide(variance + of_estimate, raw_variance, out=ratio, where=raw_variance > 0)
    predicted = centre + np.sqrt(ratio) * deviation
    return np.asarray(np.clip(predicted, 0.0, 1.0) if bounded else predicted)


def small_sample_inflation(recordings: IntArray) -> FloatArray:
    """Return by how much resampling so many recordings underestimates a variance.

    The variance of a mean under exponential weights is (n − 1) / (n + 1) of its unbiased estimate.

    >>> small_sample_inflation(np.array([3, 11]))
    array([2. , 1.2])
    """
    return np.asarray((recordings + 1) / np.maximum(recordings - 1, 1))
