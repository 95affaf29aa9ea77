"""Calls that are much shorter than the windows of a detector."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import callshot
from literal_matching import literal_iou

COLUMNS = ["recording", "start_s", "end_s", "label", "score"]
HOUR = {"a.wav": 3600.0}


def frame(rows):
    return pl.DataFrame(rows, COLUMNS[: len(rows[0])], orient="row")


def make_calls(length_s, count=20):
    """Return calls, and detections of 3 s that contain all of them but one."""
    starts = [30.0 * number + 1 for number in range(count)]
    calls = [("a.wav", start, start + length_s, "hoot") for start in starts]
    found = [("a.wav", start - 1, start + 2, "hoot", 0.5) for start in starts[1:]]
    return calls, found


def score(found, calls, **options):
    return callshot.score_detections(
        frame(found), frame(calls), recordings=HOUR, samples=1, **options
    )


def test_scores_by_windows_come_first_where_no_detection_can_match_a_call():
    calls, found = make_calls(0.7)
    result = score(found, calls, false_alarms_per_hour=1.0)
    assert result.scores["by"][0] == "windows"
    assert result.scores["recall"][0] == pytest.approx(19 / 20)
    assert result.curve["by"][0] == "windows"
    events = result.scores.filter(by="events", label="hoot").row(0, named=True)
    assert (events["unreachable"], events["recall"]) == (20, 0.0)
    assert (events["misplaced"], events["false_alarms"]) == (19, 0)
    assert any("20 of 20" in warning for warning in result.warnings)
    threshold = result.thresholds.row(0, named=True)
    assert (threshold["by"], threshold["recall"]) == ("windows", pytest.approx(0.95))


def test_scores_by_events_come_first_where_calls_are_long_enough():
    calls, found = make_calls(1.0)
    result = score(found, calls)
    assert result.scores["by"][0] == "events"
    assert result.scores["recall"][0] == pytest.approx(19 / 20)
    assert not result.warnings


def test_scores_by_windows_come_first_where_detections_have_many_calls_each():
    calls, _ = make_calls(1.0)
    long = [("a.wav", 0.0, 120.0, "hoot", 0.5), ("a.wav", 120.0, 600.0, "hoot", 0.4)]
    result = score(long, calls)
    assert result.scores["by"][0] == "windows"
    assert result.scores.filter(by="events", label="hoot")["unreachable"][0] == 20
    assert any("believe the scores by windows" in one for one in result.warnings)


def test_calls_that_share_a_detection_are_counted_but_those_found_are_not():
    calls, found = make_calls(1.0)
    joined = [("a.wav", *found[0][1:3], "hoot", 0.9), *found[1:-2]]
    last_two = ("a.wav", found[-2][1], found[-1][2], "hoot", 0.3)
    result = score([*joined, last_two], calls)
    assert result.scores["by"][0] == "events"
    assert result.scores.filter(by="events", label="hoot")["unreachable"][0] == 2


@settings(max_examples=15)
@given(st.floats(0.01, 3.0), st.floats(0.05, 1.0), st.floats(-3.0, 3.0))
def test_no_window_matches_a_call_that_counts_as_unreachable(length_s, iou, shift_s):
    calls, found = make_calls(length_s, 2)
    result = score(found, calls, iou=iou)
    unreachable = result.scores.filter(by="events")["unreachable"][0]
    window = np.array([1.0 + shift_s, 4.0 + shift_s])
    reached = literal_iou(window, (1.0, 1.0 + length_s))
    if unreachable:
        assert reached < iou


def test_windows_beside_a_call_are_no_false_alarms_and_other_calls_are_wrong_names():
    calls = [("a.wav", 1.0, 2.0, "hoot"), ("a.wav", 60.0, 61.0, "roar")]
    found = [
        ("a.wav", 0.5, 4.0, "hoot", 0.9),  # two windows, the call is in the first
        ("a.wav", 60.0, 62.0, "hoot", 0.8),  # a roar
        ("a.wav", 90.0, 92.0, "hoot", 0.7),  # nothing
    ]
    result = score(found, calls)
    row = result.scores.filter(by="windows", label="hoot").row(0, named=True)
    names = ("detected", "correct", "misplaced", "wrong_name", "false_alarms")
    assert [row[name] for name in names] == [4, 1, 1, 1, 1]
    assert row["precision"] == pytest.approx(1 / 4)
    assert row["false_alarms_per_hour"] == pytest.approx(1.0)
    curve = result.curve.filter(by="windows", label="hoot")
    assert curve["wrong_name"].to_list() == [0, 1, 1]
    assert curve["false_alarms"].to_list() == [0, 0, 1]
