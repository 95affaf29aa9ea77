"""Context → sentences on what was left out, where numbers are weak, and what the intervals mean."""

from collections.abc import Iterator

import polars as pl

from callshot.fewshot.crossover import MIN_SAMPLES
from callshot.report.summary.context import SAMPLES, Context, is_random
from callshot.report.summary.encoders import ABOVE_CHANCE

SMALL_COMPLETE = 10
FEW_QUERIES = 10
MOST_REASONS = 3
RANDOM_ABOVE_CHANCE = (
    "even the encoder {encoder} is above chance here (mAP {mean:.2f}, chance is {chance:.2f})"
)
MEANINGS = {
    "shared": (
        "The intervals are over the choice of labelled examples; they do not include the choice of "
        "calls that were recorded and queried."
    ),
    "per-query": (
        "The intervals are over bootstrap samples in which every query has its own draws; they do "
        "not show what one labelled set for all queries would do (the spread shared does)."
    ),
}


def describe_excluded(context: Context) -> Iterator[str]:
    """Yield how many classes were not evaluated, and why."""
    classes = context.evaluation.classes
    reasons = [f"'{count.label}' ({count.reason})" for count in classes if not count.eligible]
    if not reasons:
        return
    verb = "was" if len(reasons) == 1 else "were"
    share = f"{len(reasons)} of {len(classes)} call types {verb} not evaluated"
    if len(reasons) > MOST_REASONS:
        reasons[MOST_REASONS:] = [f"and {len(reasons) - MOST_REASONS} more"]
    yield f"{share}: {'; '.join(reasons)}."


def describe_cautions(context: Context) -> Iterator[str]:
    """Yield where the numbers are weak."""
    evaluation = context.evaluation
    complete_shots = evaluation.complete_shots
    queries = evaluation.queries
    if complete_shots < min(SMALL_COMPLETE, max(evaluation.curve["k"])):
        yield (
            f"Caution: beyond k* = {complete_shots}, not every call type has that many different "
            "examples; it uses those it has."
        )
    counts = {count.label: sum(count.per_fold) for count in evaluation.classes if count.eligible}
    rarest = min(counts, key=lambda label: counts[label])
    if counts[rarest] < FEW_QUERIES:
        yield (
            f"Caution: few queries, {queries} in all and {counts[rarest]} of '{rarest}'; other "
            "recordings may give other numbers."
        )
    points = context.curves.filter("reliable").filter(ABOVE_CHANCE, scoring="all", k=context.k)
    for point in points.iter_rows(named=True):
        if is_random(point["encoder"]):
            numbers = RANDOM_ABOVE_CHANCE.format(**point)
            yield f"Caution: {numbers}: that much is luck with these {queries} queries."


def describe_not_compared(context: Context) -> Iterator[str]:
    """Yield the baselines with a score that was not evaluated: reduced, without categories."""
    scorings = context.evaluation.curve["scoring"].unique().to_list()
    other = context.results.baselines.filter(~pl.col("scoring").is_in(scorings))
    for name, scoring in other.select("name", "scoring").unique(maintain_order=True).iter_rows():
        yield (
            f"Caution: the {scoring} scores of {name} are not compared, because no categories "
            "were given."
        )


def describe_intervals(context: Context) -> Iterator[str]:
    """Yield what the intervals include, or why there are none."""
    if context.samples >= MIN_SAMPLES:
        yield MEANINGS[context.spread]
    else:
        yield (
            f"Caution: only means are reported: a 98 % interval needs at least {MIN_SAMPLES} "
            f"{SAMPLES[context.spread]}, and there are {context.samples}."
        )
