"""Each example is named by those of other recordings; the literal version loops over all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.detection.model_summary import LabelledVectors, gain_of_one_more


def make_data(seed, classes=3, recordings=4, count=18, variance=0.0):
    rng = np.random.default_rng(seed)
    label = np.concatenate(
        [np.arange(classes), rng.integers(0, classes, count - classes)]
    )
    vectors = rng.normal(size=(count, 4)) + 2.0 * np.eye(4)[label]
    recording = rng.integers(0, recordings, count)
    return LabelledVectors(vectors, label, recording, classes, variance)


def literal_decisions(data, without=None):
    decided = []
    for row, vector in enumerate(data.vectors):
        distances = []
        for number in range(data.classes):
            support = [
                other
                for other in range(len(data.vectors))
                if data.recording[other] != data.recording[row]
                and data.label[other] == number
                and other != without
            ]
            if support:
                mean = data.vectors[support].mean(axis=0)
                same = data.recording == data.recording[row]
                own = np.sum(same & (data.label == number))
                gained = data.variance * (1 / len(support) - 1 / (len(support) + own))
                distances.append(((vector - mean) ** 2).sum() - gained)
            else:
                distances.append(np.inf)
        decided.append(int(np.argmin(distances)))
    return decided


@given(seed=st.integers(0, 10**6), variance=st.sampled_from([0.0, 3.0]))
def test_decisions_are_those_of_the_literal_rule(seed, variance):
    data = make_data(seed, variance=variance)
    testable = data.testable
    expected = np.array(literal_decisions(data))
    decided = data.evidence.argmax(axis=1)
    assert decided[testable].tolist() == expected[testable].tolist()


@pytest.mark.parametrize("recordings", [2, 4, 12])
def test_the_gain_of_one_more_is_that_of_the_literal_rule(recordings):
    data = make_data(0, recordings=recordings, variance=1.0)
    testable = data.testable

    def mean_recall(decided):
        shares = []
        for number in range(data.classes):
            rows = [
                row for row in np.flatnonzero(data.label == number) if testable[row]
            ]
            if rows:
                shares.append(np.mean([decided[row] == number for row in rows]))
        return np.mean(shares)

    full = mean_recall(literal_decisions(data))
    gains = gain_of_one_more(data)
    for number in range(data.classes):
        rows = np.flatnonzero(data.label == number)
        if len(rows) < 3:
            assert np.isnan(gains[number])
            continue
        losses = [full - mean_recall(literal_decisions(data, row)) for row in rows]
        factor = (len(rows) - 1) / (len(rows) + 1)
        np.testing.assert_allclose(gains[number], factor * np.mean(losses), atol=1e-12)


def test_a_class_of_one_recording_is_not_tested():
    label = np.array([0, 0, 1, 1])
    data = LabelledVectors(np.eye(4), label, np.array([0, 0, 0, 1]), 2)
    assert data.testable.tolist() == [False, False, True, True]


def test_without_a_second_recording_nothing_is_tested():
    data = LabelledVectors(np.eye(4), np.array([0, 0, 0, 1]), np.zeros(4, int), 2)
    assert np.isnan(gain_of_one_more(data)).all()
