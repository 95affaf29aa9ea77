"""One real episode → a diagram: classes by folds with their segments, the query, what is drawn, and the decision.

All is drawn in inches from the upper left corner, a row per class: its name, its segments in every fold with the drawn
ones as squares, what there was to draw from and what is left, and the query's score against its centroid.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any

from callshot.fewshot.protocol import Protocol
from callshot.records import CorpusResults
from callshot.report.figures.example_episode import ClassRow, Scene, choose_scene
from callshot.report.figures.figure_io import FigurePage
from callshot.report.figures.style import (
    BLUE,
    GREY,
    INK,
    MIST,
    SILVER,
    SMALL_PT,
    TITLE_PT,
    VERMILION,
    WIDE_IN,
)
from callshot.report.figures.text_fit import shorten, shorten_all, width_pt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_FOLDS = 10
HEAD_IN, ROW_IN, FOOT_IN = 0.98, 0.3, 0.62
NAMES_IN, FOLDS_IN, NUMBER_IN, SCORES_IN = 1.5, 3.3, 0.42, 1.0
SQUARE: dict[str, Any] = {"marker": "s", "color": BLUE, "linestyle": "none", "markeredgewidth": 0}
SHADE: dict[str, Any] = {
    "marker": "s",
    "color": MIST,
    "linestyle": "none",
    "markersize": 6,
    "markeredgecolor": SILVER,
}
BAR: dict[str, Any] = {**SQUARE, "marker": "_", "markeredgewidth": 4, "markersize": 7}
DIAMOND: dict[str, Any] = {
    "marker": "D",
    "color": VERMILION,
    "linestyle": "none",
    "markeredgewidth": 0,
}


@dataclass(frozen=True)
class Column:
    """A fold, or several that are shown as one: its heading, the folds, and its left and right edge."""

    name: str
    folds: tuple[int, ...]
    left: float
    right: float


def episode_plates(corpus_results: CorpusResults, protocol: Protocol) -> Iterator[FigurePage]:
    """Yield the diagram of one episode."""
    scene = choose_scene(corpus_results, protocol)
    yield FigurePage(
        "episode",
        partial(_compose, scene=scene, score="log-odds" if protocol.score == "log" else "softmax"),
    )


def _compose(figure: "Figure", scene: Scene, score: str) -> None:
    columns = _columns(scene)
    height = HEAD_IN + ROW_IN * len(scene.rows) + FOOT_IN
    figure.set_layout_engine("none")
    figure.set_size_inches(WIDE_IN, height)
    at = figure.add_axes((0, 0, 1, 1))
    at.set(xlim=(0, WIDE_IN), ylim=(height, 0))
    at.axis("off")
    _write_query(at, scene)
    _write_headings(at, scene, columns, score)
    names = shorten_all([row.label for row in scene.rows], NAMES_IN * 72 - 25, weight="bold")
    for i, (row, name) in enumerate(zip(scene.rows, names, strict=True)):
        top = HEAD_IN + i * ROW_IN
        _name_row(at, name, top + ROW_IN / 2, own=row.label == scene.label)
        for column in columns:
            _draw_cell(at, scene, column, row, top)
        _write_numbers(at, scene, row, columns[-1].right, top + ROW_IN / 2)
        _draw_score(at, scene, row, columns[-1].right + 3 * NUMBER_IN + 0.1, top)
    _write_foot(at, scene, HEAD_IN + ROW_IN * len(scene.rows))


def _columns(scene: Scene) -> list[Column]:
    """Give each fold a column; beyond ten, the query's and the first nine others have one, and the rest share one."""
    count = len(scene.rows[0].segments) - 1
    first = sorted([scene.fold, *[f for f in range(count) if f != scene.fold][: MOST_FOLDS - 1]])
    rest = tuple(f for f in range(count) if f not in first)
    shown = [(str(f), (f,)) for f in first] + ([(f"+{len(rest)}", rest)] if rest else [])
    wide = min(0.45, (FOLDS_IN - 0.5) / len(shown))
    found = [
        Column(name, f, NAMES_IN + i * wide, NAMES_IN + (i + 1) * wide)
        for i, (name, f) in enumerate(shown)
    ]
    left = found[-1].right + 0.08
    return [*found, Column("common", (count,), left, left + 0.45)]


def _write_query(at: "Axes", scene: Scene) -> None:
    """Say what the query is, and what is drawn for it."""
    episode, room = scene.episode, (WIDE_IN - 0.4) * 72
    other = f" (and {', '.join(scene.labels)})" if scene.labels else ""
    tail = f" in fold {scene.fold}, label {scene.label}{other}"
    name = shorten(
        episode.segment,
        max(room - width_pt(tail, TITLE_PT, "bold") - 30, room / 2),
        TITLE_PT,
        "bold",
    )
    at.plot([0.14], [0.17], markersize=5, **DIAMOND)
    first = shorten(f"Query {name}{tail}", room, TITLE_PT, "bold")
    at.text(0.26, 0.17, first, va="center_baseline", weight="bold", fontsize=TITLE_PT)
    each = f"{episode.k} exemplar{'s' * (episode.k > 1)} of every class"
    drawn = f"Drawn for it, draw {episode.draw}: {each}, from the other folds and the common fold. Encoder: "
    encoder = shorten(scene.encoder, room - width_pt(drawn) - 4)
    at.text(0.26, 0.36, f"{drawn}{encoder}.", va="center_baseline")


def _write_headings(at: "Axes", scene: Scene, columns: Sequence[Column], score: str) -> None:
    y, right = HEAD_IN - 0.1, columns[-1].right + 0.05
    put = partial(at.text, ha="center", va="center_baseline", fontsize=7)
    put((columns[0].left + columns[-2].right) / 2, y - 0.18, "segments of each class, by fold")
    put(right + 1.5 * NUMBER_IN, y - 0.18, "support side")
    put(right + 3 * NUMBER_IN + 0.05 + SCORES_IN / 2, y - 0.18, "query to centroids")
    for column in columns:
        query = column.folds == (scene.fold,)
        put((column.left + column.right) / 2, y, column.name, weight="bold" if query else "normal")
    for i, name in enumerate(("pool", "drawn", "left")):
        put(right + (i + 0.5) * NUMBER_IN, y, name)
    put(right + 3 * NUMBER_IN + 0.05 + SCORES_IN / 2, y, score)


def _name_row(at: "Axes", name: str, y: float, *, own: bool) -> None:
    at.text(0.26, y, name, va="center_baseline", weight="bold" if own else "normal")
    if own:
        at.plot([0.14], [y], markersize=4.2, **DIAMOND)


def _draw_cell(at: "Axes", scene: Scene, column: Column, row: ClassRow, top: float) -> None:
    """Draw a class in a fold: how many segments it has there, and below a square for each that is drawn."""
    from matplotlib.patches import Rectangle

    query, (x, y) = scene.fold in column.folds, ((column.left + column.right) / 2, top + ROW_IN)
    place, wide = (column.left, top), column.right - column.left
    at.add_patch(
        Rectangle(
            place,
            wide,
            ROW_IN,
            facecolor=MIST if query else "white",
            edgecolor=SILVER,
            linewidth=0.5,
        )
    )
    drawn = sum(row.drawn[fold] for fold in column.folds)
    marks = [*[SQUARE] * drawn, *[DIAMOND] * (query and row.label == scene.label)]
    lift = 0.055 if marks else 0.0
    count = sum(row.segments[fold] for fold in column.folds)
    at.text(
        x,
        y - ROW_IN / 2 - lift,
        str(count),
        ha="center",
        va="center_baseline",
        fontsize=SMALL_PT,
        color=INK if count else GREY,
    )
    step = min(0.075, (wide - 0.06) / max(len(marks), 1))
    for i, mark in enumerate(marks):
        at.plot(
            [x + (i - (len(marks) - 1) / 2) * step],
            [y - 0.065],
            markersize=min(4.0, step * 65),
            **mark,
        )


def _write_numbers(at: "Axes", scene: Scene, row: ClassRow, right: float, y: float) -> None:
    """Write how many exemplars there were to draw from, how many were drawn, and how many are left."""
    pool, drawn, k = (
        sum(row.segments) - row.segments[scene.fold],
        len(scene.episode.support[row.label]),
        scene.episode.k,
    )
    left = pool - len(set(scene.episode.support[row.label]))
    for i, text in enumerate(
        (str(pool), str(drawn) if drawn == k else f"{drawn} of {k}", str(left))
    ):
        at.text(
            right + 0.05 + (i + 0.5) * NUMBER_IN,
            y,
            text,
            ha="center",
            va="center_baseline",
            fontsize=7,
        )


def _draw_score(at: "Axes", scene: Scene, row: ClassRow, left: float, top: float) -> None:
    """Draw a score as a bar from zero, and write it at the other side of zero."""
    from matplotlib.patches import Rectangle

    zero = left + SCORES_IN / 2
    scale = max((abs(r.score) for r in scene.rows if isfinite(r.score)), default=0.0) or 1.0
    length = row.score / scale * SCORES_IN / 2 if isfinite(row.score) else 0.0
    colour = BLUE if row.label == scene.decision else SILVER
    at.add_patch(
        Rectangle((zero, top + 0.08), length, ROW_IN - 0.16, facecolor=colour, edgecolor="none")
    )
    at.plot([zero, zero], [top, top + ROW_IN], color=INK, linewidth=0.6)
    side = -1 if row.score > 0 else 1
    weight = "bold" if row.label == scene.decision else "normal"
    place = (zero + side * 0.04, top + ROW_IN / 2)
    at.text(
        *place,
        _number(row.score),
        ha="right" if side < 0 else "left",
        va="center_baseline",
        weight=weight,
        fontsize=SMALL_PT,
    )


def _number(score: float) -> str:
    large = abs(score)
    text = (
        f"{score:.2f}"
        if large < 10
        else f"{score:.1f}"
        if large < 100
        else f"{score:.0f}"
        if large < 1e6
        else f"{score:.0e}"
    )
    return text.replace("-", "−")


def _write_foot(at: "Axes", scene: Scene, top: float) -> None:
    """Say what the marks mean, what was decided, and what is not shown."""
    x, y = 0.14, top + 0.2
    entries = (
        (DIAMOND, "the query"),
        (SQUARE, "drawn: the support set"),
        (SHADE, "its fold, of which nothing is drawn"),
    )
    for mark, text in (*entries, (BAR, "the largest score")):
        at.plot([x], [y], **{"markersize": 4.2, **mark})
        at.text(x + 0.1, y, text, va="center_baseline", fontsize=7)
        x += 0.1 + width_pt(text, 7) / 72 + 0.28
    hidden = scene.classes - len(scene.rows)
    more = f" {hidden} more of {scene.classes} classes, drawn and scored alike, are not shown." * (
        hidden > 0
    )
    verdict = "right" if scene.right else "wrong"
    room = (WIDE_IN - 0.2) * 72 - width_pt(f"Decision: , {verdict}.{more}", weight="bold")
    name = shorten(scene.decision, room, weight="bold")
    at.text(0.08, y + 0.22, f"Decision: {name}, {verdict}.{more}", va="center_baseline")
