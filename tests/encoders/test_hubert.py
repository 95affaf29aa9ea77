"""HuBERT: a layer is the same if it is cut, exported or built; signals are not padded."""

import hashlib
import shutil
import sys
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from callshot.encoders import encode
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import PreparedSegment, open_encoder, used_weights
from callshot.encoders.models import hubert
from callshot.encoders.models.hubert import (
    cut_hubert,
    export_hubert,
    open_hubert,
    open_hubert_torch,
)
from callshot.encoders.weights import import_weight, torch_has_cuda, weight_folder
from callshot.errors import InputError, OptionError
from standins import hubert as save_hubert
from standins import read_weights, reference_hubert

pytestmark = pytest.mark.usefixtures("cache")
HEAD = '<ir_version: 8, opset_import: ["": 17]> g '


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    return save_hubert(tmp_path_factory.mktemp("published") / "model.onnx", layers=5)


@pytest.fixture(scope="module")
def layer_2(published):
    cut_hubert(published, published.with_name("l2.onnx"), 2)
    return published.with_name("l2.onnx")


def make_signal(samples=8000, level=0.1, mean=0.0):
    random = np.random.default_rng(samples)
    return (mean + level * random.normal(size=samples)).astype(np.float32)


# Cutting


@pytest.mark.parametrize("layer", [2, 5])
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


def test_a_file_without_that_layer_is_an_error_with_the_layers_it_has(tmp_path):
    short = save_hubert(tmp_path / "m.onnx", layers=3)
    for layer in (0, 5):
        message = rf"expected layer {layer} of an ONNX export .* got layers \[1, 2, 3\]"
        with pytest.raises(InputError, match=message):
            cut_hubert(short, tmp_path / "cut.onnx", layer)
    text = "(float[n, s] x) => (float[n, s] y) { y = Abs(x) }"
    onnx.save(onnx.parser.parse_model(HEAD + text), tmp_path / "other.onnx")
    with pytest.raises(InputError, match=r"got layers \[\]"):
        cut_hubert(tmp_path / "other.onnx", tmp_path / "cut.onnx", 2)


def test_a_file_of_another_width_is_an_error(tmp_path):
    large = save_hubert(tmp_path / "large.onnx", layers=3, width=1024)
    message = r"large\.onnx: cut at layer 2, .*is not HuBERT base .*got \(49, 1024\)"
    with pytest.raises(InputError, match=message):
        cut_hubert(large, tmp_path / "cut.onnx", 2)


# Running


@settings(max_examples=8)
@given(samples=st.integers(400, 6000))
def test_a_signal_has_a_frame_for_each_full_receptive_field(layer_2, samples):
    frames = open_hubert(layer_2)(make_signal(samples))
    starts = [start for start in range(0, samples, 320) if start + 400 <= samples]
    assert frames.shape == (len(starts), 768)
    assert np.isfinite(frames).all()


def test_a_signal_that_is_too_short_too_long_or_not_finite_is_an_error(layer_2):
    model = open_hubert(layer_2, normalise=False)
    for samples, message in (
        (0, "expected at least 400 samples, got 0"),
        (399, "expected at least 400 samples, got 399"),
        (961_000, "at most 60 s, got 60.1 s"),  # it would fill the memory
    ):
        with pytest.raises(InputError, match=message):
            model(np.zeros(samples, np.float32))
    for bad in (np.nan, np.inf):
        damaged = make_signal()
        damaged[100] = bad
        with pytest.raises(InputError, match="sample 100: expected a finite number"):
            model(damaged)


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
    """A random HuBERT of two narrow layers, saved as Hugging Face does."""
    from transformers import HubertConfig, HubertModel

    torch.manual_seed(0)
    small = {
        "conv_dim": (16,) * 7,
        "intermediate_size": 32,
        "num_conv_pos_embeddings": 16,
    }
    model = HubertModel(HubertConfig(num_hidden_layers=2, **small)).eval()
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

    extract = Wav2Vec2FeatureExtractor(do_normalize=True)
    values = extract(audio, sampling_rate=16000, return_tensors="pt").input_values
    with torch.inference_mode():
        states = model(values, output_hidden_states=True).hidden_states
    return np.array(states[layer][0].numpy())


def assert_equals_layer(torch, random_model, model, layer):
    for samples in (400, 719, 9000):
        expected = hidden_state(torch, random_model, make_signal(samples), layer)
        assert np.abs(model(make_signal(samples)) - expected).max() <= 1e-5


def test_a_built_layer_equals_the_hidden_state_of_the_whole_model(torch, random_model):
    for layer in (1, 2):
        built = open_hubert_torch(random_model.weights, layer, device="cpu")
        assert_equals_layer(torch, random_model, built, layer)


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
    export_hubert(random_model.weights, tmp_path / "exported.onnx", 1)
    assert capfd.readouterr() == ("", "")
    assert [entry.name for entry in tmp_path.iterdir()] == ["exported.onnx"]
    assert_equals_layer(torch, random_model, open_hubert(tmp_path / "exported.onnx"), 1)


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


def test_weights_as_torch_saved_them_give_the_same_bits_as_safetensors(
    torch, random_model, tmp_path
):
    tensors = {old_name(key): value for key, value in random_model.state_dict().items()}
    path = save_weights(torch, random_model, tmp_path, tensors)
    model = open_hubert_torch(path, 2, device="cpu")
    expected = open_hubert_torch(random_model.weights, 2, device="cpu")
    assert np.array_equal(model(make_signal()), expected(make_signal()))


@pytest.mark.filterwarnings("ignore:mkldnn_matmul")  # a CPU without bfloat16
def test_half_precision_is_near_float32_and_other_bits(torch, random_model):
    golden = open_hubert_torch(random_model.weights, 2, device="cpu")(make_signal())
    options = {"device": "cpu", "precision": "bfloat16"}
    frames = open_hubert_torch(random_model.weights, 2, **options)(make_signal())
    assert frames.dtype == np.float32
    error = np.linalg.norm(frames - golden) / np.linalg.norm(golden)
    assert 1e-6 < error < 0.05


class Malicious:
    def __reduce__(self):
        return exec, ("raise SystemExit('a pickle was run')",)


def test_a_pickle_with_code_is_an_error_and_the_code_does_not_run(
    torch, random_model, tmp_path
):
    tensors = random_model.state_dict() | {"code": Malicious()}
    path = save_weights(torch, random_model, tmp_path, tensors)
    with pytest.raises(InputError, match="cannot be read as weights of HuBERT"):
        open_hubert_torch(path, 2, device="cpu")


def test_missing_damaged_or_other_weights_are_errors(torch, random_model, tmp_path):
    half = random_model.weights.read_bytes()[:100_000]
    (tmp_path / "half.safetensors").write_bytes(half)
    for name in ("missing", "half"):
        with pytest.raises(
            InputError, match=rf"{name}\.safetensors: cannot be read as"
        ):
            open_hubert_torch(tmp_path / f"{name}.safetensors", 2, device="cpu")
    state = random_model.state_dict()
    some = {name: state[name] for name in state if "layers.1.attention" not in name}
    shapes = {name: value[:1] for name, value in state.items()}
    missing = r"8 tensors of HuBERT missing, the first is encoder\.layers\.1"
    for tensors, message in ((some, missing), (shapes, "size mismatch")):
        path = save_weights(torch, random_model, tmp_path, tensors)
        with pytest.raises(InputError, match=message):
            open_hubert_torch(path, 2, device="cpu")


SPEC = find_encoder("hubert-base-l2")
WEIGHTS = {weight.file: weight for weight in (*SPEC.weights, *SPEC.torch_weights)}
ONNX = "model.onnx"
SAFE = "model.safetensors"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    (folder / SAFE).write_bytes(b"weights for torch")
    return {ONNX: save_hubert(folder / ONNX), SAFE: folder / SAFE}


def import_weights(files, *names):
    for name in names:
        import_weight(SPEC.weights_name, WEIGHTS[name], files[name])


@pytest.mark.parametrize(
    ("present", "device", "gpu", "used"),
    [
        ((ONNX,), "cpu", False, ONNX),
        ((SAFE,), "cpu", False, SAFE),
        ((ONNX, SAFE), "cpu", True, ONNX),
        ((ONNX, SAFE), "cuda", True, SAFE),
        ((ONNX, SAFE), "cuda", False, ONNX),
        ((ONNX,), "cuda", True, ONNX),
        ((SAFE,), "cuda", False, SAFE),
    ],
)
def test_weights_for_torch_are_used_if_they_are_alone_or_torch_has_a_gpu(
    files, monkeypatch, present, device, gpu, used
):
    import_weights(files, *present)
    monkeypatch.setattr(encode, "torch_has_cuda", lambda: gpu)
    assert used_weights(SPEC, device) == (WEIGHTS[used],)


def test_on_a_gpu_torch_runs_its_weights_and_they_are_in_the_fingerprint(
    files, monkeypatch
):
    opened: list[Any] = []

    def open_torch(weights, layer, **options):
        opened.append((weights.name, layer, options))
        return lambda signal: np.zeros((1, 768), np.float32)

    import_weights(files, ONNX, SAFE)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: True)
    monkeypatch.setattr(encode, "torch_has_cuda", lambda: True)
    monkeypatch.setattr(hubert, "open_hubert_torch", open_torch)
    encoder = open_encoder(
        find_encoder("hubert-base-l5", {"normalise": "false"}), device="cuda", threads=3
    )
    options = {"normalise": False, "mean": True, "threads": 3}
    options["precision"] = "float32"
    assert opened == [(SAFE, 5, options)]
    assert encoder.fingerprint["weights"] == {
        SAFE: hashlib.sha256(files[SAFE].read_bytes()).hexdigest()
    }


@pytest.mark.parametrize(
    ("present", "precision", "device", "gpu", "message"),
    [
        (
            ONNX,
            "float32",
            "cuda",
            False,
            "device: cuda needs a torch .*-l2 --torch.* cpu",
        ),
        (
            SAFE,
            "float32",
            "cuda",
            False,
            "device: cuda needs a torch .*-l2 --torch.* cpu",
        ),
        (
            ONNX,
            "float16",
            "cuda",
            True,
            "precision=float16 needs --device cuda, a torch",
        ),
        (
            SAFE,
            "float16",
            "cpu",
            True,
            "precision=float16 needs --device cuda, a torch",
        ),
    ],
)
def test_what_needs_torch_on_a_gpu_is_an_error_before_any_file_is_made(
    files, monkeypatch, present, precision, device, gpu, message
):
    import_weights(files, present)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: gpu)
    monkeypatch.setattr(encode, "torch_has_cuda", lambda: gpu)
    monkeypatch.setattr(hubert, "has_cuda", lambda: False)
    with pytest.raises(OptionError, match=message):
        open_encoder(find_encoder(SPEC.name, {"precision": precision}), device=device)
    assert not (weight_folder(SPEC.weights_name) / "derived").exists()


@pytest.mark.parametrize("present", [ONNX, SAFE])
def test_weights_are_cut_or_exported_once_and_run_by_onnx_runtime(
    files, monkeypatch, present
):
    exported: list[str] = []
    devices: list[str] = []
    open_hubert = hubert.open_hubert

    def export(weights, target, layer):
        exported.append(weights.name)
        hubert.cut_hubert(files[ONNX], target, layer)

    def open_on_cpu(path, *, device="cpu", **options):
        devices.append(device)
        return open_hubert(path, **options)

    import_weights(files, present)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: False)
    monkeypatch.setattr(hubert, "export_hubert", export)
    monkeypatch.setattr(hubert, "open_hubert", open_on_cpu)
    monkeypatch.setattr(hubert, "has_cuda", lambda: True)
    sound = [PreparedSegment(make_signal())]
    outputs = [
        open_encoder(SPEC, device=device).encode(sound)[0] for device in ("cpu", "cuda")
    ]
    assert exported == ([SAFE] if present == SAFE else [])
    assert devices[-2:] == ["cpu", "cuda"]
    assert outputs[0].shape == (24, 768)
    np.testing.assert_array_equal(*outputs)


def test_without_torch_there_is_no_gpu_and_nothing_is_imported(monkeypatch):
    monkeypatch.setattr("callshot.encoders.weights.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_has_cuda() is False
