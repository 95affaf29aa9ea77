"""What more exemplars are worth, by a curve through the shots of a class."""

import math
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.label_budget import (
    label_budget,
    recommended_class,
    sample_gains,
    saturation,
)
from callshot.fewshot.protocol import Protocol
from callshot.records import ClassCount
from callshot.records.frames import PER_CLASS, make_frame
from callshot.vectors import Vectors
from corpora import random_corpus


def points(means, *, encoder="e", label="roar", metric="map", spread="shared"):
    """Return the curve of one class, rows of the PER_CLASS schema."""
    key = {
        "corpus": "herd",
        "encoder": encoder,
        "classifier": "centroid",
        "scoring": "all",
        "metric": metric,
        "spread": spread,
        "label": label,
        "p01": 0.0,
        "p99": 1.0,
    }
    return make_frame(PER_CLASS, {"k": list(means), "mean": list(means.values())}, key)


def budget(*args, **options):
    """Return the rows of a budget, with attributes."""
    frame = label_budget(*args, **options)
    return [SimpleNamespace(**row) for row in frame.iter_rows(named=True)]


def count(label="roar", complete=100, eligible=True):
    return ClassCount(label, complete + 2, complete, eligible)


def literal_fit(means):
    """Fit with NumPy's least squares; where the curve would fall with k, take a flat one."""
    k = np.array(list(means), float)
    y = np.array(list(means.values()))
    a, b = np.linalg.lstsq(np.stack([np.ones(len(k)), -1 / k], axis=1), y, rcond=None)[
        0
    ]
    if b < 0:
        a, b = y.mean(), 0.0
    return (
        a,
        b,
        math.sqrt(
            np.mean([(value - (a - b / shot)) ** 2 for shot, value in means.items()])
        ),
    )


def literal_worth(means, since_k):
    """Limit, both gains and error; what would lead beyond 1 ends there."""
    a, b, error = literal_fit({k: mean for k, mean in means.items() if k >= since_k})
    last = max(means)
    a = means[last] if b == 0 else a
    gains = [b / last - b / more for more in (last + 1, 2 * last)]
    return [
        1.0 if a > 1 else a,
        *(1 - means[last] if means[last] + g > 1 else g for g in gains),
        error,
    ]


@given(
    st.floats(0.1, 1),
    st.floats(0, 1),
    st.lists(st.integers(1, 200), min_size=3, max_size=12, unique=True),
)
def test_an_exact_curve_gives_back_what_it_was_made_of(a, b, shots):
    last = max(shots)
    (worth,) = budget(points({k: a - b / k for k in shots}), [count(complete=200)])
    assert (worth.k, worth.value) == (last, a - b / last)
    assert worth.limit == pytest.approx(a, abs=1e-9)
    assert worth.next_gain == pytest.approx(
        (a - b / (last + 1)) - (a - b / last), abs=1e-9
    )
    assert worth.double_gain == pytest.approx(
        (a - b / (2 * last)) - (a - b / last), abs=1e-9
    )
    assert worth.error == pytest.approx(0, abs=1e-9)


@given(st.lists(st.floats(0, 1), min_size=3, max_size=30))
def test_the_curve_goes_through_the_later_half_and_three_shots_at_least(means):
    curve = dict(enumerate(means, 1))
    last = len(means)
    (worth,) = budget(points(curve), [count()])
    found = [worth.limit, worth.next_gain, worth.double_gain, worth.error]
    assert found == pytest.approx(
        literal_worth(curve, min(last / 2, last - 2)), abs=1e-9
    )
    assert 0 <= worth.next_gain <= worth.double_gain <= 1 - curve[last]
    assert 0 <= worth.limit <= 1


def literal_gain(curve, complete):
    """Return the gain of one exemplar more after the last shot that is complete."""
    means = {k: value for k, value in curve.items() if k <= complete}
    if len(means) < 3:
        return math.nan
    third_last = sorted(means)[-3]
    return literal_worth(means, min(max(means) / 2, third_last))[1]


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 60), min_size=1, max_size=10, unique=True),
)
def test_the_gain_of_every_sample_is_that_of_the_literal_twin(seed, shots):
    rng = np.random.default_rng(seed)
    samples = rng.random((len(shots), 2, 5))
    counts = [count("roar", 25), count("bark", 60)]
    gains = sample_gains(np.array(shots), samples, ["bark", "roar"], counts)
    for n, (label, complete) in enumerate({"bark": 60, "roar": 25}.items()):
        expected = [
            literal_gain(dict(zip(shots, samples[:, n, b], strict=True)), complete)
            for b in range(5)
        ]
        assert gains[label] == pytest.approx(expected, abs=1e-9, nan_ok=True)


RISE = {1: 0.2, 2: 0.4, 3: 0.5}


def recommend(rises, *, samples=200, means=RISE, classes=("roar", "bark")):
    """Return the budget where both classes have the same means, and these gains in samples."""
    rows = pl.concat([points(means, label=label) for label in classes])
    gains = {label: np.resize(rises[label], samples) for label in classes}
    frame = label_budget(rows, [count(label) for label in classes], {"e": gains})
    row = recommended_class(frame)
    return frame, None if row is None else row["label"]


def mostly(value, share, other):
    """Return 200 gains of which a share is one value, the others another."""
    many = round(200 * share)
    return np.array([value] * many + [other] * (200 - many))


def test_a_class_is_named_if_it_gains_in_98_and_most_in_90_percent_of_samples():
    bark = np.full(200, 0.01)
    frame, label = recommend({"roar": mostly(0.02, 0.9, 0.005), "bark": bark})
    assert label == "roar"
    row = frame.row(0, named=True)
    assert (row["prob_gain"], row["prob_largest_gain"]) == (1.0, 0.9)
    assert (row["next_gain_p01"], row["next_gain_p99"]) == (0.005, 0.02)
    assert frame["prob_largest_gain"].to_list() == [0.9, 0.1]
    assert frame["recommended"].to_list() == [True, False]
    assert recommend({"roar": mostly(0.02, 0.89, 0.005), "bark": bark})[1] is None
    assert recommend({"roar": mostly(0.02, 0.98, 0.0), "bark": bark})[1] == "roar"
    assert recommend({"roar": mostly(0.02, 0.97, 0.0), "bark": bark})[1] is None


def test_equal_gains_are_not_the_largest():
    frame, label = recommend({"roar": np.full(200, 0.02), "bark": np.full(200, 0.02)})
    assert frame["prob_largest_gain"].to_list() == [0.0, 0.0]
    assert label is None


def test_no_class_is_named_with_few_samples_without_another_or_for_a_small_gain():
    large = {"roar": np.full(200, 0.02), "bark": np.full(200, 0.01)}
    assert recommend(large)[1] == "roar"
    assert recommend(large, samples=100)[1] is None
    assert recommend(large, classes=["roar"])[1] is None
    unknown = large | {"bark": np.full(200, math.nan)}
    frame, label = recommend(unknown)
    assert label is None
    assert frame["prob_largest_gain"].is_nan().all()
    assert recommend(large, means={1: 0.2, 2: 0.201, 3: 0.202})[1] is None


def test_without_samples_no_interval_is_known_and_no_class_is_named():
    frame = label_budget(points(RISE), [count()])
    assert frame["next_gain_p01"].is_nan().all()
    assert frame["recommended"].to_list() == [False]
    assert recommended_class(frame) is None


def noise_corpus(seed, classes, calls):
    """Return vectors that have nothing to do with the labels."""
    rng = np.random.default_rng(seed)
    rows = classes * 12
    label = rng.permutation([f"c{n}" for n in range(classes)] * 12).tolist()
    recording = [f"r{row // calls}" for row in range(rows)]
    segment = [f"s{row}" for row in range(rows)]
    vectors = rng.normal(size=(rows, 6))
    return Vectors.from_columns(
        "noise", vectors, segment, recording, label, [()] * rows
    )


def test_noise_names_a_class_in_at_most_one_of_12_corpora():
    protocol = Protocol(
        shots=tuple(range(1, 7)),
        spreads=("shared", "total"),
        shared_draws=50,
        total_samples=200,
        permutations=0,
    )
    budgets = []
    for seed in range(12):
        classes = (3, 10)[seed % 2]
        calls = (1, 5)[seed // 2 % 2]
        table = noise_corpus(seed, classes, calls)
        budgets.append(evaluate_tables([table], protocol).budget)
    assert sum(frame["recommended"].any() for frame in budgets) <= 1
    compared = sum(frame["prob_largest_gain"].is_not_nan().any() for frame in budgets)
    assert compared >= 8


def test_shots_that_a_class_cannot_give_in_every_split_do_not_count():
    means = {k: 0.8 - 0.4 / k for k in (1, 2, 3, 4)} | {5: 0.0, 10: 1.0}
    (worth,) = budget(points(means), [count(complete=4)])
    assert (worth.exemplars, worth.k, worth.value) == (6, 4, means[4])
    assert worth.limit == pytest.approx(0.8)


def test_with_fewer_than_three_complete_shots_only_the_value_is_known():
    means = {1: 0.4, 2: 0.6, 3: 0.7}
    (worth,) = budget(points(means), [count(complete=2)])
    assert (worth.k, worth.value) == (2, 0.6)
    assert np.isnan(
        [worth.next_gain, worth.double_gain, worth.limit, worth.error]
    ).all()
    (nothing,) = budget(points({5: 0.5}), [count(complete=2)])
    assert nothing.k == 0
    assert math.isnan(nothing.value)
    assert math.isnan(nothing.next_gain)


def test_undefined_means_stay_undefined():
    (worth,) = budget(points(dict.fromkeys((1, 2, 3), math.nan)), [count()])
    assert np.isnan([worth.value, worth.next_gain, worth.limit, worth.error]).all()


def test_the_shared_spread_is_read_and_the_other_where_there_is_none():
    good = {1: 0.1, 2: 0.2, 3: 0.9}
    bad = {1: 0.1, 2: 0.2, 3: 0.3}
    per_query = points(bad, spread="per-query")
    rows = pl.concat([per_query, points(good), points(bad, metric="auroc")])
    assert label_budget(rows, [count()])["value"].to_list() == [0.9]
    assert label_budget(per_query, [count()])["value"].to_list() == [0.3]


def test_every_encoder_and_eligible_class_of_a_real_evaluation_has_its_row():
    table = random_corpus(3, classes=4, size=5, integers=False)
    result = evaluate_tables(
        [table],
        Protocol(
            shots=(1, 2, 3, 4),
            draws=3,
            bootstraps=10,
            shared_draws=20,
            total_samples=200,
        ),
        corpus="herd",
    )
    found = {row.label: row for row in budget(result.per_class, result.classes)}
    judged = [
        "next_gain_p01",
        "next_gain_p99",
        "prob_gain",
        "prob_largest_gain",
        "recommended",
    ]
    means = label_budget(result.per_class, result.classes)
    assert result.budget.drop(judged).equals(means.drop(judged))
    is_compared = result.budget["next_gain"].is_not_nan()
    assert result.budget["prob_largest_gain"].is_not_nan().equals(is_compared)
    assert is_compared.sum() >= 2
    eligible = {c.label: c for c in result.classes if c.eligible}
    assert found.keys() == eligible.keys()
    shared = result.per_class.filter(metric="map", spread="shared")
    means = {
        (label, k): mean
        for label, k, mean in shared.select("label", "k", "mean").rows()
    }
    for name, worth in found.items():
        last = min(4, eligible[name].complete_to_k)
        assert (worth.corpus, worth.encoder, worth.exemplars, worth.k) == (
            "herd",
            "test",
            eligible[name].exemplars,
            last,
        )
        assert worth.value == means[name, last]


def curve(means):
    schema = {"k": pl.Int64, "mean": pl.Float64}
    return pl.DataFrame({"k": list(means), "mean": list(means.values())}, schema=schema)


def test_saturation_is_the_first_k_that_no_later_one_exceeds_by_more():
    means = {1: 0.50, 2: 0.60, 3: 0.64, 5: 0.645, 10: 0.648}
    assert saturation(curve(means)) == 3
    assert saturation(curve(means), within=0.05) == 2
    assert saturation(curve(means), within=0.2) == 1
    assert saturation(curve(dict(reversed(means.items())))) == 3
    assert saturation(curve({1: 0.5, 2: 0.4, 3: 0.7, 4: 0.7})) == 3
    assert saturation(curve({1: 0.1, 2: 0.2, 3: 0.3})) is None
    assert saturation(curve({1: 0.1, 2: 0.5, 3: math.nan, 4: 0.5})) == 2
    for nothing in ({}, {1: 0.1}, {1: math.nan, 2: math.nan}):
        assert saturation(curve(nothing)) is None
