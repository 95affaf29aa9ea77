"""Samples of the centroid and scores of baselines → the k at which one passes the other.

With how many exemplars does the centroid pass a baseline trained on all labels? That is the paper's
crossover. And with how many does training pay, given the same exemplars? For that the baseline is
trained at every k on the draws that the centroid sees, and what the draws do to both cancels out.

`k_clear` rests on the 98 % interval of the difference; in the spread `total` both sides have
samples, paired by the weights of recordings. It needs 100 samples or more that differ,
and holds up to k* only: beyond k* pools run out, and draws that must be equal have no spread.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.fewshot.differences import (
    compare_baselines,
    compare_encoders,
    less_baseline,
    matching_baselines,
)
from callshot.records import Evaluation
from callshot.records.embeddings import FloatArray, IntArray
from callshot.records.frames import CROSSOVERS, split_curves, value_matrix
from callshot.records.terms import RANKING_METRICS

MIN_SAMPLES = 100  # samples that a 1–99 % interval needs
ROUNDING = 1e-9  # differences of a metric below this are rounding errors


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
    >>> from callshot.records.frames import BASELINES, values_frame
    >>> samples = np.linspace(0.1, 0.5, 100) + np.array([[0.0], [0.2], [0.4]])
    >>> key = {"corpus": "herd", "encoder": "a", "classifier": "centroid"}
    >>> key |= {"scoring": "all", "metric": "map", "spread": "shared"}
    >>> centroid = values_frame(key, np.array([1, 2, 3]), samples)
    >>> row = ("herd", "a", "logistic", "LR", "all", "map", 0.45, np.nan, np.nan, "", [])
    >>> baselines = pl.DataFrame([row], schema=dict(BASELINES), orient="row")
    >>> find_crossovers(centroid, baselines).select("k_mean", "k_clear").row(0)
    (2, 3)
    """
    last = np.inf if complete_shots is None else float(complete_shots)
    trained_curves = [] if trained is None else split_curves(trained)
    curves = split_curves(values)
    rows: list[dict[str, object]] = []
    for baseline in baselines.iter_slices(1):
        matching = [
            one for one in curves if not matching_baselines(baseline, one).is_empty()
        ]
        row = baseline.row(0, named=True)
        rows += [_pass_baseline(curve, row, last) for curve in matching]
    for trained_curve in trained_curves:
        matching = [one for one in curves if _is_same_curve(one, trained_curve)]
        rows += [_pass_centroid(curve, trained_curve, last) for curve in matching]
    return pl.DataFrame(rows, schema=dict(CROSSOVERS))


def add_baselines(
    evaluation: Evaluation, baselines: pl.DataFrame, trained: pl.DataFrame | None = None
) -> Evaluation:
    """Return an evaluation with its differences from baselines, and its crossovers.

    `trained` are the samples of baselines trained at every k.
    """
    values = evaluation.values
    differences = [compare_encoders(values), compare_baselines(values, baselines)]
    crossovers = find_crossovers(values, baselines, trained, evaluation.complete_shots)
    return replace(
        evaluation, differences=pl.concat(differences), crossovers=crossovers
    )


def _pass_baseline(
    curve: pl.DataFrame, baseline: Mapping[str, Any], last: float
) -> dict[str, object]:
    """Return the row of a centroid that passes a baseline trained on all labels."""
    k = curve["k"].to_numpy()
    means = value_matrix(curve).mean(axis=1)
    is_perfect = means >= 1 - ROUNDING
    key = curve.select("corpus", "encoder", "scoring", "metric", "spread").row(
        0, named=True
    )
    return {
        **key,
        "baseline": baseline["name"],
        "labels": "all",
        "k_mean": first_above(k, means, baseline["value"]),
        "k_clear": clear_from(k, less_baseline(curve, baseline), last, is_perfect),
    }


def _pass_centroid(
    curve: pl.DataFrame, trained: pl.DataFrame, last: float
) -> dict[str, object]:
    """Return the row of a baseline, trained at every k, that passes the centroid."""
    k, trained_samples, samples = align_draws(trained, curve)
    key = curve.select("corpus", "encoder", "scoring", "metric", "spread").row(
        0, named=True
    )
    return {
        **key,
        "baseline": trained["classifier"][0],
        "labels": "k",
        "k_mean": ahead_from(k, trained_samples, samples),
        "k_clear": clear_from(k, trained_samples - samples, last),
    }


def _is_same_curve(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Return whether two classifiers were scored by the same ranking metric in the same way."""
    columns = ("corpus", "encoder", "scoring", "metric", "spread")
    if one["metric"][0] not in RANKING_METRICS:
        return False
    return one.select(columns).row(0) == other.select(columns).row(0)


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


def first_above(k: IntArray, means: FloatArray, value: float) -> int | None:
    """Return the first k at which a mean is above a value.

    >>> first_above(np.array([1, 2, 4]), np.array([0.3, 0.6, 0.4]), 0.5)
    2
    """
    above = np.flatnonzero(means > value)
    return int(k[above[0]]) if above.size else None


def ahead_from(k: IntArray, trained: FloatArray, centroid: FloatArray) -> int | None:
    """Return the k from which a trained classifier stays ahead in the mean, on the same draws.

    None where it is not ahead at the last k. An undefined value is not ahead.

    >>> trained = np.array([[0.3, 0.4], [0.6, 0.45], [0.7, 0.8]])
    >>> ahead_from(np.array([1, 2, 4]), trained, np.full((3, 2), 0.5))
    2
    """
    return _holds_from(k, (trained - centroid).mean(axis=1) > 0)


def clear_from(
    k: IntArray,
    difference: FloatArray,
    last: float = np.inf,
    is_perfect: NDArray[np.bool_] | bool = False,
) -> int | None:
    """Return the k from which the 98 % interval of a difference (shots, samples) stays above 0.

    Samples that are all equal count only where `is_perfect`.
    """
    if difference.shape[1] < MIN_SAMPLES:
        return None
    low, high = np.percentile(difference, (1, 99), axis=1)
    is_constant = high - low <= ROUNDING
    counts = (k <= last) & (~is_constant | is_perfect)
    return _holds_from(k[counts], low[counts] > 0)


def _holds_from(k: IntArray, holds: NDArray[np.bool_]) -> int | None:
    """Return the first k from which a condition holds to the end."""
    failures = np.flatnonzero(~holds)
    first = int(failures[-1]) + 1 if failures.size else 0
    return int(k[first]) if first < len(k) else None
