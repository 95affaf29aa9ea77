"""Records → rows of CSV, one column for each of their fields, and back to equal records.

Numbers are written in full; NaN is NaN, and None is nothing.
"""

import csv
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar, get_type_hints

import numpy as np

from callshot.errors import InputError

Columns = dict[str, Sequence[Any]]
T = TypeVar("T")

READERS: dict[Any, Callable[[str], Any]] = {
    str: str,
    int: int,
    float: float,
    bool: {"true": True, "false": False}.__getitem__,
    int | None: lambda text: int(text) if text else None,
}
NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')
AGAIN = "make it again"


def write_records(record: type[T], rows: Sequence[T], path: Path) -> None:
    """Write records of one kind, with the names of their fields above."""
    write_columns(columns_of(get_type_hints(record), rows), path)


def read_records(path: Path, record: type[T]) -> list[T]:
    """Return the records that `write_records` wrote."""
    return [record(**row) for row in read_rows(path, get_type_hints(record))]


def columns_of(names: Iterable[str], rows: Sequence[object]) -> Columns:
    """Return some fields of records as columns."""
    return {name: [getattr(row, name) for row in rows] for name in names}


def write_columns(columns: Columns, path: Path) -> None:
    """Write columns below their names."""
    rows = zip(*([_cell(value) for value in column] for column in columns.values()), strict=True)
    with path.open("w", encoding="utf-8", newline="\n") as file:
        file.writelines(",".join(row) + "\n" for row in chain([tuple(columns)], rows))


def read_rows(path: Path, kinds: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the rows that `write_columns` wrote; `kinds` gives the type of each column.

    Refused: other columns, and cells of another type.
    """
    try:
        with path.open(encoding="utf-8", newline="") as file:
            rows = csv.reader(file)
            if (head := next(rows, [])) != list(kinds):
                raise InputError(
                    f"{path}: wanted the columns {', '.join(kinds)}, found {', '.join(head)}; {AGAIN}"
                )
            readers = {name: READERS[kind] for name, kind in kinds.items()}
            return [_read_row(path, number, row, readers) for number, row in enumerate(rows, 1)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot be read ({error}); {AGAIN}") from None


def _read_row(
    path: Path, number: int, row: Sequence[str], readers: Mapping[str, Callable[[str], Any]]
) -> dict[str, Any]:
    try:
        return {name: read(cell) for (name, read), cell in zip(readers.items(), row, strict=True)}
    except (ValueError, KeyError) as error:
        raise InputError(
            f"{path}: row {number}: not as it was written ({error}); {AGAIN}"
        ) from None


def _cell(value: object) -> str:
    """Return a value as text that reads back as the same value."""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"' if NEEDS_QUOTES.search(value) else value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value)) if value == value else "NaN"
    return "" if value is None else str(value)
