"""Praat TextGrids, in the long and the short form: labels of tiers become annotations.

Both forms hold the same numbers, quoted texts and flags in the same order; all other words, and
what follows a `!`, are for people. The row of an annotation is the line of its first number.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import partial
from operator import attrgetter
from pathlib import Path

from callshot.corpus.annotations.cells import NUMBER
from callshot.corpus.annotations.rows import AnnotationFile, AnnotationOptions, Extra
from callshot.corpus.annotations.text import quote, read_text
from callshot.corpus.annotations.tiers import (
    INTERVALS,
    POINTS,
    Entry,
    Tier,
    choose_tiers,
)
from callshot.errors import InputError

# The closing quote is optional: a text that never ends is then found at once.
TOKEN = re.compile(
    r'"(?P<text>[^"]*(?:""[^"]*)*)(?P<closed>"?)'
    r"|![^\r\n]*"
    r'|<(?P<flag>[^<>\s"]*)>'
    r'|(?P<number>[^\s"!<]+|<)'
)
MAGIC = re.compile(
    r'\s*File type\s*=\s*"ooTextFile[^"]*"\s*(?:Object class\s*=\s*)?"TextGrid"'
)
LINE_END = re.compile(r"\r\n?|\n")
COUNT = re.compile("[0-9]{1,9}")


class Tokens:
    """The numbers, texts and flags of a file, in order; `line` is that of the last one."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.line = 1
        self._line_ends = [match.end() for match in LINE_END.finditer(text)]
        self._tokens = self._split(text)

    def _split(self, text: str) -> Iterator[tuple[str, str]]:
        for match in TOKEN.finditer(text):
            kind = match.lastgroup or ""
            if kind == "number" and NUMBER.fullmatch(match[0]) is None:
                continue
            self.line = bisect_right(self._line_ends, match.start()) + 1
            if kind == "closed":
                if not match["closed"]:
                    raise self.error("the quote that opens here is never closed")
                yield "text", match["text"].replace('""', '"')
            elif kind:
                yield kind, match[kind]
        self.line = bisect_right(self._line_ends, len(text)) + 1

    def error(self, text: str) -> InputError:
        """Return an error at the line of the last token."""
        return InputError(f"{self.path}: line {self.line}: {text}")

    def next(self, kind: str, description: str) -> str:
        """Return the next token, which must be of this kind."""
        next_kind, value = next(self._tokens, ("end of the file", ""))
        if next_kind != kind:
            token = next_kind
            if value:
                token += f" {quote(value)}"
            raise self.error(f"expected {description}, a {kind}, got the {token}")
        return value

    def next_number(self, description: str) -> float:
        """Return the next token, a number."""
        return float(self.next("number", description))

    def next_count(self, description: str) -> int:
        """Return the next token, a number of tiers or entries."""
        text = self.next("number", description)
        if COUNT.fullmatch(text) is None:
            raise self.error(f"expected {description}, got {quote(text)}")
        return int(text)

    def finish(self) -> None:
        """Raise InputError if there is another token: a count before it was too small."""
        for kind, value in self._tokens:
            raise self.error(
                f"expected the end of the file, got the {kind} {quote(value)}; "
                "a size above is too small"
            )


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise the first lines of a TextGrid."""
    if MAGIC.match(head):
        return "its first lines have ooTextFile and TextGrid"
    return None


def read(annotation_file: AnnotationFile, options: AnnotationOptions) -> None:
    """Read the tiers that hold call types; labels on other tiers become extra cells."""
    text = read_text(annotation_file.path, annotation_file.notes)
    tiers = _parse(Tokens(annotation_file.path, text))
    call_tiers = choose_tiers(annotation_file, tiers, options)
    other_tiers = [tier for tier in tiers if tier not in call_tiers]
    for tier in call_tiers:
        extra: Extra = {}
        if len(call_tiers) > 1:
            extra["tier"] = tier.name
        _add_entries(annotation_file, tier, other_tiers, extra)


def _add_entries(
    annotation_file: AnnotationFile,
    tier: Tier,
    other_tiers: Sequence[Tier],
    extra: Extra,
) -> None:
    """Add the entries of a tier, with the labels on other tiers that overlap them.

    Tiers whose entries overlap each other, which Praat does not write, are left out: they may have
    too many overlaps.
    """
    ordered = []
    for other in other_tiers:
        if tier.is_ordered and other.is_ordered:
            ordered.append(other)
        else:
            annotation_file.notes.append(
                f"tier {quote(other.name)} is left out: entries of one tier overlap each other"
            )
    for entry in tier.entries:
        labels = defaultdict[str, list[str]](list)
        for other in ordered:
            labels[f"tier {other.name}"] += _overlapping_labels(entry, other.entries)
        overlaps: Extra = {
            name: "; ".join(texts) for name, texts in labels.items() if texts
        }
        with annotation_file.rejecting(entry.line):
            annotation_file.add(
                entry.line,
                entry.label,
                entry.start_s,
                entry.end_s,
                extra=extra | overlaps,
            )


def _parse(tokens: Tokens) -> list[Tier]:
    tokens.next("text", "the file type")
    if tokens.next("text", "the object class") != "TextGrid":
        raise tokens.error("expected a TextGrid")
    tokens.next_number("the start of the recording")
    tokens.next_number("the end of the recording")
    if tokens.next("flag", "<exists> or <absent>") != "exists":
        return []
    count = tokens.next_count("the number of tiers")
    tiers = [_parse_tier(tokens) for _ in range(count)]
    tokens.finish()
    return tiers


def _parse_tier(tokens: Tokens) -> Tier:
    kind = tokens.next("text", "the class of a tier")
    if kind not in (INTERVALS, POINTS):
        raise tokens.error(f"expected {INTERVALS} or {POINTS}, got {quote(kind)}")
    name = tokens.next("text", "the name of a tier")
    description = f"tier {quote(name)}"
    tokens.next_number(f"the start of {description}")
    tokens.next_number(f"the end of {description}")
    count = tokens.next_count(f"the number of entries of {description}")
    entries = []
    for index in range(1, count + 1):
        entry = _parse_entry(tokens, kind, f"entry {index} of {description}")
        if kind == POINTS or entry.label.strip():
            entries.append(entry)
    return Tier(kind, name, entries)


def _parse_entry(tokens: Tokens, kind: str, description: str) -> Entry:
    start_s = tokens.next_number(f"the time of {description}")
    line = tokens.line
    end_s = start_s
    if kind == INTERVALS:
        end_s = tokens.next_number(f"the end of {description}")
    label = tokens.next("text", f"the label of {description}")
    return Entry(line, start_s, end_s, label)


def _overlapping_labels(entry: Entry, other_entries: Sequence[Entry]) -> list[str]:
    first = bisect_left(other_entries, True, key=partial(_ends_after, entry.start_s))
    last = bisect_left(other_entries, entry.end_s, key=attrgetter("start_s"))
    labels = [other.label for other in other_entries[first:last]]
    return list(filter(str.strip, labels))


def _ends_after(time_s: float, entry: Entry) -> bool:
    """Return whether an interval ends after a time, or a point does not lie before it."""
    if entry.end_s > entry.start_s:
        return entry.end_s > time_s
    return entry.start_s >= time_s
