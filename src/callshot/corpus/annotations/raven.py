"""Raven selection tables: columns separated by tabs, one row per selection.

A table of many recordings names the file of each selection, and where in that file it begins. A
selection that is listed once for each view of the sound becomes one annotation. Headers may be in
German, French, Spanish or Portuguese, and cells quoted, as Excel and R write them.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path, PurePath

from callshot.corpus.annotations.delimited import (
    Table,
    find_column,
    find_columns,
    normalize_name,
)
from callshot.corpus.annotations.rows import (
    AnnotationFile,
    AnnotationOptions,
    Rows,
    check_extra_columns,
    check_one_recording,
    check_spans,
    extra_columns,
)
from callshot.corpus.annotations.text import (
    FREQUENCIES,
    NumberStyle,
    RowError,
    add_times,
    escape_controls,
    format_float,
    list_names,
    parse_time,
    quote,
    read_text,
    split_filled_lines,
    split_lines,
    unescape_controls,
)
from callshot.errors import count_text

Cells = Mapping[str, str]  # of one row, by column
# A path and its begin, by recording: files that Raven opens as one sound.
Sound = Mapping[str, tuple[str, float]]

BEGIN = "Begin Time (s)"
END = "End Time (s)"
DELTA = "Delta Time (s)"
OFFSET = "File Offset (s)"
# Parts of words, without accents. English words are there for headers that are half translated.
# fmt: off
WORDS = {
    "selection": ("selection", "auswahl", "selektion", "seleccion", "selecao"),
    "view": ("view", "ansicht", "vue", "affichage", "vista", "visualiza"),
    "channel": ("channel", "kanal", "canal", "voie"),
    "begin": ("begin", "start", "anfang", "debut", "depart", "inici", "comienzo", "comeco"),
    "end": ("end", "schluss", "fin", "fim", "termin"),
    "time": ("time", "zeit", "temps", "heure", "tiempo", "hora", "tempo"),
    "low": ("low", "niedrig", "unter", "tief", "bass", "inferi", "baja", "baixa"),
    "high": ("high", "hoch", "hohe", "ober", "haut", "superi", "alta"),
    "frequency": ("freq", "frec"),
    "file": ("file", "datei", "fichier", "archivo", "arquivo", "ficheiro"),
    "path": ("path", "pfad", "chemin", "ruta", "caminho"),
    "offset": ("offset", "versatz", "decalage", "desplazamiento", "desfase", "deslocamento"),
    "length": ("delta", "dauer", "duree", "duracion", "duracao"),
}
# The words that the name of a column has, its unit, and what Raven calls it.
TRANSLATIONS = (
    (("selection",), "", "Selection"),
    (("view",), "", "View"),
    (("channel",), "", "Channel"),
    (("begin", "time"), "s", BEGIN),
    (("end", "time"), "s", END),
    (("low", "frequency"), "hz", "Low Freq (Hz)"),
    (("high", "frequency"), "hz", "High Freq (Hz)"),
    (("begin", "file"), "", "Begin File"),
    (("begin", "path"), "", "Begin Path"),
    (("offset",), "s", OFFSET),
    (("length",), "s", DELTA),
)
# fmt: on
LAST_UNIT = re.compile(r"\(([a-z]+)\)$")
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


def translate_header(names: Sequence[str]) -> list[str]:
    """Return the header with Raven's own names; as it is if it is not a selection table.

    >>> translate_header(["Auswahl", "Anfangszeit (s)", "Endzeit (s)", "Ruftyp"])
    ['Selection', 'Begin Time (s)', 'End Time (s)', 'Ruftyp']
    """
    if is_raven_header(names):
        return list(names)
    translated: list[str] = []
    for name in names:
        raven_name = translate_name(name)
        if raven_name in translated:
            raven_name = name
        translated.append(raven_name)
    if is_raven_header(translated):
        return translated
    return list(names)


def is_raven_header(names: Sequence[str]) -> bool:
    """Return whether a header has the columns that every selection table has."""
    return {normalize_name(name) for name in names} >= {"selection", "begintimes"}


def translate_name(name: str) -> str:
    """Return what Raven calls a column; the name itself if it is none of Raven's."""
    decomposed = unicodedata.normalize("NFKD", name.strip().casefold())
    text = "".join(c for c in decomposed if not unicodedata.combining(c))
    unit = LAST_UNIT.search(text)
    found_unit = unit[1] if unit else ""
    for words, expected_unit, raven_name in TRANSLATIONS:
        has_words = all(any(part in text for part in WORDS[word]) for word in words)
        if has_words and found_unit == expected_unit:
            return raven_name
    return name


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise the header of a selection table."""
    header, *_ = [*split_filled_lines(head), ""]
    names = [name.strip().strip('"') for name in header.split("\t")]
    if is_raven_header(names):
        return f"its header has Selection and {BEGIN}"
    if is_raven_header(translate_header(names)):
        return f"its header has Selection and {BEGIN} in another language"
    return None


def read(file: AnnotationFile) -> None:
    """Read a selection table; of a selection in several views, one row is read."""
    table = _read_table(file)
    _assign_columns(file, table)
    width = len(table.names)
    complete = {}
    for number, cells in enumerate(table.rows, start=1):
        if len(cells) >= width:
            complete[number] = table.select(cells)
    _check_times(file, table, complete.values())
    repeated = _find_repeated_views(complete)
    if repeated:
        count = count_text(len(repeated), "row")
        file.notes.append(f"{count} left out: further views of a selection")
    for number, cells in enumerate(table.rows, start=1):
        if number not in repeated:
            with file.rejecting(number):
                _add(file, number, table, cells)


def _read_table(file: AnnotationFile) -> Table:
    """Return the table with Raven's own names of columns, as Raven, Excel or R wrote it."""
    text = read_text(file.path, file.notes)
    lines = split_lines(text)
    filled = [line for line in lines if line.strip()] or lines[:1]
    rows = [line.split("\t") for line in filled]
    if _is_quoted(rows, is_windows="\r\n" in text):
        rows = [[*map(_unquote, cells)] for cells in rows]
    header, *selections = [[*map(unescape_controls, cells)] for cells in rows]
    line = lines.index(filled[0]) + 1
    table = Table(file.path, line, header, selections)
    table.names = translate_header(table.names)
    return table


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


def _assign_columns(file: AnnotationFile, table: Table) -> None:
    path_column = file.options.columns.get("path", "Begin Path")
    paths = [path_column, translate_name(path_column), *PATHS]
    columns = find_columns(table.names, {"path": paths, **COLUMNS})
    if END in columns:
        columns.pop(DELTA, None)
    elif DELTA not in columns:
        raise table.error(f"no column {END}; available: {list_names(table.names)}")
    if BEGIN not in columns:
        raise table.error(f"no column {BEGIN}; available: {list_names(table.names)}")
    if table.rows:
        label = _find_label_column(file, table)
        if label is not None:
            columns["label"] = label
    table.assign(columns, NUMBERS, "\t")
    table.columns |= find_columns(table.names, VIEW_COLUMNS)  # they are extra cells too


def _find_label_column(file: AnnotationFile, table: Table) -> int | None:
    """Find the labels: in the given column, under a usual name, or in the only unknown column."""
    options = file.options
    if "label" in options.columns:
        return table.find_given("label", options.columns["label"])
    column = find_column(table.names, LABELS)
    unknown = [
        name
        for name in table.names
        if normalize_name(name) not in RAVEN_COLUMNS and not UNIT.search(name)
    ]
    if column is None and len(unknown) == 1:
        column = table.names.index(unknown[0])
    if column is not None:
        file.notes.append(f"labels from column {quote(table.names[column])}")
    elif options.label is None:
        raise table.missing_label()
    return column


def _check_times(
    file: AnnotationFile, table: Table, selections: Iterable[Cells]
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
        file.notes.append(
            f"no column {OFFSET}: times are taken to start anew with each file"
        )


def _find_repeated_views(selections: Mapping[int, Cells]) -> set[int]:
    """Return the rows that show a selection again; its first spectrogram is kept, if it has one."""
    views = defaultdict[tuple[str | None, ...], dict[int, str]](dict)
    for number, cells in selections.items():
        if "View" in cells and cells.get("Selection"):
            key = tuple(map(cells.get, SELECTION_KEY))
            views[key][number] = cells["View"]
    repeated: set[int] = set()
    for row_views in views.values():
        names = list(row_views.values())
        # "trogram" is in the word in all five languages.
        spectrograms = [view for view in names if "trogram" in view.lower()]
        first = [*spectrograms, *names][0]
        repeated |= {number for number, view in row_views.items() if view != first}
    return repeated


def _add(file: AnnotationFile, number: int, table: Table, cells: list[str]) -> None:
    named_cells = table.split(cells)
    path = named_cells.get("path")
    if path is not None and not path.strip():
        path = named_cells.get("Begin File", "")
        if not path.strip():
            raise RowError("no recording named")
    start_s, end_s = _parse_times(named_cells, table.style)
    label = named_cells.get("label", "")
    file.add(number, label, start_s, end_s, table.parse_extra(cells), path=path)


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


def write(rows: Rows, path: Path, sound: Sound | None = None) -> str:
    """Return a selection table; with many recordings, each row names its file.

    With `sound`, the file of each recording and when it begins in all files in a row, times are
    those of that row of files, as Raven counts them, and `Begin Path` with the offset has those of
    each file: Raven trusts the first in a selection table, the second in a sound selection table.
    Groups of recordings are not written.
    """
    check_spans(rows, path, "a selection table")
    paths = {row["path"] for row in rows}
    if None in paths:
        check_one_recording(rows, path, "a selection table without Begin File")
    names_files = len(paths) > 1 and sound is None
    names = [*WRITTEN]
    if sound is not None:
        names += [*PATHS, OFFSET]
    elif names_files:
        names += ["Begin File", OFFSET]
    names.append("Annotation")
    extra = extra_columns(rows)
    extra = [name for name in extra if normalize_name(name) not in REWRITTEN]
    check_extra_columns(names, extra, path)
    table = [[*names, *extra]]
    for selection, row in enumerate(rows, start=1):
        start = format_float(row["start_s"])
        times_s = [row["start_s"], row["end_s"]]
        files = []
        if sound is not None:
            file, begin_s = sound[row["path"] or ""]
            times_s = [add_times(begin_s, time_s) for time_s in times_s]
            files = [file, PurePath(file).name, start]
        elif names_files:
            files = [row["path"] or "", start]
        cells = [
            str(selection),
            str(row.get("View") or "Spectrogram 1"),
            str(row.get("Channel") or "1"),
            *map(format_float, times_s),
            *[format_float(row.get(name)) for name in FREQUENCIES],
            *files,
            row["label"],
        ]
        others = [row.get(name) for name in extra]
        cells += ["" if value is None else str(value) for value in others]
        table.append(cells)
    lines = ["\t".join(map(escape_controls, cells)) for cells in table]
    return "\n".join([*lines, ""])
