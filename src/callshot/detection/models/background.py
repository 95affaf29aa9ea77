"""Background: vectors of windows without calls, and the recordings that they come from.

A model keeps a sample of at most about 4096 windows. Whether a window belongs to it depends on a
hash of its recording and start, and on how many windows all recordings have. So background that is
collected in parts, in any order, is the same as if it had been collected at once. An annotation
that is added later removes the windows that it touches.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.kernels import streams
from callshot.records import FloatArray, IntArray

Vectors = NDArray[np.float32]
Span = tuple[float, float]
Windows = dict[tuple[str, float], NDArray[np.float32]]
"""Vectors by the sha256 of a recording and the start of a window."""

MOST_WINDOWS = 4096
ANNOTATED = "annotated"
UNLABELLED = "unlabelled"
WITHOUT_CALLS = "without calls"
ORIGINS = (ANNOTATED, UNLABELLED, WITHOUT_CALLS)


@dataclass(frozen=True, order=True)
class BackgroundRecording:
    """A recording with windows of background.

    sha256   of the file, by which the recording is known
    windows  the number of its windows, with those that have calls
    calls_s  starts and ends of all annotations on it
    origin   "annotated": what is not annotated is background, unless a call was missed;
             "unlabelled": most of it is; "without calls": all of it is
    place    where it was made, as far as its path tells; recordings of one place stay together
             when background is held out
    """

    sha256: str
    windows: int
    calls_s: tuple[Span, ...] = ()
    origin: str = ANNOTATED
    place: str = ""


@dataclass(frozen=True, eq=False)
class Background:
    """Windows without calls.

    number   of the recording of each window
    start_s  of each window
    hop_s    from the start of one window to the next
    """

    recordings: tuple[BackgroundRecording, ...]
    vectors: Vectors
    number: IntArray
    start_s: FloatArray
    window_s: float
    hop_s: float

    @property
    def hours(self) -> float:
        """The length of the recordings that the windows stand for."""
        return len(self.vectors) * self.hop_s / 3600

    @property
    def origins(self) -> NDArray[np.str_]:
        """The origin of each window."""
        origins = np.array([recording.origin for recording in self.recordings], np.str_)
        return np.asarray(origins[self.number])


def find_free(
    start_s: FloatArray, window_s: float, calls_s: Iterable[Span]
) -> NDArray[np.bool_]:
    """Return which windows no call touches.

    >>> find_free(np.array([0.0, 3.0, 6.0]), 3.0, [(2.0, 3.0)])
    array([False,  True,  True])
    """
    free = np.ones(len(start_s), bool)
    for call_start_s, call_end_s in calls_s:
        starts_before_end = start_s < call_end_s
        ends_after_start = start_s + window_s > call_start_s
        free &= ~(starts_before_end & ends_after_start)
    return free


def find_sampled(
    sha256: str, start_s: FloatArray, windows_of_all: int
) -> NDArray[np.bool_]:
    """Return which windows of a recording are in the sample: every one, every second, fourth, …"""
    parts = 1
    while windows_of_all > MOST_WINDOWS * parts:
        parts *= 2
    keys = [streams.key(f"background {sha256} {time_s:.6f}") for time_s in start_s]
    limit = np.uint64((2**64 - 1) // parts)
    return np.array(keys, np.uint64) <= limit


def merge_backgrounds(
    first: Background | None, second: Background | None
) -> Background | None:
    """Return the background of all recordings of two, which must have the same windows."""
    if first is None or second is None:
        return first or second
    recordings = _merge_recordings([*first.recordings, *second.recordings])
    windows = _index_windows(first) | _index_windows(second)
    return select_windows(
        recordings, windows, first.vectors.shape[1], first.window_s, first.hop_s
    )


def _index_windows(background: Background) -> Windows:
    columns = zip(background.number, background.start_s, strict=True)
    windows = {}
    for row, (number, start_s) in enumerate(columns):
        key = background.recordings[number].sha256, float(start_s)
        windows[key] = background.vectors[row]
    return windows


def _merge_recordings(
    recordings: Sequence[BackgroundRecording],
) -> list[BackgroundRecording]:
    merged: dict[str, BackgroundRecording] = {}
    for recording in recordings:
        earlier = merged.get(recording.sha256, recording)
        calls_s = {*recording.calls_s, *earlier.calls_s}
        merged[recording.sha256] = BackgroundRecording(
            sha256=recording.sha256,
            windows=recording.windows,
            calls_s=tuple(sorted(calls_s)),
            origin=min(recording.origin, earlier.origin),
            place=max(recording.place, earlier.place),
        )
    return sorted(merged.values())


def select_windows(
    recordings: Sequence[BackgroundRecording],
    windows: Windows,
    dimension: int,
    window_s: float,
    hop_s: float,
) -> Background:
    """Return the background of recordings, from vectors by recording and start."""
    total = sum(recording.windows for recording in recordings)
    starts: dict[str, list[float]] = {recording.sha256: [] for recording in recordings}
    for sha256, time_s in sorted(windows):
        starts[sha256].append(time_s)
    vectors: list[NDArray[np.float32]] = []
    numbers: list[int] = []
    kept_s: list[float] = []
    for number, recording in enumerate(recordings):
        start_s = np.array(starts[recording.sha256], np.float64)
        for time_s in start_s[find_kept(recording, start_s, window_s, total)].tolist():
            vectors.append(windows[recording.sha256, time_s])
            numbers.append(number)
            kept_s.append(time_s)
    return Background(
        recordings=tuple(recordings),
        vectors=np.array(vectors, np.float32).reshape(len(vectors), dimension),
        number=np.array(numbers, np.int64),
        start_s=np.array(kept_s, np.float64),
        window_s=window_s,
        hop_s=hop_s,
    )


def find_kept(
    recording: BackgroundRecording,
    start_s: FloatArray,
    window_s: float,
    windows_of_all: int,
) -> NDArray[np.bool_]:
    """Return which windows of a recording are background, and in the sample."""
    free = find_free(start_s, window_s, recording.calls_s)
    return free & find_sampled(recording.sha256, start_s, windows_of_all)
