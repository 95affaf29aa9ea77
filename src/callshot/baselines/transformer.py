"""Patches of a spectrogram → tokens, with the audio spectrogram transformer (AST).

    patches → linear + position
    → [x + attention(norm x), x + (linear, GELU, linear)(norm x)] … → norm

Positions are a grid of 64 columns × 8 bands. A pretrained encoder has two more tokens in front,
which are removed at the end.

The order in which layers are registered decides the last digits of trained weights, because
gradients are clipped by a sum over all parameters.
"""

import math
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.functional import gelu, pad, scaled_dot_product_attention

from callshot.baselines import spectrogram
from callshot.baselines.spectrogram import COLUMN_PATCHES, MAX_COLUMNS, PATCH, FrontEnd
from callshot.baselines.training_task import Dropout, no_dropout

EPSILON = 1e-6  # of the layer norms
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
    front_end: FrontEnd = spectrogram.AERD

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

        `mask` is (crops, columns); None if all columns are real.
        """
        columns = patches.shape[1]
        position = self.position_embedding["grid"][:columns]
        tokens = (self.patch(patches) + position).flatten(1, 2)
        mask = token_mask(mask)
        if self.special_tokens:
            special = self.position_embedding["special"].to(tokens.dtype)
            special = special.expand(len(tokens), -1, -1)
            tokens = torch.cat([special, tokens], dim=1)
        if mask is not None:
            mask = pad(mask, (self.special_tokens, 0), value=True)
            mask = mask[:, None, None, :]
        for block in self.blocks:
            tokens = block(tokens, mask, dropout)
        tokens = self.norm(tokens)[:, self.special_tokens :]
        return tokens.unflatten(1, (columns, COLUMN_PATCHES))

    def initialize(self, generator: torch.Generator) -> None:
        """Draw first weights: Xavier for linear layers, sines and cosines for positions."""
        for name, tensor in self.named_parameters():
            if name.startswith("position_embedding"):
                continue
            if tensor.ndim == 2:
                nn.init.xavier_uniform_(tensor, generator=generator)
            elif "norm" in name and name.endswith("weight"):
                tensor.fill_(1.0)
            else:
                tensor.zero_()
        grid = self.position_embedding["grid"]
        grid.copy_(torch.from_numpy(sinusoidal_grid(grid.shape[-1])))


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
        """Return tokens of the same shape."""
        tokens = tokens + dropout(self._attend(self.norm1(tokens), mask))
        inner = gelu(self.fc1(self.norm2(tokens)))
        return tokens + dropout(self.fc2(inner))

    def _attend(self, tokens: Tensor, mask: Mask) -> Tensor:
        parts = self.qkv(tokens).chunk(3, dim=-1)
        query, key, value = (split_heads(part, self.heads) for part in parts)
        heads = scaled_dot_product_attention(query, key, value, mask)
        return self.out(join_heads(heads))


def token_mask(mask: Mask) -> Mask:
    """Return a mask of tokens, (crops, tokens), from one of columns."""
    if mask is None:
        return None
    return mask.repeat_interleave(COLUMN_PATCHES, dim=1)


def split_heads(tokens: Tensor, heads: int) -> Tensor:
    """Reshape (crops, tokens, width) to (crops, heads, tokens, width / heads)."""
    return tokens.unflatten(-1, (heads, -1)).transpose(1, 2)


def join_heads(tokens: Tensor) -> Tensor:
    """Undo `split_heads`."""
    return tokens.transpose(1, 2).flatten(-2)


def sinusoidal_grid(width: int) -> NDArray[np.float32]:
    """Return sines and cosines of the column and of the band, a quarter of the width each."""
    quarter = width // 4
    size = (MAX_COLUMNS, COLUMN_PATCHES, quarter)
    rates = np.exp(-math.log(100.0) * np.arange(quarter) / quarter)
    column = np.arange(MAX_COLUMNS)[:, None, None] * rates
    band = np.arange(COLUMN_PATCHES)[:, None] * rates
    waves = [np.sin(column), np.cos(column), np.sin(band), np.cos(band)]
    grid = np.concatenate([np.broadcast_to(wave, size) for wave in waves], axis=2)
    return grid.astype(np.float32)
