"""Gradient steps from the centroid → a metric against steps, a line for each encoder.

The axis starts at 0 steps, the centroid, and is logarithmic from 1 on; lines end at logistic
regression.
"""

from math import log10
from typing import TYPE_CHECKING, Literal

from callshot.records import METRIC_NAMES, CorpusResults
from callshot.records.frames import Frame, unique_values
from callshot.report.figures.figure_io import FigurePage, Pages
from callshot.report.figures.layout import (
    Frames,
    add_legend,
    axis_limits,
    line_handle,
)
from callshot.report.figures.style import GREY, PAGE_WIDTH_IN, SMALL_PT, series_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plan_refinement(results: CorpusResults) -> Pages:
    """Yield mAP and AUROC side by side, if centroids were refined."""
    steps = results.refinement.filter(scoring="all").sort("step", maintain_order=True)
    panels = steps.partition_by("metric")
    if panels:
        yield FigurePage("refinement", _compose, (panels,))


def step_position(step: int) -> float:
    """Return the position of a step on the axis.

    >>> [step_position(step) for step in (0, 1, 10, 100)]
    [0.0, 1.0, 2.0, 3.0]
    """
    return 0.0 if step == 0 else 1.0 + log10(step)


def _compose(figure: "Figure", panels: Frames) -> None:
    encoders = unique_values(panels[0], "encoder")
    legend_in = 0.13 * min(len(encoders), 30)
    figure.set_size_inches(PAGE_WIDTH_IN, 2.6 + legend_in)
    axes = figure.subplots(1, len(panels), squeeze=False)
    for ax, panel in zip(axes[0], panels, strict=True):
        _draw_panel(ax, panel)
    legend = {}
    for number, encoder in enumerate(encoders):
        legend[encoder] = line_handle(series_style(number))
    add_legend(figure, legend, "gradient steps")


def _draw_panel(ax: "Axes", panel: Frame) -> None:
    for number, line in enumerate(panel.partition_by("encoder")):
        positions = [step_position(step) for step in line["step"]]
        ax.plot(positions, line["value"], **series_style(number))
    _label_steps(ax, panel["step"][-1])
    ax.set_ylim(axis_limits(panel["value"]))
    metric = panel["metric"][0]
    ax.set_ylabel(METRIC_NAMES[metric])
    _write_end(ax, "left", "centroid")
    _write_end(ax, "right", "logistic regression")


def _label_steps(ax: "Axes", last: int) -> None:
    """Label 0 steps and the powers of ten up to the last step."""
    powers = range(len(str(last)))
    steps = [0, *(10**power for power in powers)]
    positions = [step_position(step) for step in steps]
    labels = [f"{step:,}".replace(",", " ") for step in steps]
    ax.set_xticks(positions, labels)
    ax.set_xlim(-0.2, step_position(last) + 0.2)


def _write_end(ax: "Axes", side: Literal["left", "right"], text: str) -> None:
    """Name the classifier at one end of the axis."""
    ax.set_title(
        text,
        loc=side,
        fontsize=SMALL_PT,
        fontweight="normal",
        color=GREY,
    )
