"""Context → the first sentence of a report: how good with a few examples, and what more would do.

It is about the share of right names where that was measured, else about mAP. A higher level is
promised only if an evaluated k up to k* reaches it on average, and if nearly all samples rise.
"""

from dataclasses import dataclass, replace
from math import floor, isfinite, nan

import numpy as np
import polars as pl

from callshot.errors import count_text
from callshot.fewshot.differences import MIN_SAMPLES
from callshot.fewshot.label_budget import REACHES, labels_for_target
from callshot.records.frames import Frame, value_matrix
from callshot.report.summary.context import SAMPLES, Context, Point, format_share
from callshot.report.summary.encoders import WHERE, describe_no_success

LEVEL_STEPS = (0.1, 0.05)
LEAST_RISE = 0.02  # from the mean to a level that is worth naming
SUBJECTS = {
    "accuracy": "{encoder} names the right type {value} of the time",
    "map": "{encoder} reaches mAP {value}",
}


@dataclass(frozen=True)
class Headline:
    """The first sentence, those below it, and the points of the curve that it is about.

    `next_k` is None where no higher level is promised.
    """

    sentence: str
    details: list[str]
    metric: str
    k: int
    next_k: int | None = None


@dataclass(frozen=True)
class Rise:
    """A level above the mean at k, and the number of examples that reaches it."""

    k: int
    level: float


def write_headline(context: Context) -> Headline:
    """Return the first sentence, those below it, and what they are about."""
    metric = choose_metric(context)
    points = headline_curve(context, metric)
    point = points.row(by_predicate=pl.col("k") == context.k, named=True)
    details = [
        *_describe_interval(context, metric, point),
        *_describe_guessing(context, metric, point),
    ]
    for sentence in describe_no_success(context):
        first = sentence.partition(". ")[0]
        return Headline(f"{first}.", details, metric, context.k)
    start = _describe_few(context, metric, point)
    rise = find_rise(context, metric, point)
    if rise is not None:
        return _promise(start, details, rise, Headline("", [], metric, context.k))
    facts = _describe_known(context, metric, points)
    sentence = f"{start}{_describe_last(context, points, metric)}."
    return Headline(sentence, [*facts, *details], metric, context.k)


def _promise(start: str, details: list[str], rise: Rise, about: Headline) -> Headline:
    """Return the headline that says how many more examples reach a level."""
    level = format_value(about.metric, rise.level)
    more = rise.k - about.k
    sentence = f"{start}; label {more} more of each to reach {level}."
    return replace(about, sentence=sentence, details=details, next_k=rise.k)


def _describe_few(context: Context, metric: str, point: Point) -> str:
    value = format_value(metric, point["mean"])
    subject = SUBJECTS[metric].format(encoder=context.best, value=value)
    return f"With {context.examples(context.k)}, {subject}"


def _describe_known(context: Context, metric: str, points: Frame) -> list[str]:
    """Return what is known of more examples where no level is promised."""
    return [
        *_describe_rarest(context, points),
        *_describe_share(context, metric, points),
    ]


def choose_metric(context: Context) -> str:
    """Return accuracy where it was measured and no mAP is the target, else map."""
    metrics = set(context.evaluation.curve.filter(spread=context.spread)["metric"])
    return "accuracy" if "accuracy" in metrics and context.target is None else "map"


def headline_curve(context: Context, metric: str) -> Frame:
    """Return the points of the best encoder that the first sentence is about, by k."""
    return context.evaluation.curve.filter(
        encoder=context.best, scoring="all", metric=metric, spread=context.spread
    ).sort("k")


def find_rise(context: Context, metric: str, point: Point) -> Rise | None:
    """Return the next level that more examples clearly lead to, or the target; None if none."""
    values = context.evaluation.values.filter(spread="total", metric=metric)
    if values.is_empty() or context.samples < MIN_SAMPLES:
        return None
    for level in _next_levels(point["mean"], context.target):
        answers = labels_for_target(context.evaluation, level, metric)
        k = answers.filter(encoder=context.best)["k_mean"][0]
        if (
            k is not None
            and k > context.k
            and share_rising(context, metric, k) >= REACHES
        ):
            return Rise(k, level)
    return None


def _next_levels(mean: float, target: float | None) -> list[float]:
    """Return the levels to try: a target, or the next round ones.

    >>> _next_levels(0.61, None), _next_levels(0.695, None), _next_levels(0.5, 0.8)
    ([0.7, 0.65], [0.8, 0.75], [0.8])
    """
    if target is not None:
        return [target] if target > mean else []
    levels = []
    for step in LEVEL_STEPS:
        level = round((floor((mean + LEAST_RISE) / step + 1e-9) + 1) * step, 2)
        if level <= 1:
            levels.append(level)
    return levels


def share_rising(context: Context, metric: str, k: int) -> float:
    """Return in which share of samples k examples are better than a few; NaN if they are few."""
    values = context.evaluation.values.filter(
        encoder=context.best, scoring="all", metric=metric, spread=context.spread
    )
    at_few = values.filter(k=context.k)
    if at_few.is_empty():
        return nan
    few = value_matrix(at_few)
    more = value_matrix(values.filter(k=k))
    if min(few.shape[1], more.shape[1]) < MIN_SAMPLES:
        return nan
    return float(np.mean(more > few))


def _describe_last(context: Context, points: Frame, metric: str) -> str:
    """Return what the most examples do that every call type has, if they are more."""
    complete = points.filter("complete")
    if complete.is_empty() or complete["k"][-1] <= context.k:
        return ""
    few = points.filter(k=context.k)["mean"][0]
    last = complete.row(-1, named=True)
    k = last["k"]
    if last["mean"] - few < LEAST_RISE:
        return f"; up to {k} bring no clear gain"
    value = format_value(metric, last["mean"])
    return f"; with {k}, the most tested, it is {value}"


def _describe_share(context: Context, metric: str, points: Frame) -> list[str]:
    """Return in how many samples the most examples are better than a few."""
    complete = points.filter("complete")
    if complete.is_empty() or complete["k"][-1] <= context.k:
        return []
    k = complete["k"][-1]
    share = share_rising(context, metric, k)
    if not isfinite(share):
        return []
    samples = SAMPLES[context.spread]
    return [f"{k} are better than {context.k} in {format_share(share)} % of {samples}."]


def _describe_rarest(context: Context, points: Frame) -> list[str]:
    """Return the call type that prevents a test with more examples, if one does."""
    classes = context.evaluation.eligible_classes
    rarest = min(classes, key=lambda count: count.complete_to_k)
    k = rarest.complete_to_k
    if k >= points["k"][-1]:
        return []
    examples = count_text(rarest.exemplars, "example")
    return [f"More than {k} of each cannot be tested: '{rarest.label}' has {examples}."]


def _describe_interval(context: Context, metric: str, point: Point) -> list[str]:
    if context.spread not in WHERE or context.samples < MIN_SAMPLES:
        return []
    low = format_value(metric, point["p01"])
    high = format_value(metric, point["p99"])
    where = WHERE[context.spread]
    return [f"One labelled set gives {low} to {high} on {where} (98 % interval)."]


def _describe_guessing(context: Context, metric: str, point: Point) -> list[str]:
    chance = format_value(metric, point["chance"])
    if metric != "accuracy":
        return [f"A random ranking gives {chance}."]
    label, share = context.evaluation.largest_class
    largest = format_value(metric, share)
    return [
        f"Guessing gives {chance}; always naming '{label}', the most frequent, gives {largest}."
    ]


def format_value(metric: str, value: float) -> str:
    """Return a score as people read it.

    >>> format_value("accuracy", 0.614), format_value("map", 0.614)
    ('61 %', '0.61')
    """
    if metric == "accuracy":
        return f"{100 * value:.0f} %"
    return f"{value:.2f}"
