"""The store: embeddings in as they are made; found again by the audio they were made from.

    folder/<16 hex digits>/           one folder for each encoder with its options, by the hash of
                                      the next file
        fingerprint.json              the encoder and its options
        shard-TIME-SHA256.npy         a chunk (`callshot.chunks`): source, key, frames, vector
        shard-….sequences.npy         the same; after each row its `frames` frames, without a key
        shard-….damaged               a shard whose content differed from its SHA-256

A key is the hash of a segment's audio. A source is the caller's name for where the audio comes
from, so that it need not be read again to know its key. If a key or a source is there twice, the
first shard by name counts. Any number of processes may add at once; each sees what was there when
it opened the store, and what it added. A store that cannot be written to, on read-only media or of
a colleague, is read; what is added stays in memory.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache, partial
from hashlib import sha256
from itertools import groupby, repeat
from operator import itemgetter
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from callshot.chunks import (
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
from callshot.errors import InputError, OutputError, count_text, printable
from callshot.files import (
    error_reason,
    make_folder,
    remove_unfinished,
    sha256_text,
    share_lock,
    sync_folder,
    write_atomic,
)
from callshot.jobs import Pool
from callshot.records import Finding

LOGGER = logging.getLogger(__name__)
FINGERPRINT = "fingerprint.json"
Vector = NDArray[np.float32]

SEQUENCES = ".sequences"  # before the suffix of a shard that has them
SHARD_BYTES = 2**24
ROW_BYTES = 512  # of a row in memory besides its numbers
FLUSH_AFTER_S = 30.0  # the most work that a crash may cost


def audio_key(signal: Vector) -> str:
    """Return the hash of a segment's audio: SHA-256 of the number of samples and the samples.

    >>> audio_key(np.zeros(3, np.float32))[:12]
    '39fe4a43b6be'
    """
    digest = sha256(len(signal).to_bytes(8, "little"))
    digest.update(np.ascontiguousarray(signal, "<f4").data)
    return digest.hexdigest()


class Store:
    """The open store of one encoder, which is made if there is none; for one thread at a time.

    `fingerprint` is everything that decides the numbers, as JSON values. With `sequences` each
    vector comes with the sequence behind it, and only rows that have one count. `notes` describes
    damage that was found; it is logged when the store is closed.

    >>> import tempfile
    >>> with Store(Path(tempfile.mkdtemp()), {"encoder": "mfcc"}) as store:
    ...     store.add("a.wav 0-1 s", "f00d", np.array([1, 2], np.float32))
    ...     store.find(["a.wav 0-1 s", "b.wav 0-1 s"]), store.vectors(["f00d"]).tolist()
    ({'a.wav 0-1 s': 'f00d'}, [[1.0, 2.0]])
    """

    def __init__(
        self,
        folder: Path,
        fingerprint: Mapping[str, object],
        *,
        sequences: bool = False,
    ) -> None:
        """Open or make the store; verify its shards, and enter what is in them."""
        fingerprint_text = format_record(fingerprint)
        self.folder = Path(folder) / sha256_text(fingerprint_text)[:16]
        self.notes: list[str] = []
        self.keeps_sequences = sequences
        # New rows: source, key, vector and sequence, by the row number in the next shard.
        self._buffer: dict[int, tuple[str, str, Vector, Vector | None]] = {}
        self._buffer_rows = 0  # with those of frames
        self._buffer_bytes = 0
        self._buffer_start_s = 0.0  # when the first was added
        self._keys: dict[str, str] = {}  # by source
        self._places: dict[str, tuple[int, int]] = {}  # by key: shard and row in it
        self._shards: list[Path] = []
        make_folder(self.folder)
        self._is_writable = os.access(self.folder, os.W_OK)
        clean = partial(remove_unfinished, self.folder)
        self._lock = share_lock(self.folder / ".lock", clean)
        try:
            path = self.folder / FINGERPRINT
            content = path.read_bytes() if path.is_file() else b""
            if content != fingerprint_text.encode() and self._is_writable:
                write_atomic(path, fingerprint_text)
                sync_folder(self.folder.parent)
            shards = list_shards(self.folder, sequences=sequences)
            # Threads verify the next shards while rows are entered: SHA-256 frees the GIL.
            with Pool() as pool:
                damages = pool.map(_find_damage_once, shards)
                for shard, damage in zip(shards, damages, strict=True):
                    rows = self._map_shard(shard, damage)
                    if rows is not None:
                        self._append_shard(shard, rows)
        except BaseException:
            if self._lock is not None:
                self._lock.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: Any) -> None:
        if kind is None:
            self.close()
            return
        with suppress(OutputError):  # the first error is what the user must see
            self.close()

    def close(self) -> None:
        """Write what is buffered, log the notes, and release the lock."""
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
        """Return whether there is a vector for the audio with this key.

        In a store of sequences, its sequence is there too.
        """
        return key in self._places

    def add(
        self, source: str, key: str, vector: Vector, sequence: Vector | None = None
    ) -> None:
        """Keep a copy of a vector, (dimension,), and in a store of sequences of its sequence.

        A sequence is (frames, dimension). They are written with the next flush, which comes by
        itself after 16 MiB, or with the first row that is added after 30 s.
        """
        if key in self._places and source in self._keys:
            return
        if not self._buffer:
            self._buffer_start_s = time.monotonic()
        self._keys.setdefault(source, key)
        row = self._buffer_rows
        # The buffer will be the next shard.
        self._places.setdefault(key, (len(self._shards), row))
        self._buffer_rows += 1
        self._buffer_bytes += ROW_BYTES + vector.nbytes
        frames = None
        if self.keeps_sequences and sequence is not None:
            # A copy: models reuse their buffers.
            frames = np.array(sequence, np.float32)
            self._buffer_rows += len(frames)
            self._buffer_bytes += frames.nbytes
        self._buffer[row] = (source, key, np.array(vector, np.float32), frames)
        is_old = time.monotonic() - self._buffer_start_s >= FLUSH_AFTER_S
        if is_old or self._buffer_bytes >= SHARD_BYTES:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as a shard.

        It stays buffered if that fails, or if the store cannot be written to.
        """
        if not self._buffer or not self._is_writable:
            return
        rows = self._make_rows()
        suffix = SEQUENCES if self.keeps_sequences else ""
        prefix = f"shard-{time.time_ns():020d}"
        shard = write_chunk(self.folder, prefix, rows, suffix)
        self._append_shard(shard, rows)
        self._buffer = {}
        self._buffer_rows = 0
        self._buffer_bytes = 0

    def vectors(self, keys: Sequence[str]) -> Vector:
        """Return the vectors of keys, (keys, dimension), read shard by shard."""
        places = [self._places[key] for key in keys]
        table = np.array(places, np.int64).reshape(-1, 2)  # also without keys
        shards, rows = table.T  # the shard of each key, and the row in it
        vectors = np.empty((len(keys), 0), np.float32)  # until the dimension is known
        for shard in np.unique(shards).tolist():
            in_shard = shards == shard
            if shard == len(self._shards):  # the buffer, which is not written yet
                buffered = [self._buffer[row] for row in rows[in_shard].tolist()]
                block = np.stack([vector for _, _, vector, _ in buffered])
            else:
                shard_vectors = self._read(shard)["vector"]
                block = shard_vectors[rows[in_shard]]
            if vectors.shape[1] == 0:
                dimension = block.shape[1]
                vectors = np.empty((len(keys), dimension), np.float32)
            vectors[in_shard] = block
        return vectors

    def sequences(self, keys: Sequence[str]) -> Iterator[Vector]:
        """Yield the sequence of each key, (frames, dimension), read when it is needed."""
        places = [self._places[key] for key in keys]
        for number, group in groupby(places, itemgetter(0)):
            shard = self._read(number)
            for _, row in group:
                # The frames of a sequence are in the rows after its vector.
                end = row + 1 + shard["frames"][row]
                yield np.array(shard["vector"][row + 1 : end])

    def _append_shard(self, shard: Path, rows: Rows) -> None:
        """Enter the rows of a shard: the key of each source, and the shard and row of each key.

        If a source or a key is there already, the earlier one counts.
        """
        number = len(self._shards)
        has_key = rows["key"] != b""  # frames of a sequence have none
        embedded = np.flatnonzero(has_key)
        sources = map(bytes.decode, rows["source"][embedded].tolist())
        keys = map(bytes.decode, rows["key"][embedded].tolist())
        places = zip(repeat(number), embedded.tolist())
        for source, key, place in zip(sources, keys, places, strict=True):
            self._keys.setdefault(source, key)
            self._places.setdefault(key, place)
        self._shards.append(shard)

    def _read(self, number: int) -> Rows:
        """Return the rows of a shard, or of the buffer that will be the next."""
        if number == len(self._shards):
            return self._make_rows()
        rows = self._map_shard(self._shards[number])
        if rows is None:
            raise InputError(f"{self.notes[-1]}; run again to embed its segments anew")
        return rows

    def _make_rows(self) -> Rows:
        """Return the buffer as rows of a shard, each embedding followed by its frames."""
        sources, keys, vectors, _ = zip(*self._buffer.values(), strict=True)
        source_bytes = max(len(source.encode()) for source in sources)
        key_bytes = max(len(key.encode()) for key in keys)
        dimension = len(vectors[0])
        dtype = np.dtype(
            [
                ("source", f"S{source_bytes}"),
                ("key", f"S{key_bytes}"),
                ("frames", "<i4"),
                ("vector", "<f4", (dimension,)),
            ]
        )
        rows = np.zeros(self._buffer_rows, dtype)
        for position, (source, key, vector, sequence) in self._buffer.items():
            frames = 0 if sequence is None else len(sequence)
            rows[position] = (source.encode(), key.encode(), frames, vector)
            if sequence is not None:
                first = position + 1
                rows["vector"][first : first + frames] = sequence
        return rows

    def _map_shard(self, shard: Path, damage: str = "") -> Rows | None:
        """Map the rows of a shard into memory; add a note and return None if it cannot be used.

        `damage` is what verifying the shard has found; a damaged shard is set aside.
        """
        if not damage:
            try:
                return map_chunk(shard)
            except FileNotFoundError:
                damage = GONE
            except (ValueError, EOFError) as error:
                damage = error_reason(error)
            except OSError as error:
                raise InputError(
                    f"{shard}: cannot be read ({error_reason(error)}); correct that and run again"
                ) from error
        if damage == GONE:  # another process has set it aside
            self.notes.append(f"{shard}: the shard is gone")
        else:
            self.notes.append(
                f"{shard}: the shard is damaged ({damage}); {set_aside(shard)}, and its segments "
                "are embedded again"
            )
        return None


def list_shards(folder: Path, *, sequences: bool = False) -> list[Path]:
    """Return the shards of a folder by name; with `sequences`, only shards that have them."""
    ending = f"{SEQUENCES}.npy" if sequences else ".npy"
    paths = sorted(folder.glob(f"shard-*{ending}"))
    return [path for path in paths if CHUNK_NAME.fullmatch(path.name)]


def _find_damage_once(shard: Path) -> str:
    """Return what is wrong with a shard; empty if it is intact.

    A shard is read once in a process, unless the file is replaced or written to.
    """
    try:
        status = shard.stat()
    except OSError:  # gone, or unreadable: this says which
        return find_damage(shard)
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return _find_damage(shard, status.st_ino, status.st_size, *times)


@lru_cache(maxsize=2**16)
def _find_damage(shard: Path, *identity: int) -> str:
    """Return what is wrong with a shard; `identity` is only a key of the cache."""
    return find_damage(shard)


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
    # A folder that is the part of one encoder has no others.
    return [folder] if folder in encoders else encoders


def verify_store(folder: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the state of each file of a store; with `repair`, set damaged ones aside."""
    encoders = _list_encoders(folder)
    if folder not in encoders:  # a whole store
        for path in sorted(folder.iterdir()):
            if path not in encoders:
                yield Finding(path, "not from callshot")
    for encoder in encoders:
        if not (encoder / FINGERPRINT).is_file():
            reason = "the encoder that the shards are from; embedding writes it again"
            yield Finding(encoder / FINGERPRINT, "missing", reason)
        again = "embedding makes it again"
        yield from verify_files(encoder, (FINGERPRINT,), repair=repair, again=again)
