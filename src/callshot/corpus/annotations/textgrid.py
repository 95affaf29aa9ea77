"""Praat TextGrids, in the long and the short form: labels of tiers become annotations.

Both forms hold the same numbers, quoted texts and flags in the same order; all other words, and
what follows a `!`, are for people. The row of an annotation is the line of its first number.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from callshot.corpus.annotations.rows import (
    NUMBER,
    AnnotationFile,
    AnnotationOptions,
    Format,
    read_text,
)
from callshot.errors import (
    InputError,
    OptionError,
    count_text,
    quote,
    quote_names,
    suggest,
)
from callshot.spans import FloatArray

INTERVALS = "IntervalTier"
POINTS = "TextTier"
LISTED_LABELS = 3
MAX_OVERLAPS = 100  # of an annotation and the labels on one other tier
# What the names of tiers with call types contain, the clearest first, and those of others.
CALL_NAMES = (r"call\W*type", "call|vocali[sz]ation", "type|label|species|annotation")
OTHER_NAMES = re.compile(
    r"caller|individual|name|sex|age|context|behavi(?:our|or)|note|comment|quality|noise|number"
    r"|count|speaker|observer|\b(?:id|no|nr)\b",
    re.IGNORECASE,
)
# The closing quote is optional: a text that never ends is then found at once.
TOKEN = re.compile(
    r'"(?P<text>[^"]*(?:""[^"]*)*)(?P<closed>"?)'
    r"|![^\r\n]*"
    r'|<(?P<flag>[^<>\s"]*)>'
    r'|(?P<word>[^\s"!<]+|<)'
)
MAGIC = re.compile(
    r'\s*File type\s*=\s*"ooTextFile[^"]*"\s*(?:Object class\s*=\s*)?"TextGrid"'
)
LINE_END = re.compile(r"\r\n?|\n")
COUNT = re.compile("[0-9]{1,9}")


class Entry(NamedTuple):
    """A labelled interval or a point, whose end is its start; `line` is where it is in the file."""

    line: int
    start_s: float
    end_s: float
    label: str


@dataclass(frozen=True, eq=False)
class Tier:
    """A tier with its points or its labelled intervals; intervals without a label are gaps."""

    kind: str
    name: str
    entries: list[Entry]

    @cached_property
    def times_s(self) -> tuple[FloatArray, FloatArray]:
        """The starts and the ends of all entries; kept, so used only when all of these are read."""
        starts_s = np.array([entry.start_s for entry in self.entries], np.float64)
        ends_s = np.array([entry.end_s for entry in self.entries], np.float64)
        # A point ends just after its start, so that it overlaps what starts there.
        return starts_s, np.maximum(ends_s, np.nextafter(starts_s, np.inf))

    def find_labels(self, start_s: float, end_s: float) -> list[str]:
        """Return the labels of up to 100 entries that overlap a span, without blank ones."""
        starts_s, ends_s = self.times_s
        is_overlapping = (starts_s < end_s) & (ends_s > start_s)
        rows = np.flatnonzero(is_overlapping)[:MAX_OVERLAPS]
        labels = [self.entries[row].label for row in rows]
        return [label for label in labels if label.strip()]


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise the first lines of a TextGrid."""
    if MAGIC.match(head):
        return "its first lines have ooTextFile and TextGrid"
    return None


def read(file: AnnotationFile) -> None:
    """Read the tiers of call types; overlapping labels on each other tier become an extra cell."""
    text = read_text(file.path, file.notes)
    tiers = _parse(file.path, text)
    call_tiers, reason = _choose_tiers(file, tiers)
    others = [tier for tier in tiers if tier not in call_tiers]
    chosen = [tier.name for tier in call_tiers]
    note = f"tiers read: {quote_names(chosen)}{reason}"
    if reason and others:
        names = [tier.name for tier in others]
        note += f"; not {quote_names(names)} (--tiers chooses others)"
    file.notes.append(note)
    for tier in call_tiers:
        for line, start_s, end_s, label in tier.entries:
            labels = defaultdict[str, list[str]](list)  # of tiers of one name, together
            for other in others:
                labels[f"tier {other.name}"] += other.find_labels(start_s, end_s)
            extra = {}
            if len(call_tiers) > 1:
                extra["tier"] = tier.name
            for name, texts in labels.items():
                if texts:
                    extra[name] = "; ".join(texts)
            with file.rejecting(line):
                file.add(line, label, start_s, end_s, extra)


class TokenReader:
    """Takes texts, numbers and flags one by one; `line` is where the last one was."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self.text = text
        self.line_ends = [match.end() for match in LINE_END.finditer(text)]
        self.line = 1
        self.tokens = self._split()

    def error(self, reason: str) -> InputError:
        """Return an error at the current line."""
        return InputError(f"{self.path}: line {self.line}: {reason}")

    def _split(self) -> Iterator[tuple[str, str]]:
        """Yield kind and value of each token, and at last the kind `end of the file`."""
        for match in TOKEN.finditer(self.text):
            # The last group with a part: "closed" of a quoted text, none of a comment.
            kind = match.lastgroup or ""
            self.line = bisect_right(self.line_ends, match.start()) + 1
            if kind == "closed" and not match["closed"]:
                raise self.error("the quote that opens here is never closed")
            if kind == "closed":
                yield "text", match["text"].replace('""', '"')
            elif kind == "flag":
                yield "flag", match["flag"]
            elif kind == "word" and NUMBER.fullmatch(match["word"]):
                yield "number", match["word"]
        self.line = len(self.line_ends) + 1
        yield "end of the file", ""

    def take(self, expected: str) -> str:
        """Return the value of the next token, which must be of the expected kind."""
        kind, value = next(self.tokens)
        if kind != expected:
            raise self.error(f"expected the {expected}, got the {kind} {quote(value)}")
        return value

    def take_count(self) -> int:
        """Return the next token, which must be a number of tiers or entries."""
        value = self.take("number")
        if COUNT.fullmatch(value) is None:
            raise self.error(
                f"expected a number of tiers or entries, got {quote(value)}"
            )
        return int(value)


def _parse(path: Path, text: str) -> list[Tier]:
    """Return the tiers of a TextGrid; raise InputError at the first token that does not fit."""
    tokens = TokenReader(path, text)
    tokens.take("text")  # ooTextFile
    if tokens.take("text") != "TextGrid":
        raise tokens.error("expected a TextGrid")
    tokens.take("number")  # start
    tokens.take("number")  # end
    if tokens.take("flag") != "exists":
        return []
    tiers = []
    for _ in range(tokens.take_count()):
        kind = tokens.take("text")
        if kind not in (INTERVALS, POINTS):
            raise tokens.error(f"expected {INTERVALS} or {POINTS}, got {quote(kind)}")
        tier = Tier(kind, tokens.take("text"), [])
        tokens.take("number")  # start
        tokens.take("number")  # end
        for _ in range(tokens.take_count()):
            start_s = float(tokens.take("number"))
            first_line = tokens.line
            end_s = float(tokens.take("number")) if kind == INTERVALS else start_s
            label = tokens.take("text")
            if kind == POINTS or label.strip():
                tier.entries.append(Entry(first_line, start_s, end_s, label))
        tiers.append(tier)
    tokens.take("end of the file")
    return tiers


def _choose_tiers(file: AnnotationFile, tiers: list[Tier]) -> tuple[list[Tier], str]:
    """Return the tiers with call types, and how they were chosen; OptionError if unclear.

    How they were chosen is text that follows their names in a note; empty if it needs no note.
    """
    options = file.options
    if options.tiers:
        folded = {name.casefold() for name in options.tiers}
        named = [tier for tier in tiers if tier.name.casefold() in folded]
        if not named:
            available = [tier.name for tier in tiers]
            nearest = suggest(options.tiers[0], available)
            raise InputError(
                f"{file.path}: line 1: no tier {quote_names(options.tiers)}{nearest}; "
                f"available: {quote_names(available)}"
            )
        return named, ""
    intervals = [tier for tier in tiers if tier.kind == INTERVALS]
    if options.is_known_label is not None:
        chosen = _find_known_tiers(file, intervals, options.is_known_label)
        if chosen:
            return chosen, ""
        file.notes.append("no tier has a known label")
    if len(intervals) <= 1:
        return intervals or tiers, ""
    call_tiers = _find_tiers_by_name(intervals)
    if call_tiers:
        return call_tiers, ", by name"
    filled = [tier for tier in intervals if tier.entries]
    if len(filled) <= 1:
        return filled or intervals, ", the only one with labels"
    raise _unclear_tiers_error(file.path, filled)


def _find_tiers_by_name(tiers: Sequence[Tier]) -> list[Tier]:
    """Return the tiers that are called as tiers of calls are, if all have one name but numbers."""
    candidates = [tier for tier in tiers if not OTHER_NAMES.search(tier.name)]
    named: list[Tier] = []
    for pattern in CALL_NAMES:  # the first that fits any tier decides
        is_call_name = re.compile(pattern, re.IGNORECASE).search
        named = named or [tier for tier in candidates if is_call_name(tier.name)]
    # Calls that overlap are on tiers such as call and call 2.
    groups = {re.sub(r"[\W_]*[0-9]+$", "", tier.name.casefold()) for tier in named}
    return named if len(groups) == 1 else []


def _unclear_tiers_error(path: Path, tiers: Sequence[Tier]) -> OptionError:
    """Return the error that any of several tiers may have the call types."""
    descriptions = []
    for tier in tiers:
        different = dict.fromkeys(entry.label for entry in tier.entries)
        count = count_text(len(tier.entries), "label")
        examples = quote_names([*different][:LISTED_LABELS])
        name = quote(tier.name)
        descriptions.append(f"{name} ({count} such as {examples})")
    first = quote(tiers[0].name)
    return OptionError(
        f"{path}: line 1: several tiers have labels, and it is not clear "
        f"which are call types: {', '.join(descriptions)}; choose with --tiers {first}, for "
        f"example, or tiers = [{first}] in a study file"
    )


def _find_known_tiers(
    file: AnnotationFile, tiers: Sequence[Tier], is_known_label: Callable[[str], bool]
) -> list[Tier]:
    """Return the tier with most labels known to the corpus, and tiers where most are known."""
    known_counts = []
    for tier in tiers:
        known = [entry for entry in tier.entries if is_known_label(entry.label)]
        known_counts.append(len(known))
    most = max(known_counts, default=0)
    if most == 0:
        return []
    best = tiers[known_counts.index(most)]
    chosen = []
    for tier, count in zip(tiers, known_counts, strict=True):
        if tier is best or 2 * count > len(tier.entries):
            chosen.append(tier)
            labels = f"{count_text(count, 'label')} of {len(tier.entries)}"
            file.notes.append(
                f"{labels} on tier {quote(tier.name)} known to the corpus"
            )
    return chosen


FORMATS = (
    Format("textgrid", (".textgrid",), recognise, read, program="Praat", order=1),
)
