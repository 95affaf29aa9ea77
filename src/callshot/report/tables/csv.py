"""A table → CSV: one line of headings, numbers in full, missing numbers empty, no marks."""

from collections.abc import Sequence

from callshot.records.csv_cells import format_csv
from callshot.report.tables.table import MISSING, Cell, Table


def to_csv(table: Table) -> str:
    """Return a table as CSV; a shared heading stands before the heading of a column.

    >>> from callshot.report.tables.table import Column, number
    >>> columns = [Column("k"), Column("mAP", "mfcc, v2")]
    >>> print(to_csv(Table("t", "", columns, [[Cell("1", 1), number(0.12345)]])))
    k,"mfcc, v2 mAP"
    1,0.12345
    <BLANKLINE>
    """
    rows: list[Sequence[object]] = [[column.whole for column in table.columns]]
    for cells in table.rows:
        values = [_value(cell) for cell in cells]
        if values[0] is None:  # a label that looks like a missing value
            values[0] = cells[0].text
        rows.append(values)
    return format_csv(rows)


def _value(cell: Cell) -> int | float | str | None:
    """Return the value of a cell; None if it is missing."""
    if isinstance(cell.value, int):
        return cell.value
    if cell.value is not None:
        return float(cell.value)
    return None if cell.text == MISSING else cell.text
