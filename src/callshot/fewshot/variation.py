"""How much mAP depends on the folds, the labelled set and the sample of recordings.

The evaluation is repeated over other partitions into folds. They share all recordings, so their
range is no interval of what other recordings would give.

Sensitivity: every partition is evaluated with each of S labelled sets, and each of these with S
random weights of the queries' recordings: a crossed design with three random factors, one mAP for
each combination. Variance components are the moment estimates of the analysis of variance. The mean
square of a set of factors T expects Σ over U ⊇ T of σ²_U times the levels of the factors outside U,
which is solved from the largest U down; estimates below 0 count as 0.
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
    """Build the partitions into folds that the protocol asks for, by number from 1 on.

    One that equals an earlier one, or in which other classes are eligible, is left out.
    """
    partitions = {}
    # Partitions that differ only in the numbers of folds are equal: number them alike.
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
    """Return the mAP of rows of CURVE, in one partition into folds, as rows of PARTITIONS."""
    points = curve.filter(metric="map", scoring="all")
    return points.with_columns(partition=pl.lit(number, pl.Int64)).select(*PARTITIONS)


def make_partition(table: Vectors, count: int, seed: int, number: int) -> Folds:
    """Build other folds: the search takes recordings in a random order, by seed and number.

    Without a proof of how good they are, which takes longer.
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

    Sample d · S + b has labelled set d, an order of all exemplars of weight 1, and weighting b.
    """
    repeats = protocol.repeat_samples
    # All are (repeats, rows): weights of queries, weights of exemplars, and labelled sets.
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
    """Estimate the variance component σ² of every set of factors (axes) of a crossed design.

    Axes with one level are left out. Estimates may be below 0.

    >>> variance_components(np.array([[1.0, 3.0], [1.0, 3.0]]))
    {(0, 1): 0.0, (0,): 0.0, (1,): 2.0}
    """
    axes = [axis for axis, levels in enumerate(table.shape) if levels > 1]
    variances: dict[Factors, float] = {}
    for size in range(len(axes), 0, -1):  # from all factors down to single ones
        for factors in combinations(axes, size):
            # The effect of these factors, by inclusion and exclusion of means over the others.
            effect = np.zeros(table.shape)
            for count in range(size + 1):
                sign = (-1) ** (size - count)
                for kept in combinations(factors, count):
                    others = tuple(a for a in range(table.ndim) if a not in kept)
                    mean = table.mean(axis=others, keepdims=True)
                    effect += sign * mean
            freedom = prod(table.shape[axis] - 1 for axis in factors)
            sum_of_squares = np.square(effect).sum()
            mean_square = float(sum_of_squares / freedom)
            # Larger sets of factors were solved before, and add to this mean square.
            own_part = mean_square
            for other, variance in variances.items():
                if set(factors) < set(other):  # a proper subset
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

    `values` is mAP (partitions, labelled sets, weightings, shots). The first frame has the standard
    deviation that each factor causes, the second mAP at each level of each factor.
    """
    sources = []
    means = []
    for k, table in zip(shots.tolist(), np.moveaxis(values, -1, 0), strict=True):
        variances = dict.fromkeys((*FACTORS, INTERACTIONS), 0.0)
        for axes, variance in variance_components(table).items():
            source = INTERACTIONS
            if len(axes) == 1:
                source = FACTORS[axes[0]]
            variances[source] += max(variance, 0.0)
        if table.shape[0] == 1:  # one partition: nothing is known of the folds
            del variances["folds"]
        by_source = np.array(list(variances.values()))
        total = max(float(by_source.sum()), TINY)
        columns = {
            "source": list(variances),
            "sd": np.sqrt(by_source),
            "share": by_source / total,
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
