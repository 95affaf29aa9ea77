"""Long recordings in spans: each is embedded by itself, and the recording is entered at the end.

A span is some files of windows of the index, with the names and bytes that they have when the
recording is embedded in one go: windows are read in blocks, a file begins with a block, and each
block is sought and resampled by itself. Only recordings in which any frame can be sought have
spans.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from callshot.corpus.audio_files import DamagedAudio
from callshot.detection.index.add_recording import (
    AddedRecording,
    IndexTarget,
    find_stamp,
)
from callshot.detection.index.index_files import (
    LOCK,
    IndexedRecording,
    list_files,
    recording_folder,
)
from callshot.detection.index.span_writer import (
    SpanWriter,
    count_files,
    describe_recording,
    find_spans,
)
from callshot.detection.index.windows import RecordingAtSpeed, WindowEncoder
from callshot.encoders.spec import EncoderSpec
from callshot.files import LockBusy, hold_lock, make_folder, remove_unfinished
from callshot.jobs import TryLater

LOCK_S = 60.0  # all spans of a recording write one after the other


@dataclass(frozen=True)
class Span:
    """Files of windows of a recording, by number; `stamp` is its state."""

    path: str
    stamp: str
    numbers: range


@dataclass(frozen=True)
class LongRecording:
    """A recording that is embedded in spans.

    entry    what the index will have of it, without its files
    files    how many files of windows it has
    earlier  files of windows that were there before
    notes    what is unusual about it
    """

    entry: IndexedRecording
    files: int
    earlier: Sequence[Path]
    notes: Sequence[str]

    def split(self, count: int) -> list[Span]:
        """Return at most `count` spans of equal length, of which the last may be shorter."""
        size = -(-self.files // count)
        path = self.entry.path
        stamp = self.entry.stamp
        numbers = range(self.files)
        return [
            Span(path, stamp, numbers[first : first + size])
            for first in numbers[::size]
        ]


@dataclass(frozen=True)
class WrittenSpan:
    """The names of the files of a span, and how many seconds of it were embedded now.

    With `is_damaged`, it has not all of its files: the audio file is damaged within it.
    """

    names: Sequence[str]
    embedded_s: float
    is_damaged: bool = False


def measure_recording(
    target: IndexTarget, spec: EncoderSpec, path: str
) -> LongRecording | None:
    """Return what is known of a recording before it is embedded; None if it can have no spans."""
    stamp = find_stamp(target.root / path)
    folder = recording_folder(target.out, path)
    with _open_audio(target, spec, path) as audio:
        if not audio.reader.starts_anywhere:
            return None
        entry = target.make_entry(audio, stamp)
    notes = tuple(describe_recording(audio.recording, target.grid, spec.name))
    return LongRecording(entry, count_files(entry.windows), find_spans(folder), notes)


def write_files(target: IndexTarget, span: Span, model: WindowEncoder) -> WrittenSpan:
    """Write the files of a span that are missing; TryLater if another process adds them all."""
    folder = recording_folder(target.out, span.path)
    lock = partial(_lock_briefly, folder)
    make_folder(folder)
    with lock():
        target.check_unchanged(span.path, span.stamp)
    embedded_s = 0.0
    is_damaged = False
    with _open_audio(target, model.spec, span.path) as audio:
        writer = SpanWriter(
            audio,
            folder,
            span.stamp,
            target.settings,
            target.grid,
            find_spans(folder),
            numbers=span.numbers,
            lock=lock,
        )
        try:
            for share, is_new in writer.write_spans(model):
                if is_new:
                    embedded_s += share * audio.recording.duration_s
        except DamagedAudio:
            is_damaged = True
    target.check_unchanged(span.path, span.stamp)
    return WrittenSpan(writer.spans, embedded_s, is_damaged)


def enter_recording(
    target: IndexTarget, recording: LongRecording, names: Sequence[str]
) -> AddedRecording:
    """Add a recording to the index, all files of which are written; `names` are in order."""
    entry = recording.entry
    folder = recording_folder(target.out, entry.path)
    with hold_lock(folder / LOCK):
        target.check_unchanged(entry.path, entry.stamp)
        files = list_files(target.out, entry.path)
        is_new = not target.is_indexed(entry.path, entry.stamp, files)
        if is_new:  # otherwise another process added it
            remove_unfinished(folder)
            entry = replace(entry, spans=names)
            target.enter(entry, recording.earlier)
    return AddedRecording(
        entry.path,
        entry.duration_s,
        recording.notes,
        entry if is_new else None,
    )


def _open_audio(target: IndexTarget, spec: EncoderSpec, path: str) -> RecordingAtSpeed:
    return RecordingAtSpeed(target.root / path, path, spec, target.settings.channel)


@contextmanager
def _lock_briefly(folder: Path) -> Iterator[None]:
    """Hold the lock of a recording; TryLater if another process adds it as a whole."""
    try:
        with hold_lock(folder / LOCK, timeout_s=LOCK_S):
            yield
    except LockBusy:
        raise TryLater from None
