"""An evaluation → its two spreads side by side: the interval of each over k, and how wide it is."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl

from callshot.records import SPREADS, CorpusResults
from callshot.report.figures.figure_io import FigurePage, make_pages
from callshot.report.figures.layout import (
    INTERVAL,
    K_LABEL,
    METRIC_NAMES,
    add_legend,
    add_panels,
    axis_limits,
    curve_handle,
    draw_curve,
    draw_line,
    label_shots,
    label_stacks,
    line_handle,
)
from callshot.report.figures.panels import Panel, make_panels, panel_limits, set_title
from callshot.report.figures.style import CHANCE, LINE, PAGE_WIDTH_IN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

COLUMNS = 4
WIDTH = pl.col("p99") - pl.col("p01")


def plan_spreads(results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield a column for every encoder, four to a page, if both spreads were evaluated."""
    panels = make_panels(results.evaluation, metric)
    both = [panel for panel in panels if not panel.shared.is_empty()]
    yield from make_pages("spreads", both, COLUMNS, _compose, METRIC_NAMES[metric])


def spread_entries(spreads: Iterable[str] = SPREADS) -> dict[str, Any]:
    """Return the legend entries of spreads."""
    return {f"{spread}: {INTERVAL}": curve_handle(spread) for spread in spreads}


def _compose(figure: "Figure", panels: Sequence[Panel], metric: str) -> None:
    columns = len(panels)
    width_in = PAGE_WIDTH_IN if columns > 1 else 4.8
    figure.set_size_inches(width_in, 3.5)
    stacks = add_panels(figure, columns, columns, (1.7, 1))
    limits = panel_limits(panels)
    curves = pl.concat([frame for panel in panels for frame in (panel.curve, panel.shared)])
    _, widest = axis_limits(curves.select(WIDTH), high=2.0)
    for (upper, lower), panel in zip(stacks, panels, strict=True):
        _draw_spreads(upper, panel)
        upper.set_ylim(limits)
        _draw_widths(lower, panel)
        lower.set_ylim(0, widest)
        set_title(upper, panel.encoder, width_in * 0.92 / columns - 0.2)
        label_shots(upper, panel.shots, width_in * 0.82 / columns)
        label_shots(lower, panel.shots, width_in * 0.82 / columns)
        lower.set_xlabel(K_LABEL if columns < COLUMNS else "k, exemplars")
    label_stacks(figure, stacks, (metric, "99th less 1st\npercentile"))
    add_legend(figure, spread_entries() | {"chance": line_handle(CHANCE)})


def _draw_spreads(ax: "Axes", panel: Panel) -> None:
    ax.axhline(panel.curve["chance"][0], **CHANCE)
    draw_curve(ax, panel.shared, "shared", 1.0)
    draw_curve(ax, panel.curve, "per-query", 0.75)


def _draw_widths(ax: "Axes", panel: Panel) -> None:
    for curve in (panel.curve, panel.shared):
        draw_line(ax, curve.select(WIDTH).to_series(), LINE[curve["spread"][0]])
