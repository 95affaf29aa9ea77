"""Batches of sequences: one table of frames, scaling, inner folds; and checks of the input."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.baselines import sequence_batches
from callshot.baselines.sequence_batches import (
    AERD_FRONT_END,
    AST_FRONT_END,
    BEATS_FRONT_END,
    MAX_COLUMNS,
    BatchData,
    Crops,
    assign_inner_folds,
    batch_crops,
    frame_scaling,
    held_out_rows,
    log_mel,
    padded_index,
    random_batches,
    random_crops,
    stack_sequences,
    window_crops,
)
from callshot.errors import InputError
from corpora import episodes_of, gaussian_corpus

pytest.importorskip("torch")

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
def test_a_fingerprint_depends_on_frames_labels_and_recordings_whatever_their_numbers(
    label,
):
    expected = fingerprint(label, [9, 7, 8, 7, 8])
    assert fingerprint(label, [3, 13, 12, 13, 12]) == expected
    other = label.copy()
    other[0] = label[1]  # another row
    assert fingerprint(other, [9, 7, 8, 7, 8]) == expected
    assert fingerprint(label, [9, 7, 8, 7, 7]) != expected
    assert fingerprint(label, [9, 7, 8, 7, 8], offset=1e-3) != expected
    other[4] = label[1] if label.ndim == 2 else 1
    assert fingerprint(other, [9, 7, 8, 7, 8]) != expected


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
    table = gaussian_corpus((2 * each, 2 * each), 2, folds=2, common=0)
    episodes = episodes_of(table)
    rng = np.random.default_rng(1)
    sequences = [rng.normal(size=(3, 2)) for _ in episodes.rows]
    return episodes, np.arange(len(sequences)), sequences


@pytest.mark.parametrize(
    ("sequence", "message"),
    [
        (None, r".* of floats, got \(\) of object"),
        (np.zeros((0, 2)), r".* of floats, got \(0, 2\) of float64"),
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


def test_too_few_sequences_or_examples_and_a_missing_package_are_errors(monkeypatch):
    episodes, groups, rows = make_dataset()
    monkeypatch.setitem(sys.modules, "safetensors", None)
    for function, inputs, message in (
        (score_recurrent, (episodes, groups, rows[:7]), "sequences: .* 8 rows, got 7"),
        (choose_cell, (episodes, groups, []), "sequences: expected .* 8 rows, got 0"),
        (
            score_recurrent,
            make_dataset(each=1),
            "class 'type 0': expected at least 2 .* side of fold 0 .*, got 1",
        ),
        (
            score_recurrent,
            make_dataset(),
            r"safetensors is not installed; pip install 'callshot\[baselines\]'",
        ),
    ):
        with pytest.raises(InputError, match=message):
            function(*inputs)


def make_noise(samples):
    return np.random.default_rng(1).normal(0.0, 0.1, samples).astype(np.float32)


def literal_log_mel(signal, front_end):
    """Compute one frame and one point at a time, as in Kaldi's manual."""

    def mel(frequency_hz):
        return 1127.0 * math.log(1.0 + frequency_hz / 700.0)

    hann = np.array([0.5 - 0.5 * math.cos(2 * math.pi * n / 399) for n in range(400)])
    window = hann ** (1.0 if front_end == AST_FRONT_END else 0.85)
    step = (mel(8000.0) - mel(20.0)) / 129
    frames = np.zeros((1 + (len(signal) - 400) // 160, 128))
    for t in range(len(frames)):
        x = signal[160 * t : 160 * t + 400].astype(float) * front_end.gain
        x = x - x.mean()
        x = np.array([x[n] - 0.97 * x[max(n - 1, 0)] for n in range(400)]) * window
        waves = [np.exp(-2j * np.pi * k * np.arange(400) / 512) for k in range(256)]
        power = [abs(sum(x * wave)) ** 2 for wave in waves]
        for band in range(128):
            left, centre, right = (mel(20.0) + (band + n) * step for n in range(3))
            total = 0.0
            for k in range(256):
                point = mel(k * 31.25)
                rising = (point - left) / (centre - left)
                falling = (right - point) / (right - centre)
                total += power[k] * max(0.0, min(rising, falling))
            frames[t, band] = math.log(max(total, 1.1920928955078125e-07))
    return (frames - front_end.mean) / (2 * front_end.deviation)


@pytest.mark.parametrize("front_end", [AERD_FRONT_END, BEATS_FRONT_END, AST_FRONT_END])
def test_frames_equal_a_slow_transcription(front_end):
    signal = make_noise(880)
    frames = log_mel(signal, front_end)[:4]
    assert np.abs(frames - literal_log_mel(signal, front_end)).max() <= 1e-5


def test_blocks_do_not_change_the_frames(monkeypatch):
    expected = log_mel(make_noise(16_000))
    monkeypatch.setattr(sequence_batches, "BLOCK_FRAMES", 7)
    assert np.array_equal(log_mel(make_noise(16_000)), expected)


def test_a_signal_shorter_than_a_patch_is_padded_with_zeros():
    short = make_noise(300)
    assert log_mel(short).shape == (16, 128)
    assert np.array_equal(log_mel(short), log_mel(np.pad(short, (0, 2500))))


@given(st.lists(st.integers(16, 5000), min_size=1, max_size=6))
def test_windows_have_every_whole_column_once(lengths):
    crops = window_crops(np.array(lengths), np.arange(len(lengths)))
    for row, length in enumerate(lengths):
        windows = Crops(*(column[crops.row == row] for column in crops))
        columns = []
        for first, count in zip(windows.first, windows.columns, strict=True):
            columns += [first + 16 * n for n in range(count)]
        assert columns == [16 * n for n in range(length // 16)]
        assert windows.columns.max() <= MAX_COLUMNS
        assert windows.columns.max() - windows.columns.min() <= 1


@given(st.lists(st.integers(16, 5000), min_size=1, max_size=6), st.integers(0, 99))
def test_random_crops_are_inside_their_rows(lengths, seed):
    rows = np.arange(len(lengths))
    crops = random_crops(np.array(lengths), rows, np.random.default_rng(seed))
    expected = np.minimum(np.array(lengths) // 16, MAX_COLUMNS)
    assert np.array_equal(crops.columns, expected)
    batches = batch_crops(crops, 2)
    columns = np.concatenate([batch.columns for batch in batches])
    assert np.array_equal(columns, np.sort(expected))
    assert (crops.first >= 0).all()
    assert (crops.first + 16 * crops.columns <= lengths).all()
