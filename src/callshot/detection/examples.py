"""Labelled examples in files → calls: their places, how their audio is cut, and the files.

Embed labelled calls: one vector per call, and a reject for each call that has none.

Calls of a table of segments are embedded as they were cut. Calls in recordings are embedded in
windows of the recording, as an index has them (`AudioSettings.source`). A call that fits into a
window gets one, with the call in its middle and the recording around it; at the ends of a recording
it is moved inside. A longer call gets windows side by side, all inside the call, which overlap as
little as possible. Nothing is padded, unless the recording is shorter than a window.

Recordings → the vectors of windows without calls: of examples' recordings, or of a folder.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from callshot.corpus.annotations import AnnotationOptions
from callshot.corpus.audio import load_audio, probe
from callshot.corpus.options import SegmentationOptions
from callshot.corpus.recordings import find_recordings, probe_recordings
from callshot.corpus.segment_table import describe_inputs, read_segments
from callshot.corpus.segments import check_any_segments, segment_corpus
from callshot.detection.background import (
    ANNOTATED,
    MAX_WINDOWS,
    UNLABELLED,
    WITHOUT_CALLS,
    Background,
    BackgroundRecording,
    Span,
    Windows,
    find_kept,
    select_windows,
)
from callshot.detection.index.clock import find_place
from callshot.detection.index.windows import WindowGrid, make_grid
from callshot.detection.model import RECORDING, SEGMENT, AudioSettings, Vectors
from callshot.encoders.embed import (
    EmbedOptions,
    check_rates,
    default_store,
    default_threads,
    embed_spans,
)
from callshot.encoders.encode import open_encoder
from callshot.encoders.joined_encoder import JoinedEncoder
from callshot.encoders.spec import EncoderSpec
from callshot.encoders.store import open_store
from callshot.errors import InputError, OptionError, count_text
from callshot.files import explain_unreadable, sha256_file
from callshot.records import (
    FloatArray,
    IntArray,
    Progress,
    Recording,
    Reject,
    Segmentation,
    no_progress,
    scale_progress,
)
from callshot.spans import Row, Spans
from callshot.storage import know_files, to_path

TABLE_SUFFIX = ".parquet"
AUTO = "auto"
NONE = "none"
WINDOWS_S = (0.01, 3600.0)
Inputs = tuple[tuple[str, str, str], ...]


@dataclass(frozen=True)
class LearningOptions:
    """How annotations and audio are read; None means that of the model that is added to.

    annotations, format, annotation_options  as in `callshot segment`
    window_s                    for encoders without a window; by default the median of the calls
    channel                     "first", "mean", or the number of a channel
    source_rate_hz              true rate of time-expanded recordings
    background                  "auto": windows of annotated recordings that no annotation touches;
                                "none"; or a folder of recordings without calls
    site                        recordings in whose background examples are mixed
    """

    annotations: Path | None = None
    format: str = "auto"
    annotation_options: AnnotationOptions | None = None
    window_s: float | None = None
    channel: str | None = None
    source_rate_hz: float | None = None
    background: str = AUTO
    site: Path | None = None

    def __post_init__(self) -> None:
        shortest, longest = WINDOWS_S
        if self.window_s is not None and not shortest <= self.window_s <= longest:
            raise OptionError(
                f"window: expected {shortest:g} to {longest:g} s, got {self.window_s}"
            )

    def on_top_of(self, settings: AudioSettings) -> "LearningOptions":
        """Return the options, with the settings of a model where none is given."""
        if settings.source == SEGMENT:
            return self
        names = ("window_s", "source_rate_hz")
        inherited = {name: getattr(settings, name) for name in names}
        inherited["channel"] = settings.channel_rule
        values = {name: getattr(self, name) for name in inherited}
        changes = {name: value for name, value in values.items() if value is not None}
        return replace(self, **inherited | changes)


@dataclass(frozen=True)
class Calls:
    """Labelled calls, how their audio is cut, and the files that they come from.

    `segmentation` has all annotations, also those that are no examples; None for a table.
    """

    spans: Spans
    settings: AudioSettings
    rejects: Sequence[Reject]
    inputs: Inputs
    segmentation: Segmentation | None = None


def read_calls(examples: Path, options: LearningOptions) -> Calls:
    """Read the examples of recordings with annotations, of a folder per label, or of a table."""
    if examples.suffix == TABLE_SUFFIX:
        return _read_table(examples, options)
    segmentation = SegmentationOptions(
        min_length_s=0.0,
        channel=options.channel or "first",
        source_rate_hz=options.source_rate_hz,
    )
    result = segment_corpus(
        examples,
        options.annotations,
        options=segmentation,
        format=options.format,
        annotation_options=options.annotation_options,
        check=False,
    )
    check_any_segments(result)
    settings = AudioSettings(
        channel_rule=segmentation.channel, source_rate_hz=options.source_rate_hz
    )
    rejects = [*result.rejects, *result.skipped_files]
    paths = {*result.segments.paths, *result.annotated}
    root = know_files(to_path(result.audio), sorted(paths))
    spans = replace(result.segments, root=root, source=str(examples))
    return Calls(spans, settings, rejects, _input_files(result, root), result)


def _input_files(segmentation: Segmentation, root: Path) -> Inputs:
    entries = describe_inputs(segmentation, root=root)
    return tuple(
        sorted((entry["role"], entry["file"], entry["sha256"]) for entry in entries)
    )


def _read_table(path: Path, options: LearningOptions) -> Calls:
    """Read the calls of a table of segments, which are embedded as they were cut."""
    unused_options: dict[str, object] = {
        "--annotations": options.annotations,
        "--window": options.window_s,
        "--channel": options.channel,
        "--source-rate-hz": options.source_rate_hz,
    }
    for name, value in unused_options.items():
        if value is not None:
            raise OptionError(
                f"{name}: {path} is a table of segments, for which this option has no effect; "
                f"remove {name}"
            )
    spans = read_call_table(path)
    with explain_unreadable(path):
        inputs = (("segments", path.name, sha256_file(path)),)
    return Calls(spans, segment_settings(spans), (), inputs)


def read_call_table(path: Path, root: Path | None = None) -> Spans:
    """Read a table of segments; `root` is the folder of the recordings, if it has moved."""
    table = read_segments(path)
    if not table:
        raise InputError(f"{path}: the table has no segments")
    if root is None and "audio" not in table.metadata:
        raise OptionError(f"audio: {path} does not name the folder of the recordings")
    folder = table.root if root is None else root
    return replace(table, root=know_files(folder, table.paths))


def segment_settings(spans: Spans) -> AudioSettings:
    """Return how the segments of a table were cut, which must be the same for all of them."""
    settings = [_cut_settings(row) for row in spans.rows()]
    for row, other in enumerate(settings, start=1):
        if other != settings[0]:
            raise InputError(
                f"{spans.source}: row {row}: expected segments cut as in row 1, got another "
                "rate_hz, collar_s, peak_dbfs, channel_rule or source_rate_hz"
            )
    return settings[0]


def _cut_settings(call: Row) -> AudioSettings:
    return AudioSettings(
        source=SEGMENT,
        window_s=None,
        channel_rule=call["channel_rule"],
        source_rate_hz=call["source_rate_hz"],
        rate_hz=call["rate_hz"],
        collar_s=call["collar_s"],
        peak_dbfs=call["peak_dbfs"],
    )


Headers = dict[str, Recording]
Errors = dict[int, InputError]
"""By the row of the call."""

ROUNDING_S = 1e-9
MIN_RATE_HZ = 10
HEARD_SHARE = 0.75  # of the highest frequency of an encoder that recordings should hold
OWNER = "call_row"  # a column of windows: the row of their call


@dataclass(frozen=True)
class EmbeddedCalls:
    """The calls that have a vector, the vectors, the other calls, and notes on recordings.

    The column `windows` of `calls` is the number of windows that a vector is the mean of.
    """

    calls: Spans
    vectors: Vectors
    rejects: Sequence[Reject]
    notes: Sequence[str]


def check_unscaled(joined_encoder: JoinedEncoder) -> None:
    """Raise OptionError for joined encoders of different units, whose scale depends on a split."""
    if joined_encoder.scaled_dimensions:
        raise OptionError(
            f"{joined_encoder.name}: a model does not scale joined encoders; use one encoder, or "
            "--set scale=none to concatenate their vectors as they are"
        )


def embed_calls(
    calls: Spans,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    options: EmbedOptions,
    *,
    refuse_silence: bool = False,
    progress: Progress = no_progress,
) -> EmbeddedCalls:
    """Return the vector of each call; long calls get the mean of their windows."""
    check_unscaled(joined_encoder)
    headers, errors = read_headers(calls, settings)
    if refuse_silence:
        errors |= find_silence(calls, settings, headers)
    columns = []
    windows = np.zeros(len(calls), np.int64)
    spec_progress = scale_progress(progress, 1 / len(joined_encoder.specs))
    for spec in joined_encoder.specs:
        device = joined_encoder.device(spec, options.device)
        pieces = _cut_pieces(calls, headers, errors, spec, settings)
        if settings.source != SEGMENT:  # windows are cut at the speed already
            spec = replace(spec, speed=1.0)
        rows, vectors, rejects = embed_pieces(
            pieces, spec, replace(options, device=device), spec_progress
        )
        owner = np.array(pieces[OWNER], np.int64)
        for reject in rejects:
            assert reject.row is not None  # it is a piece, not a file
            errors.setdefault(int(owner[reject.row - 1]), InputError(reject.reason))
        columns.append(_average(vectors, owner[rows], len(calls)))
        windows = np.maximum(windows, np.bincount(owner, minlength=len(calls)))
    paths = calls.paths
    rejects = [Reject(paths[row], row + 1, str(errors[row])) for row in sorted(errors)]
    keep = [row for row in range(len(calls)) if row not in errors]
    if not keep:
        raise InputError(
            f"{calls.source}: no call could be embedded (the first: {rejects[0].reason})"
        )
    kept = calls.take(keep).with_columns(windows=windows[keep])
    notes: list[str] = []
    if settings.source != SEGMENT:
        recordings = [headers[path] for path in sorted(set(kept.paths))]
        for spec in joined_encoder.specs:
            notes += describe_recordings(recordings, spec, settings)
    return EmbeddedCalls(kept, np.concatenate(columns, axis=1)[keep], rejects, notes)


def _average(vectors: Vectors, owner: IntArray, count: int) -> Vectors:
    """Return the mean of the vectors of each call, in float64; zeros where there is none."""
    sums = np.zeros((count, vectors.shape[1]))
    np.add.at(sums, owner, vectors)
    counts = np.bincount(owner, minlength=count)
    return (sums / np.maximum(counts, 1)[:, None]).astype(np.float32)


def _cut_pieces(
    calls: Spans,
    headers: Headers,
    errors: Errors,
    spec: EncoderSpec,
    settings: AudioSettings,
) -> Spans:
    """Return the pieces of all calls without an error: whole segments, or windows."""
    rows = [row for row in range(len(calls)) if row not in errors]
    readable = calls.take(rows).with_columns(**{OWNER: np.array(rows, np.int64)})
    if settings.source == SEGMENT:
        return readable
    return cut_windows(readable, headers, find_grid(spec, settings), settings)


def cut_windows(
    calls: Spans, headers: Headers, grid: WindowGrid, settings: AudioSettings
) -> Spans:
    """Return the windows of calls as spans of recordings at the encoder's speed.

    Their times are those at that speed, in whole samples, so that they are resampled once.
    """
    rows = []
    for call in read_as(calls, grid.rate_hz, settings).rows():
        recording = headers[call["path"]]
        duration_s = recording.duration_s
        last_start = max(0, grid.to_samples(duration_s) - grid.window)
        call["source_rate_hz"] = recording.rate_hz * grid.speed
        for start_s in place_windows(
            call["start_s"], call["end_s"], grid.window_s, duration_s
        ):
            start = min(grid.to_samples(start_s), last_start)
            times = {
                "start_s": start / grid.rate_hz,
                "end_s": (start + grid.window) / grid.rate_hz,
            }
            rows.append(call | times)
    return Spans.from_rows(
        rows, calls.frame.columns, root=calls.root, source=calls.source
    )


def place_windows(
    start_s: float, end_s: float, window_s: float, duration_s: float
) -> list[float]:
    """Return where the windows of a call begin, in seconds.

    >>> place_windows(4.0, 5.0, window_s=3.0, duration_s=60.0)
    [3.0]
    >>> place_windows(0.5, 1.0, window_s=3.0, duration_s=60.0)
    [0.0]
    >>> place_windows(10.0, 17.0, window_s=3.0, duration_s=60.0)
    [10.0, 12.0, 14.0]
    """
    length_s = end_s - start_s
    last_start_s = max(0.0, duration_s - window_s)
    if length_s <= window_s + ROUNDING_S:
        centred_s = (start_s + end_s - window_s) / 2
        starts_s = np.array([centred_s])
    else:
        count = math.ceil((length_s - ROUNDING_S) / window_s)
        starts_s = np.linspace(start_s, end_s - window_s, count)
    inside_s: list[float] = np.clip(starts_s, 0.0, last_start_s).tolist()
    return inside_s


def find_grid(spec: EncoderSpec, settings: AudioSettings) -> WindowGrid:
    """Return the windows of an encoder: its own, or those of the settings."""
    if spec.windowing is None:
        return make_grid(spec, settings.window_s)
    return make_grid(spec)


def read_as(
    calls: Spans, rate_hz: int | Sequence[int], settings: AudioSettings
) -> Spans:
    """Return calls that are read at a rate, without a collar, at the level of the recording."""
    return calls.with_columns(
        collar_s=0.0,
        rate_hz=rate_hz,
        channel_rule=settings.channel_rule,
        peak_dbfs=None,
        source_rate_hz=settings.source_rate_hz,
    )


def default_window_s(calls: Spans) -> float:
    """Return the length of a window for encoders without one: the median length of calls.

    It is rounded to 0.01 s, and at least that.
    """
    return max(0.01, round(float(np.median(calls.durations_s)), 2))


def embed_pieces(
    pieces: Spans, spec: EncoderSpec, options: EmbedOptions, progress: Progress
) -> tuple[list[int], Vectors, list[Reject]]:
    """Return which pieces have a vector, the vectors, and a reject for each other piece."""
    check_rates(spec, pieces)
    threads = options.threads or default_threads()
    encoder = open_encoder(spec, device=options.device, threads=threads)
    folder = default_store() if options.store is None else options.store
    with open_store(folder, encoder.fingerprint, sequences=False) as store:
        keys, rejects = embed_spans(pieces, encoder, store, progress)
        stored_keys = [key for key in keys if key is not None]
        vectors = np.zeros((0, spec.dimension), np.float32)
        if stored_keys:
            vectors = store.vectors(stored_keys)
    rows = [row for row, key in enumerate(keys) if key is not None]
    return rows, vectors, rejects


def read_headers(calls: Spans, settings: AudioSettings) -> tuple[Headers, Errors]:
    """Read the header of each recording once; return headers, and errors by row of call."""
    headers: Headers = {}
    failed: dict[str, InputError] = {}
    for path in dict.fromkeys(calls.paths):
        try:
            headers[path] = probe(calls.root / path, path, settings.source_rate_hz)
        except InputError as error:
            failed[path] = error
    errors = {}
    for row, path in enumerate(calls.paths):
        if path in failed:
            errors[row] = failed[path]
    return headers, errors


def find_silence(calls: Spans, settings: AudioSettings, headers: Headers) -> Errors:
    """Return an error for each call without any sound, and for each that cannot be read."""
    rows = [row for row, path in enumerate(calls.paths) if path in headers]
    readable = calls.take(rows)
    rates_hz = [
        max(MIN_RATE_HZ, round(headers[path].rate_hz)) for path in readable.paths
    ]
    spans = read_as(readable, rates_hz, settings)
    errors: Errors = {}
    for n, signal in load_audio(spans):
        if isinstance(signal, InputError):
            errors[rows[n]] = signal
        elif signal.min() == signal.max():
            call = spans.frame.row(n, named=True)
            errors[rows[n]] = InputError(
                f"{spans.paths[n]}: silent from {call['start_s']:.2f} to {call['end_s']:.2f} s; "
                "correct the times, or leave the example out"
            )
    return errors


def describe_recordings(
    recordings: Sequence[Recording], spec: EncoderSpec, settings: AudioSettings
) -> Iterator[str]:
    """Yield notes on recordings: wrong headers, shorter than a window, part of the band missing."""
    for recording in recordings:
        if note := recording.describe_length():
            yield f"{recording.path}: {note}"
    window_s = find_grid(spec, settings).window_s
    short = [recording for recording in recordings if recording.duration_s < window_s]
    if short:
        treatment = "used whole" if spec.windowing is None else "padded"
        yield (
            f"{count_text(len(short), 'recording')} shorter than the window of {window_s:.3g} s "
            f"of {spec.name} (first: {short[0].path}): {treatment}"
        )
    if spec.band_hz is None:
        return
    low_hz, high_hz = spec.band_hz
    needed_hz = HEARD_SHARE * high_hz / spec.speed
    narrow = [
        recording for recording in recordings if recording.rate_hz / 2 < needed_hz
    ]
    if narrow:
        rate_hz = narrow[0].rate_hz
        yield (
            f"{count_text(len(narrow), 'recording')} with nothing above {rate_hz / 2:g} Hz, as "
            f"sampled at {rate_hz:g} Hz "
            f"(first: {narrow[0].path}); {spec.name} uses {low_hz / spec.speed:g} to "
            f"{high_hz / spec.speed:g} Hz"
        )


@dataclass(frozen=True)
class BackgroundAudio:
    """Recordings with the windows that may be background, and the folder they are in."""

    root: Path
    recordings: Sequence[Recording]
    descriptions: Sequence[BackgroundRecording]

    @property
    def windows(self) -> int:
        """About how many windows are embedded."""
        return min(
            sum(description.windows for description in self.descriptions), MAX_WINDOWS
        )


def read_background(
    calls: Calls,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    options: LearningOptions,
) -> BackgroundAudio | None:
    """Return the recordings that options ask for; None where windows of them have no use.

    That is so for segments as they were cut, and for joined encoders: neither is scanned.
    """
    can_scan = settings.source == RECORDING and len(joined_encoder.specs) == 1
    if options.background == NONE or not can_scan:
        return None
    grid = find_grid(joined_encoder.specs[0], settings)
    if options.background != AUTO:
        folder = to_path(options.background)
        return read_folder(folder, grid, settings, WITHOUT_CALLS)
    if options.site is not None:
        return read_folder(options.site, grid, settings, UNLABELLED)
    if calls.segmentation is None:
        return None
    checksums = {file: sha256 for _, file, sha256 in calls.inputs}
    return read_annotated(calls.segmentation, calls.spans.root, grid, checksums)


def read_annotated(
    segmentation: Segmentation,
    root: Path,
    grid: WindowGrid,
    checksums: Mapping[str, str],
) -> BackgroundAudio:
    """Return the annotated recordings, with all annotations on them.

    `checksums` are sha256 by path, as far as they are known.
    """
    calls_s: dict[str, set[Span]] = {path: set() for path in segmentation.annotated}
    for path, *span in segmentation.calls.frame.select(
        "path", "start_s", "end_s"
    ).iter_rows():
        calls_s.setdefault(path, set()).add((span[0], span[1]))
    recordings = [
        recording for recording in segmentation.recordings if recording.path in calls_s
    ]
    descriptions = []
    for recording in recordings:
        spans = tuple(sorted(calls_s[recording.path]))
        sha256 = checksums.get(recording.path) or _find_checksum(root / recording.path)
        windows = len(_find_starts(recording, grid))
        place = find_place(recording.path)
        descriptions.append(
            BackgroundRecording(sha256, windows, spans, ANNOTATED, place)
        )
    return BackgroundAudio(root, recordings, descriptions)


def read_folder(
    folder: Path, grid: WindowGrid, settings: AudioSettings, origin: str
) -> BackgroundAudio:
    """Return the recordings of a folder, without calls or without labels."""
    library = find_recordings(folder)
    readable, errors = probe_recordings(library, settings.source_rate_hz, no_progress)
    recordings = list(readable.values())
    if not recordings:
        reason = next(iter(errors.values()), "no recordings in this folder")
        raise InputError(f"background: {folder}: {reason}")
    descriptions = []
    for recording in recordings:
        sha256 = _find_checksum(library.root / recording.path)
        windows = len(_find_starts(recording, grid))
        place = find_place(recording.path)
        descriptions.append(BackgroundRecording(sha256, windows, (), origin, place))
    return BackgroundAudio(library.root, recordings, descriptions)


def _find_checksum(path: Path) -> str:
    with explain_unreadable(path):
        return sha256_file(path)


def _find_starts(recording: Recording, grid: WindowGrid) -> FloatArray:
    """Return the starts of whole windows in seconds; none if a recording is shorter than one."""
    samples = grid.to_samples(recording.duration_s)
    last_start = samples - grid.window
    starts = np.arange(0, last_start + 1, grid.hop)
    return grid.to_seconds(starts)


def embed_background(
    audio: BackgroundAudio,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    options: EmbedOptions,
    progress: Progress = no_progress,
) -> Background:
    """Embed windows without calls, a sample of them if there are many.

    Windows that cannot be read are left out: an example from there is a reject already.
    """
    spec = joined_encoder.specs[0]
    options = replace(options, device=joined_encoder.device(spec, options.device))
    grid = find_grid(spec, settings)
    spans, keys = _cut_windows(audio, grid, settings)
    windows: Windows = {}
    if len(spans) > 0:
        plain_spec = replace(spec, speed=1.0)  # windows are cut at the speed already
        rows, vectors, _ = embed_pieces(spans, plain_spec, options, progress)
        windows = {keys[row]: vector for row, vector in zip(rows, vectors, strict=True)}
    return select_windows(
        sorted(audio.descriptions), windows, spec.dimension, grid.window_s, grid.hop_s
    )


def _cut_windows(
    audio: BackgroundAudio, grid: WindowGrid, settings: AudioSettings
) -> tuple[Spans, list[tuple[str, float]]]:
    """Return the windows that may be background, with the recording and start of each.

    They are spans of the recordings at the encoder's speed.
    """
    total = sum(description.windows for description in audio.descriptions)
    rows = []
    keys = []
    for recording, description in zip(
        audio.recordings, audio.descriptions, strict=True
    ):
        start_s = _find_starts(recording, grid)
        keep = find_kept(description, start_s, grid.window_s, total)
        for time_s in start_s[keep].tolist():
            start = grid.to_samples(time_s)
            row = {
                "recording": recording.path,
                "start_s": start / grid.rate_hz,
                "end_s": (start + grid.window) / grid.rate_hz,
                "source_rate_hz": recording.rate_hz * grid.speed,
            }
            rows.append(row)
            keys.append((description.sha256, time_s))
    spans = Spans.from_rows(rows, root=audio.root, source=str(audio.root))
    return spans.with_columns(
        rate_hz=grid.rate_hz, channel_rule=settings.channel_rule
    ), keys
