"""An evaluation → plain files in a directory, all of them or none.

    with open_results(directory) as results:      refuses what cannot be written, before anything is computed
        results.write(evaluation, provenance)     stages every file, then puts each in its place

`provenance.json` is put in place last and holds the sha256 of the others: where they agree, the set is whole.
"""

import errno
import hashlib
import json
import os
import platform
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from pathlib import Path
from typing import Any, Self, get_type_hints

import numpy as np
import polars as pl

from callshot.errors import OutputError
from callshot.records import ClassCurve, Confusion, Curve, Evaluation, Ties, Values

Columns = dict[str, Sequence[Any]]
Draw = Callable[[Evaluation, Path], Sequence[Path]]

PROVENANCE = "provenance.json"
HOST = re.sub(r"\W", "_", platform.node())
CLASS_COLUMNS = ("label", "exemplars", "complete_to_k", "eligible", "reason")
ROW_GROUP = 2**18
DTYPES = {str: pl.String, int: pl.Int64, float: pl.Float64, bool: pl.Boolean}
NEEDS_QUOTES = re.compile(r'[",\r\n]|^\s|\s$')
MENDS = {
    **dict.fromkeys((errno.EACCES, errno.EPERM), "no permission to write; choose another directory, or ask for access"),
    errno.EROFS: "it is on a read-only file system; choose another directory",
    errno.ENOSPC: "the disk is full; free some space, or choose another directory",
    errno.EDQUOT: "the disk quota is used up; free some space, or choose another directory",
}


class Staging:
    """A hidden folder inside the directory of results, in which a set of files is made ready."""

    def __init__(self, directory: Path, path: Path, made: Sequence[Path]) -> None:
        self.directory, self.path, self.made = directory, path, made

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def write(self, evaluation: Evaluation, provenance: Mapping[str, Any], draw: Draw | None = None) -> list[Path]:
        """Write every file and put it in place; after an error or an interrupt, what was there before is still there.

        `provenance` gets one more key, `files`: the sha256 of each of the others. `draw` makes the figures, from a path
        without suffix. What an earlier run wrote and this one does not is removed.
        """
        try:
            with explained(self.directory):
                self.path.mkdir(parents=True, exist_ok=True)
                figures = [] if draw is None else [path.name for path in draw(evaluation, self.path / "sweep")]
                names = [*self._stage(evaluation, provenance, figures), PROVENANCE]
                with _alone_in(self.directory):
                    _publish(self.path, self.directory, names, _written_before(self.directory) - set(names))
        finally:
            self.close()
        return [self.directory / name for name in names]

    def close(self) -> None:
        """Remove the staging folder, and the directories made for it that are still empty."""
        shutil.rmtree(self.path, ignore_errors=True)
        with suppress(OSError):
            for folder in self.made:
                folder.rmdir()

    def _stage(self, evaluation: Evaluation, provenance: Mapping[str, Any], figures: Sequence[str]) -> list[str]:
        for name, write in WRITERS.items():
            write(evaluation, self.path / name)
        files = {name: _seal(self.path / name) for name in (*WRITERS, *figures)}
        whole = json.dumps({**provenance, "files": files}, sort_keys=True, indent=2, ensure_ascii=False)
        (self.path / PROVENANCE).write_text(whole + "\n", encoding="utf-8", newline="\n")
        _seal(self.path / PROVENANCE)
        return list(files)


def open_results(directory: Path) -> Staging:
    """Make the directory if need be, check that results can be written to it, and stage them there.

    What earlier runs that have died left behind is removed. Refused: a file in the way, no permission, a read-only or
    full disk, a folder with the name of one of our files.
    """
    with explained(directory):
        made = [folder for folder in (directory, *directory.parents) if not folder.exists()]
        directory.mkdir(parents=True, exist_ok=True)
        if folders := [name for name in NAMES if (directory / name).is_dir()]:
            raise OSError(f"{folders[0]} is a folder there, and a file goes by that name; move it")
        if theirs := [name for name in NAMES if (directory / name).exists() and not _written_before(directory)]:
            raise OSError(f"{theirs[0]} is there and not from callshot; move it, or choose another directory")
        _remove_leftovers(directory)
        path = tempfile.mkdtemp(prefix=f".callshot-{os.getpid()}-{HOST}-", dir=directory)
    return Staging(directory, Path(path), made)


@contextmanager
def explained(directory: Path) -> Iterator[None]:
    """Turn what the system says while we write to a directory into one line that says what to do."""
    try:
        yield
    except (OSError, pl.exceptions.PolarsError) as error:
        told = re.search(r"os error (\d+)", str(error))  # how polars tells the number
        if told is None and not isinstance(error, OSError):
            raise
        number = int(told[1]) if told else getattr(error, "errno", None) or 0
        said = MENDS.get(number) or (f"{os.strerror(number)}; choose another directory" if number else str(error))
        why = _in_the_way(directory, number) or said
        raise OutputError(f"{directory}: cannot write results, and nothing was changed: {why}") from error


def _in_the_way(directory: Path, number: int) -> str:
    for path in (directory, *directory.parents) if number in (errno.EEXIST, errno.ENOTDIR) else ():
        if os.path.lexists(path) and not path.is_dir():
            return f"{path} is not a directory; move it, or choose another directory"
    return ""


def _written_before(directory: Path) -> set[str]:
    """Return the names of what an earlier run wrote there, by its provenance."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        told = json.loads((directory / PROVENANCE).read_text(encoding="utf-8"))
        return ({PROVENANCE} | set(told["files"])) & set(NAMES) if "files" in told else set()
    return set()


def _remove_leftovers(directory: Path) -> None:
    for path in directory.glob(".callshot-*"):
        owner = re.fullmatch(rf"\.callshot-(\d{{1,9}})-{HOST}-\w+", path.name)
        if owner and not path.is_symlink() and not _alive(int(owner[1])):
            _undo(path, directory)
            shutil.rmtree(path, ignore_errors=True)


def _undo(staging: Path, directory: Path) -> None:
    """Put back what a run replaced before it was killed half-way: its provenance, the last to go, is still staged."""
    if (staging / "before").is_dir() and (staging / PROVENANCE).exists():
        for copy in (staging / "before").iterdir():
            if copy.name in NAMES and copy.is_file() and not copy.is_symlink():
                copy.replace(directory / copy.name)


@contextmanager
def _alone_in(directory: Path) -> Iterator[None]:
    """Keep other runs from moving files into the same directory meanwhile, where the system has such locks."""
    try:
        import fcntl
    except ImportError:  # Windows
        yield
        return
    handle = os.open(directory, os.O_RDONLY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _alive(pid: int) -> bool:
    try:
        if os.name != "nt":  # there, it would end the process
            os.kill(pid, 0)
    except OSError as error:
        return error.errno == errno.EPERM
    return True


def _publish(staging: Path, directory: Path, names: Sequence[str], stale: set[str]) -> None:
    """Move staged files into place one by one, remove stale ones; if that stops half-way, put back what was there."""
    before = staging / "before"
    before.mkdir()
    for name in (*names, *stale):
        if (directory / name).exists():
            _keep(directory / name, before / name)
    begun = []
    try:
        for name in names:
            begun.append(name)
            os.replace(staging / name, directory / name)  # noqa: PTH105
        for name in stale:
            begun.append(name)
            (directory / name).unlink(missing_ok=True)
        _sync_folder(directory)
    except BaseException:
        for name in begun:
            _put_back(before / name, directory / name)
        raise


def _keep(path: Path, copy: Path) -> None:
    try:
        copy.hardlink_to(path)
    except (OSError, NotImplementedError):  # not every file system has links
        shutil.copy2(path, copy)


def _put_back(copy: Path, path: Path) -> None:
    if copy.exists():
        copy.replace(path)
    else:
        path.unlink(missing_ok=True)


def _seal(path: Path) -> str:
    """Bring a file to the disk; return its sha256."""
    with path.open("r+b") as file:
        os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync_folder(directory: Path) -> None:
    with suppress(PermissionError):  # Windows opens no folders
        handle = os.open(directory, os.O_RDONLY)
        os.fsync(handle)
        os.close(handle)


def _columns(names: Iterable[str], rows: Sequence[object]) -> Columns:
    return {name: [getattr(row, name) for row in rows] for name in names}


def _fold_columns(evaluation: Evaluation) -> Columns:
    table, fold = evaluation.segments, evaluation.folds.fold.tolist()
    return {"segment": table.segment, "recording": table.recording, "label": table.label, "fold": fold}


def _csv(read: Callable[[Evaluation], Columns]) -> Callable[[Evaluation, Path], None]:
    """Return a writer of the columns that `read` takes from an evaluation."""

    def write(evaluation: Evaluation, path: Path) -> None:
        columns = read(evaluation)
        rows = zip(*([_cell(value) for value in column] for column in columns.values()), strict=True)
        with path.open("w", encoding="utf-8", newline="\n") as file:
            file.writelines(",".join(row) + "\n" for row in chain([tuple(columns)], rows))

    return write


def _cell(value: object) -> str:
    """Return a value as text that reads back as the same value."""
    if isinstance(value, str):
        return '"' + value.replace('"', '""') + '"' if NEEDS_QUOTES.search(value) else value
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float):
        return repr(float(value)) if value == value else "NaN"
    return str(value)


def _write_curve(evaluation: Evaluation, path: Path) -> None:
    schema = {name: DTYPES[kind] for name, kind in get_type_hints(Curve).items()}
    frame = pl.DataFrame(_columns(get_type_hints(Curve), evaluation.curve), schema=schema)
    frame.write_parquet(path, compression="zstd", row_group_size=ROW_GROUP)


def _write_values(evaluation: Evaluation, path: Path) -> None:
    """Write every value, streaming: the columns that say whose they are would be larger than the values."""
    rows = [_value_rows(values) for values in evaluation.values]
    pl.concat(rows).sink_parquet(path, compression="zstd", row_group_size=ROW_GROUP)


def _value_rows(values: Values) -> pl.LazyFrame:
    shots, samples = values.value.shape
    keys = [pl.lit(getattr(values, name), pl.String).alias(name) for name in list(get_type_hints(Values))[:-2]]
    k, index = np.repeat(values.k.astype(np.int64), samples), np.tile(np.arange(samples), shots)
    return pl.LazyFrame({"k": k, "index": index, "value": values.value.ravel()}).select(*keys, "k", "index", "value")


WRITERS: dict[str, Callable[[Evaluation, Path], None]] = {
    "curve.csv": _csv(lambda e: _columns(get_type_hints(Curve), e.curve)),
    "curve.parquet": _write_curve,
    "values.parquet": _write_values,
    "classes.csv": _csv(lambda e: _columns(CLASS_COLUMNS, e.classes)),
    "folds.csv": _csv(_fold_columns),
    "per_class.csv": _csv(lambda e: _columns(get_type_hints(ClassCurve), e.per_class)),
    "confusion.csv": _csv(lambda e: _columns(get_type_hints(Confusion), e.confusion)),
    "ties.csv": _csv(lambda e: _columns(get_type_hints(Ties), e.ties)),
}
FIGURES = ("sweep.pdf", "sweep.png")
NAMES = (*WRITERS, *FIGURES, PROVENANCE)
