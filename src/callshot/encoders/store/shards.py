"""Shards, the files of a store: rows in, rows out, complete whatever happens to their writers.

A shard is written whole and never changed afterwards. One that cannot be read is set aside. A store
that nobody else has open is tidied: unfinished files are removed and small shards merged, so that
none vanishes while somebody reads it.
"""

import io
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

import polars as pl

from callshot.errors import CallshotError, InputError
from callshot.files import error_reason, remove_unfinished, write_atomic

SHARD_BYTES = 2**24  # of a shard, and so what is read at once
ROW_GROUP_BYTES = 2**22  # what is decoded for one row
SMALL_SHARD_BYTES = SHARD_BYTES // 4  # less than a full shard of any dimension
MANY_SHARDS = 64  # small ones that are worth merging
SUFFIX = ".parquet"
SEQUENCES_SUFFIX = ".sequences.parquet"


def list_shards(folder: Path, *, sequences: bool) -> list[Path]:
    """Return the shards of a folder by name; with `sequences` only those that have them."""
    suffix = SEQUENCES_SUFFIX if sequences else SUFFIX
    return sorted(folder.glob(f"shard-*{suffix}"))


def shard_path(folder: Path, stamp: str, *, sequences: bool) -> Path:
    """Return a path that no other process writes to; shards are ordered by `stamp`."""
    suffix = SEQUENCES_SUFFIX if sequences else SUFFIX
    return folder / f"shard-{stamp}-{secrets.token_hex(8)}{suffix}"


def write_shard(path: Path, frame: pl.DataFrame) -> None:
    """Write rows as Parquet: all of them, or nothing."""
    frame_bytes = max(1, int(frame.estimated_size()))
    group_rows = max(1, frame.height * ROW_GROUP_BYTES // frame_bytes)
    buffer = io.BytesIO()
    # Vectors hardly compress. Without compression the size of a file limits the memory to read it.
    frame.write_parquet(buffer, compression="uncompressed", row_group_size=group_rows)
    write_atomic(path, buffer.getbuffer())


def read_shard(
    path: Path,
    columns: Sequence[str],
    notes: list[str],
    start: int = 0,
    count: int | None = None,
) -> pl.DataFrame | None:
    """Return columns of a shard, all rows or `count` from `start` on.

    None, and a note, if the shard is gone or damaged; a damaged one is set aside.
    """
    try:
        scan = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
        return scan.select(columns).slice(start, count).collect()
    except FileNotFoundError:
        notes.append(f"{path}: the shard is gone")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error_reason(error)}); correct that and run again"
        ) from error
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException) as error:
        renamed = path.with_name(f"{path.name}.damaged")
        with suppress(
            OSError
        ):  # another process may have done it, or the folder is read-only
            path.rename(renamed)
        notes.append(
            f"{path}: the shard is damaged ({error_reason(error)}); it was set aside as "
            f"{renamed.name}"
        )
    return None


def tidy_folder(folder: Path, notes: list[str]) -> None:
    """Remove unfinished files and merge small shards, while nobody else has the folder open."""
    remove_unfinished(folder)
    shards = list_shards(folder, sequences=False)
    small = [shard for shard in shards if shard.stat().st_size < SMALL_SHARD_BYTES]
    if len(small) <= MANY_SHARDS:
        return
    with_sequences = [shard for shard in small if _has_sequences(shard)]
    plain = [shard for shard in small if not _has_sequences(shard)]
    try:
        for group in (*_group_shards(plain), *_group_shards(with_sequences)):
            _merge_shards(group, notes)
    except (CallshotError, OSError, pl.exceptions.PolarsError) as error:
        notes.append(f"small shards were not merged: {error}")


def _has_sequences(shard: Path) -> bool:
    return shard.name.endswith(SEQUENCES_SUFFIX)


def _group_shards(shards: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield shards that are together no larger than one may be."""
    group: list[Path] = []
    group_bytes = 0
    for shard in shards:
        shard_bytes = shard.stat().st_size
        if group_bytes + shard_bytes > SHARD_BYTES:
            yield group
            group = []
            group_bytes = 0
        group.append(shard)
        group_bytes += shard_bytes
    yield group


def _merge_shards(shards: Sequence[Path], notes: list[str]) -> None:
    """Write one shard in place of several; a crash may leave rows twice, which is harmless."""
    frames: dict[Path, pl.DataFrame] = {}
    for shard in shards:
        frame = read_shard(shard, ["*"], notes)
        if frame is not None:
            frames[shard] = frame
    if len(frames) < 2:
        return
    rows = pl.concat(frames.values())
    rows = rows.unique(["source", "key"], keep="first", maintain_order=True)
    first = shards[0]
    stamp = first.name.split("-")[1]
    write_shard(shard_path(first.parent, stamp, sequences=_has_sequences(first)), rows)
    for shard in frames:
        shard.unlink()
