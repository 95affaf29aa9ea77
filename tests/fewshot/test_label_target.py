"""How many exemplars per class reach a target, inside the evaluated range only."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.errors import InputError, OptionError
from callshot.fewshot.label_budget import check_target, labels_for_target
from callshot.records import Evaluation, Folds
from callshot.records.frames import values_frame
from callshot.report.summary.sentences import describe_targets
from callshot.vectors import Vectors


def make(shots, samples, *, complete=100, spread="total", classifiers=("centroid",)):
    """Return an evaluation with these samples, (shots, samples)."""
    key = {"corpus": "herd", "encoder": "mfcc", "scoring": "all"}
    key |= {"metric": "map", "spread": spread}
    values = [
        values_frame({**key, "classifier": name}, np.array(shots), np.array(samples))
        for name in classifiers
    ]
    table = Vectors.from_columns(
        "mfcc", np.zeros((2, 1)), "ab", "xy", ["a", "b"], [(), ()]
    )
    folds = Folds(np.array([0, 1]), 2, "given")
    parts = (complete, 2, [], folds, table)
    return Evaluation("herd", *parts, values=pl.concat(values))


def spread_around(means, width=0.1):
    """Return 200 samples around each mean."""
    return np.array(means)[:, None] + np.linspace(-width, width, 200)


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
    answer = labels_for_target(make(shots, samples, complete=complete), target)
    expected = literal_answer(shots, samples, target, complete)
    assert answer.select("k_mean", "k_clear").row(0) == expected


def sentence(shots, means, *, target=0.8, complete=100):
    result = make(shots, spread_around(means), complete=complete)
    (text,) = describe_targets(labels_for_target(result, target))
    return text


def test_a_target_is_reached_on_average_and_then_nearly_always():
    assert sentence([1, 2, 5, 10], [0.6, 0.8, 0.85, 0.95]) == (
        "mfcc reaches mAP 0.8 on average with 2 examples per call type. In 98 % of labelled sets "
        "and recordings, it reaches this with 10 examples per call type."
    )


def test_what_is_beyond_the_evaluated_range_cannot_be_told():
    assert sentence([1, 2, 5, 10], [0.6, 0.7, 0.75, 0.95], complete=5) == (
        "How many examples per call type mfcc needs for mAP 0.8 is not known. With 5, the "
        "largest number evaluated with every call type complete, it reaches 0.75 on average."
    )
    assert sentence([1, 2], [0.6, 0.85]) == (
        "mfcc reaches mAP 0.8 on average with 2 examples per call type. How many it needs for "
        "98 % of labelled sets and recordings is not known. With 2, the largest number evaluated "
        "with every call type complete, 75 % reach it."
    )
    assert sentence([5], [0.9], complete=4).endswith(
        "is not known: every evaluated k is more than some call type can give."
    )


def test_the_smallest_evaluated_k_may_be_more_than_is_needed():
    assert "with 5 examples or fewer per call type. In 98" in sentence(
        [5, 10], [0.95, 1]
    )
    assert "with 1 example per call type. In" in sentence([1, 10], [0.95, 1])


def test_few_samples_make_nothing_clear():
    result = make([1], np.full((1, 99), 0.9))
    assert labels_for_target(result, 0.8).select("k_mean", "k_clear").row(0) == (
        1,
        None,
    )


def test_several_classifiers_are_named():
    result = make([1], np.full((1, 200), 0.9), classifiers=("centroid", "cosine"))
    lines = list(describe_targets(labels_for_target(result, 0.8)))
    assert [line.partition(" reaches")[0] for line in lines] == [
        "mfcc, centroid",
        "mfcc, cosine",
    ]


@pytest.mark.parametrize("target", [0, -1, 1.01, 80, float("nan")])
def test_a_target_is_above_0_and_up_to_1(target):
    with pytest.raises(OptionError, match="above 0 and up to 1"):
        check_target(target, ["total"])


def test_the_spread_total_is_needed():
    with pytest.raises(OptionError, match="needs the spread total"):
        check_target(0.8, ["shared"])
    with pytest.raises(InputError, match="needs the spread total"):
        labels_for_target(make([1], [[0.9]], spread="shared"), 0.8)
