"""Curves against k: the sweep and its inset with boxes, classes, classifiers, and spreads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from callshot.errors import count_text, printable
from callshot.fewshot.differences import matching_baselines
from callshot.records import SPREADS, CorpusResults, Evaluation, FloatArray
from callshot.records.frames import (
    BASELINES,
    CURVE_KEY,
    Frame,
    empty_frame,
    unique_values,
)
from callshot.records.terms import preferred_spread
from callshot.report.choices import SPREAD_NOTES
from callshot.report.figures.figure_io import (
    FigurePage,
    Pages,
    draw_page,
    figure_of_report,
    make_pages,
)
from callshot.report.figures.layout import (
    INTERVAL,
    AxesArray,
    Frames,
    Legend,
    Limits,
    PageLayout,
    add_legend,
    add_panels,
    area_handle,
    axis_limits,
    curve_handle,
    draw_curve,
    draw_line,
    draw_series,
    line_handle,
    list_series,
    mark_last_complete,
    set_scales,
    set_titles,
)
from callshot.report.figures.style import (
    BASELINE,
    BLUE,
    BOLD_SMALL_FONT,
    BOX,
    CHANCE,
    GREY,
    LAST_COMPLETE,
    LINE,
    MEAN,
    MEDIAN,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_PT,
    VIOLIN,
    WHISKER,
    Style,
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


def drawable_baselines(baselines: Frame, curve: Frame) -> Frame:
    """Return the baselines that a curve is compared with and that have a value."""
    return matching_baselines(baselines, curve).filter(pl.col("value").is_finite())


def draw_baselines(ax: "Axes", baselines: Frame) -> None:
    """Draw a line for each baseline, with its name where two are of the same kind."""
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


def baseline_legend(baselines: Iterable[Frame]) -> Legend:
    """Return a legend entry for each kind of baseline in some panel, with their names."""
    rows = pl.concat(baselines)
    legend = {}
    for kind, text in KINDS.items():
        names = unique_values(rows.filter(kind=kind), "name")
        if names:
            legend[f"{', '.join(names)}: {text}"] = line_handle(BASELINE[kind])
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


@dataclass(frozen=True)
class Panel:
    """The curves of one encoder, by k: one spread as boxes, another as a band behind them.

    `band` is empty if there is no other spread.
    """

    encoder: str
    curve: Frame
    band: Frame
    baselines: Frame

    @property
    def curves(self) -> list[Frame]:
        """Both spreads."""
        return [self.curve, self.band]


Panels = Sequence[Panel]


def make_panels(
    evaluation: Evaluation,
    scoring: str = "all",
    baselines: Frame = NO_BASELINES,
) -> list[Panel]:
    """Return a panel of mAP for every encoder.

    The boxes are per-query where it was evaluated, and the band is the spread of the summary.
    """
    rows = evaluation.curve.filter(scoring=scoring, metric="map")
    spread = min(rows["spread"], key=SPREADS.index)
    band_spread = preferred_spread(rows["spread"])
    panels = []
    for encoder in unique_values(rows, "encoder"):
        by_k = rows.filter(encoder=encoder).sort("k")
        curve = by_k.filter(spread=spread)
        band = by_k.filter(spread=band_spread)
        if spread == band_spread:
            band = band.clear()
        panel = Panel(encoder, curve, band, drawable_baselines(baselines, curve))
        panels.append(panel)
    return panels


def panel_shots(panels: Panels) -> list[int]:
    """Return the k of all panels."""
    return panels[0].curve["k"].to_list()


def panel_limits(panels: Panels) -> Limits:
    """Return the ends of an axis with all intervals, baselines and chance."""
    values: list[Any] = []
    for panel in panels:
        values += [curve.select("p01", "p99", "chance") for curve in panel.curves]
        values.append(panel.baselines["value"])
    return axis_limits(*values)


def draw_boxes(ax: "Axes", panel: Panel, half_width: float) -> None:
    """Draw the boxes of a curve, chance and the baselines; widths are in steps of k."""
    curve = panel.curve
    x = np.arange(len(curve))
    ax.axhline(curve["chance"][0], **CHANCE)
    draw_baselines(ax, panel.baselines)
    ax.vlines(x, curve["p01"], curve["p99"], **WHISKER)
    ax.bar(
        x,
        height=curve["p75"] - curve["p25"],
        width=2 * half_width,
        bottom=curve["p25"],
        **BOX,
    )
    ax.hlines(curve["p50"], x - half_width, x + half_width, **MEDIAN)
    marker_size = np.clip(68 / len(curve), 1.7, 4.0)
    ax.plot(x, curve["mean"], markersize=marker_size, **MEAN)


def panel_legend(panels: Panels) -> Legend:
    """Return the legend of panels with boxes."""
    first = panels[0]
    spread = first.curve["spread"][0]
    box = tuple(map(line_handle, (WHISKER_HANDLE, BOX_HANDLE, MEAN)))
    legend: Legend = {f"{spread}: mean, quartiles, 1st–99th percentile": box}
    for spread in first.band["spread"].head(1):
        legend[f"{spread}: {INTERVAL}"] = curve_handle("background")
    legend["chance"] = line_handle(CHANCE)
    return legend | baseline_legend(panel.baselines for panel in panels)


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
    """Return the page of a sweep; baselines of the same corpus and scoring are drawn."""
    panels = make_panels(evaluation, scoring, baselines)
    return FigurePage(stem, _compose_sweep, (panels, evaluation.complete_shots))


@figure_of_report(
    "sweep",
    "encoder",
    "mAP against k, exemplars per class",
)
def plan_sweep(results: CorpusResults, *_: Any) -> Pages:
    """Yield the sweep of all classes."""
    yield sweep_page(results.evaluation, "sweep", "all", results.baselines)


@figure_of_report("reduced", "encoder", "mAP over categories against k")
def plan_reduced(results: CorpusResults, *_: Any) -> Pages:
    """Yield the sweep of reduced scoring, if there is one."""
    if "reduced" in results.evaluation.curve["scoring"]:
        yield sweep_page(results.evaluation, "reduced", "reduced", results.baselines)


@figure_of_report(
    "inset",
    "encoder",
    "The curves at few examples, up to k = 7",
)
def plan_inset(results: CorpusResults, *_: Any) -> Pages:
    """Yield the inset, if at least two shots are few."""
    panels = make_panels(results.evaluation, baselines=results.baselines)
    few_shots = []
    for panel in panels:  # with the samples of each k in the column `value`
        few = panel.curve.filter(pl.col("k") <= FEW_SHOTS)
        curve = few.join(
            results.evaluation.values,
            on=[*CURVE_KEY, "k"],
            how="left",
            maintain_order="left",
        )
        few_shots.append(replace(panel, curve=curve, band=panel.band.clear()))
    if len(panel_shots(few_shots)) >= 2:
        yield from make_pages("inset", few_shots, INSET.capacity, _compose_inset)


def density(samples: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return levels from the 1st to the 99th percentile, and a Gaussian kernel estimate there.

    The width of the kernel is Scott's. Samples without spread give two empty arrays.
    """
    low, high = np.percentile(samples, (1, 99))
    width = samples.std() * len(samples) ** -0.2
    if not (high > low and width > 0):
        return np.empty(0), np.empty(0)
    levels = np.linspace(low, high, DENSITY_LEVELS)
    distance = (levels[:, None] - samples) / width
    kernel = np.exp(-0.5 * distance**2)
    area = width * np.sqrt(2 * np.pi)
    return levels, kernel.mean(axis=1) / area


def _compose_sweep(figure: "Figure", panels: Panels, complete_shots: int) -> None:
    """Lay out one column of panels, or two from four encoders on, with new exemplars below."""
    columns = 2 if len(panels) > 3 else 1
    rows = ceil(len(panels) / columns)
    figure.set_size_inches(PAGE_WIDTH_IN, 1.2 + 1.65 * rows)
    curve = panels[0].curve
    labels = [_metric_label(curve)] * rows + ["new\nexemplars"]
    heights = [1.0] * rows + [0.36]
    stacks = add_panels(figure, columns, columns, labels, heights)
    upper = stacks[:, :-1].T.ravel()
    axes = upper[: len(panels)]
    for ax in upper[len(panels) :]:
        ax.set_visible(False)
    room_in = 5.8 / columns
    for ax, panel in zip(axes, panels, strict=True):
        if not panel.band.is_empty():
            draw_curve(ax, panel.band, "background", 1.0)
        draw_boxes(ax, panel, _half_width(panel.curve))
        mark_last_complete(ax, panel.curve["complete"])
    set_scales(axes, panel_shots(panels), room_in, panel_limits(panels))
    set_titles(axes, [panel.encoder for panel in panels], room_in)
    _draw_new_exemplars(stacks[:, -1], curve, complete_shots, room_in)
    add_legend(figure, panel_legend(panels))


def _metric_label(curve: Frame) -> str:
    return "mAP\nof categories" if "reduced" in curve["scoring"] else "mAP"


def _half_width(curve: Frame) -> float:
    """Return half the width of a box in steps of k; boxes of few shots are not broad."""
    return min(0.31, 0.025 * len(curve) + 0.015)


def _draw_new_exemplars(
    axes: AxesArray, curve: Frame, complete_shots: int, room_in: float
) -> None:
    """Draw how many classes still have a k-th exemplar, and name k*."""
    complete = curve["complete"]
    exemplars = curve["new_exemplars"]
    width = 2 * _half_width(curve)
    colours = np.where(complete, GREY, SILVER)
    most = max(*exemplars, 1)
    for ax in axes:
        mark_last_complete(ax, complete)
        ax.bar(range(len(curve)), exemplars, width=width, color=colours)
        ax.annotate(
            f"k* = {complete_shots}",
            xy=(sum(complete) - 0.5, 1),
            xycoords=("data", "axes fraction"),
            ha="center",
            va="bottom",
        )
        ax.set_yticks([0, most])
    set_scales(axes, curve["k"].to_list(), room_in, (0.0, most))


def _compose_inset(figure: "Figure", panels: Panels) -> None:
    INSET.draw_panels(
        figure,
        panels,
        _draw_inset,
        panel_shots(panels),
        [panel_limits(panels)],
        [_metric_label(panels[0].curve)],
        [panel.encoder for panel in panels],
    )
    legend = panel_legend(panels)
    legend["density of the samples"] = area_handle(VIOLIN)
    add_legend(figure, legend)


def _draw_inset(panel: Panel, ax: "Axes") -> None:
    for x, samples in enumerate(panel.curve["value"]):
        levels, height = density(samples.to_numpy())
        highest = height.max(initial=1e-300)
        half_width = 0.42 * height / highest
        ax.fill_betweenx(levels, x - half_width, x + half_width, **VIOLIN)
    draw_boxes(ax, panel, 0.09)


CLASSES = PageLayout(columns=5, rows=6, row_in=1.35, left_in=0.6, above_in=0.7)


@figure_of_report(
    "classes",
    "encoder",
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
    yield from make_pages(
        "classes",
        panels,
        CLASSES.capacity,
        _compose_classes,
        axis_limits(rows.select("p01", "p99")),
        f"AP ({spread})",
    )


def _compose_classes(
    figure: "Figure", panels: Frames, limits: Limits, label: str
) -> None:
    rows = pl.concat(panels)
    shots = unique_values(rows, "k")
    axes, width_in = CLASSES.draw_panels(figure, panels, _draw_class, shots, [limits])
    for ax, panel in zip(axes, panels, strict=True):
        name = wrap(panel["label"][0], width_in * 72 - 16, BOLD_SMALL_FONT)
        exemplars = count_text(panel["exemplars"][0], "exemplar")
        ax.set_title(f"{name}\n{exemplars}", fontsize=SMALL_PT, pad=2)
    figure.supylabel(label)
    legend = list_series(unique_values(rows, "encoder"))
    if not rows["complete"].all():
        legend["last k at which the class is complete"] = line_handle(LAST_COMPLETE)
    add_legend(figure, legend)


def _draw_class(panel: Frame, ax: "Axes") -> None:
    for number, curve in enumerate(panel.partition_by("encoder")):
        draw_series(ax, number, curve)
    mark_last_complete(ax, curve["complete"])


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
    if len(unique_values(curve, "spread")) > 1:
        by_k = curve.sort("k", maintain_order=True)
        panels = by_k.partition_by("encoder", maintain_order=True)
        yield from make_pages(
            "spreads", panels, SPREADS_LAYOUT.capacity, _compose_spreads
        )


def spread_legend(spreads: Iterable[str] = SPREADS) -> Legend:
    """Return the legend of curves in some spreads."""
    return {f"{spread}: {INTERVAL}": curve_handle(spread) for spread in spreads}


def _compose_spreads(figure: "Figure", panels: Frames) -> None:
    widths = [panel["p99"] - panel["p01"] for panel in panels]
    _, widest = axis_limits(*widths, [0.0], high=2.0)
    values = [panel.select("p01", "p99", "chance") for panel in panels]
    SPREADS_LAYOUT.draw_panels(
        figure,
        panels,
        _draw_spreads,
        unique_values(panels[0], "k"),
        (axis_limits(*values), (0.0, widest)),
        ("mAP: mean,\n1st–99th percentile", "99th minus 1st\npercentile"),
        [panel["encoder"][0] for panel in panels],
    )
    legend: Legend = {}
    for spread in unique_values(panels[0], "spread"):
        legend[f"{spread}: {SPREAD_NOTES[spread]}"] = curve_handle(spread)
    legend["chance"] = line_handle(CHANCE)
    add_legend(figure, legend)


def _draw_spreads(panel: Frame, upper: "Axes", lower: "Axes") -> None:
    upper.axhline(panel["chance"][0], **CHANCE)
    for spread in reversed(SPREADS):
        curve = panel.filter(spread=spread)
        if not curve.is_empty():
            draw_curve(upper, curve, spread, SPREAD_ALPHA)
            draw_line(lower, curve["p99"] - curve["p01"], LINE[spread])
