"""Context → the first screen: a headline with details, and three cards with short answers.

All is about mAP, by which encoders are chosen and compared, and about one k. A higher level is
promised only if an evaluated k up to k* reaches it on average, and if nearly all samples rise.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import floor, isfinite, nan

import numpy as np
import polars as pl

from callshot.errors import count_text, printable
from callshot.fewshot.differences import MIN_SAMPLES, first_lasting
from callshot.fewshot.label_budget import (
    REACHES,
    has_gains,
    labels_for_target,
    recommended_class,
)
from callshot.records.frames import Frame, value_matrix
from callshot.report.choices import is_trained
from callshot.report.summary.context import (
    Context,
    say,
)
from callshot.report.summary.sentences import (
    AHEAD,
    NAMES,
    describe_accuracy,
    describe_no_success,
)

LEVEL_STEPS = (0.1, 0.05)
MIN_RISE = 0.02  # from the mean to a level that is worth naming


@dataclass(frozen=True)
class Headline:
    """The first sentence, those below it, and the k of the points that it is about.

    `next_k` is None where no higher level is promised.
    """

    sentence: str
    details: list[str]
    k: int
    next_k: int | None = None


def write_headline(context: Context) -> Headline:
    """Return the first sentence, those below it, and what they are about."""
    k = context.k
    interval = say("one_set", context)
    details = [interval] if interval else []
    details += [say("random_ranking", context), *describe_accuracy(context)]
    for sentence in describe_no_success(context):
        first = sentence.partition(". ")[0]
        return Headline(f"{first}.", details, k)
    for next_k, level in _find_rise(context):
        return Headline(say("rise", context, next_k, level), details, k, next_k)

    facts = []
    classes = context.evaluation.eligible_classes
    rarest = min(classes, key=lambda count: count.complete_to_k)
    if rarest.complete_to_k < context.curve()["k"][-1]:
        facts.append(say("limit", k, rarest))
    last = None
    has_gain = False
    complete = context.curve().filter("complete", pl.col("k") > k)
    for last in complete.tail(1).iter_rows(named=True):
        has_gain = last["mean"] - context.point["mean"] >= MIN_RISE
        share = share_rising(context, last["k"])
        if isfinite(share):
            facts.append(say("more_is_better", context, last["k"], share))
    sentence = say("headline", context, last, has_gain)
    return Headline(sentence, [*facts, *details], k)


def _find_rise(context: Context) -> Iterator[tuple[int, float]]:
    """Yield the k and the next level that more examples clearly lead to, or the target."""
    values = context.evaluation.values.filter(spread="total", metric="map")
    if values.is_empty() or context.samples < MIN_SAMPLES:
        return
    for level in _next_levels(context.point["mean"], context.target):
        answers = labels_for_target(context.evaluation, level, "map")
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
    steps = [
        (floor((mean + MIN_RISE) / step + 1e-9) + 1) * step for step in LEVEL_STEPS
    ]
    return [round(level, 2) for level in steps if round(level, 2) <= 1]


def share_rising(context: Context, k: int) -> float:
    """Return in which share of samples k examples are better than a few; NaN if they are few."""
    values = context.evaluation.values.filter(
        encoder=context.best, scoring="all", metric="map", spread=context.spread
    )
    at_few = values.filter(k=context.k)
    if at_few.is_empty() or context.samples < MIN_SAMPLES:
        return nan
    return float(np.mean(value_matrix(values.filter(k=k)) > value_matrix(at_few)))


@dataclass(frozen=True)
class Card:
    """A question, its answer in a few words, the sentence behind it, and the section it is from."""

    question: str
    answer: str
    text: str
    section: str


def write_cards(context: Context) -> list[Card]:
    """Return the three cards of the first screen."""
    answers = {
        "encoder": ("Which encoder?", _choose_encoder),
        "training": ("Is training worth it?", _answer_training),
        "labels": ("Which call type needs examples most?", _choose_call_type),
    }
    cards = []
    for section, (question, find_answer) in answers.items():
        answer, text = find_answer(context)
        cards.append(Card(question, printable(answer), text, section))
    return cards


def _choose_encoder(context: Context) -> tuple[str, str]:
    best, *others = context.ranking(context.k)
    if not others:
        return best, say("encoder_card", context, None, None)
    other = others[0]
    row = next(iter(context.difference_at(context.k, best, other)), None)
    is_open = row is not None and row["low"] is not None and row["low"] <= 0
    answer = f"{best} or {other}" if is_open else best
    return answer, say("encoder_card", context, row, other)


def _answer_training(context: Context) -> tuple[str, str]:
    """Return whether logistic regression on the same examples beats the centroid."""
    for name, rows in context.comparisons:
        if is_trained(name):
            return _compare_trained(context, NAMES.get(name, name), rows)
    text = "Nothing was trained on the same examples; [baselines] per_k = true does it."
    return "Not measured", text


def _compare_trained(context: Context, name: str, rows: Frame) -> tuple[str, str]:
    """Return the answer with the point of the headline's k, or else one with a reason for its k."""
    passed = first_lasting(rows, AHEAD)
    with_interval = rows.drop_nulls("low")
    clear = first_lasting(with_interval, pl.col("low") > 0)
    at_few = rows.filter(k=context.k).to_dicts()
    if passed is None:
        answer, reason = "No", "the largest number tested"
        point = rows.row(-1, named=True)
        if at_few and at_few[0]["mean"] <= 0:
            point = at_few[0]
    else:
        answer, reason = "Not clearly", "the first where it leads"
        if clear is not None:
            answer = f"From {count_text(clear['k'], 'example')} on"
            reason = "the first where this is clear"
        point = clear or passed
        if at_few and point["k"] <= context.k:
            point = at_few[0]
        if clear is None and (point["low"] or 0) > 0:  # clear with a few, but not later
            point = with_interval.row(-1, named=True)
            reason = "the largest number compared"
    return answer, say("training_card", context, name, point, reason, passed, clear)


def _choose_call_type(context: Context) -> tuple[str, str]:
    """Return the call type that gains most, or the one with the lowest AP."""
    rows = context.evaluation.budget.filter(encoder=context.best, metric="map")
    recommended = recommended_class(rows)
    if recommended is not None:
        return recommended["label"], say("gain_card", recommended)
    answer = "None stands out" if has_gains(rows) else "Not known"
    points = context.evaluation.per_class.filter(
        encoder=context.best,
        scoring="all",
        metric="map",
        spread=context.spread,
        k=context.k,
    )
    if points.is_empty():
        return answer, "No class has a curve of its own."
    lowest = points.sort("mean", maintain_order=True).row(0, named=True)
    return answer, say("lowest_card", context, lowest)
