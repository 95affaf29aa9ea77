"""Algorithm 1, written out slowly and literally: the twin that the kernels are held against.

No NumPy random state, no Gram matrix, no ranks: Python integers, means of vectors, scikit-learn's metrics.
"""

import hashlib
import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.metrics import average_precision_score, roc_auc_score

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15


def key(text):
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "little")


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def enter(stream, word):
    return mix((stream + word * GOLDEN) & MASK)


def below(stream, position, n):
    return ((mix((stream + (position + 1) * GOLDEN) & MASK) >> 32) * n) >> 32


def start(seed, purpose):
    return key(f"callshot/{seed}/{purpose}")


def draw_own(seed, segment, draw, label, pool: Sequence, k, sampler):
    """One query's support of one class: `pool` in the order of segment ids."""
    stream = enter(enter(enter(start(seed, "support"), key(segment)), draw), key(label))
    if sampler == "replacement":
        return [pool[below(stream, i, len(pool))] for i in range(k)]
    order = list(pool)
    for i in range(min(k, len(pool))):
        j = i + below(stream, i, len(pool) - i)
        order[i], order[j] = order[j], order[i]
    return order[:k]


def draw_shared(seed, draw, label, members: Sequence, outside, k, sampler):
    """The support of one class for all queries: the first k of one order that `outside` accepts."""
    stream = enter(enter(start(seed, "shared"), draw), key(label))
    if sampler == "replacement":
        found, i = [], 0
        while len(found) < k:
            new = members[below(stream, i, len(members))]
            found += [new] if outside(new) else []
            i += 1
        return found
    order = list(members)
    for i in range(len(order)):
        j = i + below(stream, i, len(order) - i)
        order[i], order[j] = order[j], order[i]
    return [m for m in order if outside(m)][:k]


def a_exact(z, support):
    """2 c·z − |c|², in fractions."""
    z = [Fraction(float(x)) for x in z]
    c = [
        sum((Fraction(float(v[d])) for v in support), Fraction(0)) / len(support)
        for d in range(len(z))
    ]
    return 2 * sum(x * y for x, y in zip(c, z, strict=True)) - sum(x * x for x in c)


def a_float(z, support):
    c = np.mean(np.asarray(support, np.float64), axis=0)
    return 2 * float(c @ z) - float(c @ c)


def a_cosine(z, support):
    """The cosine of the angle between the query and the class mean; 0 without a direction."""
    c = np.mean(np.asarray(support, np.float64), axis=0)
    lengths = math.sqrt(float(c @ c)) * math.sqrt(float(np.dot(z, z)))
    return float(c @ z) / lengths if lengths > 0 else 0.0


def squared_distance(x, y):
    """In fractions."""
    return sum((Fraction(float(a)) - Fraction(float(b))) ** 2 for a, b in zip(x, y, strict=True))


def a_nearest(z, support):
    """Less the squared distance to the closest exemplar."""
    return -min(squared_distance(z, x) for x in support)


def a_medoid(z, support):
    """Less the squared distance to the exemplar with the smallest sum of distances to the others, the first of them."""
    sums = []
    for x in support:
        total = 0.0
        for y in support:
            total += math.sqrt(squared_distance(x, y))
        sums.append(total)
    return -squared_distance(z, support[sums.index(min(sums))])


def support_side(corpus, f):
    """The vectors that may be drawn for queries of fold f, whatever their labels."""
    return np.array([corpus.table.vectors[i] for i in corpus.rows if corpus.fold[i] != f])


def cl2n_vectors(corpus, f):
    """Every vector less the mean of the support side, by its length."""
    mean = support_side(corpus, f).mean(axis=0)
    return np.array(
        [(v - mean) / math.sqrt(float((v - mean) @ (v - mean))) for v in corpus.table.vectors]
    )


def whitened_vectors(corpus, f):
    """Every vector less the mean, times the root of the inverse of scikit-learn's covariance of the support side."""
    found = LedoitWolf().fit(support_side(corpus, f))
    value, axis = np.linalg.eigh(found.covariance_)
    root = axis @ np.diag(value**-0.5) @ axis.T
    return np.array([root @ (v - found.location_) for v in corpus.table.vectors])


def vectors_as_given(corpus, f):
    return corpus.table.vectors


CLASSIFIERS = {
    "centroid": (a_float, vectors_as_given),
    "cosine": (a_cosine, vectors_as_given),
    "cl2n": (a_float, cl2n_vectors),
    "whitened": (a_float, whitened_vectors),
    "neighbour": (a_nearest, vectors_as_given),
    "medoid": (a_medoid, vectors_as_given),
}


def log_odds(a):
    """a_n − logsumexp of the others, sums correctly rounded, so that equal sets of differences give equal scores."""
    out = []
    for n in range(len(a)):
        others = sorted(a[:n] + a[n + 1 :], reverse=True)
        rest = math.fsum(math.exp(float(x - others[0])) for x in others[1:])
        out.append(float(a[n] - others[0]) - math.log1p(rest))
    return out


def softmax(a):
    e = [math.exp(float(x - max(a))) for x in a]
    return [x / math.fsum(e) for x in e]


def ranking_metrics(scores, relevant):
    """AP and AUROC of one class in one fold; AUROC NaN without a negative."""
    ap = average_precision_score(relevant, scores)
    return ap, (roc_auc_score(relevant, scores) if not all(relevant) else math.nan)


def metrics(scores, relevant):
    """(queries, classes) scores and truth of one fold → lists of AP and AUROC per class."""
    pairs = [ranking_metrics(scores[:, n], relevant[:, n]) for n in range(scores.shape[1])]
    return [p[0] for p in pairs], [p[1] for p in pairs]


def pick(seed, segment, b, draws):
    return below(enter(start(seed, "bootstrap"), key(segment)), b, draws)


def as_a_set(chosen, pool, sampler):
    """A support that is all of its pool is one set: whatever order it came in, it is scored in the pool's."""
    return list(pool) if sampler == "distinct" and len(chosen) == len(pool) else chosen


class Corpus:
    """Eligible classes, pools and queries, found by looking."""

    def __init__(self, table, fold, folds):
        self.table, self.fold, self.folds = table, list(fold), folds
        names = sorted(set(table.label))
        held = {
            c: {f for x, f in zip(table.label, self.fold, strict=True) if x == c} for c in names
        }
        self.classes = [c for c in names if set(range(folds)) <= held[c]]
        rows = sorted(range(len(table)), key=lambda i: table.segment[i])
        self.members = {c: [i for i in rows if table.label[i] == c] for c in self.classes}
        self.rows = [i for c in self.classes for i in self.members[c]]

    def queries(self, f):
        return [i for i in self.rows if self.fold[i] == f]

    def relevant(self, f):
        table = self.table
        return np.array(
            [
                [c == table.label[i] or c in table.labels[i] for c in self.classes]
                for i in self.queries(f)
            ]
        )


def own_scores(corpus, protocol, k, f, a_of=a_exact, vectors_of=vectors_as_given):
    """(queries, draws, classes) scores of one fold, each query against draws of its own; and the decisions."""
    score = log_odds if protocol.score == "log" else softmax
    table, vectors, out, decided = corpus.table, vectors_of(corpus, f), [], []
    for i in corpus.queries(f):
        for r in range(protocol.draws):
            a = []
            for c in corpus.classes:
                pool = [m for m in corpus.members[c] if corpus.fold[m] != f]
                chosen = draw_own(protocol.seed, table.segment[i], r, c, pool, k, protocol.sampler)
                a.append(
                    a_of(vectors[i], [vectors[m] for m in as_a_set(chosen, pool, protocol.sampler)])
                )
            out.append(score(a))
            decided.append(a.index(max(a)))
    shape = (len(corpus.queries(f)), protocol.draws)
    return np.array(out).reshape(*shape, -1), np.array(decided).reshape(shape)


def shared_scores(corpus, protocol, k, f, draw, a_of=a_exact, vectors_of=vectors_as_given):
    """(queries, classes) scores of one fold against one shared draw; and the decisions."""
    score = log_odds if protocol.score == "log" else softmax
    vectors, supports = vectors_of(corpus, f), []
    for c in corpus.classes:
        outside = lambda m: corpus.fold[m] != f  # noqa: E731
        chosen = draw_shared(
            protocol.seed, draw, c, corpus.members[c], outside, k, protocol.sampler
        )
        pool = [m for m in corpus.members[c] if outside(m)]
        supports.append([vectors[m] for m in as_a_set(chosen, pool, protocol.sampler)])
    a = [[a_of(vectors[i], s) for s in supports] for i in corpus.queries(f)]
    return np.array([score(x) for x in a]), np.array([x.index(max(x)) for x in a])


def fold_values(scores, decided, relevant):
    """The three metrics of one fold, macro over classes, and AP per class."""
    ap, auroc = metrics(scores, relevant)
    defined = [x for x in auroc if not math.isnan(x)]
    hits = np.mean([relevant[q, d] for q, d in enumerate(decided)])
    return {
        "map": np.mean(ap),
        "auroc": np.mean(defined) if defined else math.nan,
        "accuracy": hits,
    }, ap


def per_query_values(corpus, protocol, k, *rule):
    """Values of every bootstrap sample: {metric: [value, …]}; `rule` is a row of CLASSIFIERS."""
    folds = [
        (own_scores(corpus, protocol, k, f, *rule), corpus.relevant(f), corpus.queries(f))
        for f in range(corpus.folds)
    ]
    values = {"map": [], "auroc": [], "accuracy": []}
    for b in range(protocol.bootstraps):
        per_fold = []
        for (scores, decided), relevant, queries in folds:
            r = [pick(protocol.seed, corpus.table.segment[i], b, protocol.draws) for i in queries]
            at = np.arange(len(queries))
            per_fold.append(fold_values(scores[at, r], decided[at, r], relevant)[0])
        for metric, out in values.items():
            out.append(np.nanmean([x[metric] for x in per_fold]))
    return values


def shared_values(corpus, protocol, k, *rule):
    """Values of every shared draw: {metric: [value, …]}; `rule` is a row of CLASSIFIERS."""
    values = {"map": [], "auroc": [], "accuracy": []}
    for draw in range(protocol.shared_draws):
        per_fold = [
            fold_values(*shared_scores(corpus, protocol, k, f, draw, *rule), corpus.relevant(f))[0]
            for f in range(corpus.folds)
        ]
        for metric, out in values.items():
            out.append(np.nanmean([x[metric] for x in per_fold]))
    return values
