"""Samples of the centroid and scores of baselines → the k at which one passes the other.

With how many exemplars does the centroid pass a baseline trained on all labels? That is the paper's
crossover. And with how many does training pay, given the same exemplars? For that the baseline is
trained at every k on the draws that the centroid sees, and what the draws do to both cancels out.

`k_clear` rests on the simultaneous 98 % intervals of the differences, see `differences`; in the
spread `total` both sides have samples, paired by the weights of recordings. It holds up to k* only:
beyond k* pools run out, and draws that must be equal have no spread.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl

from callshot.fewshot.differences import (
    Comparison,
    compare_baselines,
    compare_classifiers,
    compare_encoders,
    matching_baselines,
    subtract_baseline,
    summarise_comparisons,
)
from callshot.records import Evaluation
from callshot.records.frames import CROSSOVERS, Frame, split_curves, value_matrix
from callshot.records.terms import RANKING_METRICS

Row = dict[str, Any]  # of the CROSSOVERS schema

CURVE_COLUMNS = ("corpus", "encoder", "scoring", "metric", "spread")
AHEAD = (pl.col("mean") > 0) & pl.col("mean").is_not_nan()


def find_crossovers(
    values: pl.DataFrame,
    baselines: pl.DataFrame,
    trained: pl.DataFrame | None = None,
    complete_shots: int | None = None,
) -> pl.DataFrame:
    """Return every crossover of one corpus, as rows of the CROSSOVERS schema.

    Parameters
    ----------
    values : polars.DataFrame
        Samples of the centroid, rows of the VALUES schema.
    baselines : polars.DataFrame
        Baselines trained on all labels, rows of the BASELINES schema.
    trained : polars.DataFrame, optional
        Samples of baselines trained at every k.
    complete_shots : int, optional
        k*, beyond which nothing is clear.

    Examples
    --------
    >>> import numpy as np
    >>> from callshot.records.frames import BASELINES, values_frame
    >>> samples = np.linspace(0.1, 0.5, 101) + np.array([[0.0], [0.2], [0.4]])
    >>> key = {"corpus": "herd", "encoder": "a", "classifier": "centroid"}
    >>> key |= {"scoring": "all", "metric": "map", "spread": "shared"}
    >>> centroid = values_frame(key, np.array([1, 2, 3]), samples)
    >>> row = ("herd", "a", "logistic", "LR", "all", "map", 0.45, np.nan, np.nan, "", [])
    >>> baselines = pl.DataFrame([row], schema=dict(BASELINES), orient="row")
    >>> find_crossovers(centroid, baselines).select("k_mean", "k_clear").row(0)
    (2, 3)
    """
    curves = split_curves(values)
    rows = _pass_baselines(curves, baselines, complete_shots)
    if trained is not None:
        rows += _pass_centroid(curves, split_curves(trained), complete_shots)
    return pl.DataFrame(rows, schema=dict(CROSSOVERS))


def add_baselines(
    evaluation: Evaluation, baselines: pl.DataFrame, trained: pl.DataFrame | None = None
) -> Evaluation:
    """Return an evaluation with its differences from baselines, and its crossovers.

    `trained` are the samples of baselines trained at every k.
    """
    values = evaluation.values
    last = evaluation.complete_shots
    differences = [
        compare_encoders(values, last),
        compare_baselines(values, baselines, last),
    ]
    crossovers = find_crossovers(values, baselines, trained, last)
    return replace(
        evaluation, differences=pl.concat(differences), crossovers=crossovers
    )


def _pass_baselines(
    curves: Sequence[Frame], baselines: Frame, complete_shots: int | None
) -> list[Row]:
    """Return where the centroid passes each baseline trained on all labels."""
    pairs = [
        (curve, baseline.row(0, named=True))
        for baseline in baselines.iter_slices(1)
        for curve in curves
        if not matching_baselines(baseline, curve).is_empty()
    ]
    comparisons = [
        Comparison(curve, baseline["name"], subtract_baseline(curve, baseline))
        for curve, baseline in pairs
    ]
    differences = summarise_comparisons(comparisons, complete_shots)
    rows = []
    for (curve, baseline), difference in zip(pairs, differences, strict=True):
        row = _key(curve, baseline["name"]) | {"labels": "all"}
        k_mean = _first_above(curve, baseline["value"])
        rows.append(row | {"k_mean": k_mean, "k_clear": _clear_from(difference)})
    return rows


def _first_above(curve: Frame, value: float) -> int | None:
    """Return the first k at which the mean of a curve is above a value."""
    above = curve.filter(value_matrix(curve).mean(axis=1) > value)["k"]
    return above[0] if len(above) else None


def _pass_centroid(
    curves: Sequence[Frame], trained: Sequence[Frame], complete_shots: int | None
) -> list[Row]:
    """Return from where each baseline that is trained at every k stays ahead of the centroid."""
    pairs = [
        (other, curve)
        for other in trained
        for curve in curves
        if _is_same_curve(curve, other)
    ]
    comparisons = compare_classifiers(pairs)
    differences = summarise_comparisons(comparisons, complete_shots)
    rows = []
    for comparison, rows_by_k in zip(comparisons, differences, strict=True):
        curve = comparison.curve
        row = _key(curve, curve["classifier"][0]) | {"labels": "k"}
        k_mean = _first_lasting_k(rows_by_k, AHEAD)
        rows.append(row | {"k_mean": k_mean, "k_clear": _clear_from(rows_by_k)})
    return rows


def _key(curve: Frame, baseline: str) -> Row:
    """Return the columns of a crossover that say which curves it is about."""
    return curve.select(CURVE_COLUMNS).row(0, named=True) | {"baseline": baseline}


def _is_same_curve(one: Frame, other: Frame) -> bool:
    """Return whether two classifiers were scored by the same ranking metric in the same way."""
    if one["metric"][0] not in RANKING_METRICS:
        return False
    return one.select(CURVE_COLUMNS).row(0) == other.select(CURVE_COLUMNS).row(0)


def _clear_from(differences: Frame) -> int | None:
    """Return the k from which a difference is clear.

    Shots without an interval do not count; an undefined difference is not clear.
    """
    counts = pl.col("low").is_not_null() | pl.col("mean").is_nan()
    return _first_lasting_k(differences.filter(counts), AHEAD & pl.col("clear"))


def first_lasting(points: Frame, condition: pl.Expr) -> dict[str, Any] | None:
    """Return the first point from which a condition holds to the end.

    >>> first_lasting(pl.DataFrame({"k": [1, 2, 3, 4]}), pl.col("k").is_in([1, 3, 4]))
    {'k': 3}
    """
    later_failures = (~condition).cum_sum(reverse=True)
    lasting = points.filter(later_failures == 0)
    return None if lasting.is_empty() else lasting.row(0, named=True)


def _first_lasting_k(differences: Frame, condition: pl.Expr) -> int | None:
    point = first_lasting(differences, condition)
    return None if point is None else point["k"]
