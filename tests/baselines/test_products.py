"""Products for the kernels against NumPy's, on both sides of the size from which BLAS would start threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.baselines.kernels import products
from callshot.fewshot.kernels import COMPILED, njit


@njit(**COMPILED)
def multiplied(left, right, out):
    products.product(left, right, out)


@njit(**COMPILED)
def summed(x, y, table, out):
    products.fill_sums(table, out)
    return products.dot(x, y)


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
def test_a_small_product_is_numpys(m, k, n, seed):
    rng = np.random.default_rng(seed)
    left, right, out = rng.normal(size=(m, k)), rng.normal(size=(k, n)), np.full((m, n), np.nan)
    multiplied(left, right, out)
    np.testing.assert_allclose(out, left @ right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3, 12])
@pytest.mark.parametrize("rest", range(4))
def test_a_large_product_is_numpys_whatever_is_left_over_of_fours_and_twos(m, rest):
    rng = np.random.default_rng(m)
    k, n = 600 + rest, 500
    assert m * k * n > products.SMALL
    left, right, out = rng.normal(size=(m, k)), rng.normal(size=(k, n)), np.full((m, n), np.nan)
    multiplied(left, right, out)
    np.testing.assert_allclose(out, left @ right, rtol=0, atol=1e-11)


@pytest.mark.parametrize("m", [2, 5, 11, 12])
def test_a_product_in_a_few_parts_is_numpys(m):
    rng = np.random.default_rng(m)
    left, right, out = (
        rng.normal(size=(m, 230)),
        rng.normal(size=(230, 240)),
        np.full((m, 240), np.nan),
    )
    assert products.SMALL // (230 * 240) == 4
    multiplied(left, right, out)
    np.testing.assert_allclose(out, left @ right, rtol=0, atol=1e-12)


def test_whole_numbers_are_exact():
    rng = np.random.default_rng(0)
    left, right, out = (
        rng.integers(-9, 9, (5, 400)) * 1.0,
        rng.integers(-9, 9, (400, 300)) * 1.0,
        np.empty((5, 300)),
    )
    multiplied(left, right, out)
    assert (out == left @ right).all()


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_sums_and_inner_products_are_numpys(size):
    rng = np.random.default_rng(size)
    x, y, table, out = (
        rng.normal(size=size),
        rng.normal(size=size),
        rng.normal(size=(3, size)),
        np.empty(3),
    )
    assert summed(x, y, table, out) == pytest.approx(x @ y, abs=1e-12)
    np.testing.assert_allclose(out, table.sum(axis=1), rtol=0, atol=1e-12)


@given(st.integers(1, 40), st.sampled_from([1, 3, 9000]), st.integers(0, 10**6))
def test_a_gram_matrix_is_numpys_and_symmetric_to_the_last_bit(count, dimensions, seed):
    rows = np.random.default_rng(seed).normal(size=(count, dimensions))
    out = np.full((count, count), np.nan)
    products.fill_gram(rows, out)
    np.testing.assert_allclose(out, rows @ rows.T, rtol=0, atol=1e-10)
    assert (out == out.T).all()


@pytest.mark.parametrize("gram", [True, False])
def test_a_layer_for_standardised_columns_becomes_one_for_columns_as_they_were(gram):
    rng = np.random.default_rng(0)
    rows, mean, deviation = (
        rng.normal(size=(9, 20)),
        rng.normal(size=20),
        rng.uniform(0.5, 2.0, size=20),
    )
    numbers, bias, queries = (
        rng.normal(size=(3, 9 if gram else 20)),
        rng.normal(size=3),
        rng.normal(size=(7, 20)),
    )
    inside = ((queries - mean) / deviation) @ (numbers @ rows if gram else numbers).T + bias
    weight, shifted, out = np.empty((3, 20)), bias.copy(), np.empty((1, 3, 7))
    products.fill_layer(numbers, rows, gram, mean, deviation, weight, shifted)
    products.fill_logits(weight[None], shifted[None], queries, out)
    np.testing.assert_allclose(out[0], inside.T, rtol=0, atol=1e-12)
