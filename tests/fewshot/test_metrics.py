import dataclasses
import itertools
import math
from itertools import product

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import f1_score

import literal
from callshot.baselines.scoring import measure, sum_metrics
from callshot.fewshot import reference
from callshot.fewshot.episodes import make_splits, open_engine
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import count_classes
from callshot.fewshot.kernels import ranks
from callshot.fewshot.metrics import (
    FORMULAS,
    Formula,
    MetricSums,
    chance_average_precision,
    chance_balanced_accuracy,
    describe_ties,
    harmonic_numbers,
    summarise_sweep,
)
from callshot.fewshot.sweep import sweep
from callshot.records import CLASS_METRICS, DECISION_METRICS, METRICS
from corpora import SMALL, engine_for, episodes_of, folds_of, random_corpus
from literal_total import score_total, weighted_centroids

LEVELS = [-2.0, -0.0, 0.0, 1.0, 1.5, 3.0, 1e-300, 1e300]
rankings = st.integers(2, 80).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from(LEVELS), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n).filter(any),
    )
)


def ranking_metrics(scores, relevant):
    weight = np.ones(len(scores), np.int64)
    return ranks.ranking_metrics(np.array(scores, float), weight, np.array(relevant))


def check_against_scikit_learn(scores, relevant):
    golden = literal.ranking_metrics(scores, relevant)
    expected = pytest.approx(golden, abs=1e-12, nan_ok=True)
    assert ranking_metrics(scores, relevant)[:2] == expected
    assert reference.ranking_metrics(np.array(scores), np.array(relevant)) == expected


@given(rankings)
def test_ap_and_auroc_treat_ties_as_scikit_learn_does(ranking):
    check_against_scikit_learn(*ranking)


def test_long_rankings_agree_too():
    rng = np.random.default_rng(0)
    scores = np.round(rng.normal(size=5000), 3)
    check_against_scikit_learn(scores, rng.random(5000) < 0.3)


@given(st.integers(1, 6), st.integers(1, 6))
def test_chance_is_the_mean_over_all_rankings(positives, negatives):
    n = positives + negatives
    places = np.arange(n)
    chosen = itertools.combinations(range(n), positives)
    values = [ranking_metrics(-places, np.isin(places, rows))[0] for rows in chosen]
    chance = float(chance_average_precision(positives, n))
    assert chance == pytest.approx(np.mean(values), abs=1e-12)
    assert float(chance_average_precision(n, n)) == 1.0


def test_harmonic_numbers_are_right_to_the_last_digits():
    harmonic = harmonic_numbers(20000)
    for n in (0, 1, 2, 10, 1000, 20000):
        golden = math.fsum(1 / i for i in range(1, n + 1))
        assert harmonic[n] == pytest.approx(golden, rel=2e-16)


def test_every_metric_has_a_formula_and_a_name():
    assert list(FORMULAS) == list(METRICS)
    for formula in FORMULAS.values():
        assert not formula.mean_of or METRICS[formula.mean_of].of_class


def test_a_metric_without_a_name_for_classes_is_the_mean_over_them(monkeypatch):
    def weighted_error(fold, tables):
        return fold.label_weight - tables.hits / fold.queries

    formula = Formula(weighted_error, "label_weight", chance_balanced_accuracy)
    monkeypatch.setitem(FORMULAS, "error", formula)
    names = (*DECISION_METRICS, "error")
    monkeypatch.setattr("callshot.fewshot.metrics.DECISION_METRICS", names)
    table = random_corpus(5, classes=3, folds=3, size=3, integers=False)
    with engine_for(table) as engine:
        for spread in ("per-query", "shared", "total"):
            _, sums = sweep(engine, spread)
            right = sums.values["all", "balanced_accuracy"]
            assert sums.values["all", "error"] == pytest.approx(1 - right, abs=1e-12)


@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_a_fold_in_which_no_class_has_an_auroc_is_left_out_of_its_mean(spread):
    table = random_corpus(5, classes=3, folds=3, size=3, integers=False)
    labels = [("c0", "c1", "c2") if f == 0 else () for f in table.fold]
    table = table.with_columns(labels=labels)
    result = evaluate_tables([table], SMALL)
    episodes = episodes_of(table)
    for k in SMALL.shots:
        golden = reference.sample_values(episodes, SMALL, spread, k)
        assert np.isfinite(golden).all()
        point = result.curve.filter(metric="auroc", spread=spread, k=k)
        assert point["mean"][0] == pytest.approx(golden[:, 1].mean(), abs=1e-9)
    for name in episodes.classes:
        note = f"test: no AUROC for '{name}' in 1 fold(s)"
        assert any(text.startswith(note) for text in result.notes)


def test_where_no_fold_has_an_auroc_it_is_undefined():
    table = random_corpus(5, classes=3, folds=3, size=3, integers=False)
    everything = table.with_columns(labels=[("c0", "c1", "c2")] * len(table))
    result = evaluate_tables([everything], SMALL)
    assert result.curve.filter(metric="auroc")["mean"].is_nan().all()
    assert result.per_class.filter(metric="auroc")["mean"].is_nan().all()
    assert (result.curve.filter(metric="map")["mean"] == 1.0).all()


def test_rows_of_the_confusion_say_what_they_sum_to_and_their_recall_sums_to_one():
    table = random_corpus(28, classes=4, folds=3, size=5, integers=False)
    single = table.with_columns(labels=[()] * len(table))
    result = evaluate_tables([single], SMALL)
    counts = count_classes(single.label, folds_of(single))
    queries = {count.label: sum(count.per_fold) for count in counts}
    for row in result.confusion.partition_by("k", "true"):
        assert row["count"].sum() == pytest.approx(queries[row["true"][0]])
        assert (row["row_sum"] - row["count"].sum()).abs().max() < 1e-9
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
    label, share = evaluate_tables([table], SMALL).largest_class
    assert label == episodes.classes[means.argmax()]
    assert share == pytest.approx(means.max())


def test_a_class_without_queries_and_decisions_scores_zero():
    table = random_corpus(4, classes=3, size=3)
    episodes = episodes_of(table.with_columns(labels=[("c0",)] * len(table)))
    scores = np.zeros(episodes.relevant.shape)
    scores[:, 0] = 1.0
    sums = sum_metrics(episodes, scores)
    others = len(episodes.classes) - 1
    assert others > 0
    assert sums.per_class["macro_f1"][0, :, 0].tolist() == [1.0] + [0.0] * others
    value = measure(episodes, scores)["all", "macro_f1"]
    assert value == pytest.approx(1 / (1 + others))


def test_chance_is_the_mean_over_random_orders_of_the_decisions():
    table = random_corpus(28, classes=4, folds=2, size=5)
    episodes = episodes_of(table.with_columns(labels=[()] * len(table)))
    rng = np.random.default_rng(0)
    scores = rng.normal(size=episodes.relevant.shape)
    expected = sum_metrics(episodes, scores).chance["macro_f1"][0]
    values = []
    for _ in range(200):
        order = np.arange(len(scores))
        for fold in range(episodes.folds):
            rows = np.flatnonzero(episodes.fold == fold)
            order[rows] = rng.permutation(rows)
        values.append(measure(episodes, scores[order])["all", "macro_f1"])
    error = np.std(values) / np.sqrt(len(values))
    assert np.mean(values) == pytest.approx(expected, abs=4 * error)


def test_percentiles_of_classes_are_those_of_their_own_samples():
    episodes = episodes_of(random_corpus(3, classes=4, size=3))
    sums = MetricSums(2, 30, episodes.classes, None)
    for split in make_splits(episodes):
        sums.open_fold(split)
    rng = np.random.default_rng(0)
    key = dict.fromkeys(("corpus", "encoder", "classifier", "spread"), "shared")
    for samples in sums.per_class.values():
        samples[:] = rng.exponential(size=samples.shape)
    per_class = summarise_sweep(key, np.array([1, 5]), sums, [])["per_class"]
    assert list(sums.per_class) == list(CLASS_METRICS)
    numbers = per_class.select("mean", "p01", "p99").to_numpy()
    samples = np.concatenate(
        [table.reshape(-1, 30) for table in sums.per_class.values()]
    )
    low, high = np.percentile(samples, (1, 99), axis=1)
    np.testing.assert_allclose(numbers, np.transpose([samples.mean(1), low, high]))
    labels = per_class.filter(metric="map", k=5)["label"].to_list()
    assert labels == list(episodes.classes)


def test_support_is_complete_up_to_k_star_and_not_one_further():
    table = random_corpus(0, size=4, integers=False)
    episodes = episodes_of(table)
    best = min(split.pool_sizes.min() for split in make_splits(episodes)).item()
    shots = (best - 1, best, best + 1)
    protocol = dataclasses.replace(SMALL, shots=shots, permutations=0)
    result = evaluate_tables([table], protocol)
    assert result.complete_shots == best
    points = result.curve.select("k", "complete").unique().sort("k")
    assert points.rows() == [(best - 1, True), (best, True), (best + 1, False)]
    classes = len(episodes.classes)
    assert set(result.curve.filter(k=best)["new_exemplars"]) == {classes}
    assert max(result.curve.filter(k=best + 1)["new_exemplars"]) < classes


def f1_of_classes(decided, label, relevant, weights):
    """Scikit-learn's F1; a decision for any label is right, else the own label was the true one."""
    is_right = relevant[np.arange(len(decided)), decided]
    true = np.where(is_right, decided, label)
    return f1_score(
        true,
        decided,
        labels=range(relevant.shape[1]),
        average=None,
        sample_weight=weights,
        zero_division=0,
    )


def sampled_decisions(episodes, spread, k, fold):
    """The decisions of every sample in one fold, and of every draw, (…, queries)."""
    table = reference.score_fold(episodes, SMALL, spread, k, fold)
    of_draws = table[:, :, -1].astype(int).T
    if spread == "shared":
        return of_draws, of_draws
    keys = episodes.segment_key[episodes.fold == fold]
    samples = []
    for b in range(SMALL.bootstraps):
        picks = [literal.pick_draw(SMALL.seed, key, b, SMALL.draws) for key in keys]
        samples.append(of_draws[picks, np.arange(len(keys))])
    return np.array(samples), of_draws


@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_metrics_of_decisions_and_their_chance_are_means_over_classes_then_folds(
    spread,
):
    episodes = episodes_of(random_corpus(28, classes=4, size=5, integers=False))
    classes = range(len(episodes.classes))
    with open_engine(episodes, SMALL, 1, 2**30) as engine:
        k, sums = sweep(engine, spread)
    for s, shots in enumerate(k.tolist()):
        f1, recall, chance, balanced_chance = [], [], [], []
        for split in make_splits(episodes):
            samples, of_draws = sampled_decisions(episodes, spread, shots, split.fold)
            queries = np.arange(len(split.rows))
            inputs = (split.label, split.relevant.T, np.ones(len(queries)))
            f1.append([f1_of_classes(decided, *inputs) for decided in samples])
            hits = split.relevant[samples, queries]
            own = [split.label == n for n in classes]
            recall.append([hits[:, rows].mean(axis=1) for rows in own])
            by_luck = [split.relevant[of_draws, q].mean() for q in queries]
            chance.append(np.mean(by_luck))
            luck_by_class = [np.mean(by_luck, where=rows) for rows in own]
            balanced_chance.append(np.mean(luck_by_class))
        by_class = np.mean(f1, axis=0)
        for found, golden in (
            (sums.values["all", "macro_f1"][s], by_class.mean(axis=1)),
            (sums.per_class["macro_f1"][s], by_class.T),
            (sums.values["all", "balanced_accuracy"][s], np.mean(recall, axis=(0, 1))),
            (sums.chance["accuracy"][s], np.mean(chance)),
            (sums.chance["balanced_accuracy"][s], np.mean(balanced_chance)),
        ):
            np.testing.assert_allclose(found, golden, rtol=0, atol=1e-12)


def test_total_weighs_queries_and_folds_by_the_queries_of_a_class():
    episodes = episodes_of(random_corpus(2, folds=2, size=4, integers=False))
    classes = range(len(episodes.classes))
    with open_engine(episodes, SMALL, 1, 2**30) as engine:
        k, sums = sweep(engine, "total")
    samples = range(SMALL.total_samples)
    for sample, (s, shots) in product(samples, enumerate(k.tolist())):
        f1 = []
        shares = []
        scored = score_total(episodes, SMALL, sample, shots, weighted_centroids)
        for queries, a, weights in scored:
            label = episodes.label[queries]
            relevant = episodes.relevant[queries]
            f1.append(f1_of_classes(a.argmax(axis=1), label, relevant, weights))
            shares.append([weights[label == n].mean() for n in classes])
        by_class = np.average(f1, axis=0, weights=shares)
        per_class = sums.per_class["macro_f1"][s, :, sample]
        np.testing.assert_allclose(per_class, by_class, rtol=0, atol=1e-12)
        value = sums.values["all", "macro_f1"][s, sample]
        assert value == pytest.approx(by_class.mean(), abs=1e-12)
    recall = sums.per_class["accuracy"].mean(axis=1)
    np.testing.assert_allclose(sums.values["all", "balanced_accuracy"], recall)


def test_total_has_the_chance_of_shared():
    table = random_corpus(28, classes=4, size=5, integers=False)
    protocol = dataclasses.replace(SMALL, permutations=0)
    curve = evaluate_tables([table], protocol).curve
    for metric in DECISION_METRICS:
        of_metric = curve.filter(metric=metric)
        assert set(of_metric["spread"]) == {"per-query", "shared", "total"}
        shared = of_metric.filter(spread="shared")["chance"]
        assert of_metric.filter(spread="total")["chance"].equals(shared)
        assert shared.is_between(0.0, 1.0).all()


def test_ties_are_noted_unless_their_share_and_cost_would_read_as_0():
    columns = {"encoder": "a", "spread": "shared", "label": ["x", "y"], "k": [1, 5]}
    ties = pl.DataFrame({**columns, "ties": [3, 1]})
    shares = ties.with_columns(share=pl.Series([0.004, 0.001]))
    costs = pl.Series([0.0, 0.0004])
    assert describe_ties(shares.with_columns(cost_map=costs)) == []
    (costly,) = describe_ties(shares.with_columns(cost_map=costs * 2))
    assert "0.001 AP" in costly
    many = ties.with_columns(share=pl.Series([0.001, 0.1]), cost_map=costs)
    assert "10% of those of 'y' at k = 5" in describe_ties(many)[0]
