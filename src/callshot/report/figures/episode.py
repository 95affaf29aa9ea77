"""One real episode → a diagram: classes by folds, the query, its support set, and the decision.

Positions are inches from the upper left corner. The row of a class has its name, its segments in
every fold with a square for each drawn one, the size of its pool, and the score of the query.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Any

import polars as pl

from callshot.errors import count_text
from callshot.fewshot.protocol import Protocol
from callshot.records import COMMON_FOLD, CorpusResults, Episode, Evaluation
from callshot.report.figures.figure_io import FigurePage, Pages, figure_of_report
from callshot.report.figures.layout import (
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
from callshot.vectors import Vectors

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FEW_SHOTS = 3
CANDIDATES = 6
MAX_ROWS = 12


@dataclass(frozen=True)
class ExampleEpisode:
    """An episode, the labels and the fold of its query, and the classes that are shown.

    `segments` and `drawn` count the segments and the drawn exemplars of these classes in each
    fold, the common fold last.
    """

    encoder: str
    episode: Episode
    labels: Sequence[str]  # the centre label of the query first
    fold: int
    segments: Mapping[str, Sequence[int]]
    drawn: Mapping[str, Sequence[int]]
    classes: int

    @property
    def decision(self) -> str:
        """The class with the largest score; of equal ones, the first by name."""
        scores = self.episode.scores
        return max(sorted(scores), key=scores.__getitem__)

    @property
    def is_correct(self) -> bool:
        """Whether the decision is one of the labels of the query."""
        return self.decision in self.labels


def choose_episode(results: CorpusResults, protocol: Protocol) -> ExampleEpisode:
    """Rerun a few episodes of the best encoder; return the first with a correct decision.

    The queries of these episodes are evenly spread over all queries, ordered by id. If no decision
    is correct, return the last episode.
    """
    # Imports numba, which is slow.
    from callshot.fewshot.evaluate import rerun_episode

    evaluation = results.evaluation
    curve = evaluation.curve
    k = max(curve.filter(pl.col("k") <= FEW_SHOTS)["k"], default=FEW_SHOTS)
    by_k = curve.filter(metric="map", scoring="all").sort("k", maintain_order=True)
    last_mean = dict(by_k.select("encoder", "mean").iter_rows())
    table = max(results.tables, key=lambda table: last_mean[table.encoder])
    eligible = {count.label for count in evaluation.eligible_classes}
    folds = dict(zip(table.segment, evaluation.folds.fold.tolist(), strict=True))
    queries = sorted(
        segment
        for segment, label in zip(table.segment, table.label, strict=True)
        if label in eligible and folds[segment] != COMMON_FOLD
    )
    for query in queries[:: max(1, len(queries) // CANDIDATES)]:
        episode = rerun_episode(
            table, evaluation.folds, query, k, draw=0, protocol=protocol
        )
        example = _describe_episode(evaluation, table, episode, folds)
        if example.is_correct:
            break
    return example


def _describe_episode(
    evaluation: Evaluation, table: Vectors, episode: Episode, folds: Mapping[str, int]
) -> ExampleEpisode:
    """Return an episode with the classes that the diagram shows, and their counts in each fold.

    `folds` is the fold of each segment, by name.
    """
    scores = episode.scores
    query = table.segment.index(episode.segment)
    evaluated = [name for name in table.labels[query] if name in scores]
    labels = list(dict.fromkeys([table.label[query], *evaluated]))
    # The classes of the query, the best by score, the rarest, then the commonest.
    classes = evaluation.eligible_classes
    names = [count.label for count in classes]
    best = sorted(names, key=lambda name: -scores[name])[:2]
    shown = list(dict.fromkeys([*labels, *best, *names[-2:], *names]))[:MAX_ROWS]
    segments = {}
    drawn = {}
    for count in classes:
        if count.label in shown:
            common = count.exemplars - sum(count.per_fold)
            segments[count.label] = (*count.per_fold, common)
            drawn_by_fold = Counter(
                folds[name] for name in episode.support[count.label]
            )
            numbers = (*range(len(count.per_fold)), COMMON_FOLD)
            drawn[count.label] = tuple(drawn_by_fold[number] for number in numbers)
    fold = folds[episode.segment]
    return ExampleEpisode(
        table.encoder, episode, labels, fold, segments, drawn, len(names)
    )


# Horizontal positions of columns, and their widths.
MARK_IN = 0.14
TEXT_IN = 0.26
FOLDS_IN = 1.5
MAX_FOLD_IN = 0.45
ALL_FOLDS_IN = 2.8
COMMON_GAP_IN = 0.08
COUNT_UP_IN = 0.055  # from the middle of a cell with marks, to the number of segments
MARKS_DOWN_IN = 0.085
MARK_STEP_IN = 0.075  # between two marks, smaller if there are many
CELL_MARGIN_IN = 0.06  # of all marks
POOL_IN = 5.09
DRAWN_IN = 5.51
REMAINING_IN = 5.93  # what is left of the pool
SCORE_IN = 6.65
HALF_SCORE_IN = 0.5

HEADINGS_IN = 0.83
COLUMN_HEADINGS_IN = 1.01
ROWS_IN = 1.11
ROW_IN = 0.3
BAR_IN = 0.14  # the height of the bar of a score
NUMBER_GAP_IN = 0.04  # between the axis of scores and a number
NAME_GAP_PT = 6  # at the right of a name
FOOT_IN = 0.62
HEADINGS = (
    (DRAWN_IN, HEADINGS_IN, "support side"),
    (SCORE_IN, HEADINGS_IN, "query to centroids"),
    (POOL_IN, COLUMN_HEADINGS_IN, "pool"),
    (DRAWN_IN, COLUMN_HEADINGS_IN, "drawn"),
    (REMAINING_IN, COLUMN_HEADINGS_IN, "left"),
)

SQUARE: Style = {"marker": "s", "color": BLUE, "linestyle": "none", "markersize": 4.2}
DIAMOND: Style = {**SQUARE, "marker": "D", "color": VERMILION}
SHADE: Style = {
    **SQUARE,
    "color": MIST,
    "markersize": 6,
    "markeredgecolor": SILVER,
    "markeredgewidth": 1,
}
BAR: Style = {**SQUARE, "marker": "_", "markeredgewidth": 4, "markersize": 7}
LEFT_ALIGNED: Style = {"ha": "left", "fontsize": None}
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
    """Draw the diagram of an episode: the query above, a row for each class, the decision below.

    `score` says what the scores are, in the heading of their column.
    """
    foot_in = ROWS_IN + ROW_IN * len(example.segments)
    height_in = foot_in + FOOT_IN
    figure.set_layout_engine("none")
    figure.set_size_inches(PAGE_WIDTH_IN, height_in)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, PAGE_WIDTH_IN), ylim=(height_in, 0))
    ax.axis("off")

    episode = example.episode
    exemplars = count_text(episode.k, "exemplar")
    room_pt = (PAGE_WIDTH_IN - 0.4) * 72
    title = shorten(f"Query {episode.segment}", room_pt, TITLE_FONT)
    labels = " and ".join(example.labels)
    query = f"Fold {example.fold}, label {labels}; encoder {example.encoder}."
    support = f"{exemplars} of every class, from the other folds and the common fold."
    ax.plot(MARK_IN, 0.17, **{**DIAMOND, "markersize": 5})
    heading = {**LEFT_ALIGNED, "weight": "bold", "fontsize": TITLE_PT}
    _write(ax, TEXT_IN, 0.17, title, **heading)
    _write(ax, TEXT_IN, 0.36, shorten(query, room_pt), **LEFT_ALIGNED)
    _write(ax, TEXT_IN, 0.53, f"Draw {episode.draw}: {support}", **LEFT_ALIGNED)
    for x, y, text in (*HEADINGS, (SCORE_IN, COLUMN_HEADINGS_IN, score)):
        _write(ax, x, y, text)
    _draw_folds(ax, example)
    _draw_rows(ax, example)

    x = MARK_IN
    for mark, text in KEY:
        ax.plot(x, foot_in + 0.2, **mark)
        _write(ax, x + 0.1, foot_in + 0.2, text, ha="left")
        x += 0.38 + text_width_pt(text, TICK_FONT) / 72
    verdict = "correct" if example.is_correct else "wrong"
    text = f"Decision: {example.decision}, {verdict}."
    hidden = example.classes - len(example.segments)
    if hidden > 0:
        text += f" {hidden} more of {example.classes} classes are not shown."
    shown = shorten(text, (PAGE_WIDTH_IN - 0.2) * 72)
    _write(ax, 0.08, foot_in + 0.42, shown, **LEFT_ALIGNED)


def _write(ax: "Axes", x: float, y: float, text: object, **style: object) -> None:
    """Write a text around a position, small and centred unless the style differs."""
    defaults: Style = {"ha": "center", "va": "center_baseline", "fontsize": TICK_PT}
    ax.text(x, y, str(text), **{**defaults, **style})


def _row_middle(number: int) -> float:
    """Return the vertical position of the middle of a row, in inches from the top."""
    return ROWS_IN + (number + 0.5) * ROW_IN


def _draw_folds(ax: "Axes", example: ExampleEpisode) -> None:
    """Draw a column for each fold, with a cell for each class: its segments, and the drawn ones.

    A drawn segment is a square. The fold of the query is shaded, and the query itself a diamond.
    """
    folds = len(next(iter(example.segments.values()))) - 1
    width = min(MAX_FOLD_IN, ALL_FOLDS_IN / folds)
    _write(ax, FOLDS_IN, HEADINGS_IN, "segments of each class, by fold", ha="left")
    for fold in (*range(folds), COMMON_FOLD):
        heading = str(fold)
        x = FOLDS_IN + (fold + 0.5) * width
        if fold == COMMON_FOLD:  # after the others, with a gap
            heading = "common"
            x = FOLDS_IN + (folds + 0.5) * width + COMMON_GAP_IN
        is_query = fold == example.fold
        weight = "bold" if is_query else "normal"
        _write(ax, x, COLUMN_HEADINGS_IN, heading, weight=weight)
        fill = MIST if is_query else "white"
        box: Style = {"facecolor": fill, "edgecolor": SILVER, "linewidth": 0.5}
        for number, (label, counts) in enumerate(example.segments.items()):
            y = _row_middle(number)
            top_in = y - ROW_IN / 2
            ax.bar(x, height=ROW_IN, width=width, bottom=top_in, zorder=1, **box)
            # The common fold, -1, is the last of the counts.
            marks = [SQUARE] * example.drawn[label][fold]
            if is_query and label == example.labels[0]:
                marks.append(DIAMOND)
            text_y = y - COUNT_UP_IN if marks else y
            colour = INK if counts[fold] else GREY
            _write(ax, x, text_y, counts[fold], fontsize=SMALL_PT, color=colour)
            # Marks stand side by side, around the middle of the cell.
            step = min(MARK_STEP_IN, (width - CELL_MARGIN_IN) / max(len(marks), 1))
            middle = (len(marks) - 1) / 2
            for place, mark in enumerate(marks):
                mark_x = x + (place - middle) * step
                size_pt = min(4.0, step * 65)  # a little less than a step
                ax.plot(mark_x, y + MARKS_DOWN_IN, **{**mark, "markersize": size_pt})


def _draw_rows(ax: "Axes", example: ExampleEpisode) -> None:
    """Write the name of each class, its exemplars before and after the draw; draw its score."""
    episode = example.episode
    room_pt = (FOLDS_IN - TEXT_IN) * 72 - NAME_GAP_PT
    names = shorten_all(list(example.segments), room_pt, BOLD_FONT)
    scores = [abs(episode.scores[label]) for label in example.segments]
    largest = max(filter(isfinite, scores), default=0.0) or 1.0
    rows = zip(example.segments.items(), names, strict=True)
    for number, ((label, segments), name) in enumerate(rows):
        y = _row_middle(number)
        is_label = label == example.labels[0]
        if is_label:
            ax.plot(MARK_IN, y, **DIAMOND)
        weight = "bold" if is_label else "normal"
        _write(ax, TEXT_IN, y, name, weight=weight, **LEFT_ALIGNED)
        support = episode.support[label]
        pool = sum(segments) - segments[example.fold]
        enough = len(support) >= episode.k
        drawn = episode.k if enough else f"{len(support)} of {episode.k}"
        _write(ax, POOL_IN, y, pool)
        _write(ax, DRAWN_IN, y, drawn)
        # An exemplar that was drawn twice, with replacement, counts once.
        _write(ax, REMAINING_IN, y, pool - len(set(support)))
        is_decision = label == example.decision
        _draw_score(ax, y, episode.scores[label], largest, is_decision)


def _draw_score(
    ax: "Axes", y: float, score: float, largest: float, is_decision: bool
) -> None:
    """Draw a score as a bar from zero, and its number on the other side.

    The bar of `largest` is half as wide as the column.
    """
    length_in = score / largest * HALF_SCORE_IN if isfinite(score) else 0.0
    colour = BLUE if is_decision else SILVER
    ax.barh(y, length_in, height=BAR_IN, left=SCORE_IN, color=colour, zorder=1)
    half_in = ROW_IN / 2
    ax.vlines(SCORE_IN, y - half_in, y + half_in, color=INK, linewidth=0.6)
    text = f"{score:#.3g}" if abs(score) < 1000 else f"{score:.0f}"
    shown = text.rstrip(".").replace("-", "−")
    weight = "bold" if is_decision else "normal"
    x, side = SCORE_IN + NUMBER_GAP_IN, "left"
    if score > 0:
        x, side = SCORE_IN - NUMBER_GAP_IN, "right"
    _write(ax, x, y, shown, fontsize=SMALL_PT, ha=side, weight=weight)
