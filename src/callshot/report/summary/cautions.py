"""Context → sentences on what was left out, where numbers are weak, and what the intervals mean."""

import polars as pl

from callshot.fewshot.differences import MIN_SAMPLES
from callshot.fewshot.partitions import describe_repetition
from callshot.fewshot.sensitivity import describe_sensitivity
from callshot.records import ClassCount, Evaluation
from callshot.records.frames import unique_values
from callshot.report.summary.context import SAMPLES, Context, Sentences, is_random
from callshot.report.summary.encoders import BETTER, TEST

SMALL_COMPLETE = 10
FEW_QUERIES = 10
MAX_REASONS = 3
MEANINGS = {
    "total": (
        "The 98 % intervals are of the spread total: what one labelled set would score on other "
        "recordings of the same kind."
    ),
    "shared": (
        "The 98 % intervals are of the spread shared, the luck of which examples were labelled. "
        "They leave out the choice of calls that were recorded and queried; the spread total "
        "includes it."
    ),
    "per-query": (
        "The 98 % intervals are the paper's, of the spread per-query: over bootstrap samples in "
        "which every query has its own draws. The spread total shows what one labelled set for "
        "all queries would do."
    ),
}
SIMULTANEOUS = (
    "Those of differences hold for all pairs and all k up to k* = {} at once."
)


def describe_excluded(context: Context) -> Sentences:
    """Yield how many classes were not evaluated, and why."""
    evaluation = context.evaluation
    excluded = evaluation.excluded_classes
    if not excluded:
        return
    verb = "was" if len(excluded) == 1 else "were"
    sentences = [
        f"{len(excluded)} of {len(evaluation.classes)} call types {verb} not evaluated."
    ]
    sentences += [
        f"'{count.label}' is left out: {count.reason}."
        for count in excluded[:MAX_REASONS]
    ]
    rest = len(excluded) - MAX_REASONS
    if rest > 0:
        sentences.append(f"The table of call types gives the reasons for {rest} more.")
    yield " ".join(sentences)


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
    tests = context.chance_tests.filter(BETTER)
    for point in tests.filter(k=context.k).iter_rows(named=True):
        if is_random(point["encoder"]):
            yield (
                f"Caution: even the encoder {TEST.format(**point)}: that much is luck with these "
                f"{evaluation.queries} queries."
            )


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
    """Yield how much mAP and the order of encoders depend on folds, examples and queries."""
    evaluation = context.evaluation
    yield from describe_repetition(evaluation.partitions, context.k)
    sources = (evaluation.sensitivity, evaluation.sensitivity_means)
    yield from describe_sensitivity(*sources, context.k)


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
    evaluation = context.evaluation
    if context.samples < MIN_SAMPLES:
        yield (
            f"Caution: only means and counts are reported. A 98 % interval needs at least "
            f"{MIN_SAMPLES} {SAMPLES[context.spread]}, and there are {context.samples}."
        )
        return
    sentence = MEANINGS[context.spread]
    if not evaluation.differences.is_empty():
        sentence += f" {SIMULTANEOUS.format(evaluation.complete_shots)}"
    yield sentence
