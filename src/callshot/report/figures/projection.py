"""Embeddings → a map of each encoder's: the plane of largest variance, segments by label, and the labels' centroids."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from callshot.records import CorpusResults, Embeddings, FloatArray
from callshot.report.figures.figure_io import FigurePage, freeze, pages
from callshot.report.figures.label_placement import place_names
from callshot.report.figures.panels import title
from callshot.report.figures.style import INK, SILVER, SMALL_PT, TALL_IN, WIDE_IN, series
from callshot.report.figures.text_fit import shorten_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW, MOST, BESIDE_IN, FLAT = 8, 6, 1.75, 0.86
MANY_SEGMENTS = 1500  # more are drawn as a picture inside the PDF, which else would be slow to show


@dataclass(frozen=True)
class Map:
    """One encoder's segments in the plane: `points` (segments, 2), `shares` of the variance, `label` numbers.

    A label that is not evaluated has the number −1.
    """

    encoder: str
    points: FloatArray
    shares: FloatArray
    label: NDArray[np.int64]
    centroids: FloatArray


def map_plates(corpus_results: CorpusResults) -> Iterator[FigurePage]:
    """Yield a map for every encoder, six to a page."""
    labels = [c.label for c in corpus_results.evaluation.classes if c.eligible]
    for stem, some in pages("map", corpus_results.tables, MOST):
        yield FigurePage(stem, partial(_compose, tables=some, labels=labels))


def principal_plane(vectors: NDArray[np.floating[Any]]) -> tuple[FloatArray, FloatArray]:
    """Return the vectors' places in the plane of largest variance, and the share of it along both axes.

    By the two first eigenvectors of the smaller of X'X and XX', which takes a fraction of the time of a whole singular
    value decomposition. Each axis points to where the segment farthest along it is.

    >>> points, shares = principal_plane(np.array([[0.0, 3.0], [0.0, 1.0], [0.0, -4.0]]))
    >>> points[:, 0].tolist(), shares.tolist()
    ([-3.0, -1.0, 4.0], [1.0, 0.0])
    """
    from scipy.linalg import eigh

    table = np.asarray(vectors, np.float64)
    table = table - table.mean(axis=0)
    scale = float(np.abs(table).max(initial=0.0)) or 1.0
    table = table / scale
    tall, less = len(table) >= table.shape[1], min(table.shape)
    products = table.T @ table if tall else table @ table.T
    squares, axes = eigh(products, subset_by_index=(max(less - 2, 0), less - 1))
    squares, axes = np.maximum(squares[::-1], 0.0), axes[:, ::-1]
    points = table @ axes if tall else axes * np.sqrt(squares)
    points = np.pad(points, ((0, 0), (0, 2 - points.shape[1])))
    shares = np.pad(squares, (0, 2))[:2] / (np.trace(products) or 1.0)
    farthest = points[np.abs(points).argmax(axis=0), (0, 1)]
    return points * np.where(farthest < 0, -1.0, 1.0) * scale, shares


def make_map(table: Embeddings, labels: Sequence[str]) -> Map:
    """Return an encoder's map; a label's centroid is the mean of its segments."""
    points, shares = principal_plane(table.vectors)
    number = {name: i for i, name in enumerate(labels)}
    label = np.array([number.get(name, -1) for name in table.label], np.int64)
    centroids = np.array([points[label == n].mean(axis=0) for n in range(len(labels))])
    return Map(table.encoder, points, shares, label, centroids)


def _compose(figure: "Figure", tables: Sequence[Embeddings], labels: Sequence[str]) -> None:
    beside = len(labels) > FEW
    listed = (len(labels) * 10 + 22) / 72 * beside
    wide = _columns(len(tables), listed)
    side, high = _side_in(wide, listed), -(-len(tables) // wide)
    figure.set_size_inches(side * wide + BESIDE_IN * beside, max(high * FLAT * side, listed))
    axes = list(figure.subplots(high, wide, squeeze=False).flat)
    maps = [make_map(table, labels) for table in tables]
    for i, at in enumerate(axes):
        at.set_visible(i < len(maps))
    for at, one in zip(axes, maps, strict=False):
        _draw_map(at, one)
        title(at, one.encoder, side - 0.5)
    if beside:
        _list_names(figure, labels)
    freeze(figure)
    names = [str(i + 1) for i in range(len(labels))] if beside else shorten_all(labels, side * 22)
    for at, one in zip(axes, maps, strict=False):
        place_names(at, one.centroids, names, SMALL_PT + 0.5)


def _columns(maps: int, listed_in: float) -> int:
    """Put up to three maps beside each other, fewer where the list of names is much taller than their rows."""
    wide = min(maps, 2 if maps == 4 else 3)
    while wide > 1 and _tall_in(maps, wide, listed_in) < 0.8 * listed_in:
        if _tall_in(maps, wide - 1, listed_in) > TALL_IN:
            break
        wide -= 1
    return wide


def _tall_in(maps: int, wide: int, listed_in: float) -> float:
    return -(-maps // wide) * FLAT * _side_in(wide, listed_in)


def _side_in(wide: int, listed_in: float) -> float:
    return min((WIDE_IN - BESIDE_IN * (listed_in > 0)) / wide, 4.2)


def _draw_map(at: "Axes", one: Map) -> None:
    flat = len(one.label) > MANY_SEGMENTS
    size = 9.0 if len(one.label) < 400 else 5.0
    for n in range(-1, len(one.centroids)):
        own, look = one.points[one.label == n], series(n)
        colour, marker = (look["color"], look["marker"]) if n >= 0 else (SILVER, ".")
        at.scatter(
            own[:, 0],
            own[:, 1],
            s=size,
            color=colour,
            marker=marker,
            alpha=0.45,
            linewidths=0,
            rasterized=flat,
            zorder=3,
        )
    for n, (x, y) in enumerate(one.centroids):
        look = series(n)
        at.scatter(
            x,
            y,
            s=46,
            color=look["color"],
            marker=look["marker"],
            edgecolors=INK,
            linewidths=0.9,
            zorder=6,
        )
    at.set_aspect("equal", adjustable="datalim")
    at.margins(0.08)
    at.grid(visible=False)
    at.set_xlabel(f"first axis, {one.shares[0]:.0%} of variance")
    at.set_ylabel(f"second axis, {one.shares[1]:.0%}")
    at.tick_params(
        labelbottom=False, labelleft=False, length=0
    )  # the unit is an encoder's own, and says nothing


def _list_names(figure: "Figure", labels: Sequence[str]) -> None:
    from matplotlib.lines import Line2D

    names = shorten_all(labels, (BESIDE_IN - 0.5) * 72, SMALL_PT)
    handles = [
        Line2D([], [], color=look["color"], marker=look["marker"], markersize=4.5, linestyle="none")
        for look in map(series, range(len(labels)))
    ]
    numbered = [f"{i + 1}  {name}" for i, name in enumerate(names)]
    figure.legend(
        handles,
        numbered,
        loc="outside right upper",
        fontsize=SMALL_PT,
        handlelength=0.8,
        labelspacing=0.35,
    )
