"""Comparisons: paired differences, transfers, sources of the spread, and when training pays.

Training is a trained baseline beside the centroid, and gradient steps between them.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from callshot.fewshot.differences import align_draws
from callshot.records import METRIC_NAMES, CorpusResults, TransferEvaluation
from callshot.records.frames import Frame, summarise_samples, unique_values
from callshot.records.terms import preferred_spread
from callshot.report.choices import (
    classifier_name,
    common_spread,
    is_trained,
    join_classifiers,
    list_classifiers,
    paired_values,
)
from callshot.report.figures.curves import (
    baseline_legend,
    draw_baselines,
    drawable_baselines,
    spread_legend,
)
from callshot.report.figures.figure_io import (
    FigurePage,
    Pages,
    draw_page,
    figure_of_report,
)
from callshot.report.figures.layout import (
    INTERVAL,
    AxesArray,
    Frames,
    PageLayout,
    add_legend,
    axis_limits,
    compose_panels,
    curve_styles,
    draw_band,
    draw_curve,
    draw_line,
    draw_series,
    list_lines,
    list_series,
    mark_last_complete,
    set_titles,
    write_encoders,
)
from callshot.report.figures.style import (
    BOLD_TICK_FONT,
    CHANCE,
    CROSSOVER,
    GREY,
    LINE,
    PAGE_WIDTH_IN,
    PALE_BLUE,
    SMALL_FONT,
    SMALL_PT,
    TICK_PT,
    ZERO,
    series_style,
    shorten,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYOUT = PageLayout(
    columns=3,
    rows=4,
    row_in=2.1,
    left_in=0.7,
    above_in=0.65,
    heights=(2.6, 1.0),
)
WINS_LIMITS = (-0.08, 1.08)


@figure_of_report(
    "differences",
    "certainty",
    "Encoders and baselines, compared pair by pair over the same draws",
)
def plan_differences(results: CorpusResults, *_: Any) -> Pages:
    """Yield the pairs of encoders, or of an encoder and a baseline, twelve to a page."""
    rows = results.evaluation.differences.filter(metric="map", scoring="all")
    by_k = rows.sort("k", maintain_order=True)
    pairs = by_k.partition_by("one", "other")
    limits = axis_limits(rows.select("p01", "p99"), [0.0], low=-1.04, high=1.04)
    yield from LAYOUT.plan_pages(
        "differences",
        pairs,
        _draw_pair,
        (limits, WINS_LIMITS),
        spread_legend(unique_values(rows, "spread")),
        ("difference\nof mAP", "share\nof wins"),
        "",
        _name_pairs,
    )


def _name_pairs(stacks: AxesArray, pairs: Frames, width_in: float) -> None:
    room_pt = width_in * 72 - 14
    for (ax, _), pair in zip(stacks, pairs, strict=True):
        one = wrap(pair["one"][0], room_pt, BOLD_TICK_FONT)
        other = wrap(pair["other"][0], room_pt - 20, BOLD_TICK_FONT)
        ax.set_title(f"{one}\nless {other}", fontsize=TICK_PT)


def _draw_pair(pair: Frame, upper: "Axes", lower: "Axes") -> None:
    for curve in reversed(pair.partition_by("spread")):
        spread = curve["spread"][0]
        draw_curve(upper, curve, spread, 0.8)
        draw_line(lower, curve["wins"], LINE[spread])
    upper.axhline(0.0, **ZERO)
    lower.axhline(0.5, **{**ZERO, "linewidth": 0.5})
    lower.set_yticks([0, 0.5, 1], ["0", "½", "1"])


TRANSFER = PageLayout(columns=2, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


def draw_transfer(result: TransferEvaluation, path_stem: Path) -> list[Path]:
    """Draw mAP against k for every encoder, and write it as PDF and PNG."""
    spread = preferred_spread(result.spreads)
    panels = []
    for encoder in result.encoders:
        # All have the shots of the transfer; a curve is null at a k that it does not have.
        curves = result.list_curves(encoder)
        shots = next(iter(curves.values())).select("k").unique().sort("k")
        parts = []
        for name, curve in curves.items():
            rows = curve.filter(metric="map", scoring="all", spread=spread)
            aligned = shots.join(rows, on="k", how="left", maintain_order="left")
            names = {"curve": pl.lit(name), "encoder": pl.lit(encoder)}
            parts.append(aligned.with_columns(**names))
        panels.append(pl.concat(parts))
    rows = pl.concat(panels)
    limits = axis_limits(rows.select("p01", "p99", "chance").drop_nulls())
    legend = list_series(unique_values(rows, "curve")) | {"chance": CHANCE}
    drawing = (TRANSFER, _draw_transfer, [limits], legend, [""], f"mAP ({spread})")
    page = FigurePage(path_stem.name, compose_panels, (panels, *drawing))
    return draw_page(page, path_stem.parent)


def _draw_transfer(panel: Frame, ax: "Axes") -> None:
    curves = panel.partition_by("curve", maintain_order=True)
    for number, curve in enumerate(curves):
        draw_series(ax, number, curve)
    first = curves[0]
    ax.axhline(first["chance"][0], **CHANCE)
    mark_last_complete(ax, first["complete"])


SENSITIVITY = PageLayout(columns=3, rows=4, row_in=2.0, left_in=0.6, above_in=0.5)


@figure_of_report(
    "sensitivity",
    "certainty",
    "Where the spread of mAP comes from: folds, labelled examples, queries, and their "
    "interactions",
)
def plan_sensitivity(results: CorpusResults, *_: Any) -> Pages:
    """Yield the sources of every encoder's spread, if they were measured."""
    sources = results.evaluation.sensitivity.sort("k", maintain_order=True)
    highest = max(sources["sd"], default=0.0)
    yield from SENSITIVITY.plan_pages(
        "sensitivity",
        sources.partition_by("encoder"),
        _draw_sources,
        [(0.0, 1.05 * highest or 1.0)],
        list_lines(unique_values(sources, "source")),
        ["standard deviation of mAP"],
    )


def _draw_sources(panel: Frame, ax: "Axes") -> None:
    for number, line in enumerate(panel.partition_by("source")):
        draw_line(ax, line["sd"], series_style(number))


TRAINING = PageLayout(
    columns=3,
    rows=3,
    row_in=2.65,
    left_in=0.7,
    above_in=0.9,
    heights=(2.2, 1.0),
    margin_in=0.5,
)
ALPHA = 0.7
CROSSOVER_KEY = ("corpus", "encoder", "baseline", "scoring", "metric", "spread")


@figure_of_report(
    "training",
    "training",
    "When training pays: the centroid and a baseline trained on the same exemplars",
)
def plan_training(results: CorpusResults, *_: Any) -> Pages:
    """Yield a panel for every encoder with a baseline trained at every k, nine to a page."""
    panels = []
    crossovers = results.evaluation.crossovers.filter(labels="k")
    for trained, centroid in paired_values(results):
        if not is_trained(trained["classifier"][0]):
            continue
        k, trained_samples, samples = align_draws(trained, centroid)
        of_curves = {
            "centroid": samples,
            "trained": trained_samples,
            "difference": trained_samples - samples,
        }
        curves = [
            pl.DataFrame({"curve": name, "k": k, **summarise_samples(values)})
            for name, values in of_curves.items()
        ]
        key = trained.rename({"classifier": "baseline"}).head(1).select(CROSSOVER_KEY)
        passed = key.join(crossovers, on=CROSSOVER_KEY, how="left")
        names = passed.select(*CROSSOVER_KEY, *CROSSOVER)
        panels.append(pl.concat(curves).join(names, how="cross"))
    if not panels:
        return
    rows = pl.concat(panels)
    is_difference = pl.col("curve") == "difference"
    ends = pl.col("p01", "p99")
    baselines = drawable_baselines(results.baselines, rows)
    limits = axis_limits(rows.filter(~is_difference).select(ends), baselines["value"])
    difference_limits = axis_limits(
        rows.filter(is_difference).select(ends), [0.0], low=-1.04, high=1.04
    )
    classifiers = " or ".join(map(classifier_name, unique_values(rows, "baseline")))
    legend = {
        f"centroid: {INTERVAL}": curve_styles("centroid"),
        f"{classifiers}, on the same draws": curve_styles("trained"),
        "mean difference above 0 from here on": CROSSOVER["k_mean"],
        "98 % interval above 0 from here on": CROSSOVER["k_clear"],
    }
    yield from TRAINING.plan_pages(
        "training",
        panels,
        _draw_training,
        (limits, difference_limits),
        legend | baseline_legend(baselines),
        ("mAP", "difference"),
        "",
        _name_training,
        [baselines],
    )


def _draw_training(
    panel: Frame, upper: "Axes", lower: "Axes", baselines: Frame
) -> None:
    draw_baselines(upper, drawable_baselines(baselines, panel))
    centroid, trained, difference = panel.partition_by("curve")
    draw_curve(upper, trained, "trained", ALPHA)
    draw_curve(upper, centroid, "centroid", ALPHA)
    draw_curve(lower, difference, "trained", ALPHA)
    lower.axhline(0.0, **ZERO)
    lower.tick_params(labelbottom=True)  # the shots of encoders may differ
    shots = unique_values(panel, "k")
    for kind, style in CROSSOVER.items():
        if panel[kind][0] in shots:
            upper.axvline(shots.index(panel[kind][0]), **style)
            lower.axvline(shots.index(panel[kind][0]), **style)


def _name_training(stacks: AxesArray, panels: Frames, width_in: float) -> None:
    room_in = width_in - TRAINING.margin_in
    set_titles(stacks[:, 0], [panel["encoder"][0] for panel in panels], room_in)
    for (_, lower), panel in zip(stacks, panels, strict=True):
        k_mean, k_clear = panel.select("k_mean", "k_clear").row(0)
        ahead = f"is ahead from k = {k_mean}"
        if k_mean is None:
            ahead = "is not ahead at the last k"
        name = classifier_name(panel["baseline"][0])
        title = wrap(f"{name} {ahead}", room_in * 72, SMALL_FONT)
        if k_clear is not None:
            clear = f"98 % interval above 0 from k = {k_clear}"
            title += "\n" + shorten(clear, room_in * 72, SMALL_FONT)
        lower.set_title(title, fontsize=SMALL_PT, fontweight="normal", pad=3)


CLASSIFIERS = PageLayout(columns=3, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


@figure_of_report(
    "classifiers",
    "training",
    "The centroid and other classifiers without training, against k",
)
def plan_classifiers(results: CorpusResults, *_: Any) -> Pages:
    """Yield the mean of every classifier for each encoder, nine to a page, if there are several."""
    spread = common_spread(results)
    all_curves = join_classifiers(results).curve
    curves = all_curves.filter(scoring="all", metric="map", spread=spread)
    rows = curves.sort("k", maintain_order=True)
    evaluated = rows["classifier"]
    classifiers = [name for name in list_classifiers(results) if name in evaluated]
    if len(classifiers) == 1:
        return
    reference = rows.filter(classifier=classifiers[0])
    band = f"{classifier_name(classifiers[0])}: 1st–99th percentile"
    legend = list_lines(map(classifier_name, classifiers))
    legend[band] = {"facecolor": PALE_BLUE, "edgecolor": "none"}
    yield from CLASSIFIERS.plan_pages(
        "classifiers",
        rows.partition_by("encoder"),
        _draw_classifiers,
        [axis_limits(rows["mean"], reference.select("p01", "p99", "chance"))],
        legend | {"chance": CHANCE},
        [""],
        f"mAP ({spread})",
        write_encoders,
        [classifiers],
    )


def _draw_classifiers(panel: Frame, ax: "Axes", classifiers: Sequence[str]) -> None:
    reference = panel.filter(classifier=classifiers[0])
    draw_band(ax, reference, PALE_BLUE)
    ax.axhline(reference["chance"][0], **CHANCE)
    shots = reference.select("k")
    for number, name in enumerate(classifiers):
        curve = panel.filter(classifier=name)
        aligned = shots.join(curve, on="k", how="left", maintain_order="left")
        width = 0.9 if number else 1.4
        draw_line(ax, aligned["mean"], {**series_style(number), "linewidth": width})
    mark_last_complete(ax, reference["complete"])


@figure_of_report(
    "refinement",
    "training",
    "Gradient steps from the centroid of all labels to logistic regression",
)
def plan_refinement(results: CorpusResults, *_: Any) -> Pages:
    """Yield mAP and AUROC side by side, if centroids were refined."""
    steps = results.refinement.filter(scoring="all").sort("step", maintain_order=True)
    panels = steps.partition_by("metric")
    if panels:
        yield FigurePage("refinement", _compose_refinement, (panels,))


def _compose_refinement(figure: "Figure", panels: Frames) -> None:
    encoders = unique_values(panels[0], "encoder")
    legend_in = 0.13 * min(len(encoders), 30)
    figure.set_size_inches(PAGE_WIDTH_IN, 2.6 + legend_in)
    axes = figure.subplots(1, len(panels), squeeze=False)
    small = {"fontsize": SMALL_PT, "fontweight": "normal", "color": GREY}
    for ax, panel in zip(axes[0], panels, strict=True):
        for number, line in enumerate(panel.partition_by("encoder")):
            ax.plot(line["step"], line["value"], **series_style(number))
        ax.set_xscale("symlog", linthresh=1)
        ax.xaxis.set_major_formatter(lambda step, _: f"{step:,.0f}".replace(",", " "))
        ax.set_xlim(-0.2, 1.6 * panel["step"][-1])
        ax.set_ylim(axis_limits(panel["value"]))
        ax.set_ylabel(METRIC_NAMES[panel["metric"][0]])
        ax.set_title("centroid", loc="left", **small)
        ax.set_title("logistic regression", loc="right", **small)
    add_legend(figure, list_lines(encoders), "gradient steps")
