"""Metrics of ranked detections, beside a literal version of each."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.detection.matching import (
    CORRECT,
    FALSE_ALARM,
    RankedDetections,
    Task,
    average_precision,
    find_threshold,
    measure,
    precision_recall_curve,
    rank_events,
    rank_windows,
    sample_weights,
)
from callshot.records.frames import EVENTS

RECORDINGS = 4
# score, whether it is correct, recording
DETECTIONS = st.lists(
    st.tuples(st.integers(0, 6), st.booleans(), st.integers(0, RECORDINGS - 1)),
    max_size=25,
)
WEIGHTS = st.lists(st.integers(0, 3), min_size=RECORDINGS, max_size=RECORDINGS).filter(
    any
)


def make_ranked(detections, missed=2):
    ordered = sorted(detections, key=lambda detection: -detection[0])
    annotated = np.full(RECORDINGS, missed)
    outcomes = []
    for _, is_correct, recording in ordered:
        annotated[recording] += is_correct
        outcomes.append(CORRECT if is_correct else FALSE_ALARM)
    return RankedDetections(
        "roar",
        np.array([score for score, _, _ in ordered], np.float64),
        np.array(outcomes, np.int64),
        np.array([recording for *_, recording in ordered], np.int64),
        annotated,
        np.arange(1.0, RECORDINGS + 1),
    )


def repeat(ranked, weights):
    """Return score and correctness of every detection as often as its recording counts."""
    rows = []
    is_correct = ranked.outcome == CORRECT
    for score, correct, recording in zip(
        ranked.score, is_correct, ranked.recording, strict=True
    ):
        rows += [(float(score), int(correct))] * weights[recording]
    return rows


def literal_average_precision(rows, annotated):
    total = 0.0
    recall_before = 0.0
    for threshold in sorted({score for score, _ in rows}, reverse=True):
        above = [correct for score, correct in rows if score >= threshold]
        recall = sum(above) / annotated
        total += (recall - recall_before) * sum(above) / len(above)
        recall_before = recall
    return total


@given(DETECTIONS, WEIGHTS)
def test_average_precision_is_the_sum_over_thresholds(detections, weights):
    ranked = make_ranked(detections)
    annotated = int(np.dot(weights, ranked.annotated))
    expected = literal_average_precision(repeat(ranked, weights), annotated)
    value = average_precision(ranked, np.array(weights, np.float64))
    assert value == pytest.approx(expected, abs=1e-12)


@given(DETECTIONS, WEIGHTS, st.sampled_from([None, 3.0]))
def test_the_other_metrics_are_quotients_of_counts(detections, weights, threshold):
    ranked = make_ranked(detections)
    rows = repeat(ranked, weights)
    if threshold is not None:
        rows = [row for row in rows if row[0] >= threshold]
    correct = sum(one for _, one in rows)
    annotated = int(np.dot(weights, ranked.annotated))
    hours = float(np.dot(weights, ranked.hours))
    values = measure([ranked], np.array([weights], np.float64), threshold)
    assert values["recall"] == pytest.approx(correct / annotated)
    assert values["f1"] == pytest.approx(2 * correct / (len(rows) + annotated))
    assert values["false_alarms_per_hour"] == pytest.approx(
        (len(rows) - correct) / hours
    )
    if rows:
        assert values["precision"] == pytest.approx(correct / len(rows))
    else:
        assert np.isnan(values["precision"]).all()


def test_classes_together_have_the_sum_of_counts_and_the_mean_of_average_precisions():
    one = make_ranked([(5, True, 0), (4, False, 1)])
    other = make_ranked([(3, True, 2), (2, True, 3), (1, False, 0)])
    once = np.ones((1, RECORDINGS))
    values = measure([one, other], once)
    assert values["precision"] == pytest.approx([3 / 5])
    parts = [average_precision(ranked, once[0]) for ranked in (one, other)]
    assert values["average_precision"] == pytest.approx([sum(parts) / 2])


@given(DETECTIONS, st.sampled_from([0.05, 0.2, 0.5, 5.0]))
def test_the_threshold_of_an_aim_is_the_lowest_that_meets_it(detections, aim):
    ranked = make_ranked(detections)
    hours = ranked.hours.sum()
    meeting = []
    for threshold in sorted(set(ranked.score.tolist()), reverse=True):
        above = ranked.outcome[ranked.score >= threshold]
        if np.sum(above == FALSE_ALARM) / hours <= aim:
            meeting.append(threshold)
    curve = precision_recall_curve(ranked, "events")
    row = find_threshold(curve, "roar", aim).row(0, named=True)
    assert row["threshold"] == min(meeting, default=None)
    assert row["is_lowest"] == (len(meeting) == len(set(ranked.score.tolist())))


def test_a_curve_goes_from_the_highest_threshold_down():
    ranked = make_ranked([(5, True, 0), (5, False, 1), (4, True, 1)], missed=0)
    curve = precision_recall_curve(ranked, "events")
    assert curve["threshold"].to_list() == [5.0, 4.0]
    assert curve["precision"].to_list() == [0.5, 2 / 3]
    assert curve["recall"].to_list() == [0.5, 1.0]
    assert curve["false_alarms_per_hour"].to_list() == [0.1, 0.1]


def test_samples_of_recordings_have_the_same_number_and_depend_on_the_seed_only():
    weights = sample_weights(7, 300, 0)
    assert (weights.sum(axis=1) == 7).all()
    assert abs(weights.mean() - 1) < 1e-12
    assert weights.std() == pytest.approx(np.sqrt(6 / 7), abs=0.05)
    assert (weights == sample_weights(7, 300, 0)).all()
    assert (weights != sample_weights(7, 300, 1)).any()


EVENT = st.tuples(
    st.sampled_from(["a", "b"]),
    st.integers(0, 40),
    st.integers(1, 20),
    st.integers(0, 5),
)


def make_events(rows):
    columns = [
        (name, start / 4, (start + length) / 4, "roar", float(score))
        for name, start, length, score in rows
    ]
    filled = [(*row, *[None] * (len(EVENTS) - 5)) for row in columns]
    return pl.DataFrame(filled, dict(EVENTS), orient="row")


@given(st.lists(EVENT, max_size=8), st.lists(EVENT, max_size=8))
def test_windows_are_correct_where_an_annotation_shares_time_with_them(first, second):
    window_s = 1.5
    durations_s = {"a": 20.0, "b": 20.0}
    detections = make_events(first)
    annotations = make_events(second)
    task = Task(detections, annotations, ["a", "b"], durations_s, 0.3)
    _, outcome = rank_events(task, "roar")
    ranked = rank_windows(task, "roar", outcome, window_s)
    expected = []
    annotated = {"a": 0, "b": 0}
    for name in durations_s:
        for number in range(14):
            low, high = number * window_s, (number + 1) * window_s
            touches = (
                (pl.col("recording") == name)
                & (pl.col("start_s") < high)
                & (pl.col("end_s") > low)
            )
            is_positive = len(annotations.filter(touches)) > 0
            annotated[name] += is_positive
            score = detections.filter(touches)["score"].max()
            if score is not None:
                expected.append((score, int(is_positive), "ab".index(name)))
    is_correct = (ranked.outcome == CORRECT).astype(int)
    rows = zip(ranked.score, is_correct, ranked.recording, strict=True)
    assert sorted(rows) == sorted(expected)
    assert ranked.annotated.tolist() == list(annotated.values())
    assert (np.diff(ranked.score) <= 0).all()
