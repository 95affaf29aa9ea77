"""An evaluation → its spreads in one picture: the interval of each over k, and how wide it is."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from callshot.records import SPREADS, CorpusResults
from callshot.records.frames import Frame, unique_values
from callshot.report.figures.figure_io import Pages, make_pages
from callshot.report.figures.layout import (
    INTERVAL,
    Frames,
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


MEANINGS = {
    "per-query": "per-query: the paper's, each query has draws of its own",
    "shared": "shared: the luck of which examples were labelled",
    "total": "total: one labelled set on other recordings",
}
ALPHA = 0.85


def plan_spreads(results: CorpusResults) -> Pages:
    """Yield a column for every encoder, four to a page, if several spreads were evaluated."""
    curve = results.evaluation.curve.filter(scoring="all", metric="map")
    if len(unique_values(curve, "spread")) > 1:
        by_k = curve.sort("k", maintain_order=True)
        panels = by_k.partition_by("encoder", maintain_order=True)
        yield from make_pages("spreads", panels, LAYOUT.capacity, _compose)


def spread_legend(spreads: Iterable[str] = SPREADS) -> Legend:
    """Return the legend of curves in some spreads."""
    return {f"{spread}: {INTERVAL}": curve_handle(spread) for spread in spreads}


def _compose(figure: "Figure", panels: Frames) -> None:
    widths = [panel["p99"] - panel["p01"] for panel in panels]
    _, widest = axis_limits(*widths, [0.0], high=2.0)
    values = [panel.select("p01", "p99", "chance") for panel in panels]
    axes, width_in = LAYOUT.draw_panels(
        figure,
        panels,
        _draw_panel,
        unique_values(panels[0], "k"),
        (axis_limits(*values), (0.0, widest)),
        ("mAP: mean,\n1st–99th percentile", "99th minus 1st\npercentile"),
    )
    encoders = [panel["encoder"][0] for panel in panels]
    set_titles(axes, encoders, width_in - 0.2)
    add_legend(figure, _meaning_legend(unique_values(panels[0], "spread")))


def _meaning_legend(spreads: Sequence[str]) -> Legend:
    """Return a legend with a line on each spread."""
    legend: Legend = {}
    for spread, text in MEANINGS.items():
        if spread in spreads:
            legend[text] = curve_handle(spread)
    legend["chance"] = line_handle(CHANCE)
    return legend


def _draw_panel(panel: Frame, upper: "Axes", lower: "Axes") -> None:
    upper.axhline(panel["chance"][0], **CHANCE)
    for spread in reversed(SPREADS):
        curve = panel.filter(spread=spread)
        if not curve.is_empty():
            draw_curve(upper, curve, spread, ALPHA)
            draw_line(lower, curve["p99"] - curve["p01"], LINE[spread])
