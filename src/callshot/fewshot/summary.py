"""The sums of one sweep → data frames: curves, samples, classes, confusion, ties."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from callshot.fewshot.episodes import Episodes, make_splits
from callshot.fewshot.folds import complete_shots, new_exemplars
from callshot.fewshot.label_budget import Gains, sample_gains
from callshot.fewshot.metrics import MetricSums, chance_average_precision
from callshot.records import ClassCount, FloatArray, IntArray
from callshot.records.frames import (
    CONFUSION,
    CURVE,
    PER_CLASS,
    TIES,
    VALUES,
    concat_frames,
    make_frame,
    summarise_samples,
    values_frame,
)


@dataclass(frozen=True)
class SweepSummary:
    """The results of one encoder, one spread and one classifier."""

    corpus: str
    encoder: str
    spread: str
    k: IntArray
    sums: MetricSums
    episodes: Episodes
    counts: Sequence[ClassCount]
    classifier: str = "centroid"

    @cached_property
    def curve(self) -> pl.DataFrame:
        """A point for every scoring, metric and k."""
        shots = self.k.tolist()
        last = complete_shots(self.counts)
        chances = chance_levels(self.episodes, self.sums)
        columns: dict[str, Any] = {
            "k": shots,
            "complete": [k <= last for k in shots],
            "new_exemplars": [new_exemplars(self.counts, k) for k in shots],
            "ties": self.sums.tied.sum(axis=1),
        }
        frames = []
        for (scoring, metric), samples in self.sums.values.items():
            summary = summarise_samples(samples) | {"chance": chances[scoring, metric]}
            key = self._key(scoring, metric)
            frames.append(make_frame(CURVE, columns | summary, key))
        return concat_frames(frames, CURVE)

    @cached_property
    def values(self) -> pl.DataFrame:
        """The samples behind each curve."""
        frames = [
            values_frame(self._key(scoring, metric), self.k, samples)
            for (scoring, metric), samples in self.sums.values.items()
        ]
        return concat_frames(frames, VALUES)

    @cached_property
    def per_class(self) -> pl.DataFrame:
        """A point for every metric, k and class."""
        classes = self.episodes.classes
        shots = len(self.k)
        frames = []
        for metric, samples in self.sums.per_class.items():
            low, high = np.percentile(samples, (1, 99), axis=2)
            columns = {
                "k": np.repeat(self.k, len(classes)),
                "label": list(classes) * shots,
                "mean": samples.mean(axis=2).ravel(),
                "p01": low.ravel(),
                "p99": high.ravel(),
            }
            frames.append(make_frame(PER_CLASS, columns, self._key("all", metric)))
        return concat_frames(frames, PER_CLASS)

    def gains(self) -> Gains:
        """Return what one more exemplar of each class is worth in every sample."""
        samples = self.sums.per_class["map"]
        return sample_gains(self.k, samples, self.episodes.classes, self.counts)

    def confusion(self) -> pl.DataFrame:
        """Return every cell of the confusion matrix at every k."""
        names = list(self.episodes.classes)
        count = self.sums.decisions
        row_sum = count.sum(axis=2, keepdims=True)
        columns = {
            "k": np.repeat(self.k, len(names) ** 2),
            "true": np.repeat(names, len(names)).tolist() * len(self.k),
            "predicted": names * (len(names) * len(self.k)),
            "count": count.ravel(),
            "row_sum": np.broadcast_to(row_sum, count.shape).ravel(),
            "recall": (count / np.where(row_sum > 0, row_sum, np.nan)).ravel(),
        }
        return make_frame(CONFUSION, columns, {"encoder": self.encoder})

    def ties(self, draws: int, log_sums: MetricSums | None) -> pl.DataFrame:
        """Return the ties of every class at every k, and their cost.

        `log_sums` are those of log-odds on the same draws; without them ties cost nothing.
        """
        classes = self.episodes.classes
        positives = np.sum(
            [split.positives for split in make_splits(self.episodes)], axis=0
        )
        scores = np.maximum(positives * draws, 1)
        columns = {
            "k": np.repeat(self.k, len(classes)),
            "label": list(classes) * len(self.k),
            "ties": self.sums.tied.ravel(),
            "share": (self.sums.tied / scores).ravel(),
            "cost_map": _tie_cost(self.sums, log_sums, "map").ravel(),
            "cost_auroc": _tie_cost(self.sums, log_sums, "auroc").ravel(),
        }
        return make_frame(
            TIES, columns, {"encoder": self.encoder, "spread": self.spread}
        )

    def notes(self) -> Iterator[str]:
        """Yield a line for every class without an AUROC in some fold."""
        undefined = self.sums.undefined.tolist()
        for name, folds in zip(self.episodes.classes, undefined, strict=True):
            if folds:
                yield (
                    f"{self.encoder}: no AUROC for '{name}' in {folds} fold(s), "
                    "where every query is positive for it"
                )

    def _key(self, scoring: str, metric: str) -> dict[str, str]:
        return {
            "corpus": self.corpus,
            "encoder": self.encoder,
            "classifier": self.classifier,
            "scoring": scoring,
            "metric": metric,
            "spread": self.spread,
        }


def describe_ties(ties: pl.DataFrame) -> list[str]:
    """Return a note on the ties of one encoder and spread: where most are, and what they cost."""
    if ties["ties"].sum() == 0:
        return []
    worst = ties.row(int(ties["share"].arg_max() or 0), named=True)
    costliest = ties.row(int(ties["cost_map"].arg_max() or 0), named=True)
    cost = ""
    if costliest["cost_map"] > 0:
        where = f"'{costliest['label']}', k = {costliest['k']}"
        cost = f", at a cost of up to {costliest['cost_map']:.3f} AP ({where})"
    most = f"{worst['share']:.0%} of those of '{worst['label']}' at k = {worst['k']}"
    who = f"{worst['encoder']}, {worst['spread']}"
    return [
        f"{who}: scores of positives tie with other queries, {most}{cost}; see ties.csv"
    ]


def chance_levels(
    episodes: Episodes, sums: MetricSums
) -> dict[tuple[str, str], FloatArray]:
    """Return what a random ranking, and decisions that ignore the query, would score at each k.

    Classes with more exemplars have shorter means and win more decisions. So the chance of a
    decision is counted from the decisions themselves.
    """
    splits = make_splits(episodes)
    shots = len(sums.decisions)
    levels = {}
    for scoring, groups in sums.groups.items():
        by_fold = []
        for split in splits:
            queries = np.full(len(split.positives), len(split.rows))
            chance_ap = chance_average_precision(split.positives, queries)
            by_fold.append(np.mean([chance_ap[group].mean() for group in groups]))
        levels[scoring, "map"] = np.full(shots, np.mean(by_fold))
        levels[scoring, "auroc"] = np.full(shots, 0.5)
    for metric, chance in sums.chance.items():
        levels["all", metric] = chance
    return levels


def _tie_cost(sums: MetricSums, log_sums: MetricSums | None, metric: str) -> FloatArray:
    mean = sums.per_class[metric].mean(axis=2)
    if log_sums is None:
        return np.zeros_like(mean)
    return np.asarray(log_sums.per_class[metric].mean(axis=2) - mean)
