"""The frames of a sweep: percentiles of classes, balanced accuracy, chance, confusion."""

import dataclasses

import numpy as np
import pytest

from callshot import Protocol
from callshot.fewshot import reference
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import make_splits
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import count_classes
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.summary import summarise_sweep
from callshot.fewshot.sweep import sweep
from callshot.records import CLASS_METRICS
from callshot.records.frames import summarise_samples
from corpora import episodes_of, folds_of, random_corpus

FEW = Protocol(shots=(1, 2, 4), draws=4, bootstraps=8, shared_draws=6)


def find_class(frame, metric, k, label):
    """Return the point of one class."""
    return frame.filter(metric=metric, k=k, label=label).row(0, named=True)


def test_percentiles_of_classes_are_those_of_their_own_samples():
    episodes = episodes_of(random_corpus(3, classes=4, size=3))
    k = np.array([1, 5])
    sums = MetricSums(2, 30, episodes.classes, None)
    for split in make_splits(episodes):
        sums.open_fold(split)
    rng = np.random.default_rng(0)
    for samples in sums.per_class.values():
        samples[:] = rng.exponential(size=samples.shape)
    key = dict.fromkeys(("corpus", "encoder", "classifier", "spread"), "shared")
    per_class = summarise_sweep(key, k, sums, [])["per_class"]
    assert len(per_class) == len(CLASS_METRICS) * 2 * len(episodes.classes)
    for metric, samples in sums.per_class.items():
        for (s, n), _ in np.ndenumerate(samples[:, :, 0]):
            point = find_class(per_class, metric, k[s], episodes.classes[n])
            ordered = sorted(samples[s, n])
            low = ordered[0] + 0.29 * (ordered[1] - ordered[0])  # at (30 − 1) · 0.01
            high = ordered[-1] - 0.29 * (ordered[-1] - ordered[-2])
            assert point["mean"] == pytest.approx(sum(ordered) / 30)
            assert point["p01"] == pytest.approx(low)
            assert point["p99"] == pytest.approx(high)


@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_a_fold_in_which_no_class_has_an_auroc_is_left_out_of_its_mean(spread):
    table = random_corpus(5, classes=3, folds=3, size=3, integers=False)
    labels = [("c0", "c1", "c2") if f == 0 else () for f in table.fold]
    table = table.with_columns(labels=labels)
    result = evaluate_tables([table], FEW)
    episodes = episodes_of(table)
    for k in FEW.shots:
        golden = reference.sample_values(episodes, FEW, spread, k)
        assert np.isfinite(golden).all()
        point = result.curve.filter(metric="auroc", spread=spread, k=k)
        assert point["mean"][0] == pytest.approx(golden[:, 1].mean(), abs=1e-9)
    for name in episodes.classes:
        note = f"test: no AUROC for '{name}' in 1 fold(s)"
        assert any(text.startswith(note) for text in result.notes)


def test_where_no_fold_has_an_auroc_it_is_undefined():
    table = random_corpus(5, classes=3, folds=3, size=3, integers=False)
    everything = table.with_columns(labels=[("c0", "c1", "c2")] * len(table))
    result = evaluate_tables([everything], FEW)
    assert result.curve.filter(metric="auroc")["mean"].is_nan().all()
    assert result.per_class.filter(metric="auroc")["mean"].is_nan().all()
    assert (result.curve.filter(metric="map")["mean"] == 1.0).all()


def literal_complete_shots(table, classes):
    """Return the least number of exemplars that a class has outside any fold."""
    outside = [
        sum(
            label == name and f != fold
            for label, f in zip(table.label, table.fold, strict=True)
        )
        for name in classes
        for fold in range(max(table.fold) + 1)
    ]
    return int(min(outside))


@pytest.mark.parametrize("seed", range(2))
def test_support_is_complete_up_to_k_star_and_not_one_further(seed):
    table = random_corpus(seed, classes=3, size=4, integers=False)
    classes = episodes_of(table).classes
    best = literal_complete_shots(table, classes)
    protocol = dataclasses.replace(FEW, shots=(best - 1, best, best + 1))
    result = evaluate_tables([table], protocol)
    assert result.complete_shots == best
    points = result.curve.select("k", "complete").unique().sort("k")
    assert points.rows() == [(best - 1, True), (best, True), (best + 1, False)]
    at_best = result.curve.filter(k=best)["new_exemplars"]
    assert set(at_best) == {len(classes)}
    assert max(result.curve.filter(k=best + 1)["new_exemplars"]) < len(classes)


@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_chance_of_accuracy_is_that_of_the_same_decisions_for_random_queries(spread):
    table = random_corpus(28, classes=4, folds=3, size=5, integers=False)
    protocol = dataclasses.replace(FEW, spreads=(spread,))
    curve = evaluate_tables([table], protocol).curve
    episodes = episodes_of(table)
    for k in protocol.shots:
        plain = []
        balanced = []
        for split in make_splits(episodes):
            scores = reference.score_fold(episodes, protocol, spread, k, split.number)
            decided = scores[:, :, -1].astype(int).ravel()
            of_queries = [split.relevant[decided, q].mean() for q in range(len(scores))]
            plain.append(np.mean(of_queries))
            of_classes = [
                np.mean(np.array(of_queries)[split.label == n])
                for n in range(len(episodes.classes))
            ]
            balanced.append(np.mean(of_classes))
        point = curve.filter(k=k, metric="accuracy")
        assert point["chance"][0] == pytest.approx(np.mean(plain), abs=1e-12)
        point = curve.filter(k=k, metric="balanced_accuracy")
        assert point["chance"][0] == pytest.approx(np.mean(balanced), abs=1e-12)


def test_balanced_accuracy_counts_every_class_of_a_fold_the_same():
    table = random_corpus(28, classes=4, folds=3, size=5, integers=False)
    protocol = dataclasses.replace(FEW, spreads=("shared",))
    result = evaluate_tables([table], protocol)
    episodes = episodes_of(table)
    for k in protocol.shots:
        values = []
        for split in make_splits(episodes):
            scores = reference.score_fold(episodes, protocol, "shared", k, split.number)
            decided = scores[:, :, -1].astype(int)
            hits = split.relevant[decided, np.arange(len(decided))[:, None]]
            classes = range(len(episodes.classes))
            recalls = [hits[split.label == n].mean(axis=0) for n in classes]
            values.append(np.mean(recalls, axis=0))
        golden = np.mean(values, axis=0)
        point = result.values.filter(metric="balanced_accuracy", k=k)
        np.testing.assert_allclose(point["value"][0], golden, rtol=0, atol=1e-12)


def test_total_has_the_chance_of_shared_and_the_mean_recall_of_its_own_samples():
    table = random_corpus(28, classes=4, folds=3, size=5, integers=False)
    protocol = dataclasses.replace(FEW, spreads=("shared", "total"), total_samples=7)
    curve = evaluate_tables([table], protocol).curve
    for metric in ("accuracy", "balanced_accuracy"):
        of_metric = curve.filter(metric=metric)
        shared = of_metric.filter(spread="shared")["chance"]
        assert of_metric.filter(spread="total")["chance"].equals(shared)
        assert shared.is_finite().all()
    episodes = episodes_of(table)
    with open_engine(episodes, protocol, 1, 2**30) as engine:
        _, sums = sweep(engine, "total")
    recall = sums.per_class["accuracy"].mean(axis=1)
    np.testing.assert_allclose(sums.values["all", "balanced_accuracy"], recall)


def test_rows_of_the_confusion_say_what_they_sum_to_and_their_recall_sums_to_one():
    table = random_corpus(28, classes=4, folds=3, size=5, integers=False)
    single = table.with_columns(labels=[()] * len(table))
    result = evaluate_tables([single], FEW)
    counts = count_classes(single.label, folds_of(single))
    queries = {count.label: sum(count.per_fold) for count in counts}
    for row in result.confusion.partition_by("k", "true"):
        assert row["count"].sum() == pytest.approx(queries[row["true"][0]])
        assert row["row_sum"].to_list() == pytest.approx(
            [row["count"].sum()] * len(row)
        )
        assert row["recall"].sum() == pytest.approx(1)
        assert (row["recall"] * row["row_sum"] - row["count"]).abs().max() < 1e-12


def test_the_largest_class_has_its_mean_share_of_the_queries_of_a_fold():
    table = random_corpus(28, classes=4, folds=3, size=5, integers=False)
    episodes = episodes_of(table)
    shares = []
    for split in make_splits(episodes):
        counts = [np.sum(split.label == n) for n in range(len(episodes.classes))]
        shares.append(np.array(counts) / len(split.label))
    means = np.mean(shares, axis=0)
    label, share = evaluate_tables([table], FEW).largest_class
    assert label == episodes.classes[means.argmax()]
    assert share == pytest.approx(means.max())


@pytest.mark.parametrize("size", [1, 2, 101])
def test_percentiles_are_numpys_to_the_bit(size):
    rng = np.random.default_rng(size)
    samples = np.concatenate(
        [rng.normal(size=(5, size)), rng.integers(0, 3, (5, size)).astype(float)]
    )
    samples[3, 0] = np.nan
    found = summarise_samples(samples)
    expected = np.percentile(samples, (1, 25, 50, 75, 99), axis=1)
    for row, name in zip(expected, ("p01", "p25", "p50", "p75", "p99"), strict=True):
        np.testing.assert_array_equal(found[name], row)
