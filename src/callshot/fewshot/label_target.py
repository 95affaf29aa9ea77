"""Samples of the spread `total` → how many exemplars of each class a target needs.

Only evaluated shots up to k* can answer: beyond k* classes run out of exemplars, and no curve is
extended beyond its last point.
"""

from collections.abc import Collection

import numpy as np
import polars as pl

from callshot.errors import InputError, OptionError
from callshot.fewshot.differences import MIN_SAMPLES
from callshot.records import Evaluation, IntArray
from callshot.records.frames import TARGETS, split_curves, value_matrix

REACHES = 0.98  # share of samples that reach the target from where it is called clear
NEEDS_TOTAL = "target: needs the spread total; evaluate with the spread all or total"


def check_target(target: float, spreads: Collection[str]) -> None:
    """Check a target, and that the spread that can answer it is evaluated."""
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
        complete = curve.filter(pl.col("k") <= result.complete_shots).sort("k")
        key = curve.select("corpus", "encoder", "classifier", "metric").to_dicts()[0]
        answer = {} if complete.is_empty() else _find_shots(complete, target)
        rows.append({**key, "target": target, **answer})
    return pl.DataFrame(rows, schema=dict(TARGETS))


def _find_shots(curve: pl.DataFrame, target: float) -> dict[str, float | None]:
    """Return the first shots that reach a target, and how far the last one comes."""
    shots = curve["k"].to_numpy()
    samples = value_matrix(curve)
    means = samples.mean(axis=1)
    shares = np.mean(samples >= target, axis=1)
    is_clear = shares >= REACHES
    if samples.shape[1] < MIN_SAMPLES:
        is_clear[:] = False
    return {
        "first_k": int(shots[0]),
        "last_k": int(shots[-1]),
        "k_mean": _first(shots[means >= target]),
        "k_clear": _first(shots[is_clear]),
        "last_mean": float(means[-1]),
        "last_share": float(shares[-1]),
    }


def _first(shots: IntArray) -> int | None:
    return int(shots[0]) if shots.size else None
