"""Names that every package uses: metrics, spreads, baselines, states of files, and progress."""

import re
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from callshot.spans import Spans

Progress = Callable[[float, str], None]
"""Called with a share of the work (all shares add up to 1) and what that share belongs to."""

NO_LICENCE = "none needed"  # of an encoder without weights
COMMON_FOLD = -1  # the number of the fold whose segments are in every support set
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


IntArray = NDArray[np.int64]

INTEGER = re.compile(r"[+-]?[0-9]{1,18}(?:\.0+)?")  # 2.0: pandas, beside a missing one
MISSING = ("", "na", "nan", "none", "null")


def number_folds(names: Iterable[object]) -> list[int]:
    """Return the number of each fold; None and empty names are the common fold.

    Integers stay as they are. If one fold is not an integer, all are numbered from 0 in the order
    of their names, in which numbers count as numbers.

    >>> number_folds(["1", "5", -1, None])
    [1, 5, -1, -1]
    >>> number_folds(["site 10", "site 9", "", "site 10"])
    [1, 0, -1, 1]
    """
    texts = []
    for name in names:
        text = "" if name is None else str(name).strip()
        text = text.replace("\N{MINUS SIGN}", "-")
        if text.casefold() in MISSING:
            text = str(COMMON_FOLD)
        elif INTEGER.fullmatch(text):
            text = str(int(text.partition(".")[0]))
        texts.append(text)
    fold_names = {text for text in texts if text != str(COMMON_FOLD)}
    if all(map(INTEGER.fullmatch, fold_names)):
        return [int(text) for text in texts]
    numbers = {text: n for n, text in enumerate(sorted(fold_names, key=_natural_key))}
    return [numbers.get(text, COMMON_FOLD) for text in texts]


def given_folds(segments: Spans) -> IntArray | None:
    """Return the folds that came with the annotations of segments; None if there are none."""
    if "fold" not in segments.frame.columns:
        return None
    folds = segments["fold"]
    if all(fold is None for fold in folds):
        return None
    return np.array(number_folds(folds), np.int64)


def _natural_key(text: str) -> list[tuple[int, str]]:
    """Return a key that sorts "fold 9" before "fold 10"."""
    parts = re.split(r"([0-9]{1,18})", text)
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in parts]
