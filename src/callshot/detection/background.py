"""Background: vectors of windows without calls, and the recordings that they come from.

A model keeps a sample of at most about 8192 windows, whole minutes, chosen by a hash. So background
that is collected in parts, in any order, is the same as if it had been collected at once.

Thresholds come from at most five parts of the background, each scored by the others. A part is
whole places, or whole recordings, because what is scanned next may be a new one: windows of a
recording are like each other, and thresholds that take its weather as known are too low. What has
more than half of all windows is divided, for the rest would be too little to score it by. No new
place is expected where recordings without labels are background: they are what is scanned.
"""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import polars as pl
from numpy.typing import NDArray
from scipy.linalg import lu_factor, lu_solve

from callshot.fewshot.centroid import LinearLayer
from callshot.fewshot.classifiers import shrink_covariance
from callshot.fewshot.kernels import streams
from callshot.records import FloatArray, IntArray
from callshot.spans import Spans
from callshot.vectors import FloatMatrix, Vectors, concat_vectors

Span = tuple[float, float]
Mask = NDArray[np.bool_]

MAX_WINDOWS = 8192
SAMPLED_S = 60.0  # windows that follow each other, so that events can be counted
MAX_PARTS = 5
ANNOTATED = "annotated"
UNLABELLED = "unlabelled"
WITHOUT_CALLS = "without calls"
TAIL_EVENTS = 10  # of the background, at least, from which a threshold is extrapolated
TAIL = 3  # times the allowed number, where there are more
DEVIATIONS = 1.96  # of an interval of 95 %


@dataclass(frozen=True, order=True)
class BackgroundRecording:
    """A recording with windows of background.

    sha256   of the file, by which the recording is known
    windows  the number of its windows, also of those with calls
    calls_s  starts and ends of all annotations on it
    origin   "annotated": what is not annotated is background, unless a call was missed;
             "unlabelled": most of it is; "without calls": all of it is
    place    where it was made, as far as its path says
    """

    sha256: str
    windows: int
    calls_s: tuple[Span, ...] = ()
    origin: str = ANNOTATED
    place: str = ""


@dataclass(frozen=True, eq=False)
class Background:
    """Windows without calls; `recording` of a window is the SHA-256 of its file."""

    recordings: tuple[BackgroundRecording, ...]
    windows: Vectors
    window_s: float
    hop_s: float

    @property
    def vectors(self) -> FloatMatrix:
        """The vector of each window."""
        return self.windows.matrix

    @cached_property
    def number(self) -> IntArray:
        """The number of the recording of each window, its position in `recordings`."""
        checksums = [recording.sha256 for recording in self.recordings]
        numbers = {checksum: number for number, checksum in enumerate(checksums)}
        return np.array([numbers[name] for name in self.windows.recording], np.int64)

    @property
    def hours(self) -> float:
        """The hours that the windows stand for: each stands for one hop."""
        return len(self.vectors) * self.hop_s / 3600

    @property
    def origins(self) -> NDArray[np.str_]:
        """The origin of each window."""
        origins = [recording.origin for recording in self.recordings]
        return np.array(origins, np.str_)[self.number]

    @cached_property
    def covariances(self) -> "Covariances":
        """The covariance of all windows, which classes and aims share."""
        return measure_covariances(self)


def find_free(start_s: FloatArray, window_s: float, calls_s: Iterable[Span]) -> Mask:
    """Return a mask of the windows that no call touches.

    `start_s` are the starts of the windows, `calls_s` starts and ends of calls.

    >>> find_free(np.array([0.0, 3.0, 6.0, 9.0]), 3.0, [(2.0, 3.0), (9.0, 10.0)])
    array([False,  True,  True, False])
    """
    is_free = np.ones(len(start_s), bool)
    for call_start_s, call_end_s in calls_s:
        starts_before_end = start_s < call_end_s
        ends_after_start = start_s + window_s > call_start_s
        is_free &= ~(starts_before_end & ends_after_start)
    return is_free


def find_sampled(sha256: str, start_s: FloatArray, windows_of_all: int) -> Mask:
    """Return a mask of the windows of a recording that are in the sample that a model keeps.

    `start_s` are the starts of its windows, `sha256` is the checksum of its file. The sample has
    all windows while all recordings together (`windows_of_all`) have at most MAX_WINDOWS, then
    about every second minute, every fourth, …, by a hash of recording and minute.
    """
    keep_one_in = 1
    while windows_of_all > MAX_WINDOWS * keep_one_in:
        keep_one_in *= 2
    minutes, minute_of_window = np.unique(start_s // SAMPLED_S, return_inverse=True)
    # Hashes are even over all numbers of 64 bit: one in `keep_one_in` is below the limit.
    hashes = [streams.key(f"background {sha256} {minute:.0f}") for minute in minutes]
    limit = np.uint64((2**64 - 1) // keep_one_in)
    is_sampled_minute = np.array(hashes, np.uint64) <= limit
    return is_sampled_minute[minute_of_window]


def merge_backgrounds(
    first: Background | None, second: Background | None
) -> Background | None:
    """Merge two backgrounds, whose windows must have the same length and hop; None is empty."""
    if first is None or second is None:
        return first or second
    merged: dict[str, BackgroundRecording] = {}
    for recording in (*first.recordings, *second.recordings):
        earlier = merged.get(recording.sha256, recording)
        calls_s = {*recording.calls_s, *earlier.calls_s}
        merged[recording.sha256] = replace(
            recording,
            calls_s=tuple(sorted(calls_s)),
            # In order of the alphabet, the origin that promises least is the first.
            origin=min(recording.origin, earlier.origin),
            place=max(recording.place, earlier.place),  # "" if one is not known
        )
    windows = concat_vectors([first.windows, second.windows])
    recordings = sorted(merged.values())
    return select_windows(recordings, windows, first.window_s, first.hop_s)


def make_windows(
    recording: Sequence[str], start_s: FloatArray, window_s: float, matrix: FloatMatrix
) -> Vectors:
    """Make Vectors of windows from the recording, start and vector of each."""
    frame = pl.DataFrame(
        {
            "recording": pl.Series(recording, dtype=pl.String),
            "start_s": start_s,
            "end_s": start_s + window_s,
        }
    )
    return Vectors(Spans(frame), matrix)


def select_windows(
    recordings: Sequence[BackgroundRecording],
    windows: Vectors,
    window_s: float,
    hop_s: float,
) -> Background:
    """Return the background of recordings: of `windows`, the sample that no call touches."""
    windows_of_all = sum(recording.windows for recording in recordings)
    frame = windows.spans.frame.with_row_index()
    # Two backgrounds that are merged may have the same window.
    unique = frame.unique(["recording", "start_s"], keep="last").sort("start_s")
    by_recording = unique.partition_by("recording", as_dict=True)
    rows = []
    for recording in recordings:
        own = by_recording.get((recording.sha256,), unique.clear())
        start_s = own["start_s"].to_numpy()
        is_kept = find_kept(recording, start_s, window_s, windows_of_all)
        rows += own.filter(is_kept)["index"].to_list()
    return Background(tuple(recordings), windows.take(rows), window_s, hop_s)


def find_kept(
    recording: BackgroundRecording,
    start_s: FloatArray,
    window_s: float,
    windows_of_all: int,
) -> Mask:
    """Return a mask of the windows that no call touches and that are in the sample.

    `start_s` are the starts of the windows of the recording; see `find_sampled`.
    """
    is_free = find_free(start_s, window_s, recording.calls_s)
    return is_free & find_sampled(recording.sha256, start_s, windows_of_all)


def split_background(background: Background) -> Iterator[Mask]:
    """Yield a mask of the windows of each of at most five parts, which are held out in turn."""
    if UNLABELLED in background.origins:
        # Whole recordings; stretches of all windows if fewer than five recordings have any
        part_of_window = background.number % MAX_PARTS
        if len(np.unique(part_of_window)) < MAX_PARTS:
            part_of_window = _number_stretches(len(part_of_window))
    else:
        part_of_window = _assign_parts(_number_units(background))
    for part in np.unique(part_of_window):
        yield part_of_window == part


def _number_units(background: Background) -> IntArray:
    """Return the number of the unit of each window, which stays in one part.

    A unit is a place, or a recording or a stretch of what has more than half of all windows.
    """
    recording_of_window = background.number
    places = np.array([recording.place for recording in background.recordings])
    _, place_of_window = np.unique(places[recording_of_window], return_inverse=True)
    unit = _divide_majority(place_of_window, recording_of_window)
    stretch = np.zeros(len(unit), np.int64)
    for number in np.unique(recording_of_window):
        inside = recording_of_window == number
        stretch[inside] = _number_stretches(int(inside.sum()))
    return _divide_majority(unit, stretch)


def _assign_parts(unit: IntArray) -> IntArray:
    """Put units by falling size into the smallest part; return the part of each window."""
    unit_sizes = np.bincount(unit)
    part_of_unit = np.zeros(len(unit_sizes), np.int64)
    part_sizes = np.zeros(MAX_PARTS, np.int64)
    for number in np.argsort(-unit_sizes, kind="stable"):
        smallest_part = part_sizes.argmin()
        part_of_unit[number] = smallest_part
        part_sizes[smallest_part] += unit_sizes[number]
    return part_of_unit[unit]


def _divide_majority(unit: IntArray, finer: IntArray) -> IntArray:
    """Divide a unit that has more than half of all windows, if there is one, by finer units.

    `unit` and `finer` are the numbers that each window has, and so is the result.
    """
    counts = np.bincount(unit)
    largest = counts.argmax()
    if 2 * counts[largest] <= len(unit):
        return unit
    finer_inside = np.where(unit == largest, finer + 1, 0)  # 0 outside the largest
    pairs = np.column_stack([unit, finer_inside])
    _, number_of_pair = np.unique(pairs, axis=0, return_inverse=True)
    return number_of_pair


def _number_stretches(count: int) -> IntArray:
    """Divide windows in order of time into MAX_PARTS stretches; return the number of each."""
    parts = min(MAX_PARTS, count)
    return np.arange(count) * parts // count


@dataclass(frozen=True, eq=False)
class Covariance:
    """Mean and covariance of windows of background; the covariance as its LU factors."""

    centre: FloatArray
    factors: tuple[FloatArray, IntArray]

    def find_discriminants(self, means: FloatArray) -> LinearLayer:
        """Return the linear discriminant of each class mean from the background.

        Its scores of background have mean 0 and standard deviation 1.
        """
        from_centre = means - self.centre
        # S⁻¹ (c − b) of each class; background scores by it have this variance.
        unscaled = lu_solve(self.factors, from_centre.T, check_finite=False).T
        variances = np.einsum("nd,nd->n", unscaled, from_centre)
        smallest = np.finfo(np.float64).tiny  # 0 cannot be divided by
        deviations = np.sqrt(np.maximum(variances, smallest))
        weight = unscaled / deviations[:, None]
        return LinearLayer(weight, -weight @ self.centre)


@dataclass(frozen=True, eq=False)
class Covariances:
    """Covariance of all background, and of what remains of it without each of its parts.

    without  for each part, a mask of its windows, and the covariance of the windows outside it
    """

    whole: Covariance
    without: Sequence[tuple[Mask, Covariance]]


def measure_covariance(background: NDArray[np.floating]) -> Covariance:
    """Return mean and covariance of windows."""
    rows = np.asarray(background, np.float64)
    centre = rows.mean(axis=0)
    factors = lu_factor(shrink_covariance(rows - centre), check_finite=False)
    return Covariance(centre, factors)


def measure_covariances(
    background: Background, keep: Mask | None = None
) -> Covariances:
    """Measure the covariance of the windows to keep (default: all), and without each part.

    If no window outside a part is kept, all windows outside it are used.
    """
    if keep is None:
        keep = np.ones(len(background.vectors), bool)
    without = []
    for inside in split_background(background):
        others = ~inside & keep
        if not others.any():
            others = ~inside
        without.append((inside, measure_covariance(background.vectors[others])))
    return Covariances(measure_covariance(background.vectors[keep]), without)


def find_appearance_scores(scores: FloatArray, background: Background) -> FloatArray:
    """Return the score of each event of background: the threshold at which it appears.

    `scores` has a score for each window. As a threshold falls, there are 1, 2, 3, … events; element
    n of the result, highest first, is where there are n + 1 for the first time. Windows of a
    recording that follow each other and reach the threshold are one event; those of −inf never
    reach it. Events also merge as the threshold falls, so their number may fall again.
    """
    order, follows_previous = _order_windows(background)
    ordered = scores[order]
    # From these thresholds down, two windows that follow each other are one event.
    lower_scores = np.minimum(ordered[1:], ordered[:-1])
    merged_at = lower_scores[follows_previous]
    finite = scores[scores > -np.inf]
    thresholds = -np.sort(-finite)  # the highest first
    # Each window that reaches a threshold is an event, less the pairs that are merged.
    windows = np.arange(1, len(thresholds) + 1)
    falling_merged_at = np.sort(-merged_at)
    merged = np.searchsorted(falling_merged_at, -thresholds, side="right")
    most_events = np.maximum.accumulate(windows - merged)  # down to each threshold
    is_further_event = np.diff(most_events, prepend=0) > 0
    return np.asarray(thresholds[is_further_event])


def extrapolate_tail(falling: FloatArray, count: int, allowed: float) -> float:
    """Return the score that `allowed` values exceed, if the highest fall off exponentially.

    `falling` are values, the highest first. The first `count` of them exceed the next one, the
    base; of these, a share exp(−excess / mean excess) is taken to be more than `excess` above it.
    """
    base = falling[count]
    mean_excess = float((falling[:count] - base).mean())
    return float(base + mean_excess * np.log(count / allowed))


def choose_event_threshold(appearance_scores: FloatArray, allowed: float) -> float:
    """Return the score that about `allowed` events exceed; −inf if there are no more of them.

    The highest of `find_appearance_scores` are taken to fall off exponentially, so that the
    threshold does not depend on one or two of them.
    """
    events = len(appearance_scores)
    if events <= allowed:
        return -np.inf
    if events == 1:  # too few to know how they fall off
        return float(appearance_scores[0])
    # How many of the highest events show the fall-off; the next one is their base.
    count = min(max(TAIL_EVENTS, math.ceil(TAIL * allowed)), events - 1)
    return extrapolate_tail(appearance_scores, count, allowed)


def find_event_thresholds(
    class_of_window: IntArray,
    scores: FloatArray,
    background: Background,
    allowed: float,
) -> FloatArray:
    """Return a threshold for each class, so that background has about `allowed` events above it.

    `scores` are (windows, classes). Events of a class are in windows in which it was found:
    `class_of_window` has the number of one class, or −1, for each window of background.
    """
    thresholds = []
    for number, scores_of_class in enumerate(scores.T):
        is_found = class_of_window == number
        found_scores = np.where(is_found, scores_of_class, -np.inf)
        appearance_scores = find_appearance_scores(found_scores, background)
        thresholds.append(choose_event_threshold(appearance_scores, allowed))
    return np.array(thresholds)


def false_alarm_factor(
    class_of_alarm: IntArray, background: Background, allowed: float, classes: int
) -> float:
    """Return f: with 95 %, there will be between allowed / f and allowed · f false alarms.

    `allowed` is the number of events in all background, for each of `classes` classes.
    `class_of_alarm` has the class of each window, −1 where it is no false alarm. The logarithm of
    the number of events has the variance 1 / mean, as a Poisson count has, or a larger one if
    recordings differ more than that.
    """
    order, follows_previous = _order_windows(background)
    label = class_of_alarm[order]
    continues_event = (label[1:] == label[:-1]) & follows_previous
    begins_event = (label >= 0) & np.append(True, ~continues_event)
    windows = np.bincount(background.number)  # of each recording
    recording_of_window = background.number[order]
    recording_of_event = recording_of_window[begins_event]
    # Events of each recording
    events = np.bincount(recording_of_event, minlength=len(windows))
    total = events.sum()
    variance = 1 / (allowed * classes)  # of the logarithm of the number of events
    recordings = np.count_nonzero(windows)
    if total > 0 and recordings > 1:
        expected = windows * total / windows.sum()
        squares = np.square(events - expected).sum()
        variance_of_total = float(squares * recordings / (recordings - 1))
        variance = max(variance, variance_of_total / float(total) ** 2)
    deviation = math.sqrt(variance)
    return math.exp(DEVIATIONS * deviation)


def _order_windows(background: Background) -> tuple[IntArray, Mask]:
    """Return the rows of windows by recording and time, and whether each follows the one before.

    The mask is in this order and begins with the second row.
    """
    start_s = background.windows.spans.frame["start_s"].to_numpy()
    recording = background.number
    order = np.lexsort((start_s, recording))
    is_same_recording = np.diff(recording[order]) == 0
    steps_s = np.diff(start_s[order])
    is_near = steps_s < 1.5 * background.hop_s  # no window is missing between them
    return order, is_same_recording & is_near


def score_held_out(
    means: FloatArray, background: Background, covariances: Covariances
) -> FloatArray:
    """Score each window of background for each class by the covariance of the other parts.

    `means` are those of the classes; the result is (windows, classes). A window scores lower with a
    covariance that it is part of, and thresholds would be too low.
    """
    vectors = background.vectors
    scores = np.empty((len(vectors), len(means)))
    for in_part, covariance_of_others in covariances.without:
        scores[in_part] = covariance_of_others.find_discriminants(means)(
            vectors[in_part]
        )
    return scores
