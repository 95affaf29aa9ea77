import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot.errors import InputError
from callshot.fewshot.centroid import linear_layer, score
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.evaluate import evaluate
from callshot.fewshot.folds import count_classes
from callshot.fewshot.protocol import Protocol
from callshot.rivals.measuring import measure, measure_classes, tally_scores
from corpora import folds_of, random_corpus

CATEGORIES = {"c0": "low", "c1": "low", "c2": "high"}


def episodes_of(table):
    folds = folds_of(table)
    return plan_episodes(table, folds, count_classes(table.label, folds))


def centroid_scores(episodes):
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold in range(episodes.folds):
        outside = episodes.fold != fold
        layer = linear_layer(episodes.vectors[outside], np.array(episodes.classes)[episodes.label[outside]])
        scores[~outside] = score(layer(episodes.vectors[~outside]))
    return scores


@pytest.mark.parametrize("seed", range(5))
def test_a_centroid_on_the_whole_pool_scores_what_evaluate_says_of_shots_all(seed):
    table = random_corpus(seed, classes=4, size=4, dimensions=5, integers=False)
    protocol = Protocol(shots=(), whole_pool=True, shared_draws=1, spreads=("shared",))
    golden = evaluate([table], protocol, folds=folds_of(table), categories=CATEGORIES)
    episodes = episodes_of(table)
    scores = centroid_scores(episodes)
    assert measure(episodes, scores, CATEGORIES) == pytest.approx({(c.scoring, c.metric): c.mean for c in golden.curve})
    found = measure_classes(episodes, scores)
    for c in golden.per_class:
        assert found[c.metric][episodes.classes.index(c.label)] == pytest.approx(c.mean, nan_ok=True)


def slowly(episodes, scores):
    """Macro over classes inside a fold, then over folds, by scikit-learn."""
    ap, auroc = [], []
    for fold in range(episodes.folds):
        rows = episodes.fold == fold
        truth, found = episodes.relevant[rows], scores[rows]
        ap.append(np.mean([average_precision_score(t, s) for t, s in zip(truth.T, found.T, strict=True)]))
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
        tally_scores(episodes, np.zeros(episodes.relevant.shape)).tied[0] == episodes.relevant[queries].sum(0)
    ).all()
    scores = np.random.default_rng(0).permutation(episodes.relevant.size).reshape(episodes.relevant.shape) * 1.0
    assert not tally_scores(episodes, scores).tied.any()


def test_reduced_scoring_averages_inside_categories_first():
    episodes = episodes_of(random_corpus(4, classes=3, folds=2, size=4))
    assert episodes.classes == ("c0", "c1", "c2")
    scores = np.random.default_rng(0).normal(size=episodes.relevant.shape)
    ap = measure_classes(episodes, scores)["map"]
    assert measure(episodes, scores, CATEGORIES)["reduced", "map"] == pytest.approx((ap[:2].mean() + ap[2]) / 2)


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
