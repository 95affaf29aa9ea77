"""What can go wrong, on one page.

    CallshotError
    ├── InputError      a file, a column, a row or a value is not what it must be   (ValueError)
    │   └── LeakError   a recording is on both sides of a split                     (ValueError)
    ├── OptionError     an option is out of its range, or two options disagree      (ValueError)
    └── OutputError     a result cannot be written where it was asked for           (OSError)

A message is one line: the file, the column and the row it is about, what was wanted, what was
found, and what mends it.
"""


def printable(text: str) -> str:
    """Replace control characters, which a terminal would obey: names come from files."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)


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
