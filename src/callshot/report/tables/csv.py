"""A table → CSV: one line of headings, numbers in full, missing numbers empty, no marks."""

import re
from collections.abc import Iterable

from callshot.report.tables.table import MISSING, Cell, Table

NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def to_csv(table: Table) -> str:
    """Return a table as CSV; a shared heading stands before the heading of a column.

    >>> from callshot.report.tables.table import Column, number
    >>> columns = [Column("k"), Column("mAP", "mfcc, v2")]
    >>> print(to_csv(Table("t", "", columns, [[Cell("1", 1), number(0.12345)]])))
    k,"mfcc, v2 mAP"
    1,0.12345
    <BLANKLINE>
    """
    lines = [_line(_quote(column.whole) for column in table.columns)]
    for first, *others in table.rows:
        fields = [_field(cell) for cell in others]
        # A label may look like a missing value: the first cell of a row is never missing.
        lines.append(_line([_field(first) or _quote(first.text), *fields]))
    return "".join(lines)


def _line(fields: Iterable[str]) -> str:
    return ",".join(fields) + "\n"


def _field(cell: Cell) -> str:
    if isinstance(cell.value, int):
        return str(cell.value)
    if cell.value is not None:
        return repr(float(cell.value))
    return "" if cell.text == MISSING else _quote(cell.text)


def _quote(text: str) -> str:
    if not NEEDS_QUOTES.search(text):
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'
