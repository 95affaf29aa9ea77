"""The paper's shape: the centroid wins with few labels, logistic regression with many.

The table has the counts of the paper's smaller corpus. Its construction (`unequal` in
examples/paper_shapes.py) implies at which k the curves cross. A simulation without callshot gives
that k a second time: fresh rows and draws, a naive centroid, scikit-learn's regression.
"""

from functools import cache
from typing import NamedTuple

import numpy as np
import pytest
from paper_shapes import unequal
from scipy.special import logsumexp
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from callshot.baselines.logistic import DEFAULT_C, score_logistic
from callshot.baselines.logistic_per_k import sweep_logistic
from callshot.baselines.scoring import measure
from callshot.fewshot.engine import open_engine
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.folds import complete_shots, count_classes
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import sweep
from corpora import folds_of

CORPUS = "elephant-voices"
SHOTS = (1, 4, 5, 6, 7, 8, 9, 10, 12, 15, 20, 40)
DRAWS = 50
SIMULATED = (1, 5, 7, 9, 40)
SAMPLES = 40
LARGEST_ERROR = (
    2  # shots between the crossover of one corpus and that of the construction
)


class Curves(NamedTuple):
    """mAP on the same draws, (shots, draws), with all labels, and the largest complete k."""

    k: np.ndarray
    logistic: np.ndarray
    centroid: np.ndarray
    all_labels: float
    complete: int


@cache
def curves_of():
    table = unequal(CORPUS)
    folds = folds_of(table)
    counts = count_classes(table.label, folds)
    episodes = plan_episodes(table, folds, counts)
    protocol = Protocol(shots=SHOTS, shared_draws=DRAWS)
    with open_engine(episodes, protocol, 2, 2**30) as engine:
        k, centroid = sweep(engine, "shared")
    _, logistic = sweep_logistic(episodes, protocol)
    scores, _ = score_logistic(episodes, c=DEFAULT_C)
    return Curves(
        k,
        logistic.values["all", "map"],
        centroid.values["all", "map"],
        measure(episodes, scores)["all", "map"],
        complete_shots(counts),
    )


def average_precision(score, positive):
    ranked = positive[np.argsort(-score)]
    return (np.cumsum(ranked) / np.arange(1, len(ranked) + 1))[ranked].mean()


def mean_average_precision(a, label):
    """Return the mAP of log-odds."""
    ap = []
    for n in range(a.shape[1]):
        score = a[:, n] - logsumexp(np.delete(a, n, axis=1), axis=1)
        ap.append(average_precision(score, label == n))
    return np.mean(ap)


def naive_centroid(rows, label, queries):
    means = np.stack([rows[label == n].mean(axis=0) for n in range(label.max() + 1)])
    return -((queries[:, None] - means) ** 2).sum(axis=2)


def naive_logistic(rows, label, queries):
    mean = rows.mean(axis=0)
    deviation = rows.std(axis=0)
    deviation = np.maximum(deviation, np.median(deviation) / np.sqrt(len(rows)))
    model = LogisticRegression(C=DEFAULT_C, max_iter=1000).fit(
        (rows - mean) / deviation, label
    )
    return model.decision_function((queries - mean) / deviation)


@cache
@threadpool_limits.wrap(limits=1)
def simulated():
    """Return the mean lead of logistic regression at each k.

    Each sample is a fresh corpus, one of its folds, and one draw.
    """
    lead = np.empty((SAMPLES, len(SIMULATED)))
    for sample in range(len(lead)):
        table = unequal(CORPUS, 1 + sample)
        rng = np.random.default_rng(sample)
        label = np.unique(table.label, return_inverse=True)[1]
        query = table.fold == sample % (table.fold.max() + 1)
        pools = [np.flatnonzero((label == n) & ~query) for n in range(label.max() + 1)]
        orders = [rng.permutation(pool) for pool in pools]
        for s, k in enumerate(SIMULATED):
            rows = np.concatenate([order[:k] for order in orders])
            support = (table.matrix[rows], label[rows], table.matrix[query])
            logistic = mean_average_precision(naive_logistic(*support), label[query])
            centroid = mean_average_precision(naive_centroid(*support), label[query])
            lead[sample, s] = logistic - centroid
    return lead.mean(axis=0)


def implied_crossover():
    """Return where the simulated lead goes through 0, as a real number of shots."""
    k = SIMULATED
    ahead = simulated()
    (s,) = np.flatnonzero((ahead[:-1] <= 0) & (ahead[1:] > 0))
    return np.interp(0.0, ahead[s : s + 2], k[s : s + 2])


def first_clear_k(k, lead):
    """Return the first k from which on 99 of 100 draws have a lead."""
    return first_lasting_k(k, np.percentile(lead, 1, axis=1) > 0)


def first_lasting_k(k, holds):
    """Return the first k from which on something holds."""
    return next(int(k[s]) for s in range(len(k)) if holds[s:].all())


def first_ahead_k(k, logistic, centroid):
    """Return the first k from which on logistic regression is ahead on average."""
    return first_lasting_k(k, (logistic - centroid).mean(axis=1) > 0)


def test_the_centroid_wins_with_few_labels_and_logistic_regression_with_many():
    curves = curves_of()
    lead = (curves.logistic - curves.centroid).mean(axis=1)
    assert lead[0] < -0.03
    assert lead[-1] > 0.1


def test_the_crossover_is_the_one_that_the_construction_implies():
    """Between two k, the crossover is the larger one."""
    k, logistic, centroid, _, _ = curves_of()
    k_mean = first_ahead_k(k, logistic, centroid)
    k_clear = first_clear_k(k, logistic - centroid)
    implied = implied_crossover()
    assert k_mean - 1 - LARGEST_ERROR <= implied <= k_mean + LARGEST_ERROR
    assert k_mean < k_clear <= 2 * k_mean + 1


def test_the_differences_are_those_of_the_simulation():
    curves = curves_of()
    mean_lead = (curves.logistic - curves.centroid).mean(axis=1)
    lead = dict(zip(curves.k.tolist(), mean_lead, strict=True))
    for shots, expected in zip(SIMULATED, simulated(), strict=True):
        if shots in lead:
            assert lead[shots] == pytest.approx(expected, abs=0.05)


def test_the_centroid_never_passes_logistic_regression_on_all_labels():
    _, _, centroid, all_labels, _ = curves_of()
    assert (centroid.mean(axis=1) <= all_labels).all()
    assert all_labels > centroid[-1].mean() + 0.05
