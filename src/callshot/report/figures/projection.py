"""Embeddings → a map of each encoder: the plane of largest variance, with segments and centroids.

The names of the labels are next to their centroids if there are few, else numbers and a list.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from callshot.records import CorpusResults, Embeddings, FloatArray, IntArray
from callshot.report.figures.figure_io import FigurePage, freeze, make_pages
from callshot.report.figures.layout import add_panels, line_handle
from callshot.report.figures.panels import set_title
from callshot.report.figures.style import (
    INK,
    PAGE_HEIGHT_IN,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_PT,
    TICK_PT,
    Style,
    series_style,
)
from callshot.report.figures.text_fit import shorten_all, text_width_pt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAPS_PER_PAGE = 6
FEW_LABELS = 8
LIST_IN = 1.75
LARGEST_IN = 4.2
ASPECT = 0.86
MANY_SEGMENTS = 1500  # more are drawn as pixels in the PDF, which would be slow to open otherwise
OTHER_LABELS: Style = {"color": SILVER, "marker": "."}

MARKER_PT = 3.5
RINGS_PT = np.array([6.0, 12.0, 19.0, 27.0, 36.0, 46.0, 58.0, 72.0, 88.0, 106.0])
ANGLES = 2 * np.pi * np.arange(16) / 16
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)


@dataclass(frozen=True)
class Projection:
    """The segments of one encoder in the plane.

    `points` is (segments, 2), `shares` are those of the variance, `label` is the number of each
    segment's label, −1 if it is not evaluated.
    """

    points: FloatArray
    shares: FloatArray
    label: IntArray
    centroids: FloatArray


def plan_projection(results: CorpusResults) -> Iterator[FigurePage]:
    """Yield a map for every encoder, six to a page."""
    labels = [count.label for count in results.evaluation.classes if count.eligible]
    yield from make_pages("map", results.tables, MAPS_PER_PAGE, _compose, labels)


def principal_plane(vectors: NDArray[np.floating[Any]]) -> tuple[FloatArray, FloatArray]:
    """Project vectors to the plane of largest variance; return points and shares of the variance.

    The axes are eigenvectors of the smaller of X'X and XX', which is much faster than a whole
    singular value decomposition. Each axis points towards its farthest segment.

    >>> points, shares = principal_plane(np.array([[0.0, 3.0], [0.0, 1.0], [0.0, -4.0]]))
    >>> points[:, 0].tolist(), shares.tolist()
    ([-3.0, -1.0, 4.0], [1.0, 0.0])
    """
    from scipy.linalg import eigh

    centred = np.asarray(vectors, np.float64)
    centred = centred - centred.mean(axis=0)
    scale = float(np.abs(centred).max(initial=0.0)) or 1.0
    centred = centred / scale
    size = min(centred.shape)
    is_tall = size == centred.shape[1]
    products = centred.T @ centred if is_tall else centred @ centred.T
    squares, axes = eigh(products, subset_by_index=(max(size - 2, 0), size - 1))
    squares = np.maximum(squares[::-1], 0.0)
    axes = axes[:, ::-1]
    points = centred @ axes if is_tall else axes * np.sqrt(squares)
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    shares = np.pad(squares, (0, 2))[:2] / (np.trace(products) or 1.0)
    farthest = points[np.abs(points).argmax(axis=0), (0, 1)]
    return points * np.where(farthest < 0, -1.0, 1.0) * scale, shares


def project(table: Embeddings, labels: Sequence[str]) -> Projection:
    """Return the map of an encoder; the centroid of a label is the mean of its segments."""
    points, shares = principal_plane(table.vectors)
    numbers = {name: number for number, name in enumerate(labels)}
    label = np.array([numbers.get(name, -1) for name in table.label], np.int64)
    centroids = [points[label == number].mean(axis=0) for number in range(len(labels))]
    return Projection(points, shares, label, np.array(centroids))


def _compose(figure: "Figure", tables: Sequence[Embeddings], labels: Sequence[str]) -> None:
    is_listed = len(labels) > FEW_LABELS
    list_height_in = (len(labels) * 10 + 22) / 72 if is_listed else 0.0
    list_width_in = LIST_IN if is_listed else 0.0
    columns = _count_columns(len(tables), list_height_in)
    side_in = _side_in(columns, list_height_in)
    height_in = max(_height_in(len(tables), columns, list_height_in), list_height_in)
    figure.set_size_inches(side_in * columns + list_width_in, height_in)
    axes = add_panels(figure, len(tables), columns)[:, 0]
    maps = [project(table, labels) for table in tables]
    for ax, table, projection in zip(axes, tables, maps, strict=True):
        _draw_map(ax, projection)
        set_title(ax, table.encoder, side_in - 0.5)
    names = [str(number + 1) for number in range(len(labels))]
    if is_listed:
        _list_names(figure, labels)
    else:
        names = shorten_all(labels, side_in * 22)
    freeze(figure)
    for ax, projection in zip(axes, maps, strict=True):
        place_names(ax, projection.centroids, names, TICK_PT)


def _count_columns(maps: int, list_height_in: float) -> int:
    """Return up to three columns, fewer if the list of names is much taller than the maps."""
    columns = 2 if maps == 4 else min(maps, 3)
    while columns > 1:
        is_tall_enough = _height_in(maps, columns, list_height_in) >= 0.8 * list_height_in
        if is_tall_enough or _height_in(maps, columns - 1, list_height_in) > PAGE_HEIGHT_IN:
            break
        columns -= 1
    return columns


def _height_in(maps: int, columns: int, list_height_in: float) -> float:
    return ceil(maps / columns) * ASPECT * _side_in(columns, list_height_in)


def _side_in(columns: int, list_height_in: float) -> float:
    list_width_in = LIST_IN if list_height_in > 0 else 0.0
    return min((PAGE_WIDTH_IN - list_width_in) / columns, LARGEST_IN)


def _draw_map(ax: "Axes", projection: Projection) -> None:
    for number in range(-1, len(projection.centroids)):
        _draw_segments(ax, projection, number)
    for number, (x, y) in enumerate(projection.centroids):
        style = {**_marker_style(number), "edgecolors": INK, "linewidths": 0.9}
        ax.scatter(x, y, s=46, zorder=6, **style)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    ax.grid(visible=False)
    ax.set_xlabel(f"first axis, {projection.shares[0]:.0%} of variance")
    ax.set_ylabel(f"second axis, {projection.shares[1]:.0%}")
    # the unit depends on the encoder and means nothing
    ax.tick_params(labelbottom=False, labelleft=False, length=0)


def _draw_segments(ax: "Axes", projection: Projection, number: int) -> None:
    points = projection.points[projection.label == number]
    segments = len(projection.label)
    style = OTHER_LABELS if number < 0 else _marker_style(number)
    ax.scatter(
        points[:, 0],
        points[:, 1],
        s=9.0 if segments < 400 else 5.0,
        alpha=0.45,
        linewidths=0,
        rasterized=segments > MANY_SEGMENTS,
        zorder=3,
        **style,
    )


def _marker_style(number: int) -> Style:
    style = series_style(number)
    return {"color": style["color"], "marker": style["marker"]}


def _list_names(figure: "Figure", labels: Sequence[str]) -> None:
    names = shorten_all(labels, (LIST_IN - 0.5) * 72, SMALL_PT)
    handles = []
    for number in range(len(labels)):
        style = {**_marker_style(number), "markersize": 4.5, "linestyle": "none"}
        handles.append(line_handle(style))
    figure.legend(
        handles,
        [f"{number + 1}  {name}" for number, name in enumerate(names)],
        loc="outside right upper",
        fontsize=SMALL_PT,
        handlelength=0.8,
        labelspacing=0.35,
    )


def place_names(ax: "Axes", points: FloatArray, names: Sequence[str], size: float) -> None:
    """Write a name next to each point, so that it covers neither another name nor a point.

    A name that is far away gets a line to its point. The layout of the figure must be frozen.
    """
    per_pixel = 72 / ax.figure.dpi
    positions = ax.transData.transform(points) * per_pixel
    frame = np.asarray(ax.bbox.extents) * per_pixel
    boxes = _make_boxes(positions, np.full(2, MARKER_PT))
    for point, position, name in zip(points, positions, names, strict=True):
        half_size = np.array([text_width_pt(name, size) / 2 + 1.5, 0.6 * size + 0.5])
        shift = _find_shift(position, half_size, frame, boxes)
        boxes = np.vstack([boxes, _make_boxes(position + shift, half_size)])
        is_far = np.hypot(*shift) > RINGS_PT[0] + text_width_pt(name, size) / 2 + size
        _write_name(ax, name, point, shift, size, is_far=bool(is_far))


def _find_shift(
    position: FloatArray, half_size: FloatArray, frame: FloatArray, boxes: FloatArray
) -> FloatArray:
    """Return the smallest shift to a free place inside the frame, or none if all are taken."""
    shifts = (RINGS_PT[:, None, None] + half_size) * DIRECTIONS
    shifts = shifts.reshape(-1, 2)
    candidates = _make_boxes(position + shifts, half_size)
    low = candidates[:, :2]
    high = candidates[:, 2:]
    is_inside = (low >= frame[:2]).all(axis=1) & (high <= frame[2:]).all(axis=1)
    overlaps = (low[:, None] < boxes[:, 2:]) & (high[:, None] > boxes[:, :2])
    is_free = is_inside & ~overlaps.all(axis=2).any(axis=1)
    return shifts[is_free.argmax()] if is_free.any() else np.zeros(2)


def _make_boxes(centres: FloatArray, half_size: FloatArray) -> FloatArray:
    """Return boxes as left, bottom, right, top."""
    return np.concatenate([centres - half_size, centres + half_size], axis=-1)


def _write_name(
    ax: "Axes", name: str, point: FloatArray, shift: FloatArray, size: float, *, is_far: bool
) -> None:
    background = {"boxstyle": "square,pad=0.12", "facecolor": "white", "edgecolor": "none"}
    line = {"arrowstyle": "-", "linewidth": 0.5, "color": INK, "shrinkA": 0, "shrinkB": 2}
    text = ax.annotate(
        name,
        tuple(point),
        tuple(shift),
        textcoords="offset points",
        ha="center",
        va="center_baseline",
        fontsize=size,
        zorder=7,
        bbox={**background, "alpha": 0.78},
        arrowprops=line if is_far else None,
    )
    text.set_in_layout(False)
