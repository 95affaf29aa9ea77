"""Text of annotation files: decode files, split and escape lines, split tables, quote names.

Lines end at \\n, \\r\\n or \\r and nowhere else: a label may hold other Unicode line separators.
Line formats cannot hold a tab or a line end in a label. They are written there as the control
pictures ␉ ␊ ␍; a picture that belongs to the label itself is written after a ␛.

Separators of tables are commas, semicolons or tabs, spaces in tables of R, or what the first line
says.
"""

import codecs
import csv
import io
import re
from collections import deque
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from callshot.errors import InputError, count_text
from callshot.files import error_reason
from callshot.records.csv_cells import restore_text

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


class RowError(Exception):
    """A row is not an annotation; the message is the reason."""


def read_bytes(path: Path, size: int = -1) -> bytes:
    """Read a file, or only its first bytes; raise InputError if that fails."""
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait forever
            raise OSError("not a regular file")
        with path.open("rb") as stream:
            return stream.read(size)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: cannot be read ({error_reason(error)})") from None


def read_text(path: Path, notes: list[str]) -> str:
    """Read a file as text; append a note if its encoding is a guess."""
    encoding, raw = _detect_encoding(read_bytes(path))
    if encoding == "utf-8":
        text, bad_lines = decode_utf8(raw)
        notes += _describe_bad_lines(text, bad_lines)
        return text
    try:
        return raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw[: error.start].decode(encoding).count("\n") + 1
        raise InputError(
            f"{path}: line {line}: damaged UTF-16 ({error.reason}); save the file as UTF-8"
        ) from None


def decode_utf8(raw: bytes) -> tuple[str, list[int]]:
    r"""Decode UTF-8; bytes that are not UTF-8 are Windows-1252, or else Latin-1.

    Return the text, and the lines with such bytes. Other lines are not affected by them.

    >>> decode_utf8("Blökken\n".encode() + "grün".encode("cp1252"))
    ('Blökken\ngrün', [2])
    """
    try:
        return raw.decode(), []
    except UnicodeDecodeError:
        lines = raw.splitlines(keepends=True)
    texts = []
    bad_lines = []
    for number, line in enumerate(lines, start=1):
        try:
            texts.append(line.decode())
        except UnicodeDecodeError:
            texts.append(line.decode(errors=WINDOWS))
            bad_lines.append(number)
    return "".join(texts), bad_lines


def _decode_windows(error: UnicodeError) -> tuple[str, int]:
    """Decode the bytes that are not UTF-8; Windows-1252 leaves five bytes undefined."""
    assert isinstance(error, UnicodeDecodeError)
    raw = error.object[error.start : error.end]
    try:
        return raw.decode("cp1252"), error.end
    except UnicodeDecodeError:
        return raw.decode("latin-1"), error.end


codecs.register_error(WINDOWS, _decode_windows)


def _describe_bad_lines(text: str, bad_lines: list[int]) -> Iterator[str]:
    """Describe lines that are not UTF-8: all that are not ASCII, or a few of them."""
    if not bad_lines:
        return
    lines = split_lines(text)
    utf8_lines = sum(not line.isascii() for line in lines) - len(bad_lines)
    if utf8_lines > 0:
        yield (
            f"{count_text(len(bad_lines), 'line')} not UTF-8 like the others, read as "
            f"Windows-1252, the first is line {bad_lines[0]}"
        )
    else:
        yield "not UTF-8: read as Windows-1252"


def read_head(path: Path) -> str:
    """Read the first 64 KiB as text; what cannot be decoded is replaced."""
    encoding, raw = _detect_encoding(read_bytes(path, HEAD_BYTES))
    if encoding == "utf-8":
        return raw.decode(errors=WINDOWS)
    return raw.decode(encoding, "replace")


def _detect_encoding(raw: bytes) -> tuple[str, bytes]:
    """Return the encoding of a text, and the text without its byte order mark."""
    for encoding, mark in ENCODINGS.items():
        match = mark.match(raw)
        if match is not None:
            return encoding, raw[match.end() :]
    return "utf-8", raw


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
