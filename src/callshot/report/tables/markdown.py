"""A table → Markdown as GitHub shows it."""

import re
from collections.abc import Iterable, Iterator

from callshot.errors import printable
from callshot.report.tables.table import Cell, Table, kinds

ALIGN = {"number": "---:", "text": ":---", "mixed": "---:"}
# What a backslash does not tame: tags, entities, mathematics, mentions and (:name:) emoji.
ENTITIES = {c: f"&#{ord(c)};" for c in "<>&$@"}
ESCAPES = str.maketrans({**{c: "\\" + c for c in r"\`*_[]|~#"}, **ENTITIES})
TWICE = "Bold and underlined stands for underlined twice here."


def to_markdown(table: Table) -> str:
    """Return a table with its title above and its notes below.

    GitHub shows `<ins>` underlined, and knows no double underline: a cell that has one is bold, too.

    >>> from callshot.report.tables.table import Column
    >>> print(to_markdown(Table("t", "Two", [Column("a|b")], [[Cell("4", 4, 2, "⋆")]], notes=[("⋆", "k* = 4")])))
    **Two**
    <BLANKLINE>
    | a\\|b |
    | ---: |
    | <ins>**4**</ins><sup>⋆</sup> |
    <BLANKLINE>
    - ⋆ k\\* = 4
    - Bold and underlined stands for underlined twice here.
    <BLANKLINE>
    """
    lines = [f"**{_escape(table.title)}**", "", *_grid(table), "", *_notes(table)]
    return "\n".join(lines).rstrip() + "\n"


def _grid(table: Table) -> Iterator[str]:
    yield _row(_escape(column.whole) for column in table.columns)
    yield _row(ALIGN[kind] for kind in kinds(table))
    yield from (_row(map(_cell, row)) for row in table.rows)


def _notes(table: Table) -> Iterator[str]:
    yield from (f"- {_escape(f'{mark} {text}'.strip())}" for mark, text in table.notes)
    if any(cell.underline == 2 for row in table.rows for cell in row):
        yield f"- {TWICE}"


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = _escape(cell.text)
    lined = {1: f"<ins>{text}</ins>", 2: f"<ins>**{text}**</ins>"}.get(cell.underline, text)
    return lined + (f"<sup>{_escape(cell.mark)}</sup>" if cell.mark else "")


def _escape(text: str) -> str:
    return re.sub(r":(?=\w)", "&#58;", printable(text).translate(ESCAPES))
