"""Files that are no public checkpoint of AST or BEATs: one line, before anything is trained."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from callshot.errors import InputError

torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'callshot[baselines]'"
)
safetensors = pytest.importorskip("safetensors.torch")

from baselines.test_pretrained import (  # noqa: E402
    CFG,
    HUGGING_FACE,
    beats_tensors,
    noise_dataset,
    save_beats,
    save_hugging_face,
)
from callshot.baselines import pretrained  # noqa: E402
from callshot.baselines.end_to_end import score_end_to_end  # noqa: E402
from callshot.baselines.pretrained import BEATS_SIZES, read_pretrained  # noqa: E402


class Anything:
    """A class that a pickle could hold."""


def check_error(path: Path, message: str) -> None:
    """Check that reading a file fails with a message of one line that starts with its path."""
    with pytest.raises(InputError, match=message) as error:
        read_pretrained(path)
    assert str(error.value).startswith(f"{path}: ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"cfg": CFG, "model": {"x": Anything()}}, "Weights only load failed"),
        ([1, 2], "list"),
        ({"a": 1, "b": 2}, "KeyError"),
        ({"a": np.zeros(1)}, "Weights only load failed"),
        ({}, "KeyError"),
        ({"a": torch.zeros(1), "b": torch.zeros(1)}, "KeyError"),
        ({"a\nb": torch.zeros(1), "c": torch.zeros(1)}, "KeyError"),
        (
            {"cfg": CFG | {"deep_norm": False}, "model": {}},
            "deep_norm = False, not True",
        ),
        ({"cfg": {}, "model": {}}, "KeyError: 'input_patch_size'"),
        ({"cfg": [], "model": {}}, "list"),
        ({"cfg": CFG, "model": [1]}, "list"),
    ],
)
def test_other_content_is_an_error(content: Any, message: str, tmp_path: Path) -> None:
    path = tmp_path / "some.pt"
    torch.save(content, path)
    check_error(path, message)


def test_a_file_of_other_bytes_is_an_error_before_training(tmp_path: Path) -> None:
    path = tmp_path / "some.pt"
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="expected weights of AST or BEATs"):
        score_end_to_end(**noise_dataset(), init=path)


def test_a_missing_tensor_is_an_error(tmp_path: Path) -> None:
    tensors = beats_tensors()
    del tensors["encoder.layers.1.fc2.bias"]
    torch.save({"cfg": CFG, "model": tensors}, tmp_path / "beats.pt")
    check_error(tmp_path / "beats.pt", "KeyError: 'encoder.layers.1.fc2.bias'")


@pytest.mark.parametrize("size", sorted({*BEATS_SIZES.values()} - {"max_distance"}))
def test_a_size_that_contradicts_the_tensors_is_an_error(
    size: str, tmp_path: Path
) -> None:
    path = save_beats(tmp_path / "beats.pt", {size: CFG[size] * 2})
    check_error(path, "KeyError|size mismatch")


@pytest.mark.parametrize(
    "value", [torch.ones(2), torch.tensor(2), torch.ones(3, device="meta")], ids=str
)
def test_a_tensor_in_the_configuration_is_an_error(value: Any, tmp_path: Path) -> None:
    check_error(save_beats(tmp_path / "beats.pt", {"deep_norm": value}), "deep_norm")


@pytest.mark.parametrize("cfg", ["text", None, math.nan, math.inf, 3])
def test_a_configuration_that_is_no_mapping_is_an_error(
    cfg: Any, tmp_path: Path
) -> None:
    torch.save({"cfg": cfg, "model": beats_tensors()}, tmp_path / "beats.pt")
    check_error(tmp_path / "beats.pt", "got other content")


def unusable_tensor(kind: str) -> Any:
    """Return a tensor that is no weight."""
    weight = beats_tensors()["encoder.layers.1.fc1.weight"]
    if kind == "quantised":
        return torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8)
    rows = torch.tensor([1])
    return {
        "sparse": weight.to_sparse(),
        "meta": weight.to("meta"),
        "complex": weight.to(torch.complex64),
        "nan": weight.clone().fill_(math.nan),
        "infinite": weight.clone().index_fill_(0, rows, -math.inf),
        "too large": weight.double() * 1e300,
        "no axis": torch.tensor(1.0),
        "other shape": torch.zeros(8, 8),
    }[kind]


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning"
)  # of torch
@pytest.mark.parametrize(
    "kind",
    [
        "sparse",
        "meta",
        "complex",
        "quantised",
        "nan",
        "infinite",
        "too large",
        "no axis",
        "other shape",
    ],
)
def test_a_tensor_that_is_no_weight_is_an_error(kind: str, tmp_path: Path) -> None:
    tensors = {"encoder.layers.1.fc1.weight": unusable_tensor(kind)}
    check_error(save_beats(tmp_path / "beats.pt", **tensors), "got other content")


def test_an_unexpected_problem_is_an_error_of_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(**_: Any) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr(pretrained, "BeatsConfig", fail)
    message = "got other content .ZeroDivisionError: by nothing"
    check_error(save_beats(tmp_path / "beats.pt"), message)


def test_parameters_are_read_like_tensors(tmp_path: Path) -> None:
    parameters = {
        name: torch.nn.Parameter(tensor) for name, tensor in beats_tensors().items()
    }
    torch.save({"cfg": CFG, "model": parameters}, tmp_path / "parameters.pt")
    weights = read_pretrained(tmp_path / "parameters.pt").weights
    expected = read_pretrained(save_beats(tmp_path / "beats.pt")).weights
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    check_error(
        tmp_path / "none.pt", "expected a checkpoint of AST or BEATs, found no file"
    )


@pytest.fixture(scope="module")
def ast_tensors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("ast")
    save_hugging_face(folder)
    return dict(safetensors.load_file(folder / "model.safetensors"))


POSITION = "embeddings.position_embeddings"
BIAS = "embeddings.patch_embeddings.projection.bias"
INNER = "encoder.layer.0.intermediate.dense.weight"


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (POSITION, (1, 146, 128), "144 positions of patches, not one of"),
        (POSITION, (1, 1, 128), "-1 positions"),
        (POSITION, (1, 514, 64), "255 positions"),
        (POSITION, (2, 514, 128), "1026 positions"),
        (POSITION, (), "got other content"),
        (POSITION, (1, 0, 128), "got other content"),
        (BIAS, (100,), "width 100, not in heads of 64"),
        (BIAS, (), "got other content"),
        (BIAS, (0,), "got other content"),
        (BIAS, (2, 64), "width 2, not in heads of 64"),
        (INNER, (), "got other content"),
        (INNER, (0, 128), "got other content"),
        ("layernorm.weight", (64,), "size mismatch for norm.weight"),
    ],
)
def test_an_ast_with_another_shape_is_an_error(
    name: str,
    shape: tuple[int, ...],
    message: str,
    ast_tensors: dict[str, Any],
    tmp_path: Path,
) -> None:
    changed = ast_tensors | {f"{HUGGING_FACE}{name}": torch.zeros(shape)}
    safetensors.save_file(changed, tmp_path / "other.safetensors")
    check_error(tmp_path / "other.safetensors", message)
