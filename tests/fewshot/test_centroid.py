import numpy as np

from callshot.fewshot.centroid import linear_layer, softmax


def test_the_linear_layer_and_the_distances_give_the_same_softmax():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(9, 4))
    label = ["a", "b", "c"] * 3
    z = rng.normal(size=4)
    means = np.stack([vectors[n::3].mean(axis=0) for n in range(3)])
    by_distance = -((z - means) ** 2).sum(axis=1)
    by_layer = linear_layer(vectors, label)(z)
    np.testing.assert_allclose(softmax(by_layer), softmax(by_distance), rtol=1e-12)
