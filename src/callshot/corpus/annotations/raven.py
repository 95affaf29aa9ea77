"""Raven selection tables: columns separated by tabs, one row per selection.

A table of many recordings names the file of each selection, and where in that file it begins. A
selection that is listed once for each view of the sound becomes one annotation. Raven quotes
nothing, and a label may have quotes of its own; cells are quoted where the header is.
"""

import csv
import re
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePath

from callshot.corpus.annotations.delimited import (
    Table,
    add_rows,
    find_column,
    find_columns,
    normalize_name,
)
from callshot.corpus.annotations.rows import (
    FREQUENCIES,
    AnnotationFile,
    AnnotationOptions,
    Format,
    Rows,
    add_times,
    check_writable,
    extra_columns,
    join_cells,
    read_text,
    split_lines,
)
from callshot.errors import quote, quote_names

# A path and its begin, by recording: files that Raven opens as one sound.
Sound = Mapping[str, tuple[str, float]]

BEGIN = "Begin Time (s)"
END = "End Time (s)"
DELTA = "Delta Time (s)"
OFFSET = "File Offset (s)"
PATHS = ("Begin Path", "Begin File")
COLUMNS = {
    "start_s": [BEGIN],
    "end_s": [END],
    "duration_s": [DELTA],
    "offset_s": [OFFSET],
    "Begin File": ["Begin File"],
}
SELECTION_KEY = ("path", "Selection", "start_s", "end_s", "offset_s")
# Where people keep the label, in the order of preference; case and punctuation do not matter.
LABELS = """
    annotation annotations label labels call_type species common_name species_code
    scientific_name species_name call type sound_type class category tags tag code
    anmerkung bezeichnung ruftyp art étiquette espèce anotación anotação etiqueta rótulo especie
"""
# Columns of Raven that do not end in a unit, by their normalised names.
RAVEN_COLUMNS = """
    selection view channel beginfile endfile beginpath endpath begindate enddate
    beginclocktime endclocktime begindatetime enddatetime fileoffset score occupancy length
"""
WRITTEN = (
    "Selection",
    "View",
    "Channel",
    BEGIN,
    END,
    "Low Freq (Hz)",
    "High Freq (Hz)",
)
# Extra cells of which the writer makes columns of its own.
REWRITTEN = """
    selection view channel beginfile beginpath fileoffsets lowfreqhz highfreqhz
"""
# Times of so few files may happen to increase from file to file.
MAX_FILES_BY_CHANCE = 4
UNIT = re.compile(r"\([^()]*\)$")


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise the header of a selection table."""
    header, *_ = [*split_lines(head), ""]
    names = {normalize_name(name) for name in header.split("\t")}
    if names >= {"selection", "begintimes"}:
        return f"its header has Selection and {BEGIN}"
    return None


def read(file: AnnotationFile) -> None:
    """Read a selection table; of a selection in several views, one row is read."""
    text = read_text(file.path, file.notes)
    lines = split_lines(text) or [""]
    if '"' in lines[0]:
        header, *rows = csv.reader(lines, delimiter="\t")
    else:
        header, *rows = [line.split("\t") for line in lines]
    table = Table(file.path, 1, header, rows)  # on line 1
    columns = _find_columns(file, table)
    if rows:
        label = _find_label_column(file, table)
        if label is not None:
            columns["label"] = label
    table.assign(columns, delimiter="\t")
    # Repeated views are found by these. Named after `assign`, they also stay extra columns.
    views = {"Selection": ["Selection"], "View": ["View"]}
    table.columns |= find_columns(table.names, views)
    parsed = table.parse(file)
    for _, cells, _ in parsed:
        # Begin Path may be empty where Begin File is not.
        if "path" in cells and not cells["path"].strip():
            cells["path"] = cells.get("Begin File", "")
    repeated = _find_repeated_views({number: cells for number, cells, _ in parsed})
    if repeated:
        file.notes.append("rows left out: further views of a selection")
    selections = [row for row in parsed if row[0] not in repeated]
    add_rows(file, table, selections, allow_whole=False)
    if "offset_s" not in columns:
        _check_times_per_file(file, table)


def _find_columns(file: AnnotationFile, table: Table) -> dict[str, int]:
    """Return the indices of the file, the times and the offset, by callshot's names; not of labels.

    InputError if there is no start, or neither an end nor a duration; with both, the end is kept.
    """
    given_path = file.options.columns.get("path", "Begin Path")
    searched = {"path": [given_path, *PATHS], **COLUMNS}
    columns = find_columns(table.names, searched)
    missing = ""
    if "start_s" not in columns:
        missing = "start_s"
    elif columns.keys().isdisjoint(["end_s", "duration_s"]):
        missing = "end_s"
    if missing:
        listed = quote_names(table.names)
        raise table.error(f"no column {COLUMNS[missing][0]}; available: {listed}")
    if "end_s" in columns:
        columns.pop("duration_s", None)
    return columns


def _check_times_per_file(file: AnnotationFile, table: Table) -> None:
    """Raise InputError if times run on over many files; else note that each starts at 0.

    Without the column `File Offset (s)`, the file cannot say which of the two it is.
    """
    paths = [row["path"] for row in file.rows]
    starts_s = [row["start_s"] for row in file.rows]
    count = len(set(paths))
    if count > MAX_FILES_BY_CHANCE and starts_s == sorted(starts_s):
        raise table.error(
            f"times run on over {count} files, and there is no column {OFFSET}; "
            "add that measurement in Raven and save the table again"
        )
    if count > 1:
        file.notes.append(
            f"no column {OFFSET}: times are taken to start anew with each file"
        )


def _find_label_column(file: AnnotationFile, table: Table) -> int | None:
    """Return the index of the column given, of one with a usual name, or of the only own column.

    None if all rows get the label of the options; without that, InputError.
    """
    options = file.options
    if "label" in options.columns:
        return table.find_given("label", options.columns["label"])
    column = find_column(table.names, LABELS.split())
    unknown = [  # columns that a person added
        index
        for index, name in enumerate(table.names)
        if normalize_name(name) not in RAVEN_COLUMNS.split() and not UNIT.search(name)
    ]
    if column is None and len(unknown) == 1:
        column = unknown[0]
    if column is not None:
        file.notes.append(f"labels from column {quote(table.names[column])}")
    elif options.label is None:
        raise table.missing_label()
    return column


def _find_repeated_views(rows: Mapping[int, Mapping[str, str]]) -> set[int]:
    """Return the numbers of rows that list a selection again; its first spectrogram is kept.

    `rows` has the cells of each row of the table, by its number.
    """
    # By selection: its view in each row, by the number of the row.
    views_by_selection = defaultdict[object, dict[int, str]](dict)
    for number, cells in rows.items():
        if "View" in cells and cells.get("Selection"):
            key = tuple(map(cells.get, SELECTION_KEY))
            views_by_selection[key][number] = cells["View"]
    repeated = set()
    for views in views_by_selection.values():
        spectrograms = [
            view for view in views.values() if "spectrogram" in view.lower()
        ]
        kept_view, *_ = [*spectrograms, *views.values()]
        repeated |= {number for number, view in views.items() if view != kept_view}
    return repeated


def write(rows: Rows, path: Path, sound: Sound | None = None) -> str:
    """Return a selection table; with many recordings, each row names its file.

    With `sound`, the recordings are opened in Raven as one long sound: it has the file of each
    recording, and the time at which that begins in the long sound. Times are then those of the
    long sound, and `Begin Path` with the file offset locates a call in its own file: Raven uses the
    former in a selection table, the latter in a sound selection table. Groups of recordings are
    not written.
    """
    paths = {row["path"] for row in rows}
    check_writable(rows, path, is_one_recording=None in paths)
    names_files = len(paths) > 1 and sound is None
    names = [*WRITTEN]
    if sound is not None:
        names += [*PATHS, OFFSET]
    elif names_files:
        names += ["Begin File", OFFSET]
    names.append("Annotation")
    # Raven's columns are written anew.
    columns = set[str]().union(*rows)
    ignored = {name for name in columns if normalize_name(name) in REWRITTEN.split()}
    extra = extra_columns(rows, names, path, ignored)
    text = join_cells([*names, *extra])
    for selection, row in enumerate(rows, start=1):
        times_s = [float(row["start_s"]), float(row["end_s"])]
        file_cells = []  # the file of the call, and where in it the call begins
        if sound is not None:
            file, begin_s = sound[row["path"] or ""]
            file_cells = [file, PurePath(file).name, times_s[0]]
            times_s = [add_times(begin_s, time_s) for time_s in times_s]
        elif names_files:
            file_cells = [row["path"], times_s[0]]
        band_hz = [row.get(name) for name in FREQUENCIES]
        cells = [
            selection,
            row.get("View") or "Spectrogram 1",
            row.get("Channel") or "1",
            *times_s,
            *(None if value is None else float(value) for value in band_hz),
            *file_cells,
            row["label"],
            *map(row.get, extra),
        ]
        text += join_cells(cells)
    return text


FORMATS = (Format("raven", (".txt", ".selections"), recognise, read, write, order=3),)
