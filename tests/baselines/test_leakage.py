"""Leak detectors: nothing of a query fold may reach its scores, by training, scaling or choosing.

Each classifier is run on single splits with changed labels on the support side, or changed vectors
in the query fold. The recurrent networks have their own detectors.
"""

import dataclasses

import numpy as np
import pytest

from callshot.baselines.centroid_to_logistic import refine_centroid, refine_split
from callshot.baselines.logistic import (
    choose_c,
    fit_nested,
    score_logistic,
    sweep_logistic,
)
from callshot.baselines.scoring import measure
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.episodes import open_engine, transform_split
from callshot.fewshot.metrics import chance_average_precision
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.ridge import support_rows
from callshot.fewshot.spreads import make_spread
from callshot.fewshot.sweep import sweep
from callshot.vectors import Vectors
from corpora import episodes_of

CLASSES = 5
FOLDS = 4
EACH = 6  # segments of each class in each fold
PROTOCOL = Protocol(
    shots=(1, 4, 12), draws=4, bootstraps=8, shared_draws=4, total_samples=4
)


def corpus(seed, *, separation=1.0, dimensions=8):
    """Return embeddings of Gaussian classes, each segment a recording of its own."""
    rng = np.random.default_rng(seed)
    label, fold, _ = np.indices((CLASSES, FOLDS, EACH)).reshape(3, -1)
    noise = rng.normal(size=(len(label), dimensions))
    means = separation * rng.normal(size=(CLASSES, dimensions))
    return table_of(noise + means[label], label, fold)


def table_of(vectors, label, fold):
    names = [f"type {n}" for n in label]
    segment = [f"s{i:04d}" for i in range(len(label))]
    return Vectors.from_columns(
        "test", vectors, segment, segment, names, [(name,) for name in names], fold
    )


def class_numbers(table):
    return np.array([int(name[-1]) for name in table.label])


def one_split(episodes, fold):
    """Return episodes in which one fold has the queries and all others are support."""
    return dataclasses.replace(
        episodes, fold=np.where(episodes.fold == fold, 0, -1), folds=1
    )


def logistic_with_chosen_c(table, fold):
    return logistic(table, fold, choose_c(episodes_of(table), fold))


def logistic(table, fold, c=1.0):
    episodes = one_split(episodes_of(table), fold)
    scores, _ = score_logistic(episodes, c=c)
    return list(measure(episodes, scores).values())


def logistic_per_k(table, fold):
    _, sums = sweep_logistic(
        one_split(episodes_of(table), fold), PROTOCOL, draws=4, threads=1
    )
    return [values.mean(axis=1) for values in sums.values.values()]


def centroid_to_logistic(table, fold):
    episodes = one_split(episodes_of(table), fold)
    _, values, _ = refine_centroid(episodes, (1.0,), threads=1)
    return list(values.values())


def untrained(name, spread):
    def run(table, fold):
        episodes = one_split(episodes_of(table), fold)
        with open_engine(
            episodes, PROTOCOL, 1, 2**30, classifier=CLASSIFIERS[name]
        ) as engine:
            _, sums = sweep(engine, spread)
        return [values.mean(axis=1) for values in sums.values.values()]

    return run


RUNS = {
    "logistic, C chosen": logistic_with_chosen_c,
    "logistic, C fixed": logistic,
    "logistic at every k": logistic_per_k,
    "from centroid to logistic": centroid_to_logistic,
}
# Of other rules, what they fit is compared bit by bit below.
for _name, _spread in (
    ("centroid", "shared"),
    ("cl2n", "per-query"),
    ("ridge", "shared"),
):
    RUNS[f"{_name}, {_spread}"] = untrained(_name, _spread)
EVERY = pytest.mark.parametrize("run", RUNS.values(), ids=RUNS)
# A longer query has another cosine.
RUNS_ON_LENGTHS = [
    run for name, run in RUNS.items() if name.startswith(("cl2n", "ridge"))
]


def permuted(table, fold, seed):
    """Permute the labels inside every fold but one, so that each still has all classes."""
    rng = np.random.default_rng(seed)
    label = class_numbers(table)
    for other in range(FOLDS):
        rows = np.flatnonzero(table.fold == other)
        if other != fold:
            label[rows] = rng.permutation(label[rows])
    return table_of(table.matrix, label, table.fold)


@EVERY
def test_labels_permuted_on_the_support_side_score_chance(run):
    """Three corpora of four splits: their mean has a standard deviation of 0.04 at most."""
    scores = []
    honest = []
    for seed in range(3):
        table = corpus(seed, separation=0.5)
        honest.append([np.mean(values) for values in run(table, 0)])
        for fold in range(FOLDS):
            values_by_metric = run(permuted(table, fold, seed), fold)
            scores.append([np.mean(values) for values in values_by_metric])
    chance_map = float(chance_average_precision(EACH, CLASSES * EACH))
    chance = [chance_map, 0.5] + [1 / CLASSES] * 3  # macro F1 is a little lower
    np.testing.assert_allclose(np.mean(scores, axis=0), chance, atol=0.08)
    assert (
        np.mean(honest, axis=0) > np.add(chance, 0.16)
    ).all()  # the task can be learnt


def with_leak(table, fold, number):
    """Add columns that are 0 on the support side, and in the query fold name a class."""
    names = np.where((table.fold == fold)[:, None], 5.0 * np.eye(CLASSES)[number], 0.0)
    return dataclasses.replace(table, matrix=np.hstack([table.matrix, names]))


@EVERY
def test_a_feature_that_only_the_query_fold_has_does_not_help(run):
    table = corpus(3, separation=0.5)
    label = class_numbers(table)
    for fold in range(2):
        true = np.array(run(with_leak(table, fold, label), fold))
        false = np.array(run(with_leak(table, fold, (label + 1) % CLASSES), fold))
        np.testing.assert_allclose(true, false, rtol=0, atol=1e-9)
        if run not in RUNS_ON_LENGTHS:
            zeros = np.array(run(with_leak(table, -9, label), fold))
            np.testing.assert_allclose(true, zeros, rtol=0, atol=1e-9)


# Fits, and their scores of one query, compared bit by bit while all other queries change.


def layers_per_k(episodes, fold):
    rows, sizes = support_rows(
        make_spread("shared", episodes, PROTOCOL), fold, 0, np.array(PROTOCOL.shots)
    )
    return fit_nested(episodes.vectors[rows], episodes.label[rows], sizes, CLASSES, 1.0)


def fitted_vectors(name):
    def fit(episodes, fold):
        vectors = transform_split(episodes, CLASSIFIERS[name], fold).vectors
        return vectors[episodes.fold != fold], vectors[first_query(episodes, fold)]

    return fit


def first_query(episodes, fold):
    return int(np.flatnonzero(episodes.fold == fold)[0])


def chosen_c(episodes, fold):
    return [np.array(choose_c(episodes, fold))]


def scores_with_chosen_c(episodes, fold):
    return first_query_scores(episodes, fold, c=None)


def first_query_scores(episodes, fold, c=1.0):
    scores, _ = score_logistic(episodes, c=c)
    return [scores[first_query(episodes, fold)]]


def refined_scores(episodes, fold):
    return [one[0] for one in refine_split(episodes, fold, 1.0).logits]


FITS = {
    "C": chosen_c,
    "logistic, C chosen": scores_with_chosen_c,
    "logistic, C fixed": first_query_scores,
    "logistic at every k": layers_per_k,
    "from centroid to logistic": refined_scores,
    **{name: fitted_vectors(name) for name in CLASSIFIERS},
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_no_fit_depends_on_the_other_queries(fit):
    episodes = episodes_of(corpus(5, separation=0.5))
    rng = np.random.default_rng(0)
    for fold in (0, FOLDS - 1):
        vectors = episodes.vectors.copy()
        others = np.flatnonzero(episodes.fold == fold)[1:]
        leak = 9.0 * np.eye(8)[episodes.label[others]]
        vectors[others] = rng.normal(size=(len(others), 8)) + leak
        relevant = episodes.relevant.copy()
        relevant[others] = ~relevant[others]
        changed = dataclasses.replace(episodes, vectors=vectors, relevant=relevant)
        one = fit(episodes, fold)
        other = fit(changed, fold)
        assert [part.tobytes() for part in one] == [part.tobytes() for part in other]
