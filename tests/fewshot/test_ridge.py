"""Ridge regression on nested supports, against scikit-learn."""

import numpy as np
import pytest
from sklearn.linear_model import Ridge

from callshot.fewshot.protocol import Protocol
from callshot.fewshot.ridge import score_support, support_rows
from callshot.fewshot.spreads import make_spread
from corpora import episodes_of, random_corpus


@pytest.mark.parametrize("is_weighted", [False, True])
@pytest.mark.parametrize("dimensions", [2, 30])
def test_the_logits_at_every_size_are_those_of_scikit_learn(dimensions, is_weighted):
    rng = np.random.default_rng(dimensions)
    vectors = rng.normal(size=(13, dimensions))
    vectors[7] = vectors[2]  # the sampler `replacement` draws one exemplar twice
    queries = rng.normal(size=(6, dimensions))
    label = rng.integers(3, size=len(vectors))
    weight = rng.exponential(size=len(vectors)) if is_weighted else None
    sizes = np.array([1, 3, 8, 8, 13])
    products = vectors @ np.vstack([vectors, queries]).T
    a = score_support(products, label, 3, sizes, weight)
    for s, size in enumerate(sizes):
        targets = 10.0 * (label[:size, None] == np.arange(3))
        golden = Ridge(alpha=1.0, fit_intercept=False)
        shares = None if weight is None else weight[:size]
        golden.fit(vectors[:size], targets, shares)
        np.testing.assert_allclose(a[s], golden.predict(queries).T, atol=1e-10)


def test_an_exemplar_of_weight_2_counts_as_two():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(3, 4))
    twice = vectors[[0, 1, 1, 2]]
    label = np.array([0, 1, 0])
    weighted = score_support(
        vectors @ np.vstack([vectors, vectors]).T,
        label,
        2,
        np.array([3]),
        np.array([1.0, 2.0, 1.0]),
    )
    repeated = score_support(
        twice @ np.vstack([twice, vectors]).T, label[[0, 1, 1, 2]], 2, np.array([4])
    )
    np.testing.assert_allclose(weighted, repeated, atol=1e-12)


def test_a_support_takes_an_exemplar_of_each_class_in_turn():
    episodes = episodes_of(random_corpus(3, classes=3, size=4))
    spread = make_spread("shared", episodes, Protocol(shots=(1, 2, 3), shared_draws=2))
    rows, sizes = support_rows(spread, 0, 1, np.array([1, 2, 3]))
    for s, k in enumerate((1, 2, 3)):
        supports = spread.supports(0, k, 1)
        assert set(rows[: sizes[s]]) == set(np.concatenate(supports))
