"""Recordings of any length come in; the vectors of all their windows go into an index.

A recording is read in blocks while the model works, and written in files of up to 1024 windows. So
memory does not grow with its length, and a crash costs at most one file. Several processes may work
on one index: each takes recordings that no other has.

A piece is some of the files of a long recording, so that several workers can embed it; they have
the bytes that they have when it is embedded in one go: each block is sought and resampled by
itself. A recording in which not every frame can be sought is one piece.
"""

import errno
import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from callshot.chunks import Rows, find_damage, write_record
from callshot.corpus.audio import parse_band
from callshot.corpus.audio_files import DamagedAudio, check_channel_rule
from callshot.corpus.recordings import find_recordings
from callshot.corpus.segment_table import write_rejects
from callshot.detection.index.clock import find_clock_time
from callshot.detection.index.index_files import (
    DTYPES,
    INDEX,
    LOCK,
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
    open_runner,
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

Lock = Callable[[], AbstractContextManager[None]]


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
    outcome     in the last step, the recording with the files of the piece, or the piece to add
                instead as the audio file is damaged; None if more steps follow
    """

    share: float
    embedded_s: float
    outcome: IndexedRecording | Piece | None = None


@dataclass(frozen=True)
class IndexTarget:
    """Where recordings come from, and the index that they go into; paths are absolute.

    files  what the index had of recordings, by path, when this process began to write them; in a
           store, to look again would be a request for each
    """

    root: Path
    out: Path
    settings: IndexSettings
    grid: WindowGrid
    files: dict[str, list[Path]] = field(default_factory=dict)

    def find_entry(
        self, path: str, stamp: str, files: Sequence[Path]
    ) -> IndexedRecording | None:
        """Return the entry of a recording; None if there is none, or if the audio has changed.

        Raise InputError if the entry is of a recording of the same name in another folder.
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
        """Write the files of a piece, a part of a recording, that the index does not have.

        Of a damaged recording that is one piece, write what lies before the damage. TryLater if
        another process is adding the recording.
        """
        folder = recording_folder(self.out, piece.path)
        make_folder(folder)
        outcome: IndexedRecording | Piece | None = None
        end_frame = None
        try:
            with ExitStack() as stack:
                # Pieces share a recording: each locks it only while it writes.
                lock: Lock = partial(hold_lock, folder / LOCK, timeout_s=LOCK_S)
                if piece.count == 1:  # it is locked all the time
                    stack.enter_context(hold_lock(folder / LOCK, timeout_s=0.0))
                    lock = nullcontext
                with lock():
                    stamp = find_stamp(self.root / piece.path)
                while outcome is None:
                    try:
                        outcome = yield from self._write(
                            workers, piece, stamp, lock, end_frame
                        )
                    except DamagedAudio as damage:
                        if (
                            piece.count > 1
                        ):  # the whole recording is to be added instead
                            outcome = Piece(piece.path)
                            continue
                        # Read up to the damage; this may show damage before it.
                        is_earlier = end_frame is None or damage.end_frame < end_frame
                        if damage.end_frame == 0 or not is_earlier:
                            raise
                        end_frame = damage.end_frame
        except LockBusy:
            raise TryLater from None
        # The lock is free: the process that gets this enters the recording.
        yield Step(share=1.0, embedded_s=0.0, outcome=outcome)

    def _write(
        self,
        workers: Workers,
        piece: Piece,
        stamp: str,
        lock: Lock,
        end_frame: int | None,
    ) -> Generator[Step, None, IndexedRecording]:
        """Write the missing files of a piece, each under a lock; return the entry with its files.

        With `end_frame` the recording ends there, before its damage.
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
            files_per_piece = file_count  # all, where not every frame can be sought
            if audio.reader.starts_anywhere:
                files_per_piece = math.ceil(file_count / piece.count)
            first_file = piece.number * files_per_piece
            numbers = range(file_count)[first_file : first_file + files_per_piece]
            names = {}  # of intact files, by number
            self.files[path] = list_files(self.out, path)
            for span in self.files[path]:
                match = SPAN_NAME.fullmatch(span.name)
                if match is None or match["stamp"] != span_stamp:
                    continue
                number = int(match["number"])
                if number in numbers and not find_damage(span):
                    names[number] = span.name
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
        return IndexedRecording(
            path=path,
            root=str(self.root),
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

    def enter(
        self, outcomes: Sequence[IndexedRecording | InputError], *, has_embedded: bool
    ) -> Added:
        """Add a recording, all pieces of which are written; remove windows of an earlier state.

        The first error of `outcomes`, of its pieces in order, counts, as if it were read in one go.
        `has_embedded`: this run wrote files of it.
        """
        pieces = []
        for outcome in outcomes:
            if isinstance(outcome, InputError):
                raise outcome
            pieces.append(outcome)
        names = [name for piece in pieces for name in piece.spans]
        entry = replace(pieces[0], spans=names)
        folder = recording_folder(self.out, entry.path)
        with hold_lock(folder / LOCK):
            stamp = find_stamp(self.root / entry.path)
            if any(piece.stamp != stamp for piece in pieces):
                raise InputError(
                    f"{entry.path}: changed while it was read; "
                    "index again when it is complete"
                )
            # What was there before this run wrote: to list it again would be a request.
            files = self.files.pop(entry.path, None)
            if files is None or not has_embedded:
                files = list_files(self.out, entry.path)
            if not has_embedded:
                known = self.find_entry(entry.path, stamp, files)
                if known is not None:  # another process added it
                    return Added(known, is_new=False)
            remove_unfinished(folder)
            write_indexed(self.out, entry)
            span_stamp, _, _ = names[0].partition("-")  # STAMP-NUMBER-SHA256.npy
            for file in files:
                match = SPAN_NAME.fullmatch(file.name)
                if match is not None and match["stamp"] != span_stamp:
                    file.unlink(missing_ok=True)
        return Added(entry, is_new=True)


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
    """Yield what is unusual about a recording: shorter than a window, cut short, low rate."""
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
    target = IndexTarget(library.root.absolute(), folder.absolute(), settings, grid)
    sizes, outcomes = _measure_missing(target, library.paths)
    outcomes |= _add_missing(target, spec, sizes, device, threads, cluster, progress)

    rejects = list(library.rejects)
    added = []
    notes: list[str] = []
    known = {}  # entries by their folders, not to be read again
    for path in library.paths:
        outcome = outcomes.get(path)
        if isinstance(outcome, str):
            rejects.append(Reject(path, row=None, reason=outcome))
        elif outcome is not None and outcome.is_new:
            added.append(path)
            notes += outcome.entry.notes
            known[recording_folder(folder, path).name] = outcome.entry
    with hold_lock(folder / LOCK), atomic_path(folder / REJECTS) as temporary:
        write_rejects(rejects, temporary)
    check_settings(folder, settings)  # a store has no lock for two that begin
    index = read_index(folder, known)
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
    """Check that an index has certain settings; name those that differ."""
    earlier = read_settings(folder)
    names = find_differences(earlier.fingerprint, settings.fingerprint)
    for name in ("window_s", "hop_s", "channel", "dtype"):
        there, here = getattr(earlier, name), getattr(settings, name)
        if there != here:
            names.append(f"{name}: {there} there, {here} here")
    if names:
        raise InputError(
            f"{folder}: is an index of {earlier.name}, not of {settings.name} (they differ in "
            f"{', '.join(names)}); name another folder with --out, or give the options it was "
            "made with"
        )


def _measure_missing(
    target: IndexTarget, paths: Sequence[str]
) -> tuple[dict[str, float], dict[str, Added | str]]:
    """Return the bytes of each recording to embed, and the errors of those that cannot be read.

    Recordings that the index has, and that have not changed since, are in neither result.
    """
    files_by_folder = defaultdict[str, list[Path]](list)  # what the index has
    with explain_unreadable(str(target.out)):
        for file in target.out.glob(f"{RECORDINGS}/*/*"):
            files_by_folder[file.parent.name].append(file)

    def measure(path: str) -> float | str | None:
        """Return the size of a recording, the reason of an error, or None if it is indexed."""
        file = target.root / path
        files = files_by_folder.get(recording_folder(target.out, path).name, [])
        try:
            if target.find_entry(path, find_stamp(file), files) is not None:
                return None
            with explain_unreadable(file):
                return float(file.stat().st_size)
        except InputError as error:
            return str(error)

    sizes = {}
    errors: dict[str, Added | str] = {}
    # Recordings behind a URL are measured many at once.
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
    """Add recordings of `sizes` in bytes; return what the index has of each, or why not.

    On a cluster the pieces of a long recording are units of their own. This process enters
    recordings, and opens none then: a file that crashes the decoder would end it.
    """
    pace = Pace(target.settings.encoder, progress)
    total = max(sum(sizes.values()), 1e-9)  # 0 cannot be divided by
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
        count = 1 if cluster is None else max(1, int(size // PIECE_BYTES))
        for number in range(count):
            piece = Piece(path, number, count)
            units.append(Unit(path, size / total / count, piece))
    outcomes: dict[str, Added | str] = {}
    with open_runner(work, cluster, threads) as run:
        while units:
            ended = _enter_recordings(target, units, run(units), pace)
            # Damaged ones are embedded in one go, up to the damage.
            damaged = dict.fromkeys(
                unit.name for unit in units if unit.name not in ended
            )
            # Their share of the progress has been reported: 0 is left.
            units = [Unit(path, 0.0, Piece(path)) for path in damaged]
            outcomes |= ended
    for outcome in outcomes.values():
        if cluster is not None and not isinstance(outcome, str):
            cluster.add_audio(outcome.entry.duration_s)
    return outcomes


def _enter_recordings(
    target: IndexTarget,
    units: Sequence[Unit],
    steps: Iterable[tuple[int, Step | InputError]],
    pace: Pace,
) -> dict[str, Added | str]:
    """Enter each recording as soon as all its pieces, its parts, are written; report progress.

    Each of `steps` comes with the number of its unit; it is an error if that piece failed.
    Recordings with a damaged piece are left out of the result.
    """
    unreported = [unit.size for unit in units]
    ended = defaultdict[str, dict[int, Any]](dict)  # outcomes by path, number of piece
    embedded = set()  # paths of recordings of which files were written
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
            if embedded_s > 0:
                embedded.add(piece.path)
        unreported[unit_number] -= size
        pace.report(size, embedded_s)
        if outcome is None:  # more of the piece follows
            continue
        ended[piece.path][piece.number] = outcome
        in_order = [one for _, one in sorted(ended[piece.path].items())]
        is_damaged = any(isinstance(one, Piece) for one in in_order)
        if len(in_order) == piece.count and not is_damaged:
            try:
                has_embedded = piece.path in embedded
                outcomes[piece.path] = target.enter(in_order, has_embedded=has_embedded)
            except InputError as error:
                outcomes[piece.path] = str(error)
    return outcomes
