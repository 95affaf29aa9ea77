"""HuBERT: a layer is the same, cut, exported or built; frames are those of a literal twin; nothing is padded."""

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

from callshot.encoders.hubert import cut_hubert, export_hubert, open_hubert, open_hubert_torch
from callshot.errors import InputError, OptionError
from standins import hubert, hubert_twin, weights_of


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hubert(tmp_path_factory.mktemp("published") / "model.onnx")


@pytest.fixture(scope="module")
def second(published: Path) -> Path:
    cut_hubert(published, published.with_name("l2.onnx"), 2)
    return published.with_name("l2.onnx")


def signal(samples: int = 8000, level: float = 0.1, mean: float = 0.0) -> NDArray[np.float32]:
    return (mean + level * np.random.default_rng(samples).normal(size=samples)).astype(np.float32)


# Cutting


@pytest.mark.parametrize("layer", [1, 2, 10, 11, 12])
def test_a_cut_is_that_layer_of_the_literal_twin(
    published: Path, tmp_path: Path, layer: int
) -> None:
    cut_hubert(published, tmp_path / "cut.onnx", layer)
    found = open_hubert(tmp_path / "cut.onnx", normalise=False)(signal())
    wanted = hubert_twin(published, signal(), layer)
    assert found.dtype == np.float32
    assert np.abs(found - wanted).max() <= 1e-5 * np.abs(wanted).max()
    assert sum(name.startswith("wide_") for name in weights_of(tmp_path / "cut.onnx")) == layer


@pytest.mark.parametrize("layer", [0, 13, -1])
def test_a_layer_that_hubert_base_does_not_have_is_refused(
    published: Path, tmp_path: Path, layer: int
) -> None:
    with pytest.raises(OptionError, match=f"layer: a whole number from 1 to 12, got {layer}"):
        cut_hubert(published, tmp_path / "cut.onnx", layer)


def test_a_file_without_that_layer_is_refused_with_the_layers_it_has(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"wanted layer 5 of .* found layers 1 to 3"):
        cut_hubert(hubert(tmp_path / "m.onnx", layers=3), tmp_path / "cut.onnx", 5)
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[n, s] x) => (float[n, s] y) { y = Abs(x) }'
    onnx.save(onnx.parser.parse_model(text), tmp_path / "other.onnx")
    with pytest.raises(InputError, match="found no layer that ends in final_layer_norm"):
        cut_hubert(tmp_path / "other.onnx", tmp_path / "cut.onnx", 2)


def test_a_file_of_another_width_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    large = hubert(tmp_path / "large.onnx", layers=3, width=1024)
    with pytest.raises(
        InputError, match=r"large\.onnx: cut at layer 2, .*is not HuBERT base .*found \(49, 1024\)"
    ):
        cut_hubert(large, tmp_path / "cut.onnx", 2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["large.onnx"]


def test_a_damaged_file_is_refused(published: Path, tmp_path: Path) -> None:
    (tmp_path / "half.onnx").write_bytes(published.read_bytes()[: published.stat().st_size // 2])
    with pytest.raises(InputError, match=r"half\.onnx: cannot be opened as an ONNX model"):
        cut_hubert(tmp_path / "half.onnx", tmp_path / "cut.onnx", 2)


# Running


@settings(max_examples=40)
@given(samples=st.integers(400, 6000))
def test_a_signal_of_any_length_has_a_frame_for_each_full_field(second: Path, samples: int) -> None:
    frames = open_hubert(second)(signal(samples))
    assert frames.shape == (
        sum(1 for start in range(0, samples, 320) if start + 400 <= samples),
        768,
    )
    assert np.isfinite(frames).all()


@pytest.mark.parametrize("samples", [0, 1, 399])
def test_a_signal_without_a_full_field_is_refused(second: Path, samples: int) -> None:
    with pytest.raises(InputError, match=rf"at least 400 at 16 kHz, found \({samples},\)"):
        open_hubert(second)(np.zeros(samples, np.float32))


def test_a_signal_that_would_fill_the_memory_is_refused_unless_allowed(second: Path) -> None:
    with pytest.raises(InputError, match=r"at most 60 s, found 60\.1 s"):
        open_hubert(second)(signal(961_000))
    with pytest.raises(InputError, match=r"at most 0\.5 s"):
        open_hubert(second, longest_s=0.5)(signal(8001))
    assert open_hubert(second, longest_s=0.5)(signal(8000)).shape == (24, 768)


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="the memory in use is read from /proc"
)
def test_memory_does_not_grow_with_the_number_of_lengths(second: Path) -> None:
    """A plan kept for each length would be over 1 kB each."""
    model, noise = open_hubert(second), signal(9000)
    pages = []
    for start in (7000, 5000, 400):  # the longest first: the first round fills the arena
        for samples in range(start, start + 1800):
            model(noise[:samples])
        pages.append(int(Path("/proc/self/statm").read_text().split()[1]))
    assert pages[2] - pages[0] <= 128


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_signal_that_is_not_finite_is_refused(second: Path, bad: float) -> None:
    spoiled = signal()
    spoiled[100] = bad
    for normalise in (True, False):
        with pytest.raises(InputError, match="finite samples"):
            open_hubert(second, normalise=normalise)(spoiled)


def test_a_signal_of_two_channels_is_refused(second: Path) -> None:
    with pytest.raises(InputError, match=r"wanted \(samples,\).* found \(2, 800\)"):
        open_hubert(second)(np.zeros((2, 800), np.float32))


def test_silence_is_finite(second: Path) -> None:
    for normalise in (True, False):
        assert np.isfinite(
            open_hubert(second, normalise=normalise)(np.zeros(1600, np.float32))
        ).all()


def test_normalising_takes_out_level_and_mean_and_leaves_the_given_signal_alone(
    second: Path,
) -> None:
    loud = signal(level=0.3, mean=0.2)
    kept = loud.copy()
    scaled = (loud.astype(np.float64) - loud.mean(dtype=np.float64)) / np.sqrt(
        loud.var(dtype=np.float64) + 1e-7
    )
    found = open_hubert(second)(loud)
    assert (
        np.abs(found - open_hubert(second, normalise=False)(scaled.astype(np.float32))).max()
        <= 1e-5
    )
    assert np.abs(found - open_hubert(second)(loud * np.float32(0.5))).max() <= 1e-3
    assert np.array_equal(loud, kept)


def test_the_same_signal_gives_the_same_bits_and_the_next_call_does_not_change_them(
    second: Path,
) -> None:
    model = open_hubert(second)
    first = model(signal())
    kept = first.copy()
    model(signal(5000))
    assert np.array_equal(first, kept)
    assert np.array_equal(model(signal()), kept)


def test_padding_would_change_the_frames(second: Path) -> None:
    """The stand-in has the normalisation over time for which HuBERT must not be padded."""
    model = open_hubert(second)
    padded = np.pad(signal(), (0, 16000))
    assert np.abs(model(padded)[:20] - model(signal())[:20]).max() > 0.01


def test_a_file_that_is_not_cut_to_one_output_is_refused(tmp_path: Path) -> None:
    text = "(float[n, s] x) => (float[n, s] y, float[n, s] z) { y = Abs(x) z = Neg(x) }"
    onnx.save(
        onnx.parser.parse_model('<ir_version: 8, opset_import: ["": 17]> g ' + text),
        tmp_path / "two.onnx",
    )
    with pytest.raises(
        InputError, match="wanted one output, of frames, found y, z; cut the file to a layer"
    ):
        open_hubert(tmp_path / "two.onnx")


def test_without_torch_the_error_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        InputError, match=r"the package torch is missing; install it with: pip install 'callshot\["
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
def drawn(torch: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Draw a HuBERT of four layers that is narrow inside, and save it as Hugging Face does."""
    from transformers import HubertConfig, HubertModel

    torch.manual_seed(0)
    small = {"conv_dim": (16,) * 7, "intermediate_size": 32, "num_conv_pos_embeddings": 16}
    model = HubertModel(HubertConfig(num_hidden_layers=4, **small)).eval()
    for parameter in (
        model.parameters()
    ):  # biases and gains are drawn as zeros and ones, which would hide a mix-up
        parameter.data += 0.02 * torch.randn_like(parameter)
    folder = tmp_path_factory.mktemp("drawn")
    model.save_pretrained(folder)
    model.weights = folder / "model.safetensors"
    return model


def hidden_state(
    torch: Any, model: Any, given: NDArray[np.float32], layer: int
) -> NDArray[np.float32]:
    """Prepare and run as Hugging Face's own example does."""
    from transformers import Wav2Vec2FeatureExtractor

    values = Wav2Vec2FeatureExtractor(do_normalize=True)(
        given, sampling_rate=16000, return_tensors="pt"
    ).input_values
    with torch.inference_mode():
        return np.array(model(values, output_hidden_states=True).hidden_states[layer][0].numpy())


def export_whole(torch: Any, model: Any, path: Path) -> Path:
    """Export all layers with the exporter that the published file was made with."""
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


def refuse_apart(torch: Any, drawn: Any, model: Any, layer: int) -> None:
    for samples in (400, 719, 16000, 23456):
        wanted = hidden_state(torch, drawn, signal(samples), layer)
        assert np.abs(model(signal(samples)) - wanted).max() <= 1e-5


def test_a_layer_that_is_cut_is_that_hidden_state_of_the_whole_model(
    torch: Any, drawn: Any, tmp_path: Path
) -> None:
    whole = export_whole(torch, drawn, tmp_path / "whole.onnx")
    for layer in (1, 2, 4):
        cut_hubert(whole, tmp_path / "cut.onnx", layer)
        refuse_apart(torch, drawn, open_hubert(tmp_path / "cut.onnx"), layer)


def test_a_layer_that_is_built_is_that_hidden_state_of_the_whole_model(
    torch: Any, drawn: Any
) -> None:
    for layer in (1, 2, 4):
        refuse_apart(torch, drawn, open_hubert_torch(drawn.weights, layer, device="cpu"), layer)


def test_two_layers_of_the_base_configuration_are_its_hidden_state_2(
    torch: Any, tmp_path: Path
) -> None:
    from safetensors.torch import save_file
    from transformers import HubertConfig, HubertModel

    torch.manual_seed(0)
    base = HubertModel(HubertConfig()).eval()
    save_file(base.state_dict(), tmp_path / "model.safetensors")
    refuse_apart(torch, base, open_hubert_torch(tmp_path / "model.safetensors", 2, device="cpu"), 2)


def test_a_layer_that_is_exported_is_that_hidden_state_of_the_whole_model(
    torch: Any, drawn: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    export_hubert(drawn.weights, tmp_path / "exported.onnx", 2)
    assert capfd.readouterr() == ("", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["exported.onnx"]
    refuse_apart(torch, drawn, open_hubert(tmp_path / "exported.onnx"), 2)


def saved(torch: Any, drawn: Any, folder: Path, tensors: Any) -> Path:
    shutil.copy(drawn.weights.with_name("config.json"), folder)
    torch.save(tensors, folder / "pytorch_model.bin")
    return folder / "pytorch_model.bin"


def old_name(name: str) -> str:
    """Name a tensor as the published weights do, with a head's prefix, and its weights split in the old way."""
    split = {
        "parametrizations.weight.original0": "weight_g",
        "parametrizations.weight.original1": "weight_v",
    }
    for new, old in split.items():
        name = name.replace(new, old)
    return f"hubert.{name}"


@pytest.mark.parametrize("name", [str, old_name])
def test_weights_as_torch_saved_them_give_the_same_bits_as_safetensors(
    torch: Any, drawn: Any, tmp_path: Path, name: Any
) -> None:
    tensors = {name(key): value for key, value in drawn.state_dict().items()}
    found = open_hubert_torch(saved(torch, drawn, tmp_path, tensors), 2, device="cpu")
    assert np.array_equal(
        found(signal()), open_hubert_torch(drawn.weights, 2, device="cpu")(signal())
    )


class Bomb:
    def __reduce__(self) -> Any:
        return exec, ("raise SystemExit('a pickle was run')",)


def test_a_pickle_that_holds_code_is_refused_and_not_run(
    torch: Any, drawn: Any, tmp_path: Path
) -> None:
    path = saved(torch, drawn, tmp_path, drawn.state_dict() | {"bomb": Bomb()})
    with pytest.raises(
        InputError, match=r"pytorch_model\.bin: cannot be read as weights of HuBERT"
    ):
        open_hubert_torch(path, 2, device="cpu")


def test_weights_that_are_gone_damaged_or_of_another_model_are_refused(
    torch: Any, drawn: Any, tmp_path: Path
) -> None:
    (tmp_path / "half.safetensors").write_bytes(drawn.weights.read_bytes()[:100_000])
    some = {
        name: value
        for name, value in drawn.state_dict().items()
        if "layers.1.attention" not in name
    }
    shapes = {name: value[:1] for name, value in drawn.state_dict().items()}
    for name in ("gone", "half"):
        with pytest.raises(InputError, match=rf"{name}\.safetensors: cannot be read as weights"):
            open_hubert_torch(tmp_path / f"{name}.safetensors", 2, device="cpu")
    for tensors, message in (
        (some, r"8 tensors of HuBERT are missing, encoder\.layers\.1"),
        (shapes, "size mismatch"),
    ):
        with pytest.raises(InputError, match=message):
            open_hubert_torch(saved(torch, drawn, tmp_path, tensors), 2, device="cpu")


def test_cuda_is_refused_where_torch_has_none(torch: Any, drawn: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("this torch has CUDA")
    with pytest.raises(OptionError, match="cuda is not there for torch"):
        open_hubert_torch(drawn.weights, 2)
