"""Paired differences → a panel per pair: the difference against k, and the share of wins below."""

from typing import TYPE_CHECKING

import polars as pl

from callshot.records import CorpusResults
from callshot.report.figures.figure_io import Pages, make_pages
from callshot.report.figures.layout import (
    METRIC_NAMES,
    Frames,
    Limits,
    PageLayout,
    add_legend,
    axis_limits,
    draw_curve,
    draw_line,
)
from callshot.report.figures.spreads import spread_legend
from callshot.report.figures.style import BOLD_TICK_FONT, LINE, TICK_PT, ZERO
from callshot.report.figures.text_fit import wrap

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


def plan_differences(results: CorpusResults, metric: str) -> Pages:
    """Yield the pairs of encoders, or of an encoder and a baseline, twelve to a page."""
    rows = results.evaluation.differences.filter(metric=metric, scoring="all")
    by_k = rows.sort("k", maintain_order=True)
    yield from make_pages(
        "differences",
        by_k.partition_by("one", "other", maintain_order=True),
        LAYOUT.capacity,
        _compose,
        axis_limits(
            rows.select("p01", "p99"),
            [0.0],
            low=-1.04,
            high=1.04,
        ),
        METRIC_NAMES[metric],
    )


def _compose(figure: "Figure", pairs: Frames, limits: Limits, metric: str) -> None:
    stacks, width_in = LAYOUT.draw_panels(
        figure,
        pairs,
        _draw_pair,
        pairs[0]["k"].unique(maintain_order=True).to_list(),
        (limits, WINS_LIMITS),
        (f"difference\nof {metric}", "share\nof wins"),
    )
    room = width_in * 72 - 14
    for ax, pair in zip(stacks[:, 0], pairs, strict=True):
        one = wrap(pair["one"][0], room, BOLD_TICK_FONT)
        other = wrap(pair["other"][0], room - 20, BOLD_TICK_FONT)
        ax.set_title(f"{one}\nless {other}", fontsize=TICK_PT)
    spreads = pairs[0]["spread"].unique(maintain_order=True)
    add_legend(figure, spread_legend(spreads))


def _draw_pair(pair: pl.DataFrame, upper: "Axes", lower: "Axes") -> None:
    curves = pair.partition_by("spread", maintain_order=True)
    for curve in reversed(curves):
        spread = curve["spread"][0]
        draw_curve(upper, curve, spread, 0.8)
        draw_line(lower, curve["wins"], LINE[spread])
    upper.axhline(0.0, **ZERO)
    lower.axhline(0.5, **{**ZERO, "linewidth": 0.5})
    lower.set_yticks([0, 0.5, 1], ["0", "½", "1"])
