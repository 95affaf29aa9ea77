"""Windows and frames are pooled as written down here in plain Python; padding never counts."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import Encoder, frame_energies, open_encoder, pool
from callshot.encoders.spec import POOLINGS

RATE_HZ = 16000
values = st.floats(-100, 100, width=32)


def pool_literally(vectors, pooling, share, energy):
    """Pool lists of numbers, one dimension after the other."""
    largest = max(share)
    share = [one / largest for one in share]
    if pooling == "mean":
        weights = [1.0 for _ in vectors]
    elif pooling == "energy":
        weights = energy
    elif pooling == "norm":
        lengths = [sum(x * x for x in vector) for vector in vectors]
        weights = [one * length for one, length in zip(share, lengths, strict=True)]
    else:
        weights = share
    if sum(weights) == 0:
        weights = [1.0 for _ in vectors]
    pooled = []
    for column in zip(*vectors, strict=True):
        pairs = list(zip(column, weights, strict=True))
        mean = sum(x * weight for x, weight in pairs) / sum(weights)
        if pooling == "max":
            pooled.append(max(mean + weight * (x - mean) for x, weight in pairs))
        else:
            pooled.append(mean)
    return pooled


@st.composite
def windows_of_a_segment(draw):
    count = draw(st.integers(1, 5))
    vectors = draw(st.lists(st.tuples(values, values), min_size=count, max_size=count))
    share = draw(st.lists(st.floats(0.01, 1), min_size=count, max_size=count))
    energy = draw(
        st.lists(st.sampled_from([0.0, 0.5, 7.0]), min_size=count, max_size=count)
    )
    return vectors, share, energy


@settings(max_examples=100, deadline=None)
@given(windows=windows_of_a_segment(), pooling=st.sampled_from(POOLINGS))
def test_every_pooling_equals_its_literal_version(windows, pooling):
    vectors, share, energy = windows
    pooled = pool(
        np.array(vectors, np.float32), pooling, np.array(share), np.array(energy)
    )
    assert pooled.dtype == np.float32
    expected = pool_literally(vectors, pooling, share, energy)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_one_window_is_its_own_vector_whatever_its_padding(pooling):
    window = np.array([[1.5, -2.0, 0.0]], np.float32)
    pooled = pool(window, pooling, np.array([0.1]), np.array([0.3]))
    np.testing.assert_allclose(pooled, window[0], rtol=1e-6)


@pytest.mark.parametrize("pooling", POOLINGS)
def test_the_vector_of_silence_is_the_mean(pooling):
    windows = np.zeros((3, 4), np.float32)
    assert not pool(windows, pooling, np.ones(3), np.zeros(3)).any()


def loudness_encoder(pooling, **choices):
    """Return an encoder whose model gives the peak of each window and a constant."""
    spec = find_encoder("birdnet-v2.4", {"pooling": pooling, "window_s": "1"} | choices)

    def model(windows):
        vectors = np.zeros((len(windows), spec.dimension), np.float32)
        vectors[:, 0] = np.abs(windows).max(axis=1)
        vectors[:, 1] = 1
        return vectors

    return Encoder(spec, model, {})


def embed(encoder, signal):
    prepared = encoder.prepare(signal, RATE_HZ)
    (output,) = encoder.encode([prepared])
    return encoder.pool(prepared, output)


@pytest.mark.parametrize("padding", ["centre", "right", "wrap"])
@pytest.mark.parametrize(
    ("pooling", "expected"),
    [("mean", 0.5), ("audio", 1 / 1.25), ("max", 1.0), ("energy", 1.0)],
)
def test_a_window_with_little_audio_counts_little(pooling, expected, padding):
    """One second at a level of 1, then a quarter of a second of silence."""
    signal = np.zeros(RATE_HZ * 5 // 4, np.float32)
    signal[: RATE_HZ - 200] = 1
    encoder = loudness_encoder(pooling, padding=padding, rate_hz=str(RATE_HZ))
    vector = embed(encoder, signal)
    assert vector[0] == pytest.approx(expected, abs=1e-6)
    assert vector[1] == pytest.approx(1, abs=1e-6)


def test_padding_adds_no_energy():
    encoder = loudness_encoder("energy", padding="wrap", rate_hz=str(RATE_HZ))
    signal = np.full(RATE_HZ * 3 // 2, 0.5, np.float32)
    prepared = encoder.prepare(signal, RATE_HZ)
    assert prepared.share.tolist() == [1, 0.5]
    assert prepared.energy.tolist() == [RATE_HZ / 4, RATE_HZ / 8]


def test_frames_are_weighted_by_the_energy_of_their_part_of_the_segment():
    signal = np.arange(10, dtype=np.float32)
    parts = [0 + 1 + 4, 9 + 16 + 25, 36 + 49 + 64 + 81]
    assert frame_energies(signal, 3).tolist() == parts
    assert frame_energies(signal[:1], 1).tolist() == [0]


@pytest.mark.parametrize("pooling", POOLINGS)
def test_mfcc_is_pooled_over_its_frames(pooling):
    rng = np.random.default_rng(0)
    signal = rng.normal(scale=0.1, size=RATE_HZ).astype(np.float32)
    signal[: RATE_HZ // 2] *= 0.01
    frames = open_encoder(find_encoder("mfcc"), sequences=True)
    (output,) = frames.encode([frames.prepare(signal, RATE_HZ)])
    energy = frame_energies(signal, len(output))
    expected = pool_literally(
        output.tolist(), pooling, [1.0] * len(output), energy.tolist()
    )
    pooled = embed(open_encoder(find_encoder("mfcc", {"pooling": pooling})), signal)
    np.testing.assert_allclose(pooled, expected, rtol=1e-4, atol=1e-3)
