"""The nouns of encoders: vectors of segments, and what an encoder needs."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]


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
            raise InputError(
                f"{self.source}: column labels: wanted a tuple of labels in each row, found text"
            )
        columns = {
            "segment": self.segment,
            "recording": self.recording,
            "label": self.label,
            "labels": self.labels,
        }
        if self.fold is not None:
            columns["fold"] = self.fold  # type: ignore[assignment]
        for name, column in columns.items():
            if len(column) != len(self.vectors):
                raise InputError(
                    f"{self.source}: column {name} has {len(column)} entries for {len(self.vectors)} vectors"
                )

    def __len__(self) -> int:
        return len(self.segment)

    def only(self, segments: Collection[str]) -> "Embeddings":
        """Return the rows of some segments, in the same order."""
        rows = [row for row, name in enumerate(self.segment) if name in segments]
        fold = None if self.fold is None else self.fold[rows]
        segment, recording, label = (
            [column[row] for row in rows] for column in (self.segment, self.recording, self.label)
        )
        labels = [self.labels[row] for row in rows]
        return Embeddings(
            self.encoder, self.vectors[rows], segment, recording, label, labels, fold, self.source
        )


def _matrix(source: str, vectors: Any) -> NDArray[np.floating[Any]]:
    """Return vectors as a matrix of floats: float32 stays so, all others become float64."""
    try:
        table = np.asarray(vectors)
        table = table if table.dtype == np.float32 else np.asarray(table, np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{source}: column embedding: wanted numbers, as many in every row ({error})"
        ) from None
    if table.ndim != 2 or table.shape[1] == 0:
        raise InputError(
            f"{source}: column embedding: wanted (segments, dimensions), found shape {table.shape}"
        )
    return table


@dataclass(frozen=True)
class EncoderStatus:
    """An encoder, what its segments are cut into, and what is still to be done before it runs.

    `weights` are the name and the source of each file, and whether it is there.
    """

    name: str
    title: str
    dimension: int
    input: str
    licence: str
    level: str
    needs: tuple[str, ...]
    weights: tuple[tuple[str, str, bool], ...]
