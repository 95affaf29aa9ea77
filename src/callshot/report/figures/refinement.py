"""Gradient steps from the centroid → a metric against steps, a line for each encoder.

The axis starts at 0 steps, the centroid, and is logarithmic from 1 on; lines end at logistic
regression.
"""

from collections.abc import Iterator, Sequence
from math import log10
from typing import TYPE_CHECKING

import polars as pl

from callshot.records import RANKING_METRICS, CorpusResults
from callshot.report.figures.figure_io import FigurePage
from callshot.report.figures.layout import METRIC_NAMES, add_legend, axis_limits, line_handle
from callshot.report.figures.style import GREY, PAGE_WIDTH_IN, SMALL_PT, Style, series_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def plan_refinement(results: CorpusResults) -> Iterator[FigurePage]:
    """Yield mAP and AUROC side by side, if centroids were refined."""
    steps = results.refinement.filter(scoring="all").sort("step", maintain_order=True)
    panels = [steps.filter(metric=metric) for metric in RANKING_METRICS]
    panels = [panel for panel in panels if not panel.is_empty()]
    if panels:
        yield FigurePage("refinement", _compose, (panels,))


def step_position(step: int) -> float:
    """Return the position of a step on the axis.

    >>> [step_position(step) for step in (0, 1, 10, 100)]
    [0.0, 1.0, 2.0, 3.0]
    """
    return 0.0 if step == 0 else 1.0 + log10(step)


def _compose(figure: "Figure", panels: Sequence[pl.DataFrame]) -> None:
    encoders = pl.concat(panels)["encoder"].unique(maintain_order=True)
    styles = {name: {**series_style(i), "zorder": 3} for i, name in enumerate(encoders)}
    width_in = PAGE_WIDTH_IN if len(panels) > 1 else PAGE_WIDTH_IN / 2 + 0.4
    figure.set_size_inches(width_in, 2.6 + 0.13 * min(len(encoders), 30))
    for number, panel in enumerate(panels):
        ax = figure.add_subplot(1, len(panels), number + 1)
        _draw_lines(ax, panel, styles)
        _label_steps(ax, panel["step"].to_list()[-1])
        ax.set_ylim(axis_limits(panel["value"]))
        ax.set_ylabel(METRIC_NAMES[panel["metric"][0]])
        _write_end(ax, 0, "left", "centroid")
        _write_end(ax, 1, "right", "logistic regression")
    add_legend(figure, {name: line_handle(style) for name, style in styles.items()})


def _draw_lines(ax: "Axes", panel: pl.DataFrame, styles: dict[str, Style]) -> None:
    for line in panel.partition_by("encoder", maintain_order=True):
        x = [step_position(step) for step in line["step"]]
        ax.plot(x, line["value"], **styles[line["encoder"][0]])


def _label_steps(ax: "Axes", last: int) -> None:
    """Label 0 steps and the powers of ten up to the last step."""
    steps = [0, *(10**power for power in range(len(str(last))))]
    labels = [f"{step:,}".replace(",", " ") for step in steps]
    ax.set_xticks([step_position(step) for step in steps], labels)
    ax.set_xlim(-0.2, step_position(last) + 0.2)
    ax.set_xlabel("gradient steps")


def _write_end(ax: "Axes", x: float, side: str, text: str) -> None:
    """Name the classifier at one end of the axis."""
    ax.annotate(
        text,
        (x, 1.0),
        (0, 3),
        xycoords="axes fraction",
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=SMALL_PT,
        color=GREY,
    )
