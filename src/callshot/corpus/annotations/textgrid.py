"""Praat's TextGrids, long and short: a file comes in, the labels of its tiers go out as annotations.

Both forms hold the same numbers, quoted texts and flags in the same order; all other words are for people, as is what
follows a `!`. The row of an annotation is the line on which its first number is.
"""

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from callshot.corpus.annotations.columns import listed, nearest
from callshot.corpus.annotations.rows import NUMBER, Hints, Rows
from callshot.corpus.annotations.text import read_text, shown
from callshot.errors import InputError
from callshot.records import Cell

# The closing quote may be absent: a text that never ends is then found at once, and none is tried in several ways.
TOKEN = re.compile(
    r'"(?P<text>[^"]*(?:""[^"]*)*)(?P<closed>"?)|![^\r\n]*|<(?P<flag>[^<>\s"]*)>|(?P<word>[^\s"!<]+|<)'
)
MAGIC = re.compile(r'\s*File type\s*=\s*"ooTextFile[^"]*"\s*(?:Object class\s*=\s*)?"TextGrid"')
LINE_END = re.compile(r"\r\n?|\n")
POINTS = "TextTier"
KINDS = {"IntervalTier": 2, POINTS: 1}  # how many times an entry has


@dataclass(frozen=True)
class Entry:
    """An interval, or a point, whose end is its start."""

    line: int
    start_s: float
    end_s: float
    label: str


@dataclass(frozen=True)
class Tier:
    """A tier: its kind and name, and what is on it but for intervals without a label, which are gaps."""

    kind: str
    name: str
    entries: list[Entry]


class Tokens:
    """Go through the numbers, texts and flags of a file, in order."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._ends = [found.end() for found in LINE_END.finditer(text)]
        self._tokens = self._find(text)
        self._length = len(text)
        self.line = 1

    def _find(self, text: str) -> Iterator[tuple[str, str, int]]:
        for found in TOKEN.finditer(text):
            kind = found.lastgroup
            if kind is None or (kind == "word" and NUMBER.fullmatch(found["word"]) is None):
                continue
            line = bisect_right(self._ends, found.start()) + 1
            if kind == "closed":
                if not found["closed"]:
                    raise InputError(
                        f"{self.path}: line {line}: the quote that opens here is never closed"
                    )
                yield "text", found["text"].replace('""', '"'), line
            else:
                yield (
                    ("flag", found["flag"], line)
                    if kind == "flag"
                    else ("number", found["word"], line)
                )

    def next(self, kind: str, wanted: str, *names: object) -> str:
        """Return the next value, which must be of this kind; `wanted` is what it is, with places for the names."""
        found, value, line = next(
            self._tokens, ("end of the file", "", bisect_right(self._ends, self._length) + 1)
        )
        self.line = line
        if found != kind:
            text = f"the {found} {shown(value)}" if value else f"the {found}"
            self.refuse(f"wanted {wanted.format(*names)}, a {kind}, found {text}")
        return value

    def refuse(self, text: str) -> None:
        """Raise an error at the line of the last value."""
        raise InputError(f"{self.path}: line {self.line}: {text}")

    def finish(self) -> None:
        """Refuse what is left over: a count before it was too small."""
        for kind, value, line in self._tokens:
            self.line = line
            self.refuse(
                f"wanted the end of the file, found the {kind} {shown(value)}; a size above is too small"
            )


def recognise(path: Path, head: str, hints: Hints) -> str | None:
    """See whether the first lines are those of a TextGrid."""
    return "its first lines say ooTextFile and TextGrid" if MAGIC.match(head) else None


def read(rows: Rows, hints: Hints) -> None:
    """Read a TextGrid: the tiers that the user names, or those whose labels are known, or all."""
    text, notes = read_text(rows.path)
    rows.notes += notes
    tiers = _parse(Tokens(rows.path, text))
    chosen = _choose(rows, tiers, hints)
    free = (
        not hints.tiers and hints.known is None and sum(bool(tier.entries) for tier in chosen) > 1
    )
    mend = "; if some hold no calls, choose with --tiers" if free else ""
    rows.notes.append(f"tiers read: {listed([tier.name for tier in chosen])}{mend}")
    others = [tier for tier in tiers if not any(tier is one for one in chosen)]
    picked = len(chosen) == 1 and (bool(hints.tiers) or hints.known is not None)
    for tier in chosen:
        own: dict[str, Cell] = {} if picked else {"tier": tier.name}
        for entry, beside in zip(tier.entries, _beside(rows, tier, others), strict=True):
            with rows.judging(entry.line):
                rows.add(entry.line, entry.label, entry.start_s, entry.end_s, more=own | beside)


def _parse(tokens: Tokens) -> list[Tier]:
    tokens.next("text", "the file type")
    if tokens.next("text", "the object class") != "TextGrid":
        tokens.refuse("wanted a TextGrid")
    tokens.next("number", "the start of the recording")
    tokens.next("number", "the end of the recording")
    if tokens.next("flag", "whether there are tiers") != "exists":
        return []
    tiers = [_tier(tokens) for _ in range(_count(tokens, "tiers"))]
    tokens.finish()
    return tiers


def _count(tokens: Tokens, what: str, *names: object) -> int:
    text = tokens.next("number", f"the number of {what}", *names)
    if not text.isdecimal() or len(text) > 9:
        tokens.refuse(f"wanted the number of {what.format(*names)}, found {shown(text)}")
    return int(text)


def _tier(tokens: Tokens) -> Tier:
    kind = tokens.next("text", "the class of a tier")
    if kind not in KINDS:
        tokens.refuse(f"wanted {' or '.join(KINDS)}, found {shown(kind)}")
    name = tokens.next("text", "the name of the tier")
    tokens.next("number", "the start of tier {}", shown(name))
    tokens.next("number", "the end of tier {}", shown(name))
    count = _count(tokens, "entries of tier {}", shown(name))
    found = (_entry(tokens, KINDS[kind], i, shown(name)) for i in range(1, count + 1))
    return Tier(kind, name, [entry for entry in found if kind == POINTS or entry.label.strip()])


def _entry(tokens: Tokens, times: int, *names: object) -> Entry:
    start_s = end_s = float(tokens.next("number", "the time of entry {} of tier {}", *names))
    line = tokens.line
    if times == 2:
        end_s = float(tokens.next("number", "the end of entry {} of tier {}", *names))
    return Entry(
        line, start_s, end_s, tokens.next("text", "the label of entry {} of tier {}", *names)
    )


def _choose(rows: Rows, tiers: list[Tier], hints: Hints) -> list[Tier]:
    """Return the tiers to read: those that the user names, one of which must be there, those voted for, or all."""
    if hints.tiers:
        wanted = {name.casefold() for name in hints.tiers}
        named = [tier for tier in tiers if tier.name.casefold() in wanted]
        if not named:
            names = nearest(hints.tiers[0], [tier.name for tier in tiers])
            raise InputError(
                f"{rows.path}: line 1: no tier is called {listed(hints.tiers)}; {names}"
            )
        return named
    return tiers if hints.known is None else _vote(rows, tiers, hints.known)


def _vote(rows: Rows, tiers: list[Tier], known: Callable[[str], bool]) -> list[Tier]:
    """Choose the interval tiers most of whose labels are known, else the one with the most, or all where none is."""
    votes = {
        n: sum(known(entry.label) for entry in tier.entries)
        for n, tier in enumerate(tiers)
        if tier.kind != POINTS
    }
    if not any(votes.values()):
        rows.notes.append("no tier has a label that is known")
        return tiers
    best = max(votes, key=lambda n: votes[n])
    chosen = [n for n, count in votes.items() if n == best or 2 * count > len(tiers[n].entries)]
    for n in chosen:
        rows.notes.append(
            f"{votes[n]} of the {len(tiers[n].entries)} labels on tier {shown(tiers[n].name)} are known"
        )
    return [tiers[n] for n in chosen]


def _beside(rows: Rows, tier: Tier, others: Sequence[Tier]) -> list[dict[str, Cell]]:
    """Collect, for each entry of a tier, the labels on the other tiers that overlap it.

    Tiers whose entries overlap each other, which Praat does not write, are left out: their overlaps may be too many.
    """
    beside: list[dict[str, Cell]] = [{} for _ in tier.entries]
    for other in others:
        if not (_in_order(tier) and _in_order(other)):
            rows.notes.append(
                f"tier {shown(other.name)} is not carried along: entries of one tier overlap each other"
            )
            continue
        for i, labels in _overlaps(tier.entries, other.entries):
            name = f"tier {other.name}"
            beside[i][name] = "; ".join(
                [*([str(beside[i][name])] if name in beside[i] else []), *labels]
            )
    return beside


def _in_order(tier: Tier) -> bool:
    entries = tier.entries
    return all(one.start_s <= one.end_s <= two.start_s for one, two in pairwise(entries))


def _overlaps(entries: Sequence[Entry], others: Sequence[Entry]) -> Iterator[tuple[int, list[str]]]:
    """Go through both in step, as both are in order."""
    at = 0
    for i, entry in enumerate(entries):
        while at < len(others) and _before(others[at], entry):
            at += 1
        labels, ahead = [], at
        while ahead < len(others) and others[ahead].start_s < entry.end_s:
            labels.append(others[ahead].label)
            ahead += 1
        if any(label.strip() for label in labels):
            yield i, [label for label in labels if label.strip()]


def _before(other: Entry, entry: Entry) -> bool:
    """Tell whether an interval ends before an entry, or a point lies before it."""
    return (
        other.end_s <= entry.start_s
        if other.end_s > other.start_s
        else other.start_s < entry.start_s
    )
