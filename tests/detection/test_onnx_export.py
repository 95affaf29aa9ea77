"""ONNX Runtime gives the labels and scores of Python, also behind an encoder."""

import json

import numpy as np
import pytest

from callshot.detection.model import AudioSettings, export_onnx, make_model
from callshot.errors import InputError, OptionError
from callshot.fewshot.centroid import log_odds
from callshot.vectors import Vectors
from rows_of_spans import make_examples

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnx")


def make_random_model(classes=4, offset=0.0, dimensions=40, labels=None):
    rng = np.random.default_rng(0)
    names = labels or [f"call {n}" for n in range(classes)]
    label = [names[n % len(names)] for n in range(3 * len(names))]
    vectors = rng.normal(offset, 5.0, (len(label), dimensions)).astype(np.float32)
    examples = [
        (name, f"{n}.wav", f"{n}.wav", 0.0, 1.0) for n, name in enumerate(label)
    ]
    return make_model(
        Vectors(make_examples(examples), vectors),
        encoder="mfcc",
        fingerprint={"encoder": "mfcc"},
        settings=AudioSettings(),
        licence="CC0",
    )


@pytest.mark.parametrize(("classes", "offset"), [(2, 0.0), (30, -500.0)])
def test_onnx_gives_the_scores_and_labels_of_python(tmp_path, classes, offset):
    model = make_random_model(classes, offset)
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    queries = np.random.default_rng(1).normal(offset, 5.0, (50, 40))
    queries = queries.astype(np.float32)
    scores, evidence, label = session.run(None, {"embedding": queries})
    np.testing.assert_allclose(evidence, model.layer(queries), rtol=1e-9)
    expected = log_odds(model.layer(queries))
    np.testing.assert_allclose(scores, expected, rtol=0, atol=1e-5)
    assert label.tolist() == model.classifier.predict(queries).tolist()


def test_the_file_names_labels_encoder_and_licence(tmp_path):
    model = make_random_model(labels=["hoot", "трель"])
    export_onnx(model, tmp_path / "model.onnx")
    session = onnxruntime.InferenceSession(tmp_path / "model.onnx")
    facts = session.get_modelmeta().custom_metadata_map
    assert json.loads(facts["classes"]) == ["hoot", "трель"]
    assert facts["encoder"] == "mfcc"
    assert facts["licence"] == "CC0"


def test_bad_requests_are_one_line(tmp_path):
    with pytest.raises(OptionError, match=r"onnx: expected a name that ends in .onnx"):
        export_onnx(make_random_model(), tmp_path / "model.pb")
    with pytest.raises(InputError, match=r"expected examples of two labels or more"):
        export_onnx(make_random_model(1), tmp_path / "model.onnx")
