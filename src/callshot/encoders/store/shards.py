"""Shards, the files of a store: rows come in and go out whole, whatever happens to the processes that write them.

A file is written under a hidden name, synced and renamed, and never changed afterwards. A shard that cannot be read is
set aside. Whoever has a folder open holds a shared lock on it; `enter` tidies up only where nobody else has: it removes
what dead processes left unfinished, and merges small shards, so that none vanishes under a reader. Where the file
system, or Windows, has no such locks, that is left undone.
"""

import io
import os
import secrets
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

import polars as pl

from callshot.errors import CallshotError, InputError, OutputError

SHARD_BYTES = 2**24  # what a shard holds, and so what is read at once
GROUP_BYTES = 2**22  # of a row group: what is decoded for one row
SMALL_BYTES = SHARD_BYTES // 4  # below that of a full shard of any dimension
MANY = 64  # small shards that are worth merging
PLAIN, WITH_SEQUENCES = ".parquet", ".sequences.parquet"


def list_shards(folder: Path, *, sequences: bool) -> list[Path]:
    """Return the shards of a folder by name; with `sequences` only those that hold them."""
    return sorted(folder.glob(f"shard-*{WITH_SEQUENCES if sequences else PLAIN}"))


def shard_path(folder: Path, stamp: str, *, sequences: bool) -> Path:
    """Return a path that no other process writes to; shards are ordered by `stamp`."""
    return folder / f"shard-{stamp}-{secrets.token_hex(8)}{WITH_SEQUENCES if sequences else PLAIN}"


def write_shard(path: Path, frame: pl.DataFrame) -> None:
    """Write rows as Parquet: all of them, or nothing."""
    buffer = io.BytesIO()
    group = max(1, frame.height * GROUP_BYTES // max(1, int(frame.estimated_size())))
    # Vectors hardly compress, and so the size of a file bounds what is in memory when it is read.
    frame.write_parquet(buffer, compression="uncompressed", row_group_size=group)
    write_whole(path, buffer.getbuffer())


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """Write a file so that, after a crash at any moment, the whole of it is on the disk or nothing under its name."""
    part = path.with_name(f".{path.name}.{secrets.token_hex(4)}.part")
    try:
        with part.open("xb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        part.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        why = error.strerror or str(error)
        raise OutputError(
            f"{path}: cannot be written ({why}); all before it is safe: make room and go on"
        ) from error
    finally:
        with suppress(OSError):
            part.unlink()


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on the disk, where the system can do that: Windows and some file systems cannot."""
    with suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def read_shard(
    path: Path, columns: Sequence[str], notes: list[str], first: int = 0, count: int | None = None
) -> pl.DataFrame | None:
    """Return columns of a shard, or `count` rows from `first` on; None, after a note, where it is gone or damaged."""
    try:
        scan = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
        return scan.select(columns).slice(first, count).collect()
    except FileNotFoundError:
        notes.append(f"{path}: the shard is gone")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror or error}); mend that and run again"
        ) from error
    except (
        pl.exceptions.PolarsError,
        pl.exceptions.PanicException,
    ) as error:  # a panic of polars is no Exception
        aside = path.with_name(f"{path.name}.damaged")
        with suppress(
            OSError
        ):  # another process may have been quicker, or the folder may be read-only
            path.rename(aside)
        why = str(error).partition("\n")[0]
        notes.append(f"{path}: the shard is damaged ({why}); it was set aside as {aside.name}")
    return None


def enter(folder: Path, notes: list[str]) -> BinaryIO | None:
    """Join those who have a folder open, after tidying it up if there are none; leave by closing what is returned.

    None where there is no lock and none can be made: such a folder can only be read.
    """
    lock = _open_lock(folder)
    if lock is not None:
        if lock.writable() and _locked(lock, alone=True):
            _tidy(folder, notes)
        _locked(lock, alone=False)
    return lock


def _open_lock(folder: Path) -> BinaryIO | None:
    with suppress(OSError):
        return (folder / ".lock").open("ab")
    with suppress(OSError):
        return (folder / ".lock").open("rb")
    return None


def _locked(lock: BinaryIO, *, alone: bool) -> bool:
    """Take the lock alone, without waiting, or together with others; say whether that was possible."""
    try:
        import fcntl
    except ImportError:  # Windows
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB if alone else fcntl.LOCK_SH)
    except OSError:
        return False
    return True


def _tidy(folder: Path, notes: list[str]) -> None:
    for part in folder.glob(".*.part"):
        with suppress(OSError):
            part.unlink()
    small = [
        shard
        for shard in list_shards(folder, sequences=False)
        if shard.stat().st_size < SMALL_BYTES
    ]
    if len(small) > MANY:
        try:
            for pack in _packs(small):
                _merge(pack, notes)
        except (CallshotError, OSError, pl.exceptions.PolarsError) as error:
            notes.append(f"small shards were not merged: {error}")


def _packs(shards: Sequence[Path]) -> Iterator[list[Path]]:
    """Yield shards of one kind that are together no larger than one may be."""
    for sequences in (False, True):
        pack, size = list[Path](), 0
        for shard in (
            shard for shard in shards if shard.name.endswith(WITH_SEQUENCES) == sequences
        ):
            size += shard.stat().st_size
            if size > SHARD_BYTES:
                yield pack
                pack, size = [], shard.stat().st_size
            pack.append(shard)
        yield pack


def _merge(pack: Sequence[Path], notes: list[str]) -> None:
    """Write one shard in place of several; a crash on the way leaves rows there twice, which is harmless."""
    frames = {shard: read_shard(shard, ["*"], notes) for shard in pack}
    whole = {shard: frame for shard, frame in frames.items() if frame is not None}
    if len(whole) > 1:
        merged = pl.concat(whole.values()).unique(
            ["source", "key"], keep="first", maintain_order=True
        )
        stamp = pack[0].name.split("-")[1]
        write_shard(
            shard_path(pack[0].parent, stamp, sequences=pack[0].name.endswith(WITH_SEQUENCES)),
            merged,
        )
        for shard in whole:
            shard.unlink()
