"""One recording comes in; its windows go into an index, unless it has them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from callshot.corpus.audio import probe
from callshot.corpus.audio_files import DamagedAudio
from callshot.detection.index.clock import find_clock_time
from callshot.detection.index.index_files import (
    LOCK,
    RECORDING,
    RECORDINGS,
    IndexedRecording,
    IndexSettings,
    list_files,
    read_indexed,
    recording_folder,
    write_indexed,
)
from callshot.detection.index.span_writer import (
    SpanWriter,
    describe_recording,
    select_spans,
)
from callshot.detection.index.windows import (
    RecordingAtSpeed,
    WindowEncoder,
    WindowGrid,
)
from callshot.errors import InputError
from callshot.files import (
    LockBusy,
    explain_unreadable,
    hold_lock,
    make_folder,
    remove_unfinished,
    sha256_text,
)
from callshot.records import Recording
from callshot.storage import is_remote, to_path

ReportAudio = Callable[[float, float], None]
"""Called with seconds of audio that are in the index now, and with those embedded just now."""


def ignore_audio(audio_s: float, embedded_s: float) -> None:
    """Report nothing."""


@dataclass(frozen=True)
class AddedRecording:
    """A recording that the index has, with notes; `entry` is what was added now, if it was."""

    path: str
    duration_s: float
    notes: Sequence[str]
    entry: IndexedRecording | None

    @property
    def is_new(self) -> bool:
        """Whether it was added now."""
        return self.entry is not None


@dataclass(frozen=True)
class IndexTarget:
    """Where recordings come from, and the index that they go into; paths are absolute."""

    root: Path
    out: Path
    settings: IndexSettings
    grid: WindowGrid

    def is_indexed(self, path: str, stamp: str, files: Sequence[Path]) -> bool:
        """Return whether the index, which has `files` of a recording, has it as it is now.

        Raises
        ------
        InputError
            If the index has another recording of the same name, from another folder.
        """
        indexed_recording = read_indexed(self.out, path, files)
        if indexed_recording is None:
            return False
        if indexed_recording.stamp == stamp:
            return True
        root = to_path(indexed_recording.root)
        if root == self.root.absolute():
            return False
        with explain_unreadable(root / path):
            is_there = (root / path).exists()
        if is_there:
            raise InputError(
                f"{path}: the index has another recording of this name, from {root}; "
                "give the folder that both are in, or another --out"
            )
        return False

    def add(
        self,
        path: str,
        model: WindowEncoder,
        *,
        wait: bool,
        report: ReportAudio = ignore_audio,
    ) -> AddedRecording | None:
        """Add a recording; return None if another process is adding it, and `wait` is False."""
        folder = recording_folder(self.out, path)
        timeout_s = -1.0 if wait else 0.0
        make_folder(folder)
        try:
            with hold_lock(folder / LOCK, timeout_s=timeout_s):
                stamp = find_stamp(self.root / path)
                files = list_files(self.out, path)
                if self.is_indexed(path, stamp, files):  # by another process
                    return self._describe(self._probe_indexed(path, files), model)
                remove_unfinished(folder)
                return self._embed(path, select_spans(files), stamp, model, report)
        except LockBusy:
            return None

    def _probe_indexed(self, path: str, files: Sequence[Path]) -> Recording:
        """Return the header of a recording that is in the index, with its length there."""
        recording = probe(self.root / path, path)
        entry = read_indexed(self.out, path, files)
        if entry is not None:
            frames = round(entry.duration_s * recording.rate_hz)
            if frames < recording.frames:  # its file is damaged
                return recording.shorten(frames)
        return recording

    def _embed(
        self,
        path: str,
        earlier: Sequence[Path],
        stamp: str,
        model: WindowEncoder,
        report: ReportAudio,
        end_frame: int | None = None,
    ) -> AddedRecording:
        """Embed the windows of a recording, and add it to the index.

        If its file is damaged, it is embedded again as a recording that ends before the damage.
        """
        try:
            return self._embed_up_to(end_frame, path, earlier, stamp, model, report)
        except DamagedAudio as damage:
            is_earlier = end_frame is None or damage.end_frame < end_frame
            if damage.end_frame == 0 or not is_earlier:
                raise
            earlier = select_spans(list_files(self.out, path))
            return self._embed(
                path, earlier, stamp, model, ignore_audio, damage.end_frame
            )

    def _embed_up_to(
        self,
        end_frame: int | None,
        path: str,
        earlier: Sequence[Path],
        stamp: str,
        model: WindowEncoder,
        report: ReportAudio,
    ) -> AddedRecording:
        """Embed the windows of a recording up to a frame, and add it to the index."""
        file = self.root / path
        folder = recording_folder(self.out, path)
        channel = self.settings.channel
        with RecordingAtSpeed(file, path, model.spec, channel, end_frame) as audio:
            span_stamp = stamp
            if end_frame is not None:
                # The last windows differ from those of the whole recording.
                span_stamp = sha256_text(f"{stamp} {end_frame}")[:8]
            writer = SpanWriter(
                audio, folder, span_stamp, self.settings, self.grid, earlier
            )
            for share, is_new in writer.write_spans(model):
                audio_s = share * audio.recording.duration_s
                report(audio_s, audio_s if is_new else 0.0)
        self.check_unchanged(path, stamp)
        entry = replace(self.make_entry(audio, stamp), spans=writer.spans)
        self.enter(entry, earlier)
        return self._describe(audio.recording, model, entry)

    def check_unchanged(self, path: str, stamp: str) -> None:
        """Raise InputError if a recording has changed since it had a stamp."""
        if find_stamp(self.root / path) != stamp:
            raise InputError(
                f"{path}: changed while it was read; index again when it is complete"
            )

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
            windows=self.grid.count_windows(audio.samples),
            spans=(),
        )

    def enter(self, recording: IndexedRecording, earlier: Sequence[Path]) -> None:
        """Add a recording whose windows are written; remove those of its earlier states.

        Of files that are not its own only `earlier` ones are removed, which were there before the
        first of its own: where there are no locks, another process may have added the recording
        too, and its entry names its own files.
        """
        write_indexed(self.out, recording)
        for path in earlier:
            if path.name not in recording.spans:
                path.unlink(missing_ok=True)

    def _describe(
        self,
        recording: Recording,
        model: WindowEncoder,
        entry: IndexedRecording | None = None,
    ) -> AddedRecording:
        notes = describe_recording(recording, self.grid, model.spec.name)
        return AddedRecording(recording.path, recording.duration_s, tuple(notes), entry)


def find_candidates(index: Path) -> Callable[[str], bool]:
    """Return whether an index may have a recording; in a store, by one listing of the index."""
    if not is_remote(index):
        return lambda path: True
    with explain_unreadable(str(index)):
        entries = list(index.glob(f"{RECORDINGS}/*/{RECORDING}"))
    names = {entry.parent.name for entry in entries}
    return lambda path: recording_folder(Path(), path).name in names


def find_stamp(path: Path) -> str:
    """Return a short hash of the size and the time of change of a file, or of its ETag."""
    with explain_unreadable(path):
        status = path.stat()
    return sha256_text(f"{status.st_size} {status.st_mtime_ns}")[:8]
