"""Neighbouring active windows become events: which, what they are called, and their edges."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.detection.edges import Spacing, merge_windows
from literal_events import NONE, literal_events

CALL_S = {0: 1.0, 1: 0.25, 2: 5.0}


def make_windows(labels, scores, window_s, hop_s, duration_s):
    """Return the active windows of a recording; −1 is a window without a call."""
    starts = [n * hop_s for n in range(len(labels))]
    active = [n for n, label in enumerate(labels) if label != NONE]
    start_s = np.array([starts[n] for n in active], float)
    return {
        "start_s": start_s,
        "end_s": np.minimum(start_s + window_s, duration_s),
        "label": np.array([labels[n] for n in active], int),
        "score": np.array([scores[n] for n in active], float),
    }


def merge(labels, scores=None, *, window_s=3.0, hop_s=3.0, gap_s=0.0):
    """Return start, end, label and score of the events in windows of some labels."""
    scores = scores or [1.0] * len(labels)
    duration_s = len(labels) * hop_s + window_s + 1
    windows = make_windows(labels, scores, window_s, hop_s, duration_s)
    spacing = Spacing(window_s, hop_s, CALL_S, gap_s)
    events = merge_windows(windows, spacing, duration_s)
    return list(zip(*(column.tolist() for column in events.values()), strict=True))


def test_an_event_is_named_by_its_strongest_window():
    assert merge([NONE, 0, 1, 0], [0, 1.0, 3.0, 2.0]) == [(6.0, 9.0, 1, 3.0)]
    assert merge([NONE, 0, 1, 0], [0, 5.0, 3.0, 4.0]) == [(3.0, 12.0, 0, 5.0)]


def test_with_overlap_a_short_call_is_in_the_middle_of_its_windows():
    # A call of 1 s at 12.5 s is whole in the windows that begin at 11 and 12 s.
    labels = [NONE] * 20
    labels[11] = labels[12] = 0
    assert merge(labels, hop_s=1.0) == [(12.0, 14.0, 0, 1.0)]


@given(
    labels=st.lists(st.sampled_from([NONE, 0, 1, 2]), max_size=40),
    hops=st.sampled_from([(3.0, 3.0), (3.0, 1.0), (2.0, 0.5), (1.0, 0.75)]),
    gap_s=st.sampled_from([0.0, 1.0, 3.5]),
    tail_s=st.sampled_from([0.0, 10.0]),
    seed=st.integers(0, 5),
)
def test_events_are_those_of_the_literal_rules(labels, hops, gap_s, tail_s, seed):
    window_s, hop_s = hops
    scores = np.random.default_rng(seed).integers(0, 6, len(labels)).astype(float)
    duration_s = (len(labels) - 1) * hop_s + window_s + tail_s
    windows = make_windows(labels, scores, window_s, hop_s, duration_s)
    spacing = Spacing(window_s, hop_s, CALL_S, gap_s)
    events = merge_windows(windows, spacing, duration_s)
    expected = literal_events(
        labels, scores, window_s, hop_s, gap_s, duration_s, CALL_S
    )
    rows = zip(*(column.tolist() for column in events.values()), strict=True)
    ends_s = {}
    for event, wanted in zip(rows, expected, strict=True):
        start_s, end_s, label, score = event
        assert start_s >= ends_s.get(label, 0.0)
        ends_s[label] = end_s
        assert (start_s, end_s) == pytest.approx(wanted[:2])
        assert (label, score) == wanted[2:]
        assert 0 <= start_s < end_s <= duration_s
