"""Weights and weighted metrics of the spread `total`, slow and literal."""

import math

import numpy as np
from hypothesis import assume
from hypothesis import strategies as st

import literal
from callshot.fewshot import reference
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
    """The first k of class n on the support side of a fold in the order of a race."""
    pool = np.flatnonzero((episodes.label == n) & episodes.is_support(fold)).tolist()
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


def class_means(folds):
    """AP and AUROC of each class, (2, classes): means over folds by the weight of its positives.

    A fold is scores and truth (queries, classes), and the weights of queries.
    """
    sums = np.zeros((2, folds[0][1].shape[1]))
    totals = np.zeros(sums.shape)
    for scores, relevant, weights in folds:
        for n in np.flatnonzero(relevant.any(axis=0)):
            share = weights[relevant[:, n]].mean()
            metrics = literal_metrics(scores[:, n], relevant[:, n], weights)
            for row, value in enumerate(metrics):
                if not math.isnan(value):
                    sums[row, n] += share * value
                    totals[row, n] += share
    with np.errstate(invalid="ignore"):
        return sums / totals


def score_total(episodes, protocol, sample, k, score):
    """Yield the queries of every fold, their a_n, and their weights in one sample.

    `score` gives a_n of a query by the supports and the weights of all rows.
    """
    weights = literal_weights(episodes, protocol, sample)
    for fold in range(episodes.folds):
        draw = (episodes, protocol, sample, weights, fold)
        classes = range(len(episodes.classes))
        supports = [literal_support(*draw, n, k) for n in classes]
        queries = np.flatnonzero(episodes.fold == fold)
        a = [score(episodes, query, supports, weights) for query in queries]
        yield queries, np.array(a), weights[queries]


def total_values(episodes, protocol, k, score):
    """mAP, AUROC and accuracy of every sample of `total`, (samples, 3)."""
    values = []
    for sample in range(protocol.total_samples):
        folds = []
        hits = []
        sizes = []
        for queries, a, weights in score_total(episodes, protocol, sample, k, score):
            relevant = episodes.relevant[queries]
            scores = np.array([reference.log_odds(row.tolist()) for row in a])
            folds.append((scores, relevant, weights))
            is_hit = relevant[np.arange(len(a)), a.argmax(axis=1)]
            hits.append(np.mean(weights * is_hit))
            sizes.append(weights.mean())
        ranking = np.nanmean(class_means(folds), axis=1)
        values.append([*ranking, sum(hits) / sum(sizes)])
    return np.array(values)


def weighted_centroids(episodes, query, supports, weights):
    return literal.centroids(episodes.vectors, query, supports, weights)


@st.composite
def weighted_rankings(draw):
    """Scores with ties, truth with at least one positive, and whole weights."""
    row = st.tuples(st.integers(0, 5), st.booleans(), st.integers(1, 2**24))
    rows = draw(st.lists(row, min_size=2, max_size=40))
    assume(any(truth for _, truth, _ in rows))
    scores, relevant, weight = zip(*rows, strict=True)
    return np.array(scores, float), np.array(relevant), np.array(weight)
