"""Shards, the files of a store: rows in, rows out, complete whatever happens to disks and writers.

A shard is written whole and never changed afterwards. Its name has the SHA-256 of its content,
which is compared whenever a store is opened: a shard that differs is set aside and not used.

A store that nobody else has open is tidied: unfinished files are removed and small shards merged,
so that none vanishes while somebody reads it.
"""

import errno
import io
import re
from collections.abc import Iterator, Sequence
from hashlib import sha256
from pathlib import Path

import polars as pl

from callshot.errors import CallshotError, InputError
from callshot.files import (
    error_reason,
    remove_unfinished,
    sha256_file,
    write_atomic,
)
from callshot.pools import Pool

SHARD_BYTES = 2**24  # of a shard, and so what is read at once
ROW_GROUP_BYTES = 2**22  # what is decoded for one row
SMALL_SHARD_BYTES = SHARD_BYTES // 4  # less than a full shard of any dimension
MANY_SHARDS = 64  # small ones that are worth merging
SUFFIX = ".parquet"
SEQUENCES_SUFFIX = ".sequences.parquet"
DAMAGED_SUFFIX = ".damaged"
CHECKSUM = re.compile(r"-([0-9a-f]{64})\.")
_whole_shards: set[tuple[object, ...]] = set()


def list_shards(folder: Path, *, sequences: bool) -> list[Path]:
    """Return the shards of a folder by name; with `sequences` only those that have them."""
    suffix = SEQUENCES_SUFFIX if sequences else SUFFIX
    paths = sorted(folder.glob(f"shard-*{suffix}"))
    return [path for path in paths if CHECKSUM.search(path.name)]


def write_shard(
    folder: Path, stamp: str, frame: pl.DataFrame, *, sequences: bool
) -> Path:
    """Write rows as Parquet, all of them or nothing; shards are ordered by `stamp`."""
    frame_bytes = max(1, int(frame.estimated_size()))
    group_rows = max(1, frame.height * ROW_GROUP_BYTES // frame_bytes)
    buffer = io.BytesIO()
    # Vectors hardly compress. Without compression the size of a file limits the memory to read it.
    frame.write_parquet(buffer, compression="uncompressed", row_group_size=group_rows)
    content = buffer.getbuffer()
    suffix = SEQUENCES_SUFFIX if sequences else SUFFIX
    path = folder / f"shard-{stamp}-{sha256(content).hexdigest()}{suffix}"
    write_atomic(path, content)
    return path


def find_damage(shard: Path) -> str:
    """Return why a shard must not be used, or nothing if it is as it was written.

    OSError if it cannot be read at all, unless that is the fault of the disk.
    """
    try:
        actual = sha256_file(shard)
    except OSError as error:
        if error.errno == errno.EIO:
            return error_reason(error)
        raise
    checksum = CHECKSUM.search(shard.name)
    if checksum is None or actual != checksum[1]:
        return "its content differs from the checksum in its name"
    return ""


def verify_shards(shards: Sequence[Path], notes: list[str]) -> Iterator[Path]:
    """Yield the shards that are as they were written; the others are set aside, with a note.

    A process verifies a shard once, unless the file is replaced or written to. The next ones are
    verified while the caller works: SHA-256 frees the GIL.
    """
    with Pool() as pool:
        damages = pool.map(_find_damage_or_absence, shards)
        for shard, damage in zip(shards, damages, strict=True):
            if damage is None:
                notes.append(f"{shard}: the shard is gone")
            elif damage:
                set_aside(shard, damage, notes)
            else:
                yield shard


def _find_damage_or_absence(shard: Path) -> str | None:
    try:
        status = shard.stat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        identity = (shard, status.st_ino, status.st_size, *times)
        if identity in _whole_shards:
            return ""
        damage = find_damage(shard)
        if not damage:
            _whole_shards.add(identity)
        return damage
    except FileNotFoundError:  # another process has set it aside
        return None
    except OSError as error:
        raise InputError(
            f"{shard}: cannot be read ({error_reason(error)}); correct that and run again"
        ) from error


def set_aside(shard: Path, damage: str, notes: list[str]) -> None:
    """Rename a damaged shard, so that it is not used any more, and describe that in a note."""
    outcome = f"it was set aside (its name ends in {DAMAGED_SUFFIX} now)"
    try:
        shard.replace(shard.with_name(f"{shard.name}{DAMAGED_SUFFIX}"))
    except OSError as error:
        outcome = f"it is not used, but stays where it is ({error_reason(error)})"
    notes.append(
        f"{shard}: the shard is damaged ({damage}); {outcome}, and its segments are embedded again"
    )


def read_shard(
    path: Path,
    columns: Sequence[str],
    notes: list[str],
    start: int = 0,
    count: int | None = None,
) -> pl.DataFrame | None:
    """Return columns of a verified shard, all rows or `count` from `start` on.

    None, and a note, if it is gone or was damaged since; a damaged one is set aside.
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
        set_aside(path, error_reason(error), notes)
    return None


def tidy_folder(folder: Path, notes: list[str]) -> None:
    """Remove unfinished files and merge small shards, while nobody else has a folder open."""
    remove_unfinished(folder)
    try:
        _merge_small_shards(folder, notes)
    except (CallshotError, OSError, pl.exceptions.PolarsError) as error:
        notes.append(f"{folder}: small shards were not merged: {error}")


def _read_stamp(shard: Path) -> str:
    """Return the part of a shard's name that its order comes from."""
    return re.split(r"[-.]", shard.name)[1]


def has_sequences(shard: Path) -> bool:
    """Return whether a shard has the sequences behind its vectors."""
    return shard.name.endswith(SEQUENCES_SUFFIX)


def _merge_small_shards(folder: Path, notes: list[str]) -> None:
    shards = list_shards(folder, sequences=False)
    small = [shard for shard in shards if shard.stat().st_size < SMALL_SHARD_BYTES]
    if len(small) <= MANY_SHARDS:
        return
    with_sequences = [shard for shard in small if has_sequences(shard)]
    plain = [shard for shard in small if not has_sequences(shard)]
    for group in (*_group_shards(plain), *_group_shards(with_sequences)):
        _merge_shards(group, notes)


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
    for shard in verify_shards(shards, notes):
        frame = read_shard(shard, ["*"], notes)
        if frame is not None:
            frames[shard] = frame
    if len(frames) < 2:
        return
    rows = pl.concat(frames.values())
    rows = rows.unique(["source", "key"], keep="first", maintain_order=True)
    first = shards[0]
    stamp = _read_stamp(first)
    merged = write_shard(first.parent, stamp, rows, sequences=has_sequences(first))
    for shard in frames:
        if shard != merged:
            shard.unlink()
