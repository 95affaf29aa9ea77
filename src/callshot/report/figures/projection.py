"""Embeddings → a map of each encoder: the plane of largest variance, with segments and centroids.

The names of the labels are next to their centroids if there are few, else numbers and a list.
"""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from callshot.records import CorpusResults, Embeddings, FloatArray, IntArray
from callshot.report.figures.figure_io import (
    Pages,
    figure_of_report,
    freeze,
    make_pages,
)
from callshot.report.figures.layout import add_panels, line_handle, set_titles
from callshot.report.figures.style import (
    INK,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_FONT,
    SMALL_PT,
    TICK_FONT,
    TICK_PT,
    Style,
    series_style,
    shorten_all,
    text_width_pt,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAPS_PER_PAGE = 6
LARGE_MATRIX = 100  # rows
FEW_LABELS = 8
LIST_IN = 1.75
LARGEST_IN = 4.2
ASPECT = 0.86
FEW_SEGMENTS = 400
MANY_SEGMENTS = (
    1500  # more are drawn as pixels in the PDF, which would be slow to open otherwise
)
CENTROID: Style = {"s": 46, "edgecolors": INK, "linewidths": 0.9, "zorder": 6}
OTHER_LABELS: Style = {"color": SILVER, "marker": "."}

MARKER_PT = 3.5
HALF_LINE_PT = 0.6 * TICK_PT + 0.5
RINGS_PT = np.array([6.0, 12.0, 19.0, 27.0, 36.0, 46.0, 58.0, 72.0, 88.0, 106.0])
ANGLES = 2 * np.pi * np.arange(16) / 16
DIRECTIONS = np.stack([np.cos(ANGLES), np.sin(ANGLES)], axis=1)
BACKGROUND: Style = {
    "boxstyle": "square,pad=0.12",
    "facecolor": "white",
    "edgecolor": "none",
    "alpha": 0.78,
}
NAME: Style = {
    "textcoords": "offset points",
    "ha": "center",
    "va": "center_baseline",
    "fontsize": TICK_PT,
    "zorder": 7,
    "bbox": BACKGROUND,
}
NAME_LINE: Style = {
    "arrowstyle": "-",
    "linewidth": 0.5,
    "color": INK,
    "shrinkA": 0,
    "shrinkB": 2,
}


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


@figure_of_report(
    "map",
    "listen",
    "The embeddings in the plane of largest variance, with the centroids of the labels",
)
def plan_projection(results: CorpusResults, *_: Any) -> Pages:
    """Yield a map for every encoder, six to a page."""
    labels = [count.label for count in results.evaluation.eligible_classes]
    yield from make_pages("map", results.tables, MAPS_PER_PAGE, _compose, labels)


def principal_plane(
    vectors: NDArray[np.floating[Any]],
) -> tuple[FloatArray, FloatArray]:
    """Project vectors to the plane of largest variance; return points and shares of the variance.

    The axes are eigenvectors of X'X, or come from those of XX' where there are fewer segments than
    dimensions: much faster than a singular value decomposition. Each axis points towards its
    farthest segment.

    >>> points, shares = principal_plane(np.array([[0.0, 3.0], [0.0, 1.0], [0.0, -4.0]]))
    >>> points[:, 0].tolist(), shares.tolist()
    ([-3.0, -1.0, 4.0], [1.0, 0.0])
    """
    whole = np.asarray(vectors, np.float64)
    centred = whole - whole.mean(axis=0)
    if centred.shape[1] < 2:
        centred = np.pad(centred, ((0, 0), (0, 1)))
    is_wide = 1 < len(centred) < centred.shape[1]
    products = centred @ centred.T if is_wide else centred.T @ centred
    variances, axes = _largest_two(products)
    largest = np.maximum(variances, 0.0)
    points = axes * np.sqrt(largest) if is_wide else centred @ axes
    total = np.trace(products) or 1.0
    return _point_to_farthest(points), largest / total


def _largest_two(products: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the two largest eigenvalues of a matrix, falling, and their vectors as columns.

    Lanczos' iteration is ten times as fast for large matrices; its first vector is fixed, so that
    equal matrices give equal bytes.
    """
    from scipy.linalg import eigh
    from scipy.sparse.linalg import ArpackError, eigsh

    size = len(products)
    if size >= LARGE_MATRIX:
        with suppress(ArpackError):
            variances, axes = eigsh(products, 2, v0=np.cos(np.arange(size)))
            return variances[::-1], axes[:, ::-1]
    variances, axes = eigh(products, subset_by_index=(size - 2, size - 1))
    return variances[::-1], axes[:, ::-1]


def _point_to_farthest(points: FloatArray) -> FloatArray:
    """Return points with each axis towards its farthest one."""
    farthest = np.abs(points).argmax(axis=0)
    sign = np.where(points[farthest, (0, 1)] < 0, -1.0, 1.0)
    turned: FloatArray = points * sign
    return turned


def project(table: Embeddings, labels: Sequence[str]) -> Projection:
    """Return the map of an encoder; the centroid of a label is the mean of its segments."""
    points, shares = principal_plane(table.vectors)
    numbers = {name: number for number, name in enumerate(labels)}
    label = np.array([numbers.get(name, -1) for name in table.label])
    centroids = []
    for number in range(len(labels)):
        members = points[label == number]
        centroids.append(members.mean(axis=0))
    return Projection(points, shares, label, np.array(centroids))


def _compose(
    figure: "Figure", tables: Sequence[Embeddings], labels: Sequence[str]
) -> None:
    columns, side_in = _set_size(figure, len(tables), len(labels))
    axes = add_panels(figure, len(tables), columns)[:, 0]
    maps = [project(table, labels) for table in tables]
    for ax, projection in zip(axes, maps, strict=True):
        _draw_map(ax, projection)
    set_titles(axes, [table.encoder for table in tables], side_in - 0.5)
    names = shorten_all(labels, side_in * 22)
    if len(labels) > FEW_LABELS:
        _list_names(figure, labels)
        names = [str(number) for number in range(1, len(labels) + 1)]
    freeze(figure)
    for ax, projection in zip(axes, maps, strict=True):
        place_names(ax, projection.centroids, names)


def _set_size(figure: "Figure", maps: int, labels: int) -> tuple[int, float]:
    """Set the size of a figure; return the number of columns, and the width of a map."""
    columns = 2 if maps == 4 else min(maps, 3)
    list_width_in = 0.0
    list_height_in = 0.0
    if labels > FEW_LABELS:
        list_width_in = LIST_IN
        list_height_in = (labels * 10 + 22) / 72
        ratio = (PAGE_WIDTH_IN - LIST_IN) / list_height_in
        square_columns = round(sqrt(maps * ratio))  # maps are about square
        columns = min(columns, max(1, square_columns))
    side_in = min((PAGE_WIDTH_IN - list_width_in) / columns, LARGEST_IN)
    width_in = columns * side_in + list_width_in
    height_in = ceil(maps / columns) * ASPECT * side_in
    figure.set_size_inches(width_in, max(height_in, list_height_in))
    return columns, side_in


def _draw_map(ax: "Axes", projection: Projection) -> None:
    _draw_segments(ax, projection, -1, OTHER_LABELS)
    for number, (x, y) in enumerate(projection.centroids):
        style = _marker_style(number)
        _draw_segments(ax, projection, number, style)
        ax.scatter(x, y, **CENTROID, **style)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    ax.grid(visible=False)
    first, second = projection.shares
    ax.set_xlabel(f"first axis, {first:.0%} of variance")
    ax.set_ylabel(f"second axis, {second:.0%}")
    # the unit depends on the encoder and means nothing
    ax.tick_params(labelbottom=False, labelleft=False, length=0)


def _draw_segments(
    ax: "Axes", projection: Projection, number: int, style: Style
) -> None:
    points = projection.points[projection.label == number]
    segments = len(projection.label)
    ax.scatter(
        points[:, 0],
        points[:, 1],
        s=9.0 if segments < FEW_SEGMENTS else 5.0,
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
    names = shorten_all(labels, (LIST_IN - 0.5) * 72, SMALL_FONT)
    handles = []
    for number in range(len(labels)):
        style = {**_marker_style(number), "markersize": 4.5, "linestyle": "none"}
        handles.append(line_handle(style))
    figure.legend(
        handles,
        [f"{number}  {name}" for number, name in enumerate(names, 1)],
        loc="outside right upper",
        fontsize=SMALL_PT,
        handlelength=0.8,
        labelspacing=0.35,
    )


def place_names(ax: "Axes", points: FloatArray, names: Sequence[str]) -> None:
    """Write a name next to each point, so that it covers neither another name nor a point.

    A name that is far away gets a line to its point. The layout of the figure must be frozen.
    """
    per_pixel = 72 / ax.figure.dpi
    positions = ax.transData.transform(points) * per_pixel
    frame = np.asarray(ax.bbox.extents) * per_pixel
    boxes = _make_boxes(positions, np.full(2, MARKER_PT))
    for point, position, name in zip(points, positions, names, strict=True):
        half_width = text_width_pt(name, TICK_FONT) / 2
        half_size = np.array([half_width + 1.5, HALF_LINE_PT])
        shift = _find_shift(position, half_size, frame, boxes)
        box = _make_boxes(position + shift, half_size)
        boxes = np.vstack([boxes, box])
        near = RINGS_PT[0] + half_width + TICK_PT
        line = NAME_LINE if np.hypot(*shift) > near else None
        text = ax.annotate(name, tuple(point), tuple(shift), arrowprops=line, **NAME)
        text.set_in_layout(False)


def _find_shift(
    position: FloatArray, half_size: FloatArray, frame: FloatArray, boxes: FloatArray
) -> FloatArray:
    """Return the smallest shift to a free place inside the frame, or none if all are taken."""
    shifts = (RINGS_PT[:, None, None] + half_size) * DIRECTIONS
    shift: FloatArray
    for shift in shifts.reshape(-1, 2):
        box = _make_boxes(position + shift, half_size)
        if _is_free(box, frame, boxes):
            return shift
    return np.zeros(2)


def _is_free(box: FloatArray, frame: FloatArray, boxes: FloatArray) -> bool:
    """Return whether a box is inside the frame and overlaps no other."""
    low = box[:2]
    high = box[2:]
    if np.any(low < frame[:2]) or np.any(high > frame[2:]):
        return False
    starts_before = low < boxes[:, 2:]
    ends_after = high > boxes[:, :2]
    overlaps = np.all(starts_before & ends_after, axis=1)
    return not overlaps.any()


def _make_boxes(centres: FloatArray, half_size: FloatArray) -> FloatArray:
    """Return boxes as left, bottom, right, top."""
    return np.concatenate([centres - half_size, centres + half_size], axis=-1)
