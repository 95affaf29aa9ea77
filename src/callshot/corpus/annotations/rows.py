"""Rows of an annotation file: times and labels come in, from any format; annotations and rejects go out."""

import math
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from callshot.corpus.annotations.text import shown
from callshot.records import Annotation, Cell, Reject

# No two parts of these can match the same digits: a long run of them must not be tried in every division.
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
MISSING = ("", "na", "nan")  # how R and pandas write that there is none


@dataclass(frozen=True)
class Hints:
    """What the user says about annotation files.

    `columns` names their column for ours, {"label": "Species"}; `tiers` the TextGrid tiers that hold calls; `known`
    tells whether a text is one of the corpus's labels; `label` is the label of all rows where no column has one; `but`
    are files and folders that hold none, wherever they are.
    """

    columns: Mapping[str, str] = field(default_factory=dict)
    tiers: tuple[str, ...] = ()
    known: Callable[[str], bool] | None = None
    label: str | None = None
    but: tuple[Path, ...] = ()


class Unfit(Exception):
    """A row that cannot be an annotation; the message is the reason."""


@dataclass
class Rows:
    """What has been read of a file so far."""

    path: Path
    annotations: list[Annotation] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def file(self) -> str:
        """Its path, as annotations and rejects carry it."""
        return str(self.path)

    @contextmanager
    def judging(self, row: int) -> Iterator[None]:
        """Turn a row that is unfit into a reject."""
        try:
            yield
        except Unfit as unfit:
            self.rejects.append(Reject(self.file, row, str(unfit)))

    def add(
        self,
        row: int,
        label: str,
        start_s: float,
        end_s: float | None,
        *,
        path: str | None = None,
        recording: str | None = None,
        in_frames: bool = False,
        more: Mapping[str, Cell] | None = None,
    ) -> None:
        """Add an annotation, or raise Unfit."""
        reason = fault(label, start_s, end_s)
        if reason is not None:
            raise Unfit(reason)
        self.annotations.append(
            Annotation(
                path, start_s, end_s, label, self.file, row, recording, in_frames, more or {}
            )
        )


def fault(label: str, start_s: float, end_s: float | None) -> str | None:
    """Say why there can be no such annotation, if there is a reason.

    >>> fault("rumble", 2.0, 1.5)
    'starts at 2.0, after its end at 1.5'
    """
    for time in (start_s, end_s):
        if time is not None and not math.isfinite(time):
            return f"wanted a finite time, found {time!r}"
    if start_s < 0:
        return f"starts at {start_s!r}; a time cannot be negative"
    if end_s is not None and start_s > end_s:
        return f"starts at {start_s!r}, after its end at {end_s!r}"
    if end_s == start_s:
        return f"starts and ends at {start_s!r}: a point in time; a segment needs a span"
    return None if label.strip() else "no label"


def number(text: str, name: str, *, comma: bool = True) -> float:
    """Read a number that must be there, with a decimal comma where that cannot be a separator.

    >>> number("1,5", "start_s")
    1.5
    """
    digits = text.strip()
    if comma and "." not in digits:
        digits = digits.replace(",", ".", 1)
    if NUMBER.fullmatch(digits) is None:
        raise Unfit(f"{name}: wanted a number, found {shown(text)}")
    value = float(digits)
    if math.isinf(value):
        raise Unfit(f"{name}: wanted a finite number, found {shown(text)}")
    return value


def frequency(text: str, name: str, *, comma: bool = True) -> float | None:
    """Read a frequency; None where there is none."""
    return None if text.strip().lower() in MISSING else number(text, name, comma=comma)


def integer(text: str, name: str) -> int | None:
    """Read an integer; None where there is none."""
    digits = text.strip()
    if digits and INTEGER.fullmatch(digits) is None:
        raise Unfit(f"{name}: wanted an integer, found {shown(text)}")
    return int(digits) if digits else None
