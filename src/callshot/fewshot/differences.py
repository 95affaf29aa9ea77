"""Samples of curves → paired differences: one encoder minus another, or minus a baseline.

No random stream depends on the encoder, so sample i of one encoder saw the same draws as sample i
of another, in every spread: what the draws do to both cancels out. In the spread `total`, baselines
that are trained on all labels saw the same weights of recordings too.

Whoever compares many pairs at many k finds some that differ by luck. So `low` and `high` are
simultaneous: with z = (difference − mean) / sd, they are mean ± c · sd, and in 98 % of samples no
|z| of any pair at any k up to k* exceeds c. A difference is clear if 0 is outside.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.records.embeddings import FloatArray, IntArray
from callshot.records.frames import (
    DIFFERENCES,
    concat_frames,
    make_frame,
    split_curves,
    summarise_samples,
    value_matrix,
)

PAIR_KEY = ("corpus", "classifier", "scoring", "metric", "spread")
MIN_SAMPLES = 101  # that a 98 % interval needs; fewer give a count of wins
ROUNDING = 1e-9  # differences of a metric below this are rounding errors
COVERED_PERCENT = 98


@dataclass(frozen=True)
class Comparison:
    """A curve, rows of the VALUES schema, minus something else on the same samples.

    `difference` is (shots, samples).
    """

    curve: pl.DataFrame
    other: str
    difference: FloatArray

    @property
    def family(self) -> tuple[Any, ...]:
        """What comparisons share whose intervals are simultaneous."""
        key = self.curve.select("scoring", "metric", "spread").row(0)
        return *key, self.difference.shape[1]

    @property
    def is_perfect(self) -> NDArray[np.bool_]:
        """Whether all samples of the curve have the highest score, by k."""
        return np.asarray(value_matrix(self.curve).mean(axis=1) >= 1 - ROUNDING)

    def up_to(self, last: float) -> FloatArray:
        """Return the differences at the shots up to the last."""
        return self.difference[self.curve["k"].to_numpy() <= last]

    def summarise(self, factor: float, last: float) -> pl.DataFrame:
        """Return rows of the DIFFERENCES schema."""
        difference = self.difference
        score = (np.sign(difference) + 1.0) / 2.0  # equal: half; undefined: undefined
        columns = {
            "k": self.curve["k"],
            **summarise_samples(difference),
            "wins": score.mean(axis=1),
            "samples": np.full(len(difference), difference.shape[1]),
            **self.simultaneous_interval(factor, last),
        }
        key = self.curve.row(0, named=True)
        key |= {"one": self.curve["encoder"][0], "other": self.other}
        constants = {name: key[name] for name in DIFFERENCES if name not in columns}
        return make_frame(DIFFERENCES, columns, constants)

    def simultaneous_interval(self, factor: float, last: float) -> dict[str, Any]:
        """Return the simultaneous interval, null where there is none, and what is clear.

        Equal samples have no interval, unless the curve is perfect.
        """
        mean = self.difference.mean(axis=1)
        margin = factor * _standard_deviation(self.difference)
        margin[self.curve["k"].to_numpy() > last] = np.nan
        margin[(margin == 0) & ~self.is_perfect] = np.nan
        if self.difference.shape[1] < MIN_SAMPLES:
            margin[:] = np.nan
        return {
            "low": pl.Series(mean - margin).fill_nan(None),
            "high": pl.Series(mean + margin).fill_nan(None),
            "clear": np.abs(mean) > margin + ROUNDING,
        }


def compare_encoders(
    values: pl.DataFrame, complete_shots: int | None = None
) -> pl.DataFrame:
    """Compare every pair of encoders of one corpus, in their order.

    Where a value is undefined, so is every difference at its k.

    Parameters
    ----------
    values : polars.DataFrame
        Rows of the VALUES schema.
    complete_shots : int, optional
        k*, beyond which nothing is clear.

    Returns
    -------
    polars.DataFrame
        Rows of the DIFFERENCES schema.

    Raises
    ------
    InputError
        If two encoders were not evaluated at the same k with the same number of samples.

    Examples
    --------
    >>> from callshot.records.frames import values_frame
    >>> key = {"corpus": "herd", "classifier": "centroid", "scoring": "all", "metric": "map"}
    >>> key["spread"] = "shared"
    >>> one = values_frame({**key, "encoder": "a"}, np.array([1]), np.array([[0.5, 0.75, 0.75]]))
    >>> other = values_frame({**key, "encoder": "b"}, np.array([1]), np.array([[0.25, 0.75, 0.25]]))
    >>> frame = compare_encoders(pl.concat([one, other]))
    >>> frame.select("one", "other", "k", "mean", "p50").row(0)
    ('a', 'b', 1, 0.25, 0.25)
    """
    pairs = list(_pair_encoders(values))
    return concat_frames(summarise_comparisons(pairs, complete_shots), DIFFERENCES)


def _pair_encoders(values: pl.DataFrame) -> Iterator[Comparison]:
    encoders = values["encoder"].unique(maintain_order=True)
    curves = {name: _curves_by_key(values.filter(encoder=name)) for name in encoders}
    for one, other in combinations(curves, 2):
        for key in curves[one] | curves[other]:
            rows = curves[one].get(key)
            other_rows = curves[other].get(key)
            if rows is None or other_rows is None or not _are_paired(rows, other_rows):
                raise InputError(
                    f"{key[0]}: '{one}' and '{other}' cannot be compared ({', '.join(key)}): "
                    "expected the same k and the same number of samples; "
                    "evaluate both with the same options"
                )
            difference = value_matrix(rows) - value_matrix(other_rows)
            yield Comparison(rows, other, difference)


def compare_baselines(
    values: pl.DataFrame, baselines: pl.DataFrame, complete_shots: int | None = None
) -> pl.DataFrame:
    """Compare each curve with the baselines on its encoder, and with those that read audio.

    See `subtract_baseline` for the samples of a difference.
    """
    comparisons = []
    for curve in split_curves(values):
        for baseline in matching_baselines(baselines, curve).iter_rows(named=True):
            difference = subtract_baseline(curve, baseline)
            name = baseline_name(baseline)
            comparisons.append(Comparison(curve, name, difference))
    rows = summarise_comparisons(comparisons, complete_shots)
    return concat_frames(rows, DIFFERENCES)


def subtract_baseline(curve: pl.DataFrame, baseline: Mapping[str, Any]) -> FloatArray:
    """Return the samples of a curve minus a baseline, (shots, samples).

    In the spread `total`, sample i of both has the same weights of recordings. In other spreads,
    and without samples of its own, a baseline has one value, whatever was drawn.

    >>> from callshot.records.frames import CURVE_KEY, values_frame
    >>> key = dict.fromkeys(CURVE_KEY, "total")
    >>> curve = values_frame(key, np.array([1]), np.array([[0.5, 0.75]]))
    >>> subtract_baseline(curve, {"value": 0.5, "samples": [0.25, 0.75]})
    array([[0.25, 0.  ]])
    """
    samples = value_matrix(curve)
    paired = baseline["samples"]
    if curve["spread"][0] != "total" or not paired:
        return samples - float(baseline["value"])
    common = min(samples.shape[1], len(paired))
    return samples[:, :common] - np.asarray(paired[:common], np.float64)


def compare_classifiers(
    pairs: Iterable[tuple[pl.DataFrame, pl.DataFrame]],
) -> list[Comparison]:
    """Compare the first curve of each pair with the second, at the k and samples of both."""
    comparisons = []
    for curve, reference in pairs:
        k, samples, reference_samples = align_draws(curve, reference)
        if k.size:
            shown = curve.filter(pl.col("k").is_in(k.tolist())).sort("k")
            name = reference["classifier"][0]
            comparisons.append(Comparison(shown, name, samples - reference_samples))
    return comparisons


def align_draws(
    one: pl.DataFrame, other: pl.DataFrame
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Return the k that two curves share, and the samples of both, (shots, draws), on shared draws.

    >>> from callshot.records.frames import CURVE_KEY, values_frame
    >>> key = dict.fromkeys(CURVE_KEY, "x")
    >>> one = values_frame(key, np.array([1, 2]), np.eye(2))
    >>> other = values_frame(key, np.array([2, 5]), np.ones((2, 1)))
    >>> align_draws(one, other)
    (array([2]), array([[0.]]), array([[1.]]))
    """
    k, rows, other_rows = np.intersect1d(one["k"], other["k"], return_indices=True)
    samples = value_matrix(one)[rows]
    other_samples = value_matrix(other)[other_rows]
    draws = min(samples.shape[1], other_samples.shape[1])
    return k, samples[:, :draws], other_samples[:, :draws]


def summarise_comparisons(
    comparisons: Sequence[Comparison], complete_shots: int | None = None
) -> list[pl.DataFrame]:
    """Return rows of the DIFFERENCES schema for each; their intervals are simultaneous.

    Each metric, scoring, spread and number of samples has intervals of its own.
    """
    last = np.inf if complete_shots is None else float(complete_shots)
    families = defaultdict(list)
    for comparison in comparisons:
        families[comparison.family].append(comparison.up_to(last))
    factors = {
        family: simultaneous_factor(np.concatenate(differences))
        for family, differences in families.items()
    }
    return [one.summarise(factors[one.family], last) for one in comparisons]


def simultaneous_factor(differences: FloatArray) -> float:
    """Return by how many standard deviations differences (rows, samples) leave their means.

    In 98 % of samples, no row does so by more. Rows without spread do not count.

    >>> samples = np.array([[-1.0, 0.0, 0.0, 1.0], [-3.0, 3.0, -3.0, 3.0]])
    >>> round(simultaneous_factor(samples), 3)
    1.414
    """
    deviations = _standard_deviation(differences)
    counts = deviations > 0
    if not counts.any():
        return 0.0
    mean = differences[counts].mean(axis=1)
    deviation = differences[counts] - mean[:, None]
    largest = np.abs(deviation / deviations[counts, None]).max(axis=0)
    return float(np.percentile(largest, COVERED_PERCENT))


def _standard_deviation(differences: FloatArray) -> FloatArray:
    """Return the standard deviation of each row; rounding errors are none."""
    deviation = differences.std(axis=1)
    return np.where(deviation <= ROUNDING, 0.0, deviation)


def matching_baselines(baselines: pl.DataFrame, curve: pl.DataFrame) -> pl.DataFrame:
    """Return the baselines that a curve is compared with: same corpus, scoring, metric, encoder."""
    key = curve.row(0, named=True)
    return baselines.filter(
        pl.col("encoder").is_in(["", key["encoder"]]),
        corpus=key["corpus"],
        scoring=key["scoring"],
        metric=key["metric"],
    )


def baseline_name(baseline: Mapping[str, Any]) -> str:
    """Return what a difference calls a baseline: its name, and its encoder if it has one."""
    if not baseline["encoder"]:
        return str(baseline["name"])
    return f"{baseline['name']} on {baseline['encoder']}"


def _curves_by_key(values: pl.DataFrame) -> dict[tuple[str, ...], pl.DataFrame]:
    return {curve.select(PAIR_KEY).row(0): curve for curve in split_curves(values)}


def _are_paired(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Return whether two curves have the same k and the same number of samples."""
    if not one["k"].equals(other["k"]):
        return False
    return value_matrix(one).shape == value_matrix(other).shape
