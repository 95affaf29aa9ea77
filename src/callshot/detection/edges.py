"""Active windows of a recording, and its audio → events: which calls there are, and their edges.

Neighbours  Two active windows that follow each other, with a pause of at most `gap_s` in which
            windows are not active.
Stretch     Neighbouring windows of the same class. It is dropped as a part of a call if each of its
            windows overlaps or touches a neighbouring stretch with a higher score that is not
            dropped itself: a window that contains half a call may be taken for another class. A
            pause, whatever `gap_s`, parts calls. Stretches of one class with nothing but dropped
            ones between them are one.
Edges       Those of `refine_edges`, from windows alone.
Calls       A window is often longer than a call. So the calls of a stretch, and their edges, come
            from the level of the sound in the band of the class (`find_calls`). All other columns
            of an event are those of its strongest window.
Overlap     Events of one class that overlap are one: stretches that follow each other closely may
            have windows with the same call.
"""

import math
from bisect import bisect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.fft import rfft

from callshot.corpus.audio import Reader, open_recording
from callshot.corpus.spectrogram import measure_spectrogram
from callshot.detection.index.clock import shift_clock
from callshot.detection.index.index_files import IndexedRecording
from callshot.detection.index.windows import SILENCE, SILENCE_DBFS
from callshot.detection.model import MAX_CLIP_S, Model, from_pcm
from callshot.errors import InputError
from callshot.records import FloatArray
from callshot.storage import to_path

Columns = dict[str, NDArray[Any]]  # arrays of one length
Edges = tuple[float, float]
FindCalls = Callable[[Any, Edges, FloatArray, FloatArray], list[Edges]]

ROUNDING_S = 1e-6
DIGITS = 6  # of the times of events: microseconds
# What follows was chosen on field recordings of birds and on synthetic sites: see the docs.
FLOOR = 0.2  # of the levels of a stretch and around it are at most the noise floor
# Of the way from the noise floor to the loudest sound, in dB: what a call is above, and what its
# loudest part reaches.
SHARE = 0.4
PEAK_SHARE = 0.8
MIN_CONTRAST_DB = 3.0  # between these two; otherwise the level says nothing
MIN_SHARE = 0.5  # of a short example: shorter sounds are no calls
LONG = 2.0  # typical calls: a longer sound around a call is noise
PAUSE_SHARE = 0.3  # of a typical example: shorter pauses do not part calls
COLUMNS = 25  # of levels in a typical call
COLUMNS_S = (0.005, 0.05)  # limits of their length
BLOCK = 1024  # columns that are read at once
OCTAVES = 10  # below half the rate, in which the band of a call is found
TONES = 12  # of an octave
# Power, over that of the quietest quarter of a clip, that belongs to the call.
CLEAR = 10.0
POWER_SHARES = (0.05, 0.95)  # of this power that lie below the edges of the band
NO_AUDIO = "its audio could not be read, so its events begin and end with windows"


class CallShape(NamedTuple):
    """What calls of a class are like: their least length, longest pause, and band.

    `step_s` is the length of a column of levels.
    """

    min_s: float
    pause_s: float
    step_s: float
    low_hz: float
    high_hz: float


def describe_calls(model: Model, labels: Iterable[str]) -> dict[str, CallShape]:
    """Return length, pauses and band of the calls of each label that has examples with audio."""
    examples = model.examples.spans
    clips = examples.frame["clip"]
    shapes = {}
    for label in sorted(set(labels)):
        rows = np.flatnonzero(np.array(model.examples.label) == label)
        lengths_s = examples.durations_s[rows]
        typical_s = float(np.median(lengths_s))
        step_s = float(np.clip(typical_s / COLUMNS, *COLUMNS_S))
        signals = []
        for clip, length_s in zip(clips[rows], lengths_s, strict=True):
            if clip is not None:
                signal = from_pcm(clip)
                # Clips are at the speed of the encoder: this rate is the one in real time.
                rate_hz = len(signal) / min(length_s, MAX_CLIP_S)
                signals.append((signal, rate_hz))
        if not signals:
            continue
        bands_hz = [find_band(signal, rate_hz, step_s) for signal, rate_hz in signals]
        low_hz, high_hz = np.median(bands_hz, axis=0).tolist()
        pauses_s = [
            _measure_pause(signal, rate_hz, (low_hz, high_hz), step_s)
            for signal, rate_hz in signals
        ]
        pause_s = max(PAUSE_SHARE * typical_s, *pauses_s)
        shortest_s = float(np.quantile(lengths_s, 0.1))  # but for odd ones
        shapes[label] = CallShape(
            min_s=MIN_SHARE * shortest_s,
            pause_s=pause_s,
            step_s=step_s,
            low_hz=low_hz,
            high_hz=high_hz,
        )
    return shapes


def _measure_pause(
    signal: NDArray[np.float32], rate_hz: float, band_hz: Edges, step_s: float
) -> float:
    """Return the length in seconds of the longest pause between the loud parts of a call."""
    step = max(1, round(step_s * rate_hz))
    levels = measure_band(signal, rate_hz, band_hz, step)
    # Noise floor and loudest sound are those of the whole clip.
    heights = measure_heights(levels, around=levels, columns=len(levels))
    loud_columns = np.flatnonzero(heights > SHARE)
    quiet_between = np.diff(loud_columns) - 1
    return step_s * float(quiet_between.max(initial=0))


def find_band(signal: NDArray[np.float32], rate_hz: float, step_s: float) -> Edges:
    """Return the lower and upper edge of the band with 90 % of the power of a call, in Hz.

    In each twelfth of an octave, the call is the columns of the clip that have ten times the power
    of the quietest quarter of columns.
    """
    lowest_hz = rate_hz / 2 ** (OCTAVES + 1)
    edges_hz = np.geomspace(lowest_hz, rate_hz / 2, OCTAVES * TONES + 1)
    duration_s = len(signal) / rate_hz
    columns = max(4, round(duration_s / step_s))
    levels = measure_spectrogram(
        signal, rate_hz, edges_hz, columns, window_s=2 * step_s
    )
    rising = levels[::-1]  # (tones, columns), low tones first
    widths_hz = np.diff(edges_hz)[:, None]
    power = 10 ** (rising / 10) * widths_hz
    quiet = np.quantile(power, 0.25, axis=1, keepdims=True)
    is_clear = power > CLEAR * quiet
    power_of_call = np.where(is_clear, power, 0.0).sum(axis=1)
    if not power_of_call.any():  # a sound without pauses has no background
        power_of_call = power.sum(axis=1)
    share_below = np.cumsum(power_of_call) / power_of_call.sum()
    low, high = np.searchsorted(share_below, POWER_SHARES).tolist()
    return float(edges_hz[low]), float(edges_hz[high + 1])


def measure_band(
    signal: NDArray[np.float32], rate_hz: float, band_hz: Edges, step: int
) -> FloatArray:
    """Return the level in a band for every `step` samples of a signal, in dB: (columns,).

    It is the power of Hann windows of two steps around the middle of each step; a sine at full
    scale in the band has 0 dB. This is several times faster than a spectrogram with exact rows.
    """
    length = 2 * step  # of a frame, in samples
    hann = np.hanning(length + 2)[1:-1].astype(np.float32)  # without the zeros
    padded = np.pad(signal, (step // 2, length))
    frames = np.lib.stride_tricks.sliding_window_view(padded, length)
    columns = max(1, len(signal) // step)
    frame_of_column = frames[: columns * step : step]
    low_bin, high_bin = np.array(band_hz) * length / rate_hz
    first_bin = min(math.floor(low_bin), step)  # the bin `step` is half the rate
    end_bin = max(first_bin + 1, math.ceil(high_bin))
    spectra = rfft(frame_of_column * hann)
    inside = spectra[:, first_bin:end_bin]
    squares = np.square(inside.real) + np.square(inside.imag)
    sums = squares.sum(axis=1, dtype=np.float64)
    # A sine is spread over bins by the window, 1.5 times its power in all.
    gain = (2 / hann.sum()) ** 2
    power = sums * gain / 1.5
    not_zero = np.maximum(power, SILENCE)
    levels: FloatArray = 10 * np.log10(not_zero)
    return levels


def measure_heights(levels: FloatArray, around: FloatArray, columns: int) -> FloatArray:
    """Return how far each level is on the way from the noise floor to the loudest sound, 0 to 1.

    `levels` are those of a stretch, in dB. The noise floor is of all levels `around` it, the
    loudest sound of the columns of the stretch that are at most `columns` away. The result is 0
    where these two hardly differ.
    """
    audible = around[around > SILENCE_DBFS]
    if len(audible) == 0:
        return np.zeros(len(levels))
    floor = np.quantile(audible, FLOOR)
    loudest = pl.Series(levels).rolling_max(2 * columns + 1, min_samples=1, center=True)
    contrast = loudest.to_numpy() - floor
    heights = (levels - floor) / np.maximum(contrast, MIN_CONTRAST_DB)
    return np.where(contrast < MIN_CONTRAST_DB, 0.0, heights)


def find_runs(is_loud: NDArray[np.bool_], max_pause: float) -> list[list[int]]:
    """Return [first, end] of each run of True, in which pauses may have `max_pause` columns.

    `end` is the column after the last one.

    >>> find_runs(np.array([1, 1, 0, 1, 0, 0, 1], bool), 1)
    [[0, 4], [6, 7]]
    """
    runs: list[list[int]] = []
    # Where True begins and where it ends, in turn
    changes = np.flatnonzero(np.diff(is_loud, prepend=False, append=False))
    for first, end in changes.reshape(-1, 2).tolist():
        if runs and first - runs[-1][1] <= max_pause:
            runs[-1][1] = end
        else:
            runs.append([first, end])
    return runs


@dataclass(frozen=True)
class Spacing:
    """How windows follow each other, and what decides about events; all in seconds.

    call_s  typical length of a call, by label
    gap_s   pauses up to this do not end an event
    """

    window_s: float
    hop_s: float
    call_s: Mapping[Any, float]
    gap_s: float = 0.0


@dataclass(frozen=True)
class CallFinder:
    """An open recording in which the calls of stretches are found.

    channel     rule by which samples of several channels become one signal
    duration_s  length of the recording
    shapes      what the calls of each label are like, where it is known
    """

    reader: Reader
    channel: str
    duration_s: float
    spacing: Spacing
    shapes: Mapping[str, CallShape]

    def find_calls(
        self, label: str, edges_s: Edges, starts_s: FloatArray, ends_s: FloatArray
    ) -> list[Edges]:
        """Return start and end of the calls of a stretch, in order of time.

        A stretch is neighbouring windows of one class; they start and end at `starts_s`, `ends_s`.

        `edges_s` are the edges of the stretch by its windows alone. A sound is a call if most
        windows around its middle are active. A window without a call has its other sounds, or else
        its own part of `edges_s`.
        """
        shape = self.shapes.get(label)
        top_hz = self.reader.recording.rate_hz / 2
        if shape is None or shape.low_hz >= top_hz:  # nothing to listen for
            return [edges_s]
        windows_s = (float(starts_s[0]), float(ends_s.max()))
        calls: list[Edges] = []
        other_sounds: list[Edges] = []
        for start_s, end_s in self.find_sounds(label, shape, windows_s):
            middle_s = (start_s + end_s) / 2
            windows_begun = np.searchsorted(starts_s, middle_s, "right")
            windows_ended = np.searchsorted(ends_s, middle_s, "right")
            active_windows = windows_begun - windows_ended  # that contain the middle
            is_call = 2 * active_windows > self.count_windows(middle_s)
            sound = max(windows_s[0], start_s), min(windows_s[1], end_s)
            if is_call:
                calls.append(sound)
            else:
                other_sounds.append(sound)
        # Windows without a call have their other sounds.
        missed = find_missed(calls, edges_s, starts_s, ends_s)
        for sound_start_s, sound_end_s in other_sounds:
            for start_s, end_s in missed:
                if sound_start_s < end_s and sound_end_s > start_s:
                    calls.append((sound_start_s, sound_end_s))
                    break
        calls.sort()
        # Windows that have no sound either keep their own edges.
        return sorted(calls + find_missed(calls, edges_s, starts_s, ends_s))

    def find_sounds(
        self, label: str, shape: CallShape, span_s: Edges
    ) -> Iterator[Edges]:
        """Yield start and end of each sound in a span that may be a call of a class.

        The level in the band of the class is above SHARE, but for pauses as in examples, and
        reaches PEAK_SHARE; the sound is not much shorter than examples.
        """
        span_start_s, span_end_s = span_s
        # The noise floor is also measured around the span.
        margin_s = 2 * max(self.spacing.window_s, self.spacing.call_s[label])
        read_start_s = max(0.0, span_start_s - margin_s)
        read_end_s = min(self.duration_s, span_end_s + margin_s)
        around_s = (read_start_s, read_end_s)
        begin_s, step_s, levels_around = self.read_levels(around_s, shape)
        # Columns of the span
        first = max(0, round((span_start_s - begin_s) / step_s))
        end = max(first, round((span_end_s - begin_s) / step_s))
        levels = levels_around[first:end]
        window_columns = round(self.spacing.window_s / step_s)
        heights = measure_heights(levels, levels_around, window_columns)
        pause_s = max(shape.pause_s, self.spacing.gap_s)
        max_pause = pause_s / step_s + ROUNDING_S  # columns
        for run_first, run_end in find_runs(heights > SHARE, max_pause):
            start_s = begin_s + step_s * (first + run_first)
            end_s = begin_s + step_s * (first + run_end)
            is_long = end_s - start_s >= shape.min_s - ROUNDING_S
            peak = heights[run_first:run_end].max()
            is_loud = peak >= PEAK_SHARE
            if is_long and is_loud:
                yield start_s, end_s

    def count_windows(self, time_s: float) -> int:
        """Return how many windows of the recording, active or not, contain a time."""
        window_s = self.spacing.window_s
        hop_s = self.spacing.hop_s
        last_window = math.floor(min(time_s, self.duration_s - window_s) / hop_s)
        first_window = math.ceil(max(0.0, time_s - window_s) / hop_s)
        # Near the end, only the window that ends with the recording may contain the time. It is not
        # counted here where it does not start at a multiple of the hop.
        return max(1, last_window - first_window + 1)

    def read_levels(
        self, span_s: Edges, shape: CallShape
    ) -> tuple[float, float, FloatArray]:
        """Measure the level of the sound in the band of calls, in columns of about `shape.step_s`.

        Return when the first column begins and how long a column is, in seconds, and the level of
        each column in dB.
        """
        rate_hz = round(self.reader.recording.rate_hz)
        step = max(1, round(shape.step_s * rate_hz))
        step_s = step / rate_hz
        start_s, end_s = span_s
        first = round(start_s / step_s)
        end = max(first + 1, round(end_s / step_s))
        band_hz = (shape.low_hz, min(shape.high_hz, rate_hz / 2))
        parts = []
        for block_first in range(first, end, BLOCK):
            block_end = min(block_first + BLOCK, end)
            # With a column more at both ends: frames of columns overlap.
            before = min(1, block_first)
            signal = self.reader.read_decodable(
                (block_first - before) * step_s,
                (block_end + 1) * step_s,
                rate_hz=rate_hz,
                channel_rule=self.channel,
            )
            levels = measure_band(signal, rate_hz, band_hz, step)
            parts.append(levels[before : before + block_end - block_first])
        return first * step_s, step_s, np.concatenate(parts)


def find_sound(
    reader: Reader, channel: str, span_s: Edges, call_s: float, band_hz: Edges
) -> Edges:
    """Return start and end of the longest call in a span, by its sound in a band.

    Where noise leaves no call, or one of more than LONG typical lengths `call_s`, it is the loudest
    stretch of this length.
    """
    span_start_s, span_end_s = span_s
    step_s = float(np.clip(call_s / COLUMNS, *COLUMNS_S))
    min_s = MIN_SHARE * call_s
    pause_s = PAUSE_SHARE * call_s
    shape = CallShape(min_s, pause_s, step_s, *band_hz)
    # The span is the one active window, and "" the label of its calls.
    window_s = span_end_s - span_start_s
    spacing = Spacing(window_s, window_s, {"": call_s})
    duration_s = reader.recording.duration_s
    finder = CallFinder(reader, channel, duration_s, spacing, {"": shape})
    window_starts_s = np.array([span_start_s])
    window_ends_s = np.array([span_end_s])
    # Without any sound, this is the span itself.
    calls = finder.find_calls("", span_s, window_starts_s, window_ends_s)
    start_s, end_s = max(calls, key=lambda edges: edges[1] - edges[0])
    if end_s - start_s <= LONG * call_s:
        return start_s, end_s
    begin_s, step_s, levels = finder.read_levels(span_s, shape)
    columns = round(call_s / step_s)
    loudest = find_loudest(levels, columns)
    start_s = begin_s + step_s * loudest
    end_s = start_s + step_s * columns
    return max(span_start_s, start_s), min(span_end_s, end_s)


def find_loudest(levels: FloatArray, columns: int) -> int:
    """Return the first of the `columns` in a row that have most power above the noise floor.

    >>> find_loudest(np.array([0.0, 30.0, 0.0, 0.0, 20.0, 29.0, 28.0]), 2)
    5
    """
    power = 10 ** (levels / 10)
    above = np.maximum(power - np.quantile(power, FLOOR), 0.0)
    sums = np.convolve(above, np.ones(min(columns, len(above))), "valid")
    return int(sums.argmax())


def find_missed(
    calls: Sequence[Edges], edges_s: Edges, starts_s: FloatArray, ends_s: FloatArray
) -> list[Edges]:
    """Return the windows that no call overlaps, cut at `edges_s`; those that touch are joined.

    `starts_s` and `ends_s` are those of the windows. Calls and windows are in order of time.
    """
    missed: list[Edges] = []
    first_s, last_s = edges_s
    call_starts_s = np.array([start_s for start_s, _ in calls] + [np.inf])
    call_ends_s = np.array([end_s for _, end_s in calls])
    # The first call that ends after a window starts; the infinite start stands for no such call.
    next_calls = np.searchsorted(call_ends_s, starts_s, "right")
    has_no_call = call_starts_s[next_calls] >= ends_s
    for row in np.flatnonzero(has_no_call).tolist():
        start_s = max(float(starts_s[row]), first_s)
        end_s = min(float(ends_s[row]), last_s)
        if missed:
            earlier_start_s, earlier_end_s = missed[-1]
            if start_s <= earlier_end_s + ROUNDING_S:
                missed.pop()
                start_s = earlier_start_s
        missed.append((start_s, end_s))
    return missed


def find_events(
    recording: IndexedRecording,
    windows: Columns,
    *,
    spacing: Spacing,
    shapes: Mapping[str, CallShape],
    by_sound: bool,
    channel: str,
) -> tuple[Columns, str | None]:
    """Return the events of a recording, and a note if its audio could not be read.

    `windows` are the columns of its active windows. `by_sound`: find the calls in the sound of the
    recording, where `shapes` has their class.
    """
    merge = partial(merge_windows, windows, spacing, recording.duration_s)
    note = None
    try:
        if len(windows["score"]) == 0 or not shapes or not by_sound:
            events = merge()
        else:
            path = to_path(recording.root) / recording.path
            with open_recording(path, recording.path) as reader:
                finder = CallFinder(
                    reader, channel, recording.duration_s, spacing, shapes
                )
                events = merge(finder.find_calls)
    except InputError:
        events = merge()
        note = f"{recording.path}: {NO_AUDIO}"
    starts_s = events["start_s"]
    clocks = [shift_clock(recording.clock, start_s) for start_s in starts_s]
    events["recording"] = np.full(len(starts_s), recording.path, object)
    events["clock"] = np.array(clocks, object)
    top_hz = recording.rate_hz / 2
    bands_hz = [_limit_band(shapes.get(label), top_hz) for label in events["label"]]
    bands = np.array(bands_hz, object).reshape(-1, 2)  # also without events
    events["low_freq_hz"] = bands[:, 0]
    events["high_freq_hz"] = bands[:, 1]
    return events, note


def _limit_band(
    shape: CallShape | None, top_hz: float
) -> tuple[float | None, float | None]:
    """Return the band of calls, at most up to `top_hz`; None twice if it is above, or unknown."""
    if shape is None or shape.low_hz >= top_hz:
        return None, None
    return round(shape.low_hz, 1), round(min(shape.high_hz, top_hz), 1)


class _Stretch(NamedTuple):
    """Active windows of one class, rows `first` to `last` (included); `strongest` is a row too.

    Windows of other classes, of dropped stretches, may be between them.
    """

    first: int
    last: int
    strongest: int


def merge_windows(
    windows: Columns,
    spacing: Spacing,
    duration_s: float,
    find_calls: FindCalls | None = None,
) -> Columns:
    """Return the events of a recording in order of time, with the columns of their windows.

    `windows` are active windows in order of time. Each stretch, neighbouring windows of one class,
    is an event, or has the calls that `find_calls` returns. The columns of an event are those of
    its strongest window, but for start and end.
    """
    starts_s = windows["start_s"]
    ends_s = windows["end_s"]
    scores = windows["score"]
    labels = windows["label"]
    rows = []  # the strongest window of each event
    edges = []
    for stretch in _find_stretches(windows, spacing):
        label = labels[stretch.strongest]
        # Windows of dropped stretches, of other classes, may be between its own.
        is_own = labels[stretch.first : stretch.last + 1] == label
        own = stretch.first + np.flatnonzero(is_own)
        own_starts_s = starts_s[own]
        own_ends_s = ends_s[own]
        edges_s = refine_edges(
            float(starts_s[stretch.first]),
            float(starts_s[stretch.last]),
            float(ends_s[stretch.last]),
            float(spacing.call_s[label]),
            spacing,
            duration_s,
        )
        spans = [edges_s]
        if find_calls is not None:
            spans = find_calls(label, edges_s, own_starts_s, own_ends_s)
        for start_s, end_s in spans:
            first = np.searchsorted(own_ends_s, start_s, "right")
            end = np.searchsorted(own_starts_s, end_s, "left")
            overlapping = own[first:end]  # windows of the stretch on this event
            strongest = scores[overlapping].argmax()
            rows.append(int(overlapping[strongest]))
            edges.append((round(start_s, DIGITS), round(end_s, DIGITS)))
    edges, rows = _join_overlapping(edges, rows, windows)
    events = {name: column[rows] for name, column in windows.items()}
    events["start_s"] = np.array([start_s for start_s, _ in edges])
    events["end_s"] = np.array([end_s for _, end_s in edges])
    return events


def _join_overlapping(
    edges: Sequence[Edges], rows: Sequence[int], windows: Columns
) -> tuple[list[Edges], list[int]]:
    """Join events of one class that overlap; return edges and rows in order of time.

    `rows` are those of the strongest window of each event. Events overlap because windows of two
    stretches may, and the later stretch may have found the call of the earlier one.
    """
    joined_edges: list[Edges] = []
    joined_rows: list[int] = []
    latest: dict[Any, int] = {}  # by label, position of its latest event in both lists
    in_order = sorted(zip(edges, rows, strict=True), key=itemgetter(0))
    for (start_s, end_s), row in in_order:
        label = windows["label"][row]
        position = latest.get(label)
        if position is None or start_s >= joined_edges[position][1]:
            latest[label] = len(joined_edges)
            joined_edges.append((start_s, end_s))
            joined_rows.append(row)
            continue
        earlier_start_s, earlier_end_s = joined_edges[position]
        joined_edges[position] = (earlier_start_s, max(earlier_end_s, end_s))
        both = (joined_rows[position], row)
        joined_rows[position] = max(both, key=windows["score"].__getitem__)
    return joined_edges, joined_rows


def _find_stretches(windows: Columns, spacing: Spacing) -> list[_Stretch]:
    """Return the stretches of active windows of one class, without parts of stronger calls.

    `windows` are in order of time, and so are the stretches.
    """
    starts_s = windows["start_s"]
    scores = windows["score"]
    labels = windows["label"]
    # A run is of neighbouring windows, a stretch of those with the same label in a run.
    max_step_s = spacing.hop_s + spacing.gap_s + ROUNDING_S
    ends_run = np.diff(starts_s, append=np.inf) > max_step_s
    changes_label = np.append(labels[1:] != labels[:-1], True)
    stretches = []
    run = []  # its stretches so far, also those that are parts of calls
    first = 0
    for last in np.flatnonzero(ends_run | changes_label).tolist():
        strongest = first + int(scores[first : last + 1].argmax())
        run.append(_Stretch(first, last, strongest))
        first = last + 1
        if not ends_run[last]:  # more stretches of the run follow
            continue
        kept = _drop_parts_of_calls(run, starts_s, windows["end_s"], scores)
        stretches += _join_same_class(kept, labels, scores)
        run = []
    return stretches


def _join_same_class(
    stretches: Iterable[_Stretch], labels: NDArray[Any], scores: FloatArray
) -> list[_Stretch]:
    """Join stretches of one class that follow each other: what was between them was dropped."""
    joined: list[_Stretch] = []
    for stretch in stretches:
        if joined and labels[joined[-1].first] == labels[stretch.first]:
            earlier = joined.pop()
            both = (earlier.strongest, stretch.strongest)
            strongest = max(both, key=scores.__getitem__)
            stretch = _Stretch(earlier.first, stretch.last, strongest)
        joined.append(stretch)
    return joined


def _drop_parts_of_calls(
    run: Sequence[_Stretch],
    starts_s: FloatArray,
    ends_s: FloatArray,
    scores: FloatArray,
) -> list[_Stretch]:
    """Drop stretches that are part of a stronger neighbour; return the others in order of time.

    `run` has stretches of different classes one after another. A stretch is a part if each of its
    windows touches a neighbour that is stronger and not dropped itself. `starts_s`, `ends_s` and
    `scores` are those of all windows of the recording.
    """
    # In order of time; all are stronger than the one that is compared next.
    kept: list[_Stretch] = []
    strongest_first = sorted(run, key=lambda item: -scores[item.strongest])
    for stretch in strongest_first:
        end = stretch.last + 1
        rows = slice(stretch.first, end)
        touches_kept = np.zeros(end - stretch.first, bool)  # windows
        position = bisect(kept, stretch.first, key=lambda item: item.first)
        if position > 0:
            before = kept[position - 1]
            before_end_s = ends_s[before.last]
            touches_kept |= starts_s[rows] <= before_end_s + ROUNDING_S
        if position < len(kept):
            after = kept[position]
            after_start_s = starts_s[after.first]
            touches_kept |= ends_s[rows] >= after_start_s - ROUNDING_S
        if not touches_kept.all():
            kept.insert(position, stretch)
    return kept


def refine_edges(
    first_start_s: float,
    last_start_s: float,
    end_s: float,
    call_s: float,
    spacing: Spacing,
    duration_s: float,
) -> tuple[float, float]:
    """Return when an event begins and ends, in seconds.

    Its windows start from `first_start_s` to `last_start_s`, and the last of them ends at `end_s`.
    A call of the class typically lasts `call_s`, and is in the middle of the windows that it makes
    active. One short call makes windows active for up to about `window_s`; only what goes beyond
    that makes an event longer than a typical call. So its length is

        min(call_s + hop_s, window_s) + max(0, active_s − window_s),
        active_s = last_start_s − first_start_s + hop_s

    and never more than all its windows. An event at an end of the recording keeps that edge.

    >>> spacing = Spacing(3.0, 1.0, {"hoot": 1.0})
    >>> refine_edges(10.0, 12.0, 15.0, 1.0, spacing, 60.0)
    (11.5, 13.5)
    >>> refine_edges(10.0, 18.0, 21.0, 1.0, spacing, 60.0)
    (11.5, 19.5)
    >>> refine_edges(12.0, 15.0, 18.0, 1.0, Spacing(3.0, 3.0, {"hoot": 1.0}), 60.0)
    (12.0, 18.0)
    """
    active_s = last_start_s - first_start_s + spacing.hop_s
    length_s = min(call_s + spacing.hop_s, spacing.window_s)
    length_s += max(0.0, active_s - spacing.window_s)
    whole_s = end_s - first_start_s
    trimmed_s = max(0.0, whole_s - length_s) / 2
    begins_with_recording = first_start_s < ROUNDING_S
    ends_with_recording = end_s > duration_s - ROUNDING_S
    start_s = first_start_s if begins_with_recording else first_start_s + trimmed_s
    trimmed_end_s = end_s if ends_with_recording else end_s - trimmed_s
    return start_s, trimmed_end_s
