"""Paired differences between encoders, and between the centroid and baselines."""

import dataclasses
import itertools

import numpy as np
import polars as pl
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from callshot.errors import InputError
from callshot.fewshot.differences import compare_baselines, compare_encoders
from callshot.fewshot.evaluate import evaluate_tables, rerun_episode
from callshot.fewshot.protocol import Protocol
from callshot.records.frames import value_matrix, values_frame
from corpora import corpora, folds_of, random_corpus
from corpus_results import make_baselines
from literal import literal_intervals, literal_percentile

FEW = Protocol(
    shots=(1, 2, 4), draws=4, bootstraps=30, shared_draws=20, total_samples=20
)
NUMBERS = ("mean", "p01", "p25", "p50", "p75", "p99", "wins")


def values(encoder, table, *, metric="map", scoring="all", spread="shared", k=None):
    table = np.atleast_2d(np.asarray(table, float))
    shots = np.arange(1, len(table) + 1) if k is None else np.asarray(k)
    key = {
        "corpus": "herd",
        "encoder": encoder,
        "classifier": "centroid",
        "scoring": scoring,
        "metric": metric,
        "spread": spread,
    }
    return values_frame(key, shots, table)


def compare(*curves):
    """Compare the encoders of some curves."""
    return compare_encoders(pl.concat(curves))


def literal_rows(one, other):
    """One row of each: mean, percentiles and share of wins, in plain Python."""
    less = [a - b for a, b in zip(one, other, strict=True)]
    wins = sum(1.0 if d > 0 else 0.5 if d == 0 else 0.0 for d in less) / len(less)
    return [
        sum(less) / len(less),
        *(literal_percentile(less, p) for p in (1, 25, 50, 75, 99)),
        wins,
    ]


def numbers(frame):
    """Return the numbers of each row of a frame of differences."""
    return frame.select(NUMBERS).rows()


unit = st.floats(0, 1).map(lambda x: round(x, 2))  # rounded, so that there are ties


@given(st.data(), st.integers(1, 3), st.integers(1, 12))
def test_every_number_is_that_of_the_literal_twin(data, shots, samples):
    one, other = (
        data.draw(arrays(np.float64, (shots, samples), elements=unit)) for _ in range(2)
    )
    frame = compare(values("a", one), values("b", other))
    assert frame["k"].to_list() == list(range(1, shots + 1))
    expected = [literal_rows(one[s].tolist(), other[s].tolist()) for s in range(shots)]
    np.testing.assert_allclose(numbers(frame), expected, rtol=0, atol=1e-12)


@settings(max_examples=15, deadline=None)
@given(corpora(), st.sampled_from(["distinct", "replacement"]), st.integers(0, 3))
def test_an_encoder_less_its_mirror_image_is_exactly_nothing_in_every_spread(
    table, sampler, seed
):
    assume(table.matrix.any())  # equal vectors are evaluated once
    mirrored = dataclasses.replace(table, encoder="again", matrix=-table.matrix)
    protocol = dataclasses.replace(FEW, shots=(1, 3), sampler=sampler, seed=seed)
    result = evaluate_tables([table, mirrored], protocol, folds=folds_of(table))
    frame = compare_encoders(result.values)
    assert set(frame["spread"]) == {"per-query", "shared", "total"}
    for metric, row in zip(frame["metric"], numbers(frame), strict=True):
        is_undefined = metric == "auroc" and np.isnan(row).all()
        assert is_undefined or row == (0.0,) * 6 + (0.5,)


def test_two_encoders_see_the_same_draws():
    table = random_corpus(3, classes=3, size=4, integers=False, dimensions=5)
    other = dataclasses.replace(
        table,
        encoder="other",
        matrix=np.random.default_rng(1).normal(size=(len(table), 9)),
    )
    folds = folds_of(table)
    query = next(
        s
        for s, f, n in zip(table.segment, table.fold, table.label, strict=True)
        if f == 0 and n == "c0"
    )
    for spread, draw in itertools.product(("per-query", "shared"), range(5)):
        one, two = (
            rerun_episode(t, folds, query, 3, draw, FEW, spread) for t in (table, other)
        )
        assert one.support == two.support
        assert one.scores != two.scores


@pytest.mark.parametrize("spread", ["per-query", "shared"])
def test_what_the_draws_do_to_both_encoders_cancels_out_of_their_difference(spread):
    table = random_corpus(5, classes=3, size=8, integers=False, dimensions=6)
    shifted = table.matrix + np.random.default_rng(0).normal(
        scale=0.05, size=table.matrix.shape
    )
    protocol = dataclasses.replace(
        FEW, bootstraps=300, shared_draws=300, total_samples=300, spreads=(spread,)
    )
    result = evaluate_tables(
        [table, dataclasses.replace(table, encoder="near", matrix=shifted)], protocol
    )
    one, two = value_matrix(result.values.filter(metric="map", k=1))
    assert np.var(one - two) < 0.2 * (np.var(one) + np.var(two))
    # Of samples that do not belong together it does not.
    assert np.var(one - np.roll(two, 1)) > 0.5 * (np.var(one) + np.var(two))


def test_n_encoders_give_a_difference_for_every_pair_in_their_order():
    frame = compare(*(values(name, [[0.1 * i]]) for i, name in enumerate("dbca")))
    assert frame.select("one", "other").rows() == list(
        itertools.combinations("dbca", 2)
    )
    assert frame["mean"].round(9).to_list() == [-0.1, -0.2, -0.3, -0.1, -0.2, -0.1]
    assert set(frame["wins"]) == {0.0}


def test_every_scoring_metric_spread_and_k_is_compared_with_its_like():
    table = random_corpus(3, classes=4, size=3, integers=False)
    other = dataclasses.replace(
        table, encoder="other", matrix=table.matrix[::-1].copy()
    )
    result = evaluate_tables(
        [table, other], FEW, categories={"c0": "low", "c1": "low", "c2": "high"}
    )
    frame = compare_encoders(result.values)
    columns = ("scoring", "metric", "spread", "k")
    means = {
        row[:-1]: row[-1]
        for row in result.curve.select("encoder", *columns, "mean").iter_rows()
    }
    assert len(frame) == len(means) // 2
    assert set(frame.select("corpus", "one", "other").rows()) == {
        ("corpus", "test", "other")
    }
    for *key, mean in frame.select(*columns, "mean").iter_rows():
        assert mean == pytest.approx(
            means["test", *key] - means["other", *key], abs=1e-12
        )


def test_the_centroid_is_compared_with_baselines_on_its_encoder_and_with_those_that_have_none():
    curves = pl.concat(
        [
            values("a", [[0.25, 0.5, 0.75]]),
            values("a", [[0.1, 0.2, 0.3]], metric="auroc"),
        ]
    )
    baselines = make_baselines(
        ("herd", "a", "logistic", "LR", "all", "map", 0.5),
        ("herd", "", "end-to-end", "AERD", "all", "map", 0.75),
        ("herd", "b", "logistic", "LR", "all", "map", 0.1),
        ("herd", "a", "recurrent", "GRU", "reduced", "map", 0.1),
        ("another", "a", "recurrent", "GRU", "all", "map", 0.1),
    )
    frame = compare_baselines(curves, baselines)
    assert frame.select("one", "other", "metric", "mean", "wins").rows() == [
        ("a", "LR on a", "map", 0.0, 0.5),
        ("a", "AERD", "map", -0.25, pytest.approx(1 / 6)),
    ]


def test_in_total_the_samples_of_a_baseline_are_subtracted_pair_by_pair():
    curve = values("a", [[0.25, 0.5, 0.75], [0.5, 0.5, 1.0]], spread="total")
    key = ("herd", "a", "logistic", "LR", "all", "map", 0.4)
    samples = pl.Series("samples", [[0.125, 0.5, 1.0]])
    baselines = make_baselines(key).with_columns(samples)
    frame = compare_baselines(curve, baselines)
    for row, one in zip(
        frame.iter_rows(named=True), [[0.25, 0.5, 0.75], [0.5, 0.5, 1.0]], strict=True
    ):
        difference = [a - b for a, b in zip(one, samples[0], strict=True)]
        assert row["mean"] == pytest.approx(sum(difference) / 3)
        assert row["p01"] == pytest.approx(np.percentile(difference, 1))
        assert row["p99"] == pytest.approx(np.percentile(difference, 99))
    shared = values("a", [[0.25, 0.5, 0.75]], spread="shared")
    frame = compare_baselines(shared, baselines)
    assert frame["mean"].to_list() == pytest.approx([0.1])


def test_a_baseline_with_fewer_samples_is_compared_on_those():
    curve = values("a", [[0.25, 0.5, 0.75]], spread="total")
    key = ("herd", "a", "logistic", "LR", "all", "map", 0.4)
    baselines = make_baselines(key).with_columns(pl.Series("samples", [[0.25, 0.25]]))
    frame = compare_baselines(curve, baselines)
    assert frame.select("mean", "wins").row(0) == (0.125, 0.75)


def test_where_a_value_is_undefined_so_is_the_difference_and_the_other_shots_are_not():
    one = values("a", [[0.5, 0.5], [0.5, np.nan]])
    other = values("b", [[0.25, 0.25], [0.25, 0.25]])
    first, second = numbers(compare(one, other))
    assert first == (0.25,) * 6 + (1.0,)
    assert np.isnan(second).all()


def test_one_encoder_without_a_baseline_gives_nothing_to_compare():
    assert compare(values("a", [[1.0]])).is_empty()
    assert compare_baselines(values("a", [[1.0]]), make_baselines()).is_empty()


@pytest.mark.parametrize(
    "other",
    [
        values("b", [[0.1, 0.2, 0.3]]),
        values("b", [[0.1, 0.2]], k=[2]),
        values("b", [[0.1, 0.2]], spread="per-query"),
        values("b", [[0.1, 0.2], [0.1, 0.2]]),
    ],
)
def test_encoders_that_were_evaluated_differently_cannot_be_compared(other):
    for pair in (
        [values("a", [[0.1, 0.2]]), other],
        [other, values("a", [[0.1, 0.2]])],
    ):
        with pytest.raises(
            InputError,
            match=r"^herd: '[ab]' and '[ab]' cannot be compared \(herd, centroid, all, map",
        ):
            compare(*pair)
    with pytest.raises(InputError, match="cannot be compared"):
        compare(
            values("a", [[0.1]]),
            values("b", [[0.1]]),
            values("b", [[0.1]], metric="auroc"),
        )


def make_curves(rng, encoders, shots, samples, lead=0.0):
    """Return noise around 0.5; the first encoder leads."""
    curves = []
    for number, name in enumerate(encoders):
        noise = rng.normal(scale=0.05, size=(shots, samples))
        curves.append(values(name, 0.5 + lead * (number == 0) + noise))
    return pl.concat(curves)


@settings(max_examples=20)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 5), st.integers(0, 9))
def test_intervals_are_those_of_the_literal_twin_over_all_pairs_and_k(
    encoders, shots, last, seed
):
    rng = np.random.default_rng(seed)
    curves = make_curves(rng, "abcd"[:encoders], shots, 120, lead=0.1)
    frame = compare_encoders(curves, last)
    matrices = [value_matrix(curves.filter(encoder=name)) for name in "abcd"[:encoders]]
    pairs = list(itertools.combinations(matrices, 2))
    rows = [row for one, other in pairs for row in (one - other)[:last].tolist()]
    judged = frame.filter(pl.col("k") <= last)
    expected = literal_intervals(rows) if rows else []
    found = judged.select("low", "high").rows()
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == pytest.approx(other, abs=1e-12)
    clear = [low > 0 or high < 0 for low, high in expected]
    assert judged["clear"].to_list() == clear
    beyond = frame.filter(pl.col("k") > last)
    assert beyond["low"].null_count() == beyond["high"].null_count() == len(beyond)
    assert not beyond["clear"].any()


def test_encoders_that_do_not_differ_are_rarely_called_different_at_any_k():
    """With intervals of each alone, one of 30 comparisons would be clear in about a third."""
    rng = np.random.default_rng(3)
    claims = 0
    claims_alone = 0
    for _ in range(50):
        truth = rng.normal(scale=0.05, size=(4, 5, 1))  # the luck of these recordings
        noise = rng.normal(scale=0.05, size=(4, 5, 300))
        tables = [values(name, truth[i] + noise[i]) for i, name in enumerate("abcd")]
        frame = compare(*tables)
        claims += frame["clear"].any()
        claims_alone += ((frame["p01"] > 0) | (frame["p99"] < 0)).any()
    assert claims <= 3
    assert claims_alone > 7


@pytest.mark.parametrize(("samples", "is_clear"), [(100, False), (101, True)])
def test_with_a_hundred_samples_nothing_is_clear(samples, is_clear):
    noise = np.linspace(-0.01, 0.01, samples)
    frame = compare(values("a", [0.9 + noise]), values("b", [0.5 - noise]))
    assert frame.select("wins", "samples", "clear").row(0) == (1.0, samples, is_clear)
    assert (frame["low"].null_count() == 0) == is_clear


def test_equal_samples_are_no_interval_unless_they_are_perfect():
    equal = np.full((1, 200), 0.9)
    baselines = make_baselines(("herd", "a", "logistic", "LR", "all", "map", 0.5))
    frame = compare_baselines(values("a", equal), baselines)
    assert frame.select("low", "clear").row(0) == (None, False)
    frame = compare_baselines(values("a", np.ones((1, 200))), baselines)
    assert frame.select("low", "high", "clear").row(0) == (0.5, 0.5, True)
