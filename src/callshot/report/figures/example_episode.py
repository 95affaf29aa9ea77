"""Results of a corpus → one real episode to show: a query, its support set, and the decision."""

from collections.abc import Sequence
from dataclasses import dataclass

from callshot.fewshot.protocol import Protocol
from callshot.records import COMMON_FOLD, ClassCount, CorpusResults, Embeddings, Episode, Evaluation

FEW_SHOTS = 3
CANDIDATES = 6
MOST_ROWS = 12


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
    label: str
    other_labels: tuple[str, ...]
    fold: int
    rows: Sequence[ClassRow]
    classes: int

    @property
    def decision(self) -> str:
        """The class with the largest score."""
        return decide(self.episode)

    @property
    def is_correct(self) -> bool:
        """Whether the decision is one of the labels of the query."""
        return self.decision in (self.label, *self.other_labels)


def choose_episode(results: CorpusResults, protocol: Protocol) -> ExampleEpisode:
    """Rerun a few episodes of the best encoder, and return the one that shows most.

    That is a correct decision, with an exemplar from the common fold, exemplars from many folds, and
    a small margin between the class of the query and the next one, in this order.
    """
    evaluation = results.evaluation
    few_shots = [k for k in evaluation.curve["k"].unique() if k <= FEW_SHOTS]
    k = max(few_shots, default=FEW_SHOTS)
    table = _best_table(results)
    queries = _choose_queries(evaluation)
    episodes = [_run_episode(evaluation, table, query, k, protocol) for query in queries]
    return max(episodes, key=_interest)


def decide(episode: Episode) -> str:
    """Return the class with the largest score; of equal ones, the first by name."""
    return max(sorted(episode.scores), key=lambda name: episode.scores[name])


def _best_table(results: CorpusResults) -> Embeddings:
    """Return the embeddings of the encoder with the largest mAP at the last k."""
    points = results.evaluation.curve.filter(metric="map", scoring="all")
    points = points.sort("k", maintain_order=True)
    last_mean = dict(points.select("encoder", "mean").iter_rows())
    return max(results.tables, key=lambda table: last_mean.get(table.encoder, 0.0))


def _choose_queries(evaluation: Evaluation) -> list[str]:
    """Return a few queries, evenly spread over all of them in the order of their ids."""
    eligible = {count.label for count in evaluation.classes if count.eligible}
    segments = evaluation.segments
    queries = []
    for segment, label, fold in zip(
        segments.segment, segments.label, evaluation.folds.fold, strict=True
    ):
        if label in eligible and fold != COMMON_FOLD:
            queries.append(segment)
    queries.sort()
    count = min(CANDIDATES, len(queries))
    return [queries[number * len(queries) // count] for number in range(count)]


def _run_episode(
    evaluation: Evaluation, table: Embeddings, segment: str, k: int, protocol: Protocol
) -> ExampleEpisode:
    from callshot.fewshot.single_episode import rerun_episode  # imports numba, which is slow

    episode = rerun_episode(table, evaluation.folds, segment, k, 0, protocol)
    folds = dict(zip(table.segment, evaluation.folds.fold.tolist(), strict=True))
    counts = [count for count in evaluation.classes if count.eligible]
    rows = [_class_row(count, episode, folds, evaluation.folds.count) for count in counts]
    query = table.segment.index(segment)
    label = table.label[query]
    evaluated = [name for name in table.labels[query] if name in episode.scores]
    other_labels = tuple(name for name in evaluated if name != label)
    shown = _choose_rows(rows, (label, *other_labels))
    return ExampleEpisode(
        table.encoder, episode, label, other_labels, folds[segment], shown, len(rows)
    )


def _class_row(count: ClassCount, episode: Episode, folds: dict[str, int], last: int) -> ClassRow:
    """Return a class in an episode; the common fold is at index `last`."""
    drawn = [folds[segment] % (last + 1) for segment in episode.support[count.label]]
    return ClassRow(
        count.label,
        (*count.per_fold, count.exemplars - sum(count.per_fold)),
        tuple(drawn.count(fold) for fold in range(last + 1)),
        episode.scores[count.label],
    )


def _choose_rows(rows: Sequence[ClassRow], labels: Sequence[str]) -> list[ClassRow]:
    """Choose classes: those of the query, the best by score, the rarest, then the commonest."""
    own = [row for row in rows if row.label in labels]
    best = sorted(rows, key=lambda row: -row.score)[:2]
    by_interest = dict.fromkeys(row.label for row in (*own, *best, *rows[-2:], *rows))
    shown = list(by_interest)[:MOST_ROWS]
    return [row for row in rows if row.label in shown]


def _interest(example: ExampleEpisode) -> tuple[bool, bool, int, float]:
    """Return what `choose_episode` compares episodes by."""
    drawn = [sum(counts) for counts in zip(*(row.drawn for row in example.rows), strict=True)]
    scores = dict(example.episode.scores)
    margin = scores.pop(example.label) - max(scores.values())
    has_common = drawn[-1] > 0
    folds = sum(count > 0 for count in drawn)
    return example.is_correct, has_common, folds, -abs(margin)
