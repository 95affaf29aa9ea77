"""Context → three short answers: which encoder, is training worth it, which call type next."""

from dataclasses import dataclass

import polars as pl

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
    if not other_encoders:
        mean = context.curve().filter(k=k)["mean"][0]
        return best, f"Only {best} was evaluated: mAP {mean:.2f} with {k}."
    for row in context.difference_at(k, best, other_encoders[0]):
        return _compare_best(row, best, other_encoders[0])
    return best, f"With {k}, {best} is on average ahead of {other_encoders[0]}."


def _compare_best(row: Point, best: str, other: str) -> tuple[str, str]:
    margin = format_margin(row)
    k = row["k"]
    if row["low"] is not None and row["low"] <= 0:
        return f"{best} or {other}", f"With {k}, {best} leads by {margin}: not clear."
    return best, f"With {k}, {best} is ahead of {other} by {margin}."


def _answer_training(context: Context) -> tuple[str, str]:
    """Return whether logistic regression on the same examples beats the centroid."""
    for name, rows in compare_with_centroid(context):
        if is_trained(name):
            return _compare_trained(NAMES.get(name, name), rows)
    return "Not measured", NOT_MEASURED


def _compare_trained(name: str, rows: Frame) -> tuple[str, str]:
    passed = first_lasting(rows, AHEAD)
    last = rows.row(-1, named=True)
    if passed is None:
        means = compare_means(last)
        return "No", f"With {last['k']} examples, {name} is behind: {means}."
    clear = first_lasting(rows.drop_nulls("low"), pl.col("low") > 0)
    if clear is None:
        margin = format_margin(passed)
        answer = "Not clearly"
        return answer, f"With {passed['k']}, {name} leads by {margin}: no clear lead."
    return _describe_clear(name, clear)


def _describe_clear(name: str, clear: Point) -> tuple[str, str]:
    k = clear["k"]
    noun = "example" if k == 1 else "examples"
    answer = f"From {k} {noun} on"
    margin = format_margin(clear)
    return answer, f"On the same {k} of each, {name} is ahead by {margin}."


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
        text = f"From {k} to {k + 1} examples it gains {gain} of AP ({interval})."
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
        f"'{lowest['label']}' has the lowest AP with {context.k}: {lowest['mean']:.2f} "
        f"(98 % interval: {lowest['p01']:.2f} to {lowest['p99']:.2f})."
    )
