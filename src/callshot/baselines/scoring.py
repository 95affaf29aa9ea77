"""Scores of a baseline, one row per segment → the metrics of the centroid, and rows of BASELINES.

A baseline gives every query a score for every class, by a model that never saw the query's fold.
Scores of the common fold are ignored.

With the spread `total`, a row has an interval: what the trained model would score on other
recordings. In sample b, its queries weigh as those of the classifiers without training do. Training
again in every sample would take a thousand trainings, so other training sets are left out.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import polars as pl

from callshot.baselines.sequence_batches import BoolArray
from callshot.errors import InputError
from callshot.fewshot.dataset import EncoderDataset
from callshot.fewshot.episodes import Episodes, Split, make_splits
from callshot.fewshot.kernels.ranks import ClassTables
from callshot.fewshot.mean_interval import sample_constants
from callshot.fewshot.metrics import MetricSums, by_sample, group_classes
from callshot.fewshot.metrics import measure as measure_fold
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import UNIT, draw_units, group_recordings, units_without
from callshot.fewshot.sweep import (
    Categories,
    count_recordings,
    small_sample_inflation,
    widen_to_prediction,
)
from callshot.records import RANKING_METRICS, FloatArray, IntArray
from callshot.records.frames import BASELINES

Description = Mapping[str, str]  # kind, name and how
Metrics = dict[tuple[str, str], float]  # by scoring and metric

ALL_SHOTS = slice(None)  # of the sums of a sweep with one shot count


class Outputs(NamedTuple):
    """What a baseline that reads audio gives scores to: classes, or categories (`reduced` scoring).

    `targets` (rows, outputs) says which of them are true for a row of the episodes.
    """

    scoring: str
    names: tuple[str, ...]
    targets: BoolArray


def measure(
    episodes: Episodes, scores: FloatArray, categories: Categories = None
) -> Metrics:
    """Return the value of every scoring and metric of scores (rows, classes) of the episodes.

    AUROC is NaN where no class of any fold has one.
    """
    values = sum_metrics(episodes, scores, categories).values
    # Tables are (shots, samples): there is one of both.
    return {key: float(table[0, 0]) for key, table in values.items()}


def sum_metrics(
    episodes: Episodes,
    scores: FloatArray,
    categories: Categories = None,
    targets: BoolArray | None = None,
    units: IntArray | None = None,
) -> MetricSums:
    """Return the metrics of scores (rows, classes) in the form of a sweep with one shot.

    With `targets` (rows, outputs), scores are (rows, outputs) instead: several outputs may be true
    for a row, and an output without a positive in a fold has no value there. Without `units` there
    is one sample. `units` (samples, rows) are weights of the queries in multiples of UNIT: then
    there is a sample for each weighting, of AP and AUROC alone.
    """
    shape = episodes.relevant.shape if targets is None else targets.shape
    if scores.shape != shape:
        raise InputError(
            f"scores: expected shape {shape}, one score per row and class or output,"
            f" got {scores.shape}"
        )
    names = episodes.classes if targets is None else ("",) * shape[1]
    samples = 1 if units is None else len(units)
    sums = MetricSums(1, samples, names, categories)
    for split in make_splits(episodes):
        if targets is not None:
            relevant = np.ascontiguousarray(targets[split.rows].T)
            # Only accuracy and decisions use labels: meaningless where several outputs are true.
            label = relevant.argmax(axis=0)
            split = replace(split, label=label, relevant=relevant)
        table = np.ascontiguousarray(scores[split.rows].T, np.float64)
        has_nan = np.isnan(table).any(axis=0)
        rows_with_nan = split.rows[has_nan]
        if len(rows_with_nan) > 0:
            raise InputError(
                f"scores: row {rows_with_nan[0]} of the episodes: expected numbers, got NaN"
            )
        if units is None:
            decided = table.argmax(axis=0).astype(np.uint16)
            # As of one draw with one shot count: two axes of length 1 come first.
            metrics = measure_fold(split, table[None, None], decided[None, None])
            sums.open_fold(split)
            sums.add_decisions(ALL_SHOTS, metrics.decisions, metrics.tied)
            values = by_sample([metrics])
        else:
            weights = units[:, split.rows]  # (samples, queries)
            sums.open_fold(split, weights.T * UNIT)
            values = measure_rankings(split, table, weights)
        sums.add_values(ALL_SHOTS, values)
    sums.finish(draws=1)
    return sums


def baseline_frame(
    encoder_data: EncoderDataset,
    scores: FloatArray,
    protocol: Protocol,
    baseline: Description,
    outputs: Outputs | None = None,
) -> pl.DataFrame:
    """Return the rows of the BASELINES schema of one baseline, by scoring and ranking metric.

    `scores` are (rows, classes), `baseline` are the columns kind, name and how. A baseline that
    reads audio has `outputs`, scores (rows, outputs), and no encoder. The spread `total` of the
    protocol gives samples and an interval, the spread `shared` samples of the mean.
    """
    episodes = encoder_data.episodes
    categories = encoder_data.dataset.categories
    encoder = encoder_data.table.encoder
    targets = None
    if outputs is not None:
        targets = outputs.targets
        categories = None
        encoder = ""
    inputs = (episodes, scores, categories, targets)
    values = sum_metrics(*inputs).values
    samples = {}
    if "total" in protocol.spreads:
        units = draw_units(episodes, protocol, protocol.total_samples)
        samples = sum_metrics(*inputs, units).values
    mean_samples = {}
    if "shared" in protocol.spreads:
        keys, group = group_recordings(episodes)
        units = units_without(np.arange(len(keys)), group)
        # Sample n is without the queries of group n of recordings.
        without = sum_metrics(*inputs, units).values
        # No labelled set is drawn, so the value of each scoring and metric is a constant. Tables
        # are (shots, samples), with one shot.
        constants = np.array([table[0, 0] for table in values.values()])
        left_out = np.stack([without[key][0] for key in values])  # without each group
        losses = constants[:, None] - left_out
        samples_of_all = sample_constants(constants, losses, episodes, protocol)
        mean_samples = dict(zip(values, samples_of_all, strict=True))
    inflation = float(small_sample_inflation(count_recordings(episodes)).mean())
    rows = []
    for (scoring, metric), table in values.items():
        if metric not in RANKING_METRICS:
            continue
        value = table[0]  # at the one shot: an array of one sample
        row = {
            "corpus": encoder_data.dataset.corpus,
            "encoder": encoder,
            **baseline,
            "scoring": outputs.scoring if outputs else scoring,
            "metric": metric,
            "value": value[0],
            "p01": np.nan,
            "p99": np.nan,
            "samples": [],
            "mean_samples": mean_samples.get((scoring, metric), np.empty(0)).tolist(),
        }
        if samples:
            raw = samples[scoring, metric][0]
            widened = widen_to_prediction(raw, value, inflation)
            row["p01"], row["p99"] = np.percentile(widened, (1, 99))
            row["samples"] = widened.tolist()
        rows.append(row)
    return pl.DataFrame(rows, schema=dict(BASELINES))


def find_outputs(encoder_data: EncoderDataset) -> Outputs:
    """Return the outputs of a baseline that reads audio: the classes, or the categories if any."""
    episodes = encoder_data.episodes
    categories = encoder_data.dataset.categories
    if categories is None:
        return Outputs("all", episodes.classes, episodes.relevant)
    groups = group_classes(episodes.classes, categories)
    names = []
    targets = []
    for group in groups:
        first_class = episodes.classes[group[0]]
        names.append(categories[first_class])
        relevant = episodes.relevant[:, group]
        targets.append(relevant.any(axis=1))
    return Outputs("reduced", tuple(names), np.stack(targets, axis=1))


def measure_rankings(split: Split, table: FloatArray, units: IntArray) -> ClassTables:
    """Return AP and AUROC of scores (classes, queries) of a fold, (classes, samples).

    `units` (samples, queries) are whole weights of the queries. Classes without a positive, and the
    tables of decisions, are 0.
    """
    size = (len(ClassTables._fields), len(table), len(units))
    values = ClassTables(*np.zeros(size))
    for n in np.flatnonzero(split.positives):
        ranking = measure_ranking(table[n], split.relevant[n], units)
        values.ap[n], values.auroc[n] = ranking
    return values


def measure_ranking(
    scores: FloatArray, relevant: BoolArray, units: IntArray
) -> tuple[FloatArray, FloatArray]:
    """Return weighted AP and AUROC (NaN without a negative) of one ranking, each (samples,).

    `scores` and `relevant` (queries) are of one class, `units` (samples, queries) are whole weights
    of the queries. The ranking is the same in all samples, so it is sorted once.
    """
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    # The last query of each distinct score.
    is_last = np.append(ordered[1:] != ordered[:-1], True)
    weight = units[:, order]
    # Hits and misses, (samples, distinct scores): the weights of positives and of negatives down to
    # each distinct score, the highest first.
    positive_weight = weight * relevant[order]
    all_hits = np.cumsum(positive_weight, axis=1)
    all_queries = np.cumsum(weight, axis=1)
    all_misses = all_queries - all_hits
    hits = all_hits[:, is_last]
    misses = all_misses[:, is_last]
    new_hits = np.diff(hits, prepend=0)
    new_misses = np.diff(misses, prepend=0)
    precisions = hits / (hits + misses)
    precision = np.sum(new_hits * precisions, axis=1)
    # The weight of the negatives before a positive; those of equal score count half.
    above = misses - 0.5 * new_misses
    lost = np.sum(new_hits * above, axis=1)
    positives = hits[:, -1].astype(np.float64)
    negatives = misses[:, -1]
    pairs = positives * negatives
    known_pairs = np.where(pairs > 0, pairs, np.nan)
    ap = precision / positives
    auroc = 1.0 - lost / known_pairs
    return ap, auroc
