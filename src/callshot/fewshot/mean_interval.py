"""Values of the draws of `shared` → samples of their mean, as other recordings would move it.

The spread `total` says what one labelled set will score. Which of two encoders is better is another
question: it is about the mean over all labelled sets, and the only uncertainty is that of the
recordings. The mean depends on a recording in two ways, because its calls are queries, and
examples of others. The influence of a recording is what the mean loses without it:

queries   each draw is measured again without the queries of one recording, in turn
examples  the mean of all draws, minus the mean of those whose supports lack its calls; an exemplar
          that is in a share p of the supports has the influence cov(count, score) / (1 − p)

The sum of the squares of the influences is the jackknife estimate of the variance. Many recordings
are put into groups at random, so that each group is left out in enough draws. Where a class gives
its whole pool, no draw lacks its calls: its influence is the one at the largest k below.

A sample is the mean plus the influences times random numbers, which depend on the seed and the
recording alone. So samples are paired over encoders, classifiers and baselines, and their
differences have the influences of the difference.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from callshot.fewshot.episodes import Engine, Episodes, Keys, blocks, make_splits
from callshot.fewshot.kernels import streams
from callshot.fewshot.kernels.supports import Pools, Sampling, add_influence
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import group_recordings, left_out_groups
from callshot.records import FloatArray, IntArray
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
MIN_SIGNAL = 0.1  # share of a variance that is left at least when noise is subtracted

Key = tuple[str, str]


class MeanSamples(NamedTuple):
    """Samples of the mean: `values` by scoring and metric, (shots, samples).

    `ap` are those of the AP of each class, (shots, classes, samples).
    """

    values: dict[Key, FloatArray]
    ap: FloatArray


def sample_means(engine: Engine, sums: MetricSums) -> MeanSamples | None:
    """Return samples of the mean over labelled sets, from a sweep of `shared` with `left_out`.

    They are of the shots of the protocol. None if there are too few draws.
    """
    if sums.left_out is None:
        return None
    episodes = engine.episodes
    shots = np.array(engine.protocol.shots, np.int64)
    rows = slice(0, len(shots))
    values = _stack(sums, rows)
    without = _stack(sums.left_out, rows)
    group_key, _ = group_recordings(episodes)
    by_query, query_noise = query_influence(values, without, len(group_key))
    by_support, support_noise = support_influence(engine, shots, values)
    influence = by_query + by_support
    noise = query_noise + support_noise
    deviations = sample_deviations(influence, noise, group_key, engine.protocol)
    deviations += sample_draw_error(values, engine.protocol)
    # Samples without deviations have no interval: nothing is known about other recordings.
    samples = values.mean(axis=2, keepdims=True) + np.nan_to_num(deviations)
    keys = list(sums.values)
    by_key = {key: samples[:, v] for v, key in enumerate(keys)}
    return MeanSamples(by_key, samples[:, len(keys) :])


def mean_frame(key: Mapping[str, str], k: Shots, means: MeanSamples | None) -> Frame:
    """Return samples of the mean as rows of the VALUES schema, with the spread `mean`.

    `key` has the corpus, encoder and classifier. Without samples there are no rows.
    """
    if means is None or len(k) == 0:
        return empty_frame(VALUES)
    frames = []
    for (scoring, metric), samples in means.values.items():
        constants = {**key, "spread": MEAN, "scoring": scoring, "metric": metric}
        frames.append(values_frame(constants, np.array(k), samples))
    return pl.concat(frames)


def _stack(sums: Any, rows: slice) -> FloatArray:
    """Return the values of all metrics, then the AP of all classes, (shots, values, samples)."""
    tables = [table[rows, None] for table in sums.values.values()]
    return np.concatenate([*tables, sums.per_class["map"][rows]], axis=1)


def query_influence(
    values: FloatArray, without: FloatArray, groups: int
) -> tuple[FloatArray, FloatArray]:
    """Return what the mean loses without the queries of each group, and the noise of that.

    `values` is (shots, values, draws); `without` are the values of the same draws, of each in turn,
    without the queries of one group. The result is (shots, values, groups), and the variance that
    the limited number of draws adds to the sum of squares, (shots, values).
    """
    repeats = without.shape[2] // values.shape[2]
    loss = np.repeat(values, repeats, axis=2) - without
    group = left_out_groups(without.shape[2], groups)
    influence = np.empty((*loss.shape[:2], groups))
    noise = np.zeros(loss.shape[:2])
    for number in range(groups):
        own = loss[:, :, group == number]
        count = own.shape[2]
        influence[:, :, number] = own.mean(axis=2)
        noise += own.var(axis=2) / max(count - 1, 1)
    return influence, noise


def support_influence(
    engine: Engine, shots: IntArray, values: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return what the mean loses without each group in supports, and the noise of that.

    `values` is (shots, values, draws), the results are as those of `query_influence`. They are NaN
    where a class gives its whole pool at every k up to there.
    """
    episodes = engine.episodes
    draws = values.shape[2]
    deviation = values - values.mean(axis=2, keepdims=True)
    by_draw = np.ascontiguousarray(deviation.transpose(2, 0, 1))
    group_key, group = group_recordings(episodes)
    sampling = Sampling(
        episodes.class_key,
        shots,
        engine.protocol.distinct,
        episodes.members,
        episodes.class_start,
        np.empty(0, bool),
    )
    pools = plan_pools(episodes, shots, engine.protocol.distinct)
    base = streams.purpose_key(engine.protocol.seed, "shared")
    classes = len(episodes.classes)

    def add(span: slice) -> tuple[FloatArray, FloatArray]:
        """Return the sums over some draws: with the values, and of squared weights."""
        out = np.zeros((len(shots), classes, len(group_key), values.shape[1]))
        power = np.zeros((len(shots), classes))
        inputs = (sampling, episodes.class_start, group, base, span.start, pools)
        add_influence(*inputs, by_draw[span], out, power)
        return out, power

    tasks = [partial(add, span) for span in blocks(draws, DRAWS_PER_TASK)]
    sums, power = (sum(parts) / draws for parts in zip(*engine.run(tasks), strict=True))
    # A covariance of independent numbers has the product of their variances, over the draws.
    variance = power - expected_power(episodes, shots, pools)
    noise = variance[:, :, None] * values.var(axis=2)[:, None] / draws
    # Where a class always gives its whole pool, it has the influence at the k before.
    for s, n in zip(*np.nonzero(power == 0), strict=True):
        sums[s, n] = sums[s - 1, n] if s > 0 else np.nan
        noise[s, n] = noise[s - 1, n] if s > 0 else np.nan
    return sums.sum(axis=1).transpose(0, 2, 1), noise.sum(axis=1)


def plan_pools(episodes: Episodes, shots: IntArray, distinct: bool) -> Pools:
    """Return what can be drawn in each fold, and how covariances with counts become influences.

    In a fold a covariance is divided by 1 − p, where a call is in a share p of the supports of k
    calls. Folds are averaged over those in which the call can be drawn, and in which a support
    leaves out some of the pool.
    """
    splits = make_splits(episodes)
    outside = np.array([split.outside for split in splits])  # (folds, rows)
    pool = np.array([split.pool_sizes for split in splits])[:, None]
    share = shots[:, None] / pool  # (folds, shots, classes)
    if not distinct:
        share = np.zeros(share.shape)
    varies = share < 1
    drawn = varies.sum(axis=1)
    first_shots = np.concatenate([[0], shots])
    possible = outside.sum(axis=0)[:, None]
    counts = outside[:, None] & varies[:, :, episodes.label]
    varying = np.maximum(counts.sum(axis=0).T, 1)  # (rows, shots)
    return Pools(
        outside=outside,
        steps=first_shots[drawn],
        drawn=drawn,
        scale=varies / np.where(varies, 1.0 - share, 1.0),
        share=np.ascontiguousarray(possible / varying**2),
    )


def expected_power(episodes: Episodes, shots: IntArray, pools: Pools) -> FloatArray:
    """Return the sum of the squared mean weights of the calls of each class, (shots, classes).

    A call is k / pool times in a support, on average, where it can be drawn.
    """
    pool = np.array([split.pool_sizes for split in make_splits(episodes)])[:, None]
    counts = shots[:, None] / pool  # (folds, shots, classes)
    scaled = counts * pools.scale
    by_fold = scaled[:, :, episodes.label]
    by_row = np.einsum("fr,fsr->rs", pools.outside, by_fold)
    squares = np.square(by_row * pools.share)
    classes = np.arange(len(episodes.classes))
    is_class = episodes.label == classes[:, None]
    by_class = is_class.astype(float) @ squares
    return by_class.T


def sample_deviations(
    influence: FloatArray, noise: FloatArray, group_key: Keys, protocol: Protocol
) -> FloatArray:
    """Return deviations from the mean with the variance of the influences less the noise.

    `influence` is (…, groups), `noise` (…), the result (…, samples). The variance is an estimate by
    few groups, so the deviations are widened to the 99th percentile of Student's t.
    """
    from scipy.special import ndtri, stdtrit

    groups = len(group_key)
    variance = np.square(influence).sum(axis=-1)
    share = 1.0 - noise / np.where(variance > 0, variance, 1.0)
    jackknife = groups / max(groups - 1, 1)
    widening = stdtrit(max(groups - 1, 1), 0.99) / ndtri(0.99)
    factor = widening * np.sqrt(jackknife * np.maximum(share, MIN_SIGNAL))
    multipliers = draw_multipliers("mean", group_key, protocol)
    return (influence * factor[..., None]) @ multipliers


def sample_draw_error(values: FloatArray, protocol: Protocol) -> FloatArray:
    """Return deviations of the size that the mean of so many draws has itself.

    `values` is (…, draws), the result (…, samples). Encoders share the draws, and so these.
    """
    draws = values.shape[-1]
    batches = min(BATCHES, draws)
    size = draws // batches
    whole = values[..., : size * batches]
    means = whole.reshape(*values.shape[:-1], batches, size).mean(axis=-1)
    deviation = means - means.mean(axis=-1, keepdims=True)
    scale = np.sqrt(batches * max(batches - 1, 1))
    numbers = np.arange(batches, dtype=np.uint64)
    return (deviation / scale) @ draw_multipliers("mean draws", numbers, protocol)


def draw_multipliers(purpose: str, keys: Keys, protocol: Protocol) -> FloatArray:
    """Return normal random numbers, (keys, samples), by seed, purpose and key (Box and Muller)."""
    pair = np.empty((2, SAMPLES, len(keys)))
    for number, table in enumerate(pair):
        base = streams.purpose_key(protocol.seed, f"{purpose} {number}")
        streams.fill_exponentials(base, keys, 0, table)
    normal = np.sqrt(2.0 * pair[0]) * np.cos(2.0 * np.pi * np.exp(-pair[1]))
    centred = normal - normal.mean(axis=0)
    return centred.T
