"""What figures share: panels on a page, a legend above them, and curves against k.

Shots are equally spaced along the axis, whatever their k. A curve is a frame sorted by k, with the
columns mean, p01 and p99.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from callshot.report.figures.style import (
    BAND,
    LAST_COMPLETE,
    LINE,
    PAGE_WIDTH_IN,
    TEXT_PT,
    TICK_PT,
    Style,
)
from callshot.report.figures.text_fit import shorten, text_width_pt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

METRIC_NAMES = {"map": "mAP", "auroc": "AUROC", "accuracy": "accuracy"}
K_LABEL = "k, exemplars per class"
INTERVAL = "mean, 1st–99th percentile"
HANDLE_PT = 21.0
COLUMN_GAP_PT = 13.0
LONGEST_ENTRY_PT = 200.0
TICK_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
TICK_GAP_PT = 3.0

AxesArray = NDArray[np.object_]
Limits = tuple[float, float]


@dataclass(frozen=True)
class PageLayout:
    """Panels of equal size on a page: how many fit, and the room for them, in inches."""

    columns: int
    rows: int
    row_in: float
    left_in: float  # of the panels
    above_in: float
    fewest_columns: int = 2  # with fewer, panels do not get wider

    @property
    def panels(self) -> int:
        """The number of panels that fit."""
        return self.columns * self.rows

    def add_panels(
        self, figure: "Figure", count: int, heights: Sequence[float] = (1.0,)
    ) -> tuple[AxesArray, float]:
        """Set the size of a figure; return the axes of its panels, and the width of a panel."""
        columns = min(self.columns, count)
        width_in = (PAGE_WIDTH_IN - self.left_in) / max(columns, self.fewest_columns)
        row_in = max(self.row_in, 0.75 * width_in)
        height_in = self.above_in + ceil(count / columns) * row_in
        figure.set_size_inches(self.left_in + columns * width_in, height_in)
        return add_panels(figure, count, columns, heights), width_in


def add_panels(
    figure: "Figure", count: int, columns: int, heights: Sequence[float] = (1.0,)
) -> AxesArray:
    """Return axes (panels, heights): a panel is a stack of axes of these relative heights.

    Only the panels at the left and at the bottom have tick labels.
    """
    rows = ceil(count / columns)
    depth = len(heights)
    grid = figure.subplots(rows * depth, columns, squeeze=False, height_ratios=list(heights) * rows)
    stacks = grid.reshape(rows, depth, columns).swapaxes(1, 2).reshape(-1, depth)
    for number, stack in enumerate(stacks):
        is_bottom = number + columns >= count
        for ax in stack:
            ax.set_visible(number < count)
            ax.tick_params(
                labelleft=number % columns == 0, labelbottom=is_bottom and ax is stack[-1]
            )
    return np.asarray(stacks[:count])


def label_axes(figure: "Figure", y_label: str) -> None:
    """Label the axes of all panels once."""
    figure.supxlabel(K_LABEL, fontsize=TEXT_PT)
    figure.supylabel(y_label, fontsize=TEXT_PT)


def label_stacks(figure: "Figure", stacks: AxesArray, labels: Sequence[str]) -> None:
    """Label the vertical axes of the panels at the left, and align the labels."""
    left = [stack for stack in stacks if stack[0].get_subplotspec().is_first_col()]
    for stack in left:
        for ax, label in zip(stack, labels, strict=True):
            ax.set_ylabel(label)
    figure.align_ylabels([ax for stack in left for ax in stack])


def add_legend(figure: "Figure", entries: Mapping[str, Any]) -> None:
    """Add a legend above all panels; `entries` are handles by their text."""
    room = figure.get_figwidth() * 72 - 10
    longest = min(room - HANDLE_PT, LONGEST_ENTRY_PT)
    names = [shorten(name, longest, TICK_PT) for name in entries]
    widths = [text_width_pt(name, TICK_PT) + HANDLE_PT for name in names]
    figure.legend(
        list(entries.values()),
        names,
        loc="outside upper center",
        ncols=_count_columns(widths, room),
        borderaxespad=0.1,
    )


def _count_columns(widths: Sequence[float], room_pt: float) -> int:
    """Return the most columns that fit; matplotlib fills one after the other."""
    for count in range(len(widths), 1, -1):
        columns = [max(column) for column in np.array_split(widths, count)]
        if sum(columns) + COLUMN_GAP_PT * (count - 1) <= room_pt:
            return count
    return 1


def line_handle(style: Style) -> "Line2D":
    """Return the handle of a line in a legend."""
    from matplotlib.lines import Line2D

    return Line2D([], [], **style)


def patch_handle(style: Style) -> "Patch":
    """Return the handle of an area in a legend."""
    from matplotlib.patches import Patch

    return Patch(**style)


def curve_handle(kind: str) -> tuple["Patch", "Line2D"]:
    """Return the handle of a curve with its interval; `kind` is a key of BAND and LINE."""
    band = patch_handle({"facecolor": BAND[kind], "edgecolor": "none"})
    return band, line_handle(LINE[kind])


def axis_limits(*values: ArrayLike, low: float = -0.02, high: float = 1.02) -> Limits:
    """Return the ends of an axis with all values and a margin, within `low` and `high`.

    >>> axis_limits([0.0, 0.5, float("nan")], [1.0])
    (-0.02, 1.02)
    """
    flat = np.concatenate([np.ravel(array) for array in values])
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        return axis_limits([0.0, 1.0], low=low, high=high)
    margin = 0.06 * float(np.ptp(finite)) or 0.05
    return max(float(finite.min()) - margin, low), min(float(finite.max()) + margin, high)


def label_shots(ax: "Axes", shots: Sequence[int], room_in: float) -> None:
    """Label the shots on the horizontal axis, as many as there is room for."""
    ax.set_xlim(-0.75, len(shots) - 0.25)
    ticks = choose_ticks(shots, room_in * 72)
    ax.set_xticks(ticks, [str(shots[tick]) for tick in ticks])


def choose_ticks(shots: Sequence[int], room_pt: float) -> list[int]:
    """Return the positions of the shots to label: the first, and round ones that do not touch."""
    pitch = room_pt / max(len(shots) + 0.5, 2.0)
    everything = list(range(len(shots)))
    for step in TICK_STEPS:
        round_shots = [i for i in everything if i == 0 or shots[i] % step == 0]
        ticks = _drop_touching(round_shots, shots, pitch)
        if ticks == everything or 1 < len(round_shots) <= room_pt / 22:
            return ticks
    return _drop_touching(everything, shots, pitch)


def _drop_touching(ticks: Sequence[int], shots: Sequence[int], pitch: float) -> list[int]:
    """Drop the ticks whose label would touch the one before."""
    apart = []
    end = float("-inf")
    for tick in ticks:
        half_width = text_width_pt(str(shots[tick]), TICK_PT) / 2
        if tick * pitch - half_width >= end + TICK_GAP_PT:
            apart.append(tick)
            end = tick * pitch + half_width
    return apart


def mark_last_complete(ax: "Axes", complete: int, shots: int) -> None:
    """Draw a line behind the last complete shot, if some are not complete."""
    if complete < shots:
        ax.axvline(complete - 0.5, **LAST_COMPLETE)


def draw_curve(ax: "Axes", curve: pl.DataFrame, kind: str, alpha: float) -> None:
    """Draw the mean of a curve and its interval; `kind` is a key of BAND and LINE."""
    draw_band(ax, curve, BAND[kind], alpha)
    draw_line(ax, curve["mean"], LINE[kind])


def draw_band(ax: "Axes", curve: pl.DataFrame, colour: str, alpha: float = 1.0) -> None:
    """Draw the interval of a curve; that of a single shot is wide enough to be seen."""
    x = np.arange(len(curve), dtype=np.float64)
    if len(curve) == 1:
        x = np.array([-0.12, 0.12])
        curve = pl.concat([curve, curve])
    style: Style = {"facecolor": colour, "alpha": alpha, "linewidth": 0, "zorder": 1.5}
    ax.fill_between(x, curve["p01"], curve["p99"], **style)


def draw_line(ax: "Axes", values: pl.Series, style: Style) -> None:
    """Draw a line over shots, with about eight markers."""
    every = max(1, round(len(values) / 8))
    ax.plot(range(len(values)), values, markevery=every, **style)
