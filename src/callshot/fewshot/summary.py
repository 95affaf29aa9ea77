"""A tally → the records that people read: curves, classes, confusion, ties."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from callshot.fewshot.accumulate import MetricSums
from callshot.fewshot.episodes import Episodes, Split, splits
from callshot.fewshot.folds import complete_shots, new_exemplars
from callshot.fewshot.metrics import chance_average_precision
from callshot.records import (
    ClassCount,
    ClassCurve,
    Confusion,
    Curve,
    Evaluation,
    FloatArray,
    IntArray,
    Ties,
    Values,
)

PERCENTILES = (1, 25, 50, 75, 99)


@dataclass(frozen=True)
class Summary:
    """One encoder, one spread and one classifier, ready to be told."""

    corpus: str
    encoder: str
    spread: str
    k: IntArray
    tally: MetricSums
    episodes: Episodes
    counts: Sequence[ClassCount]
    classifier: str = "centroid"

    def tell(self, into: Evaluation) -> None:
        """Add the curves, the values behind them and the classes to an evaluation."""
        into.curve.extend(self.curves())
        into.values.extend(self.values())
        into.per_class.extend(self.classes())

    def curves(self) -> Iterator[Curve]:
        """Yield a point for every scoring, metric and k."""
        chances = chance_levels(self.episodes, self.tally)
        best = complete_shots(self.counts)
        for (scoring, metric), table in self.tally.values.items():
            levels = np.percentile(table, PERCENTILES, axis=1).T
            for s, k in enumerate(self.k.tolist()):
                low, quarter, half, three, high = levels[s].tolist()
                chance, new, ties = (
                    chances[scoring, metric],
                    new_exemplars(self.counts, k),
                    int(self.tally.tied[s].sum()),
                )
                yield Curve(
                    *self._key(scoring, metric, k),
                    float(table[s].mean()),
                    low,
                    quarter,
                    half,
                    three,
                    high,
                    chance,
                    k <= best,
                    new,
                    ties,
                )

    def values(self) -> Iterator[Values]:
        """Yield the values behind each curve."""
        for (scoring, metric), table in self.tally.values.items():
            key = self._key(scoring, metric, 0)
            yield Values(*key[:-1], self.k, table)

    def classes(self) -> Iterator[ClassCurve]:
        """Yield a point for every metric, k and class."""
        for metric, table in self.tally.per_class.items():
            low, high = np.percentile(table, (1, 99), axis=2)
            mean = table.mean(axis=2)
            for s, k in enumerate(self.k.tolist()):
                for n, label in enumerate(self.episodes.classes):
                    key = self._key("all", metric, k)
                    yield ClassCurve(
                        *key, label, float(mean[s, n]), float(low[s, n]), float(high[s, n])
                    )

    def confusion(self) -> Iterator[Confusion]:
        """Yield every cell of the confusion at every k."""
        names = self.episodes.classes
        for s, k in enumerate(self.k.tolist()):
            for true, row in zip(names, self.tally.decisions[s], strict=True):
                for predicted, count in zip(names, row, strict=True):
                    yield Confusion(self.encoder, k, true, predicted, float(count))

    def ties(self, draws: int, reference: MetricSums | None) -> Iterator[Ties]:
        """Yield the ties of every class at every k, and their cost against a tally of log-odds on the same draws."""
        cost = {metric: _cost(self.tally, reference, metric) for metric in ("map", "auroc")}
        scored = np.maximum(self._positives() * draws, 1)
        for s, k in enumerate(self.k.tolist()):
            for n, label in enumerate(self.episodes.classes):
                tied = int(self.tally.tied[s, n])
                share = tied / int(scored[n])
                yield Ties(
                    self.encoder,
                    self.spread,
                    k,
                    label,
                    tied,
                    share,
                    cost["map"][s, n],
                    cost["auroc"][s, n],
                )

    def notes(self) -> Iterator[str]:
        """Yield a line for every class without an AUROC in some fold."""
        for name, folds in zip(self.episodes.classes, self.tally.undefined.tolist(), strict=True):
            if folds:
                yield f"{self.encoder}: every query of {folds} fold(s) is positive for '{name}': no AUROC there"

    def _positives(self) -> IntArray:
        return np.asarray(np.sum([part.positives for part in splits(self.episodes)], axis=0))

    def _key(self, scoring: str, metric: str, k: int) -> tuple[str, str, str, str, str, str, int]:
        return self.corpus, self.encoder, self.classifier, scoring, metric, self.spread, k


def tell_ties(ties: Sequence[Ties]) -> list[str]:
    """Return a note on the ties of one encoder and spread: how many, where most, and the most that they cost."""
    total, worst = sum(t.ties for t in ties), max(ties, key=lambda t: t.share)
    if not total:
        return []
    dear = max(ties, key=lambda t: t.cost_map)
    cost = (
        f", and cost up to {dear.cost_map:.3f} of AP ('{dear.label}', k = {dear.k})"
        if dear.cost_map > 0
        else ""
    )
    most = f"{worst.share:.0%} of those of '{worst.label}' at k = {worst.k}"
    return [
        f"{worst.encoder}, {worst.spread}: scores of positives tie with others, {most}{cost}; see ties.csv"
    ]


def chance_levels(episodes: Episodes, tally: MetricSums) -> dict[tuple[str, str], float]:
    """Return what a random ranking, and a random decision, would score on these folds."""
    parts = splits(episodes)
    levels = {}
    for scoring, groups in tally.groups.items():
        by_fold = [np.mean([_chance_ap(part)[group].mean() for group in groups]) for part in parts]
        levels[scoring, "map"] = float(np.mean(by_fold))
        levels[scoring, "auroc"] = 0.5
    levels["all", "accuracy"] = float(np.mean([part.relevant.mean() for part in parts]))
    return levels


def _chance_ap(part: Split) -> FloatArray:
    return chance_average_precision(part.positives, np.full(len(part.positives), len(part.rows)))


def _cost(tally: MetricSums, reference: MetricSums | None, metric: str) -> FloatArray:
    mean = tally.per_class[metric].mean(axis=2)
    return (
        np.zeros_like(mean)
        if reference is None
        else reference.per_class[metric].mean(axis=2) - mean
    )
