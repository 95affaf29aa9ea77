"""What more exemplars are worth, by a curve through the shots of a class."""

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.errors import InputError, OptionError
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.label_budget import (
    check_target,
    label_budget,
    labels_for_target,
    recommended_class,
    sample_gains,
    saturation,
)
from callshot.records import ClassCount, Evaluation, Folds
from callshot.records.frames import PER_CLASS, make_frame, values_frame
from callshot.report.summary.sentences import describe_targets
from corpora import SMALL, random_corpus


def points(means, *, encoder="e", label="roar", metric="map", spread="shared"):
    """Return the curve of one class, rows of the PER_CLASS schema."""
    key = {"corpus": "herd", "classifier": "centroid", "scoring": "all"}
    key |= {"encoder": encoder, "label": label, "metric": metric, "spread": spread}
    columns = {"k": list(means), "mean": list(means.values())}
    return make_frame(PER_CLASS, columns, key | {"p01": 0.0, "p99": 1.0})


def budget(*args, **options):
    """Return the rows of a budget, with attributes."""
    frame = label_budget(*args, **options)
    return [SimpleNamespace(**row) for row in frame.iter_rows(named=True)]


def count(label="roar", complete=100, eligible=True):
    return ClassCount(label, complete + 2, complete, eligible)


def literal_worth(means, since_k):
    """Limit, both gains and error of a curve by NumPy; what would lead beyond 1 ends there.

    Where the curve would fall with k, a flat one is taken.
    """
    late = {k: mean for k, mean in means.items() if k >= since_k}
    k = np.array(list(late), float)
    y = np.array(list(late.values()))
    a, b = np.linalg.lstsq(np.stack([np.ones(len(k)), -1 / k], axis=1), y)[0]
    if b < 0:
        a, b = y.mean(), 0.0
    error = math.sqrt(np.mean((y - (a - b / k)) ** 2))
    last = max(means)
    most = 1 - means[last]
    gains = [b / last - b / more for more in (last + 1, 2 * last)]
    limit = means[last] if b == 0 else min(a, 1.0)
    return [limit, *(min(gain, most) for gain in gains), error]


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


def test_no_class_is_named_with_few_samples_without_another_or_for_a_small_gain():
    large = {"roar": np.full(200, 0.02), "bark": np.full(200, 0.01)}
    assert recommend(large)[1] == "roar"
    assert recommend(large, samples=100)[1] is None
    assert recommend(large, classes=["roar"])[1] is None
    assert recommend(large, means={1: 0.2, 2: 0.201, 3: 0.202})[1] is None
    frame, label = recommend(large | {"bark": np.full(200, math.nan)})
    assert label is None
    assert frame["prob_largest_gain"].is_nan().all()
    frame, label = recommend(large | {"bark": large["roar"]})
    assert label is None
    assert frame["prob_largest_gain"].to_list() == [0.0, 0.0]
    frame = label_budget(points(RISE), [count()])  # without samples
    assert frame["next_gain_p01"].is_nan().all()
    assert recommended_class(frame) is None


def test_with_fewer_than_three_complete_shots_only_the_value_is_known():
    (worth,) = budget(points({1: 0.4, 2: 0.6, 3: 0.7}), [count(complete=2)])
    assert (worth.k, worth.value) == (2, 0.6)
    rest = [worth.next_gain, worth.double_gain, worth.limit, worth.error]
    assert np.isnan(rest).all()
    (nothing,) = budget(points({5: 0.5}), [count(complete=2)])
    assert nothing.k == 0
    assert np.isnan([nothing.value, nothing.next_gain]).all()


def test_the_shared_spread_is_read_and_the_other_where_there_is_none():
    good = {1: 0.1, 2: 0.2, 3: 0.9}
    bad = {1: 0.1, 2: 0.2, 3: 0.3}
    per_query = points(bad, spread="per-query")
    rows = pl.concat([per_query, points(good), points(bad, metric="auroc")])
    assert label_budget(rows, [count()])["value"].to_list() == [0.9]
    assert label_budget(per_query, [count()])["value"].to_list() == [0.3]


def test_every_eligible_class_of_a_real_evaluation_has_its_row():
    table = random_corpus(3, classes=4, size=5, integers=False)
    options = {"shots": (1, 2, 3, 4), "shared_draws": 60, "total_samples": 200}
    protocol = dataclasses.replace(SMALL, **options, permutations=0)
    result = evaluate_tables([table], protocol, corpus="herd")
    is_compared = result.budget["next_gain"].is_not_nan()
    assert result.budget["prob_largest_gain"].is_not_nan().equals(is_compared)
    assert is_compared.sum() >= 2
    eligible = {c.label: c for c in result.classes if c.eligible}
    assert set(result.budget["label"]) == eligible.keys()
    shared = result.per_class.filter(metric="map", spread="shared")
    for row in result.budget.iter_rows(named=True):
        count = eligible[row["label"]]
        last = min(4, count.complete_to_k)
        assert (row["exemplars"], row["k"]) == (count.exemplars, last)
        assert row["value"] == shared.filter(label=row["label"], k=last)["mean"][0]


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


def make_result(shots, samples, *, complete=100, spread="total", names=("centroid",)):
    """Return an evaluation with these samples, (shots, samples), by some classifiers."""
    key = {"corpus": "herd", "encoder": "mfcc", "scoring": "all"}
    key |= {"metric": "map", "spread": spread}
    values = [
        values_frame({**key, "classifier": name}, np.array(shots), np.array(samples))
        for name in names
    ]
    folds = Folds(np.array([0, 1]), 2, "given")
    return Evaluation("herd", complete, 2, [], folds, None, values=pl.concat(values))


def literal_answer(shots, samples, target, complete):
    """Return k_mean and k_clear, by loops."""
    k_mean = k_clear = None
    for k, row in sorted(zip(shots, samples.tolist(), strict=True), reverse=True):
        if k <= complete:
            if sum(row) / len(row) >= target:
                k_mean = k
            if sum(value >= target for value in row) >= 0.98 * len(row):
                k_clear = k
    return k_mean, k_clear


@given(
    st.integers(0, 10**6),
    st.lists(st.integers(1, 40), min_size=1, max_size=8, unique=True),
    st.integers(0, 40),
)
def test_the_answer_is_that_of_the_literal_twin(seed, shots, complete):
    rng = np.random.default_rng(seed)
    samples = rng.random((len(shots), 1)) + rng.normal(0, 0.05, (len(shots), 200))
    target = round(float(rng.uniform(0.2, 0.8)), 3)
    answer = labels_for_target(make_result(shots, samples, complete=complete), target)
    expected = literal_answer(shots, samples, target, complete)
    assert answer.select("k_mean", "k_clear").row(0) == expected


@pytest.mark.parametrize(
    ("shots", "means", "complete", "phrases"),
    [
        ([1, 2, 5, 10], [0.6, 0.8, 0.85, 0.95], 100, ("with 2 ex", "this with 10 ex")),
        ([1, 2, 5, 10], [0.6, 0.7, 0.75, 0.95], 5, ("not known. With 5, ", "s 0.75 o")),
        ([1, 2], [0.6, 0.85], 100, ("with 2 ex", "98 % of", "not known", "75 % reach")),
        ([5], [0.9], 4, ("not known: every evaluated k is more than some call type",)),
        (
            [5, 10],
            [0.95, 1],
            100,
            ("with 5 examples or f", "this with 5 examples or f"),
        ),
    ],
)
def test_only_evaluated_shots_answer_how_many_examples_a_target_needs(
    shots, means, complete, phrases
):
    samples = np.array(means)[:, None] + np.linspace(-0.1, 0.1, 200)
    result = make_result(shots, samples, complete=complete)
    (sentence,) = describe_targets(labels_for_target(result, 0.8))
    for phrase in phrases:
        assert phrase in sentence


def test_few_samples_make_nothing_clear_and_several_classifiers_are_named():
    result = make_result([1], np.full((1, 99), 0.9), names=("centroid", "cosine"))
    targets = labels_for_target(result, 0.8)
    assert targets.select("k_mean", "k_clear").rows() == [(1, None)] * 2
    lines = [line.partition(" reaches")[0] for line in describe_targets(targets)]
    assert lines == ["mfcc, centroid", "mfcc, cosine"]


def test_a_target_is_above_0_and_up_to_1_and_needs_the_spread_total():
    for target in (0, 1.01, float("nan")):
        with pytest.raises(OptionError, match="above 0 and up to 1"):
            check_target(target, ["total"])
    with pytest.raises(OptionError, match="needs the spread total"):
        check_target(0.8, ["shared"])
    with pytest.raises(InputError, match="needs the spread total"):
        labels_for_target(make_result([1], [[0.9]], spread="shared"), 0.8)
