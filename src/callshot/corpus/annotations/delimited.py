"""Tables with a header, separated by commas, tabs or semicolons: a file comes in, annotations go out, and back to CSV.

    path        the audio file; where there is none, `recording` is
    recording   the group of recordings that must stay together, beside `path`
    start_s     seconds; both times empty, or no column for either: the label is on the whole recording
    end_s
    label
    fold        integer, optional

Other columns are carried along. Columns may have the names that other tools give them, which `SYNONYMS` lists.
"""

import csv
import io
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from callshot.corpus.annotations.columns import (
    CARRIED,
    carried_along,
    carry,
    even,
    find_column,
    listed,
    mapped_column,
    nearest,
    read_header,
)
from callshot.corpus.annotations.rows import Hints, Rows, Unfit, number
from callshot.corpus.annotations.text import read_text, shown
from callshot.corpus.annotations.writing import carried, float_text, refuse_taken
from callshot.errors import InputError, OptionError, OutputError
from callshot.records import Annotation, Cell

# Ours, then what other tools write, in the order in which they are taken; without case, space and punctuation.
SYNONYMS = {
    "path": (
        *(
            "path",
            "notated_path",
            "begin_path",
            "begin_file",
            "sound_file",
            "sound_files",
            "source_file",
            "audio_file",
        ),
        *(
            "audio_path",
            "audio_filename",
            "file",
            "filename",
            "file_name",
            "file_path",
            "filepath",
            "wav_file",
            "audio",
        ),
    ),
    "recording": ("recording", "recording_id", "recording_name"),
    "start_s": (
        *(
            "start_s",
            "start_time_s",
            "start_time",
            "start_seconds",
            "start_sec",
            "start",
            "begin_s",
            "begin_time_s",
        ),
        *(
            "begin_time",
            "begin_seconds",
            "begin",
            "onset_s",
            "onset_time",
            "onset_seconds",
            "onset",
            "tmin",
            "xmin",
        ),
    ),
    "end_s": (
        *(
            "end_s",
            "end_time_s",
            "end_time",
            "end_seconds",
            "end_sec",
            "end",
            "stop_s",
            "stop_time",
            "stop_seconds",
        ),
        *("stop", "offset_s", "offset_time", "offset_seconds", "offset", "tmax", "xmax"),
    ),
    "start_frame": ("start_frame", "start_sample", "begin_sample", "onset_sample", "onset_frame"),
    "end_frame": ("end_frame", "end_sample", "stop_sample", "offset_sample", "offset_frame"),
    "label": (
        *(
            "label",
            "call_type",
            "call",
            "annotation",
            "species",
            "species_code",
            "common_name",
            "scientific_name",
        ),
        *("ebird_code", "primary_label", "class", "category", "type", "tag", "text", "name"),
    ),
    "low_freq_hz": ("low_freq_hz",),
    "high_freq_hz": ("high_freq_hz",),
    "fold": ("fold",),
}
SECONDS, FRAMES = ("start_s", "end_s"), ("start_frame", "end_frame")
DELIMITERS = ("\t", ";", ",")
TIMELY = re.compile(r"\s*\d[\d.,:]*\s*")


@dataclass(frozen=True)
class Layout:
    """How a table is laid out: its names, which column is which, and what is only carried along."""

    names: list[str]
    columns: dict[str, int]
    others: dict[int, str]
    comma: bool
    label: str | None

    @property
    def times(self) -> tuple[str, str]:
        """The columns that hold the times."""
        return FRAMES if FRAMES[0] in self.columns else SECONDS


def recognise(path: Path, head: str, hints: Hints) -> str | None:
    """See whether the header names times, labels or recordings, and two of these at least."""
    header = _header(head)
    columns = _find(header, hints)
    timed = any({*pair} <= columns.keys() for pair in (SECONDS, FRAMES))
    labelled = "label" in columns or hints.label is not None
    if timed + labelled + bool(columns.keys() & {"path", "recording"}) < 2:
        return None
    return f"its header has {' and '.join(header[i].strip() for i in sorted(columns.values()))}"


def _header(text: str) -> list[str]:
    """Return the first row that holds something, split by the delimiter that makes the most of it."""
    return max((_first_row(text, delimiter) for delimiter in DELIMITERS), key=len)


def _first_row(text: str, delimiter: str) -> list[str]:
    try:
        return next(filter(any, _reader(text, delimiter)), [])
    except csv.Error:
        return []


def _reader(text: str, delimiter: str) -> Any:
    """Open the csv module's reader; its limit on the size of a field is the module's own and is only ever raised."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def _find(header: Sequence[str], hints: Hints) -> dict[str, int]:
    """Find our columns: those that the user named, then those that have a name we know."""
    named = ((ours, find_column(header, [theirs])) for ours, theirs in hints.columns.items())
    columns = {ours: i for ours, i in named if i is not None and ours in SYNONYMS}
    for ours, names in SYNONYMS.items():
        found = None if ours in columns else find_column(header, names, columns.values())
        if found is not None:
            columns[ours] = found
    spare = FRAMES if columns.keys() & {*SECONDS} else ()
    return {ours: i for ours, i in columns.items() if ours not in spare}


def read(rows: Rows, hints: Hints) -> None:
    """Read a table; each row becomes an annotation or a reject."""
    text, notes = read_text(rows.path)
    rows.notes += notes
    delimiter = max(DELIMITERS, key=lambda mark: len(_first_row(text, mark)))
    table = table_rows(rows.path, text, delimiter)
    line, header = next(table, (1, []))
    layout = _lay_out(rows.path, line, header, hints, comma=delimiter != ",")
    rows.notes += _decided(layout)
    for row, (_, cells) in enumerate(table, start=1):
        with rows.judging(row):
            _add(rows, row, layout, even(layout.names, cells))
    if layout.times[0] not in layout.columns:
        _refuse_missed_times(rows, line, layout)


def _refuse_missed_times(rows: Rows, line: int, layout: Layout) -> None:
    """Refuse a list of clips that names one twice and has two columns that may be times: it is no list of clips."""
    places = [one.path for one in rows.annotations]
    if len(set(places)) == len(places):
        return
    cells = {
        name: [one.extra.get(name) for one in rows.annotations] for name in layout.others.values()
    }
    timely = [
        name
        for name, column in cells.items()
        if all(isinstance(c, str) and TIMELY.fullmatch(c) for c in column)
    ]
    if len(timely) > 1:
        raise InputError(
            f"{rows.path}: line {line}: recordings are named twice, and no column is known to be start_s or end_s; "
            f"name them (--columns start_s=… --columns end_s=…, in seconds); {listed(timely)} may be times"
        )


def table_rows(path: Path, text: str, delimiter: str) -> Iterator[tuple[int, list[str]]]:
    """Go through the rows that hold something, with the line on which each begins."""
    reader, line = _reader(text, delimiter), 1
    try:
        for cells in reader:
            if any(cells):
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        wanted = "in the row that begins here, wanted quotes that are closed, and doubled inside a quoted field"
        raise InputError(f"{path}: line {line}: {wanted} ({error})") from None


def _lay_out(path: Path, line: int, header: list[str], hints: Hints, *, comma: bool) -> Layout:
    names = read_header(path, line, header)
    for ours, theirs in hints.columns.items():
        if ours not in SYNONYMS:
            raise OptionError(f"column {ours!r} is not one of ours; {nearest(ours, [*SYNONYMS])}")
        mapped_column(path, line, names, ours, theirs)
    columns = _find(names, hints)
    _refuse_half(path, line, names, columns)
    if "label" not in columns and hints.label is None:
        mend = "name it (--columns label=…), or give one label for all rows (--label …)"
        raise InputError(
            f"{path}: line {line}: no column holds the label; {mend}; there are {listed(names)}"
        )
    used = [i for ours, i in columns.items() if ours not in CARRIED.values()]
    named = {i: ours for ours, i in columns.items()}
    others = carried_along(path, line, [named.get(i, name) for i, name in enumerate(names)], used)
    return Layout(names, columns, others, comma, hints.label)


def _refuse_half(path: Path, line: int, names: Sequence[str], columns: dict[str, int]) -> None:
    for pair in (SECONDS, FRAMES):
        for here, lacking in (pair, pair[::-1]):
            if here in columns and lacking not in columns:
                found = f"column {shown(names[columns[here]])} is {here}, but none is {lacking}"
                raise InputError(
                    f"{path}: line {line}: {found}; name it, or remove both; there are {listed(names)}"
                )


def _decided(layout: Layout) -> Iterator[str]:
    """Note what was decided for the user."""
    name = layout.names[layout.columns["label"]] if "label" in layout.columns else None
    if name is None:
        yield f"no label column: every row is {shown(layout.label or '')}"
    elif name != "label":
        yield f"labels from column {shown(name)}"
    if layout.times[0] not in layout.columns:
        yield "no time columns: each row is a whole recording"


def _add(rows: Rows, row: int, layout: Layout, cells: list[str]) -> None:
    cell = {ours: cells[i] for ours, i in layout.columns.items()}
    path = cell.get("path", cell.get("recording"))
    if path is not None and not path.strip():
        raise Unfit("no recording named")
    rows.add(
        row,
        cell.get("label", layout.label or ""),
        *_times(cell, layout),
        path=path,
        recording=(cell.get("recording") or None) if "path" in cell else None,
        in_frames=layout.times == FRAMES,
        more=carry(layout.others, cells, comma=layout.comma),
    )


def _times(cell: dict[str, str], layout: Layout) -> tuple[float, float | None]:
    start, end = layout.times
    if not cell.get(start, "").strip() and not cell.get(end, "").strip():
        return 0.0, None
    return number(cell[start], start, comma=layout.comma), number(
        cell[end], end, comma=layout.comma
    )


def write(annotations: Sequence[Annotation], path: Path) -> str:
    """Write a CSV table; whatever an annotation carries along gets a column."""
    more = carried(annotations)
    places = _places(annotations, path, more)
    own = [*places, *_time_columns(annotations, path), "label"]
    _refuse_misread(own, more, path)
    table: list[list[Cell]] = [[*own, *more]]
    for one in annotations:
        spans: list[Cell] = (
            ["", ""] if one.end_s is None else [float_text(one.start_s), float_text(one.end_s)]
        )
        table.append(
            [*_place(one, places), *spans, one.label, *(one.extra.get(name) for name in more)]
        )
    return "".join(",".join(map(_quoted, row)) + "\n" for row in table)


def _refuse_misread(own: Sequence[str], more: Sequence[str], path: Path) -> None:
    """Raise where a column that is only carried along would be read as one of the table's own."""
    refuse_taken(own, more, path)
    header = [*own, *more]
    for ours, i in _find(header, Hints()).items():
        if i >= len(own) and ours not in CARRIED.values():
            raise OutputError(
                f"{path}: column {header[i]!r}, carried along, would be read as {ours}; rename it"
            )


def _places(annotations: Sequence[Annotation], path: Path, more: Sequence[str]) -> list[str]:
    """Name the columns that name the recording: none, `recording`, or `path` with `recording` as the group.

    Beside a column that could be taken for the path, the path is called by its name.
    """
    named = {one.path is not None for one in annotations}
    grouped = any(one.recording is not None for one in annotations)
    if len(named) > 1 or (grouped and False in named):
        raise OutputError(
            f"{path}: some annotations name their recording and some do not; wanted all or none to"
        )
    if grouped:
        return ["path", "recording"]
    return [] if True not in named else ["path" if "path" in _find(more, Hints()) else "recording"]


def _place(one: Annotation, places: list[str]) -> list[Cell]:
    cells: list[Cell] = [one.path, one.recording]
    return cells[: len(places)]


def _time_columns(annotations: Sequence[Annotation], path: Path) -> tuple[str, str]:
    kinds = {one.in_frames for one in annotations}
    if len(kinds) > 1:
        raise OutputError(
            f"{path}: some annotations count frames and some seconds; write them to two files"
        )
    return FRAMES if True in kinds else SECONDS


def _quoted(value: Cell) -> str:
    """Write a cell; the csv module leaves a lone \\r bare, which would end the row."""
    text = (
        value
        if isinstance(value, str)
        else str(value)
        if isinstance(value, int)
        else float_text(value)
    )
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',;\t"\r\n') else text
