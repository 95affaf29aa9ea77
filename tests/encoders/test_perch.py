"""Perch 1 and 2, on small stand-ins with their inputs and outputs."""

import warnings
from functools import partial

import numpy as np
import pytest

from callshot.encoders import catalogue
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import encoder_fingerprint, open_encoder
from callshot.encoders.install import import_weights, list_needs, match_files
from callshot.encoders.models.onnx import cut_graph, open_window_model
from callshot.encoders.models.perch import SAMPLES, convert_perch_v1, open_perch_v1
from callshot.errors import InputError
from standins import (
    birdnet_v2,
    birdnet_v3,
    hubert,
    perch_v1,
    perch_v2,
    perch_v2_headless,
    reference_birdnet_v2,
    reference_birdnet_v3,
    reference_perch_v2,
    unpinned,
)

open_perch_v2 = partial(open_window_model, samples=SAMPLES, dimension=1536)


def make_windows(count, samples=SAMPLES):
    random = np.random.default_rng(samples)
    return random.uniform(-0.25, 0.25, (count, samples)).astype(np.float32)


def test_v2_equals_its_reference_whole_and_cut(tmp_path):
    whole = perch_v2(tmp_path / "whole.onnx")
    cut = tmp_path / "cut.onnx"
    windows = make_windows(5)
    cut_graph(whole, cut, ["embedding"])
    vectors = open_perch_v2(cut)(windows)
    assert (vectors.dtype, vectors.shape) == (np.float32, (5, 1536))
    assert np.array_equal(open_perch_v2(whole)(windows), vectors)
    assert np.abs(vectors - reference_perch_v2(whole, windows)).max() <= 1e-6


def test_the_file_of_another_model_is_an_error(tmp_path):
    v1 = perch_v1(tmp_path / "v1.onnx")
    v2 = perch_v2(tmp_path / "v2.onnx")
    with pytest.raises(InputError, match=r"to vectors \(batch, 1536\) .* got .*1280"):
        open_perch_v2(v1)
    message = "one output of 1280 dimensions, in floats, got"
    with pytest.raises(InputError, match=message):
        open_perch_v1(v2)
    with pytest.raises(InputError, match=r"run on an input of shape \(1, 96000\)"):
        open_perch_v2(v2)(np.zeros((1, 96_000), np.float32))
    with pytest.raises(InputError, match=r"hubert\.onnx: "):
        open_perch_v2(hubert(tmp_path / "hubert.onnx"))(make_windows(1))


# The conversion of v1, with TensorFlow


@pytest.fixture(scope="module")
def tensorflow():
    reason = (
        "the conversion of Perch v1 needs TensorFlow and tf2onnx: "
        "pip install 'callshot[perch-v1]'"
    )
    with warnings.catch_warnings(action="ignore"):
        pytest.importorskip("tf2onnx", reason=reason)
        return pytest.importorskip("tensorflow", reason=reason)


def save_v1(tensorflow, path, dimension=1280):
    """Save a SavedModel with the signature of Perch 1: a spectrogram and a matrix."""
    tf = tensorflow
    signature = [tf.TensorSpec([None, SAMPLES], tf.float32, "inputs")]

    class Standin(tf.Module):  # type: ignore[misc]
        def __init__(self):
            rng = np.random.default_rng(0)
            body = rng.normal(size=(321, dimension), scale=0.05).astype(np.float32)
            self.body = tf.Variable(body)
            self.head = tf.Variable(body[:, :4].T @ body[:, :10])

        def vectors(self, inputs):
            power = tf.abs(tf.signal.stft(inputs, 640, 320, 640)) ** 2
            return tf.tanh(tf.reduce_mean((power + 1e-6) ** 0.25, axis=1) @ self.body)

        @tf.function(input_signature=signature)  # type: ignore[misc]
        def infer_tf(self, inputs):
            vectors = self.vectors(inputs)
            label = vectors[:, :4] @ self.head
            return {
                "embedding": vectors,
                "label": label,
                "genus": label,
                "family": label,
                "order": label,
                "frontend": label,
            }

    model = Standin()
    tf.saved_model.save(model, str(path))
    return model


@pytest.mark.filterwarnings("ignore")
def test_a_converted_model_equals_tensorflow(tensorflow, tmp_path, monkeypatch):
    model = save_v1(tensorflow, tmp_path / "saved")
    path = tmp_path / "v1.onnx"
    with monkeypatch.context() as patch:
        patch.setattr("callshot.encoders.models.perch.TOLERANCE", -1.0)
        with pytest.raises(InputError, match="its vectors differ from TensorFlow's"):
            convert_perch_v1(tmp_path / "saved", path)
    convert_perch_v1(tmp_path / "saved", path)
    windows = make_windows(3)
    expected = model.vectors(windows).numpy()
    assert np.abs(open_perch_v1(path)(windows) - expected).max() <= 1e-4


@pytest.mark.filterwarnings("ignore")
def test_a_saved_model_of_something_else_is_an_error(tensorflow, tmp_path):
    (tmp_path / "empty").mkdir()
    other = tensorflow.Module()
    tensorflow.saved_model.save(other, str(tmp_path / "other"))
    save_v1(tensorflow, tmp_path / "narrow", dimension=64)
    message = "cannot be converted as Perch v1|expected windows"
    for name in ("empty", "other", "narrow"):
        with pytest.raises(InputError, match=message):
            convert_perch_v1(tmp_path / name, tmp_path / "v1.onnx")


NAMES = ("birdnet-v2.4-onnx", "birdnet-v3.0", "perch-v2")
PERCH_FILES = {
    "perch_v2_no_dft.onnx": perch_v2,
    "perch_v2_embedding_only.onnx": perch_v2_headless,
}


@pytest.fixture(autouse=True)
def standins(cache, monkeypatch):
    monkeypatch.setattr(catalogue, "ENCODERS", unpinned(*NAMES))


def check_model(name, file, reference, window_s=3.0):
    """Import a file, run the encoder on windows, and compare with a slow reference."""
    spec = find_encoder(name, {"window_s": str(window_s)})
    import_weights(find_encoder(name), [file])
    windows = make_windows(3, round(window_s * spec.rate_hz))
    vectors = open_encoder(spec).run(windows)
    expected = reference(file, windows)
    assert vectors.shape == (3, spec.dimension)
    assert np.abs(vectors - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("tensor", ["Mean_reduced_0", "Mean_Squeeze__1647:0"])
def test_birdnet_2_is_cut_at_its_pooling_layer(tensor, tmp_path, cache):
    file = birdnet_v2(tmp_path / "BirdNET_GLOBAL_6K_V2.4_Model_FP32.onnx", tensor)
    check_model("birdnet-v2.4-onnx", file, reference_birdnet_v2)
    [cut] = cache.rglob("embedding-1.onnx")
    assert cut.stat().st_size < file.stat().st_size / 5  # without the species


def test_a_file_without_the_pooling_layer_is_not_birdnet_2(tmp_path):
    file = birdnet_v3(tmp_path / "birdnet.onnx")
    spec = find_encoder("birdnet-v2.4-onnx")
    with pytest.raises(InputError, match=r"no tensor 'model/GLOBAL_AVG_POOL/Mean"):
        import_weights(spec, [file])
    assert list_needs(spec) == ["callshot encoders get birdnet-v2.4-onnx"]


@pytest.mark.parametrize("window_s", [3.0, 4.5])
def test_birdnet_3_takes_windows_of_any_length(window_s, tmp_path):
    file = birdnet_v3(tmp_path / "birdnet.onnx")
    check_model("birdnet-v3.0", file, reference_birdnet_v3, window_s)


@pytest.mark.parametrize("name", PERCH_FILES)
def test_perch_2_is_read_from_the_files_of_other_toolkits(name, tmp_path):
    file = PERCH_FILES[name](tmp_path / name)
    spec = find_encoder("perch-v2")
    assert [weight.file for weight, _ in match_files(spec, [file])] == [name]
    import_weights(spec, [file])
    assert list_needs(spec) == []
    assert list(encoder_fingerprint(spec)["weights"]) == [name]
    windows = make_windows(3)
    whole = file if "only" not in name else tmp_path / "whole.onnx"
    expected = reference_perch_v2(whole, windows)
    vectors = open_encoder(spec).run(windows)
    assert np.abs(vectors - expected).max() <= 1e-5 * np.abs(expected).max()


def test_our_file_of_perch_2_is_used_where_there_are_several(tmp_path):
    spec = find_encoder("perch-v2")
    for name in ("perch_v2.onnx", "perch_v2_no_dft.onnx"):
        import_weights(spec, [perch_v2(tmp_path / name)])
    assert list(encoder_fingerprint(spec)["weights"]) == ["perch_v2_no_dft.onnx"]


def test_a_file_with_the_name_of_a_known_one_must_be_that_file(tmp_path, monkeypatch):
    monkeypatch.undo()
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    for name, file in (
        ("perch-v2", "perch_v2.onnx"),
        ("birdnet-v3.0", "BirdNET+_V3.0-preview3.1_Global_11K_FP32.onnx"),
    ):
        (tmp_path / file).write_bytes(b"another model")
        with pytest.raises(InputError, match=r"not kept: expected size \d+, got 13"):
            import_weights(find_encoder(name), [tmp_path / file])
