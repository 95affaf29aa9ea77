"""Where the centroid passes a baseline that has all labels, and where training at every k pays."""

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from callshot.fewshot.differences import MIN_SAMPLES, ROUNDING, find_crossovers
from callshot.records.frames import values_frame
from corpus_results import make_baselines
from literal import literal_intervals

NOISE = np.linspace(-0.1, 0.1, 101)


def make_values(samples, classifier="centroid", k=(), encoder="a", spread="shared"):
    """Return the samples of a classifier, (shots, draws), from k = 1 on."""
    table = np.array(samples, float)
    shots = np.array(k or range(1, len(table) + 1))
    key = {
        "corpus": "herd",
        "encoder": encoder,
        "classifier": classifier,
        "scoring": "all",
        "metric": "map",
        "spread": spread,
    }
    return values_frame(key, shots, table)


def make_noisy(means, width=1.0, **more):
    """Return samples around means, spread by 0.1 times the width to each side."""
    widths = np.broadcast_to(width, len(means))
    return make_values(np.array(means)[:, None] + np.outer(widths, NOISE), **more)


def make_baseline(value, encoder="a", metric="map", scoring="all"):
    return make_baselines(("herd", encoder, "logistic", "LR", scoring, metric, value))


NO_BASELINES = make_baselines()


def crossover(values, value, **more):
    """Return k_mean and k_clear against one baseline."""
    frame = find_crossovers(values, make_baseline(value), **more)
    assert frame.height == 1
    return frame.select("k_mean", "k_clear").row(0)


def test_k_mean_is_the_first_k_above_even_if_a_later_one_is_not():
    assert crossover(make_noisy([0.5, 0.7, 0.6, 0.8]), 0.65) == (2, 4)


def test_k_clear_is_where_no_later_interval_reaches_below():
    assert crossover(make_noisy([0.9] * 4, [1, 3, 1, 1]), 0.65) == (1, 3)


def test_an_equal_value_is_not_passed():
    assert crossover(make_noisy([0.625, 0.625], 0), 0.625) == (None, None)


def test_an_undefined_value_passes_nothing():
    assert crossover(make_noisy([np.nan, 0.9]), 0.65) == (2, 2)
    assert crossover(make_noisy([0.9, np.nan]), 0.65) == (1, None)


@pytest.mark.parametrize("draws", [1, MIN_SAMPLES - 1])
def test_with_few_samples_nothing_is_clear(draws):
    assert crossover(make_values(np.full((2, draws), 0.9) + NOISE[:draws]), 0.65) == (
        1,
        None,
    )


def test_equal_samples_are_no_interval_unless_they_are_perfect():
    assert crossover(make_noisy([0.6, 0.7, 0.9], [1, 1, 0]), 0.65) == (2, None)
    assert crossover(make_noisy([0.6, 0.7, 1.0], [1, 1, 0]), 0.65) == (2, 3)


def test_beyond_k_star_nothing_is_clear():
    curve = make_noisy([0.6, 0.7, 0.9, 0.9])
    assert crossover(curve, 0.65) == (2, 3)
    assert crossover(curve, 0.65, complete_shots=2) == (2, None)


def test_a_baseline_is_compared_with_its_own_encoder_metric_and_scoring_alone():
    curves = pl.concat([make_noisy([0.9]), make_noisy([0.9], encoder="b")])
    assert find_crossovers(curves, make_baseline(0.5))["encoder"].to_list() == ["a"]
    assert find_crossovers(curves, make_baseline(0.5, ""))["encoder"].to_list() == [
        "a",
        "b",
    ]
    others = pl.concat(
        [make_baseline(0.5, metric="auroc"), make_baseline(0.5, scoring="reduced")]
    )
    assert find_crossovers(curves, others).is_empty()


def test_each_spread_has_its_own_crossover():
    curves = pl.concat(
        [make_noisy([0.5, 0.9]), make_noisy([0.9, 0.9], spread="per-query")]
    )
    frame = find_crossovers(curves, make_baseline(0.7))
    assert set(frame.select("spread", "k_mean").rows()) == {
        ("shared", 2),
        ("per-query", 1),
    }


def with_samples(baselines, samples):
    """Return a baseline with samples of the spread `total`."""
    column = pl.Series("samples", [np.array(samples, float).tolist()])
    return baselines.with_columns(column)


def test_in_total_a_baseline_that_varies_with_the_centroid_is_passed_sooner():
    """What other recordings do to both cancels out; a fixed value would be passed nowhere."""
    curve = make_noisy([0.66, 0.67, 0.7], spread="total")
    fixed = make_baseline(0.65)
    jitter = 1e-3 * np.sin(np.arange(len(NOISE)))
    paired = with_samples(fixed, 0.65 + NOISE + jitter)
    opposite = with_samples(fixed, 0.65 - NOISE)
    for baselines, k_clear in ((fixed, None), (paired, 1), (opposite, None)):
        frame = find_crossovers(curve, baselines)
        assert frame.select("k_mean", "k_clear").row(0) == (1, k_clear)
    frame = find_crossovers(curve, paired, complete_shots=2)
    assert frame.select("k_mean", "k_clear").row(0) == (1, 1)


def test_samples_of_a_baseline_count_in_total_alone():
    paired = with_samples(make_baseline(0.65), 0.65 + NOISE)
    for spread in ("shared", "per-query"):
        curve = make_noisy([0.7, 0.8], spread=spread)
        golden = find_crossovers(curve, make_baseline(0.65))
        assert find_crossovers(curve, paired).equals(golden)
        assert golden["k_clear"].to_list() == [2]


@given(
    st.lists(st.lists(st.floats(0, 1), min_size=3, max_size=3), min_size=1, max_size=6),
    st.lists(st.floats(0, 1), min_size=3, max_size=3),
    st.integers(1, 7),
)
def test_a_literal_search_over_paired_samples_finds_the_same_k_clear(
    centroid, baseline, complete_shots
):
    curve = make_values(np.repeat(centroid, 40, axis=1), spread="total")
    samples = np.repeat(baseline, 40)
    paired = with_samples(make_baseline(0.5), samples)
    frame = find_crossovers(curve, paired, complete_shots=complete_shots)
    rows = np.repeat(centroid, 40, axis=1)[:complete_shots]
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
    centroid = make_values(
        [np.append(draws, 9.0)] * 3
    )  # one draw that the baseline never saw
    sign = np.where(np.arange(101) < 30, -1, 1)
    trained = make_values(
        [draws - 0.01, draws + 0.01 * sign, draws + 0.01 + noise], "logistic"
    )
    frame = find_crossovers(centroid, NO_BASELINES, trained)
    assert frame.select("baseline", "labels", "k_mean", "k_clear").rows() == [
        ("logistic", "k", 2, 3)
    ]


def test_only_shots_that_both_have_count():
    centroid = make_noisy([0.5] * 3, 0, k=(1, 2, 4))
    trained = make_noisy([0.7, 0.3], k=(2, 9), classifier="logistic")
    frame = find_crossovers(centroid, NO_BASELINES, trained)
    assert frame.select("k_mean", "k_clear").rows() == [(2, 2)]


@pytest.mark.parametrize("other", [{"encoder": "b"}, {"k": (7, 8, 9)}])
def test_curves_with_nothing_in_common_do_not_cross(other):
    trained = make_noisy([0.6] * 3, classifier="logistic", **other)
    frame = find_crossovers(make_noisy([0.5] * 3), NO_BASELINES, trained)
    assert frame.select("k_mean", "k_clear").rows() in ([], [(None, None)])


LEVELS = st.lists(st.floats(-0.99, 0.99), min_size=3, max_size=3)


@given(st.lists(LEVELS, min_size=1, max_size=6), st.integers(1, 7))
def test_a_literal_search_from_the_end_finds_the_same(differences, last):
    table = np.repeat(differences, 40, axis=1)
    centroid = make_values(np.zeros(table.shape))
    trained = make_values(table, "logistic")
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
