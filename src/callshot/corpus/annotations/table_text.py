"""Text of tables with separators: find the separator, split rows into cells.

Separators are commas, semicolons or tabs, spaces in tables of R, or what the first line says.
"""

import csv
import io
import re
from collections import deque
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from callshot.errors import InputError
from callshot.records.csv_cells import restore_text

DELIMITERS = ("\t", ";", ",")
SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?(?:\r\n|\r|\n|$)', re.IGNORECASE)
ESCAPED_QUOTE = '\\"'  # as R writes it
QUOTED_BY_SPACES = re.compile(r'(?:"[^"\r\n]*" )+"[^"\r\n]*"[\r\n]')


def split_off_separator(text: str) -> tuple[str, str, int]:
    """Return the delimiter, the table, and the line that the table begins on.

    The first line may name the delimiter, as Excel takes it: `sep=;`. Tables of R are separated by
    spaces if all names in their header are quoted.
    """
    line = SEPARATOR_LINE.match(text)
    if line is not None:
        delimiter = line[1]
        return delimiter, _double_quotes(text[line.end() :], delimiter), 2
    delimiter = " "
    if QUOTED_BY_SPACES.match(text) is None:
        delimiter = max(DELIMITERS, key=lambda mark: len(first_row(text, mark)))
    return delimiter, _double_quotes(text, delimiter), 1


def _double_quotes(text: str, delimiter: str) -> str:
    r"""Double the quotes inside quoted cells before which R puts a backslash.

    >>> _double_quotes(r'"a \"low\" call",1', ",")
    '"a ""low"" call",1'
    """
    if ESCAPED_QUOTE not in text:
        return text
    try:
        deque(_open_reader(text, delimiter), maxlen=0)
    except csv.Error:
        return text.replace(ESCAPED_QUOTE, '""')
    return text  # a backslash at the end of a cell, as in a path


def first_row(text: str, delimiter: str) -> list[str]:
    """Return the first row that is not empty; an empty one if the text is no table."""
    try:
        return next(filter(any, _open_reader(text, delimiter)), [])
    except csv.Error:
        return []


def _open_reader(text: str, delimiter: str) -> Any:
    """Open a csv reader for fields of any size; the limit is global and only ever raised."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def read_table(
    path: Path, text: str, delimiter: str, first_line: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, with the line that each begins on."""
    reader = _open_reader(text, delimiter)
    line = first_line
    try:
        for cells in reader:
            if any(cells):
                yield line, [restore_text(cell) for cell in cells]
            line = reader.line_num + first_line
    except csv.Error as error:
        raise InputError(
            f"{path}: line {line}: the row that begins here has a wrong quote ({error}); "
            "close every quote, and double those inside a quoted field"
        ) from None


def has_row_names(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether rows begin with a name, for which R writes no name of a column."""
    width = len(header) + 1
    if not rows or any(len(cells) != width for cells in rows):
        return False
    names = {cells[0] for cells in rows}
    has_unique_names = len(names) == len(rows)
    return has_unique_names and any(cells[-1] for cells in rows)
