"""Samples of curves → paired differences of encoders and baselines, and where curves cross.

No random stream depends on the encoder, so sample i of one encoder saw the same draws, and in
`total` the same weights of recordings, as sample i of another.

Among many pairs at many k some differ by luck. So `low` and `high` are simultaneous: with z =
(difference − mean) / sd, they are mean ± c · sd, and in 98 % of samples no |z| of any pair at any k
up to k* exceeds c. A difference is clear if 0 is outside; beyond k* pools run out, and draws that
must be equal have no spread.

The paper's crossover is the k at which the centroid passes a baseline trained on all labels. For
when training pays given the same exemplars, the baseline is trained at every k on the draws that
the centroid sees.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from callshot.errors import InputError
from callshot.records import Evaluation
from callshot.records.frames import (
    CROSSOVERS,
    DIFFERENCES,
    Frame,
    concat_frames,
    make_frame,
    split_curves,
    summarise_samples,
    value_matrix,
)
from callshot.records.terms import MEAN, RANKING_METRICS
from callshot.spans import FloatArray, IntArray

CURVE_COLUMNS = ("corpus", "encoder", "scoring", "metric", "spread")
TASK_COLUMNS = ("corpus", "scoring", "metric")
PAIR_KEY = ("corpus", "classifier", "scoring", "metric", "spread")
MIN_SAMPLES = 101  # that a 98 % interval needs; fewer give a count of wins
ROUNDING = 1e-9  # differences of a metric below this are rounding errors
COVERED_PERCENT = 98
ONE_SET = "one-set"  # the interval of what one labelled set scores


class Comparison(NamedTuple):
    """A curve, rows of VALUES, minus the curve or value of `other` on the same samples.

    `other` is an encoder, classifier or baseline; `difference` is (shots, samples).
    """

    curve: pl.DataFrame
    other: str
    difference: FloatArray


def compare_encoders(
    values: pl.DataFrame, complete_shots: int | None = None
) -> pl.DataFrame:
    """Compare every pair of encoders of one corpus, in their order: rows of DIFFERENCES.

    `values` are rows of VALUES. Where a value is undefined, so is every difference at its k; beyond
    `complete_shots` nothing is clear.

    >>> from callshot.records.frames import values_frame
    >>> key = {"corpus": "herd", "classifier": "centroid", "scoring": "all", "metric": "map"}
    >>> key["spread"] = "shared"
    >>> one = values_frame({**key, "encoder": "a"}, np.array([1]), np.array([[0.5, 0.75, 0.75]]))
    >>> other = values_frame({**key, "encoder": "b"}, np.array([1]), np.array([[0.25, 0.75, 0.25]]))
    >>> frame = compare_encoders(pl.concat([one, other]))
    >>> frame.select("one", "other", "k", "mean", "p50").row(0)
    ('a', 'b', 1, 0.25, 0.25)
    """
    comparisons = []
    curves: dict[str, dict[tuple[str, ...], Frame]] = {}  # by encoder, then by PAIR_KEY
    for curve in split_curves(values):
        curves_of_encoder = curves.setdefault(curve["encoder"][0], {})
        curves_of_encoder[curve.select(PAIR_KEY).row(0)] = curve
    # For a curve of one encoder alone: an error, as its k differ
    no_curve = values.clear()
    samples_at_k = ("k", pl.col("value").list.len())
    for one, other in combinations(curves, 2):
        for key in curves[one] | curves[other]:
            curve = curves[one].get(key, no_curve)
            other_curve = curves[other].get(key, no_curve)
            sizes = curve.select(samples_at_k)
            if not sizes.equals(other_curve.select(samples_at_k)):
                raise InputError(
                    f"{key[0]}: '{one}' and '{other}' cannot be compared ({', '.join(key)}): "
                    "expected the same k and the same number of samples; "
                    "evaluate both with the same options"
                )
            difference = value_matrix(curve) - value_matrix(other_curve)
            comparisons.append(Comparison(curve, other, difference))
    rows_by_pair = summarise_comparisons(comparisons, complete_shots)
    return concat_frames(rows_by_pair, DIFFERENCES)


def compare_baselines(
    values: pl.DataFrame, baselines: pl.DataFrame, complete_shots: int | None = None
) -> pl.DataFrame:
    """Compare each curve with the baselines on its encoder, or on audio: rows of DIFFERENCES."""
    baseline_rows = baselines.to_dicts()
    comparisons = []
    for curve in split_curves(values):
        key = curve.select(CURVE_COLUMNS).row(0)
        for baseline in baseline_rows:
            if is_comparable(baseline, key):
                difference = subtract_baseline(curve, baseline)
                name = baseline_name(baseline)
                comparisons.append(Comparison(curve, name, difference))
    rows = summarise_comparisons(comparisons, complete_shots)
    return concat_frames(rows, DIFFERENCES)


def subtract_baseline(curve: pl.DataFrame, baseline: Mapping[str, Any]) -> FloatArray:
    """Return the samples of a curve minus a row of BASELINES, (shots, samples).

    In `total` and `mean`, sample i of both has the same weights of recordings; otherwise a baseline
    has one value.

    >>> from callshot.records.frames import CURVE_KEY, values_frame
    >>> key = dict.fromkeys(CURVE_KEY, "total")
    >>> curve = values_frame(key, np.array([1]), np.array([[0.5, 0.75]]))
    >>> subtract_baseline(curve, {"value": 0.5, "samples": [0.25, 0.75]})
    array([[0.25, 0.  ]])
    """
    samples = value_matrix(curve)
    column_of_spread = {"total": "samples", MEAN: "mean_samples"}
    column = column_of_spread.get(curve["spread"][0])
    paired = baseline.get(column) if column else None
    if not paired:
        return samples - float(baseline["value"])
    common = min(samples.shape[1], len(paired))
    baseline_samples = np.asarray(paired[:common], np.float64)
    return samples[:, :common] - baseline_samples


def compare_classifiers(
    pairs: Iterable[tuple[pl.DataFrame, pl.DataFrame]],
) -> list[Comparison]:
    """Subtract the second curve of each pair from the first, at the k and draws that both have."""
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
    """Return the k that two curves share, and the samples (shots, draws) of both curves there.

    Curves start with the same draws: if one has more of them, the others are left out.

    >>> from callshot.records.frames import CURVE_KEY, values_frame
    >>> key = dict.fromkeys(CURVE_KEY, "x")
    >>> one = values_frame(key, np.array([1, 2]), np.eye(2))
    >>> other = values_frame(key, np.array([2, 5]), np.ones((2, 1)))
    >>> align_draws(one, other)
    (array([2]), array([[0.]]), array([[1.]]))
    """
    k, rows, other_rows = np.intersect1d(one["k"], other["k"], return_indices=True)
    matrix = value_matrix(one)
    other_matrix = value_matrix(other)
    draws = slice(min(matrix.shape[1], other_matrix.shape[1]))
    samples = matrix[rows, draws]
    other_samples = other_matrix[other_rows, draws]
    return k, samples, other_samples


def summarise_comparisons(
    comparisons: Sequence[Comparison], complete_shots: int | None = None
) -> list[pl.DataFrame]:
    """Return a frame of DIFFERENCES for each comparison.

    Intervals are simultaneous over comparisons with the same scoring, metric, spread and number of
    samples, and over k up to `complete_shots`. There is none beyond that k, with few samples, and
    where all samples have the same difference: it is certain only if the curve is perfect.
    """
    last = np.inf if complete_shots is None else float(complete_shots)
    # Comparisons of one family have one factor, from all their differences (shots, samples) to k*.
    families = []
    differences_by_family = defaultdict(list)
    for curve, _, difference in comparisons:
        samples = difference.shape[1]
        family = (*curve.select("scoring", "metric", "spread").row(0), samples)
        families.append(family)
        is_complete = curve["k"].to_numpy() <= last
        differences_by_family[family].append(difference[is_complete])
    factors = {}
    for family, differences in differences_by_family.items():
        joined = np.concatenate(differences)
        factors[family] = simultaneous_factor(joined)
    frames = []
    for family, comparison in zip(families, comparisons, strict=True):
        curve, other, difference = comparison
        samples = difference.shape[1]
        mean = difference.mean(axis=1)
        margin = factors[family] * _standard_deviation(difference)
        mean_score = value_matrix(curve).mean(axis=1)
        is_perfect = mean_score >= 1 - ROUNDING
        is_beyond = curve["k"].to_numpy() > last
        margin[is_beyond] = np.nan
        is_constant = margin == 0
        margin[is_constant & ~is_perfect] = np.nan
        if samples < MIN_SAMPLES:
            margin[:] = np.nan
        # 1 for a win, ½ for equal values; undefined if the difference is.
        win = (np.sign(difference) + 1.0) / 2.0
        columns = {
            "k": curve["k"],
            **summarise_samples(difference),
            "wins": win.mean(axis=1),
            "samples": np.full(len(difference), samples),
            "low": pl.Series(mean - margin).fill_nan(None),
            "high": pl.Series(mean + margin).fill_nan(None),
            "clear": np.abs(mean) > margin + ROUNDING,
            "recordings_factor": None,
        }
        constants = curve.select(CURVE_COLUMNS).row(0, named=True)
        constants |= {"one": constants["encoder"], "other": other, "interval": ONE_SET}
        if constants["spread"] == MEAN:
            constants["interval"] = MEAN
            # The margin falls with the root of the number of recordings. With so many times as many
            # it is as large as the difference; at 1 or less the difference is clear already.
            known_mean = np.where(mean == 0, np.nan, mean)
            recordings_factor = np.square(margin / known_mean)
            needs_more = recordings_factor > 1
            recordings_factor[~needs_more] = np.nan
            columns["recordings_factor"] = pl.Series(recordings_factor).fill_nan(None)
        frames.append(make_frame(DIFFERENCES, columns, constants))
    return frames


def simultaneous_factor(differences: FloatArray) -> float:
    """Return the factor c of simultaneous intervals mean ± c · sd of differences (rows, samples).

    >>> samples = np.array([[-1.0, 0.0, 0.0, 1.0], [-3.0, 3.0, -3.0, 3.0]])
    >>> round(simultaneous_factor(samples), 3)
    1.414
    """
    sd = _standard_deviation(differences)
    varies = sd > 0
    if not varies.any():
        return 0.0
    mean = differences[varies].mean(axis=1)
    deviation = differences[varies] - mean[:, None]
    largest = np.abs(deviation / sd[varies, None]).max(axis=0)  # in each sample
    return float(np.percentile(largest, COVERED_PERCENT))


def _standard_deviation(differences: FloatArray) -> FloatArray:
    """Return each row's standard deviation (rows); one as small as rounding errors counts as 0."""
    deviation = differences.std(axis=1)
    return np.where(deviation <= ROUNDING, 0.0, deviation)


def is_comparable(baseline: Mapping[str, Any], curve_key: tuple[str, ...]) -> bool:
    """Return whether a baseline has the task and encoder of a curve, or reads audio.

    `baseline` is a row of BASELINES, without an encoder if it reads audio. `curve_key` has the
    values of CURVE_COLUMNS.
    """
    key = dict(zip(CURVE_COLUMNS, curve_key, strict=True))
    is_same_task = all(baseline[name] == key[name] for name in TASK_COLUMNS)
    return is_same_task and baseline["encoder"] in ("", key["encoder"])


def baseline_name(baseline: Mapping[str, Any]) -> str:
    """Return what a difference calls a baseline: its name, and its encoder if it has one."""
    if not baseline["encoder"]:
        return str(baseline["name"])
    return f"{baseline['name']} on {baseline['encoder']}"


KeyedCurve = tuple[tuple[str, ...], pl.DataFrame]
"""The values of CURVE_COLUMNS, and the rows of VALUES."""

AHEAD = (pl.col("mean") > 0) & pl.col("mean").is_not_nan()


def find_crossovers(
    values: pl.DataFrame,
    baselines: pl.DataFrame,
    trained: pl.DataFrame | None = None,
    complete_shots: int | None = None,
) -> pl.DataFrame:
    """Return every crossover of one corpus, as rows of CROSSOVERS.

    `values` are the centroid's, rows of VALUES, as `trained`, those of baselines trained at every
    k; `baselines` are trained on all labels, rows of BASELINES. Nothing is clear beyond
    `complete_shots`.

    >>> import numpy as np
    >>> from callshot.records.frames import BASELINES, values_frame
    >>> samples = np.linspace(0.1, 0.5, 101) + np.array([[0.0], [0.2], [0.4]])
    >>> key = {"corpus": "herd", "encoder": "a", "classifier": "centroid"}
    >>> key |= {"scoring": "all", "metric": "map", "spread": "shared"}
    >>> centroid = values_frame(key, np.array([1, 2, 3]), samples)
    >>> row = ("herd", "a", "logistic", "LR", "all", "map", 0.45, np.nan, np.nan, "", [], [])
    >>> baselines = pl.DataFrame([row], schema=dict(BASELINES), orient="row")
    >>> find_crossovers(centroid, baselines).select("k_mean", "k_clear").row(0)
    (2, 3)
    """
    # Split once: filters of frames for every pair of curves would take longer than all else.
    curves = [
        (curve.select(CURVE_COLUMNS).row(0), curve) for curve in split_curves(values)
    ]
    rows = _cross_baselines(curves, baselines, complete_shots)
    if trained is not None:
        rows += _cross_trained(curves, trained, complete_shots)
    return pl.DataFrame(rows, schema=dict(CROSSOVERS))


def _cross_baselines(
    curves: Sequence[KeyedCurve],
    baselines: pl.DataFrame,
    complete_shots: int | None,
) -> list[dict[str, Any]]:
    """Return where each curve passes each baseline that is trained on all labels."""
    pairs = []
    comparisons = []
    for baseline in baselines.to_dicts():
        for key, curve in curves:
            if is_comparable(baseline, key):
                difference = subtract_baseline(curve, baseline)
                pairs.append((curve, baseline))
                comparisons.append(Comparison(curve, baseline["name"], difference))
    rows = []
    differences = summarise_comparisons(comparisons, complete_shots)
    for (curve, baseline), rows_of_pair in zip(pairs, differences, strict=True):
        mean = value_matrix(curve).mean(axis=1)
        is_above = mean > baseline["value"]
        k_above = curve.filter(is_above)["k"]
        k_mean = next(iter(k_above), None)
        rows.append(_crossover(rows_of_pair, curve, baseline["name"], "all", k_mean))
    return rows


def _cross_trained(
    curves: Sequence[KeyedCurve], trained: pl.DataFrame, complete_shots: int | None
) -> list[dict[str, Any]]:
    """Return from where each baseline that is trained at every k stays ahead of its curve."""
    same_curves = []
    for trained_curve in split_curves(trained):
        if trained_curve["metric"][0] not in RANKING_METRICS:
            continue
        trained_key = trained_curve.select(CURVE_COLUMNS).row(0)
        for key, curve in curves:
            if key == trained_key:
                same_curves.append((trained_curve, curve))
    rows = []
    comparisons = compare_classifiers(same_curves)
    differences = summarise_comparisons(comparisons, complete_shots)
    for comparison, rows_of_pair in zip(comparisons, differences, strict=True):
        curve = comparison.curve
        ahead = first_lasting(rows_of_pair, AHEAD) or {}
        k_mean = ahead.get("k")
        name = curve["classifier"][0]
        rows.append(_crossover(rows_of_pair, curve, name, "k", k_mean))
    return rows


def _crossover(
    difference: Frame, curve: Frame, baseline: str, labels: str, k_mean: int | None
) -> dict[str, Any]:
    """Return a row of CROSSOVERS from the rows of DIFFERENCES of one curve and baseline.

    `labels` is what the baseline is trained on: all labels, or those of k examples. Shots without
    an interval do not count for `k_clear`; an undefined difference is not clear.
    """
    has_interval = pl.col("low").is_not_null()
    is_undefined = pl.col("mean").is_nan()
    compared = difference.filter(has_interval | is_undefined)
    first_clear = first_lasting(compared, AHEAD & pl.col("clear")) or {}
    return curve.select(CURVE_COLUMNS).row(0, named=True) | {
        "baseline": baseline,
        "labels": labels,
        "k_mean": k_mean,
        "k_clear": first_clear.get("k"),
    }


def add_baselines(
    evaluation: Evaluation, baselines: pl.DataFrame, trained: pl.DataFrame | None = None
) -> Evaluation:
    """Return an evaluation with differences from baselines (rows of BASELINES) and crossovers.

    `trained` are curves, rows of VALUES, of baselines that are trained at every k.
    """
    values = evaluation.values
    last = evaluation.complete_shots
    between_encoders = compare_encoders(values, last)
    from_baselines = compare_baselines(values, baselines, last)
    return replace(
        evaluation,
        differences=pl.concat([between_encoders, from_baselines]),
        crossovers=find_crossovers(values, baselines, trained, last),
    )


def first_lasting(points: Frame, condition: pl.Expr) -> dict[str, Any] | None:
    """Return the first row from which a condition holds to the end; None if there is none.

    >>> first_lasting(pl.DataFrame({"k": [1, 2, 3, 4]}), pl.col("k").is_in([1, 3, 4]))
    {'k': 3}
    """
    later_failures = (~condition).cum_sum(reverse=True)  # at and after each row
    lasting = points.filter(later_failures == 0)
    return None if lasting.is_empty() else lasting.row(0, named=True)
