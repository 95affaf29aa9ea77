"""Repeated folds: other partitions of the recordings, and what each of them scores."""

import dataclasses
from itertools import product

import numpy as np
import polars as pl
import pytest

from callshot import Vectors
from callshot.fewshot.episodes import open_engine
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import check_no_leak, count_classes, make_folds
from callshot.fewshot.sweep import sweep_folds
from callshot.fewshot.variation import (
    cross_samples,
    make_partition,
    other_partitions,
    sensitivity_frames,
    variance_components,
)
from callshot.records.frames import PARTITIONS, SENSITIVITY, SENSITIVITY_MEANS
from callshot.report.summary.sentences import describe_repetition, describe_sensitivity
from corpora import SMALL, episodes_of
from literal_total import (
    class_means,
    literal_support,
    literal_weights,
    weighted_centroids,
)

FEW = dataclasses.replace(SMALL, shots=(1, 3), permutations=0, repeat_folds=4)


CROSSED = dataclasses.replace(FEW, total_samples=2, repeat_folds=3, repeat_samples=2)


def make_table(encoder="mfcc", seed=0, recordings=12, shift=1.0):
    """Return two calls of each of two types in every recording."""
    rng = np.random.default_rng(seed)
    label = ["roar", "roar", "rumble", "rumble"] * recordings
    recording = [f"r{i // 4:02}" for i in range(len(label))]
    segment = [f"s{i:03}" for i in range(len(label))]
    centre = [[shift * (name == "roar")] for name in label]
    vectors = rng.normal(size=(len(label), 3)) + centre
    return Vectors.from_columns(
        encoder, vectors, segment, recording, label, [()] * len(label)
    )


def test_every_partition_scores_what_its_folds_score_alone():
    tables = [make_table(), make_table("perch", 1)]
    result = evaluate_tables(tables, FEW, corpus="herd")
    partitions = result.partitions
    assert partitions.columns == list(PARTITIONS)
    others = other_partitions(tables[0], result.folds, FEW)
    assert sorted(set(partitions["partition"])) == [0, *others]
    once = dataclasses.replace(FEW, repeat_folds=1)
    for number, folds in [(0, result.folds), *others.items()]:
        alone = evaluate_tables(tables, once, folds=folds, corpus="herd")
        points = alone.curve.filter(metric="map", spread="shared")
        rows = partitions.filter(partition=number)
        key = ["corpus", "encoder", "classifier", "spread", "k", "mean"]
        assert rows.select(key).equals(points.select(key))
    assert not evaluate_tables(tables, once).partitions.height


def test_partitions_differ_and_split_no_recording_and_keep_the_classes():
    table = make_table()
    folds = make_folds(table.label, table.recording, 3)
    others = other_partitions(table, folds, FEW)
    assert list(others) == [1, 2, 3]
    kept = [
        {count.label for count in count_classes(table.label, folds) if count.eligible}
    ]
    pairs = []
    for other in [folds, *others.values()]:
        check_no_leak(table.recording, other.fold)
        assert other.count == 3
        counts = count_classes(table.label, other)
        assert {count.label for count in counts if count.eligible} == kept[0]
        together = other.fold[:, None] == other.fold
        pairs.append(together.tobytes())
    assert len(set(pairs)) == 4


def test_a_partition_depends_on_the_seed_and_its_number_alone():
    table = make_table()
    again = make_partition(table, 3, 0, 1).fold.tolist()
    assert make_partition(table, 3, 0, 1).fold.tolist() == again
    assert make_partition(table, 3, 0, 2).fold.tolist() != again
    assert make_partition(table, 3, 1, 1).fold.tolist() != again


def test_partitions_that_are_not_new_are_left_out_and_noted():
    table = make_table(recordings=2)
    folds = make_folds(table.label, table.recording, 2)
    result = evaluate_tables([table], FEW, folds=folds)
    assert result.partitions.is_empty()
    assert any(
        note.startswith("1 of 4 partitions into folds were evaluated")
        for note in result.notes
    )


def test_the_order_of_encoders_and_the_range_are_given_for_every_partition():
    rows = [
        ("herd", encoder, "centroid", "shared", partition, 5, mean)
        for partition, means in enumerate([(0.6, 0.5), (0.7, 0.4), (0.5, 0.55)])
        for encoder, mean in zip(("mfcc", "perch"), means, strict=True)
    ]
    partitions = pl.DataFrame(rows, schema=dict(PARTITIONS), orient="row")
    assert list(describe_repetition(partitions, 5)) == [
        "mAP at k = 5 over 3 partitions into folds: mfcc 0.600 (0.500 to 0.700); "
        "perch 0.483 (0.400 to 0.550).",
        "The order of encoders: mfcc, perch in 2 of 3; perch, mfcc in 1 of 3 partitions.",
    ]
    assert list(describe_repetition(partitions, 4)) == []


KEY = {"corpus": "herd", "encoder": "mfcc", "classifier": "centroid"}


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


def test_every_combination_scores_what_the_formulas_say():
    table = make_table()
    table = table.with_columns(fold=np.arange(48) // 4 % 3)
    episodes = episodes_of(table)
    samples = cross_samples(episodes, CROSSED)
    with open_engine(episodes, CROSSED, 1, 2**30) as engine:
        sums = sweep_folds(engine, np.array(CROSSED.shots), samples)
    for shot, k in enumerate(CROSSED.shots):
        for example, weight in product(range(2), range(2)):
            folds = []
            weights = literal_weights(episodes, CROSSED, weight)
            equal = np.ones(len(episodes.rows))
            for fold in range(episodes.folds):
                draw = (episodes, CROSSED, example, equal, fold)
                supports = [literal_support(*draw, n, k) for n in range(2)]
                queries = np.flatnonzero(episodes.fold == fold)
                a = [weighted_centroids(episodes, q, supports, equal) for q in queries]
                scores = np.array(a) @ [[1.0, -1.0], [-1.0, 1.0]]  # log-odds of two
                folds.append((scores, episodes.relevant[queries], weights[queries]))
            golden = class_means(folds)[0].mean()
            value = sums.values["all", "map"][shot, 2 * example + weight]
            assert value == pytest.approx(golden, abs=1e-12)


def test_an_evaluation_reports_sources_means_and_orders():
    shares = []
    tables = [make_table(shift=4.0), make_table("noise", 1, shift=0.0)]
    result = evaluate_tables(
        tables, CROSSED, corpus="herd", progress=lambda share, _: shares.append(share)
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
    once = dataclasses.replace(CROSSED, repeat_samples=1)
    alone = evaluate_tables(tables, once)
    assert alone.sensitivity.is_empty()
    assert not list(describe_sensitivity(alone.sensitivity, alone.sensitivity_means, 3))


def test_without_other_partitions_folds_are_no_source():
    protocol = dataclasses.replace(CROSSED, repeat_folds=1, shots=(2,))
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
    of_folds = frames[0]["sensitivity"].filter(source="folds")
    assert of_folds.select("sd", "share").row(0) == pytest.approx((0.08**0.5, 1.0))
    joined = [pl.concat([frame[name] for frame in frames]) for name in frames[0]]
    _, order = describe_sensitivity(*joined, 1)
    assert order.startswith("The order a, b holds in 1 of 2 partitions into folds")
    assert order.endswith(": it is not certain.")
