"""Context → sentences: encoders, other classifiers, confusions, targets, and cautions."""

from collections.abc import Callable, Iterator, Sequence

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

MEAN_ABOVE_CHANCE = pl.col("mean") > pl.col("chance")
WHERE = {"total": "other recordings of the same kind", "shared": "these recordings"}
TEST = "{encoder} reaches mAP {mean:.2f}; chance is {chance:.2f}, and p = {p:.3f}"
CASES = "98 % of labelled sets and recordings"
MAX_SHOTS = 5  # that a sentence lists


def describe_expectation(context: Context) -> Sentences:
    """Yield how good the best encoder is with a few examples, and how much that depends on them."""
    template = "With {examples}, {best} reaches mAP {mean:.2f} on average; chance is {chance:.2f}."
    sentences = [context.say(template, context.point), *describe_interval(context)]
    count = len(context.ranking(context.k))
    if count > 1:
        sentences.append(
            f"{context.best} is the best of {count} encoders, chosen on the same calls, so this "
            "is slightly optimistic."
        )
    yield " ".join(sentences)


def describe_interval(context: Context) -> Sentences:
    """Yield what one labelled set gives."""
    if context.spread in WHERE and context.point["has_interval"]:
        template = (
            "One labelled set gives {p01:.2f} to {p99:.2f} on {where} (98 % interval)."
        )
        yield context.say(template, context.point, where=WHERE[context.spread])


def describe_accuracy(context: Context) -> Sentences:
    """Yield how often the best encoder names the right type, and why another one is not best."""
    curve = context.evaluation.curve.filter(
        pl.col("encoder").is_in(context.ranking(context.k)),
        scoring="all",
        spread=context.spread,
        k=context.k,
    ).with_columns(pl.col("mean", "chance") * 100)
    points = curve.filter(metric="accuracy")
    if points.is_empty():
        return
    best = points.row(by_predicate=pl.col("encoder") == context.best, named=True)
    label, share = context.evaluation.largest_class
    sentence = context.say(
        "{best} names the right type {mean:.0f} % of the time; guessing gives {chance:.0f} %, "
        "and always naming '{label}', the most frequent, {share:.0f} %.",
        best,
        label=label,
        share=100 * share,
    )
    for mean in curve.filter(metric="balanced_accuracy", encoder=context.best)["mean"]:
        sentence += f" Balanced over call types, it is {mean:.0f} %."
    yield sentence
    leader = points.row(points["mean"].arg_max() or 0, named=True)
    if leader["mean"] > best["mean"]:
        yield context.say(
            "{encoder} names more right, {mean:.0f} %; encoders are compared by mAP, which "
            "counts the whole ranking and not only the first name.",
            leader,
        )


def describe_next_best(context: Context) -> Sentences:
    """Yield how far the best encoder is ahead of the next, and whether that is clear."""
    for other in context.ranking(context.k)[1:2]:
        for row in context.difference_at(context.k, context.best, other):
            clear = ""
            if row["low"] is not None:
                clear = " The difference is not clear, because the interval includes 0."
                if row["low"] > 0:
                    clear = " The difference is clear."
            template = "With {examples}, {one} is on average ahead of {other} by {margin}.{wins}"
            yield _say_difference(context, template, row) + clear


def _say_difference(context: Context, template: str, row: Point) -> str:
    wins = context.describe_wins(row)
    return context.say(template, row | {"wins": wins}, margin=format_margin(row))


def describe_later_best(context: Context) -> Sentences:
    """Yield the encoder that is clearly better with more examples, if there is one."""
    last = max(context.curve().filter("complete")["k"], default=context.k)
    leader = context.ranking(last)[0]
    for row in context.difference_at(last, leader, context.best):
        if row["clear"] and row["low"] > 0:
            template = "With {examples}, {one} is clearly better than {other}, by {margin}.{wins}"
            yield _say_difference(context, template, row)


def describe_saturation(context: Context) -> Sentences:
    """Yield from where more examples add little, or that they still add something.

    A curve is level at k if twice as many examples were evaluated. Points beyond k* are left out:
    there, a level curve may only say that classes have run out of exemplars.
    """
    complete = context.curve().filter("complete")
    last = max(complete["k"], default=0)
    level = saturation(complete, WITHIN)
    if level is not None and 2 * level <= last:
        yield context.say(
            f"With {{best}}, more than {{examples}} add at most {WITHIN} of mAP. Up to {last} "
            "were evaluated with every call type complete.",
            k=level,
        )
    elif len(complete) > 1:
        gain = complete["mean"][-1] - complete["mean"][-2]
        if gain > WITHIN:
            yield context.say(
                "With {best}, mAP still rises by {gain} from {before} to {examples}. {k} is the "
                "largest number evaluated with every call type complete.",
                k=last,
                before=complete["k"][-2],
                gain=format_difference(gain),
            )


def describe_no_success(context: Context) -> Sentences:
    """Yield that nothing is better than chance, if that is so."""
    is_candidate = pl.col("encoder").is_in(context.ranking(context.k))
    tests = context.chance_tests.filter(is_candidate)
    if not tests.is_empty():
        if not tests["better"].any():
            yield f"Nothing here is clearly better than chance. {_describe_last_test(context)}"
        return
    curves = context.curves.filter(is_candidate, MEAN_ABOVE_CHANCE, scoring="all")
    if curves.is_empty():
        yield context.say(
            "Nothing here is better than chance on average. With {examples}, {encoder} reaches "
            "mAP {mean:.2f}, and chance is {chance:.2f}.",
            context.curve().row(-1, named=True),
        )


def describe_chance(context: Context) -> Sentences:
    """Yield from which k on the best encoder is better than chance."""
    tests = context.chance_tests.filter(encoder=context.best)
    points, condition, how = tests, pl.col("better"), "clearly"
    if tests.is_empty():
        points, condition, how = context.curve(), MEAN_ABOVE_CHANCE, "on average"
    first = first_lasting(points, condition)
    passed = tests.filter("better")
    if first is not None:
        start = context.examples(first["k"])
        end = context.curve()["k"][-1]
        lasting = format_range(start, first["k"], points["k"][-1], end)
        sentence = f"{context.best} is {how} better than chance {lasting}."
        if not tests.is_empty():
            shots = ", ".join(map(str, passed["k"]))
            if len(passed) > MAX_SHOTS:
                shots = f"{passed['k'][0]} to {passed['k'][-1]}"
            sentence += (
                f" The test gives p at most {max(passed['p']):.3f} with {shots}, by "
                f"{passed['permutations'][0]} permutations of labels over recordings."
            )
        yield sentence
    elif not passed.is_empty():
        last = _describe_last_test(context)
        yield f"{context.best} is clearly better than chance at some k only. {last}"


def _describe_last_test(context: Context) -> str:
    tests = context.chance_tests.filter(encoder=context.best)
    return context.say(f"With {{examples}}, {TEST}.", tests.row(-1, named=True))


def describe_random(context: Context) -> Sentences:
    """Yield how the best encoder compares with random vectors."""
    if is_random(context.best):
        yield f"Only the encoder {RANDOM} was evaluated: its vectors do not depend on the sound."
        return
    for encoder in filter(is_random, context.evaluation.encoders):
        for row in context.difference_at(context.k, context.best, encoder):
            how = "on average" if row["low"] is None else "clearly"
            is_better = row["mean"] > 0 if row["low"] is None else row["low"] > 0
            side = "ahead" if row["mean"] >= 0 else "behind"
            template = (
                f"{{one}} is {how if is_better else f'not {how}'} better than random vectors "
                f"(the encoder {{other}}): {side} by {{margin}}."
            )
            yield _say_difference(context, template, row)


def describe_budget(context: Context) -> Sentences:
    """Yield the class that gains most from more examples, or that none stands out."""
    rows = context.evaluation.budget.filter(encoder=context.best, metric="map")
    if not has_gains(rows):
        return
    best = recommended_class(rows)
    answer = "no call type stands out as the one that gains most from more examples."
    if best is not None:
        answer = (
            f"'{best['label']}' should gain most from more examples: about {describe_gain(best)}. "
            f"From {best['k']} to {2 * best['k']} it should gain about "
            f"{format_difference(best['double_gain'])}."
        )
    unknown = rows["next_gain"].is_nan().sum()
    if unknown:
        answer += f" {unknown} of {len(rows)} call types have too few complete shots for a curve."
    yield f"With {context.best}, {answer}"


def describe_gain(row: Point) -> str:
    """Return what the next example of a call type is worth, from a row of the BUDGET schema."""
    interval = format_interval(row["next_gain_p01"], row["next_gain_p99"])
    gain = format_difference(row["next_gain"])
    return f"{gain} of AP from {row['k']} to {row['k'] + 1} ({interval})"


CENTROID = "the nearest centroid"
NAMES = {"logistic": "logistic regression"}
AHEAD = pl.col("mean") > 0
MIN_GAIN = 0.001  # of mAP, by which a step on the way must exceed both ends


def describe_baselines(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs to beat each baseline.

    Reduced scoring is for baselines that read audio, and for those that have no other score.
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
    """Yield from how many examples on training on them beats the centroid."""
    for name, rows in compare_with_centroid(context):
        if is_trained(name):
            subject = (
                f"On the same examples, {NAMES.get(name, name)} with {context.best}"
            )
            yield _describe_lead(context, subject, CENTROID, rows)


def _describe_lead(context: Context, subject: str, other: str, rows: Frame) -> str:
    """Return from which k on the subject is ahead, or that it is not at the last k."""
    passed = first_lasting(rows, AHEAD)
    if passed is None:
        last = rows.row(-1, named=True)
        sentence = (
            f"{subject} does not beat {other} on average with {context.examples(last['k'])}. "
            f"There, {compare_means(last)}."
        )
        for k in rows.filter(AHEAD)["k"].head(1):
            sentence += f" It does with {k}."
        behind = first_lasting(rows.drop_nulls("low"), pl.col("high") < 0)
        if behind is not None:
            sentence += f" It is clearly worse from {behind['k']} on."
        return sentence
    point, shots = passed, f"from {context.examples(passed['k'])} on"
    if passed["k"] == rows["k"][0]:
        shots = "at every k"
        point = next(rows.filter(k=context.k).iter_rows(named=True), passed)
    first = rows.filter(AHEAD)["k"][0]
    earlier = ""
    if first < passed["k"]:
        earlier = f" It is ahead for the first time with {first}."
    return (
        f"{subject} beats {other} on average {shots}. With {point['k']}, "
        f"{compare_means(point)}.{earlier}{context.describe_clear(rows, passed['k'])}"
    )


def describe_other_classifiers(context: Context) -> Sentences:
    """Yield which classifiers without training are clearly better with a few examples, if any."""
    points = [
        (classifier_name(name), point)
        for name, rows in compare_with_centroid(context)
        if not is_trained(name)
        for point in rows.drop_nulls("low").filter(k=context.k).iter_rows(named=True)
    ]
    where = f"{CENTROID} with {context.best} and {context.examples(context.k)}"
    better = [(name, point) for name, point in points if point["low"] > 0]
    for name, point in sorted(better, key=lambda pair: -pair[1]["mean"]):
        interval = format_interval(point["low"], point["high"])
        yield (
            f"Without training, {name} is clearly better than {where}. The difference is "
            f"{format_difference(point['mean'])} of mAP ({interval} over "
            f"{SAMPLES[point['spread']]})."
        )
    if points and not better:
        yield f"No other classifier without training is clearly better than {where}."


def describe_refinement(context: Context) -> Sentences:
    """Yield what gradient steps from the centroid to logistic regression do to mAP."""
    rows = context.results.refinement.filter(
        encoder=context.best, scoring="all", metric="map"
    ).sort("step")
    if len(rows) < 2:
        return
    values, steps = rows["value"], rows["step"]
    sentence = (
        f"With {context.best}, {count_text(steps[-1], 'gradient step')} from the centroid of all "
        f"labels to logistic regression change mAP from {values[0]:.3f} to {values[-1]:.3f}."
    )
    highest = max(values)
    if highest - max(values[0], values[-1]) >= MIN_GAIN:
        sentence += (
            f" On the way it is {highest:.3f} at step {steps[values.arg_max() or 0]}. That "
            "describes these queries; it is no way to choose a step."
        )
    yield sentence


def compare_with_centroid(context: Context) -> Iterator[tuple[str, Frame]]:
    """Yield the classifiers on the best encoder, and each minus the centroid by k, on shared draws.

    `one_mean` and `other_mean` are the means of the classifier and of the centroid. Intervals are
    simultaneous over the encoders and the classifiers with training, or over those without.
    """
    pairs = list(paired_values(context.results))
    for wants_trained in (True, False):
        group = [
            pair
            for pair in pairs
            if is_trained(pair[0]["classifier"][0]) == wants_trained
        ]
        comparisons = compare_classifiers(group)
        differences = summarise_comparisons(
            comparisons, context.evaluation.complete_shots
        )
        for comparison, rows in zip(comparisons, differences, strict=True):
            curve = comparison.curve
            if curve["encoder"][0] == context.best:
                samples = value_matrix(curve)[:, : comparison.difference.shape[1]]
                mean = pl.Series(samples.mean(axis=1))
                other_mean = mean - pl.col("mean")
                with_means = rows.with_columns(one_mean=mean, other_mean=other_mean)
                yield curve["classifier"][0], with_means


MIN_SHARE = 0.005  # of a row, that a sentence gives


def describe_confusions(context: Context) -> Sentences:
    """Yield the call types that are named right most and least often, and the largest confusion."""
    cells = context.evaluation.confusion.filter(
        pl.col("recall").is_not_nan(), encoder=context.best
    )
    if cells.is_empty():
        return
    k = confusion_shot(cells["k"].unique().to_list(), context.k)
    by_share = cells.filter(k=k).sort("recall", descending=True, maintain_order=True)
    is_right = pl.col("true") == pl.col("predicted")
    right = by_share.filter(is_right).select("true", "recall").rows()
    (most, most_share), (least, least_share) = right[0], right[-1]
    yield (
        f"With {context.examples(k)}, {context.best} names '{most}' right most often: "
        f"{100 * most_share:.0f} %. "
        f"It names '{least}' right least often: {100 * least_share:.0f} %."
    )
    wrong = by_share.filter(~is_right, pl.col("recall") >= MIN_SHARE)
    for row in wrong.head(1).iter_rows(named=True):
        yield (
            f"The largest confusion: it names {100 * row['recall']:.0f} % of '{row['true']}' as "
            f"'{row['predicted']}'."
        )


def confusion_shot(shots: Sequence[int], k: int) -> int:
    """Return the largest evaluated shot up to k, or the smallest if all are larger.

    >>> confusion_shot((1, 5, 20), 4), confusion_shot((8, 20), 4)
    (1, 8)
    """
    return max((shot for shot in shots if shot <= k), default=min(shots))


def describe_target(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs for the target, if one was given."""
    if context.target is not None:
        answers = labels_for_target(context.evaluation, context.target)
        yield from describe_targets(answers.filter(encoder=context.best))


def describe_targets(answers: Frame) -> Sentences:
    """Yield a sentence for every encoder and classifier, from rows of the TARGETS schema."""
    unknown = (
        "How many examples per call type {name} needs for mAP {target:g} is not known"
    )
    most = "With {last_k}, the most evaluated with every call type complete"
    has_others = answers["classifier"].n_unique() > 1
    for row in answers.iter_rows(named=True):
        name = (
            f"{row['encoder']}, {row['classifier']}" if has_others else row["encoder"]
        )
        shots = {}
        for field in ("k_mean", "k_clear"):
            k = row[field] or 0
            fewer = " or fewer" if k == row["first_k"] and k > 1 else ""
            shots[field] = f"{count_text(k, 'example')}{fewer} per call type"
        if row["last_k"] is None:
            template = (
                f"{unknown}: every evaluated k is more than some call type can give."
            )
        elif row["k_mean"] is None:
            template = f"{unknown}. {most}, it reaches {{last_mean:.2f}} on average."
        else:
            template = "{name} reaches mAP {target:g} on average with {k_mean}. "
            if row["k_clear"] is None:
                template += (
                    f"How many it needs for {CASES} is not known. {most}, {{share}} % "
                )
                template += "reach it."
            else:
                template += f"In {CASES}, it reaches this with {{k_clear}}."
        share = format_share(row["last_share"] or 0.0)
        yield template.format(**row | shots, name=name, share=share)


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
    queries = {
        count.label: sum(count.per_fold) for count in evaluation.eligible_classes
    }
    rarest = min(queries, key=queries.__getitem__)
    if queries[rarest] < FEW_QUERIES:
        yield (
            f"Caution: few queries, {evaluation.queries} in all and {queries[rarest]} of "
            f"'{rarest}'; other recordings may give other numbers."
        )
    for point in context.chance_tests.filter("better", k=context.k).iter_rows(
        named=True
    ):
        if is_random(point["encoder"]):
            luck = f"that much is luck with these {evaluation.queries} queries."
            yield context.say(f"Caution: even the encoder {TEST}: {luck}", point)


def describe_repeated_folds(context: Context) -> Sentences:
    """Yield how much mAP and the order of encoders depend on folds, examples and queries."""
    evaluation = context.evaluation
    yield from describe_repetition(evaluation.partitions, context.k)
    sources = (evaluation.sensitivity, evaluation.sensitivity_means)
    yield from describe_sensitivity(*sources, context.k)


def describe_not_compared(context: Context) -> Sentences:
    """Yield the baselines with a score that was not evaluated: reduced, without categories."""
    scorings = unique_values(context.evaluation.curve, "scoring")
    other = context.results.baselines.filter(~pl.col("scoring").is_in(scorings))
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
        sentence += (
            " Those of differences hold for all pairs and all k up to "
            f"k* = {evaluation.complete_shots} at once."
        )
    yield sentence


# In the order in which people ask: the name of a section of the page, and what answers it.
QUESTIONS: dict[str, tuple[Callable[[Context], Sentences], ...]] = {
    "encoder": (
        describe_no_success,
        describe_expectation,
        describe_accuracy,
        describe_next_best,
        describe_later_best,
        describe_chance,
        describe_random,
    ),
    "confused": (describe_confusions,),
    "labels": (describe_saturation, describe_budget, describe_target),
    "training": (
        describe_training,
        describe_baselines,
        describe_other_classifiers,
        describe_refinement,
    ),
    "certainty": (
        describe_cautions,
        describe_repeated_folds,
        describe_not_compared,
        describe_intervals,
    ),
    "left-out": (describe_excluded,),
}
