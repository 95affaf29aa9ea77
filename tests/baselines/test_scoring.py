import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import train_dataset
from callshot.baselines.scoring import (
    baseline_frame,
    measure,
    measure_ranking,
    sum_metrics,
)
from callshot.baselines.training import TrainingContext
from callshot.errors import InputError
from callshot.fewshot.centroid import linear_layer, log_odds
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import draw_units
from callshot.fewshot.sweep import (
    count_recordings,
    small_sample_inflation,
    widen_to_prediction,
)
from corpora import episodes_of, folds_of, random_corpus
from literal_total import class_means, literal_weights, weighted_rankings

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
    rows = golden.per_class.select("metric", "label", "mean").iter_rows()
    for metric, label, mean in rows:
        value = per_class[metric][0, episodes.classes.index(label), 0]
        assert value == pytest.approx(mean, nan_ok=True)


def scikit_learn_metrics(episodes, targets, scores):
    """Return mAP and AUROC by scikit-learn: means over outputs inside a fold, then over folds.

    Outputs without a positive are left out, for AUROC also those without a negative.
    """
    ap = []
    auroc = []
    for fold in range(episodes.folds):
        rows = episodes.fold == fold
        pairs = list(zip(targets[rows].T, scores[rows].T, strict=True))
        some = [pair for pair in pairs if pair[0].any()]
        ap.append(np.mean([average_precision_score(*pair) for pair in some]))
        both = [pair for pair in some if not pair[0].all()]
        if both:
            auroc.append(np.mean([roc_auc_score(*pair) for pair in both]))
    return np.mean(ap), np.mean(auroc) if auroc else np.nan


@settings(max_examples=10)
@given(st.integers(0, 10**6), st.integers(1, 5))
def test_ties_and_several_labels_count_as_in_scikit_learn(seed, values):
    episodes = episodes_of(random_corpus(seed, classes=3, size=3))
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, values, episodes.relevant.shape).astype(float)
    scores[episodes.fold < 0] = np.nan  # they are ignored
    measured = measure(episodes, scores)
    golden = scikit_learn_metrics(episodes, episodes.relevant, scores)
    found = (measured["all", "map"], measured["all", "auroc"])
    assert found == pytest.approx(golden, nan_ok=True)


def test_a_query_without_scores_is_an_error():
    episodes = episodes_of(random_corpus(1))
    scores = np.zeros(episodes.relevant.shape)
    query = int(np.flatnonzero(episodes.fold >= 0)[2])
    scores[query, 1] = np.nan
    for wrong, message in (
        (scores, f"scores: row {query} of the episodes: expected numbers, got NaN"),
        (scores[:, :1], r"scores: expected shape \(\d+, \d+\), one score per row"),
    ):
        with pytest.raises(InputError, match=message):
            measure(episodes, wrong)


def made_outputs(episodes):
    """One output has no positive in a fold, one nothing else in another, one never any."""
    rng = np.random.default_rng(5)
    targets = rng.random((len(episodes.rows), 4)) < 0.4
    targets[episodes.fold == 0, 1] = False
    targets[episodes.fold == 1, 2] = True
    targets[:, 3] = False
    return targets


def test_outputs_are_measured_as_by_scikit_learn_where_they_have_a_value():
    episodes = episodes_of(random_corpus(5, size=6))
    targets = made_outputs(episodes)
    scores = random_scores(episodes, outputs=4)
    values = sum_metrics(episodes, scores, targets=targets).values
    found = (values["all", "map"].item(), values["all", "auroc"].item())
    golden = scikit_learn_metrics(episodes, targets, scores)
    assert found == pytest.approx(golden, abs=1e-12)
    message = r"expected shape \(\d+, 4\), .* got \(\d+, 1\)"
    with pytest.raises(InputError, match=message):
        sum_metrics(episodes, scores[:, :1], targets=targets)


WEIGHTED = Protocol(shots=(1, 2), shared_draws=4, total_samples=6, seed=3)
BASELINE = {"kind": "logistic", "name": "LR", "how": "C: 1"}


def random_scores(episodes, outputs=None):
    """Scores with ties; none for the common fold."""
    rng = np.random.default_rng(0)
    size = (len(episodes.rows), outputs or len(episodes.classes))
    scores = rng.integers(0, 9, size).astype(float)
    scores[episodes.fold < 0] = np.nan
    return scores


def resample(episodes, scores, categories=None, targets=None):
    """Raw samples of every scoring and metric."""
    units = draw_units(episodes, WEIGHTED, WEIGHTED.total_samples)
    sums = sum_metrics(episodes, scores, categories, targets, units)
    return {key: samples[0] for key, samples in sums.values.items()}


def literal_samples(episodes, targets, scores):
    """AP and AUROC of every sample and output, (samples, 2, outputs): weighted means over folds."""
    values = []
    folds = [episodes.fold == fold for fold in range(episodes.folds)]
    for sample in range(WEIGHTED.total_samples):
        weights = literal_weights(episodes, WEIGHTED, sample)
        parts = [(scores[rows], targets[rows], weights[rows]) for rows in folds]
        values.append(class_means(parts))
    return np.array(values)


@settings(max_examples=15)
@given(weighted_rankings())
def test_one_ranking_under_many_weights_is_measured_as_by_scikit_learn(ranking):
    scores, relevant, weight = ranking
    units = np.stack([weight, weight[::-1], np.ones_like(weight)])
    ap, auroc = measure_ranking(scores, relevant, units)
    for sample, weights in enumerate(units):
        golden = average_precision_score(relevant, scores, sample_weight=weights)
        assert ap[sample] == pytest.approx(golden, abs=1e-12)
        golden = math.nan
        if not relevant.all():
            golden = roc_auc_score(relevant, scores, sample_weight=weights)
        assert auroc[sample] == pytest.approx(golden, abs=1e-12, nan_ok=True)


def test_samples_of_classes_are_those_of_the_literal_twin():
    episodes = episodes_of(random_corpus(9, classes=3, size=4))
    scores = random_scores(episodes)
    samples = resample(episodes, scores, CATEGORIES)
    literal = literal_samples(episodes, episodes.relevant, scores)
    for number, metric in enumerate(("map", "auroc")):
        by_class = literal[:, number]
        low = np.nanmean(by_class[:, :2], axis=1)
        reduced = np.nanmean([low, by_class[:, 2]], axis=0)
        golden = [np.nanmean(by_class, axis=1), reduced]
        found = [samples[scoring, metric] for scoring in ("all", "reduced")]
        np.testing.assert_allclose(found, golden, rtol=0, atol=1e-12)


def test_samples_of_outputs_are_those_of_the_literal_twin():
    episodes = episodes_of(random_corpus(5, classes=3, size=4))
    targets = made_outputs(episodes)
    scores = random_scores(episodes, outputs=4)
    samples = resample(episodes, scores, targets=targets)
    literal = literal_samples(episodes, targets, scores)
    for number, metric in enumerate(("map", "auroc")):
        golden = np.nanmean(literal[:, number], axis=1)
        np.testing.assert_allclose(samples["all", metric], golden, rtol=0, atol=1e-12)


def make_encoder_data(seed=5, categories=None):
    table = random_corpus(seed, classes=3, size=6, integers=False)
    dataset = Dataset("herd", [table], folds_of(table), categories)
    return next(dataset.per_encoder())


def test_rows_have_the_plain_value_and_the_interval_of_their_samples():
    encoder_data = make_encoder_data(categories=CATEGORIES)
    scores = random_scores(encoder_data.episodes)
    frame = baseline_frame(encoder_data, scores, WEIGHTED, BASELINE)
    values = measure(encoder_data.episodes, scores, CATEGORIES)
    episodes = encoder_data.episodes
    raw = resample(episodes, scores, CATEGORIES)
    inflation = small_sample_inflation(count_recordings(episodes)).mean()
    samples = {}
    for key, column in raw.items():
        plain = np.array([values[key]])
        samples[key] = widen_to_prediction(column, plain, inflation=inflation)
    assert len(frame) == 4
    for row in frame.iter_rows(named=True):
        key = (row["scoring"], row["metric"])
        assert row["value"] == values[key]
        assert row["samples"] == samples[key].tolist()
        low, high = np.percentile(samples[key], (1, 99))
        assert (row["p01"], row["p99"]) == (low, high)
        assert 0.0 <= low < high <= 1.0


def test_without_the_spread_total_a_baseline_has_its_value_alone():
    encoder_data = make_encoder_data()
    scores = random_scores(encoder_data.episodes)
    protocol = dataclasses.replace(WEIGHTED, spreads=("shared",))
    frame = baseline_frame(encoder_data, scores, protocol, BASELINE)
    golden = baseline_frame(encoder_data, scores, WEIGHTED, BASELINE)
    assert frame["value"].equals(golden["value"])
    assert frame["p01"].is_nan().all()
    assert frame["p99"].is_nan().all()
    assert set(frame["samples"].list.len()) == {0}


def test_threads_change_no_sample_and_the_seed_changes_all_but_the_value():
    dataset = make_encoder_data().dataset
    options = BaselineOptions(("logistic",), C=0.1)
    golden, frame = (
        train_dataset(dataset, options, WEIGHTED, context=context).baselines
        for context in (TrainingContext(threads=1), TrainingContext(threads=3))
    )
    assert frame.equals(golden)
    protocol = dataclasses.replace(WEIGHTED, seed=4)
    frame = train_dataset(dataset, options, protocol).baselines
    assert frame["value"].equals(golden["value"])
    assert not np.isin(frame["samples"][0], golden["samples"][0]).any()
