"""Tables of embeddings: Parquet, CSV or `.npz` in, `Vectors` out, and back to Parquet.

    recording   text or integers       the file that the segment was cut from
    label       text or integers       the label at the segment's centre
    embedding   list of numbers        the vector; or columns e0, e1, …; in .npz a 2-D array
    segment     text or integers       its id, no two the same; optional for a single table
    labels      list of text           optional: all labels that overlap it; as text a JSON array,
                                       or joined by `;`
    fold        integers or names      optional; −1 or empty: the common fold

Other columns are ignored. The encoder's name is the Parquet metadata or `.npz` entry `encoder`,
else the file's stem. float32 vectors stay float32, all others become float64. Text is kept as
written ("007" stays "007"), but space around a `;` is trimmed. In CSV the header and empty rows do
not count as rows.

The sequences behind vectors are in a table of their own, `x.sequences.parquet`: segment, frames,
and the values, frame after frame.
"""

import csv
import json
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from hashlib import sha256
from itertools import islice
from pathlib import Path
from typing import Any, cast

import numpy as np
import polars as pl
from numpy.typing import NDArray

from callshot.corpus.segment_table import read_segments
from callshot.errors import CallshotError, InputError, OutputError
from callshot.files import (
    atomic_path,
    check_new_file,
    error_reason,
    make_folder,
    sha256_text,
)
from callshot.records import Finding
from callshot.records.table_files import (
    describe_parquet,
    open_npz,
    read_parquet,
    restore_frame,
    write_parquet,
)
from callshot.storage import to_path
from callshot.vectors import (
    BROKEN_TEXT,
    Vectors,
    check_columns,
    contiguous_floats,
    select_columns,
)

Metadata = dict[str, str]
Frames = NDArray[np.float32]

CHECKSUM = "sha256"  # of the content, in the metadata
METADATA_CHECKSUM = "metadata_sha256"  # of the other metadata
SEQUENCES: dict[str, Any] = {
    "segment": pl.String,
    "frames": pl.Int64,
    "sequence": pl.List(pl.Float32),
}
CSV_BLOCK_BYTES = 2**24  # no row is longer
SEQUENCES_PER_WRITE = 64  # that are in memory at once
EMBED_AGAIN = "embed the segments again with --sequence"
SEGMENT_COLUMNS = {"path", "start_s", "end_s"}


def read_table(path: Path, *, need_segment: bool = False) -> Vectors:
    """Read one table; without a column `segment`, ids are the recording and a count, "a.wav#0"."""
    with explain_read_errors(path):
        with path.open("rb") as stream:
            if stream.read(1) == b"":
                raise InputError(f"{path}: the file is empty; expected a table")
        read = READERS.get(path.suffix.lower())
        if read is None:
            raise InputError(
                f"{path}: expected a name that ends in {', '.join(READERS)}, got {path.suffix!r}"
            )
        frame, metadata = read(path)
        joined = metadata.get("views", "")
        joined_dimensions = tuple(map(int, joined.split(","))) if joined else ()
    if need_segment and "segment" not in frame.columns:
        raise InputError(
            f"{path}: column segment is missing, by which several tables are matched; add it"
        )
    encoder = metadata.get("encoder", "")
    name = encoder if encoder.strip() else path.stem
    table = Vectors.from_frame(frame, encoder=name, source=str(path))
    return replace(
        table,
        spans=replace(table.spans, metadata=metadata),
        joined_dimensions=joined_dimensions,
        note=metadata.get("note", ""),
        fingerprint=metadata.get("fingerprint", ""),
    )


def read_tables(paths: Sequence[Path]) -> list[Vectors]:
    """Read tables of several encoders over the same segments, all in the row order of the first."""
    tables = [read_table(to_path(path), need_segment=len(paths) > 1) for path in paths]
    sources: dict[str, str] = {}
    for table in tables:
        if table.encoder in sources:
            raise InputError(
                f"{table.source}: its encoder is {table.encoder!r}, as in "
                f"{sources[table.encoder]}; rename the file, or make one of them again with "
                "--name NAME (callshot embed) or --encoder NAME (callshot import)"
            )
        sources[table.encoder] = table.source
    return tables[:1] + [_align_rows(tables[0], table) for table in tables[1:]]


def _align_rows(first: Vectors, other: Vectors) -> Vectors:
    """Return another table in the row order of the first; InputError if they disagree."""
    unmatched = sorted(set(first.segment) ^ set(other.segment))
    if unmatched:
        has_it, lacks_it = first.source, other.source
        if unmatched[0] in other.segment:
            has_it, lacks_it = lacks_it, has_it
        raise InputError(
            f"{lacks_it}: column segment: expected the same segments in all tables, got no "
            f"{unmatched[0]!r} of {has_it} ({len(unmatched)} are not in both)"
        )
    row_of = {segment: row for row, segment in enumerate(other.segment)}
    rows = [row_of[segment] for segment in first.segment]
    aligned = other.take(rows)
    for name in ("recording", "label", "labels", "fold"):
        columns = (_column(first, name), _column(aligned, name))
        for row, expected, value in zip(rows, *columns, strict=True):
            if value != expected:
                raise InputError(
                    f"{other.source}: column {name}, row {row + 1}: expected {expected!r} "
                    f"as in {first.source}, got {value!r}; all tables must agree"
                )
    spans = replace(first.spans, source=other.source)
    return replace(aligned, spans=spans)


def _column(table: Vectors, name: str) -> list[Any]:
    """Return the values of a column to compare: `labels` are sorted, no folds are a None each."""
    if name == "fold":
        return [None] * len(table) if table.fold is None else table.fold.tolist()
    column = table.spans[name]
    return list(map(sorted, column)) if name == "labels" else column


def write_table(embeddings: Vectors, path: Path, *, corpus: str | None = None) -> None:
    """Write a table as Parquet, all of it or nothing, with checksums of content and metadata."""
    path = to_path(path)
    check_suffix(path)
    frame = embeddings.to_frame()
    metadata = {
        "views": ",".join(map(str, embeddings.joined_dimensions)),
        "note": embeddings.note,
        "fingerprint": embeddings.fingerprint,
        "corpus": corpus,
    }
    written = {name: value for name, value in metadata.items() if value}
    written |= {"encoder": embeddings.encoder, CHECKSUM: content_checksum(frame)}
    written[METADATA_CHECKSUM] = metadata_checksum(written)
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary:
        write_parquet(frame, temporary, written)


def stored_checksum(path: Path) -> str:
    """Return a text that changes with the content or the joined dimensions of a table.

    It has the checksum in the metadata; empty if there is none.
    """
    metadata = describe_parquet(path).metadata
    checksum = metadata.get(CHECKSUM, "")
    return f"{checksum} {metadata.get('views', '')}" if checksum else ""


def content_checksum(frame: pl.DataFrame) -> str:
    """Return the SHA-256 of the vectors and the columns of a table, whatever its file format."""
    vectors = frame["embedding"].explode().to_numpy()
    digest = sha256(np.ascontiguousarray(vectors).data)
    columns = frame.drop("embedding")
    digest.update(json.dumps(columns.to_dict(as_series=False)).encode())
    return digest.hexdigest()


def metadata_checksum(metadata: Mapping[str, str]) -> str:
    """Return the SHA-256 of the metadata of a table, without this checksum and pyarrow's schema."""
    excluded = (METADATA_CHECKSUM, "ARROW:schema")
    hashed = {name: text for name, text in metadata.items() if name not in excluded}
    return sha256_text(json.dumps(hashed, sort_keys=True))


def check_suffix(path: Path) -> None:
    """Check that a path can be the path of a table."""
    if path.suffix.lower() != ".parquet":
        raise OutputError(
            f"{path}: expected a name that ends in .parquet, got {path.suffix!r}"
        )


def check_new_table(path: Path) -> None:
    """Check, before any work, that a table can be written and replaces no file of others."""

    def is_own(file: Path) -> bool:
        """Return whether callshot wrote a table, of vectors or of sequences."""
        try:
            columns, metadata = describe_parquet(file)
        except InputError:
            return False
        return "encoder" in metadata or columns == list(SEQUENCES)

    check_suffix(path)
    check_new_file(path, "table", is_own)


def table_segments(path: Path) -> frozenset[str]:
    """Return the segment ids in a table that `write_table` wrote."""
    return frozenset(read_parquet(path, ["segment"])["segment"])


@contextmanager
def explain_read_errors(path: Path) -> Iterator[None]:
    """Turn any error that reading a damaged file raises in the block into an InputError."""
    try:
        yield
    except CallshotError:
        raise
    # A panic of polars is no Exception.
    except (Exception, pl.exceptions.PanicException) as error:
        reason = error_reason(error)
        if "allow_pickle=False" in reason:
            reason = "it has pickled objects: save text as arrays of dtype str"
        hint = f"; expected a complete {path.suffix} file" if path.is_file() else ""
        raise InputError(f"{path}: cannot be read ({reason}){hint}") from error


def _read_parquet(path: Path) -> tuple[pl.DataFrame, Metadata]:
    """Read the columns of a table from Parquet, and the metadata of the file."""
    columns, metadata = describe_parquet(path)
    return read_parquet(path, select_columns(path, columns)), metadata


def _read_csv(path: Path) -> tuple[pl.DataFrame, Metadata]:
    """Read the columns of a table from CSV as text; the metadata are empty."""
    import pyarrow
    from pyarrow.csv import ConvertOptions, ParseOptions, ReadOptions, read_csv

    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            header = next(filter(any, csv.reader(lines)), [])
    except UnicodeDecodeError:
        raise InputError(f"{path}: not UTF-8; save the file as UTF-8") from None
    check_columns(path, header, ["e0"])
    names = select_columns(path, [name for name in header if name != "embedding"])
    check_repeated(path, header, names)
    # pyarrow's names: those of the header may be empty or repeated.
    own_names = [f"f{number}" for number in range(len(header))]
    own_name_of = dict(zip(header, own_names, strict=True))
    with pyarrow.OSFile(os.fsencode(path)) as stream:
        table = read_csv(
            stream,
            ReadOptions(
                autogenerate_column_names=True,
                use_threads=False,
                block_size=CSV_BLOCK_BYTES,
            ),
            ParseOptions(newlines_in_values=True),
            ConvertOptions(column_types=dict.fromkeys(own_names, pyarrow.string())),
        )
    rows = cast(pl.DataFrame, pl.from_arrow(table))[1:]  # without the header
    is_empty = pl.all_horizontal(pl.all() == "")
    filled = rows.filter(~is_empty)
    frame = filled.select(pl.col(own_name_of[name]).alias(name) for name in names)
    return restore_frame(frame), {}


def check_repeated(path: Path, header: Sequence[str], names: Sequence[str]) -> None:
    """Raise InputError if one of the names is in a header more than once."""
    for name in names:
        count = header.count(name)
        if count > 1:
            raise InputError(
                f"{path}: column {name} is in the header {count} times; keep one"
            )


def _read_npz(path: Path) -> tuple[pl.DataFrame, Metadata]:
    """Read columns, of text but for the matrix `embedding`; encoder and corpus become metadata."""
    columns = {}
    with path.open("rb") as stream, warnings.catch_warnings(action="ignore"):
        entries = open_npz(stream, path)
        names = select_columns(path, list(entries))
        metadata_names = [name for name in ("encoder", "corpus") if name in entries]
        for name in (*names, *metadata_names):
            array = np.atleast_1d(entries[name])
            content = f"{array.dtype} of shape {array.shape}"
            if name == "embedding":
                if array.dtype.kind not in "fiu" or array.ndim != 2:
                    raise InputError(
                        f"{path}: column {name}: expected numbers, segments × dimensions, "
                        f"got {content}"
                    )
                columns[name] = pl.Series(contiguous_floats(array))
                continue
            if array.dtype.kind not in "Uiu" or array.ndim != 1:
                raise InputError(
                    f"{path}: column {name}: expected a row of text or integers, got {content}"
                )
            text = array.astype(str).tolist()
            if BROKEN_TEXT.search("".join(text)):  # which makes polars panic
                raise InputError(
                    f"{path}: column {name}: expected text, got broken text"
                )
            columns[name] = pl.Series(text, dtype=pl.String)
    metadata = {name: columns.pop(name)[0] for name in metadata_names}
    return pl.DataFrame(columns), metadata


READERS = {".parquet": _read_parquet, ".csv": _read_csv, ".npz": _read_npz}


def sequences_path(table: Path) -> Path:
    """Return the path of the sequences behind a table of embeddings."""
    return table.with_suffix(".sequences.parquet")


def write_sequences(
    path: Path, segments: Sequence[str], sequences: Iterator[Frames]
) -> None:
    """Write the sequence behind each vector, (frames, dimension); few are in memory at once."""
    make_folder(path.absolute().parent)
    with atomic_path(path) as temporary:
        write_parquet(_sequence_frames(segments, sequences), temporary)


def _sequence_frames(
    segments: Sequence[str], sequences: Iterator[Frames]
) -> Iterator[pl.DataFrame]:
    """Yield the rows of a table of sequences, 64 segments at a time."""
    for start in range(0, max(1, len(segments)), SEQUENCES_PER_WRITE):
        names = segments[start : start + SEQUENCES_PER_WRITE]
        batch = list(islice(sequences, len(names)))
        columns = {
            "segment": names,
            "frames": [len(sequence) for sequence in batch],
            "sequence": [sequence.ravel() for sequence in batch],
        }
        yield pl.DataFrame(columns, SEQUENCES)


def read_sequences(path: Path, segments: Sequence[str]) -> list[Frames]:
    """Return the sequence of each of `segments`, (frames, dimension), in that order."""
    if not path.exists():
        raise InputError(f"{path}: no such file; {EMBED_AGAIN}")
    names = list(SEQUENCES)
    try:
        check_columns(path, describe_parquet(path).columns, names)
        frame = read_parquet(path, names, where=("segment", list(segments)))
    except InputError as error:
        raise InputError(f"{error}; {EMBED_AGAIN}") from error
    sequences = {}
    for name, frames, values in zip(*frame, strict=True):
        size = 0 if values is None else len(values)
        if not frames or size == 0 or size % frames:
            raise InputError(
                f"{path}: segment {name!r}: {size} values do not make {frames} frames; "
                f"{EMBED_AGAIN}"
            )
        numbers = values.to_numpy().astype(np.float32, copy=False)
        sequences[name] = numbers.reshape(frames, -1)
    for name in segments:
        if name not in sequences:
            raise InputError(
                f"{path}: no sequence of the segment {name!r}; {EMBED_AGAIN}"
            )
    return [sequences[name] for name in segments]


def is_table(path: Path) -> bool:
    """Return whether a path is a file with the suffix of a table."""
    return path.is_file() and path.suffix.lower() in READERS


def verify_table(path: Path) -> Finding:
    """Read a table of segments, sequences or embeddings, compare its checksum, return its state."""
    columns: list[str] = []
    checksum = None
    try:
        if path.suffix.lower() == ".parquet":
            columns, metadata = describe_parquet(path)
            checksum = metadata.get(CHECKSUM)
        if SEGMENT_COLUMNS.issubset(columns):
            read_segments(path)
        elif set(SEQUENCES).issubset(columns):
            segments = read_parquet(path, ["segment"])["segment"].to_list()
            for sequence in read_sequences(path, segments):
                if not np.isfinite(sequence).all():
                    raise InputError("has NaN or infinity among its numbers")
        else:
            read_table(path)
        if checksum is not None:
            checksums = (checksum, metadata.get(METADATA_CHECKSUM))
            content = content_checksum(read_parquet(path))
            found = (content, metadata_checksum(metadata))
            if found != checksums:
                raise InputError(
                    "its content differs from its checksum: damaged, or edited since"
                )
    except InputError as error:
        return Finding(path, "damaged", str(error).removeprefix(f"{path}: "))
    if checksum is None:
        return Finding(path, "unverified", "has no checksum")
    return Finding(path, "ok")
