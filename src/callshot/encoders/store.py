"""The store: embeddings in as they are made; found again by the audio they were made from.

    folder/<16 hex digits>/           one folder for each encoder with its options, by the hash of
                                      the next file
        fingerprint.json              the encoder and its options
        shard-TIME-SHA256.npy         a chunk (`callshot.vectors`): source, key, frames, vector
        shard-….sequences.npy         the same; after each row its `frames` frames, without a key
        shard-….damaged               a shard whose content differed from its SHA-256

A key is the hash of a segment's audio. A source is the caller's name for where the audio comes
from, so that it need not be read again to know its key. If a key or a source is there twice, the
first shard by name counts. Any number of processes may add at once; each sees what was there when
it opened the store, and what it added. A store that cannot be written to, on read-only media or of
a colleague, is read; what is added stays in memory. A store that no other process has open is
tidied: unfinished files are removed and small shards merged.
"""

import json
import logging
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from hashlib import sha256
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from callshot.errors import (
    CallshotError,
    InputError,
    OutputError,
    count_text,
    printable,
)
from callshot.files import (
    error_reason,
    remove_unfinished,
    sha256_text,
    share_lock,
    sync_folder,
    write_atomic,
)
from callshot.jobs import Pool
from callshot.records import Finding, IntArray
from callshot.storage import check_no_url
from callshot.vectors import (
    CHUNK_NAME,
    GONE,
    Rows,
    find_damage,
    format_record,
    map_chunk,
    set_aside,
    verify_files,
    write_chunk,
)

LOGGER = logging.getLogger(__name__)
FINGERPRINT = "fingerprint.json"
Vector = NDArray[np.float32]

SEQUENCES = ".sequences"  # before the suffix of a shard that has them
SHARD_BYTES = 2**24
SMALL_SHARD_BYTES = SHARD_BYTES // 4  # less than a full shard of any dimension
MANY_SHARDS = 64  # small ones that are worth merging
ROW_BYTES = 512  # of a row in memory besides its numbers
FLUSH_AFTER_S = 30.0  # the most work that a crash may cost
_whole_shards: set[tuple[object, ...]] = set()


class Row(NamedTuple):
    """One embedding, as it waits to be written."""

    source: str
    key: str
    vector: Vector
    sequence: Vector | None


def audio_key(signal: Vector) -> str:
    """Return the hash of a segment's audio: SHA-256 of the number of samples and the samples.

    >>> audio_key(np.zeros(3, np.float32))[:12]
    '39fe4a43b6be'
    """
    if signal.dtype.newbyteorder("=") != np.float32 or signal.ndim != 1:
        raise InputError(
            f"signal: expected one channel of float32, got {signal.dtype} of shape {signal.shape}"
        )
    digest = sha256(len(signal).to_bytes(8, "little"))
    digest.update(np.ascontiguousarray(signal, "<f4").data)
    return digest.hexdigest()


def open_store(
    folder: Path, fingerprint: Mapping[str, object], *, sequences: bool = False
) -> "Store":
    """Open the store of one encoder, and make it if there is none.

    `fingerprint` is everything that decides the numbers, as JSON values. With `sequences` each
    vector comes with the sequence behind it, and only rows that have one count.

    >>> import tempfile
    >>> with open_store(Path(tempfile.mkdtemp()), {"encoder": "mfcc"}) as store:
    ...     store.add("a.wav 0-1 s", "f00d", np.array([1, 2], np.float32))
    ...     store.find(["a.wav 0-1 s", "b.wav 0-1 s"]), store.vectors(["f00d"]).tolist()
    ({'a.wav 0-1 s': 'f00d'}, [[1.0, 2.0]])
    """
    try:
        json.dumps(dict(fingerprint), allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(
            f"fingerprint: expected what JSON can hold ({error})"
        ) from error
    text = format_record(fingerprint)
    folder = Path(folder) / sha256_text(text)[:16]
    check_no_url(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be made ({error_reason(error)}); name another folder"
        ) from error
    notes: list[str] = []
    lock = share_lock(folder / ".lock", partial(_tidy, folder, notes))
    try:
        _write_fingerprint(folder / FINGERPRINT, text, notes)
        return Store(folder, lock, notes, keeps_sequences=sequences)
    except BaseException:
        if lock is not None:
            lock.close()
        raise


def _write_fingerprint(path: Path, text: str, notes: list[str]) -> None:
    """Write the fingerprint if there is none, or if it is not the one its folder is named after."""
    try:
        if path.read_bytes() == text.encode():
            return
        notes.append(f"{path}: was damaged; it is written again")
    except FileNotFoundError:
        pass
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error_reason(error)})") from error
    if os.access(path.parent, os.W_OK):
        write_atomic(path, text)
        sync_folder(path.parent.parent)


class Store:
    """An open store, made by `open_store`; for one thread at a time.

    `notes` describes damage that was found; it is logged when the store is closed.
    `keeps_sequences` is whether each vector comes with the sequence behind it.
    """

    def __init__(
        self,
        folder: Path,
        lock: BinaryIO | None,
        notes: list[str],
        *,
        keeps_sequences: bool,
    ) -> None:
        self.folder = folder
        self.notes = notes
        self.keeps_sequences = keeps_sequences
        self._lock = lock
        self._buffer: list[Row] = []
        self._buffer_rows = 0
        self._buffer_bytes = 0
        self._buffer_start_s = 0.0
        self._keys: dict[str, str] = {}  # by source
        self._places: dict[str, tuple[int, int]] = {}  # by key: shard and row in it
        self._shards: list[Path] = []
        self._is_writable = os.access(folder, os.W_OK)
        shards = list_shards(folder, sequences=keeps_sequences)
        for shard in _verify_shards(shards, notes):
            rows = _read_shard(shard, notes)
            if rows is not None:
                self._append_shard(shard, rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
            return
        with suppress(OutputError):  # the first error is what the user must see
            self.close()

    def close(self) -> None:
        """Write what is buffered, log the notes, and leave the store to others."""
        try:
            self.flush()
            if self._buffer:
                self.notes.append(
                    f"{self.folder}: cannot be written to; "
                    f"{count_text(len(self._buffer), 'new embedding')} not stored, to be made "
                    "again in the next run"
                )
        finally:
            for note in self.notes:
                LOGGER.warning("note: %s", printable(note))
            if self._lock is not None:
                self._lock.close()

    def find(self, sources: Sequence[str]) -> dict[str, str]:
        """Return the key of each source that is in the store."""
        return {
            source: self._keys[source] for source in sources if source in self._keys
        }

    def has(self, key: str) -> bool:
        """Return whether there is a vector for an audio, and a sequence where they are kept."""
        return key in self._places

    def add(
        self, source: str, key: str, vector: Vector, sequence: Vector | None = None
    ) -> None:
        """Keep a copy of a vector, and its sequence (frames × dimension) in a store of sequences.

        They are written with the next flush, which comes by itself after 16 MiB, or with the first
        row that is added after 30 s.
        """
        if key in self._places and source in self._keys:
            return
        row = self._check_row(source, key, vector, sequence)
        if not self._buffer:
            self._buffer_start_s = time.monotonic()
        self._keys.setdefault(source, key)
        self._places.setdefault(key, (len(self._shards), self._buffer_rows))
        self._buffer.append(row)
        self._buffer_rows += 1
        self._buffer_bytes += ROW_BYTES + row.vector.nbytes
        if row.sequence is not None:
            self._buffer_rows += len(row.sequence)
            self._buffer_bytes += row.sequence.nbytes
        is_old = time.monotonic() - self._buffer_start_s >= FLUSH_AFTER_S
        if is_old or self._buffer_bytes >= SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as a shard.

        It stays buffered if that fails, or if the store cannot be written to.
        """
        if not self._buffer or not self._is_writable:
            return
        rows = _make_rows(self._buffer)
        suffix = SEQUENCES if self.keeps_sequences else ""
        prefix = f"shard-{time.time_ns():020d}"
        shard = write_chunk(self.folder, prefix, rows, suffix)
        self._append_shard(shard, rows)
        self._buffer = []
        self._buffer_rows = 0
        self._buffer_bytes = 0

    def vectors(self, keys: Sequence[str]) -> Vector:
        """Return the vector of each key, a row for each; raise if one is missing."""
        shards, rows = self._find_places(keys)
        vectors = np.empty((len(keys), 0), np.float32)
        for number in np.unique(shards).tolist():
            in_shard = shards == number
            block = self._read(number)["vector"][rows[in_shard]]
            dimension = block.shape[1]
            if vectors.shape[1] == 0:
                vectors = np.empty((len(keys), dimension), np.float32)
            if vectors.shape[1] != dimension:
                path = [*self._shards, self.folder][number]
                raise InputError(
                    f"{path}: expected vectors of {vectors.shape[1]} dimensions as in other "
                    f"shards, got {dimension}; two encoders have the same fingerprint"
                )
            vectors[in_shard] = block
        return vectors

    def sequences(self, keys: Sequence[str]) -> Iterator[Vector]:
        """Return an iterator over the sequence of each key, frames × dimension.

        A missing key is an error at once. Sequences are read from the disk when they are needed.
        """
        if not self.keeps_sequences:
            raise InputError(
                f"{self.folder}: opened without its sequences; open it with sequences=True"
            )
        return self._iterate_sequences(*self._find_places(keys))

    def _iterate_sequences(self, shards: IntArray, rows: IntArray) -> Iterator[Vector]:
        pairs = zip(shards.tolist(), rows.tolist(), strict=True)
        for number, group in groupby(pairs, itemgetter(0)):
            shard = self._read(number)
            for _, row in group:
                end = row + 1 + shard["frames"][row]
                yield np.array(shard["vector"][row + 1 : end])

    def _append_shard(self, shard: Path, rows: Rows) -> None:
        number = len(self._shards)
        heads = _find_heads(rows)
        sources = rows["source"][heads].tolist()
        keys = rows["key"][heads].tolist()
        for row, source, key in zip(heads.tolist(), sources, keys, strict=True):
            self._keys.setdefault(source.decode(), key.decode())
            self._places.setdefault(key.decode(), (number, row))
        self._shards.append(shard)

    def _find_places(self, keys: Sequence[str]) -> tuple[IntArray, IntArray]:
        """Return the shard of each key, and its row there; the buffer is the last shard."""
        for key in keys:
            if key not in self._places:
                raise InputError(
                    f"{self.folder}: no embedding has the key {key!r}; embed its segment first"
                )
        places = np.array([self._places[key] for key in keys], np.int64).reshape(-1, 2)
        return places[:, 0], places[:, 1]

    def _read(self, number: int) -> Rows:
        """Return the rows of a shard, or of the buffer that will be the next."""
        if number == len(self._shards):
            return _make_rows(self._buffer)
        rows = _read_shard(self._shards[number], self.notes)
        if rows is None:
            raise InputError(f"{self.notes[-1]}; run again to embed its segments anew")
        return rows

    def _check_row(
        self, source: str, key: str, vector: Vector, sequence: Vector | None
    ) -> Row:
        sequence_copy = None
        if self.keeps_sequences:
            sequence_copy = _copy_array(f"sequence of {source}", sequence, 2)
            if sequence_copy.shape[1:] != vector.shape:
                raise InputError(
                    f"sequence of {source}: expected {len(vector)} dimensions as in its vector, "
                    f"got {sequence_copy.shape[1]}"
                )
        vector_copy = _copy_array(f"vector of {source}", vector, 1)
        for row in self._buffer[:1]:
            if len(row.vector) != len(vector):
                raise InputError(
                    f"vector of {source}: expected {len(row.vector)} dimensions as before, "
                    f"got {len(vector)}; open a store for each encoder"
                )
        return Row(source, key, vector_copy, sequence_copy)


def _copy_array(name: str, array: Vector | None, dimensions: int) -> Vector:
    """Return a copy, because models reuse their buffers; raise unless it is finite float32."""
    expected = ("dimension", "frames × dimension")[dimensions - 1]
    if array is None:
        raise InputError(f"{name}: expected {expected} of float32, got none")
    if array.dtype != np.float32 or array.ndim != dimensions or array.size == 0:
        raise InputError(
            f"{name}: expected {expected} of float32, got {array.dtype} of shape {array.shape}"
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"{name}: expected finite numbers, got NaN or infinity; leave the segment out"
        )
    return array.copy()


# Shards


def list_shards(folder: Path, *, sequences: bool = False) -> list[Path]:
    """Return the shards of a folder by name; with `sequences` only those that have them."""
    ending = f"{SEQUENCES}.npy" if sequences else ".npy"
    paths = sorted(folder.glob(f"shard-*{ending}"))
    return [path for path in paths if CHUNK_NAME.fullmatch(path.name)]


def _make_rows(buffer: Sequence[Row]) -> Rows:
    """Return embeddings as rows of a shard, each followed by its frames."""
    texts = [(row.source.encode(), row.key.encode()) for row in buffer]
    source_length = max(len(source) for source, _ in texts)
    key_length = max(len(key) for _, key in texts)
    dtype = np.dtype(
        [
            ("source", f"S{source_length}"),
            ("key", f"S{key_length}"),
            ("frames", "<i4"),
            ("vector", "<f4", (len(buffer[0].vector),)),
        ]
    )
    lengths = [0 if row.sequence is None else len(row.sequence) for row in buffer]
    rows = np.zeros(len(buffer) + sum(lengths), dtype)
    position = 0
    for row, (source, key), frames in zip(buffer, texts, lengths, strict=True):
        rows[position] = (source, key, frames, row.vector)
        if row.sequence is not None:
            rows["vector"][position + 1 : position + 1 + frames] = row.sequence
        position += 1 + frames
    return rows


def _find_heads(rows: Rows) -> IntArray:
    """Return the rows that are embeddings, not frames of one."""
    return np.flatnonzero(rows["key"] != b"")


def _read_shard(path: Path, notes: list[str]) -> Rows | None:
    """Map a verified shard; None, and a note, if it is gone or was damaged since."""
    try:
        rows = map_chunk(path)
        if rows.dtype.names != ("source", "key", "frames", "vector"):
            raise ValueError("expected source, key, frames and vector")
        return rows
    except FileNotFoundError:
        notes.append(f"{path}: the shard is gone")
    except (ValueError, EOFError) as error:
        _note_damage(path, error_reason(error), notes)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error_reason(error)}); correct that and run again"
        ) from error
    return None


def _note_damage(shard: Path, damage: str, notes: list[str]) -> None:
    notes.append(
        f"{shard}: the shard is damaged ({damage}); {set_aside(shard)}, and its segments are "
        "embedded again"
    )


def _verify_shards(shards: Sequence[Path], notes: list[str]) -> Iterator[Path]:
    """Yield the shards that are as they were written; the others are set aside, with a note.

    A process verifies a shard once, unless the file is replaced or written to. The next ones are
    verified while the caller works: SHA-256 frees the GIL.
    """
    with Pool() as pool:
        damages = pool.map(_find_damage_once, shards)
        for shard, damage in zip(shards, damages, strict=True):
            if damage == GONE:  # another process has set it aside
                notes.append(f"{shard}: the shard is gone")
            elif damage:
                _note_damage(shard, damage, notes)
            else:
                yield shard


def _find_damage_once(shard: Path) -> str:
    identity: tuple[object, ...] = ()
    with suppress(OSError):
        status = shard.stat()
        times = (status.st_mtime_ns, status.st_ctime_ns)
        identity = (shard, status.st_ino, status.st_size, *times)
    if identity in _whole_shards:
        return ""
    damage = find_damage(shard)
    if not damage:
        _whole_shards.add(identity)
    return damage


def _tidy(folder: Path, notes: list[str]) -> None:
    """Remove unfinished files and merge small shards, while no other process has a folder open."""
    remove_unfinished(folder)
    try:
        sizes = {shard: shard.stat().st_size for shard in list_shards(folder)}
        small = [shard for shard in sizes if sizes[shard] < SMALL_SHARD_BYTES]
        if len(small) <= MANY_SHARDS:
            return
        groups: dict[str, list[list[Path]]] = {"": [[]], SEQUENCES: [[]]}
        for shard in small:
            suffix = SEQUENCES if SEQUENCES in shard.name else ""
            group = groups[suffix][-1]
            size = sizes[shard] + sum(sizes[member] for member in group)
            if size > SHARD_BYTES:
                groups[suffix].append([shard])
            else:
                group.append(shard)
        for suffix, members in groups.items():
            for group in members:
                _merge_shards(group, suffix, notes)
    except (CallshotError, OSError) as error:
        notes.append(f"{folder}: small shards were not merged: {error}")


def _merge_shards(shards: Sequence[Path], suffix: str, notes: list[str]) -> None:
    """Write one shard in place of several; a crash may leave rows twice, which is harmless."""
    parts: dict[Path, Rows] = {}
    for shard in _verify_shards(shards, notes):
        rows = _read_shard(shard, notes)
        if rows is not None:
            parts[shard] = rows
    if len(parts) < 2:
        return
    rows = np.concatenate(list(parts.values()))
    is_kept = np.ones(len(rows), bool)
    seen = set()
    for head in _find_heads(rows).tolist():
        row = rows[head]
        pair = (row["source"], row["key"])
        if pair in seen:
            is_kept[head : head + 1 + row["frames"]] = False
        seen.add(pair)
    first = shards[0]
    stamp = re.split(r"[-.]", first.name)[1]
    merged = write_chunk(first.parent, f"shard-{stamp}", rows[is_kept], suffix)
    for shard in parts:
        if shard != merged:
            shard.unlink()


# Verify


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store, or the part of a store with one encoder."""
    return bool(_list_encoders(folder))


def _list_encoders(folder: Path) -> list[Path]:
    """Return the folders of encoders: a folder itself, or those in a store."""
    if not folder.is_dir():
        return []
    folders = [folder, *sorted(path for path in folder.iterdir() if path.is_dir())]
    encoders = [
        path for path in folders if (path / FINGERPRINT).is_file() or list_shards(path)
    ]
    return [folder] if folder in encoders else encoders


def verify_store(folder: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the state of each file of a store; with `repair`, set damaged ones aside."""
    encoders = _list_encoders(folder)
    if folder not in encoders:
        for path in sorted(folder.iterdir()):
            if path not in encoders:
                yield Finding(path, "not from callshot")
    for encoder in encoders:
        if not (encoder / FINGERPRINT).is_file():
            reason = "the encoder that the shards are from; embedding writes it again"
            yield Finding(encoder / FINGERPRINT, "missing", reason)
        again = "embedding makes it again"
        yield from verify_files(encoder, (FINGERPRINT,), repair=repair, again=again)
