"""Praat TextGrids, in the long and the short form: labels of tiers become annotations.

Both forms hold the same numbers, quoted texts and flags in the same order; all other words, and
what follows a `!`, are for people. The row of an annotation is the line of its first number.

The user names the tiers that hold call types, or known labels choose them. Else the only interval
tier is read, or the one whose name or labels say that it holds call types; a choice that is not
clear is left to the user.
"""

import re
from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from callshot.corpus.annotations.rows import AnnotationFile, AnnotationOptions, Rows
from callshot.corpus.annotations.text import (
    NUMBER,
    Cell,
    list_names,
    quote,
    read_text,
    suggest_name,
)
from callshot.errors import InputError, OptionError, count_text
from callshot.spans import Row

INTERVALS = "IntervalTier"
POINTS = "TextTier"
LISTED_LABELS = 3
MAX_WORDS = 3  # of a label that is a call type
# Words of the names of tiers; plurals are known too.
# fmt: off
CALL_NAMES = frozenset(("call", "calltype", "vocalisation", "vocalization"))
LABEL_NAMES = frozenset(("type", "label", "species", "annotation"))
OTHER_NAMES = frozenset((
    "caller", "id", "individual", "name", "sex", "age", "context", "behaviour", "behavior", "note",
    "comment", "quality", "noise", "number", "no", "nr", "count", "speaker", "observer",
))
# Words of call types.
CALLS = frozenset((
    "call", "song", "syllable", "rumble", "roar", "trumpet", "bark", "growl", "grunt", "snort",
    "chirp", "whistle", "click", "trill", "tweet", "peep", "hoot", "howl", "whine", "squeal",
    "scream", "screech", "cry", "croak", "buzz", "hum", "moan", "groan", "purr", "yelp", "coo",
    "cackle", "chatter", "rattle", "hiss", "squawk", "blow", "chorus", "gobble", "yip", "pant",
))
# fmt: on
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


@dataclass(frozen=True, eq=False)
class Tier:
    """A tier with its points or its labelled intervals; intervals without a label are gaps.

    An entry has `line`, `start_s`, `end_s` and `label`; the end of a point is its start.
    """

    kind: str
    name: str
    entries: Rows

    @property
    def is_ordered(self) -> bool:
        """Whether no entry overlaps another, as Praat writes them."""
        return all(
            entry["start_s"] <= entry["end_s"] <= following["start_s"]
            for entry, following in pairwise(self.entries)
        )

    @property
    def group(self) -> str:
        """Its name without a number: calls that overlap are on tiers such as call and call 2."""
        name = self.name.casefold().strip()
        return re.sub(r"[\W_]*[0-9]+$", "", name) or name


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


def read(file: AnnotationFile) -> None:
    """Read the tiers that hold call types; labels on other tiers become extra cells."""
    tiers = _parse(Tokens(file.path, read_text(file.path, file.notes)))
    call_tiers = _choose_tiers(file, tiers)
    other_tiers = [tier for tier in tiers if tier not in call_tiers]
    for tier in call_tiers:
        extra: dict[str, Cell] = {}
        if len(call_tiers) > 1:
            extra["tier"] = tier.name
        _add_entries(file, tier, other_tiers, extra)


def _add_entries(
    file: AnnotationFile,
    tier: Tier,
    other_tiers: Sequence[Tier],
    extra: dict[str, Cell],
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
            file.notes.append(
                f"tier {quote(other.name)} is left out: entries of one tier overlap each other"
            )
    for entry in tier.entries:
        labels = defaultdict[str, list[str]](list)
        for other in ordered:
            labels[f"tier {other.name}"] += _overlapping_labels(entry, other.entries)
        overlaps = {name: "; ".join(texts) for name, texts in labels.items() if texts}
        line = entry["line"]
        with file.rejecting(line):
            times_s = (entry["start_s"], entry["end_s"])
            file.add(line, entry["label"], *times_s, extra | overlaps)


def _overlapping_labels(entry: Row, others: Rows) -> list[str]:
    """Return the labels of entries that overlap one; a point counts if it does not lie before."""
    start_s = entry["start_s"]

    def ends_after(other: Row) -> bool:
        if other["end_s"] > other["start_s"]:
            return bool(other["end_s"] > start_s)
        return bool(other["start_s"] >= start_s)

    first = bisect_left(others, True, key=ends_after)
    last = bisect_left(others, entry["end_s"], key=lambda other: other["start_s"])
    return [other["label"] for other in others[first:last] if other["label"].strip()]


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
        where = f"entry {index} of {description}"
        start_s = tokens.next_number(f"the time of {where}")
        entry: Row = {"line": tokens.line, "start_s": start_s, "end_s": start_s}
        if kind == INTERVALS:
            entry["end_s"] = tokens.next_number(f"the end of {where}")
        entry["label"] = tokens.next("text", f"the label of {where}")
        if kind == POINTS or entry["label"].strip():
            entries.append(entry)
    return Tier(kind, name, entries)


def _choose_tiers(file: AnnotationFile, tiers: list[Tier]) -> list[Tier]:
    """Return the tiers to read; notes say which they are, and why."""
    if file.options.tiers:
        call_tiers = _find_named_tiers(file, tiers, file.options.tiers)
        reason = ""
    else:
        call_tiers, reason = _choose_by_content(file, tiers)
    note = f"tiers read: {list_names([tier.name for tier in call_tiers])}{reason}"
    if reason and len(call_tiers) < len(tiers):
        other_names = [tier.name for tier in tiers if tier not in call_tiers]
        note += f"; not {list_names(other_names)} (--tiers chooses others)"
    file.notes.append(note)
    return call_tiers


def _find_named_tiers(
    file: AnnotationFile, tiers: list[Tier], tier_names: Sequence[str]
) -> list[Tier]:
    """Return the tiers that the user gave, at least one of which must exist."""
    names = {name.casefold() for name in tier_names}
    call_tiers = [tier for tier in tiers if tier.name.casefold() in names]
    if not call_tiers:
        suggestion = suggest_name(tier_names[0], [tier.name for tier in tiers])
        raise InputError(
            f"{file.path}: line 1: no tier {list_names(tier_names)}; {suggestion}"
        )
    return call_tiers


def _choose_by_content(
    file: AnnotationFile, tiers: list[Tier]
) -> tuple[list[Tier], str]:
    """Return the tiers with call types, and how they are known."""
    if file.options.is_known_label is not None:
        call_tiers = _vote(file, tiers, file.options.is_known_label)
        if call_tiers:
            return call_tiers, ""
    intervals = [tier for tier in tiers if tier.kind == INTERVALS]
    if len(intervals) <= 1:
        return intervals or tiers, ""
    best = max(map(_rate_name, intervals))
    best_named = [tier for tier in intervals if _rate_name(tier) == best]
    if best > 0 and _is_one_group(best_named):
        return best_named, ", by name"
    filled = [tier for tier in intervals if tier.entries]
    if len(filled) <= 1:
        return filled or intervals, ", the only one with labels"
    candidates = filled if best == 0 else best_named
    with_calls = [tier for tier in candidates if _has_calls(tier)]
    if not _is_one_group(with_calls):
        raise _unclear_choice(file, filled)
    return with_calls, ", by their labels"


def _is_one_group(tiers: Iterable[Tier]) -> bool:
    return len({tier.group for tier in tiers}) == 1


def _rate_name(tier: Tier) -> int:
    """Return how clearly the name of a tier says that it holds call types; 0 if it does not."""
    words = _split_words(re.sub(r"(?<=[a-z])(?=[A-Z])", " ", tier.name))
    if _count_words(words, OTHER_NAMES) > 0:
        return 0
    return 2 * _count_words(words, CALL_NAMES) + _count_words(words, LABEL_NAMES)


def _has_calls(tier: Tier) -> bool:
    """Return whether most labels of a tier are types of calls."""
    count = 0
    for entry in tier.entries:
        words = _split_words(entry["label"])
        count += len(words) <= MAX_WORDS and _count_words(words, CALLS) > 0
    return 2 * count > len(tier.entries)


def _split_words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _count_words(words: Iterable[str], vocabulary: Container[str]) -> int:
    """Count the words of a vocabulary, in the singular or in the plural."""
    return sum(
        word in vocabulary or word.removesuffix("s") in vocabulary for word in words
    )


def _unclear_choice(file: AnnotationFile, tiers: Sequence[Tier]) -> OptionError:
    descriptions = []
    for tier in tiers:
        labels = list(dict.fromkeys(entry["label"] for entry in tier.entries))
        examples = list_names(labels[:LISTED_LABELS])
        count = f"{count_text(len(tier.entries), 'label')} such as {examples}"
        descriptions.append(f"{quote(tier.name)} ({count})")
    first = quote(tiers[0].name)
    return OptionError(
        f"{file.path}: line 1: several tiers have labels, and it is not clear "
        f"which are call types: {', '.join(descriptions)}; choose with --tiers {first}, for "
        f"example, or tiers = [{first}] in a study file"
    )


def _vote(
    file: AnnotationFile,
    tiers: list[Tier],
    is_known_label: Callable[[str], bool],
) -> list[Tier]:
    """Choose the interval tiers with mostly known labels, and the one with the most."""
    votes = {}
    for tier in tiers:
        if tier.kind == INTERVALS:
            votes[tier] = sum(is_known_label(entry["label"]) for entry in tier.entries)
    if not any(votes.values()):
        file.notes.append("no tier has a known label")
        return []
    best = max(votes, key=votes.__getitem__)
    call_tiers = [
        tier for tier in votes if tier is best or 2 * votes[tier] > len(tier.entries)
    ]
    for tier in call_tiers:
        where = f"on tier {quote(tier.name)}"
        known = count_text(votes[tier], "label")
        file.notes.append(f"{known} {where} known to the corpus")
        unknown_count = len(tier.entries) - votes[tier]
        if unknown_count > 0:
            unknown = count_text(unknown_count, "label")
            file.notes.append(f"{unknown} {where} not known to the corpus")
    return call_tiers
