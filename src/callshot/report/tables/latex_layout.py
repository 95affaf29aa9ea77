"""A table → parts of it that each fit a page, and the widths of their columns.

Widths are estimates, in points at LaTeX's \\small: a writer that hands columns to LaTeX never learns the true ones.
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain, groupby
from math import ceil

from callshot.report.tables.latex_escape import MATH, TEXT
from callshot.report.tables.table import Column, Table, kinds

LETTER_PT, GAP_PT, CODE_PT = 4.6, 8.0, 42.0
NARROW, WIDE = frozenset("fijlrtI.,:;!'|()[] "), frozenset("mwMW@%")
KNOWN = frozenset((*TEXT, *MATH))
NARROWEST_PT, WIDEST_PT = 240.0, 470.0
WIDE_PT = 345.0  # from which on letters are smaller
MOST_LINES = 44
MOST_PT = {"text": 166.0, "mixed": 102.0, "number": 102.0}  # before a column is wrapped


def fit(table: Table) -> list[Table]:
    """Cut a table that is too wide between its groups of columns, and one that is too long between its rows."""
    parts = [part for across in _across(table) for part in _down(across)]
    if len(parts) == 1:
        return parts
    return [
        replace(part, title=f"{part.title} (part {n} of {len(parts)})")
        for n, part in enumerate(parts, 1)
    ]


def text_pt(text: str) -> float:
    """Estimate the width of a text in one line."""
    return sum(_letter_pt(letter) for letter in text)


def _letter_pt(letter: str) -> float:
    if letter in NARROW:
        return 0.65 * LETTER_PT
    if ord(letter) > 0x24F and letter not in KNOWN:
        return CODE_PT  # it may have to be told by its number
    return LETTER_PT * (1.75 if letter in WIDE else 1.45 if letter.isupper() else 1.0)


def widths_pt(table: Table) -> list[float]:
    """Estimate the width of each column, with the gap to the next one."""
    return [_width_pt(table, n, kind) for n, kind in enumerate(kinds(table))]


def _width_pt(table: Table, n: int, kind: str) -> float:
    texts = (table.columns[n].name, *(row[n].text for row in table.rows))
    return min(max(map(text_pt, texts)), MOST_PT[kind]) + GAP_PT


def column_groups(columns: Sequence[Column]) -> Iterator[tuple[str, list[int]]]:
    """Yield each shared heading with its columns; a column without one is a group of its own."""
    keys = ((column.group or n, n) for n, column in enumerate(columns))
    for key, members in groupby(keys, key=lambda pair: pair[0]):
        yield key if isinstance(key, str) else "", [n for _, n in members]


def _across(table: Table) -> list[Table]:
    """Deal the groups of columns out evenly, to as few parts as will do; what leads the rows leads them in each."""
    lead, widths = 2 if table.blocks else 1, widths_pt(table)
    groups = [columns for _, columns in column_groups(table.columns)][lead:]
    for parts in range(1, len(groups) + 1):
        each = ceil(len(groups) / parts)
        runs = [list(chain(*groups[start : start + each])) for start in range(0, len(groups), each)]
        if all(
            sum(widths[n] for n in (*range(int(table.blocks), lead), *run)) <= WIDEST_PT
            for run in runs
        ):
            break
    return [_select(table, [*range(lead), *run]) for run in runs] if groups else [table]


def _select(table: Table, columns: Sequence[int]) -> Table:
    rows = [[row[n] for n in columns] for row in table.rows]
    return replace(table, columns=[table.columns[n] for n in columns], rows=rows)


def _down(table: Table) -> Iterator[Table]:
    """Yield stretches of rows that fill a page with the notes below them; the foot stays at the foot."""
    start, lines, first_foot = 0, 0, len(table.rows) - table.foot
    width_pt = max(sum(widths_pt(table)[int(table.blocks) :]), NARROWEST_PT)
    notes = sum(ceil(text_pt(text) / width_pt) for _, text in table.notes)
    page = MOST_LINES * 6 // 5 if width_pt > WIDE_PT else MOST_LINES
    most = max(page - notes, page // 3)
    for n, height in enumerate(_heights(table)):
        if lines + height > most and n > start:
            yield _stretch(table, start, n, first_foot)
            start, lines = n, 0
        lines += height
    yield _stretch(table, start, len(table.rows), first_foot)


def _stretch(table: Table, start: int, end: int, first_foot: int) -> Table:
    return replace(table, rows=table.rows[start:end], foot=max(end - max(start, first_foot), 0))


def _heights(table: Table) -> Iterator[int]:
    """Estimate the lines of each row, with that of a block's name."""
    first, block = int(table.blocks), ""
    rooms = [MOST_PT[kind] for kind in kinds(table)][first:]
    for row in table.rows:
        new = table.blocks and row[0].text != block
        block = row[0].text
        cells = zip(row[first:], rooms, strict=True)
        yield max(1, *(ceil(text_pt(cell.text) / room) for cell, room in cells)) + (2 if new else 0)
