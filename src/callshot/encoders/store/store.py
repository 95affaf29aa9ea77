"""The store: embeddings in as they are made; found again by the audio they were made from.

    folder/<16 hex digits>/          one folder for each encoder with its options, by the hash of
                                     the next file
        fingerprint.json             the encoder and its options; `sha256sum` of this file begins
                                     with the folder's name
        shard-TIME-SHA256.parquet    source, key, embedding (list of float32)
        shard-….sequences.parquet    also sequence (list of float32, frame after frame) and frames
        shard-….damaged              a shard whose content differed from its SHA-256

A key is the hash of a segment's audio. A source is the caller's name for where the audio comes
from, so that it need not be read again to know its key. If a key or a source is there twice, the
first shard by name counts. Any number of processes may add at once; each sees what was there when
it opened the store, and what it added. A store that cannot be written to, on read-only media or of
a colleague, is read; what is added stays in memory.

`verify_store` yields the state of every file, and sets damaged shards aside where asked to.
"""

import json
import logging
import os
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
import polars as pl
from numpy.typing import NDArray

from callshot.encoders.store.shards import (
    DAMAGED_SUFFIX,
    SHARD_BYTES,
    find_damage,
    list_shards,
    read_shard,
    set_aside,
    tidy_folder,
    verify_shards,
    write_shard,
)
from callshot.errors import InputError, OutputError, count_text, printable
from callshot.files import (
    error_reason,
    sha256_file,
    sha256_text,
    share_lock,
    sync_folder,
    write_atomic,
)
from callshot.records import Finding, IntArray
from callshot.storage import check_no_url

LOGGER = logging.getLogger(__name__)
FINGERPRINT = "fingerprint.json"
Vector = NDArray[np.float32]

ROW_BYTES = 512  # of a row in memory besides its numbers
FLUSH_AFTER_S = 30.0  # the most work that a crash may cost


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
    text = _fingerprint_text(fingerprint)
    folder = Path(folder) / sha256_text(text)[:16]
    check_no_url(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be made ({error_reason(error)}); name another folder"
        ) from error
    notes: list[str] = []
    lock = share_lock(folder / ".lock", partial(tidy_folder, folder, notes))
    try:
        _check_fingerprint(folder / FINGERPRINT, text, notes)
        return Store(folder, lock, notes, keeps_sequences=sequences)
    except BaseException:
        if lock is not None:
            lock.close()
        raise


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
        self._buffer_bytes = 0
        self._buffer_start_s = 0.0
        self._keys: dict[str, str] = {}  # by source
        self._rows: dict[str, int] = {}  # by key; rows are counted through all shards
        self._shards: list[Path] = []
        self._shard_ends = [0]  # the row after the last one of each shard
        self._is_writable = os.access(folder, os.W_OK)
        shards = list_shards(folder, sequences=keeps_sequences)
        for shard in verify_shards(shards, notes):
            frame = read_shard(shard, ["source", "key"], notes)
            if frame is not None:
                self._append_shard(shard, frame["source"], frame["key"])

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
        return key in self._rows

    def add(
        self, source: str, key: str, vector: Vector, sequence: Vector | None = None
    ) -> None:
        """Keep a copy of a vector, and its sequence (frames × dimension) in a store of sequences.

        They are written with the next flush, which comes by itself after 16 MiB, or with the first
        row that is added after 30 s.
        """
        if key in self._rows and source in self._keys:
            return
        row = self._check_row(source, key, vector, sequence)
        if not self._buffer:
            self._buffer_start_s = time.monotonic()
        self._keys.setdefault(source, key)
        self._rows.setdefault(key, self._shard_ends[-1] + len(self._buffer))
        self._buffer.append(row)
        self._buffer_bytes += ROW_BYTES + row.vector.nbytes
        if row.sequence is not None:
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
        stamp = f"{time.time_ns():020d}"
        frame = _shard_frame(self._buffer)
        shard = write_shard(self.folder, stamp, frame, sequences=self.keeps_sequences)
        self._append_shard(shard, frame["source"], frame["key"])
        self._buffer = []
        self._buffer_bytes = 0

    def vectors(self, keys: Sequence[str]) -> Vector:
        """Return the vector of each key, a row for each; raise if one is missing.

        Besides the result, a few times the size of a shard, 16 MiB, is in memory.
        """
        rows = self._find_rows(keys)
        shards = self._shard_numbers(rows)
        vectors = np.empty((len(keys), 0), np.float32)
        for number in np.unique(shards).tolist():
            in_shard = shards == number
            block = self._read_vectors(number, rows[in_shard])
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

    def _read_vectors(self, number: int, rows: IntArray) -> Vector:
        lists = self._read_rows(number, rows, ["embedding"])["embedding"]
        return lists.explode().to_numpy().reshape(len(lists), -1)

    def sequences(self, keys: Sequence[str]) -> Iterator[Vector]:
        """Return an iterator over the sequence of each key, frames × dimension.

        A missing key is an error at once. No more than a shard is in memory; the order in which
        sequences were added is the fastest.
        """
        if not self.keeps_sequences:
            raise InputError(
                f"{self.folder}: opened without its sequences; open it with sequences=True"
            )
        return self._iterate_sequences(self._find_rows(keys))

    def _iterate_sequences(self, rows: IntArray) -> Iterator[Vector]:
        numbers = self._shard_numbers(rows).tolist()
        pairs = zip(numbers, rows, strict=True)
        for number, group in groupby(pairs, itemgetter(0)):
            shard_rows = np.array([row for _, row in group])
            frame = self._read_rows(number, shard_rows, ["sequence", "frames"])
            for values, frames in zip(*frame, strict=True):
                yield values.to_numpy().reshape(frames, -1)

    def _append_shard(self, shard: Path, sources: pl.Series, keys: pl.Series) -> None:
        first_row = self._shard_ends[-1]
        pairs = zip(sources.to_list(), keys.to_list(), strict=True)
        for row, (source, key) in enumerate(pairs, first_row):
            self._keys.setdefault(source, key)
            self._rows.setdefault(key, row)
        self._shards.append(shard)
        self._shard_ends.append(first_row + len(keys))

    def _find_rows(self, keys: Sequence[str]) -> IntArray:
        """Return the rows of keys; those that are still buffered come after those in shards."""
        for key in keys:
            if key not in self._rows:
                raise InputError(
                    f"{self.folder}: no embedding has the key {key!r}; embed its segment first"
                )
        return np.array([self._rows[key] for key in keys], np.int64)

    def _shard_numbers(self, rows: IntArray) -> IntArray:
        return np.searchsorted(self._shard_ends, rows, side="right") - 1

    def _read_rows(
        self, number: int, rows: IntArray, columns: Sequence[str]
    ) -> pl.DataFrame:
        """Read rows of one shard, or of the buffer that will be the next, in their order."""
        if number == len(self._shards):
            buffered = [self._buffer[row] for row in rows - self._shard_ends[-1]]
            return _shard_frame(buffered).select(columns)
        first = int(rows.min())
        count = int(rows.max()) - first + 1
        start = first - self._shard_ends[number]
        frame = read_shard(self._shards[number], columns, self.notes, start, count)
        if frame is None:
            raise InputError(f"{self.notes[-1]}; run again to embed its segments anew")
        return frame[rows - first]

    def _check_row(
        self, source: str, key: str, vector: Vector, sequence: Vector | None
    ) -> Row:
        sequence_copy = None
        if self.keeps_sequences:
            sequence_copy = _copy_array(f"sequence of {source}", sequence, 2)
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


def _shard_frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Return rows as the columns of a shard."""
    vectors = np.stack([row.vector for row in rows])
    columns = {
        "source": pl.Series([row.source for row in rows], dtype=pl.String),
        "key": pl.Series([row.key for row in rows], dtype=pl.String),
        "embedding": pl.Series(vectors).arr.to_list(),
    }
    sequences = [row.sequence for row in rows if row.sequence is not None]
    if sequences:
        values = [sequence.ravel() for sequence in sequences]
        frames = [len(sequence) for sequence in sequences]
        columns["sequence"] = pl.Series(values, dtype=pl.List(pl.Float32))
        columns["frames"] = pl.Series(frames, dtype=pl.Int32)
    return pl.DataFrame(columns)


def _fingerprint_text(fingerprint: Mapping[str, object]) -> str:
    try:
        text = json.dumps(
            dict(fingerprint),
            sort_keys=True,
            indent=1,
            ensure_ascii=False,
            allow_nan=False,
        )
        text.encode()
    except (TypeError, ValueError) as error:
        raise InputError(
            f"fingerprint: expected what JSON can hold ({error})"
        ) from error
    return f"{text}\n"


def _check_fingerprint(path: Path, text: str, notes: list[str]) -> None:
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


LOCK = ".lock"


def is_store(folder: Path) -> bool:
    """Return whether a folder is a store, or the part of a store with one encoder."""
    return _has_shards(folder) or any(map(_has_shards, _list_folder(folder)))


def verify_store(folder: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the state of each file of a store; with `repair`, set damaged shards aside."""
    if _has_shards(folder):
        yield from _verify_encoder(folder, repair)
        return
    for path in _list_folder(folder):
        if _has_shards(path):
            yield from _verify_encoder(path, repair)
        else:
            yield Finding(path, "not from callshot")


def _has_shards(folder: Path) -> bool:
    if not folder.is_dir():
        return False
    is_encoder = (folder / FINGERPRINT).is_file()
    return is_encoder or bool(list_shards(folder, sequences=False))


def _list_folder(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.is_dir() else []


def _verify_encoder(folder: Path, repair: bool) -> Iterator[Finding]:
    yield _verify_fingerprint(folder / FINGERPRINT)
    shards = set(list_shards(folder, sequences=False))
    for path in _list_folder(folder):
        if path in shards:
            yield _verify_shard(path, repair)
        elif path.name.endswith(DAMAGED_SUFFIX):
            yield Finding(path, "quarantined", "may be removed")
        elif path.name not in (LOCK, FINGERPRINT):
            yield Finding(path, "not from callshot")


def _verify_fingerprint(path: Path) -> Finding:
    if not path.is_file():
        reason = "the encoder that the shards are from; embedding writes it again"
        return Finding(path, "missing", reason)
    if sha256_file(path).startswith(path.parent.name):
        return Finding(path, "ok")
    reason = "not what its folder is named after; embedding writes it again"
    return Finding(path, "damaged", reason)


def _verify_shard(shard: Path, repair: bool) -> Finding:
    try:
        damage = find_damage(shard)
    except OSError as error:
        raise InputError(f"{shard}: cannot be read ({error_reason(error)})") from error
    if damage and repair:
        notes: list[str] = []
        set_aside(shard, damage, notes)
        return Finding(shard, "damaged", notes[0].removeprefix(f"{shard}: "))
    if damage:
        return Finding(shard, "damaged", f"{damage}; --repair sets it aside")
    return Finding(shard, "ok")
