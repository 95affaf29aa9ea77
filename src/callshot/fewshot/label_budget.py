"""Curves → what more exemplars are worth: to each class, and to all classes together.

The variance of a mean of k exemplars falls as 1/k, and so does what it costs a class once it is
small. Hence the curve a − b/k, fitted to the later half of the shots: fitted to all of them it
falls below what the last shots have reached. No metric exceeds 1, so neither does a limit, and no
gain leads beyond it.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import polars as pl

from callshot.records import ClassCount
from callshot.records.embeddings import FloatArray
from callshot.records.frames import BUDGET

MIN_POINTS = 3  # two points lie on the curve whatever they are
WITHIN = 0.01  # a smaller change of a metric counts as level


def label_budget(
    per_class: pl.DataFrame,
    classes: Sequence[ClassCount],
    metric: str = "map",
    *,
    since: float = 0.5,
) -> pl.DataFrame:
    """Return what the next exemplar of each eligible class is worth to it, with each encoder.

    The spread `shared` is read where there is one: it is how a person labels. Only shots that the
    class can give in every split count; `k` is 0 where none of these was evaluated. All classes
    get one exemplar more at each step of the curves, so a gain is that of a step of all classes.

    Parameters
    ----------
    per_class : polars.DataFrame
        Rows of the PER_CLASS schema.
    classes : sequence of ClassCount
    metric : str
    since : float
        The curve is fitted to the shots from this share of the last one on, to three at least.

    Returns
    -------
    polars.DataFrame
        Rows of the BUDGET schema.
    """
    rows = per_class.filter(metric=metric)
    if "shared" in rows["spread"]:
        rows = rows.filter(spread="shared")
    counts = {count.label: count for count in classes if count.eligible}
    curves = rows.partition_by("corpus", "encoder", "label", maintain_order=True)
    budget = [
        _fit_class(curve, counts[curve["label"][0]], since)
        for curve in curves
        if curve["label"][0] in counts
    ]
    return pl.DataFrame(budget, schema=dict(BUDGET))


def largest_gain(budget: pl.DataFrame) -> dict[str, Any] | None:
    """Return the row of the class that gains most from its next exemplar, if it stands out.

    It does not where no curve was fitted, where twice as many exemplars would add less than
    `WITHIN`, or where the points lie further from the curve than it rises: then noise decides.
    """
    known = budget.filter(pl.col("next_gain").is_not_nan())
    if known.is_empty():
        return None
    row = known.row(int(known["next_gain"].arg_max() or 0), named=True)
    if row["double_gain"] < WITHIN or row["error"] > row["double_gain"]:
        return None
    return row


def saturation(curve: pl.DataFrame, within: float = WITHIN) -> int | None:
    """Return the first k whose mean no later mean exceeds by more than `within`.

    None where only the last k is such. Points without a mean are left out.

    >>> k = np.arange(1, 41)
    >>> saturation(pl.DataFrame({"k": k, "mean": 0.8 - 0.2 / k}))
    14
    """
    points = curve.filter(pl.col("mean").is_not_nan()).sort("k")
    means = points["mean"].to_numpy()
    for index in range(len(means) - 1):
        if means[index + 1 :].max() - means[index] <= within:
            return int(points["k"][index])
    return None


def _fit_class(
    curve: pl.DataFrame, count: ClassCount, since: float
) -> dict[str, object]:
    """Return the row of one class and encoder."""
    points = curve.filter(pl.col("k") <= count.complete_to_k).sort("k")
    shots = points["k"].to_numpy()
    means = points["mean"].to_numpy()
    k = int(shots[-1]) if len(shots) else 0
    value = float(means[-1]) if len(shots) else np.nan
    is_late = shots >= since * k
    is_late[-MIN_POINTS:] = True
    limit = slope = error = next_gain = double_gain = np.nan
    if is_late.sum() >= MIN_POINTS:
        limit, slope, error = _fit(
            np.column_stack([shots, means])[is_late][::-1].copy()
        )
    if k > 0:
        most = max(1.0 - value, 0.0)
        next_gain = min(slope / (k * (k + 1)), most)
        double_gain = min(slope / (2 * k), most)
    first = curve.row(0, named=True)
    return {
        "corpus": first["corpus"],
        "encoder": first["encoder"],
        "label": count.label,
        "metric": first["metric"],
        "exemplars": count.exemplars,
        "k": k,
        "value": value,
        "next_gain": next_gain,
        "double_gain": double_gain,
        "limit": value
        if slope == 0
        else min(limit, 1.0),  # a level curve stays where it is
        "error": error,
    }


def _fit(points: FloatArray) -> tuple[float, float, float]:
    """Fit a − b/k, b ≥ 0, to (k, mean) by least squares; return a, b and the RMSE.

    Both are columns of one array: another layout in memory would change the last digit.
    """
    means = points[:, 1]
    inverse = 1.0 / points[:, 0]
    offset = inverse - inverse.mean()
    slope = max(-float(offset @ means) / float(offset @ offset), 0.0)
    limit = float(means.mean() + slope * inverse.mean())
    error = np.sqrt(np.mean((means - limit + slope * inverse) ** 2))
    return limit, slope, float(error)
