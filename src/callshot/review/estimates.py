"""Decisions → precision of each class with its interval, and how far reviewers agree."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.records import IntArray
from callshot.review.decisions import Decisions
from callshot.review.items import Items
from callshot.review.orders import Sample

Z = 1.959963984540054  # of a 95 % interval
AIM = 0.05  # half the width of the interval


@dataclass(frozen=True)
class Precision:
    """How many detections of a class are right, by a fair sample of them."""

    reviewed: int
    confirmed: int
    detections: int

    @property
    def share(self) -> float | None:
        """The share of the sample that is right, None without a sample."""
        return None if self.reviewed == 0 else self.confirmed / self.reviewed

    @property
    def interval(self) -> tuple[float | None, float | None]:
        """Wilson's 95 % interval; one number if all detections were reviewed."""
        if self.reviewed == 0:
            return None, None
        if self.reviewed >= self.detections:
            return self.share, self.share
        return wilson_interval(self.confirmed, self.reviewed)

    @property
    def more_for_aim(self) -> int:
        """How many more reviews until the interval is ± 5 %, if the share stays as it is."""
        left = self.detections - self.reviewed
        share = 0.5 if self.share is None else self.share
        for more in range(left):
            total = self.reviewed + more
            if total == 0:
                continue
            low, high = wilson_interval(share * total, total)
            if high - low <= 2 * AIM:
                return more
        return left


def wilson_interval(hits: float, count: int) -> tuple[float, float]:
    """Return Wilson's 95 % interval of a share.

    >>> [round(limit, 4) for limit in wilson_interval(9, 10)]
    [0.5958, 0.9821]
    """
    share = hits / count
    square = Z * Z / count
    middle = (share + square / 2) / (1 + square)
    variance = share * (1 - share) / count
    half = Z * math.sqrt(variance + square / (4 * count)) / (1 + square)
    return max(0.0, middle - half), min(1.0, middle + half)


def estimate_precision(
    number: int, items: Items, decisions: Decisions, sample: Sample
) -> Precision:
    """Return the precision of a class by the beginning of its random order.

    Only items before the first that nobody decided count: the rest was chosen for other reasons,
    and would bias the estimate. Skipped items are passed over.
    """
    order = sample.by_class.get(number, np.zeros(0, np.int64))
    reviewed = 0
    confirmed = 0
    name = items.name(number)
    for item in order.tolist():
        verdict = decisions.verdicts.get(item)
        if verdict is None:
            if not decisions.is_decided(item):
                break
            continue
        reviewed += 1
        confirmed += verdict.call_label == name
    return Precision(reviewed, confirmed, len(order))


def cohen_kappa(first: Sequence[Any], second: Sequence[Any]) -> float | None:
    """Return how far two reviewers agree beyond chance; None if that is not defined.

    >>> cohen_kappa(["a", "a", "b", "b"], ["a", "a", "b", "a"])
    0.5
    """
    count = len(first)
    if count == 0:
        return None
    agreed = sum(map(_equal, first, second)) / count
    of_first = Counter(first)
    of_second = Counter(second)
    pairs = sum(of_first[name] * of_second[name] for name in of_first)
    chance = pairs / count**2
    if chance == 1:
        return None
    return float((agreed - chance) / (1 - chance))


def measure_agreement(decisions: Decisions) -> dict[str, Any]:
    """Return how many items two reviewers decided, how many alike, and Cohen's kappa.

    With more than two reviewers, kappa is the mean over pairs, weighted by their common items.
    """
    verdicts = _collect_verdicts(decisions)
    pairs = 0
    agreed = 0
    kappas: list[tuple[float, int]] = []
    for name, other in combinations(sorted(verdicts), 2):
        common = sorted(verdicts[name].keys() & verdicts[other].keys())
        first = [verdicts[name][item] for item in common]
        second = [verdicts[other][item] for item in common]
        pairs += len(common)
        agreed += sum(map(_equal, first, second))
        kappa = cohen_kappa(first, second)
        if kappa is not None:
            kappas.append((kappa, len(common)))
    return {"pairs": pairs, "agreed": agreed, "kappa": _weighted_mean(kappas)}


def _collect_verdicts(decisions: Decisions) -> dict[str, dict[int, str | None]]:
    """Return what each reviewer called each item."""
    verdicts: dict[str, dict[int, str | None]] = {}
    for item in decisions.touched:
        for decision in decisions.find_all(item):
            if decision.is_verdict:
                verdicts.setdefault(decision.reviewer, {})[item] = decision.call_label
    return verdicts


def _weighted_mean(values: Sequence[tuple[float, int]]) -> float | None:
    weight = sum(count for _, count in values)
    if weight == 0:
        return None
    return sum(value * count for value, count in values) / weight


def _equal(first: Any, second: Any) -> bool:
    return bool(first == second)


def count_classes(items: Items) -> IntArray:
    """Return the number of items of the source of each label."""
    label = items.label[: items.original_count]
    return np.bincount(label[label >= 0], minlength=len(items.labels))


def count_status(status: NDArray[np.int8], is_active: NDArray[np.bool_]) -> IntArray:
    """Return how many items are undecided, decided and skipped."""
    return np.bincount(status[is_active], minlength=3)
