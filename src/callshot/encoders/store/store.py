"""The store: embeddings come in as they are made, and are found again by the audio that they were made from.

    folder/<16 hex digits>/          one folder for each encoder with its options, by the hash of the next file
        fingerprint.json             that encoder and its options; `sha256sum` of it begins with the folder's name
        shard-*.parquet              source, key, embedding (list of float32)
        shard-*.sequences.parquet    with sequence (list of float32, frame after frame) and frames (int32) besides
        shard-*.damaged              a shard that could not be read, set aside

A key is the hash of a segment's audio. A source is the caller's name for where that audio comes from, so that it need
not be read again to know its key. Where a key or a source is there twice, the first shard by name counts. Any number of
processes may add at once; each sees what was there when it opened the store, and what it added.
"""

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from hashlib import sha256
from itertools import compress, groupby
from operator import itemgetter
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Self

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.encoders.store.shards import (
    SHARD_BYTES,
    enter,
    list_shards,
    read_shard,
    shard_path,
    sync_folder,
    write_shard,
    write_whole,
)
from callshot.errors import InputError, OutputError

ROW_BYTES = 512  # that a row takes in memory besides its numbers
WAIT_S = 30.0  # what a crash may cost
NOTHING = pl.DataFrame(schema={"source": pl.String, "key": pl.String})

Row = tuple[str, str, NDArray[np.float32], NDArray[np.float32] | None]


def audio_key(signal: NDArray[np.float32]) -> str:
    """Return the hash of a segment's audio: SHA-256 of the number of its samples, and of them, little-endian.

    >>> audio_key(np.zeros(3, np.float32))[:12]
    '39fe4a43b6be'
    """
    if signal.dtype.newbyteorder("=") != np.float32 or signal.ndim != 1:
        raise InputError(
            f"signal: wanted one channel of float32, found {signal.dtype} of shape {signal.shape}"
        )
    digest = sha256(len(signal).to_bytes(8, "little"))
    digest.update(np.ascontiguousarray(signal, "<f4").data)
    return digest.hexdigest()


def open_store(
    folder: Path, fingerprint: Mapping[str, object], *, sequences: bool = False
) -> "Store":
    """Open the store of one encoder, and make it where there is none.

    `fingerprint` is all that decides the numbers, of what JSON can hold. With `sequences` each vector comes with the
    sequence behind it, and only rows that have one count as there.

    >>> import tempfile
    >>> with open_store(Path(tempfile.mkdtemp()), {"encoder": "mfcc"}) as store:
    ...     store.add("a.wav 0-1 s", "f00d", np.array([1, 2], np.float32))
    ...     store.find(["a.wav 0-1 s", "b.wav 0-1 s"]), store.vectors(["f00d"]).tolist()
    ({'a.wav 0-1 s': 'f00d'}, [[1.0, 2.0]])
    """
    text = _fingerprint_text(fingerprint)
    folder = Path(folder) / sha256(text).hexdigest()[:16]
    notes: list[str] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError(
            f"{folder}: cannot be made ({error.strerror}); name another folder"
        ) from error
    lock = enter(folder, notes)
    try:
        _check_fingerprint(folder / "fingerprint.json", text)
        return Store(folder, lock, notes, keeps_sequences=sequences)
    except BaseException:
        if lock is not None:
            lock.close()
        raise


class Store:
    """An open store, made by `open_store`. `notes` says what was amiss in it. For one thread at a time."""

    def __init__(
        self, folder: Path, lock: BinaryIO | None, notes: list[str], *, keeps_sequences: bool
    ) -> None:
        self.folder, self.notes = folder, notes
        self._lock, self._keeps_sequences = lock, keeps_sequences
        self._rows: list[Row] = []
        self._bytes, self._since_s = 0, 0.0
        self._key_of: dict[str, str] = {}  # by source: what was added
        self._place_of: dict[
            str, int
        ] = {}  # by key: the row, counted through all shards; what was added
        self._shards, self._ends = list[Path](), [0]  # the row after the last of each shard
        frames = [self._enlist(shard) for shard in list_shards(folder, sequences=keeps_sequences)]
        self._known = pl.concat([NOTHING, *frames], rechunk=True)
        self._sources, self._keys = Lookup(self._known["source"]), Lookup(self._known["key"])

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is None:
            self.close()
        else:  # what went wrong first is what the user must see
            with suppress(OutputError):
                self.close()

    def close(self) -> None:
        """Flush, and leave the store to others."""
        try:
            self.flush()
        finally:
            if self._lock is not None:
                self._lock.close()

    @property
    def keeps_sequences(self) -> bool:
        """Whether each vector comes with the sequence behind it."""
        return self._keeps_sequences

    def find(self, sources: Sequence[str]) -> dict[str, str]:
        """Return the keys of those of the sources that are there."""
        added = {source: self._key_of[source] for source in sources if source in self._key_of}
        rows = self._sources.rows(sources)
        before = self._known["key"].gather(rows[rows >= 0]).to_list()
        return added | dict(zip(compress(sources, rows >= 0), before, strict=True))

    def has(self, key: str) -> bool:
        """Say whether there is a vector for this audio, and a sequence where they are kept."""
        return key in self._place_of or self._keys.rows([key])[0] >= 0

    def add(
        self,
        source: str,
        key: str,
        vector: NDArray[np.float32],
        sequence: NDArray[np.float32] | None = None,
    ) -> None:
        """Keep a vector, and its sequence, frames × dimension, in a store of sequences; both are copied.

        They are on the disk after the next flush, which comes by itself after 16 MiB, or with what is added after 30 s.
        """
        if self.has(key) and self.find([source]):
            return
        row = self._row(source, key, vector, sequence)
        self._since_s = self._since_s if self._rows else time.monotonic()
        self._rows.append(row)
        self._bytes += ROW_BYTES + sum(array.nbytes for array in row[2:] if array is not None)
        self._key_of.setdefault(source, key)
        self._place_of.setdefault(key, self._ends[-1] + len(self._rows) - 1)
        if self._bytes >= SHARD_BYTES or time.monotonic() - self._since_s >= WAIT_S:
            self.flush()

    def flush(self) -> None:
        """Write what is buffered as a shard; it stays buffered where that fails."""
        if self._rows:
            shard = shard_path(
                self.folder, f"{time.time_ns():020d}", sequences=self._keeps_sequences
            )
            write_shard(shard, _frame(self._rows))
            self._shards.append(shard)
            self._ends.append(self._ends[-1] + len(self._rows))
            self._rows, self._bytes = [], 0

    def vectors(self, keys: Sequence[str]) -> NDArray[np.float32]:
        """Return the vectors of these keys, a row for each; refuse a key that is not there.

        Besides the result, a few times the size of a shard, 16 MiB, is in memory.
        """
        places = self._places(keys)
        shards = self._shard_of(places)
        found = np.empty((len(keys), 0), np.float32)
        for shard in np.unique(shards).tolist():
            at = np.flatnonzero(shards == shard)
            lists = self._read(shard, places[at], ["embedding"])["embedding"]
            block = lists.explode().to_numpy().reshape(len(lists), -1)
            found = (
                found if found.shape[1] > 0 else np.empty((len(keys), block.shape[1]), np.float32)
            )
            if block.shape[1] != found.shape[1]:
                sizes = (
                    f"vectors of {block.shape[1]} dimensions, in other shards of {found.shape[1]}"
                )
                place = [*self._shards, self.folder][shard]
                raise InputError(f"{place}: {sizes}; two encoders have one fingerprint")
            found[at] = block
        return found

    def sequences(self, keys: Sequence[str]) -> Iterator[NDArray[np.float32]]:
        """Return an iterator over the sequences of these keys, frames × dimension; refuse a key that is not there.

        No more than a shard is in memory. Fastest in the order in which they were added.
        """
        if not self._keeps_sequences:
            raise InputError(
                f"{self.folder}: opened without its sequences; open it with sequences=True"
            )
        return self._sequences(self._places(keys))

    def _sequences(self, places: NDArray[np.int64]) -> Iterator[NDArray[np.float32]]:
        for shard, run in groupby(
            zip(self._shard_of(places).tolist(), places, strict=True), itemgetter(0)
        ):
            frame = self._read(shard, np.array([place for _, place in run]), ["sequence", "frames"])
            for row, frames in enumerate(frame["frames"].to_list()):
                yield frame["sequence"][row].to_numpy().reshape(frames, -1)

    def _places(self, keys: Sequence[str]) -> NDArray[np.int64]:
        """Return the places of these keys: rows that are still buffered come after those in shards."""
        places = self._keys.rows(keys)
        for i in np.flatnonzero(places < 0).tolist():
            if keys[i] not in self._place_of:
                raise InputError(
                    f"{self.folder}: no embedding has the key {keys[i]!r}; embed its segment first"
                )
            places[i] = self._place_of[keys[i]]
        return places

    def _shard_of(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        return np.searchsorted(self._ends, places, side="right") - 1

    def _read(self, shard: int, places: NDArray[np.int64], columns: Sequence[str]) -> pl.DataFrame:
        """Read the rows at some places of one shard, or of what will be the next, in their order."""
        if shard == len(self._shards):
            return _frame([self._rows[place] for place in places - self._ends[-1]]).select(columns)
        first = int(places.min())
        start, count = first - self._ends[shard], int(places.max()) - first + 1
        frame = read_shard(self._shards[shard], columns, self.notes, start, count)
        if frame is None:
            raise InputError(f"{self.notes[-1]}; run again to embed anew what it held")
        return frame[places - first]

    def _row(
        self,
        source: str,
        key: str,
        vector: NDArray[np.float32],
        sequence: NDArray[np.float32] | None,
    ) -> Row:
        kept = _checked(f"sequence of {source}", sequence, 2) if self._keeps_sequences else None
        row = (source, key, _checked(f"vector of {source}", vector, 1), kept)
        if self._rows and len(self._rows[0][2]) != len(vector):
            wanted = f"wanted {len(self._rows[0][2])} dimensions as before"
            raise InputError(
                f"vector of {source}: {wanted}, found {len(vector)}; open a store for each encoder"
            )
        return row

    def _enlist(self, shard: Path) -> pl.DataFrame:
        """Return the sources and keys of a shard, and count it among those that are there; none if it is damaged."""
        frame = read_shard(shard, NOTHING.columns, self.notes)
        if frame is None:
            return NOTHING
        self._shards.append(shard)
        self._ends.append(self._ends[-1] + frame.height)
        return frame


class Lookup:
    """Where texts are in a column: their hashes, sorted. A million rows take a fraction of a dict's time and memory.

    >>> Lookup(pl.Series(["a", "b", "a"])).rows(["b", "a", "c"])
    array([ 1,  0, -1])
    """

    def __init__(self, texts: pl.Series) -> None:
        hashes = np.fromiter(map(hash, texts.to_list()), np.int64, len(texts))
        self._texts, self._order = texts, np.argsort(hashes, kind="stable")
        self._hashes = hashes[self._order]

    def rows(self, texts: Sequence[str]) -> NDArray[np.int64]:
        """Return the first row that holds each text, or −1. Of two texts with one hash the later is not found."""
        if len(self._order) == 0:
            return np.full(len(texts), -1)
        at = np.searchsorted(self._hashes, np.fromiter(map(hash, texts), np.int64, len(texts)))
        rows = self._order[np.minimum(at, len(self._order) - 1)].tolist()
        return np.array(
            [
                row if self._texts[row] == text else -1
                for row, text in zip(rows, texts, strict=True)
            ],
            int,
        )


def _checked(name: str, array: NDArray[np.float32] | None, dimensions: int) -> NDArray[np.float32]:
    """Return a copy, as models reuse their buffers; refuse what is no array of finite float32."""
    if array is None or array.dtype != np.float32 or array.ndim != dimensions or array.size == 0:
        found = "none" if array is None else f"{array.dtype} of shape {array.shape}"
        raise InputError(
            f"{name}: wanted {'frames × ' * (dimensions - 1)}dimension of float32, found {found}"
        )
    if not np.isfinite(array).all():
        raise InputError(
            f"{name}: wanted finite numbers, found NaN or infinity; leave the segment out"
        )
    return array.copy()


def _frame(rows: Sequence[Row]) -> pl.DataFrame:
    """Lay buffered rows out as the columns of a shard."""
    sources, keys, vectors, sequences = zip(*rows, strict=True)
    columns = {
        "source": pl.Series(sources, dtype=pl.String),
        "key": pl.Series(keys, dtype=pl.String),
    }
    columns["embedding"] = pl.Series(np.stack(vectors)).arr.to_list()
    if sequences[0] is not None:
        columns["sequence"] = pl.Series(
            [sequence.ravel() for sequence in sequences], dtype=pl.List(pl.Float32)
        )
        columns["frames"] = pl.Series([len(sequence) for sequence in sequences], dtype=pl.Int32)
    return pl.DataFrame(columns)


def _fingerprint_text(fingerprint: Mapping[str, object]) -> bytes:
    try:
        text = json.dumps(
            dict(fingerprint), sort_keys=True, indent=1, ensure_ascii=False, allow_nan=False
        )
        return f"{text}\n".encode()
    except (TypeError, ValueError) as error:
        raise InputError(f"fingerprint: wanted what JSON can hold ({error})") from error


def _check_fingerprint(path: Path, text: bytes) -> None:
    """Refuse a folder whose fingerprint is not the one that it is named after; write it where there is none."""
    try:
        found = path.read_bytes()
    except FileNotFoundError:
        write_whole(path, text)
        sync_folder(path.parent.parent)
        return
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from error
    if found != text:
        raise InputError(
            f"{path}: not the fingerprint that its folder is named after; move the folder away"
        )
