"""A perch-hoplite database in; readers of the windows of its recordings and its annotations out.

The layout is that of perch-hoplite 1.0: SQLite, with the vectors in `usearch.index`. Nothing is
written. Views and virtual tables are not accepted as tables, so that no foreign query runs.
"""

import sqlite3
import struct
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.errors import InputError, count_text, printable
from callshot.files import check_regular_file, error_reason, explain_unreadable
from callshot.records import IntArray
from callshot.tables.window_pooling import WindowReaders, make_windows
from callshot.vectors import Rows

Row = tuple[Any, ...]

SQLITE_NAME = "hoplite.sqlite"
USEARCH_NAME = "usearch.index"
EXTRA = "hoplite"
POSITIVE_LABEL = 1
TIMES = struct.Struct("<2d")  # start and end of a window or an annotation
TABLES = {"windows", "recordings", "deployments", "annotations"}
OLD_TABLE = "hoplite_embeddings"  # of perch-hoplite 0.1
RECORDING_QUERY = (
    "SELECT r.id, r.filename, d.project || '/' || d.name FROM recordings r "
    "LEFT JOIN deployments d ON d.id = r.deployment_id ORDER BY r.id"
)
WINDOW_QUERY = "SELECT id, recording_id, offsets FROM windows ORDER BY id"
ANNOTATIONS: dict[str, Any] = {
    "id": pl.Int64,
    "path": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,
}
ANNOTATION_QUERY = (
    "SELECT id, recording_id, offsets, label, label_type FROM annotations ORDER BY id"
)


@dataclass(frozen=True)
class Hoplite:
    """The content of a database.

    readers      of the windows of each recording
    annotations  labelled spans: id, path, start_s, end_s, label
    notes        for the user
    """

    readers: WindowReaders
    annotations: pl.DataFrame
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
        _check_tables(path, database)
        recordings = database.execute(RECORDING_QUERY).fetchall()
        windows = database.execute(WINDOW_QUERY).fetchall()
        annotations = database.execute(ANNOTATION_QUERY).fetchall()
    parser = RowParser(path, _name_recordings(recordings))
    positive = [row for row in annotations if row[4] == POSITIVE_LABEL]
    table = parser.window_table(windows)
    index = open_usearch(path.with_name(USEARCH_NAME))
    has_vector = index.contains(table.ids.astype(np.uint64))
    return Hoplite(
        readers=table.readers(index, has_vector),
        annotations=pl.DataFrame(
            [parser.span(row) for row in positive], ANNOTATIONS, orient="row"
        ),
        notes=list(_describe_gaps(len(annotations) - len(positive), has_vector)),
    )


def _describe_gaps(ignored: int, has_vector: NDArray[np.bool_]) -> Iterator[str]:
    """Yield notes on annotations that are not used, and on windows without a vector."""
    if ignored:
        yield f"{count_text(ignored, 'negative or uncertain annotation')} ignored"
    missing = int(np.count_nonzero(~has_vector))
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


def _check_tables(path: Path, database: sqlite3.Connection) -> None:
    """Raise InputError unless a database has the tables of perch-hoplite 1.0."""
    query = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'"
    tables = {str(name) for (name,) in database.execute(query)}
    if tables >= TABLES:
        return
    if OLD_TABLE in tables:
        raise InputError(
            f"{path}: a database of perch-hoplite 0.1; migrate it to version 1.0 with "
            "perch-hoplite's notebook 99_migrate_db.ipynb"
        )
    listed = printable(", ".join(sorted(tables)[:8]))
    expected = ", ".join(sorted(TABLES))
    raise InputError(
        f"{path}: expected the tables of perch-hoplite ({expected}), got {listed or 'none'}"
    )


def _name_recordings(recordings: Sequence[Row]) -> dict[int, str]:
    """Return the name of each recording; if two share it, after their deployment."""
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
    names: dict[int, str]

    def times(self, place: str, blob: object) -> tuple[float, float]:
        """Return start and end of a window or an annotation, from a blob."""
        if not isinstance(blob, bytes) or len(blob) != TIMES.size:
            content = repr(blob)[:40]
            if isinstance(blob, bytes):
                content = f"a blob of {len(blob)} bytes"
            raise InputError(
                f"{self.path}: {place}: expected a start and an end in seconds, got {content}"
            )
        start_s, end_s = TIMES.unpack(blob)
        if not np.isfinite([start_s, end_s]).all():
            raise InputError(
                f"{self.path}: {place}: expected finite times, got {start_s} to {end_s}"
            )
        return start_s, end_s

    def span(self, annotation: Row) -> Row:
        """Return an annotation as a row of ANNOTATIONS."""
        row, recording, offsets, label, _ = annotation
        place = f"annotation {row}"
        if recording not in self.names:
            raise InputError(
                f"{self.path}: {place}: its recording is not in the database"
            )
        start_s, end_s = self.times(place, offsets)
        return row, self.names[recording], start_s, end_s, str(label)

    def window_table(self, windows: Sequence[Row]) -> "_WindowTable":
        """Return the windows of all recordings."""
        rows_of = defaultdict[str, list[int]](list)
        times = np.empty((len(windows), 2))
        ids = np.empty(len(windows), np.int64)
        for row, (window, recording, offsets) in enumerate(windows):
            place = f"window {window}"
            if recording not in self.names or not isinstance(window, int):
                raise InputError(
                    f"{self.path}: {place}: its recording {recording!r} is not in the database"
                )
            ids[row] = window
            times[row] = self.times(place, offsets)
            rows_of[self.names[recording]].append(row)
        return _WindowTable(self.path, ids, times, rows_of)


@dataclass(frozen=True)
class _WindowTable:
    """The windows of all recordings: their ids and times, and the rows of each recording."""

    path: Path
    ids: IntArray
    times: NDArray[np.float64]
    rows_of: dict[str, list[int]]

    def readers(self, index: Any, has_vector: NDArray[np.bool_]) -> WindowReaders:
        """Return a reader of the windows of each recording; those without a vector are left out."""
        readers = {}
        for name, rows in self.rows_of.items():
            kept = [row for row in rows if has_vector[row]]
            if kept:
                readers[name] = partial(self._read, index, kept)
        return readers

    def _read(self, index: Any, rows: list[int]) -> Rows:
        """Return some windows with their vectors, which must be finite."""
        ids = self.ids[rows]
        # Asked for float32, USearch 2.26 returns zeros for vectors in float16.
        vectors = np.stack(index.get(ids.astype(np.uint64))).astype(np.float32)
        is_finite = np.isfinite(vectors).all(axis=1)
        for window in ids[~is_finite]:
            raise InputError(
                f"{self.path}: window {window}: its vector is not finite; remove it"
            )
        start_s, end_s = self.times[rows].T
        return make_windows(start_s, end_s, vectors)


def open_usearch(path: Path) -> Any:
    """Return a USearch index of float16 or float32; its file is mapped, not loaded."""
    try:
        usearch = import_module("usearch.index")
    except ImportError as error:
        raise InputError(
            f"{path}: the vectors of perch-hoplite need usearch ({error}); "
            f"install it with: pip install 'callshot[{EXTRA}]'"
        ) from error
    with explain_unreadable(path):
        check_regular_file(path)
    try:
        # view: usearch checks the size of a file that it maps, but crashes loading a damaged one
        index = usearch.Index.restore(str(path), view=True)
    except (OSError, RuntimeError, ValueError, MemoryError) as error:
        raise InputError(
            f"{path}: not a complete USearch index ({error_reason(error)})"
        ) from error
    kinds = (usearch.ScalarKind.F16, usearch.ScalarKind.F32)
    if index is None or index.multi or index.dtype not in kinds:
        raise InputError(
            f"{path}: expected an index of USearch with one float16 or float32 vector per key"
        )
    return index
