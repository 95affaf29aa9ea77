"""Paired differences → a panel per pair: the difference against k, and the share of wins below."""

from typing import TYPE_CHECKING

from callshot.records import CorpusResults
from callshot.records.frames import Frame, unique_values
from callshot.report.figures.figure_io import Pages, make_pages
from callshot.report.figures.layout import (
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
from callshot.report.figures.text_width import wrap

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


def plan_differences(results: CorpusResults) -> Pages:
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
