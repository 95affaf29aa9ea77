import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import literal
from callshot.fewshot.centroid import score
from callshot.fewshot.kernels import bootstrap, ranks, streams
from callshot.fewshot.kernels.shared import shared_support
from callshot.fewshot.metrics import harmonic_numbers

finite = st.floats(-500, 500)


@given(st.text(), st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(1, 2**31))
def test_streams_are_the_literal_hash_bit_for_bit(text, word, position, n):
    base = streams.key(text)
    assert int(base) == literal.key(text)
    stream = np.uint64(streams.enter(base, np.uint64(word)))
    assert int(stream) == literal.enter(int(base), word)
    assert int(streams.below(stream, np.uint64(position), np.uint64(n))) == literal.below(
        int(stream), position, n
    )


def test_streams_fill_their_range_evenly():
    stream = streams.purpose_key(0, "test")
    picks = [int(streams.below(stream, np.uint64(i), np.uint64(7))) for i in range(7000)]
    counts = np.bincount(picks, minlength=7)
    assert ((counts - 1000) ** 2 / 1000).sum() < 22.5  # chi-squared with 6 degrees: 99.9 %


def test_bootstrap_picks_are_a_hash_of_the_query_and_the_sample():
    out = np.empty((3, 40), np.uint16)
    base = streams.purpose_key(5, "bootstrap")
    streams.bootstrap_picks(base, np.array([streams.key(f"s{i}") for i in range(3)]), 9, out)
    assert out.tolist() == [[literal.pick(5, f"s{i}", b, 9) for b in range(40)] for i in range(3)]


@given(st.lists(st.lists(finite, min_size=4, max_size=4), min_size=1, max_size=6))
def test_log_odds_are_a_minus_the_logsumexp_of_the_others(rows):
    found = score(rows)
    for row, got in zip(np.array(rows), found, strict=True):
        wanted = [row[n] - logsumexp(np.delete(row, n)) for n in range(4)]
        np.testing.assert_allclose(got, wanted, rtol=1e-12, atol=1e-11)


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=12), st.randoms())
def test_the_order_of_the_classes_cannot_break_a_tie(row, random):
    order = list(range(len(row)))
    random.shuffle(order)
    found, turned = score([float(x) for x in row]), score([float(row[i]) for i in order])
    assert [found[i] for i in order] == turned.tolist()


def test_log_odds_saturate_at_neither_end_and_softmax_at_both():
    a = np.array([[0.0, -1000.0, -2000.0], [0.0, -1001.0, -2000.0]])
    assert (np.diff(score(a), axis=0)[:, :2] != 0).all()
    assert score(a, "softmax").tolist() == [[1.0, 0.0, 0.0]] * 2


@given(st.lists(finite, min_size=2, max_size=30))
def test_softmax_is_the_literal_one(a):
    np.testing.assert_allclose(score(a, "softmax"), literal.softmax(a), rtol=1e-12, atol=0)


def test_softmax_underflows_through_the_subnormals():
    assert score([0.0, -740.0], "softmax")[1] == pytest.approx(math.exp(-740.0), rel=0.1)
    assert score([0.0, -800.0], "softmax")[1] == 0.0


tables = st.tuples(
    st.integers(2, 40), st.integers(1, 12), st.integers(0, 10**6), st.sampled_from([2, 9, 0])
)


@settings(max_examples=60, deadline=None)
@given(tables, st.floats(0.02, 0.98), st.sampled_from([np.uint16, np.uint32]))
def test_every_sample_of_a_class_has_scikit_learns_ap_and_auroc(shape, share, kind):
    queries, draws, seed, levels = shape
    rng = np.random.default_rng(seed)
    scores = (
        rng.integers(0, levels, (queries, draws)).astype(float)
        if levels
        else rng.normal(size=(queries, draws))
    )
    relevant = rng.random(queries) < share
    relevant[0] = True
    picks = rng.integers(0, draws, (queries, 5)).astype(np.uint16)
    positive = 2 * relevant.sum() <= queries
    anchor, codes = relevant if positive else ~relevant, np.empty(queries * draws, kind)
    order = ranks.sort_scores(scores.ravel())
    ties, _ = ranks.encode(order, scores.ravel(), anchor, draws, codes)
    if ties and not positive:
        positive, anchor = True, relevant
        ties, _ = ranks.encode(order, scores.ravel(), anchor, draws, codes)
    ap, auroc = np.empty(5), np.empty(5)
    harmonic = harmonic_numbers(queries)
    bootstrap.sample_class(
        codes, draws, np.flatnonzero(anchor), positive, ties > 0, picks, harmonic, ap, auroc
    )
    for b in range(5):
        wanted = literal.ranking_metrics(scores[np.arange(queries), picks[:, b]], relevant)
        np.testing.assert_allclose([ap[b], auroc[b]], wanted, rtol=0, atol=1e-12)


@given(st.integers(0, 10**6), st.integers(1, 30), st.integers(1, 8), st.booleans())
def test_codes_keep_order_and_ties_with_every_anchor(seed, queries, draws, ties):
    rng = np.random.default_rng(seed)
    scores = (
        rng.integers(0, 5, queries * draws).astype(float)
        if ties
        else rng.normal(size=queries * draws)
    )
    anchor = rng.random(queries) < 0.5
    codes = np.empty(scores.size, np.uint32)
    tied, _ = ranks.encode(ranks.sort_scores(scores), scores, anchor, draws, codes)
    query = np.arange(scores.size) // draws
    for i in np.flatnonzero(anchor[query]):
        assert (codes % 2 == 1)[i]
        np.testing.assert_array_equal(codes.astype(int) >= int(codes[i]), scores >= scores[i])
        np.testing.assert_array_equal(codes.astype(int) > int(codes[i]), scores > scores[i])
    equal = (scores[:, None] == scores) & (query[:, None] != query)
    assert tied == equal.any(axis=1).sum() or (ties and tied >= equal.any(axis=1).sum())


@pytest.mark.parametrize("distinct", [True, False])
def test_a_shared_support_is_the_first_of_one_order_outside_the_fold(distinct):
    fold = np.array([0, 1, 2, 0, 1, 2, -1, 0])
    for draw in range(20):
        stream = np.uint64(
            literal.enter(literal.enter(literal.start(3, "shared"), draw), literal.key("roar"))
        )
        for query_fold in range(3):
            out = np.zeros(6, np.uint64)
            size = shared_support(stream, fold, query_fold, 6, distinct, out)
            sampler = "distinct" if distinct else "replacement"
            wanted = literal.draw_shared(
                3, draw, "roar", range(8), lambda m, f=query_fold: fold[m] != f, 6, sampler
            )
            assert out[:size].tolist() == wanted
