"""Tables with a header, separated by commas, tabs or semicolons; written as CSV.

    path        the audio file; without this column, `recording` names it
    recording   the group of recordings that must stay together, beside `path`
    start_s     seconds; without times, in a row or in the table, the label is on a whole recording
    end_s       or duration_s
    label
    fold        an integer or a name, optional

Other columns are kept. `SYNONYMS` lists the names that other tools give to columns.
"""

import re
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import permutations
from pathlib import Path

from callshot.corpus.annotations.rows import (
    SYNONYMS,
    AnnotationFile,
    AnnotationOptions,
    Rows,
    check_extra_columns,
    extra_columns,
)
from callshot.corpus.annotations.text import (
    ANY_STYLE,
    CLOCK,
    FREQUENCIES,
    Cell,
    RowError,
    add_times,
    find_number_style,
    first_row,
    has_row_names,
    list_names,
    parse_cell,
    parse_number,
    parse_time,
    quote,
    read_table,
    read_text,
    split_off_separator,
    suggest_name,
)
from callshot.errors import InputError, OutputError, count_text
from callshot.records.table_files import format_csv

Cells = Sequence[str]

SECONDS = ("start_s", "end_s")
FRAMES = ("start_frame", "end_frame")
TIMES = (*SECONDS, "duration_s", *FRAMES)
# Columns with a type of their own, by their normalised names.
TYPED = {"lowfreqhz": "low_freq_hz", "highfreqhz": "high_freq_hz", "fold": "fold"}
TIME = re.compile(r"\s*\d[\d.,:]*\s*")
MILLISECONDS = re.compile(
    r"(?:^|[^a-z])(?:ms|msecs?|millis|millisec(?:ond)?s?)\W*$|[a-z](?-i:Ms|Millis)$",
    re.IGNORECASE,
)
MISSING_LABEL = "NA"  # as R writes it
NO_OPTIONS = AnnotationOptions()


def normalize_name(name: str) -> str:
    """Reduce the name of a column to its letters and digits, without accents.

    >>> normalize_name("Begin Time (s)"), normalize_name("Début")
    ('begintimes', 'debut')
    """
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name)
    return "".join(filter(str.isalnum, name.casefold()))


def find_column(
    names: Cells, synonyms: Iterable[str], exclude: Collection[int] = ()
) -> int | None:
    """Return the index of the first wanted column, by exact or else by normalized name."""
    columns = {name: index for index, name in enumerate(names) if index not in exclude}
    normalized = {
        normalize_name(name): index for name, index in reversed(columns.items())
    }
    for name in synonyms:
        column = columns.get(name, normalized.get(normalize_name(name)))
        if column is not None:
            return column
    return None


def find_columns(
    names: Cells, synonyms_by_key: Mapping[str, Iterable[str]]
) -> dict[str, int]:
    """Find several columns, each by any of its names; missing ones are left out."""
    columns = {
        key: find_column(names, synonyms) for key, synonyms in synonyms_by_key.items()
    }
    return {key: column for key, column in columns.items() if column is not None}


def is_in_milliseconds(name: str) -> bool:
    """Return whether a column has milliseconds, by its name.

    >>> [is_in_milliseconds(name) for name in ("start_ms", "End (ms)", "onsetMs", "terms")]
    [True, True, True, False]
    """
    return MILLISECONDS.search(name) is not None


class Table:
    """A table and its header. `columns` and `extra` are numbers of columns by name.

    `style` is how its numbers are written. Extra columns are kept as text, except frequencies and
    the numbers of folds.
    """

    def __init__(
        self, path: Path, line: int, header: Sequence[str], rows: list[list[str]]
    ) -> None:
        if has_row_names(header, rows):
            header = ["", *header]
        self.path = path
        self.line = line
        self.rows = rows
        self.style = ANY_STYLE
        self.columns: dict[str, int] = {}
        self.extra: dict[str, int] = {}
        self.names = [
            name.strip() or f"column {i}" for i, name in enumerate(header, start=1)
        ]
        repeated = [name for name, count in Counter(self.names).items() if count > 1]
        if repeated:
            raise self.error(
                f"column {quote(repeated[0])} appears twice; rename or remove one"
            )

    def error(self, text: str) -> InputError:
        """Return an error about the header."""
        return InputError(f"{self.path}: line {self.line}: {text}")

    def find_given(self, name: str, hint: str) -> int:
        """Return the column that the user gave for one of callshot's."""
        column = find_column(self.names, [hint])
        if column is None:
            suggestion = suggest_name(hint, self.names)
            raise self.error(f"no column {quote(hint)}, given for {name}; {suggestion}")
        return column

    def missing_label(self) -> InputError:
        """Return the error that no column holds the label."""
        return self.error(
            "no column holds the label; give it (--columns label=…), "
            f"or one label for all rows (--label …); available: {list_names(self.names)}"
        )

    def assign(
        self, columns: Mapping[str, int], times: Sequence[str], delimiter: str
    ) -> None:
        """Set the columns that hold something; all others are extra. Find the style of numbers."""
        self.columns = dict(columns)
        for index, name in enumerate(self.names):
            if index in columns.values():
                continue
            typed = TYPED.get(normalize_name(name), name)
            if typed in self.extra:
                names = list_names([self.names[self.extra[typed]], name])
                raise self.error(f"columns {names} are both {typed}; remove one")
            self.extra[typed] = index
        numbers = [columns[name] for name in times if name in columns]
        numbers += [self.extra[name] for name in FREQUENCIES if name in self.extra]
        width = len(self.names)
        texts = [
            cells[index]
            for cells in self.rows
            if len(cells) >= width
            for index in numbers
        ]
        self.style = find_number_style(texts, is_comma_separated=delimiter == ",")

    def split(self, cells: Cells) -> dict[str, str]:
        """Return the cells of a row by callshot's names; surplus cells must be empty."""
        width = len(self.names)
        if len(cells) < width or any(cells[width:]):
            raise RowError(
                f"expected {count_text(width, 'field')} as in the header, got {len(cells)}"
            )
        return self.select(cells)

    def select(self, cells: Cells) -> dict[str, str]:
        """Return the cells of a complete row by callshot's names."""
        return {name: cells[column] for name, column in self.columns.items()}

    def parse_extra(self, cells: Cells) -> dict[str, Cell]:
        """Return the cells of the extra columns of a row; None for empty ones."""
        return {
            name: parse_cell(cells[column], name, self.style)
            for name, column in self.extra.items()
        }


def recognise(path: Path, head: str, options: AnnotationOptions) -> str | None:
    """Recognise a header with at least two of: times, labels, recordings."""
    delimiter, body, _ = split_off_separator(head)
    header = first_row(body, delimiter)
    columns = _find_columns(header, options)
    has_end = "end_s" in columns or "duration_s" in columns
    has_seconds = "start_s" in columns and has_end
    has_times = has_seconds or columns.keys() >= {*FRAMES}
    has_label = "label" in columns or options.label is not None
    has_recording = "path" in columns or "recording" in columns
    if has_times + has_label + has_recording < 2:
        return None
    names = [header[column].strip() for column in sorted(columns.values())]
    return f"its header has {' and '.join(names)}"


def _find_columns(names: Cells, options: AnnotationOptions) -> dict[str, int]:
    """Find callshot's columns: those that the user gave, then those with a known name.

    Of the times, keep start and end, start and duration, or frames.
    """
    user_columns = {name: [column] for name, column in options.columns.items()}
    columns = find_columns(names, user_columns)
    for name, synonyms in SYNONYMS.items():
        if name not in columns:
            column = find_column(names, synonyms, columns.values())
            if column is not None:
                columns[name] = column
    if columns.keys() >= {"duration_s", "end_s"} and "start_s" not in columns:
        end_name = normalize_name(names[columns["end_s"]])
        if end_name == "offset":  # Kaleidoscope's start of a call in its file
            columns["start_s"] = columns.pop("end_s")
    if "duration_s" in options.columns and "end_s" not in options.columns:
        columns.pop("end_s", None)
    if "start_s" not in columns or "end_s" in columns:
        columns.pop("duration_s", None)
    if not columns.keys().isdisjoint(SECONDS):
        columns.pop("start_frame", None)
        columns.pop("end_frame", None)
    return columns


def read(file: AnnotationFile) -> None:
    """Read a table; each row becomes an annotation or a reject."""
    options = file.options
    text = read_text(file.path, file.notes)
    delimiter, body, first_line = split_off_separator(text)
    lines = read_table(file.path, body, delimiter, first_line)
    line, header = next(lines, (1, []))
    table = Table(file.path, line, header, [cells for _, cells in lines])
    for name, column in options.columns.items():
        table.find_given(name, column)
    columns = _find_columns(table.names, options)
    _check_times(table, columns)
    if "label" not in columns and options.label is None:
        raise table.missing_label()
    for name in TYPED.values():
        if name in columns:
            table.names[columns.pop(name)] = name
    table.assign(columns, TIMES, delimiter)
    milliseconds = []
    for name in (*SECONDS, "duration_s"):
        if name in columns:
            in_milliseconds = is_in_milliseconds(table.names[columns[name]])
            if options.time_unit is not None:
                in_milliseconds = options.time_unit == "ms"
            if in_milliseconds:
                milliseconds.append(name)
    file.notes += _describe_columns(table, milliseconds)
    for number, cells in enumerate(table.rows, start=1):
        with file.rejecting(number):
            _add(file, number, table, cells, milliseconds)
    if columns.keys().isdisjoint(TIMES):
        _check_clips(file, table)


def _check_times(table: Table, columns: Mapping[str, int]) -> None:
    """Raise InputError if a table has starts without ends, or ends without starts."""
    if "duration_s" in columns:
        return
    for name, other in (*permutations(SECONDS), *permutations(FRAMES)):
        if name in columns and other not in columns:
            column = table.names[columns[name]]
            option_names = f"--columns {other}=…"
            if other == "end_s":
                option_names += " or --columns duration_s=…"
            raise table.error(
                f"column {quote(column)} is {name}, but no column is {other}; "
                f"give it ({option_names}); available: {list_names(table.names)}"
            )


def _describe_columns(table: Table, milliseconds: Sequence[str]) -> Iterator[str]:
    """Describe what was decided for the user."""
    names = {name: table.names[index] for name, index in table.columns.items()}
    if names.get("label", "label") != "label":
        yield f"labels from column {quote(names['label'])}"
    if names.keys().isdisjoint(TIMES):
        yield "no time columns: each row is a whole recording"
    if "duration_s" in names:
        yield f"calls last as long as column {quote(names['duration_s'])} says"
    if milliseconds:
        listed = list_names([names[name] for name in milliseconds])
        yield f"times in milliseconds: {listed}"
    kinds = set()
    for column in (table.columns[name] for name in TIMES if name in names):
        for cells in table.rows:
            if column < len(cells) and CLOCK.fullmatch(cells[column].strip()):
                colons = cells[column].count(":")
                kinds.add("hh:mm:ss" if colons == 2 else "mm:ss")
    if kinds:
        yield f"times written as {' and '.join(sorted(kinds))}"


def _add(
    file: AnnotationFile,
    number: int,
    table: Table,
    cells: Cells,
    milliseconds: Collection[str],
) -> None:
    named_cells = table.split(cells)
    path = named_cells.get("path")
    group = named_cells.get("recording") or None
    if "path" not in named_cells:
        path = named_cells.get("recording")
        group = None
    if path is not None and not path.strip():
        raise RowError("no recording named")
    label = named_cells.get("label", "")
    if label == MISSING_LABEL:
        if file.options.label is None:
            raise RowError(f"no label, got {label}")
        label = ""
    start_s = 0.0
    end_s = None
    texts = {name: named_cells[name] for name in TIMES if name in named_cells}
    if any(map(str.strip, texts.values())):
        times = []
        for name, text in texts.items():
            if name in FRAMES:
                times.append(parse_number(text, name, table.style))
            else:
                in_milliseconds = name in milliseconds
                times.append(
                    parse_time(text, name, table.style, in_milliseconds=in_milliseconds)
                )
        start_s, end_s = times
        if "duration_s" in texts:
            end_s = add_times(start_s, end_s)
    file.add(
        number,
        label,
        start_s,
        end_s,
        table.parse_extra(cells),
        path=path,
        recording=group,
        in_frames="start_frame" in texts,
    )


def _check_clips(file: AnnotationFile, table: Table) -> None:
    """Raise InputError if a list of clips repeats a clip and has columns that look like times."""
    if len({row["path"] for row in file.rows}) == len(file.rows):
        return
    times = []
    for name in table.extra:
        texts = [row.get(name) for row in file.rows]
        if all(isinstance(text, str) and TIME.fullmatch(text) for text in texts):
            times.append(name)
    if len(times) > 1:
        raise table.error(
            "recordings appear twice, but no column is start_s or end_s; give them in seconds "
            f"(--columns start_s=… --columns end_s=…); {list_names(times)} may be times"
        )


def write(rows: Rows, path: Path) -> str:
    """Return a CSV table with all columns; those without a meaning come last."""
    extra = extra_columns(rows)
    path_columns = _choose_path_columns(rows, path, extra)
    in_frames = {bool(row.get("in_frames")) for row in rows}
    if len(in_frames) > 1:
        raise OutputError(
            f"{path}: some annotations count frames and some seconds; write them to two files"
        )
    times = FRAMES if True in in_frames else SECONDS
    names = [*path_columns, *times, "label"]
    check_extra_columns(names, extra, path)
    header = [*names, *extra]
    for name, column in _find_columns(header, NO_OPTIONS).items():
        if column >= len(names) and name not in TYPED.values():
            raise OutputError(
                f"{path}: extra column {header[column]!r} would be read as {name}; rename it"
            )
    table: list[Sequence[Cell]] = [header]
    for row in rows:
        cells: list[Cell] = [row["path"], row["recording"]][: len(path_columns)]
        if row["end_s"] is None:
            cells += [None, None]
        else:
            cells += [float(row["start_s"]), float(row["end_s"])]
        table.append([*cells, row["label"], *map(row.get, extra)])
    return format_csv(table)


def _choose_path_columns(rows: Rows, path: Path, extra: Sequence[str]) -> list[str]:
    """Return the columns that name the recording: `recording`, or `path` with it as the group.

    The path is called `path` too if an extra column could be mistaken for it.
    """
    has_path = {row["path"] is not None for row in rows}
    has_group = any(row["recording"] is not None for row in rows)
    if len(has_path) > 1 or (has_group and False in has_path):
        raise OutputError(
            f"{path}: some annotations name their recording and some do not; name all or none"
        )
    if has_group:
        return ["path", "recording"]
    if True not in has_path:
        return []
    if "path" in _find_columns(extra, NO_OPTIONS):
        return ["path"]
    return ["recording"]
