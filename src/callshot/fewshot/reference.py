"""Algorithm 1 of the paper in plain Python and NumPy: slow, literal, and meant to be read.

For every fold, query and draw, k exemplars of each class are the support. Query z gets the score
a_n = 2 c_n·z − |c_n|² for class n, with c_n the mean of its support. AP and AUROC of the log-odds
of softmax(a) are averaged over classes, then over folds. With the spread `per-query` a query has
its own draws, and a bootstrap picks one; with `shared` one draw serves all queries. The random
numbers are those of `kernels.streams`.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from callshot.fewshot.episodes import Episodes, Mask
from callshot.fewshot.kernels.streams import below, make_stream
from callshot.fewshot.protocol import Protocol
from callshot.records import FloatArray

METRICS = ("map", "auroc", "accuracy")
Rows = Sequence[int]
# a_n of a query by the supports of all classes
Rule = Callable[[Episodes, int, Sequence[Rows]], list[float]]


def random_below(stream: Any, position: int, n: int) -> int:
    """Return the whole number in [0, n) at a position of a stream."""
    return int(below(np.uint64(stream), np.uint64(position), np.uint64(n)))


def draw(stream: Any, rows: Rows, pool: Rows, k: int, sampler: str) -> Rows:
    """Draw a support of k rows: the first in a random order of `rows` that are in the pool.

    With the sampler `distinct` the order is a permutation (Fisher-Yates), and the support is
    smaller if the pool is; otherwise rows are picked with replacement.
    """
    distinct = sampler == "distinct"
    order = list(rows)
    support: list[int] = []
    position = 0
    while len(support) < k and (position < len(order) or not distinct):
        taken = position if distinct else 0  # rows at the start of the order
        j = taken + random_below(stream, position, len(order) - taken)
        if order[j] in pool:
            support.append(order[j])
        if distinct:  # Fisher-Yates
            order[j] = order[taken]
        position += 1
    is_pool = distinct and len(support) == len(pool)
    return pool if is_pool else support  # one set, one order


def draw_support(
    episodes: Episodes,
    protocol: Protocol,
    spread: str,
    query: int,
    number: int,
    n: int,
    k: int,
) -> Rows:
    """Return the rows of class n's support of k exemplars for a query, in draw `number`.

    With the spread `shared` all queries have the same random order of all rows of the class, from
    which each takes those outside its fold; with `per-query` a query has its own order of its pool.
    """
    is_of_class = episodes.label == n
    rows = np.flatnonzero(is_of_class).tolist()
    fold = int(episodes.fold[query])
    is_support = episodes.is_support(fold)
    pool = [row for row in rows if is_support[row]]
    words = (number, episodes.class_key[n])
    if spread == "shared":
        stream = make_stream(protocol.seed, spread, *words)
        return draw(stream, rows, pool, k, protocol.sampler)
    query_key = episodes.segment_key[query]
    stream = make_stream(protocol.seed, "support", query_key, *words)
    return draw(stream, pool, pool, k, protocol.sampler)


def centroid(episodes: Episodes, query: int, supports: Sequence[Rows]) -> list[float]:
    """Return a_n = 2 c·z − |c|² of every class for a query z (equations 6 and 9).

    c is the mean of the support of the class; `query` and supports are rows of the episodes.
    """
    a = []
    for support in supports:
        c = episodes.vectors[support].mean(axis=0)
        a.append(2 * float(c @ episodes.vectors[query]) - float(c @ c))
    return a


def log_odds(a: Sequence[float]) -> list[float]:
    """Return a_n − log Σ_{m≠n} exp a_m of every class."""
    scores = []
    for n, own in enumerate(a):
        other_classes = [*a[:n], *a[n + 1 :]]
        largest, *others = sorted(other_classes, reverse=True)
        rest = math.fsum(math.exp(other - largest) for other in others)
        margin = float(own - largest)
        scores.append(margin - math.log1p(rest))
    return scores


def softmax(a: Sequence[float]) -> list[float]:
    """Return the softmax of a, which saturates."""
    exponentials = [math.exp(value - max(a)) for value in a]
    return [value / math.fsum(exponentials) for value in exponentials]


def score_fold(
    episodes: Episodes,
    protocol: Protocol,
    spread: str,
    k: int,
    fold: int,
    rule: Rule = centroid,
) -> FloatArray:
    """Score every query of a fold in every draw by k exemplars: (queries, draws, classes + 1).

    The last column is the decision, the number of the class with the largest a_n.
    """
    draws = protocol.count_supports(spread)
    to_scores = softmax if protocol.score == "softmax" else log_odds
    table = []
    queries = np.flatnonzero(episodes.fold == fold).tolist()
    for query, number in itertools.product(queries, range(draws)):
        supports = [
            draw_support(episodes, protocol, spread, query, number, n, k)
            for n in range(len(episodes.classes))
        ]
        a = rule(episodes, query, supports)
        decision = a.index(max(a))
        table.append([*to_scores(a), decision])
    return np.reshape(table, (len(queries), draws, -1))


def ranking_metrics(scores: FloatArray, relevant: Mask) -> tuple[float, float]:
    """Return AP and AUROC (NaN without negatives) of the scores of one class.

    Queries with equal scores are ranked together for AP, and count half for AUROC.
    """
    positives = scores[relevant]
    negatives = scores[~relevant]
    precisions = []
    negatives_below = []
    for score in positives:
        hits = np.sum(positives >= score)
        ranked = np.sum(scores >= score)
        precisions.append(hits / ranked)
        below = np.sum(negatives < score)
        ties = np.sum(negatives == score)
        negatives_below.append(below + ties / 2)
    ap = float(np.mean(precisions))
    mean_below = float(np.mean(negatives_below))
    auroc = mean_below / (len(negatives) or math.nan)
    return ap, auroc


def measure(sample: FloatArray, relevant: Mask) -> FloatArray:
    """Return mAP, AUROC and accuracy of one fold, from scores and, in the last column, decisions.

    `sample` is (queries, classes + 1), `relevant` (queries, classes).
    """
    scores_of_classes = sample.T[:-1]
    metrics = []  # AP and AUROC of each class
    for scores, is_positive in zip(scores_of_classes, relevant.T, strict=True):
        metrics.append(ranking_metrics(scores, is_positive))
    ap, auroc = np.array(metrics).T
    is_defined = ~np.isnan(auroc)
    defined = auroc[is_defined]
    mean_auroc = defined.sum() / (len(defined) or math.nan)
    decisions = sample[:, -1].astype(int)
    queries = np.arange(len(sample))
    hits = relevant[queries, decisions]
    return np.array([ap.mean(), mean_auroc, hits.mean()])


def sample_values(
    episodes: Episodes, protocol: Protocol, spread: str, k: int, rule: Rule = centroid
) -> FloatArray:
    """Return mAP, AUROC and accuracy of every sample of a spread, (samples, 3), means over folds.

    Sample b of `shared` is draw b; one of `per-query` picks a draw for each query.
    """
    values = np.empty((protocol.samples(spread), episodes.folds, 3))
    for fold in range(episodes.folds):
        table = score_fold(episodes, protocol, spread, k, fold, rule)
        queries = np.flatnonzero(episodes.fold == fold)
        keys = episodes.segment_key[queries]
        streams = [make_stream(protocol.seed, "bootstrap", key) for key in keys]
        places = np.arange(len(queries))
        relevant = episodes.relevant[queries]
        for b in range(len(values)):
            picks = [b] * len(queries)  # the draw of each query
            if spread == "per-query":
                picks = [random_below(stream, b, protocol.draws) for stream in streams]
            sample = table[places, picks]
            values[b, fold] = measure(sample, relevant)
    means = np.nanmean(values, axis=1)
    return np.asarray(means)
