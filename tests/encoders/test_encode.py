"""One set of tests for every encoder that can be opened here."""

import os

import numpy as np
import pytest

import standins
from callshot.encoders import catalogue
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import Encoder, PreparedSegment, open_encoder, pool
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
    with pytest.MonkeyPatch.context() as patch:
        if any(
            find_weight(spec.weights_name, weight) is None for weight in spec.weights
        ):
            if name not in STANDINS:
                pytest.skip(
                    f"the weights of {name} are not here: callshot encoders get {name}"
                )
            folder = tmp_path_factory.mktemp("home")
            patch.setenv("CALLSHOT_HOME", str(folder))
            patch.setattr(catalogue, "ENCODERS", standins.unpinned(name))
            spec = find_encoder(name, choices)
            import_weight(
                spec.weights_name,
                spec.weights[0],
                STANDINS[name](folder / "standin.onnx"),
            )
        yield open_encoder(spec, threads=min(2, os.cpu_count() or 1))


def make_sound(seconds, seed=0):
    samples = round(seconds * RATE_HZ)
    return (
        np.random.default_rng(seed).normal(scale=0.1, size=samples).astype(np.float32)
    )


def compute_vectors(encoder, *signals):
    segments = [encoder.prepare(signal, RATE_HZ) for signal in signals]
    outputs = encoder.encode(segments)
    return np.stack(list(map(encoder.pool, segments, outputs)))


def list_lengths(encoder):
    """Return lengths below, at, just above and far above the window."""
    window = 1.0 if encoder.spec.windowing is None else encoder.spec.windowing.window_s
    return [0.5, window, window + 1 / RATE_HZ, 2.5 * window]


def test_vectors_are_finite_float32_of_the_right_dimension(encoder):
    sounds = [make_sound(seconds) for seconds in list_lengths(encoder)]
    silence = np.zeros(RATE_HZ, np.float32)
    vectors = compute_vectors(encoder, *sounds, silence)
    assert vectors.shape == (5, encoder.spec.dimension)
    assert vectors.dtype == np.float32
    assert np.isfinite(vectors).all()


def test_the_same_audio_gives_the_same_bits_and_other_audio_does_not(encoder):
    first = make_sound(1.5)
    again = make_sound(1.5)
    other = make_sound(1.5, seed=1)
    np.testing.assert_array_equal(
        compute_vectors(encoder, first), compute_vectors(encoder, again)
    )
    assert not np.allclose(
        compute_vectors(encoder, first), compute_vectors(encoder, other)
    )


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
    prepared = [
        encoder.prepare(make_sound(seconds), RATE_HZ)
        for seconds in list_lengths(encoder)
    ]
    assert [segment.windows for segment in prepared] == [1, 1, 2, 3]
    assert [one.shape for one in encoder.encode(prepared)] == [
        (n, encoder.spec.dimension) for n in (1, 1, 2, 3)
    ]


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


def test_segments_at_another_rate_are_resampled(encoder):
    if encoder.spec.windowing is not None:
        assert (
            encoder.prepare(make_sound(1), 8000).input.shape[1]
            == encoder.spec.windowing.window
        )


def test_the_vector_of_mfcc_is_the_mean_of_its_sequence():
    spec = find_encoder("mfcc")
    frames = open_encoder(spec, sequences=True).encode(
        [PreparedSegment(make_sound(2.0))]
    )[0]
    assert frames.shape == (201, 40)
    np.testing.assert_allclose(
        pool(frames),
        open_encoder(spec).encode([PreparedSegment(make_sound(2.0))])[0][0],
        atol=1e-3,
    )


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


@pytest.mark.parametrize(
    ("output", "message"),
    [
        (np.full((1, 40), np.nan, np.float32), "returned NaN or infinity"),
        (
            np.zeros((1, 3), np.float32),
            r"expected vectors of 40 dimensions, got shape \(1, 3\)",
        ),
    ],
)
def test_the_output_of_a_model_is_checked(output, message):
    spec = find_encoder("mfcc")
    with pytest.raises(InputError, match=message):
        Encoder(spec, lambda signal: output, {}).encode(
            [PreparedSegment(make_sound(1.0))]
        )


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
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def save_model(path, factor):
        node = helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=1)
        scale = helper.make_node("Mul", ["mean", "factor"], ["embedding"])
        graph = helper.make_graph(
            [node, scale],
            "g",
            [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1600])],
            [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["n", 1])],
            [helper.make_tensor("factor", TensorProto.FLOAT, [1], [factor])],
        )
        onnx.save(
            helper.make_model(
                graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8
            ),
            path,
        )
        return path

    choices = {"rate_hz": "16000", "window_s": "0.1", "dimension": "1"}
    single = open_encoder(
        find_encoder(f"onnx:{save_model(tmp_path / 'a.onnx', 1.0)}", choices)
    )
    double = open_encoder(
        find_encoder(f"onnx:{save_model(tmp_path / 'b.onnx', 2.0)}", choices)
    )
    assert single.fingerprint["weights"] != double.fingerprint["weights"]
    signal = make_sound(0.25) + np.float32(1)
    mean = compute_vectors(single, signal)[0, 0]
    assert compute_vectors(double, signal)[0, 0] == pytest.approx(2 * mean, rel=1e-6)
    # Two whole windows, and one that is half zeros
    assert mean == pytest.approx((1 + 1 + 0.5) / 3, abs=0.02)
