"""Repeated folds: other partitions of the recordings, and what each of them scores."""

import dataclasses

import numpy as np
import polars as pl
import pytest

from callshot import Protocol, Vectors
from callshot.errors import OptionError
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import check_no_leak, count_classes, make_folds
from callshot.fewshot.variation import (
    make_partition,
    other_partitions,
)
from callshot.records.frames import PARTITIONS
from callshot.report.summary.sentences import describe_repetition

FEW = Protocol(
    shots=(1, 3),
    draws=3,
    bootstraps=5,
    shared_draws=6,
    total_samples=4,
    permutations=0,
    repeat_folds=4,
)


def make_table(encoder="mfcc", seed=0, recordings=12):
    """Return two calls of each of two types in every recording."""
    rng = np.random.default_rng(seed)
    label = ["roar", "roar", "rumble", "rumble"] * recordings
    recording = [f"r{i // 4:02}" for i in range(len(label))]
    segment = [f"s{i:03}" for i in range(len(label))]
    vectors = rng.normal(size=(len(label), 3)) + [[name == "roar"] for name in label]
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


def test_fewer_than_one_partition_is_an_error():
    with pytest.raises(OptionError, match="repeat_folds: expected 1 to 1000, got 0"):
        Protocol(repeat_folds=0)
