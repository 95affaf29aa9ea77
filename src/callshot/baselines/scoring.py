"""Scores of a baseline, one row per segment → the metrics of the centroid, and rows of BASELINES.

A baseline gives every query a score for every class, by a model that never saw the query's fold.
Rows of the common fold are no queries: their scores are ignored. Values come from the kernels of
the centroid.

With the spread `total`, a row has an interval: what the trained model would score on other
recordings. The model stays as it was trained. In each sample its queries weigh as those of the
classifiers without training do, so that sample b of all is paired. Training again in every sample
would take a thousand trainings, so other training sets are left out.
"""

from collections.abc import Mapping, Sequence

import numpy as np
import polars as pl

from callshot.baselines.sequence_batches import BoolArray
from callshot.errors import InputError
from callshot.fewshot.dataset import EncoderDataset
from callshot.fewshot.episodes import Episodes, make_splits
from callshot.fewshot.metrics import (
    MetricSums,
    auroc,
    average_precision,
    by_sample,
    group_classes,
)
from callshot.fewshot.metrics import measure as measure_fold
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import draw_units
from callshot.fewshot.sweep import (
    count_recordings,
    small_sample_inflation,
    widen_to_prediction,
)
from callshot.records import RANKING_METRICS, FloatArray, IntArray
from callshot.records.frames import BASELINES, make_frame

Categories = Mapping[str, str] | None  # of classes
Description = Mapping[str, str]  # kind, name and how
Groups = Mapping[str, Sequence[IntArray]]  # of outputs, by scoring
Metrics = dict[tuple[str, str], float]  # by scoring and metric
ROW_COLUMNS = ("scoring", "metric", "value", "p01", "p99", "samples")


def measure(
    episodes: Episodes, scores: FloatArray, categories: Categories = None
) -> Metrics:
    """Return the value of every scoring and metric; `scores` is (rows, classes).

    AUROC is NaN where no class of any fold has one.

    >>> from callshot.fewshot.folds import check_folds, count_classes
    >>> from callshot.fewshot.episodes import plan_episodes
    >>> from callshot.vectors import Vectors
    >>> label, fold = ["roar", "rumble"] * 2, np.array([0, 0, 1, 1])
    >>> vectors = [[0.0], [1.0]] * 2
    >>> table = Vectors.from_columns("mine", vectors, "abcd", "wxyz", label, [()] * 4, fold)
    >>> folds = check_folds(table.recording, fold)
    >>> episodes = plan_episodes(table, folds, count_classes(label, folds))
    >>> scores = np.array([[2.0, 1.0], [3.0, 1.0], [2.0, 5.0], [2.0, 0.0]])
    >>> values = measure(episodes, scores)  # rows: roar, roar, rumble, rumble
    >>> values["all", "map"], values["all", "auroc"], values["all", "accuracy"]
    (0.75, 0.625, 0.75)
    """
    values = sum_metrics(episodes, scores, categories).values
    return {key: float(table[0, 0]) for key, table in values.items()}


def sum_metrics(
    episodes: Episodes, scores: FloatArray, categories: Categories = None
) -> MetricSums:
    """Return everything that a sweep counts: one row of shots, one sample."""
    _check_shape(scores, episodes.relevant)
    sums = MetricSums(1, 1, episodes.classes, categories)
    for split in make_splits(episodes):
        fold_scores = scores[split.rows]
        for row in split.rows[np.isnan(fold_scores).any(axis=1)]:
            raise InputError(
                f"scores: row {row} of the episodes: expected numbers, got NaN"
            )
        table = np.ascontiguousarray(fold_scores.T, np.float64)[None, None]
        decided = table.argmax(axis=2).astype(np.uint16)
        metrics = measure_fold(split, table, decided)
        sums.open_fold(split)
        sums.count(slice(None), metrics.decisions, metrics.tied)
        sums.add(slice(None), by_sample([metrics]))
    sums.finish(1)
    return sums


def _check_shape(scores: FloatArray, targets: BoolArray) -> None:
    if scores.shape != targets.shape:
        raise InputError(
            f"scores: expected shape {targets.shape}, one score per row and class or output,"
            f" got {scores.shape}"
        )


def measure_outputs(
    targets: BoolArray, fold: IntArray, scores: FloatArray
) -> dict[str, float]:
    """Return mAP and AUROC of outputs that may be true together, such as categories.

    All three are by row, `targets` and `scores` also by output. Means are over outputs, then folds.
    An output without a positive in a fold is left out of that fold's means; one with positives
    alone is left out of its AUROC, and has an AP of 1. A fold without values is left out; NaN is
    returned if none has any. Rows of the common fold are ignored.

    >>> targets = np.array([[True, False], [False, True], [True, True], [False, True]])
    >>> scores = np.array([[2.0, 1.0], [1.0, 2.0], [0.0, 1.0], [3.0, 4.0]])
    >>> measure_outputs(targets, np.array([0, 0, 1, 1]), scores)
    {'map': 0.875, 'auroc': 0.5}
    """
    _check_shape(scores, targets)

    def mean(values: list[float]) -> float:
        """Return the mean of the values that are defined."""
        defined = [value for value in values if not np.isnan(value)]
        return float(np.mean(defined)) if defined else float("nan")

    means = {}
    for name, metric in {"map": average_precision, "auroc": auroc}.items():
        of_folds = []
        for number in range(int(fold.max()) + 1):
            rows = fold == number
            fold_scores = scores[rows]
            fold_targets = targets[rows]
            outputs = np.flatnonzero(fold_targets.any(axis=0))
            values = [metric(fold_scores[:, n], fold_targets[:, n]) for n in outputs]
            of_folds.append(mean(values))
        means[name] = mean(of_folds)
    return means


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
    groups = MetricSums(1, 1, episodes.classes, categories).groups
    inputs = (encoder_data, protocol, baseline)
    return _make_rows(*inputs, values, episodes.relevant, scores, groups)


def frame_of_outputs(
    encoder_data: EncoderDataset,
    scores: FloatArray,
    protocol: Protocol,
    baseline: Description,
) -> pl.DataFrame:
    """Return the rows of a baseline that reads audio; `scores` is (rows, outputs)."""
    scoring, names, targets = find_outputs(encoder_data)
    measured = measure_outputs(targets, encoder_data.episodes.fold, scores)
    values = {(scoring, metric): measured[metric] for metric in RANKING_METRICS}
    groups = {scoring: [np.array([n]) for n in range(len(names))]}
    inputs = (encoder_data, protocol, baseline)
    frame = _make_rows(*inputs, values, targets, scores, groups)
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
    first = [episodes.classes[group[0]] for group in groups]
    names = tuple(categories[name] for name in first)
    targets = [episodes.relevant[:, group].any(axis=1) for group in groups]
    return "reduced", names, np.stack(targets, axis=1)


def _make_rows(
    encoder_data: EncoderDataset,
    protocol: Protocol,
    baseline: Description,
    values: Metrics,
    targets: BoolArray,
    scores: FloatArray,
    groups: Groups,
) -> pl.DataFrame:
    """Return a row for every scoring and ranking metric; NaN for an interval without samples."""
    episodes = encoder_data.episodes
    samples = {}
    if "total" in protocol.spreads:
        # No labelled set is drawn: the spread `shared` of a trained baseline is a constant.
        inflation = float(small_sample_inflation(count_recordings(episodes)).mean())
        raw = resample(episodes, targets, scores, groups, protocol)
        for value_key, column in raw.items():
            plain = np.array([values[value_key]])
            samples[value_key] = widen_to_prediction(column, plain, inflation)
    rows = []
    for (scoring, metric), value in values.items():
        if metric in RANKING_METRICS:
            kept = samples.get((scoring, metric), np.empty(0))
            limits = [np.nan, np.nan]
            if kept.size:
                limits = np.percentile(kept, (1, 99)).tolist()
            rows.append((scoring, metric, value, *limits, kept.tolist()))
    columns = zip(ROW_COLUMNS, map(list, zip(*rows, strict=True)), strict=True)
    key = {
        "corpus": encoder_data.dataset.corpus,
        "encoder": encoder_data.table.encoder,
        **baseline,
    }
    return make_frame(BASELINES, dict(columns), key)


def resample(
    episodes: Episodes,
    targets: BoolArray,
    scores: FloatArray,
    groups: Groups,
    protocol: Protocol,
) -> dict[tuple[str, str], FloatArray]:
    """Return raw samples of mAP and AUROC of every scoring.

    `targets` and `scores` are (rows, outputs). The value of an output is its mean over folds,
    weighted by the mean weight of its positives; a fold without a positive has none. Outputs are
    averaged inside each group of a scoring first. Those without a value in any fold are left out.
    """
    units = draw_units(episodes, protocol, protocol.total_samples)
    size = (targets.shape[1], len(RANKING_METRICS), len(units))
    sums = np.zeros(size)
    shares = np.zeros(size)
    for number in range(episodes.folds):
        rows = np.flatnonzero(episodes.fold == number)
        for n in np.flatnonzero(targets[rows].any(axis=0)):
            target = targets[rows, n]
            weights = units[:, rows]
            ranking = measure_ranking(scores[rows, n], target, weights)
            metrics = np.array(ranking)
            share = units[:, rows[target]].mean(axis=1)
            sums[n] += share * np.nan_to_num(metrics)
            shares[n] += share * ~np.isnan(metrics)
    shares[shares == 0] = np.nan
    table = sums / shares
    samples = {}
    for number, metric in enumerate(RANKING_METRICS):
        values = table[:, number]
        is_defined = np.asarray(~np.isnan(values).any(axis=1))
        for scoring, members in groups.items():
            defined = [group[is_defined[group]] for group in members]
            means = [values[group].mean(axis=0) for group in defined if group.size]
            nothing = np.full(len(units), np.nan)
            samples[scoring, metric] = np.mean(means, axis=0) if means else nothing
    return samples


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
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    is_other = ordered[1:] != ordered[:-1]
    is_last = np.append(is_other, True)
    weight = units[:, order]
    # The weights of positives and of negatives down to each distinct score, the highest first.
    all_hits = np.cumsum(weight * relevant[order], axis=1)
    all_misses = np.cumsum(weight, axis=1) - all_hits
    hits = all_hits[:, is_last]
    misses = all_misses[:, is_last]
    new_hits = np.diff(hits, prepend=0)
    new_misses = np.diff(misses, prepend=0)
    precisions = hits / (hits + misses)
    precision = np.sum(new_hits * precisions, axis=1)
    above = misses - 0.5 * new_misses
    lost = np.sum(new_hits * above, axis=1)
    positives = hits[:, -1].astype(np.float64)
    pairs = positives * misses[:, -1]
    known_pairs = np.where(pairs > 0, pairs, np.nan)
    return precision / positives, 1.0 - lost / known_pairs
