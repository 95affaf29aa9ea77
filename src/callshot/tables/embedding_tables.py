"""A table of embeddings: a Parquet, CSV or `.npz` file comes in, `Embeddings` go out, and back to Parquet.

    recording   text or integers                the file that the segment was cut from
    label       text or integers                the label at the segment's centre
    embedding   list of numbers                 the vector; in CSV columns e0, e1, …; in .npz a 2-D array
    segment     text or integers, no two alike  its id; may be absent where one table stands alone
    labels      list of text, optional          all labels that overlap it; as text: a JSON array, or joined by `;`
    fold        integer, optional               0 to K − 1, or −1 for the common fold

Other columns are ignored. The encoder's name is the Parquet metadata or `.npz` entry `encoder`, else the file's stem.
float32 vectors stay float32, all others become float64. Text is kept as written ("007" stays "007"), but space around
a `;` is trimmed. Rows are counted from 1; in CSV the header and rows that hold nothing do not count.
"""

import csv
import json
import os
import re
import warnings
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import ArrayLike, NDArray

from callshot.errors import CallshotError, InputError, OutputError
from callshot.records import COMMON_FOLD, Embeddings, IntArray

COLUMNS = ("recording", "label", "segment", "labels", "fold", "embedding")
NOT_TEXT = re.compile("[^\0-\ud7ff\ue000-\U0010ffff]")  # what bytes that are no text are read as


def read_table(path: Path, *, need_segment: bool = False) -> Embeddings:
    """Read one table; refuse it with the file, column and row of the first thing that is wrong.

    Without a column `segment` the ids are the recording and a count, "a.wav#0"; `need_segment` refuses that.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "mfcc.csv"
    >>> _ = path.write_text("recording,label,e0,e1\\na.wav,rumble,1,2\\na.wav,roar,3,4\\n")
    >>> read_table(path).segment
    ('a.wav#0', 'a.wav#1')
    """
    with _reading(path) as read:
        frame = read(path, ("embedding", "recording", "label", "segment")[: 3 + need_segment])
        encoder = _metadata(path).get("encoder", "")
    if frame.height == 0:
        raise InputError(f"{path}: the table has no rows; wanted one for each segment")
    recording, label = (_filled(path, frame[name]) for name in ("recording", "label"))
    return Embeddings(
        encoder=encoder if encoder.strip() else path.stem,
        vectors=_matrix(path, frame["embedding"]),
        segment=tuple(_segments(path, frame)),
        recording=tuple(recording),
        label=tuple(label),
        labels=_labels(path, label, frame["labels"])
        if "labels" in frame
        else tuple((name,) for name in label),
        fold=_fold(path, frame["fold"]) if "fold" in frame else None,
        source=str(path),
    )


def read_tables(paths: Sequence[Path]) -> list[Embeddings]:
    """Read the tables of several encoders over the same segments; their rows come in the order of the first."""
    tables = [read_table(Path(path), need_segment=len(paths) > 1) for path in paths]
    encoders = [table.encoder for table in tables]
    for table in tables:
        twin = tables[encoders.index(table.encoder)]
        if twin is not table:
            raise InputError(
                f"{table.source}: its encoder is {table.encoder!r}, as in {twin.source}; rename one file"
            )
    return tables[:1] + [_aligned(tables[0], table) for table in tables[1:]]


def write_table(embeddings: Embeddings, path: Path, *, corpus: str | None = None) -> None:
    """Write a table as Parquet: the whole of it, or nothing."""
    path = Path(path)
    check_output_path(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    metadata = {"encoder": embeddings.encoder} | ({} if corpus is None else {"corpus": corpus})
    columns = {
        name: pl.Series(list(getattr(embeddings, name)), dtype=pl.String) for name in COLUMNS[:3]
    }
    columns["labels"] = pl.Series(
        [list(names) for names in embeddings.labels], dtype=pl.List(pl.String)
    )
    if embeddings.fold is not None:
        columns["fold"] = pl.Series(embeddings.fold, dtype=pl.Int64)
    columns["embedding"] = pl.Series(_native(embeddings.vectors)).arr.to_list()
    try:
        pl.DataFrame(columns).write_parquet(unfinished.absolute(), metadata=metadata)
        unfinished.replace(path)
    except (OSError, pl.exceptions.PolarsError) as error:
        raise OutputError(f"{path}: cannot be written ({_reason(error)})") from error
    finally:
        with suppress(OSError):
            unfinished.unlink()


def check_output_path(path: Path) -> None:
    """Refuse a place where no table can be written, before any work."""
    if path.suffix.lower() != ".parquet":
        raise OutputError(
            f"{path}: a table is written as Parquet; wanted a name that ends in .parquet"
        )
    if path.is_dir() or not path.absolute().parent.is_dir():
        raise OutputError(
            f"{path}: cannot be written; wanted the name of a file, in a folder that is there"
        )


def table_corpus(path: Path) -> str | None:
    """Name the corpus that a table says it is of, if it says so."""
    with _reading(path):
        return _metadata(path).get("corpus")


def table_segments(path: Path) -> frozenset[str]:
    """Return the ids in a table that `write_table` wrote."""
    with _reading(path):
        return frozenset(
            pl.read_parquet(path.absolute(), columns=["segment"], glob=False)["segment"]
        )


@contextmanager
def _reading(path: Path) -> Iterator[Callable[[Path, Sequence[str]], pl.DataFrame]]:
    """Hand out the reader of a kind of file; turn whatever damaged bytes make it throw into one InputError."""
    readers = {".parquet": _read_parquet, ".csv": _read_csv, ".npz": _read_npz}
    try:
        with path.open("rb") as stream:
            if stream.read(1) == b"":
                raise InputError(f"{path}: the file is empty; wanted a table")
        if path.suffix.lower() not in readers:
            raise InputError(
                f"{path}: unknown kind of table; wanted a name that ends in {', '.join(readers)}"
            )
        yield readers[path.suffix.lower()]
    except CallshotError:
        raise
    except (Exception, pl.exceptions.PanicException) as error:  # a panic of polars is no Exception
        wanted = f"; wanted a whole {path.suffix} file" if path.is_file() else ""
        raise InputError(f"{path}: cannot be read ({_reason(error)}){wanted}") from error


def _reason(error: BaseException) -> str:
    if "allow_pickle=False" in str(error):
        return "pickled objects are refused: save text as arrays of dtype str"
    return getattr(error, "strerror", None) or str(error).partition("\n")[0] or type(error).__name__


def _metadata(path: Path) -> dict[str, str]:
    if path.suffix.lower() == ".npz":
        return {entry.name: str(entry[0]) for entry in _read_npz(path, (), ("encoder", "corpus"))}
    return pl.read_parquet_metadata(path.absolute()) if path.suffix.lower() == ".parquet" else {}


def _read_parquet(path: Path, needed: Sequence[str]) -> pl.DataFrame:
    scan = pl.scan_parquet(path.absolute(), glob=False, hive_partitioning=False)
    names = list(scan.collect_schema())
    refuse_missing(path, names, needed)
    return scan.select(name for name in COLUMNS if name in names).collect()


def _read_csv(path: Path, needed: Sequence[str]) -> pl.DataFrame:
    header = Counter(next(csv_rows(path), []))
    count = sum(re.fullmatch("e(0|[1-9][0-9]*)", name) is not None for name in header)
    dimensions = [f"e{i}" for i in range(max(1, count))]
    refuse_missing(path, list(header), [*needed[1:], *dimensions])
    for name in (*COLUMNS, *dimensions):
        if header[name] > 1:
            raise InputError(f"{path}: column {name} is there twice; rename or remove one")
    frame = _csv_frame(path)
    cells = frame.select(dimensions)
    numbers = cells.select(pl.all().cast(pl.Float64, strict=False)).to_numpy()
    whole = np.isfinite(
        numbers
    ).all()  # if not, the text goes on: space may be around it, or an error must quote it
    vectors = (
        pl.Series(_native(numbers))
        if whole
        else cells.select(pl.concat_list(dimensions)).to_series()
    )
    return frame.select(name for name in COLUMNS[:-1] if name in header).with_columns(
        embedding=vectors
    )


def _csv_frame(path: Path) -> pl.DataFrame:
    """Read all as text with polars, which is fast; where it fails or may have filled up short rows, look again."""
    try:
        frame = pl.read_csv(path.absolute(), infer_schema=False, glob=False)
    except (pl.exceptions.PolarsError, pl.exceptions.PanicException):
        deque(csv_rows(path), maxlen=0)
        raise
    if frame[:, -1].null_count() > 0:
        deque(csv_rows(path), maxlen=0)
    return frame.filter(~pl.all_horizontal(pl.all().fill_null("") == ""))


def csv_rows(path: Path) -> Iterator[list[str]]:
    """Go through the header and the rows that hold something; refuse those that are ragged or not UTF-8."""
    header: list[str] = []
    with path.open(encoding="utf-8-sig", errors="surrogateescape", newline="") as lines:
        for row, cells in enumerate(filter(any, csv.reader(lines))):
            header = header or cells
            if NOT_TEXT.search("".join(cells)):
                raise InputError(
                    f"{path}: row {row} (0 is the header): not UTF-8; save the file as UTF-8"
                )
            if len(cells) != len(header):
                raise InputError(
                    f"{path}: row {row}: wanted {len(header)} fields as in the header, found {len(cells)}"
                )
            yield cells


def _read_npz(path: Path, needed: Sequence[str], names: Sequence[str] = COLUMNS) -> pl.DataFrame:
    with path.open("rb") as stream, warnings.catch_warnings(action="ignore"):
        entries = np.lib.npyio.NpzFile(stream, allow_pickle=False)
        refuse_missing(path, list(entries), needed)
        return pl.DataFrame(
            [_npz_series(path, name, entries[name]) for name in names if name in entries]
        )


def _npz_series(path: Path, name: str, array: NDArray[Any]) -> pl.Series:
    vector, array = name == "embedding", np.atleast_1d(array)
    if array.dtype.kind not in ("fiu" if vector else "Uiu") or array.ndim != 1 + vector:
        wanted = "numbers, segments × dimensions" if vector else "a row of text or integers"
        raise InputError(
            f"{path}: column {name}: wanted {wanted}, found {array.dtype} of shape {array.shape}"
        )
    entries = [] if vector else array.astype(str).tolist()
    _refuse(
        path,
        name,
        [NOT_TEXT.search(entry) is not None for entry in entries],
        lambda row: "found damaged text",
    )
    return pl.Series(name, _native(array) if vector else entries)


def refuse_missing(path: Path, names: Sequence[str], wanted: Sequence[str]) -> None:
    """Raise for the first name that a header lacks, and say what may be wrong with it."""
    for name in wanted:
        if name not in names:
            why = ", by which several tables are matched," if name == "segment" else ""
            raise InputError(f"{path}: column {name}{why} is missing; {_mend(name, names)}")


def _mend(name: str, names: Sequence[str]) -> str:
    """Say what may be wrong with a header in which a name is missing."""
    for mark, called in ((";", "semicolons"), ("\t", "tabs")):
        if len(names) == 1 and mark in names[0]:
            return f"the fields seem to be separated by {called}: save the file with commas (and decimal points)"
    numbered = [other for other in names if re.fullmatch("e[0-9]+", other)]
    if numbered and name == "embedding":
        return "columns e0, e1, … are for CSV; here it is one column of lists"
    if numbered and re.fullmatch("e[0-9]+", name):
        return f"the dimensions are counted e0, e1, … without a gap, found {numbered[0]} to {numbered[-1]}"
    spelled = {other.lower(): other for other in names if other not in COLUMNS}
    near = [f"rename {spelled[other]!r}, or " for other in get_close_matches(name, spelled, n=1)]
    listed = ", ".join(map(repr, names[:8])) + (", …" if len(names) > 8 else "")
    return f"{''.join(near)}add it; the columns are {listed or 'none'}"


def _refuse(path: Path, column: str, bad: ArrayLike, found: Callable[[int], str]) -> None:
    """Raise for the first row that is bad, if there is one."""
    rows = np.flatnonzero(bad)
    if rows.size > 0:
        raise InputError(f"{path}: column {column}, row {rows[0] + 1}: {found(int(rows[0]))}")


def _native(vectors: NDArray[Any]) -> NDArray[np.floating[Any]]:
    """Lay vectors out row by row, as float32 if that is what they are, else as float64."""
    single = vectors.dtype.kind == "f" and vectors.dtype.itemsize == 4
    return np.ascontiguousarray(vectors, dtype=np.float32 if single else np.float64)


def _matrix(path: Path, lists: pl.Series) -> NDArray[np.floating[Any]]:
    """Lay lists of one length, of numbers or of text that reads as numbers, under each other."""
    lists = lists.arr.to_list() if isinstance(lists.dtype, pl.Array) else lists
    inner = lists.dtype.inner if isinstance(lists.dtype, pl.List) else pl.Null()
    if not (isinstance(inner, pl.String) or inner.is_numeric()):
        raise InputError(f"{path}: column embedding: wanted lists of numbers, found {lists.dtype}")
    lengths = lists.list.len().fill_null(0).to_numpy()
    _refuse(
        path,
        "embedding",
        lengths == 0,
        lambda row: "wanted a vector, found none or one of dimension 0",
    )
    ragged = lengths != lengths[0]
    _refuse(
        path,
        "embedding",
        ragged,
        lambda row: f"wanted {lengths[0]} numbers as in row 1, found {lengths[row]}",
    )
    found = lists.explode()
    numbers = found.str.strip_chars() if isinstance(inner, pl.String) else found
    numbers = numbers if isinstance(inner, pl.Float32) else numbers.cast(pl.Float64, strict=False)
    finite = numbers.is_finite().fill_null(value=False)
    if not finite.all():
        row, i = divmod(at := int(np.argmin(finite)), int(lengths[0]))
        where = f"{path}: column embedding, row {row + 1}, dimension e{i}"
        raise InputError(
            f"{where}: wanted a finite number, found {found[at]!r}; mend it or leave out the row"
        )
    return _native(numbers.to_numpy()).reshape(len(lists), -1)


def _text(path: Path, column: pl.Series, *, lists: bool = False) -> pl.Series:
    """Read text or integers as text, and with `lists` also lists of them."""
    nested = lists and isinstance(column.dtype, pl.List | pl.Array)
    kind = column.dtype.inner if nested else column.dtype  # type: ignore[attr-defined]
    if not (isinstance(kind, pl.String | pl.Categorical | pl.Enum | pl.Null) or kind.is_integer()):
        raise InputError(
            f"{path}: column {column.name}: wanted text or integers, found {column.dtype}"
        )
    return column.cast(pl.List(pl.String) if nested else pl.String)


def _filled(path: Path, column: pl.Series) -> pl.Series:
    text = _text(path, column)
    blank = [not (entry or "").strip() for entry in text]
    _refuse(
        path,
        column.name,
        blank,
        lambda row: f"wanted text, found {text[row]!r}; fill it in or leave out the row",
    )
    return text


def _segments(path: Path, frame: pl.DataFrame) -> pl.Series:
    if "segment" not in frame:
        count = pl.int_range(pl.len()).over("recording")
        return frame.select(pl.format("{}#{}", "recording", count)).to_series()
    ids = _filled(path, frame["segment"])
    again, place = ~ids.is_first_distinct(), ids.to_list().index
    _refuse(
        path,
        "segment",
        again,
        lambda row: f"{ids[row]!r} is in row {place(ids[row]) + 1} too; ids must differ",
    )
    return ids


def _labels(path: Path, label: pl.Series, column: pl.Series) -> tuple[tuple[str, ...], ...]:
    """Read the labels of each row; where the centre label is not among them it goes in front."""
    entries = _text(path, column, lists=True).to_list()
    rows = [_split(entry) if isinstance(entry, str) else entry or [] for entry in entries]
    bad = [not all(name and name.strip() for name in row) for row in rows]
    wanted = "wanted labels, none empty, in a list, a JSON array or joined by `;`"
    _refuse(path, "labels", bad, lambda row: f"{wanted}, found {entries[row]!r}")
    pairs = zip(label, rows, strict=True)
    return tuple(
        tuple(dict.fromkeys(row if centre in row else [centre, *row])) for centre, row in pairs
    )


def _split(text: str) -> list[str]:
    """Take labels out of text; an empty one stands for what is not an array of them."""
    if not text.lstrip().startswith("["):
        return [name.strip() for name in text.split(";")] if text.strip() else []
    try:
        names = [str(name) if type(name) is int else name for name in json.loads(text)]
        return names if NOT_TEXT.search("".join(names)) is None else [""]
    except (ValueError, TypeError, RecursionError):
        return [""]


def _fold(path: Path, column: pl.Series) -> IntArray:
    text = _text(path, column)
    fold = text.str.strip_chars().cast(pl.Int64, strict=False)
    wanted = f"wanted an integer, 0 to K - 1, or {COMMON_FOLD} for the common fold"
    _refuse(
        path,
        "fold",
        fold.is_null() | (fold < COMMON_FOLD),
        lambda row: f"{wanted}, found {text[row]!r}",
    )
    gaps = np.setdiff1d(np.arange(max(1, fold.filter(fold >= 0).n_unique())), fold)
    if gaps.size > 0:
        raise InputError(
            f"{path}: column fold: no row is in fold {gaps[0]}; wanted every fold from 0 to the last"
        )
    return fold.to_numpy().astype(np.int64)


def _aligned(first: Embeddings, other: Embeddings) -> Embeddings:
    """Put the rows of another encoder's table in the order of the first, if both say the same of the same segments."""
    place = {segment: row for row, segment in enumerate(other.segment)}
    lone = sorted(place.keys() ^ set(first.segment))
    if lone:
        lacking, having = (first, other) if lone[0] in place else (other, first)
        found = (
            f"{lone[0]!r} of {having.source} is missing, one of {len(lone)} that are not in both"
        )
        raise InputError(
            f"{lacking.source}: column segment: {found}; wanted the same segments in all tables"
        )
    rows = [place[segment] for segment in first.segment]
    for name, theirs in _facts(other).items():
        for mine, row in zip(_facts(first)[name], rows, strict=True):
            if mine != theirs[row]:
                found = f"found {theirs[row]!r}, but {mine!r} for this segment in {first.source}"
                raise InputError(
                    f"{other.source}: column {name}, row {row + 1}: {found}; all tables must agree"
                )
    return replace(first, encoder=other.encoder, vectors=other.vectors[rows], source=other.source)


def _facts(table: Embeddings) -> dict[str, Sequence[Any]]:
    fold = [None] * len(table) if table.fold is None else table.fold.tolist()
    return {
        "recording": table.recording,
        "label": table.label,
        "labels": [*map(sorted, table.labels)],
        "fold": fold,
    }
