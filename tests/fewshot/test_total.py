"""The spread `total` against a slow literal twin, and weighted metrics against scikit-learn."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from sklearn.metrics import average_precision_score, roc_auc_score

import literal
from callshot import Protocol, Vectors
from callshot.errors import OptionError
from callshot.fewshot import reference
from callshot.fewshot.kernels import ranks
from callshot.fewshot.sweep import count_recordings, sweep, widen_to_prediction
from corpora import (
    SMALL,
    both_ways,
    engine_for,
    episodes_of,
    random_corpus,
)
from literal_total import (
    literal_metrics,
    total_values,
    weighted_centroids,
    weighted_rankings,
)


def run(table, protocol=SMALL, **options):
    """k and the raw samples of `total`."""
    with engine_for(table, protocol, **options) as engine:
        return sweep(engine, "total")


RULES = {
    name: literal.RULES[name] for name in ("cosine", "neighbour", "medoid", "ridge")
}
RULES["centroid"] = weighted_centroids


@both_ways
@pytest.mark.parametrize("classifier", RULES)
def test_total_is_that_of_the_literal_twin(classifier, memory):
    table = random_corpus(5, folds=2, size=4, integers=False, offset=1.5)
    protocol = dataclasses.replace(SMALL, whole_pool=True)
    shots, sums = run(table, protocol, memory=memory, classifier=classifier)
    assert len(shots) == 4
    for shot, k in enumerate(shots.tolist()):
        golden = total_values(episodes_of(table), protocol, k, RULES[classifier])
        for metric, column in zip(reference.METRICS, golden.T, strict=True):
            values = sums.values["all", metric][shot]
            np.testing.assert_allclose(values, column, rtol=0, atol=1e-12)


@given(weighted_rankings())
def test_weighted_metrics_are_those_of_scikit_learn(ranking):
    scores, relevant, weight = ranking
    ap = average_precision_score(relevant, scores, sample_weight=weight)
    auroc = math.nan
    if not relevant.all():
        auroc = roc_auc_score(relevant, scores, sample_weight=weight)
    golden = pytest.approx((ap, auroc), abs=1e-12, nan_ok=True)
    assert ranks.ranking_metrics(scores, weight, relevant)[:2] == golden
    assert literal_metrics(scores, relevant, weight.astype(float)) == golden
    assert measure_by_counting(scores, weight, relevant) == golden


def measure_by_counting(scores, weight, relevant):
    """The metrics of one class by the kernel for folds, which counts where positives are few."""
    truth = ranks.Truth(
        relevant[None],
        np.zeros(len(scores), np.int64),
        np.flatnonzero(relevant),
        np.array([0, relevant.sum()]),
    )
    unused = np.zeros((1, 1), np.int64)
    tables = ranks.ClassTables(*np.empty((len(ranks.ClassTables._fields), 1, 1, 1)))
    metrics = ranks.FoldMetrics(tables, unused[None], unused)
    decided = np.zeros((1, 1, len(scores)), np.uint16)
    ranks.measure_fold(scores[None, None, None], decided, truth, weight[None], metrics)
    assert tables.hits[0, 0, 0] == weight[relevant].sum()
    assert tables.correct[0, 0, 0] == weight[relevant].sum()
    assert tables.decided[0, 0, 0] == weight.sum()
    return tables.ap[0, 0, 0], tables.auroc[0, 0, 0]


def test_many_positives_are_sorted_with_the_same_result_as_counting():
    rng = np.random.default_rng(0)
    scores = rng.integers(0, 60, 300).astype(float)
    relevant = rng.random(300) < 0.5
    weight = rng.integers(1, 2**24, 300)
    assert relevant.sum() > ranks.FEW
    golden = pytest.approx(literal_metrics(scores, relevant, weight), abs=1e-12)
    assert measure_by_counting(scores, weight, relevant) == golden


def literal_prediction(total, shared, inflation):
    mean = sum(total) / len(total)
    centre = sum(shared) / len(shared)
    variance = sum((x - mean) ** 2 for x in total) / len(total)
    of_set = sum((x - centre) ** 2 for x in shared) / len(shared)
    wanted = inflation * variance + max(inflation * variance - of_set, 0.0)
    return [centre + math.sqrt(wanted / variance) * (x - mean) for x in total]


def test_predictions_have_the_mean_of_shared_and_both_variances():
    rng = np.random.default_rng(3)
    total = rng.normal(0.6, 0.05, size=(4, 200))
    shared = rng.normal(0.5, 0.03, size=(4, 100))
    predicted = widen_to_prediction(total, shared, inflation=1.2)
    for row, one, other in zip(predicted, total, shared, strict=True):
        np.testing.assert_allclose(row, literal_prediction(one, other, 1.2), atol=1e-12)


def test_predictions_of_a_constant_stay_and_scores_stay_in_their_range():
    constant = widen_to_prediction(np.full((1, 5), 0.7), np.full((1, 3), 0.6), 1.0)
    np.testing.assert_allclose(constant, 0.6, rtol=1e-12)
    wide = widen_to_prediction(np.array([0.0, 0.5, 1.0]), np.array([0.9, 0.9]), 1.0)
    assert wide.min() >= 0.0
    assert wide.max() == 1.0


def test_recordings_are_counted_for_each_class():
    label = ["roar", "rumble", "roar", "rumble", "roar", "rumble"]
    fold = np.array([0, 0, 1, 1, 0, 1])
    table = Vectors.from_columns(
        "e", np.eye(6), "uvwxyz", "aabbcd", label, [()] * 6, fold
    )
    assert count_recordings(episodes_of(table)).tolist() == [3, 3]


def test_total_without_shared_is_refused():
    with pytest.raises(OptionError, match="spread: total is computed with shared"):
        Protocol(spreads=("total",))
    with pytest.raises(OptionError, match="total_samples: expected 1 to"):
        Protocol(total_samples=0)


def test_a_metric_that_may_be_negative_is_cut_at_its_lowest_value():
    total = np.array([-0.9, 0.0, 0.9])
    shared = np.array([-0.05, 0.05])
    wide = widen_to_prediction(total, shared, 2.0, lowest=-1.0)
    assert wide[0] == -1.0
    assert wide[2] == 1.0
    assert widen_to_prediction(total, shared, 2.0)[0] == 0.0
