"""Context → three short answers: which encoder, is training worth it, which call type next.

They are about mAP and about the k of the headline. A sentence about another k says why it is that.
"""

from dataclasses import dataclass

import polars as pl

from callshot.errors import count_text
from callshot.fewshot.crossover import first_lasting
from callshot.fewshot.label_budget import has_gains, recommended_class
from callshot.records.frames import Frame
from callshot.report.classifiers import is_trained
from callshot.report.summary.comparisons import (
    AHEAD,
    NAMES,
    compare_with_centroid,
)
from callshot.report.summary.context import (
    Context,
    Point,
    compare_means,
    format_difference,
    format_margin,
)

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
        return _describe_clear(context, name, rows, clear)
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


def _describe_clear(
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
