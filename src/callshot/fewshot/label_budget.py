"""Curves → what more exemplars are worth to each class, and how many of them a target needs.

The variance of a mean of k exemplars falls as 1/k, and so does what it costs a class once it is
small. Hence the curve a − b/k, fitted to the later half of the shots: fitted to all of them it
falls below what the last shots have reached. It is fitted again in every sample of `total`: a class
is recommended only if it is the one that gains most on other recordings too.

How many exemplars a target needs is read from the samples of `total`, at evaluated shots up to k*.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import polars as pl

from callshot.errors import InputError, OptionError
from callshot.fewshot.differences import MIN_SAMPLES
from callshot.records import ClassCount, Evaluation, FloatArray, IntArray
from callshot.records.frames import BUDGET, TARGETS, split_curves, value_matrix

MIN_POINTS = 3  # two points lie on the curve whatever they are
LEVEL_CHANGE = 0.01  # a smaller change of a metric counts as level
LATER_HALF = 0.5  # curves are fitted to the shots from this share of the last one on
MIN_P_GAIN = 0.98  # share of samples in which a recommended class gains
MIN_P_LARGEST_GAIN = 0.9  # and in which it gains more than every other class
NOT_COMPARED = dict.fromkeys(
    ("next_gain_p01", "next_gain_p99", "prob_gain", "prob_largest_gain"), np.nan
)

REACHES = 0.98  # share of samples that reach the target from where it is called clear
NEEDS_TOTAL = "target: needs the spread total; evaluate with the spread all or total"

Row = dict[str, Any]
Gains = Mapping[str, FloatArray]  # of each class, in every sample


@dataclass(frozen=True)
class CurveFit:
    """Curves a − b/k of the score of one class, fitted in each sample.

    `k` is the last evaluated shot that the class can give in every split; 0 if there is none.
    """

    k: int
    value: FloatArray  # at k
    limit: FloatArray  # a
    slope: FloatArray  # b
    error: FloatArray  # RMSE

    def gain(self, more: int) -> FloatArray:
        """Return by how much the curves rise from k to k + `more` exemplars, never beyond 1."""
        # b / k − b / (k + more); not known (NaN) if k is 0
        rise = self.slope * more / max(self.k * (self.k + more), 1)
        max_rise = np.maximum(1.0 - self.value, 0.0)
        return np.minimum(rise, max_rise)


def fit_class(shots: IntArray, values: FloatArray, complete_to_k: int) -> CurveFit:
    """Fit a curve a − b/k to each column of `values`, the scores of one class (shots, samples).

    The curve is fitted to the later half of the shots up to `complete_to_k`. With fewer than three
    of these, all numbers but k and the value are NaN; without any, the value is too.
    """
    order = np.argsort(shots)
    complete = order[shots[order] <= complete_to_k]
    unknown = np.full(values.shape[1], np.nan)
    if complete.size == 0:
        return CurveFit(k=0, value=unknown, limit=unknown, slope=unknown, error=unknown)
    last = complete[-1]
    k = int(shots[last])
    value = values[last]
    if complete.size < MIN_POINTS:
        return CurveFit(k, value, limit=unknown, slope=unknown, error=unknown)
    is_late = shots[complete] >= LATER_HALF * k
    is_late[-MIN_POINTS:] = True  # the later half may have fewer shots than a fit needs
    late = complete[is_late]
    late_values = values[late]  # (shots, samples)
    late_shots = shots[late][:, None]
    # A least-squares line in 1/k for every column: a − b/k with b ≥ 0.
    inverse = 1.0 / late_shots
    mean_inverse = inverse.mean()
    centred = inverse - mean_inverse
    weight = -centred / np.sum(centred**2)
    free_slope = np.sum(weight * late_values, axis=0)
    slope = np.maximum(free_slope, 0.0)
    limit = late_values.mean(axis=0) + slope * mean_inverse
    residual = late_values - limit + slope * inverse
    mean_square = np.mean(residual**2, axis=0)
    error = np.sqrt(mean_square)
    limit = np.minimum(limit, 1.0)
    limit = np.where(slope == 0, value, limit)  # a level curve stays where it is
    return CurveFit(k, value, limit=limit, slope=slope, error=error)


def sample_gains(
    shots: IntArray,
    samples: FloatArray,
    labels: Sequence[str],
    classes: Sequence[ClassCount],
) -> Gains:
    """Return by how much one more exemplar of each class raises its score, in every sample.

    `samples` (shots, labels, samples) are the scores of one metric, `classes` the counts of at
    least these labels.
    """
    complete_to_k = {count.label: count.complete_to_k for count in classes}
    gains = {}
    for n, label in enumerate(labels):
        fit = fit_class(shots, samples[:, n], complete_to_k[label])
        gains[label] = fit.gain(1)
    return gains


def label_budget(
    per_class: pl.DataFrame,
    classes: Sequence[ClassCount],
    gains: Mapping[str, Gains] | None = None,
) -> pl.DataFrame:
    """Return what the next exemplar of each class is worth to its AP: rows of BUDGET.

    `per_class` are rows of PER_CLASS; the spread `shared` is read where there is one: it is how a
    person labels. `gains` are those of each encoder from `sample_gains`: without them no interval
    is known, and no class is recommended.
    """
    rows = per_class.filter(metric="map")
    if "shared" in rows["spread"]:
        rows = rows.filter(spread="shared")
    counts = {count.label: count for count in classes}
    summaries = {  # columns of BUDGET by encoder, then by label
        encoder: _summarise_gains(class_gains)
        for encoder, class_gains in (gains or {}).items()
    }
    budget = []
    key = ("corpus", "encoder", "label", "metric")
    for curve in rows.partition_by(key, maintain_order=True):
        row = curve.select(key).row(0, named=True)
        label = row["label"]
        count = counts[label]
        shots = curve["k"].to_numpy()
        means = curve["mean"].to_numpy()[:, None]  # as one sample, (shots, 1)
        fit = fit_class(shots, means, count.complete_to_k)
        row |= {
            "exemplars": count.exemplars,
            "k": fit.k,
            "value": fit.value.item(),
            "next_gain": fit.gain(1).item(),
            "double_gain": fit.gain(fit.k).item(),
            "limit": fit.limit.item(),
            "error": fit.error.item(),
            **summaries.get(row["encoder"], {}).get(label, NOT_COMPARED),
        }
        # It gains, most of all classes, and enough to matter; NaN in NOT_COMPARED is no gain.
        row["recommended"] = bool(
            row["prob_gain"] >= MIN_P_GAIN
            and row["prob_largest_gain"] >= MIN_P_LARGEST_GAIN
            and row["double_gain"] >= LEVEL_CHANGE
        )
        budget.append(row)
    return pl.DataFrame(budget, schema=dict(BUDGET))


def recommended_class(budget: pl.DataFrame) -> Row | None:
    """Return the first row of BUDGET with a recommended class; None if no class stands out."""
    rows = budget.filter("recommended")
    return None if rows.is_empty() else rows.row(0, named=True)


def has_gains(budget: pl.DataFrame) -> bool:
    """Return whether classes were compared, so that one could have been recommended."""
    return bool(budget["prob_largest_gain"].is_not_nan().any())


def saturation(curve: pl.DataFrame, within: float = LEVEL_CHANGE) -> int | None:
    """Return the first k from which no later mean is more than `within` above; None without one.

    `curve` has the columns k and mean; points without a mean are left out.

    >>> k = np.arange(1, 41)
    >>> saturation(pl.DataFrame({"k": k, "mean": 0.8 - 0.2 / k}))
    14
    """
    points = curve.filter(pl.col("mean").is_not_nan()).sort("k")
    means = points["mean"].to_numpy()
    for index in range(len(means) - 1):  # the last k has no later mean
        if means[index + 1 :].max() - means[index] <= within:
            return int(points["k"][index])
    return None


def _summarise_gains(gains: Gains) -> dict[str, Row]:
    """Summarise the gain of each class from one more exemplar: columns of BUDGET, by label.

    Classes without a fitted curve (NaN) are left out. The result is empty with too few samples, or
    fewer than two classes.
    """
    finite = {label: gain for label, gain in gains.items() if np.isfinite(gain).all()}
    samples = min(map(len, finite.values()), default=0)
    if samples < MIN_SAMPLES or len(finite) < 2:
        return {}
    summaries = {}
    for label, gain in finite.items():
        other_gains = [finite[other] for other in finite if other != label]
        low, high = np.percentile(gain, (1, 99))
        summaries[label] = {
            "next_gain_p01": low,
            "next_gain_p99": high,
            "prob_gain": np.mean(gain > 0),
            # In each sample, its gain against the largest of the others.
            "prob_largest_gain": np.mean(gain > np.max(other_gains, axis=0)),
        }
    return summaries


def check_target(target: float, spreads: Collection[str]) -> None:
    """Check that a target is a score, and that `spreads` have `total`, which it needs."""
    if not 0 < target <= 1:
        raise OptionError(
            f"target: expected a score above 0 and up to 1, such as 0.8, got {target}"
        )
    if "total" not in spreads:
        raise OptionError(NEEDS_TOTAL)


def labels_for_target(
    result: Evaluation, target: float, metric: str = "map"
) -> pl.DataFrame:
    """Return how many exemplars per class reach a target, with each encoder and classifier.

    Parameters
    ----------
    result : Evaluation
        With the spread `total`.
    target : float
        A score above 0 and up to 1.
    metric : str
        The metric that reaches it: map, auroc or accuracy.

    Returns
    -------
    polars.DataFrame
        `k_mean` is the smallest evaluated k up to k* at which the mean reaches the target,
        `k_clear` that at which 98 % of samples do (of more than 100). They are null where no such k
        was evaluated: then it is not known. `first_k` and `last_k` are the ends of this range,
        `last_mean` is the mean at the last, and `last_share` the share of samples that reach the
        target there.

    Raises
    ------
    InputError
        If the spread `total` was not evaluated.
    OptionError
        If the target is out of its range.

    Examples
    --------
    >>> import numpy as np
    >>> from callshot import evaluate
    >>> y = ["rumble", "roar"] * 20
    >>> X = np.random.default_rng(0).normal(size=(40, 8)) + [[3.0 * (one == "roar")] for one in y]
    >>> result = evaluate(X, y, shots="1,5", spread="total", permutations=0)
    >>> labels_for_target(result, 0.8).select("target", "k_mean", "k_clear").row(0)
    (0.8, 1, 1)
    """
    values = result.values.filter(spread="total", scoring="all", metric=metric)
    if values.is_empty():
        raise InputError(NEEDS_TOTAL)
    check_target(target, values["spread"])
    rows = []
    for curve in split_curves(values):
        row = curve.select("corpus", "encoder", "classifier", "metric").to_dicts()[0]
        row["target"] = target
        rows.append(row)
        complete = curve.filter(pl.col("k") <= result.complete_shots).sort("k")
        if complete.is_empty():
            continue
        shots = complete["k"]
        samples = value_matrix(complete)
        means = samples.mean(axis=1)
        shares = np.mean(samples >= target, axis=1)
        is_clear = (shares >= REACHES) & (samples.shape[1] >= MIN_SAMPLES)
        row |= {
            "first_k": shots[0],
            "last_k": shots[-1],
            "k_mean": shots.filter(means >= target).first(),
            "k_clear": shots.filter(is_clear).first(),
            "last_mean": float(means[-1]),
            "last_share": float(shares[-1]),
        }
    return pl.DataFrame(rows, schema=dict(TARGETS))
