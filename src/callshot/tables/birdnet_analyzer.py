"""BirdNET-Analyzer's embedding files come in, the windows of recordings go out, read when they are asked for.

    x.birdnet.embeddings.txt           a line per window: start, end (seconds) and comma-separated numbers, between tabs
    x_0.0_3.0.birdnet.embeddings.txt   one window, its times in the name, comma-separated numbers
    any.csv                            file_path, start, end, embedding (comma-separated numbers, quoted)

The first is of versions 1, the others are of versions 2, which keep a perch-hoplite database beside them.
"""

import csv
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.tables.embedding_tables import csv_rows, refuse_missing
from callshot.tables.window_pooling import Sources, Windows

TEXT = ".birdnet.embeddings.txt"
TIMED_NAME = re.compile(r"(.+)_(\d+\.\d+)_(\d+\.\d+)")
COLUMNS = ("file_path", "start", "end", "embedding")


def read_analyzer(source: Path) -> Sources:
    """Return readers of the recordings in a file, or in the text files under a folder, by the names these have.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "x.birdnet.embeddings.txt"
    >>> _ = path.write_text("0.0\\t3.0\\t0.5,1.5\\n3.0\\t6.0\\t1.0,2.0\\n")
    >>> read_analyzer(path.parent)["x"]().vectors.tolist()
    [[0.5, 1.5], [1.0, 2.0]]
    """
    return _csv_sources(source) if source.suffix.lower() == ".csv" else _text_sources(source)


def _text_sources(source: Path) -> Sources:
    """Return readers of the recordings that text files stand for; `x_0.0_3.0` is one window of `x`."""
    files: dict[str, list[Path]] = {}
    for path in sorted(source.rglob(f"*{TEXT}")) if source.is_dir() else [source]:
        name = (path.relative_to(source) if source.is_dir() else Path(path.name)).as_posix()
        bare = name.removesuffix(TEXT).removesuffix(".txt")
        timed = TIMED_NAME.fullmatch(bare)
        files.setdefault(timed[1] if timed else bare, []).append(path)
    if not files:
        raise InputError(f"{source}: wanted files that end in {TEXT}, found none")
    return {name: partial(_windows, partial(_text_lines, paths)) for name, paths in files.items()}


def _text_lines(paths: Sequence[Path]) -> Iterator[tuple[str, list[str]]]:
    """Go through the lines of a recording's files: where each is, its start, end and vector."""
    for path in paths:
        timed = TIMED_NAME.fullmatch(path.name.removesuffix(TEXT))
        try:
            lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror})") from error
        for number, line in enumerate(lines, 1):
            fields = line.strip().split("\t")
            fields = [timed[2], timed[3], *fields] if timed and len(fields) == 1 else fields
            if line.strip():
                yield f"{path}: line {number}", fields


def _csv_sources(path: Path) -> Sources:
    """Return readers of the recordings in the CSV of newer versions: file_path, start, end, embedding."""
    try:
        header, *rows = list(csv_rows(path)) or [[]]
    except (OSError, csv.Error) as error:
        raise InputError(
            f"{path}: cannot be read ({getattr(error, 'strerror', None) or error})"
        ) from error
    refuse_missing(path, header, COLUMNS)
    at = [header.index(name) for name in COLUMNS]
    members: dict[str, list[tuple[str, list[str]]]] = {}
    for number, row in enumerate(rows, 1):
        name, *fields = (row[i] for i in at)
        members.setdefault(name, []).append((f"{path}: row {number}", fields))
    return {name: partial(_windows, partial(iter, lines)) for name, lines in members.items()}


def _windows(read: Callable[[], Iterable[tuple[str, list[str]]]]) -> Windows:
    """Read windows from text; refuse the first line that is not a start, an end and as many numbers as the first."""
    times, vectors = [], list[NDArray[np.float32]]()
    for where, fields in read():
        try:
            start, end, numbers = fields
            times.append((float(start), float(end)))
            with np.errstate(over="ignore"):
                vectors.append(
                    np.array([float(number) for number in numbers.split(",")]).astype(np.float32)
                )
        except ValueError as error:
            raise InputError(
                f"{where}: wanted start, end and the numbers of a vector ({error})"
            ) from None
        if not (np.isfinite(times[-1]).all() and np.isfinite(vectors[-1]).all()):
            raise InputError(f"{where}: wanted finite numbers")
        if vectors[-1].size != vectors[0].size:
            raise InputError(
                f"{where}: wanted {vectors[0].size} numbers as in the first, found {vectors[-1].size}"
            )
    start_s, end_s = np.array(times, np.float64).reshape(-1, 2).T
    return Windows(start_s, end_s, np.array(vectors, np.float32))
