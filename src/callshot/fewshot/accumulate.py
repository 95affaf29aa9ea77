"""Metrics of folds and classes → the values of one spread: macro over classes, then mean over folds."""

from collections.abc import Mapping, Sequence

import numpy as np

from callshot.errors import InputError
from callshot.fewshot.episodes import Split
from callshot.records import FloatArray, IntArray

METRICS = ("map", "auroc", "accuracy")


class MetricSums:
    """Adds up folds, in their order, so that nothing of size folds × samples is kept.

    values[scoring, metric] is (shots, samples); per_class[metric] is (shots, classes, samples). Scoring `all` averages
    over classes, `reduced` inside each category first. A class for which every query of a fold is positive has no
    AUROC there: it is left out of that fold's mean, and `undefined` counts it.
    """

    def __init__(
        self, shots: int, samples: int, classes: Sequence[str], categories: Mapping[str, str] | None
    ) -> None:
        self.groups = {"all": [np.array([n]) for n in range(len(classes))]}
        if categories is not None:
            self.groups["reduced"] = group_classes(classes, categories)
        keys = [(scoring, metric) for scoring in self.groups for metric in ("map", "auroc")]
        self.values = {key: np.zeros((shots, samples)) for key in [*keys, ("all", "accuracy")]}
        self.per_class = {metric: np.zeros((shots, len(classes), samples)) for metric in METRICS}
        self.tied = np.zeros((shots, len(classes)), np.int64)
        self.decisions = np.zeros((shots, len(classes), len(classes)))
        self.undefined = np.zeros(len(classes), np.int64)
        self.folds = 0
        self.with_auroc = dict.fromkeys(self.groups, 0)

    def add(
        self, at: int, part: Split, ap: FloatArray, auroc: FloatArray, hits: FloatArray
    ) -> None:
        """Add one fold's metrics, (classes, samples), at one of the shots; hits are counts of queries."""
        own = np.bincount(part.label, minlength=len(ap))
        self.per_class["map"][at] += ap
        self.per_class["auroc"][at] += np.nan_to_num(auroc)
        self.per_class["accuracy"][at] += hits / own[:, None]
        self.values["all", "accuracy"][at] += hits.sum(axis=0) / len(part.rows)
        defined = np.flatnonzero(part.positives < len(part.rows))
        for scoring, groups in self.groups.items():
            self.values[scoring, "map"][at] += _mean_of_groups(ap, groups)
            self.values[scoring, "auroc"][at] += _mean_of_groups(auroc, _keep(groups, defined))

    def close_fold(self, part: Split) -> None:
        """Note that a fold is complete."""
        undefined = part.positives == len(part.rows)
        self.folds += 1
        self.undefined += undefined
        for scoring, groups in self.groups.items():
            self.with_auroc[scoring] += bool(_keep(groups, np.flatnonzero(~undefined)))

    def finish(self, draws: int) -> None:
        """Turn sums over folds into means, and decisions into mean counts over draws."""
        defined = np.maximum(self.folds - self.undefined, 1)[:, None]
        for (scoring, metric), table in self.values.items():
            table /= (self.with_auroc[scoring] or np.nan) if metric == "auroc" else self.folds
        self.per_class["map"] /= self.folds
        self.per_class["accuracy"] /= self.folds
        self.per_class["auroc"] /= defined
        self.per_class["auroc"][:, self.undefined == self.folds] = np.nan
        self.decisions /= draws


def group_classes(classes: Sequence[str], categories: Mapping[str, str]) -> list[IntArray]:
    """Return the class numbers of each category, in the order of their names; classes without one are left out."""
    names = sorted({categories[name] for name in classes if name in categories})
    if not names:
        raise InputError(
            f"categories: none of the evaluated labels is in the map; the labels are {', '.join(classes)}"
        )
    return [
        np.array([n for n, name in enumerate(classes) if categories.get(name) == group])
        for group in names
    ]


def _keep(groups: Sequence[IntArray], defined: IntArray) -> list[IntArray]:
    """Drop the classes that are not defined, and the groups that this empties."""
    kept = [group[np.isin(group, defined)] for group in groups]
    return [group for group in kept if group.size]


def _mean_of_groups(table: FloatArray, groups: Sequence[IntArray]) -> FloatArray:
    """Average (classes, samples) over the classes of each group, then over groups; 0 without a group."""
    total = np.zeros(table.shape[1])
    for group in groups:
        total += table[group].mean(axis=0) if group.size > 1 else table[group[0]]
    return total / max(len(groups), 1)
