"""Windows that other tools embedded: a database or files in, a reader for each recording out.

perch-hoplite 1.0: SQLite, with the vectors in `usearch.index`. Nothing is written. Views and
virtual tables are not accepted as tables, so that no foreign query runs.

BirdNET-Analyzer; versions 1 write the first of these, versions 2 the others, with a perch-hoplite
database beside them:

    x.birdnet.embeddings.txt           a line per window: start and end in seconds and
                                       comma-separated numbers, separated by tabs
    x_0.0_3.0.birdnet.embeddings.txt   one window, its times in the name, comma-separated numbers
    any.csv                            file_path, start, end, embedding (comma-separated numbers)
"""

import re
import sqlite3
import struct
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.chunks import Rows
from callshot.encoders.weights import import_package
from callshot.errors import InputError, count_text, printable
from callshot.files import check_regular_file, error_reason, explain_unreadable
from callshot.records import FloatArray
from callshot.tables.embedding_tables import explain_read_errors
from callshot.tables.fold_files import read_csv_records

WindowReaders = Mapping[str, Callable[[], Rows]]  # by the name of the recording

SQLITE_NAME = "hoplite.sqlite"
USEARCH_NAME = "usearch.index"
EXTRA = "hoplite"
POSITIVE_LABEL = 1
TIMES = struct.Struct("<2d")  # start and end of a window or an annotation
MATRIX_SHAPE = struct.Struct("<2I")  # vectors, and bytes of each: a USearch file begins
TABLES = {"windows", "recordings", "deployments", "annotations"}
OLD_TABLE = "hoplite_embeddings"  # of perch-hoplite 0.1
TABLE_QUERY = "SELECT name FROM sqlite_master WHERE sql LIKE 'CREATE TABLE%'"
RECORDING_QUERY = (
    "SELECT r.id, r.filename, d.project || '/' || d.name FROM recordings r "
    "LEFT JOIN deployments d ON d.id = r.deployment_id ORDER BY r.id"
)
WINDOW_QUERY = "SELECT id, recording_id, offsets, '' FROM windows ORDER BY id"
ANNOTATION_QUERY = "SELECT id, recording_id, offsets, label FROM annotations"
POSITIVE_QUERY = f"{ANNOTATION_QUERY} WHERE label_type = {POSITIVE_LABEL} ORDER BY id"
IGNORED_QUERY = (
    f"SELECT count(*) FROM annotations WHERE label_type IS NOT {POSITIVE_LABEL}"
)
SPANS: dict[str, Any] = {
    "row": pl.Int64,
    "path": pl.String,
    "start_s": pl.Float64,
    "end_s": pl.Float64,
    "label": pl.String,
}


def make_windows(
    start_s: FloatArray, end_s: FloatArray, vectors: NDArray[np.floating]
) -> Rows:
    """Return windows as a structured array; `vectors` is (windows, dimension)."""
    dtype = [("start_s", "<f8"), ("end_s", "<f8"), ("vector", "<f4", vectors.shape[1:])]
    rows = np.zeros(len(vectors), dtype)
    rows["start_s"] = start_s
    rows["end_s"] = end_s
    rows["vector"] = vectors
    return rows


def find_hoplite(source: Path) -> Path | None:
    """Return the SQLite file at a path, or in a folder, if there is one; else None."""
    path = source / SQLITE_NAME if source.is_dir() else source
    try:
        with path.open("rb") as stream:
            start = stream.read(16)
    except OSError:
        return None
    if start == b"SQLite format 3\0" or path.suffix == ".sqlite":
        return path
    return None


def read_hoplite(source: Path) -> tuple[WindowReaders, pl.DataFrame, list[str]]:
    """Return readers of windows by recording, labelled spans, and notes."""
    path = find_hoplite(source)
    if path is None:
        raise InputError(
            f"{source}: expected a perch-hoplite database, a folder with {SQLITE_NAME}; got none"
        )
    with _open_database(path) as database:
        _check_tables(path, database)
        recordings = database.execute(RECORDING_QUERY).fetchall()
        window_rows = database.execute(WINDOW_QUERY).fetchall()
        annotation_rows = database.execute(POSITIVE_QUERY).fetchall()
        (ignored,) = database.execute(IGNORED_QUERY).fetchone()

    names = _name_recordings(recordings)
    annotations = _read_spans(path, "annotation", annotation_rows, names)
    windows = _read_spans(path, "window", window_rows, names)
    index = open_usearch(path.with_name(USEARCH_NAME))
    has_vector = pl.Series(index.contains(windows["row"].to_numpy().astype(np.uint64)))
    notes = []
    if ignored:
        notes.append(
            f"{count_text(ignored, 'negative or uncertain annotation')} ignored"
        )
    missing = len(windows) - int(has_vector.sum())
    if missing:
        notes.append(
            f"{count_text(missing, 'window')} without a vector in {USEARCH_NAME}"
        )
    readers = {}
    for part in windows.filter(has_vector).partition_by("path", maintain_order=True):
        readers[part["path"][0]] = partial(_read_vectors, path, index, part)
    return readers, annotations.with_columns(recording="path"), notes


def _check_tables(path: Path, database: sqlite3.Connection) -> None:
    """Raise InputError unless a database has the tables of perch-hoplite 1.0."""
    tables = {str(name) for (name,) in database.execute(TABLE_QUERY)}
    if OLD_TABLE in tables:
        raise InputError(
            f"{path}: a database of perch-hoplite 0.1; migrate it to version 1.0 with "
            "perch-hoplite's notebook 99_migrate_db.ipynb"
        )
    if not tables >= TABLES:
        listed = printable(", ".join(sorted(tables)[:8])) or "none"
        raise InputError(
            f"{path}: expected the tables of perch-hoplite "
            f"({', '.join(sorted(TABLES))}), got {listed}"
        )


def _name_recordings(recordings: Sequence[tuple[int, Any, Any]]) -> dict[int, str]:
    """Return a unique name for each (number, name, deployment), by number.

    Where several have one name, it gets the deployment before it, and if need be the number.
    """
    names = {number: str(name) for number, name, _ in recordings}
    for form in ("{site}/{name}", "{site}/{name}#{number}"):
        counts = Counter(names.values())
        for number, name, site in recordings:
            if counts[names[number]] > 1:
                names[number] = form.format(site=site, name=name, number=number)
    return names


@contextmanager
def _open_database(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database to read, as immutable unless another program has a log beside it."""
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


def _read_spans(
    path: Path, kind: str, rows: Sequence[tuple[Any, ...]], names: Mapping[int, str]
) -> pl.DataFrame:
    """Return (id, recording's id, bytes of times, label) as SPANS; InputError if invalid."""
    spans = []
    for number, recording, offsets, label in rows:
        place = f"{path}: {kind} {number}"
        if recording not in names or not isinstance(number, int):
            raise InputError(
                f"{place}: its recording {recording!r} is not in the database"
            )
        if not isinstance(offsets, bytes) or len(offsets) != TIMES.size:
            raise InputError(
                f"{place}: expected a start and an end in seconds, got {offsets!r:.40}"
            )
        times_s = TIMES.unpack(offsets)
        if not np.isfinite(times_s).all():
            raise InputError(f"{place}: expected finite times, got {times_s}")
        spans.append((number, names[recording], *times_s, str(label)))
    return pl.DataFrame(spans, SPANS, orient="row")


def _read_vectors(path: Path, index: Any, windows: pl.DataFrame) -> Rows:
    """Return the windows of a recording with their vectors, which must be finite."""
    keys = windows["row"].to_numpy()
    # Asked for float32, USearch 2.26 returns zeros for vectors in float16.
    vectors = np.stack(index.get(keys.astype(np.uint64))).astype(np.float32)
    for window in keys[~np.isfinite(vectors).all(axis=1)]:
        raise InputError(
            f"{path}: window {window}: its vector is not finite; remove it"
        )
    start_s, end_s = windows.select("start_s", "end_s").to_numpy().T
    return make_windows(start_s, end_s, vectors)


def open_usearch(path: Path) -> Any:
    """Return a USearch index of float16 or float32; its file is mapped, not loaded.

    USearch has no checksum, and believes the header of a damaged file: with wrong dimensions it
    reads outside the file, which ends the process. So the header must agree with the matrix.
    """
    usearch = import_package("usearch.index", EXTRA)
    with explain_unreadable(path):
        check_regular_file(path)
        with path.open("rb") as file:
            start = file.read(MATRIX_SHAPE.size)
    number_bytes = {usearch.ScalarKind.F16: 2, usearch.ScalarKind.F32: 4}
    try:
        facts = usearch.Index.metadata(str(path))
        kind = facts["kind_scalar"]
        vectors = facts["count_present"] + facts["count_deleted"]
        shape = (vectors, facts["dimensions"] * number_bytes.get(kind, 0))
        if kind in number_bytes and MATRIX_SHAPE.unpack(start) != shape:
            raise ValueError("its header and its vectors do not agree")
        index = None
        if kind in number_bytes:
            # view: USearch checks the size of a file that it maps, but crashes if it loads one.
            index = usearch.Index.restore(str(path), view=True)
    except (OSError, RuntimeError, ValueError, MemoryError, struct.error) as error:
        raise InputError(
            f"{path}: not a complete USearch index ({error_reason(error)}); it is damaged or was "
            "copied in part, so copy or make it again"
        ) from error
    if index is None or index.multi:
        raise InputError(
            f"{path}: expected an index of USearch with one float16 or float32 vector per key"
        )
    return index


Line = tuple[str, Sequence[str]]  # where it is, and its start, end and vector

TEXT_SUFFIX = ".birdnet.embeddings.txt"
TIMED_NAME = re.compile(r"(.+)_(\d+\.\d+)_(\d+\.\d+)")
COLUMNS = ("file_path", "start", "end", "embedding")


def read_analyzer(source: Path) -> WindowReaders:
    """Return readers of the recordings in a file, or in the text files under a folder, by name."""
    if source.suffix.lower() == ".csv":
        return _read_csv_file(source)
    folder = source.parent
    paths = [source]
    if source.is_dir():
        folder = source
        paths = sorted(source.rglob(f"*{TEXT_SUFFIX}"))
    # The files of each recording: one, or one for each window with its times in the name.
    paths_by_name = defaultdict[str, list[Path]](list)
    for path in paths:
        name = _drop_suffix(path.relative_to(folder).as_posix())
        timed = TIMED_NAME.fullmatch(name)
        if timed is not None:
            name = timed[1]
        paths_by_name[name].append(path)
    if not paths_by_name:
        raise InputError(
            f"{source}: expected files that end in {TEXT_SUFFIX}, got none"
        )

    def read_files(paths: Sequence[Path]) -> Rows:
        return _read_windows(_text_lines(paths))

    return {name: partial(read_files, paths) for name, paths in paths_by_name.items()}


def _read_csv_file(path: Path) -> WindowReaders:
    """Return readers of the recordings in a CSV file, which has a row for each window."""
    lines_by_name = defaultdict[str, list[Line]](list)
    for number, row in enumerate(read_csv_records(path, COLUMNS), 1):
        name, *fields = [row[column] for column in COLUMNS]
        lines_by_name[name].append((f"{path}: row {number}", fields))
    return {
        name: partial(_read_windows, lines) for name, lines in lines_by_name.items()
    }


def _drop_suffix(name: str) -> str:
    """Return the name of a text file without suffix; a single one may end in .txt only."""
    return name.removesuffix(TEXT_SUFFIX).removesuffix(".txt")


def _text_lines(paths: Sequence[Path]) -> Iterator[Line]:
    """Yield the place and fields of lines; a file of one window has its times in its name."""
    for path in paths:
        timed = TIMED_NAME.fullmatch(_drop_suffix(path.name))
        with explain_read_errors(path):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            text = line.strip()
            fields = text.split("\t")
            if timed is not None and len(fields) == 1:
                fields = [timed[2], timed[3], text]
            if text:
                yield f"{path}: line {number}", fields


def _read_windows(lines: Iterable[Line]) -> Rows:
    """Read windows from text; InputError unless numbers are finite, and vectors of one length."""
    rows: list[list[float]] = []
    width = 2  # start and end, and the numbers of the vector once there is one
    for place, fields in lines:
        try:
            start, end, vector = fields
            numbers = [float(text) for text in (start, end, *vector.split(","))]
        except ValueError as error:
            raise InputError(
                f"{place}: expected start, end and the numbers of a vector ({error})"
            ) from None
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(np.array(numbers, np.float32)).all()
        if not is_finite:
            raise InputError(f"{place}: expected finite numbers")
        rows.append(numbers)
        width = len(rows[0])
        if len(numbers) != width:
            raise InputError(
                f"{place}: expected {width - 2} numbers as in the first line, "
                f"got {len(numbers) - 2}"
            )
    table = np.array(rows).reshape(len(rows), width)
    return make_windows(table[:, 0], table[:, 1], table[:, 2:].astype(np.float32))
