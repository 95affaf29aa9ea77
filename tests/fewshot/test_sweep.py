"""The engine against `callshot.fewshot.reference`: Algorithm 1, slow and literal."""

import dataclasses

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st

import literal
from callshot.fewshot import episodes as episodes_module
from callshot.fewshot import reference
from callshot.fewshot import sweep as sweep_module
from callshot.fewshot.episodes import distinct_rows, make_split, make_splits
from callshot.fewshot.metrics import MetricSums
from callshot.fewshot.protocol import Protocol
from callshot.fewshot.spreads import make_spread
from callshot.fewshot.sweep import query_logits, score_queries, sweep
from corpora import (
    SMALL,
    both_ways,
    corpora,
    engine_for,
    episodes_of,
    random_corpus,
)

SPREADS = ("per-query", "shared")
QUICK = settings(
    max_examples=settings().max_examples // 8,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    phases=[Phase.explicit, Phase.generate],  # the reference is too slow to shrink with
)
protocols = st.builds(
    dataclasses.replace,
    st.just(SMALL),
    sampler=st.sampled_from(["distinct", "replacement"]),
    score=st.sampled_from(["log", "softmax"]),
    seed=st.integers(0, 3),
)


def run(table, protocol, spread, **options):
    with engine_for(table, protocol, **options) as engine:
        return sweep(engine, spread)


def scores_of(engine, split):
    """The scores (shots, classes, queries, draws) of one fold."""
    shots = np.array(engine.protocol.shots)
    return score_queries(engine, split, shots)[0]


def pool_sizes(episodes):
    """How many exemplars the classes have outside the folds."""
    return {size for split in make_splits(episodes) for size in split.pool_sizes}


@pytest.mark.parametrize("classifier", ["centroid", "neighbour", "medoid"])
@QUICK
@given(table=corpora(), protocol=protocols, memory=st.sampled_from([0, 2**30]))
def test_values_are_those_of_the_reference_on_whole_numbers_and_powers_of_two(
    classifier, table, protocol, memory
):
    rule = literal.RULES[classifier]
    if classifier == "centroid":
        rule = literal.by_class(literal.exact_centroid)
    episodes = episodes_of(table)
    thirds = protocol.sampler == "distinct" and 3 in pool_sizes(episodes)
    assume(not thirds)  # they are not exact in floats
    for spread in SPREADS:
        k, sums = run(table, protocol, spread, memory=memory, classifier=classifier)
        assert k.tolist() == [1, 2, 4]
        for s, shots in enumerate(protocol.shots):
            inputs = (episodes, protocol, spread, shots, rule)
            golden = reference.sample_values(*inputs)
            for metric, column in zip(reference.METRICS, golden.T, strict=True):
                values = sums.values["all", metric][s]
                np.testing.assert_allclose(values, column, rtol=0, atol=1e-12)


def check_bootstrap(engine, split):
    """Compare the values of every class of a fold with scikit-learn's on the same scores."""
    episodes = engine.episodes
    protocol = engine.protocol
    scores = scores_of(engine, split)
    sums = MetricSums(len(scores), protocol.bootstraps, episodes.classes, None)
    sums.open_fold(split)
    spread = make_spread("per-query", episodes, protocol)
    sweep_module._sweep_fold(
        engine, split, np.array(protocol.shots), spread, sums, None
    )
    keys = episodes.segment_key[split.rows]
    for b in range(protocol.bootstraps):
        picks = [
            literal.pick_draw(protocol.seed, key, b, protocol.draws) for key in keys
        ]
        for s, shot_scores in enumerate(scores):
            sample = shot_scores[:, np.arange(len(picks)), picks]
            golden = np.nan_to_num(literal.class_metrics(sample.T, split.relevant.T))
            found = [sums.per_class[metric][s, :, b] for metric in ("map", "auroc")]
            np.testing.assert_allclose(found, golden, rtol=0, atol=1e-12)


@QUICK
@given(table=corpora(values=3, classes=4), protocol=protocols)
def test_the_same_scores_give_the_same_bootstrap_values_as_scikit_learn(
    table, protocol
):
    with engine_for(table, protocol) as engine:
        for split in make_splits(engine.episodes):
            check_bootstrap(engine, split)


@pytest.mark.parametrize("many", [512, 0], ids=["counted", "sorted"])
def test_large_codes_take_the_wide_path_and_give_the_same_values(many, monkeypatch):
    monkeypatch.setattr(sweep_module, "MANY_ANCHORS", many)
    table = random_corpus(31, classes=2, folds=2, size=40, dimensions=4, integers=False)
    with engine_for(table, Protocol(shots=(2,), draws=700, bootstraps=20)) as engine:
        split = make_split(engine.episodes, 0)
        assert 2 * split.positives.min() * 700 > sweep_module.SMALL_CODES
        check_bootstrap(engine, split)


def logits_of(engine, split):
    """a_n (shots, classes, queries, draws), before any score is taken."""
    shots = np.array(engine.protocol.shots)
    classes = len(engine.episodes.classes)
    queries = len(split.rows)
    logits = np.empty((len(shots), classes, queries, engine.protocol.draws))
    query_logits(engine, split, shots, logits)(slice(0, queries))
    return logits


@both_ways
@pytest.mark.parametrize(("scale", "offset"), [(5.0, 500.0), (1e4, -3e4)])
def test_scores_of_the_same_draws_are_within_the_bound(scale, offset, memory):
    table = random_corpus(
        3, classes=3, size=3, dimensions=12, integers=False, scale=scale, offset=offset
    )
    table = dataclasses.replace(table, matrix=table.matrix.astype(np.float32))
    protocol = dataclasses.replace(SMALL, shots=(1, 2, 3, 5), draws=4)
    with engine_for(table, protocol, memory=memory) as engine:
        episodes = engine.episodes
        given = dataclasses.replace(episodes, vectors=table.matrix[episodes.rows])
        for split in make_splits(episodes):
            logits = logits_of(engine, split)
            for s, q, r in np.ndindex(
                len(protocol.shots), len(split.rows), protocol.draws
            ):
                check_bound(
                    given, protocol, logits[s, :, q, r], s, int(split.rows[q]), r
                )


def check_bound(episodes, protocol, logits, s, query, number):
    exact = []
    distance = []
    for n in range(len(episodes.classes)):
        support = reference.draw_support(
            episodes, protocol, "per-query", query, number, n, protocol.shots[s]
        )
        exact.append(literal.exact_centroid(episodes, query, support))
        centre = episodes.vectors[support].mean(axis=0, dtype=np.float64)
        distance.append(np.sum((episodes.vectors[query] - centre) ** 2))
    # A common shift is free: it cancels in every score.
    golden = [float(a - exact[0]) for a in exact]
    assert np.abs(logits - logits[0] - golden).max() <= 2e-6 * max(distance)


@pytest.mark.parametrize("classifier", ["centroid", "ridge"])
def test_more_shots_bootstraps_and_draws_leave_the_earlier_values_alone(classifier):
    table = random_corpus(11, classes=4, size=3)
    longer = dataclasses.replace(
        SMALL, shots=(1, 2, 3, 4, 6), bootstraps=50, shared_draws=9, total_samples=9
    )
    for spread in (*SPREADS, "total"):
        _, less = run(table, SMALL, spread, classifier=classifier)
        _, more = run(table, longer, spread, classifier=classifier)
        for key, values in less.values.items():
            np.testing.assert_array_equal(
                values, more.values[key][[0, 1, 3], : values.shape[1]]
            )


def test_far_from_the_origin_only_centred_vectors_have_the_same_values():
    table = random_corpus(24, classes=3, size=4, integers=False, dimensions=8)
    vectors = np.rint(table.matrix * 64) / 64
    for spread in SPREADS:
        _, near = run(dataclasses.replace(table, matrix=vectors), SMALL, spread)
        _, far = run(
            dataclasses.replace(table, matrix=vectors + 2.0**33), SMALL, spread
        )
        key = ("all", "map")
        np.testing.assert_allclose(
            far.values[key], near.values[key], rtol=0, atol=1e-12
        )


def test_vectors_that_all_differ_are_not_copied():
    rows = np.zeros((3, 6))
    rows[:, -1] = [0.0, 1.0, 2.0]
    vectors, place = distinct_rows(rows)
    assert vectors is rows
    np.testing.assert_array_equal(place, [0, 1, 2])


def test_several_blocks_of_shots_give_the_same_values_as_one(monkeypatch):
    table = random_corpus(25, classes=3, size=4, integers=False, dimensions=4)
    protocol = Protocol(shots=(1, 2, 3, 5, 8), draws=4, bootstraps=9)
    _, whole = run(table, protocol, "per-query")

    def small_blocks(total, size):
        return episodes_module.blocks(total, 2)

    monkeypatch.setattr(sweep_module, "blocks", small_blocks)
    _, cut = run(table, protocol, "per-query")
    for key, values in whole.values.items():
        np.testing.assert_array_equal(values, cut.values[key])
    np.testing.assert_array_equal(whole.decisions, cut.decisions)


@pytest.mark.parametrize("spread", SPREADS)
def test_ties_are_those_of_positives_with_other_queries(spread):
    table = random_corpus(27, classes=3, folds=2, size=4, values=2, dimensions=2)
    protocol = dataclasses.replace(SMALL, shots=(1,))
    episodes = episodes_of(table)
    golden = np.zeros(len(episodes.classes), int)
    for split in make_splits(episodes):
        rule = literal.by_class(literal.exact_centroid)
        scores = reference.score_fold(episodes, protocol, spread, 1, split.fold, rule)
        for n, q in np.argwhere(split.relevant):
            others = np.delete(scores[:, :, n], q, axis=0)
            for r, score in enumerate(scores[q, :, n]):
                met = others if spread == "per-query" else others[:, r]
                golden[n] += bool((met == score).any())
    _, sums = run(table, protocol, spread)
    assert sums.tied[0].tolist() == golden.tolist()


def test_per_class_values_and_reduced_scoring_are_the_literal_ones():
    table = random_corpus(28, classes=3, folds=2, size=4, integers=False)
    labels = list(table.labels)
    for row in np.flatnonzero(table.fold == 0):
        labels[row] = ("c0", "c1")
    table = table.with_columns(labels=labels)
    protocol = dataclasses.replace(SMALL, shots=(2,))
    with engine_for(table, protocol) as engine:
        episodes = engine.episodes
        _, sums = sweep(engine, "shared", {"c0": "low", "c1": "low", "c2": "high"})
    classes = len(episodes.classes)
    golden = {
        metric: np.empty((classes, protocol.shared_draws, 2))
        for metric in reference.METRICS
    }
    for split in make_splits(episodes):
        f = split.fold
        scores = reference.score_fold(episodes, protocol, "shared", 2, f)
        for draw in range(protocol.shared_draws):
            sample = scores[:, draw]
            golden["map"][:, draw, f], golden["auroc"][:, draw, f] = (
                literal.class_metrics(sample[:, :-1], split.relevant.T)
            )
            hits = split.relevant[sample[:, -1].astype(int), np.arange(len(sample))]
            for n in range(classes):
                golden["accuracy"][n, draw, f] = hits[split.label == n].mean()
    for metric, values in golden.items():
        per_class = np.nanmean(values, axis=2)
        np.testing.assert_allclose(
            sums.per_class[metric][0], per_class, rtol=0, atol=1e-9
        )
    for metric in ("map", "auroc"):
        reduced = np.mean(
            [reduced_values(golden[metric][:, :, f]) for f in range(2)], axis=0
        )
        values = sums.values["reduced", metric][0]
        np.testing.assert_allclose(values, reduced, rtol=0, atol=1e-9)


def reduced_values(values):
    """The mean over categories of (classes, draws), undefined classes left out."""
    categories = [values[[2]], values[[0, 1]]]
    defined = [group for group in categories if not np.isnan(group[:, 0]).all()]
    return np.mean([np.nanmean(group, axis=0) for group in defined], axis=0)
