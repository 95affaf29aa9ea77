"""Results of a corpus → what its summary is based on, and the words for its numbers.

A sentence says "clearly" of reliable points only: over 100 samples or more, up to k*, and with samples
that differ. Beyond k* pools run out, and draws that must be equal have no spread.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import polars as pl

from callshot.fewshot.crossover import MIN_SAMPLES, ROUNDING
from callshot.records import CorpusResults, Evaluation
from callshot.report.classifiers import main_spread

Point = dict[str, Any]  # a row of a curve or of differences

RANDOM = "random"  # the encoder whose vectors do not depend on the sound
FEW_SHOTS = 5  # the largest k that counts as a few examples
SAMPLES = {"shared": "labelled sets", "per-query": "bootstrap samples"}
SPREAD_WIDTH = pl.col("p99") - pl.col("p01")


@dataclass(frozen=True)
class Context:
    """The results of a corpus as its summary reads them: mAP, on one spread."""

    results: CorpusResults

    @property
    def evaluation(self) -> Evaluation:
        """The evaluation of the reference classifier."""
        return self.results.evaluation

    @cached_property
    def spread(self) -> str:
        """The spread that all sentences are about."""
        return main_spread(self.evaluation)

    @cached_property
    def samples(self) -> int:
        """The number of samples behind every interval."""
        values = self.evaluation.values.filter(spread=self.spread)["value"]
        return int(min(values.list.len(), default=0))

    @cached_property
    def k(self) -> int:
        """The largest of a few shots that all call types can give."""
        shots = self.evaluation.curve["k"].unique().sort().to_list()
        most = min(FEW_SHOTS, self.evaluation.complete_shots)
        return max((k for k in shots if k <= most), default=shots[0])

    @cached_property
    def best(self) -> str:
        """The best encoder at this k."""
        return self.ranking(self.k)[0]

    @cached_property
    def encoders(self) -> list[str]:
        """The encoders that are not random, or all if there are no others."""
        names = self.evaluation.encoders
        return [name for name in names if not is_random(name)] or names

    @cached_property
    def curves(self) -> pl.DataFrame:
        """The points of mAP by k, and whether their interval means something and is reliable."""
        curve = self.evaluation.curve.filter(metric="map", spread=self.spread)
        is_enough = pl.lit(self.samples >= MIN_SAMPLES)
        differs = (SPREAD_WIDTH > ROUNDING) | (pl.col("mean") >= 1 - ROUNDING)
        has_interval = is_enough & differs
        return curve.sort("k", maintain_order=True).with_columns(
            has_interval=has_interval,
            reliable=has_interval & pl.col("complete"),
        )

    def curve(self, encoder: str, scoring: str = "all") -> pl.DataFrame:
        """Return the points of an encoder, by k."""
        return self.curves.filter(encoder=encoder, scoring=scoring)

    def reliable(self, encoder: str, scoring: str = "all") -> pl.DataFrame:
        """Return the points of an encoder that may be called clearly above or below something."""
        return self.curve(encoder, scoring).filter("reliable")

    def ranking(self, k: int) -> list[str]:
        """Return the encoders, the best at k first."""
        points = self.curves.filter(pl.col("encoder").is_in(self.encoders), scoring="all", k=k)
        return points.sort("mean", descending=True, maintain_order=True)["encoder"].to_list()

    def differences(self, one: str, other: str, scoring: str = "all") -> pl.DataFrame:
        """Return one less the other by k; empty if they were not compared."""
        rows = self.evaluation.differences.filter(
            scoring=scoring,
            metric="map",
            spread=self.spread,
        ).sort("k")
        pair = rows.filter(one=one, other=other)
        if pair.is_empty():
            pair = rows.filter(one=other, other=one).with_columns(
                mean=-pl.col("mean"),
                p01=-pl.col("p99"),
                p99=-pl.col("p01"),
                wins=1.0 - pl.col("wins"),
            )
        shots = self.reliable(self.best, scoring)["k"].to_list()
        return pair.with_columns(reliable=pl.col("k").is_in(shots))

    def examples(self, k: int) -> str:
        """Return k in words, and whether some call types have fewer."""
        prefix = "up to " if k > self.evaluation.complete_shots else ""
        noun = "example" if k == 1 else "examples"
        return f"{prefix}{k} {noun} per call type"

    def margin(self, difference: Point) -> str:
        """Return a difference, with its interval and its share of wins if that is reliable."""
        mean = f"{format_difference(abs(difference['mean']))} of mAP"
        if not difference["reliable"]:
            return mean
        wins = f"ahead in {format_share(difference['wins'])} % of {SAMPLES[self.spread]}"
        return f"{mean} ({format_interval(difference)}; {wins})"


def is_random(encoder: str) -> bool:
    """Return whether the vectors of an encoder are random, whatever its options.

    >>> is_random("random"), is_random("random[dimension=80]"), is_random("randomised")
    (True, True, False)
    """
    return encoder.partition("[")[0] == RANDOM


def first_lasting(points: pl.DataFrame, condition: pl.Expr) -> Point | None:
    """Return the first point from which a condition holds to the end.

    >>> first_lasting(pl.DataFrame({"k": [1, 2, 3, 4]}), pl.col("k").is_in([1, 3, 4]))
    {'k': 3}
    """
    later_failures = (~condition).reverse().cum_sum().reverse()
    lasting = points.filter(later_failures == 0)
    return None if lasting.is_empty() else lasting.row(0, named=True)


def format_range(start: str, first: int, last: int, end: int) -> str:
    """Return from where to where something holds; up to `last` is known, `end` is the last point."""
    if last == end:
        return f"from {start} on"
    if first == last:
        return f"with {start}"
    return f"from {start} on, up to {last}"


def describe_clear(differences: pl.DataFrame, k: int) -> str:
    """Return from where a difference is clear, for those from k on; nothing if none is reliable."""
    reliable = differences.filter(pl.col("k") >= k).filter("reliable")
    if reliable.is_empty():
        return ""
    last = reliable["k"][-1]
    clear = first_lasting(reliable, pl.col("p01") > 0)
    if clear is None:
        return f", but not clearly with {last} (the 98 % interval of the difference is not above 0)"
    shots = format_range(str(clear["k"]), clear["k"], last, differences["k"][-1])
    return f", and clearly {shots} (the 98 % interval of the difference is above 0)"


def compare_means(one: float, other: float) -> str:
    """Return two values of mAP, with enough decimals to see a difference, but at most five.

    >>> compare_means(0.75, 0.7), compare_means(0.75081, 0.75077)
    ('mAP 0.750 against 0.700', 'mAP 0.75081 against 0.75077')
    """
    places = 3
    while places < 5 and f"{one:.{places}f}" == f"{other:.{places}f}":
        places += 1
    return f"mAP {one:.{places}f} against {other:.{places}f}"


def format_interval(point: Point) -> str:
    """Return the 98 % interval of a difference."""
    low = format_difference(point["p01"])
    high = format_difference(point["p99"])
    return f"98 % interval: {low} to {high}"


def format_difference(value: float) -> str:
    """Return a difference with three decimals, or five if it would be 0 otherwise."""
    places = 5 if 0 < abs(value) < 0.0005 else 3
    return f"{value:.{places}f}".replace("-", "−")


def format_share(share: float) -> str:
    """Return a share in percent; only 0 and 1 are 0 and 100.

    >>> [format_share(share) for share in (0, 0.001, 0.5, 0.999, 1)]
    ['0', '<1', '50', '>99', '100']
    """
    if 0 < share < 0.01:
        return "<1"
    if 0.99 < share < 1:
        return ">99"
    return f"{100 * share:.0f}"
