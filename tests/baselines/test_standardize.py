import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from sklearn.preprocessing import StandardScaler

from callshot.baselines.standardize import standardise


def test_many_rows_are_standardised_as_by_scikit_learn():
    vectors = np.random.default_rng(0).normal(size=(50, 7)) * [1, 2, 3, 4, 5, 6, 0.9] + 100.0
    golden = StandardScaler().fit(vectors)
    rows, mean, deviation = standardise(vectors)
    np.testing.assert_allclose(rows, golden.transform(vectors), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(mean, golden.mean_)
    np.testing.assert_allclose(deviation, golden.scale_)


def test_a_column_in_which_few_rows_happen_to_agree_is_not_blown_up():
    vectors = np.array([[1.0, 5.0, 0.3], [2.0, 9.0, 0.3000001]])
    rows, _, deviation = standardise(vectors)
    middle = np.median(vectors.std(axis=0))
    np.testing.assert_allclose(
        deviation, [middle / np.sqrt(2) if d == 2 else vectors[:, d].std() for d in range(3)]
    )
    assert np.abs(rows[:, 2]).max() < 1e-6


@given(st.floats(-1e6, 1e6), st.integers(2, 30))
def test_a_constant_column_is_exactly_zero(value, count):
    vectors = np.random.default_rng(count).normal(size=(count, 4))
    vectors[:, 1:] = value
    rows, mean, _ = standardise(vectors)
    assert not rows[:, 1:].any()
    assert (mean[1:] == value).all()
    assert np.isfinite(rows).all()


def test_rooms_are_filled_and_vectors_left_alone():
    vectors = np.arange(12.0).reshape(4, 3)
    room = np.empty_like(vectors)
    rows, _, _ = standardise(vectors, room)
    assert rows is room
    assert (vectors == np.arange(12.0).reshape(4, 3)).all()
