"""Small random checkpoints of AST and BEATs are read, and equal other implementations."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import erf, expit

from callshot.baselines import end_to_end
from callshot.baselines.end_to_end import score_end_to_end
from callshot.baselines.sequence_batches import AST_FRONT_END
from callshot.baselines.training import TrainingContext
from callshot.errors import InputError

torch = pytest.importorskip("torch")
safetensors = pytest.importorskip("safetensors.torch")

from callshot.baselines.transformer import (  # noqa: E402
    AstConfig,
    BeatsConfig,
    distance_buckets,
    interpolate_grid,
    read_pretrained,
)

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
SMALL_BEATS = BeatsConfig(
    width=24,
    layers=2,
    heads=3,
    inner=40,
    patch_width=12,
    buckets=16,
    max_distance=40,
    kernel=6,
    kernel_groups=4,
)
HUGGING_FACE = "audio_spectrogram_transformer."


def beats_tensors(seed=1):
    """Make tensors with the names and shapes of the public checkpoint, with the sizes of CFG."""
    width, inner, embed, heads = 24, 40, 12, 3
    shapes: dict[str, tuple[int, ...]] = {
        "patch_embedding.weight": (embed, 1, 16, 16),
        "encoder.pos_conv.0.bias": (width,),
        "encoder.pos_conv.0.weight_g": (1, 1, 6),
        "encoder.pos_conv.0.weight_v": (width, width // 4, 6),
    }
    layers = {
        "layer_norm": (embed,),
        "post_extract_proj": (width, embed),
        "encoder.layer_norm": (width,),
    }
    for number in range(2):
        block = f"encoder.layers.{number}."
        for name in ("q_proj", "k_proj", "v_proj", "out_proj"):
            layers[f"{block}self_attn.{name}"] = (width, width)
        layers[f"{block}self_attn.grep_linear"] = (8, 8)
        shapes[f"{block}self_attn.grep_a"] = (1, heads, 1, 1)
        layers[f"{block}fc1"] = (inner, width)
        layers[f"{block}fc2"] = (width, inner)
        for name in ("self_attn_layer_norm", "final_layer_norm"):
            layers[f"{block}{name}"] = (width,)
    for name, shape in layers.items():
        shapes[f"{name}.weight"] = shape
        shapes[f"{name}.bias"] = shape[:1]
    generator = torch.Generator().manual_seed(seed)
    tensors = {
        name: 0.3 * torch.randn(shape, generator=generator)
        for name, shape in shapes.items()
    }
    shared = torch.randn(16, heads, generator=generator)
    for number in range(2):
        tensors[f"encoder.layers.{number}.self_attn.relative_attention_bias.weight"] = (
            shared
        )
    return tensors


def save_beats(path, cfg=None, seed=1, **tensors):
    torch.save({"cfg": CFG | (cfg or {}), "model": beats_tensors(seed) | tensors}, path)
    return path


def encode(path, frames, mask=None):
    """Return the tokens of frames, by the encoder of a file."""
    pretrained = read_pretrained(path)
    encoder = pretrained.encoder.build()
    encoder.load_state_dict(pretrained.weights)
    patches = (
        frames.unflatten(1, (-1, 16)).unflatten(-1, (8, 16)).transpose(2, 3).flatten(-2)
    )
    with torch.no_grad():
        return encoder(patches, mask)


# AST


def save_hugging_face(folder, stride=16):
    """Save a small random AST with transformers, and return its encoder."""
    transformers = pytest.importorskip("transformers")
    config = transformers.ASTConfig(
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=96,
        frequency_stride=stride,
        time_stride=stride,
    )
    network = transformers.ASTForAudioClassification(config).eval()
    with torch.no_grad():
        for tensor in network.parameters():
            generator = torch.Generator().manual_seed(tensor.numel())
            tensor.normal_(0.0, 0.15, generator=generator)
    network.save_pretrained(folder)
    return network.audio_spectrogram_transformer


def rename_to_original(tensors):
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
        "attention.attention.query": "attn.qkv",
    }
    renamed: dict[str, Any] = {"module.mlp_head.1.bias": torch.zeros(527)}
    for name, tensor in tensors.items():
        if name.endswith(("key.weight", "key.bias", "value.weight", "value.bias")):
            continue
        if "attention.query" in name:
            parts = [name.replace("query", part) for part in ("query", "key", "value")]
            tensor = torch.cat([tensors[part] for part in parts])
        original = name.removeprefix(HUGGING_FACE)
        for part, replacement in names.items():
            original = original.replace(part, replacement)
        if not name.startswith("classifier"):
            renamed[f"module.v.{original}"] = tensor
    return renamed


def test_ast_equals_that_of_transformers(tmp_path):
    network = save_hugging_face(tmp_path)
    frames = torch.randn(1, 1024, 128, generator=torch.Generator().manual_seed(2))
    with torch.no_grad():
        tokens = network(frames).last_hidden_state[:, 2:]
    expected = tokens.unflatten(1, (8, 64)).transpose(1, 2)
    assert (
        encode(tmp_path / "model.safetensors", frames) - expected
    ).abs().max() <= 1e-5


def test_both_checkpoints_of_ast_give_the_same_network(tmp_path):
    save_hugging_face(tmp_path, stride=10)
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    torch.save(rename_to_original(tensors), tmp_path / "ast.pth")
    frames = torch.randn(1, 320, 128, generator=torch.Generator().manual_seed(2))
    expected = encode(tmp_path / "model.safetensors", frames)
    assert torch.equal(encode(tmp_path / "ast.pth", frames), expected)
    pretrained = read_pretrained(tmp_path / "ast.pth")
    assert pretrained.unused == ("mlp_head.1.bias",)
    sizes = {"width": 128, "layers": 2, "heads": 2, "inner": 96, "special_tokens": 2}
    assert pretrained.encoder == AstConfig(**sizes, front_end=AST_FRONT_END)


@pytest.mark.parametrize("stride", [10, 16])
def test_positions_are_interpolated_at_the_centres_of_patches(stride):
    """A position that equals its centre stays so, up to the last one."""
    bands = 8.0 + stride * np.arange(112 // stride + 1)
    times = 8.0 + stride * np.arange(1008 // stride + 1)
    centres = np.stack(np.meshgrid(bands, times, indexing="ij"), axis=-1)
    grid = interpolate_grid(centres.astype(np.float32), stride)
    band = np.minimum(16 * np.arange(8) + 8, bands[-1])
    time = np.minimum(16 * np.arange(64) + 8, times[-1])
    expected = np.stack(np.meshgrid(band, time), axis=-1)
    assert grid == pytest.approx(expected, abs=1e-3)


# BEATs


def norm(x, tensors, name):
    scaled = (x - x.mean()) / math.sqrt(x.var() + 1e-5)
    return np.asarray(scaled * tensors[f"{name}.weight"] + tensors[f"{name}.bias"])


def gelu(x):
    return np.asarray(0.5 * x * (1 + erf(x / math.sqrt(2))))


def literal_bucket(offset):
    distance = abs(offset)
    far = 4 + int(math.log(max(distance, 1) / 4) / math.log(40 / 4) * 4)
    bucket = distance if distance < 4 else min(far, 7)
    return bucket + (8 if offset > 0 else 0)


def literal_beats(tensors, frames):
    """Run the network of CFG on one spectrogram, token by token, as BEATs' and WavLM's papers."""

    def linear(x, name):
        return np.asarray(tensors[f"{name}.weight"] @ x + tensors[f"{name}.bias"])

    def attend(x, i, layer):
        query = linear(x[i], f"{layer}self_attn.q_proj")
        keys = [linear(token, f"{layer}self_attn.k_proj") for token in x]
        values = [linear(token, f"{layer}self_attn.v_proj") for token in x]
        bias = tensors["encoder.layers.0.self_attn.relative_attention_bias.weight"]
        heads = []
        for h in range(3):
            head = slice(8 * h, 8 * h + 8)
            gates = linear(query[head], f"{layer}self_attn.grep_linear")
            first = expit(gates[:4].sum())
            second = expit(gates[4:].sum())
            gate = (
                first * (second * tensors[f"{layer}self_attn.grep_a"][0, h, 0, 0] - 1)
                + 2
            )
            logits = []
            for j, key in enumerate(keys):
                product = query[head] @ key[head] / math.sqrt(8)
                logits.append(product + gate * bias[literal_bucket(j - i), h])
            share = np.exp(np.array(logits) - max(logits))
            share /= share.sum()
            heads.append(
                sum(s * value[head] for s, value in zip(share, values, strict=True))
            )
        return linear(np.concatenate(heads), f"{layer}self_attn.out_proj")

    kernel = tensors["patch_embedding.weight"][:, 0]
    x = []
    for column, band in np.ndindex(len(frames) // 16, 8):
        patch = frames[16 * column : 16 * column + 16, 16 * band : 16 * band + 16]
        embedded = norm((kernel * patch).sum(axis=(1, 2)), tensors, "layer_norm")
        x.append(linear(embedded, "post_extract_proj"))

    direction = tensors["encoder.pos_conv.0.weight_v"]
    length = tensors["encoder.pos_conv.0.weight_g"]
    weight = length * direction / np.sqrt((direction**2).sum(axis=(0, 1)))
    positioned = []
    for i in range(len(x)):
        mixed = np.array(tensors["encoder.pos_conv.0.bias"])
        for k, channel in np.ndindex(6, 24):
            if 0 <= i + k - 3 < len(x):
                group = channel // 6 * 6
                mixed[channel] += (
                    weight[channel, :, k] @ x[i + k - 3][group : group + 6]
                )
        positioned.append(norm(x[i] + gelu(mixed), tensors, "encoder.layer_norm"))

    x = positioned
    a = 4**0.25
    for number in range(2):
        layer = f"encoder.layers.{number}."
        y = []
        for i in range(len(x)):
            token = a * x[i] + attend(x, i, layer)
            token = norm(token, tensors, f"{layer}self_attn_layer_norm")
            inner = linear(gelu(linear(token, f"{layer}fc1")), f"{layer}fc2")
            y.append(norm(a * token + inner, tensors, f"{layer}final_layer_norm"))
        x = y
    return np.array(x)


def test_beats_equals_a_slow_transcription(tmp_path):
    frames = np.random.default_rng(3).normal(size=(3 * 16, 128))
    tensors = {
        name: tensor.double().numpy() for name, tensor in beats_tensors().items()
    }
    expected = literal_beats(tensors, frames)
    path = save_beats(tmp_path / "beats.pt")
    tokens = encode(path, torch.from_numpy(frames.astype(np.float32))[None])
    assert np.abs(tokens[0].flatten(0, 1).numpy() - expected).max() <= 1e-5


def test_buckets_equal_those_of_transformers():
    wavlm = pytest.importorskip("transformers.models.wavlm.modeling_wavlm")
    attention = wavlm.WavLMAttention(16, 2, num_buckets=320, max_distance=800)
    with torch.no_grad():
        attention.rel_attn_embed.weight[:, 0] = torch.arange(320.0)
        expected = attention.compute_bias(900, 900)[0]
    assert np.array_equal(distance_buckets(900, 320, 800), expected.numpy())


def test_masked_columns_change_nothing(tmp_path):
    path = save_beats(tmp_path / "beats.pt")
    frames = torch.randn(2, 96, 128, generator=torch.Generator().manual_seed(4))
    mask = torch.arange(6) < torch.tensor([[6], [4]])
    together = encode(path, frames, mask)
    assert (together[0] - encode(path, frames[:1])[0]).abs().max() <= 1e-5
    assert (together[1, :4] - encode(path, frames[1:, :64])[0]).abs().max() <= 1e-5


@pytest.mark.filterwarnings(
    "ignore:mkldnn_matmul failed:UserWarning"
)  # CPUs without bfloat16
@pytest.mark.parametrize(
    "config",
    [AstConfig(width=32, layers=2, heads=2, inner=64, special_tokens=2), SMALL_BEATS],
)
def test_bfloat16_gives_nearly_the_same_tokens(config):
    """A GPU computes in bfloat16."""
    generator = torch.Generator().manual_seed(1)
    encoder = config.build()
    patches = torch.randn(2, 5, 8, 256, generator=generator)
    mask = torch.arange(5) < torch.tensor([[5], [3]])
    with torch.no_grad():
        for tensor in encoder.parameters():
            if tensor.ndim > 1:
                tensor.normal_(0.0, 0.02, generator=generator)
        expected = encoder(patches, mask)
        with torch.autocast("cpu", torch.bfloat16):
            tokens = encoder(patches, mask)
    assert 0.0 < (tokens - expected).abs().max() <= 0.1


# Training from a checkpoint


def noise_dataset():
    rng = np.random.default_rng(1)
    row = np.arange(16)
    return {
        "signals": [rng.normal(0, 0.1, 6000).astype(np.float32) for _ in row],
        "targets": row[:, None] // 2 % 2 == np.arange(2),
        "fold": row // 4 % 2,
        "groups": row,
        "names": ["bark", "roar"],
    }


def test_training_starts_from_the_given_weights(tmp_path, monkeypatch):
    torch.set_num_threads(1)
    monkeypatch.setitem(end_to_end.PRETRAINED, "learning_rate", 0.0)
    monkeypatch.setitem(end_to_end.PRETRAINED, "epochs", 1)
    head = {"predictor.bias": torch.zeros(527)}
    path = save_beats(tmp_path / "beats.pt", {"finetuned_model": True}, **head)

    def train(init):
        context = TrainingContext(folder=tmp_path)
        return score_end_to_end(**noise_dataset(), init=init, context=context)

    scores, metadata = train(path)
    assert metadata["init"]["unused"] == ("predictor.bias",)
    assert metadata["text"] == "BEATs from beats.pt"
    assert (scores == 0.0).all()  # the head starts with zeros
    saved = safetensors.load_file(next(tmp_path.glob("fold0*.safetensors")))
    for name, tensor in read_pretrained(path).weights.items():
        assert torch.equal(saved[f"encoder.{name}"], tensor)
    assert train(path)[1]["trained"] == 0
    assert train(save_beats(tmp_path / "other.pt", seed=2))[1]["trained"] == 2


# Files that are no checkpoint: one line, before anything is trained.


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
        ({"a\nb": torch.zeros(1), "c": torch.zeros(1)}, "KeyError"),
        ({"cfg": CFG | {"deep_norm": False}, "model": {}}, "deep_norm = False, not"),
        ({"cfg": {}, "model": {}}, "KeyError: 'input_patch_size'"),
        ({"cfg": "text", "model": beats_tensors()}, "got other content"),
        ({"cfg": CFG, "model": {}}, "KeyError: 'patch_embedding.weight'"),
    ],
)
def test_other_content_is_an_error(content, message, tmp_path):
    path = tmp_path / "some.pt"
    torch.save(content, path)
    check_error(path, message)


def test_a_missing_file_or_one_of_other_bytes_is_an_error_before_training(tmp_path):
    path = tmp_path / "some.pt"
    check_error(path, "expected a checkpoint of AST or BEATs, found no file")
    path.write_bytes(b"nothing")
    with pytest.raises(InputError, match="expected weights of AST or BEATs"):
        score_end_to_end(**noise_dataset(), init=path)


@pytest.mark.parametrize("size", ["encoder_layers", "embed_dim"])
def test_a_size_that_contradicts_the_tensors_is_an_error(size, tmp_path):
    path = save_beats(tmp_path / "beats.pt", {size: CFG[size] * 2})
    check_error(path, "KeyError|size mismatch")


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning")
@pytest.mark.parametrize(
    "spoil",
    [
        torch.Tensor.to_sparse,
        lambda weight: weight.to("meta"),
        lambda weight: weight.to(torch.complex64),
        lambda weight: torch.quantize_per_tensor(weight, 0.1, 0, torch.qint8),
        lambda weight: weight * math.nan,
        lambda weight: weight.double() * 1e300,
    ],
    ids=["sparse", "meta", "complex", "quantised", "nan", "too large"],
)
def test_a_tensor_that_is_no_weight_is_an_error(spoil, tmp_path):
    name = "encoder.layers.1.fc1.weight"
    tensors = {name: spoil(beats_tensors()[name])}
    check_error(save_beats(tmp_path / "beats.pt", **tensors), "got other content")


POSITION = "embeddings.position_embeddings"
BIAS = "embeddings.patch_embeddings.projection.bias"


@pytest.mark.parametrize(
    ("name", "shape", "message"),
    [
        (POSITION, (1, 146, 128), "144 positions of patches, not one of"),
        (BIAS, (100,), "width 100, not in heads of 64"),
        ("layernorm.weight", (64,), "size mismatch for norm.weight"),
    ],
)
def test_an_ast_with_another_shape_is_an_error(name, shape, message, tmp_path):
    save_hugging_face(tmp_path)
    tensors = safetensors.load_file(tmp_path / "model.safetensors")
    changed = tensors | {f"{HUGGING_FACE}{name}": torch.zeros(shape)}
    safetensors.save_file(changed, tmp_path / "other.safetensors")
    check_error(tmp_path / "other.safetensors", message)
