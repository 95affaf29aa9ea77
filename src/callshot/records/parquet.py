"""Parquet files of any origin → data frames, or an error of one line; data frames → Parquet.

pyarrow reads and writes them: polars aborts the process on some damaged files. Pages are written
with checksums, which are compared when they are read.
"""

import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, cast

import polars as pl

from callshot.errors import InputError
from callshot.files import error_reason, explain_unreadable
from callshot.storage import local_copy

MAGIC = b"PAR1"
END_BYTES = 8  # the length of the footer, and MAGIC again
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
        metadata = {name.decode(): value.decode() for name, value in entries.items()}
        return ParquetInfo(file.schema_arrow.names, metadata)


def read_parquet(
    path: Path,
    columns: Sequence[str] | None = None,
    *,
    where: tuple[str, Sequence[str]] | None = None,
) -> pl.DataFrame:
    """Read a Parquet file: all columns or some, and the rows `where` a column has some values.

    Raises
    ------
    InputError
        If the file cannot be read, whatever is in it.

    Examples
    --------
    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "calls.parquet"
    >>> write_parquet(pl.DataFrame({"label": ["roar", "rumble"], "k": [1, 2]}), path)
    >>> read_parquet(path, ["label", "k"], where=("label", ["rumble"])).rows()
    [('rumble', 2)]
    """
    with _open_parquet(path) as file:
        frames = []
        for number in range(file.num_row_groups):
            table = file.read_row_group(number, columns)
            frames.append(_select_rows(table, columns, where))
        if not frames:
            table = file.schema_arrow.empty_table()
            frames.append(_select_rows(table, columns, where))
        return pl.concat(frames, rechunk=False)


def _select_rows(
    table: Any,
    columns: Sequence[str] | None,
    where: tuple[str, Sequence[str]] | None,
) -> pl.DataFrame:
    """Return the rows of a table of pyarrow that are asked for."""
    table.validate(full=True)  # polars trusts offsets and texts
    # A damaged name in the metadata would make polars panic, and print a backtrace.
    frame = cast(pl.DataFrame, pl.from_arrow(table.replace_schema_metadata()))
    if columns is not None:
        frame = frame.select(columns)
    if where is not None:
        column, values = where
        frame = frame.filter(pl.col(column).is_in(values))
    return frame


@contextmanager
def _open_parquet(path: Path) -> Iterator[Any]:
    """Open a Parquet file; an error in the block, which reads it, becomes an InputError."""
    import pyarrow
    from pyarrow.parquet import ParquetFile

    with explain_unreadable(path):
        copy = local_copy(path)
        _check_ends(copy)
    try:
        # No stream of Python, and nothing read ahead: a thread of pyarrow that still reads one
        # when Python ends, after an error, aborts the process.
        with pyarrow.OSFile(os.fsencode(copy)) as stream:
            yield ParquetFile(stream, pre_buffer=False, page_checksum_verification=True)
    except READ_ERRORS as error:
        raise _damage(path, error_reason(error)) from error


def _check_ends(path: Path) -> None:
    """Check the first and last bytes of a file, which is cheap."""
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise InputError(f"{path}: cannot be read; expected a file")
    if status.st_size == 0:
        raise InputError(f"{path}: the file is empty; expected a table")
    with path.open("rb") as stream:
        start = stream.read(len(MAGIC))
        stream.seek(-min(status.st_size, END_BYTES), os.SEEK_END)
        end = stream.read()
    if start != MAGIC or end[-len(MAGIC) :] != MAGIC:
        raise _damage(path, "a Parquet file begins and ends with PAR1")


def write_parquet(
    rows: pl.DataFrame | Iterable[pl.DataFrame],
    path: Path,
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Write rows as Parquet, with a checksum for each page.

    Data frames that come one after the other, with the same columns, need not fit into memory
    together.

    Raises
    ------
    OSError
        If the disk does not take them.
    """
    frames = iter([rows] if isinstance(rows, pl.DataFrame) else rows)
    try:
        _write_frames(frames, path, metadata)
    except OSError as error:
        if error.errno is None:
            raise
        # pyarrow's own text has more than the system's
        raise OSError(error.errno, os.strerror(error.errno)) from None


def _write_frames(
    frames: Iterator[pl.DataFrame], path: Path, metadata: Mapping[str, str] | None
) -> None:
    import pyarrow
    from pyarrow.parquet import ParquetWriter

    first = next(frames)
    table = first.to_arrow()
    # Floats hardly repeat: a dictionary of them would only take space.
    repeating = first.select(pl.selectors.string() | pl.selectors.integer()).columns
    with (
        pyarrow.OSFile(os.fsencode(path), "wb") as stream,
        ParquetWriter(
            stream,
            table.schema.with_metadata(metadata),
            compression="zstd",
            compression_level=3,
            use_dictionary=repeating,
            write_page_checksum=True,
        ) as writer,
    ):
        writer.write_table(table, ROW_GROUP)
        for frame in frames:
            writer.write_table(frame.to_arrow(), ROW_GROUP)


def _damage(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path}: cannot be read ({reason}); expected a complete .parquet file"
    )
