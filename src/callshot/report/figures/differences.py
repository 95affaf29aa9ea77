"""Paired differences, transfers beside curves within corpora, and sources of the spread."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl

from callshot.records import CorpusResults, TransferEvaluation
from callshot.records.frames import Frame, unique_values
from callshot.records.terms import preferred_spread
from callshot.report.figures.curves import spread_legend
from callshot.report.figures.figure_io import (
    FigurePage,
    Pages,
    figure_of_report,
    make_pages,
    render,
)
from callshot.report.figures.layout import (
    Frames,
    Limits,
    PageLayout,
    add_legend,
    axis_limits,
    draw_curve,
    draw_line,
    draw_series,
    line_handle,
    list_lines,
    list_series,
    mark_last_complete,
)
from callshot.report.figures.style import (
    BOLD_TICK_FONT,
    CHANCE,
    LINE,
    TICK_PT,
    ZERO,
    series_style,
    wrap,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYOUT = PageLayout(
    columns=3,
    rows=4,
    row_in=2.1,
    left_in=0.7,
    above_in=0.65,
    heights=(2.6, 1.0),
)
WINS_LIMITS = (-0.08, 1.08)


@figure_of_report(
    "differences",
    "certainty",
    "Encoders and baselines, compared pair by pair over the same draws",
)
def plan_differences(results: CorpusResults, *_: Any) -> Pages:
    """Yield the pairs of encoders, or of an encoder and a baseline, twelve to a page."""
    rows = results.evaluation.differences.filter(metric="map", scoring="all")
    by_k = rows.sort("k", maintain_order=True)
    pairs = by_k.partition_by("one", "other")
    limits = axis_limits(rows.select("p01", "p99"), [0.0], low=-1.04, high=1.04)
    yield from make_pages("differences", pairs, LAYOUT.capacity, _compose, limits)


def _compose(figure: "Figure", pairs: Frames, limits: Limits) -> None:
    axes, width_in = LAYOUT.draw_panels(
        figure,
        pairs,
        _draw_pair,
        unique_values(pairs[0], "k"),
        (limits, WINS_LIMITS),
        ("difference\nof mAP", "share\nof wins"),
    )
    room_pt = width_in * 72 - 14
    for ax, pair in zip(axes, pairs, strict=True):
        one = wrap(pair["one"][0], room_pt, BOLD_TICK_FONT)
        other = wrap(pair["other"][0], room_pt - 20, BOLD_TICK_FONT)
        ax.set_title(f"{one}\nless {other}", fontsize=TICK_PT)
    add_legend(figure, spread_legend(unique_values(pairs[0], "spread")))


def _draw_pair(pair: Frame, upper: "Axes", lower: "Axes") -> None:
    for curve in reversed(pair.partition_by("spread")):
        spread = curve["spread"][0]
        draw_curve(upper, curve, spread, 0.8)
        draw_line(lower, curve["wins"], LINE[spread])
    upper.axhline(0.0, **ZERO)
    lower.axhline(0.5, **{**ZERO, "linewidth": 0.5})
    lower.set_yticks([0, 0.5, 1], ["0", "½", "1"])


TRANSFER = PageLayout(columns=2, rows=3, row_in=2.3, left_in=0.5, above_in=0.8)


def draw_transfer(result: TransferEvaluation, path_stem: Path) -> list[Path]:
    """Draw mAP against k for every encoder, and write it as PDF and PNG."""
    spread = preferred_spread(result.spreads)
    panels = [make_panel(result, encoder, spread) for encoder in result.encoders]
    page = FigurePage(path_stem.name, _compose_transfer, (panels, f"mAP ({spread})"))
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


def _compose_transfer(figure: "Figure", panels: Frames, label: str) -> None:
    rows = pl.concat(panels)
    shots = unique_values(rows, "k")
    limits = axis_limits(rows.select("p01", "p99", "chance").drop_nulls())
    encoders = [panel["panel"][0] for panel in panels]
    TRANSFER.draw_panels(
        figure, panels, _draw_transfer, shots, [limits], titles=encoders
    )
    figure.supylabel(label)
    legend = list_series(unique_values(rows, "curve"))
    legend["chance"] = line_handle(CHANCE)
    add_legend(figure, legend)


def _draw_transfer(panel: Frame, ax: "Axes") -> None:
    curves = panel.partition_by("curve", maintain_order=True)
    for number, curve in enumerate(curves):
        draw_series(ax, number, curve)
    first = curves[0]
    ax.axhline(first["chance"][0], **CHANCE)
    mark_last_complete(ax, first["complete"])


SENSITIVITY = PageLayout(columns=3, rows=4, row_in=2.0, left_in=0.6, above_in=0.5)


@figure_of_report(
    "sensitivity",
    "certainty",
    "Where the spread of mAP comes from: folds, labelled examples, queries, and their "
    "interactions",
)
def plan_sensitivity(results: CorpusResults, *_: Any) -> Pages:
    """Yield the sources of every encoder's spread, if they were measured."""
    sources = results.evaluation.sensitivity.sort("k", maintain_order=True)
    panels = sources.partition_by("encoder")
    most = SENSITIVITY.capacity
    yield from make_pages("sensitivity", panels, most, _compose_sensitivity)


def _compose_sensitivity(figure: "Figure", panels: Frames) -> None:
    highest = max(max(panel["sd"]) for panel in panels)
    SENSITIVITY.draw_panels(
        figure,
        panels,
        _draw_sources,
        unique_values(panels[0], "k"),
        [(0.0, 1.05 * highest or 1.0)],
        ["standard deviation of mAP"],
        [panel["encoder"][0] for panel in panels],
    )
    add_legend(figure, list_lines(unique_values(panels[0], "source")))


def _draw_sources(panel: Frame, ax: "Axes") -> None:
    for number, line in enumerate(panel.partition_by("source")):
        draw_line(ax, line["sd"], series_style(number))
