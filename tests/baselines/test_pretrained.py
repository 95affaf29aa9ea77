"""Public checkpoints of AST and BEATs, small and by chance: read, and equal to others' networks."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import erf, expit

from callshot.baselines import end_to_end
from callshot.baselines.beats import Beats, buckets
from callshot.baselines.end_to_end import score_aerd
from callshot.baselines.frame_classifier import Recipe
from callshot.baselines.pretrained import read_pretrained
from callshot.baselines.torch_arrays import give_weights
from callshot.baselines.transformer import Ast
from callshot.baselines.weight_conversion import SIZES, spread_places

torch = pytest.importorskip("torch", reason="torch is not here: make test-torch")
safetensors = pytest.importorskip("safetensors.torch")

CFG = {
    "encoder_embed_dim": 24,
    "encoder_layers": 2,
    "encoder_attention_heads": 3,
    "encoder_ffn_embed_dim": 40,
    "embed_dim": 12,
    "num_buckets": 16,
    "max_distance": 40,
    "conv_pos": 6,
    "conv_pos_groups": 4,
    "input_patch_size": 16,
    "deep_norm": True,
    "gru_rel_pos": True,
    "relative_position_embedding": True,
    "layer_norm_first": False,
    "conv_bias": False,
    "activation_fn": "gelu",
    "finetuned_model": False,
}


SMALL_BEATS = Beats(
    width=24,
    layers=2,
    heads=3,
    inner=40,
    embed=12,
    buckets=16,
    distance=40,
    kernel=6,
    kernel_groups=4,
)


def beats_tensors(seed: int = 1) -> dict[str, Any]:
    """Make tensors with the names and shapes of the public checkpoint, at the sizes of CFG."""
    width, inner, embed, heads = 24, 40, 12, 3
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embedding.weight": (embed, 1, 16, 16),
        "layer_norm.weight": (embed,),
        "layer_norm.bias": (embed,),
        "post_extract_proj.weight": (width, embed),
        "post_extract_proj.bias": (width,),
        "encoder.pos_conv.0.bias": (width,),
        "encoder.pos_conv.0.weight_g": (1, 1, 6),
        "encoder.pos_conv.0.weight_v": (width, width // 4, 6),
        "encoder.layer_norm.weight": (width,),
        "encoder.layer_norm.bias": (width,),
    }
    for n in range(2):
        at = f"encoder.layers.{n}."
        for name in ("q", "k", "v", "out"):
            shapes |= {
                f"{at}self_attn.{name}_proj.weight": (width, width),
                f"{at}self_attn.{name}_proj.bias": (width,),
            }
        shapes |= {
            f"{at}self_attn.grep_linear.weight": (8, 8),
            f"{at}self_attn.grep_linear.bias": (8,),
        }
        shapes |= {f"{at}self_attn.grep_a": (1, heads, 1, 1)}
        shapes |= {f"{at}fc1.weight": (inner, width), f"{at}fc1.bias": (inner,)}
        shapes |= {f"{at}fc2.weight": (width, inner), f"{at}fc2.bias": (width,)}
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            shapes |= {f"{at}{name}.weight": (width,), f"{at}{name}.bias": (width,)}
    draw = torch.Generator().manual_seed(seed)
    tensors = {name: 0.3 * torch.randn(shape, generator=draw) for name, shape in shapes.items()}
    shared = torch.randn(16, heads, generator=draw)
    return tensors | {
        f"encoder.layers.{n}.self_attn.relative_attention_bias.weight": shared for n in range(2)
    }


def save_beats(path: Path, cfg: dict[str, Any] | None = None, seed: int = 1, **other: Any) -> Path:
    torch.save({"cfg": CFG | (cfg or {}), "model": beats_tensors(seed) | other}, path)
    return path


def encoded(path: Path, frames: Any, there: Any = None) -> Any:
    found = read_pretrained(path)
    parts = found.encoder.build()
    give_weights(parts, found.arrays)
    patches = frames.unflatten(1, (-1, 16)).unflatten(-1, (8, 16)).transpose(2, 3).flatten(-2)
    with torch.no_grad():
        return found.encoder.encode(parts, patches, there, lambda x: x)


# AST


def hugging_face(path: Path, stride: int = 16) -> Any:
    transformers = pytest.importorskip(
        "transformers", reason="transformers is not here: make test-torch"
    )
    sizes = {
        "hidden_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 96,
    }
    config = transformers.ASTConfig(**sizes, frequency_stride=stride, time_stride=stride)
    network = transformers.ASTForAudioClassification(config).eval()
    with torch.no_grad():
        for tensor in network.parameters():
            tensor.normal_(0.0, 0.15, generator=torch.Generator().manual_seed(tensor.numel()))
    network.save_pretrained(path)
    return network.audio_spectrogram_transformer


def original(tensors: dict[str, Any]) -> dict[str, Any]:
    """Name Hugging Face's tensors as the original checkpoint does."""
    names = {
        "embeddings.cls_token": "cls_token",
        "embeddings.distillation_token": "dist_token",
        "embeddings.position_embeddings": "pos_embed",
        "embeddings.patch_embeddings.projection": "patch_embed.proj",
        "encoder.layer": "blocks",
        "attention.output.dense": "attn.proj",
        "intermediate.dense": "mlp.fc1",
        "output.dense": "mlp.fc2",
        "layernorm_before": "norm1",
        "layernorm_after": "norm2",
        "layernorm": "norm",
    }
    found: dict[str, Any] = {}
    for name, tensor in tensors.items():
        new = name.removeprefix("audio_spectrogram_transformer.")
        if "attention.attention" in new or name.startswith("classifier"):
            continue
        for theirs, ours in names.items():
            new = new.replace(theirs, ours)
        found[f"module.v.{new}"] = tensor
    for n in range(2):
        at = f"audio_spectrogram_transformer.encoder.layer.{n}.attention.attention."
        for kind in ("weight", "bias"):
            parts = [tensors[f"{at}{name}.{kind}"] for name in ("query", "key", "value")]
            found[f"module.v.blocks.{n}.attn.qkv.{kind}"] = torch.cat(parts)
    return found | {
        "module.mlp_head.1.bias": torch.zeros(527),
        "module.v.head.bias": torch.zeros(1000),
    }


def test_ast_equals_that_of_transformers(tmp_path: Path) -> None:
    network = hugging_face(tmp_path)
    frames = torch.randn(2, 1024, 128, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        wanted = network(frames).last_hidden_state[:, 2:].unflatten(1, (8, 64)).transpose(1, 2)
    assert (encoded(tmp_path / "model.safetensors", frames) - wanted).abs().max() <= 1e-5


def test_the_original_checkpoint_of_ast_is_the_same_network(tmp_path: Path) -> None:
    hugging_face(tmp_path, stride=10)
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    torch.save(original(tensors), tmp_path / "ast.pth")
    frames = torch.randn(1, 320, 128, generator=torch.Generator().manual_seed(2))
    one, two = (encoded(tmp_path / name, frames) for name in ("model.safetensors", "ast.pth"))
    assert torch.equal(one, two)
    found = read_pretrained(tmp_path / "ast.pth")
    assert found.unused == ("mlp_head.1.bias", "v.head.bias")
    assert found.encoder == Ast(
        width=128,
        layers=2,
        heads=2,
        inner=96,
        specials=2,
        front=read_pretrained(tmp_path / "ast.pth").encoder.front,
    )


@pytest.mark.parametrize("stride", [10, 12, 14, 16])
def test_places_are_read_at_the_centres_of_patches(stride: int) -> None:
    """A place that is its centre stays so, up to the last one that was learnt."""
    bands, times = (112 // stride + 1, 1008 // stride + 1)
    f, t = np.meshgrid(
        np.arange(bands) * stride + 8.0, np.arange(times) * stride + 8.0, indexing="ij"
    )
    found = spread_places(Path("x"), np.stack([f.ravel(), t.ravel()], axis=1).astype(np.float32))
    for column in range(64):
        for band in range(8):
            wanted = (
                min(16 * band + 8, (bands - 1) * stride + 8),
                min(16 * column + 8, (times - 1) * stride + 8),
            )
            assert found[column, band] == pytest.approx(wanted, abs=1e-3)


# BEATs


def norm(x: NDArray[Any], tensors: dict[str, Any], name: str) -> NDArray[Any]:
    scaled = (x - x.mean()) / math.sqrt(x.var() + 1e-5)
    return np.asarray(scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])


def gelu(x: NDArray[Any]) -> NDArray[Any]:
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def bucket(far: int) -> int:
    size = abs(far)
    large = 4 + int(math.log(max(size, 1) / 4) / math.log(40 / 4) * 4)
    return (size if size < 4 else min(large, 7)) + (8 if far > 0 else 0)


def literal_beats(tensors: dict[str, Any], frames: NDArray[Any]) -> NDArray[Any]:
    """Run the network of CFG on one spectrogram, token by token, as its paper and that of WavLM have it."""

    def linear(x: NDArray[Any], name: str) -> NDArray[Any]:
        return np.asarray(tensors[f"{name}.weight"] @ x + tensors[f"{name}.bias"])

    kernel, x = tensors["patch_embedding.weight"][:, 0], []
    for t in range(len(frames) // 16):
        for f in range(8):
            patch = (kernel * frames[16 * t : 16 * t + 16, 16 * f : 16 * f + 16]).sum(axis=(1, 2))
            x.append(linear(norm(patch, tensors, "layer_norm"), "post_extract_proj"))
    v, g, at = tensors["encoder.pos_conv.0.weight_v"], tensors["encoder.pos_conv.0.weight_g"], []
    weight = np.stack(
        [g[0, 0, k] * v[:, :, k] / np.sqrt((v[:, :, k] ** 2).sum()) for k in range(6)], axis=2
    )
    for i in range(len(x)):
        out = np.array(tensors["encoder.pos_conv.0.bias"])
        for k in range(6):
            if 0 <= i + k - 3 < len(x):
                for c in range(24):
                    out[c] += weight[c, :, k] @ x[i + k - 3][c // 6 * 6 : c // 6 * 6 + 6]
        at.append(norm(x[i] + gelu(out), tensors, "encoder.layer_norm"))
    x, a = at, 4**0.25
    bias = tensors["encoder.layers.0.self_attn.relative_attention_bias.weight"]
    for n in range(2):
        name = f"encoder.layers.{n}."
        q, k, v = ([linear(token, f"{name}self_attn.{part}_proj") for token in x] for part in "qkv")
        y = []
        for i in range(len(x)):
            heads = []
            for h in range(3):
                own = slice(8 * h, 8 * h + 8)
                gates = linear(q[i][own], f"{name}self_attn.grep_linear")
                one, two = expit(gates[:4].sum()), expit(gates[4:].sum())
                gate = one * (two * tensors[f"{name}self_attn.grep_a"][0, h, 0, 0] - 1) + 2
                score = [
                    q[i][own] @ k[j][own] / math.sqrt(8) + gate * bias[bucket(j - i), h]
                    for j in range(len(x))
                ]
                share = np.exp(np.array(score) - max(score))
                heads.append(sum(s * v[j][own] for j, s in enumerate(share / share.sum())))
            seen = linear(np.concatenate(heads), f"{name}self_attn.out_proj")
            token = norm(a * x[i] + seen, tensors, f"{name}self_attn_layer_norm")
            inner = linear(gelu(linear(token, f"{name}fc1")), f"{name}fc2")
            y.append(norm(a * token + inner, tensors, f"{name}final_layer_norm"))
        x = y
    return np.array(x)


def test_beats_equals_a_slow_transcription(tmp_path: Path) -> None:
    frames = np.random.default_rng(3).normal(size=(5 * 16, 128))
    wanted = literal_beats(
        {name: tensor.double().numpy() for name, tensor in beats_tensors().items()}, frames
    )
    found = encoded(
        save_beats(tmp_path / "beats.pt"), torch.from_numpy(frames.astype(np.float32))[None]
    )
    assert np.abs(found[0].flatten(0, 1).numpy() - wanted).max() <= 1e-5


def test_buckets_are_those_of_transformers() -> None:
    wavlm = pytest.importorskip(
        "transformers.models.wavlm.modeling_wavlm", reason="transformers is not here"
    )
    attention = wavlm.WavLMAttention(16, 2, num_buckets=320, max_distance=800)
    with torch.no_grad():
        attention.rel_attn_embed.weight[:, 0] = torch.arange(320.0)
        wanted = attention.compute_bias(1000, 1000)[0]
    assert np.array_equal(buckets(1000, 320, 800), wanted.numpy())


def test_columns_that_are_not_there_change_nothing(tmp_path: Path) -> None:
    path = save_beats(tmp_path / "beats.pt")
    frames = torch.randn(2, 96, 128, generator=torch.Generator().manual_seed(4))
    there = torch.arange(6) < torch.tensor([[6], [4]])
    together = encoded(path, frames, there)
    assert (together[0] - encoded(path, frames[:1])[0]).abs().max() <= 1e-5
    assert (together[1, :4] - encoded(path, frames[1:, :64])[0]).abs().max() <= 1e-5


@pytest.mark.parametrize(
    "encoder", [Ast(width=32, layers=2, heads=2, inner=64, specials=2), SMALL_BEATS]
)
def test_bfloat16_gives_nearly_the_same_tokens(encoder: Ast | Beats) -> None:
    """As a GPU would have it; where it is not exact, it is near."""
    parts = encoder.build()
    encoder.draw(parts, torch.Generator().manual_seed(1))
    patches = torch.randn(2, 5, 8, 256, generator=torch.Generator().manual_seed(2))
    there = torch.arange(5) < torch.tensor([[5], [3]])
    with torch.no_grad():
        wanted = encoder.encode(parts, patches, there, lambda x: x)
        with torch.autocast("cpu", torch.bfloat16):
            found = encoder.encode(parts, patches, there, lambda x: x)
    assert 0.0 < (found - wanted).abs().max() <= 0.1


def test_beats_has_the_size_of_the_public_one() -> None:
    assert 90_000_000 <= Recipe(Beats(), 8).parameters <= 91_000_000


def test_every_size_of_beats_is_read_from_its_configuration(tmp_path: Path) -> None:
    encoder = read_pretrained(save_beats(tmp_path / "beats.pt")).encoder
    assert {theirs: getattr(encoder, ours) for ours, theirs in SIZES.items()}.items() <= CFG.items()


# Trained from them


def noise(rows: int = 16) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    return {
        "signals": [rng.normal(0, 0.1, 6000).astype(np.float32) for _ in range(rows)],
        "targets": np.arange(rows)[:, None] // 2 % 2 == np.arange(2),
        "fold": np.arange(rows) // 4 % 2,
        "groups": np.arange(rows),
        "names": ["bark", "roar"],
    }


def test_training_begins_with_the_weights_that_are_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.set_num_threads(1)
    monkeypatch.setitem(end_to_end.PRETRAINED, "rate", 0.0)
    path = save_beats(
        tmp_path / "beats.pt", {"finetuned_model": True}, **{"predictor.bias": torch.zeros(527)}
    )
    scores, told = score_aerd(**noise(), init=path, epochs=1, folder=tmp_path)
    assert told["init"]["unused"] == ("predictor.bias",)
    assert told["text"] == "BEATs from beats.pt"
    assert (scores == 0.0).all()  # the head begins with zeros
    kept = safetensors.load_file(next(tmp_path.glob("fold0*[0-9a-f].safetensors")))
    given = read_pretrained(path).arrays
    assert all(
        np.array_equal(kept[f"encoder.{name}"].numpy(), array) for name, array in given.items()
    )
    assert score_aerd(**noise(), init=path, epochs=1, folder=tmp_path)[1]["trained"] == 0
    other = save_beats(tmp_path / "other.pt", seed=2)
    assert score_aerd(**noise(), init=other, epochs=1, folder=tmp_path)[1]["trained"] == 2
