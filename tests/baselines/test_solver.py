"""The solver against scikit-learn's, and against a literal J; its products against NumPy's."""

import numba
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from callshot.baselines import solver as products
from callshot.baselines.path_solver import PathSolver
from callshot.baselines.solver import Problem, make_problem, solve
from literal import logistic_objective

SHAPES = {  # sizes of the classes, dimensions
    "more rows than dimensions": ((40, 30, 20), 5),
    "more dimensions than rows": ((4, 3, 2), 30),
    "wildly different classes": ((200, 1, 2), 12),
    "two classes, one column": ((9, 4), 1),
}


def rows_of(name):
    sizes, dimensions = PATH_SHAPES[name]
    rng = np.random.default_rng(0)
    label = np.repeat(np.arange(len(sizes)), sizes)
    means = rng.normal(size=(len(sizes), dimensions))
    rows = means[label] + rng.normal(size=(len(label), dimensions))
    return rows - rows.mean(axis=0), label


def solved(rows, label, c, *, gram, tolerance=1e-15, start=0.0):
    """Return the weight, the bias and the gap of a fit."""
    classes = label.max() + 1
    # Columns of zeros change nothing, and make a fit in the span possible.
    wide = np.pad(rows, ((0, 0), (0, len(rows))))
    problem = make_problem(wide, label, c)
    if not gram:
        problem = Problem(rows, np.ascontiguousarray(rows.T), gram, label, c)
    weight = np.full((classes, len(problem.columns)), start)
    weight[0] *= -1
    bias = np.full(classes, start)
    gap = solve(problem, tolerance, weight, bias)
    return (weight @ rows if gram else weight), bias, gap


def golden(rows, label, c):
    """Return scikit-learn's weight and bias; it has one row of weights for two classes, not two."""
    is_binary = label.max() == 1
    model = LogisticRegression(C=2 * c if is_binary else c, tol=1e-10, max_iter=100_000)
    model.fit(rows, label)
    if not is_binary:
        return model.coef_, model.intercept_
    weight = model.coef_[0] / 2
    bias = model.intercept_[0] / 2
    return np.array([-weight, weight]), np.array([-bias, bias])


@pytest.mark.parametrize("gram", [True, False], ids=["in the span", "by weights"])
@pytest.mark.parametrize("c", [0.001, 100.0])
@pytest.mark.parametrize("name", SHAPES)
def test_the_optimum_is_scikit_learns(name, c, gram):
    rows, label = rows_of(name)
    weight, bias, gap = solved(rows, label, c, gram=gram)
    golden_weight, golden_bias = golden(rows, label, c)
    golden_value = logistic_objective(rows, label, golden_weight, golden_bias, c)
    assert gap <= 1e-15
    assert logistic_objective(rows, label, weight, bias, c) <= golden_value + 1e-9
    scale = max(1.0, np.abs(golden_weight).max())
    np.testing.assert_allclose(weight, golden_weight, atol=2e-4 * scale)


PATH_SHAPES = SHAPES | {
    "as many rows as dimensions": ((40, 30, 20), 90),
    "many more rows than dimensions": ((90, 60, 50), 40),
}


@pytest.mark.parametrize("scale", [1e-3, 1e3])
@pytest.mark.parametrize("name", PATH_SHAPES)
def test_one_c_after_another_has_the_optimum_of_each(name, scale):
    rows, label = rows_of(name)
    rows = scale * rows
    path = PathSolver(rows, label, label.max() + 1)
    for c in (1e-5, 0.1, 1.0, 3.0, 1.0, 100.0):
        tolerance = 1e-13 * min(c, 1.0)
        weight, bias, gap = path.solve(c, tolerance)
        other, other_bias, _ = solved(rows, label, c, gram=False, tolerance=tolerance)
        assert gap <= max(tolerance, 1e-12 * scale**2)
        expected = rows @ other.T + other_bias - other_bias.mean()
        logits = rows @ weight.T + bias - bias.mean()
        atol = 1e-5 * max(1.0, scale)  # an error of the weights grows with the rows
        np.testing.assert_allclose(logits, expected, rtol=0, atol=atol)


def test_the_path_of_rows_of_zeros_and_of_equal_rows_ends_at_an_optimum():
    rows, label = rows_of("as many rows as dimensions")
    weight, bias, _ = PathSolver(0.0 * rows, label, 3).solve(1.0, 1e-15)
    assert not weight.any()
    p = np.exp(bias) / np.exp(bias).sum()
    np.testing.assert_allclose(p, np.bincount(label) / len(label), atol=1e-7)
    rows[1::2] = rows[::2]
    rows[:, 7:] = 0.0
    assert PathSolver(rows, label, 3).solve(1.0, 1e-12)[2] <= 1e-12


@pytest.mark.parametrize(
    "start", [0.5, 1e4], ids=["near", "where everything saturates"]
)
@pytest.mark.parametrize("gram", [True, False])
def test_the_start_does_not_change_the_optimum(gram, start):
    rows, label = rows_of("wildly different classes")
    weight, bias, _ = solved(rows, label, 1.0, gram=gram)
    other, other_bias, _ = solved(rows, label, 1.0, gram=gram, start=start)
    np.testing.assert_allclose(other, weight, atol=1e-6)
    np.testing.assert_allclose(
        other_bias - other_bias.mean(), bias - bias.mean(), atol=1e-6
    )


@pytest.mark.parametrize("tolerance", [1e-1, 1e-6])
@pytest.mark.parametrize("name", list(SHAPES)[:3])
def test_the_gap_bounds_the_distance_to_the_optimum(name, tolerance):
    """Twice the gap: the part of the bias is an estimate."""
    rows, label = rows_of(name)
    weight, bias, _ = solved(rows, label, 1.0, gram=False)
    lowest = logistic_objective(rows, label, weight, bias, 1.0)
    for gram in (True, False):
        weight, bias, gap = solved(rows, label, 1.0, gram=gram, tolerance=tolerance)
        assert gap <= tolerance
        assert (
            logistic_objective(rows, label, weight, bias, 1.0) - lowest
            <= 2 * gap + 1e-12
        )


def test_a_tolerance_below_rounding_ends_where_rounding_does():
    rows, label = rows_of("more dimensions than rows")
    # Centred, and some rows are equal: the Gram matrix is singular.
    rows = 1000.0 * np.concatenate([rows, rows[:4]])
    label = np.concatenate([label, label[:4]])
    weight, bias, gap = solved(rows, label, 0.1, gram=True, tolerance=0.0)
    other, other_bias, _ = solved(rows, label, 0.1, gram=False)
    expected = logistic_objective(rows, label, other, other_bias, 0.1)
    assert gap < 1e-9
    assert logistic_objective(rows, label, weight, bias, 0.1) == pytest.approx(
        expected, abs=1e-9
    )


def test_rows_of_zeros_give_the_frequencies_of_the_classes():
    label = np.array([0, 0, 0, 1, 2, 2])
    for gram in (True, False):
        weight, bias, gap = solved(np.zeros((6, 4)), label, 1.0, gram=gram)
        assert not weight.any()
        assert gap <= 1e-15
        p = np.exp(bias) / np.exp(bias).sum()
        np.testing.assert_allclose(p, [3 / 6, 1 / 6, 2 / 6], atol=1e-7)


@numba.njit
def step_from_zeros(problem, classes, number, decrease):
    """Take a step of equal numbers; return where it leads, and C · objective after and before."""
    rows, unknowns = problem.rows.shape
    position = products.new_vector(classes, unknowns, rows, problem.is_gram)
    p = np.empty_like(position.logits)
    step = np.full(position.values.size, number)
    value = products.value_at(problem, position, p)
    new = products.take_step(problem, position, step, decrease, value, p)
    return position.values, new, value


@pytest.mark.parametrize("decrease", [1.0, np.nan, np.inf])
def test_a_step_that_is_no_number_is_not_taken(decrease):
    rows, label = rows_of("more rows than dimensions")
    problem = make_problem(rows, label, 1.0)
    values, new, value = step_from_zeros(problem, 3, np.nan, decrease)
    assert not values.any()
    assert new == value


def multiply(left, right):
    out = np.full((len(left), len(right)), np.nan)
    products.multiply(left, right, False, out)
    return out


@settings(max_examples=30)
@given(
    st.integers(1, 40),
    st.sampled_from([1, 3, 700, 9000]),
    st.integers(1, 60),
    st.integers(0, 10**6),
)
def test_a_product_is_numpys(m, k, n, seed):
    rng = np.random.default_rng(seed)
    left = rng.normal(size=(m, k))
    right = rng.normal(size=(n, k))
    np.testing.assert_allclose(
        multiply(left, right), left @ right.T, rtol=0, atol=1e-10
    )


@settings(max_examples=30)
@given(st.integers(1, 40), st.sampled_from([1, 3, 9000]), st.integers(0, 10**6))
def test_a_gram_matrix_is_numpys_and_symmetric_to_the_last_bit(count, dimensions, seed):
    rows = np.random.default_rng(seed).normal(size=(count, dimensions))
    out = np.full((count, count), np.nan)
    products.multiply(rows, rows, True, out)
    np.testing.assert_allclose(out, rows @ rows.T, rtol=0, atol=1e-10)
    assert (out == out.T).all()
