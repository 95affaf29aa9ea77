"""The spread `per-query`: every query meets draws of its own, and a bootstrap picks one for each.

Shots are processed in blocks that fit the memory. A block repeats the draws of the one before,
which streams without state make safe.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import (
    Engine,
    blocks,
    cross_products,
    draw_rows,
    multiply_without_blas,
)
from callshot.fewshot.episodes import Episodes, Mask, Split
from callshot.fewshot.kernels import bootstrap, ranks, streams, supports
from callshot.fewshot.kernels.scores import count_decisions, to_scores
from callshot.fewshot.metrics import harmonic_numbers
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
