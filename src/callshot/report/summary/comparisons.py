"""Context → sentences on other classifiers: baselines, the same examples with training, others."""

from collections.abc import Iterator

import polars as pl

from callshot.fewshot.crossover import first_lasting
from callshot.fewshot.differences import (
    Comparison,
    baseline_name,
    compare_classifiers,
    summarise_comparisons,
)
from callshot.records.frames import Frame, value_matrix
from callshot.report.classifiers import classifier_name, is_trained, paired_values
from callshot.report.summary.context import (
    SAMPLES,
    Context,
    Point,
    Sentences,
    compare_means,
    format_difference,
    format_interval,
)
from callshot.report.tables.scores import reads_encoder

CENTROID = "the nearest centroid"
NAMES = {"logistic": "logistic regression"}
AHEAD = pl.col("mean") > 0
MIN_GAIN = 0.001  # of mAP, by which a step on the way must exceed both ends


def describe_baselines(context: Context) -> Sentences:
    """Yield how many examples the best encoder needs to beat each baseline."""
    baselines = _select_baselines(context)
    several = _kinds_with_several_names(baselines)
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


def _kinds_with_several_names(baselines: Frame) -> list[str]:
    has_several = pl.col("name").n_unique().over("kind") > 1
    return baselines.filter(has_several)["kind"].to_list()


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
            yield _describe_better(context, subject, passed, rows)


def _describe_worse(context: Context, subject: str, rows: Frame) -> str:
    """Return that training is not ahead at the last k, and from where it is clearly behind."""
    sentence = _describe_not_ahead(context, subject, CENTROID, rows)
    behind = first_lasting(rows.drop_nulls("low"), pl.col("high") < 0)
    if behind is not None:
        sentence += f" It is clearly worse from {behind['k']} on."
    return sentence


def _describe_better(context: Context, subject: str, passed: Point, rows: Frame) -> str:
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
        group = [pair for pair in pairs if _is_trained_pair(pair) == wants_trained]
        comparisons = compare_classifiers(group)
        differences = summarise_comparisons(comparisons, last)
        for comparison, rows in zip(comparisons, differences, strict=True):
            encoder, classifier = comparison.curve.select("encoder", "classifier").row(
                0
            )
            if encoder == context.best:
                yield classifier, _add_means(rows, comparison)


def _is_trained_pair(pair: tuple[Frame, Frame]) -> bool:
    return is_trained(pair[0]["classifier"][0])


def _add_means(rows: Frame, comparison: Comparison) -> Frame:
    samples = comparison.difference.shape[1]
    mean = pl.Series(value_matrix(comparison.curve)[:, :samples].mean(axis=1))
    return rows.with_columns(one_mean=mean, other_mean=mean - pl.col("mean"))
