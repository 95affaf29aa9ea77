"""Decisions → confusion matrices at chosen k: of the queries with a label, the share per decision."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from callshot.records import CorpusResults, FloatArray
from callshot.report.figures.figure_io import FigurePage, make_pages
from callshot.report.figures.layout import add_panels
from callshot.report.figures.style import (
    INK,
    MIST,
    PAGE_HEIGHT_IN,
    PAGE_WIDTH_IN,
    SHADES,
    SMALL_PT,
    TICK_PT,
)
from callshot.report.figures.text_fit import shorten, shorten_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEFT_IN = 1.3  # names of the classes, and the edge of the page
LEFT_NAMES_IN = 0.95
BELOW_IN = 0.95
BELOW_NAMES_IN = 0.7
BAR_IN = 0.6
GAP_IN = 0.12
TITLE_IN = 0.28
SMALLEST_IN = 1.3
SMALLEST_CELL_PT = 7.6
CELL_WITH_COUNT_PT = 21.0
MOST_NAMES = 54  # more would touch


@dataclass(frozen=True)
class Matrix:
    """The mean number of queries (true, predicted), for one encoder and k."""

    encoder: str
    k: int
    labels: Sequence[str]
    count: FloatArray


@dataclass(frozen=True)
class MatrixGrid:
    """How many matrices are on a page, and the length of their sides."""

    columns: int
    rows: int
    side_in: float


def plan_confusion(results: CorpusResults, shots: Sequence[int]) -> Iterator[FigurePage]:
    """Yield the confusion at each of the shots that was evaluated, or else at the last one."""
    cells = results.evaluation.confusion
    if cells.is_empty():
        return
    evaluated = cells["k"].unique().sort().to_list()
    shots = [k for k in dict.fromkeys(shots) if k in evaluated] or evaluated[-1:]
    encoders = cells["encoder"].unique(maintain_order=True).to_list()
    labels = [count.label for count in results.evaluation.classes if count.eligible]
    grid = _make_grid(len(shots), len(encoders), len(labels))
    keys = [(encoder, k) for encoder in encoders for k in shots]
    if grid.columns != len(shots):  # each k has rows or pages of its own
        keys.sort(key=lambda key: shots.index(key[1]))
    matrices = [_make_matrix(cells, encoder, k, labels) for encoder, k in keys]
    most = grid.columns * grid.rows
    yield from make_pages("confusion", matrices, most, _compose, grid)


def _make_matrix(cells: pl.DataFrame, encoder: str, k: int, labels: Sequence[str]) -> Matrix:
    numbers = {label: number for number, label in enumerate(labels)}
    chosen = cells.filter(encoder=encoder, k=k)
    true = chosen["true"].replace_strict(numbers)
    predicted = chosen["predicted"].replace_strict(numbers)
    count = np.zeros((len(labels), len(labels)))
    count[true, predicted] = chosen["count"]
    return Matrix(encoder, k, labels, count)


def _make_grid(shots: int, encoders: int, classes: int) -> MatrixGrid:
    """Give each k a column; if names would touch, put two encoders side by side, or one alone."""
    columns = shots if shots > 1 else min(4, encoders)
    if _largest_side_in(columns) * 72 / classes < SMALLEST_CELL_PT:
        columns = min(2, encoders)
    if _largest_side_in(columns) * 72 / classes < SMALLEST_CELL_PT:
        columns = 1
    side_in = min(max(SMALLEST_IN, 0.3 * classes), _largest_side_in(columns))
    height_in = PAGE_HEIGHT_IN - BELOW_IN - BAR_IN
    one_page_in = height_in / ceil(shots * encoders / columns) - TITLE_IN
    if one_page_in >= max(SMALLEST_IN, SMALLEST_CELL_PT * classes / 72):
        side_in = min(side_in, one_page_in)
    rows = floor(height_in / (side_in + TITLE_IN) + 1e-9)
    return MatrixGrid(columns, max(1, rows), side_in)


def _largest_side_in(columns: int) -> float:
    return (PAGE_WIDTH_IN - LEFT_IN + GAP_IN) / columns - GAP_IN


def _compose(figure: "Figure", matrices: Sequence[Matrix], grid: MatrixGrid) -> None:
    columns = min(grid.columns, len(matrices))
    rows = ceil(len(matrices) / columns)
    width_in = LEFT_IN + columns * (grid.side_in + GAP_IN) - GAP_IN
    height_in = BELOW_IN + BAR_IN + rows * (grid.side_in + TITLE_IN)
    figure.set_size_inches(width_in, height_in)
    axes = add_panels(figure, len(matrices), columns)[:, 0]
    for ax, matrix in zip(axes, matrices, strict=True):
        _draw_matrix(ax, matrix, grid.side_in)
        _label_classes(ax, matrix.labels)
    for ax in axes[::columns]:
        ax.set_ylabel("label")
    for ax in axes[-columns:]:
        ax.set_xlabel("decision")
    _add_colour_bar(figure)


def _draw_matrix(ax: "Axes", matrix: Matrix, side_in: float) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    share = matrix.count / np.maximum(matrix.count.sum(axis=1, keepdims=True), 1e-300)
    shades = LinearSegmentedColormap.from_list("share", SHADES)
    ax.imshow(share, cmap=shades, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    ax.grid(visible=False)
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    shot = f", k = {matrix.k}"
    encoder = shorten(matrix.encoder, side_in * 72 - 4 * len(shot), TICK_PT, "bold")
    ax.set_title(encoder + shot, fontsize=TICK_PT, pad=3)
    classes = len(matrix.labels)
    for edge in np.arange(0.5, classes - 1):
        ax.axhline(edge, color=MIST, linewidth=0.3)
        ax.axvline(edge, color=MIST, linewidth=0.3)
    if side_in * 72 / classes >= CELL_WITH_COUNT_PT:
        _write_counts(ax, matrix.count, share)


def _write_counts(ax: "Axes", count: FloatArray, share: FloatArray) -> None:
    for (row, column), value in np.ndenumerate(count):
        colour = "white" if share[row, column] > 0.72 else INK
        text = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
        ax.text(column, row, text, ha="center", va="center", color=colour, fontsize=SMALL_PT)


def _label_classes(ax: "Axes", labels: Sequence[str]) -> None:
    ticks = range(0, len(labels), ceil(len(labels) / MOST_NAMES))
    for axis, room_in in ((ax.yaxis, LEFT_NAMES_IN), (ax.xaxis, BELOW_NAMES_IN)):
        names = shorten_all(labels, room_in * 72, SMALL_PT)
        axis.set_ticks(list(ticks), [names[tick] for tick in ticks], fontsize=SMALL_PT)
    ax.tick_params(axis="x", labelrotation=90)


def _add_colour_bar(figure: "Figure") -> None:
    first = figure.axes[0]
    bar = figure.colorbar(
        first.images[0],
        ax=list(figure.axes),
        location="top",
        fraction=0.03,
        aspect=45,
        shrink=0.5,
        pad=0.01,
    )
    label = "share of the queries of a label"
    if first.texts:
        label += "\n(numbers: queries, mean over draws)"
    bar.set_label(label, fontsize=TICK_PT)
    bar.outline.set_linewidth(0.4)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["0", "¼", "½", "¾", "1"], fontsize=TICK_PT)
    bar.ax.tick_params(length=2, pad=1)
