"""An evaluation → panels, one per encoder, with a box at each k."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.records import SPREADS, Evaluation
from callshot.records.frames import BASELINES, Frame, empty_frame, unique_values
from callshot.records.terms import preferred_spread
from callshot.report.figures.baselines import (
    baseline_legend,
    draw_baselines,
    drawable_baselines,
)
from callshot.report.figures.layout import (
    INTERVAL,
    Legend,
    Limits,
    axis_limits,
    curve_handle,
    line_handle,
)
from callshot.report.figures.style import (
    BLUE,
    BOX,
    CHANCE,
    MEAN,
    MEDIAN,
    WHISKER,
    Style,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes

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
    """The curves of one encoder, by k: the spread of the boxes, and that of the band behind them.

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
