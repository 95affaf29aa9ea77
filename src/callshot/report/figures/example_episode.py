"""A chapter → one real episode of it: a query, what was drawn for it, what was left, and the decision."""

from collections.abc import Sequence
from dataclasses import dataclass

from callshot.fewshot.protocol import Protocol
from callshot.records import COMMON_FOLD, ClassCount, CorpusResults, Embeddings, Episode, Evaluation

FEW, TRIED, ROWS = 3, 6, 12


@dataclass(frozen=True)
class ClassRow:
    """One class in an episode: its segments and its drawn exemplars in each fold, the common fold last; its score."""

    label: str
    segments: tuple[int, ...]
    drawn: tuple[int, ...]
    score: float


@dataclass(frozen=True)
class Scene:
    """An episode, and the classes that are shown of it; `fold` is the query's."""

    encoder: str
    episode: Episode
    label: str
    labels: tuple[str, ...]
    fold: int
    rows: Sequence[ClassRow]
    classes: int

    @property
    def decision(self) -> str:
        """The class with the largest score."""
        return decide(self.episode)

    @property
    def right(self) -> bool:
        """Whether the decision is one of the query's labels."""
        return self.decision in (self.label, *self.labels)


def choose_scene(corpus_results: CorpusResults, protocol: Protocol) -> Scene:
    """Rerun a few episodes of the encoder that scores best, and take the one that shows most.

    That is a right decision, with an exemplar of the common fold if there is one, out of as many folds as can be, and
    as close as can be: by what the score of the query's own class lies above the next.
    """
    evaluation = corpus_results.evaluation
    shots = [c.k for c in evaluation.curve if c.k <= FEW]
    k, table = max(shots, default=FEW), _best_table(corpus_results)
    told = [_tell(evaluation, table, segment, k, protocol) for segment in _queries(evaluation)]
    return max(told, key=_interest)


def decide(episode: Episode) -> str:
    """Return the class with the largest score; of equal ones, the first by name."""
    return max(sorted(episode.scores), key=lambda name: episode.scores[name])


def _best_table(corpus_results: CorpusResults) -> Embeddings:
    points = [c for c in corpus_results.evaluation.curve if (c.metric, c.scoring) == ("map", "all")]
    mean = {c.encoder: c.mean for c in sorted(points, key=lambda c: c.k)}
    return max(corpus_results.tables, key=lambda table: mean.get(table.encoder, 0.0))


def _queries(evaluation: Evaluation) -> list[str]:
    """Return a few queries, evenly out of all, by their ids."""
    eligible = {c.label for c in evaluation.classes if c.eligible}
    columns = zip(
        evaluation.segments.segment,
        evaluation.segments.label,
        evaluation.folds.fold.tolist(),
        strict=True,
    )
    ids = sorted(
        segment for segment, label, fold in columns if label in eligible and fold != COMMON_FOLD
    )
    return [ids[i * len(ids) // min(TRIED, len(ids))] for i in range(min(TRIED, len(ids)))]


def _tell(
    evaluation: Evaluation, table: Embeddings, segment: str, k: int, protocol: Protocol
) -> Scene:
    from callshot.fewshot.single_episode import rerun_episode  # numba takes its time

    at = table.segment.index(segment)
    episode = rerun_episode(table, evaluation.folds, segment, k, 0, protocol)
    fold = dict(zip(table.segment, evaluation.folds.fold.tolist(), strict=True))
    counts = [c for c in evaluation.classes if c.eligible]
    rows = [_class_row(count, episode, fold, evaluation.folds.count) for count in counts]
    labels = tuple(
        name for name in table.labels[at] if name != table.label[at] and name in episode.scores
    )
    shown = _shown(rows, (table.label[at], *labels))
    return Scene(table.encoder, episode, table.label[at], labels, fold[segment], shown, len(rows))


def _class_row(count: ClassCount, episode: Episode, fold: dict[str, int], folds: int) -> ClassRow:
    places = [
        fold[segment] % (folds + 1) for segment in episode.support[count.label]
    ]  # −1 is the last
    segments = (*count.per_fold, count.exemplars - sum(count.per_fold))
    drawn = tuple(places.count(place) for place in range(folds + 1))
    return ClassRow(count.label, segments, drawn, episode.scores[count.label])


def _shown(rows: Sequence[ClassRow], labels: Sequence[str]) -> list[ClassRow]:
    """Keep as many classes as there is room for: the query's, the best by score, the rarest, then the commonest."""
    by_score = sorted(rows, key=lambda row: -row.score)[:2]
    wanted = [*(row for row in rows if row.label in labels), *by_score, *rows[-2:], *rows]
    kept = {row.label for row in list({row.label: row for row in wanted}.values())[:ROWS]}
    return [row for row in rows if row.label in kept]


def _interest(scene: Scene) -> tuple[bool, bool, int, float]:
    drawn = [
        sum(row.drawn[place] for row in scene.rows) for place in range(len(scene.rows[0].drawn))
    ]
    others = [score for name, score in scene.episode.scores.items() if name != scene.label]
    margin = scene.episode.scores[scene.label] - max(others)
    return scene.right, drawn[-1] > 0, sum(count > 0 for count in drawn), -abs(margin)
