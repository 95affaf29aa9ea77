"""The solver against scikit-learn's, and against a literal J."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.linear_model import LogisticRegression

from callshot.baselines.kernels.solver import gram_matrix, solve

SHAPES = {  # sizes of the classes, dimensions
    "more rows than dimensions": ((40, 30, 20), 5),
    "more dimensions than rows": ((4, 3, 2), 30),
    "one row of each class": ((1, 1, 1, 1), 8),
    "wildly different classes": ((200, 1, 2), 12),
    "two classes, one column": ((9, 4), 1),
}


def rows_of(name, seed=0):
    sizes, dimensions = SHAPES[name]
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    rows = rng.normal(size=(len(sizes), dimensions))[label] + rng.normal(
        size=(len(label), dimensions)
    )
    return rows - rows.mean(axis=0), label


def j(rows, label, weight, bias, strength):
    """The objective, written out."""
    loss = 0.0
    for z, n in zip(rows, label, strict=True):
        logits = weight @ z + bias
        loss += logits.max() + np.log(np.exp(logits - logits.max()).sum()) - logits[n]
    return loss + (weight**2).sum() / (2 * strength)


def solved(rows, label, strength, *, gram, tolerance=1e-15, start=0.0):
    classes, table = label.max() + 1, gram_matrix(rows) if gram else rows
    weight, bias = np.full((classes, table.shape[1]), start), np.full(classes, start)
    weight[0] *= -1
    left = solve(
        table, np.ascontiguousarray(table.T), gram, label, strength, tolerance, weight, bias
    )
    return (weight @ rows if gram else weight), bias, left


def golden(rows, label, strength):
    """scikit-learn's optimum, as far as its tolerance goes; two classes have one row of weights there, two here."""
    model = LogisticRegression(C=strength, tol=1e-10, max_iter=100_000).fit(rows, label)
    if len(model.classes_) > 2:
        return model.coef_, model.intercept_, model
    model = LogisticRegression(C=2 * strength, tol=1e-10, max_iter=100_000).fit(rows, label)
    half, intercept = model.coef_[0] / 2, model.intercept_[0] / 2
    return np.array([-half, half]), np.array([-intercept, intercept]), model


@pytest.mark.parametrize("gram", [True, False], ids=["in the span", "by weights"])
@pytest.mark.parametrize("strength", [0.001, 0.1, 1.0, 100.0])
@pytest.mark.parametrize("name", SHAPES)
def test_the_optimum_is_scikit_learns(name, strength, gram):
    rows, label = rows_of(name)
    weight, bias, left = solved(rows, label, strength, gram=gram)
    theirs, their_bias, _ = golden(rows, label, strength)
    assert left <= 1e-15
    assert (
        j(rows, label, weight, bias, strength)
        <= j(rows, label, theirs, their_bias, strength) + 1e-9
    )
    np.testing.assert_allclose(weight, theirs, atol=2e-4 * max(1.0, np.abs(theirs).max()))


@settings(max_examples=40)
@given(st.sampled_from(list(SHAPES)), st.integers(0, 10**6), st.floats(-4, 4), st.booleans())
def test_no_step_from_the_optimum_leads_down(name, seed, power, gram):
    rows, label = rows_of(name, seed)
    rng, strength = np.random.default_rng(seed), 10.0**power
    weight, bias, _ = solved(rows, label, strength, gram=gram)
    lowest = j(rows, label, weight, bias, strength)
    for size in (1e-4, 1e-2, 1.0):
        there = j(
            rows,
            label,
            weight + size * rng.normal(size=weight.shape),
            bias + size * rng.normal(size=len(bias)),
            strength,
        )
        assert there >= lowest - 1e-11 * max(1.0, lowest)


@pytest.mark.parametrize("start", [0.5, 1e4], ids=["near", "where everything saturates"])
@pytest.mark.parametrize("gram", [True, False])
def test_where_it_starts_does_not_matter(gram, start):
    rows, label = rows_of("wildly different classes")
    weight, bias, _ = solved(rows, label, 1.0, gram=gram)
    other, other_bias, _ = solved(rows, label, 1.0, gram=gram, start=start)
    np.testing.assert_allclose(other, weight, atol=1e-6)
    np.testing.assert_allclose(other_bias - other_bias.mean(), bias - bias.mean(), atol=1e-6)


@pytest.mark.parametrize("tolerance", [1e-1, 1e-3, 1e-6])
@pytest.mark.parametrize("name", SHAPES)
def test_what_is_left_is_no_less_than_what_it_says(name, tolerance):
    rows, label = rows_of(name)
    lowest = j(rows, label, *solved(rows, label, 1.0, gram=False)[:2], 1.0)
    for gram in (True, False):
        weight, bias, left = solved(rows, label, 1.0, gram=gram, tolerance=tolerance)
        assert left <= tolerance
        assert (
            j(rows, label, weight, bias, 1.0) - lowest <= 2 * left + 1e-12
        )  # the bias is estimated


def test_equal_rows_and_empty_columns_do_no_harm():
    rows, label = rows_of("more dimensions than rows")
    rows, label = np.repeat(rows, 3, axis=0), np.repeat(label, 3)
    rows[:, ::2] = 0.0
    one, bias, _ = solved(rows, label, 1.0, gram=True)
    other, other_bias, _ = solved(rows, label, 1.0, gram=False)
    np.testing.assert_allclose(one, other, atol=1e-7)
    np.testing.assert_allclose(bias - bias.mean(), other_bias - other_bias.mean(), atol=1e-7)
    assert not one[:, ::2].any()


@pytest.mark.parametrize("seed", range(20))
def test_a_tolerance_below_rounding_ends_where_rounding_does(seed):
    rows, label = rows_of("more dimensions than rows", seed)
    rows = 1000.0 * np.concatenate(
        [rows, rows[:4]]
    )  # centred, and some twice: the Gram matrix is singular
    label = np.concatenate([label, label[:4]])
    weight, bias, left = solved(rows, label, 0.1, gram=True, tolerance=0.0)
    other, other_bias, _ = solved(rows, label, 0.1, gram=False)
    assert left < 1e-9
    assert j(rows, label, weight, bias, 0.1) == pytest.approx(
        j(rows, label, other, other_bias, 0.1), abs=1e-9
    )


def test_rows_that_say_nothing_leave_the_shares_of_the_classes():
    label = np.array([0, 0, 0, 1, 2, 2])
    for gram in (True, False):
        weight, bias, left = solved(np.zeros((6, 4)), label, 1.0, gram=gram)
        assert not weight.any()
        assert left <= 1e-15
        np.testing.assert_allclose(
            np.exp(bias) / np.exp(bias).sum(), [3 / 6, 1 / 6, 2 / 6], atol=1e-7
        )


@pytest.mark.parametrize("strength", [1e-6, 1e6])
def test_the_ends_of_the_strengths_are_reached(strength):
    rows, label = rows_of("more rows than dimensions")
    for gram in (True, False):
        assert solved(rows, label, strength, gram=gram, tolerance=1e-10)[2] <= 1e-10
