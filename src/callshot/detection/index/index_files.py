"""The files of an index: the vectors of all windows of recordings, read without loading them.

    INDEX/index.json                     the encoder with its options, window, hop, precision
    INDEX/rejects.csv                    recordings that the last run could not read
    INDEX/recordings/<16 hex digits>/    one folder for each recording, by the hash of its path
        recording.json                   its path, length, clock time, and its files of windows
        STAMP-NUMBER-SHA256.npy          a chunk (`callshot.chunks`) of up to 1024 windows:
                                         start_s, end_s, rms_dbfs, vector

`recording.json` is written last: a recording without it is not finished. STAMP stands for the size
and the time of the audio file, and of a damaged one for where the damage begins.

An index that `callshot import` made has vectors of another tool and no audio: `fingerprint` has
only the name that the user gave (IMPORTED) and the dimension, `root` is empty, `rate_hz` is 0, and
levels are NaN.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from callshot.chunks import (
    Rows,
    find_copy,
    find_damage,
    map_chunk,
    read_record,
    verify_files,
    write_chunk,
    write_record,
)
from callshot.encoders.catalogue import format_encoder
from callshot.errors import InputError, count_text
from callshot.files import error_reason, explain_unreadable, sha256_text
from callshot.records import Finding, Reject
from callshot.spans import Spans
from callshot.storage import is_remote, map_requests, to_path
from callshot.vectors import Vectors

INDEX_FOLDER = "index"  # of an index inside a folder of a scan or of labels
INDEX = "index.json"
RECORDINGS = "recordings"
RECORDING = "recording.json"
REJECTS = "rejects.csv"
LOCK = ".lock"
OWN_NAMES = (INDEX, RECORDINGS, REJECTS, LOCK)
VERSION = 1
WINDOW_COLUMNS = ("start_s", "end_s", "rms_dbfs")
DTYPES = ("float16", "float32")
SPAN_NAME = re.compile(
    r"(?P<stamp>[0-9a-f]{8})-(?P<number>\d{6})-(?P<sha256>[0-9a-f]{64})\.npy"
)
IMPORTED = "imported"
MAKE_AGAIN = "run callshot verify --repair and callshot index (or import) again"


@dataclass(frozen=True)
class IndexSettings:
    """What all windows of an index have in common; times are in real seconds."""

    encoder: str
    choices: Mapping[str, str]
    fingerprint: Mapping[str, Any]
    dimension: int
    window_s: float
    hop_s: float
    channel: str
    dtype: str
    version: int = VERSION

    @property
    def name(self) -> str:
        """The encoder with the options that were chosen."""
        return format_encoder(self.encoder, self.choices)

    @property
    def is_imported(self) -> bool:
        """Whether another tool made the vectors, so that there is no audio."""
        return IMPORTED in self.fingerprint

    def row_dtype(self) -> np.dtype[np.void]:
        """Return the NumPy type of a row of a file of windows."""
        return np.dtype(
            [
                ("start_s", "<f8"),
                ("end_s", "<f8"),
                ("rms_dbfs", "<f4"),
                ("vector", f"<f{np.dtype(self.dtype).itemsize}", (self.dimension,)),
            ]
        )


@dataclass(frozen=True)
class IndexedRecording:
    """A recording in an index.

    path      relative to `root`, the folder of the recordings
    stamp     stands for the size and the time of the audio file
    clock     when it began, as ISO 8601; None if not known
    spans     the names of its files of windows
    notes     what is unusual about it
    """

    path: str
    root: str
    stamp: str
    duration_s: float
    rate_hz: float
    clock: str | None
    windows: int
    spans: Sequence[str]
    notes: Sequence[str] = ()


@dataclass(frozen=True)
class Index:
    """An open index, made by `open_index`; `rejects` are recordings whose entry is damaged."""

    folder: Path
    settings: IndexSettings
    recordings: tuple[IndexedRecording, ...]
    rejects: tuple[Reject, ...] = ()

    def __len__(self) -> int:
        return sum(recording.windows for recording in self.recordings)

    def __repr__(self) -> str:
        damaged = f", {len(self.rejects)} damaged" if self.rejects else ""
        return (
            f"Index({count_text(len(self), 'window')} of "
            f"{count_text(len(self.recordings), 'recording')}{damaged}, "
            f"{self.settings.name})"
        )

    def read_blocks(self) -> Iterator[Vectors]:
        """Yield the windows of all recordings, up to 1024 at a time, in order.

        Their spans have the column rms_dbfs; their matrix is read from the disk when it is used.
        """
        for recording in self.recordings:
            yield from self.read_recording(recording)

    def read_recording(
        self, recording: IndexedRecording, *, verify: bool = True
    ) -> Iterator[Vectors]:
        """Yield the windows of one recording; `verify` compares files with their checksums."""
        fingerprint = sha256_text(
            json.dumps(self.settings.fingerprint, sort_keys=True)
        )[:32]
        for path in span_paths(self.folder, recording):
            rows = read_span(path, self.settings, verify=verify)
            columns = {
                name: np.ascontiguousarray(rows[name]) for name in WINDOW_COLUMNS
            }
            frame = pl.DataFrame(columns).select(
                pl.lit(recording.path).alias("recording"), *WINDOW_COLUMNS
            )
            spans = Spans(frame, Path(recording.root), source=str(path))
            yield Vectors(spans, rows["vector"], self.settings.name, fingerprint)

    def read_rows(self, recording: IndexedRecording) -> Rows:
        """Read all windows of one recording at once."""
        paths = span_paths(self.folder, recording)
        return np.concatenate([read_span(path, self.settings) for path in paths])


def open_index(folder: Path | str) -> Index:
    """Open an index that `index_recordings` made.

    Parameters
    ----------
    folder : path
        The folder of the index.

    Returns
    -------
    Index
        `.settings`, `.recordings`, `.rejects`, and `.read_blocks()`, which reads the windows.

    Raises
    ------
    InputError
        If it is no index, or if no recording of it can be read.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> from callshot import index_recordings
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "20260314_053000.wav", np.full(40000, 0.1), 16000)
    >>> _ = index_recordings(folder, folder / "index", "mfcc", window_s=1)
    >>> index = open_index(folder / "index")
    >>> index
    Index(3 windows of 1 recording, mfcc)
    >>> [block.spans["start_s"] for block in index.read_blocks()]
    [[0.0, 1.0, 1.5]]
    >>> index.recordings[0].clock
    '2026-03-14T05:30:00'
    """
    return read_index(to_path(folder), {})


def read_index(folder: Path, known: Mapping[str, IndexedRecording]) -> Index:
    """Open an index; of `known` recordings, by their path, recording.json is not read again."""
    settings = read_settings(folder)
    recordings = []
    rejects = []
    known_by_folder = {
        recording_folder(Path(), path).name: recording
        for path, recording in known.items()
    }

    def find_entry(path: Path) -> IndexedRecording | InputError:
        """Return the recording of a recording.json, or why it cannot be read."""
        recording = known_by_folder.get(path.parent.name)
        if recording is not None:
            return recording
        try:
            return _read_recording(path)
        except InputError as error:
            return error

    with explain_unreadable(folder):
        paths = sorted(folder.glob(f"{RECORDINGS}/*/{RECORDING}"))
    entries = map_requests(find_entry, paths, together=is_remote(folder))
    for path, entry in zip(paths, entries, strict=True):
        if isinstance(entry, InputError):
            rejects.append(Reject(str(path.relative_to(folder)), None, str(entry)))
        else:
            recordings.append(entry)
    if rejects and not recordings:
        raise InputError(rejects[0].reason)
    recordings.sort(key=lambda recording: recording.path)
    return Index(folder, settings, tuple(recordings), tuple(rejects))


def _read_recording(path: Path) -> IndexedRecording:
    """Read a recording.json; raise InputError if it is damaged."""
    record = read_record(path, MAKE_AGAIN)
    try:
        recording = IndexedRecording(**record)
    except TypeError:
        raise InputError(f"{path}: not a recording of an index") from None
    if not all(map(SPAN_NAME.fullmatch, recording.spans)):
        raise InputError(f"{path}: expected names of files of windows")
    return recording


def is_index(folder: Path) -> bool:
    """Return whether a folder is an index."""
    with explain_unreadable(folder):
        return (folder / INDEX).is_file()


def check_has_audio(folder: Path) -> None:
    """Raise InputError if an index has vectors of another tool, and no audio."""
    if read_settings(folder).is_imported:
        raise InputError(
            f"{folder}: this index has vectors of another tool and no audio"
        )


def read_settings(folder: Path) -> IndexSettings:
    """Return the settings of an index."""
    path = folder / INDEX
    if not is_index(folder):
        raise InputError(
            f"{folder}: expected an index, made by callshot index; there is no {INDEX} in it"
        )
    record = read_record(path, "index the recordings again, in another folder")
    if record.get("version") != VERSION:
        raise InputError(
            f"{path}: expected an index of version {VERSION}, got {record.get('version')}; "
            "index the recordings again, in another folder"
        )
    names = {field.name for field in fields(IndexSettings)}
    if set(record) != names:
        raise InputError(f"{path}: expected the settings {', '.join(sorted(names))}")
    return IndexSettings(**record)


def recording_folder(index: Path, path: str) -> Path:
    """Return the folder of a recording in an index."""
    return index / RECORDINGS / sha256_text(path)[:16]


def span_paths(index: Path, recording: IndexedRecording) -> list[Path]:
    """Return the files of windows of a recording, in order of time."""
    folder = recording_folder(index, recording.path)
    return [folder / name for name in recording.spans]


def list_files(index: Path, path: str) -> list[Path]:
    """Return the files that an index has of a recording; of a store, this is one request."""
    folder = recording_folder(index, path)
    with explain_unreadable(folder):
        return sorted(folder.glob("*"))


def read_indexed(
    index: Path, path: str, files: Sequence[Path]
) -> IndexedRecording | None:
    """Return a recording that is in an index with all its windows, None if it is not.

    `files` are those that the index has of it, from `list_files`.
    """
    folder = recording_folder(index, path)
    names = {file.name for file in files}
    if RECORDING not in names:
        return None
    try:
        recording = _read_recording(folder / RECORDING)
    except InputError:  # a damaged entry is made again, as if there were none
        return None
    return recording if names.issuperset(recording.spans) else None


def write_indexed(index: Path, recording: IndexedRecording) -> None:
    """Add a recording whose windows are written to an index."""
    folder = recording_folder(index, recording.path)
    write_record(folder / RECORDING, asdict(recording))


def write_span(folder: Path, stamp: str, number: int, rows: Rows) -> str:
    """Write windows, all of them or nothing; return the name of the file."""
    return write_chunk(folder, f"{stamp}-{number:06d}", rows).name


def read_span(path: Path, settings: IndexSettings, *, verify: bool = True) -> Rows:
    """Map a file of windows into memory; raise InputError if it is damaged."""
    with explain_unreadable(path):
        copy = find_copy(path)  # on this machine, of a file in a store
    damage = find_damage(copy) if verify else ""
    if damage:
        raise InputError(f"{path}: {damage}; {MAKE_AGAIN}")
    try:
        rows = map_chunk(copy)
    except (OSError, ValueError, EOFError) as error:
        raise InputError(
            f"{path}: cannot be read ({error_reason(error)}); {MAKE_AGAIN}"
        ) from None
    if rows.dtype != settings.row_dtype():
        raise InputError(
            f"{path}: expected windows with vectors of {settings.dimension} {settings.dtype}; "
            f"{MAKE_AGAIN}"
        )
    return rows


def verify_index(folder: Path, *, repair: bool = False) -> Iterator[Finding]:
    """Yield the state of each file of an index; with `repair`, set damaged files of windows aside.

    The next `callshot index` makes them again, or `callshot import` if they come from another tool.
    `index.json` cannot be made from the rest.
    """
    command = "callshot index"
    try:
        if read_settings(folder).is_imported:
            command = "callshot import"
        yield Finding(folder / INDEX, "ok")
    except InputError as error:
        reason = str(error).removeprefix(f"{folder / INDEX}: ")
        yield Finding(folder / INDEX, "damaged", reason)
    foreign = [path for path in folder.iterdir() if path.name not in OWN_NAMES]
    in_recordings = (folder / RECORDINGS).glob("*")
    foreign += [path for path in in_recordings if not path.is_dir()]
    for path in sorted(foreign):
        yield Finding(path, "not from callshot")
    for entry in sorted((folder / RECORDINGS).glob("*/")):  # folder of a recording
        with suppress(InputError):  # a damaged record is found by verify_files below
            file_names = _read_recording(entry / RECORDING).spans
            for name in file_names:
                if not (entry / name).exists():
                    reason = f"windows of a recording; {command} makes them again"
                    yield Finding(entry / name, "missing", reason)
        again = f"{command} makes it again"
        yield from verify_files(entry, [RECORDING], repair=repair, again=again)
