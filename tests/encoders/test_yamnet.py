"""YAMNet: a rewritten, quantised tflite file gives the vectors of the original.

The real weights are looked for in callshot's cache and at $CALLSHOT_YAMNET.
"""

import os
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import open_encoder
from callshot.encoders.litert import expose_tensor, open_tflite
from callshot.encoders.models.yamnet import YAMNET
from callshot.encoders.weights import weight_folder
from callshot.encoders.windows import make_test_windows


@pytest.fixture(scope="module")
def weights():
    for path in (
        weight_folder("yamnet") / "yamnet.tflite",
        Path(os.environ.get("CALLSHOT_YAMNET", "")),
    ):
        if path.is_file():
            pytest.importorskip("ai_edge_litert")
            return path
    pytest.skip("YAMNet's weights are not here: callshot encoders get yamnet")


@pytest.fixture(scope="module")
def rewritten(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("yamnet") / "embedding.tflite"
    expose_tensor(weights, path, YAMNET)
    return path


def test_a_value_is_the_distance_from_the_zero_point_times_the_scale():
    numbers = np.array([[[[-128, -127, 127]]]], np.int8)
    expected = [0, 0.0223283507, 255 * 0.0223283507]
    np.testing.assert_allclose(YAMNET.decode(numbers), expected, rtol=1e-7)


def test_the_rewritten_file_gives_the_vectors_of_the_original(weights, rewritten):
    windows = make_test_windows(15600)
    vectors = open_tflite(rewritten, YAMNET)(windows)
    interpreter = import_module("ai_edge_litert.interpreter").Interpreter
    with pytest.warns(UserWarning, match="preserve_all_tensors"):
        original = interpreter(str(weights), experimental_preserve_all_tensors=True)
    original.allocate_tensors()
    tensors = {one["name"]: one["index"] for one in original.get_tensor_details()}
    for window, vector in zip(windows, vectors, strict=True):
        original.set_tensor(original.get_input_details()[0]["index"], window)
        original.invoke()
        numbers = original.get_tensor(tensors[YAMNET.tensor])
        np.testing.assert_array_equal(vector, YAMNET.decode(numbers))
    steps = vectors / 0.0223283507
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    assert vectors.min() >= 0
    assert len(np.unique(vectors, axis=0)) > 1


def test_the_encoder_has_windows_of_0_975_s(weights):
    spec = find_encoder("yamnet")
    assert spec.windowing is not None
    assert spec.windowing.window == YAMNET.input_shape[-1]
    if weights == weight_folder("yamnet") / "yamnet.tflite":
        prepared = open_encoder(spec).prepare(np.zeros(32000, np.float32), 16000)
        assert prepared.input.shape == (3, 15600)
