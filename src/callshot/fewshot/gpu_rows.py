"""Episodes and splits → the tensors that the kernels for a GPU read."""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.kernels import streams
from callshot.fewshot.kernels.gpu.bootstrap import Truth
from callshot.fewshot.kernels.gpu.draws import Pool
from callshot.fewshot.kernels.gpu.products import (
    Distinct,
    class_matrices,
    multiply_queries,
)
from callshot.fewshot.kernels.gpu.supports import ClassRows
from callshot.fewshot.kernels.supports import RULES

if TYPE_CHECKING:
    from callshot.fewshot.device import Gpu

Tensor = Any


def upload(array: NDArray[Any], gpu: "Gpu", kind: Any = None) -> Tensor:
    """Copy an array to the GPU; keys keep their 64 bits in signed numbers."""
    if array.dtype == np.uint64:
        array = array.view(np.int64)
    if not array.flags.writeable:
        array = array.copy()
    tensor = torch.from_numpy(np.ascontiguousarray(array))
    return tensor.to(gpu.torch_device, kind, non_blocking=True)


@dataclass(frozen=True)
class GpuRows:
    """The rows of some episodes on a GPU, for one rule."""

    episodes: Episodes
    rule: str
    gpu: "Gpu"

    @cached_property
    def distinct(self) -> Distinct:
        """Each distinct vector once, and the number of the one that every row has."""
        vectors, index = self.episodes.distinct
        number = None
        if len(vectors) < len(index):
            number = upload(index, self.gpu)
        return Distinct(upload(vectors, self.gpu), number)

    @cached_property
    def rows(self) -> ClassRows:
        """What the rule looks up about every row."""
        vectors, number = self.distinct
        squares = (vectors * vectors).sum(1)
        matrix = start = squares
        if self.rule != "nearest":
            matrix, start = class_matrices(
                self.distinct,
                self.episodes.class_start.tolist(),
                distances=self.rule == "medoid",
            )
        return ClassRows(
            RULES.index(self.rule),
            self.class_start,
            squares if number is None else squares[number],
            matrix,
            start,
        )

    @cached_property
    def class_start(self) -> Tensor:
        """The first row of each class."""
        return upload(self.episodes.class_start, self.gpu, torch.int64)

    @cached_property
    def class_key(self) -> Tensor:
        """The key of each class."""
        return upload(self.episodes.class_key, self.gpu)

    def query_keys(self, split: Split) -> Tensor:
        """Return the keys of a fold's queries."""
        return upload(self.episodes.segment_key[split.rows], self.gpu)

    def base(self, seed: int, purpose: str) -> Tensor:
        """Return the key that starts the streams of a purpose."""
        return upload(np.array([streams.purpose_key(seed, purpose)]), self.gpu)

    def products(self, split: Split, span: slice) -> Tensor:
        """Multiply some queries of a fold with every row, (queries, rows)."""
        vectors, number = self.distinct
        rows = upload(split.rows[span], self.gpu)
        place = None
        if number is not None:
            rows, place = torch.unique(number[rows], return_inverse=True)
        queries = vectors[rows]
        if self.rule == "cosine":
            length = (queries * queries).sum(1, keepdim=True).sqrt()
            queries = queries / torch.where(length > 0, length, 1.0)
        return multiply_queries(Distinct(queries, place), self.distinct)

    def pool(self, split: Split, *, whole_classes: bool) -> Pool:
        """Return what draws put in order: the pools of a split, or all rows of each class."""
        members = split.pool
        start = split.pool_start
        if whole_classes:
            members = self.episodes.members
            start = self.episodes.class_start
        return Pool(
            upload(members, self.gpu, torch.int32),
            upload(start, self.gpu, torch.int32),
            self.class_start,
            upload(split.outside.view(np.int8), self.gpu),
            self.class_key,
        )

    def truth(self, split: Split) -> Truth:
        """Return the true classes of a fold's queries."""
        relevant = split.relevant
        both = np.concatenate([relevant, ~relevant])
        _, sides = np.nonzero(both)
        start = np.concatenate([[0], np.cumsum(both.sum(axis=1))])
        by_label = np.argsort(split.label, kind="stable")
        label_start = np.searchsorted(
            split.label[by_label], np.arange(len(relevant) + 1)
        )
        return Truth(
            upload(relevant.view(np.int8), self.gpu),
            upload(split.label, self.gpu, torch.int64),
            upload(sides, self.gpu, torch.int32),
            upload(start, self.gpu, torch.int32),
            upload(by_label, self.gpu, torch.int32),
            upload(label_start, self.gpu, torch.int32),
        )
