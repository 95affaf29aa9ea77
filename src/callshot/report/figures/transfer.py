"""A transfer → its k-shot curve beside those within both corpora, a panel per encoder."""

from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from callshot.records import TransferEvaluation
from callshot.records.frames import Frame, unique_values
from callshot.records.terms import preferred_spread
from callshot.report.figures.figure_io import FigurePage, render
from callshot.report.figures.layout import (
    Frames,
    PageLayout,
    add_legend,
    axis_limits,
    draw_series,
    line_handle,
    list_series,
    mark_last_complete,
    set_titles,
)
from callshot.report.figures.style import CHANCE

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

PANELS = PageLayout(columns=2, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


def draw_transfer(result: TransferEvaluation, path_stem: Path) -> list[Path]:
    """Draw mAP against k for every encoder, and write it as PDF and PNG."""
    spread = preferred_spread(result.spreads)
    panels = [make_panel(result, encoder, spread) for encoder in result.encoders]
    page = FigurePage(path_stem.name, _compose, (panels, f"mAP ({spread})"))
    return render(page, path_stem.parent)


def make_panel(result: TransferEvaluation, encoder: str, spread: str) -> Frame:
    """Return the curves of one panel; the column `curve` has what the legend calls them.

    All have the shots of the transfer curve; a curve is null at a k that it does not have.
    """
    curves = result.list_curves(encoder)
    shots = next(iter(curves.values())).select("k").unique().sort("k")
    parts = []
    for name, curve in curves.items():
        rows = curve.filter(metric="map", scoring="all", spread=spread)
        aligned = shots.join(rows, on="k", how="left", maintain_order="left")
        names = {"curve": pl.lit(name), "panel": pl.lit(encoder)}
        parts.append(aligned.with_columns(**names))
    return pl.concat(parts)


def _compose(figure: "Figure", panels: Frames, label: str) -> None:
    rows = pl.concat(panels)
    shots = unique_values(rows, "k")
    limits = axis_limits(rows.select("p01", "p99", "chance").drop_nulls())
    axes, width_in = PANELS.draw_panels(figure, panels, _draw, shots, [limits])
    set_titles(axes, [panel["panel"][0] for panel in panels], width_in - 0.3)
    figure.supylabel(label)
    legend = list_series(unique_values(rows, "curve"))
    legend["chance"] = line_handle(CHANCE)
    add_legend(figure, legend)


def _draw(panel: Frame, ax: "Axes") -> None:
    curves = panel.partition_by("curve", maintain_order=True)
    for number, curve in enumerate(curves):
        draw_series(ax, number, curve)
    first = curves[0]
    ax.axhline(first["chance"][0], **CHANCE)
    mark_last_complete(ax, first["complete"])
