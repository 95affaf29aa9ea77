"""Recordings of any length come in; the vectors of all their windows go into an index.

A recording is read in blocks while the model works, and written in files of up to 1024 windows. So
memory does not grow with its length, and a crash costs at most one file. What an index has is not
made again. Several processes may work on one index: each takes recordings that no other has.
"""

import errno
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from callshot.corpus.audio import probe
from callshot.corpus.audio_files import check_channel_rule
from callshot.corpus.recordings import Library, find_recordings
from callshot.corpus.segment_table import write_rejects
from callshot.detection.index.add_recording import (
    AddedRecording,
    IndexTarget,
    LongRecording,
    Piece,
    WrittenPiece,
    find_stamp,
    group_notes,
)
from callshot.detection.index.index_files import (
    DTYPES,
    INDEX,
    LOCK,
    RECORDING,
    RECORDINGS,
    REJECTS,
    Index,
    IndexSettings,
    is_index,
    list_files,
    read_index,
    read_settings,
    recording_folder,
)
from callshot.detection.index.windows import (
    WindowEncoder,
    find_spec,
    make_grid,
    plain_json,
)
from callshot.encoders.embed import check_fingerprint_of_client
from callshot.encoders.encode import check_runs_on, encoder_fingerprint
from callshot.encoders.spec import EncoderSpec, find_differences, format_options
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
)
from callshot.jobs import Cluster, Job, TryLater
from callshot.records import Progress, Reject, no_progress
from callshot.storage import is_remote, map_requests, to_path
from callshot.vectors import write_record

PIECE_S = 1800.0  # of audio in a piece of a long recording, at least
# of its file in a piece, at least: 2 MB more than those are read of a file behind a URL
PIECE_BYTES = 48e6

Outcome = AddedRecording | str
"""A recording that is in the index, or why it is not."""
Step = tuple[str, float, float, Outcome | None]
"""A recording; how much of the work was done, by length or size; how many seconds of audio were
embedded for it; its outcome, None if more of it follows."""


@dataclass(frozen=True)
class IndexResult:
    """What became of recordings.

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
    out = to_path(out)
    check_index_folder(out)
    library = find_recordings(recordings, follow_links=follow_links)
    if not library.paths and not library.rejects:
        raise InputError(f"{recordings}: no recordings in this folder")
    settings = IndexSettings(
        encoder=encoder,
        choices=texts,
        fingerprint={},
        dimension=spec.dimension,
        window_s=grid.window_s,
        hop_s=grid.hop_s,
        channel=channel,
        dtype=dtype,
    )
    target = IndexTarget(library.root, out, settings, grid)
    if cluster is None:
        with WindowEncoder(spec, device=device, threads=threads) as model:
            target = _open_target(target, model.plain_fingerprint)
            values, outcomes = _find_missing(target, library, _find_length)
            steps = _add_here(target, model, values)
            outcomes |= _follow(steps, sum(values.values()), encoder, progress)
    else:
        check_runs_on(spec, device)
        fingerprint = plain_json(encoder_fingerprint(spec, device))
        target = _open_target(target, fingerprint)
        values, outcomes = _find_missing(target, library, _find_size)
        steps = _add_on_cluster(cluster, IndexWork(target, spec, device), values)
        outcomes |= _follow(steps, sum(values.values()), encoder, progress)
    rejects = list(library.rejects)
    added = []
    notes: list[str] = []
    entries = {}  # not to be read again from a store
    for path in library.paths:
        outcome = outcomes.get(path)
        if isinstance(outcome, str):
            rejects.append(Reject(path, None, outcome))
        elif outcome is not None and (outcome.is_new or cluster is not None):
            added.append(path)
            notes += outcome.notes
            if outcome.is_new and is_remote(out):
                entries[path] = outcome.entry
    with hold_lock(target.out / LOCK), atomic_path(target.out / REJECTS) as temporary:
        write_rejects(rejects, temporary)
    check_settings(
        target.out, target.settings
    )  # a store has no lock for two that begin
    index = read_index(target.out, entries)
    if not index.recordings:
        raise InputError(
            f"{recordings}: no recording could be indexed (the first: {rejects[0].reason})"
        )
    return IndexResult(index, added, rejects, group_notes(notes))


def check_index_folder(folder: Path) -> None:
    """Check, before any work, that a folder is an index, or can be made one."""
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


def _open_target(target: IndexTarget, fingerprint: dict[str, Any]) -> IndexTarget:
    """Make the folder of an index, or check that it is of the same encoder and windows."""
    folder = target.out
    settings = replace(target.settings, fingerprint=fingerprint)
    make_folder(folder)
    with hold_lock(folder / LOCK):
        remove_unfinished(folder)
        if not is_index(folder):
            write_record(folder / INDEX, asdict(settings))
        check_settings(folder, settings)
    make_folder(folder / RECORDINGS)
    return replace(target, settings=settings)


def check_settings(folder: Path, settings: IndexSettings) -> None:
    """Check that an index has certain settings; name the first that differs."""
    earlier_settings = read_settings(folder)
    advice = "name another folder with --out, or give the options it was made with"
    if earlier_settings.fingerprint != settings.fingerprint:
        names = find_differences(earlier_settings.fingerprint, settings.fingerprint)
        raise InputError(
            f"{folder}: is an index of {earlier_settings.name}, not of {settings.name} "
            f"(they differ in {', '.join(names)}); {advice}"
        )
    for name in ("window_s", "hop_s", "channel", "dtype"):
        value = getattr(settings, name)
        earlier_value = getattr(earlier_settings, name)
        if value != earlier_value:
            raise InputError(
                f"{folder}: is an index with {name} {earlier_value}, not {value}; {advice}"
            )


def _find_length(path: Path, name: str) -> float:
    return probe(path, name).duration_s


def _find_size(path: Path, name: str) -> float:
    with explain_unreadable(path):
        return path.stat().st_size


def find_candidates(index: Path) -> Callable[[str], bool]:
    """Return whether an index may have a recording; in a store, by one listing of the index."""
    if not is_remote(index):
        return lambda path: True
    with explain_unreadable(str(index)):
        entries = list(index.glob(f"{RECORDINGS}/*/{RECORDING}"))
    names = {entry.parent.name for entry in entries}
    return lambda path: recording_folder(Path(), path).name in names


def _find_missing(
    target: IndexTarget, library: Library, measure: Callable[[Path, str], float]
) -> tuple[dict[str, float], dict[str, Outcome]]:
    """Return how much there is of each recording that the index does not have as it is now.

    Also why recordings are left out that cannot be measured.
    """
    may_have = find_candidates(target.out)

    def measure_missing(path: str) -> float | InputError | None:
        file = target.root / path
        try:
            stamp = find_stamp(file)
            if may_have(path):
                files = list_files(target.out, path)
                if target.find_entry(path, stamp, files) is not None:
                    return None
            return measure(file, path)
        except InputError as error:
            return error

    values: dict[str, float] = {}
    outcomes: dict[str, Outcome] = {}
    paths = library.paths
    answers = map_requests(measure_missing, paths, together=is_remote(library.root))
    for path, value in zip(paths, answers, strict=True):
        if isinstance(value, InputError):
            outcomes[path] = str(value)
        elif value is not None:
            values[path] = value
    return values, outcomes


def _follow(
    steps: Iterator[Step], total: float, encoder: str, progress: Progress
) -> dict[str, Outcome]:
    """Follow the work, reporting progress; return the outcome of each recording."""
    start_s = time.monotonic()
    done_s = 0.0
    outcomes = {}
    for path, amount, embedded_s, outcome in steps:
        done_s += embedded_s
        elapsed_s = max(time.monotonic() - start_s, 1e-3)
        share = amount / max(total, amount, 1e-9)
        progress(share, f"{encoder}: {done_s / elapsed_s:,.0f} h of audio per hour")
        if outcome is not None:
            outcomes[path] = outcome
    return outcomes


def _add_here(
    target: IndexTarget, model: WindowEncoder, paths: Iterable[str]
) -> Iterator[Step]:
    """Add recordings in this process; wait for those of other processes at the end."""
    busy: list[str] = []
    for wait in (False, True):
        for path in busy if wait else paths:
            adding = target.add(path, model, wait=wait)
            outcome: Outcome
            try:
                while True:
                    seconds, embedded_s = next(adding)
                    yield path, seconds, embedded_s, None
            except StopIteration as end:
                outcome = end.value
            except LockBusy:
                busy.append(path)
                continue
            except InputError as error:
                outcome = str(error)
            yield path, 0.0, 0.0, outcome


# On a cluster


@dataclass(frozen=True)
class IndexWork:
    """What a worker has to know: the target, and the encoder as the client found it."""

    target: IndexTarget
    spec: EncoderSpec
    device: str


def _add_on_cluster(
    cluster: Cluster, work: IndexWork, sizes: Mapping[str, float]
) -> Iterator[Step]:
    """Embed recordings, of `sizes` in bytes, on a cluster.

    Workers measure large recordings first. The pieces of a long one are items of their own, so that
    several workers embed it; when all are written, this process enters the recording.
    """
    root = work.target.root.absolute()
    out = work.target.out.absolute()
    work = replace(work, target=replace(work.target, root=root, out=out))
    large = [path for path, size in sizes.items() if size >= 2 * PIECE_BYTES]
    # This process opens none of them: a file that crashes the decoder would end it.
    measuring = Job(
        kind="measure",
        prepare=open_folder_on_worker,
        function=measure_on_worker,
        common=work,
        items=large,
        names=large,
        sizes=[1.0] * len(large),
    )
    long_recordings: dict[str, LongRecording] = {}
    rest = dict(sizes)
    for measured in cluster.run(measuring):
        path = large[measured.number]
        if measured.reason:
            yield path, rest.pop(path), 0.0, measured.reason
        elif measured.value is not None:
            long_recordings[path] = measured.value
    yield from _embed_on_cluster(cluster, work, rest, long_recordings)


def _embed_on_cluster(
    cluster: Cluster,
    work: IndexWork,
    sizes: Mapping[str, float],
    long_recordings: Mapping[str, LongRecording],
) -> Iterator[Step]:
    """Embed recordings and pieces of long ones."""
    items: list[str | Piece] = []
    shares: list[float] = []
    unfinished: dict[str, int] = {}  # pieces that have not ended
    written: dict[str, dict[int, WrittenPiece | str]] = {}  # by the first file
    for path, size in sizes.items():
        pieces: Sequence[str | Piece] = [path]
        if path in long_recordings:
            recording = long_recordings[path]
            longest = recording.entry.duration_s // PIECE_S
            count = int(min(longest, size // PIECE_BYTES))
            pieces = recording.split(max(1, count))
        if len(pieces) == 1:
            pieces = [path]
        else:
            unfinished[path] = len(pieces)
            written[path] = {}
        items += pieces
        shares += [size / len(pieces)] * len(pieces)
    job = Job(
        kind="index",
        prepare=open_index_on_worker,
        function=add_on_worker,
        common=work,
        items=items,
        names=[item.path if isinstance(item, Piece) else item for item in items],
        sizes=shares,
        needs_gpu=work.device == "cuda",
    )
    for ended in cluster.run(job):
        item = items[ended.number]
        path = job.names[ended.number]
        embedded_s = 0.0
        outcome: Outcome | None = ended.reason or ended.value
        if isinstance(item, Piece):
            if not ended.reason:
                embedded_s = ended.value.embedded_s
            written[path][item.numbers.start] = ended.reason or ended.value
            outcome = None
            unfinished[path] -= 1
            if unfinished[path] == 0:
                pieces_of = written[path]
                outcome = _enter(work.target, long_recordings[path], pieces_of)
        elif not ended.reason:
            embedded_s = ended.value.entry.duration_s
        if isinstance(outcome, AddedRecording):
            cluster.add_audio(outcome.entry.duration_s)
        yield path, shares[ended.number], embedded_s, outcome
    damaged = [path for path in written if _is_damaged(written[path])]
    if damaged:  # to be embedded in one go, up to the damage
        yield from _embed_on_cluster(cluster, work, dict.fromkeys(damaged, 0.0), {})


def _is_damaged(pieces: Mapping[int, WrittenPiece | str]) -> bool:
    """Return whether the audio file is damaged in one of its pieces."""
    return any(
        isinstance(piece, WrittenPiece) and piece.is_damaged
        for piece in pieces.values()
    )


def _enter(
    target: IndexTarget,
    recording: LongRecording,
    pieces: Mapping[int, WrittenPiece | str],
) -> Outcome | None:
    """Enter a recording whose pieces have ended; None if its file is damaged."""
    if _is_damaged(pieces):
        return None
    names: list[str] = []
    for _, piece in sorted(pieces.items()):
        # The first error in time counts, as if the recording were read in one go.
        if isinstance(piece, str):
            return piece
        names += piece.names
    try:
        return target.enter(recording, names)
    except InputError as error:
        return str(error)


def open_folder_on_worker(work: IndexWork, threads: int) -> IndexWork:
    """Check that the recordings are there; nothing has to be opened."""
    if not work.target.root.is_dir():
        raise FileNotFoundError(
            errno.ENOENT,
            "the folder of the recordings is not there; use a shared folder",
            str(work.target.root),
        )
    return work


def measure_on_worker(work: IndexWork, path: str) -> LongRecording | None:
    """Return what is known of a recording before it is embedded; None if it has no pieces."""
    return work.target.measure(work.spec, path)


def open_index_on_worker(
    work: IndexWork, threads: int
) -> tuple[IndexTarget, WindowEncoder]:
    """Open the model in the process of a worker; check that folders and weights are the same."""
    open_folder_on_worker(work, threads)
    target = work.target
    if not is_index(target.out):
        raise FileNotFoundError(
            errno.ENOENT,
            "the index is not there; use a folder that all machines share",
            str(target.out),
        )
    if read_settings(target.out) != target.settings:
        raise InputError(
            f"{target.out}: the worker has a different index at this path; use a folder that all "
            "machines share"
        )
    model = WindowEncoder(work.spec, device=work.device, threads=threads)
    check_fingerprint_of_client(
        target.settings.fingerprint, model.plain_fingerprint, work.spec.name
    )
    return target, model


def add_on_worker(
    state: tuple[IndexTarget, WindowEncoder], item: str | Piece
) -> AddedRecording | WrittenPiece:
    """Add a recording, or write a piece of one; TryLater if another process is adding it."""
    target, model = state
    if isinstance(item, Piece):
        return target.write_piece(item, model)
    adding = target.add(item, model, wait=False)
    try:
        while True:
            next(adding)
    except StopIteration as end:
        added: AddedRecording = end.value
        return added
    except LockBusy:
        raise TryLater from None
