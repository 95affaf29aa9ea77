"""The choice of C on inner folds: the grid's best, as scikit-learn's fits and metrics rank it."""

import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from callshot.baselines import logistic
from callshot.baselines.logistic import C_GRID, choose_c, support_side
from callshot.fewshot.centroid import log_odds
from gaussian_episodes import gaussian


def small(seed):
    """Return episodes with two or three segments of each class in each of four folds."""
    return gaussian((9, 8, 8), 5, separation=0.7, folds=4, common=1, seed=seed)[0]


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


def test_many_small_splits_have_scikit_learns_choice():
    chosen = []
    for seed in range(4):
        episodes = small(seed)
        for number in range(4):
            c = choose_c(episodes, number)
            assert c == choose_by_scikit_learn(episodes, number), (seed, number)
            chosen.append(c)
    assert len(set(chosen)) > 4


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
    for seed in range(6):
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
