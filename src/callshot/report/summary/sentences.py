"""Context → sentences: encoders, other classifiers, confusions, targets, and cautions."""

from collections.abc import Iterator, Sequence

import polars as pl

from callshot.errors import count_text
from callshot.fewshot.differences import (
    MIN_SAMPLES,
    baseline_name,
    compare_classifiers,
    first_lasting,
    summarise_comparisons,
)
from callshot.fewshot.label_budget import (
    WITHIN,
    has_gains,
    labels_for_target,
    recommended_class,
    saturation,
)
from callshot.fewshot.variation import describe_repetition, describe_sensitivity
from callshot.records import ClassCount, Evaluation
from callshot.records.frames import Frame, unique_values, value_matrix
from callshot.report.classifiers import classifier_name, is_trained, paired_values
from callshot.report.summary.context import (
    RANDOM,
    SAMPLES,
    Context,
    Point,
    Sentences,
    compare_means,
    format_difference,
    format_interval,
    format_margin,
    format_range,
    format_share,
    is_random,
)
from callshot.report.tables.scores import reads_encoder

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


CENTROID = "the nearest centroid"
NAMES = {"logistic": "logistic regression"}
AHEAD = pl.col("mean") > 0
MIN_GAIN = 0.001  # of mAP, by which a step on the way must exceed both ends


def describe_baselines(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs to beat each baseline."""
    baselines = _select_baselines(context)
    has_several = pl.col("name").n_unique().over("kind") > 1
    several = baselines.filter(has_several)["kind"].to_list()
    for baseline in baselines.iter_rows(named=True):
        scoring = baseline["scoring"]
        kind = baseline["kind"]
        name = baseline["name"]
        if kind not in several:
            name = NAMES.get(kind, name)
        other = f"{name} trained on all labelled data"
        if scoring != "all":
            other += f" ({scoring} scoring)"
        rows = _compare_baseline(context, baseline)
        if not rows.is_empty():
            yield _describe_baseline(context, other, rows)


def _compare_baseline(context: Context, baseline: Point) -> Frame:
    """Return the best encoder minus a baseline by k, with the means of both."""
    scoring = baseline["scoring"]
    differences = context.differences(context.best, baseline_name(baseline), scoring)
    means = context.curve(scoring).select(
        "k",
        one_mean="mean",
        other_mean=pl.lit(baseline["value"]),
    )
    return differences.join(means, on="k", maintain_order="left")


def _select_baselines(context: Context) -> Frame:
    """Return the baselines to compare with the best encoder.

    Reduced scoring is for baselines that read audio, and for those that have no other score.
    """
    is_all = pl.col("scoring") == "all"
    has_all = is_all.any().over("name")
    is_end_to_end = pl.col("kind") == "end-to-end"
    baselines = context.results.baselines.filter(
        reads_encoder(context.best), metric="map"
    )
    return baselines.filter(is_all | is_end_to_end | ~has_all)


def _describe_baseline(context: Context, other: str, rows: Frame) -> str:
    best = context.best
    passed = first_lasting(rows, AHEAD)
    if passed is None:
        return _describe_not_ahead(context, best, other, rows)
    k = passed["k"]
    means = f"With {k}, {compare_means(passed)}."
    first = rows.filter(AHEAD)["k"][0]
    if first < k:
        means += f" It is ahead for the first time with {first}."
    examples = context.examples(k)
    clear = context.describe_clear(rows, k)
    return f"{best} beats {other} on average from {examples} on. {means}{clear}"


def describe_training(context: Context) -> Sentences:
    """Yield from how many examples on training on them beats the centroid."""
    for name, rows in compare_with_centroid(context):
        if not is_trained(name):
            continue
        subject = f"On the same examples, {NAMES.get(name, name)} with {context.best}"
        passed = first_lasting(rows, AHEAD)
        if passed is None:
            yield _describe_worse(context, subject, rows)
        else:
            yield _describe_trained_better(context, subject, passed, rows)


def _describe_worse(context: Context, subject: str, rows: Frame) -> str:
    """Return that training is not ahead at the last k, and from where it is clearly behind."""
    sentence = _describe_not_ahead(context, subject, CENTROID, rows)
    behind = first_lasting(rows.drop_nulls("low"), pl.col("high") < 0)
    if behind is not None:
        sentence += f" It is clearly worse from {behind['k']} on."
    return sentence


def _describe_trained_better(
    context: Context, subject: str, passed: Point, rows: Frame
) -> str:
    k = passed["k"]
    clear = context.describe_clear(rows, k)
    before = rows.filter(pl.col("k") < k)
    if before.is_empty():
        point = next(rows.filter(k=context.k).iter_rows(named=True), passed)
        shots = "at every k"
    else:
        point = passed
        shots = f"from {context.examples(k)} on"
        if (before["mean"] < 0).all():
            clear += f" With fewer, {CENTROID} is better."
    means = f"With {point['k']}, {compare_means(point)}."
    return f"{subject} beats {CENTROID} on average {shots}. {means}{clear}"


def _describe_not_ahead(context: Context, subject: str, other: str, rows: Frame) -> str:
    last = rows.row(-1, named=True)
    examples = context.examples(last["k"])
    sentence = (
        f"{subject} does not beat {other} on average with {examples}. "
        f"There, {compare_means(last)}."
    )
    for k in rows.filter(AHEAD)["k"].head(1):
        sentence += f" It does with {k}."
    return sentence


def describe_other_classifiers(context: Context) -> Sentences:
    """Yield which classifiers without training are clearly better with a few examples, if any."""
    points = _compare_untrained(context)
    if points.is_empty():
        return
    examples = context.examples(context.k)
    where = f"{CENTROID} with {context.best} and {examples}"
    better = points.filter(pl.col("low") > 0)
    for row in better.sort("mean", descending=True, maintain_order=True).iter_rows(
        named=True
    ):
        name = classifier_name(row["name"])
        interval = f"{format_interval(row)} over {SAMPLES[row['spread']]}"
        yield (
            f"Without training, {name} is clearly better than {where}. The difference is "
            f"{format_difference(row['mean'])} of mAP ({interval})."
        )
    if better.is_empty():
        yield f"No other classifier without training is clearly better than {where}."


def _compare_untrained(context: Context) -> Frame:
    """Return each untrained classifier minus the centroid at a few shots, if it has an interval."""
    points = [Frame()]
    for name, rows in compare_with_centroid(context):
        if not is_trained(name):
            point = rows.drop_nulls("low").filter(k=context.k)
            points.append(point.with_columns(name=pl.lit(name)))
    return pl.concat(points, how="diagonal")


def describe_refinement(context: Context) -> Sentences:
    """Yield what gradient steps from the centroid to logistic regression do to mAP."""
    best = context.best
    rows = context.results.refinement.filter(encoder=best, scoring="all", metric="map")
    if len(rows) < 2:
        return
    rows = rows.sort("step")
    values = rows["value"]
    first = values[0]
    last = values[-1]
    steps = rows["step"][-1]
    noun = "gradient step" if steps == 1 else "gradient steps"
    sentence = (
        f"With {best}, {steps} {noun} from the centroid of all labels to logistic regression "
        f"change mAP from {first:.3f} to {last:.3f}"
    )
    highest = max(values)
    if highest - max(first, last) >= MIN_GAIN:
        step = rows.filter(value=highest)["step"][0]
        sentence += (
            f". On the way it is {highest:.3f} at step {step}. That describes these queries; it "
            "is no way to choose a step"
        )
    yield f"{sentence}."


def compare_with_centroid(context: Context) -> Iterator[tuple[str, Frame]]:
    """Yield the classifiers on the best encoder, and each minus the centroid by k, on shared draws.

    `one_mean` and `other_mean` are the means of the classifier and of the centroid. Intervals are
    simultaneous over the encoders and the classifiers with training, or over those without.
    """
    pairs = list(paired_values(context.results))
    last = context.evaluation.complete_shots
    for wants_trained in (True, False):
        group = []
        for values, reference in pairs:
            if is_trained(values["classifier"][0]) == wants_trained:
                group.append((values, reference))
        comparisons = compare_classifiers(group)
        differences = summarise_comparisons(comparisons, last)
        for comparison, rows in zip(comparisons, differences, strict=True):
            curve = comparison.curve
            if curve["encoder"][0] != context.best:
                continue
            samples = comparison.difference.shape[1]
            mean = pl.Series(value_matrix(curve)[:, :samples].mean(axis=1))
            other_mean = mean - pl.col("mean")
            with_means = rows.with_columns(one_mean=mean, other_mean=other_mean)
            yield curve["classifier"][0], with_means


IS_RIGHT = pl.col("true") == pl.col("predicted")
MIN_SHARE = 0.005  # of a row, that a sentence gives


def describe_confusions(context: Context) -> Sentences:
    """Yield the call types that are named right most and least often, and the largest confusion."""
    cells = confusion_at(context)
    if cells.is_empty():
        return
    by_share = cells.sort("recall", descending=True, maintain_order=True)
    right = by_share.filter(IS_RIGHT)
    examples = context.examples(cells["k"][0])
    most, most_share = right.select("true", "recall").row(0)
    least, least_share = right.select("true", "recall").row(-1)
    yield (
        f"With {examples}, {context.best} names '{most}' right most often: "
        f"{100 * most_share:.0f} %. "
        f"It names '{least}' right least often: {100 * least_share:.0f} %."
    )
    yield from _describe_largest(by_share.filter(~IS_RIGHT))


def _describe_largest(wrong: Frame) -> Sentences:
    """Yield the largest share of wrong names, if there are any."""
    for row in wrong.head(1).iter_rows(named=True):
        if row["recall"] >= MIN_SHARE:
            share = 100 * row["recall"]
            yield (
                f"The largest confusion: it names {share:.0f} % of '{row['true']}' as "
                f"'{row['predicted']}'."
            )


def confusion_at(context: Context) -> Frame:
    """Return the decisions of the best encoder at the k of the headline, or the nearest below."""
    cells = context.evaluation.confusion.filter(
        pl.col("recall").is_not_nan(), encoder=context.best
    )
    if cells.is_empty():
        return cells
    return cells.filter(k=confusion_shot(cells["k"].unique().to_list(), context.k))


def confusion_shot(shots: Sequence[int], k: int) -> int:
    """Return the largest evaluated shot up to k, or the smallest if all are larger.

    >>> confusion_shot((1, 5, 20), 4), confusion_shot((8, 20), 4)
    (1, 8)
    """
    few = [shot for shot in shots if shot <= k]
    return max(few, default=min(shots))


# What a share of samples is a share of.
CASES = "labelled sets and recordings"


def describe_target(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs for the target, if one was given."""
    if context.target is not None:
        answers = labels_for_target(context.evaluation, context.target)
        yield from describe_targets(answers.filter(encoder=context.best))


def describe_targets(answers: Frame) -> Sentences:
    """Yield a sentence for every encoder and classifier, from rows of the TARGETS schema."""
    has_others = answers["classifier"].n_unique() > 1
    for row in answers.iter_rows(named=True):
        name = row["encoder"]
        if has_others:
            name = f"{name}, {row['classifier']}"
        yield f"{_describe_answer(row | {'name': name})}."


def _describe_answer(row: Point) -> str:
    name = row["name"]
    target = f"mAP {row['target']:g}"
    unknown = f"How many examples per call type {name} needs for {target} is not known"
    if row["last_k"] is None:
        return f"{unknown}: every evaluated k is more than some call type can give"
    if row["k_mean"] is None:
        mean = f"{row['last_mean']:.2f}"
        return f"{unknown}. {_describe_most_shots(row)}, it reaches {mean} on average"
    shots = _describe_shots(row, "k_mean")
    certainty = _describe_certainty(row)
    return f"{name} reaches {target} on average with {shots}{certainty}"


def _describe_most_shots(row: Point) -> str:
    return f"With {row['last_k']}, the most evaluated with every call type complete"


def _describe_certainty(row: Point) -> str:
    """Return from where nearly all samples reach the target."""
    if row["k_clear"] is not None:
        shots = _describe_shots(row, "k_clear")
        return f". In 98 % of {CASES}, it reaches this with {shots}"
    share = format_share(row["last_share"])
    return (
        f". How many it needs for 98 % of {CASES} is not known. {_describe_most_shots(row)}, "
        f"{share} % reach it"
    )


def _describe_shots(row: Point, column: str) -> str:
    k = row[column]
    text = count_text(k, "example")
    if k == row["first_k"] and k > 1:
        text += " or fewer"
    return f"{text} per call type"


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
