"""Every decision of a review, in a SQLite file that only grows: REVIEW/review.sqlite.

A row is never changed or removed; to undo is a row too. Rows are on the disk (WAL, synchronous
FULL) before `append` returns, all rows of a batch or none. A row with a uuid that is there already
is not added again, so a page that got no answer may ask again.
"""

import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from callshot.errors import InputError, OutputError
from callshot.files import error_reason, why_not_writable

JOURNAL = "review.sqlite"
APPLICATION = 0x63735256
VERSION = 1
SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL);
CREATE TABLE journal (
    seq INTEGER PRIMARY KEY,
    uuid TEXT UNIQUE NOT NULL,
    batch TEXT NOT NULL,
    reviewer TEXT NOT NULL,
    time TEXT NOT NULL,
    action TEXT NOT NULL,
    body TEXT NOT NULL
);
CREATE TRIGGER no_update BEFORE UPDATE ON journal
BEGIN SELECT RAISE(ABORT, 'rows of a journal are never changed'); END;
CREATE TRIGGER no_delete BEFORE DELETE ON journal
BEGIN SELECT RAISE(ABORT, 'rows of a journal are never removed'); END;
"""
COLUMNS = "seq, uuid, batch, reviewer, time, action, body"
MOVE_AWAY = "move it away, or choose another folder (--out)"


@dataclass(frozen=True)
class Entry:
    """A row of the journal: what a reviewer did, and when (UTC)."""

    seq: int
    uuid: str
    batch: str
    reviewer: str
    time: str
    action: str
    body: Mapping[str, Any]


@dataclass(frozen=True)
class NewEntry:
    """A row to be added."""

    uuid: str
    action: str
    body: Mapping[str, Any]


class Journal:
    """An open journal, for one thread at a time; made by `open_journal`."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self._connection = connection
        self._files = _identify(path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def facts(self) -> dict[str, Any]:
        """Return what the review is about."""
        with explain_damage(self.path):
            rows = self._connection.execute("SELECT name, value FROM facts").fetchall()
            return {name: json.loads(value) for name, value in rows}

    def entries(self) -> list[Entry]:
        """Return all rows, in order."""
        query = f"SELECT {COLUMNS} FROM journal ORDER BY seq"
        with explain_damage(self.path):
            return [_make_entry(row) for row in self._connection.execute(query)]

    def find(self, uuids: Sequence[str]) -> dict[str, Entry]:
        """Return those of some rows that are there, by their uuid."""
        query = f"SELECT {COLUMNS} FROM journal WHERE uuid = ?"
        entries = {}
        self._check_files()
        with self._explain_failure():
            for uuid in uuids:
                for row in self._connection.execute(query, (uuid,)):
                    entries[uuid] = _make_entry(row)
        return entries

    def append(
        self, batch: str, reviewer: str, entries: Sequence[NewEntry]
    ) -> list[Entry]:
        """Add rows, all of them or none, and bring them to the disk; return them."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        added = []
        command = (
            "INSERT INTO journal (uuid, batch, reviewer, time, action, body) "
            "VALUES (?, ?, ?, ?, ?, ?)"
        )
        self._check_files()
        with self._transaction():
            for request in entries:
                body = json.dumps(request.body, sort_keys=True)
                values = (request.uuid, batch, reviewer, time, request.action, body)
                seq = self._connection.execute(command, values).lastrowid
                assert seq is not None  # a row was inserted
                entry = Entry(seq, *values[:-1], body=request.body)
                added.append(entry)
        self._check_files()
        return added

    def _check_files(self) -> None:
        """Raise OutputError if the file is another one, or cut: SQLite would write to nowhere."""
        now = _identify(self.path)
        for name, (number, size) in self._files.items():
            is_journal = name == self.path.name
            inode, found_size = now.get(name, (None, 0))
            if inode != number or (is_journal and found_size < size):
                raise OutputError(
                    f"{self.path}: {name} was removed, replaced or cut by another program, so "
                    "nothing can be saved; bring it back if you can, and start callshot review "
                    "again; the page keeps your decisions until then"
                )
        self._files = now

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Commit a block, or nothing of it; OutputError if the disk does not take it."""
        with self._explain_failure():
            try:
                self._connection.execute("BEGIN IMMEDIATE")
                yield
                self._connection.execute("COMMIT")
            except sqlite3.Error:
                if self._connection.in_transaction:
                    self._connection.execute("ROLLBACK")
                raise

    @contextmanager
    def _explain_failure(self) -> Iterator[None]:
        """Turn errors of SQLite into one that says that nothing was saved."""
        try:
            yield
        except (sqlite3.Error, ValueError) as error:
            raise OutputError(
                f"{self.path}: nothing was saved ({error_reason(error)}); free some disk space or "
                "check the permissions, then decide again"
            ) from error


def open_journal(folder: Path, facts: Mapping[str, Any]) -> Journal:
    """Open the journal of a review, or make one about `facts`.

    Raises
    ------
    InputError
        If the file is damaged, or no journal of a review.
    OutputError
        If it cannot be written.
    """
    path = folder / JOURNAL
    reason = why_not_writable(folder)
    if reason:
        raise OutputError(
            f"{path}: cannot be written ({reason}); choose another folder (--out)"
        )
    is_new = not path.exists() or path.stat().st_size == 0
    connection = _connect(path)
    try:
        with explain_damage(path):
            if is_new:
                _make_tables(connection, facts)
            _check(path, connection)
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
            connection.execute("PRAGMA synchronous = FULL")
    except BaseException:
        connection.close()
        raise
    return Journal(path, connection)


def read_journal(folder: Path) -> tuple[dict[str, Any], list[Entry]]:
    """Return the facts and all rows of a review."""
    path = folder / JOURNAL
    if not path.is_file():
        raise InputError(
            f"{folder}: expected the folder of a review; there is no {JOURNAL} in it"
        )
    with closing(_connect(path)) as connection:
        with explain_damage(path):
            _check(path, connection)
        journal = Journal(path, connection)
        return journal.facts(), journal.entries()


def is_review(path: Path) -> bool:
    """Return whether a folder has the journal of a review."""
    return (path / JOURNAL).is_file()


def _connect(path: Path) -> sqlite3.Connection:
    try:
        return sqlite3.connect(
            path, timeout=10.0, isolation_level=None, check_same_thread=False
        )
    except sqlite3.Error as error:
        raise OutputError(
            f"{path}: cannot be opened ({error_reason(error)}); {MOVE_AWAY}"
        ) from error


def _make_tables(connection: sqlite3.Connection, facts: Mapping[str, Any]) -> None:
    """Make the tables, all of them or none: a killed process leaves an empty file."""
    rows = "".join(
        f"INSERT INTO facts VALUES ({_quote(name)}, {_quote(json.dumps(value))});\n"
        for name, value in facts.items()
    )
    connection.executescript(
        f"BEGIN IMMEDIATE;\n{SCHEMA}{rows}PRAGMA application_id = {APPLICATION};\n"
        f"PRAGMA user_version = {VERSION};\nCOMMIT;"
    )


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _check(path: Path, connection: sqlite3.Connection) -> None:
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application != APPLICATION:
        raise InputError(f"{path}: not the journal of a review; {MOVE_AWAY}")
    version = connection.execute("PRAGMA user_version").fetchone()[0]
    if version != VERSION:
        raise InputError(
            f"{path}: expected a journal of version {VERSION}, got {version}; use a newer callshot"
        )
    state = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if state != "ok":
        raise InputError(f"{path}: damaged ({error_reason(ValueError(state))})")


@contextmanager
def explain_damage(path: Path) -> Iterator[None]:
    """Turn errors of SQLite and of JSON into one line."""
    try:
        yield
    except sqlite3.OperationalError as error:
        raise OutputError(
            f"{path}: cannot be used ({error_reason(error)}); {MOVE_AWAY}"
        ) from error
    except (sqlite3.Error, ValueError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: damaged, or not the journal of a review ({error_reason(error)}); "
            f"{MOVE_AWAY}"
        ) from error


def _identify(path: Path) -> dict[str, tuple[tuple[int, int], int]]:
    """Return which files a journal has: device and number of each, and its size."""
    files = {}
    for name in (path.name, f"{path.name}-wal"):
        try:
            status = path.with_name(name).stat()
        except OSError:
            continue
        files[name] = ((status.st_dev, status.st_ino), status.st_size)
    return files


def _make_entry(row: tuple[Any, ...]) -> Entry:
    *columns, body = row
    values: list[Any] = [*columns, json.loads(body)]
    return Entry(*values)
