"""Results of a corpus → one real episode to show: a query, its support set, and the decision."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import polars as pl

from callshot.fewshot.protocol import Protocol
from callshot.records import (
    COMMON_FOLD,
    ClassCount,
    CorpusResults,
    Embeddings,
    Episode,
    Evaluation,
)

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
    from callshot.fewshot.single_episode import rerun_episode

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
