"""The paper's shape: the centroid wins with few labels, logistic regression with many.

The table has the counts of the paper's smaller corpus. Its construction (`unequal` in
examples/paper_shapes.py) implies at which k the curves cross. A simulation without callshot gives
that k a second time: fresh rows and draws, a naive centroid, scikit-learn's regression.
"""

from functools import cache

import numpy as np
import pytest
from paper_shapes import unequal
from sklearn.linear_model import LogisticRegression
from threadpoolctl import threadpool_limits

from callshot.baselines.logistic import DEFAULT_C, score_logistic, sweep_logistic
from callshot.baselines.scoring import measure
from callshot.fewshot.episodes import open_engine
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.sweep import sweep
from corpora import episodes_of

CORPUS = "elephant-voices"
SHOTS = (1, 5, 6, 7, 8, 9, 12, 15, 40)
DRAWS = 20
SIMULATED = (1, 5, 7, 9, 40)
SAMPLES = 15
LARGEST_ERROR = 2  # shots, of the crossover of one corpus


@cache
def curves_of():
    """mAP of the centroid and of logistic regression, (shots, draws), and with all labels."""
    episodes = episodes_of(unequal(CORPUS))
    protocol = Protocol(shots=SHOTS, shared_draws=DRAWS)
    with open_engine(episodes, protocol, 2, 2**30) as engine:
        _, centroid = sweep(engine, "shared")
    _, logistic = sweep_logistic(episodes, protocol)
    scores, _ = score_logistic(episodes, c=DEFAULT_C)
    curves = [sums.values["all", "map"] for sums in (centroid, logistic)]
    return *curves, measure(episodes, scores)["all", "map"]


def mean_average_precision(a, label):
    """Return the mAP of log-odds, of which no two are equal."""
    ap = []
    for n in range(a.shape[1]):
        others = np.logaddexp.reduce(np.delete(a, n, axis=1), axis=1)
        hits = label[np.argsort(others - a[:, n])] == n
        precision = np.cumsum(hits) / np.arange(1, len(hits) + 1)
        ap.append(precision[hits].mean())
    return np.mean(ap)


def naive_centroid(rows, label, queries):
    means = np.stack([rows[label == n].mean(axis=0) for n in range(label.max() + 1)])
    return -((queries[:, None] - means) ** 2).sum(axis=2)


def naive_logistic(rows, label, queries):
    mean = rows.mean(axis=0)
    deviation = rows.std(axis=0)
    deviation = np.maximum(deviation, np.median(deviation) / np.sqrt(len(rows)))
    model = LogisticRegression(C=DEFAULT_C, max_iter=1000)
    model.fit((rows - mean) / deviation, label)
    return model.decision_function((queries - mean) / deviation)


@cache
@threadpool_limits.wrap(limits=1)
def simulated_lead():
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


def first_lasting_k(holds):
    """Return the first k from which on something holds."""
    return next(k for s, k in enumerate(SHOTS) if holds[s:].all())


def test_the_crossover_is_the_one_that_the_construction_implies():
    """Between two k, the crossover is the larger one."""
    centroid, logistic, _ = curves_of()
    lead = logistic - centroid
    k_mean = first_lasting_k(lead.mean(axis=1) > 0)
    k_clear = first_lasting_k(np.percentile(lead, 1, axis=1) > 0)
    simulated = simulated_lead()
    (s,) = np.flatnonzero((simulated[:-1] <= 0) & (simulated[1:] > 0))
    implied = np.interp(0.0, simulated[s : s + 2], SIMULATED[s : s + 2])
    assert k_mean - 1 - LARGEST_ERROR <= implied <= k_mean + LARGEST_ERROR
    assert k_mean < k_clear <= 2 * k_mean + 1


def test_leads_are_those_of_the_simulation_at_first_of_the_centroid_then_of_logistic():
    centroid, logistic, _ = curves_of()
    lead = (logistic - centroid).mean(axis=1)
    assert lead[0] < -0.03
    assert lead[-1] > 0.1
    found = lead[np.searchsorted(SHOTS, SIMULATED)]
    assert found == pytest.approx(simulated_lead(), abs=0.05)


def test_the_centroid_never_passes_logistic_regression_on_all_labels():
    centroid, _, all_labels = curves_of()
    assert (centroid.mean(axis=1) <= all_labels).all()
    assert all_labels > centroid[-1].mean() + 0.05
