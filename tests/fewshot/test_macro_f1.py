"""Macro F1 of the decisions: scikit-learn's, in all spreads, for classes, and by chance."""

import dataclasses

import numpy as np
import pytest
from sklearn.metrics import f1_score

import literal
from callshot import Protocol
from callshot.baselines.scoring import measure, sum_metrics
from callshot.fewshot import reference
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import make_splits
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.sweep import sweep
from corpora import episodes_of, random_corpus
from literal_total import literal_support, literal_weights

SMALL = Protocol(
    shots=(1, 2, 4), draws=3, bootstraps=5, shared_draws=4, total_samples=5
)


def scikit_learn_f1(decided, label, relevant, weights, average=None):
    """A decision for any label is right; otherwise the label of the query was the true one."""
    is_right = relevant[np.arange(len(decided)), decided]
    true = np.where(is_right, decided, label)
    return f1_score(
        true,
        decided,
        labels=range(relevant.shape[1]),
        average=average,
        sample_weight=weights,
        zero_division=0,
    )


@pytest.mark.parametrize("several_labels", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_the_literal_twin_is_scikit_learns(seed, several_labels):
    rng = np.random.default_rng(seed)
    label = rng.integers(0, 4, 12)
    relevant = label[:, None] == np.arange(5)  # the last class has no queries
    if several_labels:
        relevant |= rng.random(relevant.shape) < 0.3
    decided = rng.integers(0, 4 + seed % 2, 12)
    weights = rng.exponential(size=12)
    twin = literal.class_f1(decided, label, relevant, weights)
    golden = scikit_learn_f1(decided, label, relevant, weights)
    np.testing.assert_allclose(twin, golden, rtol=0, atol=1e-12)


def own_decisions(episodes, protocol, spread, k, fold):
    """The decisions of every sample in one fold, (samples, queries)."""
    table = reference.score_fold(episodes, protocol, spread, k, fold)
    decided = table[:, :, -1].astype(int)
    if spread == "shared":
        return decided.T
    keys = episodes.segment_key[episodes.fold == fold]
    samples = []
    for b in range(protocol.bootstraps):
        draws = protocol.draws
        picks = [literal.pick_draw(protocol.seed, key, b, draws) for key in keys]
        samples.append(decided[np.arange(len(keys)), picks])
    return np.array(samples)


@pytest.mark.parametrize("spread", ["per-query", "shared"])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_sample_is_the_mean_over_classes_then_folds(seed, spread):
    table = random_corpus(seed, classes=3, folds=2, size=4, integers=False)
    episodes = episodes_of(table)
    with open_engine(episodes, SMALL, 1, 2**30) as engine:
        k, sums = sweep(engine, spread)
    for s, shots in enumerate(k.tolist()):
        of_folds = []
        for split in make_splits(episodes):
            decided = own_decisions(episodes, SMALL, spread, shots, split.number)
            inputs = (split.label, split.relevant.T, np.ones(len(split.rows)))
            golden = [scikit_learn_f1(one, *inputs) for one in decided]
            twins = [literal.class_f1(one, *inputs) for one in decided]
            np.testing.assert_allclose(twins, golden, rtol=0, atol=1e-12)
            of_folds.append(golden)
        by_class = np.mean(of_folds, axis=0)
        values = sums.values["all", "macro_f1"][s]
        np.testing.assert_allclose(values, by_class.mean(axis=1), rtol=0, atol=1e-12)
        per_class = sums.per_class["macro_f1"][s]
        np.testing.assert_allclose(per_class, by_class.T, rtol=0, atol=1e-12)


def weighted_decision(episodes, query, supports, weights):
    a = []
    for support in supports:
        c = np.average(episodes.vectors[support], axis=0, weights=weights[support])
        a.append(2 * float(c @ episodes.vectors[query]) - float(c @ c))
    return a.index(max(a))


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_total_weighs_queries_and_folds_by_the_queries_of_a_class(seed):
    table = random_corpus(seed, classes=3, folds=2, size=4, integers=False)
    episodes = episodes_of(table)
    classes = range(len(episodes.classes))
    with open_engine(episodes, SMALL, 1, 2**30) as engine:
        k, sums = sweep(engine, "total")
    for sample in range(SMALL.total_samples):
        weights = literal_weights(episodes, SMALL, sample)
        for s, shots in enumerate(k.tolist()):
            of_folds = []
            shares = []
            for split in make_splits(episodes):
                draw = (episodes, SMALL, sample, weights, split.number)
                supports = [literal_support(*draw, n, shots) for n in classes]
                decided = [
                    weighted_decision(episodes, query, supports, weights)
                    for query in split.rows
                ]
                own = weights[split.rows]
                inputs = (np.array(decided), split.label, split.relevant.T, own)
                golden = scikit_learn_f1(*inputs)
                twin = literal.class_f1(*inputs)
                np.testing.assert_allclose(twin, golden, rtol=0, atol=1e-12)
                of_folds.append(golden)
                shares.append([own[split.label == n].mean() for n in classes])
            by_class = np.average(of_folds, axis=0, weights=shares)
            per_class = sums.per_class["macro_f1"][s, :, sample]
            np.testing.assert_allclose(per_class, by_class, rtol=0, atol=1e-12)
            value = sums.values["all", "macro_f1"][s, sample]
            assert value == pytest.approx(by_class.mean(), abs=1e-12)


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
    for _ in range(500):
        order = np.arange(len(scores))
        for fold in range(episodes.folds):
            rows = np.flatnonzero(episodes.fold == fold)
            order[rows] = rng.permutation(rows)
        values.append(measure(episodes, scores[order])["all", "macro_f1"])
    error = np.std(values) / np.sqrt(len(values))
    assert np.mean(values) == pytest.approx(expected, abs=4 * error)


def test_frames_have_it_with_the_chance_of_shared_for_total():
    table = random_corpus(28, classes=4, folds=3, size=5, integers=False)
    protocol = dataclasses.replace(SMALL, permutations=0)
    result = evaluate_tables([table], protocol)
    curve = result.curve.filter(metric="macro_f1")
    assert set(curve["spread"]) == {"per-query", "shared", "total"}
    assert curve["chance"].is_between(0.0, 1.0).all()
    shared = curve.filter(spread="shared")["chance"]
    assert curve.filter(spread="total")["chance"].equals(shared)
    samples = result.values.filter(metric="macro_f1", spread="shared", k=1)["value"][0]
    shared_mean = curve.filter(spread="shared", k=1)["mean"][0]
    assert shared_mean == pytest.approx(samples.mean())
    assert not result.per_class.filter(metric="macro_f1").is_empty()
