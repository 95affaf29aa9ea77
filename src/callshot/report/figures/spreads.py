"""An evaluation → its two spreads side by side: the interval of each over k, and how wide it is."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from callshot.records import SPREADS, CorpusResults
from callshot.report.figures.figure_io import Pages, make_pages
from callshot.report.figures.layout import (
    INTERVAL,
    Legend,
    PageLayout,
    add_legend,
    axis_limits,
    curve_handle,
    draw_curve,
    draw_line,
    line_handle,
    set_titles,
)
from callshot.report.figures.panels import (
    Panel,
    Panels,
    make_panels,
    panel_limits,
    panel_shots,
)
from callshot.report.figures.style import CHANCE, LINE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYOUT = PageLayout(
    columns=4,
    rows=1,
    row_in=2.9,
    left_in=0.6,
    above_in=0.6,
    heights=(1.7, 1.0),
)


def plan_spreads(results: CorpusResults) -> Pages:
    """Yield a column for every encoder, four to a page, if both spreads were evaluated."""
    panels = make_panels(results.evaluation)
    both = [panel for panel in panels if not panel.shared.is_empty()]
    yield from make_pages("spreads", both, LAYOUT.capacity, _compose)


def spread_legend(spreads: Iterable[str] = SPREADS) -> Legend:
    """Return the legend of curves in some spreads."""
    return {f"{spread}: {INTERVAL}": curve_handle(spread) for spread in spreads}


def _compose(figure: "Figure", panels: Panels) -> None:
    widths = []
    for panel in panels:
        widths += [curve["p99"] - curve["p01"] for curve in panel.curves]
    _, widest = axis_limits(*widths, [0.0], high=2.0)
    axes, width_in = LAYOUT.draw_panels(
        figure,
        panels,
        _draw_panel,
        panel_shots(panels),
        (panel_limits(panels), (0.0, widest)),
        ("mAP", "99th less 1st\npercentile"),
    )
    encoders = [panel.encoder for panel in panels]
    set_titles(axes, encoders, width_in - 0.2)
    add_legend(figure, spread_legend() | {"chance": line_handle(CHANCE)})


def _draw_panel(panel: Panel, upper: "Axes", lower: "Axes") -> None:
    upper.axhline(panel.curve["chance"][0], **CHANCE)
    draw_curve(upper, panel.shared, "shared", 1.0)
    draw_curve(upper, panel.curve, "per-query", 0.75)
    for curve in panel.curves:
        width = curve["p99"] - curve["p01"]
        spread = curve["spread"][0]
        draw_line(lower, width, LINE[spread])
