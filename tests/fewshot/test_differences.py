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
from callshot.fewshot.differences import (
    ROUNDING,
    compare_baselines,
    compare_encoders,
    find_crossovers,
)
from callshot.fewshot.evaluate import evaluate_tables
from callshot.records.frames import values_frame
from corpora import SMALL, corpora, folds_of, random_corpus
from corpus_results import make_baselines
from literal import literal_intervals, literal_percentile

FEW = dataclasses.replace(SMALL, permutations=0)
NUMBERS = ("mean", "p01", "p25", "p50", "p75", "p99", "wins")


def values(encoder, table, *, k=None, **changes):
    """Return the samples (shots, draws) of a curve, from k = 1 on."""
    table = np.atleast_2d(np.asarray(table, float))
    shots = np.arange(1, len(table) + 1) if k is None else np.asarray(k)
    key = {"corpus": "herd", "encoder": encoder, "classifier": "centroid"}
    key |= {"scoring": "all", "metric": "map", "spread": "shared"}
    return values_frame(key | changes, shots, table)


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


def test_every_scoring_metric_spread_and_k_is_compared_with_its_like():
    table = random_corpus(3, classes=4, size=3, integers=False)
    backwards = table.matrix[::-1].copy()
    other = dataclasses.replace(table, encoder="other", matrix=backwards)
    categories = {"c0": "low", "c1": "low", "c2": "high"}
    result = evaluate_tables([table, other], FEW, categories=categories)
    frame = compare_encoders(result.values)
    columns = ("scoring", "metric", "spread", "k")
    rows = result.curve.select("encoder", *columns, "mean").iter_rows()
    means = {row[:-1]: row[-1] for row in rows}
    assert len(frame) == len(means) // 2
    names = frame.select("corpus", "one", "other").unique().rows()
    assert names == [("corpus", "test", "other")]
    for *key, mean in frame.select(*columns, "mean").iter_rows():
        expected = means["test", *key] - means["other", *key]
        assert mean == pytest.approx(expected, abs=1e-12)


def test_the_centroid_is_compared_with_baselines_on_its_encoder_and_with_those_that_have_none():
    curves = [values("a", [[0.25, 0.5, 0.75]]), values("a", [[0.1]], metric="auroc")]
    baselines = make_baselines(
        ("herd", "a", "logistic", "LR", "all", "map", 0.5),
        ("herd", "", "end-to-end", "AERD", "all", "map", 0.75),
        ("herd", "b", "logistic", "LR", "all", "map", 0.1),
        ("herd", "a", "recurrent", "GRU", "reduced", "map", 0.1),
        ("another", "a", "recurrent", "GRU", "all", "map", 0.1),
    )
    frame = compare_baselines(pl.concat(curves), baselines)
    assert frame.select("one", "other", "metric", "mean", "wins").rows() == [
        ("a", "LR on a", "map", 0.0, 0.5),
        ("a", "AERD", "map", -0.25, pytest.approx(1 / 6)),
    ]


def test_where_a_value_is_undefined_so_is_the_difference_and_the_other_shots_are_not():
    one = values("a", [[0.5, 0.5], [0.5, np.nan]])
    other = values("b", [[0.25, 0.25], [0.25, 0.25]])
    first, second = numbers(compare(one, other))
    assert first == (0.25,) * 6 + (1.0,)
    assert np.isnan(second).all()


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
    one = values("a", [[0.1, 0.2]])
    message = r"^herd: '[ab]' and '[ab]' cannot be compared \(herd, centroid, all, map"
    for pair in ([one, other], [other, one]):
        with pytest.raises(InputError, match=message):
            compare(*pair)
    more = [values("b", [[0.1, 0.2]]), values("b", [[0.1, 0.2]], metric="auroc")]
    with pytest.raises(InputError, match="cannot be compared"):
        compare(one, *more)


@settings(max_examples=20)
@given(st.integers(2, 4), st.integers(1, 4), st.integers(0, 5), st.integers(0, 9))
def test_intervals_are_those_of_the_literal_twin_over_all_pairs_and_k(
    encoders, shots, last, seed
):
    rng = np.random.default_rng(seed)
    matrices = rng.normal(0.5, 0.05, size=(encoders, shots, 120))
    matrices[0] += 0.1  # the first one leads
    curves = zip("dbca", matrices, strict=False)
    frame = compare_encoders(pl.concat([values(*curve) for curve in curves]), last)
    pairs = list(itertools.combinations(matrices, 2))
    names = frame.select("one", "other").unique(maintain_order=True).rows()
    assert names == list(itertools.combinations("dbca"[:encoders], 2))
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


NOISE = np.linspace(-0.1, 0.1, 101)


def make_noisy(means, width=1.0, *, encoder="a", **more):
    """Return samples around means, spread by 0.1 times the width to each side."""
    widths = np.broadcast_to(width, len(means))
    table = np.array(means)[:, None] + np.outer(widths, NOISE)
    return values(encoder, table, **more)


def make_baseline(value, encoder="a", metric="map", scoring="all"):
    return make_baselines(("herd", encoder, "logistic", "LR", scoring, metric, value))


NO_BASELINES = make_baselines()


def crossover(values, value, **more):
    """Return k_mean and k_clear against one baseline."""
    frame = find_crossovers(values, make_baseline(value), **more)
    assert frame.height == 1
    return frame.select("k_mean", "k_clear").row(0)


def test_an_undefined_value_passes_nothing():
    assert crossover(make_noisy([np.nan, 0.9]), 0.65) == (2, 2)
    assert crossover(make_noisy([0.9, np.nan]), 0.65) == (1, None)


def test_a_baseline_is_compared_with_its_own_encoder_metric_and_scoring_alone():
    curves = pl.concat([make_noisy([0.9]), make_noisy([0.9], encoder="b")])
    for encoder, expected in (("a", ["a"]), ("", ["a", "b"])):
        frame = find_crossovers(curves, make_baseline(0.5, encoder))
        assert frame["encoder"].to_list() == expected
    others = [make_baseline(0.5, metric="auroc"), make_baseline(0.5, scoring="reduced")]
    assert find_crossovers(curves, pl.concat(others)).is_empty()
    two = [make_noisy([0.5, 0.9]), make_noisy([0.9, 0.9], spread="per-query")]
    frame = find_crossovers(pl.concat(two), make_baseline(0.7))
    rows = frame.select("spread", "k_mean").rows()
    assert set(rows) == {("shared", 2), ("per-query", 1)}


def with_samples(baselines, samples):
    """Return a baseline with samples of the spread `total`."""
    column = pl.Series("samples", [np.array(samples, float).tolist()])
    return baselines.with_columns(column)


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.integers(1, 7),
)
def test_a_literal_search_over_paired_samples_finds_the_same_k_clear(
    centroid, baseline, complete_shots
):
    curve = values("a", np.repeat(centroid, 40, axis=1), spread="total")
    samples = np.repeat(baseline, 40)
    paired = with_samples(make_baseline(0.5), samples)
    frame = find_crossovers(curve, paired, complete_shots=complete_shots)
    rows = np.repeat(centroid, 40, axis=1)[:complete_shots]
    above = [k for k, row in enumerate(centroid, 1) if np.repeat(row, 40).mean() > 0.5]
    assert frame["k_mean"][0] == (above[0] if above else None)
    intervals = literal_intervals((rows - samples).tolist())
    levels = []
    for k, ((low, high), row) in enumerate(zip(intervals, rows, strict=True), 1):
        is_perfect = row.mean() >= 1 - ROUNDING
        if high - low > 2 * ROUNDING or is_perfect:
            levels.append((k, low - ROUNDING))
    assert frame["k_clear"][0] == first_that_stays(levels)


def test_training_at_every_k_is_compared_on_the_same_draws():
    """The draws differ by far more than the two classifiers do."""
    draws = np.linspace(0.1, 0.8, 101)
    noise = 1e-3 * np.sin(np.arange(101))
    # One draw that the baseline never saw.
    centroid = values("a", [np.append(draws, 9.0)] * 3)
    sign = np.where(np.arange(101) < 30, -1, 1)
    table = [draws - 0.01, draws + 0.01 * sign, draws + 0.01 + noise]
    trained = values("a", table, classifier="logistic")
    frame = find_crossovers(centroid, NO_BASELINES, trained)
    assert frame.select("baseline", "labels", "k_mean", "k_clear").rows() == [
        ("logistic", "k", 2, 3)
    ]


@pytest.mark.parametrize(
    ("other", "rows"),
    [({"k": (2, 9)}, [(2, 2)]), ({"k": (7, 9)}, []), ({"encoder": "b"}, [])],
)
def test_only_shots_and_encoders_that_both_have_count(other, rows):
    trained = make_noisy([0.7, 0.3], classifier="logistic", **other)
    centroid = make_noisy([0.5] * 3, 0, k=(1, 2, 4))
    frame = find_crossovers(centroid, NO_BASELINES, trained)
    assert frame.select("k_mean", "k_clear").rows() == rows


LEVELS = st.lists(st.floats(-0.99, 0.99), min_size=3, max_size=3)


@given(st.lists(LEVELS, min_size=1, max_size=6), st.integers(1, 7))
def test_a_literal_search_from_the_end_finds_the_same(differences, last):
    table = np.repeat(differences, 40, axis=1)
    centroid = values("a", np.zeros(table.shape))
    trained = values("a", table, classifier="logistic")
    frame = find_crossovers(centroid, NO_BASELINES, trained, last)
    k_mean, k_clear = frame.select("k_mean", "k_clear").row(0)
    rows = list(enumerate(table, 1))
    assert k_mean == first_that_stays([(k, row.mean()) for k, row in rows])
    intervals = literal_intervals([row.tolist() for row in table[:last]])
    levels = [
        (k, low - ROUNDING)
        for k, (low, high) in enumerate(intervals, 1)
        if high - low > 2 * ROUNDING
    ]
    assert k_clear == first_that_stays(levels)


def first_that_stays(levels):
    """Return the first k from which every level is above 0."""
    first = None
    for k, level in reversed(levels):
        if not level > 0:
            break
        first = k
    return first
