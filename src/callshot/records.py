"""The nouns: what the rooms hand to each other.

Embeddings   what an encoder made of the segments of a corpus
Folds        which fold each segment is in, and how that came about
ClassCount   one class: its exemplars, how far it is complete, and whether it is evaluated
Curve        one summary over draws: the row of `curve.csv` and of `per_class.csv`
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
