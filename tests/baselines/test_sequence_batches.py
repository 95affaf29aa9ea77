"""Batches of sequences: one table of frames, scaling, inner folds; and checks of the input."""

import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.baselines.sequence_batches import (
    BatchData,
    assign_inner_folds,
    frame_scaling,
    held_out_rows,
    padded_index,
    random_batches,
    stack_sequences,
)
from callshot.errors import InputError
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.vectors import Vectors

pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)

from callshot.baselines.recurrent import choose_cell, score_recurrent


@st.composite
def sequences(draw):
    lengths = draw(st.lists(st.integers(1, 9), min_size=1, max_size=12))
    dimension = draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    return [
        rng.normal(3.0, 2.0, (length, dimension)).astype(np.float32)
        for length in lengths
    ]


@st.composite
def labelled(draw):
    """Draw labels without a gap, and the recording of each row."""
    numbers = draw(st.lists(st.integers(0, 4), min_size=2, max_size=40))
    _, label = np.unique(numbers, return_inverse=True)
    groups = draw(
        st.lists(st.integers(0, 12), min_size=len(label), max_size=len(label))
    )
    return label, np.array(groups)


# Fingerprints of rows


LABELS = [
    np.array([2, 0, 1, 1, 0]),
    np.array([[True, False]] * 3 + [[False, True]] * 2),
]


def fingerprint(label, groups, offset=0.0):
    """Return the fingerprint of rows 4, 1, 3 and 2."""
    rows = [np.full((number + 1, 2), number + offset) for number in range(5)]
    data = BatchData(stack_sequences(rows), None, label, np.array(groups))
    return data.fingerprint(np.array([4, 1, 3, 2]))


@pytest.mark.parametrize("label", LABELS)
def test_a_fingerprint_ignores_the_numbers_of_recordings_and_other_rows(label):
    expected = fingerprint(label, [9, 7, 8, 7, 8])
    assert fingerprint(label, [3, 13, 12, 13, 12]) == expected
    other = label.copy()
    other[0] = label[1]
    assert fingerprint(other, [9, 7, 8, 7, 8]) == expected


@pytest.mark.parametrize("label", LABELS)
def test_a_fingerprint_depends_on_frames_labels_and_recordings(label):
    expected = fingerprint(label, [9, 7, 8, 7, 8])
    assert fingerprint(label, [9, 7, 8, 7, 7]) != expected
    assert fingerprint(label, [9, 7, 8, 7, 8], offset=1e-3) != expected
    other = label.copy()
    other[4] = label[1] if label.ndim == 2 else 1
    assert fingerprint(other, [9, 7, 8, 7, 8]) != expected


def test_a_fingerprint_depends_on_the_numbers_of_frames():
    fingerprints = []
    for lengths in ((2, 1), (1, 2)):
        table = stack_sequences([np.zeros((length, 1)) for length in lengths])
        data = BatchData(table, None, np.zeros(2, np.int64), np.arange(2))
        fingerprints.append(data.fingerprint(np.arange(2)))
    assert fingerprints[0] != fingerprints[1]


# Frames


@given(sequences())
def test_scaling_is_that_of_all_frames_together(frames):
    rows = np.arange(0, len(frames), 2)
    together = np.concatenate([frames[row] for row in rows]).astype(np.float64)
    mean, scale = frame_scaling(stack_sequences(frames), rows)
    assert np.allclose(mean, together.mean(axis=0), rtol=1e-12, atol=1e-12)
    deviation = together.std(axis=0)
    varies = deviation > 0
    assert np.allclose(scale[varies] * deviation[varies], 1.0, rtol=1e-9)
    assert (scale[~varies] == 0).all()


def test_a_dimension_that_is_constant_in_training_is_ignored():
    rows = [
        np.array([[0.0, 7.3], [1.0, 7.3]]),
        np.array([[0.0, 7.3]]),
        np.array([[0.0, 1e6]]),
    ]
    _, scale = frame_scaling(stack_sequences(rows), np.array([0, 1]))
    assert scale[1] == 0.0
    assert scale[0] == pytest.approx(1 / np.std([0, 1, 0]))


@given(sequences(), st.integers(1, 5))
def test_frames_are_averaged_in_runs(frames, step):
    table = stack_sequences(frames, step)
    for row, sequence in enumerate(frames):
        starts = range(0, len(sequence), step)
        expected = [sequence[start : start + step].mean(axis=0) for start in starts]
        assert np.allclose(table.row(row), expected, rtol=1e-5, atol=1e-5)


@given(sequences())
def test_a_batch_has_the_frames_of_its_rows_and_repeats_the_last(frames):
    table = stack_sequences(frames)
    rows = np.arange(len(frames))[::-1]
    index, mask = padded_index(table.start[rows], table.lengths[rows])
    assert len(index) == max(map(len, frames))
    for column, row in enumerate(rows):
        real = mask[:, column]
        assert np.array_equal(table.frames[index[real, column]], frames[row])
        assert (table.frames[index[~real, column]] == frames[row][-1]).all()


@given(sequences(), st.integers(1, 4), st.integers(0, 9))
def test_an_epoch_has_every_row_once(frames, size, seed):
    rows = np.arange(len(frames))
    batches = random_batches(
        stack_sequences(frames), rows, size, np.random.default_rng(seed)
    )
    assert sorted(np.concatenate(batches).tolist()) == rows.tolist()
    assert max(map(len, batches)) <= size


def test_the_rows_of_a_batch_have_similar_lengths():
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 500, 256)
    table = stack_sequences([np.zeros((length, 1), np.float32) for length in lengths])
    batches = random_batches(table, np.arange(256), 32, rng)
    ranges = [np.ptp(table.lengths[batch]) for batch in batches]
    assert np.mean(ranges) < 150


# Inner folds


@given(labelled(), st.integers(2, 5))
def test_no_recording_is_on_both_sides_and_every_class_stays_in_training(rows, count):
    label, groups = rows
    fold = assign_inner_folds(label, groups, count)
    for number in range(count):
        held_out = held_out_rows(label, groups, count, number)
        assert not set(groups[held_out]) & set(groups[~held_out])
        assert set(label[~held_out]) == set(label)
        assert (fold[held_out] == number).all()


@given(labelled())
def test_inner_folds_do_not_depend_on_the_numbers_of_recordings(rows):
    label, groups = rows
    expected = assign_inner_folds(label, groups, 4)
    assert np.array_equal(assign_inner_folds(label, 1000 - 7 * groups, 4), expected)


# Checks that need no torch


def make_dataset(each=2):
    """Make two classes with `each` segments, from as many recordings, in each of two folds."""
    fold = np.tile(np.repeat(np.arange(2), each), 2)
    label = ["bark"] * 2 * each + ["roar"] * 2 * each
    names = [f"s{number:02d}" for number in range(len(label))]
    folds = check_folds(names, fold)
    table = Vectors.from_columns(
        "noise", np.zeros((len(label), 1)), names, names, label, [()] * len(label)
    )
    episodes = plan_episodes(table, folds, count_classes(label, folds))
    rng = np.random.default_rng(1)
    return episodes, np.arange(len(label)), [rng.normal(size=(3, 2)) for _ in label]


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (None, r".* of floats, got \(\) of object"),
        (np.zeros((0, 2)), r".* of floats, got \(0, 2\) of float64"),
        (np.zeros(2), r".* of floats, got \(2,\) of float64"),
        (np.zeros((1, 2), int), ".* of floats, got .* of int64"),
        (np.zeros((4, 3)), ".* with 2 dimensions as in row 0, got 3; embed all"),
        (np.array([[0.0, np.inf]]), ".* finite, got NaN or infinity"),
    ],
)
def test_a_sequence_that_cannot_be_used_is_an_error(sequence, message, monkeypatch):
    episodes, groups, rows = make_dataset()
    rows[3] = sequence
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(InputError, match=f"sequence of row 3: expected {message}"):
        score_recurrent(episodes, groups, rows)


@pytest.mark.parametrize(
    ("function", "count"), [(score_recurrent, 7), (choose_cell, 0)]
)
def test_a_wrong_number_of_sequences_is_an_error(function, count, monkeypatch):
    episodes, groups, rows = make_dataset()
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        InputError, match=f"sequences: expected .* of 8 rows, got {count}"
    ):
        function(episodes, groups, rows[:count])


def test_a_class_with_one_example_in_a_split_is_an_error():
    message = "class 'bark': expected at least 2 examples on the support side of fold 0 .*, got 1"
    with pytest.raises(InputError, match=message):
        score_recurrent(*make_dataset(each=1))


def test_the_error_about_a_missing_package_names_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "safetensors", None)
    message = r"safetensors is not installed; pip install 'callshot\[baselines\]'"
    with pytest.raises(InputError, match=message):
        score_recurrent(*make_dataset())
