"""Samples of the spread `total` of trained baselines, against slow literal twins."""

import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot import Protocol
from callshot.baselines.options import BaselineOptions
from callshot.baselines.run import train_dataset
from callshot.baselines.scoring import (
    baseline_frame,
    find_outputs,
    measure,
    measure_ranking,
    sum_metrics,
)
from callshot.baselines.training import TrainingContext
from callshot.fewshot.dataset import Dataset
from callshot.fewshot.spreads import draw_units
from callshot.fewshot.sweep import (
    count_recordings,
    small_sample_inflation,
    widen_to_prediction,
)
from corpora import episodes_of, folds_of, random_corpus
from literal_total import literal_metrics, literal_weights, weighted_rankings

SMALL = Protocol(shots=(1, 2), shared_draws=4, total_samples=6, seed=3)
CATEGORIES = {"c0": "low", "c1": "low", "c2": "high"}
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
    units = draw_units(episodes, SMALL, SMALL.total_samples)
    sums = sum_metrics(episodes, scores, categories, targets, units)
    return {key: samples[0] for key, samples in sums.values.items()}


def literal_samples(episodes, targets, scores):
    """AP and AUROC of every sample and output, (samples, 2, outputs): weighted means over folds."""
    values = []
    for sample in range(SMALL.total_samples):
        weights = literal_weights(episodes, SMALL, sample)
        sums = np.zeros((2, targets.shape[1]))
        shares = np.zeros(sums.shape)
        for fold in range(episodes.folds):
            rows = np.flatnonzero(episodes.fold == fold)
            for n, target in enumerate(targets[rows].T):
                if not target.any():
                    continue
                share = weights[rows][target].mean()
                metrics = literal_metrics(scores[rows, n], target, weights[rows])
                for row, value in enumerate(metrics):
                    if not math.isnan(value):
                        sums[row, n] += share * value
                        shares[row, n] += share
        with np.errstate(invalid="ignore"):
            values.append(sums / shares)
    return np.array(values)


@settings(max_examples=50)
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


@pytest.mark.parametrize("seed", [5, 9])
def test_samples_of_classes_are_those_of_the_literal_twin(seed):
    episodes = episodes_of(random_corpus(seed, classes=3, size=4))
    scores = random_scores(episodes)
    samples = resample(episodes, scores, CATEGORIES)
    literal = literal_samples(episodes, episodes.relevant, scores)
    for number, metric in enumerate(("map", "auroc")):
        by_class = literal[:, number]
        low = np.nanmean(by_class[:, :2], axis=1)
        np.testing.assert_allclose(
            samples["all", metric], np.nanmean(by_class, axis=1), rtol=0, atol=1e-12
        )
        np.testing.assert_allclose(
            samples["reduced", metric],
            np.nanmean([low, by_class[:, 2]], axis=0),
            rtol=0,
            atol=1e-12,
        )


@pytest.mark.parametrize("seed", [5, 9])
def test_samples_of_outputs_are_those_of_the_literal_twin(seed):
    episodes = episodes_of(random_corpus(seed, classes=3, size=4))
    rng = np.random.default_rng(seed)
    targets = rng.random((len(episodes.rows), 4)) < 0.3
    targets[episodes.fold == 0, 1] = False  # no positive in one fold
    targets[episodes.fold == 1, 2] = True  # no negative in another
    targets[:, 3] = False  # never
    scores = random_scores(episodes, outputs=4)
    samples = resample(episodes, scores, targets=targets)
    literal = literal_samples(episodes, targets, scores)
    for number, metric in enumerate(("map", "auroc")):
        golden = np.nanmean(literal[:, number], axis=1)
        np.testing.assert_allclose(samples["all", metric], golden, rtol=0, atol=1e-12)


def test_outputs_that_are_never_or_always_true_have_undefined_samples():
    episodes = episodes_of(random_corpus(1, classes=3, size=4))
    scores = random_scores(episodes, outputs=1)
    never = np.zeros(scores.shape, bool)
    samples = resample(episodes, scores, targets=never)
    assert np.isnan(samples["all", "map"]).all()
    always = resample(episodes, scores, targets=~never)
    assert (always["all", "map"] == 1.0).all()
    assert np.isnan(always["all", "auroc"]).all()


def make_encoder_data(seed=5, categories=None):
    table = random_corpus(seed, classes=3, size=6, integers=False)
    dataset = Dataset("herd", [table], folds_of(table), categories)
    return next(dataset.per_encoder())


def test_rows_have_the_plain_value_and_the_interval_of_their_samples():
    encoder_data = make_encoder_data(categories=CATEGORIES)
    scores = random_scores(encoder_data.episodes)
    frame = baseline_frame(encoder_data, scores, SMALL, BASELINE)
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


def test_a_baseline_that_reads_audio_has_an_interval_too():
    encoder_data = make_encoder_data(categories=CATEGORIES)
    scores = random_scores(encoder_data.episodes, outputs=2)
    outputs = find_outputs(encoder_data)
    frame = baseline_frame(encoder_data, scores, SMALL, BASELINE, outputs)
    groups = [[2], [0, 1]]  # high, low
    targets = [encoder_data.episodes.relevant[:, group].any(axis=1) for group in groups]
    sums = sum_metrics(encoder_data.episodes, scores, targets=np.stack(targets, axis=1))
    for metric, value in frame.select("metric", "value").rows():
        assert value == sums.values["all", metric].item()
    assert set(frame["scoring"]) == {"reduced"}
    assert set(frame["encoder"]) == {""}
    assert (frame["p01"] < frame["p99"]).all()
    assert set(frame["samples"].list.len()) == {SMALL.total_samples}


def test_without_the_spread_total_a_baseline_has_its_value_alone():
    encoder_data = make_encoder_data()
    scores = random_scores(encoder_data.episodes)
    protocol = dataclasses.replace(SMALL, spreads=("shared",))
    frame = baseline_frame(encoder_data, scores, protocol, BASELINE)
    golden = baseline_frame(encoder_data, scores, SMALL, BASELINE)
    assert frame["value"].equals(golden["value"])
    assert frame["p01"].is_nan().all()
    assert frame["p99"].is_nan().all()
    assert set(frame["samples"].list.len()) == {0}


def test_threads_change_no_sample_and_the_seed_changes_all_but_the_value():
    dataset = make_encoder_data().dataset
    options = BaselineOptions(("logistic",), C=0.1)
    golden = train_dataset(
        dataset, options, SMALL, context=TrainingContext(threads=1)
    ).baselines
    context = TrainingContext(threads=3)
    frame = train_dataset(dataset, options, SMALL, context=context).baselines
    assert frame.equals(golden)
    protocol = dataclasses.replace(SMALL, seed=4)
    frame = train_dataset(dataset, options, protocol).baselines
    assert frame["value"].equals(golden["value"])
    assert not np.isin(frame["samples"][0], golden["samples"][0]).any()
