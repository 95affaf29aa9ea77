import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from callshot.baselines import logistic
from callshot.baselines.logistic import (
    DEFAULT_C,
    GRID,
    choose_c,
    fit,
    fit_each,
    score_logistic,
    support_side,
)
from callshot.baselines.scoring import measure
from callshot.errors import LeakError, OptionError
from callshot.fewshot.centroid import log_odds
from callshot.fewshot.episodes import Episodes, plan_episodes
from callshot.fewshot.folds import check_folds, count_classes
from callshot.fewshot.metrics import chance_average_precision
from callshot.records import Embeddings


def gaussian(
    sizes=(30, 20, 10), dimensions=6, *, strength=1.0, folds=5, common=3, seed=0
) -> tuple[Episodes, np.ndarray]:
    """Return episodes of Gaussian classes, a few rows in the common fold, and two segments to a recording."""
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    fold = np.concatenate([np.arange(size) % folds for size in sizes])
    fold[np.flatnonzero(label == 0)[:common]] = -1
    vectors = strength * rng.normal(size=(len(sizes), dimensions))[label] + rng.normal(
        size=(len(label), dimensions)
    )
    return episodes_of(vectors, label, fold)


def episodes_of(vectors, label, fold):
    number = {f: np.flatnonzero(fold == f) for f in set(fold.tolist())}
    recording = [
        f"{f}/{int(np.searchsorted(number[f], i)) // 2}" for i, f in enumerate(fold.tolist())
    ]
    names = [f"type {n:02d}" for n in label]
    segment = [f"s{i:04d}" for i in range(len(label))]
    table = Embeddings(
        "test", vectors, segment, recording, names, [(name,) for name in names], fold
    )
    folds = check_folds(recording, fold)
    order = sorted(range(len(label)), key=lambda i: (names[i], segment[i]))
    groups = np.unique(recording, return_inverse=True)[1][order]
    return plan_episodes(table, folds, count_classes(names, folds)), groups


def probabilities(scores):
    """Odds back to probabilities."""
    return 1.0 / (1.0 + np.exp(-scores))


@pytest.mark.parametrize("dimensions", [6, 200], ids=["n > d", "n < d"])
@pytest.mark.parametrize("strength", [0.01, 1.0])
def test_probabilities_are_scikit_learns_to_a_millionth(strength, dimensions):
    episodes, groups = gaussian(dimensions=dimensions)
    scores, c_values = score_logistic(episodes, groups, strength=strength)
    assert c_values == (strength,) * 5
    for fold in range(5):
        outside = episodes.fold != fold
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=strength, tol=1e-10, max_iter=100_000)
        )
        model.fit(episodes.vectors[outside], episodes.label[outside])
        golden = model.predict_proba(episodes.vectors[~outside])
        np.testing.assert_allclose(probabilities(scores[~outside]), golden, atol=1e-6)
    assert np.isnan(scores[episodes.fold < 0]).all()


def test_a_task_that_a_linear_layer_can_solve_is_solved():
    episodes, groups = gaussian(dimensions=40, strength=4.0)
    assert set(measure(episodes, score_logistic(episodes, groups)[0]).values()) == {1.0}


def test_the_strength_comes_from_the_grid_and_suits_the_task():
    noise, groups = gaussian(sizes=(30, 30), dimensions=30, strength=0.5, seed=3)
    chosen = score_logistic(noise, groups)[1]
    assert set(chosen) <= set(GRID)
    assert max(chosen) < GRID[-1]  # thirty noisy columns want a penalty


def test_the_search_ends_where_the_inner_folds_rank_clearly_worse_and_takes_the_best_before(
    monkeypatch,
):
    episodes, _ = gaussian()
    heard, auroc = [], dict(zip(GRID, [0.6, 0.7, 0.7, 0.695, 0.8, 0.795, 0.789, 0.9], strict=False))
    monkeypatch.setattr(logistic, "score_each", lambda *_: iter(GRID))
    monkeypatch.setattr(logistic, "gather", lambda _, tables: heard.append(tables[0]) or tables[0])
    monkeypatch.setattr(
        logistic,
        "measure",
        lambda _, c: {("all", "auroc"): auroc[c], ("all", "accuracy"): float(c == GRID[2])},
    )
    assert choose_c(episodes, 0) == GRID[4]
    assert heard == list(GRID[:7])
    auroc[GRID[4]] = 0.68  # of equals, that with the better accuracy
    assert choose_c(episodes, 0) == GRID[2]


def test_every_strength_of_one_split_has_its_own_optimum():
    for dimensions in (6, 200):
        episodes, _ = gaussian(dimensions=dimensions)
        outside = episodes.fold != 1
        vectors, label = episodes.vectors[outside], episodes.label[outside]
        for strength, layer in zip(
            GRID, fit_each(vectors, label, episodes.classes, GRID, 1e-15), strict=True
        ):
            alone = fit(vectors, label, episodes.classes, strength)
            np.testing.assert_allclose(
                log_odds(layer(vectors)), log_odds(alone(vectors)), atol=2e-6
            )


def test_threads_and_runs_cannot_be_told_apart():
    episodes, groups = gaussian(dimensions=30)
    one, two = (score_logistic(episodes, groups, threads=threads) for threads in (1, 2))
    assert one[1] == two[1]
    assert one[0].tobytes() == two[0].tobytes()


def test_progress_adds_up_to_one():
    heard = []
    episodes, groups = gaussian()
    score_logistic(
        episodes, groups, strength=1.0, progress=lambda share, what: heard.append((share, what))
    )
    assert sum(share for share, _ in heard) == pytest.approx(1.0)
    assert {what for _, what in heard} == {"logistic"}


@pytest.mark.parametrize("sizes", [(2, 2), (2, 40, 300), (2, 2, 2, 2)])
@pytest.mark.parametrize("dimensions", [1, 3, 50])
def test_a_single_exemplar_in_a_split_and_classes_of_any_size_are_trained_on(sizes, dimensions):
    episodes, groups = gaussian(sizes, dimensions, folds=2, common=0)
    scores, c_values = score_logistic(episodes, groups)
    assert c_values == (DEFAULT_C,) * 2  # two folds leave no inner folds
    assert np.isfinite(scores).all()


def test_equal_rows_and_constant_columns_are_trained_on_and_equal_queries_tie():
    episodes, groups = gaussian(dimensions=8)
    vectors = episodes.vectors.copy()
    vectors[:, 3:6] = 5.0
    vectors[1::2] = vectors[0:-1:2]
    scores, _ = score_logistic(dataclasses.replace(episodes, vectors=vectors), groups, strength=1.0)
    for fold in range(5):
        rows = np.flatnonzero(episodes.fold == fold)
        for i in rows:
            twins = [r for r in rows if (vectors[r] == vectors[i]).all()]
            assert len({scores[r].tobytes() for r in twins}) == 1


@settings(max_examples=20)
@given(st.integers(3, 12), st.integers(0, 2))
def test_inner_folds_hold_every_class_no_query_and_no_recording_twice(folds, number):
    episodes, groups = gaussian((40, 24, 12), folds=folds)
    inner = support_side(episodes, number)
    kept = episodes.fold != number
    assert inner.folds == min(folds - 1, 4)
    assert len(inner.fold) == kept.sum()
    assert (inner.vectors == episodes.vectors[kept]).all()
    assert ((inner.fold == -1) == (episodes.fold[kept] == -1)).all()
    for fold in range(inner.folds):
        assert set(inner.label[inner.fold == fold]) == {0, 1, 2}
        assert not set(groups[kept][inner.fold == fold]) & set(groups[kept][inner.fold != fold])


# Leak detectors: nothing of the query folds may reach a model.


def permuted_scores(episodes, seed):
    rng, scores = np.random.default_rng(seed), np.full(episodes.relevant.shape, np.nan)
    for fold in range(episodes.folds):
        outside = episodes.fold != fold
        label = rng.permutation(episodes.label[outside])
        layer = fit(episodes.vectors[outside], label, episodes.classes, 1.0)
        scores[~outside] = log_odds(layer(episodes.vectors[~outside]))
    return scores


def test_labels_permuted_on_the_support_side_score_chance():
    episodes, groups = gaussian((60, 60, 60), dimensions=10, strength=3.0, common=0)
    found = [measure(episodes, permuted_scores(episodes, seed)) for seed in range(40)]
    chance = {"auroc": 0.5, "map": float(chance_average_precision(12, 36)), "accuracy": 1 / 3}
    for metric, level in chance.items():
        assert np.mean([values["all", metric] for values in found]) == pytest.approx(
            level, abs=0.05
        )
    assert measure(episodes, score_logistic(episodes, groups, strength=1.0)[0])["all", "map"] > 0.98


def test_labels_permuted_between_recordings_score_chance_through_the_choice_of_a_strength_too():
    rng = np.random.default_rng(1)
    label, fold = rng.permutation(np.repeat(np.arange(3), 60)), np.arange(180) % 5
    vectors = rng.normal(size=(180, 30))
    found = measure(*_scored(*episodes_of(vectors, label, fold)))
    assert found["all", "auroc"] == pytest.approx(0.5, abs=0.1)


def _scored(episodes, groups):
    return episodes, score_logistic(episodes, groups)[0]


def test_a_feature_that_only_the_query_fold_has_does_not_help():
    episodes, groups = gaussian(dimensions=6, strength=0.5)
    honest, _ = score_logistic(episodes, groups, strength=1.0)
    for fold in range(5):
        queries = episodes.fold == fold
        tell_tale = np.where(queries, 100.0 * (episodes.label + 1), 0.0)
        marked = dataclasses.replace(
            episodes, vectors=np.column_stack([episodes.vectors, tell_tale])
        )
        scores, _ = score_logistic(marked, groups, strength=1.0)
        np.testing.assert_allclose(scores[queries], honest[queries], atol=1e-9)


def test_no_model_knows_the_vectors_of_its_queries():
    episodes, groups = gaussian(dimensions=6)
    scores, c_values = score_logistic(episodes, groups)
    for fold in range(5):
        rows = np.flatnonzero(episodes.fold == fold)
        vectors = episodes.vectors.copy()
        vectors[rows[1:]] = np.random.default_rng(0).normal(size=(len(rows) - 1, 6)) * 1000.0
        others = dataclasses.replace(episodes, vectors=vectors)
        assert choose_c(others, fold) == c_values[fold]
        again, _ = score_logistic(others, groups, strength=c_values[fold])
        np.testing.assert_allclose(again[rows[0]], scores[rows[0]], rtol=1e-12)


def test_a_recording_on_both_sides_of_a_split_is_refused():
    episodes, groups = gaussian()
    groups[episodes.fold == 1] = groups[episodes.fold == 0][0]
    with pytest.raises(LeakError, match="is in folds 0 and 1"):
        score_logistic(episodes, groups)


@pytest.mark.parametrize("strength", [0.0, -1.0, 1e9, float("nan")])
def test_a_strength_out_of_range_is_refused(strength):
    episodes, groups = gaussian()
    with pytest.raises(OptionError, match="strength: C is 1e-06 to 1e\\+06"):
        score_logistic(episodes, groups, strength=strength)
