"""MFCC: the same as librosa and as a slow literal twin, finite on anything finite, and refused in one line."""

import math
import tracemalloc
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from callshot.encoders.mfcc import MANY_FRAMES, PAPER, MfccOptions, embed, frames
from callshot.errors import InputError, OptionError

ELEPHANTS = Path(__file__).parents[2].parent / "shared" / "data" / "elephants"
TOLERANCE = 1e-6  # of the largest coefficient
SIGNALS = (
    "noise",
    "tone",
    "tone in noise",
    "rumble",
    "click",
    "silence",
    "constant",
    "half silent",
    "faint",
)
VARIANTS = (
    MfccOptions(),
    MfccOptions(mel="htk", n_fft=512),
    MfccOptions(padding="none"),
    MfccOptions(top_db=None),
    MfccOptions(top_db=60.0),
    MfccOptions(n_fft=1024, coefficients=13, bands=64, hop_s=0.02),
    MfccOptions(n_fft=401, window_s=0.02),
    MfccOptions(rate_hz=1500, n_fft=256, bands=20, coefficients=20, window_s=0.1),
)


def make(kind: str, samples: int = 16000) -> NDArray[np.float32]:
    rng, time_s = np.random.default_rng(0), np.arange(samples) / 16000
    noise, tone = rng.normal(size=samples), 0.7 * np.sin(2 * np.pi * 1013.7 * time_s)
    made = {
        "noise": noise * 0.1,
        "tone": tone,
        "tone in noise": tone + noise * 5e-4,
        "rumble": 0.2 * sum(np.sin(2 * np.pi * 18 * n * time_s) / n for n in range(1, 20))
        + noise * 1e-4,
        "click": np.where(np.arange(samples) == samples // 2, 0.7, 0),
        "silence": np.zeros(samples),
        "constant": np.full(samples, 0.7),
        "half silent": np.where(time_s < time_s.mean(), noise * 0.1, 0),
        "faint": noise * 1e-7,
    }
    return np.asarray(made[kind], np.float32)


def apart(found: NDArray[Any], wanted: NDArray[Any]) -> float:
    assert found.shape == wanted.shape
    return float(np.abs(found.astype(float) - wanted).max() / np.abs(wanted).max())


def librosa_frames(signal: NDArray[np.float32], options: MfccOptions) -> NDArray[np.float64]:
    librosa = pytest.importorskip("librosa")
    mel = librosa.feature.melspectrogram(
        y=signal,
        sr=options.rate_hz,
        n_fft=options.n_fft,
        hop_length=options.hop,
        win_length=options.window,
        n_mels=options.bands,
        htk=options.mel == "htk",
        center=options.padding == "centre",
        pad_mode="constant",
    )
    decibels = librosa.power_to_db(mel, top_db=options.top_db)
    return np.asarray(librosa.feature.mfcc(S=decibels, n_mfcc=options.coefficients).T, np.float64)


def mel_to_hz(mel: float, scale: str) -> float:
    if scale == "htk":
        return 700 * (10 ** (mel / 2595) - 1)
    return mel * 200 / 3 if mel < 15 else 1000 * math.exp((mel - 15) * math.log(6.4) / 27)


@cache
def twin_filters(options: MfccOptions) -> NDArray[np.float64]:
    """Weigh each frequency in each triangle, the corners of which are found by bisection."""
    low, high = 0.0, 1e4
    for _ in range(100):
        middle = (low + high) / 2
        low, high = (
            (middle, high)
            if mel_to_hz(middle, options.mel) < options.rate_hz / 2
            else (low, middle)
        )
    edges = [
        mel_to_hz(low * i / (options.bands + 1), options.mel) for i in range(options.bands + 2)
    ]
    weights = np.zeros((options.bands, options.n_fft // 2 + 1))
    for band, (left, peak, right) in enumerate(zip(edges, edges[1:], edges[2:], strict=False)):
        for k in range(weights.shape[1]):
            hz = k * options.rate_hz / options.n_fft
            height = min((hz - left) / (peak - left), (right - hz) / (right - peak))
            weights[band, k] = max(0.0, height) * 2 / (right - left)
    return weights


def twin(signal: NDArray[np.float32], options: MfccOptions) -> NDArray[np.float64]:
    """Compute the definition frame by frame in float64: sums, cosines and no FFT."""
    n_fft, window, bins = options.n_fft, options.window, options.n_fft // 2 + 1
    padded = np.pad(signal.astype(np.float64), n_fft // 2 if options.padding == "centre" else 0)
    hann = np.zeros(n_fft)
    for n in range(window):
        hann[(n_fft - window) // 2 + n] = math.sin(math.pi * n / window) ** 2
    # The angle is reduced as a whole number first: in floats its error would show 80 dB down.
    turns = np.outer(np.arange(bins), np.arange(n_fft)) % n_fft
    waves = np.exp(-2j * np.pi * turns / n_fft)
    starts = range(0, len(padded) - n_fft + 1, options.hop)
    mels = [
        twin_filters(options) @ np.abs(waves @ (padded[at : at + n_fft] * hann)) ** 2
        for at in starts
    ]
    decibels = 10 * np.log10(np.maximum(mels, 1e-10))
    if options.top_db is not None:
        decibels = np.maximum(decibels, decibels.max() - options.top_db)
    out = np.empty((len(mels), options.coefficients))
    for c in range(options.coefficients):
        scale = math.sqrt((1 if c == 0 else 2) / options.bands)
        out[:, c] = (
            scale * decibels @ np.cos(np.pi * c * (np.arange(options.bands) + 0.5) / options.bands)
        )
    return out


@pytest.mark.filterwarnings("ignore:n_fft=:UserWarning")
@pytest.mark.parametrize("kind", SIGNALS)
@pytest.mark.parametrize("options", VARIANTS, ids=range(len(VARIANTS)))
def test_the_sequence_and_the_vector_are_those_of_librosa(kind: str, options: MfccOptions) -> None:
    signal = make(kind, 20000)
    wanted = librosa_frames(signal, options)
    assert apart(frames(signal, options), wanted) <= TOLERANCE
    assert apart(embed(signal, options), wanted.mean(axis=0)) <= TOLERANCE


@pytest.mark.filterwarnings("ignore:n_fft=:UserWarning")
@pytest.mark.parametrize(
    "samples", [1, 2, 159, 160, 199, 200, 201, 399, 400, 401, 560, 5120, 5121, 10241]
)
def test_a_signal_of_any_length_is_framed_as_librosa_frames_it(samples: int) -> None:
    signal = make("noise", samples)
    wanted = librosa_frames(signal, PAPER)
    assert apart(frames(signal), wanted) <= TOLERANCE
    assert apart(embed(signal), wanted.mean(axis=0)) <= TOLERANCE


@pytest.mark.parametrize("kind", ["tone in noise", "rumble", "half silent"])
@pytest.mark.parametrize("options", VARIANTS, ids=range(len(VARIANTS)))
def test_the_sequence_is_that_of_a_slow_literal_twin(kind: str, options: MfccOptions) -> None:
    signal = make(kind, 2600)
    wanted = twin(signal, options)
    assert apart(frames(signal, options), wanted) <= TOLERANCE
    assert apart(embed(signal, options), wanted.mean(axis=0)) <= TOLERANCE


def test_the_filters_that_htk_leaves_empty_are_those_of_librosa() -> None:
    options = MfccOptions(mel="htk")
    with pytest.warns(UserWarning, match="Empty filters"):
        wanted = librosa_frames(make("noise"), options)
    assert apart(frames(make("noise"), options), wanted) <= TOLERANCE


def test_real_calls_are_as_in_librosa() -> None:
    soundfile, soxr = pytest.importorskip("soundfile"), pytest.importorskip("soxr")
    paths = sorted(ELEPHANTS.rglob("*.flac"))[::20]
    if not paths:
        pytest.skip("the elephant calls are not beside the repository, in shared/data/elephants")
    for path in paths:
        samples, rate_hz = soundfile.read(path, always_2d=True)
        signal = soxr.resample(samples[:, 0], rate_hz, 16000)
        signal = (signal / np.abs(signal).max() * 0.70795).astype(np.float32)
        wanted = librosa_frames(signal, PAPER)
        assert apart(frames(signal), wanted) <= TOLERANCE
        assert apart(embed(signal), wanted.mean(axis=0)) <= TOLERANCE / 4


@settings(max_examples=40)
@given(
    hz=st.floats(10, 7990),
    noise=st.sampled_from([1e-2, 1e-3, 3e-4, 1e-4, 0.0]),
    samples=st.integers(1, 40000),
    seed=st.integers(0, 99),
)
def test_the_vector_is_the_mean_of_the_sequence(
    hz: float, noise: float, samples: int, seed: int
) -> None:
    """A tone far above the noise is the worst case for float32."""
    tone = 0.7 * np.sin(2 * np.pi * hz * np.arange(samples) / 16000)
    signal = (tone + noise * np.random.default_rng(seed).normal(size=samples)).astype(np.float32)
    assert apart(embed(signal), frames(signal).mean(axis=0, dtype=np.float64)) <= TOLERANCE


@settings(max_examples=40)
@given(
    level_db=st.floats(-40, 40), samples=st.integers(400, 20000)
)  # a few samples, softly, are under the floor
def test_a_change_of_level_moves_only_the_first_coefficient(level_db: float, samples: int) -> None:
    signal, options = make("noise", samples), replace(PAPER, top_db=None)
    louder = (signal * 10 ** (level_db / 20)).astype(np.float32)
    moved = embed(louder, options).astype(float) - embed(signal, options)
    # The rounding of the samples that were scaled is noise of its own.
    assert moved == pytest.approx([level_db * math.sqrt(options.bands)] + [0.0] * 39, abs=2e-3)


@settings(max_examples=30)
@given(st.lists(st.integers(1, 9000), min_size=2, max_size=5), st.randoms())
def test_a_vector_does_not_depend_on_what_was_embedded_before(
    lengths: list[int], random: Any
) -> None:
    signals = [make("rumble", samples) for samples in lengths]
    alone = [embed(signal).tobytes() for signal in signals]
    order = list(range(len(signals)))
    random.shuffle(order)
    assert {i: embed(signals[i]).tobytes() for i in order} == dict(enumerate(alone))


@pytest.mark.parametrize("samples", [1, 399, 16000])
def test_silence_is_finite_and_flat(samples: int) -> None:
    found = frames(np.zeros(samples, np.float32))
    assert found.dtype == np.float32
    assert found == pytest.approx(
        np.tile([-100 * math.sqrt(128)] + [0.0] * 39, (len(found), 1)), abs=1e-3
    )


@settings(max_examples=60)
@given(scale=st.floats(-44, 12), samples=st.integers(1, 3000))
def test_finite_samples_of_any_size_give_finite_vectors(scale: float, samples: int) -> None:
    signal = np.clip(make("noise", samples) * 10**scale, -1e12, 1e12).astype(np.float32)
    signal = np.where(np.abs(signal) <= 1e12, signal, np.float32(0))
    assert np.isfinite(frames(signal)).all()
    assert np.isfinite(embed(np.resize(signal, 160 * MANY_FRAMES))).all()


def test_the_signal_is_left_as_it_was_and_may_be_a_view() -> None:
    stereo = np.stack([make("noise"), make("tone")], axis=1)
    stereo.flags.writeable = False
    assert embed(stereo[:, 0]).tobytes() == embed(make("noise")).tobytes()
    assert np.array_equal(stereo[:, 0], make("noise"))


def test_what_comes_back_is_the_callers_own() -> None:
    first = frames(make("noise"))
    kept = first.copy()
    first[:] = 0
    assert first.flags.c_contiguous
    assert np.array_equal(frames(make("noise")), kept)


def test_top_db_is_below_the_loudest_of_the_whole_segment() -> None:
    """The loud click comes many blocks after the faint start, which it clips all the same."""
    signal = make("noise", 160000) * np.float32(1e-3)
    signal[-1000] = 100.0
    assert apart(frames(signal), twin_of_blocks(signal)) <= TOLERANCE
    assert np.abs(frames(signal)[0] - frames(signal, replace(PAPER, top_db=None))[0]).max() > 1


def twin_of_blocks(signal: NDArray[np.float32]) -> NDArray[np.float64]:
    """Clip the unclipped sequence by hand: with all coefficients the DCT can be undone."""
    from scipy.fft import dct, idct

    decibels = idct(
        frames(signal, replace(PAPER, top_db=None, coefficients=128)).astype(float), norm="ortho"
    )
    found: NDArray[np.float64] = dct(np.maximum(decibels, decibels.max() - 80), norm="ortho")[
        :, :40
    ]
    return found


@pytest.mark.parametrize(("run", "most"), [(embed, 1.5), (frames, 3.0)])
def test_a_long_segment_takes_little_more_memory_than_its_samples(run: Any, most: float) -> None:
    signal = make("noise", 16000 * 120)
    tracemalloc.start()
    try:
        run(signal)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak <= most * signal.nbytes


@pytest.mark.parametrize("run", [embed, frames])
@pytest.mark.parametrize(
    ("signal", "message"),
    [
        (np.zeros(0, np.float32), "wanted at least 1 samples, found 0"),
        (np.zeros(100), "found float64 of shape"),
        (np.zeros(100, np.int16), "found int16"),
        (np.zeros((2, 100), np.float32), r"shape \(2, 100\)"),
        (np.float32(1), "found float32;"),
        ([0.0, 1.0], "found list"),
        (np.array([0, 1, np.nan, np.inf], np.float32), "sample 2: .* found nan"),
        (np.array([0, -np.inf], np.float32), "sample 1: .* found -inf"),
        (np.array([2e12, 0], np.float32), "sample 0: .* found 1999999991808"),
    ],
)
def test_what_is_no_signal_is_refused(run: Any, signal: Any, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        run(signal)
    assert "\n" not in str(caught.value)


def test_without_padding_a_signal_shorter_than_a_frame_is_refused() -> None:
    options = MfccOptions(padding="none")
    assert frames(make("noise", 400), options).shape == (1, 40)
    with pytest.raises(InputError, match="at least 400 samples, found 399"):
        embed(make("noise", 399), options)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"rate_hz": 0}, "rate_hz"),
        ({"bands": 40.0}, "bands: a whole number"),
        ({"coefficients": 129}, "coefficients: at most the 128 bands"),
        ({"window_s": 0.0}, "window_s: at least 2 samples"),
        ({"hop_s": math.nan}, "hop_s: at least 1 sample"),
        ({"hop_s": math.inf}, "hop_s"),
        ({"n_fft": 399}, "n_fft: at least the window of 400 samples"),
        ({"top_db": -1.0}, "top_db"),
        ({"top_db": math.nan}, "top_db"),
        ({"mel": "bark"}, "mel: one of slaney, htk"),
        ({"padding": "reflect"}, "padding: one of centre, none"),
    ],
)
def test_an_option_out_of_its_range_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(OptionError, match=message):
        MfccOptions(**changes)
