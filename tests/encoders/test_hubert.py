"""HuBERT: a layer is the same if it is cut, exported or built; signals are not padded."""

import shutil
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

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
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hubert(tmp_path_factory.mktemp("published") / "model.onnx")


@pytest.fixture(scope="module")
def layer_2(published: Path) -> Path:
    cut_hubert(published, published.with_name("l2.onnx"), 2)
    return published.with_name("l2.onnx")


def make_signal(
    samples: int = 8000, level: float = 0.1, mean: float = 0.0
) -> NDArray[np.float32]:
    return (mean + level * np.random.default_rng(samples).normal(size=samples)).astype(
        np.float32
    )


# Cutting


@pytest.mark.parametrize("layer", [1, 2, 10, 11, 12])
def test_a_cut_equals_that_layer_of_the_reference(
    published: Path, tmp_path: Path, layer: int
) -> None:
    cut_hubert(published, tmp_path / "cut.onnx", layer)
    frames = open_hubert(tmp_path / "cut.onnx", normalise=False)(make_signal())
    expected = reference_hubert(published, make_signal(), layer)
    assert frames.dtype == np.float32
    assert np.abs(frames - expected).max() <= 1e-5 * np.abs(expected).max()
    assert (
        sum(name.startswith("wide_") for name in read_weights(tmp_path / "cut.onnx"))
        == layer
    )


@pytest.mark.parametrize("layer", [0, 13, -1])
def test_a_layer_that_hubert_base_does_not_have_is_an_error(
    published: Path, tmp_path: Path, layer: int
) -> None:
    with pytest.raises(InputError, match=f"expected layer {layer} of an ONNX export"):
        cut_hubert(published, tmp_path / "cut.onnx", layer)


def test_a_file_without_that_layer_is_an_error_with_the_layers_it_has(
    tmp_path: Path,
) -> None:
    with pytest.raises(
        InputError, match=r"expected layer 5 of .* got layers \[1, 2, 3\]"
    ):
        cut_hubert(hubert(tmp_path / "m.onnx", layers=3), tmp_path / "cut.onnx", 5)
    text = "(float[n, s] x) => (float[n, s] y) { y = Abs(x) }"
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"got layers \[\]"):
        cut_hubert(tmp_path / "other.onnx", tmp_path / "cut.onnx", 2)


def test_a_file_of_another_width_is_an_error_and_leaves_no_file(tmp_path: Path) -> None:
    large = hubert(tmp_path / "large.onnx", layers=3, width=1024)
    with pytest.raises(
        InputError,
        match=r"large\.onnx: cut at layer 2, .*is not HuBERT base .*got \(49, 1024\)",
    ):
        cut_hubert(large, tmp_path / "cut.onnx", 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["large.onnx"]


def test_a_damaged_file_is_an_error(published: Path, tmp_path: Path) -> None:
    (tmp_path / "half.onnx").write_bytes(
        published.read_bytes()[: published.stat().st_size // 2]
    )
    with pytest.raises(
        InputError, match=r"half\.onnx: cannot be opened as an ONNX model"
    ):
        cut_hubert(tmp_path / "half.onnx", tmp_path / "cut.onnx", 2)


# Running


@settings(max_examples=40)
@given(samples=st.integers(400, 6000))
def test_a_signal_has_a_frame_for_each_full_receptive_field(
    layer_2: Path, samples: int
) -> None:
    frames = open_hubert(layer_2)(make_signal(samples))
    starts = [start for start in range(0, samples, 320) if start + 400 <= samples]
    assert frames.shape == (len(starts), 768)
    assert np.isfinite(frames).all()


@pytest.mark.parametrize("samples", [0, 1, 399])
def test_a_signal_without_a_full_receptive_field_is_an_error(
    layer_2: Path, samples: int
) -> None:
    with pytest.raises(
        InputError, match=f"expected at least 400 samples, got {samples}"
    ):
        open_hubert(layer_2)(np.zeros(samples, np.float32))


def test_a_signal_that_would_fill_the_memory_is_an_error(
    layer_2: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = open_hubert(layer_2)
    with pytest.raises(InputError, match=r"at most 60 s, got 60\.1 s"):
        model(make_signal(961_000))
    monkeypatch.setattr("callshot.encoders.models.hubert.LONGEST_S", 0.5)
    with pytest.raises(InputError, match=r"at most 0\.5 s"):
        model(make_signal(8001))
    assert model(make_signal(8000)).shape == (24, 768)


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc"
)
def test_memory_does_not_grow_with_the_number_of_lengths(layer_2: Path) -> None:
    """A plan for each of the last 3,600 lengths would take more than 1 kB: 900 pages."""
    model = open_hubert(layer_2)
    noise = make_signal(9000)
    pages = []
    for start in (7000, 5000, 400):  # the first round fills the arena
        for samples in range(start, start + 1800):
            model(noise[:samples])
        pages.append(int(Path("/proc/self/statm").read_text().split()[1]))
    assert pages[2] - pages[0] <= 450


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_signal_that_is_not_finite_is_an_error(layer_2: Path, bad: float) -> None:
    damaged = make_signal()
    damaged[100] = bad
    for normalise in (True, False):
        with pytest.raises(InputError, match="sample 100: expected a finite number"):
            open_hubert(layer_2, normalise=normalise)(damaged)


def test_the_frames_of_silence_are_finite(layer_2: Path) -> None:
    for normalise in (True, False):
        assert np.isfinite(
            open_hubert(layer_2, normalise=normalise)(np.zeros(1600, np.float32))
        ).all()


def test_normalising_removes_level_and_mean_and_does_not_change_the_input(
    layer_2: Path,
) -> None:
    loud = make_signal(level=0.3, mean=0.2)
    copy = loud.copy()
    exact = loud.astype(np.float64)
    scaled = (exact - exact.mean()) / np.sqrt(exact.var() + 1e-7)
    frames = open_hubert(layer_2)(loud)
    expected = open_hubert(layer_2, normalise=False)(scaled.astype(np.float32))
    assert np.abs(frames - expected).max() <= 1e-5
    assert np.abs(frames - open_hubert(layer_2)(loud * np.float32(0.5))).max() <= 1e-3
    assert np.array_equal(loud, copy)


def test_the_same_signal_gives_the_same_bits_also_after_other_calls(
    layer_2: Path,
) -> None:
    model = open_hubert(layer_2)
    first = model(make_signal())
    copy = first.copy()
    model(make_signal(5000))
    assert np.array_equal(first, copy)
    assert np.array_equal(model(make_signal()), copy)


def test_padding_would_change_the_frames(layer_2: Path) -> None:
    """The stand-in normalises over time too, which is why HuBERT must not be padded."""
    model = open_hubert(layer_2)
    padded = np.pad(make_signal(), (0, 16000))
    assert np.abs(model(padded)[:20] - model(make_signal())[:20]).max() > 0.01


def test_a_file_with_two_outputs_is_an_error(tmp_path: Path) -> None:
    text = "(float[n, s] x) => (float[n, s] y, float[n, s] z) { y = Abs(x) z = Neg(x) }"
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "two.onnx")
    message = "expected one output, of frames, got y, z; cut the file at a layer"
    with pytest.raises(InputError, match=message):
        open_hubert(tmp_path / "two.onnx")


def test_missing_torch_is_an_error_with_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        InputError,
        match=r"the package torch is missing; install it with: pip install 'callshot\[",
    ):
        open_hubert_torch(tmp_path, 2)


# With torch and transformers


@pytest.fixture(scope="module")
def torch() -> Any:
    reason = "the torch route of HuBERT needs torch, transformers and onnxscript"
    for name in ("transformers", "onnxscript"):
        pytest.importorskip(name, reason=reason)
    return pytest.importorskip("torch", reason=reason)


@pytest.fixture(scope="module")
def random_model(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
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


def hidden_state(
    torch: Any, model: Any, audio: NDArray[np.float32], layer: int
) -> NDArray[np.float32]:
    """Return a hidden state as Hugging Face's example computes it."""
    from transformers import Wav2Vec2FeatureExtractor

    values = Wav2Vec2FeatureExtractor(do_normalize=True)(
        audio, sampling_rate=16000, return_tensors="pt"
    ).input_values
    with torch.inference_mode():
        return np.array(
            model(values, output_hidden_states=True).hidden_states[layer][0].numpy()
        )


def export_whole(torch: Any, model: Any, path: Path) -> Path:
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


def assert_equals_layer(torch: Any, random_model: Any, model: Any, layer: int) -> None:
    for samples in (400, 719, 16000, 23456):
        expected = hidden_state(torch, random_model, make_signal(samples), layer)
        assert np.abs(model(make_signal(samples)) - expected).max() <= 1e-5


def test_a_cut_layer_equals_the_hidden_state_of_the_whole_model(
    torch: Any, random_model: Any, tmp_path: Path
) -> None:
    whole = export_whole(torch, random_model, tmp_path / "whole.onnx")
    for layer in (1, 2, 4):
        cut_hubert(whole, tmp_path / "cut.onnx", layer)
        assert_equals_layer(
            torch, random_model, open_hubert(tmp_path / "cut.onnx"), layer
        )


def test_a_built_layer_equals_the_hidden_state_of_the_whole_model(
    torch: Any, random_model: Any
) -> None:
    for layer in (1, 2, 4):
        assert_equals_layer(
            torch,
            random_model,
            open_hubert_torch(random_model.weights, layer, device="cpu"),
            layer,
        )


def test_signals_of_one_length_are_encoded_together_as_they_are_alone(
    torch: Any, random_model: Any
) -> None:
    model = open_hubert_torch(random_model.weights, 2, device="cpu")
    signals = np.stack([make_signal(2000), 0.1 * make_signal(2000)[::-1]])
    together = model.encode_batch(signals)
    alone = np.stack([model(signal) for signal in signals])
    np.testing.assert_allclose(together, alone, rtol=0, atol=1e-5)
    mean = open_hubert_torch(random_model.weights, 2, mean=True, device="cpu")
    expected = alone.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(mean.encode_batch(signals), expected, rtol=0, atol=1e-5)


def test_two_layers_of_the_base_configuration_equal_hidden_state_2(
    torch: Any, tmp_path: Path
) -> None:
    from safetensors.torch import save_file
    from transformers import HubertConfig, HubertModel

    torch.manual_seed(0)
    base = HubertModel(HubertConfig(num_hidden_layers=3)).eval()
    save_file(base.state_dict(), tmp_path / "model.safetensors")
    assert_equals_layer(
        torch,
        base,
        open_hubert_torch(tmp_path / "model.safetensors", 2, device="cpu"),
        2,
    )


def test_an_exported_layer_equals_the_hidden_state_of_the_whole_model(
    torch: Any, random_model: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    export_hubert(random_model.weights, tmp_path / "exported.onnx", 2)
    assert capfd.readouterr() == ("", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["exported.onnx"]
    assert_equals_layer(torch, random_model, open_hubert(tmp_path / "exported.onnx"), 2)


def save_weights(torch: Any, random_model: Any, folder: Path, tensors: Any) -> Path:
    shutil.copy(random_model.weights.with_name("config.json"), folder)
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def old_name(name: str) -> str:
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
    torch: Any, random_model: Any, tmp_path: Path, rename: Any
) -> None:
    tensors = {rename(key): value for key, value in random_model.state_dict().items()}
    model = open_hubert_torch(
        save_weights(torch, random_model, tmp_path, tensors), 2, device="cpu"
    )
    expected = open_hubert_torch(random_model.weights, 2, device="cpu")
    assert np.array_equal(model(make_signal()), expected(make_signal()))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # a CPU without bfloat16
def test_half_precision_is_near_float32_and_other_bits(
    torch: Any, random_model: Any
) -> None:
    golden = open_hubert_torch(random_model.weights, 2, device="cpu")(make_signal())
    model = open_hubert_torch(
        random_model.weights, 2, device="cpu", precision="bfloat16"
    )
    frames = model(make_signal())
    assert frames.dtype == np.float32
    error = np.linalg.norm(frames - golden) / np.linalg.norm(golden)
    assert 1e-6 < error < 0.05


class Malicious:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('a pickle was run')",)


def test_a_pickle_with_code_is_an_error_and_the_code_does_not_run(
    torch: Any, random_model: Any, tmp_path: Path
) -> None:
    path = save_weights(
        torch, random_model, tmp_path, random_model.state_dict() | {"code": Malicious()}
    )
    with pytest.raises(
        InputError, match=r"pytorch_model\.bin: cannot be read as weights of HuBERT"
    ):
        open_hubert_torch(path, 2, device="cpu")


def test_missing_damaged_or_other_weights_are_errors(
    torch: Any, random_model: Any, tmp_path: Path
) -> None:
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


def test_cuda_is_an_error_if_torch_finds_none(torch: Any, random_model: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("this torch has CUDA")
    with pytest.raises(OptionError, match="torch finds no cuda"):
        open_hubert_torch(random_model.weights, 2)
