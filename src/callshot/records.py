"""The nouns: what the rooms hand to each other.

Embeddings   what an encoder made of the segments of a corpus
Folds        which fold each segment is in, and how that came about
ClassCount   one class: its exemplars, how far it is complete, and whether it is evaluated
Episode      one query against one draw, told whole
Curve        one point of a k-shot curve, with ClassCurve, Values, Confusion and Ties behind it
Evaluation   all of that, for every encoder
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

COMMON_FOLD = -1


@dataclass(frozen=True)
class Embeddings:
    """Vectors of one encoder, a row per segment.

    `vectors` is (segments, dimensions); the other columns have one entry per row. `label` is the
    label at the segment's centre, `labels` all that overlap it (the centre label among them).
    `fold` is None where no folds were given.
    """

    encoder: str
    vectors: NDArray[np.floating[Any]]
    segment: Sequence[str]
    recording: Sequence[str]
    label: Sequence[str]
    labels: Sequence[tuple[str, ...]]
    fold: IntArray | None = None
    source: str = "memory"

    def __post_init__(self) -> None:
        object.__setattr__(self, "vectors", _matrix(self.source, self.vectors))
        for name in ("segment", "recording", "label"):
            object.__setattr__(self, name, tuple(str(entry) for entry in getattr(self, name)))
        if any(isinstance(entry, str) for entry in self.labels):
            raise InputError(f"{self.source}: column labels: wanted a tuple of labels in each row, found text")
        columns = {"segment": self.segment, "recording": self.recording, "label": self.label, "labels": self.labels}
        if self.fold is not None:
            columns["fold"] = self.fold  # type: ignore[assignment]
        for name, column in columns.items():
            if len(column) != len(self.vectors):
                raise InputError(
                    f"{self.source}: column {name} has {len(column)} entries for {len(self.vectors)} vectors"
                )

    def __len__(self) -> int:
        return len(self.segment)


def _matrix(source: str, vectors: Any) -> NDArray[np.floating[Any]]:
    """Return vectors as a matrix of floats: float32 stays so, all others become float64."""
    try:
        table = np.asarray(vectors)
        table = table if table.dtype == np.float32 else np.asarray(table, np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(f"{source}: column embedding: wanted numbers, as many in every row ({error})") from None
    if table.ndim != 2 or table.shape[1] == 0:
        raise InputError(f"{source}: column embedding: wanted (segments, dimensions), found shape {table.shape}")
    return table


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
