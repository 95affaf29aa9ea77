"""A table of embeddings, sequences or segments → whether it is as it was written."""

from pathlib import Path

import numpy as np

from callshot.corpus.segment_table import read_segments
from callshot.errors import InputError
from callshot.records import Finding
from callshot.records.columns import FloatMatrix
from callshot.records.parquet import describe_parquet, read_parquet
from callshot.tables.embedding_tables import (
    CHECKSUM,
    READERS,
    content_checksum,
    read_table,
)
from callshot.tables.sequence_tables import SEQUENCES, read_sequences

SEGMENT_COLUMNS = {"path", "start_s", "end_s"}
NO_CHECKSUM = "has no checksum"


def is_table(path: Path) -> bool:
    """Return whether a path is that of a table."""
    return path.is_file() and path.suffix.lower() in READERS


def verify_table(path: Path) -> Finding:
    """Read a whole table; compare its content with the checksum in it, if it has one."""
    try:
        return _verify(path)
    except InputError as error:
        return Finding(path, "damaged", str(error).removeprefix(f"{path}: "))


def _verify(path: Path) -> Finding:
    columns: list[str] = []
    checksum = None
    if path.suffix.lower() == ".parquet":
        columns, metadata = describe_parquet(path)
        checksum = metadata.get(CHECKSUM)
    if SEGMENT_COLUMNS.issubset(columns):
        read_segments(path)
    elif set(SEQUENCES).issubset(columns):
        segments = read_parquet(path, ["segment"])["segment"]
        for sequence in read_sequences(path, segments.to_list()):
            _check_finite(path, sequence)
    else:
        _check_finite(path, read_table(path).vectors)
    if checksum is None:
        return Finding(path, "unverified", NO_CHECKSUM)
    if content_checksum(read_parquet(path)) != checksum:
        reason = "its content differs from its checksum: damaged, or edited since"
        return Finding(path, "damaged", reason)
    return Finding(path, "ok")


def _check_finite(path: Path, numbers: FloatMatrix) -> None:
    if not np.isfinite(numbers).all():
        raise InputError(f"{path}: has NaN or infinity among its numbers")
