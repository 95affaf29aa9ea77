"""Small tables of text, as spreadsheets and R write them → rows by column.

Separators and encodings are found as for annotations: commas, semicolons or tabs, `sep=;`, UTF-8 or
Windows-1252.
"""

from collections.abc import Sequence
from pathlib import Path

from callshot.corpus.annotations.text import (
    has_row_names,
    read_table,
    read_text,
    split_off_separator,
)
from callshot.errors import InputError
from callshot.records.columns import check_columns
from callshot.tables.embedding_tables import check_repeated


def read_csv_records(path: Path, required: Sequence[str]) -> list[dict[str, str]]:
    """Return the rows of a table by column; raise if it has none, or a column is missing."""
    header, rows = _read_rows(path)
    check_columns(path, header, required)
    named = list(filter(None, header))  # columns without a name are not read
    check_repeated(path, header, named)
    if not rows:
        raise InputError(f"{path}: the file has no rows")
    for number, cells in enumerate(rows, 1):
        if len(cells) != len(header):
            raise InputError(
                f"{path}: row {number}: expected {len(header)} fields as in the header, "
                f"got {len(cells)}"
            )
    return [dict(zip(header, cells, strict=True)) for cells in rows]


def _read_rows(path: Path) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows; the names that R gives to rows have a column without name."""
    delimiter, text, first_line = split_off_separator(read_text(path, []))
    lines = read_table(path, text, delimiter, first_line)
    _, header = next(lines, (1, []))
    rows = [cells for _, cells in lines]
    if has_row_names(header, rows):
        header = ["", *header]
    return header, rows
