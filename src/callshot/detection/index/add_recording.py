"""One recording comes in; its windows go into an index, as a whole or in pieces.

Windows are read in blocks while the model works, and written in files of up to 1024. What was
written before a crash is used again. When all files are there, the recording is entered.

A piece is some of the files of a long recording, with the names and bytes that they have when the
recording is embedded in one go: a file begins with a block, and each block is sought and resampled
by itself. So several workers can embed one recording. A recording in which not every frame can be
sought is one piece.
"""

import errno
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np

from callshot.chunks import Rows, find_damage
from callshot.corpus.audio_files import DamagedAudio
from callshot.detection.index.clock import find_clock_time
from callshot.detection.index.index_files import (
    LOCK,
    SPAN_NAME,
    IndexedRecording,
    IndexSettings,
    is_index,
    list_files,
    read_indexed,
    read_settings,
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
from callshot.records import IntArray, Recording
from callshot.storage import to_path

SPAN_WINDOWS = 1024  # in a file
HEARD_SHARE = 0.75  # of the highest frequency of an encoder that recordings should hold
LOCK_S = 60.0  # all pieces of a recording write one after the other
CHANGED = "{}: changed while it was read; index again when it is complete"

Added = tuple[IndexedRecording, bool]
"""A recording that the index has, and whether it was added now."""


@dataclass(frozen=True)
class Piece:
    """A part of a recording, by number; if it is the only one, the whole recording."""

    path: str
    number: int = 0
    count: int = 1


Step = tuple[float, float, Added | Piece | None]
"""A share of a piece that is in the index now, the seconds that were embedded for it, and what
became of the piece, None if more of it follows."""


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

    def check_on_worker(self) -> None:
        """Raise an error if the process of a worker does not see the recordings and the index."""
        for folder, is_there in (
            (self.root, self.root.is_dir()),
            (self.out, is_index(self.out)),
        ):
            if not is_there:
                reason = "the worker does not find this folder; use one that all machines share"
                raise FileNotFoundError(errno.ENOENT, reason, str(folder))
        if read_settings(self.out) != self.settings:
            raise InputError(
                f"{self.out}: the worker has a different index at this path; use a folder that "
                "all machines share"
            )

    def add(self, workers: Workers, piece: Piece) -> Iterator[Step]:
        """Add a recording, or write the files of a piece of it; the last step has the outcome.

        Of a damaged file, add what lies before the damage. TryLater if another process is adding
        the recording.
        """
        folder = recording_folder(self.out, piece.path)
        make_folder(folder)
        try:
            if piece.count > 1:
                yield from self._add_piece(workers, piece, folder / LOCK)
            else:
                with hold_lock(folder / LOCK, timeout_s=0.0):
                    yield from self._add_whole(workers, piece)
        except LockBusy:
            raise TryLater from None

    def _add_whole(self, workers: Workers, piece: Piece) -> Iterator[Step]:
        path = piece.path
        stamp = find_stamp(self.root / path)
        files = list_files(self.out, path)
        entry = self.find_entry(path, stamp, files)
        if entry is not None:  # by another process
            yield 1.0, 0.0, (entry, False)
            return
        remove_unfinished(recording_folder(self.out, path))
        end_frame = None
        while entry is None:
            try:
                entry = yield from self._write(workers, piece, stamp, files, end_frame)
            except DamagedAudio as damage:
                is_earlier = end_frame is None or damage.end_frame < end_frame
                if damage.end_frame == 0 or not is_earlier:
                    raise
                end_frame = damage.end_frame
                files = list_files(self.out, path)
        self.enter(entry, files)
        yield 1.0, 0.0, (entry, True)

    def _add_piece(self, workers: Workers, piece: Piece, lock: Path) -> Iterator[Step]:
        """Write the missing files of a piece; the outcome is the recording with these files.

        If the audio file is damaged, it is the whole recording as a piece, to be added instead.
        """
        hold = partial(hold_lock, lock, timeout_s=LOCK_S)
        with hold():
            stamp = find_stamp(self.root / piece.path)
        files = list_files(self.out, piece.path)
        outcome: Added | Piece = Piece(piece.path)
        with suppress(DamagedAudio):
            entry = yield from self._write(workers, piece, stamp, files, lock=hold)
            outcome = (entry, True)
        yield 1.0, 0.0, outcome

    def _write(
        self,
        workers: Workers,
        piece: Piece,
        stamp: str,
        files: Sequence[Path],
        end_frame: int | None = None,
        lock: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Generator[Step, None, IndexedRecording]:
        """Write the files of a piece that are missing among `files`; return what to enter.

        The recording ends at `end_frame`, where its damage begins. `lock` is held while a file is
        written.
        """
        path = piece.path
        file = self.root / path
        folder = recording_folder(self.out, path)
        spec = workers.encoder.spec
        span_stamp = stamp
        if end_frame is not None:
            # The last windows differ from those of the whole recording.
            span_stamp = sha256_text(f"{stamp} {end_frame}")[:8]
        names = {}
        channel = self.settings.channel
        with RecordingAtSpeed(file, path, spec, channel, end_frame) as audio:
            recording = audio.recording
            starts = self.grid.find_starts(audio.samples)
            count = math.ceil(len(starts) / SPAN_WINDOWS)
            size = count
            if audio.reader.starts_anywhere:
                size = math.ceil(count / piece.count)
            first = piece.number * size
            numbers = range(count)[first : first + size]
            for one in files:
                match = SPAN_NAME.fullmatch(one.name)
                if match is None or match[1] != span_stamp:
                    continue
                if int(match[2]) in numbers and not find_damage(one):
                    names[int(match[2])] = one.name
            for number in numbers:
                first = number * SPAN_WINDOWS
                part = starts[first : first + SPAN_WINDOWS]
                share = len(part) / len(starts)
                embedded_s = 0.0
                if number not in names:
                    rows = self._embed(audio, part, workers)
                    with lock():
                        names[number] = write_span(folder, span_stamp, number, rows)
                    embedded_s = share * recording.duration_s
                yield share * piece.count, embedded_s, None
        if find_stamp(file) != stamp:
            raise InputError(CHANGED.format(path))
        return IndexedRecording(
            path=path,
            root=str(self.root.absolute()),
            stamp=stamp,
            duration_s=recording.duration_s,
            rate_hz=recording.rate_hz,
            clock=find_clock_time(file, path),
            windows=len(starts),
            spans=[names[number] for number in numbers],
            notes=list(describe_recording(recording, self.grid, spec)),
        )

    def _embed(
        self, audio: RecordingAtSpeed, starts: IntArray, workers: Workers
    ) -> Rows:
        """Embed windows of a recording, as rows of a file."""
        grid = self.grid
        recording = audio.recording
        rows = np.zeros(len(starts), self.settings.row_dtype())
        ends = np.minimum(starts + grid.window, audio.samples)
        rows["start_s"] = grid.to_seconds(starts)
        # The last sample at the model's rate may reach beyond the last one of the file.
        rows["end_s"] = np.minimum(grid.to_seconds(ends), recording.duration_s)
        for block, levels, vectors in embed_windows(audio, starts, grid, workers):
            rows["rms_dbfs"][block] = levels
            with np.errstate(over="ignore"):  # checked when all are there
                rows["vector"][block] = vectors
        if not np.isfinite(rows["vector"]).all():
            raise InputError(
                f"{recording.path}: a vector is too large for "
                f"{self.settings.dtype}; index with --dtype float32"
            )
        return rows

    def enter(self, entry: IndexedRecording, files: Sequence[Path]) -> None:
        """Add a recording whose windows are written; of `files`, remove those of other states."""
        write_indexed(self.out, entry)
        stamp = entry.spans[0].partition("-")[0]
        for path in files:
            match = SPAN_NAME.fullmatch(path.name)
            if match is not None and match[1] != stamp:
                path.unlink(missing_ok=True)

    def enter_pieces(self, outcomes: Sequence[Added | InputError]) -> Added:
        """Add a recording to the index, all pieces of which are written, in order.

        The first error in time counts, as if the recording were read in one go.
        """
        pieces = []
        for outcome in outcomes:
            if isinstance(outcome, InputError):
                raise outcome
            if len(outcomes) == 1:  # entered already
                return outcome
            pieces.append(outcome[0])
        names = [name for piece in pieces for name in piece.spans]
        entry = replace(pieces[0], spans=names)
        folder = recording_folder(self.out, entry.path)
        with hold_lock(folder / LOCK):
            stamps = {find_stamp(self.root / entry.path)}
            if stamps.union(piece.stamp for piece in pieces) != stamps:
                raise InputError(CHANGED.format(entry.path))
            files = list_files(self.out, entry.path)
            is_new = self.find_entry(entry.path, entry.stamp, files) is None
            if is_new:  # otherwise another process added it
                remove_unfinished(folder)
                self.enter(entry, files)
        return entry, is_new


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
    recording: Recording, grid: WindowGrid, spec: EncoderSpec
) -> Iterator[str]:
    """Yield what is unusual about a recording: shorter than a window, cut short, low rate.

    >>> from callshot.encoders.catalogue import find_encoder
    >>> short = Recording("a.wav", 8000, 8000.0, 1, "WAV PCM_16")
    >>> grid = WindowGrid(16000, 32000, 32000)
    >>> for note in describe_recording(short, grid, find_encoder("mfcc")):
    ...     print(note)
    a.wav: shorter than the window of 2 s; used whole
    a.wav: at 8000 Hz it has nothing above 4000 Hz, and mfcc uses 100 to 8000 Hz
    """
    if recording.duration_s < grid.window_s:
        treatment = "used whole" if spec.windowing is None else "padded"
        yield (
            f"{recording.path}: shorter than the window of {grid.window_s:.3g} s; {treatment}"
        )
    if note := recording.describe_length():
        yield f"{recording.path}: {note}"
    if spec.band_hz is None:
        return
    low_hz, high_hz = spec.band_hz
    top_hz = recording.rate_hz / 2
    if top_hz < HEARD_SHARE * high_hz / spec.speed:
        yield (
            f"{recording.path}: at {recording.rate_hz:g} Hz it has nothing above {top_hz:g} Hz, "
            f"and {spec.name} uses {low_hz / spec.speed:g} to {high_hz / spec.speed:g} Hz"
        )
