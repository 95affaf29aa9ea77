"""Raven selection tables: columns separated by tabs, one row per selection.

A table of many recordings names the file of each selection, and where in that file it begins. A
selection that is listed once for each view of the sound becomes one annotation. Headers may be in
German, French, Spanish or Portuguese, and cells quoted, as Excel and R write them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePath

from callshot.corpus.annotations.cells import (
    FREQUENCIES,
    NumberStyle,
    add_times,
    format_float,
    parse_time,
)
from callshot.corpus.annotations.raven_headers import (
    BEGIN,
    DELTA,
    END,
    OFFSET,
    is_raven_header,
    translate_header,
    translate_name,
)
from callshot.corpus.annotations.rows import (
    AnnotationFile,
    AnnotationOptions,
    Annotations,
    Table,
    check_extra_columns,
    check_one_recording,
    check_spans,
    extra_columns,
    find_column,
    find_columns,
    normalize_name,
)
from callshot.corpus.annotations.text import (
    RowError,
    escape_controls,
    has_row_names,
    list_names,
    quote,
    read_text,
    split_filled_lines,
    split_lines,
    unescape_controls,
)
from callshot.corpus.annotations.time_columns import find_table_style
from callshot.errors import count_text
from callshot.records import Annotation

Cells = Mapping[str, str]  # of one row, by column

PATHS = ("Begin Path", "Begin File")
COLUMNS = {name: [name] for name in (BEGIN, END, DELTA, OFFSET, "Begin File")}
NUMBERS = (BEGIN, END, DELTA, OFFSET)
VIEW_COLUMNS = {"Selection": ["Selection"], "View": ["View"]}
SELECTION_KEY = ("path", "Selection", BEGIN, END, OFFSET)
# Where people keep the label, in the order of preference.
# fmt: off
LABELS = (
    "Annotation", "Annotations", "Label", "Labels", "Call Type", "Species", "Common Name",
    "Species Code", "Scientific Name", "Species Name", "Call", "Type", "Sound Type", "Class",
    "Category", "Tags", "Tag", "Code", "Anmerkung", "Bezeichnung", "Ruftyp", "Art", "Étiquette",
    "Espèce", "Anotación", "Anotação", "Etiqueta", "Rótulo", "Especie",
)
# Columns of Raven that do not end in a unit.
RAVEN_COLUMNS = {
    "selection", "view", "channel", "beginfile", "endfile", "beginpath", "endpath", "begindate",
    "enddate", "beginclocktime", "endclocktime", "begindatetime", "enddatetime", "fileoffset",
    "score", "occupancy", "length",
}
WRITTEN = (
    "Selection", "View", "Channel", BEGIN, END, "Low Freq (Hz)", "High Freq (Hz)",
)
# Extra cells of which the writer makes columns of its own.
REWRITTEN = {
    "selection", "view", "channel", "beginfile", "beginpath", "fileoffsets", "lowfreqhz",
    "highfreqhz",
}
# fmt: on
# Times of so few files may happen to increase from file to file.
MAX_FILES_BY_CHANCE = 4
QUOTED = re.compile(r'"(?:[^"]|""|(?<=\\)")*"')  # R may put a backslash before a quote
MARKED = re.compile('[,"]')
UNIT = re.compile(r"\([^()]*\)$")


@dataclass(frozen=True)
class SoundFile:
    """A file among several that Raven opens as one sound: its path, and when it begins in there."""

    path: str
    begin_s: float


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise the header of a selection table."""
    header, *_ = [*split_filled_lines(head), ""]
    names = [name.strip().strip('"') for name in header.split("\t")]
    if is_raven_header(names):
        return f"its header has Selection and {BEGIN}"
    if is_raven_header(translate_header(names)):
        return f"its header has Selection and {BEGIN} in another language"
    return None


def read(annotation_file: AnnotationFile, options: AnnotationOptions) -> None:
    """Read a selection table; of a selection in several views, one row is read."""
    table, selections = _read_table(annotation_file)
    _assign_columns(annotation_file, table, options, is_empty=not selections)
    width = len(table.names)
    complete = {}
    for row, cells in enumerate(selections, start=1):
        if len(cells) >= width:
            complete[row] = table.select(cells)
    table.style = find_table_style(table, selections, NUMBERS, "\t")
    _check_times(annotation_file, table, complete.values())
    repeated = _find_repeated_views(complete)
    if repeated:
        rows = count_text(len(repeated), "row")
        annotation_file.notes.append(f"{rows} left out: further views of a selection")
    for row, cells in enumerate(selections, start=1):
        if row not in repeated:
            with annotation_file.rejecting(row):
                _add(annotation_file, row, table, cells)


def _read_table(annotation_file: AnnotationFile) -> tuple[Table, list[list[str]]]:
    """Return the header, in Raven's own names, and the rows, as Raven, Excel or R wrote them."""
    text = read_text(annotation_file.path, annotation_file.notes)
    lines = split_lines(text)
    filled = [line for line in lines if line.strip()] or lines[:1]
    rows = [line.split("\t") for line in filled]
    if _is_quoted(rows, is_windows="\r\n" in text):
        rows = [[*map(_unquote, cells)] for cells in rows]
    header, *selections = [[*map(unescape_controls, cells)] for cells in rows]
    if has_row_names(header, selections):
        header = ["", *header]
    line = lines.index(filled[0]) + 1
    return Table(annotation_file.path, line, translate_header(header)), selections


def _is_quoted(rows: Sequence[Sequence[str]], *, is_windows: bool) -> bool:
    """Return whether cells are quoted: R quotes the header, Excel cells with a comma or a quote.

    Raven quotes nothing, and a label may have quotes of its own.
    """
    header, *selections = rows
    if any(QUOTED.fullmatch(name.strip()) for name in header):
        return True
    if not is_windows:
        return False
    marked = [cell for cells in selections for cell in cells if MARKED.search(cell)]
    return bool(marked) and all(map(QUOTED.fullmatch, marked))


def _unquote(cell: str) -> str:
    if QUOTED.fullmatch(cell.strip()) is None:
        return cell
    inner = cell.strip()[1:-1]
    return inner.replace('""', '"').replace('\\"', '"')


def _assign_columns(
    annotation_file: AnnotationFile,
    table: Table,
    options: AnnotationOptions,
    *,
    is_empty: bool,
) -> None:
    path_column = options.columns.get("path", "Begin Path")
    paths = [path_column, translate_name(path_column), *PATHS]
    columns = find_columns(table.names, {"path": paths, **COLUMNS})
    if END in columns:
        columns.pop(DELTA, None)
    elif DELTA not in columns:
        raise table.error(f"no column {END}; available: {list_names(table.names)}")
    if BEGIN not in columns:
        raise table.error(f"no column {BEGIN}; available: {list_names(table.names)}")
    if not is_empty:
        label = _find_label_column(annotation_file, table, options)
        if label is not None:
            columns["label"] = label
    table.assign(columns)
    table.columns |= find_columns(table.names, VIEW_COLUMNS)  # they are extra cells too


def _find_label_column(
    annotation_file: AnnotationFile, table: Table, options: AnnotationOptions
) -> int | None:
    """Find the labels: in the given column, under a usual name, or in the only unknown column."""
    if "label" in options.columns:
        return table.find_given("label", options.columns["label"])
    column = find_column(table.names, LABELS)
    unknown = [name for name in table.names if not _is_raven_column(name)]
    if column is None and len(unknown) == 1:
        column = table.names.index(unknown[0])
    if column is not None:
        annotation_file.notes.append(f"labels from column {quote(table.names[column])}")
    elif options.label is None:
        raise table.missing_label()
    return column


def _is_raven_column(name: str) -> bool:
    return normalize_name(name) in RAVEN_COLUMNS or UNIT.search(name) is not None


def _check_times(
    annotation_file: AnnotationFile, table: Table, selections: Iterable[Cells]
) -> None:
    """Check that times start anew with each file if there is no column with the offset.

    Raise InputError if they increase from file to file, over more files than by chance.
    """
    if "path" not in table.columns or OFFSET in table.columns:
        return
    ends: dict[str, float] = {}
    is_increasing = True
    for cells in selections:
        with suppress(RowError):
            path = cells["path"]
            start_s, end_s = _parse_times(cells, table.style)
            own_end_s = ends.pop(path, 0.0)
            if start_s < max(ends.values(), default=start_s):
                is_increasing = False
            ends[path] = max(end_s, own_end_s)
    if len(ends) > MAX_FILES_BY_CHANCE and is_increasing:
        raise table.error(
            f"times run on over {len(ends)} files, and there is no column {OFFSET}; "
            "add that measurement in Raven and save the table again"
        )
    if len(ends) > 1:
        annotation_file.notes.append(
            f"no column {OFFSET}: times are taken to start anew with each file"
        )


def _find_repeated_views(selections: Mapping[int, Cells]) -> set[int]:
    """Return the rows that show a selection again; its first spectrogram is kept, if it has one."""
    views = defaultdict[tuple[str | None, ...], dict[int, str]](dict)
    for row, cells in selections.items():
        if "View" in cells and cells.get("Selection"):
            key = tuple(map(cells.get, SELECTION_KEY))
            views[key][row] = cells["View"]
    repeated: set[int] = set()
    for row_views in views.values():
        spectrograms = filter(_is_spectrogram, row_views.values())
        first = next(spectrograms, next(iter(row_views.values())))
        repeated |= {row for row, view in row_views.items() if view != first}
    return repeated


def _is_spectrogram(view: str) -> bool:
    return "trogram" in view.lower()  # in all five languages


def _add(
    annotation_file: AnnotationFile,
    row: int,
    table: Table,
    cells: list[str],
) -> None:
    named_cells = table.split(cells)
    path = named_cells.get("path")
    if path is not None and not path.strip():
        path = named_cells.get("Begin File", "")
        if not path.strip():
            raise RowError("no recording named")
    start_s, end_s = _parse_times(named_cells, table.style)
    label = named_cells.get("label", "")
    annotation_file.add(
        row, label, start_s, end_s, path=path, extra=table.parse_extra(cells)
    )


def _parse_times(cells: Cells, style: NumberStyle) -> tuple[float, float]:
    """Return the times in the recording: those of the table, moved to the offset in the file.

    They are moved as decimals, so that 3600.1 to 3600.4 s at offset 0.1 s is 0.1 to 0.4 s.
    """
    start_s = parse_time(cells[BEGIN], BEGIN, style)
    if DELTA in cells:
        end_s = add_times(start_s, parse_time(cells[DELTA], DELTA, style))
    else:
        end_s = parse_time(cells[END], END, style)
    if OFFSET not in cells:
        return start_s, end_s
    offset_s = parse_time(cells[OFFSET], OFFSET, style)
    return offset_s, add_times(offset_s, end_s, -start_s)


def write(
    annotations: Annotations,
    path: Path,
    sound: Mapping[str, SoundFile] | None = None,
) -> str:
    """Return a selection table; with many recordings, each row names its file.

    With `sound`, times are those of all files in a row, as Raven counts them, and `Begin Path` with
    the offset has those of each file: Raven trusts the first in a selection table, the second in a
    sound selection table. Groups of recordings are not written.
    """
    check_spans(annotations, path, "a selection table")
    paths = {annotation.path for annotation in annotations}
    if None in paths:
        check_one_recording(annotations, path, "a selection table without Begin File")
    names_files = len(paths) > 1 and sound is None
    names = [*WRITTEN]
    if sound is not None:
        names += [*PATHS, OFFSET]
    elif names_files:
        names += ["Begin File", OFFSET]
    names.append("Annotation")
    extra = extra_columns(annotations)
    extra = [name for name in extra if normalize_name(name) not in REWRITTEN]
    check_extra_columns(names, extra, path)
    table = [[*names, *extra]]
    for selection, annotation in enumerate(annotations, start=1):
        cells = [str(selection), *_format_selection(annotation, sound)]
        if names_files:
            cells += [annotation.path or "", format_float(annotation.start_s)]
        cells.append(annotation.label)
        cells += [_format_extra(annotation, name) for name in extra]
        table.append(cells)
    lines = ["\t".join(map(escape_controls, cells)) for cells in table]
    return "\n".join([*lines, ""])


def _format_selection(
    annotation: Annotation, sound: Mapping[str, SoundFile] | None
) -> list[str]:
    """Return view, channel, times, frequencies and, in a sound of several files, the file."""
    times_s = [annotation.start_s, annotation.end_s or 0.0]
    files = []
    if sound is not None:
        file = sound[annotation.path or ""]
        times_s = [add_times(file.begin_s, time_s) for time_s in times_s]
        offset = format_float(annotation.start_s)
        files = [file.path, PurePath(file.path).name, offset]
    return [
        _format_extra(annotation, "View") or "Spectrogram 1",
        _format_extra(annotation, "Channel") or "1",
        *map(format_float, times_s),
        *[format_float(annotation.extra.get(name)) for name in FREQUENCIES],
        *files,
    ]


def _format_extra(annotation: Annotation, name: str) -> str:
    value = annotation.extra.get(name)
    if value is None:
        return ""
    return str(value)
