"""Names that every package uses: metrics, spreads, baselines, states of files, and progress."""

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

Progress = Callable[[float, str], None]
"""Called with a share of the work (all shares add up to 1) and what that share belongs to."""

NO_LICENCE = "none needed"  # of an encoder without weights


class Metric(NamedTuple):
    """What people call a metric, its kind, and what they call its value for one class.

    The kind is `ranking` (of the scores of all queries) or `decision` (for one class per query).
    Without a name for classes, no class has a value. `callshot.fewshot.metrics` computes them.
    """

    title: str
    kind: str
    of_class: str = ""
    lowest: float = 0.0  # that it can be; the highest is 1


METRICS = {
    "map": Metric("mAP", "ranking", of_class="AP"),
    "auroc": Metric("AUROC", "ranking", of_class="AUROC"),
    "accuracy": Metric("accuracy", "decision", of_class="accuracy"),
    "balanced_accuracy": Metric("balanced accuracy", "decision"),
    "macro_f1": Metric("macro F1", "decision", of_class="F1"),
}
METRIC_NAMES = {name: metric.title for name, metric in METRICS.items()}
RANKING_METRICS = tuple(name for name in METRICS if METRICS[name].kind == "ranking")
DECISION_METRICS = tuple(name for name in METRICS if METRICS[name].kind == "decision")
CLASS_METRICS = tuple(name for name in METRICS if METRICS[name].of_class)
# What an interval includes, in rising order: draws of each query, labelled sets, also recordings.
SPREADS = ("per-query", "shared", "total")
MEAN = "mean"  # of the spread `shared`: samples of it as other recordings would move it
LARGEST_P = 0.02  # that is called better than chance
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
    """Return the spread that intervals in sentences have: total if evaluated, else shared.

    >>> preferred_spread(["shared", "per-query"])
    'shared'
    """
    return max(spreads, key=SPREADS.index)


def comparison_spread(spreads: Iterable[str]) -> str:
    """Return the spread that comparisons rest on: the mean over labelled sets where it is known.

    >>> comparison_spread(["total", "shared", "mean"]), comparison_spread(["per-query"])
    ('mean', 'per-query')
    """
    names = set(spreads)
    return MEAN if MEAN in names else preferred_spread(names)


def reference_classifier(classifiers: Sequence[str]) -> str:
    """Return the classifier that others are compared with: the centroid, else the first one."""
    return "centroid" if "centroid" in classifiers else classifiers[0]


def scale_progress(progress: Progress, factor: float) -> Progress:
    """Return a progress for a part of the work, of which `factor` is the share."""
    return lambda share, what: progress(share * factor, what)


def no_progress(share: float, what: str) -> None:
    """Ignore progress: the default."""


class Finding(NamedTuple):
    """The state of a file (a key of STATES), and the reason if it is not ok."""

    path: Path
    state: str
    reason: str = ""
