"""Segments ↔ `segments.parquet`, rejects ↔ `rejects.csv`; categories and duplicates → CSV files.

A table of segments has the columns of SCHEMA, and every other column of the annotations under its
own name, with `_annotated` added if SCHEMA has that name. The metadata of the file may give the
`corpus`, its number of `folds` and the folder of `audio`.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from callshot.errors import InputError
from callshot.files import error_reason
from callshot.records import Reject, Segment, Segmentation
from callshot.records.csv_cells import restore_frame, write_csv
from callshot.records.parquet import describe_parquet, read_parquet, write_parquet
from callshot.storage import local_copy

SEGMENTS = "segments.parquet"
REJECTS = "rejects.csv"
CATEGORIES = "categories.csv"
DUPLICATES = "duplicates.csv"
SEGMENTATION = (SEGMENTS, REJECTS, CATEGORIES, DUPLICATES)
SCHEMA: dict[str, Any] = {
    "segment": pl.String,
    "recording": pl.String,
    "path": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "collar_s": pl.Float64,
    "label": pl.String,
    "labels": pl.List(pl.String),
    "rate_hz": pl.Int64,
    "channel_rule": pl.String,
    "peak_dbfs": pl.Float64,
    "source_rate_hz": pl.Float64,
}
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
        rows = [
            (group, segment.segment, segment.recording, segment.label)
            for group, segment in segmentation.duplicates
        ]
        write_duplicates(rows, folder / DUPLICATES)
        names.append(DUPLICATES)
    return names


def write_segment_table(
    segments: Sequence[Segment], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write segments as Parquet."""
    columns = {
        name: [getattr(segment, name) for segment in segments] for name in SCHEMA
    }
    frame = pl.DataFrame(columns, SCHEMA, strict=False)
    rows = [dict(segment.extra) for segment in segments]
    extra = pl.DataFrame(rows, infer_schema_length=None, strict=False)
    extra = extra.with_columns(pl.col(pl.Null).cast(pl.String))
    for column in extra:
        name = column.name
        while name in frame.columns:
            name += "_annotated"
        frame = frame.with_columns(column.alias(name))
    write_parquet(frame, path, metadata)


class SegmentTable(list[Segment]):
    """The segments of a file, and its `metadata`: `audio`, `corpus` and `folds`, where known."""

    def __init__(self, segments: Iterable[Segment], metadata: dict[str, str]) -> None:
        super().__init__(segments)
        self.metadata = metadata

    @property
    def audio(self) -> str | None:
        """The folder of the recordings."""
        return self.metadata.get("audio")


def read_segments(path: Path) -> SegmentTable:
    """Read a table of segments.

    Parameters
    ----------
    path
        The `segments.parquet` that `callshot segment` wrote.

    Returns
    -------
    SegmentTable
        A list of segments, one for each row, which `embed` takes. Its `metadata` is what the file
        says about itself: `audio` (the folder of the recordings), `corpus`, `folds`.

    Raises
    ------
    InputError
        If the file is not such a table, or if a path in it leads outside the folder of recordings.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "segments.parquet"
    >>> call = Segment(
    ...     "x.wav", "x.wav", "x.wav", 0.0, 2.5, 0.25, "roar", ("roar",), 16000, "first", -3.0
    ... )
    >>> write_segment_table([call], path, {"corpus": "mine"})
    >>> segments = read_segments(path)
    >>> segments == [call], segments.metadata["corpus"]
    (True, 'mine')
    """
    frame = read_parquet(path)
    metadata = describe_parquet(path).metadata
    _check_columns(path, frame)
    metadata.pop("ARROW:schema", None)
    segments = []
    for row, cells in enumerate(frame.iter_rows(named=True), start=1):
        if not _is_inside(cells["path"]):
            raise InputError(
                f"{path}: column path, row {row}: {cells['path']!r} leads outside the audio folder"
            )
        fields = {name: cells.pop(name) for name in SCHEMA}
        fields["labels"] = tuple(fields["labels"])
        segments.append(Segment(**fields, extra=cells))
    return SegmentTable(segments, metadata)


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
