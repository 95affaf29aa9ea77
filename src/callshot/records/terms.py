"""Names that every package uses: metrics, spreads, scorings, kinds of baselines, and progress."""

from collections.abc import Callable, Iterable

Progress = Callable[[float, str], None]
"""Called with a share of the work (all shares add up to 1) and what that share belongs to."""

NO_LICENCE = "none needed"  # of an encoder without weights
COMMON_FOLD = -1  # the number of the fold whose segments are in every support set
RANKING_METRICS = ("map", "auroc")
METRICS = (*RANKING_METRICS, "accuracy")  # those that a class has too
DECISION_METRICS = ("accuracy", "balanced_accuracy")
SPREADS = ("per-query", "shared", "total")  # each says more than the one before
BASELINE_KINDS = ("logistic", "recurrent", "end-to-end")


def preferred_spread(spreads: Iterable[str]) -> str:
    """Return the spread that sentences rest on: total where it was evaluated, else shared.

    >>> preferred_spread(["shared", "per-query"])
    'shared'
    """
    return max(spreads, key=SPREADS.index)


def scale_progress(progress: Progress, factor: float) -> Progress:
    """Return a progress for a part of the work, of which `factor` is the share."""
    return lambda share, what: progress(share * factor, what)


def no_progress(share: float, what: str) -> None:
    """Ignore progress: the default where nobody watches."""
