"""Episodes and a protocol → the values of both spreads at every k.

Work goes fold by fold, and within a fold in blocks of shots that fit the memory; a block restarts its draws, which
streams without state make safe. Threads share nothing but what they read: each task writes a place of its own, and
sums are taken in a fixed order, so the number of threads cannot be seen in the results.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass
from functools import partial

import numpy as np

from callshot.fewshot.episodes import Episodes, Split, split
from callshot.fewshot.gram import Gram, build_gram, cross_products, gram_bytes
from callshot.fewshot.kernels import bootstrap, perquery, ranks, shared, streams
from callshot.fewshot.metrics import harmonic_numbers
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.tally import Tally
from callshot.records import FloatArray, IntArray

Step = Callable[[float], None]
Task = Callable[[], None]


@dataclass(frozen=True)
class Engine:
    """What a sweep runs on: the episodes, their products (None: the direct way), threads, and memory in bytes."""

    episodes: Episodes
    gram: Gram | None
    threads: ThreadPoolExecutor
    workers: int
    memory: int
    step: Step

    def run(self, tasks: Iterable[Task], weight: float) -> None:
        """Run tasks, report each as its share of the weight, and raise the first error."""
        futures = [self.threads.submit(task) for task in tasks]
        for future in futures:
            future.add_done_callback(lambda _: self.step(weight / len(futures)))
        try:
            done, _ = wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:
                future.cancel()
        for future in done:
            future.result()

    def close(self) -> None:
        """Stop the threads, and what they have not begun."""
        self.threads.shutdown(cancel_futures=True)


def open_engine(episodes: Episodes, workers: int, memory: int, step: Step = lambda _: None) -> Engine:
    """Multiply out the Gram blocks if they fit the memory, and start the threads."""
    gram = build_gram(episodes) if gram_bytes(episodes) <= memory else None
    return Engine(episodes, gram, ThreadPoolExecutor(workers), workers, memory, step)


def sweep(
    engine: Engine, protocol: Protocol, spread: str, categories: Mapping[str, str] | None = None
) -> tuple[IntArray, Tally]:
    """Run one spread over every fold; return k of each row and the values."""
    episodes = engine.episodes
    parts = [split(episodes, number) for number in range(episodes.folds)]
    shots = np.array(protocol.shots, np.int64)
    largest = max(int(np.diff(part.pool_start).max()) for part in parts)
    whole = protocol.whole_pool and largest not in protocol.shots
    ks = np.append(shots, largest) if whole else shots
    samples = protocol.samples(spread)
    draws = protocol.draws if spread == "per-query" else protocol.shared_draws
    tally = Tally(len(ks), samples, episodes.classes, categories)
    draw = _per_query if spread == "per-query" else _shared
    for part in parts:
        if shots.size:
            draw(engine, protocol, part, shots, tally)
        if whole:
            _whole_pool(engine, protocol, part, len(ks) - 1, samples, draws, tally)
        tally.close_fold(part)
    tally.finish(draws)
    return ks, tally


def _per_query(engine: Engine, protocol: Protocol, part: Split, shots: IntArray, tally: Tally) -> None:
    """Score every query against draws of its own, then resample the scores class by class."""
    episodes, queries = engine.episodes, len(part.rows)
    base = streams.purpose_key(protocol.seed, "bootstrap")
    picks = np.empty((queries, protocol.bootstraps), np.uint16)
    streams.bootstrap_picks(base, episodes.segment_key[part.rows], protocol.draws, picks)
    harmonic = harmonic_numbers(queries)
    per_shot = 8 * len(episodes.classes) * queries * protocol.draws
    for at in _blocks(len(shots), max(engine.memory // 2, 2**28) // per_shot):
        scores, hits = _score_queries(engine, protocol, part, shots[at], at, tally)
        size = (len(shots[at]), len(episodes.classes), protocol.bootstraps)
        ap, auroc, hit = np.empty(size), np.empty(size), np.empty(size)
        tasks = [
            partial(_resample, protocol.draws, part, picks, harmonic, scores[s, n], hits[s], n, ap[s, n], auroc[s, n], hit[s, n], tally.tied[at][s])
            for s in range(size[0])
            for n in range(size[1])
        ]
        engine.run(tasks, 0.7 * size[0] / episodes.folds)
        tally.add(at, part, ap, auroc, hit)


def _score_queries(engine: Engine, protocol: Protocol, part: Split, shots: IntArray, at: slice, tally: Tally):  # type: ignore[no-untyped-def]
    """Return scores (shots, classes, queries, draws) and hits (shots, queries, draws); add up the decisions."""
    episodes, queries, classes = engine.episodes, len(part.rows), len(engine.episodes.classes)
    scores = np.empty((len(shots), classes, queries, protocol.draws))
    hits = np.empty((len(shots), queries, protocol.draws), np.uint8)
    ranges = [(b.start, b.stop) for b in _blocks(queries, -(-queries // (8 * engine.workers)))]
    decisions = np.zeros((len(ranges), len(shots), classes, classes), np.int64)
    base = streams.purpose_key(protocol.seed, "support")
    keys = (base, episodes.segment_key[part.rows], episodes.class_key)
    rest = (episodes.class_start, part.pool, part.pool_start, shots, protocol.sampler == "distinct", protocol.score == "softmax", part.relevant, part.label, scores, hits)
    if engine.gram is not None:
        products = (cross_products(episodes, part), engine.gram.block, engine.gram.start)
        kernel = perquery.queries_by_gram
    else:
        products = (episodes.vectors[part.rows], episodes.vectors, _squares(episodes))
        kernel = perquery.queries_directly
    engine.run(
        [partial(kernel, *span, *keys, *products, *rest, decisions[i]) for i, span in enumerate(ranges)],
        0.3 * len(shots) / episodes.folds,
    )
    tally.decisions[at] += decisions.sum(axis=0)
    return scores, hits


def _resample(draws: int, part: Split, picks, harmonic, scores, hits, n: int, ap, auroc, hit, tied) -> None:  # type: ignore[no-untyped-def]
    """Bootstrap one class of one fold at one shot."""
    queries = len(part.rows)
    relevant = part.relevant[n]
    positive = bool(2 * part.positives[n] <= queries)
    anchor = relevant if positive else ~relevant
    codes = _codes_for(anchor, draws)
    ties, tied_anchors = ranks.encode(scores.reshape(-1), anchor, draws, codes)
    if ties and not positive:  # the sums over negatives hold for rankings without ties
        positive, anchor, codes = True, relevant, _codes_for(relevant, draws)
        ties, tied_anchors = ranks.encode(scores.reshape(-1), anchor, draws, codes)
    tied[n] += tied_anchors
    bootstrap.sample_class(codes, draws, np.flatnonzero(anchor), positive, ties > 0, picks, harmonic, ap, auroc)
    own = np.flatnonzero(part.label == n)
    bootstrap.sample_hits(hits, picks, own, hit)


def _codes_for(anchor, draws: int):  # type: ignore[no-untyped-def]
    """Return room for codes: 15 bits if they hold every distinct anchor and every count, else 31."""
    fits = 2 * int(anchor.sum()) * draws + 1 < 2**15 and anchor.size < 2**15
    return np.empty(anchor.size * draws, np.uint16 if fits else np.uint32)


def _shared(engine: Engine, protocol: Protocol, part: Split, shots: IntArray, tally: Tally) -> None:
    """Score all queries of a fold against the same draws."""
    episodes, queries, classes = engine.episodes, len(part.rows), len(engine.episodes.classes)
    size = (protocol.shared_draws, len(shots), classes)
    ap, auroc, hits = np.empty(size), np.empty(size), np.empty(size)
    cross = np.ascontiguousarray(cross_products(episodes, part).T) if engine.gram is not None else None
    room = max(1, min(2**26, engine.memory // 4) // (8 * len(shots) * classes * queries))
    blocks = list(_blocks(protocol.shared_draws, min(room, -(-protocol.shared_draws // (2 * engine.workers)))))
    decisions = np.zeros((len(blocks), len(shots), classes, classes), np.int64)
    tied = np.zeros((len(blocks), len(shots), classes), np.int64)
    tasks = [
        partial(_share, engine, protocol, part, shots, cross, b, ap[b], auroc[b], hits[b], decisions[i], tied[i])
        for i, b in enumerate(blocks)
    ]
    engine.run(tasks, len(shots) / episodes.folds)
    at = slice(0, len(shots))
    tally.decisions[at] += decisions.sum(axis=0)
    tally.tied[at] += tied.sum(axis=0)
    tally.add(at, part, *(np.ascontiguousarray(x.transpose(1, 2, 0)) for x in (ap, auroc, hits)))


def _share(engine: Engine, protocol: Protocol, part: Split, shots: IntArray, cross, block: slice, ap, auroc, hits, decisions, tied) -> None:  # type: ignore[no-untyped-def]
    """Score a few shared draws and take their metrics."""
    episodes = engine.episodes
    a = np.empty((block.stop - block.start, len(shots), len(episodes.classes), len(part.rows)))
    base = streams.purpose_key(protocol.seed, "shared")
    distinct = protocol.sampler == "distinct"
    if engine.gram is not None:
        shared.shared_by_gram(base, block.start, episodes.class_key, episodes.fold, part.number, cross, engine.gram.block, engine.gram.start, episodes.class_start, shots, distinct, a)
    else:
        _share_directly(episodes, part, shots, base, block, distinct, a)
    positives, start = _positives(part)
    shared.shared_metrics(a, part.relevant, part.label, positives, start, protocol.score == "softmax", ap, auroc, hits, decisions, tied)


def _share_directly(episodes: Episodes, part: Split, shots: IntArray, base: np.uint64, block: slice, distinct: bool, a: FloatArray) -> None:
    """Fill a[d, shot, n, q] from centroids, one draw at a time."""
    centroids = np.empty((len(shots), len(episodes.classes), episodes.vectors.shape[1]))
    queries = episodes.vectors[part.rows]
    for d in range(block.stop - block.start):
        shared.shared_centroids(base, block.start + d, episodes.class_key, episodes.fold, part.number, episodes.vectors, episodes.class_start, shots, distinct, centroids)
        a[d] = 2.0 * (centroids @ queries.T) - np.einsum("snd,snd->sn", centroids, centroids)[:, :, None]


def _whole_pool(engine: Engine, protocol: Protocol, part: Split, row: int, samples: int, draws: int, tally: Tally) -> None:
    """Score the row `all`: one support set, so one value, in every sample of either spread."""
    episodes, classes = engine.episodes, len(engine.episodes.classes)
    outside = np.flatnonzero(episodes.fold != part.number)
    pools = [outside[part.pool_start[n] : part.pool_start[n + 1]] for n in range(classes)]
    means = np.stack([episodes.vectors[pool].mean(axis=0) for pool in pools])
    a = (2.0 * (means @ episodes.vectors[part.rows].T) - np.einsum("nd,nd->n", means, means)[:, None])[None, None]
    ap, auroc, hits = (np.empty((1, 1, classes)) for _ in range(3))
    decisions, tied = np.zeros((1, classes, classes), np.int64), np.zeros((1, classes), np.int64)
    positives, start = _positives(part)
    shared.shared_metrics(np.ascontiguousarray(a), part.relevant, part.label, positives, start, protocol.score == "softmax", ap, auroc, hits, decisions, tied)
    tally.decisions[row] += decisions[0] * draws
    tally.tied[row] += tied[0]
    full = (np.broadcast_to(x.reshape(1, classes, 1), (1, classes, samples)) for x in (ap, auroc, hits))
    tally.add(slice(row, row + 1), part, *full)


def _positives(part: Split) -> tuple[IntArray, IntArray]:
    """Return the positive queries of every class, one class after the other, and where each class starts."""
    return np.nonzero(part.relevant)[1], np.concatenate([[0], np.cumsum(part.positives)])


def _squares(episodes: Episodes) -> FloatArray:
    return np.einsum("rd,rd->r", episodes.vectors, episodes.vectors)


def _blocks(total: int, size: int) -> Iterator[slice]:
    """Cut 0 … total into blocks of a size, at least 1."""
    size = max(1, size)
    return (slice(i, min(i + size, total)) for i in range(0, total, size))
