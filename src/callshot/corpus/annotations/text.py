"""Text of annotation files: bytes → lines, rows of tables, numbers and times.

Lines end at \\n, \\r\\n or \\r and nowhere else: a label may hold other Unicode line separators.

Separators of tables are commas, semicolons or tabs. Numbers have a point before their decimals, or
a comma where no number of the table has a point. A time is a number of seconds or milliseconds, or
hh:mm:ss or mm:ss.
"""

import codecs
import csv
import io
import math
import re
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

from callshot.errors import InputError, join_names
from callshot.files import error_reason
from callshot.records.table_files import restore_text

Cell = str | int | float | None
"""A value in a column of the annotations that callshot copies but does not use."""

HEAD_BYTES = 65536
QUOTED_LENGTH = 60
LISTED_NAMES = 12
DELIMITERS = ("\t", ";", ",")
# No two parts of it match the same digits: a long run of them is tried in one way only.
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0{1,18})?")  # 2.0: pandas, beside NaN
MISSING = ("", "na", "nan")  # as R and pandas write it
FREQUENCIES = ("low_freq_hz", "high_freq_hz")
csv.field_size_limit(2**31 - 1)
CLOCK = re.compile(r"(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,2}(?:[.,][0-9]{0,30})?)")


class RowError(Exception):
    """A row is not an annotation; the message is the reason."""


def read_text(path: Path, notes: list[str], size: int = -1) -> str:
    """Read a file, or its first bytes, as UTF-8, as UTF-16 with a byte order mark, or else as
    Windows-1252, which is noted.
    """
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait forever
            raise OSError("not a regular file")
        with path.open("rb") as stream:
            raw = stream.read(size)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error_reason(error)})") from None
    has_mark = raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE))
    encoding = "utf-16" if has_mark else "utf-8-sig"
    decoder = codecs.getincrementaldecoder(encoding)()
    try:
        return decoder.decode(raw, final=size < 0)
    except UnicodeDecodeError as error:
        if has_mark:
            before = raw[: error.start].decode(encoding, "replace")
            line = before.count("\n") + 1
            raise InputError(
                f"{path}: line {line}: damaged UTF-16 ({error.reason}); save the file as UTF-8"
            ) from None
    notes.append("not UTF-8: read as Windows-1252")
    return raw.decode("cp1252", "replace")  # five bytes are undefined


def split_lines(text: str) -> list[str]:
    r"""Split text at \n, \r\n and \r only, without blank lines.

    >>> split_lines("a\u2028b\r\n\nc\rd")
    ['a\u2028b', 'c', 'd']
    """
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return [line for line in lines if line.strip()]


def join_cells(cells: Sequence[object]) -> str:
    r"""Return a line of cells between tabs; tabs and line ends in them become spaces.

    >>> join_cells(["two\twords", 1.5, None])
    'two words\t1.5\t\n'
    """
    texts = ["" if cell is None else str(cell) for cell in cells]
    plain = [re.sub(r"[\t\r\n]", " ", text) for text in texts]
    return "\t".join(plain) + "\n"


def quote(text: str) -> str:
    """Quote a text for a message, on one line and not too long."""
    if len(text) > QUOTED_LENGTH:
        return f"{text[:QUOTED_LENGTH]!r}…"
    return repr(text)


def list_names(names: Sequence[str]) -> str:
    """List names for a message, but not too many."""
    return join_names([quote(name) for name in names], LISTED_NAMES) or "none"


def find_delimiter(text: str) -> tuple[str, list[str]]:
    """Return the delimiter of a table, and its header."""
    headers = {}
    for delimiter in DELIMITERS:
        lines = io.StringIO(text, newline="")
        reader = csv.reader(lines, delimiter=delimiter, strict=True)
        try:
            headers[delimiter] = next(filter(any, reader), [])
        except csv.Error:
            headers[delimiter] = []
    best = max(headers, key=lambda delimiter: len(headers[delimiter]))
    return best, headers[best]


def read_table(path: Path, notes: list[str]) -> tuple[str, list[tuple[int, list[str]]]]:
    """Return the delimiter of a table, and its rows that are not empty, with the line of each.

    The first row is the header.
    """
    text = read_text(path, notes)
    delimiter, _ = find_delimiter(text)
    lines = io.StringIO(text, newline="")
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    line = 1
    rows = []
    try:
        for cells in reader:
            if any(cells):
                rows.append((line, [restore_text(cell) for cell in cells]))
            line = reader.line_num + 1
    except csv.Error as error:
        raise InputError(
            f"{path}: line {line}: the row that begins here has a wrong quote ({error}); "
            "close every quote, and double those inside a quoted field"
        ) from None
    return delimiter, rows or [(1, [])]


def parse_number(text: str, name: str, *, allow_comma: bool = True) -> float:
    """Parse the number in column `name`; raise RowError if there is none.

    >>> parse_number("1,5", "start_s")
    1.5
    """
    digits = text.strip()
    if allow_comma and "." not in digits:
        digits = digits.replace(",", ".", 1)
    if NUMBER.fullmatch(digits) is None or math.isinf(float(digits)):
        raise RowError(f"{name}: expected a number, got {quote(text)}")
    return float(digits)


def parse_time(
    text: str, name: str, *, allow_comma: bool = True, in_milliseconds: bool = False
) -> float:
    """Parse a time, in seconds; hh:mm:ss and mm:ss are that in any column.

    >>> parse_time("01:02:03.5", "start_s"), parse_time("1500", "start_s", in_milliseconds=True)
    (3723.5, 1.5)
    """
    match = CLOCK.fullmatch(text.strip())
    if match is None:
        number = parse_number(text, name, allow_comma=allow_comma)
        return number / 1000 if in_milliseconds else number
    hours, minutes, seconds = match.groups(default="0")
    seconds_s = Decimal(seconds.replace(",", "."))
    if seconds_s >= 60 or (match[1] and int(minutes) >= 60):
        raise RowError(f"{name}: expected hh:mm:ss or mm:ss, got {quote(text)}")
    whole_s = 3600 * int(hours) + 60 * int(minutes)
    return float(whole_s + seconds_s)


def add_times(*times_s: float) -> float:
    """Add times as decimals, so that 0.1 s and 0.2 s are 0.3 s.

    >>> add_times(0.1, 0.2)
    0.3
    """
    return float(sum(Decimal(repr(time_s)) for time_s in times_s))


def parse_cell(text: str, name: str, *, allow_comma: bool = True) -> Cell:
    """Parse a cell of a column that callshot only copies; None if it is missing.

    Frequencies are numbers. A fold is an integer or a name.
    """
    if name not in (*FREQUENCIES, "fold"):
        return text or None
    value = text.strip()
    if value.lower() in MISSING:
        return None
    if name in FREQUENCIES:
        return parse_number(text, name, allow_comma=allow_comma)
    if INTEGER.fullmatch(value):
        return int(value.partition(".")[0])
    return value
