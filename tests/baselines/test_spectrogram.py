"""The front end of the end-to-end baseline: Kaldi's log-mel frames, and crops. Without torch."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.baselines import spectrogram
from callshot.baselines.spectrogram import (
    AERD,
    AST,
    BEATS,
    MAX_COLUMNS,
    Crops,
    batch_crops,
    log_mel,
    random_crops,
    window_crops,
)


def make_noise(samples):
    return np.random.default_rng(1).normal(0.0, 0.1, samples).astype(np.float32)


def literal_log_mel(signal, front_end):
    """Compute one frame and one point at a time, as in Kaldi's manual."""

    def mel(frequency_hz):
        return 1127.0 * math.log(1.0 + frequency_hz / 700.0)

    hann = np.array([0.5 - 0.5 * math.cos(2 * math.pi * n / 399) for n in range(400)])
    window = hann ** (1.0 if front_end == AST else 0.85)
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


@pytest.mark.parametrize("front_end", [AERD, BEATS, AST])
def test_frames_equal_a_slow_transcription(front_end):
    signal = make_noise(880)
    frames = log_mel(signal, front_end)[:4]
    assert np.abs(frames - literal_log_mel(signal, front_end)).max() <= 1e-5


def test_blocks_do_not_change_the_frames(monkeypatch):
    expected = log_mel(make_noise(16_000))
    monkeypatch.setattr(spectrogram, "BLOCK_FRAMES", 7)
    assert np.array_equal(log_mel(make_noise(16_000)), expected)


def test_a_signal_shorter_than_a_patch_is_padded_with_zeros():
    short = make_noise(300)
    assert log_mel(short).shape == (16, 128)
    assert np.array_equal(log_mel(short), log_mel(np.pad(short, (0, 2500))))


def test_silence_is_finite():
    assert np.isfinite(log_mel(np.zeros(5000, np.float32))).all()


# Crops


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
    assert np.array_equal(
        crops.columns, np.minimum(np.array(lengths) // 16, MAX_COLUMNS)
    )
    assert (crops.first >= 0).all()
    assert (crops.first + 16 * crops.columns <= lengths).all()


def test_random_crops_of_a_long_row_start_everywhere():
    lengths = np.array([70 * 16])
    rng = np.random.default_rng(1)
    crops = [random_crops(lengths, np.array([0]), rng) for _ in range(2000)]
    assert {int(crop.first[0]) for crop in crops} == {*range(6 * 16 + 1)}


def test_crops_are_batched_the_shortest_first():
    crops = window_crops(np.array([40, 80]), np.array([1, 0]))
    (batch,) = batch_crops(crops, 8)
    assert batch.row.tolist() == [0, 1]
    assert batch.columns.tolist() == [2, 5]
