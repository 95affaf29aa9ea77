"""Streams, scores, ranks and bootstrap samples, each against a slow or another implementation."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.special import logsumexp

import literal
from callshot.fewshot import reference
from callshot.fewshot.centroid import log_odds, softmax
from callshot.fewshot.kernels import ranks, streams
from callshot.fewshot.metrics import harmonic_numbers

finite = st.floats(-500, 500)


@given(
    st.text(), st.integers(0, 2**64 - 1), st.integers(0, 10**6), st.integers(1, 2**31)
)
def test_streams_are_those_of_the_reference_bit_for_bit(text, word, position, n):
    assert int(streams.key(text)) == literal.key(text)
    assert int(streams.purpose_key(7, text)) == literal.key(f"callshot/7/{text}")
    stream = streams.make_stream(7, text, word)
    assert int(stream) == literal.make_stream(7, text, word)
    pick = streams.below(stream, np.uint64(position), np.uint64(n))
    assert int(pick) == literal.below(int(stream), position, n)


@given(st.lists(st.lists(finite, min_size=4, max_size=4), min_size=1, max_size=6))
def test_log_odds_are_a_minus_the_logsumexp_of_the_others(rows):
    for row, scores in zip(np.array(rows), log_odds(rows), strict=True):
        golden = [row[n] - logsumexp(np.delete(row, n)) for n in range(4)]
        np.testing.assert_allclose(scores, golden, rtol=1e-12, atol=1e-11)


@given(st.lists(st.integers(-40, 40), min_size=2, max_size=12), st.randoms())
def test_the_order_of_the_classes_cannot_break_a_tie(row, random):
    order = list(range(len(row)))
    random.shuffle(order)
    scores = log_odds([float(x) for x in row])
    shuffled = log_odds([float(row[i]) for i in order])
    assert [scores[i] for i in order] == shuffled.tolist()


def test_log_odds_saturate_at_neither_end_and_softmax_at_both():
    a = np.array([[0.0, -1000.0, -2000.0], [0.0, -1001.0, -2000.0]])
    assert (np.diff(log_odds(a), axis=0)[:, :2] != 0).all()
    assert softmax(a).tolist() == [[1.0, 0.0, 0.0]] * 2


@given(st.lists(finite, min_size=2, max_size=30))
def test_softmax_is_the_literal_one(a):
    np.testing.assert_allclose(softmax(a), reference.softmax(a), rtol=1e-12, atol=0)


def test_softmax_underflows_through_the_subnormals():
    assert softmax([0.0, -740.0])[1] == pytest.approx(math.exp(-740.0), rel=0.1)
    assert softmax([0.0, -800.0])[1] == 0.0


def random_scores(rng, queries, draws, levels):
    """Scores with so many distinct values; 0: all differ."""
    if levels:
        return rng.integers(0, levels, (queries, draws)).astype(float)
    return rng.normal(size=(queries, draws))


@pytest.mark.parametrize("count", [2, 3, 40, 5000])
def test_scores_that_differ_in_their_last_bits_only_are_sorted(count):
    close = 1.0 + np.arange(count) * np.finfo(float).eps
    scores = np.random.default_rng(0).permutation([*-close, *close])
    index = ranks.sort_scores(scores) & np.uint64(2**32 - 1)
    assert scores[index].tolist() == sorted(scores)


tables = st.tuples(
    st.integers(2, 40),
    st.integers(1, 12),
    st.integers(0, 10**6),
    st.sampled_from([2, 9, 0]),
)


@settings(max_examples=30)
@given(tables, st.floats(0.02, 0.98), st.sampled_from([np.uint16, np.uint32]))
def test_every_sample_of_a_class_has_scikit_learns_ap_and_auroc(shape, share, dtype):
    queries, draws, seed, levels = shape
    rng = np.random.default_rng(seed)
    scores = random_scores(rng, queries, draws, levels)
    relevant = rng.random(queries) < share
    relevant[0] = True
    picks = rng.integers(0, draws, (queries, 5)).astype(np.uint16)
    order = ranks.sort_scores(scores.ravel())
    code = np.empty(queries * draws, dtype)
    ap = np.empty(5)
    auroc = np.empty(5)
    for positive in (True, False):
        anchor = relevant if positive else ~relevant
        ties, _ = ranks.encode(order, scores.ravel(), anchor, draws, code)
        if not anchor.any() or (ties and not positive):
            continue
        anchors = np.flatnonzero(anchor)
        harmonic = harmonic_numbers(queries)
        ranks.sample_class(
            code, anchors, positive, ties > 0, draws, picks, harmonic, ap, auroc
        )
        for b in range(5):
            sample = scores[np.arange(queries), picks[:, b]]
            golden = literal.ranking_metrics(sample, relevant)
            np.testing.assert_allclose([ap[b], auroc[b]], golden, rtol=0, atol=1e-12)
