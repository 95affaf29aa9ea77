"""Context → sentences: encoders, other classifiers, confusions, targets, and cautions."""

from collections import Counter
from collections.abc import Callable, Mapping
from operator import itemgetter

import polars as pl

from callshot.fewshot.differences import (
    MIN_SAMPLES,
    baseline_name,
    first_lasting,
)
from callshot.fewshot.label_budget import (
    WITHIN,
    has_gains,
    labels_for_target,
    recommended_class,
    saturation,
)
from callshot.records.frames import Frame, unique_values
from callshot.records.terms import NO_LICENCE
from callshot.report.choices import (
    classifier_name,
    is_trained,
    largest_shot,
    reads_encoder,
)
from callshot.report.summary.context import (
    CENTROID,
    RANDOM,
    Context,
    Sentences,
    format_range,
    is_random,
    say,
)

MEAN_ABOVE_CHANCE = pl.col("mean") > pl.col("chance")


def describe_encoders(context: Context) -> Sentences:
    """Yield how good the best encoder is, how far ahead of others, of chance and of random vectors.

    Another encoder may be clearly better with more examples.
    """
    k, best = context.k, context.best
    ranking = context.ranking(k)
    yield from describe_no_success(context)
    yield say("expectation", context, len(ranking))
    yield from describe_accuracy(context)
    for other in ranking[1:2]:
        for row in context.difference_at(k, best, other):
            yield say("next_best", context, row)
    last = max(context.curve().filter("complete")["k"], default=k)
    leader = context.ranking(last)[0]
    for row in context.difference_at(last, leader, best):
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
    """Yield how often the best encoder names the right type, and why another one is not best."""
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
    """Yield that nothing is better than chance, if that is so."""
    is_candidate = pl.col("encoder").is_in(context.ranking(context.k))
    tests = context.chance_tests.filter(is_candidate)
    if not tests.is_empty():
        if not tests["better"].any():
            last = tests.filter(encoder=context.best).row(-1, named=True)
            yield say("nothing_tested_better", context, last)
        return
    curves = context.curves.filter(is_candidate, MEAN_ABOVE_CHANCE, scoring="all")
    if curves.is_empty():
        last = context.curve().row(-1, named=True)
        yield say("nothing_better", context, last)


def describe_chance(context: Context) -> Sentences:
    """Yield from which k on the best encoder is better than chance."""
    tests = context.chance_tests.filter(encoder=context.best)
    points, condition, how = tests, pl.col("better"), "clearly"
    if tests.is_empty():
        points, condition, how = context.curve(), MEAN_ABOVE_CHANCE, "on average"
    first = first_lasting(points, condition)
    passed = tests.filter("better").to_dicts()
    if first is not None:
        start = context.examples(first["k"])
        end = context.curve()["k"][-1]
        lasting = format_range(start, first["k"], points["k"][-1], end)
        yield say("better_than_chance", context, how, lasting, passed)
    elif passed:
        yield say("sometimes_better", context, tests.row(-1, named=True))


NAMES = {"logistic": "logistic regression"}
AHEAD = pl.col("mean") > 0
MIN_GAIN = 0.001  # of mAP, by which a step on the way must exceed both ends


def describe_baselines(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs to beat each baseline.

    Reduced scoring is for baselines that read audio, and for baselines without another score.
    """
    best = context.best
    is_all = pl.col("scoring") == "all"
    baselines = context.results.baselines.filter(reads_encoder(best), metric="map")
    shown = baselines.filter(
        is_all | (pl.col("kind") == "end-to-end") | ~is_all.any().over("name")
    ).with_columns(names=pl.col("name").n_unique().over("kind"))
    for baseline in shown.iter_rows(named=True):
        scoring, kind, name = baseline["scoring"], baseline["kind"], baseline["name"]
        if baseline["names"] == 1:
            name = NAMES.get(kind, name)
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
    """Yield from how many examples on training on them, or on all labels, beats the centroid.

    Other classifiers without training may be clearly better with a few examples.
    """
    best = context.best
    untrained = []
    for name, rows in context.comparisons:
        if is_trained(name):
            subject = f"On the same examples, {NAMES.get(name, name)} with {best}"
            yield _describe_lead(context, subject, CENTROID, rows)
        else:
            at_k = rows.drop_nulls("low").filter(k=context.k)
            untrained += [(classifier_name(name), row) for row in at_k.to_dicts()]
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
        highest = max(steps, key=itemgetter("value"))
        gain = highest["value"] - max(steps[0]["value"], steps[-1]["value"])
        peak = highest if gain >= MIN_GAIN else None
        yield say("refinement", context, steps[0], steps[-1], peak)


def _describe_lead(context: Context, subject: str, other: str, rows: Frame) -> str:
    """Return from which k on the subject is ahead, or that it is not at the last k."""
    passed = first_lasting(rows, AHEAD)
    first = rows.filter(AHEAD)["k"].head(1)
    names = (context, subject, other)
    if passed is None:
        worse = first_lasting(rows.drop_nulls("low"), pl.col("high") < 0)
        return say("behind", *names, rows.row(-1, named=True), first, worse)
    point = passed
    is_always = passed["k"] == rows["k"][0]
    if is_always:
        point = next(rows.filter(k=context.k).iter_rows(named=True), passed)
    lead = say(
        "ahead",
        *names,
        passed,
        is_always,
        point,
        first[0],
    )
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
    for row in wrong.head(1).iter_rows(named=True):
        yield say("confusion", row)


def describe_next_labels(context: Context) -> Sentences:
    """Yield from where more examples add little, which class gains most, and what a target needs.

    A curve is level at k if twice as many examples were evaluated. Points beyond k* are left out:
    there, a level curve may only say that classes have run out of exemplars.
    """
    complete = context.curve().filter("complete")
    last = max(complete["k"], default=0)
    level = saturation(complete, WITHIN)
    if level is not None and 2 * level <= last:
        yield say("level", context, level, last)
    elif len(complete) > 1:
        gain = complete["mean"][-1] - complete["mean"][-2]
        if gain > WITHIN:
            yield say("still_rising", context, complete["k"][-2], last, gain)
    rows = context.evaluation.budget.filter(encoder=context.best, metric="map")
    if has_gains(rows):
        unknown = rows["next_gain"].is_nan().sum()
        yield say("budget", context, recommended_class(rows), unknown, len(rows))
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
    evaluation = context.evaluation
    excluded = evaluation.excluded_classes
    if excluded:
        yield say("excluded", excluded, len(evaluation.classes))


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
    lucky = context.chance_tests.filter("better", k=context.k)
    for point in lucky.iter_rows(named=True):
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
        yield say(
            "intervals", context.spread, complete_shots if has_differences else None
        )


LEVEL_NAMES = {
    "folds": "partitions into folds",
    "examples": "labelled sets",
    "queries": "samples of recordings",
}


def order_encoders(points: Frame) -> list[str]:
    """Return the encoders by the mean of mAP, the best first.

    >>> order_encoders(pl.DataFrame({"encoder": ["a", "b"], "mean": [0.5, 0.75]}))
    ['b', 'a']
    """
    by_encoder = points.group_by("encoder", maintain_order=True).agg(pl.mean("mean"))
    order = by_encoder.sort("mean", descending=True, maintain_order=True)
    return order["encoder"].to_list()


def describe_repetition(partitions: Frame, k: int) -> Sentences:
    """Yield the mean and range of each encoder's mAP at k, and how often each order occurs."""
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
    """Yield where the spread of mAP at k comes from, and where the order of encoders holds."""
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
