"""Segments ↔ `segments.parquet`, rejects ↔ `rejects.csv`; categories and duplicates → CSV files.

A table of segments has the columns of SCHEMA, and every other column of the annotations under its
own name, with `_annotated` added if SCHEMA has that name. The metadata of the file may give the
`corpus`, its number of `folds` and the folder of `audio`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import astuple
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from callshot.corpus.segments import SEGMENT_COLUMNS
from callshot.errors import InputError
from callshot.files import error_reason
from callshot.records import Reject, Segmentation
from callshot.records.csv_cells import restore_frame, write_csv
from callshot.records.parquet import describe_parquet, read_parquet, write_parquet
from callshot.spans import COLUMN_TYPES, Spans
from callshot.storage import local_copy, to_path

SEGMENTS = "segments.parquet"
REJECTS = "rejects.csv"
CATEGORIES = "categories.csv"
DUPLICATES = "duplicates.csv"
SEGMENTATION = (SEGMENTS, REJECTS, CATEGORIES, DUPLICATES)
SCHEMA: dict[str, Any] = {name: COLUMN_TYPES[name] for name in SEGMENT_COLUMNS}
REJECT_SCHEMA = {"file": pl.String, "row": pl.Int64, "reason": pl.String}
DUPLICATE_COLUMNS = ("group", "segment", "recording", "label")
OPTIONAL = ("peak_dbfs", "source_rate_hz")


def write_segmentation(
    segmentation: Segmentation,
    folder: Path,
    metadata: Mapping[str, str],
    categories: Mapping[str, str] | None,
) -> list[str]:
    """Write segments and rejects; return the names of the files.

    Categories, and segments whose audio is in several recordings, are written if there are any.
    """
    names = [SEGMENTS, REJECTS]
    write_segment_table(segmentation.segments, folder / SEGMENTS, metadata)
    write_rejects(
        [*segmentation.rejects, *segmentation.skipped_files], folder / REJECTS
    )
    if categories is not None:
        write_categories(categories, folder / CATEGORIES)
        names.append(CATEGORIES)
    if segmentation.duplicates:
        write_duplicates(segmentation.duplicates, folder / DUPLICATES)
        names.append(DUPLICATES)
    return names


def write_segment_table(
    segments: Spans, path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write segments as Parquet, with all their columns."""
    write_parquet(segments.frame, path, metadata)


def read_segments(path: Path | str) -> Spans:
    """Read a table of segments.

    Parameters
    ----------
    path : path
        The `segments.parquet` that `callshot segment` wrote.

    Returns
    -------
    Spans
        A row for each segment, which `embed` takes. Its `metadata` is what the file says about
        itself: `audio` (the folder of the recordings), `corpus`, `folds`.

    Raises
    ------
    InputError
        If the file is not such a table, or if a path in it leads outside the folder of recordings.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "segments.parquet"
    >>> call = {"segment": "x", "recording": "x.wav", "path": "x.wav", "start_s": 0.0, "end_s": 2.5,
    ...         "label": "roar", "labels": ["roar"], "collar_s": 0.25, "rate_hz": 16000,
    ...         "channel_rule": "first", "peak_dbfs": -3.0, "source_rate_hz": None}
    >>> write_segment_table(Spans.from_rows([call]), path, {"corpus": "mine"})
    >>> segments = read_segments(path)
    >>> segments["label"], segments.metadata["corpus"]
    (['roar'], 'mine')
    """
    path = to_path(path)
    frame = read_parquet(path)
    metadata = describe_parquet(path).metadata
    _check_columns(path, frame)
    metadata.pop("ARROW:schema", None)
    for row, name in enumerate(frame["path"], start=1):
        if not _is_inside(name):
            raise InputError(
                f"{path}: column path, row {row}: {name!r} leads outside the audio folder"
            )
    known = {name: pl.col(name).cast(dtype) for name, dtype in SCHEMA.items()}
    root = to_path(metadata.get("audio", ""))
    return Spans(frame.with_columns(**known), root, metadata, str(path))


def _check_columns(path: Path, frame: pl.DataFrame) -> None:
    """Raise InputError if a column is missing, has another type, or an empty cell."""
    for name, dtype in SCHEMA.items():
        if name not in frame.columns:
            raise InputError(
                f"{path}: no column {name}; expected the segments.parquet of a run"
            )
        column = frame[name]
        if column.dtype not in (dtype, pl.Null):
            raise InputError(
                f"{path}: column {name}: expected {dtype}, got {column.dtype}"
            )
        empty = column.is_null().arg_true()
        if len(empty) > 0 and name not in OPTIONAL:
            raise InputError(f"{path}: column {name}, row {empty[0] + 1}: empty")


def _is_inside(path: str) -> bool:
    """Return whether a path stays inside its folder on any system."""
    parts = PurePosixPath(path.replace("\\", "/")).parts
    if not parts or "\0" in path or ".." in parts:
        return False
    return not parts[0].startswith("/") and ":" not in parts[0]


def write_rejects(rejects: Sequence[Reject], path: Path) -> None:
    """Write rejects as CSV; the row is empty if a whole file was left out."""
    write_csv([tuple(REJECT_SCHEMA), *map(astuple, rejects)], path)


def read_rejects(path: Path) -> list[Reject]:
    """Read rejects back."""
    try:
        frame = pl.read_csv(local_copy(path), schema_overrides=REJECT_SCHEMA)
        frame = restore_frame(frame.select(*REJECT_SCHEMA))
    except (OSError, pl.exceptions.PolarsError) as error:
        reason = error_reason(error)
        raise InputError(
            f"{path}: expected the rejects.csv of a run ({reason})"
        ) from None
    return [Reject(*row) for row in frame.iter_rows()]


def write_duplicates(rows: Sequence[tuple[int, str, str, str]], path: Path) -> None:
    """Write segments with the same content in several recordings as CSV, group by group."""
    write_csv([DUPLICATE_COLUMNS, *sorted(rows)], path)


def write_categories(categories: Mapping[str, str], path: Path) -> None:
    """Write the categories of labels for `evaluate --categories`."""
    write_csv([("label", "category"), *categories.items()], path)
