"""Weights and weighted metrics of the spread `total`, slow and literal."""

import math

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import literal
from literal import GOLDEN, MASK, make_stream, mix


def exponential(seed, purpose, key, sample):
    """−log u, u the middle of one of 2³² equal steps of (0, 1)."""
    stream = make_stream(seed, purpose, key)
    word = mix((stream + (sample + 1) * GOLDEN) & MASK)
    return -math.log(((word >> 32) + 0.5) / 2**32)


def literal_weights(episodes, protocol, sample):
    weights = []
    for recording in episodes.recording:
        key = literal.key(recording)
        weight = exponential(protocol.seed, "recording", key, sample)
        weights.append(max(round(weight * 2**20), 1) / 2**20)
    return np.array(weights)


def literal_support(episodes, protocol, sample, weights, fold, n, k):
    """The first k of class n outside the fold in the order of a race."""
    pool = np.flatnonzero((episodes.label == n) & (episodes.fold != fold)).tolist()
    arrival = {
        row: exponential(protocol.seed, "total", int(episodes.segment_key[row]), sample)
        / weights[row]
        for row in pool
    }
    return sorted(pool, key=arrival.get)[:k]


def literal_metrics(scores, relevant, weights):
    """AP and AUROC by the formulas, pair by pair."""
    positives = np.flatnonzero(relevant)
    negatives = np.flatnonzero(~relevant)
    ap = 0.0
    for i in positives:
        above = scores >= scores[i]
        ap += weights[i] * weights[above & relevant].sum() / weights[above].sum()
    credit = 0.0
    for i in positives:
        for j in negatives:
            half = (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
            credit += weights[i] * weights[j] * half
    pairs = weights[positives].sum() * weights[negatives].sum()
    return ap / weights[positives].sum(), credit / pairs if pairs > 0 else math.nan


@st.composite
def weighted_rankings(draw):
    """Scores with ties, truth with at least one positive, and whole weights."""
    row = st.tuples(st.integers(0, 5), st.booleans(), st.integers(1, 2**24))
    rows = draw(st.lists(row, min_size=2, max_size=40))
    assume(any(truth for _, truth, _ in rows))
    scores, relevant, weight = zip(*rows, strict=True)
    return np.array(scores, float), np.array(relevant), np.array(weight)
