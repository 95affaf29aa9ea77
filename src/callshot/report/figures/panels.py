"""An evaluation → panels, one per encoder, with a box at each k."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from callshot.errors import OptionError
from callshot.records import Evaluation
from callshot.records.frames import BASELINES, empty_frame
from callshot.report.figures.baselines import baseline_entries, draw_baselines, drawable_baselines
from callshot.report.figures.layout import (
    INTERVAL,
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
    TITLE_PT,
    WHISKER,
)
from callshot.report.figures.text_fit import shorten

if TYPE_CHECKING:
    from matplotlib.axes import Axes


@dataclass(frozen=True)
class Panel:
    """The curves of one encoder, by k: the chosen spread, and `shared` if that is another one."""

    encoder: str
    curve: pl.DataFrame
    shared: pl.DataFrame
    baselines: pl.DataFrame

    @property
    def shots(self) -> list[int]:
        """The k of the curve."""
        return self.curve["k"].to_list()


def make_panels(
    evaluation: Evaluation,
    metric: str,
    spread: str = "per-query",
    scoring: str = "all",
    baselines: pl.DataFrame | None = None,
) -> list[Panel]:
    """Return a panel for every encoder; a spread that was not evaluated is replaced by another."""
    scored = evaluation.curve.filter(scoring=scoring)
    rows = scored.filter(metric=metric)
    if rows.is_empty():
        metrics = ", ".join(scored["metric"].unique(maintain_order=True)) or "none"
        raise OptionError(f"figure: no curve of {metric}; metrics with a curve: {metrics}")
    if spread not in rows["spread"]:
        spread = rows["spread"][0]
    if baselines is None:
        baselines = empty_frame(BASELINES)
    encoders = rows.partition_by("encoder", maintain_order=True)
    return [_make_panel(encoder.sort("k"), spread, baselines) for encoder in encoders]


def _make_panel(rows: pl.DataFrame, spread: str, baselines: pl.DataFrame) -> Panel:
    curve = rows.filter(spread=spread)
    shared = rows.filter(spread="shared")
    if spread == "shared":
        shared = shared.clear()
    return Panel(rows["encoder"][0], curve, shared, drawable_baselines(baselines, curve))


def panel_limits(panels: Iterable[Panel]) -> Limits:
    """Return the ends of an axis with all intervals, baselines and chance."""
    values: list[Any] = []
    for panel in panels:
        for curve in (panel.curve, panel.shared):
            values.append(curve.select("p01", "p99", "chance"))
        values.append(panel.baselines["value"])
    return axis_limits(*values)


def set_title(ax: "Axes", name: str, room_in: float) -> None:
    """Write a name above a panel, shortened to the room."""
    ax.set_title(shorten(name, room_in * 72, TITLE_PT, "bold"))


def draw_boxes(ax: "Axes", panel: Panel, half_width: float) -> None:
    """Draw the boxes of a curve, chance and the baselines; widths are in steps of k."""
    curve = panel.curve
    x = np.arange(len(curve))
    ax.axhline(curve["chance"][0], **CHANCE)
    draw_baselines(ax, panel.baselines)
    ax.vlines(x, curve["p01"], curve["p99"], **WHISKER)
    ax.bar(x, curve["p75"] - curve["p25"], 2 * half_width, curve["p25"], **BOX)
    ax.hlines(curve["p50"], x - half_width, x + half_width, **MEDIAN)
    ax.plot(x, curve["mean"], markersize=np.clip(68 / len(curve), 1.7, 4.0), **MEAN)


def panel_entries(panels: Sequence[Panel]) -> dict[str, Any]:
    """Return the legend entries of panels with boxes."""
    whisker = {"marker": "|", "markersize": 11, "markeredgewidth": 0.7, "color": BLUE}
    box = {"marker": "s", "markersize": 6, "markeredgewidth": 0.6, "color": BOX["facecolor"]}
    handles = (
        line_handle({**whisker, "linestyle": "none"}),
        line_handle({**box, "linestyle": "none", "markeredgecolor": BLUE}),
        line_handle(MEAN),
    )
    spread = panels[0].curve["spread"][0]
    entries: dict[str, Any] = {f"{spread}: mean, quartiles, 1st–99th percentile": handles}
    if not panels[0].shared.is_empty():
        entries[f"shared: {INTERVAL}"] = curve_handle("shared")
    entries["chance"] = line_handle(CHANCE)
    return entries | baseline_entries(panel.baselines for panel in panels)
