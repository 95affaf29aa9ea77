"""One recording comes in; its windows go into an index, as a whole or in pieces.

Windows are read in blocks while the model works, and written in files of up to 1024. What was
written before a crash is used again. When all files are there, the recording is entered.

A piece is some of the files of a long recording, with the names and bytes that they have when the
recording is embedded in one go: a file begins with a block, and each block is sought and resampled
by itself. So several workers can embed one recording. Only recordings in which any frame can be
sought have pieces.
"""

import math
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from callshot.corpus.audio import probe
from callshot.corpus.audio_files import DamagedAudio
from callshot.detection.index.clock import find_clock_time
from callshot.detection.index.index_files import (
    LOCK,
    SPAN_NAME,
    IndexedRecording,
    IndexSettings,
    list_files,
    read_indexed,
    recording_folder,
    write_indexed,
    write_span,
)
from callshot.detection.index.windows import (
    RecordingAtSpeed,
    WindowEncoder,
    WindowGrid,
    WindowVectors,
    measure_levels,
    read_windows,
    split_range,
)
from callshot.encoders.spec import EncoderSpec
from callshot.errors import InputError
from callshot.files import (
    LockBusy,
    explain_unreadable,
    hold_lock,
    make_folder,
    remove_unfinished,
    sha256_text,
)
from callshot.jobs import TryLater
from callshot.records import IntArray, Recording
from callshot.storage import to_path
from callshot.vectors import Rows, find_damage

SPAN_WINDOWS = 1024  # in a file
BLOCKS_AHEAD = 2  # that wait for the model
LOCK_S = 60.0  # all pieces of a recording write one after the other

Step = tuple[float, float]
"""Seconds of audio that are in the index now, and how many of them were embedded just now."""
Lock = Callable[[], AbstractContextManager[None]]


@dataclass(frozen=True)
class AddedRecording:
    """A recording that the index has; `is_new` says whether it was added now."""

    entry: IndexedRecording
    notes: Sequence[str]
    is_new: bool


@dataclass(frozen=True)
class Piece:
    """Files of windows of a recording, by number; `stamp` stands for its state."""

    path: str
    stamp: str
    numbers: range


@dataclass(frozen=True)
class WrittenPiece:
    """The names of the files of a piece, and how many seconds of it were embedded now.

    With `is_damaged`, some of its files are missing: the audio file is damaged within it.
    """

    names: Sequence[str]
    embedded_s: float
    is_damaged: bool = False


@dataclass(frozen=True)
class LongRecording:
    """A recording to embed in pieces.

    entry    what the index will have of it, without its files
    earlier  files of windows that were there before
    notes    what is unusual about it
    """

    entry: IndexedRecording
    earlier: Sequence[Path]
    notes: Sequence[str]

    def split(self, count: int) -> list[Piece]:
        """Return at most `count` pieces of equal length, of which the last may be shorter."""
        files = range(count_files(self.entry.windows))
        size = -(-len(files) // count)
        entry = self.entry
        return [
            Piece(entry.path, entry.stamp, files[first : first + size])
            for first in files[::size]
        ]


@dataclass(frozen=True)
class IndexTarget:
    """Where recordings come from, and the index that they go into; paths are absolute."""

    root: Path
    out: Path
    settings: IndexSettings
    grid: WindowGrid

    def find_entry(
        self, path: str, stamp: str, files: Sequence[Path]
    ) -> IndexedRecording | None:
        """Return what the index, which has `files` of a recording, has of it as it is now.

        Raises
        ------
        InputError
            If the index has another recording of the same name, from another folder.
        """
        entry = read_indexed(self.out, path, files)
        if entry is None or entry.stamp == stamp:
            return entry
        root = to_path(entry.root)
        if root == self.root.absolute():
            return None
        with explain_unreadable(root / path):
            is_there = (root / path).exists()
        if is_there:
            raise InputError(
                f"{path}: the index has another recording of this name, from {root}; "
                "give the folder that both are in, or another --out"
            )
        return None

    def add(
        self, path: str, model: WindowEncoder, *, wait: bool
    ) -> Generator[Step, None, AddedRecording]:
        """Add a recording; LockBusy if another process is adding it, and `wait` is False."""
        folder = recording_folder(self.out, path)
        timeout_s = -1.0 if wait else 0.0
        make_folder(folder)
        with hold_lock(folder / LOCK, timeout_s=timeout_s):
            stamp = find_stamp(self.root / path)
            files = list_files(self.out, path)
            entry = self.find_entry(path, stamp, files)
            if entry is not None:  # by another process
                yield entry.duration_s, 0.0
                recording = probe(self.root / path, path)
                frames = round(entry.duration_s * recording.rate_hz)
                if frames < recording.frames:  # its file is damaged
                    recording = recording.shorten(frames)
                notes = describe_recording(recording, self.grid, model.spec.name)
                return AddedRecording(entry, tuple(notes), is_new=False)
            remove_unfinished(folder)
            return (yield from self._embed(path, select_spans(files), stamp, model))

    def _embed(
        self, path: str, earlier: Sequence[Path], stamp: str, model: WindowEncoder
    ) -> Generator[Step, None, AddedRecording]:
        """Embed a recording and enter it; of a damaged file, what lies before the damage."""
        end_frame = None
        while True:
            span_stamp = stamp
            if end_frame is not None:
                # The last windows differ from those of the whole recording.
                span_stamp = sha256_text(f"{stamp} {end_frame}")[:8]
            names = []
            try:
                with self._open(path, model.spec, end_frame) as audio:
                    files = self._write_files(audio, span_stamp, model, earlier)
                    for name, seconds, is_new in files:
                        names.append(name)
                        if end_frame is None:
                            yield seconds, seconds if is_new else 0.0
                break
            except DamagedAudio as damage:
                is_earlier = end_frame is None or damage.end_frame < end_frame
                if damage.end_frame == 0 or not is_earlier:
                    raise
                end_frame = damage.end_frame
                earlier = select_spans(list_files(self.out, path))
        self.check_unchanged(path, stamp)
        entry = replace(self._make_entry(audio, stamp), spans=names)
        self._enter(entry, earlier)
        notes = describe_recording(audio.recording, self.grid, model.spec.name)
        return AddedRecording(entry, tuple(notes), is_new=True)

    def _open(
        self, path: str, spec: EncoderSpec, end_frame: int | None = None
    ) -> RecordingAtSpeed:
        channel = self.settings.channel
        return RecordingAtSpeed(self.root / path, path, spec, channel, end_frame)

    def _write_files(
        self,
        audio: RecordingAtSpeed,
        stamp: str,
        model: WindowEncoder,
        earlier: Sequence[Path],
        numbers: range | None = None,
        lock: Lock = nullcontext,
    ) -> Iterator[tuple[str, float, bool]]:
        """Write the files of windows that are missing; yield name, seconds, whether it is new.

        `earlier` are files that are there, `numbers` those to write, by default all. `lock` is
        held while a file is written.
        """
        folder = recording_folder(self.out, audio.recording.path)
        starts = self.grid.find_starts(audio.samples)
        numbers = numbers or range(count_files(len(starts)))
        names = find_whole_spans(earlier, stamp, numbers)
        for number in numbers:
            part = starts[number * SPAN_WINDOWS : (number + 1) * SPAN_WINDOWS]
            seconds = len(part) / len(starts) * audio.recording.duration_s
            is_new = number not in names
            if is_new:
                rows = self._embed_windows(audio, part, model)
                with lock():
                    names[number] = write_span(folder, stamp, number, rows)
            yield names[number], seconds, is_new

    def _embed_windows(
        self, audio: RecordingAtSpeed, starts: IntArray, model: WindowEncoder
    ) -> Rows:
        """Return windows as rows; the next ones are read while the model works."""
        grid = self.grid
        rows = np.zeros(len(starts), self.settings.row_dtype())
        ends = np.minimum(starts + grid.window, audio.samples)
        rows["start_s"] = grid.to_seconds(starts)
        # The last sample at the model's rate may reach beyond the last one of the file.
        rows["end_s"] = np.minimum(grid.to_seconds(ends), audio.recording.duration_s)
        waiting: deque[tuple[slice, WindowVectors]] = deque()

        def store_first() -> None:
            part, vectors = waiting.popleft()
            with np.errstate(over="ignore"):  # checked when all are there
                rows["vector"][part] = vectors()

        for part in split_range(len(starts), grid.block_windows):
            windows = read_windows(audio, starts[part], grid.window)
            rows["rms_dbfs"][part] = measure_levels(windows)
            waiting.append((part, model.submit(windows)))
            if len(waiting) > BLOCKS_AHEAD:
                store_first()
        while waiting:
            store_first()
        if not np.isfinite(rows["vector"]).all():
            raise InputError(
                f"{audio.recording.path}: a vector is too large for "
                f"{self.settings.dtype}; index with --dtype float32"
            )
        return rows

    def check_unchanged(self, path: str, stamp: str) -> None:
        """Raise InputError if a recording has changed since it had a stamp."""
        if find_stamp(self.root / path) != stamp:
            raise InputError(
                f"{path}: changed while it was read; index again when it is complete"
            )

    def _make_entry(self, audio: RecordingAtSpeed, stamp: str) -> IndexedRecording:
        """Return what the index has to know of a recording, without its files of windows."""
        recording = audio.recording
        return IndexedRecording(
            path=recording.path,
            root=str(self.root.absolute()),
            stamp=stamp,
            duration_s=recording.duration_s,
            rate_hz=recording.rate_hz,
            clock=find_clock_time(self.root / recording.path, recording.path),
            windows=self.grid.count_windows(audio.samples),
            spans=(),
        )

    def _enter(self, recording: IndexedRecording, earlier: Sequence[Path]) -> None:
        """Add a recording whose windows are written; remove those of its earlier states.

        Of files that are not its own only `earlier` ones are removed, which were there before the
        first of its own: where there are no locks, another process may have added the recording
        too, and its entry names its own files.
        """
        write_indexed(self.out, recording)
        for path in earlier:
            if path.name not in recording.spans:
                path.unlink(missing_ok=True)

    # Pieces of long recordings

    def measure(self, spec: EncoderSpec, path: str) -> LongRecording | None:
        """Return what is known of a recording before it is embedded; None if it has no pieces."""
        stamp = find_stamp(self.root / path)
        with self._open(path, spec) as audio:
            if not audio.reader.starts_anywhere:
                return None
            entry = self._make_entry(audio, stamp)
        notes = tuple(describe_recording(audio.recording, self.grid, spec.name))
        return LongRecording(entry, select_spans(list_files(self.out, path)), notes)

    def write_piece(self, piece: Piece, model: WindowEncoder) -> WrittenPiece:
        """Write the missing files of a piece; TryLater if another process adds the recording."""
        folder = recording_folder(self.out, piece.path)
        make_folder(folder)
        names = []
        embedded_s = 0.0
        is_damaged = False
        try:
            with _lock_briefly(folder):
                self.check_unchanged(piece.path, piece.stamp)
            earlier = select_spans(list_files(self.out, piece.path))
            with self._open(piece.path, model.spec) as audio:
                files = self._write_files(
                    audio,
                    piece.stamp,
                    model,
                    earlier,
                    piece.numbers,
                    lambda: _lock_briefly(folder),
                )
                for name, seconds, is_new in files:
                    names.append(name)
                    if is_new:
                        embedded_s += seconds
        except DamagedAudio:
            is_damaged = True
        except LockBusy:
            raise TryLater from None
        self.check_unchanged(piece.path, piece.stamp)
        return WrittenPiece(names, embedded_s, is_damaged)

    def enter(self, recording: LongRecording, names: Sequence[str]) -> AddedRecording:
        """Add a recording to the index, all files of which are written; `names` are in order."""
        entry = recording.entry
        folder = recording_folder(self.out, entry.path)
        with hold_lock(folder / LOCK):
            self.check_unchanged(entry.path, entry.stamp)
            files = list_files(self.out, entry.path)
            is_new = self.find_entry(entry.path, entry.stamp, files) is None
            if is_new:  # otherwise another process added it
                remove_unfinished(folder)
                entry = replace(entry, spans=names)
                self._enter(entry, recording.earlier)
        return AddedRecording(entry, recording.notes, is_new)


def _lock_briefly(folder: Path) -> AbstractContextManager[None]:
    return hold_lock(folder / LOCK, timeout_s=LOCK_S)


def count_files(windows: int) -> int:
    """Return how many files a number of windows takes."""
    return math.ceil(windows / SPAN_WINDOWS)


def select_spans(files: Sequence[Path]) -> list[Path]:
    """Return those files that are files of windows."""
    return [path for path in files if SPAN_NAME.fullmatch(path.name) is not None]


def find_whole_spans(
    paths: Sequence[Path], stamp: str, numbers: range
) -> dict[int, str]:
    """Map number to name of the intact files of windows of one version of a recording."""
    spans = {}
    for path in paths:
        match = SPAN_NAME.fullmatch(path.name)
        if match is None or match[1] != stamp or int(match[2]) not in numbers:
            continue
        if not find_damage(path):
            spans[int(match[2])] = path.name
    return spans


def find_stamp(path: Path) -> str:
    """Return a short hash of the size and the time of change of a file, or of its ETag."""
    with explain_unreadable(path):
        status = path.stat()
    return sha256_text(f"{status.st_size} {status.st_mtime_ns}")[:8]


def group_notes(notes: Iterable[str]) -> list[str]:
    """Return notes that begin with the name of a recording, each text once.

    >>> group_notes(["a.wav: is silent", "b.wav: is silent", "c.wav: is short"])
    ['a.wav and 1 more: is silent', 'c.wav: is short']
    """
    names: dict[str, list[str]] = {}
    for note in notes:
        name, _, text = note.partition(": ")
        names.setdefault(text, []).append(name)
    grouped = []
    for text, (first, *further_names) in names.items():
        more = f" and {len(further_names)} more" if further_names else ""
        grouped.append(f"{first}{more}: {text}")
    return grouped


def describe_recording(
    recording: Recording, grid: WindowGrid, encoder: str
) -> Iterator[str]:
    """Yield what is unusual about a recording: shorter than a window, cut short, low rate.

    >>> short = Recording("a.wav", 8000, 8000.0, 1, "WAV PCM_16")
    >>> for note in describe_recording(short, WindowGrid(16000, 32000, 32000), "mfcc"):
    ...     print(note)
    a.wav: 1 s is shorter than the window of 2 s; its only window is padded
    a.wav: at 8000 Hz it has nothing above 4000 Hz, and mfcc uses up to 8000 Hz
    """
    if recording.duration_s < grid.window_s:
        yield (
            f"{recording.path}: {recording.duration_s:.3g} s is shorter than the window of "
            f"{grid.window_s:g} s; its only window is padded"
        )
    if note := recording.describe_length():
        yield f"{recording.path}: {note}"
    top_hz = recording.rate_hz / 2
    needed_hz = grid.rate_hz / grid.speed / 2
    if top_hz < needed_hz:
        yield (
            f"{recording.path}: at {recording.rate_hz:g} Hz it has nothing above {top_hz:g} Hz, "
            f"and {encoder} uses up to {needed_hz:g} Hz"
        )
