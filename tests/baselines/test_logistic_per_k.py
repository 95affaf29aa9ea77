"""Logistic regression at every k, against a loop over scikit-learn on the reference's draws."""

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import literal
from callshot.baselines.logistic import DEFAULT_C, score_logistic
from callshot.baselines.logistic_per_k import fit_nested, support_rows, sweep_logistic
from callshot.baselines.scoring import measure
from callshot.errors import OptionError
from callshot.fewshot import reference
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import make_spread
from callshot.fewshot.sweep import (
    count_recordings,
    small_sample_inflation,
    widen_to_prediction,
)
from callshot.vectors import Vectors
from corpora import episodes_of
from literal_total import literal_metrics, literal_support, literal_weights

SHOTS = Protocol(shots=(1, 2, 3, 5, 9), shared_draws=4, total_samples=4)
KEYS = [("all", "map"), ("all", "auroc"), ("all", "accuracy")]


def corpus(sizes=(12, 8, 5), dimensions=4, *, separation=1.0, folds=3, seed=0):
    """Return embeddings of Gaussian classes; the first row is in the common fold."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    fold = np.concatenate([np.arange(size) % folds for size in sizes])
    fold[0] = -1
    means = separation * rng.normal(size=(len(sizes), dimensions))
    vectors = means[label] + rng.normal(size=(len(label), dimensions))
    names = [f"type {n:02d}" for n in label]
    segment = [f"s{i:04d}" for i in rng.permutation(len(label))]
    return Vectors.from_columns(
        "test", vectors, segment, segment, names, [(name,) for name in names], fold
    )


def column_moments(rows):
    """Return mean and deviation as `standardise` defines them, written again."""
    mean = rows.mean(axis=0)
    deviation = rows.std(axis=0)
    middle = np.sort(deviation)[len(deviation) // 2]
    deviation = np.maximum(deviation, middle / np.sqrt(len(rows)))
    return mean, np.where(deviation == 0.0, 1.0, deviation)


def objective(rows, label, weight, bias, c):
    logits = rows @ weight.T + bias
    loss = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(label)), label]
    return loss.sum() + (weight**2).sum() / (2 * c)


def slow_values(episodes, protocol, spread, k):
    """mAP, AUROC and accuracy of every sample, (samples, 3): draws and metrics of the reference,
    fits of scikit-learn with C = 1."""
    models = {}

    def scores(query, number):
        supports = [
            reference.draw_support(episodes, protocol, spread, query, number, n, k)
            for n in range(len(episodes.classes))
        ]
        rows = np.concatenate(supports)
        mean, deviation = column_moments(episodes.vectors[rows])
        if tuple(rows) not in models:
            table = (episodes.vectors[rows] - mean) / deviation
            model = LogisticRegression(C=1.0, tol=1e-10, max_iter=100_000)
            models[tuple(rows)] = model.fit(table, episodes.label[rows])
        z = (episodes.vectors[[query]] - mean) / deviation
        (a,) = models[tuple(rows)].decision_function(z)
        return [*reference.log_odds(a.tolist()), a.argmax()]

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
                sample.append(scores(query, draw))
            values[b, fold] = reference.measure(
                np.array(sample), episodes.relevant[queries]
            )
    return values.mean(axis=1)


def check_values(sums, shot, golden):
    for key, column in zip(KEYS, golden.T, strict=True):
        np.testing.assert_allclose(sums.values[key][shot], column, atol=1e-9)


@pytest.mark.parametrize(
    ("dimensions", "sampler"),
    [(4, "distinct"), (30, "replacement")],
    ids=["by weights from k = 2 on", "in the span"],
)
def test_every_value_is_that_of_a_loop_over_scikit_learn(dimensions, sampler):
    episodes = episodes_of(corpus(dimensions=dimensions))
    protocol = Protocol(
        shots=(1, 2, 6), shared_draws=2, total_samples=2, sampler=sampler
    )
    k, sums = sweep_logistic(episodes, protocol, c=1.0)
    assert k.tolist() == [1, 2, 6]
    for s, shot in enumerate(protocol.shots):
        check_values(sums, s, slow_values(episodes, protocol, "shared", shot))


@pytest.mark.parametrize(("c", "dimensions"), [(1.0, 4), (0.01, 60), (100.0, 60)])
def test_every_fit_is_within_a_millionth_of_the_optimum(c, dimensions):
    table = corpus((20, 3, 9, 6), dimensions)
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
        best = objective(table, label, golden.coef_, golden.intercept_, c)
        ours = objective(table, label, weight * deviation, bias + weight @ mean, c)
        assert abs(ours - best) < 1e-6


def test_the_draws_are_those_of_the_shared_spread_and_each_begins_with_the_one_before():
    episodes = episodes_of(corpus((12, 8, 5)))
    shots = np.array([1, 2, 3, 40])
    for f in range(3):
        query = np.flatnonzero(episodes.fold == f)[0]
        rows, sizes = support_rows(make_spread("shared", episodes, SHOTS), f, 2, shots)
        for k, size in zip(shots, sizes, strict=True):
            golden = set()
            for n in range(3):
                golden.update(
                    reference.draw_support(episodes, SHOTS, "shared", query, 2, n, k)
                )
            assert set(rows[:size].tolist()) == golden
            assert size == len(golden)


def test_shots_all_is_logistic_regression_on_the_whole_support_side():
    episodes = episodes_of(corpus((12, 8, 5), 6))
    protocol = Protocol(shots=(2,), whole_pool=True, shared_draws=3, total_samples=3)
    k, sums = sweep_logistic(episodes, protocol)
    golden = measure(episodes, score_logistic(episodes, c=DEFAULT_C)[0])
    assert k.tolist() == [2, 9]
    for key in KEYS:
        assert set(sums.values[key][1]) == {
            golden[key]
        }  # to the last digit, in every draw


def test_a_longer_sweep_more_draws_and_threads_change_nothing():
    episodes = episodes_of(corpus((12, 8, 5), 30, separation=0.3))
    _, short = sweep_logistic(episodes, Protocol(shots=(1, 2, 3)), draws=3, threads=1)
    _, long = sweep_logistic(
        episodes, Protocol(shots=(1, 2, 3, 7, 40)), draws=5, threads=2
    )
    for key in KEYS:
        assert short.values[key].tobytes() == long.values[key][:3, :3].tobytes()
    _, other = sweep_logistic(episodes, Protocol(shots=(1, 2, 3), seed=1), draws=3)
    assert other.values["all", "map"].tobytes() != short.values["all", "map"].tobytes()


def test_reduced_scoring_progress_and_decisions_are_returned():
    episodes = episodes_of(corpus())
    shares = []
    _, sums = sweep_logistic(
        episodes,
        SHOTS,
        categories={"type 00": "low", "type 01": "low", "type 02": "high"},
        progress=lambda share, _: shares.append(share),
    )
    assert sum(shares) == pytest.approx(1.0)
    per_class = sums.per_class["map"]
    reduced = (per_class[:, :2].mean(axis=1) + per_class[:, 2]) / 2
    np.testing.assert_allclose(sums.values["reduced", "map"], reduced, atol=1e-12)
    np.testing.assert_allclose(sums.decisions.sum(axis=(1, 2)), 24)


def test_one_exemplar_constant_columns_and_equal_rows_are_trained_on():
    table = corpus((3, 3, 60), 5, folds=3)
    vectors = np.array(table.matrix)
    vectors[:, 1:3] = 7.0
    vectors[3:6] = vectors[3]
    _, sums = sweep_logistic(
        episodes_of(dataclasses.replace(table, matrix=vectors)), SHOTS
    )
    assert all(np.isfinite(sums.values[key]).all() for key in KEYS)


@pytest.mark.parametrize("c", [0.0, 1e7])
def test_a_c_out_of_range_is_an_error(c):
    with pytest.raises(OptionError, match="C: expected 1e-06"):
        sweep_logistic(episodes_of(corpus()), SHOTS, c=c)


def test_with_draws_for_every_query_each_value_is_that_of_a_loop_over_scikit_learn():
    episodes = episodes_of(corpus((9, 6, 5), 4))
    protocol = Protocol(shots=(1, 3), draws=2, bootstraps=5, sampler="replacement")
    k, sums = sweep_logistic(episodes, protocol, "per-query", c=1.0)
    assert k.tolist() == [1, 3]
    for s, shot in enumerate(protocol.shots):
        check_values(sums, s, slow_values(episodes, protocol, "per-query", shot))


def test_with_draws_for_every_query_all_is_the_whole_support_side():
    episodes = episodes_of(corpus((12, 8, 5), 6))
    protocol = Protocol(shots=(2,), whole_pool=True, draws=2, bootstraps=3)
    _, sums = sweep_logistic(episodes, protocol, "per-query")
    golden = measure(episodes, score_logistic(episodes, c=DEFAULT_C)[0])
    for key in KEYS:
        assert sums.values[key][1] == pytest.approx(golden[key], abs=1e-12)


def fit_and_score(episodes, rows, query):
    """Log-odds of one query by scikit-learn's fit with C = 1, and its decision."""
    mean, deviation = column_moments(episodes.vectors[rows])
    model = LogisticRegression(C=1.0, tol=1e-10, max_iter=100_000)
    model.fit((episodes.vectors[rows] - mean) / deviation, episodes.label[rows])
    (a,) = model.decision_function((episodes.vectors[[query]] - mean) / deviation)
    return reference.log_odds(a.tolist()), int(a.argmax())


def slow_total(episodes, protocol, k):
    """mAP, AUROC and accuracy of every sample, (samples, 3)."""
    values = []
    for sample in range(protocol.total_samples):
        weights = literal_weights(episodes, protocol, sample)
        sums = np.zeros((2, len(episodes.classes)))
        shares = np.zeros(len(episodes.classes))
        hits = 0.0
        for fold in range(episodes.folds):
            queries = np.flatnonzero(episodes.fold == fold)
            supports = [
                literal_support(episodes, protocol, sample, weights, fold, n, k)
                for n in range(len(episodes.classes))
            ]
            rows = np.concatenate(supports)
            scored = [fit_and_score(episodes, rows, query) for query in queries]
            scores = np.array([odds for odds, _ in scored])
            for query, (_, decided) in zip(queries, scored, strict=True):
                hit = episodes.relevant[query, decided]
                hits += weights[query] * hit / len(queries)
            for n, relevant in enumerate(episodes.relevant[queries].T):
                share = weights[queries][relevant].mean()
                metrics = literal_metrics(scores[:, n], relevant, weights[queries])
                sums[:, n] += share * np.array(metrics)
                shares[n] += share
        fold_weights = [
            weights[episodes.fold == fold].mean() for fold in range(episodes.folds)
        ]
        values.append([*(sums / shares).mean(axis=1), hits / sum(fold_weights)])
    return np.array(values)


def test_samples_of_total_are_those_of_a_loop_over_scikit_learn():
    episodes = episodes_of(corpus(dimensions=30))
    protocol = Protocol(shots=(1, 6), total_samples=2)
    k, sums = sweep_logistic(episodes, protocol, "total", c=1.0)
    assert k.tolist() == [1, 6]
    for s, shot in enumerate(protocol.shots):
        check_values(sums, s, slow_total(episodes, protocol, shot))


def test_fewer_samples_of_total_are_the_first_and_threads_change_nothing():
    episodes = episodes_of(corpus())
    _, golden = sweep_logistic(episodes, SHOTS, "total", draws=4, threads=1)
    _, few = sweep_logistic(episodes, SHOTS, "total", draws=3, threads=3)
    for key in KEYS:
        np.testing.assert_array_equal(few.values[key], golden.values[key][:, :3])


def test_with_shared_draws_total_is_predicted_around_their_mean():
    episodes = episodes_of(corpus())
    _, shared = sweep_logistic(episodes, SHOTS)
    _, raw = sweep_logistic(episodes, SHOTS, "total")
    _, total = sweep_logistic(episodes, SHOTS, "total", shared=shared)
    recordings = small_sample_inflation(count_recordings(episodes))
    for key in KEYS:
        golden = widen_to_prediction(
            raw.values[key], shared.values[key], inflation=float(recordings.mean())
        )
        np.testing.assert_array_equal(total.values[key], golden)
