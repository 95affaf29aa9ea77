"""Cells of annotation files as people write them: numbers, times, frequencies and folds.

Numbers have a point or a comma before their decimals, and may have a mark between thousands; a
table writes all its numbers in one style. A time is a number of seconds or milliseconds, or
hh:mm:ss or mm:ss, with or without decimals.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from callshot.corpus.annotations.text import RowError, quote
from callshot.records import Cell

# No two parts of it match the same digits: a long run of them is tried in one way only.
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0{1,18})?")  # 2.0: pandas, beside NaN
MISSING = ("", "na", "nan")  # as R and pandas write it
FREQUENCIES = ("low_freq_hz", "high_freq_hz")
MARKS = ".,"
MARKED_NUMBER = re.compile(r"[+-]?[0-9.,]+(?:[eE][+-]?[0-9]+)?")
# Numbers whose marks may all be between thousands.
THOUSANDS = {
    mark: re.compile(rf"[+-]?[1-9][0-9]{{0,2}}(?:\{mark}[0-9]{{3}})+") for mark in MARKS
}
CLOCK = re.compile(r"(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,2}(?:[.,][0-9]{0,30})?)")
MILLISECONDS = re.compile(
    r"(?:^|[^a-z])(?:ms|msecs?|millis|millisec(?:ond)?s?)\W*$|[a-z](?-i:Ms|Millis)$",
    re.IGNORECASE,
)


@dataclass(frozen=True)
class NumberStyle:
    """How a table writes numbers.

    `decimal` has the marks before decimals, `thousands` the mark between thousands. Of a mark in
    `unclear` it is not known which of the two it is: 1,250 may be 1.25 or 1250.
    """

    decimal: str = MARKS
    thousands: str = ""
    unclear: str = ""


ANY_STYLE = NumberStyle()


def find_number_style(texts: Iterable[str], *, is_comma_separated: bool) -> NumberStyle:
    """Find out how a table writes numbers, from all of them.

    Between commas as separators, a comma in a number may be one between thousands.

    >>> find_number_style(["1.234,5", "7"], is_comma_separated=False)
    NumberStyle(decimal=',', thousands='.', unclear='')
    >>> find_number_style(["1,250", "2,500"], is_comma_separated=True)
    NumberStyle(decimal='.', thousands='', unclear=',')
    """
    numbers = [text for text in map(str.strip, texts) if MARKED_NUMBER.fullmatch(text)]
    for text in numbers:
        if "," in text and "." in text:
            thousands, decimal = sorted(MARKS, key=text.rfind)
            return NumberStyle(decimal, thousands)
    marks = {mark: [text for text in numbers if mark in text] for mark in MARKS}
    if not marks[","]:
        return NumberStyle(".")
    if not marks["."] and not is_comma_separated:
        return NumberStyle(",")
    decimal = ""
    unclear = ""
    for mark, marked in marks.items():
        if not all(map(THOUSANDS[mark].fullmatch, marked)):
            decimal += mark
        elif marked:
            unclear += mark
    return NumberStyle(decimal or ".", unclear=unclear)


def parse_number(text: str, name: str, style: NumberStyle = ANY_STYLE) -> float:
    """Parse the number in column `name`; raise RowError if there is none.

    >>> parse_number("1,5", "start_s")
    1.5
    """
    digits = text.strip()
    for mark in style.unclear:
        _check_clear(digits, mark, name)
    if style.thousands:
        digits = _drop_thousands(digits, style)
    has_point = "." in digits
    if "," in style.decimal and not has_point:
        digits = digits.replace(",", ".", 1)
    is_wrong_mark = has_point and "." not in style.decimal
    if is_wrong_mark or NUMBER.fullmatch(digits) is None:
        raise RowError(f"{name}: expected a number, got {quote(text)}")
    value = float(digits)
    if math.isinf(value):
        raise RowError(f"{name}: expected a finite number, got {quote(text)}")
    return value


def _check_clear(digits: str, mark: str, name: str) -> None:
    """Raise RowError if the marks in a number may be between thousands or before decimals."""
    if THOUSANDS[mark].fullmatch(digits):
        fraction = digits.replace(mark, ".", 1)
        whole = digits.replace(mark, "")
        raise RowError(
            f"{name}: {quote(digits)} may be {fraction} or {whole}; write one of them"
        )


def _drop_thousands(digits: str, style: NumberStyle) -> str:
    """Return a number without the marks between thousands, if they are where they belong."""
    whole, decimal_mark, fraction = digits.partition(style.decimal)
    if THOUSANDS[style.thousands].fullmatch(whole) is None:
        return digits
    return whole.replace(style.thousands, "") + decimal_mark + fraction


def parse_time(
    text: str,
    name: str,
    style: NumberStyle = ANY_STYLE,
    *,
    in_milliseconds: bool = False,
) -> float:
    """Parse a time, in seconds; hh:mm:ss and mm:ss are that in any column.

    >>> parse_time("01:02:03.5", "start_s"), parse_time("1500", "start_s", in_milliseconds=True)
    (3723.5, 1.5)
    """
    if is_clock_time(text):
        return _parse_clock_time(text, name)
    number = parse_number(text, name, style)
    return number / 1000 if in_milliseconds else number


def is_clock_time(text: str) -> bool:
    """Return whether a text is hh:mm:ss or mm:ss, with or without decimals."""
    return CLOCK.fullmatch(text.strip()) is not None


def _parse_clock_time(text: str, name: str) -> float:
    match = CLOCK.fullmatch(text.strip())
    assert match is not None
    hours, minutes, seconds = match.groups(default="0")
    seconds_s = Decimal(seconds.replace(",", "."))
    has_hours = match[1] is not None
    if seconds_s >= 60 or (has_hours and int(minutes) >= 60):
        raise RowError(f"{name}: expected hh:mm:ss or mm:ss, got {quote(text)}")
    return float(3600 * int(hours) + 60 * int(minutes) + seconds_s)


def is_in_milliseconds(name: str) -> bool:
    """Return whether a column has milliseconds, by its name.

    >>> [is_in_milliseconds(name) for name in ("start_ms", "End (ms)", "onsetMs", "terms")]
    [True, True, True, False]
    """
    return MILLISECONDS.search(name) is not None


def add_times(*times_s: float) -> float:
    """Add times as decimals, so that 0.1 s and 0.2 s are 0.3 s.

    >>> add_times(0.1, 0.2)
    0.3
    """
    return float(sum(Decimal(repr(time_s)) for time_s in times_s))


def parse_cell(text: str, name: str, style: NumberStyle = ANY_STYLE) -> Cell:
    """Parse an extra cell; None if it is missing.

    Frequencies are numbers. A fold is an integer or a name.
    """
    value = text.strip()
    is_missing = value.lower() in MISSING
    if name in FREQUENCIES:
        return None if is_missing else parse_number(text, name, style)
    if name != "fold":
        return text or None
    if is_missing:
        return None
    if INTEGER.fullmatch(value):
        return int(value.partition(".")[0])
    return value


def format_float(value: Cell, missing: str = "") -> str:
    """Write a number with the fewest digits that read back the same.

    >>> format_float(0.1), format_float(None)
    ('0.1', '')
    """
    if value is None:
        return missing
    return repr(float(value))
