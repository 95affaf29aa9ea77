"""Lines of a journal: JSON objects, each with a checksum of itself and of all lines before it.

The first line says what the review is about, every other one is a batch of rows: all of them are
saved, or none. The last value of a line is its `chain`, a checksum of the chain of the line before
and of all bytes before this value. So a line that is damaged, lost or moved is noticed.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any

KIND = "callshot review"
VERSION = 1
DIGITS = 32
CHAIN = b',"chain":"'
CLOSE = b'"}'
NEWLINE = b"\n"


class LineError(ValueError):
    """A line that is not as it was written."""


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


@dataclass
class JournalContent:
    """What a journal says.

    chain    that of the last line
    size     the bytes of all whole lines
    torn     what follows them: the beginning of a line that a killed process did not finish
    is_open  whether the newline of the last line is missing
    """

    facts: dict[str, Any]
    chain: str
    size: int
    entries: list[Entry] = field(default_factory=list)
    torn: bytes = b""
    is_open: bool = False


def seal_facts(facts: Mapping[str, Any]) -> bytes:
    """Return the first line of a journal."""
    content = {"kind": KIND, "version": VERSION, "facts": facts}
    line, _ = _seal(content, "")
    return line


def seal_batch(
    batch: str, reviewer: str, time: str, rows: list[NewEntry], previous: str
) -> tuple[bytes, str]:
    """Return the line of some rows, and its chain; `previous` is that of the line before."""
    content = {
        "batch": batch,
        "reviewer": reviewer,
        "time": time,
        "rows": [
            {"uuid": row.uuid, "action": row.action, "body": row.body} for row in rows
        ],
    }
    return _seal(content, previous)


def _seal(content: Mapping[str, Any], previous: str) -> tuple[bytes, str]:
    text = json.dumps(content, separators=(",", ":"), allow_nan=False)
    beginning = text.removesuffix("}").encode()
    chain = _hash(previous, beginning)
    return beginning + CHAIN + chain.encode() + CLOSE + NEWLINE, chain


def _hash(previous: str, beginning: bytes) -> str:
    return sha256(previous.encode() + beginning).hexdigest()[:DIGITS]


def _unseal(line: bytes, previous: str) -> tuple[dict[str, Any], str]:
    """Return the content of a line without its newline, and its chain."""
    length = len(CHAIN) + DIGITS + len(CLOSE)
    beginning = line[:-length]
    chain = _hash(previous, beginning)
    if line[-length:] != CHAIN + chain.encode() + CLOSE:
        raise LineError("damaged, or a line before it was lost")
    try:
        content = json.loads(beginning + b"}")
    except (ValueError, RecursionError):
        raise LineError("expected JSON") from None
    if not isinstance(content, dict):
        raise LineError("expected a JSON object")
    return content, chain


def read_lines(content: bytes) -> JournalContent:
    """Return what the bytes of a journal say; raise LineError if a line is damaged."""
    *lines, rest = content.split(NEWLINE)
    if not lines:
        raise LineError("line 1: expected the facts of a review")
    journal = _read_first(lines[0])
    for number, line in enumerate(lines[1:], start=2):
        _add_line(journal, line, number)
    _add_rest(journal, rest, len(lines) + 1)
    return journal


def _read_first(line: bytes) -> JournalContent:
    try:
        content, chain = _unseal(line, "")
    except LineError as error:
        raise LineError(f"line 1: {error}, or not the file of a review") from None
    if content.get("kind") != KIND or not isinstance(content.get("facts"), dict):
        raise LineError("line 1: expected the facts of a review")
    version = content.get("version")
    if version != VERSION:
        raise LineError(
            f"line 1: expected version {VERSION}, got {version}; use a newer callshot"
        )
    return JournalContent(content["facts"], chain, len(line) + 1)


def _add_line(journal: JournalContent, line: bytes, number: int) -> None:
    try:
        content, chain = _unseal(line, journal.chain)
        rows = content["rows"]
        about = [str(content[name]) for name in ("batch", "reviewer", "time")]
        batch, reviewer, time = about
        first = len(journal.entries) + 1
        entries = [
            Entry(
                seq=seq,
                uuid=row["uuid"],
                batch=batch,
                reviewer=reviewer,
                time=time,
                action=row["action"],
                body=row["body"],
            )
            for seq, row in enumerate(rows, start=first)
        ]
    except LineError as error:
        raise LineError(f"line {number}: {error}") from None
    except (LookupError, TypeError):
        raise LineError(f"line {number}: expected a batch of decisions") from None
    journal.entries += entries
    journal.chain = chain
    journal.size += len(line) + 1


def _add_rest(journal: JournalContent, rest: bytes, number: int) -> None:
    """Take what has no newline at its end: nothing, a whole line, or the beginning of one."""
    if not rest:
        return
    if _is_sealed(rest, journal.chain):
        _add_line(journal, rest, number)
        journal.size -= 1
        journal.is_open = True
    elif _is_sealed(rest[:-1], journal.chain):
        # A killed process writes nothing behind a whole line: this was its newline.
        raise LineError(f"line {number}: its last byte is damaged")
    else:
        journal.torn = rest


def _is_sealed(line: bytes, previous: str) -> bool:
    try:
        _unseal(line, previous)
    except LineError:
        return False
    return True
