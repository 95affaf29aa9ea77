"""A table → CSV: one line of headings, numbers in full, nothing where a number is missing. Marks are left out."""

import re
from collections.abc import Iterable

from callshot.report.tables.table import MISSING, Cell, Table

NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')


def to_csv(table: Table) -> str:
    """Return a table as CSV; a shared heading stands before a column's own.

    >>> from callshot.report.tables.table import Column, number
    >>> print(to_csv(Table("t", "", [Column("k"), Column("mAP", "mfcc, v2")], [[Cell("1", 1), number(0.12345)]])))
    k,"mfcc, v2 mAP"
    1,0.12345
    <BLANKLINE>
    """
    head = _line(_quoted(column.whole) for column in table.columns)
    return head + "".join(
        _line(_field(cell, n == 0) for n, cell in enumerate(row)) for row in table.rows
    )


def _line(fields: Iterable[str]) -> str:
    return ",".join(fields) + "\n"


def _field(cell: Cell, leads: bool) -> str:
    """Return a cell; what leads a row is never missing: a label may look as if it were."""
    if cell.value is not None:
        return str(cell.value) if isinstance(cell.value, int) else repr(float(cell.value))
    return "" if cell.text == MISSING and not leads else _quoted(cell.text)


def _quoted(text: str) -> str:
    return '"' + text.replace('"', '""') + '"' if NEEDS_QUOTES.search(text) else text
