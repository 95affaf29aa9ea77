"""A table → CSV: one line of headings, numbers in full, missing numbers empty, no marks."""

import re

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
    headings = [_quote(column.whole) for column in table.columns]
    lines = [headings]
    for cells in table.rows:
        fields = [_field(cell) for cell in cells]
        if not fields[0]:  # a label that looks like a missing value
            fields[0] = _quote(cells[0].text)
        lines.append(fields)
    return "".join(",".join(fields) + "\n" for fields in lines)


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
