"""The journal of a review: every decision, in a file that only grows (REVIEW/decisions.jsonl).

The first line says what the review is about, every other one is a batch of rows: all of them are
saved, or none. A line is a JSON object whose last value is its `chain`, a checksum of the chain of
the line before and of all bytes before this value. So a line that is damaged, lost or moved is
noticed.

A line is never changed or removed; to undo is a line too. It is on the disk (fsync) before `append`
returns. A row with a uuid that is there already is not added again, so a page that got no answer
may ask again.

A process that is killed while it writes leaves the beginning of a line, which nobody was told is
saved. Readers leave it out with a note; the next review moves it to a file of its own. Any other
damage is an error that names the line.
"""

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

from callshot.errors import InputError, OutputError
from callshot.files import (
    DECISIONS,
    error_reason,
    explain_unreadable,
    why_not_writable,
    write_atomic,
)

JOURNAL = DECISIONS
TORN = f"{JOURNAL}.torn"  # what was cut off
KIND = "callshot review"
VERSION = 1
DIGITS = 32
CHAIN = b',"chain":"'
CLOSE = b'"}'
NEWLINE = b"\n"
FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)

Row = dict[str, Any]
"""A row to be added: `uuid`, `action` and `body`."""


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


@dataclass
class JournalContent:
    """What a journal says.

    chain    that of the last line
    size     the bytes of all whole lines
    torn     what follows them: the beginning of a line that a killed process did not finish
    is_open  whether the newline of the last line is missing
    """

    facts: dict[str, Any] = field(default_factory=dict)
    chain: str = ""
    size: int = 0
    entries: list[Entry] = field(default_factory=list)
    torn: bytes = b""
    is_open: bool = False


class LineError(ValueError):
    """A line that is not as it was written."""


class Journal:
    """An open journal, for one thread at a time; made by `open_journal`.

    `notes` say what was repaired when it was opened.
    """

    def __init__(self, path: Path, descriptor: int, content: JournalContent) -> None:
        self.path = path
        self.content = content
        self.notes: list[str] = []
        self._descriptor = descriptor
        self._by_uuid = {entry.uuid: entry for entry in content.entries}

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def find(self, uuids: Sequence[str]) -> dict[str, Entry]:
        """Return those of some rows that are there, by their uuid."""
        self._check_file()
        return {uuid: self._by_uuid[uuid] for uuid in uuids if uuid in self._by_uuid}

    def append(self, batch: str, reviewer: str, rows: Sequence[Row]) -> list[Entry]:
        """Add rows, all of them or none, and bring them to the disk; return them."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        content = {"batch": batch, "reviewer": reviewer, "time": time, "rows": rows}
        line, chain = _seal(content, self.content.chain)
        self._check_file()
        self._write(line)
        added = _make_entries(content, len(self.content.entries))
        self.content.entries += added
        self.content.chain = chain
        self._by_uuid |= {entry.uuid: entry for entry in added}
        return added

    def repair(self) -> None:
        """Cut off what a killed process left of a line, and end the last line."""
        try:
            if self.content.torn:
                side_file = _free_path(self.path.with_name(TORN))
                write_atomic(side_file, self.content.torn)
                os.ftruncate(self._descriptor, self.content.size)
                os.fsync(self._descriptor)
                self.content.torn = b""
                self.notes.append(describe_torn(self.path, side_file))
        except OSError as error:
            raise _explain(self.path, error) from error
        if self.content.is_open:
            self._write(NEWLINE)
            self.content.is_open = False

    def _write(self, line: bytes) -> None:
        """Bring a line to the disk, or nothing of it."""
        try:
            rest = memoryview(line)
            while rest:  # usually once
                written = os.write(self._descriptor, rest)
                rest = rest[written:]
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):  # otherwise the next opening cuts it off
                os.ftruncate(self._descriptor, self.content.size)
            raise _explain(self.path, error) from error
        self.content.size += len(line)
        self._check_file()

    def _check_file(self) -> None:
        """Raise OutputError if another program replaced or changed the file."""
        opened = os.fstat(self._descriptor)
        try:
            is_same = os.path.samestat(self.path.stat(), opened)
        except OSError:
            is_same = False
        if is_same and opened.st_size == self.content.size:
            return
        raise OutputError(
            f"{self.path}: it was removed, replaced or cut by another program, so nothing can be "
            "saved; bring it back if you can, and start callshot review again; the page keeps "
            "your decisions until then"
        )


def open_journal(folder: Path, facts: Mapping[str, Any]) -> Journal:
    """Open the journal of a review, or make one about `facts`; the caller holds its lock.

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
    try:
        if not path.exists():
            first = {"kind": KIND, "version": VERSION, "facts": facts}
            write_atomic(path, _seal(first, "")[0])
        descriptor = os.open(path, FLAGS)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be opened ({error_reason(error)}); move it away, or choose another "
            "folder (--out)"
        ) from error
    try:
        journal = Journal(path, descriptor, read_journal(folder))
        journal.repair()
    except BaseException:
        os.close(descriptor)
        raise
    return journal


def is_review(path: Path) -> bool:
    """Return whether a folder has the journal of a review."""
    return (path / JOURNAL).is_file()


def read_journal(folder: Path) -> JournalContent:
    """Return the facts and all rows of a review; nothing is written."""
    path = folder / JOURNAL
    if not path.is_file():
        raise InputError(
            f"{folder}: expected the folder of a review; there is no {JOURNAL} in it"
        )
    with explain_unreadable(path):
        *lines, rest = path.read_bytes().split(NEWLINE)
    journal = JournalContent()
    number = 1
    try:
        if not lines:
            raise LineError("expected the facts of a review")
        _read_first(journal, lines[0])
        for number, line in enumerate(lines[1:], start=2):  # noqa: B007
            _read_batch(journal, line)
        number = len(lines) + 1
        _read_rest(journal, rest)
    except LineError as error:
        raise InputError(
            f"{path}: line {number}: {error}; bring back a copy of it, or start a new review in "
            "another folder (--out)"
        ) from None
    return journal


def _read_first(journal: JournalContent, line: bytes) -> None:
    content = _unseal(journal, line)
    if content.get("kind") != KIND or not isinstance(content.get("facts"), dict):
        raise LineError("expected the facts of a review")
    version = content.get("version")
    if version != VERSION:
        raise LineError(
            f"expected version {VERSION}, got {version}; use a newer callshot"
        )
    journal.facts = content["facts"]


def _read_batch(journal: JournalContent, line: bytes) -> None:
    content = _unseal(journal, line)
    try:
        journal.entries += _make_entries(content, len(journal.entries))
    except (LookupError, TypeError):
        raise LineError("expected a batch of decisions") from None


def _read_rest(journal: JournalContent, rest: bytes) -> None:
    """Take what has no newline at its end: nothing, a whole line, or the beginning of one."""
    if not rest:
        return
    if _is_whole(journal, rest):
        _read_batch(journal, rest)
        journal.size -= 1
        journal.is_open = True
    elif _is_whole(journal, rest[:-1]):
        # A killed process writes nothing behind a whole line: this was its newline.
        raise LineError("its last byte is damaged")
    else:
        journal.torn = rest


def _make_entries(content: Mapping[str, Any], count: int) -> list[Entry]:
    """Return the rows of a batch that follows `count` rows."""
    about: Row = {name: str(content[name]) for name in ("batch", "reviewer", "time")}
    rows = enumerate(content["rows"], start=count + 1)
    return [Entry(seq=seq, **about, **row) for seq, row in rows]


def _seal(content: Mapping[str, Any], previous: str) -> tuple[bytes, str]:
    """Return a line and its chain; `previous` is that of the line before."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    beginning = text.removesuffix("}").encode()
    chain = _hash(previous, beginning)
    return beginning + CHAIN + chain.encode() + CLOSE + NEWLINE, chain


def _hash(previous: str, beginning: bytes) -> str:
    return sha256(previous.encode() + beginning).hexdigest()[:DIGITS]


def _split_chain(line: bytes) -> tuple[bytes, bytes]:
    length = len(CHAIN) + DIGITS + len(CLOSE)
    return line[:-length], line[-length:]


def _is_whole(journal: JournalContent, line: bytes) -> bool:
    """Return whether a line ends with the chain that must follow that of a journal."""
    beginning, end = _split_chain(line)
    chain = _hash(journal.chain, beginning)
    return end == CHAIN + chain.encode() + CLOSE


def _unseal(journal: JournalContent, line: bytes) -> dict[str, Any]:
    """Return the content of the next line, without its newline; the journal takes its chain."""
    if not _is_whole(journal, line):
        raise LineError(
            "damaged, a line before it was lost, or not the file of a review"
        )
    beginning, _ = _split_chain(line)
    try:
        content = json.loads(beginning + b"}")
    except (ValueError, RecursionError):
        raise LineError("expected JSON") from None
    if not isinstance(content, dict):
        raise LineError("expected a JSON object")
    journal.chain = _hash(journal.chain, beginning)
    journal.size += len(line) + 1
    return content


def describe_torn(path: Path, side_file: Path | None = None) -> str:
    """Return a note about a line that was not finished."""
    text = f"{path}: the last line is not complete: the review was stopped while it was written"
    if side_file is None:
        return f"{text}; it is left out"
    return f"{text}; it was moved to {side_file.name}"


def _explain(path: Path, error: OSError) -> OutputError:
    return OutputError(
        f"{path}: nothing was saved ({error_reason(error)}); free some disk space or "
        "check the permissions, then decide again"
    )


def _free_path(path: Path) -> Path:
    """Return a path, or the first with a number that is not taken."""
    if not path.exists():
        return path
    names = (path.with_name(f"{path.name}-{number}") for number in count(2))
    return next(name for name in names if not name.exists())
