"""Public checkpoints of AST and BEATs → an encoder and its weights, checked before any training.

    AST     the original .pth (module.v.…), or Hugging Face's safetensors
    BEATs   the original .pt, {'cfg': …, 'model': …}: iteration 3 and 3+, also fine-tuned

Nothing is unpickled: torch reads with `weights_only=True`. Sizes are read from the shapes and the
configuration; the head is not used. The position embedding of AST was trained for overlapping
patches, one every 10 frames and bands; it is interpolated at the centres of ours.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from callshot.baselines import spectrogram
from callshot.baselines.sequence_batches import Frames
from callshot.baselines.spectrogram import BANDS, COLUMN_PATCHES, MAX_COLUMNS, PATCH
from callshot.baselines.transformer import AstConfig, BeatsConfig
from callshot.errors import InputError
from callshot.files import error_reason, sha256_file

Config = AstConfig | BeatsConfig
Shape = tuple[int | None, ...]
Weights = dict[str, Tensor]
Names = Mapping[str, Any]

HEAD_WIDTH = 64  # of AST
STRIDES = (10, 12, 14, 16)  # of AST's patches, on 1024 frames
MAX_SIZE = 1_000_000  # in the configuration of BEATs
MAX_LAYERS = 100
PREFIXES = ("module.", "audio_spectrogram_transformer.")  # of all names of AST

# Our names of tensors or layers → those of a checkpoint, if they differ. Names of layers in blocks
# come after `blocks` and the number of the block.
AST_ORIGINAL = {
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
AST_HUGGING_FACE = {
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
BEATS = {
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


@dataclass(frozen=True)
class Pretrained:
    """An encoder with its weights; `unused` are the other tensors of the file."""

    path: Path
    digest: str
    encoder: Config
    weights: Weights
    unused: tuple[str, ...]


@dataclass(frozen=True)
class TensorSource:
    """The tensors of a file; `used` are the names of those that were taken."""

    path: Path
    tensors: Mapping[str, Tensor]
    used: set[str] = field(default_factory=set)

    def take(self, name: str, shape: Shape) -> Tensor:
        """Return a tensor after checking that it is finite and has a shape; None is any size."""
        tensor = self.tensors.get(name)
        if tensor is None or not _has_shape(tensor, shape):
            expected = str(shape).replace("None", "any")
            actual = "none" if tensor is None else tuple(tensor.shape)
            raise self.error(f"tensor {name} of shape {expected}", actual)
        tensor = tensor.detach().float()
        if not tensor.isfinite().all():
            raise self.error(f"tensor {name} of finite numbers", "NaN or infinity")
        self.used.add(name)
        return tensor

    def error(self, expected: str, got: object) -> InputError:
        """Return an error about the file."""
        return mismatch(self.path, expected, got)


def mismatch(path: Path, expected: str, got: object) -> InputError:
    """Return an error about a file whose content is not what was expected."""
    return InputError(f"{path}: expected {expected}, got {got}")


def _has_shape(tensor: Tensor, shape: Shape) -> bool:
    if tensor.ndim != len(shape) or tensor.numel() == 0:
        return False
    sizes = zip(tensor.shape, shape, strict=True)
    return all(expected in (None, size) for size, expected in sizes)


def read_pretrained(path: Path) -> Pretrained:
    """Read a checkpoint of AST or BEATs; its content decides which of them it is."""
    content = _check_mapping(path, _read(path))
    try:
        if {"cfg", "model"} <= content.keys():
            source = _source(path, content["model"])
            encoder, weights = _convert_beats(source, content["cfg"])
        else:
            source = _source(path, content)
            encoder, weights = _convert_ast(source)
    except InputError:
        raise
    except Exception as error:  # whatever else a file may hold
        reason = _one_line(f"{type(error).__name__}: {error}")
        problem = f"expected AST or BEATs as published, got other content ({reason})"
        raise InputError(f"{path}: {problem}") from error
    unused = tuple(sorted(source.tensors.keys() - source.used))
    return Pretrained(path, sha256_file(path), encoder, weights, unused)


def _read(path: Path) -> Any:
    if not path.is_file():
        raise InputError(
            f"{path}: expected a checkpoint of AST or BEATs, found no file"
        )
    try:
        if path.suffix == ".safetensors":
            from safetensors.torch import load_file

            return load_file(path)
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch, pickle, zipfile and safetensors have many
        problem = f"cannot be read as weights alone ({error_reason(error)})"
        raise InputError(
            f"{path}: {problem}; expected AST or BEATs as published"
        ) from error


def _check_mapping(path: Path, content: Any) -> Names:
    if not isinstance(content, Mapping):
        raise mismatch(path, "tensors by name", type(content).__name__)
    return content


def _source(path: Path, content: Any) -> TensorSource:
    """Check that all values are dense tensors of real numbers."""
    tensors = {}
    for name, tensor in _check_mapping(path, content).items():
        if not isinstance(tensor, Tensor):
            names = _one_line(", ".join(map(str, content)))
            raise mismatch(path, "tensors by name", names)
        is_dense = tensor.layout == torch.strided and not tensor.is_meta
        if not is_dense or tensor.is_complex() or tensor.is_quantized:
            kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
            expected = f"tensor {_one_line(name)} of real numbers, dense"
            raise mismatch(path, expected, kind)
        public_name = str(name)
        for prefix in PREFIXES:
            public_name = public_name.removeprefix(prefix)
        tensors[public_name] = tensor
    return TensorSource(path, tensors)


def _one_line(value: object) -> str:
    return " ".join(str(value).split())[:160]


def _convert(
    source: TensorSource, encoder: Config, names: Names, weights: Weights
) -> tuple[Config, Weights]:
    """Take the tensors of an encoder, except for the given weights."""
    with torch.device("meta"):  # shapes without memory
        tensors = encoder.build().state_dict()
    for name, tensor in tensors.items():
        if name in weights:
            continue
        parts = _public_names(name, names)
        shape = (len(tensor) // len(parts), *tensor.shape[1:])
        weights[name] = torch.cat([source.take(part, shape) for part in parts])
    return encoder, weights


def _public_names(name: str, names: Names) -> list[str]:
    """Return the names of the tensors that make one of ours."""
    *block, layer, kind = name.split(".")
    prefix = f"{names['blocks']}{block[1]}." if block else ""
    if f"{layer}.{kind}" in names:
        return [prefix + names[f"{layer}.{kind}"]]
    parts = names.get(layer, layer)
    if isinstance(parts, str):
        parts = (parts,)
    return [f"{prefix}{part}.{kind}" for part in parts]


def _convert_ast(source: TensorSource) -> tuple[Config, Weights]:
    """Return an AST from either kind of checkpoint."""
    kinds = (AST_ORIGINAL, AST_HUGGING_FACE)
    found = [kind for kind in kinds if kind["position_embedding"] in source.tensors]
    if not found:
        expected = "AST (module.v.… or audio_spectrogram_transformer.…) or BEATs ({'cfg', 'model'})"
        tensors = _one_line(", ".join(source.tensors))
        raise source.error(expected, tensors or "nothing")
    names: Names = found[0]
    encoder = _read_ast_sizes(source, names)
    width = encoder.width
    kernel = source.take(f"{names['patch']}.weight", (width, 1, PATCH, PATCH))
    position = source.take(names["position_embedding"], (1, None, width))[0]
    special = [source.take(name, (1, 1, width))[0] for name in names["special_tokens"]]
    weights = {
        "patch.weight": kernel.transpose(2, 3).flatten(1),  # ours has time before bands
        "position_embedding.grid": _interpolate_positions(source, position[2:]),
        "position_embedding.special": torch.cat(special) + position[:2],
    }
    return _convert(source, encoder, names, weights)


def _read_ast_sizes(source: TensorSource, names: Names) -> AstConfig:
    bias = source.take(f"{names['patch']}.bias", (None,))
    width = len(bias)
    if width % HEAD_WIDTH:
        raise source.error(f"a width in heads of {HEAD_WIDTH}", width)
    blocks = names["blocks"]
    inner = source.take(f"{blocks}0.{names['fc1']}.weight", (None, width))
    block_names = [name for name in source.tensors if name.startswith(blocks)]
    numbers = {name.removeprefix(blocks).partition(".")[0] for name in block_names}
    return AstConfig(
        width=width,
        layers=len(numbers),
        heads=width // HEAD_WIDTH,
        inner=len(inner),
        special_tokens=2,
        front_end=spectrogram.AST,
    )


def _interpolate_positions(source: TensorSource, position: Tensor) -> Tensor:
    grids = {}
    for stride in STRIDES:
        bands = (BANDS - PATCH) // stride + 1
        times = (MAX_COLUMNS - 1) * PATCH // stride + 1
        grids[bands * times] = (stride, bands, times)
    if len(position) not in grids:
        expected = f"{' or '.join(map(str, grids))} positions of patches on 1024 frames"
        raise source.error(expected, len(position))
    stride, bands, times = grids[len(position)]
    grid = position.numpy().reshape(bands, times, -1)
    return torch.from_numpy(interpolate_grid(grid, stride))


def interpolate_grid(grid: Frames, stride: int) -> Frames:
    """Return positions on the grid of patches that do not overlap, (64, 8, width).

    `grid` is (bands, times, width), with patches `stride` apart.
    """
    bands = _interpolate(grid, COLUMN_PATCHES, stride)
    return _interpolate(bands.swapaxes(0, 1), MAX_COLUMNS, stride)


def _interpolate(grid: Frames, count: int, stride: int) -> Frames:
    """Interpolate the first axis, linear between two positions and constant after the last."""
    last = len(grid) - 1
    centres = np.arange(count) * PATCH
    position = np.minimum(centres / stride, last)
    low = np.minimum(position.astype(np.int64), last - 1)
    share = (position - low).astype(np.float32)
    share = share[:, None, None]
    below = grid[low] * (1 - share)
    above = grid[low + 1] * share
    positions: Frames = below + above
    return positions


def _convert_beats(source: TensorSource, cfg: Any) -> tuple[Config, Weights]:
    """Return a BEATs from its tensors and its configuration."""
    encoder = _read_beats_config(source, cfg)
    kernel = source.take(
        "patch_embedding.weight", (encoder.patch_width, 1, PATCH, PATCH)
    )
    for number in range(encoder.layers):  # all layers share the first one's
        distances = BEATS["distances"].replace("0", str(number))
        source.used.add(f"{distances}.weight")
    return _convert(source, encoder, BEATS, {"patch.weight": kernel.flatten(1)})


def _read_beats_config(source: TensorSource, cfg: Any) -> BeatsConfig:
    """Return the sizes of a BEATs; check also those that no tensor's shape would contradict."""
    if not isinstance(cfg, Mapping):
        raise source.error("BEATs' configuration by name", type(cfg).__name__)
    for name in (*BEATS_SIZES.values(), *BEATS_REQUIRED):
        if name not in cfg:
            raise source.error(f"{name} in BEATs' configuration", "none")
    for name, required in BEATS_REQUIRED.items():
        if not isinstance(cfg[name], str | int) or cfg[name] != required:
            expected = f"BEATs with {name} = {required}"
            raise source.error(expected, _one_line(cfg[name]))
    sizes: dict[str, Any] = {}
    for name, public_name in BEATS_SIZES.items():
        size = cfg[public_name]
        limit = MAX_LAYERS if name == "layers" else MAX_SIZE
        if type(size) is not int or not 1 <= size <= limit:
            expected = f"{public_name} to be a whole number from 1 to {limit}"
            raise source.error(expected, _one_line(size))
        sizes[name] = size
    encoder = BeatsConfig(**sizes)
    for name in ("heads", "kernel_groups"):
        if encoder.width % sizes[name]:
            expected = f"{BEATS_SIZES[name]} to divide {BEATS_SIZES['width']} = {encoder.width}"
            raise source.error(expected, sizes[name])
    if not 1 <= encoder.buckets // 4 < encoder.max_distance:
        expected = "num_buckets of at least 4 and max_distance above a quarter of it"
        raise source.error(expected, f"{encoder.buckets} and {encoder.max_distance}")
    return encoder
