"""What a table is, before anybody knows whether it will be LaTeX, Markdown, CSV or HTML."""

from collections.abc import Sequence
from dataclasses import dataclass


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


@dataclass(frozen=True)
class Table:
    """Rows of cells under columns. `name` is a file's stem, `title` a caption; the last `foot` rows are set apart.

    `notes` are pairs of a mark and its text.
    """

    name: str
    title: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]
    foot: int = 0
    notes: Sequence[tuple[str, str]] = ()
