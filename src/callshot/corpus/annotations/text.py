"""Text of annotation files: bytes → lines, rows of tables, numbers and times.

Lines end at \\n, \\r\\n or \\r and nowhere else: a label may hold other Unicode line separators.
Line formats cannot hold a tab or a line end in a label. They are written there as the control
pictures ␉ ␊ ␍; a picture that belongs to the label itself is written after a ␛.

Separators of tables are commas, semicolons or tabs, spaces in tables of R, or what the first line
says. Numbers have a point or a comma before their decimals, and may have a mark between thousands;
a table writes all its numbers in one style. A time is a number of seconds or milliseconds, or
hh:mm:ss or mm:ss, with or without decimals.
"""

import codecs
import csv
import io
import math
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from callshot.errors import InputError, count_text
from callshot.files import error_reason
from callshot.records.table_files import restore_text

Cell = str | int | float | None
"""A value in a column of the annotations that callshot copies but does not use."""

HEAD_BYTES = 65536
WINDOWS = "callshot-windows-1252"  # how undecodable bytes are decoded
QUOTED_LENGTH = 60
LISTED_NAMES = 12
# Byte order marks; UTF-16 without one shows by the NULs beside its letters.
ENCODINGS = {
    "utf-8": re.compile(rb"\xef\xbb\xbf"),
    "utf-16-le": re.compile(rb"\xff\xfe|(?=[^\0]\0[^\0]\0)"),
    "utf-16-be": re.compile(rb"\xfe\xff|(?=\0[^\0]\0[^\0])"),
}
CONTROLS = {"␉": "\t", "␊": "\n", "␍": "\r"}
ESCAPES = str.maketrans(
    {"\t": "␉", "\n": "␊", "\r": "␍", "␉": "␛␉", "␊": "␛␊", "␍": "␛␍", "␛": "␛␛"}
)
ESCAPED = re.compile("␛([␉␊␍␛])|[␉␊␍]")
DELIMITERS = ("\t", ";", ",")
SEPARATOR_LINE = re.compile(r'"?sep=([^"\r\n])"?(?:\r\n|\r|\n|$)', re.IGNORECASE)
ESCAPED_QUOTE = '\\"'  # as R writes it
QUOTED_BY_SPACES = re.compile(r'(?:"[^"\r\n]*" )+"[^"\r\n]*"[\r\n]')
# No two parts of it match the same digits: a long run of them is tried in one way only.
NUMBER = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0{1,18})?")  # 2.0: pandas, beside NaN
MISSING = ("", "na", "nan")  # as R and pandas write it
FREQUENCIES = ("low_freq_hz", "high_freq_hz")
MARKS = ".,"
MARKED_NUMBER = re.compile(r"[+-]?[0-9.,]+(?:[eE][+-]?[0-9]+)?")
# Numbers whose marks may all be between thousands.
THOUSANDS = {
    mark: re.compile(rf"[+-]?[1-9][0-9]{{0,2}}(?:\{mark}[0-9]{{3}})+") for mark in MARKS
}
CLOCK = re.compile(r"(?:([0-9]{1,9}):)?([0-9]{1,9}):([0-9]{1,2}(?:[.,][0-9]{0,30})?)")


class RowError(Exception):
    """A row is not an annotation; the message is the reason."""


# Bytes → text


def read_bytes(path: Path, size: int = -1) -> bytes:
    """Read a file, or only its first bytes; raise InputError if that fails."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait forever
            raise OSError("not a regular file")
        with path.open("rb") as stream:
            return stream.read(size)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error_reason(error)})") from None


def read_head(path: Path) -> str:
    """Read the first 64 KiB as text; what cannot be decoded is replaced."""
    encoding, raw = _detect_encoding(read_bytes(path, HEAD_BYTES))
    return raw.decode(encoding, WINDOWS if encoding == "utf-8" else "replace")


def read_text(path: Path, notes: list[str]) -> str:
    """Read a file as text; append a note if its encoding is a guess.

    Bytes that are not UTF-8 are Windows-1252, or else Latin-1; other lines are not affected.
    """
    encoding, raw = _detect_encoding(read_bytes(path))
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        if encoding != "utf-8":
            line = raw[: error.start].decode(encoding).count("\n") + 1
            raise InputError(
                f"{path}: line {line}: damaged UTF-16 ({error.reason}); "
                "save the file as UTF-8"
            ) from None
    texts = []
    bad_lines = []
    for number, raw_line in enumerate(raw.splitlines(keepends=True), start=1):
        try:
            texts.append(raw_line.decode())
        except UnicodeDecodeError:
            texts.append(raw_line.decode(errors=WINDOWS))
            bad_lines.append(number)
    text = "".join(texts)
    note = "not UTF-8: read as Windows-1252"
    if sum(not one.isascii() for one in split_lines(text)) > len(bad_lines):
        note = (
            f"{count_text(len(bad_lines), 'line')} not UTF-8 like the others, read as "
            f"Windows-1252, the first is line {bad_lines[0]}"
        )
    notes.append(note)
    return text


def _detect_encoding(raw: bytes) -> tuple[str, bytes]:
    """Return the encoding of a text, and the text without its byte order mark."""
    for encoding, mark in ENCODINGS.items():
        match = mark.match(raw)
        if match is not None:
            return encoding, raw[match.end() :]
    return "utf-8", raw


def _decode_windows(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that are not UTF-8; Windows-1252 leaves five bytes undefined."""
    assert isinstance(error, UnicodeDecodeError)
    raw = error.object[error.start : error.end]
    try:
        return raw.decode("cp1252"), error.end
    except UnicodeDecodeError:
        return raw.decode("latin-1"), error.end


codecs.register_error(WINDOWS, _decode_windows)


# Text → lines and rows


def split_lines(text: str) -> list[str]:
    r"""Split text at \n, \r\n and \r only.

    >>> split_lines("a\u2028b\r\nc\rd")
    ['a\u2028b', 'c', 'd']
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def split_filled_lines(text: str) -> list[str]:
    """Split text into lines, without the blank ones."""
    return [line for line in split_lines(text) if line.strip()]


def escape_controls(text: str) -> str:
    r"""Replace tabs and line ends by control pictures.

    >>> escape_controls("two\twords")
    'two␉words'
    """
    return text.translate(ESCAPES)


def unescape_controls(text: str) -> str:
    """Undo `escape_controls`."""
    if text.isascii():  # as most cells are
        return text
    return ESCAPED.sub(lambda match: match[1] or CONTROLS[match[0]], text)


def quote(text: str) -> str:
    """Quote a text for a message, on one line and not too long."""
    if len(text) > QUOTED_LENGTH:
        return f"{text[:QUOTED_LENGTH]!r}…"
    return repr(text)


def list_names(names: Sequence[str]) -> str:
    """List names for a message, but not too many."""
    quoted = [quote(name) for name in names[:LISTED_NAMES]]
    if len(names) > LISTED_NAMES:
        quoted.append("…")
    return ", ".join(quoted) or "none"


def suggest_name(name: str, names: Sequence[str]) -> str:
    """Suggest the name closest to an unknown one, and list all.

    >>> suggest_name("Speceis", ["Selection", "Species"])
    "did you mean 'Species'? available: 'Selection', 'Species'"
    """
    spellings = {other[:80].casefold(): other for other in names[:200]}
    suggestion = ""
    for spelling in get_close_matches(name[:80].casefold(), spellings, n=1):
        suggestion = f"did you mean {quote(spellings[spelling])}? "
    return f"{suggestion}available: {list_names(names)}"


def split_off_separator(text: str) -> tuple[str, str, int]:
    """Return the delimiter, the table, and the line that the table begins on.

    The first line may name the delimiter, as Excel takes it: `sep=;`. Tables of R are separated by
    spaces if all names in their header are quoted.
    """
    line = SEPARATOR_LINE.match(text)
    if line is not None:
        delimiter = line[1]
        return delimiter, _double_quotes(text[line.end() :], delimiter), 2
    delimiter = " "
    if QUOTED_BY_SPACES.match(text) is None:
        delimiter = max(DELIMITERS, key=lambda mark: len(first_row(text, mark)))
    return delimiter, _double_quotes(text, delimiter), 1


def _double_quotes(text: str, delimiter: str) -> str:
    r"""Double the quotes inside quoted cells before which R puts a backslash.

    >>> _double_quotes(r'"a \"low\" call",1', ",")
    '"a ""low"" call",1'
    """
    if ESCAPED_QUOTE not in text:
        return text
    try:
        deque(_open_reader(text, delimiter), maxlen=0)
    except csv.Error:
        return text.replace(ESCAPED_QUOTE, '""')
    return text  # a backslash at the end of a cell, as in a path


def first_row(text: str, delimiter: str) -> list[str]:
    """Return the first row that is not empty; an empty one if the text is no table."""
    try:
        return next(filter(any, _open_reader(text, delimiter)), [])
    except csv.Error:
        return []


def _open_reader(text: str, delimiter: str) -> Any:
    """Open a csv reader for fields of any size; the limit is global and only ever raised."""
    csv.field_size_limit(max(csv.field_size_limit(), len(text) + 1))
    return csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)


def read_table(
    path: Path, text: str, delimiter: str, first_line: int = 1
) -> Iterator[tuple[int, list[str]]]:
    """Yield the rows that are not empty, with the line that each begins on."""
    reader = _open_reader(text, delimiter)
    line = first_line
    try:
        for cells in reader:
            if any(cells):
                yield line, [restore_text(cell) for cell in cells]
            line = reader.line_num + first_line
    except csv.Error as error:
        raise InputError(
            f"{path}: line {line}: the row that begins here has a wrong quote ({error}); "
            "close every quote, and double those inside a quoted field"
        ) from None


def has_row_names(header: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Return whether rows begin with a name, for which R writes no name of a column."""
    width = len(header) + 1
    if not rows or any(len(cells) != width for cells in rows):
        return False
    names = {cells[0] for cells in rows}
    has_unique_names = len(names) == len(rows)
    return has_unique_names and any(cells[-1] for cells in rows)


# Cells → numbers and times


@dataclass(frozen=True)
class NumberStyle:
    """How a table writes numbers.

    `decimal` has the marks before decimals, `thousands` the mark between thousands. Of a mark in
    `unclear` it is not known which of the two it is: 1,250 may be 1.25 or 1250.
    """

    decimal: str = MARKS
    thousands: str = ""
    unclear: str = ""


ANY_STYLE = NumberStyle()


def find_number_style(texts: Iterable[str], *, is_comma_separated: bool) -> NumberStyle:
    """Find out how a table writes numbers, from all of them.

    Between commas as separators, a comma in a number may be one between thousands.

    >>> find_number_style(["1.234,5", "7"], is_comma_separated=False)
    NumberStyle(decimal=',', thousands='.', unclear='')
    >>> find_number_style(["1,250", "2,500"], is_comma_separated=True)
    NumberStyle(decimal='.', thousands='', unclear=',')
    """
    numbers = [text for text in map(str.strip, texts) if MARKED_NUMBER.fullmatch(text)]
    for text in numbers:
        if "," in text and "." in text:
            thousands, decimal = sorted(MARKS, key=text.rfind)
            return NumberStyle(decimal, thousands)
    marks = {mark: [text for text in numbers if mark in text] for mark in MARKS}
    if not marks[","]:
        return NumberStyle(".")
    if not marks["."] and not is_comma_separated:
        return NumberStyle(",")
    decimal = ""
    unclear = ""
    for mark, marked in marks.items():
        if not all(map(THOUSANDS[mark].fullmatch, marked)):
            decimal += mark
        elif marked:
            unclear += mark
    return NumberStyle(decimal or ".", unclear=unclear)


def parse_number(text: str, name: str, style: NumberStyle = ANY_STYLE) -> float:
    """Parse the number in column `name`; raise RowError if there is none.

    >>> parse_number("1,5", "start_s")
    1.5
    """
    digits = text.strip()
    for mark in style.unclear:
        if THOUSANDS[mark].fullmatch(digits):
            fraction = digits.replace(mark, ".", 1)
            whole = digits.replace(mark, "")
            raise RowError(
                f"{name}: {quote(digits)} may be {fraction} or {whole}; "
                "write one of them"
            )
    if style.thousands:
        whole, decimal_mark, fraction = digits.partition(style.decimal)
        if THOUSANDS[style.thousands].fullmatch(whole):
            digits = whole.replace(style.thousands, "") + decimal_mark + fraction
    has_point = "." in digits
    if "," in style.decimal and not has_point:
        digits = digits.replace(",", ".", 1)
    is_wrong_mark = has_point and "." not in style.decimal
    if is_wrong_mark or NUMBER.fullmatch(digits) is None:
        raise RowError(f"{name}: expected a number, got {quote(text)}")
    value = float(digits)
    if math.isinf(value):
        raise RowError(f"{name}: expected a finite number, got {quote(text)}")
    return value


def parse_time(
    text: str,
    name: str,
    style: NumberStyle = ANY_STYLE,
    *,
    in_milliseconds: bool = False,
) -> float:
    """Parse a time, in seconds; hh:mm:ss and mm:ss are that in any column.

    >>> parse_time("01:02:03.5", "start_s"), parse_time("1500", "start_s", in_milliseconds=True)
    (3723.5, 1.5)
    """
    match = CLOCK.fullmatch(text.strip())
    if match is None:
        number = parse_number(text, name, style)
        return number / 1000 if in_milliseconds else number
    hours, minutes, seconds = match.groups(default="0")
    seconds_s = Decimal(seconds.replace(",", "."))
    has_hours = match[1] is not None
    if seconds_s >= 60 or (has_hours and int(minutes) >= 60):
        raise RowError(f"{name}: expected hh:mm:ss or mm:ss, got {quote(text)}")
    return float(3600 * int(hours) + 60 * int(minutes) + seconds_s)


def add_times(*times_s: float) -> float:
    """Add times as decimals, so that 0.1 s and 0.2 s are 0.3 s.

    >>> add_times(0.1, 0.2)
    0.3
    """
    return float(sum(Decimal(repr(time_s)) for time_s in times_s))


def parse_cell(text: str, name: str, style: NumberStyle = ANY_STYLE) -> Cell:
    """Parse a cell of a column that callshot only copies; None if it is missing.

    Frequencies are numbers. A fold is an integer or a name.
    """
    value = text.strip()
    is_missing = value.lower() in MISSING
    if name in FREQUENCIES:
        return None if is_missing else parse_number(text, name, style)
    if name != "fold":
        return text or None
    if is_missing:
        return None
    if INTEGER.fullmatch(value):
        return int(value.partition(".")[0])
    return value


def format_float(value: Cell, missing: str = "") -> str:
    """Write a number with the fewest digits that read back the same.

    >>> format_float(0.1), format_float(None)
    ('0.1', '')
    """
    if value is None:
        return missing
    return repr(float(value))
