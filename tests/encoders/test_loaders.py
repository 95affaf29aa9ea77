"""HuBERT uses the right weights and runtime on every device; Perch 2 has frames in windows."""

import hashlib
import sys
from typing import Any

import numpy as np
import pytest

from callshot.encoders import encode
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import (
    PreparedSegment,
    encoder_fingerprint,
    open_encoder,
    used_weights,
)
from callshot.encoders.models import hubert
from callshot.encoders.weights import import_weight, torch_has_cuda, weight_folder
from callshot.errors import OptionError
from standins import hubert as save_hubert

SPEC = find_encoder("hubert-base-l2")
WEIGHTS = {weight.file: weight for weight in (*SPEC.weights, *SPEC.torch_weights)}
ONNX = "model.onnx"
SAFE = "model.safetensors"


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("weights")
    (folder / SAFE).write_bytes(b"weights for torch")
    return {ONNX: save_hubert(folder / ONNX), SAFE: folder / SAFE}


def import_weights(files, *names):
    for name in names:
        import_weight(SPEC.weights_name, WEIGHTS[name], files[name])


def make_sound(samples=8000):
    return (
        np.random.default_rng(samples)
        .normal(scale=0.1, size=samples)
        .astype(np.float32)
    )


# Which weights


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


# Which runtime


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


@pytest.mark.parametrize("present", [ONNX, SAFE])
def test_without_a_gpu_the_error_says_what_to_do_before_any_file_is_made(
    files, monkeypatch, present
):
    import_weights(files, present)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: False)
    monkeypatch.setattr("callshot.encoders.models.hubert.has_cuda", lambda: False)
    message = (
        "device: cuda needs a torch .*callshot encoders get hubert-base-l2 --torch.*, "
        "or onnxruntime-gpu .* use cpu"
    )
    with pytest.raises(OptionError, match=message):
        open_encoder(SPEC, device="cuda")
    assert not (weight_folder(SPEC.weights_name) / "derived").exists()


@pytest.mark.parametrize(("present", "device"), [(ONNX, "cuda"), (SAFE, "cpu")])
def test_half_precision_without_torch_on_a_gpu_is_an_error(
    files, monkeypatch, present, device
):
    import_weights(files, present)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: True)
    monkeypatch.setattr(encode, "torch_has_cuda", lambda: True)
    half = find_encoder("hubert-base-l2", {"precision": "float16"})
    with pytest.raises(
        OptionError, match="precision=float16 needs --device cuda, a torch"
    ):
        open_encoder(half, device=device)
    full: Any = encoder_fingerprint(SPEC)
    other: Any = encoder_fingerprint(half)
    assert other["options"] == full["options"] | {"precision": "float16"}
    assert full["options"]["precision"] == "float32"
    with pytest.raises(OptionError, match="precision"):
        find_encoder("hubert-base-l2", {"precision": "float8"})


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
    monkeypatch.setattr("callshot.encoders.models.hubert.has_cuda", lambda: True)
    on_cpu = open_encoder(SPEC, device="cpu").encode([PreparedSegment(make_sound())])[0]
    on_cuda = open_encoder(SPEC, device="cuda").encode([PreparedSegment(make_sound())])[
        0
    ]
    assert exported == ([SAFE] if present == SAFE else [])
    assert devices[-2:] == ["cpu", "cuda"]
    assert on_cpu.shape == (24, 768)
    np.testing.assert_array_equal(on_cpu, on_cuda)


def test_without_torch_there_is_no_gpu_and_nothing_is_imported(monkeypatch):
    monkeypatch.setattr("callshot.encoders.weights.find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert torch_has_cuda() is False


# With torch and transformers


@pytest.fixture(scope="module")
def random_weights(tmp_path_factory):
    """Random weights of the first two layers of HuBERT base, as Hugging Face saves them."""
    reason = "exporting HuBERT needs torch: pip install 'callshot[baselines]'"
    for name in ("torch", "onnxscript"):
        pytest.importorskip(name, reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    sys.modules["torch"].manual_seed(0)
    folder = tmp_path_factory.mktemp("random")
    transformers.HubertModel(
        transformers.HubertConfig(num_hidden_layers=2)
    ).save_pretrained(folder)
    (folder / "config.json").unlink()
    return folder / SAFE


def test_a_real_gpu_gives_the_frames_of_the_cpu(request):
    if not torch_has_cuda():
        pytest.skip("torch finds no GPU here")
    random_weights = request.getfixturevalue("random_weights")
    import_weights({SAFE: random_weights}, SAFE)
    on_cpu = open_encoder(SPEC, device="cpu")
    on_cuda = open_encoder(SPEC, device="cuda")
    assert on_cpu.fingerprint == on_cuda.fingerprint
    for samples in (400, 8000, 20001):
        signals = [PreparedSegment(make_sound(samples))]
        assert (
            np.abs(on_cpu.encode(signals)[0] - on_cuda.encode(signals)[0]).max() <= 1e-4
        )
