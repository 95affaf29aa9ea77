"""Facts about models, scans and scores → lines of text, by macros of `templates/sentences.txt`."""

import shlex
from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any

import numpy as np
from jinja2 import Environment, PackageLoader, StrictUndefined
from rich.console import Console

from callshot.console import describe_rejects, print_lines
from callshot.corpus.segments import group_rejects
from callshot.detection.background import ANNOTATED, WITHOUT_CALLS
from callshot.detection.detector import HIGHEST_AIM
from callshot.detection.model import SEGMENT
from callshot.errors import count_text, join_names, printable
from callshot.records import Reject

MAX_REASONS = 5
Adjust = Callable[[str, int], str]

DEFAULT_AIM = 1.0  # false alarms per hour and label, as in a scan
CONSTANTS = {
    "annotated": ANNOTATED,
    "default_aim": DEFAULT_AIM,
    "few_recordings": 5,
    "few_windows_of_background": 100,
    "highest_aim": HIGHEST_AIM,
    "many_calls": 4,  # as long as this many examples: an event of several calls
    "max_listed": 8,  # doubtful examples or pairs
    "min_gain": 0.0005,  # of recall that is shown
    "segment": SEGMENT,
    "without_calls": WITHOUT_CALLS,
}


def say(macro: str, *facts: object) -> list[str]:
    """Return the lines that a macro makes of facts."""
    text = str(getattr(_load_macros(), macro)(*facts))
    return text.split("\n")[:-1]  # without what follows the last line's end


@cache
def _load_macros() -> Any:
    """Return the template `sentences.txt`, whose attributes are its macros."""
    environment = Environment(
        loader=PackageLoader("callshot.detection"),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals |= CONSTANTS
    environment.filters |= {
        "align": _align,
        "align_right": partial(_align, adjust=str.rjust),
        "count": count_text,
        "fixed": _format_number,
        "mean": np.mean,
        "names": join_names,
        "percent": "{:.0%}".format,
        "printable": printable,
        "quoted": lambda path: shlex.quote(str(path)),
    }
    return environment.get_template("sentences.txt").module


def _align(text: str, gap: int = 2, adjust: Adjust = str.ljust) -> str:
    """Put the cells of lines, which tabs separate, below each other; the first at the left.

    `gap` is the number of spaces between columns, `adjust` fills a cell to the width of its column.
    """
    # The text ends with a newline: nothing follows it.
    rows = [line.split("\t") for line in text.split("\n")[:-1]]
    columns = zip(*rows, strict=True)
    widths = [max(map(len, column)) for column in columns]
    space = " " * gap
    aligned = ""
    for first, *cells in rows:
        left = first.ljust(widths[0])
        others = map(adjust, cells, widths[1:])
        aligned += space.join([left, *others]).rstrip() + "\n"
    return aligned


def _format_number(value: float | None, digits: str = "%.2f") -> str:
    return "–" if value is None else digits % value


def show_rejects(rejects: Sequence[Reject], console: Console) -> None:
    """Print how many rows were left out, and the first of each reason."""
    if not rejects:
        return
    count = count_text(len(rejects), "row or file", "rows or files")
    print_lines(console, [f"left out: {count}"])
    groups = group_rejects(rejects)[:MAX_REASONS]
    print_lines(console, map(describe_rejects, groups), "dim")
