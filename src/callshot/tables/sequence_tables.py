"""Tables of the sequences behind vectors: segment, frames, and the values, frame after frame."""

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.files import atomic_path, check_new_file, make_folder
from callshot.records.columns import check_columns
from callshot.records.parquet import describe_parquet, read_parquet, write_parquet

Frames = NDArray[np.float32]

SEQUENCES: dict[str, Any] = {
    "segment": pl.String,
    "frames": pl.Int64,
    "sequence": pl.List(pl.Float32),
}
SEQUENCES_PER_WRITE = 64  # that are in memory at once
EMBED_AGAIN = "embed the segments again with --sequence"


def sequences_path(table: Path) -> Path:
    """Return the path of the sequences behind a table of embeddings."""
    return table.with_suffix(".sequences.parquet")


def check_new_sequences(path: Path) -> None:
    """Check, before any work, that sequences can be written and replace no file of others."""
    check_new_file(path, "table of sequences", _has_sequences)


def _has_sequences(path: Path) -> bool:
    try:
        return describe_parquet(path).columns == list(SEQUENCES)
    except InputError:
        return False


def write_sequences(
    path: Path, segments: Sequence[str], sequences: Iterator[Frames]
) -> None:
    """Write the sequence behind each vector; only a few are in memory at once."""
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary:
        write_parquet(_sequence_frames(segments, sequences), temporary)


def _sequence_frames(
    segments: Sequence[str], sequences: Iterator[Frames]
) -> Iterator[pl.DataFrame]:
    for start in range(0, max(1, len(segments)), SEQUENCES_PER_WRITE):
        names = segments[start : start + SEQUENCES_PER_WRITE]
        part = list(islice(sequences, len(names)))
        columns = {
            "segment": names,
            "frames": [len(sequence) for sequence in part],
            "sequence": [sequence.ravel() for sequence in part],
        }
        yield pl.DataFrame(columns, SEQUENCES)


def read_sequences(path: Path, segments: Sequence[str]) -> list[Frames]:
    """Return the sequences of some segments, frames × dimensions, in the order of `segments`."""
    frame = _read_sequence_rows(path, segments)
    sequences: dict[str, Frames] = {}
    for name, frames, values in zip(*frame, strict=True):
        place = f"{path}: segment {name!r}"
        sequences[name] = _reshape_sequence(place, frames, values)
    for name in segments:
        if name not in sequences:
            raise InputError(
                f"{path}: no sequence of the segment {name!r}; {EMBED_AGAIN}"
            )
    return [sequences[name] for name in segments]


def _read_sequence_rows(path: Path, segments: Sequence[str]) -> pl.DataFrame:
    if not path.exists():
        raise InputError(f"{path}: no such file; {EMBED_AGAIN}")
    names = list(SEQUENCES)
    try:
        check_columns(path, describe_parquet(path).columns, names)
        return read_parquet(path, names, where=("segment", list(segments)))
    except InputError as error:
        raise InputError(f"{error}; {EMBED_AGAIN}") from error


def _reshape_sequence(
    place: str, frames: int | None, values: pl.Series | None
) -> Frames:
    """Return values as frames × dimensions; raise if they do not make so many frames."""
    size = 0 if values is None else len(values)
    if values is None or not frames or size == 0 or size % frames:
        raise InputError(
            f"{place}: {size} values do not make {frames} frames; {EMBED_AGAIN}"
        )
    return values.to_numpy().astype(np.float32, copy=False).reshape(frames, -1)
