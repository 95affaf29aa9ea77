"""BirdNET 2.4 and 3.0 and Perch 2 in the ONNX files that people have of other toolkits."""

import numpy as np
import onnx
import pytest

from callshot.encoders import catalogue
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import encoder_fingerprint, open_encoder
from callshot.encoders.install import import_weights, list_needs, match_files
from callshot.errors import InputError
from standins import (
    birdnet_v2,
    birdnet_v3,
    perch_v2,
    perch_v2_headless,
    reference_birdnet_v2,
    reference_birdnet_v3,
    reference_perch_v2,
    unpinned,
)

NAMES = ("birdnet-v2.4-onnx", "birdnet-v3.0", "perch-v2")
PERCH_FILES = {
    "perch_v2_no_dft.onnx": perch_v2,
    "perch_v2_embedding_only.onnx": perch_v2_headless,
}


@pytest.fixture(autouse=True)
def standins(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(catalogue, "ENCODERS", unpinned(*NAMES))


def make_windows(samples):
    random = np.random.default_rng(samples)
    return random.normal(scale=0.1, size=(3, samples)).astype(np.float32)


def check_model(name, file, reference, window_s=3.0):
    """Import a file, run the encoder on windows, and compare with a slow reference."""
    spec = find_encoder(name, {"window_s": str(window_s)})
    import_weights(find_encoder(name), [file])
    windows = make_windows(round(window_s * spec.rate_hz))
    vectors = open_encoder(spec).run(windows)
    expected = reference(file, windows)
    assert vectors.shape == (3, spec.dimension)
    assert np.abs(vectors - expected).max() <= 1e-5 * np.abs(expected).max()


@pytest.mark.parametrize("tensor", ["Mean_reduced_0", "Mean_Squeeze__1647:0"])
def test_birdnet_2_is_cut_at_its_pooling_layer(tensor, tmp_path):
    file = birdnet_v2(tmp_path / "BirdNET_GLOBAL_6K_V2.4_Model_FP32.onnx", tensor)
    check_model("birdnet-v2.4-onnx", file, reference_birdnet_v2)
    [cut] = (tmp_path / "home").rglob("embedding-1.onnx")
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


def test_half_precision_inputs_are_one_line(tmp_path):
    model = onnx.load(birdnet_v3(tmp_path / "model.onnx"))
    model.graph.input[0].type.tensor_type.elem_type = onnx.TensorProto.FLOAT16
    cast = onnx.helper.make_node("Cast", ["input"], ["wave"], to=1)
    model.graph.node[0].input[0] = "wave"
    model.graph.node.insert(0, cast)
    onnx.save(model, tmp_path / "half.onnx")
    with pytest.raises(InputError, match=r"expected one input of waveforms.*float16"):
        import_weights(find_encoder("birdnet-v3.0"), [tmp_path / "half.onnx"])


@pytest.mark.parametrize("name", PERCH_FILES)
def test_perch_2_is_read_from_the_files_of_other_toolkits(name, tmp_path):
    file = PERCH_FILES[name](tmp_path / name)
    spec = find_encoder("perch-v2")
    assert [weight.file for weight, _ in match_files(spec, [file])] == [name]
    import_weights(spec, [file])
    assert list_needs(spec) == []
    assert list(encoder_fingerprint(spec)["weights"]) == [name]
    windows = make_windows(160_000)
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
