"""One battery over every spec that can be opened here: what any encoder must do, and what each says of itself."""

import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import standins
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import Encoder, open_encoder, pool, unroll
from callshot.encoders.weights.weight_files import find_weight, import_weight
from callshot.errors import InputError, OptionError

RATE_HZ = 16000
WAYS = {
    "mfcc": {},
    "random": {},
    "birdnet-v2.4": {},
    "perch-v2": {},
    "perch-v2 spatial": {"sequence": "spatial"},
    "hubert-base-l2": {},
}
STANDINS = {
    "perch-v2": standins.perch_v2,
    "hubert-base-l2": standins.hubert,
}  # where the real weights are not here


@pytest.fixture(scope="module", params=WAYS)
def encoder(request, tmp_path_factory) -> Iterator[Encoder]:
    name = request.param.split()[0]
    spec = find_encoder(name, WAYS[request.param])
    with pytest.MonkeyPatch.context() as patch:
        if any(find_weight(spec.weights_name, weight) is None for weight in spec.weights):
            if name not in STANDINS:
                pytest.skip(f"the weights of {name} are not here: callshot encoders get {name}")
            folder = tmp_path_factory.mktemp("home")
            patch.setenv("CALLSHOT_HOME", str(folder))
            import_weight(
                spec.weights_name, spec.weights[0], STANDINS[name](folder / "standin.onnx")
            )
        yield open_encoder(spec, threads=min(2, os.cpu_count() or 1))


def sound(seconds: float, seed: int = 0) -> np.ndarray:
    return (
        np.random.default_rng(seed)
        .normal(scale=0.1, size=round(seconds * RATE_HZ))
        .astype(np.float32)
    )


def vectors(encoder: Encoder, *signals: np.ndarray) -> np.ndarray:
    found = encoder.encode([encoder.prepare(signal, RATE_HZ) for signal in signals])
    return np.stack([pool(sequence) for sequence in found])


def lengths(encoder: Encoder) -> list[float]:
    """Return a short one, and for encoders of windows a window, one sample more, and several."""
    window = 1.0 if encoder.spec.windowing is None else encoder.spec.windowing.window_s
    return [0.5, window, window + 1 / RATE_HZ, 2.5 * window]


def test_vectors_have_the_rows_dimension_are_float32_and_finite(encoder):
    found = vectors(encoder, *(sound(seconds) for seconds in lengths(encoder)))
    assert found.shape == (4, encoder.spec.dimension)
    assert found.dtype == np.float32
    assert np.isfinite(found).all()


def test_the_same_audio_gives_the_same_bits_and_other_audio_others(encoder):
    first, again, other = sound(1.5), sound(1.5), sound(1.5, seed=1)
    np.testing.assert_array_equal(vectors(encoder, first), vectors(encoder, again))
    assert not np.allclose(vectors(encoder, first), vectors(encoder, other))


def test_a_segment_alone_is_as_in_a_batch(encoder):
    signals = [sound(seconds, seed) for seed, seconds in enumerate(lengths(encoder))]
    together = vectors(encoder, *signals)
    alone = np.concatenate([vectors(encoder, signal) for signal in signals])
    np.testing.assert_allclose(together, alone, atol=1e-5 * max(1, np.abs(alone).max()))


def test_silence_is_finite(encoder):
    assert np.isfinite(vectors(encoder, np.zeros(RATE_HZ, np.float32))).all()


def test_a_window_more_is_a_frame_more_or_sixteen(encoder):
    if encoder.spec.windowing is None:
        pytest.skip("takes segments whole")
    prepared = [encoder.prepare(sound(seconds), RATE_HZ) for seconds in lengths(encoder)]
    frames = 16 if encoder.spec.options.get("sequence") == "spatial" else 1
    assert [len(windows) for windows in prepared] == [1, 1, 2, 3]
    assert [unroll(one).shape for one in encoder.encode(prepared)] == [
        (frames * n, encoder.spec.dimension) for n in (1, 1, 2, 3)
    ]


def test_a_louder_segment_does_what_the_row_says(encoder):
    quiet = sound(2.0)
    moved = np.abs(np.diff(vectors(encoder, quiet, quiet * 2), axis=0))[0]
    scale = np.abs(vectors(encoder, quiet)).max()
    said = encoder.spec.level
    if said.startswith("moves the first coefficient"):
        assert moved[0] > 1
        assert moved[1:].max() < 1e-3
    elif said.startswith(("does not move it", "hardly moves it")):
        assert moved.max() < 5e-3 * scale
    else:
        assert moved.max() > 0.1


def test_segments_at_another_rate_are_resampled_or_refused(encoder):
    if encoder.spec.windowing is None:
        with pytest.raises(
            InputError, match=r"wanted segments at 16000 Hz, found 8000; cut them with --rate 16000"
        ):
            encoder.prepare(sound(1), 8000)
    else:
        assert encoder.prepare(sound(1), 8000).shape[1] == encoder.spec.windowing.window


def test_the_sequence_of_mfcc_has_its_vector_for_a_mean():
    spec = find_encoder("mfcc")
    frames = open_encoder(spec, sequences=True).encode([sound(2.0)])[0]
    assert frames.shape == (201, 40)
    np.testing.assert_allclose(
        pool(frames), open_encoder(spec).encode([sound(2.0)])[0][0], atol=1e-3
    )


@pytest.mark.parametrize("device", ["tpu", "cuda"])
def test_a_device_that_is_none_or_not_for_it_is_refused(device):
    with pytest.raises(OptionError, match="device: "):
        open_encoder(find_encoder("mfcc"), device=device)


def test_choices_reach_the_model():
    ways = (
        {},
        {"n_fft": "512"},
        {"mel": "htk"},
        {"padding": "none"},
        {"hop_s": "0.02"},
        {"bands": "64"},
    )
    vectors = [
        open_encoder(find_encoder("mfcc", chosen)).encode([sound(1.0)])[0] for chosen in ways
    ]
    assert len({vector.tobytes() for vector in vectors}) == len(ways)
    assert open_encoder(find_encoder("random", {"dimension": "7"})).encode([sound(1.0)])[
        0
    ].shape == (1, 7)


@pytest.mark.parametrize(
    ("returned", "said"),
    [(np.full((1, 40), np.nan, np.float32), "not finite"), (np.zeros((1, 3), np.float32), "shape")],
)
def test_what_a_model_returns_is_checked(returned, said):
    spec = find_encoder("mfcc")
    with pytest.raises(InputError, match=said):
        Encoder(spec, lambda signal: returned, {}).encode([sound(1.0)])


def test_a_long_segment_goes_through_the_model_some_windows_at_a_time():
    sizes: list[int] = []

    def model(windows: np.ndarray) -> np.ndarray:
        sizes.append(len(windows))
        return np.repeat(windows.mean(axis=1, keepdims=True), 1024, axis=1)

    encoder = Encoder(find_encoder("birdnet-v2.4", {"window_s": "0.1"}), model, {})
    found = encoder.encode(
        [encoder.prepare(sound(15.0), RATE_HZ), encoder.prepare(sound(0.1), RATE_HZ)]
    )
    assert (sizes, [len(one) for one in found]) == ([64, 64, 23], [150, 1])


def test_missing_weights_are_an_error_with_the_command(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path))
    with pytest.raises(InputError, match=r"callshot encoders get birdnet-v2\.4"):
        open_encoder(find_encoder("birdnet-v2.4"))


def test_an_own_models_content_is_in_the_fingerprint_not_its_place(tmp_path):
    pytest.importorskip("onnxruntime")
    onnx = pytest.importorskip("onnx")
    from onnx import TensorProto, helper

    def model(path: Path, factor: float) -> Path:
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
            helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8),
            path,
        )
        return path

    choices = {"rate_hz": "16000", "window_s": "0.1", "dimension": "1"}
    opened = [
        open_encoder(find_encoder(f"onnx:{model(tmp_path / name, factor)}", choices))
        for name, factor in (("a.onnx", 1.0), ("b.onnx", 2.0))
    ]
    assert opened[0].fingerprint["weights"] != opened[1].fingerprint["weights"]
    signal = sound(0.25) + np.float32(1)
    a, b = (pool(one.encode([one.prepare(signal, RATE_HZ)])[0])[0] for one in opened)
    assert b == pytest.approx(2 * a, rel=1e-6)
    assert a == pytest.approx((1 + 1 + 0.5) / 3, abs=0.02)  # two whole windows, and a half of zeros
