"""Everything that the tables, figures and pages of one corpus are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from callshot.records import frames
from callshot.records.embeddings import Embeddings
from callshot.records.evaluation import Evaluation
from callshot.records.frames import Frame, empty_default
from callshot.records.recordings import Reject


@dataclass(frozen=True)
class DurationStats:
    """The number of spans and their durations; the standard deviation is the population's."""

    count: int
    total_s: float
    mean_s: float
    shortest_s: float
    longest_s: float
    deviation_s: float


@dataclass(frozen=True)
class CorpusStats:
    """What a corpus consists of before and after segmentation.

    `kinds` are the audio formats as libsndfile names them. `calls` are all annotations that match a
    recording, `segments` those that are long enough.
    """

    rates_hz: tuple[float, ...]
    channels: tuple[int, ...]
    kinds: tuple[str, ...]
    labels: int
    min_length_s: float
    collar_s: float
    recordings: DurationStats
    annotated: DurationStats
    calls: DurationStats
    segments: DurationStats


@dataclass(frozen=True, eq=False)
class CorpusResults:
    """The results of one corpus of a study.

    `evaluation` has the reference classifier, with its `differences`, `budget` and `crossovers`.
    `others` has the curves of the other classifiers without training, and of baselines trained at
    every k on the first draws of the spread `shared`. `tables` are the embeddings, one per encoder,
    rows as in the evaluation. `callshot.records.frames` describes `baselines` and `refinement`.
    """

    evaluation: Evaluation
    stats: CorpusStats
    evaluated: DurationStats
    tables: Sequence[Embeddings]
    categories: Mapping[str, str] | None = None
    rejects: Sequence[Reject] = ()
    notes: Sequence[str] = ()
    others: Evaluation | None = None
    baselines: Frame = empty_default(frames.BASELINES)
    refinement: Frame = empty_default(frames.REFINEMENT)

    @property
    def corpus(self) -> str:
        """The name of the corpus."""
        return self.evaluation.corpus
