"""Patches of a spectrogram → tokens, with the audio spectrogram transformer (AST) or BEATs.

AST:
    patches → linear + position
    → [x + attention(norm x), x + (linear, GELU, linear)(norm x)] … → norm

Positions are a grid of 64 columns × 8 bands. A pretrained encoder has two more tokens in front,
which are removed at the end.

BEATs:
    patches → linear → norm → linear → + GELU(convolution over tokens) → norm
    → [norm(a x + attention(x)), norm(a x + (linear, GELU, linear)(x))] …,   a = (2 × layers) ^ ¼

Attention adds a bias for the distance of two tokens, weighted by a gate of the query: for each head
g₁ (g₂ s − 1) + 2, where g₁ and g₂ are sigmoids of sums of four linear values of the query, and s is
trained.

The order in which layers are registered decides the last digits of trained weights, because
gradients are clipped by a sum over all parameters.

Public checkpoints are checked before any training:

    AST     the original .pth (module.v.…), or Hugging Face's safetensors
    BEATs   the original .pt, {'cfg': …, 'model': …}: iteration 3 and 3+, also fine-tuned

Nothing is unpickled: torch reads with `weights_only=True`. Sizes are read from the shapes and the
configuration; the head is not used. The position embedding of AST was trained for overlapping
patches, one every 10 frames and bands; it is interpolated at the centres of ours.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import conv1d, gelu, pad, scaled_dot_product_attention

from callshot.baselines.sequence_batches import (
    AERD_FRONT_END,
    AST_FRONT_END,
    BANDS,
    BEATS_FRONT_END,
    COLUMN_PATCHES,
    MAX_COLUMNS,
    PATCH,
    Frames,
    FrontEnd,
)
from callshot.baselines.training import Dropout, no_dropout
from callshot.errors import InputError
from callshot.files import sha256_file
from callshot.records import IntArray

EPSILON = 1e-6  # of the layer norms of AST
GATE_VALUES = 4  # linear values that are summed for each of the two gates of BEATs
Mask: TypeAlias = "Tensor | None"


@dataclass(frozen=True)
class AstConfig:
    """The sizes of an audio spectrogram transformer."""

    title: ClassVar[str] = "AST-seq"
    family: str = "ast"
    width: int = 128
    layers: int = 3
    heads: int = 2
    inner: int = 512
    special_tokens: int = 0
    front_end: FrontEnd = AERD_FRONT_END

    def build(self) -> "AstEncoder":
        """Return an encoder without weights."""
        return AstEncoder(self)


class AstEncoder(nn.Module):
    """An audio spectrogram transformer."""

    def __init__(self, config: AstConfig) -> None:
        super().__init__()
        width = config.width
        self.special_tokens = config.special_tokens
        self.patch = nn.Linear(PATCH * PATCH, width)
        self.position_embedding = nn.ParameterDict(
            {"grid": torch.zeros(MAX_COLUMNS, COLUMN_PATCHES, width)}
        )
        if config.special_tokens:
            self.position_embedding["special"] = torch.zeros(
                config.special_tokens, width
            )
        self.blocks = nn.ModuleList(AstBlock(config) for _ in range(config.layers))
        self.norm = nn.LayerNorm(width, EPSILON)

    def forward(
        self, patches: Tensor, mask: Mask = None, dropout: Dropout = no_dropout
    ) -> Tensor:
        """Return tokens (crops, columns, 8, width) of patches (crops, columns, 8, 256).

        `mask` (crops, columns) says which columns are real, not padding; None if all are.
        """
        columns = patches.shape[1]
        position = self.position_embedding["grid"][:columns]
        embedded = self.patch(patches) + position
        tokens = embedded.flatten(1, 2)
        if self.special_tokens:
            special = self.position_embedding["special"].to(tokens.dtype)
            special = special.expand(len(tokens), -1, -1)
            tokens = torch.cat([special, tokens], dim=1)
        token_mask = None
        if mask is not None:
            # From real columns to real tokens; special tokens, which come first, are real.
            is_real = mask.repeat_interleave(COLUMN_PATCHES, dim=1)
            is_real = pad(is_real, (self.special_tokens, 0), value=True)
            # For all heads and queries of attention.
            token_mask = is_real[:, None, None, :]
        for block in self.blocks:
            tokens = block(tokens, token_mask, dropout)
        tokens = self.norm(tokens)[:, self.special_tokens :]
        return tokens.unflatten(1, (columns, COLUMN_PATCHES))

    def initialize(self, generator: torch.Generator) -> None:
        """Set first weights: Xavier for linear layers, sines and cosines for positions."""
        for name, tensor in self.named_parameters():
            if name.startswith("position_embedding"):  # filled below
                continue
            if tensor.ndim == 2:
                nn.init.xavier_uniform_(tensor, generator=generator)
            elif "norm" in name and name.endswith("weight"):
                tensor.fill_(1.0)
            else:
                tensor.zero_()
        grid = self.position_embedding["grid"]
        grid.copy_(torch.from_numpy(make_position_grid(grid.shape[-1])))


def make_position_grid(width: int) -> Frames:
    """Return a position embedding (64 columns, 8 bands, width) of sines and cosines.

    A quarter of the width each is the sine and the cosine of the column, and of the band, at rates
    from 1 down to about 1 / 100.
    """
    quarter = width // 4
    size = (MAX_COLUMNS, COLUMN_PATCHES, quarter)
    exponents = -math.log(100.0) * np.arange(quarter) / quarter
    rates = np.exp(exponents)
    column = np.arange(MAX_COLUMNS)[:, None, None] * rates
    band = np.arange(COLUMN_PATCHES)[:, None] * rates
    parts = []
    for place in (column, band):
        parts.append(np.broadcast_to(np.sin(place), size))
        parts.append(np.broadcast_to(np.cos(place), size))
    return np.concatenate(parts, axis=2).astype(np.float32)


class AstBlock(nn.Module):
    """Self-attention and two linear layers, each added to its normalised input."""

    def __init__(self, config: AstConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.norm1 = nn.LayerNorm(width, EPSILON)
        self.qkv = nn.Linear(width, 3 * width)
        self.out = nn.Linear(width, width)
        self.norm2 = nn.LayerNorm(width, EPSILON)
        self.fc1 = nn.Linear(width, config.inner)
        self.fc2 = nn.Linear(config.inner, width)

    def forward(self, tokens: Tensor, mask: Mask, dropout: Dropout) -> Tensor:
        """Return tokens of the same shape, (crops, tokens, width).

        `mask` (crops, 1, 1, tokens) says which tokens are real, not padding; None if all are.
        """
        projected = self.qkv(self.norm1(tokens))
        parts = projected.chunk(3, dim=-1)
        query, key, value = (split_heads(part, self.heads) for part in parts)
        heads = scaled_dot_product_attention(query, key, value, mask)
        attended = self.out(join_heads(heads))
        tokens = tokens + dropout(attended)
        normalised = self.norm2(tokens)
        hidden = gelu(self.fc1(normalised))
        return tokens + dropout(self.fc2(hidden))


def split_heads(tokens: Tensor, heads: int) -> Tensor:
    """Reshape (crops, tokens, width) to (crops, heads, tokens, width / heads)."""
    return tokens.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(tokens: Tensor) -> Tensor:
    """Undo `split_heads`: (crops, heads, tokens, width / heads) becomes (crops, tokens, width)."""
    return tokens.transpose(1, 2).flatten(-2)


@dataclass(frozen=True)
class BeatsConfig:
    """The sizes of a BEATs encoder."""

    title: ClassVar[str] = "BEATs"
    family: str = "beats"
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    patch_width: int = 512
    buckets: int = 320
    max_distance: int = 800
    kernel: int = 128
    kernel_groups: int = 16
    front_end: FrontEnd = BEATS_FRONT_END

    def build(self) -> "BeatsEncoder":
        """Return an encoder without weights."""
        return BeatsEncoder(self)


class BeatsEncoder(nn.Module):
    """A BEATs encoder."""

    def __init__(self, config: BeatsConfig) -> None:
        super().__init__()
        width = config.width
        self.config = config
        self.patch = nn.Linear(PATCH * PATCH, config.patch_width, bias=False)
        self.patch_norm = nn.LayerNorm(config.patch_width)
        self.convolution = PositionConvolution(config)
        self.norm = nn.LayerNorm(width)
        self.distances = nn.Embedding(config.buckets, config.heads)
        self.blocks = nn.ModuleList(BeatsBlock(config) for _ in range(config.layers))
        self.projection = nn.Identity()
        if config.patch_width != width:
            self.projection = nn.Linear(config.patch_width, width)

    def forward(
        self, patches: Tensor, mask: Mask = None, dropout: Dropout = no_dropout
    ) -> Tensor:
        """Return tokens (crops, columns, 8, width) of patches (crops, columns, 8, 256).

        `mask` (crops, columns) says which columns are real, not padding; None if all are.
        """
        columns = patches.shape[1]
        normalised = self.patch_norm(self.patch(patches))
        tokens = self.projection(normalised.flatten(1, 2))
        token_mask = None
        if mask is not None:
            token_mask = mask.repeat_interleave(COLUMN_PATCHES, dim=1)
            # Padding becomes zeros, as the convolution pads the ends.
            tokens = tokens * token_mask[:, :, None]
        with_position = tokens + self.convolution(tokens)
        tokens = dropout(self.norm(with_position))
        # What attention adds for the distance of two tokens, (heads, tokens, tokens).
        buckets = distance_buckets(
            tokens.shape[1], self.config.buckets, self.config.max_distance
        )
        numbers = torch.from_numpy(buckets).to(tokens.device)
        bias = self.distances(numbers).permute(2, 0, 1)
        for block in self.blocks:
            tokens = block(tokens, bias, token_mask, dropout)
        return tokens.unflatten(1, (columns, COLUMN_PATCHES))


class PositionConvolution(nn.Module):
    """A grouped convolution over tokens, with weight normalisation of its kernel.

    The kernel is a direction, scaled to a trained length at each of its places.
    """

    def __init__(self, config: BeatsConfig) -> None:
        super().__init__()
        width = config.width
        shape = (width, width // config.kernel_groups, config.kernel)
        self.groups = config.kernel_groups
        self.bias = nn.Parameter(torch.zeros(width))
        self.direction = nn.Parameter(torch.ones(shape))
        self.length = nn.Parameter(torch.ones(1, 1, config.kernel))

    def forward(self, tokens: Tensor) -> Tensor:
        """Mix each token (crops, tokens, width) with its neighbours.

        In float32: bfloat16 is wrong on some CPUs.
        """
        norm = self.direction.norm(dim=(0, 1), keepdim=True)
        kernel = self.direction * (self.length / norm)
        padding = kernel.shape[-1] // 2
        with torch.autocast(tokens.device.type, enabled=False):
            signal = tokens.float().transpose(1, 2)
            mixed = conv1d(
                signal, kernel, self.bias, padding=padding, groups=self.groups
            )
        real = mixed[:, :, : tokens.shape[1]]  # an even kernel gives one more
        return gelu(real).transpose(1, 2)


class BeatsBlock(nn.Module):
    """Self-attention with gated distances, and two linear layers."""

    def __init__(self, config: BeatsConfig) -> None:
        super().__init__()
        width = config.width
        self.heads = config.heads
        self.residual_scale = (2.0 * config.layers) ** 0.25
        self.q = nn.Linear(width, width)
        self.k = nn.Linear(width, width)
        self.v = nn.Linear(width, width)
        self.out = nn.Linear(width, width)
        self.fc1 = nn.Linear(width, config.inner)
        self.fc2 = nn.Linear(config.inner, width)
        self.gate = nn.Linear(width // config.heads, 2 * GATE_VALUES)
        self.norm1 = nn.LayerNorm(width)
        self.norm2 = nn.LayerNorm(width)
        self.gain = nn.ParameterDict({"scale": torch.ones(1, config.heads, 1, 1)})

    def forward(
        self, tokens: Tensor, bias: Tensor, mask: Mask, dropout: Dropout
    ) -> Tensor:
        """Return tokens of the same shape, (crops, tokens, width).

        `bias` (heads, tokens, tokens) is what attention adds for the distance of two tokens, before
        the gate; `mask` (crops, tokens) says which tokens are real, not padding; None if all are.
        """
        query = split_heads(self.q(tokens), self.heads)
        key = split_heads(self.k(tokens), self.heads)
        value = split_heads(self.v(tokens), self.heads)
        # BEATs's gate: two sigmoids for each query and head give the factor of its bias.
        linear = self.gate(query).unflatten(-1, (2, GATE_VALUES))
        sigmoids = torch.sigmoid(linear.sum(-1))  # (crops, heads, tokens, 2)
        first, second = sigmoids.split(1, dim=-1)
        scaled = second * self.gain["scale"]
        gate = first * (scaled - 1.0) + 2.0
        gated_bias = (gate * bias).to(query.dtype)
        if mask is not None:
            is_padding = ~mask[:, None, None, :]
            gated_bias = gated_bias.masked_fill(is_padding, -math.inf)
        heads = scaled_dot_product_attention(query, key, value, gated_bias)
        projected = self.out(join_heads(heads))
        attended = dropout(projected)
        tokens = self.norm1(tokens * self.residual_scale + attended)
        hidden = gelu(self.fc1(tokens))
        inner = dropout(self.fc2(hidden))
        return self.norm2(tokens * self.residual_scale + inner)


def distance_buckets(tokens: int, count: int, max_distance: int) -> IntArray:
    """Return the bucket of the distance from each token (row) to each token (column).

    `count` is the number of buckets. Short distances have a bucket each, long ones share
    logarithmic buckets, the last one also beyond `max_distance`. Tokens that come later have the
    second half of the buckets.
    """
    half = count // 2  # buckets for each direction
    near = half // 2  # distances that have a bucket each
    position = np.arange(tokens)
    offset = position - position[:, None]
    distance = np.abs(offset)
    # From `near` on, the buckets divide the logarithm of the distance up to `max_distance`.
    positive = np.maximum(distance, 1).astype(np.float32)
    ratio = positive / near
    largest = math.log(max_distance / near)
    share = np.log(ratio) / largest  # 0 at `near`, 1 at `max_distance`
    beyond = share * (half - near)
    far_bucket = near + beyond.astype(np.int64)
    far_bucket = np.minimum(far_bucket, half - 1)
    bucket = np.where(distance < near, distance, far_bucket)
    is_later = offset > 0
    bucket[is_later] += half
    return bucket


Config = AstConfig | BeatsConfig
Names = Mapping[str, Any]

HEAD_WIDTH = 64  # of AST
SPECIAL_TOKENS = 2  # of AST: class and distillation
STRIDES = (10, 12, 14, 16)  # of AST's patches, on 1024 frames
PREFIXES = ("module.", "audio_spectrogram_transformer.")  # of all names of AST

# Our names of tensors or layers → those of a checkpoint, if they differ. Names of layers in blocks
# come after `blocks` and the number of the block.
AST_ORIGINAL: Names = {
    "position_embedding": "v.pos_embed",
    "special_tokens": ("v.cls_token", "v.dist_token"),
    "patch": "v.patch_embed.proj",
    "norm": "v.norm",
    "blocks": "v.blocks.",
    "qkv": "attn.qkv",
    "out": "attn.proj",
    "fc1": "mlp.fc1",
    "fc2": "mlp.fc2",
}
AST_HUGGING_FACE: Names = {
    "position_embedding": "embeddings.position_embeddings",
    "special_tokens": ("embeddings.cls_token", "embeddings.distillation_token"),
    "patch": "embeddings.patch_embeddings.projection",
    "norm": "layernorm",
    "blocks": "encoder.layer.",
    "norm1": "layernorm_before",
    "qkv": (
        "attention.attention.query",
        "attention.attention.key",
        "attention.attention.value",
    ),
    "out": "attention.output.dense",
    "norm2": "layernorm_after",
    "fc1": "intermediate.dense",
    "fc2": "output.dense",
}
BEATS: Names = {
    "patch_norm": "layer_norm",
    "projection": "post_extract_proj",
    "convolution.direction": "encoder.pos_conv.0.weight_v",
    "convolution.length": "encoder.pos_conv.0.weight_g",
    "convolution.bias": "encoder.pos_conv.0.bias",
    "norm": "encoder.layer_norm",
    "distances": "encoder.layers.0.self_attn.relative_attention_bias",
    "blocks": "encoder.layers.",
    "q": "self_attn.q_proj",
    "k": "self_attn.k_proj",
    "v": "self_attn.v_proj",
    "out": "self_attn.out_proj",
    "gate": "self_attn.grep_linear",
    "gain.scale": "self_attn.grep_a",
    "norm1": "self_attn_layer_norm",
    "norm2": "final_layer_norm",
}
BEATS_SIZES = {
    "width": "encoder_embed_dim",
    "layers": "encoder_layers",
    "heads": "encoder_attention_heads",
    "inner": "encoder_ffn_embed_dim",
    "patch_width": "embed_dim",
    "buckets": "num_buckets",
    "max_distance": "max_distance",
    "kernel": "conv_pos",
    "kernel_groups": "conv_pos_groups",
}
BEATS_REQUIRED = {
    "input_patch_size": 16,
    "deep_norm": True,
    "gru_rel_pos": True,
    "relative_position_embedding": True,
    "layer_norm_first": False,
    "conv_bias": False,
    "activation_fn": "gelu",
}


class Pretrained(NamedTuple):
    """An encoder with its weights; `unused` are the names of the other tensors of the file.

    `digest` is the SHA-256 of the file.
    """

    digest: str
    encoder: Config
    weights: dict[str, Tensor]
    unused: tuple[str, ...]


def read_pretrained(path: Path) -> Pretrained:
    """Read a checkpoint of AST or BEATs; its content decides which of them it is."""
    if not path.is_file():
        raise InputError(
            f"{path}: expected a checkpoint of AST or BEATs, found no file"
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            content = load_file(path)
        else:
            content = torch.load(path, map_location="cpu", weights_only=True)
        encoder, weights, unused = _convert(content)
    except Exception as error:  # whatever a file may hold
        words = f"{type(error).__name__}: {error}".split()
        reason = " ".join(words)[:160]
        raise InputError(
            f"{path}: expected weights of AST or BEATs as published, got other content ({reason})"
        ) from error
    return Pretrained(sha256_file(path), encoder, weights, unused)


def _convert(
    content: Mapping[str, Any],
) -> tuple[Config, dict[str, Tensor], tuple[str, ...]]:
    """Return the encoder of a checkpoint, its weights by our names, and names of unused tensors.

    Raises if sizes or names are not those of AST or BEATs, or values are not finite.
    """
    tensors = {}
    # Some files have the tensors in an entry `model`.
    for name, tensor in content.get("model", content).items():
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
        tensors[name] = tensor
    unused = set(tensors)

    def take(*names: str) -> Tensor:
        """Return one or more tensors of the checkpoint, joined, and count them as used."""
        unused.difference_update(names)
        return torch.cat([tensors[name] for name in names])

    encoder: Config
    if "cfg" in content:  # only files of BEATs have their sizes in them
        names = BEATS
        encoder = _read_beats_config(content["cfg"])
        weights = {"patch.weight": take("patch_embedding.weight").flatten(1)}
        # All layers share the first one's distances: those of the others are not "unused".
        distances = f"{names['distances']}.weight"  # of layer 0
        unused -= {distances.replace("0", str(n)) for n in range(encoder.layers)}
    else:
        is_original = AST_ORIGINAL["position_embedding"] in tensors
        names = AST_ORIGINAL if is_original else AST_HUGGING_FACE
        encoder, weights = _convert_ast(tensors, names, take)
    with torch.device("meta"):  # shapes without memory
        network = encoder.build()
    for name in network.state_dict():
        if name not in weights:
            weights[name] = take(*_find_public_names(name, names))
    for name, tensor in weights.items():
        weights[name] = tensor.detach().float()
        if not (tensor.is_floating_point() and weights[name].isfinite().all()):
            raise ValueError(f"{name}: not finite numbers")
    network.load_state_dict(weights, assign=True)  # checks names and shapes
    return encoder, weights, tuple(sorted(unused))


def _find_public_names(name: str, names: Names) -> list[str]:
    """Return the names in a checkpoint of one of our tensors; several tensors are joined to it.

    >>> _find_public_names("blocks.3.qkv.weight", AST_ORIGINAL)
    ['v.blocks.3.attn.qkv.weight']
    """
    *block, layer, kind = name.split(".")  # such as blocks, 3; qkv; weight
    prefix = f"{names['blocks']}{block[1]}." if block else ""
    if f"{layer}.{kind}" in names:
        return [prefix + names[f"{layer}.{kind}"]]
    parts = names.get(layer, layer)  # several: query, key and value
    if isinstance(parts, str):
        parts = (parts,)
    return [f"{prefix}{part}.{kind}" for part in parts]


def _convert_ast(
    tensors: Mapping[str, Tensor], names: Names, take: Callable[..., Tensor]
) -> tuple[AstConfig, dict[str, Tensor]]:
    """Return the sizes of an AST, and its weights that need a new shape: patches and positions.

    `take(*names)` returns tensors of the checkpoint, joined.
    """
    blocks = names["blocks"]
    width = len(tensors[f"{names['patch']}.bias"])
    if width % HEAD_WIDTH:
        raise ValueError(f"width {width}, not in heads of {HEAD_WIDTH}")
    block_names = [name for name in tensors if name.startswith(blocks)]
    config = AstConfig(
        width=width,
        layers=len({name[len(blocks) :].split(".")[0] for name in block_names}),
        heads=width // HEAD_WIDTH,
        inner=len(tensors[f"{blocks}0.{names['fc1']}.weight"]),
        special_tokens=SPECIAL_TOKENS,
        front_end=AST_FRONT_END,
    )
    kernel = take(f"{names['patch']}.weight")  # (width, 1, bands, times)
    position = take(names["position_embedding"]).reshape(-1, width)
    special = take(*names["special_tokens"]).reshape(-1, width)
    # The number of positions tells at which stride the patches were: by it, that stride and the
    # patches along the bands and along the times.
    grids = {}
    for stride in STRIDES:
        bands = (BANDS - PATCH) // stride + 1
        times = (MAX_COLUMNS - 1) * PATCH // stride + 1
        grids[bands * times] = (stride, bands, times)
    count = len(position) - SPECIAL_TOKENS  # theirs are the first positions
    if count not in grids:
        raise ValueError(f"{count} positions of patches, not one of {list(grids)}")
    stride, bands, times = grids[count]
    table = position[SPECIAL_TOKENS:].float().numpy().reshape(bands, times, -1)
    grid = interpolate_grid(table, stride)
    weights = {
        # Ours has time before bands.
        "patch.weight": kernel.transpose(2, 3).flatten(1),
        "position_embedding.grid": torch.from_numpy(grid),
        "position_embedding.special": special + position[:SPECIAL_TOKENS],
    }
    return config, weights


def interpolate_grid(grid: Frames, stride: int) -> Frames:
    """Interpolate a position embedding (bands, times, width) at our patches, which do not overlap.

    `stride` is the distance of the patches that it was trained for, in frames and bands. The result
    is (64 columns, 8 bands, width). Values are linear between two positions and constant after the
    last.
    """
    # First along the bands, then along the times: each round swaps the axes.
    for count in (COLUMN_PATCHES, MAX_COLUMNS):
        last = len(grid) - 1
        # Where our patches are, in steps of the grid, and the grid's position before each.
        places = np.minimum(np.arange(count) * PATCH / stride, last)
        low = np.minimum(places.astype(np.int64), last - 1)
        share = (places - low).astype(np.float32)[:, None, None]
        below = grid[low] * (1 - share)
        above = grid[low + 1] * share
        grid = (below + above).swapaxes(0, 1)
    return grid.swapaxes(0, 1)


def _read_beats_config(cfg: Mapping[str, Any]) -> BeatsConfig:
    """Return the sizes in the configuration of a BEATs; check that the rest is supported."""
    for name, required in BEATS_REQUIRED.items():
        # By their text: 1 is not True, and comparing a tensor does not give a bool.
        if repr(cfg[name]) != repr(required):
            raise ValueError(f"{name} = {cfg[name]}, not {required}")
    sizes = {name: cfg[key] for name, key in BEATS_SIZES.items()}
    return BeatsConfig(**sizes)
