"""Perch 1 and 2, on small stand-ins with their inputs and outputs."""

import warnings
from functools import partial

import numpy as np
import pytest

from callshot.encoders.models.perch import SAMPLES, convert_perch_v1, open_perch_v1
from callshot.encoders.onnx import cut_graph, open_windows
from callshot.errors import InputError
from standins import hubert, perch_v1, perch_v2, reference_perch_v2

open_perch_v2 = partial(open_windows, samples=SAMPLES, dimension=1536)


def make_windows(count):
    return (
        np.random.default_rng(3)
        .uniform(-0.25, 0.25, (count, SAMPLES))
        .astype(np.float32)
    )


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
    with pytest.raises(
        InputError,
        match=r"v1\.onnx: expected .* to vectors \(batch, 1536\) .* got .*1280",
    ):
        open_perch_v2(v1)
    with pytest.raises(
        InputError,
        match=r"v2\.onnx: expected one output of 1280 dimensions, in floats, got embedding",
    ):
        open_perch_v1(v2)
    with pytest.raises(
        InputError,
        match=r"cannot be run on an input of shape \(1, 96000\)",
    ):
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
def test_a_converted_model_equals_tensorflow(tensorflow, tmp_path):
    model = save_v1(tensorflow, tmp_path / "saved")
    difference = convert_perch_v1(tmp_path / "saved", tmp_path / "v1.onnx")
    assert 0 <= difference <= 1e-4
    windows = make_windows(3)
    vectors = open_perch_v1(tmp_path / "v1.onnx")(windows)
    assert np.abs(vectors - model.vectors(windows).numpy()).max() <= 1e-4
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["saved", "v1.onnx"]


@pytest.mark.filterwarnings("ignore")
def test_a_saved_model_of_something_else_is_an_error_and_leaves_no_file(
    tensorflow, tmp_path
):
    empty = tmp_path / "empty"
    empty.mkdir()
    other = tensorflow.Module()
    tensorflow.saved_model.save(other, str(tmp_path / "other"))
    save_v1(tensorflow, tmp_path / "narrow", dimension=64)
    for name, message in (
        ("empty", "cannot be converted as Perch v1"),
        ("other", "cannot be converted as Perch v1"),
        ("narrow", "expected windows"),
    ):
        with pytest.raises(InputError, match=message):
            convert_perch_v1(tmp_path / name, tmp_path / "v1.onnx")
    assert sorted(entry.name for entry in tmp_path.iterdir()) == [
        "empty",
        "narrow",
        "other",
    ]


@pytest.mark.filterwarnings("ignore")
def test_a_conversion_that_changes_the_vectors_is_not_kept(
    tensorflow, tmp_path, monkeypatch
):
    monkeypatch.setattr("callshot.encoders.models.perch.TOLERANCE", -1.0)
    save_v1(tensorflow, tmp_path / "saved")
    with pytest.raises(
        InputError, match="after conversion its vectors differ from TensorFlow's"
    ):
        convert_perch_v1(tmp_path / "saved", tmp_path / "v1.onnx")
    assert not (tmp_path / "v1.onnx").exists()
