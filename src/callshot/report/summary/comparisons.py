"""Context → sentences on other classifiers: baselines, the same examples with training, others."""

from collections.abc import Iterator

import polars as pl

from callshot.fewshot.crossover import MIN_SAMPLES, ROUNDING, align_draws
from callshot.fewshot.differences import baseline_name
from callshot.records.frames import Frame, summarise_samples
from callshot.report.classifiers import classifier_name, is_trained, paired_values
from callshot.report.summary.context import (
    SAMPLES,
    WIDTH,
    Context,
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
    """Yield how many examples the best encoder needs to beat each baseline."""
    baselines = _select_baselines(context)
    for baseline in baselines.iter_rows(named=True):
        scoring = baseline["scoring"]
        differences = context.differences(context.best, baseline_name(baseline), scoring)
        means = context.curve(scoring).select(
            "k",
            one_mean="mean",
            other_mean=pl.lit(baseline["value"]),
        )
        rows = differences.join(means, on="k", maintain_order="left")
        if rows.is_empty():
            continue
        name = baseline["name"]
        if baselines.filter(kind=baseline["kind"])["name"].n_unique() == 1:
            name = NAMES.get(baseline["kind"], name)
        other = f"{name} trained on all labelled data"
        if scoring != "all":
            other += f" in the {scoring} scoring"
        yield _describe_baseline(context, other, rows)


def _select_baselines(context: Context) -> Frame:
    """Return the baselines to compare with the best encoder.

    Reduced scoring is for baselines that read audio, and for those that have no other score.
    """
    is_here = pl.col("encoder").is_in(["", context.best])
    is_all = pl.col("scoring") == "all"
    has_all = is_all.any().over("name")
    is_end_to_end = pl.col("kind") == "end-to-end"
    baselines = context.results.baselines.filter(is_here, metric="map")
    return baselines.filter(is_all | is_end_to_end | ~has_all)


def _describe_baseline(context: Context, other: str, rows: Frame) -> str:
    best = context.best
    passed = first_lasting(rows, AHEAD)
    if passed is None:
        return f"{_describe_not_ahead(context, best, other, rows)}."
    k = passed["k"]
    means = compare_means(passed)
    first = rows.filter(AHEAD)["k"][0]
    if first < k:
        means += f"; the first time with {first}"
    examples = context.examples(k)
    clear = describe_clear(rows, k)
    return f"{best} beats {other} on average from {examples} on ({means}){clear}."


def describe_training(context: Context) -> Iterator[str]:
    """Yield from how many examples on training on them beats the centroid."""
    for name, rows in _compare_classifiers(context):
        if is_trained(name):
            subject = f"With the same examples, {NAMES.get(name, name)} on {context.best}"
            yield _describe_trained(context, subject, rows)


def _describe_trained(context: Context, subject: str, rows: Frame) -> str:
    passed = first_lasting(rows, AHEAD)
    if passed is None:
        behind = first_lasting(rows.filter("reliable"), pl.col("p99") < 0)
        clear = "" if behind is None else f"; it is clearly worse from {behind['k']} on"
        return f"{_describe_not_ahead(context, subject, CENTROID, rows)}{clear}."
    k = passed["k"]
    shots = f"from {context.examples(k)} on"
    means = compare_means(passed)
    clear = describe_clear(rows, k)
    before = rows.filter(pl.col("k") < k)
    if before.is_empty():
        shown = rows.filter(k=context.k).to_dicts()
        point = shown[0] if shown else passed
        shots = "at every k"
        means = f"{compare_means(point)} with {context.examples(point['k'])}"
    elif (before["mean"] < 0).all():
        clear += f"; with fewer, {CENTROID} is better"
    return f"{subject} beats {CENTROID} on average {shots} ({means}){clear}."


def _describe_not_ahead(context: Context, subject: str, other: str, rows: Frame) -> str:
    last = rows.row(-1, named=True)
    examples = context.examples(last["k"])
    means = compare_means(last)
    sentence = f"{subject} does not beat {other} on average with {examples} ({means})"
    for k in rows.filter(AHEAD)["k"].head(1):
        sentence += f", although it does with {k}"
    return sentence


def describe_other_classifiers(context: Context) -> Iterator[str]:
    """Yield which classifiers without training are clearly better with a few examples, if any."""
    where = f"{CENTROID} with {context.best} and {context.examples(context.k)}"
    points = [
        rows.filter("reliable").filter(k=context.k).with_columns(name=pl.lit(name))
        for name, rows in _compare_classifiers(context)
        if not is_trained(name)
    ]
    if not any(map(len, points)):
        return
    better = (
        pl.concat(points)
        .filter(pl.col("p01") > 0)
        .sort("mean", descending=True, maintain_order=True)
    )
    margins = []
    for row in better.iter_rows(named=True):
        name = classifier_name(row["name"])
        gain = format_difference(row["mean"])
        interval = f"{format_interval(row)} over {SAMPLES[context.spread]}"
        margins.append(f"{name} by {gain} of mAP ({interval})")
    if margins:
        yield f"Clearly better than {where}, without training: {'; '.join(margins)}."
    else:
        yield f"No other classifier without training is clearly better than {where}."


def describe_refinement(context: Context) -> Iterator[str]:
    """Yield what gradient steps from the centroid to logistic regression do to mAP."""
    best = context.best
    rows = context.results.refinement.filter(encoder=best, scoring="all", metric="map")
    values = dict(rows.sort("step").select("step", "value").iter_rows())
    if len(values) < 2:
        return
    first = values[min(values)]
    steps = max(values)
    last = values[steps]
    noun = "gradient step" if steps == 1 else "gradient steps"
    sentence = (
        f"With {best}, {steps} {noun} from the centroid of all labels to logistic regression "
        f"change mAP from {first:.3f} to {last:.3f}"
    )
    step, highest = max(values.items(), key=lambda item: item[1])
    if highest - max(first, last) >= MIN_GAIN:
        sentence += (
            f"; on the way it is {highest:.3f} at step {step}, which describes these queries and "
            "is no way to choose a step"
        )
    yield f"{sentence}."


def _compare_classifiers(context: Context) -> Iterator[tuple[str, Frame]]:
    """Yield the classifiers on the best encoder, and each less the centroid by k, on shared draws.

    `one_mean` and `other_mean` are the means of the classifier and of the centroid.
    """
    complete_shots = context.evaluation.complete_shots
    for values, reference in paired_values(context.results, context.spread):
        if values["encoder"][0] != context.best:
            continue
        k, samples, reference_samples = align_draws(values, reference)
        rows = pl.DataFrame(
            {
                "k": k,
                "one_mean": samples.mean(axis=1),
                "other_mean": reference_samples.mean(axis=1),
                **summarise_samples(samples - reference_samples),
            }
        )
        is_enough = pl.lit(samples.shape[1] >= MIN_SAMPLES)
        is_complete = pl.col("k") <= complete_shots
        reliable = is_enough & is_complete & (WIDTH > ROUNDING)
        yield values["classifier"][0], rows.with_columns(reliable=reliable)
