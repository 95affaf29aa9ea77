"""The nouns of a report: all that the tables, figures and pages of one corpus are made from."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from callshot.records.embeddings import Embeddings
from callshot.records.recordings import Reject
from callshot.records.results import Evaluation


@dataclass(frozen=True)
class DurationStats:
    """How many spans there are, and how long: the sum, the mean, the ends, and the (population) standard deviation."""

    count: int
    total_s: float
    mean_s: float
    shortest_s: float
    longest_s: float
    deviation_s: float


@dataclass(frozen=True)
class CorpusStats:
    """What a corpus is made of, before and after cutting; `kinds` are the audio formats that libsndfile names.

    `calls` are all annotations in their place, `segments` those that are long enough.
    """

    rates_hz: tuple[float, ...]
    channels: tuple[int, ...]
    kinds: tuple[str, ...]
    labels: int
    minimum_s: float
    collar_s: float
    recordings: DurationStats
    annotated: DurationStats
    calls: DurationStats
    segments: DurationStats


@dataclass(frozen=True)
class Baseline:
    """What a trained classifier scored on the same queries, trained on all labelled data of each split.

    `kind` is logistic, recurrent or end-to-end; `name` is how tables call it (LR, GRU, AERD), and no encoder has it.
    `encoder` is empty for one that hears the audio itself. `how` says in words what was chosen on the support sides,
    where callshot trained it. The row of `rivals.csv`.
    """

    corpus: str
    encoder: str
    kind: str
    name: str
    scoring: str
    metric: str
    value: float
    how: str = ""


@dataclass(frozen=True)
class Crossover:
    """Where a curve passes another: at `k` on average, and `surely` from where its 1–99 % interval stays above.

    That needs an interval which is one: over 100 samples or more that differ, and up to k*.
    `labels` says what the rival was trained on. With `all` of the support side, it is the centroid that passes, first
    at k; with `k`, the same draws as the centroid, it is the rival that does, from k on. None: nowhere in the sweep.
    The row of `crossings.csv`.
    """

    corpus: str
    encoder: str
    baseline: str
    labels: str
    scoring: str
    metric: str
    spread: str
    k: int | None
    k_clear: int | None


@dataclass(frozen=True)
class RefinementStep:
    """What gradient steps make of the centroid of the whole pool: 0 is the centroid, the last is logistic regression.

    `temperature` is what the centroid's scores were divided by before the first step, its mean over splits. The row of
    `refinement.csv`.
    """

    corpus: str
    encoder: str
    scoring: str
    metric: str
    step: int
    value: float
    temperature: float


@dataclass(frozen=True)
class Difference:
    """One value less another over the same draws, and the share of samples in which it is larger (equal: half).

    `one` and `other` are encoders, or an encoder and a rival on it. The row of `differences.csv`.
    """

    corpus: str
    one: str
    other: str
    scoring: str
    metric: str
    spread: str
    k: int
    mean: float
    p01: float
    p25: float
    p50: float
    p75: float
    p99: float
    wins: float


@dataclass(frozen=True)
class BudgetRow:
    """What more exemplars of a class are worth to it, by its curve. The row of `budget.csv`.

    `value` is the mean of the metric at `k`, the last shot that the class can give in every split. A curve a − b/k
    through the later half of its complete shots gives the rest: the gain by one exemplar more, by twice as many, and
    the limit a, none beyond 1 (a gain: 1 − value); NaN where fewer than three shots are complete. `error` is the root
    mean square distance of the curve.
    """

    corpus: str
    encoder: str
    label: str
    metric: str
    exemplars: int
    k: int
    value: float
    next_gain: float
    double_gain: float
    limit: float
    error: float


@dataclass(frozen=True)
class CorpusResults:
    """One corpus of a study. `tables` are its embeddings, one for each encoder, rows as in the evaluation.

    The evaluation is of one rule, the reference; `others` has the curves of the other rules without training, and of
    rivals that were trained at every k, on the first draws of the spread `shared`.
    """

    evaluation: Evaluation
    facts: CorpusStats
    evaluated: DurationStats
    tables: Sequence[Embeddings]
    baselines: Sequence[Baseline]
    differences: Sequence[Difference]
    budget: Sequence[BudgetRow]
    categories: Mapping[str, str] | None
    rejects: Sequence[Reject]
    notes: Sequence[str]
    others: Evaluation | None = None
    crossovers: Sequence[Crossover] = ()
    refinement: Sequence[RefinementStep] = ()
