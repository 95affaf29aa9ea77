"""Vectors of segments."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError, count_text
from callshot.records import columns

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

TEXT_COLUMNS = ("recording", "label", "segment")


@dataclass(frozen=True)
class Embeddings:
    """Vectors of one encoder, a row per segment.

    `vectors` is (segments, dimensions); the other columns have one entry per row. `label` is the
    label at the segment's centre, `labels` all that overlap it (the centre label among them).
    `fold` is None where no folds were given. `joined_dimensions` are those of joined encoders, side
    by side, that an evaluation scales to equal distances; it is empty where vectors are taken as
    they are. `note` says what people should know about how the vectors were made. `fingerprint` is
    the same in all tables of one encoder with one set of options and weights, whatever its name;
    empty if unknown.
    """

    encoder: str
    vectors: columns.FloatMatrix
    segment: Sequence[str]
    recording: Sequence[str]
    label: Sequence[str]
    labels: Sequence[tuple[str, ...]]
    fold: IntArray | None = None
    source: str = "memory"
    joined_dimensions: tuple[int, ...] = ()
    note: str = ""
    fingerprint: str = ""

    def __post_init__(self) -> None:
        vectors = _float_matrix(self.source, self.vectors)
        object.__setattr__(self, "vectors", vectors)
        for name in TEXT_COLUMNS:
            text = tuple(map(str, getattr(self, name)))
            object.__setattr__(self, name, text)
        if any(isinstance(entry, str) for entry in self.labels):
            raise InputError(
                f"{self.source}: column labels: expected a tuple of labels in each row, got text"
            )
        self._check_lengths(len(vectors))
        if self.joined_dimensions and sum(self.joined_dimensions) != vectors.shape[1]:
            raise InputError(
                f"{self.source}: expected joined encoders that have "
                f"{vectors.shape[1]} dimensions together, "
                f"got {self.joined_dimensions}"
            )

    def _check_lengths(self, rows: int) -> None:
        for name in (*TEXT_COLUMNS, "labels", "fold"):
            column = getattr(self, name)
            if column is not None and len(column) != rows:
                raise InputError(
                    f"{self.source}: column {name}: expected {rows} entries, "
                    f"one for each vector, got {len(column)}"
                )

    def __len__(self) -> int:
        return len(self.segment)

    def __repr__(self) -> str:
        segments, dimensions = self.vectors.shape
        count = count_text(segments, "segment")
        return f"Embeddings({self.encoder}: {count} × {dimensions})"

    @classmethod
    def from_frame(
        cls, frame: Any, *, encoder: str, source: str = "memory"
    ) -> "Embeddings":
        """Make embeddings from a data frame with one row per segment.

        Parameters
        ----------
        frame : polars.DataFrame or pandas.DataFrame
            Its columns, of which others are ignored:

            - ``recording``: the file that the segment was cut from; text or integers.
            - ``label``: the label at the segment's centre; text or integers.
            - ``embedding``: a list of numbers; or columns ``e0``, ``e1``, ….
            - ``segment`` (optional): its id; no two are the same. Without it ids are the recording
              and a count, such as ``a.wav#0``.
            - ``labels`` (optional): all labels that overlap the segment; a list, or text with a
              JSON array or labels joined by ``;``.
            - ``fold`` (optional): any integers or names; -1 or empty for the common fold.
        encoder : str
            The name of the encoder that made the vectors.
        source : str, optional
            What errors begin with, such as the name of the file that the frame was read from.

        Returns
        -------
        Embeddings
            float32 vectors stay float32, all other numbers become float64.

        Raises
        ------
        InputError
            If a column is missing, or if a value is not what it must be.

        Examples
        --------
        >>> frame = pl.DataFrame(
        ...     {"recording": ["a.wav", "a.wav"], "label": ["rumble", "roar"],
        ...      "e0": [1.0, 3.0], "e1": [2.0, 4.0]}
        ... )
        >>> embeddings = Embeddings.from_frame(frame, encoder="mfcc")
        >>> embeddings.segment
        ('a.wav#0', 'a.wav#1')
        >>> embeddings.vectors.tolist()
        [[1.0, 2.0], [3.0, 4.0]]
        """
        frame = columns.polars_frame(source, frame)
        frame = frame.select(columns.select_columns(source, frame.columns))
        fields = columns.table_columns(source, frame)
        vectors = columns.vector_matrix(source, frame)
        return cls(encoder=encoder, vectors=vectors, source=source, **fields)

    def to_frame(self) -> pl.DataFrame:
        """Return the embeddings as a polars frame, with the columns that `from_frame` reads.

        Returns
        -------
        polars.DataFrame
            Columns recording, label, segment, labels, fold (where folds were given) and embedding.
            The name of the encoder is not in it.

        Examples
        --------
        >>> embeddings = Embeddings("mfcc", [[1, 2]], ["s0"], ["a.wav"], ["roar"], [("roar",)])
        >>> embeddings.to_frame().columns
        ['recording', 'label', 'segment', 'labels', 'embedding']
        >>> embeddings.to_frame()["embedding"].to_list()
        [[1.0, 2.0]]
        """
        fields: dict[str, Any] = {
            "recording": self.recording,
            "label": self.label,
            "segment": self.segment,
            "labels": [list(names) for names in self.labels],
        }
        schema: dict[str, Any] = dict.fromkeys(TEXT_COLUMNS, pl.String)
        schema["labels"] = pl.List(pl.String)
        if self.fold is not None:
            fields["fold"] = self.fold
            schema["fold"] = pl.Int64
        vectors = columns.contiguous_floats(self.vectors)
        embedding = pl.Series("embedding", vectors).arr.to_list()
        return pl.DataFrame(fields, schema).with_columns(embedding)

    def only(self, segments: Collection[str]) -> "Embeddings":
        """Return the rows of some segments, in the same order."""
        rows = [row for row, name in enumerate(self.segment) if name in segments]
        return replace(
            self,
            vectors=self.vectors[rows],
            segment=[self.segment[row] for row in rows],
            recording=[self.recording[row] for row in rows],
            label=[self.label[row] for row in rows],
            labels=tuple(self.labels[row] for row in rows),
            fold=None if self.fold is None else self.fold[rows],
        )


def _float_matrix(source: str, vectors: Any) -> columns.FloatMatrix:
    """Return vectors as a matrix of floats: float32 stays so, all others become float64."""
    try:
        matrix = np.asarray(vectors)
        if matrix.dtype != np.float32:
            matrix = np.asarray(matrix, np.float64)
    except (ValueError, TypeError) as error:
        raise InputError(
            f"{source}: column embedding: expected numbers, as many in every row ({error})"
        ) from None
    if matrix.ndim != 2 or matrix.shape[1] == 0:
        raise InputError(
            f"{source}: column embedding: expected (segments, dimensions), got shape {matrix.shape}"
        )
    return matrix
