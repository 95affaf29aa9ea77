"""The rules without training, against slow ones (tests/literal.py) and scikit-learn."""

import dataclasses

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import LedoitWolf

import literal
from callshot import Protocol
from callshot.errors import OptionError
from callshot.fewshot import reference
from callshot.fewshot.classifiers import CLASSIFIERS, ledoit_wolf, whiten
from callshot.fewshot.episodes import make_split, make_splits
from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.spreads import make_spread
from callshot.fewshot.sweep import score_queries, shared_logits, sweep
from callshot.spans import concat_spans
from callshot.vectors import Vectors
from corpora import (
    SMALL,
    both_ways,
    engine_for,
    episodes_of,
    random_corpus,
    repeat_vectors,
    reverse_rows,
)

SPREADS = ("per-query", "shared")
FOUR_SHOTS = dataclasses.replace(SMALL, shots=(1, 2, 3, 5))
every_rule = pytest.mark.parametrize("name", list(CLASSIFIERS))


def run(table, name, protocol, spread, **options):
    with engine_for(table, protocol, classifier=name, **options) as engine:
        return sweep(engine, spread)[1]


def scores_of(table, name, fold, protocol=FOUR_SHOTS, **options):
    """The scores (shots, classes, queries, draws) of one fold."""
    with engine_for(table, protocol, classifier=name, **options) as engine:
        split = make_split(engine.episodes, fold)
        shots = np.array(protocol.shots)
        return score_queries(engine.for_split(split), split, shots)[0]


def shared_logits_of(table, name, fold, protocol=FOUR_SHOTS, **options):
    """The logits (draws, shots, classes, queries) of one fold."""
    with engine_for(table, protocol, classifier=name, **options) as engine:
        split = make_split(engine.episodes, fold)
        fitted = engine.for_split(split)
        spread = make_spread("shared", fitted.episodes, protocol)
        logits = shared_logits(fitted, split, np.array(protocol.shots), spread)
        return logits(slice(0, protocol.shared_draws))


def check_values(sums, shot, golden):
    for metric, column in zip(reference.METRICS, golden.T, strict=True):
        np.testing.assert_allclose(
            sums.values["all", metric][shot], column, rtol=0, atol=1e-12
        )


@every_rule
@pytest.mark.parametrize(
    ("memory", "sampler"), [(0, "replacement"), (2**30, "distinct")]
)
def test_scores_and_values_are_those_of_the_slow_rule(name, memory, sampler):
    table = random_corpus(
        41, classes=3, folds=2, size=3, dimensions=4, integers=False, offset=1.5
    )
    protocol = dataclasses.replace(FOUR_SHOTS, sampler=sampler, shots=(1, 3))
    episodes = episodes_of(table)
    rule = literal.RULES[name]
    for f in range(2):
        scores = scores_of(table, name, f, protocol, memory=memory)
        logits = shared_logits_of(table, name, f, protocol, memory=memory)
        for s, k in enumerate(protocol.shots):
            golden = reference.score_fold(episodes, protocol, "per-query", k, f, rule)
            np.testing.assert_allclose(
                scores[s].transpose(1, 2, 0), golden[:, :, :-1], rtol=1e-9, atol=1e-9
            )
            golden = reference.score_fold(episodes, protocol, "shared", k, f, rule)
            assert logits[:, s].argmax(axis=1).T.tolist() == golden[:, :, -1].tolist()
    for spread in SPREADS:
        sums = run(table, name, protocol, spread, memory=memory)
        check_values(
            sums, 1, reference.sample_values(episodes, protocol, spread, 3, rule)
        )


@both_ways
def test_with_one_exemplar_centroid_neighbour_and_medoid_are_the_same_bits(memory):
    table = random_corpus(
        42, classes=4, size=4, dimensions=7, integers=False, offset=20.0
    )
    protocol = dataclasses.replace(FOUR_SHOTS, shots=(1,))
    for other in ("neighbour", "medoid"):
        for spread in SPREADS:
            sums = run(table, "centroid", protocol, spread, memory=memory)
            others = run(table, other, protocol, spread, memory=memory)
            for key, values in sums.values.items():
                np.testing.assert_array_equal(values, others.values[key])


@every_rule
@both_ways
def test_the_whole_pool_is_one_support_set_also_where_vectors_repeat(name, memory):
    table = repeat_vectors(
        random_corpus(22, classes=3, size=5, integers=False, dimensions=37)
    )
    protocol = dataclasses.replace(FOUR_SHOTS, shots=(2, 90), whole_pool=True)
    for spread in SPREADS:
        sums = run(table, name, protocol, spread, memory=memory)
        for values in sums.values.values():
            assert np.ptp(values[1]) == 0
            np.testing.assert_allclose(values[1], values[2], rtol=0, atol=1e-12)
        np.testing.assert_array_equal(sums.tied[1], sums.tied[2])
        np.testing.assert_allclose(sums.decisions[1], sums.decisions[2])


@every_rule
@both_ways
def test_equal_queries_tie_in_any_order(name, memory):
    table = random_corpus(23, classes=3, folds=3, size=9, integers=False, dimensions=67)
    mirror = reverse_rows(table)
    renamed = mirror.with_columns(segment=[f"{name}'" for name in mirror.segment])
    table = dataclasses.replace(
        table,
        spans=concat_spans([table.spans, renamed.spans]),
        matrix=np.concatenate([table.matrix, mirror.matrix]),
    )
    with engine_for(table, FOUR_SHOTS, classifier=name, memory=memory) as engine:
        splits = make_splits(engine.episodes)
        _, sums = sweep(engine, "shared")
    positives = np.sum([split.positives for split in splits], axis=0)
    assert (sums.tied == FOUR_SHOTS.shared_draws * positives).all()


@every_rule
def test_neither_threads_nor_the_order_of_rows_can_be_seen(name):
    table = random_corpus(45, classes=4, size=4, dimensions=6, integers=False)
    for spread in (*SPREADS, "total"):
        sums = run(table, name, FOUR_SHOTS, spread)
        three_threads = run(table, name, FOUR_SHOTS, spread, threads=3)
        reversed_sums = run(reverse_rows(table), name, FOUR_SHOTS, spread)
        for key, values in sums.values.items():
            np.testing.assert_array_equal(values, three_threads.values[key])
            np.testing.assert_array_equal(values, reversed_sums.values[key])


@both_ways
@every_rule
def test_vectors_without_a_length_or_without_variance_have_scores(name, memory):
    table = random_corpus(50, classes=3, size=3, dimensions=3)
    odd = np.arange(len(table))[:, None] % 2
    for vectors in (np.zeros_like(table.matrix), table.matrix * odd):
        for spread in SPREADS:
            zeros = dataclasses.replace(table, matrix=vectors)
            sums = run(zeros, name, FOUR_SHOTS, spread, memory=memory)
            assert all(np.isfinite(values).all() for values in sums.values.values())


@both_ways
def test_a_mean_that_cancels_out_has_the_cosine_0(memory):
    horizontal = [0.25, 1.0, -1.0, 0.5, 0.5, 1.0]
    vertical = [1.0, 0.5, -0.5, 1.0, 0.75, -1.0]
    vectors = np.column_stack([horizontal, vertical])
    fold = np.array([0, 1, 1, 0, 1, 1])
    table = Vectors.from_columns(
        "e", vectors, "uvwxyz", "uvwxyz", "aaabbb", [()] * 6, fold
    )
    logits = shared_logits_of(table, "cosine", 0, memory=memory)
    assert logits[:, 1:, 0].tolist() == [[[0.0, 0.0]] * 3] * 4
    scores = scores_of(table, "cosine", 0, memory=memory)[1, :, :, 0]
    np.testing.assert_allclose(scores[0], -scores[1])
    (golden,) = literal.RULES["cosine"](episodes_of(table), 0, [[4, 5]])
    np.testing.assert_allclose(scores[0][0], -golden)


@settings(max_examples=40)
@given(
    st.integers(2, 30),
    st.integers(1, 12),
    st.integers(0, 10**6),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e4]),
)
def test_the_covariance_is_scikit_learns_ledoit_wolf(count, dimensions, seed, scale):
    rng = np.random.default_rng(seed)
    noise = rng.normal(size=(count, dimensions))
    vectors = noise @ rng.normal(size=(dimensions, dimensions)) + rng.normal(
        size=dimensions
    )
    mean, covariance = ledoit_wolf(scale * vectors)
    golden = LedoitWolf().fit(vectors)
    least = 1e-13 * scale * np.abs(vectors).max()
    np.testing.assert_allclose(mean, scale * golden.location_, rtol=1e-12, atol=least)
    least = 1e-7 * covariance.max()
    np.testing.assert_allclose(
        covariance, scale**2 * golden.covariance_, rtol=0, atol=least
    )


@pytest.mark.parametrize(
    "vectors", [[[1.0, 2.0]], [[1.0, 2.0], [3.0, 2.0]], [[1.0, 2.0]] * 4]
)
def test_the_fewest_vectors_have_a_covariance_with_an_inverse(vectors):
    whitened = whiten(np.array(vectors))(np.array([*vectors, [9.0, 9.0]]))
    assert np.isfinite(whitened).all()
    if len(vectors) == 2:
        np.testing.assert_allclose(np.abs(whitened[:2, 0]), 1.0 / np.sqrt(1.0 - 5e-9))


def test_an_unknown_classifier_is_answered_with_the_nearest_name():
    with pytest.raises(OptionError, match=r"got 'medoids'; did you mean medoid\?"):
        Protocol(classifiers=("centroid", "medoids"))
    for wrong in ("centroid", (), ("centroid", "centroid")):
        with pytest.raises(
            OptionError, match="classifiers: expected names in a tuple, each once"
        ):
            Protocol(classifiers=wrong)
    assert Protocol(classifiers=("medoid", "centroid")).reference == "centroid"
    assert Protocol(classifiers=("medoid", "cosine")).reference == "medoid"


def test_more_classifiers_add_rows_and_move_none():
    table = random_corpus(3, classes=4, size=3, integers=False)
    few = dataclasses.replace(FOUR_SHOTS, whole_pool=True)
    shares = []
    alone = evaluate_tables([table], few)
    result = evaluate_tables(
        [table],
        dataclasses.replace(few, classifiers=("medoid", "centroid", "cl2n")),
        progress=lambda share, _: shares.append(share),
    )
    names = result.curve["classifier"].unique(maintain_order=True)
    assert names.to_list() == ["medoid", "centroid", "cl2n"]
    centroid = result.select_classifiers(["centroid"])
    for name in ("curve", "per_class", "values", "confusion", "ties"):
        assert getattr(centroid, name).equals(getattr(alone, name))
    assert result.notes == alone.notes
    assert len(result.values) == 3 * len(alone.values)
    assert sum(shares) == pytest.approx(1.0)
    named = result.name_classifiers("centroid").curve["encoder"]
    names = named.unique(maintain_order=True).to_list()
    assert names == ["test, medoid", "test", "test, cl2n"]
