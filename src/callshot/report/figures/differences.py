"""Paired differences → a panel per pair: the difference against k, and the share of wins below."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import polars as pl

from callshot.records import CorpusResults
from callshot.report.figures.figure_io import FigurePage, make_pages
from callshot.report.figures.layout import (
    K_LABEL,
    METRIC_NAMES,
    Limits,
    PageLayout,
    add_legend,
    axis_limits,
    draw_curve,
    draw_line,
    label_shots,
    label_stacks,
)
from callshot.report.figures.spreads import spread_entries
from callshot.report.figures.style import LINE, TEXT_PT, TICK_PT, ZERO
from callshot.report.figures.text_fit import wrap

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LAYOUT = PageLayout(columns=3, rows=4, row_in=2.1, left_in=0.7, above_in=0.65)


def plan_differences(results: CorpusResults, metric: str) -> Iterator[FigurePage]:
    """Yield the pairs of encoders, or of an encoder and a baseline, twelve to a page."""
    rows = results.evaluation.differences.filter(metric=metric, scoring="all")
    pairs = rows.sort("k", maintain_order=True).partition_by("one", "other", maintain_order=True)
    limits = axis_limits(rows.select("p01", "p99"), [0.0], low=-1.04, high=1.04)
    options = (limits, METRIC_NAMES[metric])
    yield from make_pages("differences", pairs, LAYOUT.panels, _compose, *options)


def _compose(figure: "Figure", pairs: Sequence[pl.DataFrame], limits: Limits, metric: str) -> None:
    stacks, width_in = LAYOUT.add_panels(figure, len(pairs), (2.6, 1))
    for (upper, lower), pair in zip(stacks, pairs, strict=True):
        curves = pair.partition_by("spread", maintain_order=True)
        _draw_differences(upper, curves)
        upper.set_ylim(limits)
        _write_title(upper, pair, width_in * 72 - 14)
        _draw_wins(lower, curves)
        for ax in (upper, lower):
            label_shots(ax, curves[0]["k"].to_list(), width_in - 0.3)
    label_stacks(figure, stacks, (f"difference\nof {metric}", "share\nof wins"))
    figure.supxlabel(K_LABEL, fontsize=TEXT_PT)
    add_legend(figure, spread_entries(pl.concat(pairs)["spread"].unique(maintain_order=True)))


def _draw_differences(ax: "Axes", curves: Sequence[pl.DataFrame]) -> None:
    for curve in reversed(curves):
        draw_curve(ax, curve, curve["spread"][0], 0.8)
    ax.axhline(0.0, **ZERO)


def _write_title(ax: "Axes", pair: pl.DataFrame, room_pt: float) -> None:
    one = wrap(pair["one"][0], room_pt, TICK_PT, "bold")
    other = wrap(pair["other"][0], room_pt - 20, TICK_PT, "bold")
    ax.set_title(f"{one}\nless {other}", fontsize=TICK_PT)


def _draw_wins(ax: "Axes", curves: Sequence[pl.DataFrame]) -> None:
    for curve in curves:
        draw_line(ax, curve["wins"], LINE[curve["spread"][0]])
    ax.axhline(0.5, **{**ZERO, "linewidth": 0.5})
    ax.set_ylim(-0.08, 1.08)
    ax.set_yticks([0, 0.5, 1], ["0", "½", "1"])
