import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.neighbors import NearestCentroid

from callshot.errors import InputError
from callshot.fewshot.centroid import centroids, linear_layer, score


@given(st.integers(0, 1000))
def test_the_decision_is_scikit_learns_nearest_centroid(seed):
    rng = np.random.default_rng(seed)
    vectors, label = rng.normal(size=(20, 5)), np.array(["a", "b", "c", "d"] * 5)
    queries = rng.normal(size=(30, 5))
    layer = linear_layer(vectors, label)
    golden = NearestCentroid().fit(vectors, label).predict(queries)
    assert [layer.classes[n] for n in layer(queries).argmax(axis=1)] == golden.tolist()


def test_the_linear_layer_and_the_distances_give_the_same_softmax():
    rng = np.random.default_rng(0)
    vectors, label, z = rng.normal(size=(9, 4)), ["a", "b", "c"] * 3, rng.normal(size=4)
    _, means = centroids(vectors, label)
    by_distance = -((z - means) ** 2).sum(axis=1)
    np.testing.assert_allclose(
        score(linear_layer(vectors, label)(z), "softmax"), score(by_distance, "softmax"), rtol=1e-12
    )


def test_a_support_without_labels_is_refused():
    with pytest.raises(InputError, match="one label per support vector"):
        centroids(np.zeros((2, 3)), ["a"])
