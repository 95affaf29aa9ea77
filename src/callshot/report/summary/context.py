"""Results of a corpus → what its summary is based on, and the words for its numbers.

A sentence says "clearly" where a simultaneous 98 % interval excludes 0. There is one over more than
100 samples that differ, and up to k*; with fewer samples a sentence gives the share of wins.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import polars as pl
from markupsafe import Markup

from callshot.errors import printable
from callshot.fewshot.differences import (
    MIN_SAMPLES,
    ROUNDING,
    compare_classifiers,
    first_lasting,
    summarise_comparisons,
)
from callshot.fewshot.label_budget import LEVEL_CHANGE
from callshot.records import METRIC_NAMES, ClassCount, CorpusResults, Evaluation
from callshot.records.frames import Frame, value_matrix
from callshot.records.terms import LARGEST_P, MEAN, comparison_spread
from callshot.report.choices import (
    FEW_SHOTS,
    is_trained,
    largest_shot,
    main_spread,
    paired_values,
    turn_differences,
)
from callshot.report.templates import make_environment

Sentences = Iterator[str]
Point = dict[str, Any]  # a row of a curve or of differences

RANDOM = "random"  # the encoder whose vectors do not depend on the sound
CENTROID = "the nearest centroid"
WHERE = {"total": "other recordings of the same kind", "shared": "these recordings"}
SAMPLES = {
    "total": "samples",
    "shared": "labelled sets",
    "per-query": "bootstrap samples",
    MEAN: "samples of recordings",
}


@dataclass(frozen=True)
class Context:
    """The results of a corpus as its summary reads them; `typed_names` are those of the study."""

    results: CorpusResults
    target: float | None = None  # a mAP that the reader wants to reach
    typed_names: Mapping[str, str] = field(default_factory=dict)

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the reference classifier."""
        return self.results.evaluation

    @cached_property
    def spread(self) -> str:
        """The spread that all sentences are about."""
        return main_spread(self.evaluation)

    @cached_property
    def comparison_spread(self) -> str:
        """The spread of sentences that say which of two is better."""
        return comparison_spread({self.spread, *self.evaluation.differences["spread"]})

    @cached_property
    def samples(self) -> int:
        """The number of samples behind every interval."""
        values = self.evaluation.values.filter(spread=self.spread)["value"]
        return min(values.list.len(), default=0)

    @cached_property
    def k(self) -> int:
        """The k of the first screen: the largest up to FEW_SHOTS and k*, or else the smallest."""
        most = min(FEW_SHOTS, self.evaluation.complete_shots)
        return largest_shot(self.evaluation.curve["k"], most)

    @cached_property
    def best(self) -> str:
        """The best encoder at this k."""
        return self.ranking(self.k)[0]

    @cached_property
    def point(self) -> Point:
        """The point of the best encoder at this k."""
        return self.curve().row(by_predicate=pl.col("k") == self.k, named=True)

    @cached_property
    def rarest(self) -> ClassCount:
        """The class that can give the fewest examples in every split."""
        classes = self.evaluation.eligible_classes
        return min(classes, key=lambda one: (one.complete_to_k, one.exemplars))

    @cached_property
    def curves(self) -> Frame:
        """The points of mAP of all encoders by k; `has_interval`: their interval means something.

        It does not if there are few samples, or if all are equal though none is perfect.
        """
        differs = pl.col("p99") - pl.col("p01") > ROUNDING
        is_perfect = pl.col("mean") >= 1 - ROUNDING
        curve = self.evaluation.curve.filter(metric="map", spread=self.spread)
        return curve.sort("k", maintain_order=True).with_columns(
            has_interval=(differs | is_perfect) & (self.samples >= MIN_SAMPLES)
        )

    @cached_property
    def chance_tests(self) -> Frame:
        """The points of mAP by k, and whether they are `better` than chance.

        Only points that were tested by enough permutations to give a small `p`; if there are none,
        all points, by their mean.
        """
        points = self.curves.filter(scoring="all")
        # The smallest p that so many permutations can give
        can_be_small = 1 / (1 + pl.col("permutations")) <= LARGEST_P
        tests = self.evaluation.chance_test.filter(can_be_small, metric="map")
        # Tests of random vectors alone say nothing about the other encoders.
        is_ranked = tests["encoder"].is_in(self.ranking(self.k))
        if is_ranked.any():
            columns = tests.select("encoder", "k", "p", "permutations")
            tested = points.join(columns, on=["encoder", "k"], maintain_order="left")
            return tested.with_columns(better=pl.col("p") <= LARGEST_P)
        is_better = pl.col("mean") > pl.col("chance")
        return points.with_columns(better=is_better, p=None, permutations=None)

    @cached_property
    def comparisons(self) -> list[tuple[str, Frame]]:
        """The other classifiers on the best encoder: the name, and differences from the centroid.

        Differences are classifier minus centroid by k, over the same draws; `one_mean` and
        `other_mean` are the means of the classifier and of the centroid. Intervals are simultaneous
        over all encoders, and over all classifiers with training, or all without.
        """
        pairs = list(paired_values(self.results))
        found = []
        for with_training in (True, False):
            group = [
                (values, reference)
                for values, reference in pairs
                if is_trained(values["classifier"][0]) == with_training
            ]
            compared = compare_classifiers(group)
            rows = summarise_comparisons(compared, self.evaluation.complete_shots)
            for comparison, differences in zip(compared, rows, strict=True):
                curve = comparison.curve
                if curve["encoder"][0] == self.best:
                    common = comparison.difference.shape[1]  # samples that both have
                    samples = value_matrix(curve)[:, :common]
                    means = differences.with_columns(one_mean=samples.mean(axis=1))
                    other_mean = pl.col("one_mean") - pl.col("mean")
                    by_k = means.with_columns(other_mean=other_mean)
                    found.append((curve["classifier"][0], by_k))
        return found

    @cached_property
    def budget(self) -> Frame:
        """What more examples of each class are worth to the best encoder."""
        return self.evaluation.budget.filter(encoder=self.best, metric="map")

    def ranking(self, k: int) -> list[str]:
        """Return the encoders, the best at k first; random ones only if there are no others."""
        points = self.curves.filter(scoring="all", k=k)
        ordered = points.sort("mean", descending=True, maintain_order=True)["encoder"]
        names = [name for name in ordered if not is_random(name)]
        return names or ordered.to_list()

    def curve(self, scoring: str = "all") -> Frame:
        """Return the points of the best encoder, by k."""
        return self.curves.filter(encoder=self.best, scoring=scoring)

    def differences(self, one: str, other: str, scoring: str = "all") -> Frame:
        """Return the differences of two encoders or baselines, one minus the other, by k."""
        rows = self.evaluation.differences.filter(
            scoring=scoring, metric="map", spread=self.comparison_spread
        )
        turned = turn_differences(rows.filter(one=other, other=one))
        return pl.concat([rows.filter(one=one, other=other), turned]).sort("k")

    def difference_at(self, k: int, one: str, other: str) -> list[Point]:
        """Return one minus the other at k, if they were compared there."""
        return self.differences(one, other).filter(k=k).to_dicts()

    def examples(self, k: int) -> str:
        """Return k in words, and whether some call types have fewer."""
        noun = "example" if k == 1 else "examples"
        return f"{self.number(k)} {noun} per call type"

    def number(self, k: int) -> str:
        """Return k as a number, and whether some call types have fewer."""
        return str(k) if k <= self.evaluation.complete_shots else f"up to {k}"

    def describe_clear(self, differences: Frame, k: int) -> str:
        """Say where differences from `k` on are clear, or how often they are above 0."""
        from_k = differences.filter(pl.col("k") >= k)
        with_interval = from_k.drop_nulls("low")
        if with_interval.is_empty():
            first = from_k.row(0, named=True)
            return say("wins", self, first, f" With {k}, it is")
        clear = first_lasting(with_interval, pl.col("low") > 0)
        return say("clear", clear, with_interval["k"][-1], from_k["k"][-1])


def is_random(encoder: str) -> bool:
    """Return whether the vectors of an encoder are random, whatever its options.

    >>> is_random("random"), is_random("random (dimension=80)"), is_random("randomised")
    (True, True, False)
    """
    return re.split(r"\[| \(", encoder)[0] == RANDOM


def format_range(start: str, first: int, last: int, end: int) -> str:
    """Return for which k something holds, which is known from `first` to `last`.

    `start` is the text for `first`. Curves have points up to `end`: if that is beyond `last`, the
    text says where the knowledge ends.
    """
    if last == end:
        return f"from {start} on"
    return f"with {start}" if first == last else f"from {start} on, up to {last}"


def compare_means(point: Point) -> str:
    """Return both means of a comparison, with enough decimals to see a difference, at most five.

    >>> compare_means({"one_mean": 0.75, "other_mean": 0.7})
    'mAP is 0.750 against 0.700'
    >>> compare_means({"one_mean": 0.75081, "other_mean": 0.75077})
    'mAP is 0.75081 against 0.75077'
    """
    for places in (3, 4, 5):
        one = f"{point['one_mean']:.{places}f}"
        other = f"{point['other_mean']:.{places}f}"
        if one != other:
            break
    return f"mAP is {one} against {other}"


def format_difference(value: float) -> str:
    """Return a difference with three decimals, or five if it would be 0 otherwise."""
    places = 5 if 0 < abs(value) < 0.0005 else 3  # 0.0005 rounds to 0.001
    return f"{value:.{places}f}".replace("-", "−")


def format_share(share: float) -> str:
    """Return a share in percent; only 0 and 1 are 0 and 100.

    >>> [format_share(share) for share in (0, 0.001, 0.5, 0.999, 1)]
    ['0', '<1', '50', '>99', '100']
    """
    if 0 < share < 0.01:
        return "<1"
    return ">99" if 0.99 < share < 1 else f"{100 * share:.0f}"


@cache
def _load_sentences() -> Any:
    """Return the module of `templates/sentences.txt`, with a macro for each sentence."""
    environment = make_environment(
        "callshot.report.summary", printable, autoescape=False
    )
    environment.filters |= {
        "difference": format_difference,
        "fixed": lambda value, places=2: f"{value:.{places}f}",
        "means": compare_means,
        "percent": lambda share: f"{100 * share:.0f}",
        "share": format_share,
    }
    environment.globals |= {
        "cases": "98 % of labelled sets and recordings",  # of an interval of `total`
        "centroid": CENTROID,
        "format_range": format_range,
        "metric_names": METRIC_NAMES,
        "min_samples": MIN_SAMPLES,
        "newline": Markup("\n"),  # other texts lose their control characters
        "samples": SAMPLES,
        "where": WHERE,
        "within": LEVEL_CHANGE,
    }
    return environment.get_template("sentences.txt").module


def say(sentence: str, *facts: object) -> str:
    """Return a sentence about some facts, by the name of its macro in `templates/sentences.txt`."""
    macro = getattr(_load_sentences(), sentence)
    return str(macro(*facts))
