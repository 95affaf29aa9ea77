"""Parquet files of any origin → data frames, or an error of one line; data frames → Parquet.

A damaged file can end the process that reads it: one flipped bit makes polars reserve more memory
than there is, and abort. So files are read by a second process, which is started with the first
file (0.3 s) and reads all of them. If it ends, the file is an error, and the next file starts
another one. What callshot can check by a checksum it reads itself.
"""

import atexit
import io
import json
import os
import stat
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, NamedTuple

import polars as pl

from callshot.errors import InputError
from callshot.files import error_reason, explain_unreadable
from callshot.storage import local_copy

PROGRAM = Path(__file__).with_name("parquet_process.py")
MAGIC = b"PAR1"
END_BYTES = 8  # the length of the footer, and MAGIC again
Answer = tuple[dict[str, Any], list[bytes]]


class ParquetInfo(NamedTuple):
    """The names of the columns of a file, and its metadata."""

    columns: list[str]
    metadata: dict[str, str]


def describe_parquet(path: Path) -> ParquetInfo:
    """Return the columns and metadata of a Parquet file; InputError if it is damaged."""
    answer, _ = _ask(path, rows=False)
    return ParquetInfo(answer["columns"], answer["metadata"])


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
    >>> pl.DataFrame({"label": ["roar", "rumble"], "k": [1, 2]}).write_parquet(path)
    >>> read_parquet(path, ["label", "k"], where=("label", ["rumble"])).rows()
    [('rumble', 2)]
    """
    _, parts = _ask(path, rows=True, columns=columns, where=where)
    return pl.concat([pl.read_ipc(part) for part in parts], rechunk=False)


def _ask(path: Path, **request: Any) -> Answer:
    with explain_unreadable(path):
        copy = local_copy(path)
        _check_ends(copy)
    request = {"path": str(copy.absolute()), **request}
    try:
        answer, parts = _process.ask(request)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read (no process to read it: {error_reason(error)})"
        ) from error
    if "error" in answer:
        raise _damage(path, error_reason(ValueError(answer["error"])))
    return answer, parts


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
    rows: pl.DataFrame | pl.LazyFrame, path: Path, **options: Any
) -> None:
    """Write rows as Parquet; those of a LazyFrame are streamed.

    Raises
    ------
    OSError
        If the disk does not take them. polars alone raises an error without the system's number.
    """
    with path.open("wb") as stream:
        file: Any = _KeptErrors(stream)
        try:
            if isinstance(rows, pl.LazyFrame):
                rows.sink_parquet(file, **options)
            else:
                rows.write_parquet(file, **options)
        except pl.exceptions.PolarsError:
            if file.error is not None:
                raise file.error from None
            raise


class _KeptErrors(io.RawIOBase):
    """A file to write to, which keeps the error of the system."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream = stream
        self.error: OSError | None = None

    def writable(self) -> bool:
        """Return that it can be written to."""
        return True

    def write(self, data: Any) -> int:
        """Write bytes."""
        try:
            return self.stream.write(data)
        except OSError as error:
            self.error = error
            raise


def _damage(path: Path, reason: str) -> InputError:
    return InputError(
        f"{path}: cannot be read ({reason}); expected a complete .parquet file"
    )


class _ParquetProcess:
    """The second process, started when it is first asked; threads take turns."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self.owner = 0
        self.lock = threading.Lock()

    def ask(self, request: dict[str, Any]) -> Answer:
        """Send a request and return the answer; an error is the answer if the process ends."""
        line = json.dumps(request).encode() + b"\n"
        with self.lock:
            process = self._running()
            requests = _stream(process.stdin)
            answers = _stream(process.stdout)
            try:
                requests.write(line)
                requests.flush()
                answer = json.loads(answers.readline())
                parts = [_read_part(answers) for _ in range(answer.get("parts", 0))]
            except (BrokenPipeError, EOFError, ValueError):
                self.stop()
                return {"error": "it is damaged: reading it ends the process"}, []
            except BaseException:  # an interrupt: the rest of the answer is lost
                self.stop()
                raise
        return answer, parts

    def _running(self) -> subprocess.Popen[bytes]:
        """Return the process; a fork of this one starts its own."""
        if self.owner != os.getpid():
            self.process = None
        if self.process is None:
            self.owner = os.getpid()
            self.process = _start_process()
        return self.process

    def stop(self) -> None:
        """End the process."""
        process = self.process
        if process is None or self.owner != os.getpid():
            return
        self.process = None
        process.kill()
        for stream in (process.stdin, process.stdout):
            with suppress(OSError):
                _stream(stream).close()
        process.wait()


def _start_process() -> subprocess.Popen[bytes]:
    """Start the program with the import path of this process, so that it finds the same polars."""
    # -P: nothing is imported from the folder of the program, or from the current one.
    command = [sys.executable, "-P", str(PROGRAM)]
    environment = dict(os.environ, PYTHONPATH=os.pathsep.join(filter(None, sys.path)))
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,  # where polars writes backtraces
        env=environment,
    )


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None
    return stream


def _read_part(stream: IO[bytes]) -> bytes:
    length = int.from_bytes(_read_bytes(stream, 8), "little")
    return _read_bytes(stream, length)


def _read_bytes(stream: IO[bytes], count: int) -> bytes:
    content = stream.read(count)
    if len(content) < count:
        raise EOFError
    return content


_process = _ParquetProcess()
atexit.register(_process.stop)
