"""Files of tables, of any origin: cells of CSV, `.npz`, Parquet.

CSV      a spreadsheet takes a cell that begins with = + - @ for a formula, and runs it. A text that
         begins so gets an apostrophe in front, which reading removes; numbers stay as they are.
.npz     a deflated entry may grow a thousandfold: a file of 3 MB can fill the memory. Embeddings
         of real recordings shrink less than twentyfold, so a file which announces far more is
         refused before any of it is read.
Parquet  read and written by pyarrow: polars aborts the process on some damaged files. Pages are
         written with checksums, which are compared when they are read.
"""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import numpy as np
import polars as pl

from callshot.errors import InputError
from callshot.files import check_regular_file, error_reason, explain_unreadable
from callshot.storage import local_copy

FORMULA = r"^'*[=+\-@\t\r]"  # with the apostrophes of a text that looks protected
PROTECTED = r"^'('*[=+\-@\t\r])"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$"
NEEDS_QUOTES = re.compile(r'[",;\t\r\n]|^\s|\s$')


def protect_text(text: str) -> str:
    """Return a text with an apostrophe before it if a spreadsheet would take it for a formula."""
    is_formula = re.search(FORMULA, text) is not None
    if is_formula and re.search(NUMBER, text) is None:
        return f"'{text}"
    return text


def restore_text(text: str) -> str:
    """Return the text that `protect_text` got."""
    return re.sub(PROTECTED, r"\1", text)


def format_cell(value: object) -> str:
    """Return a value as a cell of a CSV file: None is empty, a text protected and quoted."""
    if value is None:
        return ""
    if not isinstance(value, str):
        return str(value)
    text = protect_text(value)
    if NEEDS_QUOTES.search(text) is None:
        return text
    doubled = text.replace('"', '""')
    return f'"{doubled}"'


def format_csv(rows: Iterable[Sequence[object]]) -> str:
    """Return rows as the text of a CSV file."""
    lines = [",".join(map(format_cell, cells)) for cells in rows]
    return "\n".join([*lines, ""])


def write_csv(rows: Iterable[Sequence[object]], path: Path) -> None:
    """Write rows as CSV; parts of file names that are no text are written as escapes."""
    content = format_csv(rows).encode("utf-8", "backslashreplace")
    path.write_bytes(content)


def write_csv_frame(frame: pl.DataFrame, path: Path) -> None:
    """Write a frame as CSV; texts are protected as by `protect_text`, numbers stay as they are."""
    column = pl.col(pl.String)
    is_number = column.str.contains(NUMBER)
    is_formula = column.str.contains(FORMULA) & ~is_number
    protected = pl.when(is_formula).then("'" + column).otherwise(column)
    frame.with_columns(protected.name.keep()).write_csv(path)


def restore_frame(frame: pl.DataFrame) -> pl.DataFrame:
    """Return a frame from a CSV file with `restore_text` applied to all its texts."""
    return frame.with_columns(pl.col(pl.String).str.replace(PROTECTED, "${1}"))


MAX_GROWTH = 100  # from the size of the file to the size of its arrays
# Any file may grow to this: columns of equal text shrink a lot.
ALWAYS_BYTES = 64 * 2**20


def open_npz(stream: BinaryIO, name: object) -> Any:
    """Return arrays, read when used; InputError if they announce far more than the file has."""
    entries: Any = np.lib.npyio.NpzFile(stream, allow_pickle=False)
    size = stream.seek(0, 2)
    limit = max(ALWAYS_BYTES, MAX_GROWTH * size)
    announced = sum(info.file_size for info in entries.zip.infolist())
    if announced > limit:
        raise InputError(
            f"{name}: the file has {size:,} bytes, but its arrays would take {announced:,}; "
            f"at most {limit:,} are read from a file of this size; save the arrays again, "
            "uncompressed (numpy.savez)"
        )
    return entries


ROW_GROUP = 2**18
# Whatever pyarrow and polars raise for a damaged file; a panic is no Exception
READ_ERRORS = (Exception, pl.exceptions.PanicException)


class ParquetInfo(NamedTuple):
    """The names of the columns of a file, and its metadata."""

    columns: list[str]
    metadata: dict[str, str]


def describe_parquet(path: Path) -> ParquetInfo:
    """Return the columns and metadata of a Parquet file; InputError if it is damaged."""
    with _open_parquet(path) as file:
        entries = file.metadata.metadata or {}
        metadata = {}
        for name, value in entries.items():
            metadata[name.decode()] = value.decode()
        return ParquetInfo(file.schema_arrow.names, metadata)


def read_parquet(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    where: tuple[str, Sequence[str]] | None = None,
) -> pl.DataFrame:
    """Read a Parquet file: all of it, or some `columns`, or some rows.

    `where` has a column, and the values of it that rows must have.
    """
    with _open_parquet(path) as file:
        numbers = range(file.num_row_groups)
        tables: Iterable[Any]
        tables = (file.read_row_group(number, columns) for number in numbers)
        if not numbers:  # only then: this imports pandas, which takes a second
            tables = [file.schema_arrow.empty_table()]
        frames = []
        for table in tables:
            table.validate(full=True)  # polars trusts offsets and texts
            # A damaged name in the metadata would make polars panic, and print a backtrace.
            bare = table.replace_schema_metadata()
            frame = cast(pl.DataFrame, pl.from_arrow(bare))
            if columns is not None:
                frame = frame.select(columns)
            if where is not None:
                column, values = where
                frame = frame.filter(pl.col(column).is_in(values))
            frames.append(frame)
        return pl.concat(frames, rechunk=False)


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; an error in the block, which reads it, becomes an InputError."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with explain_unreadable(path):
        copy = local_copy(path)
        check_regular_file(copy)
    try:
        # No stream of Python, and nothing read ahead: a thread of pyarrow that still reads one
        # when Python ends, after an error, aborts the process.
        with pyarrow.OSFile(os.fsencode(copy)) as stream:
            yield ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
    except READ_ERRORS as error:
        raise InputError(
            f"{path}: cannot be read ({error_reason(error)}); expected a complete .parquet file"
        ) from error


def write_parquet(
    rows: pl.DataFrame | Iterable[pl.DataFrame],
    path: Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write one frame, or several one after the other, with a checksum for each page."""
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    frames = iter([rows] if isinstance(rows, pl.DataFrame) else rows)
    first = next(frames)
    # Floats hardly repeat: a dictionary of them would only take space.
    can_repeat = pl.selectors.string() | pl.selectors.integer()
    repeating = first.select(can_repeat).columns
    try:
        with (
            pyarrow.OSFile(os.fsencode(path), "wb") as stream,
            ParquetWriter(
                stream,
                first.to_arrow().schema.with_metadata(metadata),
                compression="zstd",
                compression_level=3,
                use_dictionary=repeating,
                write_page_checksum=True,
            ) as writer,
        ):
            for frame in chain([first], frames):
                writer.write_table(frame.to_arrow(), ROW_GROUP)
    except OSError as error:
        if error.errno is None:
            raise
        # pyarrow's own text has more than the system's
        raise OSError(error.errno, os.strerror(error.errno)) from None
