"""Embeddings → maps of encoders, and vectors → points in the plane of largest variance."""

from collections.abc import Sequence
from contextlib import suppress
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from callshot.records import CorpusResults, FloatArray
from callshot.report.figures.figure_io import (
    ON_CHART,
    Pages,
    figure_of_report,
    make_pages,
)
from callshot.report.figures.layout import (
    INK,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_FONT,
    SMALL_PT,
    Style,
    add_panels,
    legend_handle,
    series_style,
    set_titles,
    shorten_all,
)
from callshot.vectors import Vectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LARGE_MATRIX = 100  # rows and columns
SIDE = 1000  # of a map, in whole numbers


def principal_plane(
    vectors: NDArray[np.floating[Any]],
) -> tuple[FloatArray, FloatArray]:
    """Project vectors, (segments, dimensions), to the plane of largest variance.

    Return points, (segments, 2), and the share of the variance that each axis has, (2,). Each axis
    points towards its farthest segment. Large matrices are decomposed by Lanczos' iteration, which
    is much faster; its first vector is fixed, so that equal vectors give equal bytes.

    >>> points, shares = principal_plane(np.array([[0.0, 3.0], [0.0, 1.0], [0.0, -4.0]]))
    >>> points[:, 0].round(9).tolist(), shares.round(9).tolist()
    ([-3.0, -1.0, 4.0], [1.0, 0.0])
    """
    from scipy.sparse.linalg import ArpackError, svds

    floats = np.asarray(vectors, np.float64)
    centred = floats - floats.mean(axis=0)
    # A plane needs two rows and two columns.
    missing = [(0, max(0, 2 - size)) for size in centred.shape]
    centred = np.pad(centred, missing)
    size = min(centred.shape)
    left = None
    if size >= LARGE_MATRIX:
        first_vector = np.cos(np.arange(size))
        with suppress(ArpackError):
            rising, rising_values, _ = svds(centred, 2, v0=first_vector)
            left = rising[:, ::-1]
            values = rising_values[::-1]
    if left is None:
        left, values, _ = np.linalg.svd(centred, full_matrices=False)
    largest = values[:2]
    projected = left[:, :2] * largest
    points = projected[: len(floats)]
    farthest = np.abs(points).argmax(axis=0)
    is_negative = points[farthest, (0, 1)] < 0
    sign = np.where(is_negative, -1.0, 1.0)
    total = np.sum(centred**2) or 1.0
    return points * sign, largest**2 / total


def scale_points(points: FloatArray) -> list[list[int]]:
    """Return points, (points, 2), as whole numbers from 0 to SIDE; both axes have the same unit."""
    low = points.min(axis=0)
    extent = points.max(axis=0) - low
    width = float(extent.max()) or 1.0
    middle = (SIDE - SIDE * extent / width) / 2
    scaled = SIDE * (points - low) / width + middle
    whole: list[list[int]] = np.rint(scaled).astype(int).tolist()
    return whole


MAPS_PER_PAGE = 6
LIST_IN = 1.75  # of the labels, beside the maps
MAX_SIDE_IN = 4.2
ASPECT = 0.86
FEW_SEGMENTS = 400
MAX_SEGMENTS = 1500  # more are drawn as pixels: such a PDF would be slow to open
CENTROID: Style = {"s": 46, "edgecolors": INK, "linewidths": 0.9, "zorder": 6}


@figure_of_report(
    "map",
    ON_CHART,
    "The embeddings in the plane of largest variance, with the centroids of the labels",
)
def plan_projection(results: CorpusResults, *_: Any) -> Pages:
    """Yield a map for every encoder, six to a page."""
    labels = results.evaluation.eligible_labels
    yield from make_pages("map", results.tables, MAPS_PER_PAGE, _compose_maps, labels)


def _compose_maps(
    figure: "Figure", tables: Sequence[Vectors], labels: Sequence[str]
) -> None:
    """Draw a map for each encoder, and a list of the labels beside them."""
    maps = len(tables)
    list_height_in = (len(labels) * 10 + 22) / 72
    room_in = PAGE_WIDTH_IN - LIST_IN
    square_columns = round(sqrt(maps * room_in / list_height_in))
    most_columns = 2 if maps == 4 else 3
    columns = min(most_columns, maps, max(1, square_columns))
    rows = ceil(maps / columns)
    side_in = min(room_in / columns, MAX_SIDE_IN)
    width_in = columns * side_in + LIST_IN
    height_in = max(rows * ASPECT * side_in, list_height_in)
    figure.set_size_inches(width_in, height_in)
    axes = add_panels(figure, maps, columns)[:, 0]
    for ax, table in zip(axes, tables, strict=True):
        draw_map(ax, table, labels)
    encoders = [table.encoder for table in tables]
    set_titles(axes, encoders, side_in - 0.5)
    point = {"markersize": 4.5, "linestyle": "none"}
    styles = [series_style(n) for n in range(len(labels))]
    names_room_pt = (LIST_IN - 0.4) * 72
    figure.legend(
        [legend_handle({**style, **point}) for style in styles],
        shorten_all(labels, names_room_pt, SMALL_FONT),
        loc="outside right upper",
        fontsize=SMALL_PT,
        handlelength=0.8,
        labelspacing=0.35,
    )


def draw_map(ax: "Axes", table: Vectors, labels: Sequence[str]) -> None:
    """Draw segments and the means of labels; segments with another label are grey."""
    points, (first, second) = principal_plane(table.matrix)
    label = np.array(table.label, object)
    dots: Style = {
        "s": 9.0 if len(label) < FEW_SEGMENTS else 5.0,
        "alpha": 0.45,
        "linewidths": 0,
        "rasterized": len(label) > MAX_SEGMENTS,
        "zorder": 3,
    }
    is_shown = np.isin(label, np.array(labels, object))
    others = points[~is_shown]
    ax.scatter(others[:, 0], others[:, 1], color=SILVER, marker=".", **dots)
    for number, name in enumerate(labels):
        style = series_style(number)
        look = {"color": style["color"], "marker": style["marker"]}
        members = points[label == name]
        centroid = members.mean(axis=0)
        ax.scatter(members[:, 0], members[:, 1], **dots, **look)
        ax.scatter(centroid[0], centroid[1], **CENTROID, **look)
    ax.set_aspect("equal", adjustable="datalim")
    ax.margins(0.08)
    ax.set_xlabel(f"first axis, {first:.0%} of variance")
    ax.set_ylabel(f"second axis, {second:.0%}")
    # the unit depends on the encoder and means nothing
    ax.set_xticks([])
    ax.set_yticks([])
