"""One set of tests for every encoder that can be opened here."""

import os

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import standins
from callshot.encoders import catalogue
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import (
    Encoder,
    PreparedSegment,
    frame_energies,
    open_encoder,
    pool,
)
from callshot.encoders.spec import POOLINGS
from callshot.encoders.weights import find_weight, import_weight
from callshot.errors import InputError, OptionError

RATE_HZ = 16000
VARIANTS = {
    "mfcc": {},
    "random": {},
    "birdnet-v2.4": {},
    "yamnet": {},
    "birdnet-v2.4-onnx": {},
    "birdnet-v3.0 4.5 s": {"window_s": "4.5"},
    "perch-v2": {},
    "hubert-base-l2": {},
}
STANDINS = {
    "birdnet-v2.4-onnx": standins.birdnet_v2,
    "birdnet-v3.0": standins.birdnet_v3,
    "perch-v2": standins.perch_v2,
    "hubert-base-l2": standins.hubert,
}


@pytest.fixture(scope="module", params=VARIANTS)
def encoder(request, tmp_path_factory):
    name = request.param.split()[0]
    choices = VARIANTS[request.param]
    spec = find_encoder(name, choices)
    weights = [find_weight(spec.weights_name, weight) for weight in spec.weights]
    with pytest.MonkeyPatch.context() as patch:
        if None in weights:
            if name not in STANDINS:
                pytest.skip(f"no weights of {name}: callshot encoders get {name}")
            folder = tmp_path_factory.mktemp("home")
            patch.setenv("CALLSHOT_HOME", str(folder))
            patch.setattr(catalogue, "ENCODERS", standins.unpinned(name))
            spec = find_encoder(name, choices)
            model = STANDINS[name](folder / "standin.onnx")
            import_weight(spec.weights_name, spec.weights[0], model)
        yield open_encoder(spec, threads=min(2, os.cpu_count() or 1))


def make_sound(seconds, seed=0):
    random = np.random.default_rng(seed)
    return random.normal(scale=0.1, size=round(seconds * RATE_HZ)).astype(np.float32)


def compute_vectors(encoder, *signals):
    segments = [encoder.prepare(signal, RATE_HZ) for signal in signals]
    outputs = encoder.encode(segments)
    return np.stack(list(map(encoder.pool, segments, outputs)))


def list_lengths(encoder):
    """Return lengths below, at, just above and far above the window."""
    window = 1.0 if encoder.spec.windowing is None else encoder.spec.windowing.window_s
    return [0.5, window, window + 1 / RATE_HZ, 2.1 * window]


def test_vectors_are_finite_float32_of_the_right_dimension(encoder):
    sounds = [make_sound(seconds) for seconds in list_lengths(encoder)]
    silence = np.zeros(RATE_HZ, np.float32)
    vectors = compute_vectors(encoder, *sounds, silence)
    assert vectors.shape == (5, encoder.spec.dimension)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()
    again = compute_vectors(encoder, *sounds, silence)
    np.testing.assert_array_equal(vectors, again)
    other = compute_vectors(encoder, make_sound(0.5, seed=1))
    assert not np.allclose(vectors[:1], other)


def test_a_segment_has_the_same_vector_alone_and_in_a_batch(encoder):
    signals = [
        make_sound(seconds, seed) for seed, seconds in enumerate(list_lengths(encoder))
    ]
    together = compute_vectors(encoder, *signals)
    alone = np.concatenate([compute_vectors(encoder, signal) for signal in signals])
    np.testing.assert_allclose(together, alone, atol=1e-5 * max(1, np.abs(alone).max()))


def test_each_window_gives_one_vector(encoder):
    if encoder.spec.windowing is None:
        pytest.skip("takes segments whole")
    sounds = [make_sound(seconds) for seconds in list_lengths(encoder)]
    prepared = [encoder.prepare(sound, RATE_HZ) for sound in sounds]
    assert [segment.windows for segment in prepared] == [1, 1, 2, 3]
    shapes = [(n, encoder.spec.dimension) for n in (1, 1, 2, 3)]
    assert [one.shape for one in encoder.encode(prepared)] == shapes
    slower = encoder.prepare(make_sound(1), 8000)
    assert slower.input.shape[1] == encoder.spec.windowing.window


def test_a_louder_segment_does_what_the_row_says(encoder):
    quiet = make_sound(2.0)
    change = np.abs(np.diff(compute_vectors(encoder, quiet, quiet * 2), axis=0))[0]
    scale = np.abs(compute_vectors(encoder, quiet)).max()
    level = encoder.spec.loudness_effect
    if level == "changes the first coefficient":
        assert change[0] > 1
        assert change[1:].max() < 1e-3
    elif level.startswith(("does not change it", "hardly changes it")):
        assert change.max() < 5e-3 * scale
    elif level == "changes it":
        assert change.max() > 5e-3 * scale
    elif level != "not measured":
        assert level == "gives an unrelated vector"
        assert change.max() > 0.1


@pytest.mark.parametrize("device", ["tpu", "cuda"])
def test_an_unknown_or_unsupported_device_is_an_error(device):
    with pytest.raises(OptionError, match="device: "):
        open_encoder(find_encoder("mfcc"), device=device)


def test_options_reach_the_model():
    variants = (
        {},
        {"n_fft": "512"},
        {"mel": "htk"},
        {"padding": "none"},
        {"hop_s": "0.02"},
        {"bands": "64"},
    )
    outputs = set()
    for choices in variants:
        encoder = open_encoder(find_encoder("mfcc", choices))
        outputs.add(encoder.encode([PreparedSegment(make_sound(1.0))])[0].tobytes())
    assert len(outputs) == len(variants)
    random = open_encoder(find_encoder("random", {"dimension": "7"}))
    assert random.encode([PreparedSegment(make_sound(1.0))])[0].shape == (1, 7)


def test_the_output_of_a_model_is_checked():
    spec = find_encoder("mfcc")
    outputs = {
        "returned NaN or infinity": np.full((1, 40), np.nan, np.float32),
        r"of 40 dimensions, got shape \(1, 3\)": np.zeros((1, 3), np.float32),
    }
    for message, output in outputs.items():
        encoder = Encoder(spec, lambda signal, output=output: output, {})
        with pytest.raises(InputError, match=message):
            encoder.encode([PreparedSegment(make_sound(1.0))])


def test_the_windows_of_a_long_segment_are_encoded_in_batches():
    sizes: list[int] = []

    def model(windows):
        sizes.append(len(windows))
        return np.repeat(windows.mean(axis=1, keepdims=True), 1024, axis=1)

    encoder = Encoder(find_encoder("birdnet-v2.4", {"window_s": "0.1"}), model, {})
    prepared = [
        encoder.prepare(make_sound(seconds), RATE_HZ) for seconds in (15.0, 0.1)
    ]
    outputs = encoder.encode(prepared)
    assert sizes == [64, 64, 23]
    assert [len(output) for output in outputs] == [150, 1]


def test_the_content_of_an_onnx_model_is_in_the_fingerprint(tmp_path):
    pytest.importorskip("onnxruntime")
    choices = {"rate_hz": "16000", "window_s": "0.1", "dimension": "1"}
    signal = make_sound(0.25) + np.float32(1)
    prints = []
    means = []
    for factor in (1.0, 2.0):
        graph = standins.Graph()
        graph.node("ReduceMean", ["x"], "mean", axes=[1], keepdims=1)
        graph.node("Mul", ["mean", graph.weight("f", np.float32([factor]))], "y")
        path = graph.save(
            tmp_path / f"{factor}.onnx", {"x": ["n", 1600]}, {"y": ["n", 1]}
        )
        encoder = open_encoder(find_encoder(f"onnx:{path}", choices))
        prints.append(encoder.fingerprint["weights"])
        means.append(compute_vectors(encoder, signal)[0, 0])
    assert prints[0] != prints[1]
    assert means[1] == pytest.approx(2 * means[0], rel=1e-6)
    # Two whole windows, and one that is half zeros
    assert means[0] == pytest.approx((1 + 1 + 0.5) / 3, abs=0.02)


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


@settings(max_examples=40)
@given(windows=windows_of_a_segment(), pooling=st.sampled_from(POOLINGS))
def test_every_pooling_equals_its_literal_version(windows, pooling):
    vectors, share, energy = windows
    pooled = pool(
        np.array(vectors, np.float32), pooling, np.array(share), np.array(energy)
    )
    assert pooled.dtype == np.float32
    expected = pool_literally(vectors, pooling, share, energy)
    np.testing.assert_allclose(pooled, expected, rtol=1e-5, atol=1e-4)


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


@pytest.mark.parametrize("pooling", ["max", "energy"])
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
