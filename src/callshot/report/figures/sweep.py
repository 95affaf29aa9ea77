"""An evaluation → its k-shot curves, one panel per encoder, with boxes.

A box has the quartiles, whiskers from the 1st to the 99th percentile, and a marker at the mean. In
the sweep a band shows the spread of the summary, and below are the new exemplars of each k, and k*.
The inset shows the few-shot regime, with the distribution of the samples as a violin.
"""

from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from callshot.records import CorpusResults, Evaluation, FloatArray
from callshot.records.frames import CURVE_KEY, Frame
from callshot.report.figures.baselines import separate_names
from callshot.report.figures.figure_io import FigurePage, Pages, make_pages, render
from callshot.report.figures.layout import (
    AxesArray,
    PageLayout,
    add_legend,
    add_panels,
    area_handle,
    draw_curve,
    mark_last_complete,
    set_scales,
    set_titles,
)
from callshot.report.figures.panels import (
    NO_BASELINES,
    Panel,
    Panels,
    draw_boxes,
    make_panels,
    panel_legend,
    panel_limits,
    panel_shots,
)
from callshot.report.figures.style import GREY, PAGE_WIDTH_IN, SILVER, VIOLIN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_SHOTS = 7
DENSITY_LEVELS = 101
INSET = PageLayout(columns=3, rows=4, row_in=1.9, left_in=0.6, above_in=0.75)


def draw_sweep(evaluation: Evaluation, path_stem: Path) -> list[Path]:
    """Draw mAP against k for every encoder, and write it as PDF and PNG.

    `path_stem` is the path of both files, without suffix. Equal evaluations give equal bytes.
    """
    return render(sweep_page(evaluation, path_stem.name), path_stem.parent)


def sweep_page(
    evaluation: Evaluation,
    stem: str,
    scoring: str = "all",
    baselines: Frame = NO_BASELINES,
) -> FigurePage:
    """Return the page of a sweep; baselines of the same corpus and scoring are drawn."""
    panels = make_panels(evaluation, scoring, baselines)
    return FigurePage(stem, _compose_sweep, (panels, evaluation.complete_shots))


def plan_sweep(results: CorpusResults) -> Pages:
    """Yield the sweep of all classes, and that of reduced scoring if there is one."""
    evaluation = results.evaluation
    baselines = results.baselines
    yield sweep_page(evaluation, "sweep", "all", baselines)
    if "reduced" in evaluation.curve["scoring"]:
        yield sweep_page(evaluation, "reduced", "reduced", baselines)


def plan_inset(results: CorpusResults) -> Pages:
    """Yield the inset, if at least two shots are few."""
    panels = make_panels(results.evaluation, baselines=results.baselines)
    few_shots = [_few_shots(panel, results.evaluation.values) for panel in panels]
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
    _draw_panels(axes, panels, room_in)
    _draw_new_exemplars(stacks[:, -1], curve, complete_shots, room_in)
    add_legend(figure, panel_legend(panels))
    separate_names(figure, axes)


def _draw_panels(axes: AxesArray, panels: Panels, room_in: float) -> None:
    for ax, panel in zip(axes, panels, strict=True):
        _draw_panel(ax, panel)
    set_scales(axes, panel_shots(panels), room_in, panel_limits(panels))
    set_titles(axes, [panel.encoder for panel in panels], room_in)


def _metric_label(curve: Frame) -> str:
    return "mAP\nof categories" if "reduced" in curve["scoring"] else "mAP"


def _draw_panel(ax: "Axes", panel: Panel) -> None:
    if not panel.band.is_empty():
        draw_curve(ax, panel.band, "background", 1.0)
    draw_boxes(ax, panel, _half_width(panel.curve))
    mark_last_complete(ax, panel.curve["complete"])


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


def _few_shots(panel: Panel, values: Frame) -> Panel:
    """Return a panel with few shots, and with the samples of each in the column `value`."""
    few = panel.curve.filter(pl.col("k") <= FEW_SHOTS)
    key = [*CURVE_KEY, "k"]
    with_samples = few.join(values, on=key, how="left", maintain_order="left")
    return replace(panel, curve=with_samples, band=panel.band.clear())


def _compose_inset(figure: "Figure", panels: Panels) -> None:
    axes, width_in = INSET.draw_panels(
        figure,
        panels,
        _draw_inset,
        panel_shots(panels),
        [panel_limits(panels)],
        [_metric_label(panels[0].curve)],
    )
    encoders = [panel.encoder for panel in panels]
    set_titles(axes, encoders, width_in - 0.2)
    legend = panel_legend(panels)
    legend["density of the samples"] = area_handle(VIOLIN)
    add_legend(figure, legend)
    separate_names(figure, axes)


def _draw_inset(panel: Panel, ax: "Axes") -> None:
    for x, samples in enumerate(panel.curve["value"]):
        levels, height = density(samples.to_numpy())
        highest = height.max(initial=1e-300)
        half_width = 0.42 * height / highest
        ax.fill_betweenx(levels, x - half_width, x + half_width, **VIOLIN)
    draw_boxes(ax, panel, 0.09)
