"""Text of annotation files: bytes come in, in the encodings people have, text and its lines go out.

Lines end at \\n, \\r\\n or \\r and nowhere else: a label may hold the other characters that Unicode calls line ends.
A line format cannot hold a tab or a line end in a label; there they are written as the control pictures ␉ ␊ ␍, and a
picture that is in the label itself follows a ␛.
"""

import codecs
import re
from pathlib import Path

from callshot.errors import InputError

HEAD_BYTES = 65536
BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
PICTURES = str.maketrans(
    {"\t": "␉", "\n": "␊", "\r": "␍"} | {picture: f"␛{picture}" for picture in "␉␊␍␛"}
)
PICTURED = {"␉": "\t", "␊": "\n", "␍": "\r"}


def read_text(path: Path) -> tuple[str, list[str]]:
    """Read a file as text, and note what had to be guessed."""
    raw = _read(path)
    encoding, skip = _encoding(raw)
    try:
        return raw[skip:].decode(encoding), []
    except UnicodeDecodeError as error:
        if encoding == "utf-8":
            return raw[skip:].decode("latin-1"), ["not UTF-8: read as Latin-1"]
        line = raw[skip : skip + error.start].decode(encoding).count("\n") + 1
        raise InputError(
            f"{path}: line {line}: damaged UTF-16 ({error.reason}); save the file as UTF-8"
        ) from None


def read_head(path: Path) -> str:
    """Read the first 64 KiB as text; what cannot be decoded is replaced."""
    raw = _read(path, HEAD_BYTES)
    encoding, skip = _encoding(raw)
    return raw[skip:].decode(encoding, "replace")


def split_lines(text: str) -> list[str]:
    r"""Split text at \n, \r\n and \r only.

    >>> split_lines("a\u2028b\r\nc\rd")
    ['a\u2028b', 'c', 'd']
    """
    return text.replace("\r\n", "\n").replace("\r", "\n").split("\n")


def pictured(text: str) -> str:
    r"""Write what a line format cannot hold as control pictures.

    >>> pictured("two\twords")
    'two␉words'
    """
    return text.translate(PICTURES)


def unpictured(text: str) -> str:
    """Undo `pictured`."""
    if text.isascii():  # as most cells are
        return text
    return re.sub("␛([␉␊␍␛])|[␉␊␍]", lambda found: found[1] or PICTURED[found[0]], text)


def shown(value: str | float) -> str:
    """Quote a value in a message, on one line and not too long."""
    if isinstance(value, str) and len(value) > 60:
        return f"{value[:60]!r}…"
    return repr(value)


def _encoding(raw: bytes) -> tuple[str, int]:
    """Tell the encoding, and how many bytes its mark takes; UTF-16 without one shows by the NULs beside its letters."""
    for mark, name in BOMS:
        if raw.startswith(mark):
            return name, len(mark)
    if re.match(rb"[^\0]\0[^\0]\0", raw):
        return "utf-16-le", 0
    return ("utf-16-be", 0) if re.match(rb"\0[^\0]\0[^\0]", raw) else ("utf-8", 0)


def _read(path: Path, size: int = -1) -> bytes:
    try:
        if path.exists() and not path.is_file():  # opening a pipe would wait for ever
            raise InputError(f"{path}: wanted an annotation file, found no regular file")
        with path.open("rb") as stream:
            return stream.read(size)
    except (OSError, ValueError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from None
