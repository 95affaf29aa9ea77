"""The spread `per-query`: every query meets draws of its own, and a bootstrap picks one for each.

Shots go in blocks that fit the memory; a block restarts its draws, which streams without state make safe.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.engine import Engine, blocks, cross_products, multiply_out
from callshot.fewshot.episodes import Split
from callshot.fewshot.kernels import bootstrap, nearest_and_medoid, ranks, streams, supports
from callshot.fewshot.kernels.scores import count_decisions
from callshot.fewshot.metrics import harmonic_numbers
from callshot.records import FloatArray, IntArray

Fill = Callable[[int, int], None]  # of the queries from one to another
Filler = Callable[[Engine, Split, IntArray, FloatArray], Fill]

MANY = 512  # anchors up to which counting beats sorting every sample
SCORING = 0.3  # share of the work that is scoring, for the progress bar


@dataclass(frozen=True)
class Samples:
    """What every class of a fold is resampled with: the draw picked for (query, sample), and harmonic numbers."""

    part: Split
    draws: int
    picks: NDArray[np.uint16]
    harmonic: FloatArray


def sweep_per_query(
    engine: Engine, part: Split, shots: IntArray, tally: MetricSums, filler: Filler | None = None
) -> None:
    """Score the queries of one fold against draws of their own, and add the bootstrap's values to the tally.

    `filler` returns what fills a_n (shots, classes, queries, draws) of some queries, first … last − 1: by the engine's
    rule, or by whatever learns from a support.
    """
    protocol, classes, queries = engine.protocol, len(engine.episodes.classes), len(part.rows)
    samples = Samples(part, protocol.draws, pick_draws(engine, part), harmonic_numbers(queries))
    per_shot = 8 * classes * queries * protocol.draws
    for at in blocks(len(shots), max(engine.memory // 2, 2**28) // per_shot):
        scores, hits = score_own(engine, part, shots[at], tally.decisions[at], filler)
        size = (len(shots[at]), classes, protocol.bootstraps)
        ap, auroc, hit = np.empty(size), np.empty(size), np.empty(size)
        places = [(s, n) for s in range(size[0]) for n in range(classes)]
        tied = tally.tied[at]
        tasks = [
            partial(_resample, samples, scores[p], hits[p[0]], p, ap, auroc, hit, tied)
            for p in places
        ]
        engine.run(tasks, (1 - SCORING) * size[0] / engine.episodes.folds)
        engine.run(
            [
                partial(tally.add, at.start + s, part, ap[s], auroc[s], hit[s])
                for s in range(size[0])
            ]
        )


def pick_draws(engine: Engine, part: Split) -> NDArray[np.uint16]:
    """Return the draw that each bootstrap sample picks for each query, (queries, samples)."""
    picks = np.empty((len(part.rows), engine.protocol.bootstraps), np.uint16)
    base = streams.purpose_key(engine.protocol.seed, "bootstrap")
    streams.bootstrap_picks(
        base, engine.episodes.segment_key[part.rows], engine.protocol.draws, picks
    )
    return picks


def score_own(
    engine: Engine,
    part: Split,
    shots: IntArray,
    decisions: FloatArray,
    filler: Filler | None = None,
) -> tuple[FloatArray, NDArray[np.uint8]]:
    """Return scores (shots, classes, queries, draws) and hits (shots, queries, draws); add to the decisions."""
    classes, queries, draws = len(engine.episodes.classes), len(part.rows), engine.protocol.draws
    scores = np.empty((len(shots), classes, queries, draws))
    decided = np.empty((len(shots), queries, draws), np.uint16)
    hits = np.empty(decided.shape, np.uint8)
    spans = [(b.start, b.stop) for b in blocks(queries, -(-queries // (8 * engine.workers)))]
    counts = np.zeros((len(spans), len(shots), classes, classes), np.int64)
    fill = (filler or _filler)(engine, part, shots, scores)

    def task(i: int, first: int, last: int) -> None:
        fill(first, last)
        engine.to_scores(scores, first, last, decided)
        count_decisions(first, last, decided, part.relevant, part.label, hits, counts[i])

    tasks = [partial(task, i, *span) for i, span in enumerate(spans)]
    engine.run(tasks, SCORING * len(shots) / engine.episodes.folds)
    decisions += counts.sum(axis=0)
    return scores, hits


def _filler(engine: Engine, part: Split, shots: IntArray, out: FloatArray) -> Fill:
    """Return what fills a_n of the queries first … last − 1, by the Gram matrix or directly."""
    episodes = engine.episodes
    base = streams.purpose_key(engine.protocol.seed, "support")
    keys = (base, episodes.segment_key[part.rows], episodes.class_key)
    pools = (episodes.class_start, part.pool, part.pool_start, shots, engine.distinct)
    if engine.by_exemplar:
        return _exemplar_filler(engine, part, keys, pools, out)
    how = (engine.rule == "cosine", out)
    if engine.gram is not None:
        products = (cross_products(engine, part), engine.gram.block, engine.gram.start)
        return lambda first, last: supports.queries_by_gram(
            first, last, *keys, *products, *pools, *how
        )
    queries, place = engine.queries(part)
    vectors = (queries[place], episodes.vectors, episodes.squares)
    return lambda first, last: supports.queries_directly(first, last, *keys, *vectors, *pools, *how)


def _exemplar_filler(engine: Engine, part: Split, keys: Any, pools: Any, out: FloatArray) -> Fill:
    """Return what does so by one exemplar of each class."""
    squares, vectors = engine.episodes.squares, engine.episodes.vectors
    cross = None if engine.gram is None else cross_products(engine, part)

    def fill(first: int, last: int) -> None:
        products = (
            multiply_out(vectors[part.rows[first:last]], vectors)
            if cross is None
            else cross[first:last]
        )
        if engine.rule == "nearest":
            nearest_and_medoid.nearest_own(first, last, *keys, products, squares, *pools, out)
        else:
            nearest_and_medoid.medoid_own(
                first, last, *keys, products, squares, *engine.matrices, vectors, *pools, out
            )

    return fill


def _resample(
    samples: Samples,
    scores: FloatArray,
    hits: NDArray[np.uint8],
    place: tuple[int, int],
    ap: FloatArray,
    auroc: FloatArray,
    hit: FloatArray,
    tied: IntArray,
) -> None:
    """Bootstrap one class of one fold at one shot; scores are (queries, draws)."""
    part, n = samples.part, place[1]
    relevant, flat = part.relevant[n], scores.reshape(-1)
    order = ranks.sort_scores(flat)
    positive = bool(2 * part.positives[n] <= len(part.rows))
    many = min(part.positives[n], len(part.rows) - part.positives[n]) > MANY
    side = relevant if positive or many else ~relevant
    codes, anchor, ties, tied_anchors = _encode(order, flat, side, samples.draws)
    if ties and not positive:  # the sums over negatives hold for rankings without ties
        positive = True
        codes, anchor, ties, tied_anchors = _encode(order, flat, relevant, samples.draws)
    tied[place] += tied_anchors
    to = (ap[place], auroc[place])
    if many:
        bootstrap.sample_sorted(flat, samples.draws, relevant, samples.picks, *to)
    else:
        how = (positive, ties > 0, samples.picks, samples.harmonic)
        bootstrap.sample_class(codes, samples.draws, anchor, *how, *to)
    bootstrap.sample_hits(hits, samples.picks, np.flatnonzero(part.label == n), hit[place])


def _encode(
    order: Any, flat: FloatArray, anchor: NDArray[np.bool_], draws: int
) -> tuple[Any, IntArray, int, int]:
    """Return codes of 15 bits if they hold every distinct anchor and every count, else of 31; anchors; and ties."""
    fits = 2 * int(anchor.sum()) * draws + 1 < 2**15 and anchor.size < 2**15
    codes = np.empty(flat.size, np.uint16 if fits else np.uint32)
    ties, tied_anchors = ranks.encode(order, flat, anchor, draws, codes)
    return codes, np.flatnonzero(anchor), ties, tied_anchors
