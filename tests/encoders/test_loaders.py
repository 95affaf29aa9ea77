"""The routes of HuBERT: which weights are used, and by what, on every device; frames inside the windows of Perch 2."""

import hashlib
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from callshot.encoders import hubert
from callshot.encoders.catalogue import find_encoder
from callshot.encoders.encode import open_encoder, pool, unroll
from callshot.encoders.loaders import used_weights
from callshot.encoders.weights.weight_files import import_weight, weight_folder
from callshot.errors import InputError, OptionError
from standins import hubert as standin
from standins import perch_v2, perch_v2_cells

SPEC = find_encoder("hubert-base-l2")
SORTS = {weight.file: weight for weight in (*SPEC.weights, *SPEC.torch_weights)}
ONNX, SAFE = "model.onnx", "model.safetensors"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CALLSHOT_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("weights")
    (folder / SAFE).write_bytes(b"weights for torch")
    return {ONNX: standin(folder / ONNX), SAFE: folder / SAFE}


def keep(files: dict[str, Path], *names: str) -> None:
    for name in names:
        import_weight(SPEC.weights_name, SORTS[name], files[name])


def sound(samples: int = 8000) -> NDArray[np.float32]:
    return np.random.default_rng(samples).normal(scale=0.1, size=samples).astype(np.float32)


# Which weights


@pytest.mark.parametrize(
    ("there", "device", "gpu", "used"),
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
def test_weights_for_torch_are_used_where_they_are_alone_or_torch_has_a_gpu(
    files: dict[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    there: Any,
    device: str,
    gpu: bool,
    used: str,
) -> None:
    keep(files, *there)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: gpu)
    assert used_weights(SPEC, device) == (SORTS[used],)


def test_the_command_for_missing_weights_is_one_that_works() -> None:
    for device in ("cpu", "cuda"):
        with pytest.raises(
            InputError, match=r"callshot encoders get hubert-base-l2 \(or, offline"
        ) as caught:
            open_encoder(find_encoder("hubert-base-l7"), device=device)
        assert find_encoder(str(caught.value).partition("encoders get ")[2].split()[0])


def test_published_weights_for_torch_are_held_to_their_checksum(tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"another model")
    with pytest.raises(InputError, match=r"pytorch_model\.bin: .*wanted 377569754 bytes, found 13"):
        import_weight(SPEC.weights_name, SORTS["pytorch_model.bin"], tmp_path / "pytorch_model.bin")


# Which route


def test_on_a_gpu_of_torchs_its_weights_are_run_by_torch_and_named_in_the_fingerprint(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Any] = []

    def record(weights: Path, layer: int, **options: Any) -> Any:
        opened.append((weights.name, layer, options))
        return lambda signal: np.zeros((1, 768), np.float32)

    keep(files, ONNX, SAFE)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: True)
    monkeypatch.setattr(hubert, "open_hubert_torch", record)
    encoder = open_encoder(
        find_encoder("hubert-base-l5", {"normalise": "false"}), device="cuda", threads=3
    )
    assert opened == [(SAFE, 5, {"normalise": False, "threads": 3})]
    assert encoder.fingerprint["weights"] == {
        SAFE: hashlib.sha256(files[SAFE].read_bytes()).hexdigest()
    }


@pytest.mark.parametrize("there", [ONNX, SAFE])
def test_without_any_gpu_one_error_says_what_to_do_before_anything_is_made(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    keep(files, there)
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: False)
    monkeypatch.setattr("callshot.encoders.onnx.has_cuda", lambda: False)
    said = r"device: cuda wants a torch .*callshot encoders get hubert-base-l2 --torch\), or onnxruntime-gpu .* use cpu"
    with pytest.raises(OptionError, match=said):
        open_encoder(SPEC, device="cuda")
    assert not (weight_folder(SPEC.weights_name) / "derived").exists()


@pytest.mark.parametrize("there", [ONNX, SAFE])
def test_weights_are_cut_or_exported_once_and_run_by_onnx_runtime_on_the_device(
    files: dict[str, Path], monkeypatch: pytest.MonkeyPatch, there: str
) -> None:
    made: list[str] = []
    devices: list[str] = []

    def export(weights: Path, target: Path, layer: int) -> None:
        made.append(weights.name)
        hubert.cut_hubert(files[ONNX], target, layer)

    def open_on(path: Path, *, device: str, **options: Any) -> Any:
        devices.append(device)
        return plain(path, **options)

    keep(files, there)
    plain = hubert.open_hubert
    monkeypatch.setattr(hubert, "torch_has_cuda", lambda: False)
    monkeypatch.setattr(hubert, "export_hubert", export)
    monkeypatch.setattr(
        hubert, "open_hubert", lambda path, **options: open_on(path, **{"device": "cpu"} | options)
    )
    monkeypatch.setattr("callshot.encoders.onnx.has_cuda", lambda: True)
    found = [open_encoder(SPEC, device=device).encode([sound()])[0] for device in ("cpu", "cuda")]
    assert made == ([SAFE] if there == SAFE else [])
    assert devices[-2:] == ["cpu", "cuda"]
    assert found[0].shape == (24, 768)
    np.testing.assert_array_equal(*found)


def test_where_there_is_no_torch_it_has_no_gpu_and_nothing_is_imported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hubert, "find_spec", lambda name: None)
    monkeypatch.setitem(sys.modules, "torch", None)
    assert hubert.torch_has_cuda() is False


# With torch and transformers


@pytest.fixture(scope="module")
def drawn(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw the first two layers of a HuBERT base, as Hugging Face saves it."""
    reason = "exporting HuBERT needs torch, transformers and onnxscript: make test-torch"
    for name in ("torch", "onnxscript"):
        pytest.importorskip(name, reason=reason)
    transformers = pytest.importorskip("transformers", reason=reason)
    sys.modules["torch"].manual_seed(0)
    folder = tmp_path_factory.mktemp("drawn")
    transformers.HubertModel(transformers.HubertConfig(num_hidden_layers=2)).save_pretrained(folder)
    (folder / "config.json").unlink()
    return folder / SAFE


def test_weights_for_torch_give_the_same_frames_exported_and_run_by_torch(drawn: Path) -> None:
    keep({SAFE: drawn}, SAFE)
    encoder = open_encoder(SPEC)
    assert encoder.fingerprint["weights"] == {SAFE: hashlib.sha256(drawn.read_bytes()).hexdigest()}
    for samples in (400, 8000, 20001):
        wanted = hubert.open_hubert_torch(drawn, 2, device="cpu")(sound(samples))
        assert np.abs(encoder.encode([sound(samples)])[0] - wanted).max() <= 1e-5


def test_on_a_real_gpu_torch_gives_what_the_cpu_gives(drawn: Path) -> None:
    if not hubert.torch_has_cuda():
        pytest.skip("torch finds no GPU here")
    keep({SAFE: drawn}, SAFE)
    ways = [open_encoder(SPEC, device=device) for device in ("cpu", "cuda")]
    assert ways[0].fingerprint == ways[1].fingerprint
    for samples in (400, 8000, 20001):
        one, other = (way.encode([sound(samples)])[0] for way in ways)
        assert np.abs(one - other).max() <= 1e-4


# Perch 2


def test_the_frames_inside_the_windows_of_perch_2_leave_its_vector_as_it_is(tmp_path: Path) -> None:
    plain, spatial = (
        find_encoder("perch-v2", {"sequence": sequence}) for sequence in ("windows", "spatial")
    )
    path = perch_v2(tmp_path / "perch.onnx")
    import_weight(plain.weights_name, plain.weights[0], path)
    windows = [open_encoder(plain).prepare(sound(samples), 16000) for samples in (8000, 200_000)]
    found, wanted = open_encoder(spatial).encode(windows), open_encoder(plain).encode(windows)
    for given, one, other in zip(windows, found, wanted, strict=True):
        assert np.abs(pool(one) - pool(other)).max() <= 1e-6
        assert (
            np.abs(unroll(one) - perch_v2_cells(path, given).mean(axis=2).reshape(-1, 1536)).max()
            <= 1e-6
        )
        assert len(unroll(one)) == 16 * len(given)
        assert unroll(other) is other
