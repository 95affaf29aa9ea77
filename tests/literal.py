"""Goldens that are not the method: rules beside the centroid, scikit-learn's metrics, streams.

The method itself, slow and literal, is `callshot.fewshot.reference`.
"""

import hashlib
import math
from fractions import Fraction

import numpy as np
from sklearn.covariance import LedoitWolf
from sklearn.metrics import average_precision_score, roc_auc_score

from callshot.fewshot import reference


def key(text):
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


GOLDEN = 0x9E3779B97F4A7C15
MASK = 2**64 - 1


def mix(x):
    """Scramble 64 bits (the finaliser of SplitMix64)."""
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def make_stream(seed, purpose, *words):
    stream = key(f"callshot/{seed}/{purpose}")
    for word in words:
        stream = mix((stream + int(word) * GOLDEN) & MASK)
    return stream


def below(stream, position, n):
    return ((mix((stream + (position + 1) * GOLDEN) & MASK) >> 32) * n) >> 32


def pick_draw(seed, segment_key, sample, draws):
    """The draw that a bootstrap sample takes for a query."""
    return below(make_stream(seed, "bootstrap", segment_key), sample, draws)


def fractions(vector):
    return [Fraction(float(x)) for x in vector]


def by_class(rule):
    """The rule for the supports of all classes, from one for the support of a class.

    Exemplars may have weights; by default all are 1.
    """

    def score(episodes, query, supports, weights=None):
        weights = np.ones(len(episodes.rows)) if weights is None else weights
        return [rule(episodes, query, support, weights) for support in supports]

    return score


def exact_centroid(episodes, query, support, weights=None):
    """2 c·z − |c|², in fractions, without weights."""
    z = fractions(episodes.vectors[query])
    columns = zip(*(fractions(episodes.vectors[row]) for row in support), strict=True)
    c = [sum(column, Fraction(0)) / len(support) for column in columns]
    return 2 * sum(x * y for x, y in zip(c, z, strict=True)) - sum(x * x for x in c)


def cosine(episodes, query, support, weights):
    """The cosine of the angle between the query and the class mean; 0 without a direction."""
    vectors = episodes.vectors + episodes.origin
    z = vectors[query]
    c = np.average(vectors[support], axis=0, weights=weights[support])
    lengths = math.sqrt(float(c @ c)) * math.sqrt(float(z @ z))
    return float(c @ z) / lengths if lengths > 0 else 0.0


def squared_distance(x, y):
    """In fractions."""
    return sum((a - b) ** 2 for a, b in zip(fractions(x), fractions(y), strict=True))


def nearest(episodes, query, support, weights):
    """Less the squared distance to the closest exemplar."""
    z = episodes.vectors[query]
    return -min(squared_distance(z, episodes.vectors[row]) for row in support)


def medoid(episodes, query, support, weights):
    """Less the squared distance to the exemplar with the least sum of distances to the others."""
    vectors = episodes.vectors
    sums = []
    for row in support:
        total = 0.0
        for other in support:
            distance = math.sqrt(squared_distance(vectors[row], vectors[other]))
            total += weights[other] * distance
        sums.append(total)
    return -squared_distance(vectors[query], vectors[support[sums.index(min(sums))]])


class FittedRule:
    """A rule on vectors that are transformed by the support side of the query's fold.

    By default it is the centroid, without weights.
    """

    def __init__(self, transform, score=None):
        self.transform = transform
        self.score = score or centroids
        self.fitted = []  # (episodes, fold, transformed vectors)

    def __call__(self, episodes, query, supports, weights=None):
        vectors = self.vectors(episodes, episodes.fold[query])
        return self.score(vectors, query, supports, weights)

    def vectors(self, episodes, fold):
        for known, number, vectors in self.fitted:
            if known is episodes and number == fold:
                return vectors
        table = episodes.vectors + episodes.origin
        vectors = self.transform(table, table[episodes.fold != fold])
        self.fitted = [*self.fitted[-9:], (episodes, fold, vectors)]
        return vectors


def centroids(vectors, query, supports, weights):
    """2 c·z − |c|² of every class, c the weighted mean of its support."""
    weights = np.ones(len(vectors)) if weights is None else weights
    a = []
    for support in supports:
        c = np.average(vectors[support], axis=0, weights=weights[support])
        a.append(2 * float(c @ vectors[query]) - float(c @ c))
    return a


def ridge(vectors, query, supports, weights):
    """The weights w of each class solve (X' V X + I) w = X' V t; its logit is w·z."""
    rows = np.concatenate(supports).astype(int)
    x = vectors[rows]
    v = np.diag(np.ones(len(rows)) if weights is None else weights[rows])
    penalty = np.eye(x.shape[1])
    a = []
    for n, support in enumerate(supports):
        before = sum(map(len, supports[:n]))
        t = np.zeros(len(rows))
        t[before : before + len(support)] = 10.0
        w = np.linalg.solve(x.T @ v @ x + penalty, x.T @ v @ t)
        a.append(float(w @ vectors[query]))
    return a


def centre_and_normalise(vectors, support):
    """Every vector minus the mean of the support side, by its length."""
    centred = vectors - support.mean(axis=0)
    return np.array([vector / math.sqrt(float(vector @ vector)) for vector in centred])


def root_centre_and_normalise(vectors, support):
    """The same with the roots of values, and with minus the roots of those below 0."""
    roots = [
        [[math.copysign(math.sqrt(abs(x)), x) for x in row] for row in table]
        for table in (vectors, support)
    ]
    return centre_and_normalise(*map(np.array, roots))


def whiten(vectors, support):
    """Every vector minus the mean, times the inverse root of scikit-learn's covariance."""
    golden = LedoitWolf().fit(support)
    value, axis = np.linalg.eigh(golden.covariance_)
    root = axis @ np.diag(value**-0.5) @ axis.T
    return (vectors - golden.location_) @ root


RULES = {
    "centroid": reference.centroid,
    "cosine": by_class(cosine),
    "cl2n": FittedRule(centre_and_normalise),
    "root-cl2n": FittedRule(root_centre_and_normalise),
    "ridge": FittedRule(root_centre_and_normalise, ridge),
    "whitened": FittedRule(whiten),
    "neighbour": by_class(nearest),
    "medoid": by_class(medoid),
}


def ranking_metrics(scores, relevant):
    """AP and AUROC of scikit-learn; AUROC is NaN without a negative."""
    ap = average_precision_score(relevant, scores)
    return ap, (math.nan if all(relevant) else roc_auc_score(relevant, scores))


def class_metrics(scores, relevant):
    """AP and AUROC of each class, (2, classes); scores and truth are (queries, classes)."""
    pairs = zip(scores.T, relevant.T, strict=True)
    return np.transpose([ranking_metrics(*pair) for pair in pairs])


def logistic_objective(rows, label, weight, bias, c):
    """J of logistic regression: −Σ log p of the labels, and the L2 penalty of the weights."""
    logits = rows @ weight.T + bias
    loss = np.logaddexp.reduce(logits, axis=1) - logits[np.arange(len(label)), label]
    return loss.sum() + (weight**2).sum() / (2 * c)


def literal_percentile(sample, percent):
    """Between the two nearest ranks, in a straight line."""
    ranked = sorted(sample)
    place = percent / 100 * (len(ranked) - 1)
    low = int(place)
    high = min(low + 1, len(ranked) - 1)
    return ranked[low] + (place - low) * (ranked[high] - ranked[low])


def literal_intervals(rows):
    """Intervals of several rows of samples at once: all hold in 98 % of the samples."""
    means = [math.fsum(row) / len(row) for row in rows]
    deviations = []
    for row, mean in zip(rows, means, strict=True):
        variance = math.fsum((x - mean) ** 2 for x in row) / len(row)
        deviations.append(math.sqrt(variance))
    largest = []
    for b in range(len(rows[0])):
        z = [0.0]
        for row, mean, deviation in zip(rows, means, deviations, strict=True):
            if deviation > 1e-9:
                z.append(abs(row[b] - mean) / deviation)
        largest.append(max(z))
    c = literal_percentile(largest, 98)
    return [
        (mean - c * deviation, mean + c * deviation)
        for mean, deviation in zip(means, deviations, strict=True)
    ]
