"""Episodes and a protocol → the values of one spread at every k.

One fold is processed at a time, so that no array is larger than a fold needs.

Samples of `total` become predictions of what one labelled set would score elsewhere. A new corpus
and a new labelled set vary as the samples do. Our own estimate of the mean has an error too: that
of `total` without the part that comes from the labelled set, which `shared` measures. Both
variances add up, so the deviations of `total` are stretched.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from callshot.fewshot.accumulate import MetricSums, WeightedMetricSums
from callshot.fewshot.device import Gpu, run_with_fallback
from callshot.fewshot.engine import Engine
from callshot.fewshot.episodes import Episodes, Mask, make_splits
from callshot.fewshot.per_query_resampling import sweep_per_query
from callshot.fewshot.shared_resampling import sweep_pool, sweep_shared
from callshot.fewshot.total_resampling import Reweighting, reweight, sweep_total
from callshot.records import FloatArray, IntArray

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
    from callshot.fewshot import gpu_sweep

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
        from callshot.fewshot import gpu_sweep

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
