"""Logistic regression on all labels, against scikit-learn's."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

from callshot.baselines import logistic
from callshot.baselines.logistic import (
    C_GRID,
    DEFAULT_C,
    EXACT,
    choose_c,
    fit,
    fit_each,
    score_logistic,
    standardise,
    support_side,
)
from callshot.errors import OptionError
from callshot.fewshot.centroid import log_odds
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.vectors import Vectors


def gaussian(
    sizes=(30, 20, 10), dimensions=6, *, separation=1.0, folds=5, common=3, seed=0
):
    """Return episodes of Gaussian classes with recordings of two segments.

    A few rows are in the common fold.
    """
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    fold = np.concatenate([np.arange(size) % folds for size in sizes])
    fold[np.flatnonzero(label == 0)[:common]] = -1
    means = separation * rng.normal(size=(len(sizes), dimensions))
    vectors = means[label] + rng.normal(size=(len(label), dimensions))
    return episodes_of(vectors, label, fold)


def episodes_of(vectors, label, fold):
    """Return episodes of rows with given folds, two segments to a recording."""
    recording = []
    for i, f in enumerate(fold.tolist()):
        place = np.count_nonzero(fold[:i] == f)
        recording.append(f"{f}/{place // 2}")
    names = [f"type {n:02d}" for n in label]
    segment = [f"s{i:04d}" for i in range(len(label))]
    table = Vectors.from_columns(
        "test", vectors, segment, recording, names, [(name,) for name in names], fold
    )
    folds = check_folds(recording, fold)
    return plan_episodes(table, folds, count_classes(names, folds))


def probabilities(scores):
    """Return the probabilities of log-odds."""
    return 1.0 / (1.0 + np.exp(-scores))


@pytest.mark.parametrize("dimensions", [6, 200], ids=["n > d", "n < d"])
@pytest.mark.parametrize("c", [0.01, 1.0])
def test_probabilities_are_scikit_learns_to_a_millionth(c, dimensions):
    episodes = gaussian(dimensions=dimensions)
    scores, c_values = score_logistic(episodes, c=c)
    assert c_values == (c,) * 5
    for fold in range(5):
        outside = episodes.fold != fold
        regression = LogisticRegression(C=c, tol=1e-10, max_iter=100_000)
        model = make_pipeline(StandardScaler(), regression)
        model.fit(episodes.vectors[outside], episodes.label[outside])
        golden = model.predict_proba(episodes.vectors[~outside])
        np.testing.assert_allclose(probabilities(scores[~outside]), golden, atol=1e-6)
    assert np.isnan(scores[episodes.fold < 0]).all()


def test_every_c_of_one_split_has_its_own_optimum():
    for dimensions in (6, 200):
        episodes = gaussian(dimensions=dimensions)
        outside = episodes.fold != 1
        vectors = episodes.vectors[outside]
        label = episodes.label[outside]
        layers = fit_each(vectors, label, len(episodes.classes), C_GRID, 1e-15)
        for c, layer in zip(C_GRID, layers, strict=True):
            alone = fit(vectors, label, len(episodes.classes), c)
            np.testing.assert_allclose(
                log_odds(layer(vectors)), log_odds(alone(vectors)), atol=2e-6
            )


@pytest.mark.parametrize(
    ("sizes", "dimensions"), [((2, 2), 1), ((2, 40, 300), 3), ((2, 2, 2, 2), 50)]
)
def test_a_single_exemplar_in_a_split_and_classes_of_any_size_are_trained_on(
    sizes, dimensions
):
    episodes = gaussian(sizes, dimensions, folds=2, common=0)
    scores, c_values = score_logistic(episodes)
    assert c_values == (DEFAULT_C,) * 2  # two folds leave no inner folds
    assert np.isfinite(scores).all()


def test_equal_rows_and_constant_columns_are_trained_on_and_equal_queries_tie():
    episodes = gaussian(dimensions=8)
    vectors = episodes.vectors.copy()
    vectors[:, 3:6] = 5.0
    vectors[1::2] = vectors[0:-1:2]
    scores, _ = score_logistic(dataclasses.replace(episodes, vectors=vectors), c=1.0)
    for fold in range(5):
        rows = np.flatnonzero(episodes.fold == fold)
        for i in rows:
            is_twin = (vectors[rows] == vectors[i]).all(axis=1)
            assert len(np.unique(scores[rows[is_twin]], axis=0)) == 1


@settings(max_examples=20)
@given(st.integers(3, 12), st.integers(0, 2))
def test_inner_folds_hold_every_class_no_query_and_no_recording_twice(folds, number):
    episodes = gaussian((40, 24, 12), folds=folds)
    groups = np.array(episodes.recording)
    inner = support_side(episodes, number)
    support = episodes.fold != number
    assert inner.folds == min(folds - 1, 4)
    assert len(inner.fold) == support.sum()
    assert (inner.vectors == episodes.vectors[support]).all()
    assert ((inner.fold == -1) == (episodes.fold[support] == -1)).all()
    for fold in range(inner.folds):
        assert set(inner.label[inner.fold == fold]) == {0, 1, 2}
        inside = groups[support][inner.fold == fold]
        outside = groups[support][inner.fold != fold]
        assert not set(inside) & set(outside)


def test_many_rows_are_standardised_as_by_scikit_learn():
    vectors = (
        np.random.default_rng(0).normal(size=(50, 7)) * [1, 2, 3, 4, 5, 6, 0.9] + 100.0
    )
    golden = StandardScaler().fit(vectors)
    rows, mean, deviation = standardise(vectors)
    np.testing.assert_allclose(rows, golden.transform(vectors), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mean, golden.mean_)
    np.testing.assert_allclose(deviation, golden.scale_)


def test_a_column_in_which_few_rows_happen_to_agree_is_not_blown_up():
    vectors = np.array([[1.0, 5.0, 0.3], [2.0, 9.0, 0.3000001]])
    rows, _, deviation = standardise(vectors)
    expected = vectors.std(axis=0)
    expected[2] = np.median(expected) / np.sqrt(2)
    np.testing.assert_allclose(deviation, expected)
    assert np.abs(rows[:, 2]).max() < 1e-6


@given(st.floats(-1e6, 1e6), st.integers(2, 30))
def test_a_constant_column_is_exactly_zero(value, count):
    vectors = np.random.default_rng(count).normal(size=(count, 4))
    vectors[:, 1:] = value
    rows, mean, _ = standardise(vectors)
    assert not rows[:, 1:].any()
    assert (mean[1:] == value).all()
    assert np.isfinite(rows).all()


# Leak detectors: nothing of the query folds may reach a model.


@pytest.mark.parametrize("c", [0.0, 1e9, float("nan")])
def test_a_c_out_of_range_is_an_error(c):
    episodes = gaussian()
    with pytest.raises(OptionError, match=r"C: expected 1e-06 to 1e\+06, got"):
        score_logistic(episodes, c=c)


# The choice of C on inner folds: the grid's best, as scikit-learn's fits and metrics rank it.


def small(seed):
    """Return episodes with two or three segments of each class in each of four folds."""
    return gaussian((9, 8, 8), 5, separation=0.7, folds=4, common=1, seed=seed)


def rank_by_scikit_learn(inner, c):
    """Return the AUROC and the accuracy of scikit-learn's fits, averaged over inner folds."""
    aurocs = []
    accuracies = []
    for fold in range(inner.folds):
        outside = inner.fold != fold
        queries = inner.fold == fold
        label = inner.label[queries]
        regression = LogisticRegression(C=c, tol=1e-10, max_iter=100_000)
        model = make_pipeline(StandardScaler(), regression)
        model.fit(inner.vectors[outside], inner.label[outside])
        scores = log_odds(model.decision_function(inner.vectors[queries]))
        of_classes = [roc_auc_score(label == n, scores[:, n]) for n in range(3)]
        aurocs.append(np.mean(of_classes))
        accuracies.append(np.mean(scores.argmax(axis=1) == label))
    return round(float(np.mean(aurocs)), 9), round(float(np.mean(accuracies)), 9)


def choose_by_scikit_learn(episodes, number):
    """Return the C with the best AUROC, among equals the best accuracy, then the smallest."""
    inner = support_side(episodes, number)
    ranks = [rank_by_scikit_learn(inner, c) for c in C_GRID]
    return C_GRID[ranks.index(max(ranks))]


@threadpool_limits.wrap(limits=1)
def test_small_splits_have_scikit_learns_choice():
    chosen = set()
    for seed, number in ((0, 0), (1, 1), (1, 3)):
        episodes = small(seed)
        c = choose_c(episodes, number)
        assert c == choose_by_scikit_learn(episodes, number), (seed, number)
        chosen.add(c)
    assert len(chosen) > 1


def test_every_c_is_tried_also_after_a_worse_one(monkeypatch):
    episodes = small(0)
    auroc = dict.fromkeys(C_GRID, 0.5) | {C_GRID[0]: 0.7, C_GRID[-1]: 0.8}
    accuracy = dict.fromkeys(C_GRID, 0.0)

    def measure(_, c):
        return {("all", "auroc"): auroc[c], ("all", "accuracy"): accuracy[c]}

    monkeypatch.setattr(logistic, "score_each", lambda *_: iter(C_GRID))
    monkeypatch.setattr(logistic, "gather", lambda _, tables: tables[0])
    monkeypatch.setattr(logistic, "measure", measure)
    assert choose_c(episodes, 0) == C_GRID[-1]
    auroc[C_GRID[-1]] = 0.7 + 1e-15  # a last digit makes no difference
    assert choose_c(episodes, 0) == C_GRID[0]
    accuracy[C_GRID[-1]] = 0.1  # among equals, the better accuracy
    assert choose_c(episodes, 0) == C_GRID[-1]


def test_labels_other_than_the_centre_one_do_not_choose_c():
    for seed in range(2):
        episodes = small(seed)
        relevant = episodes.relevant.copy()
        relevant[::2, 0] = True
        overlapping = dataclasses.replace(episodes, relevant=relevant)
        assert not (overlapping.relevant == episodes.relevant).all()
        for number in range(4):
            assert choose_c(overlapping, number) == choose_c(episodes, number)


def test_a_choice_can_be_stopped_before_each_c(monkeypatch):
    left = [1, 1, 1]
    monkeypatch.setattr(
        logistic,
        "measure",
        lambda *_: dict.fromkeys([("all", "auroc"), ("all", "accuracy")], 0.5),
    )
    with pytest.raises(IndexError):
        choose_c(small(0), 0, left.pop)
    assert not left


@pytest.mark.parametrize("shape", [(60, 8), (40, 90)])
def test_both_solvers_train_the_same_layers(monkeypatch, shape):
    rng = np.random.default_rng(0)
    label = np.arange(shape[0]) % 3
    vectors = rng.normal(size=shape) + label[:, None]
    layers = []
    for limit in (0, np.inf):
        monkeypatch.setattr(logistic, "LARGE_TABLE", limit)
        c_values = (0.01, 0.1, 1.0)
        found = fit_each(vectors, label, 3, c_values, EXACT)
        layers.append(list(found))
    for first, second in zip(*layers, strict=True):
        # A shift of all biases alike changes nothing.
        expected = log_odds(second(vectors))
        np.testing.assert_allclose(log_odds(first(vectors)), expected, atol=1e-6)
