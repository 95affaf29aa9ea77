import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot.baselines.scoring import measure, measure_outputs, tally_scores
from callshot.errors import InputError
from callshot.fewshot.centroid import linear_layer, log_odds
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import count_classes
from callshot.fewshot.protocol import Protocol
from corpora import folds_of, random_corpus

CATEGORIES = {"c0": "low", "c1": "low", "c2": "high"}


def episodes_of(table):
    folds = folds_of(table)
    return plan_episodes(table, folds, count_classes(table.label, folds))


def centroid_scores(episodes):
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold in range(episodes.folds):
        outside = episodes.fold != fold
        layer = linear_layer(
            episodes.vectors[outside], np.array(episodes.classes)[episodes.label[outside]]
        )
        scores[~outside] = log_odds(layer(episodes.vectors[~outside]))
    return scores


@pytest.mark.parametrize("seed", range(5))
def test_a_centroid_on_the_whole_pool_scores_what_evaluate_says_of_shots_all(seed):
    table = random_corpus(seed, classes=4, size=4, dimensions=5, integers=False)
    protocol = Protocol(shots=(), whole_pool=True, shared_draws=1, spreads=("shared",))
    golden = evaluate_tables([table], protocol, folds=folds_of(table), categories=CATEGORIES)
    episodes = episodes_of(table)
    scores = centroid_scores(episodes)
    assert measure(episodes, scores, CATEGORIES) == pytest.approx(
        {(c.scoring, c.metric): c.mean for c in golden.curve}
    )
    found = tally_scores(episodes, scores).per_class
    for c in golden.per_class:
        assert found[c.metric][0, episodes.classes.index(c.label), 0] == pytest.approx(
            c.mean, nan_ok=True
        )


def slowly(episodes, scores):
    """Macro over classes inside a fold, then over folds, by scikit-learn."""
    ap, auroc = [], []
    for fold in range(episodes.folds):
        rows = episodes.fold == fold
        truth, found = episodes.relevant[rows], scores[rows]
        ap.append(
            np.mean([average_precision_score(t, s) for t, s in zip(truth.T, found.T, strict=True)])
        )
        defined = [(t, s) for t, s in zip(truth.T, found.T, strict=True) if not t.all()]
        auroc.append(np.mean([roc_auc_score(t, s) for t, s in defined]) if defined else np.nan)
    return np.mean(ap), np.nanmean(auroc) if not np.isnan(auroc).all() else np.nan


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_ties_and_several_labels_count_as_in_scikit_learn(seed, values):
    episodes = episodes_of(random_corpus(seed, classes=3, size=3))
    scores = np.random.default_rng(seed).integers(0, values, episodes.relevant.shape).astype(float)
    found = measure(episodes, scores)
    ap, auroc = slowly(episodes, scores)
    assert found["all", "map"] == pytest.approx(ap)
    assert found["all", "auroc"] == pytest.approx(auroc, nan_ok=True)


def test_ties_of_positives_are_counted():
    episodes = episodes_of(random_corpus(5, size=3))
    queries = episodes.fold >= 0
    assert (
        tally_scores(episodes, np.zeros(episodes.relevant.shape)).tied[0]
        == episodes.relevant[queries].sum(0)
    ).all()
    scores = (
        np.random.default_rng(0)
        .permutation(episodes.relevant.size)
        .reshape(episodes.relevant.shape)
        * 1.0
    )
    assert not tally_scores(episodes, scores).tied.any()


def test_reduced_scoring_averages_inside_categories_first():
    episodes = episodes_of(random_corpus(4, classes=3, folds=2, size=4))
    assert episodes.classes == ("c0", "c1", "c2")
    scores = np.random.default_rng(0).normal(size=episodes.relevant.shape)
    ap = tally_scores(episodes, scores).per_class["map"][0, :, 0]
    assert measure(episodes, scores, CATEGORIES)["reduced", "map"] == pytest.approx(
        (ap[:2].mean() + ap[2]) / 2
    )


def test_what_stands_in_the_common_fold_is_not_read():
    episodes = episodes_of(random_corpus(1, size=3))
    assert (episodes.fold < 0).any()
    scores = np.random.default_rng(0).normal(size=episodes.relevant.shape)
    other = np.where((episodes.fold < 0)[:, None], np.nan, scores)
    assert measure(episodes, scores) == measure(episodes, other)
    assert tally_scores(episodes, other).decisions.sum() == (episodes.fold >= 0).sum()


def test_a_query_without_scores_is_refused():
    episodes = episodes_of(random_corpus(1))
    scores = np.zeros(episodes.relevant.shape)
    query = int(np.flatnonzero(episodes.fold >= 0)[2])
    scores[query, 1] = np.nan
    with pytest.raises(InputError, match=rf"the query in row {query} of the episodes has no score"):
        measure(episodes, scores)
    with pytest.raises(InputError, match="one score for each row and class: wanted shape"):
        measure(episodes, scores[:, :1])


@pytest.mark.parametrize("seed", range(5))
def test_outputs_that_may_be_true_together_are_measured_as_scikit_learn_does(seed):
    rng = np.random.default_rng(seed)
    targets, fold, scores = (
        rng.random((60, 4)) < 0.3,
        np.arange(60) % 3,
        rng.integers(0, 9, (60, 4)).astype(float),
    )
    parts = [(targets[fold == f], scores[fold == f]) for f in range(3)]
    found = measure_outputs(targets, fold, scores)
    assert found["map"] == pytest.approx(
        np.mean([average_precision_score(t, s) for t, s in parts]), abs=1e-12
    )
    assert found["auroc"] == pytest.approx(
        np.mean([roc_auc_score(t, s) for t, s in parts]), abs=1e-12
    )


def test_an_output_without_positives_or_with_nothing_else_is_left_out_of_a_fold():
    targets = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]], bool)
    fold, scores = (
        np.array([0, 0, 1, 1, -1]),
        np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 1], [np.nan] * 3]),
    )
    found = measure_outputs(targets, fold, scores)
    assert found["map"] == pytest.approx(np.mean([np.mean([1, 1]), np.mean([0.5, 1, 0.5])]))
    assert found["auroc"] == pytest.approx(np.mean([1, np.mean([0, 1, 0])]))
    nothing = measure_outputs(np.zeros((2, 1), bool), np.array([0, 1]), np.zeros((2, 1)))
    assert np.isnan([*nothing.values()]).all()


def test_outputs_without_a_score_each_are_refused():
    with pytest.raises(InputError, match=r"wanted shape \(2, 1\), got \(2, 2\)"):
        measure_outputs(np.ones((2, 1), bool), np.array([0, 1]), np.zeros((2, 2)))
