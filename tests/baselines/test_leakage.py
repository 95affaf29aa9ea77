"""Leak detectors: nothing of a query fold may reach what scores it, by training, scaling, whitening or choosing.

Each way to score is run on single splits: labels of the support side and vectors of the query fold are spoiled at will,
and the metrics of the query fold are looked at. The recurrent networks have detectors of their own.
"""

import dataclasses

import numpy as np
import pytest

from callshot.baselines.centroid_to_logistic import follow, refine_centroid
from callshot.baselines.logistic import choose_c, score_logistic
from callshot.baselines.logistic_per_k import climb, drawn_rows, sweep_logistic
from callshot.baselines.scoring import measure
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.engine import fit_split, open_engine
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.folds import count_classes
from callshot.fewshot.metrics import chance_average_precision
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import sweep
from callshot.records import Embeddings
from corpora import folds_of

CLASSES, FOLDS, EACH = 5, 4, 6  # six segments of each class in each fold
PROTOCOL = Protocol(shots=(1, 4, 12), draws=4, bootstraps=8, shared_draws=4)


def corpus(seed, *, strength=1.0, dimensions=8):
    """Return embeddings of Gaussian classes, each segment a recording of its own."""
    rng = np.random.default_rng(seed)
    label, fold = (x.ravel() for x in np.indices((CLASSES, FOLDS, EACH))[:2])
    vectors = (
        rng.normal(size=(len(label), dimensions))
        + strength * rng.normal(size=(CLASSES, dimensions))[label]
    )
    return table_of(vectors, label, fold)


def table_of(vectors, label, fold):
    names, segment = [f"type {n}" for n in label], [f"s{i:04d}" for i in range(len(label))]
    return Embeddings("test", vectors, segment, segment, names, [(name,) for name in names], fold)


def numbers(table):
    return np.array([int(name[-1]) for name in table.label])


def episodes_of(table):
    folds = folds_of(table)
    return plan_episodes(table, folds, count_classes(table.label, folds))


def one_split(episodes, fold):
    """Let one fold query and all the others support."""
    return dataclasses.replace(episodes, fold=np.where(episodes.fold == fold, 0, -1), folds=1)


def by_chosen(table, fold):
    return by_strength(table, fold, choose_c(episodes_of(table), fold))


def by_strength(table, fold, strength=1.0):
    episodes = one_split(episodes_of(table), fold)
    return list(
        measure(
            episodes, score_logistic(episodes, np.arange(len(table)), strength=strength)[0]
        ).values()
    )


def by_shots(table, fold):
    _, tally = sweep_logistic(one_split(episodes_of(table), fold), PROTOCOL, draws=4, threads=1)
    return [values.mean(axis=1) for values in tally.values.values()]


def by_steps(table, fold):
    return list(
        refine_centroid(one_split(episodes_of(table), fold), (1.0,), threads=1).values.values()
    )


def by_rule(name, spread):
    def run(table, fold):
        episodes = one_split(episodes_of(table), fold)
        with open_engine(episodes, PROTOCOL, 1, 2**30, classifier=CLASSIFIERS[name]) as engine:
            return [values.mean(axis=1) for values in sweep(engine, spread)[1].values.values()]

    return run


WAYS = {
    "logistic, C chosen": by_chosen,
    "logistic, C fixed": by_strength,
    "logistic at every k": by_shots,
    "from centroid to logistic": by_steps,
    **{
        f"{name}, {spread}": by_rule(name, spread)
        for name in CLASSIFIERS
        for spread in ("shared", "per-query")
    },
}
EVERY = pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)


def permuted(table, fold, seed):
    """Permute the labels inside every fold but one, so that each still has all classes."""
    rng, label = np.random.default_rng(seed), numbers(table)
    for other in range(FOLDS):
        rows = np.flatnonzero(table.fold == other)
        label[rows] = label[rows] if other == fold else rng.permutation(label[rows])
    return table_of(table.vectors, label, table.fold)


@EVERY
def test_labels_permuted_on_the_support_side_score_chance(way):
    """Ten corpora of four splits: their mean has a standard deviation of 0.02 at most."""
    tables = [corpus(seed, strength=0.5) for seed in range(10)]
    each = [
        (permuted(table, fold, seed), fold)
        for seed, table in enumerate(tables)
        for fold in range(FOLDS)
    ]
    found, honest = (
        [[np.mean(values) for values in way(*one)] for one in some]
        for some in (each, [(table, 0) for table in tables])
    )
    chance = [float(chance_average_precision(EACH, CLASSES * EACH)), 0.5, 1 / CLASSES]
    np.testing.assert_allclose(np.mean(found, axis=0), chance, atol=0.08)
    assert (np.mean(honest, axis=0) > np.add(chance, 0.16)).all()  # there was something to learn


def told(table, fold, number):
    """Add columns that are 0 on the support side, and in the query fold name a class."""
    names = np.where((table.fold == fold)[:, None], 5.0 * np.eye(CLASSES)[number], 0.0)
    return dataclasses.replace(table, vectors=np.hstack([table.vectors, names]))


@EVERY
def test_a_feature_that_only_the_query_fold_has_does_not_help(way):
    table = corpus(3, strength=0.5)
    label = numbers(table)
    for fold in range(FOLDS):
        true, false = (
            way(told(table, fold, number), fold) for number in (label, (label + 1) % CLASSES)
        )
        np.testing.assert_allclose(np.array(true), np.array(false), rtol=0, atol=1e-9)
        if way not in LENGTHS:  # a longer query has another cosine
            untold = way(told(table, -9, label), fold)
            np.testing.assert_allclose(np.array(true), np.array(untold), rtol=0, atol=1e-9)


LENGTHS = [way for name, way in WAYS.items() if name.startswith(("cosine", "cl2n"))]


# What is fitted, and what it says of one query, to the last bit: here the other queries may be anything.


def fitted_shots(episodes, fold):
    rows, sizes = drawn_rows(episodes, fold, 0, np.array(PROTOCOL.shots), PROTOCOL)
    return climb(episodes.vectors[rows], episodes.label[rows], sizes, CLASSES, 1.0)


def fitted_rule(name):
    def fitted(episodes, fold):
        vectors = fit_split(episodes, CLASSIFIERS[name], fold).vectors
        return vectors[episodes.fold != fold], vectors[first(episodes, fold)]

    return fitted


def first(episodes, fold):
    return int(np.flatnonzero(episodes.fold == fold)[0])


GROUPS = np.arange(CLASSES * FOLDS * EACH)
FITTED = {
    "the strength": lambda e, f: [np.array(choose_c(e, f))],
    "logistic, C chosen": lambda e, f: [score_logistic(e, GROUPS)[0][first(e, f)]],
    "logistic, C fixed": lambda e, f: [score_logistic(e, GROUPS, strength=1.0)[0][first(e, f)]],
    "logistic at every k": fitted_shots,
    "from centroid to logistic": lambda e, f: [a[0] for a in follow(e, f, 1.0).a],
    **{name: fitted_rule(name) for name in CLASSIFIERS},
}


@pytest.mark.parametrize("fitted", FITTED.values(), ids=FITTED)
def test_what_is_fitted_does_not_know_the_other_queries(fitted):
    episodes, rng = episodes_of(corpus(5, strength=0.5)), np.random.default_rng(0)
    for fold in range(FOLDS):
        vectors = episodes.vectors.copy()
        others = np.flatnonzero(episodes.fold == fold)[1:]
        vectors[others] = (
            rng.normal(size=(len(others), 8)) + 9.0 * np.eye(8)[episodes.label[others]]
        )
        spoiled = dataclasses.replace(episodes, vectors=vectors)
        one, other = fitted(episodes, fold), fitted(spoiled, fold)
        assert [part.tobytes() for part in one] == [part.tobytes() for part in other]
