"""Logistic regression on all labels and at every k, against scikit-learn's."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import expit
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from threadpoolctl import threadpool_limits

import literal
from callshot.baselines import logistic
from callshot.baselines.logistic import (
    C_GRID,
    DEFAULT_C,
    EXACT,
    choose_c,
    fit_each,
    fit_nested,
    score_logistic,
    standardise,
    support_side,
    sweep_logistic,
)
from callshot.baselines.scoring import measure
from callshot.errors import OptionError
from callshot.fewshot import reference
from callshot.fewshot.centroid import log_odds
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.ridge import support_rows
from callshot.fewshot.spreads import make_spread
from callshot.fewshot.sweep import (
    count_recordings,
    small_sample_inflation,
    widen_to_prediction,
)
from corpora import episodes_of, gaussian_corpus
from literal_total import total_values


def gaussian(sizes=(30, 20, 10), dimensions=6, **options):
    """Return episodes of Gaussian classes with recordings of two segments."""
    options = {"folds": 5, "common": 3, "calls": 2, **options}
    return episodes_of(gaussian_corpus(sizes, dimensions, **options))


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
        np.testing.assert_allclose(expit(scores[~outside]), golden, atol=1e-6)
    assert np.isnan(scores[episodes.fold < 0]).all()


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


@settings(max_examples=10)
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


@given(st.floats(-1e6, 1e6), st.integers(2, 30))
def test_a_constant_column_is_exactly_zero(value, count):
    vectors = np.random.default_rng(count).normal(size=(count, 4))
    vectors[:, 1:] = value
    rows, mean, _ = standardise(vectors)
    assert not rows[:, 1:].any()
    assert (mean[1:] == value).all()
    assert np.isfinite(rows).all()


@pytest.mark.parametrize("c", [0.0, 1e9, float("nan")])
def test_a_c_out_of_range_is_an_error(c):
    episodes = gaussian()
    for function in (score_logistic, sweep_logistic):
        with pytest.raises(OptionError, match=r"C: expected 1e-06 to 1e\+06, got"):
            function(episodes, c=c)


def test_two_folds_leave_no_inner_folds_and_a_class_may_have_one_exemplar():
    scores, c_values = score_logistic(gaussian((2, 2, 40), 3, folds=2, common=0))
    assert c_values == (DEFAULT_C,) * 2
    assert np.isfinite(scores).all()


# The choice of C on inner folds: the grid's best, as scikit-learn's fits and metrics rank it.


def small(seed):
    """Return episodes with two or three segments of each class in each of four folds.

    Some have a second label, which must not choose C.
    """
    options = {"separation": 0.7, "folds": 4, "common": 1, "seed": seed}
    episodes = gaussian((9, 8, 8), 5, **options)
    relevant = episodes.relevant.copy()
    relevant[::2, 0] = True
    return dataclasses.replace(episodes, relevant=relevant)


def rank_by_scikit_learn(inner, c):
    """Return the AUROC and the accuracy of scikit-learn's fits, averaged over inner folds."""
    aurocs = []
    accuracies = []
    for fold in range(inner.folds):
        outside = inner.fold != fold
        queries = inner.fold == fold
        label = inner.label[queries]
        regression = LogisticRegression(C=c, tol=1e-6, max_iter=100_000)
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
    for seed, number in ((0, 0), (1, 1)):
        episodes = small(seed)
        c = choose_c(episodes, number)
        assert c == choose_by_scikit_learn(episodes, number), (seed, number)
        chosen.add(c)
    assert len(chosen) > 1


def test_every_c_is_tried_also_after_a_worse_one(monkeypatch):
    episodes = small(0)
    auroc = dict.fromkeys(C_GRID, 0.5) | {C_GRID[0]: 0.7, C_GRID[-1]: 0.8}
    accuracy = dict.fromkeys(C_GRID, 0.0)

    def rank(_, c):
        return {("all", "auroc"): auroc[c], ("all", "accuracy"): accuracy[c]}

    monkeypatch.setattr(logistic, "score_each", lambda *_: iter(C_GRID))
    monkeypatch.setattr(logistic, "gather_log_odds", lambda _, logits: logits[0])
    monkeypatch.setattr(logistic, "measure", rank)
    assert choose_c(episodes, 0) == C_GRID[-1]
    auroc[C_GRID[-1]] = 0.7 + 1e-15  # a last digit makes no difference
    assert choose_c(episodes, 0) == C_GRID[0]
    accuracy[C_GRID[-1]] = 0.1  # among equals, the better accuracy
    assert choose_c(episodes, 0) == C_GRID[-1]


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


SHOTS = Protocol(shots=(1, 2, 3, 5, 9), shared_draws=4, total_samples=4)


KEYS = [("all", "map"), ("all", "auroc"), ("all", "accuracy")]


def column_moments(rows):
    """Return mean and deviation as `standardise` defines them, written again."""
    mean = rows.mean(axis=0)
    deviation = rows.std(axis=0)
    middle = np.sort(deviation)[len(deviation) // 2]
    deviation = np.maximum(deviation, middle / np.sqrt(len(rows)))
    return mean, np.where(deviation == 0.0, 1.0, deviation)


def fit_and_score(episodes, query, supports, _=None):
    """a_n of a query by scikit-learn's fit with C = 1."""
    rows = np.concatenate(supports)
    mean, deviation = column_moments(episodes.vectors[rows])
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=1000, solver="newton-cg")
    model.fit((episodes.vectors[rows] - mean) / deviation, episodes.label[rows])
    z = (episodes.vectors[[query]] - mean) / deviation
    return model.decision_function(z)[0]


def slow_values(episodes, protocol, spread, k):
    """mAP, AUROC and accuracy of every sample, (samples, 3), on the draws of the reference."""
    if spread == "total":
        return total_values(episodes, protocol, k, fit_and_score)
    classes = range(len(episodes.classes))
    values = np.empty((protocol.samples(spread), episodes.folds, 3))
    for fold in range(episodes.folds):
        queries = np.flatnonzero(episodes.fold == fold)
        for b in range(len(values)):
            sample = []
            for query in queries:
                key = episodes.segment_key[query]
                draw = b
                if spread == "per-query":
                    draw = literal.pick_draw(protocol.seed, key, b, protocol.draws)
                of_draw = (episodes, protocol, spread, query, draw)
                supports = [reference.draw_support(*of_draw, n, k) for n in classes]
                a = fit_and_score(episodes, query, supports)
                sample.append([*reference.log_odds(a.tolist()), a.argmax()])
            relevant = episodes.relevant[queries]
            values[b, fold] = reference.measure(np.array(sample), relevant)
    return values.mean(axis=1)


@pytest.mark.parametrize(
    ("spread", "dimensions", "sampler"),
    [
        ("shared", 4, "distinct"),  # by weights from k = 2 on
        ("shared", 30, "replacement"),  # in the span
        ("per-query", 4, "replacement"),
        ("total", 30, "distinct"),
    ],
)
def test_every_value_is_that_of_a_loop_over_scikit_learn(spread, dimensions, sampler):
    episodes = episodes_of(gaussian_corpus((9, 6, 5), dimensions))
    protocol = Protocol(
        shots=(1, 3),
        draws=2,
        bootstraps=3,
        shared_draws=2,
        total_samples=2,
        sampler=sampler,
    )
    k, sums = sweep_logistic(episodes, protocol, spread, c=1.0)
    assert k.tolist() == [1, 3]
    for s, shot in enumerate(protocol.shots):
        golden = slow_values(episodes, protocol, spread, shot)
        for key, column in zip(KEYS, golden.T, strict=True):
            np.testing.assert_allclose(sums.values[key][s], column, atol=1e-9)


@pytest.mark.parametrize(
    ("spread", "shots"), [("shared", (2,)), ("shared", ()), ("per-query", (2,))]
)
def test_shots_all_is_logistic_regression_on_the_whole_support_side(spread, shots):
    episodes = episodes_of(gaussian_corpus((12, 8, 5), 6))
    protocol = Protocol(
        shots=shots, whole_pool=True, draws=2, bootstraps=3, shared_draws=3
    )
    k, sums = sweep_logistic(episodes, protocol, spread)
    golden = measure(episodes, score_logistic(episodes, c=DEFAULT_C)[0])
    assert k.tolist() == [*shots, 9]
    for key in KEYS:
        whole = sums.values[key][-1]
        np.testing.assert_allclose(whole, golden[key], rtol=0, atol=1e-12)


@pytest.mark.parametrize("spread", ["shared", "total"])
def test_a_longer_sweep_more_draws_and_threads_change_nothing(spread):
    episodes = episodes_of(gaussian_corpus((12, 8, 5), 30, separation=0.3))
    short = Protocol(shots=(1, 2, 3))
    longer = dataclasses.replace(short, shots=(1, 2, 3, 7, 40))
    _, few = sweep_logistic(episodes, short, spread, draws=3, threads=1)
    _, more = sweep_logistic(episodes, longer, spread, draws=5, threads=2)
    other = dataclasses.replace(short, seed=1)
    _, seeded = sweep_logistic(episodes, other, spread, draws=3)
    for key in KEYS:
        np.testing.assert_array_equal(more.values[key][:3, :3], few.values[key])
        assert (seeded.values[key] != few.values[key]).any()


@pytest.mark.parametrize(("c", "dimensions"), [(1.0, 4), (0.01, 60), (100.0, 60)])
def test_every_fit_is_within_a_millionth_of_the_optimum(c, dimensions):
    table = gaussian_corpus((20, 3, 9, 6), dimensions)
    # Columns of different scale: each fit starts from one that was standardised differently.
    units = 10.0 ** np.linspace(-2, 3, dimensions)
    episodes = episodes_of(dataclasses.replace(table, matrix=table.matrix * units))
    shots = np.array([1, 2, 4, 8, 16])
    rows, sizes = support_rows(make_spread("shared", episodes, SHOTS), 0, 0, shots)
    weights, biases = fit_nested(
        episodes.vectors[rows], episodes.label[rows], sizes, 4, c
    )
    for size, weight, bias in zip(sizes, weights, biases, strict=True):
        vectors = episodes.vectors[rows[:size]]
        label = episodes.label[rows[:size]]
        mean, deviation = column_moments(vectors)
        table = (vectors - mean) / deviation
        golden = LogisticRegression(C=c, tol=1e-10, max_iter=100_000).fit(table, label)
        best = literal.logistic_objective(
            table, label, golden.coef_, golden.intercept_, c
        )
        ours = literal.logistic_objective(
            table, label, weight * deviation, bias + weight @ mean, c
        )
        assert abs(ours - best) < 1e-6


def test_reduced_scoring_progress_decisions_and_predictions_are_returned():
    episodes = episodes_of(gaussian_corpus((12, 8, 5), 4))
    shares = []
    _, sums = sweep_logistic(
        episodes,
        SHOTS,
        categories={"type 0": "low", "type 1": "low", "type 2": "high"},
        progress=lambda share, _: shares.append(share),
    )
    assert sum(shares) == pytest.approx(1.0)
    per_class = sums.per_class["map"]
    reduced = (per_class[:, :2].mean(axis=1) + per_class[:, 2]) / 2
    np.testing.assert_allclose(sums.values["reduced", "map"], reduced, atol=1e-12)
    np.testing.assert_allclose(sums.decisions.sum(axis=(1, 2)), 24)
    _, raw = sweep_logistic(episodes, SHOTS, "total")
    _, total = sweep_logistic(episodes, SHOTS, "total", shared=sums)
    inflation = small_sample_inflation(count_recordings(episodes)).mean()
    for key in KEYS:
        values = (raw.values[key], sums.values[key])
        golden = widen_to_prediction(*values, inflation=float(inflation))
        np.testing.assert_array_equal(total.values[key], golden)
