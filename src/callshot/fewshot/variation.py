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
from callshot.fewshot.spreads import WEIGHT_ONE, Spread, draw_orders, draw_units
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
    """Build the other partitions into folds that the protocol asks for, by number from 1 on.

    Each has as many folds as `folds`, whether these were given or built. A partition is left out if
    it equals an earlier one, or if other classes are eligible in it.
    """
    partitions = {}
    seen = {number_by_first(folds.fold).tobytes()}
    classes = _eligible(table, folds)
    for number in range(1, protocol.repeat_folds):
        other = make_partition(table, folds.count, protocol.seed, number)
        canonical = number_by_first(other.fold).tobytes()
        if canonical not in seen and _eligible(table, other) == classes:
            partitions[number] = other
        seen.add(canonical)
    return partitions


def partition_frame(curve: Frame, number: int) -> Frame:
    """Return the mAP curves of one partition into folds as rows of the PARTITIONS schema.

    `curve` has rows of the CURVE schema, `number` is that of the partition.
    """
    points = curve.filter(metric="map", scoring="all")
    return points.with_columns(partition=pl.lit(number, pl.Int64)).select(*PARTITIONS)


def make_partition(table: Vectors, count: int, seed: int, number: int) -> Folds:
    """Build folds by a search that visits the recordings in a random order.

    The order depends on the seed and the number of the partition. No integer program proves the
    optimum (`nodes=0`).
    """
    recordings = sorted(set(table.recording))
    words = [make_stream(seed, "folds", key(name), number) for name in recordings]
    order = np.argsort(np.array(words, np.uint64))
    return build_folds(table.label, table.recording, count, nodes=0, order=order)


def _eligible(table: Vectors, folds: Folds) -> set[str]:
    """Return the labels that are eligible with some folds."""
    return {c.label for c in count_classes(table.label, folds) if c.eligible}


FACTORS = ("folds", "examples", "queries")
INTERACTIONS = "interactions"
TINY = 1e-300

Factors = tuple[int, ...]  # axes of a table of values


def cross_samples(episodes: Episodes, protocol: Protocol) -> Spread:
    """Return a spread that combines each of S labelled sets with each of S weightings of queries.

    S is `protocol.repeat_samples`. A labelled set is an order of all exemplars of each class; a
    weighting has random weights of recordings. Sample d · S + b has labelled set d and weighting b.
    All exemplars have weight 1.
    """
    repeats = protocol.repeat_samples
    units = draw_units(episodes, protocol, repeats)
    equal = np.full_like(units, WEIGHT_ONE)
    rank = draw_orders(episodes, protocol, equal)
    return Spread(
        "total",
        episodes,
        protocol,
        samples=repeats**2,
        units=np.tile(units, (repeats, 1)),
        rank=np.repeat(rank, repeats, axis=0),
        support_units=np.repeat(equal, repeats, axis=0),
    )


def variance_components(table: FloatArray) -> dict[Factors, float]:
    """Estimate the variance component σ² of every set of factors of a crossed design.

    Each axis of `table` is a factor, and its indices are the levels: one value for each combination
    of levels. A key of the result has the axes of the factors: one axis is a main effect, several
    are an interaction. Axes with one level are left out. Estimates may be below 0.

    >>> variance_components(np.array([[1.0, 3.0], [1.0, 3.0]]))
    {(0, 1): 0.0, (0,): 0.0, (1,): 2.0}
    """
    axes = [axis for axis, levels in enumerate(table.shape) if levels > 1]
    variances: dict[Factors, float] = {}
    for size in range(len(axes), 0, -1):
        for factors in combinations(axes, size):
            # The effect of these factors, by inclusion and exclusion of means over the others.
            effect = np.zeros(table.shape)
            for count in range(size + 1):
                for kept in combinations(factors, count):
                    others = tuple(a for a in range(table.ndim) if a not in kept)
                    sign = (-1) ** (size - count)
                    effect += sign * table.mean(axis=others, keepdims=True)
            freedom = prod(table.shape[axis] - 1 for axis in factors)
            mean_square = float(np.square(effect).sum() / freedom)
            # Larger sets of factors were solved before, and add to this mean square.
            own_part = mean_square
            for other, variance in variances.items():
                if set(factors) < set(other):
                    own_part -= variance * _levels_outside(table, other)
            variances[factors] = own_part / _levels_outside(table, factors)
    return variances


def _levels_outside(table: FloatArray, axes: Factors) -> int:
    """Return how many combinations of levels the axes other than `axes` have."""
    outside = [axis for axis in range(table.ndim) if axis not in axes]
    return prod(table.shape[axis] for axis in outside)


def sensitivity_frames(
    values: FloatArray, shots: IntArray, key: Mapping[str, object]
) -> dict[str, Frame]:
    """Return the frames `sensitivity` and `sensitivity_means` of one encoder.

    `values` is mAP (partitions, labelled sets, weightings, shots); `key` are the columns that all
    rows share. The factors are the first three axes. `sensitivity` has the standard deviation that
    each factor, and all interactions together, cause, and its share of the variance.
    `sensitivity_means` has mAP at each level of each factor, averaged over the other factors.
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
