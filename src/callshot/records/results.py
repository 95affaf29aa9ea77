"""The nouns of the protocol: folds, classes, episodes, and the points of curves."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from callshot.records.embeddings import Embeddings, FloatArray, IntArray
from callshot.records.recordings import Segmentation


@dataclass(frozen=True)
class Folds:
    """The fold of each segment, 0 to count − 1, or −1 for the common fold.

    `origin` is "given" or "built"; `proof` says in words how good built folds are known to be.
    """

    fold: IntArray
    count: int
    origin: str
    proof: str = ""


@dataclass(frozen=True)
class ClassCount:
    """One class in the bookkeeping of folds; `reason` says why it is not eligible."""

    label: str
    exemplars: int
    complete_to_k: int
    eligible: bool
    reason: str = ""
    per_fold: tuple[int, ...] = field(default=(), repr=False)


@dataclass(frozen=True)
class Episode:
    """One query, one draw: the support set, by label, and the query's scores."""

    segment: str
    k: int
    draw: int
    support: dict[str, tuple[str, ...]]
    scores: dict[str, float]


@dataclass(frozen=True)
class Curve:
    """One point of a curve: a metric at k, over the samples of a spread. The row of `curve.csv`."""

    corpus: str
    encoder: str
    classifier: str
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
    chance: float
    complete: bool
    new_exemplars: int
    ties: int


@dataclass(frozen=True)
class ClassCurve:
    """One point of one class's curve. The row of `per_class.csv`."""

    corpus: str
    encoder: str
    classifier: str
    scoring: str
    metric: str
    spread: str
    k: int
    label: str
    mean: float
    p01: float
    p99: float


@dataclass(frozen=True)
class Values:
    """Every value behind the points of one curve: `value` is (k, samples)."""

    corpus: str
    encoder: str
    classifier: str
    scoring: str
    metric: str
    spread: str
    k: IntArray
    value: FloatArray


@dataclass(frozen=True)
class Confusion:
    """Mean number of queries, over draws, with a label and a decision; a hit on any label is on the diagonal."""

    encoder: str
    k: int
    true: str
    predicted: str
    count: float


@dataclass(frozen=True)
class Ties:
    """How many scores of a class's positives equal another query's, which share that is, and what it cost.

    The cost is the metric with log-odds less the metric with the scores that tied, on the same draws.
    """

    encoder: str
    spread: str
    k: int
    label: str
    ties: int
    share: float
    cost_map: float
    cost_auroc: float


@dataclass(frozen=True)
class Inspection:
    """What a folder holds before anything is decided, and what the protocol could do with it.

    `minimum_s` is the shorter minimum that was tried, where the given one would drop most calls. `possible` tells how
    many labels are in enough recordings for a number of folds; `folds` is None where there are too few recordings.
    """

    segmentation: Segmentation
    minimum_s: float | None
    possible: Mapping[int, int]
    folds: Folds | None
    classes: Sequence[ClassCount]
    complete_shots: int


@dataclass(frozen=True)
class Evaluation:
    """What `evaluate` found, for every encoder."""

    corpus: str
    complete_shots: int
    queries: int
    curve: list[Curve]
    values: list[Values]
    per_class: list[ClassCurve]
    confusion: list[Confusion]
    ties: list[Ties]
    classes: list[ClassCount]
    folds: Folds
    segments: Embeddings
    notes: list[str]

    def apart(self, reference: str) -> "Evaluation":
        """Return curves in which every rule but one is named beside its encoder, as if that were another one."""
        others = [
            c if c.classifier == reference else replace(c, encoder=f"{c.encoder}, {c.classifier}")
            for c in self.curve
        ]
        return replace(self, curve=others)

    def under(self, classifiers: Collection[str]) -> "Evaluation":
        """Return what some rules did, and nothing of the others."""
        kept: dict[str, Any] = {
            name: [row for row in getattr(self, name) if row.classifier in classifiers]
            for name in ("curve", "values", "per_class")
        }
        return replace(self, **kept)
