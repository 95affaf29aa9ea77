"""The three spreads on a GPU: what `fewshot.sweep` does with threads.

A `SupportDrawer` draws for every classifier; a `SplitScorer` scores by class means and their kin. A
fold is scored at once where its scores fit, else in blocks of shots or draws. Without weights,
metrics are summed over folds on the GPU, and copied once.
"""

from dataclasses import dataclass
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray

from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.gpu.draws import Pool
from callshot.fewshot.gpu.metrics import Truth
from callshot.fewshot.gpu.supports import (
    ClassRows,
    Distinct,
    class_matrices,
    multiply_queries,
)
from callshot.fewshot.kernels import streams
from callshot.fewshot.kernels.supports import RULES

if TYPE_CHECKING:
    from callshot.fewshot.gpu.device import Gpu
from collections.abc import Callable, Mapping

from callshot.fewshot.engine import Engine, blocks
from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.gpu.draws import Supports, bootstrap_picks, draw_supports
from callshot.fewshot.gpu.metrics import (
    count_ties,
    sample_hits,
    sample_metrics,
    weighted_metrics,
)
from callshot.fewshot.gpu.scores import count_decisions, to_scores
from callshot.fewshot.gpu.supports import fill_evidence
from callshot.fewshot.metrics import MetricSums, harmonic_numbers
from callshot.fewshot.sweep import UNIT, Spread
from callshot.records import FloatArray, IntArray

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

    A spread with orders and weights of exemplars gives them; else supports are drawn.
    """

    def __init__(
        self,
        engine: Engine,
        split: Split,
        plan: ShotPlan,
        spread: Spread,
    ) -> None:
        self.engine = engine
        self.split = split
        self.plan = plan
        self.spread = spread
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
        return self._shuffled(span) if self.spread.rank is None else self._ordered(span)

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
        assert self.spread.rank is not None
        supports = self._empty(span.stop - span.start)
        rank = self._upload(self.spread.rank[span])
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
        if self.spread.support_units is None:
            return supports
        units = upload(self.spread.support_units[span], self.on_gpu.gpu)
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
        spread: Spread,
    ) -> None:
        self.engine = engine
        self.split = split
        self.on_gpu: GpuRows = engine.on_gpu
        distinct = engine.protocol.distinct or spread.rank is not None
        self.plan = ShotPlan(shots, split.pool_sizes, distinct)
        self.drawer = SupportDrawer(engine, split, self.plan, spread)
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
        weighted = self.drawer.spread.rank is not None
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


class GpuMetricSums(MetricSums):
    """Sums over folds on a GPU; `finish` copies them, so that no fold waits for the one before."""

    def __init__(self, gpu: "Gpu", *sizes: Any) -> None:
        self.gpu = gpu
        super().__init__(*sizes)

    def new_table(self, *size: int) -> Tensor:
        """Return the sums of one metric on the GPU."""
        return torch.zeros(size, dtype=torch.float64, device=self.gpu.torch_device)

    def like(self, array: Any) -> Tensor:
        """Return an array as a tensor."""
        return array if torch.is_tensor(array) else upload(array, self.gpu)

    def without_nan(self, table: Tensor) -> Tensor:
        """Return a table with 0 where a value is undefined."""
        return torch.nan_to_num(table)

    def add(self, row: Any, ap: Any, auroc: Any, hits: Any) -> None:
        """Add metrics of the open fold at some shots; those of the row `all` are arrays."""
        super().add(row, self.like(ap), self.like(auroc), self.like(hits))

    def finish(self, draws: int) -> None:
        """Copy the sums, and turn them into means."""
        self.values = _copy_tables(self.values)
        self.per_class = _copy_tables(self.per_class)
        for _, counted, _ in self._folds:
            counted[:] = [(rows, *map(_to_array, parts)) for rows, *parts in counted]
        super().finish(draws)


def _to_array(table: Any) -> NDArray[Any]:
    return np.asarray(table.cpu() if torch.is_tensor(table) else table)


def _copy_tables(tables: Mapping[Any, Any]) -> dict[Any, FloatArray]:
    return {key: _to_array(table) for key, table in tables.items()}


def sweep_fold(
    engine: Engine,
    split: Split,
    shots: IntArray,
    spread: Spread,
    sums: MetricSums,
    scorer: Any = None,
) -> None:
    """Add the metrics of one fold at every k.

    A scorer gets the engine, split, shots and spread. `per_query` and `shared` of what it makes
    return a_n (shots, classes, queries · draws), as those of a `SplitScorer` do.
    """
    make_scorer = scorer or SplitScorer
    harmonic = upload(harmonic_numbers(len(split.rows)), engine.on_gpu.gpu)
    truth = engine.on_gpu.truth(split)
    if spread.has_own_draws:
        make_scorer = partial(make_scorer, engine, split, spread=spread)
        _bootstrap_fold(engine, split, shots, sums, truth, harmonic, make_scorer)
    else:
        score = make_scorer(engine, split, shots, spread).shared
        size = (len(shots), len(engine.episodes.classes))
        _measure_draws(engine, split, size, spread, sums, truth, harmonic, score)


def _bootstrap_fold(
    engine: Engine,
    split: Split,
    shots: IntArray,
    sums: MetricSums,
    truth: Truth,
    harmonic: Tensor,
    make_scorer: Callable[..., Any],
) -> None:
    """Score the queries of one fold against their own draws, and add the bootstrap's values."""
    protocol = engine.protocol
    on_gpu: GpuRows = engine.on_gpu
    draws = protocol.draws
    classes = len(engine.episodes.classes)
    base = on_gpu.base(protocol.seed, "bootstrap")
    keys = on_gpu.query_keys(split)
    picks = bootstrap_picks(base, keys, draws, protocol.bootstraps)
    bytes_per_shot = 8 * classes * len(split.rows) * draws
    for block in blocks(len(shots), on_gpu.gpu.score_bytes // bytes_per_shot):
        table = make_scorer(shots=shots[block]).per_query(draws)
        decided, hits = to_scores(
            table, truth.relevant, draws, softmax=engine.softmax, ranking=False
        )
        tied, ties = count_ties(table, truth.relevant, draws)
        ap, auroc, _ = sample_metrics(table, picks, truth, tied, harmonic, draws)
        sums.add(
            block, ap, auroc, sample_hits(hits, picks, None, truth, classes, draws)
        )
        decisions = count_decisions(decided, hits, truth.label, draws, classes)
        sums.count(block, decisions, ties)
        engine.step((block.stop - block.start) / engine.episodes.folds)


def _measure_draws(
    engine: Engine,
    split: Split,
    size: tuple[int, int],
    spread: Spread,
    sums: MetricSums,
    truth: Truth,
    harmonic: Tensor,
    score: Callable[[slice], Tensor],
) -> None:
    """Score the queries of one fold with draws that all share, and add the values of the draws.

    `size` is the number of shots and classes.
    """
    shots, classes = size
    rows = slice(0, shots)
    gpu = engine.on_gpu.gpu
    may_tie = torch.ones(size, dtype=torch.int64, device=gpu.torch_device)
    blocks_of_columns = []
    for span in blocks(spread.samples, draws_at_a_time(engine, split, shots)):
        draws = span.stop - span.start
        table = score(span)
        decided, hits = to_scores(
            table, truth.relevant, draws, softmax=engine.softmax, ranking=True
        )
        weight = None
        if spread.units is None:
            ap, auroc, ties = sample_metrics(
                table, None, truth, may_tie, harmonic, draws
            )
            decisions = count_decisions(decided, hits, truth.label, draws, classes)
            sums.count(rows, decisions, ties)
        else:
            units = spread.units[span, split.rows].T
            weight = upload(units, gpu, torch.float64)
            ap, auroc = weighted_metrics(table, weight, truth)
        class_hits = sample_hits(hits, None, weight, truth, classes, draws)
        blocks_of_columns.append((ap, auroc, class_hits))
        engine.step(shots * draws / spread.samples / engine.episodes.folds)
    columns = [torch.cat(column, 2) for column in zip(*blocks_of_columns, strict=True)]
    if spread.units is None:
        sums.add(rows, *columns)
        return
    columns[2] *= UNIT
    for shot, metrics in enumerate(zip(*map(_to_array, columns), strict=True)):
        sums.add(shot, *metrics)


def draws_at_a_time(engine: Engine, split: Split, shots: int) -> int:
    """Return how many shared draws of one fold are scored at a time."""
    line = 8 * shots * len(engine.episodes.classes) * len(split.rows)
    return int(engine.on_gpu.gpu.score_bytes // line)
