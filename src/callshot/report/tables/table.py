"""Tables: columns, rows of cells and notes."""

import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite
from typing import TypeVar

MISSING = "–"
Note = tuple[str, str]  # a mark, and its text


@dataclass(frozen=True)
class Cell:
    """One entry of a table.

    `value` is the number behind the text, None for words. `underline` is 0, 1 or 2. `mark`, such as
    ⋆, refers to a note of the table.
    """

    text: str
    value: float | None = None
    underline: int = 0
    mark: str = ""


Row = list[Cell]
Value = Cell | str | float | None


@dataclass(frozen=True)
class Column:
    """The heading of a column, and one that it shares with its neighbours (an encoder, say)."""

    name: str
    group: str = ""

    @property
    def whole(self) -> str:
        """Both headings in one, for formats with a single line of headings."""
        return f"{self.group} {self.name}" if self.group else self.name


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns.

    `name` is the stem of a file, `title` a caption. The last `foot` rows are set apart. `notes` are
    pairs of a mark and its text; notes on the whole table have an empty mark. With `blocks`, the
    first column repeats over several rows, and formats may show it as a heading above them.
    `section` is the part of the page that shows the table.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    foot: int = 0
    notes: Sequence[tuple[str, str]] = ()
    blocks: bool = False
    section: str = ""


TableBuilder = Callable[..., Table | None]
Builder = TypeVar("Builder", bound=TableBuilder)
STUDY_TABLES: list[TableBuilder] = []  # by all results
CORPUS_TABLES: list[TableBuilder] = []  # by the results of a corpus, shots and a spread


def table_of_study(build: Builder) -> Builder:
    """Register a table of all corpora, by `build(all_results)`."""
    STUDY_TABLES.append(build)
    return build


def table_of_corpus(build: Builder) -> Builder:
    """Register a table of each corpus, by `build(results, shots, spread)`; None without data."""
    CORPUS_TABLES.append(build)
    return build


def number(value: float, decimals: int = 4, underline: int = 0) -> Cell:
    """Return a cell with a number; NaN and infinity are missing.

    >>> number(-0.38529).text, number(float("nan")).text, number(12, 0)
    ('−0.3853', '–', Cell(text='12', value=12, underline=0, mark=''))
    """
    if not isfinite(value):
        return Cell(MISSING)
    text = f"{value:z.{decimals}f}"
    return Cell(text.replace("-", "−"), value, underline)


def make_cell(value: Value) -> Cell:
    """Return a cell: a count without decimals, a measurement with two, or a text.

    >>> make_cell(12).text, make_cell(0.5).text, make_cell(None).text
    ('12', '0.50', '–')
    """
    if isinstance(value, Cell):
        return value
    if isinstance(value, int | float):
        return number(value, 0 if isinstance(value, int) else 2)
    return Cell(MISSING if value is None else value)


def make_rows(rows: Iterable[Iterable[Value]]) -> list[Row]:
    """Return rows of cells from rows of values."""
    return [list(map(make_cell, row)) for row in rows]


def number_columns(table: Table) -> list[bool]:
    """Return whether each column has a number.

    >>> rows = [[number(1, 0), Cell("a")], [Cell("LR"), Cell("–")]]
    >>> number_columns(Table("t", "", [Column("k"), Column("how")], rows))
    [True, False]
    """
    indices = range(len(table.columns))
    return [any(row[i].value is not None for row in table.rows) for i in indices]


def column_groups(columns: Sequence[Column]) -> Iterator[tuple[str, list[int]]]:
    """Yield each shared heading with the indices of its columns; "" for a column without one."""
    numbered = enumerate(columns)
    for heading, group in groupby(numbered, key=lambda pair: pair[1].group):
        indices = [index for index, _ in group]
        if heading:
            yield heading, indices
        else:
            yield from (("", [index]) for index in indices)


MAX_NAME = 60


def safe_name(name: str, default: str = "corpus") -> str:
    """Return a name in lower-case ASCII letters, digits and hyphens; `default` if none is left.

    >>> safe_name("Éléphants / Parc n° 3"), safe_name("../.."), safe_name("象")
    ('elephants-parc-n-3', 'corpus', 'corpus')
    """
    decomposed = unicodedata.normalize("NFKD", name)
    ascii_name = decomposed.encode("ascii", "ignore").decode()
    hyphenated = re.sub(r"[^a-z0-9]+", "-", ascii_name.lower())
    cropped = hyphenated.strip("-")[:MAX_NAME]
    return cropped.rstrip("-") or default


def safe_names(names: Sequence[str], default: str = "corpus") -> list[str]:
    """Return a safe name for each name, in the same order; equal ones are numbered.

    >>> safe_names(["a b", "A/B", "a-b-2", "c"])
    ['a-b', 'a-b-2', 'a-b-2-2', 'c']
    """
    unique = []
    for text in names:
        name = candidate = safe_name(text, default)
        count = 1
        while candidate in unique:
            count += 1
            candidate = f"{name}-{count}"
        unique.append(candidate)
    return unique
