"""The test against chance: labels permuted over recordings, inside folds."""

import dataclasses

import numpy as np
import pytest

import literal
from callshot.fewshot import permutation, reference
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import complete_shots, count_classes
from callshot.fewshot.permutation import (
    TEST_DRAWS,
    chance_test,
    count_orders,
    measure_labellings,
    shots_to_test,
)
from callshot.fewshot.protocol import Protocol
from callshot.records.frames import CHANCE_TEST, empty_frame
from callshot.vectors import Vectors
from corpora import (
    engine_for,
    episodes_of,
    folds_of,
    gaussian_corpus,
    random_corpus,
    repeat_vectors,
    reverse_rows,
)

SMALL = Protocol(
    shots=(1, 2, 3), draws=2, bootstraps=3, shared_draws=12, permutations=19
)
FEW = dataclasses.replace(SMALL, permutations=4)


def last_shot(table):
    return complete_shots(count_classes(table.label, folds_of(table)))


def statistics(table, protocol=FEW, shots=(1,), **options):
    with engine_for(table, protocol, **options) as engine:
        return measure_labellings(engine, np.array(shots))


def frame_of(table, protocol, **options):
    with engine_for(table, protocol, **options) as engine:
        shots = shots_to_test(protocol, last_shot(table))
        key = {"corpus": "corpus", "encoder": "test"}
        key["classifier"] = engine.classifier.name
        return chance_test(engine, shots, key)


def permute_table(table, seed, number):
    """The table with the labels of one permutation, by loops."""
    classes = episodes_of(table).classes
    rows = [row for row, name in enumerate(table.label) if name in classes]

    def word(recording):
        return literal.make_stream(seed, "permutation", number, literal.key(recording))

    label = list(table.label)
    labels = list(table.labels)
    for fold in set(table.fold.tolist()):
        calls = [row for row in rows if table.fold[row] == fold]
        calls.sort(key=lambda row: (table.recording[row], table.segment[row]))
        recordings = sorted({table.recording[row] for row in calls}, key=word)
        given = []
        for name in recordings:
            given += [row for row in calls if table.recording[row] == name]
        for call, source in zip(calls, given, strict=True):
            label[call] = table.label[source]
            labels[call] = table.labels[source]
    return table.with_columns(label=label, labels=labels)


def slow_statistics(table, protocol, k, rule=reference.centroid):
    """mAP and AUROC of the true labels and of every permutation, (metrics, labellings)."""
    numbers = range(protocol.permutations)
    tables = [permute_table(table, protocol.seed, number) for number in numbers]
    draws = dataclasses.replace(protocol, shared_draws=TEST_DRAWS)
    values = []
    for permuted in [table, *tables]:
        episodes = episodes_of(permuted)
        samples = reference.sample_values(episodes, draws, "shared", k, rule)
        values.append(samples[:, :2].mean(axis=0))
    return np.transpose(values)


def make_calls(seed, *, folds=3, recordings=2, calls=1, classes=3, signal=0.0):
    """Gaussian calls; every class has some recordings in each fold, one label in each.

    Recordings differ in their mean, as places and days do.
    """
    rng = np.random.default_rng(seed)
    count = folds * classes * recordings
    fold = np.arange(count) % folds
    label = np.arange(count) // folds % classes
    centre = rng.normal(size=(count, 4)) + signal * np.eye(classes, 4)[label]
    block = np.repeat(np.arange(count), calls)
    return Vectors.from_columns(
        "test",
        centre[block] + 0.3 * rng.normal(size=(len(block), 4)),
        [f"s{i:04d}" for i in rng.permutation(len(block))],
        [f"r{g:03d}" for g in block],
        [f"c{n}" for n in label[block]],
        [()] * len(block),
        fold[block],
    )


@pytest.mark.parametrize("name", CLASSIFIERS)
@pytest.mark.parametrize(
    ("memory", "sampler"), [(0, "distinct"), (2**30, "replacement")]
)
def test_statistics_are_those_of_the_slow_rule_on_permuted_tables(
    name, memory, sampler
):
    table = random_corpus(
        58, classes=3, folds=2, size=4, dimensions=4, integers=False, offset=1.5
    )
    last = last_shot(table)
    protocol = dataclasses.replace(FEW, permutations=2, sampler=sampler, seed=1)
    values = statistics(table, protocol, (1, last), memory=memory, classifier=name)
    golden = slow_statistics(table, protocol, last, literal.RULES[name])
    np.testing.assert_allclose(values[:, :, 1], golden, rtol=0, atol=1e-12)


def test_ties_of_equal_vectors_and_the_literal_softmax_count_as_in_the_reference():
    table = repeat_vectors(random_corpus(5, classes=3, size=4, integers=True))
    rule = literal.by_class(literal.exact_centroid)
    for score in ("log", "softmax"):
        protocol = dataclasses.replace(FEW, score=score, permutations=2)
        values = statistics(table, protocol, (1, 2))
        golden = slow_statistics(table, protocol, 2, rule)
        np.testing.assert_allclose(values[:, :, 1], golden, rtol=0, atol=1e-12)


def test_p_counts_the_permutations_that_score_at_least_as_much():
    table = make_calls(1, recordings=1, calls=2, signal=0.2)
    protocol = dataclasses.replace(SMALL, shots=(2,), permutations=20)
    golden = slow_statistics(table, protocol, 2)
    frame = frame_of(table, protocol)
    assert frame.schema == empty_frame(CHANCE_TEST).schema
    assert frame["metric"].to_list() == ["map", "auroc"]
    for row, values in zip(frame.iter_rows(named=True), golden, strict=True):
        count = sum(value >= values[0] - 1e-12 for value in values[1:])
        assert row["p"] == (1 + count) / 21
        assert 0 < count < 20
        assert row["value"] == pytest.approx(values[0], abs=1e-12)
        assert row["permuted"] == pytest.approx(np.mean(values[1:]), abs=1e-12)
        assert row["permutations"] == 20


def test_a_planted_signal_has_the_smallest_possible_p():
    table = make_calls(0, recordings=4, calls=5, signal=5.0)
    frame = frame_of(table, Protocol(shots=(1, 2, 5)))
    assert frame["k"].to_list() == [1, 2, 5] * 2
    assert set(frame["p"]) == {1 / 200}
    assert (frame["value"] > frame["permuted"] + 0.2).all()


def test_neither_the_order_of_rows_nor_the_size_of_blocks_changes_the_test(monkeypatch):
    table = random_corpus(9, classes=4, size=5, dimensions=5, integers=True)
    frame = frame_of(table, SMALL)
    assert frame.equals(frame_of(reverse_rows(table), SMALL))
    monkeypatch.setattr(permutation, "BLOCK_BYTES", 1)
    assert frame.equals(frame_of(table, SMALL))


def test_the_test_is_made_at_a_few_shots_up_to_the_last_complete_one():
    assert shots_to_test(Protocol(), 31) == [1, 2, 5, 10, 20, 31]
    assert shots_to_test(Protocol(), 100) == [1, 2, 5, 10, 20, 40]
    assert shots_to_test(Protocol(shots=(3, 4, 6)), 4) == [4]
    assert shots_to_test(Protocol(shots=(6,)), 4) == []
    assert shots_to_test(Protocol(permutations=0), 31) == []


def test_a_fold_without_auroc_is_left_out_and_a_corpus_without_has_no_rows():
    table = random_corpus(3, classes=2, folds=2, size=3, integers=False)
    first = [("c0", "c1") if f == 0 else () for f in table.fold]
    some = table.with_columns(labels=first)
    golden = slow_statistics(some, FEW, 1)
    values = statistics(some)[:, :, 0]
    np.testing.assert_allclose(values, golden, rtol=0, atol=1e-12)
    none = table.with_columns(labels=[("c0", "c1")] * len(table))
    assert set(frame_of(none, FEW)["metric"]) == {"map"}


def test_the_reference_classifier_alone_is_tested():
    table = random_corpus(3, classes=3, size=3, integers=False)
    protocol = dataclasses.replace(FEW, classifiers=("medoid", "centroid"))
    other = dataclasses.replace(table, encoder="other", matrix=-table.matrix)
    tests = evaluate_tables([table, other], protocol).chance_test
    assert set(tests["classifier"]) == {"centroid"}
    assert tests["encoder"].unique(maintain_order=True).to_list() == ["test", "other"]
    of_one = evaluate_tables([table], protocol).chance_test
    assert tests.filter(encoder="test").equals(of_one)


def test_too_few_orders_of_recordings_give_a_note_instead_of_a_test():
    """Two folds of two recordings: 4 orders, so that p could not be 0.02."""
    table = gaussian_corpus((8, 8), 3, folds=2, common=0, calls=4)
    result = evaluate_tables([table], SMALL)
    assert result.chance_test.is_empty()
    assert permutation.TOO_FEW_ORDERS in result.notes
    assert count_orders(episodes_of(table)) == pytest.approx(4.0)
