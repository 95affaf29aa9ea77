import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from callshot.baselines.centroid_to_logistic import (
    find_gradient,
    find_temperature,
    refine_centroid,
    refine_split,
)
from callshot.baselines.logistic import score_logistic, standardise
from callshot.baselines.path_solver import Objective, principal_axes
from callshot.baselines.scoring import measure
from callshot.fewshot.centroid import linear_layer, log_odds
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from corpora import episodes_of, folds_of, gaussian_corpus
from literal import logistic_objective


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


def test_at_the_end_it_is_logistic_regression(table):
    episodes = episodes_of(table)
    for fold, c in enumerate((1.0, 0.1, 1.0)):
        path = refine_split(episodes, fold, c)
        golden, _ = score_logistic(episodes, c=c)
        queries = episodes.fold == fold
        np.testing.assert_allclose(
            log_odds(path.logits[-1]), golden[queries], atol=0.02
        )


@pytest.mark.parametrize("dimensions", [8, 90])
def test_the_gradient_is_zero_at_scikit_learns_optimum_and_agrees_with_finite_differences(
    dimensions,
):
    table = corpus(dimensions=dimensions)
    rows = StandardScaler().fit_transform(table.matrix)
    label = np.unique(table.label, return_inverse=True)[1]
    c = 0.5
    model = LogisticRegression(C=c, tol=1e-10, max_iter=100_000).fit(rows, label)
    rng = np.random.default_rng(0)
    weight, change = rng.normal(size=(2, 3, dimensions))
    bias, change_of_bias = rng.normal(size=(2, 3))
    axes = principal_axes(np.vstack([rows, weight, change]))
    objective = Objective(rows, label, 3, axes)

    def evaluate(weight, bias):
        position = objective.position(weight, bias)
        value, p = objective.evaluate(c, position)
        return value / c, find_gradient(objective, c, position, p)

    lowest, gradient = evaluate(model.coef_, model.intercept_)
    assert np.abs(gradient).max() < 1e-4
    value, gradient = evaluate(weight, bias)
    assert value == pytest.approx(logistic_objective(rows, label, weight, bias, c))
    changed, _ = evaluate(weight + 1e-6 * change, bias + 1e-6 * change_of_bias)
    slope = np.vdot(gradient, objective.position(change, change_of_bias))
    assert changed - value == pytest.approx(1e-6 * slope, rel=1e-3)
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
    objective = Objective(rows, label, 3, np.eye(8))
    start = objective.position(
        layer.weight * deviation, layer.bias + layer.weight @ mean
    )
    best = find_temperature(objective, 1.0, start)
    values = {
        temperature: objective.evaluate(1.0, start / temperature)[0]
        for temperature in (1.0, best * 0.99, best, best * 1.01)
    }
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


def test_a_path_can_be_stopped_before_each_step():
    left = [1, 1, 1]
    with pytest.raises(IndexError):
        refine_split(episodes_of(corpus()), 0, 0.1, left.pop)
    assert not left
