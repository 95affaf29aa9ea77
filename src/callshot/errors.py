"""What can go wrong, on one page.

    CallshotError
    ├── InputError      a file, a column, a row or a value is not what it must be   (ValueError)
    │   └── LeakError   a recording is on both sides of a split                     (ValueError)
    ├── OptionError     an option is out of its range, or two options disagree      (ValueError)
    ├── OutputError     a result cannot be written where it was asked for           (OSError)
    ├── ClusterError    a cluster cannot be reached, is lost, or its workers differ
    └── RequestError    the page of a review asks for what cannot be

A message is one line: the file, the column and the row it is about, what was expected, what was
found, and how to fix it.
"""

import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import fields
from difflib import get_close_matches
from typing import Any


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey: names come from files."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


def suggest_name(name: str, names: Collection[str]) -> str:
    """Return what to use instead of an unknown name: the nearest of `names`, or all of them."""
    nearest = get_close_matches(name, list(names), 1)
    return f"did you mean {nearest[0]}?" if nearest else f"known: {', '.join(names)}"


def check_options(options: Iterable[str], record: type[Any]) -> None:
    """Check that options are fields of a dataclass; name the nearest where one is not."""
    check_names(options, [one.name for one in fields(record)])


def check_names(options: Iterable[str], names: Collection[str]) -> None:
    """Check that options have one of the names; suggest the nearest where one has not."""
    for name in options:
        if name not in names:
            raise OptionError(f"{name}: unknown option; {suggest_name(name, names)}")


def check_range(
    name: str, value: float, low: float, high: float = math.inf, unit: str = ""
) -> None:
    """Check that an option is a number from `low` to `high`.

    >>> check_range("draws", 0, 1, 65535)
    Traceback (most recent call last):
    callshot.errors.OptionError: draws: expected 1 to 65535, got 0
    """
    if low <= value <= high:
        return
    limits = f"{low:.15g} or more"
    if high < math.inf:
        limits = f"{low:.15g} to {high:.15g}"
    raise OptionError(f"{name}: expected {limits}{unit and ' '}{unit}, got {value}")


def check_whole_number(name: str, value: Any, *, maximum: float = math.inf) -> None:
    """Check that an option is a whole number from 1 to `maximum`."""
    if type(value) is not int:
        raise OptionError(f"{name}: expected a whole number, got {value!r}")
    check_range(name, value, 1, maximum)


def check_choice(name: str, value: object, allowed: Collection[str]) -> None:
    """Check that an option is one of the allowed words; suggest the nearest one."""
    if value not in allowed:
        listed = ", ".join(allowed)
        hint = suggest(str(value), allowed)
        raise OptionError(f"{name}: expected one of {listed}, got {value!r}{hint}")


def suggest(word: str, words: Iterable[str], *, cutoff: float = 0.6) -> str:
    """Return "; did you mean X?" with the nearest of `words`, or nothing if none is near.

    >>> suggest("perch2", ["mfcc", "perch-v2"])
    '; did you mean perch-v2?'
    """
    nearest = get_close_matches(word, words, n=1, cutoff=cutoff)
    return f"; did you mean {nearest[0]}?" if nearest else ""


def join_names(names: Sequence[str], most: int = 8) -> str:
    """Return names as text; of many, the first ones and how many more there are."""
    text = ", ".join(names[:most])
    more = len(names) - most
    return f"{text} and {more} more" if more > 0 else text


def count_text(count: float, noun: str, plural: str = "") -> str:
    """Return a count with its noun, in the singular or in the plural.

    >>> count_text(1, "file"), count_text(1200, "false alarm"), count_text(0, "query")
    ('1 file', '1,200 false alarms', '0 queries')
    >>> count_text(0.5, "class"), count_text(2, "row or file", "rows or files")
    ('0.5 classes', '2 rows or files')
    """
    number = f"{count:g}" if isinstance(count, float) else f"{count:,}"
    if count == 1:
        return f"{number} {noun}"
    regular = f"{noun}s"
    if noun.endswith(("s", "x", "ch", "sh")):
        regular = f"{noun}es"
    elif noun.endswith("y") and noun[-2:-1] not in "aeiou":
        regular = f"{noun[:-1]}ies"
    return f"{number} {plural or regular}"


def quote(text: str) -> str:
    """Quote a text for a message, on one line and not too long."""
    return f"{text[:60]!r}…" if len(text) > 60 else repr(text)


def quote_names(names: Iterable[str]) -> str:
    """Return names in quotes, of many the first ones, or "none"."""
    return join_names(list(map(quote, names)), most=12) or "none"


class CallshotError(Exception):
    """Any error that callshot raises on purpose."""


class InputError(CallshotError, ValueError):
    """A file, a column, a row or a value is not what it must be."""


class LeakError(InputError):
    """A recording is on both sides of a split."""


class OptionError(CallshotError, ValueError):
    """An option is out of its range, or two options disagree."""


class OutputError(CallshotError, OSError):
    """A result cannot be written where it was asked for."""


class ClusterError(CallshotError):
    """A cluster cannot be reached, is lost, or has workers that cannot do the work."""


class RequestError(CallshotError):
    """The page of a review makes an impossible request; `status` is the one of HTTP."""

    def __init__(self, message: str, status: int = 400) -> None:
        super().__init__(message)
        self.status = status
