"""AERD as it was published, one network for each of its own folds, by the package of its authors → scores of segments.

The package is GPL-3 and no part of callshot: it is imported where a user has installed it, and asked by the names it
publishes: `aerd(weights=…, fold=…)` → (model, preprocess); `model.predict(signals)` → probabilities (1, frames,
outputs). Its folds count from 1. A network is taken to have learnt all folds but its own (`ko1` in the file's name), so
it may score its own only: the corpus must have AERD's folds, fold 0 here being its fold 1. No file could prove that.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from callshot.baselines.spectrogram import SHORTEST, check_signal
from callshot.errors import InputError, OptionError
from callshot.records import FloatArray, IntArray

VARIANTS = ("EV_CALL", "EV_SUBCALL", "EV_BINARY", "LDC_POOLE", "LDC_BINARY")
SATURATED = 1e-7  # from 0 or 1, where a float32 probability has no more digits


@dataclass(frozen=True)
class Published:
    """The networks of a variant: what they tell apart, and how to open that of a fold, from 0."""

    variant: str
    names: tuple[str, ...]
    folds: int
    open: Callable[[int], Any]


def load_aerd(variant: str = "EV_SUBCALL") -> Published:
    """Return the published networks; the package downloads the weights of a fold when it is opened."""
    if variant not in VARIANTS:
        raise OptionError(f"variant: one of {', '.join(VARIANTS)}, got {variant!r}")
    try:
        package = import_module("aerd")
    except ImportError as error:
        missing = error.name or "aerd"
        raise InputError(
            f"AERD as published: {missing} is missing; pip install aerd (GPL-3, Python 3.11)"
        ) from error
    weights = getattr(package.AERD_Weights, variant)
    labels = weights.class_labels
    names = tuple(str(labels[n]) for n in range(int(weights.num_classes)))
    return Published(
        variant,
        names,
        int(weights.num_folds),
        lambda fold: package.aerd(weights=weights, fold=fold + 1)[0],
    )


def score_published(
    published: Published,
    signals: Sequence[NDArray[np.float32]],
    fold: IntArray,
    names: Sequence[str],
) -> FloatArray:
    """Score each segment by the network of its fold: log-odds (rows, outputs), NaN in the common fold.

    `names` are some of the network's, in any order; the score is the mean of the frames' log-odds, as in training here.
    """
    _refuse(published, len(signals), fold, names)
    places = [published.names.index(name) for name in names]
    scores = np.full((len(signals), len(names)), np.nan)
    for number in range(published.folds):
        rows = np.flatnonzero(fold == number)
        network = published.open(number) if rows.size else None
        for row in rows.tolist():
            scores[row] = _log_odds(network, check_signal(row, signals[row]))[places]
    return scores


def _refuse(published: Published, signals: int, fold: IntArray, names: Sequence[str]) -> None:
    unknown = [name for name in names if name not in published.names]
    if unknown:
        known = ", ".join(published.names)
        raise InputError(
            f"AERD {published.variant}: wanted outputs among {known}, got {unknown[0]!r}"
        )
    if signals != len(fold):
        raise InputError(f"fold: wanted one for each of {signals} signals, found {len(fold)}")
    folds = np.unique(fold[fold >= 0])
    if not np.array_equal(folds, np.arange(published.folds)):
        found = ", ".join(map(str, folds[:12].tolist())) or "none"
        wanted = f"wanted its {published.folds} folds, 0 to {published.folds - 1}, as its authors made them"
        raise InputError(f"AERD {published.variant}: {wanted}, found {found}")


def _log_odds(network: Any, signal: NDArray[np.floating[Any]]) -> FloatArray:
    torch = import_module("torch")
    padded = np.pad(signal.astype(np.float32), (0, max(0, SHORTEST - len(signal))))
    with torch.inference_mode():
        found = network.predict(torch.from_numpy(padded)[None], output="tensor")
    share = np.clip(
        found.double().cpu().numpy().reshape(-1, found.shape[-1]), SATURATED, 1.0 - SATURATED
    )
    return np.asarray((np.log(share) - np.log1p(-share)).mean(axis=0))
