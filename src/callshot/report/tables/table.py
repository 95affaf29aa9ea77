"""What a table is, before anybody knows whether it will be LaTeX, Markdown, CSV or HTML."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

MISSING = "–"


@dataclass(frozen=True)
class Cell:
    """One entry: its text, the number it stands for where it is one, its underlines (0 to 2), and its mark.

    A mark, such as ⋆, refers to a note of the table.
    """

    text: str
    value: float | None = None
    underline: int = 0
    mark: str = ""


@dataclass(frozen=True)
class Column:
    """A column's heading, and the heading that it shares with its neighbours (an encoder, say), if any."""

    name: str
    group: str = ""

    @property
    def whole(self) -> str:
        """Return both headings in one, for formats that have a single line of them."""
        return f"{self.group} {self.name}" if self.group else self.name


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns. `name` is a file's stem, `title` a caption; the last `foot` rows are set apart.

    `notes` are pairs of a mark and its text; a note on the whole table has an empty mark. With `blocks`, the first
    column repeats over several rows, and may stand above them instead.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    foot: int = 0
    notes: Sequence[tuple[str, str]] = ()
    blocks: bool = False


def number(value: float, decimals: int = 4, underline: int = 0) -> Cell:
    """Return a cell with a number; one that is not finite is missing.

    >>> number(-0.38529).text, number(float("nan")).text, number(12, 0)
    ('−0.3853', '–', Cell(text='12', value=12, underline=0, mark=''))
    """
    if not isfinite(value):
        return Cell(MISSING)
    text = f"{value:z.{decimals}f}"
    return Cell(text.replace("-", "−"), value, underline)


def kinds(table: Table) -> list[str]:
    """Say of each column whether its cells are numbers, texts, or mixed; what is missing counts as either.

    >>> kinds(Table("t", "", [Column("k"), Column("mAP")], [[number(1, 0), number(0.5)], [Cell("LR"), Cell("–")]]))
    ['mixed', 'number']
    """
    return [
        _kind([row[n] for row in table.rows if row[n].text not in ("", MISSING)])
        for n in range(len(table.columns))
    ]


def _kind(cells: Sequence[Cell]) -> str:
    numbers = sum(cell.value is not None for cell in cells)
    return "text" if not numbers else "number" if numbers == len(cells) else "mixed"
