"""Leak detectors: nothing of the other queries of a fold may reach the score of one.

What each classifier fits and the scores of one query are compared bit by bit, while the vectors and
the labels of all other queries change. The networks have their own detectors.
"""

import dataclasses

import numpy as np
import pytest

from callshot.baselines.centroid_to_logistic import refine_split
from callshot.baselines.logistic import choose_c, fit_nested, score_logistic
from callshot.fewshot.classifiers import CLASSIFIERS
from callshot.fewshot.episodes import transform_split
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.ridge import support_rows
from callshot.fewshot.spreads import make_spread
from corpora import episodes_of, gaussian_corpus

CLASSES = 5
FOLDS = 4
DIMENSIONS = 8
PROTOCOL = Protocol(shots=(1, 4, 12), shared_draws=4)


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


def first_query_scores(episodes, fold):
    scores, _ = score_logistic(episodes, c=1.0)
    return [scores[first_query(episodes, fold)]]


def refined_scores(episodes, fold):
    return [one[0] for one in refine_split(episodes, fold, 1.0).evidence]


FITS = {
    "C": chosen_c,
    "logistic": first_query_scores,
    "logistic at every k": layers_per_k,
    "from centroid to logistic": refined_scores,
    **{name: fitted_vectors(name) for name in CLASSIFIERS},
}


@pytest.mark.parametrize("fit", FITS.values(), ids=FITS)
def test_no_fit_depends_on_the_other_queries(fit):
    table = gaussian_corpus((24,) * CLASSES, DIMENSIONS, folds=FOLDS, common=0)
    episodes = episodes_of(table)
    rng = np.random.default_rng(0)
    for fold in range(FOLDS):
        others = np.flatnonzero(episodes.fold == fold)[1:]
        vectors = episodes.vectors.copy()
        leak = 9.0 * np.eye(DIMENSIONS)[episodes.label[others]]
        vectors[others] = rng.normal(size=leak.shape) + leak
        relevant = episodes.relevant.copy()
        relevant[others] = ~relevant[others]
        changed = dataclasses.replace(episodes, vectors=vectors, relevant=relevant)
        one = fit(episodes, fold)
        other = fit(changed, fold)
        assert [part.tobytes() for part in one] == [part.tobytes() for part in other]
