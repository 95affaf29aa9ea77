"""Where the spread of mAP comes from: a crossed design, and its variance components."""

import dataclasses
from itertools import product

import numpy as np
import polars as pl
import pytest

from callshot import Protocol, Vectors
from callshot.errors import OptionError
from callshot.fewshot.engine import open_engine
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.sweep import sweep_folds
from callshot.fewshot.variation import (
    cross_samples,
    sensitivity_frames,
    variance_components,
)
from callshot.records.frames import SENSITIVITY, SENSITIVITY_MEANS
from callshot.report.summary.sentences import describe_sensitivity
from corpora import episodes_of
from literal_total import literal_metrics, literal_support, literal_weights

FEW = Protocol(
    shots=(1, 3),
    draws=2,
    bootstraps=2,
    shared_draws=2,
    total_samples=2,
    permutations=0,
    repeat_folds=3,
    seeds=2,
)
KEY = {"corpus": "herd", "encoder": "mfcc", "classifier": "centroid"}


def make_table(encoder="mfcc", seed=0, shift=1.0):
    """Return two calls of each of two types in twelve recordings."""
    rng = np.random.default_rng(seed)
    label = ["roar", "roar", "rumble", "rumble"] * 12
    recording = [f"r{i // 4:02}" for i in range(48)]
    segment = [f"s{i:03}" for i in range(48)]
    centre = [[shift * (name == "roar")] for name in label]
    vectors = rng.normal(size=(48, 3)) + centre
    return Vectors.from_columns(encoder, vectors, segment, recording, label, [()] * 48)


def literal_components(y):
    """The components of three crossed factors, by the formulas of a textbook."""
    a, b, c = y.shape
    mean = y.mean()
    one = [y.mean(axis=(1, 2)), y.mean(axis=(0, 2)), y.mean(axis=(0, 1))]
    two = {(0, 1): y.mean(axis=2), (0, 2): y.mean(axis=1), (1, 2): y.mean(axis=0)}
    sizes = (a, b, c)
    squares = dict.fromkeys([(0,), (1,), (2,), *two, (0, 1, 2)], 0.0)
    for cell in product(range(a), range(b), range(c)):
        levels = [one[axis][cell[axis]] for axis in range(3)]
        for axis in range(3):
            squares[axis,] += (levels[axis] - mean) ** 2
        pairs = {}
        for i, j in two:
            pairs[i, j] = two[i, j][cell[i], cell[j]] - levels[i] - levels[j] + mean
            squares[i, j] += pairs[i, j] ** 2
        rest = y[cell] - mean - sum(pairs.values())
        rest -= sum(level - mean for level in levels)
        squares[0, 1, 2] += rest**2
    mean_square = {}
    for axes, square in squares.items():
        mean_square[axes] = square / np.prod([sizes[axis] - 1 for axis in axes])
    error = mean_square[0, 1, 2]
    found = {(0, 1, 2): error}
    for (i, j), size in {(0, 1): c, (0, 2): b, (1, 2): a}.items():
        found[i, j] = (mean_square[i, j] - error) / size
    for i in range(3):
        j, k = (axis for axis in range(3) if axis != i)
        of_pairs = (
            mean_square[tuple(sorted((i, j)))] + mean_square[tuple(sorted((i, k)))]
        )
        found[i,] = (mean_square[i,] - of_pairs + error) / (sizes[j] * sizes[k])
    return found


def test_components_are_those_of_the_textbook():
    y = np.random.default_rng(0).normal(size=(4, 3, 5)) + np.arange(4)[:, None, None]
    golden = literal_components(y)
    found = variance_components(y)
    assert found.keys() == golden.keys()
    for axes, variance in golden.items():
        assert found[axes] == pytest.approx(variance, abs=1e-12)
    assert set(variance_components(y[:1])) == {(1,), (2,), (1, 2)}


def literal_map(episodes, protocol, example, weight, k):
    """mAP with one labelled set and one sample of weights, by the formulas."""
    equal = np.ones(len(episodes.rows))
    weights = literal_weights(episodes, protocol, weight)
    sums = np.zeros(2)
    totals = np.zeros(2)
    for fold in range(episodes.folds):
        supports = [
            literal_support(episodes, protocol, example, equal, fold, n, k)
            for n in range(2)
        ]
        means = np.array([episodes.vectors[rows].mean(axis=0) for rows in supports])
        queries = np.flatnonzero(episodes.fold == fold)
        a = -((episodes.vectors[queries][:, None] - means) ** 2).sum(axis=2)
        w = weights[queries]
        for n in range(2):
            relevant = episodes.label[queries] == n
            ap, _ = literal_metrics(a[:, n] - a[:, 1 - n], relevant, w)
            share = w[relevant].mean()
            sums[n] += share * ap
            totals[n] += share
    return (sums / totals).mean()


def test_every_combination_scores_what_the_formulas_say():
    table = make_table()
    table = table.with_columns(fold=np.arange(48) // 4 % 3)
    episodes = episodes_of(table)
    samples = cross_samples(episodes, FEW)
    with open_engine(episodes, FEW, 1, 2**30) as engine:
        sums = sweep_folds(engine, np.array(FEW.shots), samples)
    for shot, k in enumerate(FEW.shots):
        for example, weight in product(range(2), range(2)):
            golden = literal_map(episodes, FEW, example, weight, k)
            value = sums.values["all", "map"][shot, 2 * example + weight]
            assert value == pytest.approx(golden, abs=1e-12)


def test_an_evaluation_reports_sources_means_and_orders():
    shares = []
    tables = [make_table(shift=4.0), make_table("noise", 1, 0.0)]
    result = evaluate_tables(
        tables, FEW, corpus="herd", progress=lambda share, _: shares.append(share)
    )
    assert sum(shares) == pytest.approx(1.0)
    sources, means = result.sensitivity, result.sensitivity_means
    assert sources.columns == list(SENSITIVITY)
    assert means.columns == list(SENSITIVITY_MEANS)
    assert len(sources) == 2 * 2 * 4
    assert len(means) == 2 * 2 * (3 + 2 + 2)
    by_source = means.group_by("encoder", "k", "source").agg(pl.mean("mean"))
    for _, rows in by_source.group_by("encoder", "k"):
        assert rows["mean"].std() == pytest.approx(0.0, abs=1e-12)
    spread, order = describe_sensitivity(sources, means, 3)
    assert "3 partitions into folds × 2 labelled sets × 2 samples" in spread
    assert order == (
        "The order mfcc, noise holds in 3 of 3 partitions into folds, 2 of 2 labelled sets, "
        "2 of 2 samples of recordings."
    )
    once = dataclasses.replace(FEW, seeds=1)
    alone = evaluate_tables(tables, once)
    assert alone.sensitivity.is_empty()
    assert not list(describe_sensitivity(alone.sensitivity, alone.sensitivity_means, 3))


def test_without_other_partitions_folds_are_no_source():
    protocol = dataclasses.replace(FEW, repeat_folds=1, shots=(2,))
    result = evaluate_tables([make_table()], protocol)
    sources = result.sensitivity
    assert sources["source"].to_list() == ["examples", "queries", "interactions"]
    (line,) = describe_sensitivity(sources, result.sensitivity_means, 2)
    assert "by source, over 2 labelled sets × 2 samples of recordings: " in line


def test_an_order_that_does_not_hold_everywhere_is_called_uncertain():
    values = np.array([0.2, 0.6]).reshape(2, 1, 1, 1) + np.zeros((1, 2, 2, 1))
    frames = [
        sensitivity_frames(table, np.array([1]), KEY | {"encoder": name})
        for name, table in (("a", values), ("b", 0.7 - values))
    ]
    joined = [pl.concat([frame[name] for frame in frames]) for name in frames[0]]
    _, order = describe_sensitivity(*joined, 1)
    assert order.startswith("The order a, b holds in 1 of 2 partitions into folds")
    assert order.endswith(": it is not certain.")


def test_seeds_out_of_range_are_refused():
    for seeds in (0, 51):
        with pytest.raises(OptionError, match="seeds"):
            Protocol(seeds=seeds)
