"""Samples of curves → paired differences: one encoder less another, or less a baseline.

No random stream depends on the encoder, so sample i of one encoder saw the same draws as sample i
of another, in every spread: what the draws do to both cancels out. In the spread `total`, baselines
that are trained on all labels saw the same weights of recordings too.
"""

from collections.abc import Mapping
from itertools import combinations
from typing import Any

import numpy as np
import polars as pl

from callshot.errors import InputError
from callshot.records.embeddings import FloatArray
from callshot.records.frames import (
    DIFFERENCES,
    concat_frames,
    make_frame,
    split_curves,
    summarise_samples,
    value_matrix,
)

PAIR_KEY = ("corpus", "classifier", "scoring", "metric", "spread")


def compare_encoders(values: pl.DataFrame) -> pl.DataFrame:
    """Compare every pair of encoders of one corpus, in their order.

    Where a value is undefined, so is every difference at its k.

    Parameters
    ----------
    values : polars.DataFrame
        Rows of the VALUES schema.

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
    encoders = values["encoder"].unique(maintain_order=True)
    curves = {name: _curves_by_key(values.filter(encoder=name)) for name in encoders}
    differences = []
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
            differences.append(summarise_differences(rows, other, difference))
    return concat_frames(differences, DIFFERENCES)


def compare_baselines(values: pl.DataFrame, baselines: pl.DataFrame) -> pl.DataFrame:
    """Compare each curve with the baselines on its encoder, and with those that read audio.

    See `less_baseline` for the samples of a difference.
    """
    differences = []
    for curve in split_curves(values):
        for baseline in matching_baselines(baselines, curve).iter_rows(named=True):
            difference = less_baseline(curve, baseline)
            name = baseline_name(baseline)
            differences.append(summarise_differences(curve, name, difference))
    return concat_frames(differences, DIFFERENCES)


def less_baseline(curve: pl.DataFrame, baseline: Mapping[str, Any]) -> FloatArray:
    """Return the samples of a curve less a baseline, (shots, samples).

    In the spread `total`, sample i of both has the same weights of recordings. In other spreads,
    and without samples of its own, a baseline has one value, whatever was drawn.

    >>> from callshot.records.frames import CURVE_KEY, values_frame
    >>> key = dict.fromkeys(CURVE_KEY, "total")
    >>> curve = values_frame(key, np.array([1]), np.array([[0.5, 0.75]]))
    >>> less_baseline(curve, {"value": 0.5, "samples": [0.25, 0.75]})
    array([[0.25, 0.  ]])
    """
    samples = value_matrix(curve)
    paired = baseline["samples"]
    if curve["spread"][0] != "total" or not paired:
        return samples - float(baseline["value"])
    common = min(samples.shape[1], len(paired))
    return samples[:, :common] - np.asarray(paired[:common], np.float64)


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


def summarise_differences(
    curve: pl.DataFrame, other: str, difference: FloatArray
) -> pl.DataFrame:
    """Return rows of the DIFFERENCES schema for a curve less something, (shots, samples)."""
    wins = ((np.sign(difference) + 1.0) / 2.0).mean(
        axis=1
    )  # equal: half; undefined: undefined
    columns = {"k": curve["k"], **summarise_samples(difference), "wins": wins}
    key = curve.row(0, named=True) | {"one": curve["encoder"][0], "other": other}
    constants = {name: key[name] for name in DIFFERENCES if name not in columns}
    return make_frame(DIFFERENCES, columns, constants)


def _curves_by_key(values: pl.DataFrame) -> dict[tuple[str, ...], pl.DataFrame]:
    return {curve.select(PAIR_KEY).row(0): curve for curve in split_curves(values)}


def _are_paired(one: pl.DataFrame, other: pl.DataFrame) -> bool:
    """Return whether two curves have the same k and the same number of samples."""
    if not one["k"].equals(other["k"]):
        return False
    return value_matrix(one).shape == value_matrix(other).shape
