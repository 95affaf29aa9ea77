"""Context → sentences on encoders: what to expect of the best, compared with others and with chance."""

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


def describe_expectation(context: Context) -> Iterator[str]:
    """Yield how good the best encoder is with a few examples, and how much that depends on them."""
    best = context.best
    point = context.curve(best).row(by_predicate=pl.col("k") == context.k, named=True)
    examples = context.examples(context.k)
    mean = f"{point['mean']:.2f} on average"
    chance = f"chance is {point['chance']:.2f}"
    if context.spread == "shared" and point["has_interval"]:
        interval = f"mAP between {point['p01']:.2f} and {point['p99']:.2f}"
        sentence = (
            f"With one labelled set of {examples}, expect {interval} from {best} ({mean}; {chance})"
        )
    else:
        sentence = f"With {examples}, {best} reaches mAP {mean} ({chance})"
    accuracy = context.evaluation.curve.filter(
        encoder=best,
        metric="accuracy",
        scoring="all",
        spread=context.spread,
        k=context.k,
    )
    for share in accuracy["mean"]:
        sentence += f", and the right call type for about {100 * share:.0f} % of queries"
    yield f"{sentence}."


def describe_next_best(context: Context) -> Iterator[str]:
    """Yield how far the best encoder is ahead of the next, and whether that is clear."""
    for other in context.ranking(context.k)[1:2]:
        differences = context.differences(context.best, other).filter(k=context.k)
        for row in differences.iter_rows(named=True):
            sentence = (
                f"With {context.examples(context.k)}, {context.best} is on average ahead of "
                f"{other}, the next best, by {context.margin(row)}"
            )
            if row["reliable"] and row["p01"] > 0:
                sentence += ": a clear difference"
            elif row["reliable"]:
                sentence += ": not a clear difference, because the interval includes 0"
            yield f"{sentence}."


def describe_later_best(context: Context) -> Iterator[str]:
    """Yield the encoder that is clearly better with more examples, if there is one."""
    last = max(context.reliable(context.best)["k"], default=context.k)
    leader = context.ranking(last)[0]
    differences = context.differences(leader, context.best).filter(pl.col("p01") > 0, k=last)
    for row in differences.iter_rows(named=True):
        examples = context.examples(last)
        margin = context.margin(row)
        yield f"With {examples}, {leader} is clearly better than {context.best}, by {margin}."


def describe_saturation(context: Context) -> Iterator[str]:
    """Yield from where more examples add little, or that they still add something.

    Little is said of a k if twice as many examples were not evaluated with every class complete.
    """
    best = context.best
    points = context.curve(best)
    complete = points.filter("complete")
    level = saturation(points, WITHIN)
    last = max(complete["k"], default=0)
    means = complete["mean"].to_list()
    gain = means[-1] - means[-2] if len(means) > 1 else 0.0
    if level is not None and 2 * level <= last:
        yield (
            f"With {best}, more than {context.examples(level)} add at most {WITHIN} of mAP "
            f"(evaluated up to {points['k'][-1]})."
        )
    elif gain > WITHIN:
        yield (
            f"With {best}, mAP still rises by {format_difference(gain)} from {complete['k'][-2]} "
            f"to {context.examples(last)}, the largest number evaluated with every call type complete."
        )


def describe_no_success(context: Context) -> Iterator[str]:
    """Yield that nothing is better than chance, if that is so."""
    points = context.curves.filter(pl.col("encoder").is_in(context.encoders), scoring="all")
    if not context.reliable(context.best).is_empty():
        if points.filter("reliable").filter(ABOVE_CHANCE).is_empty():
            yield f"Nothing here is clearly better than chance: even {_last_interval(context)}."
    elif points.filter(MEAN_ABOVE_CHANCE).is_empty():
        last = context.curve(context.best).row(-1, named=True)
        yield (
            "Nothing here is better than chance on average: even with "
            f"{context.examples(last['k'])}, {context.best} reaches mAP {last['mean']:.2f}, and chance is {last['chance']:.2f}."
        )


def describe_chance(context: Context) -> Iterator[str]:
    """Yield from which k on the best encoder is better than chance."""
    best = context.best
    points = context.curve(best)
    reliable = points.filter("reliable")
    if reliable.is_empty():
        first = first_lasting(points, MEAN_ABOVE_CHANCE)
        how = "on average"
        last = points["k"][-1]
    else:
        first = first_lasting(reliable, ABOVE_CHANCE)
        how = "clearly"
        last = reliable["k"][-1]
    if first is not None:
        examples = context.examples(first["k"])
        shots = format_range(examples, first["k"], last, points["k"][-1])
        yield f"{best} is {how} better than chance {shots}."
    elif how == "clearly" and not any(describe_no_success(context)):
        yield f"{best} is not clearly better than chance at every k: {_last_interval(context)}."


def _last_interval(context: Context) -> str:
    last = context.reliable(context.best).row(-1, named=True)
    interval = f"a 98 % interval of mAP from {last['p01']:.2f} to {last['p99']:.2f}"
    examples = context.examples(last["k"])
    return f"with {examples}, {context.best} has {interval}, and chance is {last['chance']:.2f}"


def describe_random(context: Context) -> Iterator[str]:
    """Yield how the best encoder compares with random vectors."""
    best = context.best
    if is_random(best):
        yield f"Only the encoder {RANDOM} was evaluated: its vectors do not depend on the sound."
        return
    for encoder in context.evaluation.encoders:
        if not is_random(encoder):
            continue
        for row in context.differences(best, encoder).filter(k=context.k).iter_rows(named=True):
            how = "clearly" if row["reliable"] else "on average"
            is_better = row["p01"] > 0 if row["reliable"] else row["mean"] > 0
            verb = "is" if is_better else "is not"
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
    sentence = (
        f"With {context.best}, '{gain['label']}' should gain most from more examples: about "
        f"{format_difference(gain['next_gain'])} of AP from {k} to {k + 1}, "
        f"{format_difference(gain['double_gain'])} from {k} to {2 * k}"
    )
    unknown = rows["next_gain"].is_nan().sum()
    if unknown:
        sentence += f"; {unknown} of {len(rows)} call types have too few complete shots for a curve"
    yield f"{sentence}."
