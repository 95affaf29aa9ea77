"""What figures share: colours, names that fit, panels, a legend, and curves against k.

The colours are those of Okabe and Ito. No colour carries a meaning alone: lines also differ in
dashes and markers, areas in lightness, so that a copy in grey can be read.

Shots are equally spaced along the axis, whatever their k. A curve is a frame sorted by k, with the
columns mean, p01 and p99.
"""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from callshot.records.frames import Frame, Shots, unique_values
from callshot.report.figures.figure_io import Pages, make_pages

Style = dict[str, Any]
Font = tuple[float, str]  # size in points, and weight

PAGE_WIDTH_IN = 7.2
PAGE_HEIGHT_IN = 9.2

TITLE_PT = 8.0
TEXT_PT = 7.5
TICK_PT = 7.0
SMALL_PT = 6.5  # no text is smaller
TITLE_FONT: Font = (TITLE_PT, "bold")
TEXT_FONT: Font = (TEXT_PT, "normal")
BOLD_FONT: Font = (TEXT_PT, "bold")
TICK_FONT: Font = (TICK_PT, "normal")
BOLD_TICK_FONT: Font = (TICK_PT, "bold")
SMALL_FONT: Font = (SMALL_PT, "normal")
BOLD_SMALL_FONT: Font = (SMALL_PT, "bold")

INK = "#1F1F1F"
GREY = "#6E6E6E"
SILVER = "#C4C4C4"
MIST = "#EBEBEB"
BLUE = "#0072B2"
VERMILION = "#D55E00"
SKY = "#56B4E9"
PALE_BLUE = "#CFE4F1"
COLOURS = (
    BLUE,
    VERMILION,
    "#009E73",  # green
    "#CC79A7",  # purple
    "#E69F00",  # orange
    SKY,
    INK,
)
SOLID = (0, ())
DASHED = (0, (4, 1.5))
DOTTED = (0, (1, 1.6))
DASHES = (
    SOLID,
    DASHED,
    (0, (5, 1.2, 1.2, 1.2)),
    (0, (1.2, 1.2)),
    (0, (7, 2)),
    (0, (3, 1, 1, 1, 1, 1)),
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
SHADES = (
    "#FFFFFF",
    "#CFE3F0",
    "#97C4E0",
    "#5BA2CE",
    "#2079B4",
    "#003F66",
)  # shares 0 to 1

BOX: Style = {"facecolor": "#B9DAEC", "edgecolor": BLUE, "linewidth": 0.6, "zorder": 3}
WHISKER: Style = {"color": BLUE, "linewidth": 0.7, "zorder": 2.5}
MEDIAN: Style = {"color": BLUE, "linewidth": 0.9, "zorder": 4}
MEAN: Style = {"color": INK, "linestyle": "none", "marker": "o", "zorder": 5}
VIOLIN: Style = {
    "facecolor": "#DCEDF6",
    "edgecolor": SKY,
    "linewidth": 0.5,
    "zorder": 2.4,
}
CHANCE: Style = {"color": INK, "linewidth": 0.9, "linestyle": DOTTED, "zorder": 2}
ZERO: Style = {"color": INK, "linewidth": 0.7, "zorder": 2.2}
LAST_COMPLETE: Style = {
    "color": GREY,
    "linewidth": 0.7,
    "linestyle": (0, (4, 2)),
    "zorder": 1,
}

# Curves with an interval: the spreads, the centroid beside a trained classifier, and a band behind
# boxes.
BAND = {
    "per-query": PALE_BLUE,
    "shared": "#FBE7C0",
    "total": "#E3E3E3",
    "centroid": PALE_BLUE,
    "trained": "#F8DCCB",
    "background": "#FBE7C0",
}
FIRST_LINE: Style = {"color": BLUE, "linestyle": SOLID, "marker": "o", "zorder": 3}
SECOND_LINE: Style = {
    "color": VERMILION,
    "linestyle": DASHED,
    "marker": "s",
    "zorder": 3,
}
LINE = {
    "per-query": FIRST_LINE,
    "shared": SECOND_LINE,
    "total": {"color": INK, "linestyle": DOTTED, "marker": "^", "zorder": 2},
    "centroid": FIRST_LINE,
    "trained": SECOND_LINE,
    "background": {"color": VERMILION, "linestyle": DASHED, "zorder": 2},
}
CROSSOVER: dict[str, Style] = {
    "k_mean": {"color": INK, "linewidth": 0.8, "linestyle": DOTTED, "zorder": 1.8},
    "k_clear": {"color": INK, "linewidth": 0.8, "linestyle": SOLID, "zorder": 1.8},
}
BASELINE: dict[str, Style] = {
    "logistic": {"color": "#00714F", "linestyle": (0, (6, 1.5))},
    "recurrent": {"color": "#A3487A", "linestyle": (0, (5, 1.2, 1.2, 1.2))},
    "end-to-end": {"color": INK, "linestyle": (0, (2.5, 1.2))},
}


def series_style(number: int) -> Style:
    """Return the style of one of several lines; colours, dashes and markers repeat differently."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "linestyle": DASHES[number % len(DASHES)],
        "marker": MARKERS[number % len(MARKERS)],
        "zorder": 3,
    }


UNPRINTABLE = "\N{REPLACEMENT CHARACTER}"


def clean_name(name: str) -> str:
    """Replace line breaks and tabs by spaces, and other control characters by a question mark."""
    spaced = re.sub(r"\s", " ", name)
    letters = [letter if letter.isprintable() else UNPRINTABLE for letter in spaced]
    return "".join(letters)


@lru_cache(16384)
def text_width_pt(text: str, font: Font = TEXT_FONT) -> float:
    """Return the width of a text in points."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import text_to_path

    size, weight = font
    properties = FontProperties(size=size, weight=weight)
    width, _, _ = text_to_path.get_text_width_height_descent(text, properties, False)
    return float(width)


def shorten(name: str, room_pt: float, font: Font = TEXT_FONT) -> str:
    """Replace as much of the middle of a name by an ellipsis as it takes to fit."""
    name = clean_name(name)

    def cut(letters: int) -> str:
        """Keep some letters of the name, half at each end."""
        first = ceil(letters / 2)
        last = len(name) - letters + first
        return f"{name[:first].rstrip()}…{name[last:].lstrip()}"

    if text_width_pt(name, font) <= room_pt:
        return name
    # The first number of letters that is too wide
    letters = bisect_left(
        range(len(name)),
        True,
        key=lambda letters: text_width_pt(cut(letters), font) > room_pt,
    )
    return cut(max(letters - 1, 1))


def shorten_all(
    names: Sequence[str], room_pt: float, font: Font = TEXT_FONT
) -> list[str]:
    """Shorten names to the room; number them all if two different names would look the same."""
    short = [shorten(name, room_pt, font) for name in names]
    different = list(dict.fromkeys(names))
    if len(set(short)) == len(different):
        return short
    numbers = [f"{different.index(name) + 1} " for name in names]
    widths_pt = [text_width_pt(number, font) for number in numbers]
    return [
        number + shorten(name, room_pt - width_pt, font)
        for number, name, width_pt in zip(numbers, names, widths_pt, strict=True)
    ]


def wrap(name: str, room_pt: float, font: Font = TEXT_FONT) -> str:
    """Break a name that does not fit at a space, or shorten it; it has two lines at most."""
    name = clean_name(name)
    first = name
    while text_width_pt(first, font) > room_pt:
        first = first.rpartition(" ")[0]
    if first == name:
        return name
    rest = shorten(name[len(first) :].strip(), room_pt, font)
    return f"{first}\n{rest}" if first else rest


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

K_LABEL = "k, exemplars per class"
INTERVAL = "mean, 1st–99th percentile"
HANDLE_PT = 21.0
COLUMN_GAP_PT = 13.0
MAX_ENTRY_PT = 200.0
TICK_STEPS = (1, 2, 5, 10, 20, 50, 100, 200, 500)
TICK_ROOM_PT = 22.0
TICK_GAP_PT = 3.0
TITLE_MARGIN_IN = 0.2
BAND_ALPHA = 0.16  # of the bands of several curves

AxesArray = NDArray[Any]
Frames = Sequence[Frame]
Legend = dict[str, Any]  # styles of lines and areas by their text
Limits = tuple[float, float]


def write_encoder_names(stacks: AxesArray, panels: Frames, width_in: float) -> None:
    """Write the name of the encoder above each panel."""
    encoders = [panel["encoder"][0] for panel in panels]
    set_titles(stacks[:, 0], encoders, width_in - TITLE_MARGIN_IN)


@dataclass(frozen=True)
class PageLayout:
    """Panels of equal size on a page: how many fit, and the room for them, in inches.

    A panel is a stack of axes with relative heights.
    """

    columns: int
    rows: int
    row_in: float
    left_in: float  # of the panels
    above_in: float
    heights: tuple[float, ...] = (1.0,)
    margin_in: float = 0.4  # beside the ticks of a panel

    @property
    def capacity(self) -> int:
        """The number of panels that fit."""
        return self.columns * self.rows

    def add_panels(
        self, figure: "Figure", count: int, labels: Sequence[str] = ("",)
    ) -> tuple[AxesArray, float]:
        """Set the size of a figure for `count` panels; return their axes, and a panel's width.

        Axes are (panels, heights), as the function `add_panels` returns them.
        """
        columns = min(self.columns, count)
        if self.columns == 3 and count == 4:  # two by two
            columns = 2
        # A single panel is half as wide as the page.
        width_in = (PAGE_WIDTH_IN - self.left_in) / max(columns, 2)
        row_in = max(self.row_in, 0.75 * width_in)
        height_in = self.above_in + ceil(count / columns) * row_in
        figure.set_size_inches(self.left_in + columns * width_in, height_in)
        return add_panels(figure, count, columns, labels, self.heights), width_in

    def plan_pages(
        self,
        stem: str,
        panels: Frames,
        draw: Callable[..., None],
        *,
        limits: Sequence[Limits],
        legend: Legend,
        labels: Sequence[str] = ("",),
        y_label: str = "",
        write_titles: Callable[..., None] = write_encoder_names,
        options: Sequence[Any] = (),
    ) -> Pages:
        """Return pages of panels in this layout; for the arguments see `compose_panels`."""
        compose = partial(
            compose_panels,
            layout=self,
            draw=draw,
            limits=limits,
            legend=legend,
            labels=labels,
            y_label=y_label,
            write_titles=write_titles,
            options=options,
        )
        return make_pages(stem, panels, self.capacity, compose)


def compose_panels(
    figure: "Figure",
    panels: Frames,
    layout: PageLayout,
    draw: Callable[..., None],
    limits: Sequence[Limits],
    legend: Legend,
    labels: Sequence[str],
    y_label: str,
    write_titles: Callable[..., None] = write_encoder_names,
    options: Sequence[Any] = (),
) -> None:
    """Draw panels against k with `draw(panel, *axes, *options)`, and a legend above them.

    A panel is a frame, drawn on a stack of axes, one for each of the heights of the layout.
    `limits` and `labels` are the vertical limits and the label of each axes of a stack; `y_label`
    is the label of all panels together. Titles are the names of encoders, unless
    `write_titles(stacks, panels, width_in)` writes others.
    """
    stacks, width_in = layout.add_panels(figure, len(panels), labels)
    for stack, panel in zip(stacks, panels, strict=True):
        draw(panel, *stack, *options)
        shots = unique_values(panel, "k")
        for ax, ends in zip(stack, limits, strict=True):
            set_scales([ax], shots, width_in - layout.margin_in, ends)
    write_titles(stacks, panels, width_in)
    if y_label:
        figure.supylabel(y_label)
    add_legend(figure, legend)


def add_panels(
    figure: "Figure",
    count: int,
    columns: int,
    labels: Sequence[str] = ("",),
    heights: Sequence[float] = (1.0,),
) -> AxesArray:
    """Add panels to a figure, row by row; return their axes, (panels, heights).

    A panel is a stack of axes with these labels and relative heights. Only panels at the left have
    labels and vertical ticks, only the last one of each column has shots.
    """
    rows = ceil(count / columns)
    depth = len(heights)
    ratios = [*heights] * rows
    grid = figure.subplots(rows * depth, columns, squeeze=False, height_ratios=ratios)
    by_panel = grid.reshape(rows, depth, columns).swapaxes(1, 2)
    stacks = by_panel.reshape(-1, depth)  # (rows · columns, heights)
    for ax in stacks[count:].flat:
        ax.set_visible(False)
    for number, stack in enumerate(stacks):
        is_left = number % columns == 0
        for ax, label in zip(stack, labels, strict=True):
            ax.set_ylabel(label if is_left else "")
            ax.tick_params(labelleft=is_left, labelbottom=False)
        stack[-1].tick_params(labelbottom=number + columns >= count)
    if any(labels):
        at_left = stacks[:count:columns]
        figure.align_ylabels(at_left.ravel().tolist())
    return stacks[:count]


def set_titles(axes: AxesArray, names: Sequence[str], room_in: float) -> None:
    """Write a name above each panel, shortened to the room."""
    titles = shorten_all(names, room_in * 72, TITLE_FONT)
    for ax, title in zip(axes, titles, strict=True):
        ax.set_title(title)


def set_scales(
    axes: Iterable["Axes"], shots: Shots, room_in: float, limits: Limits
) -> None:
    """Set the limits of panels `room_in` wide, and label as many shots as there is room for.

    `limits` are the vertical ones.
    """
    ticks = choose_ticks(shots, room_in * 72)
    labels = [str(shots[tick]) for tick in ticks]
    for ax in axes:
        ax.set_xlim(-0.75, len(shots) - 0.25)
        ax.set_xticks(ticks, labels)
        ax.set_ylim(limits)


def choose_ticks(shots: Shots, room_pt: float) -> list[int]:
    """Return the positions of the shots to label: the first, and round ones that do not touch."""
    # The axis is half a shot longer than the shots; see `set_scales`.
    pitch_pt = room_pt / max(len(shots) + 0.5, 2.0)
    for step in TICK_STEPS:
        ticks = []
        end_pt = float("-inf")
        wanted = [i for i in range(len(shots)) if i == 0 or shots[i] % step == 0]
        for tick in wanted:
            half_pt = text_width_pt(str(shots[tick]), TICK_FONT) / 2
            if tick * pitch_pt - half_pt >= end_pt + TICK_GAP_PT:
                ticks.append(tick)
                end_pt = tick * pitch_pt + half_pt
        all_fit = len(ticks) == len(shots)
        if all_fit or len(wanted) <= room_pt / TICK_ROOM_PT:
            break
    return ticks


def axis_limits(*values: ArrayLike, low: float = -0.02, high: float = 1.02) -> Limits:
    """Return the ends of an axis with all finite values and a margin, cut at `low` and `high`.

    >>> axis_limits([0.0, 0.5, float("nan")], [1.0])
    (-0.02, 1.02)
    """
    flat = np.concatenate([np.ravel(array) for array in values])
    finite = flat[np.isfinite(flat)]
    if not finite.size:
        finite = np.array([0.0, 1.0])
    bottom = float(finite.min())
    top = float(finite.max())
    margin = 0.06 * (top - bottom) or 0.05  # if all values are equal
    return max(bottom - margin, low), min(top + margin, high)


def add_legend(figure: "Figure", legend: Legend, x_label: str = K_LABEL) -> None:
    """Add a legend above all panels, in as many columns as fit, and a label below them."""
    figure.supxlabel(x_label)
    room_pt = figure.get_figwidth() * 72 - 10
    longest_pt = min(room_pt - HANDLE_PT, MAX_ENTRY_PT)
    names = [shorten(name, longest_pt, TICK_FONT) for name in legend]
    widths_pt = [text_width_pt(name, TICK_FONT) + HANDLE_PT for name in names]
    for columns in range(len(names), 0, -1):  # matplotlib fills one after the other
        widest_pt = [max(column) for column in np.array_split(widths_pt, columns)]
        if sum(widest_pt) + COLUMN_GAP_PT * (columns - 1) <= room_pt:
            break
    figure.legend(
        list(map(legend_handle, legend.values())),
        names,
        loc="outside upper center",
        ncols=columns,
        borderaxespad=0.1,
    )


def legend_handle(style: Style | tuple[Style, ...]) -> Any:
    """Return the handle of a line, of an area, or of several on top of each other."""
    from matplotlib.lines import Line2D
    from matplotlib.patches import Patch

    if isinstance(style, tuple):
        return tuple(map(legend_handle, style))
    return Patch(**style) if "facecolor" in style else Line2D([], [], **style)


def curve_styles(kind: str) -> tuple[Style, Style]:
    """Return the styles of a curve's interval and mean; `kind` is a key of BAND and LINE."""
    return {"facecolor": BAND[kind], "edgecolor": "none"}, LINE[kind]


def draw_curve(ax: "Axes", curve: Frame, kind: str, alpha: float) -> None:
    """Draw the mean of a curve and its interval; `kind` is a key of BAND and LINE."""
    draw_band(ax, curve, BAND[kind], alpha)
    draw_line(ax, curve["mean"], LINE[kind])


def draw_band(ax: "Axes", curve: Frame, colour: str, alpha: float = 1.0) -> None:
    """Draw the interval of a curve, widened to be visible if there is a single shot."""
    x = np.arange(len(curve), dtype=np.float64)
    if len(curve) == 1:
        x = np.array([-0.12, 0.12])
        curve = pl.concat([curve, curve])
    ax.fill_between(
        x,
        curve["p01"],
        curve["p99"],
        facecolor=colour,
        alpha=alpha,
        linewidth=0,
        zorder=1.5,
    )


def draw_line(ax: "Axes", values: pl.Series, style: Style) -> None:
    """Draw a line over shots, with about eight markers."""
    count = len(values)
    step = max(1, round(count / 8))
    ax.plot(range(count), values, markevery=step, **style)


def mark_last_complete(ax: "Axes", is_complete: pl.Series) -> None:
    """Draw a line behind the last complete shot, if some are not complete."""
    if not is_complete.all():
        # Halfway between the last complete shot and the next
        ax.axvline(sum(is_complete) - 0.5, **LAST_COMPLETE)


def draw_series(ax: "Axes", number: int, curve: Frame) -> None:
    """Draw one of several curves: its mean, and its interval as a band."""
    style = series_style(number)
    draw_band(ax, curve, style["color"], BAND_ALPHA)
    draw_line(ax, curve["mean"], style)


def list_series(names: Iterable[str]) -> Legend:
    """Return the legend of several curves with bands, in the order in which they are drawn."""
    legend = {}
    for number, name in enumerate(names):
        style = series_style(number)
        legend[name] = ({"facecolor": style["color"], "alpha": BAND_ALPHA}, style)
    return legend


def list_lines(names: Iterable[str]) -> Legend:
    """Return the legend of several lines, in the order in which they are drawn."""
    return {name: series_style(number) for number, name in enumerate(names)}
