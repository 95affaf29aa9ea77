"""One real episode → a diagram: classes by folds, the query, its support set, and the decision.

Positions are inches from the upper left corner. The row of a class has its name, its segments in
every fold with a square for each drawn one, the size of its pool, and the score of the query.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from callshot.errors import count_text
from callshot.fewshot.protocol import Protocol
from callshot.records import (
    COMMON_FOLD,
    ClassCount,
    CorpusResults,
    Embeddings,
    Episode,
    Evaluation,
)
from callshot.report.figures.figure_io import FigurePage, Pages, figure_of_report
from callshot.report.figures.style import (
    BLUE,
    BOLD_FONT,
    GREY,
    INK,
    MIST,
    PAGE_WIDTH_IN,
    SILVER,
    SMALL_PT,
    TICK_FONT,
    TICK_PT,
    TITLE_FONT,
    TITLE_PT,
    VERMILION,
    Style,
    shorten,
    shorten_all,
    text_width_pt,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_SHOTS = 3
CANDIDATES = 6
MAX_ROWS = 12


@dataclass(frozen=True)
class ClassRow:
    """One class in an episode: its segments and its drawn exemplars in each fold, and its score.

    The common fold comes last.
    """

    label: str
    segments: tuple[int, ...]
    drawn: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class ExampleEpisode:
    """An episode, the labels and the fold of its query, and the classes that are shown."""

    encoder: str
    episode: Episode
    labels: Sequence[str]  # that of the query first
    fold: int
    rows: Sequence[ClassRow]
    classes: int

    @property
    def label(self) -> str:
        """The label of the query."""
        return self.labels[0]

    @property
    def decision(self) -> str:
        """The class with the largest score."""
        return decide(self.episode)

    @property
    def is_correct(self) -> bool:
        """Whether the decision is one of the labels of the query."""
        return self.decision in self.labels


def choose_episode(results: CorpusResults, protocol: Protocol) -> ExampleEpisode:
    """Rerun a few episodes of the best encoder, and return the one that shows most.

    What counts, in this order: a correct decision, an exemplar from the common fold, exemplars from
    many folds, and a small margin between the class of the query and the next one.
    """
    # Imports numba, which is slow.
    from callshot.fewshot.evaluate import rerun_episode

    evaluation = results.evaluation
    few_shots = evaluation.curve.filter(pl.col("k") <= FEW_SHOTS)["k"]
    k = max(few_shots, default=FEW_SHOTS)
    table = _best_table(results)
    episodes = []
    for query in _choose_queries(evaluation):
        episode = rerun_episode(table, evaluation.folds, query, k, 0, protocol)
        episodes.append(_describe_episode(evaluation, table, episode))
    return max(episodes, key=_interest)


def decide(episode: Episode) -> str:
    """Return the class with the largest score; of equal ones, the first by name."""
    names = sorted(episode.scores)
    return max(names, key=episode.scores.__getitem__)


def _best_table(results: CorpusResults) -> Embeddings:
    """Return the embeddings of the encoder with the largest mAP at the last k."""
    curve = results.evaluation.curve.filter(metric="map", scoring="all")
    by_k = curve.sort("k", maintain_order=True)
    last_mean = dict(by_k.select("encoder", "mean").iter_rows())
    return max(results.tables, key=lambda table: last_mean[table.encoder])


def _choose_queries(evaluation: Evaluation) -> list[str]:
    """Return a few queries, evenly spread over all of them in the order of their ids."""
    segments = evaluation.segments
    eligible = {count.label for count in evaluation.eligible_classes}
    queries = []
    columns = (segments.segment, segments.label, evaluation.folds.fold)
    for segment, label, fold in zip(*columns, strict=True):
        if label in eligible and fold != COMMON_FOLD:
            queries.append(segment)
    queries.sort()
    count = min(CANDIDATES, len(queries))
    positions = np.arange(count) * len(queries) // count
    return [queries[number] for number in positions]


def _describe_episode(
    evaluation: Evaluation, table: Embeddings, episode: Episode
) -> ExampleEpisode:
    fold = evaluation.folds.fold.tolist()
    folds = dict(zip(table.segment, fold, strict=True))
    counts = evaluation.eligible_classes
    rows = [_class_row(count, episode, folds) for count in counts]
    query = table.segment.index(episode.segment)
    evaluated = [name for name in table.labels[query] if name in episode.scores]
    labels = list(dict.fromkeys([table.label[query], *evaluated]))
    return ExampleEpisode(
        table.encoder,
        episode,
        labels,
        folds[episode.segment],
        _choose_rows(rows, labels),
        len(rows),
    )


def _class_row(count: ClassCount, episode: Episode, folds: dict[str, int]) -> ClassRow:
    """Return a class in an episode; the common fold is the last."""
    common = count.exemplars - sum(count.per_fold)
    drawn = [0] * (len(count.per_fold) + 1)
    for segment in episode.support[count.label]:
        drawn[folds[segment]] += 1  # the common fold is −1
    return ClassRow(
        count.label,
        (*count.per_fold, common),
        tuple(drawn),
        episode.scores[count.label],
    )


def _choose_rows(rows: Sequence[ClassRow], labels: Sequence[str]) -> list[ClassRow]:
    """Choose classes: those of the query, the best by score, the rarest, then the commonest."""
    by_score = sorted(rows, key=lambda row: -row.score)
    by_interest = [*by_score[:2], *rows[-2:], *rows]
    names = [*labels, *(row.label for row in by_interest)]
    shown = list(dict.fromkeys(names))[:MAX_ROWS]
    return [row for row in rows if row.label in shown]


def _interest(example: ExampleEpisode) -> tuple[bool, bool, int, float]:
    """Return what `choose_episode` compares episodes by."""
    drawn = np.sum([row.drawn for row in example.rows], axis=0)
    has_common = bool(drawn[-1] > 0)
    scores = dict(example.episode.scores)
    score = scores.pop(example.label)
    margin = abs(score - max(scores.values()))
    folds = int(np.count_nonzero(drawn))
    return example.is_correct, has_common, folds, -margin


MAX_FOLDS = 10
MARK_IN = 0.14
TEXT_IN = 0.26
FOLDS_IN = 1.5
WIDEST_FOLD_IN = 0.45
ALL_FOLDS_IN = 2.8
COMMON_GAP_IN = 0.08
POOL_IN = 5.09
DRAWN_IN = 5.51
LEFT_IN = 5.93
SCORE_IN = 6.65
HALF_SCORE_IN = 0.5

HEADINGS_IN = 0.83
COLUMN_HEADINGS_IN = 1.01
ROWS_IN = 1.11
ROW_IN = 0.3
FOOT_IN = 0.62
HEADINGS = (
    (DRAWN_IN, HEADINGS_IN, "support side"),
    (SCORE_IN, HEADINGS_IN, "query to centroids"),
    (POOL_IN, COLUMN_HEADINGS_IN, "pool"),
    (DRAWN_IN, COLUMN_HEADINGS_IN, "drawn"),
    (LEFT_IN, COLUMN_HEADINGS_IN, "left"),
)

SQUARE: Style = {"marker": "s", "color": BLUE, "linestyle": "none", "markersize": 4.2}
DIAMOND: Style = {
    "marker": "D",
    "color": VERMILION,
    "linestyle": "none",
    "markersize": 4.2,
}
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


@figure_of_report(
    "episode",
    "methods",
    "An episode chosen as an illustration: a query, its draw, and what is left",
)
def plan_episode(results: CorpusResults, _: Any, protocol: Protocol) -> Pages:
    """Yield the diagram of one episode."""
    example = choose_episode(results, protocol)
    score = "log-odds" if protocol.score == "log" else "softmax"
    yield FigurePage("episode", _compose, (example, score))


def _compose(figure: "Figure", example: ExampleEpisode, score: str) -> None:
    foot_in = ROWS_IN + ROW_IN * len(example.rows)
    height_in = foot_in + FOOT_IN
    figure.set_layout_engine("none")
    figure.set_size_inches(PAGE_WIDTH_IN, height_in)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, PAGE_WIDTH_IN), ylim=(height_in, 0))
    ax.axis("off")
    _write_query(ax, example)
    for x, y, text in HEADINGS:
        _write(ax, x, y, text)
    _write(ax, SCORE_IN, COLUMN_HEADINGS_IN, score)
    _draw_folds(ax, example)
    _write_names(ax, example)
    for number, row in enumerate(example.rows):
        y = _row_middle(number)
        _write_sizes(ax, example, row, y)
        _draw_score(ax, example, row, y)
    _write_key(ax, foot_in + 0.2)
    _write_decision(ax, example, foot_in + 0.42)


def _row_middle(number: int) -> float:
    return ROWS_IN + (number + 0.5) * ROW_IN


def _write(ax: "Axes", x: float, y: float, text: str, **style: object) -> None:
    """Write a text around a position, small and centred unless the style differs."""
    defaults: Style = {"ha": "center", "va": "center_baseline", "fontsize": TICK_PT}
    ax.text(x, y, text, **{**defaults, **style})


def _write_query(ax: "Axes", example: ExampleEpisode) -> None:
    """Describe the query and its support set."""
    room_pt = (PAGE_WIDTH_IN - 0.4) * 72
    episode = example.episode
    labels = " and ".join(example.labels)
    exemplars = count_text(episode.k, "exemplar")
    title = shorten(f"Query {episode.segment}", room_pt, TITLE_FONT)
    query = f"Fold {example.fold}, label {labels}; encoder {example.encoder}."
    support = f"{exemplars} of every class, from the other folds and the common fold."
    ax.plot(MARK_IN, 0.17, **{**DIAMOND, "markersize": 5})
    _write_line(ax, 0.17, title, weight="bold", fontsize=TITLE_PT)
    _write_line(ax, 0.36, shorten(query, room_pt))
    _write_line(ax, 0.53, f"Draw {episode.draw}: {support}")


def _write_line(ax: "Axes", y: float, text: str, **style: Any) -> None:
    """Write a line that begins where the names of classes do."""
    ax.text(TEXT_IN, y, text, va="center_baseline", **style)


def _write_names(ax: "Axes", example: ExampleEpisode) -> None:
    room = (FOLDS_IN - TEXT_IN) * 72 - 6
    labels = [row.label for row in example.rows]
    names = shorten_all(labels, room, BOLD_FONT)
    for number, name in enumerate(names):
        y = _row_middle(number)
        weight = "normal"
        if labels[number] == example.label:
            weight = "bold"
            ax.plot(MARK_IN, y, **DIAMOND)
        _write_line(ax, y, name, weight=weight)


def _draw_folds(ax: "Axes", example: ExampleEpisode) -> None:
    """Draw a column for each fold, with a cell for each class."""
    columns = _group_folds(example)
    width = min(WIDEST_FOLD_IN, ALL_FOLDS_IN / (len(columns) - 1))
    x = FOLDS_IN + width / 2
    _write(ax, FOLDS_IN, HEADINGS_IN, "segments of each class, by fold", ha="left")
    for heading, folds in columns.items():
        if heading == "common":
            x += COMMON_GAP_IN
        is_query = example.fold in folds
        weight = "bold" if is_query else "normal"
        colour = MIST if is_query else "white"
        _write(ax, x, COLUMN_HEADINGS_IN, heading, weight=weight)
        for number, row in enumerate(example.rows):
            y = _row_middle(number)
            segments = sum(row.segments[fold] for fold in folds)
            marks = _marks(example, row, folds)
            _draw_box(ax, x - width / 2, y, width, ROW_IN, colour, SILVER)
            _draw_cell(ax, x, y, width, segments, marks)
        x += width


def _group_folds(example: ExampleEpisode) -> dict[str, list[int]]:
    """Return the folds of each column by its heading; beyond ten folds, the last share one."""
    common = len(example.rows[0].segments) - 1
    support_folds = [fold for fold in range(common) if fold != example.fold]
    single = support_folds[: MAX_FOLDS - 1]
    rest = support_folds[MAX_FOLDS - 1 :]
    columns = {}
    for fold in sorted([example.fold, *single]):
        columns[str(fold)] = [fold]
    if rest:
        columns[f"+{len(rest)}"] = rest
    return columns | {"common": [common]}


def _marks(example: ExampleEpisode, row: ClassRow, folds: Sequence[int]) -> list[Style]:
    """Return a mark for each exemplar that was drawn from folds, and one for the query."""
    marks: list[Style] = []
    for fold in folds:
        marks += [SQUARE] * row.drawn[fold]
    if example.fold in folds and row.label == example.label:
        marks.append(DIAMOND)
    return marks


def _draw_cell(
    ax: "Axes",
    x: float,
    y: float,
    width: float,
    segments: int,
    marks: Sequence[Style],
) -> None:
    """Write the number of segments of a class in a fold, above its marks."""
    text_y = y - 0.055 if marks else y
    colour = INK if segments else GREY
    _write(ax, x, text_y, str(segments), fontsize=SMALL_PT, color=colour)
    step = min(0.075, (width - 0.06) / max(len(marks), 1))
    size = min(4.0, step * 65)
    x -= (len(marks) - 1) / 2 * step
    for mark in marks:
        ax.plot(x, y + 0.085, **{**mark, "markersize": size})
        x += step


def _draw_box(
    ax: "Axes",
    left: float,
    middle: float,
    width: float,
    height: float,
    fill: str,
    edge: str,
) -> None:
    from matplotlib.patches import Rectangle

    box = Rectangle(
        (left, middle - height / 2),
        width,
        height,
        facecolor=fill,
        edgecolor=edge,
        linewidth=0.5,
    )
    ax.add_patch(box)


def _write_sizes(ax: "Axes", example: ExampleEpisode, row: ClassRow, y: float) -> None:
    """Write how many exemplars there are to draw from, how many were drawn, and how many remain."""
    support = example.episode.support[row.label]
    k = example.episode.k
    pool = sum(row.segments) - row.segments[example.fold]
    left = pool - len(set(support))
    drawn = str(k)
    if len(support) < k:
        drawn = f"{len(support)} of {k}"
    _write(ax, POOL_IN, y, str(pool))
    _write(ax, DRAWN_IN, y, drawn)
    _write(ax, LEFT_IN, y, str(left))


def _draw_score(ax: "Axes", example: ExampleEpisode, row: ClassRow, y: float) -> None:
    """Draw a score as a bar from zero, and write it on the other side of zero."""
    is_decision = row.label == example.decision
    colour = BLUE if is_decision else SILVER
    weight = "bold" if is_decision else "normal"
    length_in = _bar_length_in(example, row.score)
    _draw_box(ax, SCORE_IN, y, length_in, ROW_IN - 0.16, colour, "none")
    half_in = ROW_IN / 2
    ax.vlines(SCORE_IN, y - half_in, y + half_in, color=INK, linewidth=0.6)
    x = SCORE_IN + 0.04
    side = "left"
    if row.score > 0:
        x = SCORE_IN - 0.04
        side = "right"
    text = _format_score(row.score)
    _write(ax, x, y, text, ha=side, weight=weight, fontsize=SMALL_PT)


def _bar_length_in(example: ExampleEpisode, score: float) -> float:
    """Return the length of the bar of a score; that of the largest is half the column."""
    scores = [abs(row.score) for row in example.rows]
    largest = max(filter(isfinite, scores), default=0.0) or 1.0
    return score / largest * HALF_SCORE_IN if isfinite(score) else 0.0


def _format_score(score: float) -> str:
    text = f"{score:#.3g}" if abs(score) < 1000 else f"{score:.0f}"
    return text.rstrip(".").replace("-", "−")


def _write_key(ax: "Axes", y: float) -> None:
    """Write what the marks mean."""
    x = MARK_IN
    for mark, text in KEY:
        ax.plot(x, y, **mark)
        _write(ax, x + 0.1, y, text, ha="left")
        x += 0.38 + text_width_pt(text, TICK_FONT) / 72


def _write_decision(ax: "Axes", example: ExampleEpisode, y: float) -> None:
    """Write the decision, and how many classes are not shown."""
    verdict = "correct" if example.is_correct else "wrong"
    text = f"Decision: {example.decision}, {verdict}."
    hidden = example.classes - len(example.rows)
    if hidden > 0:
        text += f" {hidden} more of {example.classes} classes are not shown."
    text = shorten(text, (PAGE_WIDTH_IN - 0.2) * 72)
    ax.text(0.08, y, text, va="center_baseline")
