"""Embedding files of BirdNET-Analyzer in; readers of the windows of each recording out.

    x.birdnet.embeddings.txt           a line per window: start and end in seconds and
                                       comma-separated numbers, separated by tabs
    x_0.0_3.0.birdnet.embeddings.txt   one window, its times in the name, comma-separated numbers
    any.csv                            file_path, start, end, embedding (comma-separated numbers)

Versions 1 write the first, versions 2 the others, with a perch-hoplite database beside them.
"""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from callshot.chunks import Rows
from callshot.errors import InputError
from callshot.tables.embedding_tables import explain_read_errors
from callshot.tables.fold_files import read_csv_records
from callshot.tables.window_pooling import WindowReaders, make_windows

Line = tuple[str, Sequence[str]]  # where it is, and its start, end and vector

TEXT_SUFFIX = ".birdnet.embeddings.txt"
TIMED_NAME = re.compile(r"(.+)_(\d+\.\d+)_(\d+\.\d+)")
COLUMNS = ("file_path", "start", "end", "embedding")


def read_analyzer(source: Path) -> WindowReaders:
    """Return readers of the recordings in a file, or in the text files under a folder, by name.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.birdnet.embeddings.txt"
    >>> _ = path.write_text("0.0\\t3.0\\t0.5,1.5\\n3.0\\t6.0\\t1.0,2.0\\n")
    >>> read_analyzer(path.parent)["x"]()["vector"].tolist()
    [[0.5, 1.5], [1.0, 2.0]]
    """
    lines = defaultdict[str, list[Line]](list)
    if source.suffix.lower() == ".csv":
        for number, row in enumerate(read_csv_records(source, COLUMNS), 1):
            name, *fields = [row[column] for column in COLUMNS]
            lines[name].append((f"{source}: row {number}", fields))
        return {name: partial(_read_windows, rows) for name, rows in lines.items()}

    files = defaultdict[str, list[Path]](list)
    is_folder = source.is_dir()
    for path in sorted(source.rglob(f"*{TEXT_SUFFIX}")) if is_folder else [source]:
        name = path.relative_to(source if is_folder else source.parent).as_posix()
        name = name.removesuffix(TEXT_SUFFIX).removesuffix(".txt")
        timed = TIMED_NAME.fullmatch(name)
        files[name if timed is None else timed[1]].append(path)
    if not files:
        raise InputError(
            f"{source}: expected files that end in {TEXT_SUFFIX}, got none"
        )
    return {name: partial(_read_text_files, paths) for name, paths in files.items()}


def _read_text_files(paths: Sequence[Path]) -> Rows:
    return _read_windows(_text_lines(paths))


def _text_lines(paths: Sequence[Path]) -> Iterator[Line]:
    for path in paths:
        timed = TIMED_NAME.fullmatch(path.name.removesuffix(TEXT_SUFFIX))
        with explain_read_errors(path):
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        for number, line in enumerate(lines, 1):
            text = line.strip()
            fields = text.split("\t")
            if timed is not None and len(fields) == 1:
                fields = [timed[2], timed[3], text]
            if text:
                yield f"{path}: line {number}", fields


def _read_windows(lines: Iterable[Line]) -> Rows:
    """Read windows from text; raise if one has not as many finite numbers as the first."""
    rows = []
    width = 2
    for place, fields in lines:
        try:
            start, end, vector = fields
            numbers = [float(text) for text in (start, end, *vector.split(","))]
        except ValueError as error:
            raise InputError(
                f"{place}: expected start, end and the numbers of a vector ({error})"
            ) from None
        with np.errstate(over="ignore"):
            is_finite = np.isfinite(np.array(numbers, np.float32)).all()
        if not is_finite:
            raise InputError(f"{place}: expected finite numbers")
        rows.append(numbers)
        width = len(rows[0])
        if len(numbers) != width:
            raise InputError(
                f"{place}: expected {width - 2} numbers as in the first line, "
                f"got {len(numbers) - 2}"
            )
    table = np.array(rows).reshape(len(rows), width)
    return make_windows(table[:, 0], table[:, 1], table[:, 2:].astype(np.float32))
