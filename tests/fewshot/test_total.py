"""The spread `total` against a slow literal twin, and weighted metrics against scikit-learn."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot import Protocol, Vectors
from callshot.errors import OptionError
from callshot.fewshot import reference
from callshot.fewshot.classifiers import find_classifier
from callshot.fewshot.engine import open_engine
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.kernels import ranks
from callshot.fewshot.spreads import UNIT, make_spread
from callshot.fewshot.sweep import (
    count_recordings,
    small_sample_inflation,
    sweep,
    widen_to_prediction,
)
from callshot.records import METRICS
from corpora import episodes_of, random_corpus, reverse_rows
from literal_total import (
    literal_metrics,
    literal_support,
    literal_weights,
    weighted_rankings,
)

SMALL = Protocol(
    shots=(1, 2, 4), draws=2, bootstraps=3, shared_draws=4, total_samples=5
)
both_ways = pytest.mark.parametrize(
    "memory", [0, 2**30], ids=["directly", "by Gram matrix"]
)


def run(table, protocol=SMALL, *, threads=1, memory=2**30, classifier="centroid"):
    """k and the raw samples of `total`."""
    rule = find_classifier(classifier)
    episodes = episodes_of(table)
    with open_engine(episodes, protocol, threads, memory, classifier=rule) as engine:
        return sweep(engine, "total")


def weighted_centroid(episodes, query, support, weights):
    share = weights[support] / weights[support].sum()
    c = share @ episodes.vectors[support]
    return 2 * float(c @ episodes.vectors[query]) - float(c @ c)


def weighted_cosine(episodes, query, support, weights):
    vectors = episodes.vectors + episodes.origin
    c = weights[support] @ vectors[support]
    lengths = np.linalg.norm(c) * np.linalg.norm(vectors[query])
    return float(c @ vectors[query]) / lengths if lengths > 0 else 0.0


def weighted_nearest(episodes, query, support, weights):
    z = episodes.vectors[query]
    return max(2 * float(x @ z) - float(x @ x) for x in episodes.vectors[support])


def weighted_medoid(episodes, query, support, weights):
    z = episodes.vectors[query]
    vectors = episodes.vectors[support]
    away = np.linalg.norm(vectors[:, None] - vectors[None], axis=2) @ weights[support]
    x = vectors[int(np.argmin(away))]
    return 2 * float(x @ z) - float(x @ x)


def literal_total(table, protocol, k, rule=weighted_centroid):
    """mAP, AUROC and accuracy of every sample, (samples, 3)."""
    episodes = episodes_of(table)
    classes = len(episodes.classes)
    values = []
    for sample in range(protocol.total_samples):
        weights = literal_weights(episodes, protocol, sample)
        sums = np.zeros((classes, 2))
        totals = np.zeros((classes, 2))
        hits = 0.0
        fold_weights = 0.0
        for fold in range(episodes.folds):
            queries = np.flatnonzero(episodes.fold == fold)
            scores = []
            for query in queries:
                a = [
                    rule(
                        episodes,
                        query,
                        literal_support(
                            episodes, protocol, sample, weights, fold, n, k
                        ),
                        weights,
                    )
                    for n in range(classes)
                ]
                hit = episodes.relevant[query, a.index(max(a))]
                hits += weights[query] * hit / len(queries)
                scores.append(reference.log_odds(a))
            fold_weights += weights[queries].mean()
            for n in range(classes):
                relevant = episodes.relevant[queries, n]
                metrics = literal_metrics(
                    np.array(scores)[:, n], relevant, weights[queries]
                )
                share = weights[queries][relevant].mean()
                for column, value in enumerate(metrics):
                    if not math.isnan(value):
                        sums[n, column] += share * value
                        totals[n, column] += share
        with np.errstate(invalid="ignore"):
            by_class = sums / totals
        values.append([*np.nanmean(by_class, axis=0), hits / fold_weights])
    return np.array(values)


def check_values(sums, shot, golden):
    for metric, column in zip(reference.METRICS, golden.T, strict=True):
        np.testing.assert_allclose(
            sums.values["all", metric][shot], column, rtol=0, atol=1e-12
        )


@both_ways
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_total_is_that_of_the_literal_twin(seed, memory):
    table = random_corpus(seed, classes=3, folds=2, size=4, integers=False)
    shots, sums = run(table, memory=memory)
    for shot, k in enumerate(shots):
        check_values(sums, shot, literal_total(table, SMALL, int(k)))


@both_ways
@pytest.mark.parametrize(
    ("classifier", "rule"),
    [
        ("cosine", weighted_cosine),
        ("neighbour", weighted_nearest),
        ("medoid", weighted_medoid),
    ],
)
def test_other_rules_weigh_exemplars_too(classifier, rule, memory):
    table = random_corpus(5, classes=3, folds=2, size=4, integers=False, offset=1.5)
    shots, sums = run(table, memory=memory, classifier=classifier)
    for shot, k in enumerate(shots):
        check_values(sums, shot, literal_total(table, SMALL, int(k), rule))


@pytest.mark.parametrize("classifier", ["centroid", "neighbour"])
def test_the_row_all_has_the_weighted_pool(classifier):
    rule = weighted_centroid if classifier == "centroid" else weighted_nearest
    table = random_corpus(5, classes=3, folds=2, size=4, integers=False)
    protocol = dataclasses.replace(SMALL, whole_pool=True)
    shots, sums = run(table, protocol, classifier=classifier)
    assert len(shots) == 4
    check_values(sums, 3, literal_total(table, protocol, int(shots[-1]), rule))


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
    size = (1, 1, 1)
    unused = np.zeros((1, 1), np.int64)
    tables = ranks.ClassTables(*(np.empty(size) for _ in ranks.ClassTables._fields))
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


def test_threads_memory_and_the_order_of_rows_change_nothing():
    table = random_corpus(7, classes=4, size=5, integers=False)
    _, golden = run(table)
    for other in (run(table, threads=3), run(reverse_rows(table))):
        for key, samples in golden.values.items():
            np.testing.assert_array_equal(other[1].values[key], samples)


def test_calls_of_one_recording_have_one_weight_of_mean_one():
    table = random_corpus(7, classes=4, size=5, integers=False)
    protocol = dataclasses.replace(SMALL, total_samples=4000)
    episodes = episodes_of(table)
    weights = make_spread("total", episodes, protocol).units * UNIT
    by_recording = {}
    for recording, column in zip(episodes.recording, weights.T, strict=True):
        first = by_recording.setdefault(recording, column)
        np.testing.assert_array_equal(column, first)
    columns = np.array(list(by_recording.values()))
    assert len(columns) > 5
    np.testing.assert_allclose(columns.mean(axis=1), 1.0, atol=0.1)
    np.testing.assert_allclose(columns.var(axis=1), 1.0, atol=0.3)
    correlation = np.corrcoef(columns) - np.eye(len(columns))
    assert np.abs(correlation).max() < 0.1


def test_encoders_share_the_weights_so_that_equal_distances_do_not_differ():
    table = random_corpus(7, classes=4, size=5, integers=False)
    twin = dataclasses.replace(table, encoder="twin", matrix=-table.matrix)
    result = evaluate_tables([table, twin], SMALL)
    total = result.differences.filter(spread="total")
    assert len(total) == len(METRICS) * len(SMALL.shots)
    assert total["mean"].abs().max() == 0.0
    assert total["p99"].abs().max() == 0.0


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
    np.testing.assert_allclose(predicted.mean(axis=1), shared.mean(axis=1), atol=1e-12)
    wanted = 2 * 1.2 * total.var(axis=1) - shared.var(axis=1)
    np.testing.assert_allclose(predicted.var(axis=1), wanted, atol=1e-12)


def test_predictions_of_a_constant_stay_and_scores_stay_in_their_range():
    constant = widen_to_prediction(np.full((1, 5), 0.7), np.full((1, 3), 0.6), 1.0)
    np.testing.assert_allclose(constant, 0.6, rtol=1e-12)
    wide = widen_to_prediction(np.array([0.0, 0.5, 1.0]), np.array([0.9, 0.9]), 1.0)
    assert wide.min() >= 0.0
    assert wide.max() == 1.0


def test_resampling_few_recordings_underestimates_the_variance_of_a_mean():
    """Of a mean of n numbers, under exponential weights, by simulation."""
    rng = np.random.default_rng(0)
    for n in (3, 8):
        numbers = rng.normal(size=(4000, n))
        weights = rng.exponential(size=(4000, n))
        means = (numbers * weights).sum(axis=1) / weights.sum(axis=1)
        within = np.mean((means - numbers.mean(axis=1)) ** 2)
        inflation = float(small_sample_inflation(np.array(n)))
        assert within * inflation == pytest.approx(1.0 / n, rel=0.08)


def test_recordings_are_counted_for_each_class():
    recording = ["a", "a", "b", "b", "c", "d"]
    label = ["roar", "rumble", "roar", "rumble", "roar", "rumble"]
    table = Vectors.from_columns(
        "e",
        np.eye(6),
        list("uvwxyz"),
        recording,
        label,
        [()] * 6,
        np.array([0, 0, 1, 1, 0, 1]),
    )
    assert count_recordings(episodes_of(table)).tolist() == [3, 3]


def test_total_without_shared_is_refused():
    with pytest.raises(OptionError, match="spread: total is computed with shared"):
        Protocol(spreads=("total",))
    with pytest.raises(OptionError, match="total_samples: expected 1 to"):
        Protocol(total_samples=0)
