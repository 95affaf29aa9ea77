"""Context → sentences on encoders: what to expect of the best, compared with others and chance."""

import polars as pl

from callshot.fewshot.crossover import first_lasting
from callshot.fewshot.label_budget import (
    WITHIN,
    has_gains,
    recommended_class,
    saturation,
)
from callshot.records.frames import Frame
from callshot.report.summary.context import (
    RANDOM,
    Context,
    Point,
    Sentences,
    format_difference,
    format_margin,
    format_range,
    is_random,
)

BETTER = pl.col("better")
MEAN_ABOVE_CHANCE = pl.col("mean") > pl.col("chance")
# What a point of a curve is, in words.
CHANCE = "chance is {chance:.2f}"
EXPECTATION = (
    "One labelled set gives {p01:.2f} to {p99:.2f} on {where} (98 % interval)."
)
WHERE = {"total": "other recordings of the same kind", "shared": "these recordings"}
MEAN = "{encoder} reaches mAP {mean:.2f} on average; chance is {chance:.2f}."
MEAN_AND_CHANCE = "{encoder} reaches mAP {mean:.2f}, and " + CHANCE
TEST = "{encoder} reaches mAP {mean:.2f}; " + CHANCE + ", and p = {p:.3f}"
CHOSEN = (
    "{best} is the best of {count} encoders, chosen on the same calls, so this is slightly "
    "optimistic."
)
MAX_SHOTS = 5  # that a sentence lists


def describe_expectation(context: Context) -> Sentences:
    """Yield how good the best encoder is with a few examples, and how much that depends on them."""
    k = context.k
    spread = context.spread
    examples = context.examples(k)
    point = context.curve().row(by_predicate=pl.col("k") == k, named=True)
    sentences = [f"With {examples}, {MEAN.format(**point)}"]
    if spread in WHERE and point["has_interval"]:
        sentences.append(EXPECTATION.format(**point, where=WHERE[spread]))
    count = len(context.ranking(k))
    if count > 1:
        sentences.append(CHOSEN.format(best=context.best, count=count))
    yield " ".join(sentences)


def describe_accuracy(context: Context) -> Sentences:
    """Yield the accuracy of the best encoder, balanced too, beside that of the largest class."""
    evaluation = context.evaluation
    points = evaluation.curve.filter(
        encoder=context.best, scoring="all", spread=context.spread, k=context.k
    )
    means = dict(points.select("metric", "mean").iter_rows())
    if "balanced_accuracy" not in means:
        return
    label, share = evaluation.largest_class
    accuracy = 100 * means["accuracy"]
    balanced = 100 * means["balanced_accuracy"]
    yield (
        f"With {context.examples(context.k)}, {context.best} names the right one of "
        f"{len(evaluation.eligible_classes)} call types for {accuracy:.0f} % of queries. "
        f"Balanced over call types, it is {balanced:.0f} %. "
        f"Always naming '{label}', the most frequent, is right for {100 * share:.0f} %."
    )


def describe_next_best(context: Context) -> Sentences:
    """Yield how far the best encoder is ahead of the next, and whether that is clear."""
    k = context.k
    best, *other_encoders = context.ranking(k)
    for other in other_encoders[:1]:
        for row in context.difference_at(k, best, other):
            examples = context.examples(k)
            wins = context.describe_wins(row)
            yield (
                f"With {examples}, {best} is on average ahead of {other} by "
                f"{format_margin(row)}.{wins}{_describe_difference(row)}"
            )


def _describe_difference(row: Point) -> str:
    if row["low"] is None:
        return ""
    if row["low"] > 0:
        return " The difference is clear."
    return " The difference is not clear, because the interval includes 0."


def describe_later_best(context: Context) -> Sentences:
    """Yield the encoder that is clearly better with more examples, if there is one."""
    best = context.best
    complete = context.curve().filter("complete")
    last = max(complete["k"], default=context.k)
    leader = context.ranking(last)[0]
    for row in context.difference_at(last, leader, best):
        if row["clear"] and row["low"] > 0:
            yield (
                f"With {context.examples(last)}, {leader} is clearly better than {best}, "
                f"by {format_margin(row)}.{context.describe_wins(row)}"
            )


def describe_saturation(context: Context) -> Sentences:
    """Yield from where more examples add little, or that they still add something.

    A curve is level at k if twice as many examples were evaluated. Points beyond k* are left out:
    there, a level curve may only say that classes have run out of exemplars.
    """
    complete = context.curve().filter("complete")
    last = max(complete["k"], default=0)
    level = saturation(complete, WITHIN)
    if level is None or 2 * level > last:
        yield from _describe_rise(context, complete)
        return
    examples = context.examples(level)
    yield (
        f"With {context.best}, more than {examples} add at most {WITHIN} of mAP. "
        f"Up to {last} were evaluated with every call type complete."
    )


def _describe_rise(context: Context, points: Frame) -> Sentences:
    """Yield by how much mAP rises between the last two points, if that is not little."""
    if len(points) < 2:
        return
    before, last = points["k"].tail(2)
    mean_before, mean = points["mean"].tail(2)
    gain = mean - mean_before
    if gain > WITHIN:
        yield (
            f"With {context.best}, mAP still rises by {format_difference(gain)} from "
            f"{before} to {context.examples(last)}. {last} is the largest number evaluated with "
            "every call type complete."
        )


def describe_no_success(context: Context) -> Sentences:
    """Yield that nothing is better than chance, if that is so."""
    names = context.ranking(context.k)
    tests = context.chance_tests.filter(pl.col("encoder").is_in(names))
    if not tests.is_empty():
        if not tests["better"].any():
            yield f"Nothing here is clearly better than chance. {_describe_last(context)}."
    elif context.candidates.filter(MEAN_ABOVE_CHANCE).is_empty():
        last = context.curve().row(-1, named=True)
        examples = context.examples(last["k"])
        numbers = MEAN_AND_CHANCE.format(**last)
        yield f"Nothing here is better than chance on average. With {examples}, {numbers}."


def describe_chance(context: Context) -> Sentences:
    """Yield from which k on the best encoder is better than chance."""
    best = context.best
    tests = context.chance_tests.filter(encoder=best)
    if tests.is_empty():
        lasting = _lasting_range(context, context.curve(), MEAN_ABOVE_CHANCE)
        if lasting is not None:
            yield f"{best} is on average better than chance {lasting}."
        return
    lasting = _lasting_range(context, tests, BETTER)
    if lasting is not None:
        yield f"{best} is clearly better than chance {lasting}. {_describe_test(tests)}."
    elif tests["better"].any():
        yield f"{best} is clearly better than chance at some k only. {_describe_last(context)}."


def _lasting_range(context: Context, points: Frame, condition: pl.Expr) -> str | None:
    """Return from where on, and up to where, a condition holds; None if not at the last point."""
    first = first_lasting(points, condition)
    if first is None:
        return None
    k = first["k"]
    last = points["k"][-1]
    end = context.curve()["k"][-1]
    return format_range(context.examples(k), k, last, end)


def _describe_test(tests: Frame) -> str:
    """Return the largest p of the tests that are passed, where, and how they were made."""
    passed = tests.filter(BETTER)
    shots = ", ".join(map(str, passed["k"]))
    if len(passed) > MAX_SHOTS:
        shots = f"{passed['k'][0]} to {passed['k'][-1]}"
    count = passed["permutations"][0]
    largest = max(passed["p"])
    return (
        f"The test gives p at most {largest:.3f} with {shots}, by {count} permutations of "
        "labels over recordings"
    )


def _describe_last(context: Context) -> str:
    """Return the last test of the best encoder."""
    tests = context.chance_tests.filter(encoder=context.best)
    last = tests.row(-1, named=True)
    examples = context.examples(last["k"])
    return f"With {examples}, {TEST.format(**last)}"


def describe_random(context: Context) -> Sentences:
    """Yield how the best encoder compares with random vectors."""
    best = context.best
    if is_random(best):
        yield f"Only the encoder {RANDOM} was evaluated: its vectors do not depend on the sound."
        return
    for encoder in filter(is_random, context.evaluation.encoders):
        for row in context.difference_at(context.k, best, encoder):
            side = "ahead" if row["mean"] >= 0 else "behind"
            yield (
                f"{best} {_describe_random(row)} better than random vectors "
                f"(the encoder {encoder}): {side} by {format_margin(row)}."
            )


def _describe_random(row: Point) -> str:
    if row["low"] is not None:
        return "is clearly" if row["low"] > 0 else "is not clearly"
    return "is on average" if row["mean"] > 0 else "is not on average"


def describe_budget(context: Context) -> Sentences:
    """Yield the class that gains most from more examples, or that none stands out."""
    rows = context.evaluation.budget.filter(encoder=context.best, metric="map")
    if not has_gains(rows):
        return
    recommended = recommended_class(rows)
    if recommended is None:
        sentence = (
            f"With {context.best}, no call type stands out as the one that gains most from more "
            "examples"
        )
    else:
        sentence = f"With {context.best}, {_describe_gain(recommended)}"
    unknown = rows["next_gain"].is_nan().sum()
    if unknown:
        sentence += f". {unknown} of {len(rows)} call types have too few complete shots for a curve"
    yield f"{sentence}."


def _describe_gain(row: Point) -> str:
    """Return what more examples of a call type are worth."""
    k = row["k"]
    one = format_difference(row["next_gain"])
    low = format_difference(row["next_gain_p01"])
    high = format_difference(row["next_gain_p99"])
    double = format_difference(row["double_gain"])
    return (
        f"'{row['label']}' should gain most from more examples: about {one} of AP from {k} to "
        f"{k + 1} (98 % interval: {low} to {high}). From {k} to {2 * k} it should gain about "
        f"{double}"
    )
