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
from callshot.encoders.weights import weight_folder
from callshot.encoders.windows import make_test_sounds

SCALE = 0.022328350692987442  # of the whole numbers that the embedding has, from −128


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
    expose_tensor(weights, path, find_encoder("yamnet").output)
    return path


def test_the_rewritten_file_gives_the_vectors_of_the_original(weights, rewritten):
    windows = np.stack([*make_test_sounds(15600).values()])
    vectors = open_tflite(rewritten)(windows)
    interpreter = import_module("ai_edge_litert.interpreter").Interpreter
    with pytest.warns(UserWarning, match="preserve_all_tensors"):
        original = interpreter(str(weights), experimental_preserve_all_tensors=True)
    original.allocate_tensors()
    tensors = {one["name"]: one["index"] for one in original.get_tensor_details()}
    for window, vector in zip(windows, vectors, strict=True):
        original.set_tensor(original.get_input_details()[0]["index"], window)
        original.invoke()
        numbers = original.get_tensor(tensors[find_encoder("yamnet").output])
        values = (numbers.ravel() + np.float32(128)) * np.float32(SCALE)
        np.testing.assert_array_equal(vector, values)
    steps = vectors / SCALE
    np.testing.assert_allclose(steps, np.round(steps), atol=1e-3)
    assert vectors.min() >= 0
    assert len(np.unique(vectors, axis=0)) > 1


def test_the_encoder_has_windows_of_0_975_s(weights):
    spec = find_encoder("yamnet")
    assert spec.windowing is not None
    assert spec.windowing.window == 15600
    if weights == weight_folder("yamnet") / "yamnet.tflite":
        prepared = open_encoder(spec).prepare(np.zeros(32000, np.float32), 16000)
        assert prepared.input.shape == (3, 15600)
