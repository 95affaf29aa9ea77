"""The spread `total`: what one labelled set would score on other recordings of the same kind.

In each sample every recording has a random weight (the Bayesian bootstrap). It counts on both
sides: exemplars of heavy recordings come early in the order from which a support takes the first k,
and weigh more in the class mean; queries weigh in AP, AUROC and accuracy. No exemplar is drawn
twice, whatever the sampler. The weights depend on the seed and the recording alone, so all
encoders, classifiers and k are compared on the same samples.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from callshot.fewshot.accumulate import WeightedMetricSums
from callshot.fewshot.engine import Engine, blocks
from callshot.fewshot.episodes import Episodes, Split
from callshot.fewshot.kernels import streams
from callshot.fewshot.kernels.draws import Order
from callshot.fewshot.kernels.ranks import FoldMetrics, measure_weighted_fold
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.shared_resampling import (
    Evidence,
    class_means,
    draws_per_task,
    empty_metrics,
    fill_evidence,
    fold_products,
    mean_evidence,
    rank_evidence,
)
from callshot.records import FloatArray, IntArray

# k up to which products inside a support are summed, in k² / 2 steps
LONGEST_DRAW = 200
# Weights are multiples of it, so that their sums are exact in any order.
UNIT = 2.0**-20

Ranks = NDArray[np.uint32]


@dataclass(frozen=True)
class Reweighting:
    """The weights and the orders of exemplars of every sample, (samples, rows).

    `units` are the weights in multiples of UNIT; `rank` holds the exemplars of each class in order,
    by number inside the class. `exemplar_units` are the weights of exemplars where these differ.
    """

    units: IntArray
    rank: Ranks
    exemplar_units: IntArray | None = None

    @property
    def support_units(self) -> IntArray:
        """The weights of rows as exemplars, in multiples of UNIT."""
        return self.units if self.exemplar_units is None else self.exemplar_units

    def weights(self, rows: IntArray) -> FloatArray:
        """Return the weights of some rows, (rows, samples)."""
        return np.asarray(self.units[:, rows].T * UNIT, np.float64)

    def order(self, span: slice) -> Order:
        """Return the orders and weights of some samples, for the kernels."""
        return Order(self.rank[span], self.support_units[span] * UNIT)


def reweight(episodes: Episodes, protocol: Protocol) -> Reweighting:
    """Draw the weights of recordings and the orders of exemplars."""
    units = draw_units(episodes, protocol, protocol.total_samples)
    return Reweighting(units, draw_orders(episodes, protocol, units))


def draw_orders(episodes: Episodes, protocol: Protocol, units: IntArray) -> Ranks:
    """Put the exemplars of each class in a random order in every sample: the heavy ones early."""
    size = units.shape
    arrival = np.empty(size)
    base = streams.purpose_key(protocol.seed, "total")
    streams.fill_exponentials(base, episodes.segment_key, arrival)
    arrival /= units
    rank = np.empty(size, np.uint32)
    for begin, end in zip(
        episodes.class_start[:-1], episodes.class_start[1:], strict=True
    ):
        rank[:, begin:end] = np.argsort(arrival[:, begin:end], axis=1, kind="stable")
    return rank


def draw_units(episodes: Episodes, protocol: Protocol, samples: int) -> IntArray:
    """Draw the weight of each row's recording, in multiples of UNIT, (samples, rows)."""
    weight = np.empty((samples, len(episodes.rows)))
    recording_key = np.array([streams.key(name) for name in episodes.recording])
    base = streams.purpose_key(protocol.seed, "recording")
    streams.fill_exponentials(base, recording_key, weight)
    return np.maximum(np.rint(weight / UNIT), 1.0).astype(np.int64)


def sweep_total(
    engine: Engine,
    split: Split,
    shots: IntArray,
    reweighting: Reweighting,
    sums: WeightedMetricSums,
    first_row: int = 0,
) -> None:
    """Score the queries of one fold with the supports and weights of every sample.

    The values are added to the sums from `first_row` on, one row for each shot.
    """
    products = fold_products(engine, split)

    def evidence(span: slice) -> FloatArray:
        order = reweighting.order(span)
        return weighted_evidence(engine, split, shots, products, order)

    sweep_samples(engine, split, len(shots), reweighting, sums, evidence, first_row)


def sweep_samples(
    engine: Engine,
    split: Split,
    shots: int,
    reweighting: Reweighting,
    sums: WeightedMetricSums,
    evidence: Evidence,
    first_row: int = 0,
) -> None:
    """Add the metrics of every sample to the sums from `first_row` on, one row for each shot."""
    samples = len(reweighting.units)
    spans = blocks(samples, draws_per_task(engine, split, shots))

    def measure(span: slice) -> FoldMetrics:
        weight = np.ascontiguousarray(reweighting.units[span, split.rows])
        return measure_weighted(engine, split, evidence(span), weight)

    tasks = [partial(measure, span) for span in spans]
    steps = shots if first_row == 0 else 0  # the row `all` is not counted as progress
    metrics = engine.run(tasks, steps / engine.episodes.folds)
    ap, auroc, hits = (
        np.concatenate(column) for column in list(zip(*metrics, strict=True))[:3]
    )
    for shot in range(shots):
        sums.add_weighted(
            first_row + shot,
            split,
            ap[:, shot].T,
            auroc[:, shot].T,
            hits[:, shot].T * UNIT,
        )


def weighted_evidence(
    engine: Engine,
    split: Split,
    shots: IntArray,
    products: FloatArray | None,
    order: Order,
) -> FloatArray:
    """Return a[sample, shot, n, q] of some samples; `products` as `fold_products` returns them."""
    episodes = engine.episodes
    size = (len(order.rank), len(shots), len(episodes.classes), len(split.rows))
    out = np.empty(size)
    is_mean = engine.rule in ("mean", "cosine")
    if is_mean and (products is None or shots[-1] > LONGEST_DRAW):
        for b in range(len(out)):
            means = weighted_means(engine, split, shots, order.rank[b], order.weight[b])
            out[b] = mean_evidence(engine, split, means)
    else:
        fill_evidence(engine, split, shots, products, 0, order, out)
    return out


def weighted_means(
    engine: Engine,
    split: Split,
    shots: IntArray,
    rank: Ranks,
    weight: FloatArray,
) -> FloatArray:
    """Return the weighted class means of one sample, (shots, classes, dimensions)."""
    episodes = engine.episodes
    means = []
    for n in range(len(episodes.classes)):
        rows = ordered_pool(rank, episodes, split.number, n)
        whole = len(rows) <= shots[-1]
        rows = rows[: shots[-1]]
        means.append(class_means(episodes.vectors, rows, weight[rows], shots, whole))
    return np.stack(means, axis=1)


def total_support(
    rank: Ranks,
    episodes: Episodes,
    fold: int,
    n: int,
    k: int,
    sample: int,
    protocol: Protocol,
) -> IntArray:
    """Return the rows of class n's support outside a fold in one sample, in the order of ranks.

    `rank` is that of a `Reweighting`, which was drawn by the protocol.
    """
    return ordered_pool(rank[sample], episodes, fold, n)[:k]


def ordered_pool(rank: Ranks, episodes: Episodes, fold: int, n: int) -> IntArray:
    """Return the rows of class n outside a fold, in the order of one sample's ranks."""
    begin = episodes.class_start[n]
    end = episodes.class_start[n + 1]
    rows = begin + rank[begin:end].astype(np.int64)
    return np.asarray(rows[episodes.is_support(fold)[rows]])


def measure_weighted(
    engine: Engine, split: Split, evidence: FloatArray, weight: IntArray
) -> FoldMetrics:
    """Turn a[sample, shot, n, q] into scores, in place, and return their weighted metrics."""
    decided = rank_evidence(engine, evidence)
    metrics = empty_metrics(*evidence.shape[:3])
    measure_weighted_fold(evidence, decided, split.truth, weight, metrics)
    return metrics
