"""Tables with a header, separated by commas, tabs or semicolons; written as CSV.

`SYNONYMS` has the names of columns. `path` or else `recording` is the audio file; beside `path` it
is a group of recordings. Without times a row is on a whole recording. Other columns are kept.
"""

import re
import unicodedata
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

from callshot.corpus.annotations.rows import (
    FREQUENCIES,
    SYNONYMS,
    AnnotationFile,
    AnnotationOptions,
    Cell,
    Format,
    RowError,
    Rows,
    add_times,
    extra_columns,
    find_delimiter,
    parse_cell,
    parse_time,
    read_table,
)
from callshot.errors import (
    InputError,
    OutputError,
    count_text,
    quote,
    quote_names,
    suggest,
)
from callshot.records.table_files import format_csv

# Its number, its cells by callshot's names, and its other cells.
ParsedRow = tuple[int, dict[str, str], dict[str, Cell]]

SECONDS = ("start_s", "end_s")
FRAMES = ("start_frame", "end_frame")
TIMES = (*SECONDS, "duration_s", *FRAMES, "offset_s")
TIME_PAIRS = (SECONDS, SECONDS[::-1], FRAMES, FRAMES[::-1])
NUMBERS = (*TIMES, *FREQUENCIES)
# Columns with a type of their own, by their normalised names.
TYPED = {"lowfreqhz": "low_freq_hz", "highfreqhz": "high_freq_hz", "fold": "fold"}
MILLISECONDS = re.compile(
    r"(?:^|[^a-z])(?:ms|msecs?|millis|millisec(?:ond)?s?)\W*$|[a-z](?-i:Ms|Millis)$",
    re.IGNORECASE,
)
THOUSANDS = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+")
MISSING_LABEL = "NA"  # as R writes it


def normalize_name(name: str) -> str:
    """Reduce the name of a column to its letters and digits, without accents.

    >>> normalize_name("Begin Time (s)"), normalize_name("Début")
    ('begintimes', 'debut')
    """
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name)
    return "".join(filter(str.isalnum, name.casefold()))


def find_column(
    names: Sequence[str], synonyms: Iterable[str], exclude: Collection[int] = ()
) -> int | None:
    """Return the index of the first synonym in `names`, exact or normalised, or None.

    Columns with an index in `exclude` are not searched.
    """
    columns: dict[str, int] = {}  # index by exact and by normalised name
    for index, name in enumerate(names):
        if index not in exclude:
            columns.setdefault(normalize_name(name), index)
            columns[name] = index
    for name in synonyms:
        column = columns.get(name, columns.get(normalize_name(name)))
        if column is not None:
            return column
    return None


def find_columns(
    names: Sequence[str], synonyms_by_key: Mapping[str, Iterable[str]]
) -> dict[str, int]:
    """Return the index of each wanted column by its key; missing ones are left out."""
    columns = {}
    for key, synonyms in synonyms_by_key.items():
        column = find_column(names, synonyms)
        if column is not None:
            columns[key] = column
    return columns


class Table:
    """A table and its header, which is on `line`.

    `columns` has the indices of columns that callshot uses, by callshot's names, and `extra` those
    of all others, by their own.
    """

    def __init__(
        self, path: Path, line: int, header: Sequence[str], rows: list[list[str]]
    ) -> None:
        self.path = path
        self.line = line
        self.rows = rows
        self.columns: dict[str, int] = {}
        self.extra: dict[str, int] = {}
        self.names: list[str] = []
        for number, cell in enumerate(header, start=1):
            name = cell.strip() or f"column {number}"
            if name in self.names:
                raise self.error(
                    f"column {quote(name)} appears twice; rename or remove one"
                )
            self.names.append(name)

    def error(self, text: str) -> InputError:
        """Return an error about the header."""
        return InputError(f"{self.path}: line {self.line}: {text}")

    def find_given(self, name: str, given: str) -> int:
        """Return the index of the column `given`, which the user gave for callshot's `name`."""
        column = find_column(self.names, [given])
        if column is None:
            nearest = suggest(given, self.names)
            raise self.error(
                f"no column {quote(given)}, given for {name}{nearest}; "
                f"available: {quote_names(self.names)}"
            )
        return column

    def missing_label(self) -> InputError:
        """Return the error that no column holds the label."""
        return self.error(
            "no column holds the label; give it (--columns label=…), "
            f"or one label for all rows (--label …); available: {quote_names(self.names)}"
        )

    def assign(self, columns: Mapping[str, int], delimiter: str) -> None:
        """Set which columns callshot uses, and how numbers are read.

        All other columns are extra, and keep their names.
        """
        self.columns = dict(columns)
        for index, name in enumerate(self.names):
            if index in columns.values():
                continue
            key = TYPED.get(normalize_name(name), name)
            if key in self.extra:
                first = self.names[self.extra[key]]
                names = quote_names([first, name])
                raise self.error(f"columns {names} are both {key}; remove one")
            self.extra[key] = index
        self.allow_comma = self._may_have_decimal_comma(delimiter)

    def _may_have_decimal_comma(self, delimiter: str) -> bool:
        """Return whether no number has a point, nor do all commas in a CSV look as in 1,234."""
        indices = self.extra | self.columns
        number_columns = [indices[name] for name in NUMBERS if name in indices]
        texts = []  # of all cells that hold numbers
        for cells in self.rows:
            if len(cells) >= len(self.names):  # shorter rows become rejects
                texts += [cells[index].strip() for index in number_columns]
        has_point = any("." in text for text in texts)
        with_comma = [text for text in texts if "," in text]
        is_thousands = all(map(THOUSANDS.fullmatch, with_comma))
        may_be_thousands = delimiter == "," and is_thousands
        return not (has_point or may_be_thousands)

    def parse(self, file: AnnotationFile) -> list[ParsedRow]:
        """Return rows with callshot's and extra cells; ragged rows become rejects."""
        width = len(self.names)
        parsed = []
        for number, cells in enumerate(self.rows, start=1):
            with file.rejecting(number):
                if len(cells) < width or any(cells[width:]):
                    raise RowError(
                        f"expected {count_text(width, 'field')} as in the header, "
                        f"got {len(cells)}"
                    )
                named = {name: cells[index] for name, index in self.columns.items()}
                extra = {}
                for name, index in self.extra.items():
                    extra[name] = parse_cell(
                        cells[index], name, allow_comma=self.allow_comma
                    )
                parsed.append((number, named, extra))
        return parsed


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise a header with at least two of: times, labels, recordings."""
    _, header = find_delimiter(head)
    columns = _find_columns(header, options)
    has_times = _has_seconds(columns) or columns.keys() >= {*FRAMES}
    has_label = "label" in columns or options.label is not None
    has_recording = "path" in columns or "recording" in columns
    if has_times + has_label + has_recording < 2:
        return None
    names = [header[column].strip() for column in sorted(columns.values())]
    listed = " and ".join(names)
    return f"its header has {listed}"


def _has_seconds(columns: Collection[str]) -> bool:
    """Return whether columns give the start of a call, and its end or its length."""
    return "start_s" in columns and ("end_s" in columns or "duration_s" in columns)


def _find_columns(names: Sequence[str], options: AnnotationOptions) -> dict[str, int]:
    """Return the indices of callshot's columns in a header, by callshot's names.

    A column is given in the options or has a known name. Of the ways to say the times (start and
    end, start and duration, frames) only one is kept.
    """
    given = {name: [column] for name, column in options.columns.items()}
    columns = find_columns(names, given)
    for name, synonyms in SYNONYMS.items():
        if name not in columns:
            column = find_column(names, synonyms, columns.values())
            if column is not None:
                columns[name] = column
    # A column "offset" may be an end. Beside a duration it is Kaleidoscope's start of a call.
    if columns.keys() >= {"duration_s", "end_s"} and "start_s" not in columns:
        end_name = normalize_name(names[columns["end_s"]])
        if end_name == "offset" and "end_s" not in given:
            columns["start_s"] = columns.pop("end_s")
    return _keep_one_way_of_times(columns, given)


def _keep_one_way_of_times(
    columns: Mapping[str, int], given: Collection[str]
) -> dict[str, int]:
    """Return `columns` with one way to say the times: the one whose columns the user gave.

    Otherwise an end goes before a duration, and seconds before frames.
    """
    kept = dict(columns)
    if "duration_s" in given and "end_s" not in given:
        kept.pop("end_s", None)
    if "start_s" not in kept or "end_s" in kept:
        kept.pop("duration_s", None)
    are_seconds_given = any(name in given for name in SECONDS)
    are_frames_given = any(name in given for name in FRAMES)
    has_frames_only = kept.keys() >= {*FRAMES} and not _has_seconds(kept)
    prefers_frames = are_frames_given or has_frames_only
    unused: tuple[str, ...] = ()
    if prefers_frames and not are_seconds_given:
        unused = (*SECONDS, "duration_s")
    elif not kept.keys().isdisjoint(SECONDS):
        unused = FRAMES
    return {name: index for name, index in kept.items() if name not in unused}


def read(file: AnnotationFile) -> None:
    """Read a table; each row becomes an annotation or a reject."""
    options = file.options
    delimiter, lines = read_table(file.path, file.notes)
    line, header = lines[0]
    rows = [cells for _, cells in lines[1:]]
    table = Table(file.path, line, header, rows)
    for name, column_name in options.columns.items():
        table.find_given(name, column_name)
    columns = _find_columns(table.names, options)
    _check_columns(table, columns, options)
    # Frequencies and folds are not used but kept as extra columns, under callshot's names.
    for name in TYPED.values():
        if name in columns:
            table.names[columns.pop(name)] = name
    table.assign(columns, delimiter)
    # What the file calls callshot's columns.
    names = {name: table.names[index] for name, index in columns.items()}
    milliseconds = _find_milliseconds(names, options)
    if names.get("label", "label") != "label":
        file.notes.append(f"labels from column {quote(names['label'])}")
    if columns.keys().isdisjoint(TIMES):
        file.notes.append("no time columns: each row is a whole audio file")
    if milliseconds:
        listed = quote_names([names[name] for name in milliseconds])
        file.notes.append(f"times in milliseconds: {listed}")
    add_rows(file, table, table.parse(file), milliseconds)


def _check_columns(
    table: Table, columns: Mapping[str, int], options: AnnotationOptions
) -> None:
    """Raise InputError if a start has no end, an end no start, or if there are no labels."""
    for time, partner in TIME_PAIRS:
        is_alone = columns.keys().isdisjoint({partner, "duration_s"})
        if time in columns and is_alone:
            name = table.names[columns[time]]
            available = quote_names(table.names)
            raise table.error(
                f"column {quote(name)} is {time}, but no column is {partner}; "
                f"give it (--columns {partner}=…); available: {available}"
            )
    if "label" not in columns and options.label is None:
        raise table.missing_label()


def _find_milliseconds(
    names: Mapping[str, str], options: AnnotationOptions
) -> list[str]:
    """Return which of callshot's times are in milliseconds, by the options or the file's names."""
    milliseconds = []
    for name in TIMES:
        if name not in names or name in FRAMES:
            continue
        is_ms = options.time_unit == "ms"
        if options.time_unit is None:
            is_ms = MILLISECONDS.search(names[name]) is not None
        if is_ms:
            milliseconds.append(name)
    return milliseconds


def add_rows(
    file: AnnotationFile,
    table: Table,
    rows: Iterable[ParsedRow],
    milliseconds: Collection[str] = (),
    *,
    allow_whole: bool = True,
) -> None:
    """Add parsed rows or rejects; a row without times is on a whole recording if `allow_whole`.

    `milliseconds` are the times, by callshot's names, that count milliseconds.
    """
    times = [name for name in TIMES if name in table.columns]
    for number, cells, extra in rows:
        with file.rejecting(number):
            # With a column `path`, `recording` is a group of files, else it names the audio file.
            path = cells.get("path", cells.get("recording"))
            if path is not None and not path.strip():
                raise RowError("no recording named")
            label = cells.get("label", "")
            if label == MISSING_LABEL:
                if file.options.label is None:
                    raise RowError(f"no label, got {label}")
                label = ""  # that of the options
            group = cells.get("recording") if "path" in cells else None
            start = 0.0
            end = None
            if not allow_whole or any(cells[name].strip() for name in times):
                values = {}
                for name in times:
                    values[name] = parse_time(
                        cells[name],
                        name,
                        allow_comma=table.allow_comma,
                        in_milliseconds=name in milliseconds,
                    )
                start, end = _find_span(values)
            file.add(
                number,
                label,
                start,
                end,
                extra,
                path=path,
                recording=group or None,
                in_frames="start_frame" in times,
            )


def _find_span(times: Mapping[str, float]) -> tuple[float, float]:
    """Return start and end in seconds or frames, from the cells of a row by callshot's names.

    `offset_s` is the start in the call's own file: it replaces the start, and the length stays.
    """
    if "start_frame" in times:
        return times["start_frame"], times["end_frame"]
    start_s = times["start_s"]
    duration_s = times.get("duration_s")
    end_s = times["end_s"] if duration_s is None else add_times(start_s, duration_s)
    if "offset_s" in times:
        offset_s = times["offset_s"]
        return offset_s, add_times(offset_s, end_s, -start_s)
    return start_s, end_s


def write(rows: Rows, path: Path) -> str:
    """Return a CSV table; the file is in `recording`, or in `path` beside groups of files."""
    columns = _name_columns(rows, path)
    table: list[list[Cell]] = [list(columns)]
    for row in rows:
        cells = dict(row)
        if row["end_s"] is None:  # on the whole recording
            cells["start_s"] = None
        else:
            cells |= {name: float(row[name]) for name in SECONDS}
        table.append([cells.get(name) for name in columns.values()])
    return format_csv(table)


def _name_columns(rows: Rows, path: Path) -> dict[str, str]:
    """Return the columns of a CSV table: their names there → their names in the rows.

    Without options, our own reader must find each column again, whatever extra columns are called.
    """
    names_file = {row["path"] is not None for row in rows}
    counts_frames = {bool(row.get("in_frames")) for row in rows}
    has_group = any(row["recording"] is not None for row in rows)
    # A group of files does not name a file.
    has_group_only = has_group and False in names_file
    if len(names_file) > 1 or len(counts_frames) > 1 or has_group_only:
        raise OutputError(
            f"{path}: some annotations name their recording or count frames, and some do not; "
            "write them to two files"
        )
    times = FRAMES if True in counts_frames else SECONDS
    extra = extra_columns(rows, (*times, "label"), path)
    columns = {}
    if has_group:
        columns = {"path": "path", "recording": "recording"}
    elif True in names_file:
        # The reader would take such an extra column for the file, and `recording` for a group.
        extra_looks_like_path = "path" in _find_columns(extra, AnnotationOptions())
        columns["path" if extra_looks_like_path else "recording"] = "path"
    columns |= {times[0]: "start_s", times[1]: "end_s", "label": "label"}
    columns |= {name: name for name in extra}
    columns_read = _find_columns([*columns], AnnotationOptions())
    if times[0] not in columns_read:  # beside extra columns that look like seconds
        raise OutputError(
            f"{path}: the annotations count frames, but would be read as seconds, from their other "
            f"columns ({quote_names(extra)}); write them without these"
        )
    return columns


# Tried last: the header of any table may look like one of annotations.
FORMATS = (Format("csv", (".csv", ".tsv", ".txt"), recognise, read, write, order=9),)
