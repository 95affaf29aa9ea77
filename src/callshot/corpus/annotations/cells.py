"""Cells of annotation files: parse and format numbers."""

import math
import re

from callshot.corpus.annotations.text import RowError, quote
from callshot.records import Cell

# No two parts of it match the same digits: a long run of them is tried in one way only.
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}")
MISSING = ("", "na", "nan")  # as R and pandas write it
FREQUENCIES = ("low_freq_hz", "high_freq_hz")


def parse_number(text: str, name: str, *, decimal_comma: bool = True) -> float:
    """Parse the number in column `name`; raise RowError if there is none.

    >>> parse_number("1,5", "start_s")
    1.5
    """
    digits = text.strip()
    if decimal_comma and "." not in digits:
        digits = digits.replace(",", ".", 1)
    if NUMBER.fullmatch(digits) is None:
        raise RowError(f"{name}: expected a number, got {quote(text)}")
    value = float(digits)
    if math.isinf(value):
        raise RowError(f"{name}: expected a finite number, got {quote(text)}")
    return value


def parse_cell(text: str, name: str, *, decimal_comma: bool = True) -> Cell:
    """Parse an extra cell: frequencies are numbers, folds integers; None if it is missing."""
    value = text.strip().lower()
    if name in FREQUENCIES:
        if value in MISSING:
            return None
        return parse_number(text, name, decimal_comma=decimal_comma)
    if name != "fold":
        return text or None
    if not value:
        return None
    if INTEGER.fullmatch(value) is None:
        raise RowError(f"{name}: expected an integer, got {quote(text)}")
    return int(value)


def format_float(value: Cell, missing: str = "") -> str:
    """Write a number with the fewest digits that read back the same.

    >>> format_float(0.1), format_float(None)
    ('0.1', '')
    """
    if value is None:
        return missing
    return repr(float(value))
