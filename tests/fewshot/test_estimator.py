"""`CentroidClassifier` against scikit-learn's conventions and its nearest centroid."""

import math
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid
from sklearn.utils.estimator_checks import check_estimator

from callshot import CentroidClassifier
from callshot.errors import InputError
from callshot.fewshot.centroid import log_odds

NAMES = np.array(["a", "b", "c", "d"])


def random_examples(seed, classes=4, rows=20, scale=1.0):
    rng = np.random.default_rng(seed)
    return scale * rng.normal(size=(rows, 5)), NAMES[np.arange(rows) % classes]


def weights(model):
    return (model.centroids_, model.coef_, model.intercept_)


@pytest.fixture
def without_sklearn(monkeypatch):
    for module in ("sklearn.utils.validation", "sklearn.utils.multiclass"):
        monkeypatch.setitem(sys.modules, module, None)


@pytest.mark.filterwarnings(
    "ignore:.*does not inherit from `sklearn.base.BaseEstimator`"
)
@pytest.mark.filterwarnings("ignore::sklearn.exceptions.SkipTestWarning")
def test_scikit_learns_check_estimator_passes():
    pytest.importorskip("sklearn", minversion="1.6")  # the first with `validate_data`
    check_estimator(CentroidClassifier())


@given(st.integers(0, 1000), st.integers(2, 4))
def test_the_prediction_is_scikit_learns_nearest_centroid(seed, classes):
    X, y = random_examples(seed, classes)
    queries, _ = random_examples(seed + 1, rows=30)
    model = CentroidClassifier().fit(X, y)
    golden = NearestCentroid().fit(X, y)
    assert model.predict(queries).tolist() == golden.predict(queries).tolist()
    assert model.score(queries, golden.predict(queries)) == 1.0


@given(st.integers(0, 1000), st.sampled_from([1e-200, 1.0, 1e100]), st.randoms())
def test_partial_fit_gives_the_bits_of_fit_whatever_the_batches_and_their_order(
    seed, scale, random
):
    X, y = random_examples(seed, scale=scale)
    X[::7] *= 1e-9
    whole = CentroidClassifier().fit(X, y)
    order = list(range(len(X)))
    random.shuffle(order)
    model = CentroidClassifier()
    while order:
        batch = [order.pop() for _ in range(min(len(order), random.randint(1, 6)))]
        model.partial_fit(X[batch], y[batch], classes=NAMES)
    assert model.classes_.tolist() == whole.classes_.tolist()
    for one, other in zip(weights(model), weights(whole), strict=True):
        np.testing.assert_array_equal(one, other)


def test_probabilities_and_log_odds_are_those_of_the_linear_layer():
    X, y = random_examples(0)
    model = CentroidClassifier().fit(X, y)
    a = X @ model.coef_.T + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), log_odds(a), rtol=1e-12)
    probability = model.predict_proba(X)
    np.testing.assert_allclose(probability.sum(axis=1), 1.0)
    odds = np.log(probability / (1 - probability))
    np.testing.assert_allclose(model.decision_function(X), odds, rtol=1e-6)


def test_two_classes_have_one_row_of_weights_and_one_log_odds():
    X, y = random_examples(0, classes=2)
    model = CentroidClassifier().fit(X, y)
    assert model.coef_.shape == (1, 5)
    a = X @ model.coef_[0] + model.intercept_
    np.testing.assert_allclose(model.decision_function(X), a, rtol=1e-9, atol=1e-12)
    assert (model.predict(X) == np.where(a > 0, "b", "a")).all()


def test_a_new_class_may_come_with_any_batch():
    model = CentroidClassifier().partial_fit([[0.0], [2.0]], ["rumble", "rumble"])
    assert model.predict([[9.0]]).tolist() == ["rumble"]
    model.partial_fit([[9.0]], ["longroar-rumble"])
    assert model.classes_.tolist() == ["longroar-rumble", "rumble"]
    assert model.predict([[8.0]]).tolist() == ["longroar-rumble"]


def test_the_numbers_are_the_same_without_scikit_learn(without_sklearn):
    X, y = random_examples(0)
    alone = CentroidClassifier().fit(X, y)
    scores = alone.decision_function(X)
    assert alone.n_features_in_ == 5
    sys.modules.pop("sklearn.utils.validation")
    sys.modules.pop("sklearn.utils.multiclass")
    np.testing.assert_array_equal(
        CentroidClassifier().fit(X, y).decision_function(X), scores
    )


@pytest.mark.parametrize(
    ("X", "y", "message"),
    [
        ([1.0, 2.0], ["a", "b"], r"X: expected finite .*, got shape \(2,\)"),
        ([[1.0], [math.nan]], ["a", "b"], "X: expected finite numbers .*, or NaN"),
        ([[1.0], [2.0]], ["a"], r"y: expected 2 labels, got shape \(1,\)"),
        ([[1.0, 2.0]], ["a"], r"X: expected .* of shape \(n_samples, 3\), got"),
    ],
)
def test_wrong_input_is_rejected_without_scikit_learn(X, y, message, without_sklearn):
    model = CentroidClassifier()
    with pytest.raises(InputError, match="not fitted"):
        model.predict([[0.0]])
    if "n_samples, 3" in message:
        model.fit([[0.0, 1.0, 2.0]], ["a"])
    with pytest.raises(InputError, match=message):
        model.partial_fit(X, y)
