"""Sources of the spread of mAP → standard deviation against k, a panel for each encoder."""

from typing import TYPE_CHECKING

from callshot.records import CorpusResults
from callshot.records.frames import Frame, unique_values
from callshot.report.figures.figure_io import Pages, make_pages
from callshot.report.figures.layout import Frames, add_legend, line_handle, set_titles
from callshot.report.figures.style import PAGE_WIDTH_IN, series_style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS_PER_ROW = 3
PANELS_PER_PAGE = 12
PANEL_HEIGHT_IN = 2.0


def plan_sensitivity(results: CorpusResults) -> Pages:
    """Yield the sources of every encoder's spread, if they were measured."""
    sources = results.evaluation.sensitivity.sort("k", maintain_order=True)
    panels = sources.partition_by("encoder")
    yield from make_pages("sensitivity", panels, PANELS_PER_PAGE, _compose)


def _compose(figure: "Figure", panels: Frames) -> None:
    columns = min(len(panels), PANELS_PER_ROW)
    lines = -(-len(panels) // columns)
    figure.set_size_inches(PAGE_WIDTH_IN, 0.5 + PANEL_HEIGHT_IN * lines)
    axes = figure.subplots(lines, columns, squeeze=False, sharex=True, sharey=True)
    highest = max(max(panel["sd"]) for panel in panels)
    for ax, panel in zip(axes.flat, panels, strict=False):
        _draw_panel(ax, panel)
        ax.set_ylim(0.0, 1.05 * highest or 1.0)
    names = [panel["encoder"][0] for panel in panels]
    set_titles(axes.flat[: len(panels)], names, PAGE_WIDTH_IN / columns - 0.5)
    for ax in axes.flat[len(panels) :]:
        ax.set_axis_off()
    for ax in axes[:, 0]:
        ax.set_ylabel("standard deviation of mAP")
    legend = {}
    for number, source in enumerate(unique_values(panels[0], "source")):
        legend[source] = line_handle(series_style(number))
    add_legend(figure, legend, "k, exemplars per class")


def _draw_panel(ax: "Axes", panel: Frame) -> None:
    for number, line in enumerate(panel.partition_by("source")):
        ax.plot(line["k"], line["sd"], **series_style(number))
