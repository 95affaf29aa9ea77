"""One recording comes in; its windows go into an index, as a whole or in pieces.

Windows are read in blocks while the model works, and written in files of up to 1024. What was
written before a crash is used again. When all files are there, the recording is entered.

A piece is some of the files of a long recording, with the names and bytes that they have when the
recording is embedded in one go: a file begins with a block, and each block is sought and resampled
by itself. So several workers can embed one recording. A recording in which not every frame can be
sought is one piece.
"""

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from callshot.chunks import find_damage
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
    WindowGrid,
    embed_windows,
)
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.workers import Workers
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
from callshot.records import Recording
from callshot.storage import to_path

SPAN_WINDOWS = 1024  # in a file
LOCK_S = 60.0  # all pieces of a recording write one after the other

Added = tuple[IndexedRecording, bool]
"""A recording that the index has, and whether it was added now."""


@dataclass(frozen=True)
class Piece:
    """A part of a recording, by number; if it is the only one, the whole recording."""

    path: str
    number: int = 0
    count: int = 1


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
        self, path: str, workers: Workers, *, wait: bool
    ) -> Generator[tuple[float, float], None, Added]:
        """Add a recording; LockBusy if another process is adding it, and `wait` is False.

        Of a damaged file, add what lies before the damage. Yield seconds of audio that are in the
        index now, and how many of them were embedded just now.
        """
        folder = recording_folder(self.out, path)
        make_folder(folder)
        with hold_lock(folder / LOCK, timeout_s=-1.0 if wait else 0.0):
            stamp = find_stamp(self.root / path)
            files = list_files(self.out, path)
            entry = self.find_entry(path, stamp, files)
            if entry is not None:  # by another process
                yield entry.duration_s, 0.0
                return entry, False
            remove_unfinished(folder)
            earlier = select_spans(files)
            end_frame = None
            while True:
                span_stamp = stamp
                if end_frame is not None:
                    # The last windows differ from those of the whole recording.
                    span_stamp = sha256_text(f"{stamp} {end_frame}")[:8]
                try:
                    with self.open(path, workers.encoder.spec, end_frame) as audio:
                        entry = self.make_entry(audio, stamp)
                        names = []
                        written = self.write_files(audio, span_stamp, workers, earlier)
                        for name, seconds, is_new in written:
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
            entry = replace(entry, spans=names)
            self.enter(entry, earlier)
        return entry, True

    def open(
        self, path: str, spec: EncoderSpec, end_frame: int | None = None
    ) -> RecordingAtSpeed:
        """Open a recording, which ends where its damage begins."""
        channel = self.settings.channel
        return RecordingAtSpeed(self.root / path, path, spec, channel, end_frame)

    def make_entry(self, audio: RecordingAtSpeed, stamp: str) -> IndexedRecording:
        """Return what the index has to know of a recording, without its files of windows."""
        recording = audio.recording
        return IndexedRecording(
            path=recording.path,
            root=str(self.root.absolute()),
            stamp=stamp,
            duration_s=recording.duration_s,
            rate_hz=recording.rate_hz,
            clock=find_clock_time(self.root / recording.path, recording.path),
            windows=len(self.grid.find_starts(audio.samples)),
            spans=(),
            notes=list(describe_recording(recording, self.grid, audio.spec.name)),
        )

    def write_files(
        self,
        audio: RecordingAtSpeed,
        stamp: str,
        workers: Workers,
        earlier: Sequence[Path],
        numbers: range | None = None,
        lock: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Iterator[tuple[str, float, bool]]:
        """Write the files of windows that are missing; yield name, seconds, whether it is new.

        `earlier` are files that are there, `numbers` those to write, by default all. `lock` is
        held while a file is written.
        """
        grid = self.grid
        recording = audio.recording
        folder = recording_folder(self.out, recording.path)
        starts = grid.find_starts(audio.samples)
        if numbers is None:
            numbers = range(math.ceil(len(starts) / SPAN_WINDOWS))
        names = {}
        for path in earlier:
            match = SPAN_NAME.fullmatch(path.name)
            if match is None or match[1] != stamp or int(match[2]) not in numbers:
                continue
            if not find_damage(path):
                names[int(match[2])] = path.name
        for number in numbers:
            part = starts[number * SPAN_WINDOWS : (number + 1) * SPAN_WINDOWS]
            seconds = len(part) / len(starts) * recording.duration_s
            if number in names:
                yield names[number], seconds, False
                continue
            rows = np.zeros(len(part), self.settings.row_dtype())
            ends = np.minimum(part + grid.window, audio.samples)
            rows["start_s"] = grid.to_seconds(part)
            # The last sample at the model's rate may reach beyond the last one of the file.
            rows["end_s"] = np.minimum(grid.to_seconds(ends), recording.duration_s)
            for block, levels, vectors in embed_windows(audio, part, grid, workers):
                rows["rms_dbfs"][block] = levels
                with np.errstate(over="ignore"):  # checked when all are there
                    rows["vector"][block] = vectors
            if not np.isfinite(rows["vector"]).all():
                raise InputError(
                    f"{recording.path}: a vector is too large for "
                    f"{self.settings.dtype}; index with --dtype float32"
                )
            with lock():
                name = write_span(folder, stamp, number, rows)
            yield name, seconds, True

    def check_unchanged(self, path: str, stamp: str) -> None:
        """Raise InputError if a recording has changed since it had a stamp."""
        if find_stamp(self.root / path) != stamp:
            raise InputError(
                f"{path}: changed while it was read; index again when it is complete"
            )

    def enter(self, entry: IndexedRecording, earlier: Sequence[Path]) -> None:
        """Add a recording whose windows are written; remove those of its earlier states.

        Of files that are not its own only `earlier` ones are removed, which were there before the
        first of its own: where there are no locks, another process may have added the recording
        too, and its entry names its own files.
        """
        write_indexed(self.out, entry)
        for path in earlier:
            if path.name not in entry.spans:
                path.unlink(missing_ok=True)

    # Pieces of long recordings

    def write_piece(
        self, piece: Piece, workers: Workers
    ) -> tuple[IndexedRecording, float] | None:
        """Write the missing files of a piece; TryLater if another process adds the recording.

        Return the recording with the files of this piece, and how many seconds of it were embedded
        now; None if its audio file is damaged.
        """
        path = piece.path
        folder = recording_folder(self.out, path)
        make_folder(folder)
        names = []
        embedded_s = 0.0

        def lock() -> AbstractContextManager[None]:
            return hold_lock(folder / LOCK, timeout_s=LOCK_S)

        try:
            with lock():
                stamp = find_stamp(self.root / path)
            earlier = select_spans(list_files(self.out, path))
            with self.open(path, workers.encoder.spec) as audio:
                entry = self.make_entry(audio, stamp)
                count = math.ceil(entry.windows / SPAN_WINDOWS)
                size = math.ceil(count / piece.count)
                if not audio.reader.starts_anywhere:
                    size = count
                numbers = range(count)[piece.number * size : (piece.number + 1) * size]
                for name, seconds, is_new in self.write_files(
                    audio, stamp, workers, earlier, numbers, lock
                ):
                    names.append(name)
                    embedded_s += seconds if is_new else 0.0
        except DamagedAudio:
            return None
        except LockBusy:
            raise TryLater from None
        self.check_unchanged(path, stamp)
        return replace(entry, spans=names), embedded_s

    def enter_pieces(
        self, pieces: Sequence[IndexedRecording], earlier: Sequence[Path]
    ) -> Added:
        """Add a recording to the index, all files of which are written, in order."""
        names = [name for piece in pieces for name in piece.spans]
        entry = replace(pieces[0], spans=names)
        folder = recording_folder(self.out, entry.path)
        with hold_lock(folder / LOCK):
            for piece in pieces:
                self.check_unchanged(entry.path, piece.stamp)
            files = list_files(self.out, entry.path)
            is_new = self.find_entry(entry.path, entry.stamp, files) is None
            if is_new:  # otherwise another process added it
                remove_unfinished(folder)
                self.enter(entry, earlier)
        return entry, is_new


def select_spans(files: Sequence[Path]) -> list[Path]:
    """Return those files that are files of windows."""
    return [path for path in files if SPAN_NAME.fullmatch(path.name) is not None]


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
