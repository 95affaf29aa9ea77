"""Context → the first screen: a headline with details, and three cards with short answers.

All is about mAP, by which encoders are chosen and compared, and about one k. A higher level is
promised only if an evaluated k up to k* reaches it on average, and if nearly all samples rise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, isfinite, nan

import numpy as np
import polars as pl

from callshot.errors import count_text
from callshot.fewshot.differences import MIN_SAMPLES, first_lasting
from callshot.fewshot.label_budget import (
    REACHES,
    has_gains,
    labels_for_target,
    recommended_class,
)
from callshot.records.frames import Frame, value_matrix
from callshot.report.classifiers import is_trained
from callshot.report.summary.context import (
    SAMPLES,
    Context,
    Point,
    compare_means,
    format_difference,
    format_margin,
    format_share,
)
from callshot.report.summary.sentences import (
    AHEAD,
    NAMES,
    WHERE,
    compare_with_centroid,
    describe_no_success,
)

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
    value = format_value(point["mean"])
    start = f"With {context.examples(context.k)}, {context.best} reaches mAP {value}"
    for k, level in find_rise(context, point):
        more = k - context.k
        sentence = f"{start}; label {more} more of each to reach {format_value(level)}."
        return Headline(sentence, details, METRIC, context.k, k)
    last, shares = _describe_last(context, points)
    facts = [*_describe_rarest(context, points), *shares, *details]
    return Headline(f"{start}{last}.", facts, METRIC, context.k)


def find_rise(context: Context, point: Point) -> Iterator[tuple[int, float]]:
    """Yield the k and the next level that more examples clearly lead to, or the target."""
    values = context.evaluation.values.filter(spread="total", metric=METRIC)
    if values.is_empty() or context.samples < MIN_SAMPLES:
        return
    for level in _next_levels(point["mean"], context.target):
        answers = labels_for_target(context.evaluation, level, METRIC)
        k = answers.filter(encoder=context.best)["k_mean"][0]
        if k is not None and k > context.k and share_rising(context, k) >= REACHES:
            yield k, level


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


def _describe_last(context: Context, points: Frame) -> tuple[str, list[str]]:
    """Return what the most examples do that every call type has, if they are more.

    Then how often they are better than a few.
    """
    complete = points.filter("complete")
    if complete.is_empty() or complete["k"][-1] <= context.k:
        return "", []
    few = points.filter(k=context.k)["mean"][0]
    last = complete.row(-1, named=True)
    k = last["k"]
    text = f"; with {k}, the most tested, it is {format_value(last['mean'])}"
    if last["mean"] - few < MIN_RISE:
        text = f"; up to {k} bring no clear gain"
    share = share_rising(context, k)
    if not isfinite(share):
        return text, []
    samples = SAMPLES[context.spread]
    better = f"{k} are better than {context.k} in {format_share(share)} % of {samples}."
    return text, [better]


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


NOT_MEASURED = (
    "Nothing was trained on the same examples; [baselines] per_k = true does it."
)


@dataclass(frozen=True)
class Card:
    """A question, its answer in a few words, the sentence behind it, and the section it is from."""

    question: str
    answer: str
    text: str
    section: str


def write_cards(context: Context) -> list[Card]:
    """Return the three cards of the first screen."""
    return [
        Card("Which encoder?", *_choose_encoder(context), "encoder"),
        Card("Is training worth it?", *_answer_training(context), "training"),
        Card(
            "Which call type needs examples most?",
            *_choose_call_type(context),
            "labels",
        ),
    ]


def _choose_encoder(context: Context) -> tuple[str, str]:
    best, *other_encoders = context.ranking(context.k)
    k = context.k
    few = f"With {context.number(k)}"
    if not other_encoders:
        mean = context.curve().filter(k=k)["mean"][0]
        return best, f"{few}, mAP is {mean:.2f}; no other encoder was evaluated."
    other = other_encoders[0]
    for row in context.difference_at(k, best, other):
        margin = format_margin(row)
        if row["low"] is not None and row["low"] <= 0:
            return f"{best} or {other}", f"{few}, {best} leads by {margin}: not clear."
        return best, f"{few}, {best} is ahead of {other} by {margin}."
    return best, f"{few}, {best} is on average ahead of {other}."


def _answer_training(context: Context) -> tuple[str, str]:
    """Return whether logistic regression on the same examples beats the centroid."""
    for name, rows in compare_with_centroid(context):
        if is_trained(name):
            return _compare_trained(context, NAMES.get(name, name), rows)
    return "Not measured", NOT_MEASURED


def _compare_trained(context: Context, name: str, rows: Frame) -> tuple[str, str]:
    passed = first_lasting(rows, AHEAD)
    if passed is None:
        return "No", _describe_behind(context, name, rows)
    with_interval = rows.drop_nulls("low")
    clear = first_lasting(with_interval, pl.col("low") > 0)
    if clear is not None:
        return _describe_clear_lead(context, name, rows, clear)
    point = _few_or_first(context, rows, passed)
    reason = "the first where it leads"
    if point["low"] is not None and point["low"] > 0:  # clear with a few, but not later
        point = with_interval.row(-1, named=True)
        reason = "the most compared"
    few = _with_reason(context, point["k"], reason)
    margin = format_margin(point)
    return "Not clearly", f"With {few}, {name} leads by {margin}: no clear lead."


def _describe_behind(context: Context, name: str, rows: Frame) -> str:
    """Return that training is behind with a few examples, or with the most if it is ahead there."""
    point = rows.row(-1, named=True)
    for point_of_few in rows.filter(~AHEAD, k=context.k).iter_rows(named=True):
        point = point_of_few
    few = _with_reason(context, point["k"], "the most tested")
    return f"With {few}, {name} is behind: {compare_means(point)}."


def _describe_clear_lead(
    context: Context, name: str, rows: Frame, clear: Point
) -> tuple[str, str]:
    point = _few_or_first(context, rows, clear)
    few = _with_reason(context, point["k"], "the first where this is clear")
    margin = format_margin(point)
    answer = f"From {count_text(clear['k'], 'example')} on"
    return answer, f"With {few}, {name} on the same examples is ahead by {margin}."


def _few_or_first(context: Context, rows: Frame, first: Point) -> Point:
    """Return the point of the headline's k, or the first that holds where that comes later."""
    if first["k"] <= context.k:
        for point in rows.filter(k=context.k).iter_rows(named=True):
            return point
    return first


def _with_reason(context: Context, k: int, reason: str) -> str:
    """Return a number of examples; one that is not the headline's with the reason for it."""
    number = context.number(k)
    return number if k == context.k else f"{number}, {reason}"


def _choose_call_type(context: Context) -> tuple[str, str]:
    """Return the call type that gains most, or the one with the lowest AP."""
    rows = context.evaluation.budget.filter(encoder=context.best, metric="map")
    recommended = recommended_class(rows)
    if recommended is not None:
        gain = format_difference(recommended["next_gain"])
        low = format_difference(recommended["next_gain_p01"])
        high = format_difference(recommended["next_gain_p99"])
        k = recommended["k"]
        interval = f"98 % interval: {low} to {high}"
        text = f"From {k} to {k + 1} examples of its own it gains {gain} of AP ({interval})."
        return recommended["label"], text
    answer = "None stands out" if has_gains(rows) else "Not known"
    return answer, _describe_lowest(context)


def _describe_lowest(context: Context) -> str:
    points = context.evaluation.per_class.filter(
        encoder=context.best,
        scoring="all",
        metric="map",
        spread=context.spread,
        k=context.k,
    )
    if points.is_empty():
        return "No class has a curve of its own."
    lowest = points.sort("mean", maintain_order=True).row(0, named=True)
    return (
        f"'{lowest['label']}' has the lowest AP with {context.number(context.k)}: "
        f"{lowest['mean']:.2f} "
        f"(98 % interval: {lowest['p01']:.2f} to {lowest['p99']:.2f})."
    )
