"""A table → Markdown as GitHub shows it."""

import re
from collections.abc import Iterable, Iterator
from itertools import chain

from callshot.errors import printable
from callshot.report.tables.table import Cell, Table, column_kinds

ALIGN = {"number": "---:", "text": ":---", "mixed": "---:"}
UNDERLINE = ("{}", "<ins>{}</ins>", "<ins>**{}**</ins>")
UNDERLINED_TWICE = "Bold and underlined stands for underlined twice here."
# A backslash does not stop tags, entities, formulas, mentions and (:name:) emoji.
ENTITIES = {character: f"&#{ord(character)};" for character in "<>&$@"}
BACKSLASHES = {character: f"\\{character}" for character in r"\`*_[]|~#"}
ESCAPES = str.maketrans({**ENTITIES, **BACKSLASHES})


def to_markdown(table: Table) -> str:
    """Return a table with its title above and its notes below.

    GitHub shows `<ins>` underlined and has no double underline: such cells are bold, too.

    >>> from callshot.report.tables.table import Column
    >>> rows = [[Cell("4", 4, 2, "⋆")]]
    >>> print(to_markdown(Table("t", "Two", [Column("a|b")], rows, notes=[("⋆", "k* = 4")])))
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
    title = _escape(table.title)
    lines = [f"**{title}**", "", *_rows(table), "", *_notes(table)]
    return "\n".join(lines).rstrip() + "\n"


def _rows(table: Table) -> Iterator[str]:
    headings = [_escape(column.whole) for column in table.columns]
    alignments = [ALIGN[kind] for kind in column_kinds(table)]
    yield _row(headings)
    yield _row(alignments)
    for cells in table.rows:
        yield _row(map(_cell, cells))


def _row(cells: Iterable[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = UNDERLINE[cell.underline].format(_escape(cell.text))
    if cell.mark:
        text += f"<sup>{_escape(cell.mark)}</sup>"
    return text


def _notes(table: Table) -> Iterator[str]:
    for mark, text in table.notes:
        note = f"{mark} {text}".strip()
        yield f"- {_escape(note)}"
    cells = chain.from_iterable(table.rows)
    if any(cell.underline == 2 for cell in cells):
        yield f"- {UNDERLINED_TWICE}"


def _escape(text: str) -> str:
    escaped = printable(text).translate(ESCAPES)
    return re.sub(r":(?=\w)", "&#58;", escaped)
