"""Values → the cells of CSV files, and back: the one place through which all of them are written.

A spreadsheet takes a cell that begins with = + - @ for a formula, and runs it. A text that begins
so gets an apostrophe in front, which reading removes; numbers stay as they are.
"""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import polars as pl

FORMULA = r"^'*[=+\-@\t\r]"  # with the apostrophes of a text that looks protected
PROTECTED = r"^'('*[=+\-@\t\r])"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
NEEDS_QUOTES = re.compile(r'[",;\t\r\n]|^\s|\s$')


def protect_text(text: str) -> str:
    """Return a text as a spreadsheet may show it: not as a formula.

    >>> [protect_text(text) for text in ("=1+1", "-1.5", "'=x", "'tis")]
    ["'=1+1", '-1.5', "''=x", "'tis"]
    """
    is_formula = re.search(FORMULA, text) is not None
    if is_formula and re.search(NUMBER, text) is None:
        return f"'{text}"
    return text


def restore_text(text: str) -> str:
    """Return the text that was protected.

    >>> [restore_text(text) for text in ("'=1+1", "-1.5", "''=x", "'tis")]
    ['=1+1', '-1.5', "'=x", "'tis"]
    """
    return re.sub(PROTECTED, r"\1", text)


def format_cell(value: object) -> str:
    """Return a value as a cell: numbers in full, None as nothing, texts protected and quoted."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    text = protect_text(value)
    if NEEDS_QUOTES.search(text) is None:
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def format_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as the text of a CSV file.

    >>> format_csv([("label", "count"), ("=roar, low", 3)])
    'label,count\\n"\\'=roar, low",3\\n'
    """
    lines = [",".join(map(format_cell, cells)) for cells in rows]
    return "\n".join([*lines, ""])


def write_csv(rows: Iterable[Sequence[object]], path: Path) -> None:
    """Write rows as CSV; parts of file names that are no text are written as escapes."""
    content = format_csv(rows).encode("utf-8", "backslashreplace")
    path.write_bytes(content)


def write_csv_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame as CSV; numbers are written in full."""
    column = pl.col(pl.String)
    is_formula = column.str.contains(FORMULA) & ~column.str.contains(NUMBER)
    protected = pl.when(is_formula).then("'" + column).otherwise(column)
    frame.with_columns(protected.name.keep()).write_csv(path)


def restore_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame whose texts are as they were before they were written as CSV."""
    return frame.with_columns(pl.col(pl.String).str.replace(PROTECTED, "${1}"))
