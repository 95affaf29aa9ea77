import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot.baselines.scoring import measure, sum_metrics
from callshot.errors import InputError
from callshot.fewshot.centroid import linear_layer, log_odds
from callshot.fewshot.episodes import Episodes
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from callshot.records import RANKING_METRICS
from corpora import episodes_of, folds_of, random_corpus

CATEGORIES = {"c0": "low", "c1": "low", "c2": "high"}


def centroid_scores(episodes):
    scores = np.full(episodes.relevant.shape, np.nan)
    for fold in range(episodes.folds):
        outside = episodes.fold != fold
        label = np.array(episodes.classes)[episodes.label[outside]]
        layer = linear_layer(episodes.vectors[outside], label)
        scores[~outside] = log_odds(layer(episodes.vectors[~outside]))
    return scores


@pytest.mark.parametrize("seed", range(2))
def test_a_centroid_on_the_whole_pool_scores_as_evaluate_does_with_shots_all(seed):
    table = random_corpus(seed, classes=4, size=4, dimensions=5, integers=False)
    protocol = Protocol(
        shots=(), whole_pool=True, shared_draws=1, total_samples=1, spreads=("shared",)
    )
    golden = evaluate_tables(
        [table], protocol, folds=folds_of(table), categories=CATEGORIES
    )
    episodes = episodes_of(table)
    scores = centroid_scores(episodes)
    curve = golden.curve.select("scoring", "metric", "mean").iter_rows()
    expected = {(scoring, metric): mean for scoring, metric, mean in curve}
    assert measure(episodes, scores, CATEGORIES) == pytest.approx(expected)
    per_class = sum_metrics(episodes, scores).per_class
    for metric, label, mean in golden.per_class.select(
        "metric", "label", "mean"
    ).iter_rows():
        value = per_class[metric][0, episodes.classes.index(label), 0]
        assert value == pytest.approx(mean, nan_ok=True)


def scikit_learn_metrics(episodes, scores):
    """Return mAP and AUROC by scikit-learn: means over classes inside a fold, then over folds."""
    ap = []
    auroc = []
    for fold in range(episodes.folds):
        rows = episodes.fold == fold
        columns = list(zip(episodes.relevant[rows].T, scores[rows].T, strict=True))
        ap.append(np.mean([average_precision_score(*column) for column in columns]))
        defined = [column for column in columns if not column[0].all()]
        if defined:
            auroc.append(np.mean([roc_auc_score(*column) for column in defined]))
    return np.mean(ap), np.mean(auroc) if auroc else np.nan


@settings(max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_ties_and_several_labels_count_as_in_scikit_learn(seed, values):
    episodes = episodes_of(random_corpus(seed, classes=3, size=3))
    scores = (
        np.random.default_rng(seed)
        .integers(0, values, episodes.relevant.shape)
        .astype(float)
    )
    measured = measure(episodes, scores)
    ap, auroc = scikit_learn_metrics(episodes, scores)
    assert measured["all", "map"] == pytest.approx(ap)
    assert measured["all", "auroc"] == pytest.approx(auroc, nan_ok=True)


def test_ties_of_positives_are_counted():
    episodes = episodes_of(random_corpus(5, size=3))
    queries = episodes.fold >= 0
    tied = sum_metrics(episodes, np.zeros(episodes.relevant.shape)).tied[0]
    assert (tied == episodes.relevant[queries].sum(axis=0)).all()
    distinct = np.random.default_rng(0).permutation(episodes.relevant.size)
    scores = distinct.reshape(episodes.relevant.shape).astype(float)
    assert not sum_metrics(episodes, scores).tied.any()


def test_scores_of_the_common_fold_are_ignored():
    episodes = episodes_of(random_corpus(1, size=3))
    assert (episodes.fold < 0).any()
    scores = np.random.default_rng(0).normal(size=episodes.relevant.shape)
    other = np.where((episodes.fold < 0)[:, None], np.nan, scores)
    assert measure(episodes, scores) == measure(episodes, other)
    assert sum_metrics(episodes, other).decisions.sum() == (episodes.fold >= 0).sum()


def test_a_query_without_scores_is_an_error():
    episodes = episodes_of(random_corpus(1))
    scores = np.zeros(episodes.relevant.shape)
    query = int(np.flatnonzero(episodes.fold >= 0)[2])
    scores[query, 1] = np.nan
    with pytest.raises(
        InputError,
        match=f"scores: row {query} of the episodes: expected numbers, got NaN",
    ):
        measure(episodes, scores)
    with pytest.raises(
        InputError,
        match=r"scores: expected shape \(\d+, \d+\), one score per row and class",
    ):
        measure(episodes, scores[:, :1])


def measure_outputs(targets, fold, scores):
    """mAP and AUROC of outputs; the classes of the episodes have no part in it."""
    rows = np.arange(len(fold))
    zeros = np.zeros(len(fold), np.int64)
    episodes = Episodes(
        classes=("call",),
        rows=rows,
        segment=(),
        recording=(),
        vectors=zeros[:, None],
        class_start=np.array([0, len(fold)]),
        fold=fold,
        folds=int(fold.max()) + 1,
        relevant=targets[:, :1],
        segment_key=zeros,
        recording_key=zeros,
        class_key=zeros,
    )
    values = sum_metrics(episodes, scores, targets=targets).values
    return {metric: values["all", metric].item() for metric in RANKING_METRICS}


@pytest.mark.parametrize("seed", range(2))
def test_outputs_that_may_be_true_together_are_measured_as_scikit_learn_does(seed):
    rng = np.random.default_rng(seed)
    targets = rng.random((60, 4)) < 0.3
    fold = np.arange(60) % 3
    scores = rng.integers(0, 9, (60, 4)).astype(float)
    parts = [(targets[fold == f], scores[fold == f]) for f in range(3)]
    ap = np.mean([average_precision_score(*part) for part in parts])
    auroc = np.mean([roc_auc_score(*part) for part in parts])
    measured = measure_outputs(targets, fold, scores)
    assert measured["map"] == pytest.approx(ap, abs=1e-12)
    assert measured["auroc"] == pytest.approx(auroc, abs=1e-12)


def test_an_output_without_positives_or_with_nothing_else_is_left_out_of_a_fold():
    targets = np.array([[1, 0, 1], [0, 0, 1], [1, 1, 1], [0, 0, 0], [0, 0, 0]], bool)
    fold = np.array([0, 0, 1, 1, -1])
    scores = np.array([[1, 0, 0], [0, 0, 1], [0, 1, 0], [1, 0, 1], [np.nan] * 3])
    measured = measure_outputs(targets, fold, scores)
    assert measured["map"] == pytest.approx(
        np.mean([np.mean([1, 1]), np.mean([0.5, 1, 0.5])])
    )
    assert measured["auroc"] == pytest.approx(np.mean([1, np.mean([0, 1, 0])]))
    undefined = measure_outputs(
        np.zeros((2, 1), bool), np.array([0, 1]), np.zeros((2, 1))
    )
    assert np.isnan(list(undefined.values())).all()


def test_outputs_without_a_score_each_are_an_error():
    with pytest.raises(InputError, match=r"expected shape \(2, 1\), .* got \(2, 2\)"):
        measure_outputs(np.ones((2, 1), bool), np.array([0, 1]), np.zeros((2, 2)))
