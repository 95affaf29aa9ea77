"""Products of the kernels against NumPy's, below and above the size at which BLAS uses threads."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.baselines import solver as products
from callshot.fewshot.kernels import COMPILED, njit


@njit(**COMPILED)
def fill_product(left, right, out):
    products.multiply(left, right, out)


@njit(**COMPILED)
def fill_sums(table, out):
    products.fill_sums(table, out)


@njit(**COMPILED)
def dot(x, y):
    return products.dot(x, y)


def multiply(left, right):
    out = np.full((len(left), right.shape[1]), np.nan)
    fill_product(left, right, out)
    return out


@given(st.integers(1, 5), st.integers(1, 9), st.integers(1, 9), st.integers(0, 10**6))
def test_a_small_product_is_numpys(m, k, n, seed):
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(m, k))
    right = rng.normal(size=(k, n))
    np.testing.assert_allclose(multiply(left, right), left @ right, rtol=0, atol=1e-12)


@pytest.mark.parametrize("m", [1, 2, 3, 12])
@pytest.mark.parametrize("k", range(600, 604))
def test_a_large_product_is_numpys_with_any_remainder_of_fours_and_twos(m, k):
    rng = np.random.default_rng(m)
    left = rng.normal(size=(m, k))
    right = rng.normal(size=(k, 500))
    assert m * right.size > products.SMALL
    np.testing.assert_allclose(multiply(left, right), left @ right, rtol=0, atol=1e-11)


@pytest.mark.parametrize("m", [2, 5, 11, 12])
def test_a_product_in_a_few_parts_is_numpys(m):
    rng = np.random.default_rng(m)
    left = rng.normal(size=(m, 230))
    right = rng.normal(size=(230, 240))
    assert products.SMALL // right.size == 4
    np.testing.assert_allclose(multiply(left, right), left @ right, rtol=0, atol=1e-12)


def test_products_of_whole_numbers_are_exact():
    rng = np.random.default_rng(0)
    left = rng.integers(-9, 9, (5, 400)) * 1.0
    right = rng.integers(-9, 9, (400, 300)) * 1.0
    assert (multiply(left, right) == left @ right).all()


@pytest.mark.parametrize("size", [0, 1, 7, 1000])
def test_sums_and_inner_products_are_numpys(size):
    rng = np.random.default_rng(size)
    x = rng.normal(size=size)
    y = rng.normal(size=size)
    table = rng.normal(size=(3, size))
    out = np.empty(3)
    fill_sums(table, out)
    assert dot(x, y) == pytest.approx(x @ y, abs=1e-12)
    np.testing.assert_allclose(out, table.sum(axis=1), rtol=0, atol=1e-12)


@given(st.integers(1, 40), st.sampled_from([1, 3, 9000]), st.integers(0, 10**6))
def test_a_gram_matrix_is_numpys_and_symmetric_to_the_last_bit(count, dimensions, seed):
    rows = np.random.default_rng(seed).normal(size=(count, dimensions))
    out = np.full((count, count), np.nan)
    products.fill_gram(rows, out)
    np.testing.assert_allclose(out, rows @ rows.T, rtol=0, atol=1e-10)
    assert (out == out.T).all()


@pytest.mark.parametrize("gram", [True, False])
def test_a_layer_for_standardised_columns_becomes_one_for_the_original_columns(gram):
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(9, 20))
    mean = rng.normal(size=20)
    deviation = rng.uniform(0.5, 2.0, size=20)
    unknowns = rng.normal(size=(3, 9 if gram else 20))
    bias = rng.normal(size=3)
    queries = rng.normal(size=(7, 20))
    standardised_weight = unknowns @ rows if gram else unknowns
    expected = ((queries - mean) / deviation) @ standardised_weight.T + bias
    weight = np.empty((3, 20))
    shifted = bias.copy()
    out = np.empty((1, 3, 7))
    products.fill_layer(unknowns, rows, gram, mean, deviation, weight, shifted)
    products.fill_logits(weight[None], shifted[None], queries, out)
    np.testing.assert_allclose(out[0], expected.T, rtol=0, atol=1e-12)
