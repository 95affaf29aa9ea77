"""A perch-hoplite database in; readers of the windows of its recordings and its annotations out.

Nothing is written. Three layouts are read: of versions 1.0.0 to 1.0.2, of 0.1.0 and 0.1.1, and of
`chirp.projects.hoplite` before them.

            windows              times                         vectors            annotations
    1.0     windows              two float64                   `usearch.index`    on spans
    0.1     hoplite_embeddings   one or two float32, or one    `usearch.index`    on windows
                                 float16
    before  hoplite_embeddings   one float16                   float16, in blobs  on windows

Views and virtual tables are not accepted as tables, so that no foreign query runs.
"""

import json
import sqlite3
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError, count_text, printable
from callshot.files import error_reason
from callshot.records import IntArray
from callshot.tables.window_pooling import Span, WindowReaders, Windows

Row = tuple[Any, ...]
Keys = NDArray[np.uint64]

SQLITE_NAME = "hoplite.sqlite"
USEARCH_NAME = "usearch.index"
POSITIVE_LABEL = 1
PERCH_WINDOW_S = 5.0
HALF_PRECISION_NOTE = (
    "this old database has only the starts of windows; their length is taken as {length}. Beyond "
    "34 minutes its starts are off by up to seconds, because they are in half precision; its own "
    "labels do not depend on them"
)


@dataclass(frozen=True)
class Layout:
    """The queries that read a database, and the types of times by the bytes of their blob."""

    recordings: str
    windows: str
    annotations: str
    time_types: dict[int, str]
    has_vectors: bool = False


VERSION_1 = Layout(
    recordings="SELECT r.id, r.filename, d.project || '/' || d.name FROM recordings r "
    "LEFT JOIN deployments d ON d.id = r.deployment_id ORDER BY r.id",
    windows="SELECT id, recording_id, offsets, NULL FROM windows ORDER BY id",
    annotations="SELECT id, recording_id, offsets, label, label_type, NULL FROM annotations "
    "ORDER BY id",
    time_types={16: "<f8", 8: "<f8"},
)
OLD_QUERIES: dict[str, Any] = {
    "recordings": "SELECT id, source, dataset FROM hoplite_sources ORDER BY id",
    "annotations": "SELECT l.id, e.source_idx, e.offsets, l.label, l.type, l.embedding_id "
    "FROM hoplite_labels l LEFT JOIN hoplite_embeddings e ON e.id = l.embedding_id ORDER BY l.id",
}
OLD_TIME_TYPES = {2: "<f2", 4: "<f4", 8: "<f4"}
VERSION_0 = Layout(
    windows="SELECT id, source_idx, offsets, NULL FROM hoplite_embeddings ORDER BY id",
    time_types=OLD_TIME_TYPES,
    **OLD_QUERIES,
)
BEFORE = Layout(
    windows="SELECT id, source_idx, offsets, embedding FROM hoplite_embeddings ORDER BY id",
    time_types=OLD_TIME_TYPES,
    has_vectors=True,
    **OLD_QUERIES,
)

# Types of scalar, key and slot, as USearch numbers them; keys are of 64 bits and slots of 32.
USEARCH_TYPES: dict[bytes, np.dtype[Any]] = {
    bytes([11, 14, 15]): np.dtype("<f4"),
    bytes([12, 14, 15]): np.dtype("<f2"),
}
USEARCH_MAGIC = b"usearch\2\0"
# Magic and version, types and dimensions; rows and links of the graph, and two numbers more.
USEARCH_HEADER = "<9s5x3s16xQ23x3Q16x"
USEARCH_HEADER_BYTES = struct.calcsize(USEARCH_HEADER)
LARGEST_LINK_COUNT = 1 << 20


@dataclass(frozen=True)
class Hoplite:
    """The content of a database: readers of windows, labelled spans, and notes for the user."""

    readers: WindowReaders
    spans: list[Span]
    annotation_ids: list[int]
    notes: list[str]


def find_hoplite(source: Path) -> Path | None:
    """Return the SQLite file at a path, if there is one."""
    path = source / SQLITE_NAME if source.is_dir() else source
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError:
        return None
    if start == b"SQLite format 3\0" or path.suffix == ".sqlite":
        return path
    return None


def read_hoplite(source: Path) -> Hoplite:
    """Read a database (the folder, or the file in it); raise if it is damaged or unknown."""
    path = find_hoplite(source)
    if path is None:
        raise InputError(
            f"{source}: expected a perch-hoplite database, a folder with {SQLITE_NAME}; got none"
        )
    with _open_database(path) as database:
        layout = _find_layout(path, database)
        recordings = database.execute(layout.recordings).fetchall()
        windows = database.execute(layout.windows).fetchall()
        annotations = database.execute(layout.annotations).fetchall()
        length_s = _read_window_length(database)
    parser = RowParser(
        path=path,
        time_types=layout.time_types,
        length_s=length_s or PERCH_WINDOW_S,
        names=_name_recordings(recordings),
    )
    positive = [row for row in annotations if row[4] == POSITIVE_LABEL]
    matrix, slots = _read_vectors(path, layout, windows)
    notes = []
    if layout is not VERSION_1 and _has_starts_only(windows):
        notes.append(_describe_length(length_s))
    notes += _describe_gaps(len(annotations) - len(positive), slots)
    return Hoplite(
        readers=parser.window_readers(windows, matrix, slots),
        spans=[parser.span(row) for row in positive],
        annotation_ids=[row[0] for row in positive],
        notes=notes,
    )


def _describe_gaps(ignored: int, slots: IntArray) -> Iterator[str]:
    """Yield notes on annotations that are not used, and on windows without a vector."""
    if ignored:
        yield f"{count_text(ignored, 'negative or uncertain annotation')} ignored"
    missing = int(np.count_nonzero(slots < 0))
    if missing:
        yield f"{count_text(missing, 'window')} without a vector in {USEARCH_NAME}"


@contextmanager
def _open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading; no file appears beside it unless another program's log is."""
    log = path.with_name(f"{path.name}-wal")
    address = f"file:{quote(str(path.absolute()))}?mode=ro"
    if not log.exists() or log.stat().st_size == 0:
        address += "&immutable=1"
    try:
        with closing(sqlite3.connect(address, uri=True)) as database:
            database.execute("PRAGMA trusted_schema = OFF")
            # A cut file would read as one with less in it.
            (state,) = database.execute("PRAGMA quick_check(1)").fetchone()
            if state != "ok":
                raise sqlite3.DatabaseError(state)
            yield database
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        reason = printable(error_reason(error))
        raise InputError(
            f"{path}: not a complete perch-hoplite database ({reason})"
        ) from error


def _find_layout(path: Path, database: sqlite3.Connection) -> Layout:
    query = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'"
    tables = {str(name) for (name,) in database.execute(query)}
    if {"windows", "recordings", "deployments", "annotations"} <= tables:
        return VERSION_1
    if {"hoplite_embeddings", "hoplite_sources", "hoplite_labels"} <= tables:
        info = database.execute("PRAGMA table_info(hoplite_embeddings)")
        columns = [row[1] for row in info]
        return BEFORE if "embedding" in columns else VERSION_0
    listed = printable(", ".join(sorted(tables)[:8]))
    raise InputError(
        f"{path}: expected the tables of perch-hoplite (windows, or hoplite_embeddings), "
        f"got {listed or 'none'}"
    )


def _read_window_length(database: sqlite3.Connection) -> float | None:
    """Return the length of a window in the settings of the model, if it is there."""
    query = "SELECT data FROM hoplite_metadata WHERE key = 'model_config'"
    try:
        (text,) = database.execute(query).fetchone()
        length_s = float(json.loads(text)["model_config"]["window_size_s"])
    except (sqlite3.Error, LookupError, TypeError, ValueError, RecursionError):
        return None
    return length_s if 0 < length_s < np.inf else None


def _has_starts_only(windows: Sequence[Row]) -> bool:
    return any(isinstance(row[2], bytes) and len(row[2]) < 8 for row in windows)


def _describe_length(length_s: float | None) -> str:
    if length_s is None:
        length = f"{PERCH_WINDOW_S:g} s as for Perch (the database does not say)"
    else:
        length = f"{length_s:g} s"
    return HALF_PRECISION_NOTE.format(length=length)


def _name_recordings(recordings: Sequence[Row]) -> dict[int, str]:
    """Return the name of each recording; if two share it, after their deployment or dataset."""
    counts = Counter(str(name) for _, name, _ in recordings)
    names: dict[int, str] = {}
    for number, name, site in recordings:
        names[number] = str(name)
        if counts[str(name)] > 1:
            names[number] = f"{site}/{name}"
    counts = Counter(names.values())
    for number, name in names.items():
        if counts[name] > 1:
            names[number] = f"{name}#{number}"
    return names


@dataclass(frozen=True)
class RowParser:
    """Turns rows of a database into spans and windows."""

    path: Path
    time_types: dict[int, str]
    length_s: float
    names: dict[int, str]

    def times(self, place: str, blob: object) -> tuple[float, float]:
        """Return start and end of a window or an annotation, from a blob."""
        if not isinstance(blob, bytes) or len(blob) not in self.time_types:
            content = repr(blob)[:40]
            if isinstance(blob, bytes):
                content = f"a blob of {len(blob)} bytes"
            raise InputError(
                f"{self.path}: {place}: expected a start and an end in seconds, got {content}"
            )
        times = np.frombuffer(blob, self.time_types[len(blob)])
        start_s = float(times[0])
        end_s = start_s + self.length_s
        if len(times) > 1:
            end_s = float(times[1])
        if not np.isfinite([start_s, end_s]).all():
            raise InputError(
                f"{self.path}: {place}: expected finite times, got {start_s} to {end_s}"
            )
        return start_s, end_s

    def span(self, annotation: Row) -> Span:
        """Return the span of an annotation."""
        row, recording, offsets, label, _, window = annotation
        place = f"annotation {row}"
        if recording not in self.names:
            raise InputError(
                f"{self.path}: {place}: its window or recording is not in the database"
            )
        start_s, end_s = self.times(place, offsets)
        return Span(self.names[recording], start_s, end_s, str(label), window)

    def window_readers(
        self, windows: Sequence[Row], matrix: NDArray[Any], slots: IntArray
    ) -> WindowReaders:
        """Return a reader of the windows of each recording; those without a vector are left out."""
        rows_of = defaultdict[str, list[int]](list)
        times = np.empty((len(windows), 2))
        ids = np.empty(len(windows), np.int64)
        for row, (window, recording, offsets, _) in enumerate(windows):
            place = f"window {window}"
            if recording not in self.names or not isinstance(window, int):
                raise InputError(
                    f"{self.path}: {place}: its recording {recording!r} is not in the database"
                )
            ids[row] = window
            times[row] = self.times(place, offsets)
            if slots[row] >= 0:
                rows_of[self.names[recording]].append(row)
        table = _WindowTable(self.path, ids, times, matrix, slots)
        return {name: partial(table.read, rows) for name, rows in rows_of.items()}


@dataclass(frozen=True)
class _WindowTable:
    """The windows of all recordings: their ids and times, and the slots of their vectors."""

    path: Path
    ids: IntArray
    times: NDArray[np.float64]
    matrix: NDArray[Any]
    slots: IntArray

    def read(self, rows: list[int]) -> Windows:
        """Return some windows with their vectors, which must be finite."""
        with np.errstate(invalid="ignore"):
            vectors = np.asarray(self.matrix[self.slots[rows]], np.float32)
        ids = self.ids[rows]
        is_finite = np.isfinite(vectors).all(axis=1)
        for window in ids[~is_finite]:
            raise InputError(
                f"{self.path}: window {window}: its vector is not finite; remove it"
            )
        start_s, end_s = self.times[rows].T
        return Windows(start_s, end_s, vectors, ids)


def _read_vectors(
    path: Path, layout: Layout, windows: Sequence[Row]
) -> tuple[NDArray[Any], IntArray]:
    """Return a matrix, and the row in it of the vector of each window: -1 where there is none."""
    if layout.has_vectors:
        return _blob_matrix(path, windows), np.arange(len(windows))
    keys, matrix = read_usearch(path.with_name(USEARCH_NAME))
    slot_of = {key: slot for slot, key in enumerate(keys.tolist())}
    slots = [slot_of.get(row[0], -1) for row in windows]
    return matrix, np.array(slots, np.int64)


def _blob_matrix(path: Path, windows: Sequence[Row]) -> NDArray[Any]:
    blobs = [row[3] if isinstance(row[3], bytes) else b"" for row in windows]
    for (window, *_), blob in zip(windows, blobs, strict=True):
        expected = len(blobs[0])
        if len(blob) != expected:
            raise InputError(
                f"{path}: window {window}: expected a vector of {expected} bytes as in the first, "
                f"got {len(blob)} bytes"
            )
        if expected == 0 or expected % 2:
            raise InputError(
                f"{path}: window {window}: expected a vector of float16, got {expected} bytes"
            )
    return np.frombuffer(b"".join(blobs), "<f2").reshape(len(windows), -1)


def read_usearch(path: Path) -> tuple[Keys, NDArray[Any]]:
    """Return the keys and vectors of a USearch index (format 2, dense); vectors are mapped.

    The file is: rows and bytes per row (two uint32), the matrix, a header of 64 bytes with the
    types, five uint64 that describe the graph, a level (int16) for each row, and the nodes, each of
    which begins with its key.
    """
    try:
        data: Any = np.memmap(path, np.uint8, "r")
        rows, row_bytes = struct.unpack_from("<2I", data)
        start = 8 + rows * row_bytes
        magic, *header = struct.unpack_from(USEARCH_HEADER, data, start)
        types, dimensions, size, links, base_links = header
        levels_start = start + USEARCH_HEADER_BYTES
        levels = np.frombuffer(data, "<i2", rows, levels_start).astype(np.int64)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error_reason(error)}); it has the vectors of {SQLITE_NAME}"
        ) from error
    except (ValueError, struct.error) as error:
        raise InputError(f"{path}: not a complete USearch index ({error})") from error
    is_plausible = size == rows and max(links, base_links) <= LARGEST_LINK_COUNT
    if magic != USEARCH_MAGIC or not is_plausible or (levels < 0).any():
        raise InputError(f"{path}: not a complete USearch index of format 2")
    dtype = USEARCH_TYPES.get(types)
    if dtype is None or dimensions * dtype.itemsize != row_bytes:
        raise InputError(
            f"{path}: expected vectors of float16 or float32, got USearch's types {list(types)}"
        )
    vectors = np.frombuffer(data, dtype, rows * dimensions, 8)
    node_bytes = 14 + 4 * base_links + levels * (4 + 4 * links)
    keys = _read_node_keys(path, data, levels_start + 2 * rows, node_bytes)
    return keys, vectors.reshape(rows, dimensions)


def _read_node_keys(
    path: Path, data: NDArray[np.uint8], nodes_start: int, node_bytes: IntArray
) -> Keys:
    """Return the first eight bytes of each node; raise if the nodes do not end with the file."""
    node_ends = nodes_start + np.cumsum(node_bytes)
    end = nodes_start + int(node_bytes.sum())
    if end != len(data):
        raise InputError(
            f"{path}: not a complete USearch index: expected {end} bytes, got {len(data)}"
        )
    node_starts = node_ends - node_bytes
    key_bytes = node_starts[:, np.newaxis] + np.arange(8)
    keys: Keys = data[key_bytes].view("<u8").ravel()
    return keys
