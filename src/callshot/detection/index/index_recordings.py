"""Recordings of any length come in; the vectors of all their windows go into an index.

A recording is read in blocks while the model works, and written in files of up to 1024 windows. So
memory does not grow with its length, and a crash costs at most one file. What an index has is not
made again. Several processes may work on one index: each takes recordings that no other has.

A piece is some of the files of a long recording, with the names and bytes that they have when the
recording is embedded in one go: a file begins with a block, and each block is sought and resampled
by itself. So several workers can embed one recording. A recording in which not every frame can be
sought is one piece.
"""

import errno
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from callshot.chunks import Rows, find_damage, write_record
from callshot.corpus.audio import parse_band, probe
from callshot.corpus.audio_files import DamagedAudio, check_channel_rule
from callshot.corpus.recordings import find_recordings
from callshot.corpus.segment_table import write_rejects
from callshot.detection.index.clock import find_clock_time
from callshot.detection.index.index_files import (
    DTYPES,
    INDEX,
    LOCK,
    RECORDING,
    RECORDINGS,
    REJECTS,
    SPAN_NAME,
    Index,
    IndexedRecording,
    IndexSettings,
    is_index,
    list_files,
    read_index,
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
    find_spec,
    make_grid,
)
from callshot.encoders.encode import check_runs_on, encoder_fingerprint
from callshot.encoders.spec import EncoderSpec, find_differences, format_options
from callshot.encoders.workers import (
    EmbedWork,
    Pace,
    Unit,
    Workers,
    open_workers,
    run_here,
    run_on_cluster,
)
from callshot.errors import InputError, OutputError, check_choice
from callshot.files import (
    LockBusy,
    atomic_path,
    check_own_folder,
    check_writable,
    explain_unreadable,
    hold_lock,
    make_folder,
    path_exists,
    remove_unfinished,
    sha256_text,
)
from callshot.jobs import Cluster, TryLater
from callshot.records import IntArray, Progress, Recording, Reject, no_progress
from callshot.storage import is_remote, map_requests, to_path

SPAN_WINDOWS = 1024  # in a file
# Of the highest frequency of an encoder: recordings should reach as high.
MIN_TOP_SHARE = 0.75
LOCK_S = 60.0  # all pieces of a recording write one after the other
CHANGED = "{}: changed while it was read; index again when it is complete"


class Added(NamedTuple):
    """A recording that the index has, and whether it was added now."""

    entry: IndexedRecording
    is_new: bool


@dataclass(frozen=True)
class Piece:
    """A part of a recording, by number; if it is the only one, the whole recording."""

    path: str
    number: int = 0
    count: int = 1


class Step(NamedTuple):
    """Progress with a piece.

    share       of the piece that was added to the index since the step before
    embedded_s  seconds of audio that were embedded for it; 0 if its file was there already
    outcome     in the last step, the recording, or the piece to add instead as the audio file is
                damaged; None if more steps follow
    """

    share: float
    embedded_s: float
    outcome: Added | Piece | None = None


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
        """Return the entry of a recording; None if there is none, or if the audio has changed.

        `stamp` is that of the audio file now (`find_stamp`); `files` are those that the index has
        of the recording. Raise InputError if the entry is of another recording of the same name,
        in another folder.
        """
        entry = read_indexed(self.out, path, files)
        if entry is None or entry.stamp == stamp:
            return entry
        root = to_path(entry.root)
        if root.resolve() == self.root.resolve():
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
        """Add a recording that is one piece; of a damaged file, what lies before the damage."""
        path = piece.path
        stamp = find_stamp(self.root / path)
        files = list_files(self.out, path)
        entry = self.find_entry(path, stamp, files)
        if entry is not None:  # added by another process
            yield Step(1.0, 0.0, Added(entry, is_new=False))
            return
        remove_unfinished(recording_folder(self.out, path))
        end_frame = None
        while entry is None:
            try:
                entry = yield from self._write(workers, piece, stamp, files, end_frame)
            except DamagedAudio as damage:
                # Read up to the damage; this may show damage before it.
                is_earlier = end_frame is None or damage.end_frame < end_frame
                if damage.end_frame == 0 or not is_earlier:
                    raise
                end_frame = damage.end_frame
                files = list_files(self.out, path)
        self.enter(entry, files)
        yield Step(1.0, 0.0, Added(entry, is_new=True))

    def _add_piece(self, workers: Workers, piece: Piece, lock: Path) -> Iterator[Step]:
        """Write the missing files of a piece; the outcome is the recording with these files.

        If the audio file is damaged, it is the whole recording as a piece, to be added instead.
        """
        hold = partial(hold_lock, lock, timeout_s=LOCK_S)
        with hold():  # busy while another process adds the whole recording
            stamp = find_stamp(self.root / piece.path)
        files = list_files(self.out, piece.path)
        try:
            entry = yield from self._write(workers, piece, stamp, files, lock=hold)
        except DamagedAudio:
            yield Step(1.0, 0.0, Piece(piece.path))
            return
        yield Step(1.0, 0.0, Added(entry, is_new=True))

    def _write(
        self,
        workers: Workers,
        piece: Piece,
        stamp: str,
        files: Sequence[Path],
        end_frame: int | None = None,
        lock: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> Generator[Step, None, IndexedRecording]:
        """Write the files of a piece that the index does not have; return the entry with its files.

        `files` are those that the index has of the recording, `stamp` that of its audio file. With
        `end_frame` the recording ends there, before its damage. `lock` is held while a file is
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
        channel = self.settings.channel
        with RecordingAtSpeed(file, path, spec, channel, end_frame) as audio:
            recording = audio.recording
            starts = self.grid.find_starts(audio.samples)
            file_count = math.ceil(len(starts) / SPAN_WINDOWS)
            # Where not every frame can be sought, the first piece has all files.
            files_per_piece = file_count
            if audio.reader.starts_anywhere:
                files_per_piece = math.ceil(file_count / piece.count)
            first_file = piece.number * files_per_piece
            numbers = range(file_count)[first_file : first_file + files_per_piece]
            names = _find_written(files, span_stamp, numbers)
            for number in numbers:
                first_window = number * SPAN_WINDOWS
                starts_in_file = starts[first_window : first_window + SPAN_WINDOWS]
                share = len(starts_in_file) / len(starts)
                embedded_s = 0.0
                if number not in names:
                    rows = self._embed(audio, starts_in_file, workers)
                    with lock():
                        names[number] = write_span(folder, span_stamp, number, rows)
                    embedded_s = share * recording.duration_s
                yield Step(share * piece.count, embedded_s)
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
        """Embed the windows that begin at `starts`, in samples; return the rows of a file."""
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
        """Add a recording whose windows are written to the index.

        `files` are those that the index had of it; windows of an earlier state are removed.
        """
        write_indexed(self.out, entry)
        stamp = entry.spans[0].partition("-")[0]
        for path in files:
            match = SPAN_NAME.fullmatch(path.name)
            if match is not None and match["stamp"] != stamp:
                path.unlink(missing_ok=True)

    def enter_pieces(self, outcomes: Sequence[Added | InputError]) -> Added:
        """Add a recording to the index, all pieces of which are written.

        `outcomes` are those of its pieces, in order of time. The first error counts, as if the
        recording were read in one go.
        """
        pieces = []  # entries of the recording, each with the files of one piece
        for outcome in outcomes:
            if isinstance(outcome, InputError):
                raise outcome
            if len(outcomes) == 1:  # entered already
                return outcome
            pieces.append(outcome.entry)
        names = [name for piece in pieces for name in piece.spans]
        entry = replace(pieces[0], spans=names)
        folder = recording_folder(self.out, entry.path)
        with hold_lock(folder / LOCK):
            stamp = find_stamp(self.root / entry.path)
            if any(piece.stamp != stamp for piece in pieces):
                raise InputError(CHANGED.format(entry.path))
            files = list_files(self.out, entry.path)
            is_new = self.find_entry(entry.path, entry.stamp, files) is None
            if is_new:  # otherwise another process added it
                remove_unfinished(folder)
                self.enter(entry, files)
        return Added(entry, is_new)


def _find_written(files: Sequence[Path], stamp: str, numbers: range) -> dict[int, str]:
    """Return the names of undamaged files of windows with a stamp, by number, if in `numbers`."""
    names = {}
    for file in files:
        match = SPAN_NAME.fullmatch(file.name)
        if match is None or match["stamp"] != stamp:
            continue
        number = int(match["number"])
        if number in numbers and not find_damage(file):
            names[number] = file.name
    return names


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
    low_hz, high_hz = (edge_hz / spec.speed for edge_hz in spec.band_hz)
    if spec.band is not None:
        band_low_hz, band_high_hz = parse_band(spec.band)
        low_hz = max(low_hz, band_low_hz)
        high_hz = min(high_hz, band_high_hz)
    top_hz = recording.rate_hz / 2
    if top_hz < MIN_TOP_SHARE * high_hz:
        yield (
            f"{recording.path}: at {recording.rate_hz:g} Hz it has nothing above {top_hz:g} Hz, "
            f"and {spec.name} uses {low_hz:g} to {high_hz:g} Hz"
        )


# The least of an audio file for a piece: of a file behind a URL, each piece reads 2 MB more.
PIECE_BYTES = 128e6


@dataclass(frozen=True)
class IndexResult:
    """The index, and the outcome for each recording.

    index    all windows, those of earlier runs too
    added    paths of the recordings that this run added; on a cluster, of all that the index has
             now and did not have before
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
    encoder_options: Mapping[str, object] | None = None,
    window_s: float | None = None,
    hop_s: float | None = None,
    channel: str = "first",
    dtype: str = "float16",
    follow_links: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    cluster: Cluster | None = None,
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
    encoder_options : mapping, optional
        Options of the encoder that differ from its defaults, e.g. {"speed": 2}.
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
    cluster : Cluster, optional
        Workers that embed the recordings, of `callshot.open_cluster`; they need the recordings
        and the index under the same paths. Changes the time, never the numbers.
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
    (Index(3 windows of 1 recording, mfcc), ['a.wav'])
    """
    check_channel_rule(channel)
    check_choice("dtype", dtype, DTYPES)
    texts = format_options(encoder_options)
    spec = find_spec(encoder, texts)
    grid = make_grid(spec, window_s, hop_s)
    recordings = to_path(recordings)
    folder = to_path(out)
    check_index_folder(folder)
    library = find_recordings(recordings, follow_links=follow_links)
    if not library.paths and not library.rejects:
        raise InputError(f"{recordings}: no recordings in this folder")
    check_runs_on(spec, device)
    settings = IndexSettings(
        encoder=encoder,
        choices=texts,
        fingerprint=encoder_fingerprint(spec, device),
        dimension=spec.dimension,
        window_s=grid.window_s,
        hop_s=grid.hop_s,
        channel=channel,
        dtype=dtype,
    )
    make_index(folder, settings)
    target = IndexTarget(library.root, folder, settings, grid)
    sizes, errors = _measure_missing(
        target, library.paths, in_bytes=cluster is not None
    )
    outcomes = _add_missing(target, spec, sizes, device, threads, cluster, progress)
    outcomes |= errors

    rejects = list(library.rejects)
    added = []
    notes: list[str] = []
    entries = {}  # by path, of recordings added now: not to be read again from a store
    for path in library.paths:
        outcome = outcomes.get(path)
        if isinstance(outcome, str):
            rejects.append(Reject(path, None, outcome))
        elif outcome is not None:
            if outcome.is_new or cluster is not None:
                added.append(path)
                notes += outcome.entry.notes
            if outcome.is_new and is_remote(folder):
                entries[path] = outcome.entry
    with hold_lock(folder / LOCK), atomic_path(folder / REJECTS) as temporary:
        write_rejects(rejects, temporary)
    check_settings(folder, settings)  # a store has no lock for two that begin
    index = read_index(folder, entries)
    if not index.recordings:
        raise InputError(
            f"{recordings}: no recording could be indexed (the first: {rejects[0].reason})"
        )
    return IndexResult(index, added, rejects, group_notes(notes))


def check_index_folder(folder: Path) -> None:
    """Check, before any work, that a folder is an index that can be extended, or can become one."""
    check_writable(folder)
    if is_index(folder):
        read_settings(folder)
        return
    check_own_folder(folder)
    for name in (INDEX, RECORDINGS, REJECTS):
        if path_exists(folder / name):
            raise OutputError(
                f"{folder}: is no index, but has {name}; choose another folder"
            )


def make_index(folder: Path, settings: IndexSettings) -> None:
    """Make an index without recordings, or check that there is one with these settings."""
    make_folder(folder)
    with hold_lock(folder / LOCK):
        remove_unfinished(folder)
        if not is_index(folder):
            write_record(folder / INDEX, asdict(settings))
        check_settings(folder, settings)
    make_folder(folder / RECORDINGS)


def check_settings(folder: Path, settings: IndexSettings) -> None:
    """Check that an index has certain settings; the error names those that differ."""
    earlier = read_settings(folder)
    differing = find_differences(earlier.fingerprint, settings.fingerprint)
    for name in ("window_s", "hop_s", "channel", "dtype"):
        there, here = getattr(earlier, name), getattr(settings, name)
        if there != here:
            differing.append(f"{name}: {there} there, {here} here")
    if differing:
        raise InputError(
            f"{folder}: is an index of {earlier.name}, not of {settings.name} (they differ in "
            f"{', '.join(differing)}); name another folder with --out, or give the options it was "
            "made with"
        )


def _measure_missing(
    target: IndexTarget, paths: Sequence[str], *, in_bytes: bool
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the size of each recording to embed, and the errors of those that cannot be read.

    The size is the length in seconds, or that of the file in bytes. Recordings that the index has,
    and that have not changed since, are in neither result.
    """
    names = None  # of the folders of indexed recordings, if known from one listing
    if is_remote(target.out):
        with explain_unreadable(str(target.out)):
            entries = list(target.out.glob(f"{RECORDINGS}/*/{RECORDING}"))
        names = {entry.parent.name for entry in entries}

    def measure(path: str) -> float | str | None:
        """Return the size of a recording, the reason of an error, or None if it is indexed."""
        file = target.root / path
        try:
            stamp = find_stamp(file)
            if names is None or recording_folder(target.out, path).name in names:
                files = list_files(target.out, path)
                if target.find_entry(path, stamp, files) is not None:
                    return None
            if not in_bytes:
                return probe(file, path).duration_s
            with explain_unreadable(file):
                return float(file.stat().st_size)
        except InputError as error:
            return str(error)

    sizes = {}
    errors = {}
    answers = map_requests(measure, paths, together=is_remote(target.root))
    for path, answer in zip(paths, answers, strict=True):
        if isinstance(answer, str):
            errors[path] = answer
        elif answer is not None:
            sizes[path] = answer
    return sizes, errors


def _add_missing(
    target: IndexTarget,
    spec: EncoderSpec,
    sizes: Mapping[str, float],
    device: str,
    threads: int | None,
    cluster: Cluster | None,
    progress: Progress,
) -> dict[str, Added | str]:
    """Add recordings; return what the index has of each, or why it has nothing.

    `sizes`, by path, tell how much work each recording is (`_measure_missing`). On a cluster the
    pieces of a long recording are units of their own, so that several workers embed it; when all
    are written, this process enters the recording. It opens none: a file that crashes the decoder
    would end it.
    """
    pace = Pace(target.settings.encoder, progress)
    total = max(sum(sizes.values()), 1e-9)  # not 0: sizes are divided by it
    if cluster is None:
        units = [Unit(path, size / total, Piece(path)) for path, size in sizes.items()]
        with open_workers(spec, device=device, threads=threads) as workers:
            return _enter_recordings(
                target, units, run_here(workers, target.add, units), pace
            )
    root = target.root.absolute()
    target = replace(target, root=root, out=target.out.absolute())
    work = EmbedWork(
        kind="index",
        spec=spec,
        fingerprint=target.settings.fingerprint,
        device=device,
        encode=target.add,
        check=target.check_on_worker,
    )
    units = []
    for path, size in sizes.items():
        count = max(1, int(size // PIECE_BYTES))
        for number in range(count):
            piece = Piece(path, number, count)
            units.append(Unit(path, size / total / count, piece))
    outcomes: dict[str, Added | str] = {}
    while units:
        ended = _enter_recordings(
            target, units, run_on_cluster(cluster, work, units), pace
        )
        outcomes |= ended
        # Recordings with a damaged piece did not end. They are embedded in one go, up to the
        # damage; their work has been reported already, so it counts 0.
        damaged = dict.fromkeys(unit.name for unit in units if unit.name not in ended)
        units = [Unit(path, 0.0, Piece(path)) for path in damaged]
    for outcome in outcomes.values():
        if not isinstance(outcome, str):
            cluster.add_audio(outcome.entry.duration_s)
    return outcomes


def _enter_recordings(
    target: IndexTarget,
    units: Sequence[Unit],
    steps: Iterable[tuple[int, Step | InputError]],
    pace: Pace,
) -> dict[str, Added | str]:
    """Add each recording to the index as soon as all its pieces are written; report progress.

    Each of `steps` comes with the number of its unit; it is an error if the piece of that unit
    failed. Return what the index has of each recording, or why it has nothing; recordings with a
    damaged piece are left out.
    """
    unreported = [unit.size for unit in units]  # size of each that is left to report
    outcomes_of_pieces: dict[str, dict[int, Any]] = {}  # by path, and number of piece
    outcomes: dict[str, Added | str] = {}
    for unit_number, step in steps:
        unit = units[unit_number]
        piece = unit.content
        outcome: Any = step
        size = unreported[unit_number]
        embedded_s = 0.0
        if not isinstance(step, InputError):
            outcome = step.outcome
            size = min(step.share * unit.size, size)
            embedded_s = step.embedded_s
        unreported[unit_number] -= size
        pace.report(size, embedded_s)
        if outcome is None:  # more of the piece follows
            continue
        ended = outcomes_of_pieces.setdefault(piece.path, {})
        ended[piece.number] = outcome
        # A piece as an outcome is what to add instead, as the file is damaged.
        is_damaged = any(isinstance(ending, Piece) for ending in ended.values())
        if len(ended) == piece.count and not is_damaged:
            in_order = [ended[number] for number in range(piece.count)]
            try:
                outcomes[piece.path] = target.enter_pieces(in_order)
            except InputError as error:
                outcomes[piece.path] = str(error)
    return outcomes
