"""Decisions → confusion at chosen k, for every encoder: of the queries with a label, the share with each decision."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import floor
from typing import TYPE_CHECKING

import numpy as np

from callshot.records import Confusion, CorpusResults, FloatArray
from callshot.report.figures.figure_io import FigurePage, pages
from callshot.report.figures.style import INK, MIST, SHADES, SMALL_PT, TALL_IN, WIDE_IN
from callshot.report.figures.text_fit import shorten, shorten_all

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

NAMES_IN, BELOW_IN, BAR_IN, GAP_IN, TITLE_IN = 1.15, 0.95, 0.6, 0.12, 0.28
SMALLEST_IN, PITCH_PT, ROOMY_PT = 1.3, 7.6, 21.0


@dataclass(frozen=True)
class Matrix:
    """The mean number of queries (true, decided), for one encoder and k."""

    encoder: str
    k: int
    labels: Sequence[str]
    count: FloatArray


@dataclass(frozen=True)
class Grid:
    """How matrices lie on a page: how many beside each other, how many below, and their side."""

    wide: int
    high: int
    side_in: float


def confusion_plates(corpus_results: CorpusResults, at: Sequence[int]) -> Iterator[FigurePage]:
    """Yield the confusion at each k of `at` that was evaluated, or else at the last; pages where one is too small."""
    rows = corpus_results.evaluation.confusion
    shots, encoders = sorted({c.k for c in rows}), list(dict.fromkeys(c.encoder for c in rows))
    if not rows:
        return
    labels = [c.label for c in corpus_results.evaluation.classes if c.eligible]
    chosen = [k for k in dict.fromkeys(at) if k in shots] or shots[-1:]
    grid = _grid(len(chosen), len(encoders), len(labels))
    keys = [(name, k) for name in encoders for k in chosen]
    if grid.wide != len(chosen):  # a k has a row, or a page, of its own
        keys = [(name, k) for k in chosen for name in encoders]
    matrices = _matrices(rows, keys, labels)
    for stem, some in pages("confusion", matrices, grid.wide * grid.high):
        yield FigurePage(stem, partial(_compose, matrices=some, grid=grid))


def _matrices(
    rows: Sequence[Confusion], keys: Sequence[tuple[str, int]], labels: Sequence[str]
) -> list[Matrix]:
    number = {name: i for i, name in enumerate(labels)}
    counts = {key: np.zeros((len(labels), len(labels))) for key in keys}
    for c in rows:
        if (c.encoder, c.k) in counts:
            counts[c.encoder, c.k][number[c.true], number[c.predicted]] = c.count
    return [Matrix(encoder, k, labels, count) for (encoder, k), count in counts.items()]


def _grid(shots: int, encoders: int, classes: int) -> Grid:
    """Put a k into each column; where names would then touch, two encoders beside each other, or one alone."""
    first = shots if shots > 1 else min(4, encoders)
    wide = next((n for n in (first, min(2, encoders)) if _side_in(n) * 72 / classes >= PITCH_PT), 1)
    side, room = min(max(SMALLEST_IN, 0.3 * classes), _side_in(wide)), TALL_IN - BELOW_IN - BAR_IN
    fitting = room / -(-shots * encoders // wide) - TITLE_IN
    if fitting * 72 / classes >= PITCH_PT and fitting >= SMALLEST_IN:  # then all go on one page
        side = min(side, fitting)
    return Grid(wide, max(1, floor(room / (side + TITLE_IN) + 1e-9)), side)


def _side_in(wide: int) -> float:
    return (WIDE_IN - NAMES_IN - 0.15 - GAP_IN * (wide - 1)) / wide


def _compose(figure: "Figure", matrices: Sequence[Matrix], grid: Grid) -> None:
    wide = min(grid.wide, len(matrices))
    high = -(-len(matrices) // wide)
    figure.set_size_inches(
        NAMES_IN + 0.15 + wide * (grid.side_in + GAP_IN) - GAP_IN,
        BELOW_IN + BAR_IN + high * (grid.side_in + TITLE_IN),
    )
    axes = list(figure.subplots(high, wide, squeeze=False).flat)
    for i, at in enumerate(axes):
        at.set_visible(i < len(matrices))
    for i, (at, matrix) in enumerate(zip(axes, matrices, strict=False)):
        _draw_matrix(at, matrix, grid.side_in)
        _name_classes(at, matrix.labels, left=i % wide == 0, below=i + wide >= len(matrices))
    _draw_bar(figure, axes)


def _draw_matrix(at: "Axes", matrix: Matrix, side_in: float) -> None:
    from matplotlib.colors import LinearSegmentedColormap

    share = matrix.count / np.maximum(matrix.count.sum(axis=1, keepdims=True), 1e-300)
    shades = LinearSegmentedColormap.from_list("share", SHADES)
    at.imshow(share, cmap=shades, vmin=0, vmax=1, aspect="auto", interpolation="nearest")
    at.grid(visible=False)
    at.spines[:].set_visible(True)
    at.tick_params(length=0)
    tail = f", k = {matrix.k}"
    at.set_title(
        shorten(matrix.encoder, side_in * 72 - 8 * len(tail) / 2, 7, "bold") + tail,
        fontsize=7,
        pad=3,
    )
    n = len(matrix.labels)
    for edge in np.arange(0.5, n - 1):
        at.axhline(edge, color=MIST, linewidth=0.3)
        at.axvline(edge, color=MIST, linewidth=0.3)
    if side_in * 72 / n >= ROOMY_PT:
        _write_counts(at, matrix.count, share)


def _write_counts(at: "Axes", count: FloatArray, share: FloatArray) -> None:
    for (row, column), value in np.ndenumerate(count):
        colour = "white" if share[row, column] > 0.72 else INK
        text = f"{value:.1f}" if value < 99.95 else f"{value:.0f}"
        at.text(column, row, text, ha="center", va="center", color=colour, fontsize=SMALL_PT)


def _name_classes(at: "Axes", labels: Sequence[str], *, left: bool, below: bool) -> None:
    """Write the names at the left and below, where no matrix is in between."""
    step = -(-len(labels) // 54)  # more would touch
    shown = range(0, len(labels), step)
    for axis, room_in in ((at.yaxis, NAMES_IN - 0.2), (at.xaxis, BELOW_IN - 0.25)):
        names = shorten_all(labels, room_in * 72, SMALL_PT)
        axis.set_ticks(list(shown), [names[i] for i in shown], fontsize=SMALL_PT)
    at.tick_params(labelleft=left, labelbottom=below)
    at.tick_params(axis="x", labelrotation=90)
    at.set_xlabel("decision" if below else "")
    at.set_ylabel("label" if left else "")


def _draw_bar(figure: "Figure", axes: Sequence["Axes"]) -> None:
    bar = figure.colorbar(
        axes[0].images[0],
        ax=list(axes),
        location="top",
        fraction=0.03,
        aspect=45,
        shrink=0.5,
        pad=0.01,
    )
    counted = "\n(numbers: how many, mean over draws)" if axes[0].texts else ""
    bar.set_label(f"share of the queries of a label{counted}", fontsize=7)
    bar.outline.set_linewidth(0.4)
    bar.set_ticks([0, 0.25, 0.5, 0.75, 1], labels=["0", "¼", "½", "¾", "1"], fontsize=7)
    bar.ax.tick_params(length=2, pad=1)
