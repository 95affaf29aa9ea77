"""Decisions → confusion matrices at chosen k: recall, whose rows sum to 1, and mean counts."""

from collections.abc import Sequence
from itertools import product
from math import ceil, floor
from typing import TYPE_CHECKING, Any

import numpy as np

from callshot.records import CorpusResults, FloatArray
from callshot.records.frames import Frame, unique_values
from callshot.report.figures.figure_io import (
    ON_CHART,
    Pages,
    figure_of_report,
    make_pages,
)
from callshot.report.figures.layout import (
    BOLD_TICK_FONT,
    INK,
    MIST,
    PAGE_HEIGHT_IN,
    PAGE_WIDTH_IN,
    SHADES,
    SMALL_FONT,
    SMALL_PT,
    TICK_PT,
    Frames,
    add_panels,
    shorten,
    shorten_all,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

LEFT_IN = 1.3  # names of the classes, and the edge of the page
LEFT_NAMES_IN = 0.95
BELOW_IN = 0.95
BELOW_NAMES_IN = 0.7
BAR_IN = 0.6  # colour bar, its numbers and its title of two lines
GAP_IN = 0.12
TITLE_IN = 0.28
MIN_SIDE_IN = 1.3
MIN_CELL_PT = 7.6
CELL_WITH_COUNT_PT = 21.0
MAX_NAMES = 54  # more would touch


# Columns and rows of a page, and the side of a matrix in inches.
MatrixGrid = tuple[int, int, float]


@figure_of_report(
    "confusion",
    ON_CHART,
    "Labels against decisions",
)
def plan_confusion(results: CorpusResults, shots: Sequence[int], *_: Any) -> Pages:
    """Yield the confusion at each of the shots that was evaluated, or else at the last one."""
    cells = results.evaluation.confusion
    if cells.is_empty():
        return
    evaluated = set(cells["k"])
    shots = [k for k in dict.fromkeys(shots) if k in evaluated]
    if not shots:
        shots = [max(evaluated)]
    encoders = unique_values(cells, "encoder")
    labels = [count.label for count in results.evaluation.eligible_classes]
    grid = _make_grid(len(shots), len(encoders), len(labels))
    columns, rows = grid[:2]
    if columns == len(shots):
        pairs = [(k, encoder) for encoder in encoders for k in shots]
    else:  # each k has rows or pages of its own
        pairs = list(product(shots, encoders))
    matrices = [cells.filter(k=k, encoder=encoder) for k, encoder in pairs]
    yield from make_pages("confusion", matrices, columns * rows, _compose, labels, grid)


def _make_grid(shots: int, encoders: int, classes: int) -> MatrixGrid:
    """Choose how many matrices stand on a page, and how large they are.

    `shots`, `encoders` and `classes` are numbers of them. Each k gets a column. If the names of
    classes would touch, two encoders stand side by side, or one alone. Matrices are smaller than
    they could be if all then fit one page.
    """
    smallest_in = classes * MIN_CELL_PT / 72
    columns = shots if shots > 1 else min(4, encoders)
    if _largest_side_in(columns) < smallest_in:
        columns = min(2, encoders)
    if _largest_side_in(columns) < smallest_in:
        columns = 1
    wanted_in = max(MIN_SIDE_IN, 0.3 * classes)  # room for numbers in the cells
    side_in = min(wanted_in, _largest_side_in(columns))
    height_in = PAGE_HEIGHT_IN - BELOW_IN - BAR_IN
    all_rows = ceil(shots * encoders / columns)
    one_page_in = height_in / all_rows - TITLE_IN
    if one_page_in >= max(MIN_SIDE_IN, smallest_in):
        side_in = min(side_in, one_page_in)
    rows = floor(height_in / (side_in + TITLE_IN) + 1e-9)  # against rounding errors
    return columns, max(1, rows), side_in


def _largest_side_in(columns: int) -> float:
    """Return the largest side of matrices of which some stand side by side."""
    return (PAGE_WIDTH_IN - LEFT_IN + GAP_IN) / columns - GAP_IN


def _compose(
    figure: "Figure",
    matrices: Frames,
    labels: Sequence[str],
    grid: MatrixGrid,
) -> None:
    """Draw a page of confusion matrices, with names at the left and below, and a colour bar.

    A matrix is a frame with the cells of one encoder and k. Cells that are large enough get
    numbers.
    """
    columns, _, side_in = grid
    columns = min(columns, len(matrices))
    rows = ceil(len(matrices) / columns)
    width_in = LEFT_IN - GAP_IN + columns * (side_in + GAP_IN)
    height_in = BELOW_IN + BAR_IN + rows * (side_in + TITLE_IN)
    figure.set_size_inches(width_in, height_in)
    axes = add_panels(figure, len(matrices), columns, ["label"])[:, 0]
    has_numbers = side_in * 72 / len(labels) >= CELL_WITH_COUNT_PT
    for ax, matrix in zip(axes, matrices, strict=True):
        image = _draw_matrix(ax, matrix, labels, has_numbers)
        title = f"{matrix['encoder'][0]}, k = {matrix['k'][0]}"
        shown = shorten(title, side_in * 72, BOLD_TICK_FONT)
        ax.set_title(shown, fontsize=TICK_PT, pad=3)

    step = ceil(len(labels) / MAX_NAMES) or 1
    left = shorten_all(labels, LEFT_NAMES_IN * 72, SMALL_FONT)[::step]
    below = shorten_all(labels, BELOW_NAMES_IN * 72, SMALL_FONT)[::step]
    ticks = range(0, len(labels), step)
    for number, ax in enumerate(axes):  # only the outer matrices have names
        is_left = number % columns == 0
        is_last = number + columns >= len(axes)
        ax.set_yticks(ticks if is_left else [])
        ax.set_xticks(ticks if is_last else [])
        if is_left:
            ax.set_yticklabels(left, fontsize=SMALL_PT)
        if is_last:
            ax.set_xticklabels(below, fontsize=SMALL_PT, rotation=90)
            ax.set_xlabel("decision")
    bar = figure.colorbar(image, ax=axes, location="top", aspect=40, shrink=0.5)
    label = "recall: each row sums to 1"
    if has_numbers:
        label += "\n(below: queries, mean over draws)"
    bar.set_label(label, fontsize=TICK_PT)
    shares = [0, 0.25, 0.5, 0.75, 1]
    bar.set_ticks(shares, labels=["0", "¼", "½", "¾", "1"], fontsize=TICK_PT)
    bar.ax.tick_params(length=2, pad=1)


def _draw_matrix(
    ax: "Axes", matrix: Frame, labels: Sequence[str], has_numbers: bool
) -> "AxesImage":
    """Draw the recall of each cell as a shade; return the image, which a colour bar explains.

    With `has_numbers`, write the recall into each cell, and the mean count below it.
    """
    from matplotlib.colors import LinearSegmentedColormap

    colours = LinearSegmentedColormap.from_list("recall", SHADES)
    recall = fill_matrix(matrix, "recall", labels)
    image = ax.imshow(recall, cmap=colours, vmin=0, vmax=1, aspect="auto")
    ax.grid(visible=False)
    ax.spines[:].set_visible(True)
    ax.tick_params(length=0)
    edges = np.arange(0.5, len(labels) - 1)  # between cells
    ends = (-0.5, len(labels) - 0.5)
    ax.hlines(edges, *ends, color=MIST, linewidth=0.3)
    ax.vlines(edges, *ends, color=MIST, linewidth=0.3)
    if not has_numbers:
        return image
    counts = fill_matrix(matrix, "count", labels)
    for (row, column), count in np.ndenumerate(counts):
        share = recall[row, column]
        digits = 1 if count < 99.95 else 0  # three digits at most
        ax.text(
            column,
            row,
            f"{share:.2f}\n{count:.{digits}f}",
            ha="center",
            va="center",
            color="white" if share > 0.72 else INK,  # on a dark shade
            fontsize=SMALL_PT,
            in_layout=False,
        )
    return image


def fill_matrix(cells: Frame, column: str, labels: Sequence[str]) -> FloatArray:
    """Return a column of confusion cells as a matrix, (true label, predicted label).

    Pairs of labels without a cell, and NaN, are 0.
    """
    numbers = {label: number for number, label in enumerate(labels)}
    true = cells["true"].replace_strict(numbers)
    predicted = cells["predicted"].replace_strict(numbers)
    matrix = np.zeros((len(labels), len(labels)))
    matrix[true, predicted] = cells[column].fill_nan(0.0)
    return matrix
