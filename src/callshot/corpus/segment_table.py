"""Segments ↔ `segments.parquet`, rejects → `rejects.csv`, categories → `categories.csv`.

    segment, recording, path, start_s, end_s, collar_s, label, labels, rate_hz, channel_rule, level_dbfs, source_rate_hz

and every other column that the annotations had, under its own name (with `_annotated` after it where that is one of the
above). The file's metadata may tell the `corpus`, its number of `folds` and the folder of `audio`.
"""

import csv
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any

import polars as pl

from callshot.errors import InputError
from callshot.records import Cell, Reject, Segment, Segmentation

SEGMENTATION = SEGMENTS, REJECTS, CATEGORIES = "segments.parquet", "rejects.csv", "categories.csv"
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
    "level_dbfs": pl.Float64,
    "source_rate_hz": pl.Float64,
}


def write_segmentation(
    found: Segmentation,
    folder: Path,
    metadata: Mapping[str, str],
    categories: Mapping[str, str] | None,
) -> list[str]:
    """Write segments, rejects, and the categories of a corpus that has them to a folder; return the files' names."""
    write_segment_table(found.segments, folder / SEGMENTS, metadata)
    write_rejects([*found.rejects, *found.skipped_files], folder / REJECTS)
    if categories is not None:
        write_categories(categories, folder / CATEGORIES)
    return [SEGMENTS, REJECTS, *([CATEGORIES] if categories is not None else [])]


def write_segment_table(
    segments: Sequence[Segment], path: Path, metadata: Mapping[str, str] | None = None
) -> None:
    """Write segments as Parquet."""
    columns: dict[str, Any] = {
        name: pl.Series([getattr(segment, name) for segment in segments], dtype=kind, strict=False)
        for name, kind in SCHEMA.items()
        if name != "labels"
    }
    columns["labels"] = pl.Series(
        [list(segment.labels) for segment in segments], dtype=pl.List(pl.String)
    )
    frame = pl.DataFrame(columns).select(list(SCHEMA))
    for name in dict.fromkeys(name for segment in segments for name in segment.extra):
        title = name
        while title in frame.columns:
            title += "_annotated"
        frame = frame.with_columns(
            _carried([segment.extra.get(name) for segment in segments]).alias(title)
        )
    frame.write_parquet(path, metadata=dict(metadata or {}))


def _carried(cells: Sequence[Cell]) -> pl.Series:
    """Return a column as whole numbers, numbers or text, whichever holds all of it."""
    kinds = {type(cell) for cell in cells} - {type(None)}
    if kinds <= {int, float} and kinds:
        return pl.Series(cells, dtype=pl.Float64 if float in kinds else pl.Int64)
    return pl.Series([None if cell is None else str(cell) for cell in cells], dtype=pl.String)


def read_segments(path: Path) -> tuple[list[Segment], dict[str, str]]:
    """Read segments and the file's metadata back; refuse a path that would lead outside the folder of audio.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "segments.parquet"
    >>> whole = Segment("x.wav", "x.wav", "x.wav", 0.0, 2.5, 0.25, "roar", ("roar",), 16000, "first", -3.0)
    >>> write_segment_table([whole], path, {"corpus": "mine"})
    >>> read_segment_table(path)[0] == [whole], read_segment_table(path)[1]["corpus"]
    (True, 'mine')
    """
    try:
        frame, metadata = (
            pl.read_parquet(path.absolute(), glob=False),
            pl.read_parquet_metadata(path.absolute()),
        )
    except (OSError, pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        reason = getattr(error, "strerror", None) or str(error).partition("\n")[0]
        raise InputError(
            f"{path}: cannot be read ({reason}); wanted the segments.parquet of a run"
        ) from error
    if missing := [name for name in SCHEMA if name not in frame.columns]:
        raise InputError(
            f"{path}: column {missing[0]} is missing; wanted the segments.parquet of a run"
        )
    facts = {name: text for name, text in metadata.items() if name != "ARROW:schema"}
    return [
        _segment(path, row, cells) for row, cells in enumerate(frame.iter_rows(named=True), 1)
    ], facts


def _segment(path: Path, row: int, cells: dict[str, Any]) -> Segment:
    needed = set(SCHEMA) - {"level_dbfs", "source_rate_hz"}
    if empty := [name for name in SCHEMA if name in needed and cells[name] is None]:
        raise InputError(f"{path}: column {empty[0]}, row {row}: empty")
    inside = PurePosixPath(str(cells["path"]).replace("\\", "/"))
    outside = (
        inside.is_absolute() or ".." in inside.parts or not inside.parts or ":" in inside.parts[0]
    )
    if outside or "\0" in str(inside):
        raise InputError(
            f"{path}: column path, row {row}: {cells['path']!r} leads outside the folder of audio"
        )
    try:
        own = {name: cells[name] for name in SCHEMA} | {"labels": tuple(cells["labels"])}
        return Segment(
            **own, extra={name: cell for name, cell in cells.items() if name not in SCHEMA}
        )
    except TypeError as error:
        raise InputError(f"{path}: row {row}: {error}") from None


def write_rejects(rejects: Sequence[Reject], path: Path, *, keep_empty: bool = True) -> None:
    """Write rejects as CSV; where a whole file was left out, the row is empty."""
    if not rejects and not keep_empty:
        path.unlink(missing_ok=True)
        return
    _write_csv(
        path,
        ("file", "row", "reason"),
        ((r.file, "" if r.row is None else r.row, r.reason) for r in rejects),
    )


def read_rejects(path: Path) -> list[Reject]:
    """Read rejects back."""
    try:
        with path.open(encoding="utf-8", newline="") as file:
            return [
                Reject(r["file"], int(r["row"]) if r["row"] else None, r["reason"])
                for r in csv.DictReader(file)
            ]
    except (OSError, ValueError, KeyError, csv.Error) as error:
        raise InputError(
            f"{path}: cannot be read as the rejects.csv of a run ({error!r})"
        ) from None


def write_categories(categories: Mapping[str, str], path: Path) -> None:
    """Write the map of labels to categories that `evaluate --categories` reads."""
    _write_csv(path, ("label", "category"), categories.items())


def _write_csv(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    with path.open("w", encoding="utf-8", errors="backslashreplace", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([header, *rows])
