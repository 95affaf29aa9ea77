"""Scores of a baseline that is trained on all labels → rows of BASELINES and REFINEMENT.

With the spread `total`, a row has an interval: what the trained model would score on other
recordings. The model stays as it was trained. In each sample its queries weigh as those of the
classifiers without training do, so that sample b of all is paired. Training again in every sample
would take a thousand trainings, so other training sets are left out.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from callshot.baselines.centroid_to_logistic import Refinement
from callshot.baselines.scoring import Categories, Metrics, measure, measure_outputs
from callshot.baselines.sequence_batches import BoolArray
from callshot.fewshot.dataset import EncoderDataset
from callshot.fewshot.episodes import Episodes, Split, make_splits
from callshot.fewshot.metrics import WeightedMetricSums, group_classes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import (
    UNIT,
    count_recordings,
    draw_units,
    small_sample_inflation,
    widen_to_prediction,
)
from callshot.records import RANKING_METRICS, FloatArray, IntArray
from callshot.records.frames import BASELINES, REFINEMENT, concat_frames, make_frame

Description = Mapping[str, str]  # kind, name and how
Samples = dict[tuple[str, str], FloatArray]  # by scoring and metric


def frame_of_classes(
    encoder_data: EncoderDataset,
    scores: FloatArray,
    protocol: Protocol,
    baseline: Description,
) -> pl.DataFrame:
    """Return the rows of a baseline with one score per class; `scores` is (rows, classes)."""
    episodes = encoder_data.episodes
    categories = encoder_data.dataset.categories
    values = measure(episodes, scores, categories)
    samples = {}
    if "total" in protocol.spreads:
        raw = resample_classes(episodes, scores, protocol, categories)
        samples = widen_samples(raw, values, episodes)
    return _make_rows(encoder_data, values, samples, baseline)


def frame_of_outputs(
    encoder_data: EncoderDataset,
    scores: FloatArray,
    protocol: Protocol,
    baseline: Description,
) -> pl.DataFrame:
    """Return the rows of a baseline that reads audio; `scores` is (rows, outputs)."""
    episodes = encoder_data.episodes
    scoring, _, targets = find_outputs(encoder_data)
    measured = measure_outputs(targets, episodes.fold, scores)
    values = {(scoring, metric): measured[metric] for metric in RANKING_METRICS}
    samples = {}
    if "total" in protocol.spreads:
        by_metric = resample_outputs(episodes, targets, scores, protocol)
        raw = {(scoring, metric): by_metric[metric] for metric in RANKING_METRICS}
        samples = widen_samples(raw, values, episodes)
    frame = _make_rows(encoder_data, values, samples, baseline)
    return frame.with_columns(encoder=pl.lit(""))


def find_outputs(
    encoder_data: EncoderDataset,
) -> tuple[str, tuple[str, ...], BoolArray]:
    """Return the scoring, names and targets (rows, outputs) of a baseline that reads audio."""
    episodes = encoder_data.episodes
    categories = encoder_data.dataset.categories
    if categories is None:
        return "all", episodes.classes, episodes.relevant
    groups = group_classes(episodes.classes, categories)
    names = tuple(categories[episodes.classes[group[0]]] for group in groups)
    targets = [episodes.relevant[:, group].any(axis=1) for group in groups]
    return "reduced", names, np.stack(targets, axis=1)


def refinement_frame(encoder_data: EncoderDataset, path: Refinement) -> pl.DataFrame:
    """Return the rows of the path from the centroid, for every scoring, ranking metric and step."""
    key = encoder_key(encoder_data) | {"temperature": float(np.mean(path.temperature))}
    frames = []
    for (scoring, metric), values in path.values.items():
        if metric in RANKING_METRICS:
            columns = {"step": path.steps, "value": values}
            metric_key = key | {"scoring": scoring, "metric": metric}
            frames.append(make_frame(REFINEMENT, columns, metric_key))
    return concat_frames(frames, REFINEMENT)


def _make_rows(
    encoder_data: EncoderDataset,
    values: Metrics,
    samples: Samples,
    baseline: Description,
) -> pl.DataFrame:
    """Return a row for every scoring and ranking metric."""
    rows = [key for key in values if key[1] in RANKING_METRICS]
    kept = [samples.get(key, np.empty(0)) for key in rows]
    percentiles = [_interval(one) for one in kept]
    columns = {
        "scoring": [scoring for scoring, _ in rows],
        "metric": [metric for _, metric in rows],
        "value": [values[key] for key in rows],
        "p01": [low for low, _ in percentiles],
        "p99": [high for _, high in percentiles],
        "samples": [one.tolist() for one in kept],
    }
    return make_frame(BASELINES, columns, encoder_key(encoder_data) | dict(baseline))


def _interval(samples: FloatArray) -> tuple[float, float]:
    """Return the 1st and 99th percentile; NaN without samples."""
    if not samples.size:
        return np.nan, np.nan
    low, high = np.percentile(samples, (1, 99))
    return float(low), float(high)


def encoder_key(encoder_data: EncoderDataset) -> dict[str, Any]:
    """Return the columns that name the corpus and the encoder."""
    return {
        "corpus": encoder_data.dataset.corpus,
        "encoder": encoder_data.table.encoder,
    }


def widen_samples(raw: Samples, values: Metrics, episodes: Episodes) -> Samples:
    """Return raw samples around the plain values, with the error of these values added.

    No labelled set is drawn: the spread `shared` of a trained baseline is a constant.
    """
    inflation = float(small_sample_inflation(count_recordings(episodes)).mean())
    predicted = {}
    for key, samples in raw.items():
        plain = np.array([values[key]])
        predicted[key] = widen_to_prediction(
            samples, plain, inflation=inflation, bounded=True
        )
    return predicted


def resample_classes(
    episodes: Episodes,
    scores: FloatArray,
    protocol: Protocol,
    categories: Categories = None,
) -> Samples:
    """Return raw samples of every scoring and metric; `scores` is (rows, classes)."""
    units = draw_units(episodes, protocol, protocol.total_samples)
    sums = WeightedMetricSums(1, len(units), episodes.classes, categories)
    for split in make_splits(episodes):
        units_of_fold = units[:, split.rows]
        weights = np.asarray(units_of_fold.T * UNIT, np.float64)
        sums.add_weights(split, weights)
        metrics = _measure_split(split, scores[split.rows], units_of_fold)
        sums.add_weighted(0, split, *metrics)
        sums.close_fold(split)
    sums.finish(len(units))
    return {key: table[0] for key, table in sums.values.items()}


def _measure_split(
    split: Split, scores: FloatArray, units: IntArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return AP, AUROC and weights of hits in one fold, (classes, samples).

    `scores` is (queries, classes).
    """
    decided = scores.argmax(axis=1)
    is_hit = split.relevant[decided, np.arange(len(decided))]
    ap = []
    auroc = []
    hits = []
    for n, relevant in enumerate(split.relevant):
        class_ap, class_auroc = measure_ranking(scores[:, n], relevant, units)
        ap.append(class_ap)
        auroc.append(class_auroc)
        is_class_hit = is_hit & (split.label == n)
        hits.append(units[:, is_class_hit].sum(axis=1) * UNIT)
    return np.array(ap), np.array(auroc), np.array(hits)


def measure_ranking(
    scores: FloatArray, relevant: BoolArray, units: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return weighted AP and AUROC (NaN without a negative) of one ranking in every sample.

    `units` are whole weights, (samples, queries). The ranking is the same in all samples, so it is
    sorted once.

    >>> units = np.array([[1, 1, 1], [1, 3, 1]])
    >>> measure_ranking(np.array([3.0, 2.0, 1.0]), np.array([True, False, True]), units)
    (array([0.83333333, 0.7       ]), array([0.5, 0.5]))
    """
    hits, misses = _weigh_levels(scores, relevant, units)
    new_hits = np.diff(hits, prepend=0)
    new_misses = np.diff(misses, prepend=0)
    precision = np.sum(new_hits * (hits / (hits + misses)), axis=1)
    lost = np.sum(new_hits * (misses - 0.5 * new_misses), axis=1)
    positives = hits[:, -1].astype(np.float64)
    pairs = positives * misses[:, -1]
    known_pairs = np.where(pairs > 0, pairs, np.nan)
    return precision / positives, 1.0 - lost / known_pairs


def _weigh_levels(
    scores: FloatArray, relevant: BoolArray, units: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the weight of positives and of negatives down to each distinct score.

    Both are (samples, distinct scores), the highest first.
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    weight = units[:, order]
    hits = np.cumsum(weight * relevant[order], axis=1)
    misses = np.cumsum(weight, axis=1) - hits
    return hits[:, is_last], misses[:, is_last]


def resample_outputs(
    episodes: Episodes, targets: BoolArray, scores: FloatArray, protocol: Protocol
) -> dict[str, FloatArray]:
    """Return raw samples of mAP and AUROC of outputs that may be true together.

    `targets` and `scores` are (rows, outputs). As for classes, the value of an output is its mean
    over folds, weighted by the mean weight of its positives; a fold without a positive has none.
    """
    units = draw_units(episodes, protocol, protocol.total_samples)
    outputs = []
    for target, column in zip(targets.T, scores.T, strict=True):
        outputs.append(_resample_output(target, column, episodes.fold, units))
    table = np.array(outputs)
    means = {}
    for number, metric in enumerate(RANKING_METRICS):
        samples = table[:, number]
        is_defined = ~np.isnan(samples).any(axis=1)
        means[metric] = np.full(len(units), np.nan)
        if is_defined.any():
            means[metric] = samples[is_defined].mean(axis=0)
    return means


def _resample_output(
    target: BoolArray, scores: FloatArray, fold: IntArray, units: IntArray
) -> FloatArray:
    """Return AP and AUROC of one output, (2, samples); NaN where no fold has a value."""
    sums = np.zeros((len(RANKING_METRICS), len(units)))
    shares = np.zeros(sums.shape)
    for number in range(int(fold.max()) + 1):
        rows = np.flatnonzero(fold == number)
        positives = rows[target[rows]]
        if not positives.size:
            continue
        ranking = measure_ranking(scores[rows], target[rows], units[:, rows])
        metrics = np.array(ranking)
        share = units[:, positives].mean(axis=1)
        sums += share * np.nan_to_num(metrics)
        shares += share * ~np.isnan(metrics)
    return sums / np.where(shares > 0, shares, np.nan)
