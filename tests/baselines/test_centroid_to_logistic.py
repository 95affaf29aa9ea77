import dataclasses

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from callshot.baselines.centroid_to_logistic import (
    LogisticObjective,
    follow,
    is_told,
    refine_centroid,
)
from callshot.baselines.logistic import score_logistic
from callshot.baselines.scoring import measure
from callshot.baselines.standardize import standardise
from callshot.errors import OptionError
from callshot.fewshot.centroid import linear_layer, log_odds
from callshot.fewshot.episodes import plan_episodes
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.folds import count_classes
from callshot.fewshot.protocol import Protocol
from callshot.records import Embeddings
from corpora import folds_of


def corpus(sizes=(30, 20, 10), dimensions=8, *, folds=3, scale=1.0, seed=0):
    rng = np.random.default_rng(seed)
    label = np.repeat(np.arange(len(sizes)), sizes)
    fold = np.concatenate([np.arange(size) % folds for size in sizes])
    fold[0] = -1
    vectors = 0.7 * rng.normal(size=(len(sizes), dimensions))[label] + rng.normal(
        size=(len(label), dimensions)
    )
    names, segment = [f"type {n}" for n in label], [f"s{i:04d}" for i in range(len(label))]
    return Embeddings(
        "test", scale * vectors, segment, segment, names, [(name,) for name in names], fold
    )


def episodes_of(table):
    folds = folds_of(table)
    return plan_episodes(table, folds, count_classes(table.label, folds))


@pytest.fixture(scope="module", params=[8, 90], ids=["n > d", "n < d"])
def table(request):
    return corpus(dimensions=request.param)


@pytest.fixture(scope="module")
def refined(table):
    return refine_centroid(episodes_of(table), (1.0, 0.1, 1.0))


def test_at_step_0_it_is_the_centroid(table, refined):
    protocol = Protocol(shots=(), whole_pool=True, shared_draws=1, spreads=("shared",))
    golden = evaluate_tables([table], protocol, folds=folds_of(table))
    assert refined.steps[0] == 0
    for c in golden.curve:
        assert refined.values[c.scoring, c.metric][0] == pytest.approx(c.mean, abs=1e-12)


def test_at_the_end_it_is_logistic_regression(table, refined):
    episodes = episodes_of(table)
    assert (np.abs(refined.above[-1]) < 1e-4).all()
    for fold, strength in enumerate((1.0, 0.1, 1.0)):
        path = follow(episodes, fold, strength)
        golden = score_logistic(episodes, np.arange(60), strength=strength)[0][
            episodes.fold == fold
        ]
        np.testing.assert_allclose(log_odds(path.a[-1]), golden, atol=0.02)


def test_the_way_leads_down(refined):
    assert (np.diff(refined.above[1:].max(axis=1)) < 1e-9).all()
    assert (refined.above > -1e-9).all()
    assert refined.above[0].min() > refined.above[1].max()


def test_the_steps_are_told_and_the_last(refined):
    steps = refined.steps.tolist()
    assert steps[:5] == [0, 1, 2, 5, 10]
    assert all(is_told(step) for step in steps[:-1])
    assert all(values.shape == refined.steps.shape for values in refined.values.values())
    assert refined.above.shape == (len(steps), 3)


def test_the_same_again_with_any_number_of_threads(table, refined):
    again = refine_centroid(episodes_of(table), (1.0, 0.1, 1.0), threads=1)
    assert again.steps.tolist() == refined.steps.tolist()
    assert again.above.tobytes() == refined.above.tobytes()
    for key, values in refined.values.items():
        assert again.values[key].tobytes() == values.tobytes()


def test_the_centroid_in_standardised_columns_scores_as_it_does_outside():
    table = corpus(dimensions=40, scale=30.0)
    vectors = np.array(table.vectors)
    vectors[:, :5] = 11.0  # constant: without weight inside, without effect outside
    label = np.unique(table.label, return_inverse=True)[1]
    layer = linear_layer(vectors, table.label)
    rows, mean, deviation = standardise(vectors)
    inside = rows @ (layer.weight * deviation).T + (layer.bias + layer.weight @ mean)
    outside = log_odds(layer(vectors))
    np.testing.assert_allclose(log_odds(inside), outside, atol=1e-6 * np.abs(outside).max())
    assert (outside.argmax(axis=1) == label).mean() > 0.5


def test_j_and_its_slope_are_scikit_learns_and_the_differences():
    table = corpus()
    rows = StandardScaler().fit_transform(table.vectors)
    label = np.unique(table.label, return_inverse=True)[1]
    valley, rng = LogisticObjective(rows, label, 0.5), np.random.default_rng(0)
    model = LogisticRegression(C=0.5, tol=1e-10, max_iter=100_000).fit(rows, label)
    best, (slope, bias_slope) = valley.slope((model.coef_, model.intercept_))
    assert np.abs(slope).max() < 1e-4
    assert np.abs(bias_slope).max() < 1e-4
    weight, bias = rng.normal(size=(3, 8)), rng.normal(size=3)
    here, (slope, bias_slope) = valley.slope((weight, bias))
    way, bias_way = rng.normal(size=(3, 8)) * 1e-6, rng.normal(size=3) * 1e-6
    there = valley.height((weight + way, bias + bias_way))
    assert there - here == pytest.approx((slope * way).sum() + bias_slope @ bias_way, rel=1e-3)
    assert here > best


def test_scores_that_saturate_are_divided_by_a_temperature_and_others_are_not():
    hot, cold = (refine_centroid(episodes_of(corpus(scale=s)), (1.0,) * 3) for s in (100.0, 0.001))
    assert (hot.temperature > 100.0).all()
    assert (cold.temperature == 1.0).all()
    assert hot.tempered.keys() == hot.values.keys()
    assert {key: values[0] for key, values in cold.values.items()} == pytest.approx(cold.tempered)
    assert np.allclose(
        hot.values["all", "map"][-1], cold.values["all", "map"][-1]
    )  # units do not matter to J


def test_the_temperature_is_the_lowest_point_on_the_way_to_nothing():
    table = corpus(scale=20.0)
    rows, mean, deviation = standardise(np.array(table.vectors))
    layer = linear_layer(table.vectors, table.label)
    valley = LogisticObjective(rows, np.unique(table.label, return_inverse=True)[1], 1.0)
    point = layer.weight * deviation, layer.bias + layer.weight @ mean
    best = valley.temperature(point)
    height = {
        t: valley.height((point[0] / t, point[1] / t))
        for t in (1.0, best * 0.99, best, best * 1.01)
    }
    assert min(height, key=height.get) == best


def test_no_path_knows_the_vectors_of_its_queries():
    episodes = episodes_of(corpus())
    rows = np.flatnonzero(episodes.fold == 0)
    vectors = episodes.vectors.copy()
    vectors[rows[1:]] *= -50.0
    one, other = (
        follow(episodes, 0, 1.0),
        follow(dataclasses.replace(episodes, vectors=vectors), 0, 1.0),
    )
    assert one.steps == other.steps
    np.testing.assert_allclose(one.a[-1][0], other.a[-1][0], rtol=1e-12)


def test_progress_categories_and_measures_come_along():
    heard, episodes = [], episodes_of(corpus())
    categories = {"type 0": "low", "type 1": "low", "type 2": "high"}
    found = refine_centroid(
        episodes,
        (0.1,) * 3,
        categories=categories,
        progress=lambda share, what: heard.append((share, what)),
    )
    assert sum(share for share, _ in heard) == pytest.approx(1.0)
    golden = measure(episodes, score_logistic(episodes, np.arange(60), strength=0.1)[0], categories)
    assert found.values["reduced", "map"][-1] == pytest.approx(golden["reduced", "map"], abs=0.01)


def test_a_strength_for_each_split_is_wanted():
    with pytest.raises(OptionError, match="strength: wanted one C for each of 3 splits, got 2"):
        refine_centroid(episodes_of(corpus()), (1.0, 1.0))
    with pytest.raises(OptionError, match="strength: C is"):
        refine_centroid(episodes_of(corpus()), (1.0, 1.0, -1.0))


@pytest.mark.parametrize("far", [20.0, 1e4])
def test_no_path_knows_where_its_queries_are(far):
    """Moved before episodes are planned: those are centred on all rows, and no weight may know on what."""
    table = corpus()
    moved = table.vectors + far * (np.asarray(table.fold) == 0)[:, None]
    one, other = (
        follow(episodes_of(dataclasses.replace(table, vectors=vectors)), 0, 1.0)
        for vectors in (table.vectors, moved)
    )
    assert other.steps == one.steps
    assert other.temperature == pytest.approx(one.temperature, rel=1e-9)
    assert other.above == pytest.approx(one.above, abs=1e-7)
