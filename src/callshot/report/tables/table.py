"""Tables before they become LaTeX, Markdown, CSV or HTML: columns, rows of cells, and notes."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from math import isfinite

MISSING = "–"


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
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    foot: int = 0
    notes: Sequence[tuple[str, str]] = ()
    blocks: bool = False


def number(value: float, decimals: int = 4, underline: int = 0) -> Cell:
    """Return a cell with a number; NaN and infinity are missing.

    >>> number(-0.38529).text, number(float("nan")).text, number(12, 0)
    ('−0.3853', '–', Cell(text='12', value=12, underline=0, mark=''))
    """
    if not isfinite(value):
        return Cell(MISSING)
    text = f"{value:z.{decimals}f}"
    return Cell(text.replace("-", "−"), value, underline)


def column_kinds(table: Table) -> list[str]:
    """Return "number", "text" or "mixed" for each column; missing cells do not count.

    >>> rows = [[number(1, 0), number(0.5)], [Cell("LR"), Cell("–")]]
    >>> column_kinds(Table("t", "", [Column("k"), Column("mAP")], rows))
    ['mixed', 'number']
    """
    kinds = []
    for index in range(len(table.columns)):
        cells = [row[index] for row in table.rows]
        kinds.append(_column_kind(cells))
    return kinds


def _column_kind(cells: Sequence[Cell]) -> str:
    shown = [cell for cell in cells if cell.text not in ("", MISSING)]
    texts = [cell for cell in shown if cell.value is None]
    if len(texts) == len(shown):
        return "text"
    return "mixed" if texts else "number"


def column_groups(columns: Sequence[Column]) -> Iterator[tuple[str, list[int]]]:
    """Yield each shared heading with the indices of its columns; "" for a column without one."""
    for heading, group in groupby(enumerate(columns), key=_group_of):
        indices = [index for index, _ in group]
        if heading:
            yield heading, indices
        else:
            for index in indices:
                yield "", [index]


def _group_of(numbered: tuple[int, Column]) -> str:
    _, column = numbered
    return column.group
