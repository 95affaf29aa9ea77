"""How much mAP depends on the folds, the labelled set and the sample of recordings.

Folds are one of many partitions that are about as good. The evaluation is repeated over others, and
the mean of mAP in each is reported. Partitions share all recordings, so their range is smaller than
what other recordings would give: it is no interval.

Sensitivity: every partition is evaluated with each of S labelled sets (an order of the exemplars of
every class, from which a support takes the first k outside a fold), and each of these with S random
weights of the queries' recordings (the Bayesian bootstrap of `total`, on the queries alone). One
value of mAP for each combination: a crossed design with three random factors.

Variance components are the moment estimates of the analysis of variance. The mean square of a set
of factors T expects Σ over U ⊇ T of σ²_U times the levels of the factors outside U, which is solved
from the largest U down. An estimate below 0 counts as 0. Nothing is repeated inside a combination,
so the last interaction includes what no factor explains.
"""

from collections.abc import Mapping
from itertools import combinations
from math import prod

import numpy as np
import polars as pl

from callshot.fewshot.episodes import Episodes
from callshot.fewshot.fold_optimizer import build_folds, number_by_first
from callshot.fewshot.folds import count_classes
from callshot.fewshot.kernels.streams import key, make_stream
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import UNIT, Spread, draw_orders, draw_units
from callshot.records import FloatArray, Folds, IntArray
from callshot.records.frames import (
    PARTITIONS,
    SENSITIVITY,
    SENSITIVITY_MEANS,
    Frame,
    concat_frames,
    make_frame,
)
from callshot.vectors import Vectors


def other_partitions(
    table: Vectors, folds: Folds, protocol: Protocol
) -> dict[int, Folds]:
    """Return the other partitions that the protocol asks for, by number from 1 on.

    They have the same number of folds, whether those were given or built. One that is not new, or
    in which other classes are eligible, is left out.
    """
    partitions = {}
    seen = {number_by_first(folds.fold).tobytes()}
    classes = _eligible(table, folds)
    for number in range(1, protocol.repeat_folds):
        other = make_partition(table, folds.count, protocol.seed, number)
        name = number_by_first(other.fold).tobytes()
        if name not in seen and _eligible(table, other) == classes:
            partitions[number] = other
        seen.add(name)
    return partitions


def partition_frame(curve: Frame, number: int) -> Frame:
    """Return the rows of the PARTITIONS schema from the curves of one partition."""
    points = curve.filter(metric="map", scoring="all")
    return points.with_columns(partition=pl.lit(number, pl.Int64)).select(*PARTITIONS)


def make_partition(table: Vectors, count: int, seed: int, number: int) -> Folds:
    """Build folds whose search takes the recordings in another order, by seed and number."""
    recordings = sorted(set(table.recording))
    rank = [make_stream(seed, "folds", key(name), number) for name in recordings]
    order = np.argsort(np.array(rank, np.uint64))
    return build_folds(table.label, table.recording, count, nodes=0, order=order)


def _eligible(table: Vectors, folds: Folds) -> set[str]:
    return {c.label for c in count_classes(table.label, folds) if c.eligible}


FACTORS = ("folds", "examples", "queries")
INTERACTIONS = "interactions"
TINY = 1e-300

Factors = tuple[int, ...]  # axes of a table of values


def cross_samples(episodes: Episodes, protocol: Protocol) -> Spread:
    """Return S · S samples: labelled set d with the weights b of queries is sample d · S + b.

    Exemplars weigh the same.
    """
    seeds = protocol.seeds
    units = draw_units(episodes, protocol, seeds)
    equal = np.full_like(units, round(1 / UNIT))
    rank = draw_orders(episodes, protocol, equal)
    return Spread(
        "total",
        episodes,
        protocol,
        samples=seeds**2,
        units=np.tile(units, (seeds, 1)),
        rank=np.repeat(rank, seeds, axis=0),
        support_units=np.repeat(equal, seeds, axis=0),
    )


def variance_components(table: FloatArray) -> dict[Factors, float]:
    """Return σ² of every set of axes of a table with one value for each combination of levels.

    Axes with one level have none. Estimates may be below 0.

    >>> variance_components(np.array([[1.0, 3.0], [1.0, 3.0]]))
    {(0, 1): 0.0, (0,): 0.0, (1,): 2.0}
    """
    axes = [axis for axis, levels in enumerate(table.shape) if levels > 1]
    variances: dict[Factors, float] = {}
    for size in range(len(axes), 0, -1):
        for factors in combinations(axes, size):
            effect = np.zeros(table.shape)
            for count in range(size + 1):
                for kept in combinations(factors, count):
                    others = tuple(a for a in range(table.ndim) if a not in kept)
                    sign = (-1) ** (size - count)
                    effect += sign * table.mean(axis=others, keepdims=True)
            freedom = prod(table.shape[axis] - 1 for axis in factors)
            expected = float(np.square(effect).sum() / freedom)
            for other, variance in variances.items():
                if set(factors) < set(other):
                    expected -= variance * _levels_outside(table, other)
            variances[factors] = expected / _levels_outside(table, factors)
    return variances


def _levels_outside(table: FloatArray, axes: Factors) -> int:
    """Return the number of combinations of the levels of the other axes."""
    outside = [axis for axis in range(table.ndim) if axis not in axes]
    return prod(table.shape[axis] for axis in outside)


def sensitivity_frames(
    values: FloatArray, shots: IntArray, key: Mapping[str, object]
) -> dict[str, Frame]:
    """Return the frames `sensitivity` and `sensitivity_means` of one encoder.

    `values` is mAP (partitions, labelled sets, weights, shots). The first has the standard
    deviation of every source and its share of the variance, the second mAP at each level of each
    factor, averaged over the others.
    """
    sources = []
    means = []
    for k, table in zip(shots.tolist(), np.moveaxis(values, -1, 0), strict=True):
        variances = dict.fromkeys((*FACTORS, INTERACTIONS), 0.0)
        for axes, variance in variance_components(table).items():
            source = FACTORS[axes[0]] if len(axes) == 1 else INTERACTIONS
            variances[source] += max(variance, 0.0)
        if table.shape[0] == 1:
            del variances["folds"]
        by_source = np.array(list(variances.values()))
        columns = {
            "source": list(variances),
            "sd": np.sqrt(by_source),
            "share": by_source / max(float(by_source.sum()), TINY),
        }
        sources.append(make_frame(SENSITIVITY, columns, {**key, "k": k}))
        for axis, source in enumerate(FACTORS):
            other_axes = tuple(other for other in range(len(FACTORS)) if other != axis)
            mean = table.mean(axis=other_axes)
            columns = {"number": np.arange(len(mean)), "mean": mean}
            constants = {**key, "k": k, "source": source}
            means.append(make_frame(SENSITIVITY_MEANS, columns, constants))
    return {
        "sensitivity": concat_frames(sources, SENSITIVITY),
        "sensitivity_means": concat_frames(means, SENSITIVITY_MEANS),
    }
