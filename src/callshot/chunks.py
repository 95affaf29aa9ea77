"""Files of vectors: the one format in which vectors are kept, by the store and by an index.

A chunk is a NumPy file with a structured array: a row per vector, with the column `vector` and
those that its owner needs. It is written whole, and its name ends in the SHA-256 of its content.
JSON files beside it contain the SHA-256 of their content. So every changed byte is found, a crash
leaves whole files only, and what is there is not made again.

    store   <16 hex digits>/fingerprint.json, shard-TIME-SHA256[.sequences].npy
    index   index.json, recordings/<16 hex digits>/recording.json, STAMP-NUMBER-SHA256.npy

NumPy files, because they are mapped: 1024 windows are there within 1 ms, from Parquet in 20 to 35.
"""

import errno
import io
import json
import re
from collections.abc import Collection, Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.errors import InputError
from callshot.files import (
    LOCK_NAME,
    error_reason,
    explain_unreadable,
    sha256_file,
    sha256_text,
    write_atomic,
)
from callshot.records import Finding
from callshot.storage import local_copy

Rows = NDArray[np.void]
"""A structured array with a column `vector`."""

CHUNK_NAME = re.compile(r"[0-9a-z-]+-([0-9a-f]{64})(\.sequences)?\.npy")
DAMAGED_SUFFIX = ".damaged"
GONE = "the file is gone"


def write_chunk(folder: Path, prefix: str, rows: Rows, suffix: str = "") -> Path:
    """Write rows as a chunk, all of them or nothing."""
    buffer = io.BytesIO()
    np.save(buffer, rows, allow_pickle=False)
    content = buffer.getbuffer()
    path = folder / f"{prefix}-{sha256(content).hexdigest()}{suffix}.npy"
    write_atomic(path, content)
    return path


def map_chunk(path: Path) -> Rows:
    """Map a chunk into memory; a remote one is copied to this machine, once."""
    with explain_unreadable(path):
        copy = find_copy(path)
    rows = np.load(copy, mmap_mode="r", allow_pickle=False)
    if rows.ndim != 1 or "vector" not in (rows.dtype.names or ()):
        raise ValueError("expected a row per vector")
    return np.asarray(rows)


def find_copy(path: Path) -> Path:
    """Return the path of a chunk on this machine, which is that of a copy if it is remote."""
    match = CHUNK_NAME.fullmatch(path.name)
    return local_copy(path, None if match is None else match[1])


def find_damage(path: Path) -> str:
    """Return why a chunk must not be used; empty if it is as it was written.

    InputError if it cannot be read for another reason than a failing disk.
    """
    match = CHUNK_NAME.fullmatch(path.name)
    try:
        checksum = sha256_file(path)
    except FileNotFoundError:
        return GONE
    except OSError as error:
        if error.errno == errno.EIO:
            return error_reason(error)
        raise InputError(
            f"{path}: cannot be read ({error_reason(error)}); correct that and run again"
        ) from error
    if match is None or checksum != match[1]:
        return "its content differs from the checksum in its name"
    return ""


def set_aside(path: Path) -> str:
    """Rename a damaged file, so that it is not used any more; return what was done."""
    try:
        path.replace(path.with_name(f"{path.name}{DAMAGED_SUFFIX}"))
    except OSError as error:
        return f"it is not used, but stays where it is ({error_reason(error)})"
    return f"it was set aside (its name ends in {DAMAGED_SUFFIX} now)"


def format_record(content: Mapping[str, Any]) -> str:
    """Return content as the text of a JSON file that contains the SHA-256 of its content."""
    checksum = sha256_text(_format_json(content))
    return _format_json({"sha256": checksum, **content})


def write_record(path: Path, content: Mapping[str, Any]) -> None:
    """Write a JSON file that contains the SHA-256 of its content."""
    write_atomic(path, format_record(content))


def read_record(path: Path, advice: str) -> dict[str, Any]:
    """Return the content of a JSON file with a checksum; raise InputError if it differs."""
    with explain_unreadable(path):
        text = path.read_bytes()
    try:
        record = json.loads(text)
        checksum = record.pop("sha256")
    except (ValueError, AttributeError, LookupError, TypeError, RecursionError):
        raise InputError(f"{path}: not a file of callshot; {advice}") from None
    if sha256_text(_format_json(record)) != checksum:
        raise InputError(f"{path}: differs from its checksum; {advice}")
    return dict(record)


def _format_json(content: Mapping[str, Any]) -> str:
    return json.dumps(content, sort_keys=True, indent=1, ensure_ascii=True) + "\n"


def verify_files(
    folder: Path, records: Collection[str], *, repair: bool, again: str
) -> Iterator[Finding]:
    """Yield the state of each chunk and record in a folder; with `repair`, set damaged ones aside.

    `records` are the names of JSON files that may be there; `again` says what makes files again.
    """
    for path in sorted(folder.iterdir()):
        name = path.name
        if name == LOCK_NAME:
            continue
        if name.endswith(DAMAGED_SUFFIX):
            yield Finding(path, "quarantined", "may be removed")
            continue
        try:
            if name in records:
                read_record(path, advice="")
                damage = ""
            elif CHUNK_NAME.fullmatch(name) is not None:
                damage = find_damage(path)
            else:
                yield Finding(path, "not from callshot")
                continue
        except InputError as error:
            reason = str(error).removeprefix(f"{path}: ")
            damage, _, _ = reason.partition(";")  # without advice
            cause = error.__cause__
            # Of a failing disk (EIO), the record is damaged as a chunk would be.
            if isinstance(cause, OSError) and cause.errno != errno.EIO:
                yield Finding(path, "damaged", f"{damage}; correct that and run again")
                continue
        if not damage:
            yield Finding(path, "ok")
        elif repair:
            outcome = set_aside(path)
            yield Finding(path, "damaged", f"{damage}; {outcome}; {again}")
        else:
            yield Finding(path, "damaged", f"{damage}; --repair sets it aside")
