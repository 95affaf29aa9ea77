import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from matplotlib.text import Text

from callshot import Vectors
from callshot.report.figures.figure_io import freeze, open_figure
from callshot.report.figures.projection import draw_map, place_names
from callshot.report.plane import principal_plane


@pytest.mark.parametrize("shape", [(40, 5), (7, 30), (3, 3), (12, 90), (2, 5)])
def test_the_plane_equals_that_of_a_singular_value_decomposition(shape):
    vectors = np.random.default_rng(0).normal(size=shape) * np.linspace(3, 1, shape[1])
    points, shares = principal_plane(vectors)
    left, values, _ = np.linalg.svd(vectors - vectors.mean(axis=0), full_matrices=False)
    assert np.allclose(np.abs(points), np.abs(left[:, :2] * values[:2]))
    assert np.allclose(shares, values[:2] ** 2 / (values**2).sum())


@given(
    arrays(np.float64, (6, 3), elements=st.integers(-50, 50)), st.permutations(range(3))
)
def test_neither_the_sign_nor_the_order_of_dimensions_turns_the_plane(vectors, order):
    variances = np.linalg.eigvalsh(np.cov(vectors.T))
    points, shares = principal_plane(vectors)
    other, _ = principal_plane(-vectors[:, order])
    assert 0 <= shares[1] <= shares[0] <= 1 + 1e-9
    farthest = np.sort(np.abs(points), axis=0)
    is_unique = (
        np.diff(variances).min() > 1 and (farthest[-1] - farthest[-2]).min() > 1e-6
    )
    if is_unique:  # otherwise the axes are arbitrary
        assert np.allclose(
            points, -other * np.sign((points * -other).sum(axis=0)), atol=1e-6
        )
        assert (points[np.abs(points).argmax(axis=0), (0, 1)] > 0).all()


@pytest.mark.parametrize(
    "vectors", [np.ones((4, 3)), np.zeros((1, 1)), np.array([[1.0], [2.0], [4.0]])]
)
def test_vectors_that_span_no_plane_are_projected_too(vectors):
    points, shares = principal_plane(vectors)
    assert points.shape == (len(vectors), 2)
    assert np.isfinite(points).all()
    assert shares[1] == 0


def test_a_centroid_is_the_mean_of_its_label_and_other_labels_have_none():
    vectors = [[0.0, 1], [2, 1], [8, 0], [9, 9]]
    table = Vectors.from_columns(
        "e", vectors, "abcd", "abcd", ["x", "x", "y", "rare"], [()] * 4
    )
    with open_figure() as figure:
        centroids = draw_map(figure.subplots(), table, ["y", "x"])
    points, _ = principal_plane(table.matrix)
    assert np.allclose(centroids, [points[2], points[:2].mean(axis=0)])


def test_names_of_points_in_one_place_are_written_around_it():
    with open_figure() as figure:
        ax = figure.subplots()
        freeze(figure)
        place_names(ax, np.full((30, 2), 0.5), [str(i) for i in range(30)])
        figure.draw_without_rendering()
        boxes = [Text.get_window_extent(text) for text in ax.texts]  # without the lines
    assert not any(
        box.overlaps(other) for i, box in enumerate(boxes) for other in boxes[:i]
    )
