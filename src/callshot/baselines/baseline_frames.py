"""Scores of a baseline that is trained on all labels → rows of the BASELINES schema.

With the spread `total`, a row has an interval: what the trained model would score on other
recordings.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import polars as pl

from callshot.baselines.scoring import Metrics, measure, measure_outputs
from callshot.baselines.sequence_batches import BoolArray
from callshot.baselines.weighted_scoring import (
    Samples,
    predict_samples,
    resample_classes,
    resample_outputs,
)
from callshot.fewshot.accumulate import group_classes
from callshot.fewshot.protocol import Protocol
from callshot.records import RANKING_METRICS, FloatArray
from callshot.records.frames import BASELINES, make_frame
from callshot.tables.dataset import EncoderDataset

Description = Mapping[str, str]  # kind, name and how


def frame_of_classes(
    part: EncoderDataset, scores: FloatArray, protocol: Protocol, baseline: Description
) -> pl.DataFrame:
    """Return the rows of a baseline with one score per class; `scores` is (rows, classes)."""
    episodes = part.episodes
    categories = part.dataset.categories
    values = measure(episodes, scores, categories)
    samples = {}
    if "total" in protocol.spreads:
        raw = resample_classes(episodes, scores, protocol, categories)
        samples = predict_samples(raw, values, episodes)
    return _make_rows(part, values, samples, baseline)


def frame_of_outputs(
    part: EncoderDataset, scores: FloatArray, protocol: Protocol, baseline: Description
) -> pl.DataFrame:
    """Return the rows of a baseline that reads audio; `scores` is (rows, outputs)."""
    episodes = part.episodes
    scoring, _, targets = find_outputs(part)
    measured = measure_outputs(targets, episodes.fold, scores)
    values = {(scoring, metric): measured[metric] for metric in RANKING_METRICS}
    samples = {}
    if "total" in protocol.spreads:
        by_metric = resample_outputs(episodes, targets, scores, protocol)
        raw = {(scoring, metric): by_metric[metric] for metric in RANKING_METRICS}
        samples = predict_samples(raw, values, episodes)
    frame = _make_rows(part, values, samples, baseline)
    return frame.with_columns(encoder=pl.lit(""))


def find_outputs(part: EncoderDataset) -> tuple[str, tuple[str, ...], BoolArray]:
    """Return the scoring, names and targets (rows, outputs) of a baseline that reads audio."""
    episodes = part.episodes
    categories = part.dataset.categories
    if categories is None:
        return "all", episodes.classes, episodes.relevant
    groups = group_classes(episodes.classes, categories)
    names = tuple(categories[episodes.classes[group[0]]] for group in groups)
    targets = [episodes.relevant[:, group].any(axis=1) for group in groups]
    return "reduced", names, np.stack(targets, axis=1)


def _make_rows(
    part: EncoderDataset, values: Metrics, samples: Samples, baseline: Description
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
    return make_frame(BASELINES, columns, encoder_key(part) | dict(baseline))


def _interval(samples: FloatArray) -> tuple[float, float]:
    """Return the 1st and 99th percentile; NaN without samples."""
    if not samples.size:
        return np.nan, np.nan
    low, high = np.percentile(samples, (1, 99))
    return float(low), float(high)


def encoder_key(part: EncoderDataset) -> dict[str, Any]:
    """Return the columns that name the corpus and the encoder."""
    return {"corpus": part.dataset.corpus, "encoder": part.table.encoder}
