"""Tiers of a TextGrid, and the choice of those that hold call types.

The user names them, or known labels choose them. Else the only interval tier is read, or the one
whose name or labels say that it holds call types; a choice that is not clear is left to the user.
"""

import re
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from callshot.corpus.annotations.rows import AnnotationFile, AnnotationOptions
from callshot.corpus.annotations.text import list_names, quote, suggest_name
from callshot.errors import InputError, OptionError, count_text

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


@dataclass(frozen=True)
class Entry:
    """An interval, or a point, whose end is its start."""

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

    @property
    def is_ordered(self) -> bool:
        """Whether no entry overlaps another, as Praat writes them."""
        return all(
            entry.start_s <= entry.end_s <= following.start_s
            for entry, following in pairwise(self.entries)
        )

    @property
    def group(self) -> str:
        """Its name without a number: calls that overlap are on tiers such as call and call 2."""
        name = self.name.casefold().strip()
        return re.sub(r"[\W_]*[0-9]+$", "", name) or name


def choose_tiers(
    annotation_file: AnnotationFile, tiers: list[Tier], options: AnnotationOptions
) -> list[Tier]:
    """Return the tiers to read; notes say which they are, and why."""
    if options.tiers:
        call_tiers = _find_named_tiers(annotation_file, tiers, options.tiers)
        reason = ""
    else:
        call_tiers, reason = _choose_by_content(annotation_file, tiers, options)
    note = f"tiers read: {list_names([tier.name for tier in call_tiers])}{reason}"
    if reason and len(call_tiers) < len(tiers):
        other_names = [tier.name for tier in tiers if tier not in call_tiers]
        note += f"; not {list_names(other_names)} (--tiers chooses others)"
    annotation_file.notes.append(note)
    return call_tiers


def _find_named_tiers(
    annotation_file: AnnotationFile, tiers: list[Tier], tier_names: Sequence[str]
) -> list[Tier]:
    """Return the tiers that the user gave, at least one of which must exist."""
    names = {name.casefold() for name in tier_names}
    call_tiers = [tier for tier in tiers if tier.name.casefold() in names]
    if not call_tiers:
        suggestion = suggest_name(tier_names[0], [tier.name for tier in tiers])
        raise InputError(
            f"{annotation_file.path}: line 1: no tier {list_names(tier_names)}; {suggestion}"
        )
    return call_tiers


def _choose_by_content(
    annotation_file: AnnotationFile, tiers: list[Tier], options: AnnotationOptions
) -> tuple[list[Tier], str]:
    """Return the tiers with call types, and how they are known."""
    if options.is_known_label is not None:
        call_tiers = _vote(annotation_file, tiers, options.is_known_label)
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
        raise _unclear_choice(annotation_file, filled)
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
        words = _split_words(entry.label)
        count += len(words) <= MAX_WORDS and _count_words(words, CALLS) > 0
    return 2 * count > len(tier.entries)


def _split_words(text: str) -> list[str]:
    return re.findall(r"[^\W\d_]+", text.casefold())


def _count_words(words: Iterable[str], vocabulary: Container[str]) -> int:
    """Count the words of a vocabulary, in the singular or in the plural."""
    return sum(
        word in vocabulary or word.removesuffix("s") in vocabulary for word in words
    )


def _unclear_choice(
    annotation_file: AnnotationFile, tiers: Sequence[Tier]
) -> OptionError:
    descriptions = []
    for tier in tiers:
        labels = list(dict.fromkeys(entry.label for entry in tier.entries))
        examples = list_names(labels[:LISTED_LABELS])
        count = f"{count_text(len(tier.entries), 'label')} such as {examples}"
        descriptions.append(f"{quote(tier.name)} ({count})")
    first = quote(tiers[0].name)
    return OptionError(
        f"{annotation_file.path}: line 1: several tiers have labels, and it is not clear "
        f"which are call types: {', '.join(descriptions)}; choose with --tiers {first}, for "
        f"example, or tiers = [{first}] in a study file"
    )


def _vote(
    annotation_file: AnnotationFile,
    tiers: list[Tier],
    is_known_label: Callable[[str], bool],
) -> list[Tier]:
    """Choose the interval tiers with mostly known labels, and the one with the most."""
    votes = {}
    for tier in tiers:
        if tier.kind == INTERVALS:
            votes[tier] = sum(is_known_label(entry.label) for entry in tier.entries)
    if not any(votes.values()):
        annotation_file.notes.append("no tier has a known label")
        return []
    best = max(votes, key=votes.__getitem__)
    call_tiers = [
        tier for tier in votes if tier is best or 2 * votes[tier] > len(tier.entries)
    ]
    for tier in call_tiers:
        where = f"on tier {quote(tier.name)}"
        known = count_text(votes[tier], "label")
        annotation_file.notes.append(f"{known} {where} known to the corpus")
        unknown_count = len(tier.entries) - votes[tier]
        if unknown_count > 0:
            unknown = count_text(unknown_count, "label")
            annotation_file.notes.append(f"{unknown} {where} not known to the corpus")
    return call_tiers
