"""An index and a detector → the windows with a call, recording by recording.

The best class of a window is the one with the highest score. The window is active if that score
reaches the threshold of its class; otherwise it is none of the classes. So is a silent window.
Files of an index are read and scored in several threads; the result does not depend on them.
On a cluster, each recording is an item of work.

Active windows of a recording → events: which windows belong together, their name and edges.

Neighbours    Two active windows that follow each other, with a pause of at most `gap_s` in which
              windows are not active, are neighbours.
Stretch       Neighbouring windows of the same class.
Part of a call
              A window that contains half a call may be taken for another class. So a stretch is
              dropped if each of its windows overlaps or touches a neighbouring stretch with a
              higher score that is not dropped itself. A pause, whatever `gap_s`, parts calls.
Event         Stretches of one class with nothing but dropped ones between them. Its name, score,
              distance and runner-up are those of its strongest window.
Edges         See `refine_edges`.
"""

from bisect import bisect
from collections import deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from callshot.detection.detector import Detector
from callshot.detection.index.index_files import (
    Index,
    IndexedRecording,
    read_span,
    span_paths,
)
from callshot.detection.index.windows import SILENCE_DBFS, split_range
from callshot.encoders.embed import default_threads
from callshot.errors import InputError
from callshot.jobs import Cluster, Job, Outcome
from callshot.pools import Pool
from callshot.records import FloatArray, IntArray
from callshot.vectors import Rows

FILES_AHEAD = 4  # for each thread
BLOCK_WINDOWS = 64  # that are scored at once
ARRAYS = (
    "start_s",
    "end_s",
    "label",
    "score",
    "distance",
    "runner_up",
    "runner_up_score",
)

Tasks = Sequence["Future[ActiveWindows]"]
Scored = tuple[IndexedRecording, Tasks]


@dataclass(frozen=True, eq=False)
class ActiveWindows:
    """The active windows of a recording in order of time, an entry of each array for each.

    label            number of the best class, with its `score` and `distance` from the class mean
    runner_up        number of the second-best class, −1 if there is only one
    scanned, silent  how many windows there were in all, and without any sound
    """

    start_s: FloatArray
    end_s: FloatArray
    label: IntArray
    score: FloatArray
    distance: FloatArray
    runner_up: IntArray
    runner_up_score: FloatArray
    scanned: int
    silent: int

    def __len__(self) -> int:
        return len(self.start_s)


def decide(rows: Rows, detector: Detector) -> ActiveWindows:
    """Return which windows are active, and what they are."""
    vectors = np.asarray(rows["vector"])
    scores = _score_in_blocks(vectors, detector)
    is_silent = rows["rms_dbfs"] <= SILENCE_DBFS
    active = _find_calls(scores, detector, is_silent)
    label, score = _take_best(scores[active])
    runner_up, runner_up_score = _find_runner_up(scores[active], label)
    active_rows = rows[["start_s", "end_s"]][active]
    return ActiveWindows(
        start_s=active_rows["start_s"],
        end_s=active_rows["end_s"],
        label=label,
        score=score,
        distance=_measure_distances(vectors[active], label, detector),
        runner_up=runner_up,
        runner_up_score=runner_up_score,
        scanned=len(rows),
        silent=int(is_silent.sum()),
    )


def _find_calls(
    scores: FloatArray, detector: Detector, is_silent: NDArray[np.bool_]
) -> IntArray:
    """Return the windows whose best class reaches its threshold, without silent ones."""
    best, score = _take_best(scores)
    reaches = score >= detector.thresholds[best]
    return np.flatnonzero(reaches & ~is_silent)


def _score_in_blocks(vectors: NDArray[np.floating], detector: Detector) -> FloatArray:
    """Return the scores of windows; a few at a time stay in the processor's cache."""
    parts = []
    for part in split_range(len(vectors), BLOCK_WINDOWS):
        block = vectors[part].astype(np.float64)
        parts.append(detector.score(block))
    return np.concatenate(parts)


def _take_best(scores: FloatArray) -> tuple[IntArray, FloatArray]:
    """Return the best class of each window, and its score."""
    best = scores.argmax(axis=1)
    best_scores = scores[np.arange(len(scores)), best]
    return best, best_scores


def _find_runner_up(scores: FloatArray, best: IntArray) -> tuple[IntArray, FloatArray]:
    """Return the second-best class of each window, and its score; −1 and NaN if there is none."""
    count, classes = scores.shape
    if classes < 2:
        return np.full(count, -1), np.full(count, np.nan)
    other_scores = scores.copy()
    other_scores[np.arange(count), best] = -np.inf
    return _take_best(other_scores)


def _measure_distances(
    vectors: NDArray[np.floating], label: IntArray, detector: Detector
) -> FloatArray:
    """Return how far each window is from the mean of its class."""
    if not len(vectors):
        return np.zeros(0)
    distances = detector.distances(vectors)
    return np.asarray(distances[np.arange(len(vectors)), label])


def join_windows(parts: Sequence[ActiveWindows]) -> ActiveWindows:
    """Return the windows of several parts of a recording as one."""
    arrays = {}
    for name in ARRAYS:
        arrays[name] = np.concatenate([getattr(part, name) for part in parts])
    scanned = sum(part.scanned for part in parts)
    silent = sum(part.silent for part in parts)
    return ActiveWindows(**arrays, scanned=scanned, silent=silent)


def find_active_windows(
    index: Index,
    recordings: Sequence[IndexedRecording],
    detector: Detector,
    *,
    threads: int | None = None,
) -> Iterator[tuple[IndexedRecording, ActiveWindows | InputError]]:
    """Yield the active windows of each recording, or why its windows cannot be read."""
    threads = threads or default_threads()
    waiting: deque[Scored] = deque()
    # Files are the parallel work; threads inside each product would only wait for each other.
    with threadpool_limits(1, "blas"), Pool(threads) as pool:
        for recording in recordings:
            paths = span_paths(index.folder, recording)
            tasks = [pool.submit(decide_file, path, index, detector) for path in paths]
            waiting.append((recording, tasks))
            while sum(len(tasks) for _, tasks in waiting) > FILES_AHEAD * threads:
                yield _collect(*waiting.popleft())
        while waiting:
            yield _collect(*waiting.popleft())


def decide_file(path: Path, index: Index, detector: Detector) -> ActiveWindows:
    """Return the active windows in a file of an index."""
    return decide(read_span(path, index.settings), detector)


def _collect(
    recording: IndexedRecording, tasks: Tasks
) -> tuple[IndexedRecording, ActiveWindows | InputError]:
    """Wait for the files of a recording."""
    try:
        return recording, join_windows([task.result() for task in tasks])
    except InputError as error:
        return recording, error


@dataclass(frozen=True)
class ScanWork:
    """What a worker has to know: an index, without its recordings, and the detector."""

    index: Index
    detector: Detector


def find_on_cluster(
    cluster: Cluster,
    index: Index,
    recordings: Sequence[IndexedRecording],
    detector: Detector,
) -> Iterator[tuple[IndexedRecording, ActiveWindows | InputError]]:
    """Yield the active windows of each recording in order, as `find_active_windows` does."""
    absolute = replace(index, folder=index.folder.absolute(), recordings=(), rejects=())
    job = Job(
        kind="scan",
        prepare=open_scan_on_worker,
        function=decide_recording,
        common=ScanWork(absolute, detector),
        items=recordings,
        names=[recording.path for recording in recordings],
        sizes=[float(recording.windows) for recording in recordings],
    )
    ended: dict[int, Outcome] = {}
    following = 0
    for outcome in cluster.run(job):
        ended[outcome.number] = outcome
        while following in ended:
            recording = recordings[following]
            yield recording, _get_windows(ended.pop(following), index.folder)
            following += 1


def _get_windows(outcome: Outcome, folder: Path) -> ActiveWindows | InputError:
    if outcome.reason:
        absolute = str(folder.absolute())
        return InputError(outcome.reason.replace(absolute, str(folder)))
    windows: ActiveWindows = outcome.value
    return windows


def open_scan_on_worker(work: ScanWork, threads: int) -> ScanWork:
    """Return what the items need; nothing has to be opened."""
    return work


def decide_recording(work: ScanWork, recording: IndexedRecording) -> ActiveWindows:
    """Return the active windows of a recording."""
    paths = span_paths(work.index.folder, recording)
    parts = [decide_file(path, work.index, work.detector) for path in paths]
    return join_windows(parts)


ROUNDING_S = 1e-6


@dataclass(frozen=True)
class Spacing:
    """How windows follow each other, and what decides about events; all in seconds.

    call_s  typical length of a call of each class
    gap_s   pauses up to this do not end an event
    """

    window_s: float
    hop_s: float
    call_s: FloatArray
    gap_s: float = 0.0


@dataclass(frozen=True)
class Event:
    """An event: its edges, and its strongest window, as a row of the active windows."""

    start_s: float
    end_s: float
    strongest: int


@dataclass
class _Stretch:
    """Active windows of one class from row `first` to row `last`, and the strongest of them."""

    first: int
    last: int
    strongest: int
    score: float
    label: int


def merge_windows(
    windows: ActiveWindows, spacing: Spacing, duration_s: float
) -> list[Event]:
    """Return the events of a recording, in order of time."""
    events = []
    for run in _find_runs(windows, spacing):
        stretches = _drop_parts_of_calls(run, windows)
        calls = _join_same_class(stretches)
        events += [_make_event(call, windows, spacing, duration_s) for call in calls]
    return events


def _find_runs(windows: ActiveWindows, spacing: Spacing) -> list[list[_Stretch]]:
    """Return the stretches of each run of neighbouring windows."""
    step_s = spacing.hop_s + spacing.gap_s + ROUNDING_S
    ends_run = np.diff(windows.start_s, append=np.inf) > step_s
    ends_stretch = np.diff(windows.label, append=-1) != 0
    ends = np.flatnonzero(ends_run | ends_stretch)
    runs: list[list[_Stretch]] = [[]]
    for before, last in pairwise([-1, *ends.tolist()]):
        runs[-1].append(_make_stretch(windows, before + 1, last))
        if ends_run[last]:
            runs.append([])
    return runs[:-1]


def _make_stretch(windows: ActiveWindows, first: int, last: int) -> _Stretch:
    scores = windows.score[first : last + 1]
    strongest = first + int(scores.argmax())
    score = float(windows.score[strongest])
    return _Stretch(first, last, strongest, score, int(windows.label[first]))


def _drop_parts_of_calls(
    run: Sequence[_Stretch], windows: ActiveWindows
) -> list[_Stretch]:
    """Return the stretches of a run that are calls of their own, in order of time."""
    own_calls: list[_Stretch] = []
    for stretch in sorted(run, key=lambda item: -item.score):
        position = bisect(own_calls, stretch.first, key=lambda item: item.first)
        before = own_calls[position - 1] if position > 0 else None
        after = own_calls[position] if position < len(own_calls) else None
        if not _is_covered(stretch, before, after, windows):
            own_calls.insert(position, stretch)
    return own_calls


def _is_covered(
    stretch: _Stretch,
    before: _Stretch | None,
    after: _Stretch | None,
    windows: ActiveWindows,
) -> bool:
    """Return whether each window of a stretch overlaps or touches the one before or after it."""
    rows = slice(stretch.first, stretch.last + 1)
    touches = np.zeros(stretch.last + 1 - stretch.first, bool)
    if before is not None:
        touches |= windows.start_s[rows] <= windows.end_s[before.last] + ROUNDING_S
    if after is not None:
        touches |= windows.end_s[rows] >= windows.start_s[after.first] - ROUNDING_S
    return bool(touches.all())


def _join_same_class(stretches: Sequence[_Stretch]) -> list[_Stretch]:
    """Return stretches, with those of the same class that follow each other as one."""
    joined: list[_Stretch] = []
    for stretch in stretches:
        if not joined or joined[-1].label != stretch.label:
            joined.append(stretch)
            continue
        earlier = joined[-1]
        earlier.last = stretch.last
        if stretch.score > earlier.score:
            earlier.strongest = stretch.strongest
            earlier.score = stretch.score
    return joined


def _make_event(
    stretch: _Stretch, windows: ActiveWindows, spacing: Spacing, duration_s: float
) -> Event:
    start_s, end_s = refine_edges(
        float(windows.start_s[stretch.first]),
        float(windows.start_s[stretch.last]),
        float(windows.end_s[stretch.last]),
        float(spacing.call_s[stretch.label]),
        spacing,
        duration_s,
    )
    return Event(start_s, end_s, stretch.strongest)


def refine_edges(
    first_start_s: float,
    last_start_s: float,
    end_s: float,
    call_s: float,
    spacing: Spacing,
    duration_s: float,
) -> tuple[float, float]:
    """Return when an event begins and ends.

    A call is in the middle of the windows that it makes active. As windows of `window_s` follow
    each other by `hop_s`, one short call makes windows active for up to about `window_s`; only what
    goes beyond that makes an event longer than a typical call. So its length is

        min(call_s + hop_s, window_s) + max(0, active_s − window_s),
        active_s = last_start_s − first_start_s + hop_s

    and never more than all its windows. Without overlap these are the edges of its windows. An
    event that begins or ends with the recording keeps that edge.

    >>> spacing = Spacing(3.0, 1.0, np.array([1.0]))
    >>> refine_edges(10.0, 12.0, 15.0, 1.0, spacing, 60.0)
    (11.5, 13.5)
    >>> refine_edges(10.0, 18.0, 21.0, 1.0, spacing, 60.0)
    (11.5, 19.5)
    >>> refine_edges(12.0, 15.0, 18.0, 1.0, Spacing(3.0, 3.0, np.array([1.0])), 60.0)
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
    last_s = end_s if ends_with_recording else end_s - trimmed_s
    return start_s, last_s
