"""Embed labelled calls, and windows without calls, in windows of their recordings.

One vector per call, and a reject for each call that has none. Calls of a table of segments are
embedded as they were cut. Calls in recordings are embedded in windows of the recording, as an index
has them (`AudioSettings.source`). A call that fits into a window gets one, with the call in its
middle and the recording around it; at the ends of a recording it is moved inside. A longer call
gets windows side by side, all inside the call, which overlap as little as possible. Nothing is
padded, unless the recording is shorter than a window.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from callshot.corpus.audio import load_audio, probe
from callshot.detection.background import (
    Background,
    BackgroundRecording,
    make_windows,
    select_windows,
)
from callshot.detection.index.add_recording import describe_recording, group_notes
from callshot.detection.index.windows import WindowGrid, make_grid
from callshot.detection.model import SEGMENT, AudioSettings
from callshot.encoders.embed import EmbedOptions, embed_rows
from callshot.encoders.joined_encoder import JoinedEncoder
from callshot.encoders.spec import EncoderSpec
from callshot.errors import InputError, OptionError
from callshot.records import (
    Progress,
    Recording,
    Reject,
    no_progress,
    scale_progress,
)
from callshot.spans import Spans
from callshot.vectors import Vectors

Headers = dict[str, Recording]
Errors = dict[int, InputError]
"""By the row of the call."""

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
    """Return the vectors of calls, the calls without one, and notes on recordings.

    Long calls get the mean of their windows; the column `windows` is the number of these.
    """
    if joined_encoder.scaled_dimensions:  # whose scale depends on a split
        raise OptionError(
            f"{joined_encoder.name}: a model does not scale joined encoders; use one encoder, or "
            "--set scale=none to concatenate their vectors as they are"
        )
    headers, errors = read_headers(calls, settings)
    if refuse_silence:
        errors |= find_silence(calls, settings, headers)
    columns = []
    windows = np.zeros(len(calls), np.int64)
    spec_progress = scale_progress(progress, 1 / len(joined_encoder.specs))
    for spec in joined_encoder.specs:
        device = joined_encoder.device(spec, options.device)
        rows = [row for row in range(len(calls)) if row not in errors]
        owner = np.array(rows, np.int64)
        pieces = calls.take(rows).with_columns(**{OWNER: owner})
        if settings.source != SEGMENT:  # windows are cut at the speed already
            pieces = cut_windows(pieces, headers, find_grid(spec, settings), settings)
            spec = replace(spec, speed=1.0)
        rows, vectors, rejects = embed_rows(
            pieces, spec, replace(options, device=device), progress=spec_progress
        )
        owner = np.array(pieces[OWNER], np.int64)
        for reject in rejects:
            assert reject.row is not None  # it is a piece, not a file
            row = int(owner[reject.row - 1])
            errors.setdefault(row, InputError(reject.reason))
        sums = np.zeros((len(calls), vectors.shape[1]))
        np.add.at(sums, owner[rows], vectors)
        counts = np.bincount(owner[rows], minlength=len(calls))
        means = sums / np.maximum(counts, 1)[:, None]
        columns.append(means.astype(np.float32))
        windows = np.maximum(windows, np.bincount(owner, minlength=len(calls)))
    paths = calls.paths
    failed = sorted(errors.items())
    rejects = [Reject(paths[row], row + 1, str(error)) for row, error in failed]
    keep = [row for row in range(len(calls)) if row not in errors]
    if not keep:
        raise InputError(
            f"{calls.source}: no call could be embedded (the first: {rejects[0].reason})"
        )
    kept = calls.take(keep).with_columns(windows=windows[keep])
    notes: list[str] = []
    if settings.source != SEGMENT:
        for spec in joined_encoder.specs:
            grid = find_grid(spec, settings)
            for path in sorted(set(kept.paths)):
                notes += describe_recording(headers[path], grid, spec)
    matrix = np.concatenate(columns, axis=1)[keep]
    return Vectors(kept, matrix, joined_encoder.name), rejects, group_notes(notes)


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


def read_headers(calls: Spans, settings: AudioSettings) -> tuple[Headers, Errors]:
    """Read the header of each recording once; return headers, and errors by row of call."""
    headers = {}
    failed = {}
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
    errors = {}
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


def embed_background(
    recordings: Sequence[BackgroundRecording],
    windows: Spans,
    spec: EncoderSpec,
    settings: AudioSettings,
    options: EmbedOptions,
    progress: Progress = no_progress,
) -> Background:
    """Embed windows without calls, with the sha256 of their recording and the real `window_s`.

    Windows that cannot be read are left out: an example from there is a reject already.
    """
    plain_spec = replace(spec, speed=1.0)  # windows are cut at the speed already
    rows, vectors, _ = embed_rows(windows, plain_spec, options, progress=progress)
    grid = find_grid(spec, settings)
    kept = windows.frame[rows]
    start_s = kept["window_s"].cast(pl.Float64).to_numpy()  # null without any windows
    placed = make_windows(kept["sha256"].to_list(), start_s, grid.window_s, vectors)
    return select_windows(sorted(recordings), placed, grid.window_s, grid.hop_s)
