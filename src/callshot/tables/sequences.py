"""Sequences of segments ↔ a table beside that of their vectors: segment, frames, and the values, frame after frame."""

import tempfile
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError, OutputError

Frames = NDArray[np.float32]
TOGETHER = 64  # sequences that are in memory when they are written
COLUMNS = ("segment", "frames", "sequence")


def sequences_path(table: Path) -> Path:
    """Return where the sequences behind a table of embeddings are."""
    return table.with_suffix(".sequences.parquet")


def write_sequences(path: Path, segments: Sequence[str], sequences: Iterator[Frames]) -> None:
    """Write the sequence behind each vector, some at a time."""
    names = iter(segments)
    try:
        with tempfile.TemporaryDirectory(
            prefix=f".{path.name}.", dir=path.absolute().parent
        ) as folder:
            for n, part in enumerate(_batched(sequences, TOGETHER)):
                columns = {
                    "segment": pl.Series(list(islice(names, len(part))), dtype=pl.String),
                    "frames": pl.Series([len(sequence) for sequence in part], dtype=pl.Int64),
                    "sequence": pl.Series(
                        [sequence.ravel() for sequence in part], dtype=pl.List(pl.Float32)
                    ),
                }
                pl.DataFrame(columns).write_parquet(Path(folder, f"{n:06d}.parquet"))
            whole = Path(folder, "whole")
            pl.scan_parquet(sorted(Path(folder).glob("*.parquet")), glob=False).sink_parquet(whole)
            whole.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise OutputError(
            f"{path}: cannot be written ({getattr(error, 'strerror', None) or error})"
        ) from error


def read_sequences(path: Path, segments: Sequence[str]) -> list[Frames]:
    """Return the sequences of some segments, frames × dimensions, in their order; refused where one is missing."""
    if not path.exists():
        raise InputError(f"{path}: not there; embed the segments again with --sequence")
    try:
        found = (
            pl.scan_parquet(path, glob=False)
            .filter(pl.col("segment").is_in(list(segments)))
            .collect()
        )
        if missing := [name for name in COLUMNS if name not in found.columns]:
            raise InputError(
                f"{path}: column {missing[0]} is missing; embed the segments again with --sequence"
            )
        rows = zip(*(found[name] for name in COLUMNS), strict=True)
        kept = {name: _fold(path, name, frames, values) for name, frames, values in rows}
    except (OSError, pl.exceptions.PolarsError) as error:
        raise InputError(
            f"{path}: not a table of sequences ({str(error).splitlines()[0]}); embed again"
        ) from error
    for name in segments:
        if name not in kept:
            raise InputError(
                f"{path}: no sequence of the segment {name!r}; embed the segments again with --sequence"
            )
    return [kept[name] for name in segments]


def _fold(path: Path, name: str, frames: int | None, values: pl.Series | None) -> Frames:
    if not frames or values is None or len(values) == 0 or len(values) % frames:
        size = 0 if values is None else len(values)
        raise InputError(
            f"{path}: segment {name!r}: {size} values do not make {frames} frames; embed again"
        )
    return values.to_numpy().astype(np.float32, copy=False).reshape(frames, -1)


def _batched(items: Iterator[Frames], size: int) -> Iterator[list[Frames]]:
    """Yield items some at a time."""
    while part := list(islice(items, size)):
        yield part
