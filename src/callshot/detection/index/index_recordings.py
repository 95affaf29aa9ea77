"""Recordings of any length come in; the vectors of all their windows go into an index.

A recording is read in blocks while the model works, and written in files of up to 1024 windows. So
memory does not grow with its length, and a crash costs at most one file. What an index has is not
made again. Several processes may work on one index: each takes recordings that no other has.
"""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from callshot.corpus.audio import probe
from callshot.corpus.audio_files import check_channel_rule
from callshot.corpus.recordings import Library, find_recordings
from callshot.corpus.segment_table import write_rejects
from callshot.detection.index.add_recording import (
    AddedRecording,
    IndexTarget,
    ReportAudio,
    find_candidates,
    find_stamp,
)
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
    list_files,
    read_index,
    read_settings,
    write_record,
)
from callshot.detection.index.index_on_cluster import IndexWork, index_on_cluster
from callshot.detection.index.span_writer import group_notes
from callshot.detection.index.windows import (
    WindowEncoder,
    find_spec,
    make_grid,
    plain_json,
)
from callshot.encoders.encode import check_runs_on, encoder_fingerprint
from callshot.encoders.spec import EncoderSpec, find_differences, format_options
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
from callshot.jobs import Cluster, Outcome
from callshot.records import Progress, Reject, no_progress
from callshot.storage import is_remote, map_requests, to_path

Value = TypeVar("Value")


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
    run = _IndexRun(library, IndexTarget(library.root, out, settings, grid), progress)
    if cluster is None:
        run.run_here(spec, device, threads)
    else:
        run.run_on_cluster(cluster, spec, device)
    _write_rejects(out, run.rejects)
    check_settings(out, run.target.settings)  # a store has no lock for two that begin
    index = read_index(out, run.entries)
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
    check_own_folder(folder)
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


def _write_rejects(folder: Path, rejects: list[Reject]) -> None:
    with hold_lock(folder / LOCK), atomic_path(folder / REJECTS) as temporary:
        write_rejects(rejects, temporary)


@dataclass
class _IndexRun:
    """The recordings of a run, and what became of them so far."""

    library: Library
    target: IndexTarget
    progress: Progress
    added: list[str] = field(default_factory=list)
    entries: dict[str, IndexedRecording] = field(default_factory=dict)  # not to be read
    reasons: dict[str, str] = field(default_factory=dict)  # of rejects, by path
    notes: list[str] = field(default_factory=list)
    start_s: float = field(default_factory=time.monotonic)
    done_s: float = 0.0

    @property
    def rejects(self) -> list[Reject]:
        """Recordings that were left out, in order."""
        paths = [path for path in self.library.paths if path in self.reasons]
        return [
            *self.library.rejects,
            *(Reject(path, None, self.reasons[path]) for path in paths),
        ]

    def run_here(self, spec: EncoderSpec, device: str, threads: int | None) -> None:
        """Add the recordings that the index does not have in this process."""
        with WindowEncoder(spec, device=device, threads=threads) as model:
            self._open(model.plain_fingerprint)
            self._add_all(model)

    def run_on_cluster(self, cluster: Cluster, spec: EncoderSpec, device: str) -> None:
        """Add the recordings that the index does not have on the workers of a cluster."""
        check_runs_on(spec, device)
        self._open(plain_json(encoder_fingerprint(spec, device)))
        sizes = self._map_missing(self._find_size)
        total = sum(sizes.values())
        self.start_s = time.monotonic()
        work = IndexWork(self.target, spec, device)
        outcomes = {}
        for ended in index_on_cluster(cluster, work, sizes):
            self._report(total, ended.size, ended.embedded_s)
            if ended.outcome is None:
                continue
            outcomes[ended.path] = ended.outcome
            if not ended.outcome.reason:
                cluster.add_audio(ended.outcome.value.duration_s)
        for path in sizes:
            self._note_outcome(path, outcomes[path])

    def _open(self, fingerprint: dict[str, Any]) -> None:
        """Make the index, or check that it is of the same encoder and windows."""
        settings = replace(self.target.settings, fingerprint=fingerprint)
        self.target = replace(self.target, settings=settings)
        _make_index(self.target.out, settings)

    def _add_all(self, model: WindowEncoder) -> None:
        """Add the recordings that the index does not have; wait for those of other processes."""
        durations_s = self._map_missing(self._find_length)
        total_s = sum(durations_s.values())
        self.start_s = time.monotonic()
        report = partial(self._report, total_s)
        later = [
            path for path in durations_s if not self._add(path, model, report, False)
        ]
        for path in later:
            self._add(path, model, report, True)

    def _map_missing(self, measure: Callable[[str], Value]) -> dict[str, Value]:
        """Return a value for each recording that the index does not have as it is now."""

        may_have = find_candidates(self.target.out)

        def measure_missing(path: str) -> Value | InputError | None:
            try:
                stamp = find_stamp(self._file(path))
                if may_have(path):
                    files = list_files(self.target.out, path)
                    if self.target.is_indexed(path, stamp, files):
                        return None
                return measure(path)
            except InputError as error:
                return error

        values = {}
        paths = self.library.paths
        together = is_remote(self.library.root)
        answers = map_requests(measure_missing, paths, together=together)
        for path, value in zip(paths, answers, strict=True):
            if isinstance(value, InputError):
                self.reasons[path] = str(value)
            elif value is not None:
                values[path] = value
        return values

    def _find_length(self, path: str) -> float:
        return probe(self._file(path), path).duration_s

    def _find_size(self, path: str) -> int:
        with explain_unreadable(self._file(path)):
            return self._file(path).stat().st_size

    def _file(self, path: str) -> Path:
        return self.library.root / path

    @contextmanager
    def _catch(self, path: str) -> Iterator[None]:
        """Make an error about a recording a reject."""
        try:
            yield
        except InputError as error:
            self.reasons[path] = str(error)

    def _add(
        self, path: str, model: WindowEncoder, report: ReportAudio, wait: bool
    ) -> bool:
        """Add a recording; return False if another process is adding it."""
        with self._catch(path):
            added = self.target.add(path, model, wait=wait, report=report)
            if added is None:
                return False
            if added.is_new:
                self._note(added)
            else:
                report(added.duration_s, 0.0)
        return True

    def _note_outcome(self, path: str, outcome: Outcome) -> None:
        """Note what became of a recording that the index did not have when the job began.

        A worker that died may have added it, so that it was not new to the one that reported it.
        """
        if outcome.reason:
            self.reasons[path] = outcome.reason
        else:
            self._note(outcome.value)

    def _note(self, recording: AddedRecording) -> None:
        self.added.append(recording.path)
        self.notes += recording.notes
        if recording.entry is not None and is_remote(self.target.out):
            self.entries[recording.path] = recording.entry

    def _report(self, total: float, amount: float, embedded_s: float) -> None:
        """Report progress by an amount of the total; some seconds of audio were embedded now."""
        self.done_s += embedded_s
        elapsed_s = time.monotonic() - self.start_s
        speed = self.done_s / max(elapsed_s, 1e-3)
        share = amount / max(total, amount, 1e-9)
        name = self.target.settings.encoder
        self.progress(share, f"{name}: {speed:,.0f} h of audio per hour")
