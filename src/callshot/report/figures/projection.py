"""Embeddings → a map of each encoder: the plane of largest variance, with segments and centroids.

The names of the labels are next to their centroids if there are few, else numbers and a list.
"""

from collections.abc import Sequence
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.records import CorpusResults, FloatArray
from callshot.report.figures.figure_io import (
    ON_CHART,
    Pages,
    figure_of_report,
    freeze,
    make_pages,
)
from callshot.report.figures.layout import (
    INK,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_FONT,
    SMALL_PT,
    TICK_FONT,
    TICK_PT,
    Style,
    add_panels,
    legend_handle,
    series_style,
    set_titles,
    shorten_all,
    text_width_pt,
)
from callshot.report.plane import principal_plane
from callshot.vectors import Vectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAPS_PER_PAGE = 6
LIST_IN = 1.75
MAX_SIDE_IN = 4.2
ASPECT = 0.86
FEW_SEGMENTS = 400
MAX_SEGMENTS = 1500  # more are drawn as pixels: such a PDF would be slow to open
CENTROID: Style = {"s": 46, "edgecolors": INK, "linewidths": 0.9, "zorder": 6}
FEW_LABELS = 8
MARKER_PT = 3.5
HALF_LINE_PT = 0.6 * TICK_PT + 0.5
RINGS_PT = np.array([6.0, 12.0, 19.0, 27.0, 36.0, 46.0, 58.0, 72.0, 88.0, 106.0])
ANGLES = 2 * np.pi * np.arange(16) / 16
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
NAME: Style = {
    "textcoords": "offset points",
    "ha": "center",
    "va": "center_baseline",
    "fontsize": TICK_PT,
    "zorder": 7,
    "in_layout": False,
    "bbox": {"pad": 0.8, "facecolor": "white", "edgecolor": "none", "alpha": 0.78},
}
NAME_LINE: Style = {"arrowstyle": "-", "linewidth": 0.5, "color": INK, "shrinkB": 2}


@figure_of_report(
    "map",
    ON_CHART,
    "The embeddings in the plane of largest variance, with the centroids of the labels",
)
def plan_projection(results: CorpusResults, *_: Any) -> Pages:
    """Yield a map for every encoder, six to a page."""
    labels = [count.label for count in results.evaluation.eligible_classes]
    yield from make_pages("map", results.tables, MAPS_PER_PAGE, _compose_maps, labels)


def _compose_maps(
    figure: "Figure", tables: Sequence[Vectors], labels: Sequence[str]
) -> None:
    """Draw a map for each encoder; many labels get numbers, and a list beside the maps."""
    maps = len(tables)
    columns = 2 if maps == 4 else min(maps, 3)
    list_width_in = list_height_in = 0.0
    if len(labels) > FEW_LABELS:
        list_width_in = LIST_IN
        list_height_in = (len(labels) * 10 + 22) / 72  # 10 points a line
        ratio = (PAGE_WIDTH_IN - LIST_IN) / list_height_in
        square_columns = round(sqrt(maps * ratio))  # maps are about square
        columns = min(columns, max(1, square_columns))
    side_in = min((PAGE_WIDTH_IN - list_width_in) / columns, MAX_SIDE_IN)
    height_in = max(ceil(maps / columns) * ASPECT * side_in, list_height_in)
    figure.set_size_inches(columns * side_in + list_width_in, height_in)
    axes = add_panels(figure, maps, columns)[:, 0]
    centroids = [
        draw_map(ax, table, labels) for ax, table in zip(axes, tables, strict=True)
    ]
    set_titles(axes, [table.encoder for table in tables], side_in - 0.5)
    names = shorten_all(labels, room_pt=side_in * 22)  # a third of a side
    if len(labels) > FEW_LABELS:
        names = [str(number) for number in range(1, len(labels) + 1)]
        shown = shorten_all(labels, (LIST_IN - 0.5) * 72, SMALL_FONT)
        point = {"markersize": 4.5, "linestyle": "none"}
        figure.legend(
            [legend_handle({**_marker_style(n), **point}) for n in range(len(labels))],
            [f"{number}  {name}" for number, name in enumerate(shown, 1)],
            loc="outside right upper",
            fontsize=SMALL_PT,
            handlelength=0.8,
            labelspacing=0.35,
        )
    freeze(figure)  # names are placed where points stay
    for ax, points in zip(axes, centroids, strict=True):
        place_names(ax, points, names)


def draw_map(ax: "Axes", table: Vectors, labels: Sequence[str]) -> FloatArray:
    """Draw the segments of an encoder and the centroids of labels; return these, (labels, 2).

    A centroid is the mean of the segments of a label. Segments with another label are grey.
    """
    points, (first, second) = principal_plane(table.matrix)
    label = np.array(table.label, object)
    dots: Style = {
        "s": 9.0 if len(label) < FEW_SEGMENTS else 5.0,
        "alpha": 0.45,
        "linewidths": 0,
        "rasterized": len(label) > MAX_SEGMENTS,
        "zorder": 3,
    }
    others = points[~np.isin(label, np.array(labels, object))]
    ax.scatter(others[:, 0], others[:, 1], color=SILVER, marker=".", **dots)
    centroids = []
    for number, name in enumerate(labels):
        style = _marker_style(number)
        members = points[label == name]
        centroid = members.mean(axis=0)
        ax.scatter(members[:, 0], members[:, 1], **dots, **style)
        ax.scatter(centroid[0], centroid[1], **CENTROID, **style)
        centroids.append(centroid)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    ax.set_xlabel(f"first axis, {first:.0%} of variance")
    ax.set_ylabel(f"second axis, {second:.0%}")
    # the unit depends on the encoder and means nothing
    ax.set_xticks([])
    ax.set_yticks([])
    return np.array(centroids)


def _marker_style(number: int) -> Style:
    """Return the colour and the marker of a label."""
    style = series_style(number)
    return {"color": style["color"], "marker": style["marker"]}


def place_names(ax: "Axes", points: FloatArray, names: Sequence[str]) -> None:
    """Write a name next to each of the points, (names, 2), so that it covers no name and no point.

    Positions in rings around a point are tried, the nearest first; a name that fits nowhere is
    written on its point. A name that is far away gets a line to its point. The layout of the figure
    must be frozen.
    """
    per_pixel = 72 / ax.figure.dpi
    positions = ax.transData.transform(points) * per_pixel
    left_bottom, right_top = np.reshape(ax.bbox.extents, (2, 2)) * per_pixel
    # Lower left and upper right corners of the boxes that are taken, (boxes, 2) in points: those
    # of all markers, then of names.
    low = positions - MARKER_PT
    high = positions + MARKER_PT
    for point, position, name in zip(points, positions, names, strict=True):
        half_width = text_width_pt(name, TICK_FONT) / 2
        half = np.array([half_width + 1.5, HALF_LINE_PT])
        # The places to try, ring by ring, as shifts from the point: (places, 2)
        shifts = ((RINGS_PT[:, None, None] + half) * DIRECTIONS).reshape(-1, 2)
        starts = position + shifts - half
        ends = position + shifts + half
        is_inside = (starts >= left_bottom) & (ends <= right_top)
        # (places, boxes, 2)
        is_shared = (starts[:, None] < high) & (ends[:, None] > low)
        overlaps = is_shared.all(axis=2).any(axis=1)
        free = np.flatnonzero(is_inside.all(axis=1) & ~overlaps)
        shift = shifts[free[0]] if free.size else np.zeros(2)
        low = np.vstack([low, position + shift - half])
        high = np.vstack([high, position + shift + half])
        is_near = np.hypot(*shift) <= RINGS_PT[0] + half_width + TICK_PT
        line = None if is_near else NAME_LINE
        ax.annotate(name, tuple(point), tuple(shift), arrowprops=line, **NAME)
