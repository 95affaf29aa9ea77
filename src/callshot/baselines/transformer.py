"""Patches of a spectrogram → tokens, by the audio spectrogram transformer (AST): a place for each, blocks, a norm.

    patches → linear + place → [x + attention(norm x), x + (linear, GELU, linear)(norm x)] … → norm

Places are a grid of 64 columns × 8 bands. A pretrained one has two more tokens before them, which are left out behind.
Modules are made here and used by plain functions, since torch is imported when it is used.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from callshot.baselines import spectrogram
from callshot.baselines.crops import COLUMNS, HEIGHT
from callshot.baselines.spectrogram import PATCH, FrontEnd
from callshot.baselines.torch_arrays import need_torch

EPSILON = 1e-6  # of a norm
Dropout = Callable[[Any], Any]  # what drops a share of the values, in training


@dataclass(frozen=True)
class Ast:
    """The sizes of an audio spectrogram transformer."""

    title: ClassVar[str] = "AST-seq"
    family: str = "ast"
    width: int = 128
    layers: int = 3
    heads: int = 2
    inner: int = 512
    specials: int = 0  # tokens beside the patches
    front: FrontEnd = spectrogram.AERD

    def build(self) -> Any:
        """Make the modules, whose weights are still to come."""
        torch = need_torch()
        places = {"grid": torch.nn.Parameter(torch.zeros(COLUMNS, HEIGHT, self.width))}
        if self.specials:
            places["special"] = torch.nn.Parameter(torch.zeros(self.specials, self.width))
        return torch.nn.ModuleDict(
            {
                "patch": torch.nn.Linear(PATCH * PATCH, self.width),
                "places": torch.nn.ParameterDict(places),
                "blocks": torch.nn.ModuleList([self._block() for _ in range(self.layers)]),
                "norm": torch.nn.LayerNorm(self.width, EPSILON),
            }
        )

    def _block(self) -> Any:
        torch, width = need_torch(), self.width
        return torch.nn.ModuleDict(
            {
                "norm1": torch.nn.LayerNorm(width, EPSILON),
                "qkv": torch.nn.Linear(width, 3 * width),
                "out": torch.nn.Linear(width, width),
                "norm2": torch.nn.LayerNorm(width, EPSILON),
                "fc1": torch.nn.Linear(width, self.inner),
                "fc2": torch.nn.Linear(self.inner, width),
            }
        )

    def encode(self, parts: Any, patches: Any, there: Any, loosen: Dropout) -> Any:
        """Return tokens (cuts, columns, 8, width) of patches (cuts, columns, 8, 256); `there` is (cuts, columns)."""
        torch, columns = need_torch(), patches.shape[1]
        tokens = (parts["patch"](patches) + parts["places"]["grid"][:columns]).flatten(1, 2)
        mask = None if there is None else there.repeat_interleave(HEIGHT, dim=1)
        if self.specials:
            special = parts["places"]["special"].to(tokens.dtype).expand(len(tokens), -1, -1)
            tokens = torch.cat([special, tokens], dim=1)
            mask = (
                None
                if mask is None
                else torch.nn.functional.pad(mask, (self.specials, 0), value=True)
            )
        if mask is not None:
            mask = mask[:, None, None, :]
        for block in parts["blocks"]:
            tokens = tokens + loosen(self._attend(block, block["norm1"](tokens), mask))
            inner = torch.nn.functional.gelu(block["fc1"](block["norm2"](tokens)))
            tokens = tokens + loosen(block["fc2"](inner))
        return parts["norm"](tokens)[:, self.specials :].unflatten(1, (columns, HEIGHT))

    def _attend(self, block: Any, tokens: Any, mask: Any) -> Any:
        q, k, v = (split_heads(x, self.heads) for x in block["qkv"](tokens).chunk(3, dim=-1))
        return block["out"](
            join_heads(need_torch().nn.functional.scaled_dot_product_attention(q, k, v, mask))
        )

    def draw(self, parts: Any, draw: Any) -> None:
        """Give first weights: linear layers as Xavier has them, places that are waves over time and mel."""
        torch = need_torch()
        with torch.no_grad():
            for name, tensor in parts.named_parameters():
                if name.startswith("places"):
                    continue
                if tensor.ndim == 2:
                    torch.nn.init.xavier_uniform_(tensor, generator=draw)
                else:
                    tensor.fill_(1.0 if "norm" in name and name.endswith("weight") else 0.0)
            parts["places"]["grid"].copy_(torch.from_numpy(waves(self.width)))


def split_heads(tokens: Any, heads: int) -> Any:
    """Part the width: (cuts, tokens, width) → (cuts, heads, tokens, width / heads)."""
    return tokens.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(tokens: Any) -> Any:
    """Undo it."""
    return tokens.transpose(1, 2).flatten(-2)


def waves(width: int) -> NDArray[np.float32]:
    """Return sines and cosines of the column, and of the band, in half of the width each: (64, 8, width)."""
    half = width // 4
    rates = np.exp(-math.log(100.0) * np.arange(half) / half)
    column, band = np.arange(COLUMNS)[:, None] * rates, np.arange(HEIGHT)[:, None] * rates
    found = np.zeros((COLUMNS, HEIGHT, width), np.float32)
    for n, part in enumerate((np.sin(column), np.cos(column))):
        found[:, :, n * half : (n + 1) * half] = part[:, None]
    for n, part in enumerate((np.sin(band), np.cos(band)), start=2):
        found[:, :, n * half : (n + 1) * half] = part
    return found
