"""Draws of a split → supports on a GPU, and a_n of its queries.

A `SupportDrawer` draws for every classifier; a `SplitScorer` scores by class means and their kin.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from callshot.fewshot.engine import Engine, blocks
from callshot.fewshot.episodes import Split
from callshot.fewshot.gpu_rows import GpuRows, upload
from callshot.fewshot.kernels.gpu.draws import Pool, Supports, draw_supports
from callshot.fewshot.kernels.gpu.supports import fill_evidence
from callshot.fewshot.total_resampling import UNIT, Reweighting
from callshot.records import IntArray

Tensor = Any

SUPPORT_BYTES = 2**29  # of supports that are drawn at a time
PRODUCT_BYTES = 2**29


@dataclass(frozen=True)
class ShotPlan:
    """Which of the shots of one split leave a choice of exemplars, by class.

    The first drawn[n] do; for the others class n gives its pool of sizes[n] exemplars.
    """

    shots: IntArray
    sizes: IntArray
    distinct: bool

    @property
    def drawn(self) -> IntArray:
        """The number of shots with a choice."""
        if not self.distinct:
            return np.full(len(self.sizes), len(self.shots))
        return np.searchsorted(self.shots, self.sizes)

    @property
    def steps(self) -> IntArray:
        """The exemplars that the largest of these shots takes."""
        before = np.concatenate([[0], self.shots])
        return np.asarray(before[self.drawn])

    @property
    def partial(self) -> IntArray:
        """The classes that give their whole pool at some of the shots."""
        return np.flatnonzero(self.drawn < len(self.shots))

    def slots(self, steps: IntArray) -> IntArray:
        """Return slot[n, i] of `Supports`, for draws."""
        table = np.full((len(steps), max(int(steps.max()), 1)), -1, np.int64)
        for n, drawn in enumerate(self.drawn):
            table[n, self.shots[:drawn] - 1] = np.arange(drawn)
        return table

    def pool_slots(self) -> tuple[IntArray, IntArray]:
        """Return the sizes of the pools that are given whole, 0 for other classes, and slots."""
        steps = np.zeros_like(self.sizes)
        steps[self.partial] = self.sizes[self.partial]
        table = np.full((len(steps), max(int(steps.max()), 1)), -1, np.int64)
        table[self.partial, steps[self.partial] - 1] = 0
        return steps, table


class SupportDrawer:
    """Draws the supports of one split on a GPU.

    `reweighting` gives orders and weights of exemplars; without it, supports are drawn.
    """

    def __init__(
        self,
        engine: Engine,
        split: Split,
        plan: ShotPlan,
        reweighting: Reweighting | None = None,
    ) -> None:
        self.engine = engine
        self.split = split
        self.plan = plan
        self.reweighting = reweighting
        self.on_gpu: GpuRows = engine.on_gpu

    @cached_property
    def pool(self) -> Pool:
        """What the draws of a query put in order."""
        return self.on_gpu.pool(self.split, whole_classes=False)

    @cached_property
    def query_keys(self) -> Tensor:
        """The keys of the queries."""
        return self.on_gpu.query_keys(self.split)

    def per_query(self, span: slice, draws: int) -> Supports:
        """Draw the supports of some queries; lane q · draws + r is draw r of query q."""
        keys = self.query_keys[span]
        supports = self._empty(len(keys) * draws)
        draw_supports(
            self.pool,
            self.on_gpu.base(self.engine.protocol.seed, "support"),
            keys,
            supports.lanes,
            draws,
            0,
            supports.steps,
            max(int(self.plan.steps.max()), 1),
            self.plan.distinct,
            supports.chosen,
        )
        return supports

    def shared(self, span: slice) -> Supports:
        """Return the supports of some draws that all queries share."""
        return self._ordered(span) if self.reweighting else self._shuffled(span)

    def whole_pools(self, span: slice | None, lanes: int) -> Supports:
        """Return the pools of the partial classes, in their own order, as supports."""
        steps, slots = self.plan.pool_slots()
        table = np.zeros(slots.shape, np.int64)
        for n in self.plan.partial:
            begin = self.split.pool_start[n]
            table[n, : steps[n]] = self.split.pool[begin : begin + steps[n]]
        chosen = self._upload(table)[:, :, None].expand(-1, -1, lanes).contiguous()
        supports = Supports(chosen, self._upload(steps), self._upload(slots))
        return supports if span is None else self._weighted(supports, span)

    def _upload(self, array: NDArray[Any]) -> Tensor:
        return upload(array, self.on_gpu.gpu, torch.int32)

    def _empty(self, lanes: int) -> Supports:
        """Return room for supports of every class, and when they are complete."""
        steps = self.plan.steps
        slots = self.plan.slots(steps)
        size = (*slots.shape, lanes)
        device = self.on_gpu.gpu.torch_device
        chosen = torch.empty(size, dtype=torch.int32, device=device)
        return Supports(chosen, self._upload(steps), self._upload(slots))

    def _shuffled(self, span: slice) -> Supports:
        """Draw the supports of some shared draws."""
        supports = self._empty(span.stop - span.start)
        sizes = np.diff(self.engine.episodes.class_start)
        depth = int((self.plan.steps + sizes - self.plan.sizes).max())
        draw_supports(
            self.on_gpu.pool(self.split, whole_classes=True),
            self.on_gpu.base(self.engine.protocol.seed, "shared"),
            None,
            supports.lanes,
            supports.lanes,
            span.start,
            supports.steps,
            max(depth, 1),
            self.plan.distinct,
            supports.chosen,
        )
        return supports

    def _ordered(self, span: slice) -> Supports:
        """Take the supports of some samples from their given orders."""
        assert self.reweighting is not None
        supports = self._empty(span.stop - span.start)
        rank = self._upload(self.reweighting.rank[span])
        outside = upload(self.split.outside, self.on_gpu.gpu)
        start = self.engine.episodes.class_start.tolist()
        for n, steps in enumerate(self.plan.steps.tolist()):
            order = rank[:, start[n] : start[n + 1]]
            is_outside = outside[start[n] : start[n + 1]][order]
            kept = order[is_outside].reshape(len(order), -1)
            supports.chosen[n, :steps] = kept[:, :steps].T
        return self._weighted(supports, span)

    def _weighted(self, supports: Supports, span: slice) -> Supports:
        """Add the weights of the exemplars in some samples."""
        if self.reweighting is None:
            return supports
        units = upload(self.reweighting.support_units[span], self.on_gpu.gpu)
        start = self.engine.episodes.class_start.tolist()
        weight = torch.zeros_like(supports.chosen, dtype=torch.float64)
        for n, steps in enumerate(supports.steps.tolist()):
            rows = start[n] + supports.chosen[n, :steps].to(torch.int64)
            weight[n, :steps] = torch.gather(units.T, 0, rows) * UNIT
        return supports._replace(weight=weight)


class SplitScorer:
    """Fills a_n of the queries of one split on a GPU."""

    def __init__(
        self,
        engine: Engine,
        split: Split,
        shots: IntArray,
        reweighting: Reweighting | None = None,
    ) -> None:
        self.engine = engine
        self.split = split
        self.on_gpu: GpuRows = engine.on_gpu
        distinct = engine.protocol.distinct or reweighting is not None
        self.plan = ShotPlan(shots, split.pool_sizes, distinct)
        self.drawer = SupportDrawer(engine, split, self.plan, reweighting)
        self.shots = shots

    def per_query(self, draws: int) -> Tensor:
        """Return a_n (shots, classes, queries · draws) by each query's own draws."""
        out = self._empty(len(self.split.rows) * draws)
        depth = max(int(self.plan.steps.max()), 1)
        line = 12 * depth * len(self.plan.sizes) * draws
        line += 8 * len(self.shots) * len(self.plan.sizes) * draws
        line += 8 * len(self.engine.episodes.rows)
        for span in blocks(len(self.split.rows), SUPPORT_BYTES // line):
            products = self.on_gpu.products(self.split, span)
            supports = self.drawer.per_query(span, draws)
            first = span.start * draws
            fill_evidence(
                supports, self.on_gpu.rows, products, draws, first, False, out
            )
            self._fill_pools(products, draws, span, False, out)
        return out

    def shared(self, span: slice) -> Tensor:
        """Return a_n (shots, classes, queries · draws) by some draws that all queries share."""
        draws = span.stop - span.start
        supports = self.drawer.shared(span)
        out = self._empty(len(self.split.rows) * draws)
        line = 8 * len(self.engine.episodes.rows)
        for queries in blocks(len(self.split.rows), PRODUCT_BYTES // line):
            products = self.on_gpu.products(self.split, queries)
            first = queries.start * draws
            fill_evidence(supports, self.on_gpu.rows, products, draws, first, True, out)
            self._fill_pools(products, draws, queries, True, out, span)
        return out

    def _empty(self, lanes: int) -> Tensor:
        size = (len(self.shots), len(self.plan.sizes), lanes)
        device = self.on_gpu.gpu.torch_device
        return torch.empty(size, dtype=torch.float64, device=device)

    def _fill_pools(
        self,
        products: Tensor,
        draws: int,
        queries: slice,
        reciprocal: bool,
        out: Tensor,
        span: slice | None = None,
    ) -> None:
        """Fill the shots at which a class gives its whole pool, in its own order."""
        partial = self.plan.partial.tolist()
        if not partial:
            return
        weighted = self.drawer.reweighting is not None
        supports = self.drawer.whole_pools(span, draws if weighted else 1)
        lanes = len(products) * supports.lanes
        size = (1, len(self.plan.sizes), lanes)
        whole = torch.empty(size, dtype=torch.float64, device=products.device)
        fill_evidence(
            supports,
            self.on_gpu.rows,
            products,
            supports.lanes,
            0,
            reciprocal,
            whole,
        )
        columns = slice(queries.start * draws, queries.stop * draws)
        for n in partial:
            values = whole[0, n].reshape(len(products), supports.lanes)
            values = values.expand(len(products), draws).reshape(-1)
            out[int(self.plan.drawn[n]) :, n, columns] = values
