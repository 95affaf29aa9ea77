"""The sums of one sweep → data frames: curves, samples, classes, confusion, ties."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import polars as pl

from callshot.fewshot.episodes import Episodes, make_splits
from callshot.fewshot.folds import complete_shots, new_exemplars
from callshot.fewshot.metrics import MetricSums
from callshot.records import (
    METRIC_NAMES,
    ClassCount,
    IntArray,
)
from callshot.records.frames import (
    CONFUSION,
    CURVE,
    PER_CLASS,
    TIES,
    Frame,
    make_frame,
    summarise_samples,
    values_frame,
)

Key = Mapping[str, str]
"""Corpus, encoder, classifier and spread."""


def summarise_sweep(
    key: Key,
    k: IntArray,
    sums: MetricSums,
    counts: Sequence[ClassCount],
) -> dict[str, Frame]:
    """Return the frames `curve`, `values` and `per_class` of one sweep."""
    last = complete_shots(counts)
    points = {
        "k": k,
        "complete": k <= last,
        "new_exemplars": [new_exemplars(counts, shots) for shots in k],
        "ties": sums.tied.sum(axis=1),
    }
    curves = []
    values = []
    per_class = []
    for (scoring, metric), samples in sums.values.items():
        constants = {**key, "scoring": scoring, "metric": metric}
        columns = points | summarise_samples(samples)
        columns["chance"] = sums.chance_level(scoring, metric)
        curves.append(make_frame(CURVE, columns, constants))
        values.append(values_frame(constants, k, samples))
    for metric, samples in sums.per_class.items():
        low, high = np.percentile(samples, (1, 99), axis=2)
        columns = _class_columns(
            k, sums.classes, mean=samples.mean(axis=2), p01=low, p99=high
        )
        constants = {**key, "scoring": "all", "metric": metric}
        per_class.append(make_frame(PER_CLASS, columns, constants))
    return {
        "curve": pl.concat(curves),
        "values": pl.concat(values),
        "per_class": pl.concat(per_class),
    }


def confusion_frame(key: Key, k: IntArray, sums: MetricSums) -> Frame:
    """Return every cell of the confusion matrix at every k."""
    names = list(sums.classes)
    count = sums.decisions
    row_sum = count.sum(axis=2, keepdims=True)
    columns = {
        "k": np.repeat(k, len(names) ** 2),
        "true": np.repeat(names, len(names)).tolist() * len(k),
        "predicted": names * (len(names) * len(k)),
        "count": count.ravel(),
        "row_sum": np.broadcast_to(row_sum, count.shape).ravel(),
        "recall": (count / np.where(row_sum > 0, row_sum, np.nan)).ravel(),
    }
    return make_frame(CONFUSION, columns, key)


def ties_frame(
    key: Key,
    k: IntArray,
    sums: MetricSums,
    log_sums: MetricSums | None,
    episodes: Episodes,
    draws: int,
) -> Frame:
    """Return the ties of every class at every k, and their cost.

    `log_sums` are those of log-odds on the same draws; without them ties cost nothing.
    """
    positives = np.sum([split.positives for split in make_splits(episodes)], axis=0)
    cost = {}
    for metric in ("map", "auroc"):
        with_ties = sums.per_class[metric].mean(axis=2)
        cost[metric] = np.zeros_like(with_ties)
        if log_sums is not None:
            cost[metric] = log_sums.per_class[metric].mean(axis=2) - with_ties
    columns = _class_columns(
        k,
        episodes.classes,
        ties=sums.tied,
        share=sums.tied / np.maximum(positives * draws, 1),
        cost_map=cost["map"],
        cost_auroc=cost["auroc"],
    )
    return make_frame(TIES, columns, key)


def _class_columns(
    k: IntArray, classes: Sequence[str], **tables: Any
) -> dict[str, Any]:
    """Return columns with a row for every k and class from tables (shots, classes)."""
    columns = {"k": np.repeat(k, len(classes)), "label": list(classes) * len(k)}
    return columns | {name: table.ravel() for name, table in tables.items()}


def describe_ties(ties: pl.DataFrame) -> list[str]:
    """Return a note on the ties of one encoder and spread: where most are, and what they cost."""
    if ties["ties"].sum() == 0:
        return []
    worst = ties.row(int(ties["share"].arg_max() or 0), named=True)
    cost = float(ties["cost_map"].to_numpy().max())
    return [
        f"{worst['encoder']}, {worst['spread']}: scores of positives tie with other queries, "
        f"{worst['share']:.0%} of those of '{worst['label']}' at k = {worst['k']}, at a cost of "
        f"up to {max(cost, 0.0):.3f} AP; see ties.csv"
    ]


def describe_undefined(encoder: str, sums: MetricSums) -> Iterator[str]:
    """Yield a note on every class that has no value of a metric in some folds."""
    for metric, undefined in sums.undefined.items():
        for name, folds in zip(sums.classes, undefined.tolist(), strict=True):
            if folds:
                yield (
                    f"{encoder}: no {METRIC_NAMES[metric]} for '{name}' in {folds} fold(s), "
                    "where every query is positive for it"
                )
