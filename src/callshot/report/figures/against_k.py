"""Figures against k: sweeps, classes, spreads, differences, and when training pays.

Training is a trained baseline beside the centroid, and gradient steps between them."""

from collections.abc import Iterable, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from callshot.errors import count_text, printable
from callshot.fewshot.differences import align_draws
from callshot.records import (
    METRIC_NAMES,
    SPREADS,
    CorpusResults,
    Evaluation,
    FloatArray,
    TransferEvaluation,
)
from callshot.records.frames import (
    BASELINES,
    CURVE_KEY,
    Frame,
    empty_frame,
    summarise_samples,
    unique_values,
)
from callshot.records.terms import preferred_spread
from callshot.report.choices import (
    SPREAD_NOTES,
    classifier_name,
    common_spread,
    is_trained,
    join_classifiers,
    list_classifiers,
    paired_values,
)
from callshot.report.figures.figure_io import (
    ON_CHART,
    FigurePage,
    Pages,
    draw_page,
    figure_of_report,
)
from callshot.report.figures.layout import (
    BASELINE,
    BLUE,
    BOLD_SMALL_FONT,
    BOLD_TICK_FONT,
    BOX,
    CHANCE,
    CROSSOVER,
    GREY,
    INTERVAL,
    LAST_COMPLETE,
    LINE,
    MEAN,
    MEDIAN,
    PAGE_WIDTH_IN,
    PALE_BLUE,
    SILVER,
    SMALL_FONT,
    SMALL_PT,
    TICK_PT,
    VIOLIN,
    WHISKER,
    ZERO,
    AxesArray,
    Frames,
    Legend,
    Limits,
    PageLayout,
    Style,
    add_legend,
    add_panels,
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
    series_style,
    set_scales,
    set_titles,
    shorten,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

KINDS = {
    "logistic": "logistic regression on all labels",
    "recurrent": "recurrent network on all labels",
    "end-to-end": "end-to-end network on all labels",
}


def drawable_baselines(baselines: Frame, curves: Frame) -> Frame:
    """Return the baselines that may be drawn beside curves, from rows of the BASELINES schema.

    They have a finite value, the same corpus, scoring and metric as a curve, and read the encoder
    of a curve, or audio.
    """
    encoders = ["", *curves["encoder"]]  # baselines that read audio have no encoder
    is_finite = pl.col("value").is_finite()
    finite = baselines.filter(is_finite, pl.col("encoder").is_in(encoders))
    task = ["corpus", "scoring", "metric"]
    return finite.join(curves, on=task, how="semi", maintain_order="left")


def draw_baselines(ax: "Axes", baselines: Frame) -> None:
    """Draw a horizontal line for each baseline, with its name where several are of one kind."""
    kinds = baselines["kind"].to_list()
    for kind, name, value in baselines.select("kind", "name", "value").iter_rows():
        style = BASELINE[kind]
        ax.axhline(value, zorder=2.7, **style)
        if kinds.count(kind) > 1:
            ax.annotate(
                printable(name),
                xy=(1, value),
                xycoords=("axes fraction", "data"),
                xytext=(-2, 2),
                textcoords="offset points",
                ha="right",
                color=style["color"],
                fontsize=SMALL_PT,
            )


def baseline_legend(baselines: Frame) -> Legend:
    """Return a legend entry for each kind of baseline, with the names of its baselines."""
    legend = {}
    for kind, text in KINDS.items():
        names = unique_values(baselines.filter(kind=kind), "name")
        if names:
            legend[f"{', '.join(names)}: {text}"] = BASELINE[kind]
    return legend


NO_BASELINES = empty_frame(BASELINES)
BOX_HANDLE: Style = {
    "color": BOX["facecolor"],
    "linestyle": "none",
    "marker": "s",
    "markersize": 6,
    "markeredgecolor": BLUE,
    "markeredgewidth": 0.6,
}
WHISKER_HANDLE: Style = {
    "color": BLUE,
    "linestyle": "none",
    "marker": "|",
    "markersize": 11,
    "markeredgewidth": 0.7,
}


def select_curves(
    evaluation: Evaluation, scoring: str = "all"
) -> tuple[Frames, Frames]:
    """Return the curves of mAP that are drawn as boxes, and those drawn as bands behind them.

    Each is a list with a frame for every encoder, sorted by k. Boxes show the spread per-query
    where it was evaluated, bands the spread of the summary. If both are the same, there are no
    bands.
    """
    rows = evaluation.curve.filter(scoring=scoring, metric="map")
    by_k = rows.sort("k", maintain_order=True)
    spread = min(rows["spread"], key=SPREADS.index)
    band_spread = preferred_spread(rows["spread"])
    curves = by_k.filter(spread=spread).partition_by("encoder")
    if spread == band_spread:
        return curves, []
    return curves, by_k.filter(spread=band_spread).partition_by("encoder")


def curve_limits(curves: Iterable[Frame], baselines: Frame) -> Limits:
    """Return the ends of a vertical axis that shows all intervals, baselines and chance."""
    intervals = [curve.select("p01", "p99", "chance") for curve in curves]
    return axis_limits(*intervals, baselines["value"])


def draw_boxes(ax: "Axes", curve: Frame, baselines: Frame, half_width: float) -> None:
    """Draw a box with whiskers at every k of a curve, chance, and the baselines that fit it.

    A box is twice `half_width` wide; neighbouring shots are 1 apart.
    """
    x = np.arange(len(curve))
    ax.axhline(curve["chance"][0], **CHANCE)
    draw_baselines(ax, drawable_baselines(baselines, curve))
    ax.vlines(x, curve["p01"], curve["p99"], **WHISKER)
    ax.bar(
        x,
        height=curve["p75"] - curve["p25"],
        width=2 * half_width,
        bottom=curve["p25"],
        **BOX,
    )
    ax.hlines(curve["p50"], x - half_width, x + half_width, **MEDIAN)
    marker_size = np.clip(68 / len(curve), 1.7, 4.0)  # in points; many are small
    ax.plot(x, curve["mean"], markersize=marker_size, **MEAN)


def box_legend(curve: Frame, bands: Frames, baselines: Frame) -> Legend:
    """Return the legend of boxes, of the bands behind them if there are any, and of baselines."""
    boxes = f"{curve['spread'][0]}: mean, quartiles, 1st–99th percentile"
    legend: Legend = {boxes: (WHISKER_HANDLE, BOX_HANDLE, MEAN)}
    if bands:
        legend[f"{bands[0]['spread'][0]}: {INTERVAL}"] = curve_styles("background")
    return legend | {"chance": CHANCE} | baseline_legend(baselines)


FEW_SHOTS = 7
DENSITY_LEVELS = 101
INSET = PageLayout(columns=3, rows=4, row_in=1.9, left_in=0.6, above_in=0.75)


def draw_sweep(evaluation: Evaluation, path_stem: Path) -> list[Path]:
    """Draw mAP against k for every encoder, and write it as PDF and PNG.

    `path_stem` is the path of both files, without suffix. Equal evaluations give equal bytes.
    """
    return draw_page(sweep_page(evaluation, path_stem.name), path_stem.parent)


def sweep_page(
    evaluation: Evaluation,
    stem: str,
    scoring: str = "all",
    baselines: Frame = NO_BASELINES,
) -> FigurePage:
    """Return the page of a sweep: mAP against k, with baselines of the same corpus and scoring."""
    curves, bands = select_curves(evaluation, scoring)
    shown = drawable_baselines(baselines, pl.concat(curves))
    arguments = (curves, bands, shown, evaluation.complete_shots)
    return FigurePage(stem, _compose_sweep, arguments)


@figure_of_report(
    "sweep",
    ON_CHART,
    "mAP against k, exemplars per class",
)
def plan_sweep(results: CorpusResults, *_: Any) -> Pages:
    """Yield the sweep of all classes."""
    yield sweep_page(results.evaluation, "sweep", "all", results.baselines)


@figure_of_report("reduced", ON_CHART, "mAP over categories against k")
def plan_reduced(results: CorpusResults, *_: Any) -> Pages:
    """Yield the sweep of reduced scoring, if there is one."""
    if "reduced" in results.evaluation.curve["scoring"]:
        yield sweep_page(results.evaluation, "reduced", "reduced", results.baselines)


@figure_of_report(
    "inset",
    ON_CHART,
    "The curves at few examples, up to k = 7",
)
def plan_inset(results: CorpusResults, *_: Any) -> Pages:
    """Yield boxes with the density of their samples at few shots, if there are at least two."""
    curves = select_curves(results.evaluation)[0]
    few_shots = []
    for curve in curves:  # with the samples of each k in the column `value`
        few = curve.filter(pl.col("k") <= FEW_SHOTS).join(
            results.evaluation.values,
            on=[*CURVE_KEY, "k"],
            how="left",
            maintain_order="left",
        )
        few_shots.append(few)
    if len(few_shots[0]) < 2:
        return
    baselines = drawable_baselines(results.baselines, pl.concat(curves))
    legend = box_legend(curves[0], (), baselines)
    legend["density of the samples"] = VIOLIN
    limits = curve_limits(few_shots, baselines)
    yield from INSET.plan_pages(
        "inset",
        few_shots,
        _draw_inset,
        limits=[limits],
        legend=legend,
        labels=["mAP"],
        options=[baselines],
    )


def density(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Estimate the density of samples, (samples,), by a Gaussian kernel of Scott's width.

    Return levels from the 1st to the 99th percentile, and the density at each level; two empty
    arrays for samples without spread.
    """
    low, high = np.percentile(samples, (1, 99))
    width = samples.std() * len(samples) ** -0.2
    if not (high > low and width > 0):
        return np.empty(0), np.empty(0)
    levels = np.linspace(low, high, DENSITY_LEVELS)
    distance = (levels[:, None] - samples) / width  # (levels, samples)
    kernel = np.exp(-0.5 * distance**2)
    area = width * np.sqrt(2 * np.pi)  # below the kernel
    return levels, kernel.mean(axis=1) / area


def _compose_sweep(
    figure: "Figure",
    curves: Frames,
    bands: Frames,
    baselines: Frame,
    complete_shots: int,
) -> None:
    """Draw a panel for each encoder, in two columns from four on; below, the new exemplars.

    `curves` and `bands` are as `select_curves` returns them.
    """
    columns = 2 if len(curves) > 3 else 1
    rows = ceil(len(curves) / columns)
    height_in = 1.2 + 1.65 * rows  # title and legend, and panels
    figure.set_size_inches(PAGE_WIDTH_IN, height_in)
    first = curves[0]
    metric = "mAP\nof categories" if first["scoring"][0] == "reduced" else "mAP"
    labels = [metric] * rows + ["new\nexemplars"]
    heights = [1.0] * rows + [0.36]
    # (columns, rows + 1)
    stacks = add_panels(figure, columns, columns, labels, heights)
    upper = stacks[:, :-1].T.ravel()  # row by row, without the new exemplars
    axes = upper[: len(curves)]
    for ax in upper[len(curves) :]:
        ax.set_visible(False)
    room_in = 5.8 / columns  # of a panel
    half_width = min(0.31, 0.025 * len(first) + 0.015)  # boxes of few are not broad
    for ax, band in zip(axes, bands, strict=False):
        draw_curve(ax, band, "background", alpha=1.0)
    for ax, curve in zip(axes, curves, strict=True):
        draw_boxes(ax, curve, baselines, half_width)
        mark_last_complete(ax, curve["complete"])
    limits = curve_limits([*curves, *bands], baselines)
    set_scales(axes, first["k"].to_list(), room_in, limits)
    set_titles(axes, unique_values(pl.concat(curves), "encoder"), room_in)
    _draw_new_exemplars(stacks[:, -1], first, complete_shots, room_in, half_width)
    add_legend(figure, box_legend(first, bands, baselines))


def _draw_new_exemplars(
    axes: AxesArray,
    curve: Frame,
    complete_shots: int,
    room_in: float,
    half_width: float,
) -> None:
    """Draw how many classes still have a k-th exemplar, and mark k*, below each column of panels.

    `curve` is that of any encoder; `room_in` is the width of the panels.
    """
    complete = curve["complete"]
    exemplars = curve["new_exemplars"]
    colours = np.where(complete, GREY, SILVER)
    most = max(*exemplars, 1)
    for ax in axes:
        mark_last_complete(ax, complete)
        ax.bar(range(len(curve)), exemplars, width=2 * half_width, color=colours)
        ax.annotate(
            f"k* = {complete_shots}",
            xy=(sum(complete) - 0.5, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
        )
        ax.set_yticks([0, most])
    set_scales(axes, curve["k"].to_list(), room_in, (0.0, most))


def _draw_inset(curve: Frame, ax: "Axes", baselines: Frame) -> None:
    """Draw the panel of one encoder: at each k a violin of the samples, and a box on top."""
    for x, samples in enumerate(curve["value"]):
        levels, height = density(samples.to_numpy())
        highest = height.max(initial=1e-300)  # not 0, also without levels
        half_width = 0.42 * height / highest
        ax.fill_betweenx(levels, x - half_width, x + half_width, **VIOLIN)
    draw_boxes(ax, curve, baselines, half_width=0.09)


CLASSES = PageLayout(columns=5, rows=6, row_in=1.35, left_in=0.6, above_in=0.7)


@figure_of_report(
    "classes",
    ON_CHART,
    "The curve of every class",
)
def plan_classes(results: CorpusResults, *_: Any) -> Pages:
    """Yield the AP of all eligible classes, thirty to a page, those with most exemplars first."""
    per_class = results.evaluation.per_class
    spread = per_class["spread"][0]
    rows = per_class.filter(metric="map", scoring="all", spread=spread)
    rows = rows.sort("k", maintain_order=True)
    panels = []
    for count in results.evaluation.eligible_classes:
        panel = rows.filter(label=count.label).with_columns(
            exemplars=pl.lit(count.exemplars),
            complete=pl.col("k") <= count.complete_to_k,
        )
        panels.append(panel)
    legend = list_series(unique_values(rows, "encoder"))
    if not all(panel["complete"].all() for panel in panels):
        legend["last k at which the class is complete"] = LAST_COMPLETE
    yield from CLASSES.plan_pages(
        "classes",
        panels,
        _draw_class,
        limits=[axis_limits(rows.select("p01", "p99"))],
        legend=legend,
        y_label=f"AP ({spread})",
        write_titles=_name_classes,
    )


def _name_classes(stacks: AxesArray, panels: Frames, width_in: float) -> None:
    """Write the name of the class and its number of exemplars above each panel."""
    for (ax,), panel in zip(stacks, panels, strict=True):
        name = wrap(panel["label"][0], width_in * 72 - 16, BOLD_SMALL_FONT)
        exemplars = count_text(panel["exemplars"][0], "exemplar")
        ax.set_title(f"{name}\n{exemplars}", fontsize=SMALL_PT, pad=2)


def _draw_class(panel: Frame, ax: "Axes") -> None:
    """Draw the curve of every encoder for one class, and mark the last complete k."""
    for number, curve in enumerate(panel.partition_by("encoder")):
        draw_series(ax, number, curve)
    mark_last_complete(ax, curve["complete"])  # the same for all encoders


SPREADS_LAYOUT = PageLayout(
    columns=4,
    rows=1,
    row_in=2.9,
    left_in=0.6,
    above_in=0.6,
    heights=(1.7, 1.0),
)


SPREAD_ALPHA = 0.85


@figure_of_report(
    "spreads",
    "certainty",
    "The three spreads: the paper's, the variation from the choice of labelled examples, and what "
    "one labelled set would score on other recordings",
)
def plan_spreads(results: CorpusResults, *_: Any) -> Pages:
    """Yield a column for every encoder, four to a page, if several spreads were evaluated."""
    curve = results.evaluation.curve.filter(scoring="all", metric="map")
    spreads = unique_values(curve, "spread")
    if len(spreads) == 1:
        return
    by_k = curve.sort("k", maintain_order=True)
    widths = curve["p99"] - curve["p01"]
    widest = axis_limits(widths, [0.0], high=2.0)[1]  # the axis begins at 0
    notes = {f"{spread}: {SPREAD_NOTES[spread]}": spread for spread in spreads}
    legend: Legend = {note: curve_styles(notes[note]) for note in notes}
    yield from SPREADS_LAYOUT.plan_pages(
        "spreads",
        by_k.partition_by("encoder"),
        _draw_spreads,
        limits=(axis_limits(curve.select("p01", "p99", "chance")), (0.0, widest)),
        legend=legend | {"chance": CHANCE},
        labels=("mAP: mean,\n1st–99th percentile", "99th minus 1st\npercentile"),
    )


def _draw_spreads(panel: Frame, upper: "Axes", lower: "Axes") -> None:
    """Draw the curves of one encoder in every spread; below, how wide their intervals are."""
    upper.axhline(panel["chance"][0], **CHANCE)
    for spread in reversed(SPREADS):
        curve = panel.filter(spread=spread)
        if not curve.is_empty():
            draw_curve(upper, curve, spread, SPREAD_ALPHA)
            draw_line(lower, curve["p99"] - curve["p01"], LINE[spread])


LAYOUT = PageLayout(
    columns=3,
    rows=4,
    row_in=2.1,
    left_in=0.7,
    above_in=0.65,
    heights=(2.6, 1.0),
)
WINS_LIMITS = (-0.08, 1.08)
# The ends of an axis of differences of mAP, which are from -1 to 1.
DIFFERENCE_ENDS = {"low": -1.04, "high": 1.04}


@figure_of_report(
    "differences",
    ON_CHART,
    "Encoders and baselines, compared pair by pair over the same draws",
)
def plan_differences(results: CorpusResults, *_: Any) -> Pages:
    """Yield the pairs of encoders, or of an encoder and a baseline, twelve to a page."""
    differences = results.evaluation.differences
    # Not the differences of means over labelled sets, which are no spread of a curve.
    rows = differences.filter(interval="one-set", metric="map", scoring="all")
    by_k = rows.sort("k", maintain_order=True)
    pairs = by_k.partition_by("one", "other")
    limits = axis_limits(rows.select("p01", "p99"), [0.0], **DIFFERENCE_ENDS)
    spreads = unique_values(rows, "spread")
    legend = {f"{spread}: {INTERVAL}": curve_styles(spread) for spread in spreads}
    yield from LAYOUT.plan_pages(
        "differences",
        pairs,
        _draw_pair,
        limits=(limits, WINS_LIMITS),
        legend=legend,
        labels=("difference\nof mAP", "share\nof wins"),
        write_titles=_name_pairs,
    )


def _name_pairs(stacks: AxesArray, pairs: Frames, width_in: float) -> None:
    """Write which two encoders or baselines are compared above each panel."""
    room_pt = width_in * 72 - 14
    less_pt = 20  # of the word before the second name
    for (ax, _), pair in zip(stacks, pairs, strict=True):
        one = wrap(pair["one"][0], room_pt, BOLD_TICK_FONT)
        other = wrap(pair["other"][0], room_pt - less_pt, BOLD_TICK_FONT)
        ax.set_title(f"{one}\nless {other}", fontsize=TICK_PT)


def _draw_pair(pair: Frame, upper: "Axes", lower: "Axes") -> None:
    """Draw the difference of two encoders in every spread; below, the share of wins."""
    for curve in reversed(pair.partition_by("spread")):  # the first on top
        spread = curve["spread"][0]
        draw_curve(upper, curve, spread, alpha=0.8)
        draw_line(lower, curve["wins"], LINE[spread])
    upper.axhline(0.0, **ZERO)
    lower.axhline(0.5, **{**ZERO, "linewidth": 0.5})
    lower.set_yticks([0, 0.5, 1], ["0", "½", "1"])


TRANSFER = PageLayout(columns=2, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


def draw_transfer(result: TransferEvaluation, path_stem: Path) -> list[Path]:
    """Draw the curves of a transfer for every encoder, and write them as PDF and PNG.

    `path_stem` is the path of both files, without suffix.
    """
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
    """Draw the transfer of one encoder, and the curves within both corpora.

    Chance and the last complete k are those of the transfer, the first curve.
    """
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
        limits=[(0.0, 1.05 * highest or 1.0)],
        legend=list_lines(unique_values(sources, "source")),
        labels=["standard deviation of mAP"],
    )


def _draw_sources(panel: Frame, ax: "Axes") -> None:
    """Draw the standard deviation that each source gives the mAP of one encoder."""
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
        if is_trained(trained["classifier"][0]):
            panels.append(_make_training_panel(trained, centroid, crossovers))
    if not panels:
        return
    rows = pl.concat(panels)
    is_difference = pl.col("curve") == "difference"
    ends = pl.col("p01", "p99")
    baselines = drawable_baselines(results.baselines, rows)
    limits = axis_limits(rows.filter(~is_difference).select(ends), baselines["value"])
    difference_limits = axis_limits(
        rows.filter(is_difference).select(ends), [0.0], **DIFFERENCE_ENDS
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
        limits=(limits, difference_limits),
        legend=legend | baseline_legend(baselines),
        labels=("mAP", "difference"),
        write_titles=_name_training,
        options=[baselines],
    )


def _make_training_panel(trained: Frame, centroid: Frame, crossovers: Frame) -> Frame:
    """Return the curves `centroid`, `trained` and `difference`, over the draws that both have.

    `trained` and `centroid` are rows of VALUES with the same encoder. All rows of the panel repeat
    the crossover of the two, found in `crossovers`; it is null where there is none.
    """
    k, trained_samples, centroid_samples = align_draws(trained, centroid)
    samples_by_curve = {
        "centroid": centroid_samples,
        "trained": trained_samples,
        "difference": trained_samples - centroid_samples,
    }
    curves = [
        pl.DataFrame({"curve": name, "k": k, **summarise_samples(samples)})
        for name, samples in samples_by_curve.items()
    ]
    key = trained.rename({"classifier": "baseline"}).head(1).select(CROSSOVER_KEY)
    crossover = key.join(crossovers, on=CROSSOVER_KEY, how="left")
    facts = crossover.select(*CROSSOVER_KEY, *CROSSOVER)  # one row
    return pl.concat(curves).join(facts, how="cross")


def _draw_training(
    panel: Frame, upper: "Axes", lower: "Axes", baselines: Frame
) -> None:
    """Draw the centroid and a trained classifier; below, their difference; mark crossovers.

    A panel has the curves `centroid`, `trained` and `difference`, in this order.
    """
    draw_baselines(upper, drawable_baselines(baselines, panel))
    centroid, trained, difference = panel.partition_by("curve")
    draw_curve(upper, trained, "trained", ALPHA)
    draw_curve(upper, centroid, "centroid", ALPHA)
    draw_curve(lower, difference, "trained", ALPHA)
    lower.axhline(0.0, **ZERO)
    lower.tick_params(labelbottom=True)  # the shots of encoders may differ
    shots = unique_values(panel, "k")
    for kind, style in CROSSOVER.items():
        if panel[kind][0] in shots:  # null is not
            upper.axvline(shots.index(panel[kind][0]), **style)
            lower.axvline(shots.index(panel[kind][0]), **style)


def _name_training(stacks: AxesArray, panels: Frames, width_in: float) -> None:
    """Write the encoder above each panel, and below it from which k on training is ahead.

    `k_mean` is where the mean difference goes above 0 for good, `k_clear` where its 98 % interval
    does; None if there is no such k.
    """
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
    ON_CHART,
    "The centroid and other classifiers without training, against k",
)
def plan_classifiers(results: CorpusResults, *_: Any) -> Pages:
    """Yield pages of nine encoders with a curve for each classifier; none for one classifier."""
    spread = common_spread(results)
    all_curves = join_classifiers(results).curve
    curves = all_curves.filter(scoring="all", metric="map", spread=spread)
    rows = curves.sort("k", maintain_order=True)
    evaluated = rows["classifier"]
    classifiers = [name for name in list_classifiers(results) if name in evaluated]
    if len(classifiers) < 2:
        return
    reference = rows.filter(classifier=classifiers[0])
    band = f"{classifier_name(classifiers[0])}: 1st–99th percentile"
    legend = list_lines(map(classifier_name, classifiers))
    legend[band] = {"facecolor": PALE_BLUE, "edgecolor": "none"}
    yield from CLASSIFIERS.plan_pages(
        "classifiers",
        rows.partition_by("encoder"),
        _draw_classifiers,
        limits=[axis_limits(rows["mean"], reference.select("p01", "p99", "chance"))],
        legend=legend | {"chance": CHANCE},
        y_label=f"mAP ({spread})",
        options=[classifiers],
    )


def _draw_classifiers(panel: Frame, ax: "Axes", classifiers: Sequence[str]) -> None:
    """Draw the mean of every classifier on one encoder; the first, the reference, has a band."""
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
    """Draw a panel for each metric, with a line for each encoder against gradient steps."""
    encoders = unique_values(panels[0], "encoder")
    legend_in = 0.13 * min(len(encoders), 30)  # the height of its lines
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
        # The x-axis runs from one to the other.
        ax.set_title("centroid", loc="left", **small)
        ax.set_title("logistic regression", loc="right", **small)
    add_legend(figure, list_lines(encoders), "gradient steps")
