"""The rows of episodes on a GPU, and what a rule looks up about them."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.gpu.device import Gpu

Tensor = Any


def upload(array: NDArray[Any], gpu: Gpu, kind: Any = None) -> Tensor:
    """Copy an array to the GPU; keys keep their 64 bits in signed numbers.

    From pinned memory, so that nothing waits for the work that the GPU has to do before.
    """
    if array.dtype == np.uint64:
        array = array.view(np.int64)
    if not array.flags.writeable:
        array = array.copy()
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    if gpu.torch_device.type == "cuda":
        tensor = tensor.pin_memory()
    return tensor.to(gpu.torch_device, kind, non_blocking=True)


@dataclass(frozen=True)
class GpuRows:
    """The rows of some episodes on a GPU, for one rule.

    Each distinct vector is multiplied once, as on the CPU, so that equal rows give equal bits.
    """

    episodes: Episodes
    rule: str
    gpu: Gpu
    kept: dict[int, tuple[NDArray[Any], Tensor]] = field(default_factory=dict)

    def keep(self, array: NDArray[Any], kind: Any = None) -> Tensor:
        """Upload an array once for all folds."""
        key = id(array)
        if key not in self.kept:
            self.kept[key] = (array, upload(array, self.gpu, kind))
        return self.kept[key][1]

    @cached_property
    def distinct(self) -> tuple[Tensor, Tensor]:
        """Each distinct vector once, and the number of the one that every row has."""
        vectors, number = self.episodes.distinct
        return upload(vectors, self.gpu), upload(number, self.gpu)

    @cached_property
    def class_start(self) -> Tensor:
        """The first row of each class."""
        return upload(self.episodes.class_start, self.gpu, torch.int64)

    @cached_property
    def squares(self) -> Tensor:
        """The squared length of every row."""
        vectors, number = self.distinct
        return (vectors * vectors).sum(1)[number]

    @cached_property
    def matrices(self) -> tuple[Tensor, Tensor]:
        """The products inside each class, flat, and where those of each class start."""
        vectors, number = self.distinct
        matrices = []
        for rows in number.split(np.diff(self.episodes.class_start).tolist()):
            numbers, place = torch.unique(rows, return_inverse=True)
            distinct = vectors[numbers]
            table = distinct @ distinct.T
            matrices.append(table[place[:, None], place].flatten())
        ends = np.cumsum([0, *map(len, matrices)])
        return torch.cat(matrices), upload(ends, self.gpu)

    def products(self, split: Split, span: slice) -> Tensor:
        """Multiply some queries of a fold with every row, (queries, rows)."""
        vectors, number = self.distinct
        # Not by torch, which would wait for the GPU.
        of_rows = self.episodes.distinct[1][split.rows[span]]
        numbers, place = np.unique(of_rows, return_inverse=True)
        queries = vectors[upload(numbers, self.gpu)]
        if self.rule == "cosine":
            length = (queries * queries).sum(1, keepdim=True).sqrt()
            queries = queries / torch.where(length > 0, length, 1.0)
        place = upload(place[:, None], self.gpu)
        return (queries @ vectors.T)[place, number]
