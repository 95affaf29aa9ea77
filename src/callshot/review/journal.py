"""The journal of a review: every decision, in a file that only grows (REVIEW/decisions.jsonl).

The first line says what the review is about, every other one is a batch of rows, saved as a whole.
A line is a JSON object whose last value, `chain`, is a checksum of the chain of the line before and
of all bytes before this value, so a line that is damaged, lost or moved is noticed. A line is on
the disk (fsync) before `append` returns, and never changed or removed; to undo is a line too.

A killed process may leave the beginning of a line, which was never reported as saved. Readers leave
it out with a note; the next review moves it to a file of its own. Any other damage is an error.
"""

import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

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
HEAD = {"kind": "callshot review", "version": 1}
DIGITS = 32
CHAIN = b',"chain":"%b"}'
CHAIN_BYTES = len(CHAIN % bytes(DIGITS))
NEWLINE = b"\n"
FLAGS = os.O_RDWR | os.O_APPEND | getattr(os, "O_BINARY", 0)

Change = TypeVar("Change")
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
class Journal:
    """A journal that was read; one made by `open_journal` can be added to, by one thread.

    chain  of the last line
    size   bytes of all whole lines
    torn   what follows them: the beginning of a line that a killed process did not finish
    notes  on such a line
    """

    path: Path
    facts: dict[str, Any] = field(default_factory=dict)
    entries: list[Entry] = field(default_factory=list)
    by_uuid: dict[str, Entry] = field(default_factory=dict)
    chain: bytes = b""
    size: int = 0
    torn: bytes = b""
    notes: list[str] = field(default_factory=list)
    descriptor: int = -1

    def close(self) -> None:
        """Close the file."""
        os.close(self.descriptor)

    def replay(self, apply: Callable[[Entry], Change]) -> list[Change]:
        """Return what `apply` returns for each row; raise InputError if it cannot read one."""
        changes = []
        for entry in self.entries:
            try:
                changes.append(apply(entry))
            except (LookupError, TypeError, ValueError) as error:
                raise InputError(
                    f"{self.path}: row {entry.seq}: cannot be used ({error_reason(error)})"
                ) from None
        return changes

    def append(self, reviewer: str, rows: Sequence[Row]) -> list[Entry]:
        """Add rows as a batch, which undo takes back at once; return them once they are on disk.

        All of them are saved, or none.
        """
        content = {
            "batch": rows[0]["uuid"],
            "reviewer": reviewer,
            "time": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "rows": rows,
        }
        line = self._seal(_format(content))
        self.check_file()
        try:
            rest = memoryview(line + NEWLINE)
            while rest:  # usually once, but a write may be partial
                written = os.write(self.descriptor, rest)
                rest = rest[written:]
            os.fsync(self.descriptor)
        except OSError as error:
            with suppress(OSError):  # otherwise the next opening cuts it off
                os.ftruncate(self.descriptor, self.size)
            raise OutputError(
                f"{self.path}: nothing was saved ({error_reason(error)}); free some disk space or "
                "check the permissions, then decide again"
            ) from error
        known = len(self.entries)
        self._take(line)
        self.check_file()  # again: what was written to a file that is gone is not saved
        return self.entries[known:]

    def check_file(self) -> None:
        """Raise OutputError if another program replaced or changed the file."""
        opened = os.fstat(self.descriptor)
        with suppress(OSError):  # nothing is at its path
            is_same = os.path.samestat(self.path.stat(), opened)
            if is_same and opened.st_size == self.size:
                return
        raise OutputError(
            f"{self.path}: it was removed, replaced or cut by another program, so nothing can be "
            "saved; bring it back if you can, and start the command again; the page keeps "
            "what is not saved until then"
        )

    def _seal(self, beginning: bytes) -> bytes:
        """Return the next line, without its newline, from what comes before its chain."""
        chain = sha256(self.chain + beginning).hexdigest()[:DIGITS]
        return beginning + CHAIN % chain.encode()

    def _is_next(self, line: bytes) -> bool:
        """Return whether a line is whole, and follows the last one: its chain says so."""
        return line == self._seal(line[:-CHAIN_BYTES])

    def _take(self, line: bytes) -> None:
        """Read the next line, of facts or of rows; raise ValueError if it is damaged."""
        if not self._is_next(line):
            raise ValueError("another line")
        content = json.loads(line)
        if self.size == 0:
            has_head = content.items() >= HEAD.items()  # all of it, and more
            if not has_head:
                raise ValueError("another version")
            self.facts = dict(content["facts"])
        else:
            shared: Row = {
                name: str(content[name]) for name in ("batch", "reviewer", "time")
            }
            for row in content["rows"]:
                entry = Entry(seq=len(self.entries) + 1, **shared, **row)
                self.entries.append(entry)
                self.by_uuid[entry.uuid] = entry
        self.chain = line[-DIGITS - 2 : -2]  # the digits before "}
        self.size += len(line) + len(NEWLINE)


def _format(content: Mapping[str, Any]) -> bytes:
    """Return content as JSON without its last brace: the chain follows."""
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    return text.removesuffix("}").encode()


def open_journal(folder: Path, facts: Mapping[str, Any]) -> Journal:
    """Open the journal of a review, or make one about `facts`; the caller holds its lock.

    The beginning of a line that a killed process left is moved to the file TORN first.
    """
    path = folder / JOURNAL
    reason = why_not_writable(folder)
    if reason:
        raise OutputError(
            f"{path}: cannot be written ({reason}); choose another folder (--out)"
        )
    descriptor = -1
    try:
        if not path.exists():
            first = Journal(path)._seal(_format({**HEAD, "facts": facts}))
            write_atomic(path, first + NEWLINE)
        journal = read_journal(folder)
        descriptor = os.open(path, FLAGS)
        if journal.torn:
            with (folder / TORN).open("ab") as stream:
                stream.write(journal.torn)
                stream.flush()
                os.fsync(stream.fileno())
            os.ftruncate(descriptor, journal.size)
            os.fsync(descriptor)
            journal.notes = [
                f"{note}, and was moved to {TORN}" for note in journal.notes
            ]
    except OSError as error:
        if descriptor >= 0:
            os.close(descriptor)
        raise OutputError(
            f"{path}: cannot be opened ({error_reason(error)}); move it away, or choose another "
            "folder (--out)"
        ) from error
    journal.descriptor = descriptor
    return journal


def is_review(path: Path) -> bool:
    """Return whether a folder has the journal of a review."""
    return (path / JOURNAL).is_file()


def read_journal(folder: Path) -> Journal:
    """Return the journal of a review without an unfinished last line; nothing is written."""
    path = folder / JOURNAL
    if not path.is_file():
        raise InputError(
            f"{folder}: expected the folder of a review; there is no {JOURNAL} in it"
        )
    with explain_unreadable(path):
        *lines, rest = path.read_bytes().split(NEWLINE)
    journal = Journal(path)
    number = 1
    try:
        for line in lines or [b""]:  # a file without lines is damaged
            journal._take(line)
            number += 1
        # A killed process leaves a part of a line. If it is a whole line and another byte, this
        # byte was its newline: that is damage.
        if journal._is_next(rest[:-1]):
            raise ValueError
    except (LookupError, TypeError, ValueError, RecursionError):
        raise InputError(
            f"{path}: line {number}: damaged, a line before it was lost, or not the file of a "
            "review; bring back a copy of it, or start a new review in another folder (--out)"
        ) from None
    if rest:
        journal.torn = rest
        journal.notes.append(
            f"{path}: the last line is not complete: the review was stopped while it was written; "
            "it is left out"
        )
    return journal
