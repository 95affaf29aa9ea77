"""Names that every package uses: metrics, spreads, baselines, states of files, and progress."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

Progress = Callable[[float, str], None]
"""Called with a share of the work (all shares add up to 1) and what that share belongs to."""

NO_LICENCE = "none needed"  # of an encoder without weights
RANKING_METRICS = ("map", "auroc")
METRICS = (*RANKING_METRICS, "accuracy")  # those that a class has too
DECISION_METRICS = ("accuracy", "balanced_accuracy")
METRIC_NAMES = {
    "map": "mAP",
    "auroc": "AUROC",
    "accuracy": "accuracy",
    "balanced_accuracy": "balanced accuracy",
}
SPREADS = ("per-query", "shared", "total")  # each says more than the one before
BASELINE_KINDS = ("logistic", "recurrent", "end-to-end")
STATES = {
    "ok": "as it was written",
    "unverified": "can be read, but has no checksum",
    "quarantined": "was damaged and renamed, and is not used any more",
    "not from callshot": "was not written by callshot",
    "missing": "is listed, but not there",
    "damaged": "differs from its checksum, or cannot be read",
}
FAILURES = ("missing", "damaged")


def preferred_spread(spreads: Iterable[str]) -> str:
    """Return the spread that sentences rest on: total where it was evaluated, else shared.

    >>> preferred_spread(["shared", "per-query"])
    'shared'
    """
    return max(spreads, key=SPREADS.index)


def reference_classifier(classifiers: Sequence[str]) -> str:
    """Return the classifier that others are compared with: the centroid, else the first one."""
    return "centroid" if "centroid" in classifiers else classifiers[0]


def scale_progress(progress: Progress, factor: float) -> Progress:
    """Return a progress for a part of the work, of which `factor` is the share."""
    return lambda share, what: progress(share * factor, what)


def no_progress(share: float, what: str) -> None:
    """Ignore progress: the default where nobody watches."""


class Finding(NamedTuple):
    """The state of a file (a key of STATES), and the reason if it is not ok."""

    path: Path
    state: str
    reason: str = ""
