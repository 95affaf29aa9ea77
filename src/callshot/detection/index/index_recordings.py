"""Recordings of any length come in; the vectors of all their windows go into an index.

A recording is read in blocks while the model works, and written in files of up to 1024 windows. So
memory does not grow with its length, and a crash costs at most one file. What an index has is not
made again. Several processes may work on one index: each takes recordings that no other has.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from callshot.chunks import write_record
from callshot.corpus.audio import probe
from callshot.corpus.audio_files import check_channel_rule
from callshot.corpus.recordings import find_recordings
from callshot.corpus.segment_table import write_rejects
from callshot.detection.index.add_recording import (
    Added,
    IndexTarget,
    Piece,
    Step,
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
from callshot.detection.index.windows import find_spec, make_grid
from callshot.encoders.encode import check_runs_on, encoder_fingerprint
from callshot.encoders.spec import EncoderSpec, find_differences, format_options
from callshot.encoders.workers import (
    EmbedWork,
    Pace,
    Unit,
    open_workers,
    run_here,
    run_on_cluster,
)
from callshot.errors import InputError, OutputError, check_choice
from callshot.files import (
    atomic_path,
    check_own_folder,
    check_writable,
    explain_unreadable,
    hold_lock,
    make_folder,
    path_exists,
    remove_unfinished,
)
from callshot.jobs import Cluster
from callshot.records import Progress, Reject, no_progress
from callshot.storage import is_remote, map_requests, to_path

# of the file of a recording in a piece, at least: 2 MB more are read of a file behind a URL
PIECE_BYTES = 128e6


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
    open_or_make(folder, settings)
    target = IndexTarget(library.root, folder, settings, grid)
    sizes, errors = _measure_missing(
        target, library.paths, in_bytes=cluster is not None
    )
    outcomes = _add_missing(
        target,
        spec,
        sizes,
        device,
        threads,
        cluster,
        progress,
    )
    outcomes |= errors

    rejects = list(library.rejects)
    added = []
    notes: list[str] = []
    entries = {}  # not to be read again from a store
    for path in library.paths:
        outcome = outcomes.get(path)
        if isinstance(outcome, str):
            rejects.append(Reject(path, None, outcome))
        elif outcome is not None:
            entry, is_new = outcome
            if is_new or cluster is not None:
                added.append(path)
                notes += entry.notes
            if is_new and is_remote(folder):
                entries[path] = entry
    with hold_lock(folder / LOCK), atomic_path(folder / REJECTS) as temporary:
        write_rejects(rejects, temporary)
    check_settings(folder, settings)  # a store has no lock for two that begin
    index = read_index(folder, entries)
    if not index.recordings:
        raise InputError(
            f"{recordings}: no recording could be indexed (the first: {rejects[0].reason})"
        )
    return IndexResult(index, added, rejects, group_notes(notes))


def open_or_make(folder: Path, settings: IndexSettings) -> None:
    """Make an index, if there is none; check that it has these settings."""
    make_folder(folder)
    with hold_lock(folder / LOCK):
        remove_unfinished(folder)
        if not is_index(folder):
            write_record(folder / INDEX, asdict(settings))
        check_settings(folder, settings)
    make_folder(folder / RECORDINGS)


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
    target: IndexTarget, paths: Sequence[str], *, in_bytes: bool
) -> tuple[dict[str, float], dict[str, str]]:
    """Return the size of each recording that the index does not have as it is now, and errors."""
    names = None
    if is_remote(target.out):  # one listing of the index
        with explain_unreadable(str(target.out)):
            entries = list(target.out.glob(f"{RECORDINGS}/*/{RECORDING}"))
        names = {entry.parent.name for entry in entries}

    def measure(path: str) -> float | str | None:
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
    """Add recordings of `sizes`; return what the index has of each, or why it has nothing.

    On a cluster the pieces of a long recording are units of their own, so that several workers
    embed it; when all are written, this process enters the recording. It opens none: a file that
    crashes the decoder would end it.
    """
    pace = Pace(target.settings.encoder, progress)
    total = max(sum(sizes.values()), 1e-9)
    if cluster is None:
        units = [Unit(path, size / total, Piece(path)) for path, size in sizes.items()]
        with open_workers(spec, device=device, threads=threads) as workers:
            return _follow(target, units, run_here(workers, target.add, units), pace)
    root = target.root.absolute()
    target = replace(target, root=root, out=target.out.absolute())
    fingerprint = target.settings.fingerprint
    work = EmbedWork("index", spec, fingerprint, device, target.add)
    work = replace(work, check=target.check_on_worker)
    units = []
    for path, size in sizes.items():
        count = max(1, int(size // PIECE_BYTES))
        for number in range(count):
            piece = Piece(path, number, count)
            units.append(Unit(path, size / total / count, piece))
    outcomes: dict[str, Added | str] = {}
    while units:
        ended = _follow(target, units, run_on_cluster(cluster, work, units), pace)
        # Damaged ones are embedded in one go, up to the damage.
        damaged = dict.fromkeys(unit.name for unit in units if unit.name not in ended)
        units = [Unit(path, 0.0, Piece(path)) for path in damaged]
        outcomes |= ended
    for outcome in outcomes.values():
        if not isinstance(outcome, str):
            cluster.add_audio(outcome[0].duration_s)
    return outcomes


def _follow(
    target: IndexTarget,
    units: Sequence[Unit],
    steps: Iterable[tuple[int, Step | InputError]],
    pace: Pace,
) -> dict[str, Added | str]:
    """Report progress, and enter recordings; return the outcome of each, but of damaged pieces."""
    left = [unit.size for unit in units]
    pieces: dict[str, dict[int, Any]] = {}
    outcomes: dict[str, Added | str] = {}
    for number, step in steps:
        failed = (1.0, 0.0, step)
        share, embedded_s, outcome = failed if isinstance(step, InputError) else step
        piece = units[number].content
        size = min(share * units[number].size, left[number])
        left[number] -= size
        pace.report(size, embedded_s)
        if outcome is None:
            continue
        ended = pieces.setdefault(piece.path, {})
        ended[piece.number] = outcome
        is_damaged = any(isinstance(one, Piece) for one in ended.values())
        if len(ended) == piece.count and not is_damaged:
            in_order = [ended[n] for n in range(piece.count)]
            try:
                outcomes[piece.path] = target.enter_pieces(in_order)
            except InputError as error:
                outcomes[piece.path] = str(error)
    return outcomes
