"""A model, and recordings or an index of them → the windows to scan, which must suit the model.

A model and what is scanned → the model adapted to the background of these recordings.

A model and recordings, or an index of them → events with a label, or "none of these".
"""

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.recordings import find_recordings
from callshot.corpus.segment_table import read_rejects
from callshot.detection.background import Background
from callshot.detection.detector import Detector, check_aim, make_detector
from callshot.detection.events import Row, events_frame
from callshot.detection.examples import find_grid
from callshot.detection.find_events import (
    ActiveWindows,
    Event,
    Spacing,
    find_active_windows,
    find_on_cluster,
    merge_windows,
)
from callshot.detection.index.add_recording import group_notes
from callshot.detection.index.clock import shift_clock
from callshot.detection.index.index_files import (
    REJECTS,
    Index,
    IndexedRecording,
    is_index,
    open_index,
)
from callshot.detection.index.index_recordings import IndexResult, index_recordings
from callshot.detection.index.windows import WindowEncoder, find_spec
from callshot.detection.learn import plain_fingerprint
from callshot.detection.mix_examples import (
    BackgroundFile,
    adapt_examples,
    sample_index,
)
from callshot.detection.model import (
    SEGMENT,
    Model,
    check_different,
    check_fingerprint,
    load_model,
)
from callshot.encoders.joined_encoder import find_joined_encoder
from callshot.encoders.spec import find_differences, format_options
from callshot.errors import InputError, OptionError, check_choice, count_text
from callshot.jobs import Cluster
from callshot.records import FloatArray, Progress, Reject, no_progress, scale_progress
from callshot.records.frames import Frame
from callshot.storage import to_path

ADAPT_MODES = ("auto", "always", "none")
INDEXING = 0.98  # of the work, where recordings are embedded first
ROUNDING_S = 1e-3  # windows and hops are whole numbers of samples


@dataclass(frozen=True)
class ScanOptions:
    """How windows become events.

    false_alarms  aim for each class, per hour
    gap_s         pauses up to this do not end an event
    hop_s         seconds from one window to the next; None: those of the encoder or the index
    adapt         "auto": examples without recordings around them are mixed into background of what
                  is scanned; "always": all examples are; "none"
    """

    false_alarms: float = 1.0
    gap_s: float = 0.0
    hop_s: float | None = None
    adapt: str = "auto"

    def __post_init__(self) -> None:
        check_choice("adapt", self.adapt, ADAPT_MODES)
        if not 0 <= self.gap_s < math.inf:
            raise OptionError(f"gap: expected 0 or more seconds, got {self.gap_s:g}")


@dataclass(frozen=True)
class IndexingOptions:
    """How recordings are indexed before a scan; the encoder is needed only if there is no index.

    encoder, encoder_options
             where the model cannot find its own by name, as with onnx:PATH
    cluster  workers that embed windows, and compare them with the model
    """

    encoder: str | None = None
    encoder_options: Mapping[str, str] = field(default_factory=dict)
    follow_links: bool = False
    device: str = "cpu"
    threads: int | None = None
    cluster: Cluster | None = None


@dataclass(frozen=True)
class ScanSource:
    """An index, the recordings of it that are scanned, and what is known about the others.

    `share` is how much of the work is left.
    """

    index: Index
    recordings: Sequence[IndexedRecording]
    rejects: Sequence[Reject] = ()
    notes: Sequence[str] = ()
    share: float = 1.0


def check_scannable(model: Model) -> None:
    """Raise InputError unless a model has different classes, of windows as recordings have them."""
    check_different(model)
    if model.settings.source == SEGMENT:
        raise InputError(
            f"{model.source}: this model was made from a segments.parquet and can only label "
            "segments (--segments); to scan recordings, make it from recordings with annotations"
        )
    if model.settings.source_rate_hz is not None:
        raise InputError(
            f"{model.source}: learned with --source-rate-hz, and scan reads recordings only at "
            "their own rate; convert the recordings, and learn the model from these"
        )


def open_source(
    model: Model,
    recordings: Path | str | Index,
    index: Path | str | None,
    options: ScanOptions,
    indexing: IndexingOptions,
    progress: Progress,
) -> ScanSource:
    """Return an index as it is, or make one of recordings in the folder `index`."""
    if isinstance(recordings, Index):
        return _use_index(model, recordings, options)
    path = to_path(recordings)
    if is_index(path):
        return _use_index(model, open_index(recordings), options)
    if index is None:
        raise OptionError(
            "index: name the folder in which the windows of recordings are stored"
        )
    run = _IndexFirst(model, path, to_path(index), indexing)
    return run.make_source(options.hop_s, progress)


def _use_index(model: Model, index: Index, options: ScanOptions) -> ScanSource:
    check_index(model, index)
    hop_s = index.settings.hop_s
    if options.hop_s is not None and abs(options.hop_s - hop_s) > ROUNDING_S:
        raise OptionError(
            f"hop: {index.folder} has a window every {hop_s:g} s; remove --hop, or index the "
            "recordings with this hop"
        )
    if not index.recordings:
        raise InputError(
            f"{index.folder}: the index has no recordings; run callshot index"
        )
    try:
        rejects = read_rejects(index.folder / REJECTS)
    except InputError as error:
        return ScanSource(index, index.recordings, index.rejects, [str(error)])
    return ScanSource(index, index.recordings, [*rejects, *index.rejects])


def check_index(model: Model, index: Index) -> None:
    """Raise InputError unless the windows of an index are made as the examples of a model."""
    difference = next(_find_index_differences(model, index), "")
    if difference:
        raise InputError(
            f"{index.folder}: {difference}; index the recordings as the model was learned, or "
            "learn the model again"
        )


def _find_index_differences(model: Model, index: Index) -> Iterator[str]:
    settings = index.settings
    names = find_differences(settings.fingerprint, model.fingerprint)
    if names:
        yield (
            f"an index of {settings.name}, but {model.source} was learned with {model.encoder} "
            f"(they differ in {', '.join(names)})"
        )
    channel = model.settings.channel_rule
    if settings.channel != channel:
        yield (
            f"an index of channel {settings.channel}, but {model.source} was learned from channel "
            f"{channel}"
        )
    window_s = model.settings.window_s
    if window_s is not None and abs(window_s - settings.window_s) > ROUNDING_S:
        yield (
            f"an index with windows of {settings.window_s:g} s, but {model.source} was learned "
            f"with windows of {window_s:g} s"
        )


@dataclass(frozen=True)
class _IndexFirst:
    """Recordings whose windows are embedded before they are scanned, into a folder."""

    model: Model
    recordings: Path
    folder: Path
    options: IndexingOptions

    def make_source(self, hop_s: float | None, progress: Progress) -> ScanSource:
        """Embed the windows that the index does not have; earlier recordings are left out."""
        encoder = self.options.encoder or self.model.encoder
        self._check_encoder(encoder)
        result = index_recordings(
            self.recordings,
            self.folder,
            encoder,
            encoder_options=self.options.encoder_options,
            window_s=self.model.settings.window_s,
            hop_s=hop_s,
            channel=self.model.settings.channel_rule,
            follow_links=self.options.follow_links,
            device=self.options.device,
            threads=self.options.threads,
            cluster=self.options.cluster,
            progress=scale_progress(progress, INDEXING),
        )
        scanned = self._select(result)
        share = 1 - INDEXING
        return ScanSource(result.index, scanned, result.rejects, result.notes, share)

    def _check_encoder(self, encoder: str) -> None:
        joined_encoder = find_joined_encoder(encoder, self.options.encoder_options)
        fingerprint = plain_fingerprint(joined_encoder, self.options.device)
        check_fingerprint(self.model, joined_encoder.name, fingerprint)

    def _select(self, result: IndexResult) -> list[IndexedRecording]:
        """Return the recordings of this run: not those that are gone or that failed now."""
        follow_links = self.options.follow_links
        library = find_recordings(self.recordings, follow_links=follow_links)
        rejected = {reject.file for reject in result.rejects}
        readable_paths = set(library.paths) - rejected
        scanned = [
            recording
            for recording in result.index.recordings
            if recording.path in readable_paths
        ]
        if not scanned:
            reason = result.rejects[0].reason
            raise InputError(
                f"{self.recordings}: no recording could be scanned (the first: {reason})"
            )
        return scanned


NO_LABELS = (
    "thresholds come from recordings without labels, so there can be several times more false "
    "alarms than --false-alarms allows; with learn --background FOLDER (recordings without calls) "
    "they are closer to this limit"
)


@dataclass(frozen=True)
class AdaptedModel:
    """A model for what is scanned, background to find thresholds, and notes."""

    model: Model
    background: Background | None
    notes: tuple[str, ...] = ()

    def changed_from(self, model: Model) -> Model | None:
        """Return the model with this background, None if that is the given model."""
        if self.model is model and self.background is model.background:
            return None
        return replace(self.model, background=self.background)


def adapt_model(
    model: Model, source: ScanSource, mode: str, indexing: IndexingOptions
) -> AdaptedModel:
    """Mix examples into background of what is scanned, and take thresholds from there.

    `mode` is the option `adapt` of a scan. With "auto", only for models without background: their
    examples are clips, from elsewhere.
    """
    background = model.background
    has_background = background is not None and len(background.vectors) > 0
    if mode == "none" or (mode == "auto" and has_background):
        return AdaptedModel(model, background)
    index = replace(source.index, recordings=tuple(source.recordings))
    background = sample_index(index)
    if background is None:
        note = (
            f"{count_text(len(index), 'window')}: too few to find background without labels; "
            "the model is used as it is"
        )
        return AdaptedModel(model, model.background, (note,))
    files = [
        BackgroundFile(to_path(recording.root), recording.path)
        for recording in source.recordings
    ]
    try:
        mixed = _mix_examples(model, files, indexing)
    except InputError as error:
        note = f"the examples are used as they are: {error}"
        return AdaptedModel(model, background, (note, NO_LABELS))
    note = (
        f"{count_text(len(mixed.examples), 'example')} mixed into background of these recordings; "
        "--adapt none uses them as they are"
    )
    return AdaptedModel(mixed, background, (note, NO_LABELS))


def _mix_examples(
    model: Model, files: list[BackgroundFile], indexing: IndexingOptions
) -> Model:
    spec = find_spec(indexing.encoder or model.encoder, indexing.encoder_options)
    grid = find_grid(spec, model.settings)
    with WindowEncoder(
        spec, device=indexing.device, threads=indexing.threads
    ) as encoder:
        return adapt_examples(model, files, spec, grid, encoder)


DIGITS = 6  # of times: microseconds


@dataclass(frozen=True, eq=False)
class ScanResult:
    """What was found.

    events      a frame with the columns of EVENTS
    detector    classes, thresholds, and what these were found from
    index       the windows that were scanned
    recordings  those of the index that were scanned
    windows, active
                how many windows were scanned, and how many had a call
    rejects     recordings that could not be read, and why
    notes       what is unusual about recordings
    adapted_model
                the model as it was used, if examples or background are not those of `model`
    """

    model: Model
    options: ScanOptions
    events: Frame
    detector: Detector
    index: Index
    recordings: Sequence[IndexedRecording]
    windows: int
    active: int
    rejects: Sequence[Reject]
    notes: Sequence[str]
    adapted_model: Model | None = None

    @property
    def hours(self) -> float:
        """The length of all recordings that were scanned."""
        return sum(recording.duration_s for recording in self.recordings) / 3600

    @property
    def per_class(self) -> Frame:
        """A row for each class: label, threshold, events, events_per_hour."""
        counts = dict(self.events["label"].value_counts().iter_rows())
        classes = self.detector.classes
        events = [counts.get(name, 0) for name in classes]
        hours = max(self.hours, 1e-9)
        return pl.DataFrame(
            {
                "label": list(classes),
                "threshold": self.detector.thresholds,
                "events": events,
                "events_per_hour": [count / hours for count in events],
            }
        )


def scan(
    model: Path | str | Model,
    recordings: Path | str | Index,
    index: Path | str | None = None,
    *,
    false_alarms: float = 1.0,
    gap_s: float = 0.0,
    hop_s: float | None = None,
    adapt: str = "auto",
    encoder: str | None = None,
    encoder_options: Mapping[str, object] | None = None,
    follow_links: bool = False,
    device: str = "cpu",
    threads: int | None = None,
    cluster: Cluster | None = None,
    progress: Progress = no_progress,
) -> ScanResult:
    """Find calls in recordings of any length with a model.

    Every window gets a score for each class. Its best class counts if the score reaches the
    threshold of that class; otherwise the window is none of the classes. Neighbouring windows with
    a call become one event, named by the strongest of them.

    Parameters
    ----------
    model : path or Model
        The model that `learn` made, or the file that it was written to.
    recordings : path or Index
        Folder of the recordings, one recording, or an index of them.
    index : path, optional
        Folder in which the windows of recordings are stored; needed unless `recordings` is an
        index. What it has is not embedded again.
    false_alarms : float
        Aim for each class, per hour, by which thresholds are chosen.
    gap_s : float
        Pauses up to this, in seconds, do not end an event.
    hop_s : float, optional
        Seconds from the start of one window to the next; by default as the encoder has it,
        otherwise the window. With overlapping windows the edges of events are more precise.
    adapt : str
        "auto": examples that are clips, without recordings around them, are mixed into background
        of what is scanned, and thresholds come from there; "always": all examples; "none".
    encoder, encoder_options
        Where the model cannot find its encoder by name, as with `onnx:PATH`.
    follow_links, device, threads, cluster, progress
        As in `index_recordings`.

    Returns
    -------
    ScanResult
        `.events`, `.per_class`, `.hours`, `.rejects`, `.notes`, `.detector`, `.index`.

    Raises
    ------
    InputError
        If no recording can be scanned, or if the index does not suit the model.
    OptionError
        If an option is out of its range.

    Examples
    --------
    >>> import soundfile, tempfile
    >>> from callshot import learn
    >>> folder = Path(tempfile.mkdtemp())
    >>> noise = np.random.default_rng(0).normal(0, 0.01, 160000)
    >>> noise[32000:40000] += np.sin(np.arange(8000) / 9)
    >>> noise[96000:104000] += np.sin(np.arange(8000) / 9)
    >>> soundfile.write(folder / "a.wav", noise, 16000)
    >>> _ = (folder / "a.txt").write_text("2.0\\t2.5\\trumble\\n6.0\\t6.5\\trumble\\n")
    >>> model = learn(folder, "mfcc", store=folder / "store").model
    >>> result = scan(model, folder, folder / "index", hop_s=0.25)
    >>> result.events["label"].unique().to_list()
    ['rumble']
    """
    learned = model if isinstance(model, Model) else load_model(model)
    options = ScanOptions(false_alarms, gap_s, hop_s, adapt)
    indexing = IndexingOptions(
        encoder, format_options(encoder_options), follow_links, device, threads, cluster
    )
    return scan_recordings(learned, recordings, index, options, indexing, progress)


def scan_recordings(
    model: Model,
    recordings: Path | str | Index,
    index: Path | str | None,
    options: ScanOptions,
    indexing: IndexingOptions,
    progress: Progress = no_progress,
) -> ScanResult:
    """Find calls in recordings or in an index of them; see `scan`."""
    check_scannable(model)
    check_aim(options.false_alarms)
    source = open_source(model, recordings, index, options, indexing, progress)
    adapted = adapt_model(model, source, options.adapt, indexing)
    aim = find_window_aim(options.false_alarms, source.index, adapted.background)
    detector = make_detector(adapted.model, adapted.background, aim)
    run = _ScanRun(source, detector, _make_spacing(model, source.index, options))
    run.scan_all(indexing, progress)
    return run.make_result(model, options, adapted)


def find_window_aim(
    false_alarms: float, index: Index, background: Background | None
) -> float:
    """Return how many windows per hour may be false alarms, as background counts windows.

    Where windows of an index follow each other faster than those of the background, there are more
    of them in an hour, and each must be a false alarm less often.
    """
    if background is None:
        return false_alarms
    return false_alarms * min(1.0, index.settings.hop_s / background.hop_s)


def _make_spacing(model: Model, index: Index, options: ScanOptions) -> Spacing:
    settings = index.settings
    lengths_s = median_lengths(model)
    return Spacing(settings.window_s, settings.hop_s, lengths_s, options.gap_s)


def median_lengths(model: Model) -> FloatArray:
    """Return the median length of the examples of each class, in seconds."""
    lengths_s = model.examples.durations_s
    classes = range(len(model.classes))
    medians_s = [np.median(lengths_s[model.label == number]) for number in classes]
    return np.array(medians_s)


@dataclass
class _ScanRun:
    """The recordings of a scan, and what was found in them so far."""

    source: ScanSource
    detector: Detector
    spacing: Spacing
    rows: list[Row] = field(default_factory=list)
    scanned: list[IndexedRecording] = field(default_factory=list)
    rejects: list[Reject] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    windows: int = 0
    active: int = 0

    def scan_all(self, indexing: IndexingOptions, progress: Progress) -> None:
        """Find the events of all recordings; one that cannot be read is a reject."""
        source = self.source
        report = _make_report(source, progress)
        scanned = (source.index, source.recordings, self.detector)
        if indexing.cluster is None:
            active_windows = find_active_windows(*scanned, threads=indexing.threads)
        else:
            active_windows = find_on_cluster(indexing.cluster, *scanned)
        for recording, windows in active_windows:
            if isinstance(windows, InputError):
                self.rejects.append(Reject(recording.path, None, str(windows)))
            else:
                self._add(recording, windows)
            report(recording.duration_s)
        if not self.scanned:
            raise InputError(
                f"{source.index.folder}: no recording could be scanned "
                f"(the first: {self.rejects[0].reason})"
            )

    def make_result(
        self, model: Model, options: ScanOptions, adapted: AdaptedModel
    ) -> ScanResult:
        """Return what was found with a model, and the model as it was adapted."""
        return ScanResult(
            model=model,
            options=options,
            events=events_frame(self.rows),
            detector=self.detector,
            index=self.source.index,
            recordings=self.scanned,
            windows=self.windows,
            active=self.active,
            rejects=[*self.source.rejects, *self.rejects],
            notes=[*self.source.notes, *adapted.notes, *group_notes(self.notes)],
            adapted_model=adapted.changed_from(model),
        )

    def _add(self, recording: IndexedRecording, windows: ActiveWindows) -> None:
        self.scanned.append(recording)
        self.windows += windows.scanned
        self.active += len(windows)
        if windows.silent == windows.scanned:
            self.notes.append(f"{recording.path}: silent from start to end")
        for event in merge_windows(windows, self.spacing, recording.duration_s):
            row = _make_row(event, recording, windows, self.detector.classes)
            self.rows.append(row)


def _make_report(source: ScanSource, progress: Progress) -> Callable[[float], None]:
    """Return a function that reports progress when some seconds of audio are scanned."""
    total_s = sum(recording.duration_s for recording in source.recordings)
    start_s = time.monotonic()
    done_s = 0.0

    def report(audio_s: float) -> None:
        nonlocal done_s
        done_s += audio_s
        speed = done_s / max(time.monotonic() - start_s, 1e-3)
        share = audio_s / total_s * source.share
        progress(share, f"scanning: {speed:,.0f} h of audio per hour")

    return report


def _make_row(
    event: Event,
    recording: IndexedRecording,
    windows: ActiveWindows,
    classes: Sequence[str],
) -> Row:
    """Return an event by the names of its columns."""
    strongest = event.strongest
    start_s = round(event.start_s, DIGITS)
    row: Row = {
        "recording": recording.path,
        "start_s": start_s,
        "end_s": round(event.end_s, DIGITS),
        "label": classes[windows.label[strongest]],
        "score": float(windows.score[strongest]),
        "distance": float(windows.distance[strongest]),
        "clock": shift_clock(recording.clock, start_s),
    }
    runner_up = int(windows.runner_up[strongest])
    if runner_up >= 0:
        row["runner_up"] = classes[runner_up]
        row["runner_up_score"] = float(windows.runner_up_score[strongest])
    return row
