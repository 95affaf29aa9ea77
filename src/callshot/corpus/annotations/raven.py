"""Raven's selection tables: a table separated by tabs comes in, annotations go out, and back.

A table of many sounds names each selection's file, and where in that file it begins. A selection that is listed once
for each view of the sound is one annotation.
"""

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from callshot.corpus.annotations.columns import (
    carried_along,
    carry,
    even,
    find_column,
    listed,
    mapped_column,
    plain,
    read_header,
)
from callshot.corpus.annotations.rows import Hints, Rows, Unfit, number
from callshot.corpus.annotations.text import pictured, read_text, shown, split_lines, unpictured
from callshot.corpus.annotations.writing import carried, float_text, refuse_strangers, refuse_taken
from callshot.errors import InputError
from callshot.records import Annotation

BEGIN, END, OFFSET = "Begin Time (s)", "End Time (s)", "File Offset (s)"
BAND = ("Low Freq (Hz)", "High Freq (Hz)")
# Where people keep the label, in the order in which columns are taken.
LABELS = (
    *(
        "Annotation",
        "Annotations",
        "Label",
        "Labels",
        "Call Type",
        "Species",
        "Common Name",
        "Species Code",
    ),
    *(
        "Scientific Name",
        "Species Name",
        "Call",
        "Type",
        "Sound Type",
        "Class",
        "Category",
        "Tags",
        "Tag",
        "Code",
    ),
)
# Raven's own columns that do not end in a unit.
OWN = {
    *(
        "selection",
        "view",
        "channel",
        "beginfile",
        "endfile",
        "beginpath",
        "endpath",
        "begindate",
        "enddate",
    ),
    *(
        "beginclocktime",
        "endclocktime",
        "begindatetime",
        "enddatetime",
        "fileoffset",
        "score",
        "occupancy",
        "length",
    ),
}
REPLACED = {
    "selection",
    "view",
    "channel",
    "beginfile",
    "beginpath",
    "fileoffsets",
    "lowfreqhz",
    "highfreqhz",
}
MAY_BE_CHANCE = (
    4  # files whose times run on from one to the next, and may yet be those of each file
)
UNIT = re.compile(r"\([^()]*\)$")


@dataclass(frozen=True)
class Layout:
    """Which column of a selection table is which, and which are only carried along."""

    names: list[str]
    columns: dict[str, int]
    others: dict[int, str]
    label: str | None

    def cell(self, cells: Sequence[str], name: str) -> str | None:
        """Return a row's cell, or None where there is no such column."""
        return cells[self.columns[name]] if name in self.columns else None


def recognise(path: Path, head: str, hints: Hints) -> str | None:
    """See whether the first line is the header of a selection table."""
    lines = (line for line in split_lines(head) if line.strip())
    names = {plain(name) for name in next(lines, "").split("\t")}
    return f"its header has Selection and {BEGIN}" if {"selection", plain(BEGIN)} <= names else None


def read(rows: Rows, hints: Hints) -> None:
    """Read a selection table; a selection that is there in several views is read from one."""
    text, notes = read_text(rows.path)
    rows.notes += notes
    lines = [(i, line) for i, line in enumerate(split_lines(text), start=1) if line.strip()]
    line, header = lines[0] if lines else (1, "")
    table = [[unpictured(cell) for cell in row.split("\t")] for _, row in lines[1:]]
    layout = _lay_out(rows, line, header.split("\t"), hints, empty=not table)
    _doubt_times(rows, layout, table)
    dropped = _other_views(layout, table)
    if dropped:
        rows.notes.append(
            f"{len(dropped)} rows are further views of selections and were not counted twice"
        )
    for row, cells in enumerate(table, start=1):
        if row not in dropped:
            with rows.judging(row):
                _add(rows, row, layout, even(layout.names, cells))


def _doubt_times(rows: Rows, layout: Layout, table: list[list[str]]) -> None:
    """Note that times of several files are taken to begin anew with each; refuse them where they plainly run on."""
    if "path" not in layout.columns or OFFSET in layout.columns:
        return
    ends: dict[str, float] = {}
    runs_on = True
    for cells in table:
        with suppress(Unfit, IndexError):
            name, begin_s = (
                cells[layout.columns["path"]],
                number(cells[layout.columns[BEGIN]], BEGIN),
            )
            runs_on = runs_on and all(
                begin_s >= end_s for other, end_s in ends.items() if other != name
            )
            ends[name] = max(number(cells[layout.columns[END]], END), ends.get(name, 0.0))
    if len(ends) > MAY_BE_CHANCE and runs_on:
        raise InputError(
            f"{rows.path}: line 1: {len(ends)} files are named, times run on from one to the next, and there is no "
            f"column {OFFSET}; add that measurement in Raven and save the table again"
        )
    if len(ends) > 1:
        rows.notes.append(f"no column {OFFSET}: times are taken to begin anew with each file")


def _lay_out(rows: Rows, line: int, header: list[str], hints: Hints, *, empty: bool) -> Layout:
    names = read_header(rows.path, line, [unpictured(name) for name in header])
    found = {name: find_column(names, [name]) for name in ("Selection", "View", BEGIN, END, OFFSET)}
    for name in (BEGIN, END):
        if found[name] is None:
            raise InputError(
                f"{rows.path}: line {line}: column {name} is missing; there are {listed(names)}"
            )
    found["path"] = find_column(
        names, [hints.columns.get("path", "Begin Path"), "Begin Path", "Begin File"]
    )
    found["file"] = find_column(names, ["Begin File"])
    found["label"] = None if empty else _label_column(rows, line, names, hints)
    columns = {name: i for name, i in found.items() if i is not None}
    used = {i for name, i in columns.items() if name not in ("Selection", "View")}
    return Layout(names, columns, carried_along(rows.path, line, names, used), hints.label)


def _label_column(rows: Rows, line: int, names: list[str], hints: Hints) -> int | None:
    """Find the labels: where the user says, under a usual name, or in the only column that is not Raven's own."""
    if "label" in hints.columns:
        return mapped_column(rows.path, line, names, "label", hints.columns["label"])
    strange = [
        i for i, name in enumerate(names) if plain(name) not in OWN and not UNIT.search(name)
    ]
    found = find_column(names, LABELS)
    if found is None and len(strange) == 1:
        found = strange[0]
    if found is not None:
        rows.notes.append(f"labels from column {shown(names[found])}")
    elif hints.label is None:
        text = (
            f"no column is known to hold the label; name it (--columns label=…), or give one label for all rows "
            f"(--label …); there are {listed(names)}"
        )
        raise InputError(f"{rows.path}: line {line}: {text}")
    return found


def _other_views(layout: Layout, table: list[list[str]]) -> set[int]:
    """Return the rows that show a selection again in another view, the first spectrogram being the one to keep."""
    kept: dict[tuple[str | None, ...], str] = {}
    seen = []
    for row, cells in enumerate(table, start=1):
        if (
            "View" in layout.columns
            and len(cells) >= len(layout.names)
            and layout.cell(cells, "Selection")
        ):
            key = tuple(
                layout.cell(cells, name) for name in ("path", "Selection", BEGIN, END, OFFSET)
            )
            view = layout.cell(cells, "View") or ""
            seen.append((row, key, view))
            if key not in kept or (_spectrogram(view) and not _spectrogram(kept[key])):
                kept[key] = view
    return {row for row, key, view in seen if view != kept[key]}


def _spectrogram(view: str) -> bool:
    return view.strip().lower().startswith("spectrogram")


def _add(rows: Rows, row: int, layout: Layout, cells: list[str]) -> None:
    path, label = layout.cell(cells, "path"), layout.cell(cells, "label")
    if path is not None and not path.strip():
        path = layout.cell(cells, "file") or ""
        if not path.strip():
            raise Unfit("no recording named")
    start_s, end_s = _span(layout, cells)
    label = (layout.label or "") if label is None else label
    rows.add(row, label, start_s, end_s, path=path, more=carry(layout.others, cells))


def _span(layout: Layout, cells: list[str]) -> tuple[float, float]:
    """Return the times in the recording: those in the table, moved to where the selection begins in its file.

    They are moved as the decimals that they are written in, so that 3600.1 to 3600.4 at 0.1 is 0.1 to 0.4.
    """
    start_s, end_s = (number(cells[layout.columns[name]], name) for name in (BEGIN, END))
    offset = layout.cell(cells, OFFSET)
    if offset is None:
        return start_s, end_s
    offset_s = number(offset, OFFSET)
    moved = Decimal(repr(offset_s)) + (Decimal(repr(end_s)) - Decimal(repr(start_s)))
    return offset_s, float(moved)


def write(annotations: Sequence[Annotation], path: Path) -> str:
    """Write a selection table; of many recordings, each row names its own. A group of recordings has no place in it."""
    refuse_strangers(annotations, path, "a selection table", recordings=None)
    many = len({one.path for one in annotations}) > 1
    if many and any(one.path is None for one in annotations):
        refuse_strangers(annotations, path, "a selection table without Begin File", recordings=1)
    own = [
        "Selection",
        "View",
        "Channel",
        BEGIN,
        END,
        *BAND,
        *(["Begin File", OFFSET] if many else []),
        "Annotation",
    ]
    more = [name for name in carried(annotations) if plain(name) not in REPLACED]
    refuse_taken(own, more, path)
    table = [[*own, *more]]
    for i, one in enumerate(annotations, start=1):
        table.append([*_cells(i, one, many=many), *(_text(one.extra.get(name)) for name in more)])
    return "".join("\t".join(map(pictured, row)) + "\n" for row in table)


def _cells(selection: int, one: Annotation, *, many: bool) -> list[str]:
    start = float_text(one.start_s)
    seen = [_text(one.extra.get("View")) or "Spectrogram 1", _text(one.extra.get("Channel")) or "1"]
    band = [float_text(one.extra.get(name)) for name in ("low_freq_hz", "high_freq_hz")]
    place = [one.path or "", start] if many else []
    return [str(selection), *seen, start, float_text(one.end_s), *band, *place, one.label]


def _text(value: object) -> str:
    return "" if value is None else str(value)
