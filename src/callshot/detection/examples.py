"""Embed labelled calls in windows of their recordings, as an index has them.

A call that fits into a window is in its middle, with the recording around it; at the ends of a
recording the window is moved inside. A longer call gets windows side by side, all inside the call,
which overlap as little as possible. Nothing is padded, unless the recording is shorter than a
window. Calls of a table of segments are embedded as they were cut.

Calls from elsewhere can be mixed into background of other recordings first. Background without
labels is found as in `callshot.corpus.mixing`, in windows of the encoder.
"""

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import numpy as np
import polars as pl

from callshot.corpus.audio import load_audio, probe
from callshot.corpus.mixing import choose_quieter, distribute_spans, mix_example
from callshot.detection.background import UNLABELLED, Background, BackgroundRecording
from callshot.detection.index.index_files import Index
from callshot.detection.index.index_recordings import describe_recording, group_notes
from callshot.detection.index.windows import (
    SILENCE_DBFS,
    RecordingAtSpeed,
    WindowGrid,
    make_grid,
    measure_levels,
)
from callshot.detection.model import (
    MAX_CLIP_S,
    SEGMENT,
    AudioSettings,
    Model,
    describe_locations,
    from_pcm,
    to_pcm,
)
from callshot.encoders.embed import EmbedOptions, embed_rows
from callshot.encoders.joined_encoder import JoinedEncoder
from callshot.encoders.spec import EncoderSpec, read_at_speed
from callshot.encoders.windows import Float32Array
from callshot.encoders.workers import open_workers
from callshot.errors import InputError, OptionError, count_text
from callshot.records import (
    IntArray,
    Progress,
    Recording,
    Reject,
    no_progress,
    scale_progress,
)
from callshot.spans import Spans
from callshot.storage import to_path
from callshot.vectors import Vectors, concat_vectors

Headers = dict[str, Recording]
Errors = dict[int, str]  # by the row of the call

ROUNDING_S = 1e-9
MIN_RATE_HZ = 10
OWNER = "call_row"  # a column of windows: the row of their call


def embed_calls(
    calls: Spans,
    joined_encoder: JoinedEncoder,
    settings: AudioSettings,
    options: EmbedOptions,
    *,
    refuse_silence: bool = False,
    progress: Progress = no_progress,
) -> tuple[Vectors, list[Reject], list[str]]:
    """Embed calls; return their vectors, rejected calls, and notes on recordings.

    Long calls get the mean of their windows; the column `windows` is the number of these, the
    largest of all joined encoders. With `refuse_silence`, calls without any sound are rejects.
    """
    if joined_encoder.scaled_dimensions:  # whose scale depends on a split
        raise OptionError(
            f"{joined_encoder.name}: a model does not scale joined encoders; use one encoder, or "
            "--set scale=none to concatenate their vectors as they are"
        )
    headers, errors = read_headers(calls, settings)
    if refuse_silence:
        errors |= find_silence(calls, settings, headers)
    matrices = []  # (calls, dimensions) of each encoder
    windows = np.zeros(len(calls), np.int64)  # of each call
    spec_progress = scale_progress(progress, 1 / len(joined_encoder.specs))
    for spec in joined_encoder.specs:
        device = joined_encoder.device(spec, options.device)
        rows = [row for row in range(len(calls)) if row not in errors]
        matrix_of_spec, pieces_of_call, spec_errors = _embed_pieces(
            calls,
            rows,
            headers,
            spec,
            settings,
            replace(options, device=device),
            spec_progress,
        )
        matrices.append(matrix_of_spec)
        windows = np.maximum(windows, pieces_of_call)
        errors |= spec_errors
    paths = calls.paths
    failed = sorted(errors.items())
    rejects = [Reject(paths[row], row + 1, reason) for row, reason in failed]
    keep = [row for row in range(len(calls)) if row not in errors]
    if not keep:
        first = rejects[0].reason
        raise InputError(
            f"{calls.source}: no call could be embedded (the first: {first})"
        )
    kept = calls.take(keep).with_columns(windows=windows[keep])
    notes: list[str] = []
    if settings.source != SEGMENT:
        for spec in joined_encoder.specs:
            grid = find_grid(spec, settings)
            for path in sorted(set(kept.paths)):
                notes += describe_recording(headers[path], grid, spec)
    matrix = np.concatenate(matrices, axis=1)[keep]
    return Vectors(kept, matrix, joined_encoder.name), rejects, group_notes(notes)


def _embed_pieces(
    calls: Spans,
    rows: Sequence[int],
    headers: Headers,
    spec: EncoderSpec,
    settings: AudioSettings,
    options: EmbedOptions,
    progress: Progress,
) -> tuple[Float32Array, IntArray, Errors]:
    """Embed the calls in `rows` with one encoder: their windows, or the calls as they were cut.

    Return the mean vector of each call (calls, dimensions), 0 where it has none, the number of its
    pieces (calls,), and the errors.
    """
    pieces = calls.take(rows).with_columns(**{OWNER: np.array(rows, np.int64)})
    spec_of_pieces = spec
    if settings.source != SEGMENT:
        grid = find_grid(spec, settings)
        pieces = cut_windows(pieces, headers, grid, settings)
        spec_of_pieces = read_at_speed(spec)  # the windows are at that speed
    embedded, vectors, rejected_pieces = embed_rows(
        pieces, spec_of_pieces, options, progress=progress
    )
    call_of_piece = np.array(pieces[OWNER], np.int64)
    errors: Errors = {}
    for reject in rejected_pieces:
        assert reject.row is not None  # it is a piece, not a file
        call_row = int(call_of_piece[reject.row - 1])  # rejects count rows from 1
        errors.setdefault(call_row, reject.reason)
    means = average_by_call(vectors, call_of_piece[embedded], len(calls))
    pieces_of_call = np.bincount(call_of_piece, minlength=len(calls))
    return means, pieces_of_call, errors


def average_by_call(
    vectors: Float32Array, call_of_vector: IntArray, calls: int
) -> Float32Array:
    """Return the mean vector of each call, (calls, dimensions); 0 for calls without vectors."""
    sums = np.zeros((calls, vectors.shape[1]))
    np.add.at(sums, call_of_vector, vectors)
    counts = np.bincount(call_of_vector, minlength=calls)
    means = sums / np.maximum(counts, 1)[:, None]
    return means.astype(np.float32)


def cut_windows(
    calls: Spans, headers: Headers, grid: WindowGrid, settings: AudioSettings
) -> Spans:
    """Return the windows of calls as spans of recordings at the encoder's speed.

    Their times are in whole samples at that speed, so that they are resampled once.
    """
    rows = []
    for call in read_as(calls, grid.rate_hz, settings).rows():
        recording = headers[call["path"]]
        duration_s = recording.duration_s
        last_start = max(0, grid.to_samples(duration_s) - grid.window)
        # Read as if made at this rate, so that it is at the encoder's speed.
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
    """Return where the windows of a call begin in a recording of `duration_s`, in seconds.

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
    """Return the window length of an encoder, or of the settings if it has none, as a grid."""
    return make_grid(spec, settings.window_s if spec.windowing is None else None)


def read_as(
    calls: Spans, rate_hz: int | Sequence[int], settings: AudioSettings
) -> Spans:
    """Add columns that say how audio is read: rate, channel, no margin (collar), level kept."""
    return calls.with_columns(
        collar_s=0.0,
        rate_hz=rate_hz,
        channel_rule=settings.channel_rule,
        peak_dbfs=None,
        source_rate_hz=settings.source_rate_hz,
    )


def default_window_s(calls: Spans) -> float:
    """Return the median length of calls, to 0.01 s: the window of encoders that have none."""
    return max(0.01, round(float(np.median(calls.durations_s)), 2))


def read_headers(calls: Spans, settings: AudioSettings) -> tuple[Headers, Errors]:
    """Read the header of each recording once; return headers, and errors by row of call."""
    headers = {}
    failed = {}
    for path in dict.fromkeys(calls.paths):
        try:
            headers[path] = probe(calls.root / path, path, settings.source_rate_hz)
        except InputError as error:
            failed[path] = str(error)
    rows = enumerate(calls.paths)
    return headers, {row: failed[path] for row, path in rows if path in failed}


def find_silence(calls: Spans, settings: AudioSettings, headers: Headers) -> Errors:
    """Return an error for each call without any sound, and for each that cannot be read."""
    rows = [row for row, path in enumerate(calls.paths) if path in headers]
    readable = calls.take(rows)
    # At its own rate, a recording is not resampled.
    rates_hz = [
        max(MIN_RATE_HZ, round(headers[path].rate_hz)) for path in readable.paths
    ]
    spans = read_as(readable, rates_hz, settings)
    errors = {}
    for number, signal in load_audio(spans):
        if isinstance(signal, InputError):
            errors[rows[number]] = str(signal)
        elif signal.min() == signal.max():  # constant, so without sound
            call = spans.frame.row(number, named=True)
            errors[rows[number]] = (
                f"{spans.paths[number]}: silent from {call['start_s']:.2f} to "
                f"{call['end_s']:.2f} s; correct the times, or leave the example out"
            )
    return errors


# The folder of each recording, and its path in there
Files = Sequence[tuple[Path, str]]

NO_LABELS = (
    "thresholds come from recordings without labels, so there can be several times more false "
    "alarms than --false-alarms allows; with learn --background FOLDER (recordings without calls) "
    "they are closer to this limit"
)
MIN_WINDOWS = 100
MAX_WINDOWS = 4096  # of a scan, as background without labels


def read_clips(
    calls: Spans, spec: EncoderSpec, grid: WindowGrid, settings: AudioSettings
) -> Spans:
    """Return calls with the column `clip`: the bytes of their audio, as the encoder gets it.

    They are 16 bit samples at the rate of the grid (`to_pcm`), of a long call its middle; null if
    the audio cannot be read. The headers of all recordings must be readable, as they are after
    `embed_calls`.
    """
    headers, _ = read_headers(calls, settings)
    rows = []
    for call in read_as(calls, grid.rate_hz, settings).rows():
        # The middle of the call, as a span of the recording at the encoder's speed.
        call_s = call["end_s"] - call["start_s"]
        excess_s = max(0.0, call_s - MAX_CLIP_S)
        start = grid.to_samples(call["start_s"] + excess_s / 2)
        end = max(start + 1, grid.to_samples(call["end_s"] - excess_s / 2))
        call["start_s"] = start / grid.rate_hz
        call["end_s"] = end / grid.rate_hz
        call["source_rate_hz"] = headers[call["path"]].rate_hz * grid.speed
        rows.append(call)
    band_hz = read_at_speed(spec).band
    middles = Spans.from_rows(rows, root=calls.root)
    spans = middles.with_columns(passband_hz=band_hz)
    clips: list[bytes | None] = []
    for _, signal in load_audio(spans):
        if isinstance(signal, InputError):
            clips.append(None)
        else:
            clips.append(to_pcm(signal).tobytes())
    column = pl.Series("clip", clips, pl.Binary)
    return replace(calls, frame=calls.frame.with_columns(column))


def read_quiet_windows(
    files: Files, spec: EncoderSpec, grid: WindowGrid, channel: str
) -> list[Float32Array]:
    """Return the audio of windows of recordings: the quieter half of the audible ones.

    They are spread evenly over the recordings; what cannot be read is left out.
    """
    durations_s = []
    for root, path in files:
        duration_s = 0.0  # no windows are taken from what cannot be read
        with suppress(InputError):
            duration_s = probe(root / path, path).duration_s
        durations_s.append(duration_s)
    windows: list[Float32Array] = []
    # Pairs of the number of a recording and a start in seconds, in order of recordings.
    starts = distribute_spans(durations_s, grid.window_s)
    for number, starts_in_recording in groupby(starts, key=itemgetter(0)):
        root, path = files[number]
        with (
            suppress(InputError),
            RecordingAtSpeed(root / path, path, spec, channel) as audio,
        ):
            last_start = audio.samples - grid.window
            for _, start_s in starts_in_recording:
                start = max(0, min(grid.to_samples(start_s), last_start))
                windows.append(audio.read(start, start + grid.window))
    levels = measure_levels(windows)
    audible = np.flatnonzero(levels > SILENCE_DBFS)
    if len(audible) == 0:
        raise InputError(
            f"site: no window with a sound could be read from "
            f"{count_text(len(files), 'recording')}; the examples cannot be mixed into their "
            "background"
        )
    quieter = choose_quieter({int(number): levels[number] for number in audible})
    return [windows[number] for number in quieter]


def mix_examples(
    examples: Vectors,
    files: Files,
    spec: EncoderSpec,
    settings: AudioSettings,
    options: EmbedOptions,
) -> Vectors:
    """Return the examples that have audio, embedded in background of recordings.

    The vector of an example is the mean over the windows of all its mixtures.
    """
    grid = find_grid(spec, settings)
    quiet = read_quiet_windows(files, spec, grid, settings.channel_rule)
    has_clip = examples.spans.frame["clip"].is_not_null()
    mixed = examples.take(has_clip.arg_true().to_numpy())
    calls = zip(describe_locations(mixed.spans), mixed.spans["clip"], strict=True)
    vectors = []
    with open_workers(spec, device=options.device, threads=options.threads) as workers:
        for location, clip in calls:
            example = from_pcm(clip)
            windows: list[Float32Array] = []
            for signal in mix_example(example, quiet, location, grid.rate_hz):
                windows += split_call(signal, grid.window)
            wait = workers.submit_windows(windows)
            embedded = wait()
            vectors.append(embedded.mean(axis=0, dtype=np.float64))
    return replace(mixed, matrix=np.array(vectors, np.float32))


def split_call(signal: Float32Array, window: int) -> list[Float32Array]:
    """Return windows of a signal side by side, of `window` samples, that overlap least.

    >>> [part.tolist() for part in split_call(np.arange(5, dtype=np.float32), 3)]
    [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]]
    """
    count = math.ceil(len(signal) / window)
    starts = np.linspace(0, len(signal) - window, count).astype(int)
    return [signal[start : start + window] for start in starts]


def sample_index(index: Index) -> Background | None:
    """Return a sample of the windows of an index as background without labels.

    Return None if there are too few. Silent windows are left out.
    """
    step = math.ceil(len(index) / MAX_WINDOWS)  # the sample has every n-th window
    sampled = []
    for recording in index.recordings:
        first = 0  # window of the next block to take
        with suppress(InputError):  # which the scan reports
            for block in index.read_recording(recording, verify=False):
                rows = np.arange(first, len(block), step)
                levels = block.spans.frame["rms_dbfs"].to_numpy()[rows]
                is_silent = levels <= SILENCE_DBFS  # not where the level is NaN
                sampled.append(block.take(rows[~is_silent]))
                first = (first - len(block)) % step  # steps run on over blocks
    if sum(map(len, sampled)) < MIN_WINDOWS:
        return None
    windows = concat_vectors(sampled)
    # A path identifies a recording of an index, as its checksum would.
    recordings = tuple(
        BackgroundRecording(recording.path, recording.windows, origin=UNLABELLED)
        for recording in index.recordings
    )
    windows = replace(windows, matrix=windows.matrix.astype(np.float32))
    settings = index.settings
    return Background(recordings, windows, settings.window_s, settings.hop_s)


def adapt_model(
    model: Model,
    background: Background | None,
    index: Index,
    spec: EncoderSpec | None,
    embedding: EmbedOptions,
) -> tuple[Model, list[str]]:
    """Mix examples into background of what is scanned, and take thresholds from there.

    `background` is a sample of its windows, None if there are too few. Without an encoder there is
    no audio, and examples stay as they are. Return the adapted model, and notes.
    """
    if background is None:
        note = (
            f"{count_text(len(index), 'window')}: too few to find background without labels; "
            "the model is used as it is"
        )
        return model, [note]
    if spec is None:
        return replace(model, background=background), [NO_LABELS]
    recordings = index.recordings
    files = [(to_path(recording.root), recording.path) for recording in recordings]
    examples = model.examples
    try:
        if examples.spans.frame["clip"].is_null().all():
            raise InputError(
                f"{model.source}: has no audio of its examples, so they cannot be mixed into "
                "background; learn the model again, or use --adapt none"
            )
        examples = mix_examples(examples, files, spec, model.settings, embedding)
        note = (
            f"{count_text(len(examples), 'example')} mixed into background of these "
            "recordings; --adapt none uses them as they are"
        )
    except InputError as error:
        note = f"the examples are used as they are: {error}"
    adapted = replace(model, examples=examples, background=background)
    return adapted, [note, NO_LABELS]
