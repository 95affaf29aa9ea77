"""Examples of a source on queries of a target, slow and literal: from two tables to samples."""

import numpy as np

import literal
from callshot.fewshot import reference
from literal import make_stream
from literal_total import exponential, literal_metrics


class TransferTwin:
    """Rows of both tables by class and segment id; the source is side −1."""

    def __init__(self, source, target, classes):
        self.classes = sorted(classes)
        rows = [
            (label, segment, recording, vector, -1, ())
            for label, segment, recording, vector in columns(source)
            if label in classes
        ]
        folds = target.fold.tolist()
        for column, fold, labels in zip(
            columns(target), folds, target.labels, strict=True
        ):
            if column[0] in classes and fold >= 0:
                rows.append((*column, fold, labels))
        rows.sort(key=lambda row: row[:2])
        self.label, self.segment, self.recording, vectors, fold, self.labels = zip(
            *rows, strict=True
        )
        self.vectors = np.array(vectors, np.float64)
        self.fold = np.array(fold)

    def relevant(self, rows):
        return np.array(
            [
                [name in (self.label[row], *self.labels[row]) for name in self.classes]
                for row in rows
            ]
        )

    def members(self, name, fold=None):
        return [
            row
            for row, label in enumerate(self.label)
            if label == name and (fold is None or self.fold[row] == fold)
        ]

    def recordings(self, name):
        """The recordings of a class in the source, and at the target."""
        rows = self.members(name)
        source = {self.recording[row] for row in rows if self.fold[row] == -1}
        target = {self.recording[row] for row in rows if self.fold[row] >= 0}
        return source, target

    def support(self, protocol, spread, query, number, name, k):
        """All examples are rows of the source."""
        pool = self.members(name, fold=-1)
        words = (number, literal.key(name))
        if spread == "shared":
            stream = make_stream(protocol.seed, "shared", *words)
            return reference.draw(stream, self.members(name), pool, k, protocol.sampler)
        query_key = literal.key(self.segment[query])
        stream = make_stream(protocol.seed, "support", query_key, *words)
        return reference.draw(stream, pool, pool, k, protocol.sampler)

    def scores(self, protocol, spread, query, number, k):
        """Log-odds of each class, and last the decision."""
        a = []
        for name in self.classes:
            support = self.support(protocol, spread, query, number, name, k)
            c = self.vectors[support].mean(axis=0)
            a.append(2 * float(c @ self.vectors[query]) - float(c @ c))
        return [*reference.log_odds(a), a.index(max(a))]

    def values(self, protocol, spread, k):
        """mAP, AUROC and accuracy of every sample of per-query or shared, (samples, 3)."""
        folds = sorted(set(self.fold.tolist()) - {-1})
        values = np.empty((protocol.samples(spread), len(folds), 3))
        for place, fold in enumerate(folds):
            queries = np.flatnonzero(self.fold == fold).tolist()
            relevant = self.relevant(queries)
            for b in range(len(values)):
                sample = []
                for query in queries:
                    number = b
                    if spread == "per-query":
                        key = literal.key(self.segment[query])
                        number = literal.pick_draw(
                            protocol.seed, key, b, protocol.draws
                        )
                    sample.append(self.scores(protocol, spread, query, number, k))
                values[b, place] = reference.measure(np.array(sample), relevant)
        return np.nanmean(values, axis=1)

    def weight(self, protocol, row, sample):
        key = literal.key(self.recording[row])
        weight = exponential(protocol.seed, "recording", key, sample)
        return max(round(weight * 2**20), 1) / 2**20

    def total_map(self, protocol, k):
        """mAP of every raw sample of total: weights of recordings on both sides."""
        rows = range(len(self.label))
        folds = sorted(set(self.fold.tolist()) - {-1})
        values = []
        for sample in range(protocol.total_samples):
            weights = np.array([self.weight(protocol, row, sample) for row in rows])
            means = []
            for name in self.classes:
                pool = self.members(name, fold=-1)
                arrival = {
                    row: exponential(
                        protocol.seed, "total", literal.key(self.segment[row]), sample
                    )
                    / weights[row]
                    for row in pool
                }
                support = sorted(pool, key=arrival.get)[:k]
                share = weights[support] / weights[support].sum()
                means.append(share @ self.vectors[support])
            sums = np.zeros(len(self.classes))
            totals = np.zeros(len(self.classes))
            for fold in folds:
                queries = np.flatnonzero(self.fold == fold)
                relevant = self.relevant(queries)
                scores = np.array(
                    [
                        reference.log_odds(
                            [
                                2 * float(c @ self.vectors[query]) - float(c @ c)
                                for c in means
                            ]
                        )
                        for query in queries
                    ]
                )
                for n in range(len(self.classes)):
                    positive = weights[queries][relevant[:, n]].mean()
                    ap, _ = literal_metrics(
                        scores[:, n], relevant[:, n], weights[queries]
                    )
                    sums[n] += positive * ap
                    totals[n] += positive
            values.append((sums / totals).mean())
        return np.array(values)


def columns(table):
    return zip(table.label, table.segment, table.recording, table.matrix, strict=True)
