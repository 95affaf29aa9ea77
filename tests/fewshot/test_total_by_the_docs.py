"""mAP of the spread `total`, by the steps of docs/explanation-certainty.md and nothing else."""

import hashlib
import math

import numpy as np
import pytest

from callshot.fewshot.evaluate import evaluate_tables
from callshot.fewshot.protocol import Protocol
from corpora import random_corpus

MASK = 2**64 - 1
GOLDEN = 0x9E3779B97F4A7C15
SAMPLES = 12
DRAWS = 10


def key(text):
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little")


def mix(x):
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def upper_half(position, seed, purpose, *words):
    """Return the upper 32 bits of the number at a position of a stream."""
    stream = key(f"callshot/{seed}/{purpose}")
    for word in words:
        stream = mix((stream + word * GOLDEN) & MASK)
    return mix((stream + (position + 1) * GOLDEN) & MASK) >> 32


def exponential(*stream):
    return -math.log((upper_half(*stream) + 0.5) / 2**32)


class Corpus:
    """The rows of the eligible classes, by class and segment id."""

    def __init__(self, table, fold):
        every = zip(table.label, fold, strict=True)
        folds_of = {}
        for label, number in every:
            folds_of.setdefault(label, set()).add(number)
        self.folds = sorted(set(fold) - {-1})
        eligible = [name for name in folds_of if folds_of[name] >= set(self.folds)]
        self.classes = sorted(eligible)
        rows = [row for row in range(len(table)) if table.label[row] in eligible]
        rows.sort(key=lambda row: (table.label[row], table.segment[row]))
        self.label = [table.label[row] for row in rows]
        self.segment = [table.segment[row] for row in rows]
        self.recording = [table.recording[row] for row in rows]
        self.labels = [{table.label[row], *table.labels[row]} for row in rows]
        self.fold = np.array([fold[row] for row in rows])
        self.vectors = table.matrix[rows]

    def members(self, name):
        return [row for row, label in enumerate(self.label) if label == name]

    def log_odds(self, orders, weights, fold, k):
        """Return the score of each query of a fold for each class."""
        queries = self.vectors[self.fold == fold]
        evidence = []
        for order in orders:
            support = [row for row in order if self.fold[row] != fold][:k]
            mean = np.average(self.vectors[support], axis=0, weights=weights[support])
            evidence.append(2 * queries @ mean - mean @ mean)
        table = np.array(evidence)
        others = [np.delete(table, n, axis=0) for n in range(len(table))]
        return table - [np.log(np.exp(rest).sum(axis=0)) for rest in others]

    def measure(self, orders, weights, k):
        """Return AP and the weight of every class in every fold."""
        size = (len(self.classes), len(self.folds))
        ap = np.empty(size)
        share = np.empty(size)
        for place, fold in enumerate(self.folds):
            scores = self.log_odds(orders, weights, fold, k)
            rows = np.flatnonzero(self.fold == fold)
            weight = weights[rows]
            for n, name in enumerate(self.classes):
                positive = np.array([name in self.labels[row] for row in rows])
                share[n, place] = weight[positive].mean()
                ap[n, place] = average_precision(scores[n], positive, weight)
        return ap, share


def average_precision(scores, positive, weight):
    total = 0.0
    for row in np.flatnonzero(positive):
        above = scores >= scores[row]
        total += weight[row] * weight[above & positive].sum() / weight[above].sum()
    return total / weight[positive].sum()


def raw_samples(corpus, k, seed):
    values = []
    for b in range(SAMPLES):
        weights = []
        for recording in corpus.recording:
            weight = exponential(b, seed, "recording", key(recording))
            weights.append(max(round(weight * 2**20), 1) / 2**20)
        arrival = [
            exponential(b, seed, "total", key(segment)) / weight
            for segment, weight in zip(corpus.segment, weights, strict=True)
        ]
        orders = [
            sorted(corpus.members(name), key=lambda row, at=arrival: at[row])
            for name in corpus.classes
        ]
        ap, share = corpus.measure(orders, np.array(weights), k)
        values.append(np.mean((share * ap).sum(axis=1) / share.sum(axis=1)))
    return np.array(values)


def shared_samples(corpus, k, seed):
    values = []
    for draw in range(DRAWS):
        orders = []
        for name in corpus.classes:
            order = corpus.members(name)
            for i in range(len(order)):
                upper = upper_half(i, seed, "shared", draw, key(name))
                j = i + (upper * (len(order) - i) >> 32)
                order[i], order[j] = order[j], order[i]
            orders.append(order)
        ap, _ = corpus.measure(orders, np.ones(len(corpus.label)), k)
        values.append(ap.mean())
    return np.array(values)


def stretch(corpus, raw, shared):
    factors = []
    for name in corpus.classes:
        count = len({corpus.recording[row] for row in corpus.members(name)})
        factors.append((count + 1) / max(count - 1, 1))
    variance = np.mean(factors) * raw.var()
    of_mean = max(variance - shared.var(), 0.0)
    factor = math.sqrt((variance + of_mean) / raw.var())
    return np.clip(shared.mean() + factor * (raw - raw.mean()), 0, 1)


@pytest.mark.parametrize("seed", [2, 11])
def test_total_can_be_computed_again_from_the_documentation_alone(seed):
    table = random_corpus(seed, classes=4, size=4, dimensions=3, integers=False)
    protocol = Protocol(
        shots=(1, 3),
        draws=3,
        bootstraps=5,
        shared_draws=DRAWS,
        total_samples=SAMPLES,
        permutations=0,
        seed=seed,
    )
    result = evaluate_tables([table], protocol)
    corpus = Corpus(table, result.folds.fold.tolist())
    for k in protocol.shots:
        raw = raw_samples(corpus, k, seed)
        samples = stretch(corpus, raw, shared_samples(corpus, k, seed))
        selected = {"metric": "map", "spread": "total", "scoring": "all", "k": k}
        (values,) = result.values.filter(**selected)["value"].to_list()
        np.testing.assert_allclose(values, samples, rtol=0, atol=1e-12)
        point = result.curve.filter(**selected).row(0, named=True)
        limits = np.percentile(samples, (1, 99))
        assert (point["p01"], point["p99"]) == pytest.approx(limits, abs=1e-12)
        assert point["mean"] == pytest.approx(samples.mean(), abs=1e-12)
