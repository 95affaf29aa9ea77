"""Windows of an index and a detector → the windows with a call → events.

The best class of a window is the one with the highest score. The window is active if that score
reaches the threshold of its class; otherwise it is none of the classes. So is a silent window.
Recordings are read and scored in several threads; the result does not depend on them.
On a cluster, each recording is an item of work.

Active windows of a recording become events:

Neighbours    Two active windows that follow each other, with a pause of at most `gap_s` in which
              windows are not active, are neighbours.
Stretch       Neighbouring windows of the same class.
Part of a call
              A window that contains half a call may be taken for another class. So a stretch is
              dropped if each of its windows overlaps or touches a neighbouring stretch with a
              higher score that is not dropped itself. A pause, whatever `gap_s`, parts calls.
Event         Stretches of one class with nothing but dropped ones between them. All columns of an
              event but its edges are those of its strongest window.
Edges         See `refine_edges`.
"""

from bisect import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from callshot.chunks import Rows
from callshot.detection.detector import Detector
from callshot.detection.index.index_files import (
    Index,
    IndexedRecording,
    read_span,
    span_paths,
)
from callshot.detection.index.windows import SILENCE_DBFS
from callshot.encoders.workers import default_threads
from callshot.errors import InputError
from callshot.jobs import Cluster, Job, Pool
from callshot.records import FloatArray

BLOCK_WINDOWS = 64  # that are scored at once
ROUNDING_S = 1e-6
DIGITS = 6  # of the times of events: microseconds

Work = tuple[Index, Detector]
Columns = dict[str, NDArray[Any]]
"""Arrays of one length."""


class ActiveWindows(NamedTuple):
    """The active windows of a recording in order of time, and how many of all were silent.

    The columns are start_s, end_s and those of events: what is added to `decide` is a column of
    events.csv. They are arrays, because a frame for each file would take a fifth of a scan.
    """

    columns: Columns
    silent: int


def decide(rows: Rows, detector: Detector) -> ActiveWindows:
    """Return which windows are active, and what they are."""
    vectors = np.asarray(rows["vector"])
    parts = []
    # A few at a time stay in the processor's cache.
    for start in range(0, len(vectors), BLOCK_WINDOWS):
        block = vectors[start : start + BLOCK_WINDOWS]
        parts.append(detector.score(block.astype(np.float64)))
    scores = np.concatenate(parts)
    best = scores.argmax(axis=1)
    best_scores = scores[np.arange(len(scores)), best]
    is_silent = rows["rms_dbfs"] <= SILENCE_DBFS
    reaches = best_scores >= detector.thresholds[best]
    active = np.flatnonzero(reaches & ~is_silent)
    label = best[active]
    number = np.arange(len(active))
    distances = detector.distances(vectors[active])
    names = np.array(detector.classes, object)
    columns = {
        "start_s": rows["start_s"][active],
        "end_s": rows["end_s"][active],
        "label": names[label],
        "score": best_scores[active],
        "distance": distances[number, label],
    }
    if len(names) > 1:
        other_scores = scores[active]
        other_scores[number, label] = -np.inf
        second = other_scores.argmax(axis=1)
        columns["runner_up"] = names[second]
        columns["runner_up_score"] = other_scores[number, second]
    return ActiveWindows(columns, int(is_silent.sum()))


def find_active_windows(
    index: Index,
    recordings: Sequence[IndexedRecording],
    detector: Detector,
    *,
    threads: int | None = None,
    cluster: Cluster | None = None,
) -> Iterator[tuple[IndexedRecording, ActiveWindows | InputError]]:
    """Yield the active windows of each recording in order, or why they cannot be read."""
    if cluster is None:

        def attempt(recording: IndexedRecording) -> ActiveWindows | InputError:
            try:
                return decide_recording((index, detector), recording)
            except InputError as error:
                return error

        # Recordings are the parallel work; threads inside each product would only wait for each
        # other.
        with threadpool_limits(1, "blas"), Pool(threads or default_threads()) as pool:
            yield from zip(recordings, pool.map(attempt, recordings), strict=True)
        return
    absolute = replace(index, folder=index.folder.absolute(), recordings=(), rejects=())
    job = Job(
        kind="scan",
        prepare=open_scan_on_worker,
        function=decide_recording,
        common=(absolute, detector),
        items=recordings,
        names=[recording.path for recording in recordings],
        sizes=[float(recording.windows) for recording in recordings],
    )
    for outcome in sorted(cluster.run(job), key=attrgetter("number")):
        windows = outcome.value
        if outcome.reason:
            reason = outcome.reason.replace(str(absolute.folder), str(index.folder))
            windows = InputError(reason)
        yield recordings[outcome.number], windows


def open_scan_on_worker(work: Work, threads: int) -> Work:
    """Return what the items need: an index without its recordings, and the detector."""
    return work


def decide_recording(work: Work, recording: IndexedRecording) -> ActiveWindows:
    """Return the active windows of a recording."""
    index, detector = work
    parts = [
        decide(read_span(path, index.settings), detector)
        for path in span_paths(index.folder, recording)
    ]
    columns = join_columns([part.columns for part in parts])
    return ActiveWindows(columns, sum(part.silent for part in parts))


def join_columns(parts: Sequence[Columns]) -> Columns:
    """Return the rows of all parts, which have the same columns."""
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


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


class _Stretch(NamedTuple):
    """Active windows of one class from row `first` to row `last`, and the strongest of them."""

    first: int
    last: int
    strongest: int


def merge_windows(windows: Columns, spacing: Spacing, duration_s: float) -> Columns:
    """Return the events of a recording in order of time, with the columns of their windows."""
    starts_s = windows["start_s"]
    ends_s = windows["end_s"]
    scores = windows["score"]
    step_s = spacing.hop_s + spacing.gap_s + ROUNDING_S
    ends_run = np.diff(starts_s, append=np.inf) > step_s
    names = windows["label"]
    ends_stretch = np.append(names[1:] != names[:-1], True)
    calls = []
    run = []
    first = 0
    for last in np.flatnonzero(ends_run | ends_stretch).tolist():
        strongest = first + int(scores[first : last + 1].argmax())
        run.append(_Stretch(first, last, strongest))
        first = last + 1
        if ends_run[last]:
            joined: list[_Stretch] = []
            for call in _drop_parts_of_calls(run, starts_s, ends_s, scores):
                earlier = joined[-1] if joined else None
                if earlier is None or names[earlier.first] != names[call.first]:
                    joined.append(call)
                    continue
                best = max(earlier.strongest, call.strongest, key=scores.__getitem__)
                joined[-1] = _Stretch(earlier.first, call.last, best)
            calls += joined
            run = []
    strongest_rows = [call.strongest for call in calls]
    events = {name: column[strongest_rows] for name, column in windows.items()}
    for row, call in enumerate(calls):
        start_s, end_s = refine_edges(
            float(starts_s[call.first]),
            float(starts_s[call.last]),
            float(ends_s[call.last]),
            float(spacing.call_s[names[call.strongest]]),
            spacing,
            duration_s,
        )
        events["start_s"][row] = round(start_s, DIGITS)
        events["end_s"][row] = round(end_s, DIGITS)
    return events


def _drop_parts_of_calls(
    run: Sequence[_Stretch],
    starts_s: FloatArray,
    ends_s: FloatArray,
    scores: FloatArray,
) -> list[_Stretch]:
    """Return the stretches of a run that are calls of their own, in order of time."""
    own_calls: list[_Stretch] = []
    for stretch in sorted(run, key=lambda item: -scores[item.strongest]):
        rows = slice(stretch.first, stretch.last + 1)
        touches = np.zeros(stretch.last + 1 - stretch.first, bool)
        position = bisect(own_calls, stretch.first, key=lambda item: item.first)
        if position > 0:
            before = own_calls[position - 1]
            touches |= starts_s[rows] <= ends_s[before.last] + ROUNDING_S
        if position < len(own_calls):
            after = own_calls[position]
            touches |= ends_s[rows] >= starts_s[after.first] - ROUNDING_S
        if not touches.all():
            own_calls.insert(position, stretch)
    return own_calls


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
    last_s = end_s if ends_with_recording else end_s - trimmed_s
    return start_s, last_s
