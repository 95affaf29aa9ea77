"""Columns of a table that hold times: which they are, their units, and how they are parsed."""

from collections.abc import Iterator, Mapping, Sequence

from callshot.corpus.annotations.cells import (
    FREQUENCIES,
    NumberStyle,
    add_times,
    find_number_style,
    is_clock_time,
    is_in_milliseconds,
    parse_number,
    parse_time,
)
from callshot.corpus.annotations.rows import AnnotationOptions, Table, normalize_name
from callshot.corpus.annotations.text import list_names, quote

Rows = Sequence[Sequence[str]]

SECONDS = ("start_s", "end_s")
FRAMES = ("start_frame", "end_frame")
TIMES = (*SECONDS, "duration_s", *FRAMES)


def choose_time_columns(
    columns: dict[str, int], names: Sequence[str], options: AnnotationOptions
) -> None:
    """Keep the columns that times are read from: start and end, start and duration, or frames."""
    has_start = "start_s" in columns
    if "duration_s" in columns and "end_s" in columns and not has_start:
        # Kaleidoscope gives the start of a call as its offset in the file.
        end = columns["end_s"]
        if normalize_name(names[end]) == "offset":
            columns["start_s"] = columns.pop("end_s")
    if "duration_s" in options.columns and "end_s" not in options.columns:
        columns.pop("end_s", None)
    if "start_s" not in columns or "end_s" in columns:
        columns.pop("duration_s", None)
    if not columns.keys().isdisjoint(SECONDS):
        columns.pop("start_frame", None)
        columns.pop("end_frame", None)


def find_table_style(
    table: Table, rows: Rows, times: Sequence[str], delimiter: str
) -> NumberStyle:
    """Find out how the times and frequencies of a table are written."""
    columns = [table.columns[name] for name in times if name in table.columns]
    columns += [table.extra[name] for name in FREQUENCIES if name in table.extra]
    width = len(table.names)
    texts = [
        cells[column] for cells in rows if len(cells) >= width for column in columns
    ]
    return find_number_style(texts, is_comma_separated=delimiter == ",")


class TimeColumns:
    """The columns of a table that hold times, and their units."""

    def __init__(self, table: Table, options: AnnotationOptions) -> None:
        self._table = table
        self._names = [name for name in TIMES if name in table.columns]
        self._milliseconds = []
        for name in self._names:
            in_milliseconds = is_in_milliseconds(self._column_name(name))
            if options.time_unit is not None:
                in_milliseconds = options.time_unit == "ms"
            if in_milliseconds and name not in FRAMES:
                self._milliseconds.append(name)

    def _column_name(self, name: str) -> str:
        return self._table.names[self._table.columns[name]]

    def describe(self, rows: Rows) -> Iterator[str]:
        """Describe what was decided for the user."""
        if "duration_s" in self._names:
            column = quote(self._column_name("duration_s"))
            yield f"calls last as long as column {column} says"
        milliseconds = [*map(self._column_name, self._milliseconds)]
        if milliseconds:
            yield f"times in milliseconds: {list_names(milliseconds)}"
        kinds = self._find_clock_times(rows)
        if kinds:
            yield f"times written as {' and '.join(sorted(kinds))}"

    def _find_clock_times(self, rows: Rows) -> set[str]:
        """Return how clock times are written, if there are any."""
        kinds = set()
        for name in self._names:
            column = self._table.columns[name]
            texts = [cells[column] for cells in rows if column < len(cells)]
            for text in filter(is_clock_time, texts):
                kinds.add("hh:mm:ss" if text.count(":") == 2 else "mm:ss")
        return kinds

    def parse(self, cells: Mapping[str, str]) -> tuple[float, float | None]:
        """Return start and end of a row; a row without times is on a whole recording."""
        texts = {name: cells[name] for name in self._names}
        if not any(map(str.strip, texts.values())):
            return 0.0, None
        start, end = [self._parse(name, text) for name, text in texts.items()]
        if "duration_s" in texts:
            end = add_times(start, end)
        return start, end

    def _parse(self, name: str, text: str) -> float:
        style = self._table.style
        if name in FRAMES:
            return parse_number(text, name, style)
        in_milliseconds = name in self._milliseconds
        return parse_time(text, name, style, in_milliseconds=in_milliseconds)
