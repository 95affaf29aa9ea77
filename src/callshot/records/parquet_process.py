"""The program that `parquet.py` starts: requests on standard input, data frames on standard output.

A request is a line of JSON. The answer is a line of JSON, then as many parts as it says: 8 bytes of
length each, and rows in Arrow's IPC format. The program ends with its input.
"""

import io
import json
import sys
from contextlib import suppress
from typing import Any, BinaryIO

import polars as pl

PART_BYTES = 2**26
Request = dict[str, Any]
ERRORS = (Exception, pl.exceptions.PanicException)  # a panic is no Exception


def answer_requests(requests: BinaryIO, answers: BinaryIO) -> None:
    """Answer every request; a file that cannot be read is an answer too."""
    for line in requests:
        request = json.loads(line)
        try:
            if request["rows"]:
                parts = _read_rows(request)
                answer: dict[str, Any] = {"parts": len(parts)}
            else:
                parts = []
                answer = _describe(request["path"])
        except ERRORS as error:
            parts = []
            answer = {"error": str(error) or type(error).__name__}
        answers.write(json.dumps(answer).encode() + b"\n")
        for part in parts:
            _write_part(part, answers)
        answers.flush()


def _scan(path: str) -> pl.LazyFrame:
    # Statistics may be damaged where the values are not.
    return pl.scan_parquet(
        path, glob=False, hive_partitioning=False, use_statistics=False
    )


def _describe(path: str) -> dict[str, Any]:
    """Return the names of the columns and the metadata of a file."""
    names = _scan(path).collect_schema().names()
    return {"columns": names, "metadata": pl.read_parquet_metadata(path)}


def _read_rows(request: Request) -> list[pl.DataFrame]:
    """Return the rows that are asked for, in parts that are small enough to send."""
    scan = _scan(request["path"])
    if request["columns"] is not None:
        scan = scan.select(request["columns"])
    if request["where"] is not None:
        column, values = request["where"]
        scan = scan.filter(pl.col(column).is_in(values))
    frame = scan.collect()
    part_count = int(frame.estimated_size()) // PART_BYTES + 1
    part_rows = max(1, -(-frame.height // part_count))
    return list(frame.iter_slices(part_rows)) or [frame]


def _write_part(part: pl.DataFrame, answers: BinaryIO) -> None:
    buffer = io.BytesIO()
    part.write_ipc(buffer)
    answers.write(buffer.tell().to_bytes(8, "little"))
    answers.write(buffer.getbuffer())


def _write_no_core_file() -> None:
    """Keep an abort from filling the disk with the memory of the process."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


if __name__ == "__main__":
    _write_no_core_file()
    answer_requests(sys.stdin.buffer, sys.stdout.buffer)
