"""Patches of a spectrogram → tokens, by BEATs: a convolution for places, gated relative positions, deep norm.

    patches → linear → norm → linear → + GELU(convolution over tokens) → norm
    → [norm(a x + attention(x)), norm(a x + (linear, GELU, linear)(x))] …,   a = (2 × layers) ^ ¼

Attention adds a bias to every pair of tokens, by how far apart they are in their row, time before mel; each query
weighs it by a gate of its own: g₁ (g₂ s − 1) + 2, with g the sigmoids of sums of four linear values of its own vector
in that head, and a learnt s for each head.
"""

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from callshot.baselines import spectrogram
from callshot.baselines.crops import HEIGHT
from callshot.baselines.spectrogram import PATCH, FrontEnd
from callshot.baselines.torch_arrays import need_torch
from callshot.baselines.transformer import Dropout, join_heads, split_heads
from callshot.records import IntArray

GATES = 8  # linear values of a query: two sums of four


@dataclass(frozen=True)
class Beats:
    """The sizes of a BEATs encoder."""

    title: ClassVar[str] = "BEATs"
    family: str = "beats"
    width: int = 768
    layers: int = 12
    heads: int = 12
    inner: int = 3072
    embed: int = 512
    buckets: int = 320
    distance: int = 800
    kernel: int = 128
    kernel_groups: int = 16
    front: FrontEnd = spectrogram.BEATS

    def build(self) -> Any:
        """Make the modules, whose weights are still to come."""
        torch, width = need_torch(), self.width
        convolution = {
            "direction": torch.nn.Parameter(
                torch.ones(width, width // self.kernel_groups, self.kernel)
            ),
            "length": torch.nn.Parameter(torch.ones(1, 1, self.kernel)),
            "bias": torch.nn.Parameter(torch.zeros(width)),
        }
        parts = {
            "patch": torch.nn.Linear(PATCH * PATCH, self.embed, bias=False),
            "patch_norm": torch.nn.LayerNorm(self.embed),
            "convolution": torch.nn.ParameterDict(convolution),
            "norm": torch.nn.LayerNorm(width),
            "distances": torch.nn.Embedding(self.buckets, self.heads),
            "blocks": torch.nn.ModuleList([self._block() for _ in range(self.layers)]),
        }
        return torch.nn.ModuleDict(
            parts | ({"widen": torch.nn.Linear(self.embed, width)} if self.widens else {})
        )

    @property
    def widens(self) -> bool:
        """Whether patches have another width than tokens."""
        return self.embed != self.width

    def _block(self) -> Any:
        torch, width = need_torch(), self.width
        parts = {name: torch.nn.Linear(width, width) for name in ("q", "k", "v", "out")}
        parts |= {
            "fc1": torch.nn.Linear(width, self.inner),
            "fc2": torch.nn.Linear(self.inner, width),
        }
        parts |= {"gate": torch.nn.Linear(width // self.heads, GATES)}
        parts |= {name: torch.nn.LayerNorm(width) for name in ("norm1", "norm2")}
        gain = torch.nn.ParameterDict(
            {"scale": torch.nn.Parameter(torch.ones(1, self.heads, 1, 1))}
        )
        return torch.nn.ModuleDict({**parts, "gain": gain})

    def encode(self, parts: Any, patches: Any, there: Any, loosen: Dropout) -> Any:
        """Return tokens (cuts, columns, 8, width) of patches (cuts, columns, 8, 256); `there` is (cuts, columns)."""
        torch, columns, stay = need_torch(), patches.shape[1], (2.0 * self.layers) ** 0.25
        tokens = parts["patch_norm"](parts["patch"](patches)).flatten(1, 2)
        tokens = parts["widen"](tokens) if self.widens else tokens
        mask = None if there is None else there.repeat_interleave(HEIGHT, dim=1)
        if mask is not None:  # as the convolution has it beyond the ends
            tokens = tokens * mask[:, :, None]
        tokens = loosen(parts["norm"](tokens + self._convolve(parts["convolution"], tokens)))
        far = torch.from_numpy(buckets(tokens.shape[1], self.buckets, self.distance)).to(
            tokens.device
        )
        bias = parts["distances"](far).permute(2, 0, 1)
        for block in parts["blocks"]:
            tokens = block["norm1"](tokens * stay + loosen(self._attend(block, tokens, bias, mask)))
            inner = torch.nn.functional.gelu(block["fc1"](tokens))
            tokens = block["norm2"](tokens * stay + loosen(block["fc2"](inner)))
        return tokens.unflatten(1, (columns, HEIGHT))

    def _convolve(self, part: Any, tokens: Any) -> Any:
        """Mix each token with its neighbours; with all digits, since torch gets it wrong in bfloat16 on some CPUs."""
        torch = need_torch()
        direction = part["direction"]
        kernel = direction * (part["length"] / direction.norm(dim=(0, 1), keepdim=True))
        settings = {"padding": self.kernel // 2, "groups": self.kernel_groups}
        with torch.autocast(tokens.device.type, enabled=False):
            found = torch.nn.functional.conv1d(
                tokens.float().transpose(1, 2), kernel, part["bias"], **settings
            )
        return torch.nn.functional.gelu(found[:, :, : tokens.shape[1]]).transpose(1, 2)

    def _attend(self, block: Any, tokens: Any, bias: Any, mask: Any) -> Any:
        torch = need_torch()
        q, k, v = (split_heads(block[name](tokens), self.heads) for name in ("q", "k", "v"))
        first, second = torch.sigmoid(
            block["gate"](q).unflatten(-1, (2, GATES // 2)).sum(-1)
        ).split(1, dim=-1)
        bias = ((first * (second * block["gain"]["scale"] - 1.0) + 2.0) * bias).to(q.dtype)
        if mask is not None:
            bias = bias.masked_fill(~mask[:, None, None, :], -math.inf)
        return block["out"](
            join_heads(torch.nn.functional.scaled_dot_product_attention(q, k, v, bias))
        )

    def draw(self, parts: Any, draw: Any) -> None:
        """Give weights by chance, which is what a benchmark needs and nothing else: BEATs is for pretrained ones."""
        torch = need_torch()
        with torch.no_grad():
            for name, tensor in parts.named_parameters():
                if tensor.ndim > 1 and "scale" not in name and "length" not in name:
                    tensor.normal_(0.0, 0.02, generator=draw)


def buckets(tokens: int, count: int, farthest: int) -> IntArray:
    """Return the bucket of how far each token (column) is behind each (row): one by one near by, then by logarithms.

    Half of them are for those before.

    >>> buckets(3, 8, 16)
    array([[0, 5, 6],
           [1, 0, 5],
           [2, 1, 0]])
    """
    far = np.arange(tokens) - np.arange(tokens)[:, None]
    half, size = count // 2, np.abs(far)
    near = half // 2
    beyond = (
        np.log(np.maximum(size, 1).astype(np.float32) / near)
        / math.log(farthest / near)
        * (half - near)
    )
    large = np.minimum(near + beyond.astype(np.int64), half - 1)
    return np.asarray(np.where(size < near, size, large) + half * (far > 0))
