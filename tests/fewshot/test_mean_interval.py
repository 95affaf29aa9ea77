"""The interval of the mean over labelled sets, against a slow literal twin."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from callshot import Protocol, Vectors
from callshot.fewshot import reference
from callshot.fewshot.episodes import open_engine
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.mean_interval import (
    add_deviations,
    draw_multipliers,
    jackknife_factors,
    query_influence,
    sample_constants,
    sample_means,
    support_influence,
)
from callshot.fewshot.spreads import MAX_GROUPS, group_recordings
from callshot.fewshot.sweep import sweep
from corpora import episodes_of, folds_of, gaussian_corpus, random_corpus
from literal import below, key, make_stream
from literal_total import class_means

DRAWS = 50
PROTOCOL = Protocol(shots=(1, 2, 4), shared_draws=DRAWS, spreads=("shared",))


def measure_draw(episodes, tables, draw, kept):
    """mAP and accuracy of one draw, over the queries that are kept.

    `tables` are what `reference.score_fold` returns for each fold.
    """
    folds, hits, sizes = [], 0.0, 0.0
    for fold, table in enumerate(tables):
        queries = np.flatnonzero(episodes.fold == fold)
        relevant = episodes.relevant[queries]
        weights = np.where(kept[queries], 1.0, 2.0**-20)
        folds.append((table[:, draw, :-1], relevant, weights))
        decisions = table[:, draw, -1].astype(int)
        hits += np.mean(weights * relevant[np.arange(len(queries)), decisions])
        sizes += weights.mean()
    return np.array([np.nanmean(class_means(folds), axis=1)[0], hits / sizes])


def literal_influence(episodes, protocol, k):
    """How each recording moves mAP and accuracy: by its queries, and by examples of each class.

    The last result says which classes have a choice of examples in any fold.
    """
    keys = sorted({int(key) for key in episodes.recording_key})
    own = episodes.recording_key
    everything = np.ones(len(own), bool)
    tables = [
        reference.score_fold(episodes, protocol, "shared", k, fold)
        for fold in range(episodes.folds)
    ]
    whole = [measure_draw(episodes, tables, d, everything) for d in range(DRAWS)]
    repeats = -(-16 * len(keys) // DRAWS)
    lost = [[] for _ in keys]
    for d in range(DRAWS):
        for i in range(repeats):
            group = (d * repeats + i) % len(keys)
            value = measure_draw(episodes, tables, d, own != keys[group])
            lost[group].append(whole[d] - value)
    as_query = np.array([np.mean(rows, axis=0) for rows in lost])
    is_query = episodes.fold >= 0
    for group, name in enumerate(keys):
        is_own = is_query & (own == name)
        labels = set(episodes.label[is_own])
        # Without a share s of the queries of a class, a mean loses 1 / (1 - s) of the influence.
        shares = [is_own[is_query & (episodes.label == n)].mean() for n in labels]
        as_query[group] *= 1 - sum(shares) / max(len(shares), 1)
    deviation = np.array(whole) - np.mean(whole, axis=0)
    by_class = np.zeros((len(episodes.classes), *as_query.shape))
    variance, mean, pools = np.zeros((3, len(episodes.classes)))
    for n, f in np.ndindex(len(pools), episodes.folds):
        inside = (episodes.label == n) & (episodes.fold != f)
        pools[n] += inside.sum() / episodes.folds
    can_vary = np.zeros(len(episodes.classes), bool)
    for row, (n, fold) in enumerate(zip(episodes.label, episodes.fold, strict=True)):
        counts, expected, possible, varying = np.zeros(DRAWS), 0.0, 0, 0
        for f in set(range(episodes.folds)) - {fold}:
            query = int(np.flatnonzero(episodes.fold == f)[0])
            pool = np.sum((episodes.label == n) & (episodes.fold != f))
            possible += 1
            if k >= pool:
                continue
            varying += 1
            can_vary[n] = True
            expected += k / pool / (1 - k / pool)
            for d in range(DRAWS):
                draw = (episodes, protocol, "shared", query, d, n, k)
                counts[d] += (row in reference.draw_support(*draw)) / (1 - k / pool)
        scale = possible / max(varying, 1) ** 2
        covariance = np.mean((counts * scale)[:, None] * deviation, axis=0)
        by_class[n, keys.index(int(own[row]))] += covariance
        variance[n] += np.mean((counts * scale) ** 2) - (expected * scale) ** 2
        mean[n] += expected * scale
    # Supports of several folds are not quite the same, so that counts vary too little.
    overlap = np.where(can_vary, np.minimum(variance / np.maximum(mean, 1e-9), 1), 1)
    return as_query, by_class * ((pools - 1) / pools / overlap)[:, None, None], can_vary


def test_influences_are_those_of_the_literal_twin():
    episodes = episodes_of(random_corpus(1, classes=2, size=3, integers=False))
    protocol = replace(PROTOCOL, shots=(1, 2), seed=1)
    with open_engine(episodes, protocol, 2, 2**30) as engine:
        _, sums = sweep(engine, "shared", without_groups=True)
        names = [("all", "map"), ("all", "accuracy")]
        values = np.stack([sums.values[name] for name in names], axis=1)
        without = np.stack([sums.left_out.values[name] for name in names], axis=1)
        _, group = group_recordings(episodes)
        kept, _ = jackknife_factors(episodes, group)
        as_query, _ = query_influence(values, without, kept)
        as_example, _ = support_influence(engine, np.array([1, 2]), values, group)
    before = np.nan
    for s, k in enumerate(protocol.shots):
        golden_query, by_class, can_vary = literal_influence(episodes, protocol, k)
        np.testing.assert_allclose(as_query[s].T, golden_query, atol=1e-4)
        before = np.where(can_vary[:, None, None], by_class, before)
        np.testing.assert_allclose(as_example[s].T, before.sum(axis=0), atol=1e-9)


def test_samples_have_the_mean_of_the_draws_and_the_variance_of_the_influences():
    episodes = episodes_of(gaussian_corpus((12, 12, 12), 4))
    protocol = replace(PROTOCOL, shots=(1, 2), shared_draws=400)
    with open_engine(episodes, protocol, 2, 2**30) as engine:
        _, sums = sweep(engine, "shared", without_groups=True)
        means = sample_means(engine, sums)
    for name, samples in means.values.items():
        mean = sums.values[name].mean(axis=1)
        np.testing.assert_allclose(samples.mean(axis=1), mean)
        assert (samples.std(axis=1) > 0).all()
    assert means.ap.shape == (2, len(episodes.classes), 1000)


def test_few_draws_have_no_samples_of_the_mean():
    table = gaussian_corpus((12, 12, 12), 4)
    result = evaluate_tables(
        [table], replace(PROTOCOL, shared_draws=20, permutations=0)
    )
    assert "mean" not in result.values["spread"].to_list()


def test_encoders_are_compared_by_the_mean_on_the_same_recordings():
    table = gaussian_corpus((12, 12, 12), 4)
    matrix = np.asarray(table.matrix, float)
    noise = np.random.default_rng(0).normal(size=matrix.shape)
    worse = replace(table, encoder="worse", matrix=matrix + 3 * noise)
    near = replace(table, encoder="near", matrix=matrix + 0.02 * noise)
    protocol = Protocol(shots=(1, 2), spreads=("shared", "total"), permutations=0)
    tables = [table, worse, near]
    result = evaluate_tables(tables, protocol, folds=folds_of(table))
    rows = result.differences.filter(metric="map", scoring="all", k=2)
    assert set(rows["interval"]) == {"mean", "one-set"}
    of_mean = rows.filter(interval="mean", one=table.encoder)
    of_set = rows.filter(spread="total", one=table.encoder)
    width = pl.col("high") - pl.col("low")
    assert (of_mean.select(width)["high"] < of_set.select(width)["high"]).all()
    np.testing.assert_allclose(of_mean["mean"], of_set["mean"], atol=0.02)
    by_other = dict(of_mean.select("other", "high").iter_rows())
    assert by_other["near"] < 0.05 < by_other["worse"]


def test_many_recordings_are_grouped_and_groups_do_not_depend_on_other_corpora():
    label = ["a", "b"] * 200
    names = [f"r{i:03}" for i in range(400)]
    matrix = np.random.default_rng(0).normal(size=(400, 2))
    table = Vectors.from_columns("e", matrix, names, names, label, [()] * 400)
    table = table.with_columns(fold=[i // 2 % 4 for i in range(400)])
    episodes = episodes_of(table)
    keys, group = group_recordings(episodes)
    assert len(keys) == MAX_GROUPS
    assert np.bincount(group).min() >= 1
    has_source = np.where(np.arange(400) < 200, -1, episodes.fold)
    joined = replace(episodes, fold=has_source)
    queries = np.flatnonzero(has_source >= 0)
    alone = group_recordings(episodes)
    with_source = group_recordings(joined)
    for one in queries:
        assert alone[0][alone[1][one]] == with_source[0][with_source[1][one]]


def recordings_with_two_calls(recordings):
    """Episodes in which each recording has a call of both classes, and the group of each."""
    names = [f"r{i:03}" for i in range(recordings) for _ in "ab"]
    segments = [f"{i:04}" for i in range(len(names))]
    matrix = np.random.default_rng(0).normal(size=(len(names), 2))
    labels = ["a", "b"] * recordings
    empty = [()] * len(names)
    table = Vectors.from_columns("e", matrix, segments, names, labels, empty)
    fold = [i // 2 % 4 for i in range(len(names))]
    episodes = episodes_of(table.with_columns(fold=fold))
    _, group = group_recordings(episodes)
    return episodes, group[episodes.label == 0]


def test_deviations_are_those_of_a_mean_with_the_tails_of_few_groups():
    episodes, group = recordings_with_two_calls(5)
    values = np.array([0.4, 0.6, 0.5, 0.55, 0.45])
    losses = np.zeros(5)
    for n in range(5):
        losses[group[n]] = values.mean() - np.delete(values, n).mean()
    samples = sample_constants(values.mean(), losses, episodes, PROTOCOL)
    t_over_normal = 3.746947 / 2.326348  # 99th percentiles, 4 degrees of freedom
    expected = t_over_normal * values.std(ddof=1) / np.sqrt(5)
    assert samples.std() == pytest.approx(expected, rel=0.1)
    assert samples.mean() == pytest.approx(values.mean())


def test_samples_reach_further_from_the_nearer_bound():
    deviations = np.random.default_rng(0).normal(size=(3, 20_000))
    deviations -= deviations.mean(axis=1, keepdims=True)
    mean = np.array([0.5, 0.95, 0.05])
    samples = add_deviations(mean, 0.03 * deviations)
    low, high = np.percentile(samples, (1, 99), axis=1)
    assert high[0] - low[0] == pytest.approx(2 * 2.326 * 0.03, rel=0.05)
    down, up = mean - low, np.minimum(high, 1) - mean
    assert down[0] == pytest.approx(up[0], rel=0.05)
    assert down[1] > 1.5 * up[1]
    assert mean[2] - max(low[2], 0) < (high[2] - mean[2]) / 1.5
    # A mean of 0 or 1 has no scale of its own.
    np.testing.assert_array_equal(
        add_deviations(np.array([0.0, 1.0]), np.zeros((2, 3))), [[0] * 3, [1] * 3]
    )


@pytest.mark.parametrize("sd", [0.01, 0.15, 0.6])
@pytest.mark.parametrize("mean", [0.3, 0.9, 0.999])
def test_wide_deviations_keep_the_mean_and_never_shorten_the_interval(mean, sd):
    deviations = np.random.default_rng(0).normal(size=1000)
    deviations -= deviations.mean()
    samples = add_deviations(np.array(mean), sd * deviations)
    assert samples.mean() == pytest.approx(mean, abs=1e-12)
    plain_low, plain_high = np.percentile(mean + sd * deviations, (1, 99))
    low, high = np.percentile(samples, (1, 99))
    # The mean is moved back by less than the other end is made longer.
    assert low <= max(plain_low, 0) + 0.02
    assert high >= min(plain_high, 1) - 0.02


def test_groups_of_recordings_have_the_variance_of_single_ones():
    recordings = 3 * MAX_GROUPS
    episodes, group = recordings_with_two_calls(recordings)
    _, group_of_row = group_recordings(episodes)
    kept, inflation = jackknife_factors(episodes, group_of_row)
    counts = np.bincount(group)
    rng = np.random.default_rng(0)
    variances = []
    for _ in range(2000):
        values = rng.normal(size=recordings)
        rest = values.sum() - np.bincount(group, values)
        losses = values.mean() - rest / (recordings - counts)
        variances.append(inflation * np.sum(np.square(kept * losses)))
    assert np.mean(variances) == pytest.approx(1 / recordings, rel=0.03)


def test_multipliers_are_normal_numbers_of_the_seed_and_the_recording():
    keys = [key("a"), key("b")]
    found = draw_multipliers("mean", np.array(keys, np.uint64), PROTOCOL)
    expected = np.empty((2, 1000))
    for row, name in enumerate(keys):
        streams = [make_stream(0, f"mean {part}", name) for part in range(2)]
        for b in range(1000):
            u, v = [(below(one, b, 2**32) + 0.5) / 2**32 for one in streams]
            expected[row, b] = np.sqrt(-2 * np.log(u)) * np.cos(2 * np.pi * v)
    expected -= expected.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert np.abs(expected.std(axis=1) - 1).max() < 0.1
