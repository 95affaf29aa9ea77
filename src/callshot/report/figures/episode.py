"""One real episode → a diagram: classes by folds, the query, its support set, and the decision.

Positions are inches from the upper left corner.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from callshot.errors import count_text
from callshot.fewshot.protocol import Protocol
from callshot.records import COMMON_FOLD, CorpusResults, Episode, Evaluation
from callshot.report.choices import list_queries
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
    TICK_PT,
    TITLE_FONT,
    TITLE_PT,
    VERMILION,
    Style,
    shorten,
    shorten_all,
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
    """Rerun a few episodes of the best encoder; return the first correct one, or the last."""
    # Imports numba, which is slow.
    from callshot.fewshot.evaluate import rerun_episode

    evaluation = results.evaluation
    curve = evaluation.curve
    few_shots = curve.filter(pl.col("k") <= FEW_SHOTS)
    k = max(few_shots["k"], default=FEW_SHOTS)
    by_k = curve.filter(metric="map", scoring="all").sort("k", maintain_order=True)
    last_mean = dict(by_k.select("encoder", "mean").iter_rows())
    table = max(results.tables, key=lambda table: last_mean[table.encoder])
    folds = dict(zip(table.segment, evaluation.folds.fold.tolist(), strict=True))
    queries = sorted(list_queries(evaluation))
    step = max(1, len(queries) // CANDIDATES)
    for query in queries[::step]:
        episode = rerun_episode(table, evaluation.folds, query, k, 0, protocol)
        example = _describe_episode(evaluation, table, episode, folds)
        if example.is_correct:
            break
    return example


def _describe_episode(
    evaluation: Evaluation, table: Vectors, episode: Episode, folds: Mapping[str, int]
) -> ExampleEpisode:
    """Return an episode with the classes to show; `folds` is the fold of each segment."""
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
            support = episode.support[count.label]
            by_fold = Counter(folds[name] for name in support)
            numbers = (*range(len(count.per_fold)), COMMON_FOLD)
            drawn[count.label] = tuple(by_fold[number] for number in numbers)
    return ExampleEpisode(
        encoder=table.encoder,
        episode=episode,
        labels=labels,
        fold=folds[episode.segment],
        segments=segments,
        drawn=drawn,
        classes=len(names),
    )


MARK_IN = 0.14
TEXT_IN = 0.26
FOLDS_IN = 1.5
MAX_FOLD_IN = 0.45
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
DRAWN = "■"
QUERY = "◆"
KEY = (
    f"{QUERY} query    {DRAWN} drawn: the support set    grey: fold of the query, from which "
    "nothing is drawn    blue bar: largest score"
)
LEFT: Style = {"ha": "left", "fontsize": None}


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
    """Draw the diagram of an episode; `score` says what the scores are."""
    foot_in = ROWS_IN + ROW_IN * len(example.segments)
    height_in = foot_in + FOOT_IN
    figure.set_layout_engine("none")
    figure.set_size_inches(PAGE_WIDTH_IN, height_in)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, PAGE_WIDTH_IN), ylim=(height_in, 0))
    ax.axis("off")

    episode = example.episode
    room_pt = (PAGE_WIDTH_IN - 0.4) * 72
    title = shorten(f"Query {episode.segment}", room_pt, TITLE_FONT)
    labels = " and ".join(example.labels)
    query = f"Fold {example.fold}, label {labels}; encoder {example.encoder}."
    shown_query = shorten(query, room_pt)
    exemplars = count_text(episode.k, "exemplar")
    support = (
        f"Draw {episode.draw}: {exemplars} of every class, from the other folds and the "
        "common fold."
    )
    _write(ax, MARK_IN, 0.17, QUERY, color=VERMILION)
    _write(ax, TEXT_IN, 0.17, title, ha="left", weight="bold", fontsize=TITLE_PT)
    _write(ax, TEXT_IN, 0.36, shown_query, **LEFT)
    _write(ax, TEXT_IN, 0.53, support, **LEFT)
    for x, y, heading in HEADINGS:
        _write(ax, x, y, heading)
    _write(ax, SCORE_IN, COLUMN_HEADINGS_IN, score)
    _draw_folds(ax, example)
    _draw_rows(ax, example)

    verdict = "correct" if example.is_correct else "wrong"
    text = f"Decision: {example.decision}, {verdict}."
    hidden = example.classes - len(example.segments)
    if hidden > 0:
        text += f" {hidden} more of {example.classes} classes are not shown."
    _write(ax, 0.08, foot_in + 0.2, KEY, ha="left")
    foot_room_pt = (PAGE_WIDTH_IN - 0.2) * 72
    shown = shorten(text, foot_room_pt)
    _write(ax, 0.08, foot_in + 0.42, shown, **LEFT)


def _write(ax: "Axes", x: float, y: float, text: object, **style: object) -> None:
    """Write a text around a position, small and centred unless the style differs."""
    defaults: Style = {"ha": "center", "va": "center_baseline", "fontsize": TICK_PT}
    ax.text(x, y, str(text), **{**defaults, **style})


def _draw_folds(ax: "Axes", example: ExampleEpisode) -> None:
    """Draw a column for each fold, with a cell for each class: its segments and the drawn ones."""
    first_counts = next(iter(example.segments.values()))
    folds = len(first_counts) - 1  # without the common fold
    width = min(MAX_FOLD_IN, ALL_FOLDS_IN / folds)
    tops = ROWS_IN + ROW_IN * np.arange(len(example.segments))
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
        ax.bar(x, ROW_IN, width, tops, zorder=1, **box)
        for top, (label, counts) in zip(tops, example.segments.items(), strict=True):
            count = counts[fold]
            drawn = example.drawn[label][fold]
            marks = DRAWN * drawn
            colour = BLUE
            if is_query and label == example.labels[0]:
                marks = QUERY
                colour = VERMILION
            ink = INK if count else GREY
            middle_in = 0.095 if marks else ROW_IN / 2  # of the number
            _write(ax, x, top + middle_in, count, fontsize=SMALL_PT, color=ink)
            _write(ax, x, top + 0.225, marks, fontsize=SMALL_PT, color=colour)


def _draw_rows(ax: "Axes", example: ExampleEpisode) -> None:
    """Write the name of each class, its exemplars before and after the draw; draw its score."""
    episode = example.episode
    room_pt = (FOLDS_IN - TEXT_IN) * 72 - 6
    names = shorten_all(list(example.segments), room_pt, BOLD_FONT)
    scores = [episode.scores[label] for label in example.segments]
    # Bars from zero, the largest half as wide as the column; the numbers on the other side.
    lengths_in = np.nan_to_num(scores, posinf=0.0, neginf=0.0)
    longest = np.abs(lengths_in).max() or 1.0
    lengths_in *= HALF_SCORE_IN / longest
    is_decision = [label == example.decision for label in example.segments]
    row_numbers = np.arange(len(scores))
    middles = ROWS_IN + ROW_IN * (row_numbers + 0.5)
    colours = np.where(is_decision, BLUE, SILVER)
    height_in = ROW_IN - 0.16
    ax.barh(middles, lengths_in, height_in, SCORE_IN, color=colours, zorder=1)
    foot_in = ROWS_IN + ROW_IN * len(scores)
    ax.vlines(SCORE_IN, ROWS_IN, foot_in, color=INK, linewidth=0.6)
    labels = list(example.segments)
    for y, label, name, score in zip(middles, labels, names, scores, strict=True):
        is_true = label == example.labels[0]
        name_weight = "bold" if is_true else "normal"
        _write(ax, TEXT_IN, y, name, weight=name_weight, **LEFT)
        support = episode.support[label]
        segments = example.segments[label]
        pool = sum(segments) - segments[example.fold]
        drawn = str(len(support))
        if len(support) < episode.k:
            drawn += f" of {episode.k}"
        remaining = pool - len(set(support))
        _write(ax, POOL_IN, y, pool)
        _write(ax, DRAWN_IN, y, drawn)
        _write(ax, LEFT_IN, y, remaining)
        digits = ".3g" if abs(score) < 1000 else ".0f"
        text = format(score, digits)
        shown = text.replace("-", "−")
        side = "left"
        shift_in = 0.04
        if score > 0:
            side = "right"
            shift_in = -0.04
        is_decided = label == example.decision
        score_weight = "bold" if is_decided else "normal"
        style = {"ha": side, "weight": score_weight, "fontsize": SMALL_PT}
        _write(ax, SCORE_IN + shift_in, y, shown, **style)
