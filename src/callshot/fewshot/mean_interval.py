"""Values of the draws of `shared` → samples of their mean, as other recordings would move it.

The spread `total` says what one labelled set will score. Which of two encoders is better is about
the mean over all labelled sets, whose only uncertainty is in the recordings. The influence of a
recording is what the mean loses without it:

queries   each draw is measured again without the queries of one recording, in turn
examples  the mean of all draws, minus the mean of those whose supports lack its calls; an exemplar
          that is in a share p of the supports has the influence cov(count, score) / (1 − p)

Without one of n recordings a mean loses n / (n − 1) of the influence of this recording; both sides
are scaled so that this is exact for a mean. The sum of the squares of the influences, times n / (n
− 1), is the jackknife estimate of the variance. Many recordings are put into groups at random.
Where a class gives its whole pool, no draw lacks its calls: its influence is the one at the largest
k below.

A sample is the mean plus the influences times random numbers, which depend on the seed and the
recording alone, so that samples are paired over encoders, classifiers and baselines.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from callshot.fewshot.episodes import (
    Engine,
    Episodes,
    Keys,
    Split,
    blocks,
    make_splits,
)
from callshot.fewshot.kernels import streams
from callshot.fewshot.kernels.supports import Pools, Sampling, count_supports
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import group_recordings
from callshot.fewshot.sweep import count_recordings
from callshot.records import COMMON_FOLD, FloatArray, IntArray
from callshot.records.frames import (
    VALUES,
    Frame,
    Shots,
    empty_frame,
    values_frame,
)
from callshot.records.terms import MEAN

SAMPLES = 1000  # of a mean
BATCHES = 50  # of draws, from whose means the error of the mean of all is estimated
DRAWS_PER_TASK = 128
DRAWS_OF_OVERLAP = 256  # from which the overlap of supports is estimated
MIN_OVERLAP = 0.01  # of supports in all folds; less is a class that does not vary
MIN_SIGNAL = 0.1  # share of a variance that is left at least when noise is subtracted

Key = tuple[str, str]


class MeanSamples(NamedTuple):
    """Samples of the mean by scoring and metric, (shots, samples), and of the AP of each class.

    `ap` is (shots, classes, samples).
    """

    values: dict[Key, FloatArray]
    ap: FloatArray


class PlannedPools(NamedTuple):
    """What can be drawn in each fold, and sums over the calls of each class, (classes, shots).

    `mean` sums the mean weights of the calls in a support, `expected` the squares of these.
    """

    pools: Pools
    mean: FloatArray
    expected: FloatArray


def sample_means(engine: Engine, sums: MetricSums) -> MeanSamples | None:
    """Return samples of the mean over labelled sets, as other recordings would move it.

    `sums` are the metrics of a sweep of `shared` with `left_out`; without, there are too few draws,
    and the result is None. The samples are at the shots of the protocol.
    """
    if sums.left_out is None:
        return None
    episodes = engine.episodes
    shots = np.array(engine.protocol.shots, np.int64)
    rows = slice(0, len(shots))  # without the whole pool, which may follow
    values = _stack(sums, rows)
    without = _stack(sums.left_out, rows)
    group_key, group = group_recordings(episodes)
    kept, inflation = jackknife_factors(episodes, group)
    by_query, query_noise = query_influence(values, without, kept)
    by_support, support_noise = support_influence(engine, shots, values, group)
    influence = by_query + by_support
    noise = query_noise + support_noise
    by_group = scale_influence(influence, noise, inflation)
    by_batch = draw_errors(values)
    # (shots, values, groups + batches): each is multiplied with a random number of its own.
    weights = np.concatenate([by_group, by_batch], axis=2)
    # Samples without deviations have no interval: nothing is known about other recordings.
    is_unknown = np.isnan(weights).any(axis=2)
    weights[is_unknown] = 0.0
    of_groups = draw_multipliers("mean", group_key, engine.protocol)
    batches = np.arange(by_batch.shape[2], dtype=np.uint64)
    of_batches = draw_multipliers("mean draws", batches, engine.protocol)
    multipliers = np.concatenate([of_groups, of_batches])
    weight_rows = weights.reshape(-1, len(multipliers))
    deviation_rows = weight_rows @ multipliers
    deviations = deviation_rows.reshape(*values.shape[:2], -1)
    means = values.mean(axis=2)
    samples = add_deviations(means, deviations)
    by_key = {key: samples[:, v] for v, key in enumerate(sums.values)}
    of_classes = samples[:, len(by_key) :]
    return MeanSamples(by_key, of_classes)


def mean_frame(key: Mapping[str, str], k: Shots, means: MeanSamples | None) -> Frame:
    """Return samples of the mean as rows of VALUES, with the spread `mean`."""
    if means is None or len(k) == 0:
        return empty_frame(VALUES)
    frames = []
    for (scoring, metric), samples in means.values.items():
        constants = {**key, "spread": MEAN, "scoring": scoring, "metric": metric}
        frames.append(values_frame(constants, np.array(k), samples))
    return pl.concat(frames)


def _stack(sums: Any, rows: slice) -> FloatArray:
    """Return the metrics of some shots, (shots, values, samples).

    The values are each scoring and metric of `sums.values`, then the AP of each class.
    """
    tables = [table[rows, None] for table in sums.values.values()]
    return np.concatenate([*tables, sums.per_class["map"][rows]], axis=1)


def jackknife_factors(episodes: Episodes, group: IntArray) -> tuple[FloatArray, float]:
    """Return the factors that make influences, and a variance, of losses without groups.

    The first (groups,) times the loss without a group is its influence: the share of queries that
    are kept without it, the mean over the classes in it. The second times the sum of squared
    influences is the variance: the sum alone underestimates it by n / (n − 1), where n are the
    recordings of a class, and in a group of several recordings, influences of one class partly
    cancel.
    """
    groups = int(group.max()) + 1
    queries = np.zeros((groups, len(episodes.classes)))
    is_query = episodes.fold != COMMON_FOLD
    np.add.at(queries, (group[is_query], episodes.label[is_query]), 1.0)
    queries_of_class = queries.sum(axis=0)
    left_out = queries / np.maximum(queries_of_class, 1.0)
    classes_in_group = np.count_nonzero(queries, axis=1)
    mean_left_out = left_out.sum(axis=1) / np.maximum(classes_in_group, 1)
    kept = 1.0 - mean_left_out
    of_class = count_recordings(episodes)
    factors = of_class / np.maximum(of_class - 1, 1)
    inflation = float(np.mean(factors))
    recordings = len(np.unique(episodes.recording_key))
    others = max(recordings - 1, 1)
    others_in_group = recordings / groups - 1
    in_one_group = others_in_group / others  # share of the pairs of recordings
    return kept, inflation / (1.0 - in_one_group)


def query_influence(
    values: FloatArray, without: FloatArray, kept: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return how the queries of each group of recordings move the mean of values, and the noise.

    `values` is (shots, metrics, draws). Each draw is measured again, `repeats` times in a row, each
    time without the queries of one group; the groups take turns. So `without` is (shots, metrics,
    draws · repeats), and its column j is of draw j // repeats without group j % groups. `kept`
    (groups,) comes from `jackknife_factors`. The influence is (shots, metrics, groups); the noise
    (shots, metrics) is what few draws add to the sum of its squares.
    """
    groups = len(kept)
    repeats = without.shape[2] // values.shape[2]
    repeated = values
    if repeats > 1:
        repeated = np.repeat(values, repeats, axis=2)
    loss = repeated - without
    # Groups are left out in turn: the first `more` of them once more than the others.
    turns, more = divmod(loss.shape[2], groups)
    in_whole_turns = turns * groups
    whole = loss[:, :, :in_whole_turns]
    whole = whole.reshape(*loss.shape[:2], turns, groups)
    rest = loss[:, :, in_whole_turns:]
    count = np.full(groups, turns)
    count[:more] += 1
    total = whole.sum(axis=2)
    total[:, :, :more] += rest
    mean_loss = total / count
    whole -= mean_loss[:, :, None]  # from here on deviations
    rest -= mean_loss[:, :, :more]
    squares = np.einsum("svtg,svtg->svg", whole, whole)
    squares[:, :, :more] += np.square(rest)
    freedom = np.maximum(count - 1, 1)
    # The variance of the mean of `count` losses.
    noise_of_group = squares / (count * freedom)
    influence = kept * mean_loss
    noise = np.sum(np.square(kept) * noise_of_group, axis=2)
    return influence, noise


def support_influence(
    engine: Engine, shots: IntArray, values: FloatArray, group: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return how the examples of each group of recordings move the mean of values, and the noise.

    `values` is (shots, values, draws). The influence of a group, (shots, values, groups), is the
    covariance of the values of draws with the weight of the group in their supports; the noise is
    as in `query_influence`. All are NaN if a class gives its whole pool at every k.
    """
    episodes = engine.episodes
    draws = values.shape[2]
    splits = make_splits(episodes)
    planned = plan_pools(episodes, splits, shots, engine.protocol.distinct)
    # Of each class: how many of the shots leave a choice of exemplars. Where a class gives its
    # whole pool, from shot fixed_from on, it keeps its influence at the shot before. `rows` are
    # the shots, then those shots before.
    with_choice = planned.pools.drawn.max(axis=1)
    is_fixed = (with_choice > 0) & (with_choice < len(shots))
    fixed_from = with_choice[is_fixed]
    rows = np.concatenate([np.arange(len(shots)), fixed_from - 1])
    weigh = partial(_weigh_groups, engine, shots, group, len(rows))
    pools, expected = _scale_weights(engine, splits, planned, weigh, draws)
    mean = values.mean(axis=2, keepdims=True)
    deviation = (values - mean)[rows]

    def add(span: slice) -> tuple[FloatArray, FloatArray]:
        """Return the sums over some draws: weights times deviations, and squared weights."""
        weights, squares = weigh(pools, span)
        by_row = weights.transpose(1, 0, 2)  # (rows, draws, groups)
        return deviation[:, :, span] @ by_row, squares

    tasks = [partial(add, span) for span in blocks(draws, DRAWS_PER_TASK)]
    products, squares = zip(*engine.run(tasks), strict=True)
    covariance = sum(products) / draws
    influence = covariance[: len(shots)]
    of_fixed_classes = covariance[len(shots) :]
    for first, of_class in zip(fixed_from, of_fixed_classes, strict=True):
        influence[first:] += of_class
    variance_of_weights = (sum(squares) / draws - expected).T  # (shots, classes)
    noise = _sum_noise(variance_of_weights, deviation[: len(shots)], with_choice)
    if with_choice.min() == 0:
        influence[:] = np.nan
        noise[:] = np.nan
    return influence, noise


def _sum_noise(
    variance_of_weights: FloatArray, deviation: FloatArray, with_choice: IntArray
) -> FloatArray:
    """Return what few draws add to the sum of squared influences of examples, (shots, values).

    `variance_of_weights` is (shots, classes), `deviation` (shots, values, draws) is that of values
    from their mean. The first with_choice[n] shots leave a choice of exemplars of class n; at the
    others its noise is the one at the last of these, as its influence is.
    """
    draws = deviation.shape[2]
    square_sum = np.einsum("svd,svd->sv", deviation, deviation)
    variance_of_values = square_sum / draws
    # A covariance of independent numbers has the product of their variances, over the draws.
    product = variance_of_weights[:, :, None] * variance_of_values[:, None]
    noise_of_class = product / draws  # (shots, classes, values)
    classes = np.arange(len(with_choice))
    noises = []
    for s in range(len(deviation)):
        last_choice = np.minimum(s, with_choice - 1)  # of each class: the shot up to s
        noise_at_s = noise_of_class[last_choice, classes]
        noises.append(noise_at_s.sum(axis=0))
    return np.stack(noises)


def _weigh_groups(
    engine: Engine,
    shots: IntArray,
    group: IntArray,
    rows: int,
    pools: Pools,
    span: slice,
) -> tuple[FloatArray, FloatArray]:
    """Return the weights of groups in the supports of some draws, and sums of squared weights.

    They are (draws, rows, groups) and (classes, shots): see `count_supports`. `span` are the
    numbers of the draws; `rows` counts the shots and the rows beyond them.
    """
    episodes = engine.episodes
    sampling = Sampling(
        episodes.class_key,
        shots,
        engine.protocol.distinct,
        members=episodes.members,
        start=episodes.class_start,
        outside=np.empty(0, bool),  # not read: `pools` say what is outside of a fold
    )
    stream = streams.purpose_key(engine.protocol.seed, "shared")
    draws = span.stop - span.start
    weights = np.empty((draws, rows, int(group.max()) + 1))
    squares = np.zeros((len(episodes.classes), len(shots)))
    inputs = (sampling, episodes.class_start, group, stream, span.start, pools)
    count_supports(*inputs, weights, squares)
    return weights, squares


def _scale_weights(
    engine: Engine,
    splits: Sequence[Split],
    planned: PlannedPools,
    weigh: Callable[[Pools, slice], tuple[FloatArray, FloatArray]],
    draws: int,
) -> tuple[Pools, FloatArray]:
    """Return pools whose weights make the whole influence of covariances, and expected squares.

    Supports that differ between folds show only a share of the influence: the first draws show
    which. The weights are divided by it, the squares of mean weights by its square. `weigh` is
    `_weigh_groups`, of some pools and draws.
    """
    first_draws = min(draws, DRAWS_OF_OVERLAP)
    spans = blocks(first_draws, DRAWS_OF_OVERLAP // 8)
    weighed = engine.run([partial(weigh, planned.pools, span) for span in spans])
    mean_square = sum(squares for _, squares in weighed) / first_draws
    variance = mean_square - planned.expected
    shown = fold_overlap(variance, planned.mean)  # (classes, shots)
    if engine.protocol.distinct:
        # Without one call a mean loses pool / (pool − 1) of the influence of the call.
        pool_sizes = [split.pool_sizes for split in splits]
        pool = np.mean(pool_sizes, axis=0)
        more_lost = pool / np.maximum(pool - 1, 1)
        shown *= more_lost[:, None]
    pools = planned.pools
    label_of_kind = np.empty(len(pools.total), np.int64)
    label_of_kind[pools.kind] = engine.episodes.label
    shown_of_kind = shown[label_of_kind]  # (kinds, shots)
    scaled = pools._replace(
        weight=pools.weight / shown_of_kind[..., None],
        total=pools.total / shown_of_kind,
    )
    return scaled, planned.expected / np.square(shown)


def plan_pools(
    episodes: Episodes, splits: Sequence[Split], shots: IntArray, distinct: bool
) -> PlannedPools:
    """Return what can be drawn in each fold, and the weights that make influences of counts.

    In a fold a covariance is divided by 1 − p, where a call is in a share p of the supports of k
    calls without replacement. Folds are averaged over those in which the call can be drawn, and in
    which a support leaves out some of the pool.
    """
    # Rows of one class and fold are of one kind: the same folds can draw them. The common fold, −1,
    # needs a number for each class too.
    numbers = episodes.label * (len(splits) + 1) + episodes.fold
    # A row of each kind, the kind of each row, and the number of rows of each kind.
    _, example, kind, size = np.unique(
        numbers, return_index=True, return_inverse=True, return_counts=True
    )
    label = episodes.label[example]
    outside = np.array([split.outside[example] for split in splits])  # (folds, kinds)
    pool = np.array([split.pool_sizes for split in splits])  # (folds, classes)
    mean_count = shots[:, None] / pool[:, None]  # (folds, shots, classes)
    share = np.zeros(mean_count.shape)  # p: with replacement nothing is divided
    if distinct:
        share = mean_count
    varies = share < 1  # whether a support leaves out some of the pool
    drawn = varies.sum(axis=1)
    steps = np.concatenate([[0], shots])
    left_over = np.where(varies, 1.0 - share, 1.0)
    scale = varies / left_over  # 1 / (1 − p), or 0
    is_averaged = outside[:, None] & varies[:, :, label]
    varying = np.maximum(is_averaged.sum(axis=0), 1)  # folds: (shots, kinds)
    weight = scale[:, :, label] * outside[:, None]  # (folds, shots, kinds)
    folds_outside = outside.sum(axis=0)
    # The mean over these folds, times folds_outside / varying: where a fold takes the whole pool,
    # its scores show nothing of the influence.
    weight *= folds_outside / varying**2
    count_of_kind = mean_count[:, :, label]
    mean_weight = np.sum(weight * count_of_kind, axis=0)
    classes = np.arange(len(episodes.classes))
    is_class = label[:, None] == classes
    total = weight.sum(axis=0)  # (shots, kinds)
    pools = Pools(
        kind=kind,
        outside=np.ascontiguousarray(outside.T),
        drawn=np.ascontiguousarray(drawn.T),
        steps=steps[drawn.T],
        weight=np.ascontiguousarray(weight.transpose(2, 1, 0)),
        total=np.ascontiguousarray(total.T),
    )
    mean_of_class = size * mean_weight @ is_class
    square_of_class = size * np.square(mean_weight) @ is_class
    return PlannedPools(pools, mean_of_class.T, square_of_class.T)


def fold_overlap(variance: FloatArray, mean: FloatArray) -> FloatArray:
    """Return the share of the influence of examples that their counts show, (classes, shots).

    `variance` and `mean`, of the same shape, are of the weights that a class's calls have in
    supports, summed over the calls. They are equal if the supports of all folds are the same; a
    call in the supports of some folds only shrinks the covariance with the score by the same share.
    """
    share = variance / np.where(mean > 0, mean, 1.0)
    return np.where(share > MIN_OVERLAP, np.minimum(share, 1.0), 1.0)


def sample_constants(
    values: FloatArray, losses: FloatArray, episodes: Episodes, protocol: Protocol
) -> FloatArray:
    """Return samples (…, samples) of values of trained classifiers, which use no drawn examples.

    `losses` (…, groups) are what the values lose without the queries of each group of recordings.
    """
    group_key, group = group_recordings(episodes)
    kept, inflation = jackknife_factors(episodes, group)
    multipliers = draw_multipliers("mean", group_key, protocol)
    no_noise = np.zeros(())  # nothing was drawn
    influence = scale_influence(kept * losses, no_noise, inflation)
    return add_deviations(values, influence @ multipliers)


def add_deviations(mean: FloatArray, deviations: FloatArray) -> FloatArray:
    """Return samples (…, samples): means between 0 and 1 (…) plus about these deviations.

    A deviation (…, samples) is added to the mean, or on the scale of the angle arcsin √mean, on
    which shares near 0 and 1 vary like others: whichever leads farther. The mean of the samples is
    the mean given here; for that, samples are not cut where they pass 0 or 1.
    """
    mean = mean[..., None]
    is_inside = (mean > 0) & (mean < 1)
    share = np.where(is_inside, mean, 0.5)  # ½ only avoids a slope of 0: it is not used
    slope = 2 * np.sqrt(share * (1 - share))  # of a share, by its angle
    mean_angle = np.arcsin(np.sqrt(share))
    angle = mean_angle + deviations / slope
    angle = np.clip(angle, 0, np.pi / 2)
    by_angle = np.square(np.sin(angle)) - share
    leads_farther = np.abs(by_angle) > np.abs(deviations)
    changes = np.where(is_inside & leads_farther, by_angle, deviations)
    mean_change = changes.mean(axis=-1, keepdims=True)
    return mean + changes - mean_change


def scale_influence(
    influence: FloatArray, noise: FloatArray, inflation: float
) -> FloatArray:
    """Scale influences (…, groups) so that their squares add up to the variance.

    `noise` (…) is subtracted from the sum of the squares, and the rest is multiplied by
    `inflation`. Few groups estimate the variance, so it is widened to the 99th percentile of
    Student's t.
    """
    from scipy.special import ndtri, stdtrit

    groups = influence.shape[-1]
    variance = np.square(influence).sum(axis=-1)
    noise_share = noise / np.where(variance > 0, variance, 1.0)
    signal_share = np.maximum(1.0 - noise_share, MIN_SIGNAL)
    freedom = max(groups - 1, 1)
    widening = stdtrit(freedom, 0.99) / ndtri(0.99)
    factor = widening * np.sqrt(inflation * signal_share)
    return influence * factor[..., None]


def draw_errors(values: FloatArray) -> FloatArray:
    """Return numbers (…, batches) whose squares add up to the variance of the mean over draws.

    `values` is (…, draws); the means of batches of draws show how much the mean of all varies.
    """
    draws = values.shape[-1]
    batches = min(BATCHES, draws)
    size = draws // batches
    whole = values[..., : size * batches]
    by_batch = whole.reshape(*values.shape[:-1], batches, size)
    means = by_batch.mean(axis=-1)
    deviation = means - means.mean(axis=-1, keepdims=True)
    freedom = max(batches - 1, 1)
    return deviation / np.sqrt(batches * freedom)


def draw_multipliers(purpose: str, keys: Keys, protocol: Protocol) -> FloatArray:
    """Return normal random numbers (keys, samples) of mean 0, by seed, purpose and key alone."""
    # Two streams: a normal number is made of two uniform ones.
    bases = [
        streams.purpose_key(protocol.seed, f"{purpose} {number}") for number in range(2)
    ]
    normal = np.empty((len(keys), SAMPLES))
    streams.fill_normals(*bases, keys, normal)
    return normal - normal.mean(axis=1, keepdims=True)
