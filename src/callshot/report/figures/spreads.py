"""An evaluation → its two spreads side by side: the band of each over k, and below how wide they are."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from callshot.records import CorpusResults, Curve
from callshot.report.figures.figure_io import FigurePage, pages
from callshot.report.figures.legends import put_legend
from callshot.report.figures.panels import (
    METRIC_NAMES,
    SHOTS,
    Panel,
    draw_band,
    draw_line,
    limits,
    make_panels,
    number_shots,
    spaced,
    title,
)
from callshot.report.figures.style import BAND, CHANCE, LINE, WIDE_IN

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDE = 4


def spreads_plates(corpus_results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield a column for every encoder, four to a figure, where both spreads were evaluated."""
    panels = [p for p in make_panels(corpus_results.evaluation, metric) if p.shared]
    name = METRIC_NAMES.get(metric, metric)
    for stem, some in pages("spreads", panels, WIDE):
        yield FigurePage(stem, partial(_compose, panels=some, metric=name))


def legend_spreads(spreads: Sequence[str]) -> dict[str, Any]:
    """Return the entries of a legend for the bands of spreads."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    return {
        f"{spread}: mean, 1st–99th percentile": (
            Patch(facecolor=BAND[spread], edgecolor="none"),
            Line2D([], [], markersize=2.6, markeredgewidth=0, **LINE[spread]),
        )
        for spread in spreads
    }


def _compose(figure: "Figure", panels: Sequence[Panel], metric: str) -> None:
    from matplotlib.lines import Line2D

    wide = len(panels)
    figure.set_size_inches(WIDE_IN if wide > 1 else 4.8, 3.5)
    grid = figure.subplots(
        2, wide, squeeze=False, sharex=True, sharey="row", height_ratios=[1.7, 1]
    )
    for (upper, lower), panel in zip(grid.T, panels, strict=True):
        _draw_spreads(upper, panel)
        _draw_widths(lower, panel)
        title(upper, panel.encoder, figure.get_figwidth() * 0.92 / wide - 0.2)
        number_shots(lower, [c.k for c in panel.points], figure.get_figwidth() * 0.82 / wide)
        lower.set_xlabel(SHOTS if wide < WIDE else "k, exemplars")
    grid[0, 0].set_ylim(limits(panels))
    grid[1, 0].set_ylim(
        0, spaced((_width(c) for p in panels for c in (*p.points, *p.shared)), high=2.0)[1]
    )
    grid[0, 0].set_ylabel(metric)
    grid[1, 0].set_ylabel("99th less 1st\npercentile")
    figure.align_ylabels(grid[:, 0])
    put_legend(
        figure, legend_spreads(("per-query", "shared")) | {"chance": Line2D([], [], **CHANCE)}
    )


def _draw_spreads(at: "Axes", panel: Panel) -> None:
    at.axhline(panel.points[0].chance, **CHANCE)
    for points, alpha in ((panel.shared, 1.0), (panel.points, 0.75)):
        spread = points[0].spread
        look = {"facecolor": BAND[spread], "alpha": alpha, "zorder": 1.5}
        draw_band(at, [c.p01 for c in points], [c.p99 for c in points], look)
        draw_line(at, [c.mean for c in points], LINE[spread])


def _draw_widths(at: "Axes", panel: Panel) -> None:
    for points in (panel.points, panel.shared):
        draw_line(at, [_width(c) for c in points], LINE[points[0].spread])


def _width(point: Curve) -> float:
    return point.p99 - point.p01
