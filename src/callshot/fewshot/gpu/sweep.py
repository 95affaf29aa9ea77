"""The three spreads on a GPU: what `fewshot.sweep` does with threads.

A `SupportDrawer` draws for every classifier; a `SplitScorer` scores by class means. A fold is
scored at once where its scores fit, else in blocks of shots or draws.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from callshot.fewshot.episodes import Engine, Split, blocks
from callshot.fewshot.gpu.device import Gpu
from callshot.fewshot.gpu.draws import SupportDrawer, Supports, upload
from callshot.fewshot.gpu.metrics import (
    Truth,
    count_decisions,
    count_ties,
    measure,
    upload_truth,
)
from callshot.fewshot.gpu.supports import fill_logits, to_scores
from callshot.fewshot.kernels.ranks import ClassTables
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.spreads import (
    WEIGHT_LEFT_OUT,
    WEIGHT_ONE,
    Spread,
    bootstrap_picks,
)
from callshot.records import IntArray

Tensor = Any

SUPPORT_BYTES = 2**29  # of supports that are drawn at a time
PRODUCT_BYTES = 2**29


class SplitScorer(SupportDrawer):
    """Fills in the logits for queries of a split on a GPU, (shots, classes, queries · draws)."""

    def per_query(self, draws: int) -> Tensor:
        """Return the logits (shots, classes, queries · draws) by each query's own draws."""
        classes = len(self.steps)
        exemplars = max(int(self.steps.max()), 1)
        # Of one draw: an exemplar's number (int32) and two numbers of scratch; sums (float64).
        draw_bytes = classes * (12 * exemplars + 8 * len(self.shots))
        product_bytes = 8 * len(self.engine.episodes.rows)
        query_bytes = draws * draw_bytes + product_bytes
        out = self._new_table(draws)
        pools = self.whole_pools(slice(0))  # of no samples: exemplars have no weights
        for queries in blocks(len(self.split.rows), SUPPORT_BYTES // query_bytes):
            supports = self.own_supports(queries, draws)
            self._fill(supports, pools, queries, draws, out)
        return out

    def shared(self, span: slice) -> Tensor:
        """Return the logits (shots, classes, queries · draws) by draws that all queries share.

        `span` are the numbers of the draws.
        """
        draws = span.stop - span.start
        supports = self.shared_supports(span)
        pools = self.whole_pools(span)
        query_bytes = 8 * len(self.engine.episodes.rows)
        out = self._new_table(draws)
        for queries in blocks(len(self.split.rows), PRODUCT_BYTES // query_bytes):
            self._fill(supports, pools, queries, draws, out)
        return out

    def _new_table(self, draws: int) -> Tensor:
        """Return memory for the logits, (shots, classes, queries · draws)."""
        lanes = len(self.split.rows) * draws
        size = (len(self.shots), len(self.steps), lanes)
        return self.on_gpu.distinct[0].new_empty(size)

    def _fill(
        self,
        supports: Supports,
        pools: Supports,
        queries: slice,
        draws: int,
        out: Tensor,
    ) -> None:
        """Fill in the logits of a slice of the queries in `out`, (shots, classes, queries · draws).

        `supports` are random draws, for the shots that leave a choice; `pools` are whole pools, for
        the other shots.
        """
        products = self.on_gpu.products(self.split, queries)
        first = queries.start * draws  # lane: a lane is a query and a draw
        is_shared = not self.spread.has_own_draws
        fill_logits(
            supports,
            self.on_gpu,
            products,
            draws,
            out,
            first_lane=first,
            reciprocal=is_shared,
        )
        # Classes that give their whole pool at some shots. A pool has one lane, the same for all
        # draws, or one for each draw if exemplars have weights.
        with_pool = np.flatnonzero(self.shots_drawn < len(self.shots)).tolist()
        if not with_pool:
            return
        pool_lanes = pools.chosen.shape[2]
        whole = out.new_empty((1, len(self.steps), len(products) * pool_lanes))
        fill_logits(
            pools, self.on_gpu, products, pool_lanes, whole, reciprocal=is_shared
        )
        end = first + len(products) * draws
        for n in with_pool:
            # (queries, draws)
            values = whole[0, n].reshape(-1, pool_lanes).expand(-1, draws)
            out[self.shots_drawn[n] :, n, first:end] = values.flatten()


class GpuSums(MetricSums):
    """Sums over folds on a GPU, so that no fold waits for the one before."""

    def __init__(self, gpu: Gpu, *sizes: Any) -> None:
        self.gpu = gpu
        super().__init__(*sizes)

    def zeros(self, *size: int) -> Any:
        """Return a table of sums on the GPU."""
        return torch.zeros(size, dtype=torch.float64, device=self.gpu.torch_device)

    def to_device(self, table: Any) -> Tensor:
        """Return a table, copied to the GPU if it is an array."""
        return table if torch.is_tensor(table) else upload(table, self.gpu)

    def finish(self, draws: int) -> None:
        """Turn sums into means, and copy them from the GPU."""
        self.tied = to_array(self.tied)
        self.decisions = to_array(self.decisions)
        self._folds = [
            (split, weights, to_array(decided))
            for split, weights, decided in self._folds
        ]
        super().finish(draws)
        self.values = {key: to_array(table) for key, table in self.values.items()}
        self.per_class = {key: to_array(one) for key, one in self.per_class.items()}


def sweep_fold(
    engine: Engine,
    split: Split,
    shots: IntArray,
    spread: Spread,
    sums: MetricSums,
    scorer: Any = None,
) -> None:
    """Add the metrics of one fold at every k to the sums, by the engine's rule or another scorer.

    `scorer.on_gpu` makes an object like a `SplitScorer`.
    """
    make_scorer = scorer.on_gpu if scorer else SplitScorer
    sweep_draws = _sweep_own_draws if spread.has_own_draws else _sweep_shared_draws
    sweep_draws(engine, split, shots, spread, sums, make_scorer)


def _sweep_own_draws(
    engine: Engine,
    split: Split,
    shots: IntArray,
    spread: Spread,
    sums: MetricSums,
    make_scorer: Any,
) -> None:
    """Add the metrics of a fold in which every query has draws of its own to the sums."""
    gpu = engine.on_gpu.gpu
    truth = upload_truth(split, gpu)
    draws = engine.protocol.draws
    # Drawn on the CPU, while the GPU is busy with the fold before.
    picked = bootstrap_picks(engine.episodes, split, engine.protocol)
    picks = upload(picked.astype(np.int32), gpu)
    bytes_per_k = 8 * len(engine.episodes.classes) * len(split.rows) * draws
    for block in blocks(len(shots), gpu.score_bytes // bytes_per_k):
        scorer = make_scorer(engine, split, shots[block], spread)
        scores = scorer.per_query(draws)  # logits, which `to_scores` replaces in place
        decisions = to_scores(scores, truth.relevant, draws, ranking=False)
        tied, tied_positives = count_ties(scores, truth.relevant, draws)
        tables, _ = measure(scores, decisions, truth, draws, picks=picks, tied=tied)
        sums.add_values(block, tables)
        counts = count_decisions(decisions, truth, draws)
        sums.add_decisions(block, counts, tied_positives)
        engine.step((block.stop - block.start) / engine.episodes.folds)


def _sweep_shared_draws(
    engine: Engine,
    split: Split,
    shots: IntArray,
    spread: Spread,
    sums: MetricSums,
    make_scorer: Any,
) -> None:
    """Add the metrics of a fold whose queries share draws to the sums, also to their `left_out`."""
    gpu = engine.on_gpu.gpu
    truth = upload_truth(split, gpu)
    scorer = make_scorer(engine, split, shots, spread)
    rows = slice(0, len(shots))
    parts = []
    parts_left_out = []
    bytes_per_draw = 8 * len(engine.episodes.classes) * len(split.rows) * len(shots)
    for span in blocks(spread.samples, gpu.score_bytes // bytes_per_draw):
        draws = span.stop - span.start
        scores = scorer.shared(span)  # logits, which `to_scores` replaces in place
        decisions = to_scores(scores, truth.relevant, draws, ranking=True)
        weight = None
        if spread.units is not None:  # in `total`
            rows_of_fold = upload(split.rows, gpu)
            units = engine.on_gpu.keep(spread.units)[span, rows_of_fold]
            weight = units.T.to(torch.float64).contiguous()
        tables, tied_positives = measure(scores, decisions, truth, draws, weight=weight)
        parts.append(tables)
        if weight is None:  # the decisions and ties of weighted queries are no counts
            counts = count_decisions(decisions, truth, draws)
            sums.add_decisions(rows, counts, tied_positives)
        if sums.left_out is not None:
            # Only sums of `shared` have `left_out`: its queries have no weights, with which
            # `tied_positives` would be no counts of ties.
            weights = _leave_groups_out(spread, split, span, gpu)
            tables = _measure_left_out(
                scores, decisions, truth, draws, weights, tied_positives
            )
            parts_left_out.append(tables)
        engine.step(len(shots) * draws / spread.samples / engine.episodes.folds)
    sums.add_values(rows, _join_samples(parts))
    if sums.left_out is not None:
        sums.left_out.add_values(rows, _join_samples(parts_left_out))


def _measure_left_out(
    scores: Tensor,
    decisions: Tensor,
    truth: Truth,
    draws: int,
    weights: Iterator[Tensor],
    tied_positives: Tensor,
) -> ClassTables:
    """Return the tables (shots, classes, draws · repeats) of the same scores with other weights.

    `weights` yields weights of queries (queries, draws), once for each repeat; `tied_positives`
    (shots, classes) are counted without weights.
    """
    repeats = []
    for weight in weights:
        tables, _ = measure(
            scores, decisions, truth, draws, weight=weight, tied=tied_positives
        )
        repeats.append(tables)
    return _join_repeats(repeats)


def _leave_groups_out(
    spread: Spread, split: Split, span: slice, gpu: Gpu
) -> Iterator[Tensor]:
    """Yield weights of queries (queries, draws) for the draws in `span`, once for each repeat.

    They are nearly 0 for the queries of the group of recordings that the draw leaves out then.
    """
    assert spread.group is not None
    group = upload(spread.group[split.rows], gpu)[:, None]
    for i in range(spread.repeats):
        samples = np.arange(span.start, span.stop) * spread.repeats + i
        is_left_out = group == upload(spread.left_out(samples), gpu)
        shape = is_left_out.shape
        weight = torch.full(shape, WEIGHT_ONE, dtype=torch.float64, device=group.device)
        yield weight.masked_fill_(is_left_out, WEIGHT_LEFT_OUT)


def _join_repeats(repeats: list[ClassTables]) -> ClassTables:
    """Join tables (shots, classes, draws) of repeats; the repeats of a draw stand together."""
    columns = zip(*repeats, strict=True)
    return ClassTables(*(torch.stack(one, -1).flatten(2) for one in columns))


def _join_samples(parts: list[ClassTables]) -> ClassTables:
    """Join tables (shots, classes, samples) along the samples."""
    columns = zip(*parts, strict=True)
    return ClassTables(*(torch.cat(one, 2) for one in columns))


def to_array(tensor: Tensor) -> NDArray[Any]:
    """Copy a tensor from the GPU, several times faster into pinned memory."""
    on_host = torch.empty_like(tensor, device="cpu", pin_memory=tensor.is_cuda)
    return np.asarray(on_host.copy_(tensor))
