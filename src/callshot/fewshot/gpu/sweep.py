"""Episodes and splits → the tensors that the kernels for a GPU read.

Draws of a split → supports on a GPU, and a_n of its queries.

A `SupportDrawer` draws for every classifier; a `SplitScorer` scores by class means and their kin.


The three spreads on a GPU: what `per_query_resampling` and its neighbours do with threads.

A fold is scored at once where its scores fit, else in blocks of shots or draws. Metrics of the
spreads with many samples are summed over folds on the GPU, and copied once.
"""

from dataclasses import dataclass
from functools import cached_property
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
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

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
from callshot.fewshot.metrics import MetricSums, WeightedMetricSums, harmonic_numbers
from callshot.fewshot.sweep import UNIT, Reweighting
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


Tensor = Any


class Scorer(Protocol):
    """Returns a_n (shots, classes, queries · draws) of one split."""

    def per_query(self, draws: int) -> Tensor:
        """Score each query by draws of its own."""

    def shared(self, span: slice) -> Tensor:
        """Score all queries by the same draws."""


class GpuMetricSums(MetricSums):
    """Sums over folds on a GPU; `finish` copies them, so that no fold waits for the one before.

    Until then `folds_added` has each fold with its decisions, those of the row `all` and those on
    the GPU, and its ties.
    """

    def __init__(
        self,
        shots: int,
        samples: int,
        classes: Sequence[str],
        categories: Mapping[str, str] | None,
        gpu: Gpu,
        has_pool_row: bool = False,
    ) -> None:
        self.has_pool_row = has_pool_row
        super().__init__(shots, samples, classes, categories)
        self.gpu = gpu
        self.shots = 0  # rows that are on the GPU; the row `all` is not
        self.on_gpu = {
            key: torch.zeros(table.shape, dtype=torch.float64, device=gpu.torch_device)
            for key, table in self.tables()
        }
        self.counted: list[tuple[slice, Tensor, Tensor]] = []
        self.folds_added: list[
            tuple[Split, Any, list[tuple[slice, Tensor, Tensor]]]
        ] = []

    def new_table(self, *size: int) -> FloatArray:
        """Return a table on the host: without the row `all`, nothing is added to it."""
        if self.has_pool_row:
            return super().new_table(*size)
        return np.broadcast_to(0.0, size)

    def add_fold(
        self, block: slice, split: Split, ap: Tensor, auroc: Tensor, hits: Tensor
    ) -> None:
        """Add one fold's metrics, (shots, classes, samples), at some shots, as `add` does."""
        self.shots = max(self.shots, block.stop)
        sums = {key: table[block] for key, table in self.on_gpu.items()}
        queries = np.bincount(split.label, minlength=ap.shape[1])
        recall = hits / upload(queries, self.gpu)[:, None]
        sums["map"] += ap
        sums["auroc"] += torch.nan_to_num(auroc)
        sums["accuracy"] += recall
        sums["all", "accuracy"] += hits.sum(1) / len(split.rows)
        sums["all", "balanced_accuracy"] += recall.mean(1)
        is_defined = split.positives < len(split.rows)
        for scoring, groups in self.groups.items():
            sums[scoring, "map"] += _mean_of_groups(ap, groups)
            kept = [group[is_defined[group]] for group in groups]
            kept = [group for group in kept if group.size]
            sums[scoring, "auroc"] += _mean_of_groups(auroc, kept)

    def count(self, block: slice, decisions: Tensor, ties: Tensor) -> None:
        """Add decisions (shots, true, predicted) and ties (shots, classes) at some shots."""
        self.counted.append((block, decisions, ties))

    def close_fold(self, split: Split) -> None:
        """Note a fold as complete; `finish` counts it."""
        self.folds_added.append((split, self.decisions.copy(), self.counted))
        self.decisions[:] = 0.0
        self.counted = []

    def finish(self, draws: int) -> None:
        """Turn sums into means, on the GPU, and copy them into the rows of the shots."""
        self._count_folds()
        means = {}
        for key, table in self.on_gpu.items():
            means[key] = _start_copy(table / upload(self.divisor(key), self.gpu))
        self._replace_tables(lambda _, table: table[self.shots :].copy())
        super().finish(draws)
        _wait(self.gpu)
        self._replace_tables(lambda key, table: _join(means[key], table))

    def _count_folds(self) -> None:
        """Add the decisions and ties of every fold, and count it as complete."""
        for split, decisions, counted in self.folds_added:
            self.decisions += decisions
            for block, on_gpu, ties in counted:
                self.decisions[block] += on_gpu.cpu().numpy()
                self.tied[block] += ties.cpu().numpy()
            super().close_fold(split)

    def _replace_tables(self, change: Callable[[Any, FloatArray], FloatArray]) -> None:
        """Replace every table by what a function makes of its key and itself."""
        values = {key: change(key, table) for key, table in self.values.items()}
        per_class = {key: change(key, table) for key, table in self.per_class.items()}
        self.values = values
        self.per_class = per_class


def _join(means: Tensor, rows: FloatArray) -> FloatArray:
    """Return the means of the shots, with the row `all` where there is one."""
    table: FloatArray = means.numpy()
    if len(rows):
        table[-len(rows) :] = rows
    return table


def _start_copy(table: Tensor) -> Tensor:
    """Begin to copy a tensor from the GPU to memory that it can write without a detour."""
    pinned = table.device.type == "cuda"
    out = torch.empty(table.shape, dtype=table.dtype, pin_memory=pinned)
    out.copy_(table, non_blocking=True)
    return out


def _wait(gpu: Gpu) -> None:
    """Wait until the GPU has done everything."""
    if gpu.torch_device.type == "cuda":
        torch.cuda.synchronize(gpu.torch_device)


def _mean_of_groups(table: Tensor, groups: Sequence[IntArray]) -> Tensor:
    """Average (shots, classes, samples) inside each group, then over groups."""
    total = torch.zeros_like(table[:, 0])
    for group in groups:
        classes = group.tolist()
        total += table[:, classes].mean(1) if len(classes) > 1 else table[:, classes[0]]
    return total / max(len(groups), 1)


def new_sums(
    engine: Engine,
    shots: int,
    samples: int,
    categories: Mapping[str, str] | None,
) -> GpuMetricSums:
    """Return empty sums on the engine's GPU."""
    return GpuMetricSums(
        shots,
        samples,
        engine.episodes.classes,
        categories,
        engine.on_gpu.gpu,
        has_pool_row=shots > len(engine.protocol.shots),
    )


class FoldScorer:
    """Turns a_n of the queries of one fold into metrics, on the engine's GPU."""

    def __init__(self, engine: Engine, split: Split) -> None:
        self.engine = engine
        self.split = split
        self.on_gpu: GpuRows = engine.on_gpu
        self.classes = len(engine.episodes.classes)
        self.truth = self.on_gpu.truth(split)
        self.harmonic = upload(harmonic_numbers(len(split.rows)), self.on_gpu.gpu)

    def picks(self) -> Tensor:
        """Return the draw that each bootstrap sample picks for each query."""
        protocol = self.engine.protocol
        base = self.on_gpu.base(protocol.seed, "bootstrap")
        keys = self.on_gpu.query_keys(self.split)
        return bootstrap_picks(base, keys, protocol.draws, protocol.bootstraps)

    def score(
        self, table: Tensor, draws: int, *, ranking: bool
    ) -> tuple[Tensor, Tensor]:
        """Turn a_n (shots, classes, lanes) into scores, in place; return decisions and hits."""
        softmax = self.engine.softmax
        return to_scores(
            table, self.truth.relevant, draws, softmax=softmax, ranking=ranking
        )

    def count(self, decided: Tensor, hits: Tensor, draws: int) -> Tensor:
        """Return the decisions (shots, true, predicted)."""
        return count_decisions(decided, hits, self.truth.label, draws, self.classes)

    def measure(
        self, table: Tensor, tied: Tensor, draws: int, picks: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return AP, AUROC (shots, classes, samples) and ties (shots, classes)."""
        return sample_metrics(table, picks, self.truth, tied, self.harmonic, draws)

    def may_tie(self, shots: int) -> Tensor:
        """Return that any score may tie, (shots, classes)."""
        device = self.truth.label.device
        return torch.ones((shots, self.classes), dtype=torch.int64, device=device)

    def class_hits(
        self,
        hits: Tensor,
        draws: int,
        picks: Tensor | None = None,
        weight: Tensor | None = None,
    ) -> Tensor:
        """Return how many queries of each class hit, (shots, classes, samples)."""
        return sample_hits(hits, picks, weight, self.truth, self.classes, draws)


def sweep_per_query(
    engine: Engine,
    split: Split,
    shots: IntArray,
    sums: GpuMetricSums,
    make_scorer: Callable[..., Scorer] = SplitScorer,
) -> None:
    """Score the queries of one fold against their own draws, and add the bootstrap's values."""
    fold = FoldScorer(engine, split)
    draws = engine.protocol.draws
    picks = fold.picks()
    bytes_per_shot = 8 * fold.classes * len(split.rows) * draws
    for block in blocks(len(shots), fold.on_gpu.gpu.score_bytes // bytes_per_shot):
        table = make_scorer(engine, split, shots[block]).per_query(draws)
        decided, hits = fold.score(table, draws, ranking=False)
        tied, ties = count_ties(table, fold.truth.relevant, draws)
        ap, auroc, _ = fold.measure(table, tied, draws, picks)
        sums.add_fold(block, split, ap, auroc, fold.class_hits(hits, draws, picks))
        sums.count(block, fold.count(decided, hits, draws), ties)
        engine.step((block.stop - block.start) / engine.episodes.folds)


def sweep_shared(
    engine: Engine,
    split: Split,
    shots: IntArray,
    sums: GpuMetricSums,
    make_scorer: Callable[..., Scorer] = SplitScorer,
) -> None:
    """Score the queries of one fold against the same draws, and add the values of the draws."""
    fold = FoldScorer(engine, split)
    scorer = make_scorer(engine, split, shots)
    rows = slice(0, len(shots))
    may_tie = fold.may_tie(len(shots))
    total = engine.protocol.shared_draws
    columns_of_blocks = []
    for span in blocks(total, draws_at_a_time(engine, split, len(shots))):
        draws = span.stop - span.start
        table = scorer.shared(span)
        decided, hits = fold.score(table, draws, ranking=True)
        ap, auroc, ties = fold.measure(table, may_tie, draws)
        columns_of_blocks.append((ap, auroc, fold.class_hits(hits, draws)))
        sums.count(rows, fold.count(decided, hits, draws), ties)
        engine.step(len(shots) * draws / total / engine.episodes.folds)
    columns = [torch.cat(column, 2) for column in zip(*columns_of_blocks, strict=True)]
    sums.add_fold(rows, split, *columns)


def sweep_total(
    engine: Engine,
    split: Split,
    shots: IntArray,
    reweighting: Reweighting,
    sums: WeightedMetricSums,
    make_scorer: Callable[..., Scorer] = SplitScorer,
) -> None:
    """Score the queries of one fold with the supports and weights of every sample."""
    fold = FoldScorer(engine, split)
    scorer = make_scorer(engine, split, shots, reweighting)
    samples = len(reweighting.units)
    columns_of_blocks = []
    for span in blocks(samples, draws_at_a_time(engine, split, len(shots))):
        draws = span.stop - span.start
        table = scorer.shared(span)
        _, hits = fold.score(table, draws, ranking=True)
        units = reweighting.units[span, split.rows].T
        weight = upload(units, fold.on_gpu.gpu, torch.float64)
        ap, auroc = weighted_metrics(table, weight, fold.truth)
        columns = (ap, auroc, fold.class_hits(hits, draws, weight=weight))
        columns_of_blocks.append([column.cpu().numpy() for column in columns])
        engine.step(len(shots) * draws / samples / engine.episodes.folds)
    _add_samples(sums, split, columns_of_blocks)


def _add_samples(
    sums: WeightedMetricSums,
    split: Split,
    columns_of_blocks: Sequence[Sequence[FloatArray]],
) -> None:
    """Add AP, AUROC and units of hits of one fold, each (shots, classes, some samples)."""
    values = [
        np.concatenate(column, axis=2)
        for column in zip(*columns_of_blocks, strict=True)
    ]
    for shot, (ap, auroc, units) in enumerate(zip(*values, strict=True)):
        sums.add_weighted(shot, split, ap, auroc, units * UNIT)


def draws_at_a_time(engine: Engine, split: Split, shots: int) -> int:
    """Return how many shared draws of one fold are scored at a time."""
    line = 8 * shots * len(engine.episodes.classes) * len(split.rows)
    return int(engine.on_gpu.gpu.score_bytes // line)
