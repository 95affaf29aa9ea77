"""Context → sentences on what was left out, where numbers are weak, and what the intervals mean."""

import polars as pl

from callshot.fewshot.crossover import MIN_SAMPLES
from callshot.fewshot.partitions import describe_repetition
from callshot.records import ClassCount, Evaluation
from callshot.records.frames import unique_values
from callshot.report.summary.context import SAMPLES, Context, Sentences, is_random
from callshot.report.summary.encoders import ABOVE_CHANCE, CHANCE

SMALL_COMPLETE = 10
FEW_QUERIES = 10
MOST_REASONS = 3
RANDOM_ABOVE_CHANCE = (
    "even the encoder {encoder} is above chance here (mAP {mean:.2f}, " + CHANCE + ")"
)
MEANINGS = {
    "total": (
        "The intervals are over the choice of labelled examples and of recordings: what one "
        "labelled set would score on other recordings of the same kind."
    ),
    "shared": (
        "The intervals are over the choice of labelled examples; they do not include the choice of "
        "calls that were recorded and queried."
    ),
    "per-query": (
        "The intervals are over bootstrap samples in which every query has its own draws; they do "
        "not show what one labelled set for all queries would do (the spread shared does)."
    ),
}


def describe_excluded(context: Context) -> Sentences:
    """Yield how many classes were not evaluated, and why."""
    evaluation = context.evaluation
    excluded = evaluation.excluded_classes
    if not excluded:
        return
    verb = "was" if len(excluded) == 1 else "were"
    reasons = [f"'{count.label}' ({count.reason})" for count in excluded[:MOST_REASONS]]
    rest = len(excluded) - MOST_REASONS
    if rest > 0:
        reasons.append(f"and {rest} more")
    yield (
        f"{len(excluded)} of {len(evaluation.classes)} call types {verb} not evaluated: "
        f"{'; '.join(reasons)}."
    )


def describe_cautions(context: Context) -> Sentences:
    """Yield where the numbers are weak."""
    evaluation = context.evaluation
    complete_shots = evaluation.complete_shots
    if complete_shots < min(SMALL_COMPLETE, max(evaluation.curve["k"])):
        yield (
            f"Caution: beyond k* = {complete_shots}, not every call type has that many different "
            "examples; it uses those it has."
        )
    yield from _describe_rarest(evaluation)
    reliable = context.curves.filter("reliable")
    points = reliable.filter(ABOVE_CHANCE, scoring="all", k=context.k)
    for point in points.iter_rows(named=True):
        if is_random(point["encoder"]):
            numbers = RANDOM_ABOVE_CHANCE.format(**point)
            yield f"Caution: {numbers}: that much is luck with these {evaluation.queries} queries."


def _describe_rarest(evaluation: Evaluation) -> Sentences:
    """Yield the class with the fewest queries, if those are few."""
    rarest = min(evaluation.eligible_classes, key=_count_queries)
    fewest = _count_queries(rarest)
    if fewest < FEW_QUERIES:
        label = rarest.label
        yield (
            f"Caution: few queries, {evaluation.queries} in all and {fewest} of '{label}'; other "
            "recordings may give other numbers."
        )


def _count_queries(count: ClassCount) -> int:
    return sum(count.per_fold)


def describe_repeated_folds(context: Context) -> Sentences:
    """Yield how much mAP and the order of encoders depend on the partition into folds."""
    yield from describe_repetition(context.evaluation.partitions, context.k)


def describe_not_compared(context: Context) -> Sentences:
    """Yield the baselines with a score that was not evaluated: reduced, without categories."""
    scorings = unique_values(context.evaluation.curve, "scoring")
    is_compared = pl.col("scoring").is_in(scorings)
    other = context.results.baselines.filter(~is_compared)
    pairs = other.select("name", "scoring").unique(maintain_order=True)
    for name, scoring in pairs.iter_rows():
        yield (
            f"Caution: the {scoring} scores of {name} are not compared, because no categories "
            "were given."
        )


def describe_intervals(context: Context) -> Sentences:
    """Yield what the intervals include, or why there are none."""
    if context.samples >= MIN_SAMPLES:
        yield MEANINGS[context.spread]
    else:
        yield (
            f"Caution: only means are reported: a 98 % interval needs at least {MIN_SAMPLES} "
            f"{SAMPLES[context.spread]}, and there are {context.samples}."
        )
