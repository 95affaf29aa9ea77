"""Files that are no public checkpoint of AST or BEATs: one line, before anything is trained."""

import math

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
from callshot.baselines.end_to_end import score_end_to_end  # noqa: E402
from callshot.baselines.pretrained import read_pretrained  # noqa: E402


class Anything:
    """A class that a pickle could hold."""


def check_error(path, message):
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
        ({}, "KeyError"),
        ({"a\nb": torch.zeros(1), "c": torch.zeros(1)}, "KeyError"),
        (
            {"cfg": CFG | {"deep_norm": False}, "model": {}},
            "deep_norm = False, not True",
        ),
        ({"cfg": {}, "model": {}}, "KeyError: 'input_patch_size'"),
        ({"cfg": CFG, "model": [1]}, "list"),
    ],
)
def test_other_content_is_an_error(content, message, tmp_path):
    path = tmp_path / "some.pt"
    torch.save(content, path)
    check_error(path, message)


def test_a_file_of_other_bytes_is_an_error_before_training(tmp_path):
    path = tmp_path / "some.pt"
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="expected weights of AST or BEATs"):
        score_end_to_end(**noise_dataset(), init=path)


def test_a_missing_tensor_is_an_error(tmp_path):
    tensors = beats_tensors()
    del tensors["encoder.layers.1.fc2.bias"]
    torch.save({"cfg": CFG, "model": tensors}, tmp_path / "beats.pt")
    check_error(tmp_path / "beats.pt", "KeyError: 'encoder.layers.1.fc2.bias'")


@pytest.mark.parametrize("size", ["encoder_layers", "embed_dim", "conv_pos"])
def test_a_size_that_contradicts_the_tensors_is_an_error(size, tmp_path):
    path = save_beats(tmp_path / "beats.pt", {size: CFG[size] * 2})
    check_error(path, "KeyError|size mismatch")


@pytest.mark.parametrize(
    "value", [torch.ones(2), torch.ones(3, device="meta")], ids=str
)
def test_a_tensor_in_the_configuration_is_an_error(value, tmp_path):
    check_error(save_beats(tmp_path / "beats.pt", {"deep_norm": value}), "deep_norm")


@pytest.mark.parametrize("cfg", ["text", None, math.nan])
def test_a_configuration_that_is_no_mapping_is_an_error(cfg, tmp_path):
    torch.save({"cfg": cfg, "model": beats_tensors()}, tmp_path / "beats.pt")
    check_error(tmp_path / "beats.pt", "got other content")


def unusable_tensor(kind):
    """Return a tensor that is no weight."""
    weight = beats_tensors()["encoder.layers.1.fc1.weight"]
    if kind == "quantised":
        return torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8)
    return {
        "sparse": weight.to_sparse(),
        "meta": weight.to("meta"),
        "complex": weight.to(torch.complex64),
        "nan": weight.clone().fill_(math.nan),
        "too large": weight.double() * 1e300,
        "other shape": torch.zeros(8, 8),
    }[kind]


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning"
)  # of torch
@pytest.mark.parametrize(
    "kind",
    ["sparse", "meta", "complex", "quantised", "nan", "too large", "other shape"],
)
def test_a_tensor_that_is_no_weight_is_an_error(kind, tmp_path):
    tensors = {"encoder.layers.1.fc1.weight": unusable_tensor(kind)}
    check_error(save_beats(tmp_path / "beats.pt", **tensors), "got other content")


def test_parameters_are_read_like_tensors(tmp_path):
    parameters = {
        name: torch.nn.Parameter(tensor) for name, tensor in beats_tensors().items()
    }
    torch.save({"cfg": CFG, "model": parameters}, tmp_path / "parameters.pt")
    weights = read_pretrained(tmp_path / "parameters.pt").weights
    expected = read_pretrained(save_beats(tmp_path / "beats.pt")).weights
    assert weights.keys() == expected.keys()
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())


def test_a_missing_file_is_an_error(tmp_path):
    check_error(
        tmp_path / "none.pt", "expected a checkpoint of AST or BEATs, found no file"
    )


@pytest.fixture(scope="module")
def ast_tensors(tmp_path_factory):
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
        (POSITION, (2, 514, 128), "1026 positions"),
        (POSITION, (), "got other content"),
        (BIAS, (100,), "width 100, not in heads of 64"),
        (BIAS, (0,), "got other content"),
        (INNER, (0, 128), "got other content"),
        ("layernorm.weight", (64,), "size mismatch for norm.weight"),
    ],
)
def test_an_ast_with_another_shape_is_an_error(
    name, shape, message, ast_tensors, tmp_path
):
    changed = ast_tensors | {f"{HUGGING_FACE}{name}": torch.zeros(shape)}
    safetensors.save_file(changed, tmp_path / "other.safetensors")
    check_error(tmp_path / "other.safetensors", message)
