"""Context → sentences by question, and the first screen: a headline and three cards.

A higher level is promised only if an evaluated k up to k* reaches it on average, and if nearly all
samples rise.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import floor, isfinite, nan
from operator import itemgetter

import numpy as np
import polars as pl

from callshot.errors import count_text, printable
from callshot.fewshot.differences import MIN_SAMPLES, baseline_name, first_lasting
from callshot.fewshot.label_budget import (
    LEVEL_CHANGE,
    REACHES,
    has_gains,
    labels_for_target,
    recommended_class,
    saturation,
)
from callshot.records.frames import Frame, unique_values, value_matrix
from callshot.records.terms import NO_LICENCE
from callshot.report.choices import (
    classifier_name,
    is_trained,
    largest_shot,
    reads_encoder,
)
from callshot.report.encoder_names import learn_options
from callshot.report.summary.context import (
    CENTROID,
    RANDOM,
    Context,
    Sentences,
    format_range,
    is_random,
    say,
)


def describe_encoders(context: Context) -> Sentences:
    """Yield how good the best encoder is, and how far ahead of others and of chance."""
    k, best = context.k, context.best
    ranking = context.ranking(k)
    yield from describe_no_success(context)
    yield say("expectation", context, len(ranking))
    yield from describe_accuracy(context)
    if len(ranking) > 1:
        for row in context.difference_at(k, best, ranking[1]):
            yield say("next_best", context, row)
    last_k = max(context.curve().filter("complete")["k"], default=k)
    leader = context.ranking(last_k)[0]
    for row in context.difference_at(last_k, leader, best):
        if row["clear"] and row["low"] > 0:
            yield say("later_best", context, row)
    yield from describe_chance(context)
    if is_random(best):
        yield say("only_random", RANDOM)
        return
    for encoder in filter(is_random, context.evaluation.encoders):
        for row in context.difference_at(k, best, encoder):
            yield say("random", row)


def describe_accuracy(context: Context) -> Sentences:
    """Yield how often the best encoder names the right type, and who does so more often."""
    curve = context.evaluation.curve.filter(
        pl.col("encoder").is_in(context.ranking(context.k)),
        scoring="all",
        spread=context.spread,
        k=context.k,
    )
    points = curve.filter(metric="accuracy")
    if points.is_empty():
        return
    best = points.row(by_predicate=pl.col("encoder") == context.best, named=True)
    balanced = curve.filter(metric="balanced_accuracy", encoder=context.best)["mean"]
    yield say("accuracy", best, balanced, *context.evaluation.largest_class)
    leader = points.row(points["mean"].arg_max() or 0, named=True)
    if leader["mean"] > best["mean"]:
        yield say("more_right", leader)


def describe_no_success(context: Context) -> Sentences:
    """Yield that no encoder is better than chance, if that is so: by tests, or else by means."""
    candidates = context.ranking(context.k)
    points = context.chance_tests.filter(pl.col("encoder").is_in(candidates))
    if not points["better"].any():
        last = points.filter(encoder=context.best).row(-1, named=True)
        yield say("nothing_better", context, last)


def describe_chance(context: Context) -> Sentences:
    """Yield from which k on the best encoder is better than chance: by tests, or else by means."""
    points = context.chance_tests.filter(encoder=context.best)
    first = first_lasting(points, pl.col("better"))
    passed = points.filter("better", pl.col("p").is_not_null()).to_dicts()
    if first is not None:
        start = context.examples(first["k"])
        end = context.curve()["k"][-1]
        lasting = format_range(start, first["k"], points["k"][-1], end)
        yield say("better_than_chance", context, lasting, passed)
    elif passed:
        yield say("sometimes_better", context, points.row(-1, named=True))


NAMES = {"logistic": "logistic regression"}
AHEAD = pl.col("mean") > 0
MIN_GAIN = 0.001  # of mAP, by which a step on the way must exceed both ends


def describe_baselines(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs to beat each baseline.

    Baselines are compared by the scoring of all classes. Those that read audio are also compared by
    reduced scoring, and so are those that have no other score.
    """
    best = context.best
    is_all = pl.col("scoring") == "all"
    has_no_other = ~is_all.any().over("name")
    reads_audio = pl.col("kind") == "end-to-end"
    baselines = context.results.baselines.filter(reads_encoder(best), metric="map")
    shown = baselines.filter(is_all | reads_audio | has_no_other)
    names_of_kind = pl.col("name").n_unique().over("kind")
    shown = shown.with_columns(names_of_kind=names_of_kind)
    for baseline in shown.iter_rows(named=True):
        scoring = baseline["scoring"]
        name = baseline["name"]
        if baseline["names_of_kind"] == 1:  # the kind is name enough
            name = NAMES.get(baseline["kind"], name)
        other = f"{name} trained on all labelled data"
        if scoring != "all":
            other += f" ({scoring} scoring)"
        means = context.curve(scoring).select(
            "k", one_mean="mean", other_mean=pl.lit(baseline["value"])
        )
        differences = context.differences(best, baseline_name(baseline), scoring)
        rows = differences.join(means, on="k", maintain_order="left")
        if not rows.is_empty():
            yield _describe_lead(context, best, other, rows)


def describe_training(context: Context) -> Sentences:
    """Yield from how many examples on training beats the centroid: on the same examples, or on all.

    Then come classifiers without training that are clearly better with a few examples, and what
    gradient steps from the centroid add.
    """
    best = context.best
    untrained = []
    for name, rows in context.comparisons:
        if is_trained(name):
            subject = f"On the same examples, {NAMES.get(name, name)} with {best}"
            yield _describe_lead(context, subject, CENTROID, rows)
        else:
            at_k = rows.drop_nulls("low").filter(k=context.k)
            shown_name = classifier_name(name)
            untrained += [(shown_name, row) for row in at_k.to_dicts()]
    yield from describe_baselines(context)
    better = [(name, row) for name, row in untrained if row["low"] > 0]
    for name, row in sorted(better, key=lambda pair: -pair[1]["mean"]):
        yield say("better_classifier", context, name, row)
    if untrained and not better:
        yield say("no_better_classifier", context)
    refinement = context.results.refinement.filter(
        encoder=best, scoring="all", metric="map"
    )
    steps = refinement.sort("step").to_dicts()
    if len(steps) > 1:
        first = steps[0]
        last = steps[-1]
        highest = max(steps, key=itemgetter("value"))
        gain = highest["value"] - max(first["value"], last["value"])
        peak = highest if gain >= MIN_GAIN else None
        yield say("refinement", context, first, last, peak)


def _describe_lead(context: Context, subject: str, other: str, rows: Frame) -> str:
    """Return from which k on `subject` is ahead of `other`, or that it is not at the last k.

    `rows` are the differences of both by k, with `one_mean` and `other_mean`.
    """
    passed = first_lasting(rows, AHEAD)
    # It may fall behind again; empty if it is never ahead.
    first_ahead = rows.filter(AHEAD)["k"].head(1)
    about = (context, subject, other)
    if passed is None:
        worse = first_lasting(rows.drop_nulls("low"), pl.col("high") < 0)
        return say("behind", *about, rows.row(-1, named=True), first_ahead, worse)
    point = passed  # whose means the sentence gives
    is_always = passed["k"] == rows["k"][0]
    if is_always:
        point = next(rows.filter(k=context.k).iter_rows(named=True), passed)
    lead = say("ahead", *about, passed, is_always, point, first_ahead[0])
    return lead + context.describe_clear(rows, passed["k"])


MIN_SHARE = 0.005  # of a row, that a sentence gives


def describe_confusions(context: Context) -> Sentences:
    """Yield the call types that are named right most and least often, and the largest confusion."""
    cells = context.evaluation.confusion.filter(
        pl.col("recall").is_not_nan(), encoder=context.best
    )
    if cells.is_empty():
        return
    k = largest_shot(cells["k"], context.k)
    by_share = cells.filter(k=k).sort("recall", descending=True, maintain_order=True)
    is_right = pl.col("true") == pl.col("predicted")
    right = by_share.filter(is_right).select("true", "recall").rows()
    yield say("named_right", context, k, *right[0], *right[-1])
    wrong = by_share.filter(~is_right, pl.col("recall") >= MIN_SHARE)
    if not wrong.is_empty():
        yield say("confusion", wrong.row(0, named=True))


def describe_next_labels(context: Context) -> Sentences:
    """Yield sentences: how many examples are enough, which class gains most, what a target needs.

    A curve counts as level from k on only if twice as many examples were evaluated. Points beyond
    k* are left out: there, a level curve may only say that classes have run out of exemplars.
    """
    complete = context.curve().filter("complete")
    last = max(complete["k"], default=0)
    level = saturation(complete, LEVEL_CHANGE)
    if level is not None and 2 * level <= last:
        yield say("level", context, level, last)
    elif len(complete) > 1:
        before_last, mean_before = complete.select("k", "mean").row(-2)
        gain = complete["mean"][-1] - mean_before
        if gain > LEVEL_CHANGE:
            yield say("still_rising", context, before_last, last, gain)
    rows = context.budget
    if has_gains(rows):
        unknown = rows["next_gain"].is_nan().sum()
        recommended = recommended_class(rows)
        yield say("budget", context, recommended, unknown, len(rows))
    if context.target is not None:
        answers = labels_for_target(context.evaluation, context.target)
        yield from describe_targets(answers.filter(encoder=context.best))


def describe_targets(answers: Frame) -> Sentences:
    """Yield a sentence for every encoder and classifier, from rows of the TARGETS schema."""
    has_others = answers["classifier"].n_unique() > 1
    for row in answers.iter_rows(named=True):
        name = row["encoder"]
        if has_others:
            name += f", {row['classifier']}"
        yield say("target", row, name)


SMALL_COMPLETE = 10
FEW_QUERIES = 10


def describe_excluded(context: Context) -> Sentences:
    """Yield how many classes were not evaluated, and why."""
    if context.evaluation.excluded_classes:
        yield say("excluded", context.evaluation)


def describe_certainty(context: Context) -> Sentences:
    """Yield where the numbers are weak, what they depend on, and what the intervals include."""
    evaluation = context.evaluation
    complete_shots = evaluation.complete_shots
    if complete_shots < min(SMALL_COMPLETE, max(evaluation.curve["k"])):
        yield say("few_complete", complete_shots)
    queries = {
        count.label: sum(count.per_fold) for count in evaluation.eligible_classes
    }
    rarest = min(queries, key=queries.__getitem__)
    if queries[rarest] < FEW_QUERIES:
        yield say("few_queries", evaluation.queries, rarest, queries[rarest])
    # Random vectors that beat chance
    is_tested = pl.col("p").is_not_null()
    better = context.chance_tests.filter("better", is_tested, k=context.k)
    for point in better.iter_rows(named=True):
        if is_random(point["encoder"]):
            yield say("luck", point, evaluation.queries)
    yield from describe_repetition(evaluation.partitions, context.k)
    sources = (evaluation.sensitivity, evaluation.sensitivity_means)
    yield from describe_sensitivity(*sources, context.k)
    # Reduced scores without categories.
    scorings = unique_values(evaluation.curve, "scoring")
    other = context.results.baselines.filter(~pl.col("scoring").is_in(scorings))
    pairs = other.select("name", "scoring").unique(maintain_order=True)
    for name, scoring in pairs.iter_rows():
        yield say("not_compared", name, scoring)
    if context.samples < MIN_SAMPLES:
        yield say("no_intervals", context)
    else:
        has_differences = not evaluation.differences.is_empty()
        complete = complete_shots if has_differences else None
        yield say("intervals", context.spread, context.comparison_spread, complete)


LEVEL_NAMES = {
    "folds": "partitions into folds",
    "examples": "labelled sets",
    "queries": "samples of recordings",
}


def order_encoders(points: Frame) -> list[str]:
    """Return the encoders by the mean of their points, the best first.

    >>> order_encoders(pl.DataFrame({"encoder": ["a", "b"], "mean": [0.5, 0.75]}))
    ['b', 'a']
    """
    means = points.group_by("encoder", maintain_order=True).agg(pl.mean("mean"))
    order = means.sort("mean", descending=True, maintain_order=True)
    return order["encoder"].to_list()


def describe_repetition(partitions: Frame, k: int) -> Sentences:
    """Yield how mAP at k differs between partitions into folds, and how often each order occurs.

    The mean and the range of each encoder's mAP are over partitions, as is the order of encoders.
    """
    points = partitions.filter(k=k)
    if points.is_empty():
        return
    parts = points.sort("partition", maintain_order=True).partition_by("partition")
    mean = pl.col("mean")
    encoders = points.group_by("encoder", maintain_order=True).agg(
        mean.mean(), low=mean.min(), high=mean.max()
    )
    yield say("repetition", k, len(parts), encoders.to_dicts())
    if len(encoders) > 1:
        orders = Counter(", ".join(order_encoders(part)) for part in parts)
        yield say("orders", orders.most_common(), len(parts))


def describe_sensitivity(sensitivity: Frame, means: Frame, k: int) -> Sentences:
    """Yield where the spread of mAP at k comes from, and how often the order of encoders holds.

    `sensitivity` has the standard deviation of each source; `means` has the mean of mAP for each
    partition, labelled set and sample of queries.
    """
    points = sensitivity.filter(k=k)
    if points.is_empty():
        return
    means = means.filter(k=k)
    order = order_encoders(means)
    levels = []
    for source, name in LEVEL_NAMES.items():
        parts = means.filter(source=source).partition_by("number")
        if len(parts) > 1:
            same = sum(order_encoders(part) == order for part in parts)
            levels.append((same, len(parts), name))
    encoders = [rows.to_dicts() for rows in points.partition_by("encoder")]
    yield say("sensitivity", k, levels, encoders)
    if len(encoders) > 1:
        yield say("order_holds", order, levels)


def describe_licences(licences: Mapping[str, str]) -> Sentences:
    """Yield the licences of the weights of encoders, if any have one.

    >>> list(describe_licences({"a": "Apache-2.0", "b": "CC BY-NC 4.0", "c": "Apache-2.0"}))
    ['Licences of weights: Apache-2.0 (a, c); CC BY-NC 4.0 (b).']
    """
    encoders: dict[str, list[str]] = {}
    for encoder, licence in licences.items():
        if licence != NO_LICENCE:
            encoders.setdefault(licence, []).append(encoder)
    if encoders:
        yield say("licences", encoders)


# In the order in which people ask: the name of a section of the page, and what answers it.
QUESTIONS: dict[str, Callable[[Context], Sentences]] = {
    "encoder": describe_encoders,
    "confused": describe_confusions,
    "labels": describe_next_labels,
    "training": describe_training,
    "certainty": describe_certainty,
    "left-out": describe_excluded,
}

LEVEL_STEPS = (0.1, 0.05)
MIN_RISE = 0.02  # from the mean to a level that is worth naming


@dataclass(frozen=True)
class Headline:
    """The first sentence and those below it, about k; `next_k` reaches a higher level."""

    sentence: str
    details: list[str]
    k: int
    next_k: int | None = None


def write_headline(context: Context) -> Headline:
    """Return the first sentence of a report, and the details below it.

    It says that nothing works, if that is so; or else which level more examples reach; or else how
    good the best encoder is, and what limits the number of examples.
    """
    k = context.k
    cautions = [say("one_set", context), say("random_ranking", context)]
    details = [caution for caution in cautions if caution]
    details += describe_accuracy(context)
    for failure in describe_no_success(context):
        first = failure.partition(". ")[0]
        return Headline(f"{first}.", details, k)
    for next_k, level in _find_rise(context):
        return Headline(say("rise", context, next_k, level), details, k, next_k)

    facts = []
    rarest = context.rarest
    curve = context.curve()
    largest_k = curve["k"][-1]
    if rarest.complete_to_k < largest_k:
        facts.append(say("limit", k, rarest))
    last = None
    has_gain = False
    complete = curve.filter("complete", pl.col("k") > k)
    if not complete.is_empty():
        last = complete.row(-1, named=True)
        has_gain = last["mean"] - context.point["mean"] >= MIN_RISE
        share = share_rising(context, last["k"])
        if has_gain and isfinite(share):
            facts.append(say("more_is_better", context, last["k"], share))
    sentence = say("headline", context, last, has_gain)
    return Headline(sentence, [*facts, *details], k)


def _find_rise(context: Context) -> Iterator[tuple[int, float]]:
    """Yield each k beyond the headline's, with the level of mAP that it clearly reaches."""
    values = context.evaluation.values.filter(spread="total", metric="map")
    if values.is_empty() or context.samples < MIN_SAMPLES:
        return
    mean = context.point["mean"]
    if context.target is None:
        levels = []
        for step in LEVEL_STEPS:
            # The next multiple of the step; 1e-9 counts what is one but for rounding.
            steps_below = floor((mean + MIN_RISE) / step + 1e-9)
            levels.append(round((steps_below + 1) * step, 2))
    else:
        levels = [context.target]
    for level in levels:
        if mean < level <= 1:
            answers = labels_for_target(context.evaluation, level, "map")
            k = answers.filter(encoder=context.best)["k_mean"][0]
            if k is not None and k > context.k and share_rising(context, k) >= REACHES:
                yield k, level


def share_rising(context: Context, k: int) -> float:
    """Return the share of samples in which k beats the headline's k; NaN for few samples."""
    values = context.evaluation.values.filter(
        encoder=context.best, scoring="all", metric="map", spread=context.spread
    )
    if context.samples < MIN_SAMPLES:
        return nan
    with_few = value_matrix(values.filter(k=context.k))
    with_many = value_matrix(values.filter(k=k))
    return float(np.mean(with_many > with_few))


@dataclass(frozen=True)
class Card:
    """A question, its answer in a few words, the sentence behind it, and the section it is from."""

    question: str
    answer: str
    text: str
    section: str
    advice: str  # what to do next; may be empty


def write_cards(context: Context) -> list[Card]:
    """Return the three cards of the first screen."""
    return [
        _make_card("encoder", "Which encoder?", *_answer_encoder(context)),
        _make_card("training", "Is training worth it?", *_answer_training(context)),
        _make_card(
            "labels", "Which call type needs examples most?", *_answer_labels(context)
        ),
    ]


def _make_card(
    section: str, question: str, answer: str, text: str, advice: str
) -> Card:
    """Return a card without control characters in what names from files are part of."""
    return Card(question, printable(answer), text, section, printable(advice))


def _answer_encoder(context: Context) -> tuple[str, str, str]:
    """Return the best encoder, or two if their difference is open; a sentence, and advice."""
    best, *others = context.ranking(context.k)
    other = None
    row = None
    if others:
        other = others[0]
        rows = context.difference_at(context.k, best, other)
        row = next(iter(rows), None)
    is_open = row is not None and row["low"] is not None and row["low"] <= 0
    answer = f"{best} or {other}" if is_open else best
    if next(describe_no_success(context), None) is not None:
        advice = say("check_labels")
    elif is_random(best) or other is None:
        advice = say("add_encoder")
    else:
        typed = context.typed_names.get(best, best)
        advice = say("use_encoder", best, learn_options(typed))
    text = say("encoder_card", context, row, other)
    return answer, text, advice


def _answer_training(context: Context) -> tuple[str, str, str]:
    """Return whether training on the same examples beats the centroid; a sentence, and advice.

    The sentence gives one point: that of the headline's k where it agrees with the answer,
    otherwise another one, with the reason for its k.
    """
    trained = [pair for pair in context.comparisons if is_trained(pair[0])]
    if not trained:
        text = "Nothing was trained on the same examples; [baselines] per_k = true does it."
        return "Not measured", text, ""
    name, rows = trained[0]
    passed = first_lasting(rows, AHEAD)
    with_interval = rows.drop_nulls("low")
    clear = first_lasting(with_interval, pl.col("low") > 0)
    at_few = next(rows.filter(k=context.k).iter_rows(named=True), None)
    advice = say("do_not_train")
    if passed is None:
        answer, reason = "No", "the largest number tested"
        point = rows.row(-1, named=True)
        if at_few is not None and at_few["mean"] <= 0:
            point = at_few
    else:
        answer, reason = "Not clearly", "the first where it leads"
        if clear is not None:
            answer = f"From {count_text(clear['k'], 'example')} on"
            reason = "the first where this is clear"
            advice = say("train")
        point = clear or passed
        if at_few is not None and point["k"] <= context.k:
            point = at_few
        if clear is None and (point["low"] or 0) > 0:  # clear with a few, but not later
            point = with_interval.row(-1, named=True)
            reason = "the largest number compared"
    about = (context, NAMES.get(name, name), point, reason, passed, clear)
    return answer, say("training_card", *about), advice


def _answer_labels(context: Context) -> tuple[str, str, str]:
    """Return the call type that gains most from an example; a sentence, and which labels to add.

    If none stands out, the sentence is about the lowest AP, and the advice says how far mAP rises
    from the headline's k to the last k; if no larger k was evaluated, from half of the headline's.
    """
    recommended = recommended_class(context.budget)
    if recommended is not None:
        # The gain in AP of one class; mAP is the mean over classes.
        gain = recommended["double_gain"] / len(context.evaluation.eligible_classes)
        text = say("gain_card", recommended)
        return recommended["label"], text, say("label_first", gain)
    text = "No class has a curve of its own."
    points = context.evaluation.per_class.filter(
        encoder=context.best,
        scoring="all",
        metric="map",
        spread=context.spread,
        k=context.k,
    )
    if not points.is_empty():
        lowest = points.sort("mean", maintain_order=True).row(0, named=True)
        text = say("lowest_card", context, lowest)

    curve = context.curve()
    means = dict(curve.filter("complete").select("k", "mean").iter_rows())
    last = max(means, default=context.k)
    start: int | None = context.k
    if last <= context.k:
        start = max((k for k in means if 2 * k <= context.k), default=None)
    rise = None if start is None else means[last] - means[start]
    is_limit = context.rarest.complete_to_k < curve["k"][-1]
    advice = say(
        "label_all", start, last, rise, context.rarest.label if is_limit else None
    )
    if start == context.k and rise is not None and rise < MIN_RISE:
        advice = say("enough_labels", start, last, rise)
    answer = "None stands out" if has_gains(context.budget) else "Not known"
    return answer, text, advice
