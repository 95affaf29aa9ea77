"""A perch-hoplite database comes in; the windows of its recordings and its annotations go out. Nothing is written.

Three layouts are read: of versions 1.0.0 to 1.0.2, of 0.1.0 and 0.1.1, and of `chirp.projects.hoplite` before them.

            windows              times                                    vectors             annotations
    1.0     windows              two float64                              `usearch.index`     on spans
    0.1     hoplite_embeddings   one or two float32, or one float16       `usearch.index`     on windows
    before  hoplite_embeddings   one float16                              float16, in a blob  on windows

Tables that are views or virtual are refused, so that no query but ours runs.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError, printable
from callshot.records import IntArray
from callshot.tables.window_pooling import Sources, Span, Windows

SQLITE, USEARCH = "hoplite.sqlite", "usearch.index"
POSITIVE = 1
PERCH_WINDOW_S = 5.0

NEW = {
    "recordings": "SELECT r.id, r.filename, d.project || '/' || d.name FROM recordings r "
    "LEFT JOIN deployments d ON d.id = r.deployment_id ORDER BY r.id",
    "windows": "SELECT id, recording_id, offsets, NULL FROM windows ORDER BY id",
    "labels": "SELECT id, recording_id, offsets, label, label_type, NULL FROM annotations ORDER BY id",
}
OLD = {
    "recordings": "SELECT id, source, dataset FROM hoplite_sources ORDER BY id",
    "windows": "SELECT id, source_idx, offsets, NULL FROM hoplite_embeddings ORDER BY id",
    "labels": "SELECT l.id, e.source_idx, e.offsets, l.label, l.type, l.embedding_id FROM hoplite_labels l "
    "LEFT JOIN hoplite_embeddings e ON e.id = l.embedding_id ORDER BY l.id",
}
BLOBS = OLD | {
    "windows": "SELECT id, source_idx, offsets, embedding FROM hoplite_embeddings ORDER BY id"
}
# Types of scalar, key and slot, as USearch numbers them; keys are of 64 bits and slots of 32.
USEARCH_TYPES: dict[bytes, np.dtype[Any]] = {
    bytes([11, 14, 15]): np.dtype("<f4"),
    bytes([12, 14, 15]): np.dtype("<f2"),
}
MOST_LINKS = 1 << 20
TIMES = {
    True: {16: "<f8", 8: "<f8"},
    False: {2: "<f2", 4: "<f4", 8: "<f4"},
}  # by layout and size of the blob


@dataclass(frozen=True)
class Hoplite:
    """What a database holds: its recordings' windows, the spans that it calls something, and what is to be told."""

    sources: Sources
    spans: list[Span]
    rows: list[int]  # the ids of the annotations
    notes: list[str]


def find_hoplite(source: Path) -> Path | None:
    """Return the SQLite file that a path means, if it means one."""
    path = source / SQLITE if source.is_dir() else source
    try:
        with path.open("rb") as stream:
            return (
                path
                if stream.read(16) == b"SQLite format 3\0" or path.suffix == ".sqlite"
                else None
            )
    except OSError:
        return None


def read_hoplite(source: Path) -> Hoplite:
    """Read a database (the folder, or the file in it); refuse what is damaged or of no known layout."""
    path = find_hoplite(source)
    if path is None:
        raise InputError(
            f"{source}: wanted a perch-hoplite database, a folder with {SQLITE}; found none"
        )
    with _open(path) as base:
        layout = _layout(path, base)
        tables = {name: base.execute(query).fetchall() for name, query in layout.items()}
        length_s = None if layout is NEW else _window_s(base)
    names = _names(tables["recordings"])
    notes = (
        []
        if length_s is None
        else [_tell_length(length_s)]
        if _starts_only(tables["windows"])
        else []
    )
    read = _Times(
        path, layout is NEW, PERCH_WINDOW_S if length_s is None or np.isnan(length_s) else length_s
    )
    spans, rows, told = _spans(tables["labels"], names, read)
    matrix, slots = _vectors(path, tables["windows"], blobs=layout is BLOBS)
    lacking = int((slots < 0).sum())
    notes += told + ([f"{lacking} windows have no vector in {USEARCH}"] if lacking else [])
    return Hoplite(
        _sources(path, tables["windows"], names, read, matrix, slots), spans, rows, notes
    )


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database for reading alone; nothing appears beside it unless another program left its log there."""
    log = path.with_name(f"{path.name}-wal")
    immutable = "" if log.exists() and log.stat().st_size > 0 else "&immutable=1"
    try:
        with closing(
            sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro{immutable}", uri=True)
        ) as base:
            base.execute("PRAGMA trusted_schema = OFF")
            if (
                found := base.execute("PRAGMA quick_check(1)").fetchone()[0]
            ) != "ok":  # a cut file reads as emptier
                raise sqlite3.DatabaseError(" ".join(found.split()))
            yield base
    except (sqlite3.Error, OverflowError, UnicodeError) as error:
        raise InputError(
            f"{path}: not a whole perch-hoplite database ({printable(str(error))})"
        ) from error


def _layout(path: Path, base: sqlite3.Connection) -> dict[str, str]:
    """Return the queries for a database, by the tables that it has."""
    query = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'"
    tables = {name for (name,) in base.execute(query)}
    if {"windows", "recordings", "deployments", "annotations"} <= tables:
        return NEW
    if {"hoplite_embeddings", "hoplite_sources", "hoplite_labels"} <= tables:
        columns = {row[1] for row in base.execute("PRAGMA table_info(hoplite_embeddings)")}
        return BLOBS if "embedding" in columns else OLD
    found = printable(", ".join(sorted(map(str, tables))[:8])) or "none"
    raise InputError(
        f"{path}: wanted the tables of perch-hoplite (windows, or hoplite_embeddings), found {found}"
    )


def _window_s(base: sqlite3.Connection) -> float:
    """Return the length of a window that the model's settings tell; NaN where they do not."""
    try:
        rows = base.execute(
            "SELECT data FROM hoplite_metadata WHERE key = 'model_config'"
        ).fetchall()
        length_s = float(json.loads(rows[0][0])["model_config"]["window_size_s"])
        return length_s if 0 < length_s < np.inf else np.nan
    except (sqlite3.Error, LookupError, TypeError, ValueError, RecursionError):
        return np.nan


def _starts_only(windows: Sequence[Any]) -> bool:
    return any(isinstance(row[2], bytes) and len(row[2]) < 8 for row in windows)


def _tell_length(length_s: float) -> str:
    told = (
        f"{PERCH_WINDOW_S:g} s as Perch's (none is told)"
        if np.isnan(length_s)
        else f"{length_s:g} s"
    )
    return (
        f"this old database keeps only where windows start; their length is taken as {told}. Beyond 34 minutes its "
        "starts are off by up to seconds, as it kept them in half precision; its own labels do not depend on them"
    )


def _names(recordings: Sequence[Any]) -> dict[int, str]:
    """Return the name of each recording; where two have one file name, with the deployment or dataset before it."""
    alike = Counter(str(name) for _, name, _ in recordings)
    places = {
        n: str(name) if alike[str(name)] == 1 else f"{site}/{name}" for n, name, site in recordings
    }
    again = Counter(places.values())
    return {n: name if again[name] == 1 else f"{name}#{n}" for n, name in places.items()}


@dataclass(frozen=True)
class _Times:
    """Reads the times of a window or an annotation from their blob."""

    path: Path
    new: bool
    length_s: float

    def __call__(self, table: str, row: object, blob: object) -> tuple[float, float]:
        kind = TIMES[self.new].get(len(blob)) if isinstance(blob, bytes) else None
        if kind is None or not isinstance(blob, bytes):
            found = f"a blob of {len(blob)} bytes" if isinstance(blob, bytes) else repr(blob)[:40]
            raise InputError(
                f"{self.path}: {table} {row}: wanted a start and an end in seconds, found {found}"
            )
        start_s, *rest = np.frombuffer(blob, kind).astype(np.float64).tolist()
        end_s = rest[0] if rest else start_s + self.length_s
        if not (np.isfinite(start_s) and np.isfinite(end_s)):
            raise InputError(
                f"{self.path}: {table} {row}: wanted finite times, found {start_s} to {end_s}"
            )
        return start_s, end_s


def _spans(
    labels: Sequence[Any], names: dict[int, str], read: _Times
) -> tuple[list[Span], list[int], list[str]]:
    """Return the spans that something is said to be on, and a note on those where it is said not to be."""
    spans, rows = [], []
    for row, recording, offsets, label, kind, window in labels:
        if kind == POSITIVE:
            if recording not in names:
                raise InputError(
                    f"{read.path}: annotation {row}: its window or recording is not in the database"
                )
            spans.append(
                Span(names[recording], *read("annotation", row, offsets), str(label), window)
            )
            rows.append(row)
    others = len(labels) - len(spans)
    return (
        spans,
        rows,
        [f"{others} negative or uncertain annotations are left aside"] if others else [],
    )


def _sources(
    path: Path,
    windows: Sequence[Any],
    names: dict[int, str],
    read: _Times,
    matrix: NDArray[Any],
    slots: IntArray,
) -> Sources:
    """Return, for each recording, a function that reads its windows; those without a vector are left out."""
    members: dict[int, list[int]] = {}
    for n, (row, recording, *_) in enumerate(windows):
        if recording not in names or not isinstance(row, int):
            raise InputError(
                f"{path}: window {row}: its recording {recording!r} is not in the database"
            )
        if slots[n] >= 0:
            members.setdefault(recording, []).append(n)
    times = np.array([read("window", row[0], row[2]) for row in windows], np.float64).reshape(-1, 2)
    ids = np.array([row[0] for row in windows], np.int64)

    def take(rows: list[int]) -> Windows:
        with np.errstate(invalid="ignore"):
            vectors = np.asarray(matrix[slots[rows]], np.float32)
        if not (finite := np.isfinite(vectors).all(axis=1)).all():
            raise InputError(
                f"{path}: window {ids[rows][np.argmin(finite)]}: its vector is not finite; remove it"
            )
        start_s, end_s = times[rows].T
        return Windows(start_s, end_s, vectors, ids[rows])

    return {names[recording]: lambda rows=rows: take(rows) for recording, rows in members.items()}  # type: ignore[misc]


def _vectors(path: Path, windows: Sequence[Any], *, blobs: bool) -> tuple[NDArray[Any], IntArray]:
    """Return a matrix, and which row of it is the vector of each window: −1 where none is."""
    if blobs:
        return _blob_matrix(path, windows), np.arange(len(windows))
    keys, matrix = read_usearch(path.with_name(USEARCH))
    slots = dict(zip(keys.tolist(), range(len(keys)), strict=True))
    return matrix, np.array([slots.get(row[0], -1) for row in windows], np.int64)


def _blob_matrix(path: Path, windows: Sequence[Any]) -> NDArray[Any]:
    sizes = [len(row[3]) if isinstance(row[3], bytes) else -1 for row in windows]
    for (row, *_), size in zip(windows, sizes, strict=True):
        if size <= 0 or size % 2 or size != sizes[0]:
            wanted = (
                f"a vector of {sizes[0]} bytes as in the first"
                if size != sizes[0]
                else "a vector of float16"
            )
            raise InputError(f"{path}: window {row}: wanted {wanted}, found {max(size, 0)} bytes")
    return np.frombuffer(b"".join(row[3] for row in windows), "<f2").reshape(len(windows), -1)


def read_usearch(path: Path) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Return the keys and vectors of a USearch index (format 2, dense), the vectors mapped, not loaded.

    The file is rows and bytes per row (two uint32), the matrix, 64 bytes that tell the types, five uint64 that tell the
    graph, a level (int16) for each row, and the nodes, each of which begins with its key.
    """
    try:
        data = np.memmap(path, np.uint8, "r")
        rows, width = map(int, data[:8].view("<u4"))
        head = bytes(data[8 + rows * width :][:64])
        at = 8 + rows * width + 64
        size, links, base_links = map(int, data[at : at + 24].view("<u8"))
        levels = data[at + 40 : at + 40 + 2 * rows].view("<i2").astype(np.int64)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); the vectors of {SQLITE} are in it"
        ) from error
    except ValueError as error:
        raise InputError(f"{path}: not a whole USearch index ({error})") from error
    if (
        head[:9] != b"usearch\2\0"
        or size != rows
        or len(levels) != rows
        or max(links, base_links) > MOST_LINKS
    ):
        raise InputError(f"{path}: not a whole USearch index of format 2")
    kind, dimensions = USEARCH_TYPES.get(head[14:17]), int.from_bytes(head[33:41], "little")
    if kind is None or dimensions * kind.itemsize != width:
        raise InputError(
            f"{path}: wanted vectors of float16 or float32, found USearch's types {list(head[14:17])}"
        )
    starts = (
        at + 40 + 2 * rows + np.cumsum(np.append(0, 14 + 4 * base_links + levels * (4 + 4 * links)))
    )
    if (levels < 0).any() or starts[-1] != len(data):
        raise InputError(
            f"{path}: not a whole USearch index: wanted {int(starts[-1])} bytes, found {len(data)}"
        )
    keys = data[starts[:-1, None] + np.arange(8)].view("<u8").ravel()
    return keys, data[8 : 8 + rows * width].view(kind).reshape(rows, dimensions)
