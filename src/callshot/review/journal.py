"""Every decision of a review, in a file that only grows: REVIEW/decisions.jsonl.

A line is never changed or removed; to undo is a line too. A line is on the disk (fsync) before
`append` returns, with all rows of a batch. A row with a uuid that is there already is not added
again, so a page that got no answer may ask again.

A process that is killed while it writes leaves the beginning of a line, which nobody was told is
saved. Readers leave it out with a note; the next review moves it to a file of its own. Any other
damage is an error that names the line.
"""

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
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
from callshot.review.journal_lines import (
    NEWLINE,
    Entry,
    JournalContent,
    LineError,
    NewEntry,
    read_lines,
    seal_batch,
    seal_facts,
)

JOURNAL = DECISIONS
TORN = f"{JOURNAL}.torn"  # what was cut off
MOVE_AWAY = "move it away, or choose another folder (--out)"
BRING_BACK = "bring back a copy of it, or start a new review in another folder (--out)"
FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)


class Journal:
    """An open journal, for one thread at a time; made by `open_journal`.

    `notes` say what was repaired when it was opened.
    """

    def __init__(self, path: Path, descriptor: int, content: JournalContent) -> None:
        self.path = path
        self.notes: list[str] = []
        self._descriptor = descriptor
        self._content = content
        self._by_uuid = {entry.uuid: entry for entry in content.entries}

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def facts(self) -> dict[str, Any]:
        """Return what the review is about."""
        return dict(self._content.facts)

    def entries(self) -> list[Entry]:
        """Return all rows, in order."""
        return list(self._content.entries)

    def find(self, uuids: Sequence[str]) -> dict[str, Entry]:
        """Return those of some rows that are there, by their uuid."""
        self._check_file()
        return {uuid: self._by_uuid[uuid] for uuid in uuids if uuid in self._by_uuid}

    def append(
        self, batch: str, reviewer: str, entries: Sequence[NewEntry]
    ) -> list[Entry]:
        """Add rows, all of them or none, and bring them to the disk; return them."""
        time = datetime.now(UTC).isoformat(timespec="milliseconds")
        previous = self._content.chain
        line, chain = seal_batch(batch, reviewer, time, list(entries), previous)
        self._check_file()
        self._write(line)
        first = len(self._content.entries) + 1
        added = [
            Entry(seq, row.uuid, batch, reviewer, time, row.action, row.body)
            for seq, row in enumerate(entries, start=first)
        ]
        self._content.entries += added
        self._content.chain = chain
        self._by_uuid |= {entry.uuid: entry for entry in added}
        return added

    def repair(self) -> None:
        """Cut off what a killed process left of a line, and end the last line."""
        torn = self._content.torn
        try:
            if torn:
                side_file = _free_path(self.path.with_name(TORN))
                write_atomic(side_file, torn)
                os.ftruncate(self._descriptor, self._content.size)
                os.fsync(self._descriptor)
                self._content.torn = b""
                self.notes.append(describe_torn(self.path, side_file))
        except OSError as error:
            raise _explain(self.path, error) from error
        if self._content.is_open:
            self._write(NEWLINE)
            self._content.is_open = False

    def _write(self, line: bytes) -> None:
        """Bring a line to the disk, or nothing of it."""
        try:
            _write_all(self._descriptor, line)
            os.fsync(self._descriptor)
        except OSError as error:
            with suppress(OSError):  # otherwise the next opening cuts it off
                os.ftruncate(self._descriptor, self._content.size)
            raise _explain(self.path, error) from error
        self._content.size += len(line)
        self._check_file()

    def _check_file(self) -> None:
        """Raise OutputError if another program replaced or changed the file."""
        opened = os.fstat(self._descriptor)
        try:
            found = self.path.stat()
            is_same = (found.st_dev, found.st_ino) == (opened.st_dev, opened.st_ino)
        except OSError:
            is_same = False
        if is_same and opened.st_size == self._content.size:
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
            write_atomic(path, seal_facts(facts))
        descriptor = os.open(path, FLAGS)
    except OSError as error:
        raise OutputError(
            f"{path}: cannot be opened ({error_reason(error)}); {MOVE_AWAY}"
        ) from error
    try:
        journal = Journal(path, descriptor, _read(path))
        journal.repair()
    except BaseException:
        os.close(descriptor)
        raise
    return journal


def read_journal(folder: Path) -> JournalContent:
    """Return the facts and all rows of a review; nothing is written."""
    path = folder / JOURNAL
    if not path.is_file():
        raise InputError(
            f"{folder}: expected the folder of a review; there is no {JOURNAL} in it"
        )
    return _read(path)


def is_review(path: Path) -> bool:
    """Return whether a folder has the journal of a review."""
    return (path / JOURNAL).is_file()


def describe_torn(path: Path, side_file: Path | None = None) -> str:
    """Return a note about a line that was not finished."""
    text = f"{path}: the last line is not complete: the review was stopped while it was written"
    if side_file is None:
        return f"{text}; it is left out"
    return f"{text}; it was moved to {side_file.name}"


def _read(path: Path) -> JournalContent:
    with explain_unreadable(path):
        content = path.read_bytes()
    try:
        return read_lines(content)
    except LineError as error:
        raise InputError(f"{path}: {error}; {BRING_BACK}") from None


def _write_all(descriptor: int, content: bytes) -> None:
    """Write everything; usually that is one call."""
    rest = memoryview(content)
    while rest:
        written = os.write(descriptor, rest)
        rest = rest[written:]


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
