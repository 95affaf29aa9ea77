"""Context → the first sentence of a report: how good with a few examples, and what more would do.

It is about mAP, by which encoders are chosen and compared: the first screen has one metric. The
share of right names is in a sentence of its own. A higher level is promised only if an evaluated k
up to k* reaches it on average, and if nearly all samples rise.
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
MIN_RISE = 0.02  # from the mean to a level that is worth naming
METRIC = "map"  # of the whole first screen


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
    points = context.curve()
    point = points.row(by_predicate=pl.col("k") == context.k, named=True)
    details = [
        *_describe_interval(context, point),
        f"A random ranking gives {format_value(point['chance'])}.",
        *describe_right_names(context),
    ]
    for sentence in describe_no_success(context):
        first = sentence.partition(". ")[0]
        return Headline(f"{first}.", details, METRIC, context.k)
    start = _describe_few(context, point)
    rise = find_rise(context, point)
    if rise is not None:
        return _promise(start, details, rise, Headline("", [], METRIC, context.k))
    facts = [*_describe_rarest(context, points), *_describe_share(context, points)]
    sentence = f"{start}{_describe_last(context, points)}."
    return Headline(sentence, [*facts, *details], METRIC, context.k)


def _promise(start: str, details: list[str], rise: Rise, about: Headline) -> Headline:
    """Return the headline that says how many more examples reach a level."""
    level = format_value(rise.level)
    more = rise.k - about.k
    sentence = f"{start}; label {more} more of each to reach {level}."
    return replace(about, sentence=sentence, details=details, next_k=rise.k)


def _describe_few(context: Context, point: Point) -> str:
    value = format_value(point["mean"])
    return f"With {context.examples(context.k)}, {context.best} reaches mAP {value}"


def find_rise(context: Context, point: Point) -> Rise | None:
    """Return the next level that more examples clearly lead to, or the target; None if none."""
    values = context.evaluation.values.filter(spread="total", metric=METRIC)
    if values.is_empty() or context.samples < MIN_SAMPLES:
        return None
    for level in _next_levels(point["mean"], context.target):
        answers = labels_for_target(context.evaluation, level, METRIC)
        k = answers.filter(encoder=context.best)["k_mean"][0]
        if k is None or k <= context.k:
            continue
        if share_rising(context, k) >= REACHES:
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
        level = round((floor((mean + MIN_RISE) / step + 1e-9) + 1) * step, 2)
        if level <= 1:
            levels.append(level)
    return levels


def share_rising(context: Context, k: int) -> float:
    """Return in which share of samples k examples are better than a few; NaN if they are few."""
    values = context.evaluation.values.filter(
        encoder=context.best, scoring="all", metric=METRIC, spread=context.spread
    )
    at_few = values.filter(k=context.k)
    if at_few.is_empty():
        return nan
    few = value_matrix(at_few)
    more = value_matrix(values.filter(k=k))
    if min(few.shape[1], more.shape[1]) < MIN_SAMPLES:
        return nan
    return float(np.mean(more > few))


def _describe_last(context: Context, points: Frame) -> str:
    """Return what the most examples do that every call type has, if they are more."""
    complete = points.filter("complete")
    if complete.is_empty() or complete["k"][-1] <= context.k:
        return ""
    few = points.filter(k=context.k)["mean"][0]
    last = complete.row(-1, named=True)
    k = last["k"]
    if last["mean"] - few < MIN_RISE:
        return f"; up to {k} bring no clear gain"
    value = format_value(last["mean"])
    return f"; with {k}, the most tested, it is {value}"


def _describe_share(context: Context, points: Frame) -> list[str]:
    """Return in how many samples the most examples are better than a few."""
    complete = points.filter("complete")
    if complete.is_empty() or complete["k"][-1] <= context.k:
        return []
    k = complete["k"][-1]
    share = share_rising(context, k)
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
    has = f"'{rarest.label}' has {examples}, and one fold leaves {k}"
    if context.k > k:
        return [f"A call type with fewer than {context.k} gives all it has: {has}."]
    return [f"More than {k} of every call type cannot be tested: {has}."]


def _describe_interval(context: Context, point: Point) -> list[str]:
    if context.spread not in WHERE or context.samples < MIN_SAMPLES:
        return []
    low = format_value(point["p01"])
    high = format_value(point["p99"])
    where = WHERE[context.spread]
    return [f"One labelled set gives {low} to {high} on {where} (98 % interval)."]


def describe_right_names(context: Context) -> list[str]:
    """Return how often the best encoder names the right type, and why another one is not best."""
    points = context.evaluation.curve.filter(
        pl.col("encoder").is_in(context.ranking(context.k)),
        scoring="all",
        metric="accuracy",
        spread=context.spread,
        k=context.k,
    )
    if points.is_empty():
        return []
    best = points.row(by_predicate=pl.col("encoder") == context.best, named=True)
    label, share = context.evaluation.largest_class
    sentences = [
        f"{context.best} names the right type {format_percent(best['mean'])} of the time; "
        f"guessing gives {format_percent(best['chance'])}, and always naming '{label}', the "
        f"most frequent, {format_percent(share)}."
    ]
    ordered = points.sort("mean", descending=True, maintain_order=True)
    leader = ordered.row(0, named=True)
    if leader["mean"] > best["mean"]:
        sentences.append(
            f"{leader['encoder']} names more right, {format_percent(leader['mean'])}; encoders "
            "are compared by mAP, which counts the whole ranking and not only the first name."
        )
    return sentences


def format_value(value: float) -> str:
    """Return a mAP as people read it.

    >>> format_value(0.614)
    '0.61'
    """
    return f"{value:.2f}"


def format_percent(value: float) -> str:
    """Return a share as people read it.

    >>> format_percent(0.614)
    '61 %'
    """
    return f"{100 * value:.0f} %"
