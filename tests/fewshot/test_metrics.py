import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import literal
from callshot.fewshot.kernels import ranks
from callshot.fewshot.metrics import (
    FORMULAS,
    chance_average_precision,
    harmonic_numbers,
)
from callshot.records import METRICS

LEVELS = [-2.0, -0.0, 0.0, 1.0, 1.5, 3.0, 1e-300, 1e300]
rankings = st.integers(2, 80).flatmap(
    lambda n: st.tuples(
        st.lists(st.sampled_from(LEVELS), min_size=n, max_size=n),
        st.lists(st.booleans(), min_size=n, max_size=n).filter(any),
    )
)


def ranking_metrics(scores, relevant):
    weight = np.ones(len(scores), np.int64)
    return ranks.ranking_metrics(np.array(scores, float), weight, np.array(relevant))


def check_against_scikit_learn(scores, relevant):
    values = ranking_metrics(scores, relevant)[:2]
    golden = literal.ranking_metrics(scores, relevant)
    assert values == pytest.approx(golden, abs=1e-12, nan_ok=True)


@given(rankings)
def test_ap_and_auroc_treat_ties_as_scikit_learn_does(ranking):
    check_against_scikit_learn(*ranking)


@pytest.mark.parametrize("n", [5000, 20000])
def test_long_rankings_agree_too(n):
    rng = np.random.default_rng(n)
    check_against_scikit_learn(np.round(rng.normal(size=n), 3), rng.random(n) < 0.3)


@given(st.integers(1, 6), st.integers(1, 6))
def test_chance_is_the_mean_over_all_rankings(positives, negatives):
    n = positives + negatives
    places = np.arange(n)
    chosen = itertools.combinations(range(n), positives)
    values = [ranking_metrics(-places, np.isin(places, rows))[0] for rows in chosen]
    assert float(chance_average_precision(positives, n)) == pytest.approx(
        np.mean(values), abs=1e-12
    )


def test_chance_of_a_fold_full_of_positives_is_one():
    assert float(chance_average_precision(3, 3)) == 1.0
    assert float(chance_average_precision(1, 1)) == 1.0


@settings(max_examples=12)
@given(st.integers(0, 1000))
def test_expected_auroc_is_the_mean_over_every_way_to_pick(seed):
    rng = np.random.default_rng(seed)
    scores = rng.integers(0, 4, (4, 3)).astype(float)
    relevant = np.array([True, False, True, False])
    picks = itertools.product(range(3), repeat=4)
    values = [
        ranking_metrics(scores[np.arange(4), pick], relevant)[1] for pick in picks
    ]
    assert literal.expected_auroc(scores, relevant) == pytest.approx(
        np.mean(values), abs=1e-12
    )


def test_harmonic_numbers_are_right_to_the_last_digits():
    harmonic = harmonic_numbers(20000)
    for n in (0, 1, 2, 10, 1000, 20000):
        golden = math.fsum(1 / i for i in range(1, n + 1))
        assert harmonic[n] == pytest.approx(golden, rel=2e-16)


def test_every_metric_has_a_formula_and_a_name():
    assert list(FORMULAS) == list(METRICS)
    for name, formula in FORMULAS.items():
        if not METRICS[name].of_class and formula.of_fold is None:
            assert METRICS[formula.mean_of].of_class
