"""One real episode → a diagram: classes by folds, the query, its support set, and the decision.

Everything is placed in inches from the upper left corner. A row per class has its name, its segments
in every fold with the drawn ones as squares, the sizes of its pool, and the score of the query.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults
from callshot.report.figures.example_episode import ClassRow, ExampleEpisode, choose_episode
from callshot.report.figures.figure_io import FigurePage
from callshot.report.figures.style import (
    BLUE,
    GREY,
    INK,
    MIST,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_PT,
    TICK_PT,
    TITLE_PT,
    VERMILION,
    Style,
)
from callshot.report.figures.text_fit import shorten, shorten_all, text_width_pt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FOLDS = 10
HEAD_IN = 0.98
ROW_IN = 0.3
FOOT_IN = 0.62
MARK_IN = 0.14
TEXT_IN = 0.26
NAMES_IN = 1.5
FOLDS_IN = 3.3
FOLD_IN = 0.45
NUMBER_IN = 0.42
SCORES_IN = 1.0
SQUARE: Style = {"marker": "s", "color": BLUE, "linestyle": "none", "markersize": 4.2}
DIAMOND: Style = {"marker": "D", "color": VERMILION, "linestyle": "none", "markersize": 4.2}
SHADE: Style = {
    "marker": "s",
    "color": MIST,
    "linestyle": "none",
    "markersize": 6,
    "markeredgecolor": SILVER,
    "markeredgewidth": 1,
}
BAR: Style = {**SQUARE, "marker": "_", "markeredgewidth": 4, "markersize": 7}
KEY = (
    (DIAMOND, "query"),
    (SQUARE, "drawn: the support set"),
    (SHADE, "fold of the query: nothing is drawn from it"),
    (BAR, "largest score"),
)


@dataclass(frozen=True)
class FoldColumn:
    """A fold, or several in one column: its heading, the folds, and its edges in inches."""

    name: str
    folds: tuple[int, ...]
    left: float
    right: float

    @property
    def middle(self) -> float:
        """The position halfway between the edges."""
        return (self.left + self.right) / 2


def plan_episode(results: CorpusResults, protocol: Protocol) -> Iterator[FigurePage]:
    """Yield the diagram of one episode."""
    score = "log-odds" if protocol.score == "log" else "softmax"
    yield FigurePage("episode", _compose, (choose_episode(results, protocol), score))


def _compose(figure: "Figure", example: ExampleEpisode, score: str) -> None:
    columns = _make_columns(example)
    foot = HEAD_IN + ROW_IN * len(example.rows)
    height = foot + FOOT_IN
    figure.set_layout_engine("none")
    figure.set_size_inches(PAGE_WIDTH_IN, height)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, PAGE_WIDTH_IN), ylim=(height, 0))
    ax.axis("off")
    numbers_left = columns[-1].right + 0.05
    scores_middle = numbers_left + 3 * NUMBER_IN + 0.05 + SCORES_IN / 2
    _write_query(ax, example)
    _write_headings(ax, example, columns, numbers_left)
    _write(ax, scores_middle, HEAD_IN - 0.28, "query to centroids")
    _write(ax, scores_middle, HEAD_IN - 0.1, score)
    names = shorten_all([row.label for row in example.rows], NAMES_IN * 72 - 25, weight="bold")
    for number, (row, name) in enumerate(zip(example.rows, names, strict=True)):
        top = HEAD_IN + number * ROW_IN
        _write_name(ax, name, top, is_query=row.label == example.label)
        for column in columns:
            _draw_cell(ax, example, column, row, top)
        _write_numbers(ax, example, row, numbers_left, top)
        _draw_score(ax, example, row, scores_middle, top)
    _write_key(ax, foot + 0.2)
    _write_decision(ax, example, foot + 0.42)


def _make_columns(example: ExampleEpisode) -> list[FoldColumn]:
    """Give each fold a column; beyond ten folds, the last ones share one."""
    count = len(example.rows[0].segments) - 1
    others = [fold for fold in range(count) if fold != example.fold]
    single = sorted([example.fold, *others[: MOST_FOLDS - 1]])
    rest = tuple(others[MOST_FOLDS - 1 :])
    groups = {str(fold): (fold,) for fold in single}
    if rest:
        groups[f"+{len(rest)}"] = rest
    width = min(FOLD_IN, (FOLDS_IN - 0.5) / len(groups))
    columns = []
    left = NAMES_IN
    for name, folds in groups.items():
        columns.append(FoldColumn(name, folds, left, left + width))
        left += width
    left += 0.08
    return [*columns, FoldColumn("common", (count,), left, left + FOLD_IN)]


def _write(ax: "Axes", x: float, y: float, text: str, **style: object) -> None:
    """Write a small text centred on a position."""
    defaults: Style = {"ha": "center", "va": "center_baseline", "fontsize": TICK_PT}
    ax.text(x, y, text, **{**defaults, **style})


def _write_query(ax: "Axes", example: ExampleEpisode) -> None:
    """Describe the query and its support set."""
    room = (PAGE_WIDTH_IN - 0.4) * 72
    labels = ", ".join(example.other_labels)
    others = f" (and {labels})" if labels else ""
    position = f" in fold {example.fold}, label {example.label}{others}"
    name_room = max(room - text_width_pt(position, TITLE_PT, "bold") - 30, room / 2)
    name = shorten(example.episode.segment, name_room, TITLE_PT, "bold")
    title = shorten(f"Query {name}{position}", room, TITLE_PT, "bold")
    ax.plot([MARK_IN], [0.17], **{**DIAMOND, "markersize": 5})
    ax.text(TEXT_IN, 0.17, title, va="center_baseline", weight="bold", fontsize=TITLE_PT)
    k = example.episode.k
    exemplars = "1 exemplar" if k == 1 else f"{k} exemplars"
    text = (
        f"Draw {example.episode.draw}: {exemplars} of every class, "
        "from the other folds and the common fold. Encoder: "
    )
    encoder = shorten(example.encoder, room - text_width_pt(text) - 4)
    ax.text(TEXT_IN, 0.36, f"{text}{encoder}.", va="center_baseline")


def _write_headings(
    ax: "Axes", example: ExampleEpisode, columns: Sequence[FoldColumn], numbers_left: float
) -> None:
    y = HEAD_IN - 0.1
    folds_middle = (columns[0].left + columns[-2].right) / 2
    _write(ax, folds_middle, y - 0.18, "segments of each class, by fold")
    for column in columns:
        is_query = column.folds == (example.fold,)
        _write(ax, column.middle, y, column.name, weight="bold" if is_query else "normal")
    _write(ax, numbers_left + 1.5 * NUMBER_IN, y - 0.18, "support side")
    for number, name in enumerate(("pool", "drawn", "left")):
        _write(ax, numbers_left + (number + 0.5) * NUMBER_IN, y, name)


def _write_name(ax: "Axes", name: str, top: float, *, is_query: bool) -> None:
    y = top + ROW_IN / 2
    ax.text(TEXT_IN, y, name, va="center_baseline", weight="bold" if is_query else "normal")
    if is_query:
        ax.plot([MARK_IN], [y], **DIAMOND)


def _draw_cell(
    ax: "Axes", example: ExampleEpisode, column: FoldColumn, row: ClassRow, top: float
) -> None:
    """Draw a class in a fold: the number of its segments, and a square for each drawn one."""
    is_query_fold = example.fold in column.folds
    colour = MIST if is_query_fold else "white"
    width = column.right - column.left
    _draw_box(ax, column.left, top, width, ROW_IN, facecolor=colour, edgecolor=SILVER)
    marks = [SQUARE] * sum(row.drawn[fold] for fold in column.folds)
    if is_query_fold and row.label == example.label:
        marks.append(DIAMOND)
    count = sum(row.segments[fold] for fold in column.folds)
    y = top + ROW_IN / 2
    if marks:
        y -= 0.055
    _write(ax, column.middle, y, str(count), fontsize=SMALL_PT, color=INK if count else GREY)
    step = min(0.075, (width - 0.06) / max(len(marks), 1))
    left = column.middle - (len(marks) - 1) / 2 * step
    for number, mark in enumerate(marks):
        style = {**mark, "markersize": min(4.0, step * 65)}
        ax.plot([left + number * step], [top + ROW_IN - 0.065], **style)


def _draw_box(
    ax: "Axes", left: float, top: float, width: float, height: float, **style: str
) -> None:
    from matplotlib.patches import Rectangle

    ax.add_patch(Rectangle((left, top), width, height, linewidth=0.5, **style))


def _write_numbers(
    ax: "Axes", example: ExampleEpisode, row: ClassRow, left: float, top: float
) -> None:
    """Write how many exemplars there are to draw from, how many were drawn, and how many remain."""
    support = example.episode.support[row.label]
    pool = sum(row.segments) - row.segments[example.fold]
    drawn = str(len(support))
    if len(support) != example.episode.k:
        drawn = f"{drawn} of {example.episode.k}"
    remaining = pool - len(set(support))
    for number, text in enumerate((str(pool), drawn, str(remaining))):
        _write(ax, left + (number + 0.5) * NUMBER_IN, top + ROW_IN / 2, text)


def _draw_score(
    ax: "Axes", example: ExampleEpisode, row: ClassRow, zero: float, top: float
) -> None:
    """Draw a score as a bar from zero, and write it on the other side of zero."""
    finite = [abs(row.score) for row in example.rows if isfinite(row.score)]
    scale = max(finite, default=0.0) or 1.0
    length = row.score / scale * SCORES_IN / 2 if isfinite(row.score) else 0.0
    is_decision = row.label == example.decision
    colour = BLUE if is_decision else SILVER
    _draw_box(ax, zero, top + 0.08, length, ROW_IN - 0.16, facecolor=colour, edgecolor="none")
    ax.plot([zero, zero], [top, top + ROW_IN], color=INK, linewidth=0.6)
    is_positive = row.score > 0
    _write(
        ax,
        zero - 0.04 if is_positive else zero + 0.04,
        top + ROW_IN / 2,
        _format_score(row.score),
        ha="right" if is_positive else "left",
        weight="bold" if is_decision else "normal",
        fontsize=SMALL_PT,
    )


def _format_score(score: float) -> str:
    text = f"{score:.0e}"
    for limit, digits in ((1e6, 0), (100, 1), (10, 2)):
        if abs(score) < limit:
            text = f"{score:.{digits}f}"
    return text.replace("-", "−")


def _write_key(ax: "Axes", y: float) -> None:
    """Write what the marks mean."""
    x = MARK_IN
    for mark, text in KEY:
        ax.plot([x], [y], **mark)
        _write(ax, x + 0.1, y, text, ha="left")
        x += 0.38 + text_width_pt(text, TICK_PT) / 72


def _write_decision(ax: "Axes", example: ExampleEpisode, y: float) -> None:
    """Write the decision, and how many classes are not shown."""
    text = ", correct." if example.is_correct else ", wrong."
    hidden = example.classes - len(example.rows)
    if hidden > 0:
        text += f" {hidden} more of {example.classes} classes are not shown."
    room = (PAGE_WIDTH_IN - 0.2) * 72 - text_width_pt(f"Decision: {text}", weight="bold")
    name = shorten(example.decision, room, weight="bold")
    ax.text(0.08, y, f"Decision: {name}{text}", va="center_baseline")
