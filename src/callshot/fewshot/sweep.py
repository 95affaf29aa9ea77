"""Episodes and a protocol → the values of one spread at every k.

Samples of `total` become predictions of what one labelled set would score elsewhere. A new corpus
and a new labelled set vary as the samples do. Our own estimate of the mean has an error too: that
of `total` without the part that comes from the labelled set, which `shared` measures. Both
variances add up, so the deviations of `total` are stretched.

One fold is processed at a time, so that no array is larger than a fold needs.
"""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot import ridge
from callshot.fewshot.episodes import (
    BLOCK_ROWS,
    Engine,
    Episodes,
    Split,
    blocks,
    cross_products,
    distinct_rows,
    make_splits,
)
from callshot.fewshot.gpu.device import add_note
from callshot.fewshot.kernels import ranks, streams, supports
from callshot.fewshot.kernels.ranks import ClassTables, FoldMetrics
from callshot.fewshot.kernels.scores import count_decisions, to_scores
from callshot.fewshot.kernels.supports import Sampling, multiply_rows, score_draws
from callshot.fewshot.metrics import MetricSums, by_sample, harmonic_numbers, measure
from callshot.fewshot.spreads import (
    UNIT,
    Spread,
    bootstrap_picks,
    leave_out,
    make_spread,
    units_without,
)
from callshot.records import COMMON_FOLD, METRICS, FloatArray, IntArray

Categories = Mapping[str, str] | None
# From a slice of the draws to their logits, (draws, shots, classes, queries).
ComputeLogits = Callable[[slice], FloatArray]
FillLogits = Callable[[slice], None]  # fills in the logits of a slice of the queries

MANY_ANCHORS = 512  # above, sorting every sample is faster than counting
SCORING_SHARE = 0.3  # of the work of `per-query`, for the progress bar
SMALL_CODES = 2**15
MIN_SCORE_BYTES = 2**28  # for the scores of a block of shots, whatever the memory
TASK_BYTES = 2**22  # logits that one task holds
# k up to which products inside a support are summed, in k² / 2 steps
LONGEST_DRAW = 200
# Rank and weight of recordings, where a spread does not resample those of the supports: none.
NO_ORDER: tuple[Any, Any] = (np.empty((0, 0), np.uint32), np.empty((0, 0)))


class Scorer(NamedTuple):
    """What scores the queries of a split: a rule without training, or a trained classifier.

    `shared` returns a function from a slice of the draws of a spread to their logits, (draws,
    shots, classes, queries). `per_query` is for draws that each query has for itself: it gets an
    array (shots, classes, queries, draws), and returns a function that fills in the logits of a
    slice of the queries. `on_gpu` does both on a GPU: see `gpu.sweep`.
    """

    shared: Callable[[Engine, Split, IntArray, Spread], ComputeLogits]
    per_query: Callable[[Engine, Split, IntArray, FloatArray], FillLogits]
    on_gpu: Callable[..., Any] | None = None


def sweep(
    engine: Engine,
    spread: str,
    categories: Categories = None,
    scorer: Scorer | None = None,
    *,
    without_groups: bool = False,
) -> tuple[IntArray, MetricSums]:
    """Evaluate one spread over every fold; return the values of k, and the metrics at each.

    With `whole_pool` in the protocol, one k is the size of the largest pool: the last for a rule,
    in ascending order for a scorer. The samples of `total` are not yet widened to a prediction
    interval: see `widen_total`. With `without_groups`, the draws of `shared` are measured again
    without the queries of groups of recordings: `left_out` of the result.
    """
    protocol = engine.protocol
    k = np.array(protocol.shots, np.int64)
    largest = max(split.largest_pool for split in make_splits(engine.episodes))
    if protocol.whole_pool and largest not in protocol.shots:
        k = np.append(k, largest)
    if scorer is not None:  # its supports are nested, so that k must ascend
        k.sort()
    drawn = make_spread(spread, engine.episodes, protocol, engine.threads.map)
    if without_groups and spread == "shared" and protocol.shots:
        drawn = leave_out(drawn)
    return k, sweep_folds(engine, k, drawn, categories, scorer)


def sweep_folds(
    engine: Engine,
    k: IntArray,
    spread: Spread,
    categories: Categories = None,
    scorer: Scorer | None = None,
) -> MetricSums:
    """Return the metrics of a spread at every k, by the engine's rule or by `scorer`.

    Without `scorer`, a last k beyond the shots of the protocol stands for the whole pool. If a GPU
    runs out of memory, the CPU does the sweep, with a note.
    """
    inputs = (engine, k, spread, categories, scorer)
    if engine.gpu is not None:
        from torch import OutOfMemoryError

        from callshot.fewshot.gpu import sweep as on_gpu

        new_sums = partial(on_gpu.GpuSums, engine.gpu)
        try:
            return _sum_folds(*inputs, new_sums, on_gpu.sweep_fold)
        except OutOfMemoryError:
            note = f"evaluated on the CPU: {engine.gpu.name} ran out of memory"
            add_note(engine.notes, note)
    return _sum_folds(*inputs, MetricSums, _sweep_fold)


def _sum_folds(
    engine: Engine,
    k: IntArray,
    spread: Spread,
    categories: Categories,
    scorer: Scorer | None,
    new_sums: Callable[..., MetricSums],
    sweep_fold: Callable[..., None],
) -> MetricSums:
    """Return the metrics of `sweep_folds`, computed on one device.

    `new_sums` makes empty sums on the device, `sweep_fold` adds one fold to them. For a rule, the
    whole pool is scored apart, and vectors are transformed for each split; a scorer does both by
    itself.
    """
    classes = engine.episodes.classes
    sums = new_sums(len(k), spread.samples, classes, categories)
    if spread.group is not None:
        samples = spread.samples * spread.repeats
        sums.left_out = new_sums(len(k), samples, classes, categories)
    swept = len(k)  # how many k `sweep_fold` does; the one beyond is the whole pool
    if not scorer:
        swept = len(engine.protocol.shots)
    for split in make_splits(engine.episodes):
        fitted = engine
        if not scorer:
            fitted = engine.for_split(split)
        weights: Any = None
        if spread.units is not None:
            units_of_queries = spread.units[:, split.rows]
            weights = units_of_queries.T * UNIT
        sums.open_fold(split, weights)
        if sums.left_out is not None and spread.group is not None:
            # A column of weights for each group that is left out, and the column of each sample.
            groups = np.arange(spread.group.max() + 1)
            group_of_queries = spread.group[split.rows]
            units = units_without(groups, group_of_queries)
            column = spread.left_out(slice(None))
            sums.left_out.open_fold(split, units.T * UNIT, column)
        if swept:
            sweep_fold(fitted, split, k[:swept], spread, sums, scorer)
        if len(k) > swept:
            _sweep_pool(fitted, split, k, spread, sums)
    draws = engine.protocol.count_supports(spread.name)
    sums.finish(draws)
    if sums.left_out is not None:
        sums.left_out.finish(draws)
    return sums


def _sweep_fold(
    engine: Engine,
    split: Split,
    shots: IntArray,
    spread: Spread,
    sums: MetricSums,
    scorer: Scorer | None,
) -> None:
    """Add the metrics of one fold at every k in `shots` to the sums, with threads of the CPU."""
    scorer = scorer or BY_RULE
    if spread.has_own_draws:
        _bootstrap_fold(engine, split, shots, sums, scorer)
    else:
        compute_logits = scorer.shared(engine, split, shots, spread)
        rows = slice(0, len(shots))
        _measure_draws(engine, split, rows, spread, sums, compute_logits)


def _sweep_pool(
    engine: Engine, split: Split, k: IntArray, spread: Spread, sums: MetricSums
) -> None:
    """Add the metrics of one fold at the last k, where the support of a class is its whole pool.

    Unless exemplars have weights, all draws are the same: one is scored, and counts as every draw.
    """
    row = slice(len(k) - 1, len(k))
    if spread.units is not None:  # weights differ from draw to draw
        compute_logits = shared_logits(engine, split, k[row], spread)
        _measure_draws(engine, split, row, spread, sums, compute_logits)
        return
    largest = np.array([split.largest_pool])  # any draw of so many is the pool
    any_draw = make_spread("shared", engine.episodes, engine.protocol)
    compute_logits = shared_logits(engine, split, largest, any_draw)
    logits = compute_logits(slice(0, 1))
    metrics = measure_logits(engine, split, logits)
    draws = engine.protocol.count_supports(spread.name)
    decisions = metrics.decisions * draws
    tied = metrics.tied * draws
    sums.add_decisions(row, decisions, tied)
    sums.add_values(row, by_sample([metrics]))


def _measure_draws(
    engine: Engine,
    split: Split,
    rows: slice,
    spread: Spread,
    sums: MetricSums,
    compute_logits: ComputeLogits,
) -> None:
    """Score the queries of one fold by draws that all of them share, and add the metrics to `sums`.

    `rows` are the rows of the sums to fill, one for each k. Without the queries of a group, the
    same draws are measured once more for each repeat, for the `left_out` of the sums.
    """
    shots = rows.stop - rows.start
    classes = len(engine.episodes.classes)
    bytes_per_draw = 8 * shots * classes * len(split.rows)
    # The whole pool, in the last row, is not measured without groups.
    has_groups = sums.left_out is not None and rows.start == 0

    def measure_span(span: slice) -> list[FoldMetrics]:
        """Return the metrics of some draws, then those without each of their groups in turn."""
        # Weights of the queries, (draws, queries): None if all are 1.
        all_units: list[IntArray | None] = [None]
        if spread.units is not None:
            units_in_span = spread.units[span, split.rows]
            all_units = [np.ascontiguousarray(units_in_span)]
        if spread.group is not None and has_groups:
            group = spread.group[split.rows]
            draws = np.arange(span.start, span.stop)
            first_samples = draws * spread.repeats
            for i in range(spread.repeats):
                left_out_groups = spread.left_out(first_samples + i)
                all_units.append(units_without(left_out_groups, group))
        table = compute_logits(span)
        decided = to_ranking_scores(engine, table)
        return [measure(split, table, decided, units) for units in all_units]

    spans = blocks(spread.samples, TASK_BYTES // bytes_per_draw)
    tasks = [partial(measure_span, span) for span in spans]
    is_whole_pool = rows.start > 0
    steps = 0 if is_whole_pool else shots  # the whole pool is no step of the progress
    results = engine.run(tasks, steps / engine.episodes.folds)
    metrics, *left_out = zip(*results, strict=True)
    if spread.units is None:  # the decisions and ties of weighted queries are no counts
        for part in metrics:
            sums.add_decisions(rows, part.decisions, part.tied)
    sums.add_values(rows, by_sample(metrics))
    if sums.left_out is not None and left_out:
        by_repeat = [by_sample(metrics) for metrics in left_out]
        joined = []
        for tables in zip(*by_repeat, strict=True):  # one field, in every repeat
            table = np.stack(tables, axis=-1)  # (shots, classes, draws, repeats)
            joined.append(table.reshape(*table.shape[:2], -1))
        sums.left_out.add_values(rows, ClassTables(*joined))


def to_ranking_scores(engine: Engine, logits: FloatArray) -> NDArray[np.uint16]:
    """Turn logits (draws, shots, classes, queries) into scores in place; return the decisions.

    These are class numbers, (draws, shots, queries).
    """
    draws, shots, classes, queries = logits.shape
    # The kernel works on (…, classes, lines, width): a ranking is one line, from 0 to 1.
    decided = np.empty((draws * shots, 1, queries), np.uint16)
    table = logits.reshape(draws * shots, classes, 1, queries)
    to_scores(
        table, first=0, last=1, softmax=engine.softmax, ranking=True, decided=decided
    )
    return decided.reshape(draws, shots, queries)


def measure_logits(engine: Engine, split: Split, logits: FloatArray) -> FoldMetrics:
    """Turn logits (draws, shots, classes, queries) into scores, in place; return metrics."""
    decided = to_ranking_scores(engine, logits)
    return measure(split, logits, decided)


def _bootstrap_fold(
    engine: Engine, split: Split, shots: IntArray, sums: MetricSums, scorer: Scorer
) -> None:
    """Score the queries of one fold by their own draws, and add the metrics of bootstrap samples.

    Shots are processed in blocks whose scores take half of the memory; each block draws the same
    supports again. The metrics are added to `sums`.
    """
    protocol = engine.protocol
    classes = len(engine.episodes.classes)
    queries = len(split.rows)
    picks = bootstrap_picks(engine.episodes, split, protocol)
    harmonic = harmonic_numbers(queries)
    bytes_per_shot = 8 * classes * queries * protocol.draws
    shots_at_a_time = max(engine.memory // 2, MIN_SCORE_BYTES) // bytes_per_shot
    for block in blocks(len(shots), shots_at_a_time):
        # decided_class is (shots, queries, draws).
        scores, decided_class, counts = score_queries(
            engine, split, shots[block], scorer
        )
        # The tasks below fill these in: by shot the decisions, by shot and class the rankings.
        size = (len(scores), classes, protocol.bootstraps)
        tables = ClassTables(*(np.empty(size) for _ in ClassTables._fields))
        tied = np.empty((len(scores), classes), np.int64)
        tasks = []
        for shot, shot_scores in enumerate(scores):
            shot_tables = ClassTables(*(table[shot] for table in tables))
            decisions_task = partial(
                ranks.sample_decisions,
                decided_class[shot],
                split.relevant,
                split.label,
                picks,
                hits=shot_tables.hits,
                correct=shot_tables.correct,
                decided_for=shot_tables.decided,
            )
            tasks.append(decisions_task)
            for n, class_scores in enumerate(shot_scores):
                inputs = (n, class_scores, picks, harmonic, shot_tables, tied[shot])
                tasks.append(partial(_resample_class, split, *inputs))
        progress = (1 - SCORING_SHARE) * len(scores) / engine.episodes.folds
        engine.run(tasks, progress)
        sums.add_decisions(block, counts, tied)
        sums.add_values(block, tables)


def _resample_class(
    split: Split,
    n: int,
    scores: FloatArray,
    picks: NDArray[np.uint16],
    harmonic: FloatArray,
    tables: ClassTables,
    tied: IntArray,
) -> None:
    """Fill AP and AUROC of class n in every bootstrap sample, and the number of its tied positives.

    `scores` is (queries, draws), `picks` (queries, samples) the draw of each query in each sample.
    Row n of the `tables` (classes, samples) and of `tied` (classes,) is filled.

    Each score is only compared with the scores of anchors: the positives, or the negatives where
    these are fewer and no scores tie, as the sums over negatives hold for rankings without ties.
    Where positives and negatives are both many, every sample is sorted instead.
    """
    ap = tables.ap[n]
    auroc = tables.auroc[n]
    queries, draws = scores.shape
    flat = scores.reshape(-1)
    is_positive = split.relevant[n]
    positives = int(split.positives[n])
    negatives = queries - positives
    sorts_samples = min(positives, negatives) > MANY_ANCHORS
    # Codes are made for the first choice of anchors whose codes can be used.
    choices = [is_positive]
    if negatives < positives and not sorts_samples:
        choices.insert(0, ~is_positive)  # used if nothing is tied
    order = ranks.sort_scores(flat)
    for is_anchor in choices:
        # Every anchor's score may have an odd code, with an even one on each side. The kernel also
        # counts queries in numbers of this type.
        largest = max(2 * int(is_anchor.sum()) * draws + 1, queries)
        code = np.empty(flat.size, np.uint16 if largest < SMALL_CODES else np.uint32)
        ties, tied[n] = ranks.encode(order, flat, is_anchor, draws, code)
        if not ties:
            break
    if sorts_samples:
        ranks.sample_class_by_sorting(flat, draws, is_positive, picks, ap, auroc)
        return
    ranks.sample_class(
        code,
        np.flatnonzero(is_anchor),
        is_anchor is is_positive,  # whether the anchors are the positives
        ties > 0,
        draws,
        picks,
        harmonic,
        ap,
        auroc,
    )


def score_queries(
    engine: Engine, split: Split, shots: IntArray, scorer: Scorer | None = None
) -> tuple[FloatArray, NDArray[np.uint16], IntArray]:
    """Score each query of a fold by its own draws, with the engine's rule or with `scorer`.

    Return the scores (shots, classes, queries, draws), the class decided for (shots, queries,
    draws), and the decisions counted over queries and draws (shots, true class, predicted class).
    """
    classes = len(engine.episodes.classes)
    queries = len(split.rows)
    draws = engine.protocol.draws
    scores = np.empty((len(shots), classes, queries, draws))
    decided = np.empty((len(shots), queries, draws), np.uint16)
    fill = (scorer or BY_RULE).per_query(engine, split, shots, scores)

    def score(span: slice) -> IntArray:
        """Fill in the scores and decisions of a slice of the queries; count the decisions."""
        counts = np.zeros((len(shots), classes, classes), np.int64)
        fill(span)
        to_scores(
            scores,
            first=span.start,
            last=span.stop,
            softmax=engine.softmax,
            ranking=False,
            decided=decided,
        )
        count_decisions(span.start, span.stop, decided, split.truth, counts)
        return counts

    # So that all threads end at about the same time
    tasks_wanted = 8 * engine.threads.threads
    queries_per_task = math.ceil(queries / tasks_wanted)
    tasks = [partial(score, span) for span in blocks(queries, queries_per_task)]
    counts = engine.run(tasks, SCORING_SHARE * len(shots) / engine.episodes.folds)
    return scores, decided, np.sum(counts, axis=0)


def query_logits(
    engine: Engine, split: Split, shots: IntArray, out: FloatArray
) -> FillLogits:
    """Return a function that fills in the logits of queries by their own draws.

    It gets a slice of the queries of the split, and writes to `out` (shots, classes, queries,
    draws).
    """
    if engine.rule == "ridge":
        return ridge.query_logits(engine, split, shots, out)
    sampling = Sampling(
        engine.episodes.class_key,
        shots,
        engine.protocol.distinct,
        members=split.pool,
        start=split.pool_start,
        outside=split.outside,
    )
    seed = engine.protocol.seed
    keys = engine.episodes.segment_key[split.rows]
    query_streams = np.array(
        [streams.make_stream(seed, "support", key) for key in keys]
    )
    by_query = out.transpose(2, 3, 0, 1)
    # Equal queries are multiplied once: `place` is where each query is among the distinct ones.
    queries, place = engine.queries(split)
    cross = None if engine.direct else cross_products(engine, split)

    def fill(span: slice) -> None:
        """Fill in the logits of the queries in `span`."""
        if cross is None:
            products = multiply_rows(queries[place[span]], engine.rows.vectors)
        else:
            products = cross[span]
        inputs = (sampling, engine.rows, query_streams[span], *NO_ORDER)
        supports.score_queries(*inputs, products, by_query[span])

    return fill


def shared_logits(
    engine: Engine, split: Split, shots: IntArray, spread: Spread
) -> ComputeLogits:
    """Return a function that computes the logits of all queries of a split by the engine's rule.

    It gets a slice of the draws, and returns (draws, shots, classes, queries). Without a Gram
    matrix, or for large supports in a given order, class means are multiplied with the queries;
    otherwise products of vectors are looked up.
    """
    if engine.rule == "ridge":
        return ridge.shared_logits(engine, split, shots, spread)
    episodes = engine.episodes
    products = fold_products(engine, split)
    queries = len(split.rows)
    is_long = spread.rank is not None and shots[-1] > LONGEST_DRAW
    if engine.rule in ("mean", "cosine") and (products is None or is_long):

        def compute_by_means(span: slice) -> FloatArray:
            """Return the logits by the draws in `span`, (draws, shots, classes, queries)."""
            logits = []
            for draw in range(span.start, span.stop):
                means = _draw_means(engine, split, shots, spread, draw)
                logits.append(logits_of_means(engine, split, means))
            return np.stack(logits)

        return compute_by_means
    stream = streams.purpose_key(engine.protocol.seed, "shared")
    # A given order has no exemplar twice.
    distinct = engine.protocol.distinct or spread.rank is not None
    sampling = Sampling(
        episodes.class_key,
        shots,
        distinct,
        members=episodes.members,
        start=episodes.class_start,
        outside=split.outside,
    )

    def compute(span: slice) -> FloatArray:
        """Return the logits by the draws in `span`, (draws, shots, classes, queries)."""
        first = span.start
        size = (span.stop - first, len(shots), len(episodes.classes), queries)
        logits = np.empty(size)
        order = NO_ORDER
        if spread.rank is not None and spread.support_units is not None:
            order = (spread.rank[span], spread.support_units[span] * UNIT)
        for block in blocks(queries, BLOCK_ROWS if products is None else queries):
            table = products  # (rows, queries of the block)
            if table is None:
                vectors = episodes.vectors
                table = multiply_rows(vectors, vectors[split.rows[block]])
            score_draws(
                sampling,
                engine.rows,
                stream,
                first,
                *order,
                divide=False,
                products=table,
                out=logits[..., block],
            )
        return logits

    return compute


BY_RULE = Scorer(shared_logits, query_logits)


def fold_products(engine: Engine, split: Split) -> FloatArray | None:
    """Return the products (rows, queries) of all rows with the queries of a fold.

    None if they exceed the memory limit, so that the vectors are read directly.
    """
    if engine.direct:
        return None
    return np.ascontiguousarray(cross_products(engine, split).T)


def _draw_means(
    engine: Engine, split: Split, shots: IntArray, spread: Spread, draw: int
) -> FloatArray:
    """Return the class means of the supports of one draw, (shots, classes, dimensions).

    The supports are nested, so their sums are cumulative sums over the exemplars in the order of
    the draw.
    """
    vectors = engine.episodes.vectors
    units = spread.support_units
    is_distinct = engine.protocol.distinct or units is not None
    means = []
    drawn = spread.supports(split.fold, int(shots[-1]), draw)
    for rows, pool_size in zip(drawn, split.pool_sizes, strict=True):
        weight = np.ones(len(rows))
        if units is not None:
            weight = units[draw, rows] * UNIT
        last = np.minimum(shots, len(rows)) - 1  # place of the last exemplar at each k
        total_weight = np.cumsum(weight)[last]
        weighted = vectors[rows] * weight[:, None]
        sums = np.cumsum(weighted, axis=0)[last]
        if is_distinct and len(rows) == pool_size:
            # The whole pool is one set: it is summed in one order, however it was drawn.
            order = np.argsort(rows)
            pool = weighted[order]
            total = np.cumsum(pool, axis=0)[-1]
            takes_whole_pool = shots >= len(rows)
            sums[takes_whole_pool] = total
        means.append(sums / total_weight[:, None])
    return np.stack(means, axis=1)


def logits_of_means(engine: Engine, split: Split, means: FloatArray) -> FloatArray:
    """Return the logit of every class mean c for every query z: 2 c·z − |c|², or their cosine.

    `means` is (shots, classes, dimensions), the result (shots, classes, queries).
    """
    shots, classes, dimensions = means.shape
    # Each distinct vector is multiplied once, so that equal ones tie.
    queries, query_place = engine.queries(split)
    distinct, mean_place = distinct_rows(means.reshape(-1, dimensions))
    distinct_products = distinct @ queries.T
    all_products = distinct_products[np.ix_(mean_place, query_place)]
    products = all_products.reshape(shots, classes, -1)
    squares = np.einsum("snd,snd->sn", means, means)[:, :, None]
    if engine.rule == "cosine":
        known_squares = np.where(squares > 0, squares, 1.0)
        lengths = np.sqrt(known_squares)
        return np.clip(products / lengths, -1.0, 1.0)
    return 2.0 * products - squares


def widen_total(sums: MetricSums, shared: MetricSums, episodes: Episodes) -> None:
    """Widen the samples of `total` in `sums` to a prediction interval, in place.

    `shared` are the metrics of the spread `shared`, which show how much labelled sets vary. They
    also give the chance level of decisions, as `total` counts no decisions.
    """
    sums.chance = shared.chance
    inflation = small_sample_inflation(count_recordings(episodes))
    mean = float(inflation.mean())
    for key, samples in sums.values.items():
        lowest = METRICS[key[1]].lowest
        samples[:] = widen_to_prediction(samples, shared.values[key], mean, lowest)
    by_class = inflation[:, None]  # for (shots, classes, samples)
    for metric, samples in sums.per_class.items():
        samples[:] = widen_to_prediction(samples, shared.per_class[metric], by_class)


def count_recordings(episodes: Episodes) -> IntArray:
    """Return the number of recordings of each class.

    Where all supports come from another corpus, it is the smaller of the numbers of queries and of
    supports: resampling underestimates the variance of that side most.
    """
    # Calls of the common fold are only supports
    is_query = episodes.fold != COMMON_FOLD
    sides = [np.ones_like(is_query)]  # all calls
    if episodes.only_common:
        sides = [is_query, ~is_query]
    _, recording = np.unique(episodes.recording, return_inverse=True)
    pairs = np.stack([episodes.label, recording])
    counts = []
    for is_on_side in sides:
        label, _ = np.unique(pairs[:, is_on_side], axis=1)  # each pair once
        counts.append(np.bincount(label))
    return np.min(counts, axis=0)


def widen_to_prediction(
    total: FloatArray,
    shared: FloatArray,
    inflation: FloatArray | float,
    lowest: float = 0.0,
) -> FloatArray:
    """Return samples of a prediction interval: mean of `shared`, widened deviations of `total`.

    Two variances add up. A new corpus and labelled set vary by V, the variance of `total` times
    `inflation`. Our own mean is off by V − var(shared), as it averages over labelled sets. The
    centre is the mean of `shared`, which comes from all calls.

    >>> total = np.array([0.5, 0.6, 0.7])
    >>> widen_to_prediction(total, np.array([0.6, 0.7]), 1.0).round(3)
    array([0.523, 0.65 , 0.777])
    """
    centre = shared.mean(axis=-1, keepdims=True)
    deviation = total - total.mean(axis=-1, keepdims=True)
    raw_variance = np.mean(deviation**2, axis=-1, keepdims=True)
    variance = inflation * raw_variance
    labelled_set_variance = np.var(shared, axis=-1, keepdims=True)
    mean_variance = np.maximum(variance - labelled_set_variance, 0.0)
    predicted_variance = variance + mean_variance
    varies = raw_variance > 0
    ratio = np.ones_like(variance)
    np.divide(predicted_variance, raw_variance, out=ratio, where=varies)
    predicted = centre + np.sqrt(ratio) * deviation
    return np.clip(predicted, lowest, 1.0)


def small_sample_inflation(recordings: IntArray) -> FloatArray:
    """Return the factor by which the Bayesian bootstrap underestimates a variance.

    With n recordings, the variance of a mean under exponential weights is (n − 1) / (n + 1) of its
    unbiased estimate.

    >>> small_sample_inflation(np.array([3, 11]))
    array([2. , 1.2])
    """
    return (recordings + 1) / np.maximum(recordings - 1, 1)
