import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from callshot.baselines.centroid_to_logistic import (
    Descent,
    refine_centroid,
    refine_split,
)
from callshot.baselines.logistic import score_logistic, standardise
from callshot.baselines.scoring import measure
from callshot.fewshot.centroid import linear_layer, log_odds
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from corpora import episodes_of, folds_of, gaussian_corpus


def corpus(sizes=(30, 20, 10), dimensions=8, *, scale=1.0):
    table = gaussian_corpus(sizes, dimensions, separation=0.7)
    return dataclasses.replace(table, matrix=scale * table.matrix)


@pytest.fixture(scope="module", params=[8, 90], ids=["n > d", "n < d"])
def table(request):
    return corpus(dimensions=request.param)


@pytest.fixture(scope="module")
def refined(table):
    return refine_centroid(episodes_of(table), (1.0, 0.1, 1.0))


def test_at_step_0_it_is_the_centroid(table, refined):
    protocol = Protocol(
        shots=(), whole_pool=True, shared_draws=1, total_samples=1, spreads=("shared",)
    )
    golden = evaluate_tables([table], protocol, folds=folds_of(table))
    steps, values, _ = refined
    rounded = [0, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000]
    assert steps[:-1] == rounded[: len(steps) - 1]
    assert all(column.shape == (len(steps),) for column in values.values())
    for scoring, metric, mean in golden.curve.select(
        "scoring", "metric", "mean"
    ).iter_rows():
        assert values[scoring, metric][0] == pytest.approx(mean, abs=1e-12)


def test_at_the_end_it_is_logistic_regression_and_the_gap_gets_smaller(table):
    episodes = episodes_of(table)
    for fold, c in enumerate((1.0, 0.1, 1.0)):
        path = refine_split(episodes, fold, c)
        golden, _ = score_logistic(episodes, c=c)
        queries = episodes.fold == fold
        np.testing.assert_allclose(
            log_odds(path.logits[-1]), golden[queries], atol=0.02
        )
        assert -1e-9 < path.gap[-1] < 1e-4
        assert (np.diff(path.gap) < 1e-9).all()


@pytest.mark.parametrize("dimensions", [8, 90])
def test_the_gradient_is_zero_at_scikit_learns_optimum_and_agrees_with_finite_differences(
    dimensions,
):
    table = corpus(dimensions=dimensions)
    rows = StandardScaler().fit_transform(table.matrix)
    label = np.unique(table.label, return_inverse=True)[1]
    model = LogisticRegression(C=0.5, tol=1e-10, max_iter=100_000).fit(rows, label)
    optimum = Descent(rows, label, 0.5, model.coef_, model.intercept_)
    lowest, residual = optimum.evaluate(optimum.start)
    gradient = optimum.find_gradient(optimum.start, residual)
    assert np.abs(optimum.weight(gradient)).max() < 1e-4
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(3, dimensions))
    bias = rng.normal(size=3)
    descent = Descent(rows, label, 0.5, weight, bias)
    value, residual = descent.evaluate(descent.start)
    gradient = descent.find_gradient(descent.start, residual)
    change = rng.normal(size=(3, dimensions)) * 1e-6
    change_of_bias = rng.normal(size=3) * 1e-6
    changed = descent.evaluate_weight(weight + change, bias + change_of_bias)
    expected = np.vdot(descent.weight(gradient), change)
    expected += gradient.bias @ change_of_bias
    assert changed - value == pytest.approx(expected, rel=1e-3)
    assert value > lowest


def test_scores_that_saturate_are_divided_by_a_temperature_and_others_are_not():
    _, large, high = refine_centroid(episodes_of(corpus(scale=100.0)), (1.0,) * 3)
    _, small, low = refine_centroid(episodes_of(corpus(scale=0.001)), (1.0,) * 3)
    assert (high > 100.0).all()
    assert (low == 1.0).all()
    # J does not depend on the units.
    assert np.allclose(large["all", "map"][-1], small["all", "map"][-1])


def test_the_best_temperature_has_the_lowest_objective():
    table = corpus(scale=20.0)
    rows, mean, deviation = standardise(np.array(table.matrix))
    layer = linear_layer(table.matrix, table.label)
    label = np.unique(table.label, return_inverse=True)[1]
    bias = layer.bias + layer.weight @ mean
    weight = layer.weight * deviation
    descent = Descent(rows, label, 1.0, weight, bias)
    best = descent.find_temperature()
    values = {}
    for temperature in (1.0, best * 0.99, best, best * 1.01):
        values[temperature] = descent.evaluate_weight(
            weight / temperature, bias / temperature
        )
    assert min(values, key=values.get) == best


def test_progress_adds_up_and_categories_are_scored():
    shares = []
    episodes = episodes_of(corpus())
    categories = {"type 0": "low", "type 1": "low", "type 2": "high"}
    _, values, _ = refine_centroid(
        episodes,
        (0.1,) * 3,
        categories=categories,
        progress=lambda share, _: shares.append(share),
    )
    assert sum(shares) == pytest.approx(1.0)
    scores, _ = score_logistic(episodes, c=0.1)
    expected = measure(episodes, scores, categories)["reduced", "map"]
    assert values["reduced", "map"][-1] == pytest.approx(expected, abs=0.01)


def test_no_path_depends_on_the_position_of_its_queries():
    """Episodes are centred on all rows, queries included; the weights must not depend on that."""
    table = corpus()
    moved = table.matrix + 1e4 * (np.asarray(table.fold) == 0)[:, None]
    one = refine_split(episodes_of(table), 0, 1.0)
    other = refine_split(episodes_of(dataclasses.replace(table, matrix=moved)), 0, 1.0)
    assert other.steps == one.steps
    assert other.temperature == pytest.approx(one.temperature, rel=1e-9)
    assert other.gap == pytest.approx(one.gap, abs=1e-7)


def test_a_path_can_be_stopped_before_each_step():
    left = [1, 1, 1]
    with pytest.raises(IndexError):
        refine_split(episodes_of(corpus()), 0, 0.1, left.pop)
    assert not left
