"""Recordings of any length come in; the vectors of all their windows go into an index.

A recording is read in blocks while the model works, and written in files of up to 1024 windows. So
memory does not grow with its length, and a crash costs at most one file. What an index has is not
made again. Several processes may work on one index: each takes recordings that no other has.
"""

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from callshot.corpus.audio import probe
from callshot.corpus.options import check_channel_rule
from callshot.corpus.recordings import Library, find_recordings
from callshot.corpus.segment_table import write_rejects
from callshot.detection.index.clock import find_clock_time
from callshot.detection.index.index_files import (
    DTYPES,
    INDEX,
    LOCK,
    RECORDINGS,
    REJECTS,
    Index,
    IndexedRecording,
    IndexSettings,
    is_index,
    open_index,
    read_indexed,
    read_settings,
    recording_folder,
    write_indexed,
    write_record,
)
from callshot.detection.index.span_writer import (
    SpanWriter,
    describe_recording,
    group_notes,
)
from callshot.detection.index.windows import (
    PlayedRecording,
    WindowEncoder,
    WindowGrid,
    find_spec,
    make_grid,
)
from callshot.encoders.spec import find_differences
from callshot.encoders.validation import check_choice
from callshot.errors import InputError, OutputError
from callshot.files import (
    atomic_path,
    check_writable,
    explain_unreadable,
    hold_lock,
    make_folder,
    path_exists,
    remove_unfinished,
    sha256_text,
)
from callshot.records import Progress, Reject, no_progress
from callshot.storage import is_remote, map_requests, to_path


@dataclass(frozen=True)
class IndexResult:
    """What became of recordings.

    index    all windows, those of earlier runs too
    added    paths of the recordings that this run added
    rejects  recordings that could not be read, and why
    notes    what is unusual about recordings that are in the index
    """

    index: Index
    added: list[str]
    rejects: list[Reject]
    notes: list[str]


def index_recordings(
    recordings: Path | str,
    out: Path | str,
    encoder: str,
    *,
    choices: Mapping[str, str] | None = None,
    window_s: float | None = None,
    hop_s: float | None = None,
    channel: str = "first",
    dtype: str = "float16",
    follow_links: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    progress: Progress = no_progress,
) -> IndexResult:
    """Embed every window of recordings of any length once, into an index.

    Recordings that the index has are not read again, unless their size or time of change differs.

    Parameters
    ----------
    recordings : path
        Folder of the recordings, or one recording.
    out : path
        Folder of the index; made, or extended.
    encoder : str
        One encoder, such as "birdnet-v2.4"; `list_encoders()` lists them.
    choices : mapping, optional
        Options of the encoder that differ from its defaults, as text, e.g. {"speed": "2"}.
    window_s : float, optional
        Length of a window in real seconds, for encoders without a window of their own.
    hop_s : float, optional
        Real seconds from the start of one window to the next; by default as the encoder has it,
        otherwise the window.
    channel : str
        "first", "mean", or the number of a channel from "1".
    dtype : str
        Precision of the vectors, "float16" or "float32".
    follow_links : bool
        Read files behind links that lead outside the folder.
    device : str
        "cpu" or "cuda".
    threads : int, optional
        Threads of the model; all cores by default. Changes the time, never the numbers.
    progress
        A function that gets shares of the work.

    Returns
    -------
    IndexResult
        `.index`, `.added`, `.rejects` and `.notes`.

    Raises
    ------
    InputError
        If there is no recording, if none could be read, or if the index is of another encoder.
    OptionError
        If an option is out of its range.
    OutputError
        If the index cannot be written.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> import numpy as np
    >>> folder = Path(tempfile.mkdtemp())
    >>> soundfile.write(folder / "a.wav", np.full(40000, 0.1), 16000)
    >>> result = index_recordings(folder, folder / "index", "mfcc", window_s=1)
    >>> result.index, result.added
    (Index(3 windows of 1 recordings, mfcc), ['a.wav'])
    """
    check_channel_rule(channel)
    check_choice("dtype", dtype, DTYPES)
    spec = find_spec(encoder, choices)
    grid = make_grid(spec, window_s, hop_s)
    recordings, out = to_path(recordings), to_path(out)
    check_index_folder(out)
    library = find_recordings(recordings, follow_links=follow_links)
    if not library.paths and not library.rejects:
        raise InputError(f"{recordings}: no recordings in this folder")
    with WindowEncoder(spec, device=device, threads=threads) as model:
        settings = IndexSettings(
            encoder=encoder,
            choices=dict(choices or {}),
            fingerprint=json.loads(json.dumps(model.fingerprint)),
            dimension=spec.dimension,
            window_s=grid.window_s,
            hop_s=grid.hop_s,
            channel=channel,
            dtype=dtype,
        )
        _make_index(out, settings)
        run = _IndexRun(
            library=library,
            out=out,
            settings=settings,
            grid=grid,
            model=model,
            progress=progress,
        )
        run.add_all()
    _write_rejects(out, run.rejects)
    index = open_index(out)
    if not index.recordings:
        raise InputError(
            f"{recordings}: no recording could be indexed (the first: {run.rejects[0].reason})"
        )
    return IndexResult(index, run.added, run.rejects, group_notes(run.notes))


def check_index_folder(folder: Path) -> None:
    """Check, before any work, that a folder is an index, or can be made one."""
    check_writable(folder)
    if is_index(folder):
        read_settings(folder)
        return
    for name in (INDEX, RECORDINGS, REJECTS):
        if path_exists(folder / name):
            raise OutputError(
                f"{folder}: is no index, but has {name}; choose another folder"
            )


def _make_index(folder: Path, settings: IndexSettings) -> None:
    """Make the folder of an index, or check that it has the same settings."""
    make_folder(folder)
    with hold_lock(folder / LOCK):
        remove_unfinished(folder)
        if not is_index(folder):
            write_record(folder / INDEX, asdict(settings))
        check_settings(folder, settings)
    make_folder(folder / RECORDINGS)


def check_settings(folder: Path, settings: IndexSettings) -> None:
    """Check that an index has certain settings; name the first that differs."""
    found = read_settings(folder)
    advice = "name another folder with --out, or give the options it was made with"
    if found.fingerprint != settings.fingerprint:
        names = find_differences(found.fingerprint, settings.fingerprint)
        raise InputError(
            f"{folder}: is an index of {found.name}, not of {settings.name} "
            f"(they differ in {', '.join(names)}); {advice}"
        )
    for name in ("window_s", "hop_s", "channel", "dtype"):
        wanted = getattr(settings, name)
        actual = getattr(found, name)
        if wanted != actual:
            raise InputError(
                f"{folder}: is an index with {name} {actual}, not {wanted}; {advice}"
            )


def _write_rejects(folder: Path, rejects: list[Reject]) -> None:
    with hold_lock(folder / LOCK), atomic_path(folder / REJECTS) as temporary:
        write_rejects(rejects, temporary)


@dataclass
class _IndexRun:
    """The recordings of a run, and what became of them so far."""

    library: Library
    out: Path
    settings: IndexSettings
    grid: WindowGrid
    model: WindowEncoder
    progress: Progress
    added: list[str] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    durations_s: dict[str, float] = field(default_factory=dict)
    total_s: float = 0.0
    start_s: float = field(default_factory=time.monotonic)
    done_s: float = 0.0

    def add_all(self) -> None:
        """Add the recordings that the index does not have; wait for those of other processes."""
        self.rejects += self.library.rejects
        paths = self.library.paths
        together = is_remote(self.library.root)
        lengths = map_requests(self._find_length, paths, together=together)
        for path, length in zip(paths, lengths, strict=True):
            if isinstance(length, InputError):
                self._reject(path, length)
            elif length is not None:
                self.durations_s[path] = length
        self.total_s = sum(self.durations_s.values())
        self.start_s = time.monotonic()
        later = [path for path in self.durations_s if not self._add(path, wait=False)]
        for path in later:
            self._add(path, wait=True)

    def _find_length(self, path: str) -> float | InputError | None:
        """Return the length of a recording in seconds, None if the index has it."""
        file = self.library.root / path
        try:
            if self._is_indexed(path, find_stamp(file)):
                return None
            return probe(file, path).duration_s
        except InputError as error:
            return error

    def _is_indexed(self, path: str, stamp: str) -> bool:
        """Return whether the index has a recording as it is now.

        Raises
        ------
        InputError
            If the index has another recording of the same name, from another folder.
        """
        known = read_indexed(self.out, path)
        if known is None:
            return False
        if known.stamp == stamp:
            return True
        root = to_path(known.root)
        if root != self.library.root.absolute() and (root / path).exists():
            raise InputError(
                f"{path}: the index has another recording of this name, from {root}; "
                "give the folder that both are in, or another --out"
            )
        return False

    def _add(self, path: str, *, wait: bool) -> bool:
        """Add a recording; return False if another process is adding it."""
        folder = recording_folder(self.out, path)
        timeout_s = -1.0 if wait else 0.0
        try:
            make_folder(folder)
            with hold_lock(folder / LOCK, timeout_s=timeout_s):
                stamp = find_stamp(self.library.root / path)
                if self._is_indexed(path, stamp):  # by another process
                    self._report(self.durations_s[path], 0.0)
                    return True
                remove_unfinished(folder)
                self._embed(path, folder, stamp)
        except TimeoutError:
            return False
        except InputError as error:
            self._reject(path, error)
        return True

    def _embed(self, path: str, folder: Path, stamp: str) -> None:
        """Embed the windows of a recording, and add it to the index."""
        file = self.library.root / path
        spec = self.model.spec
        with PlayedRecording(file, path, spec, self.settings.channel) as played:
            writer = SpanWriter(played, folder, stamp, self.settings, self.grid)
            for share, is_new in writer.write_spans(self.model):
                audio_s = share * played.recording.duration_s
                self._report(audio_s, audio_s if is_new else 0.0)
        if find_stamp(file) != stamp:
            raise InputError(
                f"{path}: changed while it was read; index again when it is complete"
            )
        recording = IndexedRecording(
            path=path,
            root=str(self.library.root.absolute()),
            stamp=stamp,
            duration_s=played.recording.duration_s,
            rate_hz=played.recording.rate_hz,
            clock=find_clock_time(file, path),
            windows=len(writer.starts),
            spans=writer.spans,
        )
        write_indexed(self.out, recording)
        writer.remove_others()
        self.added.append(path)
        self.notes += describe_recording(played.recording, self.grid, spec.name)

    def _reject(self, path: str, error: InputError) -> None:
        self.rejects.append(Reject(path, None, str(error)))

    def _report(self, audio_s: float, embedded_s: float) -> None:
        """Report progress; `embedded_s` of the audio was embedded now."""
        self.done_s += embedded_s
        elapsed_s = time.monotonic() - self.start_s
        speed = self.done_s / max(elapsed_s, 1e-3)
        share = audio_s / max(self.total_s, audio_s)
        name = self.model.spec.name
        self.progress(share, f"{name}: {speed:,.0f} h of audio per hour")


def find_stamp(path: Path) -> str:
    """Return a short hash of the size and the time of change of a file, or of its ETag."""
    with explain_unreadable(path):
        status = path.stat()
    return sha256_text(f"{status.st_size} {status.st_mtime_ns}")[:8]
