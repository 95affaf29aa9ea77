"""Tensors of AST and BEATs, by their names → an encoder and its weights, by ours.

Sizes are read from the shapes and the configuration; a head is not used. AST has heads of 64. Its places were learnt
for patches that overlap, a patch every 10 frames and bands; a place here is theirs at the centre of its patch, bilinear
between the four around it, and the last one beyond theirs.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.baselines import spectrogram
from callshot.baselines.beats import Beats
from callshot.baselines.crops import COLUMNS, HEIGHT
from callshot.baselines.spectrogram import BANDS, PATCH
from callshot.baselines.torch_arrays import Arrays
from callshot.baselines.transformer import Ast
from callshot.errors import InputError

HEAD = 64  # width of a head of AST
MOST, MOST_LAYERS = 1_000_000, 100  # of a size in BEATs' configuration
STRIDES = (10, 12, 14, 16)  # of AST's patches, on 1024 frames
HUGGING_FACE = "audio_spectrogram_transformer."
FIXED = {  # what a BEATs must be, beside its sizes
    "input_patch_size": 16,
    "deep_norm": True,
    "gru_rel_pos": True,
    "relative_position_embedding": True,
    "layer_norm_first": False,
    "conv_bias": False,
    "activation_fn": "gelu",
}
SIZES = {
    "width": "encoder_embed_dim",
    "layers": "encoder_layers",
    "heads": "encoder_attention_heads",
    "inner": "encoder_ffn_embed_dim",
    "embed": "embed_dim",
    "buckets": "num_buckets",
    "distance": "max_distance",
    "kernel": "conv_pos",
    "kernel_groups": "conv_pos_groups",
}


@dataclass(frozen=True)
class Source:
    """The tensors of a file, taken by name."""

    path: Path
    tensors: Mapping[str, NDArray[Any]]
    taken: set[str] = field(default_factory=set)

    def take(self, name: str, shape: tuple[int | None, ...]) -> NDArray[Any]:
        """Return a tensor; refuse where it is missing, has another shape (None is any), or is not finite."""
        found, wanted = self.tensors.get(name), f"{self.path}: wanted tensor {name}"
        if found is None or not _fits(found.shape, shape):
            told = str(shape).replace("None", "any")
            raise InputError(
                f"{wanted} of shape {told}, found {'none' if found is None else found.shape}"
            )
        if not np.isfinite(found).all():
            raise InputError(f"{wanted} of finite numbers, found NaN or infinity")
        self.taken.add(name)
        return found.astype(np.float32)

    def layers(self, before: str) -> int:
        """Return how many layers there are whose tensors' names begin so."""
        numbers = {
            name[len(before) :].partition(".")[0]
            for name in self.tensors
            if name.startswith(before)
        }
        return len(numbers)


def _fits(found: tuple[int, ...], wanted: tuple[int | None, ...]) -> bool:
    if len(found) != len(wanted):
        return False
    return all(
        have == want or (want is None and have > 0)
        for have, want in zip(found, wanted, strict=True)
    )


def tell_some(found: Any) -> str:
    """Name what was found instead."""
    return tell_short(
        ", ".join(map(str, [*found][:4])) if isinstance(found, Mapping) else type(found).__name__
    )


def tell_short(found: object) -> str:
    """Tell something of a file on one line, which it may not be by itself."""
    return " ".join(str(found).split())[:160]


def convert_ast(source: Source) -> tuple[Ast, Arrays]:
    """Return an AST, of either way to name its tensors."""
    if "v.pos_embed" in source.tensors:
        return _ast_of(source, "v.", _original_block)
    if f"{HUGGING_FACE}embeddings.position_embeddings" in source.tensors:
        return _ast_of(source, HUGGING_FACE, _hugging_face_block)
    wanted = f"wanted AST (module.v.… or {HUGGING_FACE}…) or BEATs ({{'cfg', 'model'}})"
    raise InputError(f"{source.path}: {wanted}, found {tell_some(source.tensors)}")


def _ast_of(source: Source, at: str, block: Any) -> tuple[Ast, Arrays]:
    names = AST_NAMES[at]
    width = source.take(names["patch"] + ".bias", (None,)).size
    if width % HEAD:
        raise InputError(f"{source.path}: wanted a width in heads of {HEAD}, found {width}")
    layers = source.layers(names["blocks"])
    inner = source.take(f"{names['blocks']}0.{names['fc1']}.weight", (None, width)).shape[0]
    encoder = Ast(
        width=width,
        layers=layers,
        heads=width // HEAD,
        inner=inner,
        specials=2,
        front=spectrogram.AST,
    )
    places = source.take(names["places"], (1, None, width))[0]
    grid = spread_places(source.path, places[2:])
    special = (
        np.concatenate([source.take(name, (1, 1, width))[0] for name in names["specials"]])
        + places[:2]
    )
    arrays = {
        "patch.weight": _patch(
            source.take(names["patch"] + ".weight", (width, 1, PATCH, PATCH)), mel_first=True
        ),
        "patch.bias": source.take(names["patch"] + ".bias", (width,)),
        "places.grid": grid,
        "places.special": special,
        **_pair(source, names["norm"], "norm", (width,)),
    }
    for n in range(layers):
        arrays |= block(source, f"{names['blocks']}{n}.", f"blocks.{n}.", width, inner)
    return encoder, arrays


AST_NAMES: dict[str, dict[str, Any]] = {
    "v.": {
        "patch": "v.patch_embed.proj",
        "places": "v.pos_embed",
        "specials": ("v.cls_token", "v.dist_token"),
        "norm": "v.norm",
        "blocks": "v.blocks.",
        "fc1": "mlp.fc1",
    },
    HUGGING_FACE: {
        "patch": f"{HUGGING_FACE}embeddings.patch_embeddings.projection",
        "places": f"{HUGGING_FACE}embeddings.position_embeddings",
        "specials": (
            f"{HUGGING_FACE}embeddings.cls_token",
            f"{HUGGING_FACE}embeddings.distillation_token",
        ),
        "norm": f"{HUGGING_FACE}layernorm",
        "blocks": f"{HUGGING_FACE}encoder.layer.",
        "fc1": "intermediate.dense",
    },
}


def _original_block(
    source: Source, theirs: str, ours: str, width: int, inner: int
) -> dict[str, NDArray[Any]]:
    arrays = _mlp_and_norms(
        source, theirs, ours, width, inner, ("norm1", "norm2", "mlp.fc1", "mlp.fc2")
    )
    arrays |= _pair(source, f"{theirs}attn.qkv", f"{ours}qkv", (3 * width, width))
    return arrays | _pair(source, f"{theirs}attn.proj", f"{ours}out", (width, width))


def _hugging_face_block(
    source: Source, theirs: str, ours: str, width: int, inner: int
) -> dict[str, NDArray[Any]]:
    names = ("layernorm_before", "layernorm_after", "intermediate.dense", "output.dense")
    arrays = _mlp_and_norms(source, theirs, ours, width, inner, names)
    parts = [
        _pair(source, f"{theirs}attention.attention.{name}", "x", (width, width))
        for name in ("query", "key", "value")
    ]
    arrays |= {
        f"{ours}qkv.{kind}": np.concatenate([part[f"x.{kind}"] for part in parts])
        for kind in ("weight", "bias")
    }
    return arrays | _pair(source, f"{theirs}attention.output.dense", f"{ours}out", (width, width))


def _mlp_and_norms(
    source: Source, theirs: str, ours: str, width: int, inner: int, names: tuple[str, str, str, str]
) -> dict[str, NDArray[Any]]:
    shapes = {"norm1": (width,), "norm2": (width,), "fc1": (inner, width), "fc2": (width, inner)}
    arrays: dict[str, NDArray[Any]] = {}
    for (own, shape), name in zip(shapes.items(), names, strict=True):
        arrays |= _pair(source, theirs + name, ours + own, shape)
    return arrays


def _pair(
    source: Source, theirs: str, ours: str, shape: tuple[int, ...]
) -> dict[str, NDArray[Any]]:
    """Take a weight and its bias."""
    weight, bias = source.take(f"{theirs}.weight", shape), source.take(f"{theirs}.bias", shape[:1])
    return {f"{ours}.weight": weight, f"{ours}.bias": bias}


def _patch(weight: NDArray[Any], *, mel_first: bool) -> NDArray[Any]:
    """Turn the kernel of a convolution into a linear layer over a patch, frame by frame."""
    kernel = weight[:, 0].transpose(0, 2, 1) if mel_first else weight[:, 0]
    return np.ascontiguousarray(kernel.reshape(len(kernel), -1))


def spread_places(path: Path, places: NDArray[Any]) -> NDArray[Any]:
    """Return places on the grid of patches that do not overlap, (64, 8, width), from theirs, (bands × times, width)."""
    grids = {
        stride: ((BANDS - PATCH) // stride + 1, (COLUMNS * PATCH - PATCH) // stride + 1)
        for stride in STRIDES
    }
    found = [stride for stride, (bands, times) in grids.items() if bands * times == len(places)]
    if not found:
        wanted = " or ".join(str(bands * times) for bands, times in grids.values())
        raise InputError(
            f"{path}: wanted {wanted} places of patches, on 1024 frames, found {len(places)}"
        )
    grid = places.reshape(*grids[found[0]], -1)
    return _between(_between(grid, 0, HEIGHT, found[0]), 1, COLUMNS, found[0]).transpose(1, 0, 2)


def _between(grid: NDArray[Any], axis: int, count: int, stride: int) -> NDArray[Any]:
    """Read a grid at the centres of patches that are 16 apart: linear between two, the last one beyond them."""
    at = np.minimum(np.arange(count) * PATCH / stride, grid.shape[axis] - 1)
    low = np.minimum(at.astype(np.int64), grid.shape[axis] - 2)
    share = (at - low).astype(np.float32).reshape([-1, 1, 1] if axis == 0 else [1, -1, 1])
    return np.asarray(np.take(grid, low, axis) * (1 - share) + np.take(grid, low + 1, axis) * share)


def convert_beats(source: Source, cfg: Any) -> tuple[Beats, Arrays]:
    """Return a BEATs, by its tensors and its configuration."""
    encoder = _beats_sizes(source.path, cfg)
    width, at = encoder.width, "encoder."
    arrays = {
        "patch.weight": _patch(
            source.take("patch_embedding.weight", (encoder.embed, 1, PATCH, PATCH)), mel_first=False
        ),
        **_pair(source, "layer_norm", "patch_norm", (encoder.embed,)),
        **(
            _pair(source, "post_extract_proj", "widen", (width, encoder.embed))
            if encoder.widens
            else {}
        ),
        **_pair(source, "encoder.layer_norm", "norm", (width,)),
        "convolution.direction": source.take(
            f"{at}pos_conv.0.weight_v", (width, width // encoder.kernel_groups, encoder.kernel)
        ),
        "convolution.length": source.take(f"{at}pos_conv.0.weight_g", (1, 1, encoder.kernel)),
        "convolution.bias": source.take(f"{at}pos_conv.0.bias", (width,)),
    }
    shared = f"{at}layers.{{}}.self_attn.relative_attention_bias.weight"
    arrays["distances.weight"] = source.take(shared.format(0), (encoder.buckets, encoder.heads))
    source.taken.update(shared.format(n) for n in range(encoder.layers))  # all are the first one's
    for n in range(encoder.layers):
        arrays |= _beats_block(source, f"{at}layers.{n}.", f"blocks.{n}.", encoder)
    return encoder, arrays


def _beats_sizes(path: Path, cfg: Any) -> Beats:
    if not isinstance(cfg, Mapping):
        raise InputError(f"{path}: wanted BEATs' configuration by name, found {type(cfg).__name__}")
    missing = [name for name in (*SIZES.values(), *FIXED) if name not in cfg]
    if missing:
        raise InputError(f"{path}: wanted {missing[0]} in BEATs' configuration, found none")
    for name, wanted in FIXED.items():
        if not isinstance(cfg[name], str | int) or cfg[name] != wanted:
            raise InputError(
                f"{path}: wanted BEATs with {name} = {wanted}, found {tell_short(cfg[name])}"
            )
    sizes: dict[str, Any] = {
        ours: _size(path, theirs, cfg[theirs]) for ours, theirs in SIZES.items()
    }
    return _whole(path, Beats(**sizes))


def _size(path: Path, name: str, found: Any) -> int:
    """Check a size on its own: what is built by it must not take for ever before a tensor contradicts it."""
    most = MOST_LAYERS if name == SIZES["layers"] else MOST
    if isinstance(found, bool) or not isinstance(found, int) or not 1 <= found <= most:
        raise InputError(
            f"{path}: wanted {name} a whole number from 1 to {most}, found {tell_short(found)}"
        )
    return found


def _whole(path: Path, encoder: Beats) -> Beats:
    """Check the sizes together: what no tensor's shape would tell."""
    for ours in ("heads", "kernel_groups"):
        if encoder.width % getattr(encoder, ours):
            wanted = f"wanted {SIZES[ours]} that divides {SIZES['width']} = {encoder.width}"
            raise InputError(f"{path}: {wanted}, found {getattr(encoder, ours)}")
    if not 1 <= encoder.buckets // 4 < encoder.distance:  # those that are one by one, on each side
        wanted = f"wanted {SIZES['buckets']} from 4 and {SIZES['distance']} beyond a quarter of it"
        raise InputError(f"{path}: {wanted}, found {encoder.buckets} and {encoder.distance}")
    return encoder


def _beats_block(source: Source, theirs: str, ours: str, encoder: Beats) -> dict[str, NDArray[Any]]:
    width, inner = encoder.width, encoder.inner
    names = ("self_attn_layer_norm", "final_layer_norm", "fc1", "fc2")
    arrays = _mlp_and_norms(source, theirs, ours, width, inner, names)
    for name in ("q", "k", "v", "out"):
        arrays |= _pair(source, f"{theirs}self_attn.{name}_proj", ours + name, (width, width))
    arrays |= _pair(
        source, f"{theirs}self_attn.grep_linear", f"{ours}gate", (8, width // encoder.heads)
    )
    return {
        **arrays,
        f"{ours}gain.scale": source.take(f"{theirs}self_attn.grep_a", (1, encoder.heads, 1, 1)),
    }
