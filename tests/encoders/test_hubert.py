"""HuBERT: a layer is the same if it is cut, exported or built; signals are not padded."""

import shutil
import warnings

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders.models.hubert import (
    cut_hubert,
    export_hubert,
    open_hubert,
    open_hubert_torch,
)
from callshot.errors import InputError, OptionError
from standins import hubert, read_weights, reference_hubert

HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return hubert(tmp_path_factory.mktemp("published") / "model.onnx")


@pytest.fixture(scope="module")
def layer_2(published):
    cut_hubert(published, published.with_name("l2.onnx"), 2)
    return published.with_name("l2.onnx")


def make_signal(samples=8000, level=0.1, mean=0.0):
    return (mean + level * np.random.default_rng(samples).normal(size=samples)).astype(
        np.float32
    )


# Cutting


@pytest.mark.parametrize("layer", [2, 12])
def test_a_cut_equals_that_layer_of_the_reference(published, tmp_path, layer):
    cut_hubert(published, tmp_path / "cut.onnx", layer)
    frames = open_hubert(tmp_path / "cut.onnx", normalise=False)(make_signal())
    expected = reference_hubert(published, make_signal(), layer)
    assert frames.dtype == np.float32
    assert np.abs(frames - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (
        sum(name.startswith("wide_") for name in read_weights(tmp_path / "cut.onnx"))
        == layer
    )


@pytest.mark.parametrize("layer", [0, 13])
def test_a_layer_that_hubert_base_does_not_have_is_an_error(published, tmp_path, layer):
    with pytest.raises(InputError, match=f"expected layer {layer} of an ONNX export"):
        cut_hubert(published, tmp_path / "cut.onnx", layer)


def test_a_file_without_that_layer_is_an_error_with_the_layers_it_has(tmp_path):
    with pytest.raises(
        InputError, match=r"expected layer 5 of .* got layers \[1, 2, 3\]"
    ):
        cut_hubert(hubert(tmp_path / "m.onnx", layers=3), tmp_path / "cut.onnx", 5)
    text = "(float[n, s] x) => (float[n, s] y) { y = Abs(x) }"
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"got layers \[\]"):
        cut_hubert(tmp_path / "other.onnx", tmp_path / "cut.onnx", 2)


def test_a_file_of_another_width_is_an_error_and_leaves_no_file(tmp_path):
    large = hubert(tmp_path / "large.onnx", layers=3, width=1024)
    with pytest.raises(
        InputError,
        match=r"large\.onnx: cut at layer 2, .*is not HuBERT base .*got \(49, 1024\)",
    ):
        cut_hubert(large, tmp_path / "cut.onnx", 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["large.onnx"]


# Running


@settings(max_examples=15)
@given(samples=st.integers(400, 6000))
def test_a_signal_has_a_frame_for_each_full_receptive_field(layer_2, samples):
    frames = open_hubert(layer_2)(make_signal(samples))
    starts = [start for start in range(0, samples, 320) if start + 400 <= samples]
    assert frames.shape == (len(starts), 768)
    assert np.isfinite(frames).all()


@pytest.mark.parametrize("samples", [0, 399])
def test_a_signal_without_a_full_receptive_field_is_an_error(layer_2, samples):
    with pytest.raises(
        InputError, match=f"expected at least 400 samples, got {samples}"
    ):
        open_hubert(layer_2)(np.zeros(samples, np.float32))


def test_a_signal_that_would_fill_the_memory_is_an_error(layer_2, monkeypatch):
    model = open_hubert(layer_2)
    with pytest.raises(InputError, match=r"at most 60 s, got 60\.1 s"):
        model(make_signal(961_000))
    monkeypatch.setattr("callshot.encoders.models.hubert.LONGEST_S", 0.5)
    with pytest.raises(InputError, match=r"at most 0\.5 s"):
        model(make_signal(8001))
    assert model(make_signal(8000)).shape == (24, 768)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_signal_that_is_not_finite_is_an_error(layer_2, bad):
    damaged = make_signal()
    damaged[100] = bad
    for normalise in (True, False):
        with pytest.raises(InputError, match="sample 100: expected a finite number"):
            open_hubert(layer_2, normalise=normalise)(damaged)


def test_normalising_removes_level_and_mean_and_does_not_change_the_input(layer_2):
    loud = make_signal(level=0.3, mean=0.2)
    copy = loud.copy()
    exact = loud.astype(np.float64)
    scaled = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-7)
    frames = open_hubert(layer_2)(loud)
    expected = open_hubert(layer_2, normalise=False)(scaled.astype(np.float32))
    assert np.abs(frames - expected).max() <= 1e-5
    assert np.abs(frames - open_hubert(layer_2)(loud * np.float32(0.5))).max() <= 1e-3
    assert np.array_equal(loud, copy)


# With torch and transformers


@pytest.fixture(scope="module")
def torch():
    reason = "the torch route of HuBERT needs torch, transformers and onnxscript"
    for name in ("transformers", "onnxscript"):
        pytest.importorskip(name, reason=reason)
    return pytest.importorskip("torch", reason=reason)


@pytest.fixture(scope="module")
def random_model(torch, tmp_path_factory):
    """A random HuBERT of four narrow layers, saved as Hugging Face does."""
    from transformers import HubertConfig, HubertModel

    torch.manual_seed(0)
    small = {
        "conv_dim": (16,) * 7,
        "intermediate_size": 32,
        "num_conv_pos_embeddings": 16,
    }
    model = HubertModel(HubertConfig(num_hidden_layers=4, **small)).eval()
    # Biases of zero and gains of one would hide a mix-up.
    for parameter in model.parameters():
        parameter.data += 0.02 * torch.randn_like(parameter)
    folder = tmp_path_factory.mktemp("random")
    model.save_pretrained(folder)
    model.weights = folder / "model.safetensors"
    return model


def hidden_state(torch, model, audio, layer):
    """Return a hidden state as Hugging Face's example computes it."""
    from transformers import Wav2Vec2FeatureExtractor

    values = Wav2Vec2FeatureExtractor(do_normalize=True)(
        audio, sampling_rate=16000, return_tensors="pt"
    ).input_values
    with torch.inference_mode():
        return np.array(
            model(values, output_hidden_states=True).hidden_states[layer][0].numpy()
        )


def export_whole(torch, model, path):
    """Export all layers with the exporter of the published file."""
    axes = {
        "input_values": {0: "batch_size", 1: "sequence_length"},
        "last_hidden_state": {0: "batch_size", 1: "frames"},
    }
    names = {"input_names": ["input_values"], "output_names": ["last_hidden_state"]}
    with warnings.catch_warnings(action="ignore"):
        torch.onnx.export(
            model,
            (torch.randn(1, 16000),),
            path,
            dynamo=False,
            opset_version=14,
            dynamic_axes=axes,
            **names,
        )
    return path


def assert_equals_layer(torch, random_model, model, layer):
    for samples in (400, 719, 16000, 23456):
        expected = hidden_state(torch, random_model, make_signal(samples), layer)
        assert np.abs(model(make_signal(samples)) - expected).max() <= 1e-5


def test_a_cut_layer_equals_the_hidden_state_of_the_whole_model(
    torch, random_model, tmp_path
):
    whole = export_whole(torch, random_model, tmp_path / "whole.onnx")
    for layer in (2, 4):
        cut_hubert(whole, tmp_path / "cut.onnx", layer)
        assert_equals_layer(
            torch, random_model, open_hubert(tmp_path / "cut.onnx"), layer
        )


def test_a_built_layer_equals_the_hidden_state_of_the_whole_model(torch, random_model):
    for layer in (1, 2, 4):
        assert_equals_layer(
            torch,
            random_model,
            open_hubert_torch(random_model.weights, layer, device="cpu"),
            layer,
        )


def test_signals_of_one_length_are_encoded_together_as_they_are_alone(
    torch, random_model
):
    model = open_hubert_torch(random_model.weights, 2, device="cpu")
    signals = np.stack([make_signal(2000), 0.1 * make_signal(2000)[::-1]])
    together = model.encode_batch(signals)
    alone = np.stack([model(signal) for signal in signals])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    mean = open_hubert_torch(random_model.weights, 2, mean=True, device="cpu")
    expected = alone.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(mean.encode_batch(signals), expected, rtol=0, atol=1e-5)


def test_an_exported_layer_equals_the_hidden_state_of_the_whole_model(
    torch, random_model, tmp_path, capfd
):
    export_hubert(random_model.weights, tmp_path / "exported.onnx", 2)
    assert capfd.readouterr() == ("", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["exported.onnx"]
    assert_equals_layer(torch, random_model, open_hubert(tmp_path / "exported.onnx"), 2)


def save_weights(torch, random_model, folder, tensors):
    shutil.copy(random_model.weights.with_name("config.json"), folder)
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def old_name(name):
    """Return the name of a tensor in the published weights: with a prefix, and old parts."""
    parts = {
        "parametrizations.weight.original0": "weight_g",
        "parametrizations.weight.original1": "weight_v",
    }
    for new, old in parts.items():
        name = name.replace(new, old)
    return f"hubert.{name}"


@pytest.mark.parametrize("rename", [str, old_name])
def test_weights_as_torch_saved_them_give_the_same_bits_as_safetensors(
    torch, random_model, tmp_path, rename
):
    tensors = {rename(key): value for key, value in random_model.state_dict().items()}
    model = open_hubert_torch(
        save_weights(torch, random_model, tmp_path, tensors), 2, device="cpu"
    )
    expected = open_hubert_torch(random_model.weights, 2, device="cpu")
    assert np.array_equal(model(make_signal()), expected(make_signal()))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # a CPU without bfloat16
def test_half_precision_is_near_float32_and_other_bits(torch, random_model):
    golden = open_hubert_torch(random_model.weights, 2, device="cpu")(make_signal())
    model = open_hubert_torch(
        random_model.weights, 2, device="cpu", precision="bfloat16"
    )
    frames = model(make_signal())
    assert frames.dtype == np.float32
    error = np.linalg.norm(frames - golden) / np.linalg.norm(golden)
    assert 1e-6 < error < 0.05


class Malicious:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was run')",)


def test_a_pickle_with_code_is_an_error_and_the_code_does_not_run(
    torch, random_model, tmp_path
):
    path = save_weights(
        torch, random_model, tmp_path, random_model.state_dict() | {"code": Malicious()}
    )
    with pytest.raises(
        InputError, match=r"pytorch_model\.bin: cannot be read as weights of HuBERT"
    ):
        open_hubert_torch(path, 2, device="cpu")


def test_missing_damaged_or_other_weights_are_errors(torch, random_model, tmp_path):
    (tmp_path / "half.safetensors").write_bytes(
        random_model.weights.read_bytes()[:100_000]
    )
    some = {
        name: value
        for name, value in random_model.state_dict().items()
        if "layers.1.attention" not in name
    }
    shapes = {name: value[:1] for name, value in random_model.state_dict().items()}
    for name in ("missing", "half"):
        with pytest.raises(
            InputError, match=rf"{name}\.safetensors: cannot be read as weights"
        ):
            open_hubert_torch(tmp_path / f"{name}.safetensors", 2, device="cpu")
    for tensors, message in (
        (some, r"8 tensors of HuBERT missing, the first is encoder\.layers\.1"),
        (shapes, "size mismatch"),
    ):
        with pytest.raises(InputError, match=message):
            open_hubert_torch(
                save_weights(torch, random_model, tmp_path, tensors), 2, device="cpu"
            )


def test_cuda_is_an_error_if_torch_finds_none(torch, random_model):
    if torch.cuda.is_available():
        pytest.skip("this torch has CUDA")
    with pytest.raises(OptionError, match="torch finds no cuda"):
        open_hubert_torch(random_model.weights, 2)
