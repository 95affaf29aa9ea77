"""Context → sentences on other classifiers: baselines, the same examples with training, other rules."""

from collections.abc import Iterator

import polars as pl

from callshot.fewshot.crossover import MIN_SAMPLES, ROUNDING, align_draws
from callshot.fewshot.differences import baseline_name
from callshot.records.frames import summarise_samples
from callshot.report.classifiers import classifier_name, is_trained, paired_values
from callshot.report.summary.context import (
    SAMPLES,
    SPREAD_WIDTH,
    Context,
    Point,
    compare_means,
    describe_clear,
    first_lasting,
    format_difference,
    format_interval,
)

CENTROID = "the nearest centroid"
NAMES = {"logistic": "logistic regression"}
AHEAD = pl.col("mean") > 0
MIN_GAIN = 0.001  # of mAP, by which a step on the way must exceed both ends


def describe_baselines(context: Context) -> Iterator[str]:
    """Yield how many examples the best encoder needs to beat each baseline.

    Reduced scoring is for baselines that read audio, and for those that have no other score.
    """
    best = context.best
    rows = context.results.baselines.filter(
        pl.col("encoder").is_in(["", best]),
        metric="map",
    )
    scored_all = rows.filter(scoring="all")["name"].to_list()
    is_end_to_end = pl.col("kind") == "end-to-end"
    is_only_score = ~pl.col("name").is_in(scored_all)
    rows = rows.filter((pl.col("scoring") == "all") | is_end_to_end | is_only_score)
    for baseline in rows.iter_rows(named=True):
        scoring = baseline["scoring"]
        differences = context.differences(best, baseline_name(baseline), scoring)
        if differences.is_empty():
            continue
        name = baseline["name"]
        if rows.filter(kind=baseline["kind"])["name"].n_unique() == 1:
            name = NAMES.get(baseline["kind"], name)
        other = f"{name} trained on all labelled data"
        if scoring != "all":
            other += f" in the {scoring} scoring"
        means = context.curve(best, scoring).select("k", one_mean="mean", other_mean=pl.lit(baseline["value"]))
        yield _describe_baseline(context, other, differences.join(means, on="k", maintain_order="left"))


def _describe_baseline(context: Context, other: str, rows: pl.DataFrame) -> str:
    passed = first_lasting(rows, AHEAD)
    if passed is None:
        return _describe_not_ahead(context, context.best, other, rows)
    k = passed["k"]
    means = compare_means(passed["one_mean"], passed["other_mean"])
    first = rows.filter(AHEAD)["k"][0]
    if first < k:
        means += f"; the first time with {first}"
    clear = describe_clear(rows, k)
    return (
        f"{context.best} beats {other} on average from {context.examples(k)} on ({means}){clear}."
    )


def describe_training(context: Context) -> Iterator[str]:
    """Yield from how many examples on training on them beats the centroid."""
    for name, rows in _compare_classifiers(context):
        if is_trained(name):
            subject = f"With the same examples, {NAMES.get(name, name)} on {context.best}"
            yield _describe_trained(context, subject, rows)


def _describe_trained(context: Context, subject: str, rows: pl.DataFrame) -> str:
    passed = first_lasting(rows, AHEAD)
    if passed is None:
        return _describe_not_ahead(context, subject, CENTROID, rows)
    k = passed["k"]
    clear = describe_clear(rows, k)
    before = rows.filter(pl.col("k") < k)
    if before.is_empty():
        shown = rows.filter(k=context.k) if context.k in rows["k"] else rows
        k, one, other = shown.select("k", "one_mean", "other_mean").row(0)
        means = f"{compare_means(one, other)} with {context.examples(k)}"
        return f"{subject} beats {CENTROID} on average at every k ({means}){clear}."
    means = compare_means(passed["one_mean"], passed["other_mean"])
    if (before["mean"] < 0).all():
        clear += f"; with fewer, {CENTROID} is better"
    return f"{subject} beats {CENTROID} on average from {context.examples(k)} on ({means}){clear}."


def _describe_not_ahead(context: Context, subject: str, other: str, rows: pl.DataFrame) -> str:
    last = rows.row(-1, named=True)
    means = compare_means(last["one_mean"], last["other_mean"])
    sentence = (
        f"{subject} does not beat {other} on average with {context.examples(last['k'])} ({means})"
    )
    early = rows.filter(AHEAD)["k"]
    if not early.is_empty():
        sentence += f", although it does with {early[0]}"
    behind = first_lasting(rows.filter("reliable"), pl.col("p99") < 0)
    if behind is not None:
        sentence += f"; it is clearly worse from {behind['k']} on"
    return f"{sentence}."


def describe_other_classifiers(context: Context) -> Iterator[str]:
    """Yield which classifiers without training are clearly better with a few examples, if any."""
    compared: list[tuple[str, Point]] = []
    for name, rows in _compare_classifiers(context):
        if not is_trained(name):
            point = rows.filter("reliable").filter(k=context.k)
            compared.extend((name, row) for row in point.iter_rows(named=True))
    better = [(name, row) for name, row in compared if row["p01"] > 0]
    better.sort(key=lambda pair: -pair[1]["mean"])
    where = f"with {context.best} and {context.examples(context.k)}"
    margins = []
    for name, row in better:
        interval = f"{format_interval(row)} over {SAMPLES[context.spread]}"
        gain = format_difference(row["mean"])
        margins.append(f"{classifier_name(name)} by {gain} of mAP ({interval})")
    if margins:
        yield f"Clearly better than {CENTROID} {where}, without training: {'; '.join(margins)}."
    elif compared:
        yield f"No other classifier without training is clearly better than {CENTROID} {where}."


def describe_refinement(context: Context) -> Iterator[str]:
    """Yield what gradient steps from the centroid to logistic regression do to mAP."""
    rows = context.results.refinement.filter(
        encoder=context.best,
        scoring="all",
        metric="map",
    ).sort("step")
    if len(rows) < 2:
        return
    steps = rows["step"][-1]
    noun = "gradient step" if steps == 1 else "gradient steps"
    first = rows["value"][0]
    last = rows["value"][-1]
    sentence = (
        f"With {context.best}, {steps} {noun} from the centroid of all labels to logistic "
        f"regression change mAP from {first:.3f} to {last:.3f}"
    )
    highest = rows.row(rows["value"].arg_max(), named=True)
    if highest["value"] - max(first, last) >= MIN_GAIN:
        sentence += (
            f"; on the way it is {highest['value']:.3f} at step {highest['step']}, "
            "which describes these queries and is no way to choose a step"
        )
    yield f"{sentence}."


def _compare_classifiers(context: Context) -> Iterator[tuple[str, pl.DataFrame]]:
    """Yield the classifiers on the best encoder, and each less the centroid by k, on the same draws.

    `one_mean` and `other_mean` are the means of the classifier and of the centroid.
    """
    complete_shots = context.evaluation.complete_shots
    for values, reference in paired_values(context.results, context.spread):
        if values["encoder"][0] != context.best:
            continue
        k, samples, reference_samples = align_draws(values, reference)
        columns = {
            "k": k,
            "one_mean": samples.mean(axis=1),
            "other_mean": reference_samples.mean(axis=1),
            **summarise_samples(samples - reference_samples),
        }
        is_enough = pl.lit(samples.shape[1] >= MIN_SAMPLES)
        is_complete = pl.col("k") <= complete_shots
        reliable = is_enough & is_complete & (SPREAD_WIDTH > ROUNDING)
        yield values["classifier"][0], pl.DataFrame(columns).with_columns(reliable=reliable)
