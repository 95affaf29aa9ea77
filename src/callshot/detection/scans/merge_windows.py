"""Active windows of a recording → events: which windows belong together, their name and edges.

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
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from callshot.detection.scans.active_windows import ActiveWindows
from callshot.records import FloatArray

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
