"""MFCC equal those of librosa, are finite, and reject bad input in one line."""

import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import open_encoder
from callshot.encoders.models.mfcc import (
    PAPER,
    MfccOptions,
    compute_mean_mfcc,
    compute_mfcc,
)
from callshot.errors import InputError, OptionError

TOLERANCE = 1e-6  # of the largest coefficient
VARIANTS = (
    MfccOptions(),
    MfccOptions(mel="htk", n_fft=512),
    MfccOptions(padding="none"),
    MfccOptions(top_db=None),
    MfccOptions(top_db=60.0),
    MfccOptions(n_fft=1024, coefficients=13, bands=64, hop_s=0.02),
    MfccOptions(n_fft=401, window_s=0.02),
    MfccOptions(rate_hz=1500, n_fft=256, bands=20, coefficients=20, window_s=0.1),
    MfccOptions(mel="htk"),  # leaves some filters empty
)
SIGNALS = ("noise", "tone", "tone in noise", "rumble", "click", "silence")
SIGNALS += ("constant", "half silent", "faint")
CASES = [
    *((kind, 0, 20000) for kind in SIGNALS),
    *(("tone in noise", variant, 20000) for variant in range(1, len(VARIANTS))),
    *(("noise", 0, samples) for samples in (1, 159, 160, 200, 399, 400, 5121, 10241)),
]
# Of librosa 0.11: the number of frames, each 25th of them, and their mean. bench/encoders.py
# compares with the librosa that is installed.
GOLDEN = np.load(Path(__file__).with_name("librosa_mfcc.npz"))


def make_signal(kind, samples=16000):
    time_s = np.arange(samples) / 16000
    noise = np.random.default_rng(0).normal(size=samples)
    tone = 0.7 * np.sin(2 * np.pi * 1013.7 * time_s)
    harmonics = [np.sin(2 * np.pi * 18 * n * time_s) / n for n in range(1, 20)]
    signals = {
        "noise": noise * 0.1,
        "tone": tone,
        "tone in noise": tone + noise * 5e-4,
        "rumble": 0.2 * sum(harmonics) + noise * 1e-4,
        "click": np.where(np.arange(samples) == samples // 2, 0.7, 0),
        "silence": np.zeros(samples),
        "constant": np.full(samples, 0.7),
        "half silent": np.where(time_s < time_s.mean(), noise * 0.1, 0),
        "faint": noise * 1e-7,
    }
    return np.asarray(signals[kind], np.float32)


def relative_error(array, expected):
    assert array.shape == expected.shape
    return float(np.abs(array.astype(float) - expected).max() / np.abs(expected).max())


@pytest.mark.parametrize(("kind", "variant", "samples"), CASES)
def test_frames_and_mean_equal_librosa(kind, variant, samples):
    signal = make_signal(kind, samples)
    options = VARIANTS[variant]
    count, rows, mean = (
        GOLDEN[f"{kind} {variant} {samples} {name}"]
        for name in ("count", "rows", "mean")
    )
    frames = compute_mfcc(signal, options)
    assert len(frames) == count
    assert relative_error(frames[::25], rows) <= TOLERANCE
    assert relative_error(compute_mean_mfcc(signal, options), mean) <= TOLERANCE


@settings(max_examples=20)
@given(
    hz=st.floats(10, 7990),
    noise=st.sampled_from([1e-2, 1e-3, 3e-4, 1e-4, 0.0]),
    samples=st.integers(1, 40000),
    seed=st.integers(0, 99),
)
def test_the_fast_mean_equals_the_mean_of_the_frames(hz, noise, samples, seed):
    """A tone far above the noise is the worst case for float32."""
    tone = 0.7 * np.sin(2 * np.pi * hz * np.arange(samples) / 16000)
    tone += noise * np.random.default_rng(seed).normal(size=samples)
    signal = tone.astype(np.float32)
    expected = compute_mfcc(signal).mean(axis=0, dtype=np.float64)
    assert relative_error(compute_mean_mfcc(signal), expected) <= TOLERANCE


def test_top_db_is_relative_to_the_loudest_frame_of_the_segment():
    """A loud click many blocks after the faint start clips the start too."""
    signal = make_signal("noise", 160000) * np.float32(1e-3)
    signal[-1000] = 100.0
    assert relative_error(compute_mfcc(signal), clip_by_hand(signal)) <= TOLERANCE
    unclipped = compute_mfcc(signal, replace(PAPER, top_db=None))
    assert np.abs(compute_mfcc(signal)[0] - unclipped[0]).max() > 1


def clip_by_hand(signal):
    """Clip unclipped frames: with all coefficients the DCT can be inverted."""
    from scipy.fft import dct, idct

    options = replace(PAPER, top_db=None, coefficients=128)
    decibels = idct(compute_mfcc(signal, options).astype(float), norm="ortho")
    clipped = np.maximum(decibels, decibels.max() - 80)
    return dct(clipped, norm="ortho")[:, :40]


@pytest.mark.parametrize(
    ("compute", "limit"), [(compute_mean_mfcc, 1.5), (compute_mfcc, 3.0)]
)
def test_a_long_segment_needs_little_more_memory_than_its_samples(compute, limit):
    signal = make_signal("noise", 16000 * 20)
    tracemalloc.start()
    try:
        compute(signal)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= limit * signal.nbytes


@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (np.zeros(0, np.float32), "expected at least 1 samples, got 0"),
        (np.zeros(100), "got float64 of shape"),
        (np.zeros(100, np.int16), "got int16"),
        (np.zeros((2, 100), np.float32), r"shape \(2, 100\)"),
        (np.float32(1), r"got float32 of shape \(\)"),
        ([0.0, 1.0], "got list"),
        (np.array([0, 1, np.nan, np.inf], np.float32), "sample 2: .* got nan"),
        (np.array([0, -np.inf], np.float32), "sample 1: .* got -inf"),
        (np.array([2e12, 0], np.float32), "sample 0: .* got 1999999991808"),
    ],
)
def test_bad_signals_are_errors(signal, message):
    for compute in (compute_mean_mfcc, compute_mfcc):
        with pytest.raises(InputError, match=message):
            compute(signal)


def test_without_padding_a_signal_shorter_than_a_frame_is_an_error():
    options = MfccOptions(padding="none")
    assert compute_mfcc(make_signal("noise", 400), options).shape == (1, 40)
    with pytest.raises(InputError, match="at least 400 samples, got 399"):
        compute_mean_mfcc(make_signal("noise", 399), options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"bands": "40.0"}, "bands: expected a value like 128"),
        ({"bands": "0"}, "bands: expected 1 to 10000"),
        ({"coefficients": "129"}, "coefficients: expected at most the 128 bands"),
        ({"window_s": "0"}, "window_s: expected 0.000125 to"),
        ({"hop_s": "nan"}, "hop_s: expected 6.25e-05 to"),
        ({"n_fft": "399"}, "n_fft: expected at least the window of 400 samples"),
        ({"top_db": "-1"}, "top_db: expected 0 to 1000"),
        ({"mel": "bark"}, "mel: expected one of slaney, htk"),
    ],
)
def test_an_option_out_of_range_is_an_error(changes, message):
    with pytest.raises(OptionError, match=message):
        open_encoder(find_encoder("mfcc", changes))
