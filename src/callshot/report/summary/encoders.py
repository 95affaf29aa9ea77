"""Context → sentences on encoders: what to expect of the best, compared with others and chance."""

from collections.abc import Iterator

import polars as pl

from callshot.fewshot.label_budget import WITHIN, largest_gain, saturation
from callshot.report.summary.context import (
    RANDOM,
    Context,
    first_lasting,
    format_difference,
    format_range,
    is_random,
)

ABOVE_CHANCE = pl.col("p01") > pl.col("chance")
MEAN_ABOVE_CHANCE = pl.col("mean") > pl.col("chance")
# What a point of a curve is, in words.
EXPECTATION = (
    "expect mAP between {p01:.2f} and {p99:.2f} from {encoder} "
    "({mean:.2f} on average; chance is {chance:.2f})"
)
MEAN = "{encoder} reaches mAP {mean:.2f} on average (chance is {chance:.2f})"
MEAN_AND_CHANCE = "{encoder} reaches mAP {mean:.2f}, and chance is {chance:.2f}"
INTERVAL = (
    "{encoder} has a 98 % interval of mAP from {p01:.2f} to {p99:.2f}, and chance is {chance:.2f}"
)


def describe_expectation(context: Context) -> Iterator[str]:
    """Yield how good the best encoder is with a few examples, and how much that depends on them."""
    k = context.k
    spread = context.spread
    (point,) = context.curve().filter(k=k).to_dicts()
    sentence = f"With {context.examples(k)}, {MEAN.format(**point)}"
    if spread == "shared" and point["has_interval"]:
        expectation = EXPECTATION.format(**point)
        sentence = f"With one labelled set of {context.examples(k)}, {expectation}"
    accuracy = context.evaluation.curve.filter(
        encoder=context.best,
        metric="accuracy",
        scoring="all",
        spread=spread,
        k=k,
    )
    for share in accuracy["mean"]:
        sentence += f", and the right call type for about {100 * share:.0f} % of queries"
    yield f"{sentence}."


def describe_next_best(context: Context) -> Iterator[str]:
    """Yield how far the best encoder is ahead of the next, and whether that is clear."""
    k = context.k
    best, *others = context.ranking(k)
    for other in others[:1]:
        for row in context.difference_at(k, best, other):
            verdict = ""
            if row["reliable"] and row["p01"] > 0:
                verdict = ": a clear difference"
            elif row["reliable"]:
                verdict = ": not a clear difference, because the interval includes 0"
            yield (
                f"With {context.examples(k)}, {best} is on average ahead of {other}, "
                f"the next best, by {context.margin(row)}{verdict}."
            )


def describe_later_best(context: Context) -> Iterator[str]:
    """Yield the encoder that is clearly better with more examples, if there is one."""
    best = context.best
    last = max(context.reliable()["k"], default=context.k)
    leader = context.ranking(last)[0]
    for row in context.difference_at(last, leader, best):
        if row["p01"] > 0:
            yield (
                f"With {context.examples(last)}, {leader} is clearly better than {best}, "
                f"by {context.margin(row)}."
            )


def describe_saturation(context: Context) -> Iterator[str]:
    """Yield from where more examples add little, or that they still add something.

    A curve is level at k if twice as many examples were evaluated with every class complete.
    """
    points = context.curve()
    complete = points.filter("complete").select("k", "mean").rows()
    k, mean = complete[-1] if complete else (0, 0.0)
    level = saturation(points, WITHIN)
    if level is not None and 2 * level <= k:
        yield (
            f"With {context.best}, more than {context.examples(level)} add at most {WITHIN} of mAP "
            f"(evaluated up to {points['k'][-1]})."
        )
        return
    for previous, previous_mean in complete[-2:-1]:
        gain = mean - previous_mean
        if gain > WITHIN:
            yield (
                f"With {context.best}, mAP still rises by {format_difference(gain)} from "
                f"{previous} to {context.examples(k)}, the largest number evaluated with every "
                "call type complete."
            )


def describe_no_success(context: Context) -> Iterator[str]:
    """Yield that nothing is better than chance, if that is so."""
    points = context.candidates
    if not context.reliable().is_empty():
        if points.filter("reliable").filter(ABOVE_CHANCE).is_empty():
            yield f"Nothing here is clearly better than chance: even {_describe_last(context)}."
    elif points.filter(MEAN_ABOVE_CHANCE).is_empty():
        last = context.curve().row(-1, named=True)
        examples = context.examples(last["k"])
        numbers = MEAN_AND_CHANCE.format(**last)
        yield f"Nothing here is better than chance on average: even with {examples}, {numbers}."


def describe_chance(context: Context) -> Iterator[str]:
    """Yield from which k on the best encoder is better than chance."""
    best = context.best
    end = context.curve()["k"][-1]
    points = context.reliable()
    how = "clearly"
    condition = ABOVE_CHANCE
    if points.is_empty():
        points = context.curve()
        how = "on average"
        condition = MEAN_ABOVE_CHANCE
    first = first_lasting(points, condition)
    if first is not None:
        k = first["k"]
        shots = format_range(context.examples(k), k, points["k"][-1], end)
        yield f"{best} is {how} better than chance {shots}."
    elif how == "clearly" and not any(describe_no_success(context)):
        yield f"{best} is not clearly better than chance at every k: {_describe_last(context)}."


def _describe_last(context: Context) -> str:
    """Return the last reliable point of the best encoder."""
    last = context.reliable().row(-1, named=True)
    return f"with {context.examples(last['k'])}, {INTERVAL.format(**last)}"


def describe_random(context: Context) -> Iterator[str]:
    """Yield how the best encoder compares with random vectors."""
    best = context.best
    if is_random(best):
        yield f"Only the encoder {RANDOM} was evaluated: its vectors do not depend on the sound."
        return
    for encoder in filter(is_random, context.evaluation.encoders):
        for row in context.difference_at(context.k, best, encoder):
            how = "clearly" if row["reliable"] else "on average"
            lead = row["p01"] if row["reliable"] else row["mean"]
            verb = "is" if lead > 0 else "is not"
            side = "ahead" if row["mean"] >= 0 else "behind"
            yield (
                f"{best} {verb} {how} better than random vectors (the encoder {encoder}): "
                f"{side} by {context.margin(row)}."
            )


def describe_budget(context: Context) -> Iterator[str]:
    """Yield the class that gains most from more examples, if it stands out."""
    rows = context.evaluation.budget.filter(encoder=context.best, metric="map")
    gain = largest_gain(rows)
    if gain is None:
        return
    k = gain["k"]
    one = format_difference(gain["next_gain"])
    double = format_difference(gain["double_gain"])
    sentence = (
        f"With {context.best}, '{gain['label']}' should gain most from more examples: about {one} "
        f"of AP from {k} to {k + 1}, {double} from {k} to {2 * k}"
    )
    unknown = rows["next_gain"].is_nan().sum()
    if unknown:
        sentence += f"; {unknown} of {len(rows)} call types have too few complete shots for a curve"
    yield f"{sentence}."
