"""Files that hold no public checkpoint of AST or BEATs: each is refused in one line, before anything is trained."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from baselines.test_aerd_weights import CFG, beats_tensors, hugging_face, noise, save_beats

from callshot.baselines import pretrained
from callshot.baselines.end_to_end import score_aerd
from callshot.baselines.pretrained import read_pretrained
from callshot.baselines.weight_conversion import SIZES
from callshot.errors import InputError

torch = pytest.importorskip("torch", reason="torch is not here: make test-torch")
safetensors = pytest.importorskip("safetensors.torch")


class Anything:
    """What a pickle could hold."""


def without(name: str) -> dict[str, Any]:
    tensors = beats_tensors()
    del tensors[name]
    return tensors


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"cfg": CFG, "model": {"x": Anything()}}, "cannot be read as weights alone"),
        (b"nothing", "cannot be read as weights alone"),
        ([1, 2], "wanted tensors by name, found list"),
        ({"a": 1, "b": 2}, "wanted tensors by name, found a, b; give AST or BEATs as published"),
        ({"a": np.zeros(1)}, "cannot be read as weights alone"),
        ("tensors", r"wanted AST \(module.v.… or .*\) or BEATs .*, found a, b"),
        ("missing", "wanted tensor encoder.layers.1.fc2.bias of shape .*, found none"),
        (
            "other shape",
            r"wanted tensor patch_embedding.weight of shape \(12, 1, 16, 16\), found \(12, 1, 8, 8\)",
        ),
        (
            {"cfg": CFG | {"deep_norm": False}, "model": {}},
            "wanted BEATs with deep_norm = True, found False",
        ),
        ({"cfg": {}, "model": {}}, "wanted encoder_embed_dim in BEATs' configuration, found none"),
        ({"cfg": [], "model": {}}, "wanted BEATs' configuration by name, found list"),
    ],
)
def test_what_is_no_public_checkpoint_is_refused(
    content: Any, message: str, tmp_path: Path
) -> None:
    path = tmp_path / "some.pt"
    if content == "tensors":
        content = {"a": torch.zeros(1), "b": torch.zeros(1)}
    if content == "missing":
        content = {"cfg": CFG, "model": without("encoder.layers.1.fc2.bias")}
    if content == "other shape":
        content = {
            "cfg": CFG,
            "model": beats_tensors() | {"patch_embedding.weight": torch.zeros(12, 1, 8, 8)},
        }
    if isinstance(content, bytes):
        path.write_bytes(content)
    else:
        torch.save(content, path)
    with pytest.raises(InputError, match=message) as refused:
        score_aerd(**noise(), init=path)
    assert str(refused.value).startswith(str(path))
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(
            (name, value)
            for name in SIZES.values()
            for value in ("many", None, math.nan, math.inf, 0, -1, 10**9, True)
        ),
        ("encoder_layers", 101),
        ("encoder_layers", 10**8),
        ("encoder_attention_heads", 5),
        ("conv_pos_groups", 7),
        ("num_buckets", 3),
        ("max_distance", 4),
        ("max_distance", 10**400),
        ("encoder_ffn_embed_dim", "a\nb"),
    ],
)
def test_a_size_that_makes_no_network_is_refused_at_once(
    name: str, value: Any, tmp_path: Path
) -> None:
    refused_in_one_line(save_beats(tmp_path / "beats.pt", {name: value}), name)


@pytest.mark.parametrize("name", ["encoder_layers", "deep_norm"])
def test_a_tensor_is_no_size(name: str, tmp_path: Path) -> None:
    for value in (torch.ones(2), torch.tensor(2), torch.ones(3, device="meta")):
        refused_in_one_line(save_beats(tmp_path / "beats.pt", {name: value}), name)


@pytest.mark.parametrize("cfg", ["text", None, math.nan, math.inf, 3])
def test_a_configuration_that_is_none_is_refused(cfg: Any, tmp_path: Path) -> None:
    torch.save({"cfg": cfg, "model": beats_tensors()}, tmp_path / "beats.pt")
    refused_in_one_line(tmp_path / "beats.pt", "wanted BEATs' configuration by name")


def odd_tensors() -> dict[str, tuple[Any, str]]:
    given = beats_tensors()["encoder.layers.1.fc1.weight"]
    return {
        "sparse": (given.to_sparse(), "dense"),
        "meta": (given.to("meta"), "on meta"),
        "complex": (given.to(torch.complex64), "of real numbers"),
        "quantised": (torch.quantize_per_tensor(given, 0.1, 0, torch.qint8), ""),
        "nan": (given.clone().fill_(math.nan), "of finite numbers"),
        "infinite": (
            given.clone().index_fill_(0, torch.tensor([1]), -math.inf),
            "of finite numbers",
        ),
        "too large": (given.double() * 1e300, "of finite numbers"),
        "no axis": (torch.tensor(1.0), r"of shape \(40, 24\), found \(\)"),
    }


@pytest.mark.filterwarnings(
    "ignore::UserWarning", "ignore::DeprecationWarning"
)  # torch's, of what it will not keep
@pytest.mark.parametrize(
    "kind", ["sparse", "meta", "complex", "quantised", "nan", "infinite", "too large", "no axis"]
)
def test_a_tensor_that_is_no_weight_is_refused(kind: str, tmp_path: Path) -> None:
    name = "encoder.layers.1.fc1.weight"
    tensor, message = odd_tensors()[kind]
    refused_in_one_line(save_beats(tmp_path / "beats.pt", **{name: tensor}), message)


def test_what_is_not_foreseen_is_refused_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError("by\nnothing")

    monkeypatch.setattr(pretrained, "convert_beats", fail)
    refused_in_one_line(
        save_beats(tmp_path / "beats.pt"), "found other content .ZeroDivisionError: by nothing"
    )


def test_names_of_several_lines_are_told_in_one(tmp_path: Path) -> None:
    torch.save({"a\nb": torch.zeros(1), "c": torch.zeros(1)}, tmp_path / "some.pt")
    refused_in_one_line(tmp_path / "some.pt", "found a b, c")


def test_parameters_are_tensors(tmp_path: Path) -> None:
    torch.save(
        {"cfg": CFG, "model": {n: torch.nn.Parameter(t) for n, t in beats_tensors().items()}},
        tmp_path / "p.pt",
    )
    found, wanted = (
        read_pretrained(path) for path in (tmp_path / "p.pt", save_beats(tmp_path / "beats.pt"))
    )
    assert found.arrays.keys() == wanted.arrays.keys()
    assert all(np.array_equal(found.arrays[name], array) for name, array in wanted.arrays.items())


def refused_in_one_line(path: Path, message: str) -> None:
    with pytest.raises(InputError, match=message) as refused:
        read_pretrained(path)
    assert str(refused.value).startswith(f"{path}: ")
    assert "\n" not in str(refused.value)


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="wanted a checkpoint of AST or BEATs, found no file"):
        read_pretrained(tmp_path / "none.pt")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"embeddings.position_embeddings": (1, 146, 128)},
            "wanted 1212 or 850 or 657 or 512 places .*, found 144",
        ),
        (
            {"embeddings.patch_embeddings.projection.bias": (100,)},
            "wanted a width in heads of 64, found 100",
        ),
        ({"layernorm.weight": (64,)}, r"layernorm.weight of shape \(128,\), found \(64,\)"),
        (
            {"embeddings.position_embeddings": (1, 514, 64)},
            r"of shape \(1, any, 128\), found \(1, 514, 64\)",
        ),
        (
            {"embeddings.position_embeddings": (2, 514, 128)},
            r"of shape \(1, any, 128\), found \(2, 514, 128\)",
        ),
        ({"embeddings.position_embeddings": ()}, r"of shape \(1, any, 128\), found \(\)"),
        (
            {"embeddings.position_embeddings": (514, 128)},
            r"of shape \(1, any, 128\), found \(514, 128\)",
        ),
        (
            {"embeddings.position_embeddings": (1, 0, 128)},
            r"of shape \(1, any, 128\), found \(1, 0, 128\)",
        ),
        ({"embeddings.position_embeddings": (1, 1, 128)}, "wanted 1212 or .* places .*, found 0"),
        ({"embeddings.patch_embeddings.projection.bias": ()}, r"of shape \(any,\), found \(\)"),
        ({"embeddings.patch_embeddings.projection.bias": (0,)}, r"of shape \(any,\), found \(0,\)"),
        (
            {"embeddings.patch_embeddings.projection.bias": (2, 64)},
            r"of shape \(any,\), found \(2, 64\)",
        ),
        ({"encoder.layer.0.intermediate.dense.weight": ()}, r"of shape \(any, 128\), found \(\)"),
        (
            {"encoder.layer.0.intermediate.dense.weight": (0, 128)},
            r"of shape \(any, 128\), found \(0, 128\)",
        ),
    ],
)
def test_an_ast_of_another_shape_is_refused(
    change: dict[str, Any], message: str, tmp_path: Path
) -> None:
    hugging_face(tmp_path)
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    other = {
        f"audio_spectrogram_transformer.{name}": torch.zeros(shape)
        for name, shape in change.items()
    }
    safetensors.save_file(tensors | other, tmp_path / "other.safetensors")
    refused_in_one_line(tmp_path / "other.safetensors", message)
