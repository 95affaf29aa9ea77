"""Public checkpoints of AST and BEATs → an encoder and its weights, checked before any training.

    AST     the original .pth (module.v.…), or Hugging Face's safetensors
    BEATs   the original .pt, {'cfg': …, 'model': …}: iteration 3 and 3+, also fine-tuned

Nothing is unpickled: torch reads with `weights_only=True`. Sizes are read from the shapes and the
configuration; the head is not used. The position embedding of AST was trained for overlapping
patches, one every 10 frames and bands; it is interpolated at the centres of ours.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from callshot.baselines import spectrogram
from callshot.baselines.sequence_batches import Frames
from callshot.baselines.spectrogram import BANDS, COLUMN_PATCHES, MAX_COLUMNS, PATCH
from callshot.baselines.transformer import AstConfig, BeatsConfig
from callshot.errors import InputError
from callshot.files import sha256_file

Config = AstConfig | BeatsConfig
Names = Mapping[str, Any]

HEAD_WIDTH = 64  # of AST
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
    """An encoder with its weights; `unused` are the other tensors of the file."""

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
    """Return the encoder, its weights, and the names of the tensors that it does not use."""
    tensors = {}
    for name, tensor in content.get("model", content).items():
        for prefix in PREFIXES:
            name = name.removeprefix(prefix)
        tensors[name] = tensor
    unused = set(tensors)

    def take(*names: str) -> Tensor:
        unused.difference_update(names)
        return torch.cat([tensors[name] for name in names])

    encoder: Config
    if "cfg" in content:
        names = BEATS
        encoder = _read_beats_config(content["cfg"])
        weights = {"patch.weight": take("patch_embedding.weight").flatten(1)}
        # All layers share the first one's distances.
        distances = f"{names['distances']}.weight"
        unused -= {distances.replace("0", str(n)) for n in range(encoder.layers)}
    else:
        is_original = AST_ORIGINAL["position_embedding"] in tensors
        names = AST_ORIGINAL if is_original else AST_HUGGING_FACE
        blocks = names["blocks"]
        width = len(tensors[f"{names['patch']}.bias"])
        if width % HEAD_WIDTH:
            raise ValueError(f"width {width}, not in heads of {HEAD_WIDTH}")
        block_names = [name for name in tensors if name.startswith(blocks)]
        encoder = AstConfig(
            width=width,
            layers=len({name[len(blocks) :].split(".")[0] for name in block_names}),
            heads=width // HEAD_WIDTH,
            inner=len(tensors[f"{blocks}0.{names['fc1']}.weight"]),
            special_tokens=2,
            front_end=spectrogram.AST,
        )
        kernel = take(f"{names['patch']}.weight")
        position = take(names["position_embedding"]).reshape(-1, width)
        special = take(*names["special_tokens"]).reshape(-1, width)
        grids = {}  # by number of positions of patches on 1024 frames
        for stride in STRIDES:
            bands = (BANDS - PATCH) // stride + 1
            times = (MAX_COLUMNS - 1) * PATCH // stride + 1
            grids[bands * times] = (stride, bands, times)
        count = len(position) - 2
        if count not in grids:
            raise ValueError(f"{count} positions of patches, not one of {list(grids)}")
        stride, bands, times = grids[count]
        table = position[2:].float().numpy().reshape(bands, times, -1)
        grid = interpolate_grid(table, stride)
        weights = {
            # Ours has time before bands.
            "patch.weight": kernel.transpose(2, 3).flatten(1),
            "position_embedding.grid": torch.from_numpy(grid),
            "position_embedding.special": special + position[:2],
        }
    with torch.device("meta"):  # shapes without memory
        network = encoder.build()
    for name in network.state_dict():
        if name in weights:
            continue
        *block, layer, kind = name.split(".")
        prefix = f"{names['blocks']}{block[1]}." if block else ""
        if f"{layer}.{kind}" in names:
            weights[name] = take(prefix + names[f"{layer}.{kind}"])
            continue
        parts = names.get(layer, layer)
        if isinstance(parts, str):
            parts = (parts,)
        public_names = [f"{prefix}{part}.{kind}" for part in parts]
        weights[name] = take(*public_names)
    for name, tensor in weights.items():
        weights[name] = tensor.detach().float()
        if not (tensor.is_floating_point() and weights[name].isfinite().all()):
            raise ValueError(f"{name}: not finite numbers")
    network.load_state_dict(weights, assign=True)  # checks names and shapes
    return encoder, weights, tuple(sorted(unused))


def interpolate_grid(grid: Frames, stride: int) -> Frames:
    """Return positions on the grid of patches that do not overlap, (64, 8, width).

    `grid` is (bands, times, width), with patches `stride` apart. Values are linear between two
    positions and constant after the last.
    """
    for count in (COLUMN_PATCHES, MAX_COLUMNS):
        last = len(grid) - 1
        centres = np.arange(count) * PATCH / stride
        position = np.minimum(centres, last)
        low = np.minimum(position.astype(np.int64), last - 1)
        share = (position - low).astype(np.float32)[:, None, None]
        below = grid[low] * (1 - share)
        above = grid[low + 1] * share
        grid = (below + above).swapaxes(0, 1)
    return grid.swapaxes(0, 1)


def _read_beats_config(cfg: Mapping[str, Any]) -> BeatsConfig:
    """Return the sizes of a BEATs; check what no tensor's shape would contradict."""
    for name, required in BEATS_REQUIRED.items():
        if repr(cfg[name]) != repr(required):  # a tensor is no answer
            raise ValueError(f"{name} = {cfg[name]}, not {required}")
    sizes = {name: cfg[key] for name, key in BEATS_SIZES.items()}
    return BeatsConfig(**sizes)
