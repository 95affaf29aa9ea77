"""The three spreads on a GPU: what `per_query_resampling` and its neighbours do with threads.

A fold is scored at once where its scores fit, else in blocks of shots or draws. Metrics of the
spreads with many samples are summed over folds on the GPU, and copied once.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np
import torch

from callshot.fewshot.accumulate import MetricSums, WeightedMetricSums
from callshot.fewshot.device import Gpu
from callshot.fewshot.engine import Engine, blocks
from callshot.fewshot.episodes import Split
from callshot.fewshot.gpu_rows import GpuRows, upload
from callshot.fewshot.gpu_supports import SplitScorer
from callshot.fewshot.kernels.gpu.bootstrap import sample_hits, sample_metrics
from callshot.fewshot.kernels.gpu.draws import bootstrap_picks
from callshot.fewshot.kernels.gpu.scores import count_decisions, to_scores
from callshot.fewshot.kernels.gpu.ties import count_ties
from callshot.fewshot.kernels.gpu.weighted import weighted_metrics
from callshot.fewshot.metrics import harmonic_numbers
from callshot.fewshot.total_resampling import UNIT, Reweighting
from callshot.records import FloatArray, IntArray

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
